/* unmask bound: what no schedule of a workload can beat on a system, and how near its own comes. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/caution.h"
#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/table.h"
#include "experiments/run/limit.h"
#include "experiments/run/sweep/campaign.h"
#include "experiments/study/released.h"
#include "sim/base/mem.h"

static const struct option own_options[] = {
    {"systems", "A,B,...", "the systems (default: the one of --system, or dllm-serve)", false},
    {"system", "NAME", "short for --systems NAME", false},
    {"no-run", NULL, "leave out the runs of the systems themselves", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_bound[] = {
    own_options, device_options, policy_options, workload_options, objective_options,
    job_options, json_options,   format_option,  verbose_option,   NULL,
};

struct limits {
    char names[ASKED_MOST_SYSTEMS][ASKED_NAME_CHARS];
    size_t n;
    struct asked asked;
    struct bound *bounds;
    struct campaign_point *points; /* the systems' own runs */
    bool runs;
};

static int read_options(const struct options *options, struct limits *l, struct err *err) {
    const char *text;
    int status = asked_systems(options, &text, err);
    status = status != 0 ? status : asked_read(options, &l->asked, err);
    status = status != 0 ? status : asked_systems_file(options, &l->asked, err);
    l->runs = !options_has(options, "no-run");
    const struct slo *slo = &l->asked.request.slo;
    if (status == 0 && !l->runs && (slo->ttfb_ns > 0 || slo->tpot_ns > 0)) {
        return err_usage(err,
                         "--slo-%s does nothing here: bounds are of --slo-latency, runs of all "
                         "objectives, and --no-run leaves these out",
                         slo->ttfb_ns > 0 ? "ttft" : "tpot");
    }
    return status != 0 ? status : asked_system_names(text, l->names, &l->n, err);
}

/* Of the system's own run: the value, and how far from the limit it is. */
static double own(const struct limits *l, size_t i, const char *key, const char *inner) {
    return l->runs ? cmd_number(l->points[i].summary, key, inner) : (double)NAN;
}

static json_t *to_json(const struct limits *l) {
    json_t *object = json_object(), *systems = json_array();
    for (size_t i = 0; i < l->n; i++) {
        json_t *system = json_object();
        json_object_set_new(system, "system", json_string(l->names[i]));
        json_object_set_new(system, "bound", limit_json(&l->bounds[i]));
        if (l->runs) {
            json_object_set(system, "run", l->points[i].summary);
        }
        json_array_append_new(systems, system);
    }
    json_object_set_new(object, "systems", systems);
    return mem_given(object);
}

static void print_batches(const char *system, const struct bound *b) {
    for (uint32_t i = 0; i < b->prices.n_best; i++) {
        const struct best_batch *batch = &b->prices.best[i];
        printf("  %s: %.1f %% of the steps, %.0f query tokens:", system, 100 * batch->share,
               batch->tokens);
        for (uint32_t t = 0, n = 0; t < PASS_TYPES; t++) {
            char name[48];
            if (batch->passes[t] > 0) {
                printf("%s %.2f %s", n++ > 0 ? "," : "", batch->passes[t],
                       limit_type_name(b, t, name, sizeof name));
            }
        }
        printf("\n");
    }
}

/* Of the runs' warnings those that concern the bounds, too: keys that were set without effect, and
 * the share of prices that rests on the data sheet; once each with their systems. */
static void print_warnings(const struct limits *l) {
    struct cautions cautions = {0};
    for (size_t i = 0; l->runs && i < l->n; i++) {
        const struct warnings all = caution_read(l->points[i].summary);
        struct warnings own = {0};
        for (unsigned w = 0; w < all.n; w++) {
            if (all.items[w].code == WARNING_SETTING_UNUSED ||
                all.items[w].code == WARNING_PRICES_ROOFLINE) {
                own.items[own.n++] = all.items[w];
            }
        }
        cautions_add(&cautions, l->names[i], &own);
    }
    cautions_print(&cautions, stdout);
}

static void print(const struct limits *l) {
    bool asks_time = isfinite(l->bounds[0].on_time);
    struct table *table = table_open(
        "system|bound tok/s|run tok/s|of the bound|bound mean s|run mean s|times the bound|"
        "bound p99 s|run p99 s");
    if (asks_time) {
        table_columns(table, "bound on time %|run on time %");
    }
    table_columns(table, "saturated above req/s");
    for (size_t i = 0; i < l->n; i++) {
        const struct bound *b = &l->bounds[i];
        double throughput = own(l, i, "throughput_tok_s", NULL);
        double latency = own(l, i, "latency_s", "mean");
        table_add(table, "s %.1f %.1f %.1f%% %.3f %.3f %.2f %.3f %.3f", l->names[i],
                  b->throughput_tok_s, throughput, 100 * throughput / b->throughput_tok_s,
                  b->mean_latency_s, latency, latency / b->mean_latency_s, b->p99_latency_s,
                  own(l, i, "latency_s", "p99"));
        if (asks_time) {
            table_add(table, "%.1f %.1f", 100 * b->on_time, 100 * own(l, i, "attainment", NULL));
        }
        table_add(table, "%.4g", b->saturated_req_s);
    }
    table_print(table, stdout);
    table_close(table);
    printf("\nmean price of a pass, of each kind that the requests need:\n");
    for (size_t i = 0; i < l->n; i++) {
        const struct bound *b = &l->bounds[i];
        for (uint32_t t = 0; t < PASS_TYPES; t++) {
            char name[48];
            if (b->types[t].n > 0) {
                printf("  %s: %.0f %s passes at %.4g ms\n", l->names[i], b->types[t].n,
                       limit_type_name(b, t, name, sizeof name), limit_price_ms(b, t));
            }
        }
    }
    printf("\nbatches of a schedule at the bound, with their passes on average:\n");
    for (size_t i = 0; i < l->n; i++) {
        print_batches(l->names[i], &l->bounds[i]);
    }
    bool at_highest_clock = false;
    for (size_t i = 0; i < l->n; i++) {
        at_highest_clock |= l->bounds[i].at_highest_clock;
    }
    if (at_highest_clock) {
        printf("\nthese are bounds of steps at the card's highest clock, which its power limit may "
               "not leave:\nruns follow the clock, bounds do not\n");
    }
    printf("\nno scheduler does better on these prices with the system's cache policy, decoder,\n"
           "runtime, memory and limits, and the decisions that seed %" PRIu64 " draws\n",
           l->asked.request.options.seed);
    const char *systems[ASKED_MOST_SYSTEMS];
    for (size_t i = 0; i < l->n; i++) {
        systems[i] = l->names[i];
    }
    released_print(systems, l->n, stdout);
    print_warnings(l);
}

static int find(const struct options *options, struct limits *l, struct err *err) {
    unsigned n_threads = 1;
    struct campaign campaign = {.stop = interrupt_catch()};
    int status = asked_threads(options, &n_threads, err);
    l->bounds = mem_zeroed(l->n, sizeof *l->bounds);
    l->points = mem_zeroed(l->n, sizeof *l->points);
    for (size_t i = 0; i < l->n; i++) {
        l->points[i].request = l->asked.request;
        l->points[i].request.system = l->names[i];
    }
    for (size_t i = 0; status == 0 && i < l->n; i++) {
        status = limit_find(&l->points[i].request, campaign.stop, &l->bounds[i], err);
    }
    campaign.points = l->points;
    campaign.n = l->runs ? l->n : 0;
    status = status == 0 && l->runs ? campaign_run(&campaign, n_threads, err) : status;
    for (size_t i = 0; status == 0 && l->runs && i < l->n; i++) {
        if (l->points[i].summary == NULL) {
            *err = l->points[i].err;
            status = err_status(err);
        }
    }
    if (status == 0 && options_has(options, "json")) {
        status = cmd_print_json(to_json(l), err);
    } else if (status == 0) {
        print(l);
    }
    campaign_fini(&campaign);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct limits *limits = mem_zeroed(1, sizeof *limits);
    int status = read_options(options, limits, err);
    status = status != 0 ? status : find(options, limits, err);
    free(limits->bounds);
    free(limits->points);
    free(limits);
    return status;
}

const struct command command_bound = {
    .name = "bound",
    .words = "",
    .doc = "what no scheduler can beat: limits of throughput, latency and attainment",
    .more =
        "A limit holds for every scheduler, admission and order of the workload's requests, with\n"
        "the system's cache policy, decoder, runtime, memory and limits as they are: the passes\n"
        "of a request do not depend on what else is in the batch. Each pass has a price, so that\n"
        "no batch takes less time than its passes' prices together. Throughput: no schedule is\n"
        "done before the prices' sum. Latency: no mean is below that of a machine that works off\n"
        "the prices, shortest job first, nor below that of requests which run alone; with\n"
        "--slo-latency: nor are more requests on time. What is drawn is that of --seed: means\n"
        "over seeds bound expectations. The limits are those of the simulator's prices.",
    .options = options_of_bound,
    .run = run,
};
