#include "experiments/cli/plan_picture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/plot/memory_map.h"
#include "sim/base/num.h"

const struct option picture_options[] = {
    {"picture", "FILE", "draw the plan, offset over time, to FILE.png or FILE.svg", false},
    {NULL, NULL, NULL, false},
};

int plan_picture_check(const struct options *options, bool compares, struct err *err) {
    const char *path = options_text(options, "picture");
    if (path == NULL) {
        return 0;
    }
    if (compares) {
        return err_usage(err, "--picture draws one plan: name one planner instead of all");
    }
    return memory_map_check_path(path, err);
}

enum { NAME_CHARS = 96, MOST_LEVELS = 3, MAP_TEXT_CHARS = 256 };

/* The horizontal lines, named with their values. */
struct levels {
    struct map_level level[MOST_LEVELS];
    char names[MOST_LEVELS][64];
    size_t n;
};

static void add_level(struct levels *levels, const char *name, int64_t bytes) {
    char text[32], *out = levels->names[levels->n];
    snprintf(out, sizeof levels->names[0], "%s %s", name,
             num_format_bytes(text, sizeof text, (double)bytes));
    levels->level[levels->n++] = (struct map_level){out, bytes};
}

static void add_levels(struct levels *levels, int64_t peak_bytes, int64_t lower_bound_bytes) {
    if (peak_bytes == lower_bound_bytes) {
        add_level(levels, "peak = lower bound", peak_bytes);
        return;
    }
    add_level(levels, "peak", peak_bytes);
    add_level(levels, "lower bound", lower_bound_bytes);
}

/* ---- a step ---- */

/* Everything the map of a step points into. */
struct step_sheet {
    struct map_block blocks[GRAPH_MAX_TENSORS];
    char names[GRAPH_MAX_TENSORS][NAME_CHARS], sizes[GRAPH_MAX_TENSORS][32];
    size_t n_blocks;
    const char *tics[GRAPH_MAX_OPS];
    struct map_point live[GRAPH_MAX_OPS];
    struct map_stretch stretches[GRAPH_MAX_SEGMENTS];
    char stretch_names[GRAPH_MAX_SEGMENTS][64];
    struct levels levels;
    char title[MAP_TEXT_CHARS + 64], note[MAP_TEXT_CHARS];
};

/* A tensor's name and those of the values that take over its memory. */
static void name_block(const struct graph *graph, int root, char *out) {
    size_t used = (size_t)snprintf(out, NAME_CHARS, "%s", graph->tensors[root].name);
    for (int t = 0; t < (int)graph->n_tensors && used < NAME_CHARS; t++) {
        if (t != root && placement_root(graph, t) == root) {
            used += (size_t)snprintf(out + used, NAME_CHARS - used, ", %s", graph->tensors[t].name);
        }
    }
}

static void add_blocks(struct step_sheet *sheet, const struct graph *graph,
                       const struct placement *placement) {
    for (int t = 0; t < (int)graph->n_tensors; t++) {
        int64_t low = placement->offset_bytes[t], bytes = placement->bytes[t];
        if (low < 0 || bytes == 0 || graph->tensors[t].alias >= 0) {
            continue;
        }
        size_t i = sheet->n_blocks++;
        int first, last;
        placement_lifetime(graph, placement, t, &first, &last);
        name_block(graph, t, sheet->names[i]);
        num_format_bytes(sheet->sizes[i], sizeof sheet->sizes[i], (double)bytes);
        sheet->blocks[i] = (struct map_block){.name = sheet->names[i],
                                              .size = sheet->sizes[i],
                                              .kind = tensor_class(graph, t),
                                              .from = first,
                                              .to = last + 1,
                                              .low_bytes = low,
                                              .high_bytes = low + bytes};
    }
}

static void add_operators(struct step_sheet *sheet, const struct graph *graph,
                          const struct usage *usage) {
    for (uint32_t s = 0; s < graph->n_segments; s++) {
        const struct segment *segment = &graph->segments[s];
        snprintf(sheet->stretch_names[s], sizeof sheet->stretch_names[s],
                 segment->repeat > 1 ? "%s, %" PRIu32 " times" : "%s", segment->name,
                 segment->repeat);
        sheet->stretches[s].name = sheet->stretch_names[s];
    }
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        struct map_stretch *stretch = &sheet->stretches[graph->ops[i].segment];
        sheet->tics[i] = graph->ops[i].name;
        sheet->live[i] = (struct map_point){i, usage->bytes[i]};
        stretch->from = stretch->to > 0 ? stretch->from : i;
        stretch->to = i + 1;
    }
}

int plan_picture_of_step(const struct options *options, const struct system *system,
                         const struct asked_step *step, const char *planner,
                         const struct placement *placement, const struct usage *usage,
                         struct err *err) {
    const char *path = options_text(options, "picture");
    if (path == NULL) {
        return 0;
    }
    const struct graph *graph = &system->graph;
    struct step_sheet *sheet = calloc(1, sizeof *sheet);
    if (sheet == NULL) {
        return err_world(err, "out of memory");
    }
    add_blocks(sheet, graph, placement);
    add_operators(sheet, graph, usage);
    add_levels(&sheet->levels, placement->peak_bytes, placement->lower_bound_bytes);
    snprintf(sheet->title, sizeof sheet->title, "%s, %s on %s, planner %s: %s", system->name,
             system->model->name, system->gpu->name, planner, step->text);
    snprintf(sheet->note, sizeof sheet->note,
             "computed: one pass through each segment of the step graph; "
             "what repeats reuses the same offsets");
    const struct memory_map map = {.title = sheet->title,
                                   .note = sheet->note,
                                   .x_label = "operators in the order they run",
                                   .from = 0,
                                   .to = graph->n_ops,
                                   .tics = sheet->tics,
                                   .n_tics = graph->n_ops,
                                   .kinds = tensor_class_names,
                                   .n_kinds = TENSOR_CLASS_COUNT,
                                   .blocks = sheet->blocks,
                                   .n_blocks = sheet->n_blocks,
                                   .live = sheet->live,
                                   .n_live = graph->n_ops,
                                   .levels = sheet->levels.level,
                                   .n_levels = sheet->levels.n,
                                   .stretches = sheet->stretches,
                                   .n_stretches = graph->n_segments};
    int status = memory_map_draw(&map, path, err);
    free(sheet);
    return status;
}

/* ---- a file of buffers ---- */

struct change {
    int64_t time, bytes;
};

static int by_time(const void *a, const void *b) {
    int64_t x = ((const struct change *)a)->time, y = ((const struct change *)b)->time;
    return (x > y) - (x < y);
}

/* Live bytes from each time on at which a buffer begins or ends. Returns how many points there are.
 */
static size_t sum_live(const struct packing *packing, struct change *changes,
                       struct map_point *out) {
    size_t n = 0, n_points = 0;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        changes[n++] = (struct change){b->first_time, b->bytes};
        changes[n++] = (struct change){b->last_time + 1, -b->bytes};
    }
    qsort(changes, n, sizeof changes[0], by_time);
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += changes[i].bytes;
        if (i + 1 == n || changes[i + 1].time != changes[i].time) {
            out[n_points++] = (struct map_point){(double)changes[i].time, bytes};
        }
    }
    return n_points;
}

/* Everything the map of a file points into. */
struct file_sheet {
    struct map_block blocks[PACKING_MAX_BUFFERS];
    char sizes[PACKING_MAX_BUFFERS][32];
    struct change changes[2 * PACKING_MAX_BUFFERS];
    struct map_point live[2 * PACKING_MAX_BUFFERS];
    struct levels levels;
    char title[MAP_TEXT_CHARS];
};

static int draw_instance(struct file_sheet *sheet, const struct instance *instance,
                         const int64_t *offset_bytes, const char *picture, struct err *err) {
    static const char *const kinds[] = {"buffers"};
    const struct packing *packing = &instance->packing;
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        const struct packing_buffer *b = &packing->buffers[i];
        num_format_bytes(sheet->sizes[i], sizeof sheet->sizes[i], (double)b->bytes);
        sheet->blocks[i] = (struct map_block){.name = instance->ids[i],
                                              .size = sheet->sizes[i],
                                              .from = (double)b->first_time,
                                              .to = (double)b->last_time + 1,
                                              .low_bytes = offset_bytes[i],
                                              .high_bytes = offset_bytes[i] + b->bytes};
    }
    size_t n_live = sum_live(packing, sheet->changes, sheet->live);
    const struct memory_map map = {.title = sheet->title,
                                   .note = "a buffer is live from its lower time up to, not "
                                           "including, its upper",
                                   .x_label = "time, as the file counts it",
                                   .from = sheet->live[0].from,
                                   .to = sheet->live[n_live - 1].from,
                                   .kinds = kinds,
                                   .n_kinds = 1,
                                   .blocks = sheet->blocks,
                                   .n_blocks = packing->n_buffers,
                                   .live = sheet->live,
                                   .n_live = n_live,
                                   .levels = sheet->levels.level,
                                   .n_levels = sheet->levels.n};
    return memory_map_draw(&map, picture, err);
}

int plan_picture_of_instance(const struct options *options, const char *path, const char *planner,
                             const struct instance *instance, const struct plan *plan,
                             int64_t capacity_bytes, struct err *err) {
    const char *picture = options_text(options, "picture");
    if (picture == NULL) {
        return 0;
    }
    struct file_sheet *sheet = calloc(1, sizeof *sheet);
    if (sheet == NULL) {
        return err_world(err, "out of memory");
    }
    const char *slash = strrchr(path, '/');
    snprintf(sheet->title, sizeof sheet->title, "%.160s: %" PRIu32 " buffers, planner %s",
             slash == NULL ? path : slash + 1, instance->packing.n_buffers, planner);
    add_levels(&sheet->levels, plan->peak_bytes, plan->lower_bound_bytes);
    if (capacity_bytes > 0) {
        add_level(&sheet->levels, "capacity", capacity_bytes);
    }
    int status = draw_instance(sheet, instance, plan->offset_bytes, picture, err);
    free(sheet);
    return status;
}
