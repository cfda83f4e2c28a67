#include "engine/weights/rotation.h"

#include <math.h>

#include "kernels/ref/ref.h"

/* As transformers' _compute_llama3_parameters has it (modeling_rope_utils.py). */
static double stretched(const struct rotation_stretch *stretch, double frequency) {
    const double pi = 3.14159265358979323846;
    double turns = stretch->original_positions * frequency / (2 * pi);
    if (turns > stretch->high_factor) {
        return frequency;
    }
    if (turns < stretch->low_factor) {
        return frequency / stretch->factor;
    }
    double share = (turns - stretch->low_factor) / (stretch->high_factor - stretch->low_factor);
    return (1 - share) * frequency / stretch->factor + share * frequency;
}

double rotation_frequency(const struct rotation *rotation, int32_t pair, int32_t rotary_size) {
    double frequency = pow(rotation->theta, -2.0 * pair / rotary_size);
    return rotation->stretch.factor > 0 ? stretched(&rotation->stretch, frequency) : frequency;
}

void rotation_table(const struct rotation *rotation, int32_t n_positions, int32_t rotary_size,
                    float *cos_sin) {
    if (rotation->stretch.factor == 0) {
        ref_cos_sin(cos_sin, n_positions, rotary_size, rotation->theta);
        return;
    }
    for (int64_t i = 0; i < rotary_size / 2; i++) {
        double frequency = rotation_frequency(rotation, (int32_t)i, rotary_size);
        for (int64_t p = 0; p < n_positions; p++) {
            cos_sin[p * rotary_size + 2 * i] = (float)cos((double)p * frequency);
            cos_sin[p * rotary_size + 2 * i + 1] = (float)sin((double)p * frequency);
        }
    }
}
