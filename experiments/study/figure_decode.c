/* Figures of decode processes: FOCUS's Table 5 and Figure 2, and the bound of its Appendix D. */
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/study/decode_numbers.h"
#include "experiments/study/figure_sheet.h"
#include "sim/base/rng.h"

bool figure_describe_decode(const struct grid *grid, struct sheet *sheet) {
    static const char *const whats[] = {
        [GRID_DECODE] = "rolled out: 1600 blocks of 32 a bar; block diffusion at 0.9 is calibrated "
                        "to the paper's baseline, the rest follows (experiments/decode.ini)",
        [GRID_STEPS] = "rolled out: 1600 blocks a line, threshold 0.9; calibrated to mean tokens "
                       "per step at 32 positions (slowest, fastest) or to Table 5's baseline",
        [GRID_DECODERS] = "rolled out: 1600 blocks of 64 a bar; each process is calibrated to "
                          "Fast-dLLM's row without a cache, dInfer's decoders follow from it; "
                          "with a cache the model is less sure by one constant, fitted to "
                          "GSM8K; iteration smoothing is in no process",
        [GRID_EVICTION] = "Monte Carlo: 20,000 blocks a point; deltas N(0, 1), of decodable tokens "
                          "N(SNR, 1); no model, no GPU",
    };
    if (!grid_rolls_out(grid) && grid->kind != GRID_EVICTION) {
        return false;
    }
    snprintf(sheet->provenance, sizeof sheet->provenance, "%s", whats[grid->kind]);
    return true;
}

static const struct decode_target *target_of(const char *process) {
    for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
        if (strcmp(decode_targets[i].process, process) == 0) {
            return &decode_targets[i];
        }
    }
    return NULL;
}

/* ---- Table 5 ---- */

static double printed(const struct paper *paper, const char *process, const char *system) {
    const struct decode_target *target = target_of(process);
    const struct paper_row *row = NULL;
    if (target != NULL && !target->per_step) {
        row = decode_row(paper, target->source, target->model, target->dataset, system,
                         target->quantity);
    }
    return row != NULL ? row->value : NAN;
}

int figure_lay_decode(const struct grid *grid, const struct grid_results *results,
                      const struct paper *paper, struct sheet *sheet) {
    static const char *const titles[N_DECODE_SHAPES] = {
        [SHAPE_ASSUMED] = "shape assumed: FOCUS predicted",
        [SHAPE_FITTED] = "shape fitted to SDAR's FOCUS bars: LLaDA2.0-mini's predicted",
    };
    double highest = 0;
    for (size_t s = 0; s < N_DECODE_SHAPES; s++) {
        for (size_t r = 0; r < N_DECODE_RULES; r++) {
            for (size_t p = 0; p < grid->processes.n; p++) {
                const char *process = grid->processes.word[p];
                const char *system = r == RULE_PLAIN_09   ? "LMDeploy"
                                     : r == RULE_FOCUS_08 ? "FOCUS"
                                                          : "";
                const struct rollout *sums =
                    decode_number(results, p, (enum decode_shape)s, (enum decode_setup)r);
                sheet->names[p] = grid->x_names.word[p];
                sheet->y[s][r][p] = rollout_redundancy(sums);
                sheet->paper[s][r][p] = printed(paper, process, system);
                highest = fmax(highest, sheet->y[s][r][p]);
            }
            sheet->series[s][r] = (struct plot_series){.name = decode_rule_names[r],
                                                       .y = sheet->y[s][r],
                                                       .paper = sheet->paper[s][r],
                                                       .n = grid->processes.n};
        }
        sheet->panels[s] = (struct panel){.kind = PANEL_BARS,
                                          .x_label = "",
                                          .title = titles[s],
                                          .y_label = "tokens run behind layer 1 per decoded token",
                                          .series = sheet->series[s],
                                          .n_series = N_DECODE_RULES,
                                          .categories = sheet->names,
                                          .n_categories = grid->processes.n};
    }
    for (size_t s = 0; s < N_DECODE_SHAPES; s++) {
        sheet->panels[s].y_max = 1.1 * highest;
    }
    sheet->n_panels = N_DECODE_SHAPES;
    sheet->n_columns = 1;
    return 0;
}

/* ---- Figure 2 ---- */

int figure_lay_steps(const struct grid *grid, const struct grid_results *results,
                     struct sheet *sheet) {
    for (size_t i = 0; i < GRID_MOST; i++) {
        sheet->x[i] = (double)(i + 1);
    }
    for (size_t x = 0; x < grid->n_x; x++) {
        size_t n = grid->x[x] < GRID_MOST ? (size_t)grid->x[x] : GRID_MOST;
        for (size_t p = 0; p < grid->processes.n; p++) {
            const struct rollout *sums = decode_steps(grid, results, p, x);
            double steps = (double)(sums->passes - sums->blocks);
            for (size_t i = 0; i < n; i++) {
                sheet->y[x][p][i] = 100 * (double)sums->of_count[i + 1] / steps;
            }
            sheet->series[x][p] = (struct plot_series){
                .name = grid->x_names.word[p], .x = sheet->x, .y = sheet->y[x][p], .n = n};
        }
        snprintf(sheet->titles[x], sizeof sheet->titles[x], "blocks of %g", grid->x[x]);
        sheet->panels[x] = (struct panel){.kind = PANEL_XY,
                                          .x_label = "tokens decoded in a step",
                                          .title = sheet->titles[x],
                                          .y_label = "share of the steps (%)",
                                          .series = sheet->series[x],
                                          .n_series = grid->processes.n};
    }
    sheet->n_panels = grid->n_x;
    sheet->n_columns = 2;
    return 0;
}

/* ---- ours beside the paper's ---- */

static size_t index_of(const struct grid *grid, const char *process) {
    size_t i = 0;
    while (i < grid->processes.n && strcmp(grid->processes.word[i], process) != 0) {
        i++;
    }
    return i;
}

static struct paper_result beside(const struct paper_row *row, double ours, bool calibration,
                                  const char *reading) {
    struct paper_result result = {
        .row = row, .ours = ours, .role = calibration ? PAPER_CALIBRATION : PAPER_COUNTED};
    snprintf(result.reading, sizeof result.reading, "%s", reading);
    return result;
}

/* Mean over Figure 2's ends, between which HumanEval is taken to lie. */
static double quintile_percent(const struct grid *grid, const struct grid_results *results,
                               enum decode_shape shape) {
    size_t slowest = index_of(grid, "sdar-8b/slowest"), fastest = index_of(grid, "sdar-8b/fastest");
    if (slowest == grid->processes.n || fastest == grid->processes.n) {
        return NAN;
    }
    return 50 * (rollout_top_quintile(decode_number(results, slowest, shape, RULE_PLAIN_09)) +
                 rollout_top_quintile(decode_number(results, fastest, shape, RULE_PLAIN_09)));
}

static size_t compare_table(const struct grid *grid, const struct grid_results *results,
                            const struct paper_row *row, struct paper_result *out) {
    static const char *const readings[N_DECODE_SHAPES] = {"shape assumed",
                                                          "shape fitted to SDAR's FOCUS column"};
    size_t p = grid->processes.n;
    for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
        const struct decode_target *target = &decode_targets[i];
        if (strcmp(target->source, row->source) == 0 && strcmp(target->model, row->model) == 0 &&
            strcmp(target->dataset, row->dataset) == 0) {
            p = index_of(grid, target->process);
        }
    }
    bool of_focus = strcmp(row->system, "FOCUS") == 0;
    bool of_sdar = strncmp(row->model, "SDAR", 4) == 0;
    for (int s = 0; s < N_DECODE_SHAPES; s++) {
        double ours = NAN;
        if (strcmp(row->quantity, "decodable_in_top_quintile") == 0) {
            ours = quintile_percent(grid, results, (enum decode_shape)s);
        } else if (p < grid->processes.n) {
            ours = rollout_redundancy(decode_number(results, p, (enum decode_shape)s,
                                                    of_focus ? RULE_FOCUS_08 : RULE_PLAIN_09));
        }
        bool predicted = of_focus && (s == SHAPE_ASSUMED || !of_sdar);
        out[s] = beside(row, ours, !predicted && !isnan(ours), readings[s]);
    }
    return N_DECODE_SHAPES;
}

static double per_step(const struct grid *grid, const struct grid_results *results,
                       const char *process) {
    size_t x = 0, p = index_of(grid, process);
    while (x < grid->n_x && grid->x[x] != 32) {
        x++;
    }
    bool has = x < grid->n_x && p < grid->processes.n;
    return has ? rollout_tokens_per_step(decode_steps(grid, results, p, x)) : NAN;
}

static size_t compare_steps(const struct grid *grid, const struct grid_results *results,
                            const struct paper_row *row, struct paper_result *out) {
    bool of_min = strcmp(row->quantity, "tokens_per_step_min") == 0;
    const char *end = of_min ? "sdar-8b/slowest" : "sdar-8b/fastest";
    const char *other = of_min ? "sdar-8b/sharegpt" : "sdar-8b/math";
    out[0] = beside(row, per_step(grid, results, end), true, "the process fitted to it");
    out[1] = beside(row, per_step(grid, results, other), false,
                    of_min ? "ShareGPT, fitted to Table 5's baseline"
                           : "MATH, fitted to Table 5's baseline");
    return 2;
}

size_t figure_compare_decode(const struct grid *grid, const struct grid_results *results,
                             const struct paper_row *row, struct paper_result *out, size_t most) {
    if (most < 2 || !grid_rolls_out(grid)) {
        return 0;
    }
    if (grid->kind == GRID_DECODERS) {
        return figure_compare_decoders(grid, results, row, out, most);
    }
    return grid->kind == GRID_DECODE ? compare_table(grid, results, row, out)
                                     : compare_steps(grid, results, row, out);
}

/* ---- Appendix D ---- */

/* What the appendix bounds is the share of decodable tokens below the threshold; its threshold is
 * the true deviation of the others, the released code's comes from the block itself, and a budget
 * may keep more. */
enum { MASKED = 18, DECODABLE = 4, N_BLOCKS = 20000 };

struct losses {
    double own, released, kept; /* by the appendix's threshold, the code's, and code and budget */
};

/* A GSL generator over our streams, so that a figure's seed decides. */
static void stream_set(void *state, unsigned long seed) {
    *(struct rng *)state = rng_stream(seed, "appendix D");
}

static double stream_uniform(void *state) {
    return rng_uniform(state);
}

static unsigned long stream_get(void *state) {
    return rng_next(state) >> 32;
}

static const gsl_rng_type stream_type = {.name = "unmask",
                                         .max = 0xffffffffUL,
                                         .size = sizeof(struct rng),
                                         .set = stream_set,
                                         .get = stream_get,
                                         .get_double = stream_uniform};

static struct losses simulate(gsl_rng *rng, double snr) {
    static const struct focus_rule released = {.alpha = 1.5};
    uint8_t all[MASKED], keep[MASKED];
    uint64_t n_own = 0, n_released = 0, n_kept = 0;
    memset(all, 1, sizeof all);
    for (int b = 0; b < N_BLOCKS; b++) {
        float delta[MASKED];
        double sum = 0, squares = 0;
        for (int i = 0; i < MASKED; i++) {
            /* Decodable ones apart: the left-neighbour rule would help those beside another. */
            double mean = i % 4 == 1 && i / 4 < DECODABLE ? snr : 0;
            delta[i] = (float)(mean + gsl_ran_gaussian(rng, 1));
            sum += delta[i];
            squares += (double)delta[i] * delta[i];
        }
        double mean = sum / MASKED, deviation = sqrt(squares / MASKED - mean * mean);
        focus_select(&released, MASKED, all, all, delta, DECODABLE, MASKED, keep);
        for (int i = 1; i / 4 < DECODABLE; i += 4) {
            n_own += delta[i] < 1;
            n_released += delta[i] < mean + deviation;
            n_kept += !keep[i];
        }
    }
    double n = (double)N_BLOCKS * DECODABLE;
    return (struct losses){(double)n_own / n, (double)n_released / n, (double)n_kept / n};
}

int figure_lay_eviction(const struct grid *grid, struct sheet *sheet) {
    static const char *const names[] = {"bound (Eq. 14)", "exact (Eq. 13)",
                                        "Monte Carlo of Appendix D's model",
                                        "threshold mean + deviation of the block (released code)",
                                        "the same with the budget and the closures (alpha 1.5)"};
    enum { N_LINES = sizeof names / sizeof names[0] };
    gsl_rng *rng = gsl_rng_alloc(&stream_type);
    ASSERT(rng != NULL);
    gsl_rng_set(rng, grid->seed);
    for (size_t x = 0; x < grid->n_x; x++) {
        double snr = grid->x[x];
        struct losses losses = simulate(rng, snr);
        const double values[N_LINES] = {snr > 1 ? exp(-pow(snr - 1, 2) / 2) : NAN,
                                        gsl_cdf_ugaussian_Q(snr - 1), losses.own, losses.released,
                                        losses.kept};
        for (size_t i = 0; i < N_LINES; i++) {
            sheet->y[0][i][x] = values[i] > 0 ? 100 * values[i] : NAN;
        }
    }
    gsl_rng_free(rng);
    for (size_t i = 0; i < N_LINES; i++) {
        sheet->series[0][i] = (struct plot_series){.name = names[i],
                                                   .x = grid->x,
                                                   .y = sheet->y[0][i],
                                                   .n = grid->n_x,
                                                   .style = i == 0   ? STYLE_DASHED
                                                            : i == 1 ? STYLE_LINE
                                                            : i == 2 ? STYLE_POINTS
                                                                     : STYLE_LINE_POINTS};
    }
    sheet->panels[0] = (struct panel){.kind = PANEL_XY,
                                      .x_label = "signal-to-noise ratio of decodable tokens",
                                      .title = "4 decodable of 18 masked tokens",
                                      .y_label = "decodable tokens evicted (%)",
                                      .series = sheet->series[0],
                                      .n_series = N_LINES,
                                      .log_y = true,
                                      .y_min = 0.01,
                                      .y_max = 120};
    sheet->n_panels = 1;
    return 0;
}
