#include "engine/calibrate/power_fit.h"

#include <gsl/gsl_multimin.h>
#include <math.h>

#include "engine/calibrate/quantile.h"
#include "sim/base/mem.h"

/* A sample counts as slowed where its time has risen by this factor. Its power is the limit's then,
 * if it is near the most that any drew. */
static const double slowed = 1.02, near_most = 0.95;
/* What a residual is measured by: a hundredth of time, three of power. */
static const double time_unit = 0.01, watts_unit = 0.03;
/* Where no step rose enough to measure its lag: the median of nine H100s' and H200s', 49
 * to 106 (kernels/profiles). Slowdowns are small there. */
static const double assumed_lag_ms = 65;
/* A busy card draws more than one at rest whatever it does: of what the limit leaves 0.49 to 0.81,
 * the median of ten H100s and H200s 0.63 (kernels/profiles). A fit that needs next to none of it,
 * as bytes and operations explain its few samples alone (steps in fp8: 0 to 1.3 W, three H200s),
 * was not told: the median is taken then. */
static const double least_busy_share = 0.1, assumed_busy_share = 0.63;

struct problem {
    const struct power_sample *samples;
    size_t n;
    double idle_w, lag_ms;
    double busy_share; /* of what the limit leaves, where it is not found; or 0 */
};

enum { FLOP, BYTE, EXPONENT, LIMIT, BUSY, ACTIVE, UNKNOWNS };

/* A part that the samples have no use for comes out next to nothing. */
static double positive(const gsl_vector *x, size_t i) {
    static const double least = 1e-3;
    return fmax(exp(gsl_vector_get(x, i)), least);
}

static struct power power_at(const struct problem *problem, const gsl_vector *x) {
    const double left_w = exp(gsl_vector_get(x, LIMIT));
    return (struct power){.idle_w = problem->idle_w,
                          .limit_w = problem->idle_w + left_w,
                          .busy_w = problem->busy_share > 0 ? problem->busy_share * left_w
                                                            : positive(x, BUSY),
                          .active_w = positive(x, ACTIVE),
                          .flop_pj = positive(x, FLOP),
                          .byte_pj = positive(x, BYTE),
                          .exponent = positive(x, EXPONENT),
                          .lag_ms = problem->lag_ms};
}

struct power_step power_sample_step(const struct power *power, const struct power_sample *sample) {
    return (struct power_step){.ns = sample->first_ns + sample->gap_ns,
                               .busy_ns = sample->first_ns,
                               .compute_ns = sample->compute_ns,
                               .flops_j = power_flops_j(power, sample->flops),
                               .bytes_j = power_bytes_j(power, sample->bytes)};
}

void power_settle(const struct power *power, const struct power_sample *sample, double *ns,
                  double *watts) {
    const struct power_step step = power_sample_step(power, sample);
    const double slowdown = power_settled(power, &step);
    *ns = sample->first_ns + sample->compute_ns * (slowdown - 1);
    const double at_first = power_work_joules(power, &step, 1) / (step.ns * 1e-9),
                 settled =
                     power_work_joules(power, &step, slowdown) / ((*ns + sample->gap_ns) * 1e-9);
    const double share = fmin(power->lag_ms * 1e6 / sample->held_ns, 1);
    *watts = power->idle_w + settled + share * (at_first - settled);
}

static double misfit(const gsl_vector *x, void *state) {
    const struct problem *problem = state;
    const struct power power = power_at(problem, x);
    double sum = 0;
    for (size_t i = 0; i < problem->n; i++) {
        double ns, watts;
        power_settle(&power, &problem->samples[i], &ns, &watts);
        double time = log(ns / problem->samples[i].settled_ns) / time_unit;
        double drawn = log(watts / problem->samples[i].watts) / watts_unit;
        sum += time * time + drawn * drawn;
    }
    return sum;
}

/* From what those drew that were slowed on; anew from where it has come to, for a simplex may have
 * become flat on the way. */
static void minimise(struct problem *problem, double slowed_w, struct power *out) {
    enum { MOST = 4000, SEARCHES = 8 };
    gsl_vector *x = gsl_vector_alloc(UNKNOWNS), *by = gsl_vector_alloc(UNKNOWNS);
    gsl_multimin_fminimizer *search =
        gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, UNKNOWNS);
    gsl_multimin_function function = {misfit, UNKNOWNS, problem};
    gsl_vector_set(x, FLOP, log(0.4));
    gsl_vector_set(x, BYTE, log(40));
    gsl_vector_set(x, EXPONENT, log(0.5));
    gsl_vector_set(x, LIMIT, log(slowed_w - problem->idle_w));
    gsl_vector_set(x, BUSY, log((slowed_w - problem->idle_w) / 2));
    gsl_vector_set(x, ACTIVE, log((slowed_w - problem->idle_w) / 4));
    gsl_vector_set_all(by, 0.3);
    for (int k = 0; k < SEARCHES; k++) {
        gsl_multimin_fminimizer_set(search, &function, x, by);
        for (int i = 0; i < MOST && gsl_multimin_fminimizer_size(search) > 1e-7; i++) {
            if (gsl_multimin_fminimizer_iterate(search) != 0) {
                break;
            }
        }
        gsl_vector_memcpy(x, search->x);
    }
    *out = power_at(problem, search->x);
    gsl_multimin_fminimizer_free(search);
    gsl_vector_free(x);
    gsl_vector_free(by);
}

static bool is_slowed(const struct power_sample *sample) {
    return sample->settled_ns > slowed * sample->first_ns;
}

/* The median of one field of the samples that were slowed and drew at least least_w; returns how
 * many.
 */
static size_t median_of_slowed(const struct power_sample *samples, size_t n, double least_w,
                               size_t field, double *out) {
    double *values = mem_unwritten(n > 0 ? n : 1, sizeof *values);
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const double value = *(const double *)(const void *)((const char *)&samples[i] + field);
        if (is_slowed(&samples[i]) && samples[i].watts >= least_w && value > 0) {
            values[found++] = value;
        }
    }
    *out = found > 0 ? quantile(values, found, 0.5) : 0;
    free(values);
    return found;
}

static void judge(const struct power *power, const struct power_sample *samples, size_t n,
                  struct power_errors *errors) {
    *errors = (struct power_errors){.n = n};
    for (size_t i = 0; i < n; i++) {
        double ns, watts;
        power_settle(power, &samples[i], &ns, &watts);
        errors->time += pow(ns / samples[i].settled_ns - 1, 2) / (double)n;
        errors->watts += pow(watts / samples[i].watts - 1, 2) / (double)n;
        errors->unslowed += pow(samples[i].first_ns / samples[i].settled_ns - 1, 2) / (double)n;
    }
    errors->time = sqrt(errors->time);
    errors->watts = sqrt(errors->watts);
    errors->unslowed = sqrt(errors->unslowed);
}

int power_fit(const struct power_sample *samples, size_t n, double idle_w, struct power *out,
              struct power_errors *errors, struct err *err) {
    enum { LEAST = UNKNOWNS + 1 };
    struct problem problem = {samples, n, idle_w, 0, 0};
    double slowed_w, most_w = 0;
    for (size_t i = 0; i < n; i++) {
        most_w = fmax(most_w, samples[i].watts);
    }
    size_t n_slowed = median_of_slowed(samples, n, near_most * most_w,
                                       offsetof(struct power_sample, watts), &slowed_w);
    median_of_slowed(samples, n, 0, offsetof(struct power_sample, lag_ms), &problem.lag_ms);
    if (n < LEAST || n_slowed < 2 || !(slowed_w > idle_w) || !(idle_w > 0)) {
        return err_world(err,
                         "of %zu steps that were repeated %zu became slower: nothing to tell "
                         "a power limit by",
                         n, n_slowed);
    }
    const bool is_told = problem.lag_ms > 0;
    problem.lag_ms = is_told ? problem.lag_ms : assumed_lag_ms;
    minimise(&problem, slowed_w, out);
    if (out->busy_w < least_busy_share * (out->limit_w - out->idle_w)) {
        problem.busy_share = assumed_busy_share;
        minimise(&problem, slowed_w, out);
    }
    judge(out, samples, n, errors);
    errors->lag_is_assumed = !is_told;
    errors->busy_is_assumed = problem.busy_share > 0;
    return 0;
}
