/* Memory that grows under way, for schedulers that see to it: which requests give back when one
 * needs more. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_GROWTH_H
#define UNMASK_SIM_POLICY_SCHEDULER_GROWTH_H

#include <stdbool.h>

#include "sim/policy/scheduler/scheduler.h"

/* How requests give their memory back, and its parameter. */
enum preempts { PREEMPTS_RECOMPUTE, PREEMPTS_SWAP };
extern const char *const preempts_words[]; /* ends with NULL */
#define PREEMPTS_PARAM(state, field)                                                               \
    PARAM_ONE_OF(                                                                                  \
        "preempts", state, field, preempts_words, "recompute",                                     \
        "how a request gives its memory back: it is computed anew, or swapped out to the "         \
        "host's memory while that has room (swap.host_bytes)")

/* What is left while a batch is put together. Running requests give back from the last admitted on;
 * those from n_running on have. */
struct growth {
    const struct schedule_view *view;
    int64_t free_bytes, host_bytes;
    uint32_t n_running;
    bool swaps; /* those that the host's memory has room for */
};

struct growth growth_of(const struct schedule_view *view, enum preempts preempts);

/* Whether it would be swapped out by growth_give_back. */
bool growth_swaps(const struct growth *growth, const struct request *request);

/* Preempts a running request: swapped out where the host's memory has room, computed anew else. */
void growth_give_back(struct growth *growth, uint32_t slot, struct batch *batch);

/* Room for the growth of the running request at place `i` of view->running, with the last ones
 * preempted where it is lacking; false when it was itself the last, and is preempted. */
bool growth_take(struct growth *growth, uint32_t i, struct batch *batch);

/* Query tokens that a request takes of what it has left of `tokens`: all of its span, or as much of
 * a prefill as fits, in whole blocks; 0: nothing fits. */
uint32_t growth_chunk(const struct request *request, int64_t tokens);

/* Whether it has room without anyone preempted. */
bool growth_fits(const struct growth *growth, const struct request *request);

/* growth_take, and the request is listed with `tokens` of its span; false where that is nothing. */
bool growth_run(struct growth *growth, uint32_t i, uint32_t tokens, struct batch *batch);

/* Admits a waiting request with so much of its span; false where that is nothing, or memory or a
 * place lacks. */
bool growth_admit(struct growth *growth, uint32_t slot, uint32_t tokens, struct batch *batch);

/* Lists running requests, in order of admission, then waiting ones while tokens and memory last; a
 * prefill that does not fit whole is taken in chunks. A step that preempts some admits none. */
void growth_list_all(const struct schedule_view *view, enum preempts preempts, struct batch *batch);

/* Lists prefills alone: of running requests, then of waiting ones, in order, as far as memory and
 * `tokens` go, at most `blocks` blocks of each request (0: any). What cannot be cut to that, as a
 * block or the first pass over a canvas, goes alone. A waiting request whose prompt fills no block
 * starts with its first step instead. No request is preempted: a prefill holds its memory from its
 * admission on. */
void growth_list_prefills(const struct schedule_view *view, int64_t tokens, uint32_t blocks,
                          struct batch *batch);

#endif
