/* The requests of a recorded run, and what plots and pages show of each, by the names of
 * analysis/field.h. */
#ifndef UNMASK_ANALYSIS_PLOT_REQUESTS_H
#define UNMASK_ANALYSIS_PLOT_REQUESTS_H

#include "analysis/distribution.h"
#include "analysis/store/store.h"

/* Those that left, in that order, and those that were under way when the recording ended. */
struct requests {
    struct request_record *items;
    size_t n, room;
};

int requests_load(struct store *store, int64_t run, struct requests *out, struct err *err);
void requests_fini(struct requests *requests);

enum request_field {
    REQUEST_ID,
    REQUEST_ARRIVAL_S,
    REQUEST_QUEUE_S,
    REQUEST_TTFT_S,
    REQUEST_TPOT_S,
    REQUEST_LATENCY_S,
    REQUEST_PROMPT_TOKENS,
    REQUEST_OUTPUT_TOKENS,
    REQUEST_ANSWER_TOKENS,
    REQUEST_STEPS,
    REQUEST_REFRESH_STEPS,
    REQUEST_PREEMPTIONS,
    REQUEST_FIELD_COUNT
};

/* Ends with NULL. */
extern const char *const request_field_names[REQUEST_FIELD_COUNT + 1];

/* NaN where there is none: of a request that was not completed, or without answer tokens behind its
 * first block. Definitions: analysis/summary.h. */
void request_field_values(const struct request_record *record, double out[REQUEST_FIELD_COUNT]);

/* One field of all completed requests that have it, sorted; the caller frees its values. */
struct series requests_sorted(const struct requests *requests, enum request_field field);

#endif
