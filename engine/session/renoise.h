/* Entropy-bounded renoising on the host: what a pass over a canvas of random tokens makes of it
 * (sim/policy/decoder/decoder_renoise.c says the rule and its sources). Draws are keyed by seed,
 * request, the canvas's first position, pass and position, so that nothing else changes them. */
#ifndef UNMASK_ENGINE_SESSION_RENOISE_H
#define UNMASK_ENGINE_SESSION_RENOISE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/policy/decoder/renoise.h"

/* A canvas before a pass over it: n positions from `first` on, of which `steps` passes are done. */
struct renoise_canvas {
    uint64_t request;
    uint32_t first, n, steps, vocab;
};

/* What the device has read off a pass's logits (call_renoise), [n]. */
struct renoise_read {
    const int32_t *top, *drawn;
    const float *entropy;
};

/* Of the same canvas, [n]: the most likely tokens of the pass before, then of this one; what the
 * canvas holds next; and room for places. */
struct renoise_tokens {
    int32_t *top, *next;
    uint32_t *order;
};

/* By what a pass's tokens are drawn: the temperature after that many passes, and the key whose
 * bits at a position are its row's. */
double renoise_temperature(const struct renoise *numbers, uint32_t steps);
uint64_t renoise_draw_key(const struct renoise *numbers, const struct renoise_canvas *canvas);

/* The random token that a position holds before any pass. */
int32_t renoise_first_token(uint32_t seed, uint64_t request, uint32_t position, uint32_t vocab);

/* After a pass. Returns whether the canvas is over: its tokens are then those in
 * `top`; else `next` is what it holds before the pass to come. */
bool renoise_pass(const struct renoise *numbers, const struct renoise_canvas *canvas,
                  const struct renoise_read *read, const struct renoise_tokens *tokens);

#endif
