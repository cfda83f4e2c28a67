/* What a figure draws of raw measurements: CSV files that a command wrote, and which of their
 * columns and rows make its lines.
 *
 * A panel and a series name rows ("column=value, ..."); a series has a value, a sum of columns, and
 * may have another one that it is shown over. Of several rows the median counts. A row of the
 * paper names the series, and which of its points, that it speaks of. */
#ifndef UNMASK_EXPERIMENTS_STUDY_MEASURED_H
#define UNMASK_EXPERIMENTS_STUDY_MEASURED_H

#include "experiments/cli/words.h"
#include "sim/base/config.h"

enum { MEASURED_TEXT = 160, MEASURED_ROWS = 24 };

/* How a value is shown over the other: as it is, or in percent but for the quotient. */
enum measured_show {
    SHOW_VALUE,
    SHOW_RATIO,
    SHOW_INCREASE,
    SHOW_REDUCTION,
    SHOW_SHARE,
};

struct measured_panel {
    char title[MEASURED_TEXT], where[MEASURED_TEXT];
    char value[MEASURED_TEXT]; /* of series that name none */
};

struct measured_series {
    char name[GRID_WORD], value[MEASURED_TEXT], where[MEASURED_TEXT];
    char over_value[MEASURED_TEXT]; /* "": the same columns */
    char over[MEASURED_TEXT];       /* "": over nothing */
};

struct measured_row {
    char quantity[GRID_WORD], system[GRID_WORD], series[GRID_WORD];
    char panel[MEASURED_TEXT]; /* "": all */
    char pick[GRID_WORD];      /* min, max, mean, or the x of the one that counts */
    char role[16];             /* a word of paper_role_words; "": counted */
    char reading[96];
};

struct measured {
    char folder[MEASURED_TEXT]; /* "" where all is priced; from the repository's root */
    char files[MEASURED_TEXT];  /* in it */
    char along[MEASURED_TEXT];  /* the column of x; of several the one that a file has */
    char x_label[MEASURED_TEXT], y_label[MEASURED_TEXT], note[MEASURED_TEXT];
    enum measured_show show;
    bool log_x, log_y;
    struct measured_panel panels[GRID_MOST];
    struct measured_series series[GRID_MOST];
    struct measured_row rows[MEASURED_ROWS];
    size_t n_panels, n_series, n_rows;
};

/* NaN where there is no measurement. */
struct measured_values {
    double x[GRID_MOST], y[GRID_MOST][GRID_MOST][GRID_MOST]; /* [panel][series][x] */
    size_t n_x;
};

/* The sections [panel TITLE], [series NAME] and [row ...], and the keys of [figure] that are
 * `measured`'s alone; those of all figures are left to the grid. */
int measured_read(const struct config *config, struct measured *out, struct err *err);

/* Whether a section, or a key of [figure], is measured_read's. */
bool measured_knows(const char *section, const char *key);

/* Read the files, and the lines of `priced`, a CSV of its own, where it is not NULL. */
int measured_find(const struct measured *measured, const char *priced, struct measured_values *out,
                  struct err *err);

/* What a row picks of the values; NaN where it has none. */
double measured_pick(const struct measured *measured, const struct measured_values *values,
                     const struct measured_row *row);

#endif
