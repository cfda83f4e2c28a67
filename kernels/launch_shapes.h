/* Which blocks the launchers choose for a call's shape: the part of launches.h in which threads or
 * shared memory change with shapes. The launchers call these functions; so does
 * tests/kernels/launches.c, for every shape that a call may have. */
#ifndef UNMASK_KERNELS_LAUNCH_SHAPES_H
#define UNMASK_KERNELS_LAUNCH_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/launches.h"

/* Block and paged attention: WARPS_M times 16 query rows by WARPS_N parts of tile_keys keys. */
struct line_shape {
    int warps_m, warps_n, tile_keys;
};

/* Whether a multiprocessor with this much shared memory wants compact stages (sm_86, sm_89, sm_120:
 * 100 KiB). */
static inline bool line_wants_compact(int bytes_per_multiprocessor) {
    return bytes_per_multiprocessor < 160 * 1024;
}

/* rows: the queries of a group's heads; an invariant call's keys are never shared among warps. */
static inline struct line_shape line_shape_of(int64_t rows, bool invariant, bool compact,
                                              int head_size) {
    struct line_shape shape = {LINE_MOST_WARPS(head_size), 1, compact || head_size > 128 ? 32 : 64};
    if (invariant) {
        shape.warps_m = rows <= 32 ? 2 : shape.warps_m;
    } else if (rows <= 16) {
        shape.warps_m = 1;
        shape.warps_n = shape.tile_keys / 16;
    } else if (rows <= 32) {
        shape.warps_m = shape.warps_n = 2;
    } else if (rows <= 64) {
        shape.warps_m = 4;
    }
    return shape;
}

static inline int line_threads(struct line_shape shape) {
    return 32 * shape.warps_m * shape.warps_n;
}

/* Stages of keys and values, and the buffers through which warps of the same rows merge. */
static inline int line_bytes(struct line_shape shape, int head_size) {
    return LINE_STAGES(head_size) * 2 * shape.tile_keys * head_size * 2 +
           (shape.warps_n - 1) * 16 * shape.warps_m * (LINE_MERGE_COLUMNS(head_size) + 2) * 4;
}

/* A block's threads, and what each holds: vectors of 8 channels, or keys. */
struct block_shape {
    int threads, each;
};

/* Few rows: many threads each, for the latency. Many: more loads in flight a thread, unless the
 * residual's already double them (measured on an H200, experiments/gpu/results). The sum of squares
 * depends on it. */
static inline struct block_shape norm_shape_of(int n_rows, int n_channels, bool residual,
                                               bool invariant) {
    const bool many = n_rows > 4096 && !invariant;
    const int most = residual || !many ? NORM_THREADS : NORM_MANY_ROWS_THREADS;
    const int n_vectors = n_channels / 8;
    struct block_shape shape = {0, 1};
    while (shape.each < 8 && shape.each * most < n_vectors) {
        shape.each *= 2;
    }
    shape.threads = ((n_vectors + shape.each - 1) / shape.each + 31) / 32 * 32;
    return shape;
}

/* How many of those threads' numbers a thread has where a norm of many rows quantises, which costs
 * more than waiting: the sums are in the same order. Of 512 rows nothing was gained (one H200,
 * 2026-11-30). */
static inline int norm_parts_of(struct block_shape shape, int n_rows, bool codes) {
    enum { MANY_ROWS = 2048 };
    return codes && n_rows >= MANY_ROWS && shape.threads == NORM_THREADS && shape.each <= 2 ? 2 : 1;
}

/* As many threads as the heads need, in whole warps; n_heads: of queries, keys and values. */
static inline int rope_threads(int head_size, int n_heads) {
    const int lanes = ROPE_LANES(head_size);
    const int needed = ((n_heads + ROPE_HEADS - 1) / ROPE_HEADS * lanes + 31) / 32 * 32;
    return needed < ROPE_MOST_THREADS ? needed : (int)ROPE_MOST_THREADS;
}

/* The k largest of n_candidates. */
static inline struct block_shape top_shape_of(int n_candidates) {
    const struct block_shape shape = {n_candidates <= 4096 ? 256 : 1024, n_candidates <= 1024 ? 4
                                                                         : n_candidates <= 16384
                                                                             ? 16
                                                                             : 64};
    return shape;
}

/* Commits of a request of max_rows rows, by count or threshold. */
static inline struct block_shape decode_shape_of(int max_rows) {
    const struct block_shape shape = {max_rows <= 128 ? 32 : 1024, max_rows <= 4096 ? 4 : 64};
    return shape;
}

/* The same by rules that look at every candidate's place: two floats and a byte a row. */
static inline int ranked_threads(int max_rows) {
    return max_rows <= RANKED_FEW_ROWS ? RANKED_FEW_THREADS : RANKED_THREADS;
}

#ifdef __CUDACC__
__host__ __device__
#endif
    static inline int
    ranked_room(int max_rows) {
    return (max_rows + 3) / 4 * 4;
}

static inline int ranked_bytes(int max_rows) {
    return ranked_room(max_rows) * (2 * (int)sizeof(float) + 1);
}

/* What masked tokens of one request weigh: the most keys that a block holds. */
static inline struct block_shape importance_shape_of(int max_masked) {
    const struct block_shape shape = {max_masked <= 64 ? 512 : 256, max_masked <= 32   ? 32
                                                                    : max_masked <= 64 ? 64
                                                                                       : 128};
    return shape;
}

static inline int sort_warps(int64_t n_pairs) {
    return n_pairs <= SORT_FEW_WARPS * 32 * SORT_TURNS ? SORT_FEW_WARPS : SORT_WARPS;
}

#endif
