/* The canvases of a figure: what `unmask plan lmax` answers for each of its systems, GPUs and
 * models, under each reading of the prompt's share, at each value of the axis. */
#ifndef UNMASK_EXPERIMENTS_STUDY_CANVASES_H
#define UNMASK_EXPERIMENTS_STUDY_CANVASES_H

#include "experiments/study/grid.h"
#include "sim/serve/lmax.h"

/* The longest that fits, or the one asked for; all NaN where none does. */
struct canvas {
    double tokens;
    double par;       /* peak over average of what is in use */
    double inflation; /* reserved over in use, less 1, without a limit to memory */
};

/* One piece is a system on a GPU with a model. */
size_t canvases_n_pieces(const struct grid *grid);

/* malloc'd. As grid_run: `done` after every piece, from any thread. */
int canvases_find(const struct grid *grid, unsigned n_threads, void (*done)(void *state),
                  void *state, struct canvas **out, struct err *err);

/* Which of a figure's canvases; all are indices into its lists. */
struct canvas_place {
    size_t system, gpu, model, share_of, x;
};
const struct canvas *canvases_at(const struct grid *grid, const struct grid_results *results,
                                 struct canvas_place place);

#endif
