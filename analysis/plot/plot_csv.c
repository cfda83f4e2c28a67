/* The numbers of a figure as CSV. */
#include <math.h>
#include <stdio.h>

#include "analysis/plot/plot.h"
#include "sim/base/output.h"

static void csv_number(FILE *out, double value, char end) {
    if (isfinite(value)) {
        fprintf(out, "%.9g", value);
    }
    fputc(end, out);
}

int figure_write_csv(const struct figure *figure, const char *path, struct err *err) {
    struct output output;
    if (output_open(path, &output, err) != 0) {
        return err_status(err);
    }
    FILE *out = output.file;
    fputs("panel,series,x,y,low,high,paper\n", out);
    for (size_t p = 0; p < figure->n_panels; p++) {
        const struct panel *panel = &figure->panels[p];
        for (size_t s = 0; s < panel->n_series; s++) {
            const struct plot_series *series = &panel->series[s];
            for (size_t i = 0; i < series->n; i++) {
                const struct plot_point *point = &series->points[i];
                output_csv_text(out, panel->title);
                fputc(',', out);
                output_csv_text(out, series->name);
                fputc(',', out);
                if (panel->kind == PANEL_XY) {
                    csv_number(out, point->x, ',');
                } else {
                    output_csv_text(out, panel->categories[i]);
                    fputc(',', out);
                }
                csv_number(out, point->y, ',');
                csv_number(out, point->low, ',');
                csv_number(out, point->high, ',');
                csv_number(out, point->paper, '\n');
            }
        }
    }
    return output_close(&output, true, err);
}
