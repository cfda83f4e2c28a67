/* Reading experiments/decode.ini: a process has the constants of its own section and those of the
 * section that its key `shape` names; what says where a constant comes from is not read here. */
#include <stdio.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/base/param.h"
#include "sim/decode/process.h"
#include "sim/decode/process_file.h"
#include "sim/input/config.h"
#include "sim/input/datadir.h"

#define REAL(field, initial, min, max, doc)                                                        \
    {                                                                                              \
#field, PARAM_F64, 0, "1", initial, min, max, NULL,                                        \
            offsetof(struct decode_process, field), doc                                            \
    }

static const struct param params[] = {
    REAL(location, "0", -100, 100, "logit of the confidence next to known context"),
    REAL(distance, "0", 0, 100, "what distance from known context costs at most"),
    REAL(gap, "1", 0.001, 10000, "masked positions in between that cost half of it"),
    REAL(context, "0", -100, 100, "what a wholly known block would add"),
    REAL(position_spread, "1", 0, 100, "spread between positions, the same in every step"),
    REAL(step_spread, "1", 0, 100, "spread between steps"),
    REAL(skew, "0", 0, 1, "share of that spread in a tail of positions that it is at a loss at"),
    REAL(lost, "0", 0, 100, "rate of positions that it is at a loss at next to known context"),
    REAL(lost_reach, "0", 0, 10000, "masked positions in between that add 1 to it; 0: it never is"),
    REAL(lost_power, "1", 0, 100, "power of that distance"),
    REAL(lost_location, "0", -100, 100, "logit of the confidence where it is at a loss"),
    REAL(lost_spread, "1", 0, 100, "spread of that logit between positions"),
    REAL(delta_distance, "0", 0, 1000, "what distance costs the importance delta at most"),
    REAL(delta_noise, "1", 0, 1000, "noise of the importance delta, in logits"),
    REAL(delta_behind, "0", -1000, 1000, "what positions behind the text lose of it"),
    REAL(tail, "0", -100, 100, "logit of the second token's share of what the first leaves"),
    REAL(tail_spread, "1", 0, 100, "spread of that logit between positions and steps"),
    {"block_tokens", PARAM_U32, 0, "tokens", "0", 0, 65536, NULL,
     offsetof(struct decode_process, block_tokens), "blocks that it was calibrated under"},
};
enum { N_PARAMS = sizeof params / sizeof params[0] };

/* Say where a constant comes from, or where the process serves. */
static const char *const others[] = {
    "shape", "meaning", "calibrated_to", "paper_row", "transferred_from", "workloads",
    "error", NULL};

static const char error_of[] = "error.";

static bool is_other(const char *key) {
    return name_find(others, key) >= 0 || strncmp(key, error_of, sizeof error_of - 1) == 0;
}

static int take_section(const struct config *config, const char *section,
                        struct decode_process *out, struct err *err) {
    const struct config_entry *entry = NULL;
    while ((entry = config_next(config, section, NULL, entry)) != NULL) {
        char place[1024];
        if (!is_other(entry->key)) {
            config_place(config, entry, place, sizeof place);
            int status = param_set(params, N_PARAMS, out, "decode process", place, entry->key,
                                   entry->value, err);
            if (status != 0) {
                return status;
            }
        }
    }
    return 0;
}

enum { MOST_NAMES = 64 };

/* A process without a section: confidences of Kumaraswamy's shape (2, 1). */
static const char plain_shape[] = "kumaraswamy";

const struct config_entry *decode_process_next(const struct config *config,
                                               const struct config_entry *last) {
    return config_next(config, NULL, "location", last);
}

static int unknown_process(const struct config *config, const char *name, struct err *err) {
    const char *names[MOST_NAMES + 2] = {plain_shape};
    size_t n = 1;
    const struct config_entry *entry = NULL;
    while (n <= MOST_NAMES && (entry = decode_process_next(config, entry)) != NULL) {
        names[n++] = entry->section;
    }
    char hint[NAME_HINT_CHARS];
    return err_usage(err, "%s: there is no decode process '%s'%s", config->path, name,
                     name_hint(name, names, hint));
}

static void take_errors(const struct config *config, const char *section,
                        struct decode_process *out) {
    size_t n = 0;
    for (size_t i = 0; i < config->n_entries && n < DECODE_MOST_ERRORS; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (strcmp(entry->section, section) == 0 &&
            strncmp(entry->key, error_of, sizeof error_of - 1) == 0) {
            struct decode_error_of *of = &out->errors[n++];
            snprintf(of->name, sizeof of->name, "%s", entry->key + sizeof error_of - 1);
            snprintf(of->text, sizeof of->text, "%s", entry->value);
        }
    }
}

const char *decode_process_error(const struct decode_process *process, const char *const *names) {
    for (; *names != NULL; names++) {
        for (size_t i = 0; i < DECODE_MOST_ERRORS; i++) {
            if (strcmp(process->errors[i].name, *names) == 0) {
                return process->errors[i].text;
            }
        }
    }
    return process->error;
}

static void state_source(const struct config *config, const char *name,
                         struct decode_process *out) {
    const struct config_entry *from = config_find(config, name, "transferred_from"),
                              *to = config_find(config, name, "calibrated_to"),
                              *shape = config_find(config, name, "shape"),
                              *error = config_find(config, name, "error");
    snprintf(out->name, sizeof out->name, "%s", name);
    out->from = from != NULL ? provenance_of(PROVENANCE_TRANSFERRED, from->value)
                : to != NULL ? provenance_of(PROVENANCE_CALIBRATED, to->value)
                             : provenance_of(PROVENANCE_ASSUMED, config->path);
    if (error == NULL && shape != NULL) {
        error = config_find(config, shape->value, "error");
        take_errors(config, shape->value, out);
    }
    take_errors(config, name, out);
    snprintf(out->error, sizeof out->error, "%s",
             error != NULL ? error->value : "not known: no trace of a real run judged it");
    size_t used = strlen(out->from.source);
    if (shape != NULL) {
        snprintf(out->from.source + used, sizeof out->from.source - used, "; shape %s",
                 shape->value);
    }
}

/* Whether a list of words, separated by commas, has the word. */
static bool lists(const char *list, const char *word) {
    const char *at;
    size_t size;
    while (name_next(&list, ", ", &at, &size)) {
        if (size > 0 && size == strlen(word) && strncmp(at, word, size) == 0) {
            return true;
        }
    }
    return false;
}

/* 2: the process lists the workload; 1: it is named after it; 0: neither. */
static int serves(const struct config *config, const char *section, const char *model,
                  const char *workload) {
    size_t length = strlen(model);
    if (strncmp(section, model, length) != 0 || section[length] != '/') {
        return 0;
    }
    const struct config_entry *listed = config_find(config, section, "workloads");
    return listed != NULL && lists(listed->value, workload)
               ? 2
               : strcmp(section + length + 1, workload) == 0;
}

int decode_process_of(const char *model, const char *workload, char *name, size_t size,
                      struct err *err) {
    struct config config;
    char path[1024];
    int status = config_read(data_path(path, sizeof path, "experiments/decode.ini"), &config, err);
    if (status != 0) {
        return status;
    }
    name[0] = '\0';
    const struct config_entry *entry = NULL;
    for (size_t best = 0; (entry = decode_process_next(&config, entry)) != NULL;) {
        size_t now = (size_t)serves(&config, entry->section, model, workload);
        if (now > best) {
            best = now;
            snprintf(name, size, "%s", entry->section);
        }
    }
    config_fini(&config);
    return 0;
}

int decode_process_read(const char *path, const char *name, struct decode_process *out,
                        struct err *err) {
    struct config config;
    int status = config_read(path, &config, err);
    if (status != 0) {
        return status;
    }
    *out = (struct decode_process){0};
    param_defaults(params, N_PARAMS, out);
    const struct config_entry *shape = config_find(&config, name, "shape");
    if (config_find(&config, name, "location") == NULL) {
        status = unknown_process(&config, name, err);
    }
    if (status == 0 && shape != NULL && config_find(&config, shape->value, "distance") == NULL) {
        status = err_usage(err, "%s:%d: there is no shape '%s'", path, shape->line, shape->value);
    }
    if (status == 0 && shape != NULL) {
        status = take_section(&config, shape->value, out, err);
    }
    if (status == 0) {
        status = take_section(&config, name, out, err);
    }
    if (status == 0) {
        state_source(&config, name, out);
    }
    config_fini(&config);
    return status;
}

int decode_process_find(const char *name, struct decode_process *out, struct err *err) {
    char path[1024];
    const char *own = strstr(name, ".ini:");
    if (strcmp(name, plain_shape) == 0) {
        *out = process_kumaraswamy(2, 1);
        return 0;
    }
    if (own != NULL) {
        snprintf(path, sizeof path, "%.*s", (int)(own - name + 4), name);
        return decode_process_read(path, own + strlen(".ini:"), out, err);
    }
    return decode_process_read(data_path(path, sizeof path, "experiments/decode.ini"), name, out,
                               err);
}
