/* What a call must at least do: bytes through device memory (each input read once, each output
 * written once) and floating-point operations (a multiply and an add are two). Ratios to these
 * are what the bench prints and what a cost model may start from. */
#ifndef UNMASK_KERNELS_WORK_H
#define UNMASK_KERNELS_WORK_H

#include "kernels/calls_block.h"
#include "kernels/calls_moe.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_work {
    double bytes, flops;
};

/* Lengths that a call keeps on the device are given beside it, summed over its requests. */
struct kernel_work work_embed(const struct call_embed *call);
struct kernel_work work_norm(const struct call_norm *call);
struct kernel_work work_linear(const struct call_linear *call);
struct kernel_work work_add(const struct call_add *call);
struct kernel_work work_swiglu(const struct call_swiglu *call);
struct kernel_work work_rope(const struct call_rope *call);
struct kernel_work work_keep(const struct call_keep *call, double n_kept_tokens);
/* pairs: the sum of tokens^2. */
struct kernel_work work_dense_attention(const struct call_dense_attention *call, double pairs);
/* queries, kept: their sums; pairs: the sum of queries (kept + queries). */
struct kernel_work work_block_attention(const struct call_block_attention *call, double queries,
                                        double kept, double pairs);
/* queries: their number; rows: the sum over requests of the largest extent; pairs: that of all
 * extents. */
struct kernel_work work_paged_attention(const struct call_paged_attention *call, double queries,
                                        double rows, double pairs);
/* queries: tokens of the blocks; candidates, kept: a head's, before and after the choice. */
struct kernel_work work_select(const struct call_select *call, double queries, double candidates,
                               double kept);
struct kernel_work work_head(const struct call_head *call);
struct kernel_work work_sample(const struct call_sample *call);
/* tokens, masked: their numbers; pairs: the sum of a request's masked tokens squared. */
struct kernel_work work_importance(const struct call_importance *call, double tokens, double masked,
                                   double pairs);
struct kernel_work work_compact(const struct call_compact *call, double rows);
struct kernel_work work_moe_route(const struct call_moe_route *call);
struct kernel_work work_moe_sort(const struct call_moe_sort *call);
/* pairs: those of the call's experts; experts: those of them that have any. */
struct kernel_work work_moe_gate_up(const struct call_moe_gate_up *call, double pairs,
                                    double experts);
struct kernel_work work_moe_down(const struct call_moe_down *call, double pairs, double experts);
struct kernel_work work_moe_combine(const struct call_moe_combine *call, double pairs);

#ifdef __cplusplus
}
#endif

#endif
