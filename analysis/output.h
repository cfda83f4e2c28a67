/* Output files: what replaces others, only its own kind and only once it is whole; XML and CSV. */
#ifndef UNMASK_ANALYSIS_OUTPUT_H
#define UNMASK_ANALYSIS_OUTPUT_H

#include <stdio.h>

#include "sim/base/err.h"

/* 0 when nothing stands at `path`, or a device, or an empty file, or a file that begins with
 * `head`, as the output itself does; ERR_USAGE else, so that a results database or an input given
 * by mistake is not overwritten. `what` ("a timeline") goes into the sentence. */
int output_may_replace(const char *path, const char *head, const char *what, struct err *err);

/* A text between the tags, or in the quotes, of XML and HTML. */
void output_xml_text(FILE *out, const char *text);

/* A cell of a CSV line, in quotes where it needs them. */
void output_csv_text(FILE *out, const char *text);

#endif
