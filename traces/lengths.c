#include "traces/lengths.h"

#include <gsl/gsl_cdf.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/input/csv.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

/* A quantile table: the percentiles p0 to p100 of a measured set of lengths.
 *
 * The sets stand in traces/quantiles.csv, one line a set and side: dataset,field,p0,...,p100. */

enum { N_PERCENTILES = 101 };

struct quantiles {
    double tokens[N_PERCENTILES];
};

enum { MAX_SETS = 64, MAX_PATH_CHARS = 4096 };

/* False unless these are 101 rising numbers >= 0. */
static bool take_percentiles(char *const fields[], int n, struct quantiles *out) {
    for (int i = 0; i < n && i < N_PERCENTILES; i++) {
        if (!num_f64(fields[i], &out->tokens[i]) || out->tokens[i] < 0 ||
            (i > 0 && out->tokens[i] < out->tokens[i - 1])) {
            return false;
        }
    }
    return n == N_PERCENTILES;
}

static int no_such_set(const char *path, const char *set, char *const *sets, struct err *err) {
    char hint[NAME_HINT_CHARS];
    name_hint(set, (const char *const *)sets, hint);
    return err_unknown(err, "%s has no set '%s'%s", path, set, hint);
}

/* Read the percentiles of `set` and `field` ("input" or "output") from the shipped table.
 * ERR_USAGE when it has no such set, naming the nearest. */
static int quantiles_read(const char *set, const char *field, struct quantiles *out,
                          struct err *err) {
    char path[MAX_PATH_CHARS];
    data_path(path, sizeof path, "traces/quantiles.csv");
    struct csv csv;
    if (csv_open(&csv, path, "quantiles", err) != 0) {
        return (int)err->kind;
    }
    char *sets[MAX_SETS + 1] = {NULL};
    int n_sets = 0;
    bool found = false, more;
    while (!found && csv_line(&csv, &more, err) == 0 && more) {
        int n = csv_cut(&csv, err);
        if (csv.line.number == 1 || csv.text[0] == '#' || n < 3) {
            continue;
        }
        const char *name = csv.fields[0];
        found = strcmp(name, set) == 0 && strcmp(csv.fields[1], field) == 0;
        if (found && !take_percentiles(csv.fields + 2, n - 2, out)) {
            err_world(err, "%s:%" PRIu64 ": found no rising percentiles, expected p0 to p100", path,
                      csv.line.number);
        }
        if (n_sets < MAX_SETS) {
            sets[n_sets] = mem_text(name);
            n_sets++;
        }
    }
    if (!found) {
        no_such_set(path, set, sets, err);
    }
    for (int i = 0; i < n_sets; i++) {
        free(sets[i]);
    }
    csv_close(&csv);
    return (int)err->kind;
}

/* The inverse distribution function at `u` in (0, 1), linear between percentiles. */
static double quantiles_at(const struct quantiles *quantiles, double u) {
    double x = u * (N_PERCENTILES - 1);
    int i = (int)fmin(floor(x), N_PERCENTILES - 2);
    double low = quantiles->tokens[i], high = quantiles->tokens[i + 1];
    return low + (x - i) * (high - low);
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* ---- fixed ---- */

struct fixed {
    uint32_t tokens;
};

static const struct param fixed_params[] = {
    PARAM("tokens", PARAM_U32, struct fixed, tokens, "tokens", "256", 1, UINT32_MAX,
          "the length of every one"),
};

static double fixed_draw(const void *state, double u) {
    (void)u;
    return ((const struct fixed *)state)->tokens;
}

/* ---- uniform ---- */

struct range {
    uint32_t min, max;
};

static int check_range(const struct range *range, const char *name, struct err *err) {
    if (range->min > range->max) {
        return err_usage(err, "%s lengths from %u to %u: expected min up to max", name, range->min,
                         range->max);
    }
    return 0;
}

static const struct param uniform_params[] = {
    PARAM("min", PARAM_U32, struct range, min, "tokens", "1", 1, UINT32_MAX, "the shortest"),
    PARAM("max", PARAM_U32, struct range, max, "tokens", "1024", 1, UINT32_MAX, "the longest"),
};

static int uniform_start(void *state, const struct length_context *context, struct err *err) {
    (void)context;
    return check_range(state, "uniform", err);
}

static double uniform_draw(const void *state, double u) {
    const struct range *range = state;
    return range->min + floor(u * ((double)range->max - range->min + 1));
}

/* ---- lognormal ---- */

struct lognormal {
    struct range range;
    double mean, cv;
    double mu, sigma; /* of the logarithm */
};

static const struct param lognormal_params[] = {
    PARAM("min", PARAM_U32, struct lognormal, range.min, "tokens", "1", 1, UINT32_MAX,
          "shorter draws become this"),
    PARAM("max", PARAM_U32, struct lognormal, range.max, "tokens", "4294967295", 1, UINT32_MAX,
          "longer draws become this"),
    PARAM("mean", PARAM_F64, struct lognormal, mean, "tokens", "512", 1, 1e9,
          "mean before clamping"),
    PARAM("cv", PARAM_F64, struct lognormal, cv, "1", "0.5", 0.001, 10,
          "standard deviation over mean, before clamping"),
};

/* The moments of a lognormal: mean exp(mu + sigma^2 / 2), cv^2 = exp(sigma^2) - 1. */
static int lognormal_start(void *state, const struct length_context *context, struct err *err) {
    (void)context;
    struct lognormal *lognormal = state;
    double sigma2 = log1p(lognormal->cv * lognormal->cv);
    lognormal->sigma = sqrt(sigma2);
    lognormal->mu = log(lognormal->mean) - sigma2 / 2;
    return check_range(&lognormal->range, "lognormal", err);
}

static double lognormal_draw(const void *state, double u) {
    const struct lognormal *lognormal = state;
    double tokens = exp(lognormal->mu + lognormal->sigma * gsl_cdf_ugaussian_Pinv(u));
    return fmin(fmax(tokens, lognormal->range.min), lognormal->range.max);
}

/* ---- quantiles ---- */

/* Answers are outputs that a model ended itself. */
static int quantiles_start(void *state, const struct length_context *context, struct err *err) {
    return quantiles_read(context->set, context->side == LENGTH_INPUT ? "input" : "output", state,
                          err);
}

static double quantiles_draw(const void *state, double u) {
    return quantiles_at(state, u);
}

/* ---- of the row's own ---- */

struct share {
    double share;
};

static const struct param share_params[] = {
    PARAM("share", PARAM_F64, struct share, share, "1", "1", 0, 1,
          "tokens as a share of the output, rounded up"),
};

static double share_draw(const void *state, double u) {
    (void)u;
    return ((const struct share *)state)->share;
}

static double whole_draw(const void *state, double u) {
    (void)state, (void)u;
    return 1;
}

/* ---- the table ---- */

static const struct length_model models[] = {
    {.name = "fixed",
     .doc = "always the same",
     .params = fixed_params,
     .n_params = COUNT(fixed_params),
     .state_bytes = sizeof(struct fixed),
     .draw = fixed_draw},
    {.name = "uniform",
     .doc = "every length of a range alike",
     .params = uniform_params,
     .n_params = COUNT(uniform_params),
     .state_bytes = sizeof(struct range),
     .start = uniform_start,
     .draw = uniform_draw},
    {.name = "lognormal",
     .doc = "a clamped lognormal, for workloads that must be assumed",
     .params = lognormal_params,
     .n_params = COUNT(lognormal_params),
     .state_bytes = sizeof(struct lognormal),
     .start = lognormal_start,
     .draw = lognormal_draw},
    {.name = "quantiles",
     .doc = "quantiles:SET, the measured percentiles of a data set in traces/quantiles.csv",
     .has_set = true,
     .state_bytes = sizeof(struct quantiles),
     .start = quantiles_start,
     .draw = quantiles_draw},
    {.name = "share",
     .doc = "answers: a share of each output",
     .of_row = true,
     .params = share_params,
     .n_params = COUNT(share_params),
     .state_bytes = sizeof(struct share),
     .draw = share_draw},
    {.name = "output",
     .doc = "answers: all of each output, and known to be so",
     .of_row = true,
     .draw = whole_draw},
    {.name = "trace",
     .doc = "answers: a trace's answer_tokens, else its outputs, as far as drawn outputs reach",
     .of_row = true,
     .is_logged = true,
     .draw = whole_draw},
};

const struct length_model *length_model_at(size_t i) {
    return i < COUNT(models) ? &models[i] : NULL;
}

/* ---- one side ---- */

enum { MAX_SET_CHARS = 63 };

struct length {
    const struct length_model *model;
    void *state;
    char set[MAX_SET_CHARS + 1];
    enum length_side side;
    struct rng rng, first;
};

int length_open(const char *spec, const char *place, enum length_side side, struct length **out,
                struct err *err) {
    const char *colon = strchr(spec, ':');
    size_t n = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    const struct length_model *model = NULL;
    const char *names[COUNT(models) + 1] = {NULL};
    for (size_t i = 0; i < COUNT(models); i++) {
        names[i] = models[i].name;
        if (strlen(models[i].name) == n && memcmp(models[i].name, spec, n) == 0) {
            model = &models[i];
        }
    }
    if (model == NULL) {
        const char *near = name_nearest(spec, names);
        return err_usage(err, "%s: there is no length model '%s'%s%s%s", place, spec,
                         near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                         near != NULL ? "'?"
                                      : ": expected fixed, uniform, lognormal or "
                                        "quantiles:SET");
    }
    if (model->of_row && side != LENGTH_ANSWER) {
        return err_usage(err, "%s: '%s' is a model of answers, not of %s", place, spec,
                         side == LENGTH_INPUT ? "prompts" : "outputs");
    }
    if (model->has_set != (colon != NULL && colon[1] != '\0') ||
        (colon != NULL && strlen(colon + 1) > MAX_SET_CHARS)) {
        return err_usage(err, "%s: '%s' is not a length model: expected %s%s", place, spec,
                         model->name, model->has_set ? ":SET" : "");
    }
    struct length *length = mem_zeroed(1, sizeof *length);
    length->model = model;
    length->side = side;
    if (colon != NULL) {
        snprintf(length->set, sizeof length->set, "%s", colon + 1);
    }
    length->state = mem_zeroed(1, model->state_bytes > 0 ? model->state_bytes : 1);
    param_defaults(model->params, model->n_params, length->state);
    *out = length;
    return 0;
}

void length_close(struct length *length) {
    if (length != NULL) {
        free(length->state);
        free(length);
    }
}

int length_set(struct length *length, const char *place, const char *name, const char *text,
               struct err *err) {
    const struct length_model *model = length->model;
    return param_set(model->params, model->n_params, length->state, model->name, place, name, text,
                     err);
}

const char *length_text(const struct length *length, const char *name, char *text, size_t size) {
    const struct param *param = param_find(length->model->params, length->model->n_params, name);
    return param != NULL ? param_text(param, length->state, text, size) : NULL;
}

const char *length_doc(const struct length *length, const char *name) {
    const struct param *param = param_find(length->model->params, length->model->n_params, name);
    return param != NULL ? param->doc : NULL;
}

const char *length_name(const struct length *length) {
    return length->model->name;
}

int length_start(struct length *length, uint64_t seed, struct err *err) {
    static const char *const streams[LENGTH_SIDES] = {"input lengths", "output lengths",
                                                      "answer lengths"};
    length->first = rng_stream(seed, streams[length->side]);
    length->rng = length->first;
    struct length_context context = {length->set[0] != '\0' ? length->set : NULL, length->side};
    return length->model->start != NULL ? length->model->start(length->state, &context, err) : 0;
}

void length_restart(struct length *length) {
    length->rng = length->first;
}

uint32_t length_draw(struct length *length) {
    double tokens = floor(length->model->draw(length->state, rng_uniform(&length->rng)) + 0.5);
    return (uint32_t)fmin(fmax(tokens, 1), UINT32_MAX);
}

uint32_t length_answer_at(const struct length *length, uint32_t output_tokens, double u) {
    const double drawn = length->model->draw(length->state, u);
    const double tokens = length->model->of_row ? ceil(drawn * output_tokens) : floor(drawn + 0.5);
    return (uint32_t)fmin(fmax(tokens, 1), output_tokens);
}

/* A draw of an answer: at most `output_tokens`. `logged_tokens`: the row's own length before its
 * output was drawn, 0 where there was none. */
static uint32_t length_draw_answer(struct length *length, uint32_t output_tokens,
                                   uint32_t logged_tokens) {
    uint32_t tokens = output_tokens;
    if (length_is_logged(length) && logged_tokens > 0) {
        tokens = logged_tokens;
    } else if (length->model->of_row) {
        double share = length->model->draw(length->state, 0.5);
        tokens = (uint32_t)fmax(ceil(share * output_tokens), 1);
    } else {
        tokens = length_draw(length);
    }
    return tokens < output_tokens ? tokens : output_tokens;
}

bool length_is_fixed(const struct length *length) {
    return length->model->draw == fixed_draw;
}

bool length_draws(const struct length *length) {
    return !length_is_fixed(length) && !length->model->of_row;
}

bool length_is_logged(const struct length *length) {
    return length->model->is_logged;
}

bool length_is_whole(const struct length *length) {
    return length->model->draw == whole_draw && !length->model->is_logged;
}

/* ---- rows with drawn lengths ---- */

static enum source_reply give_drawn(void *state, struct arrival *out, struct err *err) {
    struct lengths *lengths = state;
    if (lengths->inner.next == NULL) {
        *out = (struct arrival){.id = lengths->n_given++};
    } else {
        enum source_reply reply = lengths->inner.next(lengths->inner.state, out, err);
        if (reply != SOURCE_ROW) {
            return reply;
        }
    }
    struct length *const *length = lengths->length;
    if (length[LENGTH_INPUT] != NULL) {
        out->prompt_tokens = length_draw(length[LENGTH_INPUT]);
        out->prefix_tokens = 0;
        out->shares = out->leaves = 0;
    }
    /* The row's answer, as long as its output is the row's own. */
    uint32_t said = out->answer_tokens;
    uint32_t logged = said > 0 ? said : out->output_tokens;
    if (length[LENGTH_OUTPUT] != NULL) {
        out->output_tokens = length_draw(length[LENGTH_OUTPUT]);
        said = said < out->output_tokens ? said : out->output_tokens;
    }
    out->answer_tokens =
        length[LENGTH_ANSWER] == NULL
            ? said
            : length_draw_answer(length[LENGTH_ANSWER], out->output_tokens, logged);
    return SOURCE_ROW;
}

struct arrival_source lengths_source(struct lengths *lengths) {
    ASSERT(lengths->inner.next != NULL ||
           (lengths->length[LENGTH_INPUT] != NULL && lengths->length[LENGTH_OUTPUT] != NULL));
    return (struct arrival_source){.state = lengths, .next = give_drawn};
}

/* ---- resampled pairs ---- */

struct pair {
    uint32_t input_tokens, output_tokens, answer_tokens;
    uint64_t prompt;
};

struct resample {
    struct pair *pairs;
    uint64_t n, n_given;
    struct rng rng;
};

int resample_open(struct arrival_source rows, const char *name, uint64_t seed,
                  struct resample **out, struct err *err) {
    struct resample *resample = mem_zeroed(1, sizeof *resample);
    resample->rng = rng_stream(seed, "lengths");
    size_t room = 0;
    struct arrival row;
    enum source_reply reply;
    while ((reply = rows.next(rows.state, &row, err)) == SOURCE_ROW) {
        resample->pairs = mem_grown(resample->pairs, resample->n, &room, sizeof *resample->pairs);
        resample->pairs[resample->n++] =
            (struct pair){row.prompt_tokens, row.output_tokens, row.answer_tokens, row.prompt};
    }
    if (reply == SOURCE_END && resample->n == 0) {
        err_world(err, "%s: found no rows, expected some to draw lengths from", name);
    }
    if (reply != SOURCE_END || resample->n == 0) {
        resample_close(resample);
        return (int)err->kind;
    }
    *out = resample;
    return 0;
}

void resample_close(struct resample *resample) {
    if (resample != NULL) {
        free(resample->pairs);
        free(resample);
    }
}

static enum source_reply give_resampled(void *state, struct arrival *out, struct err *err) {
    (void)err;
    struct resample *resample = state;
    uint64_t i = (uint64_t)(rng_uniform(&resample->rng) * (double)resample->n);
    const struct pair *pair = &resample->pairs[i < resample->n ? i : resample->n - 1];
    *out = (struct arrival){.id = resample->n_given++,
                            .prompt_tokens = pair->input_tokens,
                            .output_tokens = pair->output_tokens,
                            .answer_tokens = pair->answer_tokens,
                            .prompt = pair->prompt};
    return SOURCE_ROW;
}

struct arrival_source resample_source(struct resample *resample) {
    return (struct arrival_source){.state = resample, .next = give_resampled};
}
