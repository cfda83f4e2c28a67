/* Placement and budget: no overlap, lower bounds, what a device is divided into. */
#include "sim/step/builder.h"
#include "sim/system/system_facts.h"
#include "tests/support/random_step.h"

TEST(no_two_live_tensors_overlap_for_any_graph_shape_or_planner) {
    struct rng rng = rng_stream(2, "placements");
    for (int round = 0; round < 1500; round++) {
        struct graph graph;
        struct graph_options options = random_options(&rng);
        graph_build(&graph, any_model(&rng), &options);
        struct step_shape shape = random_shape(&rng, 12, 3000);
        struct chunk_rows chunks = random_chunks(&rng, 4096);
        for (size_t i = 0; i < planner_table_size; i++) {
            struct placement placement;
            struct err err = {0};
            placement_make(&planner_table[i], &graph, &shape, chunks, &placement);
            ck_assert_msg(placement_verify(&graph, &placement, &err) == 0, "%s", err.text);
        }
    }
}

TEST(a_moved_tensor_is_noticed) {
    struct graph graph;
    struct graph_options options = {.fused = true, .logits_bytes = 2};
    struct err err = {0};
    graph_build(&graph, model_find("llada-8b", &err), &options);
    struct step_shape shape;
    struct span span = {.queries = 512, .first_queries = 512, .logit_rows = 512};
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    struct placement placement;
    placement_make(planner_find("first-fit", &err), &graph, &shape, (struct chunk_rows){{0}},
                   &placement);
    uint32_t gate = 0;
    while (strcmp(graph.tensors[gate].name, "gate and up") != 0) {
        gate++;
    }
    placement.offset_bytes[gate] = 0; /* onto the residual */
    ck_assert_int_eq(placement_verify(&graph, &placement, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "overlap while both are live"));
}

TEST(bounding_the_logits_shrinks_the_workspace_and_grows_the_pool) {
    static const char *const monolithic[] = {"logit_scope=queries", "logit_chunk_rows=0", NULL};
    static const char *const bounded[] = {"logit_scope=queries", "logit_chunk_rows=2048", NULL};
    struct system *wide = rig_system("dllm-serve-published", "l40s", true, monolithic);
    struct system *narrow = rig_system("dllm-serve-published", "l40s", true, bounded);
    /* 16,384 rows of two bf16 copies against 2,048 of them. */
    int64_t row = 2 * model_logits_bytes_per_row(wide->model, 2);
    ck_assert_int_eq(wide->budget.logits_bytes, 16384 * row);
    ck_assert_int_eq(narrow->budget.logits_bytes, 2048 * row);
    ck_assert_int_gt(narrow->budget.pool_bytes, wide->budget.pool_bytes);
    ck_assert_int_lt(narrow->budget.activation_bytes, wide->budget.activation_bytes);
    const struct budget *b = &wide->budget;
    ck_assert_int_le(b->weights_bytes + b->reserve_bytes + b->activation_bytes + b->pool_bytes,
                     b->usable_bytes);
    system_close(wide);
    system_close(narrow);
}

/* The released profiler of dLLM-Serve runs max_num_batched_tokens // max_model_len requests: none
 * on an RTX 4090, whose steps take 4,000 tokens, and 4 on an L40S, as many tokens as a step may
 * have. */
TEST(a_pool_beside_whole_canvases_leaves_a_larger_step_the_rest_of_the_device) {
    static const char *const whole[] = {"profile_whole_canvases=on", NULL};
    static const char *const largest[] = {"profile_whole_canvases=off", NULL};
    static const struct {
        const char *gpu;
        bool is_more;
    } cards[] = {{"rtx4090", true}, {"l40s", false}};
    for (int i = 0; i < 2; i++) {
        struct system *of_whole = rig_system("dllm-serve-published", cards[i].gpu, true, whole);
        struct system *of_largest = rig_system("dllm-serve-published", cards[i].gpu, true, largest);
        const struct budget *w = &of_whole->budget, *l = &of_largest->budget;
        const int64_t beside = w->weights_bytes + w->reserve_bytes + w->pool_bytes;
        ck_assert_int_eq(w->activation_bytes, l->activation_bytes);
        ck_assert_int_eq(w->pool_bytes - l->pool_bytes > l->activation_bytes - l->unit_bytes * 2,
                         cards[i].is_more);
        ck_assert_int_eq(w->pool_bytes == l->pool_bytes, !cards[i].is_more);
        ck_assert_int_le(beside, w->usable_bytes);
        ck_assert_int_eq(beside + w->activation_bytes > w->usable_bytes, cards[i].is_more);
        ck_assert_int_le(beside + w->activation_bytes, w->total_bytes);
        system_close(of_whole);
        system_close(of_largest);
    }
}

/* Nothing is left of the device for the step that was not profiled. */
TEST(a_step_that_does_not_fit_beside_such_a_pool_is_refused) {
    struct setting settings[] = {{.key = "profile_whole_canvases", .value = "on", .place = "test"},
                                 {.key = "memory_utilization", .value = "1", .place = "test"}};
    struct system_request request =
        MAKE(struct system_request, .system = "dllm-serve-published", .gpu = "rtx4090",
             .roofline = true, .overrides = settings, .n_overrides = 2);
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_int_eq(system_open(&request, &system, &err), ERR_WORLD);
    ck_assert_int_eq(err.code, ERR_NO_ROOM);
    ck_assert_ptr_nonnull(strstr(err.text, "the pool and the workspace of the largest step"));
}

TEST(fast_dllm_as_released_runs_two_requests_on_48_gb_and_one_by_one_on_24) {
    struct system *l40s = rig_system("fast-dllm-published", "l40s", true, NULL);
    struct system *rtx4090 = rig_system("fast-dllm-published", "rtx4090", true, NULL);
    ck_assert_uint_eq(l40s->budget.max_requests, 2);
    ck_assert_uint_eq(rtx4090->budget.max_requests, 1);
    system_close(l40s);
    system_close(rtx4090);
}

/* Peak memory of the released Fast-dLLM on an H200 at 512 positions: 16.3 GiB at batch 1 and 20.3
 * at batch 4, of which 14.9 are weights (reference runs, 2026-11-21). */
TEST(the_placed_workspace_agrees_with_measured_peaks) {
    static const char *const settings[] = {"profile_canvas_tokens=512", "max_requests=4", NULL};
    struct system *system = rig_system("fast-dllm-published", "h200", true, settings);
    ck_assert_uint_eq(system->budget.max_requests, 4);
    double gib = (double)(system->budget.weights_bytes + system->budget.activation_bytes +
                          4 * 512 * system->row_bytes) /
                 0x1p30;
    ck_assert_double_eq_tol(gib, 20.3, 0.3);
    system_close(system);
}

TEST(a_model_that_does_not_fit_is_refused_with_the_figures) {
    struct setting setting = {.key = "memory_utilization", .value = "0.6", .place = "test"};
    struct system_request request =
        MAKE(struct system_request, .system = "dllm-serve", .gpu = "rtx4090", .roofline = true,
             .overrides = &setting, .n_overrides = 1);
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_int_eq(system_open(&request, &system, &err), ERR_WORLD);
    ck_assert_int_eq(err.code, ERR_NO_ROOM);
    ck_assert_ptr_nonnull(strstr(err.text, "LLaDA-8B Base/Instruct/1.5"));
    ck_assert_ptr_nonnull(strstr(err.text, "14.4 GiB"));
}

TEST(credit_is_planned_for_as_many_requests_as_may_run) {
    static const char *const settings[2][4] = {
        {"decoder=threshold", "block_tokens=64", "max_requests=4", NULL},
        {"decoder=credit", "block_tokens=64", "max_requests=4", NULL}};
    struct system *systems[2];
    for (int i = 0; i < 2; i++) {
        systems[i] = rig_system("fast-dllm", "h200", true, settings[i]);
    }
    const int64_t expected[] = {0, 4LL * 64 * (2 * 64 + 2) * 4};
    for (int i = 0; i < 2; i++) {
        const struct budget *b = &systems[i]->budget;
        ck_assert_int_eq(systems[i]->decoder_bytes, expected[i]);
        ck_assert_int_eq(b->reserve_bytes, systems[0]->budget.reserve_bytes + expected[i]);
        ck_assert_int_eq(systems[0]->budget.pool_bytes - b->pool_bytes,
                         expected[i] / PLACEMENT_ALIGN_BYTES * PLACEMENT_ALIGN_BYTES);
        ck_assert_uint_eq(b->max_requests, 4);
    }
    /* A list costs a launch. */
    struct step_shape shape;
    struct step_price price[2];
    shape_clear(&shape);
    for (uint32_t i = 0; i < 4; i++) {
        struct span span = MAKE(struct span, .phase = PHASE_REUSE, .queries = 64,
                                .first_queries = 64, .context = 512, .logit_rows = 64);
        shape_add(shape.sym, &span, 1);
    }
    for (int i = 0; i < 2; i++) {
        cost_price(systems[i]->cost, &shape, (struct chunk_rows){{0}}, &price[i]);
    }
    ck_assert_double_gt(price[1].wall_ns, price[0].wall_ns);
    ck_assert_double_lt(price[1].wall_ns, 1.01 * price[0].wall_ns);
    for (int i = 0; i < 2; i++) {
        system_close(systems[i]);
    }
}

TEST(what_the_models_here_do_not_cover_is_refused) {
    static const struct {
        const char *system, *model, *key, *value, *sentence;
    } cases[] = {
        {"dllm-cache", "llada-8b", "layers", "1", "and one layer runs: set cache = none"},
        {"dllm-serve", "sdar-8b", "page_tokens", "256",
         "SDAR-8B-Chat is block-causal, and cache sparse-head is for"},
        {"dllm-serve", "llada-8b", "context_tokens", "200000",
         "context_tokens = 200000 exceeds the 4096"},
        {"dllm-serve", "llada-8b", "cache", "dllm-cache",
         "cache dllm-cache runs layer 0 over whole canvases"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct setting setting = {.place = "test"};
        snprintf(setting.key, sizeof setting.key, "%s", cases[i].key);
        snprintf(setting.value, sizeof setting.value, "%s", cases[i].value);
        struct system_request request =
            MAKE(struct system_request, .system = cases[i].system, .model = cases[i].model,
                 .gpu = "h200", .roofline = true, .overrides = &setting, .n_overrides = 1);
        struct system *system = NULL;
        struct err err = {0};
        ck_assert_int_eq(system_open(&request, &system, &err), ERR_USAGE);
        ck_assert_msg(strstr(err.text, cases[i].sentence) != NULL, "%s", err.text);
    }
}

/* Of stored probabilities that are narrower than the model's numbers nothing is multiplied. */
TEST(smoothing_takes_probabilities_in_the_type_of_the_model) {
    static const char *const types[] = {"bf16", "f32"};
    for (size_t i = 0; i < 2; i++) {
        char storage[64];
        snprintf(storage, sizeof storage, "storage.weights=%s", types[i]);
        const char *const settings[] = {"iteration=smooth", storage, NULL};
        struct system *system = rig_system("sparse-dllm-published", "h200", true, settings);
        uint32_t n_softmaxes = 0;
        for (uint32_t op = 0; op < system->graph.n_ops; op++) {
            n_softmaxes += strcmp(system->graph.ops[op].name, "softmax") == 0;
        }
        ck_assert_uint_eq(n_softmaxes, i + 1);
        system_close(system);
    }
}

TEST(sparse_slabs_hold_half_the_rows) {
    struct system *sparse = rig_system("sparse-dllm", "l40s", true, NULL);
    struct system *full = rig_system("fast-dllm", "l40s", true, NULL);
    ck_assert_uint_gt(sparse->budget.max_requests, full->budget.max_requests * 3 / 2);
    system_close(sparse);
    system_close(full);
}

TEST(parameters_and_parts_may_come_in_any_order) {
    static const char *const before[] = {"cache.retention=0.1", "cache=sparse-head", NULL};
    static const char *const after[] = {"cache=sparse-head", "cache.retention=0.1", NULL};
    struct system *a = rig_system("dllm-serve", "l40s", true, before);
    struct system *b = rig_system("dllm-serve", "l40s", true, after);
    char *one = system_text(a), *two = system_text(b);
    ck_assert_str_eq(one, two);
    ck_assert_ptr_nonnull(strstr(one, "cache.retention = 0.1"));
    free(one);
    free(two);
    system_close(a);
    system_close(b);
}

SUITE("memory")
