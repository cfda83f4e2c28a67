#include "experiments/cli/sample_table.h"

#include <math.h>
#include <stdio.h>

void sample_cell(struct table *table, const struct sample *sample, enum quantity quantity,
                 int digits) {
    struct spread spread = sample_spread(sample, quantity);
    double scale = quantity == Q_ATTAINMENT ? 100 : 1;
    bool is_of_some = quantity_texts[quantity].is_of_requests && sample->requests[0] == NULL &&
                      sample_warns(sample, WARNING_REJECTED) > 0;
    char text[64] = "-";
    if (isfinite(spread.low)) {
        snprintf(text, sizeof text, "%.*f ±%.*f%s", digits, scale * spread.mean, digits,
                 scale * (spread.high - spread.mean), is_of_some ? "*" : "");
    } else if (isfinite(spread.mean)) {
        snprintf(text, sizeof text, "%.*f%s", digits, scale * spread.mean, is_of_some ? "*" : "");
    }
    table_shown(table, scale * spread.mean, text);
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
    fprintf(out,
            "of bound, x bound mean: beside what no scheduler can beat with the system's cache, "
            "decoder, memory and limits, %s\n",
            n_seeds == 1 ? "as far as draws are this seed's"
                         : "in the mean over seeds, which bounds expectations");
}
