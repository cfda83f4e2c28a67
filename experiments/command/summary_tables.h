/* One run's summary as tables for papers and programs: what run, replay and serve print by
 * --format in addition to their text. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_SUMMARY_TABLES_H
#define UNMASK_EXPERIMENTS_COMMAND_SUMMARY_TABLES_H

#include <jansson.h>

/* A row of the run, its times by percentile, and its tenants and classes where there are several;
 * nothing where tables are text, as people read the same in the summary. */
void summary_tables(const json_t *summary);

#endif
