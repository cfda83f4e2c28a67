/* Whole steps of a calibration: which are measured in how much time and memory, and what is kept.
 */
#include "engine/calibrate/calibration_price.h"
#include "sim/base/mem.h"
#include "tests/support/calibrating.h"

static bool has_note(const struct calibration_report *report, const char *words) {
    bool found = false;
    for (size_t i = 0; i < report->n_notes; i++) {
        found = found || strstr(report->notes[i], words) != NULL;
    }
    return found;
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
        size_t n_fitted[2][HOST_KIND_COUNT] = {{0}}, n_held = 0;
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
            n_held += step->may_be_held;
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
        ck_assert_uint_ge(n_held, 10); /* or nothing tells the card's power */
        for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
            ck_assert_uint_ge(n_fitted[0][kind], 5);
            ck_assert_uint_ge(n_fitted[1][kind], 5);
        }
    }
    /* A card that shows no energy has none to be held for. */
    struct calibration_pace without = pace;
    size_t n_held = 0;
    without.rests = false;
    steps = whole;
    (void)calibration_steps_leave_out(&steps, &without, effort, 0);
    for (size_t k = 0; k < steps.n; k++) {
        n_held += steps.list[k].may_be_held;
    }
    ck_assert_uint_lt(n_held, 10);
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
    ck_assert_int_eq(calibration_grid_make(&grid, model, &(struct storage){0}, &bounds, &err), 0);
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

/* A card that shows its energy and was never slowed, or too short a time: what is priced by its
 * profile is at the highest clock, and the profile says so. */
TEST(a_card_whose_power_is_not_told_says_so) {
    struct device_table table = fake_table(true);
    fake.energy_j = 1000;
    fake.look_j = 5;
    struct rig *rig = rig_open(&table);
    rig_run(rig);
    ck_assert(rig->report.power_is_followed);
    ck_assert(
        has_note(&rig->report, "no power rows, so that runs are priced at the highest clock"));
    struct profile *profile = open_profile(rig);
    const char *power = profile_note(profile, "power");
    ck_assert_ptr_nonnull(power);
    ck_assert_ptr_eq(strstr(power, "not known: of "), power);
    profile_close(profile);
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
    ck_assert_int_eq(
        weight_layout_make(&rig->weights.layout, m, KERNEL_BF16, &(struct storage){0}, &err), 0);
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
                                         .weights = request->weights,
                                         .planner = request->system->planner,
                                         .chunks = request->system->chunks.bound,
                                         .bounds = *bounds};
    calibration_steps_list(&steps, request->system->model, bounds);
    const struct stage_need need = stage_need(&steps, request->system->model, &stages);
    return need.workspace_bytes + need.pool_bytes;
}

/* Prices the steps of one graph as a run does, whose profile knows the card's power. */
static void check_flops(const struct calibration_steps *steps, const struct system *system,
                        const struct storage *storage, const struct profile *profile) {
    static const int variant = VARIANT_SELECTS | VARIANT_IS_FUSED;
    static const struct runtime runtime = {
        .varlen = true, .fused = true, .fused_head = true, .fused_gate_up = true};
    const struct graph_options options = calibration_graph(system->model, storage, variant);
    struct graph *graph = mem_unwritten(1, sizeof *graph);
    struct cost_model *cost = NULL;
    struct err err = {0};
    size_t n = 0;
    graph_build(graph, system->model, &options);
    ck_assert_msg(cost_open_with_gaps(system->gpu, profile, NULL, &runtime, graph, &cost, &err) ==
                      0,
                  "%s", err.text);
    for (size_t i = 0; i < steps->n; i++) {
        if (calibration_step_variant(&steps->list[i]) == variant) {
            struct step_shape shape;
            struct step_price price;
            calibration_step_shape(&steps->list[i], system->model, &shape);
            cost_price(cost, &shape, system->chunks.bound, &price);
            ck_assert_double_gt(price.flops_j, 0);
            ck_assert_double_eq_tol(power_flops_j(cost_power(cost), steps->list[i].flops),
                                    price.flops_j, 1e-9 * price.flops_j);
            n++;
        }
    }
    ck_assert_uint_gt(n, 10);
    cost_close(cost);
    free(graph);
}

/* The power model's joules of an operation are fitted to a step's operations and multiply those of
 * a run: both count fp8's alike, whatever their share. */
TEST(operations_are_fitted_as_a_run_counts_them) {
    static struct calibration_steps steps;
    static const struct storage storages[] = {
        {0},
        {.weights = NUMBER_FP8, .activations = NUMBER_FP8},
        {.weights = NUMBER_FP8, .activations = NUMBER_BF16, .cache = NUMBER_FP8}};
    struct rig rig = {.table = fake_table(true)};
    const struct system *system = planned(&rig, "llada-8b", 80).system;
    const struct calibration_bounds bounds = {.max_tokens = 4096,
                                              .max_logit_rows = 4096,
                                              .max_kv_rows = 1 << 18,
                                              .max_store_rows = 1 << 18,
                                              .page_rows = 256};
    const struct profile_peaks peaks = profile_peaks_of(system->gpu);
    struct profile *profile = NULL;
    struct err err = {0};
    ck_assert_msg(profile_open("kernels/profiles/h100/llada-8b.csv", &peaks, &profile, &err) == 0,
                  "%s", err.text);
    calibration_steps_list(&steps, system->model, &bounds);
    for (size_t i = 0; i < sizeof storages / sizeof storages[0]; i++) {
        const struct calibration_prices prices = {system, NULL, &storages[i]};
        ck_assert_msg(calibration_price_ahead(&steps, &prices, &err) == 0, "%s", err.text);
        check_flops(&steps, system, &storages[i], profile);
    }
    profile_close(profile);
    system_close(rig.system);
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

static int64_t n_kept;
static bool fails_to_keep;

/* Every row that a step decides on has a place of its own. */
static int check_places(struct device *device, const struct call_keep_expected *call) {
    for (int32_t row = 0; row < call->n_rows; row++) {
        ck_assert_int_eq(call->places[row], row);
    }
    n_kept += call->n_rows;
    return fails_to_keep ? DEVICE_FAILED : fake_keep_expected(device, call);
}

TEST(self_conditioned_steps_read_what_those_before_them_kept) {
    for (int fails = 0; fails < 2; fails++) {
        struct device_table table = fake_table(false);
        struct err err = {0};
        table.keep_expected = check_places;
        struct rig *rig = rig_open_model(&table, "diffusiongemma", "diffusiongemma-tiny");
        rig->request.minutes = 1e-6;
        n_kept = 0;
        fails_to_keep = fails;
        ck_assert_msg((calibrate(&rig->request, &rig->report, &err) != 0) == fails, "%s", err.text);
        ck_assert_int_gt(n_kept, 0);
        ck_assert_msg(!fails || strstr(err.text, ", in the step reuse:") != NULL, "%s", err.text);
        rig_close(rig);
    }
}

SUITE("calibrate steps")
