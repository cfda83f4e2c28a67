/* Fitted decode processes as a table, and as the numbers of experiments/decode.ini. */
#include <math.h>
#include <string.h>

#include "experiments/study/decode_fit.h"
#include "sim/decode/process_file.h"

int decode_fit_print(const struct decode_fits *fits, FILE *out, struct err *err) {
    for (int s = 0; s < N_DECODE_SHAPES; s++) {
        const struct decode_process *shape = &fits->fit[s][0].process;
        fprintf(out,
                "shape %s: distance %.4f, gap %.4g, context %.4g, position_spread %.4f, "
                "step_spread %.4g, delta_distance %.4f, delta_noise %.4f\n"
                "  in the top quintile of deltas %.1f %% (printed: %.1f %%)\n",
                decode_shape_names[s], shape->distance, shape->gap, shape->context,
                shape->position_spread, shape->step_spread, shape->delta_distance,
                shape->delta_noise, 100 * fits->quintile[s], 100 * fits->quintile_target);
        fprintf(out, "  %-28s %10s %10s %9s %9s %12s %12s\n", "process", "stored", "fitted",
                "printed", "gives", "FOCUS gives", "FOCUS prints");
        for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
            const struct decode_fit *fit = &fits->fit[s][i];
            char name[64], printed[32] = "-";
            struct decode_process stored;
            decode_process_name(decode_targets[i].process, (enum decode_shape)s, name, sizeof name);
            int status = decode_process_find(name, &stored, err);
            if (status != 0) {
                return status;
            }
            if (!isnan(fits->focus_target[i])) {
                snprintf(printed, sizeof printed, "%.2f", fits->focus_target[i]);
            }
            fprintf(out, "  %-28s %10.4f %10.4f %9.2f %9.2f %12.2f %12s\n", name, stored.location,
                    fit->process.location, fit->target, fit->reached, fits->focus[s][i], printed);
        }
    }
    return 0;
}

static void add(struct fitted_number *out, size_t *n, const char *section, const char *key,
                double value) {
    out[*n] = (struct fitted_number){.key = key, .value = value};
    snprintf(out[(*n)++].section, sizeof out->section, "%s", section);
}

size_t decode_fit_numbers(const struct decode_fits *fits, struct fitted_number *out) {
    size_t n = 0;
    for (int s = 0; s < N_DECODE_SHAPES; s++) {
        const struct decode_process *shape = &fits->fit[s][0].process;
        add(out, &n, decode_shape_names[s], "distance", shape->distance);
        add(out, &n, decode_shape_names[s], "position_spread", shape->position_spread);
        add(out, &n, decode_shape_names[s], "delta_distance", shape->delta_distance);
        add(out, &n, decode_shape_names[s], "delta_noise", shape->delta_noise);
        for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
            char name[64];
            decode_process_name(decode_targets[i].process, (enum decode_shape)s, name, sizeof name);
            add(out, &n, name, "location", fits->fit[s][i].process.location);
        }
    }
    return n;
}
