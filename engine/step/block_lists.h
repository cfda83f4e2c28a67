/* The arrays of a step in which the device decides what runs, what is evicted and what is
 * committed: what the host says of each active block, in one run of bytes that a single upload
 * takes to the device, and behind it what the device notes of the step. */
#ifndef UNMASK_ENGINE_STEP_BLOCK_LISTS_H
#define UNMASK_ENGINE_STEP_BLOCK_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/calls_block.h"

/* Steps of the same blocks that are issued at once, at most. */
enum { BLOCK_STEPS = 16 };

/* A request's active block. Arrays are the caller's and read before the step is issued. */
struct block_member {
    int64_t canvas;            /* where its canvas starts among the device's */
    int32_t begin, length;     /* the block's first position in it, and its positions */
    int32_t frontier;          /* the right-most position kept so far in this block, -1: none */
    float mean;                /* tokens decoded in a step so far, and what it is of: */
    int32_t sum, steps;        /* (call_decode_mean) */
    int32_t take[BLOCK_STEPS]; /* positions to commit in each step, where steps take numbers, */
    float threshold;           /* and what they are held to where they do not */
    uint8_t logits;            /* enum kernel_block_logits, together */
    bool ends_early;           /* the block is over when all of it is decoded */
    const uint8_t *masked, *uncached; /* [length]: not decoded; not final */
    const int32_t *pages;             /* [n_pages], as in struct kv_pages */
    int32_t n_pages;
};

/* B requests, rounded up; those behind the members have empty blocks. */
enum block_array {
    BLOCK_CANVAS_START, /* int64 [B] */
    BLOCK_BEGIN,        /* int32 [B] */
    BLOCK_LENGTH,       /* int32 [B] */
    BLOCK_FRONTIER,     /* int32 [B] */
    BLOCK_TAKE,         /* int32 [B], of the step under way */
    BLOCK_TAKES,        /* int32 [BLOCK_STEPS, B] */
    BLOCK_MEAN,         /* float [B] */
    BLOCK_SUM,          /* int32 [B] */
    BLOCK_COUNTED,      /* int32 [B], the steps of that sum */
    BLOCK_THRESHOLD,    /* float [B] */
    BLOCK_NUMBERS,      /* int32 [BLOCK_NUMBER_COUNT] */
    BLOCK_PAGES,        /* int32 [B, max_pages] */
    BLOCK_LOGITS,       /* uint8 [B] */
    BLOCK_ENDS,         /* uint8 [B] */
    BLOCK_DECODED,      /* uint8 [B, max_block] */
    BLOCK_FINAL,        /* uint8 [B, max_block] */
    BLOCK_PLACES,       /* int32: the device's own from here on; places of sizes, by part */
    BLOCK_KEEP,         /* uint8 [tokens] */
    BLOCK_LOG,          /* uint8 [BLOCK_STEPS, B, max_block], enum kernel_block_log */
};
enum { BLOCK_ARRAY_COUNT = BLOCK_LOG + 1 };

/* Of the loop over steps: how many at most, how many were done, whether there is another. */
enum block_number { NUMBER_MOST, NUMBER_STEP, NUMBER_AGAIN };
enum { BLOCK_NUMBER_COUNT = NUMBER_AGAIN + 1 };

struct block_lists {
    int32_t n_requests, max_pages, max_block, n_tokens; /* as laid out */
    int64_t offset_bytes[BLOCK_ARRAY_COUNT], upload_bytes, bytes;
};

void block_lists_lay_out(struct block_lists *lists, int32_t n_requests, int32_t max_pages,
                         int32_t max_block, int32_t n_tokens);

/* Write what is uploaded, for so many steps at most: upload_bytes. */
void block_lists_fill(const struct block_lists *lists, const struct block_member *members,
                      int32_t n, int32_t most_steps, unsigned char *out);

#endif
