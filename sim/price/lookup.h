/* Look-ups: which rows of which profile say what an operator of a graph takes, found once, when a
 * cost model is opened, and the price of one execution by them.
 *
 * Everything that depends on the operator comes from its descriptor (sim/step/op.h). */
#ifndef UNMASK_SIM_PRICE_LOOKUP_H
#define UNMASK_SIM_PRICE_LOOKUP_H

#include "sim/price/price.h"

/* Inputs that all operators of a cost model share. */
struct lookup_shared {
    const struct gpu *gpu;
    const struct runtime *runtime;
    const struct graph *graph;
    const struct expert_routing *routing;
};

enum { LOOKUP_MAX_STEPS = 16 };

struct lookup {
    const struct lookup_shared *of;
    const struct op *op;
    const struct op_type *type;
    const struct profile *profile; /* rows that answer, of its type; NULL: roofline */
    enum provenance_kind kind;     /* of that profile */
    bool is_ours;                  /* it holds steps of our own engine, if only transferred ones */
    bool is_behind;                /* it is the second profile */
    bool is_included;              /* the rows of a mixture's experts have the operator in them */
    bool is_absent;                /* the operator before it has it in its time */
    enum profile_op table;         /* the operator's, or what the profile has instead */
    bool has_own;                  /* the profile has that table, or the operator's pass */
    bool has_bytes;                /* it has passes by the bytes that they move */
    const struct profile *passes;  /* the file's rows of passes whose numbers are no fp8 */
    bool passes_have_bytes, has_activation; /* the same of them, and that of an activation */
    double plain_row_bytes;                 /* of a product (op_plain_row_bytes) */
    struct op_pass pass;
    struct profile_layouts layouts;   /* of attention's heads */
    const struct correction *in_step; /* the profile's corrections; NULL without a profile */
    int correction;                   /* the operator's curve among them; -1: none of its own */
    struct profile_peaks peaks;       /* the profile's, or the GPU's */
    double reached_bandwidth;         /* that memory is read at, bytes/s */
    /* Which steps of the ladder can change such a price, in their order (sim/price/ladder.h). */
    uint8_t steps[LOOKUP_MAX_STEPS];
    uint32_t n_steps;
};

/* Of an operator of a mixture's experts. */
static inline struct moe_shape lookup_moe_shape(const struct lookup *l) {
    const struct model *model = l->of->graph->model;
    return (struct moe_shape){model->hidden, model->expert_ffn, l->op->experts_active,
                              l->op->experts};
}

/* Whether a profile has measured the operator as it is in the graph; whether it has rows to price
 * such an operator by, of whatever size. */
bool lookup_is_measured(const struct profile *profile, const struct graph *graph,
                        const struct op *op);
bool lookup_is_answered(const struct profile *profile, const struct graph *graph,
                        const struct op *op);

/* profile_require's sentence where the operator cannot be priced without rows that are missing; 0
 * where they are of another type than the file's own: roofline prices such operators. */
int lookup_require(const struct profile *profile, const struct graph *graph, const struct op *op,
                   struct err *err);

/* Takes from `profile`, which may be NULL, the rows of the operator's type. */
void lookup_open(struct lookup *lookup, const struct lookup_shared *of, const struct op *op,
                 const struct profile *profile, bool is_behind);

/* Finds its steps, the last thing in opening it. */
void lookup_take_steps(struct lookup *lookup);

/* Whether an unmeasured link is priced: by the model of its kind (sim/price/link.h). */
bool lookup_is_assumed(const struct lookup *lookup);

/* Experts of a layer that n_tokens tokens hit, as the price assumes; NAN where it takes those of
 * the measured rows. */
double lookup_experts_hit(const struct lookup *lookup, double n_tokens);

/* Work of the operator in `n_steps` steps whose symbols sum to `sym`, its repetitions aside. */
void lookup_work(const struct lookup *lookup, const int64_t sym[SYM_COUNT], double n_steps,
                 struct op_work *out);

#endif
