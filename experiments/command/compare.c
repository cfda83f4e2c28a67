/* unmask compare: several systems, one workload, one table. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/command/commands.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/prices.h"
#include "experiments/run/ranks/ranks.h"
#include "experiments/run/sweep/comparison.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/policy/plugin/registry.h"

static const struct option own_options[] = {
    {"systems", "A,B,...",
     "the systems; ratios are to the first, or to --against (default with --over: the system of "
     "`run`)",
     false},
    {"system", "NAME", "short for --systems NAME", false},
    {"over", "KEY=A,B,...",
     "each system with each of these values: of gpu, model or a key, such as scheduler", true},
    {"against", "KEY=VALUE",
     "whom ratios and differences are to: of system or the key of --over (default: the first)",
     false},
    {"seeds", "N", "run each system with N seeds, from --seed on (default: 1)", false},
    {"same-requests", NULL, "measure by the requests that every system served", false},
    {"bound", NULL, "compare each with what no scheduler could beat (`unmask bound`); sim only",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_compare[] = {
    own_options,    device_options, policy_options,   backend_options,
    clock_options,  text_options,   workload_options, objective_options,
    record_options, job_options,    json_options,     format_option,
    verbose_option, NULL,
};

static int read_systems(const char *text, struct comparison *out, struct err *err) {
    if (text == NULL) {
        return err_usage(err, "compare needs --systems A,B,...; `unmask list systems` names them");
    }
    return asked_system_names(text, out->systems, &out->n_systems, err);
}

/* KEY=A,B,...: what is asked with each value. */
static int read_over(const char *text, struct comparison *c, struct err *err) {
    c->n_values = 1;
    if (text == NULL) {
        return 0;
    }
    int status = over_read(text, ASKED_MOST_SYSTEMS, &c->over, err);
    const bool is_workload = name_behind(c->over.key, "workload.") != NULL;
    status =
        status != 0 ? status : over_refuse_traffic(is_workload ? "workload" : c->over.key, err);
    c->n_values = c->over.n;
    c->variants = mem_zeroed(c->n_values + 1, sizeof *c->variants);
    for (size_t i = 0; status == 0 && i < c->n_values; i++) {
        c->variants[i] = c->asked;
        c->variants[i].request.settings = c->variants[i].settings;
        status = over_ask(c->over.key, c->over.values[i], "--over", &c->variants[i], err);
    }
    return status;
}

/* Of one system, with each value of --over. */
static void name_values(struct comparison *c, size_t system) {
    const json_t *runs[ASKED_MOST_SYSTEMS] = {NULL};
    char names[ASKED_MOST_SYSTEMS][OVER_NAME_CHARS];
    for (size_t v = 0; c->points != NULL && v < c->n_values; v++) {
        runs[v] = c->points[(system * c->n_values + v) * c->n_seeds].summary;
    }
    over_names(c->over.key, c->over.values, runs, c->n_values, names);
    memcpy(c->values, names, sizeof names);
    for (size_t v = 0; v < c->n_values; v++) {
        const bool says_system = c->n_systems > 1, says_key = over_says_key(c->over.key);
        char text[COMPARISON_NAME_CHARS];
        snprintf(text, sizeof text, "%.64s%s%.64s%s%.223s", says_system ? c->systems[system] : "",
                 says_system ? ", " : "", says_key ? c->over.key : "", says_key ? "=" : "",
                 names[v]);
        memcpy(c->names[system * c->n_values + v], text, sizeof text);
    }
}

static void name_all(struct comparison *c) {
    for (size_t s = 0; s < c->n_systems; s++) {
        if (c->over.n > 0) {
            name_values(c, s);
        } else {
            snprintf(c->names[s], sizeof c->names[s], "%s", c->systems[s]);
        }
    }
}

static int settle(const struct comparison *c, struct err *err) {
    for (size_t i = 0; i < c->n * c->n_seeds; i++) {
        const struct campaign_point *point = &c->points[i];
        if (point->summary == NULL && !point->has_no_room) {
            return err_world(err, "%s has no result: %.900s", c->names[i / c->n_seeds],
                             point->err.text);
        }
    }
    return 0;
}

static int read_against(const char *text, struct comparison *c, struct err *err) {
    int status = against_read(text, &c->against, err);
    if (status != 0 || text == NULL) {
        return status;
    }
    if (strcmp(c->against.key, "system") == 0) {
        return against_find(&c->against, c->systems[0], sizeof c->systems[0], c->n_systems,
                            &c->against_at, err);
    }
    if (strcmp(c->against.key, c->over.key) == 0) {
        return against_find(&c->against, c->over.values[0], sizeof c->over.values[0], c->n_values,
                            &c->against_at, err);
    }
    const char *const keys[] = {"system", c->over.key};
    const size_t first = c->n_systems < 2;
    return against_bad_key(&c->against, keys + first, 1 - first + (c->over.n > 0), err);
}

static int read_options(const struct options *options, struct comparison *c, struct err *err) {
    uint64_t n_seeds = 1;
    int status = asked_read(options, &c->asked, err);
    status = status != 0 ? status : asked_systems_file(options, &c->asked, err);
    const char *systems = NULL;
    status = status != 0 ? status : asked_systems(options, &systems, err);
    if (!options_has(options, "systems") && !options_has(options, "system")) {
        systems = options_has(options, "over") ? c->asked.request.system : NULL;
    }
    status = status != 0 ? status : read_systems(systems, c, err);
    const char *overs[OPTIONS_MOST_GIVEN];
    if (status == 0 && options_values(options, "over", overs) > 1) {
        status = err_usage(err, "--over: compare varies one key next to the system; `unmask sweep` "
                                "varies several");
    }
    status = status != 0 ? status : read_over(options_text(options, "over"), c, err);
    status = status != 0 ? status : read_against(options_text(options, "against"), c, err);
    if (status == 0 && c->n_systems * c->n_values > ASKED_MOST_SYSTEMS) {
        status = err_usage(err, "--over: at most %d are compared", ASKED_MOST_SYSTEMS);
    }
    c->n = c->n_systems * c->n_values;
    status =
        status != 0 ? status : options_whole(options, "seeds", 1, SAMPLE_MOST_SEEDS, &n_seeds, err);
    const struct slo *slo = &c->asked.request.slo;
    c->n_seeds = n_seeds;
    c->has_slo = slo_is_set(slo);
    c->has_bound = options_has(options, "bound");
    return status;
}

static void make_points(struct comparison *c) {
    c->points = mem_zeroed(c->n * c->n_seeds, sizeof *c->points);
    for (size_t i = 0; i < c->n * c->n_seeds; i++) {
        const size_t at = i / c->n_seeds;
        const struct asked *asked =
            c->variants != NULL ? &c->variants[at % c->n_values] : &c->asked;
        c->points[i].request = asked->request;
        c->points[i].request.system = c->systems[at / c->n_values];
        c->points[i].request.options.seed += i % c->n_seeds;
    }
}

/* Slips among what is compared, before anything runs. */
static int check_names(const struct comparison *c, struct err *err) {
    bool can_be;
    int status = 0;
    for (size_t i = 0; status == 0 && i < c->n; i++) {
        status = compose_check_names(&c->points[i * c->n_seeds].request, &can_be, err);
    }
    return status;
}

static struct run_request *request_of(void *state, size_t i) {
    return &((struct comparison *)state)->points[i].request;
}

static int compare(const struct options *options, struct comparison *c, struct err *err) {
    unsigned n_threads;
    struct campaign campaign = {.db = options_text(options, "db"),
                                .keeps_requests = options_has(options, "same-requests"),
                                .takes_some = true,
                                .bounds = options_has(options, "bound"),
                                .stop = interrupt_catch()};
    int status = read_options(options, c, err);
    status = status != 0 ? status : asked_level(options, &campaign.level, err);
    status = status != 0 ? status : asked_threads(options, &n_threads, err);
    if (status != 0) {
        return status;
    }
    name_all(c);
    make_points(c);
    status = check_names(c, err);
    if (status == 0 && c->asked.asks_one_source) {
        status = prices_take_one(request_of, c, c->n * c->n_seeds, err);
    }
    campaign.points = c->points;
    campaign.n = c->n * c->n_seeds;
    status = status != 0 ? status : campaign_run(&campaign, n_threads, err);
    if (status == 0 && ranks_is_helper()) {
        return 0;
    }
    name_all(c);
    if (status == 0 && campaign.keeps_requests) {
        status = comparison_same_requests(c, err);
    }
    if (status == 0) {
        comparison_settle(c);
    }
    if (status == 0 && options_has(options, "json")) {
        status = cmd_print_json(comparison_json(c), err);
    } else if (status == 0) {
        comparison_print(c, stdout);
    }
    status = status != 0 ? status : settle(c, err);
    status = campaign_check_recorded(&campaign, status, err);
    comparison_fini(c);
    campaign_fini(&campaign);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct comparison *comparison = mem_zeroed(1, sizeof *comparison);
    int status = compare(options, comparison, err);
    free(comparison->points);
    free(comparison->variants);
    over_fini(&comparison->over);
    free(comparison);
    return status;
}

const struct command command_compare = {
    .name = "compare",
    .words = "--systems A,B,...",
    .doc = "several systems under the same workload, side by side",
    .more =
        "A system that does not fit into the device is listed with the reason. Settings hold for\n"
        "every system. All systems meet the same arrivals, lengths and draws of a seed, so that\n"
        "with --seeds their differences are paired: means have 95 % intervals, and where the\n"
        "interval of a difference contains 0 the two cannot be told apart. With --same-requests\n"
        "every system's figures leave out the requests that any system rejected. The back ends\n"
        "cpu and cuda execute one system after the other; where the workload is a file of\n"
        "prompts, their shares of right answers are compared, with McNemar's exact test for the\n"
        "same prompts. --over scheduler=./a.so,./b.so,look-ahead compares policies under each\n"
        "system; a plug-in is called by its own name. --against scheduler=look-ahead has each\n"
        "compared with what differs from it in the scheduler alone.",
    .options = options_of_compare,
    .takes_ranks = true,
    .run = run,
};
