/* The decode trace that `run --decode-out` writes: what every pass of every request committed. */
#ifndef UNMASK_EXPERIMENTS_RUN_DECODE_OUT_H
#define UNMASK_EXPERIMENTS_RUN_DECODE_OUT_H

#include "experiments/run/compose.h"

struct decode_out;

/* Makes PATH.part, which decode_out_close renames. ERR_USAGE when `path` holds something else than
 * a decode trace, or the one that the composition plays. The run needs records_members. */
int decode_out_open(const char *path, const struct composition *composition,
                    struct decode_out **out, struct err *err);
struct sink decode_out_sink(struct decode_out *out);

/* The run is over: writes the trace of the requests that finished where `keeps`, else leaves
 * nothing. NULL is fine. */
int decode_out_close(struct decode_out *out, const struct composition *composition, bool keeps,
                     struct err *err);

#endif
