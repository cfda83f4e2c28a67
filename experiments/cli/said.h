/* Lines that concern several systems, printed once each: with the names of these systems, or
 * without names when it is all of them. */
#ifndef UNMASK_EXPERIMENTS_CLI_SAID_H
#define UNMASK_EXPERIMENTS_CLI_SAID_H

#include <jansson.h>
#include <stdio.h>

/* Starts zeroed. */
struct said {
    json_t *lines; /* {line: [name, ...]} */
    size_t n;      /* who says anything */
};

/* Adds the lines of `text`, which is cut at its newlines. */
void said_add(struct said *said, const char *name, char *text);

/* In the order in which they first came; releases what was said. */
void said_print(struct said *said, FILE *out);

#endif
