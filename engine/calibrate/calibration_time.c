#include "engine/calibrate/calibration_time.h"

#include <math.h>

#include "engine/calibrate/measure.h"

/* ---- operators ---- */

/* Host time of a point, for packing, placement, capture and launches; and time to draw a group's
 * data anew and run its reference products. Chosen such that the first round of LLaDA-8B takes 40
 * s, as on an H100 (2026-11-28; the second 28, as kernels are chosen by then). */
static const double point_host_ns = 6e6, group_ns = 1.6e8;

/* Of products alone: other operators are short compared with the time they are repeated for. */
static double once_ns(const struct calibration_point *point, const struct calibration_pace *pace) {
    if (point->op != PROFILE_GEMM && point->op != PROFILE_HEAD && point->op != PROFILE_GATE_UP) {
        return 0;
    }
    const double weights = (double)point->sizes[1] * (double)point->sizes[2];
    return 1e9 * fmax(2 * weights * (double)point->sizes[0] / pace->rates.flops,
                      (double)number_bytes(pace->number) * weights / pace->rates.bandwidth);
}

/* As measure.c plays it: twice by itself, then copies that together last so long. */
static double point_ns(const struct calibration_point *point, const struct calibration_pace *pace,
                       double target_ns) {
    const double once = once_ns(point, pace);
    const double played = fmax(measure_played_ns(pace->captures), 2 * once);
    const double device_ns = 2 * once + played * fmax(ceil(target_ns / played), 1);
    return (device_ns * (pace->rests ? 2 : 1) + (pace->is_gpu ? point_host_ns : 0)) *
           (point->is_difference ? 2 : 1);
}

double calibration_round_ns(const struct calibration_grid *grid,
                            const struct calibration_pace *pace, double light_ns, double heavy_ns) {
    double ns = 0;
    for (size_t i = 0; i < grid->n; i++) {
        const struct calibration_point *point = &grid->points[i];
        const bool is_heavy = pace->is_gpu && point->is_heavy;
        const bool begins = i == 0 || point->group != grid->points[i - 1].group;
        ns += point_ns(point, pace, is_heavy ? heavy_ns : light_ns);
        ns += begins && pace->is_gpu ? group_ns : 0;
        ns += begins && is_heavy && !pace->rests ? 1e9 : 0; /* heated */
    }
    return ns;
}

/* ---- whole steps ---- */

static double step_ns(const struct calibration_step *step, const struct calibration_pace *pace,
                      const struct step_effort *effort) {
    const struct step_times_of *often = pace->rests && calibration_step_is_long(step->operators_ns)
                                            ? &effort->of_long
                                        : pace->rests ? &effort->of_rested
                                                      : &effort->of_others;
    double runs = (double)(effort->warm + often->rounds + often->operators) + pace->has_experts;
    runs += pace->rests ? (double)often->busy : 0;
    runs += pace->rests && pace->captures ? (double)often->issued : 0;
    const bool is_held = pace->rests && step->may_be_held;
    return step->operators_ns * runs * (pace->rests ? 2 : 1) + (is_held ? hold_takes_ns() : 0);
}

double calibration_steps_ns(const struct calibration_steps *steps,
                            const struct calibration_pace *pace, const struct step_effort *effort) {
    double ns = 0;
    for (size_t i = 0; i < steps->n; i++) {
        const bool is_measured = steps->list[i].n_operators > 0;
        ns += is_measured ? 0 : step_ns(&steps->list[i], pace, effort);
    }
    return ns;
}

const struct step_effort *calibration_steps_effort(const struct calibration_steps *steps,
                                                   const struct calibration_pace *pace,
                                                   double budget_ns) {
    const struct step_effort *full = &step_efforts[EFFORT_FULL];
    return calibration_steps_ns(steps, pace, full) <= budget_ns ? full : &step_efforts[EFFORT_LESS];
}

/* ---- what is left out ---- */

/* As many of one kind alone stay in the fit, and without it: a host's time is a line through them,
 * and errors are a median. Of those that are held as many stay as tell a card's power: five did not
 * (two H200s, 2026-11-30: their profiles had no power rows, and live runs took 17 % longer than
 * they were simulated to), ten did (another one, 0.6 % off). */
enum { LEAST_FITTED = 5, LEAST_HELD_OUT = 2, LEAST_HELD = 10 };

static bool is_alike(const struct calibration_step *a, const struct calibration_step *b) {
    return a->n_sides == b->n_sides && a->is_fused == b->is_fused &&
           a->is_held_out == b->is_held_out &&
           (a->n_sides > 1 || a->sides[0].kind == b->sides[0].kind);
}

static bool may_go(const struct calibration_steps *steps, const struct calibration_pace *pace,
                   const bool *gone, size_t i) {
    const struct calibration_step *step = &steps->list[i];
    size_t n = 0, n_held = 0;
    for (size_t k = 0; k < steps->n; k++) {
        n += !gone[k] && is_alike(&steps->list[k], step);
        n_held += !gone[k] && steps->list[k].may_be_held;
    }
    const bool tells_power = pace->rests && step->may_be_held;
    return !gone[i] && step->n_operators == 0 && (!tells_power || n_held > LEAST_HELD) &&
           n > (step->is_held_out ? LEAST_HELD_OUT : LEAST_FITTED);
}

/* The mixed step that needs this one alone; -1: none that stays. */
static int needed_by(const struct calibration_steps *steps, const bool *gone, size_t i) {
    for (size_t k = 0; k < steps->n; k++) {
        const struct calibration_step *mixed = &steps->list[k];
        for (uint32_t side = 0; !gone[k] && mixed->n_sides > 1 && side < mixed->n_sides; side++) {
            if (mixed->alone[side] == (int)i) {
                return (int)k;
            }
        }
    }
    return -1;
}

static int longest(const struct calibration_steps *steps, const struct calibration_pace *pace,
                   const bool *gone) {
    int found = -1;
    for (size_t i = 0; i < steps->n; i++) {
        if (may_go(steps, pace, gone, i) && needed_by(steps, gone, i) < 0 &&
            (found < 0 || steps->list[i].operators_ns > steps->list[found].operators_ns)) {
            found = (int)i;
        }
    }
    return found;
}

static void close_ranks(struct calibration_steps *steps, const bool *gone) {
    int now[CALIBRATION_MAX_STEPS];
    size_t n = 0;
    for (size_t i = 0; i < steps->n; i++) {
        now[i] = gone[i] ? -1 : (int)n;
        if (!gone[i]) {
            steps->list[n++] = steps->list[i];
        }
    }
    steps->n = n;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t side = 0; steps->list[i].n_sides > 1 && side < STEP_MAX_SIDES; side++) {
            steps->list[i].alone[side] = now[steps->list[i].alone[side]];
        }
    }
}

size_t calibration_steps_leave_out(struct calibration_steps *steps,
                                   const struct calibration_pace *pace,
                                   const struct step_effort *effort, double budget_ns) {
    bool gone[CALIBRATION_MAX_STEPS] = {false};
    double ns = calibration_steps_ns(steps, pace, effort);
    size_t n_gone = 0;
    while (ns > budget_ns) {
        const int i = longest(steps, pace, gone);
        if (i < 0) {
            break;
        }
        gone[i] = true;
        n_gone++;
        ns -= step_ns(&steps->list[i], pace, effort);
    }
    close_ranks(steps, gone);
    return n_gone;
}
