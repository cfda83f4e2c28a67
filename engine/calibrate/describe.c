#include "engine/calibrate/describe.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/base/rng.h"

/* Rows, columns and inputs of the product; bytes of the copy, more than any L2 cache has. */
enum { PRODUCT_GPU = 8192, PRODUCT_CPU = 512, MOST_TIMES = 64 };
static const int64_t copy_gpu_bytes = INT64_C(512) << 20, copy_cpu_bytes = INT64_C(64) << 20;
static const double enough_ns = 5e8;

struct bench {
    const struct engine_device *device;
    void *from, *to; /* `bytes` each; what is multiplied lies in `from` */
    int64_t bytes, size, copied_bytes;
};

static int multiply(const struct bench *b) {
    const int64_t square = b->size * b->size * engine_element_bytes(b->device);
    const struct call_linear call = {.x = b->from,
                                     .w = (const unsigned char *)b->from + square,
                                     .y = b->to,
                                     .x_stride = b->size,
                                     .y_stride = b->size,
                                     .n_tokens = (int32_t)b->size,
                                     .n_outputs = (int32_t)b->size,
                                     .n_inputs = (int32_t)b->size,
                                     .dtype = b->device->dtype};
    return b->device->table->linear(b->device->device, &call);
}

static int copy(const struct bench *b) {
    return b->device->table->copy(b->device->device, b->to, b->from, b->copied_bytes);
}

/* The shortest of several, the first of which chooses its kernel. */
static int best_ns(const struct bench *b, int (*work)(const struct bench *), double *out) {
    const struct device_table *table = b->device->table;
    struct device *device = b->device->device;
    struct device_event *begin = NULL, *end = NULL;
    double total_ns = 0;
    *out = INFINITY;
    int status = table->event_open(device, &begin);
    status = status == DEVICE_OK ? table->event_open(device, &end) : status;
    status = status == DEVICE_OK ? work(b) : status;
    for (int i = 0; status == DEVICE_OK && i < MOST_TIMES && total_ns < enough_ns; i++) {
        double ns = 0;
        status = table->event_record(device, begin);
        status = status == DEVICE_OK ? work(b) : status;
        status = status == DEVICE_OK ? table->event_record(device, end) : status;
        status = status == DEVICE_OK ? table->event_wait(device, end) : status;
        status = status == DEVICE_OK ? table->event_elapsed(device, begin, end, &ns) : status;
        *out = fmin(*out, fmax(ns, 1));
        total_ns += ns;
    }
    table->event_close(device, begin);
    table->event_close(device, end);
    return status;
}

static int draw(const struct bench *b) {
    const struct call_random call = {.y = b->from,
                                     .key = hash_text("describe"),
                                     .n = b->bytes / engine_element_bytes(b->device),
                                     .spread = 1,
                                     .dtype = b->device->dtype};
    return b->device->table->random(b->device->device, &call);
}

static int measure(struct bench *b, struct device_rates *out) {
    const struct device_table *table = b->device->table;
    double product_ns = 0, copied_ns = 0;
    struct device_vitals vitals = {0};
    int status = table->allocate(b->device->device, b->bytes, &b->from);
    status = status == DEVICE_OK ? table->allocate(b->device->device, b->bytes, &b->to) : status;
    status = status == DEVICE_OK ? draw(b) : status;
    status = status == DEVICE_OK ? best_ns(b, multiply, &product_ns) : status;
    if (status == DEVICE_OK && table->vitals != NULL) {
        table->vitals(b->device->device, &vitals);
    }
    status = status == DEVICE_OK ? best_ns(b, copy, &copied_ns) : status;
    if (status == DEVICE_OK) {
        const double size = (double)b->size;
        *out = (struct device_rates){.flops = 2 * size * size * size / (product_ns * 1e-9),
                                     .bandwidth = 2 * (double)b->copied_bytes / (copied_ns * 1e-9),
                                     .clock_hz = vitals.sm_clock_mhz * 1e6};
    }
    return status;
}

int describe_measure(const struct engine_device *device, struct device_rates *out,
                     struct err *err) {
    const bool is_gpu = device->facts.capability > 0;
    struct bench b = {.device = device,
                      .size = is_gpu ? PRODUCT_GPU : PRODUCT_CPU,
                      .copied_bytes = is_gpu ? copy_gpu_bytes : copy_cpu_bytes};
    *out = (struct device_rates){0};
    b.bytes = num_larger(b.copied_bytes, 2 * b.size * b.size * engine_element_bytes(device));
    int status = engine_device_err(device, measure(&b, out), "measuring what it reaches", err);
    device->table->release(device->device, b.from);
    device->table->release(device->device, b.to);
    return status;
}

/* ---- the file ---- */

/* Double-precision multiply-adds a clock and multiprocessor (CUDA C++ Programming Guide 13.0,
 * throughput of native arithmetic instructions). */
static double fp64_per_clock(int32_t capability) {
    return capability == 80 ? 32 : capability == 90 || capability == 100 ? 64 : 2;
}

/* Where the device does not say its clock: what the slowest of sim/model/gpus boosts to. */
static const double assumed_clock_hz = 1.4e9;
/* Of cards as in sim/model/gpus; of the CPU as a multiple of its memory's bandwidth. */
static const double l2_bytes_per_clock = 10, cpu_cache_over_memory = 5;

void describe_write(const struct device_facts *facts, const struct device_rates *rates,
                    const char *date, FILE *file) {
    static const double mib = 1024.0 * 1024.0, gib = 1024.0 * mib;
    const bool is_gpu = facts->capability > 0, is_geforce = strstr(facts->name, "GeForce") != NULL;
    const double clock = rates->clock_hz > 0 ? rates->clock_hz : assumed_clock_hz;
    const double fp64 =
        is_gpu ? 2 * fp64_per_clock(facts->capability) * facts->n_sms * clock : rates->flops / 4;
    fprintf(file,
            DESCRIPTION_HEAD " on %s. Its peaks are what was measured, one product and one\n"
                             "; copy: better are those of the data sheet. peak_fp64_flops and "
                             "l2_bandwidth are estimates by %s, the\n"
                             "; link is assumed.\n\n[gpu]\n",
            date,
            !is_gpu               ? "what was measured"
            : rates->clock_hz > 0 ? "the clock that it said"
                                  : "an assumed clock of 1.4 GHz");
    fprintf(file, "title = %s, %.0f GB\n", facts->name, round((double)facts->memory_bytes / gib));
    if (is_gpu) {
        fprintf(file, "device = %s\n", facts->name);
    }
    fprintf(file, "source = measured by unmask calibrate --describe, %s\n", date);
    fprintf(file, "sms = %" PRId32 "\ncompute_capability = %" PRId32 "\n", facts->n_sms,
            facts->capability);
    fprintf(file, "memory = %.0f MiB\nl2 = %.0f MiB\n", (double)facts->memory_bytes / mib,
            fmax(1, round((double)facts->l2_bytes / mib)));
    fprintf(file, "peak_bf16_flops = %.4g\nbest_bf16_flops = %.4g\npeak_fp64_flops = %.4g\n",
            rates->flops, rates->flops, fp64);
    fprintf(file, "peak_bandwidth = %.4g\nbest_bandwidth = %.4g\nl2_bandwidth = %.4g\n",
            rates->bandwidth, rates->bandwidth,
            is_gpu ? fmax(l2_bytes_per_clock * facts->n_sms * clock, rates->bandwidth)
                   : cpu_cache_over_memory * rates->bandwidth);
    fprintf(file, "%s",
            is_gpu ? "link = PCIe 4.0 x16\nlink_bandwidth = 31.5e9\n"
                   : "link = shared memory\nlink_bandwidth = 10e9\n");
    if (is_geforce) {
        fputs("link_peers = off\n", file);
    }
}
