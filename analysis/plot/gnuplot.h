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

/* The terminal and the file behind it. Width and height are pixels of an SVG; a PNG has twice as
 * many, a PDF an inch for every 96. */
void gnuplot_set_output(FILE *script, const char *path, enum gnuplot_format format, int width,
                        int height);

/* Runs the whole of `script`, a seekable stream, which stays the caller's. */
int gnuplot_run(FILE *script, struct err *err);

/* An error unless STEM+SUFFIX exists and is not empty. */
int gnuplot_check_output(const char *stem, const char *suffix, struct err *err);

#endif
