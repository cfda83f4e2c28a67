#include "engine/weights/checkpoint.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/inputs.h"

/* Dream, SDAR and Fast-dLLM v2 keep the names of the Qwen models they were trained from, which are
 * Llama's with biases or head norms; so do the mixtures among them. */
#define QWEN_NAMES                                                                                 \
    {                                                                                              \
        [WEIGHT_EMBEDDING] = {"model.embed_tokens.weight"},                                        \
        [WEIGHT_FINAL_NORM] = {"model.norm.weight"}, [WEIGHT_HEAD] = {"lm_head.weight"},           \
        [WEIGHT_ATTENTION_NORM] = {"input_layernorm.weight"},                                      \
        [WEIGHT_QKV] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",                      \
                        "self_attn.v_proj.weight"},                                                \
        [WEIGHT_QKV_BIAS] = {"self_attn.q_proj.bias", "self_attn.k_proj.bias",                     \
                             "self_attn.v_proj.bias"},                                             \
        [WEIGHT_Q_NORM] = {"self_attn.q_norm.weight"},                                             \
        [WEIGHT_K_NORM] = {"self_attn.k_norm.weight"},                                             \
        [WEIGHT_OUTPUT] = {"self_attn.o_proj.weight"},                                             \
        [WEIGHT_FFN_NORM] = {"post_attention_layernorm.weight"},                                   \
        [WEIGHT_GATE_UP] = {"mlp.gate_proj.weight", "mlp.up_proj.weight"},                         \
        [WEIGHT_DOWN] = {"mlp.down_proj.weight"}, [WEIGHT_ROUTER] = {"mlp.gate.weight"},           \
        [WEIGHT_EXPERTS_GATE_UP] = {"gate_proj.weight", "up_proj.weight"},                         \
        [WEIGHT_EXPERTS_DOWN] = {"down_proj.weight"},                                              \
    }

static const struct checkpoint_family families[] = {
    {.name = "llada",
     .model_type = "llada",
     .constants = {.rotation = {.theta = 500000}, .norm_epsilon = 1e-5f},
     .layers = "model.transformer.blocks.",
     .names =
         {
             [WEIGHT_EMBEDDING] = {"model.transformer.wte.weight"},
             [WEIGHT_FINAL_NORM] = {"model.transformer.ln_f.weight"},
             [WEIGHT_HEAD] = {"model.transformer.ff_out.weight"},
             [WEIGHT_ATTENTION_NORM] = {"attn_norm.weight"},
             [WEIGHT_QKV] = {"q_proj.weight", "k_proj.weight", "v_proj.weight"},
             [WEIGHT_QKV_BIAS] = {"q_proj.bias", "k_proj.bias", "v_proj.bias"},
             [WEIGHT_Q_NORM] = {"q_norm.weight"},
             [WEIGHT_K_NORM] = {"k_norm.weight"},
             [WEIGHT_OUTPUT] = {"attn_out.weight"},
             [WEIGHT_FFN_NORM] = {"ff_norm.weight"},
             [WEIGHT_GATE_UP] = {"ff_proj.weight", "up_proj.weight"},
             [WEIGHT_DOWN] = {"ff_out.weight"},
         },
     .source = "GSAI-ML/LLaDA-8B-Instruct: modeling_llada.py and config.json"},
    {.name = "dream",
     .model_type = "Dream",
     .constants = {.rotation = {.theta = 1e6}, .norm_epsilon = 1e-6f},
     .layers = "model.layers.",
     .names = QWEN_NAMES,
     .source = "Dream-org/Dream-v0-Instruct-7B: modeling_dream.py and config.json"},
    {.name = "sdar",
     .model_type = "sdar",
     .constants = {.rotation = {.theta = 1e6}, .norm_epsilon = 1e-6f},
     .layers = "model.layers.",
     .names = QWEN_NAMES,
     .source = "JetAstra/SDAR: training/model, modeling_sdar.py and config.json"},
    {.name = "fast",
     .model_type = "Fast_dLLM_Qwen",
     .constants = {.rotation = {.theta = 1e6}, .norm_epsilon = 1e-6f},
     .layers = "model.layers.",
     .names = QWEN_NAMES,
     .source = "Fast_dLLM_v2_7B: configuration.py; constants of Qwen/Qwen2.5-7B-Instruct"},
    {.name = "qwen2.5",
     .model_type = "qwen2",
     .constants = {.rotation = {.theta = 1e6}, .norm_epsilon = 1e-6f},
     .layers = "model.layers.",
     .names = QWEN_NAMES,
     .source = "Qwen/Qwen2.5-3B: config.json; transformers' modeling_qwen2.py"},
    {.name = "llada",
     .is_mixture = true,
     .model_type = "lladamoe",
     .constants = {.rotation = {.theta = 50000}, .norm_epsilon = 1e-5f},
     .layers = "model.layers.",
     .experts = "mlp.experts.",
     .names = QWEN_NAMES,
     .source = "inclusionAI/LLaDA-MoE-7B-A1B: configuration_lladamoe.py, modeling_lladamoe.py"},
    {.name = "sdar",
     .is_mixture = true,
     .model_type = "sdar_moe",
     .constants = {.rotation = {.theta = 1e6}, .norm_epsilon = 1e-6f},
     .layers = "model.layers.",
     .experts = "mlp.experts.",
     .names = QWEN_NAMES,
     .source = "JetLM/SDAR-30B-A3B: modeling_sdar_moe.py; constants of Qwen3-30B-A3B"},
    {.name = "llada2",
     .is_mixture = true,
     .model_type = "llada2_moe",
     .constants = {.rotation = {.theta = 600000}, .norm_epsilon = 1e-6f},
     .layers = "model.layers.",
     .experts = "mlp.experts.",
     .names =
         {
             [WEIGHT_EMBEDDING] = {"model.word_embeddings.weight"},
             [WEIGHT_FINAL_NORM] = {"model.norm.weight"},
             [WEIGHT_HEAD] = {"lm_head.weight"},
             [WEIGHT_ATTENTION_NORM] = {"input_layernorm.weight"},
             [WEIGHT_QKV] = {"attention.query_key_value.weight"},
             [WEIGHT_Q_NORM] = {"attention.query_layernorm.weight"},
             [WEIGHT_K_NORM] = {"attention.key_layernorm.weight"},
             [WEIGHT_OUTPUT] = {"attention.dense.weight"},
             [WEIGHT_FFN_NORM] = {"post_attention_layernorm.weight"},
             [WEIGHT_GATE_UP] = {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
             [WEIGHT_DOWN] = {"mlp.down_proj.weight"},
             [WEIGHT_ROUTER] = {"mlp.gate.weight"},
             [WEIGHT_EXPERT_BIAS] = {"mlp.gate.expert_bias"},
             [WEIGHT_EXPERTS_GATE_UP] = {"gate_proj.weight", "up_proj.weight"},
             [WEIGHT_EXPERTS_DOWN] = {"down_proj.weight"},
             [WEIGHT_SHARED_GATE_UP] = {"mlp.shared_experts.gate_proj.weight",
                                        "mlp.shared_experts.up_proj.weight"},
             [WEIGHT_SHARED_DOWN] = {"mlp.shared_experts.down_proj.weight"},
         },
     .source =
         "inclusionAI/LLaDA2.0-mini: modeling_llada2_moe.py; inclusionAI/dFactory: config.json"},
    {.name = "llama",
     .model_type = "llama",
     .constants = {.rotation = {.theta = 500000, .stretch = {8, 1, 4, 8192}},
                   .norm_epsilon = 1e-5f},
     .layers = "model.layers.",
     .names = QWEN_NAMES,
     .source = "meta-llama/Llama-3.1-8B: config.json; transformers' modeling_llama.py"},
};
static const size_t n_families = sizeof families / sizeof families[0];

const struct checkpoint_family *checkpoint_family_find(const struct model *model, struct err *err) {
    size_t length = strcspn(model->name, "-");
    for (size_t i = 0; i < n_families; i++) {
        if (strlen(families[i].name) == length && families[i].is_mixture == (model->experts > 0) &&
            strncmp(families[i].name, model->name, length) == 0) {
            return &families[i];
        }
    }
    err_usage(err,
              "the engine has no weights for model '%s'; it runs the families llada, dream, sdar, "
              "fast, qwen2.5 and llama, and the mixtures of llada, llada2 and sdar",
              model->name);
    return NULL;
}

bool checkpoint_stores_whole(const struct checkpoint_family *family, enum weight_slot slot) {
    return weight_parts_at_once(slot) > 1 && family->names[slot][1] == NULL;
}

const char *checkpoint_tensor_name(const struct checkpoint_family *family, enum weight_slot slot,
                                   int part, uint32_t layer, char *text, size_t size) {
    int n_at_once = weight_parts_at_once(slot);
    bool is_whole = checkpoint_stores_whole(family, slot);
    const char *name = family->names[slot][is_whole ? 0 : part % n_at_once];
    if (name == NULL) {
        return NULL;
    }
    if (!weight_is_per_layer(slot)) {
        snprintf(text, size, "%s", name);
    } else if (weight_holds_experts(slot)) {
        snprintf(text, size, "%s%u.%s%d.%s", family->layers, layer, family->experts,
                 part / n_at_once, name);
    } else {
        snprintf(text, size, "%s%u.%s", family->layers, layer, name);
    }
    return text;
}

/* False, and what is wrong in `trouble`. */
static bool read_stretch(const json_t *scaling, struct rotation_stretch *out, char *trouble,
                         size_t size) {
    *out = (struct rotation_stretch){0};
    if (scaling == NULL || json_is_null(scaling)) {
        return true;
    }
    const json_t *named = json_object_get(scaling, "rope_type");
    const char *type = json_string_value(named != NULL ? named : json_object_get(scaling, "type"));
    if (type == NULL || strcmp(type, "llama3") != 0) {
        snprintf(trouble, size, "rope_scaling of type '%s', but the engine runs 'llama3' and none",
                 type != NULL ? type : "");
        return type != NULL && strcmp(type, "default") == 0;
    }
    *out = (struct rotation_stretch){
        .factor = json_number_value(json_object_get(scaling, "factor")),
        .low_factor = json_number_value(json_object_get(scaling, "low_freq_factor")),
        .high_factor = json_number_value(json_object_get(scaling, "high_freq_factor")),
        .original_positions =
            json_number_value(json_object_get(scaling, "original_max_position_embeddings")),
    };
    snprintf(trouble, size,
             "rope_scaling of type 'llama3' needs a factor of at least 1, "
             "0 < low_freq_factor < high_freq_factor and original_max_position_embeddings");
    return out->factor >= 1 && out->low_factor > 0 && out->high_factor > out->low_factor &&
           out->original_positions >= 1;
}

int checkpoint_constants(const struct checkpoint_family *family, const char *folder,
                         struct weight_constants *out, struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path) {
        return err_world(err, "%.64s...: the folder's name is too long", folder);
    }
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return err_world(err, "%s: cannot be opened: %s", path, strerror(errno));
    }
    inputs_note("weights", path);
    json_error_t trouble;
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &trouble);
    fclose(file);
    if (root == NULL) {
        return trouble.line > 0 ? err_world(err, "%s:%d: %s", path, trouble.line, trouble.text)
                                : err_world(err, "%s: %s", path, trouble.text);
    }
    int status = 0;
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const json_t *theta = json_object_get(root, "rope_theta");
    const json_t *epsilon = json_object_get(root, "rms_norm_eps");
    struct rotation_stretch stretch;
    double base = json_number_value(theta), small = json_number_value(epsilon);
    if (type == NULL || strcmp(type, family->model_type) != 0) {
        status = err_world(err, "%s: the model_type is '%s', but a %s model's is '%s'", path,
                           type != NULL ? type : "", family->name, family->model_type);
    } else if (!(base > 1) || !(small > 0 && small < 1)) {
        status = err_world(err,
                           "%s: rope_theta must be a number above 1 and rms_norm_eps one between "
                           "0 and 1",
                           path);
    } else if (!read_stretch(json_object_get(root, "rope_scaling"), &stretch, trouble.text,
                             sizeof trouble.text)) {
        status = err_world(err, "%s: %s", path, trouble.text);
    } else {
        *out = (struct weight_constants){{base, stretch}, (float)small};
    }
    json_decref(root);
    return status;
}
