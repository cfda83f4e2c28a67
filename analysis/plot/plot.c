#include "analysis/plot/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/plot/gnuplot.h"
#include "sim/base/mem.h"
#include "sim/base/output.h"

enum {
    MAX_NAMES = 32, /* different series names in one figure */
    /* Strips and margins in pixels of the SVG. */
    TITLE_PX = 36,
    EDGE_PX = 6, /* above the legend, where there is no title */
    LEGEND_ROW_PX = 24,
    LEFT_PX = 76,
    RIGHT_PX = 22,
    TOP_PX = 32,
    TICS_PX = 34,
    LABEL_PX = 24,
    LABEL_ROW_PX = 16, /* each further line of a label */
    NOTE_ROW_PX = 14,
    CHARACTER_PX = 7,       /* of the text, of 12 pixels, about */
    KEY_CHARACTER_PX = 8,   /* of the same, as gnuplot reckons the legend's columns */
    TITLE_POINTS = 14,      /* pixels of a title that fits at this size, */
    LEAST_TITLE_POINTS = 8, /* and of the longest */
    VALUE_CHARACTER_PX = 6, /* of the numbers over bars, of 9 pixels */
    VALUE_ROW_PX = 16,
    UPRIGHT_VALUE_PX = 13, /* the width of such a number that stands upright */
    NOTE_CHARACTER_PX = 6, /* of the note, of 9 pixels, about */
};

/* Everything drawing needs to know that is not in one panel. */
struct layout {
    const struct figure *figure;
    const char *names[MAX_NAMES]; /* different series names in order of appearance */
    enum panel_kind kinds[MAX_NAMES];
    size_t n_names;
    size_t inks[MAX_NAMES];        /* of a name: its colour, shape and dashes */
    bool is_of_another[MAX_NAMES]; /* and whether they are another one's, such as its bound's */
    bool has_paper;
    bool turns_values;               /* numbers over bars stand upright, where they would touch */
    bool hides_values;               /* bars are narrower than numbers that stand upright */
    int width, height;               /* of the whole figure */
    int columns, rows;               /* of panels */
    int panel_width, panel_height;   /* of one cell */
    int legend_columns, legend_rows; /* 0 rows: no legend */
    int note_rows;
};

struct plot_range {
    double min, max;     /* of all finite values */
    double min_positive; /* infinite when none is positive */
    bool any;
};

enum { PLOT_VALUE_CHARS = 32 }; /* of a number over a bar */

static double or_zero(double value) {
    return isfinite(value) ? value : 0;
}

static void widen(struct plot_range *range, double value) {
    if (!isfinite(value)) {
        return;
    }
    range->min = range->any && range->min < value ? range->min : value;
    range->max = range->any && range->max > value ? range->max : value;
    range->min_positive = value > 0 && value < range->min_positive ? value : range->min_positive;
    range->any = true;
}

static struct plot_range plot_y_range(const struct panel *panel) {
    struct plot_range range = {.min_positive = INFINITY};
    for (size_t s = 0; s < panel->n_series; s++) {
        const struct plot_series *series = &panel->series[s];
        for (size_t i = 0; i < series->n; i++) {
            const struct plot_point *point = &series->points[i];
            widen(&range, point->y);
            widen(&range, point->low);
            widen(&range, point->high);
            widen(&range, point->paper);
        }
    }
    for (size_t i = 0; panel->kind == PANEL_STACKED && i < panel->n_categories; i++) {
        double sum = 0;
        for (size_t s = 0; s < panel->n_series; s++) {
            sum += or_zero(panel->series[s].points[i].y);
        }
        widen(&range, sum);
    }
    if (range.any && panel->y_line != 0) {
        widen(&range, panel->y_line);
    }
    return range;
}

static struct plot_range x_range(const struct panel *panel) {
    struct plot_range range = {.min_positive = INFINITY};
    for (size_t s = 0; s < panel->n_series; s++) {
        for (size_t i = 0; i < panel->series[s].n; i++) {
            widen(&range, panel->series[s].points[i].x);
        }
    }
    return range;
}

/* A distance of 1, 2 or 5 times a power of ten between tics, so that their labels do not touch. */
static double tic_step(double span, double max, int width_px) {
    for (int n = 8;; n--) {
        double power = pow(10, floor(log10(span / n)));
        double mantissa = span / n / power;
        double step = power * (mantissa <= 1 ? 1 : mantissa <= 2 ? 2 : mantissa <= 5 ? 5 : 10);
        double digits = fmax(1, floor(log10(fmax(max, 1))) + 1);
        digits += step < 1 ? 1 + ceil(-log10(step)) : 0;
        if (n <= 2 || span / step * (digits + 2) * CHARACTER_PX <= width_px) {
            return step;
        }
    }
}

/* A little room left and right, but never across zero; tics of logarithmic axes are gnuplot's to
 * choose. */
static void plot_write_x_range(FILE *out, const struct panel *panel, int width_px) {
    struct plot_range range = x_range(panel);
    double span = range.max - range.min;
    if (panel->log_x || !(span > 0)) {
        if (range.min > 0 && span > 0) {
            fprintf(out, "set xrange [%.9g:%.9g]\n", range.min / 1.15, range.max * 1.15);
        } else {
            fputs("set xrange [*:*]\n", out);
        }
        fputs("set xtics nomirror scale 1 autofreq norotate offset 0,0.3\n", out);
        return;
    }
    double low = range.min - 0.03 * span;
    low = low < 0 && range.min >= 0 ? 0 : low;
    double high = range.max + 0.03 * span;
    fprintf(out, "set xrange [%.9g:%.9g]\n", low, high);
    fprintf(out, "set xtics nomirror scale 1 %.9g norotate offset 0,0.3\n",
            tic_step(high - low, fmax(fabs(low), fabs(high)), width_px));
}

struct limits {
    double low, high;
};

/* Of the y axis, without numbers that stand upright. */
static struct limits limits_of(const struct panel *panel, const struct plot_range *range) {
    if (panel->y_max > panel->y_min) {
        return (struct limits){panel->y_min, panel->y_max};
    }
    if (panel->log_y) {
        return (struct limits){pow(10, floor(log10(range->min_positive))),
                               range->max * (panel->values ? 2.2 : 1.4)};
    }
    double head = panel->values ? 1.14 : 1.06;
    struct limits limits = {range->min < 0 ? range->min * head : 0,
                            range->max > 0 ? range->max * head : 0};
    if (limits.high <= limits.low) {
        limits = (struct limits){limits.low - 0.5, limits.high + 0.5};
    }
    return limits;
}

/* The height of a place on the y axis, as a share of the axis. */
static double share_of_axis(const struct panel *panel, struct limits limits, double y) {
    return panel->log_y ? log(y / limits.low) / log(limits.high / limits.low)
                        : (y - limits.low) / (limits.high - limits.low);
}

/* A number over a bar; how many characters it has. */
static int plot_value_text(double y, char text[PLOT_VALUE_CHARS]) {
    return snprintf(text, 32, y < 1000 ? "%.3g" : "%.0f", y);
}

/* What a number stands over: its bar, an error bar or a printed value; a NaN counts nothing. */
static double plot_top_of(const struct plot_point *point) {
    return fmax(point->y, fmax(point->high, point->paper));
}

/* The width of a bar. */
static double bar_px(const struct layout *layout, const struct panel *panel) {
    const int axis_px = layout->panel_width - LEFT_PX - RIGHT_PX;
    return 0.8 / (double)panel->n_series * axis_px / ((double)panel->n_categories + 0.2);
}

/* Whether the numbers over two bars of one category would touch. */
static bool plot_values_touch(const struct layout *layout, const struct panel *panel) {
    struct plot_range range = plot_y_range(panel);
    struct limits limits = limits_of(panel, &range);
    const double px = bar_px(layout, panel);
    for (size_t s = 0; s < panel->n_series; s++) {
        for (size_t other = 0; other < s; other++) {
            for (size_t i = 0; i < panel->n_categories; i++) {
                const struct plot_point *a = &panel->series[s].points[i];
                const struct plot_point *b = &panel->series[other].points[i];
                char text[32];
                if (!isfinite(a->y) || !isfinite(b->y)) {
                    continue;
                }
                int n = plot_value_text(a->y, text) + plot_value_text(b->y, text);
                double apart = fabs(share_of_axis(panel, limits, plot_top_of(a)) -
                                    share_of_axis(panel, limits, plot_top_of(b)));
                if (0.5 * n * VALUE_CHARACTER_PX + 4 > px * (double)(s - other) &&
                    apart * layout->panel_height < VALUE_ROW_PX) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* Room above the bars for the longest number, standing upright. */
static struct limits with_room(const struct layout *layout, const struct panel *panel,
                               struct limits limits) {
    double most = 0;
    char text[32];
    for (size_t s = 0; s < panel->n_series; s++) {
        for (size_t i = 0; i < panel->n_categories; i++) {
            const struct plot_point *point = &panel->series[s].points[i];
            if (isfinite(point->y)) {
                double px = 24 + plot_value_text(point->y, text) * VALUE_CHARACTER_PX;
                most = fmax(most, share_of_axis(panel, limits, plot_top_of(point)) /
                                      (1 - px / layout->panel_height));
            }
        }
    }
    if (most > 1) {
        limits.high = panel->log_y ? limits.low * pow(limits.high / limits.low, most)
                                   : limits.low + most * (limits.high - limits.low);
    }
    return limits;
}

static void plot_write_y_range(FILE *out, const struct layout *layout, const struct panel *panel,
                               const struct plot_range *range) {
    struct limits limits = limits_of(panel, range);
    if (panel->kind == PANEL_BARS && panel->values && layout->turns_values) {
        limits = with_room(layout, panel, limits);
    }
    fprintf(out, "%s logscale x\n", panel->log_x ? "set" : "unset");
    fprintf(out, "%s logscale y\n", panel->log_y ? "set" : "unset");
    fprintf(out, "set yrange [%.9g:%.9g]\n", limits.low, limits.high);
}

/* Okabe and Ito, "Color Universal Design" (2008); their black is a grey here, so that markers show
 * on it, and yellow comes last, being faint on white. */
static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#555555", "#F0E442"};
static const int shapes[] = {7, 5, 9, 11, 15}; /* filled; paper markers are open diamonds */
enum {
    N_COLOURS = sizeof colours / sizeof colours[0],
    N_SHAPES = sizeof shapes / sizeof shapes[0],
    PAPER_SHAPE = 12,
};

static size_t name_index(const struct layout *layout, const char *name) {
    size_t i = 0;
    while (i < layout->n_names && strcmp(layout->names[i], name) != 0) {
        i++;
    }
    return i;
}

static int collect_names(struct layout *layout, struct err *err) {
    const struct figure *figure = layout->figure;
    for (size_t p = 0; p < figure->n_panels; p++) {
        const struct panel *panel = &figure->panels[p];
        for (size_t s = 0; s < panel->n_series; s++) {
            const struct plot_series *series = &panel->series[s];
            ASSERT(panel->kind == PANEL_XY || series->n == panel->n_categories);
            for (size_t i = 0; i < series->n; i++) {
                layout->has_paper = layout->has_paper || isfinite(series->points[i].paper);
            }
            if (name_index(layout, series->name) < layout->n_names) {
                continue;
            }
            if (layout->n_names == MAX_NAMES) {
                return err_usage(err, "figure '%s' has more than %d different series",
                                 figure->title, MAX_NAMES);
            }
            layout->kinds[layout->n_names] = panel->kind;
            layout->names[layout->n_names++] = series->name;
        }
    }
    return 0;
}

/* Of "NAME: what no scheduler beats" the name's place; n_names: it is of no other series. */
static size_t base_of(const struct layout *layout, const char *name) {
    const char *colon = strstr(name, ": ");
    for (size_t i = 0; colon != NULL && i < layout->n_names; i++) {
        if (strlen(layout->names[i]) == (size_t)(colon - name) &&
            strncmp(layout->names[i], name, (size_t)(colon - name)) == 0) {
            return i;
        }
    }
    return layout->n_names;
}

/* Each name its own, but for what is said of another one: that has its colour. */
static void choose_inks(struct layout *layout) {
    size_t n = 0, bases[MAX_NAMES];
    for (size_t i = 0; i < layout->n_names; i++) {
        bases[i] = base_of(layout, layout->names[i]);
        layout->is_of_another[i] = bases[i] < layout->n_names;
        layout->inks[i] = layout->is_of_another[i] ? 0 : n++;
    }
    for (size_t i = 0; i < layout->n_names; i++) {
        layout->inks[i] = layout->inks[layout->is_of_another[i] ? bases[i] : i];
    }
}

static int longest(const char *const *texts, size_t n) {
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        length = strlen(texts[i]) > length ? strlen(texts[i]) : length;
    }
    return (int)length;
}

/* Category names slant when they would touch; the pixels they then need below the axis. */
static int slant_px(const struct panel *panel, int panel_width) {
    if (panel->kind == PANEL_XY || panel->n_categories == 0) {
        return 0;
    }
    int length = longest(panel->categories, panel->n_categories);
    int room = (panel_width - LEFT_PX - RIGHT_PX) / (int)panel->n_categories;
    return length * CHARACTER_PX + 4 > room ? length * CHARACTER_PX / 2 : 0;
}

/* Where the line of a label ends that is as long as fits below a panel, whose axis is not in its
 * middle; the text after its blank. */
static const char *label_line(const struct layout *layout, const char *text, size_t *length) {
    const int room = (layout->panel_width - LEFT_PX + RIGHT_PX) / CHARACTER_PX;
    const size_t fits = room > 8 ? (size_t)room : 8;
    *length = strlen(text);
    if (*length > fits) {
        size_t at = fits;
        while (at > 0 && text[at] != ' ') {
            at--;
        }
        *length = at > 0 ? at : strcspn(text, " ");
    }
    return text + *length + (text[*length] == ' ');
}

static int label_px(const struct layout *layout, const char *text) {
    int px = 0;
    size_t length;
    while (*text != '\0') {
        text = label_line(layout, text, &length);
        px += px == 0 ? LABEL_PX : LABEL_ROW_PX;
    }
    return px;
}

/* The pixels below the axes of one row of panels, for tics, slanted names and labels. */
static int bottom_px(const struct layout *layout, int row) {
    int slant = 0, label = 0;
    for (int column = 0; column < layout->columns; column++) {
        size_t p = (size_t)row * (size_t)layout->columns + (size_t)column;
        if (p < layout->figure->n_panels) {
            const struct panel *panel = &layout->figure->panels[p];
            int px = slant_px(panel, layout->panel_width);
            slant = px > slant ? px : slant;
            px = label_px(layout, panel->x_label);
            label = px > label ? px : label;
        }
    }
    return TICS_PX + slant + label;
}

static int title_px(const struct layout *layout) {
    return layout->figure->title[0] != '\0' ? TITLE_PX : EDGE_PX;
}

/* The top of a row of panels; of the row after the last: the bottom of all panels. */
static int row_top_px(const struct layout *layout, int row) {
    int top = title_px(layout) + layout->legend_rows * LEGEND_ROW_PX;
    for (int above = 0; above < row; above++) {
        top += TOP_PX + layout->panel_height + bottom_px(layout, above);
    }
    return top;
}

static int lay_out(const struct figure *figure, struct layout *layout, struct err *err) {
    *layout = (struct layout){.figure = figure};
    int failed = collect_names(layout, err);
    if (failed != 0) {
        return failed;
    }
    choose_inks(layout);
    ASSERT(figure->n_panels > 0);
    int columns = (int)(figure->n_columns == 0 ? figure->n_panels : figure->n_columns);
    layout->columns = columns;
    layout->rows = ((int)figure->n_panels + columns - 1) / columns;
    layout->panel_width = figure->panel_width > 0 ? figure->panel_width : 460;
    layout->panel_height = figure->panel_height > 0 ? figure->panel_height : 240;
    layout->width = columns * layout->panel_width;
    int n_entries = (int)layout->n_names + layout->has_paper;
    if (n_entries > 1) {
        int length = longest(layout->names, layout->n_names);
        length = layout->has_paper && length < 16 ? 16 : length;
        int fit = (layout->width - 20) / (length * KEY_CHARACTER_PX + 56);
        fit = fit < 1 ? 1 : fit;
        layout->legend_rows = (n_entries + fit - 1) / fit;
        ASSERT(layout->legend_rows > 0);
        layout->legend_columns = (n_entries + layout->legend_rows - 1) / layout->legend_rows;
    }
    int note_length = (int)strlen(figure->provenance);
    int line_length = layout->width / NOTE_CHARACTER_PX;
    layout->note_rows = (note_length + line_length - 1) / line_length;
    if (layout->note_rows > 1) {
        layout->note_rows++; /* words do not break where the arithmetic does */
    }
    layout->height = row_top_px(layout, layout->rows) + layout->note_rows * NOTE_ROW_PX + 6;
    return 0;
}

/* The data of one series: x y low high paper width; bars get their place in the group. */
static void write_data(FILE *out, const struct panel *panel, size_t p, size_t s) {
    const struct plot_series *series = &panel->series[s];
    fprintf(out, "$p%zus%zu << EOD\n", p, s);
    double width = panel->kind == PANEL_STACKED ? 0.6 : 0.8 / (double)panel->n_series;
    for (size_t i = 0; i < series->n; i++) {
        const struct plot_point *point = &series->points[i];
        double x = point->x, y = point->y;
        double low = isfinite(point->low) ? point->low : y;
        double high = isfinite(point->high) ? point->high : y;
        if (panel->kind == PANEL_BARS) {
            x = (double)i + ((double)s + 0.5) * width - 0.4;
        } else if (panel->kind == PANEL_STACKED) {
            /* Cumulative from the bottom; taller bars are drawn first. */
            x = (double)i;
            y = 0;
            for (size_t below = 0; below <= s; below++) {
                y += or_zero(panel->series[below].points[i].y);
            }
        }
        fprintf(out, "%.9g %.9g %.9g %.9g %.9g %.9g\n", x, y, low, high, point->paper,
                0.94 * width);
    }
    fputs("EOD\n", out);
}

static void write_tics(FILE *out, const struct panel *panel, int panel_width, int slant) {
    fputs("set ytics nomirror autofreq norotate offset 0.4,0\n", out);
    if (panel->kind == PANEL_XY) {
        plot_write_x_range(out, panel, panel_width - LEFT_PX - RIGHT_PX);
        return;
    }
    fprintf(out, "set xrange [-0.6:%g]\n", (double)panel->n_categories - 0.4);
    fprintf(out, "set xtics nomirror scale 0 %s (",
            slant > 0 ? "rotate by 30 right offset 0.6,0.2" : "norotate offset 0,0.3");
    for (size_t i = 0; i < panel->n_categories; i++) {
        fputs(i > 0 ? ", " : "", out);
        gnuplot_quote(out, panel->categories[i]);
        fprintf(out, " %zu", i);
    }
    fputs(")\n", out);
}

/* Numbers over the bars, above whatever stands highest there. */
static void write_values(FILE *out, const struct layout *layout, const struct panel *panel) {
    const char *turn =
        layout->turns_values ? "left rotate by 90 offset 0,0.9" : "center offset 0,0.9";
    for (size_t s = 0; s < panel->n_series && panel->kind == PANEL_BARS; s++) {
        const struct plot_series *series = &panel->series[s];
        double width = 0.8 / (double)panel->n_series;
        for (size_t i = 0; i < series->n; i++) {
            const struct plot_point *point = &series->points[i];
            if (!isfinite(point->y)) {
                continue;
            }
            char text[32];
            plot_value_text(point->y, text);
            fprintf(out, "set label '%s' at first %.9g, first %.9g %s font ',9'\n", text,
                    (double)i + ((double)s + 0.5) * width - 0.4, plot_top_of(point), turn);
        }
    }
}

/* Of the series that has this place among the names. A bar that says something of another one, such
 * as its bound, is pale. */
static void write_style(FILE *out, const struct layout *layout, enum panel_kind kind,
                        enum line_style style, size_t place) {
    const size_t name = layout->inks[place];
    const char *colour = colours[name % N_COLOURS];
    int dash = 1 + (int)(name / N_COLOURS) * 2;
    int shape = shapes[(name + name / N_SHAPES) % N_SHAPES]; /* the two blues differ in it */
    if (kind != PANEL_XY) {
        fprintf(out, "with boxes fs %s border rgb '%s' fc rgb '%s'",
                layout->is_of_another[place] ? "solid 0.25"
                : name < N_COLOURS           ? "solid 0.85"
                                             : "pattern 1",
                colour, colour);
        return;
    }
    switch (style) {
    case STYLE_LINE_POINTS:
        fprintf(out, "with linespoints lw 2 dt %d pt %d ps 0.8 lc rgb '%s'", dash, shape, colour);
        break;
    case STYLE_LINE:
        fprintf(out, "with lines lw 2 dt %d lc rgb '%s'", dash, colour);
        break;
    case STYLE_POINTS:
        fprintf(out, "with points pt %d ps 0.8 lc rgb '%s'", shape, colour);
        break;
    case STYLE_STEPS:
        fprintf(out, "with steps lw 2 dt %d lc rgb '%s'", dash, colour);
        break;
    case STYLE_DASHED:
        fprintf(out, "with lines lw 1.5 dt 2 lc rgb '%s'", colour);
        break;
    }
}

static void write_curves(FILE *out, const struct layout *layout, const struct panel *panel,
                         size_t p) {
    const char *separator = "plot ";
    for (size_t k = 0; k < panel->n_series; k++) {
        size_t s = panel->kind == PANEL_STACKED ? panel->n_series - 1 - k : k;
        const struct plot_series *series = &panel->series[s];
        if (series->n == 0) {
            continue;
        }
        fprintf(out, "%s$p%zus%zu using %s ", separator, p, s,
                panel->kind == PANEL_XY ? "1:2" : "1:2:6");
        write_style(out, layout, panel->kind, series->style, name_index(layout, series->name));
        fputs(" notitle", out);
        separator = ", ";
    }
    for (size_t s = 0; s < panel->n_series; s++) {
        const struct plot_series *series = &panel->series[s];
        size_t name = layout->inks[name_index(layout, series->name)];
        const char *colour = panel->kind == PANEL_XY ? colours[name % N_COLOURS] : "#000000";
        bool bars = false, printed = false;
        for (size_t i = 0; i < series->n; i++) {
            const struct plot_point *point = &series->points[i];
            bars = bars || isfinite(point->low) || isfinite(point->high);
            printed = printed || isfinite(point->paper);
        }
        if (bars) {
            fprintf(out,
                    ", $p%zus%zu using 1:3:(0):($4-$3) with vectors heads size graph 0.008,90 lw "
                    "1.3 lc rgb '%s' notitle", /* yerrorbars would blank out the markers */
                    p, s, colour);
        }
        if (printed) {
            fprintf(out,
                    ", $p%zus%zu using 1:5 with points pt %d ps 1.9 lw 1.8 lc rgb '%s' notitle", p,
                    s, PAPER_SHAPE, colour);
        }
    }
    if (panel->y_line != 0) {
        fprintf(out, ", %.9g with lines lw 1 dt 3 lc rgb '#333333' notitle", panel->y_line);
    }
    fputc('\n', out);
}

/* The x axis' label or a panel's title, in as many lines as it takes. */
static void write_broken(FILE *out, const struct layout *layout, const char *what, const char *text,
                         const char *offset) {
    size_t length;
    char between[16];
    snprintf(between, sizeof between, "set %s ", what);
    do {
        char line[256];
        const char *rest = label_line(layout, text, &length);
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        fputs(between, out);
        gnuplot_quote(out, line);
        snprintf(between, sizeof between, ".\"\\n\".");
        text = rest;
    } while (*text != '\0');
    fprintf(out, " offset %s\n", offset);
}

static void write_panel(FILE *out, const struct layout *layout, size_t p) {
    const struct panel *panel = &layout->figure->panels[p];
    int column = (int)p % layout->columns, row = (int)p / layout->columns;
    double width = layout->width, height = layout->height;
    int left = column * layout->panel_width;
    int top = row_top_px(layout, row), bottom = top + TOP_PX + layout->panel_height;
    fprintf(out, "set lmargin at screen %.6f\nset rmargin at screen %.6f\n",
            (left + LEFT_PX) / width, (left + layout->panel_width - RIGHT_PX) / width);
    fprintf(out, "set tmargin at screen %.6f\nset bmargin at screen %.6f\n",
            1 - (top + TOP_PX) / height, 1 - bottom / height);
    fputs("unset label\nunset key\nset border 3 lc rgb '#444444'\n"
          "set grid ytics lt 1 lc rgb '#DDDDDD' lw 0.8\n",
          out);
    write_broken(out, layout, "title", panel->title, "0,-0.6");
    int slant = slant_px(panel, layout->panel_width);
    char offset[32];
    snprintf(offset, sizeof offset, "0,%.2f", slant > 0 ? -0.4 : 0.2);
    write_broken(out, layout, "xlabel", panel->x_label, offset);
    fputs("set ylabel ", out);
    gnuplot_quote(out, panel->y_label);
    fputs(" offset 0.6,0\n", out);
    struct plot_range range = plot_y_range(panel);
    if (!range.any || (panel->log_y && !isfinite(range.min_positive))) {
        fputs("unset logscale\nset xrange [0:1]\nset yrange [0:1]\nunset xtics\nunset ytics\n"
              "set label 'no data' at graph 0.5, graph 0.5 center tc rgb '#777777'\n"
              "plot -1 notitle\n",
              out);
        return;
    }
    plot_write_y_range(out, layout, panel, &range);
    write_tics(out, panel, layout->panel_width, slant);
    if (panel->values && !layout->hides_values) {
        write_values(out, layout, panel);
    }
    write_curves(out, layout, panel, p);
}

/* The provenance line, broken between words into rows of about the figure's width. */
static void write_note(FILE *out, const struct layout *layout) {
    const char *rest = layout->figure->provenance;
    size_t line_length = (size_t)layout->width / NOTE_CHARACTER_PX;
    for (int row = 0; row < layout->note_rows && *rest != '\0'; row++) {
        size_t length = strlen(rest);
        if (length > line_length) {
            length = line_length;
            while (length > 0 && rest[length] != ' ') {
                length--;
            }
            length = length == 0 ? line_length : length;
        }
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)length, rest);
        double y = (layout->note_rows - row - 0.5) * NOTE_ROW_PX;
        fputs("set label ", out);
        gnuplot_quote(out, line);
        fprintf(out, " at screen 0.5, screen %.6f center font ',9' tc rgb '#555555'\n",
                y / layout->height);
        rest += length;
        rest += *rest == ' ';
    }
}

/* Points at which the title is as wide as the figure at most. */
static double title_points(const struct layout *layout) {
    static const double px_per_point = 0.72; /* of a character, about */
    const double n = (double)strlen(layout->figure->title) + 2;
    const double fits = layout->width / (n * px_per_point);
    return fmax(fmin(fits, TITLE_POINTS), LEAST_TITLE_POINTS);
}

/* An empty plot that carries what belongs to no panel: title, legend, provenance. */
static void write_frame(FILE *out, const struct layout *layout) {
    fputs("set lmargin at screen 0\nset rmargin at screen 1\n"
          "set tmargin at screen 1\nset bmargin at screen 0\n"
          "unset border\nunset xtics\nunset ytics\nunset xlabel\nunset ylabel\nunset title\n"
          "unset logscale\nunset grid\nset xrange [0:1]\nset yrange [0:1]\n",
          out);
    fputs("set label ", out);
    gnuplot_quote(out, layout->figure->title);
    fprintf(out, " at screen 0.5, screen %.6f center font ',%.3g'\n",
            1 - 0.55 * title_px(layout) / layout->height, title_points(layout));
    write_note(out, layout);
    fprintf(out,
            "set key center center at screen 0.5, screen %.6f horizontal maxcols %d maxrows %d "
            "samplen 2 spacing 1.2 Left reverse\n",
            1 - (title_px(layout) + 0.5 * layout->legend_rows * LEGEND_ROW_PX) / layout->height,
            layout->legend_columns > 0 ? layout->legend_columns : 1,
            layout->legend_rows > 0 ? layout->legend_rows : 1);
    fputs("plot -1 notitle", out);
    for (size_t i = 0; i < layout->n_names && layout->legend_rows > 0; i++) {
        const struct figure *figure = layout->figure;
        enum line_style style = STYLE_LINE;
        for (size_t p = figure->n_panels; p-- > 0;) {
            for (size_t s = 0; s < figure->panels[p].n_series; s++) {
                if (strcmp(figure->panels[p].series[s].name, layout->names[i]) == 0) {
                    style = figure->panels[p].series[s].style;
                }
            }
        }
        style = style == STYLE_STEPS ? STYLE_LINE : style;
        fputs(", NaN ", out);
        write_style(out, layout, layout->kinds[i], style, i);
        fputs(" title ", out);
        gnuplot_quote(out, layout->names[i]);
    }
    if (layout->has_paper) {
        fprintf(out,
                ", NaN with points pt %d ps 1.5 lw 1.8 lc rgb '#000000' title 'printed in paper'",
                PAPER_SHAPE);
    }
    fputs("\n", out);
}

static const char *const suffixes[] = {
    [GNUPLOT_SVG] = ".svg", [GNUPLOT_PNG] = ".png", [GNUPLOT_PDF] = ".pdf"};
static const unsigned flags[] = {
    [GNUPLOT_SVG] = FIGURE_SVG, [GNUPLOT_PNG] = FIGURE_PNG, [GNUPLOT_PDF] = FIGURE_PDF};
enum { N_FORMATS = sizeof flags / sizeof flags[0] };

static void write_script(FILE *out, const struct layout *layout, const char *path,
                         enum gnuplot_format format) {
    gnuplot_set_output(out, path, format, layout->width, layout->height, layout->figure->font);
    fputs("set multiplot\n", out);
    write_frame(out, layout);
    for (size_t p = 0; p < layout->figure->n_panels; p++) {
        write_panel(out, layout, p);
    }
    fputs("unset multiplot\nunset output\n", out);
}

/* A figure in one format, where it was asked for. */
struct drawing {
    bool is_wanted;
    char path[OUTPUT_PATH_CHARS];
    struct output out;
};

static int run_script(const struct layout *layout, const struct drawing *drawings,
                      struct err *err) {
    FILE *script = tmpfile();
    if (script == NULL) {
        return err_world(err, "cannot make a temporary file for gnuplot: %s", strerror(errno));
    }
    const struct figure *figure = layout->figure;
    for (size_t p = 0; p < figure->n_panels; p++) {
        for (size_t s = 0; s < figure->panels[p].n_series; s++) {
            write_data(script, &figure->panels[p], p, s);
        }
    }
    for (int i = 0; i < N_FORMATS; i++) {
        if (drawings[i].is_wanted) {
            write_script(script, layout, drawings[i].out.beside, (enum gnuplot_format)i);
        }
    }
    int failed = gnuplot_run(script, err);
    fclose(script);
    for (int i = 0; failed == 0 && i < N_FORMATS; i++) {
        if (drawings[i].is_wanted &&
            !gnuplot_is_whole(drawings[i].out.beside, (enum gnuplot_format)i)) {
            failed =
                err_world(err, "gnuplot did not write '%s': is the disk full?", drawings[i].path);
        }
    }
    return failed;
}

/* What is asked for and cannot be drawn here is said; an error where nothing else was asked for. */
static int leave_out(const char *stem, unsigned *formats, struct err *err) {
    const unsigned can = figure_can(), missing = *formats & FIGURE_PICTURES & ~can;
    *formats &= ~missing;
    for (int i = 0; i < N_FORMATS; i++) {
        if ((missing & flags[i]) == 0) {
            continue;
        }
        if ((*formats & FIGURE_PICTURES) == 0) {
            return err_world(err,
                             "%s%s cannot be drawn: this gnuplot was built without cairo; it draws "
                             ".svg%s (the package gnuplot-nox has all)",
                             stem, suffixes[i], (can & FIGURE_PNG) != 0 ? " and .png" : "");
        }
        fprintf(stderr,
                "unmask: %s%s is not drawn: this gnuplot was built without cairo (the package "
                "gnuplot-nox has all)\n",
                stem, suffixes[i]);
    }
    return 0;
}

unsigned figure_can(void) {
    unsigned can = FIGURE_CSV;
    for (int i = 0; i < N_FORMATS; i++) {
        can |= gnuplot_has((enum gnuplot_format)i) ? flags[i] : 0;
    }
    return can;
}

const char *figure_endings(void) {
    static const char *const endings[] = {".svg", ".svg, .png", ".svg, .pdf", ".svg, .png, .pdf"};
    const unsigned can = figure_can();
    return endings[((can & FIGURE_PNG) != 0) + 2 * ((can & FIGURE_PDF) != 0)];
}

static int draw(const struct layout *layout, const char *stem, unsigned formats, struct err *err) {
    struct drawing *drawings = mem_zeroed(N_FORMATS, sizeof *drawings);
    int failed = leave_out(stem, &formats, err);
    for (int i = 0; failed == 0 && i < N_FORMATS; i++) {
        struct drawing *drawing = &drawings[i];
        if ((formats & flags[i]) != 0) {
            snprintf(drawing->path, sizeof drawing->path, "%s%s", stem, suffixes[i]);
            failed = output_reserve(drawing->path, &drawing->out, err);
            drawing->is_wanted = failed == 0;
        }
    }
    failed = failed != 0 ? failed : run_script(layout, drawings, err);
    for (int i = 0; i < N_FORMATS; i++) {
        if (drawings[i].is_wanted) {
            int lost = output_close(&drawings[i].out, failed == 0, err);
            failed = failed != 0 ? failed : lost;
        }
    }
    free(drawings);
    return failed;
}

int figure_write(const struct figure *figure, const char *stem, unsigned formats, struct err *err) {
    char path[4096];
    if (strlen(stem) + 5 > sizeof path || strpbrk(stem, "\n\r") != NULL) {
        return err_usage(err, "'%s' cannot be the name of a figure", stem);
    }
    struct layout layout;
    int failed = lay_out(figure, &layout, err);
    for (size_t p = 0; failed == 0 && p < figure->n_panels; p++) {
        const struct panel *panel = &figure->panels[p];
        const bool has_values = panel->kind == PANEL_BARS && panel->values;
        layout.turns_values =
            layout.turns_values || (has_values && plot_values_touch(&layout, panel));
        layout.hides_values =
            layout.hides_values || (has_values && bar_px(&layout, panel) < UPRIGHT_VALUE_PX);
    }
    if (layout.turns_values && layout.hides_values) {
        layout.turns_values = false;
    } else {
        layout.hides_values = false;
    }
    if (failed == 0 && (formats & FIGURE_CSV) != 0) {
        snprintf(path, sizeof path, "%s.csv", stem);
        failed = figure_write_csv(figure, path, err);
    }
    if (failed == 0 && (formats & (FIGURE_SVG | FIGURE_PNG | FIGURE_PDF)) != 0) {
        failed = draw(&layout, stem, formats, err);
    }
    return failed;
}

/* The numbers of a figure as CSV. */

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
