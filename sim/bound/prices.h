/* Prices of passes: what each one costs at least, in whatever batch it runs.
 *
 * Let t(S) be the time of a step that runs the passes S, and S range over all batches that memory,
 * max_batched_tokens and max_requests allow. Prices p >= 0 with
 *
 *     sum of p(k) over k in S  <=  t(S)      for every such S                                  (1)
 *
 * bound every schedule: it takes at least the sum of all passes' prices, and a machine that works
 * off passes at their prices is never later (machine.h). The best prices are the dual of the
 * configuration LP, which has a variable for each S. They are found in a relaxation of it that has
 * no more than some hundred: batches are divided into cells, by the types of passes that they hold
 * and the query tokens in them, and in each cell t is bounded from below by a convex function of
 * the batch's coordinates, the sum over its parts (parts.h) of each part's lower convex hull. Then
 * (Jensen) N steps of a cell that add up to X take at least N t(X / N), so that the least of the
 * sum over cells of N t(X / N), with all passes in some cell, is a lower bound; as an LP it has the
 * hulls' segments as rows, added where a solution violates them (column generation in its dual). A
 * pass is priced by its type and linearly in the coordinates that vary within the type.
 *
 * The certificate does not rest on the solver. For each cell its dual values say which lines of the
 * hulls and which limits add up to (1); the sum is taken again, the worst batch of the cell put
 * into what is left over, and the prices are scaled so that (1) holds there too (`scale`). So (1)
 * holds for all batches as far as parts.h holds, however well or badly the LP was solved. */
#ifndef UNMASK_SIM_BOUND_PRICES_H
#define UNMASK_SIM_BOUND_PRICES_H

#include "sim/bound/parts.h"

/* Batches of one cell, as the solution has them on average. */
struct best_batch {
    double share;              /* of all steps */
    double passes[PASS_TYPES]; /* in a step, by type */
    double tokens;             /* query tokens in a step */
};
enum { BEST_BATCHES = 8 };

struct prices {
    double pass_ns[PASS_TYPES];              /* of a pass of the type, and */
    double unit_ns[PASS_TYPES][PASS_COORDS]; /* of each unit of its coordinates */
    double scale;                            /* of the solver's prices; 1 but for rounding */
    uint32_t n_cells, n_rows, n_rounds;
    /* What the relaxation runs: where a schedule that comes near the bound would spend its steps.
     * The most frequent first; those that are seldom or of further cells are left out. */
    struct best_batch best[BEST_BATCHES];
    uint32_t n_best;
};

/* ERR_WORLD where the solver finds nothing. */
int prices_find(const struct price_parts *parts, const struct pass_type types[PASS_TYPES],
                struct prices *out, struct err *err);

double price_of(const struct prices *prices, const struct pass *pass);

#endif
