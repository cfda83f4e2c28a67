/* What model, runtime, policies and settings cannot give each other is refused, not mispriced. */
#include <math.h>
#include <stdio.h>

#include "sim/base/num.h"
#include "sim/policy/cache/bicache.h"
#include "sim/policy/decoder/moving.h"
#include "sim/policy/decoder/speculation.h"
#include "sim/system/system_parts.h"
#include "sim/system/system_reads.h"

/* What the graph, the cost model and the token budget do not cover is refused, not mispriced. */
static int check_settings(const struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    if (s->runtime.shift_copy &&
        (s->runtime.fused_head || settings->allocator != ALLOCATOR_PLANNED)) {
        return err_usage(
            err, s->runtime.fused_head
                     ? "runtime.shift_copy copies logits, which runtime.fused_head never stores"
                     : "runtime.shift_copy is of planned steps: the allocators' eager code "
                       "copies in any case");
    }
    if (s->model->mask == MASK_CAUSAL && settings->block_tokens != 1) {
        return err_usage(err, "%s is autoregressive: block_tokens is 1, not %u", s->model->title,
                         settings->block_tokens);
    }
    if (settings->context_tokens > s->model->max_positions && !settings->beyond_positions) {
        return err_usage(
            err,
            "context_tokens = %u exceeds the %u positions of %s (beyond_positions = on "
            "allows it)",
            settings->context_tokens, s->model->max_positions, s->model->title);
    }
    if (s->runtime.query_chunks && (!s->runtime.fused || s->runtime.gathers_cache ||
                                    settings->allocator != ALLOCATOR_PLANNED)) {
        return err_usage(err,
                         "runtime.query_chunks is for planned steps of a fused runtime: set "
                         "runtime.fused = on, runtime.gathers_cache = off and allocator = planned");
    }
    if (settings->layers > s->model->layers) {
        return err_usage(err, "layers = %u, but %s has %u", settings->layers, s->model->title,
                         s->model->layers);
    }
    return 0;
}

static int check_mask(const struct system *s, struct err *err) {
    const char *mask = attention_mask_names[s->model->mask], *cache = s->cache->policy.name;
    bool is_exact = s->rows.kind == ROW_EXACT, sees_canvas = s->model->mask == MASK_BIDIRECTIONAL;
    if (is_exact && sees_canvas) {
        return err_usage(err,
                         "%s is bidirectional, and cache %s is for block-causal and autoregressive "
                         "models (`unmask list caches` prints others)",
                         s->model->title, cache);
    }
    if (!is_exact && !sees_canvas) {
        return err_usage(
            err,
            "%s is %s, and cache %s is for bidirectional models: set cache = exact, or name %s",
            s->model->title, mask, cache,
            s->model->mask == MASK_CAUSAL ? "the system vllm-ar" : "a system such as sdar");
    }
    if (is_exact && s->model->shifted_logits && s->rows.settles == BLOCK_DELAYED) {
        return err_usage(err,
                         "cache %s leaves a decoded token out while the one after it is masked, "
                         "which is decided by its logits in %s: set cache = neighbour",
                         cache, s->model->title);
    }
    return 0;
}

/* Layers of two kinds, in steps of exact rows alone. */
static int check_local_layers(const struct system *s, struct err *err) {
    const struct model *m = s->model;
    if (m->local_window == 0) {
        return 0;
    }
    if (s->rows.kind != ROW_EXACT || rows_leave_out(&s->rows)) {
        return err_usage(err,
                         "%s has layers with a window of %u positions, and cache %s chooses rows "
                         "for all layers: set cache = exact",
                         m->title, m->local_window, s->cache->policy.name);
    }
    if (s->settings.block_tokens >= m->local_window) {
        return err_usage(err, "block_tokens = %u, but the window of %s is %u positions",
                         s->settings.block_tokens, m->title, m->local_window);
    }
    return s->settings.layers % m->global_every == 0
               ? 0
               : err_usage(err,
                           "layers = %u, but every %u-th layer of %s sees everything: set a "
                           "multiple of that",
                           s->settings.layers, m->global_every, m->title);
}

/* What is not decided is a mask, or a random token. */
static int check_noise(const struct system *s, struct err *err) {
    const struct decoder *decoder = s->decoder;
    const struct settings *settings = &s->settings;
    const char *name = decoder->policy.name;
    const bool renoises = decoder->way == DECODER_RENOISES;
    if (!s->model->uniform_noise) {
        return !renoises
                   ? 0
                   : err_usage(err,
                               "decoder %s is of models of uniform noise, and %s fills masks: set "
                               "decoder = threshold, or model = diffusiongemma",
                               name, s->model->title);
    }
    if (decoder->take_back == NULL) {
        return err_usage(err,
                         "%s decides on its whole canvas anew in every step, and decoder %s "
                         "commits positions for good: set decoder = renoise",
                         s->model->title, name);
    }
    const char *without = settings->iteration != ITERATION_PLAIN     ? "iteration = plain"
                          : settings->sampling                       ? "sampling = off"
                          : settings->logit_scope == LOGITS_MASKED   ? "logit_scope = queries"
                          : settings->sample_scope != SAMPLES_LOGITS ? "sample_scope = logits"
                          : settings->blocks_in_flight > 1           ? "blocks_in_flight = 1"
                          : settings->window_slides                  ? "window_slides = off"
                          : settings->allocator != ALLOCATOR_PLANNED ? "allocator = planned"
                                                                     : NULL;
    return without == NULL ? 0
                           : err_usage(err,
                                       "%s draws tokens of its whole canvas in every step: "
                                       "set %s",
                                       s->model->title, without);
}

/* Leading layers that take shared prefixes over. */
static int check_leading(const struct system *s, struct err *err) {
    const struct bicache *numbers = s->cache_state;
    const struct settings *settings = &s->settings;
    const uint32_t layers = settings->layers > 0 ? settings->layers : s->model->layers;
    if (numbers->layers == 0) {
        return err_usage(err,
                         "how many layers of %s may take a shared prefix over is not known: set "
                         "cache.depth (of %u layers), which is then assumed, or measure it "
                         "(experiments/train/prefix_depth.py)",
                         s->model->title, layers);
    }
    if (numbers->layers >= layers) {
        return err_usage(err,
                         "cache.depth = %u leaves none of the %u layers of %s to renew prefixes",
                         numbers->layers, layers, s->model->title);
    }
    const bool shares = settings->prefix_caching; /* without, all canvases run whole */
    const bool cuts = s->scheduler->grows != 0 || (s->scheduler->needs & NEEDS_FIRST_LARGEST) != 0;
    const char *without = s->model->mask != MASK_BIDIRECTIONAL          ? "cache = exact"
                          : shares && cuts                              ? "scheduler = continuous"
                          : settings->iteration != ITERATION_PLAIN      ? "iteration = plain"
                          : settings->unroll_maximum > 1                ? "unroll.maximum = 1"
                          : settings->chunk_search != CHUNK_SEARCH_NONE ? "chunk_search = none"
                                                                        : NULL;
    return without == NULL
               ? 0
               : err_usage(err,
                           "cache %s shares prefixes of bidirectional models, each run by itself "
                           "in one piece: set %s",
                           s->cache->policy.name, without);
}

/* The keys and values of a prompt in a bidirectional model depend on the canvas after it. */
static int check_prefixes(const struct system *s, struct err *err) {
    if (s->cache->way == CACHE_LEADS) {
        return check_leading(s, err);
    }
    if (!s->settings.prefix_caching || s->rows.kind == ROW_EXACT) {
        return 0;
    }
    return err_usage(
        err,
        "prefix_caching is of exact keys and values, which block-causal and "
        "autoregressive models have, and %s is bidirectional: set prefix_caching = off, or cache "
        "= bicache",
        s->model->title);
}

/* Pages that requests share are no one's to move. */
static int check_swap(const struct system *s, struct err *err) {
    const bool swaps = system_preempts_by_swap(s);
    if (s->settings.swap_host_bytes == 0) {
        return !swaps ? 0
                      : err_usage(err,
                                  "scheduler.preempts = swap moves requests to the host's memory, "
                                  "and there is none: set swap.host_bytes (such as 64GiB), or "
                                  "scheduler.preempts = recompute");
    }
    if (s->settings.prefix_caching) {
        return err_usage(err, "swap.host_bytes is for requests whose pages are their own, and "
                              "prefix_caching shares them: set prefix_caching = off");
    }
    return s->gpu->host_bandwidth > 0
               ? 0
               : err_usage(err,
                           "swap.host_bytes needs the bandwidth between %s and its host's memory: "
                           "add host_bandwidth to the GPU's file, or set swap.host_bytes = 0",
                           s->gpu->title);
}

static int check_rows(const struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    const char *cache = s->cache->policy.name;
    bool is_exact = s->rows.kind == ROW_EXACT;
    if (is_exact && settings->kv_layout != KV_PAGES) {
        return err_usage(err, "cache %s grows page by page: set kv = pages", cache);
    }
    if (is_exact && s->runtime.gathers_cache) {
        return err_usage(err, "cache %s is read in place: set runtime.gathers_cache = off", cache);
    }
    uint32_t layers = settings->layers > 0 ? settings->layers : s->model->layers;
    if (s->rows.evict_layer >= layers) {
        return err_usage(err, "cache %s evicts in layer %u, counted from 0, and %s has %u", cache,
                         s->rows.evict_layer, s->model->title, layers);
    }
    if (s->runtime.query_chunks && s->rows.kind != ROW_NONE) {
        return err_usage(err, "runtime.query_chunks is for steps without cached rows: set cache = "
                              "none");
    }
    bool by_scope = settings->logit_scope == LOGITS_MASKED;
    if (settings->unroll_maximum > 1 && (by_scope || rows_leave_out(&s->rows))) {
        return err_usage(err,
                         "unroll.maximum = %u starts steps before what those before them commit is "
                         "known, and %s = %s runs what is left: set unroll.maximum = 1",
                         settings->unroll_maximum, by_scope ? "logit_scope" : "cache",
                         by_scope ? "masked" : cache);
    }
    if (settings->unroll_maximum > 1 && s->decoder->take_back != NULL) {
        return err_usage(err,
                         "unroll.maximum = %u starts steps before what those before them take back "
                         "is known, and decoder %s does: set unroll.maximum = 1",
                         settings->unroll_maximum, s->decoder->policy.name);
    }
    if (settings->unroll_maximum > 1 && s->decoder->choose != NULL) {
        return err_usage(err,
                         "unroll.maximum = %u starts steps together, and decoder %s chooses on the "
                         "host after each: set unroll.maximum = 1",
                         settings->unroll_maximum, s->decoder->policy.name);
    }
    if (s->rows.kind == ROW_FEATURES && settings->kv_layout == KV_PAGES) {
        return err_usage(err,
                         "cache %s runs layer 0 over whole canvases, which max_batched_tokens does "
                         "not bound: set kv = slab",
                         cache);
    }
    if (s->rows.kind == ROW_FEATURES && layers == 1) {
        return err_usage(err,
                         "cache %s keeps what layers after the first gave, and one layer runs: set "
                         "cache = none",
                         cache);
    }
    return 0;
}

/* Parameters of schedulers and decoders of which the first is not to be above the second, or not
 * even that. */
static const struct {
    const char *lower, *upper;
    bool is_below;
} ordered[] = {{"low", "high", false},
               {"least", "most", false},
               {"to", "from", true},
               {"low_threshold", "threshold", false},
               {"t_min", "t_max", false}};

/* The value of a policy's parameter; none: NaN. */
static double policy_number(const struct param *param, const void *state) {
    char text[64];
    double number = NAN;
    if (param != NULL) {
        (void)num_f64(param_text(param, state, text, sizeof text), &number);
    }
    return number;
}

static int check_ordered(const struct policy *policy, const char *part, const void *state,
                         struct err *err) {
    for (size_t i = 0; i < sizeof ordered / sizeof ordered[0]; i++) {
        const struct param *lower = param_find(policy->params, policy->n_params, ordered[i].lower);
        const struct param *upper = param_find(policy->params, policy->n_params, ordered[i].upper);
        if (lower == NULL || upper == NULL || lower->type != upper->type ||
            (lower->type != PARAM_F64 && lower->type != PARAM_U32)) {
            continue;
        }
        const double a = policy_number(lower, state), b = policy_number(upper, state);
        if (a > b || (ordered[i].is_below && a >= b)) {
            return err_usage(err, "%s %s wants %s.%s %s %s.%s, and has %g and %g", part,
                             policy->name, part, lower->name,
                             ordered[i].is_below ? "below" : "at most as high as", part,
                             upper->name, a, b);
        }
    }
    return 0;
}

static int check_bounds(const struct system *s, struct err *err) {
    return check_ordered(&s->scheduler->policy, "scheduler", s->scheduler_state, err) != 0 ||
                   check_ordered(&s->decoder->policy, "decoder", s->decoder_state, err) != 0
               ? err_status(err)
               : 0;
}

static int check_needs(const struct system *s, struct err *err) {
    const struct decode_rule rule = decoder_rule_always(s->decoder, s->decoder_state);
    const bool has_threshold = rule.kind == DECODE_THRESHOLD || rule.kind == DECODE_HIERARCHICAL;
    const uint32_t needs = s->scheduler->needs;
    if ((needs & NEEDS_THRESHOLD) != 0 && !has_threshold) {
        return err_usage(err,
                         "scheduler %s sets the decoder's threshold, and decoder %s has none that "
                         "can be set: set decoder = threshold",
                         s->scheduler->policy.name, s->decoder->policy.name);
    }
    if ((needs & NEEDS_CANVAS) != 0 && s->model->mask != MASK_BIDIRECTIONAL) {
        return err_usage(err,
                         "scheduler %s sets how wide windows are, and %s is %s: set scheduler = "
                         "width-by-rate, or name a bidirectional model",
                         s->scheduler->policy.name, s->model->title,
                         attention_mask_names[s->model->mask]);
    }
    const char *one = s->settings.window_slides          ? "window_slides = off"
                      : s->settings.blocks_in_flight > 1 ? "blocks_in_flight = 1"
                                                         : NULL;
    if ((needs & NEEDS_CANVAS) != 0 && one != NULL) {
        return err_usage(err, "scheduler %s sets how wide the one block in flight is: set %s",
                         s->scheduler->policy.name, one);
    }
    return 0;
}

/* A scheduler that says which masked positions run is for windows of which any may wait, and whose
 * decoder looks at masked positions alone. */
static int check_said_rows(const struct system *s, struct err *err) {
    const char *scheduler = s->scheduler->policy.name, *cache = s->cache->policy.name;
    if (s->scheduler->says_rows == 0) {
        return 0;
    }
    if (s->model->mask != MASK_BLOCK_CAUSAL) {
        return err_usage(err,
                         "scheduler %s says which positions of a block run, and %s is %s: name "
                         "another scheduler, or a block-causal model",
                         scheduler, s->model->title, attention_mask_names[s->model->mask]);
    }
    if (s->rows.chooser != CHOSEN_BY_NOBODY || s->rows.settles == BLOCK_PARTS) {
        return err_usage(err,
                         "scheduler %s says which positions of a block run, and cache %s chooses "
                         "them itself: set cache = exact, delayed or neighbour",
                         scheduler, cache);
    }
    if (decoder_rule_always(s->decoder, s->decoder_state).kind == DECODE_JOINT) {
        return err_usage(err,
                         "scheduler %s leaves positions of a block out, and decoder %s revises "
                         "tokens of its whole block: set decoder = threshold, or name another "
                         "scheduler",
                         scheduler, s->decoder->policy.name);
    }
    const char *without = s->settings.unroll_maximum > 1             ? "unroll.maximum = 1"
                          : s->settings.iteration != ITERATION_PLAIN ? "iteration = plain"
                          : s->settings.blocks_in_flight > 1         ? "blocks_in_flight = 1"
                                                                     : NULL;
    return without == NULL
               ? 0
               : err_usage(err,
                           "scheduler %s says before each step which positions run, by what the "
                           "one before it said: set %s",
                           scheduler, without);
}

static int check_credit(const struct system *s, struct err *err) {
    bool has_logits = !s->runtime.fused_head && s->settings.allocator == ALLOCATOR_PLANNED;
    return s->decoder->credit == NULL || has_logits
               ? 0
               : err_usage(err,
                           "decoder %s adds credit to logits that exist, in planned steps: set "
                           "runtime.fused_head = off and allocator = planned",
                           s->decoder->policy.name);
}

/* A decoder that revises reads the logits of every token of a block, until it is done with it. */
static int check_revising(const struct system *s, struct err *err) {
    const struct decode_rule rule = decoder_rule_always(s->decoder, s->decoder_state);
    const char *decoder = s->decoder->policy.name;
    if (rule.kind != DECODE_JOINT) {
        return 0;
    }
    if (rule.edit < 1 && rule.edit > rule.threshold) {
        return err_usage(err,
                         "decoder %s replaces tokens above %g and fills masks above %g: set the "
                         "edit threshold to the other one at most",
                         decoder, (double)rule.edit, (double)rule.threshold);
    }
    if (rule.penalty > 0 && (s->runtime.fused_head || s->settings.allocator != ALLOCATOR_PLANNED)) {
        return err_usage(err, "decoder.penalty changes logits that exist, in planned steps: set "
                              "runtime.fused_head = off and allocator = planned");
    }
    if (s->model->mask != MASK_BLOCK_CAUSAL || s->model->shifted_logits) {
        return err_usage(err,
                         "decoder %s is for block-causal models whose logits are of their own "
                         "positions, and %s is %s",
                         decoder, s->model->title,
                         s->model->shifted_logits ? "of shifted logits"
                                                  : attention_mask_names[s->model->mask]);
    }
    if (s->rows.kind != ROW_EXACT || rows_leave_out(&s->rows)) {
        return err_usage(err,
                         "decoder %s revises tokens of its whole block, of which cache %s leaves "
                         "some out: set cache = exact",
                         decoder, s->cache->policy.name);
    }
    const struct settings *settings = &s->settings;
    const char *without = settings->logit_scope == LOGITS_MASKED   ? "logit_scope = queries"
                          : settings->unroll_maximum > 1           ? "unroll.maximum = 1"
                          : settings->iteration != ITERATION_PLAIN ? "iteration = plain"
                          : settings->sampling                     ? "sampling = off"
                                                                   : NULL;
    return without == NULL ? 0
                           : err_usage(err,
                                       "decoder %s takes the most likely token of every position "
                                       "of its block after each step: set %s",
                                       decoder, without);
}

/* The tokens by which a canvas moves are two of the model's, neither of them its mask. */
static int check_moving(const struct system *s, struct err *err) {
    static const char *const keys[] = {"decoder.delete_token", "decoder.insert_token"};
    const char *decoder = s->decoder->policy.name;
    if (s->decoder->way != DECODER_MOVES) {
        return 0;
    }
    const struct joint_indel *numbers = s->decoder_state;
    const uint32_t ids[] = {numbers->delete_token, numbers->insert_token};
    if (ids[0] > 0 && ids[0] == ids[1]) {
        return err_usage(err,
                         "decoder %s would drop and insert positions by the same token: set %s or "
                         "%s to another than %u",
                         decoder, keys[0], keys[1], ids[0]);
    }
    for (size_t i = 0; i < 2; i++) {
        if (ids[i] > 0 && (ids[i] >= s->model->vocab || ids[i] == s->model->mask_token)) {
            return err_usage(err,
                             "%s = %u is %s of %s: set the id of a token that the model writes, "
                             "below %u",
                             keys[i], ids[i],
                             ids[i] == s->model->mask_token ? "the mask" : "no token",
                             s->model->title, s->model->vocab);
        }
    }
    return 0;
}

/* Chances that drafts are accepted by are of whole distributions, as the model has them. */
static bool checks_cut_draws(const struct system *s) {
    const struct settings *settings = &s->settings;
    const struct speculation *numbers = s->decoder_state;
    const bool is_whole =
        settings->temperature == 1 && settings->top_k == 0 && settings->top_p >= 1;
    return settings->sampling && (numbers->accept != ACCEPT_RATIO || !is_whole);
}

/* A decoder that checks drafts runs a block of its own tokens and masks at once. */
static int check_speculation(const struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    const char *decoder = s->decoder->policy.name;
    if (s->decoder->way != DECODER_SPECULATES) {
        return 0;
    }
    if (s->model->mask != MASK_BLOCK_CAUSAL || s->model->shifted_logits) {
        return err_usage(err,
                         "decoder %s checks with blocks of one token what blocks of many drafted, "
                         "with logits of their own positions, and %s is %s",
                         decoder, s->model->title,
                         s->model->shifted_logits ? "of shifted logits"
                                                  : attention_mask_names[s->model->mask]);
    }
    const uint32_t rows = settings->block_tokens + settings->block_tokens;
    if (rows > settings->max_batched_tokens) {
        return err_usage(err,
                         "decoder %s runs twice the rows of a block, and 2 x block_tokens = %u are "
                         "more than max_batched_tokens = %u",
                         decoder, rows, settings->max_batched_tokens);
    }
    const char *without = s->rows.kind != ROW_EXACT || rows_leave_out(&s->rows) ? "cache = exact"
                          : settings->blocks_in_flight > 1         ? "blocks_in_flight = 1"
                          : settings->unroll_maximum > 1           ? "unroll.maximum = 1"
                          : settings->iteration != ITERATION_PLAIN ? "iteration = plain"
                          : s->scheduler->says_rows != 0           ? "scheduler = fcfs"
                          : checks_cut_draws(s)
                              ? "sampling = off, or decoder.accept = ratio with temperature = 1, "
                                "top_k = 0 and top_p = 1"
                              : NULL;
    return without == NULL ? 0
                           : err_usage(err, "decoder %s drafts and checks a whole block: set %s",
                                       decoder, without);
}

/* Whether the cache leaves the rows of a finished block to the next one's pass. */
static bool stores_with_next(const struct system *s) {
    enum { BLOCK = 32 };
    struct request request = {.prompt_tokens = BLOCK,
                              .output_tokens = 4 * BLOCK,
                              .canvas_tokens = 5 * BLOCK,
                              .block_tokens = BLOCK,
                              .causal = SEES_BLOCKS,
                              .steps_per_block = BLOCK};
    struct row_sets rows;
    window_enter(&request, 1);
    request.cached_tokens = BLOCK;
    (void)cache_rows(s->cache, s->cache_state, NULL, &request, &rows);
    return rows.run.first == BLOCK && rows.run.end == 3 * BLOCK;
}

/* Who decides on several blocks: not by numbers that are counted for one, nor by what is kept of
 * the positions of one. */
static int check_several_decoder(const struct system *s, const char *where, struct err *err) {
    const struct decoder *decoder = s->decoder;
    const bool revises = decoder_rule_always(decoder, s->decoder_state).kind == DECODE_JOINT;
    const char *fault = decoder->count != NULL       ? "counts positions of one block"
                        : decoder->credit != NULL    ? "gives credit to positions of one block"
                        : decoder->take_back != NULL ? "takes positions of one block back"
                        : revises                    ? "replaces tokens of one block"
                                                     : NULL;
    if (fault != NULL) {
        return err_usage(err,
                         "decoder %s %s, and %s: set decoder = several-blocks (`unmask list "
                         "decoders` prints others)",
                         decoder->policy.name, fault, where);
    }
    const double complete = policy_number(
        param_find(decoder->policy.params, decoder->policy.n_params, "complete"), s->decoder_state);
    return complete < s->settings.block_add_threshold
               ? err_usage(err,
                           "a block is added when %g of the one before is decided and commits in "
                           "every step from %g on: set decoder.complete to block_add_threshold at "
                           "least",
                           s->settings.block_add_threshold, complete)
               : 0;
}

static int check_several_cache(const struct system *s, struct err *err) {
    const char *cache = s->cache->policy.name;
    const uint32_t blocks = s->settings.blocks_in_flight;
    const bool slides = s->settings.window_slides && s->cache->way == CACHE_SLIDES;
    /* A position is decided by the row before it, which a step runs where it runs all; the first
     * row of a window stands in for the one before it, as in Dream's own code. Of the last position
     * that an exact cache stored D2F keeps the logits. */
    if (s->model->shifted_logits && s->model->mask == MASK_BIDIRECTIONAL &&
        s->rows.kind != ROW_NONE && !slides) {
        return err_usage(err,
                         "blocks_in_flight = %u is for models whose logits are of their own "
                         "positions, and those of %s are shifted: set cache = none",
                         blocks, s->model->title);
    }
    if (s->settings.static_blocks && s->model->mask != MASK_BLOCK_CAUSAL) {
        return err_usage(err,
                         "static_blocks = on runs blocks that those before them do not see, and %s "
                         "is %s: set static_blocks = off",
                         s->model->title, attention_mask_names[s->model->mask]);
    }
    if (slides || s->rows.kind == ROW_NONE || (s->rows.kind == ROW_EXACT && stores_with_next(s))) {
        return 0;
    }
    return s->rows.kind == ROW_EXACT && !rows_leave_out(&s->rows)
               ? err_usage(err,
                           "blocks_in_flight = %u stores a block while the next ones are decoded, "
                           "and cache %s in a pass of its own: set cache.cross_block = on",
                           blocks, cache)
               : err_usage(err,
                           "cache %s serves one block at a time, and blocks_in_flight is %u: set "
                           "cache = %s",
                           cache, blocks,
                           s->model->mask == MASK_BIDIRECTIONAL
                               ? "none"
                               : "exact and cache.cross_block = on");
}

/* A window that slides. */
static int check_sliding(const struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    const char *cache = s->cache->policy.name;
    if (!settings->window_slides) {
        return 0;
    }
    if (s->model->mask != MASK_BIDIRECTIONAL) {
        return err_usage(err, "window_slides = on is for bidirectional models, and %s is %s",
                         s->model->title, attention_mask_names[s->model->mask]);
    }
    if (s->rows.kind != ROW_NONE && s->cache->way != CACHE_SLIDES) {
        return err_usage(err,
                         "cache %s renews by blocks, and a window that slides has none: set cache "
                         "= sliding or none",
                         cache);
    }
    const char *without = settings->static_blocks                  ? "static_blocks = off"
                          : settings->unroll_maximum > 1           ? "unroll.maximum = 1"
                          : settings->iteration != ITERATION_PLAIN ? "iteration = plain"
                                                                   : NULL;
    return without == NULL ? check_several_decoder(s, "the window slides", err)
                           : err_usage(err,
                                       "window_slides = on moves the window by what each step "
                                       "commits, and by nothing else: set %s",
                                       without);
}

/* Several blocks of a request at once. */
static int check_several(const struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    const uint32_t blocks = settings->blocks_in_flight, tokens = settings_window_tokens(settings);
    if (blocks == 1) {
        return 0;
    }
    if (s->model->mask == MASK_CAUSAL) {
        return err_usage(err, "%s is autoregressive: blocks_in_flight is 1, not %u",
                         s->model->title, blocks);
    }
    const char *of = tokens > settings->context_tokens       ? "context_tokens"
                     : tokens > settings->max_batched_tokens ? "max_batched_tokens"
                                                             : NULL;
    if (of != NULL) {
        return err_usage(err,
                         "blocks_in_flight = %u blocks of %u tokens are more than %s = %u holds",
                         blocks, settings->block_tokens, of,
                         tokens > settings->context_tokens ? settings->context_tokens
                                                           : settings->max_batched_tokens);
    }
    if (settings->unroll_maximum > 1 || settings->iteration != ITERATION_PLAIN) {
        return err_usage(err,
                         "blocks_in_flight = %u needs what each step commits before the next is "
                         "planned, and nothing else of it: set %s",
                         blocks,
                         settings->unroll_maximum > 1 ? "unroll.maximum = 1" : "iteration = plain");
    }
    char where[64];
    snprintf(where, sizeof where, "blocks_in_flight is %u", blocks);
    return check_several_cache(s, err) != 0 ? err_status(err)
                                            : check_several_decoder(s, where, err);
}

static int check_drawing(const struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    bool cuts = settings->top_k > 0 || settings->top_p < 1;
    if (!settings->sampling && settings->probabilities == PROBABILITIES_MODEL &&
        settings->temperature != 1) {
        return err_usage(err,
                         "without sampling probabilities = model means a temperature of 1, "
                         "not %g: set sampling = on or temperature = 1",
                         settings->temperature);
    }
    if (cuts && !settings->sampling && settings->probabilities != PROBABILITIES_KEPT) {
        return err_usage(err, "top_k and top_p change nothing of the most likely token: set "
                              "sampling = on, or probabilities = kept");
    }
    if (!settings->sampling && !cuts) {
        return 0;
    }
    if (s->runtime.fused_head || settings->allocator != ALLOCATOR_PLANNED) {
        return err_usage(err, "tokens are drawn from logits that exist, in planned steps: set "
                              "runtime.fused_head = off and allocator = planned");
    }
    if (settings->sampling && settings->unroll_maximum > 1) {
        return err_usage(err,
                         "unroll.maximum = %u starts steps together, and each draws tokens of its "
                         "own: set unroll.maximum = 1",
                         settings->unroll_maximum);
    }
    return s->decoder->credit == NULL
               ? 0
               : err_usage(err, "a decoder that gives credit reads the most likely tokens and "
                                "their probabilities: it does not go with sampling, top_k and "
                                "top_p");
}

static int check_smoothing(const struct system *s, struct err *err) {
    bool is_causal = s->model->mask == MASK_CAUSAL;
    bool is_planned = s->settings.allocator == ALLOCATOR_PLANNED;
    if (s->settings.iteration != ITERATION_SMOOTH ||
        (!s->runtime.fused_head && is_planned && !is_causal)) {
        return 0;
    }
    return err_usage(err, "iteration = smooth reads what planned steps say of masked positions: %s",
                     is_causal               ? "an autoregressive model has none"
                     : s->runtime.fused_head ? "set runtime.fused_head = off"
                                             : "set allocator = planned");
}

/* Which rows of the logits are looked at. */
static int check_sample_scope(const struct system *s, struct err *err) {
    const char *wants_all = s->runtime.fused_head        ? "runtime.fused_head"
                            : s->decoder->credit != NULL ? "a decoder that gives credit"
                            : s->settings.iteration == ITERATION_SMOOTH ? "iteration = smooth"
                                                                        : NULL;
    return s->settings.sample_scope != SAMPLES_OUTPUT || wants_all == NULL
               ? 0
               : err_usage(err, "%s reads all rows of the logits: set sample_scope = logits",
                           wants_all);
}

/* Types that no kernel puts together, and what a card or an allocator has no model of. */
static int check_storage(const struct system *s, struct err *err) {
    const struct storage types = system_storage(s);
    const uint8_t all[] = {types.weights, types.activations, types.cache, types.head};
    const uint8_t products[] = {types.weights, types.activations, types.head};
    const bool multiplies = number_is_fp8((enum number_type)types.activations);
    const bool has_fp8_weights = number_is_fp8((enum number_type)types.weights) ||
                                 number_is_fp8((enum number_type)types.head);
    for (size_t i = 0; i < sizeof all; i++) {
        if (!number_is_fp8((enum number_type)all[i]) && all[i] != types.wide) {
            return err_usage(err,
                             "%s and %s do not go together: what is not in fp8 is in the type of "
                             "storage.weights, or with fp8 weights of storage.wide",
                             number_words[all[i]], number_words[types.wide]);
        }
    }
    if (multiplies && !has_fp8_weights) {
        return err_usage(err, "storage.activations = fp8 is for weights of fp8: set "
                              "storage.weights = fp8");
    }
    bool has[NUMBER_TYPES] = {false};
    for (size_t i = 0; i < sizeof products; i++) {
        has[products[i]] = true;
    }
    if (has[NUMBER_FP8] && has[NUMBER_FP8_CHANNEL]) {
        return err_usage(err, "fp8 and fp8-channel do not go together: set the same for "
                              "storage.weights, storage.activations and storage.head");
    }
    if (multiplies && s->gpu->peak_fp8_flops <= 0) {
        return err_usage(err,
                         "%s has no products of fp8 (no peak_fp8_flops in its file): set "
                         "storage.activations = %s, and fp8 weights are multiplied in %s",
                         s->gpu->title, number_words[types.wide], number_words[types.wide]);
    }
    if (number_is_fp8((enum number_type)types.head) && s->model->tied) {
        return err_usage(err,
                         "the output head of %s is its embedding, which is not quantised: set "
                         "storage.head = auto",
                         s->model->title);
    }
    return s->settings.allocator == ALLOCATOR_PLANNED ||
                   (!has_fp8_weights && types.cache != NUMBER_FP8)
               ? 0
               : err_usage(err, "allocator = %s is modelled without fp8: set allocator = planned",
                           step_allocator_words[s->settings.allocator]);
}

int system_refuse(const struct system *s, struct err *err) {
    static int (*const checks[])(const struct system *s, struct err *err) = {
        check_settings, check_mask,    check_prefixes,    check_swap,         check_rows,
        check_bounds,   check_needs,   check_said_rows,   check_credit,       check_revising,
        check_moving,   check_drawing, check_smoothing,   check_sample_scope, check_storage,
        check_several,  check_sliding, check_speculation, check_local_layers, check_noise};
    int status = 0;
    for (size_t i = 0; status == 0 && i < sizeof checks / sizeof checks[0]; i++) {
        status = checks[i](s, err);
    }
    return status;
}
