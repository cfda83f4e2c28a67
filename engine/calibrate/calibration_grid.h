/* The grid of a calibration: at which sizes the operators of a model's step graphs are measured.
 *
 * Points are one per distinct shape over all graphs that our engine runs for the model: with and
 * without selection (where the model's attention is bidirectional), with the fused operators
 * (output head, gate and up) and without; of a model that is a rank's share, the rank's, and what
 * the ranks exchange. They lie in groups (one product, one pass, one width of
 * block attention), light groups first; within a group sizes rise. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_GRID_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/cost/profile.h"
#include "sim/graph/builder.h"

enum { POINT_MAX_SIZES = 6, POINT_TEXT_CHARS = 128 };

/* Columns of `sizes`, in the order of a profile's rows; a pass has its name before them. */
enum { POINT_GEMM_M = 0, POINT_GEMM_N = 1, POINT_GEMM_K = 2 };
enum { POINT_BATCH = 0, POINT_Q = 1, POINT_KV = 2 }; /* no POINT_KV in full attention */
enum { POINT_PASS_CHANNELS = 0, POINT_PASS_ROWS = 1 };
enum { POINT_FUSED_ROWS = 0, POINT_FUSED_N = 1, POINT_FUSED_K = 2 };
enum { POINT_EXCHANGE_GPUS = 0, POINT_EXCHANGE_BYTES = 1 };
enum { POINT_MOE_TOKENS = 0 }; /* hidden, expert_ffn, top_k and experts are the model's */

struct calibration_point {
    /* PROFILE_GEMM, _ATTENTION_FULL, _ATTENTION_CAUSAL, _ATTENTION_BLOCK, _PASS, _HEAD, _GATE_UP,
     * _MOE; of a model that several ranks hold together _ALL_REDUCE, _ALL_GATHER */
    enum profile_op op;
    enum profile_pass pass; /* where op is PROFILE_PASS */
    int64_t sizes[POINT_MAX_SIZES];
    int weight;       /* enum weight_slot of the matrix it reads, or -1 */
    int64_t x_stride; /* elements between the rows of its input, as the graph lays them out */
    uint32_t group;
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

/* Whether the model's keys and values are exact: the rows of paged attention are measured then, of
 * prefill (attention_causal) and of blocks or single tokens (attention_block); nothing selects. */
static inline bool calibration_is_exact(const struct model *model) {
    return model->mask != MASK_BIDIRECTIONAL;
}

/* The graphs that our engine runs for a model. */
struct graph_options calibration_graph(const struct model *model, int64_t element_bytes,
                                       bool selects, bool is_fused);

/* ERR_USAGE naming the first operator that cannot be measured. The caller closes the grid. */
int calibration_grid_make(struct calibration_grid *grid, const struct model *model,
                          int64_t element_bytes, const struct calibration_bounds *bounds,
                          struct err *err);
void calibration_grid_close(struct calibration_grid *grid);

/* A row of a profile up to its time: "gemm,32,4096,4096". Returns `text`. */
const char *calibration_point_text(const struct calibration_point *point,
                                   char text[POINT_TEXT_CHARS]);

/* Whether it is something that ranks do together, and the most bytes of one rank in any such point;
 * 0 where there is none. */
static inline bool calibration_point_is_exchange(const struct calibration_point *point) {
    return point->op == PROFILE_ALL_REDUCE || point->op == PROFILE_ALL_GATHER;
}
int64_t calibration_most_exchanged(const struct calibration_grid *grid);

/* Whether the device's arithmetic units bound it, at its largest sizes at least. */
bool calibration_point_is_heavy(const struct calibration_point *point);

/* Selection is measured over requests of canvases of at most so many tokens, their active blocks
 * included: how many requests have this many candidates together, and how many tokens in all. */
enum { SELECT_CANVAS_TOKENS = 1024 };
int64_t calibration_select_requests(int64_t n_candidates, int64_t block_tokens);

#endif
