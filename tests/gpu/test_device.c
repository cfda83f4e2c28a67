/* The CUDA device through its table: memory, copies, events, graphs, memory behind addresses, what
 * it refuses, and what closing releases. */
#include "tests/gpu/on_device.h"

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

/* Every other piece of a buffer to the host's memory and to another place, between other work. */
static void test_swap(int64_t piece, int64_t n) {
    void *host = NULL;
    struct buffer *x = buffer_new(2 * n * piece), *y = buffer_new(2 * n * piece);
    for (int64_t i = 0; i < 2 * n * piece / 8; i++) {
        ((uint64_t *)x->host)[i] = draw();
    }
    memset(y->host, 0, (size_t)y->bytes);
    push(x);
    push(y);
    must(table->allocate_host(device, n * piece, &host), "allocate_host");
    must(table->swap_out(device, host, x->device, piece, 2 * piece, n), "swap_out");
    must(table->clear(device, x->device, x->bytes), "clear"); /* after the copies */
    must(table->clear(device, y->device, y->bytes), "clear"); /* before those back */
    must(table->swap_in(device, (char *)y->device + piece, host, piece, 2 * piece, n), "swap_in");
    must(table->swap_wait(device), "swap_wait");
    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)y->host + (2 * i + 1) * piece, (char *)x->host + 2 * i * piece,
               (size_t)piece);
    }
    check(memcmp(host, (char *)y->host + piece, (size_t)piece) == 0, "swapped out");
    check_bytes(y, "swapped out and in");
    memset(x->host, 0, (size_t)x->bytes);
    check_bytes(x, "cleared after it was swapped out");
    struct device_graph *graph;
    must(table->capture_begin(device), "capture_begin");
    must(table->clear(device, x->device, x->bytes), "clear");
    check(table->swap_out(device, host, x->device, piece, piece, 1) == DEVICE_REFUSED &&
              table->swap_wait(device) == DEVICE_REFUSED,
          "a swap while a graph is captured is refused");
    must(table->capture_end(device, &graph), "capture_end");
    table->graph_close(device, graph);
    table->release_host(device, host);
    buffers_free();
}

static void test_events(void) {
    struct device_event *events[3];
    struct buffer *x = poisoned(64 << 20);
    for (int i = 0; i < 3; i++) {
        must(table->event_open(device, &events[i]), "event_open");
        must(table->event_record(device, events[i]), "event_record");
        must(table->clear(device, x->device, x->bytes), "clear");
    }
    bool reached = false;
    must(table->event_wait(device, events[2]), "event_wait");
    must(table->event_reached(device, events[1], &reached), "event_reached");
    check(reached, "an event before one that was reached is reached");
    double first = 0, second = 0, both = 0;
    must(table->event_elapsed(device, events[0], events[1], &first), "event_elapsed");
    must(table->event_elapsed(device, events[1], events[2], &second), "event_elapsed");
    must(table->event_elapsed(device, events[0], events[2], &both), "event_elapsed");
    /* 64 MiB in less than 2 us would be 33 TB/s; an event's clock ticks every half microsecond. */
    check(first > 2000 && second > 2000 && fabs(first + second - both) < 3000,
          "events measure: %g + %g, %g ns", first, second, both);
    for (int i = 0; i < 200; i++) {
        must(table->clear(device, x->device, x->bytes), "clear");
    }
    must(table->event_record(device, events[0]), "event_record");
    must(table->event_reached(device, events[0], &reached), "event_reached");
    check(!reached, "an event behind two milliseconds of work is not reached at once");
    must(table->finish(device), "finish");
    must(table->event_reached(device, events[0], &reached), "event_reached");
    check(reached, "an event is reached when the queue is empty");
    for (int i = 0; i < 3; i++) {
        table->event_close(device, events[i]);
    }
    buffers_free();
}

static void test_refusals(void) {
    struct buffer *x = random_bf16(64, 1);
    const struct call_add odd = {x->device, x->device, x->device, 7, KERNEL_BF16};
    check(table->add(device, &odd) == DEVICE_REFUSED && strstr(table->trouble(device), "add"),
          "a call outside the promises is refused");
    const struct call_linear single =
        MAKE(struct call_linear, .x = x->device, .w = x->device, .y = x->device, .x_stride = 8,
             .y_stride = 8, .n_tokens = 1, .n_outputs = 8, .n_inputs = 8, .dtype = KERNEL_F32);
    check(table->linear(device, &single) == DEVICE_REFUSED, "a product in single precision");
    struct device_graph *graph = NULL;
    check(table->capture_end(device, &graph) == DEVICE_REFUSED && !graph,
          "an end without a beginning");
    check_bytes(x, "the device goes on after a refusal");
    buffers_free();
}

/* Everything that can be captured, launched more than once and from changed memory. */
static void test_graph(void) {
    enum { N = 4096 };
    struct buffer *a = random_bf16(N, 1), *b = random_bf16(N, 1), *c = poisoned(N * 2);
    struct buffer *d = poisoned(N * 2);
    const struct call_add add = {a->device, b->device, a->device, N, KERNEL_BF16};
    struct call_add again = {a->host, b->host, a->host, N, KERNEL_BF16};
    struct device_graph *graph;
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
          "what cannot be captured is refused");
    must(table->capture_end(device, &graph), "capture_end");
    check_bytes(a, "capturing runs nothing");
    for (int round = 0; round < 3; round++) {
        must(table->graph_launch(device, graph), "graph_launch");
        ref_add(&again);
    }
    check_bytes(a, "three launches are three sums");
    memcpy(c->host, a->host, N * 2);
    memset(d->host, 0, N);
    memcpy((char *)d->host + N, b->host, N);
    check_bytes(c, "a captured copy");
    check_bytes(d, "a captured clear and upload");
    table->graph_close(device, graph);
    buffers_free();
}

/* A kernel's numbers over both sides of it. */
static void draw_both(const struct buffer *b, uint64_t key) {
    struct call_random call = {b->device, key, 0, b->bytes / 2, 0, 1, KERNEL_BF16, 0, 0};
    must(table->random(device, &call), "random");
    call.y = b->host;
    ref_random(&call);
}

static void launch_sum(const struct buffer *b, struct device_graph *graph) {
    must(table->graph_launch(device, graph), "graph_launch");
    ref_add(&(struct call_add){b->host, b->host, b->host, b->bytes / 2, KERNEL_BF16});
}

static void check_refusals_of_mapping(unsigned char *range, int64_t granule,
                                      struct device_handle *mapped) {
    struct device_handle *loose = NULL, *none = NULL;
    struct device_graph *graph;
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
    must(table->clear(device, range + granule, 64), "clear, captured");
    check(table->handle_open(device, granule, &none) == DEVICE_REFUSED &&
              table->range_open(device, granule, &nowhere) == DEVICE_REFUSED &&
              table->map(device, range, loose) == DEVICE_REFUSED &&
              table->allow(device, range + granule, granule) == DEVICE_REFUSED &&
              table->unmap(device, mapped) == DEVICE_REFUSED,
          "nothing is mapped while a graph is captured");
    must(table->capture_end(device, &graph), "capture_end");
    table->graph_close(device, graph);
    if (!small) { /* a memory checker reports the driver's answer */
        must(table->facts(device, &facts), "facts");
        check(table->handle_open(device, (facts.memory_bytes / granule + 1) * granule, &none) ==
                      DEVICE_NO_MEMORY &&
                  !none && strstr(table->trouble(device), "cuMemCreate: out of memory"),
              "too large a handle says so: %s", table->trouble(device));
    }
    table->handle_close(device, loose);
}

/* What kernels, copies and graphs do where several handles lie side by side, and what becomes
 * of it when one of them moves. */
static void test_mapped(void) {
    int64_t granule = 0;
    const int64_t before = table->allocated_bytes(device);
    void *ranges[2];
    struct device_handle *one, *two, *three;
    struct device_graph *graph;
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
    must(table->add(device, &sum), "add, captured");
    must(table->capture_end(device, &graph), "capture_end");
    launch_sum(&both, graph);
    check_bytes(&both, "a graph over two handles");
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
    launch_sum(&both, graph);
    check_bytes(&both, "a graph over a handle that came later");
    check_bytes(&lent, "what was in a handle that moved, afterwards");
    check_refusals_of_mapping(ranges[0], granule, one);
    launch_sum(&both, graph);
    check_bytes(&both, "the device goes on after all refusals");
    table->graph_close(device, graph);
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

/* What a caller forgets, close releases. */
static void test_close(void) {
    struct device *other = NULL;
    struct device_facts before, during, after;
    struct device_event *event;
    struct device_graph *graph;
    char text[DEVICE_TEXT_CHARS];
    void *memory, *host, *range;
    struct device_handle *handle;
    must(table->open(0, KERNEL_BF16, &other, text), "open");
    table->close(other); /* what the process pays once is paid now */
    must(table->facts(device, &before), "facts");
    must(table->open(0, KERNEL_BF16, &other, text), "open");
    check(table->allocate(other, 1 << 30, &memory) == DEVICE_OK &&
              table->allocate_host(other, 1 << 20, &host) == DEVICE_OK &&
              table->event_open(other, &event) == DEVICE_OK &&
              table->range_open(other, 4ll << 30, &range) == DEVICE_OK &&
              table->handle_open(other, 1 << 30, &handle) == DEVICE_OK &&
              table->map(other, range, handle) == DEVICE_OK &&
              table->allow(other, range, 1 << 30) == DEVICE_OK &&
              table->clear(other, range, 1 << 30) == DEVICE_OK &&
              table->capture_begin(other) == DEVICE_OK &&
              table->clear(other, memory, 1 << 20) == DEVICE_OK &&
              table->capture_end(other, &graph) == DEVICE_OK &&
              table->graph_launch(other, graph) == DEVICE_OK &&
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

int main(int argc, char **argv) {
    const int status = device_begin(argc, argv);
    if (status != 0) {
        return status;
    }
    test_facts();
    test_memory();
    test_refusals();
    test_copy(4096, 0x1000);
    test_copy(100000, 8);
    test_swap(4096, 1);
    test_swap(48, 77);
    test_swap(1 << 20, 40);
    test_graph();
    test_mapped();
    if (!small) {
        test_copy(200 << 20, 4096);
        test_copy(200 << 20, 150 << 20);
        test_events();
        test_close();
    }
    check_empty();
    if (!small) {
        test_lost_device();
    }
    return device_end();
}
