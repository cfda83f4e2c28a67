/* Options of commands for the module in Python, which makes signatures and their documentation of
 * them. */
#include <string.h>

#include "experiments/package/manual.h"
#include "sim/base/err.h"

static void text(const char *words, FILE *out) {
    fputc('"', out);
    for (; *words != '\0'; words++) {
        if (strchr("\"\\", *words) != NULL) {
            fputc('\\', out);
        }
        fputc(*words, out);
    }
    fputc('"', out);
}

static bool is_the_modules(const struct option *option) {
    return strcmp(option->name, "json") == 0 || strcmp(option->name, "format") == 0 ||
           strcmp(option->name, "verbose") == 0 || strcmp(option->name, "help") == 0;
}

static void write_group(const struct option *group, FILE *out) {
    fprintf(out, "(\n");
    for (const struct option *o = group; o->name != NULL; o++) {
        if (is_the_modules(o)) {
            continue;
        }
        fprintf(out, "    (");
        text(o->name, out);
        fprintf(out, ", ");
        if (o->value != NULL) {
            text(o->value, out);
        } else {
            fprintf(out, "None");
        }
        fprintf(out, ", ");
        text(o->doc, out);
        fprintf(out, "),\n");
    }
    fprintf(out, ")\n");
}

struct groups {
    const struct option *list[64];
    size_t n;
};

/* Its number, and room for one that is new. */
static size_t number_of(const struct option *group, struct groups *seen) {
    size_t i = 0;
    while (i < seen->n && seen->list[i] != group) {
        i++;
    }
    ASSERT(i < sizeof seen->list / sizeof seen->list[0]);
    seen->list[i] = group;
    return i;
}

/* Groups that commands share are written once. */
void manual_python(FILE *out) {
    struct groups seen = {.n = 0};
    fprintf(out, "\"\"\"Made by `make reference` from the program's tables: the options of each "
                 "command as (name, what stands for\nits value or None for a flag, what it "
                 "means).\"\"\"\n\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            size_t number = number_of(commands[i]->options[g], &seen);
            if (number == seen.n) {
                seen.n++;
                fprintf(out, "_G%zu = ", number);
                write_group(commands[i]->options[g], out);
            }
        }
    }
    fprintf(out, "\nOPTIONS = {\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "    ");
        text(commands[i]->name, out);
        fprintf(out, ": ");
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            fprintf(out, "%s_G%zu", g > 0 ? " + " : "", number_of(commands[i]->options[g], &seen));
        }
        fprintf(out, "%s,\n", commands[i]->options[0] == NULL ? "()" : "");
    }
    fprintf(out, "}\n");
}
