/* gnuplot as a child process: started by name from PATH without a shell and without its user's
 * start-up files; its complaints become our sentence. */
#ifndef UNMASK_ANALYSIS_PLOT_GNUPLOT_H
#define UNMASK_ANALYSIS_PLOT_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

#include "sim/base/err.h"

/* 'text' with quotes doubled: in single quotes gnuplot neither expands nor executes anything. */
void gnuplot_quote(FILE *script, const char *text);

enum gnuplot_format { GNUPLOT_SVG, GNUPLOT_PNG, GNUPLOT_PDF };

/* Whether gnuplot can draw this: one without cairo (PyPI's, of many clusters) draws no PDF, and its
 * PNG is GD's. Where it does not answer, true. */
bool gnuplot_has(enum gnuplot_format format);

/* The terminal and its output file. Width and height are pixels of an SVG; a PNG has twice as
 * many, a PDF an inch for every 96. */
void gnuplot_set_output(FILE *script, const char *path, enum gnuplot_format format, int width,
                        int height, const char *font);

/* How long one gnuplot may take, in seconds; default: 120. */
extern int gnuplot_most_s;

/* Runs the whole of `script`, a seekable stream, which stays the caller's. A gnuplot that hangs is
 * stopped, and ends with us. */
int gnuplot_run(FILE *script, struct err *err);

/* Whether what gnuplot wrote is whole: it has no word for a full disk. */
bool gnuplot_is_whole(const char *path, enum gnuplot_format format);

#endif
