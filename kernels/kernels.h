/* The launchers. Each checks its call's shapes, computes the grid and launches on the stream; it
 * never allocates or synchronises. Weights may be read while the kernel before it on the stream is
 * still running: that one must not be what writes them (copies and kernel_random are no danger).
 * cudaErrorInvalidValue means a shape, stride or dtype outside what calls.h promises; any other
 * error is the launch's own. Every pointer of a call is a device pointer, 16-byte aligned. No
 * tokens, rows or requests is a success that does nothing. */
#ifndef UNMASK_KERNELS_KERNELS_H
#define UNMASK_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>

#include "kernels/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Those that kernels.def lists as one launcher each. Where its path is not the only one, the others
 * are below. decode: cudaErrorInvalidValue for rules other than take and threshold over more than
 * DECODE_MAX_RANKED rows. */
#define LAUNCHER_OWN(name)
#define LAUNCHER_PLAIN(name)                                                                       \
    cudaError_t kernel_##name(const struct call_##name *call, cudaStream_t stream);
#define KERNEL(name, cuda, cpu) LAUNCHER_##cuda(name)
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"
#undef LAUNCHER_OWN
#undef LAUNCHER_PLAIN

cudaError_t kernel_norm(const struct call_norm *call, cudaStream_t stream);

/* Bytes of scratch block attention needs on a device of n_sms multiprocessors, for any call.
 * Calls on one stream may share it; calls that may overlap may not. */
int64_t block_attention_scratch_bytes(int n_sms);
/* Takes the faster path; those below are the paths themselves. `few` takes calls whose items would
 * not fill the GPU, four blocks each (compute capability 9.0 and D = 128; else, for more of them,
 * for invariant calls, over fp8 and where own_cached cudaErrorNotSupported); `line` takes `compact`
 * stages where a multiprocessor has less than 160 KiB of shared memory. */
cudaError_t kernel_block_attention(const struct call_block_attention *call, cudaStream_t stream);
cudaError_t kernel_block_attention_few(const struct call_block_attention *call,
                                       cudaStream_t stream);
cudaError_t kernel_block_attention_line(const struct call_block_attention *call,
                                        cudaStream_t stream);
cudaError_t kernel_block_attention_compact(const struct call_block_attention *call,
                                           cudaStream_t stream);

/* Takes the faster path; those below are the paths themselves. Scratch is that of block attention.
 * The wgmma path takes 128 rows (queries of a group's heads) at a time: compute capability 9.0 and
 * pages of 8 rows or more in bf16 (else cudaErrorNotSupported); it is never invariant. `few` is
 * that of block attention. */
cudaError_t kernel_paged_attention(const struct call_paged_attention *call, cudaStream_t stream);
cudaError_t kernel_paged_attention_few(const struct call_paged_attention *call,
                                       cudaStream_t stream);
cudaError_t kernel_paged_attention_mma(const struct call_paged_attention *call,
                                       cudaStream_t stream);
cudaError_t kernel_paged_attention_compact(const struct call_paged_attention *call,
                                           cudaStream_t stream);
cudaError_t kernel_paged_attention_wgmma(const struct call_paged_attention *call,
                                         cudaStream_t stream);

/* That of calls with a window, or with heads wider than HEAD_SIZES, and of no others by default. A
 * row is the same bits whatever else is in the call. Heads of 256 and more need the shared memory
 * of compute capability 9.0 (else cudaErrorNotSupported). */
cudaError_t kernel_paged_attention_window(const struct call_paged_attention *call,
                                          cudaStream_t stream);

/* The two paths of kernel_dense_attention, which takes the fastest that the current device has. The
 * wgmma path is compiled for compute capability 9.0 and answers cudaErrorNotSupported anywhere
 * else. */
cudaError_t kernel_dense_attention_mma(const struct call_dense_attention *call,
                                       cudaStream_t stream);
cudaError_t kernel_dense_attention_wgmma(const struct call_dense_attention *call,
                                         cudaStream_t stream);

/* The two paths of kernel_pattern_attention, which takes the fastest that the current device has.
 * The wgmma path is compiled for compute capability 9.0 and takes D = 128 and blocks of multiples
 * of 128 tokens (else cudaErrorNotSupported). */
cudaError_t kernel_pattern_attention_mma(const struct call_pattern_attention *call,
                                         cudaStream_t stream);
cudaError_t kernel_pattern_attention_wgmma(const struct call_pattern_attention *call,
                                           cudaStream_t stream);

/* The second alone of the three launches of kernel_select (scores, selection, packing; for uniform
 * scores one more, their sum): pools call->scores, selects, writes call->indices. */
cudaError_t kernel_select_top(const struct call_select *call, cudaStream_t stream);

/* The LM head's products run in cuBLASLt, whose handle and chosen algorithms this holds.
 * One a thread of host control; its calls go to one stream at a time. */
struct head;
cudaError_t head_open(struct head **head);
void head_close(struct head *head);
/* Bytes of scratch any number of rows needs: HEAD_SCRATCH_BYTES of device.h. */
int64_t head_scratch_bytes(void);
/* Takes the faster path; the two below are the paths themselves: cuBLASLt products and a reduction
 * on any device, one fused kernel on compute capability 9.0 (else cudaErrorNotSupported). */
cudaError_t kernel_head(struct head *head, const struct call_head *call, cudaStream_t stream);
cudaError_t kernel_head_tiles(struct head *head, const struct call_head *call, cudaStream_t stream);
cudaError_t kernel_head_wgmma(const struct call_head *call, cudaStream_t stream);

/* The first half of a feed-forward layer in one: the product with the gate and up weights and
 * SwiGLU on top, so that the [T, 2 F] activation never exists. Compiled for compute capability 9.0;
 * cudaErrorNotSupported anywhere else, where the caller runs a product and kernel_swiglu. No tokens
 * is a success that does nothing.
 * Whatever width its tiles have, an output is one sum in the order of the channels: a row is the
 * same bits whatever other rows are in the call (tests/gpu/test_batch_invariance.c).
 * Measured at C 4096, F 12288 on one H200, 2026-11-21: 0.99 to 1.01 of torch.matmul's time alone
 * from 128 tokens on, 0.91 to 0.96 of it with kernel_swiglu; below, no slower than both by more
 * than 1 %. */
cudaError_t kernel_gate_up(const struct call_gate_up *call, cudaStream_t stream);
/* The same for 64 tokens or fewer and so few hidden channels that two blocks a tile find room on
 * the GPU; else cudaErrorNotSupported. A row's bits are not those of more tokens. */
cudaError_t kernel_gate_up_few(const struct call_gate_up *call, cudaStream_t stream);

/* The same for 64 tokens or fewer by any number of hidden channels: one block a multiprocessor,
 * which small weights do not fill. */
cudaError_t kernel_gate_up_even(const struct call_gate_up *call, cudaStream_t stream);

/* y = x w' + add on the same main loop; add is added before the one rounding. Here n_outputs, too,
 * is a multiple of 8, and nothing is by_inputs. Measured as above: 0.95 to 1.02 of torch.matmul's
 * time (0.98 to 1.07 with add) from 1024 tokens on at (K, N) = (4096, 12288), (4096, 4096) and
 * (12288, 4096). Where there are fewer tiles of 128 by 128 than multiprocessors cuBLASLt is faster,
 * up to twice. */
cudaError_t kernel_linear_wgmma(const struct call_linear *call, cudaStream_t stream);
/* The same for 64 tokens or fewer, and outputs in at most two tiles of 128 a multiprocessor (else
 * cudaErrorNotSupported). */
cudaError_t kernel_linear_few(const struct call_linear *call, cudaStream_t stream);
/* And by any number of outputs: one block a multiprocessor, which small weights do not fill. A row
 * is the same bits whatever other rows are in the call. Of LLaDA-8B's four products it reads
 * weights at 3.3 to 4.1 TB/s by 32 tokens, where few and cuBLASLt reach 2.5 to 3.7 (one H200,
 * 2026-11-30). */
cudaError_t kernel_linear_even(const struct call_linear *call, cudaStream_t stream);

/* Products with weights in fp8 (calls with fp8.w_scale). Scales are of w_rows rows by 128 inputs or
 * by all of them. invariant: a row's bits do not depend on how many there are. The first takes the
 * fastest path that the device and the shape have, by whose names the others go: `few` up to 64
 * tokens and `tiles` are compiled for compute capability 9.0, take inputs in fp8 and multiples of
 * 16 of them, of 8 outputs (`tiles`, gated and by squares: of 128); `mma` takes every shape, inputs
 * in fp8 from compute capability 8.9 on, inputs in bf16 on any device. Elsewhere
 * cudaErrorNotSupported. */
cudaError_t kernel_linear_fp8(const struct call_linear *call, bool invariant, cudaStream_t stream);
cudaError_t kernel_linear_fp8_few(const struct call_linear *call, cudaStream_t stream);
cudaError_t kernel_linear_fp8_tiles(const struct call_linear *call, cudaStream_t stream);
cudaError_t kernel_linear_fp8_mma(const struct call_linear *call, cudaStream_t stream);
cudaError_t kernel_gate_up_fp8(const struct call_gate_up *call, bool invariant,
                               cudaStream_t stream);
cudaError_t kernel_gate_up_fp8_few(const struct call_gate_up *call, cudaStream_t stream);
cudaError_t kernel_gate_up_fp8_tiles(const struct call_gate_up *call, cudaStream_t stream);
cudaError_t kernel_gate_up_fp8_mma(const struct call_gate_up *call, cudaStream_t stream);

/* The paths of the experts' products, kernel_moe_gate_up and kernel_moe_down, which take the
 * fastest that the current device has. The wgmma ones are compiled for compute capability 9.0 and
 * take bf16 (else cudaErrorNotSupported); mma expands fp8 to that. On one device a pair's outputs
 * are the same bits whatever other rows are in the call. */
cudaError_t kernel_moe_gate_up_mma(const struct call_moe_gate_up *call, cudaStream_t stream);
cudaError_t kernel_moe_gate_up_wgmma(const struct call_moe_gate_up *call, cudaStream_t stream);
cudaError_t kernel_moe_down_mma(const struct call_moe_down *call, cudaStream_t stream);
cudaError_t kernel_moe_down_wgmma(const struct call_moe_down *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
