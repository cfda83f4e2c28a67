#include "experiments/cli/said.h"

#include <string.h>

void said_add(struct said *said, const char *name, char *text) {
    char *rest = NULL;
    said->lines = said->lines != NULL ? said->lines : json_object();
    said->n++;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (json_object_get(said->lines, line) == NULL) {
            json_object_set_new(said->lines, line, json_array());
        }
        json_array_append_new(json_object_get(said->lines, line), json_string(name));
    }
}

void said_print(struct said *said, FILE *out) {
    const char *line;
    json_t *names, *name;
    size_t i;
    json_object_foreach(said->lines, line, names) {
        fputs(line, out);
        json_array_foreach(names, i, name) {
            if (json_array_size(names) < said->n) {
                fprintf(out, "%s%s", i == 0 ? " (" : ", ", json_string_value(name));
            }
        }
        fputs(json_array_size(names) < said->n ? ")\n" : "\n", out);
    }
    json_decref(said->lines);
    *said = (struct said){0};
}
