/* Ranks: the forward passes of one model held by several devices, driven in step.
 *
 * The caller's own forward pass is rank 0; each other rank has a device, weights and a forward pass
 * of its own, and a thread that alone uses them. Whatever is asked of rank 0's forward pass
 * (engine/step/forward.h) every rank does, on the same steps, placements and tokens. They meet in
 * the step graph's collective operators, after which all of them have the same bits: the residual
 * stream and every decision are equal on all ranks. */
#ifndef UNMASK_ENGINE_DEVICE_RANKS_H
#define UNMASK_ENGINE_DEVICE_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device.h"
#include "engine/step/step.h"
#include "engine/weights/weights.h"
#include "sim/base/err.h"
#include "sim/graph/graph.h"

struct forward;
struct ranks;

struct ranks_request {
    const struct engine_device *device; /* rank 0's, of whose kind the others are */
    const struct graph *graph;          /* of a rank's share of the model */
    const struct step_limits *limits;
    const char *weights; /* as weights_open takes it */
    bool batch_invariant;
};

/* Opens ranks 1 to model_ranks(graph->model) - 1 on the machine's devices of these numbers, and
 * makes them and rank 0's device ranks of one another. Everything in the request but `weights` must
 * outlive them. ERR_WORLD where there are fewer devices, or a rank cannot be opened. */
int ranks_open(const struct ranks_request *request, struct ranks **out, struct err *err);

/* Closes these ranks' forward passes; opens them anew, for another graph of the same model and
 * these limits, both of which must outlive them. Rank 0's is the caller's own, who then has it lead
 * them.
 */
void ranks_retire(struct ranks *ranks);
int ranks_reopen(struct ranks *ranks, const struct graph *graph, const struct step_limits *limits,
                 struct err *err);

/* NULL is fine. Before rank 0's device is closed. */
void ranks_close(struct ranks *ranks);

/* Calls `call` with each rank's forward pass, rank 0's by this thread, the others' by theirs, all
 * at once; returns when all have. Where one fails no rank waits for it any longer; the sentence is
 * that of the first, by number, which did not fail for want of another. */
int ranks_call(struct ranks *ranks, struct forward *lead,
               int (*call)(struct forward *forward, const void *arguments, struct err *err),
               const void *arguments, struct err *err);

/* Rank `rank` >= 1's, for checking. */
struct forward *ranks_forward(const struct ranks *ranks, uint32_t rank);

#endif
