/* The INI file of a workload: its keys, and the opening of what they name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/path.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/param.h"
#include "traces/workload_parts.h"

enum { MAX_NAMES = 32 };

static const char *const pair_words[] = {"trace", "resample", NULL};
static const char *const over_words[] = {"drop", "truncate", NULL};
static const char *const switch_words[] = {"off", "on", NULL};
static const char *const stated_words[] = {"real",    "estimated", "synthetic",
                                           "assumed", "traced",    NULL};

#define SPEC(key, kind, unit, initial, max, field, doc)                                            \
    PARAM(key, kind, struct spec, field, unit, initial, 0, max, doc)
#define SPEC_WORD(key, words, initial, field, doc)                                                 \
    PARAM_ONE_OF(key, struct spec, field, words, initial, doc)

const struct param workload_params[] = {
    SPEC("requests", PARAM_I64, "1", "0", 1e12, requests, "number of requests (0: the trace once)"),
    SPEC("rate", PARAM_F64, "1/s", "0", 1e9, rate_per_s, "mean requests per second"),
    SPEC("context", PARAM_U32, "tokens", "0", UINT32_MAX, context_tokens,
         "most tokens of prompt and output together (0: no limit)"),
    SPEC_WORD("over_context", over_words, "drop", over,
              "what happens to longer requests [workload.context > 0]"),
    SPEC_WORD("lengths", pair_words, "trace", pairs, "whole pairs from the trace"),
    SPEC_WORD("provenance.arrivals", stated_words, "real", arrivals_provenance,
              "where the arrival times come from [workload.arrivals = trace]"),
    SPEC_WORD("provenance.lengths", stated_words, "real", lengths_provenance,
              "where the lengths come from [workload.lengths_drawn = on]"),
    SPEC_WORD("provenance.answers", stated_words, "real", answers_provenance,
              "where the lengths of answers come from [workload.answers = said]"),
    SPEC("hash_tokens", PARAM_U32, "tokens", "0", UINT32_MAX, hash_tokens,
         "tokens that a hash id of the trace stands for (0: found from its rows)"),
    SPEC_WORD("skip_failed", switch_words, "off", skip_failed,
              "rows of the trace without tokens failed and are left out"),
    SPEC_WORD("skip_bad", switch_words, "off", skip_bad,
              "rows of the trace that cannot be read are left out"),
    SPEC_WORD("sort", switch_words, "off", sort, "the trace's rows stand in any order"),
};
enum { N_SPEC_PARAMS = sizeof workload_params / sizeof workload_params[0] };
const size_t workload_n_params = N_SPEC_PARAMS;

/* Keys that are no numbers; read before the others. */
static const char *const text_keys[] = {"arrivals", "trace",       "input",   "output",
                                        "answer",   "note",        "columns", "time_unit",
                                        "where",    "passes_over", "tenant",  "priority",
                                        "deadline", "predicted",   NULL};

/* How a trace is read. */
static const char *const reading_keys[] = {"columns",     "time_unit", "where", "hash_tokens",
                                           "skip_failed", "skip_bad",  "sort",  NULL};

/* The value of a key of texts; NULL: the file does not say. */
static const char *text_of(const struct config *config, const char *key) {
    const struct config_entry *entry = config_find(config, "workload", key);
    return entry != NULL ? entry->value : NULL;
}

const char *workload_spec_doc(const char *key) {
    const struct param *param = param_find(workload_params, N_SPEC_PARAMS, key);
    return param != NULL ? param->doc : NULL;
}

struct workload *workload_new(const char *name) {
    struct workload *workload = mem_zeroed(1, sizeof *workload);
    workload->name = mem_text(name);
    workload->note = mem_text("");
    workload->passes_over = mem_text("");
    workload->rounds = 1;
    param_defaults(workload_params, N_SPEC_PARAMS, &workload->spec);
    return workload;
}

const char *workload_provenance_word(uint32_t provenance) {
    ASSERT(provenance < STATED_UNSTATED);
    return stated_words[provenance];
}

static int unknown_key(const struct config *config, const struct config_entry *entry,
                       struct err *err) {
    const char *names[MAX_NAMES + 1] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < N_SPEC_PARAMS; i++) {
        names[n++] = workload_params[i].name;
    }
    for (size_t i = 0; text_keys[i] != NULL; i++) {
        names[n++] = text_keys[i];
    }
    char place[MAX_PATH_CHARS + 32];
    char hint[NAME_HINT_CHARS];
    name_hint(entry->key, names, hint);
    return err_usage(err, "%s: a workload has no key '%s'%s",
                     config_place(config, entry, place, sizeof place), entry->key, hint);
}

/* By enum length_side. */
static const char *const sides[LENGTH_SIDES] = {"input", "output", "answer"};

/* The parameter's name when `key` is "prefix.NAME", else NULL. */
static const char *behind_prefix(const char *key, const char *prefix) {
    const char *rest = name_behind(key, prefix);
    return rest != NULL && *rest == '.' ? rest + 1 : NULL;
}

int workload_side(const char *key) {
    for (int i = 0; i < LENGTH_SIDES; i++) {
        const char *rest = name_behind(key, sides[i]);
        if (rest != NULL && (*rest == '.' || *rest == '\0')) {
            return i;
        }
    }
    return -1;
}

static int set_entry(struct workload *workload, const struct config *config,
                     const struct config_entry *entry, struct err *err) {
    char place[MAX_PATH_CHARS + 32];
    config_place(config, entry, place, sizeof place);
    const char *name;
    if ((name = behind_prefix(entry->key, "arrivals")) != NULL) {
        return workload->generator != NULL
                   ? generator_set(workload->generator, place, name, entry->value, err)
                   : err_usage(err, "%s: arrivals = trace has no parameters", place);
    }
    for (int i = 0; i < LENGTH_SIDES; i++) {
        if ((name = behind_prefix(entry->key, sides[i])) != NULL) {
            return workload->length[i] != NULL
                       ? length_set(workload->length[i], place, name, entry->value, err)
                       : err_usage(err, "%s: %s needs a model, %s = ..., before its parameters",
                                   place, entry->key, sides[i]);
        }
    }
    const int mark = marks_find(entry->key);
    if (mark >= 0 && (name = behind_prefix(entry->key, mark_words[mark])) != NULL) {
        return marks_set(&workload->marks, (enum mark)mark, place, name, entry->value, err);
    }
    if (param_find(workload_params, N_SPEC_PARAMS, entry->key) != NULL) {
        return param_set(workload_params, N_SPEC_PARAMS, &workload->spec, "workload", place,
                         entry->key, entry->value, err);
    }
    return name_find(text_keys, entry->key) >= 0 ? 0 : unknown_key(config, entry, err);
}

static int open_process(struct workload *workload, const struct config *config,
                        const struct config_entry *entry, struct err *err) {
    if (entry == NULL) {
        return err_usage(err, "%s: found no 'arrivals' in [workload], expected a process or trace",
                         config->path);
    }
    if (strcmp(entry->value, "trace") == 0) {
        return 0;
    }
    const struct process *process = process_find(entry->value);
    if (process == NULL) {
        const char *names[MAX_NAMES + 1] = {"trace"};
        for (size_t i = 0; process_at(i) != NULL; i++) {
            names[i + 1] = process_at(i)->name;
        }
        char place[MAX_PATH_CHARS + 32];
        char hint[NAME_HINT_CHARS];
        name_hint(entry->value, names, hint);
        return err_unknown(err, "%s: there are no arrivals '%s'%s",
                           config_place(config, entry, place, sizeof place), entry->value, hint);
    }
    workload->generator = generator_open(process);
    return 0;
}

static int open_trace(struct workload *workload, const struct config *config, const char *path,
                      struct err *err) {
    char joined[MAX_PATH_CHARS];
    if (!path_named_in(config->path, path, joined, sizeof joined)) {
        return err_usage(err, "%s: the trace's path is too long", config->path);
    }
    const struct spec *spec = &workload->spec;
    struct trace_reading how = {.columns = text_of(config, "columns"),
                                .time_unit = text_of(config, "time_unit"),
                                .where = text_of(config, "where"),
                                .hash_tokens = spec->hash_tokens,
                                .skip_failed = spec->skip_failed != 0,
                                .skip_bad = spec->skip_bad != 0,
                                .names_skip_bad = true,
                                .sorts = spec->sort != 0};
    return trace_open_as(joined, &how, &workload->trace, err);
}

static int open_length(struct workload *workload, const struct config *config,
                       enum length_side side, struct err *err) {
    const struct config_entry *entry = config_find(config, "workload", sides[side]);
    if (entry == NULL) {
        return 0;
    }
    char place[MAX_PATH_CHARS + 32];
    return length_open(entry->value, config_place(config, entry, place, sizeof place), side,
                       &workload->length[side], err);
}

static int open_marks(struct workload *workload, const struct config *config, struct err *err) {
    int status = 0;
    for (int i = 0; status == 0 && i < MARKS; i++) {
        const struct config_entry *entry = config_find(config, "workload", mark_words[i]);
        char place[MAX_PATH_CHARS + 32];
        if (entry != NULL) {
            status = marks_open(&workload->marks, (enum mark)i, entry->value,
                                config_place(config, entry, place, sizeof place), err);
        }
    }
    return status;
}

/* Everything the file says, without the command line. */
int workload_read(struct workload *workload, const struct config *config, struct err *err) {
    for (size_t i = 0; i < config->n_entries; i++) {
        if (strcmp(config->entries[i].section, "workload") != 0) {
            char place[MAX_PATH_CHARS + 32];
            return err_usage(err, "%s: found section [%s], expected [workload] only",
                             config_place(config, &config->entries[i], place, sizeof place),
                             config->entries[i].section);
        }
    }
    const struct config_entry *trace = config_find(config, "workload", "trace");
    int status = open_process(workload, config, config_find(config, "workload", "arrivals"), err);
    for (int side = 0; status == 0 && side < LENGTH_SIDES; side++) {
        status = open_length(workload, config, (enum length_side)side, err);
    }
    status = status != 0 ? status : open_marks(workload, config, err);
    for (size_t i = 0; i < config->n_entries && status == 0; i++) {
        status = set_entry(workload, config, &config->entries[i], err);
    }
    for (size_t i = 0; status == 0 && trace == NULL && reading_keys[i] != NULL; i++) {
        const struct config_entry *entry = config_find(config, "workload", reading_keys[i]);
        char place[MAX_PATH_CHARS + 32];
        status = entry == NULL
                     ? 0
                     : err_usage(err, "%s: found %s, which says how a trace is read, but no trace",
                                 config_place(config, entry, place, sizeof place), entry->key);
    }
    if (status == 0 && trace != NULL) {
        status = open_trace(workload, config, trace->value, err);
    }
    if (status != 0) {
        return status;
    }
    const struct config_entry *note = config_find(config, "workload", "note");
    if (note != NULL) {
        free(workload->note);
        workload->note = mem_text(note->value);
    }
    if (text_of(config, "passes_over") != NULL) {
        free(workload->passes_over);
        workload->passes_over = mem_text(text_of(config, "passes_over"));
    }
    struct spec *spec = &workload->spec;
    if (config_find(config, "workload", "lengths") == NULL) {
        spec->pairs = PAIRS_NONE;
    }
    uint32_t *const stated[] = {&spec->arrivals_provenance, &spec->lengths_provenance,
                                &spec->answers_provenance};
    static const char *const keys[] = {"provenance.arrivals", "provenance.lengths",
                                       "provenance.answers"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (config_find(config, "workload", keys[i]) == NULL) {
            *stated[i] = STATED_UNSTATED;
        }
    }
    return 0;
}

/* Who reads a workload's keys (sim/base/condition.h): what conditions speak of, and which keys that
 * the user set nothing reads. */

const struct workload_fact_doc workload_fact_docs[] = {
    {"workload.arrivals", "the arrival process, or trace"},
    {"workload.draws", "on: another seed gives other requests"},
    {"workload.lengths_drawn", "on: prompts or outputs are not of one fixed length"},
    {"workload.answers", "said: lengths of answers are known; else filled"},
    {"workload.prompts", "on: requests are texts"},
    {"workload.follows", "on: requests follow others: closed loops and conversations"},
    {NULL, NULL},
};

static const char *switch_word(bool is_on) {
    return is_on ? "on" : "off";
}

static const char *arrivals_word(const struct workload *w) {
    return w->generator != NULL ? generator_process(w->generator)->name : "trace";
}

static const char *draws_word(const struct workload *w) {
    return switch_word(workload_draws(w));
}

static const char *lengths_word(const struct workload *w) {
    return switch_word(!workload_is_fixed(w->length[LENGTH_INPUT]) ||
                       !workload_is_fixed(w->length[LENGTH_OUTPUT]));
}

static const char *answers_word(const struct workload *w) {
    return workload_says_answers(w) ? "said" : "filled";
}

static const char *prompts_word(const struct workload *w) {
    return switch_word(workload_prompts(w) != NULL);
}

static const char *follows_word(const struct workload *w) {
    bool loops = w->generator != NULL && generator_process(w->generator)->completed != NULL;
    return switch_word(loops || w->conversations != NULL);
}

/* In the order of workload_fact_docs. */
static const char *(*const words[])(const struct workload *w) = {
    arrivals_word, draws_word, lengths_word, answers_word, prompts_word, follows_word};

static const char *number(double value, char text[FACT_CHARS]) {
    snprintf(text, FACT_CHARS, "%.17g", value);
    return text;
}

static const char *own_fact(const struct workload *w, const char *name, char text[FACT_CHARS]) {
    for (size_t i = 0; workload_fact_docs[i].name != NULL; i++) {
        if (strcmp(workload_fact_docs[i].name, name) == 0) {
            return words[i](w);
        }
    }
    const char *key = name_behind(name, "workload."), *rest;
    if (key == NULL) {
        return NULL;
    }
    if ((rest = name_behind(key, "arrivals.")) != NULL) {
        return w->generator != NULL ? generator_text(w->generator, rest, text, FACT_CHARS) : NULL;
    }
    int side = workload_side(key);
    if (side >= 0) {
        const struct length *length = w->length[side];
        bool is_model = key[strlen(sides[side])] == '\0';
        return length == NULL ? (is_model ? "none" : NULL)
               : is_model     ? length_name(length)
                          : length_text(length, key + strlen(sides[side]) + 1, text, FACT_CHARS);
    }
    if (marks_find(key) >= 0) {
        const char *said = marks_text(&w->marks, key, text, FACT_CHARS);
        return said == NULL && strchr(key, '.') == NULL ? "none" : said;
    }
    return strcmp(key, "context") == 0    ? number(w->spec.context_tokens, text)
           : strcmp(key, "requests") == 0 ? number((double)w->spec.requests, text)
           : strcmp(key, "rate") == 0     ? number(w->spec.rate_per_s, text)
                                          : NULL;
}

/* Of classes, what all of them say; "mixed" where they differ. */
const char *workload_fact(const struct workload *w, const char *name, char text[FACT_CHARS]) {
    if (w->classes == NULL) {
        return own_fact(w, name, text);
    }
    const char *said = NULL;
    const struct workload *part;
    for (uint32_t i = 0; (part = classes_at(w->classes, i)) != NULL; i++) {
        char other[FACT_CHARS];
        const char *value = workload_fact(part, name, i == 0 ? text : other);
        if (i > 0 && (said == NULL) != (value == NULL)) {
            return "mixed";
        }
        if (i > 0 && said != NULL && strcmp(said, value) != 0) {
            return "mixed";
        }
        said = i == 0 ? value : said;
    }
    return said;
}

/* ---- what the user set ---- */

static void keep(struct workload *w, const char *key, const char *value, const char *place) {
    w->stated = mem_grown(w->stated, w->n_stated, &w->stated_room, sizeof *w->stated);
    w->stated[w->n_stated++] = (struct stated_key){mem_text(key), mem_text(value), mem_text(place)};
}

void workload_keep_stated(struct workload *w, const struct config *config,
                          const struct workload_options *options) {
    const uint32_t fixed[LENGTH_SIDES] = {options->input_tokens, options->output_tokens,
                                          options->answer_tokens};
    bool is_own = strpbrk(w->name, "./") != NULL && !workload_is_trace(w->name);
    for (size_t i = 0; i < config->n_entries; i++) {
        const struct config_entry *entry = &config->entries[i];
        int side = workload_side(entry->key);
        char place[MAX_PATH_CHARS + 32];
        if ((is_own || entry->place != NULL) && (side < 0 || fixed[side] == 0)) {
            keep(w, entry->key, entry->value, config_place(config, entry, place, sizeof place));
        }
    }
}

void workload_drop_stated(struct workload *w) {
    for (size_t i = 0; i < w->n_stated; i++) {
        free(w->stated[i].key);
        free(w->stated[i].value);
        free(w->stated[i].place);
    }
    free(w->stated);
}

static const char *doc_of(const struct workload *w, const char *key) {
    const char *rest = name_behind(key, "arrivals.");
    int side = workload_side(key);
    if (rest != NULL) {
        return w->generator != NULL ? generator_doc(w->generator, rest) : NULL;
    }
    if (side >= 0) {
        const char *name = strchr(key, '.');
        return name != NULL && w->length[side] != NULL ? length_doc(w->length[side], name + 1)
                                                       : NULL;
    }
    return marks_find(key) >= 0 ? marks_doc(&w->marks, key) : workload_spec_doc(key);
}

static const char *fact(const void *state, const char *name, char text[FACT_CHARS]) {
    return workload_fact(state, name, text);
}

void workload_warn_of_unread(const struct workload *w, struct warnings *warnings) {
    const struct facts facts = {fact, w};
    const struct workload *part;
    for (uint32_t i = 0; w->classes != NULL && (part = classes_at(w->classes, i)) != NULL; i++) {
        workload_warn_of_unread(part, warnings);
    }
    for (size_t i = 0; i < w->n_stated; i++) {
        const struct stated_key *stated = &w->stated[i];
        const char *doc = doc_of(w, stated->key);
        char text[CONDITION_CHARS], key[96];
        const char *condition = doc != NULL ? condition_of(doc, text) : NULL;
        if (condition != NULL && !condition_holds(condition, &facts)) {
            snprintf(key, sizeof key, "workload.%.80s", stated->key);
            warnings_add_unused(warnings, key, stated->value, stated->place, condition);
        }
    }
}
