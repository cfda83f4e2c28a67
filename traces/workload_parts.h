/* The inside of a workload, shared by the file that reads its INI and the one that runs it. */
#ifndef UNMASK_TRACES_WORKLOAD_PARTS_H
#define UNMASK_TRACES_WORKLOAD_PARTS_H

#include <stdbool.h>

#include "sim/base/condition.h"
#include "sim/base/warning.h"
#include "traces/classes.h"
#include "traces/conversations.h"
#include "traces/generate.h"
#include "traces/lengths.h"
#include "traces/marks.h"
#include "traces/reader.h"
#include "traces/transform.h"
#include "traces/workload.h"

enum { MAX_PATH_CHARS = 4096 };

enum pairs { PAIRS_TRACE, PAIRS_RESAMPLE, PAIRS_NONE };
enum over_context { OVER_DROP, OVER_TRUNCATE };
enum stated {
    STATED_REAL,
    STATED_ESTIMATED,
    STATED_SYNTHETIC,
    STATED_ASSUMED,
    STATED_TRACED, /* as in the trace, which does not say */
    STATED_UNSTATED,
};

/* What the file and the command line say. */
struct spec {
    int64_t requests;
    double rate_per_s;
    uint32_t context_tokens;
    uint32_t over, pairs, arrivals_provenance, lengths_provenance; /* of the enums above */
    uint32_t answers_provenance;
    uint32_t hash_tokens;                 /* of the trace, where its rows do not say */
    uint32_t skip_failed, skip_bad, sort; /* of the trace: 0 or 1 */
};

struct workload {
    char *name, *note;
    char *path; /* of its file, for sentences */
    char provenance[256];
    struct spec spec;
    struct trace *trace;                 /* NULL: none is read */
    struct generator *generator;         /* NULL: the trace's own arrivals */
    struct length *length[LENGTH_SIDES]; /* NULL: as the rows have it */
    char answers_source[256];            /* for people */
    struct marks marks;
    struct resample *resample;
    struct lengths lengths;
    struct cap cap;
    struct replay replay;
    struct zip zip;
    struct limit limit;
    struct classes *classes;             /* NULL: it is one workload; else the rest is empty */
    struct conversations *conversations; /* NULL: no request follows another */
    double rounds;                       /* in which the trace's rows are gone through */
    char *passes_over;                   /* columns that need not be named; "" */
    struct stated_key *stated;           /* what the user set, [n_stated] */
    size_t n_stated, stated_room;
};

/* A key of the user's file, or one of --set. */
struct stated_key {
    char *key, *value, *place;
};

/* An empty workload with every key at its initial value. */
struct workload *workload_new(const char *name);

/* Read every key and open what they name: the process, the models, the trace. */
int workload_read(struct workload *workload, const struct config *config, struct err *err);

/* Keeps what the user set: all keys of the user's file, and those of --set; lengths that the
 * command line fixes are left out. */
void workload_keep_stated(struct workload *workload, const struct config *config,
                          const struct workload_options *options);
void workload_drop_stated(struct workload *workload);

/* Whether a model always draws one length; NULL does not. */
bool workload_is_fixed(const struct length *length);

/* Puts together what `workload` says of arrivals, lengths and answers; of classes, with the numbers
 * and rates of all. */
void workload_state(struct workload *workload);
void workload_state_classes(struct workload *workload, const struct config *config);

/* The word for `provenance`. */
const char *workload_provenance_word(uint32_t provenance);

/* Who reads a workload's keys: what conditions (sim/base/condition.h) speak of, and which keys that
 * the user set nothing reads. */

/* What a name of a condition stands for (sim/base/condition.h): `workload.KEY` of its file, of its
 * arrivals and its lengths, and the facts of workload_fact_docs; of classes, those that hold of all
 * of them. NULL: no such name. */
const char *workload_fact(const struct workload *workload, const char *name, char text[FACT_CHARS]);

struct workload_fact_doc {
    const char *name, *doc; /* the last one's name is NULL */
};
extern const struct workload_fact_doc workload_fact_docs[];

/* The doc of a key of the file itself, not of a process or a model; NULL: it has none. */
const char *workload_spec_doc(const char *key);

/* A warning for each key that the user set, in a file or by --set, and that nothing reads. */
void workload_warn_of_unread(const struct workload *workload, struct warnings *warnings);

#endif
