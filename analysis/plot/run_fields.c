#include "analysis/plot/run_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "analysis/summary_output.h"
#include "sim/base/input/config.h"
#include "sim/base/input/sha256.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"

enum { KEY_CHARS = 256, SHORT_DIGEST = 12 };

static const char *key_of(const struct config_entry *entry, char text[KEY_CHARS]) {
    bool stands = strcmp(entry->section, "run") == 0 || strcmp(entry->section, "system") == 0;
    snprintf(text, KEY_CHARS, "%s%s%s", stands ? "" : entry->section, stands ? "" : ".",
             entry->key);
    return text;
}

static void put_missing(json_t *row, const char *key, json_t *value) {
    if (json_object_get(row, key) == NULL) {
        json_object_set(row, key, value);
    }
    json_decref(value);
}

static void put_rate(const struct config *config, json_t *row) {
    const struct config_entry *asked = config_find(config, "run", "rate"),
                              *own = config_find(config, "workload", "rate");
    json_t *rate = asked != NULL ? field_value(asked->value) : NULL;
    if (!(json_number_value(rate) > 0)) {
        json_decref(rate);
        rate = field_value(own != NULL ? own->value : "");
    }
    put_missing(row, "rate", rate);
}

/* A line of the setup, and the field of its name. */
static void put_part(FILE *setup, json_t *row, const char *key, const char *text) {
    fprintf(setup, "%s = %s\n", key, text);
    put_missing(row, key, json_string(text));
}

static void add_text(struct sha256 *sha, const char *text) {
    text = text != NULL ? text : "";
    sha256_add(sha, text, strlen(text) + 1);
}

void run_fields_put_identity(const json_t *identity, FILE *setup, json_t *row) {
    const json_t *build = json_object_get(identity, "build"), *input;
    const char *version = json_string_value(json_object_get(build, "version"));
    const char *sources = json_string_value(json_object_get(build, "sources"));
    struct sha256 sha;
    char text[64], digest[SHA256_HEX_CHARS];
    size_t i;
    if (!json_is_object(identity)) {
        put_part(setup, row, "build", "unknown");
        put_part(setup, row, "inputs", "unknown");
        return;
    }
    snprintf(text, sizeof text, "%s %.*s", version != NULL ? version : "", SHORT_DIGEST,
             sources != NULL ? sources : "");
    put_part(setup, row, "build", text);
    sha256_begin(&sha);
    json_array_foreach(json_object_get(identity, "inputs"), i, input) {
        const char *role = json_string_value(json_object_get(input, "role"));
        const char *of_content = json_string_value(json_object_get(input, "sha256"));
        add_text(&sha, role);
        add_text(&sha, of_content);
    }
    sha256_hex(&sha, digest);
    snprintf(text, sizeof text, "%.*s", SHORT_DIGEST, digest);
    put_part(setup, row, "inputs", text);
}

/* ---- names of policies ---- */

static const char *word_of(const json_t *row, const char *kind, const char *key) {
    const json_t *policies = json_object_get(row, "policies");
    char flat[64];
    snprintf(flat, sizeof flat, "policies.%s.%s", kind, key);
    return json_string_value(policies != NULL
                                 ? json_object_get(json_object_get(policies, kind), key)
                                 : json_object_get(row, flat));
}

/* Whether another policy of these rows has the name, a plug-in's of another file or one built in.
 */
static bool is_shared(const json_t *rows, const char *kind, const json_t *row) {
    const char *name = word_of(row, kind, "name"), *file = word_of(row, kind, "file");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *other = json_array_get(rows, i);
        const char *its_name = word_of(other, kind, "name"), *its = word_of(other, kind, "file");
        if (its_name != NULL && strcmp(its_name, name) == 0 &&
            (its == NULL || strcmp(its, file) != 0)) {
            return true;
        }
    }
    return false;
}

void run_fields_name_policies(json_t *rows) {
    static const char *const kinds[] = {"scheduler", "cache", "decoder", "router"};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const char *name = word_of(row, kinds[k], "name");
            const char *file = word_of(row, kinds[k], "file");
            if (name != NULL && file != NULL) {
                json_object_set_new(row, kinds[k],
                                    is_shared(rows, kinds[k], row)
                                        ? json_sprintf("%s (%s)", name, file)
                                        : json_string(name));
            }
        }
    }
}

/* ---- groups ---- */

/* Of fields that are the whole run's, those that say which run it is, or how it went. */
static bool stays(const char *name) {
    static const char *const kept[] = {"slo", "warnings", "identity", "offered", NULL};
    char outer[64];
    snprintf(outer, sizeof outer, "%.*s", (int)strcspn(name, "."), name);
    return name_find(kept, outer) >= 0;
}

static void drop_of_run(json_t *row) {
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        const bool is_of_result = g->owner == OF_RUN_REQUESTS || g->owner == OF_RUN_RESULT;
        for (const struct column *c = g->columns; is_of_result && c->name != NULL; c++) {
            char outer[64];
            snprintf(outer, sizeof outer, "%.*s", (int)strcspn(c->name, "."), c->name);
            if (!stays(c->name)) {
                json_object_del(row, outer);
            }
        }
    }
}

static json_t *row_of_group(json_t *row, json_t *group, const char *field) {
    const char *setup = json_string_value(json_object_get(row, "setup"));
    const json_int_t number = json_integer_value(json_object_get(group, field));
    json_t *own = json_copy(row);
    drop_of_run(own);
    json_object_update(own, group);
    json_object_set_new(
        own, "setup",
        json_sprintf("%s%s = %lld\n", setup != NULL ? setup : "", field, (long long)number));
    return own;
}

json_t *run_fields_by_group(const json_t *rows, enum grouping by) {
    const struct grouping_words *words = &grouping_words[by];
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i), *groups = json_object_get(row, words->list);
        for (size_t g = 0; g < json_array_size(groups); g++) {
            json_array_append_new(all, row_of_group(row, json_array_get(groups, g), words->field));
        }
        if (json_array_size(groups) == 0) {
            json_array_append(all, row);
        }
    }
    return all;
}

static int64_t bound_of(const json_t *slo, const char *key) {
    return (int64_t)llround(json_number_value(json_object_get(slo, key)) * 1e9);
}

static void put_groups(json_t *row, const json_t *object, const struct grouping_words *words) {
    json_t *list = json_object_get(object, words->list);
    if (list != NULL && json_object_get(row, words->list) == NULL) {
        json_object_set(row, words->list, list);
        json_object_set(row, words->fairness, json_object_get(object, words->fairness));
    }
}

int run_fields_put_groups(const struct requests *requests, json_t *row, struct err *err) {
    const json_t *slo = json_object_get(row, "slo");
    const struct slo bounds = {bound_of(slo, "latency_s"), bound_of(slo, "ttft_s"),
                               bound_of(slo, "tpot_s")};
    struct summary summary;
    int status = 0;
    summary_init(&summary, &bounds);
    struct sink sink = summary_sink(&summary);
    for (size_t i = 0; status == 0 && i < requests->n; i++) {
        const struct request_record *record = &requests->items[i];
        const bool has_left = record->state == REQUEST_DONE || record->state == REQUEST_REJECTED;
        status = has_left ? sink.request(sink.state, record, err) : 0;
    }
    summary_finish(&summary);
    json_t *object = status == 0 ? summary_requests_json(&summary) : NULL;
    for (int by = 0; by < GROUPING_COUNT; by++) {
        put_groups(row, object, &grouping_words[by]);
    }
    json_decref(object);
    summary_fini(&summary);
    return status;
}

static void put_config(const struct config *config, json_t *row) {
    char *setup = NULL;
    size_t size;
    FILE *out = mem_stream(&setup, &size);
    for (size_t i = 0; i < config->n_entries; i++) {
        char key[KEY_CHARS];
        const struct config_entry *entry = &config->entries[i];
        put_missing(row, key_of(entry, key), field_value(entry->value));
        if (strcmp(key, "seed") != 0) {
            fprintf(out, "%s = %s\n", key, entry->value);
        }
    }
    run_fields_put_identity(json_object_get(row, "identity"), out, row);
    mem_stream_close(out);
    put_missing(row, "setup", json_string(setup));
    free(setup);
}

void run_fields_put(const struct stored_run *run, json_t *row) {
    struct config config;
    struct err err = {0};
    json_t *summary = json_loads(run->summary, 0, NULL);
    put_missing(row, "run", json_integer(run->run));
    put_missing(row, "row", run->sha256[0] != '\0' ? json_string(run->sha256) : json_null());
    json_object_update_missing(row, summary);
    json_decref(summary);
    if (config_parse("configuration", run->config, strlen(run->config), &config, &err) != 0) {
        put_missing(row, "setup", json_string(run->config));
        return;
    }
    put_rate(&config, row);
    put_config(&config, row);
    config_fini(&config);
}
