/* ILP: the integer program for an outside solver, as a yardstick that shares no code with ours.
 *
 * The usual disjunctive form (Steiner et al., "OLLA", arXiv 2210.12924): an offset for every
 * buffer, the peak to minimize above all ends, and for every two buffers live at the same time one
 * binary that says which lies below. Sizes are counted in units, a common divisor of them all; the
 * bound on the peak that switches a disjunction off comes from the portfolio planner. The solver's
 * offsets carry rounding errors, so only their order counts: the buffers are placed anew in that
 * order, which pushes each down and is exact. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/base/num.h"
#include "sim/planner/planner_order.h"

extern char **environ;

enum { LINE_CHARS = 512, PATH_CHARS = 256 };

struct program {
    const struct packing *packing;
    int64_t unit_bytes;
    int64_t most_units; /* an upper bound of the peak */
    int64_t least_units;
    uint32_t *order, *by_offset;
    double *units; /* the solver's offset of each buffer */
    double peak_units;
    bool has_peak;
    char folder[PATH_CHARS], model[PATH_CHARS + 16], solution[PATH_CHARS + 16];
};

static size_t lay_out(struct program *p, uint32_t n, void *memory) {
    struct scratch scratch = {memory, 0};
    SCRATCH_TAKE(&scratch, p->units, n);
    SCRATCH_TAKE(&scratch, p->order, n);
    SCRATCH_TAKE(&scratch, p->by_offset, n);
    return scratch.taken_bytes;
}

static size_t scratch_bytes(const struct packing *packing) {
    struct program p;
    return lay_out(&p, packing->n_buffers, NULL) + plan_portfolio_scratch_bytes(packing);
}

/* ---- the model ---- */

static int64_t units(const struct program *p, int64_t bytes) {
    return bytes / p->unit_bytes;
}

/* o7 counts steps of buffer 7's alignment where that is more than a unit. */
static int64_t step(const struct program *p, uint32_t buffer) {
    int64_t step_units = units(p, p->packing->buffers[buffer].align_bytes);
    return step_units > 1 ? step_units : 1;
}

static bool is_pair(const struct program *p, uint32_t a, uint32_t b) {
    const struct packing_buffer *buffers = p->packing->buffers;
    return buffers[a].bytes > 0 && buffers[b].bytes > 0 &&
           packing_live_together(&buffers[a], &buffers[b]);
}

static void write_constraints(const struct program *p, FILE *out) {
    const struct packing_buffer *buffers = p->packing->buffers;
    for (uint32_t a = 0; a < p->packing->n_buffers; a++) {
        if (buffers[a].bytes == 0) {
            continue;
        }
        int64_t a_units = units(p, buffers[a].bytes), a_step = step(p, a);
        fprintf(out, " %" PRId64 " o%" PRIu32 " - peak <= -%" PRId64 "\n", a_step, a, a_units);
        for (uint32_t b = 0; b < a; b++) {
            if (!is_pair(p, a, b)) {
                continue;
            }
            int64_t b_units = units(p, buffers[b].bytes), b_step = step(p, b);
            fprintf(out,
                    " %" PRId64 " o%" PRIu32 " - %" PRId64 " o%" PRIu32 " + %" PRId64 " b%" PRIu32
                    "_%" PRIu32 " <= %" PRId64 "\n",
                    a_step, a, b_step, b, p->most_units, a, b, p->most_units - a_units);
            fprintf(out,
                    " %" PRId64 " o%" PRIu32 " - %" PRId64 " o%" PRIu32 " - %" PRId64 " b%" PRIu32
                    "_%" PRIu32 " <= -%" PRId64 "\n",
                    b_step, b, a_step, a, p->most_units, a, b, b_units);
        }
    }
}

static void write_program(const struct program *p, FILE *out) {
    fprintf(out, "Minimize\n obj: peak\nSubject To\n");
    write_constraints(p, out);
    fprintf(out, "Bounds\n %" PRId64 " <= peak <= %" PRId64 "\n", p->least_units, p->most_units);
    fprintf(out, "Generals\n");
    for (uint32_t a = 0; a < p->packing->n_buffers; a++) {
        if (p->packing->buffers[a].bytes > 0 && step(p, a) > 1) {
            fprintf(out, " o%" PRIu32 "\n", a);
        }
    }
    fprintf(out, "Binaries\n");
    for (uint32_t a = 0; a < p->packing->n_buffers; a++) {
        for (uint32_t b = 0; b < a; b++) {
            if (is_pair(p, a, b)) {
                fprintf(out, " b%" PRIu32 "_%" PRIu32 "\n", a, b);
            }
        }
    }
    fprintf(out, "End\n");
}

static int write_file(const struct program *p, struct err *err) {
    FILE *out = fopen(p->model, "w");
    if (out == NULL) {
        return err_world(err, "%s: %s", p->model, strerror(errno));
    }
    write_program(p, out);
    bool failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    return failed ? err_world(err, "%s: cannot be written: %s", p->model, strerror(errno)) : 0;
}

/* ---- the solver ---- */

static int start(const char *solver, char *const *arguments, pid_t *child) {
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(child, solver, &quiet, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&quiet);
    return failed;
}

/* cbc takes its commands as arguments; any other solver is run as SOLVER MODEL SOLUTION. */
static int run_solver(struct program *p, const struct plan_request *request, struct err *err) {
    const char *solver = request->solver != NULL ? request->solver : "cbc";
    const char *slash = strrchr(solver, '/');
    bool is_cbc = strcmp(slash == NULL ? solver : slash + 1, "cbc") == 0;
    uint64_t max_nodes = request->max_nodes > 0 ? request->max_nodes : PLAN_DEFAULT_NODES;
    char name[PATH_CHARS], nodes[24];
    snprintf(name, sizeof name, "%s", solver);
    snprintf(nodes, sizeof nodes, "%" PRIu64, max_nodes < INT32_MAX ? max_nodes : INT32_MAX);
    char *const for_cbc[] = {name,     p->model,    "-maxNodes", nodes,
                             "-solve", "-solution", p->solution, NULL};
    char *const for_any[] = {name, p->model, p->solution, NULL};
    pid_t child;
    int failed = start(solver, is_cbc ? for_cbc : for_any, &child), status = 0;
    if (failed == ENOENT) {
        return err_world(err,
                         "planner ilp needs a solver of integer programs, but '%s' is not on the "
                         "PATH: install coinor-cbc or name a program with --solver",
                         solver);
    }
    if (failed != 0) {
        return err_world(err, "the solver '%s' does not start: %s", solver, strerror(failed));
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
        return err_world(err, "the solver '%s' was ended by signal %d", solver, WTERMSIG(status));
    }
    if (WEXITSTATUS(status) != 0) {
        return err_world(err, "the solver '%s' failed with exit status %d", solver,
                         WEXITSTATUS(status));
    }
    return 0;
}

/* ---- its answer ---- */

/* Take what a line says of a variable: "o12 3.5" from plain solvers, cbc writes an index before and
 * the reduced cost behind. */
static void read_line(struct program *p, char *line) {
    char *rest = NULL;
    const char *name = NULL;
    for (char *word = strtok_r(line, " \t", &rest); word != NULL;
         word = strtok_r(NULL, " \t", &rest)) {
        uint64_t buffer;
        double value;
        if (name == NULL) {
            name = word[0] == 'o' || word[0] == 'p' ? word : NULL;
        } else if (num_f64(word, &value)) {
            if (strcmp(name, "peak") == 0) {
                p->peak_units = value;
                p->has_peak = true;
            } else if (num_u64(name + 1, p->packing->n_buffers - 1, &buffer)) {
                p->units[buffer] = value * (double)step(p, (uint32_t)buffer);
            }
            return;
        }
    }
}

/* Offsets that are not mentioned are 0; the peak must be. */
static int read_solution(struct program *p, bool *is_optimal, struct err *err) {
    FILE *in = fopen(p->solution, "r");
    char line[LINE_CHARS], first[LINE_CHARS] = "";
    if (in == NULL) {
        return err_world(err, "the solver of planner ilp has written no solution");
    }
    memset(p->units, 0, p->packing->n_buffers * sizeof p->units[0]);
    while (fgets(line, sizeof line, in) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (first[0] == '\0') {
            memcpy(first, line, sizeof first);
        }
        read_line(p, line);
    }
    fclose(in);
    *is_optimal = strncasecmp(first, "optimal", strlen("optimal")) == 0;
    if (!p->has_peak || strstr(first, "no integer solution") != NULL ||
        strncasecmp(first, "infeasible", strlen("infeasible")) == 0) {
        return err_world(err, "the solver of planner ilp has found no plan; it says '%.200s'",
                         first);
    }
    return 0;
}

static bool lies_below(const void *state, uint32_t a, uint32_t b) {
    const struct program *p = state;
    return p->units[a] != p->units[b] ? p->units[a] < p->units[b] : a < b;
}

static int take_solution(struct program *p, struct plan *plan, struct err *err) {
    bool is_optimal;
    int status = read_solution(p, &is_optimal, err);
    if (status != 0) {
        return status;
    }
    uint32_t n = p->packing->n_buffers;
    for (uint32_t i = 0; i < n; i++) {
        p->order[i] = i;
    }
    order_sort(p->order, n, lies_below, p);
    int64_t peak = order_place(p->packing, p->order, GAP_LOWEST, p->by_offset, plan->offset_bytes);
    if ((double)units(p, peak) > p->peak_units + 0.5) {
        return err_world(
            err, "the offsets of planner ilp's solver end at %" PRId64 " units, its peak is %.10g",
            units(p, peak), p->peak_units);
    }
    if (is_optimal) {
        plan->proven_bound_bytes = peak;
    }
    plan->stopped = !is_optimal;
    return 0;
}

/* ---- all together ---- */

static int make_folder(struct program *p, struct err *err) {
    const char *parent = getenv("TMPDIR");
    snprintf(p->folder, sizeof p->folder, "%s/unmask-ilp-XXXXXX",
             parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    if (mkdtemp(p->folder) == NULL) {
        return err_world(err, "%s: cannot be made: %s", p->folder, strerror(errno));
    }
    snprintf(p->model, sizeof p->model, "%s/model.lp", p->folder);
    snprintf(p->solution, sizeof p->solution, "%s/solution.txt", p->folder);
    return 0;
}

static int solve(const struct plan_request *request, void *memory, struct plan *plan,
                 struct err *err) {
    struct program p = {.packing = request->packing};
    size_t taken = lay_out(&p, p.packing->n_buffers, memory);
    p.unit_bytes = packing_granule(p.packing);
    if (p.unit_bytes == 0) {
        return 0; /* nothing has bytes */
    }
    plan_portfolio(request, (char *)memory + taken, plan, err);
    p.most_units = units(&p, offsets_peak(p.packing, plan->offset_bytes));
    p.least_units = units(&p, plan->lower_bound_bytes);
    int status = make_folder(&p, err);
    if (status != 0) {
        return status;
    }
    status = write_file(&p, err);
    status = status == 0 ? run_solver(&p, request, err) : status;
    status = status == 0 ? take_solution(&p, plan, err) : status;
    unlink(p.model);
    unlink(p.solution);
    rmdir(p.folder);
    return status;
}

const struct planner planner_ilp = {
    .name = "ilp",
    .doc = "the integer program, solved by another program (cbc)",
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
