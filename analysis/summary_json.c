/* A summary as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/quality.h"
#include "analysis/summary.h"
#include "analysis/summary_output.h"
#include "analysis/transferred.h"
#include "sim/base/mem.h"

/* NULL-safe: a failed json_* leaves NULL here and json_object_set_new reports it once. */
static int put(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value);
}

/* A key and its value; behind the last a key of NULL. */
struct member {
    const char *key;
    json_t *value;
};

/* Several, in their order: a chain of calls in one expression would have none. */
static int put_all(json_t *object, const struct member *members) {
    int failed = 0;
    for (; members->key != NULL; members++) {
        failed |= put(object, members->key, members->value);
    }
    return failed;
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

static json_t *times_text(const struct run_facts *facts) {
    return facts->device != NULL ? json_sprintf("measured on %s", facts->device)
                                 : json_string("simulated");
}

static json_t *ratio(double value) {
    return value > 0 ? json_real(value) : json_null();
}

static json_t *prices_json(const struct run_prices *prices) {
    return json_pack("{s:s, s:s?, s:s, s:s?, s:s?, s:s?, s:o, s:o}", "kind",
                     provenance_words[prices->from.kind], "behind", prices->behind, "source",
                     prices->from.source, "of", prices->of, "kernels", prices->kernels, "asked",
                     prices->asked, "over_imported", ratio(prices->over_imported), "over_roofline",
                     ratio(prices->over_roofline));
}

static json_t *host_json(const struct run_host *host) {
    return host->name == NULL
               ? json_null()
               : json_pack("{s:s, s:s, s:f, s:s}", "name", host->name, "kind", host->kind, "factor",
                           host->factor, "source", host->source);
}

static json_t *json_decisions(const struct run_decisions *d) {
    json_t *object = json_pack("{s:b, s:s?, s:s?}", "drawn", d->drawn, "process", d->process,
                               "kind", d->drawn ? provenance_words[d->from.kind] : NULL);
    if (d->error != NULL) {
        json_object_set_new(object, "error", json_string(d->error));
    }
    json_object_set_new(object, "source", json_string(d->from.source));
    return object;
}

static json_t *json_answers(const struct run_facts *facts) {
    return facts->answers_kind != NULL
               ? json_pack("{s:s, s:s}", "kind", facts->answers_kind, "source",
                           facts->answers_source != NULL ? facts->answers_source : "")
               : json_null();
}

static int put_identity(json_t *o, const struct run_facts *facts) {
    return put_all(
        o, (const struct member[]){
               {"system", json_string(facts->system)},
               {"model", json_string(facts->model)},
               {"gpu", json_string(facts->gpu)},
               {"profile", json_string(facts->profile)},
               {"profile_kind", json_string(facts->profile_kind)},
               {"prices", prices_json(&facts->prices)},
               {"host", host_json(&facts->host)},
               {"backend", json_string(facts->backend)},
               {"device", known_text(facts->device)},
               {"emulated", facts->device != NULL ? json_boolean(facts->emulated) : json_null()},
               {"weights", known_text(facts->weights)},
               {"times", times_text(facts)},
               {"clock", known_text(facts->clock)},
               {"incomplete", known_text(facts->incomplete)},
               {"trace", json_string(facts->trace)},
               {"trace_provenance", json_string(facts->trace_provenance)},
               {"decisions", json_decisions(&facts->decisions)},
               {"answers", json_answers(facts)},
               {"seed", json_integer((json_int_t)facts->seed)},
               {"is_drawn", json_boolean(facts->is_drawn)},
               {NULL, NULL}});
}

static json_t *known_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *json_offered(const struct offered *offered) {
    bool known = offered->rate_req_s > 0;
    return json_pack("{s:o, s:f, s:f, s:o, s:o, s:o, s:I, s:s}", "rate_req_s",
                     known ? json_real(offered->rate_req_s) : json_null(), "served_req_s",
                     offered->served_req_s, "queue_growth_req_s", offered->growth_req_s, "load",
                     known_number(offered->load), "load_low", known_number(offered->load_low),
                     "load_high", known_number(offered->load_high), "left_in_system",
                     (json_int_t)offered->n_left, "state", offered_words[offered->state]);
}

static int put_requests(json_t *o, const struct summary *s) {
    json_t *reasons = json_object();
    int failed = 0;
    for (int i = REJECT_NONE + 1; i < REJECT_REASON_COUNT; i++) {
        failed |= put(reasons, reject_reason_names[i],
                      json_integer((json_int_t)s->rejected_by_reason[i]));
    }
    bool slo = slo_is_set(&s->slo);
    failed |= put_all(
        o, (const struct member[]){
               {"requests", json_integer((json_int_t)s->requests)},
               {"completed", json_integer((json_int_t)s->completed)},
               {"rejected", json_integer((json_int_t)s->rejected)},
               {"rejected_by_reason", reasons},
               {"preemptions", json_integer((json_int_t)s->preemptions)},
               {"makespan_s", json_real(s->makespan_s)},
               {"throughput_tok_s", json_real(s->throughput_tok_s)},
               {"throughput_req_s", json_real(s->throughput_req_s)},
               {"offered", json_offered(&s->offered)},
               {"latency_s", json_distribution(&s->latency)},
               {"ttft_s", json_distribution(&s->ttfb)},
               {"ttfb_s", json_distribution(&s->ttfb)},
               {"queue_s", json_distribution(&s->queue)},
               {"tpot_s", json_distribution(&s->tpot)},
               {"goodput_req_s", slo ? json_real(s->goodput_req_s) : json_null()},
               {"attainment", slo ? json_real(s->attainment) : json_null()},
               {"slo", json_pack("{s:o, s:o, s:o, s:o}", "latency_s", json_bound(s->slo.latency_ns),
                                 "ttft_s", json_bound(s->slo.ttfb_ns), "ttfb_s",
                                 json_bound(s->slo.ttfb_ns), "tpot_s", json_bound(s->slo.tpot_ns))},
               {NULL, NULL}});
    return failed;
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
        failed |= put_all(
            o, (const struct member[]){
                   {"wasted_request_steps", json_integer((json_int_t)s->wasted_request_steps)},
                   {"wasted_tokens", json_integer((json_int_t)s->wasted_tokens)},
                   {NULL, NULL}});
    }
    if (s->prefix_tokens > 0) {
        failed |=
            put_all(o, (const struct member[]){
                           {"prefix_tokens", json_integer((json_int_t)s->prefix_tokens)},
                           {"prefix_hit_tokens", json_integer((json_int_t)s->prefix_hit_tokens)},
                           {"prefix_hits", json_integer((json_int_t)s->prefix_hits)},
                           {NULL, NULL}});
    }
    failed |= put_all(
        o, (const struct member[]){
               {"steps", json_integer((json_int_t)s->steps)},
               {"steps_by_phase", phases},
               {"submissions", json_integer((json_int_t)s->submissions)},
               {"request_steps", json_integer((json_int_t)s->request_steps)},
               {"max_batch", json_integer(s->max_batch)},
               {"mean_batch", s->steps > 0 ? json_real(s->mean_batch) : json_null()},
               {"max_waiting", json_integer(s->max_waiting)},
               {"replicas", json_integer(s->replicas)},
               {"tokens_processed", json_integer((json_int_t)s->tokens_processed)},
               {"tokens_committed", json_integer((json_int_t)s->tokens_committed)},
               {"redundancy", s->tokens_committed > 0 ? json_real(s->redundancy) : json_null()},
               {"block_redundancy", known_share(s->block_redundancy)},
               {"tpf", s->request_steps > 0 ? json_real(s->tpf) : json_null()},
               {"answer_tokens", json_integer((json_int_t)s->answer_tokens)},
               {"throughput_answer_tok_s", json_real(s->throughput_answer_tok_s)},
               {"tpf_answer", s->request_steps > 0 ? json_real(s->tpf_answer) : json_null()},
               {"wasted_request_steps_after_end", json_integer((json_int_t)s->steps_after_end)},
               {"wasted_tokens_after_end", json_integer((json_int_t)s->tokens_after_end)},
               {NULL, NULL}});
    return failed;
}

/* Nothing where a replica is one GPU. */
static int put_ranks(json_t *o, const struct summary *s, const struct run_facts *facts) {
    if (facts->tensor_parallel <= 1) {
        return 0;
    }
    return put_all(o, (const struct member[]){
                          {"tensor_parallel", json_integer(facts->tensor_parallel)},
                          {"gpus", json_integer(facts->gpus)},
                          {"throughput_tok_s_gpu", json_real(s->throughput_tok_s / facts->gpus)},
                          {"collectives", known_text(facts->collectives)},
                          {NULL, NULL}});
}

static json_t *json_figures(const struct run_figure *figures, size_t n, bool with_source) {
    json_t *object = json_object();
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        const struct run_figure *f = &figures[i];
        failed |= put(object, f->name,
                      with_source ? json_pack("{s:f, s:s, s:s}", "value", f->value, "unit",
                                              figure_unit_words[f->unit], "source", f->source)
                      : f->unit == UNIT_BYTES ? json_integer((json_int_t)f->value)
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
    if (shares->by_kind[PROVENANCE_ASSUMED] > 0) { /* what GPUs exchange over a link */
        put(by_kind, provenance_words[PROVENANCE_ASSUMED],
            json_real(shares->by_kind[PROVENANCE_ASSUMED]));
    }
    for (int match = 0; match < PRICE_MATCH_COUNT; match++) {
        put(by_match, price_match_words[match], json_real(shares->by_match[match]));
    }
    return json_pack("{s:o, s:o}", "by_kind", by_kind, "by_match", by_match);
}

static json_t *known_joules(double joules) {
    return joules > 0 ? json_real(joules) : json_null();
}

/* Nothing where nobody knows; else as measured, or as priced. */
static int put_energy(json_t *o, const struct summary *s, const struct run_facts *facts) {
    const struct run_energy *e = &facts->energy;
    const double joules = run_energy_joules(e);
    if (!(joules > 0) || !(s->makespan_s > 0)) {
        return 0;
    }
    json_t *energy = json_object();
    int failed = 0;
    failed |= put_all(
        energy,
        (const struct member[]){
            {"joules", json_real(joules)},
            {"watts", json_real(joules / s->makespan_s)},
            {"joules_per_answer_token",
             s->answer_tokens > 0 ? json_real(joules / (double)s->answer_tokens) : json_null()},
            {"joules_per_request",
             s->completed > 0 ? json_real(joules / (double)s->completed) : json_null()},
            {"measured_joules", known_joules(e->measured_j)},
            {"priced_joules", known_joules(e->priced_j)},
            {NULL, NULL}});
    failed |= put(o, "energy", energy);
    return failed;
}

/* Nothing where nobody asked. */
static int put_quality(json_t *o, const struct summary *s, const struct run_facts *facts) {
    return facts->quality == NULL ? 0
                                  : put(o, "quality",
                                        quality_json(facts->quality, s->makespan_s,
                                                     s->answer_tokens, s->tokens_processed));
}

/* Nothing where prices are of this GPU. */
static int put_transferred(json_t *o, const struct summary *s, const struct run_facts *facts) {
    struct transferred t;
    if (!transferred_interval(s, facts, &t)) {
        return 0;
    }
    json_t *latency =
        s->completed > 0 ? json_pack("{s:f, s:f}", "low", t.low_latency_s, "high", t.high_latency_s)
                         : json_null();
    return put(o, "transferred",
               json_pack("{s:{s:f, s:f}, s:o, s:s}", "throughput_tok_s", "low", t.low_tok_s, "high",
                         t.high_tok_s, "latency_mean_s", latency, "source", transferred_source));
}

static int put_resources(json_t *o, const struct summary *s, const struct run_facts *facts) {
    int failed = 0;
    failed |= put_energy(o, s, facts);
    failed |=
        put_all(o, (const struct member[]){
                       {"gpu_busy", known_share(summary_gpu_busy(s, facts))},
                       {"mfu", known_share(facts->mfu)},
                       {"bandwidth_util", known_share(facts->bandwidth_util)},
                       {"weights_bytes", known_bytes(facts->weights_bytes)},
                       {"reserve_bytes", known_bytes(facts->reserve_bytes)},
                       {"kv_pool_bytes", known_bytes(facts->kv_pool_bytes)},
                       {"kv_peak_bytes", known_bytes(summary_kv_peak(s, facts))},
                       {"activation_peak_bytes", known_bytes(facts->activation_peak_bytes)},
                       {"logit_peak_bytes", known_bytes(facts->logit_peak_bytes)},
                       {"price_lookups",
                        json_pack("{s:I, s:I, s:I, s:I}", "exact", (json_int_t)facts->price_exact,
                                  "interpolated", (json_int_t)facts->price_interpolated,
                                  "extrapolated", (json_int_t)facts->price_extrapolated, "roofline",
                                  (json_int_t)facts->price_roofline)},
                       {"price_time_shares", summary_price_shares(&facts->price_shares)},
                       {NULL, NULL}});
    failed |= put_transferred(o, s, facts);
    failed |=
        put_all(o, (const struct member[]){
                       {"constants", json_figures(facts->constants, facts->n_constants, true)},
                       {"engine", json_figures(facts->engine, facts->n_engine, false)},
                       {NULL, NULL}});
    return failed;
}

/* The rate asked for, next to the one that was offered. */
static int put_asked(json_t *o, const struct run_facts *facts) {
    return put(json_object_get(o, "offered"), "asked_req_s",
               facts->asked_req_s > 0 ? json_real(facts->asked_req_s) : json_null());
}

static int put_origin(json_t *o, const struct run_facts *facts) {
    return facts->identity != NULL
               ? put(o, "identity", json_deep_copy((json_t *)(uintptr_t)facts->identity))
               : 0;
}

/* As a number is when it is read back (summary_json_text). */
static double as_recorded(double number) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", number);
    return strtod(text, NULL);
}

/* To six digits, of recorded numbers, so that fresh ones have the same. */
static json_t *quotient(double over, double under) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", as_recorded(over) / as_recorded(under));
    return over > 0 && under > 0 ? json_real(strtod(text, NULL)) : json_null();
}

int summary_put_bound(json_t *summary, const json_t *bound) {
    json_t *copy = json_deep_copy((json_t *)(uintptr_t)bound);
    const json_t *latency = json_object_get(summary, "latency_s");
    int failed = 0;
    failed |=
        put_all(copy, (const struct member[]){
                          {"throughput_share",
                           quotient(json_number_value(json_object_get(summary, "throughput_tok_s")),
                                    json_number_value(json_object_get(bound, "throughput_tok_s")))},
                          {"latency_mean_ratio",
                           quotient(json_number_value(json_object_get(latency, "mean")),
                                    json_number_value(json_object_get(bound, "latency_mean_s")))},
                          {"latency_p99_ratio",
                           quotient(json_number_value(json_object_get(latency, "p99")),
                                    json_number_value(json_object_get(bound, "latency_p99_s")))},
                          {NULL, NULL}});
    failed |= put(summary, "bound", copy);
    return failed;
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
    int failed = put_identity(object, facts);
    failed |= put_requests(object, summary);
    failed |= put_asked(object, facts);
    failed |= put_steps(object, summary);
    failed |= put_quality(object, summary, facts);
    failed |= put_ranks(object, summary, facts);
    failed |= put_resources(object, summary, facts);
    failed |= put(object, "warnings", caution_json(&warnings));
    failed |= put_origin(object, facts);
    failed |= facts->bound != NULL ? summary_put_bound(object, facts->bound) : 0;
    if (failed != 0) {
        json_decref(object);
        return err_world(err, "the summary cannot be written as JSON: a name is not UTF-8, or a "
                              "number is not finite");
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
    char *line = mem_resized(text, length + 2, 1);
    memcpy(line + length, "\n", 2);
    return line;
}
