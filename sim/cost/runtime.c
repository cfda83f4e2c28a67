#include "sim/cost/runtime.h"

#define FLAG(field, doc)                                                                           \
    { #field, PARAM_BOOL, 0, "1", "off", 0, 1, NULL, offsetof(struct runtime, field), doc }
#define BYTES(field, doc)                                                                          \
    { #field, PARAM_I64, 0, "bytes", "0", 0, 8, NULL, offsetof(struct runtime, field), doc }
#define NUMBER(name, field, unit, max, doc)                                                        \
    { name, PARAM_F64, 0, unit, "0", 0, max, NULL, offsetof(struct runtime, field), doc }

const char *const host_kind_names[HOST_KIND_COUNT] = {"refresh", "reuse", "select"};

static const char *const host_mode_words[] = {"overlaps", "serial", "by-layers", NULL};

const struct param runtime_params[] = {
    FLAG(varlen, "packed batches; off: padded to the longest request"),
    FLAG(fused, "one kernel per norm, rotation and activation; off: eager PyTorch in float32"),
    FLAG(gathers_cache, "reuse gathers and concatenates cached rows per layer"),
    FLAG(rotates_cache, "keys are cached before rotation: unfused, all are rotated in every step"),
    BYTES(logits_bytes, "bytes of one logit as the head writes it"),
    BYTES(copy_bytes, "bytes of one logit in the copy made before the softmax; 0: none"),
    BYTES(softmax_bytes, "bytes of one stored probability; 0: none"),
    FLAG(engine, "our own kernels, with what they hold besides: the runtime of --backend"),
    FLAG(fused_gate_up, "the activation is part of the gate and up product"),
    FLAG(query_chunks, "queries are projected apart from keys and values, in chunks that attention "
                       "writes over"),
    FLAG(shift_copy,
         "logits that decide on the position behind theirs (Dream) are concatenated anew; "
         "off: in place"),
    FLAG(fused_head, "logits are reduced as they are made and never stored"),
    FLAG(varlen_attention, "prefills and single queries in one call of FlashAttention-2, long "
                           "sequences split in small batches only"),
    FLAG(batch_invariant, "the same bits for a request whatever else is in the batch; costs speed "
                          "on a GPU, which no price includes"),
    {"element_bytes", PARAM_I64, 0, "bytes", "2", 2, 4, NULL,
     offsetof(struct runtime, element_bytes), "bytes of a weight, an activation, a cached value"},
    FLAG(vmm, "live runs map memory behind workspace and cached rows as steps need it"),
    {"host_mode", PARAM_WORD, 0, "1", "overlaps", 0, 2, host_mode_words,
     offsetof(struct runtime, host_mode), "whether the host runs ahead of the device"},
    NUMBER("host_refresh_ns", host_step_ns[HOST_REFRESH], "ns", 1e10, "per step with a refresh"),
    NUMBER("host_reuse_ns", host_step_ns[HOST_REUSE], "ns", 1e10, "per step of reuse alone"),
    NUMBER("host_select_ns", host_step_ns[HOST_SELECT], "ns", 1e10, "per step with a selection"),
    NUMBER("host_request_refresh_ns", host_request_ns[HOST_REFRESH], "ns", 1e10,
           "and for each request in refresh"),
    NUMBER("host_request_reuse_ns", host_request_ns[HOST_REUSE], "ns", 1e10,
           "and for each request in reuse"),
    NUMBER("host_request_select_ns", host_request_ns[HOST_SELECT], "ns", 1e10,
           "and for each request that selects"),
    NUMBER("launches_refresh", launches_step[HOST_REFRESH], "1", 1e7, "launches of such a step"),
    NUMBER("launches_reuse", launches_step[HOST_REUSE], "1", 1e7, "launches of such a step"),
    NUMBER("launches_select", launches_step[HOST_SELECT], "1", 1e7, "launches of such a step"),
    NUMBER("launches_request_refresh", launches_request[HOST_REFRESH], "1", 1e7,
           "and for each request"),
    NUMBER("launches_request_reuse", launches_request[HOST_REUSE], "1", 1e7,
           "and for each request"),
    NUMBER("launches_request_select", launches_request[HOST_SELECT], "1", 1e7,
           "and for each request"),
    NUMBER("host_sync_refresh_ns", host_sync_ns[HOST_REFRESH], "ns", 1e10,
           "per step, the device waits for a host that runs ahead: the code synchronises"),
    NUMBER("host_sync_reuse_ns", host_sync_ns[HOST_REUSE], "ns", 1e10,
           "the same in a step of reuse alone"),
    NUMBER("host_sync_layer_ns", host_sync_layer_ns, "ns", 1e10,
           "and for each layer of a step of reuse alone"),
    NUMBER("product_ratio", product_ratio, "1", 10,
           "products over the profile's, which was measured at the power limit; 0: 1"),
    NUMBER("small_kernel_ns", small_kernel_ns, "ns", 1e7, "device time of a launch beyond those"),
    FLAG(whole_head, "of several ranks each has the whole output head; off: its share of it"),
    NUMBER("host_look_ns", host_look_ns, "ns", 1e10,
           "host_mode = by-layers: for each request, once its logits are there"),
    NUMBER("host_layer_refresh_ns", host_layer_ns[HOST_REFRESH], "ns", 1e10,
           "and for each layer of such a step"),
    NUMBER("host_layer_reuse_ns", host_layer_ns[HOST_REUSE], "ns", 1e10,
           "and for each layer of such a step"),
    NUMBER("host_layer_select_ns", host_layer_ns[HOST_SELECT], "ns", 1e10,
           "and for each layer of such a step"),
    NUMBER("host_layer_request_refresh_ns", host_layer_request_ns[HOST_REFRESH], "ns", 1e10,
           "and for each layer and request"),
    NUMBER("host_layer_request_reuse_ns", host_layer_request_ns[HOST_REUSE], "ns", 1e10,
           "and for each layer and request"),
    NUMBER("host_layer_request_select_ns", host_layer_request_ns[HOST_SELECT], "ns", 1e10,
           "and for each layer and request"),
    NUMBER("launches_layer_refresh", launches_layer[HOST_REFRESH], "1", 1e7,
           "and for each layer of such a step"),
    NUMBER("launches_layer_reuse", launches_layer[HOST_REUSE], "1", 1e7,
           "and for each layer of such a step"),
    NUMBER("launches_layer_select", launches_layer[HOST_SELECT], "1", 1e7,
           "and for each layer of such a step"),
    NUMBER("launches_layer_request_refresh", launches_layer_request[HOST_REFRESH], "1", 1e7,
           "and for each layer and request"),
    NUMBER("launches_layer_request_reuse", launches_layer_request[HOST_REUSE], "1", 1e7,
           "and for each layer and request"),
    NUMBER("launches_layer_request_select", launches_layer_request[HOST_SELECT], "1", 1e7,
           "and for each layer and request"),
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
    .folder = "sim/cost/runtimes",
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
