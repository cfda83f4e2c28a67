#include "experiments/command/explain_why.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/table.h"
#include "sim/base/names.h"
#include "sim/cost/why.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_step.h"

enum { TITLE_CHARS = 96 };

static const char *title_of(const struct graph *graph, const struct op *op,
                            char title[TITLE_CHARS]) {
    snprintf(title, TITLE_CHARS, "%s/%s", graph->segments[op->segment].name, op->name);
    return title;
}

static bool is_called(const struct graph *graph, const struct op *op, const char *asked) {
    char title[TITLE_CHARS];
    return strcmp(asked, "all") == 0 || strcmp(asked, op->name) == 0 ||
           strcmp(asked, op_kind_names[op->kind]) == 0 ||
           strcmp(asked, title_of(graph, op, title)) == 0;
}

int why_check(const struct system *system, const char *asked, struct err *err) {
    const struct graph *graph = &system->graph;
    const char *names[GRAPH_MAX_OPS + 1] = {NULL};
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        names[i] = graph->ops[i].name;
        if (is_called(graph, &graph->ops[i], asked)) {
            return 0;
        }
    }
    char hint[NAME_HINT_CHARS];
    return err_usage(err, "--why: '%.60s' is no operator of %s with %s%s", asked, system->name,
                     system->model->name, name_hint(asked, names, hint));
}

/* ---- who said a setting ---- */

static struct provenance of_calibrated(const struct system *s, const char *constant) {
    for (uint32_t i = 0; i < s->n_calibrated; i++) {
        if (strcmp(s->calibrated[i].name, constant) == 0) {
            return provenance_of(PROVENANCE_CALIBRATED, s->calibrated[i].fitted_to);
        }
    }
    return provenance_of(PROVENANCE_CALIBRATED, constant);
}

/* A shipped line that is neither assumed nor calibrated has its runtime's provenance. */
static struct provenance of_applied(const struct system *s, const struct setting *setting) {
    char text[PROVENANCE_SOURCE_CHARS];
    snprintf(text, sizeof text, "%.64s = %.64s, %.120s", setting->key, setting->value,
             setting->place);
    for (uint32_t i = 0; i < s->n_assumed; i++) {
        if (strcmp(s->assumed[i].key, setting->key) == 0) {
            return provenance_of(PROVENANCE_ASSUMED, s->assumed[i].why);
        }
    }
    return setting->constant[0] != '\0'       ? of_calibrated(s, setting->constant)
           : setting->said == SAID_BY_SHIPPED ? provenance_of(s->preset->host_kind, text)
                                              : provenance_of(PROVENANCE_ASSUMED, text);
}

static struct provenance of_setting(const struct system *s, const char *key) {
    const struct setting *said = setting_find(s->applied, s->n_applied, key);
    if (said != NULL) {
        return of_applied(s, said);
    }
    if (strcmp(key, "evict_wait_ns") == 0) {
        return s->runtime.issued_ns[HOST_REUSE] > 0
                   ? provenance_of(profile_kind(s->profile), "the profile's host rows, issued_ns")
                   : of_calibrated(s, "evict_ns");
    }
    if (name_behind(key, "runtime.host_") != NULL) {
        return system_host(s).provenance;
    }
    char text[PROVENANCE_SOURCE_CHARS];
    snprintf(text, sizeof text, "runtime %.40s: %.200s", s->runtime_name, s->preset->source);
    return provenance_of(s->preset->host_kind, text);
}

/* ---- out ---- */

static struct table *rungs_table(const struct system *system, const struct why *why) {
    struct table *table = table_open("step|before_ns|after_ns|factor|from|source|what");
    for (uint32_t i = 0; i < why->n; i++) {
        const struct why_rung *rung = &why->rungs[i];
        const struct provenance from =
            rung->setting != NULL ? of_setting(system, rung->setting) : rung->from;
        const bool is_first = rung->before_ns <= 0;
        table_add(table, "s %.1f %.1f %.4f s s s", rung->name, is_first ? NAN : rung->before_ns,
                  rung->after_ns, is_first ? NAN : rung->after_ns / rung->before_ns,
                  provenance_words[from.kind], from.source, rung->says);
    }
    return table;
}

static struct why of_operator(const struct system *system, const struct asked_step *step,
                              uint32_t op) {
    struct why why;
    why_operator(system->cost, op, &step->shape,
                 system_chunks(system, &step->shape, step->workspace_bytes), &why);
    return why;
}

static struct why of_step(const struct system *system, const struct asked_step *step,
                          const struct step_price *price) {
    struct why why;
    why_step(system->cost, &step->shape, system_chunks(system, &step->shape, step->workspace_bytes),
             price, &why);
    return why;
}

static json_t *rungs_json(const struct system *system, const struct why *why) {
    struct table *table = rungs_table(system, why);
    json_t *rungs = table_json(table);
    table_close(table);
    return rungs;
}

json_t *why_json(const struct system *system, const struct asked_step *step,
                 const struct step_price *price, const char *asked) {
    const struct graph *graph = &system->graph;
    json_t *operators = json_array();
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        char title[TITLE_CHARS];
        const struct op *op = &graph->ops[i];
        const struct why why = of_operator(system, step, i);
        if (!is_called(graph, op, asked) || why.n == 0) {
            continue;
        }
        json_array_append_new(
            operators, json_pack("{s:s, s:s, s:f, s:s, s:b, s:o}", "operator",
                                 title_of(graph, op, title), "kind", op_kind_names[op->kind], "ns",
                                 why.ns, "from", provenance_words[why.kind], "raised_by_floor",
                                 why.is_raised, "steps", rungs_json(system, &why)));
    }
    const struct why whole = of_step(system, step, price);
    return json_pack("{s:o, s:f, s:o}", "operators", operators, "step_ns", whole.ns, "step",
                     rungs_json(system, &whole));
}

static void print_rungs(const struct system *system, const struct why *why) {
    struct table *table = rungs_table(system, why);
    table_print(table, stdout);
    table_close(table);
}

void why_print(const struct system *system, const struct asked_step *step,
               const struct step_price *price, const char *asked) {
    const struct graph *graph = &system->graph;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        char title[TITLE_CHARS];
        const struct why why = of_operator(system, step, i);
        if (is_called(graph, &graph->ops[i], asked) && why.n > 0) {
            printf("\nwhy %s takes %.3f ms: %s%s\n", title_of(graph, &graph->ops[i], title),
                   why.ns * 1e-6, provenance_words[why.kind],
                   why.is_raised ? ", raised by the floor" : "");
            print_rungs(system, &why);
        }
    }
    const struct why whole = of_step(system, step, price);
    printf("\nwhy the step takes %.3f ms, from the sum of its operators on\n", whole.ns * 1e-6);
    print_rungs(system, &whole);
}
