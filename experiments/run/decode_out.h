/* The decode trace that --decode-out writes: what every pass of every request committed and, where
 * a device decides, its outputs for each position. */
#ifndef UNMASK_EXPERIMENTS_RUN_DECODE_OUT_H
#define UNMASK_EXPERIMENTS_RUN_DECODE_OUT_H

#include "engine/fleet.h"
#include "sim/serve/loop.h"

struct decode_out;

/* Makes PATH.part, which decode_out_close renames. ERR_USAGE when `path` holds something else than
 * a decode trace, or the one that is played (`played`; NULL: none is). The run needs
 * records_members; where a device decides, `live` is watched, and its system makes statistics
 * (system_request.statistics); else NULL. */
int decode_out_open(const char *path, const char *played, const struct system *system,
                    struct fleet *fleet, struct decode_out **out, struct err *err);
struct sink decode_out_sink(struct decode_out *out);

/* Of whom the trace is; NULLs where there is nothing to say. */
struct decode_about {
    const struct system *system;
    const char *config; /* the resolved configuration */
    const char *played, *weights, *device;
    const char *trace, *trace_provenance;
    const struct end_tokens *ends;
    uint64_t seed;
    const char *incomplete;
};

/* For a run that may be killed: from now on what requests decoded is in PATH.part about a second
 * after they are done, a decode trace that says what `about` does. It stays there if the program is
 * killed, or its end cannot be written. */
int decode_out_keep(struct decode_out *out, const struct decode_about *about, struct err *err);

/* The run is over: writes the trace of the requests that finished, or leaves nothing where `about`
 * is NULL. NULL is fine. */
int decode_out_close(struct decode_out *out, const struct decode_about *about, struct err *err);

#endif
