#include "engine/weights/bpe.h"

#include <stdbool.h>
#include <stdlib.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

struct merge {
    uint64_t pair; /* left << 32 | right */
    uint32_t rank;
    int32_t made; /* -1: an empty place of the table */
};

/* A token of the word being merged, in a list; a pair is named by its left one. */
struct part {
    int32_t id; /* -1: merged into the one before */
    uint32_t previous, next;
};

/* A pair that may be merged: it is out of date when its merge is no longer that of its place. */
struct candidate {
    uint32_t rank, at;
};

enum { NOBODY = UINT32_MAX };

struct bpe {
    struct merge *table; /* open addressing */
    size_t mask;
    uint32_t n_added;
    struct part *parts;
    struct candidate *heap;
    size_t n_heap, room; /* `room` parts and twice as many candidates */
};

struct bpe *bpe_open(size_t most_merges) {
    struct bpe *bpe = mem_zeroed(1, sizeof *bpe);
    size_t places = 16;
    while (places < 2 * most_merges) {
        places *= 2;
    }
    bpe->mask = places - 1;
    bpe->table = mem_unwritten(places, sizeof *bpe->table);
    for (size_t i = 0; i < places; i++) {
        bpe->table[i] = (struct merge){.made = -1};
    }
    return bpe;
}

void bpe_close(struct bpe *bpe) {
    if (bpe != NULL) {
        free(bpe->table);
        free(bpe->parts);
        free(bpe->heap);
        free(bpe);
    }
}

/* The pair's place in the table, or the empty one where it would stand. */
static struct merge *place_of(const struct bpe *bpe, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (size_t)((pair * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & bpe->mask;
    while (bpe->table[at].made >= 0 && bpe->table[at].pair != pair) {
        at = (at + 1) & bpe->mask;
    }
    return &bpe->table[at];
}

void bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t made) {
    ASSERT(left >= 0 && right >= 0 && made >= 0 && bpe->n_added <= bpe->mask / 2);
    *place_of(bpe, left, right) =
        (struct merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, bpe->n_added++, made};
}

static bool comes_first(const struct candidate *a, const struct candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct bpe *bpe, struct candidate candidate) {
    size_t at = bpe->n_heap++;
    while (at > 0 && comes_first(&candidate, &bpe->heap[(at - 1) / 2])) {
        bpe->heap[at] = bpe->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    bpe->heap[at] = candidate;
}

static struct candidate pop(struct bpe *bpe) {
    struct candidate first = bpe->heap[0], last = bpe->heap[--bpe->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < bpe->n_heap && comes_first(&bpe->heap[child + 1], &bpe->heap[child])) {
            child++;
        }
        if (child >= bpe->n_heap || !comes_first(&bpe->heap[child], &last)) {
            break;
        }
        bpe->heap[at] = bpe->heap[child];
        at = child;
    }
    bpe->heap[at] = last;
    return first;
}

static const struct merge *merge_at(const struct bpe *bpe, uint32_t at) {
    const struct part *part = &bpe->parts[at];
    if (part->id < 0 || part->next == NOBODY) {
        return NULL;
    }
    const struct merge *merge = place_of(bpe, part->id, bpe->parts[part->next].id);
    return merge->made >= 0 ? merge : NULL;
}

static void consider(struct bpe *bpe, uint32_t at) {
    const struct merge *merge = merge_at(bpe, at);
    if (merge != NULL) {
        push(bpe, (struct candidate){merge->rank, at});
    }
}

static void lay_out(struct bpe *bpe, const int32_t *ids, size_t n) {
    if (n > bpe->room) {
        bpe->room = 2 * n;
        bpe->parts = mem_resized(bpe->parts, bpe->room, sizeof *bpe->parts);
        /* One candidate a pair at first, and two for each of the n - 1 merges. */
        bpe->heap = mem_resized(bpe->heap, 3 * bpe->room, sizeof *bpe->heap);
    }
    for (size_t i = 0; i < n; i++) {
        bpe->parts[i] = (struct part){ids[i], i > 0 ? (uint32_t)i - 1 : NOBODY,
                                      i + 1 < n ? (uint32_t)i + 1 : NOBODY};
    }
    bpe->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        consider(bpe, (uint32_t)i);
    }
}

size_t bpe_merge(struct bpe *bpe, int32_t *ids, size_t n) {
    ASSERT(n < NOBODY);
    lay_out(bpe, ids, n);
    while (bpe->n_heap > 0) {
        struct candidate best = pop(bpe);
        const struct merge *merge = merge_at(bpe, best.at);
        if (merge == NULL || merge->rank != best.rank) {
            continue;
        }
        struct part *left = &bpe->parts[best.at], *right = &bpe->parts[left->next];
        left->id = merge->made;
        right->id = -1;
        left->next = right->next;
        if (left->next != NOBODY) {
            bpe->parts[left->next].previous = best.at;
        }
        consider(bpe, best.at);
        if (left->previous != NOBODY) {
            consider(bpe, left->previous);
        }
    }
    size_t n_left = 0;
    for (uint32_t at = n > 0 ? 0 : NOBODY; at != NOBODY; at = bpe->parts[at].next) {
        ids[n_left++] = bpe->parts[at].id;
    }
    return n_left;
}
