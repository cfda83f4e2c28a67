/* Fitting the decode processes of LLaDA-MoE to what dInfer (arXiv 2510.08666) prints of its
 * baseline.
 *
 * One process a benchmark, of the assumed shape. The location of each is the root at which
 * Fast-dLLM's decoder, threshold 0.9, commits as many tokens in a forward pass (TPF) as Table 1
 * says of Fast-dLLM without a KV cache. Blocks have 64 positions, as in dInfer's evaluation guide;
 * what blocks the baseline had is not printed, and assumed to be the same. What dInfer's own rows
 * print is predicted. */
#ifndef UNMASK_EXPERIMENTS_DINFER_FIT_H
#define UNMASK_EXPERIMENTS_DINFER_FIT_H

#include "experiments/decode_fit.h"

struct dinfer_target {
    const char *process, *dataset;
};
enum { N_DINFER_TARGETS = 6 };
extern const struct dinfer_target dinfer_targets[N_DINFER_TARGETS];

/* The decoders that are compared. Thresholds of dInfer's are those of its evaluation guide (0.8)
 * and of its script for the hierarchical one; credit goes with the guide's. Which of them the
 * printed rows are of is not said. */
enum dinfer_decoder {
    DINFER_FAST_DLLM, /* threshold 0.9 */
    DINFER_THRESHOLD,
    DINFER_HIERARCHICAL,
    DINFER_CREDIT,
    N_DINFER_DECODERS,
};
extern const char *const dinfer_decoder_names[N_DINFER_DECODERS];
struct rollout_rule dinfer_rule(enum dinfer_decoder decoder);

/* Fits by target; `paper` is dinfer.csv, a missing row is an error. */
int dinfer_fit_all(const struct paper *paper, struct decode_fit *out, struct err *err);

/* The printed TPF of a benchmark, or NULL. */
const struct paper_row *dinfer_row(const struct paper *paper, const char *dataset,
                                   const char *system, const char *setting);

/* As decode_fit_print and decode_fit_write. */
int dinfer_fit_print(const struct decode_fit *fits, FILE *out, struct err *err);
void dinfer_fit_write(const struct decode_fit *fits, FILE *file);

#endif
