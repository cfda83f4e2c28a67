#include "experiments/study/decode_measured.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multimin.h>
#include <math.h>
#include <string.h>

#include "experiments/study/decode_fit.h"
#include "sim/base/mem.h"

enum { FIT_ROLLOUTS = 240, JUDGE_ROLLOUTS = 1200, MOST_FREE = 8 };

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

/* Constants that are varied, and how: as they are, by their logarithm, or between 0 and 1. */
enum scale { SCALE_PLAIN, SCALE_LOG, SCALE_SHARE };
struct free_constant {
    size_t offset;
    enum scale scale;
    double begin, step;
};
#define FREE(field, scale, begin, step)                                                            \
    { offsetof(struct decode_process, field), scale, begin, step }
static const struct free_constant of_confidence[] = {
    FREE(location, SCALE_PLAIN, 3, 2),
    FREE(distance, SCALE_LOG, 3, 0.7),
    FREE(gap, SCALE_LOG, 4, 0.7),
    FREE(context, SCALE_PLAIN, 0.5, 1),
    FREE(position_spread, SCALE_LOG, 2, 0.5),
    FREE(step_spread, SCALE_LOG, 0.7, 0.7),
    FREE(skew, SCALE_SHARE, 0.5, 1),
};
static const struct free_constant of_delta[] = {
    FREE(delta_distance, SCALE_LOG, 6, 0.7),
    FREE(delta_noise, SCALE_LOG, 2, 0.7),
    FREE(delta_behind, SCALE_PLAIN, 9, 4),
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
        value = fitting->constants[i].scale == SCALE_LOG     ? exp(value)
                : fitting->constants[i].scale == SCALE_SHARE ? 1 / (1 + exp(-value))
                                                             : value;
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
        if (!trace->is_fitted || trace->rule.evicts != fitting->of_evicting) {
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

/* From where its constants begin, then again from what was found as long as that gains a hundredth:
 * a simplex that has become flat ends early. */
static void minimise(struct fitting *fitting, int most_steps) {
    gsl_vector *x = mem_given(gsl_vector_alloc(fitting->n)),
               *steps = mem_given(gsl_vector_alloc(fitting->n));
    gsl_multimin_fminimizer *minimizer =
        mem_given(gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, fitting->n));
    for (size_t i = 0; i < fitting->n; i++) {
        const struct free_constant *constant = &fitting->constants[i];
        double begin = constant->begin;
        begin = constant->scale == SCALE_LOG     ? log(begin)
                : constant->scale == SCALE_SHARE ? log(begin / (1 - begin))
                                                 : begin;
        gsl_vector_set(x, i, begin);
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

/* The location at which the process, otherwise as it is, has the yield that was measured. */
static double location_of(const struct decode_process *process, const struct measured_trace *trace,
                          enum facts_half half) {
    struct decode_process at = *process;
    const struct decode_facts *measured = half == FACTS_EVEN ? &trace->even : &trace->odd;
    double low = -20, high = 40;
    for (int i = 0; i < 24; i++) {
        struct decode_facts facts;
        at.location = (low + high) / 2;
        facts_of_process(&at, FIT_SEED, &trace->rule, trace->trace, half,
                         copies_of(measured, FIT_ROLLOUTS), &facts);
        bool is_above = log_ratio(&facts.yield, &measured->yield) > 0;
        low = is_above ? low : at.location;
        high = is_above ? at.location : high;
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

bool measured_counts(const struct measured_trace *trace) {
    return trace->rule.rule.kind == DECODE_COUNT;
}

static void fit(struct measured *measured) {
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    struct fitting fitting = {.measured = measured,
                              .constants = of_confidence,
                              .n = sizeof of_confidence / sizeof of_confidence[0],
                              .process = decode_assumed};
    bool has_delta = false, has_plain = false;
    for (size_t i = 0; i < measured->n; i++) {
        const struct measured_trace *trace = &measured->traces[i];
        has_delta = has_delta || (trace->is_fitted && trace->rule.evicts);
        has_plain = has_plain || (trace->is_fitted && !trace->rule.evicts);
    }
    /* How sure a model is comes from traces that evict nothing, where there are any: before the
     * constants of the deltas are fitted, a process would have to be unsure to match an eviction.
     */
    fitting.of_evicting = !has_plain;
    measured->assumed = decode_assumed;
    measured->assumed.delta_noise = 0.8756;
    size_t chosen = 0; /* a decoder that counts says nothing of the location */
    while (chosen + 1 < measured->n && measured_counts(&measured->traces[chosen])) {
        chosen++;
    }
    measured->assumed.location =
        location_of(&measured->assumed, &measured->traces[chosen], FACTS_EVEN);
    fitting.process.delta_noise = measured->assumed.delta_noise;
    take_tail(&measured->traces[0].even, &fitting.process);
    minimise(&fitting, 600);
    if (has_delta) {
        fitting.constants = of_delta;
        fitting.n = sizeof of_delta / sizeof of_delta[0];
        fitting.is_of_delta = fitting.of_evicting = true;
        minimise(&fitting, 150);
    }
    measured->fitted = fitting.process;
    measured->fitted.block_tokens = measured->traces[0].rule.block_tokens;
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
        measured->fitted.location = location_of(process, &measured->traces[chosen], FACTS_EVEN);
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
        trace->shift = measured_counts(trace) ? NAN
                                              : location_of(&measured->fitted, trace, FACTS_ODD) -
                                                    measured->fitted.location;
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
    *out = (struct measured){0};
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
