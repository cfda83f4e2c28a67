#include "experiments/study/decode_fit.h"

#include <errno.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multimin.h>
#include <gsl/gsl_roots.h>
#include <math.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"

#define TABLE_5(process, model, dataset, workloads)                                                \
    { process, "Table 5", model, dataset, "LMDeploy", "processed_per_decoded", false, workloads }
#define FIGURE_2(process, quantity)                                                                \
    {                                                                                              \
        process, "Sec 2 Fig 2", "SDAR-8B-Chat", "all benchmarks", "block diffusion", quantity,     \
            true, NULL                                                                             \
    }

enum { SLOWEST = 6, FASTEST = 7, N_OF_TABLE_5 = 6, N_OF_SDAR = 3 };
const struct decode_target decode_targets[N_DECODE_TARGETS] = {
    TABLE_5("sdar-8b/sharegpt", "SDAR-8B-Chat", "ShareGPT", "sharegpt, sharegpt-first-turn"),
    TABLE_5("sdar-8b/wildchat", "SDAR-8B-Chat", "WildChat", "wildchat"),
    TABLE_5("sdar-8b/math", "SDAR-8B-Chat", "MATH", "math"),
    TABLE_5("llada2-mini/sharegpt", "LLaDA2.0-mini", "ShareGPT", "sharegpt, sharegpt-first-turn"),
    TABLE_5("llada2-mini/wildchat", "LLaDA2.0-mini", "WildChat", "wildchat"),
    TABLE_5("llada2-mini/math", "LLaDA2.0-mini", "MATH", "math"),
    FIGURE_2("sdar-8b/slowest", "tokens_per_step_min"),
    FIGURE_2("sdar-8b/fastest", "tokens_per_step_max"),
};

const char *const decode_shape_names[N_DECODE_SHAPES] = {"assumed", "fitted"};

/* Set before the first comparison, from what is known in general: half of a model's tokens are near
 * certain beside known context and the spread of their logits is some 2 (position) and 1 (step);
 * far from it they are not; a filling block helps a little; the second token has about half of what
 * the first leaves. */
const struct decode_process decode_assumed = {.distance = 3,
                                              .gap = 4,
                                              .context = 1,
                                              .position_spread = 2,
                                              .step_spread = 1,
                                              .delta_distance = 3,
                                              .tail_spread = 1};

const char *decode_process_name(const char *process, enum decode_shape shape, char *text,
                                size_t size) {
    snprintf(text, size, "%s%s", process, shape == SHAPE_FITTED ? "-focus" : "");
    return text;
}

static bool matches(const char *word, const char *text) {
    return word == NULL || strcmp(word, text) == 0;
}

const struct paper_row *decode_row(const struct paper *paper, const char *source, const char *model,
                                   const char *dataset, const char *system, const char *quantity) {
    const struct paper_row *found = NULL;
    for (size_t i = 0; i < paper->n_rows; i++) {
        const struct paper_row *row = &paper->rows[i];
        if (matches(source, row->source) && matches(model, row->model) &&
            matches(dataset, row->dataset) && matches(system, row->system) &&
            matches(quantity, row->quantity)) {
            if (found != NULL) {
                return NULL;
            }
            found = row;
        }
    }
    return found;
}

/* ---- sampling ---- */

enum { BLOCKS_OF_REQUEST = 8, BLOCKS_OF_CANVAS = 16, FEW_REQUESTS = 60, MANY_REQUESTS = 400 };

struct rollout decode_sample(const struct decode_process *process, uint64_t seed,
                             const struct rollout_rule *rule, uint32_t n) {
    struct rollout sums = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t blocks = rule->answer_tokens > 0 ? BLOCKS_OF_CANVAS : BLOCKS_OF_REQUEST;
        rollout_request(process, seed, i, rule, blocks, &sums);
    }
    return sums;
}

double decode_temperature(const struct decode_target *to) {
    return to->per_step ? 1 : 0.8;
}

struct rollout_rule decode_plain(float threshold, double temperature) {
    return (struct rollout_rule){.block_tokens = 32,
                                 .rule = {.kind = DECODE_THRESHOLD, .threshold = threshold},
                                 .temperature = temperature};
}

struct rollout_rule decode_focus(float threshold, double temperature) {
    return (struct rollout_rule){
        .block_tokens = 32,
        .temperature = temperature,
        .cache = BLOCK_NEIGHBOUR,
        .evicts = true,
        .focus = {.alpha = 1.5, .history = FOCUS_MEAN_OF_BLOCK},
        .rule = {.kind = DECODE_THRESHOLD, .threshold = threshold},
    };
}

/* ---- roots ---- */

struct question {
    struct decode_process process;
    struct rollout_rule rule;
    uint32_t n_requests;
    bool per_step;
    double target;
};

static uint64_t seed_of_fits(void) {
    return hash_text("decode fits");
}

/* Falls as the location rises, so that both kinds have one sign. */
static double tokens_run(double location, void *opaque) {
    struct question *question = opaque;
    question->process.location = location;
    struct rollout sums =
        decode_sample(&question->process, seed_of_fits(), &question->rule, question->n_requests);
    return question->per_step ? question->target - rollout_tokens_per_step(&sums)
                              : rollout_redundancy(&sums) - question->target;
}

/* The root of a falling function between `low` and `high`, or the nearer end. */
static double falling_root(double (*function)(double x, void *opaque), void *opaque, double low,
                           double high, double tolerance) {
    if (function(low, opaque) <= 0) {
        return low;
    }
    if (function(high, opaque) >= 0) {
        return high;
    }
    gsl_function asked = {.function = function, .params = opaque};
    gsl_root_fsolver *solver = mem_given(gsl_root_fsolver_alloc(gsl_root_fsolver_brent));
    int status = gsl_root_fsolver_set(solver, &asked, low, high);
    for (int i = 0; i < 60 && status == GSL_SUCCESS; i++) {
        gsl_root_fsolver_iterate(solver);
        double x0 = gsl_root_fsolver_x_lower(solver), x1 = gsl_root_fsolver_x_upper(solver);
        if (gsl_root_test_interval(x0, x1, tolerance, 0) == GSL_SUCCESS) {
            break;
        }
    }
    double root = gsl_root_fsolver_root(solver);
    gsl_root_fsolver_free(solver);
    return root;
}

static double root_of(struct question *question) {
    bool rough = question->n_requests < MANY_REQUESTS;
    return falling_root(tokens_run, question, -20, 40, rough ? 2e-3 : 1e-4);
}

static void find_location(struct decode_process *process, const struct decode_target *to,
                          double target, uint32_t n_requests) {
    struct question question = {.process = *process,
                                .rule = decode_plain(0.9F, decode_temperature(to)),
                                .n_requests = n_requests,
                                .per_step = to->per_step,
                                .target = target};
    process->location = root_of(&question);
}

double decode_location(const struct decode_process *process, const struct rollout_rule *rule,
                       bool per_step, double target) {
    struct question question = {.process = *process,
                                .rule = *rule,
                                .n_requests = MANY_REQUESTS,
                                .per_step = per_step,
                                .target = target};
    return root_of(&question);
}

struct rollout decode_fit_sample(const struct decode_process *process,
                                 const struct rollout_rule *rule) {
    return decode_sample(process, seed_of_fits(), rule, MANY_REQUESTS);
}

/* ---- the two shapes ---- */

struct printed {
    double target[N_DECODE_TARGETS], focus[N_DECODE_TARGETS], quintile;
};

/* Mean over the ends of Figure 2, whose locations must be found. */
static double quintile_of(const struct decode_process *slowest,
                          const struct decode_process *fastest, uint32_t n) {
    struct rollout_rule rule = decode_plain(0.9F, decode_temperature(&decode_targets[SLOWEST]));
    rule.ranks = true;
    struct rollout slow = decode_sample(slowest, seed_of_fits(), &rule, n);
    struct rollout fast = decode_sample(fastest, seed_of_fits(), &rule, n);
    return (rollout_top_quintile(&slow) + rollout_top_quintile(&fast)) / 2;
}

struct ends {
    struct decode_process slowest, fastest;
    double target;
};

static double quintile_missing(double noise, void *opaque) {
    struct ends *ends = opaque;
    ends->slowest.delta_noise = ends->fastest.delta_noise = noise;
    return quintile_of(&ends->slowest, &ends->fastest, MANY_REQUESTS) - ends->target;
}

static struct decode_process shape_assumed(const struct printed *printed) {
    struct ends ends = {decode_assumed, decode_assumed, printed->quintile};
    find_location(&ends.slowest, &decode_targets[SLOWEST], printed->target[SLOWEST], MANY_REQUESTS);
    find_location(&ends.fastest, &decode_targets[FASTEST], printed->target[FASTEST], MANY_REQUESTS);
    struct decode_process shape = decode_assumed;
    shape.delta_noise = falling_root(quintile_missing, &ends, 0, 50, 1e-3);
    return shape;
}

static double focus_of(const struct decode_process *process, uint32_t n) {
    struct rollout_rule rule = decode_focus(0.8F, decode_temperature(&decode_targets[0]));
    struct rollout sums = decode_sample(process, seed_of_fits(), &rule, n);
    return rollout_redundancy(&sums);
}

enum { N_FREE = 3 };

/* delta_distance over distance; set by hand. Left free it grows without bound at the same misfit.
 */
static const double known_by_layers = 4;

/* The free constants are positive: their logarithms are varied. */
static struct decode_process shape_at(const gsl_vector *x) {
    struct decode_process shape = decode_assumed;
    shape.distance = exp(gsl_vector_get(x, 0));
    shape.position_spread = exp(gsl_vector_get(x, 1));
    shape.delta_distance = known_by_layers * shape.distance;
    shape.delta_noise = exp(gsl_vector_get(x, 2));
    return shape;
}

/* Sum of squared logarithms of ours over printed, every location found anew. */
static double misfit(const gsl_vector *x, void *opaque) {
    const struct printed *printed = opaque;
    struct decode_process shape = shape_at(x), slowest = shape, fastest = shape;
    find_location(&slowest, &decode_targets[SLOWEST], printed->target[SLOWEST], FEW_REQUESTS);
    find_location(&fastest, &decode_targets[FASTEST], printed->target[FASTEST], FEW_REQUESTS);
    double sum = pow(log(quintile_of(&slowest, &fastest, FEW_REQUESTS) / printed->quintile), 2);
    for (size_t i = 0; i < N_OF_SDAR; i++) {
        struct decode_process process = shape;
        find_location(&process, &decode_targets[i], printed->target[i], FEW_REQUESTS);
        sum += pow(log(focus_of(&process, FEW_REQUESTS) / printed->focus[i]), 2);
    }
    return sum;
}

static struct decode_process shape_fitted(struct printed *printed) {
    static const double begin[N_FREE] = {6, 1, 2};
    gsl_vector *x = mem_given(gsl_vector_alloc(N_FREE)),
               *steps = mem_given(gsl_vector_alloc(N_FREE));
    gsl_multimin_fminimizer *minimizer =
        mem_given(gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, N_FREE));
    for (size_t i = 0; i < N_FREE; i++) {
        gsl_vector_set(x, i, log(begin[i]));
    }
    gsl_vector_set_all(steps, 0.4);
    gsl_multimin_function function = {.f = misfit, .n = N_FREE, .params = printed};
    gsl_multimin_fminimizer_set(minimizer, &function, x, steps);
    for (int i = 0; i < 80; i++) {
        gsl_multimin_fminimizer_iterate(minimizer);
        if (gsl_multimin_fminimizer_size(minimizer) < 0.02) {
            break;
        }
    }
    struct decode_process shape = shape_at(gsl_multimin_fminimizer_x(minimizer));
    gsl_multimin_fminimizer_free(minimizer);
    gsl_vector_free(x);
    gsl_vector_free(steps);
    return shape;
}

static int read_printed(const struct paper *paper, struct printed *out, struct err *err) {
    const struct paper_row *quintile = decode_row(paper, "App B Fig 12", NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
        const struct decode_target *to = &decode_targets[i];
        const struct paper_row *row =
            decode_row(paper, to->source, to->model, to->dataset, to->system, to->quantity);
        const struct paper_row *focus =
            i < N_OF_TABLE_5
                ? decode_row(paper, to->source, to->model, to->dataset, "FOCUS", to->quantity)
                : row;
        if (row == NULL || focus == NULL || quintile == NULL) {
            return err_world(err, "%s lacks a row that decode processes are fitted to: %s %s %s",
                             paper->path, to->source, to->model, to->dataset);
        }
        out->target[i] = row->value;
        out->focus[i] = i < N_OF_TABLE_5 ? focus->value : NAN;
    }
    out->quintile = quintile->value / 100;
    return 0;
}

static void fit_shape(const struct printed *printed, enum decode_shape which,
                      const struct decode_process *shape, struct decode_fits *out) {
    for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
        struct decode_fit *fit = &out->fit[which][i];
        struct rollout_rule rule = decode_plain(0.9F, decode_temperature(&decode_targets[i]));
        *fit = (struct decode_fit){.process = *shape, .target = printed->target[i]};
        find_location(&fit->process, &decode_targets[i], fit->target, MANY_REQUESTS);
        struct rollout sums = decode_sample(&fit->process, seed_of_fits(), &rule, MANY_REQUESTS);
        fit->reached =
            decode_targets[i].per_step ? rollout_tokens_per_step(&sums) : rollout_redundancy(&sums);
        out->focus_target[i] = printed->focus[i];
        out->focus[which][i] = focus_of(&fit->process, MANY_REQUESTS);
    }
    out->quintile[which] = quintile_of(&out->fit[which][SLOWEST].process,
                                       &out->fit[which][FASTEST].process, MANY_REQUESTS);
}

int decode_fit_all(const struct paper *paper, struct decode_fits *out, struct err *err) {
    struct printed printed;
    int status = read_printed(paper, &printed, err);
    if (status != 0) {
        return status;
    }
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    *out = (struct decode_fits){.quintile_target = printed.quintile};
    struct decode_process shapes[N_DECODE_SHAPES] = {shape_assumed(&printed),
                                                     shape_fitted(&printed)};
    for (int s = 0; s < N_DECODE_SHAPES; s++) {
        fit_shape(&printed, (enum decode_shape)s, &shapes[s], out);
    }
    gsl_set_error_handler(handler);
    return 0;
}
