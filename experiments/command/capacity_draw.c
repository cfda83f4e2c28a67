/* The figures of `unmask capacity`: rates and attainment, or fleets and their cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/plot/plot.h"
#include "experiments/command/capacity_show.h"
#include "experiments/run/sweep/sample.h"
#include "sim/base/mem.h"

enum { MOST_PANELS = 6, MOST_POINTS = CAPACITY_CURVE + 1, WIDE = 20 };

static const double none = (double)NAN;

/* A figure and what it points to. */
struct sheet {
    struct panel panels[MOST_PANELS];
    struct plot_series *series; /* [panels][configurations + 1] */
    struct plot_point *points;  /* [panels][configurations + 1][room] */
    char titles[MOST_PANELS][OBJECTIVE_CHARS + 16], note[512];
    size_t n, room;
};

size_t capacity_samples(const struct capacities *c, size_t config) {
    struct sample sample = {.n = c->found.n_seeds};
    for (size_t s = 0; s < sample.n; s++) {
        sample.runs[s] = c->found.searches[config * sample.n + s].summary;
    }
    return sample_is_one(&sample) ? 1 : sample.n;
}

size_t capacity_most_samples(const struct capacities *c) {
    size_t most = 1;
    for (size_t i = 0; i < c->found.n_configs; i++) {
        size_t n = capacity_samples(c, i);
        most = n > most ? n : most;
    }
    return most;
}

/* What a panel shows of a trial: a term's value, then attainment, then the rate attained. */
static double value_of(const struct capacities *c, const struct trial *trial, size_t which) {
    double value = which < c->objectives.n    ? trial->values[which]
                   : which == c->objectives.n ? trial->attainment
                                              : trial->attained_req_s;
    return trial->rate_per_s > 0 && isfinite(value) ? value : none;
}

/* Curves ask for the same rates with every seed; the capacity is each seed's own, at their mean. */
static struct plot_point point_of(const struct capacities *c, size_t config, size_t place,
                                  size_t which) {
    double values[SAMPLE_MOST_SEEDS] = {0}, rates[SAMPLE_MOST_SEEDS] = {0};
    size_t n = capacity_samples(c, config);
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct search *search = &c->found.searches[config * c->found.n_seeds + s];
        const struct trial *trial = place < CAPACITY_CURVE ? &search->curve[place] : &search->met;
        values[s] = value_of(c, trial, which);
        rates[s] = trial->rate_per_s > 0 ? trial->offered_req_s : none;
    }
    bool is_share = which == c->objectives.n;
    struct spread x = spread_of(rates, n);
    struct spread y = capacity_spread(c, config, which, values);
    double scale = is_share ? 100 : 1, low = y.low < 0 ? 0 : y.low;
    return (struct plot_point){x.mean, scale * y.mean, scale * low, scale * y.high, none};
}

static int by_x(const void *a, const void *b) {
    const struct plot_point *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

/* The next panel, whose series have room for `room` points. */
static struct panel *add_panel(struct sheet *sheet, size_t n_series, const char *title,
                               const char *x_label, const char *y_label) {
    struct panel *panel = &sheet->panels[sheet->n];
    snprintf(sheet->titles[sheet->n], sizeof sheet->titles[0], "%s", title);
    *panel = (struct panel){.kind = PANEL_XY,
                            .title = sheet->titles[sheet->n],
                            .x_label = x_label,
                            .y_label = y_label,
                            .series = sheet->series + sheet->n * n_series};
    sheet->n++;
    return panel;
}

static void draw_over_rate(const struct capacities *c, struct sheet *sheet, size_t which,
                           const char *title, const char *y_label) {
    size_t n = c->found.n_configs;
    struct plot_series *series = sheet->series + sheet->n * (n + 1);
    struct plot_point *points = sheet->points + sheet->n * (n + 1) * sheet->room;
    struct panel *panel = add_panel(sheet, n + 1, title, "rate (requests/s)", y_label);
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < n; i++, points += sheet->room) {
        size_t n_points = 0;
        for (size_t k = 0; k < MOST_POINTS; k++) {
            struct plot_point point = point_of(c, i, k, which);
            if (isfinite(point.x) && isfinite(point.y)) {
                points[n_points++] = point;
            }
        }
        qsort(points, n_points, sizeof *points, by_x);
        if (n_points > 0) {
            series[panel->n_series++] =
                (struct plot_series){.name = c->configs[i].label, .points = points, .n = n_points};
            least = fmin(least, points[0].x);
            most = fmax(most, points[n_points - 1].x);
        }
    }
    panel->log_x = most > WIDE * least;
}

/* Every configuration as a point, and the front as a staircase. */
static void draw_front(const struct capacities *c, struct sheet *sheet) {
    size_t n = c->found.n_configs, n_front = 0;
    struct plot_series *series = sheet->series + sheet->n * (n + 1);
    struct plot_point *points = sheet->points + sheet->n * (n + 1) * sheet->room;
    struct plot_point *front = points + n * sheet->room;
    struct panel *panel = add_panel(sheet, n + 1, "capacity over cost",
                                    c->prices != NULL ? "cost ($/h)" : "GPUs", "requests/s");
    for (size_t i = 0; i < n; i++, points += sheet->room) {
        const struct configuration *config = &c->configs[i];
        struct plot_point point = {config->cost, config->capacity.mean, config->capacity.low,
                                   config->capacity.high, none};
        if (config->capacity.mean > 0) {
            points[0] = point;
            series[panel->n_series++] = (struct plot_series){
                .name = config->label, .points = points, .n = 1, .style = STYLE_POINTS};
        }
        if (config->is_on_front) {
            front[n_front] = point;
            front[n_front].low = front[n_front].high = none;
            n_front++;
        }
    }
    qsort(front, n_front, sizeof *front, by_x);
    series[panel->n_series++] =
        (struct plot_series){.name = "front", .points = front, .n = n_front, .style = STYLE_STEPS};
}

static void draw_panels(const struct capacities *c, struct sheet *sheet) {
    bool bounds = isfinite(c->found.searches[0].met.attainment);
    for (size_t t = 0; t < c->objectives.n && sheet->n < MOST_PANELS - 3; t++) {
        const struct objective *o = &c->objectives.items[t];
        if (!objective_is_of_time(o)) {
            continue;
        }
        draw_over_rate(c, sheet, t, o->text, "seconds");
        sheet->panels[sheet->n - 1].log_y = true;
        sheet->panels[sheet->n - 1].y_line = o->bound;
    }
    if (bounds) {
        draw_over_rate(c, sheet, c->objectives.n, "attainment", "good requests (%)");
        draw_over_rate(c, sheet, c->objectives.n + 1, "attained", "good requests/s");
    }
    for (size_t i = 1; i < c->found.n_configs; i++) {
        if (c->configs[i].cost != c->configs[0].cost) {
            draw_front(c, sheet);
            break;
        }
    }
}

/* "burst, simulated; means over 3 seeds with 95 % intervals; objectives: p95 ttft<2s". */
static void write_note(const struct capacities *c, const char *what, const char *alone, char *note,
                       size_t size) {
    char spread[SPREAD_NOTE_CHARS];
    const size_t n_samples = capacity_samples(c, 0);
    size_t used = (size_t)snprintf(note, size, "%s, %s; %s", c->configs[0].asked.request.workload,
                                   what, n_samples > 1 ? spread_note(n_samples, spread) : alone);
    for (size_t i = 0; i < c->objectives.n && used < size; i++) {
        used += (size_t)snprintf(note + used, size - used, "%s%s", i == 0 ? "; objectives: " : ", ",
                                 c->objectives.items[i].text);
    }
}

int capacity_draw(const struct capacities *c, const char *stem, struct err *err) {
    size_t n = c->found.n_configs;
    struct sheet sheet = {.room = n > MOST_POINTS ? n : MOST_POINTS};
    sheet.series = mem_zeroed(MOST_PANELS * (n + 1), sizeof *sheet.series);
    sheet.points = mem_zeroed(MOST_PANELS * (n + 1) * sheet.room, sizeof *sheet.points);
    draw_panels(c, &sheet);
    write_note(c, "simulated", "one run", sheet.note, sizeof sheet.note);
    struct figure figure = {.title = "Rate, latency and attainment",
                            .provenance = sheet.note,
                            .panels = sheet.panels,
                            .n_panels = sheet.n,
                            .n_columns = sheet.n > 3 ? (sheet.n + 1) / 2 : sheet.n};
    int status = figure_write(&figure, stem, FIGURE_ALL, err);
    free(sheet.series);
    free(sheet.points);
    return status;
}

/* ---- fleets ---- */

enum { CATEGORY_CHARS = 192, FLEET_PANELS = 2 };

/* Bars of each system, by all else that varies. */
struct fleet_sheet {
    struct panel panels[FLEET_PANELS];
    struct plot_series *series; /* [panels][systems] */
    struct plot_point *points;  /* [panels][configurations] */
    char (*texts)[CATEGORY_CHARS];
    const char **categories;
    size_t n_systems, n_categories;
    char note[512];
};

/* "l40s tensor_parallel=2": the axes after that of the systems. */
static void name_category(const struct capacities *c, size_t config, char text[CATEGORY_CHARS]) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t a = 1; a < c->n_axes && used < CATEGORY_CHARS; a++) {
        const bool is_name = strcmp(c->axes[a], "gpu") == 0 || strcmp(c->axes[a], "model") == 0;
        used += (size_t)snprintf(text + used, CATEGORY_CHARS - used, "%s%s%s%s", a > 1 ? " " : "",
                                 is_name ? "" : c->axes[a], is_name ? "" : "=",
                                 c->configs[config].values[a]);
    }
}

static void fill_fleet_panel(const struct capacities *c, struct fleet_sheet *sheet, size_t which) {
    struct panel *panel = &sheet->panels[which];
    struct plot_series *series = sheet->series + which * sheet->n_systems;
    struct plot_point *points = sheet->points + which * c->found.n_configs;
    for (size_t i = 0; i < c->found.n_configs; i++) {
        const struct spread cost = fleet_cost_spread(c, i);
        const double replicas = fleet_size(c, i);
        points[i] = which == 0 ? (struct plot_point){0, fleet_cost(c, i),
                                                     cost.low < 0 ? 0 : cost.low, cost.high, none}
                               : (struct plot_point){0, replicas, none, none, none};
    }
    for (size_t s = 0; s < sheet->n_systems; s++) {
        const size_t first = s * sheet->n_categories;
        series[s] = (struct plot_series){.name = c->configs[first].values[0],
                                         .points = points + first,
                                         .n = sheet->n_categories};
    }
    panel->series = series;
    panel->n_series = sheet->n_systems;
    panel->categories = sheet->categories;
    panel->n_categories = sheet->n_categories;
}

int fleet_draw(const struct capacities *c, const char *stem, struct err *err) {
    const size_t n = c->found.n_configs;
    struct fleet_sheet sheet = {.n_systems = 1};
    for (size_t i = 1; i < n; i++) {
        sheet.n_systems += strcmp(c->configs[i].values[0], c->configs[i - 1].values[0]) != 0;
    }
    sheet.n_categories = n / sheet.n_systems;
    sheet.series = mem_zeroed(FLEET_PANELS * sheet.n_systems, sizeof *sheet.series);
    sheet.points = mem_zeroed(FLEET_PANELS * n, sizeof *sheet.points);
    sheet.texts = mem_zeroed(sheet.n_categories, sizeof *sheet.texts);
    sheet.categories = mem_zeroed(sheet.n_categories, sizeof *sheet.categories);
    for (size_t i = 0; i < sheet.n_categories; i++) {
        name_category(c, i, sheet.texts[i]);
        sheet.categories[i] = sheet.texts[i];
    }
    sheet.panels[0] = (struct panel){.kind = PANEL_BARS,
                                     .title = "cost",
                                     .x_label = "",
                                     .y_label = c->prices != NULL ? "$/h" : "GPUs",
                                     .values = true};
    sheet.panels[1] = (struct panel){
        .kind = PANEL_BARS, .title = "size", .x_label = "", .y_label = "replicas", .values = true};
    for (size_t which = 0; which < FLEET_PANELS; which++) {
        fill_fleet_panel(c, &sheet, which);
    }
    write_note(c, "simulated; as many replicas as every seed is served by", "one seed", sheet.note,
               sizeof sheet.note);
    char title[64];
    snprintf(title, sizeof title, "Fleets for %g requests/s", c->found.fleet_req_s);
    struct figure figure = {
        .title = title, .provenance = sheet.note, .panels = sheet.panels, .n_panels = FLEET_PANELS};
    int status = figure_write(&figure, stem, FIGURE_ALL, err);
    free(sheet.series);
    free(sheet.points);
    free(sheet.texts);
    free(sheet.categories);
    return status;
}
