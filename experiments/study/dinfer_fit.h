/* Fitting the decode processes of LLaDA-MoE and of the model distilled from it (LLaDA-MoE-TD) to
 * what dInfer (arXiv 2510.08666) prints.
 *
 * One process a benchmark, of the assumed shape. The location of each is the root at which
 * Fast-dLLM's decoder, threshold 0.9, commits as many tokens in a forward pass (TPF) as Table 1
 * says of Fast-dLLM without a KV cache. Blocks have 64 positions, as in dInfer's evaluation guide;
 * what blocks the baseline had is not printed, and assumed to be the same. What dInfer's own rows
 * print is predicted.
 *
 * How long the answers were is not printed. The baseline's benchmark runs a canvas of 1024
 * positions to its end (early_stop=False) and counts what is not the end-of-text token, so that
 * short answers lower its TPF by passes over empty blocks. Processes of LLaDA-MoE whose names end
 * in -200 are fitted to the same rows as if every answer had 200 tokens: the other end of the
 * range.
 *
 * Of the distilled model Table 2 prints dInfer with a KV cache alone. One number of it is used, the
 * TPF of GSM8K, under a threshold of 0.8: how much further right than LLaDA-MoE's location it
 * stands is a shift that holds for every benchmark, assumed; the other five rows are predicted. The
 * shift has in it what stale rows of the cache cost on GSM8K, which no process knows. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DINFER_FIT_H
#define UNMASK_EXPERIMENTS_STUDY_DINFER_FIT_H

#include "experiments/study/decode_fit.h"

struct dinfer_target {
    const char *process, *dataset, *distilled; /* processes of LLaDA-MoE and of LLaDA-MoE-TD */
    const char *short_process; /* of LLaDA-MoE with answers of DINFER_SHORT_ANSWER tokens */
};
enum { N_DINFER_TARGETS = 6, DINFER_GSM8K = 1, DINFER_SHORT_ANSWER = 200 };
extern const struct dinfer_target dinfer_targets[N_DINFER_TARGETS];

/* The decoders that are compared. Thresholds of dInfer's are those of its evaluation guide (0.8)
 * and of its script for the hierarchical one; credit goes with the guide's. Which of them the
 * printed rows are of is not said. */
enum dinfer_decoder {
    DINFER_FAST_DLLM,    /* threshold 0.9 */
    DINFER_THRESHOLD,    /* 0.8 */
    DINFER_HIERARCHICAL, /* 0.92 and 0.62 */
    DINFER_CREDIT,       /* 0.8 */
    N_DINFER_DECODERS,
};
struct rollout_rule dinfer_rule(enum dinfer_decoder decoder);

/* By target. Of the distilled model, `target` is what Table 2 prints and `reached` what dInfer's
 * threshold of 0.8 gives. */
struct dinfer_fits {
    struct decode_fit base[N_DINFER_TARGETS], distilled[N_DINFER_TARGETS];
    struct decode_fit of_short[N_DINFER_TARGETS];
};

/* `paper` is dinfer.csv, a missing row is an error. */
int dinfer_fit_all(const struct paper *paper, struct dinfer_fits *out, struct err *err);

/* The TPF of a benchmark in Table 1, or NULL; the distilled model's in Table 2. */
const struct paper_row *dinfer_row(const struct paper *paper, const char *dataset,
                                   const char *system, const char *setting);
const struct paper_row *dinfer_distilled_row(const struct paper *paper, const char *dataset);

/* As decode_fit_print and decode_fit_numbers, at most DINFER_FIT_NUMBERS of them. */
enum { DINFER_FIT_NUMBERS = 4 * N_DINFER_TARGETS };
int dinfer_fit_print(const struct dinfer_fits *fits, FILE *out, struct err *err);
size_t dinfer_fit_numbers(const struct dinfer_fits *fits, struct fitted_number *out);

#endif
