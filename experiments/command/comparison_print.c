/* A comparison for people: one table, what is common above and below it, then the warnings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/offered.h"
#include "experiments/command/sample_cells.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/cmd.h"
#include "experiments/run/sweep/comparison.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"

/* Whether all systems with a result say the same under `key`. */
static bool is_common(const struct comparison *c, const char *key) {
    const json_t *first = NULL;
    for (size_t i = 0; i < c->n; i++) {
        const json_t *any = sample_any(&c->samples[i]);
        if (any != NULL && first != NULL &&
            !json_equal(json_object_get(any, key), json_object_get(first, key))) {
            return false;
        }
        first = first != NULL ? first : any;
    }
    return true;
}

static void add_bytes(struct table *table, double bytes) {
    char text[32];
    table_shown(table, bytes, isfinite(bytes) ? num_format_bytes(text, sizeof text, bytes) : "-");
}

static const enum quantity times[] = {Q_MEAN, Q_P50, Q_P99, Q_TTFT, Q_QUEUE};
enum { N_TIMES = sizeof times / sizeof times[0] };

/* Whether systems met requests at rates of their own, as where turns follow one another. */
static bool rates_differ(const struct comparison *c) {
    double first = (double)NAN;
    for (size_t i = 0; i < c->n; i++) {
        double rate = sample_offered(&c->samples[i]);
        if (!rate_is_met(first, rate)) {
            return true;
        }
        first = isfinite(first) ? first : rate;
    }
    return false;
}

static struct table *open_table(const struct comparison *c, const struct sample_units *units,
                                bool models_differ, bool kinds_differ) {
    struct table *table = table_open("system");
    table_columns(table, models_differ ? "model" : "");
    table_columns(table, kinds_differ ? "prices" : "");
    table_columns(table, rates_differ(c) ? "offered req/s" : "");
    table_columns(table, "tok/s");
    table_columns(table, samples_know_energy(c->samples, c->n) ? "J/token" : "");
    table_columns(table, "x tok/s|x mean");
    for (size_t k = 0; k < N_TIMES; k++) {
        sample_heading(table, units, times[k]);
    }
    table_columns(table, c->has_slo ? "goodput req/s|attain_%" : "");
    if (c->has_bound) {
        sample_bound_columns(table, c->has_slo);
    }
    table_columns(table, "done|rejected|batch|max|GPU_%|MFU_%|KV peak|act. peak");
    return table;
}

static void add_row(struct table *table, const struct comparison *c,
                    const struct sample_units *units, size_t i, bool models_differ,
                    bool kinds_differ) {
    const struct sample *sample = &c->samples[i];
    const json_t *any = sample_any(sample);
    table_text(table, c->names[i]);
    if (models_differ) {
        table_text(table, json_string_value(json_object_get(any, "model")));
    }
    if (kinds_differ) {
        table_text(table, json_string_value(json_object_get(any, "profile_kind")));
    }
    if (rates_differ(c)) {
        table_three(table, sample_offered(sample));
    }
    sample_cell(table, units, sample, Q_THROUGHPUT);
    if (samples_know_energy(c->samples, c->n)) {
        sample_cell(table, units, sample, Q_ENERGY);
    }
    const struct sample *base = &c->samples[comparison_base(c, i)];
    sample_ratio_cell(table, sample, base, Q_THROUGHPUT);
    sample_ratio_cell(table, sample, base, Q_MEAN);
    for (size_t k = 0; k < N_TIMES; k++) {
        sample_cell(table, units, sample, times[k]);
    }
    if (c->has_slo) {
        sample_cell(table, units, sample, Q_GOODPUT);
        sample_cell(table, units, sample, Q_ATTAINMENT);
    }
    if (c->has_bound) {
        sample_bound_cells(table, sample, c->has_slo);
    }
    table_three(table, sample_mean(sample, "completed"));
    table_three(table, sample_mean(sample, "rejected"));
    table_three(table, sample_mean(sample, "mean_batch"));
    table_add(table, "%.0f", sample_most(sample, "max_batch"));
    table_three(table, 100 * sample_mean(sample, "gpu_busy"));
    table_three(table, 100 * sample_mean(sample, "mfu"));
    add_bytes(table, sample_most(sample, "kv_peak_bytes"));
    add_bytes(table, sample_most(sample, "activation_peak_bytes"));
}

static void print_table(const struct comparison *c, FILE *out) {
    bool models_differ = !is_common(c, "model"), kinds_differ = !is_common(c, "profile_kind");
    struct sample_units units = sample_units_of(c->samples, c->n);
    struct table *table = open_table(c, &units, models_differ, kinds_differ);
    for (size_t i = 0; i < c->n; i++) {
        add_row(table, c, &units, i, models_differ, kinds_differ);
    }
    table_print(table, out);
    table_close(table);
    char base[AGAINST_NAME_CHARS];
    comparison_base_name(c, base);
    fputs("\n", out);
    sample_explain_ratios(base, out);
    if (c->has_bound) {
        sample_bound_explain(c->n_seeds, out);
    }
    sample_explain(c->samples, c->n, c->n_seeds, out);
    if (samples_have_intervals(c->samples, c->n)) {
        fprintf(out, "~: not distinguishable from %s\n", base);
    }
    if (c->same != NULL) {
        fprintf(out,
                "throughput, latencies and goodput are of the requests that all served: %.0f\n",
                cmd_number(c->same[0], "completed", NULL));
    }
    for (size_t i = 0; c->same == NULL && i < c->n; i++) {
        if (sample_warns(&c->samples[i], WARNING_REJECTED) > 0) {
            fprintf(out, "*: of the requests that were not rejected\n");
            break;
        }
    }
}

/* "72.5 (66.9 to 77.5)" */
static void add_share(struct table *table, uint64_t n, uint64_t of) {
    struct share share = quality_share(n, of);
    char text[64] = "-";
    if (of > 0) {
        snprintf(text, sizeof text, "%.1f (%.1f to %.1f)", 100 * share.value, 100 * share.low,
                 100 * share.high);
    }
    table_shown(table, 100 * share.value, text);
}

static double quality_mean(const struct sample *sample, const char *key) {
    double sum = 0;
    for (size_t i = 0; i < sample->n; i++) {
        sum += cmd_number(sample->runs[i], "quality", key);
    }
    return sum / (double)sample->n;
}

/* Where prompts were asked. */
static void print_quality(const struct comparison *c, FILE *out) {
    uint64_t served = 0;
    for (size_t i = 0; i < c->n; i++) {
        served += sample_quality(&c->samples[i]).served;
    }
    if (served == 0) {
        return;
    }
    struct table *table = table_open("system|right|of|right_%|gained|lost|p|agree_%|answer tok/s|"
                                     "tokens/right");
    for (size_t i = 0; i < c->n; i++) {
        const struct sample *sample = &c->samples[i];
        struct quality quality = sample_quality(sample);
        const size_t base = comparison_base(c, i);
        struct mcnemar test = sample_mcnemar(sample, &c->samples[base]);
        table_add(table, "s i i", c->names[i], (int64_t)quality.right, (int64_t)quality.judged);
        add_share(table, quality.right, quality.judged);
        if (i != base && test.pairs > 0) {
            table_add(table, "i i %.2g", (int64_t)test.gained, (int64_t)test.lost, test.p);
        } else {
            table_add(table, "- - -");
        }
        add_share(table, quality.agreed, quality.compared);
        table_add(table, "%.4g %.4g", quality_mean(sample, "answer_tok_s"),
                  quality_mean(sample, "tokens_run_per_right"));
    }
    char name[AGAINST_NAME_CHARS];
    fprintf(out,
            "\nright answers, 95 %% intervals; gained, lost: prompts that one of the two, the "
            "system and %s, answered rightly; p: McNemar's exact test\n",
            comparison_base_name(c, name));
    table_print(table, out);
    table_close(table);
}

/* ours - base with its interval, seed by seed. */
static void print_differences(const struct comparison *c, FILE *out) {
    static const enum quantity always[] = {Q_THROUGHPUT, Q_MEAN, Q_P50, Q_P99, Q_TTFT};
    enum quantity shown[N_QUANTITIES];
    size_t n = sizeof always / sizeof always[0];
    memcpy(shown, always, sizeof always);
    if (c->has_slo) {
        shown[n++] = Q_GOODPUT;
    }
    if (samples_know_energy(c->samples, c->n)) {
        shown[n++] = Q_ENERGY;
    }
    struct sample_units units = sample_units_of(c->samples, c->n);
    struct table *table = table_open("difference");
    for (size_t k = 0; k < n; k++) {
        sample_heading(table, &units, shown[k]);
    }
    for (size_t i = 0; i < c->n; i++) {
        const size_t base = comparison_base(c, i);
        if (i != base) {
            table_text(table, c->names[i]);
        }
        for (size_t k = 0; i != base && k < n; k++) {
            sample_difference_cell(table, &units, &c->samples[i], &c->samples[base], shown[k]);
        }
    }
    char name[AGAINST_NAME_CHARS];
    fprintf(out, "\npaired differences to %s%s\n", comparison_base_name(c, name),
            samples_have_intervals(c->samples, c->n) ? ", 95 % intervals" : "");
    table_print(table, out);
    table_close(table);
}

/* ---- lines about systems: each once, with the systems it is of unless it is of all ---- */

static void write_host(const json_t *summary, FILE *out) {
    const json_t *host = json_object_get(summary, "host");
    if (json_is_object(host)) {
        fprintf(out, "%-13s%s: %s, factor %.4g (%s)\n", "host", cmd_text(host, "name"),
                cmd_text(host, "kind"), json_number_value(json_object_get(host, "factor")),
                cmd_text(host, "source"));
    }
}

/* Shares of the operators' time by kind of price, without those that are 0. */
static void write_shares(const json_t *summary, FILE *out) {
    const json_t *kinds = json_object_get(json_object_get(summary, "price_time_shares"), "by_kind");
    const char *kind;
    json_t *share;
    size_t n = 0;
    json_object_foreach((json_t *)kinds, kind, share) {
        if (json_number_value(share) >= 0.005) {
            fprintf(out, "%s%.0f %% %s", n++ == 0 ? "of the time  " : ", ",
                    100 * json_number_value(share), kind);
        }
    }
    fprintf(out, "%s", n > 0 ? "\n" : "");
}

static void write_constants(const json_t *summary, FILE *out) {
    const char *name;
    json_t *constant;
    json_object_foreach(json_object_get(summary, "constants"), name, constant) {
        fprintf(out, "%-13s%s = %.6g (fitted to %s)\n", "calibrated", name,
                json_number_value(json_object_get(constant, "value")),
                cmd_text(constant, "source"));
    }
}

static void write_about(const struct comparison *c, size_t i, FILE *out) {
    const char *notes = c->points[i * c->n_seeds].notes;
    const json_t *any = sample_any(&c->samples[i]);
    fputs(notes != NULL ? notes : "", out);
    write_host(any, out);
    write_shares(any, out);
    write_constants(any, out);
}

/* What there is to say about each system with a result, and what they warn of. */
static void print_texts(const struct comparison *c, FILE *out) {
    struct cautions cautions = {0};
    struct said said = {0};
    for (size_t i = 0; i < c->n; i++) {
        if (sample_any(&c->samples[i]) == NULL) {
            continue;
        }
        char *text = NULL;
        size_t size;
        FILE *memory = mem_stream(&text, &size);
        write_about(c, i, memory);
        mem_stream_close(memory);
        said_add(&said, c->names[i], text);
        free(text);
        cautions_add(&cautions, c->names[i], &c->warnings[i]);
    }
    said_print(&said, out);
    cautions_print(&cautions, out);
}

/* The first with a result; the first where none has one. */
static const struct sample *first_sample(const struct comparison *c) {
    for (size_t i = 0; i < c->n; i++) {
        if (sample_any(&c->samples[i]) != NULL) {
            return &c->samples[i];
        }
    }
    return &c->samples[0];
}

void comparison_print(const struct comparison *c, FILE *out) {
    const json_t *some = sample_any(first_sample(c));
    if (some != NULL) {
        long long seed = (long long)c->asked.request.options.seed;
        bool same_model = is_common(c, "model"), same_kind = is_common(c, "profile_kind");
        const struct sample *of = first_sample(c);
        char rate[RATE_CHARS];
        rate_text(sample_asked(of), sample_offered(of), rate);
        const bool same_gpu = is_common(c, "gpu");
        fprintf(out, "%s%s%s%s%s; %s%s%s: %s, seed %lld", same_model ? cmd_text(some, "model") : "",
                same_model ? " on " : "on ", same_gpu ? cmd_text(some, "gpu") : "several GPUs",
                same_kind ? ", prices " : "", same_kind ? cmd_text(some, "profile_kind") : "",
                c->asked.request.workload, rate[0] != '\0' ? " at " : "", rate,
                cmd_text(some, "trace_provenance"), seed);
        if (c->n_seeds > 1) {
            fprintf(out, " to %lld", seed + (long long)c->n_seeds - 1);
        }
        fprintf(out, "\n\n");
    }
    print_table(c, out);
    print_quality(c, out);
    if ((c->n_seeds > 1 || c->against.key[0] != '\0') && c->n > 1) {
        print_differences(c, out);
    }
    fprintf(out, "\n");
    for (size_t i = 0; i < c->n; i++) {
        for (size_t seed = 0; seed < c->n_seeds; seed++) {
            const struct campaign_point *point = &c->points[i * c->n_seeds + seed];
            if (point->summary == NULL) {
                fprintf(out, "%-13s%s: %s\n", "no result", c->names[i], point->err.text);
                break;
            }
        }
    }
    sample_print_released(c->samples, c->n, out);
    print_texts(c, out);
}
