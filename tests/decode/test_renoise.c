/* Canvases of random tokens (DiffusionGemma): the model's numbers, what its layers see, how many
 * passes a canvas takes, what a run of it records, and what its sampler holds. */
#include <math.h>

#include "sim/policy/decoder/renoise.h"
#include "sim/price/price.h"
#include "sim/step/builder.h"
#include "sim/system/system.h"
#include "sim/system/system_facts.h"
#include "tests/support/cli.h"
#include "tests/support/numbers.h"
#include "tests/support/says.h"

extern const struct decoder decoder_renoise;

static const struct model *gemma(void) {
    struct err err = {0};
    const struct model *model = model_find("diffusiongemma", &err);
    ck_assert_msg(model != NULL, "%s", err.text);
    return model;
}

/* ---- the model ---- */

/* The model card has 25.2 billion, 3.8 of them active; the checkpoint 51,647,701,024 bytes, of
 * which a vision tower of about 550 million parameters is the rest. */
TEST(parameters_are_those_of_the_model_card) {
    const struct model *model = gemma();
    const double all = (double)model_parameters(model) * 1e-9;
    const double active =
        (double)(model_trunk_active_parameters(model) + model_head_parameters(model)) * 1e-9;
    ck_assert_double_eq_tol(all, 25.2, 0.06);
    ck_assert_double_eq_tol(active, 3.8, 0.06);
    const double tower = 51647701024.0 / 2 * 1e-9 - all;
    ck_assert(tower > 0.5 && tower < 0.6);
}

/* Of 25 local layers 8 heads of 256, of 5 global ones 2 of 512, keys and values in bf16. */
TEST(keys_and_values_are_counted_by_layer) {
    const struct model *model = gemma();
    ck_assert_int_eq(model_kv_bytes_per_token(model, NUMBER_BF16),
                     25 * 2 * 8 * 256 * 2 + 5 * 2 * 2 * 512 * 2);
    ck_assert_int_eq(model_local_kv_bytes_per_token(model, NUMBER_BF16), 25 * 2 * 8 * 256 * 2);
}

/* A denoising step multiplies with every matrix once, and with the table of embeddings twice: by
 * logits and by probabilities. It norms what parts read and what they give. */
TEST(a_step_runs_every_matrix_and_norm) {
    static const char *const systems[] = {"diffusiongemma", "diffusiongemma-vllm"};
    const struct model *m = gemma();
    const int64_t hidden = m->hidden, head = model_head_parameters(m);
    const int64_t norms = (30 * 7 + 2) * hidden + 25 * 2 * 256 + 5 * 2 * 512;
    for (size_t s = 0; s < 2; s++) {
        struct err err = {0};
        const struct system_request asked = {.system = systems[s], .gpu = "h200"};
        struct system *system = NULL;
        ck_assert_msg(system_open(&asked, &system, &err) == 0, "%s", err.text);
        int64_t matrices = 0, n_norms = 0, n_wide = 0;
        for (uint32_t i = 0; i < system->graph.n_ops; i++) {
            const struct op *op = &system->graph.ops[i];
            const int64_t repeat = system->graph.segments[op->segment].repeat;
            const int64_t experts = op_type_of(op)->family == FAMILY_EXPERTS ? op->experts : 1;
            matrices += op_is_product(op) ? repeat * experts * op->n * op->k : 0;
            n_norms += op->kind == OP_RMSNORM ? repeat : 0;
        }
        for (uint32_t t = 0; t < system->graph.n_tensors; t++) {
            n_wide += tensor_holds_logits(&system->graph, (int)t);
        }
        ck_assert_int_eq(matrices, model_parameters(m) - norms + head);
        ck_assert_int_eq(n_norms, 30 * 7 + 1 + 2); /* the head's, and two of self-conditioning */
        ck_assert_int_eq(n_wide, s == 0 ? 2 : 1 + 6);
        system_close(system);
    }
}

/* ---- what layers see ---- */

/* Pairs of a query and a key, and cached keys, that the operator's price counts. */
static double attended(const char *segment, const char *name, const struct step_shape *shape,
                       double *keys) {
    struct err err = {0};
    const struct system_request asked = {.system = "diffusiongemma", .gpu = "h100"};
    struct system *system = NULL;
    ck_assert_msg(system_open(&asked, &system, &err) == 0, "%s", err.text);
    const struct graph *graph = &system->graph;
    double seen = -1;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        if (strcmp(op->name, name) == 0 &&
            strcmp(graph->segments[op->segment].name, segment) == 0) {
            const struct model_heads heads = graph_heads(graph, op);
            const double q = (double)heads_q_dim(&heads), kv = (double)heads_kv_dim(&heads);
            const double queries = (double)shape->sym[op->span_q];
            struct op_price price;
            cost_explain_one(system->cost, i, shape, (struct chunk_rows){{0}}, &price);
            seen = price.flops / price.executions / (4 * q);
            *keys = (price.bytes / price.executions - 4 * queries * (q + kv)) / (4 * kv);
        }
    }
    system_close(system);
    return seen;
}

/* Pairs that a query of a window of 1,024 sees, one by one. */
static double pairs(uint32_t q, uint32_t context, bool causal) {
    enum { WINDOW = 1024 };
    double sum = 0;
    for (uint32_t i = 0; i < q; i++) {
        for (uint32_t key = 0; key < context + q; key++) {
            const uint32_t at = context + i;
            const bool is_seen = key < context ? at - key < WINDOW
                                 : causal      ? key <= at && at - key < WINDOW
                                               : true;
            sum += is_seen;
        }
    }
    return sum;
}

TEST(a_local_layer_sees_its_window_and_a_global_one_everything) {
    static const struct {
        uint32_t queries, context;
        bool prefill;
    } cases[] = {{256, 100, false}, {256, 800, false}, {256, 900, false}, {256, 5000, false},
                 {700, 0, true},    {1500, 0, true},   {600, 900, true},  {300, 4000, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t q = cases[i].queries, context = cases[i].context;
        const struct span span = {.phase = cases[i].prefill ? PHASE_PREFILL : PHASE_REUSE,
                                  .queries = q,
                                  .first_queries = q,
                                  .context = context,
                                  .exact = 1};
        struct step_shape shape;
        shape_clear(&shape);
        shape_add(shape.sym, &span, 3);
        const char *name = cases[i].prefill ? "prefill attention" : "block attention";
        double local_keys, global_keys;
        const double local = attended("local layers", name, &shape, &local_keys);
        const double global = attended("global layers", name, &shape, &global_keys);
        ck_assert_double_eq_tol(local, 3 * pairs(q, context, cases[i].prefill), 1e-6 * local);
        ck_assert_double_eq_tol(local_keys, 3.0 * fmin(context, 1023), 1e-6);
        ck_assert_double_eq_tol(global_keys, 3.0 * context, 1e-6);
        ck_assert_double_ge(global, local);
    }
}

/* What left the window is given back; pages in which a window begins stay. */
TEST(a_long_canvas_holds_a_window_of_local_rows) {
    struct err err = {0};
    const struct system_request asked = {.system = "diffusiongemma", .gpu = "h100"};
    struct system *system = NULL;
    ck_assert_msg(system_open(&asked, &system, &err) == 0, "%s", err.text);
    const struct budget *budget = &system->budget;
    const int64_t local = 25LL * 2 * 8 * 256 * 2, all = local + 5LL * 2 * 2 * 512 * 2;
    ck_assert_int_eq(budget_request_bytes(budget, 1024), 1024 * all);
    const int64_t longer = budget_request_bytes(budget, 64 * 1024);
    ck_assert_int_eq(longer - budget_request_bytes(budget, 32 * 1024), 32 * 1024 * (all - local));
    const uint32_t held = 1024 + 256;
    ck_assert_int_eq(system_rows_bytes(system, held), held * all);
    ck_assert_int_eq(system_rows_bytes(system, held + 100), held * all + 100 * (all - local));
    system_close(system);
}

/* ---- how many passes a canvas takes ---- */

static struct request canvas_of(uint64_t id) {
    struct request request = MAKE(struct request, .id = id, .prompt_tokens = 300,
                                  .output_tokens = 512, .canvas_tokens = 812, .block_tokens = 256,
                                  .causal = SEES_CANVASES, .cached_tokens = 300);
    window_enter(&request, 0);
    return request;
}

TEST(blocks_begin_where_the_prompt_ends) {
    struct request request = canvas_of(1);
    ck_assert_uint_eq(window_first(&request), 300);
    ck_assert_uint_eq(window_masked(&request), 256);
    window_advance(&request, 1, 256);
    window_settle(&request);
    window_enter_next(&request);
    ck_assert_uint_eq(window_first(&request), 556);
    ck_assert_uint_eq(request.cached_tokens, 556);
    ck_assert_uint_eq(window_masked(&request), 256);
}

static uint32_t passes_of(const void *state, uint64_t id) {
    struct request request = canvas_of(id);
    static float confidence[256];
    static uint32_t offset[256];
    static uint8_t commit[256];
    const struct decode_seen seen = {
        .n = 256, .first = 300, .offset = offset, .confidence = confidence};
    for (uint32_t passes = 1;; passes++) {
        const uint32_t n = decoder_renoise.choose(state, &request, &seen, commit);
        if (n > 0) {
            ck_assert_uint_eq(n, 256);
            return passes;
        }
        window_advance(&request, 1, 0);
    }
}

static const void *state_of(const char *key, const char *value) {
    static union {
        max_align_t align;
        char bytes[256];
    } state;
    struct err err = {0};
    const struct policy *policy = &decoder_renoise.policy;
    memset(&state, 0, sizeof state);
    param_defaults(policy->params, policy->n_params, &state);
    ck_assert_int_eq(key == NULL ? 0
                                 : param_set(policy->params, policy->n_params, &state, "a", "b",
                                             key, value, &err),
                     0);
    return &state;
}

static int by_passes(const void *a, const void *b) {
    return (int)*(const uint32_t *)a - (int)*(const uint32_t *)b;
}

/* tt-metal #50431: mean 26.6 of 48, median 23, p10 10, p90 48; counts of eight passes each. */
TEST(canvases_take_the_published_passes) {
    enum { N = 21150 };
    static uint32_t passes[N];
    const double counts[6] = {150, 543, 467, 230, 171, 554};
    double found[6] = {0}, sum = 0;
    const void *state = state_of(NULL, NULL);
    for (uint32_t i = 0; i < N; i++) {
        passes[i] = passes_of(state, i);
        ck_assert(passes[i] >= 1 && passes[i] <= 48);
        found[(passes[i] - 1) / 8]++;
        sum += passes[i];
    }
    qsort(passes, N, sizeof *passes, by_passes);
    for (int i = 0; i < 6; i++) {
        ck_assert_double_eq_tol(found[i] / 10, counts[i], 0.1 * counts[i]);
    }
    ck_assert_double_eq_tol(sum / N, 26.6, 0.3);
    ck_assert_uint_eq(passes[N / 2], 23);
    ck_assert(passes[N / 10] >= 9 && passes[N / 10] <= 10);
    ck_assert_uint_eq(passes[N * 9 / 10], 48);
}

TEST(a_canvas_that_never_halts_takes_all_its_passes) {
    ck_assert_uint_eq(passes_of(state_of("confidence_threshold", "0"), 7), 48);
    const void *state = state_of("max_steps", "16");
    for (uint32_t i = 0; i < 100; i++) {
        ck_assert_uint_le(passes_of(state, i), 16);
    }
}

/* ---- runs ---- */

#define ASKED(...)                                                                                 \
    "run", "--workload", "gsm8k", "--requests", "12", "--rate", "1", "--json", "--system",         \
        "diffusiongemma", __VA_ARGS__

/* A prefill, the passes, and one that stores the canvas, of each of 12 requests of 256 tokens. */
TEST(a_canvas_is_prefilled_denoised_and_stored) {
    char *said = PRINTS(ASKED("--gpu", "h100", "--set", "decoder.confidence_threshold=0", "--set",
                              "max_requests=1", "--set", "decoder.max_steps=10"));
    ck_assert_int_eq(number_in(said, "request_steps"), 12 * (1 + 10 + 1));
    ck_assert_int_eq(number_in(said, "tokens_committed"), 12 * 256);
    free(said);
}

TEST(every_gpu_runs_it_or_says_what_it_lacks) {
    struct err err = {0};
    const struct gpu *const *gpus = gpu_all(&err);
    int n_fits = 0;
    for (size_t i = 0; gpus[i] != NULL; i++) {
        const struct system_request asked = {
            .system = "diffusiongemma", .gpu = gpus[i]->name, .roofline = true};
        struct system *system = NULL;
        err = (struct err){0};
        const bool fits = system_open(&asked, &system, &err) == 0;
        ck_assert_msg(fits || strstr(err.text, "does not fit into") != NULL, "%s", err.text);
        ck_assert_msg(fits || gpus[i]->memory_bytes < (int64_t)52 << 30, "%s", err.text);
        n_fits += fits;
        system_close(system);
    }
    ck_assert_int_ge(n_fits, 8);
}

TEST(recorded_steps_are_played) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("runs.db"));
    char *said = PRINTS(
        ASKED("--gpu", "h100", "--db", path, "--levels", "events", "--set", "pool_pages=24"));
    ck_assert_int_eq(number_in(said, "completed"), 12);
    free(PRINTS("replay", "--db", path, "--run", "1"));
    free(said);
}

/* ---- the sampler's memory ---- */

static int64_t peak(const char *setting, const char *also) {
    char *said = PRINTS("plan", "--gpu", "h200", "--system", "diffusiongemma-vllm", "--set",
                        "max_requests=8", "--reuse", "8", "--planner", "exact", "--set", setting,
                        "--set", also, "--json");
    const int64_t bytes = number_in(said, "peak_bytes");
    free(said);
    return bytes;
}

/* Eight canvases of 256 tokens: 2 GiB a temporary of float32. */
TEST(a_plan_divides_what_the_temporaries_take) {
    const int64_t gib = (int64_t)1 << 30;
    const int64_t planned = peak("runtime.sampler_bytes=4", "logit_chunk_rows=0");
    ck_assert(planned >= 6 * gib && planned < 6 * gib + gib / 16);
    const int64_t chunked = peak("runtime.sampler_bytes=4", "logit_chunk_rows=256");
    ck_assert(chunked >= 6 * gib / 8 && chunked < 7 * gib / 8);
    const int64_t own = peak("runtime.sampler_bytes=0", "logit_chunk_rows=0");
    ck_assert(own >= 3 * gib && own < 3 * gib + gib / 16);
    ck_assert_int_lt(peak("runtime.sampler_bytes=0", "runtime.fused_head=on"), gib / 8);
}

/* ---- what is refused ---- */

TEST(each_thing_that_does_not_fit_is_refused_with_one_sentence) {
#define WITH(...) "run", "--gpu", "h100", "--requests", "1", "--rate", "1", __VA_ARGS__
    REFUSES(2,
            "unmask: decoder renoise is of models of uniform noise, and SDAR-8B-Chat fills masks: "
            "set decoder = threshold, or model = diffusiongemma",
            WITH("--system", "sdar", "--decoder", "renoise"));
    REFUSES(2,
            "unmask: DiffusionGemma (26B-A4B) decides on its whole canvas anew in every step, and "
            "decoder threshold commits positions for good: set decoder = renoise",
            WITH("--system", "sdar", "--model", "diffusiongemma"));
    REFUSES(2,
            "unmask: decoder renoise wants decoder.t_min at most as high as decoder.t_max, and has",
            WITH("--system", "diffusiongemma", "--set", "decoder.t_min=0.8", "--set",
                 "decoder.t_max=0.4"));
    REFUSES(2,
            "unmask: DiffusionGemma (26B-A4B) has layers with a window of 1024 positions, and "
            "cache delayed chooses rows for all layers: set cache = exact",
            WITH("--system", "diffusiongemma", "--cache", "delayed"));
    REFUSES(2, "unmask: block_tokens = 1024, but the window of DiffusionGemma (26B-A4B) is 1024",
            WITH("--system", "diffusiongemma", "--set", "block_tokens=1024"));
    REFUSES(2, "unmask: layers = 7, but every 6-th layer of DiffusionGemma (26B-A4B) sees",
            WITH("--system", "diffusiongemma", "--set", "layers=7"));
    REFUSES(2,
            "unmask: DiffusionGemma (26B-A4B) draws tokens of its whole canvas in every step: set "
            "sampling = off",
            WITH("--system", "diffusiongemma", "--set", "sampling=on"));
    REFUSES(2, "unmask: a model: causal_prompt and conditioning_ffn are of models of uniform noise",
            WITH("--system", "sdar", "--set", "model.causal_prompt=on"));
}

SUITE("renoise")
