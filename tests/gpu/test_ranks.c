/* Several GPUs as ranks: sums and gatherings against the host's, again and again, launched and
 * played; what they take beside NCCL; a model on all of them against the same on one. A plain
 * program: `test_ranks LIBRARY [RANKS [nccl|refused]]`, 2 unless said, prints a line for each
 * comparison and the count of failures; `nccl` where the loader finds it, `refused` where it does
 * not and the GPUs do not reach each other's memory, so that they cannot be ranks. `models` in
 * their place compares models in all forms alone, and so does `test_ranks cpu [RANKS]` on the CPU;
 * `times` times LLaDA-8B alone. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/step/forward.h"
#include "engine/weights/ranks.h"
#include "kernels/bf16.h"
#include "kernels/ref/ref.h"
#include "sim/model/ranks.h"
#include "sim/step/builder.h"
#include "tests/gpu/chance.h"

enum {
    MOST_ELEMENTS = 9 << 20, /* 18 MiB of bf16 */
    WINDOW = 4096,           /* elements looked at in a round */
    ROUNDS = 1000,
    TIMED = 50, /* sums in a graph */
    PLAYS = 11,
};

static const char *library;
static int n_ranks;
static enum backend backend = BACKEND_CUDA;
static bool has_nccl, is_refused;
static bool reach; /* each other's memory: sums are made through it, too */
static pthread_barrier_t all;

/* At once: other ranks' threads are in the middle of calls. */
static void stop(const char *what, const char *why) {
    printf("FAILED %s: %s\n", what, why);
    fflush(stdout);
    _Exit(1);
}

struct party {
    struct engine_device device;
    int32_t rank;
    void *x, *y, *z;
    struct device_event *events[2];
    unsigned char *host;
};
static struct party parties[CALL_MAX_RANKS];

static void must(const struct party *p, int status, const char *what) {
    if (status != DEVICE_OK) {
        stop(what, p->device.table->trouble(p->device.device));
    }
}

static void meet(void) {
    pthread_barrier_wait(&all);
}

static void open_party(struct party *p) {
    struct err err = {0};
    int status =
        p->rank == 0 ? 0 : engine_device_another(&parties[0].device, p->rank, &p->device, &err);
    if (status != 0) {
        stop("open", err.text);
    }
    const struct device_table *table = p->device.table;
    must(p, table->allocate(p->device.device, MOST_ELEMENTS * 2LL, &p->x), "allocate");
    must(p, table->allocate(p->device.device, MOST_ELEMENTS * 2LL, &p->y), "allocate");
    must(p, table->allocate(p->device.device, MOST_ELEMENTS * 2LL, &p->z), "allocate");
    must(p, table->event_open(p->device.device, &p->events[0]), "event_open");
    must(p, table->event_open(p->device.device, &p->events[1]), "event_open");
    p->host = malloc(WINDOW * 4 * CALL_MAX_RANKS);
}

static struct call_random contents(const struct party *p, int rank, uint64_t round, int64_t n,
                                   enum kernel_dtype dtype) {
    return (struct call_random){.y = p->x,
                                .key = round * CALL_MAX_RANKS + (uint64_t)rank,
                                .n = n,
                                .spread = 1,
                                .dtype = dtype};
}

/* Elements [first, first + n) of y against the sum of what all ranks have drawn. exact: added in
 * the order of the ranks. */
static int64_t count_wrong(const struct party *p, const void *y, uint64_t round, int64_t first,
                           int64_t n, enum kernel_dtype dtype, bool exact) {
    float drawn[WINDOW], sums[WINDOW] = {0};
    uint16_t rounded[WINDOW];
    int64_t n_wrong = 0, width = dtype == KERNEL_F32 ? 4 : 2;
    must(p,
         p->device.table->download(p->device.device, p->host,
                                   (const unsigned char *)y + first * width, n * width),
         "download");
    for (int rank = 0; rank < n_ranks; rank++) {
        struct call_random call = contents(p, rank, round, n, dtype);
        call.first = first;
        call.y = dtype == KERNEL_F32 ? (void *)drawn : (void *)rounded;
        ref_random(&call);
        for (int64_t i = 0; i < n; i++) {
            sums[i] += dtype == KERNEL_F32 ? drawn[i] : bf16_to_float(rounded[i]);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        float found, wanted = sums[i];
        if (dtype == KERNEL_F32) {
            memcpy(&found, p->host + 4 * i, 4);
        } else {
            uint16_t bits;
            memcpy(&bits, p->host + 2 * i, 2);
            found = bf16_to_float(bits);
            wanted = bf16_to_float(bf16_from_float(wanted));
        }
        float bound = exact ? 0 : (float)n_ranks * (dtype == KERNEL_F32 ? 1e-6f : 0x1p-6f);
        n_wrong += !(fabsf(found - wanted) <= bound);
    }
    return n_wrong;
}

/* The same numbers on every rank. */
static uint64_t common(uint64_t round, uint64_t what) {
    return keyed_mix(round * 31 + what + 1);
}

static int64_t some_size(uint64_t round) {
    static const int64_t sizes[] = {8,         16,      24,      520,     4096,   4096 * 17,
                                    131072,    131080,  262144,  1 << 20, 65544,  (4 << 20) + 8,
                                    32 * 2048, 8 << 20, 3 << 20, 2056,    524288, 1000 * 8};
    return sizes[common(round, 0) % (sizeof sizes / sizeof sizes[0])];
}

static void check_sums(struct party *p, enum all_reduce_way way, const char *name) {
    const struct device_table *table = p->device.table;
    int64_t n_wrong = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const enum kernel_dtype dtype = round % 5 == 4 ? KERNEL_F32 : KERNEL_BF16;
        int64_t n = some_size(round);
        n = dtype == KERNEL_F32 && n > MOST_ELEMENTS / 2 ? 8 : n;
        const bool in_place = common(round, 1) % 2 == 0;
        struct call_random fill = contents(p, p->rank, round, n, dtype);
        /* The GPU draws bf16 alone; single precision is drawn here. */
        if (dtype == KERNEL_F32) {
            n = n < WINDOW ? n : WINDOW;
            fill.n = n;
            fill.y = p->host;
            ref_random(&fill);
            must(p, table->upload(p->device.device, p->x, p->host, n * 4), "upload");
            must(p, table->finish(p->device.device), "finish");
        } else {
            must(p, table->random(p->device.device, &fill), "random");
        }
        const struct call_all_reduce call = {
            .x = p->x, .y = in_place ? p->x : p->y, .n = n, .way = way, .dtype = dtype};
        must(p, table->all_reduce(p->device.device, &call), "all_reduce");
        const int64_t window = n < WINDOW ? n : WINDOW;
        const int64_t first = (int64_t)(common(round, 2) % (uint64_t)(n - window + 1));
        n_wrong += count_wrong(p, call.y, round, first, window, dtype, way == ALL_REDUCE_OWN);
    }
    if (p->rank == 0) {
        printf("rank 0: %d sums %s, %" PRId64 " elements wrong\n", ROUNDS, name, n_wrong);
    }
    meet();
    for (int rank = 0; rank < n_ranks; rank++) {
        if (rank == p->rank) {
            check(n_wrong == 0, "rank %d: sums %s: %" PRId64 " elements wrong", rank, name,
                  n_wrong);
        }
        meet();
    }
}

/* Sums of three sizes and a gathering, captured once and launched on new contents. */
static void check_plays(struct party *p) {
    static const int64_t sizes[] = {131072, 1 << 20, 4096};
    const struct device_table *table = p->device.table;
    struct device *device = p->device.device;
    struct device_graph *graph = NULL;
    int64_t n_wrong = 0;
    struct call_all_reduce sum = {.x = p->x, .y = p->y, .dtype = KERNEL_BF16};
    const struct call_all_gather gather = {.x = p->x, .y = p->z, .bytes = 12 * 100};
    must(p, table->capture_begin(device), "capture_begin");
    must(p, table->all_gather(device, &gather), "all_gather");
    for (int i = 0; i < 3; i++) {
        sum.n = sizes[i];
        sum.y = (unsigned char *)p->y + i * (4 << 20);
        must(p, table->all_reduce(device, &sum), "all_reduce");
    }
    must(p, table->capture_end(device, &graph), "capture_end");
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const struct call_random fill = contents(p, p->rank, round, sizes[1], KERNEL_BF16);
        must(p, table->random(device, &fill), "random");
        must(p, table->graph_launch(device, graph), "graph_launch");
        if (round % 7 == 0) {
            for (int i = 0; i < 3; i++) {
                const int64_t first =
                    (int64_t)(common(round, 3) % (uint64_t)(sizes[i] - WINDOW + 1));
                n_wrong += count_wrong(p, (unsigned char *)p->y + i * (4 << 20), round, first,
                                       WINDOW, KERNEL_BF16, reach);
            }
            for (int rank = 0; rank < n_ranks; rank++) {
                uint16_t found[600], wanted[600];
                struct call_random drawn = contents(p, rank, round, 600, KERNEL_BF16);
                drawn.y = wanted;
                ref_random(&drawn);
                must(p,
                     table->download(device, found, (unsigned char *)p->z + rank * gather.bytes,
                                     gather.bytes),
                     "download");
                n_wrong += memcmp(found, wanted, sizeof found) != 0;
            }
        }
    }
    table->graph_close(device, graph);
    if (p->rank == 0) {
        printf("rank 0: %d plays of sums and a gathering, %" PRId64 " elements wrong\n", ROUNDS,
               n_wrong);
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        meet();
        if (rank == p->rank) {
            check(n_wrong == 0, "rank %d: plays: %" PRId64 " elements wrong", rank, n_wrong);
        }
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one of the TIMED sums in a graph, the median of plays. */
static double time_sum(struct party *p, int64_t n, enum all_reduce_way way) {
    const struct device_table *table = p->device.table;
    struct device *device = p->device.device;
    struct device_graph *graph = NULL;
    const struct call_all_reduce call = {
        .x = p->x, .y = p->x, .n = n, .way = way, .dtype = KERNEL_BF16};
    double us[PLAYS];
    must(p, table->clear(device, p->x, n * 2), "clear");
    must(p, table->all_reduce(device, &call), "all_reduce");
    must(p, table->finish(device), "finish");
    meet();
    must(p, table->capture_begin(device), "capture_begin");
    for (int i = 0; i < TIMED; i++) {
        must(p, table->all_reduce(device, &call), "all_reduce");
    }
    must(p, table->capture_end(device, &graph), "capture_end");
    for (int i = 0; i < PLAYS; i++) {
        double ns;
        meet();
        must(p, table->graph_launch(device, graph), "graph_launch"); /* all have begun */
        must(p, table->event_record(device, p->events[0]), "event_record");
        must(p, table->graph_launch(device, graph), "graph_launch");
        must(p, table->event_record(device, p->events[1]), "event_record");
        must(p, table->event_wait(device, p->events[1]), "event_wait");
        must(p, table->event_elapsed(device, p->events[0], p->events[1], &ns), "event_elapsed");
        us[i] = ns * 1e-3 / TIMED;
    }
    table->graph_close(device, graph);
    qsort(us, PLAYS, sizeof us[0], by_size);
    return us[PLAYS / 2];
}

static void time_sums(struct party *p) {
    if (p->rank == 0) {
        printf("\nsum over %d ranks, in a graph, median of %d: us\n%10s %10s %10s %8s\n", n_ranks,
               PLAYS, "bytes", "own", "nccl", "own/nccl");
    }
    for (int64_t bytes = 8 << 10; bytes <= 16 << 20; bytes *= 2) {
        const double own = reach ? time_sum(p, bytes / 2, ALL_REDUCE_OWN) : (double)NAN;
        const double nccl = has_nccl ? time_sum(p, bytes / 2, ALL_REDUCE_NCCL) : (double)NAN;
        if (p->rank == 0) {
            printf("%10" PRId64 " %10.2f %10.2f %8.2f\n", bytes, own, nccl, own / nccl);
        }
    }
    for (int64_t bytes = 8 << 10; bytes <= 16 << 20; bytes *= 2) { /* as a profile's rows */
        const double us = time_sum(p, bytes / 2, ALL_REDUCE_CHOSEN);
        if (p->rank == 0) {
            printf("all_reduce,%d,%" PRId64 ",%.2f\n", n_ranks, bytes, us);
        }
    }
}

static void *work(void *argument) {
    struct party *p = argument;
    open_party(p);
    meet();
    if (p->rank == 0) {
        struct device *devices[CALL_MAX_RANKS];
        for (int i = 0; i < n_ranks; i++) {
            devices[i] = parties[i].device.device;
        }
        const int status = p->device.table->ranks_open(devices, n_ranks);
        if (is_refused) {
            const char *why = p->device.table->trouble(p->device.device);
            check(status == DEVICE_ABSENT && strstr(why, "libnccl") != NULL,
                  "ranks_open ends with %d: %s", status, why);
            printf("refused: %s\n%d passed, %d failed\n", why, n_passed, n_failed);
            fflush(stdout);
            _Exit(n_failed > 0);
        }
        must(p, status, "ranks_open");
        const struct call_all_reduce own = {.x = p->x, .y = p->y, .way = ALL_REDUCE_OWN};
        reach = p->device.table->all_reduce(p->device.device, &own) == DEVICE_OK;
        const struct call_all_reduce none = {.x = p->x, .y = p->y, .n = -8, .dtype = KERNEL_BF16};
        check(p->device.table->all_reduce(p->device.device, &none) == DEVICE_REFUSED,
              "a negative size is not refused");
    }
    meet();
    if (reach) {
        check_sums(p, ALL_REDUCE_OWN, "by ourselves");
    } else if (p->rank == 0) {
        printf("sums by ourselves: left out, the GPUs do not reach each other's memory\n");
    }
    if (has_nccl) {
        check_sums(p, ALL_REDUCE_NCCL, "by NCCL");
    }
    check_sums(p, ALL_REDUCE_CHOSEN, "by whoever is faster");
    check_plays(p);
    time_sums(p);
    meet();
    free(p->host);
    engine_device_close(&p->device);
    return NULL;
}

enum { MOST_TOKENS = 2048, SIDE_TOKENS = 200, PAGE_ROWS = 16 };

struct side {
    struct model model;
    struct graph graph;
    struct engine_device device;
    struct weights weights;
    struct forward *forward;
    struct ranks *ranks;
    struct step_limits limits;
    int32_t token[SIDE_TOKENS];
    float confidence[SIDE_TOKENS];
};

static void must_be(int status, const struct err *err) {
    if (status != 0) {
        stop("engine", err->text);
    }
}

static const struct graph_options whole_pass = {
    .fused = true, .fused_head = true, .fused_gate_up = true, .engine = true};

static void open_side(struct side *side, const struct model *model, uint32_t ranks, bool by_expert,
                      uint32_t most_tokens, const struct graph_options *options) {
    struct err err = {0};
    must_be(model_divide(model, ranks, by_expert && ranks > 1, &side->model, &err), &err);
    graph_build(&side->graph, &side->model, options);
    side->limits = MAKE(struct step_limits, .max_requests = 4, .max_tokens = most_tokens,
                        .max_logit_rows = most_tokens, .max_positions = MOST_TOKENS,
                        .canvas_tokens = MOST_TOKENS, .workspace_bytes = 1 << 30);
    if (options->exact) {
        side->limits.page_rows = PAGE_ROWS;
        side->limits.pool_bytes = 64 << 20;
    }
    must_be(engine_device_open(backend, library, &side->device, &err), &err);
    must_be(weights_open_stored(&side->weights, &side->device, &side->model, &options->storage, 0,
                                "random:3", &err),
            &err);
    must_be(forward_open(&side->device, &side->graph, &side->weights, &side->limits, &side->forward,
                         &err),
            &err);
    if (ranks > 1) {
        const struct ranks_request request = {.device = &side->device,
                                              .model = &side->model,
                                              .storage = options->storage,
                                              .weights = "random:3"};
        must_be(ranks_open(&request, &side->ranks, &err), &err);
        must_be(forward_lead(side->forward, side->ranks, &err), &err);
    }
}

static void close_side(struct side *side) {
    forward_close(side->forward);
    ranks_close(side->ranks);
    weights_close(&side->weights);
    engine_device_close(&side->device);
}

/* One pass over n tokens, again and again: launched, captured, launched as a graph. Its median
 * time, ms. */
static double run_side(struct side *side, uint32_t n, uint32_t logit_rows, int rounds) {
    static int32_t ids[MOST_TOKENS], positions[MOST_TOKENS];
    double ms[64];
    struct err err = {0};
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (int32_t)i;
        ids[i] = (int32_t)(keyed_mix(i + 1) % (model_whole_vocab(&side->model) - 1));
    }
    must_be(forward_write_canvas(side->forward, 0, ids, n, &err), &err);
    static int32_t pages[MOST_TOKENS / PAGE_ROWS], extents[MOST_TOKENS];
    const bool is_paged = side->limits.page_rows > 0;
    const int32_t block = (int32_t)side->model.block_tokens;
    for (int32_t i = 0; i < (int32_t)n; i++) {
        const int32_t end = (i / block + 1) * block;
        extents[i] = end < (int32_t)n ? end : (int32_t)n;
        pages[i / PAGE_ROWS] = i / PAGE_ROWS;
    }
    const struct span span = {.phase = is_paged ? PHASE_REUSE : PHASE_REFRESH,
                              .queries = n,
                              .first_queries = n,
                              .exact = is_paged,
                              .logit_rows = logit_rows};
    const struct span *const spans[] = {&span};
    struct step_part part = {.positions = positions};
    if (is_paged) {
        part.kv_pages.pages = pages;
        part.kv_pages.n_pages = (int32_t)(n + PAGE_ROWS - 1) / PAGE_ROWS;
        part.kv_pages.extent = extents;
    }
    struct step_shape shape;
    struct placement placement;
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    shape.n_spans = 1;
    shape.spans = spans;
    placement_make(planner_find("first-fit", &err), &side->graph, &shape, (struct chunk_rows){{0}},
                   &placement);
    const struct step step = {.placement = &placement, .shape = &shape, .parts = &part};
    for (int round = 0; round < rounds; round++) {
        double ns;
        must_be(round == 0 ? forward_submit(side->forward, &step, &err)
                           : forward_again(side->forward, &err),
                &err);
        must_be(forward_wait(side->forward, &ns, &err), &err);
        ms[round] = ns * 1e-6;
    }
    const struct step_result result = {.token = logit_rows <= SIDE_TOKENS ? side->token : NULL,
                                       .confidence =
                                           logit_rows <= SIDE_TOKENS ? side->confidence : NULL};
    must_be(forward_result(side->forward, &result, &err), &err);
    qsort(ms, (size_t)rounds, sizeof ms[0], by_size);
    return ms[rounds / 2];
}

/* Roundings to bf16 differ, so that near ties do. */
static void compare_model(const char *name) {
    struct err err = {0};
    static struct side one, many;
    const struct model *model = model_find(name, &err);
    if (model == NULL || model->heads % (uint32_t)n_ranks != 0) {
        return;
    }
    one = many = (struct side){0};
    open_side(&one, model, 1, false, SIDE_TOKENS, &whole_pass);
    run_side(&one, SIDE_TOKENS, SIDE_TOKENS, 3);
    close_side(&one);
    open_side(&many, model, (uint32_t)n_ranks, false, SIDE_TOKENS, &whole_pass);
    for (int pass = 0; pass < 3; pass++) {
        int n_same = 0;
        double worst = 0;
        run_side(&many, SIDE_TOKENS, SIDE_TOKENS, pass + 1);
        for (int i = 0; i < SIDE_TOKENS; i++) {
            if (one.token[i] == many.token[i]) {
                n_same++;
                worst =
                    fmax(worst, fabs((double)many.confidence[i] / (double)one.confidence[i] - 1));
            }
        }
        printf("%s, pass %d: %d of %d tokens as on one GPU, confidences within %.3f\n", name, pass,
               n_same, SIDE_TOKENS, worst);
        check(n_same >= SIDE_TOKENS * 9 / 10 && worst < 0.2, "%s on %d ranks", name, n_ranks);
    }
    close_side(&many);
}

/* ---- models in all forms, as near to the CPU's in float32 as on one GPU ---- */

#define ALL_FP8(type)                                                                              \
    { type, type, NUMBER_FP8, type, NUMBER_BF16 }
#define CACHE_TOO(type)                                                                            \
    { type, type, NUMBER_FP8, NUMBER_BF16, NUMBER_BF16 }
#define IN_FP8(type)                                                                               \
    { type, type, NUMBER_BF16, NUMBER_BF16, NUMBER_BF16 }

/* Sums of ranks are of another order than one GPU's, and logits part by some roundings; what is
 * rounded to fp8 before a product parts by as much as fp8 loses, and a token of a mixture may go to
 * another expert. */
static const struct {
    const char *model;
    struct storage storage;
    bool is_paged, by_expert, has_window, is_dense;
} forms[] = {
    {"llada-tiny", {0}, .is_paged = false},
    {"sdar-tiny", {0}, .is_paged = true},
    {"llada2-tiny", {0}, .is_paged = true, .by_expert = true},
    {"diffusiongemma-tiny", {0}, .is_paged = true, .has_window = true, .is_dense = true},
    {"diffusiongemma-tiny", {0}, .is_paged = true, .has_window = true},
    {"diffusiongemma-tiny", {0}, .is_paged = true, .has_window = true, .by_expert = true},
    {"dream-tiny", {NUMBER_FP8, 0, 0, 0, 0}, .is_paged = false},
    {"dream-tiny", {NUMBER_FP8_CHANNEL, 0, 0, 0, 0}, .is_paged = false},
    {"sdar-tiny", {0, 0, NUMBER_FP8, 0, 0}, .is_paged = true},
    {"llada-tiny", IN_FP8(NUMBER_FP8), .is_paged = false},
    {"llada-tiny", IN_FP8(NUMBER_FP8_CHANNEL), .is_paged = false},
    {"dream-tiny", ALL_FP8(NUMBER_FP8), .is_paged = false},
    {"sdar-tiny", CACHE_TOO(NUMBER_FP8), .is_paged = true},
    {"sdar-tiny", CACHE_TOO(NUMBER_FP8_CHANNEL), .is_paged = true},
    {"llada2-tiny", CACHE_TOO(NUMBER_FP8), .is_paged = true, .by_expert = true},
    {"llada-moe-tiny", IN_FP8(NUMBER_FP8_CHANNEL), .is_paged = false},
};
enum { N_FORMS = sizeof forms / sizeof forms[0], MOST_VOCAB = 2048 };
enum { ONE, MANY, REFERENCE, SIDES };

/* Numbers that are not in fp8, in the back end's type. */
static struct storage storage_of_form(size_t form, bool is_reference) {
    struct storage storage = is_reference ? (struct storage){0} : forms[form].storage;
    uint8_t *const types[] = {&storage.weights, &storage.activations, &storage.cache, &storage.head,
                              &storage.wide};
    for (size_t i = 0; i < 5 && backend == BACKEND_CPU; i++) {
        *types[i] = *types[i] == NUMBER_BF16 ? NUMBER_F32 : *types[i];
    }
    return storage;
}

static void read_logits_of(const struct model *model, size_t form, int which, float *logits) {
    static struct side side;
    struct err err = {0};
    const enum backend own = backend;
    backend = which == REFERENCE ? BACKEND_CPU : own;
    const struct graph_options options = {.fused = true,
                                          .logits_bytes = 2,
                                          .host_reads_logits = true,
                                          .fused_gate_up = true,
                                          .engine = true,
                                          .exact = forms[form].is_paged,
                                          .storage = storage_of_form(form, which == REFERENCE)};
    side = (struct side){0};
    open_side(&side, model, which == MANY ? (uint32_t)n_ranks : 1, forms[form].by_expert,
              SIDE_TOKENS, &options);
    run_side(&side, SIDE_TOKENS, SIDE_TOKENS, which == REFERENCE ? 1 : 3);
    must_be(forward_logits(side.forward, logits, &err), &err);
    close_side(&side);
    backend = own;
}

static double distance(const float *found, const float *wanted, uint32_t vocab) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < SIDE_TOKENS * (size_t)vocab; i++) {
        const double difference = (double)found[i] - (double)wanted[i];
        apart += difference * difference;
        size += (double)wanted[i] * (double)wanted[i];
    }
    return sqrt(apart / size);
}

/* A model of a form; one with windows is of masks, and conditioned on nothing. */
static struct model model_of_form(const struct model *found, size_t form) {
    struct model model = *found;
    if (forms[form].has_window) {
        model.uniform_noise = model.causal_prompt = false;
        model.conditioning_ffn = 0;
        model.mask_token = model.vocab - 1;
    }
    if (forms[form].is_dense) {
        model.router = ROUTER_NONE;
        model.experts = model.experts_active = model.expert_ffn = 0;
        model.shared_experts = model.shared_ffn = 0;
        model.norm_topk = false;
        model.ffn = 128;
    }
    return model;
}

static void compare_form(size_t form) {
    static float logits[SIDES][SIDE_TOKENS * MOST_VOCAB];
    struct err err = {0};
    const struct model *found = model_find(forms[form].model, &err);
    if (found == NULL || found->heads % (uint32_t)n_ranks != 0) {
        return;
    }
    const struct model model = model_of_form(found, form);
    for (int side = 0; side < SIDES; side++) {
        read_logits_of(&model, form, side, logits[side]);
    }
    const struct storage *s = &forms[form].storage;
    const double apart = distance(logits[MANY], logits[ONE], model.vocab),
                 many = distance(logits[MANY], logits[REFERENCE], model.vocab),
                 one = distance(logits[ONE], logits[REFERENCE], model.vocab);
    printf("%s%s%s%s, weights %s, inputs %s, cache %s, head %s: logits %.4f from one GPU's, %.4f "
           "from float32's, which one GPU's are %.4f from\n",
           forms[form].model, forms[form].is_dense ? " without experts" : "",
           forms[form].by_expert ? " by experts" : "",
           forms[form].has_window ? " with a window" : "", number_words[s->weights],
           number_words[s->activations], number_words[s->cache], number_words[s->head], apart, many,
           one);
    check(many <= 1.15 * one + 1e-3, "form %zu on %d ranks", form, n_ranks);
}

static void compare_forms(void) {
    for (size_t form = 0; form < N_FORMS; form++) {
        compare_form(form);
    }
}

static int told(void) {
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed > 0;
}

static void time_model(const char *name, enum number_type type) {
    static const uint32_t tokens[] = {32, 128, 512, 2048};
    struct err err = {0};
    static struct side side;
    double ms[2][4];
    const struct model *model = model_find(name, &err);
    struct graph_options options = whole_pass;
    options.storage.weights = options.storage.activations = (uint8_t)type;
    for (int many = 0; many < 2; many++) {
        side = (struct side){0};
        open_side(&side, model, many ? (uint32_t)n_ranks : 1, false, MOST_TOKENS, &options);
        must_be(forward_warm(side.forward, NULL, &err), &err);
        for (size_t i = 0; i < 4; i++) {
            ms[many][i] = run_side(&side, tokens[i], 32, 21);
        }
        close_side(&side);
    }
    printf("\n%s in %s, one pass, 32 logit rows, random weights: ms\n%8s %8s %8s %8s\n", name,
           number_words[type], "tokens", "1 rank", "ranks", "speed-up");
    for (size_t i = 0; i < 4; i++) {
        printf("%8" PRIu32 " %8.3f %8.3f %8.2f\n", tokens[i], ms[0][i], ms[1][i],
               ms[0][i] / ms[1][i]);
    }
}

static void time_models(void) {
    time_model("llada-8b", NUMBER_BF16);
    time_model("llada-8b", NUMBER_FP8_CHANNEL);
    time_model("llada-8b", NUMBER_FP8);
}

int main(int argc, char **argv) {
    struct err err = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = argc > 1 ? argv[1] : NULL;
    n_ranks = argc > 2 ? atoi(argv[2]) : 2;
    backend = library != NULL && strcmp(library, "cpu") == 0 ? BACKEND_CPU : BACKEND_CUDA;
    if (backend == BACKEND_CPU || (argc > 3 && strcmp(argv[3], "models") == 0)) {
        compare_forms();
        return told();
    }
    if (argc > 3 && strcmp(argv[3], "times") == 0) {
        time_models();
        return told();
    }
    has_nccl = argc > 3 && strcmp(argv[3], "nccl") == 0;
    is_refused = argc > 3 && strcmp(argv[3], "refused") == 0;
    must_be(engine_device_open(BACKEND_CUDA, library, &parties[0].device, &err), &err);
    printf("%s, %d ranks%s\n", parties[0].device.facts.name, n_ranks, has_nccl ? ", NCCL" : "");
    pthread_barrier_init(&all, NULL, (unsigned)n_ranks);
    pthread_t threads[CALL_MAX_RANKS];
    for (int i = 1; i < n_ranks; i++) {
        parties[i].rank = i;
        if (pthread_create(&threads[i], NULL, work, &parties[i]) != 0) {
            stop("pthread_create", "no thread");
        }
    }
    work(&parties[0]);
    for (int i = 1; i < n_ranks; i++) {
        pthread_join(threads[i], NULL);
    }
    compare_model("llada-tiny");
    compare_model("dream-tiny");
    compare_forms();
    time_models();
    return told();
}
