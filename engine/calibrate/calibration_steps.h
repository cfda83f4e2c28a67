/* The whole steps of a calibration: what the engine really takes for batches of known shapes, to be
 * held against the sum of their operators.
 *
 * A step is one or two sides, each of requests of one kind, equal but for the lengths of what
 * blocks attend to; mixed steps have two, and each of their sides is a step of its own elsewhere in
 * the list. Every step is run with the fused operators (output head, gate and up) and without.
 * Canvases are random but for their active block, half of which is masked and decides.
 *
 * Where keys and values are exact a refresh is a prefill, of a canvas of whole blocks or of tokens,
 * and a reuse decodes the last block of a canvas, or one token after it, against the pages of what
 * is before; nothing selects. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_STEPS_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_STEPS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/calibrate/calibration_grid.h"
#include "engine/calibrate/hold.h"
#include "engine/step/forward.h"
#include "engine/weights/ranks.h"
#include "sim/price/profile/correction.h"
#include "sim/price/runtime.h"

/* ---- how often a step is run, and which are long ---- */

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

/* ---- what a step is ---- */

enum { CALIBRATION_MAX_STEPS = 128, STEP_MAX_SIDES = 2 };

/* By enum host_kind, as profiles name them. */
extern const char *const step_kind_names[HOST_KIND_COUNT];

struct steps_kept; /* calibration_kept.h */

struct step_side {
    uint32_t kind;                      /* enum host_kind */
    uint32_t n_requests, canvas_tokens; /* of reuses the mean */
};

/* An operator of a step, all its executions together. */
struct step_operator {
    enum op_kind kind;
    struct correction_key key;
    int64_t rows;       /* of one execution; of attention its queries */
    double between_ns;  /* between events, which take time, too */
    double experts_hit; /* of an operator of experts, the mean of its layers; else 0 */
    /* Written by whoever prices them: how often it runs, and what that takes; then, of the step's
     * time, its part (sim/price/in_step.h). */
    uint32_t executions;
    double priced_ns, measured_ns;
};

struct calibration_step {
    struct step_side sides[STEP_MAX_SIDES];
    uint32_t n_sides;
    bool is_fused;
    bool is_held_out;          /* from the fit: some steps of one side, all of two */
    bool may_be_held;          /* until its clock is stable: some fused steps */
    int alone[STEP_MAX_SIDES]; /* of a mixed step: the steps that run its sides alone; else -1 */
    bool is_cut;               /* its operators' times are of its beginning alone */
    /* Measured: medians over the repetitions. The wall time is that of submitting the step, waiting
     * for it and reading what it committed. */
    double wall_ns, device_ns;
    /* The same of the device while operators are issued one by one, not launched as a captured
     * graph; 0: not measured. */
    double issued_ns;
    struct step_operator operators[GRAPH_MAX_OPS]; /* those of its graph */
    uint32_t n_operators;
    /* Written by whoever prices them. */
    double operators_ns, predicted_ns;
    double flops, bytes; /* of its operators; those of fp8 as a run counts them (power_flops) */
    /* The operators as corrected, as a run prices them, and what of that the clock stretches. */
    double corrected_ns, compute_ns;
    struct power_sample held; /* where the step was held (hold.h); watts 0: it was not */
};

struct calibration_steps {
    struct calibration_step list[CALIBRATION_MAX_STEPS];
    size_t n;
    int64_t activation_planned_bytes,
        activation_peak_bytes; /* the largest, as placed and metered */
    double idle_w;             /* what the device draws at rest; 0: it does not say */
};

/* How steps are run. */
struct steps_request {
    const struct engine_device *device;
    const struct weights *weights;
    struct ranks *ranks; /* where the model is a rank's share; else NULL */
    const struct planner *planner;
    struct chunk_rows chunks; /* of stored logits and FFN */
    struct calibration_bounds bounds;
    const struct step_effort *effort;
    struct steps_kept *kept;        /* what was measured before, and where the rest is kept */
    int64_t (*now_ns)(void *state); /* the host's clock */
    void *clock_state;
    const volatile sig_atomic_t *stop; /* may be NULL */
    void (*done)(void *state);         /* called after each step */
    void *done_state;
};

/* The list for these bounds, nothing measured yet. */
void calibration_steps_list(struct calibration_steps *steps, const struct model *model,
                            const struct calibration_bounds *bounds);

/* Which of the model's graphs runs the step. */
int calibration_step_variant(const struct calibration_step *step);

/* The side's r-th request by itself. Canvases that blocks attend to differ in length, as those of
 * the operators' own points do (trial_share): attention shares its work out by lengths. */
struct step_side calibration_side_one(const struct step_side *side, const struct model *model,
                                      uint32_t r);

/* Its sums; the ragged list is left out. */
void calibration_step_shape(const struct calibration_step *step, const struct model *model,
                            struct step_shape *shape);

/* Measure those of them that are not measured yet. ERR_WORLD when the device fails, its memory does
 * not suffice, or `stop` was set. */
int calibration_steps_measure(struct calibration_steps *steps, const struct steps_request *request,
                              struct err *err);

#endif
