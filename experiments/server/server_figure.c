/* Drawing a server's requests: distributions of both sides, and the table as files. */
#include <stdlib.h>
#include <string.h>

#include "analysis/output.h"
#include "analysis/plot/plot.h"
#include "experiments/server/server.h"

enum { MOST_POINTS = 400, N_PANELS = 3, MOST_SERIES = SERVER_MOST_RUNS + 1 };

struct drawing {
    double x[N_PANELS][MOST_SERIES][MOST_POINTS], y[N_PANELS][MOST_SERIES][MOST_POINTS];
    struct plot_series series[N_PANELS][MOST_SERIES];
    struct panel panels[N_PANELS];
    char provenance[1024];
};

/* The share of requests up to each of at most MOST_POINTS values, which are sorted. */
static void lay_series(const struct series *values, const char *name, enum line_style style,
                       double *x, double *y, struct plot_series *out) {
    size_t n = values->n < MOST_POINTS ? values->n : MOST_POINTS;
    for (size_t i = 0; i < n; i++) {
        size_t at = n == values->n ? i : i * (values->n - 1) / (MOST_POINTS - 1);
        x[i] = values->values[at];
        y[i] = 100 * ((double)at + 1) / (double)values->n;
    }
    *out = (struct plot_series){.name = name, .x = x, .y = y, .n = n, .style = style};
}

static const struct series *series_at(const struct summary *summary, size_t panel) {
    const struct series *all[N_PANELS] = {&summary->ttfb_s, &summary->tpot_s, &summary->latency_s};
    return all[panel];
}

static void lay(const struct server *server, struct drawing *drawing) {
    static const char *const titles[N_PANELS] = {"time to the first token", "time per output token",
                                                 "latency"};
    for (size_t p = 0; p < N_PANELS; p++) {
        for (size_t run = 0; run < server->n_runs; run++) {
            lay_series(series_at(&server->runs[run]->summary, p), server->labels[run], STYLE_LINE,
                       drawing->x[p][run], drawing->y[p][run], &drawing->series[p][run]);
        }
        size_t last = server->n_runs;
        lay_series(series_at(&server->measured, p), "measured", STYLE_DASHED, drawing->x[p][last],
                   drawing->y[p][last], &drawing->series[p][last]);
        drawing->panels[p] = (struct panel){.kind = PANEL_XY,
                                            .title = titles[p],
                                            .x_label = "seconds",
                                            .y_label = "requests up to there (%)",
                                            .series = drawing->series[p],
                                            .n_series = server->n_runs + 1,
                                            .y_min = 0,
                                            .y_max = 100};
    }
    size_t used = (size_t)snprintf(drawing->provenance, sizeof drawing->provenance, "measured: %s",
                                   server->name);
    for (size_t run = 0; run < server->n_runs && used < sizeof drawing->provenance; run++) {
        const struct run_facts *facts = &server->runs[run]->facts;
        used += (size_t)snprintf(drawing->provenance + used, sizeof drawing->provenance - used,
                                 "; %s: profile %s, %s%s", server->labels[run], facts->gpu,
                                 facts->profile_kind,
                                 server->runs[run]->system->n_calibrated > 0 ? ", calibrated" : "");
    }
}

static int write_table(const struct server *server, const char *stem, bool markdown,
                       struct err *err) {
    char path[512];
    snprintf(path, sizeof path, "%s-server.%s", stem, markdown ? "md" : "csv");
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    FILE *file = out.file;
    const char *between = markdown ? " | " : ",", *end = markdown ? " |\n" : "\n";
    fprintf(file, "%squantity%sunit%smeasured", markdown ? "| " : "", between, between);
    for (size_t run = 0; run < server->n_runs; run++) {
        fprintf(file, "%s%s%serror_%%", between, server->labels[run], between);
    }
    fputs(end, file);
    for (size_t i = 0; markdown && i < 3 + 2 * server->n_runs; i++) {
        fprintf(file, "|---%s", i + 1 == 3 + 2 * server->n_runs ? "|\n" : "");
    }
    for (size_t i = 0; i < SERVER_QUANTITIES; i++) {
        const struct server_quantity *quantity = &server->quantities[i];
        fprintf(file, "%s%s%s%s%s%.6g", markdown ? "| " : "", quantity->name, between,
                quantity->unit, between, quantity->measured);
        for (size_t run = 0; run < server->n_runs; run++) {
            fprintf(file, "%s%.6g%s%+.2f", between, quantity->simulated[run], between,
                    100 * server_error(quantity, run));
        }
        fputs(end, file);
    }
    return output_close(&out, true, err);
}

int server_draw(const struct server *server, const char *title, const char *stem, struct err *err) {
    struct drawing *drawing = calloc(1, sizeof *drawing);
    ASSERT(drawing != NULL);
    lay(server, drawing);
    struct figure figure = {.title = title,
                            .provenance = drawing->provenance,
                            .panels = drawing->panels,
                            .n_panels = N_PANELS};
    int status = figure_write(&figure, stem, FIGURE_ALL, err);
    status = status != 0 ? status : write_table(server, stem, false, err);
    status = status != 0 ? status : write_table(server, stem, true, err);
    free(drawing);
    return status;
}
