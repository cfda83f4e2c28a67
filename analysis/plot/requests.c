#include "analysis/plot/requests.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/column.h"
#include "sim/base/mem.h"

static int take(void *state, const struct request_record *record, struct err *err) {
    struct requests *requests = state;
    (void)err;
    requests->items =
        mem_grown(requests->items, requests->n, &requests->room, sizeof *requests->items);
    requests->items[requests->n++] = *record;
    return 0;
}

int requests_load(struct store *store, int64_t run, struct requests *out, struct err *err) {
    *out = (struct requests){0};
    int failed = store_load_requests(store, run, take, out, err);
    if (failed != 0) {
        requests_fini(out);
    }
    return failed;
}

void requests_fini(struct requests *requests) {
    free(requests->items);
    *requests = (struct requests){0};
}

const char *const request_field_names[REQUEST_FIELD_COUNT + 1] = {
#define KEPT(...)
#define SUMMED(...)
#define SHOWN(type, name, ...) #name,
#define DERIVED(name, ...)     #name,
#include "sim/serve/request.def"
};

void request_field_values(const struct request_record *record, double out[REQUEST_FIELD_COUNT]) {
    size_t n = 0;
    for (const struct column *c = request_columns; c->name != NULL; c++) {
        if (c->label != NULL) {
            out[n++] =
                c->kind == COLUMN_DERIVED ? c->of_request(record) : (double)column_whole(c, record);
        }
    }
}

struct series requests_sorted(const struct requests *requests, enum request_field field) {
    struct series series = {0};
    for (size_t i = 0; i < requests->n; i++) {
        double values[REQUEST_FIELD_COUNT];
        request_field_values(&requests->items[i], values);
        if (requests->items[i].state == REQUEST_DONE && isfinite(values[field])) {
            series_push(&series, values[field]);
        }
    }
    if (series.n > 0) {
        gsl_sort(series.values, 1, series.n);
    }
    return series;
}
