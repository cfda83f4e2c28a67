/* Steps with exact keys and values: their graphs, their work by hand, their prices at the rows of
 * the imported tables, the budget and the plans that hold them. */
#include "sim/model/ranks.h"
#include "sim/step/builder.h"
#include "sim/step/registrar.h"
#include "sim/system/lmax.h"
#include "tests/support/random_step.h"

static const char *const models[] = {"sdar-8b", "llama-3.1-8b", "fast-dllm-v2-7b", "qwen2.5-3b",
                                     "sdar-1.7b"};
enum { N_MODELS = sizeof models / sizeof models[0] };

static const struct model *model_of(const char *name) {
    struct err err = {0};
    const struct model *model = model_find(name, &err);
    ck_assert_msg(model != NULL, "%s", err.text);
    return model;
}

static struct span prefill_span(uint32_t queries, uint32_t context, uint32_t logit_rows) {
    return (struct span){.phase = PHASE_PREFILL,
                         .queries = queries,
                         .first_queries = queries,
                         .context = context,
                         .logit_rows = logit_rows,
                         .exact = 1};
}

static struct span block_span(uint32_t queries, uint32_t context, uint32_t kept,
                              uint32_t kept_keys) {
    return (struct span){.phase = PHASE_REUSE,
                         .queries = queries,
                         .first_queries = queries,
                         .context = context,
                         .logit_rows = kept > 0 ? kept : queries,
                         .exact = 1,
                         .kept_queries = kept,
                         .kept_keys = kept_keys};
}

/* What ranks sum of a token is computed in single precision, whatever the model's elements. */
TEST(scores_and_importance_are_summed_over_ranks_in_single_precision) {
    const struct graph_options selects = {.fused = true,
                                          .selects = true,
                                          .engine = true,
                                          .selects_together = true,
                                          .logits_bytes = 2},
                               evicts = {.fused = true,
                                         .exact = true,
                                         .evict_layer = 1,
                                         .engine = true,
                                         .logits_bytes = 2};
    const struct graph_options *const options[] = {&selects, &evicts};
    const char *const names[] = {"scores all-reduce", "importance all-reduce"};
    for (int i = 0; i < 2; i++) {
        struct model rank;
        struct graph graph;
        struct err err = {0};
        ck_assert_int_eq(
            model_divide(model_of(i == 0 ? "llada-8b" : "sdar-8b"), 2, false, &rank, &err), 0);
        graph_build(&graph, &rank, options[i]);
        int n = 0;
        for (uint32_t op = 0; op < graph.n_ops; op++) {
            bool is_one = strcmp(graph.ops[op].name, names[i]) == 0;
            n += is_one;
            ck_assert(!is_one || graph.tensors[graph.ops[op].out[0]].single);
        }
        ck_assert_int_gt(n, 0);
    }
}

TEST(every_exact_graph_is_whole_and_its_tensors_never_overlap) {
    struct rng rng = rng_stream(21, "exact graphs");
    for (int round = 0; round < 400; round++) {
        struct graph graph;
        const bool fused = rng_uniform(&rng) < 0.7;
        const struct graph_options options = MAKE(
            struct graph_options, .fused = fused, .exact = true,
            .evict_layer = rng_uniform(&rng) < 0.5 ? 0 : rig_between(&rng, 1, 3),
            .fused_head = fused && rng_uniform(&rng) < 0.5,
            .fused_gate_up = fused && rng_uniform(&rng) < 0.5, .engine = rng_uniform(&rng) < 0.5,
            .logits_bytes = 2, .copy_bytes = rng_uniform(&rng) < 0.5 ? 8 : 0,
            .softmax_bytes = rng_uniform(&rng) < 0.5 ? 8 : 0);
        graph_build(&graph, model_of(models[round % N_MODELS]), &options);
        struct err err = {0};
        ck_assert_msg(graph_check(&graph, &err) == 0, "%s", err.text);
        struct step_shape shape;
        shape_clear(&shape);
        for (uint32_t i = rig_between(&rng, 1, 12); i > 0; i--) {
            uint32_t queries = rig_between(&rng, 1, 64), context = rig_between(&rng, 0, 3000);
            uint32_t kept = options.evict_layer > 0 ? rig_between(&rng, 1, queries) : 0;
            struct span span = rng_uniform(&rng) < 0.4
                                   ? prefill_span(50 * queries, context, rig_between(&rng, 0, 1))
                                   : block_span(queries, context, kept, kept > 0 ? context : 0);
            shape_add(shape.sym, &span, 1);
        }
        struct chunk_rows chunks = random_chunks(&rng, 4096);
        for (size_t i = 0; i < planner_table_size; i++) {
            struct placement placement;
            placement_make(&planner_table[i], &graph, &shape, chunks, &placement);
            ck_assert_msg(placement_verify(&graph, &placement, &err) == 0, "%s", err.text);
        }
    }
}

/* FLOPs of one layer: products over so many tokens, and attention over so many pairs. */
struct layer_work {
    double qkv_tokens, other_tokens, pairs;
};

static double layer_flops(const struct model *m, struct layer_work work) {
    double q_dim = (double)m->heads * m->head_dim, kv_dim = (double)m->kv_heads * m->head_dim;
    double qkv = 2.0 * m->hidden * (q_dim + 2 * kv_dim), output = 2.0 * q_dim * m->hidden;
    double ffn = 2.0 * 3 * m->hidden * m->ffn;
    return work.qkv_tokens * qkv + work.other_tokens * (output + ffn) + 4 * work.pairs * q_dim;
}

static double head_flops(const struct model *m, double rows) {
    return 2.0 * rows * m->hidden * m->vocab;
}

/* FLOPs of a step with these spans by the cost model of a system. */
static double step_flops(const struct system *system, const struct span *spans, size_t n) {
    struct step_shape shape;
    shape_clear(&shape);
    for (size_t i = 0; i < n; i++) {
        shape_add(shape.sym, &spans[i], 1);
    }
    double flops, bytes;
    cost_work(system->cost, shape.sym, 1, &flops, &bytes);
    return flops;
}

static struct system *system_of(const char *name, const char *model, const char *gpu,
                                bool roofline) {
    struct system_request request = {
        .system = name, .model = model, .gpu = gpu, .roofline = roofline};
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

TEST(a_prefill_and_a_step_of_decoding_do_the_work_counted_by_hand) {
    for (int i = 0; i < N_MODELS; i++) {
        const struct model *m = model_of(models[i]);
        bool by_token = m->mask == MASK_CAUSAL;
        struct system *system = system_of(by_token ? "vllm-ar" : "sdar", m->name, "a100-80g", true);
        uint32_t block = by_token ? 1 : m->block_tokens;
        /* 512 tokens behind 1024, of which the last decides on a token where tokens are decided one
         * by one; and a block behind 2048. */
        const struct span spans[] = {prefill_span(512, 1024, by_token ? 1 : 0),
                                     block_span(block, 2048, 0, 0)};
        double pairs = 512.0 * 1024 + 512.0 * 513 / 2 + block * (2048.0 + block);
        double tokens = 512.0 + block;
        double expected = m->layers * layer_flops(m, (struct layer_work){tokens, tokens, pairs}) +
                          head_flops(m, block + (by_token ? 1.0 : 0.0));
        ck_assert_double_eq_tol(step_flops(system, spans, 2) / expected, 1, 1e-12);
        system_close(system);
    }
}

TEST(chunks_of_a_prompt_do_the_work_of_the_whole) {
    struct rng rng = rng_stream(22, "chunks");
    for (int round = 0; round < 200; round++) {
        uint32_t prompt = rig_between(&rng, 1, 20000), done = 0;
        struct step_shape whole, parts;
        struct span span = prefill_span(prompt, 0, 0);
        shape_clear(&whole);
        shape_clear(&parts);
        shape_add(whole.sym, &span, 1);
        while (done < prompt) {
            span = prefill_span(rig_between(&rng, 1, prompt - done), done, 0);
            shape_add(parts.sym, &span, 1);
            done += span.queries;
        }
        ck_assert_int_eq(parts.sym[SYM_TOKENS], whole.sym[SYM_TOKENS]);
        ck_assert_int_eq(parts.sym[SYM_PREFILL_QK], whole.sym[SYM_PREFILL_QK]);
        ck_assert_int_ge(parts.sym[SYM_PREFILL_K], whole.sym[SYM_PREFILL_K]); /* read again */
    }
}

TEST(eviction_spares_all_but_the_first_layer_and_the_seconds_projections) {
    const struct model *m = model_of("sdar-8b");
    struct system *focus = system_of("focus", m->name, "a100-80g", true);
    struct system *plain = system_of("sdar", m->name, "a100-80g", true);
    /* 48 blocks of 32 behind 700 rows, of which 9 tokens go on and see 720. Of blocks in prefill
     * every token goes on. */
    struct span spans[49], whole[49];
    for (int i = 0; i < 48; i++) {
        spans[i] = block_span(32, 700, 9, 720);
        whole[i] = block_span(32, 700, 0, 0);
    }
    spans[48] = whole[48] = prefill_span(256, 0, 0);
    double tokens = 48.0 * 32 + 256, kept = 48.0 * 9 + 256, prefill_pairs = 256.0 * 257 / 2;
    double pairs = 48.0 * 32 * 732 + prefill_pairs, kept_pairs = 48.0 * 9 * 720 + prefill_pairs;
    double first = layer_flops(m, (struct layer_work){tokens, tokens, pairs});
    double second = layer_flops(m, (struct layer_work){tokens, kept, kept_pairs});
    double other = layer_flops(m, (struct layer_work){kept, kept, kept_pairs});
    double expected = first + second + (m->layers - 2) * other + head_flops(m, 48.0 * 9);
    double all = m->layers * first + head_flops(m, 48.0 * 32);
    double found = step_flops(focus, spans, 49), baseline = step_flops(plain, whole, 49);
    ck_assert_double_eq_tol(found / expected, 1, 1e-12);
    ck_assert_double_eq_tol(baseline / all, 1, 1e-12);
    ck_assert_double_eq_tol(found / baseline, expected / all, 1e-12);
    /* With nothing evicted it is the same step. */
    for (int i = 0; i < 48; i++) {
        spans[i] = block_span(32, 700, 32, 732);
    }
    ck_assert_double_eq_tol(step_flops(focus, spans, 49) / all, 1, 1e-12);
    system_close(focus);
    system_close(plain);
}

/* Layers before the one that evicts run everything, and its position in the model is all that
 * changes. */
TEST(a_deeper_eviction_spares_fewer_layers) {
    const struct model *m = model_of("sdar-8b");
    struct span span = block_span(32, 700, 9, 720);
    struct layer_work whole = {32, 32, 32.0 * 732}, cut = {32, 9, 9.0 * 720},
                      rest = {9, 9, 9.0 * 720};
    for (uint32_t layer = 1; layer < m->layers; layer += 7) {
        struct setting setting = {.key = "cache.layer", .place = "test"};
        snprintf(setting.value, sizeof setting.value, "%u", layer);
        struct system_request request = {.system = "focus",
                                         .model = m->name,
                                         .gpu = "a100-80g",
                                         .roofline = true,
                                         .overrides = &setting,
                                         .n_overrides = 1};
        struct system *system = NULL;
        struct err err = {0};
        ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
        double expected = layer * layer_flops(m, whole) + layer_flops(m, cut) +
                          (m->layers - 1 - layer) * layer_flops(m, rest) + head_flops(m, 9);
        ck_assert_double_eq_tol(step_flops(system, &span, 1) / expected, 1, 1e-12);
        system_close(system);
    }
}

/* Reads "OPERATOR,batch,q,kv,heads,kv_heads,head_dim,us"; false for other lines. */
struct attention_row {
    bool decode;
    long batch, q, kv, heads, kv_heads, head_dim;
    double us;
};

static bool read_row(const char *line, struct attention_row *row) {
    char name[32];
    int n = sscanf(line, "attention_%31[a-z],%ld,%ld,%ld,%ld,%ld,%ld,%lf", name, &row->batch,
                   &row->q, &row->kv, &row->heads, &row->kv_heads, &row->head_dim, &row->us);
    row->decode = n == 8 && strcmp(name, "decode") == 0;
    return n == 8 && (row->decode || strcmp(name, "causal") == 0);
}

/* Keys and values are read at least once, at the data sheet's bandwidth: of the tables' small rows
 * some found them in the L2 cache. */
static double floor_ns(const struct attention_row *row, const struct profile *profile) {
    double bytes = 2.0 * 2 * (double)(row->batch * row->kv * row->kv_heads * row->head_dim);
    return 1e9 * bytes / profile_peaks(profile)->bandwidth;
}

static void check_rows(const char *gpu, size_t least) {
    struct system *system = system_of("vllm-ar", "llama-3.1-8b", gpu, false);
    char path[256], line[256];
    size_t n = 0, n_streaming = 0;
    snprintf(path, sizeof path, "kernels/profiles/%s.csv", gpu);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        struct attention_row row;
        if (!read_row(line, &row)) {
            continue;
        }
        double q = (double)row.q, kv = (double)row.kv, batch = (double)row.batch;
        double pairs = row.decode ? kv : q * (kv - q) + q * (q + 1) / 2;
        const struct profile_spans spans =
            MAKE(struct profile_spans, .n_seqs = row.batch, .sum_q = batch * q,
                 .sum_kv = batch * kv, .sum_q_kv = batch * pairs, .heads = row.heads,
                 .kv_heads = row.kv_heads, .head_dim = row.head_dim);
        enum profile_match match;
        double ns = row.decode ? profile_attention(system->profile, &spans, &match)
                               : profile_attention_prefill(system->profile, &spans, &match);
        double streaming_ns = floor_ns(&row, system->profile);
        double expected = fmax(1e3 * row.us, streaming_ns);
        if (!(fabs(ns / expected - 1) < 1e-9)) {
            ck_abort_msg("%s: %s%f ns, expected %f", gpu, line, ns, expected);
        }
        if (!row.decode && match != PROFILE_EXACT) {
            ck_abort_msg("%s: %s is no exact match", gpu, line);
        }
        n_streaming += streaming_ns > 1e3 * row.us;
        n++;
    }
    fclose(file);
    ck_assert_uint_ge(n, least);
    ck_assert_uint_lt(n_streaming, n / 5);
    system_close(system);
}

TEST(attention_at_measured_rows_takes_the_time_measured) {
    check_rows("rtx-pro-6000", 400);
    check_rows("a100-80g", 9000);
}

/* The whole step finds these rows: every layer, its own time. */
TEST(a_step_of_measured_sizes_is_priced_by_its_rows) {
    struct system *system = system_of("vllm-ar", "llama-3.1-8b", "rtx-pro-6000", false);
    const struct {
        uint32_t n;
        struct span span;
        const char *op;
        double us;
    } cases[] = {
        {1, prefill_span(256, 1024, 1), "prefill attention", 32.0217},
        {1, prefill_span(16, 1152, 1), "prefill attention", 31.6803},
        {8, block_span(1, 127, 0, 0), "block attention", 16.608},
        {64, block_span(1, 767, 0, 0), "block attention", 176.544},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct step_shape shape;
        struct op_price ops[GRAPH_MAX_OPS];
        shape_clear(&shape);
        for (uint32_t j = 0; j < cases[i].n; j++) {
            shape_add(shape.sym, &cases[i].span, 1);
        }
        cost_explain(system->cost, &shape, system->chunks.bound, ops);
        bool found = false;
        for (uint32_t op = 0; op < system->graph.n_ops; op++) {
            bool is_it = strcmp(system->graph.ops[op].name, cases[i].op) == 0;
            found = found || is_it;
            ck_assert(!is_it || ops[op].executions == 32);
            ck_assert_double_eq_tol(is_it ? ops[op].ns / (32e3 * cases[i].us) : 1, 1, 1e-9);
            /* The other kind of attention has nothing to do. */
            ck_assert(is_it || strstr(system->graph.ops[op].name, "attention") == NULL ||
                      system->graph.ops[op].span_n == SYM_ONE || ops[op].ns == 0);
        }
        ck_assert(found);
    }
    system_close(system);
}

TEST(the_longest_canvas_is_what_its_exact_rows_leave_room_for) {
    static const char *const names[][2] = {{"sdar", "sdar-8b"}, {"vllm-ar", "llama-3.1-8b"}};
    for (int i = 0; i < 2; i++) {
        struct system *s = system_of(names[i][0], names[i][1], "a100-80g", true);
        const struct lmax_request request = {.system = s, .prompt_share = 0.5};
        struct lmax lmax;
        struct err err = {0};
        ck_assert_msg(lmax_find(&request, &lmax, &err) == 0, "%s", err.text);
        int64_t canvas = lmax.longest.canvas_tokens;
        /* One token decides on the next: the last one's keys and values are never needed. */
        int64_t rows = canvas - (s->model->mask == MASK_CAUSAL);
        ck_assert_int_eq(lmax.longest.cached_bytes,
                         rows * model_kv_bytes_per_token(s->model, NUMBER_BF16));
        /* A piece of a prompt, not a canvas, and the logits of a block. */
        ck_assert_int_le(lmax.longest.held_bytes, s->budget.activation_bytes);
        ck_assert_int_lt(lmax.longest.live.peak_bytes, 3 * (INT64_C(1) << 30));
        int64_t left = lmax.available_bytes - lmax.longest.cached_bytes - lmax.longest.held_bytes;
        ck_assert_int_ge(left, 0);
        ck_assert_int_lt(left, (LMAX_GRANULE_TOKENS + 1) *
                                   model_kv_bytes_per_token(s->model, NUMBER_BF16));
        system_close(s);
    }
}

/* What the runtime says the device waits, in steps in which something is evicted and in no other.
 */
TEST(a_step_that_evicts_waits_for_the_host) {
    struct system *systems[2]; /* without the wait and with it */
    const struct {
        struct span span;
        bool waits;
    } steps[] = {{block_span(32, 512, 5, 530), true},
                 {block_span(32, 512, 32, 544), false},
                 {prefill_span(512, 0, 0), false}};
    for (int waits = 0; waits < 2; waits++) {
        systems[waits] = system_of("focus", "sdar-8b", "a100-80g", true);
        struct op *evict = systems[waits]->graph.ops;
        while (evict->kind != OP_EVICT) {
            evict++;
        }
        evict->wait_ns = waits * 475e3;
        systems[waits]->runtime.host_factor = 2;
    }
    const struct system *s = systems[1];
    for (int i = 0; i < 3; i++) {
        struct step_price price[2];
        struct step_shape shape;
        shape_clear(&shape);
        shape_add(shape.sym, &steps[i].span, 1);
        for (int waits = 0; waits < 2; waits++) {
            cost_price(systems[waits]->cost, &shape, (struct chunk_rows){{0}}, &price[waits]);
        }
        double wait_ns = price[1].device_ns - price[0].device_ns;
        ck_assert_double_eq_tol(wait_ns, steps[i].waits ? 950e3 : 0, 1e-3);
        /* It is the operator's own time, not what is left of the step's. */
        struct op_price ops[GRAPH_MAX_OPS];
        double sum_ns = 0;
        cost_explain(s->cost, &shape, (struct chunk_rows){{0}}, ops);
        for (uint32_t op = 0; op < s->graph.n_ops; op++) {
            sum_ns += ops[op].ns;
        }
        ck_assert_double_eq_tol(sum_ns, price[1].device_ns, 1e-6 * sum_ns);
    }
    system_close(systems[0]);
    system_close(systems[1]);
}

SUITE("exact cost")
