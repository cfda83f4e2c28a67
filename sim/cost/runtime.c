#include "sim/cost/runtime.h"

#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"

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
    NUMBER("evict_ns", evict_ns, "ns", 1e9,
           "a step that evicts, beyond its operators: the wait for the host"),
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

/* Sources, all from the reference runs of the released implementations on one H200 (2026-11-21,
 * LLaDA-8B shape, prompt 256, generation 256, block 32; experiments/reference/h200_released.csv):
 *
 * hf-eager. Fast-dLLM dual, batch 1: reuse 26.0 ms wall, 9.9 ms device; refresh 20.9 ms wall. Wall
 *   follows the larger of host and device (batch 4: reuse 26.3 ms, still the host; refresh 67.4 ms,
 *   the device). The decoding code casts bf16 logits to float64 and stores a float64 softmax:
 *   2 + 8 + 8 bytes a logit, which also gives its measured peak memory (1.34 GiB a request with
 * keys and values, computed and measured). Launches, of the second measurement
 *   (experiments/gpu/results/2026-11-22-h200-released; the first counted each kernel and its
 * launch, 2949 and 4454): 1417 in a refresh, 1994 in a reuse, and 8 and 5 more a request. 1.7 us
 * each beyond the operators: what a reuse takes beside products and attention is 2.9 ms + 1.65 ms a
 *   request from 1 to 64, and 2.9 ms are 1735 launches. host_sync: steps that the device bounds
 * take 3 ms more than it (1 to 5 ms, all programs; the loop looks at what it sampled before it goes
 * on), the dual cache's reuse 11.6 ms (three synchronisations a layer), on a host that takes 46.4
 * ms for the reuse of one request: times 26.0 over 46.4 on the reference host. product_ratio, of
 * systems on an H200: the product of 1024 rows, 12288 by 4096, takes 131.1 us in the reuse of 32
 * requests and 152.7 us in a loop of products at the power limit
 *   (2026-11-22-h200-decisions/cold-products.csv), which is where profiles are measured.
 *
 *   What is the step's and what a layer's: kernels of the same programs at 32, 16 and 8 layers
 *   (2026-11-22, experiments/gpu/results/2026-11-22-h200-released) are 41 and 43 a layer (refresh),
 *   42 and 61 (reuse), 37 and 61 (select), and of their wall time at 8 and 16 layers the layers
 * take 92, 95.6 and 98.6 % of a step of 32; the reference host's times are divided likewise.
 *
 * nano-vllm. dLLM-Serve as released, wall = device + host: with a + b n + device fitted to 33.0 ms
 *   (1 reuse, device 7.2) and 517.5 ms (64 reuse, device 114.8): a = 19.8 ms, b = 5.98 ms; predicts
 *   657 ms for 30 refresh + 32 reuse (measured 652). A selecting request adds 17.8 ms (measured at
 *   1, 32 and 30 + 32 requests: 17.8, 17.2, 18.5). 1354 launches per reuse request; 0.68 us of
 *   device time each (114.8 ms less 50 ms of products and 6 ms of copies over 86,664 launches).
 *   Its requests are gathered layer by layer, so that their terms are a layer's; of a step's, as
 * much as in hf-eager (assumed).
 *
 * dinfer-eager. What dInfer v0.1's benchmark runs Fast-dLLM on (inclusionAI/dInfer@eecb211,
 *   benchmarks/benchmark_dataset_fastdllm.py): its own LLaDA-MoE with vLLM's fused experts, neither
 *   compiled nor recorded. Kernels a layer, counted in modeling_fused_olmoe.py under PyTorch 2.7
 *   (which vllm==0.9.1 asks for): four norms of 8, three products and the output's, rotation 12,
 * cache 4 (slice_scatter; none in refresh), attention 2, two sums over ranks and two residuals,
 * experts 17 (router in float32, top-k, alignment, two grouped products, activation, sum): 73, and
 * 40 a step. 13.0 us a kernel is what Fast-dLLM's reuse takes on the reference host (26.0 ms, 1,994
 * kernels). Its get_transfer_index then asks the device about each masked position of the block, in
 * five launches and a wait: 32 positions on average of a block of 64.
 *
 * dinfer. dInfer v0.1 itself: torch.compile with recorded graphs, vLLM's tensor-parallel products
 * of attention, experts divided whole among ranks, all-reduce by NCCL, each rank with the whole
 * head, keys and values scattered into a copy of the cache. What the host takes until the recorded
 * graph of a step starts is not printed: 0 here, and a system says it (dinfer-published).
 *
 * vllm. vLLM 0.19 as it runs by default: asynchronous scheduling prepares the next step while one
 *   runs, so the device waits for nothing in steps of decoding (of one request on an RTX PRO 6000:
 *   11.5 ms measured, 11.4 priced); logits are float32. What steps with a prefill take beyond their
 *   operators differs between the servers that were measured, from nothing to some milliseconds:
 *   nothing is assumed, and a system that was measured says host_refresh_ns.
 *
 * lmdeploy. What its PyTorch engine fuses, by its code: residual and norm, queries, keys and values
 * in one product, rotation, SwiGLU behind the gate and up product, all in Triton; no CUDA graph, as
 *   FOCUS's paper ran it (appendix F.1). Its sampler goes over the dense logits of every request's
 *   block, whatever was evicted (_scatter_logits): division, argmax and softmax are a cost of a
 *   request and a step as its Python is (update_running), and one term stands for both.
 *
 * unmask. Assumed until measured: one graph launch per step and a few microseconds of bookkeeping
 *   per request. evict_ns is the constant of that name in experiments/calibrated.ini, which a
 *   system takes where its cache evicts. */
const struct runtime_preset runtime_table[] = {
    {"hf-eager",
     "Hugging Face eager: padded, unfused, float64 softmax, a launch per operator",
     "H200 reference runs, 2026-11-21",
     PROVENANCE_MEASURED,
     "llada-8b",
     {.logits_bytes = 2,
      .element_bytes = 2,
      .copy_bytes = 8,
      .softmax_bytes = 8,
      .host_mode = HOST_OVERLAPS,
      .host_step_ns = {1.66e6, 1.136e6, 0.332e6},
      .host_layer_ns = {601.25e3, 777e3, 724e3},
      .launches_step = {41, 42, 37},
      .launches_layer = {43, 61, 61},
      .host_sync_ns = {1.7e6, 1.7e6, 1.7e6},
      .launches_request = {8, 5, 8},
      .small_kernel_ns = 1700}},
    {"nano-vllm",
     "dLLM-Serve as released: packed, gathers cached rows per request and layer",
     "H200 reference runs, 2026-11-21",
     PROVENANCE_MEASURED,
     "llada-8b",
     {.varlen = true,
      .fused = true,
      .gathers_cache = true,
      .logits_bytes = 2,
      .element_bytes = 2,
      .softmax_bytes = 2,
      .host_mode = HOST_SERIAL,
      .host_step_ns = {1.56e6, 1.56e6, 1.56e6},
      .host_layer_ns = {570e3, 570e3, 570e3},
      .host_layer_request_ns = {0, 186.875e3, 556.25e3},
      .launches_step = {87, 87, 87},
      .launches_layer = {89.5, 89.5, 89.5},
      .launches_layer_request = {0, 42.3125, 90},
      .small_kernel_ns = 680}},
    {"dinfer-eager",
     "dInfer's model uncompiled, as its benchmark runs Fast-dLLM: fused experts, float64 softmax",
     "kernels counted in inclusionAI/dInfer@eecb211, each as long as in the H200 reference runs",
     PROVENANCE_TRANSFERRED,
     NULL,
     {.gathers_cache = true,
      .whole_head = true,
      .logits_bytes = 2,
      .element_bytes = 2,
      .copy_bytes = 8,
      .softmax_bytes = 8,
      .host_mode = HOST_BY_LAYERS,
      .host_step_ns = {520e3, 520e3, 520e3},
      .host_layer_ns = {897e3, 949e3, 949e3},
      .host_look_ns = 2.08e6,
      .launches_step = {40, 40, 40},
      .launches_layer = {69, 73, 73},
      .small_kernel_ns = 2000}},
    {"dinfer",
     "dInfer v0.1: torch.compile and recorded graphs, NCCL, the whole head on each rank",
     "inclusionAI/dInfer@eecb211",
     PROVENANCE_ASSUMED,
     NULL,
     {.varlen = true,
      .fused = true,
      .gathers_cache = true,
      .whole_head = true,
      .logits_bytes = 2,
      .element_bytes = 2,
      .host_mode = HOST_SERIAL}},
    {"vllm",
     "vLLM V1: compiled, packed, CUDA graphs, FlashAttention-2, the next step prepared meanwhile",
     "documented behaviour: the host is hidden behind the device",
     PROVENANCE_ASSUMED,
     NULL,
     {.varlen = true,
      .fused = true,
      .varlen_attention = true,
      .logits_bytes = 4,
      .element_bytes = 2,
      .host_mode = HOST_SERIAL}},
    {"lmdeploy",
     "LMDeploy's PyTorch engine, eager: packed, Triton's kernels, Python by request and step",
     "a request's term is the system's to say",
     PROVENANCE_ASSUMED,
     NULL,
     {.varlen = true,
      .fused = true,
      .logits_bytes = 2,
      .element_bytes = 2,
      .host_mode = HOST_SERIAL}},
    {"unmask",
     "our engine: packed, fused, a recorded step launched at once",
     "assumed until measured",
     PROVENANCE_ASSUMED,
     NULL,
     {.varlen = true,
      .fused = true,
      .engine = true,
      .fused_gate_up = true,
      .logits_bytes = 2,
      .element_bytes = 2,
      .host_mode = HOST_SERIAL,
      .host_step_ns = {50e3, 50e3, 50e3},
      .host_request_ns = {1e3, 1e3, 1e3}}},
};
const size_t runtime_table_size = sizeof runtime_table / sizeof runtime_table[0];

const struct runtime_preset *runtime_find(const char *name, struct err *err) {
    const char *names[sizeof runtime_table / sizeof runtime_table[0] + 1] = {NULL};
    for (size_t i = 0; i < runtime_table_size; i++) {
        if (strcmp(runtime_table[i].name, name) == 0) {
            return &runtime_table[i];
        }
        names[i] = runtime_table[i].name;
    }
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    err_usage(err, "unknown runtime '%s'%s (`unmask list runtimes` prints them all)", name, hint);
    return NULL;
}
