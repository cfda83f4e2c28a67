/* The columns of a run, in the order of its JSON. */
#include <math.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/column.h"
#include "analysis/course_columns.h"
#include "analysis/quality.h"
#include "analysis/summary_output.h"

/* Where a value comes from: a member of the summary or of the facts, or a function. */
#define SUMMARY(member)                                                                            \
    .kind = COLUMN_KIND(((struct summary *)0)->member), .offset = offsetof(struct summary, member)
#define FACT(member)                                                                               \
    .kind = COLUMN_KIND(((struct run_facts *)0)->member), .is_fact = true,                         \
    .offset = offsetof(struct run_facts, member)
#define SUMMARY_SHARE(member) .kind = COLUMN_SHARE, .offset = offsetof(struct summary, member)
#define FACT_SHARE(member)                                                                         \
    .kind = COLUMN_SHARE, .is_fact = true, .offset = offsetof(struct run_facts, member)
#define DERIVED_BY(function) .kind = COLUMN_DERIVED, .number = function
#define OBJECT_BY(function)  .kind = COLUMN_OBJECT, .object = function
#define ELSEWHERE            .kind = COLUMN_ELSEWHERE

/* A text, an object or a condition that plots have no axis for. */
#define NO_AXIS NULL, ""

/* ---- what ran ---- */

static json_t *ratio(double value) {
    return value > 0 ? json_real(value) : json_null();
}

static json_t *prices(const struct result *r) {
    const struct run_prices *p = &r->facts->prices;
    return json_pack("{s:s, s:s?, s:s, s:s?, s:s?, s:s?, s:o, s:o}", "kind",
                     provenance_words[p->from.kind], "behind", p->behind, "source", p->from.source,
                     "of", p->of, "kernels", p->kernels, "asked", p->asked, "over_imported",
                     ratio(p->over_imported), "over_roofline", ratio(p->over_roofline));
}

static json_t *host(const struct result *r) {
    const struct run_host *h = &r->facts->host;
    return h->name == NULL ? json_null()
                           : json_pack("{s:s, s:s, s:f, s:s}", "name", h->name, "kind", h->kind,
                                       "factor", h->factor, "source", h->source);
}

static json_t *emulated(const struct result *r) {
    return r->facts->device != NULL ? json_boolean(r->facts->emulated) : json_null();
}

static json_t *times(const struct result *r) {
    return r->facts->device != NULL ? json_sprintf("measured on %s", r->facts->device)
                                    : json_string("simulated");
}

static json_t *decisions(const struct result *r) {
    const struct run_decisions *d = &r->facts->decisions;
    json_t *object = json_pack("{s:b, s:s?, s:s?}", "drawn", d->drawn, "process", d->process,
                               "kind", d->drawn ? provenance_words[d->from.kind] : NULL);
    if (d->error != NULL) {
        json_object_set_new(object, "error", json_string(d->error));
    }
    json_object_set_new(object, "source", json_string(d->from.source));
    return object;
}

static json_t *answers(const struct result *r) {
    const char *source = r->facts->answers_source;
    return r->facts->answers_kind != NULL ? json_pack("{s:s, s:s}", "kind", r->facts->answers_kind,
                                                      "source", source != NULL ? source : "")
                                          : json_null();
}

static bool knows_policies(const struct result *r) {
    return r->facts->policies != NULL;
}

static json_t *policies(const struct result *r) {
    return json_deep_copy((json_t *)(uintptr_t)r->facts->policies);
}

static const struct column recorded[] = {
    {"run", "run", "", "number of the run in its database", ELSEWHERE},
    {"rate", "rate", "requests/s", "offered rate: as asked for, else the workload's own",
     ELSEWHERE},
    {"build", "build", "", "version and digest of the program's sources", ELSEWHERE},
    {"inputs", "inputs", "", "digest of the contents of all files that were read", ELSEWHERE},
    {NULL},
};

static const struct column ran[] = {
    {"system", NO_AXIS, "what served the requests", FACT(system)},
    {"policies", NO_AXIS, "its scheduler, cache, decoder and router",
     "Of `scheduler`, `cache`, `decoder` and `router` each: `name`, its own; `file` of a plug-in; "
     "`changed`, the parameters whose values are not "
     "the initial ones. Plots and tables call a plug-in by its name, with its file where two have "
     "one name.",
     OBJECT_BY(policies), .is_there = knows_policies},
    {"model", NO_AXIS, "what it served", FACT(model)},
    {"gpu", NO_AXIS, "the GPU of the system", FACT(gpu)},
    {"profile", NO_AXIS, "where the prices of operators come from",
     "The profile of the GPU (`h100`), that of the GPU and the model (`h100/llada-8b`), or the "
     "file of `--profile`.",
     FACT(profile)},
    {"profile_kind", NO_AXIS, "measured, imported, transferred or roofline", FACT(profile_kind)},
    {"prices", NO_AXIS, "whose measurements the prices are",
     "`kind` and `source` of the prices; `behind`: the kind of what prices the sizes that the "
     "profile lacks; `of`: whose kernels (measured by unmask, imported or roofline), called "
     "`kernels`; `asked`: `--price-source`; `over_imported` and `over_roofline`: what a block "
     "takes by these prices over what it takes by those.",
     OBJECT_BY(prices)},
    {"prices.over_imported", "prices over imported ones", "",
     "a block's price over its price by imported rows, if any", ELSEWHERE},
    {"prices.over_roofline", "prices over the data sheet's", "",
     "a block's price over its price by the data sheet", ELSEWHERE},
    {"host", NO_AXIS, "the machine that holds the GPU", "`name`, `kind`, `factor` and `source`.",
     OBJECT_BY(host)},
    {"host.factor", "host factor", "", "host times over those of the reference host", ELSEWHERE},
    {"backend", NO_AXIS, "sim, cpu or cuda", FACT(backend)},
    {"device", NO_AXIS, "name of the device of a live run, as its maker has it", FACT(device)},
    {"emulated", NO_AXIS, "whether the device stands in for the system's GPU", OBJECT_BY(emulated)},
    {"weights", NO_AXIS, "where the weights of a live run come from", FACT(weights)},
    {"times", NO_AXIS, "simulated, or measured on the device", OBJECT_BY(times)},
    {"clock", NO_AXIS, "real or virtual clock of a live run; virtual skips idle time", FACT(clock)},
    {"incomplete", NO_AXIS, "why the run was cut short", FACT(incomplete)},
    {"trace", NO_AXIS, "the workload", FACT(trace)},
    {"trace_provenance", NO_AXIS, "which of its lengths and times are real",
     FACT(trace_provenance)},
    {"decisions", NO_AXIS, "what decides how many positions a pass commits",
     "`drawn`, `process`, `kind`, `source`, and the `error` of the process where it is known.",
     OBJECT_BY(decisions)},
    {"answers", NO_AXIS, "how the ends of texts are known", "`kind` and `source`.",
     OBJECT_BY(answers)},
    {"seed", "seed", "", "seed of all random streams", FACT(seed)},
    {"is_drawn", NO_AXIS, "whether another seed gives another run", FACT(is_drawn)},
    {NULL},
};

/* ---- its requests ---- */

static json_t *rejected_by_reason(const struct result *r) {
    json_t *object = json_object();
    const struct summary *s = r->summary;
    for (uint32_t i = REJECT_NONE + 1; i < REJECT_REASON_COUNT; i++) {
        if (i < REJECT_OWN || s->rejected_by_reason[i] > 0 ||
            reject_reason_is_named(i, s->own_reasons)) {
            json_object_set_new(object, reject_reason_name(i, s->own_reasons),
                                json_integer((json_int_t)s->rejected_by_reason[i]));
        }
    }
    return object;
}

static double if_finite(double value) {
    return isfinite(value) ? value : (double)NAN;
}

static double offered_rate(const struct result *r) {
    double rate_req_s = r->summary->offered.rate_req_s;
    return rate_req_s > 0 ? rate_req_s : (double)NAN;
}

static double load(const struct result *r) {
    return if_finite(r->summary->offered.load);
}

static double load_low(const struct result *r) {
    return if_finite(r->summary->offered.load_low);
}

static double load_high(const struct result *r) {
    return if_finite(r->summary->offered.load_high);
}

static json_t *offered_state(const struct result *r) {
    return json_string(offered_words[r->summary->offered.state]);
}

static bool knows_facts(const struct result *r) {
    return r->facts != NULL;
}

static double asked_rate(const struct result *r) {
    return r->facts->asked_req_s > 0 ? r->facts->asked_req_s : (double)NAN;
}

static double goodput(const struct result *r) {
    return slo_is_set(&r->summary->slo) ? r->summary->goodput_req_s : (double)NAN;
}

static double attainment(const struct result *r) {
    return slo_is_set(&r->summary->slo) ? r->summary->attainment : (double)NAN;
}

static json_t *slo_bound(int64_t ns) {
    return ns == 0 ? json_null() : json_real((double)ns / 1e9);
}

static json_t *slo(const struct result *r) {
    const struct slo *slo = &r->summary->slo;
    return json_pack("{s:o, s:o, s:o, s:o}", "latency_s", slo_bound(slo->latency_ns), "ttft_s",
                     slo_bound(slo->ttfb_ns), "ttfb_s", slo_bound(slo->ttfb_ns), "tpot_s",
                     slo_bound(slo->tpot_ns));
}

static json_t *groups(const struct result *r, enum grouping by) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->summary->groups[by].n; i++) {
        const struct group *group = &r->summary->groups[by].items[i];
        const struct result of = {
            .summary = group->summary, .group = group, .by = by, .run = r->summary};
        json_t *object = json_object();
        if (columns_put(&of, OF_GROUP, object) != 0) {
            json_decref(object);
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, object);
    }
    return list;
}

static bool has_tenants(const struct result *r) {
    return r->summary->groups[BY_TENANT].n > 1;
}

static double fairness(const struct result *r) {
    return groups_fairness(&r->summary->groups[BY_TENANT]);
}

static json_t *tenants(const struct result *r) {
    return groups(r, BY_TENANT);
}

static bool has_classes(const struct result *r) {
    return r->summary->groups[BY_PRIORITY].n > 1;
}

static double fairness_of_classes(const struct result *r) {
    return groups_fairness(&r->summary->groups[BY_PRIORITY]);
}

static json_t *classes(const struct result *r) {
    return groups(r, BY_PRIORITY);
}

static bool has_paused(const struct result *r) {
    return r->summary->pause.max > 0;
}

static const struct column requests[] = {
    {"requests", "requests", "", "requests that arrived", SUMMARY(requests), .of_groups = true},
    {"completed", "completed requests", "", "requests that were served whole", SUMMARY(completed),
     .of_groups = true},
    {"rejected", "rejected requests", "", "requests that were not served", SUMMARY(rejected),
     .of_groups = true},
    {"rejected_by_reason", "rejected requests", "", "requests that were not served, by reason",
     OBJECT_BY(rejected_by_reason), .of_groups = true},
    {"preemptions", "preemptions", "", "times that a running request was preempted",
     SUMMARY(preemptions), .of_groups = true},
    {"makespan_s", "makespan", "s", "first arrival to last finish of a completed request",
     SUMMARY(makespan_s)},
    {"throughput_tok_s", "throughput", "tokens/s", "committed output positions over the makespan",
     "Of completed requests: work lost to preemption or interruption does not count.",
     SUMMARY(throughput_tok_s), .of_groups = true},
    {"throughput_req_s", "throughput", "requests/s", "completed requests over the makespan",
     SUMMARY(throughput_req_s), .of_groups = true},
    {"offered.rate_req_s", "offered rate", "requests/s", "arrivals over the time of arrivals",
     "See [rates](json.md#rates).", DERIVED_BY(offered_rate)},
    {"offered.served_req_s", "served rate", "requests/s",
     "requests finished a second while others arrived", SUMMARY(offered.served_req_s)},
    {"offered.queue_growth_req_s", "growth of the queue", "requests/s",
     "requests that the queue grew by a second, during arrivals", SUMMARY(offered.growth_req_s)},
    {"offered.load", "load", "", "offered rate over the rate served while many were there",
     DERIVED_BY(load)},
    {"offered.load_low", "load, low", "", "the load is above it with 99 %", DERIVED_BY(load_low)},
    {"offered.load_high", "load, high", "", "the load is below it with 99 %",
     DERIVED_BY(load_high)},
    {"offered.left_in_system", "left in the system", "requests",
     "requests in the system at the last arrival", SUMMARY(offered.n_left)},
    {"offered.state", NO_AXIS, "the verdict on whether the run kept up",
     "See [saturated, steady or cannot tell](output.md#saturated-steady-or-cannot-tell).",
     OBJECT_BY(offered_state)},
    {"offered.asked_req_s", "rate asked for", "requests/s", "rate asked for, or the workload's own",
     DERIVED_BY(asked_rate), .is_there = knows_facts},
    {"latency_s", "latency", "s", "finish less arrival", SUMMARY(latency), .of_groups = true},
    {"ttft_s", "time to first token", "s", "end of the first block less arrival",
     "A block reaches the user when it is whole, and no token of it before.", SUMMARY(ttfb),
     .of_groups = true},
    {"ttfb_s", "time to first block", "s", "the same as ttft_s", SUMMARY(ttfb)},
    {"queue_s", "time in queue", "s", "admission less arrival", SUMMARY(queue), .of_groups = true},
    {"tpot_s", "time per output token", "s",
     "time for each token of the answer after the first block",
     "Finish less the end of the first block, over the answer's tokens after it; a request "
     "without any is left out.",
     SUMMARY(tpot), .of_groups = true},
    {"pause_s", "longest pause", "s", "longest time between two steps of a request, others running",
     "Where any was passed over or preempted after its first step.", SUMMARY(pause),
     .is_there = has_paused, .of_groups = true},
    {"goodput_req_s", "goodput", "requests/s", "requests within every objective, over the makespan",
     DERIVED_BY(goodput), .of_groups = true},
    {"attainment", "attainment", "share", "requests within every objective, over all that arrived",
     "A request that was rejected missed it.", DERIVED_BY(attainment), .of_groups = true},
    {"slo", NO_AXIS, "the bounds of the objective", "`latency_s`, `ttft_s`, `ttfb_s` and `tpot_s`.",
     OBJECT_BY(slo)},
    {"fairness", "fairness", "", "Jain's index of the service of the tenants",
     "Where there are several: from 1/n of n tenants to 1, by the query tokens of their steps.",
     DERIVED_BY(fairness), .is_there = has_tenants},
    {"tenants", NO_AXIS, "what each tenant met, where there are several",
     "A list of objects with [its fields](#a-tenant-or-a-class), by `tenant`; "
     "`plot --by tenant` draws them. Not of more than 1024 tenants.",
     OBJECT_BY(tenants), .is_there = has_tenants},
    {"fairness_of_classes", "fairness of classes", "", "Jain's index of the service of the classes",
     "As `fairness` is of tenants.", DERIVED_BY(fairness_of_classes), .is_there = has_classes},
    {"classes", NO_AXIS, "what requests of each priority met, where there are several",
     "As `tenants`, by `priority`; `plot --by priority` draws them.", OBJECT_BY(classes),
     .is_there = has_classes},
    {NULL},
};

/* ---- a tenant or a class ---- */

static json_t *key(const struct result *r) {
    return json_integer(r->group->key);
}

static bool is_tenant(const struct result *r) {
    return r->by == BY_TENANT;
}

static bool is_class(const struct result *r) {
    return r->by == BY_PRIORITY;
}

static double service_share(const struct result *r) {
    return groups_share(r->summary, r->run);
}

static const struct column group_columns[] = {
    {"tenant", NO_AXIS, "number of the tenant, by trace or workload", OBJECT_BY(key),
     .is_there = is_tenant},
    {"priority", NO_AXIS, "priority of the class; larger is more urgent", OBJECT_BY(key),
     .is_there = is_class},
    {"service_tokens", "service", "tokens", "query tokens of all steps of its requests",
     SUMMARY(service_tokens)},
    {"service_share", "share of the service", "share", "its share of the run's service",
     DERIVED_BY(service_share)},
    {NULL},
};

/* ---- its steps and tokens ---- */

static bool unrolls(const struct result *r) {
    return r->summary->unrolls;
}

static bool shares_prefixes(const struct result *r) {
    return r->summary->prefix_tokens > 0;
}

static bool swaps(const struct result *r) {
    return swap_is_any(&r->summary->swap);
}

static double swap_stall_s(const struct result *r) {
    return (double)r->summary->swap.stall_ns / 1e9;
}

static json_t *steps_by_phase(const struct result *r) {
    static const struct {
        const char *name;
        int phase;
    } order[] = {{"refresh", PHASE_REFRESH},
                 {"reuse", PHASE_REUSE},
                 {"prefill", PHASE_PREFILL},
                 {"commit", PHASE_COMMIT},
                 {"mixed", SUMMARY_MIXED}};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        json_object_set_new(object, order[i].name,
                            json_integer((json_int_t)r->summary->steps_by_phase[order[i].phase]));
    }
    return object;
}

static double mean_batch(const struct result *r) {
    return r->summary->steps > 0 ? r->summary->mean_batch : (double)NAN;
}

static double redundancy(const struct result *r) {
    return r->summary->tokens_committed > 0 ? r->summary->redundancy : (double)NAN;
}

static bool has_thresholds(const struct result *r) {
    return r->summary->n_by_threshold > 0;
}

static double threshold_mean(const struct result *r) {
    return 1e-6 * (double)r->summary->thresholds_millionths / (double)r->summary->n_by_threshold;
}

static double tpf(const struct result *r) {
    return r->summary->request_steps > 0 ? r->summary->tpf : (double)NAN;
}

static double tpf_answer(const struct result *r) {
    return r->summary->request_steps > 0 ? r->summary->tpf_answer : (double)NAN;
}

static const struct column steps[] = {
    {"wasted_request_steps", "unrolled request steps too many", "",
     "unrolled steps of requests whose block was done", "Where steps are unrolled.",
     SUMMARY(wasted_request_steps), .is_there = unrolls},
    {"wasted_tokens", "unrolled tokens too many", "tokens",
     "query tokens of unrolled steps too many", SUMMARY(wasted_tokens), .is_there = unrolls},
    {"prefix_tokens", "shared prompt tokens", "tokens",
     "prompt tokens with which another canvas begins, too",
     "Under `prefix_caching`, where prompts share, of completed requests.", SUMMARY(prefix_tokens),
     .is_there = shares_prefixes},
    {"prefix_hit_tokens", "prompt tokens found", "tokens",
     "shared prompt tokens that were found, not computed again",
     "Whole pages or blocks whose keys and values a request found when it was first admitted.",
     SUMMARY(prefix_hit_tokens), .is_there = shares_prefixes},
    {"prefix_hits", "prefix hits", "requests", "requests that found shared tokens",
     SUMMARY(prefix_hits), .is_there = shares_prefixes},
    {"swap.out", "requests swapped out", "", "requests preempted and copied to the host's memory",
     "These six: where any was. Those that are computed anew are in `preemptions` alone.",
     SUMMARY(swap.n_out), .is_there = swaps},
    {"swap.in", "requests brought back", "", "requests copied back from the host's memory",
     SUMMARY(swap.n_in), .is_there = swaps},
    {"swap.out_bytes", "bytes swapped out", "bytes", "copied to the host's memory",
     SUMMARY(swap.out_bytes), .is_there = swaps},
    {"swap.in_bytes", "bytes brought back", "bytes", "copied from the host's memory",
     SUMMARY(swap.in_bytes), .is_there = swaps},
    {"swap.stall_s", "stall by swapping", "s", "time by which copies delayed steps, summed",
     DERIVED_BY(swap_stall_s), .is_there = swaps},
    {"swap.host_peak_bytes", "host memory peak", "bytes",
     "most host memory at once of one replica's requests", SUMMARY(swap.host_used_bytes),
     .is_there = swaps},
    {"steps", "steps", "", "forward passes of a batch; of a request, those it was in",
     SUMMARY(steps)},
    {"steps_by_phase", "steps", "", "steps by the phase of all their requests, or mixed",
     OBJECT_BY(steps_by_phase)},
    {"submissions", "submissions", "", "submissions to the executor; identical steps are one",
     SUMMARY(submissions)},
    {"request_steps", "request steps", "", "forward passes of a request, summed",
     SUMMARY(request_steps)},
    {"max_batch", "largest batch", "requests", "most requests in a step", SUMMARY(max_batch)},
    {"mean_batch", "mean batch", "requests", "requests in a step, on average",
     DERIVED_BY(mean_batch)},
    {"max_waiting", "longest queue", "requests", "most requests that waited at once",
     SUMMARY(max_waiting)},
    {"replicas", "replicas", "", "identical GPUs or groups of GPUs", "Each holds the whole model.",
     SUMMARY(replicas)},
    {"tokens_processed", "processed tokens", "tokens", "query tokens of all steps",
     SUMMARY(tokens_processed)},
    {"tokens_committed", "committed tokens", "tokens", "tokens committed by completed requests",
     SUMMARY(tokens_committed)},
    {"threshold_mean", "mean threshold", "", "mean confidence from which positions were committed",
     "Where the scheduler changes thresholds, widths or rows, and the decoder has a threshold.",
     DERIVED_BY(threshold_mean), .is_there = has_thresholds},
    {"redundancy", "redundancy", "", "processed tokens over committed ones",
     DERIVED_BY(redundancy)},
    {"block_redundancy", "redundancy in blocks", "",
     "positions of blocks that ran, over committed tokens",
     "Where keys and values are exact: positions that ran after any eviction, commit passes "
     "included and prefills not (FOCUS, Table 5).",
     SUMMARY_SHARE(block_redundancy)},
    {"tpf", "tokens per forward pass", "", "committed tokens over request steps", DERIVED_BY(tpf)},
    {"answer_tokens", "answer", "tokens", "tokens committed, up to and with the end of text",
     "What users read; all that was committed where no end of text is known.",
     SUMMARY(answer_tokens)},
    {"throughput_answer_tok_s", "answer throughput", "tokens/s",
     "tokens up to the end of text, over the makespan", SUMMARY(throughput_answer_tok_s)},
    {"tpf_answer", "answer tokens per forward pass", "", "answer tokens over request steps",
     DERIVED_BY(tpf_answer)},
/* Sums over completed requests. */
#define KEPT(...)
#define SUMMED(type, name, since, before, doc, run_name, unit, label, run_doc)                     \
    {run_name, label, unit, run_doc, SUMMARY(name)},
#include "sim/serve/request.def"
    {NULL},
};

/* ---- what was asked, of several GPUs ---- */

static bool has_quality(const struct result *r) {
    return r->facts->quality != NULL;
}

static json_t *quality(const struct result *r) {
    const struct summary *s = r->summary;
    return quality_json(r->facts->quality, s->makespan_s, s->answer_tokens, s->tokens_processed);
}

static bool has_ranks(const struct result *r) {
    return r->facts->tensor_parallel > 1;
}

static double throughput_of_gpu(const struct result *r) {
    return r->summary->throughput_tok_s / r->facts->gpus;
}

static const struct column ranks[] = {
    {"quality", NO_AXIS, "right answers of a run of prompts",
     "Counts of answers `served`, `judged`, `right`, `compared` and `agreed`; `accuracy` and "
     "`agreement` with their intervals; what right answers took; a mark for each answer.",
     OBJECT_BY(quality), .is_there = has_quality},
    {"quality.accuracy", "right answers", "share", "right answers over judged ones", ELSEWHERE},
    {"quality.agreement", "outputs as the reference's", "share",
     "outputs equal to the reference's over compared ones", ELSEWHERE},
    {"quality.accuracy_low", "right answers, low", "share", "the share is above it with 97.5 %",
     ELSEWHERE},
    {"quality.accuracy_high", "right answers, high", "share", "the share is below it with 97.5 %",
     ELSEWHERE},
    {"quality.right", "right answers", "answers", "number of right answers", ELSEWHERE},
    {"quality.right_req_s", "right answers", "requests/s", "right answers over the makespan",
     ELSEWHERE},
    {"quality.answer_tok_s", "answers' throughput", "tokens/s",
     "tokens of answers over the makespan", ELSEWHERE},
    {"quality.tokens_run_per_right", "processed tokens per right answer", "tokens",
     "query tokens of all steps over right answers", ELSEWHERE},
    {"tensor_parallel", "tensor parallelism", "GPUs", "GPUs that hold a replica together",
     "This and what follows: where several GPUs hold a replica.", FACT(tensor_parallel),
     .is_there = has_ranks},
    {"gpus", "GPUs", "", "GPUs of all replicas", FACT(gpus), .is_there = has_ranks},
    {"throughput_tok_s_gpu", "throughput per GPU", "tokens/s", "throughput over the number of GPUs",
     DERIVED_BY(throughput_of_gpu), .is_there = has_ranks},
    {"collectives", NO_AXIS, "source of the prices of exchanges between GPUs", FACT(collectives),
     .is_there = has_ranks},
    {NULL},
};

/* ---- what it used ---- */

static double joules(const struct result *r) {
    return run_energy_joules(&r->facts->energy);
}

static bool knows_energy(const struct result *r) {
    return joules(r) > 0 && r->summary->makespan_s > 0;
}

static double watts(const struct result *r) {
    return joules(r) / r->summary->makespan_s;
}

static double joules_over(const struct result *r, uint64_t n) {
    return n > 0 ? joules(r) / (double)n : (double)NAN;
}

static double joules_per_answer_token(const struct result *r) {
    return joules_over(r, r->summary->answer_tokens);
}

static double joules_per_request(const struct result *r) {
    return joules_over(r, r->summary->completed);
}

static double measured_joules(const struct result *r) {
    return r->facts->energy.measured_j > 0 ? r->facts->energy.measured_j : (double)NAN;
}

static double priced_joules(const struct result *r) {
    return r->facts->energy.priced_j > 0 ? r->facts->energy.priced_j : (double)NAN;
}

static double gpu_busy(const struct result *r) {
    double share = summary_gpu_busy(r->summary, r->facts);
    return share < 0 ? (double)NAN : share;
}

static json_t *kv_peak(const struct result *r) {
    int64_t bytes = summary_kv_peak(r->summary, r->facts);
    return bytes < 0 ? json_null() : json_integer(bytes);
}

static json_t *price_lookups(const struct result *r) {
    const struct run_facts *f = r->facts;
    return json_pack("{s:I, s:I, s:I, s:I}", "exact", (json_int_t)f->price_exact, "interpolated",
                     (json_int_t)f->price_interpolated, "extrapolated",
                     (json_int_t)f->price_extrapolated, "roofline", (json_int_t)f->price_roofline);
}

static json_t *price_time_shares(const struct result *r) {
    return summary_price_shares(&r->facts->price_shares);
}

static bool is_transferred(const struct result *r) {
    struct transferred t;
    return transferred_interval(r->summary, r->facts, &t);
}

static json_t *transferred(const struct result *r) {
    struct transferred t = {0};
    (void)transferred_interval(r->summary, r->facts, &t);
    json_t *latency = r->summary->completed > 0 ? json_pack("{s:f, s:f}", "low", t.low_latency_s,
                                                            "high", t.high_latency_s)
                                                : json_null();
    return json_pack("{s:{s:f, s:f}, s:o, s:s}", "throughput_tok_s", "low", t.low_tok_s, "high",
                     t.high_tok_s, "latency_mean_s", latency, "source", transferred_source);
}

static json_t *constants(const struct result *r) {
    json_t *object = json_object();
    for (size_t i = 0; i < r->facts->n_constants; i++) {
        const struct run_figure *f = &r->facts->constants[i];
        json_object_set_new(object, f->name,
                            json_pack("{s:f, s:s, s:s}", "value", f->value, "unit",
                                      figure_unit_words[f->unit], "source", f->source));
    }
    return object;
}

static json_t *engine(const struct result *r) {
    json_t *object = json_object();
    for (size_t i = 0; i < r->facts->n_engine; i++) {
        const struct run_figure *f = &r->facts->engine[i];
        json_object_set_new(object, f->name,
                            f->unit == UNIT_BYTES ? json_integer((json_int_t)f->value)
                                                  : json_real(f->value));
    }
    return object;
}

static json_t *warnings(const struct result *r) {
    struct warnings all = caution_of(r->summary, r->facts);
    return caution_json(&all);
}

static bool has_identity(const struct result *r) {
    return r->facts->identity != NULL;
}

static json_t *identity(const struct result *r) {
    return json_deep_copy((json_t *)(uintptr_t)r->facts->identity);
}

static const struct column resources[] = {
    {"energy.joules", "energy", "J", "measured energy, else the priced one",
     "Where the profile knows the power of the GPU, or a live run measured it.", DERIVED_BY(joules),
     .is_there = knows_energy},
    {"energy.watts", "power", "W", "energy over the makespan", DERIVED_BY(watts),
     .is_there = knows_energy},
    {"energy.joules_per_answer_token", "energy per answer token", "J", "energy over answer tokens",
     DERIVED_BY(joules_per_answer_token), .is_there = knows_energy},
    {"energy.joules_per_request", "energy per request", "J", "energy over completed requests",
     DERIVED_BY(joules_per_request), .is_there = knows_energy},
    {"energy.measured_joules", NULL, "J", "energy by the GPUs' own counter",
     DERIVED_BY(measured_joules), .is_there = knows_energy},
    {"energy.priced_joules", NULL, "J", "energy by the profile's power rows",
     DERIVED_BY(priced_joules), .is_there = knows_energy},
    {"gpu_busy", "GPU busy", "share", "share of the makespan in which the GPU computes",
     DERIVED_BY(gpu_busy)},
    {"mfu", "FLOP utilisation", "share", "share of the GPU's peak FLOP/s reached while it is busy",
     FACT_SHARE(mfu)},
    {"bandwidth_util", "bandwidth utilisation", "share",
     "share of the GPU's peak bandwidth reached while it is busy", FACT_SHARE(bandwidth_util)},
    {"weights_bytes", "weights", "bytes", "weights of the model on a GPU", FACT(weights_bytes)},
    {"reserve_bytes", "runtime reserve", "bytes", "memory kept free of everything else",
     FACT(reserve_bytes)},
    {"kv_pool_bytes", "KV pool", "bytes", "memory for keys and values", FACT(kv_pool_bytes)},
    {"kv_peak_bytes", "KV in use, most", "bytes", "most of the KV pool in use at once",
     OBJECT_BY(kv_peak)},
    {"activation_peak_bytes", "activations, most", "bytes", "most memory for activations of a step",
     FACT(activation_peak_bytes)},
    {"logit_peak_bytes", "logits, most", "bytes", "most memory for logits of a step",
     FACT(logit_peak_bytes)},
    {"price_lookups", "price look-ups", "", "look-ups of prices, by how the profile answered",
     OBJECT_BY(price_lookups)},
    {"price_time_shares", "priced time", "share",
     "shares of the operators' simulated time, by kind of price", OBJECT_BY(price_time_shares)},
    {"transferred", NO_AXIS, "the interval that errors of another GPU's prices leave",
     "Where another GPU's measurements price the run: `throughput_tok_s` and `latency_mean_s`, "
     "each `low` and `high`, and the `source` of the errors.",
     OBJECT_BY(transferred), .is_there = is_transferred},
    {"constants", NO_AXIS, "the calibrated constants in force, by name",
     "Each has `value`, `unit` and `source`.", OBJECT_BY(constants)},
    {"engine", NO_AXIS, "figures of the real engine",
     "Wall and device time, bytes planned and metered.", OBJECT_BY(engine)},
    {"warnings", NO_AXIS, "what could mislead",
     "A list of `code`, `value` and `text`: see [cautions.md](cautions.md).", OBJECT_BY(warnings)},
    {"identity", NO_AXIS, "what the run was made of",
     "`digest`, `build` and `inputs`: the program, and the SHA-256 of every file that it read.",
     OBJECT_BY(identity), .is_there = has_identity},
    {"bound", NO_AXIS, "what no scheduler can beat, with `--bound`",
     "What `unmask bound` prints, and what the run reached of it. `at_highest_clock`: bounds are "
     "of steps at the highest clock, which the power limit may "
     "not leave.",
     ELSEWHERE},
    {"bound.throughput_share", "throughput of the bound", "share",
     "throughput over the most that any scheduler reaches", ELSEWHERE},
    {"bound.latency_mean_ratio", NO_AXIS, "mean latency over the least", ELSEWHERE},
    {"bound.latency_p99_ratio", NO_AXIS, "p99 latency over the least", ELSEWHERE},
    {"bound.attainment", "attainment at most", "share",
     "highest attainment that any scheduler reaches", ELSEWHERE},
    {NULL},
};

const struct column_group column_groups[] = {
    {"Recorded runs", "Fields that plots have of runs in a database.", OF_PLOTS, recorded},
    {"What ran", "Fields of `run --json`, in its order, here and in the next sections.", OF_RUN,
     ran},
    {"A tenant or a class",
     "Of each object of `tenants` and `classes`, besides fields of the run that hold for it.",
     OF_GROUP, group_columns},
    {"Requests of a run", "Rates, times and service-level objectives.", OF_RUN_REQUESTS, requests},
    {"Steps and tokens", "Forward passes, and what they ran and committed.", OF_RUN_RESULT, steps},
    {"Prompts and several GPUs", "Only of runs that were asked prompts, or have them.",
     OF_RUN_RESULT, ranks},
    {"What it used", "Energy, memory and prices.", OF_RUN_RESULT, resources},
    {"A request", "Of each, in databases (table `requests`), in plots and on pages.", OF_REQUEST,
     request_columns},
    {"The course of a run", "In equal stretches of time, of plots and pages.", OF_PLOTS,
     course_columns},
    {NULL},
};

/* The columns of a request, of sim/serve/request.def. */

static double seconds(double ns) {
    return ns >= 0 ? ns / 1e9 : (double)NAN;
}

static double request_arrival(const struct request_record *record) {
    return seconds((double)record->arrival_ns);
}

/* Of requests that were not completed nothing is known. */
static struct request_times times_of(const struct request_record *record) {
    return record->state == REQUEST_DONE
               ? request_times_of(record)
               : (struct request_times){
                     .latency_ns = -1, .queue_ns = -1, .ttfb_ns = -1, .tpot_ns = -1};
}

static double request_queue(const struct request_record *record) {
    return seconds((double)times_of(record).queue_ns);
}

static double request_ttft(const struct request_record *record) {
    return seconds((double)times_of(record).ttfb_ns);
}

static double request_tpot(const struct request_record *record) {
    return seconds(times_of(record).tpot_ns);
}

static double request_latency(const struct request_record *record) {
    return seconds((double)times_of(record).latency_ns);
}

#define AT(member)                                                                                 \
    .kind = COLUMN_KIND(((struct request_record *)0)->member),                                     \
    .offset = offsetof(struct request_record, member)
/* A kept column. */
#define ROW(name, label, unit, since_, before_, doc)                                               \
#name, label, unit, doc, NULL, AT(name), .since = (since_), .before = (before_)

const struct column request_columns[] = {
#define KEPT(type, name, since, before, doc) {ROW(name, NULL, "", since, before, doc)},
#define LINK(name, since, doc)               {ROW(name, NULL, "", since, "", doc), .less = 1},
#define SHOWN(type, name, since, before, unit, label, doc)                                         \
    {ROW(name, label, unit, since, before, doc)},
#define DERIVED(name, value, unit, label, doc)                                                     \
    {#name, label, unit, doc, NULL, .kind = COLUMN_DERIVED, .of_request = request_##value},
#include "sim/serve/request.def"
    {NULL},
};

int64_t column_whole(const struct column *column, const struct request_record *record) {
    const void *at = (const char *)record + column->offset;
    return column->kind == COLUMN_U32 ? *(const uint32_t *)at : *(const int64_t *)at;
}

void column_set_whole(const struct column *column, struct request_record *record, int64_t value) {
    void *at = (char *)record + column->offset;
    if (column->kind == COLUMN_U32) {
        *(uint32_t *)at = (uint32_t)value;
    } else {
        *(int64_t *)at = value;
    }
}
