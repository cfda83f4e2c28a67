/* Public measurements of collectives, compared with the model of the GPUs' link
 * (sim/price/link.h). */
#ifndef UNMASK_EXPERIMENTS_STUDY_COLLECTIVES_H
#define UNMASK_EXPERIMENTS_STUDY_COLLECTIVES_H

#include "experiments/run/cli/table.h"
#include "sim/base/err.h"

/* A row for each of experiments/study/reference/collectives.csv, in the file's order: `bytes` are
 * those of the message that every GPU holds, `off` is modelled over measured. NULL on an error. */
struct table *collectives_table(struct err *err);

#endif
