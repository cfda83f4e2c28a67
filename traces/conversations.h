/* Conversations: requests that follow one another.
 *
 * The first turn of a session arrives when its row says. A later one arrives `think_ns` after the
 * turn before it left the system, or, where that time is not known (-1), when its row says, but not
 * before that turn has left. A later turn's prompt begins with the turn before it, prompt and
 * answer, as far as it is longer than these; where a row names a shared prefix itself, that counts.
 * Rows without a session stand alone.
 *
 * All rows are in memory and keep their ids, so that random draws that are keyed by requests are
 * the same however they are served. */
#ifndef UNMASK_TRACES_CONVERSATIONS_H
#define UNMASK_TRACES_CONVERSATIONS_H

#include "sim/base/arrival.h"

struct conversations;

enum { CONVERSATIONS_MOST_ROWS = 4000000 }; /* more is an error: 350 MB */

/* Reads `rows` to its end, or `n` of them (0: all); their ids become 0, 1, 2, ... On an error
 * `*out` is NULL. */
int conversations_open(struct arrival_source rows, uint64_t n, struct conversations **out,
                       struct err *err);
void conversations_close(struct conversations *talks); /* NULL is fine */

/* One source of the sessions: it moves on. */
struct arrival_source conversations_source(struct conversations *talks);

#endif
