/* Drawing tokens: the candidates of the same rows become those that are drawn, or their confidences
 * tempered. Of ranks that divide the vocabulary it takes several parts; which tensor of theirs is
 * which the graph builder says. */
#include "engine/op/launch.h"

#include "sim/model/ranks.h"

static struct call_draw draw_of(const struct launch *l) {
    const struct candidates at = launch_candidates(l, l->op->in[1]);
    const int64_t first = l->instance->first_row;
    return (struct call_draw){
        .logits = rows_at(l, l->op->in[0]),
        .token = at.token,
        .confidence = at.confidence,
        .margin = at.margin,
        .entropy = at.entropy,
        .bits = (const uint64_t *)(const void *)wide(l, PACKED_DRAWS) + first,
        .by = draw_rules(l),
        .n_rows = (int32_t)l->instance->n_rows,
        .n_vocab = (int32_t)l->model->vocab,
        .dtype = l->dtype,
    };
}

/* Candidates of canvases of random tokens: the most likely token, in the margin's place the drawn
 * one, and the entropy at the step's temperature. A rank sends what it finds in its part. */
static int launch_renoise(const struct launch *l) {
    const struct call_draw draw = draw_of(l);
    const bool is_part = l->op->out[0] != l->op->in[1];
    const struct call_renoise call = {
        .logits = draw.logits,
        .by = draw.by,
        .key = draw.bits,
        .token = draw.token,
        .drawn = (int32_t *)(void *)draw.margin,
        .entropy = draw.entropy,
        .n_rows = draw.n_rows,
        .n_vocab = draw.n_vocab,
        .dtype = draw.dtype,
        .part = is_part ? (struct renoise_part *)(void *)output(l, 0) : NULL,
        .first_token = is_part ? first_token(l) : 0,
    };
    return l->table->renoise(l->device, &call);
}

static int launch_renoise_combine(const struct launch *l) {
    const struct candidates at = launch_candidates(l, l->op->in[1]);
    const struct call_renoise_combine call = {
        .parts = (const struct renoise_part *)(const void *)input(l, 0),
        .by = draw_rules(l),
        .token = at.token,
        .drawn = (int32_t *)(void *)at.margin,
        .confidence = at.confidence,
        .entropy = at.entropy,
        .n_rows = (int32_t)l->instance->n_rows,
        .n_ranks = (int32_t)model_ranks(l->model),
    };
    return l->table->renoise_combine(l->device, &call);
}

_Static_assert(sizeof(struct renoise_part) == 40, "the graph plans as much");

static int launch_draw(const struct launch *l) {
    if (l->model->uniform_noise) {
        return launch_renoise(l);
    }
    const struct call_draw call = draw_of(l);
    return l->table->draw(l->device, &call);
}

const struct op_launch op_launch_draw = {
    .launch = launch_draw, .facts = OP_DRAWS, .sizes = OP_SIZES_PASS};

static int launch_draw_part(const struct launch *l) {
    if (l->model->uniform_noise) {
        return launch_renoise_combine(l);
    }
    const bool is_first = l->op->part == 0, is_last = l->op->out[1] < 0;
    const struct call_draw_part call = {
        .of = draw_of(l),
        .logit = launch_candidates(l, l->op->in[1]).logit,
        .state = (struct draw_state *)(void *)(is_first ? output(l, 1) : input(l, 2)),
        .received = is_first ? NULL : input(l, 3),
        .sent = is_last ? NULL : output(l, 0),
        .part = (int32_t)l->op->part,
        .rank = (int32_t)l->issue->weights->layout.rank,
        .n_ranks = (int32_t)model_ranks(l->model),
        .cuts = l->op->cuts,
    };
    return l->table->draw_part(l->device, &call);
}

const struct op_launch op_launch_draw_part = {.launch = launch_draw_part, .facts = OP_DRAWS};
