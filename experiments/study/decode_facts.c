#include "experiments/study/decode_facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/registry.h"

static const double facts_levels[FACTS_LEVELS] = {0.3, 0.5, 0.7, 0.8, 0.9, 0.99, 0.999, 0.9999};

static void ratio_add(struct facts_ratio *ratio, double x, double y) {
    ratio->x += x;
    ratio->y += y;
    ratio->xx += x * x;
    ratio->xy += x * y;
    ratio->yy += y * y;
}

double facts_quotient(const struct facts_ratio *ratio, double *error) {
    double q = ratio->x / ratio->y;
    double squares = ratio->xx - 2 * q * ratio->xy + q * q * ratio->yy;
    *error = sqrt(fmax(squares, 0)) / ratio->y;
    return q;
}

/* ---- a pass ---- */

void facts_begin(struct decode_facts *facts, uint32_t end) {
    facts->tokens = facts->passes = facts->kept = 0;
    facts->end = end;
    facts->start = UINT32_MAX;
}

void facts_end(struct decode_facts *facts) {
    facts->n_requests++;
    ratio_add(&facts->yield, facts->tokens, facts->passes);
    ratio_add(&facts->cost, facts->kept, facts->tokens);
}

static int gap_class(uint32_t gap) {
    static const uint32_t most[FACTS_GAPS - 1] = {0, 1, 3, 7, 15};
    int i = 0;
    while (i < FACTS_GAPS - 1 && gap > most[i]) {
        i++;
    }
    return i;
}

/* Single precision has nothing between 1 - 6e-8 and 1. */
static void add_first(struct decode_facts *facts, double p, uint32_t gap) {
    struct facts_first *first = &facts->first[gap_class(gap)];
    double x = log(p / fmax(1 - p, 3e-8));
    bool is_lost = p < 0.9;
    first->n++;
    first->gap += gap;
    first->n_lost += is_lost;
    first->x += is_lost ? 0 : x;
    first->xx += is_lost ? 0 : x * x;
    facts->lost_x += is_lost ? x : 0;
    facts->lost_xx += is_lost ? x * x : 0;
}

static void add_seen(struct decode_facts *facts, const struct decode_positions *pass, uint32_t i,
                     uint32_t gap, const int32_t *final) {
    double p = (double)pass->confidence[i], margin = (double)pass->margin[i];
    double share = (p - margin) / (1 - p);
    int at = facts->pass > 0, class = gap_class(gap);
    facts->seen[at][class]++;
    if (at == 0) {
        add_first(facts, p, gap);
    }
    for (int l = 0; l < FACTS_LEVELS; l++) {
        facts->above[at][class][l] += p >= facts_levels[l];
    }
    facts->n_seen++;
    facts->confidence += p;
    facts->margin += margin;
    facts->entropy += fabs((double)pass->entropy[i]);
    facts->settled += final == NULL ? p : pass->token[i] == final[i];
    if (p >= 0.5 && p < 0.999 && share > 1e-6 && share < 1 - 1e-6) {
        double logit = log(share / (1 - share));
        facts->tail += logit;
        facts->tail_squares += logit * logit;
        facts->n_tails++;
    }
}

static void add_rank(struct decode_facts *facts, const struct decode_positions *pass, uint32_t i) {
    uint32_t n = 0, n_above = 0;
    float delta = pass->after[i] - pass->before[i];
    for (uint32_t j = 0; j < pass->length; j++) {
        bool is_ranked = pass->masked[j] && pass->run[j];
        n += is_ranked;
        n_above += is_ranked && pass->after[j] - pass->before[j] > delta;
    }
    double percentile = 1 - (n_above + 0.5) / n;
    int quintile = (int)(FACTS_QUINTILES * percentile);
    facts->quintile[quintile < FACTS_QUINTILES ? quintile : FACTS_QUINTILES - 1]++;
    facts->n_ranked++;
}

static void add_commit(struct decode_facts *facts, const struct decode_positions *pass, uint32_t i,
                       uint32_t gap) {
    facts->tokens++;
    facts->n_commits++;
    facts->distance += gap;
    facts->n_beside += gap == 0;
    if (pass->has_importance) {
        add_rank(facts, pass, i);
    }
}

/* Each pair of neighbours once, when the later of them is committed. */
static void add_lags(struct decode_facts *facts, const struct decode_positions *pass) {
    for (uint32_t i = 0; i < pass->length; i++) {
        facts->when[i] = pass->outcome[i] ? facts->pass : facts->when[i];
    }
    for (uint32_t i = 0; i + 1 < pass->length && pass->start + i + 1 < facts->end; i++) {
        int64_t left = facts->when[i], right = facts->when[i + 1];
        bool is_last = pass->outcome[i] || pass->outcome[i + 1];
        if (is_last && left >= 0 && right >= 0) {
            facts->lag += left < right ? (double)(right - left) : 0;
            facts->n_lags++;
        }
    }
}

void facts_see(struct decode_facts *facts, const struct decode_positions *pass,
               const int32_t *final) {
    if (pass->start != facts->start) {
        facts->start = pass->start;
        facts->pass = 0;
        memset(facts->when, -1, sizeof facts->when);
    }
    uint32_t gap = 0;
    for (uint32_t i = 0; i < pass->length && pass->start + i < facts->end; i++) {
        if (pass->seen[i]) {
            add_seen(facts, pass, i, gap, final);
        }
        if (pass->outcome[i]) {
            add_commit(facts, pass, i, gap);
        }
        gap = pass->masked[i] ? gap + 1 : 0;
    }
    add_lags(facts, pass);
    facts->passes++;
    facts->pass++;
}

/* ---- of a trace ---- */

struct reading {
    const struct decode_trace *trace;
    struct decode_positions pass;
    int32_t *final; /* by position of the canvas */
    uint32_t room;
};

static uint32_t text_end(const struct decode_request *request) {
    uint64_t n = request->answer_tokens > 0 ? request->answer_tokens : request->tokens;
    return request->prompt_tokens + (uint32_t)n;
}

static bool is_of_half(enum facts_half half, size_t place) {
    return half == FACTS_ALL || (place % 2 == 1) == (half == FACTS_ODD);
}

static int has_no_positions(const struct decode_trace *trace, struct err *err) {
    return err_world(
        err,
        "%s has no model outputs of positions: write it by --decode-out of a run on cpu or cuda",
        decode_trace_source(trace).name);
}

/* The tokens that it committed in the end. */
static int read_final(struct reading *reading, size_t place, struct err *err) {
    const struct decode_request request = decode_trace_request(reading->trace, place);
    struct decode_positions *pass = &reading->pass;
    for (uint32_t row = 0; row < request.rows; row++) {
        if (!decode_trace_positions(reading->trace, place, row, pass)) {
            return has_no_positions(reading->trace, err);
        }
        if (pass->start + pass->length > reading->room) {
            reading->room = 2 * (pass->start + pass->length);
            reading->final = mem_resized(reading->final, reading->room, sizeof *reading->final);
        }
        for (uint32_t i = 0; i < pass->length; i++) {
            if (pass->outcome[i]) {
                reading->final[pass->start + i] = pass->token[i];
            }
        }
    }
    return 0;
}

static bool is_any(const uint8_t *flags, uint32_t n) {
    return memchr(flags, 1, n) != NULL;
}

static int read_request(struct reading *reading, size_t place, struct decode_facts *facts,
                        struct err *err) {
    const struct decode_request request = decode_trace_request(reading->trace, place);
    struct decode_positions *pass = &reading->pass;
    int status = read_final(reading, place, err);
    facts_begin(facts, text_end(&request));
    for (uint32_t row = 0; status == 0 && row < request.rows; row++) {
        (void)decode_trace_positions(reading->trace, place, row, pass);
        if (pass->start >= facts->end) {
            break;
        }
        for (uint32_t i = 0; i < pass->length; i++) {
            facts->kept += pass->keep[i];
        }
        if (is_any(pass->masked, pass->length)) {
            facts_see(facts, pass, reading->final + pass->start);
        }
    }
    facts_end(facts);
    return status;
}

int facts_of_trace(const struct decode_trace *trace, enum facts_half half,
                   struct decode_facts *facts, struct err *err) {
    struct reading reading = {.trace = trace};
    *facts = (struct decode_facts){0};
    decode_positions_init(&reading.pass, decode_trace_block_tokens(trace));
    int status = 0;
    for (size_t i = 0; status == 0 && i < decode_trace_requests(trace); i++) {
        status = is_of_half(half, i) ? read_request(&reading, i, facts, err) : 0;
    }
    decode_positions_fini(&reading.pass);
    free(reading.final);
    if (status == 0 && facts->n_requests == 0) {
        status = err_world(err, "%s has too few requests to fit on one half and judge by the other",
                           decode_trace_source(trace).name);
    }
    return status;
}

/* ---- of a process ---- */

static void see_pass(void *state, const struct decode_positions *pass) {
    facts_see(state, pass, NULL);
}

void facts_of_process(const struct decode_process *process, uint64_t seed,
                      const struct rollout_rule *rule, const struct decode_trace *trace,
                      enum facts_half half, uint32_t copies, struct decode_facts *facts) {
    struct rollout_rule own = *rule;
    struct decode_positions first;
    *facts = (struct decode_facts){0};
    own.see = see_pass;
    own.see_state = facts;
    decode_positions_init(&first, decode_trace_block_tokens(trace));
    for (size_t place = 0; place < decode_trace_requests(trace); place++) {
        const struct decode_request request = decode_trace_request(trace, place);
        if (!is_of_half(half, place) || request.rows == 0 ||
            !decode_trace_positions(trace, place, 0, &first)) {
            continue;
        }
        uint32_t prompt = request.prompt_tokens, end = text_end(&request) - first.start;
        own.fixed_tokens = prompt > first.start ? prompt - first.start : 0;
        own.answer_tokens = end;
        for (uint32_t copy = 0; copy < copies; copy++) {
            struct rollout sums = {0};
            facts_begin(facts, end);
            rollout_request(process, seed, place * copies + copy, &own,
                            (end + own.block_tokens - 1) / own.block_tokens, &sums);
            facts->kept = (double)sums.kept;
            facts_end(facts);
        }
    }
    decode_positions_fini(&first);
}

/* ---- the rule ---- */

static int cannot_follow(const struct decode_trace *trace, const char *what, struct err *err) {
    return err_world(err, "%s: no rollout follows %s '%.40s'", decode_trace_source(trace).name,
                     what, decode_trace_about(trace, what));
}

/* A process is of the most likely tokens and their probabilities at a temperature of 1. */
static int refuse_drawing(const struct decode_trace *trace, struct err *err) {
    const char *drawing = decode_trace_about(trace, "drawing");
    return drawing[0] == '\0'
               ? 0
               : err_world(err,
                           "%s: %.80s: a process is fitted to, and judged by, the most likely "
                           "tokens at temperature 1",
                           decode_trace_source(trace).name, drawing);
}

static double about_number(const struct decode_trace *trace, const char *key, double initial) {
    double value;
    return num_f64(decode_trace_about(trace, key), &value) ? value : initial;
}

static int set_params(const struct decode_trace *trace, const struct policy *policy, void *state,
                      struct err *err) {
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < policy->n_params; i++) {
        const char *name = policy->params[i].name;
        char key[64];
        snprintf(key, sizeof key, "decoder.%s", name);
        const char *value = decode_trace_about(trace, key);
        if (value[0] != '\0') {
            status = param_set(policy->params, policy->n_params, state, policy->name,
                               decode_trace_source(trace).name, name, value, err);
        }
    }
    return status;
}

/* Of passes that replace tokens, or check drafts, a trace does not say what the model thought. */
static bool revises(const struct decoder *decoder, const void *state) {
    return decoder->way == DECODER_SPECULATES ||
           decoder_rule_always(decoder, state).kind == DECODE_JOINT;
}

static int decoder_of(const struct decode_trace *trace, struct rollout_rule *rule,
                      struct err *err) {
    const struct policy *policy =
        policy_find(POLICY_DECODER, decode_trace_about(trace, "decoder"), err);
    if (policy == NULL) {
        return ERR_WORLD;
    }
    const struct decoder *decoder = (const struct decoder *)policy;
    void *state = policy_state(policy);
    int status = set_params(trace, policy, state, err);
    const bool is_followed = decoder->choose == NULL && !revises(decoder, state);
    if (status == 0 && !is_followed) {
        status = cannot_follow(trace, "decoder", err);
    }
    double steps = about_number(trace, "steps_per_block", rule->block_tokens);
    if (status == 0 && !(steps >= 1)) {
        status = cannot_follow(trace, "steps_per_block", err);
    }
    if (status == 0) {
        rule->rule = decoder_rule_always(decoder, state);
        rule->count = (uint32_t)fmax(1, rint(rule->block_tokens / steps));
        rule->credits = decoder->credit != NULL;
    }
    if (status == 0 && rule->credits) {
        decoder->credit(state, &rule->credit);
    }
    policy_state_free(policy, state);
    return status;
}

/* Caches whose blocks are played otherwise than whole. */
enum { CACHE_FOCUS, CACHE_NEIGHBOUR, CACHE_DELAYED };
static const char *const caches[] = {"focus", "neighbour", "delayed", NULL};

static const char *const surges[] = {"mean-std", "std", NULL};

/* By enum focus_history. */
static const char *const histories[] = {"block", "mean", "ema", NULL};

int facts_rule(const struct decode_trace *trace, struct rollout_rule *rule, struct err *err) {
    const char *cache = decode_trace_about(trace, "cache");
    int past = name_find(histories, decode_trace_about(trace, "cache.history"));
    *rule = (struct rollout_rule){.block_tokens = decode_trace_block_tokens(trace)};
    if (rule->block_tokens > ROLLOUT_MOST_POSITIONS) {
        return cannot_follow(trace, "block_tokens", err);
    }
    int kind = name_find(caches, cache);
    rule->evicts = kind == CACHE_FOCUS;
    rule->cache = kind == CACHE_FOCUS || kind == CACHE_NEIGHBOUR ? BLOCK_NEIGHBOUR
                  : kind == CACHE_DELAYED                        ? BLOCK_DELAYED
                                                                 : BLOCK_WHOLE;
    rule->focus = (struct focus_rule){
        .alpha = about_number(trace, "cache.alpha", 1.5),
        .std_alone = name_find(surges, decode_trace_about(trace, "cache.surge")) == 1,
        .history = past >= 0 ? (enum focus_history)past : FOCUS_MEAN_OF_BLOCK,
        .ema_weight = about_number(trace, "cache.ema_weight", 0.5)};
    rule->smooths = strcmp(decode_trace_about(trace, "iteration"), "smooth") == 0;
    rule->smoothing = (struct smoothing){
        .weight_init = about_number(trace, "iteration.weight_init", 0.15),
        .weight_growth = about_number(trace, "iteration.weight_growth", 0.02),
        .weight_most = about_number(trace, "iteration.weight_most", 0.3),
        .threshold_decay = about_number(trace, "iteration.threshold_decay", 0.02),
        .gain = about_number(trace, "iteration.gain", 1)};
    int status = refuse_drawing(trace, err);
    return status != 0 ? status : decoder_of(trace, rule, err);
}
