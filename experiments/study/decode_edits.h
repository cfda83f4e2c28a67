/* The edit model: what a process of LLaDA2.0 says where LLaDA2.1 is decoded, which is trained to
 * replace tokens (sim/decode/process.h). experiments/study/paper/edit_modes.csv has the printed
 * tokens a pass of LLaDA2.1-mini in its two modes. Three constants of the shape, edit_location,
 * edit_scale and edit_structured, are fitted to the rows of role `fitted`, by least squares of
 * logarithms: those of one task of code and mathematics, where the report of LLaDA2.1 says that its
 * modes gain most, and of one that is neither. The other rows are predicted.
 *
 * A pass of these numbers is any that may change a token; the one that stores a block is none,
 * since more is printed than a third of a block a pass. edit_share is that of a small model of
 * ours. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DECODE_EDITS_H
#define UNMASK_EXPERIMENTS_STUDY_DECODE_EDITS_H

#include <stdbool.h>
#include <stdio.h>

#include "experiments/run/cli/table.h"
#include "experiments/study/fit.h"
#include "sim/base/input/csv.h"
#include "sim/decode/process.h"

enum { EDITS_MOST_ROWS = 128, EDIT_NUMBERS = 3 };

/* edit_location, edit_scale and edit_structured. */
struct edit_numbers {
    double location, scale, structured;
};

/* Texts are borrowed from the table. */
struct edit_row {
    const char *process, *benchmark, *mode, *source;
    double threshold, edit_threshold, printed;
    bool is_fitted;
    struct decode_process of; /* the process that it names */
    /* Tokens a pass by the stored constants and by those that were fitted; by the latter where the
     * process stands so that the row of the same process that is printed last is met. */
    double stored, fitted, moved;
    double moved_location; /* of the process, for the last */
};

struct edits {
    struct csv csv;
    struct edit_row rows[EDITS_MOST_ROWS];
    size_t n;
    struct edit_numbers fitted;
};

/* A bad row is a sentence with file and line. The path is borrowed. */
int edits_open(const char *path, struct edits *out, struct err *err);
void edits_close(struct edits *edits);

/* What a process gives in a row's mode. */
double edits_give(const struct decode_process *process, const struct edit_row *row, uint32_t n);

/* Seconds. */
void edits_fit(struct edits *edits);

/* What was fitted, and each printed row as the processes give it; to be closed. */
struct table *edits_constants(const struct edits *edits);
struct table *edits_table(const struct edits *edits);
/* How many rows come out well to which nothing was fitted. */
void edits_say(const struct edits *edits, FILE *out);

/* The numbers of experiments/study/decode.ini that were fitted. */
size_t edits_numbers(const struct edits *edits, struct fitted_number out[EDIT_NUMBERS]);

#endif
