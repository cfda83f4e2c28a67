#include "sim/decode/process.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/rules/credit.h"
#include "sim/base/rng.h"
#include "sim/decode/ladder.h"
#include "sim/decode/rule.h"

/* The draws of a position have streams of their own: the seed, changed. */
enum {
    DRAW_DIFFICULTY = 1,
    DRAW_STEP = 2,
    DRAW_DELTA = 3,
    DRAW_TAIL = 4,
    DRAW_BAR = 5,
    DRAW_SKEW = 6,
    DRAW_TOKEN = 7,
    DRAW_LOST = 8,
    DRAW_EDIT = 9,
    DRAW_MOVE = 10,
    DRAW_ACCEPT = 11
};

static uint64_t stream(uint64_t seed, uint64_t draw) {
    return seed ^ draw * UINT64_C(0xd1342543de82ef95);
}

/* Rounding to single precision must not leave the open interval. */
static float inside(double confidence) {
    const float rounded = (float)confidence, most = 1 - FLT_EPSILON / 2;
    return rounded > FLT_MIN ? rounded < most ? rounded : most : FLT_MIN; /* fmaxf is a call */
}

struct decode_process process_kumaraswamy(double a, double b) {
    return (struct decode_process){
        .name = "kumaraswamy",
        .from = provenance_of(PROVENANCE_ASSUMED,
                              "independent draws of one distribution, whatever model and data"),
        .error = "not known of any model; on sdar-27m its tokens a pass are 44 to 91 % low",
        .independent = 1,
        .a = a,
        .b = b,
        .tail_spread = 1,
        .edit_scale = 1,
        .edit_share = 1};
}

static bool is_behind_text(const struct decode_view *view, uint32_t i) {
    return i >= view->block_length - view->behind_text;
}

/* A position's numbers do not depend on whether another one's are asked for. */
static bool is_wanted(const struct decode_view *view, uint32_t i) {
    return view->masked[i] && (view->wanted == NULL || view->wanted[i]);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* x to the power of 1 / p in single precision, as pow and a rounding have it. Both have errors
 * below 2^-52: where numbers that far from the square root are rounded alike, so is what pow
 * returns. */
static double root(double x, double p) {
    if (p == 2) {
        const double near = sqrt(x);
        const float low = (float)(near * (1 - 0x1p-50)), high = (float)(near * (1 + 0x1p-50));
        if (low == high) {
            return (double)low;
        }
    }
    return (double)(float)pow(x, 1 / p);
}

/* By inverse distribution function, keyed by the index among the masked positions. */
static void draw_independent(const struct decode_process *process, uint64_t seed,
                             const struct decode_view *view, float *confidence) {
    const uint64_t key = rng_key(seed, view->request, view->step);
    for (uint32_t i = 0, n = 0; i < view->block_length; i++) {
        confidence[i] = 0;
        const uint32_t place = n;
        n += view->masked[i];
        if (is_wanted(view, i)) {
            const double v = 1 - rng_at(key, place);
            const double x = 1 - (process->b == 1 ? v : pow(v, 1 / process->b));
            confidence[i] = is_behind_text(view, i) ? inside(sigmoid(PROCESS_LOGIT_BEHIND_TEXT))
                                                    : inside(root(x, process->a));
        }
    }
}

static const struct draw_rule *rule_of(const struct decode_process *process,
                                       const struct decode_view *view) {
    return view->drawing != NULL ? view->drawing : &process->drawing;
}

/* Whether confidences are others than the most likely tokens' at the temperature. */
static bool is_drawn(const struct decode_process *process, const struct decode_view *view) {
    const struct draw_rule *by = rule_of(process, view);
    return by->draws || (by->of == DRAW_OF_KEPT && (by->top_k > 0 || by->top_p < 1));
}

bool process_ranks_by_draws(const struct decode_process *process, const struct decode_view *view) {
    return process->independent && process->a >= 1 && process->a <= 4 && process->b == 1 &&
           view->behind_text == 0 && !is_drawn(process, view);
}

/* Which of n draws has the largest confidence, the first of equal ones; those up to `least` have
 * less for certain. */
static uint32_t surest_of(const struct decode_process *process, const double *draws, uint32_t n,
                          double least) {
    uint32_t best = 0;
    float most = 0;
    for (uint32_t k = 0; k < n; k++) {
        const float now = draws[k] > least ? inside(root(1 - (1 - draws[k]), process->a)) : 0;
        best = now > most ? k : best;
        most = now > most ? now : most;
    }
    return best;
}

/* The same, and its draw is 0 from now on. Draws that lie further apart than rounding to single
 * precision hides are compared as they are. */
static uint32_t take_surest(const struct decode_process *process, double *draws, uint32_t n) {
    double most = 0, second = 0;
    uint32_t best = 0;
    for (uint32_t k = 0; k < n; k++) {
        const double draw = draws[k], lesser = draw > most ? most : draw;
        best = draw > most ? k : best;
        most = draw > most ? draw : most;
        second = lesser > second ? lesser : second;
    }
    const double least = most < 0x1p-10 ? 0 : most * (1 - 0x1p-20);
    if (second > least) {
        best = surest_of(process, draws, n, least);
    }
    draws[best] = 0;
    return best;
}

void process_surest(const struct decode_process *process, uint64_t seed,
                    const struct decode_view *view, uint32_t most, double *draws, uint32_t *offset,
                    uint8_t *surest) {
    const uint64_t key = rng_key(seed, view->request, view->step);
    uint32_t n = 0;
    memset(surest, 0, view->block_length);
    for (uint32_t i = 0; i < view->block_length; i++) { /* without branches, here and below */
        offset[n] = i;
        n += view->masked[i] != 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        draws[k] = rng_at(key, k);
    }
    if (view->wanted != NULL) {
        const uint32_t n_masked = n;
        n = 0;
        for (uint32_t k = 0; k < n_masked; k++) {
            const uint32_t at = offset[k];
            offset[n] = at;
            draws[n] = draws[k];
            n += view->wanted[at] != 0;
        }
    }
    for (uint32_t found = 0; found < most && found < n; found++) {
        surest[offset[take_surest(process, draws, n)]] = 1;
    }
}

/* The power that the temperature raises probabilities to; 0: they stay as they are. */
static double sharpness(const struct decode_process *process, const struct decode_view *view) {
    const double temperature =
        view->drawing != NULL ? (double)view->drawing->temperature : process->temperature;
    bool stays = temperature == 0 || temperature == 1;
    return stays ? 0 : 1 / temperature;
}

/* The second token's share of what the first leaves, before any temperature. */
static double second_share(const struct decode_process *process, uint64_t tail_key,
                           uint64_t position) {
    return sigmoid(process->tail + process->tail_spread * rng_bell(tail_key, position));
}

static double sharpened_share(double q, double s) {
    return -expm1(s * log1p(-q));
}

static uint64_t tail_key_of(uint64_t seed, const struct decode_view *view) {
    return rng_key(stream(seed, DRAW_TAIL), view->request, view->step_in_block);
}

/* What is the same for all positions of a step, and the walk from left to right. */
struct walk {
    const struct decode_process *process;
    const struct decode_view *view;
    uint64_t difficulty_key, skew_key, step_key, lost_key;
    double base;
    uint32_t gap; /* masked positions passed since the last known one */
};

/* The location of the positions [first, end), by how much of them is known. */
static double base_of(const struct decode_process *process, const struct decode_view *view,
                      uint32_t first, uint32_t end) {
    uint32_t n_known = 0;
    for (uint32_t i = first; i < end; i++) {
        n_known += !view->masked[i];
    }
    return process->location + process->context * n_known / (end - first);
}

/* Position i is the first of its block, or is not. */
static void walk_enter(struct walk *walk, uint32_t i) {
    const uint32_t block = walk->view->mark_tokens, length = walk->view->block_length;
    if (block > 0 && i % block == 0) {
        const uint32_t end = i + block < length ? i + block : length;
        walk->base = base_of(walk->process, walk->view, i, end);
    }
}

/* Keys that the process draws nothing by are left out. */
static struct walk walk_start(const struct decode_process *process, uint64_t seed,
                              const struct decode_view *view) {
    struct walk walk = {.process = process,
                        .view = view,
                        .difficulty_key = rng_key(stream(seed, DRAW_DIFFICULTY), view->request, 0),
                        .step_key =
                            rng_key(stream(seed, DRAW_STEP), view->request, view->step_in_block),
                        .base = base_of(process, view, 0, view->block_length)};
    if (process->skew != 0) {
        walk.skew_key = rng_key(stream(seed, DRAW_SKEW), view->request, 0);
    }
    if (process->lost_reach != 0) {
        walk.lost_key = rng_key(stream(seed, DRAW_LOST), view->request, 0);
    }
    return walk;
}

static double difficulty(const struct walk *walk, uint64_t position) {
    double even = rng_bell(walk->difficulty_key, position), skew = walk->process->skew;
    if (skew == 0) {
        return even;
    }
    double tail = -log1p(-(double)keyed_draw(walk->skew_key, position));
    return sqrt(1 - skew * skew) * even + skew * (1 - tail);
}

/* x of position i, which must be masked, with `distance` for the model's; positions are visited in
 * ascending order. */
static double walk_logit(struct walk *walk, uint32_t i, double distance) {
    const struct decode_process *process = walk->process;
    if (is_behind_text(walk->view, i)) {
        return PROCESS_LOGIT_BEHIND_TEXT;
    }
    uint64_t position = walk->view->block_start + (uint64_t)i;
    double g = walk->gap++;
    return walk->base - distance * g / (g + process->gap) +
           process->position_spread * difficulty(walk, position) +
           process->step_spread * rng_bell(walk->step_key, position);
}

/* Whether the model is at a loss at position i, `gap` masked positions after what is known. */
static bool is_lost(const struct walk *walk, uint32_t i, uint32_t gap) {
    const struct decode_process *process = walk->process;
    if (process->lost_reach == 0) {
        return false;
    }
    double u = (double)keyed_draw(walk->lost_key, walk->view->block_start + (uint64_t)i);
    return -log1p(-u) < process->lost + pow(gap / process->lost_reach, process->lost_power);
}

static double lost_logit(const struct walk *walk, uint32_t i) {
    const struct decode_process *process = walk->process;
    return process->lost_location +
           process->lost_spread *
               rng_bell(walk->difficulty_key, walk->view->block_start + (uint64_t)i);
}

static double edit_start(const struct decode_process *process) {
    return process->edit_location + (process->is_structured ? process->edit_structured : 0);
}

/* Of position i, visited in ascending order; s is `sharpness`. */
static float confidence_at(struct walk *walk, double s, uint64_t tail_key, uint32_t i) {
    const struct decode_process *process = walk->process;
    const uint32_t gap = walk->gap;
    double x = walk_logit(walk, i, process->distance);
    if (!is_behind_text(walk->view, i) && is_lost(walk, i, gap)) {
        x = lost_logit(walk, i);
    }
    if (process->edits && !is_behind_text(walk->view, i)) {
        x = edit_start(process) + process->edit_scale * x;
    }
    if (s > 0 && !is_behind_text(walk->view, i)) {
        double q = second_share(process, tail_key, walk->view->block_start + (uint64_t)i);
        x = s * x + log(sharpened_share(q, s)) - s * log(q);
    }
    return inside(sigmoid(x));
}

/* Those of the most likely tokens. */
static void likeliest(const struct decode_process *process, uint64_t seed,
                      const struct decode_view *view, float *confidence) {
    if (process->independent) {
        draw_independent(process, seed, view, confidence);
        return;
    }
    struct walk walk = walk_start(process, seed, view);
    const double s = sharpness(process, view);
    uint64_t tail_key = tail_key_of(seed, view);
    for (uint32_t i = 0; i < view->block_length; i++) {
        confidence[i] = 0;
        walk_enter(&walk, i);
        if (view->masked[i] && !is_wanted(view, i)) {
            walk.gap += !is_behind_text(view, i);
        } else if (view->masked[i]) {
            confidence[i] = confidence_at(&walk, s, tail_key, i);
        } else {
            walk.gap = 0;
        }
    }
}

/* What there is at position i, and what its token's probability is of. */
struct choices {
    struct ladder kept, of;
};

static struct choices choices_at(const struct decode_process *process, uint64_t tail_key,
                                 const struct decode_view *view, uint32_t i, double p) {
    const struct draw_rule *by = rule_of(process, view), whole = {.top_p = 1};
    double q = second_share(process, tail_key, view->block_start + (uint64_t)i);
    double s = process->independent || is_behind_text(view, i) ? 0 : sharpness(process, view);
    double sharp = s > 0 ? sharpened_share(q, s) : q;
    struct ladder kept = ladder_of(by, p, sharp);
    if (by->of == DRAW_OF_MODEL && s > 0) {
        return (struct choices){kept, ladder_of(&whole, ladder_untempered(p, q, s), q)};
    }
    return (struct choices){kept, by->of == DRAW_OF_KEPT ? kept : ladder_of(&whole, p, sharp)};
}

static void drawn_confidence(const struct decode_process *process, uint64_t seed,
                             const struct decode_view *view, float *confidence) {
    uint64_t tail_key = tail_key_of(seed, view);
    uint64_t token_key = rng_key(stream(seed, DRAW_TOKEN), view->request, view->step_in_block);
    for (uint32_t i = 0; i < view->block_length; i++) {
        if (is_wanted(view, i)) {
            struct choices at = choices_at(process, tail_key, view, i, (double)confidence[i]);
            double u = (double)keyed_draw(token_key, view->block_start + (uint64_t)i);
            double place = rule_of(process, view)->draws ? ladder_draw(&at.kept, u) : 0;
            confidence[i] = inside(ladder_probability(&at.of, place));
        }
    }
}

void process_confidence(const struct decode_process *process, uint64_t seed,
                        const struct decode_view *view, float *confidence) {
    likeliest(process, seed, view, confidence);
    if (is_drawn(process, view)) {
        drawn_confidence(process, seed, view, confidence);
    }
}

static void drawn_statistics(const struct decode_process *process, uint64_t seed,
                             const struct decode_view *view, float *margin, float *entropy) {
    uint64_t tail_key = tail_key_of(seed, view);
    likeliest(process, seed, view, margin);
    for (uint32_t i = 0; i < view->block_length; i++) {
        entropy[i] = 0;
        if (view->masked[i]) {
            struct choices at = choices_at(process, tail_key, view, i, (double)margin[i]);
            margin[i] = (float)ladder_margin(&at.of);
            entropy[i] = (float)fmin(ladder_entropy(&at.of), 0);
        }
    }
}

void process_statistics(const struct decode_process *process, uint64_t seed,
                        const struct decode_view *view, const float *confidence, float *margin,
                        float *entropy) {
    if (is_drawn(process, view)) {
        drawn_statistics(process, seed, view, margin, entropy);
        return;
    }
    const double s = sharpness(process, view);
    uint64_t key = tail_key_of(seed, view);
    for (uint32_t i = 0; i < view->block_length; i++) {
        margin[i] = entropy[i] = 0;
        if (view->masked[i]) {
            double q = second_share(process, key, view->block_start + (uint64_t)i);
            q = s > 0 ? sharpened_share(q, s) : q;
            double p = (double)confidence[i], rest = 1 - p;
            margin[i] = (float)(p - fmin(p, rest * q));
            q = fmin(q, p / rest);
            entropy[i] =
                (float)(p * log(p) + rest * (log(rest) + log(q) + (1 - q) / q * log1p(-q)));
        }
    }
}

/* Whether a token that was chosen, or would be, with this confidence is not the settled one: most
 * are, whatever the confidence. */
static bool is_wrong(const struct decode_process *process, float confidence, float bar) {
    double p = (double)confidence;
    if (process->edit_share <= 1 - (double)bar) {
        return false;
    }
    if (process->edits && !process->independent) {
        p = sigmoid((log(p / (1 - p)) - edit_start(process)) / process->edit_scale);
    }
    return process->edit_share * (1 - p) > 1 - (double)bar;
}

bool process_is_settled(uint64_t seed, uint64_t request, uint32_t position, float confidence) {
    return confidence >= keyed_draw(rng_key(stream(seed, DRAW_BAR), request, 0), position);
}

bool process_accepts(const struct decode_process *process, uint64_t seed,
                     const struct decode_view *draft, const struct decode_view *check, uint32_t i,
                     float drafted_with, float *confidence) {
    const uint64_t tail_key = tail_key_of(seed, draft), position = draft->block_start + (uint64_t)i;
    likeliest(process, seed, draft, confidence);
    const float p = rule_of(process, draft)->draws ? confidence[i] : drafted_with;
    likeliest(process, seed, check, confidence);
    const float q = confidence[i];
    const struct choices drafted = choices_at(process, tail_key, draft, i, (double)p);
    const struct choices checked = choices_at(process, tail_key, check, i, (double)q);
    double place = 0;
    if (rule_of(process, draft)->draws) {
        const uint64_t token_key =
            rng_key(stream(seed, DRAW_TOKEN), draft->request, draft->step_in_block);
        place = ladder_draw(&drafted.kept, (double)keyed_draw(token_key, position));
    }
    const double before = ladder_probability(&drafted.of, place);
    if (process_is_settled(seed, draft->request, (uint32_t)position, p) !=
        process_is_settled(seed, draft->request, (uint32_t)position, q)) {
        place = place == 0 ? 1 : place == 1 ? 0 : place;
    }
    const uint64_t key = rng_key(stream(seed, DRAW_ACCEPT), draft->request, draft->step_in_block);
    return (double)keyed_draw(key, position) * before < ladder_probability(&checked.of, place);
}

void process_revisions(const struct decode_process *process, uint64_t seed,
                       const struct decode_view *view, uint32_t n_fixed, float edit, float *held,
                       uint8_t *revised) {
    const uint64_t bar_key = rng_key(stream(seed, DRAW_BAR), view->request, 0);
    const uint64_t edit_key = rng_key(stream(seed, DRAW_EDIT), view->request, view->step_in_block);
    const uint64_t tail_key = tail_key_of(seed, view);
    const double s = sharpness(process, view);
    struct walk walk = walk_start(process, seed, view);
    for (uint32_t i = 0; i < view->block_length; i++) {
        const uint64_t position = view->block_start + (uint64_t)i;
        revised[i] = 0;
        if (view->masked[i]) {
            walk.gap++;
            continue;
        }
        const float bar = keyed_draw(bar_key, position);
        if (i >= n_fixed && !is_behind_text(view, i) && is_wrong(process, held[i], bar)) {
            const float now =
                process->independent
                    ? inside(pow(1 - pow(1 - rng_at(edit_key, position), 1 / process->b),
                                 1 / process->a))
                    : confidence_at(&walk, s, tail_key, i);
            revised[i] = !is_wrong(process, now, bar) && now > edit;
            held[i] = revised[i] ? now : held[i];
        }
        walk.gap = 0;
    }
}

enum process_edit process_edit_at(const struct decode_process *process, uint64_t seed,
                                  const struct decode_view *view, uint32_t i) {
    const uint64_t key = rng_key(stream(seed, DRAW_MOVE), view->request, view->step_in_block);
    const double u = (double)keyed_draw(key, view->block_start + (uint64_t)i);
    return u < process->insert_share                           ? EDIT_INSERT
           : u < process->insert_share + process->delete_share ? EDIT_DELETE
                                                               : EDIT_REPLACE;
}

void process_credit(const struct decode_credit *credit, uint64_t seed,
                    const struct decode_view *view, const uint8_t *keep, float *earned,
                    float *confidence) {
    uint64_t key = rng_key(stream(seed, DRAW_BAR), view->request, 0);
    for (uint32_t i = 0; i < view->block_length; i++) {
        if (view->masked[i] && keep[i]) {
            float bar = keyed_draw(key, view->block_start + (uint64_t)i);
            float *of_token = &earned[2 * (uint64_t)i + (confidence[i] < bar)];
            earned[2 * (uint64_t)i] = credit_faded(earned[2 * (uint64_t)i], credit->beta);
            earned[2 * (uint64_t)i + 1] = credit_faded(earned[2 * (uint64_t)i + 1], credit->beta);
            *of_token = credit_earned(*of_token, confidence[i], credit->gamma);
            confidence[i] = credit_raise(credit, *of_token, confidence[i]);
        }
    }
}

void process_delta(const struct decode_process *process, uint64_t seed,
                   const struct decode_view *view, float *delta) {
    struct walk walk = walk_start(process, seed, view);
    uint64_t delta_key = rng_key(stream(seed, DRAW_DELTA), view->request, view->step_in_block);
    double noise = process->independent ? 1 : process->delta_noise, sum = 0;
    uint32_t n_masked = 0;
    for (uint32_t i = 0; i < view->block_length; i++) {
        delta[i] = 0;
        if (view->masked[i]) {
            double x = process->independent ? 0 : walk_logit(&walk, i, process->delta_distance);
            x -= is_behind_text(view, i) ? process->delta_behind : 0;
            x += noise * rng_bell(delta_key, view->block_start + (uint64_t)i);
            delta[i] = (float)x;
            sum += x;
            n_masked++;
        } else {
            walk.gap = 0;
        }
    }
    for (uint32_t i = 0; i < view->block_length; i++) {
        delta[i] -= view->masked[i] ? (float)(sum / n_masked) : 0;
    }
}
