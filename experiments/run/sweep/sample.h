/* One point of a comparison under several seeds: what its runs say together, and compared with
 * another's.
 *
 * Runs are summaries as `run --json` prints them, one a seed, in the same order on both sides:
 * seeds are paired. A run without a result is NULL. */
#ifndef UNMASK_EXPERIMENTS_RUN_SWEEP_SAMPLE_H
#define UNMASK_EXPERIMENTS_RUN_SWEEP_SAMPLE_H

#include <jansson.h>

#include "analysis/quality.h"
#include "analysis/spread.h"
#include "sim/base/warning.h"

enum { SAMPLE_MOST_SEEDS = 64 };

struct sample {
    const json_t *runs[SAMPLE_MOST_SEEDS];
    /* What requests are measured by; NULL: the run itself, else its `same_requests`. */
    const json_t *requests[SAMPLE_MOST_SEEDS];
    size_t n;
};

enum quantity {
    Q_THROUGHPUT,
    Q_MEAN,
    Q_P50,
    Q_P99,
    Q_TTFT,
    Q_TPOT,
    Q_QUEUE,
    Q_GOODPUT,
    Q_ATTAINMENT,
    Q_ENERGY, /* of the whole run; left out where no run knows it */
    N_QUANTITIES
};

struct quantity_text {
    const char *name;        /* in JSON: "latency_s.mean" */
    const char *heading;     /* of a column, before the unit of a time */
    const char *key, *inner; /* where a summary has it */
    bool is_of_requests;     /* a mean or percentile of those that were served */
    enum { OF_NUMBERS, OF_SECONDS, OF_SHARES } unit;
};
extern const struct quantity_text quantity_texts[N_QUANTITIES];

/* Whether its runs are one: simulated, from requests and decisions that no seed draws. */
bool sample_is_one(const struct sample *sample);

/* In how many of its runs builds or contents of files are other than in the first; the first such
 * difference goes to `text`. Files that differ leave no mean. */
size_t sample_differs(const struct sample *sample, bool of_inputs, char *text, size_t size);

/* The first run that there is, or NULL. */
const json_t *sample_any(const struct sample *sample);

/* Mean and interval over the seeds; of runs that are one, that one's value. */
struct spread sample_spread(const struct sample *sample, enum quantity quantity);
/* ours - base, and ours over base, seed by seed. */
struct spread sample_differences(const struct sample *ours, const struct sample *base,
                                 enum quantity quantity);
struct spread sample_ratios(const struct sample *over, const struct sample *under,
                            enum quantity quantity);

/* Whether some run of the samples knows what its cards drew. */
bool samples_know_energy(const struct sample *samples, size_t n);

/* Of a number under a summary's key: its mean and the most of it; NaN where a run has none. */
double sample_mean(const struct sample *sample, const char *key);
double sample_most(const struct sample *sample, const char *key);

/* The mean of a number of what no scheduler can beat; NaN where a run has none. */
double sample_bound_mean(const struct sample *sample, const char *key);

/* Warns that one seed does not tell a difference. */
void sample_warn_of_one_seed(struct warnings *out);

/* Warns of what `n_seeds` seeds do not tell apart; `ours_name` is "X is" or "". */
void sample_warn_of_ties(const struct sample *ours, const struct sample *base,
                         const char *ours_name, const char *base_name, struct warnings *out);

/* Of all the runs that were asked prompts; served 0: none was. */
struct quality sample_quality(const struct sample *sample);
/* Prompt by prompt, seed by seed. */
struct mcnemar sample_mcnemar(const struct sample *ours, const struct sample *base);

/* Whether any of the runs warns so; in how many, and the sentence of the first that does. */
size_t sample_warns(const struct sample *sample, enum warning_code code);

/* Whether throughputs can differ: some run of the two was not known to keep up. Below saturation
 * everybody's throughput is the offered rate. */
bool sample_shows_throughput(const struct sample *ours, const struct sample *base);
/* Whether latencies are a system's own: no run of the two was saturated, or may have been. */
bool sample_shows_latency(const struct sample *ours, const struct sample *base);
/* Whether some run of the two rejected requests, so that they were not measured by the same. */
bool sample_is_of_others(const struct sample *ours, const struct sample *base);

/* All warnings of the runs, each code and sentence once; of several seeds each code once with its
 * first sentence and in how many runs. */
struct warnings sample_warnings(const struct sample *sample);

/* {"throughput_tok_s": {mean, low, high}, ...} */
json_t *sample_json(const struct sample *sample);
/* The same of the paired differences, with `differs`. */
json_t *sample_differences_json(const struct sample *ours, const struct sample *base);

#endif
