/* What a calibration came to. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_REPORT_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_REPORT_H

#include <stdio.h>

#include "engine/calibrate/calibration_steps.h"
#include "engine/calibrate/host_fit.h"
#include "sim/price/profile/correction.h"

struct error_summary {
    size_t n;
    double median, p95; /* of |predicted / measured - 1| */
};

enum { CALIBRATION_NOTES = 16, CALIBRATION_NOTE_CHARS = 256 };

struct calibration_report {
    char notes[CALIBRATION_NOTES][CALIBRATION_NOTE_CHARS]; /* sentences about what to beware of */
    size_t n_notes;
    double best_flops, best_bandwidth; /* of its products: FLOP/s, bytes/s of weights */
    size_t n_points, n_found;          /* points; samples that an earlier run had left */
    uint32_t n_rounds;
    double spread_median, spread_p95; /* (largest - smallest) / median over a point's rounds */
    int64_t reference_size;           /* its product has this many rows, columns and inputs */
    double reference_first_us, reference_median_us,
        reference_drift;          /* (largest - smallest) / first */
    struct correction correction; /* fitted to whole steps */
    struct power power; /* fitted to steps that were held; zeros: the device tells nothing */
    struct power_errors power_errors;
    struct err no_power;         /* why nothing was fitted, where something was followed */
    size_t n_fitted, n_fittable; /* steps; of those that are not held out */
    size_t n_left_out;           /* steps that there was no time for */
    double estimated_ns;         /* of the whole, as announced at the start; 0: none was */
    double took_ns;
    bool power_is_followed; /* the device says what it draws: its clock is told from its work */
    struct host_fit host[HOST_KIND_COUNT];
    double issued_ns[HOST_KIND_COUNT]; /* what a step takes more that is no captured graph; 0:
                                          nothing says it */
    struct calibration_steps steps;
    struct error_summary fitted, held_out, mixed;
    /* Mixed steps over the sum of their sides run alone, medians: less than 1, since the sides
     * share a reading of the weights. What is measured, and what prices say. */
    double additivity_measured, additivity_predicted;
    int64_t free_bytes;               /* of device memory, weights in place */
    int64_t kv_pages, kv_page_tokens; /* of the system; 0 pages where it has none */
};

/* As comments of a profile: errors and additivity of whole steps; how well power fits. */
void calibration_write_errors(const struct calibration_report *report, FILE *file);
void calibration_write_power_errors(const struct power_errors *errors, FILE *file);

#endif
