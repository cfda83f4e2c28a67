#include "sim/cost/varlen.h"

#include <stdbool.h>
#include <string.h>

/* The longest single queries' keys, falling. */
static void find_longest(const struct step_shape *shape, uint32_t keys[PROFILE_STRAGGLERS]) {
    memset(keys, 0, PROFILE_STRAGGLERS * sizeof *keys);
    for (uint32_t i = 0; i < shape->n_spans; i++) {
        const struct span *span = shape->spans[i];
        uint32_t found = span->phase == PHASE_PREFILL ? 0 : span->context + span->queries;
        for (int at = 0; found > 0 && at < PROFILE_STRAGGLERS; at++) {
            if (found > keys[at]) {
                uint32_t shorter = keys[at];
                keys[at] = found;
                found = shorter;
            }
        }
    }
}

static bool leaves_unsplit(const struct profile *profile, const struct profile_spans *spans) {
    enum { BLOCKS_A_SM = 2 };
    double fill = 0.8 * BLOCKS_A_SM * (double)profile_peaks(profile)->sms;
    return (double)(spans->n_seqs * spans->kv_heads) >= fill;
}

double varlen_single_ns(const struct profile *profile, const struct step_shape *shape,
                        const struct profile_spans *spans, double uniform_ns,
                        enum profile_match *match) {
    double prefill_tokens = (double)shape->sym[SYM_PREFILL_Q];
    bool is_mixed = prefill_tokens > 0 && profile_has(profile, PROFILE_ATTENTION_MIXED);
    double ns =
        is_mixed ? profile_attention_mixed(profile, spans, prefill_tokens, match) : uniform_ns;
    if (shape->spans != NULL && (is_mixed || leaves_unsplit(profile, spans))) {
        uint32_t keys[PROFILE_STRAGGLERS];
        find_longest(shape, keys);
        ns += profile_stragglers(profile, spans, ns, keys);
    }
    return ns;
}
