/* A decode process fitted to measured decisions, and judged by others.
 *
 * Decode traces that devices wrote say how sure a model was of every position. The process
 * (sim/decode/process.h) is fitted to the requests at even places of some of them: its rollouts
 * under each trace's own rule shall have the measured tokens a pass, and the measured shares of
 * positions at or above six confidences, in first passes of blocks and in later ones, by what is
 * masked before them; then, where a trace says importances, the measured commits by quintile of
 * delta and tokens run; and, where a trace is of iteration smoothing, the measured tokens a pass by
 * its gain (sim/decode/smooth.h). It is judged by the requests at odd places of these traces and of
 * others, with their prompts' and answers' lengths, which are given.
 *
 * For comparison: what was done before there were measurements, the assumed shape (decode_fit.h),
 * of which the location alone is fitted, to the tokens a pass of the first trace. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DECODE_MEASURED_H
#define UNMASK_EXPERIMENTS_STUDY_DECODE_MEASURED_H

#include <jansson.h>

#include "experiments/study/decode_facts.h"

enum { MEASURED_MOST_TRACES = 32 };

/* A trace that a process was fitted to or is judged by. */
struct measured_trace {
    const char *path;
    bool is_fitted; /* its even half was; else it is judged alone */
    struct decode_trace *trace;
    struct rollout_rule rule;
    struct decode_facts even, odd;       /* as measured */
    struct decode_facts fitted, assumed; /* the odd half as the processes have it */
    double shift; /* of all logits of the fitted process, at which it would have the measured yield;
                     NaN: it counts */
};

struct measured {
    struct measured_trace traces[MEASURED_MOST_TRACES]; /* those fitted first */
    size_t n;
    struct decode_process fitted, assumed;
    double gain; /* what iteration smoothing does to logits, fitted; NaN: to no trace */
};

/* Reads the traces, fits and judges; a minute at most. `process` not NULL: nothing is fitted, that
 * process is judged, located by the first trace. ERR_WORLD closes everything. */
int measured_open(const struct decode_process *process, const char *const *fit_paths, size_t n_fit,
                  const char *const *judge_paths, size_t n_judge, struct measured *out,
                  struct err *err);
/* Whether its decoder commits a number that is known before the pass, whatever the model is sure
 * of: its tokens a pass say nothing of a process. */
bool measured_counts(const struct measured_trace *trace);
void measured_close(struct measured *measured);

/* The error of the fitted process over all traces: largest and root mean square of the relative
 * error of tokens a pass, of tokens run for a decoded one where a trace is of block diffusion, and
 * in shares of commits by quintile. NaN where no trace says. */
struct measured_error {
    double most_yield, rms_yield, most_cost, most_quintile;
};
struct measured_error measured_error(const struct measured *measured);

void measured_print(const struct measured *measured, FILE *out);
json_t *measured_json(const struct measured *measured);
/* As a section `name` of a file that decode_process_read reads. */
void measured_write(const struct measured *measured, const char *name, FILE *out);

#endif
