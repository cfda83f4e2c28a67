#include "experiments/study/decode_curve.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multimin.h>
#include <math.h>
#include <string.h>

#include "experiments/study/decode_fit.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/decode/process_file.h"

enum {
    COLUMN_SHAPE,
    COLUMN_MODEL,
    COLUMN_BENCHMARK,
    COLUMN_THRESHOLD,
    COLUMN_BLOCK,
    COLUMN_TEMPERATURE,
    COLUMN_PRINTED,
    COLUMN_HOW,
    COLUMN_SOURCE
};
static const char *const columns[] = {"shape",        "model",       "benchmark",       "threshold",
                                      "block_tokens", "temperature", "tokens_per_pass", "how",
                                      "source",       NULL};

static int read_point(struct csv *csv, struct curve_point *point, struct err *err) {
    int64_t block = 0;
    if (csv_row(csv, err) != 0) {
        return err_status(err);
    }
    *point = (struct curve_point){.shape = csv_field(csv, COLUMN_SHAPE),
                                  .model = csv_field(csv, COLUMN_MODEL),
                                  .how = csv_field(csv, COLUMN_HOW),
                                  .source = csv_field(csv, COLUMN_SOURCE)};
    bool failed =
        csv_number(csv, COLUMN_THRESHOLD, 0, 1, &point->at.threshold, err) != 0 ||
        csv_number(csv, COLUMN_TEMPERATURE, 0.01, 100, &point->at.temperature, err) != 0 ||
        csv_number(csv, COLUMN_PRINTED, 1, ROLLOUT_MOST_POSITIONS, &point->printed, err) != 0 ||
        csv_whole(csv, COLUMN_BLOCK, 1, ROLLOUT_MOST_POSITIONS, &block, err) != 0;
    point->at.block_tokens = (uint32_t)block;
    return failed ? err_status(err) : 0;
}

int curves_open(const char *path, struct curves *out, struct err *err) {
    bool more = true;
    *out = (struct curves){0};
    if (csv_open(&out->csv, path, "decode curves", err) != 0) {
        return err_status(err);
    }
    int status = csv_first(&out->csv, columns, 0, true, err);
    while (status == 0 && (status = csv_line(&out->csv, &more, err)) == 0 && more) {
        status = out->n < CURVE_MOST_POINTS
                     ? read_point(&out->csv, &out->points[out->n], err)
                     : err_world(err, "%s has more than %d points", path, CURVE_MOST_POINTS);
        out->n += status == 0;
    }
    if (status != 0) {
        curves_close(out);
    }
    return status;
}

void curves_close(struct curves *curves) {
    csv_close(&curves->csv);
    *curves = (struct curves){0};
}

/* ---- a shape against its points ---- */

/* Requests of a sample, of blocks of 32: samples of other blocks have as many positions. */
enum { FEW_REQUESTS = 60, MANY_REQUESTS = 400 };

static double tokens_a_pass(const struct decode_process *process, const struct curve_point *point,
                            uint32_t n) {
    struct rollout_rule rule = decode_rule_at(&point->at);
    struct rollout sums =
        decode_sample(process, decode_fit_seed(), &rule, n * 32 / rule.block_tokens + 1);
    return rollout_tokens_per_step(&sums);
}

static void locate_at(struct decode_process *process, const struct curve_point *point, uint32_t n) {
    struct rollout_rule rule = decode_rule_at(&point->at);
    process->location = decode_locate(process, &rule, false, point->printed, n);
}

double curve_gives(const struct curves *curves, size_t point, const struct decode_process *process,
                   uint32_t n) {
    struct decode_process here = *process;
    size_t first = 0;
    while (strcmp(curves->points[first].shape, curves->points[point].shape) != 0) {
        first++;
    }
    locate_at(&here, &curves->points[first], n);
    return tokens_a_pass(&here, &curves->points[point], n);
}

/* The points that a fit sees, the first of which locates it. */
struct seen {
    const struct curve_point *points[CURVE_MOST_POINTS];
    size_t n;
};

static struct seen points_of(const struct curves *curves, const char *shape, size_t but) {
    struct seen seen = {.n = 0};
    for (size_t i = 0; i < curves->n; i++) {
        if (i != but && strcmp(curves->points[i].shape, shape) == 0) {
            seen.points[seen.n++] = &curves->points[i];
        }
    }
    return seen;
}

enum { N_FREE = 2, MOST_STEPS = 40 };

/* The free constants are positive: their logarithms are varied. */
static struct decode_process shape_at(const gsl_vector *x) {
    struct decode_process shape = decode_assumed;
    shape.distance = exp(gsl_vector_get(x, 0));
    shape.position_spread = exp(gsl_vector_get(x, 1));
    shape.delta_distance = shape.distance;
    return shape;
}

static double squares(const struct decode_process *process, const struct seen *seen, uint32_t n) {
    double sum = 0;
    for (size_t i = 0; i < seen->n; i++) {
        sum += pow(log(tokens_a_pass(process, seen->points[i], n) / seen->points[i]->printed), 2);
    }
    return sum;
}

static double misfit(const gsl_vector *x, void *opaque) {
    const struct seen *seen = opaque;
    struct decode_process shape = shape_at(x);
    if (shape.distance > 100 || shape.position_spread > 10) {
        return 1e3;
    }
    locate_at(&shape, seen->points[0], FEW_REQUESTS);
    return squares(&shape, seen, FEW_REQUESTS);
}

static struct decode_process fit_to(struct seen *seen) {
    static const double begin[N_FREE] = {10, 0.7};
    gsl_vector *x = mem_given(gsl_vector_alloc(N_FREE)),
               *steps = mem_given(gsl_vector_alloc(N_FREE));
    gsl_multimin_fminimizer *minimizer =
        mem_given(gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, N_FREE));
    for (size_t i = 0; i < N_FREE; i++) {
        gsl_vector_set(x, i, log(begin[i]));
    }
    gsl_vector_set_all(steps, 0.4);
    gsl_multimin_function function = {.f = misfit, .n = N_FREE, .params = seen};
    gsl_multimin_fminimizer_set(minimizer, &function, x, steps);
    for (int i = 0; i < MOST_STEPS; i++) {
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

/* ---- all shapes ---- */

struct telling {
    void (*told)(void *state, size_t n_done);
    void *state;
    size_t n_done;
};

static void tell(struct telling *telling) {
    telling->n_done++;
    if (telling->told != NULL) {
        telling->told(telling->state, telling->n_done);
    }
}

/* What a fit that has not seen the point gives there. */
static double predict(const struct curves *curves, const char *shape, size_t point) {
    struct seen others = points_of(curves, shape, point);
    struct decode_process fitted = fit_to(&others);
    locate_at(&fitted, others.points[0], MANY_REQUESTS);
    return tokens_a_pass(&fitted, &curves->points[point], MANY_REQUESTS);
}

static void fit_shape(const struct curves *curves, struct curve_fit *fit, struct telling *telling) {
    struct seen all = points_of(curves, fit->shape, SIZE_MAX);
    fit->process = fit_to(&all);
    tell(telling);
    for (size_t i = 0; i < curves->n; i++) {
        if (strcmp(curves->points[i].shape, fit->shape) != 0) {
            continue;
        }
        struct curve_predicted *at = &fit->predicted[fit->n++];
        double printed = curves->points[i].printed;
        *at =
            (struct curve_predicted){.point = i,
                                     .fitted = curve_gives(curves, i, &fit->process, MANY_REQUESTS),
                                     .stored = curve_gives(curves, i, &fit->stored, MANY_REQUESTS),
                                     .left_out = predict(curves, fit->shape, i)};
        fit->misfit += pow(log(at->fitted / printed), 2);
        fit->left_out += pow(log(at->left_out / printed), 2);
        tell(telling);
    }
    fit->misfit = sqrt(fit->misfit / (double)fit->n);
    fit->left_out = sqrt(fit->left_out / (double)fit->n);
}

static int find_shapes(const struct curves *curves, struct curve_fit out[CURVE_MOST_SHAPES],
                       size_t *n, struct err *err) {
    char path[1024];
    data_path(path, sizeof path, "experiments/study/decode.ini");
    *n = 0;
    for (size_t i = 0; i < curves->n; i++) {
        const char *shape = curves->points[i].shape;
        if (i > 0 && strcmp(shape, curves->points[i - 1].shape) == 0) {
            continue;
        }
        if (points_of(curves, shape, SIZE_MAX).n < N_FREE + 2 || *n == CURVE_MOST_SHAPES) {
            return err_world(err, "%s: the shape '%s' has too few points, or is one too many",
                             curves->csv.line.path, shape);
        }
        struct curve_fit *fit = &out[(*n)++];
        *fit = (struct curve_fit){0};
        snprintf(fit->shape, sizeof fit->shape, "%s", shape);
        int status = decode_shape_read(path, shape, &fit->stored, err);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

int curves_fit(const struct curves *curves, void (*told)(void *state, size_t n_done), void *state,
               struct curve_fit out[CURVE_MOST_SHAPES], size_t *n, struct err *err) {
    struct telling telling = {told, state, 0};
    int status = find_shapes(curves, out, n, err);
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    for (size_t i = 0; status == 0 && i < *n; i++) {
        fit_shape(curves, &out[i], &telling);
    }
    gsl_set_error_handler(handler);
    return status;
}

struct table *curves_shapes(const struct curves *curves, const struct curve_fit *fits, size_t n) {
    struct table *table =
        table_open("shape|points|of|distance|stored distance|position_spread|stored "
                   "position_spread|gap|context|step_spread|off %|left out off %");
    for (size_t i = 0; i < n; i++) {
        const struct curve_fit *fit = &fits[i];
        table_add(table, "s i s %.4f %.4f %.4f %.4f %g %g %g %.1f %.1f", fit->shape,
                  (int64_t)fit->n, curves->points[fit->predicted[0].point].model,
                  fit->process.distance, fit->stored.distance, fit->process.position_spread,
                  fit->stored.position_spread, fit->process.gap, fit->process.context,
                  fit->process.step_spread, 100 * fit->misfit, 100 * fit->left_out);
    }
    return table;
}

struct table *curves_points(const struct curves *curves, const struct curve_fit *fits, size_t n) {
    struct table *table =
        table_open("shape|threshold|block|temperature|printed|stored|fitted|left out|how|source");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < fits[i].n; k++) {
            const struct curve_predicted *at = &fits[i].predicted[k];
            const struct curve_point *point = &curves->points[at->point];
            table_add(table, "s %.2f u %g %.2f %.2f %.2f %.2f s s", fits[i].shape,
                      point->at.threshold, point->at.block_tokens, point->at.temperature,
                      point->printed, at->stored, at->fitted, at->left_out, point->how,
                      point->source);
        }
    }
    return table;
}

size_t curves_numbers(const struct curve_fit *fits, size_t n, struct fitted_number *out) {
    static const char *const keys[] = {"distance", "position_spread", "delta_distance"};
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct decode_process *p = &fits[i].process;
        const double values[] = {p->distance, p->position_spread, p->delta_distance};
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            out[count] = (struct fitted_number){.key = keys[k], .value = values[k]};
            snprintf(out[count++].section, sizeof out->section, "%s", fits[i].shape);
        }
    }
    return count;
}
