/* Who started the program, where that is another program of which it is a part: the environment's
 * UNMASK_PARENT is its number. The program ends when that one ends, however it does, and is
 * stopped when that one is stopped; who stopped goes on and has it go on. A process that lives and
 * did not start this one does not count as its parent. */
#ifndef UNMASK_EXPERIMENTS_CLI_PARENT_H
#define UNMASK_EXPERIMENTS_CLI_PARENT_H

/* From now on; nothing where no parent is named. */
void parent_follow(void);

#endif
