/* Fitting the decode processes of experiments/decode.ini to what FOCUS (arXiv 2601.23278) prints.
 *
 * A process is a shape, which the data sets of a model share, and a location of its own. The
 * location of each is the root at which plain block diffusion (32 positions, threshold 0.9) runs
 * as many tokens per decoded one as Table 5's baseline column says, the commit pass among them, or
 * decodes as many per step as Figure 2's ends. There are two shapes:
 *
 *   assumed   constants set before the first comparison and not changed since; only delta_noise is
 *             fitted, to the share of decodable tokens in the top quintile of deltas (Figure 12,
 *             HumanEval, taken to lie between Figure 2's ends). FOCUS's column is predicted.
 *   fitted    distance, position_spread and delta_noise by least squares to that share and to Table
 *             5's FOCUS column of SDAR-8B-Chat (threshold 0.8, alpha 1.5); delta_distance four
 * times distance. The FOCUS column of LLaDA2.0-mini is predicted.
 *
 * Those of LLaDA-MoE, fitted to what dInfer's paper prints, are in dinfer_fit.h.
 *
 * All by GSL (Brent's roots, Nelder and Mead's minimum), over common random numbers. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DECODE_FIT_H
#define UNMASK_EXPERIMENTS_STUDY_DECODE_FIT_H

#include <stdbool.h>
#include <stdio.h>

#include "analysis/paper/paper.h"
#include "experiments/study/fit.h"
#include "sim/decode/rollout.h"

/* What a process is fitted to: a row of experiments/paper/focus.csv. */
struct decode_target {
    const char *process; /* without the shape's suffix */
    const char *source, *model, *dataset, *system, *quantity;
    bool per_step;         /* the row counts tokens per step, else tokens run per decoded one */
    const char *workloads; /* that draw from the process of the fitted shape; NULL: none */
};
enum { N_DECODE_TARGETS = 8 };
extern const struct decode_target decode_targets[N_DECODE_TARGETS];

enum decode_shape { SHAPE_ASSUMED, SHAPE_FITTED, N_DECODE_SHAPES };
extern const char *const decode_shape_names[N_DECODE_SHAPES];

/* The assumed shape, its delta_noise and location not yet fitted. */
extern const struct decode_process decode_assumed;

/* "sdar-8b/math" or, of the fitted shape, "sdar-8b/math-focus". Returns `text`. */
const char *decode_process_name(const char *process, enum decode_shape shape, char *text,
                                size_t size);

/* The only row of that model and those words, or NULL; NULL words match anything. */
const struct paper_row *decode_row(const struct paper *paper, const char *source, const char *model,
                                   const char *dataset, const char *system, const char *quantity);

/* Sums over `n` requests of eight blocks. Other seeds than the fits' give other samples. */
struct rollout decode_sample(const struct decode_process *process, uint64_t seed,
                             const struct rollout_rule *rule, uint32_t n);

/* Plain block diffusion and FOCUS (alpha 1.5, released code) as the paper runs them, 32 positions,
 * at a threshold and a temperature of the logits. */
struct rollout_rule decode_plain(float threshold, double temperature);
struct rollout_rule decode_focus(float threshold, double temperature);

/* At what temperature a row was measured. FOCUS's Table 5 comes from its throughput benchmark,
 * which leaves LMDeploy its default of 0.8 and takes the most likely token (profile_throughput.py,
 * logits_process.py: the softmax behind the confidences sees the divided logits). Figure 2 and
 * Appendix B go by the quality runs, by Hugging Face's code at 1 (appendix F.1; sdar.py). */
double decode_temperature(const struct decode_target *to);

struct decode_fit {
    struct decode_process process; /* of the target, under the shape */
    double target, reached;        /* the printed number and what the sample of the fit gives */
};
struct decode_fits {
    struct decode_fit fit[N_DECODE_SHAPES][N_DECODE_TARGETS];
    double quintile_target, quintile[N_DECODE_SHAPES]; /* shares */
    double focus_target[N_DECODE_TARGETS];             /* NaN where there is none */
    double focus[N_DECODE_SHAPES][N_DECODE_TARGETS];
};

/* The location at which the process decodes `target` tokens a step under the rule or, where not
 * per_step, runs so many tokens per decoded one; common random numbers, GSL's errors off. */
double decode_location(const struct decode_process *process, const struct rollout_rule *rule,
                       bool per_step, double target);

/* The same sample as the fits'. */
struct rollout decode_fit_sample(const struct decode_process *process,
                                 const struct rollout_rule *rule);

/* Fit everything; two minutes. `paper` is focus.csv; a missing row is an error. */
int decode_fit_all(const struct paper *paper, struct decode_fits *out, struct err *err);

/* The table, stored constants (experiments/decode.ini) beside fitted ones. */
int decode_fit_print(const struct decode_fits *fits, FILE *out, struct err *err);

/* What of experiments/decode.ini was fitted: how many numbers of at most DECODE_FIT_NUMBERS. */
enum { DECODE_FIT_NUMBERS = N_DECODE_SHAPES * (4 + N_DECODE_TARGETS) };
size_t decode_fit_numbers(const struct decode_fits *fits, struct fitted_number *out);

#endif
