/* The kernels of the CPU in float32, where the reference implementations' double accumulation is
 * too slow or their scratch too large: products by BLAS, attention in tiles, what follows from
 * logits, selection.
 *
 * A row of a result is one fixed sequence of operations over its own inputs, whatever else is in
 * the call. Nothing allocates. */
#ifndef UNMASK_KERNELS_REF_CPU_H
#define UNMASK_KERNELS_REF_CPU_H

#include "kernels/calls.h"

/* BLAS may round a row's product differently by the row's place in the matrix and the number of
 * rows. Products are therefore computed in panels of PANEL_ROWS rows, the last one filled up, with
 * the rows along the side that BLAS keeps in vector lanes: each row is computed alike. */
enum { CPU_PANEL_ROWS = 16, CPU_PANEL_OUTPUTS = 256, CPU_MAX_INPUTS = 32768 };

/* What the kernels work in; one a device. */
struct cpu_room {
    const float *codes; /* [E4M3_CODES], their values */
    float *inputs;      /* [CPU_PANEL_ROWS, CPU_MAX_INPUTS], a panel that is not full; a query */
    float *outputs;     /* [CPU_PANEL_OUTPUTS, CPU_PANEL_ROWS] */
    double *query;      /* [CPU_MAX_INPUTS], mean queries of all heads */
    float *weights;     /* [CPU_PANEL_OUTPUTS, CPU_MAX_INPUTS], those in fp8; NULL: there are
                            none */
};
enum {
    CPU_ROOM_BYTES = CPU_PANEL_ROWS * (CPU_MAX_INPUTS + CPU_PANEL_OUTPUTS) * (int)sizeof(float) +
                     CPU_MAX_INPUTS * (int)sizeof(double),
    CPU_WEIGHTS_BYTES = CPU_PANEL_OUTPUTS * CPU_MAX_INPUTS * (int)sizeof(float)
};

/* At most CPU_MAX_INPUTS inputs; by_inputs any number of them. What is in fp8 is multiplied as
 * single precision: codes times scales, rounded. */
void cpu_linear(const struct cpu_room *room, const struct call_linear *call);
void cpu_linear_by_inputs(const struct cpu_room *room, const struct call_linear *call);
/* What cpu_linear and the reference implementation of swiglu give after one another, but for
 * roundings: BLAS rounds an output by its place in the strip. */
void cpu_gate_up(const struct cpu_room *room, const struct call_gate_up *call);
/* A row's bits are those of cpu_gate_up and cpu_linear with its expert's weights. */
void cpu_moe_gate_up(const struct cpu_room *room, const struct call_moe_gate_up *call);
void cpu_moe_down(const struct cpu_room *room, const struct call_moe_down *call);

/* Scratch and host-known maxima are not read. A request's keys count through its cache and then its
 * own, or through its pages, so that the same keys in the same order give the same bits in all
 * three. A head has at most CPU_MAX_INPUTS channels. */
void cpu_dense_attention(const struct cpu_room *room, const struct call_dense_attention *call);
void cpu_block_attention(const struct cpu_room *room, const struct call_block_attention *call);
void cpu_paged_attention(const struct cpu_room *room, const struct call_paged_attention *call);

/* At most CPU_MAX_PATTERN_TOKENS tokens of a request. */
enum { CPU_MAX_PATTERN_TOKENS = CPU_PANEL_ROWS * CPU_MAX_INPUTS };
void cpu_pattern(const struct cpu_room *room, const struct call_pattern *call);
void cpu_pattern_attention(const struct call_pattern_attention *call);

void cpu_sample(const struct call_sample *call);
/* The bits of the reference implementation, in either dtype, as a GPU's thread block computes them.
 */
void cpu_draw(const struct call_draw *call);
/* Rows of logits in the scratch, HEAD_SCRATCH_BYTES long, which holds at least one. */
void cpu_head(const struct cpu_room *room, const struct call_head *call);

/* At most CPU_MAX_INPUTS query channels. */
void cpu_select(const struct cpu_room *room, const struct call_select *call);

#endif
