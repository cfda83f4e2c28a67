/* The interrupt: Ctrl-C as a flag that runs look at. */
#ifndef UNMASK_EXPERIMENTS_RUN_CLI_INTERRUPT_H
#define UNMASK_EXPERIMENTS_RUN_CLI_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP (except under nohup) remove unfinished files and end the
 * program, as they would have without us. */
void interrupt_start(void);

/* From now on the first of them sets the flag; the second ends the program at once. */
const volatile sig_atomic_t *interrupt_catch(void);

/* Whether the flag is set, and setting it as a signal would. */
bool interrupt_is_caught(void);
void interrupt_now(void);

#endif
