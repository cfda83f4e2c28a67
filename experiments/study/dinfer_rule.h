/* The decoders that dInfer (arXiv 2510.08666) compares, in blocks of 64 positions as in its
 * evaluation guide. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DINFER_RULE_H
#define UNMASK_EXPERIMENTS_STUDY_DINFER_RULE_H

#include "sim/decode/rollout.h"

/* Of Fast-dLLM the threshold is the default of the script that dInfer's repository runs it by
 * (benchmarks/benchmark_dataset_fastdllm.py at eecb211 and fce4e32: 0.95, block_length 64), of
 * dInfer's own that of its evaluation guide (0.8) and of its script for the hierarchical one;
 * credit goes with the guide's. Which of them the printed rows are of is not said. */
enum dinfer_decoder {
    DINFER_FAST_DLLM,    /* threshold 0.95 */
    DINFER_THRESHOLD,    /* 0.8 */
    DINFER_HIERARCHICAL, /* 0.92 and 0.62 */
    DINFER_CREDIT,       /* 0.8 */
    N_DINFER_DECODERS,
};
struct rollout_rule dinfer_rule(enum dinfer_decoder decoder);

#endif
