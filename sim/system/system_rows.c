#include "sim/base/num.h"
#include "sim/policy/cache/bicache.h"
#include "sim/system/system_parts.h"

/* Tokens of the prompt and of the output: any window around a block lies inside of them. */
enum { FAR = 1 << 22, BLOCK = 32 };

/* What is said neither of depth nor of share is as measured for the model; a share of its layers is
 * one of them at least, and leaves one. */
static void take_depth(struct system *s) {
    struct bicache *numbers = s->cache_state;
    const double layers = s->settings.layers > 0 ? s->settings.layers : s->model->layers;
    double depth = numbers->depth;
    if (depth == 0) {
        depth = s->model->prefix_layers;
        numbers->share = numbers->share > 0 ? numbers->share : s->model->prefix_share;
    } else if (depth < 1) {
        depth = depth * layers < 1 ? 1 : depth * layers;
        depth = depth > layers - 1 ? layers - 1 : depth;
    }
    numbers->layers = (uint32_t)depth;
}

void system_ask_rows(struct system *s) {
    if (s->cache->way == CACHE_LEADS) {
        take_depth(s);
    }
    const struct request request = {.prompt_tokens = FAR,
                                    .output_tokens = FAR,
                                    .canvas_tokens = 2 * FAR,
                                    .prefix_tokens = FAR / 2,
                                    .block_tokens = BLOCK,
                                    .causal = system_causality(s->model),
                                    .steps_per_block = BLOCK,
                                    .window = window_of(0, FAR, BLOCK, BLOCK)};
    (void)cache_rows(s->cache, s->cache_state, NULL, &request, &s->rows);
}

uint32_t system_page_rows(const struct system *s) {
    const enum causality causal = system_causality(s->model);
    const bool in_blocks = s->rows.kind == ROW_EXACT && causal != SEES_TOKENS;
    const uint32_t page = s->settings.page_tokens;
    return s->settings.prefix_caching && in_blocks
               ? (uint32_t)common_divisor(page, s->settings.block_tokens)
               : page;
}

bool system_keeps_canvas(const struct system *s) {
    return s->rows.kind != ROW_EXACT && rows_kept(&s->rows) == 2 * FAR;
}

enum symbol system_stored_rows(const struct system *s) {
    if (s->rows.kind != ROW_KV || rows_kept(&s->rows) == 0 || rows_are_chosen(&s->rows)) {
        return SYM_ONE;
    }
    return system_keeps_canvas(s) ? SYM_TOKENS : SYM_FULL_Q;
}

/* How many positions have a place. */
static int64_t count_places(struct settings *settings) {
    uint32_t block = settings->block_tokens, blocks = settings->max_batched_tokens / block;
    if (settings->max_requests == 0) {
        blocks = blocks < SETTINGS_MOST_REQUESTS ? blocks : SETTINGS_MOST_REQUESTS;
        settings->max_requests = blocks > 0 ? blocks : 1;
    }
    return (int64_t)block * settings->max_requests;
}

void system_keep_places(struct system *s, struct graph_options *options) {
    if (s->decoder->credit != NULL) {
        uint32_t block = s->settings.block_tokens;
        s->credit_slots = block < CREDIT_MOST_TOKENS ? block : CREDIT_MOST_TOKENS;
        options->credit_slots = s->credit_slots;
        s->decoder_bytes = graph_credit_bytes(options) * count_places(&s->settings);
    }
    if (s->settings.iteration == ITERATION_SMOOTH) {
        options->smooths = true;
        s->expected_bytes = number_bytes((enum number_type)system_storage(s).wide) *
                            s->model->hidden * count_places(&s->settings);
    }
    if (s->settings.max_requests > 0) {
        s->place_bytes = (s->decoder_bytes + s->expected_bytes) / s->settings.max_requests;
    }
}

/* Of shared prefixes for requests to come: what leading layers have of them, and what goes on after
 * those. */
static int64_t prefix_bytes(const struct system *s, int64_t tokens) {
    const int64_t layers = s->rows.lead_layers;
    const int64_t kv = model_kv_bytes_per_token(s->model, (enum number_type)s->graph.storage.cache);
    const int64_t after_bytes = s->row_bytes - kv;
    return layers > 0 ? tokens * (kv / s->model->layers * layers + after_bytes) : 0;
}

int64_t system_prefix_bytes(const struct system *s) {
    return s->settings.prefix_caching ? prefix_bytes(s, s->settings.prefix_store_tokens) : 0;
}

int64_t system_reserve_bytes(const struct system *s) {
    int64_t moe_bytes = s->model->experts > 0 ? s->settings.moe_reserve_bytes : 0;
    return s->settings.reserve_bytes + moe_bytes + s->decoder_bytes + s->expected_bytes +
           s->left_out_bytes + system_prefix_bytes(s);
}
