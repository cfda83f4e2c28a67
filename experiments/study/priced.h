/* Step times of a figure, priced: a CSV as `unmask plan latency --csv` writes it, without what is
 * timed on a host, so that the same figure is the same bytes anywhere. */
#ifndef UNMASK_EXPERIMENTS_STUDY_PRICED_H
#define UNMASK_EXPERIMENTS_STUDY_PRICED_H

#include "experiments/study/grid.h"

/* The first steps of the figure's systems on its GPUs with its models, over its canvases (values),
 * shares of the prompt and numbers of chunks, into a text to be freed. A step that does not fit has
 * no line. */
int priced_csv(const struct grid *grid, char **out, struct err *err);

#endif
