/* The arrays of a step in which the device decides what runs, what is evicted and what is
 * committed: what the host says of each active block, in one run of bytes that a single upload
 * takes to the device, and behind it what the device notes of the step. */
#ifndef UNMASK_ENGINE_BLOCK_LISTS_H
#define UNMASK_ENGINE_BLOCK_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/calls_block.h"

/* A request's active block. Arrays are the caller's and read before the step is issued. */
struct block_member {
    int64_t canvas;        /* where its canvas starts among the device's */
    int32_t begin, length; /* the block's first position in it, and its positions */
    int32_t frontier;      /* the right-most position kept so far in this block, -1: none */
    float mean;            /* tokens decoded in a step so far (call_focus_select) */
    int32_t take;          /* positions to commit, where the step takes numbers */
    uint8_t logits;        /* enum kernel_block_logits, together */
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
    BLOCK_TAKE,         /* int32 [B] */
    BLOCK_MEAN,         /* float [B] */
    BLOCK_PAGES,        /* int32 [B, max_pages] */
    BLOCK_LOGITS,       /* uint8 [B] */
    BLOCK_DECODED,      /* uint8 [B, max_block] */
    BLOCK_FINAL,        /* uint8 [B, max_block] */
    BLOCK_PLACES,       /* int32: the device's own from here on; places of sizes, by part */
    BLOCK_KEEP,         /* uint8 [tokens] */
    BLOCK_LOG,          /* uint8 [B, max_block], enum kernel_block_log */
};
enum { BLOCK_ARRAY_COUNT = BLOCK_LOG + 1 };

struct block_lists {
    int32_t n_requests, max_pages, max_block, n_tokens; /* as laid out */
    int64_t offset_bytes[BLOCK_ARRAY_COUNT], upload_bytes, bytes;
};

void block_lists_lay_out(struct block_lists *lists, int32_t n_requests, int32_t max_pages,
                         int32_t max_block, int32_t n_tokens);

/* Write what is uploaded: upload_bytes. */
void block_lists_fill(const struct block_lists *lists, const struct block_member *members,
                      int32_t n, unsigned char *out);

#endif
