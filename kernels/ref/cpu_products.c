/* Float32 products by BLAS, and what is read off logits. */
#include <math.h>
#include <string.h>

#include "kernels/decode/draw_row.h"
#include "kernels/device.h"
#include "kernels/fp8.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/cpu_blas.h"
#include "kernels/ref/ref.h"

/* outputs[o, row] = x[row, :] . w[o, :]: in BLAS's order of columns a matrix of PANEL_ROWS rows. */
static void multiply_panel(const float *x, int x_stride, const float *w, int n_inputs,
                           int n_outputs, float *outputs) {
    const int n_rows = CPU_PANEL_ROWS;
    const float one = 1, zero = 0;
    blas_sgemm("T", "N", &n_rows, &n_outputs, &n_inputs, &one, x, &x_stride, w, &n_inputs, &zero,
               outputs, &n_rows);
}

/* Codes times their scales, rounded: `group` of the n share one. */
static void expand(const float *values, const uint8_t *codes, const float *scales, int64_t n,
                   int64_t group, float *to) {
    for (int64_t first = 0; first < n; first += group) {
        const int64_t end = first + group < n ? first + group : n;
        const float scale = scales[first / group];
        for (int64_t i = first; i < end; i++) {
            to[i] = values[codes[i]] * scale;
        }
    }
}

/* A product's weights: rows of a matrix, of which `before` lie before w. */
struct matrix {
    const void *w;
    const float *scales; /* of the matrix; NULL: it is in single precision */
    int32_t scale_rows, scale_columns, before, n_inputs;
};

static struct matrix matrix_of(const void *w, const struct call_fp8 *fp8, int32_t n_inputs) {
    return (struct matrix){w, fp8->w_scale, fp8->w_rows, fp8->w_columns, 0, n_inputs};
}

/* Expert e's, of n_rows rows each. */
static struct matrix matrix_of_expert(const struct matrix *all, int64_t e, int64_t n_rows) {
    struct matrix m = *all;
    const int64_t at = e * n_rows * m.n_inputs;
    if (m.scales != NULL) {
        m.w = (const uint8_t *)m.w + at;
        m.scales += e * fp8_groups(n_rows, m.scale_rows) * fp8_groups(m.n_inputs, m.scale_columns);
    } else {
        m.w = (const float *)m.w + at;
    }
    return m;
}

/* Rows [first, first + n), in place where they are in single precision, else at `to`. */
static const float *strip_of(const struct cpu_room *room, const struct matrix *m, int64_t first,
                             int32_t n, float *to) {
    if (m->scales == NULL) {
        return (const float *)m->w + first * m->n_inputs;
    }
    for (int64_t row = first; row < first + n; row++) {
        const int64_t scales =
            (m->before + row) / m->scale_rows * fp8_groups(m->n_inputs, m->scale_columns);
        expand(room->codes, (const uint8_t *)m->w + row * m->n_inputs, m->scales + scales,
               m->n_inputs, m->scale_columns, to + (row - first) * m->n_inputs);
    }
    return to;
}

/* A product's inputs. */
struct rows {
    const void *x;
    int64_t stride;       /* in numbers, or in bytes of rows in fp8 */
    int32_t group;        /* numbers of fp8 that share a scale; 0: x is in single precision */
    const int32_t *order; /* row i is row order[i] / n_active of x; NULL: row i */
    int32_t n_active, n_rows, n_inputs;
};

static int32_t group_of(const struct call_fp8 *fp8) {
    return fp8->x_too ? fp8->w_columns : 0;
}

static void take_row(const struct cpu_room *room, const struct rows *rows, int64_t row, float *to) {
    const int32_t n = rows->n_inputs;
    if (rows->group == 0) {
        memcpy(to, (const float *)rows->x + row * rows->stride, (size_t)n * sizeof *to);
        return;
    }
    const uint8_t *codes = (const uint8_t *)rows->x + row * rows->stride;
    expand(room->codes, codes, (const float *)(const void *)(codes + n), n, rows->group, to);
}

/* A panel of the rows from `first` on: in place where they lie in order and all of them exist. */
static const float *panel_inputs(const struct cpu_room *room, const struct rows *rows,
                                 int32_t first, int *stride) {
    if (rows->order == NULL && rows->group == 0 && rows->n_rows - first >= CPU_PANEL_ROWS) {
        *stride = (int)rows->stride;
        return (const float *)rows->x + first * rows->stride;
    }
    for (int32_t i = 0; i < CPU_PANEL_ROWS; i++) {
        float *to = room->inputs + (int64_t)i * rows->n_inputs;
        if (first + i < rows->n_rows) {
            const int32_t row =
                rows->order != NULL ? rows->order[first + i] / rows->n_active : first + i;
            take_row(room, rows, row, to);
        } else {
            memset(to, 0, (size_t)rows->n_inputs * sizeof *to);
        }
    }
    *stride = rows->n_inputs;
    return room->inputs;
}

/* Where a gated product's outputs go. */
struct gated {
    float *y;
    int64_t stride;
    int32_t n_hidden;
    bool gelu;
};

/* Of a panel's gates and, after them, its ups. */
static void activate_panel(const struct gated *to, const float *outputs, int32_t first_row,
                           int32_t n_rows, int32_t first_output, int32_t n_outputs) {
    for (int32_t row = 0; row < CPU_PANEL_ROWS && first_row + row < n_rows; row++) {
        float *y = to->y + (first_row + row) * to->stride + first_output;
        for (int32_t o = 0; o < n_outputs; o++) {
            const double gate = (double)outputs[o * CPU_PANEL_ROWS + row];
            const double up = (double)outputs[(n_outputs + o) * CPU_PANEL_ROWS + row];
            y[o] = (float)ref_gated(to->gelu, gate, up);
        }
    }
}

/* w: n_hidden rows of gates, then the ups. */
static void gated_product(const struct cpu_room *room, const struct rows *rows,
                          const struct matrix *w, const struct gated *to) {
    enum { MOST = CPU_PANEL_OUTPUTS / 2 };
    for (int32_t o = 0; o < to->n_hidden; o += MOST) {
        const int32_t left = to->n_hidden - o, n = left < MOST ? left : MOST;
        const float *gates = strip_of(room, w, o, n, room->weights);
        const float *ups = strip_of(room, w, (int64_t)to->n_hidden + o, n,
                                    room->weights + (int64_t)MOST * w->n_inputs);
        for (int32_t row = 0; row < rows->n_rows; row += CPU_PANEL_ROWS) {
            int stride;
            const float *x = panel_inputs(room, rows, row, &stride);
            multiply_panel(x, stride, gates, w->n_inputs, n, room->outputs);
            multiply_panel(x, stride, ups, w->n_inputs, n,
                           room->outputs + (int64_t)n * CPU_PANEL_ROWS);
            activate_panel(to, room->outputs, row, rows->n_rows, o, n);
        }
    }
}

void cpu_gate_up(const struct cpu_room *room, const struct call_gate_up *call) {
    const struct rows rows = {.x = call->x,
                              .stride = call->x_stride,
                              .group = group_of(&call->fp8),
                              .n_rows = call->n_tokens,
                              .n_inputs = call->n_channels};
    const struct matrix w = matrix_of(call->w, &call->fp8, call->n_channels);
    gated_product(room, &rows, &w,
                  &(struct gated){call->y, call->y_stride, call->n_hidden, call->gelu});
    ref_gated_codes(call);
}

void cpu_moe_gate_up(const struct cpu_room *room, const struct call_moe_gate_up *call) {
    const struct matrix all = matrix_of(call->w, &call->fp8, call->n_channels);
    for (int32_t e = 0; e < call->n_experts; e++) {
        const int32_t first = call->start[e];
        const struct rows rows = {.x = call->x,
                                  .stride = call->x_stride,
                                  .group = group_of(&call->fp8),
                                  .order = call->order + first,
                                  .n_active = call->n_active,
                                  .n_rows = call->start[e + 1] - first,
                                  .n_inputs = call->n_channels};
        const struct gated to = {(float *)call->y + (int64_t)first * call->n_hidden, call->n_hidden,
                                 call->n_hidden, call->gelu};
        const struct matrix w = matrix_of_expert(&all, e, 2 * (int64_t)call->n_hidden);
        if (rows.n_rows > 0) {
            gated_product(room, &rows, &w, &to);
        }
    }
}

/* Of a strip of n outputs from `first_output` on, those that are the call's; outputs before the
 * call's have negative numbers. */
static void store_panel(const struct call_linear *call, const float *outputs, int32_t first_row,
                        int32_t first_output, int32_t n) {
    const int32_t from = first_output < 0 ? -first_output : 0;
    const int32_t left = call->n_outputs - first_output, to = n < left ? n : left;
    for (int32_t row = 0; row < CPU_PANEL_ROWS && first_row + row < call->n_tokens; row++) {
        const int64_t at = (first_row + row) * call->y_stride;
        float *y = (float *)call->y + at;
        const float *add = call->add != NULL ? (const float *)call->add + at : NULL;
        for (int32_t o = from; o < to; o++) {
            const float product = outputs[o * CPU_PANEL_ROWS + row];
            y[first_output + o] = add != NULL ? product + add[first_output + o] : product;
        }
    }
}

/* A strip of weights stays in the cache while all panels pass over it. Strips are those of the
 * whole matrix, and computed whole, as BLAS rounds an output by its place in the strip. */
static void linear_product(const struct cpu_room *room, const struct call_linear *call,
                           const struct matrix *w) {
    const struct rows rows = {.x = call->x,
                              .stride = call->x_stride,
                              .group = group_of(&call->fp8),
                              .n_rows = call->n_tokens,
                              .n_inputs = call->n_inputs};
    const int32_t before = call->outputs_before, end = call->n_outputs + call->outputs_after;
    for (int32_t o = -before; o < end; o += CPU_PANEL_OUTPUTS) {
        const int32_t left = end - o;
        const int32_t n = left < CPU_PANEL_OUTPUTS ? left : CPU_PANEL_OUTPUTS;
        if (o + n <= 0 || o >= call->n_outputs) {
            continue;
        }
        const float *strip = strip_of(room, w, o, n, room->weights);
        for (int32_t row = 0; row < call->n_tokens; row += CPU_PANEL_ROWS) {
            int stride;
            const float *x = panel_inputs(room, &rows, row, &stride);
            multiply_panel(x, stride, strip, call->n_inputs, n, room->outputs);
            store_panel(call, room->outputs, row, o, n);
        }
    }
}

void cpu_linear(const struct cpu_room *room, const struct call_linear *call) {
    struct matrix w = matrix_of(call->w, &call->fp8, call->n_inputs);
    w.before = call->outputs_before;
    linear_product(room, call, &w);
}

/* outputs[o, row] = x[row, :] . w[:, o], which is added to what is there where `adds`. */
static void multiply_panel_by_inputs(const float *x, int x_stride, const float *w, int w_stride,
                                     int n_inputs, int n_outputs, bool adds, float *outputs) {
    const int n_rows = CPU_PANEL_ROWS;
    const float one = 1, before = adds ? 1 : 0;
    blas_sgemm("T", "T", &n_rows, &n_outputs, &n_inputs, &one, x, &x_stride, w, &w_stride, &before,
               outputs, &n_rows);
}

/* Inputs are taken piece by piece, the same whatever else is in the call. */
void cpu_linear_by_inputs(const struct cpu_room *room, const struct call_linear *call) {
    for (int32_t o = 0; o < call->n_outputs; o += CPU_PANEL_OUTPUTS) {
        const int32_t left = call->n_outputs - o;
        const int32_t n = left < CPU_PANEL_OUTPUTS ? left : CPU_PANEL_OUTPUTS;
        for (int32_t row = 0; row < call->n_tokens; row += CPU_PANEL_ROWS) {
            for (int32_t i = 0; i < call->n_inputs; i += CPU_MAX_INPUTS) {
                const int32_t rest = call->n_inputs - i;
                const struct rows piece = {.x = (const float *)call->x + i,
                                           .stride = call->x_stride,
                                           .n_rows = call->n_tokens,
                                           .n_inputs =
                                               rest < CPU_MAX_INPUTS ? rest : CPU_MAX_INPUTS};
                int stride;
                const float *x = panel_inputs(room, &piece, row, &stride);
                multiply_panel_by_inputs(x, stride,
                                         (const float *)call->w + (int64_t)i * call->n_outputs + o,
                                         call->n_outputs, piece.n_inputs, n, i > 0, room->outputs);
            }
            store_panel(call, room->outputs, row, o, n);
        }
    }
}

void cpu_moe_down(const struct cpu_room *room, const struct call_moe_down *call) {
    const struct matrix all = matrix_of(call->w, &call->fp8, call->n_hidden);
    const int64_t stride = call->fp8.x_too ? fp8_row_bytes(call->n_hidden, call->fp8.w_columns)
                                           : (int64_t)call->n_hidden * (int64_t)sizeof(float);
    for (int32_t e = 0; e < call->n_experts; e++) {
        const int64_t first = call->start[e];
        const struct matrix w = matrix_of_expert(&all, e, call->n_channels);
        const struct call_linear product = {
            .x = (const unsigned char *)call->x + first * stride,
            .y = (float *)call->y + first * call->n_channels,
            .x_stride = call->fp8.x_too ? stride : call->n_hidden,
            .y_stride = call->n_channels,
            .n_tokens = call->start[e + 1] - call->start[e],
            .n_outputs = call->n_channels,
            .n_inputs = call->n_hidden,
            .dtype = call->dtype,
            .fp8 = call->fp8,
        };
        if (product.n_tokens > 0) {
            linear_product(room, &product, &w);
        }
    }
}

/* Margin and entropy of a row whose best token and sum of exponentials are known. */
static void cpu_statistics(const struct call_sample *call, int64_t row, int32_t best, double sum) {
    const float *logits = (const float *)call->logits + row * call->n_vocab;
    double weighted = 0, next = 0;
    for (int32_t i = 0; i < call->n_vocab; i++) {
        const double below = (double)logits[i] - (double)logits[best], part = exp(below);
        weighted += part > 0 ? part * below : 0;
        next = i != best && part > next ? part : next;
    }
    call->margin[row] = (float)((1 - next) / sum);
    call->entropy[row] = (float)(weighted / sum - log(sum));
}

void cpu_sample(const struct call_sample *call) {
    for (int64_t row = 0; row < call->n_rows; row++) {
        const float *logits = (const float *)call->logits + row * call->n_vocab;
        int32_t best = 0;
        for (int32_t i = 1; i < call->n_vocab; i++) {
            best = logits[i] > logits[best] ? i : best;
        }
        double sum = 0;
        for (int32_t i = 0; i < call->n_vocab; i++) {
            sum += exp((double)logits[i] - (double)logits[best]);
        }
        call->token[row] = best;
        call->confidence[row] = (float)(1 / sum);
        if (call->logit != NULL) {
            call->logit[row] = logits[best];
        }
        if (call->margin) {
            cpu_statistics(call, row, best, sum);
        }
    }
}

void cpu_draw(const struct call_draw *call) {
    struct draw_work work = {0};
    for (int64_t row = 0; row < call->n_rows; row++) {
        draw_row(call, row, &work);
    }
}

void cpu_head(const struct cpu_room *room, const struct call_head *call) {
    const int64_t row_bytes = call->n_vocab * (int64_t)sizeof(float);
    const int32_t most = (int32_t)(HEAD_SCRATCH_BYTES / row_bytes);
    const int64_t stride = call->fp8.x_too ? fp8_row_bytes(call->n_channels, call->fp8.w_columns)
                                           : (int64_t)call->n_channels * (int64_t)sizeof(float);
    for (int32_t row = 0; row < call->n_rows; row += most) {
        const int32_t left = call->n_rows - row, n = left < most ? left : most;
        const struct call_linear product = {
            .x = (const unsigned char *)call->x + row * stride,
            .w = call->w,
            .y = call->scratch,
            .x_stride = call->fp8.x_too ? stride : call->n_channels,
            .y_stride = call->n_vocab,
            .n_tokens = n,
            .n_outputs = call->n_vocab,
            .n_inputs = call->n_channels,
            .dtype = call->dtype,
            .fp8 = call->fp8,
        };
        cpu_linear(room, &product);
        cpu_sample(&(struct call_sample){.logits = call->scratch,
                                         .token = call->token + row,
                                         .confidence = call->confidence + row,
                                         .margin = call->margin ? call->margin + row : NULL,
                                         .entropy = call->margin ? call->entropy + row : NULL,
                                         .logit = call->logit ? call->logit + row : NULL,
                                         .n_rows = n,
                                         .n_vocab = call->n_vocab,
                                         .dtype = call->dtype});
    }
}
