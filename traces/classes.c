#include "traces/classes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/path.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"

enum { MAX_PATH_CHARS = 4096, MOST_HELD = 2 };

/* One class and the rows of it that were asked for too early, the next one last. */
struct part {
    struct workload *workload;
    struct arrival_source source;
    struct arrival held[MOST_HELD];
    uint32_t n_held;
    bool has_ended;
};

struct classes {
    struct part parts[MAX_CLASSES];
    uint32_t n;
    bool follows;     /* some class's arrivals follow from completions */
    uint64_t n_given; /* where none's do */
};

static const char *const class_keys[] = {"classes", "requests", "rate", "context", "note", NULL};

bool classes_are_in(const struct config *config) {
    return config_find(config, "workload", "classes") != NULL;
}

/* ---- reading ---- */

static int check_keys(const struct config *config, struct err *err) {
    for (size_t i = 0; i < config->n_entries; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (strcmp(entry->section, "workload") != 0 || name_find(class_keys, entry->key) < 0) {
            char place[MAX_PATH_CHARS + 32];
            return err_usage(err,
                             "%s: found '%s', expected classes, requests, rate, context and note "
                             "alone: each class states the rest",
                             config_place(config, entry, place, sizeof place), entry->key);
        }
    }
    return 0;
}

/* The number of a key, or the command line's in its place; 0: neither is given. */
static int read_number(const struct config *config, const char *key, double said, double most,
                       double *out, struct err *err) {
    const struct config_entry *entry = config_find(config, "workload", key);
    *out = said;
    if (said != 0 || entry == NULL) {
        return 0;
    }
    char place[MAX_PATH_CHARS + 32];
    return num_f64(entry->value, out) && *out > 0 && *out <= most
               ? 0
               : err_usage(err, "%s: %s = '%s', expected a number up to %g",
                           config_place(config, entry, place, sizeof place), key, entry->value,
                           most);
}

/* A class's file: relative to the one that names it, or a shipped workload's name as it stands. */
static int place_of(const struct config *config, const char *word, size_t length, char *out,
                    size_t size, struct err *err) {
    bool is_name = memchr(word, '.', length) == NULL && memchr(word, '/', length) == NULL;
    char *path = mem_copied(word, length);
    bool fits = path_named_in(is_name ? "" : config->path, path, out, size);
    free(path);
    return fits ? 0 : err_usage(err, "%s: the path of a class is too long", config->path);
}

static int open_part(struct classes *classes, const char *path,
                     const struct workload_options *options, struct err *err) {
    struct part *part = &classes->parts[classes->n];
    int status = workload_open(path, options, &part->workload, err);
    if (status != 0) {
        return status;
    }
    classes->n++;
    return workload_prompts(part->workload) == NULL
               ? 0
               : err_usage(err, "%s: found prompts, which a class cannot have", path);
}

static void close_parts(struct classes *classes) {
    for (uint32_t i = 0; i < classes->n; i++) {
        workload_close(classes->parts[i].workload);
    }
    classes->n = 0;
}

/* Each class's share of the total rate; an error where one has none. */
static int share_rates(const struct classes *classes, const char *path, double share[],
                       struct err *err) {
    double total = 0;
    for (uint32_t i = 0; i < classes->n; i++) {
        share[i] = workload_rate_per_s(classes->parts[i].workload);
        if (share[i] == 0) {
            return err_usage(err,
                             "%s: %s has no rate, expected one of each class where requests or "
                             "rate are given for all",
                             path, workload_name(classes->parts[i].workload));
        }
        total += share[i];
    }
    for (uint32_t i = 0; i < classes->n; i++) {
        share[i] /= total;
    }
    return 0;
}

/* What all are asked to be together. */
struct whole {
    double requests, rate_per_s;
};

static int open_parts(struct classes *classes, const struct config *config,
                      const struct workload_options *options, const struct whole *whole,
                      const double *share, struct err *err) {
    const struct config_entry *list = config_find(config, "workload", "classes");
    const char *rest = list->value, *word;
    size_t length;
    double passed = 0; /* cumulative share of the classes so far; `given`: their requests */
    uint64_t given = 0;
    int status = 0;
    for (uint32_t i = 0; status == 0 && name_next(&rest, ",", &word, &length); i++) {
        for (; length > 0 && word[0] == ' '; word++) {
            length--;
        }
        for (; length > 0 && word[length - 1] == ' '; length--) {
        }
        char path[MAX_PATH_CHARS];
        struct workload_options part = *options;
        part.seed = rng_key(options->seed, i, 0) >> 1;
        part.requests = 0;
        part.rate_per_s = 0;
        part.is_class = true;
        if (share != NULL && whole->requests > 0) {
            passed += share[i];
            part.requests = (uint64_t)fmax(1, round(whole->requests * passed) - (double)given);
            given += part.requests;
        }
        if (share != NULL && whole->rate_per_s > 0) {
            part.rate_per_s = whole->rate_per_s * share[i];
        }
        status = length == 0
                     ? err_usage(err, "%s: classes names a workload without a name", config->path)
                 : i == MAX_CLASSES
                     ? err_usage(err, "%s: found more than %d classes", config->path, MAX_CLASSES)
                     : place_of(config, word, length, path, sizeof path, err);
        status = status == 0 ? open_part(classes, path, &part, err) : status;
    }
    return status;
}

int classes_open(const struct config *config, const struct workload_options *options,
                 struct classes **out, struct err *err) {
    struct classes *classes = mem_zeroed(1, sizeof *classes);
    struct workload_options each = *options;
    struct whole whole = {0};
    double share[MAX_CLASSES], context = 0;
    int status = check_keys(config, err);
    status = status == 0 ? read_number(config, "requests", (double)options->requests, 1e12,
                                       &whole.requests, err)
                         : status;
    status = status == 0
                 ? read_number(config, "rate", options->rate_per_s, 1e9, &whole.rate_per_s, err)
                 : status;
    status = status == 0 ? read_number(config, "context", options->context_tokens, UINT32_MAX,
                                       &context, err)
                         : status;
    each.context_tokens = (uint32_t)context;
    status = status == 0 ? open_parts(classes, config, &each, &whole, NULL, err) : status;
    if (status == 0 && (whole.requests > 0 || whole.rate_per_s > 0)) {
        status = share_rates(classes, config->path, share, err);
        close_parts(classes);
        status = status == 0 ? open_parts(classes, config, &each, &whole, share, err) : status;
    }
    if (status != 0) {
        classes_close(classes);
        return status;
    }
    for (uint32_t i = 0; i < classes->n; i++) {
        classes->parts[i].source = workload_source(classes->parts[i].workload);
    }
    *out = classes;
    return 0;
}

void classes_close(struct classes *classes) {
    if (classes != NULL) {
        close_parts(classes);
        free(classes);
    }
}

struct workload *classes_at(const struct classes *classes, uint32_t i) {
    return i < classes->n ? classes->parts[i].workload : NULL;
}

/* ---- the source ---- */

/* Has the part's next row held, where it has one. */
static enum source_reply hold_row(struct part *part, struct err *err) {
    if (part->n_held > 0) {
        return SOURCE_ROW;
    }
    enum source_reply reply =
        part->has_ended ? SOURCE_END : part->source.next(part->source.state, &part->held[0], err);
    part->n_held = reply == SOURCE_ROW;
    part->has_ended = reply == SOURCE_END;
    return reply;
}

#define CLASS_STRIDE UINT64_C(0x9E3779B97F4A7C15)

/* Each class has its own conversations, and shares no prompts with another. */
static void rename_own(struct arrival *row, uint64_t by) {
    uint64_t *const names[] = {&row->session, &row->shares, &row->leaves, &row->prefix_group};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *names[i] += *names[i] != 0 ? by : 0;
    }
}

static enum source_reply give_first(void *state, struct arrival *out, struct err *err) {
    struct classes *classes = state;
    uint32_t first = classes->n;
    bool waits = false;
    for (uint32_t i = 0; i < classes->n; i++) {
        struct part *part = &classes->parts[i];
        enum source_reply reply = hold_row(part, err);
        if (reply == SOURCE_BAD) {
            return reply;
        }
        waits = waits || reply == SOURCE_WAIT;
        if (reply == SOURCE_ROW &&
            (first == classes->n ||
             part->held[part->n_held - 1].arrival_ns <
                 classes->parts[first].held[classes->parts[first].n_held - 1].arrival_ns)) {
            first = i;
        }
    }
    if (first == classes->n) {
        return waits ? SOURCE_WAIT : SOURCE_END;
    }
    struct part *part = &classes->parts[first];
    *out = part->held[--part->n_held];
    out->id = classes->follows ? out->id * classes->n + first : classes->n_given++;
    out->follows = out->follows > 0 ? (out->follows - 1) * classes->n + first + 1 : 0;
    out->tenant = first;
    rename_own(out, first * CLASS_STRIDE);
    return SOURCE_ROW;
}

/* To the class's own source, which then has a next row again. */
static void return_row(struct part *part, const struct arrival *row) {
    part->source.back(part->source.state, row);
    part->has_ended = false;
}

static void take_back(void *state, const struct arrival *row) {
    struct classes *classes = state;
    struct part *part = &classes->parts[row->id % classes->n];
    struct arrival own = *row;
    rename_own(&own, -(row->id % classes->n) * CLASS_STRIDE);
    own.id /= classes->n;
    own.follows = own.follows > 0 ? (own.follows - 1) / classes->n + 1 : 0;
    if (part->source.back != NULL) {
        return_row(part, &own);
        return;
    }
    ASSERT(part->n_held < MOST_HELD);
    part->held[part->n_held++] = own;
}

/* A completion may bring its class an earlier row than the one that is held. */
static void pass_completion(void *state, uint64_t id, int64_t now_ns) {
    struct classes *classes = state;
    struct part *part = &classes->parts[id % classes->n];
    while (part->source.back != NULL && part->n_held > 0) {
        return_row(part, &part->held[--part->n_held]);
    }
    if (part->source.completed != NULL) {
        part->source.completed(part->source.state, id / classes->n, now_ns);
    }
}

struct arrival_source classes_source(struct classes *classes) {
    classes->follows = false;
    for (uint32_t i = 0; i < classes->n; i++) {
        classes->follows = classes->follows || classes->parts[i].source.completed != NULL;
    }
    return (struct arrival_source){.state = classes,
                                   .next = give_first,
                                   .completed = classes->follows ? pass_completion : NULL,
                                   .back = classes->follows ? take_back : NULL};
}
