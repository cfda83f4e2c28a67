/* What `unmask capacity --rate` found: fleets, their cost, and how they are started. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "experiments/command/capacity_show.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/cmd.h"
#include "experiments/run/sweep/sample.h"

double fleet_size(const struct capacities *c, size_t config) {
    double most = 0;
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct search *search = capacity_search(c, config, s);
        most = fmax(most, search->met.replicas);
        if (search->state != CAPACITY_FOUND) {
            return (double)NAN;
        }
    }
    return most;
}

static double gpus_of(const struct capacities *c, size_t config) {
    const struct trial *met = &capacity_search(c, config, 0)->met;
    return met->replicas > 0 ? fleet_size(c, config) * met->gpus / met->replicas : (double)NAN;
}

double fleet_cost(const struct capacities *c, size_t config) {
    return c->configs[config].price * gpus_of(c, config);
}

struct spread fleet_cost_spread(const struct capacities *c, size_t config) {
    double values[SAMPLE_MOST_SEEDS];
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct search *search = capacity_search(c, config, s);
        values[s] = search->state == CAPACITY_FOUND ? c->configs[config].price * search->met.gpus
                                                    : (double)NAN;
    }
    return spread_of(values, capacity_samples(c, config));
}

static const struct released *released_at(const struct capacities *c, size_t config) {
    return &capacity_search(c, config, 0)->released;
}

/* Of designs, or of published programs: who buys GPUs has no choice between the two. */
static bool is_cheapest(const struct capacities *c, size_t config) {
    const double cost = fleet_cost(c, config);
    for (size_t i = 0; i < c->found.n_configs; i++) {
        const bool is_alike =
            released_at(c, i)->is_published == released_at(c, config)->is_published;
        if (is_alike && fleet_cost(c, i) < cost) {
            return false;
        }
    }
    return isfinite(cost);
}

/* Requests of the longest run, of any seed. */
static double requests_of(const struct capacities *c, size_t config) {
    double most = 0;
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        most = fmax(most, (double)capacity_search(c, config, s)->n_requests);
    }
    return most;
}

static const char *kind_of(const struct capacities *c, size_t config) {
    return released_at(c, config)->is_published ? "published" : "design";
}

/* Whether configurations have several models, and no axis says so. */
static bool says_model(const struct capacities *c) {
    bool says = capacity_common(c, "model")[0] == '\0';
    for (size_t a = 0; a < c->n_axes; a++) {
        says = says && strcmp(c->axes[a], "model") != 0;
    }
    return says;
}

static void add_row(struct table *table, const struct capacities *c, size_t i) {
    char text[512];
    for (size_t a = 0; a < c->n_axes; a++) {
        table_text(table, c->configs[i].values[a]);
    }
    if (says_model(c)) {
        table_text(table, cmd_text(capacity_search(c, i, 0)->summary, "model"));
    }
    struct spread cost = fleet_cost_spread(c, i);
    table_add(table, "s %.0f %.0f", kind_of(c, i), fleet_size(c, i), gpus_of(c, i));
    if (c->prices != NULL) {
        table_number(table, fleet_cost(c, i), "%.2f");
        table_number(table, fleet_cost(c, i) / 3.6 / c->found.fleet_req_s, "%.3f");
    }
    if (capacity_samples(c, i) > 1) {
        capacity_cell(table, &cost, "%.2f", 1, "");
    } else if (c->found.n_seeds > 1) {
        table_text(table, NULL);
    }
    for (size_t t = 0; t <= c->objectives.n; t++) {
        const bool is_share = t == c->objectives.n;
        struct spread spread = capacity_at_met(c, i, t);
        if (is_share || objective_is_of_time(&c->objectives.items[t])) {
            capacity_cell(table, &spread, is_share ? "%.1f" : "%.3g", is_share ? 100 : 1, "");
        }
    }
    capacity_limits(c, i, text, sizeof text);
    table_text(table, text[0] != '\0' ? text : NULL);
    capacity_missed(c, i, text, sizeof text);
    table_text(table, text[0] != '\0' ? text : NULL);
    table_number(table, isfinite(fleet_size(c, i)) ? requests_of(c, i) : (double)NAN, "%.0f");
    table_text(table, is_cheapest(c, i) ? "*" : "");
}

static struct table *make_table(const struct capacities *c) {
    struct table *table = table_open("");
    for (size_t a = 0; a < c->n_axes; a++) {
        table_column(table, c->axes[a]);
    }
    table_columns(table, says_model(c) ? "model" : "");
    table_columns(table, "is|replicas|GPUs");
    table_columns(table, c->prices != NULL ? "$/h|$/1000" : "");
    table_columns(table, c->found.n_seeds == 1 ? ""
                         : c->prices != NULL   ? "$/h by seed"
                                               : "GPUs by seed");
    capacity_objectives(table, c);
    table_columns(table, "attain_%|limit|one fewer misses|requests|cheapest");
    for (size_t i = 0; i < c->found.n_configs; i++) {
        add_row(table, c, i);
    }
    return table;
}

/* Why a configuration has no fleet; "" where it has one. */
static void why_none(const struct capacities *c, size_t i, char *text, size_t size) {
    text[0] = '\0';
    for (size_t s = 0; s < c->found.n_seeds && text[0] == '\0'; s++) {
        const struct search *search = capacity_search(c, i, s);
        if (search->state == CAPACITY_FAILED) {
            snprintf(text, size, "no result: %s", search->err.text);
        } else if (search->state == CAPACITY_NONE && search->missed.replicas == 1) {
            snprintf(text, size, "one replica serves %.3g requests/s at most, and %d are the most",
                     search->missed.served_req_s, FLEET_MOST_REPLICAS);
        } else if (search->state == CAPACITY_NONE && search->missed.state == OFFERED_UNKNOWN &&
                   !search->missed.is_alone) {
            snprintf(text, size, "more --requests would tell whether %u replicas keep up",
                     search->missed.replicas);
        } else if (search->state == CAPACITY_NONE) {
            char missed[256];
            capacity_missed(c, i, missed, sizeof missed);
            snprintf(text, size, "no number of replicas meets %s: %u still miss it", missed,
                     search->missed.replicas);
        } else if (search->still_moves) {
            snprintf(text, size,
                     "the answer still moves at %llu requests: more --requests would settle it",
                     (unsigned long long)search->n_requests);
        }
    }
}

int fleet_check(const struct capacities *c, struct err *err) {
    char why[1200], others[80] = "";
    const size_t n = c->found.n_configs;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(fleet_size(c, i))) {
            return 0;
        }
    }
    why_none(c, 0, why, sizeof why);
    if (n > 1) {
        snprintf(others, sizeof others, "; %zu more configuration%s no fleet either", n - 1,
                 n > 2 ? "s have" : " has");
    }
    return err_world(err, "%s at %.6g requests/s: %.800s%s", c->configs[0].label,
                     c->found.fleet_req_s, why, others);
}

/* Whether this is the first fleet of its system. */
static bool is_first_of_system(const struct capacities *c, size_t config) {
    for (size_t i = 0; i < config; i++) {
        if (isfinite(fleet_size(c, i)) &&
            strcmp(c->configs[i].values[0], c->configs[config].values[0]) == 0) {
            return false;
        }
    }
    return true;
}

/* The model of the fleet of a system, or NULL. */
static const char *model_of(const struct capacities *c, const char *system) {
    for (size_t i = 0; i < c->found.n_configs; i++) {
        if (strcmp(c->configs[i].values[0], system) == 0) {
            return cmd_text(capacity_search(c, i, 0)->summary, "model");
        }
    }
    return NULL;
}

/* Its own default may be another model than the design's. */
static void print_design(const struct capacities *c, size_t config, FILE *out) {
    const char *system = c->configs[config].values[0], *near = released_at(c, config)->near;
    fprintf(out, "%-13s%s: no released program is configured so; ", "design", system);
    if (near[0] == '\0') {
        fputs("none that is published is near\n", out);
        return;
    }
    const char *own = cmd_text(capacity_search(c, config, 0)->summary, "model");
    const char *its = model_of(c, near);
    const bool is_another = says_model(c) && its != NULL && strcmp(own, its) != 0;
    fprintf(out, "the nearest that is published: %s%s%s%s\n", near, is_another ? ", of " : "",
            is_another ? its : "", is_another ? ", another model (--model is one for both)" : "");
}

/* Of each system that has a fleet once: how it is started, or that no program is. */
static void print_released(const struct capacities *c, FILE *out) {
    for (size_t i = 0; i < c->found.n_configs; i++) {
        const struct released *r = released_at(c, i);
        const char *system = c->configs[i].values[0];
        const bool is_new = is_first_of_system(c, i);
        if (!isfinite(fleet_size(c, i))) {
            continue;
        }
        if (!r->is_published && is_new) {
            print_design(c, i, out);
        } else if (r->command[0] != '\0') {
            const double size = fleet_size(c, i);
            fprintf(out, "%-13s%s: %s, %.0f replica%s%s: %s%s%s\n", "started", c->configs[i].label,
                    r->program, size, size > 1 ? "s" : "", size > 1 ? ", each by" : " by",
                    r->command, r->file[0] != '\0' ? "; " : "", r->file);
        } else if (r->is_published && is_new) {
            fprintf(out, "%-13s%s: no command is known that starts %s as a server\n", "published",
                    system, r->program[0] != '\0' ? r->program : "its authors' code");
        }
    }
}

void fleet_print(const struct capacities *c, FILE *out) {
    struct cautions cautions = {0};
    char why[1200], note[SPREAD_NOTE_CHARS];
    capacity_print_head(c, out);
    struct table *table = make_table(c);
    table_print(table, out);
    table_close(table);
    fprintf(out,
            "\nreplicas: the fewest with which every seed meets the objectives at %.6g requests/s; "
            "objectives' values are means over seeds, each with the fewest replicas that it needs\n"
            "one fewer misses: what one replica fewer would not meet; limit: what holds it back; "
            "cannot tell: the run does not tell whether it keeps up\n"
            "is: a design of a paper or of ours, or a published program; %srequests: as many as it "
            "took until the answer no longer moved; cheapest *: of its kind\n",
            c->found.fleet_req_s, c->prices != NULL ? "$/1000: for 1,000 requests; " : "");
    if (capacity_most_samples(c) > 1) {
        fprintf(out, "± and (to): %s\n", spread_note(capacity_most_samples(c), note));
    }
    for (size_t i = 0; i < c->found.n_configs; i++) {
        why_none(c, i, why, sizeof why);
        if (why[0] != '\0') {
            fprintf(out, "%-13s%s: %s\n", "note", c->configs[i].label, why);
        }
        if (capacity_state(c, i) != CAPACITY_FAILED) {
            struct warnings warnings = capacity_warnings(c, i);
            cautions_add(&cautions, c->configs[i].label, &warnings);
        }
    }
    print_released(c, out);
    cautions_print(&cautions, out);
}

/* ---- JSON ---- */

static json_t *config_json(const struct capacities *c, size_t i) {
    const struct released *r = released_at(c, i);
    json_t *object = capacity_config_json(c, i), *seeds = json_array();
    struct spread cost = fleet_cost_spread(c, i);
    struct warnings warnings = capacity_warnings(c, i);
    char text[1200];
    for (size_t s = 0; s < c->found.n_seeds; s++) {
        const struct search *search = capacity_search(c, i, s);
        json_t *seed = capacity_search_json(c, search);
        json_object_set_new(
            seed, "replicas",
            number_json(search->state == CAPACITY_FOUND ? search->met.replicas : (double)NAN));
        json_object_set_new(seed, "requests", json_integer((json_int_t)search->n_requests));
        json_array_append_new(seeds, seed);
    }
    json_object_set_new(object, "is", json_string(kind_of(c, i)));
    json_object_set_new(object, "state", json_string(capacity_state_words[capacity_state(c, i)]));
    json_object_set_new(object, "replicas", number_json(fleet_size(c, i)));
    json_object_set_new(object, "gpus", number_json(gpus_of(c, i)));
    json_object_set_new(object, "cost", number_json(fleet_cost(c, i)));
    json_object_set_new(object, "cost_by_seed", spread_json(&cost));
    json_object_set_new(object, "dollars_per_1000_requests",
                        number_json(c->prices != NULL
                                        ? fleet_cost(c, i) / 3.6 / c->found.fleet_req_s
                                        : (double)NAN));
    json_object_set_new(object, "cheapest", json_boolean(is_cheapest(c, i)));
    capacity_limits(c, i, text, sizeof text);
    json_object_set_new(object, "limit", capacity_text_json(text));
    capacity_missed(c, i, text, sizeof text);
    json_object_set_new(object, "one_fewer_misses", capacity_text_json(text));
    why_none(c, i, text, sizeof text);
    json_object_set_new(object, "note", capacity_text_json(text));
    json_object_set_new(object, "released",
                        json_pack("{s:o, s:o, s:o, s:o}", "program", capacity_text_json(r->program),
                                  "command", capacity_text_json(r->command), "file",
                                  capacity_text_json(r->file), "nearest",
                                  capacity_text_json(r->near)));
    json_object_set_new(object, "by_seed", seeds);
    json_object_set_new(object, "warnings", caution_json(&warnings));
    return object;
}

json_t *fleet_json(const struct capacities *c) {
    return json_pack(
        "{s:s, s:f, s:o, s:I, s:s, s:o}", "workload", c->configs[0].asked.request.workload,
        "rate_req_s", c->found.fleet_req_s, "objectives", capacity_objectives_json(c), "seeds",
        (json_int_t)c->found.n_seeds, "cost_unit", c->prices != NULL ? "USD/h" : "GPUs",
        "configurations", capacity_configs_json(c, config_json));
}
