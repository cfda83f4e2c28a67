/* The forward pass: whole models against an independent one in double and against PyTorch, requests
 * step by step under every kind of cache, batches, heads, chunks, placements. */
#include <stdio.h>

#include "engine/weights/safetensors.h"
#include "sim/base/input/datadir.h"
#include "tests/support/says.h"
#include "tests/support/script.h"

static double logits_naive[MAX_NAIVE][MAX_VOCAB];

TEST(the_full_pass_equals_an_independent_forward_in_double) {
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_open(models[i], &fused, "random:11");
        draw_ids(models[i], 5);
        rig_write(rig, 0, 0, ids, 37);
        rig_clear(rig);
        rig_add(rig, 37, 0, &(struct step_part){.positions = count});
        rig_step(rig);
        naive_forward(&rig->weights, ids, 0, 37, NULL, &kv_own, logits_naive);
        double error = relative_error(rig->logits, logits_naive, 37, (int)models[i]->vocab);
        ck_assert_msg(error <= 1e-5, "%s: %g", models[i]->name, error);
        for (int t = 0; t < 37; t++) {
            assert_decision(rig, t, logits_naive[t]);
        }
        ck_assert_int_eq(rig_close(rig), 0);
    }
}

/* Tokens into ids, logits into logits_naive; returns how many tokens. */
static int read_golden(const struct model *model, char folder[512]) {
    char file[600], relative[64];
    snprintf(relative, sizeof relative, "tests/golden/engine/%s", model->name);
    data_path(folder, 512, relative);
    snprintf(file, sizeof file, "%s/golden.safetensors", folder);
    struct safetensors golden;
    struct err err = {0};
    ck_assert_msg(safetensors_open(file, &golden, &err) == 0, "%s", err.text);
    const struct stored_tensor *tokens = safetensors_find(&golden, "ids");
    const struct stored_tensor *logits = safetensors_find(&golden, "logits");
    ck_assert(tokens != NULL && logits != NULL && logits->shape[1] == model->vocab);
    int n = (int)tokens->n_elements;
    for (int t = 0; t < n; t++) {
        float value;
        stored_read(tokens, t, 1, &value);
        ids[t] = (int32_t)value;
        count[t] = t;
        for (int v = 0; v < (int)model->vocab; v++) {
            stored_read(logits, t * (int)model->vocab + v, 1, &value);
            logits_naive[t][v] = (double)value;
        }
    }
    safetensors_close(&golden);
    return n;
}

TEST(checkpoints_give_the_logits_that_pytorch_computes_from_them) {
    for (int i = 0; i < 4; i++) {
        const struct model *model = models[i / 2];
        char folder[512];
        enum kernel_dtype dtype = i % 2 == 0 ? KERNEL_F32 : KERNEL_BF16;
        int n = read_golden(model, folder);
        struct rig *rig = rig_set_up(&(struct rig_setup){model, &fused, folder, NULL, dtype, NULL});
        rig_write(rig, 0, 0, ids, n);
        rig_clear(rig);
        rig_add(rig, (uint32_t)n, 0, &(struct step_part){.positions = count});
        rig_step(rig);
        double error = relative_error(rig->logits, logits_naive, n, (int)model->vocab);
        /* Dream's checkpoint is stored in float32: in bf16 its weights are rounded too. */
        double bound = dtype == KERNEL_F32 ? 1e-5 : model == &dream ? 1.5e-2 : 1e-2;
        ck_assert_msg(error <= bound, "%s: %g", model->name, error);
        rig_close(rig);
    }
}

static const struct script scripts[] = {
    {.keeping = KEEP_NONE, .canvas = 40, .prompt = 7, .block = 11, .steps = 3, .take = 4},
    {.keeping = KEEP_BEFORE, .canvas = 38, .prompt = 6, .block = 8, .steps = 4, .take = 2},
    {.keeping = KEEP_OUTSIDE, .canvas = 61, .prompt = 21, .block = 10, .steps = 4, .take = 0},
    {.keeping = KEEP_CHOSEN,
     .canvas = 59,
     .prompt = 17,
     .block = 14,
     .steps = 5,
     .take = 3,
     .retain = 19},
};
enum { N_SCRIPTS = 4 };

/* One request from its prompt to its last block, canvas and logits compared at every step. */
static void follow(const struct script *script, struct rig *rig, bool together) {
    static struct naive_request reference;
    struct script s = *script;
    int32_t canvas[MAX_NAIVE];
    int n_steps = 0;
    script_start(&s, 1, rig, reference.tokens);
    for (; !script_over(&s); script_advance(&s), n_steps++) {
        rig_clear(rig);
        script_add(&s, rig);
        rig_step(rig);
        naive_step(&s, &rig->weights, together, (double)rig->threshold, &reference);
        for (int r = 0; r < s.block; r++) {
            double error =
                relative_error(rig->logits + r * (int)rig->graph.model->vocab,
                               &reference.logits[s.rows[r]], 1, (int)rig->graph.model->vocab);
            ck_assert_msg(error <= 1e-5, "%s, step %d, row %d: %g", rig->graph.model->name, n_steps,
                          r, error);
        }
        rig_read(rig, 1, 0, canvas, s.canvas);
        ck_assert_mem_eq(canvas, reference.tokens, (size_t)s.canvas * sizeof *canvas);
    }
    ck_assert_int_ge(n_steps, 9);
}

TEST(every_cache_decodes_as_a_reference_with_its_own_caches) {
    for (int i = 0; i < N_MODELS * N_SCRIPTS; i++) {
        const struct script *script = &scripts[i % N_SCRIPTS];
        bool selects = script->keeping == KEEP_CHOSEN;
        struct rig *rig = rig_open(models[i / N_SCRIPTS], selects ? &sparse : &fused, "random:12");
        follow(script, rig, false);
        rig_close(rig);
    }
}

TEST(heads_that_choose_together_keep_the_same_rows) {
    struct step_limits uniform = limits;
    uniform.selects_together = true;
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_set_up(
            &(struct rig_setup){models[i], &sparse, "random:12", NULL, KERNEL_F32, &uniform});
        follow(&scripts[3], rig, true);
        rig_close(rig);
    }
}

/* The block behind all that is cached: keys keep their order, and so the result its bits. */
TEST(a_dual_cache_with_everything_fresh_equals_the_full_pass_bit_for_bit) {
    enum { CANVAS = 70, BLOCK = 9, BEGIN = CANVAS - BLOCK };
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_open(models[i], &fused, "random:13");
        static float full[BLOCK * MAX_VOCAB];
        int32_t kv_rows[CANVAS];
        const struct kv_store kv = {.first = 1024, .n_rows = BEGIN};
        size_t vocab = models[i]->vocab;
        draw_ids(models[i], 6);
        rig_write(rig, 0, 0, ids, CANVAS);
        for (int t = 0; t < CANVAS; t++) {
            kv_rows[t] = t < BEGIN ? t : -1;
        }
        rig_clear(rig);
        rig_add(rig, CANVAS, 0,
                &(struct step_part){.positions = count, .kv_rows = kv_rows, .kv = kv});
        rig_step(rig);
        memcpy(full, rig->logits + BEGIN * vocab, BLOCK * vocab * sizeof *full);
        rig_clear(rig);
        rig_add(rig, BLOCK, BEGIN, &(struct step_part){.positions = count + BEGIN, .kv = kv});
        rig_step(rig);
        ck_assert_mem_eq(rig->logits, full, BLOCK * vocab * sizeof *full);
        rig_close(rig);
    }
}

enum { N_BATCHED = 6 };

/* Requests of every kind, two of them twice, a step apart. */
static void start_batch(struct script batch[N_BATCHED], struct rig *rig) {
    static const int kinds[N_BATCHED] = {3, 0, 2, 1, 3, 2};
    int32_t tokens[MAX_NAIVE];
    for (int i = 0; i < N_BATCHED; i++) {
        batch[i] = scripts[kinds[i]];
        script_start(&batch[i], i, rig, tokens);
        batch[i].steps += i / 4;
    }
}

TEST(a_request_gets_the_same_bits_alone_and_in_a_batch_at_every_step) {
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_open(models[i], &sparse, "random:14");
        struct rig *alone = rig_open(models[i], &sparse, "random:14");
        static struct script batch[N_BATCHED], single[N_BATCHED];
        size_t vocab = models[i]->vocab;
        int n_steps = 0;
        memset(rig_pool(rig), 0, POOL * sizeof(float));
        memset(rig_pool(alone), 0, POOL * sizeof(float));
        start_batch(batch, rig);
        start_batch(single, alone);
        for (bool any = true; any; n_steps++) {
            rig_clear(rig);
            for (int r = 0; r < N_BATCHED; r++) {
                if (!script_over(&batch[r])) {
                    script_add(&batch[r], rig);
                }
            }
            rig_step(rig);
            any = false;
            size_t row = 0;
            for (int r = 0, at = 0; r < N_BATCHED; r++) {
                if (script_over(&batch[r])) {
                    continue;
                }
                size_t n = (size_t)batch[r].block;
                rig_clear(alone);
                script_add(&single[r], alone);
                rig_step(alone);
                ck_assert_mem_eq(alone->logits, rig->logits + row * vocab,
                                 n * vocab * sizeof(float));
                ck_assert_mem_eq(alone->token, rig->token + row, n * sizeof(int32_t));
                ck_assert_mem_eq(alone->confidence, rig->confidence + row, n * sizeof(float));
                ck_assert_mem_eq(alone->committed, rig->committed + row, n);
                ck_assert_int_eq(alone->n_committed[0], rig->n_committed[at++]);
                row += n;
                script_advance(&batch[r]);
                script_advance(&single[r]);
                any = any || !script_over(&batch[r]);
            }
            ck_assert_int_eq(rig->token[row], -1); /* nothing beyond the rows asked for */
            ck_assert_mem_eq(rig_pool(rig), rig_pool(alone), POOL * sizeof(float));
        }
        ck_assert_int_ge(n_steps, 12);
        rig_close(rig);
        rig_close(alone);
    }
}

/* A mixed batch: refreshes that keep rows, select them or none; reuses of stores filled before; one
 * asks for some logits only, in an order of its own; decisions of both kinds and none. */
enum { N_MIXED = 6 };
static const uint32_t mixed_queries[N_MIXED] = {5, 23, 9, 31, 3, 20};
static const uint32_t mixed_context[N_MIXED] = {14, 0, 30, 0, 1, 0};
static const struct decision mixed_decisions[N_MIXED] = {
    {.first_row = 0, .n_rows = 5, .take = 2}, {.first_row = 1, .n_rows = 2, .take = 0},
    {.first_row = 0, .n_rows = 0, .take = 0}, {.first_row = 3, .n_rows = 20, .take = 0},
    {.first_row = 0, .n_rows = 0, .take = 0}, {.first_row = 0, .n_rows = 20, .take = 40}};
static int32_t mixed_kv_rows[64];

static void add_mixed(struct rig *rig) {
    static const int32_t wanted[] = {22, 0, 7};
    for (int i = 0; i < N_MIXED; i++) {
        struct step_part part =
            MAKE(struct step_part, .canvas = i * CANVAS_TOKENS, .positions = count + 3 * i,
                 .decision = mixed_decisions[i], .kv = {STORE * i, (int32_t)mixed_context[i]});
        part.logit_rows = i == 1 ? wanted : NULL;
        if (i == 3) {
            part.kv_rows = mixed_kv_rows;
            part.kv.n_rows = 12;
        } else if (i == 5) {
            part.kv.n_rows = 6;
            part.block_start = 4;
            part.block_end = 9;
        }
        struct span *span = rig_add(rig, mixed_queries[i], mixed_context[i], &part);
        span->logit_rows = i == 1 ? 3 : i == 4 ? 0 : mixed_queries[i];
        span->select_rows = i == 5 ? 15 : 0;
        span->pack_rows = i == 5 ? 6 : 0;
    }
}

/* Every third token is a mask. */
static void fill_mixed(struct rig *rig) {
    const struct model *model = rig->graph.model;
    draw_ids(model, 10);
    for (int i = 0; i < MAX_TOKENS; i += 3) {
        ids[i] = (int32_t)model->mask_token;
    }
    for (int i = 0; i < N_MIXED; i++) {
        rig_write(rig, i, 0, ids + 50 * i, 128);
    }
    for (int t = 0; t < 64; t++) {
        mixed_kv_rows[t] = t % 3 == 0 && t / 3 < 11 ? t / 3 : -1;
    }
    struct rng rng = rng_stream(3, "pool");
    for (int i = 0; i < POOL; i++) {
        rig_pool(rig)[i] = (float)(2 * rng_uniform(&rng) - 1);
    }
}

static const struct chunk_rows whole = {{0}}, fours = {{4, 4, 4}};

static struct rig *mixed_rig(const struct model *model, const struct graph_options *options,
                             const char *planner, struct chunk_rows chunks) {
    struct rig *rig = rig_open(model, options, "random:16");
    rig->planner = planner;
    rig->chunks = chunks;
    fill_mixed(rig);
    rig_clear(rig);
    add_mixed(rig);
    return rig;
}

TEST(only_the_rows_that_are_kept_are_written_to_the_pool) {
    struct rig *rig = mixed_rig(&sdar, &sparse, "first-fit", whole);
    static float before[POOL];
    memcpy(before, rig_pool(rig), sizeof before);
    rig_step(rig);
    int size = (int)sdar.head_dim, heads = (int)(2 * sdar.layers * sdar.kv_heads);
    for (int i = 0; i < POOL; i++) {
        int by_row = i - STORE * 3, chosen = i - STORE * 5;
        /* Row 11 of the store of 12 is nobody's. */
        bool mine = (by_row >= 0 && by_row < heads * 12 * size && by_row / size % 12 < 11) ||
                    (chosen >= 0 && chosen < heads * 6 * size);
        ck_assert_msg((rig_pool(rig)[i] != before[i]) == mine, "element %d", i);
    }
    rig_close(rig);
}

static void assert_same_result(struct rig *a, struct rig *b) {
    size_t rows = (size_t)b->shape.sym[SYM_LOGIT_ROWS];
    int32_t canvases[2][N_MIXED * CANVAS_TOKENS];
    ck_assert_mem_eq(a->token, b->token, sizeof a->token);
    ck_assert_mem_eq(a->confidence, b->confidence, rows * sizeof(float));
    ck_assert_mem_eq(a->committed, b->committed, sizeof a->committed);
    ck_assert_mem_eq(a->n_committed, b->n_committed, sizeof a->n_committed);
    ck_assert_mem_eq(rig_pool(a), rig_pool(b), POOL * sizeof(float));
    rig_read(a, 0, 0, canvases[0], N_MIXED * CANVAS_TOKENS);
    rig_read(b, 0, 0, canvases[1], N_MIXED * CANVAS_TOKENS);
    ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
    if (rig_stores_logits(a) && rig_stores_logits(b)) {
        ck_assert_mem_eq(a->logits, b->logits, rows * a->graph.model->vocab * sizeof *a->logits);
    }
}

enum { N_CHUNKINGS = 10 };

/* Every planner, chunks of both kinds, and ways to run the head, with gates and ups in one operator
 * or in two. */
static void place_in_every_way(const struct model *model, bool fused_gate_up) {
    static const struct chunk_rows chunks[] = {{{0, 0, 0}},  {{0, 0, 1}},   {{0, 0, 4}},
                                               {{0, 1, 41}}, {{0, 7, 200}}, {{0, 60, 0}},
                                               {{0, 500, 4}}};
    struct rng rng = rng_stream(1, "chunks");
    struct graph_options stored = sparse, by_hand = eager, one_operator = sparse;
    const struct graph_options *const options[] = {&stored, &by_hand, &one_operator};
    by_hand.selects = one_operator.fused_head = true;
    stored.fused_gate_up = by_hand.fused_gate_up = one_operator.fused_gate_up = fused_gate_up;
    struct rig *plain = mixed_rig(model, &stored, "first-fit", whole);
    rig_step(plain);
    for (size_t i = 0; i < planner_table_size * N_CHUNKINGS; i++) {
        for (int o = 0; o < 3; o++) {
            struct chunk_rows drawn = {
                {0, 1 + (int64_t)(rng_next(&rng) % 120), 1 + (int64_t)(rng_next(&rng) % 120)}};
            size_t n = i % N_CHUNKINGS;
            struct rig *other = mixed_rig(model, options[o], planner_table[i / N_CHUNKINGS].name,
                                          n < sizeof chunks / sizeof chunks[0] ? chunks[n] : drawn);
            rig_step(other);
            assert_same_result(other, plain);
            ck_assert_int_eq(forward_workspace_peak(other->forward), other->placement.peak_bytes);
            rig_close(other);
        }
    }
    rig_close(plain);
}

TEST(planners_chunks_heads_and_eager_graphs_give_the_same_bits) {
    for (int i = 0; i < N_MODELS; i++) {
        place_in_every_way(models[i], false);
        place_in_every_way(models[i], true);
    }
}

enum { N_WHOLE = 3 };

/* Three requests over their whole canvases, each of which commits some positions. */
static struct rig *whole_canvases(const struct model *model, const struct graph_options *options,
                                  const char *planner, struct chunk_rows chunks) {
    static const uint32_t tokens[N_WHOLE] = {37, 1, 90};
    struct rig *rig = rig_open(model, options, "random:23");
    rig->planner = planner;
    rig->chunks = chunks;
    draw_ids(model, 19);
    rig_clear(rig);
    for (uint32_t i = 0; i < N_WHOLE; i++) {
        rig_write(rig, (int)i, 0, ids + 100 * i, (int)tokens[i]);
        rig_add(rig, tokens[i], 0,
                &(struct step_part){.canvas = i * CANVAS_TOKENS,
                                    .positions = count,
                                    .decision = {.n_rows = tokens[i], .take = 2}});
    }
    rig_step(rig);
    return rig;
}

/* Queries apart from keys and values, in every planner's place and any chunks. */
static void attend_in_every_way(const struct model *model, bool fused_gate_up) {
    struct graph_options together = fused, apart = fused;
    struct rng rng = rng_stream(2, "chunks");
    together.fused_gate_up = apart.fused_gate_up = fused_gate_up;
    apart.query_chunks = true;
    struct rig *plain = whole_canvases(model, &together, "first-fit", whole);
    for (size_t i = 0; i < planner_table_size * N_CHUNKINGS; i++) {
        struct chunk_rows chunks = {{0}};
        for (int kind = 0; i % N_CHUNKINGS > 0 && kind < CHUNK_LOGITS; kind++) {
            chunks.of[kind] = 1 + (int64_t)(rng_next(&rng) % 150);
        }
        struct rig *other =
            whole_canvases(model, &apart, planner_table[i / N_CHUNKINGS].name, chunks);
        assert_same_result(other, plain);
        ck_assert_int_eq(forward_workspace_peak(other->forward), other->placement.peak_bytes);
        rig_close(other);
    }
    rig_close(plain);
}

TEST(attention_over_its_queries_in_chunks_gives_the_same_bits) {
    for (int i = 0; i < N_MODELS; i++) {
        attend_in_every_way(models[i], false);
        attend_in_every_way(models[i], true);
    }
}

TEST(gates_and_ups_in_one_operator_give_the_same_logits) {
    struct graph_options one_operator = fused;
    one_operator.fused_gate_up = true;
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_open(models[i], &one_operator, "random:11");
        draw_ids(models[i], 5);
        rig_write(rig, 0, 0, ids, 37);
        rig_clear(rig);
        rig_add(rig, 37, 0, &(struct step_part){.positions = count});
        rig_step(rig);
        naive_forward(&rig->weights, ids, 0, 37, NULL, &kv_own, logits_naive);
        double error = relative_error(rig->logits, logits_naive, 37, (int)models[i]->vocab);
        ck_assert_msg(error <= 1e-5, "%s: %g", models[i]->name, error);
        rig_close(rig);
    }
}

TEST(in_bf16_the_fused_head_decides_as_stored_logits_do) {
    struct graph_options one_operator = fused;
    one_operator.fused_head = true;
    for (int i = 0; i < N_MODELS; i++) {
        struct rig_setup setup = {models[i], &fused, "random:17", NULL, KERNEL_BF16, NULL};
        struct rig *stored = rig_set_up(&setup);
        setup.options = &one_operator;
        struct rig *single = rig_set_up(&setup), *const both[] = {stored, single};
        draw_ids(models[i], 11);
        for (int r = 0; r < 2; r++) {
            rig_write(both[r], 0, 0, ids, 50);
            rig_clear(both[r]);
            rig_add(both[r], 50, 0, &(struct step_part){.positions = count});
            rig_step(both[r]);
        }
        ck_assert_mem_eq(stored->token, single->token, sizeof stored->token);
        ck_assert_mem_eq(stored->confidence, single->confidence, 50 * sizeof(float));
        rig_close(stored);
        rig_close(single);
    }
}

TEST(logits_that_are_not_stored_whole_are_not_given) {
    struct graph_options one_operator = sparse;
    one_operator.fused_head = true;
    const struct graph_options *const options[] = {&sparse, &one_operator};
    for (int i = 0; i < 2; i++) {
        struct rig *rig = mixed_rig(&dream, options[i], "first-fit", fours);
        struct err err = {0};
        rig_step(rig);
        ck_assert_int_eq(forward_logits(rig->forward, rig->logits, &err), ERR_USAGE);
        ASSERT_SAYS(err.text, "the step does not store its logits all at once");
        rig_close(rig);
    }
}

/* Set every byte below `n` that no tensor live at `op` holds to a pattern of NaNs. */
static void poison(struct rig *rig, uint32_t op, unsigned char *workspace, int64_t n) {
    unsigned char *is_live = calloc((size_t)n, 1);
    for (int t = 0; t < (int)rig->graph.n_tensors; t++) {
        int first, last;
        placement_lifetime(&rig->graph, &rig->placement, t, &first, &last);
        if (rig->graph.tensors[t].home == HOME_WORKSPACE && rig->graph.tensors[t].alias < 0 &&
            first <= (int)op && (int)op <= last) {
            memset(is_live + rig->placement.offset_bytes[t], 1,
                   (size_t)tensor_bytes(&rig->graph, t, &rig->shape, rig->chunks));
        }
    }
    for (int64_t i = 0; i < n; i++) {
        workspace[i] = is_live[i] ? workspace[i] : 0xff;
    }
    free(is_live);
}

/* Whether byte `at` of the workspace belongs to an output of the operator. */
static bool is_output(const struct rig *rig, const struct op *op, int64_t at) {
    for (int i = 0; i < OP_MAX_TENSORS && op->out[i] >= 0; i++) {
        int t = op->out[i];
        int64_t start = rig->placement.offset_bytes[t];
        int64_t bytes = tensor_bytes(&rig->graph, t, &rig->shape, rig->chunks);
        if (rig->graph.tensors[t].home == HOME_WORKSPACE && at >= start && at < start + bytes) {
            return true;
        }
    }
    return false;
}

/* Operators took time, and together as long as the step. */
static void assert_instance_times(struct rig *rig) {
    double ns[GRAPH_MAX_OPS], sum_ns = 0, step_ns = 0;
    struct err err = {0};
    ck_assert_int_eq(forward_instance_times(rig->forward, INFINITY, ns, &err), 0);
    ck_assert_int_eq(forward_wait(rig->forward, &step_ns, &err), 0);
    for (uint32_t op = 0; op < rig->graph.n_ops; op++) {
        ck_assert(ns[op] >= 0);
        sum_ns += ns[op];
    }
    ck_assert_double_gt(sum_ns, 0);
    ck_assert_double_le(sum_ns, step_ns);
    ck_assert_double_gt(sum_ns, 0.999 * step_ns);
}

TEST(operators_write_their_outputs_and_read_what_is_live_and_nothing_else) {
    for (size_t i = 0; i < 2 * planner_table_size; i++) {
        const struct model *model = i % 2 == 0 ? &dream : &llada_moe;
        struct rig *plain = mixed_rig(model, &sparse, planner_table[i / 2].name, fours);
        struct rig *rig = mixed_rig(model, &sparse, planner_table[i / 2].name, fours);
        struct err err = {0};
        rig_step(plain);
        rig_plan(rig);
        ck_assert_int_eq(forward_begin(rig->forward, &rig->step, &err), 0);
        unsigned char *workspace = forward_workspace(rig->forward);
        int64_t n = rig->placement.peak_bytes + 4096, n_written = 0;
        ck_assert_int_gt(n, 0);
        unsigned char *before = malloc((size_t)n);
        while (forward_instance(rig->forward) != NULL) {
            const struct op_instance instance = *forward_instance(rig->forward);
            const struct op *op = &rig->graph.ops[instance.op];
            poison(rig, instance.op, workspace, n);
            memcpy(before, workspace, (size_t)n);
            ck_assert_int_eq(forward_next(rig->forward, &err), 0);
            for (int64_t at = 0; at < n; at++) {
                if (workspace[at] != before[at]) {
                    n_written++;
                    ck_assert_msg(is_output(rig, op, at), "'%s' wrote byte %ld", op->name,
                                  (long)at);
                }
            }
        }
        ck_assert_int_gt(n_written, 0);
        assert_instance_times(rig);
        ck_assert_int_eq(rig_collect(rig, &err), 0);
        assert_same_result(rig, plain);
        free(before);
        rig_close(rig);
        rig_close(plain);
    }
}

TEST(no_byte_above_the_peak_of_the_placement_is_written) {
    struct graph_options one_operator = sparse;
    one_operator.fused_head = true;
    const struct graph_options *const options[] = {&sparse, &one_operator};
    for (int i = 0; i < 2; i++) {
        struct rig *rig = mixed_rig(&llada, options[i], "first-fit", whole);
        rig_plan(rig);
        unsigned char *workspace = forward_workspace(rig->forward);
        int64_t peak = rig->placement.peak_bytes, n_changed = 0;
        ck_assert_int_lt(peak, WORKSPACE);
        memset(workspace + peak, 0x5a, (size_t)(WORKSPACE - peak));
        rig_step(rig);
        for (int64_t at = peak; at < WORKSPACE; at++) {
            n_changed += workspace[at] != 0x5a;
        }
        ck_assert_int_eq(n_changed, 0);
        ck_assert_int_eq(forward_workspace_peak(rig->forward), peak);
        rig_close(rig);
    }
}

SUITE("forward")
