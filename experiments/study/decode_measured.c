#include "experiments/study/decode_measured.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multimin.h>
#include <math.h>
#include <string.h>

#include "experiments/study/decode_fit.h"
#include "sim/base/mem.h"

enum { FIT_ROLLOUTS = 240, JUDGE_ROLLOUTS = 1200 };

/* The assumed shape's, which is fitted elsewhere (experiments/study/decode.ini). */
static const double ASSUMED_DELTA_NOISE = 0.8756;

/* Draws of the judgement are not those of the fit. */
enum { FIT_SEED = 11, JUDGE_SEED = 12 };

static uint32_t copies_of(const struct decode_facts *facts, uint32_t rollouts) {
    uint32_t n = rollouts / (uint32_t)facts->n_requests;
    return n > 0 ? n : 1;
}

static void roll(const struct decode_process *process, const struct measured_trace *trace,
                 struct decode_facts *out) {
    facts_of_process(process, FIT_SEED, &trace->rule, trace->trace, FACTS_EVEN,
                     copies_of(&trace->even, FIT_ROLLOUTS), out);
}

/* ---- misfit ---- */

static double square(double x) {
    return x * x;
}

static double log_ratio(const struct facts_ratio *a, const struct facts_ratio *b) {
    return log(a->x / a->y) - log(b->x / b->y);
}

/* Mean square difference of shares of confidences, weighted by what was measured. */
static double confidence_misfit(const struct decode_facts *measured,
                                const struct decode_facts *process) {
    double sum = 0, weights = 0;
    for (int at = 0; at < 2; at++) {
        double n = 0;
        for (int g = 0; g < FACTS_GAPS; g++) {
            n += measured->seen[at][g];
        }
        for (int g = 0; n > 0 && g < FACTS_GAPS; g++) {
            double weight = measured->seen[at][g] / n;
            for (int l = 0; process->seen[at][g] > 0 && l < FACTS_LEVELS; l++) {
                sum += weight / FACTS_LEVELS *
                       square(measured->above[at][g][l] / fmax(measured->seen[at][g], 1) -
                              process->above[at][g][l] / process->seen[at][g]);
            }
            weights += weight;
        }
    }
    return weights > 0 ? sum / weights : 0;
}

static double quintile_misfit(const struct decode_facts *measured,
                              const struct decode_facts *process) {
    double sum = 0;
    for (int i = 0; i < FACTS_QUINTILES; i++) {
        sum += square(measured->quintile[i] / measured->n_ranked -
                      process->quintile[i] / process->n_ranked);
    }
    return sum;
}

/* ---- the fit ---- */

enum { MOST_ROUNDS = 4 };

/* Constants that are varied, as they are or by their logarithm. */
enum scale { SCALE_PLAIN, SCALE_LOG };
struct free_constant {
    size_t offset;
    enum scale scale;
    double step;
};
#define FREE(field, scale, step)                                                                   \
    { offsetof(struct decode_process, field), scale, step }
static const struct free_constant of_confidence[] = {
    FREE(location, SCALE_PLAIN, 1),
    FREE(distance, SCALE_LOG, 0.5),
    FREE(gap, SCALE_LOG, 0.5),
    FREE(position_spread, SCALE_LOG, 0.3),
    FREE(step_spread, SCALE_LOG, 0.5),
    FREE(lost, SCALE_LOG, 0.5),
    FREE(lost_reach, SCALE_LOG, 0.2),
    FREE(lost_power, SCALE_LOG, 0.2),
    FREE(lost_location, SCALE_PLAIN, 0.3),
    FREE(lost_spread, SCALE_LOG, 0.2),
};
static const struct free_constant of_delta[] = {
    FREE(delta_distance, SCALE_LOG, 0.7),
    FREE(delta_noise, SCALE_LOG, 0.7),
    FREE(delta_behind, SCALE_PLAIN, 4),
};

struct fitting {
    struct measured *measured;
    const struct free_constant *constants;
    size_t n;
    bool is_of_delta;
    bool of_evicting; /* which of the traces */
    struct decode_process process;
};

static void take(const struct fitting *fitting, const gsl_vector *x, struct decode_process *out) {
    *out = fitting->process;
    for (size_t i = 0; i < fitting->n; i++) {
        double value = gsl_vector_get(x, i);
        value = fitting->constants[i].scale == SCALE_LOG ? exp(value) : value;
        *(double *)(void *)((char *)out + fitting->constants[i].offset) = value;
    }
}

static double misfit(const gsl_vector *x, void *opaque) {
    const struct fitting *fitting = opaque;
    struct decode_process process;
    struct decode_facts facts;
    double sum = 0;
    take(fitting, x, &process);
    for (size_t i = 0; i < fitting->measured->n; i++) {
        const struct measured_trace *trace = &fitting->measured->traces[i];
        if (!trace->is_fitted || trace->rule.smooths ||
            trace->rule.evicts != fitting->of_evicting) {
            continue;
        }
        roll(&process, trace, &facts);
        sum += square(log_ratio(&facts.yield, &trace->even.yield));
        sum += fitting->is_of_delta ? square(log_ratio(&facts.cost, &trace->even.cost)) +
                                          quintile_misfit(&trace->even, &facts)
                                    : confidence_misfit(&trace->even, &facts);
    }
    return isfinite(sum) ? sum : 1e9;
}

/* From where its process is, then again from what was found as long as that gains a hundredth:
 * a simplex that has become flat ends early. */
static void minimise(struct fitting *fitting, int most_steps) {
    gsl_vector *x = mem_given(gsl_vector_alloc(fitting->n)),
               *steps = mem_given(gsl_vector_alloc(fitting->n));
    gsl_multimin_fminimizer *minimizer =
        mem_given(gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, fitting->n));
    for (size_t i = 0; i < fitting->n; i++) {
        const struct free_constant *constant = &fitting->constants[i];
        double begin =
            *(const double *)(const void *)((const char *)&fitting->process + constant->offset);
        gsl_vector_set(x, i, constant->scale == SCALE_LOG ? log(begin) : begin);
        gsl_vector_set(steps, i, constant->step);
    }
    gsl_multimin_function function = {.f = misfit, .n = fitting->n, .params = fitting};
    double before = INFINITY;
    for (int round = 0; round < MOST_ROUNDS; round++) {
        gsl_multimin_fminimizer_set(minimizer, &function, x, steps);
        for (int i = 0; i < most_steps; i++) {
            gsl_multimin_fminimizer_iterate(minimizer);
            if (gsl_multimin_fminimizer_size(minimizer) < 0.01) {
                break;
            }
        }
        gsl_vector_memcpy(x, gsl_multimin_fminimizer_x(minimizer));
        double now = gsl_multimin_fminimizer_minimum(minimizer);
        if (now > 0.99 * before) {
            break;
        }
        before = now;
    }
    take(fitting, gsl_multimin_fminimizer_x(minimizer), &fitting->process);
    gsl_multimin_fminimizer_free(minimizer);
    gsl_vector_free(x);
    gsl_vector_free(steps);
}

/* All its confidences moved by `by` logits. */
static struct decode_process shifted(const struct decode_process *process, double by) {
    struct decode_process out = *process;
    out.location += by;
    out.lost_location += by;
    return out;
}

/* The shift at which the process, otherwise as it is, has the yield that was measured. */
static double shift_of(const struct decode_process *process, const struct measured_trace *trace,
                       enum facts_half half) {
    const struct decode_facts *measured = half == FACTS_EVEN ? &trace->even : &trace->odd;
    double low = -20 - process->location, high = 40 - process->location;
    for (int i = 0; i < 24; i++) {
        struct decode_facts facts;
        double middle = (low + high) / 2;
        struct decode_process at = shifted(process, middle);
        facts_of_process(&at, FIT_SEED, &trace->rule, trace->trace, half,
                         copies_of(measured, FIT_ROLLOUTS), &facts);
        bool is_above = log_ratio(&facts.yield, &measured->yield) > 0;
        low = is_above ? low : middle;
        high = is_above ? middle : high;
    }
    return (low + high) / 2;
}

/* Straight from what was measured: nothing has to be rolled out. */
static void take_tail(const struct decode_facts *facts, struct decode_process *process) {
    if (facts->n_tails > 1) {
        double mean = facts->tail / facts->n_tails;
        process->tail = mean;
        process->tail_spread = sqrt(fmax(facts->tail_squares / facts->n_tails - mean * mean, 0));
    }
}

/* Where a line through log(-log(1 - share)) of classes over log(mean gap) has its power and what it
 * reaches 1 at. */
static void take_losses(const struct decode_facts *facts, struct decode_process *process) {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int g = 1; g < FACTS_GAPS; g++) {
        const struct facts_first *first = &facts->first[g];
        double share = first->n_lost / first->n;
        if (first->n > 0 && share > 0 && share < 1) {
            double at = log(first->gap / first->n), rate = log(-log1p(-share));
            w += first->n_lost;
            x += first->n_lost * at;
            y += first->n_lost * rate;
            xx += first->n_lost * at * at;
            xy += first->n_lost * at * rate;
        }
    }
    double power = (w * xy - x * y) / (w * xx - x * x);
    process->lost_power = isfinite(power) ? fmin(fmax(power, 0.3), 6) : 1;
    process->lost_reach = w > 0 ? exp((x - y / process->lost_power) / w) : 1000;
    double at_once = facts->first[0].n_lost / facts->first[0].n;
    process->lost = fmax(isfinite(at_once) ? at_once : 0, 1e-3);
}

/* Where a fit begins: what can be read off first passes without rolling anything out. */
static void take_first(const struct decode_facts *facts, struct decode_process *process) {
    double n = 0, n_lost = 0, x = 0, xx = 0;
    for (int g = 0; g < FACTS_GAPS; g++) {
        n += facts->first[g].n - facts->first[g].n_lost;
        n_lost += facts->first[g].n_lost;
        x += facts->first[g].x;
        xx += facts->first[g].xx;
    }
    /* Where none is sure, as a position of just 0.9: log(0.9 / 0.1). */
    const double mean = n > 0 ? x / n : log(9), lost = facts->lost_x / n_lost;
    process->gap = 12;
    process->distance = 3;
    process->location = mean + process->distance / 2;
    process->position_spread = n > 0 ? sqrt(fmax(xx / n - mean * mean, 0.1)) : 1;
    process->lost_location = n_lost > 0 ? lost : 0;
    process->lost_spread = n_lost > 1 ? sqrt(fmax(facts->lost_xx / n_lost - lost * lost, 0.01)) : 1;
    take_losses(facts, process);
}

bool measured_counts(const struct measured_trace *trace) {
    return trace->rule.rule.kind == DECODE_COUNT;
}

/* The gain at which the process has the tokens a pass of the traces under smoothing that it is
 * fitted to; every trace is judged by it. */
static void fit_gain(struct measured *measured) {
    double low = -60, high = 60;
    bool has_any = false;
    for (int i = 0; i < 24; i++) {
        double off = 0, gain = (low + high) / 2;
        for (size_t j = 0; j < measured->n; j++) {
            struct measured_trace *trace = &measured->traces[j];
            struct decode_facts facts;
            if (trace->is_fitted && trace->rule.smooths) {
                has_any = true;
                trace->rule.smoothing.gain = gain;
                roll(&measured->fitted, trace, &facts);
                off += log_ratio(&facts.yield, &trace->even.yield);
            }
        }
        low = off > 0 ? low : gain;
        high = off > 0 ? gain : high;
    }
    measured->gain = has_any ? (low + high) / 2 : NAN;
    for (size_t j = 0; has_any && j < measured->n; j++) {
        measured->traces[j].rule.smoothing.gain = measured->gain;
    }
}

static void fit(struct measured *measured) {
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    struct fitting fitting = {.measured = measured,
                              .constants = of_confidence,
                              .n = sizeof of_confidence / sizeof of_confidence[0],
                              .process = {.step_spread = 1,
                                          .delta_distance = decode_assumed.delta_distance,
                                          .delta_noise = ASSUMED_DELTA_NOISE,
                                          .tail_spread = 1}};
    bool has_delta = false, has_plain = false;
    for (size_t i = 0; i < measured->n; i++) {
        const struct measured_trace *trace = &measured->traces[i];
        has_delta = has_delta || (trace->is_fitted && trace->rule.evicts);
        has_plain = has_plain || (trace->is_fitted && !trace->rule.evicts && !trace->rule.smooths);
    }
    /* How sure a model is comes from traces that evict nothing, where there are any: before the
     * constants of the deltas are fitted, a process would have to be unsure to match an eviction.
     */
    fitting.of_evicting = !has_plain;
    size_t chosen = 0; /* a decoder that counts says nothing of the location */
    while (chosen + 1 < measured->n && measured_counts(&measured->traces[chosen])) {
        chosen++;
    }
    struct decode_process assumed = decode_assumed;
    assumed.delta_noise = ASSUMED_DELTA_NOISE;
    measured->assumed =
        shifted(&assumed, shift_of(&assumed, &measured->traces[chosen], FACTS_EVEN));
    take_tail(&measured->traces[0].even, &fitting.process);
    take_first(&measured->traces[0].even, &fitting.process);
    minimise(&fitting, 600);
    if (has_delta) {
        fitting.constants = of_delta;
        fitting.n = sizeof of_delta / sizeof of_delta[0];
        fitting.is_of_delta = fitting.of_evicting = true;
        fitting.process.delta_distance = 6;
        fitting.process.delta_noise = 2;
        fitting.process.delta_behind = 9;
        minimise(&fitting, 150);
    }
    measured->fitted = fitting.process;
    measured->fitted.at.block_tokens = measured->traces[0].rule.block_tokens;
    fit_gain(measured);
    gsl_set_error_handler(handler);
}

/* A process as it is, but for a location at which it has the tokens a pass of the first trace that
 * does not count, as every process is located; independent draws have none. */
static void locate(struct measured *measured, const struct decode_process *process) {
    size_t chosen = 0;
    while (chosen + 1 < measured->n && measured_counts(&measured->traces[chosen])) {
        chosen++;
    }
    measured->fitted = measured->assumed = *process;
    if (!process->independent) {
        measured->fitted =
            shifted(process, shift_of(process, &measured->traces[chosen], FACTS_EVEN));
    }
    measured->assumed = measured->fitted;
}

static void judge(struct measured *measured) {
    for (size_t i = 0; i < measured->n; i++) {
        struct measured_trace *trace = &measured->traces[i];
        uint32_t copies = copies_of(&trace->odd, JUDGE_ROLLOUTS);
        facts_of_process(&measured->fitted, JUDGE_SEED, &trace->rule, trace->trace, FACTS_ODD,
                         copies, &trace->fitted);
        facts_of_process(&measured->assumed, JUDGE_SEED, &trace->rule, trace->trace, FACTS_ODD,
                         copies, &trace->assumed);
        trace->shift = measured_counts(trace) ? NAN : shift_of(&measured->fitted, trace, FACTS_ODD);
    }
}

/* ---- the whole ---- */

static int open_trace(const char *path, bool is_fitted, struct measured *out, struct err *err) {
    if (out->n == MEASURED_MOST_TRACES) {
        return err_usage(err, "at most %d decode traces", MEASURED_MOST_TRACES);
    }
    struct measured_trace *trace = &out->traces[out->n];
    *trace = (struct measured_trace){.path = path, .is_fitted = is_fitted};
    int status = decode_trace_read(path, DECODE_POSITIONS, &trace->trace, err);
    if (status != 0) {
        return status;
    }
    out->n++;
    status = facts_rule(trace->trace, &trace->rule, err);
    status = status != 0 ? status : facts_of_trace(trace->trace, FACTS_EVEN, &trace->even, err);
    return status != 0 ? status : facts_of_trace(trace->trace, FACTS_ODD, &trace->odd, err);
}

int measured_open(const struct decode_process *process, const char *const *fit_paths, size_t n_fit,
                  const char *const *judge_paths, size_t n_judge, struct measured *out,
                  struct err *err) {
    int status = 0;
    ASSERT(n_fit > 0 || (process != NULL && n_judge > 0));
    *out = (struct measured){.gain = NAN};
    for (size_t i = 0; status == 0 && i < n_fit + n_judge; i++) {
        status = i < n_fit ? open_trace(fit_paths[i], true, out, err)
                           : open_trace(judge_paths[i - n_fit], false, out, err);
    }
    if (status != 0) {
        measured_close(out);
        return status;
    }
    if (process != NULL) {
        locate(out, process);
    } else {
        fit(out);
    }
    judge(out);
    return 0;
}

void measured_close(struct measured *measured) {
    for (size_t i = 0; i < measured->n; i++) {
        decode_trace_close(measured->traces[i].trace);
    }
    measured->n = 0;
}
