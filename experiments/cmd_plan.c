/* unmask plan: where the tensors of one step lie, and how the device's memory is divided. */
#include <inttypes.h>
#include <string.h>

#include "experiments/asked.h"
#include "experiments/cmd.h"
#include "experiments/step.h"
#include "experiments/table.h"
#include "sim/base/num.h"

static const struct option *const options_of_plan[] = {
    system_option, device_options, policy_options, step_options, json_options, NULL,
};

static void shown_bytes(struct table *table, int64_t bytes) {
    char text[32];
    table_shown(table, (double)bytes, num_format_bytes(text, sizeof text, (double)bytes));
}

static struct table *tensors(const struct system *system, const struct placement *placement) {
    static const char *const columns[] = {"tensor", "offset", "bytes", "size", "from", "to"};
    struct table *table = table_open(columns, sizeof columns / sizeof columns[0]);
    const struct graph *graph = &system->graph;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (placement->offset_bytes[t] < 0 || placement->bytes[t] == 0) {
            continue;
        }
        int first, last;
        placement_lifetime(graph, (int)t, &first, &last);
        table_text(table, graph->tensors[t].name);
        table_whole(table, placement->offset_bytes[t]);
        table_whole(table, placement->bytes[t]);
        shown_bytes(table, placement->bytes[t]);
        table_text(table, graph->ops[first].name);
        table_text(table, graph->ops[last].name);
    }
    return table;
}

static void print_part(const char *name, int64_t bytes, const char *note) {
    char text[32];
    printf("  %-12s %10s%s%s\n", name, num_format_bytes(text, sizeof text, (double)bytes),
           note[0] != '\0' ? "  " : "", note);
}

static void print_budget(const struct system *system) {
    const struct budget *b = &system->budget;
    char note[160], unit[32];
    snprintf(note, sizeof note, "of %s, memory_utilization %.4g",
             num_format_bytes(unit, sizeof unit, (double)b->total_bytes),
             system->settings.memory_utilization);
    printf("budget of %s under planner %s\n", system->gpu->title, system->planner->name);
    print_part("usable", b->usable_bytes, note);
    print_part("weights", b->weights_bytes, "");
    print_part("reserve", b->reserve_bytes, "CUDA context and library workspaces");
    print_part("activation", b->activation_bytes, "workspace of the largest step allowed");
    print_part("  logits", b->logits_bytes, "tensors of it that hold logits");
    snprintf(note, sizeof note, "%s of %s%s", b->unit_rows > 1 ? "in pages" : "in rows",
             num_format_bytes(unit, sizeof unit, (double)b->unit_bytes),
             b->shares_pool ? "; the workspace comes out of it too" : "");
    print_part("pool", b->pool_bytes, b->unit_bytes > 0 ? note : "nothing is cached");
    if (b->max_requests > 0) {
        printf("  %-12s %10" PRIu32 "  requests at once\n", "at most", b->max_requests);
    } else {
        printf("  %-12s %10s  requests at once: as the pool allows\n", "at most", "-");
    }
}

static void print_people(const struct system *system, const struct step *step,
                         const struct placement *placement, const struct table *table) {
    char peak[32], bound[32];
    printf("%s, %s on %s: %s\n\n", system->name, system->model->name, system->gpu->name,
           step->text);
    table_print(table, stdout);
    printf("\npeak %s, lower bound %s, gap %.2f %%",
           num_format_bytes(peak, sizeof peak, (double)placement->peak_bytes),
           num_format_bytes(bound, sizeof bound, (double)placement->lower_bound_bytes),
           100 * ((double)placement->peak_bytes / (double)placement->lower_bound_bytes - 1));
    if (placement->logit_chunk_rows > 0) {
        printf("; logits in chunks of %" PRId64 " rows", placement->logit_chunk_rows);
    }
    printf("\n\n");
    print_budget(system);
}

static json_t *budget_json(const struct budget *b) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "total_bytes",
                     (json_int_t)b->total_bytes, "usable_bytes", (json_int_t)b->usable_bytes,
                     "weights_bytes", (json_int_t)b->weights_bytes, "reserve_bytes",
                     (json_int_t)b->reserve_bytes, "activation_bytes",
                     (json_int_t)b->activation_bytes, "logits_bytes", (json_int_t)b->logits_bytes,
                     "pool_bytes", (json_int_t)b->pool_bytes, "unit_bytes",
                     (json_int_t)b->unit_bytes, "max_requests", (json_int_t)b->max_requests,
                     "shares_pool", b->shares_pool);
}

static int print(const struct options *options, const struct system *system,
                 const struct step *step, struct err *err) {
    struct placement placement;
    placement_make(system->planner, &system->graph, &step->shape, system->settings.logit_chunk_rows,
                   &placement);
    int status = placement_verify(&system->graph, &placement, err);
    if (status != 0) {
        return status;
    }
    struct table *table = tensors(system, &placement);
    if (options_has(options, "json")) {
        status = cmd_print_json(
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o}", "system", system->name,
                      "model", system->model->name, "gpu", system->gpu->name, "planner",
                      system->planner->name, "step", step->text, "peak_bytes",
                      (json_int_t)placement.peak_bytes, "lower_bound_bytes",
                      (json_int_t)placement.lower_bound_bytes, "logit_chunk_rows",
                      (json_int_t)placement.logit_chunk_rows, "budget",
                      budget_json(&system->budget), "tensors", table_json(table)),
            err);
    } else {
        print_people(system, step, &placement, table);
    }
    table_close(table);
    return status;
}

static int run(const struct options *options, struct err *err) {
    return step_show(options, print, err);
}

const struct command command_plan = {
    .name = "plan",
    .words = "",
    .doc = "where the tensors of one step lie, and how the device's memory is divided",
    .options = options_of_plan,
    .run = run,
};
