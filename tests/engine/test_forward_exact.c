/* Exact keys and values in pages: block diffusion and autoregressive models step by step against a
 * reference that computes everything anew, chunks of prefill, page sizes, batches, recomputation.
 */
#include "tests/support/chain.h"
#include "tests/support/says.h"

static double logits_naive[MAX_NAIVE][MAX_VOCAB];

static const struct model *const all_models[] = {&sdar_blocks, &fast_blocks, &qwen_tokens,
                                                 &llama_tokens, &llada2_blocks};
enum { N_ALL = 5 };

/* Prompts that fill blocks, that do not, that are shorter than a block; a last block that is cut.
 */
static const struct chain chains[] = {
    {.canvas = 40, .prompt = 16, .block = 4, .take = 1},
    {.canvas = 41, .prompt = 11, .block = 8, .take = 0},
    {.canvas = 23, .prompt = 3, .block = 8, .take = 2, .chunk = 8},
    {.canvas = 62, .prompt = 45, .block = 4, .take = 0, .chunk = 12},
    {.canvas = 30, .prompt = 1, .block = 16, .take = 3},
};
enum { N_CHAINS = 5 };

static void check_logits(const struct rig *rig, const struct chain *c, int step) {
    int vocab = (int)c->model->vocab, n = (int)rig->spans[0].logit_rows;
    for (int r = 0; r < n; r++) {
        const double *row = logits_naive[c->first + c->rows[r]];
        double error = relative_error(rig->logits + r * vocab, (double(*)[MAX_VOCAB])row, 1, vocab);
        ck_assert_msg(error <= 1e-5, "%s, step %d, row %d: %g", c->model->name, step, r, error);
    }
}

/* One request to its end: logits and canvas compared at every step. Returns the steps. */
static int follow(struct chain *c, struct rig *rig) {
    int32_t canvas[MAX_NAIVE];
    int n_steps = 0;
    for (; !chain_over(c); n_steps++) {
        rig_clear(rig);
        chain_add(c, rig);
        rig_step(rig);
        chain_refer(c, &rig->weights, (double)rig->threshold, logits_naive);
        check_logits(rig, c, n_steps);
        rig_read(rig, c->request, 0, canvas, c->canvas);
        ck_assert_mem_eq(canvas, c->tokens, (size_t)c->canvas * sizeof *canvas);
        chain_advance(c, rig->n_committed[0]);
    }
    return n_steps;
}

TEST(blocks_and_tokens_decode_as_a_reference_that_computes_everything_anew) {
    static const uint32_t page_rows[] = {4, 16, 64};
    for (int i = 0; i < N_ALL * N_CHAINS; i++) {
        const struct model *model = all_models[i / N_CHAINS];
        uint32_t rows = page_rows[i % 3];
        struct rig *rig = exact_rig(model, &exact, rows);
        static struct chain chain;
        chain = chains[i % N_CHAINS];
        chain_start(&chain, 2, rig);
        chain_place(&chain, (int)rows, 3);
        int n_steps = follow(&chain, rig);
        ck_assert_int_ge(n_steps, 4);
        ck_assert_int_eq(rig_close(rig), 0);
    }
}

enum { MAX_KEPT = 128 };

/* What a request's steps came to: logits of the steps that have any, and its canvas. */
struct outcome {
    int n;
    float logits[MAX_KEPT][16 * MAX_VOCAB];
    int32_t canvas[MAX_NAIVE];
};

static void keep(struct outcome *out, const struct rig *rig, int first_row, int n_rows) {
    size_t vocab = rig->graph.model->vocab;
    if (n_rows > 0) {
        ck_assert(out->n < MAX_KEPT && n_rows <= 16);
        memcpy(out->logits[out->n++], rig->logits + (size_t)first_row * vocab,
               (size_t)n_rows * vocab * sizeof(float));
    }
}

static void run_alone(struct chain *c, struct rig *rig, struct outcome *out) {
    memset(out, 0, sizeof *out);
    while (!chain_over(c)) {
        rig_clear(rig);
        chain_add(c, rig);
        rig_step(rig);
        keep(out, rig, 0, (int)rig->spans[0].logit_rows);
        chain_follow(c, rig);
        chain_advance(c, rig->n_committed[0]);
    }
    memcpy(out->canvas, c->tokens, sizeof out->canvas);
}

static struct outcome whole_out, other_out;

static void same_outcome(void) {
    ck_assert_int_gt(whole_out.n, 0);
    ck_assert_mem_eq(&whole_out, &other_out, sizeof whole_out);
}

TEST(a_prefill_in_chunks_is_the_whole_prefill_bit_for_bit) {
    for (int i = 0; i < N_ALL; i++) {
        for (int chunk = 0; chunk <= 24; chunk += 4) {
            struct rig *rig = exact_rig(all_models[i], &exact, 16);
            static struct chain chain;
            chain = (struct chain){.canvas = 52, .prompt = 46, .block = 4, .chunk = chunk};
            chain_start(&chain, 1, rig);
            chain_place(&chain, 16, 0);
            run_alone(&chain, rig, chunk == 0 ? &whole_out : &other_out);
            if (chunk > 0) {
                same_outcome();
            }
            rig_close(rig);
        }
    }
}

TEST(sizes_and_places_of_pages_change_no_bit) {
    for (int i = 0; i < N_ALL; i++) {
        for (int rows = 4; rows <= 256; rows *= 2) {
            struct rig *rig = exact_rig(all_models[i], &exact, (uint32_t)rows);
            static struct chain chain;
            chain = chains[3];
            chain_start(&chain, 1, rig);
            chain_place(&chain, rows, rows < 64 ? rows : 0);
            run_alone(&chain, rig, rows == 4 ? &whole_out : &other_out);
            if (rows > 4) {
                same_outcome();
            }
            rig_close(rig);
        }
    }
}

/* Its pages lost in the middle of a block, others given: the canvas is what is left. */
TEST(a_request_that_is_computed_anew_goes_on_as_if_nothing_had_happened) {
    for (int i = 0; i < N_ALL; i++) {
        for (int lost_at = 0; lost_at <= 9; lost_at += 3) {
            struct rig *rig = exact_rig(all_models[i], &exact, 4);
            static struct chain chain;
            chain = (struct chain){.canvas = 37, .prompt = 10, .block = 4, .take = 1};
            chain_start(&chain, 1, rig);
            chain_place(&chain, 4, 0);
            struct outcome *out = lost_at == 0 ? &whole_out : &other_out;
            memset(out, 0, sizeof *out);
            for (int step = 0, n = 0; !chain_over(&chain); step++) {
                if (lost_at > 0 && n == lost_at) {
                    for (int e = 0; e < POOL; e++) {
                        rig_pool(rig)[e] = NAN;
                    }
                    chain.cached = 0;
                    chain.chunk = 8;
                    chain_place(&chain, 4, 31);
                    n++;
                }
                rig_clear(rig);
                chain_add(&chain, rig);
                rig_step(rig);
                keep(out, rig, 0, (int)rig->spans[0].logit_rows);
                n += rig->spans[0].logit_rows > 0;
                chain_follow(&chain, rig);
                chain_advance(&chain, rig->n_committed[0]);
            }
            memcpy(out->canvas, chain.tokens, sizeof out->canvas);
            if (lost_at > 0) {
                same_outcome();
            }
            rig_close(rig);
        }
    }
}

/* Everybody at once, each a step further when it has waited for its turn, so that prefills, blocks
 * and commit passes meet. */
TEST(company_in_a_batch_changes_no_bit) {
    static struct outcome alone[N_CHAINS], together[N_CHAINS];
    for (int i = 0; i < N_ALL; i++) {
        static struct chain batch[N_CHAINS];
        struct rig *rig = exact_rig(all_models[i], &exact, 4);
        for (int r = 0; r < N_CHAINS; r++) {
            static struct chain single;
            single = chains[r];
            chain_start(&single, r, rig);
            chain_place(&single, 4, 0);
            run_alone(&single, rig, &alone[r]);
        }
        int shift = 0;
        for (int r = 0; r < N_CHAINS; r++) {
            batch[r] = chains[r];
            chain_start(&batch[r], r, rig);
            chain_place(&batch[r], 4, 0);
            for (int page = 0; page < batch[r].n_pages; page++) { /* apart from each other */
                batch[r].pages[page] = shift + batch[r].n_pages - 1 - page;
            }
            shift += batch[r].n_pages;
        }
        memset(together, 0, sizeof together);
        bool mixes = false;
        for (int step = 0, n_left = N_CHAINS; n_left > 0; step++) {
            rig_clear(rig);
            for (int r = 0; r < N_CHAINS; r++) {
                if (!chain_over(&batch[r]) && step >= r * 2) {
                    chain_add(&batch[r], rig);
                }
            }
            rig_step(rig);
            n_left = 0;
            unsigned phases = 0;
            for (int r = 0, at = 0, row = 0; r < N_CHAINS; r++) {
                if (!chain_over(&batch[r]) && step >= r * 2) {
                    int n_rows = (int)rig->spans[at].logit_rows;
                    phases |= 1u << rig->spans[at].phase;
                    keep(&together[r], rig, row, n_rows);
                    row += n_rows;
                    chain_follow(&batch[r], rig);
                    chain_advance(&batch[r], rig->n_committed[at++]);
                }
                n_left += !chain_over(&batch[r]);
            }
            mixes = mixes || (phases & 1u << PHASE_PREFILL && phases & 1u << PHASE_REUSE);
        }
        ck_assert(mixes);
        for (int r = 0; r < N_CHAINS; r++) {
            memcpy(together[r].canvas, batch[r].tokens, sizeof together[r].canvas);
            ck_assert_int_eq(alone[r].n, together[r].n);
            ck_assert_mem_eq(&alone[r], &together[r], sizeof alone[r]);
        }
        rig_close(rig);
    }
}

TEST(a_step_writes_its_own_rows_of_the_pool_and_no_other) {
    for (int i = 0; i < N_ALL; i++) {
        const struct model *model = all_models[i];
        struct rig *rig = exact_rig(model, &exact, 4);
        static struct chain chain;
        static float before[POOL];
        chain = (struct chain){.canvas = 30, .prompt = 14, .block = 4, .take = 4};
        chain_start(&chain, 1, rig);
        chain_place(&chain, 4, 0);
        for (int e = 0; e < POOL; e++) {
            rig_pool(rig)[e] = NAN;
        }
        int n_rows = pool_rows(model, 4), row = (int)(model->kv_heads * model->head_dim);
        for (int step = 0; step < 4; step++) {
            bool is_own[POOL / 16] = {false};
            memcpy(before, rig_pool(rig), sizeof before);
            rig_clear(rig);
            chain_add(&chain, rig);
            for (int t = chain.first; t < chain.first + chain.queries; t++) {
                is_own[chain.pages[t / 4] * 4 + t % 4] = true;
            }
            rig_step(rig);
            for (int e = 0; e < POOL; e++) {
                bool is_row = e / row < 2 * (int)model->layers * n_rows;
                if (is_row && is_own[e / row % n_rows]) {
                    ck_assert(isfinite(rig_pool(rig)[e]));
                } else {
                    ck_assert_mem_eq(&rig_pool(rig)[e], &before[e], sizeof before[e]);
                }
            }
            chain_follow(&chain, rig);
            chain_advance(&chain, rig->n_committed[0]);
        }
        rig_close(rig);
    }
}

/* The rows are another request's: they are read as they are. */
TEST(a_step_writes_to_no_page_that_it_only_reads) {
    for (int i = 0; i < N_ALL; i++) {
        const struct model *model = all_models[i];
        struct rig *rig = exact_rig(model, &exact, 4);
        static struct chain chain;
        static const bool writes[MAX_NAIVE] = {true, false, true, true};
        chain = (struct chain){.canvas = 20, .prompt = 13, .block = 4, .take = 4};
        chain_start(&chain, 1, rig);
        chain_place(&chain, 4, 0);
        for (int e = 0; e < POOL; e++) {
            rig_pool(rig)[e] = 0.25F;
        }
        int n_rows = pool_rows(model, 4), row = (int)(model->kv_heads * model->head_dim);
        rig_clear(rig);
        chain_add(&chain, rig);
        rig->parts[0].kv_pages.writes = writes;
        ck_assert_int_ge(chain.queries, 12);
        rig_step(rig);
        for (int e = 0; e < 2 * (int)model->layers * n_rows * row; e++) {
            int page = e / row % n_rows / 4;
            bool is_written = page == chain.pages[0] || page == chain.pages[2];
            bool is_read = page == chain.pages[1];
            ck_assert(!is_written || rig_pool(rig)[e] != 0.25F);
            ck_assert(!is_read || rig_pool(rig)[e] == 0.25F);
        }
        rig_close(rig);
    }
}

TEST(eager_graphs_and_chunks_decide_as_the_fused_graph_in_one_piece) {
    struct graph_options eager_exact = eager, one_head = exact;
    eager_exact.exact = true;
    one_head.fused_head = one_head.fused_gate_up = true;
    const struct graph_options *const options[] = {&exact, &exact, &eager_exact, &one_head};
    for (int i = 0; i < N_ALL; i++) {
        int32_t first[MAX_NAIVE];
        for (int way = 0; way < 4; way++) {
            struct rig *rig = exact_rig(all_models[i], options[way], 16);
            static struct chain chain;
            chain = chains[1];
            rig->chunks = way == 1 ? (struct chunk_rows){{4, 4}} : (struct chunk_rows){{0}};
            chain_start(&chain, 1, rig);
            chain_place(&chain, 16, 0);
            run_alone(&chain, rig, &other_out);
            if (way == 0) {
                memcpy(first, chain.tokens, sizeof first);
            }
            ck_assert_mem_eq(first, chain.tokens, (size_t)chain.canvas * sizeof *first);
            rig_close(rig);
        }
    }
}

static const char *refusal(struct rig *rig, struct err *err) {
    *err = (struct err){0};
    rig_plan(rig);
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, err), ERR_USAGE);
    return err->text;
}

TEST(a_step_that_reaches_beyond_its_pages_is_refused_in_a_sentence) {
    struct rig *rig = exact_rig(&sdar_blocks, &exact, 16);
    static struct chain chain;
    struct err err;
    chain = (struct chain){.canvas = 40, .prompt = 16, .block = 4, .take = 1};
    chain_start(&chain, 1, rig);
    chain_place(&chain, 16, 0);
    rig_clear(rig);
    chain_add(&chain, rig);
    rig->parts[0].kv_pages.n_pages = 0;
    ck_assert_str_eq(refusal(rig, &err), "token 0 of span 0, at position 0, attends to 4 rows of "
                                         "0, the token before it to 1");
    rig->parts[0].kv_pages.n_pages = 99;
    ck_assert_str_eq(refusal(rig, &err), "span 0 has 99 pages of at most 16");
    rig->parts[0].kv_pages.n_pages = chain.n_pages;
    chain.extents[9] = 8;
    ck_assert_str_eq(refusal(rig, &err), "token 9 of span 0, at position 9, attends to 8 rows of "
                                         "48, the token before it to 12");
    chain.extents[9] = 12;
    chain.extents[15] = 49;
    ck_assert_str_eq(refusal(rig, &err), "token 15 of span 0, at position 15, attends to 49 rows "
                                         "of 48, the token before it to 16");
    chain.extents[15] = 16;
    chain.pages[1] = 37;
    ck_assert_str_eq(refusal(rig, &err), "span 0 has page 37 of a pool of 37 pages");
    chain.pages[1] = -1;
    ck_assert_str_eq(refusal(rig, &err), "span 0 has page -1 of a pool of 37 pages");
    chain.pages[1] = 1;
    rig->spans[0].exact = 0;
    rig->spans[0].phase = PHASE_REFRESH;
    ck_assert_str_eq(refusal(rig, &err), "span 0 is not exact, but the step graph is exact");
    rig_close(rig);
}

TEST(graphs_and_page_sizes_that_do_not_fit_the_model_are_refused) {
    static const struct {
        const struct model *model;
        const struct graph_options *options;
        uint32_t page_rows;
        const char *sentence;
    } cases[] = {
        {&sdar_blocks, &fused, 16,
         "model 'sdar-blocks' is causal, the step graph is for bidirectional models"},
        {&sdar, &exact, 16,
         "model 'sdar-tiny' is bidirectional, the step graph is for causal models"},
        {&sdar_blocks, &exact, 24,
         "pages of 24 rows, but the kernels take a power of two from 4 to 256"},
        {&sdar_blocks, &exact, 2,
         "pages of 2 rows, but the kernels take a power of two from 4 to 256"},
        {&sdar_blocks, &exact, 512,
         "pages of 512 rows, but the kernels take a power of two from 4 to 256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct step_limits paged = limits;
        struct rig *rig;
        struct err err = {0};
        paged.page_rows = cases[i].page_rows;
        const struct rig_setup setup = {cases[i].model, cases[i].options, "random:1",
                                        NULL,           KERNEL_F32,       &paged};
        ck_assert_int_eq(rig_try_open(&setup, &rig, &err), ERR_USAGE);
        ASSERT_SAYS(err.text, cases[i].sentence);
        ck_assert_int_eq(rig_close(rig), 0);
    }
}

SUITE("forward_exact")
