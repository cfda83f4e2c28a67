/* The prefix of a request cached as `none` has it, and a crime for requests that no exercise has.
 */
#include "tests/plugins/crime.h"

enum { LATE_REQUEST = 3000 };

static void crime(const struct request *request, struct row_sets *rows) {
    common_crime(request);
    if (is_crime("write-request")) {
        ((struct request *)(uintptr_t)request)->committed_tokens++;
    } else if (is_crime("oob-rows")) {
        rows[1].held = 1;
    } else if (is_crime("empty")) {
        rows->run.end = rows->run.first;
    } else if (is_crime("beyond")) {
        rows->run.end = UINT32_MAX;
    } else if (is_crime("held")) {
        rows->held = UINT32_MAX;
    }
}

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)state, (void)memory;
    *rows = (struct row_sets){.kind = ROW_NONE};
    rows->run.end = request->canvas_tokens;
    rows->head.first = window_first(request);
    rows->head.end = window_end(request);
    if (request->id >= LATE_REQUEST) {
        crime(request, rows);
    }
    return UINT32_MAX;
}

const struct cache_policy unmask_policy = {POLICY(POLICY_CACHE, cache_policy, "late"),
                                           .plan = plan};
