/* A canvas on a terminal: an output's text while its masks fill in, drawn over itself. */
#ifndef UNMASK_EXPERIMENTS_RUN_CLI_CANVAS_H
#define UNMASK_EXPERIMENTS_RUN_CLI_CANVAS_H

#include <stdint.h>
#include <stdio.h>

#include "engine/weights/tokenizer.h"

struct canvas {
    FILE *out;
    const struct tokenizer *tokenizer;
    int32_t mask;           /* is drawn as a light block */
    unsigned columns, rows; /* of the terminal; of more rows than it has the last ones are drawn */
    unsigned n_drawn;       /* rows that stand there now */
};

/* The terminal that `out` is; false: it is none. */
bool canvas_open(struct canvas *canvas, FILE *out, const struct tokenizer *tokenizer, int32_t mask);

void canvas_draw(struct canvas *canvas, const int32_t *tokens, uint32_t n);

/* Takes away what was drawn. */
void canvas_clear(struct canvas *canvas);

#endif
