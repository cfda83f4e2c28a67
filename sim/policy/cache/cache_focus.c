/* FOCUS (arXiv 2601.23278): of the tokens that the neighbour-aware delayed cache runs, those that
 * hardly stand to be committed go no further than the second layer's projections. How much more
 * masked tokens attend to a token in the second layer than in the first tells which (focus.h).
 *
 * Beyond the paper: other layers, and other predictors than the growth of importance; choosing the
 * left-most positions needs no output of the model. A simulation draws the same growth in all
 * layers. */
#include <math.h>

#include "kernels/rules/keyed.h"
#include "sim/decode/focus.h"
#include "sim/policy/cache/exact.h"

/* The last two in the order of their enums. */
static const char *const threshold_words[] = {"mean-std", "std", NULL};
static const char *const choice_words[] = {"surge", "top", "random", "bottom", "left", NULL};
static const char *const history_words[] = {"block", "mean", "ema", NULL};

struct state {
    struct exact_state exact;
    double alpha, ema_weight;
    uint32_t surge, history, choice, k, layer;
};

static const struct param params[] = {
    EXACT_PARAMS,
    {"alpha", PARAM_F64, 0, "1", "1.5", 0.01, 1e6, NULL, offsetof(struct state, alpha),
     "tokens kept for each that a step committed on average (1.5 in FOCUS's results) [cache.choice "
     "= surge or cache.k = 0]"},
    {"surge", PARAM_WORD, 0, "1", "mean-std", 0, 1, threshold_words, offsetof(struct state, surge),
     "deltas from which a token is kept: mean + standard deviation (code), or it alone (Eq. 5); "
     "deltas that are drawn have a mean of 0 [backend = cpu|cuda and cache.choice = surge]"},
    {"history", PARAM_WORD, 0, "1", "block", 0, 1, history_words, offsetof(struct state, history),
     "the average is of this block (code), of all blocks (Eq. 17), or moves (the paper's text) "
     "[cache.choice = surge or cache.k = 0]"},
    {"ema_weight", PARAM_F64, 0, "1", "0.5", 0.001, 1, NULL, offsetof(struct state, ema_weight),
     "weight of the newest count under history = ema (the paper prints none) [cache.history = ema "
     "and cache.choice = surge or cache.history = ema and cache.k = 0]"},
    {"choice", PARAM_WORD, 0, "1", "surge", 0, 1, choice_words, offsetof(struct state, choice),
     "what stays: FOCUS's rule, or k positions: the largest deltas, random, smallest, left-most"},
    {"k", PARAM_U32, 0, "tokens", "4", 0, 1024, NULL, offsetof(struct state, k),
     "tokens kept under another choice than surge (Table 3 has 2, 4, 8; 0: alpha per committed "
     "token) [cache.choice != surge]"},
    {"layer", PARAM_U32, 0, "1", "1", 1, 255, NULL, offsetof(struct state, layer),
     "evicts after the keys and values of this layer, by growth from the layer before (1 as "
     "released)"},
};

static struct focus_rule rule_of(const void *opaque) {
    const struct state *state = opaque;
    return (struct focus_rule){.choice = (enum focus_choice)state->choice,
                               .k = state->k,
                               .alpha = state->alpha,
                               .std_alone = state->surge == 1,
                               .history = (enum focus_history)state->history,
                               .ema_weight = state->ema_weight};
}

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    (void)memory;
    (void)exact_plan(state, request, rows);
    rows->evict_layer = state->layer;
    rows->settles = BLOCK_NEIGHBOUR;
    rows->chooser = CHOSEN_BY_POLICY;
    return 1;
}

static uint32_t evict(const void *state, const void *memory, const struct eviction_view *view,
                      uint8_t *keep) {
    struct focus_rule rule = rule_of(state);
    const struct focus_yield *yield = memory;
    rule.key = keyed_bits(keyed_mix(view->request->id), view->request->steps);
    return focus_select(&rule, view->length, view->pending, view->masked, view->delta,
                        (double)fmaxf(yield->mean, 1), view->frontier, keep);
}

static void learn(const void *state, void *memory, const struct request *request,
                  const struct learned *learned) {
    const struct focus_rule rule = rule_of(state);
    struct focus_yield *yield = memory;
    (void)request;
    if (yield->mean == 0) {
        focus_yield_init(yield);
    }
    if (learned->n == 0) {
        focus_yield_begin_block(yield, &rule);
    } else {
        focus_yield_add(yield, &rule, learned->n);
    }
}

const struct cache_policy cache_focus = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "focus",
               .doc = "DC+, and tokens unlikely to be committed go no further than layer 1 (FOCUS)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .memory_bytes = sizeof(struct focus_yield),
    .plan = plan,
    .evict = evict,
    .learn = learn,
};
