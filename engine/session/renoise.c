#include "engine/session/renoise.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/rules/keyed.h"
#include "sim/base/err.h"
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

/* A row's most likely token, one drawn at temperature t, and the entropy of its distribution. */
struct row_tokens {
    int32_t top, drawn;
    float entropy;
};

static struct row_tokens read_row(const float *logits, uint32_t vocab, double t, uint64_t key) {
    struct row_tokens out = {0};
    double largest = -INFINITY, drawn = -INFINITY, sum = 0, weighed = 0;
    ASSERT(vocab > 0);
    for (uint32_t i = 0; i < vocab; i++) {
        const double scaled = logits[i] / t, noisy = scaled + keyed_noise(key, i);
        out.top = scaled > largest ? (int32_t)i : out.top;
        largest = fmax(largest, scaled);
        out.drawn = noisy > drawn ? (int32_t)i : out.drawn;
        drawn = fmax(drawn, noisy);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        const double x = logits[i] / t - largest, e = exp(x);
        sum += e;
        weighed += e * x;
    }
    out.entropy = (float)(log(sum) - weighed / sum);
    return out;
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
                  const float *logits, uint32_t vocab, const struct renoise_tokens *tokens) {
    const uint64_t noise = key_of(numbers, canvas, FOR_NOISE);
    const uint64_t random = key_of(numbers, canvas, FOR_TOKENS);
    const uint32_t left =
        numbers->max_steps > canvas->steps ? numbers->max_steps - canvas->steps : 1;
    const double t = numbers->t_min + (numbers->t_max - numbers->t_min) * left / numbers->max_steps;
    double sum = 0, before = 0;
    bool is_stable = canvas->steps > 0;
    for (uint32_t i = 0; i < canvas->n; i++) {
        const struct row_tokens row =
            read_row(logits + (size_t)i * vocab, vocab, t, keyed_bits(noise, canvas->first + i));
        is_stable = is_stable && row.top == tokens->top[i];
        tokens->top[i] = row.top;
        tokens->next[i] = row.drawn;
        tokens->entropy[i] = row.entropy;
        sum += row.entropy;
    }
    if ((is_stable && sum / canvas->n < numbers->confidence_threshold) ||
        canvas->steps + 1 >= numbers->max_steps) {
        return true;
    }
    sort_places(tokens->entropy, canvas->n, tokens->order);
    for (uint32_t k = 0; k < canvas->n; k++) {
        const uint32_t i = tokens->order[k];
        if (before > numbers->entropy_bound) {
            tokens->next[i] = random_token(random, canvas->first + i, vocab);
        }
        before += tokens->entropy[i];
    }
    return false;
}
