/* As dual, renewed every 4 steps of a block while fewer than 8 requests run and wait, else once a
 * block; a renewal waits for up to 3 steps. */
#include "sim/policy/cache/cache.h"

static void answer(const struct request *request, int renews, struct row_sets *rows) {
    const uint32_t start = window_first(request), end = window_end(request);
    *rows = (struct row_sets){.kind = ROW_KV,
                              .keep = {{0, start}, {end, request->canvas_tokens}},
                              .held = request->canvas_tokens};
    rows_run(rows, renews ? 0 : start, renews ? request->canvas_tokens : end);
}

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    const uint32_t n = request->load.n_running + request->load.n_waiting;
    const uint32_t step = window_steps(request);
    (void)state, (void)memory;
    answer(request, step == 0 || request->overdue_steps > 0 || (n < 8 && step % 4 == 0), rows);
    return 1;
}

static uint32_t put_off(const void *state, const void *memory, const struct request *request,
                        struct row_sets *rows) {
    (void)state, (void)memory;
    answer(request, 0, rows);
    return window_steps(request) > 0 ? 3 : 0;
}

const struct cache_policy unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                      .kind = POLICY_CACHE,
                                                      .size = sizeof(struct cache_policy),
                                                      .state_bytes = 8,
                                                      .name = "loaded",
                                                      .doc = "renews less often under load"},
                                           .reads_load = 1,
                                           .plan = plan,
                                           .put_off = put_off};
