/* unmask compare: several systems, one workload, one table. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/interrupt.h"
#include "experiments/command/commands.h"
#include "experiments/run/prices.h"
#include "experiments/run/ranks/ranks.h"
#include "experiments/run/sweep/comparison.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/policy/plugin/registry.h"

static const struct option own_options[] = {
    {"systems", "A,B,...",
     "the systems; ratios are to the first (default with --over: the system of `run`)", false},
    {"over", "KEY=A,B,...", "each system with each of these values of a key, such as scheduler",
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
    NULL,
};

static int read_systems(const char *text, struct comparison *out, struct err *err) {
    if (text == NULL) {
        return err_usage(err, "compare needs --systems A,B,...; `unmask list systems` names them");
    }
    return asked_system_names(text, out->systems, &out->n_systems, err);
}

/* What is asked with one value of --over. */
static int read_value(struct comparison *c, const char *word, size_t length, struct err *err) {
    if (length == 0 || length >= sizeof c->values[0] || c->n_values == ASKED_MOST_SYSTEMS) {
        return err_usage(err,
                         "--over: expected KEY=A,B,... with at most %d values of 1 to %zu "
                         "characters",
                         ASKED_MOST_SYSTEMS, sizeof c->values[0] - 1);
    }
    char *value = c->values[c->n_values];
    snprintf(value, sizeof c->values[0], "%.*s", (int)length, word);
    for (size_t i = 0; i < c->n_values; i++) {
        if (strcmp(c->values[i], value) == 0) {
            return err_usage(err, "--over: '%s' is there twice", value);
        }
    }
    struct asked *variant = &c->variants[c->n_values++];
    *variant = c->asked;
    variant->request.settings = variant->settings;
    return asked_set(variant, c->over, value, "--over", err);
}

/* KEY=A,B,... */
static int read_over(const char *text, struct comparison *c, struct err *err) {
    const char *equals = text != NULL ? strchr(text, '=') : NULL, *word;
    size_t length;
    int status = 0;
    c->n_values = 1;
    if (text == NULL) {
        return 0;
    }
    if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof c->over) {
        return err_usage(err, "--over: '%s' is not KEY=A,B,...", text);
    }
    snprintf(c->over, sizeof c->over, "%.*s", (int)(equals - text), text);
    if (strcmp(c->over, "model") == 0 || name_behind(c->over, "workload.") != NULL) {
        return err_usage(err,
                         "--over: the %s is one for all that is compared; `unmask sweep` has "
                         "several",
                         strcmp(c->over, "model") == 0 ? "model" : "workload");
    }
    c->n_values = 0;
    c->variants = mem_zeroed(ASKED_MOST_SYSTEMS, sizeof *c->variants);
    for (const char *rest = equals + 1; status == 0 && name_next(&rest, ",", &word, &length);) {
        status = read_value(c, word, length, err);
    }
    return status;
}

/* The kind of policy that a key chooses; 0: none. */
static int kind_of(const char *key) {
    int kind = POLICY_ROUTER;
    while (kind > 0 && strcmp(policy_kind_names[kind], key) != 0) {
        kind--;
    }
    return kind;
}

/* A plug-in is called by its own name once it has been run. */
static const char *name_of_value(const struct comparison *c, size_t i) {
    const char *value = c->values[i % c->n_values];
    const struct campaign_point *point = c->points != NULL ? &c->points[i * c->n_seeds] : NULL;
    const int kind = kind_of(c->over);
    if (kind == 0 || strchr(value, '/') == NULL || point == NULL || point->summary == NULL) {
        return value;
    }
    struct err ignored = {0};
    const struct policy *policy = policy_find((enum policy_kind)kind, value, &ignored);
    return policy != NULL ? policy->name : value;
}

/* Two of one name are told apart by what they were asked for. */
static bool is_ambiguous(const struct comparison *c, size_t i) {
    const char *name = name_of_value(c, i);
    size_t first = i - i % c->n_values, n_alike = 0;
    for (size_t j = first; j < first + c->n_values; j++) {
        n_alike += strcmp(name_of_value(c, j), name) == 0;
    }
    return n_alike > 1 && strcmp(name, c->values[i % c->n_values]) != 0;
}

static void name_all(struct comparison *c) {
    for (size_t i = 0; i < c->n; i++) {
        const char *system = c->systems[i / c->n_values], *value = c->values[i % c->n_values];
        size_t size = sizeof c->names[i], n = 0;
        if (c->over[0] == '\0' || c->n_systems > 1) {
            n += (size_t)snprintf(c->names[i], size, "%s", system);
        }
        if (c->over[0] == '\0') {
            continue;
        }
        bool says_key = kind_of(c->over) == 0;
        n += (size_t)snprintf(c->names[i] + n, size - n, "%s%s%s%s", n > 0 ? ", " : "",
                              says_key ? c->over : "", says_key ? "=" : "", name_of_value(c, i));
        if (is_ambiguous(c, i) && n < size) {
            (void)snprintf(c->names[i] + n, size - n, " (%s)", value);
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

static int read_options(const struct options *options, struct comparison *c, struct err *err) {
    uint64_t n_seeds = 1;
    int status = asked_read(options, &c->asked, err);
    status = status != 0 ? status : asked_systems_file(options, &c->asked, err);
    const char *systems = options_text(options, "systems");
    systems = systems == NULL && options_has(options, "over") ? c->asked.request.system : systems;
    status = status != 0 ? status : read_systems(systems, c, err);
    status = status != 0 ? status : read_over(options_text(options, "over"), c, err);
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

static struct run_request *request_of(void *state, size_t i) {
    return &((struct comparison *)state)->points[i].request;
}

static int compare(const struct options *options, struct comparison *c, struct err *err) {
    unsigned n_threads;
    struct campaign campaign = {.db = options_text(options, "db"),
                                .keeps_requests = options_has(options, "same-requests"),
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
    if (c->asked.asks_one_source) {
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
        "system; a plug-in is called by its own name.",
    .options = options_of_compare,
    .takes_ranks = true,
    .run = run,
};
