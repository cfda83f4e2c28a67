/* Output files that replace others: only their own kind, and only once they are whole. */
#ifndef UNMASK_ANALYSIS_OUTPUT_H
#define UNMASK_ANALYSIS_OUTPUT_H

#include "sim/base/err.h"

/* 0 when nothing stands at `path`, or a device, or an empty file, or a file that begins with
 * `head`, as the output itself does; ERR_USAGE else, so that a results database or an input given
 * by mistake is not overwritten. `what` ("a timeline") goes into the sentence. */
int output_may_replace(const char *path, const char *head, const char *what, struct err *err);

#endif
