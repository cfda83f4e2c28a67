#include "engine/calibrate/calibrate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/calibrate/calibration_fit.h"
#include "engine/calibrate/calibration_log.h"
#include "engine/calibrate/calibration_notes.h"
#include "engine/calibrate/calibration_price.h"
#include "engine/calibrate/calibration_room.h"
#include "engine/calibrate/calibration_samples.h"
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
/* Of heavy points and of the reference product where the device rests behind each. */
static const double rested_ns = 10e6;
/* Operators may take so much of the time; whole steps the rest. */
static const double operators_share = 0.8;
enum { SUBJECT_CHARS = 512 };

struct calibration {
    const struct calibration_request *request;
    struct calibration_report *report;
    struct calibration_bounds bounds;
    struct calibration_grid grid;
    struct calibration_samples samples;
    struct calibration_log *log;
    struct measure *measure;
    struct exchange *exchange; /* with the other ranks; NULL: the model is on one device */
    double target_scale;       /* of the device time for a sample */
    uint64_t n_done, n_total;
    double *references; /* [rounds, groups], as far as they were taken */
    size_t n_references;
    uint32_t *experts_hit;   /* of each point; 0: of no experts */
    struct profile *profile; /* of the operators */
};

static int64_t element_bytes(const struct calibration *c) {
    return engine_element_bytes(c->request->device);
}

static const struct model *model_of(const struct calibration *c) {
    return c->request->system->model;
}

static int64_t now_ns(const struct calibration *c) {
    return c->request->now_ns(c->request->clock_state);
}

static bool is_gpu(const struct calibration *c) {
    return c->request->device->facts.capability > 0;
}

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

/* ---- rounds ---- */

static int interrupted(const struct calibration *c, struct err *err) {
    return err_world(err,
                     "interrupted after %" PRIu64 " of %" PRIu64 " measurements; %s.partial keeps "
                     "them, and the same command continues there",
                     c->n_done, c->n_total, c->request->path);
}

static bool group_is_heavy(const struct calibration *c, size_t first) {
    return is_gpu(c) && c->grid.points[first].is_heavy;
}

static bool rests(const struct calibration *c) {
    return c->request->device->counts_energy;
}

static bool heats(const struct calibration *c, size_t first) {
    return group_is_heavy(c, first) && !rests(c);
}

/* The reference product; a line for the log. */
static int settle_device(struct calibration *c, uint32_t round, size_t first, struct err *err) {
    char group[POINT_TEXT_CHARS];
    struct device_vitals vitals = {0};
    double us = 0;
    double target_ns = !is_gpu(c) ? reference_cpu_ns : rests(c) ? rested_ns : reference_gpu_ns;
    if (measure_renew(c->measure, err) != 0 ||
        (heats(c, first) &&
         measure_reference(c->measure, heat_ns * c->target_scale, &us, err) != 0) ||
        measure_reference(c->measure, target_ns * c->target_scale, &us, err) != 0) {
        return err_status(err);
    }
    c->references[c->n_references++] = us;
    c->request->device->table->vitals(c->request->device->device, &vitals);
    calibration_point_text(&c->grid.points[first], group);
    return calibration_log_line(c->log, now_ns(c), round, group, us, &vitals, err);
}

static int measure_group(struct calibration *c, uint32_t round, size_t first, size_t last,
                         struct err *err) {
    double heavy = rests(c) ? rested_ns : heavy_ns;
    double target_ns = c->target_scale * (group_is_heavy(c, first) ? heavy : light_ns);
    int status = settle_device(c, round, first, err);
    size_t point = first;
    for (; status == 0 && point < last && !is_stopped(c); point++) {
        double *sample = samples_at(&c->samples, round, point), us = 0;
        if (!isnan(*sample)) {
            continue;
        }
        status = calibration_point_is_exchange(&c->grid.points[point])
                     ? exchange_point(c->exchange, &c->grid.points[point], target_ns, &us, err)
                     : measure_point(c->measure, &c->grid.points[point], target_ns, &us, err);
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

/* Rounds as long as time for another one is left, judged by the longest so far. */
static int measure_rounds(struct calibration *c, struct err *err) {
    double budget_ns = operators_share * 60e9 * c->request->minutes, longest_ns = 0;
    int64_t start_ns = now_ns(c);
    int status = 0;
    uint32_t round = 0;
    for (; status == 0 && round < CALIBRATION_MAX_ROUNDS; round++) {
        int64_t round_ns = now_ns(c);
        double gone_ns = (double)(round_ns - start_ns);
        if (round > 0 && gone_ns + longest_ns > budget_ns) {
            break;
        }
        status = measure_round(c, round, err);
        longest_ns = fmax(longest_ns, (double)(now_ns(c) - round_ns));
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

/* What the device has left beside the weights, and what of it the system's pool could be. */
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

static const char *today(char text[16]) {
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, 16, "%Y-%m-%d", gmtime_r(&now, &utc));
    return text;
}

/* Of how many devices a step is, where not of one. */
static void write_ranks(const struct calibration *c, FILE *file) {
    const struct model *model = model_of(c);
    if (model_ranks(model) > 1) {
        fprintf(file,
                "# ranks: %" PRIu32
                " hold the model together%s; operators of one of them, what they "
                "exchange and whole steps of all\n",
                model_ranks(model), model->expert_ranks > 1 ? " and divide its experts" : "");
    }
}

static void write_provenance(const struct calibration *c, FILE *file) {
    const struct calibration_request *request = c->request;
    const struct calibration_report *report = c->report;
    const struct device_facts *facts = &request->device->facts;
    char date[16], memory[32], l2[32];
    bool is_bf16 = request->device->dtype == KERNEL_BF16;
    fprintf(file, PROFILE_FILE_HEAD " one device as unmask's own kernels take them.\n");
    fprintf(file, "# kind: measured\n# gpu: %s\n", request->system->gpu->title);
    fprintf(file, "# source: unmask calibrate on %s, %s\n", facts->name, today(date));
    fprintf(file, "# date: %s\n# backend: %s\n", date, request->device->table->name);
    fprintf(file, "# device: %s, %" PRId32 " multiprocessors, %s, L2 %s\n", facts->name,
            facts->n_sms, num_format_bytes(memory, sizeof memory, (double)facts->memory_bytes),
            num_format_bytes(l2, sizeof l2, (double)facts->l2_bytes));
    if (request->device->build != NULL) {
        fprintf(file, "# kernels: %s\n", request->device->build);
    }
    fprintf(file, "# dtype: %s\n# model: %s\n# weights: %s\n", is_bf16 ? "bf16" : "float32",
            model_of(c)->name, request->weights_source);
    write_ranks(c, file);
    fprintf(file, "# max_tokens: %" PRId64 "\n# rounds: %" PRIu32 "\n", c->bounds.max_tokens,
            report->n_rounds);
    fprintf(file,
            "# method: median of rounds; weights and caches cold, activations in place, contexts "
            "ragged%s\n",
            !is_gpu(c) ? ""
            : rests(c) ? "; rests between, so that the clock is the highest"
                       : "; products, head and full attention under "
                         "sustained load");
    fprintf(file, "# spread: median %.2f %%, 95th percentile %.2f %% of (max - min) / median\n",
            100 * report->spread_median, 100 * report->spread_p95);
    fprintf(file,
            "# reference_product: %" PRId64 "^3: first %.6g us, median %.6g us, drift %.2f %%\n",
            report->reference_size, report->reference_first_us, report->reference_median_us,
            100 * report->reference_drift);
    calibration_log_summary(c->log, file);
    if (model_of(c)->experts > 0) {
        fputs("# experts_hit: counted: of moe rows with router logits drawn at random, of load "
              "rows in whole steps with these weights, the mean of the layers\n",
              file);
    }
    fprintf(file, "# rates: products of %.4g TFLOP/s, weights at %.4g TB/s, at best\n",
            report->best_flops * 1e-12, report->best_bandwidth * 1e-12);
    fprintf(file, "# free_bytes_after_weights: %" PRId64 "\n", report->free_bytes);
    fprintf(file, "# kv_pages: %" PRId64 " of %" PRId64 " tokens for %s\n", report->kv_pages,
            report->kv_page_tokens, request->system->name);
}

/* Between two submissions that differ, which a calibration has not, for no scheduler runs in it:
 * the mean of 16,571 of LLaDA-8B live on H100s and H200s (experiments/gpu/between.py). */
static const double assumed_between_ns = 47e3, ns_a_us = 1e3;

static void write_steps(const struct calibration_report *report, double between_ns, FILE *file) {
    const struct calibration_steps *steps = &report->steps;
    fprintf(file, "# steps: %zu of %zu in the fit\n", report->n_fitted, report->n_fittable);
    for (size_t i = 0; i < report->n_notes; i++) {
        fprintf(file, "# beware: %s\n", report->notes[i]);
    }
    fprintf(file, "# activation_peak_bytes: %" PRId64 ", as planned %" PRId64 "\n",
            steps->activation_peak_bytes, steps->activation_planned_bytes);
    calibration_write_errors(report, file);
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        const struct host_fit *fit = &report->host[kind];
        if (fit->given) {
            fprintf(file, "# covariance_%s: %.6g %.6g %.6g\n", step_kind_names[kind],
                    fit->covariance[0], fit->covariance[1], fit->covariance[2]);
        }
    }
    if (power_is_known(&report->power)) {
        calibration_write_power_errors(&report->power_errors, file);
    }
    if (between_ns > 0) {
        fprintf(file, "# between: %.0f us, assumed: that of LLaDA-8B live on H100s and H200s\n",
                between_ns / ns_a_us);
    }
    correction_write(&report->correction, file);
    power_write(&report->power, file);
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        const struct host_fit *fit = &report->host[kind];
        if (fit->given) {
            const struct profile_host host = {true, fit->step_ns, fit->request_ns,
                                              report->issued_ns[kind]};
            profile_host_write(&host, step_kind_names[kind], file);
        }
    }
    profile_between_write(between_ns, file);
}

/* A block of one token is what others measure as decoding, their own key among those counted. */
static void write_decode(const struct calibration_point *point, double us, FILE *file) {
    const int64_t *s = point->sizes;
    if (point->op == PROFILE_ATTENTION_BLOCK && s[POINT_Q] == 1) {
        fprintf(file, "%s,%" PRId64 ",1,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.6g\n",
                profile_op_name(PROFILE_ATTENTION_DECODE), s[POINT_BATCH], s[POINT_KV] + 1, s[3],
                s[4], s[5], us);
    }
}

/* The whole text, with what came of the steps where they were run. */
static void write_profile(const struct calibration *c, bool has_steps, FILE *file) {
    char text[POINT_TEXT_CHARS];
    write_provenance(c, file);
    if (has_steps) {
        write_steps(c->report, rests(c) ? assumed_between_ns : 0, file);
    }
    for (size_t i = 0; i < c->grid.n; i++) {
        double median_us, spread;
        samples_summarise(&c->samples, i, &median_us, &spread);
        fputs(calibration_point_text(&c->grid.points[i], text), file);
        if (c->experts_hit[i] > 0) {
            fprintf(file, ",%" PRIu32, c->experts_hit[i]);
        }
        fprintf(file, ",%.6g\n", median_us);
        write_decode(&c->grid.points[i], median_us, file);
    }
}

/* The same in memory, which the caller frees. */
static char *profile_text(const struct calibration *c, bool has_steps) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = mem_stream(&text, &size);
    write_profile(c, has_steps, file);
    mem_stream_close(file);
    return text;
}

/* The operators' rows as the cost model reads them. */
static int read_back(struct calibration *c, struct err *err) {
    const struct profile_peaks peaks = profile_peaks_of(c->request->system->gpu);
    char *text = profile_text(c, false);
    int status = profile_parse(c->request->path, text, strlen(text), &peaks, &c->profile, err);
    free(text);
    return status;
}

/* Whole or not at all: written beside, then renamed. */
static int write_file(const struct calibration *c, struct err *err) {
    struct output out;
    if (output_open(c->request->path, &out, err) != 0) {
        return err_status(err);
    }
    char *text = profile_text(c, true);
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
                                        .now_ns = request->now_ns,
                                        .clock_state = request->clock_state,
                                        .stop = request->stop,
                                        .done = step_done,
                                        .done_state = c};
    if (calibration_steps_measure(&report->steps, &asked, err) != 0) {
        return err_status(err);
    }
    report->power_is_followed = report->steps.idle_w > 0;
    const struct calibration_prices prices = {request->system, c->profile, element_bytes(c)};
    if (calibration_price(&report->steps, &prices, err) != 0 ||
        calibration_fit(report, &prices, err) != 0) {
        return err_status(err);
    }
    calibration_note_steps(request, report);
    return 0;
}

/* ---- all of it ---- */

/* What the samples are of but for their sizes, so that a rerun continues its own and nobody else's.
 */
static void describe(const struct calibration *c, char *subject, size_t size) {
    const struct calibration_request *request = c->request;
    const char *build = request->device->build;
    snprintf(subject, size, "%s on %" PRIu32 " of %s, %s%s%s, %s%s%s%s, %" PRId64 " tokens asked, ",
             model_of(c)->name, model_ranks(model_of(c)), request->device->facts.name,
             request->device->table->name, build != NULL ? " " : "", build != NULL ? build : "",
             request->weights_source, rests(c) ? ", clocks" : "",
             model_of(c)->expert_ranks > 1 ? ", experts divided" : "",
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
    calibration_steps_list(&c->report->steps, model_of(c), &c->bounds);
    c->n_total = CALIBRATION_MAX_ROUNDS * c->grid.n + c->report->steps.n;
    c->n_done = c->samples.n_found;
    if (calibration_log_open(&c->log, request->path, c->samples.n_found > 0, now_ns(c), err) != 0 ||
        measure_operators(c, err) != 0) {
        return err_status(err);
    }
    summarise_points(c);
    calibration_note_operators(request, &c->samples, c->report);
    if (read_back(c, err) != 0 || run_steps(c, err) != 0) {
        return err_status(err);
    }
    return write_file(c, err);
}

int calibrate(const struct calibration_request *request, struct calibration_report *report,
              struct err *err) {
    struct calibration c = {.request = request, .report = report};
    char path[1024], subject[SUBJECT_CHARS];
    *report = (struct calibration_report){0};
    snprintf(path, sizeof path, "%s.partial", request->path);
    describe(&c, subject, sizeof subject);
    if (count_pages(&c, err) != 0 || find_bounds(&c, path, subject, err) != 0 ||
        calibration_grid_make(&c.grid, model_of(&c), element_bytes(&c), &c.bounds, err) != 0) {
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
    samples_close(&c.samples);
    calibration_grid_close(&c.grid);
    free(c.references);
    free(c.experts_hit);
    return status;
}
