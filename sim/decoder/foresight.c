#include "sim/decoder/foresight.h"

#include <stdlib.h>

#include "sim/base/zeroed.h"

bool foresight_has(const struct decoder *decoder, const void *state) {
    const struct decode_rule rule = decoder_rule_always(decoder, state);
    return decoder->choose == NULL && (rule.rank == RANK_ORDER || rule.rank == RANK_DRAW);
}

void foresight_init(struct foresight *foresight, uint32_t most) {
    *foresight = (struct foresight){.offset = zeroed(most, sizeof *foresight->offset),
                                    .picked = zeroed(most, 1),
                                    .next = zeroed(most, 1)};
}

void foresight_fini(struct foresight *foresight) {
    free(foresight->offset);
    free(foresight->picked);
    free(foresight->next);
}

const uint8_t *foresight_next(struct foresight *foresight, const struct decoder *decoder,
                              const void *state, const struct request *request,
                              const uint8_t *masked) {
    const struct decode_rule rule = decoder_rule(decoder, state, request);
    uint32_t n = 0, at = 0, count = 0, repeat;
    for (uint32_t i = 0; i < request->block_length; i++) {
        if (masked[i]) {
            foresight->offset[n++] = i;
        }
    }
    if (decoder->count != NULL) {
        count = decoder->count(state, request, &repeat);
        count = count < n ? count : n;
    }
    const struct decode_seen seen = {
        .n = n, .first = request->block_start, .offset = foresight->offset};
    (void)decode_choose(&rule, &seen, count, foresight->picked);
    for (uint32_t i = 0; i < request->block_length; i++) {
        foresight->next[i] = masked[i] && foresight->picked[at];
        at += masked[i] != 0;
    }
    return foresight->next;
}
