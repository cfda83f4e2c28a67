/* A calibration under way: shared by calibrate.c, which measures, and calibration_write.c. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_STATE_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_STATE_H

#include "engine/calibrate/calibrate.h"
#include "engine/calibrate/calibration_kept.h"
#include "engine/calibrate/calibration_time.h"
#include "sim/price/profile/profile.h"

struct calibration {
    const struct calibration_request *request;
    struct calibration_report *report;
    struct calibration_bounds bounds;
    struct calibration_grid grid;
    struct calibration_samples samples;
    struct calibration_log *log;
    struct measure *measure;
    struct exchange *exchange; /* with the other ranks; NULL: the model is on one device */
    struct calibration_pace pace;
    struct steps_kept kept;
    int64_t start_ns;
    double target_scale; /* of the device time for a sample */
    uint64_t n_done, n_total;
    double *references; /* [rounds, groups], as far as they were taken */
    size_t n_references;
    uint32_t *experts_hit;   /* of each point; 0: of no experts */
    struct profile *profile; /* of the operators */
};

static inline const struct storage *calibration_storage(const struct calibration *c) {
    return &c->request->weights->layout.storage;
}

static inline const struct model *calibration_model(const struct calibration *c) {
    return c->request->system->model;
}

static inline int64_t calibration_now_ns(const struct calibration *c) {
    return c->request->now_ns(c->request->clock_state);
}

static inline bool calibration_is_gpu(const struct calibration *c) {
    return c->request->device->facts.capability > 0;
}

static inline bool calibration_rests(const struct calibration *c) {
    return c->request->device->counts_energy;
}

/* The text of the profile, which the caller frees: its operators as far as they were measured; with
 * what came of the steps where they were run. */
char *calibration_profile_text(const struct calibration *c, bool has_steps);

#endif
