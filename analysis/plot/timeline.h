/* A timeline of a run for Perfetto (ui.perfetto.dev) or chrome://tracing, as Trace Event JSON.
 *
 * One track per replica with a slice per submission (its phases, requests, tokens, repeats),
 * counters for running and waiting requests and KV memory, and instants where a request was
 * rejected or preempted. Written while the run happens: the file is whole JSON after every write to
 * disk, so a run that stops early, even by a signal, leaves a timeline that opens. */
#ifndef UNMASK_ANALYSIS_PLOT_TIMELINE_H
#define UNMASK_ANALYSIS_PLOT_TIMELINE_H

#include "sim/serve/record.h"

struct timeline;

/* Replaces the file at `path`. `title` names the run in the viewer. */
int timeline_open(const char *path, const char *title, struct timeline **out, struct err *err);

/* Records steps and events; valid until timeline_close. */
struct sink timeline_sink(struct timeline *timeline);

/* Writes what is pending and frees the timeline, also on an error. NULL is allowed. */
int timeline_close(struct timeline *timeline, struct err *err);

#endif
