#include "sim/serve/system_credit.h"

int system_check_credit(const struct system *s, struct err *err) {
    bool has_logits = !s->runtime.fused_head && s->settings.allocator == ALLOCATOR_PLANNED;
    return s->decoder->credit == NULL || has_logits
               ? 0
               : err_usage(err,
                           "decoder %s adds credit to logits that exist, in planned steps: set "
                           "runtime.fused_head = off and allocator = planned",
                           s->decoder->policy.name);
}

void system_keep_credit(struct system *s, struct graph_options *options) {
    struct settings *settings = &s->settings;
    struct decoder_credit credit;
    if (s->decoder->credit == NULL) {
        return;
    }
    s->decoder->credit(s->decoder_state, &credit);
    uint32_t block = settings->block_tokens, blocks = settings->max_batched_tokens / block;
    s->credit_slots = block < CREDIT_MOST_TOKENS ? block : CREDIT_MOST_TOKENS;
    options->credit_slots = s->credit_slots;
    options->credit_matrix = credit.matrix != 0;
    if (settings->max_requests == 0) {
        settings->max_requests = blocks > 0 ? blocks : 1;
    }
    s->decoder_bytes =
        graph_credit_bytes(s->model, options) * (int64_t)block * settings->max_requests;
}
