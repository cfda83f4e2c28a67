/* A timeline of a run for Perfetto (ui.perfetto.dev) or chrome://tracing, as Trace Event JSON.
 *
 * One track per replica with a slice per submission (its phases, requests, tokens, repeats),
 * counters for running and waiting requests, the batch, KV memory and, where it is known, power.
 * One track per request: all of it (done, or rejected and why), within that its stays (queued,
 * running, preempted), within these its blocks, within those its passes that prefill, refresh or
 * commit. Instants where a request was rejected or preempted. Written while the run happens, as
 * PATH.part in the same folder, which is whole JSON after every write to disk, so that a run that
 * is killed leaves a timeline that opens. */
#ifndef UNMASK_ANALYSIS_PLOT_TIMELINE_H
#define UNMASK_ANALYSIS_PLOT_TIMELINE_H

#include "sim/serve/record.h"

struct timeline;

/* To replace the file at `path`, once all of it is written. `title` names the run in the viewer. */
int timeline_open(const char *path, const char *title, struct timeline **out, struct err *err);

/* Records steps and events; valid until timeline_close. */
struct sink timeline_sink(struct timeline *timeline);

/* Writes what is pending and frees the timeline; where anything could not be written, what stood at
 * its path stays. NULL is allowed. */
int timeline_close(struct timeline *timeline, struct err *err);

#endif
