/* A packing problem from a file, in the columns of MiniMalloc's benchmarks.
 *
 * CSV with a header line; columns in any order: id (any text, once), lower and upper (times >= 0;
 * the buffer is live from lower up to but not including upper), size in bytes and, where wanted,
 * alignment in bytes. Everything else is refused with one sentence "path:line: ...". */
#ifndef UNMASK_SIM_MEMORY_INSTANCE_H
#define UNMASK_SIM_MEMORY_INSTANCE_H

#include "sim/planner/planner.h"

struct instance {
    struct packing packing; /* of the buffers below */
    struct packing_buffer *buffers;
    char **ids;
};

/* ERR_WORLD leaves nothing to free. */
int instance_read(const char *path, struct instance *out, struct err *err);
void instance_fini(struct instance *instance);

#endif
