/* Reference implementations of the attentions: every probability in double, no tiles. */
#include <math.h>
#include <stdlib.h>

#include "kernels/fp8.h"
#include "kernels/ref/ref.h"

/* A run of keys and values of one head: row i at element i stride from the first; in fp8 its scales
 * are at i scale_stride bytes from the first ones. */
struct segment {
    const void *k, *v;
    int64_t k_first, v_first, stride, n_rows;
    bool fp8;
    int64_t k_scales, v_scales, scale_stride;
};

/* Number d of a row's key, or of its value. */
static double load(const struct segment *s, bool of_value, int64_t row, int64_t d,
                   enum kernel_dtype dtype) {
    const void *rows = of_value ? s->v : s->k;
    const int64_t at = (of_value ? s->v_first : s->k_first) + row * s->stride + d;
    const int64_t scales = (of_value ? s->v_scales : s->k_scales) + row * s->scale_stride;
    return s->fp8 ? (double)e4m3_to_float(((const uint8_t *)rows)[at]) *
                        (double)fp8_scale_at((const uint8_t *)rows + scales, d / FP8_HEAD_GROUP)
                  : ref_load(rows, dtype, at);
}

/* y[y_at ..] = softmax(q k' / sqrt(D)) v over the segments in turn; p and sum are room for all
 * the segments' rows and for D numbers. */
static void attend(const void *q, int64_t q_at, const struct segment *segments, int n_segments,
                   int64_t head_size, enum kernel_dtype dtype, void *y, int64_t y_at, double *p,
                   double *sum) {
    double top = -(double)INFINITY, weight = 0;
    int64_t n = 0;
    for (int s = 0; s < n_segments; s++) {
        for (int64_t row = 0; row < segments[s].n_rows; row++) {
            double score = 0;
            for (int64_t d = 0; d < head_size; d++) {
                score += ref_load(q, dtype, q_at + d) * load(&segments[s], false, row, d, dtype);
            }
            p[n] = score / sqrt((double)head_size);
            top = p[n] > top ? p[n] : top;
            n++;
        }
    }
    for (int64_t d = 0; d < head_size; d++) {
        sum[d] = 0;
    }
    n = 0;
    for (int s = 0; s < n_segments; s++) {
        for (int64_t row = 0; row < segments[s].n_rows; row++) {
            const double e = exp(p[n++] - top);
            weight += e;
            for (int64_t d = 0; d < head_size; d++) {
                sum[d] += e * load(&segments[s], true, row, d, dtype);
            }
        }
    }
    for (int64_t d = 0; d < head_size; d++) {
        ref_store(y, dtype, y_at + d, sum[d] / weight);
    }
}

struct ref_queries ref_queries_of(const struct call_dense_attention *call, int64_t r) {
    const int64_t begin = call->start[r], end = call->start[r + 1];
    if (call->n_queries == 0) {
        return (struct ref_queries){begin, end};
    }
    const int64_t first = call->first_query, last = first + call->n_queries;
    const int64_t from = begin > first ? begin : first, to = end < last ? end : last;
    return (struct ref_queries){from - first, to > from ? to - first : from - first};
}

bool ref_dense_attention(const struct call_dense_attention *call) {
    const int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int64_t first = call->start[r], n = call->start[r + 1] - first;
        const struct ref_queries queries = ref_queries_of(call, r);
        double *room = malloc(sizeof *room * (size_t)(n + size));
        if (!room) {
            return false;
        }
        for (int64_t head = 0; head < call->n_heads; head++) {
            const int64_t at = first * call->kv_stride + head / group * size;
            const struct segment all = {.k = call->k,
                                        .v = call->v,
                                        .k_first = at,
                                        .v_first = at,
                                        .stride = call->kv_stride,
                                        .n_rows = n};
            for (int64_t t = queries.first; t < queries.end; t++) {
                attend(call->q, t * call->q_stride + head * size, &all, 1, size, call->dtype,
                       call->y, t * call->y_stride + head * size, room + size, room);
            }
        }
        free(room);
    }
    return true;
}

/* The cached rows of a request's head. */
static struct segment kept_segment(const struct call_block_attention *call, int64_t r,
                                   int64_t kv_head) {
    const int64_t size = call->head_size, kept = call->kept[r], start = call->cache_start[r];
    const int64_t at = start + kv_head * kept * size, heads = call->n_kv_heads;
    const struct fp8_place key = fp8_packed(heads, kept, size, kv_head, 0),
                           value = fp8_packed(heads, kept, size, heads + kv_head, 0);
    return (struct segment){.k = call->cache,
                            .v = call->cache,
                            .k_first = at,
                            .v_first = at + heads * kept * size,
                            .stride = size,
                            .n_rows = kept,
                            .fp8 = call->cache_fp8,
                            .k_scales = start + key.scales,
                            .v_scales = start + value.scales,
                            .scale_stride =
                                fp8_groups(size, FP8_HEAD_GROUP) * (int64_t)sizeof(float)};
}

bool ref_block_attention(const struct call_block_attention *call) {
    const int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int64_t first = call->start[r], n = call->start[r + 1] - first;
        const int64_t kept = call->kept[r];
        const int n_segments = call->own_cached ? 1 : 2;
        double *room = malloc(sizeof *room * (size_t)(kept + n + size));
        if (!room) {
            return false;
        }
        for (int64_t head = 0; head < call->n_heads; head++) {
            const int64_t kv_head = head / group;
            const int64_t fresh = first * call->kv_stride + kv_head * size;
            const struct segment both[2] = {kept_segment(call, r, kv_head),
                                            {.k = call->k,
                                             .v = call->v,
                                             .k_first = fresh,
                                             .v_first = fresh,
                                             .stride = call->kv_stride,
                                             .n_rows = n}};
            for (int64_t t = first; t < first + n; t++) {
                attend(call->q, t * call->q_stride + head * size, both, n_segments, size,
                       call->dtype, call->y, t * call->y_stride + head * size, room + size, room);
            }
        }
        free(room);
    }
    return true;
}

/* The first row that a query attends to. */
int32_t ref_first_row(const struct call_paged_attention *call, int64_t t) {
    const int32_t first = call->local_window > 0 ? call->positions[t] - call->local_window + 1 : 0;
    return first > 0 ? first : 0;
}

/* Rows [from, extent), of one page after the other. */
static int page_segments(const struct call_paged_attention *call, int64_t r, int64_t kv_head,
                         int32_t from, int32_t extent, struct segment *segments) {
    int n = 0;
    for (int32_t row = from; row < extent; row += call->page_rows - row % call->page_rows) {
        const int64_t page = call->pages[r * call->max_pages + row / call->page_rows];
        const struct fp8_place place = fp8_paged(call->n_kv_heads, call->head_size, kv_head);
        const int32_t in_page = row % call->page_rows, rest = call->page_rows - in_page;
        const int64_t first = (page * call->page_rows + in_page) * call->kv_stride;
        const int64_t at = first + place.codes, scales = first + place.scales;
        const int32_t n_rows = extent - row < rest ? extent - row : rest;
        segments[n++] = (struct segment){call->k, call->v,         at,     at,     call->kv_stride,
                                         n_rows,  call->cache_fp8, scales, scales, call->kv_stride};
    }
    return n;
}

bool ref_paged_attention(const struct call_paged_attention *call) {
    const int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int64_t r = 0; r < call->n_requests; r++) {
        const int64_t first = call->start[r], past = call->start[r + 1];
        if (first == past) {
            continue;
        }
        const int32_t longest = call->extent[past - 1];
        double *room = malloc(sizeof *room * (size_t)(longest + size));
        struct segment *segments =
            malloc(sizeof *segments * (size_t)(longest / call->page_rows + 2));
        for (int64_t head = 0; room && segments && head < call->n_heads; head++) {
            for (int64_t t = first; t < past; t++) {
                const int32_t extent = call->extent[t];
                const int32_t before = call->before != NULL ? call->before[t] : extent - 1;
                int n =
                    page_segments(call, r, head / group, ref_first_row(call, t), before, segments);
                n += page_segments(call, r, head / group, extent - 1, extent, segments + n);
                attend(call->q, t * call->q_stride + head * size, segments, n, size, call->dtype,
                       call->y, t * call->y_stride + head * size, room + size, room);
            }
        }
        const bool had_room = room && segments;
        free(room);
        free(segments);
        if (!had_room) {
            return false;
        }
    }
    return true;
}
