/* unmask capacity: the highest rate at which systems meet their objectives. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/command/capacity_show.h"
#include "experiments/command/commands.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/prices.h"
#include "experiments/run/ranks/ranks.h"
#include "experiments/run/sweep/over.h"
#include "experiments/run/sweep/sample.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/model/gpu.h"
#include "sim/system/system.h"
#include "sim/system/system_facts.h"

static const struct option own_options[] = {
    {"slo", "TERMS", "objectives, such as 'p99 latency<30s, p95 ttft<2s, goodput>99%' (below)",
     true},
    {"systems", "A,B,...",
     "the systems; patterns such as '*-published' and paper:NAME stand for several (default: the "
     "one of --system, or dllm-serve)",
     false},
    {"system", "NAME", "short for --systems NAME", false},
    {"over", "KEY=A,B,...",
     "each system with each of these values: of gpu, model or a key, such as replicas=1,2", true},
    {"seeds", "N", "search with N seeds, from --seed on (default: 1)", false},
    {"within", "PERCENT", "how near the capacity is met (default: 1)", false},
    {"no-curve", NULL,
     "leave out the rates around the capacity: faster, but lower rates that miss go unnoticed",
     false},
    {"price", "GPU=PRICE,...", "dollars an hour for each GPU; without it cost is counted in GPUs",
     false},
    {"out", "DIR",
     "write capacity.svg, .png, .pdf, .csv and capacity-rates.csv into this folder; with --rate "
     "fleets.svg, .png, .pdf, .csv",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_capacity[] = {
    own_options,   device_options, policy_options, workload_options, job_options, json_options,
    format_option, verbose_option, NULL,
};

/* The first axis is that of systems. */
struct asking {
    const struct options *options;
    struct over axes[CAPACITY_MOST_AXES];
    size_t n_axes;
    char (*names[CAPACITY_MOST_AXES])[OVER_NAME_CHARS]; /* of their values, as tables show them */
    struct capacities *out;
};

/* ---- the systems ---- */

static int add_value(struct over *axis, const char *value, struct err *err) {
    for (size_t i = 0; i < axis->n; i++) {
        if (strcmp(axis->values[i], value) == 0) {
            return 0;
        }
    }
    if (axis->n == CAPACITY_MOST_CONFIGS || strlen(value) >= OVER_VALUE_CHARS || *value == '\0') {
        return err_usage(err, "%s: expected at most %d values of 1 to %d characters", axis->key,
                         CAPACITY_MOST_CONFIGS, OVER_VALUE_CHARS - 1);
    }
    snprintf(axis->values[axis->n++], OVER_VALUE_CHARS, "%s", value);
    return 0;
}

struct matching {
    struct over *axis;
    const char *pattern;
    struct err *err;
};

static int match(void *state, const char *name, const char *doc) {
    struct matching *m = state;
    (void)doc;
    return fnmatch(m->pattern, name, 0) == 0 ? add_value(m->axis, name, m->err) : 0;
}

/* The systems that the runs of a study name. */
static int add_study(struct over *axis, const char *path, struct err *err) {
    struct config config;
    struct words words;
    int status = config_read(path, &config, err);
    if (status != 0) {
        return status;
    }
    const struct config_entry *entry = NULL;
    while (status == 0 && (entry = config_next(&config, NULL, "system", entry)) != NULL) {
        if (name_behind(entry->section, "run") == NULL) {
            continue;
        }
        status = words_split(entry->value, &words, path, err);
        for (size_t w = 0; status == 0 && w < words.n; w++) {
            status = add_value(axis, words.word[w], err);
        }
    }
    config_fini(&config);
    return status;
}

static int add_paper(struct over *axis, const char *name, struct err *err) {
    char folder[256];
    snprintf(folder, sizeof folder, "experiments/study/studies/%.100s", name);
    char **studies = data_files(folder, 0, ".ini", err);
    size_t before = axis->n;
    int status = (int)err->kind;
    for (size_t i = 0; status == 0 && studies[i] != NULL; i++) {
        status = add_study(axis, studies[i], err);
    }
    if (status == 0 && axis->n == before) {
        status = err_usage(err, "--systems: %s '%s' in %s/experiments/study/studies",
                           studies[0] == NULL ? "there is no paper" : "no system is run by", name,
                           data_dir());
    }
    names_free(studies);
    return status;
}

static int read_systems(struct asking *asking, struct err *err) {
    static const char paper[] = "paper:";
    const char *text;
    struct over *axis = &asking->axes[asking->n_axes++];
    snprintf(axis->key, sizeof axis->key, "system");
    char names[ASKED_MOST_SYSTEMS][ASKED_NAME_CHARS];
    size_t n = 0;
    int status = asked_systems(asking->options, &text, err);
    status = status != 0 ? status : asked_system_names(text, names, &n, err);
    for (size_t i = 0; status == 0 && i < n; i++) {
        size_t before = axis->n;
        if (strncmp(names[i], paper, strlen(paper)) == 0) {
            status = add_paper(axis, names[i] + strlen(paper), err);
        } else if (strpbrk(names[i], "*?[") != NULL) {
            struct matching matching = {axis, names[i], err};
            status = system_list(match, &matching, err);
            if (status == 0 && axis->n == before) {
                status = err_usage(err, "--systems: no system is called '%s'", names[i]);
            }
        } else {
            status = add_value(axis, names[i], err);
        }
    }
    return status;
}

/* Next to each design of a fleet stands the published system that is nearest. */
static int add_nearest(struct over *axis, const char *systems_path, struct err *err) {
    int status = 0;
    for (size_t i = 0, n = axis->n; status == 0 && i < n; i++) {
        struct released released;
        status = released_based(axis->values[i], systems_path, &released, err);
        if (status == 0 && released.near[0] != '\0') {
            status = add_value(axis, released.near, err);
        }
    }
    return status;
}

/* ---- the configurations ---- */

static int read_over(struct asking *asking, const char *text, struct err *err) {
    if (asking->n_axes == CAPACITY_MOST_AXES) {
        return err_usage(err, "--over: at most %d keys", CAPACITY_MOST_AXES - 1);
    }
    struct over *over = &asking->axes[asking->n_axes++];
    const int status = over_read(text, CAPACITY_MOST_CONFIGS, over, err);
    for (const struct over *one = asking->axes; status == 0 && one < over; one++) {
        if (strcmp(one->key, over->key) == 0) {
            return err_usage(err,
                             "--over: '%s' is given twice: all its values are one list, %s=A,B,...",
                             over->key, over->key);
        }
    }
    return status != 0 ? status : over_refuse_traffic(over->key, err);
}

static int read_axes(struct asking *asking, struct err *err) {
    asking->axes[0].values = mem_zeroed(CAPACITY_MOST_CONFIGS, sizeof *asking->axes[0].values);
    int status = read_systems(asking, err);
    const bool is_fleet = asking->out->found.fleet_req_s > 0;
    status = status == 0 && is_fleet
                 ? add_nearest(&asking->axes[0], options_text(asking->options, "systems-file"), err)
                 : status;
    const char *over[OPTIONS_MOST_GIVEN];
    size_t n_over = options_values(asking->options, "over", over);
    for (size_t i = 0; status == 0 && i < n_over; i++) {
        status = read_over(asking, over[i], err);
    }
    size_t n = 1;
    for (size_t a = 0; status == 0 && is_fleet && a < asking->n_axes; a++) {
        if (strcmp(asking->axes[a].key, "replicas") == 0) {
            status = err_usage(err, "--over: replicas are what capacity --rate finds");
        }
    }
    for (size_t a = 0; a < asking->n_axes; a++) {
        n *= asking->axes[a].n;
    }
    if (status == 0 && n > CAPACITY_MOST_CONFIGS) {
        status = err_usage(err, "more than %d configurations", CAPACITY_MOST_CONFIGS);
    }
    asking->out->found.n_configs = status == 0 ? n : 0;
    return status;
}

/* Which value of an axis, the last of which varies fastest. */
static size_t place_on(const struct asking *asking, size_t config, size_t axis) {
    for (size_t a = asking->n_axes - 1; a > axis; a--) {
        config /= asking->axes[a].n;
    }
    return config % asking->axes[axis].n;
}

static int ask(const struct asking *asking, size_t i, struct err *err) {
    struct configuration *config = &asking->out->configs[i];
    struct run_request *request = &config->asked.request;
    int status = asked_read(asking->options, &config->asked, err);
    status = status != 0 ? status : asked_systems_file(asking->options, &config->asked, err);
    if (status == 0 && asking->out->found.fleet_req_s > 0 &&
        setting_find(request->settings, request->n_settings, "replicas") != NULL) {
        return err_usage(err, "replicas are what capacity --rate finds");
    }
    for (size_t a = 0; status == 0 && a < asking->n_axes; a++) {
        const char *value = asking->axes[a].values[place_on(asking, i, a)];
        if (a == 0) {
            request->system = value;
        } else {
            status = over_ask(asking->axes[a].key, value, "--over", &config->asked, err);
        }
    }
    return status;
}

/* ---- names ---- */

/* The first run of a configuration with each value of an axis, the others at their first. */
static void name_axis(struct asking *asking, size_t a) {
    struct capacities *c = asking->out;
    const struct over *axis = &asking->axes[a];
    const json_t **runs = mem_zeroed(axis->n + 1, sizeof *runs);
    for (size_t i = c->found.n_configs; i-- > 0;) {
        const json_t *run = c->found.searches[i * c->found.n_seeds].summary;
        const size_t at = place_on(asking, i, a);
        runs[at] = run != NULL ? run : runs[at];
    }
    asking->names[a] = mem_zeroed(axis->n + 1, sizeof *asking->names[a]);
    over_names(axis->key, axis->values, runs, axis->n, asking->names[a]);
    free(runs);
}

/* What configurations are called once they have run. */
static void name_all(struct asking *asking) {
    struct capacities *c = asking->out;
    for (size_t a = 0; a < asking->n_axes; a++) {
        name_axis(asking, a);
    }
    for (size_t i = 0; i < c->found.n_configs; i++) {
        struct configuration *config = &c->configs[i];
        size_t used = 0;
        for (size_t a = 0; a < asking->n_axes && used < sizeof config->label; a++) {
            const struct over *axis = &asking->axes[a];
            const bool says_key = over_says_key(axis->key);
            config->values[a] = asking->names[a][place_on(asking, i, a)];
            used += (size_t)snprintf(config->label + used, sizeof config->label - used,
                                     "%s%.40s%s%.63s", a > 0 ? " " : "", says_key ? axis->key : "",
                                     says_key ? "=" : "", config->values[a]);
        }
    }
}

static int read_numbers(const struct options *options, struct capacities *c, struct err *err) {
    uint64_t n_seeds = 1;
    double percent = 1;
    int status = options_whole(options, "seeds", 1, SAMPLE_MOST_SEEDS, &n_seeds, err);
    status = status != 0 ? status : options_positive(options, "within", &percent, err);
    if (status == 0 && (percent < 0.01 || percent > 50)) {
        status = err_usage(err, "--within: %g is not 0.01 to 50 per cent", percent);
    }
    double rate_req_s = 0;
    status = status != 0 ? status : options_positive(options, "rate", &rate_req_s, err);
    const char *objectives[OPTIONS_MOST_GIVEN];
    size_t n = options_values(options, "slo", objectives);
    for (size_t i = 0; status == 0 && i < n; i++) {
        status = objectives_add(&c->objectives, objectives[i], err);
    }
    c->found = (struct capacity){.objectives = &c->objectives,
                                 .tolerance = percent / 100,
                                 .fleet_req_s = rate_req_s,
                                 .curves = rate_req_s == 0 && !options_has(options, "no-curve"),
                                 .n_seeds = n_seeds};
    c->prices = options_text(options, "price");
    return status != 0 ? status : objectives_check(&c->objectives, err);
}

static struct run_request *request_of(void *state, size_t i) {
    return &((struct capacity *)state)->searches[i].request;
}

static int make_searches(struct asking *asking, struct err *err) {
    struct capacities *c = asking->out;
    size_t n = c->found.n_configs, n_seeds = c->found.n_seeds;
    c->configs = mem_zeroed(n, sizeof *c->configs);
    c->found.searches = mem_zeroed(n * n_seeds, sizeof *c->found.searches);
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++) {
        status = ask(asking, i, err);
        for (size_t seed = 0; seed < n_seeds; seed++) {
            struct search *search = &c->found.searches[i * n_seeds + seed];
            search->request = c->configs[i].asked.request;
            search->request.options.seed += seed;
        }
    }
    for (size_t i = 0; status == 0 && i < n; i++) {
        bool can_be;
        status = compose_check_names(&c->configs[i].asked.request, &can_be, err);
    }
    if (status == 0 && n > 0 && c->configs[0].asked.asks_one_source) {
        status = prices_take_one(request_of, &c->found, n * n_seeds, err);
    }
    for (size_t a = 0; a < asking->n_axes; a++) {
        c->axes[c->n_axes++] = asking->axes[a].key;
    }
    return status;
}

/* The dollars an hour of a word GPU=PRICE, whose '=' becomes its end. */
static int read_price(char *word, double *out, struct err *err) {
    char *equals = strchr(word, '=');
    if (equals == NULL || equals == word || !num_f64(equals + 1, out) || *out <= 0) {
        return err_usage(
            err, "--price takes GPU=PRICE, such as l40s=0.9, in dollars an hour, not '%s'", word);
    }
    *equals = '\0';
    return 0;
}

/* A card of one's own is known by its file's path, or by its name as tables have it. */
static bool is_card(const char *gpu, const char *word) {
    const char *slash = strrchr(gpu, '/'), *name = slash != NULL ? slash + 1 : gpu;
    const size_t length = strlen(word);
    return strcmp(gpu, word) == 0 ||
           (strncmp(name, word, length) == 0 && strcmp(name + length, ".ini") == 0);
}

/* A price list may know more cards than are compared, but no card that there is not. */
static int take_prices(struct capacities *c, struct err *err) {
    struct words words = {.n = 0};
    double price;
    int status = c->prices != NULL ? words_split(c->prices, &words, "--price", err) : 0;
    for (size_t i = 0; status == 0 && i < words.n; i++) {
        bool is_asked = false;
        status = read_price(words.word[i], &price, err);
        for (size_t k = 0; status == 0 && k < i; k++) {
            if (strcmp(words.word[k], words.word[i]) == 0) {
                status = err_usage(err, "--price: '%s' has two prices", words.word[i]);
            }
        }
        for (size_t k = 0; status == 0 && k < c->found.n_configs; k++) {
            struct configuration *config = &c->configs[k];
            if (is_card(config->asked.request.gpu, words.word[i])) {
                config->price = price;
                is_asked = true;
            }
        }
        status = status != 0 || is_asked ? status : gpu_check_name(words.word[i], err);
    }
    for (size_t k = 0; status == 0 && k < c->found.n_configs; k++) {
        struct configuration *config = &c->configs[k];
        if (c->prices == NULL) {
            config->price = 1;
        } else if (!(config->price > 0)) {
            status =
                err_usage(err, "--price: the price of '%s' is missing", config->asked.request.gpu);
        }
    }
    return status;
}

static int write_files(const struct capacities *c, const char *folder, struct err *err) {
    char path[1024];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return err_world(err, "cannot make the folder %s: %s", folder, strerror(errno));
    }
    if (c->found.fleet_req_s > 0) {
        snprintf(path, sizeof path, "%s/fleets", folder);
        return fleet_draw(c, path, err);
    }
    snprintf(path, sizeof path, "%s/capacity-rates.csv", folder);
    int status = capacity_write_rates(c, path, err);
    snprintf(path, sizeof path, "%s/capacity", folder);
    return status != 0 ? status : capacity_draw(c, path, err);
}

/* A search that failed although its system fits. */
static int check_results(const struct capacity *found, struct err *err) {
    for (size_t i = 0; i < found->n_configs * found->n_seeds; i++) {
        const struct search *search = &found->searches[i];
        if (search->state == CAPACITY_FAILED && !search->has_no_room) {
            return err_world(err, "%s has no result: %.900s", search->request.system,
                             search->err.text);
        }
    }
    return 0;
}

static int find(struct asking *asking, struct err *err) {
    const struct options *options = asking->options;
    struct capacities *c = asking->out;
    const char *folder = options_text(options, "out");
    unsigned n_threads = 1;
    int status = read_numbers(options, c, err);
    status = status != 0 ? status : asked_threads(options, &n_threads, err);
    status = status != 0 ? status : read_axes(asking, err);
    status = status != 0 ? status : make_searches(asking, err);
    status = status != 0 ? status : take_prices(c, err);
    if (status != 0) {
        return status;
    }
    c->found.stop = interrupt_catch();
    status = capacity_find(&c->found, n_threads, err);
    if (status == 0 && ranks_is_helper()) {
        return 0;
    }
    if (status == 0) {
        name_all(asking);
        capacity_settle(c);
    }
    const bool is_fleet = c->found.fleet_req_s > 0, is_json = options_has(options, "json");
    status = status == 0 && is_fleet ? fleet_check(c, err) : status;
    if (status == 0 && is_json) {
        status = cmd_print_json(is_fleet ? fleet_json(c) : capacity_json(c), err);
    } else if (status == 0) {
        (is_fleet ? fleet_print : capacity_print)(c, stdout);
    }
    status = status == 0 && folder != NULL ? write_files(c, folder, err) : status;
    status = status == 0 && !is_fleet ? check_results(&c->found, err) : status;
    capacity_fini(&c->found);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct capacities capacities = {0};
    struct asking asking = {.options = options, .out = &capacities};
    int status = find(&asking, err);
    for (size_t a = 0; a < asking.n_axes; a++) {
        over_fini(&asking.axes[a]);
        free(asking.names[a]);
    }
    free(capacities.found.searches);
    free(capacities.configs);
    return status;
}

const struct command command_capacity = {
    .name = "capacity",
    .words = "--slo TERMS",
    .doc =
        "the highest rate at which systems meet latency objectives, or the fleet for a rate; cost",
    .more =
        "--slo has terms with commas: STATISTIC METRIC<TIME with mean, max or a percentile such\n"
        "as p99 of latency, ttft, tpot or queue; goodput>PERCENT, the share of requests that are\n"
        "served within every bound (DistServe's SLO attainment; the bound of a metric is that of\n"
        "a term without a statistic, latency<30s, else of its loosest percentile). Terms after\n"
        "'tenant 1:' hold for the requests of tenant 1 alone; --slo may be given several times.\n"
        "A rejected request misses every bound.\n"
        "\n"
        "The rate is bisected with the same requests and draws, arrivals scaled in time, and\n"
        "answered as they came. A rate counts if the run is steady: not where it is saturated,\n"
        "where that cannot be told, or above what no scheduler sustains. Systems are searched\n"
        "with every seed, and their capacities have 95 % intervals (Student's t over seeds).\n"
        "Rates from a quarter to twice the capacity are tried as well: where a lower one misses,\n"
        "the capacity is below\n"
        "it and the row says so. `limit` is what limits the lowest rate that misses: memory\n"
        "(requests wait because the KV pool is full), admission (there is room, but the\n"
        "scheduler or a limit keeps requests waiting), compute (steps take long) or host (the\n"
        "GPU idles). `front` marks the Pareto front: configurations for which no other one\n"
        "serves at least as much at no higher cost.\n"
        "\n"
        "With --rate the question is turned round: how many replicas meet the objectives at that\n"
        "rate, of each configuration, and what does an hour cost. Requests are doubled until the\n"
        "answer no longer moves. A design is a system that no one has released: the published\n"
        "system that is nearest stands next to it. Where the released program's arguments are\n"
        "known, they are printed for each fleet.\n"
        "\n"
        "  unmask capacity --rate 50 --slo 'p95 ttft<2s' --over tensor_parallel=1,2,4 \\\n"
        "    --over gpu=l40s,h100 --price l40s=0.9,h100=2.5",
    .options = options_of_capacity,
    .takes_ranks = true,
    .run = run,
};
