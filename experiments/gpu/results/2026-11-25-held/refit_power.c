/* The power constants of a calibration that was made before the fit knew that a hold's mean power
 * has its first steps at the highest clock in it: from the held steps in its JSON, by the program's
 * own power_fit. Prints the profile's rows.
 *
 *   gcc -std=c11 -D_GNU_SOURCE -I. experiments/gpu/results/2026-11-25-held/refit_power.c \
 *       build/libunmask.a -ljansson -lgsl -lopenblas -lm -o refit_power
 *   refit_power calibrate-MODEL.json */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/calibrate/power_fit.h"

enum { MOST = 256 };
static const double long_ns = 45e6,
                    held_ns = 2.5e9; /* calibration_step_is_long; engine/calibrate/hold.c */

static double real(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* Host terms of a step: those of its sides' kinds that there are. */
static double host_ns(const json_t *root, const json_t *step) {
    double step_ns = 0, sum = 0;
    size_t i;
    json_t *side;
    json_array_foreach(json_object_get(step, "sides"), i, side) {
        const json_t *host = json_object_get(json_object_get(root, "host"),
                                             json_string_value(json_object_get(side, "kind")));
        step_ns = fmax(step_ns, real(host, "step_ns"));
        sum += real(host, "request_ns") * real(side, "requests");
    }
    return step_ns + sum;
}

/* What a long step's operators take, corrected: its prediction less the host's part and what the
 * clock added to one step behind a rest. */
static double corrected_ns(const struct power *power, const json_t *root, const json_t *step,
                           const struct power_sample *s) {
    const double host = host_ns(root, step), predicted = real(step, "predicted_ns");
    double low = predicted / 2, high = predicted;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        const struct power_step once = {middle, s->compute_ns,
                                        power_joules(power, s->flops, s->bytes)};
        struct power_state rested = {{0}};
        *(power_run(power, &once, &rested).ns < predicted ? &low : &high) = middle;
    }
    return low - host;
}

int main(int argc, char **argv) {
    struct power_sample samples[MOST];
    struct power old = {0}, found;
    struct power_errors errors;
    struct err err = {0};
    json_error_t bad;
    json_t *root = argc == 2 ? json_load_file(argv[1], 0, &bad) : NULL, *step;
    size_t n = 0, i;
    if (root == NULL) {
        fprintf(stderr, "refit_power CALIBRATE.json\n");
        return 2;
    }
    const char *const keys[] = {"idle_w", "limit_w", "flop_pj", "byte_pj", "exponent", "lag_ms"};
    for (size_t k = 0; k < 6; k++) {
        power_take(&old, keys[k], real(json_object_get(root, "power"), keys[k]));
    }
    json_array_foreach(json_object_get(root, "steps"), i, step) {
        const json_t *held = json_object_get(step, "held");
        if (!json_is_object(held) || n == MOST) {
            continue;
        }
        struct power_sample *s = &samples[n++];
        *s = (struct power_sample){.first_ns = real(held, "first_ns"),
                                   .settled_ns = real(held, "settled_ns"),
                                   .gap_ns = real(held, "gap_ns"),
                                   .compute_ns = real(held, "compute_ns"),
                                   .flops = real(held, "flops"),
                                   .bytes = real(held, "bytes"),
                                   .watts = real(held, "watts"),
                                   .lag_ms = real(held, "lag_ms"),
                                   .held_ns = held_ns};
        if (s->first_ns > long_ns && old.limit_w > 0) {
            s->first_ns = corrected_ns(&old, root, step, s);
        }
    }
    if (power_fit(samples, n, old.idle_w, &found, &errors, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("# power: %zu steps held until their clock had settled; modelled time %.2f %% off "
           "(without clocks %.2f %%), power %.2f %%, root mean squares%s\n",
           errors.n, 100 * errors.time, 100 * errors.unslowed, 100 * errors.watts,
           errors.lag_is_assumed ? "; the lag is assumed" : "");
    power_write(&found, stdout);
    json_decref(root);
    return 0;
}
