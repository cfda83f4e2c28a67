/* Requests that are decoded block by block under each kind of cache, for the forward pass's suites:
 * the spans and parts of their steps, and a reference in double that decodes the same request with
 * canvases and caches of its own. */
#ifndef UNMASK_TESTS_SUPPORT_SCRIPT_H
#define UNMASK_TESTS_SUPPORT_SCRIPT_H

#include "tests/support/forward.h"

enum keeping { KEEP_NONE, KEEP_BEFORE, KEEP_OUTSIDE, KEEP_CHOSEN };

/* Sizes in tokens. Each block takes `steps` steps; the first runs the whole canvas, where rows are
 * chosen the second too. */
struct script {
    enum keeping keeping;
    int canvas, prompt, block, steps;
    int take;   /* positions a step commits; 0: by threshold */
    int retain; /* rows kept by choice */
    /* Written by the functions below. */
    int request, begin, step; /* the active block's first position; the step within it */
    int32_t positions[MAX_NAIVE], kv_rows[MAX_NAIVE], rows[MAX_NAIVE], targets[MAX_NAIVE];
};

static inline bool script_over(const struct script *s) {
    return s->begin >= s->canvas;
}

/* Queries of the next step, from this position on. */
static inline int script_first(const struct script *s) {
    bool runs_all =
        s->keeping == KEEP_NONE || s->step == 0 || (s->keeping == KEEP_CHOSEN && s->step == 1);
    return runs_all ? 0 : s->begin;
}

static inline int script_queries(const struct script *s) {
    int first = script_first(s);
    return first == 0 || s->keeping == KEEP_BEFORE ? s->canvas - first : s->block;
}

static inline bool script_reuses(const struct script *s) {
    return s->keeping != KEEP_NONE && s->step > (s->keeping == KEEP_CHOSEN ? 1 : 0);
}

static inline bool script_selects(const struct script *s) {
    return s->keeping == KEEP_CHOSEN && s->step == 1;
}

/* Rows of the store. */
static inline int script_kept(const struct script *s) {
    return s->keeping == KEEP_BEFORE    ? s->begin
           : s->keeping == KEEP_OUTSIDE ? s->canvas - s->block
           : s->keeping == KEEP_CHOSEN  ? s->retain
                                        : 0;
}

/* The row of a position's keys and values in the store, or -1. */
static inline int script_row(const struct script *s, int position) {
    bool behind = s->keeping == KEEP_OUTSIDE && position >= s->begin + s->block;
    return s->keeping != KEEP_CHOSEN && position < s->begin ? position
           : behind                                         ? position - s->block
                                                            : -1;
}

/* The query whose logits decide on a position: the one before it where the model's are shifted. */
static inline int script_query(const struct script *s, const struct model *model, int position) {
    int query = position - script_first(s);
    return model->shifted_logits && query > 0 ? query - 1 : query;
}

/* Adds the next step's span to a rig's batch: logits of the active block. */
static inline void script_add(struct script *s, struct rig *rig) {
    int n = script_queries(s), first = script_first(s);
    struct step_part part =
        MAKE(struct step_part, .canvas = (int64_t)s->request * CANVAS_TOKENS,
             .positions = s->positions, .logit_rows = s->rows, .targets = s->targets,
             .decision = {.n_rows = (uint32_t)s->block, .take = (uint32_t)s->take},
             .kv = {STORE * s->request, script_kept(s)});
    for (int t = 0; t < n; t++) {
        s->positions[t] = first + t;
        s->kv_rows[t] = script_row(s, first + t);
    }
    for (int r = 0; r < s->block; r++) {
        s->rows[r] = script_query(s, rig->graph.model, s->begin + r);
        s->targets[r] = s->begin + r;
    }
    bool keeps = s->keeping == KEEP_BEFORE || s->keeping == KEEP_OUTSIDE;
    part.kv_rows = keeps && s->step == 0 ? s->kv_rows : NULL;
    part.block_start = (uint32_t)s->begin;
    part.block_end = (uint32_t)(s->begin + s->block);
    struct span *span =
        rig_add(rig, (uint32_t)n, script_reuses(s) ? (uint32_t)script_kept(s) : 0, &part);
    span->logit_rows = (uint32_t)s->block;
    span->select_rows = script_selects(s) ? (uint32_t)(s->canvas - s->block) : 0;
    span->pack_rows = script_selects(s) ? (uint32_t)s->retain : 0;
}

/* The step was run. */
static inline void script_advance(struct script *s) {
    s->step++;
    if (s->step == s->steps) {
        s->begin += s->block;
        s->step = 0;
    }
}

/* Sets a request up to start: a drawn prompt without masks, then masks, in the rig's canvas. */
static inline void script_start(struct script *s, int request, struct rig *rig,
                                int32_t tokens[MAX_NAIVE]) {
    const struct model *model = rig->graph.model;
    struct rng rng = rng_stream((uint64_t)request, "prompt");
    s->request = request;
    s->begin = s->prompt;
    s->step = 0;
    for (int t = 0; t < s->canvas; t++) {
        int32_t token = (int32_t)(rng_next(&rng) % (model->vocab - 1));
        tokens[t] = t >= s->prompt ? (int32_t)model->mask_token
                                   : token + (token >= (int32_t)model->mask_token);
    }
    rig_write(rig, request, 0, tokens, s->canvas);
}

struct naive_request {
    int32_t tokens[MAX_NAIVE];
    struct naive_cache cache;
    double logits[MAX_NAIVE][MAX_VOCAB]; /* of the step's queries */
};

/* Scores of the candidates of one key-value head: every candidate outside the block against the
 * mean query of each head, the best (or, of all heads, the mean). */
static inline double naive_score(const struct model *m, const struct naive_kv *kv, int layer,
                                 int head, int token, int begin, int end, bool together) {
    int d = (int)m->head_dim, group = (int)(m->heads / m->kv_heads);
    int first = together ? 0 : head * group, last = together ? (int)m->heads : first + group;
    double best = -(double)INFINITY, sum = 0;
    for (int h = first; h < last; h++) {
        double dot = 0;
        for (int i = 0; i < d; i++) {
            double mean = 0;
            for (int t = begin; t < end; t++) {
                mean += kv->q[layer][t][h * d + i] / (end - begin);
            }
            dot += mean * kv->k[layer][token][h / group * d + i] / sqrt(d);
        }
        best = dot > best ? dot : best;
        sum += dot;
    }
    return together ? sum / m->heads : best;
}

/* The rows that one head keeps: pooled over three neighbours among the candidates, the best first,
 * the earlier on a tie, in token order. */
static inline void naive_choose(const struct script *s, const double *scores, int n, int *rows) {
    double pooled[MAX_NAIVE];
    bool is_kept[MAX_NAIVE] = {false};
    for (int c = 0; c < n; c++) {
        pooled[c] = scores[c];
        pooled[c] = c > 0 ? fmax(pooled[c], scores[c - 1]) : pooled[c];
        pooled[c] = c + 1 < n ? fmax(pooled[c], scores[c + 1]) : pooled[c];
    }
    for (int k = 0; k < s->retain; k++) {
        int best = -1;
        for (int c = 0; c < n; c++) {
            best = !is_kept[c] && (best < 0 || pooled[c] > pooled[best]) ? c : best;
        }
        is_kept[best] = true;
    }
    for (int c = 0, k = 0; c < n; c++) {
        if (is_kept[c]) {
            rows[k++] = c < s->begin ? c : c + s->block;
        }
    }
}

static inline void naive_select(const struct script *s, const struct model *m, bool together,
                                struct naive_cache *cache) {
    int n = s->canvas - s->block;
    for (int layer = 0; layer < (int)m->layers; layer++) {
        for (int head = 0; head < (int)m->kv_heads; head++) {
            double scores[MAX_NAIVE];
            for (int c = 0; c < n; c++) {
                int token = c < s->begin ? c : c + s->block;
                scores[c] = naive_score(m, &cache->kv, layer, head, token, s->begin,
                                        s->begin + s->block, together);
            }
            naive_choose(s, scores, n, cache->rows[layer][head]);
        }
    }
    cache->n = s->retain;
}

/* Commits the surest of the block's masked positions: `take` of them, or those at the threshold and
 * the first in any case. Those that would be given the mask itself go last (place.h). */
static inline void naive_commit(const struct script *s, const struct model *m, double threshold,
                                struct naive_request *r) {
    int token[MAX_NAIVE];
    double sure[MAX_NAIVE];
    for (int i = 0; i < s->block; i++) {
        const double *logits = r->logits[script_query(s, m, s->begin + i)];
        double sum = 0;
        token[i] = 0;
        for (int v = 1; v < (int)m->vocab; v++) {
            token[i] = logits[v] > logits[token[i]] ? v : token[i];
        }
        for (int v = 0; v < (int)m->vocab; v++) {
            sum += exp(logits[v] - logits[token[i]]);
        }
        const int mask = (int32_t)m->mask_token;
        sure[i] = r->tokens[s->begin + i] != mask ? -1 : token[i] == mask ? 0 : 1 / sum;
    }
    for (int n = 0; s->take == 0 || n < s->take; n++) {
        int best = 0;
        for (int i = 1; i < s->block; i++) {
            best = sure[i] > sure[best] ? i : best;
        }
        if (sure[best] < 0 || (s->take == 0 && n > 0 && sure[best] < threshold)) {
            return;
        }
        r->tokens[s->begin + best] = token[best];
        sure[best] = -1;
    }
}

static struct naive_kv kv_own; /* of queries that nothing is kept of */

/* The next step. `together`: all heads keep the same rows. */
static inline void naive_step(const struct script *s, const struct weights *w, bool together,
                              double threshold, struct naive_request *r) {
    int first = script_first(s);
    struct naive_kv *own = script_reuses(s) ? &kv_own : &r->cache.kv;
    naive_forward(w, r->tokens + first, first, script_queries(s),
                  script_reuses(s) ? &r->cache : NULL, own, r->logits);
    if (script_selects(s)) {
        naive_select(s, w->layout.model, together, &r->cache);
    } else if (!script_reuses(s)) {
        r->cache.n = 0;
        for (int t = 0; t < s->canvas; t++) {
            if (script_row(s, t) >= 0) {
                naive_keep(&r->cache, t);
            }
        }
    }
    naive_commit(s, w->layout.model, threshold, r);
}

#endif
