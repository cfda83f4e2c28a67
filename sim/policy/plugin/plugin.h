/* A plug-in: a policy from a user's shared object, checked before anything calls into it.
 *
 * The object exports one const descriptor of its kind, named `unmask_policy`, for example
 * `const struct scheduler unmask_policy = {...};`, and links against nothing of ours. A plug-in
 * that was accepted stays loaded until the program ends. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_PLUGIN_H
#define UNMASK_SIM_POLICY_PLUGIN_PLUGIN_H

#include "sim/base/err.h"
#include "sim/policy/abi.h"

enum {
    PLUGIN_MAX_NAME = 32,   /* characters of a policy's or a parameter's name */
    PLUGIN_MAX_PARAMS = 64, /* what param_set can search for the nearest name */
};

/* Replicas each have a state; more than the machine's memory is refused, too. */
#define PLUGIN_MAX_STATE_BYTES (UINT32_MAX - (1u << 20))

/* Who says whether a plug-in may be loaded: 0, or an err kind with the sentence. `file` is what
 * `path` led to when it was opened, or -1; where the path leads elsewhere by now, it is refused
 * after that. */
struct plugin_gate {
    const void *state;
    int (*may_load)(const void *state, const char *path, int file, struct err *err);
};

/* From now on this thread asks before it loads any; NULL: all may be loaded. Returns the gate
 * before, to be handed back. */
const struct plugin_gate *plugin_ask(const struct plugin_gate *gate);

/* What this thread's gate says: 0, or an err kind with the sentence. */
int plugin_may_load(const char *path, int file, struct err *err);

/* Load the policy of `kind` in the file `path`, which holds a slash. ERR_WORLD when the file is not
 * a valid plug-in, which does not stay loaded, ERR_USAGE when it is one of another kind. */
int plugin_load(const char *path, enum policy_kind kind, const struct policy **out,
                struct err *err);

/* The same for a plug-in of any kind; its kind is (*out)->kind. */
int plugin_open(const char *path, const struct policy **out, struct err *err);

/* 0 when a descriptor, built in or loaded, is as its header asks: ABI, kind, size, name, callbacks,
 * state and parameters. `place` (the path) begins the sentence. */
int plugin_validate(const struct policy *policy, const char *place, struct err *err);

#endif
