#include "sim/base/condition.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/names.h"
#include "sim/base/num.h"

static const char blanks[] = " ";

/* Where the condition of a doc begins, at its bracket; NULL: it has none. */
static const char *bracket(const char *doc) {
    size_t length = strlen(doc);
    const char *open = length > 0 && doc[length - 1] == ']' ? strrchr(doc, '[') : NULL;
    return open != NULL && length - (size_t)(open - doc) - 2 < CONDITION_CHARS ? open : NULL;
}

/* One term, or "and" or "or", at `*rest`, which moves on. */
struct term {
    char name[FACT_CHARS], words[FACT_CHARS];
    char op[3];
};

static bool take_word(const char **rest, char *out, size_t size) {
    const char *start = *rest + strspn(*rest, blanks);
    size_t length = strcspn(start, blanks);
    *rest = start + length;
    if (length == 0 || length >= size) {
        return false;
    }
    snprintf(out, size, "%.*s", (int)length, start);
    return true;
}

static bool take_term(const char **rest, struct term *term) {
    static const char *const ops[] = {"=", "!=", "<", ">"};
    bool is_known = false;
    if (!take_word(rest, term->name, sizeof term->name) ||
        !take_word(rest, term->op, sizeof term->op) ||
        !take_word(rest, term->words, sizeof term->words)) {
        return false;
    }
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        is_known = is_known || strcmp(term->op, ops[i]) == 0;
    }
    return is_known;
}

/* Whether a value is one of words such as a|b|c; numbers may be written in several ways. */
static bool is_one_of(const char *value, const char *words) {
    double wanted, found;
    for (const char *word = words;; word++) {
        char one[FACT_CHARS];
        size_t length = strcspn(word, "|");
        snprintf(one, sizeof one, "%.*s", (int)length, word);
        if (strcmp(one, value) == 0 ||
            (num_f64(one, &wanted) && num_f64(value, &found) && wanted == found)) {
            return true;
        }
        word += length;
        if (*word == '\0') {
            return false;
        }
    }
}

static bool term_holds(const struct term *term, const struct facts *facts) {
    char text[FACT_CHARS], other[FACT_CHARS];
    const char *value = facts->value(facts->state, term->name, text);
    double wanted, found;
    if (strchr("<>", term->op[0]) != NULL) {
        const char *bound = num_f64(term->words, &wanted)
                                ? term->words
                                : facts->value(facts->state, term->words, other);
        bool are_numbers =
            value != NULL && bound != NULL && num_f64(value, &found) && num_f64(bound, &wanted);
        return are_numbers && (term->op[0] == '<' ? found < wanted : found > wanted);
    }
    bool equals = value != NULL && is_one_of(value, term->words);
    return equals == (term->op[0] == '=');
}

/* Goes over all terms; `facts` NULL: of their form alone. False where it does not hold. */
static bool walk(const char *condition, const struct facts *facts, bool *is_valid) {
    bool holds = false, all = true;
    const char *rest = condition;
    for (*is_valid = true;;) {
        struct term term;
        char word[4];
        if (!take_term(&rest, &term)) {
            *is_valid = false;
            return false;
        }
        all = all && (facts == NULL || term_holds(&term, facts));
        if (rest[strspn(rest, blanks)] == '\0') {
            return holds || all;
        }
        bool is_word = take_word(&rest, word, sizeof word);
        if (is_word && strcmp(word, "or") == 0) {
            holds = holds || all;
            all = true;
        } else if (!is_word || strcmp(word, "and") != 0) {
            *is_valid = false;
            return false;
        }
    }
}

bool condition_holds(const char *condition, const struct facts *facts) {
    bool is_valid;
    return walk(condition, facts, &is_valid);
}

bool condition_is_valid(const char *condition) {
    bool is_valid;
    (void)walk(condition, NULL, &is_valid);
    return is_valid;
}

const char *condition_of(const char *doc, char text[CONDITION_CHARS]) {
    const char *open = bracket(doc);
    if (open == NULL) {
        return NULL;
    }
    snprintf(text, CONDITION_CHARS, "%.*s", (int)(strlen(open) - 2), open + 1);
    return condition_is_valid(text) ? text : NULL;
}

size_t condition_doc_length(const char *doc) {
    char text[CONDITION_CHARS];
    const char *open = condition_of(doc, text) != NULL ? bracket(doc) : NULL;
    size_t length = open != NULL ? (size_t)(open - doc) : strlen(doc);
    while (open != NULL && length > 0 && doc[length - 1] == ' ') {
        length--;
    }
    return length;
}

/* Facts are named for tables, and no one sets them. */
static const struct {
    const char *term, *words;
} fact_words[] = {
    {"serves = on", "requests are served"},
    {"priced = on", "the command is not plan lmax"},
    {"backend != lmax", "the command is not plan lmax"},
    {"backend = lmax", "the command is plan lmax"},
    {"backend = step", "the command is plan or explain"},
    {"backend = sim", "nothing runs live"},
    {"backend = sim|step", "nothing runs live"},
    {"backend = cpu|cuda", "--backend is cpu or cuda"},
    {"model.experts > 0", "the model has experts"},
    {"rows = exact", "the cache is exact"},
    {"leads = on", "leading layers take prefixes over"},
    {"rows != exact", "the cache is not exact"},
    {"rows = features", "the cache keeps features"},
    {"grows = on", "requests start with the memory of their next step"},
    {"profiled = on", "a profile of our kernels prices the steps"},
    {"backend != sim|step", "--backend is cpu or cuda"},
    {"backend = cuda", "--backend is cuda"},
    {"workload.context > 0", "the workload says a context"},
    {"reuses = on", "the cache policy reuses rows"},
    {"selects = on", "the cache policy chooses rows"},
    {"evicts = on", "positions leave within a step"},
    {"draws = on", "decisions are drawn"},
    {"run.draws = on", "something is drawn"},
    {"run.answers = on", "answers end before their outputs"},
    {"swaps = on", "the scheduler preempts by swapping"},
    {"picks = on", "tokens are drawn"},
    {"steps = on", "decoder, cache policy or scheduler go by it"},
    {"played = off", "decisions are not played back"},
    {"host_terms = on", "the runtime takes time on the host"},
    {"launches = on", "the runtime says how many kernels it launches"},
    {"workload.prompts = on", "requests are texts"},
    {"workload.answers = said", "the workload says where answers end"},
    {"workload.arrivals = trace", "arrivals are those of a trace"},
    {"workload.lengths_drawn = on", "lengths are drawn"},
};

const char *condition_words(const char *condition, char text[CONDITION_WORDS_CHARS]) {
    const char *rest = condition;
    size_t used = 0;
    text[0] = '\0';
    for (bool is_last = !condition_is_valid(condition); used < CONDITION_WORDS_CHARS;) {
        char one[2 * FACT_CHARS + 24], joint[4] = "";
        struct term term;
        if (is_last || !take_term(&rest, &term)) {
            break;
        }
        const char *asked = name_behind(term.name, "asked.");
        snprintf(one, sizeof one, "%s %s %s%s", asked != NULL ? asked : term.name, term.op,
                 term.words, asked != NULL ? " is asked for" : "");
        const char *words = one;
        for (size_t i = 0; i < sizeof fact_words / sizeof fact_words[0]; i++) {
            words = strcmp(fact_words[i].term, one) == 0 ? fact_words[i].words : words;
        }
        is_last = !take_word(&rest, joint, sizeof joint);
        used += (size_t)snprintf(text + used, CONDITION_WORDS_CHARS - used, "%s%s%s%s", words,
                                 is_last ? "" : " ", joint, is_last ? "" : " ");
    }
    return used > 0 ? text : condition;
}

bool condition_next_name(const char **rest, char name[FACT_CHARS]) {
    struct term term;
    char word[4];
    if (!take_term(rest, &term)) {
        return false;
    }
    (void)take_word(rest, word, sizeof word); /* and, or; nothing after the last */
    snprintf(name, FACT_CHARS, "%s", term.name);
    return true;
}
