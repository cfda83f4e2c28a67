/* The clock of a GPU at its power limit, and the joules of its work.
 *
 * Prices are times at the highest clock. A GPU draws idle_w, busy_w more while operators run,
 * active_w more while operations bind, and the joules of the operations and of the bytes. Where
 * that is more than the limit, firmware lowers the clock: what is bound by operations takes x times
 * as long, what is bound by memory does not. An operation's joules fall as x^-exponent (voltage
 * follows the clock), busy_w and active_w as x^-(1 + exponent), for there are fewer cycles too;
 * memory has a clock of its own, a byte's joules stay. The clock settles where power meets the
 * limit. With joules of operations and bytes alone, all falling alike, held steps over 128 to 192
 * rows came out 2 to 4 % too slow on every H100 and H200 and long ones too quick
 * (experiments/gpu/results/2026-11-26-power). The clock does not get there at once: on an H100 and
 * an H200 (2026-11-22, experiments/gpu/transients.py) products run at full speed for 15 to 75 ms
 * after idling or after bandwidth-bound work, whatever that took, then fall within 15 ms to what
 * the limit allows; back takes as long. Three equal lags in a row have such a step response.
 * Temperature is left out: held for 17 s on four H100s, which warmed by 10 to 20 C, a block of one
 * request kept its time to 0.1 %, 6,144 and 7,168 tokens theirs to -0.6 to +0.2 %; 1,024 tokens
 * (+0.5 to +1.2 %) and 2,304 (0 to +1.8 %) became slower
 * (experiments/gpu/results/2026-11-27-tiles). Constants are measured by `unmask calibrate
 * --clocks`, kept in a profile's rows `power,KEY,VALUE`; a profile without them has one clock.
 *
 * Pure but for the state, which is the caller's, one a replica. */
#ifndef UNMASK_SIM_PRICE_PROFILE_POWER_H
#define UNMASK_SIM_PRICE_PROFILE_POWER_H

#include <stdbool.h>
#include <stdio.h>

/* X(field, most): each above 0 and at most `most`. */
#define POWER_CONSTANTS(X)                                                                         \
    X(idle_w, 1e4)   /* drawn at the highest clock without work */                                 \
    X(limit_w, 1e4)  /* drawn at the limit */                                                      \
    X(busy_w, 1e4)   /* more than idle_w while operators run, at the highest clock */              \
    X(active_w, 1e4) /* more than both while operations bind, at the highest clock */              \
    X(flop_pj, 1e3)  /* picojoules of an operation at the highest clock */                         \
    X(byte_pj, 1e5)  /* of a byte moved, at any clock */                                           \
    X(exponent, 10)  /* how an operation's joules fall as the clock does */                        \
    X(lag_ms, 1e4)   /* from the work's change to the clock's, on average */

struct power {
#define FIELD(name, most) double name;
    POWER_CONSTANTS(FIELD)
#undef FIELD
};

/* A step, or what stands for it: at the highest clock. */
struct power_step {
    double ns;         /* from submission to end */
    double busy_ns;    /* of that, operators: the GPU rests for the host and between launches */
    double compute_ns; /* of that, what the clock stretches */
    double flops_j;    /* of its operations */
    double bytes_j;    /* of the bytes that it moves */
};

/* The clock's state, as slowdown - 1 after each lag; zero: the highest clock. */
enum { POWER_LAGS = 3 };
struct power_state {
    double behind[POWER_LAGS];
};

/* Whether a profile has given them. */
static inline bool power_is_known(const struct power *power) {
    return power->limit_w > 0;
}

/* Operations in bf16 of as many joules as `flops` operations, of which fp8_flops are in fp8. */
double power_flops(double flops, double fp8_flops);
/* Joules of `flops` such operations at the highest clock, and of `bytes` bytes moved. */
double power_flops_j(const struct power *power, double flops);
double power_bytes_j(const struct power *power, double bytes);

/* Joules of a step in addition to idling where operations take `slowdown` times as long. */
double power_work_joules(const struct power *power, const struct power_step *step, double slowdown);

/* The slowdown, from 1 to 8 (the lowest clock is no lower), that the clock settles at where such
 * steps follow one another. */
double power_settled(const struct power *power, const struct power_step *step);

/* Time and joules of a step from this state on; the state advances to the step's end. The slowdown
 * is its mean; joules are those of the work, in addition to idling. */
struct power_spent {
    double ns, slowdown, work_joules;
};
struct power_spent power_run(const struct power *power, const struct power_step *step,
                             struct power_state *state);

/* The same of a step that comes again and again: what does not change from one to the next.
 * `settled`: power_settled - 1. */
struct power_course {
    const struct power *power;
    struct power_step step;
    double settled, rate, cycles_j;
};
struct power_course power_course_of(const struct power *power, const struct power_step *step,
                                    double settled);
struct power_spent power_course_run(const struct power_course *course, struct power_state *state);

/* The state after `ns` without work. */
void power_rest(const struct power *power, double ns, struct power_state *state);

/* As rows of a profile; nothing where they are not known. The value of a row: false where there is
 * no such key or it cannot be. */
void power_write(const struct power *power, FILE *file);
bool power_take(struct power *power, const char *key, double value);
/* The first constant that is missing where others are given, NULL: none is. */
const char *power_missing(const struct power *power);

#endif
