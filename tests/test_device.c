/* The CPU as a device: products whose rows do not see their batch, selections, limits; and devices
 * that are not there. */
#include <math.h>
#include <string.h>

#include "engine/device.h"
#include "kernels/twin.h"
#include "sim/base/rng.h"
#include "tests/suite.h"

START_TEST(a_row_of_a_product_has_the_same_bits_in_any_call) {
    enum { T = 101, MAX_N = 700, MAX_K = 1100 };
    static const int widths[][2] = {{30, 8}, {67, 44}, {256, 128}, {257, 1100}, {700, 333}};
    static float x[T * MAX_K], w[MAX_N * MAX_K], whole[T * MAX_N], part[T * MAX_N];
    struct engine_device cpu;
    struct err err = {0};
    struct rng rng = rng_stream(4, "product");
    ck_assert_int_eq(engine_device_open("cpu", NULL, &cpu, &err), 0);
    for (int i = 0; i < T * MAX_K; i++) {
        x[i] = (float)rng_uniform(&rng) - 0.5f;
    }
    for (int i = 0; i < MAX_N * MAX_K; i++) {
        w[i] = (float)rng_uniform(&rng) - 0.5f;
    }
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int n = widths[i][0], k = widths[i][1];
        struct call_linear call = {x, w, NULL, whole, k, n, T, n, k, KERNEL_F32};
        ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
        for (int t = 1; t <= T; t++) { /* the first t rows, and the last t */
            call.y = part;
            call.n_tokens = t;
            ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
            ck_assert_mem_eq(part, whole, sizeof(float) * (size_t)(t * n));
            call.x = x + (T - t) * k;
            ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
            ck_assert_mem_eq(part, whole + (T - t) * n, sizeof(float) * (size_t)(t * n));
            call.x = x;
        }
        call.n_tokens = T;
        twin_linear(&call);
        double difference = 0, norm = 0;
        for (int j = 0; j < T * n; j++) {
            double d = (double)whole[j] - (double)part[j];
            difference += d * d;
            norm += (double)part[j] * (double)part[j];
        }
        ck_assert_double_le(sqrt(difference / norm), twin_bound(KERNEL_F32, k));
        float *sum = whole; /* adding in place */
        memcpy(sum, part, sizeof(float) * (size_t)(T * n));
        call = (struct call_linear){x, w, sum, sum, k, n, T, n, k, KERNEL_F32};
        ck_assert_int_eq(cpu.table->linear(cpu.device, &call), 0);
        for (int j = 0; j < T * n; j++) {
            ck_assert_float_eq_tol(sum[j], 2 * part[j], 1e-4f);
        }
    }
    engine_device_close(&cpu);
}
END_TEST

START_TEST(selection_in_float32_is_the_twins) {
    enum { T = 60, H = 6, G = 2, D = 8, N = 51, KEPT = 20 };
    static float q[T * H * D], k[T * G * D], v[T * G * D];
    static float scores[2][G * N], cache[2][2 * G * KEPT * D];
    static int32_t indices[2][G * N];
    struct engine_device cpu;
    struct err err = {0};
    struct rng rng = rng_stream(5, "selection");
    const int32_t start[] = {0, T}, begin[] = {13}, end[] = {22}, kept[] = {KEPT};
    const int64_t zero[] = {0};
    ck_assert_int_eq(engine_device_open("cpu", NULL, &cpu, &err), 0);
    for (int i = 0; i < T * H * D; i++) {
        q[i] = (float)rng_uniform(&rng) - 0.5f;
        k[i % (T * G * D)] = (float)rng_uniform(&rng) - 0.5f;
        v[i % (T * G * D)] = (float)i;
    }
    for (int uniform = 0; uniform < 2; uniform++) {
        struct call_select call = {.q = q,
                                   .k = k,
                                   .v = v,
                                   .start = start,
                                   .block_start = begin,
                                   .block_end = end,
                                   .kept = kept,
                                   .cache_start = zero,
                                   .score_start = zero,
                                   .q_stride = H * D,
                                   .kv_stride = G * D,
                                   .n_requests = 1,
                                   .n_heads = H,
                                   .n_kv_heads = G,
                                   .head_size = D,
                                   .max_candidates = N,
                                   .uniform = uniform == 1,
                                   .dtype = KERNEL_F32};
        for (int i = 0; i < 2; i++) {
            call.cache = cache[i];
            call.scores = scores[i];
            call.indices = indices[i];
            ck_assert(i == 0 ? cpu.table->select(cpu.device, &call) == DEVICE_OK
                             : twin_select(&call));
        }
        ck_assert_mem_eq(scores[0], scores[1], sizeof(float) * (uniform ? N : G * N));
        ck_assert_mem_eq(indices[0], indices[1], sizeof(int32_t) * KEPT);
        ck_assert_mem_eq(indices[0] + N, indices[1] + N, sizeof(int32_t) * KEPT);
        ck_assert_mem_eq(cache[0], cache[1], sizeof cache[0]);
    }
    engine_device_close(&cpu);
}
END_TEST

START_TEST(calls_that_are_too_large_for_the_cpu_are_refused) {
    struct engine_device cpu;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open("cpu", NULL, &cpu, &err), 0);
    ck_assert_int_eq(cpu.table->linear(
                         cpu.device, &(struct call_linear){.n_inputs = 32776, .dtype = KERNEL_F32}),
                     DEVICE_REFUSED);
    ck_assert_int_eq(engine_device_err(&cpu, DEVICE_REFUSED, "trying", &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "the cpu device refused a call while trying: a product over more "
                               "than 32768 inputs");
    ck_assert_int_eq(
        cpu.table->head(cpu.device, &(struct call_head){.n_vocab = 16 << 20, .dtype = KERNEL_F32}),
        DEVICE_REFUSED);
    ck_assert_int_eq(cpu.table->select(cpu.device, &(struct call_select){.n_heads = 512,
                                                                         .head_size = 128,
                                                                         .dtype = KERNEL_F32}),
                     DEVICE_REFUSED);
#ifndef __SANITIZE_ADDRESS__ /* which stops at such a wish */
    void *memory;
    ck_assert_int_eq(cpu.table->allocate(cpu.device, INT64_C(1) << 60, &memory), DEVICE_NO_MEMORY);
#endif
    ck_assert(cpu.facts.memory_bytes > 0 && cpu.facts.free_bytes > 0 && cpu.facts.n_sms > 0 &&
              cpu.facts.capability == 0 && strlen(cpu.facts.name) > 0);
    engine_device_close(&cpu);
}
END_TEST

START_TEST(devices_that_are_not_there_are_named) {
    struct engine_device device;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open("tpu", NULL, &device, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "unknown device 'tpu': there are cpu and cuda");
    err = (struct err){0};
    ck_assert_int_eq(engine_device_open("cuda", "/nowhere/libunmask_cuda.so", &device, &err),
                     ERR_WORLD);
    ck_assert_ptr_eq(strstr(err.text, "no cuda device: /nowhere/libunmask_cuda.so cannot be "
                                      "loaded (/nowhere/libunmask_cuda.so: cannot open"),
                     err.text);
    err = (struct err){0};
    ck_assert_int_eq(engine_device_open("cuda", "libm.so.6", &device, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "no cuda device: libm.so.6 has no symbol unmask_device_cuda");
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        a_row_of_a_product_has_the_same_bits_in_any_call,
        selection_in_float32_is_the_twins,
        calls_that_are_too_large_for_the_cpu_are_refused,
        devices_that_are_not_there_are_named,
    };
    return SUITE_RUN("device", tests);
}
