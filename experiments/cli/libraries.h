/* The process around a command: how it begins and how it ends. */
#ifndef UNMASK_EXPERIMENTS_CLI_LIBRARIES_H
#define UNMASK_EXPERIMENTS_CLI_LIBRARIES_H

/* Before anything else: the three standard streams are open, so that no file is taken for one;
 * signals are handled (interrupt.h); closed pipes and full files show as failed writes; and the
 * libraries that allocate (jansson, SQLite, GSL) end the program where memory is out, as our own
 * code does (sim/base/mem.h). */
void libraries_start(void);

/* Ends the process with that status, without the exit handlers of libraries: OpenBLAS would wait
 * for threads that never end when memory is short. What was printed has been flushed. */
_Noreturn void libraries_leave(int status);

#endif
