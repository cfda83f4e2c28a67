/* The insides of the caching allocator's model: its rules (allocator_torch.c) write them, tests
 * check them. */
#ifndef UNMASK_SIM_MEMORY_ALLOCATOR_BLOCKS_H
#define UNMASK_SIM_MEMORY_ALLOCATOR_BLOCKS_H

#include "sim/memory/allocator.h"

struct segment {
    int64_t address, bytes;
    int64_t unit_bytes;            /* of mapping; 0: one piece, mapped for good */
    bool is_small;                 /* of the pool of small requests */
    struct allocator_block *first; /* at the lowest address */
};

/* Blocks tile their segment. A free, mapped block is in the pool's `idle` list, an unmapped one in
 * `unmapped`. */
struct allocator_block {
    struct segment *segment;
    struct allocator_block *before, *after; /* neighbours in the segment */
    int64_t address, bytes;
    int64_t idle_since; /* n_searches of the pool when it was put into `idle` */
    bool is_allocated, is_mapped;
};

/* Sorted by size, then address. */
struct block_list {
    struct allocator_block **blocks;
    size_t n, room;
};

struct pool {
    bool is_small;
    struct block_list idle, unmapped;
    int64_t n_searches; /* counted while garbage collection is on */
};

struct allocator {
    struct allocator_settings settings;
    bool is_expandable;
    struct pool small, large;
    struct segment **segments; /* in the order of their making */
    size_t n_segments, room;
    int64_t reserved_bytes, allocated_bytes;
    int64_t lowest_address; /* of all segments there ever were */
};

/* The index of the first block that is not below (bytes, address). */
size_t block_list_find(const struct block_list *list, int64_t bytes, int64_t address);

/* Whether two segments share addresses. Expandable segments of different pools have nothing to do
 * with each other: their ranges here are longer than the real ones, which lie side by side. */
bool segments_overlap(const struct segment *a, const struct segment *b);

static inline bool block_is_free(const struct allocator_block *block) {
    return block != NULL && !block->is_allocated;
}

static inline bool block_fills_segment(const struct allocator_block *block) {
    return block->before == NULL && block->after == NULL;
}

#endif
