#include "engine/device/stores.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

void stores_open(struct stores *stores, int64_t size, uint32_t max_places) {
    *stores = (struct stores){.size = size, .room = max_places};
    stores->places = mem_reserved(max_places, sizeof *stores->places);
}

void stores_close(struct stores *stores) {
    mem_released(stores->places);
    *stores = (struct stores){0};
}

static void insert(struct stores *stores, uint32_t at, struct store_place place) {
    ASSERT(stores->n < stores->room);
    memmove(stores->places + at + 1, stores->places + at,
            (stores->n - at) * sizeof *stores->places);
    stores->places[at] = place;
    stores->n++;
    stores->used += place.size;
    stores->most_used = stores->used > stores->most_used ? stores->used : stores->most_used;
}

int64_t stores_take(struct stores *stores, uint32_t owner, int64_t size, int64_t floor) {
    int64_t top = stores->size;
    for (uint32_t i = 0; i <= stores->n; i++) {
        int64_t bottom = i < stores->n ? stores->places[i].first + stores->places[i].size : floor;
        bottom = bottom > floor ? bottom : floor;
        if (top - bottom >= size) {
            insert(stores, i, (struct store_place){top - size, size, owner});
            return top - size;
        }
        top = i < stores->n ? stores->places[i].first : top;
    }
    return -1;
}

void stores_give(struct stores *stores, uint32_t owner) {
    for (uint32_t i = 0; i < stores->n; i++) {
        if (stores->places[i].owner == owner) {
            stores->used -= stores->places[i].size;
            memmove(stores->places + i, stores->places + i + 1,
                    (stores->n - i - 1) * sizeof *stores->places);
            stores->n--;
            return;
        }
    }
    ASSERT(!"an owner without a place");
}

int64_t stores_lowest(const struct stores *stores) {
    return stores->n > 0 ? stores->places[stores->n - 1].first : stores->size;
}

bool stores_push(struct stores *stores, struct store_move *move) {
    int64_t top = stores->size;
    for (uint32_t i = 0; i < stores->n; i++) {
        struct store_place *place = &stores->places[i];
        int64_t flush = top - place->size;
        if (place->first != flush) {
            *move = (struct store_move){place->owner, place->first, flush, place->size};
            place->first = flush;
            return true;
        }
        top = place->first;
    }
    return false;
}
