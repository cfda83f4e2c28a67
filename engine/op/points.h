/* Points: at which sizes calibration measures operators, and what each of them launches.
 *
 * Descriptors add points for their operator (struct op_launch); one of a class that is there
 * already adds none. */
#ifndef UNMASK_ENGINE_OP_POINTS_H
#define UNMASK_ENGINE_OP_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/price/profile/profile.h"
#include "sim/step/graph.h"

struct trial;

enum { POINT_MAX_SIZES = 6 };

/* Columns of `sizes`, in the order of a profile's rows; a pass has its name before them. */
enum { POINT_GEMM_M = 0, POINT_GEMM_N = 1, POINT_GEMM_K = 2 };
enum { POINT_BATCH = 0, POINT_Q = 1, POINT_KV = 2 }; /* no POINT_KV in full attention */
enum { POINT_PASS_CHANNELS = 0, POINT_PASS_ROWS = 1 };
enum { POINT_EXCHANGE_GPUS = 0, POINT_EXCHANGE_BYTES = 1 };

struct calibration_point {
    enum profile_op op;
    enum profile_pass pass; /* where op is PROFILE_PASS */
    enum profile_type type;
    int64_t sizes[POINT_MAX_SIZES];
    uint32_t n_sizes, group;
    uint32_t head_dim, kv_heads; /* of attention: layers that see everything may have others */
    bool is_heavy; /* the device's arithmetic units bound it, at its largest sizes at least */
    /* What is launched: n_ops operators of one of the model's graphs, from first_op on. */
    int variant;
    uint32_t first_op, n_ops;
    /* The requests that it is launched for, `n_rows` of them or of their tokens; NULL: n_rows
     * tokens, all with logits. */
    void (*fill)(struct trial *trial, const struct calibration_point *point);
    int64_t n_rows;
    bool is_difference; /* what it takes beyond the same with a single row kept a request */
};

struct calibration_bounds {
    int64_t max_tokens;     /* rows of everything that runs per token */
    int64_t max_logit_rows; /* rows of stored logits */
    int64_t max_kv_rows;    /* cached rows of one layer, all requests together */
    int64_t max_store_rows; /* the same of all layers, in whole steps */
    int64_t page_rows;      /* of a page; read where keys and values are exact */
    bool is_coarse;         /* a few sizes instead of all */
};

struct calibration_grid {
    struct calibration_point *points;
    size_t n, capacity;
    uint32_t n_groups;
};

/* Where descriptors add theirs: the grid, and the graph whose operator is asked. */
struct points {
    struct calibration_grid *grid;
    const struct calibration_bounds *bounds;
    const struct graph *graph;
    int variant; /* of the model's graphs */
};

/* Rising sizes without repetition. */
enum { MOST_SIZES = 160 };
struct sizes {
    int64_t values[MOST_SIZES];
    size_t n;
};

/* Those of a list, or one, that are not above `max`. */
void sizes_add(struct sizes *sizes, int64_t value, int64_t max);
void sizes_add_list(struct sizes *sizes, const int64_t *values, size_t n, int64_t max);
#define SIZES_ADD(sizes, max, ...)                                                                 \
    sizes_add_list(sizes, (const int64_t[]){__VA_ARGS__},                                          \
                   sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), max)

/* Rows up to `max` of what is one pass over memory, or streams the head's weights. */
void sizes_of_pass(struct sizes *sizes, int64_t max, bool is_coarse);

/* A point of this operator, without its rows. */
struct calibration_point point_of(const struct points *points, const struct op *op);

/* Whether a point of its class is there already. */
bool points_have(const struct points *points, const struct calibration_point *point);
void points_add(struct points *points, const struct calibration_point *point);
/* No more points of the last class come. */
static inline void points_end_group(struct points *points) {
    points->grid->n_groups++;
}

/* The point's class at each of `sizes`, or at its operator's own. */
void points_add_sizes(struct points *points, struct calibration_point *point,
                      const struct sizes *sizes, bool falls);

/* All that an operator's descriptor says. */
void points_add_op(struct points *points, const struct op *op);

/* Patterns are measured in blocks of this size, SparseD's own. */
enum { PATTERN_TOKENS = 128 };

/* Selection and keeping are measured over requests of canvases of at most this many tokens, their
 * active blocks included. */
enum { SELECT_CANVAS_TOKENS = 1024 };

#endif
