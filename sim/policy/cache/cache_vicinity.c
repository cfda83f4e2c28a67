/* dInfer's vicinity refresh: KV of the whole canvas is renewed when a block begins; the other steps
 * run the block and some positions before and after it, so that what lies nearest is never stale
 * (arXiv 2510.08666, section 3; released code: 16 and 16 positions). In the first block some full
 * passes come before the one whose rows are kept; here each of them keeps its own. */
#include "sim/policy/cache/renewal.h"

struct state {
    uint32_t prefix_look, after_look, warmup_steps, update_every;
};

#define COUNT(name, unit, initial, doc)                                                            \
    { #name, PARAM_U32, 0, unit, initial, 0, 65536, NULL, offsetof(struct state, name), doc }

static const struct param params[] = {
    COUNT(prefix_look, "tokens", "16", "positions before the block that every step runs"),
    COUNT(after_look, "tokens", "16", "positions after the block that every step runs"),
    COUNT(warmup_steps, "steps", "4", "full passes of the first block before the one it reuses"),
    COUNT(update_every, "steps", "0",
          "steps of a block from one full pass to the next (0: full pass at its first step only)"),
};

/* What every step runs. */
static struct range window(const struct state *state, const struct request *request) {
    uint32_t start = window_first(request), behind = window_end(request);
    uint32_t left = request->canvas_tokens - behind;
    return (struct range){start - (state->prefix_look < start ? state->prefix_look : start),
                          behind + (state->after_look < left ? state->after_look : left)};
}

/* For how many steps from here on the whole canvas runs; 0: not in this one. */
static uint32_t full_passes(const struct state *state, const struct request *request) {
    uint32_t step = window_steps(request);
    uint32_t full = window_block(request) == 0 ? state->warmup_steps + 1 : 1;
    if (step < full) {
        return full - step;
    }
    return renewal_in(request, state->update_every) == 0;
}

static uint32_t plan(const void *opaque, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    uint32_t full = full_passes(state, request), canvas = request->canvas_tokens;
    const struct range near = window(state, request);
    (void)memory;
    *rows = (struct row_sets){
        .kind = ROW_KV, .keep = {{0, near.first}, {near.end, canvas}}, .held = canvas};
    rows_run(rows, full > 0 ? 0 : near.first, full > 0 ? canvas : near.end);
    if (full > 0) {
        return full;
    }
    return range_length(near) == canvas ? UINT32_MAX : renewal_in(request, state->update_every);
}

const struct cache_policy cache_vicinity = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = sizeof(struct state),
               .name = "vicinity",
               .doc = "KV renewed once per block, near the block in every step; far ones go stale",
               .params = params,
               .n_params = sizeof params / sizeof params[0]},
    .plan = plan,
};
