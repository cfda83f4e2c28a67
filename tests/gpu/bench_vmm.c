/* What mapping memory costs: each call by the size of a handle; growing to a workspace of a size in
 * few large handles and in granules; lending; a step that finds mapped what it needs; filling what
 * is mapped. Beside the device's plain allocation of the same bytes, which on a GPU is cudaMalloc.
 *
 * A plain program: `bench_vmm [cuda|cpu [LIBRARY [CSV]]]` prints a table, and writes every figure
 * to the CSV: what, of which handles, in nanoseconds, the median, least and most of the rounds. A
 * closing call also waits for the queue, which is empty: microseconds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/mapping.h"
#include "sim/base/monotonic.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { ROUNDS = 7, MAX_FIGURES = 128, MAX_HANDLES = 4096, STEPS = 200000 };

static const int64_t MIB = 1 << 20, GIB = 1 << 30;

static struct engine_device device;
static const struct device_table *table;
static int64_t granule;
static FILE *csv;

/* One thing measured, round by round. */
struct figure {
    char what[48];
    int64_t handle_bytes, total_bytes;
    int n;
    double ns[ROUNDS];
};

static struct figure figures[MAX_FIGURES];
static int n_figures;

static void note(const char *what, int64_t handle_bytes, int64_t total_bytes, double ns) {
    struct figure *figure = NULL;
    for (int i = 0; figure == NULL && i < n_figures; i++) {
        bool same = strcmp(figures[i].what, what) == 0 && figures[i].handle_bytes == handle_bytes &&
                    figures[i].total_bytes == total_bytes;
        figure = same ? &figures[i] : NULL;
    }
    if (figure == NULL) {
        ASSERT(n_figures < MAX_FIGURES);
        figure = &figures[n_figures++];
        snprintf(figure->what, sizeof figure->what, "%s", what);
        figure->handle_bytes = handle_bytes;
        figure->total_bytes = total_bytes;
    }
    ASSERT(figure->n < ROUNDS);
    figure->ns[figure->n++] = ns;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_figures(void) {
    printf("%-34s %10s %10s %12s %12s %12s\n", "what", "handle", "total", "median", "least",
           "most");
    for (int i = 0; i < n_figures; i++) {
        struct figure *f = &figures[i];
        char handle[32], total[32], times[3][32];
        qsort(f->ns, (size_t)f->n, sizeof f->ns[0], by_size);
        const double shown[] = {f->ns[f->n / 2], f->ns[0], f->ns[f->n - 1]};
        for (int t = 0; t < 3; t++) {
            num_format_ns(times[t], sizeof times[t], shown[t]);
        }
        printf("%-34s %10s %10s %12s %12s %12s\n", f->what,
               num_format_bytes(handle, sizeof handle, (double)f->handle_bytes),
               num_format_bytes(total, sizeof total, (double)f->total_bytes), times[0], times[1],
               times[2]);
        if (csv != NULL) {
            fprintf(csv, "%s,%" PRId64 ",%" PRId64 ",%d,%.1f,%.1f,%.1f\n", f->what, f->handle_bytes,
                    f->total_bytes, f->n, shown[0], shown[1], shown[2]);
        }
    }
}

static void must(int status, const char *what) {
    struct err err = {0};
    if (engine_device_err(&device, status, what, &err) != 0) {
        fprintf(stderr, "bench_vmm: %s\n", err.text);
        exit(1);
    }
}

static void must_err(int status, const struct err *err) {
    if (status != 0) {
        fprintf(stderr, "bench_vmm: %s\n", err->text);
        exit(1);
    }
}

/* Since `*start`, which then is now; per one of `n`. */
static double lap(int64_t *start, int64_t n) {
    int64_t now = monotonic_ns();
    double ns = (double)(now - *start) / (double)n;
    *start = now;
    return ns;
}

static struct device_handle *handles[MAX_HANDLES];

static unsigned char *reserve(int64_t bytes) {
    void *range;
    must(table->range_open(device.device, bytes, &range), "reserving addresses");
    return range;
}

static void measure_reserve(int64_t bytes, bool counts) {
    int64_t start = monotonic_ns();
    void *range = reserve(bytes);
    double reserving = lap(&start, 1);
    table->range_close(device.device, range);
    double freeing = lap(&start, 1);
    if (counts) {
        note("reserve", 0, bytes, reserving);
        note("free addresses", 0, bytes, freeing);
    }
}

/* As many handles as make up a GiB, at least one and at most 64, each call by itself; `at` and
 * `other` have room for them. */
static void measure_calls(unsigned char *at, unsigned char *other, int64_t bytes, bool counts) {
    int64_t n = GIB / bytes < 1 ? 1 : GIB / bytes > 64 ? 64 : GIB / bytes;
    const char *const names[] = {"create", "map",     "set access",
                                 "unmap",  "release", "lend (unmap + map + set access)"};
    double ns[6];
    int64_t start = monotonic_ns();
    for (int64_t i = 0; i < n; i++) {
        must(table->handle_open(device.device, bytes, &handles[i]), "creating a handle");
    }
    ns[0] = lap(&start, n);
    for (int64_t i = 0; i < n; i++) {
        must(table->map(device.device, at + i * bytes, handles[i]), "mapping a handle");
    }
    ns[1] = lap(&start, n);
    for (int64_t i = 0; i < n; i++) {
        must(table->allow(device.device, at + i * bytes, bytes), "setting access");
    }
    ns[2] = lap(&start, n);
    for (int64_t i = 0; i < n; i++) {
        must(table->unmap(device.device, handles[i]), "unmapping a handle");
        must(table->map(device.device, other + i * bytes, handles[i]), "mapping a lent handle");
        must(table->allow(device.device, other + i * bytes, bytes), "setting access");
    }
    ns[5] = lap(&start, n);
    for (int64_t i = 0; i < n; i++) {
        must(table->unmap(device.device, handles[i]), "unmapping a handle");
    }
    ns[3] = lap(&start, n);
    for (int64_t i = 0; i < n; i++) {
        table->handle_close(device.device, handles[i]);
    }
    ns[4] = lap(&start, n);
    for (int i = 0; counts && i < 6; i++) {
        note(names[i], bytes, bytes, ns[i]);
    }
}

static void measure_plain(int64_t bytes, int64_t n, bool counts) {
    static void *pieces[64];
    int64_t start = monotonic_ns();
    for (int64_t i = 0; i < n; i++) {
        must(table->allocate(device.device, bytes, &pieces[i]), "allocating");
    }
    double allocating = lap(&start, n);
    for (int64_t i = 0; i < n; i++) {
        table->release(device.device, pieces[i]);
    }
    double releasing = lap(&start, n);
    if (counts) {
        note("plain allocation", 0, bytes, allocating);
        note("plain release", 0, bytes, releasing);
    }
}

/* All of it at once, in handles of this size, access set once. */
static void measure_growth(int64_t total, int64_t bytes, bool counts) {
    int64_t n = total / bytes;
    ASSERT(n <= MAX_HANDLES);
    unsigned char *at = reserve(total);
    int64_t start = monotonic_ns();
    for (int64_t i = 0; i < n; i++) {
        must(table->handle_open(device.device, bytes, &handles[i]), "creating a handle");
        must(table->map(device.device, at + i * bytes, handles[i]), "mapping a handle");
    }
    must(table->allow(device.device, at, total), "setting access");
    double growing = lap(&start, 1);
    for (int64_t i = n - 1; i >= 0; i--) {
        must(table->unmap(device.device, handles[i]), "unmapping a handle");
        table->handle_close(device.device, handles[i]);
    }
    double shrinking = lap(&start, 1);
    table->range_close(device.device, at);
    if (counts) {
        note("grow", bytes, total, growing);
        note("shrink", bytes, total, shrinking);
    }
}

/* The engine's own way: at once; bit by bit; and what a step pays when nothing changes. */
static void measure_mapping(int64_t total, bool counts) {
    struct mapping mapping;
    struct err err = {0};
    must_err(mapping_open(&mapping, &device, 2 * total, &err), &err);
    int64_t start = monotonic_ns();
    must_err(mapping_cover(&mapping, total, mapping.bytes, &err), &err);
    double growing = lap(&start, 1);
    int64_t largest = mapping.sides[MAPPING_WORKSPACE].handles[0].bytes;
    must_err(mapping_cover(&mapping, total, mapping.bytes - MAPPING_HANDLE_BYTES, &err), &err);
    start = monotonic_ns();
    for (int i = 0; i < STEPS; i++) {
        must_err(mapping_cover(&mapping, total - i % 4096, mapping.bytes - 4096, &err), &err);
        must_err(mapping_next_step(&mapping, &err), &err);
    }
    double step = lap(&start, STEPS);
    mapping_close(&mapping);
    must_err(mapping_open(&mapping, &device, 2 * total, &err), &err);
    start = monotonic_ns();
    int n_steps = 0;
    for (int64_t bytes = 16 * MIB; bytes <= total; bytes += 16 * MIB, n_steps++) {
        must_err(mapping_cover(&mapping, bytes, mapping.bytes, &err), &err);
        must_err(mapping_next_step(&mapping, &err), &err);
    }
    double creeping = lap(&start, 1);
    int64_t n_calls = mapping_total(&mapping).n;
    mapping_close(&mapping);
    if (counts) {
        note("mapping: grow at once", largest, total, growing);
        note("mapping: grow by 16 MiB a step", 0, total, creeping);
        note("mapping: a step without change", 0, total, step);
    } else {
        printf("growing by 16 MiB a step takes %" PRId64 " calls in %d steps\n", n_calls, n_steps);
    }
}

static double fill_ns(void *at, int64_t bytes) {
    enum { FILLS = 8 };
    struct device_event *events[2];
    double ns;
    for (int i = 0; i < 2; i++) {
        must(table->event_open(device.device, &events[i]), "opening an event");
    }
    must(table->clear(device.device, at, bytes), "filling");
    must(table->event_record(device.device, events[0]), "event_record");
    for (int i = 0; i < FILLS; i++) {
        must(table->clear(device.device, at, bytes), "filling");
    }
    must(table->event_record(device.device, events[1]), "event_record");
    must(table->event_wait(device.device, events[1]), "waiting");
    must(table->event_elapsed(device.device, events[0], events[1], &ns), "measuring");
    for (int i = 0; i < 2; i++) {
        table->event_close(device.device, events[i]);
    }
    return ns / FILLS;
}

static void measure_fill(int64_t total, int64_t bytes, bool counts) {
    int64_t n = total / bytes;
    unsigned char *at = reserve(total);
    for (int64_t i = 0; i < n; i++) {
        must(table->handle_open(device.device, bytes, &handles[i]), "creating a handle");
        must(table->map(device.device, at + i * bytes, handles[i]), "mapping a handle");
    }
    must(table->allow(device.device, at, total), "setting access");
    double ns = fill_ns(at, total);
    for (int64_t i = n - 1; i >= 0; i--) {
        table->handle_close(device.device, handles[i]);
    }
    table->range_close(device.device, at);
    if (counts) {
        note("fill", bytes, total, ns);
    }
}

static void measure_plain_fill(int64_t total, bool counts) {
    void *memory;
    must(table->allocate(device.device, total, &memory), "allocating");
    double ns = fill_ns(memory, total);
    table->release(device.device, memory);
    if (counts) {
        note("plain fill", 0, total, ns);
    }
}

/* Of the same round side by side, so that a drift meets everything alike. */
static void measure_round(int64_t total, bool counts) {
    static const int sizes_mib[] = {2, 16, 64, 256, 1024};
    unsigned char *at = reserve(GIB), *other = reserve(GIB);
    measure_reserve(8 * GIB, counts);
    measure_reserve(128 * GIB, counts);
    for (size_t i = 0; i < sizeof sizes_mib / sizeof sizes_mib[0]; i++) {
        int64_t bytes = align_up(sizes_mib[i] * MIB, granule);
        measure_calls(at, other, bytes, counts);
        measure_plain(bytes, GIB / bytes > 64 ? 64 : GIB / bytes, counts);
    }
    table->range_close(device.device, at);
    table->range_close(device.device, other);
    measure_growth(total, total / 8, counts);
    measure_growth(total, 64 * MIB, counts);
    measure_growth(total, align_up(2 * MIB, granule), counts);
    measure_plain(total, 1, counts);
    measure_mapping(total, counts);
    measure_fill(total / 8, total / 8, counts);
    measure_fill(total / 8, align_up(2 * MIB, granule), counts);
    measure_plain_fill(total / 8, counts);
}

int main(int argc, char **argv) {
    enum backend backend =
        argc > 1 ? (enum backend)name_find(backend_names, argv[1]) : BACKEND_CUDA;
    struct err err = {0};
    must_err(engine_device_open(backend, argc > 2 ? argv[2] : NULL, &device, &err), &err);
    table = device.table;
    must(table->granule(device.device, &granule), "asking for the granule");
    /* On a GPU 8 GiB, where there is room for them; handles of the CPU are files, of which a
     * process may have a thousand. */
    bool is_roomy = device.facts.capability > 0 && device.facts.free_bytes > 12 * GIB;
    int64_t total = is_roomy ? 8 * GIB : 1536 * MIB;
    csv = argc > 3 ? fopen(argv[3], "w") : NULL;
    if (argc > 3 && csv == NULL) {
        fprintf(stderr, "bench_vmm: %s cannot be written\n", argv[3]);
        return 1;
    }
    printf("%s, granules of %" PRId64 " MiB, %d rounds\n", device.facts.name, granule / MIB,
           ROUNDS);
    if (csv != NULL) {
        fprintf(csv, "what,handle_bytes,total_bytes,rounds,median_ns,least_ns,most_ns\n");
    }
    int64_t start = monotonic_ns();
    for (int round = -1; round < ROUNDS; round++) {
        measure_round(total, round >= 0);
    }
    print_figures();
    bool is_whole = csv == NULL || fclose(csv) == 0;
    printf("%" PRId64 " bytes left allocated, %.1f s\n", table->allocated_bytes(device.device),
           (double)(monotonic_ns() - start) * 1e-9);
    engine_device_close(&device);
    return is_whole ? 0 : 1;
}
