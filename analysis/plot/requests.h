/* The requests of a recorded run, and what plots and pages show of each, as
 * sim/serve/request.def has them. */
#ifndef UNMASK_ANALYSIS_PLOT_REQUESTS_H
#define UNMASK_ANALYSIS_PLOT_REQUESTS_H

#include "analysis/spread.h"
#include "analysis/store/store.h"

/* Those that left, in that order, and those that were under way when the recording ended. */
struct requests {
    struct request_record *items;
    size_t n, room;
};

int requests_load(struct store *store, int64_t run, struct requests *out, struct err *err);
void requests_fini(struct requests *requests);

/* The columns that are shown: REQUEST_FIELD_latency_s, ... */
enum request_field {
#define KEPT(...)
#define SUMMED(...)
#define SHOWN(type, name, ...) REQUEST_FIELD_##name,
#define DERIVED(name, ...)     REQUEST_FIELD_##name,
#include "sim/serve/request.def"
    REQUEST_FIELD_COUNT
};

/* Ends with NULL. */
extern const char *const request_field_names[REQUEST_FIELD_COUNT + 1];

/* NaN where there is none: of a request that was not completed, or without answer tokens after its
 * first block. */
void request_field_values(const struct request_record *record, double out[REQUEST_FIELD_COUNT]);

/* One field of all completed requests that have it, sorted; the caller frees its values. */
struct series requests_sorted(const struct requests *requests, enum request_field field);

#endif
