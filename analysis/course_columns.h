/* What is known of a stretch of a recorded run's time (analysis/plot/course.h). */
#ifndef UNMASK_ANALYSIS_COURSE_COLUMNS_H
#define UNMASK_ANALYSIS_COURSE_COLUMNS_H

#include "analysis/column.h"

enum course_field {
    COURSE_TIME_S,       /* the bin's middle, from the first arrival */
    COURSE_TOKENS_PER_S, /* committed */
    COURSE_RUNNING,      /* requests, on average over the bin */
    COURSE_WAITING,
    /* Of the steps: NaN where there is none in the bin, or none was recorded. */
    COURSE_BATCH, /* requests a step, weighted by the steps' times */
    COURSE_KV_BYTES,
    COURSE_BUSY, /* share of the replicas' time; 0 where no step is */
    COURSE_FIELD_COUNT
};

extern const struct column course_columns[COURSE_FIELD_COUNT + 1];

#endif
