/* Float32 attention in tiles, and the scores of a selection. */
#include <math.h>
#include <string.h>

#include "kernels/fp8.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/pattern.h"

/* Compiled twice, and by what the processor has the loader takes the one with vectors twice as
 * wide. The operations and their order are the same, and nothing is contracted: so are the bytes.
 */
#if defined __x86_64__ && defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ &&                    \
    !defined __SANITIZE_THREAD__ && defined __has_attribute
#if __has_attribute(target_clones)
#define WIDER __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef WIDER
#define WIDER
#endif

/* Partial sums of a dot product: element i goes to sum i mod LANES, which a compiler may keep in
 * vector registers without reordering anything; and which keeps rounding errors short. */
enum { LANES = 16 };

WIDER static float dot(const float *a, const float *b, int64_t n) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += a[i + l] * b[i + l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        lanes[l] += a[i + l] * b[i + l];
    }
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            lanes[l] += lanes[l + width];
        }
    }
    return lanes[0];
}

/* ---- attention ---- */

/* A run of rows of one head: row i at element i stride of k and v. In fp8 the scales of a row are
 * at i scale_stride bytes of k_scales and v_scales. */
struct run {
    const void *k, *v;
    int64_t stride, n_rows;
    const float *codes; /* rows are in fp8, of these values; NULL: in single precision */
    const uint8_t *k_scales, *v_scales;
    int64_t scale_stride;
};

/* n numbers of a row: in place, or expanded. */
static const float *row_of(const float *codes, const void *numbers, const uint8_t *scales,
                           int64_t n, float *room) {
    if (codes == NULL) {
        return numbers;
    }
    const uint8_t *row = numbers;
    for (int64_t first = 0; first < n; first += FP8_HEAD_GROUP) {
        const int64_t end = first + FP8_HEAD_GROUP < n ? first + FP8_HEAD_GROUP : n;
        const float scale = fp8_scale_at(scales, first / FP8_HEAD_GROUP);
        for (int64_t i = first; i < end; i++) {
            room[i] = codes[row[i]] * scale;
        }
    }
    return room;
}

enum { TILE_KEYS = 64 };

/* One query's softmax as far as it has come: keys that wait for their tile to fill, the largest
 * score, and relative to it the sum of exponentials and, in y, of the weighted values. */
struct softmax {
    float scores[TILE_KEYS];
    const void *values[TILE_KEYS];
    const uint8_t *scales[TILE_KEYS]; /* of values in fp8 */
    const float *codes[TILE_KEYS];    /* as struct run's */
    float *room;                      /* [D], for one row */
    int n_waiting;
    float top;
    double sum;
    float *y;
    int64_t size;
};

WIDER static void take_in(struct softmax *s) {
    float top = s->top;
    for (int i = 0; i < s->n_waiting; i++) {
        top = s->scores[i] > top ? s->scores[i] : top;
    }
    if (top > s->top) {
        float shrink = (float)exp((double)(s->top - top)); /* 0 at the first tile */
        for (int64_t d = 0; d < s->size; d++) {
            s->y[d] *= shrink;
        }
        s->sum *= (double)shrink;
        s->top = top;
    }
    for (int i = 0; i < s->n_waiting; i++) {
        float weight = (float)exp((double)(s->scores[i] - top));
        s->sum += (double)weight;
        const float *value = row_of(s->codes[i], s->values[i], s->scales[i], s->size, s->room);
        for (int64_t d = 0; d < s->size; d++) {
            s->y[d] += weight * value[d];
        }
    }
    s->n_waiting = 0;
}

/* y = softmax(q k' / sqrt(D)) v over runs in turn: begin, take each run, end. Tiles count keys
 * through all the runs, so that where a run ends does not show in the result. */
static void attend_begin(struct softmax *s, int64_t size, float *y, float *room) {
    s->n_waiting = 0;
    s->top = -INFINITY;
    s->sum = 0;
    s->y = y;
    s->size = size;
    s->room = room;
    for (int64_t d = 0; d < size; d++) {
        y[d] = 0;
    }
}

static void attend_run(struct softmax *s, const float *q, const struct run *run) {
    float scale = (float)(1 / sqrt((double)s->size));
    for (int64_t i = 0; i < run->n_rows; i++) {
        const int64_t at = i * run->stride * (run->codes != NULL ? 1 : (int64_t)sizeof(float));
        const int64_t scale_at = i * run->scale_stride;
        const float *key = row_of(run->codes, (const unsigned char *)run->k + at,
                                  run->k_scales + scale_at, s->size, s->room);
        s->scores[s->n_waiting] = dot(q, key, s->size) * scale;
        s->codes[s->n_waiting] = run->codes;
        s->scales[s->n_waiting] = run->v_scales + scale_at;
        s->values[s->n_waiting++] = (const unsigned char *)run->v + at;
        if (s->n_waiting == TILE_KEYS) {
            take_in(s);
        }
    }
}

static void attend_end(struct softmax *s) {
    take_in(s);
    for (int64_t d = 0; d < s->size; d++) {
        s->y[d] = (float)((double)s->y[d] / s->sum);
    }
}

static void attend(const float *q, const struct run *runs, int n_runs, int64_t size, float *y,
                   float *room) {
    struct softmax s;
    attend_begin(&s, size, y, room);
    for (int r = 0; r < n_runs; r++) {
        attend_run(&s, q, &runs[r]);
    }
    attend_end(&s);
}

void cpu_dense_attention(const struct cpu_room *room, const struct call_dense_attention *call) {
    const float *q = call->q, *k = call->k, *v = call->v;
    float *y = call->y, *query = room->inputs;
    int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int32_t r = 0; r < call->n_requests; r++) {
        int64_t first = call->start[r], n = call->start[r + 1] - first;
        const struct ref_queries queries = ref_queries_of(call, r);
        for (int64_t head = 0; head < call->n_heads; head++) {
            int64_t at = first * call->kv_stride + head / group * size;
            const struct run own = {
                .k = k + at, .v = v + at, .stride = call->kv_stride, .n_rows = n};
            for (int64_t t = queries.first; t < queries.end; t++) {
                memcpy(query, q + t * call->q_stride + head * size, (size_t)size * sizeof *query);
                attend(query, &own, 1, size, y + t * call->y_stride + head * size, NULL);
            }
        }
    }
}

/* The cached rows of a request's head. */
static struct run kept_run(const struct cpu_room *room, const struct call_block_attention *call,
                           int64_t r, int64_t kv_head) {
    const int64_t size = call->head_size, kept = call->kept[r], heads = call->n_kv_heads;
    const int64_t bytes = call->cache_fp8 ? 1 : (int64_t)sizeof(float);
    const unsigned char *cache = (const unsigned char *)call->cache + call->cache_start[r] * bytes;
    const struct fp8_place key = fp8_packed(heads, kept, size, kv_head, 0),
                           value = fp8_packed(heads, kept, size, heads + kv_head, 0);
    return (struct run){.k = cache + key.codes * bytes,
                        .v = cache + value.codes * bytes,
                        .stride = size,
                        .n_rows = kept,
                        .codes = call->cache_fp8 ? room->codes : NULL,
                        .k_scales = call->cache_fp8 ? cache + key.scales : NULL,
                        .v_scales = call->cache_fp8 ? cache + value.scales : NULL,
                        .scale_stride = call->cache_fp8 ? fp8_groups(size, FP8_HEAD_GROUP) *
                                                              (int64_t)sizeof(float)
                                                        : 0};
}

void cpu_block_attention(const struct cpu_room *room, const struct call_block_attention *call) {
    const float *q = call->q, *k = call->k, *v = call->v;
    float *y = call->y;
    int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int32_t r = 0; r < call->n_requests; r++) {
        int64_t first = call->start[r], n = call->start[r + 1] - first;
        for (int64_t head = 0; head < call->n_heads; head++) {
            int64_t kv_head = head / group;
            int64_t at = first * call->kv_stride + kv_head * size;
            const struct run runs[2] = {
                kept_run(room, call, r, kv_head),
                {.k = k + at, .v = v + at, .stride = call->kv_stride, .n_rows = n}};
            for (int64_t t = first; t < first + n; t++) {
                attend(q + t * call->q_stride + head * size, runs, call->own_cached ? 1 : 2, size,
                       y + t * call->y_stride + head * size, room->inputs);
            }
        }
    }
}

/* A query's rows [row, end) of a request, page by page. */
static void attend_pages(struct softmax *s, const struct cpu_room *room,
                         const struct call_paged_attention *call, const int32_t *pages,
                         const struct fp8_place *place, const float *q, int32_t row, int32_t end) {
    const unsigned char *k = call->k, *v = call->v;
    const float *codes = call->cache_fp8 ? room->codes : NULL;
    const int64_t bytes = call->cache_fp8 ? 1 : (int64_t)sizeof(float);
    while (row < end) {
        const int32_t in_page = row % call->page_rows, rest = call->page_rows - in_page;
        const int64_t first =
            ((int64_t)pages[row / call->page_rows] * call->page_rows + in_page) * call->kv_stride;
        const int64_t at = (first + place->codes) * bytes, scales = first + place->scales;
        const int32_t n = end - row < rest ? end - row : rest;
        const struct run run = {k + at, v + at,     call->kv_stride, n,
                                codes,  k + scales, v + scales,      call->kv_stride};
        attend_run(s, q, &run);
        row += n;
    }
}

void cpu_paged_attention(const struct cpu_room *room, const struct call_paged_attention *call) {
    const float *q = call->q;
    float *y = call->y;
    int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int32_t *pages = call->pages + r * call->max_pages;
        for (int64_t head = 0; head < call->n_heads; head++) {
            const struct fp8_place place = fp8_paged(call->n_kv_heads, size, head / group);
            for (int64_t t = call->start[r]; t < call->start[r + 1]; t++) {
                const int32_t extent = call->extent[t];
                const int32_t before = call->before != NULL ? call->before[t] : extent - 1;
                const float *query = q + t * call->q_stride + head * size;
                struct softmax s;
                attend_begin(&s, size, y + t * call->y_stride + head * size, room->inputs);
                attend_pages(&s, room, call, pages, &place, query, ref_first_row(call, t), before);
                attend_pages(&s, room, call, pages, &place, query, extent - 1, extent);
                attend_end(&s);
            }
        }
    }
}

/* ---- patterns ---- */

/* Adds the softmax over scores [from, n), block by block from the first on. */
static void add_shares(const float *scores, int32_t from, int32_t n, int32_t block_tokens,
                       double *shares) {
    float top = -INFINITY;
    double sum = 0;
    for (int32_t j = from; j < n; j++) {
        top = scores[j] > top ? scores[j] : top;
    }
    for (int32_t j = from; j < n; j++) {
        sum += exp((double)(scores[j] - top));
    }
    for (int32_t j = from; j < n; j++) {
        shares[(j - from) / block_tokens] += exp((double)(scores[j] - top)) / sum;
    }
}

static void choose_blocks(const struct cpu_room *room, const struct call_pattern *call, int32_t r,
                          int64_t head, int32_t block) {
    const int32_t n = call->start[r + 1] - call->start[r], tokens = call->block_tokens;
    const int32_t n_blocks = pattern_n_blocks(n, tokens), rest = call->rest[r];
    const int32_t end = block < n_blocks - 1 ? (block + 1) * tokens : n;
    const int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    const float *k =
        (const float *)call->k + call->start[r] * call->kv_stride + head / group * size;
    uint32_t *words =
        pattern_words_of(call->cache, sizeof(float), call->cache_start[r], n_blocks, head, block);
    double *shares = room->query, *of_rest = shares + n_blocks;
    memset(shares, 0, 2 * (size_t)n_blocks * sizeof *shares);
    memset(words, 0, (size_t)pattern_n_words(n_blocks) * sizeof *words);
    for (int32_t t = block * tokens; t < end; t++) {
        const float *q =
            (const float *)call->q + (call->start[r] + t) * call->q_stride + head * size;
        for (int32_t j = 0; j < n; j++) {
            room->inputs[j] = dot(q, k + j * call->kv_stride, size) * call->scale;
        }
        add_shares(room->inputs, 0, n, tokens, shares);
        add_shares(room->inputs, rest * tokens, n, tokens, of_rest);
    }
    ref_pattern_keep(shares, n_blocks, call->keep[r], 0, words);
    pattern_clear_from(words, n_blocks, rest);
    ref_pattern_keep(of_rest, n_blocks - rest, call->keep_rest[r], rest, words);
}

void cpu_pattern(const struct cpu_room *room, const struct call_pattern *call) {
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int32_t n = call->start[r + 1] - call->start[r];
        for (int64_t head = 0; head < call->n_heads; head++) {
            for (int32_t block = 0; block < pattern_n_blocks(n, call->block_tokens); block++) {
                choose_blocks(room, call, r, head, block);
            }
        }
    }
}

/* One query against the blocks that the words say. */
static void attend_pattern(const struct call_pattern_attention *call, int32_t r, int64_t head,
                           int32_t t, const uint32_t *words) {
    const int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    const int32_t n = call->start[r + 1] - call->start[r], tokens = call->block_tokens;
    const int64_t row = call->start[r] + t;
    const int64_t at = call->start[r] * call->kv_stride + head / group * size;
    const float *q = (const float *)call->q + row * call->q_stride + head * size;
    struct softmax s;
    attend_begin(&s, size, (float *)call->y + row * call->y_stride + head * size, NULL);
    for (int32_t first = 0; first < n; first += tokens) {
        const int64_t from = at + first * call->kv_stride;
        const struct run run = {.k = (const float *)call->k + from,
                                .v = (const float *)call->v + from,
                                .stride = call->kv_stride,
                                .n_rows = n - first < tokens ? n - first : tokens};
        if (pattern_has(words, first / tokens)) {
            attend_run(&s, q, &run);
        }
    }
    attend_end(&s);
}

void cpu_pattern_attention(const struct call_pattern_attention *call) {
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int32_t n = call->start[r + 1] - call->start[r];
        const int32_t n_blocks = pattern_n_blocks(n, call->block_tokens);
        for (int64_t head = 0; head < call->n_heads; head++) {
            for (int32_t t = 0; t < n; t++) {
                attend_pattern(call, r, head, t,
                               pattern_words_of((void *)call->cache, sizeof(float),
                                                call->cache_start[r], n_blocks, head,
                                                t / call->block_tokens));
            }
        }
    }
}

/* ---- selection ---- */

/* The mean over the block of every head's queries: [H, D]. */
static void mean_queries(const struct call_select *call, int32_t r, double *query) {
    const int64_t n_channels = (int64_t)call->n_heads * call->head_size;
    const int64_t n = call->block_end[r] - call->block_start[r];
    const float *q =
        (const float *)call->q + (call->start[r] + call->block_start[r]) * call->q_stride;
    for (int64_t c = 0; c < n_channels; c++) {
        query[c] = 0;
        for (int64_t t = 0; t < n; t++) {
            query[c] += (double)q[t * call->q_stride + c];
        }
        query[c] /= (double)n;
    }
}

/* A token's score by the mean queries of one key-value head's group: the best, or their sum. */
static double group_score(const struct call_select *call, const double *query, const float *key) {
    const int32_t group = call->n_heads / call->n_kv_heads;
    double score = call->uniform ? 0 : -(double)INFINITY;
    for (int32_t g = 0; g < group; g++, query += call->head_size) {
        double product = 0;
        for (int32_t d = 0; d < call->head_size; d++) {
            product += query[d] * (double)key[d];
        }
        score = call->uniform ? score + product : product > score ? product : score;
    }
    return score;
}

static void score_token(const struct call_select *call, const double *query, int64_t token,
                        int64_t n_candidates, float *scores) {
    const int32_t group = call->n_heads / call->n_kv_heads;
    const double root = sqrt((double)call->head_size);
    const float *key = (const float *)call->k + token * call->kv_stride;
    double sum = 0;
    for (int64_t head = 0; head < call->n_kv_heads; head++) {
        const double score =
            group_score(call, query + head * group * call->head_size, key + head * call->head_size);
        sum += score;
        if (!call->uniform) {
            scores[head * n_candidates] = (float)(score / root);
        }
    }
    if (call->uniform) {
        scores[0] = (float)(sum / (call->n_heads * root));
    }
}

static void score(const struct cpu_room *room, const struct call_select *call) {
    for (int32_t r = 0; r < call->n_requests; r++) {
        const int32_t begin = call->block_start[r], hole = call->block_end[r] - begin;
        const int32_t n = call->start[r + 1] - call->start[r] - hole;
        float *scores = call->scores + call->n_kv_heads * call->score_start[r];
        mean_queries(call, r, room->query);
        for (int32_t c = 0; c < n; c++) {
            const int32_t token = call->start[r] + (c < begin ? c : c + hole);
            score_token(call, room->query, token, n, scores + c);
        }
    }
}

void cpu_select(const struct cpu_room *room, const struct call_select *call) {
    if (call->part != KERNEL_SELECT_SCORED) {
        score(room, call);
    }
    if (call->part != KERNEL_SELECT_SCORES) {
        ref_select_top(call);
        ref_select_pack(call);
    }
}
