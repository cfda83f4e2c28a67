/* What the forward pass is given: decisions, canvases, stores that move, and steps, placements,
 * graphs, models and weights that are refused. */
#include <stdio.h>

#include "tests/support/forward.h"
#include "tests/support/says.h"

static struct rig *open_sparse(void) {
    return rig_open(&dream, &sparse, "random:21");
}

/* The rule as the simulator's host applies it: the surest of the masked rows, one by one. */
static int host_decides(const int32_t *canvas, const struct rig *rig, uint32_t first, uint32_t n,
                        int64_t take, uint8_t *committed) {
    int n_committed = 0;
    for (;;) {
        int64_t best = -1;
        for (uint32_t row = first; row < first + n; row++) {
            bool open = canvas[row] == (int32_t)rig->graph.model->mask_token && !committed[row];
            if (open && (best < 0 || rig->confidence[row] > rig->confidence[best])) {
                best = row;
            }
        }
        bool wanted =
            take > 0 ? n_committed < take
                     : n_committed == 0 || (best >= 0 && rig->confidence[best] >= rig->threshold);
        if (best < 0 || !wanted) {
            return n_committed;
        }
        committed[best] = 1;
        n_committed++;
    }
}

TEST(the_device_decides_as_the_host_would) {
    enum { N = 30, N_SPANS = 3 };
    struct rng rng = rng_stream(6, "decisions");
    struct rig *rig = open_sparse();
    for (int round = 0; round < 60; round++) {
        int32_t canvas[N_SPANS][N], after[N];
        draw_ids(&dream, (uint64_t)round);
        rig_clear(rig);
        for (int i = 0; i < N_SPANS; i++) {
            uint32_t first = (uint32_t)(rng_next(&rng) % N);
            uint32_t rows = (uint32_t)(rng_next(&rng) % (N + 1 - first));
            uint32_t take = (uint32_t)(rng_next(&rng) % 3) * 2;
            for (int t = 0; t < N; t++) {
                canvas[i][t] = rng_uniform(&rng) < 0.6 ? (int32_t)dream.mask_token : ids[N * i + t];
            }
            rig_write(rig, i, 0, canvas[i], N);
            rig_add(rig, N, 0,
                    &MAKE(struct step_part, .canvas = (int64_t)i * CANVAS_TOKENS,
                          .positions = count,
                          .decision = {.first_row = first, .n_rows = rows, .take = take}));
        }
        rig_plan(rig);
        rig_threshold(rig, 0.1f + 0.05f * (float)(round % 8));
        struct err err = {0};
        ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), 0);
        ck_assert_int_eq(rig_collect(rig, &err), 0);
        for (int i = 0; i < N_SPANS; i++) {
            const struct decision *decision = &rig->parts[i].decision;
            uint8_t committed[N] = {0};
            struct rig *at = calloc(1, sizeof *at); /* this span's rows alone */
            *at = *rig;
            memcpy(at->confidence, rig->confidence + N * i, N * sizeof(float));
            int n = host_decides(canvas[i], at, decision->first_row, decision->n_rows,
                                 decision->take, committed);
            ck_assert_int_eq(rig->n_committed[i], n);
            ck_assert_mem_eq(rig->committed + N * i, committed, N);
            rig_read(rig, i, 0, after, N);
            for (int t = 0; t < N; t++) {
                ck_assert_int_eq(after[t], committed[t] ? rig->token[N * i + t] : canvas[i][t]);
            }
            free(at);
        }
    }
    rig_close(rig);
}

TEST(a_refused_step_leaves_the_one_before_as_it_was) {
    enum { FEW = 8, MORE = 16 };
    struct rig *rig = open_sparse();
    struct err err = {0};
    int32_t before[MORE] = {0}, after[MORE] = {0};
    rig_write(rig, 0, 0, ids, MORE);
    rig_clear(rig);
    rig_add(rig, FEW, 0, &(struct step_part){.positions = count});
    rig_plan(rig);
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), 0);
    const struct step_result first = {.token = before};
    ck_assert_int_eq(forward_result(rig->forward, &first, &err), 0);
    rig_clear(rig);
    rig_add(rig, MORE, 0, &(struct step_part){.positions = count});
    rig_plan(rig);
    rig->placement.peak_bytes = limits.workspace_bytes + 1;
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    err = (struct err){0};
    const struct step_result again = {.token = after};
    ck_assert_int_eq(forward_result(rig->forward, &again, &err), 0);
    ck_assert_mem_eq(before, after, sizeof before);
    ck_assert_int_eq(after[FEW], 0);
    ck_assert_int_eq(forward_again(rig->forward, &err), 0);
    ck_assert_int_eq(forward_result(rig->forward, &again, &err), 0);
    ck_assert_mem_eq(before, after, sizeof before);
    rig_close(rig);
}

TEST(canvases_are_written_and_read_at_any_length) {
    enum { N = 70000 }; /* more than is staged at once */
    struct step_limits wide = limits;
    wide.canvas_tokens = N;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){&dream, &sparse, "random:1", NULL, KERNEL_F32, &wide});
    int32_t *tokens = malloc(N * sizeof *tokens), *back = malloc(N * sizeof *back);
    struct err err = {0};
    ck_assert_int_eq(forward_read_canvas(rig->forward, 0, back, N, &err), 0);
    for (int t = 0; t < N; t++) {
        ck_assert_int_eq(back[t], 0);
        tokens[t] = t % 61;
    }
    ck_assert_int_eq(forward_write_canvas(rig->forward, 0, tokens, N, &err), 0);
    ck_assert_int_eq(forward_write_canvas(rig->forward, N - 1, tokens + 7, 1, &err), 0);
    tokens[N - 1] = 7;
    ck_assert_int_eq(forward_read_canvas(rig->forward, 1, back, N - 1, &err), 0);
    ck_assert_mem_eq(back, tokens + 1, (N - 1) * sizeof *tokens);
    ck_assert_int_eq(forward_write_canvas(rig->forward, N - 1, tokens, 2, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "canvas tokens 69999 to 70001 are not among the 70000");
    err = (struct err){0};
    tokens[5] = 61;
    ck_assert_int_eq(forward_write_canvas(rig->forward, 0, tokens, 6, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "token 61, but the vocabulary ends at 60");
    free(tokens);
    free(back);
    rig_close(rig);
}

TEST(stores_move_over_themselves_unharmed) {
    enum { SIZE = 20 << 20 }; /* several times what is moved at once */
    struct step_limits wide = limits;
    wide.pool_bytes = SIZE;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){&dream, &sparse, "random:1", NULL, KERNEL_F32, &wide});
    static unsigned char expected[SIZE];
    unsigned char *pool = forward_pool(rig->forward);
    struct rng rng = rng_stream(7, "moves");
    struct err err = {0};
    for (int i = 0; i < SIZE; i++) {
        pool[i] = expected[i] = (unsigned char)(i * 31 + i / 251 * 7);
    }
    for (int i = 0; i < 24; i++) {
        int64_t bytes = (int64_t)(rng_next(&rng) % SIZE) / (i % 2 == 0 ? 1 : 2000);
        int64_t from = (int64_t)(rng_next(&rng) % (uint64_t)(SIZE - bytes + 1));
        int64_t to = (int64_t)(rng_next(&rng) % (uint64_t)(SIZE - bytes + 1));
        ck_assert_int_eq(forward_move_store(rig->forward, to, from, bytes, &err), 0);
        memmove(expected + to, expected + from, (size_t)bytes);
        ck_assert_int_eq(memcmp(pool, expected, SIZE), 0);
    }
    ck_assert_int_eq(forward_move_store(rig->forward, 1, 0, SIZE, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "a store of 20971520 bytes moves from 0 to 1, outside the pool of "
                          "20971520");
    rig_close(rig);
}

/* A step of three spans: one attends to a store, one keeps rows, one selects them. */
static int32_t keep_rows[16];

static void three_spans(struct rig *rig) {
    static const int32_t wanted[] = {22, 0, 7};
    for (int t = 0; t < 16; t++) {
        count[t] = t;
        keep_rows[t] = t < 4 ? t : -1;
    }
    draw_ids(&dream, 1);
    rig_clear(rig);
    rig_add(rig, 5, 14, &(struct step_part){.positions = count, .kv = {0, 14}});
    rig_add(rig, 16, 0,
            &(struct step_part){.positions = count, .kv_rows = keep_rows, .kv = {STORE, 4}});
    struct span *span = rig_add(rig, 23, 0,
                                &MAKE(struct step_part, .positions = count, .logit_rows = wanted,
                                      .kv = {2 * STORE, 6}, .block_start = 3, .block_end = 11));
    span->logit_rows = 3;
    span->select_rows = 15;
    span->pack_rows = 6;
}

static const char *refusal(struct rig *rig) {
    static struct err err;
    err = (struct err){0};
    rig_plan(rig);
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    three_spans(rig);
    return err.text;
}

TEST(steps_that_cannot_be_run_are_refused_with_one_sentence) {
    struct rig *rig = open_sparse();
    struct err err = {0};
    three_spans(rig);
    count[11] = 256;
    ck_assert_str_eq(refusal(rig), "token 11 of span 1 stands at position 256, but positions end "
                                   "at 255");
    rig->parts[1].canvas = MAX_SPANS * CANVAS_TOKENS - 10;
    ck_assert_str_eq(refusal(rig), "token 10 of span 1 stands at position 10, but positions end "
                                   "at 9");
    rig->parts[1].canvas = -1;
    ck_assert_str_eq(refusal(rig), "the canvas of span 1 starts at token -1 of 2048");
    static const int32_t far[16] = {0, 1, 2, -1};
    rig->parts[1].targets = far;
    ck_assert_str_eq(refusal(rig), "row 3 of span 1 decides on position -1, but positions end at "
                                   "255");
    keep_rows[3] = 4;
    ck_assert_str_eq(refusal(rig), "span 1 keeps token 3 in row 4 of a store of 4");
    rig->parts[0].kv.n_rows = 13;
    ck_assert_str_eq(refusal(rig), "span 0 attends to 14 cached rows, but its store holds 13");
    rig->parts[0].kv_rows = keep_rows;
    ck_assert_str_eq(refusal(rig), "span 0 would write to the rows it reads");
    rig->parts[0].kv.first = POOL - 440;
    ck_assert_str_eq(refusal(rig),
                     "the store of span 0, 14 rows from element 130632, is not inside "
                     "the pool of 131072 elements");
    rig->parts[0].kv.first = 4;
    ck_assert_str_eq(refusal(rig), "the store of span 0, 14 rows from element 4, is not inside "
                                   "the pool of 131072 elements");
    static const int32_t beyond[] = {0, 23, 1};
    rig->parts[2].logit_rows = beyond;
    ck_assert_str_eq(refusal(rig), "span 2 wants the logits of query 23 of 23");
    rig->spans[0].logit_rows = 6;
    ck_assert_str_eq(refusal(rig), "span 0 wants 6 logit rows of 5 queries");
    rig->parts[0].decision = (struct decision){.first_row = 2, .n_rows = 4, .take = 1};
    ck_assert_str_eq(refusal(rig), "span 0 decides on 4 rows from 2 on, but has 5 (at most 65536)");
    rig->spans[1].value_rows = 2;
    ck_assert_str_eq(refusal(rig), "span 1 has no queries, splits its first layer or compares "
                                   "values, and the step graph keeps no features");
    rig->spans[0].select_rows = 2;
    ck_assert_str_eq(refusal(rig), "span 0 selects rows and has cached context or rows to keep");
    rig->parts[2].block_end = 24;
    ck_assert_str_eq(refusal(rig), "span 2 selects for the queries from 3 to 24 of 23");
    rig->spans[2].select_rows = 14;
    ck_assert_str_eq(refusal(rig), "span 2 scores 14 rows, but 15 lie outside its block (at most "
                                   "65536)");
    rig->spans[2].pack_rows = 7;
    ck_assert_str_eq(refusal(rig), "span 2 packs 7 of 15 rows into a store of 6");
    rig_clear(rig);
    ck_assert_str_eq(refusal(rig), "a step of 0 spans, but 1 to 8 are run");
    rig_plan(rig);
    rig->shape.sym[SYM_TOKENS] = 45;
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "the shape says tokens 45, but its spans add up to 44");
    rig_close(rig);
    struct step_limits narrow = limits;
    narrow.max_tokens = 43;
    rig = rig_set_up(&(struct rig_setup){&dream, &sparse, "random:1", NULL, KERNEL_F32, &narrow});
    three_spans(rig);
    ck_assert_str_eq(refusal(rig), "a step of 44 tokens and 24 logit rows is beyond the 43 and 512 "
                                   "that the engine was opened for");
    rig_close(rig);
    rig = rig_open(&dream, &fused, "random:1");
    three_spans(rig);
    ck_assert_str_eq(refusal(rig), "span 2 selects rows, but the step graph does not");
    rig_close(rig);
}

TEST(a_placement_of_another_step_is_refused) {
    struct rig *rig = open_sparse();
    struct err err = {0};
    three_spans(rig);
    rig_plan(rig);
    struct placement small = rig->placement;
    small.bytes[0] -= PLACEMENT_ALIGN_BYTES;
    rig->step.placement = &small;
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "the placement gives tensor 'residual' 8192 bytes at %ld of %ld, but this step needs "
             "8448",
             (long)small.offset_bytes[0], (long)small.peak_bytes);
    ASSERT_SAYS(err.text, sentence);
    err = (struct err){0};
    small = rig->placement;
    small.peak_bytes = limits.workspace_bytes + 1024;
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "the placement needs 64 MiB of workspace, but there are 64 MiB");
    int norm = -1, candidates = -1;
    for (int t = 0; t < (int)rig->graph.n_tensors; t++) {
        norm = strcmp(rig->graph.tensors[t].name, "final norm") == 0 ? t : norm;
        candidates = strcmp(rig->graph.tensors[t].name, "candidates") == 0 ? t : candidates;
    }
    rig->chunks.of[CHUNK_LOGITS] = 4;
    err = (struct err){0};
    rig_plan(rig);
    rig->placement.offset_bytes[candidates] = rig->placement.offset_bytes[norm];
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "the placement puts tensor 'candidates' over 'final norm', which "
                          "later chunks of logits still read");
    rig_close(rig);
}

static const char *open_refusal(const struct model *model, const struct graph_options *options) {
    static struct err err;
    struct rig *rig;
    err = (struct err){0};
    const struct rig_setup setup = {model, options, "random:1", NULL, KERNEL_F32, NULL};
    ck_assert_int_eq(rig_try_open(&setup, &rig, &err), ERR_USAGE);
    ck_assert_int_eq(rig_close(rig), 0);
    return err.text;
}

TEST(graphs_models_and_weights_that_are_not_run_are_refused) {
    struct model causal = llada;
    causal.mask = MASK_BLOCK_CAUSAL;
    ck_assert_str_eq(open_refusal(&causal, &fused),
                     "model 'llada-tiny' is causal, the step graph is for bidirectional models");
    struct graph_options options = fused;
    options.gathers_cache = true;
    ck_assert_str_eq(
        open_refusal(&llada, &options),
        "the engine does not run the operator 'kv gather' (gather over block_k): our attention "
        "reads cached rows where they lie");
    options = sparse;
    options.engine = false;
    ck_assert_str_eq(open_refusal(&llada, &options),
                     "the step graph is not built for the engine: 'score and select' has no place "
                     "for the tokens it keeps");
    options = fused;
    options.splits_first_layer = true;
    ck_assert_str_eq(open_refusal(&llada, &options),
                     "the engine does not run the operator 'embed' (embed over first_tokens)");
    options = fused;
    options.compares_values = true;
    ck_assert_str_eq(
        open_refusal(&llada, &options),
        "the engine does not run the operator 'attention norm' (rmsnorm over projected_values)");
    options = fused;
    options.copy_bytes = 8;
    ck_assert_str_eq(
        open_refusal(&llada, &options),
        "the engine does not run the operator 'logits cast' (cast over logit_rows): it makes rows "
        "of fp8 alone, of multiples of 4 numbers");
    options = fused;
    options.softmax_bytes = 2;
    ck_assert_str_eq(open_refusal(&llada, &options),
                     "the step graph's logits are narrower than its elements, 4 bytes");
    options.softmax_bytes = 8;
    ck_assert_str_eq(open_refusal(&llada, &options),
                     "the engine does not run the operator 'softmax' (softmax over logit_rows)");
    struct rig *rig = rig_open(&llada, &fused, "random:1");
    struct rig *other = rig_open(&llada, &fused, "random:1");
    struct forward *forward;
    struct err err = {0};
    ck_assert_int_eq(
        forward_open(&rig->device, &rig->graph, &other->weights, &limits, &forward, &err),
        ERR_USAGE);
    ASSERT_SAYS(err.text, "the weights are on another device");
    ck_assert_ptr_null(forward);
    struct graph graph;
    err = (struct err){0};
    graph_build(&graph, &dream, &fused);
    ck_assert_int_eq(forward_open(&rig->device, &graph, &rig->weights, &limits, &forward, &err),
                     ERR_USAGE);
    ASSERT_SAYS(err.text, "the weights are of model 'llada-tiny', the step graph of 'dream-tiny'");
    options = fused;
    options.storage = (struct storage){0};
    err = (struct err){0};
    graph_build(&graph, &llada, &options);
    ck_assert_int_eq(forward_open(&rig->device, &graph, &rig->weights, &limits, &forward, &err),
                     ERR_USAGE);
    ASSERT_SAYS(err.text, "the cpu device computes in f32 throughout, the step graph does not");
    rig_close(rig);
    rig_close(other);
}

SUITE("forward input")
