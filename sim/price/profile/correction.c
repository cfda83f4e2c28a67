#include "sim/price/profile/correction.h"

#include <inttypes.h>
#include <string.h>

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
