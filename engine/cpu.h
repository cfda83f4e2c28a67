/* The CPU back end: runs a step graph in float32, operator by operator, at the offsets of a
 * placement inside one workspace.
 *
 * Opened once for a graph and its weights; steps allocate nothing. Results are the same bits
 * whatever else is in the batch, wherever the tensors are placed, and however the logits are
 * chunked. The graph counts two bytes an element and float32 takes four, so offsets and sizes of a
 * placement are stretched by two. */
#ifndef UNMASK_ENGINE_CPU_H
#define UNMASK_ENGINE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/program.h"
#include "engine/step.h"
#include "engine/weights.h"
#include "sim/base/err.h"

struct cpu;

enum { CPU_STRETCH = F32_BYTES / BF16_BYTES };

/* `graph` and `weights` must outlive it. ERR_USAGE when the graph has operators, the model a mask
 * or the weights a dtype that is not run here. */
int cpu_open(const struct graph *graph, const struct weights *weights,
             const struct step_limits *limits, struct cpu **out, struct err *err);
void cpu_close(struct cpu *cpu);

/* Run one step. ERR_USAGE, with nothing run, when the step does not fit the limits, the placement
 * does not fit the step, or a span asks for what is not there. */
int cpu_step(struct cpu *cpu, const struct step *step, const struct step_result *result,
             struct err *err);

/* The same one turn at a time: begin, then next until false; `turn` is what will run next, for
 * measuring and checking operators. `step` and `result` must stay until the end. */
int cpu_begin(struct cpu *cpu, const struct step *step, const struct step_result *result,
              struct err *err);
const struct turn *cpu_turn(const struct cpu *cpu);
bool cpu_next(struct cpu *cpu);

/* CPU_STRETCH x workspace_bytes bytes. */
unsigned char *cpu_workspace(struct cpu *cpu);

#endif
