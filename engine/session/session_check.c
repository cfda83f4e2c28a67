/* Which systems the engine runs. */
#include <inttypes.h>

#include "engine/session/session.h"

/* Whether an exact policy runs a whole block in each of its passes, one position known already. */
static bool runs_whole_blocks(const struct system *system) {
    uint32_t block = system->settings.block_tokens;
    struct request request = {.prompt_tokens = block,
                              .output_tokens = 2 * block,
                              .canvas_tokens = 3 * block,
                              .block_tokens = block,
                              .steps_per_block = block,
                              .causal = SEES_BLOCKS,
                              .block_start = block,
                              .block_length = block,
                              .step_in_block = 1,
                              .masked_in_block = block > 1 ? block - 1 : 1,
                              .known_in_front = block > 1,
                              .uncached_in_block = block,
                              .passes_in_block = 1,
                              .kept_in_block = block,
                              .reach_in_block = block,
                              .cached_tokens = block};
    struct span span;
    (void)system->cache->plan(system->cache_state, &request, &span);
    return span.queries == block && span.context == block;
}

static bool is_run(const struct system *system) {
    const struct cache_policy *cache = system->cache;
    if (cache->keeps != KEEPS_EXACT) {
        return cache->keeps != KEEPS_OTHERWISE;
    }
    if (cache->leaves_out == BLOCK_PARTS) {
        return true;
    }
    bool is_listed = cache->leaves_out != BLOCK_WHOLE || cache->evicts;
    return is_listed ? !system->model->shifted_logits && (!cache->evicts || cache->evict != NULL)
                     : runs_whole_blocks(system);
}

/* Rules that look at every position's place among the others do so for so many, at most. */
static int check_rule(const struct system *system, struct err *err) {
    uint32_t kind = decoder_rule_always(system->decoder, system->decoder_state).kind;
    bool is_ranked = kind != DECODE_COUNT && kind != DECODE_THRESHOLD;
    return !is_ranked || system->settings.block_tokens <= DECODE_MAX_RANKED
               ? 0
               : err_usage(err,
                           "the engine decides by %s in blocks of at most %d tokens, not %" PRIu32,
                           system->decoder->policy.name, DECODE_MAX_RANKED,
                           system->settings.block_tokens);
}

int sessions_check_batch(const struct sessions *sessions, const struct planned_step *planned,
                         struct err *err) {
    uint32_t n = planned_spans(planned), most = sessions->limits.max_requests;
    return n <= most ? 0
                     : err_usage(err,
                                 "a batch of %" PRIu32 " requests, but the engine was opened for "
                                 "%" PRIu32,
                                 n, most);
}

/* A masked position is decided by the logits of the one before it, which need not run. */
static bool decides_by_neighbours(const struct system *system) {
    const struct cache_policy *cache = system->cache;
    return cache->keeps == KEEPS_CANVAS && cache->leaves_out != BLOCK_WHOLE &&
           system->model->shifted_logits;
}

int sessions_check(const struct system *system, struct err *err) {
    if (decides_by_neighbours(system)) {
        return err_usage(err,
                         "the engine does not run cache policy %s with %s: its logits decide on "
                         "the next position, and the one before a masked position may be left out",
                         system->cache->policy.name, system->model->name);
    }
    if (!is_run(system)) {
        return err_usage(err, "the engine does not run cache policy %s",
                         system->cache->policy.name);
    }
    const struct decoder *decoder = system->decoder;
    if (system->settings.iteration == ITERATION_SMOOTH && system->cache->evicts) {
        return err_usage(err,
                         "iteration = smooth keeps what a step says of every masked position, and "
                         "cache %s evicts some in its middle: the engine does not run both",
                         system->cache->policy.name);
    }
    if (system->settings.unroll_maximum > 1 && decoder->choose != NULL) {
        return err_usage(err,
                         "decoder %s chooses on the host after each step, which unroll.maximum = "
                         "%" PRIu32 " does not let it: set unroll.maximum = 1",
                         decoder->policy.name, system->settings.unroll_maximum);
    }
    if (system->row_bytes % (STORE_ALIGN_ELEMENTS * system->runtime.element_bytes) != 0) {
        return err_usage(err,
                         "the engine keeps rows of a multiple of %d values, those of %s have "
                         "%" PRId64,
                         STORE_ALIGN_ELEMENTS, system->model->name,
                         system->row_bytes / system->runtime.element_bytes);
    }
    return check_rule(system, err);
}
