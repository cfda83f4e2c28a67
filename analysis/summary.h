/* The summary of a run: what its requests and steps add up to.
 *
 * It is itself a sink, cheap enough to be always on: constant work per step, eight doubles kept per
 * finished request, and where there are several tenants or priorities five more by each. Times are
 * seconds from here on. What each number means stands with its column (analysis/run_columns.c,
 * docs/reference/fields.md). */
#ifndef UNMASK_ANALYSIS_SUMMARY_H
#define UNMASK_ANALYSIS_SUMMARY_H

#include <stdbool.h>

#include "analysis/facts.h"
#include "analysis/groups.h"
#include "analysis/offered.h"
#include "analysis/spread.h"
#include "sim/serve/record.h"

/* A service-level objective: upper bounds in nanoseconds; 0: no such bound. */
struct slo {
    int64_t latency_ns, ttfb_ns, tpot_ns;
};

/* Of a completed request, below 0: it has none. Finish, admission and the end of the first block
 * less arrival; a block reaches the user when it is whole, so that the last is the time to the
 * first token as well (ttft). tpot: from the end of the first block to the finish, over the
 * answer's tokens after that block. */
struct request_times {
    int64_t latency_ns, queue_ns, ttfb_ns;
    double tpot_ns;
};
struct request_times request_times_of(const struct request_record *record);

enum { SUMMARY_MIXED = PHASE_COUNT, SUMMARY_PHASE_COUNT = PHASE_COUNT + 1 };

struct summary {
    struct slo slo;
    bool is_of_group; /* of one group's requests; rates offered are not asked of them */

    /* Written by the sink: requests. */
    struct groups groups[GROUPING_COUNT];
    uint64_t service_tokens; /* query tokens of all steps of all requests */
    uint64_t requests, completed, rejected, preemptions, met_slo;
    uint64_t rejected_by_reason[REJECT_REASON_COUNT];
    const char *const *own_reasons; /* what the scheduler calls its own; NULL: it names none */
    uint64_t tokens_committed, answer_tokens, prompt_tokens;
#define KEPT(...)
#define SUMMED(type, name, ...) uint64_t name; /* over completed requests */
#include "sim/serve/request.def"
    /* Under prefix caching, of completed requests: prompt tokens with which another's canvas began,
     * those of them that were found, and in how many requests. */
    uint64_t prefix_tokens, prefix_hit_tokens, prefix_hits;
    int64_t first_arrival_ns, last_finish_ns; /* -1: none yet */
    int64_t last_arrival_ns;                  /* of any request */
    struct series latency_s, ttfb_s, queue_s, tpot_s, pause_s;
    int64_t pause_ns;  /* the longest of any request, */
    uint64_t pause_id; /* and whose */
    /* Of requests that could be served, as struct stay has them (analysis/offered.h). */
    struct series came_s, admitted_s, left_s;

    /* Written by the sink: steps; a record with repeat k counts k. */
    uint64_t submissions, steps, request_steps, tokens_processed;
    uint64_t block_queries, kept_queries;         /* of spans with context; after an eviction */
    uint64_t exact_passes;                        /* prefills and commit passes */
    uint64_t steps_by_phase[SUMMARY_PHASE_COUNT]; /* steps of one phase only, and mixed ones */
    /* Where the system unrolls: steps that found their block done, and their query tokens. */
    bool unrolls;
    uint64_t wasted_request_steps, wasted_tokens;
    int64_t gpu_ns, host_ns, kv_peak_bytes;
    uint64_t n_by_threshold, thresholds_millionths; /* as struct step_record has them */
    struct swap swap; /* summed; host_used_bytes: the most on one replica */
    uint32_t replicas, max_batch, max_waiting;

    /* Written by summary_finish. */
    struct distribution latency, ttfb, queue, tpot, pause;
    struct offered offered;
    double makespan_s, throughput_tok_s, throughput_req_s, goodput_req_s, redundancy, tpf;
    double attainment, mean_batch;
    double throughput_answer_tok_s, tpf_answer;
    /* A metric with a bound that no completed request has, "tpot"; NULL: there is none. It is an
     * objective that is not met by any. */
    const char *unspoken;
    double block_redundancy; /* negative: nothing was prefilled or committed in a pass of its own */
    double gpu_busy;         /* negative: the executor reported no GPU time */
};

/* Whether it has any bound. */
bool slo_is_set(const struct slo *slo);

/* The executor's figure if it has one, otherwise the sum over steps. */
double summary_gpu_busy(const struct summary *summary, const struct run_facts *facts);
int64_t summary_kv_peak(const struct summary *summary, const struct run_facts *facts);

void summary_init(struct summary *summary, const struct slo *slo); /* `slo` may be NULL */
void summary_fini(struct summary *summary);

/* From now on percentiles, and what is said of the load, are those of `most` requests at most, each
 * 2^k-th of all (struct series): memory does not grow with them. Before the first request. */
void summary_limit(struct summary *summary, size_t most);

/* `*to` becomes as `from`, which is not finished, is now; also the caller's to end. */
void summary_copy(const struct summary *from, struct summary *to);

/* `*group` becomes what the run's requests so far add up to, as a group of them. */
void summary_group(const struct summary *run, struct summary *group);

/* A sink that adds to `summary`, which must outlive it. */
struct sink summary_sink(struct summary *summary);

/* Sort the columns and derive the last group of fields. The sink may not be used afterwards. */
void summary_finish(struct summary *summary);

#endif
