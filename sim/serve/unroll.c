#include "sim/serve/unroll.h"

/* For how many steps, at most `most`, the decoder's rule stays the same; its threshold and its key
 * may change. */
static uint32_t rule_holds(const struct system *system, const struct request *request,
                           uint32_t most) {
    const struct decode_rule now = decoder_rule(system->decoder, system->decoder_state, request);
    struct request later = *request;
    for (uint32_t n = 1; n < most; n++) {
        later.steps++;
        window_advance(&later, 1, 0);
        const struct decode_rule then =
            decoder_rule(system->decoder, system->decoder_state, &later);
        if (then.threshold != now.threshold || then.key != now.key) {
            return n;
        }
    }
    return most;
}

uint32_t unroll_steps(const struct lifecycle *life, const struct replica *replica) {
    const struct settings *settings = &life->asked->system->settings;
    uint32_t most = settings->unroll_maximum;
    uint64_t n_masked = 0;
    if (most == 1 || replica->n_idle > 0 || !life->asked->executor.unrolls) {
        return 1;
    }
    for (uint32_t i = 0; i < replica->n_batch; i++) {
        const struct request *request = &life->requests[replica->batch[i]];
        bool counts = life->asked->system->decoder->count != NULL;
        uint32_t holds =
            counts ? request->steps_to_change : life->tracked[replica->batch[i]].span_holds;
        most = holds < most ? holds : most;
        most = counts ? most : rule_holds(life->system, request, most);
        n_masked += window_masked(request);
    }
    uint64_t wanted = n_masked / settings->unroll_expected_tpf;
    return wanted < 1 ? 1 : wanted < most ? (uint32_t)wanted : most;
}

int unroll_pass(struct lifecycle *life, struct replica *replica, uint32_t slot, struct err *err) {
    struct request *request = &life->requests[slot];
    struct recall *recall = lifecycle_recall(life, slot);
    int status = 0;
    if (!request->span.exact || window_uncached(request) == 0 || window_begins_decided(request)) {
        replica->wasted_requests++;
        replica->wasted_tokens += request->span.queries;
        return 0;
    }
    if (life->has_positions) {
        struct outcomes none;
        (void)positions_pass(&life->positions, slot, request, false, 0, false, &none);
    } else if (recall != NULL) {
        status = recall_plan(recall, life->asked->decode, request, err);
        recall_pass(recall);
    }
    window_settle(request);
    return status;
}
