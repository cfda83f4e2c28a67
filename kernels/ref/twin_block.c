/* Twins of block diffusion: the tokens a step processes, importance, FOCUS's choice, and what goes
 * with it. */
#include <math.h>

#include "kernels/ref/ref.h"

/* ---- the tokens a step processes ---- */

static bool is_decoded(const struct call_block_list *call, int64_t r, int32_t i) {
    const int32_t *block = call->canvas + call->canvas_start[r] + call->block_start[r];
    return call->decoded ? call->decoded[r * call->max_block + i] != 0
                         : block[i] != call->mask_token;
}

/* Whether the token at place i of its block is as it will stay. */
static bool is_settled(const struct call_block_list *call, int64_t r, int32_t n, int32_t i) {
    const bool decoded = is_decoded(call, r, i);
    const bool followed = i + 1 == n || is_decoded(call, r, i + 1);
    return call->cache == KERNEL_BLOCK_WHOLE       ? false
           : call->cache == KERNEL_BLOCK_NEIGHBOUR ? decoded && followed
                                                   : decoded;
}

void twin_block_list(const struct call_block_list *call) {
    int32_t n_listed = 0;
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int32_t begin = call->block_start[r], n = call->block_tokens[r];
        uint8_t *final = call->final + r * call->max_block;
        const int32_t first = n_listed;
        call->start[r] = first;
        for (int32_t i = 0; i < n; i++) {
            if (!final[i]) {
                const int32_t position = begin + i;
                const int32_t page = call->pages[r * call->max_pages + position / call->page_rows];
                call->positions[n_listed] = position;
                call->kv_rows[n_listed] = page * call->page_rows + position % call->page_rows;
                call->extent[n_listed] = begin + n;
                call->at[n_listed] = call->canvas_start[r] + position;
                call->masked[n_listed] = !is_decoded(call, r, i);
                n_listed++;
                final[i] = is_settled(call, r, n, i);
            }
        }
        for (int32_t t = first; call->ends_at_last && t < n_listed; t++) {
            call->extent[t] = call->positions[n_listed - 1] + 1;
        }
    }
    call->start[call->n_requests] = n_listed;
    for (int32_t t = n_listed; t < call->n_tokens; t++) {
        call->positions[t] = 0;
        call->kv_rows[t] = call->spare_row;
        call->extent[t] = 1;
        call->at[t] = 0;
        call->masked[t] = 0;
    }
}

/* ---- importance ---- */

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

/* ---- the choice ---- */

/* How many of n masked tokens are wanted. */
static int32_t wanted(const struct call_focus_select *call, int64_t r, int32_t n) {
    const float most = ceilf(fmaxf(call->mean[r], 1) * call->alpha);
    return most < (float)n ? most > 1 ? (int32_t)most : 1 : n;
}

/* taken[i]: whether token i of the list is among the surest. */
static void take(const struct call_focus_select *call, const int32_t *list, int32_t n, int32_t k,
                 bool *taken) {
    float delta[FOCUS_MAX_BLOCK];
    double mean = 0, variance = 0;
    for (int32_t i = 0; i < n; i++) {
        delta[i] = call->after[list[i]] - call->before[list[i]];
        mean += (double)delta[i];
    }
    mean /= n;
    for (int32_t i = 0; i < n; i++) {
        const double off = (double)delta[i] - mean;
        variance += off * off;
    }
    const double deviation = sqrt(variance / n);
    const double threshold = call->above_deviation ? deviation : mean + deviation;
    int32_t n_above = 0;
    for (int32_t i = 0; i < n; i++) {
        taken[i] = (double)delta[i] >= threshold;
        n_above += taken[i];
    }
    for (int32_t i = 0; i < n && n_above < k; i++) {
        int32_t n_before = 0;
        for (int32_t j = 0; j < n; j++) {
            n_before += delta[j] > delta[i] || (j < i && delta[j] == delta[i]);
        }
        taken[i] = n_before < k;
    }
}

/* Adds what has to go along with the tokens taken. */
static void close_over(const struct call_focus_select *call, int64_t r, const int32_t *list,
                       int32_t n, bool *taken) {
    int32_t last = -1;
    for (int32_t i = 0; i < n; i++) { /* token i + 1 is still as it was taken */
        const bool adjacent =
            i + 1 < n && call->positions[list[i + 1]] - call->positions[list[i]] == 1;
        taken[i] = taken[i] || (adjacent && taken[i + 1]);
        last = taken[i] ? i : last;
    }
    for (int32_t i = 0; i < last; i++) {
        taken[i] = taken[i] || call->positions[list[i]] > call->frontier[r];
    }
}

/* Sets a request's flags and moves its frontier; the place of its last kept token, -1: none. */
static int32_t choose(const struct call_focus_select *call, int64_t r) {
    int32_t list[FOCUS_MAX_BLOCK], last = -1;
    bool taken[FOCUS_MAX_BLOCK];
    const int32_t n = list_masked(call->start, call->masked, r, list);
    for (int32_t t = call->start[r]; t < call->start[r + 1]; t++) {
        call->keep[t] = 1;
    }
    const int32_t k = wanted(call, r, n);
    if (n <= FOCUS_MAX_BLOCK && n > k) {
        take(call, list, n, k, taken);
        close_over(call, r, list, n, taken);
        for (int32_t i = 0; i < n; i++) {
            call->keep[list[i]] = taken[i];
        }
    }
    for (int32_t t = call->start[r]; t < call->start[r + 1]; t++) {
        last = call->keep[t] ? call->positions[t] : last;
    }
    call->frontier[r] = last > call->frontier[r] ? last : call->frontier[r];
    return last;
}

static bool any_masked(const struct call_focus_select *call, int64_t r) {
    bool any = false;
    for (int32_t t = call->start[r]; t < call->start[r + 1]; t++) {
        any = any || call->masked[t];
    }
    return any;
}

/* Whether all kept tokens of a request have logit rows, masked or not. */
static bool has_all_logits(const struct call_focus_select *call, int64_t r, bool any) {
    const int logits = call->logits ? call->logits[r] : 0;
    return (logits & (any ? KERNEL_LOGITS_DENOISING : KERNEL_LOGITS_COMMIT)) != 0;
}

void twin_focus_select(const struct call_focus_select *call) {
    int32_t n_kept = 0, n_logits = 0;
    for (int64_t r = 0; r < call->n_requests; r++) {
        const bool any = any_masked(call, r), has_all = has_all_logits(call, r, any);
        const int32_t last = choose(call, r), most = any ? last + 1 : INT32_MAX;
        call->kept_start[r] = n_kept;
        call->first_row[r] = n_logits;
        for (int32_t t = call->start[r]; t < call->start[r + 1]; t++) {
            if (!call->keep[t]) {
                continue;
            }
            if (call->masked[t] || has_all) {
                call->logit_rows[n_logits] = n_kept;
                call->targets[n_logits++] =
                    call->at[t] - (call->masked[t] ? 0 : call->positions[t]);
            }
            call->kept[n_kept] = t;
            call->kept_positions[n_kept] = call->positions[t];
            call->kept_rows[n_kept] = call->kv_rows[t];
            call->kept_extent[n_kept++] = call->extent[t] < most ? call->extent[t] : most;
        }
        call->n_rows[r] = n_logits - call->first_row[r];
    }
    call->kept_start[call->n_requests] = n_kept;
    call->first_row[call->n_requests] = n_logits;
    for (int32_t i = n_kept; i < call->n_tokens; i++) {
        call->kept[i] = 0;
        call->kept_positions[i] = 0;
        call->kept_rows[i] = call->spare_row;
        call->kept_extent[i] = 1;
    }
    for (int32_t i = n_logits; i < call->n_tokens; i++) {
        call->logit_rows[i] = 0;
        call->targets[i] = 0;
    }
}

/* ---- what goes with it ---- */

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

void twin_bucket(const struct call_bucket *call) {
    int32_t place = 0;
    while (place + 1 < call->n_sizes && call->sizes[place] < *call->n) {
        place++;
    }
    *call->place = *call->n > 0 ? place : -1;
}

void twin_block_log(const struct call_block_log *call) {
    const int64_t step = call->step ? *call->step : 0, block = call->max_block;
    for (int64_t r = 0; r < call->n_requests; r++) {
        uint8_t *log = call->log + (step * call->n_requests + r) * block;
        for (int64_t i = 0; i < block; i++) {
            log[i] = 0;
        }
        for (int32_t t = call->start[r]; t < call->start[r + 1]; t++) {
            log[call->positions[t] - call->block_start[r]] =
                (uint8_t)(KERNEL_LOG_RAN | (call->keep[t] ? KERNEL_LOG_KEPT : 0));
        }
        const int32_t first = call->first_row[r];
        for (int32_t row = first; row < first + call->n_rows[r]; row++) {
            if (call->committed[row]) {
                const int32_t i =
                    call->kept_positions[call->logit_rows[row]] - call->block_start[r];
                log[i] |= KERNEL_LOG_COMMITTED;
                call->decoded[r * block + i] = 1;
            }
        }
    }
}

void twin_block_next(const struct call_block_next *call) {
    const int32_t step = *call->step + 1;
    bool over = false;
    for (int64_t r = 0; r < call->n_requests; r++) {
        const uint8_t *flags = call->ends_early[r] ? call->decoded : call->final;
        bool all = call->block_tokens[r] > 0;
        for (int64_t i = 0; i < call->block_tokens[r]; i++) {
            all = all && flags[r * call->max_block + i];
        }
        over = over || all;
        if (step < *call->most) {
            call->take[r] = call->takes[(int64_t)step * call->n_requests + r];
        }
    }
    *call->step = step;
    *call->again = step < *call->most && !over;
}

void twin_decode_mean(const struct call_decode_mean *call) {
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int32_t n = call->n_decoded[r];
        if (call->restart && call->restart[r]) {
            call->sum[r] = call->steps[r] = 0;
            call->mean[r] = 1;
        } else if (n > 0) {
            const float before = call->steps[r] > 0 ? call->mean[r] : 1;
            call->sum[r] += n;
            call->steps[r]++;
            call->mean[r] =
                call->weight > 0
                    ? (float)((double)before + (double)call->weight * ((double)n - (double)before))
                    : (float)((double)call->sum[r] / call->steps[r]);
        }
    }
}
