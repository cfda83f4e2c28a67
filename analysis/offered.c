#include "analysis/offered.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

const char *const offered_words[OFFERED_STATE_COUNT] = {"unknown", "steady", "saturated", "closed"};

enum { LEAST_REQUESTS = 30, LEAST_WINDOWS = 6, MOST_WINDOWS = 20, LEAST_IN_WINDOW = 5 };
static const double level = 0.99, least_left_behind = 0.02, least_growth = 1.5, least_served = 0.4,
                    least_served_late = 0.8, at_once = 0.05;

static int by_arrival(const void *a, const void *b) {
    const struct stay *x = a, *y = b;
    if (x->arrival_s != y->arrival_s) {
        return x->arrival_s < y->arrival_s ? -1 : 1;
    }
    return (x->left_s > y->left_s) - (x->left_s < y->left_s);
}

static double first_left(const struct stay *stays, size_t n) {
    double first = INFINITY;
    for (size_t i = 0; i < n; i++) {
        first = fmin(first, stays[i].left_s);
    }
    return first;
}

/* When the last of those left that ever did. */
static double all_left(const struct stay *stays, size_t n) {
    double last = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        last = isfinite(stays[i].left_s) ? fmax(last, stays[i].left_s) : last;
    }
    return last;
}

/* Completions per second between the first and the last; 0 of fewer than two. */
static double completion_rate(const struct stay *stays, size_t n) {
    double time_s = all_left(stays, n) - first_left(stays, n);
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++) {
        n_left += isfinite(stays[i].left_s);
    }
    return n_left > 1 && time_s > 0 ? (double)(n_left - 1) / time_s : 0;
}

static size_t window_of(double at_s, double from_s, double to_s, size_t n_windows) {
    size_t window = (size_t)((at_s - from_s) / (to_s - from_s) * (double)n_windows);
    return window < n_windows ? window : n_windows - 1;
}

struct flow {
    double in, out; /* requests */
    bool grows;
};

/* What arrives less what leaves, in each of so many windows: is its mean above 0? */
static bool net_is_positive(const struct stay *stays, size_t n, double from_s, double to_s,
                            size_t n_windows) {
    double net[MOST_WINDOWS] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct stay *stay = &stays[i];
        if (stay->arrival_s > from_s && stay->arrival_s <= to_s) {
            net[window_of(stay->arrival_s, from_s, to_s, n_windows)]++;
        }
        if (stay->left_s > from_s && stay->left_s <= to_s) {
            net[window_of(stay->left_s, from_s, to_s, n_windows)]--;
        }
    }
    double mean = gsl_stats_mean(net, 1, n_windows);
    double error = gsl_stats_sd_m(net, 1, n_windows, mean) / sqrt((double)n_windows);
    return mean > error * gsl_cdf_tdist_Pinv(level, (double)n_windows - 1);
}

/* Many windows tell small excesses from noise; few tell where requests leave batch by batch. */
static struct flow flow_between(const struct stay *stays, size_t n, double from_s, double to_s) {
    static const size_t windows[] = {MOST_WINDOWS, 10, LEAST_WINDOWS};
    struct flow flow = {0};
    for (size_t i = 0; i < n; i++) {
        flow.in += stays[i].arrival_s > from_s && stays[i].arrival_s <= to_s;
        flow.out += stays[i].left_s > from_s && stays[i].left_s <= to_s;
    }
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        flow.grows = flow.grows || (flow.in >= (double)(LEAST_IN_WINDOW * windows[i]) &&
                                    net_is_positive(stays, n, from_s, to_s, windows[i]));
    }
    flow.grows = flow.grows && flow.in - flow.out >= least_left_behind * flow.in;
    return flow;
}

struct quarter {
    double sum_s;
    size_t n_left, n_stayed;
};

static struct quarter quarter_of(const struct stay *stays, size_t n) {
    struct quarter quarter = {0};
    for (size_t i = 0; i < n; i++) {
        bool left = isfinite(stays[i].left_s);
        quarter.sum_s += left ? stays[i].left_s - stays[i].arrival_s : 0;
        quarter.n_left += left;
        quarter.n_stayed += !left;
    }
    return quarter;
}

/* Over quarters of the requests in the order in which they came. */
static bool latencies_grew(const struct stay *stays, size_t n) {
    struct quarter first = quarter_of(stays, n / 4);
    struct quarter last = quarter_of(stays + (n - n / 4), n / 4);
    return last.n_stayed > first.n_stayed ||
           last.sum_s * (double)first.n_left >= least_growth * first.sum_s * (double)last.n_left;
}

/* Of a run that ends before the system has filled: what else tells that it cannot keep up. */
static bool falls_behind(const struct stay *stays, size_t n, double rate_req_s) {
    double left_req_s = completion_rate(stays, n);
    return n >= LEAST_REQUESTS &&
           (left_req_s < least_served * rate_req_s ||
            (left_req_s < least_served_late * rate_req_s && latencies_grew(stays, n)));
}

/* Nobody had left when the last one arrived. */
static void judge_whole(const struct stay *stays, size_t n, double waited_s, double time_s,
                        struct offered *out) {
    out->served_req_s = completion_rate(stays, n);
    if (n > 1 && time_s <= at_once * waited_s) {
        out->state = OFFERED_CLOSED;
    } else if (n > 1 && falls_behind(stays, n, out->rate_req_s)) {
        out->state = OFFERED_SATURATED;
        out->growth_req_s = out->rate_req_s;
    }
}

struct offered offered_of(struct stay *stays, size_t n, size_t n_arrived, double last_arrival_s) {
    struct offered offered = {0};
    if (n == 0) {
        return offered;
    }
    qsort(stays, n, sizeof *stays, by_arrival);
    double first_s = stays[0].arrival_s, time_s = last_arrival_s - first_s;
    offered.rate_req_s = time_s > 0 ? (double)(n_arrived - 1) / time_s : 0;
    double from_s = first_left(stays, n);
    if (from_s >= last_arrival_s) {
        judge_whole(stays, n, from_s - first_s, time_s, &offered);
        return offered;
    }
    double filled_s = all_left(stays, (n + 9) / 10);
    bool fills_slowly = filled_s > first_s + time_s / 2;
    from_s = fills_slowly ? from_s : filled_s;
    struct flow flow = flow_between(stays, n, from_s, last_arrival_s);
    offered.served_req_s = flow.out / (last_arrival_s - from_s);
    if (fills_slowly ? falls_behind(stays, n, offered.rate_req_s) : flow.grows) {
        offered.state = OFFERED_SATURATED;
        offered.growth_req_s = (flow.in - flow.out) / (last_arrival_s - from_s);
    } else if (n >= LEAST_REQUESTS && !fills_slowly) {
        offered.state = OFFERED_STEADY;
    }
    return offered;
}
