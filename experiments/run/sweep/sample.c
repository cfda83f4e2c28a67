#include "experiments/run/sweep/sample.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/field.h"
#include "analysis/identity.h"
#include "experiments/run/cli/cmd.h"

const struct quantity_text quantity_texts[N_QUANTITIES] = {
    [Q_THROUGHPUT] = {"throughput_tok_s", "tok/s", "throughput_tok_s", NULL, false, OF_NUMBERS},
    [Q_MEAN] = {"latency_s.mean", "mean", "latency_s", "mean", true, OF_SECONDS},
    [Q_P50] = {"latency_s.p50", "p50", "latency_s", "p50", true, OF_SECONDS},
    [Q_P99] = {"latency_s.p99", "p99", "latency_s", "p99", true, OF_SECONDS},
    [Q_TTFT] = {"ttft_s.mean", "ttft", "ttft_s", "mean", true, OF_SECONDS},
    [Q_TPOT] = {"tpot_s.mean", "tpot", "tpot_s", "mean", true, OF_SECONDS},
    [Q_QUEUE] = {"queue_s.mean", "queue", "queue_s", "mean", true, OF_SECONDS},
    [Q_GOODPUT] = {"goodput_req_s", "goodput", "goodput_req_s", NULL, false, OF_NUMBERS},
    [Q_ATTAINMENT] = {"attainment", "attain_%", "attainment", NULL, false, OF_SHARES},
    [Q_ENERGY] = {"energy.joules_per_answer_token", "J/token", "energy", "joules_per_answer_token",
                  false, OF_NUMBERS},
};

bool sample_is_one(const struct sample *sample) {
    for (size_t i = 0; i < sample->n; i++) {
        const json_t *run = sample->runs[i];
        if (run == NULL || !json_is_false(json_object_get(run, "is_drawn")) ||
            json_is_string(json_object_get(run, "device"))) {
            return false;
        }
    }
    return sample->n > 1;
}

size_t sample_differs(const struct sample *sample, bool of_inputs, char *text, size_t size) {
    const json_t *first = json_object_get(sample_any(sample), "identity");
    size_t n = 0;
    for (size_t i = 0; i < sample->n && json_is_object(first); i++) {
        const json_t *identity = json_object_get(sample->runs[i], "identity");
        struct identity_difference d = {.text = ""};
        if (json_is_object(identity) && identity != first) { /* a run is like itself */
            d = identity_compare(first, identity, true);
        }
        if ((of_inputs ? d.inputs : d.build) && n++ == 0) {
            snprintf(text, size, "%s", d.text);
        }
    }
    return n;
}

const json_t *sample_any(const struct sample *sample) {
    for (size_t i = 0; i < sample->n; i++) {
        if (sample->runs[i] != NULL) {
            return sample->runs[i];
        }
    }
    return NULL;
}

static void values_of(const struct sample *sample, enum quantity quantity,
                      double out[SAMPLE_MOST_SEEDS]) {
    const struct quantity_text *text = &quantity_texts[quantity];
    for (size_t i = 0; i < sample->n; i++) {
        bool is_of_some = quantity != Q_ENERGY && sample->requests[i] != NULL;
        const json_t *of = is_of_some ? sample->requests[i] : sample->runs[i];
        out[i] = cmd_number(of, text->key, text->inner);
    }
}

/* Of how many requests the shares of the first `n` runs are. */
static double requests_of(const struct sample *sample, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *of = sample->requests[i] != NULL ? sample->requests[i] : sample->runs[i];
        sum += cmd_number(of, "requests", NULL);
    }
    return isfinite(sum) ? sum : 0;
}

static bool has_no_mean(const struct sample *sample) {
    char text[8];
    return sample_differs(sample, true, text, sizeof text) > 0;
}

static const struct spread no_spread = {0, (double)NAN, (double)NAN, (double)NAN};

struct spread sample_spread(const struct sample *sample, enum quantity quantity) {
    double values[SAMPLE_MOST_SEEDS];
    size_t n = sample_is_one(sample) ? 1 : sample->n;
    values_of(sample, quantity, values);
    return has_no_mean(sample) ? no_spread
                               : spread_of_kind(quantity_texts[quantity].unit == OF_SHARES, values,
                                                n, requests_of(sample, n));
}

static struct spread pairs(const struct sample *ours, const struct sample *base,
                           enum quantity quantity,
                           struct spread (*of)(const double *ours, const double *base, size_t n)) {
    double values[SAMPLE_MOST_SEEDS], bases[SAMPLE_MOST_SEEDS];
    bool are_one = sample_is_one(ours) && sample_is_one(base);
    values_of(ours, quantity, values);
    values_of(base, quantity, bases);
    return has_no_mean(ours) || has_no_mean(base) ? no_spread
                                                  : of(values, bases, are_one ? 1 : ours->n);
}

struct spread sample_differences(const struct sample *ours, const struct sample *base,
                                 enum quantity quantity) {
    return pairs(ours, base, quantity,
                 quantity_texts[quantity].unit == OF_SHARES ? spread_of_share_differences
                                                            : spread_of_differences);
}

struct spread sample_ratios(const struct sample *over, const struct sample *under,
                            enum quantity quantity) {
    return pairs(over, under, quantity, spread_of_ratios);
}

bool samples_know_energy(const struct sample *samples, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t seed = 0; seed < samples[i].n; seed++) {
            if (isfinite(cmd_number(samples[i].runs[seed], "energy", "joules_per_answer_token"))) {
                return true;
            }
        }
    }
    return false;
}

double sample_mean(const struct sample *sample, const char *key) {
    double sum = 0;
    for (size_t i = 0; i < sample->n; i++) {
        sum += cmd_number(sample->runs[i], key, NULL);
    }
    return sum / (double)sample->n;
}

double sample_bound_mean(const struct sample *sample, const char *key) {
    double sum = 0;
    for (size_t i = 0; i < sample->n; i++) {
        sum += cmd_number(sample->runs[i], "bound", key);
    }
    return sum / (double)sample->n;
}

double sample_most(const struct sample *sample, const char *key) {
    double most = (double)NAN;
    for (size_t i = 0; i < sample->n; i++) {
        most = fmax(most, cmd_number(sample->runs[i], key, NULL));
    }
    return most;
}

void sample_warn_of_one_seed(struct warnings *out) {
    warnings_add(out, WARNING_FEW_SEEDS, 1,
                 "one seed does not tell how far a difference would move with another one "
                 "(--seeds N)");
}

void sample_warn_of_ties(const struct sample *ours, const struct sample *base,
                         const char *ours_name, const char *base_name, struct warnings *out) {
    static const enum quantity told[] = {Q_THROUGHPUT, Q_MEAN};
    const bool shown[] = {sample_shows_throughput(ours, base), sample_shows_latency(ours, base)};
    char title[FIELD_CHARS];
    for (size_t k = 0; k < sizeof told / sizeof told[0]; k++) {
        struct spread spread = sample_differences(ours, base, told[k]);
        if (shown[k] && isfinite(spread.low) && !spread_differs(&spread)) {
            warnings_add(out, WARNING_NOT_DISTINGUISHABLE, (double)ours->n,
                         "%snot distinguishable from %s in %s with %zu seeds", ours_name, base_name,
                         field_title(quantity_texts[told[k]].name, title), ours->n);
        }
    }
}

struct quality sample_quality(const struct sample *sample) {
    struct quality sum = {.marks = ""};
    for (size_t i = 0; i < sample->n; i++) {
        quality_add(&sum, sample->runs[i]);
    }
    return sum;
}

static const char *marks_of(const json_t *run) {
    const char *marks =
        json_string_value(json_object_get(json_object_get(run, "quality"), "marks"));
    return marks != NULL ? marks : "";
}

struct mcnemar sample_mcnemar(const struct sample *ours, const struct sample *base) {
    struct mcnemar test = {0};
    for (size_t i = 0; i < ours->n; i++) {
        mcnemar_add(&test, marks_of(ours->runs[i]), marks_of(base->runs[i]));
    }
    mcnemar_finish(&test);
    return test;
}

size_t sample_warns(const struct sample *sample, enum warning_code code) {
    size_t n = 0;
    for (size_t i = 0; i < sample->n; i++) {
        n += sample->runs[i] != NULL && caution_has(sample->runs[i], code);
    }
    return n;
}

static bool all_steady(const struct sample *sample) {
    for (size_t i = 0; i < sample->n; i++) {
        const json_t *offered = json_object_get(sample->runs[i], "offered");
        const char *state = json_string_value(json_object_get(offered, "state"));
        if (state == NULL || strcmp(state, offered_words[OFFERED_STEADY]) != 0) {
            return false;
        }
    }
    return true;
}

bool sample_shows_throughput(const struct sample *ours, const struct sample *base) {
    return !all_steady(ours) || !all_steady(base);
}

bool sample_shows_latency(const struct sample *ours, const struct sample *base) {
    static const enum warning_code doubts[] = {WARNING_SATURATED, WARNING_SATURATION_UNKNOWN};
    bool is_doubted = false;
    for (size_t i = 0; i < sizeof doubts / sizeof doubts[0]; i++) {
        is_doubted =
            is_doubted || sample_warns(ours, doubts[i]) > 0 || sample_warns(base, doubts[i]) > 0;
    }
    return !is_doubted;
}

static bool has_others(const struct sample *sample) {
    return sample->requests[0] == NULL && sample_warns(sample, WARNING_REJECTED) > 0;
}

bool sample_is_of_others(const struct sample *ours, const struct sample *base) {
    return has_others(ours) || has_others(base);
}

/* What the seeds themselves do to a mean. */
static void warn_of_seeds(const struct sample *sample, struct warnings *out) {
    char text[200];
    size_t n = sample_differs(sample, true, text, sizeof text);
    bool of_inputs = n > 0;
    n = of_inputs ? n : sample_differs(sample, false, text, sizeof text);
    if (n > 0) {
        warnings_add(out, WARNING_RUNS_DIFFER, (double)n,
                     "%zu of %zu runs differ in more than the "
                     "seed (%s)%s",
                     n, sample->n, text, of_inputs ? ": they have no mean" : ", by --any-build");
    }
    if (sample_is_one(sample)) {
        warnings_add(out, WARNING_FEW_SEEDS, 1,
                     "arrivals, lengths and decisions are as recorded: %zu seeds are one run, "
                     "without an interval",
                     sample->n);
    }
}

struct warnings sample_warnings(const struct sample *sample) {
    struct warnings out = {0};
    warn_of_seeds(sample, &out);
    for (size_t i = 0; i < sample->n; i++) {
        struct warnings of_run = caution_read(sample->runs[i]);
        for (unsigned w = 0; w < of_run.n; w++) {
            const struct warning *warning = &of_run.items[w];
            size_t n_runs = sample_warns(sample, warning->code);
            bool is_known = false;
            for (unsigned k = 0; sample->n > 1 && k < out.n; k++) {
                is_known = is_known || out.items[k].code == warning->code;
            }
            if (sample->n == 1 || (n_runs == sample->n && !is_known)) {
                warnings_add(&out, warning->code, warning->value, "%s", warning->text);
            } else if (!is_known) {
                warnings_add(&out, warning->code, warning->value, "with %zu of %zu seeds: %.200s",
                             n_runs, sample->n, warning->text);
            }
        }
    }
    return out;
}

json_t *sample_json(const struct sample *sample) {
    json_t *object = json_object();
    int n = samples_know_energy(sample, 1) ? N_QUANTITIES : Q_ENERGY;
    for (int q = 0; q < n; q++) {
        struct spread spread = sample_spread(sample, (enum quantity)q);
        json_object_set_new(object, quantity_texts[q].name, spread_json(&spread));
    }
    return object;
}

json_t *sample_differences_json(const struct sample *ours, const struct sample *base) {
    json_t *object = json_object();
    bool both_know = samples_know_energy(ours, 1) && samples_know_energy(base, 1);
    int n = both_know ? N_QUANTITIES : Q_ENERGY;
    for (int q = 0; q < n; q++) {
        struct spread spread = sample_differences(ours, base, (enum quantity)q);
        json_t *json = spread_json(&spread);
        bool known = isfinite(spread.low);
        json_object_set_new(json, "differs",
                            known ? json_boolean(spread_differs(&spread)) : json_null());
        json_object_set_new(object, quantity_texts[q].name, json);
    }
    return object;
}
