#include "sim/base/input/config.h"

#include <ini.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/text.h"
#include "sim/base/mem.h"
#include "sim/base/utf8.h"

struct reader {
    const char *text; /* the rest */
    size_t left;
    int line, long_line; /* lines read; the first that did not fit, or 0 */
    int n_bad_bytes;     /* NULs: inih would take the line as ended */
    bool is_indented;    /* the last line: it goes on with the value of the one before it */
    struct config *config;
    size_t *places, n_places; /* entries + 1 by the hash of section and key, so that each is
                                 compared with few; a power of two */
    struct err *err;
};

/* inih's reader: one line, as fgets would. */
static char *next_line(char *buffer, int size, void *user) {
    struct reader *reader = user;
    if (reader->left == 0) {
        return NULL;
    }
    int n = 0;
    while (reader->left > 0 && n < size - 1) {
        char c = *reader->text++;
        reader->left--;
        reader->n_bad_bytes += c == '\0';
        buffer[n++] = c;
        if (c == '\n') {
            break;
        }
    }
    buffer[n] = '\0';
    reader->line++;
    reader->is_indented = buffer[0] == ' ' || buffer[0] == '\t';
    if (buffer[n - 1] != '\n' && reader->left > 0 && reader->long_line == 0) {
        reader->long_line = reader->line;
    }
    return buffer;
}

static bool continues(const struct reader *reader, const char *section, const char *key) {
    const struct config *config = reader->config;
    if (!reader->is_indented || config->n_entries == 0) {
        return false;
    }
    const struct config_entry *last = &config->entries[config->n_entries - 1];
    return strcmp(last->section, section) == 0 && strcmp(last->key, key) == 0;
}

static void append(struct config_entry *entry, const char *value) {
    size_t length = strlen(entry->value), size = length + strlen(value) + 2;
    entry->value = mem_resized(entry->value, size, 1);
    snprintf(entry->value + length, size - length, "\n%s", value);
}

static uint64_t hash_of(const char *section, const char *key) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *section != '\0'; section++) {
        hash = (hash ^ (unsigned char)*section) * UINT64_C(0x100000001b3);
    }
    for (hash *= UINT64_C(0x100000001b3); *key != '\0'; key++) {
        hash = (hash ^ (unsigned char)*key) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Where the entry of that name is listed, or would be. */
static size_t *place_of(const struct reader *reader, const char *section, const char *key) {
    size_t at = hash_of(section, key) & (reader->n_places - 1);
    for (;; at = (at + 1) & (reader->n_places - 1)) {
        size_t *place = &reader->places[at];
        const struct config_entry *entry = *place > 0 ? &reader->config->entries[*place - 1] : NULL;
        if (entry == NULL ||
            (strcmp(entry->section, section) == 0 && strcmp(entry->key, key) == 0)) {
            return place;
        }
    }
}

static void list_anew(struct reader *reader) {
    reader->n_places = 4 * (reader->config->n_entries + 16);
    while ((reader->n_places & (reader->n_places - 1)) != 0) {
        reader->n_places &= reader->n_places - 1;
    }
    free(reader->places);
    reader->places = mem_zeroed(reader->n_places, sizeof *reader->places);
    for (size_t i = 0; i < reader->config->n_entries; i++) {
        const struct config_entry *entry = &reader->config->entries[i];
        *place_of(reader, entry->section, entry->key) = i + 1;
    }
}

/* inih's handler: 1 to go on, 0 to stop. */
static int take_entry(void *user, const char *section, const char *key, const char *value) {
    struct reader *reader = user;
    struct config *config = reader->config;
    if (continues(reader, section, key)) {
        append(&config->entries[config->n_entries - 1], value);
        return 1;
    }
    if (2 * config->n_entries >= reader->n_places) {
        list_anew(reader);
    }
    size_t *place = place_of(reader, section, key);
    if (*place > 0) {
        const struct config_entry *earlier = &config->entries[*place - 1];
        err_usage(reader->err, "%s:%d: '%s' is set twice in [%s], first on line %d", config->path,
                  reader->line, key, section, earlier->line);
        return 0;
    }
    if ((config->n_entries & (config->n_entries + 1)) == 0) {
        size_t room = 2 * config->n_entries + 1;
        config->entries = mem_resized(config->entries, room, sizeof *config->entries);
    }
    config->entries[config->n_entries++] = (struct config_entry){
        mem_text(section), mem_text(key), mem_text(value), reader->line, NULL};
    *place = config->n_entries;
    return 1;
}

/* The first line that is no UTF-8 or has control characters; 0: none is. Values become names in
 * JSON, which is that. */
static int find_foreign_line(const char *text, size_t size) {
    int line = 1;
    for (size_t at = 0; at < size;) {
        bool is_valid;
        size_t length = utf8_next(text + at, size - at, &is_valid);
        bool is_blank = text[at] == '\t' || text[at] == '\n' || text[at] == '\r';
        if (!is_valid || (text[at] != '\0' && utf8_is_control(text + at) && !is_blank)) {
            return line;
        }
        line += text[at] == '\n';
        at += length;
    }
    return 0;
}

int config_parse(const char *path, const char *text, size_t size, struct config *out,
                 struct err *err) {
    *out = (struct config){.path = mem_text(path)};
    struct reader reader = {.text = text, .left = size, .config = out, .err = err};
    int bad_line = ini_parse_stream(next_line, &reader, take_entry, &reader);
    free(reader.places);
    int foreign_line = find_foreign_line(text, size);
    if (reader.long_line != 0) {
        err_usage(err, "%s:%d: the line is longer than 199 bytes", path, reader.long_line);
    } else if (reader.n_bad_bytes != 0) {
        err_usage(err, "%s: the file holds NUL bytes: expected an INI text file", path);
    } else if (foreign_line != 0) {
        err_usage(err, "%s:%d: expected text in UTF-8 without control characters", path,
                  foreign_line);
    } else if (bad_line != 0) {
        err_usage(err, "%s:%d: expected [section] or key = value", path, bad_line);
    }
    if (reader.long_line == 0 && reader.n_bad_bytes == 0 && foreign_line == 0 && bad_line == 0) {
        return 0;
    }
    config_fini(out);
    return err_status(err);
}

int config_read(const char *path, struct config *out, struct err *err) {
    enum { MOST_BYTES = 1 << 26 };
    size_t size;
    char *text = text_read(path, "settings", MOST_BYTES, &size, err);
    int status = text != NULL ? config_parse(path, text, size, out, err) : err_status(err);
    free(text);
    return status;
}

void config_fini(struct config *config) {
    for (size_t i = 0; i < config->n_entries; i++) {
        free(config->entries[i].section);
        free(config->entries[i].key);
        free(config->entries[i].value);
    }
    free(config->entries);
    free(config->path);
    *config = (struct config){0};
}

const struct config_entry *config_find(const struct config *config, const char *section,
                                       const char *key) {
    return config_next(config, section, key, NULL);
}

const struct config_entry *config_next(const struct config *config, const char *section,
                                       const char *key, const struct config_entry *last) {
    for (size_t i = last != NULL ? (size_t)(last - config->entries) + 1 : 0; i < config->n_entries;
         i++) {
        const struct config_entry *entry = &config->entries[i];
        if ((section == NULL || strcmp(entry->section, section) == 0) &&
            (key == NULL || strcmp(entry->key, key) == 0)) {
            return entry;
        }
    }
    return NULL;
}

const char *config_place(const struct config *config, const struct config_entry *entry, char *text,
                         size_t size) {
    if (entry->place != NULL) {
        snprintf(text, size, "%s", entry->place);
    } else {
        snprintf(text, size, "%s:%d", config->path, entry->line);
    }
    return text;
}
