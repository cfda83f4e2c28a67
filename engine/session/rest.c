#include "engine/session/rest.h"

#include <stdlib.h>

#include "sim/base/mem.h"

void rest_open(struct rest *rest, struct members *members) {
    const struct step_limits *limits = &members->sessions->limits;
    *rest = (struct rest){.members = members};
    part_arrays_open(&rest->left, limits);
    rest->spans = mem_zeroed(limits->max_requests, sizeof *rest->spans);
    rest->span_list = mem_zeroed(limits->max_requests, sizeof(struct span *));
    rest->delta = mem_zeroed(settings_window_tokens(&members->sessions->system->settings),
                             sizeof *rest->delta);
}

void rest_close(struct rest *rest) {
    part_arrays_close(&rest->left);
    free(rest->spans);
    free(rest->span_list);
    free(rest->delta);
}

/* Where `query` is among kept[from .. n); -1: it is not. */
static int32_t kept_at(const int32_t *kept, uint32_t from, uint32_t n, int32_t query) {
    while (from < n && kept[from] < query) {
        from++;
    }
    return from < n && kept[from] == query ? (int32_t)from : -1;
}

/* The query that stands at what a logit row decides on: its own or, where logits are shifted, the
 * next one. */
static int32_t query_of_row(const struct step_part *part, uint32_t queries, uint32_t row) {
    const int32_t query = part->logit_rows[row], target = part->targets[row];
    const bool is_next = (uint32_t)query + 1 < queries && part->positions[query + 1] == target;
    return target > 0 && is_next ? query + 1 : query;
}

/* The queries in kept[0 .. n) of a part, and of its logit rows those of these queries; a position
 * that stays while the row that decides on it does not keeps its own row. */
static void keep_part(struct rest *rest, uint32_t member, uint32_t n) {
    struct part_arrays *left = &rest->left;
    const struct step_part *whole = &rest->members->whole.parts[member];
    struct step_part *part = &left->parts[member];
    struct span *span = &rest->spans[member];
    int32_t *positions = left->positions + left->n_tokens, *kept = left->kept + left->n_tokens;
    int32_t *extents = left->extents + left->n_tokens,
            *rows = left->logit_rows + left->n_logit_rows;
    int32_t *targets = left->targets + left->n_logit_rows;
    int32_t *places = left->row_places + left->n_logit_rows;
    uint32_t n_rows = 0;
    *part = *whole;
    part->positions = positions;
    part->kv_pages.extent = extents;
    part->kept = kept;
    part->logit_rows = rows;
    part->targets = targets;
    part->row_places = whole->row_places != NULL ? places : NULL;
    part->masked = NULL;
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = whole->positions[kept[i]];
        extents[i] = whole->kv_pages.extent[kept[i]];
    }
    uint32_t from = 0;
    for (uint32_t r = 0; r < rest->members->whole.n_rows[member]; r++) {
        const int32_t row = kept_at(kept, from, n, whole->logit_rows[r]);
        const int32_t own = kept_at(kept, from, n, query_of_row(whole, span->queries, r));
        if (own >= 0) {
            rows[n_rows] = row >= 0 ? row : own;
            places[n_rows] = row >= 0 && whole->row_places != NULL ? whole->row_places[r] : -1;
            targets[n_rows++] = row >= 0 ? whole->targets[r] : 0;
            from = (uint32_t)own;
        }
    }
    /* A pass that yields a block's first token decides by its last row alone. */
    if (whole->decision.n_rows > 0 && whole->decision.first_row == 0) {
        part->decision.n_rows = n_rows;
    }
    span->queries = span->first_queries = n;
    span->kept_queries = span->phase == PHASE_PREFILL ? span->kept_queries : n;
    span->logit_rows = n_rows;
    left->n_rows[member] = n_rows;
}

/* What the policy keeps of a member whose tokens begin at seen->first, or what a record says that
 * it kept: the queries of the span that go on. */
static uint32_t ask_member(struct rest *rest, uint32_t member, const struct eviction *seen,
                           int32_t *kept) {
    const struct planned_step *planned = rest->members->planned;
    uint32_t n = 0, n_kept = 0;
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    int32_t at = seen->first[member];
    for (uint32_t i = 0; i < window_length(request); i++) {
        bool runs = block->run[i] != 0;
        rest->delta[i] = runs && block->masked[i] ? seen->after[at] - seen->before[at] : 0;
        at += runs;
    }
    if (window_masked(request) > 0 && !planned->is_recorded) {
        planned->evict(planned->evict_state, planned->slots[member], rest->delta);
    }
    for (uint32_t i = 0; i < window_length(request); i++) {
        if (block->run[i] && block->keep[i]) {
            kept[n_kept++] = (int32_t)n;
        }
        n += block->run[i] != 0;
    }
    return n_kept;
}

int rest_evict(void *state, const struct eviction *seen, struct step *out, struct err *err) {
    struct rest *rest = state;
    struct part_arrays *left = &rest->left;
    const struct planned_step *planned = rest->members->planned;
    (void)err;
    left->n_tokens = left->n_logit_rows = 0;
    shape_clear(&rest->shape);
    for (uint32_t i = 0; i < planned_spans(planned); i++) {
        const struct request *request = members_request(planned, i);
        int32_t *kept = left->kept + left->n_tokens;
        bool lists =
            i < planned->n_slots && members_is_listed(rest->members->sessions->system, request);
        uint32_t n = lists ? ask_member(rest, i, seen, kept) : request->span.queries;
        for (uint32_t q = 0; !lists && q < n; q++) {
            kept[q] = (int32_t)q;
        }
        rest->spans[i] = request->span;
        keep_part(rest, i, n);
        /* No query sees further than the last one that goes on, since positions after it may not
         * have been computed. Where no position is masked all of the block has been. */
        for (uint32_t q = 0; lists && window_masked(request) > 0 && q < n; q++) {
            left->extents[left->n_tokens + q] = left->positions[left->n_tokens + n - 1] + 1;
        }
        rest->span_list[i] = &rest->spans[i];
        shape_add(rest->shape.sym, rest->span_list[i], 1);
        left->n_tokens += n;
        left->n_logit_rows += left->n_rows[i];
    }
    rest->shape.n_spans = planned_spans(planned);
    rest->shape.spans = rest->span_list;
    rest->members->decided = left;
    rest->members->seen = *seen;
    out->shape = &rest->shape;
    out->parts = left->parts;
    return 0;
}
