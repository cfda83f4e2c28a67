/* Who reads a key of a system: each key's doc says where, as a condition (sim/base/condition.h)
 * over the resolved system, its model and what runs it. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_READS_H
#define UNMASK_SIM_SYSTEM_SYSTEM_READS_H

#include "sim/base/condition.h"
#include "sim/system/system.h"

/* What a name of a condition stands for: a key of the system or of one of its parts, or of the
 * model (`model.experts`), resolved, or as it was set
 * (`asked.KEY`); what a part is (`cache`); and those of system_fact_doc. NULL:
 * the system has no such key. */
const char *system_fact(const struct system *system, const char *name, char text[FACT_CHARS]);

/* The i-th name that is not a key, with its description; NULL after the last. */
struct system_fact_doc {
    const char *name, *doc;
};
const struct system_fact_doc *system_fact_doc(size_t i);

/* A system and what carries it out: "sim", "cpu", "cuda"; "step" of single steps (`explain`,
 * `plan`) and "lmax" of the longest canvas. system_in_fact is the value of its facts: `backend`,
 * `serves` (on of the first three), `priced` (on of all but lmax) and `played` (off: of no decode
 * trace) in addition to those of the system. */
struct system_in {
    const struct system *system;
    const char *backend;
};
const char *system_in_fact(const void *system_in, const char *name, char text[FACT_CHARS]);

/* Where something would read a key (a condition, which `text` holds) though nothing does where
 * `facts` hold, which pass on names of the system to system_fact; NULL: it is read. */
const char *system_unread(const struct system *system, const char *key, const struct facts *facts,
                          char text[CONDITION_CHARS]);

/* A warning for each key in force that the user set and nothing reads. */
void system_warn_of_unread(const struct system *system, const struct facts *facts,
                           struct warnings *warnings);

/* The same where single steps are priced or planned. */
void system_warn_of_unread_in_step(const struct system *system, struct warnings *warnings);

/* Whether the scheduler's parameter `preempts`, where it has one, says to swap. */
bool system_preempts_by_swap(const struct system *system);

/* The doc of a key, of a part that was chosen (`router`) or of a parameter of what was chosen
 * (`cache.retention`); NULL: there is no such key. */
const char *system_key_doc(const struct system *system, const char *key);

/* The i-th part, NULL beyond the last: "scheduler", "cache", ... */
const char *system_part_at(size_t i);

/* The doc of what chooses a part: "router", "host"; NULL: it is no part. */
const char *system_part_doc(const char *name);

#endif
