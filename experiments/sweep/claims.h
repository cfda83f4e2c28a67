/* Claims: which points of a grid somebody runs now, between all sweeps on one database.
 *
 * A claim is a lock on one byte of the file DATABASE-claims, at a place that the point's digest
 * gives. The system drops the locks of a program that ends, however it ends, so that no claim
 * outlives its owner and none needs a time stamp; and the database is the same whether points were
 * claimed or not. The file is removed by the last sweep that closes it. */
#ifndef UNMASK_EXPERIMENTS_SWEEP_CLAIMS_H
#define UNMASK_EXPERIMENTS_SWEEP_CLAIMS_H

#include <stdbool.h>

#include "sim/base/err.h"

struct claims;

/* `database` is its path. Where the file system has no locks, every claim succeeds. */
int claims_open(const char *database, struct claims **out, struct err *err);
void claims_close(struct claims *claims); /* drops all; NULL is fine */

/* False: another program has claimed it. `digest` is hexadecimal. */
bool claims_take(struct claims *claims, const char *digest);
void claims_drop(struct claims *claims, const char *digest);

#endif
