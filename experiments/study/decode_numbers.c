#include "experiments/study/decode_numbers.h"

#include <stdlib.h>

#include "experiments/sweep/thread_pool.h"
#include "sim/base/datadir.h"
#include "sim/base/num.h"

enum { N_REQUESTS = 200 }; /* of eight blocks each */

const char *const decode_rule_names[N_DECODE_RULES] = {
    "block diffusion, 0.9", "DC+, 0.9", "block diffusion, 0.8", "FOCUS, 0.9", "FOCUS, 0.8",
};

size_t decode_n_numbers(const struct grid *grid) {
    size_t each = grid->kind == GRID_DECODE     ? (size_t)N_DECODE_SHAPES * N_DECODE_RULES
                  : grid->kind == GRID_DECODERS ? 2 * (size_t)N_DINFER_DECODERS
                                                : grid->n_x;
    return grid->processes.n * each;
}

/* `temperature` is Table 5's or Figure 2's, whichever the process goes by. */
static struct rollout_rule rule_of(const struct grid *grid, size_t index, double temperature) {
    struct rollout_rule rule = decode_plain(0.9F, grid->kind == GRID_STEPS ? 1 : temperature);
    if (grid->kind == GRID_STEPS) {
        rule.block_tokens = (uint32_t)grid->x[index % grid->n_x];
        return rule;
    }
    if (grid->kind == GRID_DECODERS) {
        return dinfer_rule((enum dinfer_decoder)(index % N_DINFER_DECODERS));
    }
    switch ((enum decode_setup)(index % N_DECODE_RULES)) {
    case RULE_PLAIN_08:
        return decode_plain(0.8F, temperature);
    case RULE_NEIGHBOUR_09:
        rule.cache = BLOCK_NEIGHBOUR;
        return rule;
    case RULE_FOCUS_09:
        return decode_focus(0.9F, temperature);
    case RULE_FOCUS_08:
        return decode_focus(0.8F, temperature);
    default:
        rule.ranks = true;
        return rule;
    }
}

struct effort {
    const struct grid *grid;
    const struct decode_process *processes; /* one a piece */
    struct rollout *rollouts;
    void (*done)(void *state);
    void *state;
};

static void roll_index(void *opaque, size_t index) {
    struct effort *effort = opaque;
    size_t each = decode_n_numbers(effort->grid) / effort->grid->processes.n;
    double temperature = decode_temperature_of(effort->grid->processes.word[index / each]);
    struct rollout_rule rule = rule_of(effort->grid, index, temperature);
    effort->rollouts[index] =
        decode_sample(&effort->processes[index], effort->grid->seed, &rule, N_REQUESTS);
    if (effort->done != NULL) {
        effort->done(effort->state);
    }
}

/* How much less sure a model is over stale rows of a cache. */
static int stale_drop(double *drop, struct err *err) {
    struct config calibrated;
    char path[1024];
    int status =
        config_read(data_path(path, sizeof path, "experiments/calibrated.ini"), &calibrated, err);
    if (status != 0) {
        return status;
    }
    const struct config_entry *entry = config_find(&calibrated, "stale_cache", "value");
    if (entry == NULL || !num_f64(entry->value, drop)) {
        status = err_world(err, "%s has no number [stale_cache] value", path);
    }
    config_fini(&calibrated);
    return status;
}

int decode_numbers(const struct grid *grid, unsigned n_threads, void (*done)(void *state),
                   void *state, struct rollout **out, struct err *err) {
    size_t n = decode_n_numbers(grid), each = n / grid->processes.n;
    struct decode_process *processes = calloc(n, sizeof *processes);
    struct effort effort = {.grid = grid,
                            .processes = processes,
                            .rollouts = calloc(n, sizeof *effort.rollouts),
                            .done = done,
                            .state = state};
    ASSERT(processes != NULL && effort.rollouts != NULL);
    double drop = 0;
    int status = grid->kind == GRID_DECODERS ? stale_drop(&drop, err) : 0;
    for (size_t i = 0; i < n && status == 0; i++) {
        char name[2 * GRID_WORD];
        bool fitted = grid->kind == GRID_DECODE && i % each >= N_DECODE_RULES;
        decode_process_name(grid->processes.word[i / each], fitted ? SHAPE_FITTED : SHAPE_ASSUMED,
                            name, sizeof name);
        status = decode_process_find(name, &processes[i], err);
        bool is_cached = grid->kind == GRID_DECODERS && i % each >= N_DINFER_DECODERS;
        processes[i].location -= is_cached ? drop : 0;
    }
    if (status == 0) {
        thread_pool_run(n, n_threads, roll_index, &effort);
        *out = effort.rollouts;
    } else {
        free(effort.rollouts);
    }
    free(processes);
    return status;
}

const struct rollout *decode_number(const struct grid_results *results, size_t process,
                                    enum decode_shape shape, enum decode_setup rule) {
    return &results->rollouts[(process * N_DECODE_SHAPES + shape) * N_DECODE_RULES + rule];
}

const struct rollout *decode_under(const struct grid_results *results, size_t process,
                                   enum dinfer_decoder decoder, bool is_cached) {
    size_t place = (size_t)decoder + (is_cached ? N_DINFER_DECODERS : 0);
    return &results->rollouts[process * 2 * N_DINFER_DECODERS + place];
}

const struct rollout *decode_steps(const struct grid *grid, const struct grid_results *results,
                                   size_t process, size_t x) {
    return &results->rollouts[process * grid->n_x + x];
}
