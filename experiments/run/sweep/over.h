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

/* ERR_USAGE where the key is of the traffic that all of what is compared shares. */
int over_refuse_traffic(const char *key, struct err *err);

/* Asks for the value of a key; `place` goes into complaints. */
int over_ask(const char *key, const char *value, const char *place, struct asked *asked,
             struct err *err);

/* The values of a key as tables show them, one a name: a plug-in by its own, once `runs` has a
 * summary with it (NULL: there is none), with its file where two of them have one name. */
void over_names(const char *key, char (*values)[OVER_VALUE_CHARS], const json_t *const *runs,
                size_t n, char (*names)[OVER_NAME_CHARS]);

/* Whether a label has the key before the name: not where the name says of what it is one. */
bool over_says_key(const char *key);

/* Who the others are compared with: KEY=VALUE of --against, spelled as for --over. */
struct against {
    char key[sizeof((struct setting *)0)->key]; /* "": none was given */
    char value[OVER_VALUE_CHARS];
};
int against_read(const char *text, struct against *out, struct err *err); /* NULL: not given */

/* Where its value stands among `n` texts that lie `stride` bytes apart: the same text or number, or
 * of a file its name, with or without its ending. ERR_USAGE, with what there is, where none is it
 * or several are. */
int against_find(const struct against *against, const char *values, size_t stride, size_t n,
                 size_t *at, struct err *err);

/* That no two of what is compared differ in its key; `keys`: those in which they do. */
int against_bad_key(const struct against *against, const char *const *keys, size_t n,
                    struct err *err);

/* "scheduler=look-ahead"; the name alone where it says of what it is one. Returns `text`. */
enum { AGAINST_NAME_CHARS = 2 * OVER_VALUE_CHARS };
const char *against_name(const struct against *against, const char *name,
                         char text[AGAINST_NAME_CHARS]);

#endif
