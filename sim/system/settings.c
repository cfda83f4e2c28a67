#include "sim/system/settings.h"

#include <stddef.h>

#define KEY(key, kind, field, unit, initial, min, max, doc)                                        \
    PARAM(key, kind, struct settings, field, unit, initial, min, max, doc)
#define WHOLE(field, unit, initial, min, max, doc)                                                 \
    KEY(#field, PARAM_U32, field, unit, initial, min, max, doc)
#define FLAG(field, initial, doc) KEY(#field, PARAM_BOOL, field, "1", initial, 0, 1, doc)
#define CHOICE(key, field, words, initial, doc)                                                    \
    PARAM_ONE_OF(key, struct settings, field, words, initial, doc)
#define STORAGE(field, words, initial, doc)                                                        \
    CHOICE("storage." #field, storage.field, words, initial, doc)
#define SMOOTHING(field, initial, max, doc)                                                        \
    KEY("iteration." #field, PARAM_F64, smoothing.field, "1", initial, 0, max, doc)

static const char *const iteration_words[] = {"plain", "smooth", NULL};
static const char *const early_stop_words[] = {"off", "block", "position", "window", NULL};
static const char *const probabilities_words[] = {"released", "tempered", "model", "kept", NULL};
static const char *const kv_layout_words[] = {"pages", "slab", NULL};
const char *const step_allocator_words[] = {"planned", "torch", "torch-expandable", "torch-compile",
                                            NULL};
static const char *const chunk_search_words[] = {"none",   "bottleneck", "brute-force",
                                                 "always", "longest",    NULL};
static const char *const profile_canvas_words[] = {"context", "workload", NULL};
static const char *const sample_scope_words[] = {"logits", "output", NULL};
static const char *const expert_router_words[] = {"trained", "random", NULL};
static const char *const logit_scope_words[] = {"queries", "generation", "block", "masked", NULL};

static const char *const storage_words[] = {"auto", "bf16", "f32", "fp8", "fp8-channel", NULL};
static const char *const cache_words[] = {"auto", "bf16", "f32", "fp8", NULL};
static const char *const wide_words[] = {"auto", "bf16", "f32", NULL};

const struct param system_params[] = {
    WHOLE(block_tokens, "tokens", "0", 0, 65536,
          "positions decoded together (0: the model's default) [backend != lmax or rows = exact]"),
    WHOLE(
        blocks_in_flight, "blocks", "1", 1, 64,
        "most blocks of a request that are decoded together, those that a step stores among them; "
        "where the window slides, how long it may become"),
    KEY("block_add_threshold", PARAM_F64, block_add_threshold, "1", "0.1", 0, 1,
        "share of a block that is decided before anything of the next one is (0: all are decoded "
        "together from the first step) [blocks_in_flight > 1 and window_slides = off]"),
    FLAG(window_slides, "off",
         "the positions that are decoded together are block_tokens from the first masked one on, "
         "after every step anew; with blocks_in_flight > 1 as many masked ones, so that its end "
         "moves by what was committed (DSB) [model.attention = bidirectional]"),
    FLAG(static_blocks, "off",
         "a step runs blocks_in_flight blocks, those that nothing is decided of yet among them, as "
         "MultiBD's graphs do [blocks_in_flight > 1]"),
    WHOLE(steps_per_block, "steps", "0", 0, 65536,
          "denoising steps of a block (0: one per position) [steps = on and block_tokens > 1 and "
          "serves = on]"),
    WHOLE(context_tokens, "tokens", "0", 0, 1 << 24,
          "longest canvas served (0: the model's, at most 32768) [serves = on]"),
    WHOLE(profile_canvas_tokens, "tokens", "0", 0, 1 << 24,
          "canvas of the profiling run that sizes batch or pool (0: by profile_canvas) [serves = "
          "on and kv = slab or serves = on and chunk_search != none]"),
    CHOICE(
        "profile_canvas", profile_canvas, profile_canvas_words, "context",
        "canvas of the profiling run: the context, or the workload's longest request (without a "
        "workload: the context) [asked.profile_canvas_tokens = 0 and serves = on and kv = slab]"),
    FLAG(profile_whole_canvases, "off",
         "the profiling run has as many whole canvases of the context as max_batched_tokens holds, "
         "which may be none, and a larger step takes what memory_utilization leaves (off: the "
         "largest step) [serves = on and kv = pages]"),
    WHOLE(max_batched_tokens, "tokens", "16384", 1, 1e8,
          "most query tokens in one step [backend != lmax]"),
    WHOLE(max_requests, "1", "0", 0, SETTINGS_MOST_REQUESTS,
          "most requests running at once (0: by the profiling run) [backend != lmax]"),
    WHOLE(replicas, "1", "1", 1, 1024, "identical GPUs, each with the whole model [serves = on]"),
    WHOLE(tensor_parallel, "1", "1", 1, 1024,
          "GPUs that hold each replica together: 1, 2, 4 or 8 of one host"),
    FLAG(expert_parallel, "off",
         "the GPUs of a replica divide a mixture's experts among themselves (off: they divide each "
         "expert's width)"),
    KEY("experts_hit", PARAM_F64, experts_hit, "1", "0", 0, 65536,
        "experts of a layer that one block's tokens hit (0: as published for the model, else by "
        "random choice; all experts: by random choice)"),
    CHOICE("expert_router", expert_router, expert_router_words, "trained",
           "router whose choice of experts is priced, whatever the source of prices: the trained "
           "one (experts_hit) or one of random weights, as in live runs without a checkpoint "
           "[model.experts > 0]"),
    KEY("evict_wait_ns", PARAM_F64, evict_wait_ns, "ns", "0", 0, 1e9,
        "time that a step in which FOCUS evicts waits for the host to choose [evicts = on]"),
    WHOLE(max_in_system, "1", "131072", 1, 1e8, "most requests waiting and running [serves = on]"),
    WHOLE(page_tokens, "tokens", "256", 1, 65536,
          "rows of one page of cached state [kv = pages and backend != lmax]"),
    WHOLE(pool_pages, "pages", "0", 0, 1e8,
          "pages of cached state (0: as many as fit) [kv = pages and backend != lmax]"),
    CHOICE("kv", kv_layout, kv_layout_words, "pages",
           "pages out of one pool, or a slab per request [backend != lmax]"),
    CHOICE("logit_scope", logit_scope, logit_scope_words, "block",
           "rows that go through the output head [model.attention != autoregressive]"),
    CHOICE("sample_scope", sample_scope, sample_scope_words, "logits",
           "rows of logits that are sampled: all, or those of the output"),
    CHOICE("allocator", allocator, step_allocator_words, "planned",
           "allocator of a step's tensors (all but planned: for lmax only)"),
    KEY("logit_chunk_rows", PARAM_I64, logit_chunk_rows, "rows", "0", 0, 1e8,
        "logit rows in memory at once (0: all, monolithic) [allocator = planned]"),
    CHOICE(
        "chunk_search", chunk_search, chunk_search_words, "none",
        "how FFN, logits and attention are chunked when a step does not fit (always: even when it "
        "fits; longest: always, for the longest canvas, half of it prompt) [allocator = planned]"),
    WHOLE(chunk_grid, "1", "32", 1, 1024,
          "most chunks of each kind that brute-force combines [chunk_search = brute-force]"),
    WHOLE(attention_chunks, "1", "1", 1, 1024,
          "chunks of the attention under chunk_search = always and runtime.query_chunks "
          "[chunk_search = always and runtime.query_chunks = on]"),
    WHOLE(ffn_chunks, "1", "1", 1, 1024,
          "chunks of the FFN under chunk_search = always [chunk_search = always]"),
    WHOLE(logit_chunks, "1", "1", 1, 1024,
          "chunks of the logits under chunk_search = always [chunk_search = always]"),
    STORAGE(
        weights, number_words, "bf16",
        "number type of the weights that products of layers read (fp8: e4m3, a scale for each 128 "
        "x 128; fp8-channel: for each row; all else stays in storage.wide)"),
    STORAGE(wide, wide_words, "auto",
            "number type of what is not in fp8 (auto: bf16, on the GPU cpu f32) [storage.weights = "
            "fp8|fp8-channel]"),
    STORAGE(activations, storage_words, "auto",
            "number type of what fp8 weights are multiplied with (auto: as the weights; that of "
            "storage.wide: W8A16) [storage.weights != bf16 or storage.head = fp8|fp8-channel]"),
    STORAGE(
        cache, cache_words, "auto",
        "number type of cached keys, values and features (auto: as what is not in fp8) [reuses = "
        "on]"),
    STORAGE(head, storage_words, "auto",
            "number type of the output head's weights (auto: as what is not in fp8)"),
    WHOLE(layers, "1", "0", 0, 1024,
          "first layers of the model, which alone run; weights of the others stay reserved (0: all "
          "run)"),
    KEY("reserve_bytes", PARAM_I64, reserve_bytes, "bytes", "700MiB", 0, 1e12,
        "CUDA context and library workspaces"),
    KEY("moe_reserve_bytes", PARAM_I64, moe_reserve_bytes, "bytes", "0", 0, 1e12,
        "added to reserve_bytes for a mixture of experts [model.experts > 0]"),
    KEY("memory_utilization", PARAM_F64, memory_utilization, "1", "0.95", 0.01, 1,
        "share of the device the system may fill"),
    KEY("pool_share", PARAM_F64, pool_share, "1", "1", 0.01, 1,
        "share that cached rows and workspace may take of the memory left by weights and reserve"),
    CHOICE("early_stop", early_stop, early_stop_words, "off",
           "a request is done when the block with its end of text is decoded, or that position and "
           "all before it, or all blocks in flight, which no other joins once an end of text is "
           "decided in any (off: every output position is decoded) [serves = on and run.answers = "
           "on]"),
    CHOICE(
        "iteration", iteration, iteration_words, "plain",
        "what a step passes to the next: the canvas, or also its predictions for masked positions"),
    SMOOTHING(weight_init, "0.15", 1,
              "iteration = smooth: weight of the first step's predictions [iteration = smooth and "
              "iteration.gain != 0 or iteration = smooth and backend = cpu|cuda]"),
    SMOOTHING(weight_growth, "0.02", 1,
              "iteration = smooth: weight increase per step of a request [iteration = smooth and "
              "iteration.gain != 0 or iteration = smooth and backend = cpu|cuda]"),
    SMOOTHING(weight_most, "0.3", 1,
              "iteration = smooth: maximum weight [iteration = smooth and iteration.gain != 0 or "
              "iteration = smooth and backend = cpu|cuda]"),
    SMOOTHING(threshold_decay, "0.02", 1,
              "iteration = smooth: threshold decrease per step of a request, from 1 down to the "
              "decoder's own [iteration = smooth and serves = on]"),
    KEY("iteration.gain", PARAM_F64, smoothing.gain, "1", "1", -100, 100,
        "simulation: logits of confidence gained at a weight of 1 (assumed) [iteration = smooth "
        "and backend = sim and draws = on]"),
    KEY("unroll.maximum", PARAM_U32, unroll_maximum, "steps", "1", 1, 64,
        "most steps of a batch that the host submits at once; steps on a finished block are "
        "discarded [serves = on]"),
    KEY("unroll.expected_tpf", PARAM_U32, unroll_expected_tpf, "tokens", "8", 1, 65536,
        "unroll one step per this many masked positions in the batch [unroll.maximum > 1 and "
        "serves = on]"),
    FLAG(skip_ahead, "on",
         "submit identical steps together (off: the same results, more slowly) [serves = on and "
         "sampling = off]"),
    FLAG(decides_ahead, "off",
         "asynchronous scheduling: step n+1 is formed while n runs and cannot see later arrivals "
         "or freed memory [serves = on and scheduler != static]"),
    FLAG(prefix_caching, "off",
         "shared beginnings of prompts are computed once while cached, in whole pages "
         "(block-causal models: whole blocks); a preempted request reuses what is left of its own; "
         "bidirectional ones under cache = bicache [serves = on and rows = exact or serves = on "
         "and leads = on]"),
    WHOLE(prefix_store_tokens, "tokens", "5000", 0, 1e8,
          "tokens of shared prefixes that a replica keeps for requests to come, as leading layers "
          "have them (BiCache: 5000) [serves = on and leads = on]"),
    KEY("swap.host_bytes", PARAM_I64, swap_host_bytes, "bytes", "0", 0, 1e15,
        "memory of the host that a scheduler may swap requests out to, for each GPU (0: none) "
        "[backend = step or serves = on and swaps = on]"),
    KEY("swap.overlaps", PARAM_BOOL, swap_overlaps, "1", "off", 0, 1,
        "copies to and from the host's memory go layer by layer during the first pass after them "
        "(off: before it) [swap.host_bytes > 0]"),
    FLAG(beyond_positions, "off",
         "allow contexts beyond the model's positions, to study memory and time [context_tokens > "
         "model.max_positions]"),
    KEY("temperature", PARAM_F64, temperature, "1", "1", 0.01, 100,
        "divisor of logits before tokens are drawn or confidences computed [picks = on or backend "
        "= cpu|cuda or draws = on and confidence != kumaraswamy]"),
    KEY("confidence_drop", PARAM_F64, confidence_drop, "1", "0", -100, 100,
        "logits by which a model's confidence is below that of its decode process, or above it: a "
        "location is reached from either side [backend = sim and draws = on and confidence != "
        "kumaraswamy]"),
    FLAG(sampling, "off",
         "draw tokens, at the temperature and within top_k and top_p (off: take the most likely "
         "one)"),
    WHOLE(top_k, "tokens", "0", 0, 1 << 19,
          "sample among the k most likely tokens (0: all) [sampling = on or probabilities = kept]"),
    KEY("top_p", PARAM_F64, top_p, "1", "1", 0, 1,
        "sample among the most likely of these until their probabilities exceed p (1: all) "
        "[sampling = on or probabilities = kept]"),
    CHOICE(
        "probabilities", probabilities, probabilities_words, "released",
        "distribution whose probability is a token's confidence: tempered, the model's own, or "
        "what top_k and top_p keep (released: tempered without sampling; with sampling, model for "
        "LLaDA and kept for Dream and block diffusion) [sampling = on or top_k > 0 or top_p < 1]"),
};
const size_t system_n_params = sizeof system_params / sizeof system_params[0];

enum causality system_causality(const struct model *model) {
    return model->mask == MASK_BIDIRECTIONAL ? SEES_CANVAS
           : model->mask == MASK_CAUSAL      ? SEES_TOKENS
           : model->causal_prompt            ? SEES_CANVASES
                                             : SEES_BLOCKS;
}

uint32_t system_scope_rows(const struct settings *settings, uint32_t rows, uint32_t output_tokens,
                           uint32_t block_tokens, uint32_t masked, bool first_pass) {
    uint32_t scope = block_tokens;
    switch ((enum logit_scope)settings->logit_scope) {
    case LOGITS_QUERIES:
        scope = rows;
        break;
    case LOGITS_GENERATION:
        scope = first_pass ? output_tokens : block_tokens;
        break;
    case LOGITS_BLOCK:
        break;
    case LOGITS_MASKED:
        scope = masked;
        break;
    }
    return scope < rows ? scope : rows;
}

uint32_t system_sampled_rows(const struct settings *settings, uint32_t logit_rows,
                             uint32_t output_tokens) {
    const uint32_t least = logit_rows < output_tokens ? logit_rows : output_tokens;
    return settings->sample_scope == SAMPLES_OUTPUT ? least : 0;
}
