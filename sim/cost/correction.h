/* In-step corrections: what operators take inside whole steps over what each takes by itself.
 *
 * A whole step leaves a device other clocks and caches than one operator measured alone, a kernel
 * waits for the one before it, and a mixture's tokens do not choose their experts evenly. For each
 * operator, by kind and size, there are factors at some numbers of rows, a straight line between
 * them, the nearest one beyond them; operators without any have the factor of all. Without
 * corrections every factor is 1.
 *
 * In a profile they are the rows `load,FACTOR` and `load,KIND,NxK,ROWS,FACTOR`. Files written
 * before 2026-11-22 have the operator's display name instead of its size and are read as they are.
 */
#ifndef UNMASK_SIM_COST_CORRECTION_H
#define UNMASK_SIM_COST_CORRECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/graph/graph.h"

enum { CORRECTION_MAX_CURVES = 64, CORRECTION_MAX_POINTS = 64, CORRECTION_NAME_CHARS = 40 };

struct correction_point {
    double rows, factor;
};

struct correction_curve {
    enum op_kind kind;
    struct op_size size;              /* of the operator; or, in an old file, its */
    char name[CORRECTION_NAME_CHARS]; /* "": none */
    struct correction_point points[CORRECTION_MAX_POINTS]; /* by rising rows */
    uint32_t n_points;
};

struct correction {
    double all; /* 0: none */
    struct correction_curve curves[CORRECTION_MAX_CURVES];
    uint32_t n_curves;
};

/* What a factor may be: a kernel of a microsecond may take ten times as long behind another. */
#define LEAST_CORRECTION 0.05
#define MOST_CORRECTION  20.0

/* The operator's curve, by size or by an old file's name; -1: it has none. */
int correction_find(const struct correction *correction, enum op_kind kind, struct op_size size);
int correction_find_named(const struct correction *correction, enum op_kind kind, const char *name);

/* Of one execution over so many rows; `curve` as correction_find has it. */
double correction_factor(const struct correction *correction, int curve, double rows);

/* An operator's next point: `size` as "NxK", or an old file's name. false unless its rows are more
 * than those before, the text is short enough and there is room. */
bool correction_add(struct correction *correction, enum op_kind kind, const char *size, double rows,
                    double factor);

/* As rows of a profile. */
void correction_write(const struct correction *correction, FILE *file);

/* Large enough for any size as text. */
enum { OP_SIZE_CHARS = 40 };
const char *op_size_text(struct op_size size, char text[OP_SIZE_CHARS]);

#endif
