/* Claims: which points of a grid somebody runs now, between all sweeps on one database
 * (analysis/store/protocol.h).
 *
 * A claim is a lock on one byte of the database file itself, far past its largest size, at an
 * offset that the point's digest gives. So it is the same by whatever name the file is opened,
 * needs no right but that to record, and cannot be deleted; and the system drops the locks of a
 * program that ends, however it ends, so that no claim outlives its owner and none needs a time
 * stamp.
 *
 * Closing any descriptor of a file drops the locks that SQLite has of it in this process: claims
 * are closed after the store is, and nothing else in the process opens the database meanwhile. */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_CLAIMS_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_CLAIMS_H

#include "analysis/store/protocol.h"
#include "sim/base/err.h"

struct claims;

/* `database` is its path; it exists. */
int claims_open(const char *database, struct claims **out, struct err *err);
void claims_close(struct claims *claims); /* drops all; NULL is fine */

/* NO: another program has claimed it; FAILED: the file system has no such locks, which is told
 * once. `digest` is hexadecimal. */
enum protocol_answer claims_take(struct claims *claims, const char *digest);
void claims_drop(struct claims *claims, const char *digest);

#endif
