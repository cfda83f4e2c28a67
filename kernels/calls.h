/* The arguments of every kernel. A launcher (kernels.h) and its plain-C reference implementation
 * (ref.h) take the same struct: device pointers for the first, host pointers for the second. Shapes
 * use one alphabet: B requests, T tokens, C channels, H query heads, G key-value heads (H a
 * multiple of G), D head size, V vocabulary, N logit rows. Arrays are row-major and contiguous
 * unless a stride, counted in elements, is given. Ragged batches list where each request's rows
 * start: start[B + 1], with start[B] the number of rows. invariant, where a call has it, is for the
 * launcher alone: a row of y is the same bits whatever else is in the call, at some cost in speed.
 * Calls without it, products apart, are always so. */
#ifndef UNMASK_KERNELS_CALLS_H
#define UNMASK_KERNELS_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/rules/decide.h"
#include "kernels/rules/draw.h"

/* The element type of every void pointer in a call. The GPU takes KERNEL_BF16 only, but for random
 * numbers and for weights that are quantised. */
enum kernel_dtype { KERNEL_BF16, KERNEL_F32 };

/* The sizes D of a head for which the GPU's kernels are compiled: HEAD(D) of each. The CPU takes
 * any. Rotation and attention to pages take wider ones, too. */
#define HEAD_SIZES(HEAD)      HEAD(64) HEAD(96) HEAD(128) HEAD(256)
#define WIDE_HEAD_SIZES(HEAD) HEAD_SIZES(HEAD) HEAD(512)

static inline bool is_head_size(int64_t size) {
#define HEAD(D) size == D ||
    return HEAD_SIZES(HEAD) false;
#undef HEAD
}

static inline bool is_wide_head_size(int64_t size) {
#define HEAD(D) size == D ||
    return WIDE_HEAD_SIZES(HEAD) false;
#undef HEAD
}

/* Of a product whose weights, or inputs as well, are in fp8 (kernels/fp8.h); zeros: neither is. w
 * is [N, K] codes; each w_rows x w_columns of them share a scale, counted from the first row of the
 * matrix, which the call's may be some rows of. x, where it is in fp8, has rows of K codes and
 * their scales, one for each w_columns of them (fp8_row_bytes), and its strides count bytes. Values
 * are those of codes times scales. The GPU takes w_columns = 128 or K, and inputs in fp8 from
 * compute capability 8.9 on, but for experts' from any. */
struct call_fp8 {
    const float *w_scale; /* [ceil(rows / w_rows), ceil(K / w_columns)], of every expert in turn */
    int32_t w_rows, w_columns;
    bool x_too;
};

/* y[i] = x[i] as a row of fp8, `group` numbers to a scale. K a multiple of 4, on the GPU
 * of 8, as are shorter groups and x_stride there. */
struct call_quantise {
    const void *x; /* [T, K], rows x_stride apart */
    void *y;       /* [T, fp8_row_bytes(K, group)] bytes, one after the other */
    int64_t x_stride;
    int32_t n_rows, n_channels, group;
    enum kernel_dtype dtype;
};

/* codes and scales = x, a matrix of weights, w_rows x w_columns of its numbers to a scale: the
 * largest of those becomes 448. The same bits on every device, but for a NaN's sign. */
struct call_quantise_weights {
    const void *x;  /* [R, K] */
    uint8_t *codes; /* [R, K] */
    float *scales;  /* [ceil(R / w_rows), ceil(K / w_columns)] */
    int32_t n_rows, n_channels, w_rows, w_columns;
    enum kernel_dtype dtype; /* of x; either, on the GPU, too */
};

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
 * y may be x. C a multiple of 8, at most 32768. codes: what y holds or, where it is NULL, would
 * hold, as rows of fp8, `group` numbers to a scale (on the GPU 128, or all of a row). */
struct call_norm {
    const void *x;       /* [T, C] */
    const void *weight;  /* [C] */
    void *residual;      /* [T, C] or NULL */
    const int32_t *rows; /* [n_rows] or NULL */
    void *y;             /* [n_rows, C], or NULL next to codes */
    int32_t n_rows, n_channels;
    float epsilon;
    bool invariant;
    enum kernel_dtype dtype;
    void *codes; /* [n_rows, fp8_row_bytes(C, group)] bytes, or NULL */
    int32_t group;
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
    struct call_fp8 fp8; /* not by_inputs */
    bool deterministic, by_inputs;
};

/* y = a + b; y may be either. n a multiple of 8. */
struct call_add {
    const void *a, *b;
    void *y;
    int64_t n;
    enum kernel_dtype dtype;
};

/* y = silu(gate) * up, where a row of gate_up holds the F gates, then the F ups; gelu: by tanh,
 * gelu(gate) * up. y may be gate_up itself with y_stride = 2 F. F and y_stride multiples of 8. */
struct call_swiglu {
    const void *gate_up; /* [T, 2 F] */
    void *y;             /* [T, F], rows y_stride apart */
    int64_t y_stride;
    int32_t n_tokens, n_hidden;
    enum kernel_dtype dtype;
    bool gelu;
};

/* y = silu(x g') * (x u'), where w holds the F gate rows g, then the F up rows u. Both products
 * stay in single precision until y is rounded. C, F and the strides multiples of 8. y is not x.
 * gelu: as call_swiglu; the device's kernels take it apart, in bf16 alone. codes: what y would hold
 * as rows of fp8, FP8_HEAD_GROUP numbers to a scale; y is room then, and may be left as it is. On
 * the GPU only where fp8 says x_too. */
struct call_gate_up {
    const void *x; /* [T, C], rows x_stride apart */
    const void *w; /* [2 F, C] */
    void *y;       /* [T, F], rows y_stride apart */
    int64_t x_stride, y_stride;
    int32_t n_tokens, n_channels, n_hidden;
    enum kernel_dtype dtype;
    struct call_fp8 fp8;
    bool gelu;
    void *codes; /* [T, fp8_row_bytes(F, FP8_HEAD_GROUP)] bytes, or NULL */
};

/* Splits the rows of the QKV product, adds the bias, normalises each query and key head
 * (RMS over D, when the weights are given), rotates the first R channels of query and key by the
 * token's position (pairs i, i + R/2; R is rotary_size, or D where that is 0) and writes each part
 * where attention reads it. Every output may lie inside
 * qkv itself at its own place. D is one of
 * WIDE_HEAD_SIZES (in fp8 of HEAD_SIZES), R a multiple of 16. H or G may be 0, for keys and values
 * or queries that were projected apart; what is missing has no rows in qkv and bias either.
 * values_are_keys: a value is its key before norm and rotation, its own place in qkv is not read,
 * and k is not in qkv. norm_values: values are normalised, too, without weights. On the GPU neither
 * is with kv_fp8. */
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
    bool kv_fp8; /* k and v are rows of pools in fp8 (fp8_paged of kernels/fp8.h) */
    bool values_are_keys, norm_values;
};

/* Attention without a mask inside each request: y = softmax(q k' / sqrt(D)) v. With
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
 * keys [G, kept[r], D], then values [G, kept[r], D]. Where a call says that cached rows are in fp8,
 * bytes are the elements of the pool, and scales lie after all codes (fp8_packed of
 * kernels/fp8.h). */

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
    bool cache_fp8;
    enum kernel_dtype dtype;
};

/* Attention of each request's active block over its cached rows, then over the block itself, unless
 * its own rows are among the cached ones (call_keep wrote them). */
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
    bool cache_fp8, invariant;
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
    bool uniform, cache_fp8;
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
    struct call_fp8 fp8;
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
 * entry that has earned least. lists[i] < 0, or a position that holds no mask: nothing happens.
 * Ranks that divide a vocabulary do it in two parts: KERNEL_CREDIT_EARN changes the lists, which
 * each rank has, and reads the logits of those of their tokens that are its own, 0 for all other
 * entries; once all ranks' are added up KERNEL_CREDIT_DECIDE does the rest. */
enum kernel_credit_part { KERNEL_CREDIT_ALL, KERNEL_CREDIT_EARN, KERNEL_CREDIT_DECIDE };

struct call_credit {
    const void *logits;      /* [N, V]; not of KERNEL_CREDIT_DECIDE */
    int32_t *token;          /* [N] */
    float *confidence;       /* [N] */
    int32_t *state;          /* all lists; all 0 before a position's first pass */
    const int32_t *lists;    /* [N] */
    const int64_t *position; /* [N], as call_decode's; NULL with canvas NULL */
    const int32_t *canvas;   /* or NULL: every row is masked */
    float *entries;          /* [N, n_slots], logits of the lists' tokens; of the parts */
    enum kernel_credit_part part;
    int32_t first_token; /* the logits are those of tokens from there on: a rank's */
    int32_t n_rows, n_vocab, n_slots, mask_token;
    float alpha, beta, gamma;
    enum kernel_dtype dtype;
};

/* A token of each row, drawn by the row's rule and random number (rules/draw.h), or the most likely
 * one where the rule draws none; with its probability, and margin and entropy of the whole
 * distribution that this is of. All four are a sample's of the same logits before; a row whose
 * confidence is no number stays as it is, and so does one whose rule asks for nothing else
 * (draw_is_idle). V at most DRAW_MAX_VOCAB. */
struct call_draw {
    const void *logits;         /* [N, V] */
    int32_t *token;             /* [N] */
    float *confidence;          /* [N] */
    float *margin, *entropy;    /* [N] or NULL */
    const uint64_t *bits;       /* [N], random; read where tokens are drawn */
    const struct draw_rule *by; /* [N] */
    int32_t n_rows, n_vocab;
    enum kernel_dtype dtype;
};

/* The same by G ranks, which divide a vocabulary of G V tokens in order, in parts between which
 * they gather what each has sent (rules/draw.h, draw_part_of): the bits of one call of the whole
 * rows. Token, confidence and statistics are those of the whole vocabulary, the same on all ranks,
 * and so is what the last part makes of them. */
struct call_draw_part {
    struct call_draw of;      /* logits: the rank's own */
    const float *logit;       /* [N], of the most likely token */
    struct draw_state *state; /* [N], kept from one part to the next */
    const void *received;     /* [G, N], what ranks sent after the part before, if there is one */
    void *sent;               /* [N]; but for the last part */
    int32_t part, rank, n_ranks;
    bool cuts; /* there are searches for what top_k and top_p keep */
};

/* Against stutter: of rows first_row .. + n_rows the logit of the token that stands before the
 * row's position falls by `penalty`, where the row before is that position's. What is masked counts
 * as a token. `logits` begins with row first_row. */
struct call_penalise {
    void *logits;            /* [n_rows, V] */
    const int64_t *position; /* [first_row + n_rows], as call_decode's */
    const int32_t *canvas;
    float penalty;
    int32_t first_row, n_rows, n_vocab;
    int32_t first_token; /* the logits are those of tokens from there on: a rank's */
    enum kernel_dtype dtype;
};

/* Rows that rules other than take and threshold are decided over, at most, of one request. */
enum { DECODE_MAX_RANKED = 4096 };

/* Which rows of each request are committed: of the rows first_row[r] .. + n_rows[r] those are
 * candidates whose position in the canvas still holds the mask token; those whose own token is the
 * mask, too, rank after all others. DECODE_COUNT: the take[r] that rank first (all, when there are
 * fewer). The rules are those of rules/decide.h. Without a canvas every row is a candidate,
 * whatever its token, and nothing is written but `committed`. A request one of whose candidates has
 * a confidence or a rank that is no number commits nothing, and its n_committed is
 * DECODE_NOT_NUMBERS. DECODE_JOINT, which has a canvas, fills at least take[r], and also decides on
 * rows that are no candidates: where one of those has a confidence that is no number it is the
 * same.
 */
struct call_decode {
    const float *confidence;           /* [N] */
    const float *margin, *entropy;     /* [N]; read where they rank */
    const int32_t *token;              /* [N] */
    const int32_t *first_row, *n_rows; /* [B] */
    const int32_t *take;               /* [B]; of DECODE_COUNT, and of DECODE_JOINT or NULL */
    const float *threshold;            /* [B]; of rules that name it */
    const uint64_t *key;               /* [B]; of RANK_DRAW and of a temperature */
    const int64_t *canvas_start;       /* [B], where in canvas a request's lies; the same */
    const int64_t *position; /* [N], where in canvas a row's token goes, ascending in a request
                                where runs count; NULL with canvas NULL: the row's number */
    int32_t *canvas;         /* token ids, written at committed positions, or NULL */
    uint8_t *committed;      /* [N], enum decide_outcome; written for the rows of requests alone */
    int32_t *n_committed;    /* [B] or NULL; those revised are not counted */
    int32_t n_requests;
    int32_t max_rows; /* the most rows of a request, known to the host; at most 65536 */
    int32_t mask_token;
    enum decode_kind rule;
    enum decode_rank rank;
    float slack, low, factor, bound;
    float edit;        /* of DECODE_JOINT */
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

/* The arguments of block diffusion's own kernels: attention over exact keys and values in pages,
 * and what FOCUS needs to go on with few tokens after a layer's projections (focus.txt section 4):
 * their importance, and the rows that stay. A
 * token's position counts from its request's first token; the row of its keys and values among the
 * request's rows is the same number. */

/* Row i of request r is row pages[r][i / page_rows] page_rows + i % page_rows of the pool. Query t
 * attends to rows 0 .. extent[t] - 1 of its request, which are at least one and, within a request,
 * never fewer than the query before attends to. Prefill, decoding and a few kept tokens of a block
 * differ in nothing else. Where `before` is given, query t attends to rows 0 .. before[t] - 1 and
 * to row extent[t] - 1 alone of those after them: a mask to what is drafted before it, and to
 * itself. before[t] is from 0 to extent[t] - 1; of a query that leaves nothing out the latter. A
 * request's own rows are written before (call_rope with kv_rows); rows that no query attends to may
 * hold anything. page_rows is a power of two, 4 to 256. y is not q.
 * local_window > 0: the query at position p attends to no row before p - local_window + 1; with it,
 * or with heads wider than HEAD_SIZES, k and v are in bf16, scratch is not read, and nothing is
 * `before`.
 */
struct call_paged_attention {
    const void *q;         /* [T, H, D], tokens q_stride apart */
    const void *k, *v;     /* a layer's rows of the pool, [., G, D], rows kv_stride apart */
    void *y;               /* [T, H, D], tokens y_stride apart */
    const int32_t *start;  /* [B + 1] */
    const int32_t *extent; /* [T] */
    const int32_t *before; /* [T]; NULL: no query leaves rows out. Not with cache_fp8 */
    const int32_t *pages;  /* [B, max_pages] */
    void *scratch;         /* block_attention_scratch_bytes, zeroed once before first use */
    int64_t q_stride, kv_stride, y_stride;
    int32_t n_requests, n_tokens, n_heads, n_kv_heads, head_size; /* n_tokens: at least start[B] */
    int32_t max_pages, page_rows;
    int32_t max_queries, max_extent; /* at least the largest, known to the host */
    bool cache_fp8;                  /* k and v */
    bool invariant;
    enum kernel_dtype dtype;
    int32_t local_window;     /* 0: none */
    const int32_t *positions; /* [T] with a window */
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

/* What dLLM-Cache keeps of a request lies in the pool from cache_start[r] on like any other cached
 * rows, all positions of its canvas in order (kept[r] of them), and after them features: rows of C
 * channels, from element kept[r] before on, where `before` is what a row has in front of them.
 *
 * Of a request's positions from run_first[r] on the values are projected, row value_start[r] +
 * i of position run_first[r] + i. Of the first compared_start[r + 1] - compared_start[r] of them
 * those after the first given[r] are compared; its queries are the first given[r], and as many of
 * those that are compared as make start[r + 1] - start[r]. */

/* Fresh values in place of the cached ones, and by how much they differ: sums[i] are those of
 * kernels/rules/change.h over all channels of the i-th compared row, zeros of a row that is given.
 */
struct call_similarity {
    const void *values;            /* [., G, D] */
    const void *bias;              /* [G, D] or NULL: what is added to values first */
    const int32_t *value_start;    /* [B] */
    const int32_t *compared_start; /* [B + 1] */
    const int32_t *run_first;      /* [B] */
    const int32_t *given;          /* [B] */
    const int32_t *kept;           /* [B] */
    const int64_t *cache_start;    /* [B] */
    void *cache;                   /* the pool */
    float *sums;                   /* [N, CHANGE_SUMS] */
    int32_t n_requests, n_kv_heads, head_size;
    int32_t max_compared; /* the most of a request, known to the host */
    enum kernel_dtype dtype;
};

/* Which rows are a request's queries: those that are given, then in order those that are compared
 * and changed most, the earlier one on a tie. At most 65536 are compared. Row i of the output: the
 * position, its row of the values, its row of the stream of all positions (stream_start[r] + the
 * position). */
struct call_pick {
    float *sums;                                   /* [N, CHANGE_SUMS]; not kept */
    const int32_t *start;                          /* [B + 1] */
    const int32_t *value_start;                    /* [B] */
    const int32_t *compared_start;                 /* [B + 1] */
    const int32_t *stream_start;                   /* [B] */
    const int32_t *run_first;                      /* [B] */
    const int32_t *given;                          /* [B] */
    int32_t *positions, *value_rows, *stream_rows; /* [T] each */
    int32_t n_requests;
    int32_t max_compared, max_queries; /* the most of a request, known to the host */
};

/* Row t of x becomes the feature of position rows[t] of request owner[t]. C and before multiples
 * of 8. */
struct call_keep_feature {
    const void *x;              /* [T, C] */
    const int32_t *owner;       /* [T] */
    const int32_t *rows;        /* [T] */
    const int32_t *kept;        /* [B] */
    const int64_t *cache_start; /* [B] */
    void *cache;                /* the pool */
    int64_t before;
    int32_t n_tokens, n_channels;
    enum kernel_dtype dtype;
};

/* y[t] += the feature of position rows[t] of request owner[t]; the same. */
struct call_add_feature {
    const void *cache;
    const int32_t *owner;
    const int32_t *rows;
    const int32_t *kept;
    const int64_t *cache_start;
    void *y; /* [T, C] */
    int64_t before;
    int32_t n_tokens, n_channels;
    enum kernel_dtype dtype;
};

/* SparseD's patterns. A request's tokens from its first one on are blocks of block_tokens, n of
 * them, the last of which may be short, as blocks of queries and as blocks of keys. A layer's
 * pattern of request r lies in the pool from element cache_start[r], a multiple of 8, on: words of
 * 32 bits, [H, n, n / 32 rounded up], bit b % 32 of word b / 32 of a head and a block of queries
 * says whether these attend to block b of the keys; at least one is. n is at most
 * PATTERN_MAX_BLOCKS. */
enum { PATTERN_MAX_BLOCKS = 4096 };

/* Chooses them. The share of a block of keys is the sum over its keys and over a block's queries of
 * softmax(scale q k'); of all blocks the keep[r] with the largest shares are kept, where they come
 * before block rest[r], and of those from there on the keep_rest[r] with the largest shares when
 * the softmax is over their keys alone. The earlier block on a tie. */
struct call_pattern {
    const void *q;              /* [T, H, D], tokens q_stride apart */
    const void *k;              /* [T, G, D], tokens kv_stride apart */
    const int32_t *start;       /* [B + 1] */
    const int32_t *rest;        /* [B], below n */
    const int32_t *keep;        /* [B], 1 .. n */
    const int32_t *keep_rest;   /* [B], 1 .. n - rest */
    const int64_t *cache_start; /* [B] */
    void *cache;                /* the pool */
    int64_t q_stride, kv_stride;
    int32_t n_requests, n_heads, n_kv_heads, head_size, block_tokens;
    int32_t max_tokens; /* the longest request, known to the host */
    float scale;
    enum kernel_dtype dtype;
};

/* y = softmax(q k' / sqrt(D)) v over the keys in the blocks that a query's block attends to. y is
 * not q. */
struct call_pattern_attention {
    const void *q;              /* [T, H, D], tokens q_stride apart */
    const void *k, *v;          /* [T, G, D], tokens kv_stride apart */
    const void *cache;          /* the pool */
    void *y;                    /* [T, H, D], tokens y_stride apart */
    const int32_t *start;       /* [B + 1] */
    const int64_t *cache_start; /* [B] */
    int64_t q_stride, kv_stride, y_stride;
    int32_t n_requests, n_tokens, n_heads, n_kv_heads, head_size, block_tokens;
    int32_t max_tokens; /* the longest request, known to the host */
    enum kernel_dtype dtype;
};

/* The arguments of a mixture of experts: which experts each token goes to, its tokens in the order
 * of their experts, and the experts' two products, over all experts in one call. E experts, A of
 * them active per token, F an expert's width. A pair is a token and one of its active experts: pair
 * t A + a is token t's expert a. */

/* E is at most MOE_MAX_EXPERTS, A at most MOE_MAX_ACTIVE, groups at most MOE_MAX_GROUPS. */
enum { MOE_MAX_EXPERTS = 256, MOE_MAX_ACTIVE = 16, MOE_MAX_GROUPS = 32 };

enum kernel_router {
    KERNEL_ROUTER_SOFTMAX, /* LLaDA-MoE: the A largest softmax probabilities over all experts */
    KERNEL_ROUTER_SIGMOID, /* LLaDA2.0: sigmoid scores, chosen within the best groups */
};

/* Which experts a block's tokens choose among. */
enum kernel_block_routing {
    KERNEL_BLOCKS_NONE,    /* all */
    KERNEL_BLOCKS_LARGEST, /* LLaDA2.2: those of the largest scores of any of its tokens */
    KERNEL_BLOCKS_SHARE,   /* dMoE: those that its tokens' own choices score highest */
};

/* From router logits to experts and their weights; computed in single precision. E is a multiple of
 * the groups, and the active groups have A experts or more. The same experts on any device.
 * Softmax: the choice goes by the logits; weights are the probabilities, divided by their sum when
 * `normalised`. Bias and groups are not read.
 * Sigmoid: the choice goes by score + bias: a group's rank is the sum of its two largest, the
 * n_groups_active best groups stay, and of these the A largest; weights are the scores alone (no
 * bias), divided by their sum (plus 1e-20) when `normalised`.
 * All weights are multiplied by `scale`. In the order of the choice, the larger one first, the
 * lower expert, or group, on a tie; a NaN is the last choice.
 * By blocks, with sigmoid alone: the tokens of a request whose positions lie in one block of
 * block_tokens choose among experts that the block admits. An expert's vote is its largest score +
 * bias (largest), or the sum of it over those tokens that have it among their A largest, groups
 * aside, added in the order of the tokens (share; a NaN adds nothing). Experts are admitted in the
 * order of their votes: block_experts of them (largest), or until what they add up to exceeds
 * block_share of what all do, that one included, and block_experts at least (share). A group's rank
 * then counts its admitted experts; where the groups that stay have fewer than A, the others that
 * are admitted follow.
 */
struct call_moe_route {
    const void *logits; /* [T, E], rows logit_stride apart */
    const float *bias;  /* [E] or NULL */
    int32_t *expert;    /* [T, A] */
    float *weight;      /* [T, A] */
    int64_t logit_stride;
    int32_t n_tokens, n_experts, n_active;
    int32_t n_groups, n_groups_active; /* 1 and 1 where there are none */
    bool normalised;
    float scale;
    enum kernel_router router;
    enum kernel_dtype dtype;
    /* Read by blocks: */
    enum kernel_block_routing blocks;
    const int32_t *position;          /* [T], ascending within a request */
    const int32_t *start;             /* [B + 1], requests' first tokens */
    int32_t first_token;              /* of the T, among those that start counts */
    int32_t n_requests, block_tokens; /* B */
    int32_t block_experts;            /* A to E */
    float block_share;
};

/* The pairs in the order of their experts, of one expert in the order of their tokens: a counting
 * sort, the same on any device. Pairs whose expert is outside [first_expert, first_expert + E) are
 * another rank's: place -1, and not counted. */
struct call_moe_sort {
    const int32_t *expert; /* [T, A] */
    int32_t *start; /* [E + 1], where each expert's pairs begin; start[E]: how many there are */
    int32_t *order; /* [T A], the pair at each place */
    int32_t *place; /* [T A], the place of each pair, or -1 */
    int32_t n_tokens, n_active, n_experts, first_expert;
};

/* y[i] = silu(x[t] g') * (x[t] u') for the pair order[i] of token t = order[i] / A, where w holds
 * for each expert its F gate rows g, then its F up rows u. C and F multiples of 8. y is not x. */
struct call_moe_gate_up {
    const void *x;        /* [T, C], rows x_stride apart */
    const void *w;        /* [E, 2 F, C] */
    const int32_t *start; /* [E + 1] */
    const int32_t *order; /* [T A] */
    void *y;              /* [T A, F], by place */
    int64_t x_stride;
    int32_t n_tokens, n_active, n_experts, n_channels, n_hidden;
    enum kernel_dtype dtype;
    struct call_fp8 fp8;
    bool gelu; /* as call_swiglu; not in fp8 on the GPU */
};

/* y[i] = x[i] w[e]' for place i of expert e. */
struct call_moe_down {
    const void *x;        /* [T A, F], by place */
    const void *w;        /* [E, C, F] */
    const int32_t *start; /* [E + 1] */
    void *y;              /* [T A, C], by place */
    int32_t n_tokens, n_active, n_experts, n_channels, n_hidden;
    enum kernel_dtype dtype;
    struct call_fp8 fp8;
};

/* y[t] = add[t] + sum over a of weight[t, a] x[place[t, a]], summed in single precision in the
 * order of a, places of -1 left out, and rounded once. */
struct call_moe_combine {
    const void *x;        /* [T A, C], by place */
    const float *weight;  /* [T, A] */
    const int32_t *place; /* [T, A] */
    const void *add;      /* [T, C] or NULL; may be y */
    void *y;              /* [T, C] */
    int32_t n_tokens, n_active, n_channels;
    enum kernel_dtype dtype;
};

/* The arguments of what ranks do together: devices that hold one model between them, each of which
 * makes the same calls in the same order (device.h's ranks_open). */

enum { CALL_MAX_RANKS = 8 };

/* How the GPU goes about a sum; the CPU has one way. */
enum all_reduce_way {
    ALL_REDUCE_CHOSEN, /* by its size */
    ALL_REDUCE_OWN,    /* through each other's memory, in pieces where it is large */
    ALL_REDUCE_NCCL,
};

/* y = the sum of all ranks' x, added up in the order of the ranks in single precision and rounded
 * once, so that all ranks have the same bits (NCCL, which takes over beyond 8 MiB where it is
 * there, adds in an order of its own, which is everybody's too). y may be x. n a multiple of 8. */
struct call_all_reduce {
    const void *x; /* [n] */
    void *y;       /* [n] */
    int64_t n;
    enum all_reduce_way way;
    enum kernel_dtype dtype;
};

/* y[g] = x of rank g. bytes a multiple of 4, the same on all ranks. */
struct call_all_gather {
    const void *x; /* [bytes] */
    void *y;       /* [ranks, bytes] */
    int64_t bytes;
};

/* One candidate a row out of those of G ranks, which divide a vocabulary of G V tokens in order:
 * the largest logit's token, the lower rank's on a tie, and its softmax probability over all of
 * them. Of each rank: tokens of its own part [N], their probabilities within the part [N], where
 * statistics are asked for the part's margins [N] and its sums of p log p [N] (call_head's), and
 * the tokens' logits [N]. A part's share of the whole is the exponential of its candidate's logit
 * over that one's probability, from which both statistics of the whole follow. */
struct call_combine {
    const void *gathered;    /* [G, 3, N], with statistics [G, 5, N] */
    int32_t *token;          /* [N] */
    float *confidence;       /* [N] */
    float *margin, *entropy; /* [N], both or neither */
    float *logit;            /* [N], the token's, or NULL */
    int32_t n_ranks, n_rows, n_vocab;
};

/* The arguments of iteration smoothing's kernels (dInfer's IterSmooth, arXiv 2510.08666 and its
 * released code): a step's prediction for a masked position becomes an embedding, which is added to
 * the mask's in the next step. A place is a row of the state kept between steps; step[i] is how
 * many steps a row's request has done. */

/* y[i] = softmax of row i of the logits; y may be the logits. A row in which a logit is no number,
 * or is +infinity, or all are -infinity, becomes NaN. Where V is no multiple of 8 the last bits of
 * a row may change with its place in the call. Of a rank's part of a vocabulary: its part of the
 * whole row's softmax, by the largest logit of all ranks and its probability. by: logits are
 * divided by the row's temperature, at which that probability is. */
struct call_softmax {
    const void *logits;            /* [N, V] */
    void *y;                       /* the same */
    const float *top, *confidence; /* [N], of whole rows; NULL: the rows are whole */
    int32_t n_rows, n_vocab;
    enum kernel_dtype dtype;
    const struct draw_rule *by; /* [N], or NULL: a temperature of 1 */
};

/* The arguments of a canvas of random tokens' own kernels (DiffusionGemma). */

/* logits = cap tanh(logits / cap), in place. */
struct call_softcap {
    void *logits; /* [N, V] */
    int32_t n_rows, n_vocab;
    float cap; /* above 0 */
    enum kernel_dtype dtype;
};

/* Of each row of logits over its temperature: the most likely token, one drawn from them (the
 * largest sum of it and keyed_noise of the row's key and the token), the lower token on a tie, and
 * the entropy in nats. Tokens are compared in double and are the same on every device. A logit that
 * is no number is no token, and the entropy none. */
struct call_renoise {
    const void *logits;         /* [N, V] */
    const struct draw_rule *by; /* [N]; of a rule its temperature alone */
    const uint64_t *key;        /* [N] */
    int32_t *token, *drawn;     /* [N] */
    float *entropy;             /* [N] */
    int32_t n_rows, n_vocab;
    enum kernel_dtype dtype;
    /* Of a rank's part of a vocabulary, from first_token on: what it finds of each row, instead of
     * the three above; or NULL. */
    struct renoise_part *part; /* [N] */
    int32_t first_token;
};

/* What is found of a row, or of a rank's part of it: the most likely token and its logit, the drawn
 * one and what it was drawn at, both by their numbers in the whole vocabulary, and the sums of e^x
 * and of x e^x, with x logits less the largest over the temperature. */
struct renoise_part {
    double drawn_at, largest, sum, weighed;
    int32_t token, drawn;
};

/* What G ranks have found of the same rows becomes what one finds of whole ones: the lower rank's
 * token on a tie. confidence becomes the most likely token's probability at the temperature, unless
 * it is no number. */
struct call_renoise_combine {
    const struct renoise_part *parts; /* [G, N] */
    const struct draw_rule *by;       /* [N] */
    int32_t *token, *drawn;           /* [N] */
    float *confidence, *entropy;      /* [N] */
    int32_t n_rows, n_ranks;
};

/* Row y[rows[i]] = y[rows[i]] + x[i], rounded to the dtype, or without x s / sqrt(mean(s^2) +
 * epsilon) of what it is. Rows are apart. C a multiple of 8. */
struct call_condition {
    const void *x;       /* [N, C] or NULL */
    const int32_t *rows; /* [N] */
    void *y;             /* [T, C] */
    int32_t n_rows, n_channels;
    float epsilon;
    enum kernel_dtype dtype;
};

/* kept[places[i]] = weight x[i], rounded once, with weight = min(weight_init + weight_growth
 * step[i], weight_most) in double and rounded to single precision; a place < 0: nothing happens.
 * Places are apart. C a multiple of 8. */
struct call_keep_expected {
    const void *x;                /* [N, C] */
    const int32_t *places, *step; /* [N] */
    void *kept;                   /* [places, C] */
    int32_t n_rows, n_channels;
    double weight_init, weight_growth, weight_most;
    enum kernel_dtype dtype;
};

/* y[t] += kept[places[t]] where token t's place is >= 0 and its position holds a mask. C a multiple
 * of 8. */
struct call_add_expected {
    const void *kept;      /* [places, C] */
    const int32_t *places; /* [T] */
    const int64_t *at;     /* [T], where in canvas a token's position is */
    const int32_t *canvas;
    void *y; /* [T, C] */
    int32_t n_tokens, n_channels, mask_token;
    enum kernel_dtype dtype;
};

/* What requests are decided by in this step, and what their rows come to in the next: threshold[r]
 * = max(1 - threshold_decay step[first_row[r]] in double and rounded to single precision,
 * least[r]); then every step[i] is one more. */
struct call_next_step {
    int32_t *step;            /* [N] */
    const int32_t *first_row; /* [B] */
    const float *least;       /* [B] */
    float *threshold;         /* [B] */
    int32_t n_rows, n_requests;
    double threshold_decay;
};

#endif
