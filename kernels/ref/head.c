/* Reference implementations of products and of the LM head. */
#include <math.h>
#include <stdlib.h>

#include "kernels/bf16.h"
#include "kernels/fp8.h"
#include "kernels/ref/ref.h"

static void linear_by_inputs(const struct call_linear *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        for (int64_t o = 0; o < call->n_outputs; o++) {
            const int64_t at = t * call->y_stride + o;
            double sum = 0;
            for (int64_t i = 0; i < call->n_inputs; i++) {
                sum += ref_load(call->x, call->dtype, t * call->x_stride + i) *
                       ref_load(call->w, call->dtype, i * call->n_outputs + o);
            }
            sum += call->add ? ref_load(call->add, call->dtype, at) : 0;
            ref_store(call->y, call->dtype, at, sum);
        }
    }
}

void ref_linear(const struct call_linear *call) {
    if (call->by_inputs) {
        linear_by_inputs(call);
        return;
    }
    const struct ref_product p = {.x = call->x,
                                  .w = call->w,
                                  .stride = call->x_stride,
                                  .n_rows = call->n_outputs,
                                  .n_inputs = call->n_inputs,
                                  .before = call->outputs_before,
                                  .dtype = call->dtype,
                                  .fp8 = &call->fp8};
    for (int64_t t = 0; t < call->n_tokens; t++) {
        for (int64_t o = 0; o < call->n_outputs; o++) {
            const int64_t at = t * call->y_stride + o;
            const double add = call->add ? ref_load(call->add, call->dtype, at) : 0;
            ref_store(call->y, call->dtype, at, ref_dot(&p, t, 0, o) + add);
        }
    }
}

/* One row's logits, [V], unrounded. */
static void ref_head_logits(const struct call_head *call, int32_t row, double *logits) {
    const int64_t n = call->n_channels;
    const struct ref_product p = {.x = call->x,
                                  .w = call->w,
                                  .stride =
                                      call->fp8.x_too ? fp8_row_bytes(n, call->fp8.w_columns) : n,
                                  .n_rows = call->n_vocab,
                                  .n_inputs = n,
                                  .dtype = call->dtype,
                                  .fp8 = &call->fp8};
    for (int64_t token = 0; token < call->n_vocab; token++) {
        logits[token] = ref_dot(&p, row, 0, token);
    }
}

/* Where a row's results go; all but the first two may be NULL. */
struct surest {
    int32_t *token;
    float *confidence, *margin, *entropy, *logit;
};

/* The first largest of n logits, its softmax probability and what else is asked of them. */
static void find_surest(const double *logits, int32_t n, const struct surest *out) {
    int32_t best = 0, second = -1;
    for (int32_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    double sum = 0, weighted = 0;
    for (int32_t i = 0; i < n; i++) {
        const double below = logits[i] - logits[best], part = exp(below);
        sum += part;
        weighted += part > 0 ? part * below : 0;
        if (i != best && (second < 0 || logits[i] > logits[second])) {
            second = i;
        }
    }
    *out->token = best;
    *out->confidence = (float)(1 / sum);
    if (out->logit && n > 0) {
        *out->logit = (float)logits[best];
    }
    if (out->margin) {
        const double next = second < 0 ? 0 : exp(logits[second] - logits[best]);
        *out->margin = (float)((1 - next) / sum);
        *out->entropy = (float)(weighted / sum - log(sum));
    }
}

/* Those of row `row` of a call. */
static struct surest surest_at(int32_t *token, float *confidence, float *margin, float *entropy,
                               float *logit, int64_t row) {
    return (struct surest){token + row, confidence + row, margin ? margin + row : NULL,
                           margin ? entropy + row : NULL, logit ? logit + row : NULL};
}

bool ref_head(const struct call_head *call) {
    double *logits = malloc(sizeof *logits * (size_t)call->n_vocab);
    if (!logits) {
        return false;
    }
    for (int32_t row = 0; row < call->n_rows; row++) {
        ref_head_logits(call, row, logits);
        for (int32_t i = 0; call->rounded && i < call->n_vocab; i++) {
            logits[i] = (double)bf16_to_float(bf16_from_float((float)logits[i]));
        }
        const struct surest out =
            surest_at(call->token, call->confidence, call->margin, call->entropy, call->logit, row);
        find_surest(logits, call->n_vocab, &out);
    }
    free(logits);
    return true;
}

bool ref_sample(const struct call_sample *call) {
    double *logits = malloc(sizeof *logits * (size_t)call->n_vocab);
    if (!logits) {
        return false;
    }
    for (int64_t row = 0; row < call->n_rows; row++) {
        for (int64_t i = 0; i < call->n_vocab; i++) {
            logits[i] = ref_load(call->logits, call->dtype, row * call->n_vocab + i);
        }
        const struct surest out =
            surest_at(call->token, call->confidence, call->margin, call->entropy, call->logit, row);
        find_surest(logits, call->n_vocab, &out);
    }
    free(logits);
    return true;
}
