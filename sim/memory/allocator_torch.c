/* The CUDA caching allocator of PyTorch, for one CUDA stream.
 *
 * Its rules, as PyTorch's documentation and c10/cuda/CUDACachingAllocator.cpp state them and as
 * recordings of PyTorch 2.11 confirm them (tests/golden/allocations.tar.gz, 2026-11-21):
 *
 * Sizes are rounded up to 512 bytes. Requests up to 1 MiB are served from small segments, others
 * from large ones; the two never mix. The smallest free block that is large enough is taken, at
 * equal size the one at the lowest address. If none is, the device is asked for a segment: 2 MiB
 * for a small request, 20 MiB for one below 10 MiB, else the size rounded up to 2 MiB. What a
 * request leaves of its block becomes a free block, if it is at least 512 bytes in a small
 * segment or more than 1 MiB in a large one; else the request gets the whole block. A freed block
 * merges with free neighbours of its segment. Segments stay.
 *
 * max_split_size: a request below it never takes a block at or above it, and a request at or above
 * it only takes a block less than 20 MiB larger, whole.
 *
 * When the limit leaves no room for a segment: with max_split_size, enough idle segments of at
 * least that size go back to the device, the smallest that alone suffices or else the largest
 * first, and the device is asked again; then all idle segments go back and it is asked once more;
 * then the request fails.
 *
 * garbage_collection_threshold: before the device is asked while more than that share of the limit
 * is held, idle large segments go back, those first that have been idle for longer than the
 * average, counted in searches of the pool.
 *
 * expandable_segments: there is one segment for small and one for large requests, a long range of
 * addresses onto which the device's memory is mapped in units of 2 and 20 MiB as requests need it,
 * at the lowest addresses that give enough room together with the free block before them. Every
 * remainder of at least 512 bytes is split off. To give memory back, all units that lie wholly in
 * free blocks are unmapped. Among blocks that would fit, a block before unmapped addresses counts
 * as large as it could grow. The limit is checked against the size that the segment would have had
 * without this option, so that mapping whole units can exceed it. */
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/memory/allocator_blocks.h"

/* Addresses of an expandable segment. PyTorch takes 9/8 of the device's memory, and no device has
 * as much as this. */
#define EXPANDABLE_BYTES (INT64_C(1) << 40)

/* Room below it for all segments of any stream, expandable ones included. */
#define FIRST_ADDRESS (INT64_C(1) << 62)

/* ---- lists of blocks ---- */

size_t block_list_find(const struct block_list *list, int64_t bytes, int64_t address) {
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct allocator_block *block = list->blocks[middle];
        if (block->bytes < bytes || (block->bytes == bytes && block->address < address)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void list_add(struct block_list *list, struct allocator_block *block) {
    list->blocks = mem_grown(list->blocks, list->n, &list->room, sizeof *list->blocks);
    size_t at = block_list_find(list, block->bytes, block->address);
    memmove(&list->blocks[at + 1], &list->blocks[at],
            (list->n - at) * sizeof(struct allocator_block *));
    list->blocks[at] = block;
    list->n++;
}

/* The block's size and address must be those with which it was added. */
static void list_remove(struct block_list *list, const struct allocator_block *block) {
    size_t at = block_list_find(list, block->bytes, block->address);
    ASSERT(at < list->n && list->blocks[at] == block);
    memmove(&list->blocks[at], &list->blocks[at + 1],
            (list->n - at - 1) * sizeof(struct allocator_block *));
    list->n--;
}

static struct pool *pool_of(struct allocator *allocator, bool is_small) {
    return is_small ? &allocator->small : &allocator->large;
}

static struct block_list *list_of(struct pool *pool, const struct allocator_block *block) {
    return block->is_mapped ? &pool->idle : &pool->unmapped;
}

static void make_idle(struct pool *pool, struct allocator_block *block) {
    block->idle_since = pool->n_searches;
    list_add(list_of(pool, block), block);
}

/* ---- segments ---- */

bool segments_overlap(const struct segment *a, const struct segment *b) {
    bool are_apart = a->unit_bytes > 0 && a->is_small != b->is_small;
    return !are_apart && a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

static bool overlaps_another(const struct allocator *allocator, const struct segment *segment) {
    for (size_t i = 0; i < allocator->n_segments; i++) {
        if (segments_overlap(allocator->segments[i], segment)) {
            return true;
        }
    }
    return false;
}

/* A segment of one free block, which is in no list yet. A wish for an address that other segments
 * hold (the recording it comes from went another way) is not heeded. */
static struct allocator_block *make_segment(struct allocator *allocator, const struct pool *pool,
                                            int64_t bytes, int64_t unit_bytes, int64_t address) {
    struct segment *segment = mem_unwritten(1, sizeof *segment);
    struct allocator_block *block = mem_unwritten(1, sizeof *block);
    *segment = (struct segment){.address = address,
                                .bytes = bytes,
                                .unit_bytes = unit_bytes,
                                .is_small = pool->is_small,
                                .first = block};
    if (address == STREAM_UNKNOWN || overlaps_another(allocator, segment)) {
        segment->address = allocator->lowest_address - bytes;
    }
    if (segment->address < allocator->lowest_address) {
        allocator->lowest_address = segment->address;
    }
    *block = (struct allocator_block){.segment = segment,
                                      .address = segment->address,
                                      .bytes = bytes,
                                      .is_mapped = unit_bytes == 0};
    allocator->segments = mem_grown(allocator->segments, allocator->n_segments, &allocator->room,
                                    sizeof *allocator->segments);
    allocator->segments[allocator->n_segments++] = segment;
    return block;
}

/* Takes `block`, the only one of its segment, in no list. */
static void drop_segment(struct allocator *allocator, struct allocator_block *block) {
    size_t i = 0;
    while (allocator->segments[i] != block->segment) {
        i++;
    }
    allocator->n_segments--;
    memmove(&allocator->segments[i], &allocator->segments[i + 1],
            (allocator->n_segments - i) * sizeof(struct segment *));
    free(block->segment);
    free(block);
}

/* Cut `block` after its first `bytes`; the rest is a new block like it, in no list. */
static struct allocator_block *cut(struct allocator_block *block, int64_t bytes) {
    struct allocator_block *rest = mem_unwritten(1, sizeof *rest);
    ASSERT(bytes > 0 && bytes < block->bytes);
    *rest = *block;
    rest->before = block;
    rest->address += bytes;
    rest->bytes -= bytes;
    if (rest->after != NULL) {
        rest->after->before = rest;
    }
    block->after = rest;
    block->bytes = bytes;
    return rest;
}

/* Let a free `block`, which is in no list, swallow a free neighbour of its kind. */
static void merge(struct pool *pool, struct allocator_block *block,
                  struct allocator_block *neighbour) {
    if (neighbour == NULL || neighbour->is_allocated || neighbour->is_mapped != block->is_mapped) {
        return;
    }
    list_remove(list_of(pool, neighbour), neighbour);
    if (neighbour == block->before) {
        block->address = neighbour->address;
        block->before = neighbour->before;
        if (block->before != NULL) {
            block->before->after = block;
        } else {
            block->segment->first = block;
        }
    } else {
        block->after = neighbour->after;
        if (block->after != NULL) {
            block->after->before = block;
        }
    }
    block->bytes += neighbour->bytes;
    free(neighbour);
}

static void merge_both(struct pool *pool, struct allocator_block *block) {
    merge(pool, block, block->before);
    merge(pool, block, block->after);
}

/* ---- expandable segments ---- */

/* The part of a block of an expandable segment that is whole units of mapping: from `*address` on.
 */
static int64_t block_whole_units(const struct allocator_block *block, int64_t *address) {
    int64_t unit = block->segment->unit_bytes, start = block->address - block->segment->address;
    int64_t first = ceil_div(start, unit), end = (start + block->bytes) / unit;
    *address = block->segment->address + first * unit;
    return end > first ? (end - first) * unit : 0;
}

/* Map the first `bytes` of an unmapped block, rounded up to units. It takes part in merging and
 * ends up as a free block. */
static void map(struct allocator *allocator, struct pool *pool, struct allocator_block *block,
                int64_t bytes) {
    int64_t unit = block->segment->unit_bytes, mapped_bytes = ceil_div(bytes, unit) * unit;
    list_remove(&pool->unmapped, block);
    if (mapped_bytes < block->bytes) {
        list_add(&pool->unmapped, cut(block, mapped_bytes));
    }
    block->is_mapped = true;
    allocator->reserved_bytes += mapped_bytes;
    merge_both(pool, block);
    make_idle(pool, block);
}

static bool has_room(const struct allocator_block *block, int64_t bytes) {
    for (; bytes > 0 && block_is_free(block); block = block->after) {
        bytes -= block->bytes;
    }
    return bytes <= 0;
}

/* The lowest run of free and unmapped addresses that is long enough and would need mapping; begins
 * with an unmapped block or the free one before it. A new segment when there is none. */
static struct allocator_block *find_expandable(struct allocator *allocator, struct pool *pool,
                                               int64_t bytes, int64_t segment_address) {
    struct allocator_block *lowest = NULL;
    for (size_t i = 0; i < pool->unmapped.n; i++) {
        struct allocator_block *block = pool->unmapped.blocks[i];
        block = block_is_free(block->before) ? block->before : block;
        if (has_room(block, bytes) && (lowest == NULL || block->address < lowest->address)) {
            lowest = block;
        }
    }
    if (lowest != NULL) {
        return lowest;
    }
    int64_t unit = pool->is_small ? ALLOCATOR_SMALL_SEGMENT_BYTES : ALLOCATOR_LARGE_SEGMENT_BYTES;
    struct allocator_block *block = make_segment(
        allocator, pool, ceil_div(EXPANDABLE_BYTES, unit) * unit, unit, segment_address);
    list_add(&pool->unmapped, block);
    return block;
}

static struct allocator_block *expand(struct allocator *allocator, struct pool *pool, int64_t bytes,
                                      int64_t segment_address) {
    struct allocator_block *block = find_expandable(allocator, pool, bytes, segment_address);
    if (!block->is_mapped) {
        map(allocator, pool, block, block->bytes < bytes ? block->bytes : bytes);
    }
    while (block->bytes < bytes) {
        struct allocator_block *next = block->after;
        int64_t missing_bytes = bytes - block->bytes;
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): where merging frees, it links anew */
        map(allocator, pool, next, next->bytes < missing_bytes ? next->bytes : missing_bytes);
        block = next; /* it swallowed the one before it */
    }
    list_remove(&pool->idle, block);
    return block;
}

/* Unmap the whole units of a free block; what lies around them stays free. */
static void unmap(struct allocator *allocator, struct pool *pool, struct allocator_block *block) {
    int64_t address, bytes = block_whole_units(block, &address);
    if (bytes == 0) {
        return;
    }
    list_remove(&pool->idle, block);
    if (address > block->address) {
        struct allocator_block *rest = cut(block, address - block->address);
        make_idle(pool, block);
        block = rest;
    }
    if (bytes < block->bytes) {
        make_idle(pool, cut(block, bytes));
    }
    block->is_mapped = false;
    allocator->reserved_bytes -= bytes;
    merge_both(pool, block);
    if (block_fills_segment(block)) {
        drop_segment(allocator, block);
    } else {
        list_add(&pool->unmapped, block);
    }
}

/* ---- giving back to the device ---- */

/* Takes an idle block that fills its segment. */
static void release(struct allocator *allocator, struct pool *pool, struct allocator_block *block) {
    list_remove(&pool->idle, block);
    allocator->reserved_bytes -= block->bytes;
    drop_segment(allocator, block);
}

static void release_idle(struct allocator *allocator, struct pool *pool) {
    /* Unmapping adds and removes free blocks, but none of those that were there before. */
    size_t n = pool->idle.n;
    if (n == 0) {
        return;
    }
    struct allocator_block **blocks = mem_unwritten(n, sizeof *blocks);
    memcpy(blocks, pool->idle.blocks, n * sizeof *blocks);
    for (size_t i = 0; i < n; i++) {
        if (blocks[i]->segment->unit_bytes > 0) {
            unmap(allocator, pool, blocks[i]);
        } else if (block_fills_segment(blocks[i])) {
            release(allocator, pool, blocks[i]);
        }
    }
    free(blocks);
}

/* Give back segments that may not be split until `bytes` are free; whether they are. Idle blocks
 * from `bytes` on are such segments, or they would have been taken. */
static bool release_unsplittable(struct allocator *allocator, struct pool *pool, int64_t bytes) {
    int64_t max_split_bytes = allocator->settings.max_split_bytes, released_bytes = 0;
    struct block_list *idle = &pool->idle;
    if (max_split_bytes == 0 || allocator->is_expandable) {
        return false;
    }
    size_t at = block_list_find(idle, bytes, 0);
    if (at < idle->n) {
        release(allocator, pool, idle->blocks[at]);
        return true;
    }
    while (released_bytes < bytes && at > 0 && idle->blocks[at - 1]->bytes >= max_split_bytes) {
        struct allocator_block *block = idle->blocks[--at];
        released_bytes += block->bytes;
        release(allocator, pool, block);
    }
    return released_bytes >= bytes;
}

static bool collects_garbage(const struct allocator *allocator) {
    return allocator->settings.limit_bytes > 0 && allocator->settings.gc_threshold > 0;
}

static void collect_garbage(struct allocator *allocator) {
    struct pool *pool = &allocator->large;
    struct block_list *idle = &pool->idle;
    int64_t threshold_bytes =
        (int64_t)(allocator->settings.gc_threshold * (double)allocator->settings.limit_bytes);
    int64_t excess_bytes = allocator->reserved_bytes - threshold_bytes;
    int64_t total_age = 0, n_idle = 0, released_bytes = 0;
    for (size_t i = 0; i < idle->n; i++) {
        if (block_fills_segment(idle->blocks[i])) {
            total_age += pool->n_searches - idle->blocks[i]->idle_since;
            n_idle++;
        }
    }
    bool has_released = true;
    while (has_released && n_idle > 0 && released_bytes < excess_bytes) {
        double old = (double)total_age / (double)n_idle;
        has_released = false;
        for (size_t i = 0; i < idle->n;) {
            struct allocator_block *block = idle->blocks[i];
            int64_t age = pool->n_searches - block->idle_since;
            if (!block_fills_segment(block) || (double)age < old) {
                i++;
                continue;
            }
            has_released = true;
            released_bytes += block->bytes;
            total_age -= age;
            n_idle--;
            release(allocator, pool, block);
        }
    }
}

/* ---- allocating ---- */

static int64_t segment_bytes(int64_t bytes) {
    if (bytes <= ALLOCATOR_SMALL_BYTES) {
        return ALLOCATOR_SMALL_SEGMENT_BYTES;
    }
    if (bytes < ALLOCATOR_OWN_SEGMENT_BYTES) {
        return ALLOCATOR_LARGE_SEGMENT_BYTES;
    }
    return ceil_div(bytes, ALLOCATOR_ROUND_BYTES) * ALLOCATOR_ROUND_BYTES;
}

/* The size that a free block could have, with the unmapped addresses after it. */
static int64_t growable_bytes(const struct allocator_block *block) {
    bool grows = block->after != NULL && !block->after->is_mapped;
    return block->bytes + (grows ? block->after->bytes : 0);
}

/* The best fit, taken out of its list, or NULL. */
static struct allocator_block *take_idle(struct allocator *allocator, struct pool *pool,
                                         int64_t bytes) {
    struct block_list *idle = &pool->idle;
    int64_t max_split_bytes = allocator->settings.max_split_bytes;
    pool->n_searches += collects_garbage(allocator);
    size_t at = block_list_find(idle, bytes, 0);
    if (at == idle->n) {
        return NULL;
    }
    while (allocator->is_expandable && at + 1 < idle->n &&
           growable_bytes(idle->blocks[at + 1]) < growable_bytes(idle->blocks[at])) {
        at++;
    }
    struct allocator_block *block = idle->blocks[at];
    if (max_split_bytes > 0 &&
        (bytes < max_split_bytes ? block->bytes >= max_split_bytes
                                 : block->bytes >= bytes + ALLOCATOR_ROUNDING_BYTES)) {
        return NULL;
    }
    list_remove(idle, block);
    return block;
}

/* A block of memory that the device gives now, in no list, or NULL beyond the limit. */
static struct allocator_block *take_new(struct allocator *allocator, struct pool *pool,
                                        int64_t bytes, int64_t segment_address) {
    int64_t new_bytes = segment_bytes(bytes), limit_bytes = allocator->settings.limit_bytes;
    if (limit_bytes > 0 && allocator->reserved_bytes + new_bytes > limit_bytes) {
        return NULL;
    }
    if (allocator->is_expandable) {
        return expand(allocator, pool, bytes, segment_address);
    }
    allocator->reserved_bytes += new_bytes;
    return make_segment(allocator, pool, new_bytes, 0, segment_address);
}

static bool leaves_a_block(const struct allocator *allocator, const struct allocator_block *block,
                           int64_t bytes) {
    int64_t rest_bytes = block->bytes - bytes,
            max_split_bytes = allocator->settings.max_split_bytes;
    if (block->segment->is_small || allocator->is_expandable) {
        return rest_bytes >= ALLOCATOR_BLOCK_BYTES;
    }
    return rest_bytes > ALLOCATOR_SMALL_BYTES && (max_split_bytes == 0 || bytes < max_split_bytes);
}

struct allocator_block *allocator_alloc(struct allocator *allocator, int64_t bytes,
                                        int64_t segment_address) {
    ASSERT(bytes > 0 && bytes <= STREAM_MAX_BYTES);
    bytes = ceil_div(bytes, ALLOCATOR_BLOCK_BYTES) * ALLOCATOR_BLOCK_BYTES;
    struct pool *pool = pool_of(allocator, bytes <= ALLOCATOR_SMALL_BYTES);
    struct allocator_block *block = take_idle(allocator, pool, bytes);
    if (block == NULL && collects_garbage(allocator)) {
        collect_garbage(allocator);
    }
    if (block == NULL) {
        block = take_new(allocator, pool, bytes, segment_address);
    }
    if (block == NULL && release_unsplittable(allocator, pool, bytes)) {
        block = take_new(allocator, pool, bytes, segment_address);
    }
    if (block == NULL) {
        allocator_empty(allocator);
        block = take_new(allocator, pool, bytes, segment_address);
    }
    if (block == NULL) {
        return NULL;
    }
    if (leaves_a_block(allocator, block, bytes)) {
        make_idle(pool, cut(block, bytes));
    }
    block->is_allocated = true;
    allocator->allocated_bytes += block->bytes;
    return block;
}

void allocator_free(struct allocator *allocator, struct allocator_block *block) {
    ASSERT(block->is_allocated);
    struct pool *pool = pool_of(allocator, block->segment->is_small);
    allocator->allocated_bytes -= block->bytes;
    block->is_allocated = false;
    merge_both(pool, block);
    make_idle(pool, block);
}

void allocator_empty(struct allocator *allocator) {
    release_idle(allocator, &allocator->large);
    release_idle(allocator, &allocator->small);
}

/* ---- counting ---- */

/* Of a free block: what stays when all idle memory is given back. */
static int64_t stuck_bytes(const struct allocator_block *block) {
    int64_t address;
    if (block->segment->unit_bytes > 0) {
        return block->bytes - block_whole_units(block, &address);
    }
    return block_fills_segment(block) ? 0 : block->bytes;
}

static int64_t list_stuck_bytes(const struct block_list *list) {
    int64_t bytes = 0;
    for (size_t i = 0; i < list->n; i++) {
        bytes += stuck_bytes(list->blocks[i]);
    }
    return bytes;
}

/* Contiguous mapped ranges of a segment. */
static int64_t count_ranges(const struct segment *segment) {
    int64_t n = 0;
    if (segment->unit_bytes == 0) {
        return 1;
    }
    for (const struct allocator_block *block = segment->first; block != NULL;
         block = block->after) {
        n += block->is_mapped && (block->before == NULL || !block->before->is_mapped);
    }
    return n;
}

struct allocator_counts allocator_counts(const struct allocator *allocator) {
    struct allocator_counts counts = {
        .reserved_bytes = allocator->reserved_bytes,
        .allocated_bytes = allocator->allocated_bytes,
        .inactive_bytes =
            list_stuck_bytes(&allocator->small.idle) + list_stuck_bytes(&allocator->large.idle),
    };
    for (size_t i = 0; i < allocator->n_segments; i++) {
        counts.n_segments += count_ranges(allocator->segments[i]);
    }
    return counts;
}

/* ---- opening, closing, reporting ---- */

struct allocator *allocator_open(const struct allocator_settings *settings, bool is_expandable) {
    struct allocator *allocator = mem_zeroed(1, sizeof *allocator);
    allocator->settings = *settings;
    allocator->is_expandable = is_expandable;
    allocator->small.is_small = true;
    allocator->lowest_address = FIRST_ADDRESS;
    return allocator;
}

static void pool_fini(struct pool *pool) {
    free(pool->idle.blocks);
    free(pool->unmapped.blocks);
}

void allocator_close(struct allocator *allocator) {
    if (allocator == NULL) {
        return;
    }
    for (size_t i = 0; i < allocator->n_segments; i++) {
        for (struct allocator_block *block = allocator->segments[i]->first; block != NULL;) {
            struct allocator_block *after = block->after;
            free(block);
            block = after;
        }
        free(allocator->segments[i]);
    }
    free(allocator->segments);
    pool_fini(&allocator->small);
    pool_fini(&allocator->large);
    free(allocator);
}

int64_t allocator_address(const struct allocator_block *block) {
    return block->address;
}
