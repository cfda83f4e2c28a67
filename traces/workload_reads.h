/* Who reads a workload's keys: what conditions (sim/base/condition.h) speak of, and which keys that
 * the user set nothing reads. */
#ifndef UNMASK_TRACES_WORKLOAD_READS_H
#define UNMASK_TRACES_WORKLOAD_READS_H

#include "sim/base/condition.h"
#include "sim/base/warning.h"
#include "traces/workload.h"

/* What a name of a condition stands for (sim/base/condition.h): `workload.KEY` of its file, of its
 * arrivals and its lengths, and the facts of workload_fact_docs; of classes, those that hold of all
 * of them. NULL: no such name. */
const char *workload_fact(const struct workload *workload, const char *name, char text[FACT_CHARS]);

struct workload_fact_doc {
    const char *name, *doc; /* the last one's name is NULL */
};
extern const struct workload_fact_doc workload_fact_docs[];

/* The doc of a key of the file itself, not of a process or a model; NULL: it has none. */
const char *workload_spec_doc(const char *key);

/* A warning for each key that the user set, in a file or by --set, and that nothing reads. */
void workload_warn_of_unread(const struct workload *workload, struct warnings *warnings);

#endif
