/* All that is known of a recorded run, as one JSON object: the fields of its summary, the keys of
 * its configuration, its rate. */
#ifndef UNMASK_ANALYSIS_PLOT_RUN_FIELDS_H
#define UNMASK_ANALYSIS_PLOT_RUN_FIELDS_H

#include <jansson.h>

#include "analysis/groups.h"
#include "analysis/plot/requests.h"
#include "analysis/store/store.h"

/* Adds to `row` what it lacks: `run`; the summary, as `run --json` prints it; `rate`, that which
 * was asked for, else the workload's own; the configuration, a key of [run] or [system] as it
 * stands and one of another section as SECTION.KEY; `build` and `inputs`, short digests of the
 * program and of the contents of all files that it read; and `setup`, the text of all these keys
 * but the seed: runs that are alike in it differ in the seed alone. `row` is the digest of its row,
 * where the database has one. */
void run_fields_put(const struct stored_run *run, json_t *row);

/* Of an array of such rows, or of their fields by flat names: `scheduler`, `cache`, `decoder` and
 * `router` of plug-ins become their own names, with the file where two have one name. */
void run_fields_name_policies(json_t *rows);

/* Rows of which each with groups stands there once for each of them, by its key in the row and in
 * its setup: with the group's fields in place of the run's, and none that are not told apart so.
 * The caller's. */
json_t *run_fields_by_group(const json_t *rows, enum grouping by);

/* Adds the groups, and Jain's index of them, that a row of a recorded run lacks. */
int run_fields_put_groups(const struct requests *requests, json_t *row, struct err *err);

/* `build` and `inputs` alone, of a summary's identity (NULL: not known), and their lines of a
 * setup.
 */
void run_fields_put_identity(const json_t *identity, FILE *setup, json_t *row);

#endif
