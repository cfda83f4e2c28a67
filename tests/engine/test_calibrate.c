/* Calibration: the grid, the samples and their file, the fit, and the whole of it, on a device
 * whose times are known and on the CPU. Run from the repository root. */
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

static const struct model *model_named(const char *name) {
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

static void count_down(void *state, uint64_t n_done, uint64_t n_total) {
    struct rig *rig = state;
    ck_assert(n_done <= n_total);
    rig->stop = rig->stop_after > 0 && n_done >= rig->stop_after;
}

static int64_t machine_ns(void *state) {
    (void)state;
    return monotonic_ns();
}

static struct system *open_system(const char *name, const char *model) {
    struct err err = {0};
    struct system *system = NULL;
    const struct setting width = {.key = "storage.weights", .value = "f32", .place = "test"};
    const struct system_request request =
        MAKE(struct system_request, .system = name, .model = model, .gpu = "cpu",
             .overrides = &width, .n_overrides = 1, .roofline = true);
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

static struct rig *rig_open_model(const struct device_table *table, const char *system,
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

static struct rig *rig_open(const struct device_table *table) {
    return rig_open_model(table, "dllm-serve", "llada-tiny");
}

static struct rig *rig_open_fake(bool records) {
    struct device_table table = fake_table(records);
    return rig_open(&table);
}

static void rig_close(struct rig *rig) {
    char command[128];
    weights_close(&rig->weights);
    ck_assert_int_eq(rig->table.allocated_bytes(rig->device.device), 0);
    system_close(rig->system);
    engine_device_close(&rig->device);
    snprintf(command, sizeof command, "rm -rf '%s'", rig->folder);
    ck_assert_int_eq(system(command), 0);
    free(rig);
}

static void rig_run(struct rig *rig) {
    struct err err = {0};
    ck_assert_msg(calibrate(&rig->request, &rig->report, &err) == 0, "%s", err.text);
}

/* A device that chooses products' kernels by trying: of each range of 256 tokens the first size
 * that it met, which is what it chose on. */
enum { CHOOSING_RANGES = 8, CHOOSING_TOKENS = 256, CHOOSING_PRODUCTS = 16, WIDE_FROM = 4 };
static struct choosing {
    int32_t n_outputs, n_inputs, first[CHOOSING_RANGES];
} choosing[CHOOSING_PRODUCTS];
static const struct device_table *choosing_base;

static int32_t *choosing_first(const struct call_linear *call) {
    int i = 0;
    while (choosing[i].n_outputs != 0 &&
           (choosing[i].n_outputs != call->n_outputs || choosing[i].n_inputs != call->n_inputs)) {
        ck_assert_int_lt(++i, CHOOSING_PRODUCTS);
    }
    const int range = (call->n_tokens - 1) / CHOOSING_TOKENS;
    choosing[i].n_outputs = call->n_outputs;
    choosing[i].n_inputs = call->n_inputs;
    return &choosing[i].first[range < CHOOSING_RANGES ? range : CHOOSING_RANGES - 1];
}

static bool choosing_chosen(const struct device *device, const struct call_linear *call) {
    (void)device;
    return *choosing_first(call) > 0;
}

static int choosing_linear(struct device *device, const struct call_linear *call) {
    int32_t *first = choosing_first(call);
    *first = *first > 0 ? *first : call->n_tokens;
    return choosing_base->linear(device, call);
}

static bool has_note(const struct calibration_report *report, const char *words) {
    bool found = false;
    for (size_t i = 0; i < report->n_notes; i++) {
        found = found || strstr(report->notes[i], words) != NULL;
    }
    return found;
}

static bool exists(const struct rig *rig, const char *name) {
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

/* In so much time, on a device that rests where it shows energy. */
static struct rig *rig_run_in(double minutes, bool records, bool rests, double gap_ns,
                              double event_ns, double late_ns) {
    struct device_table table = fake_table(records);
    fake.energy_j = rests ? 1000 : 0;
    fake.gap_ns = gap_ns;
    fake.event_ns = event_ns;
    fake.late_ns = late_ns;
    struct rig *rig = rig_open(&table);
    rig->request.minutes = minutes;
    rig_run(rig);
    return rig;
}

/* One round, and as few steps as may be. */
static struct rig *rig_run_quick(bool records, bool rests, double gap_ns, double event_ns,
                                 double late_ns) {
    return rig_run_in(1e-6, records, rests, gap_ns, event_ns, late_ns);
}

/* The rows of a profile, from its first line that is no comment. */
static const char *rows_of(const char *text) {
    while (*text == '#') {
        text = strchr(text, '\n') + 1;
    }
    return text;
}

static struct profile *open_profile(const struct rig *rig) {
    const struct gpu *gpu = rig->system->gpu;
    const struct profile_peaks peaks = profile_peaks_of(gpu);
    struct profile *profile = NULL;
    struct err err = {0};
    ck_assert_msg(profile_open(rig->path, &peaks, &profile, &err) == 0, "%s", err.text);
    return profile;
}

/* No operator of a step is priced by roofline, or by an operator that it is not. */
static void check_covered(const struct rig *rig, const struct profile *profile,
                          const struct calibration_step *step) {
    struct graph graph;
    struct runtime runtime =
        MAKE(struct runtime, .varlen = true, .fused = true, .fused_head = step->is_fused,
             .fused_gate_up = step->is_fused, .host_mode = HOST_SERIAL);
    struct graph_options options =
        calibration_graph(rig->system->model, NUMBER_F32, calibration_step_variant(step));
    struct cost_model *cost = NULL;
    struct err err = {0};
    struct step_shape shape;
    struct op_price prices[GRAPH_MAX_OPS];
    graph_build(&graph, rig->system->model, &options);
    ck_assert_msg(cost_open(rig->system->gpu, profile, NULL, &runtime, &graph, &cost, &err) == 0,
                  "%s", err.text);
    calibration_step_shape(step, rig->system->model, &shape);
    cost_explain(cost, &shape, (struct chunk_rows){{0}}, prices);
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

static void check_all_covered(const struct rig *rig) {
    struct profile *profile = open_profile(rig);
    for (size_t i = 0; i < rig->report.steps.n; i++) {
        check_covered(rig, profile, &rig->report.steps.list[i]);
    }
    profile_close(profile);
}

/* What a whole step costs more is every operator's alike. */
static void check_corrections(const struct calibration_report *report, const struct model *m,
                              double factor) {
    int64_t q = (int64_t)m->heads * m->head_dim, kv = (int64_t)m->kv_heads * m->head_dim;
    const struct correction *correction = &report->correction;
    struct correction_key key = correction_key_of((struct op_size){q + 2 * kv, m->hidden});
    int qkv = correction_find(correction, OP_LINEAR, key.text);
    key = correction_key_of((struct op_size){q, kv});
    int attention = correction_find(correction, OP_ATTENTION_BLOCK, key.text);
    ck_assert_int_ge(qkv, 0);
    ck_assert_int_ge(attention, 0);
    ck_assert_uint_gt(correction->curves[qkv].n_points, 3);
    for (double rows = 16; rows <= 1024; rows *= 2) {
        ck_assert_double_eq_tol(correction_factor(correction, qkv, rows), factor, 0.02 * factor);
        ck_assert_double_eq_tol(correction_factor(correction, attention, rows), factor,
                                0.02 * factor);
    }
}

static void recover_costs(bool records, double load) {
    struct rig *rig = rig_open_fake(records);
    fake.load = load;
    rig_run(rig);
    ck_assert(records == (fake.n_plays > 0));
    const struct calibration_report *report = &rig->report;
    ck_assert_uint_eq(report->n_rounds, CALIBRATION_MAX_ROUNDS);
    ck_assert_double_eq_tol(report->spread_p95, 0, 1e-5);
    ck_assert_double_eq_tol(report->reference_drift, 0, 1e-9);
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        ck_assert(report->host[kind].given);
        ck_assert_double_eq_tol(report->host[kind].step_ns, STEP_NS, 0.05 * STEP_NS);
        ck_assert_double_eq_tol(report->host[kind].request_ns, REQUEST_NS, 0.1 * REQUEST_NS);
    }
    /* An embedding is outside of what the device calls a step. */
    ck_assert_double_eq_tol(report->correction.all, fake.load, 0.005);
    check_corrections(report, rig->system->model, fake.load);
    ck_assert_double_lt(report->held_out.median, 0.002);
    ck_assert_double_lt(report->mixed.median, 0.002);
    ck_assert_double_lt(report->additivity_measured, 1);
    ck_assert_double_eq_tol(report->additivity_measured, report->additivity_predicted, 0.002);
    check_all_covered(rig);
    rig_close(rig);
}

TEST(known_costs_are_recovered) {
    recover_costs(false, 1);
}

TEST(known_costs_are_recovered_where_the_device_records) {
    recover_costs(true, 1);
}

TEST(what_whole_steps_cost_more_is_recovered) {
    recover_costs(false, 1.2);
}

/* Serving has no rests between its steps. */
static void recover_host_of_rested(bool records) {
    struct device_table table = fake_table(records);
    fake.energy_j = 1000;
    fake.drowsy_ns = 10 * STEP_NS;
    struct rig *rig = rig_open(&table);
    rig->request.minutes = 1e-6;
    rig_run(rig);
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        const struct host_fit *host = &rig->report.host[kind];
        ck_assert_double_eq_tol(host->step_ns, STEP_NS, 0.05 * STEP_NS);
        ck_assert_double_eq_tol(host->request_ns, REQUEST_NS, 0.1 * REQUEST_NS);
    }
    rig_close(rig);
}

TEST(what_the_host_takes_longer_behind_a_rest_is_left_out) {
    recover_host_of_rested(false);
    recover_host_of_rested(true);
}

/* Blocks and single tokens in pages; prefills decide nothing where there are blocks, so that the
 * device sees no request in them. */
static void recover_exact_costs(const char *system, const char *model, bool records) {
    struct device_table table = fake_table(records);
    struct rig *rig = rig_open_model(&table, system, model);
    bool is_causal = rig->system->model->mask == MASK_CAUSAL;
    rig_run(rig);
    const struct calibration_report *report = &rig->report;
    ck_assert(!report->host[HOST_SELECT].given);
    for (int kind = 0; kind < HOST_SELECT; kind++) {
        bool asks = kind == HOST_REUSE || is_causal;
        ck_assert(report->host[kind].given);
        ck_assert_double_eq_tol(report->host[kind].step_ns, STEP_NS, 0.05 * STEP_NS);
        ck_assert_double_eq_tol(report->host[kind].request_ns, asks ? REQUEST_NS : 0,
                                0.1 * REQUEST_NS);
    }
    ck_assert_double_eq_tol(report->correction.all, 1, 0.01);
    ck_assert_uint_gt(report->held_out.n, 0);
    ck_assert_uint_gt(report->mixed.n, 0);
    ck_assert_double_lt(report->held_out.median, 0.01);
    /* A few tokens beside a prefill stand between measured rows, where a product is priced by whole
     * tiles, which this device does not have. */
    ck_assert_double_lt(report->mixed.median, 0.12);
    check_all_covered(rig);
    rig_close(rig);
}

TEST(known_costs_of_exact_keys_and_values_are_recovered) {
    recover_exact_costs("sdar", "sdar-tiny", false);
    recover_exact_costs("sdar", "sdar-tiny", true);
    recover_exact_costs("vllm-ar", "qwen2.5-tiny", false);
    recover_exact_costs("vllm-ar", "qwen2.5-tiny", true);
    recover_exact_costs("sdar", "llada2-tiny", false);
    recover_exact_costs("sdar", "llada2-tiny", true);
}

/* What the fake device takes for so many requests of q queries after `context` rows. */
static double paged_ns(double batch, double q, double context, double block) {
    double pairs = 0;
    for (int i = 0; i < (int)q; i++) {
        pairs += context + fmin(q, (floor(i / block) + 1) * block);
    }
    return 1500 + 0.01 * batch * pairs;
}

TEST(rows_of_pages_are_prefills_blocks_and_single_tokens) {
    for (int causal = 0; causal < 2; causal++) {
        struct device_table table = fake_table(false);
        struct rig *rig = rig_open_model(&table, causal ? "vllm-ar" : "sdar",
                                         causal ? "qwen2.5-tiny" : "sdar-tiny");
        const struct model *m = rig->system->model;
        double block = m->block_tokens;
        rig->request.max_tokens = 1024;
        rig_run(rig);
        struct profile *profile = open_profile(rig);
        enum profile_match match;
        struct profile_spans spans = {.heads = m->heads, .kv_heads = m->kv_heads, .head_dim = 128};
        for (int prefix = 0; prefix <= 1024; prefix += 1024) {
            spans.n_seqs = 4;
            spans.sum_q = 4 * 128;
            spans.sum_kv = 4 * (128 + prefix);
            spans.sum_q_kv = 4 * (128.0 * prefix + 128.0 * 129 / 2);
            double ns = profile_attention_prefill(profile, &spans, &match);
            ck_assert_int_eq(match, PROFILE_EXACT);
            ck_assert_double_eq_tol(ns, paged_ns(4, 128, prefix, block), 1);
        }
        spans.n_seqs = 16;
        spans.sum_q = 16 * block;
        spans.sum_kv = 16 * (256 + block);
        spans.sum_q_kv = 16 * block * (256 + block);
        double ns = profile_attention_block(profile, &spans, &match);
        ck_assert_int_eq(match, PROFILE_EXACT);
        ck_assert_double_eq_tol(ns, paged_ns(16, block, 256, block), 1);
        ck_assert(profile_has(profile, PROFILE_ATTENTION_DECODE));
        ck_assert(!profile_has_pass(profile, PASS_KEEP) && !profile_has_pass(profile, PASS_SELECT));
        profile_close(profile);
        rig_close(rig);
    }
}

TEST(rows_are_the_medians_of_what_the_device_took) {
    struct rig *rig = rig_open_fake(false);
    rig_run(rig);
    struct profile *profile = open_profile(rig);
    enum profile_match match;
    ck_assert_double_eq_tol(profile_gemm(profile, 65, 768, 256, &match), product_ns(65, 768, 256),
                            1);
    ck_assert_int_eq(match, PROFILE_EXACT);
    char *text = scratch_read(rig->path); /* how the kernels divide their work is said, too */
    ck_assert_ptr_nonnull(strstr(text, "\ntile,query_rows,128\n"));
    ck_assert_mem_eq(profile_tiles(profile), &tiles_default, sizeof tiles_default);
    free(text);
    ck_assert_double_eq_tol(profile_pass(profile, PASS_SWIGLU, 512, 128, &match), pass_ns(128, 512),
                            1);
    ck_assert_int_eq(match, PROFILE_EXACT);
    ck_assert_double_eq_tol(profile_fused(profile, PROFILE_HEAD, 256, 1024, 256, &match),
                            product_ns(256, 1024, 256), 1);
    ck_assert_int_eq(match, PROFILE_EXACT);
    ck_assert_double_eq_tol(profile_fused(profile, PROFILE_GATE_UP, 64, 1024, 256, &match),
                            product_ns(64, 512, 256), 1);
    ck_assert_int_eq(match, PROFILE_EXACT);
    /* Packing is the difference of two selections: 64 rows and one. */
    ck_assert_double_eq_tol(profile_pass(profile, PASS_PACK, 256, 64, &match), 63, 1);
    ck_assert_int_eq(match, PROFILE_EXACT);
    profile_close(profile);
    rig_close(rig);
}

/* Of a device that says nothing of its clocks; the next calibration finds that it is a log. */
static void check_log(const struct rig *rig) {
    char path[CALIBRATION_LOG_PATH_CHARS];
    char *text = scratch_read(calibration_log_path(rig->path, path));
    ck_assert(exists(rig, "p.log.csv"));
    ck_assert_int_eq(strncmp(text, CALIBRATION_LOG_HEAD, strlen(CALIBRATION_LOG_HEAD)), 0);
    ck_assert_ptr_nonnull(strstr(text, ",,,,\n"));
    ck_assert_ptr_null(strstr(text, ",0\n"));
    free(text);
}

TEST(a_profile_says_where_it_comes_from) {
    static const char *const wanted[] = {"gpu",
                                         "date",
                                         "backend",
                                         "device",
                                         "dtype",
                                         "model",
                                         "weights",
                                         "rounds",
                                         "spread",
                                         "held_out",
                                         "mixed",
                                         "additivity",
                                         "method",
                                         "kv_pages",
                                         "max_tokens",
                                         "reference_product",
                                         "covariance_reuse",
                                         "free_bytes_after_weights",
                                         "activation_peak_bytes"};
    struct rig *rig = rig_open_fake(false);
    rig_run(rig);
    struct profile *profile = open_profile(rig);
    ck_assert_int_eq(profile_kind(profile), PROVENANCE_MEASURED);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const char *key = "", *value;
        bool found = false;
        for (size_t j = 0; !found && profile_fact(profile, j, &key, &value); j++) {
            found = strcmp(key, wanted[i]) == 0;
        }
        ck_assert_msg(found, "no line '# %s: '", wanted[i]);
    }
    ck_assert_int_gt(rig->report.kv_pages, 0);
    ck_assert_int_gt(rig->report.steps.activation_peak_bytes, 0);
    ck_assert_int_le(rig->report.steps.activation_peak_bytes,
                     rig->report.steps.activation_planned_bytes);
    check_log(rig);
    ck_assert(!exists(rig, "p.csv.partial") && !exists(rig, "p.csv.new"));
    profile_close(profile);
    rig_close(rig);
}

/* The same rows in the same order, and times alike but for the rounding of a long clock. */
static void check_same_rows(const char *a, const char *b) {
    while (*a != '\0' && *b != '\0') {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        const char *a_us = memrchr(a, ',', n), *b_us = memrchr(b, ',', m);
        ck_assert(a_us != NULL && b_us != NULL);
        bool is_host = strncmp(a, "host,", 5) == 0;
        size_t sizes = is_host ? strlen("host,re") : (size_t)(a_us - a);
        ck_assert_msg(strncmp(a, b, sizes) == 0, "%.*s", (int)n, a);
        double us = atof(b_us + 1);
        ck_assert_double_eq_tol(atof(a_us + 1), us, is_host ? 0.01 * us : 1e-4 * us);
        a += n + 1;
        b += m + 1;
    }
    ck_assert(*a == '\0' && *b == '\0');
}

TEST(an_interrupted_calibration_continues) {
    struct rig *whole = rig_open_fake(false);
    rig_run(whole);
    char *expected = scratch_read(whole->path);
    rig_close(whole);

    struct rig *rig = rig_open_fake(false);
    struct err err = {0};
    for (rig->stop_after = 500; rig->stop_after <= 1500; rig->stop_after += 500) {
        err = (struct err){0};
        ck_assert_int_eq(calibrate(&rig->request, &rig->report, &err), ERR_WORLD);
        ck_assert_msg(strstr(err.text, "interrupted after") != NULL, "%s", err.text);
        ck_assert(exists(rig, "p.csv.partial") && !exists(rig, "p.csv"));
        rig->stop = 0;
    }
    rig->stop_after = 0;
    rig_run(rig);
    ck_assert_uint_eq(rig->report.n_found, 1500);
    char *text = scratch_read(rig->path);
    check_same_rows(rows_of(text), rows_of(expected));
    ck_assert(!exists(rig, "p.csv.partial"));
    free(text);
    free(expected);
    rig_close(rig);
}

/* A device that rests, slow enough that a hold is no more than some hundred steps. */
static struct rig *rig_open_slow(double minutes) {
    struct device_table table = fake_table(true);
    fake.energy_j = 1000;
    fake.slow = 5;
    struct rig *rig = rig_open(&table);
    rig->request.minutes = minutes;
    return rig;
}

static void stop_after(struct rig *rig, uint64_t n_done) {
    struct err err = {0};
    rig->stop_after = n_done;
    ck_assert_int_eq(calibrate(&rig->request, &rig->report, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "p.csv.partial keeps them") != NULL, "%s", err.text);
    ck_assert(exists(rig, "p.csv.partial") && !exists(rig, "p.csv"));
    rig->stop = 0;
    rig->stop_after = 0;
}

/* Nothing that was measured to the end is measured again, and the profile is the same. */
TEST(whole_steps_are_kept_as_they_come) {
    struct rig *whole = rig_open_slow(1000);
    rig_run(whole);
    char *expected = scratch_read(whole->path);
    const uint64_t n_points = CALIBRATION_MAX_ROUNDS * whole->report.n_points;
    const uint64_t n_steps = whole->report.steps.n;
    const double whole_ns = whole->report.took_ns;
    rig_close(whole);

    struct rig *rig = rig_open_slow(1000);
    for (uint64_t done = 1; done <= n_steps; done += n_steps / 3) {
        stop_after(rig, n_points + done);
    }
    rig_run(rig);
    /* Of the last stage there was but what it holds left. */
    ck_assert_double_lt(rig->report.took_ns, 0.35 * whole_ns);
    char *text = scratch_read(rig->path);
    check_same_rows(rows_of(text), rows_of(expected));
    free(text);
    free(expected);
    rig_close(rig);
}

/* What little time left out of a stage that was finished is measured where there is more. */
TEST(a_calibration_that_continues_with_more_time_measures_what_was_left_out) {
    struct rig *least = rig_open_slow(1e-6);
    rig_run(least);
    const uint64_t n_done = least->report.n_points + least->report.steps.n - 1;
    ck_assert_uint_gt(least->report.n_left_out, 0);
    rig_close(least);

    struct rig *rig = rig_open_slow(1e-6);
    stop_after(rig, n_done);
    rig->request.minutes = 1000;
    rig_run(rig);
    const struct calibration_report *report = &rig->report;
    ck_assert_uint_eq(report->n_left_out, 0);
    for (size_t i = 0; i < report->steps.n; i++) {
        ck_assert_double_gt(report->steps.list[i].wall_ns, 0);
    }
    ck_assert_double_lt(report->fitted.p95, 0.05);
    ck_assert(isfinite(report->host[HOST_REFRESH].covariance[0]));
    rig_close(rig);
}

static double tokens_of(const struct calibration_step *step, const struct model *model) {
    double tokens = 0;
    for (uint32_t i = 0; i < step->n_sides; i++) {
        const struct step_side *side = &step->sides[i];
        tokens += (double)side->n_requests *
                  (side->kind == HOST_REUSE ? model->block_tokens : side->canvas_tokens);
    }
    return tokens;
}

static bool is_listed(const struct calibration_steps *steps, const struct calibration_step *step) {
    char name[STEP_NAME_CHARS], other[STEP_NAME_CHARS];
    bool found = false;
    for (size_t i = 0; i < steps->n; i++) {
        found = found || strcmp(step_name(&steps->list[i], name), step_name(step, other)) == 0;
    }
    return found;
}

/* A card on which a token takes 0.1 ms, and the minutes that its steps may take. The longest are
 * not run; mixed ones keep their sides; what is left is enough for a fit. */
TEST(little_time_leaves_the_longest_steps_out) {
    static const double minutes[] = {1000, 7, 5, 3.5, 0.1};
    const struct model *model = model_named("llada-8b");
    const struct calibration_pace pace = {
        .rates = {1e14, 1e12, 0}, .is_gpu = true, .rests = true, .captures = true};
    const struct calibration_bounds bounds = {.max_tokens = 16384,
                                              .max_logit_rows = 8192,
                                              .max_kv_rows = 262144,
                                              .max_store_rows = 65536};
    const struct step_effort *effort = &step_efforts[EFFORT_LESS];
    static struct calibration_steps whole, steps;
    calibration_steps_list(&whole, model, &bounds);
    for (size_t i = 0; i < whole.n; i++) {
        whole.list[i].operators_ns = 1e5 * tokens_of(&whole.list[i], model);
    }
    ck_assert_double_gt(calibration_steps_ns(&whole, &pace, &step_efforts[EFFORT_FULL]),
                        calibration_steps_ns(&whole, &pace, effort));
    size_t n_before = whole.n + 1;
    for (size_t i = 0; i < sizeof minutes / sizeof minutes[0]; i++) {
        double longest = 0, least_gone = INFINITY;
        size_t n_fitted[2][HOST_KIND_COUNT] = {{0}};
        steps = whole;
        const size_t n_gone = calibration_steps_leave_out(&steps, &pace, effort, minutes[i] * 60e9);
        ck_assert_uint_eq(steps.n + n_gone, whole.n);
        ck_assert_uint_lt(steps.n, n_before);
        ck_assert((n_gone > 0) == (i > 0));
        ck_assert(i == 4 || calibration_steps_ns(&steps, &pace, effort) <= minutes[i] * 60e9);
        n_before = steps.n;
        for (size_t k = 0; k < steps.n; k++) {
            const struct calibration_step *step = &steps.list[k];
            longest = fmax(longest, step->n_sides == 1 ? step->operators_ns : 0);
            n_fitted[step->is_fused][step->sides[0].kind] +=
                step->n_sides == 1 && !step->is_held_out;
            for (int side = 0; side < 2 && step->n_sides == 2; side++) {
                const struct calibration_step *alone = &steps.list[step->alone[side]];
                ck_assert_uint_eq(alone->n_sides, 1);
                ck_assert_mem_eq(&alone->sides[0], &step->sides[side], sizeof alone->sides[0]);
                ck_assert(alone->is_fused == step->is_fused);
            }
        }
        for (size_t k = 0; k < whole.n; k++) {
            if (!is_listed(&steps, &whole.list[k])) {
                least_gone = fmin(least_gone, whole.list[k].operators_ns);
            }
        }
        ck_assert(i == 4 || n_gone == 0 || least_gone > 0.2 * longest);
        for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
            ck_assert_uint_ge(n_fitted[0][kind], 5);
            ck_assert_uint_ge(n_fitted[1][kind], 5);
        }
    }
    /* Less often first, where that is enough. */
    const double full_ns = calibration_steps_ns(&whole, &pace, &step_efforts[EFFORT_FULL]);
    const double less_ns = calibration_steps_ns(&whole, &pace, effort);
    ck_assert_ptr_eq(calibration_steps_effort(&whole, &pace, full_ns), &step_efforts[EFFORT_FULL]);
    ck_assert_ptr_eq(calibration_steps_effort(&whole, &pace, (full_ns + less_ns) / 2), effort);
    steps = whole;
    ck_assert_uint_eq(calibration_steps_leave_out(&steps, &pace, effort, (full_ns + less_ns) / 2),
                      0);
    /* What was measured before stays. */
    steps = whole;
    for (size_t k = 0; k < steps.n; k++) {
        steps.list[k].n_operators = 1;
    }
    ck_assert_uint_eq(calibration_steps_leave_out(&steps, &pace, effort, 0), 0);
    ck_assert_double_eq_tol(calibration_steps_ns(&steps, &pace, effort), 0, 1e-9);
}

static struct calibration_step *step_of(struct calibration_steps *steps, size_t i) {
    ck_assert_uint_lt(i, steps->n);
    return &steps->list[i];
}

/* Whatever is kept of a step is what was measured of it. */
TEST(what_is_kept_of_a_step_is_read_again) {
    static struct calibration_steps wrote, read;
    const struct model *model = model_named("llada-8b");
    const struct calibration_bounds bounds = {
        .max_tokens = 1024, .max_logit_rows = 1024, .max_kv_rows = 16384, .max_store_rows = 16384};
    struct calibration_grid grid;
    struct calibration_samples samples;
    struct steps_kept kept;
    struct err err = {0};
    const char *path = scratch_path("kept.partial");
    ck_assert_int_eq(calibration_grid_make(&grid, model, NUMBER_BF16, &bounds, &err), 0);
    calibration_steps_list(&wrote, model, &bounds);
    ck_assert_int_eq(samples_open(&samples, &grid, path, "a subject", &err), 0);
    steps_kept_open(&kept, &samples, &wrote);
    ck_assert(isnan(kept.times[3].wall_ns[0]) && kept.n_found == 0);
    struct calibration_step *step = step_of(&wrote, 3);
    kept.times[3].wall_ns[1] = 1e6 / 3;
    kept.times[3].device_ns[1] = 1e6 / 7;
    ck_assert_int_eq(steps_keep_round(&kept, &wrote, 3, 1, &err), 0);
    step->wall_ns = 1e6 / 9;
    step->device_ns = 1e6 / 11;
    step->is_cut = true;
    step->n_operators = 2;
    for (int i = 0; i < 2; i++) {
        step->operators[i] = (struct step_operator){.kind = i == 0 ? OP_EMBED : OP_LINEAR,
                                                    .key = {"4096x4096"},
                                                    .rows = 128 + i,
                                                    .between_ns = 1e5 / 3 + i,
                                                    .experts_hit = 69.5 + i};
    }
    ck_assert_int_eq(steps_keep_whole(&kept, &wrote, 3, &err), 0);
    step->issued_ns = 1e6 / 13;
    ck_assert_int_eq(steps_keep_issued(&kept, &wrote, 3, &err), 0);
    step->held = (struct power_sample){.watts = 300.1,
                                       .first_ns = 1e6 / 3,
                                       .settled_ns = 1e6 / 5,
                                       .late_ns = 1e6 / 7,
                                       .gap_ns = 1e3 / 3,
                                       .held_ns = 2.5e9,
                                       .lag_ms = 65.5};
    ck_assert_int_eq(steps_keep_held(&kept, &wrote, 3, &err), 0);
    wrote.idle_w = 71.25;
    ck_assert_int_eq(steps_keep_idle(&kept, &wrote, &err), 0);
    ck_assert_int_eq(steps_keep_stage(&kept, 2, 1000, 3000, &err), 0);
    steps_kept_close(&kept);
    samples_close(&samples);

    calibration_steps_list(&read, model, &bounds);
    ck_assert_int_eq(samples_open(&samples, &grid, path, "a subject", &err), 0);
    steps_kept_open(&kept, &samples, &read);
    ck_assert_uint_eq(kept.n_found, 1);
    ck_assert(kept.times[3].wall_ns[1] == 1e6 / 3 && kept.times[3].device_ns[1] == 1e6 / 7);
    ck_assert(isnan(kept.times[3].wall_ns[0]) && isnan(kept.times[2].wall_ns[1]));
    ck_assert(kept.planned_bytes[2] == 3000 && kept.planned_bytes[1] == 0);
    wrote.activation_peak_bytes = 1000;
    wrote.activation_planned_bytes = 3000;
    ck_assert_mem_eq(step_of(&read, 3), step, sizeof *step);
    ck_assert(read.idle_w == wrote.idle_w && read.activation_peak_bytes == 1000 &&
              read.activation_planned_bytes == 3000);
    steps_kept_close(&kept);
    samples_close(&samples);
    calibration_grid_close(&grid);
}

/* Operators one round, whole steps as few as may be, and both are enough. */
TEST(the_least_calibration_says_what_it_left_out) {
    struct rig *rig = rig_open_slow(1e-6);
    rig_run(rig);
    const struct calibration_report *report = &rig->report;
    ck_assert_uint_eq(report->n_rounds, 1);
    ck_assert_uint_gt(report->n_left_out, 0);
    ck_assert(has_note(report, "left out for want of time"));
    ck_assert_double_eq_tol(report->correction.all, 1, 0.01);
    ck_assert_double_lt(report->held_out.median, 0.002);
    ck_assert_double_gt(report->additivity_measured, 0);
    rig_close(rig);
}

/* Where time for a round is left but not for the whole steps behind it, there is none. */
TEST(rounds_leave_time_for_the_whole_steps) {
    struct rig *all = rig_open_slow(1000);
    rig_run(all);
    ck_assert_uint_eq(all->report.n_rounds, CALIBRATION_MAX_ROUNDS);
    const double all_ns = all->report.took_ns;
    rig_close(all);
    struct rig *rig = rig_open_slow(0.985 * all_ns / 60e9);
    rig_run(rig);
    ck_assert_uint_eq(rig->report.n_rounds, CALIBRATION_MAX_ROUNDS - 1);
    ck_assert_uint_eq(rig->report.n_left_out, 0);
    ck_assert_double_lt(rig->report.took_ns, 0.985 * all_ns);
    rig_close(rig);
}

/* Before anything is measured; of what the device reaches, not what its file states. */
TEST(how_long_it_will_take_is_said_at_the_start) {
    double said_ns[2];
    for (int slow = 0; slow < 2; slow++) {
        struct rig *rig = rig_open_slow(1000);
        fake.slow = slow ? 50 : 5;
        rig_run(rig);
        said_ns[slow] = rig->report.estimated_ns;
        ck_assert_double_gt(rig->report.took_ns, 0);
        rig_close(rig);
    }
    ck_assert_double_gt(said_ns[0], 0);
    ck_assert_double_gt(said_ns[1], 1.2 * said_ns[0]);
}

TEST(little_time_cuts_rounds_and_no_points) {
    struct rig *rig = rig_open_fake(false);
    rig->request.minutes = 1e-6;
    rig_run(rig);
    ck_assert_uint_eq(rig->report.n_rounds, 1);
    check_all_covered(rig);
    rig_close(rig);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of what the fused steps of one kind alone took more. */
static double median_more_ns(const struct calibration_steps *steps, uint32_t kind) {
    double more[CALIBRATION_MAX_STEPS];
    size_t n = 0;
    for (size_t i = 0; i < steps->n; i++) {
        const struct calibration_step *step = &steps->list[i];
        if (step->is_fused && step->n_sides == 1 && step->sides[0].kind == kind) {
            more[n++] = step->issued_ns - step->device_ns;
        }
    }
    ck_assert_uint_gt(n, 2);
    qsort(more, n, sizeof *more, by_size);
    return (more[(n - 1) / 2] + more[n / 2]) / 2;
}

static size_t listed(const struct calibration_steps *steps, enum host_kind kind, bool fused,
                     uint32_t canvas_tokens) {
    size_t n = 0;
    for (size_t i = 0; i < steps->n; i++) {
        const struct calibration_step *step = &steps->list[i];
        n += step->n_sides == 1 && step->is_fused == fused && step->sides[0].kind == kind &&
             step->sides[0].n_requests == 1 && step->sides[0].canvas_tokens == canvas_tokens &&
             !step->is_held_out && !step->may_be_held;
    }
    return n;
}

TEST(fused_full_passes_are_fitted_at_every_whole_tile) {
    static struct calibration_steps steps;
    const struct calibration_bounds bounds = {
        .max_tokens = 8192, .max_logit_rows = 8192, .max_kv_rows = 65536, .max_store_rows = 65536};
    calibration_steps_list(&steps, model_named("llada-8b"), &bounds);
    for (uint32_t tokens = 640; tokens <= 2048; tokens += 128) {
        const bool stands_elsewhere = tokens == 768 || tokens == 1024;
        ck_assert(stands_elsewhere || listed(&steps, HOST_REFRESH, true, tokens) == 1);
        ck_assert(stands_elsewhere || listed(&steps, HOST_REFRESH, false, tokens) == 0);
        ck_assert(stands_elsewhere || listed(&steps, HOST_SELECT, true, tokens) == 0);
    }
}

TEST(what_issued_steps_take_more_is_measured_where_a_device_rests_and_captures) {
    const double gap_ns = 600;
    for (int both = 0; both < 4; both++) {
        const bool records = both % 2 == 1, rests = both / 2 == 1;
        struct rig *rig = rig_run_quick(records, rests, gap_ns, 0, 0);
        const struct calibration_report *report = &rig->report;
        struct profile *profile = open_profile(rig);
        size_t n = 0;
        for (size_t i = 0; i < report->steps.n; i++) {
            const struct calibration_step *step = &report->steps.list[i];
            ck_assert((step->issued_ns > 0) == (both == 3));
            n += step->issued_ns > step->device_ns;
        }
        ck_assert(both == 3 ? n == report->steps.n : n == 0);
        for (uint32_t kind = 0; kind < HOST_KIND_COUNT; kind++) {
            /* Some tens of launches, with a gap each. */
            const double gaps = report->issued_ns[kind] / gap_ns;
            ck_assert(both == 3 ? gaps > 20 && gaps < 800 : gaps <= 0);
            if (both == 3) {
                ck_assert_double_eq_tol(report->issued_ns[kind],
                                        median_more_ns(&report->steps, kind), 1e-3);
            }
            ck_assert(profile_host(profile, kind)->given);
            ck_assert_double_eq_tol(profile_host(profile, kind)->issued_ns, report->issued_ns[kind],
                                    1);
        }
        /* Not measured; of a run that is always under load nothing is said. */
        ck_assert_double_eq_tol(profile_between_ns(profile), rests ? 47000 : 0, 1e-9);
        const char *note = profile_note(profile, "between");
        ck_assert(rests ? note != NULL && strstr(note, "assumed") != NULL : note == NULL);
        profile_close(profile);
        rig_close(rig);
    }
}

TEST(steps_that_take_no_more_while_they_are_issued_are_said_to_take_none) {
    struct rig *rig = rig_run_quick(true, true, 0, 0, 0);
    for (size_t i = 0; i < rig->report.steps.n; i++) {
        const struct calibration_step *step = &rig->report.steps.list[i];
        ck_assert_double_gt(step->issued_ns, 0);
        ck_assert_double_eq_tol(step->issued_ns, step->device_ns, 1e-3);
    }
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        ck_assert_double_ge(rig->report.issued_ns[kind], 0);
        ck_assert_double_lt(rig->report.issued_ns[kind], 1e-3);
    }
    rig_close(rig);
}

/* Events take time themselves, also around an operator that launches nothing. */
TEST(an_operator_without_rows_has_no_share_of_its_step) {
    struct rig *rig = rig_run_quick(true, false, 0, 500, 0);
    size_t n_none = 0;
    for (size_t i = 0; i < rig->report.steps.n; i++) {
        const struct calibration_step *step = &rig->report.steps.list[i];
        double sum_ns = 0;
        for (uint32_t op = 0; op < step->n_operators; op++) {
            const struct step_operator *one = &step->operators[op];
            ck_assert((one->measured_ns > 0) == (one->rows > 0));
            n_none += one->rows == 0;
            sum_ns += one->measured_ns;
        }
        ck_assert_double_eq_tol(sum_ns, step->device_ns, 1e-6 * step->device_ns);
    }
    ck_assert_uint_gt(n_none, 0);
    rig_close(rig);
}

/* The same device, whose events take nothing or half a microsecond each: of a short operator half
 * as much as it takes itself, of a long one a hundredth. */
TEST(what_events_take_is_no_operators) {
    struct rig *rigs[2];
    for (int slow = 0; slow < 2; slow++) {
        rigs[slow] = rig_run_quick(true, true, 0, slow ? 500 : 0, 0);
    }
    const struct calibration_steps *without = &rigs[0]->report.steps,
                                   *with = &rigs[1]->report.steps;
    size_t n_short = 0;
    ck_assert_uint_eq(without->n, with->n);
    for (size_t i = 0; i < without->n; i++) {
        const struct calibration_step *a = &without->list[i], *b = &with->list[i];
        for (uint32_t op = 0; op < a->n_operators; op++) {
            const double own = a->operators[op].measured_ns, its = b->operators[op].measured_ns;
            if (own > 0) {
                ck_assert_double_eq_tol(its, own, 0.03 * own);
            }
            n_short += b->operators[op].between_ns > 1.4 * own;
        }
    }
    ck_assert_uint_gt(n_short, without->n);
    rig_close(rigs[0]);
    rig_close(rigs[1]);
}

static size_t n_factors(const struct correction *correction) {
    size_t n = 0;
    for (uint32_t i = 0; i < correction->n_curves; i++) {
        n += correction->curves[i].n_points;
    }
    return n;
}

/* A slow card, whose long steps end at a lower clock than they begin at, has as many factors as a
 * quick one, and they are those at the highest clock. */
TEST(long_steps_are_fitted_by_their_beginning) {
    size_t n[2], n_long[2] = {0};
    for (int slow = 0; slow < 2; slow++) {
        struct device_table table = fake_table(true);
        fake.energy_j = 1000;
        fake.load = 1.25;
        fake.event_ns = 500;
        fake.slow = slow ? 150 : 1;
        fake.look_ns = CALIBRATION_LOOK_NS;
        fake.slowed = 1.5;
        struct rig *rig = rig_open(&table);
        rig->request.minutes = 1e-6;
        rig_run(rig);
        const struct calibration_report *report = &rig->report;
        for (size_t i = 0; i < report->steps.n; i++) {
            const struct calibration_step *step = &report->steps.list[i];
            n_long[slow] += calibration_step_is_long(step->device_ns);
            ck_assert(step->is_cut == calibration_step_is_long(step->device_ns));
        }
        ck_assert_double_eq_tol(report->correction.all, 1.25, 0.005);
        n[slow] = n_factors(&report->correction);
        rig_close(rig);
    }
    ck_assert_uint_eq(n_long[0], 0);
    ck_assert_uint_gt(n_long[1], 20);
    ck_assert_uint_gt(100 * n[1], 85 * n[0]); /* what only a late part of a step runs is missing */
}

static void count_notes(void *state, const char *sentence) {
    ck_assert_ptr_nonnull(sentence);
    ++*(size_t *)state;
}

/* Whether a card whose file states so many times what it does is told so, and the profile says it;
 * whose rows are its prices all the same, those that steps are judged by among them. */
TEST(a_card_that_is_not_what_its_file_says_is_told_so) {
    static const double stated[] = {0.5, 1.01, 3};
    double flops = 1e12; /* as the first one finds it */
    for (size_t i = 0; i < 3; i++) {
        struct rig *rig = rig_open_fake(true);
        struct gpu gpu = *rig->system->gpu;
        size_t n_told = 0;
        gpu.peak_bf16_flops = gpu.best_bf16_flops = stated[i] * flops;
        gpu.peak_bandwidth = 1e15;
        gpu.compute_capability = 90; /* else it has no data sheet to be held to */
        gpu.best_bandwidth = 1;
        rig->system->gpu = &gpu;
        rig->request.minutes = i == 0 ? 10 : 1e-6;
        rig->request.note = count_notes;
        rig->request.note_state = &n_told;
        rig_run(rig);
        flops = i == 0 ? rig->report.best_flops : flops;
        ck_assert(flops > 1e12 && flops < 2e12); /* product_ns */
        ck_assert_double_lt(rig->report.held_out.median, 0.002);
        ck_assert(has_note(&rig->report, "faster") == (i == 0));
        ck_assert(has_note(&rig->report, "slower") == (i == 2));
        ck_assert(has_note(&rig->report, "one round") == (i > 0));
        ck_assert_uint_eq(n_told, rig->report.n_notes + 1); /* and how long it takes */
        struct profile *profile = open_profile(rig);
        ck_assert((profile_note(profile, "beware") != NULL) == (n_told > 1));
        profile_close(profile);
        rig_close(rig);
    }
}

static void tell_display(struct device *device, struct device_surroundings *out) {
    (void)device;
    *out = MAKE(struct device_surroundings, .has_time_limit = true, .is_slowed = true);
}

/* Before the first measurement. */
static void hear_early(void *state, const char *sentence) {
    const struct rig *rig = state;
    if (rig->report.n_notes <= 3) {
        ck_assert_msg(!exists(rig, "p.log.csv"), "%s", sentence);
    }
}

/* What is around the device, and weights that are not in its memory, are said before anything is
 * measured, and stand in the profile. */
TEST(surroundings_are_said_first) {
    struct rig *rig = rig_open_fake(true);
    rig->table.surroundings = tell_display;
    rig->request.minutes = 1e-6;
    rig->request.note = hear_early;
    rig->request.note_state = rig;
    fake.spills = true;
    rig_run(rig);
    ck_assert(strstr(rig->report.notes[0], "a display is drawn") != NULL);
    ck_assert(strstr(rig->report.notes[1], "slows this card") != NULL);
    ck_assert(strstr(rig->report.notes[2], "in the host's") != NULL);
    struct profile *profile = open_profile(rig);
    ck_assert_ptr_nonnull(profile_note(profile, "beware"));
    profile_close(profile);
    rig_close(rig);
}

/* A device of so much memory, and a model's weights that nobody has drawn. */
static struct calibration_request planned(struct rig *rig, const char *model, int64_t memory_gib) {
    struct err err = {0};
    const struct setting width = {.key = "storage.weights", .value = "bf16", .place = "test"};
    const struct model *m = model_named(model);
    const struct system_request request = MAKE(
        struct system_request, .system = m->mask == MASK_BIDIRECTIONAL ? "dllm-serve" : "sdar",
        .model = model, .gpu = "h100", .overrides = &width, .n_overrides = 1, .roofline = true);
    ck_assert_msg(system_open(&request, &rig->system, &err) == 0, "%s", err.text);
    rig->device.table = &rig->table;
    rig->device.dtype = KERNEL_BF16;
    rig->device.facts = MAKE(struct device_facts, .name = "a card", .n_sms = 128,
                             .memory_bytes = memory_gib << 30, .l2_bytes = 72 << 20);
    ck_assert_int_eq(weight_layout_make(&rig->weights.layout, m, KERNEL_BF16, &err), 0);
    return MAKE(struct calibration_request, .device = &rig->device, .weights = &rig->weights,
                .system = rig->system, .max_tokens = 16384);
}

/* Steps keep within the cached rows that there are, pages included, however few. */
TEST(steps_keep_within_the_cached_rows) {
    static struct calibration_steps steps;
    const struct model *model = model_named("sdar-8b");
    size_t n_before = 0;
    for (int64_t rows = 1; rows <= 1 << 20; rows *= 2) {
        const struct calibration_bounds bounds = {.max_tokens = 16384,
                                                  .max_logit_rows = 16384,
                                                  .max_kv_rows = 1 << 18,
                                                  .max_store_rows = rows,
                                                  .page_rows = 256};
        calibration_steps_list(&steps, model, &bounds);
        ck_assert_uint_ge(steps.n, n_before);
        n_before = steps.n;
        for (size_t i = 0; i < steps.n; i++) {
            const struct step_side *side = &steps.list[i].sides[0];
            ck_assert_int_le(side->n_requests * (side->canvas_tokens + bounds.page_rows), rows);
        }
    }
    ck_assert_uint_gt(n_before, 0);
}

static int64_t bytes_of_steps(const struct calibration_request *request,
                              const struct calibration_bounds *bounds) {
    static struct calibration_steps steps;
    const struct steps_request stages = {.device = request->device,
                                         .planner = request->system->planner,
                                         .chunks = request->system->chunks.bound,
                                         .bounds = *bounds};
    calibration_steps_list(&steps, request->system->model, bounds);
    const struct stage_need need = stage_need(&steps, request->system->model, &stages);
    return need.workspace_bytes + need.pool_bytes;
}

/* Every card that holds the model is calibrated, and a little more or less memory changes nothing
 * for who goes on with what was begun. */
TEST(what_is_measured_fits_any_card_that_holds_the_model) {
    static const char *const models[] = {"llada-8b", "dream-7b", "sdar-8b", "sdar-1.7b"};
    static const int64_t sizes_gib[] = {8, 12, 16, 24, 48, 80, 192};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        int64_t tokens_before = 0;
        for (size_t k = 0; k < sizeof sizes_gib / sizeof sizes_gib[0]; k++) {
            struct rig rig = {.table = fake_table(true)};
            const struct calibration_request request = planned(&rig, models[i], sizes_gib[k]);
            struct calibration_bounds bounds, again;
            char text[CALIBRATION_BOUNDS_CHARS];
            struct err err = {0};
            const int64_t reserve = 700LL << 20, more = 300LL << 20, spare = 1LL << 30;
            const int64_t free_bytes = (sizes_gib[k] << 30) - reserve - rig.weights.layout.bytes;
            if (free_bytes > 2 * spare) {
                ck_assert_msg(calibration_bounds_find(&request, free_bytes, &bounds, &err) == 0,
                              "%s on %d GiB: %s", models[i], (int)sizes_gib[k], err.text);
                ck_assert_int_ge(bounds.max_tokens, tokens_before);
                ck_assert(sizes_gib[k] < 24 || bounds.max_tokens >= 8192);
                ck_assert(sizes_gib[k] < 80 || bounds.max_tokens == 16384);
                tokens_before = bounds.max_tokens;
                again = bounds;
                again.max_tokens = again.max_store_rows = 1;
                ck_assert(calibration_bounds_read(calibration_bounds_text(&bounds, text), &again));
                ck_assert_mem_eq(&again, &bounds, sizeof again);
                ck_assert_int_eq(
                    calibration_bounds_check(&request, free_bytes - more, &bounds, &err), 0);
                ck_assert_int_ne(calibration_bounds_check(&request, more, &bounds, &err), 0);
                /* The largest step is held, and what is left to spare is spared. */
                err = (struct err){0};
                const int64_t kept = rig.device.facts.memory_bytes / 24;
                ck_assert_int_eq(
                    calibration_bounds_check(&request, free_bytes - kept, &bounds, &err), 0);
                ck_assert_int_ne(calibration_bounds_check(&request,
                                                          bytes_of_steps(&request, &bounds) - 1,
                                                          &bounds, &err),
                                 0);
            }
            if (free_bytes > 0 && free_bytes < more) {
                ck_assert_int_ne(calibration_bounds_find(&request, free_bytes, &bounds, &err), 0);
            }
            system_close(rig.system);
        }
    }
    struct calibration_bounds bounds = {0};
    ck_assert(!calibration_bounds_read("up to 16384 tokens and 4096 logit rows", &bounds));
    ck_assert_int_eq(bounds.max_tokens, 0);
}

/* Of four times that a step is taken apart the host falls behind in three. */
TEST(of_an_operators_rounds_the_shortest_counts) {
    struct rig *rigs[2];
    for (int late = 0; late < 2; late++) {
        rigs[late] = rig_run_in(10, true, true, 0, 0, late ? 20000 : 0);
    }
    const struct calibration_steps *in_time = &rigs[0]->report.steps,
                                   *late = &rigs[1]->report.steps;
    ck_assert_uint_eq(in_time->n, late->n);
    for (size_t i = 0; i < in_time->n; i++) {
        const struct calibration_step *a = &in_time->list[i], *b = &late->list[i];
        ck_assert_uint_eq(a->n_operators, b->n_operators);
        for (uint32_t op = 0; op < a->n_operators; op++) {
            ck_assert_double_eq_tol(a->operators[op].measured_ns / a->device_ns,
                                    b->operators[op].measured_ns / b->device_ns, 1e-6);
        }
    }
    rig_close(rigs[0]);
    rig_close(rigs[1]);
}

/* How many operators of the calibrated steps have so many rows. */
static size_t n_of_rows(const struct rig *rig, int64_t rows) {
    size_t n = 0;
    for (size_t i = 0; i < rig->report.steps.n; i++) {
        const struct calibration_step *step = &rig->report.steps.list[i];
        for (uint32_t op = 0; op < step->n_operators; op++) {
            n += step->operators[op].rows == rows;
        }
    }
    return n;
}

TEST(operators_in_chunks_have_the_rows_of_a_chunk) {
    static const enum chunk_kind kinds[] = {CHUNK_FFN, CHUNK_LOGITS};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct rig *rig = rig_open_fake(false);
        rig->request.minutes = 1e-6;
        rig->system->chunks.bound.of[kinds[i]] = 24; /* no step has as many */
        rig_run(rig);
        ck_assert(n_of_rows(rig, 24) > 0);
        rig_close(rig);
    }
}

TEST(a_failing_device_ends_it_with_one_sentence) {
    static const int64_t at[] = {1, 2, 100, 10000, 100000};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        struct rig *rig = rig_open_fake(i % 2 == 0);
        struct err err = {0};
        fake.fails_at = at[i];
        ck_assert_int_eq(calibrate(&rig->request, &rig->report, &err), ERR_WORLD);
        ck_assert_msg(strstr(err.text, "the fake device failed while") != NULL, "%s", err.text);
        ck_assert(!exists(rig, "p.csv"));
        rig_close(rig); /* and finds no memory left behind */
    }
}

TEST(a_cpu_is_calibrated_in_seconds) {
    struct rig *rig = rig_open_model(&device_cpu, "dllm-serve", "llada-tiny");
    rig->request.now_ns = machine_ns;
    rig->request.is_quick = true;
    rig->request.max_tokens = 128;
    rig->request.minutes = 0.05;
    int64_t start_ns = machine_ns(NULL);
    rig_run(rig);
    double seconds = (double)(machine_ns(NULL) - start_ns) * 1e-9;
    const struct calibration_report *report = &rig->report;
    ck_assert_uint_ge(report->n_rounds, 1);
    ck_assert_uint_gt(report->held_out.n, 0);
    ck_assert(isfinite(report->held_out.median) && report->held_out.median > 0);
    ck_assert_uint_gt(report->mixed.n, 0);
    check_all_covered(rig);
    printf("%zu points, %" PRIu32 " rounds in %.1f s; held out %.1f %%, mixed %.1f %%\n",
           report->n_points, report->n_rounds, seconds, 100 * report->held_out.median,
           100 * report->mixed.median);
    rig_close(rig);
}

static struct calibration_grid grid_of(const char *name, int64_t max_tokens, bool is_coarse) {
    struct calibration_grid grid;
    const struct calibration_bounds bounds =
        MAKE(struct calibration_bounds, .max_tokens = max_tokens, .max_logit_rows = max_tokens,
             .max_kv_rows = 16 * max_tokens, .page_rows = 64, .is_coarse = is_coarse);
    struct err err = {0};
    ck_assert_msg(calibration_grid_make(&grid, model_named(name), NUMBER_BF16, &bounds, &err) == 0,
                  "%s", err.text);
    return grid;
}

static bool has_row(const struct calibration_grid *grid, const char *wanted) {
    char text[POINT_TEXT_CHARS];
    for (size_t i = 0; i < grid->n; i++) {
        if (strcmp(calibration_point_text(&grid->points[i], text), wanted) == 0) {
            return true;
        }
    }
    return false;
}

TEST(a_grid_stands_on_both_sides_of_tile_edges) {
    static const int edges[] = {64, 128, 192, 256, 384, 512, 768, 1024, 2048};
    struct calibration_grid grid = grid_of("llada-8b", 16384, false);
    char wanted[POINT_TEXT_CHARS];
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        for (int beyond = 0; beyond < 2; beyond++) {
            snprintf(wanted, sizeof wanted, "gemm,%d,24576,4096", edges[i] + beyond);
            ck_assert_msg(has_row(&grid, wanted), "%s", wanted);
        }
    }
    ck_assert(has_row(&grid, "gemm,16384,4096,12288"));
    ck_assert(has_row(&grid, "attention_full,4,4096,32,32,128"));
    ck_assert(has_row(&grid, "attention_block,256,32,1024,32,32,128"));
    ck_assert(has_row(&grid, "attention_block,4,2048,1024,32,32,128"));
    ck_assert(has_row(&grid, "pass,rope,12288,16384"));
    ck_assert(has_row(&grid, "head,1024,126464,4096"));
    ck_assert(has_row(&grid, "gate_up,129,24576,4096"));
    calibration_grid_close(&grid);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

TEST(a_grid_has_each_row_once_and_its_groups_together) {
    static const char *const models[] = {"llada-8b", "dream-7b",     "llada-tiny", "dream-tiny",
                                         "sdar-8b",  "llama-3.1-8b", "llada-moe",  "llada2-mini"};
    char *texts = malloc(8192 * POINT_TEXT_CHARS);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct calibration_grid grid = grid_of(models[m], m < 2 || m > 3 ? 16384 : 256, m == 2);
        ck_assert_uint_le(grid.n, 8192);
        for (size_t i = 0; i < grid.n; i++) {
            calibration_point_text(&grid.points[i], texts + i * POINT_TEXT_CHARS);
            ck_assert(i == 0 || grid.points[i].group - grid.points[i - 1].group <= 1);
        }
        qsort(texts, grid.n, POINT_TEXT_CHARS, by_text);
        for (size_t i = 1; i < grid.n; i++) {
            ck_assert_str_ne(texts + i * POINT_TEXT_CHARS, texts + (i - 1) * POINT_TEXT_CHARS);
        }
        calibration_grid_close(&grid);
    }
    free(texts);
}

/* Blocks attend to contexts of 0.6 to 1.4 times the mean, which stays what it was. */
TEST(requests_of_a_reuse_differ_and_those_of_other_steps_do_not) {
    struct err err = {0};
    struct model model = *model_find("llada-8b", &err);
    for (uint32_t n = 2; n <= 12; n++) {
        const struct step_side reuse = {HOST_REUSE, n, 1024}, refresh = {HOST_REFRESH, n, 1024};
        uint32_t sum = 0, least = UINT32_MAX, most = 0;
        for (uint32_t r = 0; r < n; r++) {
            const struct step_side one = calibration_side_one(&reuse, &model, r);
            ck_assert_uint_eq(one.n_requests, 1);
            sum += one.canvas_tokens - model.block_tokens;
            least = one.canvas_tokens < least ? one.canvas_tokens : least;
            most = one.canvas_tokens > most ? one.canvas_tokens : most;
            ck_assert_uint_eq(calibration_side_one(&refresh, &model, r).canvas_tokens, 1024);
        }
        ck_assert_double_eq_tol((double)sum / n, 992, 1);
        ck_assert_uint_ge(least, 32 + 595);
        ck_assert_uint_le(most, 32 + 1389);
        ck_assert_double_eq_tol(most - least, 992 * 0.8 * (n - 1) / n, 2);
    }
    const struct step_side alone = {HOST_REUSE, 1, 1024}, two = {HOST_REUSE, 2, 1024};
    ck_assert_uint_eq(calibration_side_one(&alone, &model, 0).canvas_tokens, 1024);
    model.max_positions = 1100;
    ck_assert_uint_eq(calibration_side_one(&two, &model, 0).canvas_tokens, 32 + 793);
    ck_assert_uint_eq(calibration_side_one(&two, &model, 1).canvas_tokens, 1100);
    model = *model_find("sdar-8b", &err); /* in whole blocks */
    ck_assert_uint_gt(model.block_tokens, 1);
    for (uint32_t r = 0; r < 8; r++) {
        const struct step_side side = {HOST_REUSE, 8, 512};
        const uint32_t canvas = calibration_side_one(&side, &model, r).canvas_tokens;
        ck_assert_uint_eq(canvas % model.block_tokens, 0);
        ck_assert_uint_ge(canvas, 2 * model.block_tokens);
    }
}

TEST(a_grid_stays_within_its_bounds) {
    struct calibration_grid grid = grid_of("dream-tiny", 300, false);
    for (size_t i = 0; i < grid.n; i++) {
        const struct calibration_point *p = &grid.points[i];
        const int64_t *s = p->sizes;
        bool block = p->op == PROFILE_ATTENTION_BLOCK;
        int64_t tokens = p->op == PROFILE_PASS                      ? s[POINT_PASS_ROWS]
                         : p->op == PROFILE_ATTENTION_FULL || block ? s[POINT_BATCH] * s[POINT_Q]
                                                                    : s[0];
        if (p->op == PROFILE_PASS && (p->pass == PASS_SELECT || p->pass == PASS_PACK)) {
            int64_t candidates = p->pass == PASS_PACK ? 2 * tokens : tokens;
            tokens = candidates + 32 * ceil_div(candidates, SELECT_CANVAS_TOKENS - 32);
        }
        ck_assert_int_ge(tokens, 1);
        ck_assert_int_le(tokens, 300);
        ck_assert(!block || s[POINT_BATCH] * s[POINT_KV] <= 4800);
    }
    calibration_grid_close(&grid);
}

TEST(a_grid_of_exact_keys_and_values_has_pages_and_nothing_that_selects) {
    struct calibration_grid grid = grid_of("sdar-8b", 16384, false);
    ck_assert(has_row(&grid, "attention_causal,1,8192,8192,32,8,128"));
    ck_assert(has_row(&grid, "attention_causal,16,512,1536,32,8,128"));
    ck_assert(has_row(&grid, "attention_block,64,4,1024,32,8,128"));
    ck_assert(has_row(&grid, "attention_block,128,1,512,32,8,128"));
    ck_assert(has_row(&grid, "pass,rope,6144,16384"));
    for (size_t i = 0; i < grid.n; i++) {
        const struct calibration_point *p = &grid.points[i];
        ck_assert_int_ne(p->op, PROFILE_ATTENTION_FULL);
        ck_assert(p->op != PROFILE_PASS || (p->pass != PASS_KEEP && p->pass != PASS_SELECT));
        if (p->op == PROFILE_ATTENTION_CAUSAL) {
            ck_assert_int_le(p->sizes[POINT_BATCH] * p->sizes[POINT_Q], 16384);
            ck_assert_int_le(p->sizes[POINT_BATCH] * (p->sizes[POINT_KV] + 64), 16 * 16384);
        }
    }
    calibration_grid_close(&grid);
    grid = grid_of("llama-3.1-8b", 16384, false);
    ck_assert(has_row(&grid, "attention_block,256,1,512,32,8,128"));
    ck_assert(!has_row(&grid, "attention_block,256,4,512,32,8,128"));
    calibration_grid_close(&grid);
}

TEST(a_grid_of_a_mixture_has_its_router_its_experts_and_what_they_share) {
    struct calibration_grid grid = grid_of("llada-moe", 16384, false);
    ck_assert(has_row(&grid, "moe,64,2048,1024,8,64"));
    ck_assert(has_row(&grid, "moe,16384,2048,1024,8,64"));
    ck_assert(has_row(&grid, "gemm,64,64,2048"));
    ck_assert(has_row(&grid, "pass,moe_choose,64,4096"));
    ck_assert(has_row(&grid, "pass,moe_combine,2048,4096"));
    for (size_t i = 0; i < grid.n; i++) {
        const struct calibration_point *p = &grid.points[i];
        ck_assert(p->op != PROFILE_GATE_UP && (p->op != PROFILE_PASS || p->pass != PASS_SWIGLU));
        ck_assert(p->op != PROFILE_MOE || p->n_ops == 2);
    }
    calibration_grid_close(&grid);
    grid = grid_of("llada2-mini", 16384, false);
    ck_assert(has_row(&grid, "moe,32,2048,512,8,256"));
    ck_assert(has_row(&grid, "gate_up,32,10240,2048")); /* the dense layer's, and what is shared */
    ck_assert(has_row(&grid, "gate_up,32,1024,2048"));
    ck_assert(has_row(&grid, "gemm,32,2048,512"));
    ck_assert(has_row(&grid, "pass,swiglu,5120,32"));
    ck_assert(has_row(&grid, "pass,swiglu,512,32"));
    calibration_grid_close(&grid);
}

static int samples_of(struct calibration_samples *samples, const struct calibration_grid *grid,
                      const char *text, struct err *err) {
    return samples_open(samples, grid, scratch_write("samples.partial", text), "a test", err);
}

#define SAMPLES_HEAD "# a calibration in progress: a test\n"

TEST(a_point_is_the_median_of_its_rounds) {
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    struct calibration_samples samples;
    struct err err = {0};
    double median, spread;
    ck_assert_msg(samples_of(&samples, &grid,
                             SAMPLES_HEAD "0 gemm,32,768,256,10\n1 gemm,32,768,256,30\n"
                                          "2 gemm,32,768,256,11\n4 gemm,32,768,256,12\n"
                                          "3 gemm,64,768,256,7\n",
                             &err) == 0,
                  "%s", err.text);
    ck_assert_uint_eq(samples.n_found, 5);
    for (size_t i = 0; i < grid.n; i++) {
        uint32_t n = samples_summarise(&samples, i, &median, &spread);
        const struct calibration_point *p = &grid.points[i];
        bool is_product = p->op == PROFILE_GEMM && p->sizes[1] == 768 && p->sizes[2] == 256;
        if (is_product && p->sizes[0] == 32) {
            ck_assert_uint_eq(n, 4);
            ck_assert_double_eq_tol(median, 11.5, 1e-9);
            ck_assert_double_eq_tol(spread, 20 / 11.5, 1e-9);
        } else if (is_product && p->sizes[0] == 64) {
            ck_assert_uint_eq(n, 1);
            ck_assert_double_eq(median, 7);
            ck_assert_double_eq(spread, 0);
        } else {
            ck_assert_uint_eq(n, 0);
        }
    }
    samples_close(&samples);
    calibration_grid_close(&grid);
}

/* What is not ours stays as it is, whatever its first line looks like, and whatever leads to it. */
TEST(samples_harm_no_file_of_others) {
    static const char *const foreign[] = {"a thesis without a line's end", "# notes #1\n", "\n",
                                          "# a calibration in progress: another\n",
                                          "# a calibration in progress: a test, but not"};
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    struct calibration_samples samples;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        struct err err = {0};
        ck_assert_msg(samples_of(&samples, &grid, foreign[i], &err) == ERR_USAGE, "%zu", i);
        char *text = scratch_read(scratch_path("samples.partial"));
        ck_assert_str_eq(text, foreign[i]);
        free(text);
    }
    struct err err = {0};
    char *link = strdup(scratch_path("link.partial")), *fifo = strdup(scratch_path("f.partial"));
    char *target = strdup(scratch_write("empty", "")), *nowhere = strdup(scratch_path("nowhere"));
    ck_assert_int_eq(symlink(target, link), 0);
    ck_assert_int_eq(samples_open(&samples, &grid, link, "a test", &err), ERR_WORLD);
    ck_assert_int_eq(unlink(link) + symlink(nowhere, link) + mkfifo(fifo, 0600), 0);
    err = (struct err){0};
    ck_assert_int_eq(samples_open(&samples, &grid, link, "a test", &err), ERR_WORLD);
    err = (struct err){0};
    ck_assert_int_eq(samples_open(&samples, &grid, fifo, "a test", &err), ERR_WORLD);
    char *text = scratch_read(target);
    ck_assert_str_eq(text, "");
    ck_assert_int_ne(access(nowhere, F_OK), 0);
    free(text);
    free(link);
    free(fifo);
    free(target);
    free(nowhere);
    calibration_grid_close(&grid);
}

TEST(a_torn_last_line_is_cut_off) {
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    struct calibration_samples samples;
    struct err err = {0};
    const char *path = scratch_path("samples.partial");
    ck_assert_msg(
        samples_of(&samples, &grid, SAMPLES_HEAD "0 gemm,32,768,256,10\n0 gemm,64,768", &err) == 0,
        "%s", err.text);
    ck_assert_uint_eq(samples.n_found, 1);
    *samples_at(&samples, 0, 0) = 5;
    ck_assert_int_eq(samples_append(&samples, 0, 0, 1, &err), 0);
    samples_close(&samples);
    char *text = scratch_read(path), first[POINT_TEXT_CHARS], expected[512];
    int n = snprintf(expected, sizeof expected, SAMPLES_HEAD "0 gemm,32,768,256,10\n0 %s,5 #",
                     calibration_point_text(&grid.points[0], first));
    ck_assert_int_eq(strncmp(text, expected, (size_t)n), 0);
    ck_assert_uint_eq(strlen(text),
                      (size_t)n + 9); /* eight digits of a check, and the line's end */
    /* What has another's check is cut off with all behind it. */
    char *digit = strstr(text, ",5 #") + 1;
    *digit = '6';
    ck_assert_int_eq(samples_of(&samples, &grid, text, &err), 0);
    ck_assert_uint_eq(samples.n_found, 1);
    samples_close(&samples);
    *digit = '5';
    ck_assert_int_eq(samples_of(&samples, &grid, text, &err), 0);
    ck_assert_uint_eq(samples.n_found, 2);
    /* Two at once would time each other. */
    struct calibration_samples second;
    ck_assert_int_eq(samples_open(&second, &grid, path, "a test", &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "another calibration") != NULL, "%s", err.text);
    samples_close(&samples);
    free(text);
    calibration_grid_close(&grid);
}

TEST(what_is_no_file_of_this_calibration_is_refused) {
    static const struct {
        const char *text, *sentence;
        int status;
    } cases[] = {
        {"# a calibration in progress: another\n", "holds the samples of something else",
         ERR_USAGE},
        {"gemm,1,2,3,4\n", "holds the samples of something else", ERR_USAGE},
        {SAMPLES_HEAD "0 gemm,33,768,256,10\n", ":2: this is no sample", ERR_WORLD},
        {SAMPLES_HEAD "9 gemm,32,768,256,10\n", ":2: this is no sample", ERR_WORLD},
        {SAMPLES_HEAD "0 gemm,32,768,256,-1\n", ":2: this is no sample", ERR_WORLD},
        {SAMPLES_HEAD "nonsense\n", ":2: this is no sample", ERR_WORLD},
    };
    struct calibration_grid grid = grid_of("llada-tiny", 256, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct calibration_samples samples;
        struct err err = {0};
        ck_assert_int_eq(samples_of(&samples, &grid, cases[i].text, &err), cases[i].status);
        ck_assert_msg(strstr(err.text, cases[i].sentence) != NULL, "%s", err.text);
    }
    calibration_grid_close(&grid);
}

static struct host_fit fit_of(const struct host_sample *samples, size_t n) {
    struct host_fit fit;
    struct err err = {0};
    ck_assert_msg(host_fit(samples, n, &fit, &err) == 0, "%s", err.text);
    return fit;
}

/* Steps of n requests that take the device 1 ms each. */
static struct host_sample sample_of(double n, double step_ns, double request_ns) {
    return (struct host_sample){n, 1e6 * n + step_ns + request_ns * n, 1e6 * n};
}

TEST(exact_times_are_fitted_exactly) {
    struct host_sample samples[6];
    for (size_t n = 2; n <= 6; n++) {
        for (size_t i = 0; i < n; i++) {
            samples[i] = sample_of((double)(1 << i), 50e3, 3e3);
        }
        struct host_fit fit = fit_of(samples, n);
        ck_assert(fit.given);
        ck_assert_double_eq_tol(fit.step_ns, 50e3, 1);
        ck_assert_double_eq_tol(fit.request_ns, 3e3, 1);
    }
    ck_assert(!fit_of(samples, 0).given);
}

TEST(one_disturbed_step_does_not_move_the_fit) {
    struct host_sample samples[8];
    for (size_t i = 0; i < 8; i++) {
        /* Ten nanoseconds to and fro, as no measurement is without. */
        samples[i] = sample_of((double)(1 + i), 50e3 + (i % 2 ? 10 : -10), 3e3);
    }
    samples[4].wall_ns += 2e6;
    struct host_fit fit = fit_of(samples, 8);
    ck_assert_double_eq_tol(fit.step_ns, 50e3, 500);
    ck_assert_double_eq_tol(fit.request_ns, 3e3, 100);
}

TEST(no_term_is_below_zero) {
    struct host_sample samples[4];
    for (size_t i = 0; i < 4; i++) {
        samples[i] = sample_of((double)(1 + i), -5e3, 3e3);
    }
    struct host_fit fit = fit_of(samples, 4);
    ck_assert_double_eq(fit.step_ns, 0);
    ck_assert(fit.request_ns > 0 && fit.request_ns < 3e3);
    for (size_t i = 0; i < 4; i++) {
        samples[i] = sample_of((double)(1 + i), 50e3, -3e3);
    }
    fit = fit_of(samples, 4);
    ck_assert_double_eq(fit.request_ns, 0);
    ck_assert(fit.step_ns > 0 && fit.step_ns < 50e3);
    for (size_t i = 0; i < 4; i++) {
        samples[i] = sample_of((double)(1 + i), -5e3, -3e3);
    }
    fit = fit_of(samples, 4);
    ck_assert_double_eq(fit.step_ns, 0);
    ck_assert_double_eq(fit.request_ns, 0);
}

TEST(equal_steps_tell_nothing_of_requests) {
    const struct host_sample samples[] = {sample_of(2, 40e3, 0), sample_of(2, 60e3, 0)};
    struct host_fit fit = fit_of(samples, 2);
    ck_assert_double_eq_tol(fit.step_ns, 50e3, 500);
    ck_assert_double_eq(fit.request_ns, 0);
}

TEST(a_command_that_makes_no_sense_is_refused_in_one_sentence) {
    char sentence[1024];
    const char *other = scratch_write("other.csv", "not a profile\n");
    const char *profile = scratch_write("profile.csv", "# Operator times of one GPU\n");
    REFUSES(2, "calibrate: --backend is missing", "calibrate", "--out", "x.csv");
    REFUSES(2, "calibrate: --out is missing", "calibrate", "--backend", "cpu");
    REFUSES(2, "unknown device 'gpu': there are cpu and cuda", "calibrate", "--backend", "gpu",
            "--out", scratch_path("x.csv"));
    snprintf(sentence, sizeof sentence, "'%s' exists and is not a profile: it is not overwritten",
             other);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--replace", "--out", other);
    snprintf(sentence, sizeof sentence, "%s holds a profile already; --replace measures it anew",
             profile);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--out", profile);
    const char *log = scratch_write("foreign.log.csv", "dear diary\n");
    snprintf(sentence, sizeof sentence,
             "'%s' exists and is not the log of a calibration: it is not overwritten", log);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--out", scratch_path("foreign.csv"));
    struct engine_device cpu;
    struct err err = {0};
    ck_assert_int_eq(engine_device_open(BACKEND_CPU, NULL, &cpu, &err), 0);
    snprintf(sentence, sizeof sentence,
             "the device is '%s', not a h200: leave --gpu out, or describe the card in a file",
             cpu.facts.name);
    engine_device_close(&cpu);
    REFUSES(2, sentence, "calibrate", "--backend", "cpu", "--gpu", "h200", "--out",
            scratch_path("x.csv"));
    REFUSES(2, "a calibration of llada-tiny takes 64 to 134217727 tokens, not 63", "calibrate",
            "--backend", "cpu", "--model", "llada-tiny", "--max-tokens", "63", "--out",
            scratch_path("x.csv"));
}

/* Profiles p and p.csv have one log. */
TEST(a_log_is_one_calibrations_and_no_link) {
    struct calibration_log *log, *second;
    struct err err = {0};
    char *name = strdup(scratch_path("p")), *csv = strdup(scratch_path("p.csv"));
    char *link = strdup(scratch_path("q.log.csv"));
    ck_assert_int_eq(calibration_log_open(&log, name, false, 0, &err), 0);
    ck_assert_int_eq(calibration_log_open(&second, csv, false, 0, &err), ERR_WORLD);
    calibration_log_close(log);
    char *text = scratch_read(scratch_path("p.log.csv"));
    ck_assert_int_eq(symlink(scratch_path("p.log.csv"), link), 0);
    err = (struct err){0};
    ck_assert_int_eq(calibration_log_open(&log, scratch_path("q.csv"), false, 0, &err), ERR_WORLD);
    char *after = scratch_read(scratch_path("p.log.csv"));
    ck_assert_str_eq(text, after);
    /* And it goes on, or begins anew. */
    err = (struct err){0};
    for (int continues = 1; continues >= 0; continues--) {
        scratch_write("p.log.csv", CALIBRATION_LOG_HEAD "x\n1\n");
        ck_assert_int_eq(calibration_log_open(&log, csv, continues == 1, 0, &err), 0);
        calibration_log_close(log);
        free(after);
        after = scratch_read(scratch_path("p.log.csv"));
        ck_assert_str_eq(after, continues ? CALIBRATION_LOG_HEAD "x\n1\n" : text);
    }
    free(text);
    free(after);
    free(name);
    free(csv);
    free(link);
}

/* And calibrated, on a CPU, for exact keys and values. */
TEST(a_system_that_serves_the_model_is_found) {
    static const char *const models[][2] = {{"sdar-tiny", "of 64 tokens for sdar\n"},
                                            {"qwen2.5-tiny", "of 16 tokens for vllm-ar\n"}};
    for (size_t i = 0; i < 2; i++) {
        char *text =
            PRINTS("calibrate", "--backend", "cpu", "--model", models[i][0], "--quick", "--minutes",
                   "0.001", "--max-tokens", "64", "--out", scratch_path(models[i][0]));
        ck_assert_msg(strstr(text, models[i][1]) != NULL, "%s", text);
        free(text);
    }
}

/* ---- a mixture's experts, on a CPU whose workspace begins as zeros ---- */

/* Of the products over at least so many tokens: calls, and the fewest experts that one hit. */
enum { MANY_TOKENS = 64 };
static struct {
    uint32_t n_calls;
    int32_t least_hit;
} routed;

/* What is filled in one large call, workspace and pool, is zeros: they send all tokens to the same
 * experts. */
static int random_or_zeros(struct device *device, const struct call_random *call) {
    enum { A_WORKSPACE = 1 << 20 };
    struct call_random zeros = *call;
    zeros.spread = call->n < A_WORKSPACE ? call->spread : 0;
    return device_cpu.random(device, &zeros);
}

static int count_hits(struct device *device, const struct call_moe_gate_up *call) {
    int32_t hit = 0;
    for (int32_t e = 0; e < call->n_experts; e++) {
        hit += call->start[e + 1] > call->start[e];
    }
    if (call->n_tokens >= MANY_TOKENS) {
        routed.least_hit = routed.n_calls == 0 || hit < routed.least_hit ? hit : routed.least_hit;
        routed.n_calls++;
    }
    return device_cpu.moe_gate_up(device, call);
}

TEST(the_tokens_of_a_mixtures_point_go_to_many_experts) {
    struct device_table table = device_cpu;
    table.random = random_or_zeros;
    table.moe_gate_up = count_hits;
    struct rig *rig = rig_open_model(&table, "sdar", "llada2-tiny");
    struct calibration_grid grid;
    struct measure *measure = NULL;
    struct err err = {0};
    const struct calibration_bounds bounds =
        MAKE(struct calibration_bounds, .max_tokens = 256, .max_logit_rows = 256,
             .max_kv_rows = 4096, .page_rows = 64, .is_coarse = true);
    ck_assert_int_eq(calibration_grid_make(&grid, rig->system->model, NUMBER_F32, &bounds, &err),
                     0);
    routed.n_calls = 0;
    ck_assert_msg(measure_open(&rig->device, &rig->weights, &bounds, &grid, &measure, &err) == 0,
                  "%s", err.text);
    for (size_t i = 0; i < grid.n; i++) {
        char text[POINT_TEXT_CHARS];
        double us;
        if (strncmp(calibration_point_text(&grid.points[i], text), "moe,", 4) == 0) {
            ck_assert_msg(measure_point(measure, &grid.points[i], 1, &us, &err) == 0, "%s",
                          err.text);
        }
    }
    measure_close(measure);
    calibration_grid_close(&grid);
    ck_assert_uint_gt(routed.n_calls, 4);
    ck_assert_int_ge(routed.least_hit, 24); /* of 32; of zeros 4 */
    rig_close(rig);
}

/* ---- what whole steps consist of ---- */

static struct {
    int32_t mask_token;
    uint32_t n_blocks, n_half_masked; /* embeddings of one block that has masks */
} embedded;

static int count_masks(struct device *device, const struct call_embed *call) {
    enum { BLOCK = 32 };
    int32_t n = 0;
    for (int32_t t = 0; t < call->n_tokens; t++) {
        n += call->ids[call->at != NULL ? call->at[t] : t] == embedded.mask_token;
    }
    embedded.n_blocks += call->n_tokens == BLOCK && n > 0;
    embedded.n_half_masked += call->n_tokens == BLOCK && n == BLOCK / 2;
    return device_cpu.embed(device, call);
}

/* The host's clock, so fast that seconds of holding a step pass at once. */
static int64_t hasty_ns(void *state) {
    return 10 * machine_ns(state);
}

static void draws_a_kilowatt(struct device *device, struct device_vitals *out) {
    (void)device;
    *out = (struct device_vitals){.energy_j = (double)hasty_ns(NULL) * 1e-6};
}

/* Also of one that is repeated until its clock has settled, whose runs each decide. */
TEST(half_of_the_block_that_a_step_decides_on_is_masked) {
    struct device_table table = device_cpu;
    table.embed = count_masks;
    table.vitals = draws_a_kilowatt;
    struct rig *rig = rig_open_model(&table, "sdar", "llada2-tiny");
    rig->request.now_ns = hasty_ns;
    rig->request.is_quick = true;
    rig->request.max_tokens = 128;
    rig->request.minutes = 0.01;
    embedded.mask_token = (int32_t)rig->system->model->mask_token;
    embedded.n_blocks = embedded.n_half_masked = 0;
    rig_run(rig);
    ck_assert_uint_gt(embedded.n_blocks, 0);
    ck_assert_uint_eq(embedded.n_half_masked, embedded.n_blocks);
    rig_close(rig);
}

/* A live run chooses on the last size of each range, before its first request: so do the rows. */
TEST(products_are_chosen_on_the_sizes_that_a_live_run_chooses_on) {
    const struct device_table base = fake_table(false);
    struct device_table table = base;
    choosing_base = &base;
    memset(choosing, 0, sizeof choosing);
    table.linear = choosing_linear;
    table.linear_chosen = choosing_chosen;
    struct rig *rig = rig_open(&table);
    rig->request.max_tokens = CHOOSING_RANGES * CHOOSING_TOKENS;
    rig->request.is_quick = true;
    rig_run(rig);
    size_t n = 0;
    for (int i = 0; i < CHOOSING_PRODUCTS && choosing[i].n_outputs != 0; i++) {
        bool is_of_a_step = choosing[i].first[WIDE_FROM] > 0;
        for (int32_t range = WIDE_FROM; is_of_a_step && range < CHOOSING_RANGES; range++) {
            ck_assert_int_eq(choosing[i].first[range], (range + 1) * CHOOSING_TOKENS);
        }
        n += is_of_a_step;
    }
    ck_assert_uint_ge(n, 4); /* projections, the output's, gates and ups, the way down */
    rig_close(rig);
}

SUITE("calibrate")
