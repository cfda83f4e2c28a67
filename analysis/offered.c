#include "analysis/offered.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/sort.h"

const char *const offered_words[OFFERED_STATE_COUNT] = {"cannot tell", "steady", "saturated",
                                                        "closed"};

/* What they mean stands in the header. A quarter: of a half, what a third of the batch serves
 * passes for capacity where larger batches are slower (dLLM-Serve's, 500 requests). */
enum { LEAST_REQUESTS = 30, SLICES = 20 };
static const double level = 0.99, deep_share = 0.25, work_share = 0.95, least_pace = 0.95,
                    least_growth = 1.5, at_once = 0.05, least_excess = 1.05, edges = 15,
                    clear_excess = 1.1;

/* ---- the number in the system over time ---- */

/* Constant from each time to the next. Up to there: for how long many were there, and the time that
 * all spent there. */
struct crowd {
    size_t n, most;
    double *at_s, *deep_s, *spent_s, *left_s; /* left_s: [n_stays] in order */
    size_t *n_in;
    double busy_s;
};

static int by_arrival(const void *a, const void *b) {
    const struct stay *x = a, *y = b;
    if (x->arrival_s != y->arrival_s) {
        return x->arrival_s < y->arrival_s ? -1 : 1;
    }
    return (x->left_s > y->left_s) - (x->left_s < y->left_s);
}

static bool is_deep(const struct crowd *crowd, size_t i) {
    return (double)crowd->n_in[i] >= deep_share * (double)crowd->most;
}

static void crowd_close(struct crowd *crowd) {
    free(crowd->at_s);
    free(crowd->deep_s);
    free(crowd->spent_s);
    free(crowd->left_s);
    free(crowd->n_in);
}

/* `stays` are in order of arrival. Who never left is there until `end_s`. */
static struct crowd crowd_of(const struct stay *stays, size_t n, double end_s) {
    struct crowd crowd = {.at_s = mem_unwritten(2 * n, sizeof(double)),
                          .deep_s = mem_unwritten(2 * n, sizeof(double)),
                          .spent_s = mem_unwritten(2 * n, sizeof(double)),
                          .left_s = mem_unwritten(n, sizeof(double)),
                          .n_in = mem_unwritten(2 * n, sizeof(size_t))};
    for (size_t i = 0; i < n; i++) {
        crowd.left_s[i] = fmin(stays[i].left_s, end_s);
    }
    sort_doubles(crowd.left_s, n);
    for (size_t came = 0, left = 0; left < n; crowd.n++) {
        double at_s = crowd.left_s[left];
        at_s = came < n ? fmin(at_s, stays[came].arrival_s) : at_s;
        while (came < n && stays[came].arrival_s <= at_s) {
            came++;
        }
        while (left < n && crowd.left_s[left] <= at_s) {
            left++;
        }
        crowd.at_s[crowd.n] = at_s;
        crowd.n_in[crowd.n] = came - left;
        crowd.most = came - left > crowd.most ? came - left : crowd.most;
    }
    crowd.deep_s[0] = crowd.spent_s[0] = 0;
    for (size_t i = 1; i < crowd.n; i++) {
        double time_s = crowd.at_s[i] - crowd.at_s[i - 1];
        crowd.busy_s += crowd.n_in[i - 1] > 0 ? time_s : 0;
        crowd.deep_s[i] = crowd.deep_s[i - 1] + (is_deep(&crowd, i - 1) ? time_s : 0);
        crowd.spent_s[i] = crowd.spent_s[i - 1] + (double)crowd.n_in[i - 1] * time_s;
    }
    return crowd;
}

/* How many of the sorted values are at most `value`. */
static size_t count_up_to(const double *values, size_t n, double value) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (values[middle] <= value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Up to `at_s`: how long many were there, and the time that all spent there. */
static void crowd_until(const struct crowd *crowd, double at_s, double *deep_s, double *spent_s) {
    size_t i = count_up_to(crowd->at_s, crowd->n, at_s);
    i -= i > 0;
    double time_s = fmax(0, fmin(at_s, crowd->at_s[crowd->n - 1]) - crowd->at_s[i]);
    *deep_s = crowd->deep_s[i] + (is_deep(crowd, i) ? time_s : 0);
    *spent_s = crowd->spent_s[i] + (double)crowd->n_in[i] * time_s;
}

/* ---- the load ---- */

/* Service, in requests, of each slice of the time in which many were there. */
struct service {
    double deep_s, slices[SLICES];
};

static void add_slices(struct service *service, double from_s, double to_s, double per_s) {
    double slice_s = service->deep_s / SLICES;
    size_t slice = (size_t)(from_s / slice_s);
    for (; slice < SLICES && (double)slice * slice_s < to_s; slice++) {
        double low_s = fmax(from_s, (double)slice * slice_s);
        double high_s = fmin(to_s, (double)(slice + 1) * slice_s);
        service->slices[slice] += fmax(0, high_s - low_s) * per_s;
    }
}

static struct service service_of(const struct stay *stays, size_t n, const struct crowd *crowd) {
    struct service service = {.deep_s = crowd->deep_s[crowd->n - 1]};
    for (size_t i = 0; i < n && service.deep_s > 0; i++) {
        double time_s = stays[i].left_s - stays[i].admitted_s;
        if (isfinite(time_s) && time_s > 0) {
            double from_s, to_s, spent_s;
            crowd_until(crowd, stays[i].admitted_s, &from_s, &spent_s);
            crowd_until(crowd, stays[i].left_s, &to_s, &spent_s);
            add_slices(&service, from_s, to_s, 1 / time_s);
        }
    }
    return service;
}

/* The standard error of the mean of correlated values (Newey and West). */
static double error_of_mean(const double *values, size_t n, double mean) {
    size_t lag = (size_t)(4 * pow((double)n / 100, 2.0 / 9));
    double sum = 0;
    for (size_t k = 0; k <= lag && k < n; k++) {
        double product = 0;
        for (size_t i = k; i < n; i++) {
            product += (values[i] - mean) * (values[i - k] - mean);
        }
        sum += (k == 0 ? 1 : 2) * (1 - (double)k / (double)(lag + 1)) * product / (double)n;
    }
    return sqrt(fmax(0, sum) / (double)n);
}

/* An edge of the time in which many were there cuts a request in two: one more or less is no
 * difference. */
static void find_load(const struct service *service, size_t n, double time_s,
                      struct offered *offered) {
    double mean = gsl_stats_mean(service->slices, 1, SLICES), served = mean * SLICES;
    if (!(served > 1) || !(time_s > 0)) {
        return;
    }
    double unseen = sqrt(fmax(0, 1 - served / (double)n));
    double error = unseen * error_of_mean(service->slices, SLICES, mean) / mean;
    double wide = gsl_cdf_tdist_Pinv(level, SLICES - 1) * hypot(error, unseen / served);
    double load = (double)(n - 1) / time_s * service->deep_s / served;
    offered->load = load;
    offered->load_low = load * fmax(0, 1 - wide);
    offered->load_high = load * (1 + wide);
}

/* ---- latencies and pace ---- */

struct part {
    double sum_s;
    size_t n_left, n_stayed;
};

static void add_stay(struct part *part, const struct stay *stay) {
    bool left = isfinite(stay->left_s);
    if (stay->left_s > stay->arrival_s) {
        part->sum_s += left ? stay->left_s - stay->arrival_s : 0;
        part->n_left += left;
        part->n_stayed += !left;
    }
}

static bool is_longer(const struct part *part, const struct part *base, double ratio) {
    return part->n_stayed > base->n_stayed ||
           part->sum_s * (double)base->n_left >= ratio * base->sum_s * (double)part->n_left;
}

/* Over quarters of the requests in the order in which they came. */
static bool latencies_grew(const struct stay *stays, size_t n) {
    struct part first = {0}, last = {0};
    for (size_t i = 0; i < n / 4; i++) {
        add_stay(&first, &stays[i]);
        add_stay(&last, &stays[n - 1 - i]);
    }
    return is_longer(&last, &first, least_growth);
}

/* When the first tenth of the requests, by arrival, have left; before it the system fills. */
static double filled_at(const struct stay *stays, size_t n) {
    double filled_s = -INFINITY;
    for (size_t i = 0; i < (n + 9) / 10; i++) {
        filled_s = isfinite(stays[i].left_s) ? fmax(filled_s, stays[i].left_s) : filled_s;
    }
    return filled_s;
}

/* The place of each value among all, of equal ones their mean. */
static double *ranks_of(const double *values, size_t n) {
    struct sort_item *items = mem_unwritten(n + 1, sizeof *items);
    double *ranks = mem_unwritten(n + 1, sizeof *ranks);
    for (size_t i = 0; i < n; i++) {
        items[i] = (struct sort_item){sort_key(values[i]), i};
    }
    sort_items(items, n);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && items[end].key == items[first].key;) {
            end++;
        }
        for (size_t i = first; i < end; i++) {
            ranks[items[i].place] = (double)(first + end - 1) / 2;
        }
    }
    free(items);
    return ranks;
}

/* Spearman's rank correlation over its standard error. */
static double rank_z(const double *x, const double *y, size_t n) {
    double *of_x = ranks_of(x, n), *of_y = ranks_of(y, n);
    double z = n > 2 ? gsl_stats_correlation(of_x, 1, of_y, 1, n) * sqrt((double)(n - 1)) : 0;
    free(of_x);
    free(of_y);
    return z;
}

/* Whether requests stay longer that find more others there, or have more there meanwhile
 * (Spearman's rank correlation). Where no request waits, a run that is short compared with a
 * request's time fills and empties as if it were overloaded; where requests wait for the batch
 * before them, late ones wait less. */
static bool crowds_delay(const struct stay *stays, size_t n, const struct crowd *crowd) {
    double *found = mem_unwritten(n, sizeof *found), *met = mem_unwritten(n, sizeof *met);
    double *time_s = mem_unwritten(n, sizeof *time_s);
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(stays[i].left_s) && stays[i].left_s > stays[i].arrival_s) {
            size_t gone = count_up_to(crowd->left_s, n, stays[i].arrival_s);
            double before_s, until_s, deep_s;
            crowd_until(crowd, stays[i].arrival_s, &deep_s, &before_s);
            crowd_until(crowd, stays[i].left_s, &deep_s, &until_s);
            time_s[n_left] = stays[i].left_s - stays[i].arrival_s;
            found[n_left] = (double)i - (double)gone;
            met[n_left] = (until_s - before_s) / time_s[n_left];
            n_left++;
        }
    }
    double z = fmax(rank_z(found, time_s, n_left), rank_z(met, time_s, n_left));
    free(found);
    free(met);
    free(time_s);
    return z >= gsl_cdf_ugaussian_Pinv(level);
}

/* Completions per second between the first and the last; 0 of fewer than two. */
static double completion_rate(const struct stay *stays, size_t n) {
    double first_s = INFINITY, last_s = -INFINITY;
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(stays[i].left_s) && stays[i].left_s > stays[i].arrival_s) {
            first_s = fmin(first_s, stays[i].left_s);
            last_s = fmax(last_s, stays[i].left_s);
            n_left++;
        }
    }
    return n_left > 1 && last_s > first_s ? (double)(n_left - 1) / (last_s - first_s) : 0;
}

/* ---- the verdict ---- */

/* Requests left as they came, and latencies did not grow. */
static bool kept_pace(const struct stay *stays, size_t n, double rate_req_s) {
    return completion_rate(stays, n) >= least_pace * rate_req_s && !latencies_grew(stays, n);
}

static enum offered_state judge(const struct stay *stays, size_t n, const struct crowd *crowd,
                                double time_s, struct offered *offered) {
    double rate_req_s = (double)(n - 1) / time_s;
    if (n >= LEAST_REQUESTS) {
        struct service service = service_of(stays, n, crowd);
        find_load(&service, n, time_s, offered);
    }
    if (crowd->busy_s * rate_req_s < work_share * (double)n) {
        return OFFERED_STEADY;
    }
    if (n < LEAST_REQUESTS) {
        return OFFERED_UNKNOWN;
    }
    bool kept = kept_pace(stays, n, rate_req_s);
    bool is_above = offered->load_low > 1 && offered->load >= least_excess;
    if (offered->load_high < 1 || (kept && !is_above)) {
        return OFFERED_STEADY;
    }
    bool is_clear = offered->load >= least_excess + edges / (double)n &&
                    (!kept || offered->load >= clear_excess);
    return is_above && is_clear && crowds_delay(stays, n, crowd) ? OFFERED_SATURATED
                                                                 : OFFERED_UNKNOWN;
}

/* Whether each arrival followed a departure, all after the same time; where one client alone would
 * look like arrivals at regular times, at once. */
static bool is_closed_loop(const struct stay *stays, size_t n, const struct crowd *crowd) {
    static const double same_s = 1e-7;
    size_t clients = 1;
    while (clients < n && stays[clients].arrival_s == stays[0].arrival_s) {
        clients++;
    }
    double think_s = clients < n ? stays[clients].arrival_s - crowd->left_s[0] : 0;
    for (size_t i = clients; i < n; i++) {
        double time_s = stays[i].arrival_s - crowd->left_s[i - clients];
        if (time_s < 0 || fabs(time_s - think_s) > same_s) {
            return false;
        }
    }
    return clients > 1 || think_s <= same_s;
}

/* What came and left from the time at which the first tenth had left to the last arrival. */
static void find_flow(const struct stay *stays, size_t n, const struct crowd *crowd, double last_s,
                      struct offered *offered) {
    double from_s = crowd->left_s[0], filled_s = fmax(from_s, filled_at(stays, n));
    from_s = filled_s > (stays[0].arrival_s + last_s) / 2 ? from_s : filled_s;
    size_t in = 0, out = 0;
    for (size_t i = 0; i < n; i++) {
        in += stays[i].arrival_s > from_s && stays[i].arrival_s <= last_s;
        out += stays[i].left_s > from_s && stays[i].left_s <= last_s &&
               stays[i].left_s > stays[i].arrival_s;
    }
    bool is_known = last_s > from_s;
    offered->served_req_s = is_known ? (double)out / (last_s - from_s) : completion_rate(stays, n);
    if (offered->state == OFFERED_SATURATED) {
        offered->growth_req_s =
            is_known ? fmax(0, (double)in - (double)out) / (last_s - from_s) : offered->rate_req_s;
    }
}

/* When the first request left that was not turned away; `end_s` where none did. */
static double first_served(const struct stay *stays, size_t n, double end_s) {
    double first_s = end_s;
    for (size_t i = 0; i < n; i++) {
        first_s = stays[i].left_s > stays[i].arrival_s ? fmin(first_s, stays[i].left_s) : first_s;
    }
    return first_s;
}

struct offered offered_of(struct stay *stays, size_t n, size_t n_arrived, double last_arrival_s) {
    struct offered offered = {
        .n = n, .load = (double)NAN, .load_low = (double)NAN, .load_high = (double)NAN};
    if (n == 0) {
        return offered;
    }
    qsort(stays, n, sizeof *stays, by_arrival);
    double first_s = stays[0].arrival_s, time_s = last_arrival_s - first_s;
    double end_s = last_arrival_s;
    for (size_t i = 0; i < n; i++) {
        end_s = isfinite(stays[i].left_s) ? fmax(end_s, stays[i].left_s) : end_s;
    }
    offered.rate_req_s = time_s > 0 ? (double)(n_arrived - 1) / time_s : 0;
    struct crowd crowd = crowd_of(stays, n, end_s);
    offered.n_left = n - count_up_to(crowd.left_s, n, last_arrival_s);
    if (time_s <= at_once * (first_served(stays, n, end_s) - first_s) ||
        is_closed_loop(stays, n, &crowd)) {
        offered.state = OFFERED_CLOSED;
    } else {
        offered.state = judge(stays, n, &crowd, time_s, &offered);
    }
    find_flow(stays, n, &crowd, last_arrival_s, &offered);
    crowd_close(&crowd);
    return offered;
}

void offered_judge_by_bound(struct offered *offered, double most_req_s) {
    bool is_open = offered->state == OFFERED_UNKNOWN || offered->state == OFFERED_STEADY;
    if (is_open && offered->n >= LEAST_REQUESTS && most_req_s > 0 &&
        offered->rate_req_s > most_req_s) {
        offered->state = OFFERED_SATURATED;
        offered->growth_req_s = offered->rate_req_s - most_req_s;
    }
}

bool rate_is_met(double asked_req_s, double offered_req_s) {
    bool is_known = asked_req_s > 0 && offered_req_s > 0;
    return !is_known || fabs(offered_req_s - asked_req_s) <= RATE_TOLERANCE * asked_req_s;
}

const char *rate_text(double asked_req_s, double offered_req_s, char text[RATE_CHARS]) {
    text[0] = '\0';
    if (!rate_is_met(asked_req_s, offered_req_s)) {
        snprintf(text, RATE_CHARS, "%.4g req/s (%.6g asked for)", offered_req_s, asked_req_s);
    } else if (asked_req_s > 0) {
        snprintf(text, RATE_CHARS, "%.6g req/s%s", asked_req_s,
                 offered_req_s > 0 ? "" : " asked for");
    }
    return text;
}

static bool is_infinite(const char *text) {
    text += text[0] == '+';
    return strcasecmp(text, "inf") == 0 || strcasecmp(text, "infinity") == 0;
}

int rate_read(const char *place, const char *text, double *out, struct err *err) {
    if (text == NULL) {
        return 0;
    }
    if (is_infinite(text)) {
        return err_usage(err,
                         "%s: no rate is infinite; for all requests at once: --arrivals "
                         "all-at-once",
                         place);
    }
    return num_f64(text, out) && *out > 0
               ? 0
               : err_usage(err, "%s: '%s' is not a number above 0", place, text);
}
