/* What fills the tables of a study: jobs, each a list of keys and what it adds to a row.
 *
 * A section of a study names a job and gives its keys lists of values; the job is done once for
 * each combination of them, on threads, and every combination becomes one row, or several. */
#ifndef UNMASK_EXPERIMENTS_STUDY_JOBS_H
#define UNMASK_EXPERIMENTS_STUDY_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/system/system.h"

struct job {
    const char *name; /* of its sections: [run], or [run NAME] where the table has another name */
    const char *doc;  /* one line */
    const char *const *required, *const *optional; /* keys; end with NULL, or are NULL */
    bool takes_settings;                           /* "set KEY", of the system */
    /* Combinations that differ in other keys alone are done one after another, from the last on,
     * and share a state, which is NULL before the first; NULL: each is done by itself. */
    const char *const *shared;
    void (*close)(void *state);
    /* `args` has the texts of one combination by key, with "set KEY" among them; `row` has them
     * already, and is appended to `rows` with what was found. Called from any thread. */
    int (*fill)(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err);
};

extern const struct job job_run, job_recorded, job_requests, job_course, job_json, job_csv,
    job_lmax, job_latency, job_budget, job_live, job_sampler, job_layer, job_rollout, job_eviction,
    job_server;

/* An argument; NULL, or `absent`, where it was not given or is empty. Numbers are refused with the
 * range when they are not between the two. */
const char *job_text(const json_t *args, const char *key);
int job_number(const json_t *args, const char *key, double min, double max, double *out,
               struct err *err);
int job_whole(const json_t *args, const char *key, uint64_t max, uint64_t *out, struct err *err);

/* "on" or "off"; stays as it is where it was not given. */
int job_flag(const json_t *args, const char *key, bool *out, struct err *err);

/* The settings among them, each as "set KEY". */
enum { JOB_MOST_SETTINGS = 64 };
/* KEY of `set KEY`; NULL where a study's key is another one. */
const char *job_setting(const char *key);

int job_settings(const json_t *args, struct setting out[JOB_MOST_SETTINGS], uint32_t *n,
                 struct err *err);

/* A cell: an integer, a number or a text, whichever it reads as; null for "". */
json_t *job_cell(const char *text);

/* Puts a number into a row, null where it is not finite. */
void job_put(json_t *row, const char *key, double value);

/* The path of a file that a study names: as it stands, from the study's folder on where it lies
 * there (study.c), or in the data folder. */
const char *job_path(char *path, size_t size, const char *name);

#endif
