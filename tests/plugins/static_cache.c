/* Counts the steps that it is asked about in a static variable, and renews the whole canvas in
 * every third. The same question, asked again, is the same question. */
#include "sim/policy/cache/cache.h"

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    static uint64_t last, n_questions;
    const uint64_t question = request->id << 32 | (request->steps + 1);
    const uint32_t canvas = request->canvas_tokens;
    const struct range block = {window_first(request), window_end(request)};
    (void)state, (void)memory;
    n_questions += last != question;
    last = question;
    const int renews = window_steps(request) == 0 || n_questions % 3 == 0;
    *rows = (struct row_sets){
        .kind = ROW_KV, .keep = {{0, block.first}, {block.end, canvas}}, .held = canvas};
    rows_run(rows, renews ? 0 : block.first, renews ? canvas : block.end);
    return 1;
}

const struct cache_policy unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .name = "counting",
               .doc = "renews the canvas in every third step, which it counts"},
    .plan = plan};
