/* Ranks: what several GPUs hold together is the model, what they exchange is counted and priced. */
#include "sim/model/ranks.h"
#include "sim/step/builder.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_step.h"
#include "tests/support/rig.h"
#include "tests/support/says.h"

static struct model divided(const char *name, uint32_t ranks, bool experts) {
    struct err err = {0};
    struct model rank;
    const struct model *whole = model_find(name, &err);
    ck_assert_ptr_nonnull(whole);
    ck_assert_msg(model_divide(whole, ranks, experts, &rank, &err) == 0, "%s", err.text);
    return rank;
}

static void refused(const char *name, uint32_t ranks, bool experts, const char *sentence) {
    struct err err = {0};
    struct model rank;
    ck_assert_int_eq(model_divide(model_find(name, &err), ranks, experts, &rank, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, sentence);
}

/* Parameters that every rank holds in full: embedding, norms, routers, repeated key-value heads. */
static int64_t repeated(const struct model *m, uint32_t ranks) {
    int64_t kv = m->kv_heads < ranks ? ranks / m->kv_heads - 1 : 0; /* whole sets too many */
    int64_t kv_parameters = 2LL * m->kv_heads * m->head_dim * (m->hidden + (m->qkv_bias ? 1 : 0));
    int64_t of_layer = 2 + (m->output_norms ? 2 + (m->experts > 0 ? 3 : 0) : 0);
    int64_t norms = of_layer * m->hidden + (m->qk_norm ? 2 * m->head_dim : 0);
    int64_t global = m->local_window > 0 ? m->layers / m->global_every : 0;
    int64_t global_kv =
        global > 0 && m->global_kv_heads < ranks ? ranks / m->global_kv_heads - 1 : 0;
    int64_t global_kv_parameters = (m->global_values_are_keys ? 1LL : 2LL) * m->global_kv_heads *
                                   m->global_head_dim * m->hidden;
    int64_t global_norms = m->qk_norm ? 2 * ((int64_t)m->global_head_dim - m->head_dim) : 0;
    int64_t dense = m->experts == 0 ? m->layers : m->dense_layers;
    int64_t embedding = (int64_t)m->vocab * m->hidden;
    return (ranks - 1) * (embedding + m->hidden + m->layers * norms + global * global_norms +
                          (m->conditioning_ffn > 0 ? m->hidden : 0) +
                          (m->layers - dense) * (int64_t)m->experts *
                              (m->hidden + (m->expert_bias ? 1 : 0))) +
           (m->layers - global) * kv * kv_parameters + global * global_kv * global_kv_parameters;
}

TEST(weights_of_the_ranks_add_up_to_the_model) {
    struct err none = {0};
    const struct model *const *models = model_all(&none);
    for (size_t i = 0; models[i] != NULL; i++) {
        const struct model *m = models[i];
        for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
            for (int experts = 0; experts <= (m->experts > 0); experts++) {
                struct err err = {0};
                struct model rank;
                if (m->heads % ranks != 0) {
                    continue;
                }
                ck_assert_msg(model_divide(m, ranks, experts, &rank, &err) == 0, "%s", err.text);
                ck_assert_int_eq(ranks * model_parameters(&rank),
                                 model_parameters(m) + repeated(m, ranks));
                uint32_t copies = m->kv_heads < ranks ? ranks / m->kv_heads : 1;
                if (m->local_window == 0 || m->global_kv_heads >= ranks) {
                    ck_assert_int_eq(ranks * model_kv_bytes_per_token(&rank, NUMBER_BF16),
                                     copies * model_kv_bytes_per_token(m, NUMBER_BF16));
                }
            }
        }
    }
}

TEST(what_cannot_be_divided_is_refused_in_one_sentence) {
    refused("llada-8b", 3, false, "a model is held by 1, 2, 4 or 8 GPUs together, not by 3");
    refused("llada-8b", 16, false, "a model is held by 1, 2, 4 or 8 GPUs together, not by 16");
    refused("dream-7b", 8, false,
            "Dream-v0 7B Base/Instruct has 28 query heads, which 8 GPUs cannot divide");
    refused("llada-8b", 2, true,
            "LLaDA-8B Base/Instruct/1.5 has no experts to divide: set expert_parallel = off");
}

TEST(few_key_value_heads_stand_on_several_ranks) {
    struct model two = divided("llada2-mini", 2, false), four = divided("llada2-mini", 4, false),
                 eight = divided("llada2-mini", 8, true);
    ck_assert_uint_eq(two.kv_heads, 2);
    ck_assert_uint_eq(four.kv_heads, 1);
    ck_assert_uint_eq(eight.kv_heads, 1);
    ck_assert_uint_eq(eight.heads, 2);
    ck_assert_uint_eq(eight.experts, 32);
    ck_assert_uint_eq(eight.expert_ffn, 512);
    ck_assert_uint_eq(model_routed_experts(&eight), 256);
    ck_assert_uint_eq(model_most_active(&eight), 8);
    ck_assert_uint_eq(divided("llada2-mini", 8, false).expert_ffn, 64);
}

static const struct graph_options fused = {
    .fused = true, .fused_head = true, .fused_gate_up = true, .engine = true};

static uint32_t count(const struct graph *graph, enum op_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        n += op->kind == kind ? graph->segments[op->segment].repeat : 0;
    }
    return n;
}

TEST(ranks_meet_twice_a_layer_and_once_at_the_head) {
    struct graph whole, part;
    struct err err = {0};
    struct model rank = divided("llada-8b", 4, false);
    graph_build(&whole, model_find("llada-8b", &err), &fused);
    graph_build(&part, &rank, &fused);
    ck_assert_uint_eq(count(&whole, OP_ALL_REDUCE) + count(&whole, OP_ALL_GATHER), 0);
    ck_assert_uint_eq(count(&part, OP_ALL_REDUCE), 64);
    ck_assert_uint_eq(count(&part, OP_ALL_GATHER), 1);
    ck_assert_uint_eq(part.n_ops, whole.n_ops + 4);
    struct model experts = divided("llada2-mini", 4, true);
    graph_build(&part, &experts, &fused);
    ck_assert_uint_eq(count(&part, OP_ALL_REDUCE), 40);
    for (uint32_t i = 0; i < part.n_ops; i++) {
        if (part.ops[i].kind == OP_MOE_ROUTE) {
            ck_assert_int_eq(part.ops[i].n, 256); /* everyone routes, and to all */
        }
        if (part.ops[i].kind == OP_ALL_REDUCE) {
            ck_assert_int_eq(part.tensors[part.ops[i].out[0]].bytes.per, 2048 * 2);
        }
    }
}

static struct system *open_ranks(const char *name, const char *model, const char *gpu,
                                 const char *ranks, const char *experts) {
    struct setting overrides[] = {{.key = "tensor_parallel"}, {.key = "expert_parallel"}};
    snprintf(overrides[0].value, sizeof overrides[0].value, "%s", ranks);
    snprintf(overrides[1].value, sizeof overrides[1].value, "%s", experts);
    struct system_request request = {
        .system = name, .model = model, .gpu = gpu, .overrides = overrides, .n_overrides = 2};
    struct err err = {0};
    struct system *system = NULL;
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

static struct step_shape full_steps(uint32_t n, uint32_t canvas) {
    struct step_shape shape;
    struct span span = {
        .phase = PHASE_REFRESH, .queries = canvas, .first_queries = canvas, .logit_rows = 32};
    shape_clear(&shape);
    for (uint32_t i = 0; i < n; i++) {
        shape_add(shape.sym, &span, 1);
    }
    return shape;
}

/* Norms, embedding, residual additions and what is exchanged are everyone's; products and attention
 * are divided. */
TEST(work_of_the_ranks_adds_up) {
    static const char *const ranks[] = {"1", "2", "4", "8"};
    static const char *const models[] = {"llada-8b", "llada-moe"};
    for (size_t m = 0; m < 2; m++) {
        double whole_flops = 0;
        for (size_t i = 0; i < 4; i++) {
            for (int experts = 0; experts <= (m == 1 && i > 0); experts++) {
                struct system *s =
                    open_ranks("vanilla", models[m], "h100", ranks[i], experts ? "on" : "off");
                struct step_shape shape = full_steps(4, 512);
                double flops, bytes;
                cost_work(s->cost, shape.sym, 1, &flops, &bytes);
                double n = s->settings.tensor_parallel;
                /* The router runs on every rank. */
                double routers = m == 1 ? 16 * 2.0 * 2048 * 64 * 2048 : 0;
                whole_flops = i == 0 ? flops : whole_flops;
                ck_assert_double_eq_tol((n * (flops - routers) + routers) / whole_flops, 1, 1e-12);
                system_close(s);
            }
        }
    }
}

TEST(memory_is_counted_on_each_gpu) {
    struct system *four = open_ranks("vanilla", "llada-8b", "h100", "4", "off");
    struct system *alone = open_ranks("vanilla", "llada-8b", "h100", "1", "off");
    ck_assert_int_eq(four->budget.weights_bytes,
                     model_weights_bytes(four->model, &four->graph.storage));
    ck_assert_int_eq(four->budget.total_bytes, alone->budget.total_bytes);
    ck_assert_uint_eq(system_gpus(four), 4);
    ck_assert_uint_gt(four->budget.max_requests, alone->budget.max_requests);
    system_close(four);
    system_close(alone);
}

/* 32 layers, two sums each of 2048 tokens x 4096 channels x 2 bytes = 16 MiB, and one gathering of
 * 128 rows x 12 bytes. */
TEST(what_is_exchanged_is_priced_from_the_imported_rows) {
    struct system *s = open_ranks("vanilla", "llada-8b", "h100", "2", "off");
    struct step_shape shape = full_steps(4, 512);
    struct op_price prices[GRAPH_MAX_OPS];
    cost_explain(s->cost, &shape, s->chunks.bound, prices);
    enum profile_match match;
    double sum = 0, gathered = 0;
    for (uint32_t i = 0; i < s->graph.n_ops; i++) {
        sum += s->graph.ops[i].kind == OP_ALL_REDUCE ? prices[i].ns : 0;
        gathered += s->graph.ops[i].kind == OP_ALL_GATHER ? prices[i].ns : 0;
    }
    double load = correction_factor(profile_correction(s->profile), -1, 1);
    ck_assert_double_eq_tol(
        sum, 64 * load * profile_collective(s->profile, PROFILE_ALL_REDUCE, 2, 16 << 20, &match),
        1);
    ck_assert_int_eq(match, PROFILE_EXACT);
    ck_assert_double_eq_tol(
        gathered, load * profile_collective(s->profile, PROFILE_ALL_GATHER, 2, 128 * 12, &match),
        1);
    ck_assert_ptr_nonnull(cost_collectives(s->cost));
    system_close(s);
}

TEST(gpus_without_rows_are_priced_by_their_link_and_say_so) {
    struct system *s = open_ranks("vanilla", "llada-8b", "rtx4090", "2", "off");
    char text[512];
    ck_assert_ptr_null(cost_collectives(s->cost));
    ck_assert_str_eq(
        system_collectives(s, text, sizeof text),
        "assumed: a model of PCIe 4.0 x16 without peer access at 31.5 GB/s each way (data "
        "sheet) and 2 GPUs; unmask list collectives shows how far off such are");
    system_close(s);
    s = open_ranks("vanilla", "llada-8b", "rtx4090", "1", "off");
    ck_assert_ptr_null(system_collectives(s, text, sizeof text));
    system_close(s);
}

/* More GPUs a replica take less time a step, and less than proportionally so. */
TEST(steps_get_shorter_with_ranks_but_not_for_free) {
    static const char *const gpus[] = {"h100", "a100-80g", "h200"};
    static const char *const ranks[] = {"1", "2", "4", "8"};
    for (size_t g = 0; g < 3; g++) {
        double before = INFINITY, first = 0;
        for (size_t i = 0; i < 4; i++) {
            struct system *s = open_ranks("vanilla", "llada-8b", gpus[g], ranks[i], "off");
            struct step_shape shape = full_steps(4, 512);
            struct step_price price;
            cost_price(s->cost, &shape, s->chunks.bound, &price);
            first = i == 0 ? price.device_ns : first;
            ck_assert_msg(price.device_ns < before, "%s: %s ranks", gpus[g], ranks[i]);
            ck_assert_double_gt(price.device_ns * s->settings.tensor_parallel, 0.9 * first);
            before = price.device_ns;
            system_close(s);
        }
    }
}

TEST(replicas_of_ranks_serve_like_replicas) {
    static const char *const one[] = {"tensor_parallel=2", "replicas=1", NULL};
    static const char *const two[] = {"tensor_parallel=2", "replicas=2", NULL};
    const char *const *settings[] = {one, two};
    double end_ns[2];
    for (int i = 0; i < 2; i++) {
        struct system *s = rig_system("fast-dllm", "h100", false, settings[i]);
        struct poisson_source source =
            MAKE(struct poisson_source, .rng = rng_stream(1, "arrivals"),
                 .lengths = rng_stream(1, "lengths"), .rate = 100, .n = 64, .prompt_min = 64,
                 .prompt_max = 256, .output_min = 64, .output_max = 128);
        struct loop_result result =
            rig_run(s, (struct arrival_source){.state = &source, .next = poisson_next}, NULL);
        ck_assert_uint_eq(result.completed, 64);
        ck_assert_uint_eq(system_gpus(s), (uint32_t)(2 * (i + 1)));
        end_ns[i] = (double)result.end_ns;
        system_close(s);
    }
    ck_assert_double_lt(end_ns[1], 0.75 * end_ns[0]);
}

SUITE("ranks")
