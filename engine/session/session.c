#include "engine/session/session.h"

#include "engine/session/session_idle.h"
#include "engine/session/session_places.h"
#include "engine/session/session_rest.h"
#include "engine/session/session_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/base/zeroed.h"
#include "sim/cache/blocks.h"
#include "sim/decode/block.h"
#include "sim/model/ranks.h"

/* ---- opening ---- */

static bool is_exact(const struct sessions *sessions) {
    return sessions->system->rows.kind == ROW_EXACT;
}

/* Bytes between places where a store may start. */
static int64_t unit_bytes(const struct system *system) {
    return STORE_ALIGN_ELEMENTS * system->runtime.element_bytes;
}

int sessions_open(struct sessions *sessions, const struct system *system, struct forward *forward,
                  const struct step_limits *limits, uint64_t seed, struct err *err) {
    *sessions = (struct sessions){.system = system,
                                  .forward = forward,
                                  .limits = *limits,
                                  .seed = rng_stream(seed, "prompts").s[0]};
    if (sessions_check(system, err) != 0) {
        return (int)err->kind;
    }
    uint32_t n_slots = system->settings.max_in_system;
    int64_t unit = unit_bytes(system);
    sessions->by_slot = zeroed(n_slots, sizeof *sessions->by_slot);
    ASSERT(stores_open(&sessions->canvases, limits->canvas_tokens, n_slots));
    ASSERT(stores_open(&sessions->stores, limits->pool_bytes / unit * unit, n_slots));
    if (is_exact(sessions)) {
        const struct budget *budget = &system->budget;
        pages_open(&sessions->pages, (int32_t)(budget->pool_bytes / budget->unit_bytes), n_slots,
                   (int32_t)ceil_div(limits->max_positions, budget->unit_rows));
    }
    sessions->tokens = zeroed(limits->max_positions, sizeof *sessions->tokens);
    sessions->parts = zeroed(limits->max_requests, sizeof *sessions->parts);
    sessions->positions = zeroed(limits->max_tokens, sizeof *sessions->positions);
    sessions->kv_rows = zeroed(limits->max_tokens, sizeof *sessions->kv_rows);
    sessions->logit_rows = zeroed(limits->max_logit_rows, sizeof *sessions->logit_rows);
    sessions->targets = zeroed(limits->max_logit_rows, sizeof *sessions->targets);
    sessions->extents = zeroed(limits->max_tokens, sizeof *sessions->extents);
    sessions->n_rows = zeroed(limits->max_requests, sizeof *sessions->n_rows);
    if (session_places_wanted(system)) {
        session_places_open(&sessions->places, limits, n_slots);
    }
    if (sessions_list_positions(system)) {
        session_rest_open(sessions);
    }
    /* Pages lie all over the pool. */
    return is_exact(sessions) ? forward_hold(forward, 0, err) : 0;
}

void sessions_close(struct sessions *sessions) {
    stores_close(&sessions->canvases);
    stores_close(&sessions->stores);
    pages_close(&sessions->pages);
    free(sessions->by_slot);
    free(sessions->tokens);
    free(sessions->parts);
    free(sessions->positions);
    free(sessions->kv_rows);
    free(sessions->logit_rows);
    free(sessions->targets);
    free(sessions->extents);
    free(sessions->n_rows);
    free(sessions->masked_tokens);
    session_places_close(&sessions->places);
    session_rest_close(&sessions->rest);
    *sessions = (struct sessions){0};
}

/* ---- admission ---- */

static int32_t drawn_token(const struct sessions *sessions, uint64_t id, uint32_t position) {
    const struct model *model = sessions->system->model;
    double u = rng_keyed(sessions->seed, id, 0, position);
    uint32_t token = (uint32_t)(u * (model_whole_vocab(model) - 1));
    return (int32_t)(token + (token >= model->mask_token));
}

static int write_canvas(struct sessions *sessions, const struct session *session,
                        const struct request *request, const int32_t *prompt, struct err *err) {
    for (uint32_t i = 0; i < request->canvas_tokens; i++) {
        bool is_prompt = i < request->prompt_tokens;
        sessions->tokens[i] = !is_prompt       ? (int32_t)sessions->system->model->mask_token
                              : prompt != NULL ? prompt[i]
                                               : drawn_token(sessions, request->id, i);
    }
    return forward_write_canvas(sessions->forward, session->canvas, sessions->tokens,
                                request->canvas_tokens, err);
}

/* Close the gaps between stores; the rows move along in device memory. */
static int push_stores(struct sessions *sessions, struct err *err) {
    struct store_move move;
    int status = 0;
    while (status == 0 && stores_push(&sessions->stores, &move)) {
        status = forward_move_store(sessions->forward, move.to, move.from, move.size, err);
        sessions->by_slot[move.owner].store_bytes = move.to;
    }
    return status;
}

/* From the lowest row that is kept on; the pool may end a little above the last place. */
static int hold_stores(struct sessions *sessions, struct err *err) {
    int64_t lowest = stores_lowest(&sessions->stores);
    return forward_hold(sessions->forward,
                        lowest < sessions->stores.size ? lowest : sessions->limits.pool_bytes, err);
}

static int take_store(struct sessions *sessions, uint32_t slot, int64_t bytes, struct err *err) {
    struct session *session = &sessions->by_slot[slot];
    session->store_bytes = -1;
    if (bytes == 0) {
        return 0;
    }
    session->store_bytes = stores_take(&sessions->stores, slot, bytes, 0);
    int status = 0;
    if (session->store_bytes < 0) {
        status = push_stores(sessions, err);
        session->store_bytes = stores_take(&sessions->stores, slot, bytes, 0);
    }
    if (status == 0 && session->store_bytes < 0) {
        char wanted[32], left[32];
        status =
            err_world(err, "the pool of cached rows is full: %s wanted, %s left",
                      num_format_bytes(wanted, sizeof wanted, (double)bytes),
                      num_format_bytes(left, sizeof left,
                                       (double)(sessions->stores.size - sessions->stores.used)));
    }
    return status == 0 ? hold_stores(sessions, err) : status;
}

int sessions_grow(struct sessions *sessions, uint32_t slot, const struct request *request,
                  struct err *err) {
    int64_t n = request->kv_held_bytes / sessions->system->budget.unit_bytes;
    return pages_grow(&sessions->pages, slot, n)
               ? 0
               : err_world(err,
                           "the pool of pages is full: request %" PRIu64 " holds %" PRId32
                           " and wants %" PRId64 " (at most %" PRId32 "), %" PRId32 " are left",
                           request->id, sessions->pages.held[slot], n, sessions->pages.most,
                           sessions->pages.n_free);
}

static int take_canvas(struct sessions *sessions, uint32_t slot, const struct request *request,
                       struct err *err) {
    struct session *session = &sessions->by_slot[slot];
    if (session->has_canvas) { /* of a request that was preempted and never came back */
        stores_give(&sessions->canvases, slot);
    }
    session->canvas = stores_take(&sessions->canvases, slot, request->canvas_tokens, 0);
    session->has_canvas = session->canvas >= 0;
    return session->has_canvas
               ? 0
               : err_world(err,
                           "no room for the canvas of request %" PRIu64 ": %" PRId64
                           " tokens of canvases run at once, %" PRId64 " are the most",
                           request->id, sessions->canvases.used, sessions->canvases.size);
}

int sessions_admit(struct sessions *sessions, uint32_t slot, const struct request *request,
                   const int32_t *prompt, struct err *err) {
    struct session *session = &sessions->by_slot[slot];
    if (request->canvas_tokens > sessions->limits.max_positions) {
        return err_usage(err,
                         "request %" PRIu64 " has a canvas of %" PRIu32 " tokens, but the engine "
                         "was opened for %" PRIu32,
                         request->id, request->canvas_tokens, sessions->limits.max_positions);
    }
    bool returns = session->has_canvas && session->id == request->id;
    session->request = request;
    session->id = request->id;
    session->prompt_tokens = request->prompt_tokens;
    session->output_tokens = request->output_tokens;
    session->store_bytes = -1;
    int status = returns ? 0 : take_canvas(sessions, slot, request, err);
    if (status == 0) {
        status = is_exact(sessions) ? sessions_grow(sessions, slot, request, err)
                                    : take_store(sessions, slot, request->kv_bytes, err);
    }
    if (status == 0 && session_places_wanted(sessions->system)) {
        status = session_places_take(sessions, slot, err);
    }
    return status != 0 || returns ? status : write_canvas(sessions, session, request, prompt, err);
}

void sessions_release(struct sessions *sessions, uint32_t slot) {
    struct session *session = &sessions->by_slot[slot];
    if (session->request->state != REQUEST_PREEMPTED) {
        stores_give(&sessions->canvases, slot);
        session->has_canvas = false;
    }
    if (session_places_wanted(sessions->system)) {
        session_places_give(sessions, slot);
    }
    if (is_exact(sessions)) {
        pages_give(&sessions->pages, slot);
    } else if (session->store_bytes >= 0) {
        stores_give(&sessions->stores, slot);
    }
}

/* ---- a step ---- */

static uint32_t block_end(const struct request *request) {
    return request->block_start + request->block_length;
}

/* Where a query's keys end: behind its block, which may be shorter where it is the active one, or,
 * where a position sees no further than itself, behind itself. */
static uint32_t extent_of(const struct request *request, uint32_t position) {
    uint32_t block = request->causal == SEES_BLOCKS ? request->block_tokens : 1;
    uint32_t end = (position / block + 1) * block;
    return end < block_end(request) ? end : block_end(request);
}

static void plan_pages(struct sessions *sessions, const struct request *request, uint32_t slot,
                       struct step_part *part) {
    int32_t *extents = sessions->extents + (part->positions - sessions->positions);
    for (uint32_t i = 0; i < request->span.queries; i++) {
        extents[i] = (int32_t)extent_of(request, (uint32_t)part->positions[i]);
    }
    part->kv_pages = (struct kv_pages){.pages = pages_of(&sessions->pages, slot),
                                       .n_pages = sessions->pages.held[slot],
                                       .extent = extents};
}

static void plan_cache(struct sessions *sessions, const struct request *request,
                       struct step_part *part) {
    const struct span *span = &request->span;
    const struct row_sets *rows = &request->rows;
    bool writes =
        range_common(rows->run, rows->keep[0]) + range_common(rows->run, rows->keep[1]) > 0;
    if (rows_are_chosen(rows)) {
        part->kv.n_rows = (int32_t)rows->n_chosen;
        part->block_start = span->select_rows > 0 ? request->block_start : 0;
        part->block_end = span->select_rows > 0 ? block_end(request) : 0;
        return;
    }
    part->kv.n_rows = (int32_t)rows_kept(rows);
    if (writes) {
        int32_t *places = sessions->kv_rows + (part->positions - sessions->positions);
        for (uint32_t i = 0; i < span->queries; i++) {
            places[i] = rows_place(rows, (uint32_t)part->positions[i]);
        }
        part->kv_rows = places;
    }
}

bool session_is_listed(const struct sessions *sessions, const struct request *request) {
    bool in_block = request->causal == SEES_BLOCKS && request->span.phase != PHASE_PREFILL;
    return sessions->masked_tokens != NULL && (in_block || request->causal == SEES_CANVAS);
}

static const struct planned_block *block_of(const struct planned_step *planned, uint32_t member) {
    return planned->blocks != NULL && member < planned->n_slots ? &planned->blocks[member] : NULL;
}

bool session_is_masked(const struct planned_step *planned, uint32_t member, uint32_t position) {
    const struct request *request = &planned->requests[planned_slot(planned, member)];
    const struct planned_block *block = block_of(planned, member);
    if (position < request->block_start || position >= block_end(request)) {
        return position >= request->block_start;
    }
    uint32_t offset = position - request->block_start;
    return block != NULL ? block->masked[offset] != 0
                         : offset >= request->block_length - request->masked_in_block;
}

/* The positions that a listed span runs, in order, and which of them are masked. */
static int list_positions(struct sessions *sessions, const struct planned_step *planned,
                          uint32_t member, int32_t *positions, uint8_t *masked, struct err *err) {
    const struct request *request = &planned->requests[planned_slot(planned, member)];
    const struct planned_block *block = block_of(planned, member);
    const struct row_sets *rows = &request->rows;
    uint32_t n = 0;
    if (block == NULL) {
        return err_usage(err,
                         "the record has counts alone, where a step of request %" PRIu64
                         " runs some positions of its block and leaves others out",
                         request->id);
    }
    for (uint32_t position = rows->run.first; position < rows->run.end; position++) {
        bool in_block = position >= request->block_start && position < block_end(request);
        if (in_block && rows->skips && !block->run[position - request->block_start]) {
            continue;
        }
        if (n < request->span.queries) {
            positions[n] = (int32_t)position;
            masked[n] = session_is_masked(planned, member, position);
        }
        n++;
    }
    return n == request->span.queries
               ? 0
               : err_world(err,
                           "cache %s says that request %" PRIu64 " runs %" PRIu32
                           " positions, of which its canvas has %" PRIu32,
                           sessions->system->cache->policy.name, request->id, request->span.queries,
                           n);
}

/* Positions of the span's queries; `masked` where they are listed. */
static int plan_positions(struct sessions *sessions, const struct planned_step *planned,
                          uint32_t member, int32_t *positions, uint8_t *masked, struct err *err) {
    const struct request *request = &planned->requests[planned_slot(planned, member)];
    const struct span *span = &request->span;
    if (masked != NULL) {
        return list_positions(sessions, planned, member, positions, masked, err);
    }
    bool in_block = span->exact && request->causal == SEES_BLOCKS && span->phase != PHASE_PREFILL;
    if (in_block && span->context + span->queries != block_end(request)) {
        return err_usage(err, "cache %s runs parts of a block, which the engine does not",
                         sessions->system->cache->policy.name);
    }
    for (uint32_t i = 0; i < span->queries; i++) {
        positions[i] = (int32_t)(request->rows.run.first + i);
    }
    return 0;
}

/* Who decides on a part's rows, and by which numbers. */
static void plan_decision(struct sessions *sessions, const struct request *request,
                          const uint32_t *take, struct decision *decision) {
    const struct decoder *decoder = sessions->system->decoder;
    sessions->rule = decoder_rule(decoder, sessions->system->decoder_state, request);
    decision->threshold = sessions->rule.threshold;
    decision->key = sessions->rule.key;
    if (take != NULL) {
        decision->take = *take;
        decision->n_rows = *take > 0 ? decision->n_rows : 0;
    } else if (decoder->count != NULL) {
        decision->take = request->commit_tokens;
    } else if (decoder->choose != NULL) {
        decision->n_rows = 0; /* the host decides */
    }
}

static int plan_part(struct sessions *sessions, const struct planned_step *planned, uint32_t member,
                     const uint32_t *take, struct err *err) {
    struct step_part *part = &sessions->parts[member];
    uint32_t slot = planned_slot(planned, member);
    const struct request *request = &planned->requests[slot];
    const struct session *session = &sessions->by_slot[slot];
    const struct span *span = &request->span;
    if (sessions->n_used_tokens + span->queries > sessions->limits.max_tokens) {
        return err_usage(err,
                         "a step of more than the %" PRIu32 " tokens the engine was opened for",
                         sessions->limits.max_tokens);
    }
    int32_t *positions = sessions->positions + sessions->n_used_tokens;
    bool lists = session_is_listed(sessions, request);
    uint8_t *masked = lists ? sessions->masked_tokens + sessions->n_used_tokens : NULL;
    int status = plan_positions(sessions, planned, member, positions, masked, err);
    if (status != 0) {
        return status;
    }
    *part = (struct step_part){.canvas = session->canvas, .positions = positions};
    part->masked = request->rows.chooser == CHOSEN_BY_POLICY ? masked : NULL;
    if (is_exact(sessions)) {
        plan_pages(sessions, request, slot, part);
    } else {
        plan_cache(sessions, request, part);
    }
    int64_t element_bytes = sessions->system->runtime.element_bytes;
    part->kv.first = part->kv.n_rows > 0 ? session->store_bytes / element_bytes : 0;
    sessions->n_used_tokens += span->queries;
    int64_t kept_bytes = part->kv.n_rows * sessions->system->row_bytes;
    if (kept_bytes > request->kv_bytes) {
        return err_world(err,
                         "cache %s keeps %" PRId32 " rows of request %" PRIu64
                         " but holds memory for %" PRId64,
                         sessions->system->cache->policy.name, part->kv.n_rows, request->id,
                         request->kv_bytes / sessions->system->row_bytes);
    }
    bool yields = blocks_yield(request);
    status = session_rows_plan(sessions, planned, member, masked, err);
    if (yields && take == NULL) {
        return status; /* whatever the decoder */
    }
    if (status == 0 && session_places_wanted(sessions->system)) {
        status = session_places_plan(sessions, request, slot, part, err);
    }
    plan_decision(sessions, request, take, &part->decision);
    return status;
}

static int make_room(struct sessions *sessions, const struct placement *placement,
                     struct err *err) {
    if (!sessions->limits.shares_pool ||
        stores_lowest(&sessions->stores) >= placement->peak_bytes) {
        return 0;
    }
    int status = push_stores(sessions, err);
    if (status == 0 && stores_lowest(&sessions->stores) < placement->peak_bytes) {
        char needed[32], left[32];
        int64_t room = stores_lowest(&sessions->stores);
        status = err_world(err, "a step needs %s of workspace, cached rows leave %s",
                           num_format_bytes(needed, sizeof needed, (double)placement->peak_bytes),
                           num_format_bytes(left, sizeof left, (double)room));
    }
    return status;
}

/* Nothing is committed, and nothing outlasts the step but keys and values. */
static void decide_nothing(struct step_part *part) {
    part->decision.n_rows = 0;
    part->row_places = NULL;
}

int sessions_plan(struct sessions *sessions, const struct planned_step *planned,
                  const uint32_t *take, const struct placement *placement, struct step *step,
                  struct err *err) {
    uint32_t n = planned_spans(planned);
    int status = sessions_check_batch(sessions, planned, err);
    if (status != 0) {
        return status;
    }
    sessions->n_used_tokens = sessions->n_used_rows = 0;
    status = make_room(sessions, placement, err);
    status = status == 0 && !is_exact(sessions) ? hold_stores(sessions, err) : status;
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        uint32_t slot = planned_slot(planned, i);
        const struct request *request = &planned->requests[slot];
        bool is_idle = i >= planned->n_slots;
        status =
            is_idle && is_exact(sessions)
                ? session_idle_plan(sessions, request, slot, i, err)
                : plan_part(sessions, planned, i, take != NULL && !is_idle ? &take[i] : NULL, err);
        if (is_idle) { /* of it nothing changes */
            decide_nothing(&sessions->parts[i]);
            sessions->parts[i].kv_rows = NULL;
        }
    }
    sessions->planned = planned;
    sessions->decided = sessions->parts;
    sessions->seen = (struct eviction){0};
    *step = (struct step){
        .placement = placement,
        .shape = planned->shape,
        .parts = sessions->parts,
        .rule = sessions->rule,
        .credit = session_credit_rule(sessions->system),
        .evict = session_evict,
        .evict_state = sessions,
    };
    return status;
}

void sessions_decide_nothing(struct sessions *sessions, const struct planned_step *planned) {
    for (uint32_t i = 0; i < planned_spans(planned); i++) {
        decide_nothing(&sessions->parts[i]);
    }
}

/* ---- results ---- */

/* The first of a member's rows in the results. */
static uint32_t first_result(const struct sessions *sessions, uint32_t member) {
    uint32_t first = 0;
    for (uint32_t i = 0; i < member; i++) {
        first += sessions->n_rows[i];
    }
    return first;
}

/* The token produced by a shifted-logits pass belongs to the next block, and is none of these. */
static void note_commit(const struct planned_step *planned, uint32_t member, int32_t target) {
    const struct request *request = &planned->requests[planned->slots[member]];
    const struct planned_block *block = block_of(planned, member);
    uint32_t offset = (uint32_t)target - request->block_start;
    if (block != NULL && offset < request->block_length && block->masked[offset]) {
        block->commit[offset] = 1;
    }
}

void sessions_settle(struct sessions *sessions, const struct planned_step *planned,
                     const uint8_t *committed) {
    for (uint32_t i = 0; i < planned->n_slots; i++) {
        const struct step_part *part = &sessions->decided[i];
        for (uint32_t r = 0; r < part->decision.n_rows; r++) {
            uint32_t row = part->decision.first_row + r;
            if (committed[row]) {
                note_commit(planned, i, part->targets[row]);
            }
        }
        committed += sessions->n_rows[i];
    }
}

void sessions_pass(const struct planned_step *planned, uint32_t *counts) {
    for (uint32_t i = 0; i < planned->n_slots; i++) {
        const struct request *request = &planned->requests[planned->slots[i]];
        const struct planned_block *block = block_of(planned, i);
        if (block != NULL) {
            counts[i] = 0;
            for (uint32_t at = 0; at < request->block_length; at++) {
                counts[i] += block->commit[at];
            }
        }
        counts[i] = blocks_yield(request) ? 1 : counts[i];
    }
}

uint32_t sessions_masked_rows(const struct sessions *sessions, const struct planned_step *planned,
                              uint32_t member, uint32_t *rows) {
    uint32_t slot = planned->slots[member], n = 0;
    const struct request *request = &planned->requests[slot];
    const struct step_part *part = &sessions->decided[member];
    uint32_t first = first_result(sessions, member);
    for (uint32_t row = 0; blocks_decide(request) && row < sessions->n_rows[member]; row++) {
        uint32_t target = (uint32_t)part->targets[row];
        if (target >= request->block_start && target < block_end(request) &&
            session_is_masked(planned, member, target)) {
            rows[n++] = first + row;
        }
    }
    return n;
}

uint32_t sessions_target(const struct sessions *sessions, uint32_t member, uint32_t row) {
    return (uint32_t)sessions->decided[member].targets[row - first_result(sessions, member)];
}

int sessions_commit(struct sessions *sessions, const struct planned_step *planned, uint32_t member,
                    uint32_t row, int32_t token, struct err *err) {
    uint32_t slot = planned->slots[member];
    int32_t target = (int32_t)sessions_target(sessions, member, row);
    note_commit(planned, member, target);
    return forward_write_canvas(sessions->forward, sessions->by_slot[slot].canvas + target, &token,
                                1, err);
}

int sessions_read(struct sessions *sessions, uint32_t slot, int32_t *tokens, struct err *err) {
    const struct session *session = &sessions->by_slot[slot];
    return forward_read_canvas(sessions->forward, session->canvas + session->prompt_tokens, tokens,
                               session->output_tokens, err);
}

int64_t sessions_pool_bytes(const struct sessions *sessions) {
    int64_t n_pages = sessions->pages.n - sessions->pages.n_free;
    return is_exact(sessions) ? n_pages * sessions->system->budget.unit_bytes
                              : sessions->stores.used;
}

int64_t sessions_pool_peak_bytes(const struct sessions *sessions) {
    return is_exact(sessions) ? sessions->pages.most_used * sessions->system->budget.unit_bytes
                              : sessions->stores.most_used;
}
