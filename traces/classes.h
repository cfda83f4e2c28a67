/* Classes of requests: several workloads at once, each with a tenant's number.
 *
 *   [workload]
 *   classes = chat.ini, batch.ini   workloads by path, relative to this file, or by name
 *   requests = 2000                 of all; each has its share by rate. Absent: as theirs say
 *   rate = 1.0                      of all, in the proportion of their own. Absent: as theirs say
 *   context = 4096                  of each
 *
 * The requests of the first are tenant 0, those of the second tenant 1, and so on: objectives speak
 * of them (`--slo 'tenant 1: p95 ttft<2s'`). Each class draws from random streams of its own. */
#ifndef UNMASK_TRACES_CLASSES_H
#define UNMASK_TRACES_CLASSES_H

#include "traces/workload.h"

enum { MAX_CLASSES = 16 };

struct classes;

/* Whether the file is one of classes. */
bool classes_are_in(const struct config *config);

/* Opens every class. ERR_USAGE on keys that classes do not take, on a total rate or number where
 * one of them has no rate, and on a class that has classes or prompts. */
int classes_open(const struct config *config, const struct workload_options *options,
                 struct classes **out, struct err *err);
void classes_close(struct classes *classes); /* NULL is fine */

struct workload *classes_at(const struct classes *classes, uint32_t i); /* NULL: no more */

/* The requests of all in order of arrival. One source: it moves on. */
struct arrival_source classes_source(struct classes *classes);

#endif
