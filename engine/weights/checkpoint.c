#include "engine/weights/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/input/inputs.h"
#include "sim/base/num.h"
#include "sim/model/model_config.h"

/* The parts of a slot, or all in one. */
static void take_names(struct checkpoint_family *f, enum weight_slot slot) {
    const char *names = family_value(&f->family, "tensors", weight_slot_names[slot]);
    for (int part = 0; names != NULL && part < WEIGHT_MAX_PARTS; part++) {
        names += strspn(names, " ");
        size_t length = strcspn(names, " ");
        snprintf(f->names[slot][part], CHECKPOINT_NAME_CHARS, "%.*s", (int)length, names);
        names += length;
    }
}

/* What a layer's or an expert's names begin with. */
static void take_prefix(const struct checkpoint_family *f, const char *key, char *prefix) {
    const char *text = family_value(&f->family, "tensors", key);
    snprintf(prefix, CHECKPOINT_NAME_CHARS, "%s", text != NULL ? text : "");
}

static int no_weights(const struct model *model, struct err *err) {
    return err_usage(err, "the engine has no weights for model '%s', which names no family",
                     model->name);
}

int checkpoint_family_open(const struct model *model, struct checkpoint_family *out,
                           struct err *err) {
    *out = (struct checkpoint_family){.model = model};
    if (model->family == NULL) {
        return no_weights(model, err);
    }
    int status = family_open(model->family, model->name, &out->family, err);
    for (int slot = 0; status == 0 && slot < WEIGHT_SLOT_COUNT; slot++) {
        take_names(out, (enum weight_slot)slot);
    }
    if (status == 0) {
        take_prefix(out, "layers", out->layers);
        take_prefix(out, "experts", out->experts);
    }
    return status;
}

void checkpoint_family_close(struct checkpoint_family *f) {
    family_close(&f->family);
}

bool checkpoint_stores_whole(const struct checkpoint_family *f, enum weight_slot slot) {
    return weight_parts_at_once(slot) > 1 && f->names[slot][1][0] == '\0';
}

const char *checkpoint_tensor_name(const struct checkpoint_family *f, enum weight_slot slot,
                                   int part, uint32_t layer, char *text, size_t size) {
    int n_at_once = weight_parts_at_once(slot);
    bool is_whole = checkpoint_stores_whole(f, slot);
    const char *name = f->names[slot][is_whole ? 0 : part % n_at_once];
    if (name[0] == '\0') {
        return NULL;
    }
    if (!weight_is_per_layer(slot)) {
        snprintf(text, size, "%s", name);
    } else if (weight_holds_experts(slot)) {
        snprintf(text, size, "%s%u.%s%d.%s", f->layers, layer, f->experts, part / n_at_once, name);
    } else {
        snprintf(text, size, "%s%u.%s", f->layers, layer, name);
    }
    return text;
}

static struct weight_constants constants_of(const struct model *m) {
    return (struct weight_constants){
        {m->rope_theta,
         {m->rope_factor, m->rope_low_factor, m->rope_high_factor, m->rope_original_positions}},
        (float)m->norm_epsilon};
}

static double assumed(const struct checkpoint_family *f, const char *key) {
    const struct config_entry *entry = family_assumed(&f->family, key);
    double value = 0;
    return entry != NULL && num_f64(entry->value, &value) ? value : 0;
}

struct weight_constants checkpoint_constants(const struct checkpoint_family *f) {
    struct model m = *f->model;
    if (m.rope_theta == 0) {
        m.rope_theta = assumed(f, "rope_theta");
        m.rope_factor = assumed(f, "rope_factor");
        m.rope_low_factor = assumed(f, "rope_low_factor");
        m.rope_high_factor = assumed(f, "rope_high_factor");
        m.rope_original_positions = assumed(f, "rope_original_positions");
    }
    m.norm_epsilon = m.norm_epsilon > 0 ? m.norm_epsilon : assumed(f, "norm_epsilon");
    return constants_of(&m);
}

int checkpoint_read_constants(const struct checkpoint_family *f, const char *folder,
                              struct weight_constants *out, struct err *err) {
    char path[4096];
    struct model config = {0};
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path) {
        return err_world(err, "%.64s...: the folder's name is too long", folder);
    }
    int status = model_config_read(path, "weights", &config, err);
    status = status != 0 ? status : model_agree(f->model, &config, path, err);
    if (status != 0) {
        return status;
    }
    uint64_t needed = model_param_bit("rope_theta") | model_param_bit("norm_epsilon");
    if ((config.stated & needed) != needed || config.rope_theta <= 1 || config.norm_epsilon <= 0) {
        return err_world(err,
                         "%s: rope_theta must be a number above 1 and rms_norm_eps one between 0 "
                         "and 1",
                         path);
    }
    *out = constants_of(&config);
    return 0;
}
