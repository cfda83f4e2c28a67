#include "engine/calibrate/calibration_report.h"

static void write_summary(const char *key, const struct error_summary *errors, FILE *file) {
    if (errors->n > 0) {
        fprintf(file, "# %s: %zu steps, median %.2f %%, 95th percentile %.2f %%\n", key, errors->n,
                100 * errors->median, 100 * errors->p95);
    }
}

void calibration_write_errors(const struct calibration_report *report, FILE *file) {
    write_summary("fitted", &report->fitted, file);
    write_summary("held_out", &report->held_out, file);
    write_summary("mixed", &report->mixed, file);
    fprintf(file, "# additivity: mixed steps over their sides alone: measured %.4f, priced %.4f\n",
            report->additivity_measured, report->additivity_predicted);
}

void calibration_write_power_errors(const struct power_errors *errors, FILE *file) {
    fprintf(file,
            "# power: %zu steps held until their clock had settled; modelled time %.2f %% off "
            "(without clocks %.2f %%), power %.2f %%, root mean squares%s%s\n",
            errors->n, 100 * errors->time, 100 * errors->unslowed, 100 * errors->watts,
            errors->lag_is_assumed ? "; the lag is assumed" : "",
            errors->busy_is_assumed ? "; what a busy card draws is assumed" : "");
}
