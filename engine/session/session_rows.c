#include "engine/session/session_rows.h"

#include "engine/session/session_places.h"

#include <inttypes.h>

#include "sim/cache/blocks.h"

static uint32_t block_end(const struct request *request) {
    return request->block_start + request->block_length;
}

/* The positions that the span's logit rows decide on: [first, end), of which the masked ones alone
 * where the scope says so. */
static void scope(const struct sessions *sessions, const struct request *request, uint32_t *first,
                  uint32_t *end) {
    const struct settings *settings = &sessions->system->settings;
    bool is_full = request->span.queries == request->canvas_tokens;
    *first = request->block_start;
    *end = request->span.logit_rows > 0 ? block_end(request) : request->block_start;
    if (request->span.exact &&
        (!blocks_decide(request) || settings->logit_scope == LOGITS_QUERIES)) {
        return;
    }
    if (settings->logit_scope == LOGITS_QUERIES) {
        *first = request->rows.head.first;
        *end = request->rows.head.end;
    } else if (settings->logit_scope == LOGITS_GENERATION && is_full &&
               request->step_in_block == 0) {
        *first = request->prompt_tokens;
        *end = request->canvas_tokens;
    }
}

/* Where a model's logits speak of the position after their query's, the query before the target is
 * taken; the first query of a span stands in for the one before it, as Dream's own code has it.
 * What decides on the first position of an exact block is the pass before it. */
static int32_t row_of(const struct sessions *sessions, const struct request *request,
                      const struct step_part *part, uint32_t position) {
    int32_t query = (int32_t)position - part->positions[0];
    bool is_shifted = sessions->system->model->shifted_logits || request->causal == SEES_TOKENS;
    return is_shifted && query > 0 ? query - 1 : query;
}

static int check_rows(const struct request *request, uint32_t n, struct err *err) {
    return n == request->span.logit_rows
               ? 0
               : err_world(err,
                           "request %" PRIu64 " has %" PRIu32 " logit rows in its span, the engine "
                           "finds %" PRIu32,
                           request->id, request->span.logit_rows, n);
}

/* What a row decides on: nothing where a record says that the step commits another position. The
 * prompt's first token stands for nothing, since it is no mask. */
static int32_t target_of(const struct planned_step *planned, uint32_t member,
                         const struct request *request, uint32_t position) {
    uint32_t offset = position - request->block_start;
    bool is_followed = planned->is_recorded && planned->blocks != NULL && member < planned->n_slots;
    return is_followed && offset < request->block_length && !planned->blocks[member].commit[offset]
               ? 0
               : (int32_t)position;
}

/* The same of a span that lists its positions, which may lie outside of its block as well, where
 * nothing is decided. One that was decided already is no candidate, even if what it was given is
 * the mask's id: its row decides on the prompt's first token, which is none. Where logits are
 * shifted, positions follow one another and the first is no masked one: the pass before the block
 * decided it, or one over the block. */
static int plan_listed_rows(struct sessions *sessions, const struct planned_step *planned,
                            uint32_t member, struct step_part *part, const uint8_t *masked,
                            uint32_t *n_listed, struct err *err) {
    const struct request *request = &planned->requests[planned_slot(planned, member)];
    int32_t *rows = sessions->logit_rows + sessions->n_used_rows;
    int32_t *targets = sessions->targets + sessions->n_used_rows;
    bool decides = blocks_decide(request), is_shifted = sessions->system->model->shifted_logits;
    uint32_t first, end, n = 0, n_before = 0, n_block = 0;
    scope(sessions, request, &first, &end);
    for (uint32_t i = 0; i < request->span.queries; i++) {
        uint32_t position = (uint32_t)part->positions[i];
        bool in_scope =
            position >= first && position < end &&
            (masked[i] || !decides || sessions->system->settings.logit_scope != LOGITS_MASKED);
        if (in_scope && sessions->n_used_rows + n < sessions->limits.max_logit_rows) {
            n_before += position < request->block_start;
            n_block += position >= request->block_start && position < block_end(request);
            rows[n] = is_shifted && i > 0 ? (int32_t)i - 1 : (int32_t)i;
            targets[n++] = masked[i] ? target_of(planned, member, request, position) : 0;
        }
    }
    sessions->n_used_rows += n;
    part->logit_rows = rows;
    part->targets = targets;
    part->decision.first_row = n_before;
    part->decision.n_rows = decides ? n_block : 0;
    /* A record's span has the rows that its eviction left. */
    bool narrows = planned->is_recorded && part->masked != NULL && decides;
    uint32_t n_span = request->span.logit_rows;
    *n_listed = n;
    if (narrows && n > n_span) {
        part->decision.n_rows = n_span;
        return 0;
    }
    return check_rows(request, n, err);
}

static int plan_rows(struct sessions *sessions, const struct planned_step *planned, uint32_t member,
                     struct step_part *part, struct err *err) {
    const struct request *request = &planned->requests[planned_slot(planned, member)];
    bool has_places = session_places_wanted(sessions->system);
    const struct settings *settings = &sessions->system->settings;
    int32_t *rows = sessions->logit_rows + sessions->n_used_rows;
    int32_t *targets = sessions->targets + sessions->n_used_rows;
    uint32_t first, end, n = 0, n_before = 0, n_block = 0;
    scope(sessions, request, &first, &end);
    for (uint32_t position = first; position < end; position++) {
        bool in_block = position >= request->block_start && position < block_end(request);
        if (settings->logit_scope == LOGITS_MASKED && blocks_decide(request) &&
            !session_is_masked(planned, member, position)) {
            continue;
        }
        if (sessions->n_used_rows + n == sessions->limits.max_logit_rows) {
            break;
        }
        n_before += position < request->block_start;
        n_block += in_block;
        rows[n] = row_of(sessions, request, part, position);
        targets[n++] =
            has_places ? (int32_t)position : target_of(planned, member, request, position);
    }
    sessions->n_used_rows += n;
    part->logit_rows = rows;
    part->targets = targets;
    part->decision.first_row = n_before;
    part->decision.n_rows = blocks_decide(request) ? n_block : 0;
    return check_rows(request, n, err);
}

/* The same of a span that yields a block's first token: its last rows, each of which speaks of the
 * position after its query's, and the last of them decides. */
static int plan_yield_rows(struct sessions *sessions, const struct request *request,
                           struct step_part *part, struct err *err) {
    int32_t *rows = sessions->logit_rows + sessions->n_used_rows;
    int32_t *targets = sessions->targets + sessions->n_used_rows;
    uint32_t left = sessions->limits.max_logit_rows - sessions->n_used_rows;
    uint32_t n = request->span.logit_rows < left ? request->span.logit_rows : left;
    for (uint32_t r = 0; r < n; r++) {
        rows[r] = (int32_t)(request->span.queries - n + r);
        targets[r] = part->positions[rows[r]] + 1;
    }
    sessions->n_used_rows += n;
    part->logit_rows = rows;
    part->targets = targets;
    part->decision = (struct decision){.first_row = n - 1, .n_rows = 1, .take = 1};
    return check_rows(request, n, err);
}

int session_rows_plan(struct sessions *sessions, const struct planned_step *planned,
                      uint32_t member, const uint8_t *masked, struct err *err) {
    const struct request *request = &planned->requests[planned_slot(planned, member)];
    struct step_part *part = &sessions->parts[member];
    uint32_t *n = &sessions->n_rows[member];
    *n = request->span.logit_rows;
    return blocks_yield(request) ? plan_yield_rows(sessions, request, part, err)
           : masked != NULL      ? plan_listed_rows(sessions, planned, member, part, masked, n, err)
                                 : plan_rows(sessions, planned, member, part, err);
}
