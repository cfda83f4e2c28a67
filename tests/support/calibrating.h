/* What test_calibrate.c and test_calibrate_steps.c and test_calibrate_grid.c share. */
#ifndef UNMASK_TESTS_SUPPORT_CALIBRATING_H
#define UNMASK_TESTS_SUPPORT_CALIBRATING_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/calibrate/calibrate.h"
#include "engine/calibrate/calibration_kept.h"
#include "engine/calibrate/calibration_log.h"
#include "engine/calibrate/calibration_room.h"
#include "engine/calibrate/calibration_samples.h"
#include "engine/calibrate/calibration_stage.h"
#include "engine/calibrate/calibration_time.h"
#include "engine/calibrate/measure.h"
#include "engine/op/program.h"
#include "engine/weights/weights.h"
#include "sim/base/monotonic.h"
#include "sim/base/num.h"
#include "sim/price/price.h"
#include "tests/support/cli.h"
#include "tests/support/fake_device.h"

static inline const struct model *model_named(const char *name) {
    struct err err = {0};
    const struct model *model = model_find(name, &err);
    ck_assert_msg(model != NULL, "%s", err.text);
    return model;
}

struct rig {
    struct device_table table;
    struct engine_device device;
    struct weights weights;
    struct system *system;
    char folder[64], path[96];
    struct calibration_request request;
    struct calibration_report report;
    volatile sig_atomic_t stop;
    uint64_t stop_after; /* measurements; 0: never */
};

static inline void count_down(void *state, uint64_t n_done, uint64_t n_total) {
    struct rig *rig = state;
    ck_assert(n_done <= n_total);
    rig->stop = rig->stop_after > 0 && n_done >= rig->stop_after;
}

static inline struct system *open_system(const char *name, const char *model) {
    struct err err = {0};
    struct system *system = NULL;
    const struct setting width = {.key = "storage.weights", .value = "f32", .place = "test"};
    const struct system_request request =
        MAKE(struct system_request, .system = name, .model = model, .gpu = "cpu",
             .overrides = &width, .n_overrides = 1, .roofline = true);
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

static inline struct rig *rig_open_model(const struct device_table *table, const char *system,
                                         const char *model) {
    struct rig *rig = calloc(1, sizeof *rig);
    struct err err = {0};
    ck_assert_ptr_nonnull(rig);
    rig->table = *table;
    ck_assert_msg(engine_device_start(&rig->table, KERNEL_F32, &rig->device, &err) == 0, "%s",
                  err.text);
    rig->system = open_system(system, model);
    ck_assert_msg(weights_open(&rig->weights, &rig->device, rig->system->model, "random:1", &err) ==
                      0,
                  "%s", err.text);
    snprintf(rig->folder, sizeof rig->folder, "/tmp/unmask-calibrate-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof rig->path, "%s/p.csv", rig->folder);
    rig->request =
        MAKE(struct calibration_request, .device = &rig->device, .weights = &rig->weights,
             .weights_source = "random:1", .system = rig->system, .path = rig->path,
             .max_tokens = 256, .minutes = 10, .now_ns = fake_now_ns, .stop = &rig->stop,
             .progress = count_down, .progress_state = rig);
    return rig;
}

static inline struct rig *rig_open(const struct device_table *table) {
    return rig_open_model(table, "dllm-serve", "llada-tiny");
}

static inline struct rig *rig_open_fake(bool records) {
    struct device_table table = fake_table(records);
    return rig_open(&table);
}

static inline void rig_close(struct rig *rig) {
    char command[128];
    weights_close(&rig->weights);
    ck_assert_int_eq(rig->table.allocated_bytes(rig->device.device), 0);
    system_close(rig->system);
    engine_device_close(&rig->device);
    snprintf(command, sizeof command, "rm -rf '%s'", rig->folder);
    ck_assert_int_eq(system(command), 0);
    free(rig);
}

static inline void rig_run(struct rig *rig) {
    struct err err = {0};
    ck_assert_msg(calibrate(&rig->request, &rig->report, &err) == 0, "%s", err.text);
}

static inline bool exists(const struct rig *rig, const char *name) {
    char path[128];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", rig->folder, name);
    return stat(path, &found) == 0;
}

/* A rest takes none of the test's time. */
int nanosleep(const struct timespec *span, struct timespec *left) {
    (void)left;
    fake.host_ns += 1e9 * (double)span->tv_sec + (double)span->tv_nsec;
    fake.has_slept = true;
    return 0;
}

static inline struct profile *open_profile(const struct rig *rig) {
    const struct gpu *gpu = rig->system->gpu;
    const struct profile_peaks peaks = profile_peaks_of(gpu);
    struct profile *profile = NULL;
    struct err err = {0};
    ck_assert_msg(profile_open(rig->path, &peaks, &profile, &err) == 0, "%s", err.text);
    return profile;
}

/* No operator of a step is priced by roofline, or by an operator that it is not. */
static inline void check_shape_covered(const struct rig *rig, const struct profile *profile,
                                       int variant, bool is_fused, const struct step_shape *shape) {
    struct graph graph;
    struct runtime runtime =
        MAKE(struct runtime, .varlen = true, .fused = true, .fused_head = is_fused,
             .fused_gate_up = is_fused, .host_mode = HOST_SERIAL);
    struct graph_options options =
        calibration_graph(rig->system->model, &rig->weights.layout.storage, variant);
    struct cost_model *cost = NULL;
    struct err err = {0};
    struct op_price prices[GRAPH_MAX_OPS];
    graph_build(&graph, rig->system->model, &options);
    ck_assert_msg(cost_open(rig->system->gpu, profile, NULL, &runtime, &graph, &cost, &err) == 0,
                  "%s", err.text);
    cost_explain(cost, shape, (struct chunk_rows){{0}}, prices);
    for (uint32_t i = 0; i < graph.n_ops; i++) {
        bool runs = prices[i].executions > 0;
        bool attends = graph.ops[i].span_n != SYM_ONE;
        ck_assert_msg(!runs || prices[i].match != PRICE_ROOFLINE, "%s is priced by roofline",
                      graph.ops[i].name);
        ck_assert_msg(!runs || attends || prices[i].match <= PROFILE_INTERPOLATED,
                      "%s lies beyond its rows", graph.ops[i].name);
    }
    cost_close(cost);
}

static inline void check_covered(const struct rig *rig, const struct profile *profile,
                                 const struct calibration_step *step) {
    struct step_shape shape;
    calibration_step_shape(step, rig->system->model, &shape);
    check_shape_covered(rig, profile, calibration_step_variant(step), step->is_fused, &shape);
}

/* Steps of a graph that has kernels of its own, of which every one has rows. */
static inline void check_own_covered(const struct rig *rig, int variant, const struct span *spans,
                                     size_t n) {
    struct profile *profile = open_profile(rig);
    struct step_shape shape;
    shape_clear(&shape);
    for (size_t i = 0; i < n; i++) {
        shape_add(shape.sym, &spans[i], 1);
    }
    ck_assert(
        profile_has(profile, variant == VARIANT_HAS_PATTERNS ? PROFILE_PATTERN : PROFILE_PASS));
    check_shape_covered(rig, profile, variant, false, &shape);
    profile_close(profile);
}

static inline void check_features_covered(const struct rig *rig) {
    static const struct span spans[] = {
        {.phase = PHASE_REFRESH, .queries = 64, .first_queries = 64, .logit_rows = 64},
        {.phase = PHASE_REUSE,
         .queries = 8,
         .first_queries = 64,
         .context = 56,
         .logit_rows = 64,
         .value_rows = 32}};
    check_own_covered(rig, VARIANT_HAS_FEATURES, spans, 2);
}

static inline void check_patterns_covered(const struct rig *rig) {
    static const struct span spans[] = {{.phase = PHASE_REFRESH,
                                         .queries = 64,
                                         .first_queries = 64,
                                         .logit_rows = 64,
                                         .attended_keys = 64},
                                        {.phase = PHASE_REFRESH,
                                         .queries = 64,
                                         .first_queries = 64,
                                         .logit_rows = 64,
                                         .attended_keys = 96}};
    check_own_covered(rig, VARIANT_HAS_PATTERNS, spans, 2);
}

static inline void check_all_covered(const struct rig *rig) {
    struct profile *profile = open_profile(rig);
    for (size_t i = 0; i < rig->report.steps.n; i++) {
        check_covered(rig, profile, &rig->report.steps.list[i]);
    }
    profile_close(profile);
}

/* A device that rests, slow enough that a hold is no more than some hundred steps. */
static inline struct rig *rig_open_slow(double minutes) {
    struct device_table table = fake_table(true);
    fake.energy_j = 1000;
    fake.slow = 5;
    struct rig *rig = rig_open(&table);
    rig->request.minutes = minutes;
    return rig;
}

static inline void stop_after(struct rig *rig, uint64_t n_done) {
    struct err err = {0};
    rig->stop_after = n_done;
    ck_assert_int_eq(calibrate(&rig->request, &rig->report, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "p.csv.partial keeps them") != NULL, "%s", err.text);
    ck_assert(exists(rig, "p.csv.partial") && !exists(rig, "p.csv"));
    rig->stop = 0;
    rig->stop_after = 0;
}

#endif
