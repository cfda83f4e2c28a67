#include "sim/memory/allocator.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"

const struct allocator_model allocator_models[] = {
    {"torch", "the CUDA caching allocator of PyTorch", false, NULL},
    {"torch-expandable", "the same with expandable_segments:True", true, NULL},
    {"compile", "torch.compile over it: dead buffers of equal size are reused within a graph",
     false, allocator_reuse_equal_sizes},
};
const size_t allocator_n_models = sizeof allocator_models / sizeof allocator_models[0];

const struct allocator_model *allocator_find(const char *name, struct err *err) {
    const char *names[sizeof allocator_models / sizeof allocator_models[0] + 1] = {NULL};
    char hint[NAME_HINT_CHARS];
    for (size_t i = 0; i < allocator_n_models; i++) {
        if (strcmp(allocator_models[i].name, name) == 0) {
            return &allocator_models[i];
        }
        names[i] = allocator_models[i].name;
    }
    (void)err_usage(err, "unknown allocator model '%s'%s", name, name_hint(name, names, hint));
    return NULL;
}

const char *allocator_figure_name(enum allocator_figure figure) {
    static const char *const names[N_FIGURES] = {
        "refused", "address", "reserved_bytes", "allocated_bytes", "inactive_bytes", "segments"};
    return names[figure];
}

double allocator_inflation(const struct allocator_report *report) {
    if (report->peak_live_bytes == 0) {
        return 0;
    }
    return (double)report->peak_reserved_bytes / (double)report->peak_live_bytes - 1;
}

double allocator_fragmentation(const struct allocator_report *report) {
    if (report->peak_reserved_bytes == 0) {
        return 0;
    }
    return 1 - (double)report->allocated_at_peak_bytes / (double)report->peak_reserved_bytes;
}

/* A replay under way. */
struct replay {
    struct allocator *allocator;
    struct allocator_block **blocks; /* by id; NULL: refused, or not allocated */
    int64_t *given_bytes;            /* by id of the program; 0: refused */
    int64_t live_bytes;
    struct allocator_report *report;
};

static bool is_request(const struct stream_event *event) {
    return event->kind == STREAM_ALLOC || event->kind == STREAM_OOM;
}

static void compare(struct replay *replay, enum allocator_figure figure, size_t event,
                    int64_t model, int64_t recorded) {
    struct figure_agreement *agreement = &replay->report->figures[figure];
    if (recorded == STREAM_UNKNOWN) {
        return;
    }
    if (model == recorded) {
        agreement->n_equal++;
    } else if (agreement->n_equal == agreement->n_compared) {
        agreement->first_difference = event;
        agreement->model = model;
        agreement->recorded = recorded;
    }
    agreement->n_compared++;
}

/* Ask the allocator what an event asks of it. */
static void apply(struct replay *replay, size_t i, const struct stream_event *event) {
    switch (event->kind) {
    case STREAM_ALLOC:
    case STREAM_OOM:
        replay->blocks[event->id] =
            allocator_alloc(replay->allocator, event->bytes, event->segment_address);
        if (replay->blocks[event->id] == NULL && replay->report->n_refused++ == 0) {
            replay->report->first_refused = i;
        }
        break;
    case STREAM_FREE:
        if (replay->blocks[event->id] != NULL) {
            allocator_free(replay->allocator, replay->blocks[event->id]);
            replay->blocks[event->id] = NULL;
        }
        break;
    case STREAM_EMPTY:
        allocator_empty(replay->allocator);
        break;
    case STREAM_GRAPH:
    case N_STREAM_EVENT_KINDS:
        break;
    }
}

static void compare_event(struct replay *replay, size_t i, const struct stream_event *event,
                          const struct allocator_counts *counts) {
    const struct allocator_counts *recorded = &event->recorded;
    if (is_request(event)) {
        const struct allocator_block *block = replay->blocks[event->id];
        compare(replay, FIGURE_OUTCOME, i, block == NULL, event->kind == STREAM_OOM);
        compare(replay, FIGURE_ADDRESS, i, block != NULL ? allocator_address(block) : 0,
                event->address);
    }
    compare(replay, FIGURE_RESERVED, i, counts->reserved_bytes, recorded->reserved_bytes);
    compare(replay, FIGURE_ALLOCATED, i, counts->allocated_bytes, recorded->allocated_bytes);
    compare(replay, FIGURE_INACTIVE, i, counts->inactive_bytes, recorded->inactive_bytes);
    compare(replay, FIGURE_SEGMENTS, i, counts->n_segments, recorded->n_segments);
}

static void note_peaks(struct allocator_report *report, const struct allocator_counts *counts) {
    if (counts->allocated_bytes > report->peak_allocated_bytes) {
        report->peak_allocated_bytes = counts->allocated_bytes;
    }
    if (counts->n_segments > report->most_segments) {
        report->most_segments = counts->n_segments;
    }
    if (counts->reserved_bytes > report->peak_reserved_bytes) {
        report->peak_reserved_bytes = counts->reserved_bytes;
        report->allocated_at_peak_bytes = counts->allocated_bytes;
    }
}

/* Memory that the program holds: bytes requested and allocated. */
static void note_live(struct replay *replay, const struct stream_event *event, uint32_t owner) {
    int64_t *given_bytes = &replay->given_bytes[event->id];
    if (event->kind == STREAM_FREE) {
        replay->live_bytes -= *given_bytes;
    } else if (is_request(event) && replay->blocks[owner] != NULL) {
        *given_bytes = event->bytes;
        replay->live_bytes += *given_bytes;
    }
    if (replay->live_bytes > replay->report->peak_live_bytes) {
        replay->report->peak_live_bytes = replay->live_bytes;
    }
}

/* The recorded program went on without this memory; what it would have done with it is not known.
 */
static void give_up(struct replay *replay, const struct stream_event *event) {
    if (event->kind == STREAM_OOM && replay->blocks[event->id] != NULL) {
        allocator_free(replay->allocator, replay->blocks[event->id]);
        replay->blocks[event->id] = NULL;
        replay->live_bytes -= event->bytes;
    }
}

void allocator_replay(const struct stream *stream, const struct allocator_model *model,
                      const struct allocator_settings *settings, struct allocator_report *report) {
    struct stream asked;
    stream_init(&asked);
    if (model->rewrite != NULL) {
        model->rewrite(stream, &asked);
    }
    *report = (struct allocator_report){0};
    struct replay replay = {
        .allocator = allocator_open(settings, model->is_expandable),
        .blocks = mem_zeroed((size_t)stream->n_ids + 1, sizeof(struct allocator_block *)),
        .given_bytes = mem_zeroed((size_t)stream->n_ids + 1, sizeof(int64_t)),
        .report = report,
    };
    for (size_t i = 0; i < stream->n_events; i++) {
        const struct stream_event *event = &stream->events[i];
        const struct stream_event *request = model->rewrite != NULL ? &asked.events[i] : event;
        apply(&replay, i, request);
        note_live(&replay, event, request->id);
        struct allocator_counts counts = allocator_counts(replay.allocator);
        note_peaks(report, &counts);
        if (model->rewrite == NULL) {
            compare_event(&replay, i, event, &counts);
        }
        give_up(&replay, event);
    }
    allocator_close(replay.allocator);
    free(replay.blocks);
    free(replay.given_bytes);
    stream_fini(&asked);
}
