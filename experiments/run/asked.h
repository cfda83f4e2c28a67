/* What the command line asks for: the options that describe a run, turned into a run_request. */
#ifndef UNMASK_EXPERIMENTS_RUN_ASKED_H
#define UNMASK_EXPERIMENTS_RUN_ASKED_H

#include "analysis/store/store.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/compose.h"

enum {
    ASKED_MOST_SETTINGS = 80,
    ASKED_MOST_SYSTEMS = 64,
    ASKED_NAME_CHARS = 64,
    ASKED_MOST_STATED = 16
};

struct asked {
    struct run_request request; /* borrows from this struct and from argv */
    bool asks_one_source; /* --price-source one: of all that is compared (experiments/run/prices.h)
                           */
    struct setting settings[ASKED_MOST_SETTINGS];
    char config_path[256];                          /* of the checkpoint that --weights names */
    struct stated_option stated[ASKED_MOST_STATED]; /* those that something reads now and then */
};

/* Groups of options for the commands that take them. */
extern const struct option device_options[];    /* GPU, model, systems file, roofline */
extern const struct option policy_options[];    /* --set and its short forms, replicas */
extern const struct option system_option[];     /* --system */
extern const struct option workload_options[];  /* workload, arrivals, lengths, seed */
extern const struct option objective_options[]; /* bounds on latency, first block, token */
extern const struct option backend_options[];   /* what executes, and its weights */
extern const struct option clock_options[];     /* --clock */
extern const struct option text_options[];      /* tokenizer, chat template, reference */
extern const struct option record_options[];    /* database and what it keeps */
extern const struct option job_options[];       /* -j */

/* Fill in everything that was given but the systems file; the rest has its initial value. `asked`
 * stays where it is. */
int asked_read(const struct options *options, struct asked *asked, struct err *err);

/* The same for a server, which has no workload, and a --clock of its own. */
int asked_read_served(const struct options *options, struct asked *asked, struct err *err);

/* The path that an option names, NULL when it was not given; ERR_USAGE when it is too long to be
 * recorded. */
int asked_path(const struct options *options, const char *name, const char **path, struct err *err);

/* --systems-file. */
int asked_systems_file(const struct options *options, struct asked *asked, struct err *err);

/* The words of --systems or of --system, which exclude each other; without them dllm-serve. */
int asked_systems(const struct options *options, const char **out, struct err *err);

/* --systems A,B,...: how many names there are. */
int asked_system_names(const char *text, char names[][ASKED_NAME_CHARS], size_t *n,
                       struct err *err);

/* asked_read and asked_systems_file for commands without a workload, and the system opened; the
 * caller closes it. */
int asked_read_system(const struct options *options, struct asked *asked, struct system **out,
                      struct err *err);

/* Says on standard error what was set and nothing reads, for commands whose outputs have no
 * warnings; `backend` as in struct system_in. */
void asked_say_unread(const struct system *system, const char *backend);

/* --backend, --weights, --eos, --library and --clock; asked_read and asked_read_system read them,
 * too. The CPU back end stands for the GPU "cpu" and computes in four-byte elements unless
 * something else is set. */
int asked_backend(const struct options *options, struct backend_request *out, struct err *err);

/* --device N, 0 where it is not given. */
int asked_device(const struct options *options, int32_t *out, struct err *err);

/* The model that a checkpoint's config.json describes, by the name of the data folder where it is
 * one of those; NULL without an error where `weights` is no folder with such a file. `path` holds
 * 256 characters and stays with the name. */
const struct model *asked_model_of_weights(const char *weights, char *path, struct err *err);

/* The system that serves a model where none is named; NULL: of no known model. */
const char *asked_system_for(const struct model *model);

/* What an INI file lists for a key of the system, `model`, `gpu` or `workload`: where that names a
 * file, it begins at the folder of the one that lists it. ERR_USAGE where it is empty, or longer
 * than `out`. */
int asked_named_in(const char *file, const char *place, const char *key, const char *value,
                   char *out, size_t size, struct err *err);

/* Add KEY = VALUE; `place` goes into complaints. */
int asked_set(struct asked *asked, const char *key, const char *value, const char *place,
              struct err *err);

/* --levels; a usage error without --db. */
int asked_level(const struct options *options, enum store_level *level, struct err *err);

/* -j; as many threads as the machine has cores when it is not given. */
int asked_threads(const struct options *options, unsigned *n_threads, struct err *err);

#endif
