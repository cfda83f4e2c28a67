/* unmask plan: where the tensors of one step lie, and how the device's memory is divided; or where
 * the buffers of a file lie. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/asked.h"
#include "experiments/cli/cmd.h"
#include "experiments/cli/plan_picture.h"
#include "experiments/cli/plan_usage.h"
#include "experiments/cli/table.h"
#include "experiments/run/step.h"
#include "sim/base/monotonic.h"
#include "sim/base/num.h"
#include "sim/memory/instance.h"
#include "sim/system/system_step.h"

static const struct option planner_options[] = {
    {"nodes", "N", "search no more nodes than this for the optimum (planners exact and ilp)",
     false},
    {"solver", "CMD", "what solves the program of planner ilp: CMD MODEL SOLUTION (default: cbc)",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option instance_options[] = {
    {"instance", "FILE", "plan the buffers of a CSV file (id,lower,upper,size) instead of a step",
     false},
    {"capacity", "BYTES", "with --instance: a plan that ends here is low enough", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_plan[] = {
    system_option,    device_options,  policy_options, step_options, planner_options,
    instance_options, picture_options, json_options,   NULL,
};

/* ---- one planner or all ---- */

enum { MOST_PLANNERS = 16 };

/* Which planners are asked for, and with what. */
struct asked_plan {
    const struct planner *planners[MOST_PLANNERS];
    size_t n_planners;
    bool compares; /* --planner all */
    struct plan_request request;
};

/* What is reported of a plan, of a step or of a file. */
struct outcome {
    const char *planner;
    int64_t peak_bytes, lower_bound_bytes, proven_bound_bytes;
    uint64_t n_nodes;
    bool stopped;
    double seconds;
};

/* Planners that are no system's: --planner all and --planner ilp. */
static bool is_own_planner(const char *name) {
    return name != NULL && (strcmp(name, "all") == 0 || strcmp(name, planner_ilp.name) == 0);
}

static int read_planners(const char *name, struct asked_plan *out, struct err *err) {
    if (strcmp(name, "all") == 0) {
        ASSERT(planner_table_size < MOST_PLANNERS);
        out->compares = true;
        for (size_t i = 0; i < planner_table_size; i++) {
            out->planners[out->n_planners++] = &planner_table[i];
        }
        if (out->request.solver != NULL) {
            out->planners[out->n_planners++] = &planner_ilp;
        }
        return 0;
    }
    out->planners[0] = strcmp(name, planner_ilp.name) == 0 ? &planner_ilp : planner_find(name, err);
    out->n_planners = 1;
    return out->planners[0] == NULL ? err_status(err) : 0;
}

static int read_plan(const struct options *options, const char *planner, struct asked_plan *out,
                     struct err *err) {
    *out = (struct asked_plan){.request.solver = options_text(options, "solver")};
    int status = options_whole(options, "nodes", 1, INT64_MAX, &out->request.max_nodes, err);
    return status == 0 ? read_planners(planner, out, err) : status;
}

static double gap_percent(const struct outcome *o) {
    return o->lower_bound_bytes == 0
               ? 0
               : 100 * ((double)o->peak_bytes / (double)o->lower_bound_bytes - 1);
}

/* What any of the planners has proven holds for all. */
static int64_t best_bound(const struct outcome *outcomes, size_t n) {
    int64_t bound = 0;
    for (size_t i = 0; i < n; i++) {
        bound = outcomes[i].proven_bound_bytes > bound ? outcomes[i].proven_bound_bytes : bound;
    }
    return bound;
}

static const char *result_of(const struct outcome *o, int64_t bound, int64_t capacity_bytes) {
    if (o->peak_bytes == bound) {
        return "optimal";
    }
    if (o->peak_bytes <= capacity_bytes) {
        return "fits";
    }
    return o->stopped ? "out of nodes" : NULL;
}

static struct table *comparison(const struct outcome *outcomes, size_t n, int64_t capacity_bytes) {
    static const char *const columns[] = {"planner", "peak_bytes", "peak",
                                          "gap_%",   "nodes",      "result"};
    struct table *table = table_open(columns, sizeof columns / sizeof columns[0]);
    int64_t bound = best_bound(outcomes, n);
    for (size_t i = 0; i < n; i++) {
        const struct outcome *o = &outcomes[i];
        char text[32];
        table_text(table, o->planner);
        table_whole(table, o->peak_bytes);
        table_shown(table, (double)o->peak_bytes,
                    num_format_bytes(text, sizeof text, (double)o->peak_bytes));
        table_number(table, gap_percent(o), "%.2f");
        table_whole(table, (int64_t)o->n_nodes);
        table_text(table, result_of(o, bound, capacity_bytes));
    }
    return table;
}

static void print_times(const struct outcome *outcomes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char text[32];
        fprintf(stderr, "planner %s: %s\n", outcomes[i].planner,
                num_format_ns(text, sizeof text, outcomes[i].seconds * 1e9));
    }
}

/* ---- a step ---- */

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
        placement_lifetime(graph, placement, (int)t, &first, &last);
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
    if (system->decoder_bytes > 0) {
        snprintf(note, sizeof note, "of it, credit of %" PRIu32 " requests under decoder %s",
                 system->settings.max_requests, system->decoder->policy.name);
        print_part("  decoder", system->decoder_bytes, note);
    }
    if (system->expected_bytes > 0) {
        snprintf(note, sizeof note, "of it, expected embeddings of %" PRIu32 " requests",
                 system->settings.max_requests);
        print_part("  iteration", system->expected_bytes, note);
    }
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

static void print_people(const struct system *system, const struct asked_step *step,
                         const struct placement *placement, const struct usage *usage,
                         const struct outcome *outcome, const struct table *table) {
    char peak[32], bound[32];
    printf("%s, %s on %s: %s\n\n", system->name, system->model->name, system->gpu->name,
           step->text);
    table_print(table, stdout);
    printf("\npeak %s, lower bound %s, gap %.2f %%",
           num_format_bytes(peak, sizeof peak, (double)placement->peak_bytes),
           num_format_bytes(bound, sizeof bound, (double)placement->lower_bound_bytes),
           gap_percent(outcome));
    if (strcmp(outcome->planner, system->planner->name) != 0) {
        printf(", planner %s", outcome->planner);
    }
    if (gap_percent(outcome) > 0 && placement->peak_bytes == placement->proven_bound_bytes) {
        printf(", optimal");
    }
    for (uint32_t i = 0; i < system->graph.n_loops; i++) {
        enum chunk_kind kind = system->graph.loops[i].kind;
        if (placement->n_chunks[i] > 1) {
            printf("; %s in %" PRIu32 " chunks of %" PRId64 " rows", chunk_kind_names[kind],
                   placement->n_chunks[i], placement->chunks.of[kind]);
        }
    }
    printf("\n");
    plan_usage_print_ratio(usage);
    printf("\n");
    plan_usage_print_peak(&system->graph, placement, usage);
    printf("\n");
    print_budget(system);
}

static json_t *budget_json(const struct system *system) {
    const struct budget *b = &system->budget;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "total_bytes",
        (json_int_t)b->total_bytes, "usable_bytes", (json_int_t)b->usable_bytes, "weights_bytes",
        (json_int_t)b->weights_bytes, "reserve_bytes", (json_int_t)b->reserve_bytes,
        "decoder_bytes", (json_int_t)system->decoder_bytes, "expected_bytes",
        (json_int_t)system->expected_bytes, "activation_bytes", (json_int_t)b->activation_bytes,
        "logits_bytes", (json_int_t)b->logits_bytes, "pool_bytes", (json_int_t)b->pool_bytes,
        "unit_bytes", (json_int_t)b->unit_bytes, "max_requests", (json_int_t)b->max_requests,
        "shares_pool", b->shares_pool);
}

/* The system's own, whichever planners are asked for. A search that finds no plan says so; without
 * one, steps are shown whether they fit or not. */
static int find_chunks(const struct system *system, const struct asked_step *step,
                       struct chunk_rows *out, struct err *err) {
    struct placement placement;
    struct err misfit = {0};
    int status = system_place(system, &step->shape, step->workspace_bytes, &placement, &misfit);
    *out = placement.chunks;
    if (status != 0 && system->chunks.search != CHUNK_SEARCH_NONE) {
        *err = misfit;
        return status;
    }
    return 0;
}

static int plan_step(const struct planner *planner, const struct asked_plan *asked,
                     const struct system *system, const struct asked_step *step,
                     struct chunk_rows chunks, struct placement *placement, struct outcome *out,
                     struct err *err) {
    struct plan_request request = asked->request;
    if (request.max_nodes == 0 && planner != &planner_ilp) {
        request.max_nodes = PLACEMENT_MAX_NODES; /* what the system itself would spend */
    }
    int64_t start_ns = monotonic_ns();
    int status =
        placement_try(planner, &request, &system->graph, &step->shape, chunks, placement, err);
    double seconds = 1e-9 * (double)(monotonic_ns() - start_ns);
    if (status != 0) {
        return status;
    }
    *out = (struct outcome){planner->name,
                            placement->peak_bytes,
                            placement->lower_bound_bytes,
                            placement->proven_bound_bytes,
                            placement->n_nodes,
                            placement->stopped,
                            seconds};
    return placement_verify(&system->graph, placement, err);
}

static int compare_on_step(const struct options *options, const struct asked_plan *asked,
                           const struct system *system, const struct asked_step *step,
                           struct err *err) {
    struct outcome outcomes[MOST_PLANNERS];
    struct placement placement = {0};
    struct chunk_rows chunks;
    int status = find_chunks(system, step, &chunks, err);
    ASSERT(asked->n_planners > 0);
    for (size_t i = 0; status == 0 && i < asked->n_planners; i++) {
        status = plan_step(asked->planners[i], asked, system, step, chunks, &placement,
                           &outcomes[i], err);
    }
    if (status != 0) {
        return status;
    }
    print_times(outcomes, asked->n_planners);
    struct usage usage; /* the same under every planner */
    usage_measure(&system->graph, &step->shape, &placement, &usage);
    struct table *table = comparison(outcomes, asked->n_planners, 0);
    if (options_has(options, "json")) {
        status = cmd_print_json(
            json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "system",
                      system->name, "model", system->model->name, "gpu", system->gpu->name, "step",
                      step->text, "live", plan_usage_ratio_json(&usage), "lower_bound_bytes",
                      (json_int_t)outcomes[0].lower_bound_bytes, "proven_bound_bytes",
                      (json_int_t)best_bound(outcomes, asked->n_planners), "attention_chunk_rows",
                      (json_int_t)chunks.of[CHUNK_ATTENTION], "ffn_chunk_rows",
                      (json_int_t)chunks.of[CHUNK_FFN], "logit_chunk_rows",
                      (json_int_t)chunks.of[CHUNK_LOGITS], "plans", table_json(table)),
            err);
    } else {
        char bound[32];
        printf("%s, %s on %s: %s\n\n", system->name, system->model->name, system->gpu->name,
               step->text);
        table_print(table, stdout);
        printf("\nlower bound %s\n",
               num_format_bytes(bound, sizeof bound, (double)outcomes[0].lower_bound_bytes));
        plan_usage_print_ratio(&usage);
    }
    table_close(table);
    return status;
}

static int show_step(const struct options *options, const struct asked_plan *asked,
                     const struct system *system, const struct asked_step *step, struct err *err) {
    struct placement placement;
    struct usage usage;
    struct outcome outcome;
    struct chunk_rows chunks;
    int status = find_chunks(system, step, &chunks, err);
    if (status == 0) {
        status =
            plan_step(asked->planners[0], asked, system, step, chunks, &placement, &outcome, err);
    }
    if (status != 0) {
        return status;
    }
    usage_measure(&system->graph, &step->shape, &placement, &usage);
    struct table *table = tensors(system, &placement);
    if (options_has(options, "json")) {
        status = cmd_print_json(
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o}",
                      "system", system->name, "model", system->model->name, "gpu",
                      system->gpu->name, "planner", outcome.planner, "step", step->text,
                      "peak_bytes", (json_int_t)placement.peak_bytes, "lower_bound_bytes",
                      (json_int_t)placement.lower_bound_bytes, "optimal",
                      placement.peak_bytes == placement.proven_bound_bytes, "attention_chunk_rows",
                      (json_int_t)placement.chunks.of[CHUNK_ATTENTION], "ffn_chunk_rows",
                      (json_int_t)placement.chunks.of[CHUNK_FFN], "logit_chunk_rows",
                      (json_int_t)placement.chunks.of[CHUNK_LOGITS], "live",
                      plan_usage_ratio_json(&usage), "at_peak",
                      plan_usage_peak_json(&system->graph, &placement, &usage), "budget",
                      budget_json(system), "tensors", table_json(table)),
            err);
    } else {
        print_people(system, step, &placement, &usage, &outcome, table);
    }
    table_close(table);
    return status != 0 ? status
                       : plan_picture_of_step(options, system, step, outcome.planner, &placement,
                                              &usage, err);
}

static int run_step(const struct options *options, struct err *err) {
    const char *name = options_text(options, "planner");
    struct options of_system = *options;
    if (is_own_planner(name)) {
        size_t kept = 0;
        for (size_t i = 0; i < options->n_given; i++) {
            if (strcmp(options->given[i].option->name, "planner") != 0) {
                of_system.given[kept++] = options->given[i];
            }
        }
        of_system.n_given = kept;
    }
    struct asked asked;
    struct asked_plan asked_plan;
    struct system *system = NULL;
    struct asked_step step = {0};
    int status = asked_read_system(&of_system, &asked, &system, err);
    if (status == 0) {
        name = is_own_planner(name) ? name : system->planner->name;
        status = read_plan(options, name, &asked_plan, err);
    }
    if (status == 0) {
        status = plan_picture_check(options, asked_plan.compares, err);
    }
    if (status == 0) {
        status = step_make(options, system, &step, err);
    }
    if (status == 0) {
        status = asked_plan.compares ? compare_on_step(options, &asked_plan, system, &step, err)
                                     : show_step(options, &asked_plan, system, &step, err);
    }
    step_fini(&step);
    system_close(system);
    return status;
}

/* ---- a file of buffers ---- */

struct instance_plan {
    const char *path;
    struct instance instance;
    struct outcome outcomes[MOST_PLANNERS];
    struct plan plan; /* the last one */
};

/* A step's options say nothing of a file: refuse them. */
static int check_instance_options(const struct options *options, struct err *err) {
    static const char *const fine[] = {"instance", "capacity", "planner", "nodes",
                                       "solver",   "picture",  "json"};
    for (size_t i = 0; i < options->n_given; i++) {
        const char *name = options->given[i].option->name;
        bool is_fine = false;
        for (size_t k = 0; k < sizeof fine / sizeof fine[0]; k++) {
            is_fine |= strcmp(name, fine[k]) == 0;
        }
        if (!is_fine) {
            return err_usage(err, "--%s is about a step; --instance plans the buffers of a file",
                             name);
        }
    }
    return 0;
}

static int read_capacity(const struct options *options, int64_t *out, struct err *err) {
    const char *text = options_text(options, "capacity");
    double bytes;
    if (text == NULL) {
        return 0;
    }
    if (!num_with_unit(text, "bytes", &bytes) || bytes < 1 || bytes > (double)PACKING_MAX_BYTES) {
        return err_usage(err, "--capacity %s: expected bytes, such as 1048576 or 24GiB", text);
    }
    *out = (int64_t)bytes;
    return 0;
}

static int plan_instance(const struct asked_plan *asked, struct instance_plan *p, struct err *err) {
    struct plan_request request = asked->request;
    request.packing = &p->instance.packing;
    for (size_t i = 0; i < asked->n_planners; i++) {
        struct plan *plan = &p->plan;
        int64_t start_ns = monotonic_ns();
        int status = planner_solve(asked->planners[i], &request, NULL, plan, err);
        double seconds = 1e-9 * (double)(monotonic_ns() - start_ns);
        status = status == 0 ? plan_verify(request.packing, plan, err) : status;
        if (status != 0) {
            return status;
        }
        p->outcomes[i] = (struct outcome){asked->planners[i]->name,
                                          plan->peak_bytes,
                                          plan->lower_bound_bytes,
                                          plan->proven_bound_bytes,
                                          plan->n_nodes,
                                          plan->stopped,
                                          seconds};
    }
    return 0;
}

static struct table *buffers(const struct instance_plan *p) {
    static const char *const columns[] = {"buffer", "offset", "bytes", "lower", "upper"};
    struct table *table = table_open(columns, sizeof columns / sizeof columns[0]);
    for (uint32_t i = 0; i < p->instance.packing.n_buffers; i++) {
        const struct packing_buffer *b = &p->instance.packing.buffers[i];
        table_text(table, p->instance.ids[i]);
        table_whole(table, p->plan.offset_bytes[i]);
        table_whole(table, b->bytes);
        table_whole(table, b->first_time);
        table_whole(table, b->last_time + 1);
    }
    return table;
}

static int print_instance_json(const struct asked_plan *asked, const struct instance_plan *p,
                               const struct table *table, struct err *err) {
    const struct outcome *o = &p->outcomes[0];
    int64_t bound = best_bound(p->outcomes, asked->n_planners);
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:o}", "instance", p->path, "buffers_total",
                  (json_int_t)p->instance.packing.n_buffers, "lower_bound_bytes",
                  (json_int_t)o->lower_bound_bytes, "proven_bound_bytes", (json_int_t)bound,
                  asked->compares ? "plans" : "buffers", table_json(table));
    if (object != NULL && !asked->compares) {
        json_object_set_new(object, "planner", json_string(o->planner));
        json_object_set_new(object, "peak_bytes", json_integer((json_int_t)o->peak_bytes));
        json_object_set_new(object, "optimal", json_boolean(o->peak_bytes == bound));
        json_object_set_new(object, "nodes", json_integer((json_int_t)o->n_nodes));
    }
    if (object != NULL && asked->request.capacity_bytes > 0) {
        json_object_set_new(object, "capacity_bytes",
                            json_integer((json_int_t)asked->request.capacity_bytes));
    }
    return cmd_print_json(object, err);
}

static void print_instance_people(const struct asked_plan *asked, const struct instance_plan *p,
                                  const struct table *table) {
    const struct outcome *o = &p->outcomes[0];
    printf("%s: %" PRIu32 " buffers\n\n", p->path, p->instance.packing.n_buffers);
    table_print(table, stdout);
    if (asked->compares) {
        printf("\nlower bound %" PRId64 "\n", o->lower_bound_bytes);
        return;
    }
    printf("\npeak %" PRId64 ", lower bound %" PRId64 ", gap %.2f %%, planner %s", o->peak_bytes,
           o->lower_bound_bytes, gap_percent(o), o->planner);
    const char *result = result_of(o, o->proven_bound_bytes, asked->request.capacity_bytes);
    printf("%s%s\n", result == NULL ? "" : ", ", result == NULL ? "" : result);
}

/* Whether some plan is low enough; ERR_WORLD with the lowest otherwise. */
static int check_capacity(const struct asked_plan *asked, const struct instance_plan *p,
                          struct err *err) {
    int64_t capacity = asked->request.capacity_bytes, lowest = INT64_MAX;
    for (size_t i = 0; i < asked->n_planners; i++) {
        lowest = p->outcomes[i].peak_bytes < lowest ? p->outcomes[i].peak_bytes : lowest;
    }
    if (capacity == 0 || lowest <= capacity) {
        return 0;
    }
    return err_world(
        err, "%s: no plan within %" PRId64 " bytes %s; the lowest found ends at %" PRId64, p->path,
        capacity, best_bound(p->outcomes, asked->n_planners) > capacity ? "exists" : "was found",
        lowest);
}

static int show_instance(const struct options *options, const struct asked_plan *asked,
                         struct instance_plan *p, struct err *err) {
    int status = plan_instance(asked, p, err);
    if (status != 0) {
        return status;
    }
    struct table *table =
        asked->compares ? comparison(p->outcomes, asked->n_planners, asked->request.capacity_bytes)
                        : buffers(p);
    print_times(p->outcomes, asked->n_planners);
    if (options_has(options, "json")) {
        status = print_instance_json(asked, p, table, err);
    } else {
        print_instance_people(asked, p, table);
    }
    table_close(table);
    if (status == 0) {
        status = plan_picture_of_instance(options, p->path, p->outcomes[0].planner, &p->instance,
                                          &p->plan, asked->request.capacity_bytes, err);
    }
    return status == 0 ? check_capacity(asked, p, err) : status;
}

static int run_instance(const struct options *options, struct err *err) {
    const char *name = options_text(options, "planner");
    struct asked_plan asked;
    struct instance_plan p = {.path = options_text(options, "instance")};
    int status = check_instance_options(options, err);
    status = status == 0 ? read_plan(options, name == NULL ? "exact" : name, &asked, err) : status;
    status = status == 0 ? plan_picture_check(options, asked.compares, err) : status;
    status = status == 0 ? read_capacity(options, &asked.request.capacity_bytes, err) : status;
    status = status == 0 ? instance_read(p.path, &p.instance, err) : status;
    if (status != 0) {
        return status;
    }
    p.plan.offset_bytes = calloc(p.instance.packing.n_buffers, sizeof *p.plan.offset_bytes);
    status = p.plan.offset_bytes == NULL ? err_world(err, "out of memory")
                                         : show_instance(options, &asked, &p, err);
    free(p.plan.offset_bytes);
    instance_fini(&p.instance);
    return status;
}

static int run(const struct options *options, struct err *err) {
    if (options_has(options, "instance")) {
        return run_instance(options, err);
    }
    if (options_has(options, "capacity")) {
        return err_usage(err, "--capacity is about a file: give --instance too");
    }
    return run_step(options, err);
}

const struct command command_plan = {
    .name = "plan",
    .words = "",
    .doc = "where the tensors of one step lie, and how the device's memory is divided",
    .more =
        "--planner all compares the planners on the step or the file; planner ilp joins them\n"
        "when --solver names one. --planner ilp writes the integer program for cbc or for CMD,\n"
        "which reads MODEL (LP format) and writes SOLUTION: a line that starts with 'optimal'\n"
        "once that is proven, then lines 'variable value'. A file is planned by exact unless\n"
        "--planner says otherwise. The peak-to-average ratio is that of the live bytes of all\n"
        "tensors over the operators executed: a layer's count as often as there are such layers,\n"
        "those of logits once a chunk. Times are on standard error.",
    .options = options_of_plan,
    .run = run,
};
