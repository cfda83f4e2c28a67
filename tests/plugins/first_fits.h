/* What plug-ins of the tests have in common: requests in their order, as far as they fit. */
#ifndef UNMASK_TESTS_PLUGINS_FIRST_FITS_H
#define UNMASK_TESTS_PLUGINS_FIRST_FITS_H

#include "sim/policy/scheduler/scheduler.h"

/* Tokens of the step and bytes of the pool that the batch takes so far. */
struct taken {
    int64_t tokens, bytes;
};

static inline void select_running(const struct schedule_view *view, struct taken *taken,
                                  struct batch *batch) {
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        if (taken->tokens + request->span.queries <= view->max_batched_tokens) {
            batch->selected[batch->n++] = view->running[i];
            taken->tokens += request->span.queries;
        }
    }
}

static inline void admit_waiting(const struct schedule_view *view, uint32_t most,
                                 struct taken *taken, struct batch *batch) {
    for (uint32_t i = 0; i < view->n_waiting && batch->n_admitted < most; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        taken->tokens += request->span.queries;
        taken->bytes += request->kv_bytes;
        if (taken->tokens > view->max_batched_tokens || taken->bytes > view->kv_free_bytes ||
            view->n_running + batch->n_admitted == view->max_requests) {
            break;
        }
        batch->selected[batch->n++] = view->waiting[i];
        batch->n_admitted++;
    }
}

#endif
