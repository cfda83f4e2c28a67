/* The memory of requests' lifecycles: everything is allocated before the first turn, and taken up
 * as requests and replicas use it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"
#include "sim/policy/plugin/registry.h"
#include "sim/serve/cluster.h"
#include "sim/serve/lifecycle.h"

static void replica_init(const struct lifecycle *life, uint32_t index) {
    struct replica *replica = &life->replicas[index];
    const struct loop_request *asked = life->asked;
    const struct policy *scheduler = &asked->system->scheduler->policy;
    uint32_t n = life->n_slots;
    replica->scheduler_state = policy_state_for_run(scheduler, asked->system->scheduler_state);
    replica->running = (uint32_t *)(life->requests + n) + 3 * (size_t)n * index;
    replica->waiting = replica->running + n;
    replica->selected = mem_reserved(2 * (size_t)n, sizeof *replica->selected);
    replica->idle = replica->selected + n;
    if (asked->executor.wants_members || asked->records_members) {
        replica->member_ids = mem_reserved(n, sizeof *replica->member_ids);
        replica->member_commits = mem_reserved(n, sizeof *replica->member_commits);
        replica->member_passes = mem_reserved(n, sizeof *replica->member_passes);
        replica->member_phases = mem_reserved(n, sizeof *replica->member_phases);
    }
    if (asked->executor.wants_spans) {
        replica->spans = mem_reserved(n, sizeof *replica->spans);
    }
    if (life->has_positions && asked->executor.wants_positions) {
        replica->blocks = mem_reserved(n, sizeof *replica->blocks);
    }
    if (life->has_positions && asked->records_members) {
        uint32_t stride = settings_window_tokens(&asked->system->settings);
        replica->positions =
            (struct step_positions){.stride = stride,
                                    .lengths = mem_reserved(n, sizeof(uint32_t)),
                                    .keep = mem_reserved((size_t)n * stride, 1),
                                    .outcome = mem_reserved((size_t)n * stride, 1),
                                    .entropy = asked->system->cache->reads_entropy
                                                   ? mem_reserved((size_t)n * stride, sizeof(float))
                                                   : NULL,
                                    .seen = asked->system->scheduler->says_rows
                                                ? mem_reserved((size_t)n * stride, sizeof(float))
                                                : NULL};
    }
    replica->sym[SYM_ONE] = 1;
    replica->wake_ns = replica->stop_ns = INT64_MAX;
}

static void said_init(struct said *said, uint32_t n) {
    uint32_t **const lists[] = {
        &said->preempted,    &said->rejected,     &said->reasons,  &said->swaps,
        &said->chunk_tokens, &said->width_tokens, &said->puts_off, &said->threshold_millionths,
        &said->run_tokens};
    enum { N_LISTS = sizeof lists / sizeof *lists };
    uint32_t *at = mem_reserved((size_t)N_LISTS * n, sizeof *at);
    for (size_t i = 0; i < N_LISTS; i++) {
        *lists[i] = at + i * n;
    }
}

/* Requests by slot, and of each replica those that run and, twice as many, those that wait: a
 * scheduler or router that is not built in can only read them. */
static void lend_lists(struct lifecycle *life) {
    size_t n = life->n_slots, lists = 3 * n * life->n_replicas * sizeof(uint32_t);
    bool is_lent = !policy_is_built_in(&life->system->scheduler->policy) ||
                   !policy_is_built_in(&life->system->router->policy);
    lent_open(&life->lent, n * sizeof *life->requests + lists, is_lent);
    life->requests = (struct request *)life->lent.write;
}

/* Of a decoder whose threshold decides something, in millionths; at least 1. */
static uint32_t threshold_of(const struct system *system) {
    const struct decode_rule rule = decoder_rule_always(system->decoder, system->decoder_state);
    const bool decides = rule.kind == DECODE_THRESHOLD || rule.kind == DECODE_HIERARCHICAL;
    if (system->decoder->rule == NULL || system->decoder->count != NULL || !decides) {
        return 0;
    }
    return (uint32_t)fmax(1, fmin(1, rule.threshold) * 1e6 + 0.5);
}

void lifecycle_init(struct lifecycle *life, const struct loop_request *asked,
                    struct loop_result *result) {
    const struct settings *settings = &asked->system->settings;
    uint32_t n = settings->max_in_system;
    *life = (struct lifecycle){
        .system = asked->system,
        .asked = asked,
        .result = result,
        .has_positions = asked->decode == NULL &&
                         (positions_wanted(asked->system) || asked->executor.wants_positions),
        .threshold_millionths = threshold_of(asked->system),
        .n_slots = n,
        .n_replicas = settings->replicas,
        .next_arrival_ns = INT64_MAX,
        .next_cancel_ns = INT64_MAX,
        .held_soonest_ns = INT64_MAX,
        .keeps_all = asked->is_trial || asked->system->scheduler->reads_all != 0 ||
                     !policy_is_built_in(&asked->system->scheduler->policy),
        .reads_load =
            asked->system->cache->reads_load != 0 || asked->system->decoder->reads_load != 0,
        .checks_rows = !policy_is_built_in(&asked->system->cache->policy),
        .widest_fitting_canvas = asked->system->budget.shares_pool ? 0 : INT64_MAX,
    };
    for (uint32_t i = 0; i < asked->n_sinks; i++) {
        life->wants_events |= asked->sinks[i].event != NULL;
        life->wants_requests |= asked->sinks[i].request != NULL;
        life->wants_steps |= asked->sinks[i].step != NULL;
    }
    ward_begin_run(&life->system->cache->policy, life->system->cache_state);
    ward_begin_run(&life->system->decoder->policy, life->system->decoder_state);
    lend_lists(life);
    life->tracked = mem_reserved(n, sizeof *life->tracked);
    life->recalls = asked->decode != NULL ? mem_reserved(n, sizeof *life->recalls) : NULL;
    life->free_slots = mem_reserved(n, sizeof *life->free_slots);
    life->own_bytes = asked->system->scheduler->request_bytes;
    life->own = life->own_bytes > 0 ? mem_reserved(n, life->own_bytes) : NULL;
    life->together = mem_reserved(n, sizeof *life->together);
    life->asked_spans = mem_reserved(n, sizeof *life->asked_spans);
    said_init(&life->said, n);
    if (asked->system->scheduler->happened != NULL) {
        life->happenings = mem_reserved(2 * (size_t)n, sizeof *life->happenings);
    }
    if (life->has_positions) {
        positions_init(&life->positions, life->system, rng_stream(asked->seed, "confidences").s[0],
                       n);
    }
    life->replicas = mem_zeroed(life->n_replicas, sizeof *life->replicas);
    life->router_state =
        policy_state_for_run(&asked->system->router->policy, asked->system->router_state);
    cluster_init(life);
    sharing_init(life);
    for (uint32_t i = 0; i < life->n_replicas; i++) {
        replica_init(life, i);
        sharing_init_replica(life, i);
    }
}

void lifecycle_fini(struct lifecycle *life) {
    for (uint32_t i = 0; i < life->n_replicas; i++) {
        struct replica *replica = &life->replicas[i];
        policy_state_free(&life->system->scheduler->policy, replica->scheduler_state);
        sharing_fini_replica(replica);
        kept_prefixes_fini_replica(life, replica);
        mem_released(replica->selected);
        mem_released(replica->member_ids);
        mem_released(replica->member_commits);
        mem_released(replica->member_passes);
        mem_released(replica->member_phases);
        mem_released(replica->spans);
        mem_released(replica->blocks);
        mem_released(replica->positions.lengths);
        mem_released(replica->positions.keep);
        mem_released(replica->positions.outcome);
        mem_released(replica->positions.entropy);
        mem_released(replica->positions.seen);
    }
    free(life->replicas);
    sharing_fini(life);
    lent_close(&life->lent);
    mem_released(life->tracked);
    mem_released(life->recalls);
    mem_released(life->free_slots);
    mem_released(life->own);
    policy_state_free(&life->system->router->policy, life->router_state);
    cluster_fini(life);
    mem_released(life->together);
    mem_released(life->asked_spans);
    mem_released(life->said.preempted);
    mem_released(life->happenings);
    if (life->has_positions) {
        positions_fini(&life->positions);
    }
}
