/* The CUDA device through its table, loaded as the engine loads it: memory, copies, marks,
 * recordings, memory behind addresses, products of random shapes, and each kernel once against its
 * reference implementation (test_kernels.c has their shapes and tails). A plain program:
 * `test_device [seed] [small] [LIBRARY]` prints the seed, a line for each failure, and the count;
 * `small` keeps to what a memory checker gets through and leaves out what such a one would report.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/bf16.h"
#include "kernels/device.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/keyed.h"
#include "tests/gpu/chance.h"

enum { MAX_BUFFERS = 64, D = 128 };

static const struct device_table *table;
static struct device *device;
static bool small;

/* For what the tests cannot go on without. */
static void must(int status, const char *what) {
    if (status != DEVICE_OK) {
        printf("%s: %s\n", what, device ? table->trouble(device) : "no device");
        exit(2);
    }
}

/* One array on both sides. */
struct buffer {
    void *host, *device;
    int64_t bytes;
};

static struct buffer *buffers[MAX_BUFFERS];
static int n_buffers;

static struct buffer *buffer_new(int64_t bytes) {
    struct buffer *b = calloc(1, sizeof *b);
    if (!b || n_buffers == MAX_BUFFERS) {
        exit(2);
    }
    b->bytes = bytes + 16; /* never empty */
    must(table->allocate_host(device, b->bytes, &b->host), "allocate_host");
    must(table->allocate(device, b->bytes, &b->device), "allocate");
    memset(b->host, 0xff, (size_t)b->bytes); /* NaN in bf16 and in single */
    buffers[n_buffers++] = b;
    return b;
}

static void push(struct buffer *b) {
    must(table->upload(device, b->device, b->host, b->bytes), "upload");
}

static struct buffer *poisoned(int64_t bytes) {
    struct buffer *b = buffer_new(bytes);
    push(b);
    return b;
}

static struct buffer *holding(const void *values, int64_t bytes) {
    struct buffer *b = buffer_new(bytes);
    memcpy(b->host, values, (size_t)bytes);
    push(b);
    return b;
}

static struct buffer *random_bf16(int64_t n, double scale) {
    struct buffer *b = buffer_new(n * 2);
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)b->host)[i] = bf16_from_float((float)(normal() * scale));
    }
    push(b);
    return b;
}

static void *pull(const struct buffer *b) {
    void *copy = malloc((size_t)b->bytes);
    must(table->download(device, copy, b->device, b->bytes), "download");
    return copy;
}

static void buffers_free(void) {
    for (int i = 0; i < n_buffers; i++) {
        table->release(device, buffers[i]->device);
        table->release_host(device, buffers[i]->host);
        free(buffers[i]);
    }
    n_buffers = 0;
}

static void check_bytes(const struct buffer *b, const char *name) {
    void *got = pull(b);
    check(memcmp(got, b->host, (size_t)b->bytes) == 0, "%s: bytes differ", name);
    free(got);
}

/* Rows of width elements, stride apart, each within the reference's bound; a NaN never is. */
static void check_rows(const struct buffer *b, int64_t n_rows, int64_t width, int64_t stride,
                       int64_t length, const char *name) {
    void *got = pull(b);
    const double bound = ref_bound(KERNEL_BF16, length);
    double worst = 0;
    bool good = true;
    for (int64_t row = 0; row < n_rows; row++) {
        double errors = 0, squares = 0;
        for (int64_t i = row * stride; i < row * stride + width; i++) {
            const double want = ref_load(b->host, KERNEL_BF16, i);
            const double error = ref_load(got, KERNEL_BF16, i) - want;
            errors += error * error;
            squares += want * want;
        }
        const double relative = sqrt(errors / (squares + 1e-30));
        good = good && relative <= bound;
        worst = relative <= worst ? worst : relative;
    }
    check(good, "%s: relative error %g, bound %g (%" PRId64 " rows of %" PRId64 ")", name, worst,
          bound, n_rows, width);
    free(got);
}

static void test_facts(void) {
    struct device_facts facts;
    struct device_vitals vitals;
    must(table->facts(device, &facts), "facts");
    table->vitals(device, &vitals);
    printf("%s: %d SMs, capability %d, L2 %.0f MiB, %.1f of %.1f GiB free, own %.0f MiB, "
           "%.0f and %.0f MHz, %.0f W, %.0f C\n",
           facts.name, facts.n_sms, facts.capability, (double)facts.l2_bytes / 0x1p20,
           (double)facts.free_bytes / 0x1p30, (double)facts.memory_bytes / 0x1p30,
           (double)table->own_bytes(device) / 0x1p20, vitals.sm_clock_mhz, vitals.memory_clock_mhz,
           vitals.power_w, vitals.temperature_c);
    check(facts.name[0] && facts.n_sms > 0 && facts.capability >= 80 && facts.l2_bytes > 0,
          "facts: a GPU");
    check(facts.free_bytes > 0 && facts.free_bytes <= facts.memory_bytes, "facts: memory");
    check(vitals.power_w >= 0 && vitals.power_w < 3000 && vitals.temperature_c < 150, "vitals");
    check(table->own_bytes(device) > 32 << 20, "own bytes: less than the workspace");
    struct device *other = NULL;
    char text[DEVICE_TEXT_CHARS] = "";
    check(table->open(0, KERNEL_F32, &other, text) == DEVICE_REFUSED && !other && text[0],
          "single precision is refused with a reason");
}

static void test_memory(void) {
    void *a = NULL, *b = NULL, *none = NULL;
    const int64_t before = table->allocated_bytes(device);
    must(table->allocate(device, 1000, &a), "allocate");
    must(table->allocate(device, 70000, &b), "allocate");
    check(table->allocated_bytes(device) == before + 71000, "the meter counts what was asked for");
    check((uintptr_t)a % 512 == 0 && (uintptr_t)b % 512 == 0, "memory is aligned");
    table->release(device, a);
    table->release(device, NULL);
    check(table->allocated_bytes(device) == before + 70000, "the meter counts what came back");
    if (!small) { /* a memory checker reports the driver's answer */
        check(table->allocate(device, 1ll << 50, &none) == DEVICE_NO_MEMORY && !none &&
                  strstr(table->trouble(device), "cudaMalloc: out of memory"),
              "too large an allocation says so: %s", table->trouble(device));
    }
    check(table->allocate(device, -1, &none) == DEVICE_REFUSED, "a negative size is refused");
    table->release(device, b);
    check(table->allocated_bytes(device) == before, "the meter is back");
    struct buffer *x = random_bf16(5000, 1);
    check_bytes(x, "upload and download");
    must(table->clear(device, (char *)x->device + 100, 200), "clear");
    memset((char *)x->host + 100, 0, 200);
    check_bytes(x, "clear");
    buffers_free();
}

/* Moves inside one buffer, in both directions. */
static void test_copy(int64_t bytes, int64_t distance) {
    struct buffer *x = buffer_new(bytes + distance);
    for (int64_t i = 0; i < (bytes + distance) / 8; i++) {
        ((uint64_t *)x->host)[i] = draw();
    }
    push(x);
    char *host = x->host, *there = x->device;
    must(table->copy(device, there + distance, there, bytes), "copy up");
    must(table->finish(device), "finish"); /* host is read by the upload until here */
    memmove(host + distance, host, (size_t)bytes);
    check_bytes(x, "copy up");
    must(table->copy(device, there, there + distance, bytes), "copy down");
    memmove(host, host + distance, (size_t)bytes);
    check_bytes(x, "copy down");
    buffers_free();
}

static void test_marks(void) {
    struct device_event *marks[3];
    struct buffer *x = poisoned(64 << 20);
    for (int i = 0; i < 3; i++) {
        must(table->event_open(device, &marks[i]), "event_open");
        must(table->event_record(device, marks[i]), "mark");
        must(table->clear(device, x->device, x->bytes), "clear");
    }
    bool reached = false;
    must(table->event_wait(device, marks[2]), "event_wait");
    must(table->event_reached(device, marks[1], &reached), "event_reached");
    check(reached, "a mark before one that was reached is reached");
    double first = 0, second = 0, both = 0;
    must(table->event_elapsed(device, marks[0], marks[1], &first), "event_elapsed");
    must(table->event_elapsed(device, marks[1], marks[2], &second), "event_elapsed");
    must(table->event_elapsed(device, marks[0], marks[2], &both), "event_elapsed");
    /* 64 MiB in less than 2 us would be 33 TB/s; an event's clock ticks every half microsecond. */
    check(first > 2000 && second > 2000 && fabs(first + second - both) < 3000,
          "marks measure: %g + %g, %g ns", first, second, both);
    for (int i = 0; i < 200; i++) {
        must(table->clear(device, x->device, x->bytes), "clear");
    }
    must(table->event_record(device, marks[0]), "mark");
    must(table->event_reached(device, marks[0], &reached), "event_reached");
    check(!reached, "a mark behind two milliseconds of work is not reached at once");
    must(table->finish(device), "finish");
    must(table->event_reached(device, marks[0], &reached), "event_reached");
    check(reached, "a mark is reached when the queue is empty");
    for (int i = 0; i < 3; i++) {
        table->event_close(device, marks[i]);
    }
    buffers_free();
}

static void test_refusals(void) {
    struct buffer *x = random_bf16(64, 1);
    const struct call_add odd = {x->device, x->device, x->device, 7, KERNEL_BF16};
    check(table->add(device, &odd) == DEVICE_REFUSED && strstr(table->trouble(device), "add"),
          "a call outside the promises is refused");
    const struct call_linear single = {.x = x->device,
                                       .w = x->device,
                                       .y = x->device,
                                       .x_stride = 8,
                                       .y_stride = 8,
                                       .n_tokens = 1,
                                       .n_outputs = 8,
                                       .n_inputs = 8,
                                       .dtype = KERNEL_F32};
    check(table->linear(device, &single) == DEVICE_REFUSED, "a product in single precision");
    struct device_graph *recording = NULL;
    check(table->capture_end(device, &recording) == DEVICE_REFUSED && !recording,
          "an end without a beginning");
    check_bytes(x, "the device goes on after a refusal");
    buffers_free();
}

/* add: 0 none, 1 another array, 2 y itself, 3 none and weights by inputs. */
static struct call_linear product(int n_tokens, int n_outputs, int n_inputs, int add,
                                  struct buffer **out) {
    const int64_t x_stride = n_inputs + 8 * between(0, 2);
    const int64_t y_stride = (n_outputs + 7) / 8 * 8 + 8 * between(0, 2);
    struct buffer *x = random_bf16(n_tokens * x_stride, 1);
    struct buffer *w = random_bf16((int64_t)n_outputs * n_inputs, 1);
    struct buffer *other = random_bf16(n_tokens * y_stride, 10);
    struct buffer *y = random_bf16(n_tokens * y_stride, 10);
    struct call_linear call = {.x = x->host,
                               .w = w->host,
                               .add = add == 1   ? other->host
                                      : add == 2 ? y->host
                                                 : NULL,
                               .y = y->host,
                               .x_stride = x_stride,
                               .y_stride = y_stride,
                               .n_tokens = n_tokens,
                               .n_outputs = n_outputs,
                               .n_inputs = n_inputs,
                               .dtype = KERNEL_BF16,
                               .by_inputs = add == 3};
    must(table->finish(device), "finish"); /* y has been uploaded */
    ref_linear(&call);
    call.x = x->device;
    call.w = w->device;
    call.add = add == 1 ? other->device : add == 2 ? y->device : NULL;
    call.y = y->device;
    *out = y;
    return call;
}

static void check_product(const struct buffer *y, const struct call_linear *call,
                          const char *name) {
    char text[120];
    snprintf(text, sizeof text, "product %s, T %d, N %d, K %d", name, call->n_tokens,
             call->n_outputs, call->n_inputs);
    check_rows(y, call->n_tokens, call->n_outputs, call->y_stride, call->n_inputs, text);
    /* What lies between the rows stays. */
    uint16_t *got = pull(y);
    bool same = true;
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t at = t * call->y_stride + call->n_outputs;
        const int64_t gap = call->y_stride - call->n_outputs;
        same = same && memcmp(got + at, (uint16_t *)y->host + at, (size_t)gap * 2) == 0;
    }
    check(same, "%s wrote between the rows", text);
    free(got);
}

static void test_product(int n_tokens, int n_outputs, int n_inputs, int add) {
    struct buffer *y;
    const struct call_linear call = product(n_tokens, n_outputs, n_inputs, add, &y);
    must(table->linear(device, &call), "linear");
    static const char *const names[] = {"plain", "with a sum", "in place", "by inputs"};
    check_product(y, &call, names[add]);
    buffers_free();
}

/* A shape that no product has had, first met in a recording, then outside: timed runs must not
 * leave traces either time. */
static void test_recorded_product(void) {
    struct buffer *y;
    const struct call_linear call =
        product(between(70, 200), 8 * between(2, 30) + 3, 8 * between(2, 30), 2, &y);
    struct device_graph *recording;
    void *before = pull(y);
    must(table->capture_begin(device), "capture_begin");
    must(table->linear(device, &call), "linear, recorded");
    must(table->capture_end(device, &recording), "capture_end");
    void *after = pull(y);
    check(memcmp(before, after, (size_t)y->bytes) == 0, "recording a product runs nothing");
    must(table->graph_launch(device, recording), "graph_launch");
    check_product(y, &call, "recorded");
    table->graph_close(device, recording);
    buffers_free();
    free(before);
    free(after);
    test_product(call.n_tokens, call.n_outputs, call.n_inputs, 2);
}

/* Everything that can be recorded, played more than once and from changed memory. */
static void test_recording(void) {
    enum { N = 4096 };
    struct buffer *a = random_bf16(N, 1), *b = random_bf16(N, 1), *c = poisoned(N * 2);
    struct buffer *d = poisoned(N * 2);
    const struct call_add add = {a->device, b->device, a->device, N, KERNEL_BF16};
    struct call_add again = {a->host, b->host, a->host, N, KERNEL_BF16};
    struct device_graph *recording;
    bool reached;
    must(table->capture_begin(device), "capture_begin");
    must(table->add(device, &add), "add");
    must(table->copy(device, c->device, a->device, N * 2), "copy");
    must(table->clear(device, d->device, N), "clear");
    must(table->upload(device, (char *)d->device + N, b->host, N), "upload");
    void *none;
    check(table->capture_begin(device) == DEVICE_REFUSED &&
              table->finish(device) == DEVICE_REFUSED &&
              table->allocate(device, 64, &none) == DEVICE_REFUSED &&
              table->download(device, c->host, c->device, 8) == DEVICE_REFUSED &&
              table->event_reached(device, NULL, &reached) == DEVICE_REFUSED,
          "what cannot be recorded is refused");
    must(table->capture_end(device, &recording), "capture_end");
    check_bytes(a, "recording runs nothing");
    for (int round = 0; round < 3; round++) {
        must(table->graph_launch(device, recording), "graph_launch");
        ref_add(&again);
    }
    check_bytes(a, "three plays are three sums");
    memcpy(c->host, a->host, N * 2);
    memset(d->host, 0, N);
    memcpy((char *)d->host + N, b->host, N);
    check_bytes(c, "a recorded copy");
    check_bytes(d, "a recorded clear and upload");
    table->graph_close(device, recording);
    buffers_free();
}

/* ---- memory behind addresses ---- */

/* A kernel's numbers over both sides of it. */
static void draw_both(const struct buffer *b, uint64_t key) {
    struct call_random call = {b->device, key, 0, b->bytes / 2, 0, 1, KERNEL_BF16, 0, 0};
    must(table->random(device, &call), "random");
    call.y = b->host;
    ref_random(&call);
}

static void play_sum(const struct buffer *b, struct device_graph *recording) {
    must(table->graph_launch(device, recording), "graph_launch");
    ref_add(&(struct call_add){b->host, b->host, b->host, b->bytes / 2, KERNEL_BF16});
}

static void check_refusals_of_mapping(unsigned char *range, int64_t granule,
                                      struct device_handle *mapped) {
    struct device_handle *loose = NULL, *none = NULL;
    struct device_graph *recording;
    struct device_facts facts;
    void *nowhere = NULL;
    must(table->handle_open(device, granule, &loose), "handle_open");
    check(table->map(device, range, mapped) == DEVICE_REFUSED &&
              strstr(table->trouble(device), "mapping what is mapped"),
          "mapped twice: %s", table->trouble(device));
    check(table->map(device, range + 2 * granule, loose) == DEVICE_REFUSED &&
              strstr(table->trouble(device), "that have memory"),
          "mapped over another: %s", table->trouble(device));
    check(table->map(device, range + granule / 2, loose) == DEVICE_REFUSED &&
              strstr(table->trouble(device), "not reserved"),
          "mapped where no granule begins: %s", table->trouble(device));
    check(table->allow(device, range, 4 * granule) == DEVICE_REFUSED &&
              strstr(table->trouble(device), "without memory"),
          "allowed without memory: %s", table->trouble(device));
    check(table->range_open(device, granule + 512, &nowhere) == DEVICE_REFUSED && !nowhere &&
              table->handle_open(device, 0, &none) == DEVICE_REFUSED && !none,
          "sizes that are no multiple of the granule are refused");
    must(table->capture_begin(device), "capture_begin");
    must(table->clear(device, range + granule, 64), "clear, recorded");
    check(table->handle_open(device, granule, &none) == DEVICE_REFUSED &&
              table->range_open(device, granule, &nowhere) == DEVICE_REFUSED &&
              table->map(device, range, loose) == DEVICE_REFUSED &&
              table->allow(device, range + granule, granule) == DEVICE_REFUSED &&
              table->unmap(device, mapped) == DEVICE_REFUSED,
          "nothing is mapped in a recording");
    must(table->capture_end(device, &recording), "capture_end");
    table->graph_close(device, recording);
    if (!small) { /* a memory checker reports the driver's answer */
        must(table->facts(device, &facts), "facts");
        check(table->handle_open(device, (facts.memory_bytes / granule + 1) * granule, &none) ==
                      DEVICE_NO_MEMORY &&
                  !none && strstr(table->trouble(device), "cuMemCreate: out of memory"),
              "too large a handle says so: %s", table->trouble(device));
    }
    table->handle_close(device, loose);
}

/* What kernels, copies and recordings do where several handles lie side by side, and what becomes
 * of it when one of them moves. */
static void test_mapped(void) {
    int64_t granule = 0;
    const int64_t before = table->allocated_bytes(device);
    void *ranges[2];
    struct device_handle *one, *two, *three;
    struct device_graph *recording;
    must(table->granule(device, &granule), "granule");
    check(granule >= 4096 && granule <= 64 << 20, "a granule of %" PRId64 " bytes", granule);
    for (int i = 0; i < 2; i++) {
        must(table->range_open(device, 8 * granule, &ranges[i]), "range_open");
        check(ranges[i] && (uintptr_t)ranges[i] % 512 == 0, "addresses are aligned");
    }
    check(table->allocated_bytes(device) == before, "addresses are no memory");
    must(table->handle_open(device, granule, &one), "handle_open");
    must(table->handle_open(device, 2 * granule, &two), "handle_open");
    check(table->allocated_bytes(device) == before + 3 * granule, "the meter counts handles");
    unsigned char *at = (unsigned char *)ranges[0] + granule;
    unsigned char *other = (unsigned char *)ranges[1] + 5 * granule;
    must(table->map(device, at, one), "map");
    must(table->map(device, at + granule, two), "map");
    must(table->allow(device, at, 3 * granule), "allow");
    const struct buffer both = {malloc((size_t)(3 * granule)), at, 3 * granule};
    const struct buffer lent = {malloc((size_t)(2 * granule)), other, 2 * granule};
    const struct call_add sum = {at, at, at, both.bytes / 2, KERNEL_BF16};
    if (!both.host || !lent.host) {
        exit(2);
    }
    draw_both(&both, 7);
    check_bytes(&both, "a kernel over two handles");
    must(table->capture_begin(device), "capture_begin");
    must(table->add(device, &sum), "add, recorded");
    must(table->capture_end(device, &recording), "capture_end");
    play_sum(&both, recording);
    check_bytes(&both, "a recording over two handles");
    must(table->copy(device, at + 4096, at, 2 * granule), "copy");
    memmove((unsigned char *)both.host + 4096, both.host, (size_t)(2 * granule));
    check_bytes(&both, "a copy over two handles");
    /* The second goes to the other range, another one takes its place. */
    must(table->finish(device), "finish");
    must(table->unmap(device, two), "unmap");
    must(table->map(device, other, two), "map");
    must(table->allow(device, other, 2 * granule), "allow");
    memcpy(lent.host, (unsigned char *)both.host + granule, (size_t)lent.bytes);
    check_bytes(&lent, "what was in a handle that moved");
    check(table->allocated_bytes(device) == before + 3 * granule, "moving takes no memory");
    must(table->handle_open(device, 2 * granule, &three), "handle_open");
    must(table->map(device, at + granule, three), "map");
    must(table->allow(device, at + granule, 2 * granule), "allow");
    draw_both(&both, 8);
    play_sum(&both, recording);
    check_bytes(&both, "a recording over a handle that came later");
    check_bytes(&lent, "what was in a handle that moved, afterwards");
    check_refusals_of_mapping(ranges[0], granule, one);
    play_sum(&both, recording);
    check_bytes(&both, "the device goes on after all refusals");
    table->graph_close(device, recording);
    table->handle_close(device, one);
    table->range_close(device, ranges[1]); /* from under the second */
    table->handle_close(device, two);
    table->handle_close(device, three);
    table->range_close(device, ranges[0]);
    table->handle_close(device, NULL);
    table->range_close(device, NULL);
    check(table->allocated_bytes(device) == before, "the meter is back after mapping");
    free(both.host);
    free(lent.host);
}

/* Calls that hold pointers name them twice; the reference implementation runs on the host's, then
 * the device. */
#define BOTH(field, b) call.field = side ? (b)->device : (b)->host

static void test_one_pass(void) {
    enum { T = 9, C = 264, V = 30, F = 72 };
    int32_t ids[40];
    int64_t at[T];
    for (int i = 0; i < 40; i++) {
        ids[i] = between(0, V - 1);
    }
    for (int t = 0; t < T; t++) {
        at[t] = between(0, 39);
    }
    struct buffer *weight = random_bf16(V * C, 1), *id = holding(ids, sizeof ids);
    struct buffer *places = holding(at, sizeof at), *y = poisoned(T * C * 2);
    struct buffer *residual = random_bf16(T * C, 1), *z = poisoned(T * C * 2);
    struct buffer *gate_up = random_bf16(T * 2 * F, 1), *s = poisoned(T * F * 2);
    struct buffer *both_weights = random_bf16(2 * F * C, 0.1), *g = poisoned(T * F * 2);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_embed call = {
            .n_tokens = T, .n_channels = C, .n_vocab = V, .dtype = KERNEL_BF16};
        BOTH(table, weight);
        BOTH(ids, id);
        BOTH(at, places);
        BOTH(y, y);
        side ? must(table->embed(device, &call), "embed") : ref_embed(&call);
    }
    check_bytes(y, "embed");
    for (int side = 0; side < 2; side++) {
        struct call_norm call = {
            .n_rows = T, .n_channels = C, .epsilon = 1e-5f, .dtype = KERNEL_BF16};
        BOTH(x, y);
        BOTH(weight, weight);
        BOTH(residual, residual);
        BOTH(y, z);
        side ? must(table->norm(device, &call), "norm") : ref_norm(&call);
    }
    check_rows(z, T, C, C, C, "norm");
    check_bytes(residual, "norm's residual");
    push(z); /* the reference's, as gate_up's input */
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_swiglu call = {
            .y_stride = F, .n_tokens = T, .n_hidden = F, .dtype = KERNEL_BF16};
        BOTH(gate_up, gate_up);
        BOTH(y, s);
        side ? must(table->swiglu(device, &call), "swiglu") : ref_swiglu(&call);
    }
    check_rows(s, T, F, F, 1, "swiglu");
    for (int side = 0; side < 2; side++) {
        struct call_gate_up call = {.x_stride = C,
                                    .y_stride = F,
                                    .n_tokens = T,
                                    .n_channels = C,
                                    .n_hidden = F,
                                    .dtype = KERNEL_BF16};
        BOTH(x, z);
        BOTH(w, both_weights);
        BOTH(y, g);
        side ? must(table->gate_up(device, &call), "gate_up") : ref_gate_up(&call);
    }
    check_rows(g, T, F, F, C, "gate_up");
    for (int side = 0; side < 2; side++) {
        struct call_random call = {.key = 7,
                                   .first = 1ll << 40,
                                   .n = T * C - 1,
                                   .centre = 0.25,
                                   .spread = 0.03,
                                   .dtype = KERNEL_BF16};
        BOTH(y, y);
        side ? must(table->random(device, &call), "random") : ref_random(&call);
    }
    check_bytes(y, "random, bit for bit");
    buffers_free();
}

/* One request's step as the engine makes it: rotate, attend, select, attend over the cache; a
 * second cache is filled row by row instead. */
static void test_attention(bool uniform) {
    enum { T = 50, BLOCK = 8, BEGIN = 20, H = 4, G = 2, KEPT = 17, W = (H + 2 * G) * D };
    int32_t position[T], start[2] = {0, T}, begin[1] = {BEGIN}, end[1] = {BEGIN + BLOCK};
    int32_t kept[1] = {KEPT}, fresh[2] = {0, BLOCK}, owner[T] = {0}, row[T];
    const int64_t zero[1] = {0};
    for (int t = 0; t < T; t++) {
        position[t] = t;
        row[t] = t % 3 == 0 ? t / 3 : -1;
    }
    struct buffer *qkv = random_bf16(T * W, 1), *turns = buffer_new(T * D * 4);
    ref_cos_sin(turns->host, T, D, 10000);
    push(turns);
    struct buffer *positions = holding(position, sizeof position);
    struct buffer *starts = holding(start, sizeof start), *begins = holding(begin, sizeof begin);
    struct buffer *ends = holding(end, sizeof end), *kepts = holding(kept, sizeof kept);
    struct buffer *zeros = holding(zero, sizeof zero), *fresh_starts = holding(fresh, sizeof fresh);
    struct buffer *owners = holding(owner, sizeof owner), *rows = holding(row, sizeof row);
    struct buffer *q = poisoned(T * H * D * 2), *k = poisoned(T * G * D * 2);
    struct buffer *v = poisoned(T * G * D * 2), *y = poisoned(T * H * D * 2);
    struct buffer *cache = poisoned(2 * KEPT * G * D * 2), *z = poisoned(BLOCK * H * D * 2);
    struct buffer *scores = poisoned(G * (T - BLOCK) * 4), *indices = poisoned(G * (T - BLOCK) * 4);
    struct buffer *kept_rows = poisoned(2 * KEPT * G * D * 2);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_rope call = {.q_stride = H * D,
                                 .kv_stride = G * D,
                                 .n_tokens = T,
                                 .n_heads = H,
                                 .n_kv_heads = G,
                                 .head_size = D,
                                 .dtype = KERNEL_BF16};
        BOTH(qkv, qkv);
        BOTH(cos_sin, turns);
        BOTH(positions, positions);
        BOTH(q, q);
        BOTH(k, k);
        BOTH(v, v);
        side ? must(table->rope(device, &call), "rope") : ref_rope(&call);
    }
    check_rows(q, T * H, D, D, D, "rope's queries");
    check_rows(k, T * G, D, D, D, "rope's keys");
    push(q); /* the reference's, so that what follows starts from the same numbers */
    push(k);
    push(v);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_dense_attention call = {.q_stride = H * D,
                                            .kv_stride = G * D,
                                            .y_stride = H * D,
                                            .n_requests = 1,
                                            .n_tokens = T,
                                            .n_heads = H,
                                            .n_kv_heads = G,
                                            .head_size = D,
                                            .max_tokens = T,
                                            .dtype = KERNEL_BF16};
        BOTH(q, q);
        BOTH(k, k);
        BOTH(v, v);
        BOTH(y, y);
        BOTH(start, starts);
        if (side) {
            must(table->dense_attention(device, &call), "dense_attention");
        } else if (!ref_dense_attention(&call)) {
            exit(2);
        }
    }
    check_rows(y, T * H, D, D, T + D, "dense attention");
    for (int side = 0; side < 2; side++) {
        struct call_select call = {.q_stride = H * D,
                                   .kv_stride = G * D,
                                   .n_requests = 1,
                                   .n_heads = H,
                                   .n_kv_heads = G,
                                   .head_size = D,
                                   .max_candidates = T - BLOCK,
                                   .uniform = uniform,
                                   .dtype = KERNEL_BF16};
        BOTH(q, q);
        BOTH(k, k);
        BOTH(v, v);
        BOTH(start, starts);
        BOTH(block_start, begins);
        BOTH(block_end, ends);
        BOTH(kept, kepts);
        BOTH(cache_start, zeros);
        BOTH(score_start, zeros);
        BOTH(cache, cache);
        BOTH(scores, scores);
        BOTH(indices, indices);
        if (side) {
            must(table->select(device, &call), "select");
        } else if (!ref_select(&call)) {
            exit(2);
        }
    }
    check_bytes(indices, uniform ? "uniform selection" : "selection");
    check_bytes(cache, "the selected cache");
    for (int side = 0; side < 2; side++) {
        struct call_keep call = {.kv_stride = G * D,
                                 .n_requests = 1,
                                 .n_tokens = T,
                                 .n_kv_heads = G,
                                 .head_size = D,
                                 .dtype = KERNEL_BF16};
        BOTH(k, k);
        BOTH(v, v);
        BOTH(start, starts);
        BOTH(owner, owners);
        BOTH(kv_rows, rows);
        BOTH(kept, kepts);
        BOTH(cache_start, zeros);
        BOTH(cache, kept_rows);
        side ? must(table->keep(device, &call), "keep") : ref_keep(&call);
    }
    check_bytes(kept_rows, "keep");
    for (int side = 0; side < 2; side++) {
        struct call_block_attention call = {.q_stride = H * D,
                                            .kv_stride = G * D,
                                            .y_stride = H * D,
                                            .n_requests = 1,
                                            .n_heads = H,
                                            .n_kv_heads = G,
                                            .head_size = D,
                                            .max_queries = BLOCK,
                                            .dtype = KERNEL_BF16};
        BOTH(q, q);
        BOTH(k, k);
        BOTH(v, v);
        BOTH(cache, cache);
        BOTH(y, z);
        BOTH(start, fresh_starts);
        BOTH(kept, kepts);
        BOTH(cache_start, zeros);
        if (side) {
            must(table->block_attention(device, &call), "block_attention");
        } else if (!ref_block_attention(&call)) {
            exit(2);
        }
    }
    check_rows(z, BLOCK * H, D, D, KEPT + BLOCK + D, "block attention");
    buffers_free();
}

/* The middle of a step with eviction, recorded and played: importance of two blocks' tokens and of
 * none, compaction of what stays, and its attention over pages. */
static void test_focus(void) {
    enum { B = 3, T = 23, KEPT = 11, H = 4, G = 2, CANVAS = 40, BLOCK = 16 };
    enum { PAGE_ROWS = 8, PAGES = CANVAS / PAGE_ROWS, ROWS = B * CANVAS };
    const int32_t start[B + 1] = {0, 16, 16, T}, kept_start[B + 1] = {0, 7, 7, KEPT};
    int32_t row[T], kept[KEPT], kept_extent[KEPT], page[B][PAGES];
    uint8_t is_masked[T];
    for (int i = 0; i < B * PAGES; i++) {
        page[i / PAGES][i % PAGES] = i * 7 % (B * PAGES);
    }
    for (int t = 0; t < T; t++) {
        const int r = t < 16 ? 0 : 2, position = 24 + t - start[r];
        row[t] = page[r][position / PAGE_ROWS] * PAGE_ROWS + position % PAGE_ROWS;
        is_masked[t] = draw() % 3 != 0;
    }
    for (int i = 0; i < KEPT; i++) {
        kept[i] = i < 7 ? 2 * i + 1 : 2 * i + 2;
        kept_extent[i] = i < 7 ? 38 : 31;
    }
    struct buffer *starts = holding(start, sizeof start), *rows = holding(row, sizeof row);
    struct buffer *masked = holding(is_masked, sizeof is_masked),
                  *pages = holding(page, sizeof page);
    struct buffer *kept_starts = holding(kept_start, sizeof kept_start);
    struct buffer *kepts = holding(kept, sizeof kept);
    struct buffer *extents = holding(kept_extent, sizeof kept_extent);
    struct buffer *q = random_bf16(T * H * D, 1), *k = random_bf16(ROWS * G * D, 1);
    struct buffer *v = random_bf16(ROWS * G * D, 1), *importance = poisoned(T * 4);
    struct buffer *few = poisoned(T * H * D * 2), *y = poisoned(T * H * D * 2);
    struct device_graph *recording = NULL;
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_importance weigh = {.q_stride = H * D,
                                        .kv_stride = G * D,
                                        .n_requests = B,
                                        .n_heads = H,
                                        .n_kv_heads = G,
                                        .head_size = D,
                                        .max_masked = BLOCK,
                                        .dtype = KERNEL_BF16};
        struct call_compact compact = {.n_arrays = 1,
                                       .max_rows = T,
                                       .from_stride = {H * D},
                                       .to_stride = {H * D},
                                       .width = {H * D},
                                       .dtype = KERNEL_BF16};
        struct call_paged_attention attend = {.q_stride = H * D,
                                              .kv_stride = G * D,
                                              .y_stride = H * D,
                                              .n_requests = B,
                                              .n_tokens = T,
                                              .n_heads = H,
                                              .n_kv_heads = G,
                                              .head_size = D,
                                              .max_pages = PAGES,
                                              .page_rows = PAGE_ROWS,
                                              .max_queries = BLOCK,
                                              .max_extent = CANVAS,
                                              .dtype = KERNEL_BF16};
#define PUT(call, field, buffer) ((call).field = side ? (buffer)->device : (buffer)->host)
        PUT(weigh, q, q);
        PUT(weigh, k, k);
        PUT(weigh, kv_rows, rows);
        PUT(weigh, start, starts);
        PUT(weigh, masked, masked);
        PUT(weigh, importance, importance);
        PUT(compact, rows, kepts);
        PUT(compact, from[0], q);
        PUT(compact, to[0], few);
        compact.n_rows = (const int32_t *)(side ? kept_starts->device : kept_starts->host) + B;
        PUT(attend, q, few);
        PUT(attend, k, k);
        PUT(attend, v, v);
        PUT(attend, y, y);
        PUT(attend, start, kept_starts);
        PUT(attend, extent, extents);
        PUT(attend, pages, pages);
#undef PUT
        if (side) {
            must(table->capture_begin(device), "capture_begin");
            must(table->importance(device, &weigh), "importance");
            must(table->compact(device, &compact), "compact");
            must(table->paged_attention(device, &attend), "paged_attention");
            must(table->capture_end(device, &recording), "capture_end");
            must(table->graph_launch(device, recording), "graph_launch");
        } else {
            ref_importance(&weigh);
            ref_compact(&compact);
            if (!ref_paged_attention(&attend)) {
                exit(2);
            }
        }
    }
    check_bytes(few, "compacted rows");
    check_rows(y, (int64_t)KEPT * H, D, D, CANVAS + D, "attention of kept tokens");
    float *got = pull(importance);
    for (int t = 0; t < T; t++) {
        const double want = ((float *)importance->host)[t];
        check(fabs((double)got[t] - want) <= 2e-5 * want, "importance %d: %g, not %g", t,
              (double)got[t], want);
    }
    free(got);
    table->graph_close(device, recording);
    buffers_free();
}

/* Whole numbers, so that logits are exact and ties real; the head and the sampler agree. */
static void test_head(void) {
    enum { N = 12, C = 64, V = 1003 };
    struct buffer *x = random_bf16(N * C, 0), *w = random_bf16(V * C, 0);
    for (int64_t i = 0; i < N * C; i++) {
        ((uint16_t *)x->host)[i] = bf16_from_float((float)between(-1, 1));
    }
    for (int64_t i = 0; i < V * C; i++) {
        ((uint16_t *)w->host)[i] = bf16_from_float((float)between(-1, 1));
    }
    push(x);
    push(w);
    struct buffer *token = poisoned(N * 4), *confidence = poisoned(N * 4);
    struct buffer *scratch = poisoned(HEAD_SCRATCH_BYTES), *logits = buffer_new(N * V * 2);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_head call = {.n_rows = N, .n_channels = C, .n_vocab = V, .dtype = KERNEL_BF16};
        BOTH(x, x);
        BOTH(w, w);
        BOTH(token, token);
        BOTH(confidence, confidence);
        BOTH(scratch, scratch);
        if (side) {
            must(table->head(device, &call), "head");
        } else if (!ref_head(&call)) {
            exit(2);
        }
    }
    check_bytes(token, "head's tokens");
    for (int round = 0; round < 2; round++) {
        float *got = pull(confidence);
        bool good = true;
        for (int i = 0; i < N; i++) {
            const float want = ((float *)confidence->host)[i];
            good = good && fabsf(got[i] - want) <= 1e-5f * want;
        }
        check(good, "%s confidences", round ? "sample's" : "head's");
        free(got);
        if (round == 0) {
            struct call_linear one = {.w = w->device,
                                      .y = scratch->device,
                                      .x_stride = C,
                                      .y_stride = V + 5,
                                      .n_tokens = 1,
                                      .n_outputs = V,
                                      .n_inputs = C,
                                      .dtype = KERNEL_BF16};
            const struct call_sample call = {.logits = logits->device,
                                             .token = token->device,
                                             .confidence = confidence->device,
                                             .n_rows = N,
                                             .n_vocab = V,
                                             .dtype = KERNEL_BF16};
            for (int i = 0; i < N; i++) { /* rows must be contiguous: V is no multiple of 8 */
                one.x = (uint16_t *)x->device + i * C;
                must(table->linear(device, &one), "linear");
                must(
                    table->copy(device, (uint16_t *)logits->device + i * V, scratch->device, V * 2),
                    "copy");
            }
            must(table->clear(device, token->device, N * 4), "clear");
            must(table->clear(device, confidence->device, N * 4), "clear");
            must(table->sample(device, &call), "sample");
            check_bytes(token, "sample's tokens");
        }
    }
    buffers_free();
}

/* masked: how many of each request's positions are. All confidences tie. */
static void test_decode(int masked, bool fixed) {
    enum { B = 3, ROWS = 32, N = B * ROWS, MASK = 5 };
    float confidence[N], threshold[B];
    int32_t token[N], first[B], n_rows[B], take[B], canvas[N];
    int64_t position[N];
    for (int i = 0; i < N; i++) {
        confidence[i] = 0.75f;
        token[i] = 100 + i;
        position[i] = N - 1 - i;
        canvas[N - 1 - i] = (i * 7) % ROWS < masked ? MASK : 9;
    }
    for (int r = 0; r < B; r++) {
        first[r] = r * ROWS;
        n_rows[r] = ROWS;
        take[r] = 4;
        threshold[r] = 0.8f;
    }
    struct buffer *sure = holding(confidence, sizeof confidence);
    struct buffer *tokens = holding(token, sizeof token), *firsts = holding(first, sizeof first);
    struct buffer *lengths = holding(n_rows, sizeof n_rows), *takes = holding(take, sizeof take);
    struct buffer *positions = holding(position, sizeof position);
    struct buffer *thresholds = holding(threshold, sizeof threshold);
    struct buffer *canvases = holding(canvas, sizeof canvas), *committed = poisoned(N);
    struct buffer *counts = poisoned(B * 4);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_decode call = {.n_requests = B,
                                   .max_rows = ROWS,
                                   .mask_token = MASK,
                                   .rule = fixed ? DECODE_COUNT : DECODE_THRESHOLD};
        BOTH(confidence, sure);
        BOTH(token, tokens);
        BOTH(first_row, firsts);
        BOTH(n_rows, lengths);
        BOTH(position, positions);
        BOTH(canvas, canvases);
        BOTH(committed, committed);
        BOTH(n_committed, counts);
        BOTH(take, takes);
        BOTH(threshold, thresholds);
        side ? must(table->decode(device, &call), "decode") : ref_decode(&call);
    }
    const int expected = fixed ? (masked < 4 ? masked : 4) : masked > 0;
    check(((int32_t *)counts->host)[B - 1] == expected, "decode: the rule itself");
    check_bytes(committed, "decode's rows");
    check_bytes(canvases, "decode's canvas");
    check_bytes(counts, "decode's counts");
    buffers_free();
}

/* What a caller forgets, close releases. */
static void test_close(void) {
    struct device *other = NULL;
    struct device_facts before, during, after;
    struct device_event *mark;
    struct device_graph *recording;
    char text[DEVICE_TEXT_CHARS];
    void *memory, *host, *range;
    struct device_handle *handle;
    must(table->open(0, KERNEL_BF16, &other, text), "open");
    table->close(other); /* what the process pays once is paid now */
    must(table->facts(device, &before), "facts");
    must(table->open(0, KERNEL_BF16, &other, text), "open");
    check(table->allocate(other, 1 << 30, &memory) == DEVICE_OK &&
              table->allocate_host(other, 1 << 20, &host) == DEVICE_OK &&
              table->event_open(other, &mark) == DEVICE_OK &&
              table->range_open(other, 4ll << 30, &range) == DEVICE_OK &&
              table->handle_open(other, 1 << 30, &handle) == DEVICE_OK &&
              table->map(other, range, handle) == DEVICE_OK &&
              table->allow(other, range, 1 << 30) == DEVICE_OK &&
              table->clear(other, range, 1 << 30) == DEVICE_OK &&
              table->capture_begin(other) == DEVICE_OK &&
              table->clear(other, memory, 1 << 20) == DEVICE_OK &&
              table->capture_end(other, &recording) == DEVICE_OK &&
              table->graph_launch(other, recording) == DEVICE_OK &&
              table->capture_begin(other) == DEVICE_OK,
          "a second device: %s", table->trouble(other));
    must(table->facts(device, &during), "facts");
    table->close(other);
    table->close(NULL);
    must(table->facts(device, &after), "facts");
    check(during.free_bytes <= before.free_bytes - (2ll << 30),
          "an allocation and a handle take memory");
    check(llabs(after.free_bytes - before.free_bytes) < 16 << 20,
          "close gives back: %" PRId64 " free before, %" PRId64 " after", before.free_bytes,
          after.free_bytes);
    /* A failure is told once and stays; closing works, and opening again. */
    must(table->open(0, KERNEL_BF16, &other, text), "open");
    must(table->allocate(other, 1 << 30, &memory), "allocate");
    check(table->clear(other, (void *)8, 1 << 20) == DEVICE_FAILED &&
              strstr(table->trouble(other), "cudaMemsetAsync:"),
          "a failed call says which: %s", table->trouble(other));
    table->close(other);
    must(table->facts(device, &after), "facts");
    check(llabs(after.free_bytes - before.free_bytes) < 16 << 20, "close gives back after failure");
}

/* The last test: the context does not survive it. */
static void test_lost_device(void) {
    struct buffer *y = poisoned(64);
    const struct call_embed call = {(void *)4096, (int32_t *)4096, NULL, y->device, 1, 8, 8,
                                    KERNEL_BF16};
    must(table->embed(device, &call), "embed");
    check(table->finish(device) == DEVICE_FAILED &&
              strstr(table->trouble(device), "illegal memory access"),
          "a kernel that goes astray is told: %s", table->trouble(device));
    check(table->clear(device, y->device, 64) == DEVICE_FAILED &&
              strstr(table->trouble(device), "illegal memory access"),
          "a lost device stays lost");
    buffers_free();
}

/* Beside the program, as make leaves it. */
static const char *own_library(void) {
    static char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash = n > 0 ? strrchr(path, '/') : NULL;
    const size_t room = slash ? (size_t)(path + sizeof path - slash) : 0;
    if (room > 0) {
        snprintf(slash, room, "/../../kernels/libunmask_cuda.so");
    }
    return path;
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    const char *path = argc > 3 ? argv[3] : own_library();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    table = library ? dlsym(library, DEVICE_CUDA_SYMBOL) : NULL;
    if (!table || table->abi != DEVICE_ABI || table->size != sizeof *table) {
        printf("%s: %s\n", path, table ? "another version" : dlerror());
        return 2;
    }
    char text[DEVICE_TEXT_CHARS] = "";
    const int status = table->open(0, KERNEL_BF16, &device, text);
    if (status != DEVICE_OK) {
        printf("status %d: %s\n", status, text);
        return 2;
    }
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    test_recorded_product(); /* first, while nothing of the library has run */
    test_facts();
    test_memory();
    test_refusals();
    test_copy(4096, 0x1000);
    test_copy(100000, 8);
    test_recording();
    test_mapped();
    for (int i = 0; i < (small ? 3 : 24); i++) {
        const int n_tokens = i % 3 ? between(1, 64) : between(65, small ? 100 : 1200);
        test_product(n_tokens, between(1, 300), 8 * between(1, 60), i % 3);
        test_product(between(1, 40), 8 * between(1, 40), 8 * between(1, 40), (i + 1) % 3);
        test_product(between(1, 90), 8 * between(1, 40), 8 * between(1, 400), 3);
    }
    test_one_pass();
    test_attention(false);
    test_attention(true);
    test_focus();
    test_head();
    const int masked[] = {0, 1, 3, 20, 32};
    for (int i = 0; i < 5; i++) {
        test_decode(masked[i], false);
        test_decode(masked[i], true);
    }
    if (!small) {
        test_copy(200 << 20, 4096);
        test_copy(200 << 20, 150 << 20);
        test_marks();
        test_product(20000, 16, 64, 2);
        test_product(64, 256, 157184, 3); /* expected embeddings, of fewer channels */
        test_recorded_product();
        test_close();
    }
    check(table->allocated_bytes(device) == 0, "%" PRId64 " bytes are left allocated",
          table->allocated_bytes(device));
    if (!small) {
        test_lost_device();
    }
    table->close(device);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
