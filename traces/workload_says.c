/* Descriptions of a workload: where its requests come from, and what was left out. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "traces/workload_parts.h"

/* Appends to the text that `size` bytes hold, shortening where it must. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
                                                         const char *format, ...) {
    size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

/* ---- provenance ---- */

bool workload_is_fixed(const struct length *length) {
    return length != NULL && length_is_fixed(length);
}

/* In words, from what the file declares and what the models draw. */
static void state_provenance(struct workload *workload) {
    const struct spec *spec = &workload->spec;
    const char *words[2];
    for (int i = 0; i < 2; i++) {
        words[i] = workload_is_fixed(workload->length[i])
                       ? "fixed"
                       : workload_provenance_word(spec->lengths_provenance);
    }
    const char *arrivals = workload->generator != NULL
                               ? "generated"
                               : workload_provenance_word(spec->arrivals_provenance);
    char *text = workload->provenance;
    size_t size = sizeof workload->provenance;
    bool is_rescaled = workload->generator == NULL && spec->rate_per_s > 0;
    text[0] = '\0';
    append(text, size, "%s arrivals%s, ", arrivals, is_rescaled ? " (rescaled)" : "");
    if (strcmp(words[0], words[1]) == 0) {
        append(text, size, "%s lengths", words[0]);
    } else {
        append(text, size, "%s inputs, %s outputs", words[0], words[1]);
    }
}

static bool has_logged_answers(const struct workload *workload) {
    return workload->trace != NULL && workload->spec.pairs != PAIRS_NONE &&
           trace_has_answers(workload->trace);
}

/* Of answers, as `provenance` says it of the rest; nothing where they fill their outputs. */
static void state_answers(struct workload *workload) {
    const struct length *answer = workload->length[LENGTH_ANSWER];
    bool in_trace = has_logged_answers(workload);
    uint32_t stated = workload->spec.answers_provenance;
    stated = stated != STATED_UNSTATED ? stated : STATED_TRACED;
    const char *word =
        answer != NULL && length_is_fixed(answer) ? "fixed" : workload_provenance_word(stated);
    bool fills = answer != NULL ? length_is_whole(answer) : !in_trace;
    size_t used = strlen(workload->provenance);
    if (!fills) {
        snprintf(workload->provenance + used, sizeof workload->provenance - used, ", %s answers",
                 word);
    }
    snprintf(workload->answers_source, sizeof workload->answers_source, "%s%s",
             answer == NULL && !in_trace ? "assumed to fill the output: no end-of-text data" : word,
             answer != NULL && fills ? ": outputs are answers" : "");
}

void workload_state(struct workload *workload) {
    state_provenance(workload);
    state_answers(workload);
}

bool workload_says_answers(const struct workload *workload) {
    const struct workload *part;
    for (uint32_t i = 0; workload->classes != NULL; i++) {
        part = classes_at(workload->classes, i);
        if (part == NULL || !workload_says_answers(part)) {
            return part == NULL;
        }
    }
    return workload->length[LENGTH_ANSWER] != NULL || has_logged_answers(workload);
}

/* Of classes, that of the first about which least is known. */
static struct provenance answers_of_classes(const struct workload *workload) {
    struct provenance least = workload_answers(classes_at(workload->classes, 0));
    const struct workload *part;
    for (uint32_t i = 1; (part = classes_at(workload->classes, i)) != NULL; i++) {
        struct provenance answers = workload_answers(part);
        least = answers.kind == PROVENANCE_ASSUMED ? answers : least;
    }
    return provenance_of(least.kind, workload->answers_source);
}

struct provenance workload_answers(const struct workload *workload) {
    if (workload->classes != NULL) {
        return answers_of_classes(workload);
    }
    static const enum provenance_kind kinds[] = {[STATED_REAL] = PROVENANCE_IMPORTED,
                                                 [STATED_ESTIMATED] = PROVENANCE_TRANSFERRED,
                                                 [STATED_SYNTHETIC] = PROVENANCE_ASSUMED,
                                                 [STATED_ASSUMED] = PROVENANCE_ASSUMED,
                                                 [STATED_TRACED] = PROVENANCE_IMPORTED};
    const struct length *answer = workload->length[LENGTH_ANSWER];
    uint32_t stated = workload->spec.answers_provenance;
    bool is_chosen = answer != NULL ? length_is_fixed(answer) : !has_logged_answers(workload);
    stated = stated != STATED_UNSTATED ? stated : STATED_TRACED;
    return provenance_of(is_chosen ? PROVENANCE_ASSUMED : kinds[stated], workload->answers_source);
}

/* Adds a class's text, unless another one has the same. */
static void add_words(char *text, size_t size, const char *words) {
    if (strstr(text, words) == NULL) {
        append(text, size, "%s%s", text[0] == '\0' ? "" : "; ", words);
    }
}

void workload_state_classes(struct workload *workload, const struct config *config) {
    const struct config_entry *note = config_find(config, "workload", "note");
    const struct workload *part;
    bool is_bounded = true;
    if (note != NULL) {
        free(workload->note);
        workload->note = mem_text(note->value);
    }
    for (uint32_t i = 0; (part = classes_at(workload->classes, i)) != NULL; i++) {
        is_bounded = is_bounded && part->limit.n > 0;
        workload->limit.n += part->limit.n;
        workload->spec.rate_per_s += part->spec.rate_per_s;
        add_words(workload->provenance, sizeof workload->provenance, part->provenance);
        add_words(workload->answers_source, sizeof workload->answers_source, part->answers_source);
    }
    workload->limit.n = is_bounded ? workload->limit.n : 0;
}

/* ---- its trace ---- */

double workload_rounds(const struct workload *workload) {
    const struct workload *part;
    double most = workload->rounds;
    for (uint32_t i = 0; workload->classes != NULL; i++) {
        if ((part = classes_at(workload->classes, i)) == NULL) {
            break;
        }
        most = part->rounds > most ? part->rounds : most;
    }
    return most;
}

/* The workloads that it is made of: its classes, else itself. NULL after the last. */
static const struct workload *part_at(const struct workload *workload, uint32_t i) {
    return workload->classes != NULL ? classes_at(workload->classes, i) : i == 0 ? workload : NULL;
}

const char *workload_notes(const struct workload *workload, char *text, size_t size) {
    const struct workload *part;
    text[0] = '\0';
    for (uint32_t i = 0; (part = part_at(workload, i)) != NULL; i++) {
        if (part->trace != NULL && trace_notes(part->trace)[0] != '\0') {
            append(text, size, "%s: %s", trace_path(part->trace), trace_notes(part->trace));
        }
    }
    size_t length = strlen(text);
    if (length >= 2 && strcmp(text + length - 2, "; ") == 0) {
        text[length - 2] = '\0';
    }
    return text;
}

/* Whether "a, b" has a name. */
static bool lists(const char *list, const char *name) {
    const char *word;
    size_t length;
    for (const char *rest = list; name_next(&rest, ",", &word, &length);) {
        for (; length > 0 && word[0] == ' '; word++) {
            length--;
        }
        for (; length > 0 && word[length - 1] == ' '; length--) {
        }
        if (strlen(name) == length && memcmp(name, word, length) == 0) {
            return true;
        }
    }
    return false;
}

const char *workload_unread(const struct workload *workload, char *text, size_t size, size_t *n) {
    const struct workload *part;
    size_t n_shown = 0;
    *n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; (part = part_at(workload, i)) != NULL; i++) {
        size_t n_names = 0;
        const char *const *names = part->trace != NULL ? trace_unread(part->trace, &n_names) : NULL;
        for (size_t k = 0; k < n_names; k++) {
            if (lists(part->passes_over, names[k])) {
                continue;
            }
            ++*n;
            if (strlen(text) + strlen(names[k]) + 16 < size) {
                append(text, size, "%s%s", n_shown++ > 0 ? ", " : "", names[k]);
            }
        }
    }
    if (*n > n_shown) {
        append(text, size, " and %zu more", *n - n_shown);
    }
    return text;
}

/* ---- numbers and words ---- */

uint64_t workload_requests(const struct workload *workload) {
    return workload->limit.n;
}

double workload_rate_per_s(const struct workload *workload) {
    return workload->spec.rate_per_s;
}

const struct trace *workload_prompts(const struct workload *workload) {
    return workload->trace != NULL && trace_has_prompts(workload->trace) ? workload->trace : NULL;
}

const char *workload_name(const struct workload *workload) {
    return workload->name;
}

const char *workload_note(const struct workload *workload) {
    return workload->note;
}

const char *workload_provenance(const struct workload *workload) {
    return workload->provenance;
}

static bool draws(const struct workload *workload, enum length_side side) {
    return workload->length[side] != NULL && length_draws(workload->length[side]);
}

bool workload_may_have_deadlines(const struct workload *workload) {
    return workload->classes != NULL || workload->trace != NULL ||
           workload->marks.model[MARK_DEADLINE] != NULL;
}

bool workload_draws(const struct workload *workload) {
    const struct workload *part;
    for (uint32_t i = 0; workload->classes != NULL; i++) {
        part = classes_at(workload->classes, i);
        if (part == NULL || workload_draws(part)) {
            return part != NULL;
        }
    }
    return (workload->generator != NULL && generator_process(workload->generator)->has_rate) ||
           workload->spec.pairs == PAIRS_RESAMPLE || draws(workload, LENGTH_INPUT) ||
           draws(workload, LENGTH_OUTPUT) || draws(workload, LENGTH_ANSWER) ||
           marks_draw(&workload->marks);
}

static struct workload_counts sum_counts(const struct classes *classes) {
    struct workload_counts sum = {0};
    const struct workload *part;
    for (uint32_t i = 0; (part = classes_at(classes, i)) != NULL; i++) {
        struct workload_counts counts = workload_counts(part);
        sum.n_dropped += counts.n_dropped;
        sum.n_truncated += counts.n_truncated;
        sum.n_failed += counts.n_failed;
        sum.n_left_out += counts.n_left_out;
        sum.n_bad += counts.n_bad;
    }
    return sum;
}

struct workload_counts workload_counts(const struct workload *workload) {
    if (workload->classes != NULL) {
        return sum_counts(workload->classes);
    }
    const struct cap *cap = &workload->cap;
    const char *first_bad;
    return (struct workload_counts){
        .n_dropped = cap->n_dropped,
        .n_truncated = cap->n_truncated,
        .n_failed = workload->trace != NULL ? trace_skipped(workload->trace) : 0,
        .n_left_out = workload->trace != NULL ? trace_left_out(workload->trace) : 0,
        .n_bad = workload->trace != NULL ? trace_bad(workload->trace, &first_bad) : 0,
        .dropped_ids = cap->dropped_ids,
        .n_listed = cap->n_listed,
    };
}

enum { MAX_SHOWN_IDS = 8 };

const char *workload_describe(const struct workload *workload, char *text, size_t size) {
    ASSERT(size > 0);
    struct workload_counts counts = workload_counts(workload);
    text[0] = '\0';
    append(text, size, "%s: %s.", workload->name, workload->provenance);
    if (workload->note[0] != '\0') {
        append(text, size, " %s.", workload->note);
    }
    if (counts.n_failed > 0) {
        append(text, size, " Skipped %" PRIu64 " failed row%s of the trace.", counts.n_failed,
               counts.n_failed == 1 ? "" : "s");
    }
    if (counts.n_left_out > 0) {
        append(text, size, " Left out %" PRIu64 " row%s of the trace by `where`.",
               counts.n_left_out, counts.n_left_out == 1 ? "" : "s");
    }
    if (counts.n_bad > 0) {
        append(text, size, " Left out %" PRIu64 " row%s of the trace that cannot be read.",
               counts.n_bad, counts.n_bad == 1 ? "" : "s");
    }
    if (counts.n_truncated > 0) {
        append(text, size, " Truncated %" PRIu64 " prompts to the context of %" PRIu32 " tokens.",
               counts.n_truncated, workload->cap.context_tokens);
    }
    if (counts.n_dropped > 0) {
        append(text, size, " Dropped %" PRIu64 " requests over the context of %" PRIu32 " tokens:",
               counts.n_dropped, workload->cap.context_tokens);
        uint64_t n_shown = counts.n_listed < MAX_SHOWN_IDS ? counts.n_listed : MAX_SHOWN_IDS;
        for (uint64_t i = 0; i < n_shown; i++) {
            append(text, size, "%s row %" PRIu64, i == 0 ? "" : ",", counts.dropped_ids[i]);
        }
        append(text, size, "%s", counts.n_dropped > n_shown ? ", ..." : ".");
    }
    return text;
}
