/* unmask plan: where the tensors of one step lie, and how the device's memory is divided; or where
 * the buffers of a file lie. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "experiments/command/commands.h"
#include "experiments/command/plan_outcome.h"
#include "experiments/command/plan_picture.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/cli/progress.h"
#include "experiments/run/cli/table.h"
#include "experiments/study/released.h"
#include "experiments/study/step.h"
#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/num.h"
#include "sim/memory/instance.h"
#include "sim/memory/usage.h"
#include "sim/system/system_reads.h"
#include "sim/system/system_step.h"

/* `unmask plan --instance FILE`: where the buffers of a file lie. */

struct instance_plan {
    const char *path;
    struct instance instance;
    struct plan_outcome outcomes[PLAN_MOST_PLANNERS];
    struct plan plan;         /* the last one */
    int64_t given_peak_bytes; /* of the file's own solution; 0: it has none */
};

/* A step's options say nothing of a file: refuse them. */
static int check_instance_options(const struct options *options, struct err *err) {
    static const char *const fine[] = {"instance", "capacity", "planner",
                                       "nodes",    "picture",  "json"};
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

struct watching {
    struct progress progress;
    const volatile sig_atomic_t *stop;
};

static bool watch(void *state, uint64_t n_nodes) {
    struct watching *watching = state;
    progress_update(&watching->progress, n_nodes);
    return *watching->stop != 0;
}

static int plan_instance(const struct asked_plan *asked, struct instance_plan *p, struct err *err) {
    struct watching watching = {.stop = interrupt_catch()};
    struct plan_request request = asked->request;
    request.packing = &p->instance.packing;
    request.watch = watch;
    request.watch_state = &watching;
    for (size_t i = 0; i < asked->n_planners; i++) {
        struct plan *plan = &p->plan;
        progress_start(&watching.progress, "nodes", PLAN_DEFAULT_NODES);
        int status = planner_solve(asked->planners[i], &request, NULL, plan, err);
        double seconds = progress_end(&watching.progress);
        status = status == 0 ? plan_verify(request.packing, plan, err) : status;
        if (status != 0) {
            return status;
        }
        p->outcomes[i] = (struct plan_outcome){asked->planners[i]->name,
                                               plan->peak_bytes,
                                               plan->lower_bound_bytes,
                                               plan->proven_bound_bytes,
                                               plan->n_nodes,
                                               plan->stopped,
                                               seconds};
    }
    return 0;
}

/* The solution that stands in the file: whether it is one, and where it ends. */
static int check_given(struct instance_plan *p, struct err *err) {
    const struct packing *packing = &p->instance.packing;
    struct plan given = {.offset_bytes = p->instance.offset_bytes};
    struct err why = {0};
    if (given.offset_bytes == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        int64_t end = given.offset_bytes[i] + packing->buffers[i].bytes;
        given.peak_bytes = end > given.peak_bytes ? end : given.peak_bytes;
    }
    p->given_peak_bytes = given.peak_bytes;
    return plan_verify(packing, &given, &why) == 0
               ? 0
               : err_world(err, "%s: the offsets in the file are no solution: %s", p->path,
                           why.text);
}

static void print_given(const struct options *options, const struct instance_plan *p) {
    int64_t ours = p->outcomes[0].peak_bytes;
    if (p->instance.has_hints || p->instance.has_gaps) {
        fprintf(stderr, "unmask: passed over: %s%s%s\n", p->instance.has_hints ? "hint" : "",
                p->instance.has_hints && p->instance.has_gaps ? ", " : "",
                p->instance.has_gaps ? "gaps (buffers keep their space in them)" : "");
    }
    if (p->given_peak_bytes > 0 && !options_has(options, "json")) {
        printf("the file's own solution is one: peak %" PRId64 ", %s%" PRId64 "%s\n",
               p->given_peak_bytes, p->given_peak_bytes == ours ? "equal to ours (" : "ours ", ours,
               p->given_peak_bytes == ours ? ")" : "");
    }
}

static struct table *buffers(const struct instance_plan *p) {
    struct table *table = table_open("buffer|offset|bytes|lower|upper");
    for (uint32_t i = 0; i < p->instance.packing.n_buffers; i++) {
        const struct packing_buffer *b = &p->instance.packing.buffers[i];
        table_add(table, "s i i i i", p->instance.ids[i], p->plan.offset_bytes[i], b->bytes,
                  b->first_time, b->last_time + 1);
    }
    return table;
}

static int print_instance_json(const struct asked_plan *asked, const struct instance_plan *p,
                               const struct table *table, struct err *err) {
    const struct plan_outcome *o = &p->outcomes[0];
    int64_t bound = plan_best_bound(p->outcomes, asked->n_planners);
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
    if (object != NULL && p->given_peak_bytes > 0) {
        json_object_set_new(object, "given_peak_bytes",
                            json_integer((json_int_t)p->given_peak_bytes));
    }
    if (object != NULL && asked->request.capacity_bytes > 0) {
        json_object_set_new(object, "capacity_bytes",
                            json_integer((json_int_t)asked->request.capacity_bytes));
    }
    return cmd_print_json(object, err);
}

static void print_instance_people(const struct asked_plan *asked, const struct instance_plan *p,
                                  const struct table *table) {
    const struct plan_outcome *o = &p->outcomes[0];
    printf("%s: %" PRIu32 " buffers\n\n", p->path, p->instance.packing.n_buffers);
    table_print(table, stdout);
    if (asked->compares) {
        printf("\nlower bound %" PRId64 "\n", o->lower_bound_bytes);
        return;
    }
    printf("\npeak %" PRId64 ", lower bound %" PRId64 ", gap %.2f %%, planner %s", o->peak_bytes,
           o->lower_bound_bytes, plan_gap_percent(o), o->planner);
    const char *result = plan_result_of(o, o->proven_bound_bytes, asked->request.capacity_bytes);
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
        capacity,
        plan_best_bound(p->outcomes, asked->n_planners) > capacity ? "exists" : "was found",
        lowest);
}

static int draw_instance(const struct options *options, const struct asked_plan *asked,
                         const struct instance_plan *p, struct err *err) {
    const struct packing *packing = &p->instance.packing;
    const char *slash = strrchr(p->path, '/');
    static const char *const kinds[] = {"buffers"};
    struct plan_map map = {.x_label = "time, as the file counts it: from a buffer's lower time up "
                                      "to, not including, its upper",
                           .kinds = kinds,
                           .n_kinds = 1,
                           .blocks = mem_zeroed(packing->n_buffers, sizeof *map.blocks),
                           .n_blocks = packing->n_buffers,
                           .peak_bytes = p->plan.peak_bytes,
                           .lower_bound_bytes = p->plan.lower_bound_bytes,
                           .capacity_bytes = asked->request.capacity_bytes};
    snprintf(map.title, sizeof map.title, "%.160s: %" PRIu32 " buffers, planner %s",
             slash == NULL ? p->path : slash + 1, packing->n_buffers, p->outcomes[0].planner);
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        map.blocks[i] = (struct plan_block){.from = b->first_time,
                                            .to = b->last_time + 1,
                                            .low_bytes = p->plan.offset_bytes[i],
                                            .bytes = b->bytes};
        snprintf(map.blocks[i].name, PLAN_NAME_CHARS, "%s", p->instance.ids[i]);
    }
    int status = plan_picture_draw(options, &map, err);
    free(map.blocks);
    return status;
}

static int show_instance(const struct options *options, const struct asked_plan *asked,
                         struct instance_plan *p, struct err *err) {
    int status = plan_instance(asked, p, err);
    if (status != 0) {
        return status;
    }
    struct table *table = asked->compares ? plan_comparison(p->outcomes, asked->n_planners,
                                                            asked->request.capacity_bytes)
                                          : buffers(p);
    plan_print_times(p->outcomes, asked->n_planners);
    if (options_has(options, "json")) {
        status = print_instance_json(asked, p, table, err);
    } else {
        print_instance_people(asked, p, table);
    }
    table_close(table);
    print_given(options, p);
    if (status == 0) {
        status = draw_instance(options, asked, p, err);
    }
    status = status == 0 ? check_capacity(asked, p, err) : status;
    return status == 0 && *interrupt_catch() != 0
               ? err_world(err, "interrupted: these are the best plans that were found until then")
               : status;
}

/* The exit status, with `err` filled. ERR_USAGE where an option is about a step. */
static int plan_instance_run(const struct options *options, struct err *err) {
    const char *name = options_text(options, "planner");
    struct asked_plan asked;
    struct instance_plan p = {.path = options_text(options, "instance")};
    int status = check_instance_options(options, err);
    status =
        status == 0 ? plan_read_asked(options, name == NULL ? "exact" : name, &asked, err) : status;
    status = status == 0 ? plan_picture_check(options, asked.compares, err) : status;
    status = status == 0 ? read_capacity(options, &asked.request.capacity_bytes, err) : status;
    status = status == 0 ? instance_read(p.path, &p.instance, err) : status;
    if (status != 0) {
        return status;
    }
    status = check_given(&p, err);
    if (status != 0) {
        instance_fini(&p.instance);
        return status;
    }
    p.plan.offset_bytes = mem_zeroed(p.instance.packing.n_buffers, sizeof *p.plan.offset_bytes);
    status = show_instance(options, &asked, &p, err);
    free(p.plan.offset_bytes);
    instance_fini(&p.instance);
    return status;
}

static const struct option planner_options[] = {
    {"nodes", "N",
     "search no more nodes than this for the optimum [--planner = exact|all or --instance != none "
     "and --planner = none]",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option instance_options[] = {
    {"instance", "FILE", "plan the buffers of a CSV file (id,lower,upper,size) instead of a step",
     false},
    {"capacity", "BYTES", "with --instance: any plan of at most this size will do", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_plan[] = {
    system_option,
    device_options,
    policy_options,
    step_options,
    planner_options,
    instance_options,
    picture_options,
    json_options,
    format_option,
    verbose_option,
    NULL,
};

/* ---- live bytes ---- */

/* The peak-to-average ratio of activation memory, which no planner changes. */
static void print_ratio(const struct usage *usage) {
    char most[32], mean[32];
    printf("peak-to-average ratio %.2f: at most %s live, %s in the mean over the %" PRId64
           " operators executed\n",
           usage_peak_to_average(usage),
           num_format_bytes(most, sizeof most, (double)usage->most_bytes),
           num_format_bytes(mean, sizeof mean, usage->mean_bytes), usage->n_executions);
}

static json_t *ratio_json(const struct usage *usage) {
    return json_pack("{s:f, s:I, s:f, s:I}", "peak_to_average", usage_peak_to_average(usage),
                     "most_bytes", (json_int_t)usage->most_bytes, "mean_bytes", usage->mean_bytes,
                     "operators_executed", (json_int_t)usage->n_executions);
}

static void print_share(const char *name, int64_t bytes, int64_t peak_bytes) {
    char text[32];
    if (bytes > 0) {
        printf("  %-12s %10s %6.1f %%\n", name, num_format_bytes(text, sizeof text, (double)bytes),
               100 * (double)bytes / (double)peak_bytes);
    }
}

static double inflation(const struct placement *placement) {
    return placement->lower_bound_bytes > 0
               ? (double)placement->peak_bytes / (double)placement->lower_bound_bytes - 1
               : 0;
}

/* What the peak of a placement is made of, by class of tensor, and its inflation. */
static void print_peak(const struct graph *graph, const struct placement *placement,
                       const struct usage *usage) {
    printf("the peak, at operator %s, by class of tensor; inflation over the lower bound %.2f %%\n",
           graph->ops[usage->peak_op].name, 100 * inflation(placement));
    for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
        print_share(tensor_class_names[c], usage->class_bytes[c], placement->peak_bytes);
    }
    print_share("unused", usage->unused_bytes, placement->peak_bytes);
}

static json_t *peak_json(const struct graph *graph, const struct placement *placement,
                         const struct usage *usage) {
    json_t *object = json_pack("{s:s, s:f}", "operator", graph->ops[usage->peak_op].name,
                               "inflation", inflation(placement));
    for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
        char key[48];
        snprintf(key, sizeof key, "%s_bytes", tensor_class_names[c]);
        json_object_set_new(object, key, json_integer((json_int_t)usage->class_bytes[c]));
    }
    json_object_set_new(object, "unused_bytes", json_integer((json_int_t)usage->unused_bytes));
    return object;
}

/* ---- what was set without effect ---- */

static json_t *warnings_json(const struct system *system) {
    struct warnings warnings = {0};
    system_warn_of_unread_in_step(system, &warnings);
    return caution_json(&warnings);
}

static void print_warnings(const struct system *system) {
    struct warnings warnings = {0};
    const char *name = system->name;
    released_print(&name, 1, stdout);
    system_warn_of_unread_in_step(system, &warnings);
    caution_print(&warnings, stdout);
}

/* ---- the plan ---- */

static struct table *tensors(const struct system *system, const struct placement *placement) {
    struct table *table = table_open("tensor|offset|bytes|size|from|to");
    const struct graph *graph = &system->graph;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (placement->offset_bytes[t] < 0 || placement->bytes[t] == 0) {
            continue;
        }
        int first, last;
        placement_lifetime(graph, placement, (int)t, &first, &last);
        table_add(table, "s i i b s s", graph->tensors[t].name, placement->offset_bytes[t],
                  placement->bytes[t], placement->bytes[t], graph->ops[first].name,
                  graph->ops[last].name);
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
                         const struct plan_outcome *outcome, const struct table *table) {
    char peak[32], bound[32];
    printf("%s, %s on %s: %s\n\n", system->name, system->model->name, system->gpu->name,
           step->text);
    table_print(table, stdout);
    printf("\npeak %s, lower bound %s, gap %.2f %%",
           num_format_bytes(peak, sizeof peak, (double)placement->peak_bytes),
           num_format_bytes(bound, sizeof bound, (double)placement->lower_bound_bytes),
           plan_gap_percent(outcome));
    if (strcmp(outcome->planner, system->planner->name) != 0) {
        printf(", planner %s", outcome->planner);
    }
    if (plan_gap_percent(outcome) > 0 && placement->peak_bytes == placement->proven_bound_bytes) {
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
    print_ratio(usage);
    printf("\n");
    print_peak(&system->graph, placement, usage);
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
                     struct chunk_rows chunks, struct placement *placement,
                     struct plan_outcome *out, struct err *err) {
    struct plan_request request = asked->request;
    if (request.max_nodes == 0) {
        request.max_nodes = PLACEMENT_MAX_NODES; /* what the system itself would spend */
    }
    int64_t start_ns = monotonic_ns();
    int status =
        placement_try(planner, &request, &system->graph, &step->shape, chunks, placement, err);
    double seconds = 1e-9 * (double)(monotonic_ns() - start_ns);
    if (status != 0) {
        return status;
    }
    *out = (struct plan_outcome){planner->name,
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
    struct plan_outcome outcomes[PLAN_MOST_PLANNERS];
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
    plan_print_times(outcomes, asked->n_planners);
    struct usage usage; /* the same under every planner */
    usage_measure(&system->graph, &step->shape, &placement, &usage);
    struct table *table = plan_comparison(outcomes, asked->n_planners, 0);
    if (options_has(options, "json")) {
        status = cmd_print_json(
            json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "system",
                      system->name, "model", system->model->name, "gpu", system->gpu->name, "step",
                      step->text, "live", ratio_json(&usage), "lower_bound_bytes",
                      (json_int_t)outcomes[0].lower_bound_bytes, "proven_bound_bytes",
                      (json_int_t)plan_best_bound(outcomes, asked->n_planners),
                      "attention_chunk_rows", (json_int_t)chunks.of[CHUNK_ATTENTION],
                      "ffn_chunk_rows", (json_int_t)chunks.of[CHUNK_FFN], "logit_chunk_rows",
                      (json_int_t)chunks.of[CHUNK_LOGITS], "plans", table_json(table), "warnings",
                      warnings_json(system)),
            err);
    } else {
        char bound[32];
        printf("%s, %s on %s: %s\n\n", system->name, system->model->name, system->gpu->name,
               step->text);
        table_print(table, stdout);
        printf("\nlower bound %s\n",
               num_format_bytes(bound, sizeof bound, (double)outcomes[0].lower_bound_bytes));
        print_ratio(&usage);
    }
    table_close(table);
    return status;
}

/* A tensor's name and those of the values that take over its memory. */
static void name_block(const struct graph *graph, int root, char out[PLAN_NAME_CHARS]) {
    size_t used = (size_t)snprintf(out, PLAN_NAME_CHARS, "%s", graph->tensors[root].name);
    for (int t = 0; t < (int)graph->n_tensors && used < PLAN_NAME_CHARS; t++) {
        if (t != root && placement_root(graph, t) == root) {
            used += (size_t)snprintf(out + used, PLAN_NAME_CHARS - used, ", %s",
                                     graph->tensors[t].name);
        }
    }
}

static int draw_step(const struct options *options, const struct system *system,
                     const struct asked_step *step, const struct plan_outcome *outcome,
                     const struct placement *placement, struct err *err) {
    const struct graph *graph = &system->graph;
    struct plan_block blocks[GRAPH_MAX_TENSORS];
    const char *times[GRAPH_MAX_OPS];
    struct plan_map map = {.x_label = "operators in the order they run; what repeats reuses the "
                                      "same offsets",
                           .times = times,
                           .graph = graph,
                           .kinds = tensor_class_names,
                           .n_kinds = TENSOR_CLASS_COUNT,
                           .blocks = blocks,
                           .peak_bytes = placement->peak_bytes,
                           .lower_bound_bytes = placement->lower_bound_bytes};
    snprintf(map.title, sizeof map.title, "%s, %s on %s, planner %s: %s", system->name,
             system->model->name, system->gpu->name, outcome->planner, step->text);
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        times[i] = graph->ops[i].name;
    }
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        struct plan_block *block = &blocks[map.n_blocks];
        int first, last;
        if (placement->offset_bytes[t] < 0 || placement->bytes[t] == 0 ||
            graph->tensors[t].alias >= 0) {
            continue;
        }
        placement_lifetime(graph, placement, t, &first, &last);
        *block = (struct plan_block){.kind = tensor_class(graph, t),
                                     .from = first,
                                     .to = last + 1,
                                     .low_bytes = placement->offset_bytes[t],
                                     .bytes = placement->bytes[t]};
        name_block(graph, t, block->name);
        map.n_blocks++;
    }
    return plan_picture_draw(options, &map, err);
}

static int show_step(const struct options *options, const struct asked_plan *asked,
                     const struct system *system, const struct asked_step *step, struct err *err) {
    struct placement placement;
    struct usage usage;
    struct plan_outcome outcome;
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
            json_pack(
                "{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}",
                "system", system->name, "model", system->model->name, "gpu", system->gpu->name,
                "planner", outcome.planner, "step", step->text, "peak_bytes",
                (json_int_t)placement.peak_bytes, "lower_bound_bytes",
                (json_int_t)placement.lower_bound_bytes, "optimal",
                placement.peak_bytes == placement.proven_bound_bytes, "attention_chunk_rows",
                (json_int_t)placement.chunks.of[CHUNK_ATTENTION], "ffn_chunk_rows",
                (json_int_t)placement.chunks.of[CHUNK_FFN], "logit_chunk_rows",
                (json_int_t)placement.chunks.of[CHUNK_LOGITS], "live", ratio_json(&usage),
                "at_peak", peak_json(&system->graph, &placement, &usage), "budget",
                budget_json(system), "tensors", table_json(table), "warnings",
                warnings_json(system)),
            err);
    } else {
        print_people(system, step, &placement, &usage, &outcome, table);
    }
    table_close(table);
    return status != 0 ? status : draw_step(options, system, step, &outcome, &placement, err);
}

static int run_step(const struct options *options, struct err *err) {
    const char *name = options_text(options, "planner");
    struct options of_system = *options;
    bool compares = name != NULL && strcmp(name, "all") == 0;
    if (compares) {
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
        name = compares ? name : system->planner->name;
        status = plan_read_asked(options, name, &asked_plan, err);
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
    if (status == 0 && !options_has(options, "json")) {
        print_warnings(system);
    }
    step_fini(&step);
    system_close(system);
    return status;
}

static int run(const struct options *options, struct err *err) {
    if (options_has(options, "instance")) {
        return plan_instance_run(options, err);
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
        "--planner all compares the planners on the step or the file. A file is planned by exact\n"
        "unless --planner says otherwise. The peak-to-average ratio is that of the live bytes of\n"
        "all tensors over the operators executed: operators of a layer count once for each such\n"
        "layer, those of the logits once for each chunk. Times are on standard error.",
    .options = options_of_plan,
    .run = run,
};
