/* Places inside a pool: who lies where, contiguously, from the top down.
 *
 * Requests' cached rows are dense, so each needs one piece of the pool. A new place is the highest
 * gap that fits. When there is room but no gap, the places are pushed together towards the top,
 * move by move; the caller moves the bytes. The lower end is left to whoever shares the pool. */
#ifndef UNMASK_ENGINE_DEVICE_STORES_H
#define UNMASK_ENGINE_DEVICE_STORES_H

#include <stdbool.h>
#include <stdint.h>

struct store_place {
    int64_t first, size; /* in units of the pool */
    uint32_t owner;
};

struct stores {
    int64_t size, used, most_used;
    struct store_place *places; /* from the top down */
    uint32_t n, room;
};

void stores_open(struct stores *stores, int64_t size, uint32_t max_places);
void stores_close(struct stores *stores);

/* Where `owner`'s `size` units go, at or above `floor`, or -1: there is no such gap. An owner has
 * one place; a place of size 0 is none. */
int64_t stores_take(struct stores *stores, uint32_t owner, int64_t size, int64_t floor);
void stores_give(struct stores *stores, uint32_t owner);

/* The lowest unit in use; `size` when there is none. */
int64_t stores_lowest(const struct stores *stores);

/* One step of pushing everything to the top: false when nothing is left to move. Moves go upwards
 * and may overlap themselves, never another place. */
struct store_move {
    uint32_t owner;
    int64_t from, to, size;
};
bool stores_push(struct stores *stores, struct store_move *move);

#endif
