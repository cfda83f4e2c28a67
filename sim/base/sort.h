/* Doubles in order, in a time that grows as their number does. */
#ifndef UNMASK_SIM_BASE_SORT_H
#define UNMASK_SIM_BASE_SORT_H

#include <stddef.h>

/* Rising; -0 before 0, infinities at the ends. None of them is NaN. */
void sort_doubles(double *values, size_t n);

#endif
