/* A plot of what was found before: fields of runs over one another, distributions of their
 * requests, their course over time.
 *
 * It is a study without a file: the tables are those of the jobs `recorded`, `json`, `requests` and
 * `course`, and what is drawn is a query over them, composed here. Runs that differ in the seed
 * alone are one point, their mean with the 95 % interval; runs that differ in anything else are
 * never averaged. Fields are named as in `run --json`, or as columns of a study's tables. */
#ifndef UNMASK_EXPERIMENTS_STUDY_PLOT_H
#define UNMASK_EXPERIMENTS_STUDY_PLOT_H

#include <stdbool.h>

#include "experiments/run/sweep/over.h"
#include "experiments/study/study.h"

enum { PLOT_MOST_FILES = 16, PLOT_MOST_FIELDS = 8, PLOT_MOST_NAMES = 64 };

enum plot_kind {
    PLOT_FIELDS,    /* `y` of runs over `x` */
    PLOT_REQUESTS,  /* `y` of single requests over `x`, theirs too */
    PLOT_CDF,       /* share of all requests over each field of `y`, those of requests */
    PLOT_OVER_TIME, /* each field of `y`, those of a run's course, over time */
};

struct plot_list {
    char column[PLOT_MOST_FIELDS][128];
    char name[PLOT_MOST_FIELDS][128]; /* as they were typed */
    size_t n;
};

struct plot_request {
    const char *files[PLOT_MOST_FILES]; /* databases, what `sweep --json` printed, or "-" */
    size_t n_files;
    enum plot_kind kind;
    struct plot_list x, y; /* x has one field, of the first two kinds */
    struct plot_list by, facets;
    const char *where;      /* a condition in SQL over the fields of runs, or NULL */
    struct against against; /* y less that of whom it names, paired by seed; not given: y itself */
    const char *look;       /* lines, points, steps or bars; NULL: lines, and bars over words */
    const char *title;      /* NULL: made of the fields */
    bool log_x, log_y;
    const char *x_label, *y_label;      /* NULL: the fields', with their units */
    bool with_bounds;                   /* next to y what no scheduler beats, of PLOT_FIELDS */
    const char *inches, *font, *note;   /* of the figure (figure.h); NULL: as usual */
    const char *names[PLOT_MOST_NAMES]; /* [n_names] "LINE=NAME" or "LINE", in their order */
    size_t n_names;
};

/* "a, b" as a list. */
bool plot_list_has(const struct plot_list *list, const char *column);
int plot_list_read(const char *text, const char *option, struct plot_list *out, struct err *err);

/* Fill `tables`: the runs for which the condition holds are the table `chosen`. */
int plot_fill(const struct plot_request *request, struct tables *tables, struct err *err);

/* Compose the study, whose answer is then the table `drawn`. study_close in any case. ERR_USAGE
 * where a field is unknown, none is so as --against says, or runs would share a place that differ
 * in more than the seed. */
int plot_ask(struct plot_request *request, struct tables *tables, struct study *out,
             struct err *err);

#endif
