#include "sim/serve/plan.h"

#include <inttypes.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/policy/cache/blocks.h"

int plan_broken_promise(const struct lifecycle *life, const struct policy *policy, const char *kind,
                        const char *what, int64_t found, int64_t least, int64_t most,
                        struct err *err) {
    return err_world(err,
                     "%s %s broke its promise at %.3f s: %s is %" PRId64 ", expected %" PRId64
                     " to %" PRId64,
                     kind, policy->name, (double)life->now_ns * 1e-9, what, found, least, most);
}

int plan_check_outcomes(const struct lifecycle *life, const struct request *request,
                        const struct outcomes *found, uint32_t most, struct err *err) {
    const struct decoder *decoder = life->system->decoder;
    const bool takes_back = decoder->take_back != NULL || life->system->speculates ||
                            life->system->moves ||
                            (window_masked(request) == 0 && window_is_revised(request));
    uint32_t least = takes_back ? 0 : 1, n = found->n[OUTCOME_COMMIT];
    if (n < least || n > most) {
        return plan_broken_promise(life, &decoder->policy, "decoder", "the positions it commits", n,
                                   least, most, err);
    }
    int64_t passes = (int64_t)DECODER_MOST_PASSES * window_length(request);
    return !takes_back || window_steps(request) <= passes
               ? 0
               : plan_broken_promise(life, &decoder->policy, "decoder",
                                     "the passes that a block takes", window_steps(request), 1,
                                     passes, err);
}

void plan_block(struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    if (life->has_positions) {
        positions_enter(&life->positions, slot, request, window_decided(request));
    }
}

void plan_front(struct lifecycle *life, uint32_t slot) {
    struct request *request = &life->requests[slot];
    if (window_slides(request)) {
        window_slide(request, block_known_in_front(&life->positions.blocks[slot]));
    } else if (window_has_several(request)) {
        window_list(request, window_uncached(request),
                    block_known_in_front(&life->positions.blocks[slot]));
    }
}

void plan_carried(struct lifecycle *life, uint32_t slot) {
    positions_carry(&life->positions, slot, &life->requests[slot]);
    plan_front(life, slot);
}

/* Whether so much of a block in flight is decided that the next one may be. */
static bool lets_next(const struct lifecycle *life, uint32_t slot, uint32_t mark) {
    const struct request *request = &life->requests[slot];
    const struct range range = window_mark(request, mark);
    const uint32_t last_end = life->tracked[slot].last_end;
    if (last_end > 0 && range.end >= last_end) {
        return false;
    }
    const uint32_t length = range_length(range);
    const uint32_t decided = length - positions_masked(&life->positions, slot, request, range);
    return decided >= life->system->settings.block_add_threshold * length;
}

static bool add_block(struct lifecycle *life, uint32_t slot) {
    struct request *request = &life->requests[slot];
    if (!window_add_block(request)) {
        return false;
    }
    positions_extend(&life->positions, slot, request);
    return true;
}

void plan_several(struct lifecycle *life, uint32_t slot) {
    const struct settings *settings = &life->system->settings;
    struct request *request = &life->requests[slot];
    uint32_t mark = 0;
    if (window_slides(request) && window_lengthen(request)) {
        positions_extend(&life->positions, slot, request);
    }
    if (window_most(request) == 1 || window_slides(request)) {
        return;
    }
    while (settings->static_blocks && add_block(life, slot)) {
    }
    while (lets_next(life, slot, mark) &&
           (mark + 1 < window_marks(request) || add_block(life, slot))) {
        mark++;
    }
    window_activate(request, mark);
}

void plan_memory(const struct lifecycle *life, struct request *request) {
    const struct system *system = life->system;
    request->kv_rows =
        cache_most_held(system->cache, system->cache_state, request) + system_check_rows(system);
    request->kv_bytes = budget_request_bytes(&system->budget, request->kv_rows) -
                        sharing_lent_bytes(life, (uint32_t)(request - life->requests));
}

/* Where the scheduler sees to growth, a request holds what the policy's last answer needs. */
static void grow_memory(const struct lifecycle *life, struct request *request) {
    if (request->span.exact && life->system->scheduler->grows) {
        request->kv_rows = request->rows.held + system_check_rows(life->system);
        request->kv_bytes = budget_request_bytes(&life->system->budget, request->kv_rows) -
                            sharing_lent_bytes(life, (uint32_t)(request - life->requests));
    }
}

/* Whether a decode trace gives only the counts that the request's decoder would give. Then steps
 * that commit the same number are planned as one, as without the trace, and a record of such steps
 * can be replayed. */
static bool recalls_counts(const struct lifecycle *life) {
    return !positions_wanted(life->system) && life->system->settings.unroll_maximum <= 1;
}

void plan_scope(const struct system *system, uint32_t candidates, struct request *request) {
    struct span *span = &request->span;
    bool first_pass =
        !span->exact && window_steps(request) == 0 && span->queries == request->canvas_tokens;
    span->logit_rows = system_scope_rows(
        &system->settings, span->logit_rows, request->output_tokens,
        rows_in_block(&request->rows, request),
        request->rows.chooser == CHOSEN_BY_POLICY ? window_masked(request) : candidates,
        first_pass);
    span->sampled_rows =
        system_sampled_rows(&system->settings, span->logit_rows, request->output_tokens);
}

uint32_t plan_holds(const struct system *system, const struct request *request, uint32_t holds) {
    const struct settings *settings = &system->settings;
    /* The first pass alone has the wider rows. */
    bool narrows = settings->logit_scope == LOGITS_GENERATION && window_steps(request) == 0;
    /* Its logit rows change, or it may end. */
    bool changes = settings->logit_scope == LOGITS_MASKED || settings->early_stop == STOP_POSITION;
    return narrows || changes ? 1 : holds;
}

/* Which of the positions that run go through the head. */
static int plan_logits(struct lifecycle *life, struct request *request, uint32_t slot,
                       struct err *err) {
    const struct system *system = life->system;
    uint32_t masked = window_masked(request);
    if (life->has_positions) {
        positions_run(&life->positions, slot, request);
        masked = positions_candidates(&life->positions, slot);
        if (masked == 0 && !window_is_revised(request)) {
            return plan_broken_promise(life, &system->cache->policy, "cache",
                                       "the masked positions it keeps", 0, 1,
                                       window_masked(request), err);
        }
    }
    plan_scope(system, masked, request);
    if (life->has_positions && positions_checks(&life->positions, slot)) {
        request->span.queries += window_length(request);
        request->span.first_queries = request->span.queries;
    }
    return 0;
}

/* Steps like the next that do not go beyond the first block; 1 where that one does. */
static uint32_t steps_to_end(const struct request *request) {
    uint32_t steps = window_front_masked(request) / request->commit_tokens;
    return steps > 0 ? steps : 1;
}

/* How many positions the step commits, and for how many steps no more than the span's `holds`. */
static int plan_commits(const struct lifecycle *life, struct request *request, uint32_t *holds,
                        struct err *err) {
    const struct system *system = life->system;
    const struct recall *recall = lifecycle_recall(life, (uint32_t)(request - life->requests));
    if (system->decoder->count != NULL && recall == NULL) {
        uint32_t repeat = 1;
        request->commit_tokens = system->decoder->count(system->decoder_state, request, &repeat);
        if (request->commit_tokens == 0 || request->commit_tokens > window_masked(request)) {
            return plan_broken_promise(life, &system->decoder->policy, "decoder",
                                       "the positions it commits", request->commit_tokens, 1,
                                       window_masked(request), err);
        }
        repeat = repeat > 0 ? repeat : 1;
        /* A shorter last step is a change of its own. */
        uint32_t to_end = steps_to_end(request);
        *holds = life->has_positions ? 1 : smaller(smaller(*holds, repeat), to_end);
    } else if (recall != NULL && recall->committed > 0 && recall->unmasked == 0 &&
               recalls_counts(life)) {
        request->commit_tokens = recall->committed;
        *holds = smaller(
            *holds, recall_repeats(recall, life->asked->decode, request, steps_to_end(request)));
    } else {
        request->commit_tokens = 0; /* known only after the step */
        *holds = 1;
    }
    return 0;
}

/* What graph and memory are made for is the same in all answers. */
static int check_facts(const struct system *system, const struct request *request,
                       struct err *err) {
    const struct row_sets *rows = &request->rows, *first = &system->rows;
    const struct {
        const char *name;
        uint32_t first, now;
    } facts[] = {{"kind", first->kind, rows->kind},
                 {"chooser", first->chooser, rows->chooser},
                 {"settles", first->settles, rows->settles},
                 {"evict_layer", first->evict_layer, rows->evict_layer},
                 {"lead_layers", first->lead_layers, rows->lead_layers},
                 {"recent", first->recent, rows->recent}};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        REFUSE_UNLESS(facts[i].first == facts[i].now,
                      "sets rows.%s to %" PRIu32 " and once to %" PRIu32
                      ", which is the same in all answers",
                      facts[i].name, facts[i].now, facts[i].first);
    }
    uint32_t kept = rows->kind == ROW_EXACT ? 0 : rows_kept(rows);
    REFUSE_UNLESS(kept == 0 || (kept == request->canvas_tokens) == system_keeps_canvas(system),
                  "keeps all of a canvas in one answer and a part of it in another");
    bool evicts = system->cache->evict != NULL;
    REFUSE_UNLESS((rows->chooser == CHOSEN_BY_POLICY) == evicts,
                  evicts ? "has the callback evict but does not name it as chooser"
                         : "names its callback evict as chooser but has none");
    return 0;
}

/* A canvas's rows are read where the step before left them: what is kept changes only in steps that
 * read nothing. */
static int check_places(const struct row_sets *before, const struct request *request,
                        struct err *err) {
    const struct row_sets *rows = &request->rows;
    REFUSE_UNLESS(rows->attends == 0 || (request->steps > 0 && (before->n_chosen == rows->attends ||
                                                                before->attends == rows->attends)),
                  "attends to %" PRIu32 " keys by a pattern that no step chose", rows->attends);
    if (rows->kind == ROW_EXACT || request->span.context == 0) {
        return 0;
    }
    REFUSE_UNLESS(request->steps > 0 && rows->n_chosen <= rows_kept(before),
                  "reads %" PRIu32 " rows before any step wrote them", request->span.context);
    REFUSE_UNLESS(
        memcmp(before->keep, rows->keep, sizeof rows->keep) == 0,
        "reads the rows of [%" PRIu32 ", %" PRIu32 ") and [%" PRIu32 ", %" PRIu32
        "), where those of [%" PRIu32 ", %" PRIu32 ") and [%" PRIu32 ", %" PRIu32 ") are kept",
        rows->keep[0].first, rows->keep[0].end, rows->keep[1].first, rows->keep[1].end,
        before->keep[0].first, before->keep[0].end, before->keep[1].first, before->keep[1].end);
    REFUSE_UNLESS(!rows_are_chosen(rows) || before->n_chosen == rows->n_chosen,
                  "reads %" PRIu32 " chosen rows of %" PRIu32, rows->n_chosen, before->n_chosen);
    return 0;
}

/* Exact rows never become fewer, and are the most in the last block. Others are as many over a
 * request's life. */
static int check_held(const struct system *system, const struct row_sets *before,
                      const struct request *request, struct err *err) {
    uint32_t held = request->rows.held;
    if (request->rows.kind != ROW_EXACT) {
        REFUSE_UNLESS(held == request->kv_rows,
                      "holds %" PRIu32 " rows in block %" PRIu32 " of a request and %" PRIu32
                      " in its last block",
                      held, window_block(request), request->kv_rows);
        return 0;
    }
    REFUSE_UNLESS(held >= before->held, "holds %" PRIu32 " rows after %" PRIu32, held,
                  before->held);
    uint32_t most =
        held > before->held ? cache_most_held(system->cache, system->cache_state, request) : held;
    REFUSE_UNLESS(held <= most,
                  "holds %" PRIu32 " rows in block %" PRIu32 " of a request and %" PRIu32
                  " in its last block",
                  held, window_block(request), most);
    return 0;
}

/* `before`: the answer to the request's last step. */
static int check_rows(const struct lifecycle *life, const struct row_sets *before,
                      const struct request *request, struct err *err) {
    struct err fault = {0};
    if (rows_check(&request->rows, request, &fault) == 0 &&
        check_facts(life->system, request, &fault) == 0 &&
        check_places(before, request, &fault) == 0 &&
        check_held(life->system, before, request, &fault) == 0) {
        return 0;
    }
    return err_world(err, "cache %s broke its promise at %.3f s: it %s",
                     life->system->cache->policy.name, (double)life->now_ns * 1e-9, fault.text);
}

bool plan_put_off(const struct lifecycle *life, uint32_t slot, struct span *span) {
    const struct system *system = life->system;
    const void *memory = life->has_positions ? positions_memory(&life->positions, slot) : NULL;
    struct request request = life->requests[slot];
    if (request.refresh_waits == 0) {
        return false;
    }
    (void)cache_put_off(system->cache, system->cache_state, memory, &request, &request.rows);
    rows_span(&request.rows, &request, &request.span);
    plan_scope(system, window_masked(&request), &request);
    *span = request.span;
    return true;
}

/* The refresh that the policy has answered: for how long it can wait, and, where the scheduler puts
 * it off, the step in its place. */
static int let_wait(const struct lifecycle *life, struct request *request, const void *memory,
                    uint32_t *holds, struct err *err) {
    const struct system *system = life->system;
    const uint32_t slot = (uint32_t)(request - life->requests);
    request->refresh_waits = 0;
    if (request->span.phase != PHASE_REFRESH) {
        return 0;
    }
    struct row_sets rows = request->rows;
    const uint32_t most = cache_put_off(system->cache, system->cache_state, memory, request, &rows);
    request->refresh_waits = most > request->overdue_steps ? most - request->overdue_steps : 0;
    struct span *const spared = most > 0 ? life->asked->spared : NULL;
    if (spared != NULL) {
        *spared = request->span;
        request->refresh_waits = 1;
    }
    const bool by_turns = life->asked->lets_wait && (request->id + request->steps) % 3 > 0;
    if ((!life->tracked[slot].puts_off && !by_turns && spared == NULL) ||
        request->refresh_waits == 0) {
        return 0;
    }
    request->rows = rows;
    rows_span(&request->rows, request, &request->span);
    *holds = 1;
    request->overdue_steps++;
    request->refresh_waits--;
    return request->span.phase != PHASE_REFRESH && request->span.queries > 0
               ? 0
               : err_world(err,
                           "cache %s broke its promise at %.3f s: put_off answers another refresh, "
                           "or runs nothing",
                           system->cache->policy.name, (double)life->now_ns * 1e-9);
}

/* The cache policy's answer, which has to be one that it may give. */
static int ask_cache(const struct lifecycle *life, struct request *request, uint32_t slot,
                     uint32_t *holds, struct err *err) {
    const struct system *system = life->system;
    const void *memory = life->has_positions ? positions_memory(&life->positions, slot) : NULL;
    struct row_sets before;
    if (life->checks_rows) {
        before = request->rows;
    }
    *holds = cache_plan(system->cache, system->cache_state, memory, request);
    if (*holds == 0 || request->span.first_queries == 0) {
        return plan_broken_promise(life, &system->cache->policy, "cache",
                                   *holds == 0 ? "the steps a span holds" : "the queries of a span",
                                   0, 1, UINT32_MAX, err);
    }
    if (life->keeps_all && system->cache->put_off != NULL &&
        let_wait(life, request, memory, holds, err) != 0) {
        return err_status(err);
    }
    return life->checks_rows ? check_rows(life, &before, request, err) : 0;
}

int plan_step(struct lifecycle *life, struct request *request, struct tracked *tracked,
              struct err *err) {
    const struct system *system = life->system;
    uint32_t slot = (uint32_t)(request - life->requests);
    window_list(request, window_uncached(request), window_decided(request));
    if (life->has_positions) {
        positions_plan(&life->positions, slot, request, life->asked->executor.decides_positions);
        if (tracked->run_tokens > 0 && request->rows.skips != 0) {
            positions_leave(&life->positions, slot, request, tracked->run_tokens, tracked->surest);
        }
    } else if (lifecycle_recall(life, slot) != NULL) {
        if (system->cache->memory_bytes > 0 && system->rows.chooser != CHOSEN_BY_POLICY) {
            return err_usage(err,
                             "cache %s plans by what it learns of each request, which a trace of "
                             "decisions does not tell",
                             system->cache->policy.name);
        }
        if (system->scheduler->says_rows != 0) {
            return err_usage(err,
                             "scheduler %s says which positions run by how sure the model was of "
                             "each, which a trace of decisions does not tell",
                             system->scheduler->policy.name);
        }
        int status = recall_plan(&life->recalls[slot], life->asked->decode, request, err);
        if (status != 0) {
            return status;
        }
    }
    uint32_t holds;
    if (ask_cache(life, request, slot, &holds, err) != 0) {
        return (int)err->kind;
    }
    grow_memory(life, request);
    tracked->span_holds = 1;
    if (!blocks_decide(request)) {
        request->commit_tokens = 0;
        request->steps_to_change = tracked->steps_planned = 1;
        return 0;
    }
    if (plan_logits(life, request, slot, err) != 0) {
        return (int)err->kind;
    }
    if (system->settings.logit_scope == LOGITS_GENERATION && window_steps(request) == 0) {
        holds = 1; /* the first pass alone has the wider rows */
    }
    tracked->span_holds = holds;
    if (plan_commits(life, request, &holds, err) != 0) {
        return (int)err->kind;
    }
    request->steps_to_change = tracked->steps_planned = plan_holds(system, request, holds);
    return 0;
}
