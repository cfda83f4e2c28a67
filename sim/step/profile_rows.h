/* The tables of measured times that a profile may hold (sim/price/profile/profile.h), and the sizes
 * by which each is asked. */
#ifndef UNMASK_SIM_STEP_PROFILE_ROWS_H
#define UNMASK_SIM_STEP_PROFILE_ROWS_H

#include <stdbool.h>

enum profile_op {
    PROFILE_GEMM = 0,             /* m,n,k */
    PROFILE_ATTENTION_CAUSAL = 1, /* batch,q,kv,heads,kv_heads,head_dim */
    PROFILE_ATTENTION_DECODE = 2, /* the same with q = 1 */
    PROFILE_MOE = 3,              /* tokens,hidden,expert_ffn,top_k,experts */
    PROFILE_ELEMENTWISE = 4,      /* bytes read plus written */
    PROFILE_ALL_REDUCE = 5,       /* gpus,bytes */
    PROFILE_ALL_GATHER = 6,
    PROFILE_ATTENTION_FULL = 7,  /* batch,q,heads,kv_heads,head_dim: every token sees its span */
    PROFILE_ATTENTION_BLOCK = 8, /* batch,q,kv,...: q queries see kv cached rows and their own q */
    PROFILE_PASS = 9,            /* NAME,channels,rows: see enum profile_pass */
    PROFILE_HEAD = 10,           /* rows,vocab,hidden: output head with argmax and confidence */
    PROFILE_GATE_UP = 11,        /* rows,gates_and_ups,hidden: both products, activation included */
    /* batch,q,kv,...: one call for a causal pass of q tokens and `batch` single queries over kv
       keys each, as FlashAttention's kernel for variable lengths takes them */
    PROFILE_ATTENTION_MIXED = 12,
    PROFILE_ATTENTION_PATTERN = 13, /* batch,q,kv,...: each of q queries sees kv of its span */
    /* batch,q,heads,...: blocks of keys chosen for q queries, the later half of the blocks also
       among themselves */
    PROFILE_PATTERN = 14,
    PROFILE_OPS = 15,
};

/* The types that rows were measured in: of what is stored, weights and cached rows, and after a
 * dash of what is multiplied with that where it is another. Bytes moved, and exchanges, have none.
 */
enum profile_type {
    PROFILE_BF16,
    PROFILE_F32,
    PROFILE_FP8,
    PROFILE_FP8_BF16,
    PROFILE_FP8_CHANNEL, /* fp8 with fp8, a scale for each row of both */
};
enum { PROFILE_TYPES = PROFILE_FP8_CHANNEL + 1 };

/* Whether it is of products between numbers that are both in fp8. */
static inline bool profile_type_is_fp8(enum profile_type type) {
    return type == PROFILE_FP8 || type == PROFILE_FP8_CHANNEL;
}

extern const char *const profile_type_words[PROFILE_TYPES + 1]; /* NULL ends them */

/* The memory-bound kernels that a profile of our own kernels holds by name, and what one row of
 * each is wide: embed, norm, add, moe_combine, pick and both of features the hidden size; rope (H +
 * 2 G) D; keep, select, pack and similarity G D; swiglu its output; sample, draw and softmax the
 * vocabulary;
 * moe_choose the experts; decode 1. */
enum profile_pass {
#define PASS(id, name) PASS_##id,
#include "sim/step/ops.def"
    PROFILE_PASSES
};

#endif
