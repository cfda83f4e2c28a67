#include "engine/calibrate/calibration_notes.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/device/surroundings.h"
#include "sim/model/gpu.h"

/* The reference is called drifting, and the clock's model poor, from here on: of ten calibrations
 * of H100s and H200s it was at most 1.1 % off (kernels/profiles). */
static const double drifts = 0.05, power_is_poor = 0.025;

__attribute__((format(printf, 3, 4))) static void note(const struct calibration_request *request,
                                                       struct calibration_report *report,
                                                       const char *format, ...) {
    if (report->n_notes == CALIBRATION_NOTES) {
        return;
    }
    char *to = report->notes[report->n_notes++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(to, CALIBRATION_NOTE_CHARS, format, arguments);
    va_end(arguments);
    if (request->note != NULL) {
        request->note(request->note_state, to);
    }
}

/* ---- the machine ---- */

struct telling {
    const struct calibration_request *request;
    struct calibration_report *report;
};

static void tell(void *state, const char *sentence) {
    const struct telling *telling = state;
    note(telling->request, telling->report, "%s", sentence);
}

void calibration_note_surroundings(const struct calibration_request *request,
                                   struct calibration_report *report) {
    struct telling telling = {request, report};
    engine_say_surroundings(request->device, "", tell, &telling);
    engine_say_spilled(request->device, request->weights->layout.bytes, tell, &telling);
}

void calibration_note_bounds(const struct calibration_request *request,
                             const struct calibration_bounds *bounds,
                             struct calibration_report *report) {
    if (bounds->max_tokens < request->max_tokens) {
        note(request, report,
             "the device's memory allows steps of up to %" PRId64 " tokens, not %" PRId64
             ": larger ones will be extrapolated",
             bounds->max_tokens, request->max_tokens);
    }
}

void calibration_note_time(const struct calibration_request *request, double estimated_ns,
                           double all_ns, size_t n_points, double n_rounds, size_t n_steps) {
    char text[CALIBRATION_NOTE_CHARS], more[128] = "";
    if (all_ns > estimated_ns) {
        snprintf(more, sizeof more,
                 "; in %.1f whole steps would be run as often as they should, and all of them",
                 all_ns / CALIBRATION_MINUTE_NS);
    }
    snprintf(text, sizeof text,
             "about %.1f minutes: %.0f round%s of %zu points, and %zu whole steps%s",
             estimated_ns / CALIBRATION_MINUTE_NS, n_rounds, n_rounds > 1 ? "s" : "", n_points,
             n_steps, more);
    if (request->note != NULL) {
        request->note(request->note_state, text);
    }
}

/* ---- operators ---- */

/* `peak` is what the file calls the most, `reached` what somebody has. */
static void compare_rate(const struct calibration_request *request,
                         struct calibration_report *report, const char *what, double unit,
                         const char *unit_name, double measured, double peak, double reached) {
    const char *file = request->system->gpu->name;
    if (measured > GPU_IS_FASTER * peak) {
        note(request, report,
             "this card is faster than %s says: %s of %.3g %s measured, %.3g stated; its rows are "
             "taken as they are",
             file, what, measured / unit, unit_name, peak / unit);
    } else if (measured > 0 && measured < GPU_IS_SLOWER * reached) {
        note(request, report,
             "this card is slower than %s says, or our kernels are: %s of %.3g %s measured, %.3g "
             "reached by others",
             file, what, measured / unit, unit_name, reached / unit);
    }
}

void calibration_note_operators(const struct calibration_request *request,
                                const struct profile *profile, struct calibration_report *report) {
    const struct gpu *gpu = request->system->gpu;
    const struct profile_rates rates = profile_rates(profile);
    report->best_flops = rates.flops;
    report->best_bandwidth = rates.bandwidth;
    if (request->device->facts.capability > 0) {
        compare_rate(request, report, "products", 1e12, "TFLOP/s", report->best_flops,
                     gpu_roof_flops(gpu), gpu->best_bf16_flops);
        compare_rate(request, report, "weights read", 1e12, "TB/s", report->best_bandwidth,
                     gpu->peak_bandwidth, gpu->best_bandwidth);
    }
    if (report->n_rounds == 1) {
        note(request, report,
             "only one round was measured, so that the spread of times is not known: give more "
             "--minutes");
    }
    if (report->reference_drift > drifts) {
        note(request, report,
             "the reference product drifted by %.0f %%: clocks, or another program on the device, "
             "changed meanwhile, and rows differ by as much",
             100 * report->reference_drift);
    }
}

/* ---- steps ---- */

void calibration_note_steps(const struct calibration_request *request,
                            struct calibration_report *report) {
    if (report->n_left_out > 0) {
        note(request, report,
             "the %zu longest whole steps were left out for want of time: give more --minutes",
             report->n_left_out);
    }
    if (report->n_fitted < report->n_fittable) {
        note(request, report,
             "%zu of %zu whole steps are in the fit; the others ran at another clock",
             report->n_fitted, report->n_fittable);
    }
    if (report->power_is_followed && !power_is_known(&report->power)) {
        note(request, report, "no power rows, so that runs are priced at the highest clock: %s",
             report->no_power.text);
    }
    if (power_is_known(&report->power) && report->power_errors.time > power_is_poor) {
        note(request, report,
             "steps that were repeated until their clock had settled are modelled %.1f %% off: "
             "prices under long load are off by as much",
             100 * report->power_errors.time);
    }
}
