/* The shapes of decode processes, fitted to published curves.
 *
 * experiments/study/paper/decode_curves.csv has tokens a denoising pass of trained models over
 * threshold and block size, printed or read off a figure's vector path, nothing of which any figure
 * of experiments/study/studies is scored against. The rows of a shape are of one model; the first
 * is where it is located. Two constants are fitted, by least squares of logarithms: how far known
 * context reaches (distance) and how much positions differ (position_spread). Gap, context and
 * step_spread stay as assumed, and deltas fall with distance as logits do.
 *
 * A shape's error is that of leave-one-out cross-validation: each point is predicted by a fit to
 * the others. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DECODE_CURVE_H
#define UNMASK_EXPERIMENTS_STUDY_DECODE_CURVE_H

#include <stdio.h>

#include "experiments/run/cli/table.h"
#include "experiments/study/fit.h"
#include "sim/decode/location.h"

enum { CURVE_MOST_POINTS = 32, CURVE_MOST_SHAPES = 8 };

struct curve_point {
    const char *shape, *model, *how, *source; /* borrowed from the table */
    struct decode_conditions at;
    double printed; /* tokens a pass */
};

struct curves {
    struct csv csv;
    struct curve_point points[CURVE_MOST_POINTS];
    size_t n;
};

/* A bad row is a sentence with file and line. The path is borrowed. */
int curves_open(const char *path, struct curves *out, struct err *err);
void curves_close(struct curves *curves);

/* What a process gives at a point once it is located at the first point of the same shape, by
 * samples of as many positions as `n` requests of blocks of 32 have. */
double curve_gives(const struct curves *curves, size_t point, const struct decode_process *process,
                   uint32_t n);

struct curve_fit {
    char shape[32];
    struct decode_process process, stored; /* fitted; of experiments/study/decode.ini */
    struct curve_predicted {
        size_t point;
        /* Tokens a pass: of the fit, of the stored shape, of a fit without this point. */
        double fitted, stored, left_out;
    } predicted[CURVE_MOST_POINTS];
    size_t n;
    double misfit, left_out; /* root mean squares of the logarithms of ours over printed */
};

/* A fit for each shape of the table, in its order; minutes. Returns how many in `*n`. */
int curves_fit(const struct curves *curves, void (*told)(void *state, size_t n_done), void *state,
               struct curve_fit out[CURVE_MOST_SHAPES], size_t *n, struct err *err);

/* What was fitted, a row a shape, and each point as it was printed, as the stored and the fitted
 * shape give it, and as a fit without it does. To be closed. */
struct table *curves_shapes(const struct curves *curves, const struct curve_fit *fits, size_t n);
struct table *curves_points(const struct curves *curves, const struct curve_fit *fits, size_t n);

/* The numbers of experiments/study/decode.ini that were fitted: 3 a shape. */
size_t curves_numbers(const struct curve_fit *fits, size_t n, struct fitted_number *out);

#endif
