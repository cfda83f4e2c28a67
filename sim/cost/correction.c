#include "sim/cost/correction.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sim/cost/profile/tiles.h"

struct correction_key correction_key_of(struct op_size size) {
    struct correction_key key;
    snprintf(key.text, sizeof key.text, "%" PRId64 "x%" PRId64, size.n, size.k);
    return key;
}

int correction_find(const struct correction *correction, enum op_kind kind, const char *key) {
    for (uint32_t i = 0; i < correction->n_curves; i++) {
        const struct correction_curve *curve = &correction->curves[i];
        if (curve->kind == kind && strcmp(curve->key.text, key) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* A product's rows as its tiles have them: a partly filled one takes as long as a whole one. */
static double tiled(const struct correction *correction, enum op_kind kind, double rows) {
    const bool says = correction->tile_rows > 0;
    const double tile = says ? correction->tile_rows : tiles_default.corrected_rows;
    const double first = says ? correction->tile_from : tiles_default.corrected_from;
    const bool is_tiled = op_types[kind]->family == FAMILY_PRODUCT && rows > first;
    return is_tiled ? ceil(rows / tile) * tile : rows;
}

/* The points around so many rows, twice the same one beyond them; false: there are none. */
static bool around(const struct correction *correction, int curve, double rows,
                   const struct correction_point *out[2]) {
    if (curve < 0) {
        return false;
    }
    const struct correction_point *points = correction->curves[curve].points;
    uint32_t n = correction->curves[curve].n_points, above = 0;
    while (above < n && points[above].rows < rows) {
        above++;
    }
    out[0] = &points[above > 0 ? above - 1 : 0];
    out[1] = &points[above < n ? above : n - 1];
    if (above == 0 || above == n) {
        out[0] = out[1];
    }
    return true;
}

double correction_factor(const struct correction *correction, int curve, double rows) {
    const struct correction_point *at[2];
    rows = curve < 0 ? rows : tiled(correction, correction->curves[curve].kind, rows);
    if (!around(correction, curve, rows, at)) {
        return correction->all > 0 ? correction->all : 1;
    }
    const struct correction_point *a = at[0], *b = at[1];
    return a == b ? a->factor
                  : a->factor + (b->factor - a->factor) * (rows - a->rows) / (b->rows - a->rows);
}

double correction_hits(const struct correction *correction, int curve, double rows) {
    const struct correction_point *at[2];
    if (!around(correction, curve, rows, at) || at[0]->hits <= 0 || at[1]->hits <= 0) {
        return 0;
    }
    const struct correction_point *a = at[0], *b = at[1];
    return a == b ? a->hits
                  : a->hits + (b->hits - a->hits) * (rows - a->rows) / (b->rows - a->rows);
}

bool correction_add(struct correction *correction, enum op_kind kind, const char *key, double rows,
                    double factor, double hits) {
    int i = correction_find(correction, kind, key);
    if (i < 0 && correction->n_curves < CORRECTION_MAX_CURVES &&
        strlen(key) < CORRECTION_KEY_CHARS) {
        i = (int)correction->n_curves++;
        struct correction_curve *curve = &correction->curves[i];
        *curve = (struct correction_curve){.kind = kind};
        snprintf(curve->key.text, sizeof curve->key.text, "%s", key);
    }
    struct correction_curve *curve = i < 0 ? NULL : &correction->curves[i];
    if (curve == NULL || curve->n_points == CORRECTION_MAX_POINTS ||
        (curve->n_points > 0 && rows <= curve->points[curve->n_points - 1].rows)) {
        return false;
    }
    curve->points[curve->n_points++] = (struct correction_point){rows, factor, hits};
    return true;
}

void correction_write(const struct correction *correction, FILE *file) {
    if (correction->all > 0) {
        fprintf(file, "load,%.6g\n", correction->all);
    }
    for (uint32_t i = 0; i < correction->n_curves; i++) {
        const struct correction_curve *curve = &correction->curves[i];
        for (uint32_t p = 0; p < curve->n_points; p++) {
            fprintf(file, "load,%s,%s,%.0f,%.5g", op_kind_names[curve->kind], curve->key.text,
                    curve->points[p].rows, curve->points[p].factor);
            if (curve->points[p].hits > 0) {
                fprintf(file, ",%.6g", curve->points[p].hits);
            }
            putc('\n', file);
        }
    }
}
