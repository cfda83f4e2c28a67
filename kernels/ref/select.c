/* Reference implementations of score, pool, choose and pack. */
#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

int32_t ref_kept_tokens(int32_t n_candidates, double retention) {
    const double kept = floor(retention * (double)n_candidates);
    return kept < 1 ? 1 : kept < n_candidates ? (int32_t)kept : n_candidates;
}

static int32_t candidates(const struct call_select *call, int64_t r) {
    return call->start[r + 1] - call->start[r] - (call->block_end[r] - call->block_start[r]);
}

static int32_t candidate_token(const struct call_select *call, int64_t r, int32_t candidate) {
    const int32_t hole = call->block_end[r] - call->block_start[r];
    return candidate < call->block_start[r] ? candidate : candidate + hole;
}

/* query[d] = the mean of a head's queries over the block. */
static void mean_query(const struct call_select *call, int64_t r, int64_t head, double *query) {
    const int64_t n = call->block_end[r] - call->block_start[r];
    const int64_t first = call->start[r] + call->block_start[r];
    for (int64_t d = 0; d < call->head_size; d++) {
        query[d] = 0;
        for (int64_t t = first; t < first + n; t++) {
            const int64_t at = t * call->q_stride + head * call->head_size + d;
            query[d] += ref_load(call->q, call->dtype, at);
        }
        query[d] /= (double)n;
    }
}

/* Where a request's row of scores, or of indices, starts. */
static int64_t row_start(const struct call_select *call, int64_t r, int64_t kv_head) {
    return call->n_kv_heads * call->score_start[r] + kv_head * candidates(call, r);
}

/* The score of a token by the mean queries of one key-value head's group: the best, or the sum. */
static double group_score(const struct call_select *call, int64_t token, int64_t kv_head,
                          const double *query) {
    const int64_t group = call->n_heads / call->n_kv_heads, size = call->head_size;
    const int64_t key = token * call->kv_stride + kv_head * size;
    double score = call->uniform ? 0 : -(double)INFINITY;
    for (int64_t g = 0; g < group; g++) {
        double dot = 0;
        for (int64_t d = 0; d < size; d++) {
            dot += query[g * size + d] * ref_load(call->k, call->dtype, key + d);
        }
        score = call->uniform ? score + dot : dot > score ? dot : score;
    }
    return score;
}

static void score_request(const struct call_select *call, int64_t r, double *query) {
    const int64_t group = call->n_heads / call->n_kv_heads, size = call->head_size;
    for (int64_t head = 0; head < call->n_heads; head++) {
        mean_query(call, r, head, query + head * size);
    }
    for (int32_t c = 0; c < candidates(call, r); c++) {
        const int64_t token = call->start[r] + candidate_token(call, r, c);
        double sum = 0;
        for (int64_t kv_head = 0; kv_head < call->n_kv_heads; kv_head++) {
            const double score = group_score(call, token, kv_head, query + kv_head * group * size);
            sum += score;
            if (!call->uniform) {
                call->scores[row_start(call, r, kv_head) + c] = (float)(score / sqrt((double)size));
            }
        }
        if (call->uniform) {
            call->scores[row_start(call, r, 0) + c] =
                (float)(sum / (call->n_heads * sqrt((double)size)));
        }
    }
}

bool ref_select_score(const struct call_select *call) {
    double *query = calloc((size_t)call->n_heads * (size_t)call->head_size, sizeof *query);
    if (!query) {
        return false;
    }
    for (int64_t r = 0; r < call->n_requests; r++) {
        score_request(call, r, query);
    }
    free(query);
    return true;
}

static float pooled(const float *scores, int32_t n, int32_t c) {
    float best = scores[c];
    if (c > 0 && scores[c - 1] > best) {
        best = scores[c - 1];
    }
    if (c + 1 < n && scores[c + 1] > best) {
        best = scores[c + 1];
    }
    return best;
}

void ref_select_top(const struct call_select *call) {
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int32_t n = candidates(call, r);
        for (int64_t kv_head = 0; kv_head < call->n_kv_heads; kv_head++) {
            const int64_t row = row_start(call, r, kv_head);
            const float *scores = call->scores + row_start(call, r, call->uniform ? 0 : kv_head);
            int32_t place = 0;
            for (int32_t c = 0; c < n; c++) {
                const float mine = pooled(scores, n, c);
                int32_t n_before = 0; /* candidates that are chosen before this one */
                for (int32_t other = 0; other < n; other++) {
                    const float its = pooled(scores, n, other);
                    n_before += its > mine || (its == mine && other < c);
                }
                if (n_before < call->kept[r]) {
                    call->indices[row + place++] = candidate_token(call, r, c);
                }
            }
        }
    }
}

void ref_select_pack(const struct call_select *call) {
    for (int64_t r = 0; r < call->n_requests; r++) {
        const struct ref_packed to = {call->cache, call->cache_start[r], call->n_kv_heads,
                                      call->kept[r], call->cache_fp8};
        for (int64_t kv_head = 0; kv_head < call->n_kv_heads; kv_head++) {
            const int64_t row = row_start(call, r, kv_head);
            for (int64_t i = 0; i < call->kept[r]; i++) {
                const int64_t token = call->start[r] + call->indices[row + i];
                const struct ref_head from = {call->k, call->v,
                                              token * call->kv_stride + kv_head * call->head_size,
                                              call->head_size, call->dtype};
                ref_cache_head(&from, &to, kv_head, i);
            }
        }
    }
}

bool ref_select(const struct call_select *call) {
    if (call->part != KERNEL_SELECT_SCORED && !ref_select_score(call)) {
        return false;
    }
    if (call->part != KERNEL_SELECT_SCORES) {
        ref_select_top(call);
        ref_select_pack(call);
    }
    return true;
}
