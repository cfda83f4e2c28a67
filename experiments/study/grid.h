/* A figure's grid: systems x workloads x values of one axis, run on threads; or what is computed.
 *
 * The specification is an INI file of experiments/figures; every point is one simulated run with
 * its own system, workload and clock, so the results do not depend on the number of threads. */
#ifndef UNMASK_EXPERIMENTS_STUDY_GRID_H
#define UNMASK_EXPERIMENTS_STUDY_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/paper.h"
#include "experiments/cli/words.h"
#include "experiments/study/measured.h"
#include "experiments/study/point.h"
#include "sim/base/config.h"

/* The first three run systems; memory figures only compute: of systems, of models over the context,
 * of models over the share of masked tokens. Three ask what `unmask plan lmax` answers: the
 * longest canvas over the prompt's share, peak over average and what an allocator reserves beyond
 * what is in use over the canvas. Then decode processes rolled out: what they run per decoded
 * token, how many tokens their steps decode, how many under each decoder of dInfer; and FOCUS's
 * bound on evicting what was decodable. Then
 * what a real server was asked for, replayed (experiments/server/server.h); and raw measurements
 * that lie in the repository; and what a layer computes, by the tokens of a step. */
enum grid_kind {
    GRID_BARS,
    GRID_LINES,
    GRID_JITTER,
    GRID_MEMORY,
    GRID_CONTEXT,
    GRID_MASKS,
    GRID_LMAX,
    GRID_PAR,
    GRID_INFLATION,
    GRID_DECODE,
    GRID_STEPS,
    GRID_DECODERS,
    GRID_EVICTION,
    GRID_SERVER,
    GRID_MEASURED,
    GRID_WORK,
};
enum { FIGURE_MOST_SEEDS = 64 };
enum grid_axis { AXIS_RATE, AXIS_INPUT, AXIS_OUTPUT, AXIS_BATCH, AXIS_BLOCK };

struct grid {
    char name[GRID_WORD], title[192], paper[GRID_WORD], gpu[32], paper_gpu[32];
    enum grid_kind kind;
    enum grid_axis axis;
    struct words sources, systems, labels, workloads, workload_labels, rates, values, x_names;
    struct words metrics, gpus, models, processes;
    /* Of runs: the model instead of the systems' own, and as the paper calls it where its rows are
     * of several; keys of all systems, KEY=VALUE, and one more for each workload or nothing. */
    char model[GRID_WORD], paper_model[GRID_WORD];
    struct words sets, workload_sets;
    struct words calibration; /* of runs: the rows, "DATASET QUANTITY", that their processes fit */
    char declared[96];        /* what the reading contains that counts; "": the first of a row's */
    enum paper_role role;     /* counted, or appendix: none of its rows is counted */
    /* Of the canvas kinds: what each system is in the paper; what a prompt's share may be of. */
    struct words paper_systems, share_of;
    char requests_of[160]; /* of GRID_SERVER: the file of the requests it was measured with */
    struct words before;   /* of the inflation: canvases that ran before, as shares of this one */
    char share[16];        /* of the prompt, where the axis is the canvas */
    /* Of GRID_MEASURED where it names GPUs: its step times are priced (priced.h), of these shares
     * of the prompt, in these numbers of chunks or, without, as the systems search for them. */
    struct words shares, counts;
    uint64_t context_tokens; /* of GRID_MASKS and GRID_WORK */
    uint64_t multiple_of;    /* of the canvas kinds: their canvases are; 0: as lmax has it */
    size_t baseline;         /* index into systems */
    uint64_t seed, requests;
    size_t n_seeds; /* of runs: each point under so many, from `seed` on; 1 */
    size_t n_x;
    double x[GRID_MOST];
    struct measured measured; /* of GRID_MEASURED */
};

struct grid_results {
    struct point *points;             /* [system][workload][x]; NULL where nothing is run */
    struct point *runs;               /* [system][workload][x][seed], whose means points are */
    struct canvas *canvases;          /* canvases.h; NULL for other kinds */
    struct rollout *rollouts;         /* decode_numbers.h; NULL for other kinds */
    struct measured_values *measured; /* measured.h; NULL for other kinds */
};

/* Read the specification; `name` becomes the stem of the figure's files. */
int grid_load(const char *path, const char *name, struct grid *grid, struct err *err);

/* Whether the kind asks for canvases; whether it rolls out decode processes. */
bool grid_asks_lmax(const struct grid *grid);
bool grid_rolls_out(const struct grid *grid);

/* Run every point on `n_threads` threads; `done` may be NULL and is called from any of them. */
int grid_run(const struct grid *grid, unsigned n_threads, void (*done)(void *state), void *state,
             struct grid_results *results, struct err *err);
void grid_results_fini(struct grid_results *results);

size_t grid_n_points(const struct grid *grid); /* pieces of work; 0 where nothing is run */
bool grid_runs(const struct grid *grid);       /* whether the kind runs systems */
/* The runs of one point, one a seed. */
const struct point *grid_seeds(const struct grid *grid, const struct grid_results *results,
                               size_t system, size_t workload, size_t x);
const struct point *grid_point(const struct grid *grid, const struct grid_results *results,
                               size_t system, size_t workload, size_t x);

#endif
