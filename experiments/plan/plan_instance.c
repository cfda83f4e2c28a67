#include "experiments/plan/plan_instance.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cmd.h"
#include "experiments/cli/interrupt.h"
#include "experiments/cli/progress.h"
#include "experiments/plan/plan_outcome.h"
#include "experiments/plan/plan_picture.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/memory/instance.h"

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

int plan_instance_run(const struct options *options, struct err *err) {
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
