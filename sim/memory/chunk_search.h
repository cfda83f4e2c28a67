/* The chunk search: in how many chunks the loops of a step come, so that its plan fits.
 *
 * Chunking costs time, so it is lazy (Mosaic, arXiv 2601.06562, section 4.4): a step that fits is
 * not chunked at all, and one that does not gets the fewest chunks that its peak demands. The same
 * question gets the same answer wherever it is asked. */
#ifndef UNMASK_SIM_MEMORY_CHUNK_SEARCH_H
#define UNMASK_SIM_MEMORY_CHUNK_SEARCH_H

#include "sim/memory/placement.h"

enum chunk_search {
    CHUNK_SEARCH_NONE, /* the bound on rows alone */
    /* While the plan does not fit, the kind of loop that holds its peak gets one more chunk; over
     * when it fits, or when what holds the peak is in no loop. */
    CHUNK_SEARCH_BOTTLENECK,
    CHUNK_SEARCH_BRUTE_FORCE, /* the cheapest of all combinations that fit */
    CHUNK_SEARCH_ALWAYS,      /* a given number of chunks, needed or not */
    /* Always, in as many as the longest canvas needs: of a system, which turns it into ALWAYS. */
    CHUNK_SEARCH_LONGEST,
};

/* More chunks shrink a loop by less than a thousandth. */
enum { CHUNK_MOST = 1024 };

/* How a system chunks. A loop of N rows in k chunks holds ceil(N / k) of them at once, and never
 * more than its bound, whatever is searched. */
struct chunk_rule {
    enum chunk_search search;
    struct chunk_rows bound;      /* 0: none */
    uint32_t counts[CHUNK_KINDS]; /* of CHUNK_SEARCH_ALWAYS */
    uint32_t grid; /* of CHUNK_SEARCH_BRUTE_FORCE: all combinations up to this many */
    /* Cost of a step in such chunks; called by CHUNK_SEARCH_BRUTE_FORCE alone. */
    double (*price_ns)(void *state, const struct step_shape *shape, struct chunk_rows chunks);
    void *state;
};

struct chunk_request {
    const struct chunk_rule *rule;
    const struct planner *planner; /* of the table */
    const struct graph *graph;
    const struct step_shape *shape;
    int64_t available_bytes; /* that the plan may take */
};

struct chunk_result {
    bool fits;
    uint32_t counts[CHUNK_KINDS]; /* chunks asked for, of each kind */
    uint32_t n_plans;             /* that were made to find them */
};

/* The placement found; where none fits, the last one tried. Allocates nothing. */
void chunk_place(const struct chunk_request *request, struct placement *out,
                 struct chunk_result *result);

/* Plans that Mosaic's released code (flashserve/Mosaic at 4441da1, online_searcher.py and
 * llada_model.py) makes of a step that ends in such counts: one when nothing is searched for; else
 * one for each number of chunks tried, of which the bottleneck search adds one at a time and brute
 * force has every combination, and one more of what was found. */
uint64_t chunk_released_plans(const struct chunk_request *request,
                              const uint32_t counts[CHUNK_KINDS]);

/* Whether the rule looks at the shape alone, and then what it says: no plan is needed to know. */
bool chunk_rows_given(const struct chunk_rule *rule, const struct graph *graph,
                      const struct step_shape *shape, struct chunk_rows *out);

/* ERR_WORLD for a placement that does not fit: what it needs, what is available, and the floor:
 * what is live at one time even when the loops' own tensors took no room. */
int chunk_misfit(const struct chunk_request *request, const struct placement *placement,
                 struct err *err);

#endif
