#include "engine/checkpoint.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Dream and SDAR keep the names of the Qwen models they were trained from. */
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
        [WEIGHT_DOWN] = {"mlp.down_proj.weight"},                                                  \
    }

static const struct checkpoint_family families[] = {
    {.name = "llada",
     .model_type = "llada",
     .constants = {500000, 1e-5f},
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
     .constants = {1e6, 1e-6f},
     .layers = "model.layers.",
     .names = QWEN_NAMES,
     .source = "Dream-org/Dream-v0-Instruct-7B: modeling_dream.py and config.json"},
    {.name = "sdar",
     .model_type = "sdar",
     .constants = {1e6, 1e-6f},
     .layers = "model.layers.",
     .names = QWEN_NAMES,
     .source = "JetAstra/SDAR: training/model, modeling_sdar.py and config.json"},
};
static const size_t n_families = sizeof families / sizeof families[0];

const struct checkpoint_family *checkpoint_family_find(const struct model *model, struct err *err) {
    size_t length = strcspn(model->name, "-");
    for (size_t i = 0; i < n_families; i++) {
        if (strlen(families[i].name) == length &&
            strncmp(families[i].name, model->name, length) == 0) {
            return &families[i];
        }
    }
    err_usage(err,
              "the engine has no weights for model '%s'; it runs the families llada, dream and "
              "sdar",
              model->name);
    return NULL;
}

const char *checkpoint_tensor_name(const struct checkpoint_family *family, enum weight_slot slot,
                                   int part, uint32_t layer, char *text, size_t size) {
    const char *name = family->names[slot][part];
    if (name == NULL) {
        return NULL;
    }
    if (!weight_is_per_layer(slot)) {
        snprintf(text, size, "%s", name);
    } else {
        snprintf(text, size, "%s%u.%s", family->layers, layer, name);
    }
    return text;
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
    double base = json_number_value(theta), small = json_number_value(epsilon);
    if (type == NULL || strcmp(type, family->model_type) != 0) {
        status = err_world(err, "%s: the model_type is '%s', but a %s model's is '%s'", path,
                           type != NULL ? type : "", family->name, family->model_type);
    } else if (!(base > 1) || !(small > 0 && small < 1)) {
        status = err_world(err,
                           "%s: rope_theta must be a number above 1 and rms_norm_eps one between "
                           "0 and 1",
                           path);
    } else {
        *out = (struct weight_constants){base, (float)small};
    }
    json_decref(root);
    return status;
}
