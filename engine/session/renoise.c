#include "engine/session/renoise.h"

#include "sim/base/rng.h"

/* What draws are for, the last of their keys. */
enum { FOR_TOKENS, FOR_NOISE, FOR_FIRST };

static int32_t random_token(uint64_t key, uint32_t position, uint32_t vocab) {
    return (int32_t)(rng_at(key, position) * vocab);
}

int32_t renoise_first_token(uint32_t seed, uint64_t request, uint32_t position, uint32_t vocab) {
    return random_token(rng_key(rng_key(seed, request, 0), 0, FOR_FIRST), position, vocab);
}

static uint64_t key_of(const struct renoise *numbers, const struct renoise_canvas *canvas,
                       uint32_t purpose) {
    return rng_key(rng_key(numbers->seed, canvas->request, canvas->first), canvas->steps, purpose);
}

double renoise_temperature(const struct renoise *numbers, uint32_t steps) {
    const uint32_t left = numbers->max_steps > steps ? numbers->max_steps - steps : 1;
    return numbers->t_min + (numbers->t_max - numbers->t_min) * left / numbers->max_steps;
}

uint64_t renoise_draw_key(const struct renoise *numbers, const struct renoise_canvas *canvas) {
    return key_of(numbers, canvas, FOR_NOISE);
}

/* The n places by their entropy, the earlier one first where it is the same. */
static void sort_places(const float *entropy, uint32_t n, uint32_t *order) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && entropy[order[at - 1]] > entropy[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

bool renoise_pass(const struct renoise *numbers, const struct renoise_canvas *canvas,
                  const struct renoise_read *read, const struct renoise_tokens *tokens) {
    const uint64_t random = key_of(numbers, canvas, FOR_TOKENS);
    double sum = 0, before = 0;
    bool is_stable = canvas->steps > 0;
    for (uint32_t i = 0; i < canvas->n; i++) {
        is_stable = is_stable && read->top[i] == tokens->top[i];
        tokens->top[i] = read->top[i];
        tokens->next[i] = read->drawn[i];
        sum += read->entropy[i];
    }
    if ((is_stable && sum / canvas->n < numbers->confidence_threshold) ||
        canvas->steps + 1 >= numbers->max_steps) {
        return true;
    }
    sort_places(read->entropy, canvas->n, tokens->order);
    for (uint32_t k = 0; k < canvas->n; k++) {
        const uint32_t i = tokens->order[k];
        if (before > numbers->entropy_bound) {
            tokens->next[i] = random_token(random, canvas->first + i, canvas->vocab);
        }
        before += read->entropy[i];
    }
    return false;
}
