#include "sim/price/profile/tiles.h"

#include <stddef.h>
#include <string.h>

static const double most = 65536;

const struct tiles tiles_default = {
#define INITIAL(name, initial) .name = (initial),
    TILE_FACTS(INITIAL)
#undef INITIAL
};

static const struct {
    const char *key;
    size_t offset;
} facts[] = {
#define FACT(name, initial) {#name, offsetof(struct tiles, name)},
    TILE_FACTS(FACT)
#undef FACT
};
enum { N_FACTS = sizeof facts / sizeof facts[0] };

bool tiles_take(struct tiles *tiles, const char *key, double value) {
    for (size_t i = 0; i < N_FACTS; i++) {
        if (strcmp(facts[i].key, key) == 0 && value > 0 && value <= most) {
            memcpy((char *)tiles + facts[i].offset, &value, sizeof value);
            return true;
        }
    }
    return false;
}

void tiles_write(const struct tiles *tiles, FILE *file) {
    for (size_t i = 0; i < N_FACTS; i++) {
        double value;
        memcpy(&value, (const char *)tiles + facts[i].offset, sizeof value);
        fprintf(file, "tile,%s,%.6g\n", facts[i].key, value);
    }
}
