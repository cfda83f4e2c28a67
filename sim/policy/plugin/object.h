/* The object files of plug-ins: a plug-in is one object in the file system, and as many in memory
 * as there are worlds (a run's cache policy, decoder and router, a replica's scheduler) that call
 * it. Each has its own static and thread-local variables, its constructors run when a world begins
 * and its destructors when it ends. Libraries that a plug-in is linked to are shared by all.
 *
 * The first world of a run has the object that was loaded from the file, where a debugger finds it.
 * Every other has a copy of the same bytes, which is loaded from memory, whatever the file's name
 * leads to by then. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_OBJECT_H
#define UNMASK_SIM_POLICY_PLUGIN_OBJECT_H

#include <stdbool.h>

#include "sim/base/err.h"
#include "sim/policy/abi.h"

struct object;

/* Loads what the open `file` at `path` holds and calls `validate`, with the loaded object's symbol
 * `unmask_policy` or NULL, of whose answer this is. The same bytes under the same path are loaded
 * and validated once. *out stays loaded until the program ends. ERR_WORLD. */
int object_open(const char *path, int file,
                int (*validate)(const void *symbol, const char *path, struct err *err),
                const struct policy **out, struct err *err);

/* The object that this policy was loaded in; NULL: it came from no file. */
struct object *object_of(const struct policy *first);

/* A world's own load of it: its descriptor, and a handle for object_close. `is_for_run`: or it is
 * asked before and between runs. ERR_WORLD. */
int object_load(struct object *object, bool is_for_run, const struct policy **out, void **handle,
                struct err *err);
void object_close(const struct object *object, void *handle); /* a handle of NULL is fine */

#endif
