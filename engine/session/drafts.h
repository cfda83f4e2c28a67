/* Self-speculation from real results, on the host: what a pass drafts and whether the next one
 * checks it, and what that check commits (sim/policy/decoder/speculation.h says the rule). Draws
 * are keyed by seed, request, the window's first position, how much of it is decided, and position,
 * so that nothing else changes them. */
#ifndef UNMASK_ENGINE_SESSION_DRAFTS_H
#define UNMASK_ENGINE_SESSION_DRAFTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/policy/decoder/speculation.h"

/* By slot and position of its window (width of them), owned. */
struct drafts {
    int32_t *token;
    /* Under ACCEPT_RATIO, else NULL: their rows of logits [vocab], and a position's room. */
    float *logits;
    double *p, *q; /* [vocab] */
    uint32_t width, vocab;
};

void drafts_open(struct drafts *drafts, const struct speculation *numbers, uint32_t n_slots,
                 uint32_t window, uint32_t vocab);
void drafts_close(struct drafts *drafts);

/* The draft of a slot's position `at` of its window: the row's most likely token and, where they
 * are kept, its logits; NULL: not known. */
void drafts_note(struct drafts *drafts, uint32_t slot, uint32_t at, int32_t token,
                 const float *logits);

static inline int32_t drafts_token(const struct drafts *drafts, uint32_t slot, uint32_t at) {
    return drafts->token[(size_t)slot * drafts->width + at];
}

/* A request's window before a check: where it begins and how much of it is decided. */
struct drafts_check {
    uint64_t request;
    uint32_t slot, first, decided;
};

/* *accepts: whether the check accepts the draft of position `at`, by its row there: the most likely
 * token and, where they are kept, logits. *token: what is committed. Returns false, and writes
 * neither, where a probability is no number, in the draft's row or in the check's. */
bool drafts_accept(struct drafts *drafts, const struct speculation *numbers,
                   const struct drafts_check *check, uint32_t at, int32_t most_likely,
                   const float *logits, int32_t *token, bool *accepts);

#endif
