/* The rollouts of a figure: what its decode processes do under the rules that its kind compares. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DECODE_NUMBERS_H
#define UNMASK_EXPERIMENTS_STUDY_DECODE_NUMBERS_H

#include "experiments/study/dinfer_fit.h"
#include "experiments/study/grid.h"

/* Of GRID_DECODE, each with either shape; blocks of 32. */
enum decode_setup {
    RULE_PLAIN_09,
    RULE_NEIGHBOUR_09, /* DC+ */
    RULE_PLAIN_08,
    RULE_FOCUS_09,
    RULE_FOCUS_08,
    N_DECODE_RULES,
};
extern const char *const decode_rule_names[N_DECODE_RULES];

/* Of GRID_DECODERS, enum dinfer_decoder (dinfer_fit.h) without a cache and then with one, whose
 * stale rows make the model less sure (calibrated.ini, stale_cache): the assumed shape, blocks
 * of 64. One piece is a process under a rule. */
size_t decode_n_numbers(const struct grid *grid);

/* malloc'd. As grid_run: `done` after every piece, from any thread. Processes are sampled afresh,
 * by the figure's seed, not on the sample that they were fitted to. */
int decode_numbers(const struct grid *grid, unsigned n_threads, void (*done)(void *state),
                   void *state, struct rollout **out, struct err *err);

/* By index of the process; of GRID_DECODE by shape and rule, of GRID_STEPS by place on the axis. */
const struct rollout *decode_number(const struct grid_results *results, size_t process,
                                    enum decode_shape shape, enum decode_setup rule);
const struct rollout *decode_under(const struct grid_results *results, size_t process,
                                   enum dinfer_decoder decoder, bool is_cached);
const struct rollout *decode_steps(const struct grid *grid, const struct grid_results *results,
                                   size_t process, size_t x);

#endif
