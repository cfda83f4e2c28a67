/* Whether a run kept up with what it was offered.
 *
 * A run whose queue grows until the last arrival has latencies that say how long the run was, not
 * how good the system is. The verdict is about the run as it happened, with the arrivals that it
 * had. Between the time at which the first tenth of the requests, by arrival, have left (before it
 * the system fills) and the last arrival, time is cut into equal windows, 20, 10 and 6 of them, and
 * what arrives less what leaves is counted in each. At a rate that the system can serve these
 * differences add up to nothing; where it cannot, their mean is above 0. Saturated: it is so at
 * 99 % (one-sided t-test, by any of the three cuts), and at least one request in fifty of those
 * that came stayed behind. The differences of a queue at exactly its capacity are independent of
 * each other, so that the test is not fooled by a queue that wanders.
 *
 * Where the first tenth needs more than half of the time, or nobody has left by the last arrival, a
 * system that just holds its requests for long fills in the same way. Saturated is then whose
 * requests leave, from the first to the last, at less than 0.8 of the rate at which they came while
 * latencies grew by half from the first to the last quarter of the arrivals; or at less than 0.4.
 *
 * Closed: all arrivals came within a twentieth of the time that the first departure took. All were
 * there at once, as in a batch that is given whole: throughput is then the system's capacity, and
 * nothing is said about a rate. */
#ifndef UNMASK_ANALYSIS_OFFERED_H
#define UNMASK_ANALYSIS_OFFERED_H

#include <stddef.h>

enum offered_state {
    OFFERED_UNKNOWN, /* too few requests, or too short a run, to tell */
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
};

/* A request that arrived, and when it left; INFINITY: the run ended with it in the queue. */
struct stay {
    double arrival_s, left_s;
};

/* Of requests that could be served, and `n_arrived` >= n that arrived in all, the last of them at
 * `last_arrival_s`. Sorts `stays`. */
struct offered offered_of(struct stay *stays, size_t n, size_t n_arrived, double last_arrival_s);

#endif
