/* A card's power constants from steps that are held: against a card whose constants are known. */
#include "engine/calibrate/power_fit.h"

#include <math.h>

#include "engine/calibrate/hold.h"
#include "tests/support/suite.h"

static const struct power card = {.idle_w = 120,
                                  .limit_w = 690,
                                  .busy_w = 250,
                                  .active_w = 120,
                                  .flop_pj = 0.5,
                                  .byte_pj = 45,
                                  .exponent = 0.9,
                                  .lag_ms = 40};

/* Ten steps from bound by memory to bound by operations, 5 to 25 ms. */
enum { STEPS = 10 };
static struct power_sample sample(int i) {
    const double share = (double)i / (STEPS - 1), ns = 5e6 + 2e7 * share;
    return (struct power_sample){.first_ns = ns,
                                 .gap_ns = 5e4,
                                 .held_ns = 2.5e9,
                                 .compute_ns = share * 0.8 * ns,
                                 .flops = (0.1 + 0.75 * share) * 1e15 * ns * 1e-9,
                                 .bytes = (1 - 0.8 * share) * 4e12 * ns * 1e-9};
}

static void fill(struct power_sample samples[STEPS]) {
    for (int i = 0; i < STEPS; i++) {
        samples[i] = sample(i);
        power_settle(&card, &samples[i], &samples[i].settled_ns, &samples[i].watts);
        samples[i].lag_ms = samples[i].settled_ns > 1.05 * samples[i].first_ns ? card.lag_ms : 0;
    }
}

TEST(known_constants_are_recovered) {
    struct power_sample samples[STEPS];
    struct power found;
    struct power_errors errors;
    struct err err = {0};
    fill(samples);
    ck_assert_msg(power_fit(samples, STEPS, card.idle_w, &found, &errors, &err) == 0, "%s",
                  err.text);
    ck_assert_double_eq_tol(found.limit_w, card.limit_w, 0.5);
    ck_assert_double_eq_tol(found.flop_pj, card.flop_pj, 0.01);
    ck_assert_double_eq_tol(found.byte_pj, card.byte_pj, 0.5);
    ck_assert_double_eq_tol(found.busy_w, card.busy_w, 2);
    ck_assert_double_eq_tol(found.active_w, card.active_w, 2);
    ck_assert_double_eq_tol(found.exponent, card.exponent, 0.05);
    ck_assert_double_eq(found.lag_ms, card.lag_ms);
    ck_assert_double_lt(errors.time, 1e-3);
    ck_assert_double_lt(errors.watts, 2e-3);
    ck_assert_double_gt(errors.unslowed, 0.03);
}

/* Of samples that a card which draws nothing for being busy explains as well: as other cards do. */
TEST(what_a_busy_card_draws_is_assumed_where_nothing_tells_it) {
    struct power_sample samples[STEPS];
    struct power found, cold = card;
    struct power_errors errors;
    struct err err = {0};
    cold.busy_w = 1e-3;
    cold.byte_pj = 90;
    cold.flop_pj = 0.7;
    for (int i = 0; i < STEPS; i++) {
        samples[i] = sample(i);
        power_settle(&cold, &samples[i], &samples[i].settled_ns, &samples[i].watts);
        samples[i].lag_ms = samples[i].settled_ns > 1.05 * samples[i].first_ns ? card.lag_ms : 0;
    }
    ck_assert_int_eq(power_fit(samples, STEPS, card.idle_w, &found, &errors, &err), 0);
    ck_assert_double_eq_tol(found.busy_w, 0.63 * (found.limit_w - found.idle_w), 1e-6);
    ck_assert_double_lt(found.byte_pj, cold.byte_pj / 2);
    ck_assert(errors.busy_is_assumed);
}

/* As the simulator runs the same steps from rest on, which at first are at the highest clock. */
TEST(a_holds_mean_power_is_that_of_the_steps_that_are_simulated) {
    const struct power_sample s = sample(STEPS - 1);
    const struct power_step step = power_sample_step(&card, &s);
    struct power_state clock = {.behind = {0}};
    double ns, watts, held_ns = 0, joules = 0;
    while (held_ns < s.held_ns) {
        const struct power_spent spent = power_run(&card, &step, &clock);
        held_ns += spent.ns;
        joules += spent.work_joules;
    }
    power_settle(&card, &s, &ns, &watts);
    ck_assert_double_gt(watts, 1.005 * card.limit_w);
    ck_assert_double_eq_tol(watts, card.idle_w + joules / (held_ns * 1e-9), 0.003 * card.limit_w);
}

/* Steps that became slower far below the most that any drew say nothing of the limit. */
TEST(a_step_slowed_at_three_quarters_of_the_power_is_not_at_the_limit) {
    enum { MORE = STEPS + 5 };
    struct power_sample samples[MORE];
    struct power found;
    struct power_errors errors;
    struct err err = {0};
    fill(samples);
    for (int i = STEPS; i < MORE; i++) {
        samples[i] = sample(1);
        power_settle(&card, &samples[i], &samples[i].settled_ns, &samples[i].watts);
        ck_assert_double_lt(samples[i].watts, 0.95 * card.limit_w);
        samples[i].settled_ns *= 1.07;
        samples[i].lag_ms = card.lag_ms;
    }
    ck_assert_msg(power_fit(samples, MORE, card.idle_w, &found, &errors, &err) == 0, "%s",
                  err.text);
    ck_assert_double_eq_tol(found.limit_w, card.limit_w, 0.5);
}

/* Of steps that rise little nothing tells how long that took. */
TEST(a_lag_that_no_step_tells_is_assumed) {
    struct power_sample samples[STEPS];
    struct power found;
    struct power_errors errors;
    struct err err = {0};
    fill(samples);
    for (int i = 0; i < STEPS; i++) {
        samples[i].lag_ms = 0;
    }
    ck_assert_int_eq(power_fit(samples, STEPS, card.idle_w, &found, &errors, &err), 0);
    ck_assert(errors.lag_is_assumed);
    ck_assert_double_eq_tol(found.limit_w, card.limit_w, 2);
    ck_assert_double_gt(found.lag_ms, 45);
    ck_assert_double_lt(found.lag_ms, 110);
    fill(samples);
    ck_assert_int_eq(power_fit(samples, STEPS, card.idle_w, &found, &errors, &err), 0);
    ck_assert(!errors.lag_is_assumed);
}

TEST(a_card_that_is_never_slowed_has_one_clock) {
    struct power_sample samples[STEPS];
    struct power found;
    struct power_errors errors;
    struct err err = {0};
    fill(samples);
    for (int i = 0; i < STEPS; i++) {
        samples[i].settled_ns = samples[i].first_ns;
    }
    ck_assert_int_ne(power_fit(samples, STEPS, card.idle_w, &found, &errors, &err), 0);
}

/* ---- holding ---- */

/* A device whose clock is simulated: its time is virtual, its counter moves every 100 ms. */
static struct {
    int64_t now_ns;
    double joules;
    struct power_state clock;
    struct power_sample step;
    int64_t slower_at; /* from then on every step takes 2 % more of the device; 0: never */
    int64_t shown_at;
    double shown;
} fake;

static void fake_vitals(struct device *device, struct device_vitals *out) {
    (void)device;
    if (fake.now_ns / 100000000 != fake.shown_at) {
        fake.shown_at = fake.now_ns / 100000000;
        fake.shown = fake.joules;
    }
    *out = (struct device_vitals){.energy_j = 1000 + fake.shown};
}

static int fake_run(void *state, double *device_ns, struct err *err) {
    const struct power_step step = power_sample_step(&card, &fake.step);
    struct power_spent spent = power_run(&card, &step, &fake.clock);
    (void)state, (void)err;
    if (fake.slower_at > 0 && fake.now_ns >= fake.slower_at) {
        spent.ns += 0.02 * (spent.ns - fake.step.gap_ns);
    }
    fake.now_ns += (int64_t)spent.ns;
    fake.joules += spent.work_joules + card.idle_w * spent.ns * 1e-9;
    *device_ns = spent.ns - fake.step.gap_ns;
    return 0;
}

static int64_t fake_now(void *state) {
    (void)state;
    return fake.now_ns;
}

TEST_EACH(a_held_step_says_what_it_took_and_drew, STEPS) {
    static const struct device_table table = {.vitals = fake_vitals};
    const struct engine_device device = {.table = &table};
    const struct hold_request request = {.device = &device, .run = fake_run, .now_ns = fake_now};
    struct power_sample held, truth = sample(_i);
    struct err err = {0};
    memset(&fake, 0, sizeof fake);
    fake.now_ns = 12345678;
    fake.step = truth;
    ck_assert_int_eq(hold_step(&request, card.idle_w, &held, &err), 0);
    power_settle(&card, &truth, &truth.settled_ns, &truth.watts);
    ck_assert_double_eq_tol(held.first_ns / truth.first_ns, 1, 0.02);
    ck_assert_double_eq_tol(held.settled_ns / truth.settled_ns, 1, 1e-3);
    ck_assert_double_eq_tol(held.late_ns / truth.settled_ns, 1, 1e-3);
    ck_assert_double_eq_tol(held.gap_ns / truth.gap_ns, 1, 1e-2);
    ck_assert_double_eq_tol(held.watts / truth.watts, 1, 0.03);
    if (truth.settled_ns > 1.06 * truth.first_ns) {
        ck_assert_double_eq_tol(held.lag_ms, card.lag_ms, 6);
    } else if (truth.settled_ns < 1.02 * truth.first_ns) {
        ck_assert_double_eq(held.lag_ms, 0);
    }
}

/* A card that gets warm: of a hold of 2.5 s the second half is slower. */
TEST(the_second_half_of_a_hold_says_whether_it_was_long_enough) {
    static const struct device_table table = {.vitals = fake_vitals};
    const struct engine_device device = {.table = &table};
    const struct hold_request request = {.device = &device, .run = fake_run, .now_ns = fake_now};
    struct power_sample held, truth = sample(0);
    struct err err = {0};
    memset(&fake, 0, sizeof fake);
    fake.step = truth;
    fake.slower_at = 1250000000;
    ck_assert_int_eq(hold_step(&request, card.idle_w, &held, &err), 0);
    power_settle(&card, &truth, &truth.settled_ns, &truth.watts);
    ck_assert_double_eq_tol(held.late_ns / truth.settled_ns, 1.02, 1e-3);
    ck_assert_double_gt(held.settled_ns, 1.005 * truth.settled_ns);
    ck_assert_double_lt(held.settled_ns, 1.015 * truth.settled_ns);
}

SUITE("power_fit")
