#include "analysis/summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"

void summary_init(struct summary *summary, const struct slo *slo) {
    *summary =
        (struct summary){.first_arrival_ns = -1, .last_finish_ns = -1, .last_arrival_ns = -1};
    if (slo != NULL) {
        summary->slo = *slo;
    }
}

void summary_limit(struct summary *summary, size_t most) {
    struct series *all[] = {&summary->latency_s,  &summary->ttfb_s,  &summary->queue_s,
                            &summary->tpot_s,     &summary->pause_s, &summary->came_s,
                            &summary->admitted_s, &summary->left_s};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        all[i]->most = most;
    }
}

static void series_copy(struct series *series) {
    double *values = mem_unwritten(series->n, sizeof *values);
    if (series->n > 0) {
        memcpy(values, series->values, series->n * sizeof *values);
    }
    series->values = values;
    series->capacity = series->n;
}

static void copy_times(struct summary *to) {
    series_copy(&to->latency_s);
    series_copy(&to->ttfb_s);
    series_copy(&to->queue_s);
    series_copy(&to->tpot_s);
    series_copy(&to->pause_s);
}

void summary_group(const struct summary *run, struct summary *group) {
    *group = *run;
    copy_times(group);
    group->came_s = group->admitted_s = group->left_s = (struct series){0};
    memset(group->groups, 0, sizeof group->groups);
    group->is_of_group = true;
}

void summary_copy(const struct summary *from, struct summary *to) {
    *to = *from;
    copy_times(to);
    series_copy(&to->came_s);
    series_copy(&to->admitted_s);
    series_copy(&to->left_s);
    for (int by = 0; by < GROUPING_COUNT; by++) {
        groups_copy(&from->groups[by], &to->groups[by]);
    }
}

void summary_fini(struct summary *summary) {
    free(summary->latency_s.values);
    free(summary->ttfb_s.values);
    free(summary->queue_s.values);
    free(summary->tpot_s.values);
    free(summary->pause_s.values);
    free(summary->came_s.values);
    free(summary->admitted_s.values);
    free(summary->left_s.values);
    for (int by = 0; by < GROUPING_COUNT; by++) {
        groups_fini(&summary->groups[by]);
    }
    *summary = (struct summary){0};
}

struct request_times request_times_of(const struct request_record *record) {
    struct request_times times = {.latency_ns = record->finished_ns - record->arrival_ns,
                                  .queue_ns = -1,
                                  .ttfb_ns = -1,
                                  .tpot_ns = -1};
    if (record->admitted_ns >= 0) {
        times.queue_ns = record->admitted_ns - record->arrival_ns;
    }
    if (record->first_block_ns >= 0) {
        times.ttfb_ns = record->first_block_ns - record->arrival_ns;
        if (record->answer_tokens > record->first_block_tokens) {
            times.tpot_ns = (double)(record->finished_ns - record->first_block_ns) /
                            (record->answer_tokens - record->first_block_tokens);
        }
    }
    return times;
}

static void add_stay(struct summary *summary, int64_t arrival_ns, double admitted_s,
                     double left_s) {
    double arrival_s = (double)arrival_ns / 1e9;
    if (summary->is_of_group) {
        return;
    }
    series_push(&summary->came_s, arrival_s);
    series_push(&summary->admitted_s, fmin(fmax(admitted_s, arrival_s), left_s));
    series_push(&summary->left_s, left_s);
}

/* A request whose admission time is not known counts as there from its arrival. */
static double admission_s(const struct request_record *record, double unknown_s) {
    return record->admitted_ns < 0 ? unknown_s : (double)record->admitted_ns / 1e9;
}

static void add_completed(struct summary *summary, const struct request_record *record) {
    summary->completed++;
    summary->tokens_committed += record->committed_tokens;
    summary->answer_tokens += record->answer_tokens;
#define KEPT(...)
#define SUMMED(type, name, ...) summary->name += record->name;
#include "sim/serve/request.def"
    summary->prefix_tokens += record->shared_tokens;
    summary->prefix_hit_tokens += record->prefix_tokens;
    summary->prefix_hits += record->prefix_tokens > 0;
    summary->prompt_tokens += record->prompt_tokens;
    if (record->finished_ns > summary->last_finish_ns) {
        summary->last_finish_ns = record->finished_ns;
    }
    const struct slo *slo = &summary->slo;
    struct request_times times = request_times_of(record);
    summary->met_slo += (slo->latency_ns == 0 || times.latency_ns <= slo->latency_ns) &&
                        (slo->ttfb_ns == 0 || times.ttfb_ns <= slo->ttfb_ns) &&
                        (slo->tpot_ns == 0 || times.tpot_ns <= (double)slo->tpot_ns);
    series_push(&summary->latency_s, (double)times.latency_ns / 1e9);
    series_push(&summary->pause_s, (double)record->pause_ns / 1e9);
    add_stay(summary, record->arrival_ns, admission_s(record, 0),
             (double)record->finished_ns / 1e9);
    if (times.queue_ns >= 0) {
        series_push(&summary->queue_s, (double)times.queue_ns / 1e9);
    }
    if (times.ttfb_ns >= 0) {
        series_push(&summary->ttfb_s, (double)times.ttfb_ns / 1e9);
    }
    if (times.tpot_ns >= 0) {
        series_push(&summary->tpot_s, times.tpot_ns / 1e9);
    }
}

static void add_request(struct summary *summary, const struct request_record *record) {
    summary->requests++;
    summary->service_tokens += record->tokens_processed;
    summary->preemptions += record->preemptions;
    if (summary->first_arrival_ns < 0 || record->arrival_ns < summary->first_arrival_ns) {
        summary->first_arrival_ns = record->arrival_ns;
    }
    if (record->arrival_ns > summary->last_arrival_ns) {
        summary->last_arrival_ns = record->arrival_ns;
    }
    if (record->pause_ns > summary->pause_ns) {
        summary->pause_ns = record->pause_ns;
        summary->pause_id = record->id;
    }
    if (record->state == REQUEST_DONE) {
        add_completed(summary, record);
        return;
    }
    ASSERT(record->reason < REJECT_REASON_COUNT);
    summary->rejected++;
    summary->rejected_by_reason[record->reason]++;
    if (record->reason == REJECT_QUEUE) {
        add_stay(summary, record->arrival_ns, 0, (double)record->arrival_ns / 1e9);
    } else if (record->reason == REJECT_SHUTDOWN) {
        add_stay(summary, record->arrival_ns, admission_s(record, (double)INFINITY),
                 (double)INFINITY);
    }
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct summary *summary = state;
    (void)err;
    for (int by = 0; by < GROUPING_COUNT; by++) {
        struct summary *group =
            groups_of(&summary->groups[by], grouping_key((enum grouping)by, record), summary);
        if (group != NULL) {
            add_request(group, record);
        }
    }
    add_request(summary, record);
    return 0;
}

static void add_swap(struct swap *sum, const struct swap *swap) {
    sum->n_out += swap->n_out;
    sum->n_in += swap->n_in;
    sum->out_bytes += swap->out_bytes;
    sum->in_bytes += swap->in_bytes;
    sum->stall_ns += swap->stall_ns;
    if (swap->host_used_bytes > sum->host_used_bytes) {
        sum->host_used_bytes = swap->host_used_bytes;
    }
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    (void)err;
    struct summary *summary = state;
    uint32_t phase = SUMMARY_MIXED, n_phases = 0;
    for (uint32_t i = 0; i < PHASE_COUNT; i++) {
        if (record->n_by_phase[i] > 0) {
            phase = i;
            n_phases++;
        }
    }
    uint64_t repeat = record->repeat;
    summary->submissions++;
    summary->steps += repeat;
    summary->steps_by_phase[n_phases == 1 ? phase : SUMMARY_MIXED] += repeat;
    summary->request_steps += repeat * record->n;
    summary->tokens_processed += repeat * (uint64_t)record->sym[SYM_TOKENS];
    summary->block_queries += repeat * (uint64_t)record->sym[SYM_BLOCK_Q];
    summary->kept_queries += repeat * (uint64_t)record->sym[SYM_KEPT_Q];
    summary->unrolls = summary->unrolls || record->unrolled;
    summary->wasted_request_steps += repeat * record->wasted_requests;
    summary->wasted_tokens += repeat * record->wasted_tokens;
    summary->exact_passes += record->n_by_phase[PHASE_PREFILL] + record->n_by_phase[PHASE_COMMIT];
    summary->gpu_ns += record->gpu_ns * (int64_t)repeat;
    summary->host_ns += record->host_ns * (int64_t)repeat;
    summary->n_by_threshold += record->n_by_threshold;
    summary->thresholds_millionths += record->thresholds_millionths;
    add_swap(&summary->swap, &record->swap);
    if (record->kv_used_bytes > summary->kv_peak_bytes) {
        summary->kv_peak_bytes = record->kv_used_bytes;
    }
    if (record->replica >= summary->replicas) {
        summary->replicas = record->replica + 1;
    }
    if (record->n > summary->max_batch) {
        summary->max_batch = record->n;
    }
    if (record->n_waiting > summary->max_waiting) {
        summary->max_waiting = record->n_waiting;
    }
    return 0;
}

struct sink summary_sink(struct summary *summary) {
    return (struct sink){.state = summary, .request = on_request, .step = on_step};
}

static double over(double a, double b) {
    return b > 0 ? a / b : 0;
}

static struct offered offered_to(const struct summary *s) {
    size_t n = s->came_s.n;
    struct stay *stays = mem_unwritten(n, sizeof *stays);
    for (size_t i = 0; i < n; i++) {
        stays[i] = (struct stay){.arrival_s = s->came_s.values[i],
                                 .admitted_s = s->admitted_s.values[i],
                                 .left_s = s->left_s.values[i]};
    }
    const size_t stride = s->came_s.stride > 1 ? s->came_s.stride : 1;
    struct offered offered =
        offered_of(stays, n, s->requests / stride, (double)s->last_arrival_ns / 1e9);
    free(stays);
    offered.n *= stride;
    offered.n_left *= stride;
    offered.rate_req_s *= (double)stride;
    offered.served_req_s *= (double)stride;
    offered.growth_req_s *= (double)stride;
    return offered;
}

/* A missing figure passes no gate. */
static const char *unspoken(const struct summary *s) {
    return s->completed == 0                        ? NULL
           : s->slo.ttfb_ns > 0 && s->ttfb_s.n == 0 ? "ttft"
           : s->slo.tpot_ns > 0 && s->tpot_s.n == 0 ? "tpot"
                                                    : NULL;
}

void summary_finish(struct summary *summary) {
    if (!summary->is_of_group) {
        summary->offered = offered_to(summary);
    }
    for (int by = 0; by < GROUPING_COUNT; by++) {
        groups_finish(&summary->groups[by], summary);
    }
    summary->unspoken = unspoken(summary);
    summary->met_slo = summary->unspoken != NULL ? 0 : summary->met_slo;
    summary->latency = distribution_of(summary->latency_s.values, summary->latency_s.n);
    summary->ttfb = distribution_of(summary->ttfb_s.values, summary->ttfb_s.n);
    summary->queue = distribution_of(summary->queue_s.values, summary->queue_s.n);
    summary->tpot = distribution_of(summary->tpot_s.values, summary->tpot_s.n);
    summary->pause = distribution_of(summary->pause_s.values, summary->pause_s.n);
    summary->makespan_s = summary->completed > 0
                              ? (double)(summary->last_finish_ns - summary->first_arrival_ns) / 1e9
                              : 0;
    double committed = (double)summary->tokens_committed;
    summary->throughput_tok_s = over(committed, summary->makespan_s);
    summary->throughput_req_s = over((double)summary->completed, summary->makespan_s);
    summary->goodput_req_s = over((double)summary->met_slo, summary->makespan_s);
    summary->attainment = over((double)summary->met_slo, (double)summary->requests);
    summary->mean_batch = over((double)summary->request_steps, (double)summary->steps);
    summary->redundancy = over((double)summary->tokens_processed, committed);
    uint64_t in_blocks = summary->kept_queries > 0 ? summary->kept_queries : summary->block_queries;
    bool is_exact = summary->exact_passes > 0 && in_blocks > 0;
    summary->block_redundancy = is_exact ? over((double)in_blocks, committed) : -1;
    summary->tpf = over(committed, (double)summary->request_steps);
    summary->throughput_answer_tok_s = over((double)summary->answer_tokens, summary->makespan_s);
    summary->tpf_answer = over((double)summary->answer_tokens, (double)summary->request_steps);
    summary->gpu_busy =
        summary->gpu_ns > 0 && summary->makespan_s > 0
            ? (double)summary->gpu_ns / 1e9 / (summary->makespan_s * (double)summary->replicas)
            : -1;
}

bool slo_is_set(const struct slo *slo) {
    return slo->latency_ns > 0 || slo->ttfb_ns > 0 || slo->tpot_ns > 0;
}

double summary_gpu_busy(const struct summary *summary, const struct run_facts *facts) {
    return facts->gpu_busy >= 0 ? facts->gpu_busy : summary->gpu_busy;
}

int64_t summary_kv_peak(const struct summary *summary, const struct run_facts *facts) {
    return facts->kv_peak_bytes >= 0 ? facts->kv_peak_bytes : summary->kv_peak_bytes;
}
