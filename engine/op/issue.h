/* Launching operators of a step: what their launches are made of, and one operator instance. */
#ifndef UNMASK_ENGINE_OP_ISSUE_H
#define UNMASK_ENGINE_OP_ISSUE_H

#include "engine/device/device.h"
#include "engine/op/op.h"
#include "engine/op/packed.h"
#include "engine/op/program.h"
#include "engine/op/room.h"
#include "engine/weights/weights.h"

/* Rows of the residual stream where leading layers end: from the stream before to the one after,
 * and to the pool or from there. */
struct join_copy {
    int64_t from_row, to_row, n_rows, pool_bytes;
    bool from_pool, to_pool;
};
enum { JOIN_COPIES = 3 }; /* of a span, at most */

/* What a step's launches are made of. */
struct issue {
    const struct engine_device *device;
    const struct program *program;
    const struct weights *weights;
    /* The counts, and where the arrays lie in the room's: of the whole step, and of what is left of
     * it after an eviction. */
    const struct packed *packed, *rest;
    const struct placement *placement;
    const struct room *room;
    const struct join_copy *join_copies;
    int32_t n_join_copies;
    bool has_one_layer; /* the pool holds the rows of one layer, as in calibration */
    int64_t peak_bytes; /* written here: the end of the furthest tensor that a call was given */
};

/* Where a product's outputs are added to at once (program.h), and whether a sum's were; -1: not. */
static inline int added_to(const struct issue *issue, uint32_t op) {
    return issue->device->table->adds_in_products ? issue->program->added_to[op] : -1;
}

static inline bool is_added(const struct issue *issue, uint32_t sum) {
    return sum > 0 && added_to(issue, sum - 1) >= 0;
}

static inline unsigned char *tensor_at(struct issue *issue, int tensor) {
    int64_t offset = issue->placement->offset_bytes[tensor];
    int64_t end = offset + issue->placement->bytes[tensor];
    issue->peak_bytes = end > issue->peak_bytes ? end : issue->peak_bytes;
    return issue->room->workspace + offset;
}

/* One operator instance: an operator of the graph, in one layer, over some rows. */
struct launch {
    struct issue *issue;
    const struct packed *packed;
    unsigned char *arrays;
    const struct op_instance *instance;
    uint32_t cache_layer; /* whose rows of the pool are meant */
    const struct op *op;
    const struct graph *graph;
    const struct model *model; /* as the instance's layer has it */
    const struct device_table *table;
    struct device *device;
    enum kernel_dtype dtype;
};

/* One instance, `instance` borrowed; launches it, unless it has no rows. */
struct launch launch_of(struct issue *issue, const struct op_instance *instance);
int issue_instance(struct issue *issue, const struct op_instance *instance);

/* Where a step's candidates lie: tokens [R], confidences [R] and, where the graph makes statistics,
 * margins [R] and entropies [R]; then logits [R], where they are of one rank's part of the
 * vocabulary. Arrays that the graph does not make are NULL. */
struct candidates {
    int32_t *token;
    float *confidence, *margin, *entropy, *logit;
};
struct candidates issue_candidates(struct issue *issue, int tensor);
/* Those of a instance's rows; of a chunk, where the tensor holds one. */
struct candidates launch_candidates(const struct launch *l, int tensor);

/* Experts that tokens went to, by where the operator that chooses them (OP_CHOOSES_EXPERTS) has
 * written where each expert's tokens begin, its third output: waits for it. A status of the device.
 */
int op_count_experts(const struct engine_device *device, const unsigned char *starts_at,
                     uint32_t experts, uint32_t *out);

#endif
