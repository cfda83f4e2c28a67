#include "sim/base/input/catalogue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/condition.h"
#include "sim/base/input/datadir.h"
#include "sim/base/input/inputs.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"

enum { PATH_CHARS = 4096, MOST_NAMES = 256 };

/* A file that was read, by what tells that it changed. */
struct item {
    char *path;
    struct stat facts;
    struct catalogued *thing;
    struct inputs read; /* what was: the file, and others that it names, such as a family's */
};

struct catalogue_items {
    struct item *read;
    size_t n, room;
    const void **all; /* NULL after the last; NULL until first needed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Texts of things, which stay as long as these. */
struct kept {
    struct kept *before;
    char text[];
};
static struct kept *last_kept;

const char *catalogue_keep_text(const char *text) {
    size_t size = strlen(text) + 1;
    struct kept *kept = mem_unwritten(1, sizeof *kept + size);
    memcpy(kept->text, text, size);
    kept->before = last_kept;
    last_kept = kept;
    return kept->text;
}

/* Those of a thing that did not come to be. */
static void drop_texts(struct kept *until) {
    while (last_kept != until) {
        struct kept *before = last_kept->before;
        free(last_kept);
        last_kept = before;
    }
}

/* Whether a name is a path. */
static bool catalogue_is_path(const char *name) {
    return strchr(name, '/') != NULL || name_ends(name, ".ini") || name_ends(name, ".json");
}

/* ---- one file ---- */

static const struct catalogue_text *find_text(const struct catalogue *c, const char *key) {
    for (const struct catalogue_text *text = c->texts; text->key != NULL; text++) {
        if (strcmp(text->key, key) == 0) {
            return text;
        }
    }
    return NULL;
}

static int take_entry(const struct catalogue *c, const struct config *config,
                      const struct config_entry *entry, char *thing, struct err *err) {
    char place[PATH_CHARS + 16];
    config_place(config, entry, place, sizeof place);
    if (strcmp(entry->section, c->section) != 0) {
        return err_usage(err, "%s: unknown section [%s], expected [%s]", place, entry->section,
                         c->section);
    }
    const struct catalogue_text *text = find_text(c, entry->key);
    if (text != NULL) {
        const char *kept = catalogue_keep_text(entry->value);
        memcpy(thing + text->offset, &kept, sizeof kept);
        return entry->value[0] != '\0' ? 0 : err_usage(err, "%s: %s is empty", place, entry->key);
    }
    if (param_find(c->params, c->n_params, entry->key) == NULL) {
        const char *names[MOST_NAMES + 1] = {NULL};
        size_t n = 0;
        for (text = c->texts; text->key != NULL && n < MOST_NAMES; text++) {
            names[n++] = text->key;
        }
        for (size_t i = 0; i < c->n_params && n < MOST_NAMES; i++) {
            names[n++] = c->params[i].name;
        }
        char hint[NAME_HINT_CHARS];
        name_hint(entry->key, names, hint);
        return err_usage(err, "%s: unknown key '%s' of a %s%s", place, entry->key, c->what, hint);
    }
    return param_set(c->params, c->n_params, thing + c->params_offset, c->what, place, entry->key,
                     entry->value, err);
}

/* Set a thing's values from a file, over what it holds already.
 * ERR_USAGE with file and line for an unknown key or section, or a value out of its range. */
static int catalogue_take(const struct catalogue *c, const struct config *config, void *thing,
                          struct err *err) {
    for (size_t i = 0; i < config->n_entries; i++) {
        if (take_entry(c, config, &config->entries[i], thing, err) != 0) {
            return (int)err->kind;
        }
    }
    return 0;
}

/* One more of what a file lacks. */
static void add_missing(const struct catalogue *c, const struct config *config, const char *key,
                        char *text, size_t size) {
    if (config_find(config, c->section, key) == NULL) {
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", key);
    }
}

/* All that is missing in one sentence. */
static int check_complete(const struct catalogue *c, const struct config *config, struct err *err) {
    char missing[1024] = "";
    for (const struct catalogue_text *text = c->texts; text->key != NULL; text++) {
        if (!text->is_optional) {
            add_missing(c, config, text->key, missing, sizeof missing);
        }
    }
    for (size_t i = 0; i < c->n_params; i++) {
        if (c->params[i].initial == NULL) {
            add_missing(c, config, c->params[i].name, missing, sizeof missing);
        }
    }
    const bool is_one = strchr(missing, ',') == NULL;
    return missing[0] == '\0'
               ? 0
               : err_usage(err, "%s: [%s] has no %s%s, which every %s needs", config->path,
                           c->section, missing, is_one ? " = ..." : "", c->what);
}

/* ---- what nothing reads ---- */

struct facts_of {
    const struct catalogue *c;
    const char *thing, *backend;
    bool *asks_others; /* of the run, which is not known here */
};

static const char *fact_of(const void *state, const char *name, char text[FACT_CHARS]) {
    const struct facts_of *of = state;
    const char *key = name_behind(name, of->c->section);
    const struct param *param =
        key != NULL && *key == '.' ? param_find(of->c->params, of->c->n_params, key + 1) : NULL;
    if (param != NULL) {
        return param_text(param, of->thing + of->c->params_offset, text, FACT_CHARS);
    }
    if (strcmp(name, "backend") == 0) {
        return of->backend;
    }
    const char *own = of->c->fact != NULL ? of->c->fact(of->thing, name) : NULL;
    *of->asks_others |= own == NULL;
    return own;
}

/* Whether some run of it would read what a doc's condition speaks of. */
static bool may_be_read(const struct catalogue *c, const char *thing, const char *condition) {
    static const char *const backends[] = {"sim", "cpu", "cuda"};
    bool asks_others = false, holds = false;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        const struct facts_of of = {c, thing, backends[i], &asks_others};
        const struct facts facts = {fact_of, &of};
        holds |= condition_holds(condition, &facts);
    }
    return holds || asks_others;
}

static void note_unread(const struct catalogue *c, const struct config *config, char *thing) {
    char *text = NULL;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    for (size_t i = 0; i < config->n_entries; i++) {
        const struct config_entry *entry = &config->entries[i];
        const struct param *param = param_find(c->params, c->n_params, entry->key);
        char condition[CONDITION_CHARS], place[PATH_CHARS + 16];
        if (param != NULL && condition_of(param->doc, condition) != NULL &&
            !may_be_read(c, thing, condition)) {
            fprintf(out, "%s\t%s\t%s\t%s\n", entry->key, entry->value,
                    config_place(config, entry, place, sizeof place), condition);
        }
    }
    mem_stream_close(out);
    ((struct catalogued *)(void *)thing)->unread = size > 0 ? catalogue_keep_text(text) : NULL;
    free(text);
}

void catalogue_warn_of_unread(const char *unread, struct warnings *warnings) {
    char *lines = unread != NULL ? mem_text(unread) : NULL, *rest = NULL;
    for (char *line = lines != NULL ? strtok_r(lines, "\n", &rest) : NULL; line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *word[4], *in_line = NULL;
        for (int i = 0; i < 4; i++) {
            word[i] = strtok_r(i == 0 ? line : NULL, "\t", &in_line);
        }
        ASSERT(word[3] != NULL);
        warnings_add_unused(warnings, word[0], word[1], word[2], word[3]);
    }
    free(lines);
}

static int read_ini(const struct catalogue *c, const char *path, char *thing, struct err *err) {
    struct config config;
    int status = config_read(path, &config, err);
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; i < c->n_params; i++) {
        if (c->params[i].initial != NULL) {
            param_defaults(&c->params[i], 1, thing + c->params_offset);
        }
    }
    status = catalogue_take(c, &config, thing, err);
    status = status != 0 ? status : check_complete(c, &config, err);
    if (status == 0 && ((struct catalogued *)(void *)thing)->path != NULL) {
        note_unread(c, &config, thing);
    }
    config_fini(&config);
    return status;
}

/* "sim/model/gpus/h100.ini" is h100, and "x/config.json", which every model's folder has, is x. */
static const char *name_of(const char *path) {
    char text[PATH_CHARS];
    snprintf(text, sizeof text, "%s", path);
    char *slash = strrchr(text, '/');
    if (name_ends(text, "/config.json")) {
        for (; slash > text && *slash == '/'; slash--) {
            *slash = '\0';
        }
        slash = strrchr(text, '/');
        return catalogue_keep_text(slash != NULL ? slash + 1 : text);
    }
    char *start = slash != NULL ? slash + 1 : text, *dot = strrchr(start, '.');
    if (dot != NULL && dot != start) {
        *dot = '\0';
    }
    return catalogue_keep_text(start);
}

static struct catalogued *read_thing(const struct catalogue *c, const char *path, bool is_shipped,
                                     struct err *err) {
    struct kept *kept_before = last_kept;
    struct catalogued *thing = mem_zeroed(1, c->size);
    thing->name = name_of(path);
    thing->path = is_shipped ? NULL : catalogue_keep_text(path);
    bool is_foreign = c->is_foreign != NULL && c->is_foreign(path);
    int status =
        is_foreign ? c->read_foreign(path, thing, err) : read_ini(c, path, (char *)thing, err);
    if (status == 0 && c->settle != NULL) {
        status = c->settle(thing, path, err);
    }
    if (status != 0) {
        drop_texts(kept_before);
        free(thing);
        return NULL;
    }
    return thing;
}

/* ---- looking up ---- */

static bool is_same(const struct item *item, const char *path, const struct stat *facts) {
    return strcmp(item->path, path) == 0 && item->facts.st_dev == facts->st_dev &&
           item->facts.st_ino == facts->st_ino && item->facts.st_size == facts->st_size &&
           system_changed(&item->facts).tv_sec == system_changed(facts).tv_sec &&
           system_changed(&item->facts).tv_nsec == system_changed(facts).tv_nsec;
}

/* Called with the lock held. */
static const struct item *recall(struct catalogue *c, const char *path, bool is_shipped,
                                 struct err *err) {
    struct stat facts = {0};
    if (c->items == NULL) {
        c->items = mem_zeroed(1, sizeof *c->items);
    }
    struct catalogue_items *items = c->items;
    bool is_known = stat(path, &facts) == 0;
    for (size_t i = 0; is_known && i < items->n; i++) {
        if (is_same(&items->read[i], path, &facts)) {
            return &items->read[i];
        }
    }
    struct inputs own = {0}, *noted_by = inputs_collect(&own);
    struct catalogued *thing = read_thing(c, path, is_shipped, err);
    (void)inputs_collect(noted_by);
    if (thing != NULL) {
        items->read = mem_grown(items->read, items->n, &items->room, sizeof *items->read);
        struct item *item = &items->read[items->n++];
        *item = (struct item){mem_text(path), facts, thing, own};
    } else {
        inputs_fini(&own);
    }
    return thing != NULL ? &items->read[items->n - 1] : NULL;
}

static const char *shipped_path(const struct catalogue *c, const char *name, char *path) {
    char relative[PATH_CHARS / 2];
    snprintf(relative, sizeof relative, "%s/%s.ini", c->folder, name);
    return data_path(path, PATH_CHARS, relative);
}

static bool is_there(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0;
}

static int unknown(const struct catalogue *c, const char *name, struct err *err) {
    char hint[NAME_HINT_CHARS];
    if (is_there(name)) {
        return err_unknown(err,
                           "unknown %s '%s' (`unmask list %s` prints them all); the file here is "
                           "./%s",
                           c->what, name, c->list, name);
    }
    struct err ignored = {0};
    char **names = data_names(c->folder, &ignored);
    (c->hint != NULL ? c->hint : name_hint)(name, (const char *const *)names, hint);
    int status = err_unknown(err, "unknown %s '%s'%s (`unmask list %s` prints them all)", c->what,
                             name, hint, c->list);
    names_free(names);
    return status;
}

int catalogue_check_name(const struct catalogue *c, const char *name, struct err *err) {
    char path[PATH_CHARS];
    return is_there(shipped_path(c, name, path)) ? 0 : unknown(c, name, err);
}

/* Who finds a thing notes what was read for it, its own file in the catalogue's role. */
static void note(const struct catalogue *c, const struct item *item) {
    const char *own = inputs_digest_of(&item->read, item->path);
    inputs_note_digest(c->section, item->path, own);
    for (size_t i = 0; i < item->read.n; i++) {
        const struct input_file *file = &item->read.items[i];
        if (file->sha256 != own) {
            inputs_note_digest(file->role, file->path, file->sha256);
        }
    }
}

const void *catalogue_find(struct catalogue *c, const char *name, struct err *err) {
    char path[PATH_CHARS];
    bool is_path = catalogue_is_path(name);
    if (!is_path && catalogue_check_name(c, name, err) != 0) {
        return NULL;
    }
    if (is_path) {
        snprintf(path, sizeof path, "%s", name);
    } else {
        shipped_path(c, name, path);
    }
    pthread_mutex_lock(&lock);
    const struct item *item = recall(c, path, !is_path, err);
    const struct catalogued *thing = item != NULL ? item->thing : NULL;
    if (item != NULL) {
        note(c, item);
    } else if (is_path) {
        err->code = ERR_UNKNOWN;
    }
    pthread_mutex_unlock(&lock);
    return thing;
}

/* Called with the lock held. */
static const void **read_all(struct catalogue *c, struct err *err) {
    char path[PATH_CHARS], **names = data_names(c->folder, err);
    size_t n = 0;
    while (names[n] != NULL) {
        n++;
    }
    const void **all = mem_zeroed(n + 1, sizeof *all);
    size_t i = 0;
    const struct item *item;
    while (i < n && (item = recall(c, shipped_path(c, names[i], path), true, err)) != NULL) {
        all[i++] = item->thing;
    }
    if (n == 0 && err->kind == ERR_NONE) {
        err_world(err, "there are no files %s", shipped_path(c, "*", path));
    }
    names_free(names);
    if (n == 0 || i < n) {
        free(all);
        return NULL;
    }
    return all;
}

const void *const *catalogue_all(struct catalogue *c, struct err *err) {
    pthread_mutex_lock(&lock);
    const void **all = c->items != NULL ? c->items->all : NULL;
    if (all == NULL) {
        all = read_all(c, err);
        if (all != NULL) {
            c->items->all = all;
        }
    }
    pthread_mutex_unlock(&lock);
    return all;
}
