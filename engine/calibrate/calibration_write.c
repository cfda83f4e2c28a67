/* A calibration's profile: where it comes from, what its steps came to, and a row of each point. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/calibrate/calibration_log.h"
#include "engine/calibrate/calibration_samples.h"
#include "engine/calibrate/calibration_state.h"
#include "kernels/launches.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/system.h"
#include "sim/model/ranks.h"

/* Of how many devices a step is, where not of one. */
static void write_ranks(const struct calibration *c, FILE *file) {
    const struct model *model = calibration_model(c);
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
    fprintf(file, PROFILE_FILE_HEAD " one device as unmask's own kernels take them.\n");
    fprintf(file, "# kind: measured\n# gpu: %s\n", request->system->gpu->title);
    fprintf(file, "# source: unmask calibrate on %s, %s\n", facts->name, system_today(date));
    fprintf(file, "# date: %s\n# backend: %s\n", date, request->device->table->name);
    fprintf(file, "# device: %s, %" PRId32 " multiprocessors, %s, L2 %s\n", facts->name,
            facts->n_sms, num_format_bytes(memory, sizeof memory, (double)facts->memory_bytes),
            num_format_bytes(l2, sizeof l2, (double)facts->l2_bytes));
    if (request->device->build != NULL) {
        fprintf(file, "# kernels: %s\n", request->device->build);
    }
    fprintf(file, "# dtype: %s\n# model: %s\n# weights: %s\n",
            number_words[engine_number(request->device)], calibration_model(c)->name,
            request->weights_source);
    write_ranks(c, file);
    fprintf(file, "# max_tokens: %" PRId64 "\n# rounds: %" PRIu32 "\n", c->bounds.max_tokens,
            report->n_rounds);
    fprintf(file,
            "# method: median of rounds; weights and caches cold, activations in place, contexts "
            "ragged%s\n",
            !calibration_is_gpu(c) ? ""
            : calibration_rests(c) ? "; rests between, so that the clock is the highest"
                                   : "; products, head and full attention under "
                                     "sustained load");
    fprintf(file, "# spread: median %.2f %%, 95th percentile %.2f %% of (max - min) / median\n",
            100 * report->spread_median, 100 * report->spread_p95);
    fprintf(file,
            "# reference_product: %" PRId64 "^3: first %.6g us, median %.6g us, drift %.2f %%\n",
            report->reference_size, report->reference_first_us, report->reference_median_us,
            100 * report->reference_drift);
    calibration_log_summary(c->log, file);
    if (calibration_model(c)->experts > 0) {
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

/* As the kernels are built; the CPU's work on rows one by one. */
static void write_tiles(const struct calibration *c, FILE *file) {
    const bool is_gpu = calibration_is_gpu(c);
    const uint32_t head = calibration_model(c)->head_dim;
    struct tiles tiles = tiles_default;
    tiles.query_rows = is_gpu ? DENSE_TILE_ROWS(head) : 1;
    tiles.key_rows = is_gpu ? DENSE_TILE_KEYS(head) : 1;
    tiles_write(&tiles, file);
}

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
    } else if (report->power_is_followed) {
        fprintf(file, "# power: not known: %s\n", report->no_power.text);
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
        write_steps(c->report, calibration_rests(c) ? assumed_between_ns : 0, file);
    }
    write_tiles(c, file);
    for (size_t i = 0; i < c->grid.n; i++) {
        double median_us, spread;
        samples_summarise(&c->samples, i, &median_us, &spread);
        fputs(calibration_point_text(&c->grid.points[i], text), file);
        if (c->experts_hit[i] > 0) {
            fprintf(file, ",%" PRIu32, c->experts_hit[i]);
        }
        fprintf(file, "%s,%.6g\n", calibration_point_type(&c->grid.points[i]), median_us);
        write_decode(&c->grid.points[i], median_us, file);
    }
}

char *calibration_profile_text(const struct calibration *c, bool has_steps) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = mem_stream(&text, &size);
    write_profile(c, has_steps, file);
    mem_stream_close(file);
    return text;
}
