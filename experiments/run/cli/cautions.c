#include "experiments/run/cli/cautions.h"

#include <stdbool.h>
#include <string.h>

static bool is_verbose; /* once, before anything is printed */

void cautions_verbose(void) {
    is_verbose = true;
}

/* The line with this name after it, where there is one. */
static void add_line(struct cautions *c, const char *line, const char *name) {
    c->lines = c->lines != NULL ? c->lines : json_object();
    if (json_object_get(c->lines, line) == NULL) {
        json_object_set_new(c->lines, line, json_array());
    }
    if (name != NULL) {
        json_array_append_new(json_object_get(c->lines, line), json_string(name));
    }
}

static void add_sentence(struct cautions *c, const struct warning *warning, const char *name) {
    char line[WARNING_CHARS + 64];
    snprintf(line, sizeof line, "%s: %s", warning_words[warning->code], warning->text);
    add_line(c, line, name);
}

void cautions_add(struct cautions *c, const char *name, const struct warnings *warnings) {
    c->n++;
    for (unsigned i = 0; i < warnings->n; i++) {
        const struct warning *warning = &warnings->items[i];
        add_sentence(c, warning, name);
        c->n_of[warning->code] += i == 0 || warnings->items[i - 1].code != warning->code;
    }
}

void cautions_count(struct cautions *c, enum warning_code code, size_t n_of) {
    char line[96];
    if (n_of > 0) {
        snprintf(line, sizeof line, "%s: %zu of %zu runs", warning_words[code], n_of, c->n);
        add_line(c, line, NULL);
        c->n_of[code] = n_of;
    }
}

void cautions_of_all(struct cautions *c, const struct warnings *warnings) {
    for (unsigned i = 0; i < warnings->n; i++) {
        add_sentence(c, &warnings->items[i], NULL);
        c->n_of[warnings->items[i].code] = c->n;
    }
}

/* As many names as a line can have. */
enum { MOST_NAMES = 6 };

static void print_names(const json_t *names, FILE *out) {
    size_t n = json_array_size(names), n_shown = n > MOST_NAMES ? MOST_NAMES - 1 : n;
    for (size_t i = 0; i < n_shown; i++) {
        fprintf(out, "%s%s", i == 0 ? " (" : "; ", json_string_value(json_array_get(names, i)));
    }
    if (n_shown < n) {
        fprintf(out, " and %zu others", n - n_shown);
    }
    fputc(')', out);
}

static void print_lines(const struct cautions *c, FILE *out) {
    const char *line;
    json_t *names;
    json_object_foreach(c->lines, line, names) {
        fprintf(out, "%-13s%s", "caution", line);
        if (json_array_size(names) > 0 && json_array_size(names) < c->n) {
            print_names(names, out);
        }
        fputc('\n', out);
    }
    if (c->n_none > 0) {
        fprintf(out, "%-13sno result: %zu of %zu runs do not fit their GPU\n", "caution", c->n_none,
                c->n);
    }
}

/* "host assumed (2 of 3)": the code in words. */
static void print_word(const char *code, size_t n_of, size_t n, bool is_first, FILE *out) {
    fputs(is_first ? "" : ", ", out);
    for (; *code != '\0'; code++) {
        fputc(*code == '-' ? ' ' : *code, out);
    }
    if (n_of < n) {
        fprintf(out, " (%zu of %zu)", n_of, n);
    }
}

static void print_counts(const struct cautions *c, FILE *out) {
    size_t n_words = c->n_none > 0, n_printed = 0;
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        n_words += c->n_of[code] > 0;
    }
    if (n_words == 0) {
        return;
    }
    fprintf(out, "%zu caution%s: ", n_words, n_words > 1 ? "s" : "");
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        if (c->n_of[code] > 0) {
            print_word(warning_words[code], c->n_of[code], c->n, n_printed++ == 0, out);
        }
    }
    if (c->n_none > 0) {
        print_word("no-result", c->n_none, c->n, n_printed == 0, out);
    }
    fputs("; --verbose explains\n", out);
}

void cautions_print(struct cautions *c, FILE *out) {
    if (is_verbose) {
        print_lines(c, out);
    } else {
        print_counts(c, out);
    }
    json_decref(c->lines);
    *c = (struct cautions){0};
}

void caution_print(const struct warnings *warnings, FILE *out) {
    struct cautions cautions = {0};
    cautions_add(&cautions, NULL, warnings);
    cautions_print(&cautions, out);
}
