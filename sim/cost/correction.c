#include "sim/cost/correction.h"

#include <inttypes.h>
#include <string.h>

int correction_find(const struct correction *correction, enum op_kind kind, struct op_size size) {
    for (uint32_t i = 0; i < correction->n_curves; i++) {
        const struct correction_curve *curve = &correction->curves[i];
        if (curve->kind == kind && curve->name[0] == '\0' && curve->size.n == size.n &&
            curve->size.k == size.k) {
            return (int)i;
        }
    }
    return -1;
}

int correction_find_named(const struct correction *correction, enum op_kind kind,
                          const char *name) {
    for (uint32_t i = 0; i < correction->n_curves; i++) {
        const struct correction_curve *curve = &correction->curves[i];
        if (curve->kind == kind && curve->name[0] != '\0' && strcmp(curve->name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

double correction_factor(const struct correction *correction, int curve, double rows) {
    if (curve < 0) {
        return correction->all > 0 ? correction->all : 1;
    }
    const struct correction_point *points = correction->curves[curve].points;
    uint32_t n = correction->curves[curve].n_points, above = 0;
    while (above < n && points[above].rows < rows) {
        above++;
    }
    if (above == 0 || above == n) {
        return points[above == 0 ? 0 : n - 1].factor;
    }
    const struct correction_point *a = &points[above - 1], *b = &points[above];
    return a->factor + (b->factor - a->factor) * (rows - a->rows) / (b->rows - a->rows);
}

static bool is_size(const char *text, struct op_size *size) {
    int end = -1;
    return sscanf(text, "%" SCNd64 "x%" SCNd64 "%n", &size->n, &size->k, &end) == 2 && end > 0 &&
           text[end] == '\0';
}

static int add_curve(struct correction *correction, const struct correction_curve *curve) {
    if (correction->n_curves == CORRECTION_MAX_CURVES) {
        return -1;
    }
    correction->curves[correction->n_curves] = *curve;
    return (int)correction->n_curves++;
}

bool correction_add(struct correction *correction, enum op_kind kind, const char *size, double rows,
                    double factor) {
    struct correction_curve new = {.kind = kind};
    int found;
    if (is_size(size, &new.size)) {
        found = correction_find(correction, kind, new.size);
    } else if (size[0] != '\0' && strlen(size) < sizeof new.name) {
        snprintf(new.name, sizeof new.name, "%s", size);
        found = correction_find_named(correction, kind, size);
    } else {
        return false;
    }
    found = found < 0 ? add_curve(correction, &new) : found;
    struct correction_curve *curve = found < 0 ? NULL : &correction->curves[found];
    if (curve == NULL || curve->n_points == CORRECTION_MAX_POINTS ||
        (curve->n_points > 0 && rows <= curve->points[curve->n_points - 1].rows)) {
        return false;
    }
    curve->points[curve->n_points++] = (struct correction_point){rows, factor};
    return true;
}

const char *op_size_text(struct op_size size, char text[OP_SIZE_CHARS]) {
    snprintf(text, OP_SIZE_CHARS, "%" PRId64 "x%" PRId64, size.n, size.k);
    return text;
}

void correction_write(const struct correction *correction, FILE *file) {
    char text[OP_SIZE_CHARS];
    if (correction->all > 0) {
        fprintf(file, "load,%.6g\n", correction->all);
    }
    for (uint32_t i = 0; i < correction->n_curves; i++) {
        const struct correction_curve *curve = &correction->curves[i];
        const char *size = curve->name[0] != '\0' ? curve->name : op_size_text(curve->size, text);
        for (uint32_t p = 0; p < curve->n_points; p++) {
            fprintf(file, "load,%s,%s,%.0f,%.5g\n", op_kind_names[curve->kind], size,
                    curve->points[p].rows, curve->points[p].factor);
        }
    }
}
