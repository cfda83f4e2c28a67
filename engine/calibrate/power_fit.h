/* A card's power constants (sim/price/profile/power.h) from steps that were each repeated for a
 * while: their time at first, after idling, and their time and power once the clock was stable. */
#ifndef UNMASK_ENGINE_CALIBRATE_POWER_FIT_H
#define UNMASK_ENGINE_CALIBRATE_POWER_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"
#include "sim/price/profile/power.h"

struct power_sample {
    double first_ns, settled_ns; /* device time of a step */
    double late_ns;    /* the same in the second half of the hold; in no fit: where it is more than
                        * settled_ns the clock goes on falling for longer than a hold lasts */
    double gap_ns;     /* between two steps */
    double compute_ns; /* of first_ns, as priced */
    double flops, bytes;   /* flops as a run counts them (power_flops) */
    double watts, held_ns; /* mean over the whole time, the steps at the highest clock included */
    double lag_ms; /* from the beginning until its time is stable, on average; where it rose */
};

struct power_errors {
    size_t n;
    double time, watts;   /* root mean squares of model / measured - 1 */
    double unslowed;      /* of time, had clocks been left out */
    bool lag_is_assumed;  /* no sample told one */
    bool busy_is_assumed; /* nor what a busy card draws */
};

/* ERR_WORLD where nothing was slowed or the samples say too little: the card has one clock then. */
int power_fit(const struct power_sample *samples, size_t n, double idle_w, struct power *out,
              struct power_errors *errors, struct err *err);

/* Its step at the highest clock, the gap after it included. */
struct power_step power_sample_step(const struct power *power, const struct power_sample *sample);

/* The model's prediction for a sample: device time once stable, and mean power: until the clock
 * has fallen, a lag after the beginning, a card draws more than its limit. */
void power_settle(const struct power *power, const struct power_sample *sample, double *ns,
                  double *watts);

#endif
