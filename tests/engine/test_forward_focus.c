/* Steps that evict: block diffusion in which some of a block's tokens go no further than the second
 * layer's projections, against a reference in double with keys and values of its own for each layer
 * and position, as old as they are there. */
#include "sim/decode/block.h"
#include "tests/support/chain.h"

enum { BLOCK = 12, LAYERS = 4, EVICTED_IN = 1 };

/* A pass over `n` positions of which those in kept[] go on behind the eviction; NULL: all. */
struct pass {
    int n, n_kept;
    int32_t positions[MAX_NAIVE], kept[MAX_NAIVE], extents[MAX_NAIVE];
    bool masked[MAX_NAIVE];
    double x[MAX_NAIVE][MAX_DIM], q[MAX_NAIVE][MAX_DIM];
    double importance[2][MAX_NAIVE];
    double logits[MAX_NAIVE][MAX_VOCAB]; /* of kept tokens, in their order */
};

static double keys[LAYERS][MAX_NAIVE][MAX_DIM], values[LAYERS][MAX_NAIVE][MAX_DIM];

static void naive_project(const struct weights *w, struct pass *p, uint32_t layer, int token) {
    const struct model *m = w->layout.model;
    int c = (int)m->hidden, h = (int)m->heads, g = (int)m->kv_heads, d = (int)m->head_dim;
    double eps = (double)w->constants.norm_epsilon, y[MAX_DIM], qkv[4 * MAX_DIM];
    int position = p->positions[token];
    naive_norm(weights_at(w, WEIGHT_ATTENTION_NORM, layer), eps, p->x[token], c, y);
    naive_matvec(weights_at(w, WEIGHT_QKV, layer), y, (h + 2 * g) * d, c, qkv);
    for (int head = 0; head < h + g; head++) {
        double *part = qkv + head * d;
        naive_norm(weights_at(w, head < h ? WEIGHT_Q_NORM : WEIGHT_K_NORM, layer), eps, part, d,
                   part);
        naive_rotate(part, d, position, &w->constants.rotation);
    }
    memcpy(p->q[token], qkv, sizeof(double) * (size_t)(h * d));
    memcpy(keys[layer][position], qkv + h * d, sizeof(double) * (size_t)(g * d));
    memcpy(values[layer][position], qkv + (h + g) * d, sizeof(double) * (size_t)(g * d));
}

/* Masked tokens alone, as queries and as keys; the largest of three neighbouring keys. */
static void naive_importance(const struct model *m, struct pass *p, uint32_t layer, double *out) {
    int h = (int)m->heads, g = (int)m->kv_heads, d = (int)m->head_dim, list[MAX_NAIVE], n = 0;
    for (int t = 0; t < p->n; t++) {
        out[t] = 0;
        if (p->masked[t]) {
            list[n++] = t;
        }
    }
    for (int head = 0; head < h; head++) {
        for (int i = 0; i < n; i++) {
            double score[MAX_NAIVE], pooled[MAX_NAIVE], sum = 0;
            for (int j = 0; j < n; j++) {
                score[j] = 0;
                for (int e = 0; e < d; e++) {
                    score[j] += p->q[list[i]][head * d + e] *
                                keys[layer][p->positions[list[j]]][head / (h / g) * d + e] /
                                sqrt(d);
                }
            }
            for (int j = 0; j < n; j++) {
                pooled[j] = fmax(score[j], fmax(j > 0 ? score[j - 1] : score[j],
                                                j + 1 < n ? score[j + 1] : score[j]));
                sum += exp(pooled[j]);
            }
            for (int j = 0; j < n; j++) {
                out[list[j]] += exp(pooled[j]) / sum;
            }
        }
    }
}

static void naive_attend(const struct weights *w, struct pass *p, uint32_t layer, int token,
                         int extent) {
    const struct model *m = w->layout.model;
    int c = (int)m->hidden, h = (int)m->heads, g = (int)m->kv_heads, d = (int)m->head_dim;
    int f = (int)m->ffn;
    double eps = (double)w->constants.norm_epsilon;
    double y[MAX_DIM], z[MAX_DIM], weight[MAX_NAIVE], gate_up[4 * MAX_DIM];
    for (int head = 0; head < h; head++) {
        int at = head / (h / g) * d;
        double sum = 0;
        for (int j = 0; j < extent; j++) {
            double dot = 0;
            for (int e = 0; e < d; e++) {
                dot += p->q[token][head * d + e] * keys[layer][j][at + e];
            }
            weight[j] = exp(dot / sqrt(d));
            sum += weight[j];
        }
        for (int e = 0; e < d; e++) {
            y[head * d + e] = 0;
            for (int j = 0; j < extent; j++) {
                y[head * d + e] += weight[j] / sum * values[layer][j][at + e];
            }
        }
    }
    double *x = p->x[token];
    naive_matvec(weights_at(w, WEIGHT_OUTPUT, layer), y, c, h * d, z);
    for (int i = 0; i < c; i++) {
        x[i] += z[i];
    }
    naive_norm(weights_at(w, WEIGHT_FFN_NORM, layer), eps, x, c, y);
    naive_matvec(weights_at(w, WEIGHT_GATE_UP, layer), y, 2 * f, c, gate_up);
    for (int i = 0; i < f; i++) {
        z[i] = gate_up[i] / (1 + exp(-gate_up[i])) * gate_up[f + i];
    }
    naive_matvec(weights_at(w, WEIGHT_DOWN, layer), z, c, f, y);
    for (int i = 0; i < c; i++) {
        x[i] += y[i];
    }
}

/* Layers 0 and 1 up to their projections: what the choice is made by. */
static void naive_begin(const struct weights *w, const int32_t *canvas, struct pass *p) {
    const struct model *m = w->layout.model;
    for (int t = 0; t < p->n; t++) {
        const float *row = (const float *)weights_at(w, WEIGHT_EMBEDDING, 0) +
                           canvas[p->positions[t]] * (int)m->hidden;
        for (uint32_t i = 0; i < m->hidden; i++) {
            p->x[t][i] = (double)row[i];
        }
    }
    for (uint32_t layer = 0; layer <= EVICTED_IN; layer++) {
        for (int t = 0; t < p->n; t++) {
            naive_project(w, p, layer, t);
        }
        naive_importance(m, p, layer, p->importance[layer]);
        for (int t = 0; layer < EVICTED_IN && t < p->n; t++) {
            naive_attend(w, p, layer, t, p->extents[t]);
        }
    }
}

/* The rest, for the kept ones, who see no further than the last of them where some may be missing,
 * else as far as their mask. */
static void naive_end(const struct weights *w, struct pass *p, bool evicts) {
    const struct model *m = w->layout.model;
    double y[MAX_DIM];
    for (uint32_t layer = EVICTED_IN; layer < m->layers; layer++) {
        for (int i = 0; layer > EVICTED_IN && i < p->n_kept; i++) {
            naive_project(w, p, layer, p->kept[i]);
        }
        for (int i = 0; i < p->n_kept; i++) {
            int last = p->positions[p->kept[p->n_kept - 1]] + 1;
            naive_attend(w, p, layer, p->kept[i], evicts ? last : p->extents[p->kept[i]]);
        }
    }
    for (int i = 0; i < p->n_kept; i++) {
        naive_norm(weights_at(w, WEIGHT_FINAL_NORM, 0), (double)w->constants.norm_epsilon,
                   p->x[p->kept[i]], (int)m->hidden, y);
        naive_matvec(weights_at(w, WEIGHT_HEAD, 0), y, (int)m->vocab, (int)m->hidden, p->logits[i]);
    }
}

struct focused {
    struct rig *rig;
    struct chain chain; /* pages and canvas; its plan is not used */
    struct block_state block;
    uint8_t masked[BLOCK], uncached[BLOCK], keep[BLOCK], chosen[BLOCK], span_masked[BLOCK];
    int step;
    bool keeps_all;
    struct pass pass;
    /* The rest of a step, of two requests at most. */
    struct span spans[2];
    const struct span *span_list[2];
    struct step_shape shape;
    struct step_part parts[2];
    int32_t positions[BLOCK], extents[BLOCK], kept[BLOCK], rows[BLOCK], targets[BLOCK];
    int n_asked;
};

/* The first masked ones, more with every step, and of those behind the frontier two of three; all,
 * where none of them is masked. */
static void choose_kept(struct focused *f) {
    struct pass *p = &f->pass;
    int frontier = f->block.frontier, cut = frontier + 4, n_masked = 0;
    for (bool all = f->keeps_all; n_masked == 0; all = true) {
        p->n_kept = 0;
        for (int t = 0; t < p->n; t++) {
            int i = p->positions[t] - f->chain.begin;
            bool stays =
                all || !p->masked[t] || (i < cut && (i > frontier || (i + f->step) % 3 > 0));
            f->keep[i] = stays;
            if (stays) {
                p->kept[p->n_kept++] = t;
                n_masked += p->masked[t];
            }
        }
    }
}

static int keep_some(void *state, const struct eviction *seen, struct step *rest, struct err *err) {
    struct focused *f = state;
    struct pass *p = &f->pass;
    (void)err;
    uint32_t member = rest->shape->n_spans - 1; /* a prefill stands before it, where there is one */
    f->n_asked++;
    for (int t = 0; t < p->n; t++) {
        for (int layer = 0; layer < 2; layer++) {
            const float *out = layer == 0 ? seen->before : seen->after;
            double found = (double)out[seen->first[member] + t];
            ck_assert_double_eq_tol(found, p->importance[layer][t], 1e-4);
        }
    }
    choose_kept(f);
    shape_clear(&f->shape);
    for (uint32_t i = 0; i <= member; i++) {
        f->spans[i] = *rest->shape->spans[i];
        f->parts[i] = rest->parts[i];
        f->span_list[i] = &f->spans[i];
    }
    struct span *span = &f->spans[member];
    struct step_part *part = &f->parts[member];
    int n_rows = 0;
    for (int i = 0; i < p->n_kept; i++) {
        f->kept[i] = p->kept[i];
        f->positions[i] = p->positions[p->kept[i]];
        f->extents[i] = p->positions[p->kept[p->n_kept - 1]] + 1;
        f->rows[n_rows] = i;
        f->targets[n_rows] = f->positions[i];
        n_rows += p->masked[p->kept[i]];
    }
    span->queries = span->first_queries = span->kept_queries = (uint32_t)p->n_kept;
    span->logit_rows = (uint32_t)n_rows;
    part->positions = f->positions;
    part->kept = f->kept;
    part->kv_pages.extent = f->extents;
    part->logit_rows = f->rows;
    part->targets = f->targets;
    part->masked = NULL;
    part->decision.n_rows = (uint32_t)n_rows;
    for (uint32_t i = 0; i <= member; i++) {
        shape_add(f->shape.sym, f->span_list[i], 1);
    }
    f->shape.n_spans = member + 1;
    f->shape.spans = f->span_list;
    rest->shape = &f->shape;
    rest->parts = f->parts;
    return 0;
}

/* Prefills whole blocks of the prompt, in the rig and in the reference. */
static void prefill(struct focused *f) {
    struct chain *c = &f->chain;
    struct pass *p = &f->pass;
    while (c->cached < c->begin) {
        rig_clear(f->rig);
        chain_add(c, f->rig);
        f->rig->spans[0].kept_queries = 0;
        rig_step(f->rig);
        p->n = p->n_kept = c->queries;
        for (int t = 0; t < p->n; t++) {
            p->positions[t] = c->first + t;
            p->extents[t] = chain_extent(c, c->first + t);
            p->kept[t] = t;
            p->masked[t] = false;
        }
        naive_begin(&f->rig->weights, c->tokens, p);
        naive_end(&f->rig->weights, p, false);
        chain_advance(c, 0);
    }
}

static void add_pass(struct focused *f) {
    struct chain *c = &f->chain;
    struct pass *p = &f->pass;
    uint8_t pending[BLOCK];
    block_pending(&f->block, pending);
    p->n = 0;
    for (int i = 0; i < c->end - c->begin; i++) {
        f->keep[i] = pending[i];
        if (pending[i]) {
            c->positions[p->n] = p->positions[p->n] = c->begin + i;
            c->extents[p->n] = p->extents[p->n] = c->end;
            p->masked[p->n] = f->masked[i];
            f->span_masked[p->n] = f->masked[i];
            p->kept[p->n] = p->n;
            p->n++;
        }
    }
    p->n_kept = p->n;
    const struct step_part part =
        MAKE(struct step_part, .canvas = (int64_t)c->request * CANVAS_TOKENS,
             .positions = c->positions, .decision = {.n_rows = (uint32_t)p->n, .take = 1},
             .kv_pages = {c->pages, c->n_pages, c->extents}, .masked = f->span_masked);
    struct span *span = rig_add(f->rig, (uint32_t)p->n, (uint32_t)(c->end - p->n), &part);
    bool decides = f->block.n_masked > 0;
    span->phase = decides ? PHASE_REUSE : PHASE_COMMIT;
    span->exact = 1;
    span->kept_queries = (uint32_t)p->n;
    span->kept_keys = (uint32_t)c->end;
    span->logit_rows = decides ? (uint32_t)p->n : 0;
    f->rig->parts[f->rig->shape.n_spans - 1].decision.n_rows = decides ? (uint32_t)p->n : 0;
}

/* What the reference commits of the kept masked ones: the surest. Returns its row. */
static int naive_choice(struct focused *f) {
    struct pass *p = &f->pass;
    int vocab = (int)focus_blocks.vocab, best_row = -1, row = 0;
    double best = 0;
    for (int i = 0; i < p->n_kept; i++) {
        if (!p->masked[p->kept[i]]) {
            continue;
        }
        double sum = 0;
        int token = 0;
        for (int v = 1; v < vocab; v++) {
            token = p->logits[i][v] > p->logits[i][token] ? v : token;
        }
        for (int v = 0; v < vocab; v++) {
            sum += exp(p->logits[i][v] - p->logits[i][token]);
        }
        ck_assert_int_eq(f->rig->token[row], token);
        double error = relative_error(f->rig->logits + row * vocab, &p->logits[i], 1, vocab);
        ck_assert_msg(error <= 2e-5, "step %d, row %d: %g", f->step, row, error);
        if (1 / sum > best) {
            best = 1 / sum;
            best_row = row;
        }
        row++;
    }
    return best_row;
}

static void start(struct focused *f, int canvas, int prompt, bool keeps_all) {
    memset(f, 0, sizeof *f);
    f->rig = exact_rig(&focus_blocks, &evicting, 4);
    f->rig->evict = keep_some;
    f->rig->evict_state = f;
    f->keeps_all = keeps_all;
    f->chain = (struct chain){.canvas = canvas, .prompt = prompt, .block = BLOCK, .take = 1};
    chain_start(&f->chain, 1, f->rig);
    chain_place(&f->chain, 4, 0);
    for (int e = 0; e < POOL; e++) {
        rig_pool(f->rig)[e] = NAN; /* nobody may see what was not computed */
    }
}

/* One block to its end; what was committed to the canvases of both. */
static int decode_block(struct focused *f) {
    struct chain *c = &f->chain;
    int n_steps = 0;
    block_begin(&f->block, BLOCK_NEIGHBOUR, (uint32_t)(c->end - c->begin),
                c->begin < c->prompt ? (uint32_t)(c->prompt - c->begin) : 0, f->masked,
                f->uncached);
    for (; !block_is_done(&f->block); f->step++, n_steps++) {
        int before = f->n_asked;
        bool decides = f->block.n_masked > 0;
        rig_clear(f->rig);
        add_pass(f);
        naive_begin(&f->rig->weights, c->tokens, &f->pass);
        rig_step(f->rig);
        ck_assert_int_eq(f->n_asked - before, decides);
        naive_end(&f->rig->weights, &f->pass, decides);
        memset(f->chosen, 0, sizeof f->chosen);
        if (decides) {
            int best = naive_choice(f);
            for (int row = 0, i = 0; i < f->pass.n_kept; i++) {
                if (f->pass.masked[f->pass.kept[i]]) {
                    int position = f->pass.positions[f->pass.kept[i]];
                    ck_assert_int_eq(f->rig->committed[row], row == best);
                    f->chosen[position - c->begin] = row++ == best;
                }
            }
            ck_assert_int_eq(f->rig->n_committed[0], 1);
        }
        block_pass(&f->block, f->keep, f->chosen);
        chain_follow(c, f->rig);
        ck_assert_int_lt(n_steps, 4 * BLOCK);
    }
    return n_steps;
}

TEST(evicted_tokens_go_no_further_and_the_others_decode_as_a_reference_says) {
    for (int keeps_all = 0; keeps_all < 2; keeps_all++) {
        static struct focused f;
        start(&f, 50, 27, keeps_all);
        prefill(&f);
        while (!chain_over(&f.chain)) {
            int n_steps = decode_block(&f);
            ck_assert_int_ge(n_steps, 3);
            f.chain.cached = f.chain.end;
            chain_enter(&f.chain, f.chain.end);
        }
        ck_assert_int_gt(f.n_asked, 20);
        ck_assert_int_eq(rig_close(f.rig), 0);
    }
}

/* Where all stay, the graph that evicts is the graph that does not. */
TEST(an_eviction_that_keeps_everybody_changes_no_bit) {
    static struct focused f;
    static float plain_logits[BLOCK * MAX_VOCAB];
    struct rig *plain = exact_rig(&focus_blocks, &exact, 4);
    start(&f, 50, 27, true);
    static struct chain other;
    other = f.chain;
    chain_start(&other, 1, plain);
    chain_place(&other, 4, 0);
    prefill(&f);
    rig_clear(plain);
    chain_add(&other, plain);
    rig_step(plain);
    chain_advance(&other, 0);
    rig_clear(plain);
    chain_add(&other, plain);
    rig_step(plain);
    memcpy(plain_logits, plain->logits, sizeof plain_logits);
    block_begin(&f.block, BLOCK_NEIGHBOUR, BLOCK, 3, f.masked, f.uncached);
    rig_clear(f.rig);
    add_pass(&f);
    naive_begin(&f.rig->weights, f.chain.tokens, &f.pass);
    rig_step(f.rig);
    /* The first three of the block are the prompt's: no rows of theirs are left. */
    size_t vocab = focus_blocks.vocab;
    ck_assert_mem_eq(f.rig->logits, plain_logits + 3 * vocab, (BLOCK - 3) * vocab * sizeof(float));
    rig_close(plain);
    rig_close(f.rig);
}

TEST(a_rest_that_does_not_fit_its_step_is_refused) {
    static struct focused f;
    struct err err = {0};
    start(&f, 50, 24, true);
    prefill(&f);
    block_begin(&f.block, BLOCK_NEIGHBOUR, BLOCK, 0, f.masked, f.uncached);
    rig_clear(f.rig);
    add_pass(&f);
    naive_begin(&f.rig->weights, f.chain.tokens, &f.pass);
    rig_plan(f.rig);
    f.chain.n_pages = 0;
    f.rig->parts[0].kv_pages.n_pages = 0;
    ck_assert_int_eq(forward_submit(f.rig->forward, &f.rig->step, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "attends to 36 rows of 0"));
    rig_close(f.rig);
}

SUITE("forward_focus")
