#include "analysis/objective.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/summary.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/sort.h"

static const char *const metric_words[] = {"latency", "ttft",       "tpot", "queue",
                                           "goodput", "attainment", NULL};
enum { WORD_CHARS = 20 }; /* longer words are none that we know */
static const char *const usage = "TERM, TERM, ... such as 'p99 latency<30s, goodput>99%'";
static const char *const metrics_are =
    "latency (e2e, e2el), ttft, tpot, queue, and goodput or attainment as shares";

/* As load generators call the time from arrival to finish. */
static const char *const latency_words[] = {"e2e", "e2el", NULL};

/* ---- the grammar ---- */

/* A term as it is meant: "P95_TTFT < 2s" and "ttft_s.p95<2s", as fields of results are called, are
 * "p95 ttft < 2s" and "ttft s p95<2s". */
static void spell(char term[OBJECTIVE_CHARS]) {
    const size_t end = strcspn(term, "<>");
    for (size_t i = 0; i < end; i++) {
        const bool is_mark = strchr("_()", term[i]) != NULL ||
                             (term[i] == '.' && !isdigit((unsigned char)term[i + 1]));
        term[i] = is_mark ? ' ' : (char)tolower((unsigned char)term[i]);
    }
}

/* Reads a word up to a blank or one of `ends`; returns the text after it and its blanks. */
static const char *take_word(const char *text, const char *ends, char word[WORD_CHARS]) {
    text += strspn(text, " ");
    size_t length = strcspn(text, ends);
    size_t used = strcspn(text, " ");
    used = used < length ? used : length;
    snprintf(word, WORD_CHARS, "%.*s", (int)used, text);
    text += used;
    return text + strspn(text, " ");
}

/* "mean", "max" or "p99.9"; false: it is none. */
static bool read_statistic(const char *word, struct objective *out) {
    static const char *const words[] = {"mean", "max", NULL};
    enum { MEAN, MAX };
    int named = name_find(words, word);
    double percent = 100;
    if (named == MEAN) {
        out->statistic = STATISTIC_MEAN;
        return true;
    }
    bool is_quantile = named == MAX || (word[0] == 'p' && num_f64(word + 1, &percent) &&
                                        percent >= 0 && percent <= 100);
    out->statistic = is_quantile ? STATISTIC_QUANTILE : STATISTIC_EACH;
    out->quantile = percent / 100;
    return is_quantile;
}

static int read_bound(const char *word, const char *term, struct objective *out, struct err *err) {
    double bare;
    size_t length = strlen(word);
    if (out->statistic == STATISTIC_SHARE) {
        char number[OBJECTIVE_CHARS];
        snprintf(number, sizeof number, "%.*s", (int)(length > 0 ? length - 1 : 0), word);
        if (length < 2 || word[length - 1] != '%' || !num_f64(number, &bare) || bare <= 0 ||
            bare > 100) {
            return err_usage(err,
                             "--slo: '%s' in '%s' is not a share above 0 and up to 100%%, such as "
                             "95%%",
                             word, term);
        }
        out->bound = bare / 100;
        return 0;
    }
    if (num_f64(word, &bare) || !num_with_unit(word, "ns", &out->bound) || out->bound <= 0) {
        return err_usage(err,
                         "--slo: '%s' in '%s' is not a time such as 2.5s or 300ms; terms are "
                         "divided by commas",
                         word, term);
    }
    out->bound /= 1e9;
    return 0;
}

static int find_metric(const char *word) {
    return name_find(latency_words, word) >= 0 ? METRIC_LATENCY : name_find(metric_words, word);
}

/* The metric and the statistic before it, or after it; returns the text from the bound's sign on,
 * or NULL with an error. `statistic` is empty where there is none. */
static const char *read_what(const char *term, char statistic[WORD_CHARS], int *metric,
                             struct objective *out, struct err *err) {
    char word[WORD_CHARS], hint[NAME_HINT_CHARS];
    const char *rest = take_word(term, "<>", statistic);
    bool has_statistic = read_statistic(statistic, out);
    rest = take_word(has_statistic ? rest : term, "<>", word);
    double percent;
    *metric = find_metric(word);
    if (*metric < 0 && word[0] == 'p' && num_f64(word + 1, &percent)) {
        err_usage(err, "--slo: '%s' in '%s' is no percentile from p0 to p100", word, term);
        return NULL;
    }
    if (*metric < 0) {
        err_usage(err, "--slo: '%s' in '%s' is no metric%s; there are %s", word, term,
                  strcmp(word, "itl") == 0 ? ": the tokens of a block come together"
                                           : name_hint(word, metric_words, hint),
                  metrics_are);
        return NULL;
    }
    char behind[WORD_CHARS];
    const char *next = take_word(rest, "<>", behind);
    if (strcmp(behind, "s") == 0) {
        rest = next;
        next = take_word(rest, "<>", behind);
    }
    if (!has_statistic && read_statistic(behind, out)) {
        snprintf(statistic, WORD_CHARS, "%s", behind);
        return next;
    }
    statistic[0] = has_statistic ? statistic[0] : '\0';
    return rest;
}

static int read_term(const char *term, int64_t tenant, struct objective *out, struct err *err) {
    char statistic[WORD_CHARS], bound[OBJECTIVE_CHARS];
    int metric;
    *out = (struct objective){.tenant = tenant};
    const char *rest = read_what(term, statistic, &metric, out, err);
    if (rest == NULL) {
        return (int)err->kind;
    }
    const char *word = metric_words[metric];
    const bool is_share = metric >= METRIC_GOODPUT, has_statistic = statistic[0] != '\0';
    if (is_share && has_statistic) {
        return err_usage(err, "--slo: '%s': %s has no mean and no percentiles", term, word);
    }
    out->metric = is_share ? METRIC_GOODPUT : (enum objective_metric)metric;
    out->statistic = is_share ? STATISTIC_SHARE : out->statistic;
    if (*rest == (is_share ? '<' : '>')) {
        return err_usage(err, "--slo: '%s': an objective bounds %s from %s, %s%s", term, word,
                         is_share ? "below" : "above", word, is_share ? ">99%" : "<30s");
    }
    if (*rest != (is_share ? '>' : '<')) {
        return err_usage(err, "--slo: '%s' lacks its bound, %s%s", term, word,
                         is_share ? ">99%" : "<30s");
    }
    rest += 1 + (rest[1] == '=');
    snprintf(bound, sizeof bound, "%s", rest + strspn(rest, " "));
    char of[32] = "";
    if (tenant >= 0) {
        snprintf(of, sizeof of, "tenant %" PRId64 ": ", tenant);
    }
    snprintf(out->name, sizeof out->name, "%s%s%s%s", of, statistic, has_statistic ? " " : "",
             is_share ? "goodput" : word);
    snprintf(out->text, sizeof out->text, "%s%s%s%s%c%s", of, statistic, has_statistic ? " " : "",
             is_share ? "goodput" : word, is_share ? '>' : '<', bound);
    return read_bound(bound, term, out, err);
}

/* Reads a leading "tenant N:"; returns the text after it, or NULL with an error. */
static const char *read_tenant(const char *text, int64_t *tenant, struct err *err) {
    static const char word[] = "tenant ";
    const char *colon = strchr(text, ':');
    char number[24];
    uint64_t whole;
    *tenant = -1;
    if (colon == NULL) {
        return text;
    }
    text += strspn(text, " ");
    bool is_tenant = strncmp(text, word, strlen(word)) == 0;
    const char *from = is_tenant ? text + strlen(word) : text;
    snprintf(number, sizeof number, "%.*s", (int)(colon - from), from);
    if (!is_tenant || !num_u64(number, UINT32_MAX, &whole)) {
        err_usage(err,
                  "--slo: '%.*s' is not 'tenant N' before the colon; a bound is written ttft<2s",
                  (int)(colon - text), text);
        return NULL;
    }
    *tenant = (int64_t)whole;
    return colon + 1;
}

/* Terms of all requests, or of those of one tenant. */
static int add_terms(struct objectives *objectives, const char *text, struct err *err) {
    int64_t tenant;
    const char *rest = read_tenant(text, &tenant, err), *word;
    size_t length;
    while (name_next(&rest, ",", &word, &length)) {
        char term[OBJECTIVE_CHARS];
        if (length == 0 || length >= OBJECTIVE_CHARS) {
            return err_usage(err, "--slo: '%s' has %s, expected %s", text,
                             length == 0 ? "an empty term" : "a term that is too long", usage);
        }
        if (objectives->n == OBJECTIVES_MOST) {
            return err_usage(err, "--slo: more than %d terms", OBJECTIVES_MOST);
        }
        snprintf(term, sizeof term, "%.*s", (int)length, word);
        spell(term);
        if (read_term(term, tenant, &objectives->items[objectives->n++], err) != 0) {
            return (int)err->kind;
        }
    }
    return (int)err->kind;
}

int objectives_add(struct objectives *objectives, const char *text, struct err *err) {
    const char *rest = text, *word;
    size_t length;
    int status = 0;
    while (status == 0 && name_next(&rest, ";", &word, &length)) {
        char part[OBJECTIVES_MOST * OBJECTIVE_CHARS];
        if (length >= sizeof part) {
            return err_usage(err, "--slo: '%.40s...' is too long, expected %s", text, usage);
        }
        snprintf(part, sizeof part, "%.*s", (int)length, word);
        status = add_terms(objectives, part, err);
    }
    return status;
}

/* ---- who is good ---- */

/* What bounds the requests of a tenant in a metric; INFINITY: nothing does. */
static double bound_of(const struct objectives *objectives, int64_t tenant,
                       enum objective_metric metric) {
    double loosest = -1, each = INFINITY;
    for (size_t i = 0; i < objectives->n; i++) {
        const struct objective *o = &objectives->items[i];
        if (o->metric == metric && o->tenant == tenant) {
            each = o->statistic == STATISTIC_EACH ? fmin(each, o->bound) : each;
            loosest = o->statistic == STATISTIC_QUANTILE ? fmax(loosest, o->bound) : loosest;
        }
    }
    return isfinite(each) || loosest < 0 ? each : loosest;
}

static bool bounds_requests(const struct objectives *objectives, int64_t tenant) {
    bool bounds = false;
    for (int m = 0; m < N_METRICS; m++) {
        bounds = bounds || isfinite(bound_of(objectives, tenant, (enum objective_metric)m));
    }
    return bounds;
}

static bool bound_any(const struct objectives *objectives) {
    bool bounds = false;
    for (size_t i = 0; i < objectives->n; i++) {
        bounds = bounds || bounds_requests(objectives, objectives->items[i].tenant);
    }
    return bounds;
}

int objectives_check(const struct objectives *objectives, struct err *err) {
    const struct objective *each = NULL, *share = NULL;
    for (size_t i = 0; i < objectives->n; i++) {
        const struct objective *o = &objectives->items[i];
        each = o->statistic == STATISTIC_EACH ? o : each;
        share = o->statistic == STATISTIC_SHARE ? o : share;
    }
    if (objectives->n == 0) {
        return err_usage(err, "--slo is missing: %s", usage);
    }
    if (each != NULL && share == NULL) {
        return err_usage(err,
                         "--slo: '%s' bounds each request, but no term says how many must meet "
                         "it; add goodput>99%%, or write p99 in front",
                         each->text);
    }
    return share == NULL || bound_any(objectives)
               ? 0
               : err_usage(err, "--slo: '%s' counts good requests, but no term bounds a request",
                           share->text);
}

static bool is_good(const struct objectives *objectives, const struct served *served) {
    for (int m = 0; m < N_METRICS; m++) {
        enum objective_metric metric = (enum objective_metric)m;
        double bound = fmin(bound_of(objectives, -1, metric),
                            bound_of(objectives, (int64_t)served->tenant, metric));
        if (served->seconds[m] > bound) { /* what it has not (NaN) meets every bound */
            return false;
        }
    }
    return isfinite(served->seconds[METRIC_LATENCY]); /* else it was rejected */
}

static bool is_of(const struct objective *objective, const struct served *served) {
    return objective->tenant < 0 || objective->tenant == (int64_t)served->tenant;
}

/* ---- values ---- */

struct served served_of(const struct request_record *record) {
    struct served served = {.tenant = record->tenant};
    struct request_times times = request_times_of(record);
    const double ns[N_METRICS] = {(double)times.latency_ns, (double)times.ttfb_ns, times.tpot_ns,
                                  (double)times.queue_ns};
    for (int m = 0; m < N_METRICS; m++) {
        served.seconds[m] = record->state != REQUEST_DONE ? INFINITY
                            : ns[m] < 0                   ? (double)NAN
                                                          : ns[m] / 1e9;
    }
    return served;
}

/* Between order statistics at (n - 1) p, as the summary's, of values that may be infinite: GSL's
 * takes no time times infinity, which is no number. */
static double quantile_of(double *values, size_t n, double p) {
    sort_doubles(values, n);
    double at = (double)(n - 1) * p;
    size_t low = (size_t)at;
    double share = at - (double)low;
    return share == 0 || low + 1 == n ? values[low]
                                      : (1 - share) * values[low] + share * values[low + 1];
}

double objective_value(const struct objectives *objectives, size_t term,
                       const struct served *served, size_t n) {
    const struct objective *o = &objectives->items[term];
    double *values = mem_unwritten(n, sizeof *values), sum = 0;
    size_t n_values = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_of(o, &served[i])) {
            continue;
        }
        double value = o->statistic == STATISTIC_SHARE ? is_good(objectives, &served[i])
                                                       : served[i].seconds[o->metric];
        if (!isnan(value)) {
            values[n_values++] = value;
            sum += value;
        }
    }
    double value = n_values == 0                        ? (double)NAN
                   : o->statistic == STATISTIC_QUANTILE ? quantile_of(values, n_values, o->quantile)
                                                        : sum / (double)n_values;
    free(values);
    return value;
}

bool objective_is_met(const struct objective *o, double value) {
    return o->statistic == STATISTIC_EACH ||
           (o->statistic == STATISTIC_SHARE ? value >= o->bound : value <= o->bound);
}

bool objective_is_passed(const struct objectives *objectives, size_t term,
                         const struct served *served) {
    const struct objective *o = &objectives->items[term];
    return is_of(o, served) &&
           (o->statistic == STATISTIC_SHARE ? !is_good(objectives, served)
                                            : served->seconds[o->metric] > o->bound);
}

/* A quantile is no less than the order statistic below it (quantile_of). */
bool objective_is_lost(const struct objective *o, size_t n_passed, size_t n) {
    if (n_passed == 0 || n_passed > n) {
        return false;
    }
    return o->statistic == STATISTIC_QUANTILE
               ? n_passed >= n - (size_t)((double)(n - 1) * o->quantile)
               : o->statistic == STATISTIC_SHARE && (double)(n - n_passed) / (double)n < o->bound;
}

bool objectives_are_met(const struct objectives *objectives, const double *values) {
    bool met = true;
    for (size_t i = 0; i < objectives->n; i++) {
        met = met && objective_is_met(&objectives->items[i], values[i]);
    }
    return met;
}

double objectives_attainment(const struct objectives *objectives, const struct served *served,
                             size_t n) {
    size_t n_good = 0;
    bool is_bound = bound_any(objectives);
    for (size_t i = 0; is_bound && i < n; i++) {
        n_good += is_good(objectives, &served[i]);
    }
    return is_bound && n > 0 ? (double)n_good / (double)n : (double)NAN;
}
