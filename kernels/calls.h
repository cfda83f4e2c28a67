/* The arguments of every kernel. A launcher (kernels.h) and its plain-C reference implementation
 * (ref.h) take the same struct: device pointers for the first, host pointers for the second. Those
 * of block diffusion are in calls_block.h, those of a mixture of experts in calls_moe.h, those of
 * iteration smoothing in calls_smooth.h. Shapes use one alphabet: B requests, T tokens, C channels,
 * H query heads, G key-value heads (H a multiple of G), D head size, V vocabulary, N logit rows.
 * Arrays are row-major and contiguous unless a stride, counted in elements, is given. Ragged
 * batches list where each request's rows start: start[B + 1], with start[B] the number of rows.
 * invariant, where a call has it, is for the launcher alone: a row of y is the same bits whatever
 * else is in the call, at some cost in speed. Calls without it, products apart, are always so. */
#ifndef UNMASK_KERNELS_CALLS_H
#define UNMASK_KERNELS_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/rules/decide.h"
#include "kernels/rules/draw_rule.h"

/* The element type of every void pointer in a call. The GPU takes KERNEL_BF16 only, but for random
 * numbers. */
enum kernel_dtype { KERNEL_BF16, KERNEL_F32 };

/* y[i] = table[ids[at[i]]], or of ids[i] where at is NULL; an id outside the table fills its row
 * with NaN. C a multiple of 8. */
struct call_embed {
    const void *table;  /* [V, C] */
    const int32_t *ids; /* [T], or as long as `at` needs */
    const int64_t *at;  /* [T] or NULL */
    void *y;            /* [T, C] */
    int32_t n_tokens, n_channels, n_vocab;
    enum kernel_dtype dtype;
};

/* s = x + residual (s = x when residual is NULL), rounded to the dtype;
 * y = s / sqrt(mean(s^2) + epsilon) * weight. With rows == NULL, y[i] comes from row i and s is
 * written back to residual; otherwise y[i] comes from row rows[i] and residual is only read.
 * y may be x. C a multiple of 8, at most 32768. */
struct call_norm {
    const void *x;       /* [T, C] */
    const void *weight;  /* [C] */
    void *residual;      /* [T, C] or NULL */
    const int32_t *rows; /* [n_rows] or NULL */
    void *y;             /* [n_rows, C] */
    int32_t n_rows, n_channels;
    float epsilon;
    bool invariant;
    enum kernel_dtype dtype;
};

/* y = x w' + add. deterministic: how it is computed follows from its shape alone, so that equal
 * devices give equal bits. K and the strides multiples of 8. w may be some rows of a taller matrix:
 * where the call says how many rows of it lie before and after them, the CPU's products round as
 * those of the whole matrix do. by_inputs: w is [K, N] and whole, y = x w + add, N a multiple of 8.
 */
struct call_linear {
    const void *x;   /* [T, K], rows x_stride apart */
    const void *w;   /* [N, K]; by_inputs: [K, N] */
    const void *add; /* [T, N], rows y_stride apart, or NULL; may be y */
    void *y;         /* [T, N], rows y_stride apart */
    int64_t x_stride, y_stride;
    int32_t n_tokens, n_outputs, n_inputs;
    int32_t outputs_before, outputs_after;
    enum kernel_dtype dtype;
    bool deterministic, by_inputs;
};

/* y = a + b; y may be either. n a multiple of 8. */
struct call_add {
    const void *a, *b;
    void *y;
    int64_t n;
    enum kernel_dtype dtype;
};

/* y = silu(gate) * up, where a row of gate_up holds the F gates, then the F ups.
 * y may be gate_up itself with y_stride = 2 F. F and y_stride multiples of 8. */
struct call_swiglu {
    const void *gate_up; /* [T, 2 F] */
    void *y;             /* [T, F], rows y_stride apart */
    int64_t y_stride;
    int32_t n_tokens, n_hidden;
    enum kernel_dtype dtype;
};

/* y = silu(x g') * (x u'), where w holds the F gate rows g, then the F up rows u. Both products
 * stay in single precision until y is rounded. C, F and the strides multiples of 8. y is not x. */
struct call_gate_up {
    const void *x; /* [T, C], rows x_stride apart */
    const void *w; /* [2 F, C] */
    void *y;       /* [T, F], rows y_stride apart */
    int64_t x_stride, y_stride;
    int32_t n_tokens, n_channels, n_hidden;
    enum kernel_dtype dtype;
};

/* Splits the rows of the QKV product, adds the bias, normalises each query and key head
 * (RMS over D, when the weights are given), rotates the first R channels of query and key by the
 * token's position (pairs i, i + R/2; R is rotary_size, or D where that is 0) and writes each part
 * where attention reads it. Every output may lie inside
 * qkv itself at its own place. D is 64 or 128, R a
 * multiple of 16. H or G may be 0, for keys and values or queries
 * that were projected apart; what is missing has no rows in qkv and bias either. */
struct call_rope {
    const void *qkv;          /* [T, (H + 2 G) D] */
    const void *bias;         /* [(H + 2 G) D] or NULL */
    const void *q_norm;       /* [D] or NULL */
    const void *k_norm;       /* [D] or NULL */
    const float *cos_sin;     /* [positions, R/2, 2] */
    const int32_t *positions; /* [T] */
    const int32_t *kv_rows;   /* [T], the row of k and v token t goes to, -1: none; NULL: row t */
    void *q;                  /* [T, H, D], tokens q_stride apart */
    void *k, *v;              /* [., G, D], rows kv_stride apart */
    int64_t q_stride, kv_stride;
    int32_t n_tokens, n_heads, n_kv_heads, head_size, rotary_size;
    float epsilon;
    enum kernel_dtype dtype;
};

/* Attention without a mask inside each request: y = softmax(q k' / sqrt(D)) v. D = 128. With
 * n_queries > 0, q and y are the rows of the tokens [first_query, first_query + n_queries) alone,
 * whosever they are, and nothing else is attended for. */
struct call_dense_attention {
    const void *q;        /* [T or n_queries, H, D], tokens q_stride apart */
    const void *k, *v;    /* [T, G, D], tokens kv_stride apart */
    void *y;              /* as q, tokens y_stride apart; may be q when its stride is equal */
    const int32_t *start; /* [B + 1] */
    int64_t q_stride, kv_stride, y_stride;
    int32_t n_requests, n_tokens, n_heads, n_kv_heads, head_size;
    int32_t max_tokens; /* the longest request, known to the host */
    int32_t first_query, n_queries;
    enum kernel_dtype dtype;
};

/* A layer's cached rows of request r lie in the pool from element cache_start[r], a multiple of 8:
 * keys [G, kept[r], D], then values [G, kept[r], D]. */

/* Copies keys and values of a batch's tokens to the caches of their requests: those of token t to
 * row kv_rows[t], nowhere where that is -1. */
struct call_keep {
    const void *k, *v;          /* [T, G, D], tokens kv_stride apart */
    const int32_t *start;       /* [B + 1] */
    const int32_t *owner;       /* [T], the request of each token */
    const int32_t *kv_rows;     /* [T] */
    const int32_t *kept;        /* [B] */
    const int64_t *cache_start; /* [B] */
    void *cache;                /* the pool */
    int64_t kv_stride;
    int32_t n_requests, n_tokens, n_kv_heads, head_size;
    enum kernel_dtype dtype;
};

/* Attention of each request's active block over its cached rows, then over the block itself, unless
 * its own rows are among the cached ones (call_keep wrote them). D = 128. */
struct call_block_attention {
    const void *q;              /* [T, H, D], tokens q_stride apart */
    const void *k, *v;          /* [T, G, D], the block's own, tokens kv_stride apart */
    const void *cache;          /* the pool */
    void *y;                    /* [T, H, D], tokens y_stride apart */
    const int32_t *start;       /* [B + 1] */
    const int32_t *kept;        /* [B] */
    const int64_t *cache_start; /* [B] */
    void *scratch;              /* block_attention_scratch_bytes, zeroed once before first use */
    int64_t q_stride, kv_stride, y_stride;
    int32_t n_requests, n_heads, n_kv_heads, head_size;
    int32_t max_queries; /* the longest block, known to the host */
    bool own_cached;     /* cached rows are all there is to attend to, at least one; k and v are not
                            read */
    bool invariant;
    enum kernel_dtype dtype;
};

/* Chooses and packs the context that a block keeps, as the code released with dLLM-Serve does:
 * candidate tokens are the request's tokens outside its active block; the query of a head is the
 * mean over the block; score = query . key / sqrt(D), the largest over a key-value head's group;
 * then the largest of three neighbours (the block is a hole the neighbourhood crosses); the kept[r]
 * best candidates of each key-value head, the earlier token on a tie, are copied in token order.
 * uniform: all heads keep the same tokens, as Sparse-dLLM does: the score is the mean over all
 * query heads. A request's scores and indices are [G, candidates] from element G score_start[r];
 * uniform scores are in the first of the G rows. Heads that several ranks divide choose together
 * when the ranks add up their uniform scores in between: KERNEL_SELECT_SCORES, their sum, then
 * KERNEL_SELECT_SCORED. */
enum kernel_select_part {
    KERNEL_SELECT_ALL,
    KERNEL_SELECT_SCORES, /* nothing but the scores before pooling */
    KERNEL_SELECT_SCORED, /* what comes after them */
};

struct call_select {
    const void *q;              /* [T, H, D], tokens q_stride apart */
    const void *k, *v;          /* [T, G, D], tokens kv_stride apart */
    const int32_t *start;       /* [B + 1] */
    const int32_t *block_start; /* [B], the block's first token, counted within the request */
    const int32_t *block_end;   /* [B], one past its last; end > start */
    const int32_t *kept;        /* [B], 1 .. candidates */
    const int64_t *cache_start; /* [B] */
    const int64_t *score_start; /* [B], candidates of the requests before */
    void *cache;                /* the pool */
    float *scores;              /* scratch: the scores before pooling */
    int32_t *indices;           /* scratch: kept tokens within the request */
    int64_t q_stride, kv_stride;
    int32_t n_requests, n_heads, n_kv_heads, head_size;
    int32_t max_candidates; /* at most 65536 */
    bool uniform;
    enum kernel_select_part part;
    enum kernel_dtype dtype;
};

/* argmax over the vocabulary of x w', the lowest token on a tie, and its softmax probability;
 * logits are never materialised. margin and entropy, both or neither: that probability less the
 * second token's, and the sum of p log p over the vocabulary (0 log 0 = 0). rounded: each logit is
 * rounded to bf16 first, as a model that materialises bf16 logits does. Where a logit is no number
 * the probability and both statistics are NaN. C a multiple of 8. */
struct call_head {
    const void *x;           /* [N, C] */
    const void *w;           /* [V, C] */
    int32_t *token;          /* [N] */
    float *confidence;       /* [N] */
    float *margin, *entropy; /* [N] or NULL */
    float *logit;            /* [N], the token's, or NULL */
    void *scratch;           /* head_scratch_bytes */
    int32_t n_rows, n_channels, n_vocab;
    bool rounded, invariant;
    enum kernel_dtype dtype;
};

/* The same from logits that exist, [N, V]. Where V is no multiple of 8 the last bits of a
 * confidence may change with the row's place in the call. */
struct call_sample {
    const void *logits;
    int32_t *token;
    float *confidence;
    float *margin, *entropy, *logit;
    int32_t n_rows, n_vocab;
    enum kernel_dtype dtype;
};

/* Credit (inclusionAI/dInfer, CreditThresholdParallelDecoder): what tokens have earned at a masked
 * position shrinks by beta, the most likely one earns its probability to the power of gamma, and
 * the logit of each grows by alpha log(1 + earned); token and confidence become those of these
 * logits. Both are a sample's, of the same logits. The tokens of a position that have earned
 * anything are a list, as many as passes it has been in, so that no matrix of positions and tokens
 * is kept: row i of the call has list lists[i], of 2 n_slots + 2 words: how many entries, a word
 * unread, their tokens, what these have earned (single precision). A list that is full forgets the
 * entry that has earned least. lists[i] < 0, or a position that holds no mask: nothing happens. */
struct call_credit {
    const void *logits;      /* [N, V] */
    int32_t *token;          /* [N] */
    float *confidence;       /* [N] */
    int32_t *state;          /* all lists; all 0 before a position's first pass */
    const int32_t *lists;    /* [N] */
    const int64_t *position; /* [N], as call_decode's; NULL with canvas NULL */
    const int32_t *canvas;   /* or NULL: every row is masked */
    int32_t n_rows, n_vocab, n_slots, mask_token;
    float alpha, beta, gamma;
    enum kernel_dtype dtype;
};

/* A token of each row, drawn by the row's random number (rules/draw.h), or the most likely one
 * where none are drawn; with its probability, and margin and entropy of the whole distribution that
 * this is of. All four are a sample's of the same logits before; a row whose confidence is no
 * number stays as it is. V at most DRAW_MAX_VOCAB. */
struct call_draw {
    const void *logits;      /* [N, V] */
    int32_t *token;          /* [N] */
    float *confidence;       /* [N] */
    float *margin, *entropy; /* [N] or NULL */
    const uint64_t *bits;    /* [N], random; read where tokens are drawn */
    struct draw_rule by;
    int32_t n_rows, n_vocab;
    enum kernel_dtype dtype;
};

/* Rows that rules other than take and threshold are decided over, at most, of one request. */
enum { DECODE_MAX_RANKED = 4096 };

/* Which rows of each request are committed: of the rows first_row[r] .. + n_rows[r] those are
 * candidates whose position in the canvas still holds the mask token. DECODE_COUNT: the take[r]
 * that rank first (all, when there are fewer). The rules are those of rules/decide.h. Without a
 * canvas every row is a candidate and nothing is written but `committed`. A request one of whose
 * candidates has a confidence or a rank that is no number commits nothing, and its n_committed is
 * DECODE_NOT_NUMBERS. */
struct call_decode {
    const float *confidence;           /* [N] */
    const float *margin, *entropy;     /* [N]; read where they rank */
    const int32_t *token;              /* [N] */
    const int32_t *first_row, *n_rows; /* [B] */
    const int32_t *take;               /* [B]; of DECODE_COUNT */
    const float *threshold;            /* [B]; of rules that name it */
    const uint64_t *key;               /* [B]; of RANK_DRAW and of a temperature */
    const int64_t *canvas_start;       /* [B], where in canvas a request's lies; the same */
    const int64_t *position; /* [N], where in canvas a row's token goes, ascending in a request
                                where runs count; NULL with canvas NULL: the row's number */
    int32_t *canvas;         /* token ids, written at committed positions, or NULL */
    uint8_t *committed;      /* [N], 1 or 0; written for the rows of requests alone */
    int32_t *n_committed;    /* [B] or NULL */
    int32_t n_requests;
    int32_t max_rows; /* the most rows of a request, known to the host; at most 65536 */
    int32_t mask_token;
    enum decode_kind rule;
    enum decode_rank rank;
    float slack, low, factor, bound;
    float temperature; /* of DECODE_COUNT; above 0 rows rank by keyed_noised (rules/keyed.h), by the
                          request's key and the position in its canvas */
};
enum { DECODE_NOT_NUMBERS = -1 };

/* y[i] = centre + spread (2 u(key, at(i)) - 1), computed in double and rounded twice, to single
 * precision and to the dtype; u is uniform_keyed (rules/keyed.h), the same bits on every device.
 * at(i) is first + i; where a run is given y is a part of a wider matrix, run of every stride
 * elements. */
struct call_random {
    void *y; /* [n] */
    uint64_t key;
    int64_t first, n;
    double centre, spread;
    enum kernel_dtype dtype;
    int64_t run, stride; /* run 0: all of it lies together */
};

#endif
