#include "sim/system/system_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/datadir.h"
#include "sim/base/input/path.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/system/system_facts.h"

static const char *const file_words[] = {"base", "doc", "model", "source", NULL};

static const char assumed_prefix[] = "assumed.";

/* Replace "$NAME" by the calibrated constant of that name and note that it is in force. */
int system_expand(struct system *s, const struct config *constants, struct setting *setting,
                  struct err *err) {
    if (setting->value[0] != '$') {
        return 0;
    }
    const char *name = setting->value + 1;
    const struct config_entry *value = config_find(constants, name, "value");
    const struct config_entry *fitted = config_find(constants, name, "fitted_to");
    if (value == NULL || fitted == NULL) {
        return err_usage(err, "%s: no calibrated constant '%s' with value and fitted_to in %s",
                         setting->place, name, constants->path);
    }
    uint32_t i = 0;
    while (i < s->n_calibrated && strcmp(s->calibrated[i].name, name) != 0) {
        i++;
    }
    if (i == MAX_CALIBRATED) {
        return err_usage(err, "%s: more than %d calibrated constants", setting->place,
                         MAX_CALIBRATED);
    }
    struct calibrated *calibrated = &s->calibrated[i];
    s->n_calibrated = i == s->n_calibrated ? i + 1 : s->n_calibrated;
    snprintf(calibrated->name, sizeof calibrated->name, "%s", name);
    snprintf(calibrated->fitted_to, sizeof calibrated->fitted_to, "%s", fitted->value);
    if (!num_f64(value->value, &calibrated->value)) {
        return err_usage(err, "%s:%d: '%s' is not a number", constants->path, value->line,
                         value->value);
    }
    snprintf(setting->constant, sizeof setting->constant, "%s", name);
    snprintf(setting->value, sizeof setting->value, "%s", value->value);
    return 0;
}

static bool has_section(const struct config *config, const char *name) {
    return config_next(config, name, NULL, NULL) != NULL;
}

/* The file that a section of that name is read from; NULL: none. The section that names itself as
 * its base means the shipped one. */
static const struct config *file_of(const struct system_files *files, const char *name,
                                    bool is_shipped) {
    if (!is_shipped && has_section(&files->own, name)) {
        return &files->own;
    }
    return has_section(&files->shipped, name) ? &files->shipped : NULL;
}

enum { MOST_NAMES = 256 };

static size_t add_names(const struct config *config, const char **names, size_t n) {
    for (size_t i = 0; i < config->n_entries && n < MOST_NAMES; i++) {
        const char *section = config->entries[i].section;
        if (n == 0 || strcmp(names[n - 1], section) != 0) {
            names[n++] = section;
        }
    }
    return n;
}

static int unknown_system(const struct system_files *files, const char *name, struct err *err) {
    const char *names[MOST_NAMES + 1] = {NULL};
    bool has_own = files->own.path != NULL;
    add_names(&files->shipped, names, add_names(&files->own, names, 0));
    char hint[NAME_HINT_CHARS];
    name_hint(name, names, hint);
    return err_unknown(err, "unknown system '%s'%s%s%s%s (`unmask list systems` prints them all)",
                       name, has_own ? " in " : "", has_own ? files->own.path : "",
                       has_own ? " and the shipped systems" : "", hint);
}

/* The reason given for a setting that was inferred; a later section's replaces it. */
static int take_assumption(struct system *s, const struct setting *setting, struct err *err) {
    const char *key = setting->key + strlen(assumed_prefix);
    uint32_t i = 0;
    while (i < s->n_assumed && strcmp(s->assumed[i].key, key) != 0) {
        i++;
    }
    if (i == MAX_ASSUMED) {
        return err_usage(err, "%s: more than %d assumed settings", setting->place, MAX_ASSUMED);
    }
    s->n_assumed = i == s->n_assumed ? i + 1 : s->n_assumed;
    snprintf(s->assumed[i].key, sizeof s->assumed[i].key, "%.*s", (int)sizeof s->assumed[i].key - 1,
             key);
    snprintf(s->assumed[i].why, sizeof s->assumed[i].why, "%s", setting->value);
    return 0;
}

/* What the file sets each of them to, so that other values can be told from it. */
static int settle_assumptions(struct system *s, struct err *err) {
    for (uint32_t i = 0; i < s->n_assumed; i++) {
        const struct setting *setting = system_applied(s, s->assumed[i].key);
        if (setting == NULL) {
            return err_usage(err, "system %s: %s%s stands without %s", s->name, assumed_prefix,
                             s->assumed[i].key, s->assumed[i].key);
        }
        snprintf(s->assumed[i].value, sizeof s->assumed[i].value, "%s", setting->value);
    }
    return 0;
}

/* A profile that was named, calibrated with a model of another shape: its sizes and its host rows
 * are those of that model's steps. */
static void warn_of_profile(const struct system *s, struct warnings *warnings) {
    const char *of =
        s->profile_path[0] != '\0' && s->profile != NULL ? profile_note(s->profile, "model") : NULL;
    struct err ignored = {0};
    const struct model *profiled = of != NULL ? model_find(of, &ignored) : NULL;
    if (of != NULL && strcmp(of, s->whole->name) != 0 &&
        (profiled == NULL || !model_has_shape_of(s->whole, profiled))) {
        warnings_add(warnings, WARNING_PROFILE_OF_OTHER, (double)NAN,
                     "%s was calibrated with %s, not with %s: products of other sizes lie between "
                     "its rows, and its host rows are of that model's steps",
                     s->profile_path, of, s->whole->name);
    }
}

/* A calibration that rested for the highest clock, and was too short to tell how a card slows. */
static void warn_of_clock(const struct system *s, struct warnings *warnings) {
    const char *power = s->profile != NULL ? profile_note(s->profile, "power") : NULL;
    if (power != NULL && strncmp(power, "not known", strlen("not known")) == 0) {
        warnings_add(warnings, WARNING_CLOCK_UNKNOWN, (double)NAN,
                     "%s prices steps at the card's highest clock, for its power was not measured: "
                     "two H200s under load took 17 %% longer than simulated so; calibrate --clocks "
                     "with more --minutes",
                     s->profile_path[0] != '\0' ? s->profile_path : "the profile");
    }
}

void system_warn_of_attention(const struct system *s, struct warnings *warnings) {
    const struct model *model = s->whole;
    if (system_applied(s, "model.attention") != NULL) {
        return;
    }
    if (model->architecture != NULL) {
        warnings_add(
            warnings, WARNING_ARCHITECTURE_UNKNOWN, (double)NAN,
            "config.json of %s names the architecture %s, which no family has: it is taken "
            "for a model of %s, with %s attention; --set model.attention, "
            "model.block_tokens and model.mask_token say otherwise",
            model->name, model->architecture, model->family, attention_mask_names[model->mask]);
    }
    if (model->note != NULL) {
        warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)NAN, "%s: %s", model->name,
                     model->note);
    }
}

void system_warn_of_settings(const struct system *s, struct warnings *warnings) {
    const struct model *model = s->whole;
    warn_of_profile(s, warnings);
    warn_of_clock(s, warnings);
    if (s->hides_shipped) {
        warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)NAN,
                     "%s is the user's system, not the shipped one of that name", s->name);
    }
    system_warn_of_attention(s, warnings);
    if (model->assumed != NULL && model->assumed[0] != '\0') {
        warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)NAN,
                     "config.json of %s does not say: %s (as %s models have it)", model->name,
                     model->assumed, model->family);
    }
    const char *weights = number_words[s->settings.storage.weights];
    if (model->quantised != NULL && strcmp(model->quantised, weights) != 0) {
        warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)NAN,
                     "config.json of %s says that its weights are stored in %s, and the system has "
                     "them in %s: --set storage.weights=%s says otherwise",
                     model->name, model->quantised, weights, model->quantised);
    }
    for (uint32_t i = 0; i < s->n_applied; i++) {
        if (name_behind(s->applied[i].key, "model.") != NULL) {
            warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)NAN, "%s of %s is set to %s",
                         s->applied[i].key, model->name, s->applied[i].value);
        }
    }
    for (uint32_t i = 0; i < s->n_assumed; i++) {
        const struct assumption *assumed = &s->assumed[i];
        const struct setting *now = system_applied(s, assumed->key); /* NULL: of another policy */
        if (now != NULL && strcmp(now->value, assumed->value) == 0) {
            warnings_add(warnings, WARNING_SETTING_ASSUMED, (double)NAN,
                         "%s = %s of %s is assumed: %s", assumed->key, assumed->value, s->name,
                         assumed->why);
        }
    }
}

static int take_entry(struct system *s, const struct config *config, const struct config *constants,
                      const struct config_entry *entry, enum said_by said, struct err *err) {
    struct setting setting = {.said = said};
    config_place(config, entry, setting.place, sizeof setting.place);
    snprintf(setting.value, sizeof setting.value, "%s", entry->value);
    const char *at = strchr(entry->key, '@');
    size_t length = at != NULL ? (size_t)(at - entry->key) : strlen(entry->key);
    snprintf(setting.key, sizeof setting.key, "%.*s", (int)length, entry->key);
    if (at != NULL && strcmp(at + 1, s->gpu->name) != 0) {
        return gpu_check_name(at + 1, err);
    }
    if (name_behind(setting.key, assumed_prefix) != NULL) {
        return take_assumption(s, &setting, err);
    }
    int status = system_expand(s, constants, &setting, err);
    return status != 0 ? status : system_remember(s, &setting, err);
}

static int take_entries(struct system *s, const struct config *config,
                        const struct config *constants, const char *name, bool of_gpu,
                        enum said_by said, struct err *err) {
    const struct config_entry *entry = NULL;
    while ((entry = config_next(config, name, NULL, entry)) != NULL) {
        if (name_find(file_words, entry->key) < 0 && (strchr(entry->key, '@') != NULL) == of_gpu) {
            int status = take_entry(s, config, constants, entry, said, err);
            if (status != 0) {
                return status;
            }
        }
    }
    return 0;
}

/* The section's base first, then its own keys; those for this GPU after the plain ones. */
static int take_section(struct system *s, const struct system_files *files, const char *name,
                        bool is_shipped, int depth, struct err *err) {
    const struct config *config = file_of(files, name, is_shipped);
    if (config == NULL) {
        return unknown_system(files, name, err);
    }
    const struct config_entry *base = config_find(config, name, "base");
    if (base != NULL) {
        if (depth == 8) {
            return err_usage(err, "%s:%d: the bases of [%s] go in a circle", config->path,
                             base->line, name);
        }
        bool of_shipped = config == &files->shipped || strcmp(base->value, name) == 0;
        int status = take_section(s, files, base->value, of_shipped, depth + 1, err);
        if (status != 0) {
            return status;
        }
    }
    s->layer++;
    const enum said_by said = config == &files->shipped ? SAID_BY_SHIPPED : SAID_BY_FILE;
    int status = take_entries(s, config, &files->constants, name, false, said, err);
    return status != 0 ? status : take_entries(s, config, &files->constants, name, true, said, err);
}

/* The nearest `model` along the chain of bases, or NULL. */
const char *system_file_model(const struct system_files *files, const char *name) {
    bool is_shipped = false;
    for (int depth = 0; depth < 8; depth++) {
        const struct config *config = file_of(files, name, is_shipped);
        if (config == NULL) {
            return NULL;
        }
        const struct config_entry *model = config_find(config, name, "model");
        const struct config_entry *base = config_find(config, name, "base");
        if (model != NULL || base == NULL) {
            return model != NULL ? model->value : NULL;
        }
        is_shipped = config == &files->shipped || strcmp(base->value, name) == 0;
        name = base->value;
    }
    return NULL;
}

static bool has_any_section(const struct config *config, const char *names) {
    const char *word;
    size_t length;
    for (const char *rest = names; rest != NULL && name_next(&rest, ",", &word, &length);) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)length, word);
        if (has_section(config, name)) {
            return true;
        }
    }
    return false;
}

int system_take_section(struct system *s, const struct system_files *files, const char *name,
                        const char *compared, struct err *err) {
    ASSERT(files != NULL);
    int status = take_section(s, files, name, false, 0, err);
    s->hides_shipped = has_section(&files->own, name) && has_section(&files->shipped, name);
    if (files->own.path != NULL && !has_section(&files->own, name) &&
        !has_any_section(&files->own, compared)) {
        snprintf(s->unused_file, sizeof s->unused_file, "%s", files->own.path);
    }
    return status != 0 ? status : settle_assumptions(s, err);
}

bool system_key_names_file(const char *key) {
    size_t length = strcspn(key, "@");
    for (int part = 0; part < SYSTEM_PARTS; part++) {
        const char *name = system_part_names[part];
        if (strlen(name) == length && strncmp(name, key, length) == 0) {
            return part != SYSTEM_CONFIDENCE; /* MODEL/WORKLOAD, no file */
        }
    }
    return false;
}

/* Paths in the user's file begin at that file's folder. */
static int place_files(struct config *own, struct err *err) {
    for (size_t i = 0; i < own->n_entries; i++) {
        struct config_entry *entry = &own->entries[i];
        char placed[sizeof((struct setting *)0)->value];
        if (!system_key_names_file(entry->key) || strchr(entry->value, '/') == NULL) {
            continue;
        }
        if (!path_named_in(own->path, entry->value, placed, sizeof placed)) {
            return err_usage(err, "%s:%d: the path of %s is longer than %zu characters", own->path,
                             entry->line, entry->key, sizeof placed - 1);
        }
        free(entry->value);
        entry->value = mem_text(placed);
    }
    return 0;
}

int system_files_read(const char *own_path, struct system_files *out, struct err *err) {
    char path[1024];
    *out = (struct system_files){.own.path = NULL};
    int status = own_path != NULL ? config_read(own_path, &out->own, err) : 0;
    if (status == 0 && own_path != NULL) {
        status = place_files(&out->own, err);
    }
    if (status == 0) {
        status = config_read(data_path(path, sizeof path, "experiments/study/systems.ini"),
                             &out->shipped, err);
    }
    if (status == 0) {
        status = config_read(data_path(path, sizeof path, "experiments/study/calibrated.ini"),
                             &out->constants, err);
    }
    if (status != 0) {
        system_files_close(out);
    }
    return status;
}

void system_files_close(struct system_files *files) {
    config_fini(&files->own);
    config_fini(&files->shipped);
    config_fini(&files->constants);
}

int system_list(int (*each)(void *state, const char *name, const char *doc), void *state,
                struct err *err) {
    struct system_files files;
    int status = system_files_read(NULL, &files, err);
    if (status != 0) {
        return status;
    }
    const struct config *systems = &files.shipped;
    for (size_t i = 0; status == 0 && i < systems->n_entries; i++) {
        const char *section = systems->entries[i].section;
        if (i == 0 || strcmp(section, systems->entries[i - 1].section) != 0) {
            const struct config_entry *doc = config_find(systems, section, "doc");
            status = each(state, section, doc != NULL ? doc->value : "");
        }
    }
    system_files_close(&files);
    return status;
}
