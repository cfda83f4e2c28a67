/* Operators on the engine's side: how each is launched, what it needs packed, and what calibration
 * measures of it.
 *
 * One const descriptor an operator, `op_launch_FILE` in engine/op, for each row of
 * sim/step/ops.def: one that is forgotten does not link. Steps, warming up and calibration launch
 * operators through their descriptors and in no other way; none of them asks which operator it has.
 */
#ifndef UNMASK_ENGINE_OP_OP_H
#define UNMASK_ENGINE_OP_OP_H

#include "sim/base/err.h"
#include "sim/step/graph.h"

struct launch;
struct points;
struct trial;
struct calibration_point;

#define OP_OVER(symbol) (UINT64_C(1) << (symbol))
#define OP_OVER_TOKENS  (OP_OVER(SYM_TOKENS) | OP_OVER(SYM_KEPT_TOKENS) | OP_OVER(SYM_LOGIT_ROWS))
/* Besides these, where the graph keeps features. */
#define OP_OVER_STREAM (OP_OVER(SYM_FIRST_TOKENS) | OP_OVER(SYM_PROJECTED_VALUES))
_Static_assert(SYM_COUNT <= 64, "a bit for each symbol");

/* Facts of an operator that a step is prepared by. */
enum op_fact {
    OP_IS_LAYER = 1,       /* each layer has one: the attention of its fresh tokens */
    OP_IS_PAGED = 2,       /* keys and values are exact: they lie in pages */
    OP_SELECTS = 4,        /* spans may select rows */
    OP_EVICTS = 8,         /* here tokens leave the step */
    OP_GIVES_CREDIT = 16,  /* logit rows have places */
    OP_SMOOTHS = 32,       /* the same, and tokens, whose step is counted */
    OP_COMMITS = 64,       /* decides, by the candidates that are its first input */
    OP_READS_LOGITS = 128, /* its first input is stored logits */
    OP_CHOOSES_EXPERTS = 256,
    OP_IS_EXCHANGE = 512, /* all ranks take part */
    /* The device may choose how to run it by trying (device_table's linear_chosen). */
    OP_IS_PRODUCT = 1024,
    OP_IS_CHOSEN_ALONE = 2048, /* and its choice follows from no other's */
    OP_DRAWS = 4096,           /* logit rows have random numbers */
    OP_PICKS = 8192,           /* features are kept: here it is said which rows go on */
    OP_PATTERNS = 16384,       /* patterns are kept: here they are chosen */
    OP_JOINS = 32768,          /* leading layers end: from here on other tokens run */
};

/* Measurement order: light operators first, so that few groups wait until the device's clock is
 * stable under load. */
enum op_weightiness { OP_LIGHT, OP_MIDDLING, OP_HEAVY };
enum { OP_WEIGHTS = OP_HEAVY + 1 };

/* The rows at which calibration measures an operator. */
enum op_sizes {
    OP_SIZES_UNKNOWN, /* it cannot be measured */
    OP_SIZES_NONE,    /* it is measured with another, or too little to measure */
    OP_SIZES_OWN,     /* `points` says */
    OP_SIZES_PASS,
    OP_SIZES_PRODUCT,
};

struct op_launch {
    /* Returns what the device says, the first status that is not DEVICE_OK. NULL: the engine does
     * not run the operator, and why. */
    int (*launch)(const struct launch *l);
    const char *why_not;
    unsigned facts;   /* of enum op_fact */
    uint64_t symbols; /* that it may run over, a bit each; 0: tokens, kept ones, logit rows */
    /* ERR_USAGE for operators of the kind that are not run; NULL: all are. */
    int (*check)(const struct graph *graph, const struct op *op, struct err *err);
    /* Products: whether the device has chosen how to run this instance. */
    bool (*is_chosen)(const struct launch *l);
    /* What calibration measures: the operator's rows of a profile, as sim/step names them, at these
     * sizes; and `points` adds others. */
    enum op_sizes sizes;
    void (*points)(struct points *points, const struct op *op);
    /* The requests that it is measured with; NULL: as many tokens as rows, all with logits. */
    void (*fill)(struct trial *trial, const struct calibration_point *point);
    uint32_t n_measured; /* operators that a row is of, this one first; 0: 1 */
    bool falls;          /* the largest sizes come first */
    enum op_weightiness weightiness;
    /* Measured alone it reads what the operator that writes its second input last wrote; so do
     * operators over picked rows what lists these. */
    bool reads_indices;
    bool wears; /* in place: repeated timing runs underflow */
};

#define OP(id, file, name) extern const struct op_launch op_launch_##file;
#include "sim/step/ops.def"
extern const struct op_launch *const op_launches[OP_KIND_COUNT];

static inline const struct op_launch *op_launch_of(const struct op *op) {
    return op_launches[op->kind];
}

/* The facts of all operators of a graph together; the first operator with one of these, or NULL. */
unsigned op_facts(const struct graph *graph);
const struct op *op_with(const struct graph *graph, unsigned facts);

/* ERR_USAGE naming the operator if the engine does not run it. */
int op_check(const struct graph *graph, const struct op *op, struct err *err);
int op_refuse(const struct op *op, const char *why, struct err *err); /* why may be NULL */

#endif
