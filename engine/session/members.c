#include "engine/session/members.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/session/renoise.h"
#include "sim/base/mem.h"
#include "sim/policy/cache/blocks.h"
#include "sim/policy/decoder/even_steps.h"
#include "sim/policy/decoder/speculation.h"
#include "sim/system/system_sampling.h"

/* ---- opening ---- */

/* Of the positions that a step lists. */
static uint32_t most_tokens(const struct step_limits *limits) {
    return limits->max_stream_tokens > 0 ? limits->max_stream_tokens : limits->max_tokens;
}

void part_arrays_open(struct part_arrays *arrays, const struct step_limits *limits) {
    int32_t **const by_token[] = {&arrays->positions, &arrays->kv_rows,      &arrays->extents,
                                  &arrays->kept,      &arrays->token_places, &arrays->tokens,
                                  &arrays->page_rows, &arrays->before};
    int32_t **const by_row[] = {&arrays->logit_rows, &arrays->targets, &arrays->row_places};
    *arrays = (struct part_arrays){0};
    arrays->parts = mem_zeroed(limits->max_requests, sizeof *arrays->parts);
    arrays->n_rows = mem_zeroed(limits->max_requests, sizeof *arrays->n_rows);
    arrays->masked = mem_zeroed(most_tokens(limits), sizeof *arrays->masked);
    for (size_t i = 0; i < sizeof by_token / sizeof by_token[0]; i++) {
        *by_token[i] = mem_zeroed(most_tokens(limits), sizeof(int32_t));
    }
    for (size_t i = 0; i < sizeof by_row / sizeof by_row[0]; i++) {
        *by_row[i] = mem_zeroed(limits->max_logit_rows, sizeof(int32_t));
    }
}

void part_arrays_close(struct part_arrays *arrays) {
    void *const all[] = {arrays->parts,     arrays->n_rows,       arrays->positions,
                         arrays->kv_rows,   arrays->extents,      arrays->kept,
                         arrays->masked,    arrays->token_places, arrays->logit_rows,
                         arrays->targets,   arrays->row_places,   arrays->tokens,
                         arrays->page_rows, arrays->before};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    *arrays = (struct part_arrays){0};
}

void members_open(struct members *members, struct sessions *sessions) {
    *members = (struct members){.sessions = sessions};
    part_arrays_open(&members->whole, &sessions->limits);
}

void members_close(struct members *members) {
    part_arrays_close(&members->whole);
}

/* ---- positions ---- */

bool members_is_listed(const struct system *system, const struct request *request) {
    bool in_block = request->causal == SEES_BLOCKS && request->span.phase != PHASE_PREFILL;
    return system_leaves_out(system) && (in_block || request->causal == SEES_CANVAS);
}

bool members_is_masked(const struct planned_step *planned, uint32_t member, uint32_t position) {
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    uint32_t offset = position - window_first(request);
    if (!window_has(request, position)) {
        return position >= window_first(request);
    }
    return block != NULL ? block->masked[offset] != 0 : offset >= window_decided(request);
}

/* Positions of a span that checks drafts that are the masks', the last of it. */
static uint32_t check_queries(const struct members *members, const struct request *request) {
    return members->sessions->system->speculates && speculation_is_check(request)
               ? window_length(request)
               : 0;
}

/* Of the queries of the member's span; where it lists them, which of them are masked, or decide on
 * positions that are. */
static int plan_positions(struct members *members, uint32_t member, bool lists, struct err *err) {
    const struct planned_step *planned = members->planned;
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    const struct row_sets *rows = &request->rows;
    const struct span *span = &request->span;
    const char *cache = members->sessions->system->cache->policy.name;
    int32_t *positions = members->whole.positions + members->whole.n_tokens;
    uint8_t *masked = members->whole.masked + members->whole.n_tokens;
    const bool has_blocks = request->causal == SEES_BLOCKS || request->causal == SEES_CANVASES;
    bool is_block = span->exact && has_blocks && span->phase != PHASE_PREFILL;
    if (lists && block == NULL) {
        return err_usage(err,
                         "the record has counts alone, where a step of request %" PRIu64
                         " runs some positions of its block and leaves others out",
                         request->id);
    }
    const uint32_t n_masks = check_queries(members, request), n_queries = span->queries - n_masks;
    if (!lists && is_block && span->context + n_queries != window_end(request)) {
        return err_usage(err, "cache %s runs parts of a block, which the engine does not", cache);
    }
    const bool is_before = lists && rows_are_before(rows, request);
    uint32_t n = 0, end = lists ? rows->run.end : rows->run.first + n_queries;
    for (uint32_t row = rows->run.first; row < end; row++) {
        const uint32_t position = row + is_before;
        bool in_block = lists && window_has(request, position);
        if (in_block && rows->skips && !block->run[position - window_first(request)]) {
            continue;
        }
        if (n < span->queries) {
            positions[n] = (int32_t)row;
            masked[n] = lists && members_is_masked(planned, member, position);
        }
        n++;
    }
    for (uint32_t i = 0; i < n_masks; i++) {
        positions[n] = (int32_t)(window_first(request) + i);
        masked[n++] = 0;
    }
    return n == span->queries ? 0
                              : err_world(err,
                                          "cache %s says that request %" PRIu64 " runs %" PRIu32
                                          " positions, of which its canvas has %" PRIu32,
                                          cache, request->id, span->queries, n);
}

/* Of the whole canvas, where features are kept: those of the prompt that run are given, and the
 * others too where a step chooses none of them. */
static void plan_stream(struct members *members, const struct request *request,
                        struct step_part *part) {
    int32_t *positions = members->whole.positions + members->whole.n_tokens;
    const struct row_sets *rows = &request->rows;
    const uint32_t prompt = request->prompt_tokens;
    const uint32_t of_prompt = rows->run.first < prompt ? prompt - rows->run.first : 0;
    for (uint32_t i = 0; i < request->span.first_queries; i++) {
        positions[i] = (int32_t)i;
    }
    part->run.first = (int32_t)rows->run.first;
    part->run.given = (int32_t)(rows->n_chosen > 0 ? of_prompt : request->span.queries);
}

/* ---- keys and values ---- */

/* A span that checks: queries of the window with their drafts, which see what is before them, and
 * as many masks, each of which sees the drafts before it and itself. The drafts follow the canvas,
 * and keys and values of the masks those of the window; a mask's token is that of its own position,
 * which is one where anybody asks what comes of it. */
static void plan_check(struct members *members, const struct request *request, uint32_t n_masks,
                       struct step_part *part) {
    struct part_arrays *to = &members->whole;
    int32_t *tokens = to->tokens + to->n_tokens, *rows = to->page_rows + to->n_tokens;
    int32_t *before = to->before + to->n_tokens, *extents = to->extents + to->n_tokens;
    const uint32_t masks_at = request->span.queries - n_masks, drafts_at = masks_at - n_masks;
    for (uint32_t i = 0; i < request->span.queries; i++) {
        const int32_t position = part->positions[i];
        const bool is_mask = i >= masks_at, is_draft = i >= drafts_at && !is_mask;
        tokens[i] = is_draft ? (int32_t)(request->canvas_tokens + i - drafts_at) : position;
        rows[i] = is_mask ? (int32_t)(window_end(request) + i - masks_at) : position;
        extents[i] = is_mask || is_draft ? rows[i] + 1 : extents[i];
        before[i] = is_mask ? position : extents[i] - 1;
    }
    part->tokens = tokens;
    part->kv_pages.rows = rows;
    part->kv_pages.before = before;
}

static void plan_pages(struct members *members, const struct request *request, uint32_t slot,
                       struct step_part *part) {
    const struct sessions *sessions = members->sessions;
    const int32_t *pages;
    const int32_t n_pages = (int32_t)sessions_pages(sessions, slot, &pages);
    int32_t *extents = members->whole.extents + members->whole.n_tokens;
    for (uint32_t i = 0; i < request->span.queries; i++) {
        extents[i] = (int32_t)window_extent(request, (uint32_t)part->positions[i]);
    }
    part->kv_pages = (struct kv_pages){
        .pages = pages,
        .writes = sessions->follows ? shared_pages_writes(&sessions->shared, slot) : NULL,
        .n_pages = n_pages,
        .extent = extents};
    const uint32_t n_masks = check_queries(members, request);
    if (n_masks > 0) {
        plan_check(members, request, n_masks, part);
    }
}

/* Of a request that attends by its pattern, or chooses one, its words; of others nothing is read.
 */
static int32_t pattern_rows(const struct row_sets *rows) {
    return rows->n_chosen > 0 || rows->attends > 0 ? (int32_t)rows->held : 0;
}

static int plan_store(struct members *members, const struct request *request, uint32_t slot,
                      struct step_part *part, struct err *err) {
    const struct system *system = members->sessions->system;
    const struct span *span = &request->span;
    const struct row_sets *rows = &request->rows;
    int32_t *kv_rows = members->whole.kv_rows + members->whole.n_tokens;
    bool chosen = rows_are_chosen(rows);
    bool writes =
        rows->kind != ROW_FEATURES &&
        range_common(rows->run, rows->keep[0]) + range_common(rows->run, rows->keep[1]) > 0;
    part->kv.n_rows = rows->kind == ROW_PATTERN
                          ? pattern_rows(rows)
                          : (int32_t)(chosen ? rows->n_chosen : rows_kept(rows));
    part->pattern = (struct pattern_choice){.rest = (int32_t)rows->pattern.rest,
                                            .keep = (int32_t)rows->pattern.keep,
                                            .keep_rest = (int32_t)rows->pattern.keep_rest};
    part->block_start = window_first(request); /* read where the span selects */
    part->block_end = window_end(request);
    part->kv_rows = !chosen && writes ? kv_rows : NULL;
    for (uint32_t i = 0; part->kv_rows != NULL && i < span->queries; i++) {
        kv_rows[i] = rows_place(rows, (uint32_t)part->positions[i]);
    }
    int64_t first_byte = part->kv.n_rows > 0 ? members->sessions->by_slot[slot].store_bytes : 0;
    part->kv.first = first_byte / graph_cache_element_bytes(&system->graph);
    return part->kv.n_rows * system->row_bytes <= request->kv_bytes
               ? 0
               : err_world(err,
                           "cache %s keeps %" PRId32 " rows of request %" PRIu64
                           " but holds memory for %" PRId64,
                           system->cache->policy.name, part->kv.n_rows, request->id,
                           request->kv_bytes / system->row_bytes);
}

/* ---- logit rows ---- */

/* The positions that the span's logit rows decide on, of which the masked ones alone where the
 * scope says so. */
static struct range scope_of(const struct settings *settings, const struct request *request) {
    bool is_full = !request->span.exact && request->span.queries == request->canvas_tokens;
    const struct range block = {window_first(request), request->span.logit_rows > 0
                                                           ? window_end(request)
                                                           : window_first(request)};
    if (request->span.exact &&
        (!blocks_decide(request) || settings->logit_scope == LOGITS_QUERIES)) {
        return block;
    }
    if (settings->logit_scope == LOGITS_QUERIES) {
        const uint32_t ahead = rows_are_before(&request->rows, request);
        return (struct range){request->rows.head.first + ahead, request->rows.head.end + ahead};
    }
    return settings->logit_scope == LOGITS_GENERATION && is_full && window_steps(request) == 0
               ? (struct range){request->prompt_tokens, request->canvas_tokens}
               : block;
}

/* Whether a pass drafts what the next one checks, by a record. */
static bool only_drafts(const struct members *members, uint32_t member) {
    const struct planned_block *block = members_block(members->planned, member);
    const uint32_t length = window_length(members_request(members->planned, member));
    bool commits = !members->sessions->system->speculates || block == NULL;
    for (uint32_t i = 0; !commits && i < length; i++) {
        commits = block->outcome[i] == OUTCOME_COMMIT;
    }
    return !commits;
}

/* What a row decides on: nothing where a record says that the step commits another position, or, in
 * a span that lists them, where the position was decided already, even if what it was given is the
 * mask's id. The prompt's first token stands for nothing, since it is no mask. Where a position has
 * a place its row keeps it, and so does the first one where what its row says is kept. */
static int32_t target_of(const struct members *members, uint32_t member, uint32_t position,
                         bool lists, bool is_masked) {
    const struct planned_step *planned = members->planned;
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    bool commits = !planned->is_recorded || block == NULL || !window_has(request, position) ||
                   only_drafts(members, member) ||
                   block->outcome[position - window_first(request)] == OUTCOME_COMMIT ||
                   block->outcome[position - window_first(request)] == OUTCOME_REVISE;
    bool has_place = members->sessions->free_places != NULL && !lists;
    bool may_be_kept =
        system_keeps_row(members->sessions->system) && position == window_first(request);
    return (has_place || may_be_kept || commits) && (is_masked || !lists) ? (int32_t)position : 0;
}

/* The row that decides on the i-th position of a span's list: where logits are shifted the one
 * before it, which is listed before any that is masked, or whose place that is (rows_are_before).
 * The first stands in for the one before it, as Dream's own code has it. */
static int32_t listed_row(const struct members *members, const struct request *request,
                          const struct step_part *part, uint32_t i, bool is_masked) {
    const bool is_shifted = members->sessions->system->model->shifted_logits;
    if (i == 0 || !is_shifted || rows_are_before(&request->rows, request)) {
        return (int32_t)i;
    }
    ASSERT(!is_masked || part->positions[i - 1] + 1 == part->positions[i]);
    return (int32_t)i - 1;
}

/* Where a model's logits speak of the position after their query's, the query before the target is
 * taken; the first query of a span stands in for the one before it, as Dream's own code has it.
 * What decides on the first position of an exact block is the pass before it. A listed position
 * that is not decided on keeps its own row. */
static uint32_t plan_rows(struct members *members, uint32_t member, bool lists,
                          struct step_part *part) {
    const struct system *system = members->sessions->system;
    const struct request *request = members_request(members->planned, member);
    struct part_arrays *to = &members->whole;
    int32_t *rows = to->logit_rows + to->n_logit_rows, *targets = to->targets + to->n_logit_rows;
    const uint8_t *masked = to->masked + to->n_tokens;
    const struct range scope = scope_of(&system->settings, request);
    bool decides = blocks_decide(request);
    bool masked_alone = decides && system->settings.logit_scope == LOGITS_MASKED;
    bool is_shifted = system->model->shifted_logits || request->causal == SEES_TOKENS;
    const uint32_t ahead = lists && rows_are_before(&request->rows, request);
    uint32_t left = members->sessions->limits.max_logit_rows - to->n_logit_rows;
    uint32_t n = 0, n_before = 0, n_block = 0;
    uint32_t n_candidates = lists ? request->span.queries : range_length(scope);
    const int32_t n_masks = (int32_t)check_queries(members, request);
    for (uint32_t i = 0; i < n_candidates && n < left; i++) {
        uint32_t position = lists ? (uint32_t)part->positions[i] + ahead : scope.first + i;
        int32_t query = (int32_t)position - part->positions[0] + n_masks;
        bool is_masked =
            lists ? masked[i] != 0
                  : masked_alone && members_is_masked(members->planned, member, position);
        if (!range_has(scope, position) || (masked_alone && !is_masked)) {
            continue;
        }
        n_before += position < window_first(request);
        n_block += position - window_first(request) < window_active(request);
        const int32_t target = target_of(members, member, position, lists, is_masked);
        rows[n] = lists && target == 0      ? (int32_t)i
                  : lists                   ? listed_row(members, request, part, i, is_masked)
                  : is_shifted && query > 0 ? query - 1
                                            : query;
        targets[n++] = target;
    }
    part->decision.first_row = n_before;
    part->decision.n_rows = decides ? n_block : 0;
    return n;
}

/* The same of a span that looks ahead to a block: its last rows, each of which speaks of the
 * position after its query's, and the last of them decides where the span yields a token. */
static uint32_t plan_ahead_rows(struct members *members, const struct request *request,
                                struct step_part *part) {
    struct part_arrays *to = &members->whole;
    int32_t *rows = to->logit_rows + to->n_logit_rows, *targets = to->targets + to->n_logit_rows;
    uint32_t left = members->sessions->limits.max_logit_rows - to->n_logit_rows;
    uint32_t n = request->span.logit_rows < left ? request->span.logit_rows : left;
    for (uint32_t r = 0; r < n; r++) {
        rows[r] = (int32_t)(request->span.queries - n + r);
        targets[r] = part->positions[rows[r]] + 1;
    }
    part->decision =
        (struct decision){.first_row = n - 1, .n_rows = blocks_yield(request), .take = 1};
    return n;
}

/* ---- places and decisions ---- */

/* -1: the position is none of the active block, or the pass decides nothing. */
static int32_t place_of(const struct members *members, const struct request *request, uint32_t slot,
                        int32_t position) {
    bool has_one = blocks_decide(request) && window_has(request, (uint32_t)position);
    return has_one ? (int32_t)(sessions_first_place(members->sessions, slot) + position -
                               window_first(request))
                   : -1;
}

/* Of the positions that queries stand at and that rows decide on; empty when a block begins. */
static int plan_places(struct members *members, const struct request *request, uint32_t slot,
                       struct step_part *part, struct err *err) {
    struct part_arrays *to = &members->whole;
    bool smooths = members->sessions->system->settings.iteration == ITERATION_SMOOTH;
    int32_t *rows = to->row_places + to->n_logit_rows, *tokens = to->token_places + to->n_tokens;
    for (uint32_t r = 0; r < request->span.logit_rows; r++) {
        rows[r] = place_of(members, request, slot, part->targets[r]);
    }
    for (uint32_t t = 0; smooths && t < request->span.first_queries; t++) {
        tokens[t] = place_of(members, request, slot, part->positions[t]);
    }
    part->row_places = rows;
    part->token_places = smooths ? tokens : NULL;
    part->steps = request->steps;
    return blocks_decide(request) && window_steps(request) == 0
               ? sessions_empty_places(members->sessions, slot, err)
               : 0;
}

/* A rule that revises does not look at the prompt's positions, nor at anything once it has had its
 * passes over a block without masks. */
static void plan_revising(const struct members *members, uint32_t member,
                          struct decision *decision) {
    const struct request *request = members_request(members->planned, member);
    const struct planned_block *block = members_block(members->planned, member);
    const uint32_t n_fixed = block != NULL ? block->n_fixed : 0;
    const uint32_t n = decision->n_rows > n_fixed ? n_fixed : decision->n_rows;
    decision->first_row += n;
    decision->n_rows -= n;
    if (window_masked(request) == 0 && window_earlier(request) >= members->rule.post_passes) {
        decision->n_rows = 0;
    }
}

/* Who decides on a part's rows, and by which numbers. */
static void plan_decision(struct members *members, uint32_t member, const uint32_t *take,
                          struct decision *decision) {
    const struct request *request = members_request(members->planned, member);
    const struct system *system = members->sessions->system;
    members->rule = decoder_rule(system->decoder, system->decoder_state, request);
    decision->threshold = members->rule.threshold;
    decision->key = members->rule.key;
    if (take != NULL) {
        decision->take = *take;
        decision->n_rows = *take > 0 ? decision->n_rows : 0;
    } else if (system->decoder->count != NULL) {
        decision->take = request->commit_tokens;
    } else if (system_host_chooses(system)) {
        decision->n_rows = 0; /* the host decides */
    } else if (members->rule.kind == DECODE_JOINT) {
        decision->least = even_steps_least(request, &members->rule);
        plan_revising(members, member, decision);
    }
}

/* A record's pass takes what was kept for the window's first position from the host, and commits
 * the others. */
static void plan_kept_row(struct members *members, uint32_t member, struct step_part *part) {
    const enum kept kept = members_kept_row(members, member).kind;
    struct decision *decision = &part->decision;
    if (kept == KEPT_NONE || decision->n_rows == 0) {
        return;
    }
    const struct planned_block *block = members_block(members->planned, member);
    const bool commits = block != NULL && block->outcome[0] == OUTCOME_COMMIT;
    if (kept == KEPT_READ || !commits) {
        decision->first_row++;
        decision->n_rows--;
    }
}

/* ---- a member ---- */

/* Tokens of a canvas of random ones are drawn at its pass's temperature. */
static void plan_renoising(const struct system *system, const struct request *request,
                           struct step_part *part) {
    const struct renoise_canvas canvas = {
        .request = request->id, .first = window_first(request), .steps = window_steps(request)};
    part->draw_key = renoise_draw_key(system->decoder_state, &canvas);
    part->drawing.temperature = (float)renoise_temperature(system->decoder_state, canvas.steps);
}

static int plan_member(struct members *members, uint32_t member, const uint32_t *take,
                       struct step_part *part, struct err *err) {
    struct sessions *sessions = members->sessions;
    uint32_t slot = planned_slot(members->planned, member);
    const struct request *request = &members->planned->requests[slot];
    bool lists = members_is_listed(sessions->system, request), ahead = blocks_look_ahead(request);
    if (request->rows.kind == ROW_FEATURES) {
        plan_stream(members, request, part);
    } else if (plan_positions(members, member, lists, err) != 0) {
        return err_status(err);
    }
    part->draw_key = window_draw_key(request, sessions->draw_seed);
    part->drawing = system_drawing(sessions->system, &request->sampling);
    if (sessions->system->renoises) {
        plan_renoising(sessions->system, request, part);
    }
    if (lists && request->rows.chooser == CHOSEN_BY_POLICY) {
        part->masked = members->whole.masked + members->whole.n_tokens;
    }
    if (sessions_are_exact(sessions)) {
        plan_pages(members, request, slot, part);
    } else if (plan_store(members, request, slot, part, err) != 0) {
        return err_status(err);
    }
    uint32_t n =
        ahead ? plan_ahead_rows(members, request, part) : plan_rows(members, member, lists, part);
    uint32_t n_span = request->span.logit_rows;
    members->whole.n_rows[member] = ahead || !lists ? n_span : n;
    /* A record's span has the rows that its eviction left. */
    bool narrows = members->planned->is_recorded && part->masked != NULL && blocks_decide(request);
    if (narrows && n > n_span) {
        part->decision.n_rows = n_span;
    } else if (n != n_span) {
        return err_world(err,
                         "request %" PRIu64 " has %" PRIu32 " logit rows in its span, the engine "
                         "finds %" PRIu32,
                         request->id, n_span, n);
    }
    if (ahead && take == NULL) {
        return 0; /* whatever the decoder */
    }
    if (sessions->free_places != NULL && plan_places(members, request, slot, part, err) != 0) {
        return err_status(err);
    }
    plan_decision(members, member, take, &part->decision);
    if (members->planned->is_recorded && take != NULL) {
        plan_kept_row(members, member, part);
    }
    return 0;
}

/* A padding request, computed and discarded, where the cache is exact: as many queries as its span
 * has, at the last positions that it holds rows of, up to the span's own; fresh keys and values are
 * not stored. */
static int plan_idle(struct members *members, uint32_t member, struct step_part *part,
                     struct err *err) {
    struct part_arrays *to = &members->whole;
    const uint32_t slot = planned_slot(members->planned, member);
    const struct request *request = &members->planned->requests[slot];
    const struct span *span = &request->span;
    const int32_t *pages;
    int64_t held = (int64_t)sessions_pages(members->sessions, slot, &pages) *
                   system_page_rows(members->sessions->system);
    int64_t end = (int64_t)span->context + span->queries;
    end = held < end ? held : end;
    if (end < span->queries) {
        return err_world(
            err, "request %" PRIu64 " runs %" PRIu32 " queries idle but holds %" PRId64 " rows",
            request->id, span->queries, end);
    }
    for (uint32_t i = 0; i < span->queries; i++) {
        to->positions[to->n_tokens + i] = (int32_t)(end - span->queries + i);
    }
    plan_pages(members, request, slot, part);
    part->kv_pages.reads_only = true;
    for (uint32_t i = 0; i < span->queries; i++) {
        to->extents[to->n_tokens + i] = (int32_t)end;
    }
    for (uint32_t r = 0; r < span->logit_rows; r++) {
        to->logit_rows[to->n_logit_rows + r] = (int32_t)r;
        to->targets[to->n_logit_rows + r] = part->positions[r];
    }
    to->n_rows[member] = span->logit_rows;
    return 0;
}

/* ---- the step ---- */

static int plan_parts(struct members *members, const uint32_t *take, struct err *err) {
    const struct planned_step *planned = members->planned;
    const struct sessions *sessions = members->sessions;
    struct part_arrays *to = &members->whole;
    for (uint32_t i = 0; i < planned_spans(planned); i++) {
        uint32_t slot = planned_slot(planned, i);
        bool is_idle = i >= planned->n_slots;
        struct step_part *part = &to->parts[i];
        *part = (struct step_part){.canvas = sessions->by_slot[slot].canvas,
                                   .positions = to->positions + to->n_tokens,
                                   .logit_rows = to->logit_rows + to->n_logit_rows,
                                   .targets = to->targets + to->n_logit_rows};
        const struct span *span = &planned->requests[slot].span;
        const uint32_t queries =
            span->first_queries > span->queries ? span->first_queries : span->queries;
        if (to->n_tokens + queries > most_tokens(&sessions->limits)) {
            return err_usage(err,
                             "a step of more than the %" PRIu32 " tokens the engine was opened for",
                             most_tokens(&sessions->limits));
        }
        int status =
            is_idle && sessions_are_exact(sessions)
                ? plan_idle(members, i, part, err)
                : plan_member(members, i, take != NULL && !is_idle ? &take[i] : NULL, part, err);
        if (status != 0) {
            return status;
        }
        if (is_idle) { /* of it nothing changes */
            part->decision.n_rows = 0;
            part->row_places = part->kv_rows = NULL;
        }
        to->n_tokens += queries;
        to->n_logit_rows += to->n_rows[i];
    }
    return 0;
}

int members_plan(struct members *members, const struct planned_step *planned, const uint32_t *take,
                 const struct placement *placement, struct step *step, struct err *err) {
    const struct system *system = members->sessions->system;
    uint32_t n = planned_spans(planned), most = members->sessions->limits.max_requests;
    if (n > most) {
        return err_usage(err,
                         "a batch of %" PRIu32 " requests, but the engine was opened for %" PRIu32,
                         n, most);
    }
    members->planned = planned;
    members->decided = &members->whole;
    members->seen = (struct eviction){0};
    members->whole.n_tokens = members->whole.n_logit_rows = 0;
    sessions_follow(members->sessions, planned->pages);
    if (sessions_make_room(members->sessions, placement, err) != 0 ||
        plan_parts(members, take, err) != 0) {
        return err_status(err);
    }
    struct decode_credit credit = {0};
    if (system->decoder->credit != NULL) {
        system->decoder->credit(system->decoder_state, &credit);
    }
    *step = (struct step){.placement = placement,
                          .shape = planned->shape,
                          .parts = members->whole.parts,
                          .rule = members->rule,
                          .credit = credit};
    return 0;
}

void members_decide_nothing(struct members *members) {
    for (uint32_t i = 0; i < planned_spans(members->planned); i++) {
        members->whole.parts[i].decision.n_rows = 0;
        members->whole.parts[i].row_places = NULL;
    }
}

/* ---- what it commits ---- */

bool members_note_commit(const struct planned_step *planned, uint32_t member, int32_t target) {
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    uint32_t offset = (uint32_t)target - window_first(request);
    const bool was_masked =
        block != NULL && offset < window_length(request) && block->masked[offset];
    if (was_masked) {
        block->outcome[offset] = OUTCOME_COMMIT;
    }
    return was_masked;
}

static void note_revision(const struct planned_step *planned, uint32_t member, int32_t target) {
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    if (block != NULL && window_has(request, (uint32_t)target)) {
        block->outcome[(uint32_t)target - window_first(request)] = OUTCOME_REVISE;
    }
}

/* The device decided on n positions that were decided before: they had been given the mask's own
 * token, as happens where there is no other. As many others count as decided, from the left. */
static void note_in_place(const struct planned_step *planned, uint32_t member, uint32_t n) {
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    for (uint32_t at = 0; block != NULL && at < window_active(request) && n > 0; at++) {
        if (block->masked[at] && block->keep[at] && block->outcome[at] == OUTCOME_NONE) {
            block->outcome[at] = OUTCOME_COMMIT;
            n--;
        }
    }
}

void members_settle(const struct members *members, const uint8_t *committed) {
    for (uint32_t i = 0; i < members->planned->n_slots; i++) {
        const struct step_part *part = &members->decided->parts[i];
        uint32_t n_again = 0;
        for (uint32_t r = 0; r < part->decision.n_rows; r++) {
            uint32_t row = part->decision.first_row + r;
            if (committed[row] == DECIDE_COMMIT) {
                n_again += !members_note_commit(members->planned, i, part->targets[row]);
            } else if (committed[row] == DECIDE_REVISE) {
                note_revision(members->planned, i, part->targets[row]);
            }
        }
        if (!blocks_yield(members_request(members->planned, i))) {
            note_in_place(members->planned, i, n_again);
        }
        committed += members->decided->n_rows[i];
    }
}

void members_count(const struct planned_step *planned, uint32_t *commits) {
    for (uint32_t i = 0; i < planned->n_slots; i++) {
        const struct request *request = members_request(planned, i);
        const struct planned_block *block = members_block(planned, i);
        if (block != NULL) {
            commits[i] = 0;
            for (uint32_t at = 0; at < window_length(request); at++) {
                commits[i] += block->outcome[at] == OUTCOME_COMMIT;
            }
        }
        commits[i] = blocks_yield(request) ? 1 : commits[i];
    }
}

struct kept_row members_kept_row(const struct members *members, uint32_t member) {
    const struct request *request = members_request(members->planned, member);
    const struct step_part *part = &members->decided->parts[member];
    const int32_t first = (int32_t)window_first(request);
    if (!system_keeps_row(members->sessions->system) || request->span.logit_rows == 0) {
        return (struct kept_row){KEPT_NONE, 0};
    }
    if (blocks_look_ahead(request)) {
        return (struct kept_row){KEPT_WRITTEN, request->span.logit_rows - 1};
    }
    const bool is_own = part->positions[part->logit_rows[0]] == first;
    return (struct kept_row){part->targets[0] != first ? KEPT_NONE
                             : is_own                  ? KEPT_READ
                                                       : KEPT_WRITTEN,
                             0};
}

uint32_t members_masked_rows(const struct members *members, uint32_t member, uint32_t *rows) {
    const struct request *request = members_request(members->planned, member);
    const int32_t *targets = members->decided->parts[member].targets;
    uint32_t n = 0;
    for (uint32_t row = 0; blocks_decide(request) && row < members->decided->n_rows[member];
         row++) {
        uint32_t target = (uint32_t)targets[row];
        if (target - window_first(request) < window_active(request) &&
            members_is_masked(members->planned, member, target)) {
            rows[n++] = row;
        }
    }
    return n;
}
