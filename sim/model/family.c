#include "sim/model/family.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/datadir.h"
#include "sim/base/input/inputs.h"

#define FOLDER "sim/model/families"

enum { PATH_CHARS = 4096 };

static const char *path_of(const char *name, char *path) {
    char relative[256];
    snprintf(relative, sizeof relative, FOLDER "/%.128s.ini", name);
    return data_path(path, PATH_CHARS, relative);
}

static int unknown(const char *name, const char *place, struct err *err) {
    struct err ignored = {0};
    char text[512] = "", **names = data_names(FOLDER, &ignored);
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    names_free(names);
    return err_usage(
        err,
        "%s: no family of models is called '%s'; there are: %s; a model that computes as "
        "one of them runs with that model_type and --set model.attention=...",
        place, name, text);
}

int family_open(const char *name, const char *place, struct family *out, struct err *err) {
    char path[PATH_CHARS];
    *out = (struct family){0};
    if (strchr(name, '/') != NULL || access(path_of(name, path), R_OK) != 0) {
        return unknown(name, place, err);
    }
    int status = config_read(path, &out->own, err);
    const struct config_entry *like = status == 0 ? config_find(&out->own, "family", "like") : NULL;
    if (like != NULL && (status = config_read(path_of(like->value, path), &out->like, err)) != 0) {
        config_fini(&out->own);
    }
    return status;
}

void family_close(struct family *family) {
    config_fini(&family->own);
    config_fini(&family->like);
}

const struct config_entry *family_assumed(const struct family *family, const char *key) {
    return config_find(&family->own, "assumed", key);
}

const char *family_value(const struct family *family, const char *section, const char *key) {
    const struct config_entry *entry = config_find(&family->own, section, key);
    if (entry == NULL) {
        entry = config_find(&family->like, section, key);
    }
    return entry != NULL && entry->value[0] != '\0' ? entry->value : NULL;
}

const char *family_of_architecture(const char *architecture, char *name, size_t size,
                                   struct err *err) {
    bool is_found = false;
    char path[PATH_CHARS], **names = data_names(FOLDER, err);
    /* Who asks notes the family that it then opens, not those that it is none of. */
    struct inputs *noted_by = inputs_collect(NULL);
    for (size_t i = 0; names[i] != NULL && !is_found && err->kind == ERR_NONE; i++) {
        struct config config;
        if (config_read(path_of(names[i], path), &config, err) == 0) {
            const struct config_entry *entry = config_find(&config, "family", "architectures");
            is_found = entry != NULL && strcmp(entry->value, architecture) == 0;
            snprintf(name, size, "%s", names[i]);
            config_fini(&config);
        }
    }
    (void)inputs_collect(noted_by);
    names_free(names);
    return is_found ? name : NULL;
}
