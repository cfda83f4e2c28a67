#include "experiments/command/capacity_show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/cmd.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/cli/table.h"
#include "experiments/run/prices.h"
#include "experiments/run/sweep/sample.h"
#include "experiments/study/released.h"
#include "sim/base/mem.h"
#include "sim/base/output.h"

static const double none = (double)NAN;

const struct search *capacity_search(const struct capacities *c, size_t config, size_t seed) {
    return &c->found.searches[config * c->found.n_seeds + seed];
}

/* The first seed's search, or the first that is in that state; NULL: there is none. */
static const struct search *first_in(const struct capacities *c, size_t config,
                                     enum capacity_state state) {
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        if (capacity_search(c, config, s)->state == state) {
            return capacity_search(c, config, s);
        }
    }
    return NULL;
}

/* The state of a configuration: the worst of its seeds'. */
enum capacity_state capacity_state(const struct capacities *c, size_t config) {
    enum capacity_state worst = CAPACITY_FOUND;
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        enum capacity_state state = capacity_search(c, config, s)->state;
        worst = state > worst ? state : worst;
    }
    return worst;
}

/* ---- over seeds ---- */

static double quantity_at_met(const struct trial *met, size_t which, size_t n_terms) {
    return which < n_terms        ? met->values[which]
           : which == n_terms     ? met->attainment
           : which == n_terms + 1 ? met->attained_req_s
                                  : met->joules_per_token;
}

struct spread capacity_spread(const struct capacities *c, size_t config, size_t which,
                              const double *values) {
    const size_t n = capacity_samples(c, config), n_terms = c->objectives.n;
    const bool is_share =
        which == n_terms ||
        (which < n_terms && c->objectives.items[which].statistic == STATISTIC_SHARE);
    double n_of = 0;
    for (size_t s = 0; s < n; s++) {
        n_of += (double)capacity_search(c, config, s)->n_requests;
    }
    return spread_of_kind(is_share, values, n, n_of);
}

/* Of a term's value, then attainment, its rate and joules for an answer token; at the capacity. */
struct spread capacity_at_met(const struct capacities *c, size_t config, size_t which) {
    double values[SAMPLE_MOST_SEEDS];
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct search *search = capacity_search(c, config, s);
        values[s] = search->met.rate_per_s > 0
                        ? quantity_at_met(&search->met, which, c->objectives.n)
                        : none;
    }
    return capacity_spread(c, config, which, values);
}

bool capacity_knows_energy(const struct capacities *c) {
    for (size_t i = 0; i < c->found.n_configs * c->found.n_seeds; i++) {
        if (c->found.searches[i].met.joules_per_token > 0) {
            return true;
        }
    }
    return false;
}

/* Of the first rates that miss. */
static double mean_at_missed(const struct capacities *c, size_t config, bool of_queue) {
    double sum = 0;
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct trial *missed = &capacity_search(c, config, s)->missed;
        double value = of_queue ? missed->queue_share : missed->gpu_share;
        sum += missed->rate_per_s > 0 ? value : none;
    }
    return sum / (double)c->found.n_seeds;
}

static void add_word(char *text, size_t size, const char *separator, const char *word) {
    size_t used = strlen(text);
    if (strstr(text, word) == NULL) {
        snprintf(text + used, size - used, "%s%s", used > 0 ? separator : "", word);
    }
}

/* No scheduler keeps up with a higher rate for long: over seeds. */
static double mean_bound(const struct capacities *c, size_t config) {
    double sum = 0;
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        sum += capacity_search(c, config, s)->bound_per_s;
    }
    return sum / (double)c->found.n_seeds;
}

/* "memory", or those of several seeds with slashes. */
void capacity_limits(const struct capacities *c, size_t config, char *text, size_t size) {
    text[0] = '\0';
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct trial *missed = &capacity_search(c, config, s)->missed;
        if (missed->rate_per_s > 0) {
            add_word(text, size, "/", capacity_limit_words[missed->limit]);
        }
    }
}

/* The objectives that the first rates miss. */
void capacity_missed(const struct capacities *c, size_t config, char *text, size_t size) {
    text[0] = '\0';
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct trial *missed = &capacity_search(c, config, s)->missed;
        for (size_t i = 0; missed->rate_per_s > 0 && i < c->objectives.n; i++) {
            if (!objective_is_met(&c->objectives.items[i], missed->values[i])) {
                add_word(text, size, ", ", c->objectives.items[i].text);
            }
        }
        bool is_told = missed->state == OFFERED_STEADY || missed->state == OFFERED_CLOSED;
        if (missed->rate_per_s > 0 && !is_told) {
            add_word(text, size, ", ", offered_words[missed->state]);
        }
    }
}

/* ---- cost ---- */

static void find_front(struct capacities *c) {
    for (size_t i = 0; i < c->found.n_configs; i++) {
        struct configuration *ours = &c->configs[i];
        ours->is_on_front = ours->capacity.mean > 0;
        for (size_t k = 0; ours->is_on_front && k < c->found.n_configs; k++) {
            const struct configuration *other = &c->configs[k];
            bool is_better = other->cost < ours->cost || other->capacity.mean > ours->capacity.mean;
            ours->is_on_front = !(other->cost <= ours->cost && is_better &&
                                  other->capacity.mean >= ours->capacity.mean);
        }
    }
}

void capacity_settle(struct capacities *c) {
    size_t n = c->found.n_seeds;
    double base[SAMPLE_MOST_SEEDS], ours[SAMPLE_MOST_SEEDS];
    for (size_t i = 0; i < c->found.n_configs; i++) {
        struct configuration *config = &c->configs[i];
        for (size_t s = 0; s < n; s++) {
            ours[s] = search_capacity(capacity_search(c, i, s));
            base[s] = i == 0 ? ours[s] : base[s];
        }
        size_t n_own = capacity_samples(c, i), n_pairs = n_own == 1 ? capacity_samples(c, 0) : n;
        config->capacity = spread_of(ours, n_own);
        config->ratio = spread_of_ratios(ours, base, n_pairs);
        config->difference = spread_of_differences(ours, base, n_pairs);
        config->gpus = capacity_search(c, i, 0)->gpus;
        config->cost = config->price * (double)config->gpus;
    }
    find_front(c);
}

/* Dollars for a thousand requests at the capacity. */
static double dollars_per_1000(const struct capacities *c, const struct configuration *config) {
    return c->prices != NULL && config->capacity.mean > 0
               ? config->cost / 3600 / config->capacity.mean * 1000
               : none;
}

static bool has_front(const struct capacities *c) {
    for (size_t i = 1; i < c->found.n_configs; i++) {
        if (c->configs[i].cost != c->configs[0].cost) {
            return true;
        }
    }
    return false;
}

/* ---- the table ---- */

void capacity_cell(struct table *table, const struct spread *spread, const char *form, double scale,
                   const char *mark) {
    char text[96] = "-", mean[24], half[24], low[THREE_CHARS], high[THREE_CHARS];
    snprintf(mean, sizeof mean, form, scale * spread->mean);
    snprintf(half, sizeof half, "%.2g", scale * (spread->high - spread->mean));
    if (isfinite(spread->low) && scale == 100) {
        snprintf(text, sizeof text, "%s (%s to %s)%s", mean, three_digits(scale * spread->low, low),
                 three_digits(scale * spread->high, high), mark);
    } else if (isfinite(spread->low)) {
        snprintf(text, sizeof text, "%s ±%s%s", mean, half, mark);
    } else if (!isnan(spread->mean)) {
        snprintf(text, sizeof text, "%s%s", mean, mark);
    }
    table_shown(table, scale * spread->mean, text);
}

static bool all_monotone(const struct capacities *c, size_t config) {
    bool all = true;
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        all = all && search_is_monotone(capacity_search(c, config, s));
    }
    return all;
}

static void add_ratio(struct table *table, const struct configuration *config, bool is_base) {
    char text[32] = "-";
    bool is_tie =
        !is_base && isfinite(config->difference.low) && !spread_differs(&config->difference);
    if (isfinite(config->ratio.mean)) {
        snprintf(text, sizeof text, "%s%.2fx", is_tie ? "~" : "", config->ratio.mean);
    }
    table_shown(table, config->ratio.mean, text);
}

static void add_row(struct table *table, const struct capacities *c, size_t i) {
    const struct configuration *config = &c->configs[i];
    char text[512];
    for (size_t a = 0; a < c->n_axes; a++) {
        table_text(table, config->values[a]);
    }
    bool is_unbounded = capacity_state(c, i) == CAPACITY_UNBOUNDED;
    if (is_unbounded) {
        table_text(table, "unbounded");
    } else {
        capacity_cell(table, &config->capacity, "%.3f", 1, all_monotone(c, i) ? "" : "!");
    }
    add_ratio(table, config, i == 0);
    const double gpus = config->gpus > 0 ? (double)config->gpus : (double)NAN; /* 0: never opened */
    table_add(table, "%.3f %.0f %.3f", mean_bound(c, i), gpus, config->capacity.mean / gpus);
    if (c->prices != NULL) {
        table_number(table, config->cost, "%.2f");
        table_number(table, dollars_per_1000(c, config), "%.2f");
    }
    for (size_t t = 0; t <= c->objectives.n + (capacity_knows_energy(c) ? 2 : 1); t++) {
        bool is_share = t == c->objectives.n ||
                        (t < c->objectives.n && c->objectives.items[t].metric == METRIC_GOODPUT);
        struct spread spread = capacity_at_met(c, i, t);
        if (t >= c->objectives.n || objective_is_of_time(&c->objectives.items[t])) {
            capacity_cell(table, &spread, is_share ? "%.1f" : "%.3g", is_share ? 100 : 1, "");
        }
    }
    capacity_limits(c, i, text, sizeof text);
    table_text(table, text[0] != '\0' ? text : NULL);
    table_add(table, "%.0f %.0f", 100 * mean_at_missed(c, i, true),
              100 * mean_at_missed(c, i, false));
    if (has_front(c)) {
        table_text(table, config->is_on_front ? "*" : "");
    }
    capacity_missed(c, i, text, sizeof text);
    if (is_unbounded) {
        snprintf(text, sizeof text, "none, even all at once");
    }
    table_text(table, text[0] != '\0' ? text : NULL);
}

void capacity_objectives(struct table *table, const struct capacities *c) {
    for (size_t t = 0; t < c->objectives.n; t++) {
        const struct objective *o = &c->objectives.items[t];
        if (objective_is_of_time(o)) {
            char heading[OBJECTIVE_CHARS + 8];
            snprintf(heading, sizeof heading, "%s_s", o->name);
            table_column(table, heading);
        }
    }
}

static struct table *make_table(const struct capacities *c) {
    struct table *table = table_open("");
    for (size_t a = 0; a < c->n_axes; a++) {
        table_column(table, c->axes[a]);
    }
    table_columns(table, "req/s|x|sustained at most|GPUs|per GPU");
    table_columns(table, c->prices != NULL ? "$/h|$/1000" : "");
    capacity_objectives(table, c);
    table_columns(table, "attain_%|attained");
    table_columns(table, capacity_knows_energy(c) ? "J/token" : "");
    table_columns(table, "limit|queue_%|GPU_%");
    table_columns(table, has_front(c) ? "front" : "");
    table_columns(table, "misses first");
    for (size_t i = 0; i < c->found.n_configs; i++) {
        add_row(table, c, i);
    }
    return table;
}

struct warnings capacity_warnings(const struct capacities *c, size_t config) {
    struct sample sample = {.n = c->found.n_seeds};
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        sample.runs[s] = capacity_search(c, config, s)->summary;
    }
    struct warnings out = sample_warnings(&sample);
    if (c->found.n_seeds == 1) {
        sample_warn_of_one_seed(&out);
    }
    capacity_warn_of_prices(c, config, &out);
    const struct search *first = capacity_search(c, config, 0);
    if (c->found.fleet_req_s == 0 && search_has_few_requests(first)) {
        warnings_add(&out, WARNING_FEW_REQUESTS,
                     (double)first->n_requests / (double)first->n_together,
                     "%llu requests are few: %llu of them run together when all come at once, so "
                     "that the run is over before a queue has formed; capacity may be lower",
                     (unsigned long long)first->n_requests, (unsigned long long)first->n_together);
    }
    return out;
}

/* A note where the number alone would mislead; "" where it does not. */
static void remark_of(const struct capacities *c, size_t config, char *text, size_t size) {
    const struct search *failed = first_in(c, config, CAPACITY_FAILED);
    const struct search *nothing = first_in(c, config, CAPACITY_NONE);
    const struct search *unbounded = first_in(c, config, CAPACITY_UNBOUNDED);
    text[0] = '\0';
    if (failed != NULL) {
        snprintf(text, size, "no result: %s", failed->err.text);
    } else if (nothing != NULL) {
        snprintf(text, size, "seed %llu misses at every rate down to %.3g req/s%s",
                 (unsigned long long)nothing->request.options.seed, nothing->missed.rate_per_s,
                 nothing->missed.is_alone ? ", where requests are served alone" : "");
    } else if (unbounded != NULL) {
        snprintf(text, size,
                 "meets the objectives even when all %llu requests come at once, of which %llu run "
                 "together: more --requests would tell its capacity",
                 (unsigned long long)unbounded->n_requests,
                 (unsigned long long)unbounded->n_together);
    }
    for (size_t s = 0; s < c->found.n_seeds && text[0] == '\0'; s++) {
        const struct search *search = capacity_search(c, config, s);
        if (!search_is_monotone(search)) {
            snprintf(text, size,
                     "not monotone: seed %llu misses at %.3g req/s and meets again up to %.3g",
                     (unsigned long long)search->request.options.seed, search->missed.offered_req_s,
                     search->highest_met_req_s);
        }
    }
}

/* Of the summaries' `key`: the text, or "" where configurations differ. */
const char *capacity_common(const struct capacities *c, const char *key) {
    const char *common = NULL;
    for (size_t i = 0; i < c->found.n_configs; i++) {
        const char *text =
            json_string_value(json_object_get(capacity_search(c, i, 0)->summary, key));
        if (text != NULL && common != NULL && strcmp(text, common) != 0) {
            return "";
        }
        common = text != NULL ? text : common;
    }
    return common != NULL ? common : "";
}

void capacity_print_head(const struct capacities *c, FILE *out) {
    const struct run_request *request = &c->configs[0].asked.request;
    const char *gpu = capacity_common(c, "gpu"), *model = capacity_common(c, "model");
    double requests = (double)NAN;
    for (size_t i = 0; i < c->found.n_configs && isnan(requests); i++) {
        requests = cmd_number(capacity_search(c, i, 0)->summary, "requests", NULL);
    }
    char n[48] = ""; /* a fleet's rows say how many theirs are */
    if (c->found.fleet_req_s == 0) {
        snprintf(n, sizeof n, "%.0f requests", requests);
    }
    long long seed = (long long)request->options.seed;
    const char *from = capacity_common(c, "trace_provenance");
    fprintf(out, "%s%s%s%s%s: %s%s%s%sseed%s %lld", request->workload, gpu[0] != '\0' ? " on " : "",
            gpu, model[0] != '\0' ? ", " : "", model, from, from[0] != '\0' ? ", " : "", n,
            n[0] != '\0' ? ", " : "", c->found.n_seeds > 1 ? "s" : "", seed);
    if (c->found.n_seeds > 1) {
        fprintf(out, " to %lld", seed + (long long)c->found.n_seeds - 1);
    }
    fprintf(out, "\n");
    for (size_t i = 0; i < c->objectives.n; i++) {
        fprintf(out, "%s%s", i == 0 ? "objectives: " : ", ", c->objectives.items[i].text);
    }
    if (c->found.fleet_req_s > 0) {
        fprintf(out, "; %.6g requests/s\n\n", c->found.fleet_req_s);
    } else {
        fprintf(out, "; capacities to within %.3g %%\n\n", 100 * c->found.tolerance);
    }
}

static void print_notes(const struct capacities *c, FILE *out) {
    fprintf(
        out,
        "\nreq/s: the highest rate at which every objective is met, as requests came; x: that "
        "over %s's\nobjectives' values, attain_%% and attained (attain_%% of req/s) are those at "
        "that rate\nlimit, queue_%% (of the mean latency) and GPU_%% (of the steps' time) are "
        "those at the lowest rate that misses an objective\nmisses first: which one it misses; "
        "cannot tell: the run does not tell whether the system keeps up\n"
        "sustained at most: no scheduler serves more of such requests a second for long "
        "(`unmask bound`); no rate above it counts as met\n",
        c->configs[0].label);
    size_t n = capacity_most_samples(c);
    char note[SPREAD_NOTE_CHARS];
    if (n > 1) {
        fprintf(out, "± and (to): %s; ~: not distinguishable from %s\n", spread_note(n, note),
                c->configs[0].label);
    } else if (c->found.n_seeds > 1) {
        fprintf(out, "no seed draws anything: %zu seeds are one run\n", c->found.n_seeds);
    }
    if (has_front(c)) {
        fprintf(out, "front *: Pareto-optimal (%s, rate)\n",
                c->prices != NULL ? "cost an hour" : "GPUs");
    }
}

void capacity_print(const struct capacities *c, FILE *out) {
    struct cautions cautions = {0};
    char remark[1200];
    capacity_print_head(c, out);
    struct table *table = make_table(c);
    table_print(table, out);
    table_close(table);
    print_notes(c, out);
    const char **systems = mem_zeroed(c->found.n_configs + 1, sizeof *systems);
    for (size_t i = 0; i < c->found.n_configs; i++) {
        systems[i] = c->configs[i].asked.request.system;
    }
    released_print(systems, c->found.n_configs, out);
    free(systems);
    for (size_t i = 0; i < c->found.n_configs; i++) {
        remark_of(c, i, remark, sizeof remark);
        if (remark[0] != '\0') {
            fprintf(out, "%-13s%s: %s\n", "note", c->configs[i].label, remark);
        }
    }
    for (size_t i = 0; i < c->found.n_configs; i++) {
        if (capacity_state(c, i) != CAPACITY_FAILED) {
            struct warnings warnings = capacity_warnings(c, i);
            cautions_add(&cautions, c->configs[i].label, &warnings);
        }
    }
    cautions_print(&cautions, out);
}

/* ---- JSON ---- */

static json_t *trial_json(const struct capacities *c, const struct trial *trial) {
    if (trial->rate_per_s == 0) {
        return json_null();
    }
    json_t *values = json_object();
    for (size_t i = 0; i < c->objectives.n; i++) {
        const struct objective *o = &c->objectives.items[i];
        if (o->statistic != STATISTIC_EACH) {
            json_object_set_new(values, o->name, number_json(trial->values[i]));
        }
    }
    json_t *object = json_pack(
        "{s:f, s:f, s:b, s:s, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:s}", "rate_req_s",
        trial->rate_per_s, "offered_req_s", trial->offered_req_s, "met", trial->is_met, "state",
        offered_words[trial->state], "values", values, "attainment", number_json(trial->attainment),
        "attained_req_s", number_json(trial->attained_req_s), "served_req_s", trial->served_req_s,
        "queue_share", number_json(trial->queue_share), "kv_full_share",
        number_json(trial->full_share), "gpu_share", number_json(trial->gpu_share), "limit",
        capacity_limit_words[trial->limit]);
    if (trial->joules_per_token > 0) {
        json_object_set_new(object, "joules_per_answer_token",
                            number_json(trial->joules_per_token));
    }
    return object;
}

json_t *capacity_search_json(const struct capacities *c, const struct search *search) {
    json_t *curve = json_array();
    for (size_t i = 0; i < CAPACITY_CURVE; i++) {
        if (search->curve[i].rate_per_s > 0) {
            json_array_append_new(curve, trial_json(c, &search->curve[i]));
        }
    }
    bool failed = search->state == CAPACITY_FAILED;
    return json_pack(
        "{s:I, s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:I, s:o}", "seed",
        (json_int_t)search->request.options.seed, "state", capacity_state_words[search->state],
        "capacity_req_s", number_json(search_capacity(search)), "monotone",
        search_is_monotone(search), "highest_met_req_s",
        number_json(search->state == CAPACITY_FOUND
                        ? fmax(search->met.offered_req_s, search->highest_met_req_s)
                        : none),
        "at_capacity", trial_json(c, &search->met), "first_missed", trial_json(c, &search->missed),
        "curve", curve, "runs", (json_int_t)search->n_runs, "no_result",
        failed ? json_string(search->err.text) : json_null());
}

json_t *capacity_text_json(const char *text) {
    return text[0] != '\0' ? json_string(text) : json_null();
}

json_t *capacity_config_json(const struct capacities *c, size_t i) {
    static const char *const same[] = {"model", "gpu", "profile_kind", "host"};
    const json_t *summary = capacity_search(c, i, 0)->summary;
    json_t *object = json_object();
    for (size_t a = 0; a < c->n_axes; a++) {
        json_object_set_new(object, c->axes[a], json_string(c->configs[i].values[a]));
    }
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
        json_t *value = json_object_get(summary, same[k]);
        json_object_set(object, same[k], value != NULL ? value : json_null());
    }
    return object;
}

json_t *capacity_objectives_json(const struct capacities *c) {
    json_t *terms = json_array();
    for (size_t i = 0; i < c->objectives.n; i++) {
        json_array_append_new(terms, json_string(c->objectives.items[i].text));
    }
    return terms;
}

json_t *capacity_configs_json(const struct capacities *c,
                              json_t *(*one)(const struct capacities *c, size_t config)) {
    json_t *configs = json_array();
    for (size_t i = 0; i < c->found.n_configs; i++) {
        json_array_append_new(configs, one(c, i));
    }
    return configs;
}

static json_t *config_json(const struct capacities *c, size_t i) {
    const struct configuration *config = &c->configs[i];
    json_t *object = capacity_config_json(c, i), *seeds = json_array();
    char text[1200];
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        json_array_append_new(seeds, capacity_search_json(c, capacity_search(c, i, s)));
    }
    json_object_set_new(object, "gpus", json_integer(config->gpus));
    json_object_set_new(object, "state", json_string(capacity_state_words[capacity_state(c, i)]));
    json_object_set_new(object, "capacity_req_s", spread_json(&config->capacity));
    json_object_set_new(object, "bound_req_s", number_json(mean_bound(c, i)));
    json_object_set_new(object, "ratio", spread_json(&config->ratio));
    json_object_set_new(object, "difference_req_s", spread_json(&config->difference));
    json_object_set_new(object, "cost", number_json(config->cost));
    json_object_set_new(object, "dollars_per_1000_requests",
                        number_json(dollars_per_1000(c, config)));
    json_object_set_new(object, "on_front", json_boolean(config->is_on_front));
    capacity_limits(c, i, text, sizeof text);
    json_object_set_new(object, "limit", capacity_text_json(text));
    capacity_missed(c, i, text, sizeof text);
    json_object_set_new(object, "misses_first", capacity_text_json(text));
    remark_of(c, i, text, sizeof text);
    json_object_set_new(object, "note", capacity_text_json(text));
    json_object_set_new(object, "by_seed", seeds);
    struct warnings warnings = capacity_warnings(c, i);
    json_object_set_new(object, "warnings", caution_json(&warnings));
    return object;
}

json_t *capacity_json(const struct capacities *c) {
    return json_pack(
        "{s:s, s:o, s:f, s:I, s:s, s:o}", "workload", c->configs[0].asked.request.workload,
        "objectives", capacity_objectives_json(c), "within", c->found.tolerance, "seeds",
        (json_int_t)c->found.n_seeds, "cost_unit", c->prices != NULL ? "USD/h" : "GPUs",
        "configurations", capacity_configs_json(c, config_json));
}

/* Configurations whose prices are of several sources. */

static const json_t *any_run(const struct capacities *c, size_t config) {
    const json_t *found = NULL;
    for (size_t s = 0; found == NULL && s < c->found.n_seeds; s++) {
        found = c->found.searches[config * c->found.n_seeds + s].summary;
    }
    return found;
}

void capacity_warn_of_prices(const struct capacities *c, size_t config, struct warnings *out) {
    size_t base = 0;
    bool has_warned = false;
    struct warnings before = {0};
    while (base < config && any_run(c, base) == NULL) {
        base++;
    }
    for (size_t i = base + 1; !has_warned && i <= config; i++) {
        has_warned = prices_warn(any_run(c, i), c->configs[i].label, any_run(c, base),
                                 c->configs[base].label, i == config ? out : &before);
    }
}

/* The rates that `unmask capacity` tried, as CSV. */

static void write_cell(FILE *out, double value) {
    fputc(',', out);
    if (isfinite(value)) {
        fprintf(out, "%.9g", value);
    }
}

static void write_rate(const struct capacities *c, size_t i, const struct search *search,
                       const struct trial *trial, const char *role, FILE *out) {
    for (size_t a = 0; a < c->n_axes; a++) {
        output_csv_text(out, c->configs[i].values[a]);
        fputc(',', out);
    }
    fprintf(out, "%llu,%s,%.9g,%.9g,%d,%s", (unsigned long long)search->request.options.seed, role,
            trial->rate_per_s, trial->offered_req_s, trial->is_met, offered_words[trial->state]);
    for (size_t t = 0; t < c->objectives.n; t++) {
        if (c->objectives.items[t].statistic != STATISTIC_EACH) {
            write_cell(out, trial->values[t]);
        }
    }
    write_cell(out, trial->attainment);
    write_cell(out, trial->attained_req_s);
    write_cell(out, trial->served_req_s);
    write_cell(out, trial->queue_share);
    write_cell(out, trial->full_share);
    write_cell(out, trial->gpu_share);
    if (capacity_knows_energy(c)) {
        write_cell(out, trial->joules_per_token);
    }
    fprintf(out, ",%s\n", capacity_limit_words[trial->limit]);
}

int capacity_write_rates(const struct capacities *c, const char *path, struct err *err) {
    struct output output;
    if (output_open(path, &output, err) != 0) {
        return err_status(err);
    }
    FILE *out = output.file;
    for (size_t a = 0; a < c->n_axes; a++) {
        output_csv_text(out, c->axes[a]);
        fputc(',', out);
    }
    fputs("seed,role,rate_req_s,offered_req_s,met,state", out);
    for (size_t t = 0; t < c->objectives.n; t++) {
        const struct objective *o = &c->objectives.items[t];
        if (o->statistic != STATISTIC_EACH) {
            char name[OBJECTIVE_CHARS + 8];
            snprintf(name, sizeof name, "%s%s", o->name, o->metric == METRIC_GOODPUT ? "" : "_s");
            fputc(',', out);
            output_csv_text(out, name);
        }
    }
    fprintf(out,
            ",attainment,attained_req_s,served_req_s,queue_share,kv_full_share,gpu_share%s,limit\n",
            capacity_knows_energy(c) ? ",joules_per_answer_token" : "");
    for (size_t i = 0; i < c->found.n_configs * c->found.n_seeds; i++) {
        const struct search *search = &c->found.searches[i];
        const struct trial *ends[] = {&search->met, &search->missed};
        static const char *const roles[] = {"capacity", "first_missed"};
        for (size_t k = 0; k < 2 + CAPACITY_CURVE; k++) {
            const struct trial *trial = k < 2 ? ends[k] : &search->curve[k - 2];
            if (trial->rate_per_s > 0) {
                write_rate(c, i / c->found.n_seeds, search, trial, k < 2 ? roles[k] : "curve", out);
            }
        }
    }
    return output_close(&output, true, err);
}
