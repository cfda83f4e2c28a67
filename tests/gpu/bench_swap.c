/* What swapping a request out of a GPU and back takes, beside its price: copies of its cache
 * between the device's memory and pinned memory of the host, as the engine makes them, for requests
 * of some models and lengths, in pages of all layers or in one dense store; the price is the bytes
 * over what the card's copies reach by its file (sim/model/gpus), measured or assumed.
 *
 * A plain program: `bench_swap [cuda|cpu [LIBRARY [CSV]]]` prints a table, and writes it to the
 * CSV: medians of the rounds, in nanoseconds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device.h"
#include "sim/base/monotonic.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { ROUNDS = 9 };

static struct engine_device device;
static const struct device_table *table;

static void must(int status, const char *what) {
    struct err err = {0};
    if (engine_device_err(&device, status, what, &err) != 0) {
        fprintf(stderr, "bench_swap: %s\n", err.text);
        exit(1);
    }
}

/* A request's cache: page_tokens 0, one store; else scattered pages of 2 x layers planes each.
 */
struct cache {
    const char *name;
    int64_t tokens, layers, row_bytes; /* of one layer's keys: heads x head size x 2 */
    int64_t page_tokens;
};

static const struct cache caches[] = {
    {"sdar-8b", 1024, 36, 2048, 16}, {"sdar-8b", 1024, 36, 2048, 256},
    {"sdar-8b", 8192, 36, 2048, 16}, {"sdar-8b", 8192, 36, 2048, 256},
    {"llada-8b", 512, 32, 8192, 0},  {"llada-8b", 2048, 32, 8192, 0},
    {"llada-8b", 4096, 32, 8192, 0},
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* All of the cache, one way. Every other page of a pool that holds twice as many. */
static void copy(const struct cache *c, unsigned char *pool, unsigned char *host, bool is_out) {
    const int64_t piece = c->page_tokens * c->row_bytes;
    const int64_t bytes = 2 * c->layers * c->tokens * c->row_bytes;
    const int64_t n = c->page_tokens > 0 ? c->tokens / c->page_tokens : 1;
    const int64_t pitch = c->page_tokens > 0 ? 2 * n * piece : bytes;
    for (int64_t i = 0; i < n; i++) {
        const int64_t width = c->page_tokens > 0 ? piece : bytes;
        const int64_t rows = c->page_tokens > 0 ? 2 * c->layers : 1;
        unsigned char *at = pool + 2 * i * piece, *to = host + i * width * rows;
        must(is_out ? table->swap_out(device.device, to, at, width, pitch, rows)
                    : table->swap_in(device.device, at, to, width, pitch, rows),
             is_out ? "copying out" : "copying in");
    }
    must(table->swap_wait(device.device), "waiting for copies");
}

static double median_ns(const struct cache *c, unsigned char *pool, unsigned char *host,
                        bool is_out) {
    double ns[ROUNDS];
    copy(c, pool, host, is_out); /* of no interest: the first opens the queue of swaps */
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t start_ns = monotonic_ns();
        copy(c, pool, host, is_out);
        ns[i] = (double)(monotonic_ns() - start_ns);
    }
    qsort(ns, ROUNDS, sizeof ns[0], by_size);
    return ns[ROUNDS / 2];
}

static void measure(const struct cache *c, double bandwidth, FILE *csv) {
    const int64_t bytes = 2 * c->layers * c->tokens * c->row_bytes;
    void *pool, *host;
    must(table->allocate(device.device, 2 * bytes, &pool), "allocating a pool");
    must(table->allocate_host(device.device, bytes, &host), "allocating the host's memory");
    const double out_ns = median_ns(c, pool, host, true), in_ns = median_ns(c, pool, host, false);
    const double price_ns = bandwidth > 0 ? (double)bytes / bandwidth * 1e9 : 0;
    char size[32], times[3][32];
    printf("%-9s %6" PRId64 " %5" PRId64 " %10s %10s %10s %10s %7.2f %7.2f %8.2f %8.2f\n", c->name,
           c->tokens, c->page_tokens, num_format_bytes(size, sizeof size, (double)bytes),
           num_format_ns(times[0], 32, out_ns), num_format_ns(times[1], 32, in_ns),
           num_format_ns(times[2], 32, price_ns), (double)bytes / out_ns, (double)bytes / in_ns,
           price_ns > 0 ? out_ns / price_ns : 0, price_ns > 0 ? in_ns / price_ns : 0);
    if (csv != NULL) {
        fprintf(csv, "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%.0f,%.0f,%.0f\n", c->name, c->tokens,
                c->page_tokens, bytes, out_ns, in_ns, price_ns);
    }
    table->release_host(device.device, host);
    table->release(device.device, pool);
}

/* 0: no card of the data folder is this device. */
static double bandwidth_of(void) {
    const char *name = device.facts.capability == 0 ? "cpu" : NULL;
    struct err err = {0};
    if (name == NULL && engine_find_gpu(&device.facts, &name, &err) != 0) {
        printf("no price: %s\n", err.text);
        return 0;
    }
    const struct gpu *gpu = gpu_find(name, &err);
    if (gpu == NULL) {
        printf("no price: %s\n", err.text);
        return 0;
    }
    printf("%s, %s: %.1f GB/s by its file\n", gpu->title,
           gpu->host_link != NULL ? gpu->host_link : "a link without a name",
           gpu_host_bandwidth(gpu) / 1e9);
    return gpu_host_bandwidth(gpu);
}

int main(int argc, char **argv) {
    const int backend = name_find(backend_names, argc > 1 ? argv[1] : "cuda");
    struct err err = {0};
    FILE *csv = argc > 3 ? fopen(argv[3], "w") : NULL;
    if (backend < 0 ||
        engine_device_open((enum backend)backend, argc > 2 ? argv[2] : NULL, &device, &err) != 0) {
        fprintf(stderr, "bench_swap: %s\n", backend < 0 ? "cuda or cpu" : err.text);
        return 1;
    }
    table = device.table;
    if (csv != NULL) {
        fprintf(csv, "model,tokens,page_tokens,bytes,out_ns,in_ns,price_ns\n");
    }
    const double bandwidth = bandwidth_of();
    printf("%-9s %6s %5s %10s %10s %10s %10s %7s %7s %8s %8s\n", "cache of", "tokens", "page",
           "bytes", "out", "in", "price", "GB/s", "GB/s", "out/p.", "in/p.");
    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        measure(&caches[i], bandwidth, csv);
    }
    engine_device_close(&device);
    return csv != NULL && fclose(csv) != 0;
}
