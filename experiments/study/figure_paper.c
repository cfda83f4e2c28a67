/* Which of our numbers stands beside which row of a paper. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/study/figure.h"
#include "experiments/study/figure_sheet.h"
#include "sim/base/num.h"

static size_t index_of(const struct words *words, const char *word) {
    size_t i = 0;
    while (i < words->n && strcmp(words->word[i], word) != 0) {
        i++;
    }
    return i;
}

static bool is_among(const struct words *words, const char *word) {
    return index_of(words, word) < words->n;
}

/* "batch 256 B=32", "batch max B=64", "-": the largest batch where none is named. A workload that
 * is there once for each block is labelled "DATASET B=64". */
static bool locate_batch(const struct grid *grid, const struct paper_row *row, size_t *workload,
                         size_t *x) {
    const char *block = strstr(row->setting, "B=");
    char label[2 * GRID_WORD];
    double batch = NAN;
    snprintf(label, sizeof label, "%.60s %.60s", row->dataset, block != NULL ? block : "");
    *workload = *workload < grid->workloads.n ? *workload : index_of(&grid->workload_labels, label);
    *x = grid->n_x - 1;
    if (strncmp(row->setting, "batch ", 6) == 0) {
        batch = strtod(row->setting + 6, NULL);
    }
    for (size_t i = 0; i < grid->n_x; i++) {
        *x = grid->x[i] == batch ? i : *x;
    }
    return *workload < grid->workloads.n;
}

/* Over all batches: what a curve that is flat from the first of them on stands at. */
static double mean_throughput(const struct grid *grid, const struct grid_results *results,
                              size_t system, size_t workload) {
    double sum = 0;
    for (size_t x = 0; x < grid->n_x; x++) {
        sum += grid_point(grid, results, system, workload, x)->throughput;
    }
    return sum / (double)grid->n_x;
}

/* Over all places of the axis, and all workloads where the row names none of ours. */
static double largest_speedup(const struct grid *grid, const struct grid_results *results,
                              const struct paper_row *row, size_t over) {
    size_t system = index_of(&grid->labels, row->system);
    size_t only = index_of(&grid->workload_labels, row->dataset);
    double largest = NAN;
    for (size_t w = 0; system < grid->systems.n && over < grid->systems.n && w < grid->workloads.n;
         w++) {
        for (size_t x = 0; x < grid->n_x && (only == grid->workloads.n || only == w); x++) {
            largest = fmax(largest, grid_point(grid, results, system, w, x)->throughput /
                                        grid_point(grid, results, over, w, x)->throughput);
        }
    }
    return largest;
}

/* The system in "speedup_vs_SYSTEM" or "speedup_vs_SYSTEM_max". */
static size_t system_over(const struct grid *grid, const char *quantity, bool *is_max) {
    char name[GRID_WORD];
    snprintf(name, sizeof name, "%.60s", quantity + strlen("speedup_vs_"));
    size_t length = strlen(name);
    *is_max = length > 4 && strcmp(name + length - 4, "_max") == 0;
    if (*is_max) {
        name[length - 4] = '\0';
    }
    return index_of(&grid->labels, name);
}

/* The place a row speaks of: workload and position on the axis. False when it names none of ours.
 */
static bool locate(const struct grid *grid, const struct paper_row *row, size_t *workload,
                   size_t *x) {
    *workload = index_of(&grid->workload_labels, row->dataset);
    *x = 0;
    if (grid->axis == AXIS_BATCH) {
        return locate_batch(grid, row, workload, x);
    }
    if (grid->axis != AXIS_RATE) {
        *x = index_of(&grid->x_names, row->dataset);
        *workload = 0;
        return *x < grid->x_names.n && row->dataset[0] != '\0';
    }
    if (*workload == grid->workloads.n) {
        return false;
    }
    if (strcmp(row->setting, "saturation") == 0) {
        *x = grid->n_x - 1;
    } else if (strcmp(row->setting, "-") != 0) {
        double rate = NAN;
        num_f64(row->setting, &rate);
        while (*x < grid->n_x && fabs(grid->x[*x] - rate) > 1e-9) {
            (*x)++;
        }
    }
    return *x < grid->n_x;
}

/* Speed-ups of the last system over the best baseline at the last place of the axis: the smallest
 * or the largest over the workloads. */
static double extreme_speedup(const struct grid *grid, const struct grid_results *results,
                              bool largest) {
    double extreme = largest ? 0 : INFINITY;
    size_t last = grid->systems.n - 1, x = grid->n_x - 1;
    for (size_t w = 0; w < grid->workloads.n; w++) {
        size_t best = figure_best_baseline(grid, results, w, x);
        double speedup = grid_point(grid, results, last, w, x)->throughput /
                         grid_point(grid, results, best, w, x)->throughput;
        extreme = largest ? fmax(extreme, speedup) : fmin(extreme, speedup);
    }
    return extreme;
}

/* The first rate of the axis at which the throughput is within 5 % of its largest: where the curve
 * flattens. `low` and `high` ask for the extremes over the workloads of the system, or of the
 * baselines. */
static double saturation_rate(const struct grid *grid, const struct grid_results *results,
                              bool of_baselines, bool high) {
    double extreme = high ? 0 : INFINITY;
    for (size_t s = 0; s < grid->systems.n; s++) {
        if ((s + 1 < grid->systems.n) != of_baselines) {
            continue;
        }
        for (size_t w = 0; w < grid->workloads.n; w++) {
            double most = 0;
            for (size_t x = 0; x < grid->n_x; x++) {
                most = fmax(most, grid_point(grid, results, s, w, x)->throughput);
            }
            size_t x = 0;
            while (grid_point(grid, results, s, w, x)->throughput < 0.95 * most) {
                x++;
            }
            extreme = high ? fmax(extreme, grid->x[x]) : fmin(extreme, grid->x[x]);
        }
    }
    return extreme;
}

static double reduction_percent(const struct grid *grid, const struct grid_results *results,
                                enum metric metric, size_t workload, size_t x) {
    size_t best = figure_best_baseline(grid, results, workload, x);
    double ours = figure_value(grid, results, metric, grid->systems.n - 1, workload, x);
    return 100 * (1 - ours / figure_value(grid, results, metric, best, workload, x));
}

/* Smallest mean latency among the baselines: all of them must lie over a printed bound. */
static double lowest_baseline_latency(const struct grid *grid, const struct grid_results *results,
                                      size_t workload, size_t x) {
    double lowest = INFINITY;
    for (size_t s = 0; s + 1 < grid->systems.n; s++) {
        lowest = fmin(lowest, grid_point(grid, results, s, workload, x)->avg_latency);
    }
    return lowest;
}

static double of_one_point(const struct grid *grid, const struct grid_results *results,
                           const struct paper_row *row, size_t workload, size_t x) {
    size_t system = index_of(&grid->labels, row->system);
    if (system == grid->systems.n) {
        return NAN;
    }
    const struct point *point = grid_point(grid, results, system, workload, x);
    if (strcmp(row->quantity, "throughput") == 0) {
        return point->throughput;
    }
    if (strcmp(row->quantity, "avg_latency") == 0) {
        return point->avg_latency;
    }
    if (strcmp(row->quantity, "ms_per_forward") == 0) {
        return point->ms_per_forward;
    }
    if (strcmp(row->quantity, "tpf") == 0) {
        return point->tpf;
    }
    if (strcmp(row->quantity, "latency_min") == 0) {
        return point->latency_min;
    }
    if (strcmp(row->quantity, "latency_max") == 0) {
        return point->latency_max;
    }
    if (strncmp(row->quantity, "speedup_vs_", 11) == 0) {
        size_t over = index_of(&grid->labels, row->quantity + 11);
        return over == grid->labels.n
                   ? NAN
                   : point->throughput / grid_point(grid, results, over, workload, x)->throughput;
    }
    return NAN;
}

/* At the last place of the axis, over all workloads; a speed-up is that of the means. */
static double mean_over_workloads(const struct grid *grid, const struct grid_results *results,
                                  const struct paper_row *row) {
    size_t system = index_of(&grid->labels, row->system);
    bool is_speedup = strncmp(row->quantity, "speedup_vs_", 11) == 0;
    size_t over = is_speedup ? index_of(&grid->labels, row->quantity + 11) : system;
    if (system == grid->labels.n || over == grid->labels.n ||
        (!is_speedup && strcmp(row->quantity, "throughput") != 0)) {
        return NAN;
    }
    double sum = 0, base = 0;
    for (size_t w = 0; w < grid->workloads.n; w++) {
        sum += grid_point(grid, results, system, w, grid->n_x - 1)->throughput;
        base += grid_point(grid, results, over, w, grid->n_x - 1)->throughput;
    }
    return is_speedup ? sum / base : sum / (double)grid->workloads.n;
}

static double ours_of(const struct grid *grid, const struct grid_results *results,
                      const struct paper_row *row) {
    size_t workload, x;
    const char *quantity = row->quantity;
    if (strcmp(quantity, "logit_tensor_bytes_decimal") == 0) {
        struct err err = {0};
        const struct model *model = model_find("llada-8b", &err);
        return 16.0 * 2048 * (double)model_logits_bytes_per_row(model, BF16_BYTES) * 1e-9;
    }
    if (strncmp(quantity, "speedup_vs_best_baseline_", 25) == 0) {
        return extreme_speedup(grid, results, strcmp(quantity + 25, "max") == 0);
    }
    if (strcmp(quantity, "saturation_rate") == 0) {
        return saturation_rate(grid, results, true, false);
    }
    if (strncmp(quantity, "saturation_rate_", 16) == 0) {
        return saturation_rate(grid, results, false, strcmp(quantity + 16, "high") == 0);
    }
    bool is_max = false;
    if (grid->axis == AXIS_BATCH && strncmp(quantity, "speedup_vs_", 11) == 0) {
        size_t over = system_over(grid, quantity, &is_max);
        if (is_max) {
            return largest_speedup(grid, results, row, over);
        }
    }
    if (strcmp(row->dataset, "Avg") == 0) {
        return mean_over_workloads(grid, results, row);
    }
    if (!locate(grid, row, &workload, &x)) {
        return NAN;
    }
    if (strcmp(quantity, "throughput_plateau_about") == 0) {
        size_t system = index_of(&grid->labels, row->system);
        return system < grid->systems.n ? mean_throughput(grid, results, system, workload) : NAN;
    }
    if (strcmp(quantity, "avg_latency_over") == 0) {
        return lowest_baseline_latency(grid, results, workload, x);
    }
    if (strcmp(quantity, "latency_std_reduction_vs_best_baseline") == 0) {
        return reduction_percent(grid, results, METRIC_STD, workload, x);
    }
    if (strcmp(quantity, "latency_span_reduction_vs_best_baseline") == 0) {
        return reduction_percent(grid, results, METRIC_SPAN, workload, x);
    }
    return of_one_point(grid, results, row, workload, x);
}

/* "source|gpu|dataset|system|setting|quantity", as the constants of calibrated.ini name it. */
static bool is_calibration(const struct config *calibrated, const struct paper_row *row) {
    char text[256];
    snprintf(text, sizeof text, "%s|%s|%s|%s|%s|%s", row->source, row->gpu, row->dataset,
             row->system, row->setting, row->quantity);
    for (size_t i = 0; i < calibrated->n_entries; i++) {
        const struct config_entry *entry = &calibrated->entries[i];
        if (strcmp(entry->key, "paper_row") == 0 && strcmp(entry->value, text) == 0) {
            return true;
        }
    }
    return false;
}

/* "DATASET QUANTITY", as the figure names what its decode processes were calibrated to. */
static bool is_of_processes(const struct grid *grid, const struct paper_row *row) {
    char text[2 * GRID_WORD];
    snprintf(text, sizeof text, "%.60s %.60s", row->dataset, row->quantity);
    return is_among(&grid->calibration, text);
}

size_t figure_compare(const struct grid *grid, const struct grid_results *results,
                      const struct paper *paper, const struct config *calibrated,
                      struct paper_result *out, size_t most) {
    size_t n = 0;
    for (size_t i = 0; i < paper->n_rows && n < most; i++) {
        const struct paper_row *row = &paper->rows[i];
        bool ours = is_among(&grid->sources, row->source) &&
                    strcmp(row->gpu, grid->paper_gpu) == 0 &&
                    (grid->paper_model[0] == '\0' || strcmp(row->model, grid->paper_model) == 0);
        if (ours && grid_asks_lmax(grid)) {
            n += figure_compare_lmax(grid, results, row, out + n, most - n);
        } else if (ours && (grid_rolls_out(grid) || grid->kind == GRID_EVICTION)) {
            n += figure_compare_decode(grid, results, row, out + n, most - n);
        } else if (ours && grid->kind == GRID_MEASURED) {
            n += figure_compare_measured(grid, results, row, out + n, most - n);
        } else if (ours) {
            out[n++] = (struct paper_result){.row = row,
                                             .ours = ours_of(grid, results, row),
                                             .role = is_of_processes(grid, row) ? PAPER_CALIBRATION
                                                                                : PAPER_COUNTED};
        }
    }
    for (size_t i = 0; i < n; i++) {
        out[i].role = is_calibration(calibrated, out[i].row) ? PAPER_CALIBRATION : out[i].role;
    }
    paper_settle(out, n, grid->declared, grid->role);
    return n;
}
