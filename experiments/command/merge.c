/* unmask merge: the runs of several databases in one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/store/store.h"
#include "experiments/command/commands.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/progress.h"

static const struct option *const options_of_merge[] = {json_options, NULL};

enum outcome { COPIED, HELD, DAMAGED, N_OUTCOMES };

struct merging {
    struct store *to, *from;
    uint64_t n[N_OUTCOMES], n_incomplete;
    const volatile sig_atomic_t *stop;
    struct progress progress;
    uint64_t n_seen;
};

static void say_damaged(const struct merging *merging, int64_t run, const char *why) {
    fprintf(stderr, "unmask: run %" PRId64 " of %s is left out: %s\n", run,
            store_path(merging->from), why);
}

/* A run that is damaged is left out; that nothing can be written is an error. */
static int merge_run(void *state, const struct stored_run *run, struct err *err) {
    struct merging *merging = state;
    struct err damage = {0};
    bool is_held = false;
    progress_update(&merging->progress, ++merging->n_seen);
    if (*merging->stop) {
        return err_world(err, "interrupted: the same command goes on where this one stopped");
    }
    if (run->damage != NULL || store_check_rows(merging->from, run->run, &damage) != 0) {
        say_damaged(merging, run->run, run->damage != NULL ? run->damage : damage.text);
        merging->n[DAMAGED]++;
        return 0;
    }
    int status = store_copy_run(merging->from, run, merging->to, &is_held, err);
    merging->n[is_held ? HELD : COPIED] += status == 0;
    merging->n_incomplete += status == 0 && !is_held && run->incomplete != NULL;
    return status;
}

static bool is_same_file(const char *one, const char *other) {
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Before anything is written: that all can be read, and none is what is written. */
static int check_words(const struct options *options, struct err *err) {
    if (options->n_words < 2) {
        return err_usage(err, "merge needs a database to write and those to take runs from");
    }
    for (size_t i = 1; i < options->n_words; i++) {
        struct store *from = NULL;
        if (is_same_file(options->words[0], options->words[i])) {
            return err_usage(err, "%s is to be merged into itself", options->words[i]);
        }
        if (store_open(options->words[i], STORE_READ, &from, err) != 0) {
            return err_status(err);
        }
        store_close(from);
    }
    return 0;
}

static int merge_all(const struct options *options, struct merging *merging, struct err *err) {
    int status = store_open(options->words[0], STORE_WRITE, &merging->to, err);
    for (size_t i = 1; status == 0 && i < options->n_words; i++) {
        status = store_open(options->words[i], STORE_READ, &merging->from, err);
        status = status != 0 ? status : store_list_runs(merging->from, merge_run, merging, err);
        store_close(merging->from);
        merging->from = NULL;
    }
    store_close(merging->to);
    return status;
}

static int print(const struct options *options, const struct merging *merging, struct err *err) {
    const uint64_t *n = merging->n;
    if (options_has(options, "json")) {
        return cmd_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I}", "database", options->words[0],
                                        "copied", (json_int_t)n[COPIED], "incomplete",
                                        (json_int_t)merging->n_incomplete, "held_before",
                                        (json_int_t)n[HELD], "damaged", (json_int_t)n[DAMAGED]),
                              err);
    }
    printf("%" PRIu64 " runs copied into %s, %" PRIu64 " of them incomplete; %" PRIu64
           " were in it already, %" PRIu64 " are damaged and left out\n",
           n[COPIED], options->words[0], merging->n_incomplete, n[HELD], n[DAMAGED]);
    return 0;
}

static int run(const struct options *options, struct err *err) {
    struct merging merging = {.stop = interrupt_catch()};
    int status = check_words(options, err);
    if (status != 0) {
        return status;
    }
    store_stop_on(merging.stop);
    progress_start(&merging.progress, "runs", 0);
    status = merge_all(options, &merging, err);
    progress_end(&merging.progress);
    status = status != 0 ? status : print(options, &merging, err);
    return status == 0 && merging.n[DAMAGED] > 0
               ? err_world(err, "%" PRIu64 " damaged runs were left out", merging.n[DAMAGED])
               : status;
}

const struct command command_merge = {
    .name = "merge",
    .words = "OUT.db IN.db...",
    .doc = "the runs of several databases in one, such as those of a sweep's shards",
    .more =
        "Copies every run of the databases IN, in their order, into OUT, which is created when it\n"
        "does not exist. A run that OUT holds already is left out: one of equal configuration,\n"
        "inputs and build (its identity) of which as much is recorded, or, of runs of a device,\n"
        "the very same record. One that was cut short, or goes on, gives way to a later state.\n"
        "So the same command may be given again after it was killed, and databases may share\n"
        "runs. Each run is checked against its checksum before, and one that is damaged is left\n"
        "out and told. `unmask sweep FILE.ini --db OUT.db` then prints the table of the sweep and\n"
        "runs what is missing.",
    .options = options_of_merge,
    .max_words = 1024,
    .run = run,
};
