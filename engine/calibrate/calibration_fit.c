#include "engine/calibrate/calibration_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/calibrate/quantile.h"
#include "sim/base/mem.h"

static size_t samples_of(const struct calibration_report *report, enum host_kind kind,
                         struct host_sample *samples) {
    size_t n = 0;
    for (size_t i = 0; i < report->steps.n; i++) {
        const struct calibration_step *step = &report->steps.list[i];
        if (step->n_sides == 1 && step->sides[0].kind == kind && !step->is_held_out) {
            samples[n++] = (struct host_sample){.n_requests = step->sides[0].n_requests,
                                                .wall_ns = step->wall_ns,
                                                .device_ns = step->device_ns};
        }
    }
    return n;
}

/* Measured and priced time of one operator at some rows, over the steps that are fitted. */
struct operator_samples {
    struct step_operator list[CALIBRATION_MAX_STEPS * GRAPH_MAX_OPS];
    size_t n;
};

static int by_operator_and_rows(const void *a, const void *b) {
    const struct step_operator *x = a, *y = b;
    int order = (x->kind > y->kind) - (x->kind < y->kind);
    order = order != 0 ? order : strcmp(x->key.text, y->key.text);
    return order != 0 ? order : (x->rows > y->rows) - (x->rows < y->rows);
}

static void add_sample(struct operator_samples *samples, const struct step_operator *op) {
    size_t i = 0;
    while (i < samples->n && by_operator_and_rows(&samples->list[i], op) != 0) {
        i++;
    }
    if (i == samples->n) {
        samples->list[samples->n++] = *op;
        return;
    }
    struct step_operator *sum = &samples->list[i];
    /* Experts are weighed by time, as the factor is. */
    const double weight = op->priced_ns / (sum->priced_ns + op->priced_ns);
    sum->experts_hit += weight * (op->experts_hit - sum->experts_hit);
    sum->measured_ns += op->measured_ns;
    sum->priced_ns += op->priced_ns;
}

static double as_factor(double measured_ns, double priced_ns) {
    double factor = priced_ns > 0 ? measured_ns / priced_ns : 1;
    return fmin(fmax(factor, LEAST_CORRECTION), MOST_CORRECTION);
}

static bool has_operator(const struct operator_samples *samples, size_t n,
                         const struct step_operator *op) {
    for (size_t i = 0; i < n; i++) {
        if (samples->list[i].kind == op->kind &&
            strcmp(samples->list[i].key.text, op->key.text) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_fitted(const struct calibration_report *report,
                      const struct calibration_step *step) {
    return !step->is_held_out && (step->is_cut || !report->power_is_followed ||
                                  !calibration_step_is_long(step->device_ns));
}

/* Serving runs steps with the fused operators: of what both kinds of step run, those with them
 * count. The same operator takes other times in the other steps, and their mean had every fused
 * step 1 to 2 % too quick. */
static void take_operators(const struct calibration_report *report,
                           struct operator_samples *samples) {
    for (int fused = 1; fused >= 0; fused--) {
        const size_t n_before = samples->n;
        for (size_t i = 0; i < report->steps.n; i++) {
            const struct calibration_step *step = &report->steps.list[i];
            const bool counts = is_fitted(report, step) && step->is_fused == fused;
            for (uint32_t op = 0; counts && op < step->n_operators; op++) {
                const struct step_operator *sample = &step->operators[op];
                if (sample->priced_ns > 0 && sample->measured_ns > 0 &&
                    !has_operator(samples, n_before, sample)) {
                    add_sample(samples, sample);
                }
            }
        }
    }
}

/* Device time in whole steps over the price: of each operator at each number of rows that was run,
 * and of all that ran together. */
static void fit_correction(struct calibration_report *report) {
    struct operator_samples *samples = mem_zeroed(1, sizeof *samples);
    double device_ns = 0, operators_ns = 0;
    take_operators(report, samples);
    report->n_fitted = report->n_fittable = 0;
    for (size_t i = 0; i < report->steps.n; i++) {
        const struct calibration_step *step = &report->steps.list[i];
        report->n_fittable += !step->is_held_out;
        if (!is_fitted(report, step)) {
            continue;
        }
        report->n_fitted++;
        for (uint32_t op = 0; op < step->n_operators; op++) {
            const struct step_operator *sample = &step->operators[op];
            const bool is_timed = !step->is_cut || sample->measured_ns > 0;
            device_ns += sample->measured_ns;
            operators_ns += is_timed ? sample->priced_ns : 0;
        }
    }
    qsort(samples->list, samples->n, sizeof *samples->list, by_operator_and_rows);
    report->n_fitted = samples->n > 0 ? report->n_fitted : 0;
    report->correction = (struct correction){.all = as_factor(device_ns, operators_ns)};
    for (size_t i = 0; i < samples->n; i++) {
        const struct step_operator *s = &samples->list[i];
        bool added = correction_add(&report->correction, s->kind, s->key.text, (double)s->rows,
                                    as_factor(s->measured_ns, s->priced_ns), s->experts_hit);
        ASSERT(added);
    }
    free(samples);
}

static int fit_host(struct calibration_report *report, struct err *err) {
    struct host_sample samples[CALIBRATION_MAX_STEPS];
    int status = 0;
    fit_correction(report);
    if (report->n_fitted == 0) {
        return err_world(err, "of %zu whole steps none could be fitted", report->n_fittable);
    }
    for (int kind = 0; status == 0 && kind < HOST_KIND_COUNT; kind++) {
        size_t n = samples_of(report, (enum host_kind)kind, samples);
        status = host_fit(samples, n, &report->host[kind], err);
    }
    return status;
}

/* The median over the steps of one kind: operators have gaps between them whatever they take. */
static void fit_issued(struct calibration_report *report) {
    double more_ns[CALIBRATION_MAX_STEPS];
    for (uint32_t kind = 0; kind < HOST_KIND_COUNT; kind++) {
        size_t n = 0;
        for (size_t i = 0; i < report->steps.n; i++) {
            const struct calibration_step *step = &report->steps.list[i];
            if (step->issued_ns > 0 && step->is_fused && step->n_sides == 1 &&
                step->sides[0].kind == kind) {
                more_ns[n++] = step->issued_ns - step->device_ns;
            }
        }
        report->issued_ns[kind] = n > 0 ? fmax(0, quantile(more_ns, n, 0.5)) : 0;
    }
}

/* As the cost model adds them: the dearest kind's step, and each request's own; after an idle time,
 * as measured. */
static double predicted_ns(const struct calibration_report *report,
                           const struct calibration_step *step) {
    double step_ns = 0, requests_ns = 0;
    for (uint32_t i = 0; i < step->n_sides; i++) {
        const struct host_fit *fit = &report->host[step->sides[i].kind];
        step_ns = fmax(step_ns, fit->step_ns);
        requests_ns += step->sides[i].n_requests * fit->request_ns;
    }
    const double wall_ns = step->corrected_ns + step_ns + requests_ns;
    if (!power_is_known(&report->power)) {
        return wall_ns;
    }
    const struct power_step once = {.ns = wall_ns,
                                    .busy_ns = step->corrected_ns,
                                    .compute_ns = step->compute_ns,
                                    .flops_j = power_flops_j(&report->power, step->flops),
                                    .bytes_j = power_bytes_j(&report->power, step->bytes)};
    struct power_state rested = {.behind = {0}};
    return power_run(&report->power, &once, &rested).ns;
}

enum step_set { STEPS_FITTED, STEPS_HELD_OUT, STEPS_MIXED };

static bool is_in(const struct calibration_step *step, enum step_set set) {
    return set == STEPS_MIXED      ? step->n_sides > 1
           : set == STEPS_HELD_OUT ? step->is_held_out && step->n_sides == 1
                                   : !step->is_held_out;
}

static struct error_summary summarise_errors(struct calibration_report *const *reports, size_t n,
                                             enum step_set set) {
    double *errors = mem_unwritten(n * CALIBRATION_MAX_STEPS, sizeof *errors);
    struct error_summary summary = {0};
    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < reports[r]->steps.n; i++) {
            const struct calibration_step *step = &reports[r]->steps.list[i];
            if (is_in(step, set)) {
                errors[summary.n++] = fabs(step->predicted_ns / step->wall_ns - 1);
            }
        }
    }
    if (summary.n > 0) {
        summary.median = quantile(errors, summary.n, 0.5);
        summary.p95 = quantile(errors, summary.n, 0.95);
    }
    free(errors);
    return summary;
}

static void compare_with_sides(struct calibration_report *const *reports, size_t n_reports,
                               struct calibration_report *out) {
    double *measured = mem_unwritten(n_reports * CALIBRATION_MAX_STEPS, sizeof *measured);
    double *predicted = mem_unwritten(n_reports * CALIBRATION_MAX_STEPS, sizeof *predicted);
    size_t n = 0;
    for (size_t r = 0; r < n_reports; r++) {
        const struct calibration_step *list = reports[r]->steps.list;
        for (size_t i = 0; i < reports[r]->steps.n; i++) {
            if (list[i].n_sides == STEP_MAX_SIDES) {
                const struct calibration_step *a = &list[list[i].alone[0]];
                const struct calibration_step *b = &list[list[i].alone[1]];
                measured[n] = list[i].wall_ns / (a->wall_ns + b->wall_ns);
                predicted[n++] = list[i].predicted_ns / (a->predicted_ns + b->predicted_ns);
            }
        }
    }
    out->additivity_measured = n > 0 ? quantile(measured, n, 0.5) : 0;
    out->additivity_predicted = n > 0 ? quantile(predicted, n, 0.5) : 0;
    free(measured);
    free(predicted);
}

size_t calibration_power_samples(const struct calibration_report *report,
                                 struct power_sample *out) {
    size_t n = 0;
    for (size_t i = 0; i < report->steps.n; i++) {
        const struct calibration_step *step = &report->steps.list[i];
        if (step->held.watts > 0) {
            struct power_sample *sample = &out[n++];
            *sample = step->held;
            if (calibration_step_is_long(sample->first_ns)) {
                sample->first_ns = step->corrected_ns;
            }
            sample->compute_ns = sample->first_ns * step->compute_ns / step->corrected_ns;
            sample->flops = step->flops;
            sample->bytes = step->bytes;
        }
    }
    return n;
}

/* A device that tells nothing, or is never slowed, has one clock. */
static void fit_power(struct calibration_report *report) {
    struct power_sample samples[CALIBRATION_MAX_STEPS];
    const size_t n = calibration_power_samples(report, samples);
    struct power power;
    if (power_fit(samples, n, report->steps.idle_w, &power, &report->power_errors,
                  &report->no_power) == 0) {
        report->power = power;
    }
}

void calibration_judge(struct calibration_report *const *reports, size_t n,
                       struct calibration_report *out) {
    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < reports[r]->steps.n; i++) {
            struct calibration_step *step = &reports[r]->steps.list[i];
            step->predicted_ns = predicted_ns(reports[r], step);
        }
    }
    out->fitted = summarise_errors(reports, n, STEPS_FITTED);
    out->held_out = summarise_errors(reports, n, STEPS_HELD_OUT);
    out->mixed = summarise_errors(reports, n, STEPS_MIXED);
    compare_with_sides(reports, n, out);
}

int calibration_fit(struct calibration_report *report, const struct calibration_prices *prices,
                    struct err *err) {
    if (fit_host(report, err) != 0 ||
        calibration_price_corrected(&report->steps, prices, &report->correction, err) != 0) {
        return err_status(err);
    }
    fit_power(report);
    fit_issued(report);
    calibration_judge(&report, 1, report);
    return 0;
}
