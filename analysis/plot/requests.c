#include "analysis/plot/requests.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>

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
    [REQUEST_ID] = "id",
    [REQUEST_ARRIVAL_S] = "arrival_s",
    [REQUEST_QUEUE_S] = "queue_s",
    [REQUEST_TTFT_S] = "ttft_s",
    [REQUEST_TPOT_S] = "tpot_s",
    [REQUEST_LATENCY_S] = "latency_s",
    [REQUEST_PROMPT_TOKENS] = "prompt_tokens",
    [REQUEST_OUTPUT_TOKENS] = "output_tokens",
    [REQUEST_ANSWER_TOKENS] = "answer_tokens",
    [REQUEST_STEPS] = "steps",
    [REQUEST_REFRESH_STEPS] = "refresh_steps",
    [REQUEST_PREEMPTIONS] = "preemptions",
};

static double seconds(double ns) {
    return ns >= 0 ? ns / 1e9 : (double)NAN;
}

void request_field_values(const struct request_record *record, double out[REQUEST_FIELD_COUNT]) {
    struct request_times times = {.latency_ns = -1, .queue_ns = -1, .ttfb_ns = -1, .tpot_ns = -1};
    if (record->state == REQUEST_DONE) {
        times = request_times_of(record);
    }
    out[REQUEST_ID] = (double)record->id;
    out[REQUEST_ARRIVAL_S] = seconds((double)record->arrival_ns);
    out[REQUEST_QUEUE_S] = seconds((double)times.queue_ns);
    out[REQUEST_TTFT_S] = seconds((double)times.ttfb_ns);
    out[REQUEST_TPOT_S] = seconds(times.tpot_ns);
    out[REQUEST_LATENCY_S] = seconds((double)times.latency_ns);
    out[REQUEST_PROMPT_TOKENS] = record->prompt_tokens;
    out[REQUEST_OUTPUT_TOKENS] = record->output_tokens;
    out[REQUEST_ANSWER_TOKENS] = record->answer_tokens;
    out[REQUEST_STEPS] = record->steps;
    out[REQUEST_REFRESH_STEPS] = record->refresh_steps;
    out[REQUEST_PREEMPTIONS] = record->preemptions;
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
