#include "sim/graph/bucket.h"

#include "sim/base/err.h"
#include "sim/base/num.h"

int64_t bucket_size(int64_t n, int64_t unit) {
    enum { UNITS = 16 };
    ASSERT(unit > 0);
    int64_t half = ceil_div(unit, 2);
    if (n <= half) {
        return n > 0 ? half : 0;
    }
    while (n > UNITS * unit) {
        unit *= 2;
    }
    return ceil_div(n, unit) * unit;
}

bool bucket_applies(const struct step_shape *shape, int64_t unit) {
    return unit > 0 && shape->sym[SYM_KEPT_Q] > 0 && shape->sym[SYM_PREFILL_N] == 0;
}

void bucket_round(struct step_shape *shape, int64_t unit) {
    static const enum symbol rounded[] = {SYM_TOKENS, SYM_KEPT_TOKENS, SYM_LOGIT_ROWS};
    for (size_t i = 0; i < sizeof rounded / sizeof rounded[0]; i++) {
        shape->sym[rounded[i]] = bucket_size(shape->sym[rounded[i]], unit);
    }
}

int64_t bucket_most(int64_t n_requests, int64_t block_tokens, int64_t max_tokens) {
    int64_t most = bucket_size(n_requests, BUCKET_REQUESTS) * block_tokens;
    return most < max_tokens ? most : max_tokens;
}

void bucket_widen(struct step_shape *shape, int64_t most) {
    static const enum symbol widened[] = {SYM_TOKENS, SYM_KEPT_TOKENS, SYM_LOGIT_ROWS};
    for (size_t i = 0; i < sizeof widened / sizeof widened[0]; i++) {
        int64_t *sym = &shape->sym[widened[i]];
        *sym = *sym > most ? *sym : most;
    }
}
