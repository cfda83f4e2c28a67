/* The reference implementation of drawing tokens: tokens sorted, and cut off one by one. Over ranks
 * it is a thread block's steps, which tests compare with that. */
#include <math.h>
#include <stdlib.h>

#include "kernels/decode/draw_row.h"
#include "kernels/ref/ref.h"

struct ranked {
    float logit;
    int32_t token;
    unsigned long long mass;
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit)
                                : (x->token > y->token) - (x->token < y->token);
}

static int by_draw(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    const int32_t column = x->token % DRAW_THREADS, other = y->token % DRAW_THREADS;
    return column != other ? column - other : x->token - y->token;
}

static unsigned long long sum_of(const struct ranked *tokens, int32_t n) {
    unsigned long long sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += tokens[i].mass;
    }
    return sum;
}

/* How many of the tokens, the most likely first, are kept. */
static int32_t n_kept_of(const struct draw_rule *by, int32_t n_vocab, const struct ranked *tokens) {
    const uint32_t top_k = by->top_k, n = (uint32_t)n_vocab;
    const int32_t most = (int32_t)(top_k > 0 && top_k < n ? top_k : n);
    if (by->top_p >= 1) {
        return most;
    }
    const unsigned long long limit = draw_limit(sum_of(tokens, most), by->top_p);
    unsigned long long before = 0;
    int32_t n_kept = 0;
    while (n_kept < most && before <= limit) {
        before += tokens[n_kept++].mass;
    }
    return n_kept;
}

static struct ranked drawn_of(struct ranked *kept, int32_t n, uint64_t bits) {
    unsigned long long left = draw_target(sum_of(kept, n), bits);
    qsort(kept, (size_t)n, sizeof *kept, by_draw);
    int32_t i = 0;
    while (left >= kept[i].mass) {
        left -= kept[i++].mass;
    }
    return kept[i];
}

static void draw_one(const struct call_draw *call, int64_t row, struct ranked *tokens) {
    const struct draw_rule *by = &call->by[row];
    const int32_t n_vocab = call->n_vocab;
    const float sharpness = 1 / by->temperature, of = by->of == DRAW_OF_MODEL ? 1 : sharpness;
    for (int32_t i = 0; i < n_vocab; i++) {
        tokens[i].logit = (float)ref_load(call->logits, call->dtype, row * n_vocab + i);
        tokens[i].token = i;
    }
    qsort(tokens, (size_t)n_vocab, sizeof *tokens, by_rank);
    const float top = tokens[0].logit;
    for (int32_t i = 0; i < n_vocab; i++) {
        tokens[i].mass = draw_mass(tokens[i].logit - top, sharpness);
    }
    const int32_t n_kept = n_kept_of(by, n_vocab, tokens),
                  n_of = by->of == DRAW_OF_KEPT ? n_kept : n_vocab;
    unsigned long long mass = 0, weighted = 0;
    for (int32_t i = 0; i < n_of; i++) {
        mass += draw_mass(tokens[i].logit - top, of);
        weighted += draw_weighted(tokens[i].logit - top, of);
    }
    const unsigned long long second = n_of > 1 ? draw_mass(tokens[1].logit - top, of) : 0;
    const struct ranked drawn = by->draws ? drawn_of(tokens, n_kept, call->bits[row]) : tokens[0];
    const struct draw_results results =
        draw_results_of(draw_mass(drawn.logit - top, of), second, mass, weighted);
    call->token[row] = drawn.token;
    call->confidence[row] = results.confidence;
    if (call->margin) {
        call->margin[row] = results.margin;
        call->entropy[row] = results.entropy;
    }
}

bool ref_draw(const struct call_draw *call) {
    struct ranked *tokens = malloc(sizeof *tokens * (size_t)call->n_vocab);
    if (!tokens) {
        return false;
    }
    for (int64_t row = 0; row < call->n_rows; row++) {
        if (!isnan(call->confidence[row]) && !draw_is_idle(&call->by[row])) {
            draw_one(call, row, tokens);
        }
    }
    free(tokens);
    return true;
}

void ref_draw_part(const struct call_draw_part *call) {
    static _Thread_local struct draw_work work;
    for (int64_t row = 0; row < call->of.n_rows; row++) {
        draw_part_row(call, row, &work);
    }
}
