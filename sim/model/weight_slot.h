/* The matrices and vectors of a model, one slot each: what an operator of the step graph reads, and
 * what the engine's weights are laid out by. */
#ifndef UNMASK_SIM_MODEL_WEIGHT_SLOT_H
#define UNMASK_SIM_MODEL_WEIGHT_SLOT_H

/* Shapes: C hidden, H and G query and key-value heads of size D, F the SwiGLU width, V vocabulary;
 * E experts of width F', S the width of all shared experts together. One rank of several that hold
 * a model together has its heads of queries, keys and values and its part of the widths and the
 * vocabulary; embedding and routers are everyone's in full (sim/model/ranks.h). */
enum weight_slot {
    /* One of each. */
    WEIGHT_EMBEDDING,  /* [V, C], of all ranks */
    WEIGHT_FINAL_NORM, /* [C] */
    WEIGHT_HEAD,       /* [V, C]; a tied model's lies in its embedding */
    /* Where the last step's predictions are added to the input. */
    WEIGHT_CONDITIONING_NORM,    /* [C] */
    WEIGHT_CONDITIONING_GATE_UP, /* as WEIGHT_GATE_UP, of their own width */
    WEIGHT_CONDITIONING_DOWN,
    /* One of each a layer. */
    WEIGHT_ATTENTION_NORM, /* [C] */
    WEIGHT_QKV,            /* [(H + 2 G) D, C]: queries, keys, values */
    WEIGHT_QKV_BIAS,       /* [(H + 2 G) D], where the model has biases */
    WEIGHT_Q_NORM,         /* [D], where the model normalises its heads */
    WEIGHT_K_NORM,         /* [D] */
    WEIGHT_OUTPUT,         /* [C, H D] */
    WEIGHT_FFN_NORM,       /* [C] */
    /* Where outputs are normed, and what of a mixture besides. */
    WEIGHT_ATTENTION_OUTPUT_NORM, /* [C] */
    WEIGHT_FFN_OUTPUT_NORM,       /* [C] */
    /* A dense layer's alone. */
    WEIGHT_GATE_UP, /* [2 F, C]: the gates, then the ups */
    WEIGHT_DOWN,    /* [C, F] */
    /* A mixture's alone. */
    WEIGHT_ROUTER,          /* [E, C], all that the router knows, as the bias */
    WEIGHT_EXPERT_BIAS,     /* [E], where the router has one; in float32, whatever the dtype */
    WEIGHT_EXPERTS_GATE_UP, /* [E, 2 F', C]: an expert's gates, then its ups */
    WEIGHT_EXPERTS_DOWN,    /* [E, C, F'] */
    WEIGHT_SHARED_GATE_UP,  /* [2 S, C], where experts are shared */
    WEIGHT_SHARED_DOWN,     /* [C, S] */
    WEIGHT_EXPERT_NORM,     /* [C], and those of what they and the shared ones give */
    WEIGHT_EXPERT_OUTPUT_NORM,
    WEIGHT_SHARED_OUTPUT_NORM,
};
enum { WEIGHT_NONE = -1, WEIGHT_SLOT_COUNT = WEIGHT_SHARED_OUTPUT_NORM + 1 };

#endif
