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
};

/* Positions that the rule takes of those in `keep`. */
static uint32_t choose(const struct choice_asked *asked, const struct rollout_rule *rule,
                       struct choice *choice, uint8_t *chosen) {
    struct decode_seen seen;
    struct decode_rule pass = rule->rule;
    pass.key = rng_key(pass.key, asked->view->request, asked->view->step_in_block);
    choice_see(choice, asked, &seen);
    if (seen.n > 0) {
        (void)decode_choose(&pass, &seen, rule->count < seen.n ? rule->count : seen.n,
                            choice->picked);
    }
    return choice_mark(choice, asked->block, asked->keep, chosen);
}

/* `at`: request, first position and steps done so far. Returns the block's passes. */
static uint32_t rollout_block(const struct decode_process *process, uint64_t seed,
                              const struct decode_view *at, const struct rollout_rule *rule,
                              struct focus_yield *yield, struct choice *choice,
                              struct rollout *sums) {
    struct row row;
    struct block_state block;
    block_begin(&block, rule->cache, rule->block_tokens, 0, row.masked, row.uncached);
    focus_yield_begin_block(yield, &rule->focus);
    struct decode_view view = *at;
    uint32_t text =
        rule->answer_tokens > at->block_start ? rule->answer_tokens - at->block_start : 0;
    bool ends = rule->answer_tokens > 0 && text < rule->block_tokens;
    view.behind_text = ends ? rule->block_tokens - text : 0;
    struct choice_asked asked = {.process = process,
                                 .seed = seed,
                                 .view = &view,
                                 .block = &block,
                                 .reads_statistics = rule->rule.rank == RANK_MARGIN ||
                                                     rule->rule.rank == RANK_ENTROPY,
                                 .credit = rule->credits ? &rule->credit : NULL,
                                 .earned = row.earned};
    memset(row.earned, 0, sizeof row.earned);
    view.masked = row.masked;
    while (!block_is_done(&block)) {
        view.step_in_block = block.passes;
        sums->processed += block_pending(&block, row.pending);
        uint32_t n_kept = block.n_uncached;
        const uint8_t *keep = row.pending;
        if (block.n_masked > 0 && (rule->evicts || rule->ranks)) {
            process_delta(process, seed, &view, row.delta);
        }
        if (rule->evicts) {
            n_kept = focus_select(&rule->focus, block.length, row.pending, row.masked, row.delta,
                                  yield->mean, block.frontier, row.keep);
            keep = row.keep;
        }
        asked.keep = keep;
        uint32_t n = choose(&asked, rule, choice, row.chosen);
        sums->kept += n_kept;
        sums->passes++;
        if (block.n_masked > 0) {
            sums->of_count[n]++;
            sums->decoded_in_top_quintile +=
                rule->ranks ? in_top_quintile(&block, row.delta, row.chosen) : 0;
            focus_yield_add(yield, &rule->focus, n);
        }
        view.step++;
        block_pass(&block, keep, row.chosen);
    }
    sums->blocks++;
    sums->decoded += block.length - view.behind_text;
    return block.passes;
}

void rollout_request(const struct decode_process *process, uint64_t seed, uint64_t request,
                     const struct rollout_rule *rule, uint32_t n, struct rollout *sums) {
    struct decode_view view = {.request = request, .block_length = rule->block_tokens};
    struct decode_process drawn = *process;
    drawn.temperature = rule->temperature;
    struct focus_yield yield;
    struct choice choice;
    ASSERT(rule->block_tokens > 0 && rule->block_tokens <= ROLLOUT_MOST_POSITIONS);
    focus_yield_init(&yield);
    choice_init(&choice, rule->block_tokens);
    for (uint32_t i = 0; i < n; i++) {
        view.step += rollout_block(&drawn, seed, &view, rule, &yield, &choice, sums);
        view.block_start += rule->block_tokens;
    }
    choice_fini(&choice);
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
