/* The internals of figures, for plot*.c only. */
#ifndef UNMASK_ANALYSIS_PLOT_PLOT_IMPL_H
#define UNMASK_ANALYSIS_PLOT_PLOT_IMPL_H

#include <stdio.h>

#include "analysis/plot/plot.h"

enum {
    MAX_NAMES = 32, /* different series names in one figure */
    /* Strips and margins in pixels of the SVG. */
    TITLE_PX = 36,
    LEGEND_ROW_PX = 24,
    LEFT_PX = 76,
    RIGHT_PX = 22,
    TOP_PX = 32,
    TICS_PX = 34,
    LABEL_PX = 24,
    NOTE_ROW_PX = 16,
    CHARACTER_PX = 7,       /* of the 12-point font, about */
    VALUE_CHARACTER_PX = 7, /* of the numbers over bars, where they are widest */
    VALUE_ROW_PX = 16,
    NOTE_CHARACTER_PX = 7, /* of the 9-point font in the PNG, where it is widest */
};

/* Everything drawing needs to know that is not in one panel. */
struct layout {
    const struct figure *figure;
    const char *names[MAX_NAMES]; /* different series names in order of appearance */
    enum panel_kind kinds[MAX_NAMES];
    size_t n_names;
    bool has_paper;
    bool turns_values;               /* numbers over bars stand upright, where they would touch */
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

struct plot_range plot_y_range(const struct panel *panel);

/* Commands for the axes; of y with room for numbers over the bars. */
void plot_write_x_range(FILE *out, const struct panel *panel, int width_px);
void plot_write_y_range(FILE *out, const struct layout *layout, const struct panel *panel,
                        const struct plot_range *range);

/* A number over a bar; how many characters it has. */
enum { PLOT_VALUE_CHARS = 32 };
int plot_value_text(double y, char text[PLOT_VALUE_CHARS]);

/* What a number stands over: its bar, an error bar or a printed value. */
double plot_top_of(const struct plot_point *point);

/* Whether the numbers over two bars of one category would touch. */
bool plot_values_touch(const struct layout *layout, const struct panel *panel);

#endif
