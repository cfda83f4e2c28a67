#include "sim/policy/scheduler/admission.h"

struct admission admission_begin(const struct schedule_view *view, struct batch *batch) {
    struct admission admission = {view, batch, 0, 0};
    for (uint32_t i = 0; i < view->n_running; i++) {
        admission.tokens += view->requests[view->running[i]].canvas_tokens;
    }
    batch->all_running = 1;
    batch->hold = HOLD_CHANGE;
    return admission;
}

bool admission_take(struct admission *admission, uint32_t slot) {
    const struct schedule_view *view = admission->view;
    struct batch *batch = admission->batch;
    const struct request *request = &view->requests[slot];
    const int64_t tokens = admission->tokens + request->canvas_tokens,
                  kv_bytes = admission->kv_bytes + request->kv_bytes;
    const bool is_alone =
        view->n_running + batch->n == 0 && request->span.queries <= view->max_batched_tokens;
    if (view->n_running + batch->n == view->max_requests || kv_bytes > view->kv_free_bytes ||
        (tokens > view->max_batched_tokens && !is_alone)) {
        return false;
    }
    admission->tokens = tokens;
    admission->kv_bytes = kv_bytes;
    batch->selected[batch->n++] = slot;
    batch->n_admitted = batch->n;
    return true;
}
