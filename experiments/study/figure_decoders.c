/* dInfer's Table 1 in tokens per forward pass: what its decoders commit, by decode processes
 * that know its baseline. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/study/decode_numbers.h"
#include "experiments/study/figure_sheet.h"

static const char *dataset_of(const char *process) {
    for (size_t i = 0; i < N_DINFER_TARGETS; i++) {
        if (strcmp(dinfer_targets[i].process, process) == 0) {
            return dinfer_targets[i].dataset;
        }
    }
    return NULL;
}

static double printed(const struct paper *paper, const char *process, const char *system,
                      const char *setting) {
    const char *dataset = dataset_of(process);
    const struct paper_row *row =
        dataset != NULL && system != NULL ? dinfer_row(paper, dataset, system, setting) : NULL;
    return row != NULL ? row->value : NAN;
}

int figure_lay_decoders(const struct grid *grid, const struct grid_results *results,
                        const struct paper *paper, struct sheet *sheet) {
    static const char *const systems[N_DINFER_DECODERS] = {
        [DINFER_FAST_DLLM] = "Fast-dLLM", [DINFER_THRESHOLD] = "dInfer"};
    static const char *const settings[] = {"without KV cache", "with KV cache"};
    for (size_t s = 0; s < 2; s++) {
        for (size_t d = 0; d < N_DINFER_DECODERS; d++) {
            for (size_t p = 0; p < grid->processes.n; p++) {
                sheet->names[p] = grid->x_names.word[p];
                sheet->y[s][d][p] = rollout_tokens_per_step(
                    decode_under(results, p, (enum dinfer_decoder)d, s == 1));
                sheet->paper[s][d][p] =
                    printed(paper, grid->processes.word[p], systems[d], settings[s]);
            }
            sheet->series[s][d] = (struct plot_series){.name = dinfer_decoder_names[d],
                                                       .y = sheet->y[s][d],
                                                       .paper = sheet->paper[s][d],
                                                       .n = grid->processes.n};
        }
        snprintf(sheet->titles[s], sizeof sheet->titles[s], "beside the paper's rows %s",
                 settings[s]);
        sheet->panels[s] = (struct panel){.kind = PANEL_BARS,
                                          .x_label = "",
                                          .title = sheet->titles[s],
                                          .y_label = "tokens per forward pass",
                                          .series = sheet->series[s],
                                          .n_series = N_DINFER_DECODERS,
                                          .categories = sheet->names,
                                          .n_categories = grid->processes.n};
    }
    sheet->n_panels = 2;
    sheet->n_columns = 1;
    return 0;
}

/* The mean over benchmarks is printed, too. */
static double tpf(const struct grid *grid, const struct grid_results *results, const char *dataset,
                  enum dinfer_decoder decoder, bool is_cached) {
    bool is_mean = strcmp(dataset, "Avg") == 0;
    double sum = 0, n = 0;
    for (size_t p = 0; p < grid->processes.n; p++) {
        const char *its = dataset_of(grid->processes.word[p]);
        if (its != NULL && (is_mean || strcmp(its, dataset) == 0)) {
            sum += rollout_tokens_per_step(decode_under(results, p, decoder, is_cached));
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

/* Nothing is known of time. */
size_t figure_compare_decoders(const struct grid *grid, const struct grid_results *results,
                               const struct paper_row *row, struct paper_result *out, size_t most) {
    bool of_dinfer = strcmp(row->system, "dInfer") == 0;
    if (strcmp(row->quantity, "tpf") != 0 || strcmp(row->system, "vLLM") == 0) {
        return 0;
    }
    enum dinfer_decoder first = of_dinfer ? DINFER_THRESHOLD : DINFER_FAST_DLLM;
    size_t n = 0, n_readings = of_dinfer ? N_DINFER_DECODERS - 1 : 1;
    for (; n < n_readings && n < most; n++) {
        enum dinfer_decoder decoder = (enum dinfer_decoder)(first + n);
        bool is_cached = strcmp(row->setting, "with KV cache") == 0;
        out[n] = (struct paper_result){
            .row = row,
            .ours = tpf(grid, results, row->dataset, decoder, is_cached),
            .role = !of_dinfer && !is_cached ? PAPER_CALIBRATION : PAPER_COUNTED,
        };
        snprintf(out[n].reading, sizeof out[n].reading, "%s", dinfer_decoder_names[decoder]);
    }
    return n;
}
