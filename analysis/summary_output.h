/* A summary as JSON, and as text for people. */
#ifndef UNMASK_ANALYSIS_SUMMARY_OUTPUT_H
#define UNMASK_ANALYSIS_SUMMARY_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "analysis/summary.h"

/* The object `unmask run --json` prints, keys in a fixed order; `*out` is the caller's. */
int summary_json(const struct summary *summary, const struct run_facts *facts, json_t **out,
                 struct err *err);

/* Its part that is of the requests alone; NULL where a number is not finite. */
json_t *summary_requests_json(const struct summary *summary);

/* Puts what no scheduler can beat into a run's object as "bound", with the run's share of the
 * throughput (`throughput_share`) and its mean and p99 latency over the least
 * (`latency_mean_ratio`, `latency_p99_ratio`). */
int summary_put_bound(json_t *summary, const json_t *bound);

/* `number` (finite) as it is when it is read back of what summary_json_text wrote. What a replay
 * judges by a recorded number, a first run judges by the same one. */
double summary_as_recorded(double number);

/* The same bytes for the same object: order kept, reals with nine significant digits, indented by
 * two and ended by a newline when `pretty`. NULL of no object; the caller frees it. */
char *summary_json_text(const json_t *object, int pretty);

/* A table for people. */
void summary_print(const struct summary *summary, const struct run_facts *facts, FILE *out);

/* {"by_kind": {"measured": 0.9, ...}, "by_match": {"exact": 0.8, ...}}: shares of the operators'
 * simulated time. The caller releases it. */
json_t *summary_price_shares(const struct price_shares *shares);

/* The same as a line of those that are not 0; nothing where there is none. */
void summary_print_price_shares(const struct price_shares *shares, FILE *out);

#endif
