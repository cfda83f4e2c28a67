/* A whole calibration on a device whose costs are known: what it recovers, writes and keeps. */
#include "tests/support/calibrating.h"

/* The rows of a profile, from its first line that is no comment. */
static const char *rows_of(const char *text) {
    while (*text == '#') {
        text = strchr(text, '\n') + 1;
    }
    return text;
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
    ck_assert_ptr_nonnull(strstr(text, "\ntile,query_rows,1\n"));
    ck_assert_double_eq(profile_tiles(profile)->key_rows, 1);
    ck_assert_double_eq(profile_tiles(profile)->product_rows, tiles_default.product_rows);
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

SUITE("calibrate")
