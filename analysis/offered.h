/* Whether a run kept up with what it was offered.
 *
 * A run whose queue grows until the last arrival has latencies that say how long the run was,
 * not how good the system is. The verdict is of the run as it happened: what was offered is the
 * rate at which its requests came, between the first and the last arrival, whatever rate was
 * asked for. What a system can serve is the rate at which the same requests are served when all
 * wait.
 *
 * Three facts decide, the first that can:
 *
 * 1. Work. For so long somebody was in the system: the work cannot have taken longer. Where
 *    that is less than 0.95 of the time in which the requests came, the system kept up, however
 *    few they are. (From here on 30 requests or more.)
 * 2. Load. While at least a quarter of the most requests that ever were there were in the
 *    system, it served at nearly the rate at which it serves when all wait. The offered rate
 *    over that rate is the load. Service counts as spread evenly over each request's time from
 *    admission to end. The rate's standard error is that of the mean of 20 slices of the time;
 *    they are correlated, which the estimate of Newey and West knows ("A simple, positive
 *    semi-definite, heteroskedasticity and autocorrelation consistent covariance matrix",
 *    Econometrica 55, 1987; Bartlett weights, the lag of "Automatic lag selection in covariance
 *    matrix estimation", Review of Economic Studies 61, 1994). Capacity is defined of the same
 *    requests, so that the error is multiplied by sqrt(1 - share) where a share of all service
 *    is seen (Cochran, "Sampling techniques", 1977: the finite population correction).
 *    Steady: the load is below 1 with 99 %. Saturated: it is above 1 with 99 % and at least
 *    1.05 + 15 / n, as a run of n requests fills and empties once; those stayed longer who
 *    found more requests there, or had more there meanwhile (Spearman's rank correlation, "The
 *    proof and measurement of association between two things", American Journal of Psychology
 *    15, 1904; one-sided at 99 %); and up to 1.1 what follows (3.) must not say steady.
 * 3. Pace. Steady, unless the load is above 1 with 99 % and at least 1.05: requests left, from
 *    the first to the last, at 0.95 or more of the rate at which they came, and latencies did
 *    not grow by half from the first to the last quarter of the arrivals.
 *
 * What is left cannot be told, which is not the same as steady. A rate above what no scheduler
 * can serve proves saturation (offered_judge_by_bound). The constants were chosen by half of
 * the seeds of `make saturation` and by the queues of test_offered.c.
 *
 * Closed: no rate was offered. All arrivals came within a twentieth of the time that the first
 * departure took, as in a batch that is given whole, or each followed a departure, as in a
 * closed loop; throughput is then the system's own. */
#ifndef UNMASK_ANALYSIS_OFFERED_H
#define UNMASK_ANALYSIS_OFFERED_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

enum offered_state {
    OFFERED_UNKNOWN, /* cannot be told: too few requests, or too short a run, or a load of 1 */
    OFFERED_STEADY,
    OFFERED_SATURATED,
    OFFERED_CLOSED,
};
enum { OFFERED_STATE_COUNT = OFFERED_CLOSED + 1 };
extern const char *const offered_words[OFFERED_STATE_COUNT];

struct offered {
    enum offered_state state;
    double rate_req_s;   /* arrivals over the time between the first and the last; 0: unknown */
    double served_req_s; /* completions until the last arrival, once the system had filled, over
                            that time; where it is closed, over the time of completions */
    double growth_req_s; /* by which the queue grew in the same time; 0 unless saturated */
    size_t n;            /* requests that could be served */
    size_t n_left;       /* of them in the system at the last arrival */
    /* What was offered over what can be served, and the interval that holds it with 98 %; NaN: not
     * known, or fewer than 30 requests. */
    double load, load_low, load_high;
};

/* A request that arrived, was admitted (at its arrival, where not known) and left. INFINITY: the
 * run ended before. left_s = arrival_s: a full queue turned it away. */
struct stay {
    double arrival_s, admitted_s, left_s;
};

/* Of requests that could be served, and `n_arrived` >= n that arrived in all, the last of them at
 * `last_arrival_s`. Sorts `stays`. */
struct offered offered_of(struct stay *stays, size_t n, size_t n_arrived, double last_arrival_s);

/* No scheduler serves more than `most_req_s` (sim/bound/bound.h); NaN or 0: not known. */
void offered_judge_by_bound(struct offered *offered, double most_req_s);

/* The rate at which requests came, next to the one that was asked for.
 *
 * A trace is rescaled so that both are one. Draws of finitely many requests, classes, and turns
 * that wait for earlier ones to end come close to what was asked for; where they are further off
 * than RATE_TOLERANCE, every output shows what was offered instead. */

#define RATE_TOLERANCE 0.005

enum { RATE_CHARS = 64 };

/* Requests a second; one that is not known, 0 or NaN, is met. */
bool rate_is_met(double asked_req_s, double offered_req_s);

/* "1 req/s", "0.945 req/s (1 asked for)", or "1 req/s asked for" where the offered rate is
 * not known; "" where none was asked for. Returns `text`. */
const char *rate_text(double asked_req_s, double offered_req_s, char text[RATE_CHARS]);

/* Reads a number above 0; NULL leaves `*out`. ERR_USAGE that begins with `place`, such as "--rate";
 * of infinity, as load generators call all requests at once, it says what that is called here. */
int rate_read(const char *place, const char *text, double *out, struct err *err);

#endif
