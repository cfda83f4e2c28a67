#include "sim/serve/lifecycle.h"

#include <inttypes.h>
#include <string.h>

#include "sim/policy/cache/blocks.h"
#include "sim/serve/cancel.h"
#include "sim/serve/cluster.h"
#include "sim/serve/fit.h"
#include "sim/serve/plan.h"
#include "sim/serve/report.h"
#include "sim/serve/telling.h"
#include "sim/serve/text_end.h"
#include "sim/serve/unroll.h"

/* ---- the one table of transitions ---- */

static const uint8_t transitions[REQUEST_STATE_COUNT][REQUEST_STATE_COUNT] = {
    [REQUEST_PENDING] = {[REQUEST_QUEUED] = 1, [REQUEST_REJECTED] = 1},
    [REQUEST_QUEUED] = {[REQUEST_RUNNING] = 1, [REQUEST_REJECTED] = 1},
    [REQUEST_RUNNING] = {[REQUEST_DONE] = 1, [REQUEST_PREEMPTED] = 1, [REQUEST_REJECTED] = 1},
    [REQUEST_PREEMPTED] = {[REQUEST_RUNNING] = 1, [REQUEST_REJECTED] = 1},
};

static void request_move(struct request *request, enum request_state to) {
    ASSERT(transitions[request->state][to]);
    request->state = to;
}

/* ---- a replica's sums ---- */

static void sums_add(struct replica *replica, const struct request *request, int sign) {
    shape_add(replica->sym, &request->span, sign);
    replica->n_by_phase[request->span.phase] += (uint32_t)sign;
    replica->growth_bytes += sign * (request->kv_bytes - request->kv_held_bytes);
}

/* ---- the host's memory ---- */

static int swap_out(struct lifecycle *life, struct replica *replica, uint32_t slot,
                    struct err *err) {
    struct request *request = &life->requests[slot];
    const struct executor *executor = &life->asked->executor;
    const uint32_t index = life->tracked[slot].replica;
    life->tracked[slot].is_swapped = true;
    request->host_bytes = request->kv_held_bytes;
    replica->host_used_bytes += request->host_bytes;
    replica->swap.n_out++;
    replica->swap.out_bytes += request->host_bytes + life->system->place_bytes;
    return executor->swap_out != NULL
               ? executor->swap_out(executor->state, index, slot, request, err)
               : 0;
}

/* What it holds lies in the replica's memory again. */
static void swap_in(struct lifecycle *life, struct replica *replica, uint32_t slot) {
    struct request *request = &life->requests[slot];
    life->tracked[slot].is_swapped = false;
    replica->swap.n_in++;
    replica->swap.in_bytes += request->host_bytes + life->system->place_bytes;
    replica->host_used_bytes -= request->host_bytes;
    request->host_bytes = 0;
}

/* A preempted request leaves before it is admitted again. */
static void drop(struct lifecycle *life, struct replica *replica, uint32_t slot) {
    struct request *request = &life->requests[slot];
    const struct executor *executor = &life->asked->executor;
    replica->host_used_bytes -= request->host_bytes;
    request->host_bytes = 0;
    if (executor->drop != NULL) {
        executor->drop(executor->state, life->tracked[slot].replica, slot);
    }
}

/* ---- arrival ---- */

static int reject_arrival(struct lifecycle *life, const struct arrival *arrival,
                          struct request_record record, enum reject_reason reason,
                          struct err *err) {
    record.answer_tokens = request_record_of(arrival).answer_tokens; /* no device said another */
    record.state = REQUEST_REJECTED;
    record.reason = reason;
    record.finished_ns = life->now_ns;
    life->result->rejected++;
    int status = report_event(life, EVENT_REJECT, arrival->id, 0, reason, err);
    return status != 0 ? status : report_request(life, &record, err);
}

static void waiting_push(struct lifecycle *life, struct replica *replica, uint32_t slot) {
    if (replica->head + replica->n_waiting == 2 * life->n_slots) {
        memmove(replica->waiting, replica->waiting + replica->head,
                replica->n_waiting * sizeof *replica->waiting);
        replica->head = 0;
    }
    replica->waiting[replica->head + replica->n_waiting++] = slot;
}

/* Those that do not wait any more are left out. */
static void waiting_drop(const struct lifecycle *life, struct replica *replica, uint32_t moved) {
    uint32_t *waiting = replica->waiting + replica->head, kept = 0;
    for (uint32_t i = 0; i < replica->n_waiting; i++) {
        uint32_t state = life->requests[waiting[i]].state;
        if (waiting[i] != moved && (state == REQUEST_QUEUED || state == REQUEST_PREEMPTED)) {
            waiting[kept++] = waiting[i];
        }
    }
    replica->n_waiting = kept;
    replica->head = kept == 0 ? 0 : replica->head;
}

/* Back to the head of the queue. */
static void waiting_return(struct lifecycle *life, struct replica *replica, uint32_t slot) {
    if (replica->head == 0) {
        memmove(replica->waiting + life->n_slots, replica->waiting,
                replica->n_waiting * sizeof *replica->waiting);
        replica->head = life->n_slots;
    }
    replica->waiting[--replica->head] = slot;
    replica->n_waiting++;
}

static void take_slot(struct lifecycle *life, uint32_t slot) {
    if (life->n_free > 0) {
        life->n_free--;
    } else {
        life->n_taken++;
    }
    if (life->own_bytes > 0) {
        memset(life->own + slot * life->own_bytes, 0, life->own_bytes);
    }
}

/* It waits at a replica from now on. */
static int place(struct lifecycle *life, uint32_t slot, uint32_t index, struct err *err) {
    const struct request *request = &life->requests[slot];
    struct replica *replica = &life->replicas[index];
    life->tracked[slot].replica = index;
    cluster_settle(life, life->tracked[slot].session, index);
    replica->outstanding_tokens += request->output_tokens - request->committed_tokens;
    replica->wake_ns = INT64_MAX;
    waiting_push(life, replica, slot);
    cluster_queued(life, index);
    life->has_moved = true;
    int status = sharing_wait(life, slot, err);
    return status != 0 ? status : telling_one(life, index, HAPPENED_ARRIVAL, slot, err);
}

/* To the replica that the router says; `*is_held`: it is held back until `*until_ns`. */
static int route(struct lifecycle *life, uint32_t slot, bool *is_held, int64_t *until_ns,
                 struct err *err) {
    const uint32_t home = cluster_home(life, life->tracked[slot].session);
    uint32_t chosen = cluster_route(life, slot, home, until_ns);
    *is_held = life->n_replicas > 1 && chosen == ROUTE_HOLD;
    if (*is_held) {
        return cluster_check_hold(life, slot, *until_ns, err);
    }
    if (chosen >= life->n_replicas) {
        return plan_broken_promise(life, &life->system->router->policy, "router",
                                   "the index of a replica", chosen, 0,
                                   (int64_t)life->n_replicas - 1, err);
    }
    return place(life, slot, chosen, err);
}

static void hold(struct lifecycle *life, uint32_t slot, int64_t until_ns) {
    life->held[life->n_held] = slot;
    life->held_until_ns[life->n_held++] = until_ns;
    life->held_soonest_ns = until_ns < life->held_soonest_ns ? until_ns : life->held_soonest_ns;
}

/* A request that fits is queued where the router says. */
static int enqueue(struct lifecycle *life, uint32_t slot, struct err *err) {
    bool is_held;
    int64_t until_ns = INT64_MAX;
    take_slot(life, slot);
    request_move(&life->requests[slot], REQUEST_QUEUED);
    int status = route(life, slot, &is_held, &until_ns, err);
    if (status != 0 || !is_held) {
        return status;
    }
    hold(life, slot, until_ns);
    return report_event(life, EVENT_HOLD, life->requests[slot].id, 0, 0, err);
}

int lifecycle_ask_held(struct lifecycle *life, struct err *err) {
    const uint32_t n = life->n_held;
    if (n == 0 || (!life->has_changed && life->held_soonest_ns > life->now_ns)) {
        return 0;
    }
    const bool asks_all = life->has_changed;
    life->has_changed = false;
    life->held_soonest_ns = INT64_MAX;
    int status = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        const uint32_t slot = life->held[i];
        int64_t until_ns = life->held_until_ns[i];
        bool is_held = true;
        life->n_held = kept + n - i - 1;
        if (asks_all || until_ns <= life->now_ns) {
            until_ns = INT64_MAX;
            status = route(life, slot, &is_held, &until_ns, err);
        }
        if (status == 0 && is_held) {
            life->n_held = kept++;
            hold(life, slot, until_ns);
        }
    }
    life->n_held = status == 0 ? kept : life->n_held;
    return status;
}

static int move(struct lifecycle *life, const struct route_move *move, struct err *err) {
    const uint32_t from = life->tracked[move->slot].replica;
    struct replica *replica = &life->replicas[from];
    const struct request *request = &life->requests[move->slot];
    waiting_drop(life, replica, move->slot);
    replica->outstanding_tokens -= request->output_tokens - request->committed_tokens;
    replica->wake_ns = INT64_MAX;
    cluster_changed(life, from);
    int status = telling_one(life, from, HAPPENED_END, move->slot, err);
    if (life->own_bytes > 0) {
        memset(life->own + move->slot * life->own_bytes, 0, life->own_bytes);
    }
    status = status != 0 ? status : place(life, move->slot, move->to, err);
    return status != 0 ? status : report_event(life, EVENT_MOVE, request->id, move->to, from, err);
}

int lifecycle_ask_moves(struct lifecycle *life, struct err *err) {
    uint32_t n = 0;
    if (life->moves == NULL || !life->has_moved) {
        return 0;
    }
    int status = cluster_moves(life, &n, err);
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        status = cluster_check_move(life, &life->moves[i], err);
        status = status != 0 ? status : move(life, &life->moves[i], err);
    }
    life->has_moved = false;
    return status;
}

static struct request request_of(const struct system *system, const struct arrival *arrival) {
    const struct settings *settings = &system->settings;
    return (struct request){
        .id = arrival->id,
        .arrival_ns = arrival->arrival_ns,
        .prompt_tokens = arrival->prompt_tokens,
        .output_tokens = arrival->output_tokens,
        .canvas_tokens = arrival->prompt_tokens + arrival->output_tokens,
        .block_tokens = settings->block_tokens,
        .steps_per_block = settings->steps_per_block,
        .causal = system_causality(system->model),
        .tenant = arrival->tenant,
        .priority = arrival->priority,
        .predicted_tokens = arrival->predicted_tokens,
        .sampling = arrival->sampling,
        .deadline_ns = arrival->due_ns > 0 ? arrival->arrival_ns + arrival->due_ns : INT64_MAX,
        .admitted_ns = -1,
        .first_token_ns = -1,
        .shifted = system_shifts(system),
        .state = REQUEST_PENDING,
    };
}

static struct tracked *track(struct lifecycle *life, uint32_t slot, const struct arrival *arrival) {
    if (life->recalls != NULL) {
        life->recalls[slot] = (struct recall){0};
    }
    life->tracked[slot] = (struct tracked){
        .session = arrival->session, .follows = arrival->follows, .place = arrival->place};
    return &life->tracked[slot];
}

int lifecycle_arrive(struct lifecycle *life, const struct arrival *arrival, struct err *err) {
    const struct system *system = life->system;
    const struct settings *settings = &system->settings;
    life->result->arrived++;
    if (report_arrival(life, arrival, err) != 0) {
        return err_status(err);
    }
    if ((uint64_t)arrival->prompt_tokens + arrival->output_tokens > settings->context_tokens) {
        return reject_arrival(life, arrival, request_record_of(arrival), REJECT_CONTEXT, err);
    }
    if (life->n_free == 0 && life->n_taken == life->n_slots) {
        return reject_arrival(life, arrival, request_record_of(arrival), REJECT_QUEUE, err);
    }
    uint32_t slot = life->n_free > 0 ? life->free_slots[life->n_free - 1] : life->n_taken;
    struct request *request = &life->requests[slot];
    life->n_used = slot < life->n_used ? life->n_used : slot + 1;
    *request = request_of(system, arrival);
    struct tracked *tracked = track(life, slot, arrival);
    cancel_from(life, slot, arrival->cancel_ns);
    sharing_arrive(life, slot, arrival);
    text_end_open(life, slot, arrival);
    if (life->has_positions) {
        positions_start(&life->positions, slot, text_end_drawn(life, slot));
    }
    if (system->revises) {
        window_allow_edits(request);
    }
    window_allow_blocks(request, settings->blocks_in_flight);
    if (settings->window_slides) {
        window_allow_sliding(request);
    }
    window_enter(request, 0);
    plan_block(life, slot);
    plan_marks(life, slot);
    plan_memory(life, request);
    int status = plan_step(life, request, tracked, err);
    if (status != 0) {
        return status;
    }
    enum reject_reason reason = fit_alone(life, slot);
    if (reason != REJECT_NONE) {
        sharing_leave(life, slot);
        return reject_arrival(life, arrival, report_record_of(life, slot), reason, err);
    }
    /* A trace has no passes of requests that were rejected. */
    if (life->asked->decode != NULL) {
        bool stops = settings->early_stop != STOP_NEVER;
        struct recall *recall = &life->recalls[slot];
        status = recall_open(recall, life->asked->decode, request, stops, err);
        tracked->answer_tokens = recall->answer_tokens;
        status = status != 0 ? status : plan_step(life, request, tracked, err);
        if (status != 0) {
            return status;
        }
    }
    return enqueue(life, slot, err);
}

/* Returns by how much it grew. */
static int64_t take_memory(struct lifecycle *life, struct replica *replica,
                           struct request *request) {
    int64_t growth = request->kv_bytes - request->kv_held_bytes;
    if (growth == 0 && request->kv_held_bytes > 0) {
        return 0;
    }
    replica->growth_bytes -= growth;
    if (sharing_has_pages(life)) {
        sharing_take(life, replica, (uint32_t)(request - life->requests));
    } else {
        replica->kv_used_bytes += growth;
        request->kv_held_bytes = request->kv_bytes;
    }
    ASSERT(replica->kv_used_bytes <= life->system->budget.pool_bytes);
    if (replica->kv_used_bytes > life->result->kv_peak_bytes) {
        life->result->kv_peak_bytes = replica->kv_used_bytes;
    }
    return growth;
}

int lifecycle_grow(struct lifecycle *life, struct replica *replica, uint32_t slot,
                   struct err *err) {
    struct request *request = &life->requests[slot];
    const struct executor *executor = &life->asked->executor;
    bool grows = take_memory(life, replica, request) > 0;
    return grows && executor->grow != NULL
               ? executor->grow(executor->state, life->tracked[slot].replica, slot, request, err)
               : 0;
}

struct replica_load lifecycle_load(const struct lifecycle *life, const struct replica *replica) {
    const struct budget *budget = &life->system->budget;
    return (struct replica_load){
        .now_ns = life->now_ns,
        .kv_free_bytes = budget->pool_bytes - replica->kv_used_bytes,
        .kv_total_bytes = budget->pool_bytes,
        .n_running = replica->n_running,
        .n_waiting = replica->n_waiting,
        .max_requests = budget->max_requests > 0 ? budget->max_requests : UINT32_MAX,
        .max_batched_tokens = life->system->settings.max_batched_tokens,
    };
}

/* It was planned before anything was known of where it would run. What exact rows take was counted
 * on by the scheduler, and stays. */
static int load_anew(struct lifecycle *life, const struct replica *replica, uint32_t slot,
                     struct err *err) {
    struct request *request = &life->requests[slot];
    if (!life->reads_load) {
        return 0;
    }
    request->load = lifecycle_load(life, replica);
    return request->span.exact ? 0 : plan_step(life, request, &life->tracked[slot], err);
}

int lifecycle_admit(struct lifecycle *life, struct replica *replica, uint32_t slot,
                    struct err *err) {
    struct request *request = &life->requests[slot];
    bool is_first = request->admitted_ns < 0;
    bool returns = life->tracked[slot].is_swapped;
    int status = returns ? 0 : load_anew(life, replica, slot, err);
    request_move(request, REQUEST_RUNNING);
    if (is_first) {
        request->admitted_ns = life->now_ns;
        life->tracked[slot].prefix_tokens = request->cached_tokens;
    }
    replica->running[replica->n_running++] = slot;
    sums_add(replica, request, 1);
    take_memory(life, replica, request);
    uint32_t index = life->tracked[slot].replica;
    const struct executor *executor = &life->asked->executor;
    if (status == 0 && executor->admit != NULL) {
        struct beginning beginning;
        status = executor->admit(executor->state, index, slot, request,
                                 sharing_beginning(life, slot, &beginning), err);
    }
    status = status == 0 ? kept_prefixes_take(life, replica, slot, err) : status;
    if (returns) {
        swap_in(life, replica, slot);
    }
    return status != 0
               ? status
               : report_event(life, EVENT_ADMIT, request->id, index, request->cached_tokens, err);
}

/* ---- progress ---- */

/* Account for the steps since the present span was planned. */
static void settle_tracked(struct tracked *tracked, const struct request *request) {
    uint32_t done = tracked->steps_planned - request->steps_to_change;
    tracked->tokens_processed += (uint64_t)done * request->span.queries;
    if (request->span.phase == PHASE_REFRESH) {
        tracked->refresh_steps += done;
    }
    if (text_end_is_behind(tracked, request)) {
        tracked->steps_after_end += done;
        tracked->tokens_after_end += (uint64_t)done * request->span.queries;
    }
    tracked->steps_planned = request->steps_to_change;
}

static void give_memory(struct lifecycle *life, struct replica *replica, uint32_t slot,
                        bool returns) {
    struct request *request = &life->requests[slot];
    if (sharing_has_pages(life)) {
        sharing_release(life, replica, slot, returns);
    } else {
        replica->kv_used_bytes -= request->kv_held_bytes;
    }
}

static int depart(struct lifecycle *life, struct replica *replica, uint32_t slot,
                  enum request_state state, enum reject_reason reason, struct err *err) {
    struct request *request = &life->requests[slot];
    const struct tracked *tracked = &life->tracked[slot];
    bool held = request->state == REQUEST_RUNNING;
    if (request->state == REQUEST_PREEMPTED) {
        drop(life, replica, slot);
    }
    request_move(request, state);
    if (state == REQUEST_DONE) {
        sharing_known(life, slot);
    }
    if (held) {
        give_memory(life, replica, slot, false);
        if (life->asked->executor.release != NULL) {
            life->asked->executor.release(life->asked->executor.state, tracked->replica, slot);
        }
    }
    replica->outstanding_tokens -= request->output_tokens - request->committed_tokens;
    report_pause_over(life, replica, slot, life->now_ns);
    struct request_record record = report_record_of(life, slot);
    record.state = state;
    record.reason = reason;
    record.finished_ns = life->now_ns;
    sharing_leave(life, slot);
    life->free_slots[life->n_free++] = slot;
    *(state == REQUEST_DONE ? &life->result->completed : &life->result->rejected) += 1;
    int status = report_event(life, state == REQUEST_DONE ? EVENT_FINISH : EVENT_REJECT,
                              request->id, tracked->replica, reason, err);
    return status != 0 ? status : report_request(life, &record, err);
}

static void drop_departed(struct lifecycle *life, struct replica *replica) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < replica->n_running; i++) {
        uint32_t slot = replica->running[i];
        if (life->requests[slot].state == REQUEST_RUNNING) {
            replica->running[kept++] = slot;
        }
    }
    replica->n_running = kept;
}

/* A block's last position was committed. */
static int end_block(struct lifecycle *life, uint32_t slot, struct err *err) {
    const struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    if (window_block(request) == 0) {
        life->requests[slot].first_token_ns = life->now_ns;
        tracked->first_block_tokens = request->committed_tokens;
    }
    return report_block(life, request, tracked->replica, err);
}

/* Whether a block without masked positions has more to do: its keys and values to write. */
static bool commits_block(struct lifecycle *life, uint32_t slot) {
    struct request *request = &life->requests[slot];
    const void *memory = NULL, *state = life->system->cache_state;
    if (request->span.exact && life->has_positions) {
        positions_plan(&life->positions, slot, request, true);
        memory = positions_memory(&life->positions, slot);
    }
    return !text_end_is_in_ring(life, request) &&
           cache_writes_more(life->system->cache, state, memory, request);
}

static void commit_chosen(const struct lifecycle *life, struct replica *replica,
                          struct request *request, uint32_t member, uint32_t chosen) {
    window_commit(request, chosen);
    replica->n_deciding++;
    replica->n_decided += chosen;
    report_commits(life, replica, request, chosen);
    replica->outstanding_tokens -= chosen;
    if (life->asked->records_members) {
        replica->member_commits[member] = chosen;
    }
}

/* Positions that are masked again. */
static void take_back(const struct lifecycle *life, struct replica *replica,
                      struct request *request, uint32_t member, uint32_t n) {
    window_take_back(request, n);
    replica->n_decided -= n;
    replica->outstanding_tokens += n;
    if (life->asked->records_members) {
        replica->member_passes[member].unmasked = n;
    }
}

/* Whether a pass that filled `n_filled` positions, and by which nothing is masked any more, is the
 * last one that its block has for that: then no other follows that replaces tokens. */
static bool fills_last(const struct system *system, const struct request *request,
                       uint32_t n_filled) {
    if (!system->revises || n_filled == 0 || window_masked(request) > 0) {
        return false;
    }
    const uint32_t steps = decoder_rule_always(system->decoder, system->decoder_state).steps;
    return steps > 0 && window_steps(request) >= steps;
}

/* Positions that were given another token, and whether more may be, in a pass that filled n_filled.
 */
static void revise(struct lifecycle *life, struct replica *replica, struct request *request,
                   uint32_t member, uint32_t n, uint32_t n_filled, bool goes_on) {
    const uint32_t slot = (uint32_t)(request - life->requests);
    if (!goes_on || fills_last(life->system, request, n_filled)) {
        window_end_edits(request);
        if (life->has_positions) {
            life->positions.blocks[slot].is_revised = false;
        }
    }
    life->tracked[slot].revised_tokens += n;
    if (life->asked->records_members) {
        replica->member_passes[member].revised = n;
    }
}

/* The first position of the active block, by the logits of what is before it. */
static void take_yield(struct lifecycle *life, struct replica *replica, uint32_t slot,
                       uint32_t member) {
    struct request *request = &life->requests[slot];
    commit_chosen(life, replica, request, member, 1);
    if (life->has_positions) {
        positions_enter(&life->positions, slot, request, 1);
    }
}

/* A pass over the block's positions, and what came of it: by the executor's word, or drawn. */
static int pass_block(struct lifecycle *life, struct replica *replica, uint32_t slot,
                      uint32_t member, const struct decided *known, struct err *err) {
    struct request *request = &life->requests[slot];
    bool decides = blocks_decide(request), counts = life->system->decoder->count != NULL;
    bool is_known = known != NULL && known->positions;
    uint32_t count = counts
                         ? request->commit_tokens
                         : (known != NULL && known->commits != NULL ? known->commits[member] : 0);
    struct outcomes found;
    if (!positions_pass(&life->positions, slot, request, is_known, count, decides, &found)) {
        return err_world(err,
                         "%s %s has request %" PRIu64 " run or commit other positions of its block "
                         "at %.3f s than are left to it",
                         is_known ? "what is known of a run of" : "cache",
                         is_known ? life->system->name : life->system->cache->policy.name,
                         request->id, (double)life->now_ns * 1e-9);
    }
    if (life->asked->records_members) {
        report_positions(life, replica, slot, member);
    }
    if (is_known && life->asked->records_members &&
        life->system->rows.chooser == CHOSEN_BY_POLICY) {
        struct decode_pass *pass = &replica->member_passes[member];
        positions_kept(&life->positions, slot, &pass->kept, &pass->reach);
    }
    if (!decides) {
        return 0;
    }
    uint32_t most = counts ? count : window_masked(request);
    if (plan_check_outcomes(life, request, &found, most, err) != 0) {
        return (int)err->kind;
    }
    commit_chosen(life, replica, request, member, found.n[OUTCOME_COMMIT]);
    take_back(life, replica, request, member, found.n[OUTCOME_AGAIN]);
    revise(life, replica, request, member, found.n[OUTCOME_REVISE], found.n[OUTCOME_COMMIT],
           life->positions.blocks[slot].is_revised);
    plan_front(life, slot);
    return 0;
}

/* The block is decoded as far as it has to be: the request enters the next block with anything to
 * do, or leaves. `yields`: the pass decided on the first position of a block to come. */
static int leave_block(struct lifecycle *life, struct replica *replica, uint32_t slot,
                       uint32_t member, bool yields, struct err *err) {
    struct request *request = &life->requests[slot];
    int status = 0;
    while (status == 0 && !window_front_is_open(request) && !commits_block(life, slot)) {
        const bool carries = window_has_several(request);
        if ((request->committed_tokens == request->output_tokens && !carries) ||
            request->answer_tokens > 0) {
            return depart(life, replica, slot, REQUEST_DONE, REJECT_NONE, err);
        }
        window_enter_next(request);
        (carries ? plan_carried : plan_block)(life, slot);
        if (yields) {
            take_yield(life, replica, slot, member);
        }
        if (yields || carries) {
            status = !window_front_is_open(request) ? end_block(life, slot, err) : 0;
            status =
                status == 0 && text_end_matters(life) ? text_end_look(life, slot, err) : status;
        }
        if (status == 0 && text_end_stops(life, request)) {
            return depart(life, replica, slot, REQUEST_DONE, REJECT_NONE, err);
        }
    }
    if (life->reads_load) {
        request->load = life->load;
    }
    plan_marks(life, slot);
    status = status != 0 ? status : plan_step(life, request, &life->tracked[slot], err);
    if (status == 0) {
        sums_add(replica, request, 1);
    }
    return status;
}

/* The span's time is up: commit, move to the next block or leave, plan anew. */
static int request_turn(struct lifecycle *life, struct replica *replica, uint32_t slot,
                        uint32_t member, const struct decided *known, struct err *err) {
    struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    struct recall *recall = lifecycle_recall(life, slot);
    bool in_block = request->span.phase != PHASE_PREFILL, decides = blocks_decide(request);
    bool was_done = unroll_block_was_done(life, request), yields = blocks_yield(request);
    int status = 0;
    settle_tracked(tracked, request);
    sums_add(replica, request, -1);
    if (request->span.phase == PHASE_REFRESH) {
        request->overdue_steps = 0;
    }
    if (request->span.exact) {
        blocks_cache(request);
        sharing_written(life, replica, slot, sharing_exact(request));
    } else if (request->span.phase == PHASE_PREFILL) {
        status = kept_prefixes_keep(life, replica, slot, err);
    }
    if (was_done) {
        status = unroll_pass(life, replica, slot, err);
    } else if (life->has_positions && (in_block || decides)) {
        status = pass_block(life, replica, slot, member, known, err);
    } else if (recall != NULL && request->commit_tokens == 0 && (in_block || decides || yields)) {
        const bool decided = window_masked(request) == 0;
        uint32_t chosen = recall_pass(recall), revised = recall->revised;
        commit_chosen(life, replica, request, member, yields ? 0 : chosen);
        take_back(life, replica, request, member, recall->unmasked);
        revise(life, replica, request, member, revised, chosen, !decided || revised > 0);
    }
    if (yields && !in_block) {
        take_yield(life, replica, slot, member);
        decides = true;
    }
    if (status == 0 && !window_front_is_open(request) && replica->steps_ahead > 0) {
        /* Inside an unrolled group: the step repeats without host synchronisation. */
        request->steps_to_change = tracked->steps_planned = 1;
        sums_add(replica, request, 1);
        return 0;
    }
    if (status == 0 && decides && text_end_matters(life)) {
        status = text_end_look(life, slot, err);
    }
    bool stops = text_end_stops(life, request);
    if (status == 0 && decides && (!window_front_is_open(request) || stops)) {
        status = end_block(life, slot, err);
    }
    if (status == 0 && stops) {
        return depart(life, replica, slot, REQUEST_DONE, REJECT_NONE, err);
    }
    return status != 0 ? status : leave_block(life, replica, slot, member, yields, err);
}

void lifecycle_chunk(struct lifecycle *life, struct replica *replica, uint32_t slot,
                     uint32_t tokens) {
    struct request *request = &life->requests[slot];
    sums_add(replica, request, -1);
    request->span.queries = request->span.first_queries = tokens;
    request->rows.run.end = request->rows.run.first + tokens;
    request->span.logit_rows = request->commit_tokens = 0;
    request->steps_to_change = life->tracked[slot].steps_planned = 1;
    sums_add(replica, request, 1);
}

int lifecycle_say(struct lifecycle *life, struct replica *replica, uint32_t slot,
                  uint32_t width_tokens, uint32_t threshold_millionths, struct err *err) {
    struct request *request = &life->requests[slot];
    const struct request before = *request;
    if (!window_say(request, width_tokens, threshold_millionths)) {
        return 0;
    }
    sums_add(replica, &before, -1);
    plan_block(life, slot);
    int status = plan_step(life, request, &life->tracked[slot], err);
    sums_add(replica, request, 1);
    return status;
}

int lifecycle_plan_anew(struct lifecycle *life, struct replica *replica, uint32_t slot,
                        struct err *err) {
    struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    settle_tracked(tracked, request);
    sums_add(replica, request, -1);
    int status = plan_step(life, request, tracked, err);
    sums_add(replica, request, 1);
    return status;
}

/* What it committed stays, and its cached state does not. */
static int forget(struct lifecycle *life, uint32_t slot, struct err *err) {
    struct request *request = &life->requests[slot];
    request->cached_tokens = 0;
    window_forget(request);
    if (lifecycle_recall(life, slot) != NULL) {
        recall_forget(&life->recalls[slot]);
    }
    if (life->has_positions) {
        positions_forget(&life->positions, slot);
    }
    int status = plan_step(life, request, &life->tracked[slot], err);
    return status != 0 ? status : sharing_wait(life, slot, err);
}

int lifecycle_preempt(struct lifecycle *life, struct replica *replica, uint32_t slot, bool swaps,
                      struct err *err) {
    struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    settle_tracked(tracked, request);
    sums_add(replica, request, -1);
    request_move(request, REQUEST_PREEMPTED);
    int status = swaps ? swap_out(life, replica, slot, err) : 0;
    give_memory(life, replica, slot, true);
    request->kv_held_bytes = 0;
    request->preemptions++;
    report_pause(life, replica, slot);
    if (life->asked->executor.release != NULL) {
        life->asked->executor.release(life->asked->executor.state, tracked->replica, slot);
    }
    drop_departed(life, replica);
    waiting_return(life, replica, slot);
    status = status != 0 || swaps ? status : forget(life, slot, err);
    return status != 0
               ? status
               : report_event(life, EVENT_PREEMPT, request->id, tracked->replica, swaps, err);
}

void lifecycle_took_part(struct lifecycle *life, const struct replica *replica, int64_t start_ns) {
    const bool is_partial = replica->n_batch < replica->n_running;
    if (!is_partial && life->n_paused == 0) {
        return;
    }
    life->n_partial++;
    for (uint32_t i = 0; i < replica->n_batch; i++) {
        report_pause_over(life, replica, replica->batch[i], start_ns);
        life->tracked[replica->batch[i]].took_part = life->n_partial;
    }
    for (uint32_t i = 0; is_partial && i < replica->n_running; i++) {
        if (life->tracked[replica->running[i]].took_part != life->n_partial) {
            report_pause(life, replica, replica->running[i]);
        }
    }
}

/* Counts `steps` steps of every member. Returns for how many members the present plan ends with
 * them; their indices in the batch are then in life->together. */
static uint32_t count_steps(struct lifecycle *life, struct replica *replica, uint32_t steps,
                            int64_t wall_ns) {
    const uint32_t n = replica->n_batch, *batch = replica->batch;
    /* Where positions are followed, as many are committed as there turn out to be. */
    const uint32_t counted = life->has_positions ? 0 : steps;
    struct request *requests = life->requests;
    uint32_t *ends = life->together, n_ends = 0;
    uint64_t n_committed = 0;
    const bool any_prefill = replica->n_by_phase[PHASE_PREFILL] > 0;
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &requests[batch[i]];
        uint32_t in_block = any_prefill && request->span.phase == PHASE_PREFILL ? 0 : steps;
        uint32_t committed = counted * request->commit_tokens;
        request->steps += steps;
        window_advance(request, in_block, committed);
        request->steps_to_change -= steps;
        n_committed += committed;
        ends[n_ends] = i;
        n_ends += request->steps_to_change == 0;
    }
    for (uint32_t i = 0; life->keeps_all && i < n; i++) {
        struct request *request = &requests[batch[i]];
        request->service_ns += wall_ns;
        request->service_tokens += (uint64_t)steps * request->span.queries;
    }
    for (uint32_t i = 0; life->recalls != NULL && i < n; i++) {
        struct recall *recall = lifecycle_recall(life, batch[i]);
        if (recall != NULL && requests[batch[i]].commit_tokens > 0) {
            recall_skip(recall, steps);
        }
    }
    replica->outstanding_tokens -= n_committed;
    return n_ends;
}

int lifecycle_advance(struct lifecycle *life, struct replica *replica, uint32_t steps,
                      int64_t wall_ns, const struct decided *known, struct err *err) {
    uint64_t n_departed = life->result->completed;
    uint32_t n_ends = count_steps(life, replica, steps, wall_ns);
    if (life->reads_load) {
        life->load = lifecycle_load(life, replica);
    }
    for (uint32_t i = 0; i < n_ends; i++) {
        uint32_t member = life->together[i], slot = replica->batch[member];
        int status = request_turn(life, replica, slot, member, known, err);
        if (status != 0) {
            return status;
        }
    }
    if (life->result->completed != n_departed) {
        drop_departed(life, replica);
    }
    return 0;
}

int lifecycle_reject(struct lifecycle *life, uint32_t slot, enum reject_reason reason,
                     struct err *err) {
    struct request *request = &life->requests[slot];
    settle_tracked(&life->tracked[slot], request);
    return depart(life, &life->replicas[life->tracked[slot].replica], slot, REQUEST_REJECTED,
                  reason, err);
}

int lifecycle_take_out(struct lifecycle *life, uint32_t slot, enum reject_reason reason,
                       struct err *err) {
    const struct request *request = &life->requests[slot];
    const uint32_t index = life->tracked[slot].replica;
    struct replica *replica = &life->replicas[index];
    const bool runs = request->state == REQUEST_RUNNING;
    ASSERT(!runs || !replica->busy);
    if (runs) {
        sums_add(replica, request, -1);
    }
    int status = lifecycle_reject(life, slot, reason, err);
    if (runs) {
        drop_departed(life, replica);
    } else {
        waiting_drop(life, replica, slot);
    }
    replica->wake_ns = INT64_MAX;
    life->has_changed = life->has_moved = true;
    cluster_changed(life, index);
    cluster_due(life, index);
    return status != 0 ? status : telling_one(life, index, HAPPENED_END, slot, err);
}

int lifecycle_reject_listed(struct lifecycle *life, struct replica *replica,
                            const struct batch *batch, struct err *err) {
    const uint32_t index = (uint32_t)(replica - life->replicas);
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < batch->n_rejected; i++) {
        status = lifecycle_reject(life, batch->rejected[i], REJECT_OWN + batch->reasons[i], err);
        status =
            status != 0 ? status : telling_one(life, index, HAPPENED_END, batch->rejected[i], err);
    }
    waiting_drop(life, replica, UINT32_MAX);
    return status;
}
