#include "analysis/plot/run_fields.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "sim/base/input/config.h"
#include "sim/base/input/sha256.h"
#include "sim/base/mem.h"

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
