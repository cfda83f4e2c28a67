/* Weights in fp8 as checkpoints store them: codes in one tensor, their scales in another. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/weights/quantiser.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { NAME_BYTES = 512 };

static const char *const endings[] = {"_scale_inv", "_scale"};
enum { N_ENDINGS = sizeof endings / sizeof endings[0] };

static const struct stored_tensor *scales_of(const struct safetensors *files,
                                             const struct stored_tensor *tensor) {
    const struct stored_tensor *found = NULL;
    for (size_t i = 0; found == NULL && i < N_ENDINGS; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", tensor->name, endings[i]);
        found = safetensors_find(files, name);
    }
    return found;
}

void stored_scales_claim(const struct safetensors *files, const struct stored_tensor *tensor,
                         bool *is_claimed) {
    const struct stored_tensor *scales = scales_of(files, tensor);
    if (tensor->dtype == STORED_E4M3 && scales != NULL) {
        is_claimed[scales - files->tensors] = true;
    }
}

bool stored_is_of_quantising(const struct stored_tensor *tensor) {
    static const char *const said[] = {
        "_scale",  "_scale_inv", "_scale_2", "_zero_point", "_packed", ".qweight",
        ".qzeros", ".scales",    ".g_idx",   ".SCB",        ".absmax",
    };
    bool is_of = false;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        is_of = is_of || name_ends(tensor->name, said[i]);
    }
    return is_of;
}

/* What each scale is of, by how many there are. */
static int find_layout(struct stored_scales *s, const struct stored_tensor *weights,
                       struct err *err) {
    const int64_t n = weights->shape[0], k = weights->n_dims == 2 ? weights->shape[1] : 1;
    const int64_t high = ceil_div(n, SCALE_GROUP), wide = ceil_div(k, SCALE_GROUP);
    const struct stored_tensor *t = s->tensor;
    const bool is_by_row = t->n_elements == n && t->shape[0] == n;
    if (t->n_dims == 2 && t->shape[0] == high && t->shape[1] == wide) {
        *s = (struct stored_scales){t, SCALE_GROUP, SCALE_GROUP, wide};
    } else if (t->n_elements == 1 || (t->n_dims > 0 && is_by_row)) {
        *s = (struct stored_scales){t, t->n_elements == 1 ? n : 1, k, 1};
    } else {
        char found[128], of[128];
        return err_world(err,
                         "%s: the scales '%s' are %s, but '%s' is %s: one for each %d x %d of it, "
                         "one for each row or one in all are read",
                         t->file, t->name,
                         stored_shape_text(t->shape, t->n_dims, found, sizeof found), weights->name,
                         stored_shape_text(weights->shape, weights->n_dims, of, sizeof of),
                         SCALE_GROUP, SCALE_GROUP);
    }
    return 0;
}

static float scale_at(const struct stored_scales *s, int64_t row, int64_t column) {
    float scale;
    stored_read(s->tensor, row / s->rows * s->wide + column / s->columns, 1, &scale);
    return scale;
}

static int check_values(const struct stored_scales *s, struct err *err) {
    for (int64_t i = 0; i < s->tensor->n_elements; i++) {
        float scale;
        stored_read(s->tensor, i, 1, &scale);
        if (!isfinite(scale) || scale < 0) {
            return err_world(err,
                             "%s: scale %" PRId64 " of '%s' is %g, which is no finite number of at "
                             "least 0",
                             s->tensor->file, i, s->tensor->name, (double)scale);
        }
    }
    return 0;
}

int stored_scales_find(const struct safetensors *files, const struct stored_tensor *tensor,
                       struct stored_scales *out, struct err *err) {
    *out = (struct stored_scales){.tensor = NULL};
    if (tensor->dtype != STORED_E4M3) {
        return 0;
    }
    out->tensor = scales_of(files, tensor);
    if (out->tensor == NULL) {
        return err_world(
            err, "%s: tensor '%s' is F8_E4M3 and has no scales: '%s%s' or '%s%s' is missing",
            tensor->file, tensor->name, tensor->name, endings[0], tensor->name, endings[1]);
    }
    if (out->tensor->dtype == STORED_E4M3 || out->tensor->dtype == STORED_OTHER) {
        return err_world(err, "%s: the scales '%s' are %s; F32, BF16 and F16 are read",
                         out->tensor->file, out->tensor->name, out->tensor->dtype_name);
    }
    return find_layout(out, tensor, err) != 0 ? err_status(err) : check_values(out, err);
}

/* n elements from `at` on of the whole tensor's, of rows of `columns`, times their scales. */
static void multiply(const struct stored_scales *s, int64_t at, int64_t n, int64_t columns,
                     float *values) {
    for (int64_t i = 0; i < n;) {
        const int64_t row = (at + i) / columns, column = (at + i) % columns;
        const int64_t group_end = (column / s->columns + 1) * s->columns;
        const int64_t most = (group_end < columns ? group_end : columns) - column;
        const int64_t end = i + most < n ? i + most : n;
        const float scale = scale_at(s, row, column);
        for (; i < end; i++) {
            values[i] *= scale;
        }
    }
}

void stored_part_read(const struct stored_part *stored, int64_t first, int64_t n, float *values) {
    const struct part *part = stored->part;
    const int64_t run = part_run_elements(part), columns = part->whole_columns;
    for (int64_t at = first; at < first + n;) {
        int64_t end = (at / run + 1) * run;
        end = end < first + n ? end : first + n;
        const int64_t from = stored->rows_before * columns + part_whole_index(part, at);
        stored_read(stored->tensor, from, end - at, values + (at - first));
        if (stored->scales.tensor != NULL) {
            multiply(&stored->scales, from, end - at, columns, values + (at - first));
        }
        at = end;
    }
}

void stored_part_codes(const struct stored_part *stored, int64_t first, int64_t n, uint8_t *codes) {
    const struct part *part = stored->part;
    const int64_t run = part_run_elements(part), columns = part->whole_columns;
    ASSERT(stored->tensor->dtype == STORED_E4M3);
    for (int64_t at = first; at < first + n;) {
        int64_t end = (at / run + 1) * run;
        end = end < first + n ? end : first + n;
        const int64_t from = stored->rows_before * columns + part_whole_index(part, at);
        ASSERT(from >= 0 && end - at <= stored->tensor->n_elements - from);
        memcpy(codes + (at - first), stored->tensor->data + from, (size_t)(end - at));
        at = end;
    }
}

static int other_layout(const struct stored_part *stored, enum number_type type, struct err *err) {
    const bool wants_rows = type == NUMBER_FP8_CHANNEL;
    return err_world(err,
                     "%s: '%s' has one scale for each %s, but storage.weights = %s has one for "
                     "each %s: set storage.weights = %s",
                     stored->tensor->file, stored->tensor->name, wants_rows ? "128 x 128" : "row",
                     number_words[type], wants_rows ? "row" : "128 x 128",
                     number_words[wants_rows ? NUMBER_FP8 : NUMBER_FP8_CHANNEL]);
}

int stored_part_scales(const struct stored_part *stored, int64_t first, int64_t n,
                       enum number_type type, float *scales, struct err *err) {
    const struct stored_scales *s = &stored->scales;
    const struct part *part = stored->part;
    if (s->tensor == NULL) {
        scales[0] = -1;
        return 0;
    }
    const bool is_by_squares = s->columns == SCALE_GROUP && s->rows == SCALE_GROUP;
    if (is_by_squares != (type == NUMBER_FP8)) {
        return other_layout(stored, type, err);
    }
    const int64_t row = stored->rows_before + part->first_row + first;
    if (type == NUMBER_FP8_CHANNEL) {
        for (int64_t i = 0; i < n; i++) {
            scales[i] = scale_at(s, row + i, 0);
        }
        return 0;
    }
    if (row % SCALE_GROUP != 0 || part->first_column % SCALE_GROUP != 0) {
        return err_world(err,
                         "%s: the scales of '%s' are one for each 128 x 128, which a part of the "
                         "model's weights cuts at row %" PRId64 " and column %" PRId64,
                         stored->tensor->file, stored->tensor->name, row, part->first_column);
    }
    for (int64_t c = 0; c < part->n_columns; c += SCALE_GROUP) {
        scales[c / SCALE_GROUP] = scale_at(s, row, part->first_column + c);
    }
    return 0;
}
