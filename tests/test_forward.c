/* The CPU back end: whole models against an independent forward pass in double and against PyTorch,
 * batches, caches, placements, chunks, and steps that are refused. */
#include <stdio.h>

#include "engine/safetensors.h"
#include "sim/base/datadir.h"
#include "tests/forward.h"

/* ---- counting allocations ---- */

#ifndef __SANITIZE_ADDRESS__ /* the sanitizer owns the allocator */
static long n_allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size) {
    n_allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size) {
    n_allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size) {
    n_allocations++;
    return __libc_realloc(old, size);
}
#endif

START_TEST(the_full_pass_equals_an_independent_forward_in_double) {
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_open(models[i], &fused, "random:11");
        draw_ids(models[i], 5);
        rig_clear(rig);
        rig_add(rig, 37, 0, &(struct step_part){.ids = ids, .positions = count});
        rig_run(rig);
        naive_forward(&rig->weights, ids, 0, 37, NULL, NULL, 0, &kv_canvas, logits_naive);
        double error = relative_error(rig->logits, logits_naive, 37, (int)models[i]->vocab);
        ck_assert_msg(error <= 1e-5, "%s: %g", models[i]->name, error);
        for (int t = 0; t < 37; t++) {
            assert_decision(rig, t, logits_naive[t]);
        }
        rig_close(rig);
    }
}
END_TEST

START_TEST(checkpoints_give_the_logits_that_pytorch_computes_from_them) {
    for (int i = 0; i < 2; i++) {
        char folder[512], file[600], relative[64];
        snprintf(relative, sizeof relative, "tests/golden/engine/%s", models[i]->name);
        data_path(folder, sizeof folder, relative);
        snprintf(file, sizeof file, "%s/golden.safetensors", folder);
        struct safetensors golden;
        struct err err = {0};
        ck_assert_msg(safetensors_open(file, &golden, &err) == 0, "%s", err.text);
        const struct stored_tensor *tokens = safetensors_find(&golden, "ids");
        const struct stored_tensor *logits = safetensors_find(&golden, "logits");
        ck_assert(tokens != NULL && logits != NULL && logits->shape[1] == models[i]->vocab);
        int n = (int)tokens->n_elements;
        for (int t = 0; t < n; t++) {
            float value;
            stored_read(tokens, t, 1, &value);
            ids[t] = (int32_t)value;
            count[t] = t;
            for (int v = 0; v < (int)models[i]->vocab; v++) {
                stored_read(logits, t * (int)models[i]->vocab + v, 1, &value);
                logits_naive[t][v] = (double)value;
            }
        }
        safetensors_close(&golden);
        struct rig *rig = rig_open(models[i], &fused, folder);
        rig_clear(rig);
        rig_add(rig, (uint32_t)n, 0, &(struct step_part){.ids = ids, .positions = count});
        rig_run(rig);
        double error = relative_error(rig->logits, logits_naive, n, (int)models[i]->vocab);
        ck_assert_msg(error <= 1e-5, "%s: %g", models[i]->name, error);
        rig_close(rig);
    }
}
END_TEST

/* ---- caches ---- */

enum { CANVAS = 70, BLOCK = 9 };

/* Store rows of the canvas without tokens [begin, begin + BLOCK), which are not kept. */
static void rows_without_block(int begin, int32_t kv_rows[CANVAS]) {
    for (int t = 0, row = 0; t < CANVAS; t++) {
        kv_rows[t] = t >= begin && t < begin + BLOCK ? -1 : row++;
    }
}

/* One dual-cache block: a refresh that keeps all but the block, then the block against it. */
static void dual(struct rig *rig, int begin, float *full_logits) {
    int32_t kv_rows[CANVAS];
    rows_without_block(begin, kv_rows);
    const struct kv_store kv = {.first = 1024, .n_rows = CANVAS - BLOCK};
    rig_clear(rig);
    rig_add(rig, CANVAS, 0,
            &(struct step_part){.ids = ids, .positions = count, .kv_rows = kv_rows, .kv = kv});
    rig_run(rig);
    memcpy(full_logits, rig->logits, sizeof rig->logits);
    rig_clear(rig);
    rig_add(rig, BLOCK, CANVAS - BLOCK,
            &(struct step_part){.ids = ids + begin, .positions = count + begin, .kv = kv});
    rig_run(rig);
}

START_TEST(a_dual_cache_with_everything_fresh_equals_the_full_pass) {
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_open(models[i], &fused, "random:12");
        static float full[MAX_TOKENS * MAX_VOCAB];
        int vocab = (int)models[i]->vocab;
        draw_ids(models[i], 6);
        /* Behind all that is cached the keys keep their order, and so the result its bits. */
        dual(rig, CANVAS - BLOCK, full);
        ck_assert_mem_eq(rig->logits, full + (CANVAS - BLOCK) * vocab,
                         sizeof(float) * (size_t)(BLOCK * vocab));
        dual(rig, 20, full);
        for (int j = 0; j < BLOCK * vocab; j++) {
            ck_assert_float_eq_tol(rig->logits[j], full[20 * vocab + j], 2e-5f);
        }
        rig_close(rig);
    }
}
END_TEST

START_TEST(a_block_sees_the_rows_that_were_kept_and_not_what_changed_since) {
    enum { N = 40, BEGIN = 16 };
    struct rig *rig = rig_open(&dream, &fused, "random:13");
    draw_ids(&dream, 7);
    int32_t kv_rows[N];
    int rows[N], n_kept = 0;
    for (int t = 0; t < N; t++) { /* a sparse cache: every second token outside the block */
        bool kept = (t < BEGIN || t >= BEGIN + BLOCK) && t % 2 == 0;
        kv_rows[t] = kept ? n_kept : -1;
        if (kept) {
            rows[n_kept++] = t;
        }
    }
    const struct kv_store kv = {.first = 8, .n_rows = n_kept};
    rig_clear(rig);
    rig_add(rig, N, 0,
            &(struct step_part){.ids = ids, .positions = count, .kv_rows = kv_rows, .kv = kv});
    rig_run(rig);
    naive_forward(&rig->weights, ids, 0, N, NULL, NULL, 0, &kv_canvas, logits_naive);
    ids[BEGIN] = (ids[BEGIN] + 1) % (int32_t)dream.vocab;
    rig_clear(rig);
    rig_add(rig, BLOCK, (uint32_t)n_kept,
            &(struct step_part){.ids = ids + BEGIN, .positions = count + BEGIN, .kv = kv});
    rig_run(rig);
    naive_forward(&rig->weights, ids + BEGIN, BEGIN, BLOCK, &kv_canvas, rows, n_kept, &kv_block,
                  logits_naive);
    double error = relative_error(rig->logits, logits_naive, BLOCK, (int)dream.vocab);
    ck_assert_msg(error <= 1e-5, "%g", error);
    rig_close(rig);
}
END_TEST

/* ---- batches ---- */

/* The parts of a mixed batch: refreshes that keep rows or none, and reuses of stores filled before;
 * one asks for some logits only, in an order of its own. */
enum { N_MIXED = 5 };
static const uint32_t mixed_queries[N_MIXED] = {5, 23, 9, 31, 3};
static const uint32_t mixed_context[N_MIXED] = {14, 0, 30, 0, 1};
static int32_t mixed_kv_rows[64];

static struct step_part mixed_part(int i) {
    static const int32_t wanted[] = {22, 0, 7};
    struct step_part part = {.ids = ids + 40 * i,
                             .positions = count + 3 * i,
                             .kv = {8192 * i, (int32_t)mixed_context[i]}};
    part.logit_rows = i == 1 ? wanted : NULL;
    if (i == 3) {
        part.kv_rows = mixed_kv_rows;
        part.kv.n_rows = 12;
    }
    return part;
}

static uint32_t add_mixed(struct rig *rig, int i) {
    struct step_part part = mixed_part(i);
    rig_add(rig, mixed_queries[i], mixed_context[i], &part);
    uint32_t rows = i == 1 ? 3 : i == 4 ? 0 : mixed_queries[i];
    rig->spans[rig->shape.n_spans - 1].logit_rows = rows;
    return rows;
}

static void fill_pool(struct rig *rig) {
    struct rng rng = rng_stream(3, "pool");
    for (int i = 0; i < POOL; i++) {
        rig->k[i] = (float)(2 * rng_uniform(&rng) - 1);
        rig->v[i] = (float)(2 * rng_uniform(&rng) - 1);
    }
    for (int t = 0; t < 64; t++) {
        mixed_kv_rows[t] = t % 3 == 0 && t / 3 < 12 ? t / 3 : -1;
    }
}

START_TEST(a_request_gets_the_same_bits_alone_and_packed_with_others) {
    for (int i = 0; i < N_MODELS; i++) {
        struct rig *rig = rig_open(models[i], &fused, "random:14"),
                   *alone = rig_open(models[i], &fused, "random:14");
        draw_ids(models[i], 8);
        fill_pool(rig);
        fill_pool(alone);
        rig_clear(rig);
        for (int r = 0; r < N_MIXED; r++) {
            add_mixed(rig, r);
        }
        rig_run(rig);
        size_t row = 0, vocab = models[i]->vocab;
        for (int r = 0; r < N_MIXED; r++) {
            rig_clear(alone);
            size_t n = add_mixed(alone, r);
            rig_run(alone);
            ck_assert_mem_eq(alone->logits, rig->logits + row * vocab, n * vocab * sizeof(float));
            ck_assert_mem_eq(alone->token, rig->token + row, n * sizeof(int32_t));
            ck_assert_mem_eq(alone->confidence, rig->confidence + row, n * sizeof(float));
            row += n;
        }
        ck_assert_int_eq(rig->token[row], -1); /* nothing beyond the rows that were asked for */
        ck_assert_mem_eq(alone->k, rig->k, sizeof rig->k);
        ck_assert_mem_eq(alone->v, rig->v, sizeof rig->v);
        rig_close(rig);
        rig_close(alone);
    }
}
END_TEST

START_TEST(only_the_rows_that_are_kept_are_written_to_the_pool) {
    struct rig *rig = rig_open(&sdar, &fused, "random:15");
    draw_ids(&sdar, 9);
    fill_pool(rig);
    float *before = malloc(sizeof rig->k);
    memcpy(before, rig->k, sizeof rig->k);
    rig_clear(rig);
    for (int r = 0; r < N_MIXED; r++) {
        add_mixed(rig, r);
    }
    rig_run(rig);
    int first = 8192 * 3, n = (int)(sdar.layers * sdar.kv_heads * sdar.head_dim) * 12, kept = 11;
    for (int i = 0; i < POOL; i++) {
        bool mine = i >= first && i < first + n && (i - first) / (int)sdar.head_dim % 12 < kept;
        ck_assert_msg((rig->k[i] != before[i]) == mine, "element %d", i);
    }
    free(before);
    rig_close(rig);
}
END_TEST

/* ---- placements ---- */

static struct rig *mixed_rig(const struct graph_options *options, const char *planner,
                             int64_t chunk_rows) {
    struct rig *rig = rig_open(&dream, options, "random:16");
    rig->planner = planner;
    rig->chunk_rows = chunk_rows;
    draw_ids(&dream, 10);
    fill_pool(rig);
    rig_clear(rig);
    for (int r = 0; r < N_MIXED; r++) {
        add_mixed(rig, r);
    }
    return rig;
}

static void assert_same_result(const struct rig *a, const struct rig *b) {
    size_t rows = (size_t)b->shape.sym[SYM_LOGIT_ROWS];
    ck_assert_mem_eq(a->logits, b->logits, rows * dream.vocab * sizeof(float));
    ck_assert_mem_eq(a->token, b->token, sizeof a->token);
    ck_assert_mem_eq(a->confidence, b->confidence, rows * sizeof(float));
    ck_assert_mem_eq(a->k, b->k, sizeof a->k);
}

START_TEST(planners_chunks_and_eager_graphs_give_the_same_bits) {
    static const struct graph_options eager = {.logits_bytes = 4};
    struct rig *plain = mixed_rig(&fused, "first-fit", 0);
    rig_run(plain);
    static const int64_t chunks[] = {0, 1, 4, 41};
    for (int i = 0; i < 4; i++) {
        struct rig *a = mixed_rig(&fused, i % 2 == 0 ? "no-reuse" : "first-fit", chunks[i]);
        struct rig *b = mixed_rig(&eager, "first-fit", chunks[i]);
        rig_run(a);
        rig_run(b);
        assert_same_result(a, plain);
        assert_same_result(b, plain);
        rig_close(a);
        rig_close(b);
    }
    rig_close(plain);
}
END_TEST

/* Set every byte of the workspace that no tensor live at `op` holds to a pattern of NaNs. */
static void poison(struct rig *rig, const struct program *program, uint32_t op,
                   unsigned char *workspace) {
    static unsigned char is_live[CPU_STRETCH * (4 << 20)];
    memset(is_live, 0, (size_t)(CPU_STRETCH * limits.workspace_bytes));
    for (int t = 0; t < (int)rig->graph.n_tensors; t++) {
        int first, last;
        placement_lifetime(&rig->graph, t, &first, &last);
        /* The last three operators are head, sample and commit; the first two run chunk by chunk.
         */
        last = program_feeds_chunks(program, t) ? (int)rig->graph.n_ops - 2 : last;
        first = program_made_in_chunks(program, t) ? (int)rig->graph.n_ops - 3 : first;
        if (rig->graph.tensors[t].home == HOME_WORKSPACE && rig->graph.tensors[t].alias < 0 &&
            first <= (int)op && (int)op <= last) {
            memset(is_live + CPU_STRETCH * rig->placement.offset_bytes[t], 1,
                   (size_t)(CPU_STRETCH *
                            tensor_bytes(&rig->graph.tensors[t], &rig->shape, rig->chunk_rows)));
        }
    }
    for (int64_t i = 0; i < CPU_STRETCH * limits.workspace_bytes; i++) {
        workspace[i] = is_live[i] ? workspace[i] : 0xff;
    }
}

/* Whether byte `at` of the workspace belongs to an output of the operator. */
static bool is_output(const struct rig *rig, const struct op *op, int64_t at) {
    for (int i = 0; i < OP_MAX_TENSORS && op->out[i] >= 0; i++) {
        int t = op->out[i];
        int64_t start = CPU_STRETCH * rig->placement.offset_bytes[t];
        int64_t bytes =
            CPU_STRETCH * tensor_bytes(&rig->graph.tensors[t], &rig->shape, rig->chunk_rows);
        if (rig->graph.tensors[t].home == HOME_WORKSPACE && at >= start && at < start + bytes) {
            return true;
        }
    }
    return false;
}

START_TEST(operators_write_their_outputs_and_read_what_is_live_and_nothing_else) {
    static const char *const planners[] = {"first-fit", "no-reuse"};
    static unsigned char before[CPU_STRETCH * (4 << 20)];
    for (int i = 0; i < 2; i++) {
        struct rig *plain = mixed_rig(&fused, planners[i], 4);
        rig_run(plain);
        struct rig *rig = mixed_rig(&fused, planners[i], 4);
        struct err err = {0};
        struct program program;
        ck_assert_int_eq(rig_begin(rig, &err), 0);
        ck_assert_int_eq(program_make(&program, &rig->graph, &err), 0);
        unsigned char *workspace = cpu_workspace(rig->cpu);
        int64_t n = CPU_STRETCH * rig->placement.peak_bytes + 4096, n_written = 0;
        for (bool more = true; more;) {
            const struct op *op = &rig->graph.ops[cpu_turn(rig->cpu)->op];
            poison(rig, &program, cpu_turn(rig->cpu)->op, workspace);
            memcpy(before, workspace, (size_t)n);
            more = cpu_next(rig->cpu);
            for (int64_t at = 0; at < n; at++) {
                if (workspace[at] != before[at]) {
                    n_written++;
                    ck_assert_msg(is_output(rig, op, at), "'%s' wrote byte %ld", op->name,
                                  (long)at);
                }
            }
        }
        ck_assert_int_gt(n_written, 0);
        assert_same_result(rig, plain);
        rig_close(rig);
        rig_close(plain);
    }
}
END_TEST

#ifndef __SANITIZE_ADDRESS__
START_TEST(a_step_allocates_nothing) {
    struct rig *rig = mixed_rig(&fused, "first-fit", 4);
    struct err err = {0};
    ck_assert_int_eq(rig_begin(rig, &err), 0);
    long at_first = n_allocations;
    int status = cpu_step(rig->cpu, &rig->step, &rig->result, &err);
    long at_last = n_allocations;
    ck_assert_int_eq(status, 0);
    ck_assert(at_first > 0 && at_last == at_first);
    rig_close(rig);
}
END_TEST
#endif

/* ---- refusals ---- */

/* The sentence of a mixed step after one thing was changed. */
static const char *refusal(struct rig *rig) {
    static struct err err;
    err = (struct err){0};
    ck_assert_int_eq(rig_begin(rig, &err), ERR_USAGE);
    return err.text;
}

START_TEST(steps_that_cannot_be_run_are_refused_with_one_sentence) {
    struct rig *rig = mixed_rig(&fused, "first-fit", 0);
    int32_t good = ids[40];
    ids[40] = 61;
    ck_assert_str_eq(refusal(rig), "token 0 of span 1 is 61, but the vocabulary ends at 60");
    ids[40] = good;
    count[11] = 256;
    ck_assert_str_eq(refusal(rig), "token 8 of span 1 stands at position 256, but positions end at "
                                   "255");
    count[11] = 11;
    mixed_kv_rows[3] = 12;
    ck_assert_str_eq(refusal(rig), "span 3 keeps token 3 in row 12 of a store of 12");
    mixed_kv_rows[3] = 1;
    rig->parts[0].kv.n_rows = 13;
    ck_assert_str_eq(refusal(rig), "span 0 attends to 14 cached rows, but its store holds 13");
    rig->parts[0].kv.n_rows = 14;
    rig->parts[0].kv_rows = mixed_kv_rows;
    ck_assert_str_eq(refusal(rig), "span 0 would write to the rows it reads");
    rig->parts[0].kv_rows = NULL;
    rig->parts[0].kv.first = POOL - 440;
    ck_assert_str_eq(refusal(rig),
                     "the store of span 0, 14 rows from element 130632, is not inside "
                     "the pool of 131072 elements");
    rig->parts[0].kv.first = 0;
    const int32_t beyond[] = {0, 23, 1};
    rig->parts[1].logit_rows = beyond;
    ck_assert_str_eq(refusal(rig), "span 1 wants the logits of query 23 of 23");
    rig->parts[1].logit_rows = NULL;
    rig->spans[4].logit_rows = 4;
    ck_assert_str_eq(refusal(rig), "span 4 wants 4 logit rows of 3 queries");
    rig->spans[4].logit_rows = 0;
    rig->spans[3].select_rows = 2;
    ck_assert_str_eq(refusal(rig), "span 3 has no queries, splits its first layer, selects or "
                                   "compares rows; the engine does not run that");
    rig->spans[3].select_rows = 0;
    struct err err = {0};
    ck_assert_int_eq(rig_begin(rig, &err), 0);
    rig->shape.sym[SYM_TOKENS] = 72;
    ck_assert_int_eq(cpu_step(rig->cpu, &rig->step, &rig->result, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "the shape says tokens 72, but its spans add up to 71");
    rig_close(rig);
}
END_TEST

START_TEST(a_placement_of_another_step_is_refused) {
    struct rig *rig = mixed_rig(&fused, "first-fit", 0);
    struct err err = {0};
    ck_assert_int_eq(rig_begin(rig, &err), 0);
    struct placement small = rig->placement;
    small.bytes[0] -= PLACEMENT_ALIGN_BYTES;
    rig->step.placement = &small;
    ck_assert_int_eq(cpu_step(rig->cpu, &rig->step, &rig->result, &err), ERR_USAGE);
    char sentence[256];
    snprintf(
        sentence, sizeof sentence,
        "the placement gives tensor 'residual' 6656 bytes at 0 of %ld, but this step needs 6816",
        (long)small.peak_bytes);
    ck_assert_str_eq(err.text, sentence);
    err = (struct err){0};
    small = rig->placement;
    small.peak_bytes = limits.workspace_bytes + 1024;
    ck_assert_int_eq(cpu_step(rig->cpu, &rig->step, &rig->result, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "the placement needs 4 MiB of workspace, but there are 4 MiB");
    int norm = -1, candidates = -1;
    for (int t = 0; t < (int)rig->graph.n_tensors; t++) {
        norm = strcmp(rig->graph.tensors[t].name, "final norm") == 0 ? t : norm;
        candidates = strcmp(rig->graph.tensors[t].name, "candidates") == 0 ? t : candidates;
    }
    rig->chunk_rows = 4;
    err = (struct err){0};
    ck_assert_int_eq(rig_begin(rig, &err), 0);
    rig->placement.offset_bytes[candidates] = rig->placement.offset_bytes[norm];
    ck_assert_int_eq(cpu_step(rig->cpu, &rig->step, &rig->result, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "the placement puts tensor 'candidates' over 'final norm', which "
                               "later chunks of logits still read");
    rig_close(rig);
}
END_TEST

static const char *open_refusal(const struct model *model, const struct graph_options *options,
                                enum kernel_dtype dtype) {
    static struct err err;
    static struct graph graph;
    struct weights weights;
    struct cpu *cpu;
    err = (struct err){0};
    graph_build(&graph, model, options);
    ck_assert_int_eq(weights_open(&weights, model, "random:1", dtype, &err), 0);
    ck_assert_int_eq(cpu_open(&graph, &weights, &limits, &cpu, &err), ERR_USAGE);
    ck_assert_ptr_null(cpu);
    weights_close(&weights);
    return err.text;
}

START_TEST(graphs_models_and_weights_that_are_not_run_are_refused) {
    ck_assert_str_eq(open_refusal(&llada, &fused, KERNEL_BF16),
                     "the cpu back end takes float32 weights");
    struct model causal = llada;
    causal.mask = MASK_BLOCK_CAUSAL;
    ck_assert_str_eq(open_refusal(&causal, &fused, KERNEL_F32),
                     "the cpu back end runs bidirectional models, which 'llada-tiny' is not");
    struct graph_options options = fused;
    options.gathers_cache = true;
    ck_assert_str_eq(open_refusal(&llada, &options, KERNEL_F32),
                     "the engine does not run the operator 'kv gather' (gather over block_k)");
    options = fused;
    options.selects = true;
    ck_assert_str_eq(open_refusal(&llada, &options, KERNEL_F32),
                     "the engine does not run the operator 'score and select' (select over "
                     "select_rows)");
    options = fused;
    options.splits_first_layer = true;
    ck_assert_str_eq(open_refusal(&llada, &options, KERNEL_F32),
                     "the engine does not run the operator 'embed' (embed over first_tokens)");
    options = fused;
    options.logits_bytes = 0;
    ck_assert_str_eq(open_refusal(&llada, &options, KERNEL_F32),
                     "the cpu back end needs logits of 2 bytes or more in the graph");
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        the_full_pass_equals_an_independent_forward_in_double,
        checkpoints_give_the_logits_that_pytorch_computes_from_them,
        a_dual_cache_with_everything_fresh_equals_the_full_pass,
        a_block_sees_the_rows_that_were_kept_and_not_what_changed_since,
        a_request_gets_the_same_bits_alone_and_packed_with_others,
        only_the_rows_that_are_kept_are_written_to_the_pool,
        planners_chunks_and_eager_graphs_give_the_same_bits,
        operators_write_their_outputs_and_read_what_is_live_and_nothing_else,
#ifndef __SANITIZE_ADDRESS__
        a_step_allocates_nothing,
#endif
        steps_that_cannot_be_run_are_refused_with_one_sentence,
        a_placement_of_another_step_is_refused,
        graphs_models_and_weights_that_are_not_run_are_refused,
    };
    return SUITE_RUN("forward", tests);
}
