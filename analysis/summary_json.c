/* A summary as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/column.h"
#include "analysis/summary_output.h"
#include "sim/base/mem.h"

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
        bool is_put = g->owner == OF_RUN_REQUESTS || g->owner == owner;
        for (const struct column *c = g->columns; is_put && c->name != NULL; c++) {
            failed |= put_column(c, result, object);
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
