/* Reference implementations of what dLLM-Cache does with rows: how much they changed, those that
 * changed most, and what is kept of sublayers' outputs. */
#include "kernels/ref/ref.h"
#include "kernels/rules/change.h"

static int32_t n_compared(const int32_t *compared_start, int64_t r) {
    return compared_start[r + 1] - compared_start[r];
}

/* Of row i of request r, whose values are stored. */
static void compare_row(const struct call_similarity *call, int64_t r, int64_t i, double *sums) {
    const int64_t size = call->head_size, kept = call->kept[r];
    const int64_t from = (call->value_start[r] + i) * call->n_kv_heads * size;
    const int64_t values = call->cache_start[r] + call->n_kv_heads * kept * size;
    for (int64_t head = 0; head < call->n_kv_heads; head++) {
        const int64_t to = values + (head * kept + call->run_first[r] + i) * size;
        for (int64_t d = 0; d < size; d++) {
            const int64_t channel = head * size + d;
            const double was = ref_load(call->cache, call->dtype, to + d);
            double is = ref_load(call->values, call->dtype, from + channel);
            is += call->bias ? ref_load(call->bias, call->dtype, channel) : 0;
            ref_store(call->cache, call->dtype, to + d, is);
            is = ref_load(call->cache, call->dtype, to + d);
            sums[0] += (is - was) * (is - was);
            sums[1] += (is - was) * (is + was);
            sums[2] += was * was;
        }
    }
}

void ref_similarity(const struct call_similarity *call) {
    for (int64_t r = 0; r < call->n_requests; r++) {
        for (int64_t i = 0; i < n_compared(call->compared_start, r); i++) {
            double sums[CHANGE_SUMS] = {0};
            if (i >= call->given[r]) {
                compare_row(call, r, i, sums);
            }
            for (int64_t k = 0; k < CHANGE_SUMS; k++) {
                call->sums[(call->compared_start[r] + i) * CHANGE_SUMS + k] = (float)sums[k];
            }
        }
    }
}

/* Rows of the request's that changed more than row i, or as much and come before it; what they
 * changed by has taken the place of their first sums. */
static int32_t n_before(const struct call_pick *call, int64_t r, int32_t i) {
    const float *change = call->sums + (int64_t)call->compared_start[r] * CHANGE_SUMS;
    const float mine = change[(int64_t)i * CHANGE_SUMS];
    int32_t n = 0;
    for (int32_t other = call->given[r]; other < n_compared(call->compared_start, r); other++) {
        const float its = change[(int64_t)other * CHANGE_SUMS];
        n += its > mine || (its == mine && other < i);
    }
    return n;
}

static void pick(const struct call_pick *call, int64_t r, int64_t query, int32_t i) {
    const int32_t position = call->run_first[r] + i;
    call->positions[query] = position;
    call->value_rows[query] = call->value_start[r] + i;
    call->stream_rows[query] = call->stream_start[r] + position;
}

void ref_pick(const struct call_pick *call) {
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int32_t chosen = call->start[r + 1] - call->start[r] - call->given[r];
        int64_t query = call->start[r];
        for (int32_t i = 0; i < call->given[r]; i++) {
            pick(call, r, query++, i);
        }
        for (int32_t i = call->given[r]; i < n_compared(call->compared_start, r); i++) {
            float *sums = call->sums + (call->compared_start[r] + (int64_t)i) * CHANGE_SUMS;
            sums[0] = change_of(sums);
        }
        for (int32_t i = call->given[r]; i < n_compared(call->compared_start, r); i++) {
            if (n_before(call, r, i) < chosen) {
                pick(call, r, query++, i);
            }
        }
    }
}

void ref_keep_feature(const struct call_keep_feature *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t r = call->owner[t];
        const int64_t to = call->cache_start[r] + call->kept[r] * call->before +
                           call->rows[t] * (int64_t)call->n_channels;
        for (int64_t c = 0; c < call->n_channels; c++) {
            ref_store(call->cache, call->dtype, to + c,
                      ref_load(call->x, call->dtype, t * call->n_channels + c));
        }
    }
}

void ref_add_feature(const struct call_add_feature *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t r = call->owner[t];
        const int64_t from = call->cache_start[r] + call->kept[r] * call->before +
                             call->rows[t] * (int64_t)call->n_channels;
        for (int64_t c = 0; c < call->n_channels; c++) {
            const int64_t at = t * call->n_channels + c;
            ref_store(call->y, call->dtype, at,
                      ref_load(call->y, call->dtype, at) +
                          ref_load(call->cache, call->dtype, from + c));
        }
    }
}
