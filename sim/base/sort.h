/* Doubles in order, in a time that grows as their number does. */
#ifndef UNMASK_SIM_BASE_SORT_H
#define UNMASK_SIM_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Rising; -0 before 0, infinities at the ends. None of them is NaN. */
void sort_doubles(double *values, size_t n);

/* By key; items of one key stay in their order. Doubles' keys rise as they do. */
struct sort_item {
    uint64_t key;
    size_t place; /* the caller's */
};
uint64_t sort_key(double value);
void sort_items(struct sort_item *items, size_t n);

#endif
