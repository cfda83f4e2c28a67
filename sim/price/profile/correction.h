/* In-step corrections: what operators take inside whole steps over what each takes by itself.
 *
 * A whole step leaves a device other clocks and caches than one operator measured alone, a kernel
 * waits for the one before it, and a mixture's tokens do not choose their experts evenly. For each
 * operator, by kind and size, there are factors at some numbers of rows, a straight line between
 * them (a product's in whole tiles from some hundred rows on, profile/tiles.h), the nearest one
 * beyond them; operators without any have the factor of all. Without corrections every factor is 1.
 *
 * In a profile they are the rows `load,FACTOR` and `load,KIND,NxK,ROWS,FACTOR[,HIT]`: HIT is how
 * many experts a layer's tokens hit in those steps, where the rows' own tokens hit others. Files
 * written before 2026-11-22 have the operator's display name instead of its size and are read as
 * they are.
 */
#ifndef UNMASK_SIM_PRICE_PROFILE_CORRECTION_H
#define UNMASK_SIM_PRICE_PROFILE_CORRECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/step/graph.h"

enum { CORRECTION_MAX_CURVES = 64, CORRECTION_MAX_POINTS = 64, CORRECTION_KEY_CHARS = 44 };

/* An operator's size as the rows have it. */
struct correction_key {
    char text[CORRECTION_KEY_CHARS];
};
struct correction_key correction_key_of(struct op_size size);

struct correction_point {
    double rows, factor;
    double hits; /* experts that the steps hit, of an operator of experts; 0: not counted */
};

struct correction_curve {
    enum op_kind kind;
    struct correction_key key;
    struct correction_point points[CORRECTION_MAX_POINTS]; /* by rising rows */
    uint32_t n_points;
};

struct correction {
    double all;                  /* 0: none */
    double tile_rows, tile_from; /* of the profile's products (profile/tiles.h); 0: the default's */
    struct correction_curve curves[CORRECTION_MAX_CURVES];
    uint32_t n_curves;
};

/* Bounds of a factor: a kernel of a microsecond may take ten times as long after another. */
#define LEAST_CORRECTION 0.05
#define MOST_CORRECTION  20.0

/* The operator's curve; -1: it has none. */
int correction_find(const struct correction *correction, enum op_kind kind, const char *key);

/* Of one execution over `rows` rows; `curve` as correction_find returns it. */
double correction_factor(const struct correction *correction, int curve, double rows);

/* Experts that the steps hit whose time the factor has; 0: not counted. */
double correction_hits(const struct correction *correction, int curve, double rows);

/* An operator's next point; false unless its rows are more than those before, its key is short
 * enough and there is room. */
bool correction_add(struct correction *correction, enum op_kind kind, const char *key, double rows,
                    double factor, double hits);

/* As rows of a profile. */
void correction_write(const struct correction *correction, FILE *file);

#endif
