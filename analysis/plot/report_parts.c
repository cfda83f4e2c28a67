#include "analysis/plot/report_parts.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"

/* What a page keeps of all runs together, and of each at least and at most. */
enum {
    ALL_BINS = 14400,
    LEAST_BINS = 60,
    ALL_QUANTILES = 15600,
    LEAST_QUANTILES = 65,
    MOST_QUANTILES = 200,
    ALL_REQUESTS = 6000,
    LEAST_REQUESTS = 20,
};

static const enum request_field distributions[] = {REQUEST_FIELD_latency_s, REQUEST_FIELD_ttft_s,
                                                   REQUEST_FIELD_queue_s, REQUEST_FIELD_tpot_s};

json_t *report_number(double value, int digits) {
    char text[32];
    if (!isfinite(value)) {
        return json_null();
    }
    snprintf(text, sizeof text, "%.*g", digits, value);
    value = strtod(text, NULL);
    bool is_whole = fabs(value) < 1e7 && value == floor(value);
    return is_whole ? json_integer((json_int_t)value) : json_real(value);
}

static size_t share_of(size_t all, size_t n_runs, size_t least, size_t most) {
    size_t n = all / (n_runs > 0 ? n_runs : 1);
    return n < least ? least : n > most ? most : n;
}

/* At most `most` of `n` sorted numbers, evenly spaced, with both ends. */
static json_t *thin(const double *values, size_t n, size_t most) {
    size_t n_kept = n < most ? n : most;
    json_t *array = json_array();
    for (size_t i = 0; i < n_kept; i++) {
        json_array_append_new(
            array, report_number(values[n_kept > 1 ? i * (n - 1) / (n_kept - 1) : 0], 4));
    }
    return array;
}

json_t *report_distributions(const struct requests *requests, size_t n_runs) {
    json_t *object = json_object();
    size_t most = share_of(ALL_QUANTILES, n_runs, LEAST_QUANTILES, MOST_QUANTILES);
    for (size_t i = 0; i < sizeof distributions / sizeof distributions[0]; i++) {
        struct series sorted = requests_sorted(requests, distributions[i]);
        json_object_set_new(object, request_field_names[distributions[i]],
                            json_pack("{s:I, s:o}", "n", (json_int_t)sorted.n, "values",
                                      thin(sorted.values, sorted.n, most)));
        free(sorted.values);
    }
    return object;
}

json_t *report_course(const struct course *course) {
    json_t *object = json_object();
    json_object_set_new(object, "bin_s", json_real(2 * course->bins[COURSE_TIME_S][0]));
    for (int f = COURSE_TIME_S + 1; f < COURSE_FIELD_COUNT; f++) {
        json_t *values = json_array();
        bool any = false;
        for (size_t i = 0; i < course->n_bins; i++) {
            json_array_append_new(values, report_number(course->bins[f][i], 3));
            any = any || isfinite(course->bins[f][i]);
        }
        if (any) {
            json_object_set(object, course_columns[f].name, values);
        }
        json_decref(values);
    }
    return object;
}

struct late {
    double latency_s;
    size_t at;
};

/* Requests that were not completed first, then the slowest; of two alike the earlier. */
static int by_latency(const void *a, const void *b) {
    const struct late *p = a, *q = b;
    double x = isfinite(p->latency_s) ? p->latency_s : (double)INFINITY;
    double y = isfinite(q->latency_s) ? q->latency_s : (double)INFINITY;
    return x != y ? (x < y) - (x > y) : (p->at > q->at) - (p->at < q->at);
}

static json_t *request_json(const struct request_record *record) {
    json_t *row = json_array();
    double values[REQUEST_FIELD_COUNT];
    request_field_values(record, values);
    for (size_t f = 0; f < REQUEST_FIELD_COUNT; f++) {
        json_array_append_new(row, f == REQUEST_FIELD_id ? json_integer((json_int_t)record->id)
                                                         : report_number(values[f], 4));
    }
    bool rejected = record->state == REQUEST_REJECTED && record->reason < REJECT_REASON_COUNT;
    json_array_append_new(row, json_string(record->state == REQUEST_DONE ? "done"
                                           : rejected ? reject_reason_names[record->reason]
                                                      : "under way"));
    return row;
}

json_t *report_requests(const struct requests *requests, size_t n_runs) {
    const size_t n = requests->n;
    const size_t half = share_of(ALL_REQUESTS, n_runs, LEAST_REQUESTS, ALL_REQUESTS) / 2;
    struct late *order = mem_zeroed(n + 1, sizeof *order);
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        double values[REQUEST_FIELD_COUNT];
        request_field_values(&requests->items[i], values);
        order[i] = (struct late){values[REQUEST_FIELD_latency_s], i};
    }
    qsort(order, n, sizeof *order, by_latency);
    const size_t stride = n > 2 * half ? (size_t)ceil_div((int64_t)(n - half), (int64_t)half) : 1;
    for (size_t place = 0; place < n; place += place < half ? 1 : stride) {
        json_array_append_new(rows, request_json(&requests->items[order[place].at]));
    }
    free(order);
    return rows;
}

size_t report_bins(size_t n_runs) {
    return share_of(ALL_BINS, n_runs, LEAST_BINS, COURSE_MOST_BINS);
}
