/* The store: runs with their requests, steps and events in one SQLite file.
 *
 * A run is recorded in one short transaction once it is over, or, where it takes machine time that
 * cannot be recovered, in several while it goes on, after each of which it is there as an
 * incomplete one. A crash, a full disk or an interrupt leaves what was recorded until then and
 * never harms an earlier run. The journal is the rollback kind, so that the file alone is the
 * database, also on file systems of a network; what a killed program left half done is undone by
 * whoever opens the file next. Who needs a lock waits for it without a bound, says so on standard
 * error when that takes long, and gives up when the program is interrupted meanwhile.
 *
 * Nothing that a file says is trusted: its structure is checked when it is opened, up to a size,
 * each run against its checksums when it is read, and no trigger or view of it is ever run. Trouble
 * is ERR_WORLD with one sentence that names the file. */
#ifndef UNMASK_ANALYSIS_STORE_STORE_H
#define UNMASK_ANALYSIS_STORE_STORE_H

#include <signal.h>
#include <stdbool.h>

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

/* A run of which something is in the database, and how many rows; number 0: nothing is. */
struct saved_run {
    int64_t run;
    int64_t n_requests, n_members, n_steps, n_events;
    int64_t n_under_way; /* requests that have arrived and not left */
};

/* A store is one thread's at a time. Refuses what is not ours: another program's file, a newer
 * schema, triggers, names that are no file's, and, for writing, a damaged or read-only file. Of a
 * damaged one that is only read, the runs that are whole can be read. `*out` is the caller's to
 * close; closing rolls an open run back.
 */
int store_open(const char *path, enum store_mode mode, struct store **out, struct err *err);
void store_close(struct store *store);
const char *store_path(const struct store *store);

/* From now on the waits of all stores end when `*stop` is set while they wait; default: nothing
 * ends them but the lock. */
void store_stop_on(const volatile sig_atomic_t *stop);

/* The structure of a file that is larger is not checked when it is opened (default: 256 MiB): there
 * damage is found in what is read, of a run by its checksums. */
extern int64_t store_most_checked_bytes;

/* Whether to wait for locks (default: true) or to fail at once. */
void store_wait(struct store *store, bool waits);

/* Takes the write lock, for what is asked and recorded next: store_run_begin and
 * store_run_continue go on in this transaction. Ends with theirs, or undone by store_roll_back. */
int store_begin(struct store *store, struct err *err);
void store_roll_back(struct store *store);
/* Whether what failed last did so because another program has a lock. */
bool store_was_locked(const struct store *store);

/* Begin a run: `*out` becomes the sink that records it, `*run` its number (from 1). */
int store_run_begin(struct store *store, const struct run_facts *facts, enum store_level level,
                    int64_t *run, struct sink *out, struct err *err);

/* Save it as it is now: it is in the file, as incomplete for the reason of the facts, no one is
 * locked out, and the store is free for another run. store_run_continue goes on with it, by the
 * same sink. */
int store_run_save(struct store *store, const struct summary *summary,
                   const struct run_facts *facts, struct saved_run *out, struct err *err);
int store_run_continue(struct store *store, const struct saved_run *saved, struct err *err);

/* End it with its summary and the facts as known now. On an error, as on one of a sink or of
 * store_run_save, it is rolled back: to what was saved of it, which can then be continued. */
int store_run_commit(struct store *store, const struct summary *summary,
                     const struct run_facts *facts, struct err *err);
/* The same with the text of its summary; `incomplete` is why it was cut short, NULL: it was not. */
int store_run_commit_text(struct store *store, const char *summary, const char *incomplete,
                          struct err *err);
void store_run_rollback(struct store *store);

/* A recorded run; text is valid during the callback only. `summary` is the text of the JSON object
 * of summary_json. */
struct stored_run {
    int64_t run;
    const char *system, *model, *gpu, *profile, *profile_kind, *backend, *trace, *trace_provenance;
    uint64_t seed;
    const char *config, *summary;
    const char *identity;    /* the digest; "" where it is not known */
    const char *rows_sha256; /* "" where there is none */
    const char *sha256;      /* of the row that holds all this; the same */
    const char *incomplete;  /* why it was cut short; NULL: it was not */
    int64_t n_requests, n_steps, n_events;
    const char *damage; /* what is wrong with the row that holds all this; NULL: nothing is */
};

/* The callbacks below return 0 to go on; another value stops and is returned. No lock is held from
 * one run to the next. */
int store_list_runs(struct store *store,
                    int (*each)(void *state, const struct stored_run *run, struct err *err),
                    void *state, struct err *err);

/* The same of the runs that count where each sample is to count once: of those of one identity, one
 * that is whole and tells most. Those that a device has measured are samples of their own. What
 * does not count is told once a store, on standard error. */
int store_list_samples(struct store *store,
                       int (*each)(void *state, const struct stored_run *run, struct err *err),
                       void *state, struct err *err);

/* The same of one run; ERR_USAGE when the store has none of this number. */
int store_load_run(struct store *store, int64_t run,
                   int (*each)(void *state, const struct stored_run *run, struct err *err),
                   void *state, struct err *err);

/* Compares a run's requests, steps and events with their checksum: an error says that they are
 * damaged. Runs that were cut off, or recorded by an older unmask, have none. */
int store_check_rows(struct store *store, int64_t run, struct err *err);

/* One run's parts in the order in which they were recorded (steps: by index), with every field as
 * it was recorded. ERR_USAGE when the store has no such run. A sink's functions fit. */
int store_load_requests(struct store *store, int64_t run,
                        int (*each)(void *state, const struct request_record *record,
                                    struct err *err),
                        void *state, struct err *err);
int store_load_steps(struct store *store, int64_t run,
                     int (*each)(void *state, const struct step_record *record, struct err *err),
                     void *state, struct err *err);
/* Those from `first` on whose index is under `end`. */
int store_load_steps_of(struct store *store, int64_t run, int64_t first, int64_t end,
                        int (*each)(void *state, const struct step_record *record, struct err *err),
                        void *state, struct err *err);
int store_load_events(struct store *store, int64_t run,
                      int (*each)(void *state, const struct event_record *record, struct err *err),
                      void *state, struct err *err);

/* The resolved configuration of a run, to be freed by the caller. */
int store_load_config(struct store *store, int64_t run, char **out, struct err *err);

/* The summary of the latest whole and sound run with this identity, to be freed by the caller; NULL
 * where there is none. */
int store_find_summary(struct store *store, const char *identity, char **out, struct err *err);

/* The number of the latest whole and sound run with this identity of which at least this much is
 * recorded, 0: there is none, and, unless `summary` is NULL, its summary, as above. */
int store_find_whole(struct store *store, const char *identity, enum store_level level,
                     int64_t *run, char **summary, struct err *err);

/* Copies a run with all that was recorded of it, in one transaction, in which it is also asked
 * whether `to` holds it: a whole one of the same identity of which as much is recorded, the same
 * record of one that a device has measured, or a later state of one that was under way. Earlier
 * states of it are dropped. `*was_held`: so it was, and nothing is copied. Waits for locks, but
 * holds none of one database while it waits for one of the other but that to write `to`. */
int store_copy_run(struct store *from, const struct stored_run *run, struct store *to,
                   bool *was_held, struct err *err);

/* The summary of a run, to be freed by the caller. */
int store_load_summary(struct store *store, int64_t run, char **out, struct err *err);

#endif
