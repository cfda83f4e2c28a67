/* Planners: where buffers that live for known times lie in one memory.
 *
 * A packing problem is a list of buffers; a plan gives each an offset, so that no two that are live
 * at the same time overlap, and ends as low as the planner can manage. The tensors of a step graph
 * are one such problem (placement.h), a file of buffers another (instance.h). No plan ends below
 * the largest sum of bytes live at one time; sometimes none even reaches it. Finding the lowest end
 * is NP-hard, so a plan says what has been proven about it.
 *
 * Planners keep no state, read no clock and draw no random numbers from outside: the same problem
 * gets the same plan. */
#ifndef UNMASK_SIM_MEMORY_PLANNER_PLANNER_H
#define UNMASK_SIM_MEMORY_PLANNER_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

struct packing_buffer {
    int64_t first_time, last_time; /* live at both and at all times between */
    int64_t bytes;                 /* 0 takes no room: its offset is 0 */
    int64_t align_bytes;           /* the offset is a multiple of it; >= 1 */
};

/* No plan needs more than this: bytes and alignments of all buffers add up to no more. */
#define PACKING_MAX_BYTES (INT64_C(1) << 61)

/* Files hold no more. The exact search descends one level a buffer and takes on no more, either. */
enum { PACKING_MAX_BUFFERS = 8192 };

struct packing {
    const struct packing_buffer *buffers;
    uint32_t n_buffers;
};

struct plan_request {
    const struct packing *packing;
    int64_t capacity_bytes; /* a plan this low is low enough; 0: as low as possible */
    uint64_t max_nodes;     /* of a search for the optimum; 0: PLAN_DEFAULT_NODES */
    /* Told now and then how many nodes a search has seen; true stops it, and the best plan that it
     * found is the answer. May be NULL. */
    bool (*watch)(void *state, uint64_t n_nodes);
    void *watch_state;
};

/* 20 s on MiniMalloc's problems D and J, whose optimum stays open (measured on one core of a
 * server, 2026-11-21); the nine others need under 0.3 s. */
enum { PLAN_DEFAULT_NODES = 2000000 };

/* `offset_bytes` is the caller's, one for each buffer; the planner fills in the rest. */
struct plan {
    int64_t *offset_bytes;
    int64_t peak_bytes;
    int64_t lower_bound_bytes;  /* the largest sum of bytes live at one time */
    int64_t proven_bound_bytes; /* no plan ends below this; at least lower_bound_bytes */
    uint64_t n_nodes;           /* of a search; 0 where none was needed */
    bool stopped;               /* the search ended at its node budget, or was stopped */
};

enum gap_choice {
    GAP_LOWEST,   /* first-fit */
    GAP_SMALLEST, /* best-fit: the gap that the buffer fills best */
};

enum buffer_order {
    ORDER_BIRTH,    /* first time, then index */
    ORDER_BYTES,    /* largest first */
    ORDER_AREA,     /* bytes x lifetime, largest first */
    ORDER_LIFETIME, /* longest first */
    ORDER_CROWD,    /* most bytes live at a birth within its life, most first */
};
struct planner {
    const char *name, *doc;
    /* Greedy planners are no more than this (planner_order.h): `solve` is NULL. */
    enum buffer_order order;
    enum gap_choice gap;
    /* Scratch memory that `solve` wants for this problem; NULL: none. */
    size_t (*scratch_bytes)(const struct packing *packing);
    /* Fills in offsets and, where it has proven more than the lower bound, that. */
    int (*solve)(const struct plan_request *request, void *scratch, struct plan *plan,
                 struct err *err);
};

/* What a system may plan with, by name. */
extern const struct planner planner_table[];
extern const size_t planner_table_size;
const struct planner *planner_find(const char *name, struct err *err);

/* The planners of the table that have a file of their own. */
int plan_portfolio(const struct plan_request *request, void *scratch, struct plan *plan,
                   struct err *err);
size_t plan_portfolio_scratch_bytes(const struct packing *packing);
int plan_exact(const struct plan_request *request, void *scratch, struct plan *plan,
               struct err *err);
size_t plan_exact_scratch_bytes(const struct packing *packing);

/* Run a planner with scratch memory of the caller's (at least planner_scratch_bytes) or, if
 * `scratch` is NULL, with its own. Planners of the table fail only for want of memory of their own.
 */
int planner_solve(const struct planner *planner, const struct plan_request *request, void *scratch,
                  struct plan *plan, struct err *err);
size_t planner_scratch_bytes(const struct planner *planner, const struct packing *packing);

static inline bool plan_is_optimal(const struct plan *plan) {
    return plan->peak_bytes == plan->proven_bound_bytes;
}

static inline bool packing_live_together(const struct packing_buffer *a,
                                         const struct packing_buffer *b) {
    return a->first_time <= b->last_time && b->first_time <= a->last_time;
}

/* No two live buffers overlap, every offset is aligned, the peak is the end of the last buffer and
 * not below the bounds. ERR_WORLD naming the buffers by index otherwise. */
int plan_verify(const struct packing *packing, const struct plan *plan, struct err *err);

#endif
