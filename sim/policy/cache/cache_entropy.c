/* EntropyCache (arXiv 2603.18489): tokens that the model was unsure of change what it attends to
 * the most, so all rows are renewed when the largest entropy among the tokens that a step decided
 * is above a bound; the k most recently decoded tokens are computed once more in any case, since
 * what they say goes on changing for some steps.
 *
 * Of the paper its abstract is followed; no code was released. Assumed are the bound, k, that
 * tokens of one step are equally recent (so that no fewer than k run), and that of the block before
 * all of it is while this one has decided fewer than k. */
#include "sim/policy/cache/renewal.h"

struct state {
    double bound_nats;
    uint32_t recent_tokens;
};

/* Of a request. */
struct memory {
    uint64_t renews;
};

static const struct param params[] = {
    {"bound_nats", PARAM_F64, 0, "nats", "1", 0, 100, NULL, offsetof(struct state, bound_nats),
     "rows are reused unless a decided token's entropy exceeds this (assumed)"},
    {"recent_tokens", PARAM_U32, 0, "tokens", "1", 1, 1024, NULL,
     offsetof(struct state, recent_tokens),
     "k: most recently decoded tokens that are computed once more (assumed; 1: the previous "
     "step's)"},
};

static uint32_t plan(const void *opaque_state, const void *opaque, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque_state;
    const struct memory *memory = opaque;
    return renewal_rows(request, request->steps == 0 || memory->renews != 0, state->recent_tokens,
                        rows);
}

static void learn(const void *opaque, void *opaque_memory, const struct request *request,
                  const struct learned *learned) {
    const struct state *state = opaque;
    struct memory *memory = opaque_memory;
    if (learned->n == 0) {
        return;
    }
    memory->renews = 0;
    for (uint32_t i = 0; i < window_length(request); i++) {
        memory->renews |= learned->outcome[i] == OUTCOME_COMMIT &&
                          (double)learned->entropy[i] > state->bound_nats;
    }
}

const struct cache_policy cache_entropy = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_CACHE,
         .size = sizeof(struct cache_policy),
         .state_bytes = sizeof(struct state),
         .name = "entropy",
         .doc = "renewed when a decided token was unsure (EntropyCache); bound and k are assumed",
         .params = params,
         .n_params = sizeof params / sizeof params[0]},
    .memory_bytes = sizeof(struct memory),
    .reads_entropy = 1,
    .plan = plan,
    .learn = learn,
};
