/* Rotary positions: the angle by which a pair of a head's channels turns from one position to the
 * next, and the table of rotations that call_rope reads. */
#ifndef UNMASK_ENGINE_WEIGHTS_ROTATION_H
#define UNMASK_ENGINE_WEIGHTS_ROTATION_H

#include <stdint.h>

/* Llama 3.1's stretching of low frequencies ("llama3" in configuration files): turns that take
 * longer than original_positions / low_factor positions are slowed down by `factor`, those that
 * take less than original_positions / high_factor are left alone, and between the two it is
 * blended. Positions below original_positions are affected, too. */
struct rotation_stretch {
    double factor, low_factor, high_factor, original_positions; /* factor 0: none */
};

struct rotation {
    double theta;
    struct rotation_stretch stretch;
};

/* In radians a position; pair i of R / 2, where R channels of a head are rotated: theta^(-2 i / R),
 * stretched. */
double rotation_frequency(const struct rotation *rotation, int32_t pair, int32_t rotary_size);

/* cos_sin: [n_positions, R / 2, 2]. */
void rotation_table(const struct rotation *rotation, int32_t n_positions, int32_t rotary_size,
                    float *cos_sin);

#endif
