/* Where the decode processes of trained models stand: experiments/study/locations.csv, one row for
 * each printed number of a model on a task.
 *
 * A row names benchmark, source and the conditions that the number was printed for, and the
 * location at which a process of its shape gives that number under them. A run that leaves the
 * conditions draws from the same process; how far off it then is only the shape knows. */
#ifndef UNMASK_SIM_DECODE_LOCATION_H
#define UNMASK_SIM_DECODE_LOCATION_H

#include "sim/base/input/csv.h"
#include "sim/decode/process.h"

/* Texts are borrowed from the table; "" where the row has none. */
struct location {
    const char *process;          /* MODEL/TASK */
    const char *model;            /* as its source calls it */
    const char *benchmark;        /* that the number was printed for */
    const char *workloads;        /* that draw from it, separated by spaces */
    const char *shape;            /* a section of experiments/study/decode.ini */
    const char *transferred_from; /* a process it is moved from by what another task's two rows
                                     differ by; it then has no number of its own */
    const char *source;
    const char *error; /* what a second source of the same task prints, as `fit decode` found it */
    /* What was printed: true: positions run per decoded token, commit passes among them; false:
     * tokens a denoising pass. NaN where the row was transferred. */
    bool runs_per_token;
    double printed;
    struct decode_conditions at;
    double location;
    bool is_structured; /* code or mathematics: edit_structured of its shape counts */
    uint64_t line;      /* of the file */
};

struct locations {
    struct csv csv;
    struct location *rows; /* owned */
    size_t n;
};

/* Of experiments/study/locations.csv, or another such table; a bad row is a sentence with file and
 * line. The path is borrowed. */
int locations_open(const char *path, struct locations *out, struct err *err);
void locations_close(struct locations *locations);

/* The row of that name, or NULL. */
const struct location *location_find(const struct locations *locations, const char *process);

/* The first row of `model` (the word before the slash) that lists the workload, after `last` (NULL:
 * the first of all); NULL after the last. */
const struct location *location_of(const struct locations *locations, const char *model,
                                   const char *workload, const struct location *last);

#endif
