/* Fitting the decode processes of trained models to what is printed of them.
 *
 * A process is a shape, which models of one family share, and a location of its own.
 *
 *   shapes      decode_curve.h: one a family, fitted to published curves of tokens a pass
 *   locations   each row of experiments/study/locations.csv: the root at which the process of its
 * shape gives the printed number under the row's threshold, blocks, temperature and length of
 * answers. A row that is transferred stands where the row it is moved from stands, further by what
 * another task's two rows of those models differ by.
 *
 * Where two rows of a model list one workload, the first is drawn from; what it gives under the
 * conditions of the second, over what that prints, is its error.
 *
 * All by GSL (Brent's roots, Nelder and Mead's minimum), over common random numbers. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DECODE_FIT_H
#define UNMASK_EXPERIMENTS_STUDY_DECODE_FIT_H

#include <stdbool.h>
#include <stdio.h>

#include "experiments/run/cli/table.h"
#include "sim/decode/location.h"
#include "sim/decode/rollout.h"

/* Where fits begin: constants that were set before the first comparison, from what is known in
 * general. Its location is not fitted to anything. */
extern const struct decode_process decode_assumed;

/* Sums over `n` requests of eight blocks, of sixteen where a text ends before. Other seeds than the
 * fits' give other samples. */
struct rollout decode_sample(const struct decode_process *process, uint64_t seed,
                             const struct rollout_rule *rule, uint32_t n);

/* Plain block diffusion and FOCUS (alpha 1.5, released code) as FOCUS's paper runs them, 32
 * positions, at a threshold and a temperature of the logits. */
struct rollout_rule decode_plain(float threshold, double temperature);
struct rollout_rule decode_focus(float threshold, double temperature);

/* Block diffusion by threshold under the conditions, all of which must be said. */
struct rollout_rule decode_rule_at(const struct decode_conditions *at);

/* What a row counts, of a sample: positions run per decoded token, or tokens a denoising pass. */
double decode_counted(const struct rollout *sums, bool runs_per_token);

/* The location at which the process gives `target` under the rule, by a sample of `n` requests;
 * common random numbers, GSL's errors off. */
double decode_locate(const struct decode_process *process, const struct rollout_rule *rule,
                     bool runs_per_token, double target, uint32_t n);

/* Of the samples of all fits. */
uint64_t decode_fit_seed(void);

struct location_fit {
    struct decode_process process; /* of the row's shape, at the location that was found */
    double reached;                /* what the sample of the fit gives; NaN: transferred */
    char error[128]; /* what second sources print, and how far the process is off; "" */
};

/* Fits every row; four minutes. `out`: [locations->n]. `told`, where not NULL, hears of every row
 * that is done. */
int locations_fit(const struct locations *locations, void (*told)(void *state, size_t n_done),
                  void *state, struct location_fit *out, struct err *err);

/* The table: stored locations next to fitted ones. */
/* A row a process; to be closed. */
struct table *locations_table(const struct locations *locations, const struct location_fit *fits);

/* The file again, the locations and errors found in place of its own. */
int locations_write(const struct locations *locations, const struct location_fit *fits, FILE *out,
                    struct err *err);

#endif
