/* Who reads a workload's keys (sim/base/condition.h): what conditions speak of, and which keys that
 * the user set nothing reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "traces/workload_parts.h"
#include "traces/workload_reads.h"

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

/* By enum length_side. */
static const char *const sides[LENGTH_SIDES] = {"input", "output", "answer"};

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
    return workload_spec_doc(key);
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
