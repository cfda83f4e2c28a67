/* gnuplot as a child process: started by name from PATH without a shell and without its user's
 * start-up files; its complaints become our sentence. */
#ifndef UNMASK_ANALYSIS_GNUPLOT_H
#define UNMASK_ANALYSIS_GNUPLOT_H

#include <stdio.h>

#include "sim/base/err.h"

/* Runs the whole of `script`, a seekable stream, which stays the caller's. */
int gnuplot_run(FILE *script, struct err *err);

/* An error unless STEM+SUFFIX exists and is not empty. */
int gnuplot_check_output(const char *stem, const char *suffix, struct err *err);

#endif
