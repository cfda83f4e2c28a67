/* What runs where: the table of what systems have that the engine lacks. It refuses, and `unmask
 * list features` and `list systems` print it; a simulation has everything that a system can be
 * made of. */
#ifndef UNMASK_ENGINE_SUPPORTED_H
#define UNMASK_ENGINE_SUPPORTED_H

#include "sim/system/system.h"

/* Live on the CPU, on a GPU, and on several ranks of either. */
enum { WHERE_CPU = 1 << 0, WHERE_CUDA = 1 << 1, WHERE_RANKS = 1 << 2 };

/* Which policy a feature is of, which a refusal then names. */
enum feature_of { OF_SYSTEM, OF_RUNTIME, OF_CACHE, OF_DECODER };

struct feature {
    enum feature_of of;
    unsigned lacked; /* WHERE_*: where it does not run */
    const char *name;
    bool (*has)(const struct system *system);
    const char *why;
    const char *instead; /* what to set; NULL: nothing that leaves the system what it is */
};
extern const struct feature feature_table[]; /* ends with a NULL name */

/* Whether it runs in all of these places at once. */
static inline bool feature_runs(const struct feature *feature, unsigned where) {
    return (feature->lacked & where) == 0;
}

/* The first feature of the system that one of these places lacks; NULL: none. */
const struct feature *feature_lacked(const struct system *system, unsigned where);

/* ERR_USAGE with a sentence where these places lack a feature of the system or do not run one of
 * its operators. */
int supports_system(const struct system *system, unsigned where, struct err *err);

#endif
