#include "engine/session/drafts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rules/keyed.h"
#include "sim/base/mem.h"
#include "sim/base/rng.h"

/* What draws are for, the last of their keys. */
enum { FOR_ACCEPTING, FOR_TOKENS };

void drafts_open(struct drafts *drafts, const struct speculation *numbers, uint32_t n_slots,
                 uint32_t window, uint32_t vocab) {
    const size_t n = (size_t)n_slots * window;
    *drafts = (struct drafts){.width = window, .vocab = vocab};
    drafts->token = mem_zeroed(n, sizeof *drafts->token);
    if (numbers->accept == ACCEPT_RATIO) {
        drafts->logits = mem_reserved(n * vocab, sizeof *drafts->logits);
        drafts->p = mem_zeroed(vocab, sizeof *drafts->p);
        drafts->q = mem_zeroed(vocab, sizeof *drafts->q);
    }
}

void drafts_close(struct drafts *drafts) {
    free(drafts->token);
    mem_released(drafts->logits);
    free(drafts->p);
    free(drafts->q);
    *drafts = (struct drafts){0};
}

static float *logits_of(const struct drafts *drafts, uint32_t slot, uint32_t at) {
    return drafts->logits + ((size_t)slot * drafts->width + at) * drafts->vocab;
}

void drafts_note(struct drafts *drafts, uint32_t slot, uint32_t at, int32_t token,
                 const float *logits) {
    drafts->token[(size_t)slot * drafts->width + at] = token;
    if (drafts->logits != NULL && logits != NULL) {
        memcpy(logits_of(drafts, slot, at), logits, drafts->vocab * sizeof *logits);
    }
}

static void softmax(const float *logits, uint32_t n, double *p) {
    double top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        top = fmax(top, (double)logits[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        p[i] = exp((double)logits[i] - top);
        sum += p[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        p[i] /= sum;
    }
}

/* A token of (q - p)+, by Gumbel noise; of q, where nothing is left of it. */
static int32_t draw_above(const double *q, const double *p, uint32_t n, uint64_t key) {
    int32_t best = -1, best_of_q = 0;
    double most = -INFINITY, most_of_q = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        const double noise = (double)keyed_noise(key, i);
        const double of_q = log(q[i]) + noise;
        const double left = q[i] > p[i] ? log(q[i] - p[i]) + noise : -INFINITY;
        if (left > most) {
            most = left;
            best = (int32_t)i;
        }
        if (of_q > most_of_q) {
            most_of_q = of_q;
            best_of_q = (int32_t)i;
        }
    }
    return best >= 0 ? best : best_of_q;
}

bool drafts_accept(struct drafts *drafts, const struct speculation *numbers,
                   const struct drafts_check *check, uint32_t at, int32_t most_likely,
                   const float *logits, int32_t *token, bool *accepts) {
    const int32_t draft = drafts_token(drafts, check->slot, at);
    if (drafts->logits == NULL) {
        *token = most_likely;
        *accepts = most_likely == draft;
        return true;
    }
    const uint64_t pass = rng_key(numbers->seed, check->request, check->first);
    const uint32_t position = check->first + at;
    softmax(logits_of(drafts, check->slot, at), drafts->vocab, drafts->p);
    softmax(logits, drafts->vocab, drafts->q);
    if (isnan(drafts->p[draft]) || isnan(drafts->q[draft])) { /* then all of the row are */
        return false;
    }
    const double u = rng_at(rng_key(pass, check->decided, FOR_ACCEPTING), position);
    *accepts = u * drafts->p[draft] < drafts->q[draft];
    const uint64_t key = keyed_bits(rng_key(pass, check->decided, FOR_TOKENS), position);
    *token = *accepts ? draft : draw_above(drafts->q, drafts->p, drafts->vocab, key);
    return true;
}
