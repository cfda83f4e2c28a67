/* The power constants of several cards of a kind together: from the held steps of their
 * calibrations, by the program's own power_fit, with the mean of what they draw at rest. Prints the
 * profile's rows.
 *
 *   gcc -std=c11 -D_GNU_SOURCE -I. experiments/gpu/results/2026-11-25-cards/pool_power.c \
 *       build/libunmask.a -ljansson -lgsl -lopenblas -lm -o pool_power
 *   pool_power calibrate-MODEL.json... */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/calibrate/power_fit.h"

enum { MOST = 1024 };
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

/* Its held steps; what it draws at rest. */
static size_t add_samples(const json_t *root, struct power_sample *samples, double *idle_w) {
    struct power own = {0};
    size_t n = 0, i;
    json_t *step;
    const char *const keys[] = {"idle_w", "limit_w", "flop_pj", "byte_pj", "exponent", "lag_ms"};
    for (size_t k = 0; k < 6; k++) {
        power_take(&own, keys[k], real(json_object_get(root, "power"), keys[k]));
    }
    json_array_foreach(json_object_get(root, "steps"), i, step) {
        const json_t *held = json_object_get(step, "held");
        if (!json_is_object(held)) {
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
        if (s->first_ns > long_ns && own.limit_w > 0) {
            s->first_ns = corrected_ns(&own, root, step, s);
        }
    }
    *idle_w = own.idle_w;
    return n;
}

int main(int argc, char **argv) {
    static struct power_sample samples[MOST];
    struct power found;
    struct power_errors errors;
    struct err err = {0};
    size_t n = 0;
    double idle_w = 0;
    for (int i = 1; i < argc; i++) {
        json_error_t bad;
        json_t *root = json_load_file(argv[i], 0, &bad);
        double own_w = 0;
        if (root == NULL || json_array_size(json_object_get(root, "steps")) > MOST - n) {
            fprintf(stderr, "%s cannot be read\n", argv[i]);
            return 2;
        }
        n += add_samples(root, samples + n, &own_w);
        idle_w += own_w / (argc - 1);
        json_decref(root);
    }
    if (power_fit(samples, n, idle_w, &found, &errors, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf(
        "# power: %zu steps of %d cards held until their clock had settled; modelled time %.2f %% "
        "off (without clocks %.2f %%), power %.2f %%, root mean squares%s\n",
        errors.n, argc - 1, 100 * errors.time, 100 * errors.unslowed, 100 * errors.watts,
        errors.lag_is_assumed ? "; the lag is assumed" : "");
    power_write(&found, stdout);
    return 0;
}
