/* What makes a run's result easy to misread: the facts' own warnings and what its summary adds,
 * and how outputs carry them (sim/base/warning.h). */
#ifndef UNMASK_ANALYSIS_CAUTION_H
#define UNMASK_ANALYSIS_CAUTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "analysis/summary.h"
#include "sim/base/warning.h"

/* All warnings of a run: saturated, rejected and incomplete in addition to those of the facts. */
struct warnings caution_of(const struct summary *summary, const struct run_facts *facts);

/* What transferred, data-sheet and extrapolated prices are of a time. */
void caution_add_prices(const struct price_shares *shares, struct warnings *out);

/* True if it is derived from the summary; other warnings come from facts.warnings. */
bool caution_is_of_summary(enum warning_code code);

/* As `warnings` in JSON: [{code, value, text}], a value that is not known is null. */
json_t *caution_json(const struct warnings *warnings);

/* The other way round, from the object that has `warnings`; what is no warning is passed over. */
struct warnings caution_read(const json_t *summary);
bool caution_has(const json_t *summary, enum warning_code code);

enum { WARNING_CODES_CHARS = 320 };

/* "saturated, rejected": the codes, each once. Returns `out`; "" where there is none. */
const char *caution_codes(const struct warnings *warnings, char *out, size_t size);

/* How far off a run with transferred prices may be: by as much as transfers between two GPUs that
 * were both measured came out, on whole runs. */

/* What the GPU itself would do if the transfer errs as the measured ones did at their worst. */
struct transferred {
    double low_tok_s, high_tok_s;         /* of the throughput */
    double low_latency_s, high_latency_s; /* of the mean latency; NaN where nothing completed */
};
extern const char transferred_source[]; /* what the errors were measured on */

/* Of a simulated run that is finished; false where other GPUs' measurements price less than a
 * twentieth of the operators' time. */
bool transferred_interval(const struct summary *summary, const struct run_facts *facts,
                          struct transferred *out);

#endif
