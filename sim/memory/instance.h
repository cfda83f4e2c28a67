/* A packing problem from a file, in the columns that MiniMalloc reads and writes
 * (google/minimalloc, src/converter.cc).
 *
 * CSV with a header line; columns in any order: id (or buffer, buffer_id: any text, once), lower
 * (or start, begin) and upper (times >= 0; the buffer is live from lower up to but not including
 * upper) or, in older files, end (the last time at which it is live), size in bytes and, where
 * wanted, alignment in bytes. With offset, in bytes, the file has a solution. hint and gaps are
 * passed over: without gaps a buffer keeps its space all its life. Everything else is refused with
 * one sentence "path:line: ...". */
#ifndef UNMASK_SIM_MEMORY_INSTANCE_H
#define UNMASK_SIM_MEMORY_INSTANCE_H

#include "sim/memory/planner/planner.h"

struct instance {
    struct packing packing; /* of the buffers below */
    struct packing_buffer *buffers;
    char **ids;
    int64_t *offset_bytes;    /* of the file's own solution; NULL: it has none */
    bool has_hints, has_gaps; /* columns that were passed over */
};

/* ERR_WORLD leaves nothing to free. */
int instance_read(const char *path, struct instance *out, struct err *err);
void instance_fini(struct instance *instance);

#endif
