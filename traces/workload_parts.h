/* The inside of a workload, shared by the file that reads its INI and the one that runs it. */
#ifndef UNMASK_TRACES_WORKLOAD_PARTS_H
#define UNMASK_TRACES_WORKLOAD_PARTS_H

#include <stdbool.h>

#include "traces/generate.h"
#include "traces/lengths.h"
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
};

struct workload {
    char *name, *note;
    char *path; /* of its file, for sentences */
    char provenance[96];
    struct spec spec;
    struct trace *trace;                 /* NULL: none is read */
    struct generator *generator;         /* NULL: the trace's own arrivals */
    struct length *length[LENGTH_SIDES]; /* NULL: as the rows have it */
    char answers_source[96];             /* for people */
    struct resample *resample;
    struct lengths lengths;
    struct cap cap;
    struct replay replay;
    struct zip zip;
    struct limit limit;
};

/* An empty workload with every key at its initial value. */
struct workload *workload_new(const char *name);

/* Read every key and open what they name: the process, the models, the trace. */
int workload_read(struct workload *workload, const struct config *config, struct err *err);

/* The word for `provenance`. */
const char *workload_provenance_word(uint32_t provenance);

#endif
