#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/study/figure_sheet.h"

void figure_lay_measured(const struct grid *grid, const struct grid_results *results,
                         struct sheet *sheet) {
    const struct measured *m = &grid->measured;
    for (size_t p = 0; p < m->n_panels; p++) {
        size_t n_series = 0;
        for (size_t s = 0; s < m->n_series; s++) {
            bool has_any = false;
            for (size_t x = 0; x < results->measured->n_x; x++) {
                sheet->y[p][s][x] = results->measured->y[p][s][x];
                has_any = has_any || !isnan(sheet->y[p][s][x]);
            }
            if (has_any) {
                sheet->series[p][n_series++] = (struct plot_series){.name = m->series[s].name,
                                                                    .x = results->measured->x,
                                                                    .y = sheet->y[p][s],
                                                                    .n = results->measured->n_x};
            }
        }
        sheet->panels[p] = (struct panel){.kind = PANEL_XY,
                                          .title = m->panels[p].title,
                                          .x_label = m->x_label,
                                          .y_label = m->y_label,
                                          .series = sheet->series[p],
                                          .n_series = n_series,
                                          .log_x = m->log_x,
                                          .log_y = m->log_y};
    }
    sheet->n_panels = m->n_panels;
    bool has_files = m->files[0] != '\0';
    snprintf(sheet->provenance, sizeof sheet->provenance, "%s%s%s%s%s", m->note,
             has_files ? "; raw: " : "", m->folder, has_files ? ": " : "", m->files);
}

size_t figure_compare_measured(const struct grid *grid, const struct grid_results *results,
                               const struct paper_row *row, struct paper_result *out, size_t most) {
    const struct measured *m = &grid->measured;
    size_t n = 0;
    for (size_t i = 0; i < m->n_rows && n < most; i++) {
        const struct measured_row *ours = &m->rows[i];
        if (strcmp(ours->quantity, row->quantity) == 0 && strcmp(ours->system, row->system) == 0) {
            out[n] = (struct paper_result){.row = row,
                                           .ours = measured_pick(m, results->measured, ours),
                                           .role = (enum paper_role)paper_role_of(ours->role)};
            snprintf(out[n++].reading, sizeof out->reading, "%s", ours->reading);
        }
    }
    if (n == 0 && most > 0) { /* a printed row of which nothing here speaks */
        out[n++] = (struct paper_result){.row = row, .ours = (double)NAN};
    }
    return n;
}
