/* Ranks: one model held by several GPUs of one host together (tensor and expert parallelism).
 *
 * A rank is itself a model: the same layers over fewer heads, a part of every FFN's width or of the
 * experts, and a part of the output head's vocabulary, so that graph, price, plan and engine need
 * not know more. What ranks hold in full: embedding, norms, routers, and where there are fewer
 * key-value heads than ranks, those. Ranks meet where a product was summed over what they divided:
 * after attention's output projection and after the FFN (all-reduce, sim/step/builder.h), and at
 * the head, for each row's best token, largest logit and sum (all-gather); besides, where heads
 * decide together, for what each rank's heads contribute to a token: FOCUS's importance,
 * Sparse-dLLM's scores. The embedding is held in full, V x C weights a rank, so that looking a
 * token up needs no other rank; a tied output head is its rank's rows of it. */
#ifndef UNMASK_SIM_MODEL_RANKS_H
#define UNMASK_SIM_MODEL_RANKS_H

#include "sim/model/model.h"

enum { MAX_RANKS = 8 };

/* One rank's share of `whole` held by `ranks` GPUs. experts: routed experts are divided, each kept
 * whole; else the width of every expert. ERR_USAGE when it cannot be divided so. `whole` itself has
 * not been divided; 1 rank is the whole. */
int model_divide(const struct model *whole, uint32_t ranks, bool experts, struct model *rank,
                 struct err *err);

/* GPUs that hold the model together, 1 where it was not divided. */
static inline uint32_t model_ranks(const struct model *model) {
    return model->ranks > 0 ? model->ranks : 1;
}

/* Tokens that all ranks know: rows of the embedding. */
static inline uint32_t model_whole_vocab(const struct model *model) {
    return model->whole_head ? model->vocab : model->vocab * model_ranks(model);
}

/* A rank that was divided takes the whole output head back (struct model.whole_head). */
void model_take_whole_head(struct model *rank);

/* The first of a rank's key-value heads among all of them. */
static inline uint32_t model_first_kv_head(const struct model *model, uint32_t rank) {
    return rank / (model->kv_copies > 0 ? model->kv_copies : 1) * model->kv_heads;
}

/* All routed experts, wherever they are: a router has as many outputs. */
static inline uint32_t model_routed_experts(const struct model *model) {
    return model->experts * (model->expert_ranks > 0 ? model->expert_ranks : 1);
}

/* The first of a rank's experts among all of them. */
static inline uint32_t model_first_expert(const struct model *model, uint32_t rank) {
    return model->expert_ranks > 1 ? rank * model->experts : 0;
}

/* The most experts that one token may ask of the rank. */
static inline uint32_t model_most_active(const struct model *model) {
    return model->experts_active * (model->expert_ranks > 0 ? model->expert_ranks : 1);
}

#endif
