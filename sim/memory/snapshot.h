/* PyTorch's memory snapshot (torch.cuda.memory._snapshot) as an allocation stream: its
 * device_traces, in JSON or as a pickle (sim/memory/pickle.h), as
 * torch.cuda.memory._dump_snapshot writes it. What was allocated before the trace began is not
 * known: its frees are passed over, and the stream's source says how many. */
#ifndef UNMASK_SIM_MEMORY_SNAPSHOT_H
#define UNMASK_SIM_MEMORY_SNAPSHOT_H

#include <stdbool.h>

#include "sim/memory/stream.h"

/* Whether a file begins as JSON does, or as Python's pickles do. */
bool snapshot_is(const char *path);

/* Into an initialised, empty stream. ERR_WORLD: it is no such snapshot, or of several devices or
 * CUDA streams, of which a stream is one. */
int snapshot_read(const char *path, struct stream *stream, struct err *err);

#endif
