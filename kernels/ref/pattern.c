/* Reference implementations of SparseD's patterns: which blocks of keys each head's blocks of
 * queries keep, and attention to these. */
#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"
#include "kernels/rules/pattern.h"

void ref_pattern_keep(const double *shares, int32_t n, int32_t keep, int32_t first,
                      uint32_t *words) {
    for (int32_t i = 0; i < n; i++) {
        int32_t n_before = 0;
        for (int32_t j = 0; j < n && n_before < keep; j++) {
            n_before += shares[j] > shares[i] || (j < i && shares[j] == shares[i]);
        }
        if (n_before < keep) {
            words[(first + i) / 32] |= UINT32_C(1) << (first + i) % 32;
        }
    }
}

/* scale q . k of one head's query and keys of its request. */
static void score_row(const struct call_pattern *call, int64_t q_at, int64_t k_at, int32_t n,
                      double *scores) {
    for (int32_t j = 0; j < n; j++) {
        double score = 0;
        for (int64_t d = 0; d < call->head_size; d++) {
            score += ref_load(call->q, call->dtype, q_at + d) *
                     ref_load(call->k, call->dtype, k_at + j * call->kv_stride + d);
        }
        scores[j] = score * (double)call->scale;
    }
}

/* Adds the softmax over keys [from, n), block by block from that of key `from` on. */
static void add_shares(const double *scores, int32_t from, int32_t n, int32_t block_tokens,
                       double *shares) {
    double top = -(double)INFINITY, sum = 0;
    for (int32_t j = from; j < n; j++) {
        top = scores[j] > top ? scores[j] : top;
    }
    for (int32_t j = from; j < n; j++) {
        sum += exp(scores[j] - top);
    }
    for (int32_t j = from; j < n; j++) {
        shares[(j - from) / block_tokens] += exp(scores[j] - top) / sum;
    }
}

bool ref_pattern_shares(const struct call_pattern *call, int64_t r, int64_t head, int32_t block,
                        double *shares) {
    const int32_t n = call->start[r + 1] - call->start[r], tokens = call->block_tokens;
    const int32_t n_blocks = pattern_n_blocks(n, tokens), rest = call->rest[r];
    const int32_t end = block < n_blocks - 1 ? (block + 1) * tokens : n;
    const int64_t group = call->n_heads / call->n_kv_heads;
    const int64_t k_at = call->start[r] * call->kv_stride + head / group * call->head_size;
    double *scores = calloc((size_t)n + 1, sizeof *scores);
    if (!scores) {
        return false;
    }
    for (int32_t b = 0; b < 2 * n_blocks - rest; b++) {
        shares[b] = 0;
    }
    for (int32_t t = block * tokens; t < end; t++) {
        const int64_t q_at = (call->start[r] + t) * call->q_stride + head * call->head_size;
        score_row(call, q_at, k_at, n, scores);
        add_shares(scores, 0, n, tokens, shares);
        add_shares(scores, rest * tokens, n, tokens, shares + n_blocks);
    }
    free(scores);
    return true;
}

static bool choose(const struct call_pattern *call, int64_t r, int64_t head, int32_t block,
                   double *shares) {
    const int32_t n = call->start[r + 1] - call->start[r], rest = call->rest[r];
    const int32_t n_blocks = pattern_n_blocks(n, call->block_tokens);
    uint32_t *words = pattern_words_of(call->cache, call->dtype == KERNEL_BF16 ? 2 : 4,
                                       call->cache_start[r], n_blocks, head, block);
    for (int32_t w = 0; w < pattern_n_words(n_blocks); w++) {
        words[w] = 0;
    }
    if (!ref_pattern_shares(call, r, head, block, shares)) {
        return false;
    }
    ref_pattern_keep(shares, n_blocks, call->keep[r], 0, words);
    pattern_clear_from(words, n_blocks, rest);
    ref_pattern_keep(shares + n_blocks, n_blocks - rest, call->keep_rest[r], rest, words);
    return true;
}

bool ref_pattern(const struct call_pattern *call) {
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int32_t n = call->start[r + 1] - call->start[r];
        const int32_t n_blocks = pattern_n_blocks(n, call->block_tokens);
        double *shares = calloc(2 * (size_t)n_blocks + 1, sizeof *shares);
        bool has_room = shares != NULL;
        for (int64_t head = 0; has_room && head < call->n_heads; head++) {
            for (int32_t block = 0; has_room && block < n_blocks; block++) {
                has_room = choose(call, r, head, block, shares);
            }
        }
        free(shares);
        if (!has_room) {
            return false;
        }
    }
    return true;
}

/* ---- attention ---- */

/* The keys that the words say, in order; returns how many. */
static int32_t list_keys(const uint32_t *words, int32_t n, int32_t tokens, int32_t *keys) {
    int32_t n_keys = 0;
    for (int32_t j = 0; j < n; j++) {
        if (pattern_has(words, j / tokens)) {
            keys[n_keys++] = j;
        }
    }
    return n_keys;
}

static void attend(const struct call_pattern_attention *call, int64_t r, int64_t head, int32_t t,
                   const int32_t *keys, int32_t n_keys, double *p) {
    const int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    const int64_t q_at = (call->start[r] + t) * call->q_stride + head * size;
    const int64_t kv_at = call->start[r] * call->kv_stride + head / group * size;
    double top = -(double)INFINITY, sum = 0;
    for (int32_t i = 0; i < n_keys; i++) {
        double score = 0;
        for (int64_t d = 0; d < size; d++) {
            score += ref_load(call->q, call->dtype, q_at + d) *
                     ref_load(call->k, call->dtype, kv_at + keys[i] * call->kv_stride + d);
        }
        p[i] = score / sqrt((double)size);
        top = p[i] > top ? p[i] : top;
    }
    for (int32_t i = 0; i < n_keys; i++) {
        p[i] = exp(p[i] - top);
        sum += p[i];
    }
    for (int64_t d = 0; d < size; d++) {
        double y = 0;
        for (int32_t i = 0; i < n_keys; i++) {
            y += p[i] * ref_load(call->v, call->dtype, kv_at + keys[i] * call->kv_stride + d);
        }
        ref_store(call->y, call->dtype, (call->start[r] + t) * call->y_stride + head * size + d,
                  y / sum);
    }
}

bool ref_pattern_attention(const struct call_pattern_attention *call) {
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int32_t n = call->start[r + 1] - call->start[r], tokens = call->block_tokens;
        const int32_t n_blocks = pattern_n_blocks(n, tokens);
        double *p = malloc((sizeof *p + sizeof(int32_t)) * (size_t)(n > 0 ? n : 1));
        if (!p) {
            return false;
        }
        int32_t *keys = (int32_t *)(void *)(p + n);
        for (int64_t head = 0; head < call->n_heads; head++) {
            for (int32_t t = 0; t < n; t++) {
                const uint32_t *words =
                    pattern_words_of((void *)call->cache, call->dtype == KERNEL_BF16 ? 2 : 4,
                                     call->cache_start[r], n_blocks, head, t / tokens);
                attend(call, r, head, t, keys, list_keys(words, n, tokens, keys), p);
            }
        }
        free(p);
    }
    return true;
}
