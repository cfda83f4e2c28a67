/* What the caching allocator's model holds, and whether it is sound. */
#include <inttypes.h>

#include "sim/memory/allocator_blocks.h"

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

/* ---- checking ---- */

struct sums {
    int64_t reserved_bytes, allocated_bytes;
    size_t n_idle, n_unmapped;
};

static bool is_listed(const struct block_list *list, const struct allocator_block *block) {
    size_t at = block_list_find(list, block->bytes, block->address);
    return at < list->n && list->blocks[at] == block;
}

static int verify_block(const struct allocator *allocator, const struct allocator_block *block,
                        struct sums *sums, struct err *err) {
    const struct pool *pool = block->segment->is_small ? &allocator->small : &allocator->large;
    sums->reserved_bytes += block->is_mapped ? block->bytes : 0;
    sums->allocated_bytes += block->is_allocated ? block->bytes : 0;
    sums->n_idle += !block->is_allocated && block->is_mapped;
    sums->n_unmapped += !block->is_mapped;
    if (block->bytes < ALLOCATOR_BLOCK_BYTES || (block->is_allocated && !block->is_mapped)) {
        return err_world(err, "the block at %" PRId64 " is too small or has no memory",
                         block->address);
    }
    if (is_listed(&pool->idle, block) != (!block->is_allocated && block->is_mapped) ||
        is_listed(&pool->unmapped, block) != !block->is_mapped) {
        return err_world(err, "the block at %" PRId64 " is not in the list it belongs to",
                         block->address);
    }
    if (block_is_free(block) && block_is_free(block->after) &&
        block->is_mapped == block->after->is_mapped) {
        return err_world(err, "the block at %" PRId64 " and the next are free but not merged",
                         block->address);
    }
    return 0;
}

static int verify_segment(const struct allocator *allocator, const struct segment *segment,
                          struct sums *sums, struct err *err) {
    int64_t address = segment->address;
    const struct allocator_block *before = NULL;
    int status = 0;
    for (const struct allocator_block *block = segment->first; status == 0 && block != NULL;
         block = block->after) {
        if (block->address != address || block->before != before || block->segment != segment) {
            return err_world(err, "the block at %" PRId64 " does not follow its neighbour",
                             block->address);
        }
        status = verify_block(allocator, block, sums, err);
        address += block->bytes;
        before = block;
    }
    if (status == 0 && address != segment->address + segment->bytes) {
        return err_world(err, "the blocks of the segment at %" PRId64 " do not fill it",
                         segment->address);
    }
    return status;
}

static int verify_apart(const struct allocator *allocator, struct err *err) {
    for (size_t i = 0; i < allocator->n_segments; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct segment *a = allocator->segments[i], *b = allocator->segments[j];
            if (segments_overlap(a, b)) {
                return err_world(err, "the segments at %" PRId64 " and %" PRId64 " overlap",
                                 a->address, b->address);
            }
        }
    }
    return 0;
}

int allocator_verify(const struct allocator *allocator, struct err *err) {
    struct sums sums = {0};
    int status = verify_apart(allocator, err);
    for (size_t i = 0; status == 0 && i < allocator->n_segments; i++) {
        status = verify_segment(allocator, allocator->segments[i], &sums, err);
    }
    if (status != 0) {
        return status;
    }
    if (sums.reserved_bytes != allocator->reserved_bytes ||
        sums.allocated_bytes != allocator->allocated_bytes ||
        sums.n_idle != allocator->small.idle.n + allocator->large.idle.n ||
        sums.n_unmapped != allocator->small.unmapped.n + allocator->large.unmapped.n) {
        return err_world(err, "the counts are not the sums over the blocks");
    }
    return 0;
}
