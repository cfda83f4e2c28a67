/* Transforms: sources wrapped around a source. The caller owns the memory and sets the fields
 * named in each comment; the others start at zero. */
#ifndef UNMASK_TRACES_TRANSFORM_H
#define UNMASK_TRACES_TRANSFORM_H

#include <stdbool.h>

#include "sim/base/arrival.h"

/* Takes a source back to its first row. */
struct rewinder {
    void *state;
    int (*rewind)(void *state, struct err *err); /* NULL: cannot */
};

/* Replays the arrival times of `inner`: the first row moves to 0 and times are multiplied by
 * `factor`. With a rewinder the rows are repeated for ever, every round `period_ns` (of the inner
 * times) after the one before. */
struct replay {
    struct arrival_source inner;
    double factor;
    struct rewinder again;
    int64_t period_ns;
    /* Kept by the source. */
    int64_t first_ns, round_ns; /* of the first row; added to this round's times */
    uint64_t n_given, n_round;  /* rows given in all and in this round */
    uint64_t n_rounds;          /* before this one */
};

struct arrival_source replay_source(struct replay *replay);

/* What a pre-pass over a source finds; `rows` may be 0. */
struct survey {
    uint64_t rows;
    int64_t first_ns, last_ns;
};

/* Reads at most `max_rows` rows (all when 0) in constant memory. */
int survey_source(struct arrival_source source, uint64_t max_rows, struct survey *out,
                  struct err *err);

/* The mean rate, (rows - 1) / span; 0 when everything arrives at one time. */
double survey_rate_per_s(const struct survey *survey);

/* The time after which a repetition keeps that rate: span * rows / (rows - 1). */
int64_t survey_period_ns(const struct survey *survey);

/* The first `n` rows of `inner`, renumbered from 0. Passes completions on. */
struct limit {
    struct arrival_source inner;
    uint64_t n; /* 0: all */
    uint64_t n_given;
};

struct arrival_source limit_source(struct limit *limit);

enum { CAP_MAX_LISTED = 64 };

/* Rows whose prompt and output fit into `context_tokens` together. Longer ones are dropped, or with
 * `truncates` lose the end of their prompt; a row whose output alone leaves no room for a prompt is
 * always dropped. It is an error when nothing fits: a finite source ends, or an endless one has
 * gone on for a million rows, without one that does. */
struct cap {
    struct arrival_source inner;
    uint32_t context_tokens;
    bool truncates;
    const char *name; /* for sentences */
    /* Kept by the source. */
    uint64_t n_kept, n_dropped, n_truncated, n_in_a_row;
    uint64_t dropped_ids[CAP_MAX_LISTED]; /* the first ones, as the inner source numbers them */
    uint64_t n_listed;
};

struct arrival_source cap_source(struct cap *cap);

/* Forget what was counted, for a second pass. */
void cap_restart(struct cap *cap);

/* The times of one source with the ids, lengths and tenants of another; ends with either. */
struct zip {
    struct arrival_source times, rows;
};

struct arrival_source zip_source(struct zip *zip);

#endif
