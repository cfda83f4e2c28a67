/* unmask sweep: a grid of runs from an INI file. */
#include <stdlib.h>
#include <string.h>

#include "analysis/offered.h"
#include "experiments/command/commands.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/prices.h"
#include "experiments/run/ranks/ranks.h"
#include "experiments/run/sweep/sweep.h"
#include "sim/base/input/config.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

enum { MOST_POINTS = 100000, MOST_REASONS = 8 };

static const struct option sweep_record_options[] = {
    {"db", "FILE", "record one run a point; points it holds already are not run again", false},
    {"any-build", NULL, "take points that another build of this program recorded as well", false},
    {"levels", "WORD", "what --db keeps: requests, steps or events (default: requests)", false},
    {NULL, NULL, NULL, false},
};

static const struct option shard_options[] = {
    {"shard", "I/N", "record each N-th point, from the I-th on, for `unmask merge`", false},
    {NULL, NULL, NULL, false},
};

static const struct option sweep_price_options[] = {
    {"systems-file", "FILE", "systems of your own, in addition to the shipped ones", false},
    {"profile", "FILE",
     "price by this profile, measured on the sweep's one GPU; default: each GPU's (list profiles)",
     false},
    {"price-source", "SOURCE",
     "source of prices: measured by unmask, imported from others, or one: a source that all points "
     "have (default: the best of each)",
     false},
    {"host", "NAME", "the host of every system (list hosts); default: each its own", false},
    {NULL, NULL, NULL, false},
};

static const struct option seed_options[] = {
    {"over", "KEY=A,B,...",
     "each point with each of these values too: of gpu, model, rate or a key, such as scheduler",
     true},
    {"against", "KEY=VALUE",
     "whom points are compared with, such as scheduler=look-ahead: what differs in KEY alone "
     "(default: the first system)",
     false},
    {"seeds", "N", "run every point with the seeds 1 to N (default: 1)", false},
    {"bound", NULL, "compare each with what no scheduler could beat (`unmask bound`); sim only",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_sweep[] = {sweep_price_options,
                                                        seed_options,
                                                        backend_options,
                                                        clock_options,
                                                        text_options,
                                                        objective_options,
                                                        sweep_record_options,
                                                        shard_options,
                                                        job_options,
                                                        json_options,
                                                        format_option,
                                                        verbose_option,
                                                        NULL};

/* The keys of [sweep], in the order in which the grid runs: the last one varies fastest. */
static const char *const axis_keys[] = {
    "systems",      "models",        "gpus",     "workloads", "rates",
    "input_tokens", "output_tokens", "requests", "seeds",     NULL};
static int add_value(const char *word, const char *file, struct axis *axis, size_t *room,
                     struct err *err) {
    if (axis->n == MOST_POINTS) {
        return err_usage(err, "%s: more than %d values", axis->place, MOST_POINTS);
    }
    axis->values = mem_grown(axis->values, axis->n, room, sizeof *axis->values);
    return asked_named_in(file, axis->place, axis->name, word, axis->values[axis->n++],
                          OVER_VALUE_CHARS, err);
}

static int split(const char *text, const char *file, struct axis *axis, struct err *err) {
    const char *word;
    size_t used, room = 0;
    int status = 0;
    axis->text = mem_text(text);
    for (const char *rest = text; status == 0 && name_next(&rest, ",", &word, &used);) {
        char *value = mem_copied(word, used);
        status = add_value(value, file, axis, &room, err);
        free(value);
    }
    return status;
}

static int unknown_key(const struct config *config, const struct config_entry *entry,
                       struct err *err) {
    char place[1024];
    const char *near = name_nearest(entry->key, axis_keys);
    config_place(config, entry, place, sizeof place);
    return err_usage(err, "%s: a sweep has no key '%s'%s%s%s", place, entry->key,
                     near != NULL ? "; did you mean '" : " (set.KEY sets a key of the system",
                     near != NULL ? near : "", near != NULL ? "'?" : ")");
}

static int read_axis(const struct config *config, const struct config_entry *entry,
                     struct sweep *sweep, struct err *err) {
    if (sweep->n_axes == SWEEP_MOST_AXES) {
        return err_usage(err, "%s:%d: more than %d keys", config->path, entry->line,
                         SWEEP_MOST_AXES);
    }
    struct axis *axis = &sweep->axes[sweep->n_axes];
    config_place(config, entry, axis->place, sizeof axis->place);
    const char *setting = name_behind(entry->key, "set.");
    if (strcmp(entry->section, "sweep") != 0) {
        return err_usage(err, "%s: found section [%s], expected [sweep] only", axis->place,
                         entry->section);
    }
    if (setting != NULL) {
        axis->kind = AXIS_SET;
        snprintf(axis->name, sizeof axis->name, "%s", setting);
    } else {
        int kind = name_find(axis_keys, entry->key);
        if (kind < 0) {
            return unknown_key(config, entry, err);
        }
        axis->kind = (enum axis_kind)kind;
        size_t length = strlen(entry->key);
        bool plural = kind != AXIS_INPUT && kind != AXIS_OUTPUT && kind != AXIS_REQUESTS;
        snprintf(axis->name, sizeof axis->name, "%.*s", (int)(length - plural), entry->key);
    }
    sweep->n_axes++;
    return split(entry->value, config->path, axis, err);
}

static int by_kind(const void *a, const void *b) {
    const struct axis *x = a, *y = b;
    return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind)
                              : strcmp(x->name, y->name);
}

static int read_file(const char *path, struct sweep *sweep, struct err *err) {
    struct config config;
    int status = config_read(path, &config, err);
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; status == 0 && i < config.n_entries; i++) {
        status = read_axis(&config, &config.entries[i], sweep, err);
    }
    config_fini(&config);
    if (status == 0 && sweep->n_axes == 0) {
        status =
            err_usage(err, "%s: found no [sweep] section, expected lists such as systems", path);
    }
    return status;
}

/* The kind whose values tables head so: "rate", of the file's `rates`. */
static enum axis_kind kind_named(const char *name) {
    static const char *const names[] = {
        "system",       "model",         "gpu",      "workload", "rate",
        "input_tokens", "output_tokens", "requests", "seed",     NULL};
    int kind = name_find(names, name);
    return kind >= 0 ? (enum axis_kind)kind : AXIS_SET;
}

/* Axes of the command line are as those of the file, and paths in them begin where the program
 * does. */
static int read_over(const char *text, struct sweep *sweep, struct err *err) {
    struct over over;
    int status = over_read(text, OVER_MOST_VALUES, &over, err);
    for (size_t a = 0; status == 0 && a < sweep->n_axes; a++) {
        if (strcmp(sweep->axes[a].name, over.key) == 0) {
            status = err_usage(err, "--over: %s lists values of %s already", sweep->axes[a].place,
                               over.key);
        }
    }
    if (status == 0 && sweep->n_axes == SWEEP_MOST_AXES) {
        status = err_usage(err, "--over: more than %d keys", SWEEP_MOST_AXES);
    }
    if (status != 0) {
        over_fini(&over);
        return status;
    }
    struct axis *axis = &sweep->axes[sweep->n_axes++];
    *axis = (struct axis){
        .kind = kind_named(over.key), .place = "--over", .values = over.values, .n = over.n};
    snprintf(axis->name, sizeof axis->name, "%s", over.key);
    return 0;
}

static int read_overs(const struct options *options, struct sweep *sweep, struct err *err) {
    const char *texts[OPTIONS_MOST_GIVEN];
    size_t n = options_values(options, "over", texts);
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++) {
        status = read_over(texts[i], sweep, err);
    }
    return status;
}

static int read_against(const char *text, struct sweep *sweep, struct err *err) {
    int status = against_read(text, &sweep->against, err);
    if (status != 0 || text == NULL) {
        return status;
    }
    const char *keys[SWEEP_MOST_AXES];
    size_t n = 0;
    for (size_t a = 0; a < sweep->n_axes; a++) {
        keys[n] = sweep->axes[a].name;
        n += sweep->axes[a].n > 1;
    }
    size_t a = sweep_axis(sweep, sweep->against.key);
    if (a == sweep->n_axes) {
        return against_bad_key(&sweep->against, keys, n, err);
    }
    sweep->against_axis = a;
    return against_find(&sweep->against, sweep->axes[a].values[0], OVER_VALUE_CHARS,
                        sweep->axes[a].n, &sweep->against_at, err);
}

static int read_sweep(const struct options *options, struct sweep *sweep, struct err *err) {
    const char *path = options->words[0];
    int status = read_file(path, sweep, err);
    status = status != 0 ? status : read_overs(options, sweep, err);
    sweep->n_points = 1;
    for (size_t i = 0; status == 0 && i < sweep->n_axes; i++) {
        sweep->n_points *= sweep->axes[i].n;
        if (sweep->n_points > MOST_POINTS) {
            status = err_usage(err, "%s: the grid has more than %d points", path, MOST_POINTS);
        }
    }
    if (status == 0) {
        qsort(sweep->axes, sweep->n_axes, sizeof *sweep->axes, by_kind);
    }
    return status != 0 ? status : read_against(options_text(options, "against"), sweep, err);
}

static int read_whole(const struct axis *axis, const char *value, uint64_t least, uint64_t most,
                      uint64_t *out, struct err *err) {
    return num_u64(value, most, out) && *out >= least
               ? 0
               : err_usage(err, "%s: '%s' is not a whole number in its range for %s", axis->place,
                           value, axis->name);
}

static int apply(const struct axis *axis, const char *value, struct asked *asked, struct err *err) {
    struct run_request *request = &asked->request;
    uint64_t whole = 0;
    int status = 0;
    switch (axis->kind) {
    case AXIS_SYSTEM:
        request->system = value;
        break;
    case AXIS_MODEL:
    case AXIS_GPU:
    case AXIS_SET:
        status = over_ask(axis->name, value, axis->place, asked, err);
        break;
    case AXIS_WORKLOAD:
        request->workload = value;
        break;
    case AXIS_RATE:
        status = rate_read(axis->place, value, &request->options.rate_per_s, err);
        break;
    case AXIS_INPUT:
        status = read_whole(axis, value, 1, 10000000, &whole, err);
        request->options.input_tokens = (uint32_t)whole;
        break;
    case AXIS_OUTPUT:
        status = read_whole(axis, value, 1, 10000000, &whole, err);
        request->options.output_tokens = (uint32_t)whole;
        break;
    case AXIS_REQUESTS:
        status = read_whole(axis, value, 1, 1000000000, &request->options.requests, err);
        break;
    case AXIS_SEED:
        status = read_whole(axis, value, 0, INT64_MAX, &request->options.seed, err);
        break;
    }
    return status;
}

/* The settings of one point; its seeds differ in the seed alone. */
static int ask_point(const struct options *options, struct sweep *sweep, size_t point,
                     struct err *err) {
    struct asked *asked = &sweep->asked[point];
    int status = asked_read(options, asked, err);
    for (size_t a = 0; status == 0 && a < sweep->n_axes; a++) {
        status = apply(&sweep->axes[a], sweep_value(sweep, point, a), asked, err);
    }
    return status;
}

static int read_seeds(const struct options *options, struct sweep *sweep, struct err *err) {
    uint64_t n_seeds = 1;
    int status = options_whole(options, "seeds", 1, SAMPLE_MOST_SEEDS, &n_seeds, err);
    for (size_t a = 0; status == 0 && options_has(options, "seeds") && a < sweep->n_axes; a++) {
        if (sweep->axes[a].kind == AXIS_SEED) {
            status = err_usage(err, "%s: the file lists seeds already, --seeds is another word",
                               sweep->axes[a].place);
        }
    }
    sweep->n_seeds = n_seeds;
    if (status == 0 && sweep->n_points * n_seeds > MOST_POINTS) {
        status = err_usage(err, "--seeds: more than %d runs", MOST_POINTS);
    }
    return status;
}

static int make_points(const struct options *options, struct sweep *sweep, struct err *err) {
    int status = read_seeds(options, sweep, err);
    if (status != 0) {
        return status;
    }
    sweep->runs = mem_zeroed(sweep->n_points * sweep->n_seeds, sizeof *sweep->runs);
    sweep->asked = mem_zeroed(sweep->n_points, sizeof *sweep->asked);
    for (size_t p = 0; status == 0 && p < sweep->n_points; p++) {
        status = ask_point(options, sweep, p, err);
        status = status != 0 ? status : asked_systems_file(options, &sweep->asked[p], err);
        for (size_t a = 0; a < sweep->n_axes; a++) {
            if (sweep->axes[a].kind == AXIS_SYSTEM) {
                sweep->asked[p].request.compared = sweep->axes[a].text;
            }
        }
        for (size_t seed = 0; seed < sweep->n_seeds; seed++) {
            struct run_request *request = &sweep->runs[p * sweep->n_seeds + seed].request;
            *request = sweep->asked[p].request;
            request->options.seed += seed;
        }
        const struct slo *slo = &sweep->asked[p].request.slo;
        sweep->has_slo = slo_is_set(slo);
    }
    return status;
}

/* What a point shares with others is looked at once: numbers were read already. */
static bool is_of_names(const struct axis *axis) {
    return axis->kind <= AXIS_WORKLOAD || axis->kind == AXIS_SET;
}

/* Slips among the values, before anything runs: of each value one point that can be is enough. */
static int check_names(const struct sweep *sweep, struct err *err) {
    bool *seen[SWEEP_MOST_AXES];
    int status = 0;
    for (size_t a = 0; a < sweep->n_axes; a++) {
        seen[a] = mem_zeroed(sweep->axes[a].n + 1, sizeof *seen[a]);
    }
    for (size_t p = 0; status == 0 && p < sweep->n_points; p++) {
        bool is_new = p == 0, can_be = false;
        for (size_t a = 0; a < sweep->n_axes; a++) {
            is_new = is_new || (is_of_names(&sweep->axes[a]) && !seen[a][sweep_place(sweep, p, a)]);
        }
        status = is_new ? compose_check_names(&sweep->asked[p].request, &can_be, err) : 0;
        for (size_t a = 0; a < sweep->n_axes && can_be; a++) {
            seen[a][sweep_place(sweep, p, a)] = true;
        }
    }
    for (size_t a = 0; a < sweep->n_axes; a++) {
        free(seen[a]);
    }
    return status;
}

static struct run_request *request_of(void *state, size_t i) {
    return &((struct sweep *)state)->runs[i].request;
}

static size_t n_runs(const struct sweep *sweep) {
    return sweep->n_points * sweep->n_seeds;
}

/* Why points are run again although the database holds them with another identity: each reason
 * once. */
static void say_stale(const struct sweep *sweep, const char *db) {
    size_t n_said = 0;
    for (size_t p = 0; p < n_runs(sweep) && n_said < MOST_REASONS; p++) {
        const char *reason = sweep->runs[p].stale;
        size_t n = 0;
        bool is_first = reason[0] != '\0';
        for (size_t i = 0; is_first && i < n_runs(sweep); i++) {
            bool is_same = strcmp(sweep->runs[i].stale, reason) == 0;
            is_first = !is_same || i >= p;
            n += is_same;
        }
        if (is_first) {
            fprintf(stderr, "unmask: %zu points of %s were run again: %s\n", n, db, reason);
            n_said++;
        }
    }
}

/* I/N: I of 1 to N. */
static int read_shard(const struct options *options, struct campaign *campaign, struct err *err) {
    const char *text = options_text(options, "shard");
    char first[24];
    uint64_t i = 0, n = 0;
    if (text == NULL) {
        return 0;
    }
    const char *slash = strchr(text, '/');
    snprintf(first, sizeof first, "%.*s", slash != NULL ? (int)(slash - text) : 0, text);
    if (slash == NULL || !num_u64(first, MOST_POINTS, &i) || !num_u64(slash + 1, MOST_POINTS, &n) ||
        i < 1 || i > n) {
        return err_usage(err, "--shard: '%s' is not I/N with a whole I from 1 to N", text);
    }
    if (campaign->db == NULL || options_has(options, "json")) {
        return err_usage(err, "--shard records a part of the grid: it takes --db, and the table "
                              "of all of it comes from the merged database");
    }
    campaign->shard = i - 1;
    campaign->n_shards = n;
    return 0;
}

/* How many points have no result although their system fits. */
static int settle(const struct sweep *sweep, const struct campaign *campaign, struct err *err) {
    const char *db = campaign->db;
    size_t n_failed = 0, n_stored = 0, n_shared = 0, n_own = 0;
    const struct campaign_point *first = NULL;
    for (size_t p = 0; p < n_runs(sweep); p++) {
        const struct campaign_point *point = &sweep->runs[p];
        if (!campaign_has(campaign, p)) {
            continue;
        }
        n_own++;
        n_stored += point->was_stored;
        n_shared += point->was_shared;
        if (point->summary == NULL && !point->has_no_room) {
            first = first != NULL ? first : point;
            n_failed++;
        }
    }
    if (n_stored > n_shared) {
        fprintf(stderr, "unmask: %zu point%s in %s already\n", n_stored - n_shared,
                n_stored - n_shared == 1 ? " was" : "s were", db);
    }
    if (n_shared > 0) {
        fprintf(stderr, "unmask: %zu point%s run by another sweep on %s\n", n_shared,
                n_shared == 1 ? " was" : "s were", db);
    }
    say_stale(sweep, db);
    bool goes_on = n_failed > 0 && *campaign->stop && db != NULL;
    return n_failed == 0
               ? 0
               : err_world(err, "%zu of %zu points have no result; the first: %.700s%s", n_failed,
                           n_own, first->err.text,
                           goes_on ? "; the same command goes on where this one stopped" : "");
}

static int print(const struct options *options, const struct sweep *sweep,
                 const struct campaign *campaign, struct err *err) {
    size_t n_own = 0;
    if (options_has(options, "json")) {
        return cmd_print_json(sweep_json(sweep), err);
    }
    if (campaign->n_shards == 0) {
        sweep_print(sweep, stdout);
        return 0;
    }
    for (size_t p = 0; p < campaign->n; p++) {
        n_own += campaign_has(campaign, p) && campaign->points[p].summary != NULL;
    }
    printf("shard %zu of %zu: %zu of %zu points are in %s\n", campaign->shard + 1,
           campaign->n_shards, n_own - campaign->n_unrecorded, campaign->n, campaign->db);
    return 0;
}

static int run_sweep(const struct options *options, struct sweep *sweep, struct err *err) {
    unsigned n_threads;
    struct campaign campaign = {.db = options_text(options, "db"),
                                .resumes = true,
                                .takes_some = true,
                                .any_build = options_has(options, "any-build"),
                                .bounds = options_has(options, "bound"),
                                .stop = interrupt_catch()};
    int status = asked_level(options, &campaign.level, err);
    status = status != 0 ? status : asked_threads(options, &n_threads, err);
    status = status != 0 ? status : read_shard(options, &campaign, err);
    status = status != 0 ? status : read_sweep(options, sweep, err);
    status = status != 0 ? status : make_points(options, sweep, err);
    status = status != 0 ? status : check_names(sweep, err);
    if (status != 0) {
        return status;
    }
    if (sweep->n_points > 0 && sweep->asked[0].asks_one_source) {
        status = prices_take_one(request_of, sweep, n_runs(sweep), err);
    }
    sweep->has_bound = campaign.bounds;
    campaign.points = sweep->runs;
    campaign.n = n_runs(sweep);
    status = status != 0 ? status : campaign_run(&campaign, n_threads, err);
    if (status == 0 && ranks_is_helper()) {
        return 0;
    }
    if (status == 0) {
        sweep_settle(sweep);
        status = print(options, sweep, &campaign, err);
    }
    status = status != 0 ? status : settle(sweep, &campaign, err);
    status = campaign_check_recorded(&campaign, status, err);
    campaign_fini(&campaign);
    return status;
}

static int run(const struct options *options, struct err *err) {
    if (options->n_words != 1) {
        return err_usage(err, "sweep needs an INI file with a [sweep] section");
    }
    struct sweep sweep = {0};
    int status = run_sweep(options, &sweep, err);
    for (size_t i = 0; i < SWEEP_MOST_AXES; i++) {
        free(sweep.axes[i].values);
        free(sweep.axes[i].names);
        free(sweep.axes[i].text);
    }
    free(sweep.runs);
    free(sweep.samples);
    free(sweep.of_prices);
    free(sweep.asked);
    return status;
}

const struct command command_sweep = {
    .name = "sweep",
    .words = "FILE.ini",
    .doc = "a grid of runs; resumes where it stopped",
    .more =
        "The file has one section, [sweep], whose keys are comma lists: systems, models, gpus,\n"
        "workloads, rates, input_tokens, output_tokens, requests, seeds, and set.KEY for any key\n"
        "that --set takes. Output and database are the same for any number of threads. A point\n"
        "is not run again when the database holds it with the same configuration, the same\n"
        "content of every file it reads (plug-ins, traces, profiles, ...) and the same build of\n"
        "this program; otherwise it is run again, and the reason is printed.\n"
        "Paths begin at the folder of the file.\n"
        "\n"
        "Several sweeps may use one database at once, also from several machines with a common\n"
        "file system: each runs a part of the points. Started by mpirun or srun, all ranks run\n"
        "one sweep, and rank 0 alone records and prints. --shard records a part of the grid into\n"
        "a database of its own, for job arrays; `unmask merge` puts them together.\n"
        "\n"
        "Systems meet the same arrivals, lengths and draws of a seed: with --seeds their ratios\n"
        "to the file's first system are paired, and ~ marks those that cannot be told from 1.\n"
        "--against scheduler=look-ahead compares each point with the one that differs from it in\n"
        "the scheduler alone, at every rate, and prints their differences, paired by seed. Keys\n"
        "are called here as in --over and in `plot`: system, rate, scheduler, cache.retention.",
    .options = options_of_sweep,
    .max_words = 1,
    .takes_ranks = true,
    .run = run,
};
