/* Model architectures, and what follows from them by arithmetic.
 *
 * A model is a file of sim/model/models: shapes read from the models' configuration files or from
 * the graph builders of public serving code; "U" in a source marks a shape taken over from the
 * model it was trained from. Sizes are in tokens, channels, heads or bytes; what a number takes is
 * said by a struct storage. */
#ifndef UNMASK_SIM_MODEL_MODEL_H
#define UNMASK_SIM_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/input/catalogue.h"
#include "sim/model/storage.h"

enum attention_mask {
    MASK_BIDIRECTIONAL, /* every position sees the whole canvas */
    MASK_BLOCK_CAUSAL,  /* a block sees itself and the blocks before it */
    MASK_CAUSAL,        /* autoregressive: block size 1 */
};
enum { ATTENTION_MASK_COUNT = MASK_CAUSAL + 1 };
extern const char *const attention_mask_names[ATTENTION_MASK_COUNT + 1];

/* Autoregressive models have none. */
#define NO_MASK_TOKEN UINT32_MAX

/* Softmax: the most probable of all experts. Sigmoid grouped: the highest scores, plus a bias that
 * chooses but does not weigh, within the groups of experts that score best. */
enum router_kind { ROUTER_NONE, ROUTER_SOFTMAX, ROUTER_SIGMOID_GROUPED };
enum { ROUTER_KIND_COUNT = ROUTER_SIGMOID_GROUPED + 1 };
extern const char *const router_kind_names[ROUTER_KIND_COUNT + 1];

/* Which experts the tokens of a block may choose: all; those of the largest scores that any of its
 * tokens gives (LLaDA2.2); those that its tokens' own choices give most, up to a share of what they
 * give all (dMoE). */
enum block_routing { BLOCK_ROUTING_NONE, BLOCK_ROUTING_LARGEST, BLOCK_ROUTING_SHARE };
enum { BLOCK_ROUTING_COUNT = BLOCK_ROUTING_SHARE + 1 };
extern const char *const block_routing_names[BLOCK_ROUTING_COUNT + 1];

struct model {
    const char *name, *path, *unread; /* as struct catalogued has them */
    const char *title, *source;
    const char *family; /* of sim/model/families; NULL: the engine has no weights */
    /* Of a checkpoint's config.json: which of model_params it states, a bit each, and what its
     * family assumed instead of the others, in words. */
    uint64_t stated;
    const char *assumed;
    const char *architecture; /* that it names and no family has: `family` is its model_type's; or
                                 NULL */
    const char *quantised;    /* of number_words, what it says that products read; or NULL */
    const char *note; /* what a run of it has to say of the attention that was taken; or NULL */
    uint32_t layers, hidden, heads, kv_heads, head_dim;
    uint32_t rotary_dim; /* how many of a head's first channels are rotated; 0: all */
    /* Of every global_every-th layer, which sees all that the mask allows: its heads, and whether
     * its values are its keys before their norm and rotation, so that it has no weights for them.
     * The other layers, with the heads above, are local: a query sees the last `local_window`
     * positions. 0: all layers are alike, and see everything. */
    uint32_t local_window, global_every, global_kv_heads, global_head_dim;
    bool global_values_are_keys;
    uint32_t ffn;   /* SwiGLU width of a dense layer; 0 where every layer is a mixture */
    uint32_t vocab; /* rows of the output projection */
    uint32_t max_positions;
    uint32_t mask_token; /* id that stands for a position not yet committed; NO_MASK_TOKEN */
    uint32_t delete_token, insert_token; /* ids by which its canvas moves; 0: it has none */
    bool qk_norm, qkv_bias, tied, shifted_logits;
    /* What attention and FFN give is normed as well before it is added, and in a mixture what the
     * experts read, what they give, and what is shared (Gemma 4). */
    bool output_norms;
    bool gelu;            /* gates of FFNs are gelu by tanh, not silu */
    double logit_softcap; /* logits are cap tanh(logits / cap); 0: as they are */
    /* Positions that are not decided hold random tokens, no mask; and what the step before expected
     * of them, an embedding each, goes through a gated FFN of this width into their input
     * (self-conditioning); 0: it does not. */
    bool uniform_noise;
    uint32_t conditioning_ffn;
    bool causal_prompt; /* block-causal: blocks begin where the prompt ends, and what is before the
                           block sees no further than itself */
    /* What the engine computes with and no price depends on; 0: as the family has it. */
    double rope_theta, norm_epsilon;
    double rope_factor, rope_low_factor, rope_high_factor, rope_original_positions;
    enum attention_mask mask;
    uint32_t block_tokens; /* the block size its speed papers use */
    /* Mixture of experts; all 0 for dense models. */
    enum router_kind router;
    uint32_t experts, experts_active, expert_ffn, shared_experts, shared_ffn;
    /* Experts of a layer that the tokens of one block hit, as printed; 0: not known. */
    double block_experts_hit, two_blocks_experts_hit;
    const char *block_experts_hit_source;
    enum block_routing block_routing;
    uint32_t block_experts;    /* largest: experts of a block; share: the fewest */
    double block_expert_share; /* share: of what its tokens give all experts */
    double share_experts_hit;  /* share: those that a block hits, as printed; 0: not known */
    /* Leading layers whose keys and values of a shared prefix are much the same by itself and in
     * its canvas, where it has that share of it (BiCache); 0: not measured. */
    uint32_t prefix_layers;
    double prefix_share;
    uint32_t dense_layers;                        /* first layers that are not mixtures */
    uint32_t expert_groups, expert_groups_active; /* 1 and 1 where experts are not grouped */
    bool expert_bias;    /* added to the router's scores for the choice alone */
    bool norm_topk;      /* the chosen experts' weights are divided by their sum */
    double routed_scale; /* and then multiplied by this */
    /* One rank's share (sim/model/ranks.h): how many GPUs hold the model together, and among how
     * many the experts are divided, and on how many of them each key-value head stands, one of
     * global layers, too; heads, widths, vocabulary and experts above are then the rank's. 0: all
     * of the model. */
    uint32_t ranks, expert_ranks, kv_copies, global_kv_copies;
    bool whole_head; /* but the vocabulary is not divided: each rank has the whole output head */
};

/* The keys of a model's file, besides its texts. */
extern const struct param model_params[];
extern const size_t model_n_params;

/* The model of that name, or of the file at that path: an INI file, a Hugging Face config.json, or
 * a folder with one. NULL, and a sentence naming the nearest
 * known model or what is wrong in the file. */
const struct model *model_find(const char *name, struct err *err);

/* All of the data folder, by name; NULL after the last. NULL and a sentence on an error. */
const struct model *const *model_all(struct err *err);

/* The model of the data folder that a checkpoint's config.json describes, or `config` itself. NULL
 * and a sentence where the folder's cannot be read. */
const struct model *model_recognise(const struct model *config, struct err *err);

/* Whether all products, experts and heads of one have the sizes of the other's: the same operators,
 * whatever they decode. */
bool model_has_shape_of(const struct model *model, const struct model *other);

/* What has to hold between a model's values; `place` begins the sentence about what does not. */
int model_check(const struct model *model, const char *place, struct err *err);

/* Parameters: all of them; those of the trunk that one token passes through; the output head. A
 * rank's are those that it holds. */
int64_t model_parameters(const struct model *model);
int64_t model_trunk_active_parameters(const struct model *model);
int64_t model_head_parameters(const struct model *model);

/* All of them as they are stored, an embedding's copy on every rank counted as model_parameters
 * does.
 */
int64_t model_weights_bytes(const struct model *model, const struct storage *storage);

/* Channels of a head that are rotated, and the first layer that is a mixture (the number of layers
 * where none is). */
static inline uint32_t model_rotary_dim(const struct model *model) {
    return model->rotary_dim > 0 ? model->rotary_dim : model->head_dim;
}

static inline uint32_t model_first_mixture(const struct model *model) {
    return model->experts > 0 ? model->dense_layers : model->layers;
}

/* Different experts that n_tokens tokens go to where each token's choice is random, whatever the
 * others': E (1 - (1 - A / E)^n). */
double model_experts_hit(uint32_t experts, uint32_t experts_active, double n_tokens);

/* Layers that differ from the rest: those that see everything where the others have a window. */
static inline uint32_t model_global_layers(const struct model *model) {
    return model->global_every > 0 ? model->layers / model->global_every : 0;
}

/* Heads of a layer, and of how many of queries, keys and values it has a projection. */
struct model_heads {
    uint32_t heads, kv_heads, head_dim;
    uint32_t local_window; /* positions that a query sees at most, itself among them; 0: all */
    bool values_are_keys;
};

static inline struct model_heads model_heads_of(const struct model *model, bool global) {
    struct model_heads heads = {.heads = model->heads,
                                .kv_heads = model->kv_heads,
                                .head_dim = model->head_dim,
                                .local_window = model->local_window};
    if (global) {
        heads.kv_heads = model->global_kv_heads;
        heads.head_dim = model->global_head_dim;
        heads.local_window = 0;
        heads.values_are_keys = model->global_values_are_keys;
    }
    return heads;
}

/* A model's layers of one kind, as if all were so: with their heads, and a window or none. */
struct model model_of_kind(const struct model *model, bool global);

/* Of such: values are keys before norm and rotation. */
static inline bool model_values_are_keys(const struct model *kind) {
    return kind->global_every == 0 && kind->global_values_are_keys;
}

/* Whether a layer is one that sees everything where the others have a window. */
static inline bool model_is_global(const struct model *model, uint32_t layer) {
    return model->global_every > 0 && layer % model->global_every == model->global_every - 1;
}

static inline int64_t heads_q_dim(const struct model_heads *heads) {
    return (int64_t)heads->heads * heads->head_dim;
}

static inline int64_t heads_kv_dim(const struct model_heads *heads) {
    return (int64_t)heads->kv_heads * heads->head_dim;
}

/* Channels that its projection of queries, keys and values makes. */
static inline int64_t heads_projected(const struct model_heads *heads) {
    return heads_q_dim(heads) + (heads->values_are_keys ? 1 : 2) * heads_kv_dim(heads);
}

/* Keys, or values, of one token in one layer, whose heads are rows of numbers; keys and values of
 * one token over all layers; and of these what local layers hold, which is given back when the
 * window has passed. */
int64_t heads_half_kv_bytes(const struct model_heads *heads, enum number_type type);
int64_t model_half_kv_bytes(const struct model *model, enum number_type type);
int64_t model_kv_bytes_per_token(const struct model *model, enum number_type type);
int64_t model_local_kv_bytes_per_token(const struct model *model, enum number_type type);

/* One row of logits, `element_bytes` wide elements. */
int64_t model_logits_bytes_per_row(const struct model *model, int64_t element_bytes);

/* dLLM-Cache keeps KV and the outputs of attention and FFN: 2 (kv_dim + hidden) per layer. */
int64_t model_feature_cache_bytes_per_token(const struct model *model, enum number_type type);

/* Operations of dense products; attention is excluded. */
static inline double model_flops_per_token(const struct model *model) {
    return 2.0 * (double)model_trunk_active_parameters(model);
}

static inline double model_head_flops_per_row(const struct model *model) {
    return 2.0 * (double)model_head_parameters(model);
}

#endif
