/* The kernels in plain C: the same calls with host pointers, sums in double, one rounding at each
 * place where the kernel rounds. They are the tests' reference and the CPU back end's operators,
 * so they take both dtypes and any head size; scratch and host-known maxima are not read.
 * Rows are independent: a row's bytes do not depend on what else is in the call. */
#ifndef UNMASK_KERNELS_REF_REF_H
#define UNMASK_KERNELS_REF_REF_H

#include <stddef.h>

#include "kernels/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element i of an array of the dtype, and its rounding into one. */
double ref_load(const void *array, enum kernel_dtype dtype, int64_t i);
void ref_store(void *array, enum kernel_dtype dtype, int64_t i, double value);

/* What a product multiplies: input i of row t, weight i of output o of expert e, of `n_rows` rows
 * of weights each, n_inputs inputs. Rows of x are `stride` apart; `before` rows of the weights lie
 * before w. */
struct ref_product {
    const void *x, *w;
    int64_t stride, n_rows, n_inputs, before;
    enum kernel_dtype dtype;
    const struct call_fp8 *fp8;
};
/* A head's key and value, `size` numbers from element `at` of each, to row `row` of a packed cache
 * of n_heads heads and `kept` rows that begins at element `start` of the pool. */
struct ref_head {
    const void *k, *v;
    int64_t at, size;
    enum kernel_dtype dtype;
};
struct ref_packed {
    void *pool;
    int64_t start, n_heads, kept;
    bool fp8;
};
void ref_cache_head(const struct ref_head *from, const struct ref_packed *to, int64_t head,
                    int64_t row);

/* n numbers from element `at` of x on, as codes and their scales. */
void ref_quantise_row(const void *x, enum kernel_dtype dtype, int64_t at, int64_t n, int64_t group,
                      uint8_t *codes, uint8_t *scales);
double ref_input(const struct ref_product *p, int64_t t, int64_t i);
double ref_weight(const struct ref_product *p, int64_t e, int64_t o, int64_t i);
double ref_dot(const struct ref_product *p, int64_t t, int64_t e, int64_t o);

/* What gates a number: silu, or gelu by tanh. */
double ref_gated(bool gelu, double gate, double up);

/* The first row of its request that query t attends to. */
int32_t ref_first_row(const struct call_paged_attention *call, int64_t t);

/* How far a kernel may be from its reference implementation, as ||kernel - reference|| /
 * ||reference|| over one output row that sums over length terms: two roundings to the dtype (an
 * output, and the probabilities inside attention) with unit roundoff u = 2^-8 (bf16) or 2^-24
 * (single), and single-precision sums, whose errors add up no faster than linearly (Higham,
 * Accuracy and Stability of Numerical Algorithms, 2002, section 4.2): 2 u + 2^-24 length. */
double ref_bound(enum kernel_dtype dtype, int64_t length);

/* Those that kernels.def lists as plain. Equal inputs give equal bytes on any device for decode,
 * credit, keep_expected, add_expected, next_step, compact, pick, keep_feature, add_feature and the
 * experts, starts, orders and places of moe_route and moe_sort. */
#define REF_OWN(name)
#define REF_PLAIN(name)         void ref_##name(const struct call_##name *call);
#define KERNEL(name, cuda, cpu) REF_##cpu(name)
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"
#undef REF_OWN
#undef REF_PLAIN

void ref_linear(const struct call_linear *call);
void ref_gate_up(const struct call_gate_up *call);
/* Its codes from its y, where they are wanted. */
void ref_gated_codes(const struct call_gate_up *call);

/* cos_sin[p, i] = {cos, sin}(p theta^(-2 i / R)) for the positions below n_positions: rotary
 * embedding as in Su et al., RoFormer (arXiv 2104.09864), equation 15. */
void ref_cos_sin(float *cos_sin, int32_t n_positions, int32_t rotary_size, double theta);

/* The attentions return false when memory for one row's probabilities is lacking. */
bool ref_dense_attention(const struct call_dense_attention *call);

/* The rows of q and y that are request r's. */
struct ref_queries {
    int64_t first, end;
};
struct ref_queries ref_queries_of(const struct call_dense_attention *call, int64_t r);

bool ref_block_attention(const struct call_block_attention *call);
bool ref_paged_attention(const struct call_paged_attention *call);

/* Of n shares the `keep` largest, the earlier one on a tie: their bits of words, from bit `first`
 * on. What bits were there stays. */
void ref_pattern_keep(const double *shares, int32_t n, int32_t keep, int32_t first,
                      uint32_t *words);
/* The shares by which one head's block of queries keeps them: those of all n blocks, then those of
 * the blocks from rest[r] on among themselves. */
bool ref_pattern_shares(const struct call_pattern *call, int64_t r, int64_t head, int32_t block,
                        double *shares);
/* All three return false when memory for one block of queries, or one row's probabilities, is
 * lacking.
 */
bool ref_pattern(const struct call_pattern *call);
bool ref_pattern_attention(const struct call_pattern_attention *call);

/* How many of n candidates a retention keeps: max(1, floor(retention n)), as released. */
int32_t ref_kept_tokens(int32_t n_candidates, double retention);

/* The three stages; ref_select runs them in order. The second is exact: equal scores give equal
 * indices on any device. The first, and so the whole, returns false when memory for one request's
 * mean queries is lacking. */
bool ref_select_score(const struct call_select *call);
void ref_select_top(const struct call_select *call);
void ref_select_pack(const struct call_select *call);
bool ref_select(const struct call_select *call);

/* Both return false when memory for one row's logits is lacking. */
bool ref_head(const struct call_head *call);
bool ref_sample(const struct call_sample *call);

/* Exact; false when memory for one row is lacking. */
bool ref_draw(const struct call_draw *call);

/* Elements [first, end) of the sum of n_ranks calls, to every one's y. */
void ref_all_reduce(const struct call_all_reduce *const *calls, int32_t n_ranks, int64_t first,
                    int64_t end);
void ref_moe_gate_up(const struct call_moe_gate_up *call);
void ref_moe_down(const struct call_moe_down *call);

#ifdef __cplusplus
}
#endif

#endif
