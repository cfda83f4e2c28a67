#include "sim/policy/decoder/take_back.h"

#include <string.h>

void take_back_ask(const struct decoder *decoder, const void *state, const struct request *request,
                   const struct take_back *of, uint8_t *outcome) {
    uint32_t n = 0;
    for (uint32_t i = of->n_fixed; i < of->length; i++) {
        if (of->keep[i] && !of->masked[i]) {
            of->offsets[n] = i;
            of->values[n++] = of->confidence[i];
        }
    }
    if (n == 0) {
        return;
    }
    const struct decode_kept kept = {
        .n = n, .first = window_first(request), .offset = of->offsets, .confidence = of->values};
    memset(of->again, 0, n);
    (void)decoder->take_back(state, request, &kept, of->again);
    for (uint32_t i = 0; i < n; i++) {
        outcome[of->offsets[i]] = of->again[i] ? OUTCOME_AGAIN : OUTCOME_NONE;
    }
}
