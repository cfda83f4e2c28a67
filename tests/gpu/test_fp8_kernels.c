/* Products with weights in fp8, and the rows that they read, against the reference on random
 * numbers: rows of fp8 byte for byte; every path of products, forms of scales and inputs, ragged
 * shapes and those of LLaDA-8B, of which some outputs are checked; the head; what is no number.
 * `test_fp8_kernels [seed] [small]` prints the seed, a line for each failure, and the count.
 *
 * Bounds: those of the reference for sums of K terms, and BETWEEN more, for the tensor cores of
 * sm_89 and sm_90 cut what they add up in fp8 to about 14 bits, and 128 terms go through them
 * before single precision takes over. A gate's error grows with its up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "kernels/fp8.h"
#include "kernels/kernels.h"
#include "tests/gpu/arrays.h"

enum { POOL = 1 << 16, GROUP = 128, GUARD = 8, SAMPLED_ROWS = 24, SAMPLED_OUTPUTS = 48 };
static const double BETWEEN = 0x1p-8;

static struct device *device;
static struct head *head;
static uint8_t pool[POOL]; /* codes of normal numbers, a third of the range the largest */
static bool small;
static double worst_linear, worst_gated;
static int n_ran[4], n_refused;

enum path { CHOSEN, FEW, TILES, MMA, N_PATHS };
static const char *const path_names[] = {"chosen", "few", "tiles", "mma"};

/* ---- random numbers ---- */

static void fill_codes(uint8_t *to, int64_t n) {
    for (int64_t i = 0; i < n; i += 4) {
        const uint64_t random = draw();
        for (int64_t j = 0; j < 4 && i + j < n; j++) {
            to[i + j] = pool[random >> j * 16 & (POOL - 1)];
        }
    }
}

static void fill_wide(uint16_t *to, int64_t n, double scale) {
    for (int64_t i = 0; i < n; i += 4) {
        const uint64_t random = draw();
        for (int64_t j = 0; j < 4 && i + j < n; j++) {
            const float value = e4m3_to_float(pool[random >> j * 16 & (POOL - 1)]);
            const double off = 1 + (double)(random >> j * 8 & 31) / 256; /* no code's value */
            to[i + j] = bf16_from_float((float)((double)value * scale * off));
        }
    }
}

static struct array *random_codes(int64_t n) {
    struct array *a = array_new((size_t)n);
    fill_codes(a->host, n);
    push(a);
    return a;
}

static struct array *random_scales(int64_t n) {
    struct array *a = array_new((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        ((float *)a->host)[i] = (float)(0.001 * (0.5 + (double)between(0, 1000) / 1000));
    }
    push(a);
    return a;
}

/* ---- rows ---- */

static bool same_codes(const uint8_t *a, const uint8_t *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const bool both_none = (a[i] & 127) == E4M3_NAN && (b[i] & 127) == E4M3_NAN;
        if (a[i] != b[i] && !both_none) {
            return false;
        }
    }
    return true;
}

static void test_rows(int n_rows, int n, int group, int gap) {
    const int64_t stride = n + gap, bytes = fp8_row_bytes(n, group);
    struct array *x = array_new((size_t)(n_rows * stride) * 2);
    struct array *y = array_new((size_t)(n_rows * bytes));
    uint16_t *values = x->host;
    fill_wide(values, n_rows * stride, 0.1);
    if (n_rows > 4 && n >= 8) {
        memset(values + stride, 0, (size_t)n * 2);       /* a row of zeros */
        values[2 * stride + between(0, n - 1)] = 0x7fc0; /* no number */
        values[3 * stride + between(0, n - 1)] = 0x7f80; /* infinity */
        for (int i = 0; i < n; i++) {                    /* too small to divide by */
            values[4 * stride + i] = (uint16_t)(draw() & 0x803f);
        }
    }
    push(x);
    struct call_quantise call = {.x = x->host,
                                 .y = y->host,
                                 .x_stride = stride,
                                 .n_rows = n_rows,
                                 .n_channels = n,
                                 .group = group,
                                 .dtype = KERNEL_BF16};
    ref_quantise(&call);
    call.x = x->device;
    call.y = y->device;
    launched(kernel_quantise(&call, NULL), "quantise");
    uint8_t *got = pull(y);
    int bad = 0;
    for (int64_t t = 0; t < n_rows; t++) {
        const uint8_t *have = got + t * bytes, *want = (uint8_t *)y->host + t * bytes;
        const bool scales = memcmp(have + n, want + n, (size_t)fp8_groups(n, group) * 4) == 0;
        bad += !(scales && same_codes(have, want, n));
    }
    check(bad == 0, "quantise: %d of %d rows of %d by %d differ", bad, n_rows, n, group);
    free(got);
    arrays_free();
}

/* Rows that the kernel makes of what it made in bf16 before. */
static void check_codes(const struct array *codes, const void *y, int64_t y_stride, int n_rows,
                        int n, int group, const char *name) {
    const int64_t bytes = fp8_row_bytes(n, group);
    struct array *wanted = array_new(codes->n_bytes);
    const struct call_quantise call = {.x = y,
                                       .y = wanted->device,
                                       .x_stride = y_stride,
                                       .n_rows = n_rows,
                                       .n_channels = n,
                                       .group = group,
                                       .dtype = KERNEL_BF16};
    launched(kernel_quantise(&call, NULL), "quantise");
    uint8_t *got = pull(codes), *want = pull(wanted);
    int bad = 0;
    for (int64_t t = 0; t < n_rows; t++) {
        bad += !same_codes(got + t * bytes, want + t * bytes, n) ||
               memcmp(got + t * bytes + n, want + t * bytes + n,
                      (size_t)fp8_groups(n, group) * 4) != 0;
    }
    check(bad == 0, "%s: codes of %d of %d rows of %d by %d are not those of its numbers", name,
          bad, n_rows, n, group);
    free(got);
    free(want);
}

/* A norm's codes beside those of its numbers, with them and alone. */
static void test_norm_codes(int n_rows, int n, bool whole, bool adds) {
    const int group = whole ? n : GROUP;
    struct array *x = array_new((size_t)n_rows * n * 2), *residual = array_new(x->n_bytes),
                 *weight = array_new((size_t)n * 2), *y = array_new(x->n_bytes),
                 *again = array_new(x->n_bytes),
                 *codes = array_new((size_t)(n_rows * fp8_row_bytes(n, group)));
    fill_wide(x->host, (int64_t)n_rows * n, 0.1);
    fill_wide(residual->host, (int64_t)n_rows * n, 0.1);
    fill_wide(weight->host, n, 1);
    if (n_rows > 2) {
        memset(x->host, 0, (size_t)n * 2); /* a row of zeros, one with no number */
        ((uint16_t *)x->host)[n + between(0, n - 1)] = 0x7fc0;
    }
    push(x), push(residual), push(weight);
    struct call_norm call = {.x = x->device,
                             .weight = weight->device,
                             .residual = adds ? residual->device : NULL,
                             .y = y->device,
                             .n_rows = n_rows,
                             .n_channels = n,
                             .epsilon = 1e-5f,
                             .dtype = KERNEL_BF16};
    launched(kernel_norm(&call, NULL), "norm");
    void *sums = pull(residual);
    for (int both = 0; both < 2; both++) {
        push(residual);
        poison(codes);
        call.y = both ? again->device : NULL;
        call.codes = codes->device;
        call.group = group;
        launched(kernel_norm(&call, NULL), "norm and codes");
        check_codes(codes, y->device, n, n_rows, n, group, adds ? "norm of a sum" : "norm");
        void *now = pull(residual);
        check(memcmp(now, sums, residual->n_bytes) == 0, "a norm with codes has another sum");
        free(now);
    }
    void *first = pull(y), *second = pull(again);
    check(memcmp(first, second, y->n_bytes) == 0, "a norm with codes has other numbers");
    free(first), free(second), free(sums);
    arrays_free();
}

/* Rows of many, and the last of them alone: what a block has for threads must not show. */
static void test_norm_alone(int n_rows, int n, bool whole, bool adds) {
    enum { ALONE = 3 };
    const int group = whole ? n : GROUP;
    const int64_t row = fp8_row_bytes(n, group), before = n_rows - ALONE;
    struct array *x = array_new((size_t)n_rows * n * 2), *residual = array_new(x->n_bytes),
                 *weight = array_new((size_t)n * 2), *codes = array_new((size_t)(n_rows * row)),
                 *alone = array_new((size_t)(ALONE * row));
    fill_wide(x->host, (int64_t)n_rows * n, 0.1);
    fill_wide(residual->host, (int64_t)n_rows * n, 0.1);
    fill_wide(weight->host, n, 1);
    push(x), push(residual), push(weight);
    struct call_norm call = {.x = x->device,
                             .weight = weight->device,
                             .residual = adds ? residual->device : NULL,
                             .n_rows = n_rows,
                             .n_channels = n,
                             .epsilon = 1e-5f,
                             .dtype = KERNEL_BF16,
                             .codes = codes->device,
                             .group = group};
    launched(kernel_norm(&call, NULL), "norm of many rows");
    push(residual);
    call.x = (uint16_t *)x->device + before * n;
    call.residual = adds ? (uint16_t *)residual->device + before * n : NULL;
    call.n_rows = ALONE;
    call.codes = alone->device;
    launched(kernel_norm(&call, NULL), "norm of few rows");
    uint8_t *many = pull(codes), *few = pull(alone);
    int bad = 0;
    for (int t = 0; t < ALONE; t++) {
        bad += memcmp(many + (before + t) * row, few + t * row, (size_t)(n + n / group * 4)) != 0;
    }
    check(bad == 0, "a norm of %d rows of %d by %d%s: %d of %d rows are others alone", n_rows, n,
          group, adds ? ", a sum" : "", bad, ALONE);
    free(many), free(few);
    arrays_free();
}

/* ---- products ---- */

struct shape {
    int tokens, outputs, inputs; /* outputs: gates alone where gated */
    int before;
    bool channels, x_too, gated, adds;
};

/* A product on both sides. */
struct product {
    struct shape s;
    struct array *x, *w, *scales, *add, *y;
    struct call_fp8 fp8;
    int64_t x_stride, y_stride;
};

static int64_t rows_of(const struct shape *s) {
    return s->outputs * (int64_t)(s->gated ? 2 : 1);
}

/* Rows of fp8 are those that the kernel makes: their bytes are checked apart. */
static struct array *quantised(const struct shape *s, int group) {
    struct array *wide = array_new((size_t)s->tokens * (size_t)s->inputs * 2);
    fill_wide(wide->host, (int64_t)s->tokens * s->inputs, 0.01);
    push(wide);
    struct array *x = array_new((size_t)(s->tokens * fp8_row_bytes(s->inputs, group)));
    const struct call_quantise call = {.x = wide->device,
                                       .y = x->device,
                                       .x_stride = s->inputs,
                                       .n_rows = s->tokens,
                                       .n_channels = s->inputs,
                                       .group = group,
                                       .dtype = KERNEL_BF16};
    launched(kernel_quantise(&call, NULL), "quantise");
    free(x->host);
    x->host = pull(x);
    return x;
}

static struct product product_new(const struct shape *s) {
    struct product p = {.s = *s};
    const int group = s->channels ? s->inputs : GROUP, high = s->channels ? 1 : GROUP;
    const int64_t groups = fp8_groups(s->inputs, group);
    p.w = random_codes(rows_of(s) * s->inputs);
    p.scales = random_scales(fp8_groups(s->before + rows_of(s), high) * groups);
    p.y_stride = (s->outputs + 7) / 8 * 8 + GUARD;
    p.y = array_new((size_t)(s->tokens * p.y_stride) * 2);
    if (s->x_too) {
        p.x = quantised(s, group);
        p.x_stride = fp8_row_bytes(s->inputs, group);
    } else {
        p.x_stride = s->inputs + 8 * between(0, 2);
        p.x = array_new((size_t)(s->tokens * p.x_stride) * 2);
        fill_wide(p.x->host, s->tokens * p.x_stride, 0.01);
        push(p.x);
    }
    if (s->adds) {
        p.add = array_new((size_t)(s->tokens * p.y_stride) * 2);
        fill_wide(p.add->host, s->tokens * p.y_stride, 0.01);
        push(p.add);
    }
    p.fp8 = (struct call_fp8){NULL, high, group, s->x_too};
    return p;
}

static struct call_linear linear_call(const struct product *p, bool on_device) {
    struct call_linear call = {.x_stride = p->x_stride,
                               .y_stride = p->y_stride,
                               .n_tokens = p->s.tokens,
                               .n_outputs = p->s.outputs,
                               .n_inputs = p->s.inputs,
                               .outputs_before = p->s.before,
                               .dtype = KERNEL_BF16,
                               .fp8 = p->fp8};
    call.x = on_device ? p->x->device : p->x->host;
    call.w = on_device ? p->w->device : p->w->host;
    call.y = on_device ? p->y->device : p->y->host;
    call.fp8.w_scale = on_device ? p->scales->device : p->scales->host;
    call.add = !p->add ? NULL : on_device ? p->add->device : p->add->host;
    return call;
}

static struct call_gate_up gate_up_call(const struct product *p) {
    struct call_gate_up call = {.x = p->x->device,
                                .w = p->w->device,
                                .y = p->y->device,
                                .x_stride = p->x_stride,
                                .y_stride = p->y_stride,
                                .n_tokens = p->s.tokens,
                                .n_channels = p->s.inputs,
                                .n_hidden = p->s.outputs,
                                .dtype = KERNEL_BF16,
                                .fp8 = p->fp8};
    call.fp8.w_scale = p->scales->device;
    return call;
}

/* What the reference makes of one output, unrounded. */
static double wanted(const struct product *p, int64_t t, int64_t o) {
    const struct call_fp8 fp8 = {p->scales->host, p->fp8.w_rows, p->fp8.w_columns, p->fp8.x_too};
    const struct ref_product ref = {.x = p->x->host,
                                    .w = p->w->host,
                                    .stride = p->x_stride,
                                    .n_rows = rows_of(&p->s),
                                    .n_inputs = p->s.inputs,
                                    .before = p->s.before,
                                    .dtype = KERNEL_BF16,
                                    .fp8 = &fp8};
    const double first = ref_dot(&ref, t, 0, o);
    if (p->s.gated) {
        return first / (1 + exp(-first)) * ref_dot(&ref, t, 0, p->s.outputs + o);
    }
    return first + (p->add ? ref_load(p->add->host, KERNEL_BF16, t * p->y_stride + o) : 0);
}

/* Numbers of what is checked, all or some, the first and the last among them. */
static int choose(int n, int most, int *out) {
    const int count = n < most ? n : most;
    for (int i = 0; i < count; i++) {
        out[i] = count == n ? i : i == 0 ? 0 : i == 1 ? n - 1 : between(0, n - 1);
    }
    return count;
}

static bool is_poison(const uint16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (y[i] != 0xffff) {
            return false;
        }
    }
    return true;
}

static void compare(const struct product *p, const char *name, bool all) {
    const struct shape *s = &p->s;
    int rows[4096], outputs[4096];
    const int n_rows = choose(s->tokens, all ? 4096 : SAMPLED_ROWS, rows);
    const int n_outputs = choose(s->outputs, all ? 4096 : SAMPLED_OUTPUTS, outputs);
    const double bound =
        (s->gated ? 3 : 1) * (ref_bound(KERNEL_BF16, s->inputs) + (s->x_too ? BETWEEN : 0));
    uint16_t *got = pull(p->y);
    double worst = 0;
    bool good = true, kept = true;
    for (int r = 0; r < n_rows; r++) {
        const int64_t t = rows[r];
        double errors = 0, squares = 0, largest = 0;
        for (int i = 0; i < n_outputs; i++) {
            const double want = wanted(p, t, outputs[i]);
            const double error = ref_load(got, KERNEL_BF16, t * p->y_stride + outputs[i]) - want;
            errors += error * error;
            squares += want * want;
            largest = fabs(error) <= largest ? largest : fabs(error);
        }
        const double relative = sqrt(errors / (squares + 1e-30));
        good = good && relative <= bound && largest <= 16 * bound * sqrt(squares / n_outputs);
        worst = relative <= worst ? worst : relative;
        kept = kept && is_poison(got + t * p->y_stride + s->outputs, p->y_stride - s->outputs);
    }
    double *seen = s->gated ? &worst_gated : &worst_linear;
    *seen = worst <= *seen ? *seen : worst;
    check(good,
          "%s: relative error %g, bound %g (T %d, N %d, K %d, before %d, %s, inputs in %s%s%s)",
          name, worst, bound, s->tokens, s->outputs, s->inputs, s->before,
          s->channels ? "channels" : "squares", s->x_too ? "fp8" : "bf16",
          s->gated ? ", gated" : "", s->adds ? ", added to" : "");
    check(kept, "%s wrote beside its outputs (T %d, N %d)", name, s->tokens, s->outputs);
    free(got);
}

/* Whether a path says that it takes such a shape on this device, or on the one in whose guise it
 * is: all but the plain one are Hopper's. */
static bool takes(const struct shape *s, enum path path) {
    if (path == CHOSEN || path == MMA) {
        return true;
    }
    int major = 0;
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "capability");
    if (major != 9 || s->inputs % 16 != 0 || s->outputs % 8 != 0) {
        return false;
    }
    return path == FEW ? s->tokens <= (s->x_too ? 64 : 1024)
                       : s->x_too && (!s->gated || s->channels || s->outputs % GROUP == 0);
}

static cudaError_t run_path(const struct product *p, enum path path) {
    if (p->s.gated) {
        const struct call_gate_up call = gate_up_call(p);
        return path == FEW     ? kernel_gate_up_fp8_few(&call, NULL)
               : path == TILES ? kernel_gate_up_fp8_tiles(&call, NULL)
               : path == MMA   ? kernel_gate_up_fp8_mma(&call, NULL)
                               : kernel_gate_up_fp8(&call, false, NULL);
    }
    const struct call_linear call = linear_call(p, true);
    return path == FEW     ? kernel_linear_fp8_few(&call, NULL)
           : path == TILES ? kernel_linear_fp8_tiles(&call, NULL)
           : path == MMA   ? kernel_linear_fp8_mma(&call, NULL)
                           : kernel_linear_fp8(&call, false, NULL);
}

static void test_product(const struct shape *s, bool all) {
    struct product p = product_new(s);
    for (int path = 0; path < N_PATHS; path++) {
        poison(p.y);
        const cudaError_t status = run_path(&p, (enum path)path);
        if (status == cudaErrorNotSupported) {
            cudaGetLastError();
            n_refused++;
            check(!takes(s, (enum path)path), "%s refuses T %d, N %d, K %d%s", path_names[path],
                  s->tokens, s->outputs, s->inputs, s->gated ? ", gated" : "");
            continue;
        }
        launched(status, path_names[path]);
        n_ran[path]++;
        compare(&p, path_names[path], all);
    }
    arrays_free();
}

/* Gated outputs as codes beside those that are made of them in bf16, by each path. */
static void test_gated_codes(int tokens, int outputs, int inputs) {
    const struct shape s = {
        .tokens = tokens, .outputs = outputs, .inputs = inputs, .x_too = true, .gated = true};
    struct product p = product_new(&s);
    struct array *codes = array_new((size_t)(tokens * fp8_row_bytes(outputs, GROUP)));
    struct array *room = array_new(p.y->n_bytes);
    for (int path = 0; path < N_PATHS; path++) {
        if (!takes(&s, (enum path)path)) {
            continue;
        }
        launched(run_path(&p, (enum path)path), path_names[path]);
        struct call_gate_up call = gate_up_call(&p);
        call.y = room->device;
        call.codes = codes->device;
        poison(codes);
        launched(path == FEW     ? kernel_gate_up_fp8_few(&call, NULL)
                 : path == TILES ? kernel_gate_up_fp8_tiles(&call, NULL)
                 : path == MMA   ? kernel_gate_up_fp8_mma(&call, NULL)
                                 : kernel_gate_up_fp8(&call, false, NULL),
                 "gate-up and codes");
        check_codes(codes, p.y->device, p.y_stride, tokens, outputs, GROUP, path_names[path]);
    }
    arrays_free();
}

/* What a product adds to where it writes is what it adds from elsewhere. */
static void test_adds_in_place(int tokens, bool channels) {
    const struct shape s = {.tokens = tokens,
                            .outputs = 8 * between(16, 70),
                            .inputs = 16 * between(30, 70),
                            .channels = channels,
                            .x_too = true,
                            .adds = true};
    struct product p = product_new(&s);
    for (int path = 0; path < N_PATHS; path++) {
        if (!takes(&s, (enum path)path)) {
            continue;
        }
        launched(run_path(&p, (enum path)path), path_names[path]);
        uint16_t *apart = pull(p.y);
        struct array *add = p.add;
        p.y->host = memcpy(p.y->host, add->host, add->n_bytes);
        push(p.y);
        p.add = p.y;
        launched(run_path(&p, (enum path)path), path_names[path]);
        p.add = add;
        uint16_t *within = pull(p.y);
        int bad = 0;
        for (int t = 0; t < tokens; t++) {
            bad +=
                memcmp(apart + t * p.y_stride, within + t * p.y_stride, (size_t)s.outputs * 2) != 0;
        }
        check(bad == 0, "%s: %d of %d rows differ where they are added to in place (N %d, K %d)",
              path_names[path], bad, tokens, s.outputs, s.inputs);
        free(apart);
        free(within);
    }
    arrays_free();
}

static struct shape random_shape(int form) {
    struct shape s = {.channels = form & 1, .x_too = form & 2, .gated = form & 4};
    const bool plain = draw() % 3 == 0; /* of shapes that not all paths take */
    s.tokens = draw() % 2 ? between(1, 70) : between(1, 400);
    s.outputs = plain && !s.gated ? between(1, 500) : 8 * between(1, 70);
    if (s.gated && draw() % 2) {
        s.outputs = GROUP * between(1, 4);
    }
    s.inputs = plain ? 8 * between(1, 120) : 16 * between(1, 70);
    s.before = s.gated || draw() % 2 ? 0 : 8 * between(0, 40);
    s.adds = !s.gated && draw() % 2;
    return s;
}

/* Those of LLaDA-8B, by a few of their outputs. */
static void test_model_shapes(void) {
    static const struct shape layers[] = {{.outputs = 12288, .inputs = 4096},
                                          {.outputs = 4096, .inputs = 4096},
                                          {.outputs = 4096, .inputs = 12288},
                                          {.outputs = 12288, .inputs = 4096, .gated = true}};
    static const int tokens[] = {1, 32, 64, 200, 1056};
    for (int i = 0; i < 4; i++) {
        for (int t = 0; t < 5; t++) {
            struct shape s = layers[i];
            s.tokens = tokens[t];
            s.channels = (i + t) % 2;
            s.x_too = true;
            test_product(&s, false);
        }
    }
}

/* ---- what is no number, and what must not change ---- */

static void test_no_numbers(bool channels, int tokens) {
    const struct shape s = {
        .tokens = tokens, .outputs = 264, .inputs = 400, .channels = channels, .x_too = true};
    struct product p = product_new(&s);
    const int bad_row = between(0, tokens - 1), bad_output = between(0, s.outputs - 1);
    ((uint8_t *)p.x->host)[bad_row * p.x_stride + between(0, s.inputs - 1)] = E4M3_NAN;
    ((uint8_t *)p.w->host)[bad_output * s.inputs + between(0, s.inputs - 1)] = E4M3_NAN;
    push(p.x);
    push(p.w);
    for (int path = 0; path < N_PATHS; path++) {
        if (!takes(&s, (enum path)path)) {
            continue;
        }
        launched(run_path(&p, (enum path)path), path_names[path]);
        uint16_t *got = pull(p.y);
        int wrong = 0;
        for (int t = 0; t < tokens; t++) {
            for (int o = 0; o < s.outputs; o++) {
                const bool is_none = isnan(ref_load(got, KERNEL_BF16, t * p.y_stride + o));
                wrong += is_none != (t == bad_row || o == bad_output);
            }
        }
        check(wrong == 0, "%s: %d outputs are numbers that should not be, or the reverse",
              path_names[path], wrong);
        free(got);
    }
    arrays_free();
}

/* A row of an invariant call alone and among others; one of a call twice. */
static void test_invariant(bool channels, bool gated) {
    const struct shape s = {.tokens = 300,
                            .outputs = 384,
                            .inputs = 1040,
                            .channels = channels,
                            .x_too = true,
                            .gated = gated};
    struct product p = product_new(&s);
    struct product one = p;
    const int row = between(0, s.tokens - 1);
    one.s.tokens = 1;
    one.y = array_new((size_t)p.y_stride * 2);
    struct array from = *p.x;
    from.device = (char *)p.x->device + row * p.x_stride;
    one.x = &from;
    if (gated) {
        const struct call_gate_up all = gate_up_call(&p), alone = gate_up_call(&one);
        launched(kernel_gate_up_fp8(&all, true, NULL), "gate_up");
        launched(kernel_gate_up_fp8(&alone, true, NULL), "gate_up");
    } else {
        const struct call_linear all = linear_call(&p, true), alone = linear_call(&one, true);
        launched(kernel_linear_fp8(&all, true, NULL), "linear");
        launched(kernel_linear_fp8(&alone, true, NULL), "linear");
    }
    uint16_t *got = pull(p.y), *single = pull(one.y);
    check(memcmp(got + row * p.y_stride, single, (size_t)s.outputs * 2) == 0,
          "a row alone has other bits (%s%s)", channels ? "channels" : "squares",
          gated ? ", gated" : "");
    free(got);
    free(single);
    arrays_free();
}

/* ---- by the device: inputs in bf16 of many tokens ---- */

static void test_device(int tokens, bool gated, bool channels) {
    const struct device_table *table = &unmask_device_cuda;
    const struct shape s = {.tokens = tokens,
                            .outputs = gated ? 2304 : 5000,
                            .inputs = 2048,
                            .channels = channels,
                            .gated = gated,
                            .adds = !gated};
    struct product p = product_new(&s);
    int status;
    if (gated) {
        const struct call_gate_up call = gate_up_call(&p);
        status = table->gate_up(device, &call);
    } else {
        const struct call_linear call = linear_call(&p, true);
        status = table->linear(device, &call);
    }
    status = status == DEVICE_OK ? table->finish(device) : status;
    check(status == DEVICE_OK, "the device: %s", table->trouble(device));
    if (status == DEVICE_OK) {
        compare(&p, "the device", false);
    }
    arrays_free();
}

/* ---- the head ---- */

static void test_head(int n_rows, int n_vocab, int n_channels, bool channels, bool x_too) {
    const struct shape s = {.tokens = n_rows,
                            .outputs = n_vocab,
                            .inputs = n_channels,
                            .channels = channels,
                            .x_too = x_too};
    struct product p = product_new(&s);
    struct array *tokens = array_new((size_t)n_rows * 4),
                 *confidence = array_new((size_t)n_rows * 4);
    struct array *margin = array_new((size_t)n_rows * 4), *entropy = array_new((size_t)n_rows * 4);
    struct array *scratch = array_new((size_t)head_scratch_bytes());
    struct call_head call = {.x = p.x->host,
                             .w = p.w->host,
                             .token = tokens->host,
                             .confidence = confidence->host,
                             .margin = margin->host,
                             .entropy = entropy->host,
                             .n_rows = n_rows,
                             .n_channels = n_channels,
                             .n_vocab = n_vocab,
                             .dtype = KERNEL_BF16,
                             .fp8 = p.fp8};
    if (!x_too) { /* the head's rows are next to each other */
        uint16_t *x = p.x->host;
        for (int64_t t = 0; t < n_rows; t++) {
            memmove(x + t * n_channels, x + t * p.x_stride, (size_t)n_channels * 2);
        }
        push(p.x);
    }
    call.fp8.w_scale = p.scales->host;
    if (!ref_head(&call)) {
        exit(2);
    }
    call.x = p.x->device, call.w = p.w->device, call.fp8.w_scale = p.scales->device;
    call.token = tokens->device, call.confidence = confidence->device;
    call.margin = margin->device, call.entropy = entropy->device, call.scratch = scratch->device;
    launched(kernel_head(head, &call, NULL), "head");
    int32_t *got = pull(tokens);
    float *sure = pull(confidence), *apart = pull(margin), *spread = pull(entropy);
    int same = 0;
    double worst = 0;
    for (int t = 0; t < n_rows; t++) {
        same += got[t] == ((int32_t *)tokens->host)[t];
        const double want = (double)((float *)confidence->host)[t];
        const double errors[] = {fabs((double)sure[t] - want) / (want + 1e-3),
                                 fabs((double)(apart[t] - ((float *)margin->host)[t])),
                                 fabs((double)(spread[t] - ((float *)entropy->host)[t])) / 10};
        for (int i = 0; i < 3; i++) {
            worst = errors[i] <= worst ? worst : errors[i];
        }
    }
    check(same >= n_rows * 49 / 50, "head: %d of %d tokens differ (V %d, C %d, %s, inputs in %s)",
          n_rows - same, n_rows, n_vocab, n_channels, channels ? "channels" : "squares",
          x_too ? "fp8" : "bf16");
    check(worst <= 0.05, "head: confidences off by %g (N %d, V %d, C %d)", worst, n_rows, n_vocab,
          n_channels);
    free(got), free(sure), free(apart), free(spread);
    arrays_free();
}

static void start(void) {
    char text[DEVICE_TEXT_CHARS] = "";
    if (unmask_device_cuda.open(0, KERNEL_BF16, &device, text) != DEVICE_OK) {
        printf("%s\n", text);
        exit(2);
    }
    must(head_open(&head), "head_open");
    for (int i = 0; i < POOL; i++) {
        pool[i] = e4m3_from_float((float)(normal() * 64));
    }
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    start();
    static const int widths[] = {8, 120, 128, 136, 1000, 4096, 5120, 12288, 20000};
    for (int i = 0; i < 9; i++) {
        test_rows(between(5, 40), widths[i], GROUP, 8 * between(0, 2));
        test_rows(between(5, 40), widths[i], widths[i], 8 * between(0, 2));
    }
    test_rows(7, 512, 64, 0);
    for (int i = 0; i < 8; i++) {
        test_norm_codes(between(1, 40), 8 * between(1, 600), i & 1, i & 2);
        test_norm_codes(between(1, 20), i & 4 ? 4096 : widths[i], i & 1, i & 2);
    }
    test_norm_codes(4200, 2048, false, true);
    test_norm_codes(3, 32768, true, false);
    for (int i = 0; i < 4; i++) {
        test_norm_alone(between(2048, 2100), i & 1 ? 4096 : 2048, i & 1, i & 2);
        test_norm_alone(2050, 128 * between(3, 32), i & 2, i & 1);
    }
    for (int i = 0; i < (small ? 16 : 96); i++) {
        const struct shape s = random_shape(i % 8);
        test_product(&s, false);
    }
    const struct shape whole[] = {
        {.tokens = 130, .outputs = 392, .inputs = 272, .x_too = true},
        {.tokens = 61, .outputs = 264, .inputs = 528, .before = 72, .x_too = true, .adds = true},
        {.tokens = 300, .outputs = 128, .inputs = 512, .x_too = true, .gated = true},
        {.tokens = 33, .outputs = 200, .inputs = 384, .channels = true},
        {.tokens = 64, .outputs = 392, .inputs = 1360, .before = 72, .adds = true},
        {.tokens = 17, .outputs = 128, .inputs = 4096, .gated = true},
        {.tokens = 70, .outputs = 264, .inputs = 112, .x_too = true},
        {.tokens = 40, .outputs = 256, .inputs = 128, .x_too = true, .gated = true},
        {.tokens = 40, .outputs = 256, .inputs = 128, .channels = true, .x_too = true}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        test_product(&whole[i], true);
    }
    test_gated_codes(between(1, 64), GROUP * between(1, 5), 272);
    test_gated_codes(between(65, 200), GROUP * between(1, 5), 528);
    test_gated_codes(1100, 1408, 272); /* enough tiles for wide ones */
    test_gated_codes(520, 12288, 256);
    test_gated_codes(77, 72, 256);
    for (int i = 0; i < 2; i++) {
        test_adds_in_place(between(1, 64), i);
        test_adds_in_place(between(65, 700), i);
        test_no_numbers(i, 40);
        test_no_numbers(i, 150);
        test_invariant(i, false);
        test_invariant(i, true);
        test_device(150, i, !i);
        test_device(1100, i, i);
        test_device(20, i, i);
        test_head(between(1, 64), 8 * between(50, 300), 512, i, true);
        test_head(between(65, 150), 8 * between(50, 300) + 4, 256, i, true);
        test_head(between(1, 100), between(300, 2000), 136, i, false);
    }
    if (!small) {
        test_model_shapes();
    }
    printf("runs: chosen %d, few %d, tiles %d, mma %d; refused %d\n", n_ran[CHOSEN], n_ran[FEW],
           n_ran[TILES], n_ran[MMA], n_refused);
    printf("worst relative error: %.5f, gated %.5f\n", worst_linear, worst_gated);
    unmask_device_cuda.close(device);
    head_close(head);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
