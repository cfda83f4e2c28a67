/* Options of commands for the module in Python, which makes signatures and their documentation of
 * them. */
#include <string.h>

#include "experiments/package/manual.h"

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
    return strcmp(option->name, "json") == 0 || strcmp(option->name, "help") == 0;
}

void manual_python(FILE *out) {
    fprintf(out,
            "\"\"\"Made by `make reference` from the program's tables: the options of each command "
            "as (name, what "
            "stands for\nits value or None for a flag, what it means).\"\"\"\n\nOPTIONS = {\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "    ");
        text(commands[i]->name, out);
        fprintf(out, ": (\n");
        for (size_t g = 0; commands[i]->options[g] != NULL; g++) {
            for (const struct option *o = commands[i]->options[g]; o->name != NULL; o++) {
                if (is_the_modules(o)) {
                    continue;
                }
                fprintf(out, "        (");
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
        }
        fprintf(out, "    ),\n");
    }
    fprintf(out, "}\n");
}
