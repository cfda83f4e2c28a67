/* A study: one INI file that says what to run and what to draw of it.
 *
 *   [figure]       what is drawn: a query over the tables below, its looks, a paper's numbers
 *   [JOB]          a table, called JOB, of a job (jobs.h); [JOB NAME] is called NAME
 *   [select NAME]  a table of what `query` answers over the tables before it
 *
 * A job's keys have lists of values; it is done for every combination, the last key varying
 * fastest, but `seed` after all of them. Each row has, besides what was found, every key's value,
 * its index as KEY_n, and `point`, the same for all seeds of a combination.
 *
 *   KEY = A, B          a key of the job
 *   set KEY = A, B      a key of the system, as --set KEY=A
 *   NAME of KEY = P, Q  a column, or another key of the job, that goes along with KEY
 *   x = KEY             the key whose values and indices are the columns x and x_n, too
 *
 * `include` in [figure] names files, in the study's folder or in experiments/study/studies, whose
 * [select]s follow, and whose keys of [figure] hold where neither the study nor a later one has
 * them. */
#ifndef UNMASK_EXPERIMENTS_STUDY_STUDY_H
#define UNMASK_EXPERIMENTS_STUDY_STUDY_H

#include <stdint.h>

#include "experiments/study/jobs.h"
#include "experiments/study/tables.h"
#include "sim/base/input/config.h"

enum { STUDY_MOST_INCLUDES = 8, STUDY_NAME_CHARS = 64 };

/* What the command line has instead of the lists of a study; NULL or 0: nothing. */
struct study_changes {
    const char *gpu, *model, *host;
    const char *const *sets; /* KEY=VALUE, each of them */
    size_t n_sets;
    uint64_t n_seeds; /* seeds of every run, from the study's first one on */
};

struct study_table; /* a section of a job */

struct study {
    char name[STUDY_NAME_CHARS]; /* of the file, without folder and suffix */
    struct config configs[1 + STUDY_MOST_INCLUDES];
    size_t n_configs;
    struct study_table *tables;
    size_t n_tables, n_places; /* places: combinations of all of them */
    char changed[160];         /* " (changed: gpu=h100)": appended to the title; "": nothing is */
    const char *inches, *font; /* of its figure, instead of its file's; NULL: as that has it */
    const char *note;          /* below its figure, instead of where its numbers come from */
};

/* Read a study and check it; `path` is opened as it stands. study_close in any case. */
int study_open(const char *path, const struct study_changes *changes, struct study *study,
               struct err *err);
void study_close(struct study *study);

/* A key of [figure], of the study or of what it includes; NULL where there is none. `place`, unless
 * NULL, becomes "path:line". */
const char *study_text(const struct study *study, const char *key, char place[256]);

/* Its tables in their order; NULL past the last. */
const char *study_table_name(const struct study *study, size_t i);
/* The table of its first job that runs systems; NULL where none does. */
const char *study_runs(const struct study *study);

/* Fill the tables on `n_threads` threads, and on other ranks (experiments/run/ranks), whose own
 * tables stay empty; `done` may be NULL and is called from any of them, after every place. The
 * [select]s are left to study_select. */
int study_fill(const struct study *study, unsigned n_threads, void (*done)(void *state),
               void *state, struct tables *tables, struct err *err);
int study_select(const struct study *study, struct tables *tables, struct err *err);

#endif
