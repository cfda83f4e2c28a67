/* Reference implementations for canvases of random tokens. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/rules/keyed.h"

void ref_softcap(const struct call_softcap *call) {
    const double cap = (double)call->cap;
    for (int64_t i = 0; i < (int64_t)call->n_rows * call->n_vocab; i++) {
        const double x = ref_load(call->logits, call->dtype, i);
        ref_store(call->logits, call->dtype, i, cap * tanh(x / cap));
    }
}

/* vllm-project/vllm diffusion_gemma.py, _compiled_sample_step. */
static void read_row(const struct call_renoise *call, int64_t row) {
    const int64_t first = row * call->n_vocab;
    const double t = (double)call->by[row].temperature;
    double largest = -(double)INFINITY, drawn = -(double)INFINITY, sum = 0, weighed = 0;
    call->token[row] = call->drawn[row] = 0;
    for (int64_t i = 0; i < call->n_vocab; i++) {
        const double scaled = ref_load(call->logits, call->dtype, first + i) / t;
        const double noisy = scaled + (double)keyed_noise(call->key[row], (uint64_t)i);
        call->token[row] = scaled > largest ? (int32_t)i : call->token[row];
        largest = fmax(largest, scaled);
        call->drawn[row] = noisy > drawn ? (int32_t)i : call->drawn[row];
        drawn = fmax(drawn, noisy);
    }
    for (int64_t i = 0; i < call->n_vocab; i++) {
        const double x = ref_load(call->logits, call->dtype, first + i) / t - largest, e = exp(x);
        sum += e;
        weighed += e > 0 ? e * x : 0;
    }
    sum = fmax(sum, 1); /* the largest has 1 itself */
    call->entropy[row] = (float)(log(sum) - weighed / sum);
}

void ref_renoise(const struct call_renoise *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        read_row(call, row);
    }
}

void ref_condition(const struct call_condition *call) {
    const int64_t n = call->n_channels;
    for (int64_t row = 0; row < call->n_rows; row++) {
        const int64_t to = call->rows[row] * n;
        double squares = 0;
        for (int64_t c = 0; c < n; c++) {
            const double s = ref_load(call->y, call->dtype, to + c);
            squares += s * s;
        }
        const double scale = 1 / sqrt(squares / (double)n + (double)call->epsilon);
        for (int64_t c = 0; c < n; c++) {
            const double s = ref_load(call->y, call->dtype, to + c);
            const double x = call->x ? ref_load(call->x, call->dtype, row * n + c) : 0;
            ref_store(call->y, call->dtype, to + c, call->x ? s + x : s * scale);
        }
    }
}
