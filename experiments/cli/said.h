/* Lines that several systems say: each once, with the systems it is of unless it is of all. */
#ifndef UNMASK_EXPERIMENTS_CLI_SAID_H
#define UNMASK_EXPERIMENTS_CLI_SAID_H

#include <jansson.h>
#include <stdio.h>

/* Starts zeroed. */
struct said {
    json_t *lines; /* {line: [name, ...]} */
    size_t n;      /* who says anything */
};

/* The lines of `text`, which is taken apart. */
void said_add(struct said *said, const char *name, char *text);

/* In the order in which they first came; releases what was said. */
void said_print(struct said *said, FILE *out);

#endif
