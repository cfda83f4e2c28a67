/* Allocator models: how much device memory a program holds that does not plan its memory.
 *
 * A planner (planner.h) knows every buffer beforehand. A program without one asks an allocator
 * again and again, and the allocator must answer at once. It keeps what it once took from the
 * device, so the device sees more memory held than the program uses. These models replay a stream
 * of requests (stream.h) and say how much after every event.
 *
 *   torch             the CUDA caching allocator of PyTorch (allocator_torch.c)
 *   torch-expandable  the same with expandable_segments:True
 *   compile           torch.compile's code over it: within one compiled graph, a buffer takes over
 *                     the memory of a dead one of the same size (allocator_compile.c) */
#ifndef UNMASK_SIM_MEMORY_ALLOCATOR_H
#define UNMASK_SIM_MEMORY_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/memory/stream.h"

/* ---- the caching allocator ---- */

/* Sizes of PyTorch's CUDA caching allocator (its notes on CUDA memory management and
 * c10/core/AllocatorConfig.h; seen in PyTorch 2.11, 2026-11-21). */
#define ALLOCATOR_BLOCK_BYTES         INT64_C(512)       /* all sizes are multiples of it */
#define ALLOCATOR_SMALL_BYTES         (INT64_C(1) << 20) /* the largest that is small */
#define ALLOCATOR_SMALL_SEGMENT_BYTES (INT64_C(2) << 20)
#define ALLOCATOR_LARGE_SEGMENT_BYTES (INT64_C(20) << 20)
#define ALLOCATOR_OWN_SEGMENT_BYTES   (INT64_C(10) << 20) /* from here on, a segment of its own */
#define ALLOCATOR_ROUND_BYTES         (INT64_C(2) << 20)  /* of which the size is a multiple */
/* How much larger than asked for an unsplittable block may be (max_non_split_rounding_mb). */
#define ALLOCATOR_ROUNDING_BYTES (INT64_C(20) << 20)

struct allocator;
struct allocator_block;

struct allocator *allocator_open(const struct allocator_settings *settings, bool is_expandable);
void allocator_close(struct allocator *allocator); /* NULL is fine */

/* A block of at least `bytes` (1 to STREAM_MAX_BYTES), or NULL when the limit allows none even
 * after all idle segments have gone back to the device. `segment_address` is where the device puts
 * a segment that this needs; STREAM_UNKNOWN: below all others, where the driver of an H200 mostly
 * puts it (2026-11-21). Addresses only decide between free blocks of equal size. The blocks belong
 * to the allocator. */
struct allocator_block *allocator_alloc(struct allocator *allocator, int64_t bytes,
                                        int64_t segment_address);
void allocator_free(struct allocator *allocator, struct allocator_block *block);
/* Give every segment that is not in use back to the device (torch.cuda.empty_cache). */
void allocator_empty(struct allocator *allocator);

struct allocator_counts allocator_counts(const struct allocator *allocator);
int64_t allocator_address(const struct allocator_block *block);

/* ---- models of what lies between a program and that allocator ---- */

struct allocator_model {
    const char *name, *doc;
    bool is_expandable;
    /* What the allocator is asked instead; NULL: the stream itself. `out` is initialised and gets
     * as many events as `in`. Several buffers may share the memory of one id; an event that asks
     * nothing of the allocator becomes STREAM_GRAPH, with the id that holds its memory. */
    void (*rewrite)(const struct stream *in, struct stream *out);
};

extern const struct allocator_model allocator_models[];
extern const size_t allocator_n_models;

/* ERR_USAGE for an unknown name. */
const struct allocator_model *allocator_find(const char *name, struct err *err);

void allocator_reuse_equal_sizes(const struct stream *in, struct stream *out);

/* ---- replay ---- */

/* What the recording carries and the model is compared with. */
enum allocator_figure {
    FIGURE_OUTCOME, /* 1: the allocation was refused */
    FIGURE_ADDRESS,
    FIGURE_RESERVED,
    FIGURE_ALLOCATED,
    FIGURE_INACTIVE,
    FIGURE_SEGMENTS,
    N_FIGURES,
};

const char *allocator_figure_name(enum allocator_figure figure);

struct figure_agreement {
    size_t n_compared, n_equal;
    size_t first_difference; /* index of an event, where n_equal < n_compared */
    int64_t model, recorded; /* there */
};

struct allocator_report {
    int64_t peak_live_bytes;      /* as asked for by the program and given to it */
    int64_t peak_allocated_bytes; /* as handed out, in whole blocks */
    int64_t peak_reserved_bytes;
    /* What was allocated when reserved_bytes first stood at its peak. */
    int64_t allocated_at_peak_bytes;
    int64_t most_segments;
    size_t n_refused, first_refused; /* allocations; the index of the first one's event */
    struct figure_agreement figures[N_FIGURES];
};

/* Reserved over live peak, minus 1; 0 for a stream without allocations. */
double allocator_inflation(const struct allocator_report *report);
/* The share of the reserved bytes that was free when they reached their peak. */
double allocator_fragmentation(const struct allocator_report *report);

/* Replay `stream`. Figures are compared where the stream has them and no model rewrites it. A
 * refused allocation gets no memory and its later free frees none; one that was refused in the
 * recording and is not here is freed at once. */
void allocator_replay(const struct stream *stream, const struct allocator_model *model,
                      const struct allocator_settings *settings, struct allocator_report *report);

#endif
