/* BiCache (arXiv 2606.07571, EMNLP 2026; OSSS-KU/BiCache bicache_engines.py): shared prefixes under
 * bidirectional attention. What the leading layers make of a prefix hardly depends on what follows
 * it, so that they take it over as it is when it runs by itself; how many layers may depends on the
 * share of the canvas that the prefix has. The other layers run it in its canvas, going on from the
 * hidden states after the leading ones, and that again every interval_steps steps; the steps in
 * between run what follows the prefix alone.
 *
 * The released code looks the number of layers up in a table of shares, for one request at a time.
 * Here a system has one number: requests whose prefix has less than `share` of their canvas run it
 * in all layers whenever it is renewed. One without a shared prefix runs its canvas in every step.
 */
#include "sim/policy/cache/bicache.h"

/* Of a request: steps that decided something, and how often it had been preempted at the last. */
struct memory {
    uint32_t n_steps, preemptions;
};

static const struct param params[] = {
    {"depth", PARAM_F64, 0, "layers", "0.5", 0, 255, NULL, offsetof(struct bicache, depth),
     "leading layers that take shared prefixes over; below 1 a share of the model's layers (0: as "
     "measured for the model)"},
    {"share", PARAM_F64, 0, "1", "0", 0, 1, NULL, offsetof(struct bicache, share),
     "least share of a canvas that its prefix has for that (cache.depth = 0: as measured)"},
    {"interval_steps", PARAM_U32, 0, "steps", "32", 1, 1000000, NULL,
     offsetof(struct bicache, interval_steps),
     "steps of a request between renewals of the other layers (BiCache: 32, or 16 as it is run)"},
};

static bool takes_over(const struct bicache *state, const struct request *request) {
    return request->prefix_tokens > 0 &&
           request->prefix_tokens >= state->share * request->canvas_tokens;
}

static bool renews(const struct bicache *state, const struct memory *memory,
                   const struct request *request) {
    return request->prefix_tokens == 0 || memory == NULL ||
           memory->n_steps % state->interval_steps == 0 ||
           memory->preemptions != request->preemptions;
}

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct bicache *state = opaque;
    const uint32_t prefix = request->prefix_tokens, canvas = request->canvas_tokens;
    const bool takes = takes_over(state, request);
    *rows = (struct row_sets){.kind = ROW_KV,
                              .lead_layers = state->layers > 0 ? state->layers : 1,
                              .keep = {{0, prefix}},
                              .held = prefix};
    if (takes && request->cached_tokens < prefix) {
        rows->run = rows->lead = (struct range){0, prefix};
        return 1;
    }
    rows_run(rows, renews(state, memory, request) ? 0 : prefix, canvas);
    rows->lead = (struct range){takes ? prefix : rows->run.first, canvas};
    return 1;
}

static void learn(const void *state, void *opaque_memory, const struct request *request,
                  const struct learned *learned) {
    struct memory *memory = opaque_memory;
    (void)state;
    if (learned->n > 0) {
        memory->n_steps++;
        memory->preemptions = request->preemptions;
    }
}

const struct cache_policy cache_bicache = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct bicache),
               .name = "bicache",
               .doc =
                   "leading layers take shared prefixes over, others renew them; far ones go stale",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .memory_bytes = sizeof(struct memory),
    .plan = plan,
    .learn = learn,
    .way = CACHE_LEADS,
};
