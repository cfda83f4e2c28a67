#include "experiments/study/canvases.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/sweep/thread_pool.h"
#include "sim/base/num.h"

struct effort {
    const struct grid *grid;
    struct canvas *canvases; /* [system][gpu][model][share_of][x] */
    struct err *errs;        /* one a piece */
    void (*done)(void *state);
    void *state;
};

size_t canvases_n_pieces(const struct grid *grid) {
    return grid->systems.n * grid->gpus.n * grid->models.n;
}

static int find(const struct effort *effort, const struct system *system, size_t share_of, size_t x,
                struct canvas *out, struct err *err) {
    const struct grid *grid = effort->grid;
    struct lmax lmax;
    struct lmax_request request = {.system = system,
                                   .prompt_share = grid->x[x],
                                   .share_of =
                                       (enum share_of)share_of_index(grid->share_of.word[share_of]),
                                   .granule_tokens = (uint32_t)grid->multiple_of};
    if (grid->kind != GRID_LMAX) {
        num_f64(grid->share, &request.prompt_share);
        request.canvas_tokens = (uint32_t)grid->x[x];
    }
    for (size_t i = 0; i < grid->before.n; i++) {
        num_f64(grid->before.word[i], &request.before[request.n_before++]);
    }
    int status = lmax_find(&request, &lmax, err);
    if (status == 0) {
        *out = (struct canvas){.tokens = lmax.longest.canvas_tokens,
                               .par = lmax.longest.par,
                               .inflation = lmax_inflation(&lmax.longest)};
    } else if (err->kind == ERR_WORLD) {
        *out = (struct canvas){NAN, NAN, NAN}; /* it does not fit */
        *err = (struct err){0};
        status = 0;
    }
    return status;
}

static void find_piece(void *opaque, size_t index) {
    struct effort *effort = opaque;
    const struct grid *grid = effort->grid;
    struct err *err = &effort->errs[index];
    size_t n = grid->share_of.n * grid->n_x;
    struct system_request request = {
        .system = grid->systems.word[index / grid->models.n / grid->gpus.n],
        .gpu = grid->gpus.word[index / grid->models.n % grid->gpus.n],
        .model = grid->models.word[index % grid->models.n],
        .roofline = true,
    };
    struct system *system = NULL;
    int status = system_open(&request, &system, err);
    for (size_t i = 0; status == 0 && i < n; i++) {
        status = find(effort, system, i / grid->n_x, i % grid->n_x,
                      &effort->canvases[index * n + i], err);
    }
    system_close(system);
    if (effort->done != NULL) {
        effort->done(effort->state);
    }
}

int canvases_find(const struct grid *grid, unsigned n_threads, void (*done)(void *state),
                  void *state, struct canvas **out, struct err *err) {
    size_t n = canvases_n_pieces(grid);
    struct effort effort = {
        .grid = grid,
        .canvases = calloc(n * grid->share_of.n * grid->n_x + 1, sizeof *effort.canvases),
        .errs = calloc(n + 1, sizeof *effort.errs),
        .done = done,
        .state = state};
    ASSERT(effort.canvases != NULL && effort.errs != NULL);
    thread_pool_run(n, n_threads, find_piece, &effort);
    for (size_t i = 0; i < n && err->kind == ERR_NONE; i++) {
        *err = effort.errs[i]; /* the earliest failure, whatever thread met it first */
    }
    free(effort.errs);
    if (err->kind != ERR_NONE) {
        free(effort.canvases);
        effort.canvases = NULL;
    }
    *out = effort.canvases;
    return (int)err->kind;
}

const struct canvas *canvases_at(const struct grid *grid, const struct grid_results *results,
                                 struct canvas_place place) {
    size_t piece = (place.system * grid->gpus.n + place.gpu) * grid->models.n + place.model;
    return &results->canvases[(piece * grid->share_of.n + place.share_of) * grid->n_x + place.x];
}
