/* Refreshes in every second call, whatever the request says. */
#include "tests/plugins/bad.h"

static uint32_t calls;

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    uint32_t canvas = request->canvas_tokens;
    (void)state;
    (void)memory;
    *rows = (struct row_sets){.kind = ROW_KV,
                              .run = {calls++ % 2 == 0 ? 0 : window_first(request), canvas},
                              .keep = {{0, window_first(request)}},
                              .held = canvas};
    rows->head = rows->run;
    return 1;
}

const struct cache_policy unmask_policy = {
    POLICY(POLICY_CACHE, cache_policy, "impure"),
    .plan = plan,
};
