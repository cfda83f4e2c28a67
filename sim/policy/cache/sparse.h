/* What the two sparse cache policies share: when they select, and how much they keep.
 *
 * As Sparse-dLLM and dLLM-Serve are released: the cache is built anew per block. Step 0 runs the
 * canvas and stores nothing, step `delay_steps` runs it again, scores (a row by the largest of
 * three neighbours, as both papers print) and packs the retained rows, later steps run the block
 * against them: two full passes per block, not one. With `interval_steps` this is repeated after
 * that many steps of a block (K_int of dLLM-Serve, arXiv 2512.17077, section 2.3). */
#ifndef UNMASK_SIM_POLICY_CACHE_SPARSE_H
#define UNMASK_SIM_POLICY_CACHE_SPARSE_H

#include "sim/policy/cache/renewal.h"

struct sparse_state {
    double retention;
    uint32_t delay_steps;
    uint32_t interval_steps;
};

enum { SPARSE_N_PARAMS = 3 };
extern const struct param sparse_params[SPARSE_N_PARAMS];

/* Rows kept of a context of `rows`: at least one, at most all (released code: max(1, int(r n))). */
uint32_t sparse_rows_kept(const struct sparse_state *state, uint32_t rows);

/* All but who chooses and the memory. */
uint32_t sparse_plan(const struct sparse_state *state, const struct request *request,
                     struct row_sets *rows);

/* The step in place of a renewal that is put off: the first full pass of those within a block, by
 * as many steps as lie between two. What makes up for it is one full pass, which selects. `rows`
 * has the chooser and what is held. */
uint32_t sparse_put_off(const struct sparse_state *state, const struct request *request,
                        struct row_sets *rows);

#endif
