/* The inside of a measurement, shared by the files that prepare, issue and time it and by nobody
 * else. */
#ifndef UNMASK_ENGINE_CALIBRATE_MEASURE_IMPL_H
#define UNMASK_ENGINE_CALIBRATE_MEASURE_IMPL_H

#include "engine/calibrate/measure.h"

enum { MEASURE_MAX_ANGLES = 4096, MEASURE_ALIGN_BYTES = 512 };

/* The integers of a call, one array each in device memory and in host memory to fill it from. */
enum array {
    ARRAY_START,
    ARRAY_IDS,
    ARRAY_POSITIONS,
    ARRAY_OWNER,
    ARRAY_KV_ROWS,
    ARRAY_KEPT,
    ARRAY_BLOCK_START,
    ARRAY_BLOCK_END,
    ARRAY_FIRST_ROW,
    ARRAY_N_ROWS,
    ARRAY_TAKE,
    ARRAY_TOKEN,
    ARRAY_CANVAS,
    ARRAY_CONFIDENCE,
    ARRAY_COMMITTED,
    ARRAY_N_COMMITTED,
    ARRAY_EXTENT,
    ARRAY_CACHE_START, /* int64 from here on */
    ARRAY_SCORE_START,
    ARRAY_AT,
    ARRAY_PAGES, /* int32 again, and ARRAY_PAGES_PLACES times as long as the others */
};
enum { ARRAY_PAGES_PLACES = 16, ARRAY_ELEMENT_BYTES = 8 };
enum { ARRAYS = ARRAY_PAGES + ARRAY_PAGES_PLACES };

/* The choice of experts lies in its own region: a mixture's operators read it. */
enum region {
    REGION_X,
    REGION_Y,
    REGION_RING,
    REGION_SCRATCH,
    REGION_ARRAYS,
    REGION_ANGLES,
    REGION_CHOICE,
};
enum { REGIONS = REGION_CHOICE + 1 };

struct measure {
    const struct engine_device *device;
    const struct weights *weights;
    const struct model *model;
    struct calibration_bounds bounds;
    int64_t element_bytes;
    int64_t flush_bytes; /* 0: the model stays in the cache */
    void *regions[REGIONS];
    int64_t bytes[REGIONS];
    unsigned char *host; /* [ARRAYS, max_tokens + 1, 8 bytes], pinned */
    struct device_event *from, *to;
    /* The point under way; written by measure_prepare. */
    const struct calibration_point *point;
    int32_t n_requests, n_tokens, longest;
    int64_t copy_bytes; /* of the ring that one copy takes */
    bool keeps_half;    /* a selection keeps half of its candidates, else one row a request */
    int64_t pool_rows;  /* of a copy, in pages: keys and, behind them, values */
    int32_t max_pages;  /* of a request */
};

static inline struct device *device_of(const struct measure *m) {
    return m->device->device;
}

static inline int64_t array_bytes(const struct measure *m) {
    return (m->bounds.max_tokens + 1) * ARRAY_ELEMENT_BYTES;
}

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t qkv_channels(const struct model *m) {
    return ((int64_t)m->heads + 2LL * m->kv_heads) * m->head_dim;
}

/* Fill the host's arrays for a point and note what its calls need to know; nothing is uploaded.
 * False where the point's calls read no arrays. measure_inputs.c. */
bool measure_prepare(struct measure *m, const struct calibration_point *point);

/* Issue one copy of the prepared point; read weights until nothing else is left in the cache. All
 * return an enum device_status. measure_issue.c. */
int measure_issue(const struct measure *m, int copy);

/* Chooses experts for the prepared point's tokens, each at random. */
int measure_choose(const struct measure *m, int copy);
int measure_flush(const struct measure *m);

#endif
