/* Conditions: where a key of a table is read, or an option, as text at the end of its doc.
 *
 *   "chunks of the FFN [chunk_search = always]"
 *   "of the newest count [cache.history = ema and cache.choice = surge|left]"
 *   "which GPU a request goes to [replicas > 1 or backend = cuda]"
 *
 * Terms are NAME OP WORD; OP is = or !=, where any of several words joined by | may stand, or < or
 * >, between numbers, of which the second may be a name's. `and` binds closer than `or`. A doc
 * without a condition is of what is always read. Names are keys of the resolved configuration and
 * the facts that its owner adds (system_fact, workload_fact, ...). */
#ifndef UNMASK_SIM_BASE_CONDITION_H
#define UNMASK_SIM_BASE_CONDITION_H

#include <stdbool.h>
#include <stddef.h>

enum { CONDITION_CHARS = 192, FACT_CHARS = 192 };

/* What names stand for: the value as text, which may lie in `text`; NULL: there is no such name,
 * which equals nothing. */
struct facts {
    const char *(*value)(const void *state, const char *name, char text[FACT_CHARS]);
    const void *state;
};

/* The condition that a doc ends with, without its brackets; NULL where there is none, or what
 * stands in brackets is no condition. */
const char *condition_of(const char *doc, char text[CONDITION_CHARS]);

/* The length of a doc without its condition. */
size_t condition_doc_length(const char *doc);

/* Whether it holds. What is no condition does not. */
bool condition_holds(const char *condition, const struct facts *facts);

/* As a sentence has it: "requests are served and kv = pages", facts in words and keys as they are
 * set. What is no condition is given as it stands. Returns `text`. */
enum { CONDITION_WORDS_CHARS = 2 * CONDITION_CHARS };
const char *condition_words(const char *condition, char text[CONDITION_WORDS_CHARS]);

/* Whether its form is right. */
bool condition_is_valid(const char *condition);

/* The next name of a condition, from `*rest` on, into `name`; false after the last. */
bool condition_next_name(const char **rest, char name[FACT_CHARS]);

#endif
