#include <math.h>

#include "sim/policy/decoder/speculation.h"

static const char *const when_words[] = {"static", "dynamic", "span", "bandit", NULL};
static const char *const accept_words[] = {"ratio", "same", NULL};

static const struct param params[] = {
    {"threshold", PARAM_F64, 0, "1", "0.85", 0, 1, NULL, offsetof(struct speculation, threshold),
     "confidence above which a draft is committed where a pass is not checked"},
    {"when", PARAM_WORD, 0, "1", "static", 0, 0, when_words, offsetof(struct speculation, when),
     "passes that are checked: where more drafts of the first run are expected to stand than "
     "decoder.least + decoder.cost (static), than decoder.least + decoder.cost times the drafts "
     "above the threshold (dynamic), where that run has decoder.span masks (span), or where checks "
     "have won more in cases like it (bandit)"},
    {"cost", PARAM_F64, 0, "1", "1", 0, 1e6, NULL, offsetof(struct speculation, cost),
     "drafts that a check has to win (SDAR with blocks of 4: 1; 0: always) [decoder.when = "
     "static|dynamic]"},
    {"least", PARAM_F64, 0, "1", "0", 0, 1e6, NULL, offsetof(struct speculation, least),
     "drafts that a check has to win in addition to decoder.cost [decoder.when = static|dynamic]"},
    {"hysteresis", PARAM_F64, 0, "1", "0", 0, 1e6, NULL, offsetof(struct speculation, hysteresis),
     "drafts that a check has to win less than that where the request's last drafts were checked; "
     "more than that else, not as many (Fast-dLLM v2: decoder.least 1, this 6; 0: always as many) "
     "[decoder.when = static|dynamic]"},
    {"span", PARAM_U32, 0, "tokens", "8", 1, 4096, NULL, offsetof(struct speculation, span),
     "masks of the first run that are checked [decoder.when = span]"},
    {"bins", PARAM_U32, 0, "1", "2", 1, BANDIT_MOST_BINS, NULL, offsetof(struct speculation, bins),
     "bins of each of the three things that a case is told by: the first run's length, the block's "
     "share that is filled, the drafts' mean entropy (S2D2's code: 2) [decoder.when = bandit]"},
    {"explore", PARAM_F64, 0, "1", "1", 0, 1e6, NULL, offsetof(struct speculation, explore),
     "positions a pass by which the bandit favours what it tried rarely, times the root of log of "
     "its passes over tries (S2D2's code: 1) [decoder.when = bandit]"},
    {"accept", PARAM_WORD, 0, "1", "ratio", 0, 0, accept_words,
     offsetof(struct speculation, accept),
     "drafts that are accepted: by chance, a token's probability in the check over that in its "
     "draft (the released code), or where the check's most likely token is the same"},
    {"seed", PARAM_U32, 0, "1", "1", 0, UINT32_MAX, NULL, offsetof(struct speculation, seed),
     "seed of the draws [decoder.accept = ratio]"},
};

uint32_t speculation_run(const struct decode_seen *seen) {
    uint32_t n = 1;
    while (n < seen->n && seen->offset[n] == seen->offset[n - 1] + 1) {
        n++;
    }
    return n;
}

/* The bandit's case of a pass. */
static uint32_t case_of(const struct speculation *state, const struct request *request,
                        const struct decode_seen *seen, uint32_t vocab) {
    const uint32_t run = speculation_run(seen), first = window_first(request);
    const uint32_t given = request->prompt_tokens > first ? request->prompt_tokens - first : 0;
    double entropy = 0;
    for (uint32_t i = 0; i < run; i++) {
        entropy -= (double)seen->entropy[i];
    }
    return bandit_case(state->bins, run, window_length(request), window_decided(request) - given,
                       entropy / run / log((double)vocab));
}

bool speculation_checks(const struct speculation *state, const struct request *request,
                        const struct decode_seen *seen, uint32_t vocab, struct bandit *bandit) {
    if (state->when == SPECULATE_BANDIT) {
        return bandit_checks(bandit, case_of(state, request, seen, vocab), state->explore);
    }
    const uint32_t run = speculation_run(seen);
    double expected = 0, stands = 1, n_sure = 0;
    for (uint32_t i = 0; i < run; i++) {
        stands *= exp((double)seen->entropy[i] / log((double)vocab));
        expected += stands;
    }
    for (uint32_t i = 0; i < seen->n; i++) {
        n_sure += (double)seen->confidence[i] > state->threshold;
    }
    const double cost = state->cost * (state->when == SPECULATE_DYNAMIC ? n_sure : 1);
    const double wins = expected - cost;
    if (state->when == SPECULATE_SPAN) {
        return run >= state->span;
    }
    if (state->hysteresis > 0 && request->checks == 0) {
        return wins > state->least;
    }
    return wins >= state->least - state->hysteresis;
}

static void rule(const void *opaque, const struct request *request, struct decode_rule *out) {
    const struct speculation *state = opaque;
    (void)request;
    *out = (struct decode_rule){
        .kind = DECODE_THRESHOLD, .rank = RANK_CONFIDENCE, .threshold = (float)state->threshold};
}

const struct decoder decoder_self_speculation = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = sizeof(struct speculation),
               .name = "self-speculation",
               .doc = "a model checks its own drafts token by token, in passes of twice the rows "
                      "(S2D2)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .rule = rule,
    .reads_statistics = 1,
    .way = DECODER_SPECULATES,
};
