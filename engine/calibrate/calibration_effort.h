/* How often a calibration runs a whole step, and which steps are long. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_EFFORT_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_EFFORT_H

#include <stdbool.h>
#include <stddef.h>

/* Runs of a step: in rounds of all steps, in a row for the host's time, with a time for each
 * operator, and without a captured graph. */
struct step_times_of {
    size_t rounds, busy, operators, issued;
};

/* Of long steps, which are seldom fitted, less often; one by one not at all. */
struct step_effort {
    size_t warm; /* rounds before they are timed: issued, then recorded, then played */
    struct step_times_of of_others, of_rested, of_long; /* the last two where the device rests */
};
enum { EFFORT_FULL, EFFORT_LESS, EFFORTS };
extern const struct step_effort step_efforts[EFFORTS];

/* How long after a rest firmware takes to look at what a card draws. A step that lasts longer may
 * end at another clock than it begins at: of operators at the highest one its beginning tells. */
#define CALIBRATION_LOOK_NS 45e6
static inline bool calibration_step_is_long(double device_ns) {
    return device_ns > CALIBRATION_LOOK_NS;
}

#endif
