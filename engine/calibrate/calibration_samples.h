/* The samples of a calibration: one time of every point in every round, as far as they were taken,
 * and the file that keeps them until the profile is whole.
 *
 * That file, FILE.partial, begins with a line that says what is being calibrated; samples are
 * appended group by group, with a check of each line, and synced, so that an interrupt, or a
 * machine that goes away, costs one group: from the first line without its end, or whose check is
 * another's, the file is cut off. Who has it open has it locked. */
#ifndef UNMASK_ENGINE_CALIBRATE_CALIBRATION_SAMPLES_H
#define UNMASK_ENGINE_CALIBRATE_CALIBRATION_SAMPLES_H

#include <stdio.h>

#include "engine/calibrate/calibration_grid.h"

enum { CALIBRATION_MAX_ROUNDS = 5 };

struct calibration_samples {
    const struct calibration_grid *grid;
    double *us; /* [rounds, n points]; NAN where there is none */
    char *path;
    FILE *file;     /* appended to */
    size_t n_found; /* samples that the file held already */
    char **lines;   /* about whole steps that it held, which calibration_kept.h reads */
    size_t n_lines, room_lines;
};

/* How such a line begins. */
#define STEP_LINE "step "

/* What the file's samples are of, as it was told; false where there is no such file. */
bool samples_subject(const char *path, char *subject, size_t size);

/* Open or begin the file at `path`. `subject`, one line, must be the one it began with: ERR_USAGE
 * else. ERR_WORLD with the line when it is no sample, or while another calibration has it. */
int samples_open(struct calibration_samples *samples, const struct calibration_grid *grid,
                 const char *path, const char *subject, struct err *err);
void samples_close(struct calibration_samples *samples);

static inline double *samples_at(const struct calibration_samples *samples, uint32_t round,
                                 size_t point) {
    return &samples->us[round * samples->grid->n + point];
}

/* Append a round's samples of the points [first, last) that are not NAN and sync the file. */
int samples_append(struct calibration_samples *samples, uint32_t round, size_t first, size_t last,
                   struct err *err);

/* Append a line about whole steps; in the file for good once it is synced. */
int samples_keep(struct calibration_samples *samples, const char *line, struct err *err);
int samples_sync(struct calibration_samples *samples, struct err *err);

/* A point's median over the rounds in which it was taken, and (largest - smallest) / median.
 * Returns in how many. */
uint32_t samples_summarise(const struct calibration_samples *samples, size_t point,
                           double *median_us, double *spread);

#endif
