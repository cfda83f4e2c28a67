/* The static variables of a plug-in: what of its object is written while it is called. Every run
 * and replica has its own (object.h); check-plugin says that there are some. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_STATICS_H
#define UNMASK_SIM_POLICY_PLUGIN_STATICS_H

#include <stddef.h>

enum { STATICS_MOST_RANGES = 4 };

struct statics {
    struct statics_range {
        char *at;
        size_t bytes;
    } ranges[STATICS_MOST_RANGES]; /* of memory, where variables can be */
    unsigned n;
    size_t bytes; /* of all of them */
};

/* Of the loaded object that `symbol` is in. */
void statics_of(const void *symbol, struct statics *out);

/* Whether the object file has variables, by its table of symbols, which it may lack. */
enum statics_found { STATICS_UNKNOWN, STATICS_NONE, STATICS_SOME };
enum statics_found statics_in_file(const char *path);

/* Copies `bytes` of variables. */
void statics_keep(const struct statics *statics, void *copy);

/* How many of these bytes are others than in the copy. */
size_t statics_changed(const struct statics *statics, const void *copy);

#endif
