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
static struct renoise_part read_row(const struct call_renoise *call, int64_t row) {
    const int64_t first = row * call->n_vocab;
    const double t = (double)call->by[row].temperature;
    struct renoise_part of = {.drawn_at = -(double)INFINITY, .largest = -(double)INFINITY};
    for (int64_t i = 0; i < call->n_vocab; i++) {
        const double logit = ref_load(call->logits, call->dtype, first + i);
        const int64_t token = call->first_token + i;
        const double noisy = logit / t + (double)keyed_noise(call->key[row], (uint64_t)token);
        of.token = logit > of.largest || i == 0 ? (int32_t)token : of.token;
        of.largest = fmax(of.largest, logit);
        of.drawn = noisy > of.drawn_at || i == 0 ? (int32_t)token : of.drawn;
        of.drawn_at = fmax(of.drawn_at, noisy);
    }
    for (int64_t i = 0; i < call->n_vocab; i++) {
        const double x = (ref_load(call->logits, call->dtype, first + i) - of.largest) / t;
        of.sum += exp(x);
        of.weighed += exp(x) > 0 ? exp(x) * x : 0;
    }
    return of;
}

static float entropy_of(const struct renoise_part *of) {
    const double sum = fmax(of->sum, 1); /* the largest has 1 itself */
    return (float)(log(sum) - of->weighed / sum);
}

void ref_renoise(const struct call_renoise *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        const struct renoise_part of = read_row(call, row);
        if (call->part) {
            call->part[row] = of;
        } else {
            call->token[row] = of.token;
            call->drawn[row] = of.drawn;
            call->entropy[row] = entropy_of(&of);
        }
    }
}

/* The sums of a part relative to a logit that is larger by `by` temperatures. */
static void relate(struct renoise_part *of, double by) {
    if (of->sum > 0) {
        of->weighed = exp(-by) * (of->weighed - by * of->sum);
        of->sum *= exp(-by);
    }
}

static struct renoise_part merged(struct renoise_part a, struct renoise_part b, double t) {
    const double by = (b.largest - a.largest) / t;
    if (by > 0) {
        relate(&a, by);
        a.largest = b.largest;
        a.token = b.token;
    } else if (by < 0) {
        relate(&b, -by);
    }
    if (b.drawn_at > a.drawn_at) {
        a.drawn_at = b.drawn_at;
        a.drawn = b.drawn;
    }
    a.sum += b.sum;
    a.weighed += b.weighed;
    return a;
}

void ref_renoise_combine(const struct call_renoise_combine *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        const double t = (double)call->by[row].temperature;
        struct renoise_part of = call->parts[row];
        for (int64_t rank = 1; rank < call->n_ranks; rank++) {
            of = merged(of, call->parts[rank * call->n_rows + row], t);
        }
        call->token[row] = of.token;
        call->drawn[row] = of.drawn;
        call->entropy[row] = entropy_of(&of);
        call->confidence[row] = isnan(call->confidence[row]) ? (float)NAN : (float)(1 / of.sum);
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
