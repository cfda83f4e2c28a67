/* The head: logits, what is read off them, and the commit. */
#include "kernels/rules/draw.h"
#include "sim/step/builder_parts.h"

enum { RENOISE_PART_BYTES = 40 }; /* what a rank finds of a row (kernels/calls.h, renoise_part) */

int64_t graph_credit_bytes(const struct graph_options *options) {
    /* How many entries, padding; a token and a number for each. */
    return (2LL * options->credit_slots + 2) * F32_BYTES;
}

static int add_logits(struct builder *b, const char *name, enum symbol rows, int64_t per) {
    int tensor = graph_add_tensor(b->g, name, rows, per);
    b->g->tensors[tensor].is_logits = true;
    return tensor;
}

/* A token, its confidence, and the statistics of its row where decoders read them. */
static int64_t candidate_bytes(const struct builder *b) {
    return (b->options->statistics ? 4LL : 2LL) * F32_BYTES;
}

/* Those of a rank's part of the vocabulary come with their logit. */
static int add_candidates(struct builder *b) {
    int64_t logit_bytes = model_ranks(b->m) > 1 ? F32_BYTES : 0;
    return graph_add_tensor(b->g, "candidates", b->sampled, candidate_bytes(b) + logit_bytes);
}

/* Whether what is read off a row of logits after its most likely token is read by ranks, each of
 * its own part. */
static bool ranks_read_logits(const struct builder *b) {
    return model_ranks(b->m) > 1 && !b->m->whole_head &&
           (b->options->draws || b->options->credit_slots > 0 || b->options->smooths ||
            b->options->host_reads_logits ||
            (b->m->uniform_noise && b->options->sampler_bytes == 0));
}

/* Every rank has the best token of its own rows of the vocabulary: they are gathered, and the best
 * of them is the row's, with its logit where ranks read on. */
static int add_combination(struct builder *b, int decided) {
    struct graph *g = b->g;
    const uint32_t ranks = model_ranks(b->m);
    const int64_t logit_bytes = ranks_read_logits(b) ? F32_BYTES : 0;
    int gathered = graph_add_tensor(g, "gathered candidates", b->sampled,
                                    ranks * g->tensors[decided].bytes.per);
    int combined =
        graph_add_tensor(g, "combined candidates", b->sampled, candidate_bytes(b) + logit_bytes);
    graph_add_op(g, "candidates all-gather", OP_ALL_GATHER, b->sampled, LIST(decided),
                 LIST(gathered));
    graph_add_op(g, "combine", OP_COMBINE, b->sampled, LIST(gathered), LIST(combined));
    return combined;
}

/* Credit changes the candidates. Each rank has the lists, and logits of its own tokens in them: of
 * each entry one rank has what is not 0. */
static void add_credit(struct builder *b, int logits, int decided, int earned) {
    struct graph *g = b->g;
    if (!ranks_read_logits(b)) {
        graph_add_op(g, "credit", OP_CREDIT, SYM_LOGIT_ROWS, LIST(logits, decided, earned),
                     LIST(decided, earned));
        return;
    }
    int entries = graph_add_tensor(g, "logits of credit", SYM_LOGIT_ROWS,
                                   (int64_t)b->options->credit_slots * F32_BYTES);
    g->tensors[entries].single = true;
    graph_add_op(g, "logits of credit", OP_CREDIT_LOGITS, SYM_LOGIT_ROWS,
                 LIST(logits, decided, earned), LIST(entries, earned));
    add_all_reduce(b, "credit all-reduce", entries);
    graph_add_op(g, "credit", OP_CREDIT, SYM_LOGIT_ROWS, LIST(entries, decided, earned),
                 LIST(decided));
}

/* What parts of a draw send to all ranks, and where that arrives. */
struct sending {
    int sent, gathered;
};

static struct sending add_sending(struct builder *b, const char *name, const char *gathered_name,
                                  size_t bytes) {
    const int64_t all_bytes = (int64_t)model_ranks(b->m) * (int64_t)bytes;
    const int sent = graph_add_tensor(b->g, name, b->sampled, (int64_t)bytes);
    return (struct sending){sent, graph_add_tensor(b->g, gathered_name, b->sampled, all_bytes)};
}

/* A draw by ranks, each of its own logits, in parts with a gathering after each but the last. */
static void add_draw_parts(struct builder *b, int logits, int decided) {
    struct graph *g = b->g;
    const bool cuts = b->options->draws_kept;
    const int bytes = (int)graph_element_bytes(g);
    const struct sending sums = add_sending(b, "sums of draws", "gathered sums",
                                            sizeof(struct draw_sums)),
                         found = add_sending(b, "drawn tokens", "gathered tokens",
                                             sizeof(struct draw_found));
    struct sending bins = {-1, -1};
    if (cuts) {
        bins = add_sending(b, "bins of draws", "gathered bins", sizeof(struct draw_bins));
    }
    int state = graph_add_tensor(g, "state of draws", b->sampled, sizeof(struct draw_state));
    int received = -1;
    for (int number = 0;; number++) {
        const enum draw_step step = draw_part_of(number, cuts, bytes).step;
        const struct sending *to = step == DRAW_SEARCH ? &bins : step == DRAW_FIND ? &found : &sums;
        const bool is_last = step == DRAW_FINISH;
        const int in[] = {logits, decided, number > 0 ? state : -1, received, -1};
        struct op *op = graph_add_op(g, "draw", OP_DRAW_PART, b->sampled, in,
                                     is_last ? LIST(decided) : LIST(to->sent, state));
        op->part = (uint32_t)number;
        op->cuts = cuts;
        if (is_last) {
            return;
        }
        graph_add_op(g, "draws all-gather", OP_ALL_GATHER, b->sampled, LIST(to->sent),
                     LIST(to->gathered));
        received = to->gathered;
    }
}

/* A drawn token replaces the most likely one. Logits are read to sum their exponentials, to find
 * those that are kept, and to draw. */
static void add_draw(struct builder *b, int logits, int decided) {
    if (ranks_read_logits(b)) {
        add_draw_parts(b, logits, decided);
        return;
    }
    const int kept = b->options->draws_kept ? logits : -1;
    graph_add_op(b->g, "draw", OP_DRAW, b->sampled, LIST(logits, decided, kept, kept),
                 LIST(decided));
}

/* The embedding that a step expects of each row: probabilities, of the stored logits where the
 * runtime has none, or has them in a narrower type, times the table of embeddings. A rank's are of
 * its own tokens, by the largest logit of all. */
static void add_expectation(struct builder *b, int logits, int decided, int probabilities,
                            int expected) {
    struct graph *g = b->g;
    const struct model *m = b->m;
    const bool is_narrow = probabilities >= 0 &&
                           g->tensors[probabilities].bytes.per < m->vocab * graph_element_bytes(g);
    if (probabilities < 0 || is_narrow) {
        const int whole = ranks_read_logits(b) ? decided : -1;
        probabilities = add_logits(b, "probabilities", SYM_LOGIT_ROWS,
                                   model_logits_bytes_per_row(m, graph_element_bytes(g)));
        graph_add_op(g, "softmax", OP_SOFTMAX, SYM_LOGIT_ROWS, LIST(logits, whole),
                     LIST(probabilities));
    }
    add_linear(g, "embedding of probabilities", WEIGHT_EMBEDDING, SYM_LOGIT_ROWS, m->hidden,
               m->vocab, probabilities, expected);
}

/* It is kept for the next step. */
static void keep_expectation(struct builder *b, int expected) {
    add_all_reduce(b, "smoothing all-reduce", expected);
    int kept = graph_add_cache(b->g, "kept embeddings", SYM_LOGIT_ROWS, b->hidden_bytes);
    graph_add_op(b->g, "keep expected embedding", OP_KEEP_EXPECTED, SYM_LOGIT_ROWS, LIST(expected),
                 LIST(kept));
}

/* What is read off stored logits: a softmax of them, or of a wider copy, the largest and its
 * probability. Returns the probabilities, or -1; read: the logits that are looked at. */
static int add_choice(struct builder *b, int logits, int decided, int *read) {
    struct graph *g = b->g;
    const struct model *m = b->m;
    int64_t vocab = m->vocab;
    int sampled = logits, probabilities = -1;
    struct op *op;
    if (b->options->samples_output) {
        int slice = add_logits(b, "sampled logits", b->sampled,
                               model_logits_bytes_per_row(m, graph_element_bytes(g)));
        op = graph_add_op(g, "logits slice", OP_CAST, b->sampled, LIST(logits), LIST(slice));
        add_copy(op, b->options, EAGER_SLICE, vocab);
        sampled = slice;
    }
    if (b->options->copy_bytes > 0) {
        int copy = add_logits(b, "logits copy", b->sampled,
                              model_logits_bytes_per_row(m, b->options->copy_bytes));
        op = graph_add_op(g, "logits cast", OP_CAST, b->sampled, LIST(sampled), LIST(copy));
        add_copy(op, b->options, EAGER_CAST_DOUBLE, vocab);
        sampled = copy;
    }
    if (b->options->softmax_bytes > 0) {
        probabilities = add_logits(b, "probabilities", b->sampled,
                                   model_logits_bytes_per_row(m, b->options->softmax_bytes));
        op = graph_add_op(g, "softmax", OP_SOFTMAX, b->sampled, LIST(sampled), LIST(probabilities));
        bool is_double = b->options->softmax_bytes == (int64_t)sizeof(double);
        add_pass(op, b->options,
                 is_double ? &eager_passes[EAGER_SOFTMAX_DOUBLE] : &op_type_softmax.eager, vocab);
        op = graph_add_op(g, "argmax and confidence", OP_SAMPLE, b->sampled,
                          LIST(logits, probabilities), LIST(decided));
    } else {
        op = graph_add_op(g, "argmax and confidence", OP_SAMPLE, b->sampled, LIST(sampled),
                          LIST(decided));
    }
    add_eager(op, b->options, vocab);
    *read = sampled;
    return probabilities;
}

/* Whether the next step is told what this one expects of each row's position. */
static bool expects(const struct builder *b) {
    return b->options->smooths || b->m->conditioning_ffn > 0;
}

/* A token drawn at the step's temperature next to the most likely one, and the row's entropy. Our
 * own kernels read the logits for it; a released sampler makes temporaries as wide as the logits,
 * a step each (vllm-project/vllm diffusion_gemma.py, _compiled_sample_step). Returns the
 * probabilities, or -1. */
static int add_renoising(struct builder *b, int logits, int decided) {
    struct graph *g = b->g;
    if (b->options->sampler_bytes == 0 && ranks_read_logits(b)) {
        const struct sending parts =
            add_sending(b, "parts of rows", "gathered parts", RENOISE_PART_BYTES);
        graph_add_op(g, "draw", OP_DRAW, b->sampled, LIST(logits, decided), LIST(parts.sent));
        graph_add_op(g, "draws all-gather", OP_ALL_GATHER, b->sampled, LIST(parts.sent),
                     LIST(parts.gathered));
        graph_add_op(g, "draw of ranks", OP_DRAW_PART, b->sampled, LIST(parts.gathered, decided),
                     LIST(decided));
        return -1;
    }
    if (b->options->sampler_bytes == 0) {
        graph_add_op(g, "draw", OP_DRAW, b->sampled, LIST(logits, decided), LIST(decided));
        return -1;
    }
    const int64_t bytes = model_logits_bytes_per_row(b->m, b->options->sampler_bytes);
    enum { SCALED, UNIFORM, GUMBEL, NOISY, LOG_PROBABILITIES, PROBABILITIES, TEMPORARIES };
    static const struct {
        const char *name;
        enum op_kind kind;
        int from, other; /* -1: the logits; none */
    } parts[TEMPORARIES] = {
        [SCALED] = {"scaled logits", OP_CAST, -1, -1},
        [UNIFORM] = {"uniform draws", OP_CAST, SCALED, -1},
        [GUMBEL] = {"gumbel noise", OP_CAST, UNIFORM, -1},
        [NOISY] = {"noisy logits", OP_CAST, SCALED, GUMBEL},
        [LOG_PROBABILITIES] = {"log-probabilities", OP_SOFTMAX, SCALED, -1},
        [PROBABILITIES] = {"sampled probabilities", OP_CAST, LOG_PROBABILITIES, -1},
    };
    int made[TEMPORARIES];
    for (int i = 0; i < TEMPORARIES; i++) {
        made[i] = add_logits(b, parts[i].name, b->sampled, bytes);
        const int from = parts[i].from < 0 ? logits : made[parts[i].from];
        const int other = parts[i].other < 0 ? -1 : made[parts[i].other];
        graph_add_op(g, parts[i].name, parts[i].kind, b->sampled, LIST(from, other), LIST(made[i]));
        if (i == NOISY) {
            graph_add_op(g, "drawn tokens", OP_SAMPLE, b->sampled, LIST(made[i]), LIST(decided));
            graph_add_op(g, "likely tokens", OP_SAMPLE, b->sampled, LIST(made[SCALED]),
                         LIST(decided));
        }
    }
    graph_add_op(g, "entropy", OP_SAMPLE, b->sampled,
                 LIST(made[LOG_PROBABILITIES], made[PROBABILITIES]), LIST(decided));
    graph_add_barrier(g, made[SCALED]); /* returned, for probabilities that clients ask for */
    return made[PROBABILITIES];
}

/* Logits that exist, in chunks or whole, and what is read off them. Where only some of the rows are
 * sampled, the head alone comes in chunks. */
static int add_stored_logits(struct builder *b, int normed) {
    struct graph *g = b->g;
    const struct model *m = b->m;
    int earned = b->options->credit_slots > 0
                     ? graph_add_cache(g, "credit", SYM_LOGIT_ROWS, graph_credit_bytes(b->options))
                     : -1;
    int expected = expects(b)
                       ? graph_add_tensor(g, "expected embedding", SYM_LOGIT_ROWS, b->hidden_bytes)
                       : -1;
    graph_begin_loop(g, CHUNK_LOGITS, SYM_LOGIT_ROWS);
    int64_t logits_bytes = b->options->logits_bytes * graph_element_bytes(g) / BF16_BYTES;
    int logits =
        add_logits(b, "logits", SYM_LOGIT_ROWS, model_logits_bytes_per_row(m, logits_bytes));
    add_linear(g, "output head", WEIGHT_HEAD, SYM_LOGIT_ROWS, m->vocab, m->hidden, normed, logits);
    if (b->options->samples_output) {
        graph_end_loop(g, logits);
    }
    int decided = add_candidates(b);
    if (b->options->shift_copy && m->shifted_logits) {
        int shifted = add_logits(b, "shifted logits", SYM_LOGIT_ROWS,
                                 model_logits_bytes_per_row(m, logits_bytes));
        graph_add_op(g, "logits shift", OP_CAST, SYM_LOGIT_ROWS, LIST(logits), LIST(shifted));
        logits = shifted;
    }
    int read = logits, probabilities;
    if (m->uniform_noise && b->options->sampler_bytes > 0) {
        probabilities = add_renoising(b, logits, decided);
    } else {
        probabilities = add_choice(b, logits, decided, &read);
    }
    if (ranks_read_logits(b)) {
        decided = add_combination(b, decided);
    }
    const bool renoises = m->uniform_noise && b->options->sampler_bytes == 0;
    if (renoises) {
        (void)add_renoising(b, read, decided);
    }
    if (expected >= 0) { /* ranks work it out by the confidences that draws and credit change */
        add_expectation(b, logits, decided, probabilities, expected);
    }
    if (b->options->draws && !renoises) {
        add_draw(b, read, decided);
    }
    if (earned >= 0) {
        add_credit(b, logits, decided, earned);
    }
    if (b->options->host_reads_logits) {
        graph_add_barrier(g, logits);
    }
    if (!b->options->samples_output) {
        graph_end_loop(g, decided);
    }
    if (expected >= 0) {
        keep_expectation(b, expected);
    }
    return decided;
}

static int add_fused_head(struct builder *b, int normed) {
    struct graph *g = b->g;
    int decided = add_candidates(b);
    int scratch = graph_add_tensor(g, "head scratch", SYM_ONE, GRAPH_HEAD_SCRATCH_BYTES);
    struct op *op = graph_add_op(g, "output head", OP_HEAD, SYM_LOGIT_ROWS, LIST(normed),
                                 LIST(decided, scratch));
    set_product(op, WEIGHT_HEAD, b->m->vocab, b->m->hidden);
    return decided;
}

/* What a step expects of each row without stored logits: as attention does, whose keys and values
 * are the table of embeddings. */
static void add_streamed_expectation(struct builder *b, int normed) {
    struct graph *g = b->g;
    int expected = graph_add_tensor(g, "expected embedding", SYM_LOGIT_ROWS, b->hidden_bytes);
    struct op *op = graph_add_op(g, "embedding of probabilities", OP_HEAD, SYM_LOGIT_ROWS,
                                 LIST(normed), LIST(expected));
    set_product(op, WEIGHT_EMBEDDING, b->m->vocab, b->m->hidden);
    keep_expectation(b, expected);
}

void builder_add_head(struct builder *b) {
    struct graph *g = b->g;
    graph_add_segment(g, "head", 1);
    int normed = graph_add_tensor(g, "final norm", SYM_LOGIT_ROWS, b->hidden_bytes);
    struct op *norm =
        graph_add_op(g, "final norm", OP_RMSNORM, SYM_LOGIT_ROWS, LIST(b->residual), LIST(normed));
    norm->weight = WEIGHT_FINAL_NORM;
    add_eager(norm, b->options, b->m->hidden);
    normed = builder_quantised(b, "quantised head input", WEIGHT_HEAD, normed, 1, b->m->hidden);
    int decided = b->options->fused_head ? add_fused_head(b, normed) : add_stored_logits(b, normed);
    if (b->options->fused_head && expects(b)) {
        add_streamed_expectation(b, normed);
    }
    if (model_ranks(b->m) > 1 && !ranks_read_logits(b)) {
        decided = add_combination(b, decided);
    }
    if (b->options->smooths) {
        int steps = graph_add_cache(g, "steps and thresholds", b->sampled, 8);
        graph_add_op(g, "next step", OP_NEXT_STEP, b->sampled, LIST(steps), LIST(steps));
    }
    int ids = graph_add_cache(g, "token ids", b->sampled, 4);
    graph_add_op(g, "commit", OP_COMMIT, b->sampled, LIST(decided), LIST(ids));
}
