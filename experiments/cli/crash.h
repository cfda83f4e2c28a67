/* A crash inside a user's policy: one sentence and status 1 instead of a bare signal. */
#ifndef UNMASK_EXPERIMENTS_CLI_CRASH_H
#define UNMASK_EXPERIMENTS_CLI_CRASH_H

/* From now on a crash of the program is blamed on the plug-in at `path`: it passed its exercise,
 * but runs unguarded. The last one named is blamed. Callable from threads. */
void crash_blame(const char *path);

#endif
