/* Reference implementations of the one-pass kernels: embedding, norm, sums, SwiGLU, rotation, cache
 * rows, random numbers; and what all reference implementations share. */
#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/fp8.h"
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

static double rounded(double x, enum kernel_dtype dtype) {
    const float single = (float)x;
    return dtype == KERNEL_BF16 ? (double)bf16_to_float(bf16_from_float(single)) : (double)single;
}

/* The sum of x and the residual as the kernel holds it: rounded to the dtype. */
static double norm_input(const struct call_norm *call, int64_t i) {
    const double x = ref_load(call->x, call->dtype, i);
    return call->residual ? rounded(x + ref_load(call->residual, call->dtype, i), call->dtype) : x;
}

/* Of the numbers from `from` on, as y holds them. */
static double normed(const struct call_norm *call, int64_t from, double scale, int64_t c) {
    return norm_input(call, from + c) * scale * ref_load(call->weight, call->dtype, c);
}

/* A row in fp8, a group at a time, so that it needs no room. */
static void norm_codes(const struct call_norm *call, int64_t from, double by, uint8_t *row) {
    const int64_t n = call->n_channels, group = call->group;
    for (int64_t g = 0; g < fp8_groups(n, group); g++) {
        const int64_t end = (g + 1) * group < n ? (g + 1) * group : n;
        float most = 0;
        for (int64_t c = g * group; c < end; c++) {
            const float size = fabsf((float)rounded(normed(call, from, by, c), call->dtype));
            most = size > most ? size : most;
        }
        const float scale = e4m3_scale(most);
        for (int64_t c = g * group; c < end; c++) {
            row[c] =
                e4m3_from_float((float)rounded(normed(call, from, by, c), call->dtype) / scale);
        }
        memcpy(row + n + g * (int64_t)sizeof scale, &scale, sizeof scale);
    }
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
        if (call->codes) {
            norm_codes(call, from, scale,
                       (uint8_t *)call->codes + row * fp8_row_bytes(n, call->group));
        }
        for (int64_t c = 0; c < n; c++) {
            const double x = norm_input(call, from + c);
            if (call->y) {
                ref_store(call->y, call->dtype, row * n + c, normed(call, from, scale, c));
            }
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

/* By tanh, as calls.h says; 0.5 (1 + tanh u) is 1 / (1 + exp(-2 u)). */
double ref_gated(bool gelu, double gate, double up) {
    const double u = 0.79788456080286536 * (gate + 0.044715 * gate * gate * gate);
    return gate / (1 + exp(gelu ? -2 * u : -gate)) * up;
}

void ref_swiglu(const struct call_swiglu *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        for (int64_t i = 0; i < call->n_hidden; i++) {
            const int64_t from = t * 2 * call->n_hidden + i;
            const double gate = ref_load(call->gate_up, call->dtype, from);
            const double up = ref_load(call->gate_up, call->dtype, from + call->n_hidden);
            ref_store(call->y, call->dtype, t * call->y_stride + i,
                      ref_gated(call->gelu, gate, up));
        }
    }
}

void ref_gated_codes(const struct call_gate_up *call) {
    const struct call_quantise codes = {.x = call->y,
                                        .y = call->codes,
                                        .x_stride = call->y_stride,
                                        .n_rows = call->n_tokens,
                                        .n_channels = call->n_hidden,
                                        .group = FP8_HEAD_GROUP,
                                        .dtype = call->dtype};
    if (call->codes) {
        ref_quantise(&codes);
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
            ref_store(call->y, call->dtype, t * call->y_stride + i,
                      ref_gated(call->gelu, gate, up));
        }
    }
    ref_gated_codes(call);
}

void ref_cos_sin(float *cos_sin, int32_t n_positions, int32_t rotary_size, double theta) {
    for (int64_t i = 0; i < rotary_size / 2; i++) {
        const double frequency = pow(theta, -2.0 * (double)i / rotary_size);
        for (int64_t p = 0; p < n_positions; p++) {
            const double angle = (double)p * frequency;
            cos_sin[p * rotary_size + 2 * i] = (float)cos(angle);
            cos_sin[p * rotary_size + 2 * i + 1] = (float)sin(angle);
        }
    }
}

/* A head of one token, while it is rotated. */
struct turned {
    const struct call_rope *call;
    int64_t token, head, size, half;
    int64_t from; /* the head of qkv that is read */
    bool is_value;
    const void *norm;
    double scale;
};

/* Pair i of a head and where its two channels are: those that turn first, then those that are
 * copied, `apart` channels apart. */
static void turn_pair(const struct turned *t, int64_t i, int64_t at[2], double y[2]) {
    const struct call_rope *call = t->call;
    const int64_t n_heads = call->n_heads + 2 * (int64_t)call->n_kv_heads;
    const int64_t from = (t->token * n_heads + t->from) * t->size;
    const int64_t apart = i < t->half ? t->half : t->size / 2 - t->half;
    double x[2], c = 1, s = 0;
    for (int64_t j = 0; j < 2; j++) {
        const int64_t e = (i < t->half ? i : i + t->half) + j * apart;
        x[j] = ref_load(call->qkv, call->dtype, from + e);
        x[j] += call->bias ? ref_load(call->bias, call->dtype, t->head * t->size + e) : 0;
        x[j] *= t->scale * (t->norm ? ref_load(t->norm, call->dtype, e) : 1);
        at[j] = e;
    }
    if (i < t->half && !t->is_value) {
        c = (double)call->cos_sin[(call->positions[t->token] * t->half + i) * 2];
        s = (double)call->cos_sin[(call->positions[t->token] * t->half + i) * 2 + 1];
    }
    y[0] = x[0] * c - x[1] * s;
    y[1] = x[1] * c + x[0] * s;
}

/* Numbers as the dtype holds them, in groups whose largest come first. A head has at most
 * ROPE_MOST_GROUPS of them. */
enum { ROPE_MOST_GROUPS = 256 };

static void store_turned_fp8(const struct turned *t, uint8_t *codes, uint8_t *to_scales) {
    float scales[ROPE_MOST_GROUPS] = {0};
    int64_t at[2];
    double y[2];
    for (int64_t i = 0; i < t->size; i++) {
        turn_pair(t, i % (t->size / 2), at, y);
        const int64_t j = i / (t->size / 2), g = at[j] / FP8_HEAD_GROUP;
        const float size = fabsf((float)y[j]);
        scales[g] = size > scales[g] ? size : scales[g];
    }
    const int64_t n = fp8_groups(t->size, FP8_HEAD_GROUP);
    for (int64_t g = 0; g < n; g++) {
        scales[g] = e4m3_scale(scales[g]);
    }
    for (int64_t i = 0; i < t->size; i++) {
        turn_pair(t, i % (t->size / 2), at, y);
        const int64_t e = at[i / (t->size / 2)];
        codes[e] = e4m3_from_float((float)y[i / (t->size / 2)] / scales[e / FP8_HEAD_GROUP]);
    }
    memcpy(to_scales, scales, (size_t)n * sizeof *scales);
}

static void rope_head(const struct call_rope *call, int64_t token, int64_t head) {
    const int64_t size = call->head_size;
    const int64_t rotary = call->rotary_size > 0 ? call->rotary_size : size;
    const int64_t n_heads = call->n_heads + 2 * (int64_t)call->n_kv_heads;
    const bool is_query = head < call->n_heads;
    const bool is_value = head >= call->n_heads + call->n_kv_heads;
    const bool fp8 = call->kv_fp8 && !is_query;
    struct turned t = {.call = call,
                       .token = token,
                       .head = head,
                       .from = head - (is_value && call->values_are_keys ? call->n_kv_heads : 0),
                       .size = size,
                       .half = rotary / 2,
                       .is_value = is_value,
                       .norm = is_value   ? NULL
                               : is_query ? call->q_norm
                                          : call->k_norm,
                       .scale = 1};
    const int64_t from = (token * n_heads + t.from) * size;
    if (t.norm || (is_value && call->norm_values)) {
        double squares = 0;
        for (int64_t i = 0; i < size; i++) {
            double x = ref_load(call->qkv, call->dtype, from + i);
            x += call->bias ? ref_load(call->bias, call->dtype, head * size + i) : 0;
            squares += x * x;
        }
        t.scale = 1 / sqrt(squares / (double)size + (double)call->epsilon);
    }
    void *to = is_query ? call->q : is_value ? call->v : call->k;
    const int64_t kv_row = call->kv_rows ? call->kv_rows[token] : token;
    if (!is_query && kv_row < 0) {
        return;
    }
    const int64_t in_part = is_query   ? head
                            : is_value ? head - call->n_heads - call->n_kv_heads
                                       : head - call->n_heads;
    const int64_t row = is_query ? token * call->q_stride : kv_row * call->kv_stride;
    const int64_t first = row + in_part * size;
    if (fp8) {
        const struct fp8_place place = fp8_paged(call->n_kv_heads, size, in_part);
        store_turned_fp8(&t, (uint8_t *)to + row + place.codes, (uint8_t *)to + row + place.scales);
        return;
    }
    for (int64_t i = 0; i < size / 2; i++) {
        int64_t at[2];
        double y[2];
        turn_pair(&t, i, at, y);
        ref_store(to, call->dtype, first + at[0], y[0]);
        ref_store(to, call->dtype, first + at[1], y[1]);
    }
}

void ref_rope(const struct call_rope *call) {
    for (int64_t token = 0; token < call->n_tokens; token++) {
        for (int64_t head = 0; head < call->n_heads + 2 * (int64_t)call->n_kv_heads; head++) {
            rope_head(call, token, head);
        }
    }
}

void ref_cache_head(const struct ref_head *from, const struct ref_packed *to, int64_t head,
                    int64_t row) {
    for (int64_t value = 0; value < 2; value++) {
        const void *x = value ? from->v : from->k;
        const int64_t at_head = value * to->n_heads + head;
        if (to->fp8) {
            const struct fp8_place place =
                fp8_packed(to->n_heads, to->kept, from->size, at_head, row);
            uint8_t *cache = (uint8_t *)to->pool + to->start;
            ref_quantise_row(x, from->dtype, from->at, from->size, FP8_HEAD_GROUP,
                             cache + place.codes, cache + place.scales);
            continue;
        }
        const int64_t at = to->start + (at_head * to->kept + row) * from->size;
        for (int64_t d = 0; d < from->size; d++) {
            ref_store(to->pool, from->dtype, at + d, ref_load(x, from->dtype, from->at + d));
        }
    }
}

void ref_keep(const struct call_keep *call) {
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t r = call->owner[t], row = call->kv_rows[t];
        if (row < 0) {
            continue;
        }
        const struct ref_packed to = {call->cache, call->cache_start[r], call->n_kv_heads,
                                      call->kept[r], call->cache_fp8};
        for (int64_t head = 0; head < call->n_kv_heads; head++) {
            const struct ref_head from = {call->k, call->v,
                                          t * call->kv_stride + head * call->head_size,
                                          call->head_size, call->dtype};
            ref_cache_head(&from, &to, head, row);
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
