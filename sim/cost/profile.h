/* A profile: measured operator times of one GPU, and the lookup that answers for sizes between and
 * beyond the measured ones.
 *
 * A file (kernels/profiles/<gpu>.csv) holds `# key: value` provenance lines and `operator,sizes,us`
 * rows; each operator's rows become one lattice, built once. Lookups are pure, allocate nothing and
 * return nanoseconds. Every answer says how it was found, so that a run can count what it guessed.
 * Asking for an operator the file lacks is our own mistake: call profile_require first. */
#ifndef UNMASK_SIM_COST_PROFILE_H
#define UNMASK_SIM_COST_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

struct lattice; /* sim/cost/profile_lattice.h */

enum profile_op {
    PROFILE_GEMM = 0,             /* m,n,k */
    PROFILE_ATTENTION_CAUSAL = 1, /* batch,q,kv,heads,kv_heads,head_dim */
    PROFILE_ATTENTION_DECODE = 2, /* the same with q = 1 */
    PROFILE_MOE = 3,              /* tokens,hidden,expert_ffn,top_k,experts */
    PROFILE_ELEMENTWISE = 4,      /* bytes read plus written */
    PROFILE_ALL_REDUCE = 5,       /* gpus,bytes */
    PROFILE_ALL_GATHER = 6,
    PROFILE_OPS = 7,
};

enum profile_match {
    PROFILE_EXACT = 0,        /* a measured row */
    PROFILE_INTERPOLATED = 1, /* between measured rows */
    PROFILE_EXTRAPOLATED = 2, /* beyond them: the nearest row's utilisation is held */
};

/* The data-sheet facts that turn times into utilisations. */
struct profile_peaks {
    double flops;     /* bf16 with fp32 accumulation, FLOP/s */
    double bandwidth; /* bytes/s */
    int64_t sms;      /* streaming multiprocessors */
};

/* A ragged batch seen through its sums over sequences. Lookups use the uniform batch that has the
 * same work: n_seqs sequences of q = sum_q / n_seqs queries over kv = sum_q_kv / sum_q keys. FLOPs
 * are then exact; a batch of very unequal lengths runs longer than this for want of balance. */
struct profile_spans {
    int64_t n_seqs;
    double sum_q, sum_kv, sum_q_kv;
    int64_t heads, kv_heads, head_dim;
};

struct profile;

/* Read the file at `path`, or `size` bytes of `text` under that name. The caller closes `*out`.
 * On error nothing needs releasing and `err` says "path:line: ...". */
int profile_open(const char *path, const struct profile_peaks *peaks, struct profile **out,
                 struct err *err);
int profile_parse(const char *path, const char *text, size_t size,
                  const struct profile_peaks *peaks, struct profile **out, struct err *err);
void profile_close(struct profile *profile);

/* "measured", "imported" or "transferred", and where the numbers come from. */
const char *profile_kind(const struct profile *profile);
const char *profile_source(const struct profile *profile);
const struct profile_peaks *profile_peaks(const struct profile *profile);

const char *profile_op_name(enum profile_op op);
bool profile_has(const struct profile *profile, enum profile_op op);

/* ERR_WORLD naming the operator and the file when the file has no row of it. */
int profile_require(const struct profile *profile, enum profile_op op, struct err *err);

/* [m x k] times [k x n], bf16. Needs PROFILE_GEMM. Sizes >= 1. */
double profile_gemm(const struct profile *profile, int64_t m, int64_t n, int64_t k,
                    enum profile_match *match);

/* Attention in which every query sees all keys of its span: a full bidirectional pass (q = kv), or
 * a block against cached keys (q < kv). Needs both attention operators. */
double profile_attention(const struct profile *profile, const struct profile_spans *spans,
                         enum profile_match *match);

/* The gate-up and down products of one mixture layer, routing included as measured. */
double profile_moe(const struct profile *profile, int64_t tokens, int64_t hidden,
                   int64_t expert_ffn, int64_t top_k, int64_t experts, enum profile_match *match);

/* One memory-bound pass that reads and writes `bytes` in all. */
double profile_elementwise(const struct profile *profile, int64_t bytes, enum profile_match *match);

/* PROFILE_ALL_REDUCE or PROFILE_ALL_GATHER of a message of `bytes` over `n_gpus` >= 2. */
double profile_collective(const struct profile *profile, enum profile_op op, int64_t n_gpus,
                          int64_t bytes, enum profile_match *match);

/* The operator's rows, NULL when it has none: for profile_check and transfer only. */
struct lattice *profile_lattice(struct profile *profile, enum profile_op op);

/* A copy of `donor` for another GPU with kind "transferred", whose lattices the caller (transfer.c)
 * rewrites and then hands to profile_refresh. NULL when memory ran out. */
struct profile *profile_copy(const struct profile *donor, const char *source,
                             const struct profile_peaks *peaks);

/* Recompute what is derived from the rows. false when memory ran out. */
bool profile_refresh(struct profile *profile);

#endif
