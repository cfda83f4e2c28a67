#include "experiments/study/study.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/plot/run_fields.h"
#include "experiments/run/asked.h"
#include "experiments/run/ranks/pool.h"
#include "experiments/run/ranks/ranks.h"
#include "sim/base/input/datadir.h"
#include "sim/base/input/path.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

/* Rows of runs that were recorded, before a study's queries see them. */

static const char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

static bool is_whole(const json_t *row) {
    return !json_is_string(json_object_get(row, "incomplete"));
}

static const char *digest_of(const json_t *row) {
    return text_of(json_object_get(row, "identity"), "digest");
}

/* A key that is equal for runs that are the same; "" where unknown. A run measured again on a
 * device is another one. */
static const char *sample_of(const json_t *row) {
    bool is_measured = json_is_string(json_object_get(row, "device"));
    return is_measured && is_whole(row) ? text_of(row, "row") : digest_of(row);
}

static bool is_better(const json_t *a, const json_t *b) {
    json_int_t n = json_integer_value(json_object_get(a, "completed"));
    return is_whole(a) != is_whole(b) ? is_whole(a)
                                      : n > json_integer_value(json_object_get(b, "completed"));
}

/* {identity: true} of the whole ones. */
static json_t *whole_ones(const json_t *rows) {
    json_t *whole = json_object(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        if (is_whole(row) && digest_of(row)[0] != '\0') {
            json_object_set_new(whole, digest_of(row), json_true());
        }
    }
    return whole;
}

/* Takes out of an array of rows of run_fields_put those that another one has too: of one identity,
 * or of one row in several databases. Of runs that were cut short the longest stays, unless there
 * is a whole one. Returns how many it took. */
static size_t recorded_drop_doubles(json_t *rows) {
    json_t *kept = json_array(), *places = json_object(), *whole = whole_ones(rows), *row;
    size_t i, n = json_array_size(rows);
    json_array_foreach(rows, i, row) {
        const char *sample = sample_of(row);
        if (!is_whole(row) && json_object_get(whole, digest_of(row)) != NULL) {
            continue;
        }
        const json_t *place = sample[0] != '\0' ? json_object_get(places, sample) : NULL;
        if (place == NULL) {
            if (sample[0] != '\0') {
                json_object_set_new(places, sample,
                                    json_integer((json_int_t)json_array_size(kept)));
            }
            json_array_append(kept, row);
        } else if (is_better(row, json_array_get(kept, (size_t)json_integer_value(place)))) {
            json_array_set(kept, (size_t)json_integer_value(place), row);
        }
    }
    json_array_clear(rows);
    json_array_extend(rows, kept);
    json_decref(kept);
    json_decref(places);
    json_decref(whole);
    return n - json_array_size(rows);
}

static int check_alike(const json_t *rows, const char *table, struct err *err) {
    json_t *seen = json_object();
    for (size_t i = 0; i < json_array_size(rows) && err->kind == ERR_NONE; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *setup = text_of(row, "setup"), *of_identity = strstr(setup, "\nbuild = ");
        if (of_identity == NULL) {
            continue;
        }
        json_t *key = json_stringn(setup, (size_t)(of_identity - setup));
        const json_t *first = json_object_get(seen, json_string_value(key));
        if (first != NULL && strcmp(text_of(first, "setup"), setup) != 0) {
            const char *field =
                strcmp(text_of(first, "build"), text_of(row, "build")) != 0 ? "build" : "inputs";
            err_usage(err,
                      "runs %lld and %lld of table '%s' are of one configuration, but differ in "
                      "'%s': a query has to tell them apart by that column, or leave some out",
                      (long long)json_integer_value(json_object_get(first, "run")),
                      (long long)json_integer_value(json_object_get(row, "run")), table, field);
        } else if (first == NULL) {
            json_object_set(seen, json_string_value(key), (json_t *)(uintptr_t)row);
        }
        json_decref(key);
    }
    json_decref(seen);
    return err_status(err);
}

static bool tells_apart(const struct study *study) {
    static const char *const words[] = {"build", "inputs", "setup", "identity"};
    for (size_t c = 0; c < study->n_configs; c++) {
        for (size_t i = 0; i < study->configs[c].n_entries; i++) {
            const struct config_entry *entry = &study->configs[c].entries[i];
            bool is_query = strcmp(entry->key, "query") == 0;
            for (size_t w = 0; is_query && w < sizeof words / sizeof words[0]; w++) {
                if (strstr(entry->value, words[w]) != NULL) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* The same for the rows of a study's table, which it says on standard error. ERR_USAGE where two
 * runs are of one configuration, but for the seed, and of other files or another build, and no
 * query of the study looks at `build`, `inputs`, `setup` or the identity: what averages over seeds
 * would take them for two. */
static int recorded_sort(const struct study *study, const char *table, json_t *rows,
                         struct err *err) {
    size_t n = recorded_drop_doubles(rows);
    if (n > 0) {
        fprintf(stderr,
                "unmask: %zu runs of table '%s' are on record more than once and count once\n", n,
                table);
    }
    return tells_apart(study) ? 0 : check_alike(rows, table, err);
}

enum { MOST_LISTS = 48, MOST_PLACES = 100000, PATH_CHARS = 1024 };

/* Values of one key, or what goes along with another one. */
struct list {
    char name[64]; /* "set KEY" of a setting */
    char of[64];   /* "": the key varies by itself */
    char **words;
    size_t n;
};

struct study_table {
    const struct job *job;
    char name[STUDY_NAME_CHARS], x[64];
    struct list lists[MOST_LISTS];
    size_t n_lists, n_places, n_seeds;
};

/* ---- lists ---- */

static void split(const char *text, struct list *list) {
    const char *word;
    size_t length;
    for (const char *rest = text; name_next(&rest, ",", &word, &length);) {
        list->words = mem_resized(list->words, list->n + 1, sizeof *list->words);
        list->words[list->n++] = mem_copied(word, length);
    }
}

static void empty(struct list *list) {
    for (size_t i = 0; i < list->n; i++) {
        free(list->words[i]);
    }
    free(list->words);
    list->words = NULL;
    list->n = 0;
}

static struct list *find_list(const struct study_table *table, const char *name) {
    for (size_t i = 0; i < table->n_lists; i++) {
        if (strcmp(table->lists[i].name, name) == 0) {
            return (struct list *)(uintptr_t)&table->lists[i];
        }
    }
    return NULL;
}

static bool is_of_seeds(const struct list *list) {
    return strcmp(list->name, "seed") == 0;
}

static bool is_among(const char *const *names, const char *name) {
    return names != NULL && name_find(names, name) >= 0;
}

static bool knows(const struct job *job, const char *key) {
    return is_among(job->required, key) || is_among(job->optional, key) ||
           (job->takes_settings && job_setting(key) != NULL);
}

/* ---- reading ---- */

static int complain(const struct config *config, const struct config_entry *entry,
                    const char *const *known, struct err *err) {
    char hint[NAME_HINT_CHARS];
    return err_usage(err, "%s:%d: unknown key '%s' in [%s]%s", config->path, entry->line,
                     entry->key, entry->section, name_hint(entry->key, known, hint));
}

/* A file that a study names lies in its folder, or is one that is shipped, in the data folder. */
static int place_file(const struct config *config, const struct config_entry *entry,
                      const struct list *list, char **word, struct err *err) {
    static const char *const files[] = {"file",      "systems_file", "weights",
                                        "tokenizer", "reference",    NULL};
    const char *setting = job_setting(list->name), *key = setting != NULL ? setting : list->name;
    char path[PATH_CHARS], place[256], shipped[PATH_CHARS];
    const bool is_file = name_find(files, list->name) >= 0;
    config_place(config, entry, place, sizeof place);
    if ((*word)[0] == '\0') {
        return 0;
    }
    if (is_file && !path_named_in(config->path, *word, path, sizeof path)) {
        return err_usage(err, "%s: the path of %s is too long", place, list->name);
    }
    if (!is_file && asked_named_in(config->path, place, key, *word, path, sizeof path, err) != 0) {
        return (int)err->kind;
    }
    bool is_there = access(path, F_OK) == 0;
    bool is_shipped = access(data_path(shipped, sizeof shipped, *word), F_OK) == 0;
    if (is_there || (!is_file && !is_shipped)) {
        free(*word);
        *word = mem_text(path);
    }
    return 0;
}

static int place_files(const struct config *config, const struct config_entry *entry,
                       const struct list *list, struct err *err) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < list->n; i++) {
        status = place_file(config, entry, list, &list->words[i], err);
    }
    return status;
}

static int take_list(const struct config *config, const struct config_entry *entry,
                     struct study_table *table, struct err *err) {
    const char *of = strstr(entry->key, " of ");
    size_t length = of != NULL ? (size_t)(of - entry->key) : strlen(entry->key);
    if (strcmp(entry->key, "x") == 0) {
        snprintf(table->x, sizeof table->x, "%s", entry->value);
        return 0;
    }
    if (of == NULL && !knows(table->job, entry->key)) {
        return complain(config, entry, table->job->required, err);
    }
    if (table->n_lists == MOST_LISTS || length >= sizeof table->lists[0].name) {
        return err_usage(err, "%s:%d: a table has at most %d keys, with names of under 64 letters",
                         config->path, entry->line, MOST_LISTS);
    }
    struct list *list = &table->lists[table->n_lists++];
    snprintf(list->name, sizeof list->name, "%.*s", (int)length, entry->key);
    snprintf(list->of, sizeof list->of, "%s", of != NULL ? of + strlen(" of ") : "");
    split(entry->value, list);
    return place_files(config, entry, list, err);
}

/* What goes along with a key is as long as its list; `x` is a key. */
static int check_table(const struct config *config, const struct study_table *table,
                       struct err *err) {
    for (size_t i = 0; i < table->n_lists; i++) {
        const struct list *list = &table->lists[i];
        const struct list *of = find_list(table, list->of);
        if (list->of[0] != '\0' && (of == NULL || of->of[0] != '\0' || of->n != list->n)) {
            return err_usage(err, "%s: '%s of %s' in [%s] has %zu values, '%s' has %zu",
                             config->path, list->name, list->of, table->name, list->n, list->of,
                             of != NULL ? of->n : 0);
        }
    }
    for (const char *const *key = table->job->required; key != NULL && *key != NULL; key++) {
        if (find_list(table, *key) == NULL) {
            return err_usage(err, "%s: [%s] lacks '%s'", config->path, table->name, *key);
        }
    }
    if (table->x[0] != '\0' && find_list(table, table->x) == NULL) {
        return err_usage(err, "%s: [%s] has no key '%s' for x", config->path, table->name,
                         table->x);
    }
    return 0;
}

static const struct job *const jobs[] = {&job_run,     &job_recorded, &job_requests, &job_course,
                                         &job_json,    &job_csv,      &job_lmax,     &job_latency,
                                         &job_budget,  &job_live,     &job_sampler,  &job_layer,
                                         &job_rollout, &job_eviction, &job_server};

/* The job that a section names, and of which table; NULL where it names none. */
static const struct job *job_of(const char *section, const char **name) {
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        size_t length = strlen(jobs[i]->name);
        if (strncmp(section, jobs[i]->name, length) == 0 &&
            (section[length] == '\0' || section[length] == ' ')) {
            *name = section[length] == ' ' ? section + length + 1 : section;
            return jobs[i];
        }
    }
    return NULL;
}

static struct study_table *table_of(struct study *study, const struct job *job, const char *name) {
    for (size_t i = 0; i < study->n_tables; i++) {
        if (strcmp(study->tables[i].name, name) == 0) {
            return &study->tables[i];
        }
    }
    study->tables = mem_resized(study->tables, study->n_tables + 1, sizeof *study->tables);
    struct study_table *table = &study->tables[study->n_tables++];
    *table = (struct study_table){.job = job};
    snprintf(table->name, sizeof table->name, "%s", name);
    return table;
}

/* NAME of an entry in [select NAME]; NULL elsewhere. */
static const char *selected_of(const struct config_entry *entry) {
    return name_behind(entry->section, "select ");
}

static const char *const figure_keys[] = {
    "title",  "note",    "kind",     "query", "x_label", "y_label", "log_x", "log_y",
    "values", "y_line",  "y_min",    "y_max", "same_y",  "columns", "width", "paper",
    "rows",   "compare", "declared", "role",  "include", NULL};

static int take_config(const struct config *config, struct study *study, struct err *err) {
    for (size_t i = 0; i < config->n_entries; i++) {
        const struct config_entry *entry = &config->entries[i];
        const char *name = NULL;
        const struct job *job = job_of(entry->section, &name);
        bool is_select = selected_of(entry) != NULL;
        if (job != NULL) {
            if (take_list(config, entry, table_of(study, job, name), err) != 0) {
                return (int)err->kind;
            }
        } else if (is_select ? strcmp(entry->key, "query") != 0
                             : strcmp(entry->section, "figure") != 0) {
            return err_usage(err,
                             "%s:%d: found '%s' in [%s], expected [figure], the name of a job "
                             "(`unmask figure --help`), or [select NAME] with a query",
                             config->path, entry->line, entry->key, entry->section);
        } else if (!is_select && !is_among(figure_keys, entry->key)) {
            return complain(config, entry, figure_keys, err);
        }
    }
    return 0;
}

/* From the study's folder, or else of those that are shipped. */
static int include(const char *beside, const char *name, struct study *study, struct err *err) {
    char path[PATH_CHARS], relative[PATH_CHARS / 2];
    if (!path_named_in(beside, name, path, sizeof path) || access(path, R_OK) != 0) {
        snprintf(relative, sizeof relative, "experiments/study/studies/%s", name);
        data_path(path, sizeof path, relative);
    }
    if (study->n_configs > STUDY_MOST_INCLUDES) {
        return err_usage(err, "%s: at most %d files are included", beside, STUDY_MOST_INCLUDES);
    }
    int status = config_read(path, &study->configs[study->n_configs], err);
    study->n_configs += status == 0;
    return status != 0 ? status : take_config(&study->configs[study->n_configs - 1], study, err);
}

/* ---- what the command line changes ---- */

static int replace(struct study_table *table, const char *name, const char *value,
                   struct err *err) {
    struct list *list = find_list(table, name);
    if (list == NULL && table->n_lists == MOST_LISTS) {
        return err_usage(err, "%s: with '%s' a table has more than %d keys", table->name, name,
                         MOST_LISTS);
    }
    if (list == NULL) {
        list = &table->lists[table->n_lists++];
        *list = (struct list){.n = 0};
        snprintf(list->name, sizeof list->name, "%s", name);
    }
    empty(list);
    list->of[0] = '\0';
    split(value, list);
    for (size_t i = table->n_lists; i-- > 0;) { /* labels of other values */
        if (strcmp(table->lists[i].of, name) == 0 && table->lists[i].n != list->n) {
            empty(&table->lists[i]);
            table->lists[i] = table->lists[--table->n_lists];
        }
    }
    return 0;
}

static int set(struct study_table *table, const char *text, struct err *err) {
    char name[sizeof table->lists[0].name];
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals - text > 50) {
        return err_usage(err, "--set: '%s' is not KEY=VALUE", text);
    }
    snprintf(name, sizeof name, "set %.*s", (int)(equals - text), text);
    return replace(table, name, equals + 1, err);
}

static int seed(struct study_table *table, uint64_t n, struct err *err) {
    char *text = NULL;
    size_t size;
    unsigned long long first = 1;
    uint64_t whole;
    const struct list *given = find_list(table, "seed");
    if (given != NULL && given->n > 0) {
        first = num_u64(given->words[0], INT64_MAX, &whole) ? whole : first;
    }
    FILE *out = mem_stream(&text, &size);
    for (uint64_t i = 0; i < n; i++) {
        fprintf(out, "%s%llu", i > 0 ? "," : "", first + i);
    }
    mem_stream_close(out);
    int status = replace(table, "seed", text, err);
    free(text);
    return status;
}

static int change(const struct study_changes *changes, struct study *study, struct err *err) {
    bool runs = false;
    int status = 0;
    for (size_t i = 0; status == 0 && i < study->n_tables; i++) {
        struct study_table *table = &study->tables[i];
        if (changes->gpu != NULL && knows(table->job, "gpu")) {
            status = replace(table, "gpu", changes->gpu, err);
        }
        if (changes->model != NULL && knows(table->job, "model")) {
            status = status != 0 ? status : replace(table, "model", changes->model, err);
        }
        if (!table->job->takes_settings) {
            continue;
        }
        runs = true;
        if (changes->n_seeds > 1) {
            status = status != 0 ? status : seed(table, changes->n_seeds, err);
        }
        if (changes->host != NULL) {
            status = status != 0 ? status : replace(table, "set host", changes->host, err);
        }
        for (size_t s = 0; status == 0 && s < changes->n_sets; s++) {
            status = set(table, changes->sets[s], err);
        }
    }
    if (status == 0 && !runs &&
        (changes->host != NULL || changes->n_sets > 0 || changes->n_seeds > 1)) {
        return err_usage(err, "--%s: %s runs no system",
                         changes->host != NULL ? "host"
                         : changes->n_sets > 0 ? "set"
                                               : "seeds",
                         study->name);
    }
    return status;
}

static int count_places(struct study *study, struct err *err) {
    for (size_t i = 0; i < study->n_tables; i++) {
        struct study_table *table = &study->tables[i];
        table->n_places = table->n_seeds = 1;
        for (size_t l = 0; l < table->n_lists; l++) {
            const struct list *list = &table->lists[l];
            table->n_places *= list->of[0] == '\0' ? list->n : 1;
            table->n_seeds = is_of_seeds(list) ? list->n : table->n_seeds;
            if (table->n_places > MOST_PLACES) {
                return err_usage(err, "%s: [%s] has more than %d combinations",
                                 study->configs[0].path, table->name, MOST_PLACES);
            }
        }
        study->n_places += table->n_places;
    }
    return 0;
}

int study_open(const char *path, const struct study_changes *changes, struct study *study,
               struct err *err) {
    char place[256];
    const char *slash = strrchr(path, '/'), *stem = slash != NULL ? slash + 1 : path;
    *study = (struct study){.n_configs = 0};
    snprintf(study->name, sizeof study->name, "%.*s", (int)strcspn(stem, "."), stem);
    int status = config_read(path, &study->configs[0], err);
    study->n_configs = status == 0;
    status = status != 0 ? status : take_config(&study->configs[0], study, err);
    const char *names = status == 0 ? study_text(study, "include", place) : NULL;
    struct list files = {.n = 0};
    if (names != NULL) {
        split(names, &files);
    }
    for (size_t i = 0; status == 0 && i < files.n; i++) {
        status = include(path, files.words[i], study, err);
    }
    empty(&files);
    for (size_t i = 0; status == 0 && i < study->n_tables; i++) {
        status = check_table(&study->configs[0], &study->tables[i], err);
    }
    status = status != 0 ? status : change(changes, study, err);
    return status != 0 ? status : count_places(study, err);
}

void study_close(struct study *study) {
    for (size_t i = 0; i < study->n_configs; i++) {
        config_fini(&study->configs[i]);
    }
    for (size_t i = 0; i < study->n_tables; i++) {
        for (size_t l = 0; l < study->tables[i].n_lists; l++) {
            empty(&study->tables[i].lists[l]);
        }
    }
    free(study->tables);
    *study = (struct study){.n_configs = 0};
}

const char *study_text(const struct study *study, const char *key, char place[256]) {
    for (size_t i = 0; i < study->n_configs; i++) {
        const struct config *config = &study->configs[i == 0 ? 0 : study->n_configs - i];
        const struct config_entry *entry = config_find(config, "figure", key);
        if (entry != NULL) {
            if (place != NULL) {
                config_place(config, entry, place, 256);
            }
            return entry->value;
        }
    }
    return NULL;
}

const char *study_table_name(const struct study *study, size_t i) {
    return i < study->n_tables ? study->tables[i].name : NULL;
}

const char *study_runs(const struct study *study) {
    for (size_t i = 0; i < study->n_tables; i++) {
        if (study->tables[i].job == &job_run) {
            return study->tables[i].name;
        }
    }
    return NULL;
}

/* ---- filling ---- */

/* What one place makes: its rows, or why there are none. */
struct made {
    json_t *rows;
    struct err err;
};

struct effort {
    const struct study *study;
    struct made *made; /* [n_places] */
    void (*done)(void *state);
    void *state;
};

/* The column that holds a key's values. */
static const char *column_of(const char *name) {
    const char *key = job_setting(name);
    return key != NULL ? key : name;
}

static void put(const char *name, const char *word, json_t *args, json_t *row) {
    json_object_set_new(args, name, json_string(word));
    json_object_set_new(row, column_of(name), job_cell(word));
}

/* The places in each list of the combination `at`: seeds vary fastest, then the last list. */
static void find_indices(const struct study_table *table, size_t at, size_t index[MOST_LISTS]) {
    size_t rest = at / table->n_seeds;
    for (size_t l = table->n_lists; l-- > 0;) {
        const struct list *list = &table->lists[l];
        bool is_seed = is_of_seeds(list);
        if (list->of[0] == '\0') {
            index[l] = is_seed ? at % table->n_seeds : rest % list->n;
            rest /= is_seed ? 1 : list->n;
        }
    }
}

static void make_row(const struct study_table *table, size_t at, json_t *args, json_t *row) {
    size_t index[MOST_LISTS];
    find_indices(table, at, index);
    for (size_t l = 0; l < table->n_lists; l++) {
        const struct list *list = &table->lists[l];
        const struct list *of = list->of[0] != '\0' ? find_list(table, list->of) : list;
        size_t i = index[of - table->lists];
        put(list->name, list->words[i], args, row);
        if (of == list) {
            char name[96];
            snprintf(name, sizeof name, "%s_n", column_of(list->name));
            json_object_set_new(row, name, json_integer((json_int_t)i));
        }
        if (strcmp(list->name, table->x) == 0) {
            json_object_set_new(row, "x", job_cell(list->words[i]));
            json_object_set_new(row, "x_n", json_integer((json_int_t)i));
        }
    }
    json_object_set_new(row, "point", json_integer((json_int_t)(at / table->n_seeds)));
}

/* Which of a table's groups a combination is in: those of a group are alike in the shared keys. */
static size_t group_of(const struct study_table *table, size_t at, size_t *n_groups) {
    size_t index[MOST_LISTS] = {0}, group = 0;
    *n_groups = 1;
    find_indices(table, at, index);
    for (size_t l = 0; l < table->n_lists; l++) {
        const struct list *list = &table->lists[l];
        if (list->of[0] == '\0' && is_among(table->job->shared, list->name)) {
            group = group * list->n + index[l];
            *n_groups *= list->n;
        }
    }
    if (table->job->shared == NULL) {
        *n_groups = table->n_places;
        return at;
    }
    return group;
}

static void fill_place(const struct study_table *table, size_t at, void **state,
                       struct made *made) {
    json_t *args = json_object(), *row = json_object();
    made->rows = json_array();
    make_row(table, at, args, row);
    table->job->fill(state, args, row, made->rows, &made->err);
    json_decref(args);
    json_decref(row);
}

/* The table that a group is of: `*group` becomes its number in it, `*made` the table's. */
static const struct study_table *table_of_group(const struct effort *effort, size_t *group,
                                                struct made **made) {
    const struct study_table *table = effort->study->tables;
    size_t n_groups;
    *made = effort->made;
    for (group_of(table, 0, &n_groups); *group >= n_groups; group_of(table, 0, &n_groups)) {
        *group -= n_groups;
        *made += table->n_places;
        table++;
    }
    return table;
}

static void fill_group(void *opaque, size_t group) {
    struct effort *effort = opaque;
    struct made *made;
    const struct study_table *table = table_of_group(effort, &group, &made);
    size_t n_groups;
    void *state = NULL;
    for (size_t at = table->n_places; at-- > 0;) {
        if (group_of(table, at, &n_groups) == group) {
            fill_place(table, at, &state, &made[at]);
            if (effort->done != NULL) {
                effort->done(effort->state);
            }
        }
    }
    if (table->job->close != NULL) {
        table->job->close(state);
    }
}

/* From another rank to rank 0: what was made of a group's places. */
static void put_group(void *opaque, size_t group, struct parcel *out) {
    struct made *made;
    const struct study_table *table = table_of_group(opaque, &group, &made);
    size_t n_groups;
    for (size_t at = table->n_places; ranks_is_helper() && at-- > 0;) {
        if (group_of(table, at, &n_groups) == group) {
            parcel_put_json(out, made[at].rows);
            parcel_put(out, &made[at].err, sizeof made[at].err);
            json_decref(made[at].rows);
            made[at].rows = NULL;
        }
    }
}

static void take_group(void *opaque, size_t group, struct parcel *in) {
    struct effort *effort = opaque;
    struct made *made;
    const struct study_table *table = table_of_group(effort, &group, &made);
    size_t n_groups;
    for (size_t at = table->n_places; !ranks_is_helper() && at-- > 0;) {
        if (group_of(table, at, &n_groups) == group) {
            made[at].rows = parcel_take_json(in);
            parcel_take(in, &made[at].err, sizeof made[at].err);
            if (effort->done != NULL) {
                effort->done(effort->state);
            }
        }
    }
}

static void take_rows(const struct study *study, struct made *made, struct tables *tables,
                      struct err *err) {
    for (size_t t = 0; t < study->n_tables; t++) {
        json_t *rows = json_array();
        for (size_t i = 0; i < study->tables[t].n_places; i++, made++) {
            json_array_extend(rows, made->rows);
            json_decref(made->rows);
        }
        const struct study_table *table = &study->tables[t];
        bool is_recorded = table->job == &job_recorded || table->job == &job_json;
        if (err->kind == ERR_NONE && is_recorded) {
            recorded_sort(study, table->name, rows, err);
        }
        run_fields_name_policies(rows);
        if (err->kind == ERR_NONE) {
            tables_add(tables, table->name, rows, err);
        }
        json_decref(rows);
    }
}

int study_fill(const struct study *study, unsigned n_threads, void (*done)(void *state),
               void *state, struct tables *tables, struct err *err) {
    struct effort effort = {.study = study,
                            .made = mem_zeroed(study->n_places + 1, sizeof *effort.made),
                            .done = done,
                            .state = state};
    size_t n = 0, n_groups;
    for (size_t t = 0; t < study->n_tables; t++) {
        group_of(&study->tables[t], 0, &n_groups);
        n += n_groups;
    }
    pool_run(&(struct pool){.n = n,
                            .n_threads = n_threads,
                            .state = &effort,
                            .work = fill_group,
                            .put = put_group,
                            .take = take_group});
    for (size_t i = 0; i < study->n_places && err->kind == ERR_NONE; i++) {
        *err = effort.made[i].err; /* the earliest failure, whatever thread met it first */
    }
    take_rows(study, effort.made, tables, err);
    free(effort.made);
    return (int)err->kind;
}

/* Those of what is included come first: a study's own may read them. */
int study_select(const struct study *study, struct tables *tables, struct err *err) {
    for (size_t c = 1; c <= study->n_configs && err->kind == ERR_NONE; c++) {
        const struct config *config = &study->configs[c % study->n_configs];
        for (size_t i = 0; i < config->n_entries && err->kind == ERR_NONE; i++) {
            const struct config_entry *entry = &config->entries[i];
            char place[256];
            if (selected_of(entry) != NULL) {
                tables_keep(tables, selected_of(entry), entry->value,
                            config_place(config, entry, place, sizeof place), err);
            }
        }
    }
    return (int)err->kind;
}
