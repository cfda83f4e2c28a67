/* The engine: a device, the weights of a system's model, and the forward pass of its step graph,
 * with the memory that the system's budget says and no other; where several GPUs hold the model,
 * those of the first, which the others follow (engine/weights/ranks.h). */
#ifndef UNMASK_ENGINE_ENGINE_H
#define UNMASK_ENGINE_ENGINE_H

#include "engine/step/forward.h"
#include "engine/weights/ranks.h"
#include "sim/system/system.h"

struct engine_request {
    enum backend backend; /* a device's */
    const char *library;  /* of the CUDA back end; NULL: where it is found */
    int32_t device;       /* which of the machine's GPUs; of several ranks the first one's */
    const char *weights;  /* a checkpoint folder, or random:SEED */
    const struct system *system;
    /* Where the device is the system's GPU and has too little memory free, the memory_utilization
     * that would do; NULL: not wanted. */
    double *fits;
};

struct engine {
    struct engine_device device;
    struct weights weights;
    struct forward *forward;
    struct ranks *ranks; /* the others, where the system's model is divided; NULL: there are none */
    struct step_limits limits;
    const struct system *system;
};

/* ERR_USAGE when the system needs what the engine does not run; ERR_WORLD when there is no such
 * device, or its free memory is less than the budget: how much is missing, and what would fit. */
int engine_open(const struct engine_request *request, struct engine **out, struct err *err);
void engine_close(struct engine *engine); /* NULL is fine */

/* Device memory: what the budget plans for weights, workspace and pool (where these two are mapped,
 * in whole granules), what is allocated for them, and what is not because nothing has needed it:
 * the first is the sum of the others. Besides, what the budget calls its reserve is for. */
struct engine_memory {
    int64_t planned_bytes, metered_bytes;
    int64_t unmapped_bytes; /* 0 where nothing is mapped */
    /* Where memory is mapped: the most at once so far, what went from the one to the other, and
     * how many calls to the device that took, and how long. */
    bool is_mapped;
    int64_t mapped_peak_bytes, lent_bytes, mapping_calls, mapping_ns;
    int64_t side_bytes; /* canvases, tables, staging and the device's own scratch */
};
struct engine_memory engine_memory(const struct engine *engine);

/* What its devices are, at most `most`: of several ranks each one's. */
void engine_facts(const struct engine *engine, uint32_t most, const struct device_facts **out,
                  uint32_t *n);

/* What its cards have drawn since their driver was loaded, by their own counter, which moves about
 * every tenth of a second; 0 where one of them has none. */
double engine_energy_j(const struct engine *engine);

#endif
