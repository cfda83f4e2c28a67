#include "experiments/command/summary_tables.h"

#include "analysis/groups.h"
#include "experiments/command/sample_cells.h"
#include "experiments/run/cli/cmd.h"

/* The row that the run would have in a sweep. */
static void print_run(const json_t *summary) {
    static const enum quantity shown[] = {Q_THROUGHPUT, Q_MEAN, Q_P50, Q_P99, Q_TTFT, Q_QUEUE};
    const struct sample sample = {.runs = {summary}, .n = 1};
    const struct sample_units units = sample_units_of(&sample, 1);
    const bool has_energy = samples_know_energy(&sample, 1);
    const bool has_bound = json_is_object(json_object_get(summary, "bound"));
    const bool has_slo = json_is_number(json_object_get(summary, "goodput_req_s"));
    struct table *table = table_open("system|model|gpu|offered req/s");
    for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++) {
        sample_heading(table, &units, shown[k]);
    }
    table_columns(table, has_energy ? "J/token" : "");
    table_columns(table, has_slo ? "goodput req/s|attain_%" : "");
    if (has_bound) {
        sample_bound_columns(table, has_slo);
    }
    table_columns(table, "done|rejected|prices");
    table_add(table, "s s s", cmd_text(summary, "system"), cmd_text(summary, "model"),
              cmd_text(summary, "gpu"));
    table_three(table, sample_offered(&sample));
    for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++) {
        sample_cell(table, &units, &sample, shown[k]);
    }
    if (has_energy) {
        sample_cell(table, &units, &sample, Q_ENERGY);
    }
    if (has_slo) {
        sample_cell(table, &units, &sample, Q_GOODPUT);
        sample_cell(table, &units, &sample, Q_ATTAINMENT);
    }
    if (has_bound) {
        sample_bound_cells(table, &sample, has_slo);
    }
    table_add(table, "%.0f %.0f s", cmd_number(summary, "completed", NULL),
              cmd_number(summary, "rejected", NULL), cmd_text(summary, "profile_kind"));
    table_print(table, stdout);
    table_close(table);
}

static void print_times(const json_t *summary) {
    static const char *const rows[][2] = {{"latency", "latency_s"},
                                          {"ttft", "ttfb_s"},
                                          {"queue", "queue_s"},
                                          {"tpot", "tpot_s"},
                                          {"pause", "pause_s"}};
    static const char *const columns[] = {"mean", "p50", "p90", "p95", "p99", "std", "min", "max"};
    struct table *table = table_open("time_s|mean|p50|p90|p95|p99|std|min|max");
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const json_t *of = json_object_get(summary, rows[r][1]);
        if (!json_is_number(json_object_get(of, "mean"))) {
            continue;
        }
        table_text(table, rows[r][0]);
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
            table_three(table, cmd_number(of, columns[c], NULL));
        }
    }
    table_print(table, stdout);
    table_close(table);
}

static void print_groups(const json_t *summary, enum grouping by) {
    const json_t *groups = json_object_get(summary, grouping_words[by].list), *of;
    size_t i;
    if (json_array_size(groups) < 2) {
        return;
    }
    struct table *table = table_open(grouping_words[by].field);
    table_columns(table, "requests|completed|rejected|service_%|mean_s|p99_s|ttft_s|goodput req/s");
    json_array_foreach(groups, i, of) {
        table_add(table, "%.0f %.0f %.0f %.0f %.1f", cmd_number(of, grouping_words[by].field, NULL),
                  cmd_number(of, "requests", NULL), cmd_number(of, "completed", NULL),
                  cmd_number(of, "rejected", NULL), 100 * cmd_number(of, "service_share", NULL));
        table_three(table, cmd_number(of, "latency_s", "mean"));
        table_three(table, cmd_number(of, "latency_s", "p99"));
        table_three(table, cmd_number(of, "ttft_s", "mean"));
        table_three(table, cmd_number(of, "goodput_req_s", NULL));
    }
    table_print(table, stdout);
    table_close(table);
}

void summary_tables(const json_t *summary) {
    if (table_is_text()) {
        return;
    }
    print_run(summary);
    print_times(summary);
    for (int by = 0; by < GROUPING_COUNT; by++) {
        print_groups(summary, (enum grouping)by);
    }
}
