/* docs/reference/fields.md, of the tables of columns. */
#include "analysis/field.h"
#include "experiments/package/manual.h"

static const char head[] =
    "# Fields\n\n"
    "Made by `make reference` from the program's own tables. These are the fields of `run --json`, "
    "of databases, plots and pages: what they mean, and in which unit. `unmask list fields` prints "
    "those that have a label, on the axes of plots and on pages.\n\n"
    "A *distribution* has `mean`, `p50`, `p90`, `p95`, `p99`, `std`, `min` and `max` over "
    "completed requests. A name with a dot is a member of an object. What is not known is `null`, "
    "and what does not apply is left out.\n";

static void put_run_row(const struct column *c, FILE *out) {
    fprintf(out, "| `%s` | %s | %s%s | %s |\n", c->name, c->label != NULL ? c->label : "", c->unit,
            c->kind == COLUMN_DISTRIBUTION ? ", distribution" : "", c->doc);
}

static void put_request_row(const struct column *c, FILE *out) {
    char since[32] = "no", title[FIELD_CHARS] = "";
    if (c->since > 0) {
        snprintf(since, sizeof since, "schema %d", c->since);
    }
    fprintf(out, "| `%s` | %s | %s | %s | %s |\n", c->name, since,
            c->label != NULL ? field_title(c->name, title) : "", c->unit, c->doc);
}

/* The run's fields that a group has too. */
static void put_of_groups(FILE *out) {
    const char *separator = "\nOf the run's fields it has ";
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        for (const struct column *c = g->columns; c->name != NULL; c++) {
            if (c->of_groups) {
                fprintf(out, "%s`%s`", separator, c->name);
                separator = ", ";
            }
        }
    }
    fputs("; rates are over the run's makespan.\n", out);
}

void manual_fields(FILE *out) {
    fputs(head, out);
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        bool is_request = g->owner == OF_REQUEST, has_notes = false;
        fprintf(out, "\n## %s\n\n%s\n\n", g->title, g->what);
        fputs(is_request
                  ? "| field | kept since | label | unit | meaning |\n|---|---|---|---|---|\n"
                  : "| field | label | unit | meaning |\n|---|---|---|---|\n",
              out);
        for (const struct column *c = g->columns; c->name != NULL; c++) {
            (is_request ? put_request_row : put_run_row)(c, out);
        }
        if (g->owner == OF_GROUP) {
            put_of_groups(out);
        }
        for (const struct column *c = g->columns; c->name != NULL; c++) {
            if (c->more != NULL) {
                fprintf(out, "%s- `%s`: %s\n", has_notes ? "" : "\n", c->name, c->more);
                has_notes = true;
            }
        }
    }
}
