/* The store: runs with their requests, steps and events in one SQLite file.
 *
 * A run is one transaction: a crash, a full disk or an interrupt leaves a whole run or none, and
 * never harms an earlier one. The journal is the rollback kind, so the file alone is the database.
 * A store serves one run at a time and holds the write lock from store_run_begin to commit or
 * rollback. Trouble is ERR_WORLD with one sentence that names the file. */
#ifndef UNMASK_ANALYSIS_STORE_H
#define UNMASK_ANALYSIS_STORE_H

#include <signal.h>

#include "analysis/facts.h"
#include "analysis/summary.h"
#include "sim/serve/record.h"

enum store_mode {
    STORE_READ,  /* the file must exist */
    STORE_WRITE, /* created when absent */
};

/* What a run keeps besides its facts, configuration and summary; each level adds to the last. */
enum store_level {
    STORE_REQUESTS,
    STORE_STEPS, /* with members and tokens to commit: what a replay needs */
    STORE_EVENTS,
};

struct store;

/* Refuses what is not ours: another program's or a damaged file, a newer schema, and, for writing,
 * a read-only file. `*out` is the caller's to close; closing rolls an open run back. */
int store_open(const char *path, enum store_mode mode, struct store **out, struct err *err);
void store_close(struct store *store);
const char *store_path(const struct store *store);

/* From now on wait for other programs' locks until they are gone or `*stop` is set, and say so on
 * standard error when that takes long; without it the wait ends after two seconds. */
void store_be_patient(struct store *store, const volatile sig_atomic_t *stop);

/* Begin a run: `*out` becomes the sink that records it, `*run` its number (from 1). */
int store_run_begin(struct store *store, const struct run_facts *facts, enum store_level level,
                    int64_t *run, struct sink *out, struct err *err);

/* End it with its summary and the facts as known now. On an error the run is rolled back. */
int store_run_commit(struct store *store, const struct summary *summary,
                     const struct run_facts *facts, struct err *err);
void store_run_rollback(struct store *store);

/* A recorded run; text is valid during the callback only. `summary` is the text of the JSON object
 * of summary_json. */
struct stored_run {
    int64_t run;
    const char *system, *model, *gpu, *profile, *profile_kind, *backend, *trace, *trace_provenance;
    uint64_t seed;
    const char *config, *summary;
    const char *identity; /* the digest; "" where it is not known */
    int64_t n_requests, n_steps, n_events;
};

/* The callbacks below return 0 to go on; another value stops and is returned. */
int store_list_runs(struct store *store,
                    int (*each)(void *state, const struct stored_run *run, struct err *err),
                    void *state, struct err *err);

/* One run's parts in the order in which they were recorded (steps: by index), with every field as
 * it was recorded. ERR_USAGE when the store has no such run. A sink's functions fit. */
int store_load_requests(struct store *store, int64_t run,
                        int (*each)(void *state, const struct request_record *record,
                                    struct err *err),
                        void *state, struct err *err);
int store_load_steps(struct store *store, int64_t run,
                     int (*each)(void *state, const struct step_record *record, struct err *err),
                     void *state, struct err *err);
int store_load_events(struct store *store, int64_t run,
                      int (*each)(void *state, const struct event_record *record, struct err *err),
                      void *state, struct err *err);

/* The resolved configuration of a run, to be freed by the caller. */
int store_load_config(struct store *store, int64_t run, char **out, struct err *err);

/* The summary of the latest whole run with this identity, to be freed by the caller; NULL where
 * there is none. */
int store_find_summary(struct store *store, const char *identity, char **out, struct err *err);

/* The summary of a run, to be freed by the caller. */
int store_load_summary(struct store *store, int64_t run, char **out, struct err *err);

#endif
