/* Renewal paced by what is decoded: rows go stale as tokens take the place of masks, so all of them
 * are renewed after every renew_tokens decoded tokens, over however many steps and blocks
 * (`entropy` depends on which tokens). */
#include "sim/policy/cache/renewal.h"

struct state {
    uint32_t renew_tokens;
};

/* Of a request. */
struct memory {
    uint64_t decoded; /* since the step before the last renewal */
};

static const struct param params[] = {
    {"renew_tokens", PARAM_U32, 0, "tokens", "16", 1, 1000000, NULL,
     offsetof(struct state, renew_tokens), "tokens decoded between full passes (assumed)"},
};

static uint32_t plan(const void *opaque, const void *opaque_memory, const struct request *request,
                     struct row_sets *rows) {
    const struct state *state = opaque;
    const struct memory *memory = opaque_memory;
    return renewal_rows(request, request->steps == 0 || memory->decoded >= state->renew_tokens, 0,
                        rows);
}

/* By as many steps as it has tokens between two; the first of all writes the rows. */
static uint32_t put_off(const void *opaque, const void *memory, const struct request *request,
                        struct row_sets *rows) {
    const struct state *state = opaque;
    (void)memory;
    (void)renewal_rows(request, false, 0, rows);
    return request->steps > 0 ? state->renew_tokens : 0;
}

/* A renewal that decides tokens leaves their rows as they were before. */
static void learn(const void *state, void *opaque, const struct request *request,
                  const struct learned *learned) {
    struct memory *memory = opaque;
    bool renewed = learned->n > 0 && request->span.phase == PHASE_REFRESH;
    (void)state;
    memory->decoded = (renewed ? 0 : memory->decoded) + learned->n;
}

const struct cache_policy cache_paced = {
    .policy =
        {.abi = POLICY_ABI,
         .kind = POLICY_CACHE,
         .size = sizeof(struct cache_policy),
         .state_bytes = sizeof(struct state),
         .name = "paced",
         .doc = "as dkv-decode, but renewed after a number of decoded tokens, whichever they are",
         .params = params,
         .n_params = sizeof params / sizeof params[0]},
    .memory_bytes = sizeof(struct memory),
    .plan = plan,
    .put_off = put_off,
    .learn = learn,
};
