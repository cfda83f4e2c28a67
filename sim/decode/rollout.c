#include "sim/decode/rollout.h"

#include <string.h>

#include "sim/base/err.h"
#include "sim/base/rng.h"
#include "sim/decode/choice.h"

static uint32_t in_top_quintile(const struct block_state *block, const float *delta,
                                const uint8_t *chosen) {
    uint32_t n_top = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        uint32_t n_above = 0;
        for (uint32_t j = 0; chosen[i] && j < block->length; j++) {
            n_above += block->masked[j] && delta[j] > delta[i];
        }
        n_top += chosen[i] && 10 * n_above + 5 <= 2 * block->n_masked;
    }
    return n_top;
}

struct row {
    uint8_t masked[ROLLOUT_MOST_POSITIONS], uncached[ROLLOUT_MOST_POSITIONS];
    uint8_t pending[ROLLOUT_MOST_POSITIONS], keep[ROLLOUT_MOST_POSITIONS];
    uint8_t chosen[ROLLOUT_MOST_POSITIONS];
    float delta[ROLLOUT_MOST_POSITIONS], earned[2 * ROLLOUT_MOST_POSITIONS];
    float held[ROLLOUT_MOST_POSITIONS]; /* that tokens were chosen with, where any are replaced */
    uint8_t revised[ROLLOUT_MOST_POSITIONS];
};

/* Positions that the rule takes of those in `keep`. */
static uint32_t choose(const struct choice_asked *asked, const struct rollout_rule *rule,
                       struct choice *choice, uint8_t *chosen) {
    struct decode_seen seen;
    struct decode_rule pass = rule->rule;
    pass.key = rng_key(pass.key, asked->view->request, asked->view->step_in_block);
    if (rule->smooths) {
        pass.threshold = smoothing_threshold(&rule->smoothing, asked->view->step, pass.threshold);
    }
    choice_see(choice, asked, &seen);
    if (seen.n > 0) {
        (void)decode_choose(&pass, &seen, rule->count < seen.n ? rule->count : seen.n,
                            choice->picked);
    }
    return choice_mark(choice, asked->block->length, chosen);
}

/* What the rule replaces of a block, whose pass commits row->chosen; `post`: passes before this one
 * that began without a masked position. Returns how many. */
static uint32_t revise(const struct choice_asked *asked, const struct rollout_rule *rule,
                       const struct choice *choice, uint32_t post, struct row *row) {
    const struct block_state *block = asked->block;
    uint32_t n = 0;
    if (block->n_masked > 0 || post < rule->rule.post_passes) {
        process_revisions(asked->process, asked->seed, asked->view, block->n_fixed, rule->rule.edit,
                          row->held, row->revised);
        for (uint32_t i = 0; i < block->length; i++) {
            row->chosen[i] = row->revised[i] ? OUTCOME_REVISE : row->chosen[i];
            n += row->revised[i];
        }
    }
    for (uint32_t i = 0; i < block->length; i++) {
        const bool is_new = row->chosen[i] == OUTCOME_COMMIT;
        row->held[i] = is_new ? choice->confidence[i] : row->held[i];
    }
    return n;
}

/* What a rollout of a request keeps from block to block. */
struct roll {
    const struct decode_process *process;
    uint64_t seed;
    const struct rollout_rule *rule;
    struct focus_yield yield;
    struct choice choice;
    struct rollout *sums;
};

static void tell(const struct roll *roll, const struct decode_view *view, struct row *row,
                 uint8_t *keep) {
    uint8_t seen[ROLLOUT_MOST_POSITIONS];
    int32_t token[ROLLOUT_MOST_POSITIONS] = {0};
    float before[ROLLOUT_MOST_POSITIONS] = {0};
    const struct rollout_rule *rule = roll->rule;
    for (uint32_t i = 0; i < view->block_length; i++) {
        seen[i] = row->masked[i] && keep[i];
    }
    const struct decode_positions pass = {.start = view->block_start,
                                          .length = view->block_length,
                                          .masked = row->masked,
                                          .run = row->pending,
                                          .keep = keep,
                                          .outcome = row->chosen,
                                          .seen = seen,
                                          .token = token,
                                          .confidence = roll->choice.confidence,
                                          .margin = roll->choice.margin,
                                          .entropy = roll->choice.entropy,
                                          .has_importance = rule->evicts || rule->ranks,
                                          .before = before,
                                          .after = row->delta};
    rule->see(rule->see_state, &pass);
}

/* A denoising pass: what it keeps, and what it commits of that, into row->chosen. */
static uint8_t *denoise(struct roll *roll, struct choice_asked *asked, struct row *row,
                        uint32_t post, uint32_t *n_kept) {
    const struct rollout_rule *rule = roll->rule;
    const struct block_state *block = asked->block;
    struct rollout *sums = roll->sums;
    uint8_t *keep = row->pending;
    if (rule->evicts || rule->ranks) {
        process_delta(roll->process, roll->seed, asked->view, row->delta);
    }
    if (rule->evicts) {
        *n_kept = focus_select(&rule->focus, block->length, row->pending, row->masked, row->delta,
                               roll->yield.mean, block->frontier, row->keep);
        keep = row->keep;
    }
    asked->keep = keep;
    uint32_t n = choose(asked, rule, &roll->choice, row->chosen);
    if (block->is_revised) {
        sums->revised += revise(asked, rule, &roll->choice, post, row);
    }
    sums->of_count[n]++;
    sums->decoded_in_top_quintile +=
        rule->ranks ? in_top_quintile(block, row->delta, row->chosen) : 0;
    focus_yield_add(&roll->yield, &rule->focus, n);
    if (rule->see != NULL) {
        tell(roll, asked->view, row, keep);
    }
    return keep;
}

/* `at`: request, first position and steps done so far. Returns the block's passes. */
static uint32_t rollout_block(struct roll *roll, const struct decode_view *at) {
    const struct rollout_rule *rule = roll->rule;
    struct row row;
    struct block_state block;
    uint32_t fixed = at->block_start == 0 ? rule->fixed_tokens : 0;
    block_begin(&block, rule->cache, rule->block_tokens, fixed, row.masked, row.uncached);
    focus_yield_begin_block(&roll->yield, &rule->focus);
    struct decode_view view = *at;
    uint32_t text =
        rule->answer_tokens > at->block_start ? rule->answer_tokens - at->block_start : 0;
    bool ends = rule->answer_tokens > 0 && text < rule->block_tokens;
    view.behind_text = ends ? rule->block_tokens - text : 0;
    struct choice_asked asked = {.process = roll->process,
                                 .smoothing = rule->smooths ? &rule->smoothing : NULL,
                                 .seed = roll->seed,
                                 .view = &view,
                                 .block = &block,
                                 .reads_statistics = rule->rule.rank == RANK_MARGIN ||
                                                     rule->rule.rank == RANK_ENTROPY ||
                                                     rule->see != NULL,
                                 .credit = rule->credits ? &rule->credit : NULL,
                                 .earned = row.earned};
    block.is_revised = rule->rule.kind == DECODE_JOINT && rule->rule.edit < 1;
    uint32_t post = 0;
    memset(row.earned, 0, sizeof row.earned);
    memset(row.chosen, 0, sizeof row.chosen);
    view.masked = row.masked;
    while (!block_is_done(&block)) {
        view.step_in_block = block.passes;
        asked.smoothing_step = block.passes > 0 ? view.step : 0;
        roll->sums->processed += block_pending(&block, row.pending);
        uint32_t n_kept = block.n_uncached;
        const uint8_t *keep = row.pending;
        if (block.n_masked > 0 || block.is_revised) {
            keep = denoise(roll, &asked, &row, post, &n_kept);
            post += block.n_masked == 0;
        } else {
            memset(row.chosen, 0, block.length);
        }
        roll->sums->kept += n_kept;
        roll->sums->passes++;
        view.step++;
        block_pass(&block, keep, row.chosen);
    }
    roll->sums->blocks++;
    roll->sums->decoded += block.length - fixed - view.behind_text;
    return block.passes;
}

void rollout_request(const struct decode_process *process, uint64_t seed, uint64_t request,
                     const struct rollout_rule *rule, uint32_t n, struct rollout *sums) {
    struct decode_view view = {.request = request, .block_length = rule->block_tokens};
    struct decode_process drawn = *process;
    drawn.temperature = rule->temperature;
    struct roll roll = {.process = &drawn, .seed = seed, .rule = rule, .sums = sums};
    ASSERT(rule->block_tokens > 0 && rule->block_tokens <= ROLLOUT_MOST_POSITIONS);
    ASSERT(rule->fixed_tokens < rule->block_tokens);
    focus_yield_init(&roll.yield);
    choice_init(&roll.choice, rule->block_tokens);
    for (uint32_t i = 0; i < n; i++) {
        view.step += rollout_block(&roll, &view);
        view.block_start += rule->block_tokens;
    }
    choice_fini(&roll.choice);
}

double rollout_tokens_per_step(const struct rollout *sums) {
    uint64_t n = 0;
    for (uint32_t i = 0; i <= ROLLOUT_MOST_POSITIONS; i++) {
        n += sums->of_count[i];
    }
    return (double)sums->decoded / (double)n;
}

double rollout_redundancy(const struct rollout *sums) {
    return (double)sums->kept / (double)sums->decoded;
}

double rollout_top_quintile(const struct rollout *sums) {
    return (double)sums->decoded_in_top_quintile / (double)sums->decoded;
}
