/* The arguments of block diffusion's own kernels: attention over exact keys and values in pages,
 * the tokens a step processes of each active block, and FOCUS, which after a layer's projections
 * goes on with few of them (focus.txt section 4; where paper and released code differ, the code).
 * The rules and shapes of calls.h hold here, too. A token's position counts from its request's
 * first token; the row of its keys and values among the request's rows is the same number. */
#ifndef UNMASK_KERNELS_CALLS_BLOCK_H
#define UNMASK_KERNELS_CALLS_BLOCK_H

#include "kernels/calls.h"

/* Row i of request r is row pages[r][i / page_rows] page_rows + i % page_rows of the pool. Query t
 * attends to rows 0 .. extent[t] - 1 of its request, which are at least one and, within a request,
 * never fewer than the query before attends to. Prefill, decoding and a few kept tokens of a block
 * differ in nothing else. A request's own rows are written before (call_rope with kv_rows); what
 * rows hold that nobody attends to does not matter.
 * page_rows is a power of two, 4 to 256. The GPU takes D = 64 and 128. y is not q. */
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

/* What becomes of a block's tokens once they are decoded: they are processed in every step all the
 * same (KERNEL_BLOCK_WHOLE), in one more step, whose keys and values stay (KERNEL_BLOCK_DELAYED,
 * dKV-Cache), or in every step up to one more after their right neighbour is decoded, too
 * (KERNEL_BLOCK_NEIGHBOUR, focus.txt section 4.3; nothing is to the right of a block's last token).
 */
enum kernel_block_cache { KERNEL_BLOCK_WHOLE, KERNEL_BLOCK_DELAYED, KERNEL_BLOCK_NEIGHBOUR };

/* Lists the tokens that a step processes of each request's active block: those that are not final.
 * Those it lists for the last time become final: the masks it judges by are those before this
 * step's commits. A request whose block is final lists nothing. Places in the lists that no token
 * takes, up to n_tokens, stand for harmless work: position 0 of the canvas, row spare_row. */
struct call_block_list {
    const int32_t *canvas;       /* token ids */
    const int64_t *canvas_start; /* [B], where a request's canvas begins in it */
    const int32_t *block_start;  /* [B], the block's first position */
    const int32_t *block_tokens; /* [B], its length, 0 .. max_block */
    const int32_t *pages;        /* [B, max_pages] */
    /* [B, max_block], 1: it was decoded, though it may have been given the mask itself; NULL: what
     * is not the mask is decoded. */
    const uint8_t *decoded;
    uint8_t *final;     /* [B, max_block], 1 or 0; zeroed when a block begins */
    int32_t *start;     /* [B + 1], and from here on what is listed: */
    int32_t *positions; /* [n_tokens] */
    int32_t *kv_rows;   /* [n_tokens], rows of the pool */
    int32_t *extent;    /* [n_tokens], the block's end */
    int64_t *at;        /* [n_tokens], places in the canvas */
    uint8_t *masked;    /* [n_tokens] */
    int32_t n_requests, n_tokens, max_pages, page_rows;
    int32_t max_block; /* at most FOCUS_MAX_BLOCK */
    int32_t mask_token, spare_row;
    enum kernel_block_cache cache;
    /* A step attends up to its last listed token instead of the block's end, as FOCUS's code. */
    bool ends_at_last;
};

enum { FOCUS_MAX_BLOCK = 128 };

/* Which kept tokens of a request have logit rows besides the masked ones: all, while some are
 * masked; all, when none is masked any more. */
enum kernel_block_logits { KERNEL_LOGITS_DENOISING = 1, KERNEL_LOGITS_COMMIT = 2 };

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

/* Which tokens of each request the layers to come process, and the lists they need.
 * Of a request's n masked tokens K = min(n, max(1, ceil(alpha max(mean, 1)))) are wanted. With
 * delta = after - before, the tokens with delta >= mean + standard deviation (both over the masked
 * tokens; the deviation alone when above_deviation, equation 5) are taken where there are at least
 * K, else the K largest deltas, the earlier token on a tie. Then are taken, too: the masked token
 * whose position is just left of one taken so far; and masked tokens left of the right-most one
 * taken whose keys and values this block's steps have not written yet: their positions are above
 * the frontier. Tokens that are not masked are always kept; so are all tokens where n <= K.
 * The frontier then moves up to the last kept token. Queries attend no further than it, unless no
 * token of their request is masked, so that all there is has been computed. Rows of tokens that are
 * not masked decide on their request's first token, which is no mask. Exact: the same floats give
 * the same lists on any device (sums in double, in token order). */
struct call_focus_select {
    const float *before, *after; /* [T], the importance in layers 0 and 1 */
    const uint8_t *masked;       /* [T] */
    const int32_t *start;        /* [B + 1] */
    const int32_t *positions;    /* [T], ascending within a request */
    const int32_t *kv_rows;      /* [T] */
    const int32_t *extent;       /* [T] */
    const int64_t *at;           /* [T], places in the canvas */
    const float *mean;           /* [B], tokens decoded in a step so far (call_decode_mean) */
    const uint8_t *logits;       /* [B], enum kernel_block_logits, together; NULL: 0 */
    int32_t *frontier;           /* [B], the last position processed, -1 at first; moved */
    uint8_t *keep;               /* [T], 1 or 0 */
    int32_t *kept_start;         /* [B + 1] */
    int32_t *kept;               /* [n_tokens], the tokens in order, and of each: */
    int32_t *kept_positions;     /* [n_tokens] */
    int32_t *kept_rows;          /* [n_tokens], kv_rows */
    int32_t *kept_extent;        /* [n_tokens] */
    int32_t *logit_rows;         /* [n_tokens], logit rows' tokens among the kept; and of each: */
    int64_t *targets;            /* [n_tokens], places in the canvas */
    /* Each request's logit rows, as call_decode takes them: [B + 1], the last: how many; [B]. */
    int32_t *first_row, *n_rows;
    /* Places past a list's end, up to n_tokens >= start[B]: token, position and row 0, extent 1,
     * key row spare_row. */
    int32_t n_requests, n_tokens, spare_row;
    int32_t max_masked; /* the most masked tokens of a request, known to the host */
    float alpha;
    bool above_deviation;
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

enum { BUCKET_SIZES = 64 };

/* *place = the place of the smallest of the sizes, which ascend, that is at least *n; -1 where *n
 * is 0. *n is at most the largest. */
struct call_bucket {
    const int32_t *n;
    int32_t *place;
    int32_t n_sizes, sizes[BUCKET_SIZES];
};

/* What became of a position of a block in a step, together. */
enum kernel_block_log { KERNEL_LOG_RAN = 1, KERNEL_LOG_KEPT = 2, KERNEL_LOG_COMMITTED = 4 };

/* Notes what a step made of each position of the active blocks, by the lists of call_block_list and
 * call_focus_select and the flags of call_decode. What was committed is decoded from now on. */
struct call_block_log {
    const int32_t *start;                       /* [B + 1] */
    const int32_t *positions;                   /* [T] */
    const uint8_t *keep;                        /* [T] */
    const int32_t *kept_positions, *logit_rows; /* as call_focus_select listed them */
    const int32_t *first_row, *n_rows;          /* [B] */
    const uint8_t *committed;                   /* [logit rows] */
    const int32_t *block_start;                 /* [B] */
    uint8_t *decoded;                           /* [B, max_block] */
    uint8_t *log;                               /* [steps, B, max_block], enum kernel_block_log */
    const int32_t *step;                        /* of them; NULL: the first */
    int32_t n_requests, max_block;
};

/* Between two steps of the same blocks: counts the one that was, says whether there is another,
 * which is so up to *most of them and until a block is over, and how many tokens that may commit.
 * A block is over when all of it is final, or, where it ends early, decoded. */
struct call_block_next {
    const int32_t *block_tokens;    /* [B]; requests with 0 have no say */
    const uint8_t *decoded, *final; /* [B, max_block] */
    const uint8_t *ends_early;      /* [B], 1 or 0 */
    const int32_t *takes;           /* [steps, B], at least *most of them */
    int32_t *take;                  /* [B], those of the next step */
    const int32_t *most;            /* one number, 1 or more */
    int32_t *step;                  /* one number, 0 at first: steps done */
    int32_t *again;                 /* one number: 1 or 0 */
    int32_t n_requests, max_block;
};

/* Takes in how many tokens each request has decoded in a step; steps that decode none do not
 * count. mean: sum / steps, and 1 before the first (focus.txt equations 17-19); or, with weight
 * above 0, mean += weight (decoded - mean) from 1 on, the moving average its text speaks of. All
 * three zeroed are a beginning, too. */
struct call_decode_mean {
    const int32_t *n_decoded; /* [B] */
    const uint8_t *restart;   /* [B], 1: forget, a new block begins; or NULL */
    float *mean;              /* [B] */
    int32_t *sum, *steps;     /* [B] */
    int32_t n_requests;
    float weight;
};

#endif
