/* Reference implementations of fp8: rows quantised, and what products read. */
#include "kernels/fp8.h"

#include "kernels/ref/ref.h"

/* A group at a time, so that a row needs no room. */
void ref_quantise_row(const void *x, enum kernel_dtype dtype, int64_t at, int64_t n, int64_t group,
                      uint8_t *codes, uint8_t *scales) {
    for (int64_t g = 0; g < fp8_groups(n, group); g++) {
        const int64_t end = (g + 1) * group < n ? (g + 1) * group : n;
        float most = 0;
        for (int64_t i = g * group; i < end; i++) {
            const float size = fabsf((float)ref_load(x, dtype, at + i));
            most = size > most ? size : most;
        }
        const float scale = e4m3_scale(most);
        for (int64_t i = g * group; i < end; i++) {
            codes[i] = e4m3_from_float((float)ref_load(x, dtype, at + i) / scale);
        }
        memcpy(scales + g * (int64_t)sizeof scale, &scale, sizeof scale);
    }
}

void ref_quantise(const struct call_quantise *call) {
    const int64_t n = call->n_channels;
    for (int64_t t = 0; t < call->n_rows; t++) {
        uint8_t *row = (uint8_t *)call->y + t * fp8_row_bytes(n, call->group);
        ref_quantise_row(call->x, call->dtype, t * call->x_stride, n, call->group, row, row + n);
    }
}

static float number_of(const struct call_quantise_weights *call, int64_t i) {
    return call->dtype == KERNEL_F32 ? ((const float *)call->x)[i]
                                     : (float)ref_load(call->x, call->dtype, i);
}

void ref_quantise_weights(const struct call_quantise_weights *call) {
    const int64_t n = call->n_rows, k = call->n_channels, wide = fp8_groups(k, call->w_columns);
    for (int64_t row = 0; row < n; row += call->w_rows) {
        const int64_t past = row + call->w_rows < n ? row + call->w_rows : n;
        for (int64_t g = 0; g < wide; g++) {
            const int64_t first = g * call->w_columns;
            const int64_t end = first + call->w_columns < k ? first + call->w_columns : k;
            float most = 0;
            for (int64_t i = row * k; i < past * k; i += k) {
                for (int64_t c = i + first; c < i + end; c++) {
                    const float size = fabsf(number_of(call, c));
                    most = size > most ? size : most;
                }
            }
            const float scale = e4m3_scale(most);
            for (int64_t i = row * k; i < past * k; i += k) {
                for (int64_t c = i + first; c < i + end; c++) {
                    call->codes[c] = e4m3_from_float(number_of(call, c) / scale);
                }
            }
            call->scales[row / call->w_rows * wide + g] = scale;
        }
    }
}

double ref_input(const struct ref_product *p, int64_t t, int64_t i) {
    if (!p->fp8->x_too) {
        return ref_load(p->x, p->dtype, t * p->stride + i);
    }
    const uint8_t *row = (const uint8_t *)p->x + t * p->stride;
    return (double)e4m3_to_float(row[i]) *
           (double)fp8_row_scale(row, p->n_inputs, i / p->fp8->w_columns);
}

double ref_weight(const struct ref_product *p, int64_t e, int64_t o, int64_t i) {
    const int64_t at = (e * p->n_rows + o) * p->n_inputs + i;
    if (p->fp8->w_scale == NULL) {
        return ref_load(p->w, p->dtype, at);
    }
    const int64_t wide = fp8_groups(p->n_inputs, p->fp8->w_columns);
    const int64_t high = fp8_groups(p->n_rows, p->fp8->w_rows);
    const int64_t scale =
        (e * high + (p->before + o) / p->fp8->w_rows) * wide + i / p->fp8->w_columns;
    return (double)e4m3_to_float(((const uint8_t *)p->w)[at]) * (double)p->fp8->w_scale[scale];
}

double ref_dot(const struct ref_product *p, int64_t t, int64_t e, int64_t o) {
    double sum = 0;
    for (int64_t i = 0; i < p->n_inputs; i++) {
        sum += ref_input(p, t, i) * ref_weight(p, e, o, i);
    }
    return sum;
}
