/* unmask run: one run, its summary, and what was asked to be kept of it. */
#include <inttypes.h>
#include <string.h>

#include "analysis/plot/timeline.h"
#include "analysis/summary_output.h"
#include "experiments/command/commands.h"
#include "experiments/command/summary_tables.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/progress.h"
#include "experiments/run/decode_out.h"
#include "experiments/run/limit.h"
#include "experiments/run/recorder.h"
#include "experiments/study/released.h"

static const struct option own_options[] = {
    {"decode", "FILE", "take what each pass commits from this decode trace; sim only", false},
    {"decode-out", "FILE",
     "write a decode trace (a SQLite file): what each pass committed and, on cpu and cuda, the "
     "model's outputs for each position",
     false},
    {"outputs", "FILE", "on cpu and cuda: write the answers to prompts, as JSON lines", false},
    {"timeline", "FILE", "write a timeline for ui.perfetto.dev", false},
    {"bound", NULL, "print what no scheduler could beat, too (`unmask bound`); sim only", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_run[] = {
    system_option,  device_options, policy_options,   backend_options,
    clock_options,  text_options,   workload_options, objective_options,
    record_options, own_options,    json_options,     format_option,
    verbose_option, NULL,
};

/* Where a run is recorded, besides its summary. */
struct keeping {
    struct store *store;       /* NULL: nowhere */
    struct recorder *recorder; /* into it */
    struct timeline *timeline;
    struct decode_out *decode;
    enum store_level level;
    struct sink sinks[4];
    uint32_t n_sinks;
    struct progress progress;
    uint64_t n_left; /* requests that have left, of a live run */
};

/* A live run makes too few turns of the loop for the loop's own reports of progress. */
static int count_request(void *state, const struct request_record *record, struct err *err) {
    struct keeping *keeping = state;
    (void)record, (void)err;
    progress_update(&keeping->progress, ++keeping->n_left);
    return 0;
}

static struct decode_about about_of(const struct composition *c) {
    const struct run_facts *facts = &c->facts;
    return (struct decode_about){
        .system = c->system,
        .config = c->config,
        .played = c->decode != NULL ? c->decode_source.name : NULL,
        .weights = facts->weights,
        .device = compose_is_live(c) ? facts->device : NULL,
        .trace = facts->trace,
        .trace_provenance = facts->trace_provenance,
        .ends = &c->ends,
        .seed = facts->seed,
        .incomplete = facts->incomplete,
    };
}

static int open_decode(const char *path, const struct composition *c, struct keeping *keeping,
                       struct err *err) {
    struct decode_about about = about_of(c);
    struct fleet *fleet = compose_is_live(c) ? c->fleet : NULL;
    int status = decode_out_open(path, about.played, c->system, fleet, &keeping->decode, err);
    if (status == 0 && fleet != NULL) {
        about.incomplete = recorder_unfinished;
        status = decode_out_keep(keeping->decode, &about, err);
    }
    if (status == 0) {
        keeping->sinks[keeping->n_sinks++] = decode_out_sink(keeping->decode);
    }
    return status;
}

static int open_keeping(const struct options *options, const struct composition *composition,
                        struct keeping *keeping, struct err *err) {
    const char *db = options_text(options, "db"), *timeline = options_text(options, "timeline");
    const char *decode = options_text(options, "decode-out");
    int status = asked_level(options, &keeping->level, err);
    if (status == 0 && timeline != NULL) {
        char title[256];
        snprintf(title, sizeof title, "%s, %s on %s: %s", composition->facts.system,
                 composition->facts.model, composition->facts.gpu, composition->facts.trace);
        status = timeline_open(timeline, title, &keeping->timeline, err);
        if (status == 0) {
            keeping->sinks[keeping->n_sinks++] = timeline_sink(keeping->timeline);
        }
    }
    if (status == 0 && db != NULL) {
        store_stop_on(interrupt_catch());
        status = store_open(db, STORE_WRITE, &keeping->store, err);
        if (status == 0) {
            keeping->recorder =
                recorder_open(keeping->store, &composition->facts, &composition->summary.slo,
                              keeping->level, compose_is_live(composition));
            keeping->sinks[keeping->n_sinks++] = recorder_sink(keeping->recorder);
        }
    }
    if (status == 0 && decode != NULL) {
        status = open_decode(decode, composition, keeping, err);
    }
    return status;
}

/* When the rest of a live run cannot be written, a part of it is in the database already. */
static int record(struct keeping *keeping, const struct composition *composition, struct err *err) {
    struct recording recording = {.recorder = keeping->recorder,
                                  .summary = &composition->summary,
                                  .facts = &composition->facts};
    int status = recorder_finish(&recording, err);
    if (recording.was_held) {
        fprintf(stderr, "unmask: is run %" PRId64 " of %s already, and is not recorded again\n",
                recording.run, store_path(keeping->store));
    } else if (recording.run > 0) {
        fprintf(stderr, "unmask: recorded as run %" PRId64 " of %s%s\n", recording.run,
                store_path(keeping->store),
                status != 0                             ? ", incomplete: the end is missing"
                : composition->facts.incomplete != NULL ? ", incomplete"
                                                        : "");
    }
    return status;
}

static int close_keeping(struct keeping *keeping, const struct composition *composition, int status,
                         struct err *err) {
    /* The rows of a live run that was cut short are kept: its machine time cannot be had again. So
     * are those of one that starves, which is over. */
    bool keeps = compose_is_live(composition) || composition->facts.incomplete != NULL ||
                 (status == 0 && !composition->result.interrupted);
    if (keeping->timeline != NULL) {
        struct err late = {0};
        if (timeline_close(keeping->timeline, &late) != 0 && status == 0) {
            *err = late;
            status = (int)late.kind;
        }
    }
    if (keeping->recorder != NULL && keeps) {
        struct err late = {0};
        if (record(keeping, composition, &late) != 0 && status == 0) {
            *err = late;
            status = (int)late.kind;
        }
    }
    recorder_close(keeping->recorder);
    store_close(keeping->store);
    struct err late = {0};
    bool has_passes = keeps && (status == 0 || composition->result.completed > 0);
    const struct decode_about about = about_of(composition);
    if (decode_out_close(keeping->decode, has_passes ? &about : NULL, &late) != 0 && status == 0) {
        *err = late;
        status = (int)late.kind;
    }
    return status;
}

/* A store or a timeline that fails takes no summary away: `*has_summary` says whether there is one.
 * A live run has one even when it was cut short, after its first step. */
static int run_kept(const struct options *options, struct composition *composition,
                    bool *has_summary, struct err *err) {
    struct keeping keeping = {0};
    struct progress *progress = &keeping.progress;
    int status = open_keeping(options, composition, &keeping, err);
    if (status == 0) {
        progress_start(progress, "requests", compose_requests(composition));
        if (compose_is_live(composition)) {
            keeping.sinks[keeping.n_sinks++] =
                (struct sink){.state = &keeping, .request = count_request};
        }
        struct run_watch watch = {.sinks = keeping.sinks,
                                  .n_sinks = keeping.n_sinks,
                                  .records_members =
                                      keeping.decode != NULL || keeping.timeline != NULL ||
                                      (keeping.store != NULL && keeping.level >= STORE_STEPS),
                                  .stop = interrupt_catch(),
                                  .progress = progress_of_loop,
                                  .progress_state = progress};
        status = compose_run(composition, &watch, err);
        *has_summary = status == 0 || (composition->facts.incomplete != NULL &&
                                       composition->summary.submissions > 0);
        double wall_s = progress_end(progress);
        if (status == 0) {
            fprintf(stderr, "unmask: %.6g s %s in %.3g s\n",
                    (double)composition->result.end_ns * 1e-9,
                    compose_is_live(composition) ? "served" : "simulated", wall_s);
        }
    }
    return close_keeping(&keeping, composition, status, err);
}

static int print(const struct options *options, const struct composition *composition,
                 struct err *err) {
    json_t *object = NULL;
    if (summary_json(&composition->summary, &composition->facts, &object, err) != 0) {
        return err_status(err);
    }
    if (options_has(options, "json")) {
        return cmd_print_json(object, err);
    }
    summary_print(&composition->summary, &composition->facts, stdout);
    limit_print(object, stdout);
    compose_print(composition, stdout);
    released_print(&composition->facts.system, 1, stdout);
    compose_print_warnings(composition, stdout);
    summary_tables(object);
    json_decref(object);
    return 0;
}

static int read_decode(const struct options *options, struct run_request *request,
                       struct err *err) {
    int status = asked_path(options, "decode", &request->decode_path, err);
    request->statistics =
        request->backend.kind != BACKEND_SIM && options_has(options, "decode-out");
    return status == 0 && request->decode_path != NULL && request->backend.kind != BACKEND_SIM
               ? err_usage(err, "--decode is for simulated runs: the back end %s decides itself",
                           backend_names[request->backend.kind])
               : status;
}

static int say_interrupted(const struct options *options, const struct composition *composition,
                           struct err *err) {
    char missing[96];
    compose_describe_missing(composition, missing, sizeof missing);
    return err_world(err,
                     "interrupted: complete requests %" PRIu64 " (the numbers are of these), "
                     "rejected ones that waited or ran %" PRIu64 "%s%s%s",
                     composition->result.completed,
                     composition->summary.rejected_by_reason[REJECT_SHUTDOWN],
                     missing[0] != '\0' ? ", " : "", missing,
                     !options_has(options, "db") ? ""
                     : compose_is_live(composition)
                         ? ". The run was recorded as incomplete"
                         : ". It was not recorded, and earlier runs are as they were");
}

static int run(const struct options *options, struct err *err) {
    struct asked asked;
    struct composition *composition = NULL;
    bool has_summary = false;
    const char *outputs = options_text(options, "outputs");
    int status = asked_read(options, &asked, err);
    if (status == 0) {
        status = asked_systems_file(options, &asked, err);
    }
    if (status == 0) {
        status = read_decode(options, &asked.request, err);
    }
    asked.request.takes_record = true;
    if (status == 0) {
        status = compose_open(&asked.request, &composition, err);
    }
    if (status == 0 && options_has(options, "bound") && composition->traffic != NULL) {
        status = err_usage(err, "--bound is of workloads, and not of a run on record");
    }
    if (status == 0 && options_has(options, "bound")) {
        status = limit_take(&asked.request, interrupt_catch(), composition, err);
    }
    if (status == 0) {
        status = run_kept(options, composition, &has_summary, err);
    }
    if (has_summary && print(options, composition, err) != 0) {
        status = err_status(err);
    }
    if (has_summary && outputs != NULL && questions_write(composition->questions, outputs, err)) {
        status = err_status(err);
    }
    if (status == 0 && compose_is_live(composition)) {
        status = compose_check_memory(composition, err);
    }
    if (status == 0 && !composition->result.interrupted && composition->summary.completed == 0) {
        status =
            err_world(err, "no request was completed: all %" PRIu64 " were rejected (%s says why)",
                      composition->summary.rejected,
                      options_has(options, "json") ? "rejected_by_reason" : "the line `rejected`");
    }
    if (status == 0 && composition->result.interrupted) {
        status = say_interrupted(options, composition, err);
    }
    compose_close(composition);
    return status;
}

const struct command command_run = {
    .name = "run",
    .words = "",
    .doc = "serve a workload with one system and print what happened",
    .more =
        "Standard output is the same for the same inputs; the wall time goes to standard error.\n"
        "An interrupted run prints what it has and ends with status 1: a simulated run then\n"
        "records nothing, runs of the back ends cpu and cuda are recorded as incomplete. So is a\n"
        "run whose scheduler leaves requests waiting for ever. cpu and cuda execute every step on\n"
        "a device and measure its times. Where a run on them is killed, its database and\n"
        "FILE.part-..., which holds what --decode-out FILE will until that is whole, keep what\n"
        "was done until about a second before. The CPU stands for the GPU\n"
        "`cpu` unless --gpu is given, and computes in float32. A decode trace holds what every\n"
        "pass of every request ran and committed. Any run can write one, and a simulated run can\n"
        "take its decisions from one, under any scheduler and on any GPU: requests are matched\n"
        "by their place in the workload, which must be the same. A run that completes none of its\n"
        "requests, because all are rejected, is printed and recorded and ends with status 1. With\n"
        "--workload RECORDED.db the requests of the one run in it come as they came then.",
    .options = options_of_run,
    .run = run,
};
