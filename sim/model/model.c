#include "sim/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/names.h"
#include "sim/model/model_config.h"
#include "sim/model/ranks.h"

const char *const attention_mask_names[ATTENTION_MASK_COUNT + 1] = {"bidirectional", "block-causal",
                                                                    "autoregressive", NULL};
const char *const router_kind_names[ROUTER_KIND_COUNT + 1] = {"none", "softmax", "sigmoid-grouped",
                                                              NULL};

const char *const block_routing_names[BLOCK_ROUTING_COUNT + 1] = {"none", "largest", "share", NULL};

#define COUNT(field, initial, min, max, doc)                                                       \
    { #field, PARAM_U32, 0, "1", initial, min, max, NULL, offsetof(struct model, field), doc }
#define FLAG(field, doc)                                                                           \
    { #field, PARAM_BOOL, 0, "1", "off", 0, 1, NULL, offsetof(struct model, field), doc }
#define NUMBER(field, initial, max, doc)                                                           \
    { #field, PARAM_F64, 0, "1", initial, 0, max, NULL, offsetof(struct model, field), doc }
#define WORD(name, field, initial, words, doc)                                                     \
    { name, PARAM_WORD, 0, "1", initial, 0, 0, words, offsetof(struct model, field), doc }

const struct param model_params[] = {
    COUNT(layers, NULL, 1, 1024, "layers"),
    COUNT(hidden, NULL, 2, 65536, "channels between layers"),
    COUNT(heads, NULL, 1, 1024, "query heads"),
    COUNT(kv_heads, NULL, 1, 1024, "key-value heads, which divide the query heads"),
    COUNT(head_dim, NULL, 2, 1024, "channels of a head"),
    COUNT(rotary_dim, "0", 0, 1024, "channels of a head that are rotated (0: all)"),
    COUNT(local_window, "0", 0, 1 << 24,
          "positions that a query of a local layer sees, its own among them (0: all of them)"),
    COUNT(global_every, "0", 0, 1024,
          "one layer in this many sees everything, the last of them (0: all layers are alike)"),
    COUNT(global_kv_heads, "0", 0, 1024, "key-value heads of these [model.global_every > 0]"),
    COUNT(global_head_dim, "0", 0, 1024, "channels of a head of these [model.global_every > 0]"),
    FLAG(global_values_are_keys,
         "their values are their keys, without a projection [model.global_every > 0]"),
    COUNT(ffn, "0", 0, 1 << 20, "SwiGLU width of a dense layer (0: every layer is a mixture)"),
    COUNT(vocab, NULL, 2, 1 << 24, "rows of the output projection"),
    COUNT(max_positions, NULL, 1, 1 << 24,
          "the longest canvas the model was made for [serves = on]"),
    COUNT(mask_token, "4294967295", 0, NO_MASK_TOKEN,
          "token id of a masked position; autoregressive models have none"),
    COUNT(delete_token, "0", 0, INT32_MAX,
          "id of the token that drops its position (LLaDA2.2; 0: none) [backend = cpu|cuda and "
          "decoder = joint-indel]"),
    COUNT(insert_token, "0", 0, INT32_MAX,
          "id of the token that puts a mask before what its position holds (LLaDA2.2; 0: none) "
          "[backend = cpu|cuda and decoder = joint-indel]"),
    WORD("attention", mask, NULL, attention_mask_names, "what a position sees"),
    COUNT(block_tokens, NULL, 1, 65536,
          "default size of the blocks that are decoded together "
          "[asked.block_tokens = 0 and priced = on or asked.block_tokens = 0 and rows = exact]"),
    FLAG(causal_prompt, "blocks begin where the prompt ends, and what is before the block sees no "
                        "further than itself [model.attention = block-causal]"),
    FLAG(uniform_noise, "positions that are not decided hold random tokens, no mask"),
    COUNT(conditioning_ffn, "0", 0, 1 << 20,
          "width of the gated FFN through which the last step's predictions are added (0: none)"),
    FLAG(output_norms, "what attention, FFN and experts give is normalised before it is added"),
    FLAG(gelu, "gates of FFNs are gelu by tanh, not silu [backend = cpu|cuda]"),
    NUMBER(logit_softcap, "0", 1e6,
           "logits are this times tanh of them over it (0: as they are) [backend = cpu|cuda]"),
    FLAG(qk_norm, "heads of queries and keys are normalised"),
    FLAG(qkv_bias, "queries, keys and values have biases"),
    FLAG(tied, "the output projection is the embedding"),
    FLAG(shifted_logits,
         "the logits of a position decide on the next one [backend != sim|step or "
         "runtime.shift_copy = on or sampling = on or model.attention = block-causal]"),
    NUMBER(rope_theta, "0", 1e12, "base of the rotations (0: the family's) [backend = cpu|cuda]"),
    NUMBER(norm_epsilon, "0", 1, "epsilon of the norms (0: the family's) [backend = cpu|cuda]"),
    NUMBER(rope_factor, "0", 1e6,
           "factor of Llama 3's rope scaling (0: the family's) [backend = cpu|cuda]"),
    NUMBER(rope_low_factor, "0", 1e6, "low_freq_factor of that scaling [backend = cpu|cuda]"),
    NUMBER(rope_high_factor, "0", 1e6, "high_freq_factor of that scaling [backend = cpu|cuda]"),
    NUMBER(rope_original_positions, "0", 1 << 24,
           "original_max_position_embeddings of that scaling [backend = cpu|cuda]"),
    WORD("router", router, "none", router_kind_names, "how the experts of a token are chosen"),
    COUNT(experts, "0", 0, 4096, "experts of a layer (0: no mixture of experts)"),
    COUNT(experts_active, "0", 0, 4096, "experts that a token is routed to"),
    COUNT(expert_ffn, "0", 0, 1 << 20, "SwiGLU width of an expert"),
    COUNT(shared_experts, "0", 0, 64, "experts that every token goes to"),
    COUNT(shared_ffn, "0", 0, 1 << 20, "SwiGLU width of a shared expert"),
    COUNT(dense_layers, "0", 0, 1024, "number of first layers that are dense, not mixtures"),
    COUNT(expert_groups, "1", 1, 4096,
          "groups among which experts are divided [model.experts > 0]"),
    COUNT(expert_groups_active, "1", 1, 4096,
          "groups that a token's experts may be in [model.experts > 0]"),
    FLAG(expert_bias, "a bias is added to the scores for the choice alone [model.experts > 0]"),
    FLAG(norm_topk, "the weights of a token's experts are divided by their sum [model.experts > 0 "
                    "and backend = cpu|cuda]"),
    NUMBER(routed_scale, "1", 1e6,
           "factor that these weights are then multiplied by [model.experts > 0 and backend = "
           "cpu|cuda]"),
    NUMBER(block_experts_hit, "0", 4096,
           "experts of a layer that a block hits (0: not known) [model.experts > 0]"),
    NUMBER(two_blocks_experts_hit, "0", 4096,
           "experts of a layer that two blocks of different requests hit [model.block_experts_hit "
           "> 0]"),
    WORD("block_routing", block_routing, "none", block_routing_names,
         "experts that the tokens of a block choose among: all (none), the block_experts of the "
         "largest scores of any of its tokens (LLaDA2.2), or those that its tokens' own choices "
         "score highest, block_expert_share of their sum (share: dMoE) [model.experts > 0]"),
    COUNT(block_experts, "0", 0, 4096,
          "experts of a block under block_routing = largest, the fewest under share "
          "[model.block_routing != none]"),
    NUMBER(block_expert_share, "0", 1,
           "share of the sum of a block's scores that its experts exceed [model.block_routing = "
           "share]"),
    NUMBER(share_experts_hit, "0", 4096,
           "experts of a layer that a block hits under block_routing = share (0: not known, as "
           "many as block_experts) [model.block_routing = share]"),
    COUNT(prefix_layers, "0", 0, 1024,
          "leading layers that hardly change what they make of a prefix by what follows it, as "
          "measured (0: not known) [leads = on]"),
    NUMBER(prefix_share, "0", 1,
           "least share of a canvas that its prefix has for that [model.prefix_layers > 0]"),
};
const size_t model_n_params = sizeof model_params / sizeof model_params[0];

static int check_block_routing(const struct model *m, const char *place, struct err *err) {
    if (m->block_routing == BLOCK_ROUTING_NONE) {
        return 0;
    }
    const uint32_t experts = model_routed_experts(m), active = model_most_active(m);
    if (m->router != ROUTER_SIGMOID_GROUPED || m->block_experts < active ||
        m->block_experts > experts) {
        return err_usage(err,
                         "%s: block_routing needs router = sigmoid-grouped and block_experts from "
                         "experts_active (%" PRIu32 ") to experts (%" PRIu32 ")",
                         place, active, experts);
    }
    bool is_share = m->block_routing == BLOCK_ROUTING_SHARE;
    return is_share == (m->block_expert_share > 0)
               ? 0
               : err_usage(err,
                           "%s: block_expert_share goes with block_routing = share, and is above 0",
                           place);
}

static int check_mixture(const struct model *m, const char *place, struct err *err) {
    if (m->experts_active == 0 || m->experts_active > m->experts || m->expert_ffn == 0 ||
        m->router == ROUTER_NONE) {
        return err_usage(err,
                         "%s: a mixture needs a router, an expert_ffn above 0 and experts_active "
                         "from 1 to experts",
                         place);
    }
    if (m->expert_groups == 0 || m->experts % m->expert_groups != 0 ||
        m->expert_groups_active > m->expert_groups ||
        m->experts / m->expert_groups * m->expert_groups_active < m->experts_active) {
        return err_usage(err,
                         "%s: expert_groups must divide the experts, and the experts of "
                         "expert_groups_active groups be at least experts_active",
                         place);
    }
    if ((m->shared_experts > 0) != (m->shared_ffn > 0)) {
        return err_usage(err, "%s: shared_experts and shared_ffn go together", place);
    }
    int status = check_block_routing(m, place, err);
    if (status != 0) {
        return status;
    }
    return m->dense_layers < m->layers && (m->dense_layers > 0) == (m->ffn > 0)
               ? 0
               : err_usage(err,
                           "%s: dense_layers must be below layers, and ffn is their width: above "
                           "0 exactly where there are any",
                           place);
}

static int check_dense(const struct model *m, const char *place, struct err *err) {
    if (m->ffn == 0) {
        return err_usage(err, "%s: a model without experts needs an ffn above 0", place);
    }
    bool has_some = m->router != ROUTER_NONE || m->experts_active > 0 || m->expert_ffn > 0 ||
                    m->shared_experts > 0 || m->shared_ffn > 0 || m->dense_layers > 0;
    return !has_some
               ? 0
               : err_usage(err, "%s: a router and its experts' sizes, but experts = 0", place);
}

/* Both tokens by which a canvas moves, or neither, as SGLang has it for JointThresholdInDel. */
static int check_moving(const struct model *m, const char *place, struct err *err) {
    const uint32_t gone = m->delete_token, put = m->insert_token;
    if (gone == 0 && put == 0) {
        return 0;
    }
    const bool are_tokens = gone > 0 && put > 0 && gone < m->vocab && put < m->vocab;
    return are_tokens && gone != put && gone != m->mask_token && put != m->mask_token
               ? 0
               : err_usage(err,
                           "%s: delete_token = %" PRIu32 " and insert_token = %" PRIu32
                           " must be two tokens below vocab = %" PRIu32
                           " that are not mask_token, or both 0",
                           place, gone, put, m->vocab);
}

static int check_decoding(const struct model *m, const char *place, struct err *err) {
    bool has_mask = m->mask_token != NO_MASK_TOKEN;
    if (m->uniform_noise) {
        return m->mask == MASK_BLOCK_CAUSAL && !has_mask
                   ? 0
                   : err_usage(err,
                               "%s: a model of uniform noise has no mask_token, and attention = "
                               "block-causal",
                               place);
    }
    if (m->causal_prompt || m->conditioning_ffn > 0) {
        return err_usage(err,
                         "%s: causal_prompt and conditioning_ffn are of models of uniform noise: "
                         "set uniform_noise = on",
                         place);
    }
    if (m->mask == MASK_CAUSAL && (has_mask || m->block_tokens != 1)) {
        return err_usage(err, "%s: an autoregressive model has no mask_token, and block_tokens = 1",
                         place);
    }
    if (m->mask != MASK_CAUSAL && !has_mask) {
        return err_usage(err, "%s: a diffusion model needs a mask_token", place);
    }
    return !has_mask || m->mask_token < m->vocab
               ? check_moving(m, place, err)
               : err_usage(err, "%s: mask_token = %" PRIu32 ", but vocab = %" PRIu32, place,
                           m->mask_token, m->vocab);
}

/* Local layers with a window, and some between them without one. */
static int check_layers(const struct model *m, const char *place, struct err *err) {
    bool has_global = m->global_every > 0;
    if (has_global != (m->local_window > 0) || has_global != (m->global_kv_heads > 0) ||
        has_global != (m->global_head_dim > 0)) {
        return err_usage(
            err,
            "%s: local_window, global_every, global_kv_heads and global_head_dim are all 0, "
            "or none of them",
            place);
    }
    if (!has_global) {
        return !m->global_values_are_keys
                   ? 0
                   : err_usage(err, "%s: global_values_are_keys, but global_every = 0", place);
    }
    if (m->layers % m->global_every != 0 || m->global_every < 2 || m->dense_layers > 0) {
        return err_usage(err,
                         "%s: global_every is at least 2 and divides the layers, which are all "
                         "dense or all mixtures",
                         place);
    }
    return m->heads % m->global_kv_heads == 0 && m->global_head_dim % 2 == 0
               ? 0
               : err_usage(err,
                           "%s: global_kv_heads must divide the heads, and global_head_dim is even",
                           place);
}

int model_check(const struct model *m, const char *place, struct err *err) {
    enum { MOST_BILLIONS = 10000 };
    if (m->heads % m->kv_heads != 0) {
        return err_usage(err, "%s: heads = %" PRIu32 " is no multiple of kv_heads = %" PRIu32,
                         place, m->heads, m->kv_heads);
    }
    if (m->head_dim % 2 != 0 || m->rotary_dim % 2 != 0 || m->rotary_dim > m->head_dim) {
        return err_usage(
            err, "%s: head_dim and rotary_dim are even, and rotary_dim is at most head_dim", place);
    }
    int status = (m->experts > 0 ? check_mixture : check_dense)(m, place, err);
    status = status == 0 ? check_layers(m, place, err) : status;
    if (status != 0 || (status = check_decoding(m, place, err)) != 0) {
        return status;
    }
    return model_parameters(m) <= MOST_BILLIONS * INT64_C(1000000000)
               ? 0
               : err_usage(err, "%s: %.3g parameters; models have at most %d billion", place,
                           (double)model_parameters(m), MOST_BILLIONS);
}

static int settle(void *thing, const char *place, struct err *err) {
    struct model *model = thing;
    if (model->experts == 0) {
        model->expert_groups = model->expert_groups_active = 0;
        model->routed_scale = 0;
    }
    return model_check(model, place, err);
}

static const struct catalogue_text texts[] = {
    {"title", offsetof(struct model, title), false},
    {"source", offsetof(struct model, source), false},
    {"family", offsetof(struct model, family), true},
    {"block_experts_hit_source", offsetof(struct model, block_experts_hit_source), true},
    {NULL, 0, false},
};

static bool is_config(const char *path) {
    return name_ends(path, ".json");
}

static struct catalogue models = {
    .what = "model",
    .section = "model",
    .list = "models",
    .folder = "sim/model/models",
    .size = sizeof(struct model),
    .texts = texts,
    .params = model_params,
    .n_params = sizeof model_params / sizeof model_params[0],
    .settle = settle,
    .is_foreign = is_config,
    .read_foreign = model_config_find,
};

const struct model *model_find(const char *name, struct err *err) {
    struct stat facts;
    char path[4096];
    if (strchr(name, '/') != NULL && stat(name, &facts) == 0 && S_ISDIR(facts.st_mode)) {
        snprintf(path, sizeof path, "%s%sconfig.json", name,
                 name[strlen(name) - 1] == '/' ? "" : "/");
        return catalogue_find(&models, path, err);
    }
    return catalogue_find(&models, name, err);
}

const struct model *const *model_all(struct err *err) {
    return (const struct model *const *)catalogue_all(&models, err);
}

const struct model *model_recognise(const struct model *config, struct err *err) {
    const struct model *const *all = model_all(err);
    if (all == NULL) {
        return NULL;
    }
    for (size_t i = 0; all[i] != NULL; i++) {
        struct err difference = {0};
        if (model_agree(all[i], config, "", &difference) == 0) {
            return all[i];
        }
    }
    return config;
}

bool model_has_shape_of(const struct model *a, const struct model *b) {
    return a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->ffn == b->ffn &&
           a->vocab == b->vocab && a->qk_norm == b->qk_norm && a->qkv_bias == b->qkv_bias &&
           a->experts == b->experts && a->experts_active == b->experts_active &&
           a->expert_ffn == b->expert_ffn && a->shared_experts == b->shared_experts &&
           a->shared_ffn == b->shared_ffn && a->dense_layers == b->dense_layers &&
           a->local_window == b->local_window && a->global_every == b->global_every &&
           a->global_kv_heads == b->global_kv_heads && a->global_head_dim == b->global_head_dim &&
           a->global_values_are_keys == b->global_values_are_keys &&
           a->output_norms == b->output_norms && a->conditioning_ffn == b->conditioning_ffn &&
           a->router == b->router;
}

/* Norms of hidden states that a layer has. */
static int64_t layer_norms(const struct model *m) {
    enum { BEFORE = 2, AFTER = 2, OF_MIXTURE = 3 };
    return BEFORE + (m->output_norms ? AFTER + (m->experts > 0 ? OF_MIXTURE : 0) : 0);
}

static int64_t attention_parameters(const struct model *m, bool global) {
    const struct model_heads h = model_heads_of(m, global);
    int64_t biases = m->qkv_bias ? heads_projected(&h) : 0;
    int64_t norms = m->qk_norm ? 2 * (int64_t)h.head_dim : 0;
    return m->hidden * (heads_projected(&h) + heads_q_dim(&h)) + biases + norms +
           layer_norms(m) * m->hidden;
}

static int64_t swiglu_parameters(const struct model *m, int64_t width) {
    return 3 * (int64_t)m->hidden * width;
}

static int64_t router_parameters(const struct model *m) {
    int64_t routed = model_routed_experts(m);
    return (int64_t)m->hidden * routed + (m->expert_bias ? routed : 0);
}

/* Its FFN, and the norm of what comes in. */
static int64_t conditioning_parameters(const struct model *m) {
    return m->conditioning_ffn > 0 ? swiglu_parameters(m, m->conditioning_ffn) + m->hidden : 0;
}

/* All layers; each mixture layer with `experts` routed experts. */
static int64_t layers_parameters(const struct model *m, uint32_t experts) {
    int64_t dense_layers = model_first_mixture(m);
    int64_t mixture_layers = m->layers - dense_layers, global_layers = model_global_layers(m);
    return (m->layers - global_layers) * attention_parameters(m, false) +
           global_layers * attention_parameters(m, true) + conditioning_parameters(m) +
           dense_layers * swiglu_parameters(m, m->ffn) +
           mixture_layers *
               (experts * swiglu_parameters(m, m->expert_ffn) +
                m->shared_experts * swiglu_parameters(m, m->shared_ffn) + router_parameters(m)) +
           m->hidden;
}

int64_t model_head_parameters(const struct model *model) {
    return (int64_t)model->vocab * model->hidden;
}

int64_t model_parameters(const struct model *model) {
    int64_t embedding = model_ranks(model) * model_head_parameters(model);
    return layers_parameters(model, model->experts) + embedding +
           (model->tied ? 0 : model_head_parameters(model));
}

int64_t model_trunk_active_parameters(const struct model *model) {
    return layers_parameters(model, model->experts_active);
}

/* The matrices that may be stored in another type than the rest: `n` of [rows, columns] each. */
struct matrices {
    enum weight_slot slot;
    int64_t n, rows, columns;
};

static int64_t stored_otherwise(const struct storage *storage, const struct matrices *m) {
    const enum number_type type = storage_weight(storage, m->slot);
    const enum number_type rest = (enum number_type)storage->wide;
    return m->n * (number_matrix_bytes(type, m->rows, m->columns) -
                   number_matrix_bytes(rest, m->rows, m->columns));
}

int64_t model_weights_bytes(const struct model *m, const struct storage *storage) {
    const struct model_heads local = model_heads_of(m, false), global = model_heads_of(m, true);
    const int64_t hidden = m->hidden, n_global = model_global_layers(m);
    const int64_t n_local = m->layers - n_global, conditions = m->conditioning_ffn > 0;
    const int64_t dense = model_first_mixture(m), mixtures = m->layers - dense;
    const int64_t shared = (int64_t)m->shared_experts * m->shared_ffn;
    const struct matrices all[] = {
        {WEIGHT_QKV, n_local, heads_projected(&local), hidden},
        {WEIGHT_OUTPUT, n_local, hidden, heads_q_dim(&local)},
        {WEIGHT_QKV, n_global, heads_projected(&global), hidden},
        {WEIGHT_OUTPUT, n_global, hidden, heads_q_dim(&global)},
        {WEIGHT_CONDITIONING_GATE_UP, conditions, 2 * (int64_t)m->conditioning_ffn, hidden},
        {WEIGHT_CONDITIONING_DOWN, conditions, hidden, m->conditioning_ffn},
        {WEIGHT_GATE_UP, dense, 2 * (int64_t)m->ffn, hidden},
        {WEIGHT_DOWN, dense, hidden, m->ffn},
        {WEIGHT_EXPERTS_GATE_UP, mixtures * m->experts, 2 * (int64_t)m->expert_ffn, hidden},
        {WEIGHT_EXPERTS_DOWN, mixtures * m->experts, hidden, m->expert_ffn},
        {WEIGHT_SHARED_GATE_UP, mixtures, 2 * shared, hidden},
        {WEIGHT_SHARED_DOWN, mixtures, hidden, shared},
        {WEIGHT_HEAD, m->tied ? 0 : 1, m->vocab, hidden},
    };
    const enum number_type rest = (enum number_type)storage->wide;
    int64_t bytes = number_bytes(rest) * model_parameters(m);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        bytes += stored_otherwise(storage, &all[i]);
    }
    return bytes;
}

struct model model_of_kind(const struct model *model, bool global) {
    const struct model_heads heads = model_heads_of(model, global);
    struct model kind = *model;
    kind.kv_heads = heads.kv_heads;
    kind.head_dim = heads.head_dim;
    kind.local_window = heads.local_window;
    kind.rotary_dim = global ? 0 : model->rotary_dim;
    kind.kv_copies = global ? model->global_kv_copies : model->kv_copies;
    kind.global_every = 0;
    kind.global_values_are_keys = heads.values_are_keys;
    return kind;
}

int64_t heads_half_kv_bytes(const struct model_heads *heads, enum number_type type) {
    return heads->kv_heads * number_row_bytes(type, heads->head_dim);
}

int64_t model_half_kv_bytes(const struct model *model, enum number_type type) {
    const struct model_heads heads = model_heads_of(model, false);
    return heads_half_kv_bytes(&heads, type);
}

int64_t model_local_kv_bytes_per_token(const struct model *model, enum number_type type) {
    const uint32_t n = model->local_window > 0 ? model->layers - model_global_layers(model) : 0;
    return 2LL * n * model_half_kv_bytes(model, type);
}

int64_t model_kv_bytes_per_token(const struct model *model, enum number_type type) {
    const struct model_heads global = model_heads_of(model, true);
    const uint32_t n = model_global_layers(model);
    return 2LL * (model->layers - n) * model_half_kv_bytes(model, type) +
           2LL * n * heads_half_kv_bytes(&global, type);
}

int64_t model_logits_bytes_per_row(const struct model *model, int64_t element_bytes) {
    return element_bytes * model->vocab;
}

int64_t model_feature_cache_bytes_per_token(const struct model *model, enum number_type type) {
    return model_kv_bytes_per_token(model, type) +
           2LL * model->layers * number_row_bytes(type, model->hidden);
}
