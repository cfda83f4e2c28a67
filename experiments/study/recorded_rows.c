#include "experiments/study/recorded_rows.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

size_t recorded_drop_doubles(json_t *rows) {
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

int recorded_sort(const struct study *study, const char *table, json_t *rows, struct err *err) {
    size_t n = recorded_drop_doubles(rows);
    if (n > 0) {
        fprintf(stderr,
                "unmask: %zu runs of table '%s' are on record more than once and count once\n", n,
                table);
    }
    return tells_apart(study) ? 0 : check_alike(rows, table, err);
}
