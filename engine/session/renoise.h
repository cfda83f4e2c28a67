/* Entropy-bounded renoising from real logits, on the host: what a pass over a canvas of random
 * tokens makes of it (sim/policy/decoder/decoder_renoise.c says the rule and its sources). Draws
 * are keyed by seed, request, the canvas's first position, pass and position, so that nothing else
 * changes them. */
#ifndef UNMASK_ENGINE_SESSION_RENOISE_H
#define UNMASK_ENGINE_SESSION_RENOISE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/policy/decoder/renoise.h"

/* A canvas before a pass over it: n positions from `first` on, of which `steps` passes are done. */
struct renoise_canvas {
    uint64_t request;
    uint32_t first, n, steps;
};

/* Of the same canvas, [n]: the most likely tokens of the pass before, then of this one; and what
 * the canvas holds next. Room for as many entropies and places. */
struct renoise_tokens {
    int32_t *top, *next;
    float *entropy;
    uint32_t *order;
};

/* The random token that a position holds before any pass. */
int32_t renoise_first_token(uint32_t seed, uint64_t request, uint32_t position, uint32_t vocab);

/* Logits [n, vocab] of a pass. Returns whether the canvas is over: its tokens are then those in
 * `top`; else `next` is what it holds before the pass to come. */
bool renoise_pass(const struct renoise *numbers, const struct renoise_canvas *canvas,
                  const float *logits, uint32_t vocab, const struct renoise_tokens *tokens);

#endif
