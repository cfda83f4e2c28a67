/* What a trace is like: rates, lengths, burstiness, what is shared and what a context leaves out.
 */
#ifndef UNMASK_ANALYSIS_TRACE_FACTS_H
#define UNMASK_ANALYSIS_TRACE_FACTS_H

#include "analysis/summary.h"
#include "sim/base/arrival.h"

enum { TRACE_WINDOWS = 5, TRACE_CONTEXTS = 6 };

/* Arrivals of a source, all of them in memory. */
struct arrivals {
    struct arrival *items;
    size_t n, room;
};

/* Reads at most `most` rows, 0: all. Turns of a conversation come as if answers took no time. */
int arrivals_read(struct arrival_source source, uint64_t most, struct arrivals *out,
                  struct err *err);
/* In order of arrival, the first at 0; rows of one time stay in their order. */
void arrivals_sort(struct arrivals *arrivals);
void arrivals_free(struct arrivals *arrivals);

/* Counts of arrivals in windows of one length, whole ones from the first arrival on. */
struct window_facts {
    double seconds;
    size_t n;          /* fewer than 10 windows: the rest is not known */
    double mean, most; /* arrivals a window */
    double dispersion; /* variance over mean: 1 of a Poisson process, more where it is bursty */
};

struct context_facts {
    uint32_t tokens;
    uint64_t n_over, n_outputs_over; /* prompt and output together; the output alone */
};

struct trace_facts {
    size_t n;
    double span_s, rate_req_s; /* (n - 1) / span; 0: all arrive at once */
    bool has_times, has_answers;
    struct distribution gap_s, input, output, answer, total;
    struct window_facts windows[TRACE_WINDOWS];
    struct context_facts contexts[TRACE_CONTEXTS]; /* tokens 0: none */
    uint32_t n_tenants;
    uint64_t n_sessions, n_turns; /* conversations, and the requests that are turns of them */
    struct distribution think_s;  /* of later turns for which it is said; n 0: of none */
    uint64_t prompt_tokens, output_tokens, shared_tokens; /* of prompts, with earlier rows */
};

/* Of sorted arrivals; `context` in addition to the usual ones, 0: none. */
struct trace_facts trace_facts_of(const struct arrivals *arrivals, uint32_t context);

/* Standard deviation over mean; NaN of one value. */
double distribution_cv(const struct distribution *d);

#endif
