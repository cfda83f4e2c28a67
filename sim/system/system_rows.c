#include "sim/system/system_rows.h"

/* Tokens of the prompt and of the output: any window around a block lies inside of them. */
enum { FAR = 1 << 22, BLOCK = 32 };

void system_ask_rows(struct system *s) {
    const struct request request = {.prompt_tokens = FAR,
                                    .output_tokens = FAR,
                                    .canvas_tokens = 2 * FAR,
                                    .block_tokens = BLOCK,
                                    .causal = system_causality(s->model),
                                    .steps_per_block = BLOCK,
                                    .block_start = FAR,
                                    .block_length = BLOCK,
                                    .masked_in_block = BLOCK,
                                    .uncached_in_block = BLOCK,
                                    .kept_in_block = BLOCK,
                                    .reach_in_block = BLOCK};
    (void)cache_rows(s->cache, s->cache_state, NULL, &request, &s->rows);
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

static int refuse_mask(const struct system *s, struct err *err) {
    const char *mask = attention_mask_names[s->model->mask], *cache = s->cache->policy.name;
    bool is_exact = s->rows.kind == ROW_EXACT, sees_canvas = s->model->mask == MASK_BIDIRECTIONAL;
    if (is_exact && sees_canvas) {
        return err_usage(err,
                         "%s is bidirectional and cache %s for block-causal and autoregressive "
                         "models (`unmask list caches` prints others)",
                         s->model->title, cache);
    }
    if (!is_exact && !sees_canvas) {
        return err_usage(
            err, "%s is %s and cache %s for bidirectional models: set cache = exact, or name %s",
            s->model->title, mask, cache,
            s->model->mask == MASK_CAUSAL ? "the system vllm-ar" : "a system such as sdar");
    }
    return 0;
}

int system_refuse_rows(const struct system *s, struct err *err) {
    const struct settings *settings = &s->settings;
    const char *cache = s->cache->policy.name;
    bool is_exact = s->rows.kind == ROW_EXACT;
    if (refuse_mask(s, err) != 0) {
        return (int)err->kind;
    }
    if (is_exact && settings->kv_layout != KV_PAGES) {
        return err_usage(err, "cache %s grows page by page: set kv = pages", cache);
    }
    if (is_exact && s->runtime.gathers_cache) {
        return err_usage(err, "cache %s is read in place: set runtime.gathers_cache = off", cache);
    }
    if (s->rows.chooser == CHOSEN_BY_POLICY && s->model->layers < 2) {
        return err_usage(err, "cache %s evicts in the second layer, and %s has %u", cache,
                         s->model->title, s->model->layers);
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
    if (s->rows.kind == ROW_FEATURES && settings->kv_layout == KV_PAGES) {
        return err_usage(err,
                         "cache %s runs layer 0 over whole canvases, which max_batched_tokens does "
                         "not bound: set kv = slab",
                         cache);
    }
    return 0;
}
