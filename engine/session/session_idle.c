#include "engine/session/session_idle.h"

#include <inttypes.h>

/* The rows that it holds, as far as its span reaches. */
static int64_t rows_end(const struct sessions *sessions, const struct request *request,
                        uint32_t slot) {
    int64_t held = (int64_t)sessions->pages.held[slot] * sessions->system->budget.unit_rows;
    int64_t end = (int64_t)request->span.context + request->span.queries;
    return held < end ? held : end;
}

int session_idle_plan(struct sessions *sessions, const struct request *request, uint32_t slot,
                      uint32_t member, struct err *err) {
    const struct span *span = &request->span;
    int32_t *positions = sessions->positions + sessions->n_used_tokens;
    int32_t *extents = sessions->extents + sessions->n_used_tokens;
    int32_t *rows = sessions->logit_rows + sessions->n_used_rows;
    int32_t *targets = sessions->targets + sessions->n_used_rows;
    int64_t end = rows_end(sessions, request, slot);
    if (end < span->queries) {
        return err_world(
            err, "request %" PRIu64 " runs %" PRIu32 " queries idle but holds %" PRId64 " rows",
            request->id, span->queries, end);
    }
    for (uint32_t i = 0; i < span->queries; i++) {
        positions[i] = (int32_t)(end - span->queries + i);
        extents[i] = (int32_t)end;
    }
    for (uint32_t r = 0; r < span->logit_rows; r++) {
        rows[r] = (int32_t)r;
        targets[r] = positions[r];
    }
    sessions->parts[member] = (struct step_part){
        .canvas = sessions->by_slot[slot].canvas,
        .positions = positions,
        .logit_rows = rows,
        .targets = targets,
        .kv_pages = {.pages = pages_of(&sessions->pages, slot),
                     .n_pages = sessions->pages.held[slot],
                     .extent = extents,
                     .reads_only = true},
    };
    sessions->n_used_tokens += span->queries;
    sessions->n_used_rows += span->logit_rows;
    sessions->n_rows[member] = span->logit_rows;
    return 0;
}
