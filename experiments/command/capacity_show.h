/* What `unmask capacity` found: table, JSON, figure and the list of runs. */
#ifndef UNMASK_EXPERIMENTS_COMMAND_CAPACITY_SHOW_H
#define UNMASK_EXPERIMENTS_COMMAND_CAPACITY_SHOW_H

#include "analysis/spread.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/table.h"
#include "experiments/study/capacity.h"

enum { CAPACITY_MOST_CONFIGS = 128, CAPACITY_MOST_AXES = 8 };

/* One configuration; the caller fills the first group, capacity_settle the second. */
struct configuration {
    struct asked asked;
    char label[192]; /* "dllm-serve replicas=2" */
    const char *values[CAPACITY_MOST_AXES];
    double price; /* of a GPU: dollars an hour, or 1 */

    struct spread capacity, ratio, difference; /* to the first configuration; over seeds */
    uint32_t gpus;
    double cost; /* GPUs, or dollars an hour; NaN: not known */
    bool is_on_front;
};

/* What is asked of each and what came out. */
struct capacities {
    struct capacity found;
    struct objectives objectives;
    struct configuration *configs;
    const char *axes[CAPACITY_MOST_AXES]; /* what varies, as headings: "system", "replicas" */
    size_t n_axes;
    const char *prices; /* "l40s=0.8,h100=2.5" dollars an hour; NULL: cost is in GPUs */
};

/* How many runs the seeds of a configuration are: 1 where no seed draws anything. */
size_t capacity_samples(const struct capacities *c, size_t config);

/* Over the seeds' values of an objective's term, of attainment (`which` after the terms) or of
 * another number: shares have the interval of as many requests as they are of. */
struct spread capacity_spread(const struct capacities *c, size_t config, size_t which,
                              const double *values);
size_t capacity_most_samples(const struct capacities *c); /* of any configuration */

/* The capacity over seeds, its cost, and which configurations are Pareto-optimal in cost and rate.
 */
void capacity_settle(struct capacities *c);

/* Whether some search knows what its cards drew. */
bool capacity_knows_energy(const struct capacities *c);

/* Warns at the first configuration whose prices are of another source than those of the first one
 * that ran. */
void capacity_warn_of_prices(const struct capacities *c, size_t config, struct warnings *out);

/* What fleets have of it: one configuration's searches, and the cells and lines that are made of
 * them. */
const struct search *capacity_search(const struct capacities *c, size_t config, size_t seed);
enum capacity_state capacity_state(const struct capacities *c,
                                   size_t config); /* the worst seed's */
struct spread capacity_at_met(const struct capacities *c, size_t config, size_t which);
void capacity_limits(const struct capacities *c, size_t config, char *text, size_t size);
void capacity_missed(const struct capacities *c, size_t config, char *text, size_t size);
void capacity_cell(struct table *table, const struct spread *spread, const char *form, double scale,
                   const char *mark);
const char *capacity_common(const struct capacities *c, const char *key);
struct warnings capacity_warnings(const struct capacities *c, size_t config);
void capacity_print_head(const struct capacities *c, FILE *out);
json_t *capacity_search_json(const struct capacities *c, const struct search *search);
json_t *capacity_text_json(const char *text); /* null where it is empty */
json_t *capacity_config_json(const struct capacities *c,
                             size_t config); /* its values on the axes, and what it is of */
json_t *capacity_objectives_json(const struct capacities *c);
json_t *capacity_configs_json(const struct capacities *c,
                              json_t *(*one)(const struct capacities *c, size_t config));

/* The same of `capacity --rate`: how many replicas the rate takes, what they cost, and how released
 * programs are started so. Refuses where no fleet meets the objectives. */
int fleet_check(const struct capacities *c, struct err *err);
void fleet_print(const struct capacities *c, FILE *out);
json_t *fleet_json(const struct capacities *c);

/* The fewest replicas with which every seed meets the objectives, and what they cost: dollars an
 * hour, or GPUs where no price is known; NaN: there are none. The spread is of what each seed's
 * fewest replicas cost. */
double fleet_size(const struct capacities *c, size_t config);
double fleet_cost(const struct capacities *c, size_t config);
struct spread fleet_cost_spread(const struct capacities *c, size_t config);

/* STEM.svg, .png, .pdf and .csv: bars of cost and replicas, a group for each configuration. */
int fleet_draw(const struct capacities *c, const char *stem, struct err *err);

void capacity_print(const struct capacities *c, FILE *out);
json_t *capacity_json(const struct capacities *c);

/* STEM.svg, .png, .pdf and .csv: the objectives' values, attainment and its rate over the rate
 * offered, and capacity over cost. */
int capacity_draw(const struct capacities *c, const char *stem, struct err *err);

/* As CSV, one line for each rate kept: the capacity, the lowest rate missed and those around. */
int capacity_write_rates(const struct capacities *c, const char *path, struct err *err);

/* A column for each objective that is a time. */
void capacity_objectives(struct table *table, const struct capacities *c);

#endif
