/* The fused gate-up product and the plain product on its main loop against double sums, on random
 * shapes with tails. A plain program, so that it runs on a GPU machine without a test library:
 * `test_gate_up [seed] [rounds]` prints the seed, a line for each failure, and the count. Where the
 * device cannot run the kernels it checks that they say so. Outputs and what lies around them are
 * poisoned with NaN before each launch: inside none may be left, outside none may be gone. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#include "tests/gpu/chance.h"

enum { GUARD_ROWS = 3 };

/* By tiles of many tokens; of few, tiles shared by clusters or rows dealt evenly. */
enum path { TILES, FEW, EVEN };

static void check_shape(bool good, const char *what, int n_tokens, int n_channels, int n_outputs) {
    check(good, "%s: T %d, C %d, outputs %d", what, n_tokens, n_channels, n_outputs);
}

static void must(cudaError_t status, const char *what) {
    if (status != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(status));
        exit(2);
    }
}

/* A matrix of bf16 on both sides; everything that nothing was written to is NaN. */
struct matrix {
    uint16_t *host, *device;
    size_t n_bytes;
    int n_rows, n_columns, stride;
};

static struct matrix matrix_new(int n_rows, int n_columns, int stride) {
    struct matrix m = {.n_rows = n_rows, .n_columns = n_columns, .stride = stride};
    m.n_bytes = ((size_t)n_rows + GUARD_ROWS) * stride * sizeof *m.host;
    m.host = malloc(m.n_bytes);
    if (!m.host) {
        printf("no memory for a matrix\n");
        exit(2);
    }
    memset(m.host, 0xff, m.n_bytes);
    must(cudaMalloc((void **)&m.device, m.n_bytes), "cudaMalloc");
    must(cudaMemset(m.device, 0xff, m.n_bytes), "cudaMemset");
    return m;
}

static void matrix_free(struct matrix *m) {
    must(cudaFree(m->device), "cudaFree");
    free(m->host);
}

static void push(struct matrix *m) {
    must(cudaMemcpy(m->device, m->host, m->n_bytes, cudaMemcpyHostToDevice), "push");
}

/* Whole numbers of at most `most`, times scale: sums of their products are exact in single
 * precision when scale is a power of two. */
static struct matrix matrix_random(int n_rows, int n_columns, int stride, int most, double scale) {
    struct matrix m = matrix_new(n_rows, n_columns, stride);
    for (int64_t row = 0; row < n_rows; row++) {
        for (int64_t i = 0; i < n_columns; i++) {
            m.host[row * stride + i] = bf16_from_float((float)(between(-most, most) * scale));
        }
    }
    push(&m);
    return m;
}

static double dot(const struct matrix *x, int64_t x_row, const struct matrix *w, int64_t w_row) {
    double sum = 0;
    for (int64_t i = 0; i < x->n_columns; i++) {
        sum += ref_load(x->host, KERNEL_BF16, x_row * x->stride + i) *
               ref_load(w->host, KERNEL_BF16, w_row * w->stride + i);
    }
    return sum;
}

/* Compares the device's matrix with the host's: NaN where the host has it, and within `bound` of
 * the row's root mean square elsewhere; bound 0 asks for the same bytes. */
static bool matches(const struct matrix *m, double bound) {
    uint16_t *got = malloc(m->n_bytes);
    if (!got) {
        printf("no memory for a matrix\n");
        exit(2);
    }
    must(cudaMemcpy(got, m->device, m->n_bytes, cudaMemcpyDeviceToHost), "pull");
    bool good = bound > 0 || memcmp(got, m->host, m->n_bytes) == 0;
    for (int64_t row = 0; row < m->n_rows + GUARD_ROWS && bound > 0; row++) {
        double errors = 0, squares = 0;
        for (int64_t i = 0; i < m->stride; i++) {
            const double want = ref_load(m->host, KERNEL_BF16, row * m->stride + i);
            const double have = ref_load(got, KERNEL_BF16, row * m->stride + i);
            if (isnan(want) || isnan(have)) {
                good = good && isnan(want) && isnan(have);
                continue;
            }
            errors += (have - want) * (have - want);
            squares += want * want;
        }
        good = good && errors <= bound * bound * squares;
    }
    free(got);
    return good;
}

static void test_gate_up(int n_tokens, int n_channels, int n_hidden, enum path path,
                         bool supported) {
    const int x_stride = n_channels + 8 * between(0, 3), y_stride = n_hidden + 8 * between(0, 3);
    struct matrix x = matrix_random(n_tokens, n_channels, x_stride, 127, 1.0 / 64);
    struct matrix w =
        matrix_random(2 * n_hidden, n_channels, n_channels, 127, 0.03 / sqrt(n_channels));
    struct matrix y = matrix_new(n_tokens, n_hidden, y_stride);
    const struct call_gate_up call =
        MAKE(struct call_gate_up, .x = x.device, .w = w.device, .y = y.device, .x_stride = x_stride,
             .y_stride = y_stride, .n_tokens = n_tokens, .n_channels = n_channels,
             .n_hidden = n_hidden, .dtype = KERNEL_BF16);
    static const char *const names[] = {"gate_up", "gate_up of few tokens", "even gate_up"};
    const char *name = names[path];
    const cudaError_t status = path == TILES ? kernel_gate_up(&call, NULL)
                               : path == FEW ? kernel_gate_up_few(&call, NULL)
                                             : kernel_gate_up_even(&call, NULL);
    if (!supported) {
        check_shape(status == cudaErrorNotSupported, "gate_up is refused", n_tokens, n_channels,
                    n_hidden);
    } else {
        must(status, name);
        must(cudaDeviceSynchronize(), name);
        for (int64_t row = 0; row < n_tokens; row++) {
            for (int64_t i = 0; i < n_hidden; i++) {
                const double gate = dot(&x, row, &w, i), up = dot(&x, row, &w, n_hidden + i);
                ref_store(y.host, KERNEL_BF16, row * y_stride + i, gate / (1 + exp(-gate)) * up);
            }
        }
        check_shape(matches(&y, ref_bound(KERNEL_BF16, n_channels)), name, n_tokens, n_channels,
                    n_hidden);
    }
    matrix_free(&x);
    matrix_free(&w);
    matrix_free(&y);
}

/* mode: 0 nothing is added, 1 a matrix is, 2 y itself is. */
static void test_linear(int n_tokens, int n_inputs, int n_outputs, int mode, enum path path,
                        bool supported) {
    static const char *const names[][3] = {
        {"linear", "linear with add", "linear in place"},
        {"linear of few tokens", "linear of few tokens with add", "linear of few in place"},
        {"even linear", "even linear with add", "even linear in place"}};
    const int x_stride = n_inputs + 8 * between(0, 3), y_stride = n_outputs + 8 * between(0, 3);
    struct matrix x = matrix_random(n_tokens, n_inputs, x_stride, 3, 1);
    struct matrix w = matrix_random(n_outputs, n_inputs, n_inputs, 3, 1);
    struct matrix add = matrix_random(n_tokens, n_outputs, y_stride, 100, 1);
    struct matrix y = mode == 2 ? matrix_random(n_tokens, n_outputs, y_stride, 100, 1)
                                : matrix_new(n_tokens, n_outputs, y_stride);
    const struct call_linear call =
        MAKE(struct call_linear, .x = x.device, .w = w.device,
             .add = mode == 0   ? NULL
                    : mode == 1 ? add.device
                                : y.device,
             .y = y.device, .x_stride = x_stride, .y_stride = y_stride, .n_tokens = n_tokens,
             .n_outputs = n_outputs, .n_inputs = n_inputs, .dtype = KERNEL_BF16);
    const cudaError_t status = path == TILES ? kernel_linear_wgmma(&call, NULL)
                               : path == FEW ? kernel_linear_few(&call, NULL)
                                             : kernel_linear_even(&call, NULL);
    if (!supported) {
        check_shape(status == cudaErrorNotSupported, "linear is refused", n_tokens, n_inputs,
                    n_outputs);
    } else {
        must(status, names[path][mode]);
        must(cudaDeviceSynchronize(), names[path][mode]);
        const struct matrix *added = mode == 2 ? &y : &add;
        for (int64_t row = 0; row < n_tokens; row++) {
            for (int64_t i = 0; i < n_outputs; i++) {
                const double term =
                    mode == 0 ? 0 : ref_load(added->host, KERNEL_BF16, row * y_stride + i);
                ref_store(y.host, KERNEL_BF16, row * y_stride + i, dot(&x, row, &w, i) + term);
            }
        }
        check_shape(matches(&y, 0), names[path][mode], n_tokens, n_inputs, n_outputs);
    }
    matrix_free(&x);
    matrix_free(&w);
    matrix_free(&add);
    matrix_free(&y);
}

static void test_refusals(void) {
    struct call_gate_up call =
        MAKE(struct call_gate_up, .x_stride = 64, .y_stride = 64, .n_tokens = 1, .n_channels = 60,
             .n_hidden = 64, .dtype = KERNEL_BF16);
    check_shape(kernel_gate_up(&call, NULL) == cudaErrorInvalidValue, "60 channels are refused", 1,
                60, 64);
    call.n_channels = 64;
    call.y_stride = 65;
    check_shape(kernel_gate_up(&call, NULL) == cudaErrorInvalidValue, "a stride of 65 is refused",
                1, 64, 64);
    call.y_stride = 64;
    call.dtype = KERNEL_F32;
    check_shape(kernel_gate_up(&call, NULL) == cudaErrorInvalidValue, "float32 is refused", 1, 64,
                64);
    call.dtype = KERNEL_BF16;
    call.n_tokens = 0;
    check_shape(kernel_gate_up(&call, NULL) == cudaSuccess, "no tokens are a success", 0, 64, 64);
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    const int n_rounds = argc > 2 ? atoi(argv[2]) : 24;
    printf("seed %" PRIu64 "\n", state);
    struct cudaDeviceProp device;
    must(cudaGetDeviceProperties(&device, 0), "a device");
    const bool supported = device.major == 9 && device.minor == 0;
    test_refusals();
    for (int i = 0; i < n_rounds; i++) {
        static const int edges[] = {1, 63, 64, 65, 127, 128, 129, 256, 257, 384};
        const int n_tokens = i % 2 ? edges[i / 2 % 10] : between(1, 600);
        const int n_channels = i % 3 ? between(1, 60) * 8 : between(1, 12) * 64;
        const int n_outputs = i % 3 ? between(1, 50) * 8 : between(1, 8) * 64;
        test_gate_up(n_tokens, n_channels, n_outputs, TILES, supported);
        test_linear(n_tokens, n_channels, n_outputs, i % 3, TILES, supported);
    }
    /* Few tokens: tiles that one to eight blocks share, more steps than stages, ragged ends. */
    for (int i = 0; i < n_rounds; i++) {
        const int n_tokens = i % 4 ? between(1, 64) : 1 << between(0, 6);
        const int n_channels = 8 * (i % 2 ? between(1, 40) : between(64, 200));
        const int n_outputs = 8 * (i % 3 ? between(1, 50) : between(200, 600));
        test_gate_up(n_tokens, n_channels, n_outputs, FEW, supported);
        test_linear(n_tokens, n_channels, n_outputs, i % 3, FEW, supported);
    }
    /* Rows dealt evenly: to clusters of two, then, of many outputs, to blocks of one to three times
     * 64 rows, in one turn or two. */
    for (int i = 0; i < n_rounds; i++) {
        const int n_tokens = i % 4 ? between(1, 64) : 1 << between(0, 6);
        const int n_channels = 8 * (i % 2 ? between(1, 40) : between(64, 400));
        const int n_outputs = 8 * (i % 2 ? between(1, 600) : between(1, 50));
        test_gate_up(n_tokens, n_channels, n_outputs, EVEN, supported);
        test_linear(n_tokens, n_channels, n_outputs, i % 3, EVEN, supported);
        const int n_many = 8 * between(800, 3600);
        test_gate_up(between(1, 4), 8 * between(1, 8), n_many, EVEN, supported);
        test_linear(between(1, 4), 8 * between(1, 8), n_many, i % 3, EVEN, supported);
    }
    for (int path = FEW; path <= EVEN; path++) {
        test_gate_up(65, 64, 64, (enum path)path, false);
        test_linear(65, 64, 64, 0, (enum path)path, false);
    }
    /* Enough tiles that the wider ones pay: 256 rows of weights a tile, then 192. */
    for (int i = 0; i < 2 && n_rounds >= 24; i++) {
        const int n_tokens = i ? 384 : 1100;
        test_gate_up(n_tokens, 64, i ? 3000 : 1448, TILES, supported);
        test_linear(n_tokens, 64, i ? 6000 : 2904, 0, TILES, supported);
        test_linear(n_tokens, 64, i ? 6000 : 2904, 2, TILES, supported);
    }
    if (n_rounds >= 24) {
        /* The last tile of tokens reaches back over one that is finished long before: what is added
         * to y in place there must not be added twice. */
        test_linear(2056, 16, 6000, 2, TILES, supported);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
