#include "engine/supported.h"

#include <inttypes.h>

#include "engine/session/session.h"
#include "sim/decode/block.h"

/* The row sets that the engine cannot run, and why. */
static int refuse_rows(const struct system *system, struct err *err) {
    const struct row_sets *rows = &system->rows;
    const char *name = system->cache->policy.name;
    if (rows->kind == ROW_FEATURES || rows->chooser == CHOSEN_BY_CHANGE) {
        return err_usage(err,
                         "the engine does not run cache policy %s: it keeps keys and values of a "
                         "canvas, and runs the same positions through all layers",
                         name);
    }
    if (rows->kind == ROW_PATTERN) {
        return err_usage(err,
                         "the engine does not run cache policy %s: it has no attention in which "
                         "each head leaves out keys of its own",
                         name);
    }
    bool scatters = rows->settles == BLOCK_DELAYED || rows->settles == BLOCK_NEIGHBOUR ||
                    rows->chooser == CHOSEN_BY_POLICY;
    if (scatters && system->model->shifted_logits) {
        return err_usage(err,
                         "the engine does not run cache policy %s with %s: its logits decide on "
                         "the next position, and the one before a masked position may be left out",
                         name, system->model->name);
    }
    if (rows->chooser == CHOSEN_BY_POLICY && system->settings.iteration == ITERATION_SMOOTH) {
        return err_usage(err,
                         "iteration = smooth keeps what a step says of every masked position, and "
                         "cache %s evicts some in its middle: the engine does not run both",
                         name);
    }
    return 0;
}

/* Rules that look at every position's place among the others do so for so many, at most. */
static int check_rule(const struct system *system, struct err *err) {
    uint32_t kind = decoder_rule_always(system->decoder, system->decoder_state).kind;
    bool is_ranked = kind != DECODE_COUNT && kind != DECODE_THRESHOLD;
    return !is_ranked || system->settings.block_tokens <= DECODE_MAX_RANKED
               ? 0
               : err_usage(err,
                           "the engine decides by %s in blocks of at most %d tokens, not %" PRIu32,
                           system->decoder->policy.name, DECODE_MAX_RANKED,
                           system->settings.block_tokens);
}

int supports_policies(const struct system *system, struct err *err) {
    if (refuse_rows(system, err) != 0) {
        return (int)err->kind;
    }
    const struct decoder *decoder = system->decoder;
    if (system->settings.unroll_maximum > 1 && decoder->choose != NULL) {
        return err_usage(err,
                         "decoder %s chooses on the host after each step, which unroll.maximum = "
                         "%" PRIu32 " does not let it: set unroll.maximum = 1",
                         decoder->policy.name, system->settings.unroll_maximum);
    }
    if (system->row_bytes % (STORE_ALIGN_ELEMENTS * system->runtime.element_bytes) != 0) {
        return err_usage(err,
                         "the engine keeps rows of a multiple of %d values, those of %s have "
                         "%" PRId64,
                         STORE_ALIGN_ELEMENTS, system->model->name,
                         system->row_bytes / system->runtime.element_bytes);
    }
    return check_rule(system, err);
}

int supports_runtime(const struct system *system, struct err *err) {
    const struct runtime *runtime = &system->runtime;
    if (!runtime->varlen) {
        return err_usage(err, "the engine runs packed batches, runtime %s pads them",
                         system->runtime_name);
    }
    if (runtime->gathers_cache) {
        return err_usage(err,
                         "runtime %s gathers cached rows, which the engine does not: set "
                         "runtime = unmask",
                         system->runtime_name);
    }
    if (!runtime->engine) {
        return err_usage(err,
                         "system %s has runtime.engine = off, steps without what the engine's "
                         "kernels hold: to run it, add --set runtime.engine=on",
                         system->name);
    }
    return 0;
}

/* calls.h says which heads a GPU's kernels take. */
int supports_heads(const struct system *system, const struct device_facts *facts, struct err *err) {
    const uint32_t head = system->model->head_dim;
    const bool is_paged = system->rows.kind == ROW_EXACT;
    return facts->capability == 0 || head == 128 || (is_paged && head == 64)
               ? 0
               : err_usage(err,
                           "attention on a GPU takes heads of %s, those of %s have %" PRIu32
                           ": the cpu back end runs it",
                           is_paged ? "64 or 128 values" : "128 values", system->model->name, head);
}

int supports_system(const struct system *system, const struct engine_device *device,
                    struct err *err) {
    int64_t element_bytes = engine_element_bytes(device);
    if (supports_heads(system, &device->facts, err) != 0) {
        return (int)err->kind;
    }
    if (system->settings.temperature != 1 && !system_reads_logits(system)) {
        return err_usage(err,
                         "the engine divides logits by temperature = %g where they are stored and "
                         "nothing else is done with them: set runtime.fused_head = off and another "
                         "decoder than credit, iteration = plain, or temperature = 1",
                         system->settings.temperature);
    }
    if (system->settings.tensor_parallel > 1 && system_reads_logits(system)) {
        return err_usage(err,
                         "sampling looks at the logits of all GPUs, which the engine does not: set "
                         "tensor_parallel = 1");
    }
    if (system->settings.replicas != 1) {
        return err_usage(err, "the engine runs one replica, the system has %" PRIu32,
                         system->settings.replicas);
    }
    if (system->settings.tensor_parallel > 1 && system->decoder->credit != NULL) {
        return err_usage(err,
                         "decoder %s looks at the logits of all GPUs, which the engine does not: "
                         "set tensor_parallel = 1",
                         system->decoder->policy.name);
    }
    if (system->settings.tensor_parallel > 1 && system->settings.iteration == ITERATION_SMOOTH) {
        return err_usage(err,
                         "iteration = smooth looks at the logits of all GPUs, which the engine "
                         "does not: set tensor_parallel = 1");
    }
    if (system->runtime.element_bytes != element_bytes) {
        return err_usage(err,
                         "the %s back end computes in %" PRId64 "-byte elements, the system says "
                         "runtime.element_bytes = %" PRId64,
                         device->table->name, element_bytes, system->runtime.element_bytes);
    }
    return supports_policies(system, err);
}
