/* Figures: panels of lines, points or bars, drawn by gnuplot as a child process.
 *
 * A figure is plain data; drawing writes STEM.svg, STEM.png, STEM.pdf and the numbers as STEM.csv.
 * A series keeps its colour (Okabe and Ito's colour-blind-safe palette) by name over all panels.
 * Values a paper printed are open markers over ours. No shell is involved and text is never a
 * command. */
#ifndef UNMASK_ANALYSIS_PLOT_PLOT_H
#define UNMASK_ANALYSIS_PLOT_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

enum panel_kind {
    PANEL_XY,      /* lines and points over x */
    PANEL_BARS,    /* one group of bars a category */
    PANEL_STACKED, /* one bar a category, series on top of each other */
};

enum line_style {
    STYLE_LINE_POINTS,
    STYLE_LINE,
    STYLE_POINTS,
    STYLE_STEPS,  /* a step function, such as a count over time */
    STYLE_DASHED, /* a reference line */
};

/* A NaN is a gap, or nothing: no error bar from low to high, no printed value. */
struct plot_point {
    double x, y, low, high, paper;
};

/* In bar panels x is ignored and n is the panel's n_categories. */
struct plot_series {
    const char *name; /* in the legend, and the identity of its colour */
    const struct plot_point *points;
    size_t n;
    enum line_style style; /* PANEL_XY only */
};

struct panel {
    enum panel_kind kind;
    const char *title, *x_label, *y_label; /* labels name the unit */
    const struct plot_series *series;
    size_t n_series;
    const char *const *categories; /* bar panels only */
    size_t n_categories;
    bool log_x, log_y;
    bool values;         /* print bar heights over the bars */
    double y_line;       /* a thin horizontal reference line; 0: none */
    double y_min, y_max; /* fixed range where y_max > y_min */
};

struct figure {
    const char *title;
    const char *provenance; /* below the figure: profile kind, what is assumed */
    const struct panel *panels;
    size_t n_panels;
    size_t n_columns; /* panels side by side; 0: all */
    /* A panel's whole width and the height of its plotted area, pixels of the SVG; 0: 460, 240. */
    int panel_width, panel_height;
    const char *font; /* NULL: sans-serif */
};

enum {
    FIGURE_SVG = 1,
    FIGURE_PNG = 2,
    FIGURE_CSV = 4,
    FIGURE_PDF = 8,
    FIGURE_PICTURES = 11,
    FIGURE_ALL = 15
};

/* Those that the gnuplot of this machine can write. */
unsigned figure_can(void);

/* ".svg, .png, .pdf": their names. */
const char *figure_endings(void);

/* Write the chosen formats to STEM.svg, .png, .pdf, .csv; PNG has twice the SVG's pixels. Of
 * several, one that gnuplot cannot write here is named on standard error and left out. */
int figure_write(const struct figure *figure, const char *stem, unsigned formats, struct err *err);

/* The numbers alone, as CSV: panel,series,x,y,low,high,paper. */
int figure_write_csv(const struct figure *figure, const char *path, struct err *err);

#endif
