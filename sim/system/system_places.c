#include "sim/system/system_places.h"

static int check_credit(const struct system *s, struct err *err) {
    bool has_logits = !s->runtime.fused_head && s->settings.allocator == ALLOCATOR_PLANNED;
    return s->decoder->credit == NULL || has_logits
               ? 0
               : err_usage(err,
                           "decoder %s adds credit to logits that exist, in planned steps: set "
                           "runtime.fused_head = off and allocator = planned",
                           s->decoder->policy.name);
}

static int check_smoothing(const struct system *s, struct err *err) {
    bool is_causal = s->model->mask == MASK_CAUSAL;
    bool is_planned = s->settings.allocator == ALLOCATOR_PLANNED;
    if (s->settings.iteration != ITERATION_SMOOTH ||
        (!s->runtime.fused_head && is_planned && !is_causal)) {
        return 0;
    }
    return err_usage(err, "iteration = smooth reads what planned steps say of masked positions: %s",
                     is_causal               ? "an autoregressive model has none"
                     : s->runtime.fused_head ? "set runtime.fused_head = off"
                                             : "set allocator = planned");
}

int system_check_places(const struct system *s, struct err *err) {
    int status = check_credit(s, err);
    return status == 0 ? check_smoothing(s, err) : status;
}

/* How many positions have a place. */
static int64_t count_places(struct settings *settings) {
    uint32_t block = settings->block_tokens, blocks = settings->max_batched_tokens / block;
    if (settings->max_requests == 0) {
        settings->max_requests = blocks > 0 ? blocks : 1;
    }
    return (int64_t)block * settings->max_requests;
}

void system_keep_places(struct system *s, struct graph_options *options) {
    struct decoder_credit credit;
    if (s->decoder->credit != NULL) {
        s->decoder->credit(s->decoder_state, &credit);
        uint32_t block = s->settings.block_tokens;
        s->credit_slots = block < CREDIT_MOST_TOKENS ? block : CREDIT_MOST_TOKENS;
        options->credit_slots = s->credit_slots;
        options->credit_matrix = credit.matrix != 0;
        s->decoder_bytes = graph_credit_bytes(s->model, options) * count_places(&s->settings);
    }
    if (s->settings.iteration == ITERATION_SMOOTH) {
        options->smooths = true;
        s->expected_bytes =
            s->model->hidden * s->runtime.element_bytes * count_places(&s->settings);
    }
}
