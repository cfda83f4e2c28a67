#include "experiments/command/sample_cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/offered.h"
#include "experiments/run/cli/cmd.h"
#include "experiments/study/released.h"
#include "sim/base/mem.h"

struct sample_units sample_units_of(const struct sample *samples, size_t n) {
    struct sample_units units = {.names = {NULL}};
    for (int q = 0; q < N_QUANTITIES; q++) {
        double most = 0;
        bool is_time = quantity_texts[q].unit == OF_SECONDS;
        for (size_t i = 0; is_time && i < n; i++) {
            most = fmax(most, sample_spread(&samples[i], (enum quantity)q).mean);
        }
        units.per_s[q] = !is_time || most == 0 || most >= 1 ? 1 : most >= 1e-3 ? 1e3 : 1e6;
        units.names[q] = units.per_s[q] == 1 ? "s" : units.per_s[q] == 1e3 ? "ms" : "us";
    }
    return units;
}

void sample_heading(struct table *table, const struct sample_units *units, enum quantity quantity) {
    const struct quantity_text *text = &quantity_texts[quantity];
    char heading[64];
    snprintf(heading, sizeof heading, "%s%s%s", text->heading, text->unit == OF_SECONDS ? "_" : "",
             text->unit == OF_SECONDS ? units->names[quantity] : "");
    table_column(table, heading);
}

/* With as many decimals as its mean, or one digit that is not 0. */
static const char *half_text(double mean, double half, char text[THREE_CHARS]) {
    int decimals = three_decimals(mean);
    if (half > 0 && half < 0.5 * pow(10, -decimals)) {
        snprintf(text, THREE_CHARS, "%.1g", half);
    } else {
        snprintf(text, THREE_CHARS, "%.*f", decimals, half);
    }
    return text;
}

void sample_cell(struct table *table, const struct sample_units *units, const struct sample *sample,
                 enum quantity quantity) {
    struct spread spread = sample_spread(sample, quantity);
    bool is_share = quantity_texts[quantity].unit == OF_SHARES;
    double scale = is_share ? 100 : units->per_s[quantity];
    bool is_of_some = quantity_texts[quantity].is_of_requests && sample->requests[0] == NULL &&
                      sample_warns(sample, WARNING_REJECTED) > 0;
    char text[160] = "-", mean[THREE_CHARS], low[THREE_CHARS], high[THREE_CHARS];
    const char *star = is_of_some ? "*" : "";
    three_digits(scale * spread.mean, mean);
    if (isfinite(spread.low) && is_share) {
        snprintf(text, sizeof text, "%s (%s to %s)", mean, three_digits(scale * spread.low, low),
                 three_digits(scale * spread.high, high));
    } else if (isfinite(spread.low)) {
        double half = scale * (spread.high - spread.mean);
        snprintf(text, sizeof text, "%s ±%s%s", mean, half_text(scale * spread.mean, half, high),
                 star);
    } else if (isfinite(spread.mean)) {
        snprintf(text, sizeof text, "%s%s", mean, star);
    }
    table_shown(table, scale * spread.mean, text);
}

bool samples_have_intervals(const struct sample *samples, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (samples[i].n > 1 && sample_any(&samples[i]) != NULL && !sample_is_one(&samples[i])) {
            return true;
        }
    }
    return false;
}

void sample_explain_ratios(const char *base, FILE *out) {
    fprintf(
        out,
        "x tok/s, x mean: how many times as good as %s in throughput and in mean latency; -: no "
        "throughputs where both keep up with the load, no latencies where one of the two may "
        "not keep up\n",
        base);
}

void sample_explain(const struct sample *samples, size_t n, size_t n_seeds, FILE *out) {
    char note[SPREAD_NOTE_CHARS];
    if (samples_have_intervals(samples, n)) {
        fprintf(out, "± and (to): %s\n", spread_note(n_seeds, note));
    }
}

static double rate_of(const struct sample *sample, const char *key) {
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < sample->n; i++) {
        double rate = cmd_number(sample->runs[i], "offered", key);
        sum += isfinite(rate) ? rate : 0;
        n += isfinite(rate);
    }
    return n > 0 ? sum / (double)n : (double)NAN;
}

double sample_offered(const struct sample *sample) {
    return rate_of(sample, "rate_req_s");
}

double sample_asked(const struct sample *sample) {
    return rate_of(sample, "asked_req_s");
}

bool samples_miss_rates(const struct sample *samples, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!rate_is_met(sample_asked(&samples[i]), sample_offered(&samples[i]))) {
            return true;
        }
    }
    return false;
}

void sample_ratio_cell(struct table *table, const struct sample *ours, const struct sample *base,
                       enum quantity quantity) {
    bool is_latency = quantity_texts[quantity].is_of_requests;
    bool shown =
        is_latency ? sample_shows_latency(ours, base) : sample_shows_throughput(ours, base);
    struct spread ratio =
        is_latency ? sample_ratios(base, ours, quantity) : sample_ratios(ours, base, quantity);
    struct spread differences = sample_differences(ours, base, quantity);
    bool is_tie = ours != base && isfinite(differences.low) && !spread_differs(&differences);
    char text[64] = "-";
    if (shown && isfinite(ratio.mean)) {
        snprintf(text, sizeof text, "%s%.2fx%s", is_tie ? "~" : "", ratio.mean,
                 ours != base && sample_is_of_others(ours, base) ? "*" : "");
    }
    table_shown(table, shown ? ratio.mean : (double)NAN, text);
}

void sample_difference_cell(struct table *table, const struct sample_units *units,
                            const struct sample *ours, const struct sample *base,
                            enum quantity quantity) {
    struct spread d = sample_differences(ours, base, quantity);
    char text[96] = "-";
    double scale = units->per_s[quantity];
    if (isfinite(d.low)) {
        snprintf(text, sizeof text, "%+.3g (%+.3g to %+.3g)%s", scale * d.mean, scale * d.low,
                 scale * d.high, spread_differs(&d) ? "" : " ~");
    } else if (isfinite(d.mean)) {
        snprintf(text, sizeof text, "%+.3g", scale * d.mean);
    }
    table_shown(table, scale * d.mean, text);
}

void sample_bound_columns(struct table *table, bool has_slo) {
    table_columns(table, "of bound_%|x bound mean");
    table_columns(table, has_slo ? "attain at most_%" : "");
}

void sample_bound_cells(struct table *table, const struct sample *sample, bool has_slo) {
    table_number(table, 100 * sample_bound_mean(sample, "throughput_share"), "%.1f");
    table_number(table, sample_bound_mean(sample, "latency_mean_ratio"), "%.2f");
    if (has_slo) {
        table_number(table, 100 * sample_bound_mean(sample, "attainment"), "%.1f");
    }
}

void sample_bound_explain(size_t n_seeds, FILE *out) {
    fprintf(
        out,
        "of bound, x bound mean: compared with what no scheduler can beat with the system's cache, "
        "decoder, memory and limits, %s\n",
        n_seeds == 1 ? "as far as draws are this seed's"
                     : "in the mean over seeds, which bounds expectations");
}

void sample_print_released(const struct sample *samples, size_t n, FILE *out) {
    const char **systems = mem_zeroed(n + 1, sizeof *systems);
    for (size_t i = 0; i < n; i++) {
        systems[i] = json_string_value(json_object_get(sample_any(&samples[i]), "system"));
    }
    released_print(systems, n, out);
    free(systems);
}
