/* Calls that may never return: opening and reading what another program or machine answers for, a
 * FIFO or a stalled network folder, or a GPU that others fill. Whoever makes one says so, so that
 * an interrupt that only asks the program to end can tell that it will not. */
#ifndef UNMASK_SIM_BASE_WAIT_H
#define UNMASK_SIM_BASE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* Around one such call, on any thread; `wait_end` takes what wait_begin returned. */
int wait_begin(void);
void wait_end(int place);

/* How many have begun; whether one of the first `count` has not ended. For signal handlers, too. */
uint64_t wait_count(void);
bool wait_is_on(uint64_t count);

#endif
