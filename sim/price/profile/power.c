#include "sim/price/profile/power.h"

#include <stddef.h>
#include <string.h>

/* ---- constants ---- */

static const struct {
    const char *key;
    size_t offset;
    double most;
} constants[] = {
#define ROW(name, most) {#name, offsetof(struct power, name), most},
    POWER_CONSTANTS(ROW)
#undef ROW
};
enum { N_CONSTANTS = sizeof constants / sizeof *constants };

static double *constant(struct power *power, size_t i) {
    return (double *)(void *)((char *)power + constants[i].offset);
}

void power_write(const struct power *power, FILE *file) {
    struct power copy = *power;
    for (size_t i = 0; power_is_known(power) && i < N_CONSTANTS; i++) {
        fprintf(file, "power,%s,%.6g\n", constants[i].key, *constant(&copy, i));
    }
}

bool power_take(struct power *power, const char *key, double value) {
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        if (strcmp(constants[i].key, key) == 0) {
            *constant(power, i) = value;
            return value > 0 && value <= constants[i].most;
        }
    }
    return false;
}

const char *power_missing(const struct power *power) {
    struct power copy = *power;
    const char *missing = NULL;
    size_t n = 0;
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        bool is_given = *constant(&copy, i) > 0;
        n += is_given;
        missing = is_given || missing != NULL ? missing : constants[i].key;
    }
    return n > 0 ? missing : NULL;
}
