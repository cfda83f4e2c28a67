#include "engine/session/session_rest.h"

#include <stdlib.h>

#include "sim/base/zeroed.h"

void session_rest_open(struct sessions *sessions) {
    const struct step_limits *limits = &sessions->limits;
    struct session_rest *rest = &sessions->rest;
    sessions->masked_tokens = zeroed(limits->max_tokens, 1);
    rest->parts = zeroed(limits->max_requests, sizeof *rest->parts);
    rest->spans = zeroed(limits->max_requests, sizeof *rest->spans);
    rest->span_list = zeroed(limits->max_requests, sizeof(struct span *));
    rest->positions = zeroed(limits->max_tokens, sizeof *rest->positions);
    rest->extents = zeroed(limits->max_tokens, sizeof *rest->extents);
    rest->kept = zeroed(limits->max_tokens, sizeof *rest->kept);
    rest->logit_rows = zeroed(limits->max_logit_rows, sizeof *rest->logit_rows);
    rest->targets = zeroed(limits->max_logit_rows, sizeof *rest->targets);
    rest->places = zeroed(limits->max_logit_rows, sizeof *rest->places);
    rest->delta = zeroed(sessions->system->settings.block_tokens, sizeof *rest->delta);
}

void session_rest_close(struct session_rest *rest) {
    free(rest->parts);
    free(rest->spans);
    free(rest->span_list);
    free(rest->positions);
    free(rest->extents);
    free(rest->kept);
    free(rest->logit_rows);
    free(rest->targets);
    free(rest->places);
    free(rest->delta);
}

/* What is used of a rest's arrays. */
struct rest_place {
    uint32_t token, row;
};

/* The queries in kept[0 .. n) of a part, and of its logit rows those of these queries. */
static void keep_part(struct session_rest *rest, const struct step_part *whole, uint32_t n_rows,
                      uint32_t member, uint32_t n, struct rest_place *at) {
    struct step_part *part = &rest->parts[member];
    struct span *span = &rest->spans[member];
    int32_t *rows = rest->logit_rows + at->row, *targets = rest->targets + at->row;
    int32_t *places = rest->places + at->row;
    const int32_t *kept = rest->kept + at->token;
    uint32_t n_kept_rows = 0;
    *part = *whole;
    part->positions = rest->positions + at->token;
    part->kv_pages.extent = rest->extents + at->token;
    part->kept = kept;
    part->logit_rows = rows;
    part->targets = targets;
    part->row_places = whole->row_places != NULL ? places : NULL;
    part->masked = NULL;
    for (uint32_t i = 0; i < n; i++) {
        rest->positions[at->token + i] = whole->positions[kept[i]];
        rest->extents[at->token + i] = whole->kv_pages.extent[kept[i]];
    }
    for (uint32_t r = 0, i = 0; r < n_rows; r++) {
        while (i < n && kept[i] < whole->logit_rows[r]) {
            i++;
        }
        if (i < n && kept[i] == whole->logit_rows[r]) {
            rows[n_kept_rows] = (int32_t)i;
            places[n_kept_rows] = whole->row_places != NULL ? whole->row_places[r] : -1;
            targets[n_kept_rows++] = whole->targets[r];
        }
    }
    part->decision.n_rows = whole->decision.n_rows > 0 ? n_kept_rows : 0;
    span->queries = span->first_queries = n;
    span->kept_queries = span->phase == PHASE_PREFILL ? span->kept_queries : n;
    span->logit_rows = n_kept_rows;
    at->token += n;
    at->row += n_kept_rows;
}

/* No query sees further than the last one that goes on, since what is behind it may not have been
 * computed. Where no position is masked all of the block has been. */
static void end_at_last(struct session_rest *rest, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n; i++) {
        rest->extents[i] = rest->positions[first + n - 1] + 1;
    }
}

/* What the policy keeps of a member whose tokens begin at `first`, or what a record says that it
 * kept: the queries of the span that go on. */
static uint32_t ask_member(struct sessions *sessions, uint32_t member, const struct eviction *seen,
                           int32_t *kept) {
    const struct planned_step *planned = sessions->planned;
    uint32_t slot = planned->slots[member], n = 0, n_kept = 0;
    const struct request *request = &planned->requests[slot];
    const struct planned_block *block = &planned->blocks[member];
    int32_t at = seen->first[member];
    for (uint32_t i = 0; i < request->block_length; i++) {
        bool runs = block->run[i] != 0;
        sessions->rest.delta[i] = runs && block->masked[i] ? seen->after[at] - seen->before[at] : 0;
        at += runs;
    }
    if (request->masked_in_block > 0 && !planned->is_recorded) {
        planned->evict(planned->evict_state, slot, sessions->rest.delta);
    }
    for (uint32_t i = 0; i < request->block_length; i++) {
        if (block->run[i] && block->keep[i]) {
            kept[n_kept++] = (int32_t)n;
        }
        n += block->run[i] != 0;
    }
    return n_kept;
}

int session_evict(void *state, const struct eviction *seen, struct step *out, struct err *err) {
    struct sessions *sessions = state;
    struct session_rest *rest = &sessions->rest;
    const struct planned_step *planned = sessions->planned;
    struct rest_place at = {0};
    (void)err;
    shape_clear(&rest->shape);
    for (uint32_t i = 0; i < planned_spans(planned); i++) {
        uint32_t slot = planned_slot(planned, i), n = 0;
        const struct request *request = &planned->requests[slot];
        int32_t *kept = rest->kept + at.token;
        bool lists = i < planned->n_slots && session_is_listed(sessions, request);
        if (lists) {
            n = ask_member(sessions, i, seen, kept);
        }
        for (; !lists && n < request->span.queries; n++) {
            kept[n] = (int32_t)n;
        }
        rest->spans[i] = request->span;
        uint32_t first = at.token;
        keep_part(rest, &sessions->parts[i], sessions->n_rows[i], i, n, &at);
        if (lists && request->masked_in_block > 0) {
            end_at_last(rest, first, n);
        }
        sessions->n_rows[i] = rest->spans[i].logit_rows;
        rest->span_list[i] = &rest->spans[i];
        shape_add(rest->shape.sym, rest->span_list[i], 1);
    }
    rest->shape.n_spans = planned_spans(planned);
    rest->shape.spans = rest->span_list;
    sessions->decided = rest->parts;
    sessions->seen = *seen;
    out->shape = &rest->shape;
    out->parts = rest->parts;
    return 0;
}
