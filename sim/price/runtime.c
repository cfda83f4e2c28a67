#include "sim/price/runtime.h"

#define FLAG(field, doc) PARAM(#field, PARAM_BOOL, struct runtime, field, "1", "off", 0, 1, doc)
#define BYTES(field, initial, min, max, doc)                                                       \
    PARAM(#field, PARAM_I64, struct runtime, field, "bytes", initial, min, max, doc)
#define NUMBER(name, field, unit, max, doc)                                                        \
    PARAM(name, PARAM_F64, struct runtime, field, unit, "0", 0, max, doc)
/* A key for each kind of step, as far as a system has it; `where`: of all of them. */
/* NOLINTBEGIN(bugprone-macro-parentheses): parts of a name */
#define KINDS(name, end, field, unit, max, doc, where, and)                                        \
    NUMBER(name "_refresh" end, field[HOST_REFRESH], unit, max, doc where),                        \
        NUMBER(name "_reuse" end, field[HOST_REUSE], unit, max, doc and "reuses = on]"),           \
        NUMBER(name "_select" end, field[HOST_SELECT], unit, max, doc and "selects = on]")
/* NOLINTEND(bugprone-macro-parentheses) */
#define HOST_KINDS(name, end, field, doc)                                                          \
    KINDS(name, end, field, "ns", 1e10, doc, " [priced = on]", " [priced = on and ")
#define LAUNCHES "priced = on and runtime.small_kernel_ns > 0"
#define LAUNCH_KINDS(name, field, doc)                                                             \
    KINDS(name, "", field, "1", 1e7, doc, " [" LAUNCHES "]", " [" LAUNCHES " and ")

static const char *const host_mode_words[] = {"overlaps", "serial", "by-layers", "loops", NULL};

const struct param runtime_params[] = {
    FLAG(varlen, "packed batches; off: padded to the longest request"),
#define GRAPH_FLAG(field, doc)                        FLAG(field, doc),
#define GRAPH_BYTES(field, initial, least, most, doc) BYTES(field, initial, least, most, doc),
#include "sim/step/runtime_part.def"
    FLAG(varlen_attention,
         "prefills and single queries in one call of FlashAttention-2, long "
         "sequences split in small batches only [model.attention = autoregressive]"),
    FLAG(batch_invariant, "a request's bits do not depend on the rest of the batch; slower on a "
                          "GPU, which no price includes [backend = cpu|cuda]"),
    FLAG(vmm, "live runs map memory for workspace and cached rows as steps need it "
              "[backend = cpu|cuda]"),
    PARAM_ONE_OF("host_mode", struct runtime, host_mode, host_mode_words, "overlaps",
                 "whether the host runs ahead of the device; loops: all but its time for each "
                 "request does [priced = on and host_terms = on]"),
    NUMBER("host_refresh_ns", host_step_ns[HOST_REFRESH], "ns", 1e10,
           "host time of a step with a refresh [priced = on]"),
    NUMBER("host_reuse_ns", host_step_ns[HOST_REUSE], "ns", 1e10,
           "host time of a step of reuse alone [priced = on and reuses = on]"),
    NUMBER("host_select_ns", host_step_ns[HOST_SELECT], "ns", 1e10,
           "host time of a step with a selection [priced = on and selects = on]"),
    NUMBER("host_request_refresh_ns", host_request_ns[HOST_REFRESH], "ns", 1e10,
           "host time for each request in refresh [priced = on]"),
    NUMBER("host_request_reuse_ns", host_request_ns[HOST_REUSE], "ns", 1e10,
           "host time for each request in reuse [priced = on and reuses = on]"),
    NUMBER("host_request_select_ns", host_request_ns[HOST_SELECT], "ns", 1e10,
           "host time for each request that selects [priced = on and selects = on]"),
    LAUNCH_KINDS("launches", launches_step, "launches of a step of this kind"),
    LAUNCH_KINDS("launches_request", launches_request, "launches for each request of this kind"),
    NUMBER("host_sync_refresh_ns", host_sync_ns[HOST_REFRESH], "ns", 1e10,
           "time that the device waits in a step for a host that runs ahead, where the code "
           "synchronises [priced = on and runtime.host_mode = overlaps]"),
    NUMBER("host_sync_reuse_ns", host_sync_ns[HOST_REUSE], "ns", 1e10,
           "time that the device waits so in a step of reuse alone [priced = on and "
           "runtime.host_mode = overlaps and reuses = on]"),
    NUMBER("host_sync_layer_ns", host_sync_layer_ns, "ns", 1e10,
           "time that the device waits so for each layer of a step of reuse alone [priced = on and "
           "runtime.host_mode = overlaps and reuses = on]"),
    NUMBER("product_ratio", product_ratio, "1", 10,
           "time of products over the profile's, which was measured at the power limit; 0: 1 "
           "[priced = on]"),
    NUMBER(
        "small_kernel_ns", small_kernel_ns, "ns", 1e7,
        "device time of a launch beyond those of the step graph [priced = on and launches = on]"),
    FLAG(whole_head,
         "each rank has the whole output head; off: its share of it [tensor_parallel > 1]"),
    NUMBER("host_visit_ns", host_visit_ns, "ns", 1e10,
           "host time each time that the scheduler is asked, while the device waits, whatever "
           "host_mode says; further steps of its batch pay none [priced = on]"),
    NUMBER("host_visit_request_ns", host_visit_request_ns, "ns", 1e10,
           "host time then for each request of the batch [priced = on]"),
    NUMBER("host_visit_cached_ns", host_visit_cached_ns, "ns", 1e7,
           "host time then for each cached row of its requests, to find and enter prefixes [priced "
           "= on and prefix_caching = on]"),
    NUMBER("host_plan_ns", host_plan_ns, "ns", 1e11,
           "host time of each plan that a released search makes of a step, while the device waits: "
           "one for each number of chunks that it tries and one of what it found [priced = on and "
           "allocator = planned]"),
    NUMBER("host_look_ns", host_look_ns, "ns", 1e10,
           "host time for each request, once its logits are there [priced = on and "
           "runtime.host_mode = by-layers]"),
    HOST_KINDS("host_layer", "_ns", host_layer_ns,
               "host time for each layer of a step of this kind"),
    HOST_KINDS("host_layer_request", "_ns", host_layer_request_ns,
               "host time for each layer and request of this kind"),
    LAUNCH_KINDS("launches_layer", launches_layer,
                 "launches for each layer of a step of this kind"),
    LAUNCH_KINDS("launches_layer_request", launches_layer_request,
                 "launches for each layer and request of this kind"),
};
const size_t runtime_n_params = sizeof runtime_params / sizeof runtime_params[0];

static int settle(void *thing, const char *place, struct err *err) {
    struct runtime_preset *preset = thing;
    int kind = provenance_find(preset->host_kind_word);
    if (kind < 0) {
        return err_usage(err, "%s: host_kind = '%s', expected measured, transferred or assumed",
                         place, preset->host_kind_word);
    }
    preset->host_kind = (enum provenance_kind)kind;
    return 0;
}

static const struct catalogue_text texts[] = {
    {"doc", offsetof(struct runtime_preset, doc), false},
    {"source", offsetof(struct runtime_preset, source), false},
    {"host_kind", offsetof(struct runtime_preset, host_kind_word), false},
    {"host_model", offsetof(struct runtime_preset, host_model), true},
    {NULL, 0, false},
};

static struct catalogue runtimes = {
    .what = "runtime",
    .section = "runtime",
    .list = "runtimes",
    .folder = "sim/price/runtimes",
    .size = sizeof(struct runtime_preset),
    .texts = texts,
    .params = runtime_params,
    .n_params = sizeof runtime_params / sizeof runtime_params[0],
    .params_offset = offsetof(struct runtime_preset, runtime),
    .settle = settle,
};

const struct runtime_preset *runtime_find(const char *name, struct err *err) {
    return catalogue_find(&runtimes, name, err);
}

const struct runtime_preset *const *runtime_all(struct err *err) {
    return (const struct runtime_preset *const *)catalogue_all(&runtimes, err);
}
