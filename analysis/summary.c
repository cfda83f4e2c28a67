#include "analysis/summary.h"

#include "analysis/caution.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/identity.h"
#include "sim/base/num.h"

static int series_reserve(struct series *series, size_t capacity, struct err *err) {
    if (capacity <= series->capacity) {
        return 0;
    }
    double *values = capacity > SIZE_MAX / sizeof *values
                         ? NULL
                         : realloc(series->values, capacity * sizeof *values);
    if (values == NULL) {
        return err_world(err, "out of memory: cannot keep the figures of %zu requests", capacity);
    }
    series->values = values;
    series->capacity = capacity;
    return 0;
}

int series_push(struct series *series, double value, struct err *err) {
    if (series->n == series->capacity) {
        int rc = series_reserve(series, series->capacity == 0 ? 256 : 2 * series->capacity, err);
        if (rc != 0) {
            return rc;
        }
    }
    series->values[series->n++] = value;
    return 0;
}

void summary_init(struct summary *summary, const struct slo *slo) {
    *summary =
        (struct summary){.first_arrival_ns = -1, .last_finish_ns = -1, .last_arrival_ns = -1};
    if (slo != NULL) {
        summary->slo = *slo;
    }
}

void summary_fini(struct summary *summary) {
    free(summary->latency_s.values);
    free(summary->ttfb_s.values);
    free(summary->queue_s.values);
    free(summary->tpot_s.values);
    free(summary->arrival_s.values);
    free(summary->waiting_s.values);
    *summary = (struct summary){0};
}

int summary_reserve(struct summary *summary, size_t n_requests, struct err *err) {
    struct series *all[] = {&summary->latency_s, &summary->ttfb_s, &summary->queue_s,
                            &summary->tpot_s, &summary->arrival_s};
    int rc = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && rc == 0; i++) {
        rc = series_reserve(all[i], n_requests, err);
    }
    return rc;
}

static int add_completed(struct summary *summary, const struct request_record *record,
                         struct err *err) {
    summary->completed++;
    summary->tokens_committed += record->committed_tokens;
    summary->answer_tokens += record->answer_tokens;
    summary->steps_after_end += record->steps_after_end;
    summary->tokens_after_end += record->tokens_after_end;
    summary->prompt_tokens += record->prompt_tokens;
    if (record->finished_ns > summary->last_finish_ns) {
        summary->last_finish_ns = record->finished_ns;
    }
    const struct slo *slo = &summary->slo;
    int64_t latency_ns = record->finished_ns - record->arrival_ns;
    bool met = slo->latency_ns == 0 || latency_ns <= slo->latency_ns;
    int rc = series_push(&summary->latency_s, (double)latency_ns / 1e9, err);
    if (rc == 0) {
        rc = series_push(&summary->arrival_s, (double)record->arrival_ns / 1e9, err);
    }
    if (rc == 0 && record->admitted_ns >= 0) {
        rc = series_push(&summary->queue_s,
                         (double)(record->admitted_ns - record->arrival_ns) / 1e9, err);
    }
    if (rc == 0 && record->first_block_ns >= 0) {
        int64_t ttfb_ns = record->first_block_ns - record->arrival_ns;
        met = met && (slo->ttfb_ns == 0 || ttfb_ns <= slo->ttfb_ns);
        rc = series_push(&summary->ttfb_s, (double)ttfb_ns / 1e9, err);
        if (rc == 0 && record->answer_tokens > record->first_block_tokens) {
            uint32_t tokens = record->answer_tokens - record->first_block_tokens;
            double tpot_ns = (double)(record->finished_ns - record->first_block_ns) / tokens;
            met = met && (slo->tpot_ns == 0 || tpot_ns <= (double)slo->tpot_ns);
            rc = series_push(&summary->tpot_s, tpot_ns / 1e9, err);
        }
    }
    summary->met_slo += met;
    return rc;
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct summary *summary = state;
    summary->requests++;
    summary->preemptions += record->preemptions;
    if (summary->first_arrival_ns < 0 || record->arrival_ns < summary->first_arrival_ns) {
        summary->first_arrival_ns = record->arrival_ns;
    }
    if (record->arrival_ns > summary->last_arrival_ns) {
        summary->last_arrival_ns = record->arrival_ns;
    }
    if (record->state == REQUEST_DONE) {
        return add_completed(summary, record, err);
    }
    ASSERT(record->reason < REJECT_REASON_COUNT);
    summary->rejected++;
    summary->rejected_by_reason[record->reason]++;
    bool was_kept_out = record->reason == REJECT_QUEUE || record->reason == REJECT_SHUTDOWN;
    return was_kept_out ? series_push(&summary->waiting_s, (double)record->arrival_ns / 1e9, err)
                        : 0;
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

struct distribution distribution_of(double *values, size_t n) {
    if (n == 0) {
        return (struct distribution){0};
    }
    gsl_sort(values, 1, n);
    double mean = gsl_stats_mean(values, 1, n);
    return (struct distribution){
        .n = n,
        .mean = mean,
        .p50 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.50),
        .p90 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.90),
        .p95 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.95),
        .p99 = gsl_stats_quantile_from_sorted_data(values, 1, n, 0.99),
        .std = n > 1 ? gsl_stats_sd_m(values, 1, n, mean) : 0,
        .min = values[0],
        .max = values[n - 1],
    };
}

static double over(double a, double b) {
    return b > 0 ? a / b : 0;
}

/* Before the latencies are sorted. */
static struct offered offered_to(const struct summary *s) {
    size_t n = s->arrival_s.n + s->waiting_s.n;
    struct stay *stays = malloc((n + 1) * sizeof *stays);
    if (stays == NULL) {
        return (struct offered){0};
    }
    for (size_t i = 0; i < n; i++) {
        bool left = i < s->arrival_s.n;
        double arrival_s = left ? s->arrival_s.values[i] : s->waiting_s.values[i - s->arrival_s.n];
        stays[i] =
            (struct stay){arrival_s, left ? arrival_s + s->latency_s.values[i] : (double)INFINITY};
    }
    struct offered offered = offered_of(stays, n, s->requests, (double)s->last_arrival_ns / 1e9);
    free(stays);
    return offered;
}

void summary_finish(struct summary *summary) {
    summary->offered = offered_to(summary);
    summary->latency = distribution_of(summary->latency_s.values, summary->latency_s.n);
    summary->ttfb = distribution_of(summary->ttfb_s.values, summary->ttfb_s.n);
    summary->queue = distribution_of(summary->queue_s.values, summary->queue_s.n);
    summary->tpot = distribution_of(summary->tpot_s.values, summary->tpot_s.n);
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

/* NULL-safe: a failed json_* leaves NULL here and json_object_set_new reports it once. */
static int put(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value);
}

static json_t *known_share(double share) {
    return share < 0 ? json_null() : json_real(share);
}

static json_t *known_bytes(int64_t bytes) {
    return bytes < 0 ? json_null() : json_integer(bytes);
}

static json_t *known_text(const char *text) {
    return text != NULL ? json_string(text) : json_null();
}

/* A distribution of nothing has no figures. */
static json_t *json_distribution(const struct distribution *d) {
    const char *const names[] = {"mean", "p50", "p90", "p95", "p99", "std", "min", "max"};
    const double values[] = {d->mean, d->p50, d->p90, d->p95, d->p99, d->std, d->min, d->max};
    json_t *object = json_object();
    int failed = 0;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        failed |= put(object, names[i], d->n > 0 ? json_real(values[i]) : json_null());
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *json_bound(int64_t ns) {
    return ns == 0 ? json_null() : json_real((double)ns / 1e9);
}

static bool has_slo(const struct slo *slo) {
    return slo->latency_ns > 0 || slo->ttfb_ns > 0 || slo->tpot_ns > 0;
}

static double busy_share(const struct summary *summary, const struct run_facts *facts) {
    return facts->gpu_busy >= 0 ? facts->gpu_busy : summary->gpu_busy;
}

static int64_t kv_peak(const struct summary *summary, const struct run_facts *facts) {
    return facts->kv_peak_bytes >= 0 ? facts->kv_peak_bytes : summary->kv_peak_bytes;
}

static json_t *times_text(const struct run_facts *facts) {
    return facts->device != NULL ? json_sprintf("measured on %s", facts->device)
                                 : json_string("simulated");
}

static json_t *host_json(const struct run_host *host) {
    return host->name == NULL
               ? json_null()
               : json_pack("{s:s, s:s, s:f, s:s}", "name", host->name, "kind", host->kind, "factor",
                           host->factor, "source", host->source);
}

static json_t *json_decisions(const struct run_decisions *d) {
    return json_pack("{s:b, s:s?, s:s?, s:s}", "drawn", d->drawn, "process", d->process, "kind",
                     d->drawn ? provenance_words[d->from.kind] : NULL, "source", d->from.source);
}

static json_t *json_answers(const struct run_facts *facts) {
    return facts->answers_kind != NULL
               ? json_pack("{s:s, s:s}", "kind", facts->answers_kind, "source",
                           facts->answers_source != NULL ? facts->answers_source : "")
               : json_null();
}

static int put_identity(json_t *o, const struct run_facts *facts) {
    return put(o, "system", json_string(facts->system)) |
           put(o, "model", json_string(facts->model)) | put(o, "gpu", json_string(facts->gpu)) |
           put(o, "profile", json_string(facts->profile)) |
           put(o, "profile_kind", json_string(facts->profile_kind)) |
           put(o, "host", host_json(&facts->host)) |
           put(o, "backend", json_string(facts->backend)) |
           put(o, "device", known_text(facts->device)) |
           put(o, "emulated", facts->device != NULL ? json_boolean(facts->emulated) : json_null()) |
           put(o, "weights", known_text(facts->weights)) | put(o, "times", times_text(facts)) |
           put(o, "clock", known_text(facts->clock)) |
           put(o, "incomplete", known_text(facts->incomplete)) |
           put(o, "trace", json_string(facts->trace)) |
           put(o, "trace_provenance", json_string(facts->trace_provenance)) |
           put(o, "decisions", json_decisions(&facts->decisions)) |
           put(o, "answers", json_answers(facts)) |
           put(o, "seed", json_integer((json_int_t)facts->seed)) |
           put(o, "is_drawn", json_boolean(facts->is_drawn));
}

static json_t *json_offered(const struct offered *offered) {
    bool known = offered->rate_req_s > 0;
    return json_pack("{s:o, s:f, s:f, s:s}", "rate_req_s",
                     known ? json_real(offered->rate_req_s) : json_null(), "served_req_s",
                     offered->served_req_s, "queue_growth_req_s", offered->growth_req_s, "state",
                     offered_words[offered->state]);
}

static int put_requests(json_t *o, const struct summary *s) {
    json_t *reasons = json_object();
    int failed = 0;
    for (int i = REJECT_NONE + 1; i < REJECT_REASON_COUNT; i++) {
        failed |= put(reasons, reject_reason_names[i],
                      json_integer((json_int_t)s->rejected_by_reason[i]));
    }
    bool slo = has_slo(&s->slo);
    return failed | put(o, "requests", json_integer((json_int_t)s->requests)) |
           put(o, "completed", json_integer((json_int_t)s->completed)) |
           put(o, "rejected", json_integer((json_int_t)s->rejected)) |
           put(o, "rejected_by_reason", reasons) |
           put(o, "preemptions", json_integer((json_int_t)s->preemptions)) |
           put(o, "makespan_s", json_real(s->makespan_s)) |
           put(o, "throughput_tok_s", json_real(s->throughput_tok_s)) |
           put(o, "throughput_req_s", json_real(s->throughput_req_s)) |
           put(o, "offered", json_offered(&s->offered)) |
           put(o, "latency_s", json_distribution(&s->latency)) |
           put(o, "ttft_s", json_distribution(&s->ttfb)) |
           put(o, "ttfb_s", json_distribution(&s->ttfb)) |
           put(o, "queue_s", json_distribution(&s->queue)) |
           put(o, "tpot_s", json_distribution(&s->tpot)) |
           put(o, "goodput_req_s", slo ? json_real(s->goodput_req_s) : json_null()) |
           put(o, "attainment", slo ? json_real(s->attainment) : json_null()) |
           put(o, "slo",
               json_pack("{s:o, s:o, s:o, s:o}", "latency_s", json_bound(s->slo.latency_ns),
                         "ttft_s", json_bound(s->slo.ttfb_ns), "ttfb_s", json_bound(s->slo.ttfb_ns),
                         "tpot_s", json_bound(s->slo.tpot_ns)));
}

static int put_steps(json_t *o, const struct summary *s) {
    static const struct {
        const char *name;
        int phase;
    } order[] = {{"refresh", PHASE_REFRESH},
                 {"reuse", PHASE_REUSE},
                 {"prefill", PHASE_PREFILL},
                 {"commit", PHASE_COMMIT},
                 {"mixed", SUMMARY_MIXED}};
    json_t *phases = json_object();
    int failed = 0;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        failed |=
            put(phases, order[i].name, json_integer((json_int_t)s->steps_by_phase[order[i].phase]));
    }
    if (s->unrolls) {
        failed |=
            put(o, "wasted_request_steps", json_integer((json_int_t)s->wasted_request_steps)) |
            put(o, "wasted_tokens", json_integer((json_int_t)s->wasted_tokens));
    }
    return failed | put(o, "steps", json_integer((json_int_t)s->steps)) |
           put(o, "steps_by_phase", phases) |
           put(o, "submissions", json_integer((json_int_t)s->submissions)) |
           put(o, "request_steps", json_integer((json_int_t)s->request_steps)) |
           put(o, "max_batch", json_integer(s->max_batch)) |
           put(o, "mean_batch", s->steps > 0 ? json_real(s->mean_batch) : json_null()) |
           put(o, "max_waiting", json_integer(s->max_waiting)) |
           put(o, "replicas", json_integer(s->replicas)) |
           put(o, "tokens_processed", json_integer((json_int_t)s->tokens_processed)) |
           put(o, "tokens_committed", json_integer((json_int_t)s->tokens_committed)) |
           put(o, "redundancy", s->tokens_committed > 0 ? json_real(s->redundancy) : json_null()) |
           put(o, "block_redundancy", known_share(s->block_redundancy)) |
           put(o, "tpf", s->request_steps > 0 ? json_real(s->tpf) : json_null()) |
           put(o, "answer_tokens", json_integer((json_int_t)s->answer_tokens)) |
           put(o, "throughput_answer_tok_s", json_real(s->throughput_answer_tok_s)) |
           put(o, "tpf_answer", s->request_steps > 0 ? json_real(s->tpf_answer) : json_null()) |
           put(o, "wasted_request_steps_after_end", json_integer((json_int_t)s->steps_after_end)) |
           put(o, "wasted_tokens_after_end", json_integer((json_int_t)s->tokens_after_end));
}

/* Nothing where a replica is one GPU. */
static int put_ranks(json_t *o, const struct summary *s, const struct run_facts *facts) {
    if (facts->tensor_parallel <= 1) {
        return 0;
    }
    return put(o, "tensor_parallel", json_integer(facts->tensor_parallel)) |
           put(o, "gpus", json_integer(facts->gpus)) |
           put(o, "throughput_tok_s_gpu", json_real(s->throughput_tok_s / facts->gpus)) |
           put(o, "collectives", known_text(facts->collectives));
}

static json_t *json_figures(const struct run_figure *figures, size_t n, bool with_source) {
    json_t *object = json_object();
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        const struct run_figure *f = &figures[i];
        bool is_bytes = strcmp(f->unit, "bytes") == 0;
        failed |= put(object, f->name,
                      with_source ? json_pack("{s:f, s:s, s:s}", "value", f->value, "unit", f->unit,
                                              "source", f->source)
                      : is_bytes  ? json_integer((json_int_t)f->value)
                                  : json_real(f->value));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *summary_price_shares(const struct price_shares *shares) {
    json_t *by_kind = json_object(), *by_match = json_object();
    for (int kind = 0; kind <= PROVENANCE_ROOFLINE; kind++) {
        put(by_kind, provenance_words[kind], json_real(shares->by_kind[kind]));
    }
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        put(by_match, price_match_words[match], json_real(shares->by_match[match]));
    }
    return json_pack("{s:o, s:o}", "by_kind", by_kind, "by_match", by_match);
}

static int put_resources(json_t *o, const struct summary *s, const struct run_facts *facts) {
    return put(o, "gpu_busy", known_share(busy_share(s, facts))) |
           put(o, "mfu", known_share(facts->mfu)) |
           put(o, "bandwidth_util", known_share(facts->bandwidth_util)) |
           put(o, "weights_bytes", known_bytes(facts->weights_bytes)) |
           put(o, "reserve_bytes", known_bytes(facts->reserve_bytes)) |
           put(o, "kv_pool_bytes", known_bytes(facts->kv_pool_bytes)) |
           put(o, "kv_peak_bytes", known_bytes(kv_peak(s, facts))) |
           put(o, "activation_peak_bytes", known_bytes(facts->activation_peak_bytes)) |
           put(o, "logit_peak_bytes", known_bytes(facts->logit_peak_bytes)) |
           put(o, "price_lookups",
               json_pack("{s:I, s:I, s:I, s:I}", "exact", (json_int_t)facts->price_exact,
                         "interpolated", (json_int_t)facts->price_interpolated, "extrapolated",
                         (json_int_t)facts->price_extrapolated, "roofline",
                         (json_int_t)facts->price_roofline)) |
           put(o, "price_time_shares", summary_price_shares(&facts->price_shares)) |
           put(o, "constants", json_figures(facts->constants, facts->n_constants, true)) |
           put(o, "engine", json_figures(facts->engine, facts->n_engine, false));
}

static int put_origin(json_t *o, const struct run_facts *facts) {
    return facts->identity != NULL
               ? put(o, "identity", json_deep_copy((json_t *)(uintptr_t)facts->identity))
               : 0;
}

json_t *summary_requests_json(const struct summary *summary) {
    json_t *object = json_object();
    if (put_requests(object, summary) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

int summary_json(const struct summary *summary, const struct run_facts *facts, json_t **out,
                 struct err *err) {
    json_t *object = json_object();
    struct warnings warnings = caution_of(summary, facts);
    if (put_identity(object, facts) | put_requests(object, summary) | put_steps(object, summary) |
        put_ranks(object, summary, facts) | put_resources(object, summary, facts) |
        put(object, "warnings", caution_json(&warnings)) | put_origin(object, facts)) {
        json_decref(object);
        return err_world(err, "the summary cannot be written as JSON: a name is not UTF-8, a "
                              "number is not finite, or memory is out");
    }
    *out = object;
    return 0;
}

char *summary_json_text(const json_t *object, int pretty) {
    size_t flags = JSON_REAL_PRECISION(9) | JSON_PRESERVE_ORDER;
    char *text = json_dumps(object, flags | (pretty ? JSON_INDENT(2) : JSON_COMPACT));
    if (text == NULL || !pretty) {
        return text;
    }
    size_t length = strlen(text);
    char *line = realloc(text, length + 2);
    if (line == NULL) {
        free(text);
        return NULL;
    }
    memcpy(line + length, "\n", 2);
    return line;
}

static void print_distribution(FILE *out, const char *name, const struct distribution *d) {
    if (d->n == 0) {
        return;
    }
    const double values[] = {d->mean, d->p50, d->p90, d->p95, d->p99, d->std, d->min, d->max};
    fprintf(out, "  %-10s", name);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char text[32];
        fprintf(out, " %9s", num_format_ns(text, sizeof text, values[i] * 1e9));
    }
    fputc('\n', out);
}

static void print_bytes(FILE *out, const char *name, int64_t bytes) {
    char text[32];
    if (bytes >= 0) {
        fprintf(out, "  %s %s", name, num_format_bytes(text, sizeof text, (double)bytes));
    }
}

static void print_share(FILE *out, const char *name, double share) {
    if (share >= 0) {
        fprintf(out, "  %s %.1f %%", name, 100 * share);
    }
}

static void print_shares(FILE *out, const char *const *words, const double *shares, int n) {
    for (int i = 0; i < n; i++) {
        if (shares[i] > 0) {
            print_share(out, words[i], shares[i]);
        }
    }
}

void summary_print_price_shares(const struct price_shares *shares, FILE *out) {
    double sum = 0;
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        sum += shares->by_match[match];
    }
    if (sum > 0) {
        fprintf(out, "of the time ");
        print_shares(out, provenance_words, shares->by_kind, PROVENANCE_KIND_COUNT);
        fprintf(out, ";");
        print_shares(out, price_match_words, shares->by_match, PRICE_MATCH_COUNT);
        fputc('\n', out);
    }
}

static void print_rejections(const struct summary *s, FILE *out) {
    if (s->rejected == 0) {
        return;
    }
    fprintf(out, "rejected   ");
    for (int i = 0; i < REJECT_REASON_COUNT; i++) {
        if (s->rejected_by_reason[i] > 0) {
            fprintf(out, "  %s %" PRIu64, reject_reason_names[i], s->rejected_by_reason[i]);
        }
    }
    fputc('\n', out);
}

static void print_identity(const struct run_facts *f, FILE *out) {
    fprintf(out, "%s, %s on %s (%s backend%s%s%s)\n", f->system, f->model, f->gpu, f->backend,
            f->device != NULL ? ", " : "", f->emulated ? "emulated on " : "",
            f->device != NULL ? f->device : "");
    if (f->weights != NULL) {
        fprintf(out, "weights      %s\n", f->weights);
    }
    if (f->device != NULL) {
        fprintf(out, "times        measured on %s%s%s\n", f->device,
                f->clock != NULL ? ", clock " : "", f->clock != NULL ? f->clock : "");
    }
    if (f->incomplete != NULL) {
        fprintf(out, "incomplete   %s\n", f->incomplete);
    }
    fprintf(out, "profile      %s: %s\n", f->profile, f->profile_kind);
    if (f->host.name != NULL) {
        fprintf(out, "host         %s: %s, factor %.4g (%s)\n", f->host.name, f->host.kind,
                f->host.factor, f->host.source);
    }
    fprintf(out, "trace        %s%s%s, seed %" PRIu64 "\n", f->trace,
            f->trace_provenance[0] != '\0' ? ": " : "", f->trace_provenance, f->seed);
    if (f->identity != NULL) {
        char text[160];
        identity_describe(f->identity, text, sizeof text);
        fprintf(out, "identity     %s\n", text);
    }
}

void summary_print(const struct summary *s, const struct run_facts *f, FILE *out) {
    print_identity(f, out);
    fprintf(out,
            "requests     %" PRIu64 " completed of %" PRIu64 "; %" PRIu64 " rejected, %" PRIu64
            " preemptions\n",
            s->completed, s->requests, s->rejected, s->preemptions);
    print_rejections(s, out);
    fprintf(out, "throughput   %.4g tok/s  %.4g req/s over %.6g s\n", s->throughput_tok_s,
            s->throughput_req_s, s->makespan_s);
    if (f->tensor_parallel > 1) {
        fprintf(out, "gpus         %" PRIu32 ", %" PRIu32 " a replica: %.4g tok/s each\n", f->gpus,
                f->tensor_parallel, s->throughput_tok_s / f->gpus);
    }
    if (has_slo(&s->slo)) {
        fprintf(out,
                "goodput      %.4g req/s: %" PRIu64 " requests within the objective, %.1f %% of "
                "all that arrived\n",
                s->goodput_req_s, s->met_slo, 100 * s->attainment);
    }
    if (s->completed > 0) {
        fprintf(out, "\n  %-10s %9s %9s %9s %9s %9s %9s %9s %9s\n", "", "mean", "p50", "p90", "p95",
                "p99", "std", "min", "max");
        print_distribution(out, "latency", &s->latency);
        print_distribution(out, "ttft", &s->ttfb);
        print_distribution(out, "queue", &s->queue);
        print_distribution(out, "tpot", &s->tpot);
        fputc('\n', out);
    }
    fprintf(out,
            "steps        %" PRIu64 ": refresh %" PRIu64 ", reuse %" PRIu64 ", prefill %" PRIu64
            ", commit %" PRIu64 ", mixed %" PRIu64 "; %.3g requests in one, at most %" PRIu32 "\n",
            s->steps, s->steps_by_phase[PHASE_REFRESH], s->steps_by_phase[PHASE_REUSE],
            s->steps_by_phase[PHASE_PREFILL], s->steps_by_phase[PHASE_COMMIT],
            s->steps_by_phase[SUMMARY_MIXED], s->mean_batch, s->max_batch);
    fprintf(out,
            "tokens       %" PRIu64 " processed, %" PRIu64
            " committed: redundancy %.4g, %.4g per forward pass\n",
            s->tokens_processed, s->tokens_committed, s->redundancy, s->tpf);
    if (s->answer_tokens < s->tokens_committed) {
        fprintf(
            out,
            "answers      %" PRIu64
            " tokens up to the end of text: %.4g tok/s, %.4g per forward pass; behind it %" PRIu64
            " request steps, %" PRIu64 " tokens\n",
            s->answer_tokens, s->throughput_answer_tok_s, s->tpf_answer, s->steps_after_end,
            s->tokens_after_end);
    }
    if (s->unrolls) {
        fprintf(out,
                "unrolled     %" PRIu64 " of %" PRIu64 " request steps, %" PRIu64
                " tokens, after their block was done\n",
                s->wasted_request_steps, s->request_steps, s->wasted_tokens);
    }
    if (s->block_redundancy >= 0) {
        fprintf(out, "blocks       %.4g positions run for each token committed%s\n",
                s->block_redundancy, s->kept_queries > 0 ? ", behind the eviction" : "");
    }
    fprintf(out, "memory     ");
    print_bytes(out, "weights", f->weights_bytes);
    print_bytes(out, "reserve", f->reserve_bytes);
    print_bytes(out, "KV pool", f->kv_pool_bytes);
    print_bytes(out, "KV peak", kv_peak(s, f));
    print_bytes(out, "activation peak", f->activation_peak_bytes);
    print_bytes(out, "logit peak", f->logit_peak_bytes);
    fputc('\n', out);
    double busy = busy_share(s, f);
    if (busy >= 0 || f->mfu >= 0 || f->bandwidth_util >= 0) {
        fprintf(out, "gpu        ");
        print_share(out, "busy", busy);
        print_share(out, "MFU", f->mfu);
        print_share(out, "bandwidth", f->bandwidth_util);
        fputc('\n', out);
    }
    fprintf(out,
            "prices       exact %" PRIu64 ", interpolated %" PRIu64 ", extrapolated %" PRIu64
            ", roofline %" PRIu64 "\n",
            f->price_exact, f->price_interpolated, f->price_extrapolated, f->price_roofline);
    summary_print_price_shares(&f->price_shares, out);
    for (size_t i = 0; i < f->n_constants; i++) {
        const struct run_figure *c = &f->constants[i];
        fprintf(out, "%s   %s = %.6g %s (%s)\n", i == 0 ? "calibrated" : "          ", c->name,
                c->value, c->unit, c->source);
    }
    for (size_t i = 0; i < f->n_engine; i++) {
        const struct run_figure *e = &f->engine[i];
        char text[32];
        fprintf(out, "%s       %s = ", i == 0 ? "engine" : "      ", e->name);
        if (strcmp(e->unit, "bytes") == 0) {
            fprintf(out, "%s\n", num_format_bytes(text, sizeof text, e->value));
        } else if (strcmp(e->unit, "1") == 0) { /* a share */
            fprintf(out, "%.1f %%\n", 100 * e->value);
        } else {
            fprintf(out, "%.6g %s\n", e->value, e->unit);
        }
    }
}
