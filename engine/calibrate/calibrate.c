#include "engine/calibrate/calibrate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/calibrate/calibration_fit.h"
#include "engine/calibrate/calibration_log.h"
#include "engine/calibrate/calibration_notes.h"
#include "engine/calibrate/calibration_price.h"
#include "engine/calibrate/calibration_room.h"
#include "engine/calibrate/calibration_samples.h"
#include "engine/calibrate/calibration_state.h"
#include "engine/calibrate/exchange.h"
#include "engine/calibrate/measure.h"
#include "engine/calibrate/quantile.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/model/ranks.h"

/* Device time for one sample of a point. Light points are short enough for many plays; heavy ones
 * must last as long as a step's. */
static const double light_ns = 2e6, heavy_ns = 20e6, quick_share = 0.25;
static const double heat_ns = 1e9, reference_gpu_ns = 50e6, reference_cpu_ns = 10e6;
/* Device idle time after each heavy point and after the reference product. */
static const double rested_ns = 10e6;
enum { SUBJECT_CHARS = 512 };

static void advance(struct calibration *c, uint64_t n) {
    c->n_done += n;
    if (c->request->progress != NULL) {
        c->request->progress(c->request->progress_state, c->n_done, c->n_total);
    }
}

static void step_done(void *state) {
    advance(state, 1);
}

static bool is_stopped(const struct calibration *c) {
    return c->request->stop != NULL && *c->request->stop;
}

/* ---- time ---- */

/* The operators' rows, as far as they were measured, as the cost model reads them. */
static int read_back(struct calibration *c, struct err *err) {
    const struct profile_peaks peaks = profile_peaks_of(c->request->system->gpu);
    char *text = calibration_profile_text(c, false);
    profile_close(c->profile);
    c->profile = NULL;
    int status = profile_parse(c->request->path, text, strlen(text), &peaks, &c->profile, err);
    free(text);
    return status;
}

static double left_ns(const struct calibration *c) {
    return CALIBRATION_MINUTE_NS * c->request->minutes -
           (double)(calibration_now_ns(c) - c->start_ns);
}

/* Device time for a sample of a point. */
static double target_ns(const struct calibration *c, bool is_heavy) {
    return c->target_scale * (!is_heavy ? light_ns : calibration_rests(c) ? rested_ns : heavy_ns);
}

static double steps_ns(const struct calibration *c) {
    return calibration_steps_ns(&c->report->steps, &c->pace,
                                &step_efforts[c->bounds.is_coarse ? EFFORT_LESS : EFFORT_FULL]);
}

/* By the rows of the operators, or by roofline where there are none. */
static int price_ahead(struct calibration *c, struct err *err) {
    const struct calibration_prices prices = {c->request->system, c->profile,
                                              calibration_storage(c)};
    return calibration_price_ahead(&c->report->steps, &prices, err);
}

/* What a whole step takes over the roofline of a product of this device: attention and passes are
 * further from theirs (LLaDA-8B, H100, 2026-11-28). */
static const double over_roofline = 1.3;
static const int64_t bench_bytes = INT64_C(3) << 29; /* more than describe.c takes */

/* How long it will take: said before it begins. A device that has no room for the bench is taken
 * for what its file says. */
static int foresee(struct calibration *c, struct err *err) {
    const struct calibration_request *request = c->request;
    const struct gpu *gpu = request->system->gpu;
    struct calibration_steps *steps = &c->report->steps;
    c->pace = (struct calibration_pace){.number = (enum number_type)calibration_storage(c)->wide,
                                        .rates = {gpu->best_bf16_flops, gpu->best_bandwidth, 0},
                                        .is_gpu = calibration_is_gpu(c),
                                        .rests = calibration_rests(c),
                                        .captures = request->device->table->capture_begin != NULL,
                                        .has_experts = calibration_model(c)->experts > 0};
    if (!calibration_is_gpu(c)) {
        return 0;
    }
    if ((c->report->free_bytes > bench_bytes &&
         describe_measure(request->device, &c->pace.rates, err) != 0) ||
        price_ahead(c, err) != 0) {
        return err_status(err);
    }
    for (size_t i = 0; i < steps->n; i++) {
        steps->list[i].operators_ns *= over_roofline * gpu_roof_flops(gpu) / c->pace.rates.flops;
    }
    const double round_ns =
        calibration_round_ns(&c->grid, &c->pace, target_ns(c, false), target_ns(c, true));
    const double rounds =
        fmin(fmax(floor((left_ns(c) - steps_ns(c)) / round_ns), 1), CALIBRATION_MAX_ROUNDS);
    const double all_ns = rounds * round_ns + steps_ns(c);
    c->report->estimated_ns =
        fmax(fmin(all_ns, CALIBRATION_MINUTE_NS * request->minutes), fmin(all_ns, round_ns));
    calibration_note_time(request, c->report->estimated_ns, all_ns, c->grid.n, rounds, steps->n);
    return 0;
}

/* ---- rounds ---- */

static int interrupted(const struct calibration *c, struct err *err) {
    return err_world(err,
                     "interrupted after %" PRIu64 " of %" PRIu64 " measurements; %s.partial keeps "
                     "them, and the same command continues there",
                     c->n_done, c->n_total, c->request->path);
}

static bool group_is_heavy(const struct calibration *c, size_t first) {
    return calibration_is_gpu(c) && c->grid.points[first].is_heavy;
}

static bool heats(const struct calibration *c, size_t first) {
    return group_is_heavy(c, first) && !calibration_rests(c);
}

/* The reference product; a line for the log. */
static int settle_device(struct calibration *c, uint32_t round, size_t first, struct err *err) {
    char group[POINT_TEXT_CHARS];
    struct device_vitals vitals = {0};
    double us = 0;
    const double wanted_ns = !calibration_is_gpu(c) ? reference_cpu_ns
                             : calibration_rests(c) ? rested_ns
                                                    : reference_gpu_ns;
    if (measure_renew(c->measure, err) != 0 ||
        (heats(c, first) &&
         measure_reference(c->measure, heat_ns * c->target_scale, &us, err) != 0) ||
        measure_reference(c->measure, wanted_ns * c->target_scale, &us, err) != 0) {
        return err_status(err);
    }
    c->references[c->n_references++] = us;
    c->request->device->table->vitals(c->request->device->device, &vitals);
    calibration_point_text(&c->grid.points[first], group);
    return calibration_log_line(c->log, calibration_now_ns(c), round, group, us, &vitals, err);
}

static int measure_group(struct calibration *c, uint32_t round, size_t first, size_t last,
                         struct err *err) {
    const double sample_ns = target_ns(c, group_is_heavy(c, first));
    int status = settle_device(c, round, first, err);
    size_t point = first;
    for (; status == 0 && point < last && !is_stopped(c); point++) {
        double *sample = samples_at(&c->samples, round, point), us = 0;
        if (!isnan(*sample)) {
            continue;
        }
        status = calibration_point_is_exchange(&c->grid.points[point])
                     ? exchange_point(c->exchange, &c->grid.points[point], sample_ns, &us, err)
                     : measure_point(c->measure, &c->grid.points[point], sample_ns, &us, err);
        if (status == 0) {
            *sample = us;
            advance(c, 1);
        }
    }
    struct err late = {0};
    int appended = samples_append(&c->samples, round, first, last, &late);
    if (status == 0 && appended != 0) {
        *err = late;
        status = appended;
    }
    return status == 0 && point < last ? interrupted(c, err) : status;
}

static bool group_is_done(const struct calibration *c, uint32_t round, size_t first, size_t last) {
    bool done = true;
    for (size_t i = first; i < last; i++) {
        done = done && !isnan(*samples_at(&c->samples, round, i));
    }
    return done;
}

static int measure_round(struct calibration *c, uint32_t round, struct err *err) {
    int status = 0;
    for (size_t first = 0, last; status == 0 && first < c->grid.n; first = last) {
        for (last = first;
             last < c->grid.n && c->grid.points[last].group == c->grid.points[first].group;) {
            last++;
        }
        if (!group_is_done(c, round, first, last)) {
            status = measure_group(c, round, first, last, err);
        }
    }
    return status;
}

/* Rounds as long as time for another one is left, judged by the longest so far, and for the whole
 * steps, judged by the rows of the first. */
static int measure_rounds(struct calibration *c, struct err *err) {
    double longest_ns = 0, reserve_ns = 0;
    int status = 0;
    uint32_t round = 0;
    for (; status == 0 && round < CALIBRATION_MAX_ROUNDS; round++) {
        int64_t round_ns = calibration_now_ns(c);
        if (round > 0 && longest_ns + reserve_ns > left_ns(c)) {
            break;
        }
        status = measure_round(c, round, err);
        longest_ns = fmax(longest_ns, (double)(calibration_now_ns(c) - round_ns));
        if (status == 0 && round == 0) {
            status = read_back(c, err) == 0 ? price_ahead(c, err) : err_status(err);
            reserve_ns = steps_ns(c);
        }
    }
    c->report->n_rounds = round;
    return status;
}

/* The rows' own: tokens are drawn anew for each point. */
static int count_experts(struct calibration *c, struct err *err) {
    int status = 0;
    for (size_t i = 0; status == 0 && i < c->grid.n; i++) {
        status = measure_experts_hit(c->measure, &c->grid.points[i], &c->experts_hit[i], err);
    }
    return status;
}

static int measure_operators(struct calibration *c, struct err *err) {
    const struct calibration_request *request = c->request;
    const int64_t exchanged = calibration_most_exchanged(&c->grid);
    if ((exchanged > 0 && exchange_open(request->device, request->weights, request->weights_source,
                                        exchanged, &c->exchange, err) != 0) ||
        measure_open(request->device, request->weights, &c->bounds, &c->grid, &c->measure, err) !=
            0) {
        return err_status(err);
    }
    c->report->reference_size = measure_reference_size(c->measure);
    int status = measure_rounds(c, err);
    status = status == 0 ? count_experts(c, err) : status;
    measure_close(c->measure);
    c->measure = NULL;
    return status;
}

/* ---- what came out ---- */

static void summarise_points(struct calibration *c) {
    double *spreads = mem_unwritten(c->grid.n, sizeof *spreads), median_us;
    for (size_t i = 0; i < c->grid.n; i++) {
        samples_summarise(&c->samples, i, &median_us, &spreads[i]);
    }
    c->report->n_points = c->grid.n;
    c->report->n_found = c->samples.n_found;
    c->report->spread_median = quantile(spreads, c->grid.n, 0.5);
    c->report->spread_p95 = quantile(spreads, c->grid.n, 0.95);
    free(spreads);
    if (c->n_references > 0) {
        double first = c->references[0];
        c->report->reference_first_us = first;
        c->report->reference_median_us = quantile(c->references, c->n_references, 0.5);
        c->report->reference_drift =
            (c->references[c->n_references - 1] - c->references[0]) / first;
    }
}

/* Device memory left after the weights, and the part of it available to the system's pool. */
static int count_pages(struct calibration *c, struct err *err) {
    const struct calibration_request *request = c->request;
    const struct budget *budget = &request->system->budget;
    struct device_facts facts;
    int status = engine_device_err(request->device,
                                   request->device->table->facts(request->device->device, &facts),
                                   "asking for its free memory", err);
    if (status == 0) {
        int64_t taken =
            budget->reserve_bytes + (budget->shares_pool ? 0 : budget->activation_bytes);
        int64_t pool_bytes = facts.free_bytes - taken;
        c->report->free_bytes = facts.free_bytes;
        c->report->kv_page_tokens = budget->unit_rows;
        c->report->kv_pages =
            budget->unit_bytes > 0 && pool_bytes > 0 ? pool_bytes / budget->unit_bytes : 0;
    }
    return status;
}

/* ---- the profile ---- */

/* Whole or not at all: written to a temporary file, then renamed. */
static int write_file(const struct calibration *c, struct err *err) {
    struct output out;
    if (output_open(c->request->path, &out, err) != 0) {
        return err_status(err);
    }
    char *text = calibration_profile_text(c, true);
    bool fine = profile_put(text, out.file) == 0 && fsync(fileno(out.file)) == 0;
    int cause = errno;
    free(text);
    const int lost = output_close(&out, fine, err);
    if (lost != 0 || !fine) {
        return lost != 0
                   ? lost
                   : err_world(err, "cannot write '%s': %s", c->request->path, strerror(cause));
    }
    unlink(c->samples.path);
    return 0;
}

/* ---- whole steps ---- */

/* As many as there is time for, by the rows of the first round. */
static const struct step_effort *choose_steps(struct calibration *c) {
    struct calibration_steps *steps = &c->report->steps;
    const struct step_effort *effort = c->bounds.is_coarse
                                           ? &step_efforts[EFFORT_LESS]
                                           : calibration_steps_effort(steps, &c->pace, left_ns(c));
    c->report->n_left_out = calibration_steps_leave_out(steps, &c->pace, effort, left_ns(c));
    if (c->report->n_left_out > 0) {
        steps_kept_close(&c->kept);
        steps_kept_open(&c->kept, &c->samples, steps);
    }
    return effort;
}

static int run_steps(struct calibration *c, struct err *err) {
    const struct calibration_request *request = c->request;
    struct calibration_report *report = c->report;
    const struct steps_request asked = {.device = request->device,
                                        .weights = request->weights,
                                        .ranks = c->exchange != NULL ? exchange_ranks(c->exchange)
                                                                     : NULL,
                                        .planner = request->system->planner,
                                        .chunks = request->system->chunks.bound,
                                        .bounds = c->bounds,
                                        .effort = choose_steps(c),
                                        .kept = &c->kept,
                                        .now_ns = request->now_ns,
                                        .clock_state = request->clock_state,
                                        .stop = request->stop,
                                        .done = step_done,
                                        .done_state = c};
    if (calibration_steps_measure(&report->steps, &asked, err) != 0) {
        return err_status(err);
    }
    report->power_is_followed = report->steps.idle_w > 0;
    const struct calibration_prices prices = {request->system, c->profile, calibration_storage(c)};
    if (calibration_price(&report->steps, &prices, err) != 0 ||
        calibration_fit(report, &prices, err) != 0) {
        return err_status(err);
    }
    calibration_note_steps(request, report);
    return 0;
}

/* ---- all of it ---- */

/* Identifies the samples, sizes aside, so that a rerun continues only its own.
 */
static void describe(const struct calibration *c, char *subject, size_t size) {
    const struct calibration_request *request = c->request;
    const char *build = request->device->build;
    snprintf(subject, size, "%s on %" PRIu32 " of %s, %s%s%s, %s%s%s%s, %" PRId64 " tokens asked, ",
             calibration_model(c)->name, model_ranks(calibration_model(c)),
             request->device->facts.name, request->device->table->name, build != NULL ? " " : "",
             build != NULL ? build : "", request->weights_source,
             calibration_rests(c) ? ", clocks" : "",
             calibration_model(c)->expert_ranks > 1 ? ", experts divided" : "",
             request->is_quick ? ", quick" : "", request->max_tokens);
}

/* Those of the samples that an earlier run has left of the same subject: a little more or less
 * memory that is free now changes nothing. Else what is free allows. */
static int find_bounds(struct calibration *c, const char *path, const char *subject,
                       struct err *err) {
    char line[SUBJECT_CHARS];
    const int64_t free_bytes = c->report->free_bytes;
    c->target_scale = c->request->is_quick ? quick_share : 1;
    if (calibration_bounds_find(c->request, free_bytes, &c->bounds, err) != 0) {
        return err_status(err);
    }
    if (samples_subject(path, line, sizeof line) && strncmp(line, subject, strlen(subject)) == 0 &&
        calibration_bounds_read(line + strlen(subject), &c->bounds)) {
        return calibration_bounds_check(c->request, free_bytes, &c->bounds, err);
    }
    return 0;
}

static int open_samples(struct calibration *c, const char *path, char *subject, struct err *err) {
    char text[CALIBRATION_BOUNDS_CHARS];
    size_t used = strlen(subject);
    snprintf(subject + used, SUBJECT_CHARS - used, "%s", calibration_bounds_text(&c->bounds, text));
    return samples_open(&c->samples, &c->grid, path, subject, err);
}

static int calibrate_opened(struct calibration *c, struct err *err) {
    const struct calibration_request *request = c->request;
    ASSERT(c->grid.n > 0);
    c->references =
        mem_zeroed((size_t)CALIBRATION_MAX_ROUNDS * c->grid.n_groups, sizeof *c->references);
    c->experts_hit = mem_zeroed(c->grid.n, sizeof *c->experts_hit);
    calibration_steps_list(&c->report->steps, calibration_model(c), &c->bounds);
    steps_kept_open(&c->kept, &c->samples, &c->report->steps);
    c->n_total = CALIBRATION_MAX_ROUNDS * c->grid.n + c->report->steps.n;
    c->n_done = c->samples.n_found + c->kept.n_found;
    if (foresee(c, err) != 0 ||
        calibration_log_open(&c->log, request->path, c->samples.n_found > 0, calibration_now_ns(c),
                             err) != 0 ||
        measure_operators(c, err) != 0) {
        return err_status(err);
    }
    summarise_points(c);
    if (read_back(c, err) != 0) {
        return err_status(err);
    }
    calibration_note_operators(request, c->profile, c->report);
    if (run_steps(c, err) != 0) {
        return err_status(err);
    }
    return write_file(c, err);
}

int calibrate(const struct calibration_request *request, struct calibration_report *report,
              struct err *err) {
    struct calibration c = {
        .request = request, .report = report, .start_ns = request->now_ns(request->clock_state)};
    char path[1024], subject[SUBJECT_CHARS];
    *report = (struct calibration_report){0};
    snprintf(path, sizeof path, "%s.partial", request->path);
    describe(&c, subject, sizeof subject);
    if (count_pages(&c, err) != 0 || find_bounds(&c, path, subject, err) != 0 ||
        calibration_grid_make(&c.grid, calibration_model(&c), calibration_storage(&c), &c.bounds,
                              err) != 0) {
        return err_status(err);
    }
    calibration_note_surroundings(request, report);
    calibration_note_bounds(request, &c.bounds, report);
    int status = open_samples(&c, path, subject, err);
    if (status == 0) {
        status = calibrate_opened(&c, err);
    }
    exchange_close(c.exchange);
    profile_close(c.profile);
    calibration_log_close(c.log);
    report->took_ns = (double)(calibration_now_ns(&c) - c.start_ns);
    steps_kept_close(&c.kept);
    samples_close(&c.samples);
    calibration_grid_close(&c.grid);
    free(c.references);
    free(c.experts_hit);
    return status;
}
