/* Live runs of models that several ranks hold together, on the CPU: the same tokens as on one. */
#include "tests/support/live.h"

static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 13},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 9},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 16},
};
enum { N = 3, MOST = 15 };

/* Layers with a window, global ones with a key-value head of their own between them. */
#define WINDOW                                                                                     \
    "block_tokens=8", "page_tokens=4", "prefix_caching=on", "model.local_window=12",               \
        "model.global_every=2", "model.global_kv_heads=1", "model.global_head_dim=64"

#define W8A16                                                                                      \
    "storage.weights=fp8", "storage.wide=f32", "storage.activations=f32", "model.hidden=256",      \
        "model.ffn=512"

/* Everything that looks beyond the heads or the vocabulary of one rank. */
static const struct {
    const char *system, *model, *settings[MOST];
    const char *largest; /* tensor_parallel that divides the model */
} cases[] = {
    {"sparse-dllm", "llada-tiny", {"cache.retention=0.4"}, "2"},
    {"sparse-dllm", "dream-tiny", {"cache.retention=0.4"}, "4"},
    {"sparse-dllm", "llada-moe-tiny", {"expert_parallel=on"}, "2"},
    {"dllm-cache", "llada-tiny", {"block_tokens=8", "cache.output_interval_steps=3"}, "2"},
    {"sparsed", "llada-tiny", {"block_tokens=8"}, "2"},
    {"bicache", "llada-tiny", {"cache.depth=1", "cache.interval_steps=4", "block_tokens=8"}, "2"},
    {"fast-dllm", "dream-tiny", {"decoder=margin"}, "4"},
    {"fast-dllm", "llada-tiny", {"decoder=entropy"}, "2"},
    {"fast-dllm", "dream-tiny", {"decoder=entropy-bounded", "decoder.bound=4"}, "4"},
    {"focus", "sdar-tiny", {"block_tokens=8", "page_tokens=4", "decoder=fixed"}, "4"},
    {"focus", "sdar-tiny", {"block_tokens=8", "page_tokens=4", "decoder.threshold=0.006"}, "4"},
    {"focus", "llada2-tiny", {"block_tokens=8", "page_tokens=4", "expert_parallel=on"}, "2"},
    /* Scattered positions where logits are shifted. */
    {"dkv-cache",
     "dream-tiny",
     {"block_tokens=8", "cache.interval_steps=3", "decoder=entropy", "steps_per_block=8"},
     "4"},
    {"focus",
     "sdar-tiny",
     {"model.shifted_logits=on", "block_tokens=8", "page_tokens=4", "decoder.threshold=0.006"},
     "4"},
    {"d2f",
     "sdar-tiny",
     {"model.shifted_logits=on", "block_tokens=4", "page_tokens=4", "blocks_in_flight=3",
      "decoder.threshold=0.006"},
     "4"},
    /* Tokens drawn from all ranks' logits, and confidences of all of them at a temperature. */
    {"fast-dllm", "dream-tiny", {"sampling=on", "temperature=1.5"}, "4"},
    {"fast-dllm", "llada-tiny", {"sampling=on", "top_k=7", "top_p=0.9"}, "2"},
    {"fast-dllm",
     "dream-tiny",
     {"sampling=on", "top_k=300", "probabilities=kept", "decoder=margin"},
     "4"},
    {"fast-dllm",
     "dream-tiny",
     {"sampling=on", "top_p=0.5", "probabilities=model", "decoder=entropy"},
     "4"},
    {"sdar", "sdar-tiny", {"block_tokens=8", "page_tokens=4", "sampling=on", "top_p=0.7"}, "4"},
    {"fast-dllm", "dream-tiny", {"temperature=0.7", "decoder=entropy"}, "4"},
    {"fast-dllm",
     "dream-tiny",
     {"temperature=0.7", "decoder=entropy", "runtime.fused_head=on", "probabilities=kept"},
     "4"},
    {"fast-dllm",
     "llada-tiny",
     {"temperature=0.7", "decoder=credit", "decoder.threshold=0.1", "probabilities=kept"},
     "2"},
    {"fast-dllm",
     "dream-tiny",
     {"top_k=40", "probabilities=kept", "decoder=threshold", "decoder.threshold=0.05"},
     "4"},
    /* Credit of all ranks' tokens, what steps expect of them, and tokens that repeat. */
    {"fast-dllm", "dream-tiny", {"decoder=credit", "decoder.threshold=0.02"}, "4"},
    {"fast-dllm", "llada-tiny", {"decoder=credit", "decoder.threshold=0.02"}, "2"},
    {"fast-dllm", "dream-tiny", {"iteration=smooth"}, "4"},
    {"fast-dllm", "llada-tiny", {"iteration=smooth", "decoder=entropy"}, "2"},
    /* What they expect is of logits as they are, whatever is drawn of them or added. */
    {"fast-dllm",
     "llada-tiny",
     {"iteration=smooth", "iteration.weight_init=0.5", "iteration.weight_most=1", "decoder=credit",
      "decoder.threshold=0.02"},
     "2"},
    {"fast-dllm", "dream-tiny", {"iteration=smooth", "sampling=on", "temperature=1.3"}, "4"},
    {"fast-dllm", "llada-tiny", {"iteration=smooth", "temperature=0.5", "decoder=entropy"}, "2"},
    {"sglang",
     "llada2-tiny",
     {"runtime=unmask", "block_tokens=8", "page_tokens=4", "decoder=joint-threshold",
      "decoder.penalty=1"},
     "2"},
    /* The host reads logits of all ranks: chances of drafts, of tokens that insert and drop. */
    {"sglang",
     "sdar-tiny",
     {"runtime=unmask", "block_tokens=8", "page_tokens=4", "runtime.fused_head=off",
      "decoder=self-speculation", "decoder.cost=0"},
     "4"},
    {"sglang",
     "sdar-tiny",
     {"runtime=unmask", "block_tokens=8", "page_tokens=4", "decoder=self-speculation",
      "decoder.cost=0", "decoder.accept=same"},
     "4"},
    {"sglang",
     "sdar-tiny",
     {"runtime=unmask", "block_tokens=8", "page_tokens=4", "runtime.fused_head=off",
      "decoder=self-speculation", "decoder.cost=0", "sampling=on"},
     "4"},
    {"sglang",
     "llada2-tiny",
     {"runtime=unmask", "block_tokens=8", "page_tokens=4", "runtime.fused_head=off",
      "decoder=joint-indel", "decoder.delete_token=7", "decoder.insert_token=9",
      "decoder.edit_threshold=0", "decoder.threshold=0.001"},
     "2"},
    /* In fp8, where cuts fall between squares of 128 x 128. (Inputs in fp8 are rounded after sums
     * of another order, and their tokens part: tests/engine/test_forward_ranks.c.) */
    {"fast-dllm", "llada-tiny", {W8A16}, "2"},
    {"fast-dllm", "dream-tiny", {W8A16, "storage.cache=fp8", "decoder=margin"}, "4"},
    {"fast-dllm", "dream-tiny", {"storage.cache=fp8", "sampling=on"}, "4"},
    {"sdar", "sdar-tiny", {W8A16, "storage.cache=fp8", "block_tokens=8", "page_tokens=4"}, "2"},
    {"sdar",
     "llada2-tiny",
     {W8A16, "expert_parallel=on", "model.shared_ffn=256", "block_tokens=8", "page_tokens=4"},
     "2"},
    /* A canvas of random tokens: what is drawn, and expected of a step, is of all ranks' logits. */
    {"diffusiongemma",
     "sdar-tiny",
     {"model.uniform_noise=on", "model.mask_token=4294967295", "model.causal_prompt=on",
      "block_tokens=32", "page_tokens=16", "decoder.max_steps=9", "decoder.entropy_bound=60"},
     "4"},
    /* Which expects the more of a rounding the more steps it takes (test_forward_window.c). */
    {"diffusiongemma",
     "diffusiongemma-tiny",
     {"context_tokens=128", "prefix_caching=on", "page_tokens=32", "decoder.max_steps=2"},
     "4"},
    {"diffusiongemma",
     "diffusiongemma-tiny",
     {"context_tokens=128", "prefix_caching=on", "page_tokens=32", "decoder.max_steps=2",
      "expert_parallel=on"},
     "2"},
    {"sdar", "sdar-tiny", {WINDOW}, "4"},
    /* What each part of a layer gives is normed, of a mixture the shared experts' and the others'
     * apart: the norm is of what all ranks give. */
    {"sdar",
     "sdar-tiny",
     {WINDOW, "model.output_norms=on", "model.gelu=on", "model.logit_softcap=5"},
     "4"},
    {"sdar",
     "llada2-tiny",
     {WINDOW, "model.layers=4", "model.dense_layers=0", "model.ffn=0", "model.output_norms=on",
      "model.global_values_are_keys=on", "expert_parallel=on"},
     "2"},
    {"sdar",
     "llada2-tiny",
     {WINDOW, "model.layers=4", "model.dense_layers=0", "model.ffn=0", "model.output_norms=on",
      "model.global_values_are_keys=on"},
     "2"},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static struct served *serve_by(size_t i, const char *ranks) {
    char parallel[32];
    const char *settings[MOST + 2] = {parallel};
    bool one = strcmp(ranks, "1") == 0;
    size_t n = 1;
    snprintf(parallel, sizeof parallel, "tensor_parallel=%s", ranks);
    for (size_t s = 0; s < MOST && cases[i].settings[s] != NULL; s++) {
        if (!one || strstr(cases[i].settings[s], "expert_parallel") == NULL) {
            settings[n++] = cases[i].settings[s];
        }
    }
    struct system *system = live_system_of(cases[i].system, cases[i].model, settings);
    struct served *served = serve_live(system, together, N);
    check_used_as_planned(served, N);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    system_close(system);
    return served;
}

TEST_EACH(ranks_serve_the_tokens_of_one_device, N_CASES) {
    struct served *one = serve_by((size_t)_i, "1"), *two = serve_by((size_t)_i, "2");
    same_tokens(one, two, N);
    ck_assert_uint_eq(one->n_steps, two->n_steps);
    if (strcmp(cases[_i].largest, "4") == 0) {
        struct served *four = serve_by((size_t)_i, "4");
        same_tokens(one, four, N);
        free(four);
    }
    free(one);
    free(two);
}

/* One by one, each but the first takes over what leading layers kept of its beginning: a rank's own
 * heads of keys and values, and hidden states, which all have. */
static struct served *serve_sharing(const char *ranks) {
    static const struct arrival sharing[] = {
        {.id = 0, .prompt_tokens = 20, .output_tokens = 12, .leaves = 7},
        {.id = 1, .prompt_tokens = 22, .output_tokens = 9, .shares = 7, .prefix_tokens = 16},
        {.id = 2, .prompt_tokens = 17, .output_tokens = 14, .shares = 7, .prefix_tokens = 16},
    };
    char parallel[32];
    snprintf(parallel, sizeof parallel, "tensor_parallel=%s", ranks);
    const char *const settings[] = {parallel,         "cache.depth=1",  "cache.interval_steps=4",
                                    "block_tokens=8", "max_requests=1", NULL};
    struct system *system = live_system_of("bicache", "llada-tiny", settings);
    struct served *served = serve_live(system, sharing, N);
    ck_assert_uint_gt(served->records[2].prefix_tokens, 0);
    system_close(system);
    return served;
}

TEST(leading_layers_take_prefixes_over_on_ranks_as_on_one_device) {
    struct served *one = serve_sharing("1"), *two = serve_sharing("2");
    same_tokens(one, two, N);
    ck_assert_uint_eq(one->n_steps, two->n_steps);
    ck_assert_uint_eq(one->records[2].prefix_tokens, two->records[2].prefix_tokens);
    free(one);
    free(two);
}

/* Drawn prompts are of all tokens, not of one rank's. */
TEST(prompts_are_drawn_from_the_whole_vocabulary) {
    static const char *const settings[] = {"tensor_parallel=2", NULL};
    struct system *system = live_system_of("fast-dllm", "dream-tiny", settings);
    struct engine_request asked = {.backend = BACKEND_CPU, .weights = "random:3", .system = system};
    struct engine *engine = NULL;
    struct live *live = NULL;
    struct err err = {0};
    enum { PROMPT = 64 };
    int32_t tokens[PROMPT];
    int n_beyond = 0;
    ck_assert_msg(engine_open(&asked, &engine, &err) == 0, "%s", err.text);
    ck_assert_int_eq(live_open(engine, 5, true, &live, &err), 0);
    struct executor executor = live_interface(live);
    struct request request = {
        .prompt_tokens = PROMPT, .canvas_tokens = PROMPT + 32, .kv_held_bytes = 1 << 20};
    ck_assert_msg(executor.admit(executor.state, 0, 0, &request, NULL, &err) == 0, "%s", err.text);
    const int64_t canvas = engine->limits.canvas_tokens - request.canvas_tokens;
    ck_assert_int_eq(forward_read_canvas(engine->forward, canvas, tokens, PROMPT, &err), 0);
    for (int i = 0; i < PROMPT; i++) {
        n_beyond += tokens[i] >= (int32_t)system->model->vocab;
    }
    ck_assert_int_gt(n_beyond, PROMPT / 4);
    live_close(live);
    engine_close(engine);
    system_close(system);
}

SUITE("live ranks")
