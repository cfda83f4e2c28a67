/* What runs are varied over: a key and its values, from KEY=V,W,... of --over or a list of a
 * sweep's file; and what tables call such values. */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_OVER_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_OVER_H

#include <jansson.h>
#include <stdbool.h>

#include "experiments/run/asked.h"

enum {
    OVER_VALUE_CHARS = sizeof((struct setting *)0)->value,
    OVER_NAME_CHARS = 224,
    OVER_MOST_VALUES = 1000
};

/* `model`, `gpu` or a key of --set. */
struct over {
    char key[sizeof((struct setting *)0)->key]; /* "": none */
    char (*values)[OVER_VALUE_CHARS];           /* [n], different ones */
    size_t n;
};

/* ERR_USAGE where it is not KEY=V,W,..., a value is there twice, or there are more than `most`. */
int over_read(const char *text, size_t most, struct over *out, struct err *err);
void over_fini(struct over *over);

/* Asks for the value of a key; `place` goes into complaints. */
int over_ask(const char *key, const char *value, const char *place, struct asked *asked,
             struct err *err);

/* The values of a key as tables show them, one a name: a plug-in by its own, once `runs` has a
 * summary with it (NULL: there is none), with its file where two of them have one name. */
void over_names(const char *key, char (*values)[OVER_VALUE_CHARS], const json_t *const *runs,
                size_t n, char (*names)[OVER_NAME_CHARS]);

/* Whether a label has the key before the name: not where the name says of what it is one. */
bool over_says_key(const char *key);

#endif
