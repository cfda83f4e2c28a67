/* Reference implementations of the one-pass kernels: embedding, norm, sums, SwiGLU, rotation, cache
 * rows, random numbers; and what all reference implementations share. */
#include <math.h>

#include "kernels/bf16.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/keyed.h"

double ref_load(const void *array, enum kernel_dtype dtype, int64_t i) {
    if (dtype == KERNEL_BF16) {
        return (double)bf16_to_float(((const uint16_t *)array)[i]);
    }
    return (double)((const float *)array)[i];
}

void ref_store(void *array, enum kernel_dtype dtype, int64_t i, double value) {
    if (dtype == KERNEL_BF16) {
        ((uint16_t *)array)[i] = bf16_from_float((float)value);
    } else {
        ((float *)array)[i] = (float)value;
    }
}

double ref_bound(enum kernel_dtype dtype, int64_t length) {
    const double unit = dtype == KERNEL_BF16 ? 0x1p-8 : 0x1p-24;
    return 2 * unit + 0x1p-24 * (double)length;
}

void ref_embed(const struct call_embed *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t id = call->ids[call->at ? call->at[t] : t];
        const bool known = id >= 0 && id < call->n_vocab;
        for (int64_t c = 0; c < call->n_channels; c++) {
            const int64_t from = known ? id * call->n_channels + c : 0;
            ref_store(call->y, call->dtype, t * call->n_channels + c,
                      known ? ref_load(call->table, call->dtype, from) : (double)NAN);
        }
    }
}

/* The sum of x and the residual as the kernel holds it: rounded to the dtype. */
static double norm_input(const struct call_norm *call, int64_t i) {
    double x = ref_load(call->x, call->dtype, i);
    if (!call->residual) {
        return x;
    }
    x += ref_load(call->residual, call->dtype, i);
    float single = (float)x;
    return call->dtype == KERNEL_BF16 ? (double)bf16_to_float(bf16_from_float(single))
                                      : (double)single;
}

void ref_norm(const struct call_norm *call) {
    const int64_t n = call->n_channels;
    for (int64_t row = 0; row < call->n_rows; row++) {
        const int64_t from = (call->rows ? call->rows[row] : row) * n;
        double squares = 0;
        for (int64_t c = 0; c < n; c++) {
            const double x = norm_input(call, from + c);
            squares += x * x;
        }
        const double scale = 1 / sqrt(squares / (double)n + (double)call->epsilon);
        for (int64_t c = 0; c < n; c++) {
            const double x = norm_input(call, from + c);
            ref_store(call->y, call->dtype, row * n + c,
                      x * scale * ref_load(call->weight, call->dtype, c));
            if (call->residual && !call->rows) {
                ref_store(call->residual, call->dtype, from + c, x);
            }
        }
    }
}

void ref_add(const struct call_add *call) {
    for (int64_t i = 0; i < call->n; i++) {
        ref_store(call->y, call->dtype, i,
                  ref_load(call->a, call->dtype, i) + ref_load(call->b, call->dtype, i));
    }
}

void ref_swiglu(const struct call_swiglu *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        for (int64_t i = 0; i < call->n_hidden; i++) {
            const int64_t from = t * 2 * call->n_hidden + i;
            const double gate = ref_load(call->gate_up, call->dtype, from);
            const double up = ref_load(call->gate_up, call->dtype, from + call->n_hidden);
            ref_store(call->y, call->dtype, t * call->y_stride + i, gate / (1 + exp(-gate)) * up);
        }
    }
}

void ref_gate_up(const struct call_gate_up *call) {
    const struct ref_product p = {.x = call->x,
                                  .w = call->w,
                                  .stride = call->x_stride,
                                  .n_rows = 2 * (int64_t)call->n_hidden,
                                  .n_inputs = call->n_channels,
                                  .dtype = call->dtype,
                                  .fp8 = &call->fp8};
    for (int64_t t = 0; t < call->n_tokens; t++) {
        for (int64_t i = 0; i < call->n_hidden; i++) {
            const double gate = ref_dot(&p, t, 0, i), up = ref_dot(&p, t, 0, call->n_hidden + i);
            ref_store(call->y, call->dtype, t * call->y_stride + i, gate / (1 + exp(-gate)) * up);
        }
    }
}

void ref_cos_sin(float *cos_sin, int32_t n_positions, int32_t rotary_size, double theta) {
    for (int64_t p = 0; p < n_positions; p++) {
        for (int64_t i = 0; i < rotary_size / 2; i++) {
            const double angle = (double)p * pow(theta, -2.0 * (double)i / rotary_size);
            cos_sin[p * rotary_size + 2 * i] = (float)cos(angle);
            cos_sin[p * rotary_size + 2 * i + 1] = (float)sin(angle);
        }
    }
}

static void rope_head(const struct call_rope *call, int64_t token, int64_t head) {
    const int64_t size = call->head_size;
    const int64_t rotary = call->rotary_size > 0 ? call->rotary_size : size, half = rotary / 2;
    const int64_t n_heads = call->n_heads + 2 * (int64_t)call->n_kv_heads;
    const bool is_query = head < call->n_heads;
    const bool is_value = head >= call->n_heads + call->n_kv_heads;
    const void *norm = is_value ? NULL : is_query ? call->q_norm : call->k_norm;
    const int64_t from = (token * n_heads + head) * size;
    double scale = 1;
    if (norm) {
        double squares = 0;
        for (int64_t i = 0; i < size; i++) {
            double x = ref_load(call->qkv, call->dtype, from + i);
            x += call->bias ? ref_load(call->bias, call->dtype, head * size + i) : 0;
            squares += x * x;
        }
        scale = 1 / sqrt(squares / (double)size + (double)call->epsilon);
    }
    void *to = is_query ? call->q : is_value ? call->v : call->k;
    const int64_t kv_row = call->kv_rows ? call->kv_rows[token] : token;
    if (!is_query && kv_row < 0) {
        return;
    }
    const int64_t in_part = is_query   ? head
                            : is_value ? head - call->n_heads - call->n_kv_heads
                                       : head - call->n_heads;
    const int64_t at =
        (is_query ? token * call->q_stride : kv_row * call->kv_stride) + in_part * size;
    /* Pairs `apart` channels apart: first those that turn, then those that are copied. */
    for (int64_t i = 0; i < size / 2; i++) {
        const bool turns = i < half && !is_value;
        const int64_t first = i < half ? i : i + half, apart = i < half ? half : size / 2 - half;
        double x[2], c = 1, s = 0;
        for (int64_t j = 0; j < 2; j++) {
            const int64_t e = first + j * apart;
            x[j] = ref_load(call->qkv, call->dtype, from + e);
            x[j] += call->bias ? ref_load(call->bias, call->dtype, head * size + e) : 0;
            x[j] *= norm ? scale * ref_load(norm, call->dtype, e) : 1;
        }
        if (turns) {
            c = (double)call->cos_sin[(call->positions[token] * half + i) * 2];
            s = (double)call->cos_sin[(call->positions[token] * half + i) * 2 + 1];
        }
        ref_store(to, call->dtype, at + first, x[0] * c - x[1] * s);
        ref_store(to, call->dtype, at + first + apart, x[1] * c + x[0] * s);
    }
}

void ref_rope(const struct call_rope *call) {
    for (int64_t token = 0; token < call->n_tokens; token++) {
        for (int64_t head = 0; head < call->n_heads + 2 * (int64_t)call->n_kv_heads; head++) {
            rope_head(call, token, head);
        }
    }
}

void ref_keep(const struct call_keep *call) {
    const int64_t size = call->head_size;
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t r = call->owner[t], row = call->kv_rows[t];
        if (row < 0) {
            continue;
        }
        const int64_t part = call->n_kv_heads * (int64_t)call->kept[r] * size;
        for (int64_t head = 0; head < call->n_kv_heads; head++) {
            const int64_t from = t * call->kv_stride + head * size;
            const int64_t to = call->cache_start[r] + (head * call->kept[r] + row) * size;
            for (int64_t d = 0; d < size; d++) {
                ref_store(call->cache, call->dtype, to + d,
                          ref_load(call->k, call->dtype, from + d));
                ref_store(call->cache, call->dtype, to + part + d,
                          ref_load(call->v, call->dtype, from + d));
            }
        }
    }
}

void ref_random(const struct call_random *call) {
    for (int64_t i = 0; i < call->n; i++) {
        const int64_t at = call->run > 0 ? i / call->run * call->stride + i % call->run : i;
        const double u = uniform_keyed(call->key, (uint64_t)(call->first + at));
        ref_store(call->y, call->dtype, i, call->centre + call->spread * (2 * u - 1));
    }
}
