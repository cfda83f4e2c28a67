/* A summary for people. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/column.h"
#include "analysis/identity.h"
#include "analysis/quality.h"
#include "analysis/summary.h"
#include "analysis/summary_output.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"

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
        fprintf(out, "of the time");
        print_shares(out, provenance_words, shares->by_kind, PROVENANCE_KIND_COUNT);
        if (shares->by_match[PRICE_ROOFLINE] < sum) { /* else it would be said twice */
            fprintf(out, ";");
            print_shares(out, price_match_words, shares->by_match, PRICE_MATCH_COUNT);
        }
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
            fprintf(out, "  %s %" PRIu64, reject_reason_name((uint32_t)i, s->own_reasons),
                    s->rejected_by_reason[i]);
        }
    }
    fputc('\n', out);
}

/* "scheduler knee, patience=5s; cache dual; ..." */
static void print_policies(const json_t *policies, FILE *out) {
    const char *kind, *separator = "policies     ";
    json_t *policy;
    json_object_foreach((json_t *)(uintptr_t)policies, kind, policy) {
        const char *file = json_string_value(json_object_get(policy, "file"));
        const char *changed = json_string_value(json_object_get(policy, "changed"));
        fprintf(out, "%s%s %s%s%s%s%s%s", separator, kind,
                json_string_value(json_object_get(policy, "name")), file != NULL ? " (" : "",
                file != NULL ? file : "", file != NULL ? ")" : "", changed != NULL ? ", " : "",
                changed != NULL ? changed : "");
        separator = "; ";
    }
    fputs(policies != NULL ? "\n" : "", out);
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
    print_policies(f->policies, out);
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

static void print_requests(const struct summary *s, const struct run_facts *f, FILE *out) {
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
    const double joules = run_energy_joules(&f->energy);
    if (joules > 0 && s->makespan_s > 0 && s->answer_tokens > 0) {
        fprintf(out, "energy       %.4g J %s: %.4g W on average, %.4g J an answer token\n", joules,
                f->energy.measured_j > 0 ? "measured" : "priced", joules / s->makespan_s,
                joules / (double)s->answer_tokens);
    }
    if (slo_is_set(&s->slo)) {
        fprintf(out,
                "goodput      %.4g req/s: %" PRIu64 " requests within the objective, %.1f %% of "
                "all that arrived\n",
                s->goodput_req_s, s->met_slo, 100 * s->attainment);
    }
}

/* A star where they are of the requests that were not rejected. */
static void print_times(const struct summary *s, FILE *out) {
    static const struct distribution none;
    const struct {
        const char *names[2];
        const struct distribution *distribution;
    } rows[] = {{{"latency", "latency*"}, &s->latency},
                {{"ttft", "ttft*"}, &s->ttfb},
                {{"queue", "queue*"}, &s->queue},
                {{"tpot", "tpot*"}, &s->tpot},
                {{"pause", "pause*"}, s->pause.max > 0 ? &s->pause : &none}};
    if (s->completed == 0) {
        return;
    }
    fprintf(out, "\n  %-10s %9s %9s %9s %9s %9s %9s %9s %9s\n", "", "mean", "p50", "p90", "p95",
            "p99", "std", "min", "max");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        print_distribution(out, rows[i].names[s->rejected > 0], rows[i].distribution);
    }
    fputc('\n', out);
}

enum { MOST_GROUP_ROWS = 16 };

/* "1.2 s", "-" of none. */
static const char *time_text(const struct distribution *of, double value, char text[32]) {
    return of->n > 0 ? num_format_ns(text, 32, value * 1e9) : "-";
}

/* Where there are several: a row for each of the first ones. */
static void print_groups(const struct summary *s, enum grouping by, FILE *out) {
    const struct groups *groups = &s->groups[by];
    const size_t n = groups->n;
    const bool has_goodput = slo_is_set(&s->slo);
    if (n < 2) {
        return;
    }
    fprintf(out, "%-12s %zu; fairness %.4g, Jain's index of their service\n\n",
            grouping_words[by].list, n, groups_fairness(groups));
    fprintf(out, "  %-10s %9s %9s %9s %9s %9s %9s %9s%s\n", grouping_words[by].field, "requests",
            "completed", "rejected", "service_%", "latency", "p99", "ttft",
            has_goodput ? "   goodput  attain_%" : "");
    for (size_t i = 0; i < n && i < MOST_GROUP_ROWS; i++) {
        const struct summary *of = groups->items[i].summary;
        char mean[32], p99[32], ttft[32];
        fprintf(out, "  %-10" PRIu32 " %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9.1f %9s %9s %9s",
                groups->items[i].key, of->requests, of->completed, of->rejected,
                100 * groups_share(of, s), time_text(&of->latency, of->latency.mean, mean),
                time_text(&of->latency, of->latency.p99, p99),
                time_text(&of->ttfb, of->ttfb.mean, ttft));
        if (has_goodput) {
            fprintf(out, " %9.4g %9.1f", of->goodput_req_s, 100 * of->attainment);
        }
        fputc('\n', out);
    }
    if (n > MOST_GROUP_ROWS) {
        fprintf(out, "  ... and %zu more (--json)\n", n - MOST_GROUP_ROWS);
    }
    fputc('\n', out);
}

static void print_work(const struct summary *s, FILE *out) {
    fprintf(out,
            "steps        %" PRIu64 ": refresh %" PRIu64 ", reuse %" PRIu64 ", prefill %" PRIu64
            ", commit %" PRIu64 ", mixed %" PRIu64 "; %.3g requests in a step, at most %" PRIu32
            "\n",
            s->steps, s->steps_by_phase[PHASE_REFRESH], s->steps_by_phase[PHASE_REUSE],
            s->steps_by_phase[PHASE_PREFILL], s->steps_by_phase[PHASE_COMMIT],
            s->steps_by_phase[SUMMARY_MIXED], s->mean_batch, s->max_batch);
    fprintf(out,
            "tokens       %" PRIu64 " processed, %" PRIu64
            " committed: redundancy %.4g, tokens per forward pass %.4g\n",
            s->tokens_processed, s->tokens_committed, s->redundancy, s->tpf);
    if (s->prefix_tokens > 0) {
        fprintf(out,
                "prefixes     %" PRIu64 " of %" PRIu64 " shared prompt tokens found, by %" PRIu64
                " requests\n",
                s->prefix_hit_tokens, s->prefix_tokens, s->prefix_hits);
    }
    if (swap_is_any(&s->swap)) {
        char to[32], from[32], stall[32];
        fprintf(out,
                "swapped      %" PRIu64 " requests out, %s; %" PRIu64
                " brought back, %s; steps put off by %s\n",
                s->swap.n_out, num_format_bytes(to, sizeof to, (double)s->swap.out_bytes),
                s->swap.n_in, num_format_bytes(from, sizeof from, (double)s->swap.in_bytes),
                num_format_ns(stall, sizeof stall, (double)s->swap.stall_ns));
    }
    if (s->answer_tokens < s->tokens_committed) {
        fprintf(out,
                "answers      %" PRIu64
                " tokens up to the end of text: %.4g tok/s, tokens per forward "
                "pass %.4g; after it %" PRIu64 " request steps, %" PRIu64 " tokens\n",
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
                s->block_redundancy, s->kept_queries > 0 ? ", after the eviction" : "");
    }
}

static void print_resources(const struct summary *s, const struct run_facts *f, FILE *out) {
    fprintf(out, "memory     ");
    print_bytes(out, "weights", f->weights_bytes);
    print_bytes(out, "reserve", f->reserve_bytes);
    print_bytes(out, "KV pool", f->kv_pool_bytes);
    print_bytes(out, "KV peak", summary_kv_peak(s, f));
    print_bytes(out, "activation peak", f->activation_peak_bytes);
    print_bytes(out, "logit peak", f->logit_peak_bytes);
    fputc('\n', out);
    double busy = summary_gpu_busy(s, f);
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
    struct transferred t;
    if (transferred_interval(s, f, &t) && s->completed > 0) {
        fprintf(out,
                "transferred  %.4g to %.4g tok/s, mean latency %.4g to %.4g s, if prices err as in "
                "%s\n",
                t.low_tok_s, t.high_tok_s, t.low_latency_s, t.high_latency_s, transferred_source);
    }
}

/* What people read for the figures of the engine; JSON and databases have the names. */
static const char *engine_words(const char *name) {
    static const char *const words[][2] = {
        {"device_s", "device at work"},
        {"wall_s", "steps, by the wall clock"},
        {"overhead", "of it not the device's"},
        {"planned_bytes", "memory, planned"},
        {"metered_bytes", "memory, metered"},
        {"side_bytes", "memory outside the plan"},
        {"activation_peak_bytes", "activations, most"},
        {"kv_peak_bytes", "KV in use, most"},
        {"mapped_peak_bytes", "memory mapped, most"},
        {"lent_bytes", "memory that KV lent to steps"},
        {"mapping_calls", "calls that mapped memory"},
        {"mapping_s", "time that these took"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i][0], name) == 0) {
            return words[i][1];
        }
    }
    return name;
}

static void print_figures(const struct run_facts *f, FILE *out) {
    for (size_t i = 0; i < f->n_constants; i++) {
        const struct run_figure *c = &f->constants[i];
        fprintf(out, "%s   %s = %.6g %s (%s)\n", i == 0 ? "calibrated" : "          ", c->name,
                c->value, figure_unit_words[c->unit], c->source);
    }
    for (size_t i = 0; i < f->n_engine; i++) {
        const struct run_figure *e = &f->engine[i];
        char text[32];
        fprintf(out, "%-13s%-30s", i == 0 ? "engine" : "", engine_words(e->name));
        if (e->unit == UNIT_BYTES) {
            fprintf(out, "%s\n", num_format_bytes(text, sizeof text, e->value));
        } else if (e->unit == UNIT_NONE) { /* a share */
            fprintf(out, "%.1f %%\n", 100 * e->value);
        } else {
            fprintf(out, "%.4g %s\n", e->value, figure_unit_words[e->unit]);
        }
    }
}

void summary_print(const struct summary *s, const struct run_facts *f, FILE *out) {
    print_identity(f, out);
    print_requests(s, f, out);
    print_times(s, out);
    for (int by = 0; by < GROUPING_COUNT; by++) {
        print_groups(s, (enum grouping)by, out);
    }
    print_work(s, out);
    if (f->quality != NULL) {
        quality_print(f->quality, s->makespan_s, s->tokens_processed, out);
    }
    print_resources(s, f, out);
    print_figures(f, out);
}

/* A summary as JSON. */

/* NULL-safe: a failed json_* leaves NULL here and json_object_set_new reports it once. */
static int put(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value);
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

double summary_as_recorded(double number) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", number);
    return strtod(text, NULL);
}

/* To six digits, of recorded numbers, so that fresh ones have the same. */
static json_t *quotient(double over, double under) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", summary_as_recorded(over) / summary_as_recorded(under));
    return over > 0 && under > 0 ? json_real(strtod(text, NULL)) : json_null();
}

int summary_put_bound(json_t *summary, const json_t *bound) {
    json_t *copy = json_deep_copy((json_t *)(uintptr_t)bound);
    const json_t *latency = json_object_get(summary, "latency_s");
    int failed = put(copy, "throughput_share",
                     quotient(json_number_value(json_object_get(summary, "throughput_tok_s")),
                              json_number_value(json_object_get(bound, "throughput_tok_s"))));
    failed |= put(copy, "latency_mean_ratio",
                  quotient(json_number_value(json_object_get(latency, "mean")),
                           json_number_value(json_object_get(bound, "latency_mean_s"))));
    failed |= put(copy, "latency_p99_ratio",
                  quotient(json_number_value(json_object_get(latency, "p99")),
                           json_number_value(json_object_get(bound, "latency_p99_s"))));
    failed |= put(summary, "bound", copy);
    return failed;
}

static json_t *whole(int64_t value) {
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *number(double value) {
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *value_of(const struct column *column, const struct result *result) {
    const void *owner = column->is_fact ? (const void *)result->facts : result->summary;
    const void *at = (const char *)owner + column->offset;
    const char *text;
    double share;
    switch (column->kind) {
    case COLUMN_ELSEWHERE:
        break;
    case COLUMN_U32:
        return json_integer(*(const uint32_t *)at);
    case COLUMN_U64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case COLUMN_I64:
        return whole(*(const int64_t *)at);
    case COLUMN_REAL:
        return json_real(*(const double *)at);
    case COLUMN_SHARE:
        share = *(const double *)at;
        return share < 0 ? json_null() : json_real(share);
    case COLUMN_FLAG:
        return json_boolean(*(const bool *)at);
    case COLUMN_TEXT:
        text = *(const char *const *)at;
        return text != NULL ? json_string(text) : json_null();
    case COLUMN_DISTRIBUTION:
        return json_distribution(at);
    case COLUMN_DERIVED:
        return number(column->number(result));
    case COLUMN_OBJECT:
        return column->object(result);
    }
    return NULL;
}

/* A member of an object goes into it; the first of its members makes it. */
static int put_column(const struct column *column, const struct result *result, json_t *object) {
    const char *dot = strchr(column->name, '.');
    if (column->kind == COLUMN_ELSEWHERE ||
        (column->is_there != NULL && !column->is_there(result))) {
        return 0;
    }
    if (dot == NULL) {
        return put(object, column->name, value_of(column, result));
    }
    char outer[64];
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - column->name), column->name);
    if (json_object_get(object, outer) == NULL) {
        put(object, outer, json_object());
    }
    return put(json_object_get(object, outer), dot + 1, value_of(column, result));
}

int columns_put(const struct result *result, enum column_owner owner, json_t *object) {
    int failed = 0;
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        const bool is_whole = (owner != OF_GROUP && g->owner == OF_RUN_REQUESTS) ||
                              (owner == OF_RUN && g->owner == OF_RUN_RESULT);
        for (const struct column *c = g->columns; c->name != NULL; c++) {
            if (is_whole || g->owner == owner || (owner == OF_GROUP && c->of_groups)) {
                failed |= put_column(c, result, object);
            }
        }
    }
    return failed;
}

json_t *summary_requests_json(const struct summary *summary) {
    const struct result result = {.summary = summary};
    json_t *object = json_object();
    if (columns_put(&result, OF_RUN_REQUESTS, object) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

int summary_json(const struct summary *summary, const struct run_facts *facts, json_t **out,
                 struct err *err) {
    const struct result result = {.summary = summary, .facts = facts};
    json_t *object = json_object();
    int failed = columns_put(&result, OF_RUN, object);
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
