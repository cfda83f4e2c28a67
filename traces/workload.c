#include "traces/workload.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "traces/workload_parts.h"

/* ---- the command line ---- */

static int fix_length(struct workload *workload, enum length_side side, uint32_t tokens,
                      struct err *err) {
    struct length **length = &workload->length[side];
    if (tokens == 0) {
        return 0;
    }
    char text[16];
    snprintf(text, sizeof text, "%" PRIu32, tokens);
    length_close(*length);
    *length = NULL;
    int status = length_open("fixed", "the command line", side, length, err);
    return status != 0 ? status : length_set(*length, "the command line", "tokens", text, err);
}

static int apply_options(struct workload *workload, const struct workload_options *options,
                         struct err *err) {
    struct spec *spec = &workload->spec;
    if (options->requests != 0) {
        spec->requests = (int64_t)options->requests;
    }
    if (options->rate_per_s != 0) {
        spec->rate_per_s = options->rate_per_s;
    }
    if (options->context_tokens != 0) {
        spec->context_tokens = options->context_tokens;
    }
    const uint32_t tokens[LENGTH_SIDES] = {options->input_tokens, options->output_tokens,
                                           options->answer_tokens};
    int status = 0;
    for (int side = 0; status == 0 && side < LENGTH_SIDES; side++) {
        status = fix_length(workload, (enum length_side)side, tokens[side], err);
    }
    return status;
}

/* ---- checks of the whole ---- */

static int check_answers(const struct workload *workload, const char *path, struct err *err) {
    const struct length *answer = workload->length[LENGTH_ANSWER];
    if (answer == NULL) {
        return 0;
    }
    if (length_is_logged(answer) && workload->spec.pairs == PAIRS_NONE) {
        return err_usage(err, "%s: found answer = trace, expected lengths = trace or resample",
                         path);
    }
    return length_is_fixed(answer) || workload->spec.answers_provenance != STATED_UNSTATED
               ? 0
               : err_usage(
                     err,
                     "%s: found no 'provenance.answers', expected real, estimated, synthetic, "
                     "assumed or traced",
                     path);
}

/* Where the rows come from must be said once and completely. */
static int check_spec(const struct workload *workload, const char *path, struct err *err) {
    const struct spec *spec = &workload->spec;
    bool replays = workload->generator == NULL, pairs = spec->pairs != PAIRS_NONE;
    if ((replays || pairs) != (workload->trace != NULL)) {
        return err_usage(err, "%s: found %s, expected %s", path,
                         workload->trace != NULL ? "a trace that nothing reads" : "no trace",
                         workload->trace != NULL ? "arrivals = trace or lengths from it"
                                                 : "trace = FILE for arrivals or lengths");
    }
    if (workload->trace != NULL && trace_has_prompts(workload->trace) &&
        (workload->length[LENGTH_INPUT] != NULL || spec->over == OVER_TRUNCATE)) {
        return err_usage(err, "%s: found %s, but prompts are as long as they are", path,
                         workload->length[LENGTH_INPUT] != NULL ? "lengths of the inputs"
                                                                : "over_context = truncate");
    }
    if (!pairs &&
        (workload->length[LENGTH_INPUT] == NULL || workload->length[LENGTH_OUTPUT] == NULL)) {
        return err_usage(err, "%s: found no lengths of the %s, expected %s = MODEL or lengths",
                         path, workload->length[LENGTH_INPUT] == NULL ? "prompts" : "outputs",
                         workload->length[LENGTH_INPUT] == NULL ? "input" : "output");
    }
    if (replays && !trace_has_times(workload->trace)) {
        char hint[320];
        return err_usage(err,
                         "%s: found only lengths, expected arrival times to replay (--arrivals, or "
                         "a workload's arrivals, draws some)%s",
                         trace_path(workload->trace),
                         trace_hint_of_time(workload->trace, hint, sizeof hint));
    }
    if (!replays && spec->requests == 0 && spec->pairs != PAIRS_TRACE) {
        return err_usage(err, "%s: found no 'requests', expected how many to generate", path);
    }
    bool lengths_unstated = spec->lengths_provenance == STATED_UNSTATED &&
                            !(workload_is_fixed(workload->length[LENGTH_INPUT]) &&
                              workload_is_fixed(workload->length[LENGTH_OUTPUT]));
    if (lengths_unstated || (replays && spec->arrivals_provenance == STATED_UNSTATED)) {
        return err_usage(err,
                         "%s: found no 'provenance.%s', expected real, estimated, synthetic, "
                         "assumed or traced",
                         path, lengths_unstated ? "lengths" : "arrivals");
    }
    return check_answers(workload, path, err);
}

static int check_rate(const struct workload *workload, const char *path, struct err *err) {
    double rate = workload->spec.rate_per_s;
    if (rate != 0 && !(rate >= 1e-6 && rate <= 1e9)) {
        return err_usage(err, "%s: found a rate of %g requests a second, expected 1e-6 to 1e9",
                         path, rate);
    }
    if (workload->generator == NULL) {
        return 0;
    }
    const struct process *process = generator_process(workload->generator);
    if (process->has_rate != (rate != 0)) {
        return err_usage(err, "%s: found %s rate, which arrivals = %s %s", path,
                         rate != 0 ? "a" : "no", process->name,
                         rate != 0 ? "does not take" : "needs");
    }
    return 0;
}

/* ---- putting the source together ---- */

/* Back to the first row of the trace, with the same drawn lengths as in the round before. */
static int rewind_rows(void *state, struct err *err) {
    struct workload *workload = state;
    for (int side = 0; side < LENGTH_SIDES; side++) {
        if (workload->length[side] != NULL) {
            length_restart(workload->length[side]);
        }
    }
    return trace_rewind(workload->trace, err);
}

static int rewind_trace(void *state, struct err *err) {
    return trace_rewind(((struct workload *)state)->trace, err);
}

/* `rows` with drawn lengths where there are models, within the context. */
static struct arrival_source shape_rows(struct workload *workload, struct arrival_source rows) {
    bool draws = false;
    for (int side = 0; side < LENGTH_SIDES; side++) {
        draws |= workload->length[side] != NULL;
    }
    if (draws) {
        workload->lengths = (struct lengths){.inner = rows};
        memcpy(workload->lengths.length, workload->length, sizeof workload->length);
        rows = lengths_source(&workload->lengths);
    }
    if (workload->spec.context_tokens != 0) {
        workload->cap = (struct cap){.inner = rows,
                                     .context_tokens = workload->spec.context_tokens,
                                     .truncates = workload->spec.over == OVER_TRUNCATE,
                                     .name = workload->path};
        rows = cap_source(&workload->cap);
    }
    return rows;
}

/* How long the first `requests` of `rows` take, once they are repeated, of whose whole round `one`
 * is the survey; of no more than there are, what `one` says. Leaves `rows` where they end. */
static int repeated_span(struct workload *workload, struct arrival_source rows,
                         const struct survey *one, struct rewinder again, double *span_ns,
                         struct err *err) {
    uint64_t requests = (uint64_t)workload->spec.requests;
    *span_ns = (double)(one->last_ns - one->first_ns);
    if (requests <= one->rows || one->rows == 0) {
        return 0;
    }
    struct survey rest = {0};
    uint64_t n_before = (requests - 1) / one->rows;
    cap_restart(&workload->cap);
    int status = again.rewind(again.state, err);
    status =
        status != 0 ? status : survey_source(rows, requests - n_before * one->rows, &rest, err);
    *span_ns =
        (double)n_before * (double)survey_period_ns(one) + (double)(rest.last_ns - rest.first_ns);
    return status;
}

/* Replays `rows`, which `again` takes back to their start: repeated where more are asked for than
 * there are, and rescaled so that all that are asked for come at the rate. */
static int start_replay(struct workload *workload, struct arrival_source rows,
                        struct rewinder again, struct err *err) {
    const struct spec *spec = &workload->spec;
    workload->replay = (struct replay){.inner = rows, .factor = 1};
    if (spec->rate_per_s == 0 && spec->requests == 0) {
        return 0;
    }
    struct survey survey;
    double span_ns = 0;
    int status = survey_source(rows, (uint64_t)spec->requests, &survey, err);
    status = status != 0 ? status : repeated_span(workload, rows, &survey, again, &span_ns, err);
    status = status != 0 ? status : again.rewind(again.state, err);
    cap_restart(&workload->cap);
    if (status == 0 && spec->rate_per_s != 0 && !(span_ns > 0)) {
        return err_usage(err,
                         "%s: found %" PRIu64 " requests at one time, expected times that a "
                         "rate of %g a second can rescale",
                         trace_path(workload->trace), survey.rows, spec->rate_per_s);
    }
    if (spec->rate_per_s != 0) {
        uint64_t n = (uint64_t)spec->requests > 0 ? (uint64_t)spec->requests : survey.rows;
        workload->replay.factor = (double)(n - 1) * 1e9 / span_ns / spec->rate_per_s;
    }
    if ((uint64_t)spec->requests > survey.rows && survey.rows > 0) {
        workload->rounds = (double)spec->requests / (double)survey.rows;
        workload->replay.again = again;
        workload->replay.period_ns = survey_period_ns(&survey);
    }
    return status;
}

static int start_lengths(struct workload *workload, uint64_t seed, struct err *err) {
    int status = 0;
    for (int side = 0; status == 0 && side < LENGTH_SIDES; side++) {
        struct length *length = workload->length[side];
        status = length != NULL ? length_start(length, seed, err) : 0;
    }
    if (status == 0 && workload->spec.pairs == PAIRS_RESAMPLE) {
        status = resample_open(trace_source(workload->trace), trace_path(workload->trace), seed,
                               &workload->resample, err);
    }
    return status;
}

/* Of generated arrivals on the trace's rows: how often they are gone through, once where no number
 * of requests is given. */
static int count_rounds(struct workload *workload, struct err *err) {
    struct survey survey;
    uint64_t asked = (uint64_t)workload->spec.requests;
    struct arrival_source rows = shape_rows(workload, trace_source(workload->trace));
    int status = survey_source(rows, asked, &survey, err);
    status = status == 0 ? rewind_rows(workload, err) : status;
    if (status == 0 && asked == 0) {
        workload->spec.requests = (int64_t)survey.rows;
    } else if (status == 0 && survey.rows > 0) {
        workload->rounds = (double)asked / (double)survey.rows;
    }
    return status;
}

/* Arrivals of a process on rows of models, of drawn pairs, or of the trace over and over. */
static int start_generated(struct workload *workload, uint64_t seed, struct arrival_source *out,
                           struct err *err) {
    struct arrival_source rows = {0};
    if (workload->spec.pairs == PAIRS_TRACE && count_rounds(workload, err) != 0) {
        return err_status(err);
    }
    if (workload->spec.pairs == PAIRS_RESAMPLE) {
        rows = resample_source(workload->resample);
    } else if (workload->spec.pairs == PAIRS_TRACE) {
        workload->replay = (struct replay){
            .inner = trace_source(workload->trace), .factor = 0, .again = {workload, rewind_trace}};
        rows = replay_source(&workload->replay);
    }
    rows = shape_rows(workload, rows);
    *out = generator_source(workload->generator);
    return generator_start(workload->generator, workload->spec.rate_per_s, seed,
                           workload->spec.context_tokens, rows, err);
}

/* The trace's own arrivals, on its rows or on rows of models. */
static int start_replayed(struct workload *workload, struct arrival_source *out, struct err *err) {
    if (workload->spec.pairs == PAIRS_TRACE) {
        struct arrival_source rows = shape_rows(workload, trace_source(workload->trace));
        *out = replay_source(&workload->replay);
        return start_replay(workload, rows, (struct rewinder){workload, rewind_rows}, err);
    }
    struct arrival_source drawn = {0};
    if (workload->spec.pairs == PAIRS_RESAMPLE) {
        drawn = resample_source(workload->resample);
        if (trace_rewind(workload->trace, err) != 0) {
            return (int)err->kind;
        }
    }
    workload->zip = (struct zip){.rows = shape_rows(workload, drawn)};
    int status = start_replay(workload, trace_source(workload->trace),
                              (struct rewinder){workload, rewind_trace}, err);
    workload->zip.times = replay_source(&workload->replay);
    *out = zip_source(&workload->zip);
    return status;
}

/* Whether some requests follow others: drawn conversations, or logged ones as they were logged. */
static bool has_turns(const struct workload *workload) {
    return workload->generator != NULL
               ? generator_process(workload->generator)->again != NULL
               : workload->spec.pairs == PAIRS_TRACE && trace_has_sessions(workload->trace);
}

static int start(struct workload *workload, const char *path,
                 const struct workload_options *options, struct err *err) {
    bool generates = workload->generator != NULL;
    struct arrival_source source = {0};
    workload->path = mem_text(path);
    int status = apply_options(workload, options, err);
    if (workload->trace != NULL) {
        trace_set_taker(workload->trace, &options->taker);
    }
    if (status == 0) {
        status = check_spec(workload, path, err);
    }
    if (status == 0) {
        status = check_rate(workload, path, err);
    }
    if (status == 0) {
        status = start_lengths(workload, options->seed, err);
    }
    if (status == 0 && options->is_class && workload->marks.model[MARK_TENANT] != NULL) {
        status = err_usage(err, "%s: found tenant, but a class is a tenant itself", path);
    }
    status = status != 0 ? status : marks_start(&workload->marks, options->seed, path, err);
    if (status == 0) {
        status = generates ? start_generated(workload, options->seed, &source, err)
                           : start_replayed(workload, &source, err);
        workload_state(workload);
    }
    if (status == 0 && has_turns(workload)) {
        status = conversations_open(source, (uint64_t)workload->spec.requests,
                                    &workload->conversations, err);
    }
    workload->limit = (struct limit){.inner = source, .n = (uint64_t)workload->spec.requests};
    return status;
}

/* `workload` when `status` is 0; otherwise it is closed. */
static int finish(struct workload *workload, int status, struct workload **out) {
    if (status != 0) {
        workload_close(workload);
        return status;
    }
    *out = workload;
    return 0;
}

int workload_from_config(const struct config *config, const char *name,
                         const struct workload_options *options, struct workload **out,
                         struct err *err) {
    struct workload *workload = workload_new(name);
    int status;
    if (classes_are_in(config) && options->is_class) {
        status = err_usage(err, "%s: a class has classes, expected one workload", config->path);
    } else if (classes_are_in(config)) {
        status = classes_open(config, options, &workload->classes, err);
        if (status == 0) {
            workload_state_classes(workload, config);
        }
    } else {
        status = workload_read(workload, config, err);
        status = status == 0 ? start(workload, config->path, options, err) : status;
        workload_keep_stated(workload, config, options);
    }
    return finish(workload, status, out);
}

/* A trace on its own: replayed once as it stands. */
static int open_bare(const char *path, const struct workload_options *options,
                     struct workload **out, struct err *err) {
    struct workload *workload = workload_new(path);
    workload->spec.arrivals_provenance = workload->spec.lengths_provenance = STATED_TRACED;
    const struct trace_reading how = {.names_skip_bad = true};
    int status = trace_open_as(path, &how, &workload->trace, err);
    if (status == 0) {
        status = start(workload, path, options, err);
    }
    return finish(workload, status, out);
}

static int no_such_workload(const char *name, struct err *err) {
    struct err ignored = {0};
    char **names = workload_names(&ignored);
    char hint[NAME_HINT_CHARS];
    name_hint(name, (const char *const *)names, hint);
    int status = err_unknown(err, "there is no workload '%s' in %s/traces/workloads%s", name,
                             data_dir(), hint);
    names_free(names);
    return status;
}

bool workload_is_trace(const char *path_or_name) {
    const char *dot = strrchr(path_or_name, '.');
    return dot != NULL ? !name_ends(path_or_name, ".ini") : strchr(path_or_name, '/') != NULL;
}

int workload_open(const char *path_or_name, const struct workload_options *options,
                  struct workload **out, struct err *err) {
    if (workload_is_trace(path_or_name)) {
        return open_bare(path_or_name, options, out, err);
    }
    char relative[MAX_PATH_CHARS], path[MAX_PATH_CHARS];
    if (strpbrk(path_or_name, "./") != NULL) {
        snprintf(path, sizeof path, "%s", path_or_name);
    } else {
        snprintf(relative, sizeof relative, "traces/workloads/%s.ini", path_or_name);
        data_path(path, sizeof path, relative);
        if (access(path, F_OK) != 0) {
            return no_such_workload(path_or_name, err);
        }
    }
    struct config config;
    int status = config_read(path, &config, err);
    if (status == 0) {
        status = workload_from_config(&config, path_or_name, options, out, err);
        config_fini(&config);
    }
    return status;
}

void workload_close(struct workload *workload) {
    if (workload != NULL) {
        trace_close(workload->trace);
        generator_close(workload->generator);
        for (int side = 0; side < LENGTH_SIDES; side++) {
            length_close(workload->length[side]);
        }
        marks_close(&workload->marks);
        resample_close(workload->resample);
        conversations_close(workload->conversations);
        classes_close(workload->classes);
        workload_drop_stated(workload);
        free(workload->name);
        free(workload->path);
        free(workload->note);
        free(workload->passes_over);
        free(workload);
    }
}

/* ---- its requests ---- */

struct arrival_source workload_source(struct workload *workload) {
    return workload->classes != NULL
               ? classes_source(workload->classes)
               : marks_source(&workload->marks, workload->conversations != NULL
                                                    ? conversations_source(workload->conversations)
                                                    : limit_source(&workload->limit));
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **workload_names(struct err *err) {
    char **names = data_names("traces/workloads", err);
    size_t n = 0;
    while (names[n] != NULL) {
        n++;
    }
    qsort(names, n, sizeof *names, compare_names);
    return names;
}
