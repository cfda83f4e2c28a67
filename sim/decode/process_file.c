/* Reading decode processes. A row of experiments/study/locations.csv is one, of the shape in
 * experiments/study/decode.ini that it names; so is a section of decode.ini with a location, which
 * has the constants of its own section and those of the section that its key `shape` names. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/input/config.h"
#include "sim/base/input/datadir.h"
#include "sim/base/names.h"
#include "sim/base/param.h"
#include "sim/decode/location.h"
#include "sim/decode/process_file.h"

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
    REAL(lost_reach, "0", 0, 10000,
         "masked positions in between that add 1 to that rate (0: never at a loss)"),
    REAL(lost_power, "1", 0, 100, "power of that distance"),
    REAL(lost_location, "0", -100, 100, "logit of the confidence where it is at a loss"),
    REAL(lost_spread, "1", 0, 100, "spread of that logit between positions"),
    REAL(delta_distance, "0", 0, 1000, "what distance costs the importance delta at most"),
    REAL(delta_noise, "1", 0, 1000, "noise of the importance delta, in logits"),
    REAL(delta_behind, "0", -1000, 1000,
         "what positions after the text lose of the importance delta"),
    REAL(tail, "0", -100, 100, "logit of the second token's share of what the first leaves"),
    REAL(tail_spread, "1", 0, 100, "spread of that logit between positions and steps"),
    REAL(edit_location, "0", -100, 100, "of a model trained to replace tokens: logit said at 0"),
    REAL(edit_structured, "0", -100, 100, "what is added to it on code and mathematics"),
    REAL(edit_scale, "1", 0.01, 100, "what such a model makes of a unit of the logit"),
    REAL(edit_share, "1", 0, 1, "share of wrong tokens that such a model would replace"),
    REAL(insert_share, "0", 0, 0.5, "share of its edits that insert a position (LLaDA2.2)"),
    REAL(delete_share, "0", 0, 0.5, "share of its edits that drop a position (LLaDA2.2)"),
    {"block_tokens", PARAM_U32, 0, "tokens", "0", 0, 65536, NULL,
     offsetof(struct decode_process, at.block_tokens), "blocks that it was calibrated under"},
    {"threshold", PARAM_F64, 0, "1", "0", 0, 1, NULL, offsetof(struct decode_process, at.threshold),
     "threshold that it was calibrated under"},
    {"temperature", PARAM_F64, 0, "1", "0", 0, 100, NULL,
     offsetof(struct decode_process, at.temperature), "temperature that it was calibrated under"},
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

enum { MOST_NAMES = 256 };

/* A process without a section: confidences of Kumaraswamy's shape (2, 1). */
static const char plain_shape[] = "kumaraswamy";

const struct config_entry *decode_process_next(const struct config *config,
                                               const struct config_entry *last) {
    return config_next(config, NULL, "location", last);
}

/* The names of `config` and, unless it is NULL, of the locations. */
static int unknown_process(const struct config *config, const struct locations *beside,
                           const char *name, struct err *err) {
    const char *names[MOST_NAMES + 2] = {plain_shape};
    size_t n = 1;
    const struct config_entry *entry = NULL;
    for (size_t i = 0; beside != NULL && i < beside->n && n <= MOST_NAMES; i++) {
        names[n++] = beside->rows[i].process;
    }
    while (n <= MOST_NAMES && (entry = decode_process_next(config, entry)) != NULL) {
        names[n++] = entry->section;
    }
    char hint[NAME_HINT_CHARS];
    return err_unknown(err, "%s: there is no decode process '%s'%s", config->path, name,
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

int decode_process_of(const char *model, const char *workload, char *name, size_t size,
                      struct err *err) {
    struct locations locations;
    struct config config;
    char path[1024], own[128];
    name[0] = '\0';
    int status = locations_open(data_path(path, sizeof path, "experiments/study/locations.csv"),
                                &locations, err);
    if (status != 0) {
        return status;
    }
    const struct location *row = location_of(&locations, model, workload, NULL);
    if (row != NULL) {
        snprintf(name, size, "%s", row->process);
    }
    locations_close(&locations);
    if (row != NULL) {
        return 0;
    }
    status =
        config_read(data_path(path, sizeof path, "experiments/study/decode.ini"), &config, err);
    if (status != 0) {
        return status;
    }
    snprintf(own, sizeof own, "%s/%s", model, workload);
    if (config_find(&config, own, "location") != NULL) {
        snprintf(name, size, "%s", own);
    }
    config_fini(&config);
    return 0;
}

/* The constants of a shape, which `where` names. */
static int take_shape(const struct config *config, const char *shape, const char *where,
                      uint64_t line, struct decode_process *out, struct err *err) {
    if (config_find(config, shape, "distance") == NULL) {
        return err_usage(err, "%s:%" PRIu64 ": there is no shape '%s'", where, line, shape);
    }
    return take_section(config, shape, out, err);
}

int decode_shape_read(const char *path, const char *shape, struct decode_process *out,
                      struct err *err) {
    struct config config;
    int status = config_read(path, &config, err);
    if (status != 0) {
        return status;
    }
    *out = (struct decode_process){0};
    param_defaults(params, N_PARAMS, out);
    status = take_shape(&config, shape, path, 1, out, err);
    config_fini(&config);
    return status;
}

static int read_beside(const char *path, const char *name, const struct locations *beside,
                       struct decode_process *out, struct err *err) {
    struct config config;
    int status = config_read(path, &config, err);
    if (status != 0) {
        return status;
    }
    *out = (struct decode_process){0};
    param_defaults(params, N_PARAMS, out);
    const struct config_entry *shape = config_find(&config, name, "shape");
    if (config_find(&config, name, "location") == NULL) {
        status = unknown_process(&config, beside, name, err);
    }
    if (status == 0 && shape != NULL) {
        status = take_shape(&config, shape->value, path, (uint64_t)shape->line, out, err);
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

int decode_process_read(const char *path, const char *name, struct decode_process *out,
                        struct err *err) {
    return read_beside(path, name, NULL, out, err);
}

/* ---- processes of experiments/study/locations.csv ---- */

/* What a second source prints belongs to every error. */
static void add_second(const char *second, char text[DECODE_ERROR_CHARS]) {
    size_t used = strlen(text);
    if (second[0] != '\0') {
        snprintf(text + used, DECODE_ERROR_CHARS - used, "; location: %s", second);
    }
}

static void state_located(const struct config *config, const struct location *row,
                          struct decode_process *out) {
    const struct config_entry *error = config_find(config, row->shape, "error");
    struct provenance *from = &out->from;
    snprintf(out->name, sizeof out->name, "%s", row->process);
    *from = provenance_of(
        row->transferred_from[0] != '\0' ? PROVENANCE_TRANSFERRED : PROVENANCE_CALIBRATED, NULL);
    if (isnan(row->printed)) {
        snprintf(from->source, sizeof from->source, "%s, %s; shape %s", row->transferred_from,
                 row->source, row->shape);
    } else {
        snprintf(from->source, sizeof from->source,
                 "%s: %s, %g %s at threshold %g, blocks of %" PRIu32 ", temperature %g; shape %s",
                 row->source, row->benchmark, row->printed,
                 row->runs_per_token ? "positions run a token" : "tokens a pass", row->at.threshold,
                 row->at.block_tokens, row->at.temperature, row->shape);
    }
    snprintf(out->error, sizeof out->error, "%s",
             error != NULL ? error->value : "of the shape not known");
    take_errors(config, row->shape, out);
    add_second(row->error, out->error);
    for (size_t i = 0; i < DECODE_MOST_ERRORS && out->errors[i].name[0] != '\0'; i++) {
        add_second(row->error, out->errors[i].text);
    }
}

static int of_location(const struct locations *locations, const struct location *row,
                       struct decode_process *out, struct err *err) {
    struct config config;
    char path[1024];
    int status =
        config_read(data_path(path, sizeof path, "experiments/study/decode.ini"), &config, err);
    if (status != 0) {
        return status;
    }
    *out = (struct decode_process){0};
    param_defaults(params, N_PARAMS, out);
    status = take_shape(&config, row->shape, locations->csv.line.path, row->line, out, err);
    if (status == 0) {
        out->location = row->location;
        out->at = row->at;
        out->is_structured = row->is_structured;
        state_located(&config, row, out);
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
    struct locations locations;
    int status = locations_open(data_path(path, sizeof path, "experiments/study/locations.csv"),
                                &locations, err);
    if (status != 0) {
        return status;
    }
    const struct location *row = location_find(&locations, name);
    if (row != NULL) {
        status = of_location(&locations, row, out, err);
        locations_close(&locations);
        return status;
    }
    char shapes[1024];
    status = read_beside(data_path(shapes, sizeof shapes, "experiments/study/decode.ini"), name,
                         &locations, out, err);
    locations_close(&locations);
    return status;
}
