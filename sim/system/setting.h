/* What a systems file and the command line say of a system, key by key. */
#ifndef UNMASK_SIM_SYSTEM_SETTING_H
#define UNMASK_SIM_SYSTEM_SETTING_H

#include <stdint.h>

enum { MAX_CALIBRATED = 16, MAX_SETTINGS = 160, MAX_ASSUMED = 8 };

/* A calibrated constant in force, for outputs. */
struct calibrated {
    char name[48], fitted_to[160];
    double value;
};

/* A setting that the file says was inferred, not printed (`assumed.KEY = why` beside KEY). */
struct assumption {
    char key[64], value[192], why[256];
};

/* One KEY = VALUE with the place it came from. */
struct setting {
    char key[64], value[192], place[128];
    char constant[48]; /* the calibrated constant that `value` was; "": none */
    uint32_t layer;    /* written by the system: later layers override earlier ones */
};

#endif
