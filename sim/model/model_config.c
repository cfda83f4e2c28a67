#include "sim/model/model_config.h"
#include "sim/base/names.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/model/family.h"
#include "sim/model/quantised.h"

enum { PLACE_CHARS = 4224, VALUE_CHARS = 160, ASSUMED_CHARS = 240 };

/* One file, while it is read. */
struct reading {
    const char *path;
    const json_t *root;
    struct family family;
    struct model *model;
    struct err *err;
};

/* ---- values ---- */

/* "a.b" is b in the object a; NULL where there is none, or null. */
static const json_t *look_up(const json_t *object, const char *key) {
    const json_t *value = object;
    char *path = mem_text(key), *rest = NULL;
    for (char *part = strtok_r(path, ".", &rest); part != NULL; part = strtok_r(NULL, ".", &rest)) {
        value = json_object_get(value, part);
    }
    free(path);
    return json_is_null(value) ? NULL : value;
}

/* As an INI file would have it. */
static const char *text_of(const json_t *value, char *text, size_t size) {
    if (json_is_string(value)) {
        snprintf(text, size, "%s", json_string_value(value));
    } else if (json_is_real(value)) {
        snprintf(text, size, "%.17g", json_real_value(value));
    } else {
        char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(text, size, "%s", dumped != NULL ? dumped : "?");
        free(dumped);
    }
    return text;
}

/* Copies the first of several words and returns the text after it; NULL after the last. */
static const char *next_word(const char *words, char *word, size_t size) {
    words += strspn(words, " ");
    size_t length = strcspn(words, " ");
    if (length == 0) {
        return NULL;
    }
    snprintf(word, size, "%.*s", (int)length, words);
    return words + length;
}

/* ---- values of the file ---- */

uint64_t model_param_bit(const char *name) {
    const struct param *param = param_find(model_params, model_n_params, name);
    ASSERT(param != NULL);
    return UINT64_C(1) << (param - model_params);
}

static int state(struct reading *r, const char *name, const char *key, const json_t *value) {
    char place[PLACE_CHARS], text[VALUE_CHARS];
    snprintf(place, sizeof place, "%s: %s", r->path, key);
    int status = param_set(model_params, model_n_params, r->model, "the model", place, name,
                           text_of(value, text, sizeof text), r->err);
    ptrdiff_t i = param_find(model_params, model_n_params, name) - model_params;
    r->model->stated |= UINT64_C(1) << i;
    return status;
}

/* Of how many layers one sees everything, the last of them, by a list of layers' kinds; 0 where
 * none does. */
static int take_layer_types(struct reading *r, const char *name, const char *key,
                            const json_t *kinds) {
    const size_t n = json_array_size(kinds);
    size_t every = 0;
    for (size_t i = 0; i < n; i++) {
        const char *kind = json_string_value(json_array_get(kinds, i));
        const bool sees_all = kind != NULL && strcmp(kind, "full_attention") == 0;
        if (!sees_all && (kind == NULL || strcmp(kind, "sliding_attention") != 0)) {
            return err_usage(r->err,
                             "%s: %s has a layer that is neither sliding_attention nor "
                             "full_attention",
                             r->path, key);
        }
        every = sees_all && every == 0 ? i + 1 : every;
        if (every > 0 && sees_all != ((i + 1) % every == 0)) {
            return err_usage(r->err,
                             "%s: layer %zu of %s is out of the order of every %zu-th that is "
                             "full_attention",
                             r->path, i + 1, key, every);
        }
    }
    json_t *number = json_integer((json_int_t)every);
    const int status = state(r, name, key, number);
    json_decref(number);
    return status;
}

/* The list has a kind for every layer, where the file says how many there are. */
static int check_layer_types(struct reading *r) {
    const char *key = family_value(&r->family, "config", "global_every");
    const json_t *kinds = key != NULL ? look_up(r->root, key) : NULL;
    const size_t n = json_array_size(kinds);
    return !json_is_array(kinds) || r->model->layers == 0 || n == r->model->layers
               ? 0
               : err_usage(r->err, "%s: %s has %zu layers, and the model %" PRIu32, r->path, key, n,
                           r->model->layers);
}

static int take_stated(struct reading *r) {
    for (size_t i = 0; i < model_n_params; i++) {
        char key[64];
        const char *keys = family_value(&r->family, "config", model_params[i].name);
        while (keys != NULL && (keys = next_word(keys, key, sizeof key)) != NULL) {
            const json_t *value = look_up(r->root, key);
            if (value == NULL) {
                continue;
            }
            const bool is_list =
                json_is_array(value) && strcmp(model_params[i].name, "global_every") == 0;
            if ((is_list ? take_layer_types : state)(r, model_params[i].name, key, value) != 0) {
                return (int)r->err->kind;
            }
            break;
        }
    }
    return check_layer_types(r);
}

static int take_assumed(struct reading *r) {
    for (size_t i = 0; i < model_n_params; i++) {
        const struct param *param = &model_params[i];
        const struct config_entry *entry = family_assumed(&r->family, param->name);
        char place[PLACE_CHARS];
        if (param->initial != NULL) {
            param_defaults(param, 1, r->model);
        }
        if (entry != NULL && param_set(param, 1, r->model, "a model",
                                       config_place(&r->family.own, entry, place, sizeof place),
                                       param->name, entry->value, r->err) != 0) {
            return (int)r->err->kind;
        }
    }
    return 0;
}

/* A key that says something else than the family's models do. */
static int check_expected(struct reading *r, const struct config *file) {
    const struct config_entry *entry = NULL;
    while ((entry = config_next(file, "expected", NULL, entry)) != NULL) {
        char text[VALUE_CHARS], word[VALUE_CHARS];
        const json_t *value = look_up(r->root, entry->key);
        const char *allowed = family_value(&r->family, "expected", entry->key);
        if (value == NULL || allowed == NULL) {
            continue;
        }
        text_of(value, text, sizeof text);
        bool is_allowed = false;
        const char *rest = allowed;
        while (!is_allowed && (rest = next_word(rest, word, sizeof word)) != NULL) {
            is_allowed = strcmp(word, text) == 0;
        }
        if (!is_allowed) {
            return err_usage(r->err, "%s: %s is %s, but models of the family %s run with %s alone",
                             r->path, entry->key, text, r->model->family, allowed);
        }
    }
    return 0;
}

/* What products read of a quantised checkpoint. */
static int take_quantised(struct reading *r) {
    const json_t *config = look_up(r->root, "quantization_config");
    config = config != NULL ? config : look_up(r->root, "compression_config");
    config = config != NULL ? config : look_up(r->root, "text_config.quantization_config");
    enum number_type type = NUMBER_BF16;
    int status = config != NULL ? quantised_type(config, r->path, &type, r->err)
                                : quantised_beside(r->path, r->err);
    r->model->quantised = config != NULL && status == 0 ? number_words[type] : NULL;
    return status;
}

/* Llama 3's stretching of low frequencies, or none. */
static int take_scaling(struct reading *r) {
    static const char *const words[][2] = {
        {"rope_factor", "factor"},
        {"rope_low_factor", "low_freq_factor"},
        {"rope_high_factor", "high_freq_factor"},
        {"rope_original_positions", "original_max_position_embeddings"}};
    const json_t *scaling = look_up(r->root, "rope_scaling");
    scaling =
        scaling != NULL && !json_is_false(scaling) ? scaling : look_up(r->root, "rope_parameters");
    const json_t *named = look_up(scaling, "rope_type");
    named = named != NULL ? named : look_up(scaling, "type");
    static const char *const types[] = {"default", "llama3", NULL};
    enum { DEFAULT, LLAMA3 };
    const char *word = json_string_value(named);
    int type = scaling == NULL ? DEFAULT : word != NULL ? name_find(types, word) : -1;
    struct model *m = r->model;
    if (type == DEFAULT) {
        if ((m->stated & model_param_bit("rope_theta")) != 0) {
            m->rope_factor = m->rope_low_factor = m->rope_high_factor = 0;
            m->rope_original_positions = 0;
            for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
                m->stated |= model_param_bit(words[i][0]); /* it says that nothing is stretched */
            }
        }
        return 0;
    }
    if (type != LLAMA3) {
        return err_usage(r->err,
                         "%s: rope_scaling of type '%s', but the engine runs 'llama3' and none",
                         r->path, word != NULL ? word : "");
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const json_t *value = look_up(scaling, words[i][1]);
        if (value != NULL && state(r, words[i][0], words[i][1], value) != 0) {
            return (int)r->err->kind;
        }
    }
    bool has_all = look_up(scaling, "factor") != NULL && look_up(scaling, words[3][1]) != NULL;
    return has_all && m->rope_factor >= 1 && m->rope_low_factor > 0 &&
                   m->rope_high_factor > m->rope_low_factor && m->rope_original_positions >= 1
               ? 0
               : err_usage(r->err,
                           "%s: rope_scaling of type 'llama3' needs a factor of at least 1, "
                           "0 < low_freq_factor < high_freq_factor and "
                           "original_max_position_embeddings",
                           r->path);
}

/* A share of a head's channels, for which some have a factor. */
static int take_rotary(struct reading *r) {
    const json_t *factor = look_up(r->root, "partial_rotary_factor");
    struct model *m = r->model;
    double share = json_number_value(factor), channels = share * m->head_dim;
    if (factor == NULL || (m->rotary_dim == 0 && share == 1)) {
        return 0;
    }
    if (m->rotary_dim > 0) {
        return channels == m->rotary_dim
                   ? 0
                   : err_usage(r->err,
                               "%s: partial_rotary_factor is %g, but rotary_dim is %" PRIu32
                               " of %" PRIu32 " channels",
                               r->path, share, m->rotary_dim, m->head_dim);
    }
    if (!(share > 0 && share < 1) || channels != (double)(uint32_t)channels) {
        return err_usage(r->err, "%s: partial_rotary_factor must be a share of head_dim", r->path);
    }
    m->rotary_dim = (uint32_t)channels;
    m->stated |= model_param_bit("rotary_dim");
    return 0;
}

/* OLMo's code, and so LLaDA's: an FFN without a width of its own is mlp_ratio times as wide as
 * there are channels between layers, 4 times where config.json does not say
 * (GSAI-ML/LLaDA-8B-Instruct: configuration_llada.py, modeling_llada.py). */
static int take_ffn(struct reading *r) {
    enum { CODES_OWN = 4, MOST = 1 << 20 };
    const char *key = family_value(&r->family, "config", "ffn");
    const json_t *ratio = look_up(r->root, "mlp_ratio");
    struct model *m = r->model;
    if (key == NULL || strcmp(key, "mlp_hidden_size") != 0 || look_up(r->root, key) != NULL) {
        return 0;
    }
    if (ratio == NULL) {
        m->ffn = CODES_OWN * m->hidden;
        return 0;
    }
    const json_int_t times = json_integer_value(ratio); /* 0 of what is none */
    if (times < 1 || times > MOST) {
        return err_usage(r->err, "%s: mlp_ratio must be a whole number from 1 to %d", r->path,
                         MOST);
    }
    json_t *width = json_integer(times * m->hidden);
    const int status = state(r, "ffn", "mlp_ratio", width);
    json_decref(width);
    return status;
}

/* ---- what follows from it ---- */

static void derive(struct model *m) {
    if (m->kv_heads == 0) {
        m->kv_heads = m->heads;
    }
    if (m->local_window > 0 && m->global_kv_heads == 0) {
        m->global_kv_heads = m->kv_heads;
    }
    if (m->head_dim == 0 && m->heads > 0 && m->hidden % m->heads == 0) {
        m->head_dim = m->hidden / m->heads;
    }
    if (m->shared_experts == 0) {
        m->shared_ffn = 0;
        m->stated &= ~model_param_bit("shared_ffn");
    }
    if (m->experts > 0 && m->dense_layers == 0) {
        m->ffn = 0;
        m->stated &= ~model_param_bit("ffn");
    }
    if (m->block_experts > 0) {
        m->block_routing = BLOCK_ROUTING_LARGEST;
    }
}

/* "mask_token = 151669, ..." of what config.json could have said and did not. */
static void note_assumed(struct reading *r) {
    char text[ASSUMED_CHARS] = "", value[64];
    for (size_t i = 0; i < model_n_params; i++) {
        const struct param *param = &model_params[i];
        size_t used = strlen(text);
        const bool is_assumed = family_assumed(&r->family, param->name) != NULL ||
                                (strcmp(param->name, "ffn") == 0 && r->model->ffn > 0);
        if (is_assumed && (r->model->stated >> i & 1) == 0) {
            snprintf(text + used, sizeof text - used, "%s%s = %s", used > 0 ? ", " : "",
                     param->name, param_text(param, r->model, value, sizeof value));
        }
    }
    r->model->assumed = catalogue_keep_text(text);
}

/* The family's words on what it stands for; or that config.json has a mask token, for which an
 * autoregressive model has no use: some diffusion models keep the class that they began from. */
static void note_attention(struct reading *r) {
    const char *note = family_value(&r->family, "family", "note");
    char text[ASSUMED_CHARS];
    const json_t *token = look_up(r->root, "mask_token_id");
    if (note == NULL && r->model->mask == MASK_CAUSAL && json_is_integer(token)) {
        snprintf(text, sizeof text,
                 "config.json names mask_token_id %" JSON_INTEGER_FORMAT
                 ", and models of %s are autoregressive: of a diffusion model, --set "
                 "model.attention, model.block_tokens and model.mask_token say so",
                 json_integer_value(token), r->model->family);
        note = text;
    }
    r->model->note = note != NULL ? catalogue_keep_text(note) : NULL;
}

/* ---- reading ---- */

/* LLaDA-V calls its language model LLaDAModelLM, and its sizes as Llama does: a family names the
 * one whose words count where config.json has none of its own for the number of layers. */
static int take_other_words(struct reading *r) {
    const char *other = family_value(&r->family, "family", "otherwise");
    const char *key = family_value(&r->family, "config", "layers");
    if (other == NULL || look_up(r->root, key) != NULL ||
        look_up(r->root, "num_hidden_layers") == NULL) {
        return 0;
    }
    r->model->family = catalogue_keep_text(other);
    family_close(&r->family);
    return family_open(r->model->family, r->path, &r->family, r->err);
}

/* The architecture is the class that runs the model; a model_type may be an older class's, from
 * which the authors began. */
static int find_family(struct reading *r) {
    char name[128];
    const char *type = json_string_value(look_up(r->root, "model_type"));
    const char *architecture =
        json_string_value(json_array_get(json_object_get(r->root, "architectures"), 0));
    const char *known = architecture != NULL
                            ? family_of_architecture(architecture, name, sizeof name, r->err)
                            : NULL;
    if (r->err->kind != ERR_NONE) {
        return err_status(r->err);
    }
    if (known == NULL && type == NULL) {
        return err_usage(r->err, "%s: neither model_type nor architectures names a family",
                         r->path);
    }
    if (known == NULL && architecture != NULL) {
        r->model->architecture = catalogue_keep_text(architecture);
    }
    r->model->family = catalogue_keep_text(known != NULL ? known : type);
    const int status = family_open(r->model->family, r->path, &r->family, r->err);
    return status != 0 ? status : take_other_words(r);
}

/* What experiments/train/prefix_depth.py measured of the checkpoint, if it did. */
static int take_prefix_depth(struct reading *r) {
    const json_t *depth = json_object_get(r->root, "prefix_depth");
    const json_t *layers = json_object_get(depth, "layers"),
                 *share = json_object_get(depth, "share");
    if (depth == NULL) {
        return 0;
    }
    const json_int_t n = json_integer_value(layers);
    const double least = json_number_value(share);
    if (!json_is_integer(layers) || !json_is_number(share) || n < 1 || n > 1024 || least < 0 ||
        least > 1) {
        return err_world(r->err,
                         "%s: prefix_depth must have layers, a whole number from 1 to 1024, and "
                         "share, a number from 0 to 1",
                         r->path);
    }
    r->model->prefix_layers = (uint32_t)n;
    r->model->prefix_share = least;
    return 0;
}

static int take_all(struct reading *r) {
    int status = check_expected(r, &r->family.own);
    status = status != 0 ? status : check_expected(r, &r->family.like);
    status = status != 0 ? status : take_assumed(r);
    status = status != 0 ? status : take_stated(r);
    status = status != 0 ? status : take_ffn(r);
    status = status != 0 ? status : take_scaling(r);
    status = status != 0 ? status : take_quantised(r);
    status = status != 0 ? status : take_prefix_depth(r);
    if (status != 0) {
        return status;
    }
    derive(r->model);
    if ((status = take_rotary(r)) == 0) {
        note_assumed(r);
        note_attention(r);
    }
    return status;
}

int model_config_read(const char *path, const char *role, struct model *model, struct err *err) {
    json_t *root = json_read(path, role, JSON_REJECT_DUPLICATES, err);
    if (root == NULL) {
        return err_status(err);
    }
    struct reading reading = {.path = path, .root = root, .model = model, .err = err};
    int status = json_is_object(root) ? find_family(&reading)
                                      : err_world(err, "%s: expected one JSON object", path);
    if (status == 0) {
        status = take_all(&reading);
        family_close(&reading.family);
    }
    json_decref(root);
    if (status != 0) {
        err->kind = ERR_WORLD; /* not the user's own file, whatever is wrong with it */
    }
    return status != 0 ? (int)ERR_WORLD : 0;
}

/* What the configurations of the family call it. */
static int lacks(const char *path, const char *family_name, const char *param, struct err *err) {
    struct family family;
    char key[64] = "";
    if (family_open(family_name, path, &family, err) == 0) {
        const char *keys = family_value(&family, "config", param);
        (void)next_word(keys != NULL ? keys : "", key, sizeof key);
        family_close(&family);
    }
    return key[0] != '\0'
               ? err_world(err, "%s: has no %s, from which a model of the family %s takes its %s",
                           path, key, family_name, param)
               : err_world(err, "%s: says nothing of the model's %s", path, param);
}

int model_config_find(const char *path, void *thing, struct err *err) {
    struct model *model = thing;
    int status = model_config_read(path, "model", model, err);
    if (status != 0) {
        return status;
    }
    const struct {
        const char *name;
        uint32_t value;
    } needed[] = {{"layers", model->layers},
                  {"hidden", model->hidden},
                  {"heads", model->heads},
                  {"head_dim", model->head_dim},
                  {"vocab", model->vocab},
                  {"max_positions", model->max_positions},
                  {"block_tokens", model->block_tokens}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (needed[i].value == 0) {
            return lacks(path, model->family, needed[i].name, err);
        }
    }
    bool is_guess = (model->stated & model_param_bit("mask_token")) == 0 && !model->uniform_noise;
    if (is_guess && model->mask != MASK_CAUSAL && model->mask_token >= model->vocab) {
        return err_world(err,
                         "%s: says no mask_token_id, and the family's, %" PRIu32
                         ", is none of its %" PRIu32 " tokens: add it to the file",
                         path, model->mask_token, model->vocab);
    }
    char source[512];
    snprintf(source, sizeof source, "%s", path);
    model->source = catalogue_keep_text(source);
    model->title = model->name;
    return 0;
}

/* ---- comparing ---- */

/* What a rank has a share of, and what is no property of weights. */
static bool is_compared(const struct model *model, const char *name) {
    static const char *const divided[] = {
        "heads",          "kv_heads",   "ffn",        "vocab",      "experts",
        "experts_active", "expert_ffn", "shared_ffn", "mask_token", NULL};
    static const char *const others[] = {"block_tokens", "norm_epsilon", NULL};
    enum { BLOCK_TOKENS, NORM_EPSILON };
    int other = name_find(others, name);
    if (other == BLOCK_TOKENS || (model->ranks > 1 && name_find(divided, name) >= 0)) {
        return false;
    }
    if (model->uniform_noise && strcmp(name, "mask_token") == 0) {
        return false; /* run as a model of uniform noise, whatever it was made for */
    }
    bool is_constant = other == NORM_EPSILON || name_behind(name, "rope_") != NULL;
    return !is_constant || model->rope_theta != 0;
}

int model_agree(const struct model *model, const struct model *config, const char *path,
                struct err *err) {
    if (model->family == NULL || strcmp(model->family, config->family) != 0) {
        return err_world(err, "%s: the model_type is '%s', but %s is of the family %s", path,
                         config->family, model->name,
                         model->family != NULL ? model->family : "(none)");
    }
    struct model ours = *model, theirs = *config;
    ours.rotary_dim = model_rotary_dim(model);
    theirs.rotary_dim = model_rotary_dim(config);
    for (size_t i = 0; i < model_n_params; i++) {
        const struct param *param = &model_params[i];
        char mine[64], said[64];
        if ((config->stated >> i & 1) == 0 || !is_compared(model, param->name)) {
            continue;
        }
        param_text(param, &ours, mine, sizeof mine);
        param_text(param, &theirs, said, sizeof said);
        if (strcmp(mine, said) != 0) {
            return err_world(err, "%s: %s is %s, but %s has %s", path, param->name, said,
                             model->name, mine);
        }
    }
    return 0;
}
