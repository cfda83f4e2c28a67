/* The forward pass: runs steps of one step graph on a device, operator by operator, at the offsets
 * of their placements.
 *
 * Opened once for a graph and its weights; a step allocates nothing, and where its limits say that
 * memory is mapped, maps no more than it needs beyond what those before it left. On the CPU, with
 * one BLAS thread, results are the same bits whatever else is in the batch, wherever the tensors
 * are placed, and however FFN and logits are chunked. On a device that captures, a step
 * whose launches repeat becomes a CUDA graph. */
#ifndef UNMASK_ENGINE_STEP_FORWARD_H
#define UNMASK_ENGINE_STEP_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device.h"
#include "engine/op/program.h"
#include "engine/op/step.h"
#include "engine/weights/weights.h"
#include "sim/base/err.h"

struct forward;
struct mapping;
struct ranks;
struct warm_watch; /* engine/step/warm.h */

/* `device`, `graph` and `weights` (in the device's memory) must outlive it. Allocates workspace,
 * pool and canvases on the device. ERR_USAGE when the graph has operators or the model a mask that
 * are not run; ERR_WORLD with what is missing when the memory does not suffice. Graphs of policies
 * that select are built with graph_options.engine. */
int forward_open(const struct engine_device *device, const struct graph *graph,
                 const struct weights *weights, const struct step_limits *limits,
                 struct forward **out, struct err *err);
void forward_close(struct forward *forward);

/* Opens a forward pass like this one, rank 0's, on each other rank. From now on what is asked of
 * this one is done by all of them, on the same steps, placements and tokens: warming, writing and
 * moving, steps and waiting for them, closing. They meet in the step graph's collective operators,
 * after which all have the same bits: the residual stream and every decision are equal on all
 * ranks. Results are read from this one, and it is this one's caller who says what an eviction
 * leaves. The ranks stay the caller's, who may have another forward pass lead them once this one is
 * closed. */
int forward_lead(struct forward *forward, struct ranks *ranks, struct err *err);

/* Rank `rank`'s, for checking; 0: this one. */
struct forward *forward_of_rank(struct forward *forward, uint32_t rank);

/* Let a device that chooses how to run products by trying do so for all of the graph's products, at
 * sizes from a few tokens to the most the engine is opened for, so that no step of a run pays for
 * it: seconds on a GPU, nothing on a device that chooses nothing. Overwrites workspace and pool.
 * watch NULL: no one is told. */
int forward_warm(struct forward *forward, const struct warm_watch *watch, struct err *err);

/* Write tokens into the canvases, in the queue; read them back, waiting. */
int forward_write_canvas(struct forward *forward, int64_t first, const int32_t *tokens, int64_t n,
                         struct err *err);
int forward_read_canvas(struct forward *forward, int64_t first, int32_t *tokens, int64_t n,
                        struct err *err);

/* Forget what is kept in `n` places from `first` on, in the queue. */
int forward_clear_places(struct forward *forward, int64_t first, int64_t n, struct err *err);

/* What `n` places hold, which is the same on all ranks, forward_place_bytes each: `to` is filled on
 * return, after all that was issued; `from` is written in the queue and may go at once. */
int64_t forward_place_bytes(const struct forward *forward);
int forward_read_places(struct forward *forward, int64_t first, int64_t n, unsigned char *to,
                        struct err *err);
int forward_write_places(struct forward *forward, int64_t first, int64_t n,
                         const unsigned char *from, struct err *err);

/* Move a store inside the pool, in the queue; the ranges may overlap. */
int forward_move_store(struct forward *forward, int64_t to_bytes, int64_t from_bytes, int64_t bytes,
                       struct err *err);

/* Host memory that copies of cached rows reach, so much for each rank; ERR_WORLD where there is
 * not so much. Closed once all copies are done. move_host: inside it, while nothing is copied; the
 * ranges may overlap. */
int forward_open_host(struct forward *forward, int64_t bytes, struct err *err);
void forward_close_host(struct forward *forward);
void forward_move_host(struct forward *forward, int64_t to, int64_t from, int64_t bytes);

/* Each rank's cached rows to its host memory, from byte `host` of it on, or back from there:
 * `bytes` of the pool from `first` on, or, with bytes 0, pages (of all layers, forward_page_bytes
 * each). Between what is issued before and after. forward_swap_wait: until all such copies are
 * done. */
struct row_copy {
    int64_t host;
    int64_t first, bytes;
    const int32_t *pages; /* [n_pages] */
    int64_t n_pages;
    bool is_out;
};
int forward_swap(struct forward *forward, const struct row_copy *copy, struct err *err);
int forward_swap_wait(struct forward *forward, struct err *err);
int64_t forward_page_bytes(const struct forward *forward);

/* Whether a step reads rows that it overwrites, so that it does not come out the same twice: by how
 * much values changed it picks the rows that go on. Then what is timed before it is carried out
 * sets aside what the pool holds, in host memory of each rank, ERR_WORLD where there is not so
 * much, and puts it back. */
bool forward_reads_overwritten(const struct forward *forward);
int forward_set_aside(struct forward *forward, struct err *err);
int forward_put_back(struct forward *forward, struct err *err);

/* Rows are kept in the pool from this byte to its end; at the pool's size, none are. To be said
 * before anything is written or moved there: what lies below may lose its memory. ERR_WORLD when
 * memory is mapped and does not suffice. */
int forward_hold(struct forward *forward, int64_t first_byte, struct err *err);

/* Issue one step; nothing of it is read after the return. Where the graph evicts this waits in its
 * middle, for what is left. ERR_USAGE, with nothing issued, when the
 * step does not fit the limits, the placement does not fit the step, or a span asks for what is not
 * there. */
int forward_submit(struct forward *forward, const struct step *step, struct err *err);

/* Issue a step `n` times, at most max_unrolled, one after the other, without host synchronisation:
 * each reads the canvases that those before it left. forward_done and forward_wait are about all of
 * them, forward_result about the last; not where the graph evicts. What each of them committed:
 * [spans] of the step number i. */
int forward_submit_times(struct forward *forward, const struct step *step, uint32_t n,
                         struct err *err);
int forward_committed(struct forward *forward, uint32_t i, int32_t *n_committed, struct err *err);

/* Whether steps that come again are launched from graphs that were captured of them, as they are
 * from the beginning; off, their operators are issued one by one. */
int forward_captures(struct forward *forward, bool on, struct err *err);

/* Issue the same step once more, after the one before it is done; not where the graph evicts. */
int forward_again(struct forward *forward, struct err *err);

/* Whether the step issued last is done; wait until it is. device_ns: from its first operator to its
 * last one's end, by the device's clock. */
int forward_done(struct forward *forward, bool *out, struct err *err);
int forward_wait(struct forward *forward, double *device_ns, struct err *err);

/* What the step issued last came to; waits for it. */
int forward_result(struct forward *forward, const struct step_result *result, struct err *err);

/* The logits of the step issued last, [R, V] in float32, of the whole vocabulary, where the graph
 * stores them all at once. */
int forward_logits(struct forward *forward, float *logits, struct err *err);

/* The same step one instance at a time, for measuring and checking operators: begin, then next
 * until `instance` is NULL, which waits for nothing but an eviction, and until which the step is
 * read; finish_instances is next as often as there are any. Then the device time of each operator
 * of the graph over all its instances, from the end of the instance before to its own: ns[n_ops].
 * Instances that end later than `until_ns` after the step's begin (INFINITY: there are none) count
 * as the mean of the operator's earlier ones, 0 where it has none. Of several ranks it is the
 * slowest one's; what sums and gatherings take is the time of the rank that came to them last. */
int forward_begin(struct forward *forward, const struct step *step, struct err *err);
const struct op_instance *forward_instance(const struct forward *forward);
int forward_next(struct forward *forward, struct err *err);
int forward_finish_instances(struct forward *forward, struct err *err);
int forward_instance_times(struct forward *forward, double until_ns, double *ns, struct err *err);

/* finish_instances, and how many different experts tokens went to, the mean of the instances that
 * choose some; 0 where none does. */
int forward_finish_counting(struct forward *forward, double *experts_hit, struct err *err);

/* How many different experts an instance's tokens went to, where its operator chooses experts
 * (OP_MOE_CHOOSE) and no instance was issued after it; waits for it. */
int forward_experts_hit(struct forward *forward, const struct op_instance *instance, uint32_t *out,
                        struct err *err);

/* Addresses of the workspace and the pool (the same where they are shared), and the bytes that
 * steps have really used of the workspace so far: the largest peak. */
unsigned char *forward_workspace(struct forward *forward);
unsigned char *forward_pool(struct forward *forward);
int64_t forward_workspace_peak(const struct forward *forward);

/* Device memory other than weights, workspace and pool: canvases, tables, the step's arrays.
 */
int64_t forward_side_bytes(const struct forward *forward);

/* The mapping of workspace and pool; NULL where they are allocated. */
const struct mapping *forward_mapping(const struct forward *forward);

#endif
