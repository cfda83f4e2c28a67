#include "sim/price/profile/power.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- constants ---- */

static const struct {
    const char *key;
    size_t offset;
    double most;
} constants[] = {
#define ROW(name, most) {#name, offsetof(struct power, name), most},
    POWER_CONSTANTS(ROW)
#undef ROW
};
enum { N_CONSTANTS = sizeof constants / sizeof *constants };

static double *constant(struct power *power, size_t i) {
    return (double *)(void *)((char *)power + constants[i].offset);
}

void power_write(const struct power *power, FILE *file) {
    struct power copy = *power;
    for (size_t i = 0; power_is_known(power) && i < N_CONSTANTS; i++) {
        fprintf(file, "power,%s,%.6g\n", constants[i].key, *constant(&copy, i));
    }
}

bool power_take(struct power *power, const char *key, double value) {
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        if (strcmp(constants[i].key, key) == 0) {
            *constant(power, i) = value;
            return value > 0 && value <= constants[i].most;
        }
    }
    return false;
}

const char *power_missing(const struct power *power) {
    struct power copy = *power;
    const char *missing = NULL;
    size_t n = 0;
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        bool is_given = *constant(&copy, i) > 0;
        n += is_given;
        missing = is_given || missing != NULL ? missing : constants[i].key;
    }
    return n > 0 ? missing : NULL;
}

/* ---- the clock ---- */

static const double joules_a_pj = 1e-12, ns_a_ms = 1e6, ns_a_s = 1e9;

double power_flops_j(const struct power *power, double flops) {
    return power->flop_pj * flops * joules_a_pj;
}

double power_bytes_j(const struct power *power, double bytes) {
    return power->byte_pj * bytes * joules_a_pj;
}

static double longer_ns(const struct power_step *step, double slowdown) {
    return step->compute_ns * (slowdown - 1);
}

static double step_ns(const struct power_step *step, double slowdown) {
    return step->ns + longer_ns(step, slowdown);
}

/* Joules that fall as operations' do: compute-bound work has as many cycles at any clock. */
static double cycles_j(const struct power *power, const struct power_step *step) {
    return step->flops_j + power->active_w * step->compute_ns / ns_a_s;
}

/* Of as many watts a cycle as at the highest clock. */
static double busy_j(const struct power *power, const struct power_step *step, double slowdown) {
    return power->busy_w * (step->busy_ns + longer_ns(step, slowdown)) / ns_a_s / slowdown;
}

static double work_joules(const struct power *power, const struct power_step *step,
                          double at_highest_j, double slowdown) {
    return (at_highest_j + busy_j(power, step, slowdown)) * pow(slowdown, -power->exponent) +
           step->bytes_j;
}

double power_work_joules(const struct power *power, const struct power_step *step,
                         double slowdown) {
    return work_joules(power, step, cycles_j(power, step), slowdown);
}

/* Power falls as the slowdown grows; Newton's steps in logarithms, in which it is nearly straight.
 */
double power_settled(const struct power *power, const struct power_step *step) {
    enum { MOST_STEPS = 20 };
    static const double most = 8;
    const double spare_w = power->limit_w - power->idle_w, cycles = cycles_j(power, step);
    double log_x = 0;
    if (cycles + busy_j(power, step, 1) + step->bytes_j <= spare_w * step->ns / ns_a_s) {
        return 1;
    }
    for (int i = 0; i < MOST_STEPS; i++) {
        const double x = exp(log_x), ns = step_ns(step, x), stretched = step->compute_ns * x;
        const double volts = exp(-power->exponent * log_x);
        const double clocked = (cycles + busy_j(power, step, x)) * volts,
                     joules = clocked + step->bytes_j;
        /* Work that is not stretched draws fewer watts for as long. */
        const double fixed_j =
            power->busy_w * (step->busy_ns - step->compute_ns) / ns_a_s / x * volts;
        const double falls = (power->exponent * clocked + fixed_j) / joules;
        const double move = log(joules * ns_a_s / (spare_w * ns)) / (falls + stretched / ns);
        log_x = fmin(fmax(log_x + move, 0), log(most));
        if (fabs(move) < 1e-12) {
            break;
        }
    }
    return exp(log_x);
}

/* Of each lag, 1/ns. */
static double lag_rate(const struct power *power) {
    return POWER_LAGS / (power->lag_ms * ns_a_ms);
}

/* Three lags with a constant input `to`: the states after `ns`, and the last lag's mean until then.
 */
static inline double follow(double rate, double to, double ns, const double was[POWER_LAGS],
                            double after[POWER_LAGS]) {
    const double a = rate * ns, fades = exp(-a);
    const double d[POWER_LAGS] = {was[0] - to, was[1] - to, was[2] - to};
    const double now[POWER_LAGS] = {fades * d[0], fades * (d[1] + a * d[0]),
                                    fades * (d[2] + a * (d[1] + a / 2 * d[0]))};
    const double last = was[POWER_LAGS - 1];
    double fallen = 0;
    for (int i = 0; i < POWER_LAGS; i++) {
        fallen += d[i] - now[i];
        after[i] = to + now[i];
    }
    return a > 0 ? to + fallen / a : last;
}

struct power_course power_course_of(const struct power *power, const struct power_step *step,
                                    double settled) {
    return (struct power_course){.power = power,
                                 .step = *step,
                                 .settled = settled,
                                 .rate = lag_rate(power),
                                 .cycles_j = cycles_j(power, step)};
}

/* How long the step takes depends on the clock and the clock on how long it takes: once with the
 * clock as it is, then with its mean over that time. */
struct power_spent power_course_run(const struct power_course *course, struct power_state *state) {
    const struct power *power = course->power;
    const struct power_step *step = &course->step;
    double ns = step_ns(step, 1 + state->behind[POWER_LAGS - 1]), trial[POWER_LAGS];
    double slowdown = 1 + follow(course->rate, course->settled, ns, state->behind, trial);
    ns = step_ns(step, slowdown);
    slowdown = 1 + follow(course->rate, course->settled, ns, state->behind, state->behind);
    ns = step_ns(step, slowdown);
    return (struct power_spent){.ns = ns,
                                .slowdown = slowdown,
                                .work_joules =
                                    work_joules(power, step, course->cycles_j, slowdown)};
}

struct power_spent power_run(const struct power *power, const struct power_step *step,
                             struct power_state *state) {
    const struct power_course course = power_course_of(power, step, power_settled(power, step) - 1);
    return power_course_run(&course, state);
}

void power_rest(const struct power *power, double ns, struct power_state *state) {
    (void)follow(lag_rate(power), 0, ns, state->behind, state->behind);
}
