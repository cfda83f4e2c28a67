#include "engine/product.h"

#include <math.h>

#include "sim/base/err.h"

/* Partial sums of a dot product: element i goes to sum i mod LANES, which a compiler may keep in
 * vector registers without reordering anything; and which keeps rounding errors short. */
enum { LANES = 16, ROWS = 4, TILE_OUTPUTS = 64 };

static float fold(float lanes[LANES]) {
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

static float dot(const float *a, const float *b, int64_t n) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += a[i + l] * b[i + l];
        }
    }
    for (int l = 0; i + l < n; l++) {
        lanes[l] += a[i + l] * b[i + l];
    }
    return fold(lanes);
}

/* ROWS dot products that share `a`, each exactly as `dot` computes it. */
static void dot_rows(const float *a, const float *b, int64_t stride, int64_t n, float *out) {
    float lanes[ROWS][LANES] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int r = 0; r < ROWS; r++) {
            for (int l = 0; l < LANES; l++) {
                lanes[r][l] += a[i + l] * b[r * stride + i + l];
            }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int l = 0; i + l < n; l++) {
            lanes[r][l] += a[i + l] * b[r * stride + i + l];
        }
        out[r] = fold(lanes[r]);
    }
}

void cpu_product(const struct product *p) {
    for (int64_t first = 0; first < p->n_outputs; first += TILE_OUTPUTS) {
        int64_t last = first + TILE_OUTPUTS < p->n_outputs ? first + TILE_OUTPUTS : p->n_outputs;
        for (int64_t t = 0; t < p->n_tokens; t++) {
            const float *x = p->x + t * p->x_stride;
            float *y = p->y + t * p->y_stride;
            int64_t n = first;
            for (; n + ROWS <= last; n += ROWS) {
                dot_rows(x, p->w + n * p->n_inputs, p->n_inputs, p->n_inputs, y + n);
            }
            for (; n < last; n++) {
                y[n] = dot(x, p->w + n * p->n_inputs, p->n_inputs);
            }
        }
    }
}

/* ---- attention ---- */

/* A run of rows of one head: row i at `k + i stride` and `v + i stride`. */
struct run {
    const float *k, *v;
    int64_t stride, n_rows;
};

enum { TILE_KEYS = 64 };

/* One query's softmax as far as it has come: keys that wait for their tile to fill, the largest
 * score, and relative to it the sum of exponentials and, in y, of the weighted values. */
struct softmax {
    float scores[TILE_KEYS];
    const float *values[TILE_KEYS];
    int n_waiting;
    float top;
    double sum;
    float *y;
    int64_t size;
};

static void take_in(struct softmax *s) {
    float top = s->top;
    for (int i = 0; i < s->n_waiting; i++) {
        top = s->scores[i] > top ? s->scores[i] : top;
    }
    if (top > s->top) {
        float shrink = (float)exp((double)(s->top - top)); /* 0 at the first tile */
        for (int64_t d = 0; d < s->size; d++) {
            s->y[d] *= shrink;
        }
        s->sum *= (double)shrink;
        s->top = top;
    }
    for (int i = 0; i < s->n_waiting; i++) {
        float weight = (float)exp((double)(s->scores[i] - top));
        s->sum += (double)weight;
        for (int64_t d = 0; d < s->size; d++) {
            s->y[d] += weight * s->values[i][d];
        }
    }
    s->n_waiting = 0;
}

/* y = softmax(q k' / sqrt(D)) v over the runs in turn. Tiles count keys through all the runs, so
 * that where a run ends does not show in the result. */
static void attend(const float *q, const struct run *runs, int n_runs, int64_t size, float *y) {
    struct softmax s = {.top = -INFINITY, .y = y, .size = size};
    float scale = (float)(1 / sqrt((double)size));
    for (int64_t d = 0; d < size; d++) {
        y[d] = 0;
    }
    for (int r = 0; r < n_runs; r++) {
        for (int64_t i = 0; i < runs[r].n_rows; i++) {
            s.scores[s.n_waiting] = dot(q, runs[r].k + i * runs[r].stride, size) * scale;
            s.values[s.n_waiting++] = runs[r].v + i * runs[r].stride;
            if (s.n_waiting == TILE_KEYS) {
                take_in(&s);
            }
        }
    }
    take_in(&s);
    for (int64_t d = 0; d < size; d++) {
        y[d] = (float)((double)y[d] / s.sum);
    }
}

void cpu_dense_attention(const struct call_dense_attention *call) {
    ASSERT(call->dtype == KERNEL_F32 && call->y != call->q);
    const float *q = call->q, *k = call->k, *v = call->v;
    float *y = call->y;
    int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int32_t r = 0; r < call->n_requests; r++) {
        int64_t first = call->start[r], n = call->start[r + 1] - first;
        for (int64_t head = 0; head < call->n_heads; head++) {
            int64_t at = first * call->kv_stride + head / group * size;
            const struct run own = {k + at, v + at, call->kv_stride, n};
            for (int64_t t = first; t < first + n; t++) {
                attend(q + t * call->q_stride + head * size, &own, 1, size,
                       y + t * call->y_stride + head * size);
            }
        }
    }
}

void cpu_block_attention(const struct call_block_attention *call) {
    ASSERT(call->dtype == KERNEL_F32 && call->y != call->q);
    const float *q = call->q, *k = call->k, *v = call->v;
    const float *k_cache = call->k_cache, *v_cache = call->v_cache;
    float *y = call->y;
    int64_t size = call->head_size, group = call->n_heads / call->n_kv_heads;
    for (int32_t r = 0; r < call->n_requests; r++) {
        int64_t first = call->start[r], n = call->start[r + 1] - first;
        for (int64_t head = 0; head < call->n_heads; head++) {
            int64_t kv_head = head / group;
            int64_t at = first * call->kv_stride + kv_head * size;
            int64_t cached = call->cache_start[r] + kv_head * call->kept[r] * size;
            const struct run runs[2] = {{k_cache + cached, v_cache + cached, size, call->kept[r]},
                                        {k + at, v + at, call->kv_stride, n}};
            for (int64_t t = first; t < first + n; t++) {
                attend(q + t * call->q_stride + head * size, runs, 2, size,
                       y + t * call->y_stride + head * size);
            }
        }
    }
}
