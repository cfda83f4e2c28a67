/* The arguments of block diffusion's own kernels: attention over exact keys and values in pages,
 * and what FOCUS needs to go on with few tokens after a layer's projections (focus.txt section 4):
 * their importance, and the rows that stay. The rules and shapes of calls.h hold here, too. A
 * token's position counts from its request's first token; the row of its keys and values among the
 * request's rows is the same number. */
#ifndef UNMASK_KERNELS_CALLS_BLOCK_H
#define UNMASK_KERNELS_CALLS_BLOCK_H

#include "kernels/calls.h"

/* Row i of request r is row pages[r][i / page_rows] page_rows + i % page_rows of the pool. Query t
 * attends to rows 0 .. extent[t] - 1 of its request, which are at least one and, within a request,
 * never fewer than the query before attends to. Prefill, decoding and a few kept tokens of a block
 * differ in nothing else. A request's own rows are written before (call_rope with kv_rows); rows
 * that no query attends to may hold anything. page_rows is a power of two, 4 to 256. The GPU takes
 * D = 64 and 128. y is not q. */
struct call_paged_attention {
    const void *q;         /* [T, H, D], tokens q_stride apart */
    const void *k, *v;     /* a layer's rows of the pool, [., G, D], rows kv_stride apart */
    void *y;               /* [T, H, D], tokens y_stride apart */
    const int32_t *start;  /* [B + 1] */
    const int32_t *extent; /* [T] */
    const int32_t *pages;  /* [B, max_pages] */
    void *scratch;         /* block_attention_scratch_bytes, zeroed once before first use */
    int64_t q_stride, kv_stride, y_stride;
    int32_t n_requests, n_tokens, n_heads, n_kv_heads, head_size; /* n_tokens: at least start[B] */
    int32_t max_pages, page_rows;
    int32_t max_queries, max_extent; /* at least the largest, known to the host */
    bool invariant;
    enum kernel_dtype dtype;
};

enum { FOCUS_MAX_BLOCK = 128 };

/* The importance of tokens in one layer (focus.txt equations 2 and 15): among a request's masked
 * tokens alone, in their order, as queries and as keys, s = q . k / sqrt(D), the largest of three
 * neighbouring keys, softmax over the keys, summed over queries and heads. Tokens that are not
 * masked have 0. A request has at most FOCUS_MAX_BLOCK masked tokens. */
struct call_importance {
    const void *q;          /* [T, H, D], tokens q_stride apart */
    const void *k;          /* [., G, D], rows kv_stride apart */
    const int32_t *kv_rows; /* [T], the row of a token's key; NULL: row t */
    const int32_t *start;   /* [B + 1] */
    const uint8_t *masked;  /* [T] */
    float *importance;      /* [T] */
    int64_t q_stride, kv_stride;
    int32_t n_requests, n_heads, n_kv_heads, head_size;
    int32_t max_masked; /* the most masked tokens of a request, known to the host */
    enum kernel_dtype dtype;
};

enum { COMPACT_ARRAYS = 4 };

/* to[i] = from[rows[i]] for the first *n_rows rows of each array; the rest stays as it is. Widths
 * and strides, in elements, multiples of 8. No two ranges may overlap. */
struct call_compact {
    const int32_t *rows;   /* [max_rows] */
    const int32_t *n_rows; /* one number, at most max_rows; NULL: max_rows */
    const void *from[COMPACT_ARRAYS];
    void *to[COMPACT_ARRAYS];
    int64_t from_stride[COMPACT_ARRAYS], to_stride[COMPACT_ARRAYS];
    int32_t width[COMPACT_ARRAYS];
    int32_t n_arrays, max_rows;
    enum kernel_dtype dtype;
};

#endif
