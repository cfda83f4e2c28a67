/* DSB's cache for a window that slides (lizhuo008/DSB llada/generate.py): a pass over the whole
 * canvas renews all rows; the steps after it run the window and some positions before it, whose
 * rows they renew, until as many tokens were committed as a window has. */
#include "sim/policy/cache/cache.h"

struct state {
    uint32_t prefix_window;
};

/* Of a request: tokens committed by the last full pass and since, and where the window began in the
 * last pass that committed some. */
struct memory {
    uint64_t n;
    uint32_t first;
};

static const struct param params[] = {
    {"prefix_window", PARAM_U32, 0, "tokens", "24", 0, 65536, NULL,
     offsetof(struct state, prefix_window),
     "positions before the window that every step renews, or those that it has just moved over, if "
     "they are more (DSB: 24 for LLaDA, 4 for Dream)"},
};

static uint32_t plan(const void *opaque, const void *opaque_memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    const struct memory *memory = opaque_memory;
    const uint32_t canvas = request->canvas_tokens, start = window_first(request);
    const uint32_t moved = memory->n > 0 ? start - memory->first : 0;
    const uint32_t wanted = state->prefix_window > moved ? state->prefix_window : moved;
    const uint32_t before = wanted < start ? wanted : start;
    bool renews = window_passes(request) == 0 || memory->n >= request->block_tokens;
    *rows = (struct row_sets){.kind = ROW_KV, .keep = {{0, canvas}}, .held = canvas};
    rows_run(rows, renews ? 0 : start - before, renews ? canvas : window_end(request));
    return 1;
}

static void learn(const void *state, void *opaque_memory, const struct request *request,
                  const struct learned *learned) {
    struct memory *memory = opaque_memory;
    (void)state;
    if (learned->n > 0) {
        memory->first = window_first(request);
        memory->n = learned->n + (request->span.phase == PHASE_REFRESH ? 0 : memory->n);
    }
}

const struct cache_policy cache_sliding = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "sliding",
               .doc = "all renewed once a window's worth of tokens; far rows go stale (DSB)",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .memory_bytes = sizeof(struct memory),
    .plan = plan,
    .learn = learn,
    .way = CACHE_SLIDES,
};
