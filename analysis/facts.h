/* What a run was and what it used, as known outside the recorded requests and steps.
 *
 * The composition of a run fills it; the summary prints it and the store keeps it. All text is
 * borrowed for the duration of a call. A figure that is not known is left out of tables and is null
 * in JSON, never zero. */
#ifndef UNMASK_ANALYSIS_FACTS_H
#define UNMASK_ANALYSIS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/provenance.h"
#include "sim/base/warning.h"
#include "sim/price/price.h"

enum figure_unit { UNIT_NONE, UNIT_BYTES, UNIT_SECONDS, UNIT_CALLS, UNIT_COUNT };
extern const char *const figure_unit_words[UNIT_COUNT]; /* "1" where there is none */

/* A named number with its provenance: a calibrated constant, or a figure of the real engine. */
struct run_figure {
    const char *name;
    double value;
    enum figure_unit unit;
    const char *source; /* where the value comes from; "" when `name` says it all */
};

/* Who says what operators take; price_shares has how much of the time is whose. */
struct run_prices {
    struct provenance from; /* of the profile, or of the data sheet */
    const char *behind;     /* the kind of what answers for sizes it lacks; NULL: nothing does */
    /* Whose kernels: "measured" (by unmask), "imported" or "roofline", and their name, or NULL; and
     * what a block takes by these prices over what it takes by imported ones, and by the data
     * sheet; NaN where the run has but one of the two. NULL: not said. */
    const char *of, *kernels;
    const char *asked; /* whose were asked for: those, or "best" */
    double over_imported, over_roofline;
};

/* Whose machine the host times are of; `kind` is a word of provenance_words. */
struct run_host {
    const char *name, *kind, *source; /* name NULL: host times were measured with the run */
    double factor;                    /* its time over the reference host's */
};

/* What decided which positions each step commits. */
struct run_decisions {
    bool drawn;             /* from a decode process; else by number alone, recorded or real */
    const char *process;    /* its name; NULL unless drawn */
    struct provenance from; /* of a process that was drawn from; else its source alone counts */
    const char *error;      /* error of the process against measured decisions, or that it is not
                               known; NULL: nothing is drawn */
};

/* What all cards of the run drew from the first arrival to the last finish, idling included; 0: not
 * known. Measured by the cards' own counter, priced where the profile knows their power. */
struct run_energy {
    double measured_j, priced_j;
};

struct quality;

struct run_facts {
    /* Who ran what. `profile_kind` is measured, imported, transferred or roofline, and every output
     * that names the profile repeats it. `trace_provenance` likewise says what is assumed. */
    const char *system, *model, *gpu;
    const char *profile, *profile_kind;
    struct run_prices prices;
    struct run_host host;
    const char *backend;
    /* Of the real engine, else NULL: the device, as its maker calls it, where the times were
     * measured; and where the weights come from. */
    const char *device, *weights;
    bool emulated; /* the device stands in for another one, the system's GPU */
    /* GPUs that hold each replica together, those of all replicas, and where the prices of what
     * they exchange come from; 0 and NULL: a replica is one GPU. */
    uint32_t tensor_parallel, gpus;
    const char *collectives;
    const char *clock; /* of the real engine, else NULL: real, or virtual, which skips idle time */
    const char *incomplete; /* why the run was cut short; NULL: it is whole */
    const char *trace, *trace_provenance;
    struct run_decisions decisions;
    double asked_req_s; /* the rate asked for; 0: none was (analysis/offered.h) */
    bool is_drawn;      /* arrivals, lengths or decisions: another seed gives another run */
    /* Provenance of the answer lengths: a word of provenance_words, and its source for people;
     * NULL: not given. */
    const char *answers_kind, *answers_source;
    uint64_t seed; /* below 2^63, the largest integer of JSON readers and SQLite */

    /* Memory of one replica, bytes; -1: not known. */
    int64_t weights_bytes, reserve_bytes, kv_pool_bytes, kv_peak_bytes;
    int64_t activation_peak_bytes, logit_peak_bytes;

    /* How often a price was on the profile's grid, between its points, beyond it, or found by
     * roofline where the profile has no such operator. */
    uint64_t price_exact, price_interpolated, price_extrapolated, price_roofline;
    /* The same by the time that the operators took, and by whose word it is; all 0: not simulated.
     */
    struct price_shares price_shares;

    /* Shares of 1, averaged over the makespan; negative: not known (a negative gpu_busy is taken
     * from the steps where the executor reported GPU time). MFU takes 1 TFLOP as 10^12. */
    double gpu_busy, mfu, bandwidth_util;

    struct run_energy energy;

    const struct run_figure *constants; /* the calibrated constants in force */
    size_t n_constants;
    const struct run_figure *engine; /* figures of the real engine; none in a simulation */
    size_t n_engine;

    const struct quality *quality; /* of a run that was asked prompts; NULL: none was */

    /* Facts other than the requests that make the result easy to misread (caution.h). */
    struct warnings warnings;

    const char *config;            /* the resolved configuration, as an INI text */
    const struct json_t *policies; /* {KIND: {name, file, changed}}; NULL: not said */
    const struct json_t *identity; /* analysis/identity.h; NULL: not known, and left out */
    const struct json_t *bound;    /* what no scheduler can beat; NULL: not asked for, left out */
};

/* As measured, else as priced. */
static inline double run_energy_joules(const struct run_energy *energy) {
    return energy->measured_j > 0 ? energy->measured_j : energy->priced_j;
}

/* Every text "", every size and share not known, no constants: a start to fill in from. */
struct run_facts run_facts_unknown(void);

#endif
