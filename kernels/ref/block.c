/* Reference implementations of FOCUS's kernels: importance, and the rows that stay. */
#include <math.h>

#include "kernels/ref/ref.h"

/* A request's masked tokens, as many as there is room for; returns how many there are. */
static int32_t list_masked(const int32_t *start, const uint8_t *masked, int64_t r, int32_t *list) {
    int32_t n = 0;
    for (int32_t t = start[r]; t < start[r + 1]; t++) {
        if (masked[t]) {
            if (n < FOCUS_MAX_BLOCK) {
                list[n] = t;
            }
            n++;
        }
    }
    return n;
}

/* sum[j] += the softmax weight of key j in one query's pooled scores. */
static void add_weights(const double *score, int32_t n, double *sum) {
    double pooled[FOCUS_MAX_BLOCK], top = -(double)INFINITY, weight = 0;
    for (int32_t j = 0; j < n; j++) {
        pooled[j] = score[j];
        if (j > 0) {
            pooled[j] = fmax(pooled[j], score[j - 1]);
        }
        if (j + 1 < n) {
            pooled[j] = fmax(pooled[j], score[j + 1]);
        }
        top = fmax(top, pooled[j]);
    }
    for (int32_t j = 0; j < n; j++) {
        pooled[j] = exp(pooled[j] - top);
        weight += pooled[j];
    }
    for (int32_t j = 0; j < n; j++) {
        sum[j] += pooled[j] / weight;
    }
}

void ref_importance(const struct call_importance *call) {
    const int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int64_t r = 0; r < call->n_requests; r++) {
        int32_t list[FOCUS_MAX_BLOCK];
        double score[FOCUS_MAX_BLOCK], sum[FOCUS_MAX_BLOCK] = {0};
        const int32_t n = list_masked(call->start, call->masked, r, list);
        for (int32_t t = call->start[r]; t < call->start[r + 1]; t++) {
            call->importance[t] = 0;
        }
        for (int64_t head = 0; n <= FOCUS_MAX_BLOCK && head < call->n_heads; head++) {
            for (int32_t i = 0; i < n; i++) {
                const int64_t q = list[i] * call->q_stride + head * size;
                for (int32_t j = 0; j < n; j++) {
                    const int64_t row = call->kv_rows ? call->kv_rows[list[j]] : list[j];
                    const int64_t k = row * call->kv_stride + head / group * size;
                    score[j] = 0;
                    for (int64_t d = 0; d < size; d++) {
                        score[j] += ref_load(call->q, call->dtype, q + d) *
                                    ref_load(call->k, call->dtype, k + d);
                    }
                    score[j] /= sqrt((double)size);
                }
                add_weights(score, n, sum);
            }
        }
        for (int32_t i = 0; i < n && n <= FOCUS_MAX_BLOCK; i++) {
            call->importance[list[i]] = (float)sum[i];
        }
    }
}

void ref_compact(const struct call_compact *call) {
    const int32_t n_rows = call->n_rows ? *call->n_rows : call->max_rows;
    for (int32_t a = 0; a < call->n_arrays; a++) {
        for (int64_t i = 0; i < n_rows; i++) {
            const int64_t from = call->rows[i] * call->from_stride[a];
            for (int64_t c = 0; c < call->width[a]; c++) {
                ref_store(call->to[a], call->dtype, i * call->to_stride[a] + c,
                          ref_load(call->from[a], call->dtype, from + c));
            }
        }
    }
}
