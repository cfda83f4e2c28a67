/* Reference implementations of the attentions: every probability in double, no tiles. */
#include <math.h>
#include <stdlib.h>

#include "kernels/fp8.h"
#include "kernels/ref/ref.h"

/* A run of keys and values of one head: row i at element i stride from the first. */
struct segment {
    const void *k, *v;
    int64_t k_first, v_first, stride, n_rows;
    bool fp8;
};

/* Number d of a head's row at element `at`. */
static double load(const struct segment *s, const void *rows, int64_t at, int64_t d, int64_t size,
                   enum kernel_dtype dtype) {
    return s->fp8 ? (double)fp8_row_at((const uint8_t *)rows + at, size, FP8_HEAD_GROUP, d)
                  : ref_load(rows, dtype, at + d);
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
                score += ref_load(q, dtype, q_at + d) *
                         load(&segments[s], segments[s].k,
                              segments[s].k_first + row * segments[s].stride, d, head_size, dtype);
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
                sum[d] +=
                    e * load(&segments[s], segments[s].v,
                             segments[s].v_first + row * segments[s].stride, d, head_size, dtype);
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
            const struct segment all = {call->k, call->v, at, at, call->kv_stride, n, false};
            for (int64_t t = queries.first; t < queries.end; t++) {
                attend(call->q, t * call->q_stride + head * size, &all, 1, size, call->dtype,
                       call->y, t * call->y_stride + head * size, room + size, room);
            }
        }
        free(room);
    }
    return true;
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
            const int64_t wide = fp8_head_elements(size, call->cache_fp8);
            const int64_t cached = call->cache_start[r] + kv_head * kept * wide;
            const int64_t fresh = first * call->kv_stride + kv_head * size;
            const struct segment both[2] = {
                {call->cache, call->cache, cached, cached + call->n_kv_heads * kept * wide, wide,
                 kept, call->cache_fp8},
                {call->k, call->v, fresh, fresh, call->kv_stride, n, false}};
            for (int64_t t = first; t < first + n; t++) {
                attend(call->q, t * call->q_stride + head * size, both, n_segments, size,
                       call->dtype, call->y, t * call->y_stride + head * size, room + size, room);
            }
        }
        free(room);
    }
    return true;
}

/* Rows of one page after the other; the last page is the one with row extent - 1. */
static int page_segments(const struct call_paged_attention *call, int64_t r, int64_t kv_head,
                         int32_t extent, struct segment *segments) {
    int n = 0;
    for (int32_t row = 0; row < extent; row += call->page_rows) {
        const int64_t page = call->pages[r * call->max_pages + row / call->page_rows];
        const int64_t at = page * call->page_rows * call->kv_stride +
                           kv_head * fp8_head_elements(call->head_size, call->cache_fp8);
        const int32_t n_rows = extent - row < call->page_rows ? extent - row : call->page_rows;
        segments[n++] =
            (struct segment){call->k, call->v, at, at, call->kv_stride, n_rows, call->cache_fp8};
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
            malloc(sizeof *segments * (size_t)(longest / call->page_rows + 1));
        for (int64_t head = 0; room && segments && head < call->n_heads; head++) {
            for (int64_t t = first; t < past; t++) {
                const int n = page_segments(call, r, head / group, call->extent[t], segments);
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
