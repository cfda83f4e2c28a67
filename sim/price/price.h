/* The cost model: what a step of a given shape costs, and the same split by operator.
 *
 * Pure: no state that changes an answer, only memories of answers. Doubles inside, int64 ns
 * outside. An operator is priced from the profile: from its own rows if there are any, otherwise
 * from those of the closest operator; without a profile by roofline. */
#ifndef UNMASK_SIM_PRICE_PRICE_H
#define UNMASK_SIM_PRICE_PRICE_H

#include <stdint.h>

#include "sim/base/err.h"
#include "sim/base/provenance.h"
#include "sim/model/gpu.h"
#include "sim/model/routing.h"
#include "sim/price/profile/profile.h"
#include "sim/price/runtime.h"
#include "sim/step/graph.h"

/* Exchanges between GPUs are bound by the link or by the latency of meeting over it. */
enum op_bound { BOUND_COMPUTE, BOUND_BANDWIDTH, BOUND_LAUNCH, BOUND_LATENCY, BOUND_LINK };
extern const char *const op_bound_names[];

/* One operator's part of a step, all its repetitions together. */
struct op_price {
    double ns, flops, bytes;
    double fp8_flops;  /* of flops, those of fp8 with fp8 */
    double compute_ns; /* of ns, what the clock stretches (stretched_ns) */
    enum op_bound bound;
    uint32_t match; /* enum profile_match or PRICE_ROOFLINE */
    enum provenance_kind kind;
    uint32_t executions;
};

/* How a price was found: enum profile_match, or by roofline where the profile has no such rows or
 * says less than the roofline allows (floor_ns in sim/price/roofline.h). */
enum { PRICE_ROOFLINE = PROFILE_EXTRAPOLATED + 1, PRICE_MATCH_COUNT };
extern const char *const price_match_words[PRICE_MATCH_COUNT];

/* The operators' part of the device time, by how it was found. What the runtime launches beyond
 * the graph is in none. */
struct price_time {
    double match_ns[PRICE_MATCH_COUNT];
    double behind_ns; /* of it, priced by the second profile */
    double link_ns;   /* of the roofline's part, priced by the model of a link (sim/price/link.h) */
};

struct step_price {
    double device_ns, host_ns, wall_ns;
    double visit_ns; /* of wall_ns: the host asks the scheduler; in host_ns it is not */
    double plan_ns;  /* of wall_ns and host_ns: the host finds chunks and a plan (cost_add_plans) */
    /* Where the profile knows the card's power, at the highest clock; else 0. */
    double compute_ns, busy_ns, flops_j, bytes_j;
    double head_ns; /* of device_ns, the output head's */
    /* Where the host loops over requests (HOST_LOOPS): their parts of device_ns and host_ns, and
     * how long the loop takes with both. */
    double loop_device_ns, loop_host_ns, loop_ns;
    double issued_ns; /* to be added to device_ns where the step is no captured graph; mostly 0 */
    uint64_t launch_key; /* of what its launches follow from, but for the longest spans */
    uint32_t lookups[PRICE_MATCH_COUNT]; /* by how each operator's price was found */
    struct price_time time;
};

/* Shares of the operators' time: each sums to 1, or to 0 where there is none. */
struct price_shares {
    double by_kind[PROVENANCE_KIND_COUNT];
    double by_match[PRICE_MATCH_COUNT];
};

struct captured;
struct cost_model;

/* `profile` may be NULL: roofline only. `behind`, which may be NULL, answers for operators whose
 * sizes `profile` has not measured. Memory-bound passes are priced by roofline too where the
 * profile has no rows of them. Everything is borrowed and must outlive the cost model. ERR_WORLD
 * when the profile lacks products, attention or experts that the graph needs. */
int cost_open(const struct gpu *gpu, const struct profile *profile, const struct profile *behind,
              const struct runtime *runtime, const struct graph *graph, struct cost_model **out,
              struct err *err);
/* The same, but operators without rows are priced by roofline (cost_shares says how much). */
int cost_open_with_gaps(const struct gpu *gpu, const struct profile *profile,
                        const struct profile *behind, const struct runtime *runtime,
                        const struct graph *graph, struct cost_model **out, struct err *err);
void cost_close(struct cost_model *cost);

/* The profile that prices what ranks exchange; NULL: the model of their link does (link.h), or
 * there is nothing to exchange. */
const struct profile *cost_collectives(const struct cost_model *cost);

/* How many operators of the graph are priced from `behind`. */
uint32_t cost_ops_behind(const struct cost_model *cost);

/* How a sum over steps was priced. */
struct price_shares cost_shares(const struct cost_model *cost, const struct price_time *time);

/* How tokens choose their experts; as random weights do until it is said. Borrowed. Before the
 * first price. */
void cost_routes(struct cost_model *cost, const struct expert_routing *routing);

/* Experts of a layer that n_tokens tokens hit, of those on the graph's rank, as prices assume;
 * NAN where prices take the measured rows', whatever their number. */
double cost_experts_hit(const struct cost_model *cost, double n_tokens);

/* Price one step whose loops come in such chunks: each is priced at its own number of rows, so that
 * its weights are read again. Never allocates. */
void cost_price(struct cost_model *cost, const struct step_shape *shape, struct chunk_rows chunks,
                struct step_price *out);

/* Adds the host time of making n_plans plans before the step runs. */
void cost_add_plans(const struct cost_model *cost, double n_plans, struct step_price *price);

/* Whether the profile has the extra time of steps that are not a captured graph. */
bool cost_knows_issued(const struct cost_model *cost);

/* Whether the next step, or those submitted at once, is not a captured graph; only then `issued` is
 * its price with the extra time of that. `captured` NULL: the profile knows no difference;
 * `page_rows` as in captured_key. */
bool cost_issue(const struct cost_model *cost, const struct step_shape *shape, uint32_t page_rows,
                struct captured *captured, const struct step_price *price,
                struct step_price *issued);

/* The profile's clock and power model: prices are those at the highest clock. NULL: it has none,
 * and prices are those at the one clock of the measurement. */
const struct power *cost_power(const struct cost_model *cost);
/* A price at the highest clock as input of power.h; wall_ns from submission to end. */
struct power_step cost_power_step(const struct step_price *price, double wall_ns);
/* A price at another clock: compute-bound time is `slowdown` times as long. */
void cost_slow(const struct cost_model *cost, const struct step_shape *shape, double slowdown,
               struct step_price *price);
/* Steps that follow one another, `n` of them without a look between them; `highest`, which is
 * borrowed, is the price of each at the highest clock. Each starts from the clock's current state.
 */
struct cost_course {
    const struct cost_model *cost;
    const struct step_shape *shape;
    const struct step_price *highest;
    bool waits_once;                  /* the host, for all n */
    double each_ns, once_ns, host_ns; /* its time: of each, its share of what is once; no look */
    struct power_course power;
};
struct cost_ran {
    double device_ns, wall_ns, work_joules;
};
void cost_course_begin(const struct cost_model *cost, const struct step_shape *shape, uint32_t n,
                       const struct step_price *highest, struct cost_course *course);
struct cost_ran cost_course_run(const struct cost_course *course, struct power_state *clock);
/* The price at the clock that such steps settle at where they follow one another; returns the
 * slowdown, 1 where the profile has one clock. */
double cost_settle(const struct cost_model *cost, const struct step_shape *shape,
                   struct step_price *price);

/* The same by operator: out[i] belongs to graph->ops[i]; slow, for people. And of one of them. */
void cost_explain(const struct cost_model *cost, const struct step_shape *shape,
                  struct chunk_rows chunks, struct op_price out[GRAPH_MAX_OPS]);
void cost_explain_one(const struct cost_model *cost, uint32_t op, const struct step_shape *shape,
                      struct chunk_rows chunks, struct op_price *out);

/* FLOPs, those of fp8 among them counted as the bf16 ones that take as long at the peaks. */
double cost_wide_flops(const struct cost_model *cost, double flops, double fp8_flops);
/* FLOPs (cost_wide_flops) and bytes of `n_steps` steps whose symbols sum to `sym`: exact for dense
 * models, at the mean number of tokens per step for the experts a mixture reads. What chunks read
 * again is not counted. For utilisation figures. */
void cost_work(const struct cost_model *cost, const int64_t sym[SYM_COUNT], double n_steps,
               double *flops, double *bytes);

#endif
