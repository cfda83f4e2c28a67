/* Kernels over tensors of more than 2^31 elements, as the longest canvases have them: the last rows
 * of a long call are those that a short call on these rows alone gives. A plain program:
 * `test_long [cuda [LIBRARY [TOKENS]]]` takes 80 KB a token: 49 GB at 600,000 tokens, less on a
 * card that has less free, of which it needs 16 GB for the widest tensor to have 2^32 elements; it
 * prints a line for each kernel and the count of failures. Rows are the same bits but for products
 * and heads, whose algorithm may follow the number of rows. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device.h"
#include "kernels/bf16.h"
#include "sim/base/names.h"
#include "tests/support/make.h"

enum {
    CHANNELS = 4096,
    HIDDEN = 12288,
    HEADS = 32,
    D = 128,
    VOCAB = 126464,
    LAST = 256,
    LOGIT_ROWS = 20000
};

static struct engine_device device;
static const struct device_table *table;
static int64_t n_tokens;
static int n_passed, n_failed;
static uint64_t key = 1;

static void must(int status, const char *what) {
    struct err err = {0};
    if (engine_device_err(&device, status, what, &err) != 0) {
        fprintf(stderr, "test_long: %s\n", err.text);
        exit(2);
    }
}

static uint16_t *allocate(int64_t n) {
    void *memory;
    must(table->allocate(device.device, n * 2, &memory), "allocating");
    return memory;
}

static uint16_t *fill(uint16_t *y, int64_t n, double centre, double spread) {
    const struct call_random call = {
        .y = y, .key = key++, .n = n, .centre = centre, .spread = spread, .dtype = KERNEL_BF16};
    must(table->random(device.device, &call), "filling");
    return y;
}

static void tell(bool good, const char *what, double error) {
    n_passed += good;
    n_failed += !good;
    printf("%s %-28s error %g\n", good ? "ok    " : "FAILED", what, error);
}

/* n elements at `a` and at `b`, on the device. */
static void compare(const char *what, const uint16_t *a, const uint16_t *b, int64_t n,
                    double bound) {
    uint16_t *x = malloc((size_t)n * 2), *y = malloc((size_t)n * 2);
    double apart = 0, size = 0;
    must(table->download(device.device, x, a, n * 2), "downloading");
    must(table->download(device.device, y, b, n * 2), "downloading");
    for (int64_t i = 0; i < n; i++) {
        const double left = (double)bf16_to_float(x[i]), right = (double)bf16_to_float(y[i]);
        apart += (left - right) * (left - right);
        size += right * right;
    }
    const double error = sqrt(apart) / sqrt(size);
    tell(error <= bound && size > 0, what, error);
    free(x);
    free(y);
}

static int64_t first_last(void) {
    return n_tokens - LAST;
}

static void product(const uint16_t *x, const uint16_t *w, uint16_t *y, int64_t n, int outputs) {
    const struct call_linear call = MAKE(
        struct call_linear, .x = x, .w = w, .y = y, .x_stride = CHANNELS, .y_stride = outputs,
        .n_tokens = (int32_t)n, .n_outputs = outputs, .n_inputs = CHANNELS, .dtype = KERNEL_BF16);
    must(table->linear(device.device, &call), "linear");
}

static void test_products(const uint16_t *x, const uint16_t *w, uint16_t *wide, uint16_t *y,
                          uint16_t *part) {
    const int64_t first = first_last();
    product(x, w, wide, n_tokens, 2 * HIDDEN);
    product(x + first * CHANNELS, w, part, LAST, 2 * HIDDEN);
    compare("linear", wide + first * 2 * HIDDEN, part, (int64_t)LAST * 2 * HIDDEN, 3e-3);
    struct call_swiglu swiglu =
        MAKE(struct call_swiglu, .gate_up = wide, .y = y, .y_stride = HIDDEN,
             .n_tokens = (int32_t)n_tokens, .n_hidden = HIDDEN, .dtype = KERNEL_BF16);
    must(table->swiglu(device.device, &swiglu), "swiglu");
    swiglu.gate_up = wide + first * 2 * HIDDEN;
    swiglu.y = part;
    swiglu.n_tokens = LAST;
    must(table->swiglu(device.device, &swiglu), "swiglu");
    compare("swiglu", y + first * HIDDEN, part, (int64_t)LAST * HIDDEN, 0);
    struct call_gate_up gate_up =
        MAKE(struct call_gate_up, .x = x, .w = w, .y = y, .x_stride = CHANNELS, .y_stride = HIDDEN,
             .n_tokens = (int32_t)n_tokens, .n_channels = CHANNELS, .n_hidden = HIDDEN,
             .dtype = KERNEL_BF16);
    must(table->gate_up(device.device, &gate_up), "gate_up");
    gate_up.x = x + first * CHANNELS;
    gate_up.y = part;
    gate_up.n_tokens = LAST;
    must(table->gate_up(device.device, &gate_up), "gate_up");
    compare("gate_up", y + first * HIDDEN, part, (int64_t)LAST * HIDDEN, 3e-3);
}

static void norm(uint16_t *residual, const uint16_t *x, const uint16_t *weight, uint16_t *y,
                 int64_t n) {
    const struct call_norm call =
        MAKE(struct call_norm, .x = x, .weight = weight, .residual = residual, .y = y,
             .n_rows = (int32_t)n, .n_channels = CHANNELS, .epsilon = 1e-5f, .dtype = KERNEL_BF16);
    must(table->norm(device.device, &call), "norm");
}

static void test_norm_and_add(uint16_t *x, const uint16_t *weight, uint16_t *y, uint16_t *part) {
    const int64_t first = first_last(), at = first * CHANNELS, n = (int64_t)LAST * CHANNELS;
    uint16_t *residual = part + n, *normed = part + 2 * n;
    must(table->copy(device.device, residual, x + at, n * 2), "copying");
    norm(residual, y + at, weight, normed, LAST);
    struct call_add add = {.a = x + at, .b = y + at, .y = part, .n = n, .dtype = KERNEL_BF16};
    must(table->add(device.device, &add), "add");
    compare("norm's residual is the sum", residual, part, n, 0);
    norm(x, y, weight, y, n_tokens);
    compare("norm", y + at, normed, n, 0);
    compare("norm's residual", x + at, residual, n, 0);
    must(table->copy(device.device, part, x + at, n * 2), "copying");
    must(table->copy(device.device, residual, y + at, n * 2), "copying");
    struct call_add last = {.a = part, .b = residual, .y = normed, .n = n, .dtype = KERNEL_BF16};
    must(table->add(device.device, &last), "add");
    struct call_add all = {.a = x, .b = y, .y = x, .n = n_tokens * CHANNELS, .dtype = KERNEL_BF16};
    must(table->add(device.device, &all), "add");
    compare("add", x + at, normed, n, 0);
}

static void test_rope(uint16_t *qkv, uint16_t *part) {
    const int64_t first = first_last(), stride = 3 * CHANNELS, at = first * stride;
    void *cos_sin, *positions, *host;
    must(table->allocate_host(device.device, n_tokens * 4, &host), "allocating");
    memset(host, 0, (size_t)n_tokens * 4);
    must(table->allocate(device.device, n_tokens * 4, &positions), "allocating");
    must(table->allocate(device.device, D * 4, &cos_sin), "allocating");
    must(table->upload(device.device, positions, host, n_tokens * 4), "uploading");
    must(table->finish(device.device), "uploading");
    for (int i = 0; i < D; i++) {
        ((float *)host)[i] = i % 2 == 0 ? 0.8f : 0.6f;
    }
    must(table->upload(device.device, cos_sin, host, D * 4), "uploading");
    must(table->copy(device.device, part, qkv + at, LAST * stride * 2), "copying");
    for (int side = 0; side < 2; side++) {
        uint16_t *rows = side == 0 ? part : qkv;
        const struct call_rope call =
            MAKE(struct call_rope, .qkv = rows, .cos_sin = cos_sin, .positions = positions,
                 .q = rows, .k = rows + CHANNELS, .v = rows + 2 * CHANNELS, .q_stride = stride,
                 .kv_stride = stride, .n_tokens = (int32_t)(side == 0 ? LAST : n_tokens),
                 .n_heads = HEADS, .n_kv_heads = HEADS, .head_size = D, .dtype = KERNEL_BF16);
        must(table->rope(device.device, &call), "rope");
    }
    compare("rope", qkv + at, part, LAST * stride, 0);
    must(table->finish(device.device), "rope");
    table->release(device.device, positions);
    table->release(device.device, cos_sin);
    table->release_host(device.device, host);
}

static int32_t *upload_starts(const int32_t *start, int n) {
    void *host, *memory;
    must(table->allocate_host(device.device, n * 4, &host), "allocating");
    memcpy(host, start, (size_t)n * 4);
    must(table->allocate(device.device, n * 4, &memory), "allocating");
    must(table->upload(device.device, memory, host, n * 4), "uploading");
    must(table->finish(device.device), "uploading");
    table->release_host(device.device, host);
    return memory;
}

/* Many requests, the last of them far behind; then a few queries of one long request whose values
 * are 0 in its first half and 1 in its second: without scores, half of them is seen. */
static void test_attention(uint16_t *qkv, uint16_t *y, uint16_t *part) {
    enum { REQUEST = 64 };
    const int64_t stride = 3 * CHANNELS;
    const int n = (int)(n_tokens / REQUEST);
    int32_t *start = malloc((size_t)(n + 1) * 4);
    for (int r = 0; r <= n; r++) {
        start[r] = r * REQUEST;
    }
    struct call_dense_attention call =
        MAKE(struct call_dense_attention, .q = qkv, .k = qkv + CHANNELS, .v = qkv + 2 * CHANNELS,
             .y = y, .start = upload_starts(start, n + 1), .q_stride = stride, .kv_stride = stride,
             .y_stride = CHANNELS, .n_requests = n, .n_tokens = start[n], .n_heads = HEADS,
             .n_kv_heads = HEADS, .head_size = D, .max_tokens = REQUEST, .dtype = KERNEL_BF16);
    must(table->dense_attention(device.device, &call), "attention");
    const int64_t at = (int64_t)start[n - 1] * stride;
    struct call_dense_attention last = call;
    last.q = qkv + at;
    last.k = qkv + at + CHANNELS;
    last.v = qkv + at + 2 * CHANNELS;
    last.y = part;
    last.n_requests = 1;
    last.n_tokens = REQUEST;
    must(table->dense_attention(device.device, &last), "attention");
    compare("attention, last request", y + (int64_t)start[n - 1] * CHANNELS, part,
            (int64_t)REQUEST * CHANNELS, 0);
    const int64_t half = n_tokens / 2;
    fill(qkv, half * stride, 0, 0);
    fill(qkv + half * stride, (n_tokens - half) * stride, 1, 0);
    fill(part, (int64_t)LAST * CHANNELS, 0, 0);
    const int32_t whole[2] = {0, (int32_t)n_tokens};
    call.start = upload_starts(whole, 2);
    call.n_requests = 1;
    call.n_tokens = call.max_tokens = (int32_t)n_tokens;
    call.q = call.y = part;
    call.q_stride = CHANNELS;
    call.first_query = (int32_t)first_last();
    call.n_queries = LAST;
    must(table->dense_attention(device.device, &call), "attention");
    fill(y, (int64_t)LAST * CHANNELS, 0.5, 0);
    compare("attention, last queries", part, y, (int64_t)LAST * CHANNELS, 4e-3);
    free(start);
}

static void compare_tokens(const char *what, const int32_t *a, const int32_t *b) {
    int32_t x[LAST], y[LAST];
    int n_apart = 0;
    must(table->download(device.device, x, a, sizeof x), "downloading");
    must(table->download(device.device, y, b, sizeof y), "downloading");
    for (int i = 0; i < LAST; i++) {
        n_apart += x[i] != y[i];
    }
    tell(n_apart == 0, what, n_apart);
}

static void test_logits(const uint16_t *x, const uint16_t *w, uint16_t *logits) {
    const int n_rows = LOGIT_ROWS;
    void *token, *confidence, *scratch;
    must(table->allocate(device.device, (n_tokens + LAST) * 4, &token), "allocating");
    must(table->allocate(device.device, (n_tokens + LAST) * 4, &confidence), "allocating");
    must(table->allocate(device.device, HEAD_SCRATCH_BYTES, &scratch), "allocating");
    int32_t *tokens = token;
    fill(logits, (int64_t)n_rows * VOCAB, 0, 1);
    struct call_sample sample =
        MAKE(struct call_sample, .logits = logits, .token = tokens, .confidence = confidence,
             .n_rows = n_rows, .n_vocab = VOCAB, .dtype = KERNEL_BF16);
    must(table->sample(device.device, &sample), "sample");
    sample.logits = logits + (int64_t)(n_rows - LAST) * VOCAB;
    sample.token = tokens + n_tokens;
    sample.n_rows = LAST;
    must(table->sample(device.device, &sample), "sample");
    compare_tokens("sample", tokens + n_rows - LAST, tokens + n_tokens);
    struct call_head head =
        MAKE(struct call_head, .x = x, .w = w, .token = tokens, .confidence = confidence,
             .scratch = scratch, .n_rows = (int32_t)n_tokens, .n_channels = CHANNELS,
             .n_vocab = 16384, .rounded = false, .dtype = KERNEL_BF16);
    must(table->head(device.device, &head), "head");
    head.x = x + first_last() * CHANNELS;
    head.token = tokens + n_tokens;
    head.n_rows = LAST;
    must(table->head(device.device, &head), "head");
    compare_tokens("head", tokens + first_last(), tokens + n_tokens);
    table->release(device.device, token);
    table->release(device.device, confidence);
    table->release(device.device, scratch);
}

/* As many tokens as there is room for beside 3 GiB of weights, scratch and what is uneven. */
static int64_t tokens_that_fit(void) {
    enum { MOST = 600000, TOKEN_BYTES = 2 * (3 * HIDDEN + CHANNELS) };
    const int64_t fit = (device.facts.free_bytes - (INT64_C(3) << 30)) / TOKEN_BYTES;
    return fit < MOST ? fit : MOST;
}

int main(int argc, char **argv) {
    /* The widest tensor has 2 HIDDEN channels. */
    const int64_t least = (INT64_C(1) << 32) / (2 * HIDDEN) + LAST;
    struct err err = {0};
    int status = engine_device_open(argc > 1 ? (enum backend)name_find(backend_names, argv[1])
                                             : BACKEND_CUDA,
                                    argc > 2 ? argv[2] : NULL, &device, &err);
    if (status != 0) {
        fprintf(stderr, "test_long: %s\n", err.text);
        return 2;
    }
    table = device.table;
    n_tokens = argc > 3 ? atoll(argv[3]) : tokens_that_fit();
    if (n_tokens < (argc > 3 ? 2 * LAST : least)) {
        fprintf(stderr, "test_long: %" PRId64 " tokens fit into what is free: too few\n", n_tokens);
        return 2;
    }
    int64_t most = n_tokens * 2 * HIDDEN, logits = (int64_t)LOGIT_ROWS * VOCAB;
    uint16_t *wide = allocate(most > logits ? most : logits);
    uint16_t *y = allocate(n_tokens * HIDDEN), *x = allocate(n_tokens * CHANNELS);
    uint16_t *w = allocate((int64_t)2 * HIDDEN * CHANNELS);
    uint16_t *part = allocate((int64_t)LAST * 2 * HIDDEN), *weight = allocate(CHANNELS);
    fill(x, n_tokens * CHANNELS, 0, 1);
    fill(w, (int64_t)2 * HIDDEN * CHANNELS, 0, 0.03);
    fill(weight, CHANNELS, 1, 0.1);
    test_products(x, w, wide, y, part);
    test_logits(x, w, wide);
    fill(y, n_tokens * CHANNELS, 0, 1);
    test_norm_and_add(x, weight, y, part);
    fill(wide, n_tokens * 3 * CHANNELS, 0, 1);
    test_rope(wide, part);
    test_attention(wide, y, part);
    printf("%" PRId64 " tokens: %d passed, %d failed\n", n_tokens, n_passed, n_failed);
    engine_device_close(&device);
    return n_failed == 0 ? 0 : 1;
}
