#include "sim/serve/report.h"

#include <string.h>

#include "sim/policy/cache/blocks.h"

const char *const reject_reason_names[REJECT_REASON_COUNT] = {
    "none",  "context", "kv",    "tokens", "activation", "queue", "shutdown", "own-1",
    "own-2", "own-3",   "own-4", "own-5",  "own-6",      "own-7", "own-8",    "cancelled",
};

bool reject_reason_is_named(uint32_t reason, const char *const *own) {
    uint32_t n = 0;
    while (own != NULL && own[n] != NULL && REJECT_OWN + n < reason) {
        n++;
    }
    return reason >= REJECT_OWN && own != NULL && own[n] != NULL;
}

const char *reject_reason_name(uint32_t reason, const char *const *own) {
    if (own == NULL || own[0] == NULL) {
        return reason == REJECT_OWN ? "scheduler" : reject_reason_names[reason];
    }
    return reject_reason_is_named(reason, own) ? own[reason - REJECT_OWN]
                                               : reject_reason_names[reason];
}

const char *const event_kind_names[EVENT_KIND_COUNT] = {
    "arrival", "admit", "preempt", "reject", "block-done", "finish", "hold", "move",
};

struct request_record request_record_of(const struct arrival *arrival) {
    return (struct request_record){
        .id = arrival->id,
        .tenant = arrival->tenant,
        .prompt_tokens = arrival->prompt_tokens,
        .output_tokens = arrival->output_tokens,
        .answer_tokens =
            arrival->answer_tokens > 0 ? arrival->answer_tokens : arrival->output_tokens,
        .session = arrival->session,
        .deadline_ns = arrival->due_ns > 0 ? (uint64_t)(arrival->arrival_ns + arrival->due_ns) : 0,
        .priority = arrival->priority,
        .predicted_tokens = arrival->predicted_tokens,
        .follows = arrival->follows,
        .place = arrival->place,
        .temperature_millionths = arrival->sampling.temperature,
        .top_p_millionths = arrival->sampling.top_p,
        .top_k = arrival->sampling.top_k,
        .sampling_seed = arrival->sampling.seed,
        .arrival_ns = arrival->arrival_ns,
        .admitted_ns = -1,
        .first_block_ns = -1,
        .finished_ns = -1,
    };
}

void report_pause(struct lifecycle *life, const struct replica *replica, uint32_t slot) {
    struct tracked *tracked = &life->tracked[slot];
    if (tracked->paused_since_ns == 0 && life->requests[slot].steps > 0) {
        tracked->paused_since_ns = replica->last_end_ns;
        life->n_paused += tracked->paused_since_ns > 0;
    }
}

void report_pause_over(struct lifecycle *life, const struct replica *replica, uint32_t slot,
                       int64_t now_ns) {
    struct tracked *tracked = &life->tracked[slot];
    const int64_t since_ns = tracked->paused_since_ns;
    if (since_ns > 0) {
        const int64_t ns = since_ns == replica->last_end_ns ? 0 : now_ns - since_ns;
        tracked->pause_ns = ns > tracked->pause_ns ? ns : tracked->pause_ns;
        tracked->paused_since_ns = 0;
        life->n_paused--;
    }
}

struct request_record report_record_of(const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    const struct tracked *tracked = &life->tracked[slot];
    const struct shared *shared = life->sharing.tracks ? &life->sharing.of[slot] : NULL;
    return (struct request_record){
        .id = request->id,
        .replica = tracked->replica,
        .tenant = request->tenant,
        .prompt_tokens = request->prompt_tokens,
        .output_tokens = request->output_tokens,
        .answer_tokens = tracked->answer_tokens,
        .arrival_ns = request->arrival_ns,
        .admitted_ns = request->admitted_ns,
        .first_block_ns = request->first_token_ns,
        .finished_ns = -1,
        .steps = request->steps,
        .refresh_steps = tracked->refresh_steps,
        .preemptions = request->preemptions,
        .first_block_tokens = tracked->first_block_tokens,
        .tokens_processed = tracked->tokens_processed,
        .committed_tokens = request->committed_tokens,
        .prefix_tokens = tracked->prefix_tokens,
        .shared_tokens = shared != NULL ? shared->shared_tokens : 0,
        .shared_with = shared != NULL ? shared->shared_with : 0,
        .session = tracked->session,
        .deadline_ns = request->deadline_ns < INT64_MAX ? (uint64_t)request->deadline_ns : 0,
        .priority = request->priority,
        .predicted_tokens = request->predicted_tokens,
        .follows = tracked->follows,
        .place = tracked->place,
        .temperature_millionths = request->sampling.temperature,
        .top_p_millionths = request->sampling.top_p,
        .top_k = request->sampling.top_k,
        .sampling_seed = request->sampling.seed,
        .revised_tokens = tracked->revised_tokens,
        .pause_ns = tracked->pause_ns,
#define KEPT(...)
#define SUMMED(type, name, ...) .name = tracked->name,
#include "sim/serve/request.def"
    };
}

static int tell_event(const struct lifecycle *life, const struct event_record *record,
                      struct err *err) {
    for (uint32_t i = 0; i < life->asked->n_sinks; i++) {
        const struct sink *sink = &life->asked->sinks[i];
        if (sink->event != NULL && sink->event(sink->state, record, err) != 0) {
            return (int)err->kind;
        }
    }
    return 0;
}

int report_event(struct lifecycle *life, enum event_kind kind, uint64_t id, uint32_t replica,
                 uint32_t detail, struct err *err) {
    if (!life->wants_events) {
        return 0;
    }
    const struct event_record record = {
        .time_ns = life->now_ns, .request = id, .kind = kind, .replica = replica, .detail = detail};
    return tell_event(life, &record, err);
}

int report_block(struct lifecycle *life, const struct request *request, uint32_t replica,
                 struct err *err) {
    if (!life->wants_events) {
        return 0;
    }
    const uint32_t end = window_first(request) + window_front(request);
    const struct event_record record = {.time_ns = life->now_ns,
                                        .request = request->id,
                                        .kind = EVENT_BLOCK_DONE,
                                        .replica = replica,
                                        .detail = window_block(request),
                                        .output_tokens = end - request->prompt_tokens};
    return tell_event(life, &record, err);
}

int report_arrival(struct lifecycle *life, const struct arrival *arrival, struct err *err) {
    for (uint32_t i = 0; i < life->asked->n_sinks; i++) {
        const struct sink *sink = &life->asked->sinks[i];
        if (sink->arrival != NULL && sink->arrival(sink->state, arrival, err) != 0) {
            return (int)err->kind;
        }
    }
    return report_event(life, EVENT_ARRIVAL, arrival->id, 0, 0, err);
}

int report_request(struct lifecycle *life, const struct request_record *record, struct err *err) {
    for (uint32_t i = 0; i < life->asked->n_sinks; i++) {
        const struct sink *sink = &life->asked->sinks[i];
        if (sink->request != NULL && sink->request(sink->state, record, err) != 0) {
            return (int)err->kind;
        }
    }
    if (life->asked->source.completed != NULL) {
        life->asked->source.completed(life->asked->source.state, record->id, life->now_ns);
    }
    return 0;
}

/* What the request's next step does to its active block: nothing, while it prefills. `counts`: its
 * decoder does; `evicts`: its cache policy. */
static inline struct decode_pass pass_of(const struct request *request, bool counts, bool evicts) {
    const struct span *span = &request->span;
    const bool was_done = !counts && blocks_decide(request) && !window_is_open(request);
    if (span->phase == PHASE_PREFILL && blocks_yield(request)) {
        return (struct decode_pass){.processed = 1, .kept = 1, .reach = 1};
    }
    if ((span->phase == PHASE_PREFILL && !blocks_decide(request)) || (was_done && !span->exact)) {
        return (struct decode_pass){0};
    }
    uint32_t processed =
        span->queries < window_uncached(request) ? span->queries : window_uncached(request);
    return (struct decode_pass){
        .processed = processed,
        .kept = evicts ? window_kept(request) : processed,
        .reach = window_reach(request),
    };
}

void report_members(const struct lifecycle *life, struct replica *replica) {
    const struct request *requests = life->requests;
    const uint32_t *batch = replica->batch, n = replica->n_batch;
    const bool counts = life->system->decoder->count != NULL;
    const bool evicts = life->system->rows.chooser == CHOSEN_BY_POLICY;
    uint64_t *ids = replica->member_ids;
    uint32_t *commits = replica->member_commits;
    struct decode_pass *passes = replica->member_passes;
    uint8_t *phases = replica->member_phases;
    for (uint32_t i = 0; i < n; i++) {
        const struct request *request = &requests[batch[i]];
        ids[i] = request->id;
        commits[i] = request->commit_tokens;
        passes[i] = pass_of(request, counts, evicts);
        phases[i] = (uint8_t)request->span.phase;
    }
    if (replica->positions.lengths != NULL) {
        memset(replica->positions.lengths, 0, n * sizeof *replica->positions.lengths);
    }
}

void report_commits(const struct lifecycle *life, struct replica *replica,
                    const struct request *request, uint32_t n) {
    if (life->system->scheduler->changes_passes != 0 && life->threshold_millionths > 0) {
        const uint32_t said = window_threshold(request);
        replica->n_by_threshold += n;
        replica->thresholds_millionths +=
            (uint64_t)n * (said > 0 ? said : life->threshold_millionths);
    }
}

void report_positions(const struct lifecycle *life, struct replica *replica, uint32_t slot,
                      uint32_t member) {
    const struct step_positions *positions = &replica->positions;
    const struct planned_block block = positions_block(&life->positions, slot);
    uint32_t length = window_length(&life->requests[slot]);
    size_t at = (size_t)member * positions->stride;
    positions->lengths[member] = length;
    memcpy(positions->keep + at, block.keep, length);
    memcpy(positions->outcome + at, block.outcome, length);
    if (positions->entropy != NULL) {
        memcpy(positions->entropy + at, block.entropy, length * sizeof *block.entropy);
    }
    if (positions->seen != NULL) {
        memcpy(positions->seen + at, block.seen, length * sizeof *block.seen);
    }
}

/* The numbers that were drawn here, or those of the executor; an executor that knows only counts
 * has none. */
static bool knows_positions(const struct lifecycle *life, const struct completion *done) {
    return life->has_positions && (done->decided.positions || done->decided.commits == NULL);
}

int report_step(const struct lifecycle *life, struct replica *replica,
                const struct completion *done, const struct moment *moment, struct err *err) {
    bool members = life->asked->records_members;
    struct step_record record = {
        .index = life->result->submissions,
        .replica = done->replica,
        .repeat = done->steps,
        .start_ns = done->start_ns,
        .end_ns = done->time_ns,
        .gpu_ns = done->gpu_ns,
        .host_ns = done->host_ns,
        .joules = done->joules,
        .n_by_threshold = replica->n_by_threshold,
        .thresholds_millionths = replica->thresholds_millionths,
        .swap = replica->flight_swap,
        .sym = replica->shape.sym,
        .n = moment->n,
        .request_ids = members ? replica->member_ids : NULL,
        .commit_tokens = members ? replica->member_commits : NULL,
        .passes = members ? replica->member_passes : NULL,
        .phases = members ? replica->member_phases : NULL,
        .positions = members && knows_positions(life, done) ? &replica->positions : NULL,
        .kv_used_bytes = moment->kv_used_bytes,
        .n_running = moment->n_running,
        .n_waiting = moment->n_waiting,
        .unrolled = life->asked->system->settings.unroll_maximum > 1,
        .wasted_requests = replica->wasted_requests,
        .wasted_tokens = replica->wasted_tokens,
    };
    record.swap.stall_ns = done->stall_ns;
    replica->flight_swap = (struct swap){0};
    replica->n_by_threshold = replica->thresholds_millionths = 0;
    memcpy(record.n_by_phase, replica->batch_by_phase, sizeof record.n_by_phase);
    for (uint32_t i = 0; i < life->asked->n_sinks; i++) {
        const struct sink *sink = &life->asked->sinks[i];
        if (sink->step != NULL && sink->step(sink->state, &record, err) != 0) {
            return (int)err->kind;
        }
    }
    return 0;
}
