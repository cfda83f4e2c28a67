/* Calibration: measures every operator of a model's step graphs on a device, runs whole steps, and
 * writes what the cost model reads, a profile.
 *
 * Points are measured in interleaved rounds, all of them once and then all of them again, so that a
 * drift of the device meets every point alike; a row is the median of its rounds. A GPU that counts
 * what it draws can rest between measurements (the device's counts_energy, which who does not want
 * it clears), so that times are those at its highest clock; steps
 * that are then repeated for a second say what the clock does under load (power_fit.h). Any other
 * GPU is kept busy with large products for a second before groups of compute-bound points: under
 * sustained load it lowers its clocks, and steps are such a load. A reference product between
 * groups says how much the device has drifted. The dLLM-Serve profiler (arXiv 2512.17077,
 * section 4.2) measures the activation peak with a dummy run; here whole steps do, and the pages of
 * the pool follow from what memory the device then really has left. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATE_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATE_H

#include <signal.h>

#include "engine/calibrate/calibration_report.h"
#include "engine/device/device.h"
#include "engine/weights/weights.h"
#include "sim/system/system.h"

#define CALIBRATION_MINUTE_NS 60e9

struct calibration_request {
    const struct engine_device *device;
    const struct weights *weights;
    const char *weights_source; /* for the provenance, and the other ranks */
    /* Its model and GPU are calibrated, its pool's pages counted. Where the model is a rank's share
     * the other ranks are opened on the devices after this one, with weights from the same source.
     */
    const struct system *system;
    const char *path; /* replaced when all is measured; the caller has checked it */
    int64_t max_tokens;
    double minutes;                 /* of all of it: cuts rounds, then whole steps, never points */
    bool is_quick;                  /* few points, short plays */
    int64_t (*now_ns)(void *state); /* the host's clock */
    void *clock_state;
    const volatile sig_atomic_t *stop;                                /* may be NULL */
    void (*progress)(void *state, uint64_t n_done, uint64_t n_total); /* may be NULL */
    void *progress_state;
    void (*note)(void *state, const char *sentence); /* once it is known; may be NULL */
    void *note_state;
};

/* ERR_WORLD when the device fails or `stop` was set; FILE.partial then keeps the samples, and the
 * same request continues. Device, weights and system are borrowed. */
int calibrate(const struct calibration_request *request, struct calibration_report *report,
              struct err *err);

#endif
