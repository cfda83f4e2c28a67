/* What a systems file and the command line say of a system, key by key. */
#ifndef UNMASK_SIM_SYSTEM_SETTING_H
#define UNMASK_SIM_SYSTEM_SETTING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MAX_CALIBRATED = 16, MAX_SETTINGS = 160, MAX_ASSUMED = 8, SETTING_KEY_CHARS = 64 };

/* A calibrated constant in force, for outputs. */
struct calibrated {
    char name[48], fitted_to[160];
    double value;
};

/* A setting that the file says was inferred, not printed (`assumed.KEY = why` next to KEY). */
struct assumption {
    char key[64], value[192], why[256];
};

enum said_by {
    SAID_BY_COMMAND, /* line */
    SAID_BY_FILE,    /* of the user's systems */
    SAID_BY_SHIPPED, /* systems, or a default */
};

/* One KEY = VALUE with the place it came from. */
struct setting {
    char key[SETTING_KEY_CHARS], value[192], place[128];
    char constant[48]; /* the calibrated constant that `value` was; "": none */
    uint32_t layer;    /* written by the system: later layers override earlier ones */
    uint32_t said;     /* enum said_by */
};

/* The first of them with that key; NULL: there is none. */
static inline const struct setting *setting_find(const struct setting *settings, uint32_t n,
                                                 const char *key) {
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(settings[i].key, key) == 0) {
            return &settings[i];
        }
    }
    return NULL;
}

#endif
