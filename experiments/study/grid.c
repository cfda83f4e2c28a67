#include "experiments/study/grid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/study/canvases.h"
#include "experiments/study/decode_numbers.h"
#include "experiments/study/priced.h"
#include "experiments/sweep/thread_pool.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

/* ---- reading a specification ---- */

/* The kinds of figure that cannot do without a key, as bits. */
enum {
    OF_RUNS = 1 << GRID_BARS | 1 << GRID_LINES | 1 << GRID_JITTER,
    OF_CANVAS = 1 << GRID_PAR | 1 << GRID_INFLATION, /* the axis */
    OF_LMAX = 1 << GRID_LMAX | OF_CANVAS,
    OF_GPUS = 1 << GRID_MEMORY | OF_LMAX,
    OF_SYSTEMS = OF_RUNS | OF_GPUS,
    OF_MODELS = 1 << GRID_CONTEXT | 1 << GRID_MASKS | 1 << GRID_WORK | OF_LMAX,
    OF_ROLLOUTS = 1 << GRID_DECODE | 1 << GRID_STEPS | 1 << GRID_DECODERS,
    OF_VALUES = OF_MODELS | 1 << GRID_STEPS | 1 << GRID_EVICTION, /* the axis */
    OF_ALL = OF_SYSTEMS | OF_MODELS | OF_ROLLOUTS | 1 << GRID_EVICTION | 1 << GRID_MEASURED,
    OF_SERVER = 1 << GRID_SERVER,
};

struct key {
    const char *name;
    size_t offset, size; /* size 0: struct words */
    unsigned required;   /* by these kinds */
};

#define TEXT(field, required)                                                                      \
    { #field, offsetof(struct grid, field), sizeof(((struct grid *)0)->field), required }
#define LIST(field, required)                                                                      \
    { #field, offsetof(struct grid, field), 0, required }

static const struct key keys[] = {
    TEXT(title, OF_ALL | OF_SERVER),
    TEXT(paper, OF_ALL),
    TEXT(gpu, OF_RUNS | OF_SERVER),
    TEXT(paper_gpu, OF_ALL),
    LIST(sources, OF_ALL),
    LIST(systems, OF_SYSTEMS | OF_SERVER),
    LIST(labels, OF_SYSTEMS | OF_SERVER),
    LIST(workloads, OF_RUNS),
    LIST(workload_labels, OF_RUNS),
    LIST(rates, OF_RUNS),
    LIST(metrics, OF_RUNS),
    LIST(values, OF_VALUES),
    LIST(x_names, OF_ROLLOUTS),
    LIST(processes, OF_ROLLOUTS),
    LIST(gpus, OF_GPUS),
    LIST(models, OF_MODELS),
    LIST(paper_systems, OF_LMAX),
    LIST(share_of, OF_LMAX),
    LIST(before, 0),
    LIST(shares, 0),
    LIST(counts, 0),
    TEXT(share, OF_CANVAS),
    TEXT(model, 0),
    TEXT(paper_model, 0),
    LIST(sets, 0),
    LIST(workload_sets, 0),
    LIST(calibration, 0),
    TEXT(declared, 0),
    TEXT(requests_of, OF_SERVER),
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static const char *const kind_words[] = {
    "bars",   "lines", "jitter",   "memory",   "context", "masks",    "lmax", "par", "inflation",
    "decode", "steps", "decoders", "eviction", "server",  "measured", "work", NULL};
static const char *const axis_words[] = {"rate",         "input_tokens", "output_tokens",
                                         "max_requests", "block_tokens", NULL};

static int word_index(const struct config *config, const char *key, const char *const *words,
                      int absent, struct err *err) {
    const struct config_entry *entry = config_find(config, "figure", key);
    if (entry == NULL) {
        return absent;
    }
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], entry->value) == 0) {
            return i;
        }
    }
    char hint[NAME_HINT_CHARS];
    name_hint(entry->value, words, hint);
    err_usage(err, "%s:%d: '%s' is not a %s%s", config->path, entry->line, entry->value, key, hint);
    return -1;
}

static int take_keys(const struct config *config, struct grid *grid, struct err *err) {
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct config_entry *entry = config_find(config, "figure", keys[i].name);
        if (entry == NULL && (keys[i].required & 1U << grid->kind) != 0) {
            return err_usage(err, "%s: [figure] lacks '%s'", config->path, keys[i].name);
        }
        if (entry == NULL) {
            continue;
        }
        char place[256], *field = (char *)grid + keys[i].offset;
        config_place(config, entry, place, sizeof place);
        if (keys[i].size > 0) {
            snprintf(field, keys[i].size, "%s", entry->value);
        } else if (words_split(entry->value, (struct words *)field, place, err) != 0) {
            return (int)err->kind;
        }
    }
    return 0;
}

static int refuse_unknown(const struct config *config, bool is_measured, struct err *err) {
    static const char *const others[] = {"kind", "x",        "role",           "baseline",
                                         "seed", "requests", "context_tokens", "multiple_of"};
    const char *names[N_KEYS + sizeof others / sizeof others[0] + 1] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < N_KEYS; i++) {
        names[n++] = keys[i].name;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        names[n++] = others[i];
    }
    for (size_t i = 0; i < config->n_entries; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (is_measured && measured_knows(entry->section, entry->key)) {
            continue;
        }
        bool known = strcmp(entry->section, "figure") == 0;
        size_t j = 0;
        while (known && j < n && strcmp(names[j], entry->key) != 0) {
            j++;
        }
        if (!known || j == n) {
            char hint[NAME_HINT_CHARS];
            name_hint(entry->key, names, hint);
            return err_usage(err, "%s:%d: unknown key '%s' in [%s]%s", config->path, entry->line,
                             entry->key, entry->section, hint);
        }
    }
    return 0;
}

static int take_whole(const struct config *config, const char *key, uint64_t absent, uint64_t *out,
                      struct err *err) {
    const struct config_entry *entry = config_find(config, "figure", key);
    *out = absent;
    if (entry != NULL && !num_u64(entry->value, UINT32_MAX, out)) {
        return err_usage(err, "%s:%d: '%s' is not a whole number for %s", config->path, entry->line,
                         entry->value, key);
    }
    return 0;
}

static int settle_lmax(const struct config *config, const struct grid *grid, struct err *err) {
    if (grid->paper_systems.n != grid->systems.n) {
        return err_usage(err, "%s: expected one of paper_systems per system", config->path);
    }
    for (size_t i = 0; i < grid->share_of.n; i++) {
        if (share_of_index(grid->share_of.word[i]) < 0) {
            return err_usage(err, "%s: '%s' in share_of is neither canvas nor output", config->path,
                             grid->share_of.word[i]);
        }
    }
    double share = 0;
    for (size_t i = 0; i < grid->before.n; i++) {
        if (i == LMAX_MOST_BEFORE || !num_f64(grid->before.word[i], &share) || share <= 0) {
            return err_usage(err, "%s: '%s' in before is not one of at most %d shares",
                             config->path, grid->before.word[i], LMAX_MOST_BEFORE);
        }
    }
    bool needs_share = (OF_CANVAS & 1U << grid->kind) != 0;
    if (needs_share && (!num_f64(grid->share, &share) || share < 0 || share >= 1)) {
        return err_usage(err, "%s: '%s' is not a share below 1 of the prompt", config->path,
                         grid->share);
    }
    return 0;
}

static int settle(const struct config *config, struct grid *grid, struct err *err) {
    if (grid->labels.n != grid->systems.n || grid->workload_labels.n != grid->workloads.n) {
        return err_usage(err, "%s: expected one label per system and per workload", config->path);
    }
    if (grid->workload_sets.n != 0 && grid->workload_sets.n != grid->workloads.n) {
        return err_usage(err, "%s: expected one of workload_sets per workload", config->path);
    }
    const struct config_entry *baseline = config_find(config, "figure", "baseline");
    while (baseline != NULL && grid->baseline < grid->systems.n &&
           strcmp(grid->systems.word[grid->baseline], baseline->value) != 0) {
        grid->baseline++;
    }
    if (baseline != NULL && grid->baseline == grid->systems.n) {
        return err_usage(err, "%s:%d: the baseline '%s' is not among the systems", config->path,
                         baseline->line, baseline->value);
    }
    bool over_rates = grid->axis == AXIS_RATE && (OF_VALUES & 1U << grid->kind) == 0;
    const struct words *axis = over_rates ? &grid->rates : &grid->values;
    grid->n_x = axis->n;
    for (size_t i = 0; i < axis->n; i++) {
        if (!num_f64(axis->word[i], &grid->x[i]) || grid->x[i] <= 0 || grid->x[i] > UINT32_MAX) {
            return err_usage(err, "%s: '%s' is not a positive number on the axis", config->path,
                             axis->word[i]);
        }
        if (grid->kind == GRID_LMAX && grid->x[i] >= 1) {
            return err_usage(err, "%s: '%s' is not a share below 1 of the prompt", config->path,
                             axis->word[i]);
        }
        if (grid->kind == GRID_STEPS &&
            (grid->x[i] > ROLLOUT_MOST_POSITIONS || grid->x[i] != floor(grid->x[i]))) {
            return err_usage(err, "%s: '%s' is not a block of at most %d positions", config->path,
                             axis->word[i], ROLLOUT_MOST_POSITIONS);
        }
        if (grid->kind == GRID_MASKS && grid->x[i] > 1) {
            return err_usage(err, "%s: '%s' is not a share of masked tokens", config->path,
                             axis->word[i]);
        }
    }
    if (grid_rolls_out(grid) && grid->x_names.n != grid->processes.n) {
        return err_usage(err, "%s: expected one of x_names per process", config->path);
    }
    return grid_asks_lmax(grid) ? settle_lmax(config, grid, err) : 0;
}

/* Priced steps need canvases, models, systems and shares; others need files. */
static int settle_measured(const struct config *config, struct grid *grid, struct err *err) {
    bool is_priced = grid->gpus.n > 0;
    if (!is_priced && grid->measured.files[0] == '\0') {
        return err_usage(err, "%s: a measured figure has files, or gpus to price", config->path);
    }
    if (is_priced && (grid->values.n == 0 || grid->models.n == 0 || grid->systems.n == 0 ||
                      grid->shares.n == 0)) {
        return err_usage(err, "%s: priced steps have systems, models, values and shares",
                         config->path);
    }
    grid->n_x = grid->values.n;
    for (size_t i = 0; i < grid->values.n; i++) {
        if (!num_f64(grid->values.word[i], &grid->x[i]) || grid->x[i] < 1 || grid->x[i] > 1 << 24) {
            return err_usage(err, "%s: '%s' is not a canvas", config->path, grid->values.word[i]);
        }
    }
    for (size_t i = 0; i < grid->shares.n; i++) {
        double share = 0;
        if (!num_f64(grid->shares.word[i], &share) || share < 0 || share >= 1) {
            return err_usage(err, "%s: '%s' is not a share below 1 of the prompt", config->path,
                             grid->shares.word[i]);
        }
    }
    return 0;
}

int grid_load(const char *path, const char *name, struct grid *grid, struct err *err) {
    struct config config;
    int status = config_read(path, &config, err);
    if (status != 0) {
        return status;
    }
    *grid = (struct grid){.n_seeds = 1};
    snprintf(grid->name, sizeof grid->name, "%s", name);
    int kind = word_index(&config, "kind", kind_words, GRID_BARS, err);
    int axis = word_index(&config, "x", axis_words, AXIS_RATE, err);
    int role = word_index(&config, "role", paper_role_words, PAPER_COUNTED, err);
    if (kind >= 0 && axis >= 0 && role >= 0) {
        grid->role = (enum paper_role)role;
        grid->kind = (enum grid_kind)kind;
        grid->axis = (enum grid_axis)axis;
        status = refuse_unknown(&config, grid->kind == GRID_MEASURED, err);
    } else {
        status = (int)err->kind;
    }
    if (status == 0) {
        status = take_keys(&config, grid, err);
    }
    if (status == 0) {
        status = take_whole(&config, "seed", 1, &grid->seed, err);
    }
    if (status == 0) {
        status = take_whole(&config, "requests", 0, &grid->requests, err);
    }
    if (status == 0) {
        status = take_whole(&config, "context_tokens", 131072, &grid->context_tokens, err);
    }
    if (status == 0) {
        status = take_whole(&config, "multiple_of", 0, &grid->multiple_of, err);
    }
    if (status == 0 && grid->kind == GRID_MEASURED) {
        status = measured_read(&config, &grid->measured, err);
        status = status == 0 ? settle_measured(&config, grid, err) : status;
    } else if (status == 0) {
        status = settle(&config, grid, err);
    }
    config_fini(&config);
    return status;
}

/* ---- running it ---- */

struct effort {
    const struct grid *grid;
    struct point *points;
    struct err *errs; /* one a point */
    void (*done)(void *state);
    void *state;
};

bool grid_asks_lmax(const struct grid *grid) {
    return (OF_LMAX & 1U << grid->kind) != 0;
}

bool grid_rolls_out(const struct grid *grid) {
    return (OF_ROLLOUTS & 1U << grid->kind) != 0;
}

bool grid_runs(const struct grid *grid) {
    return (OF_RUNS & 1U << grid->kind) != 0;
}

size_t grid_n_points(const struct grid *grid) {
    bool runs = grid_runs(grid);
    if (grid_rolls_out(grid)) {
        return decode_n_numbers(grid);
    }
    if (grid_asks_lmax(grid)) {
        return canvases_n_pieces(grid);
    }
    return runs ? grid->systems.n * grid->workloads.n * grid->n_x * grid->n_seeds : 0;
}

/* "KEY=VALUE"; without '=' the value is empty, which no key takes. */
static struct setting setting_of(const char *word, const char *place) {
    struct setting setting = {.value = ""};
    const char *equals = strchr(word, '=');
    int length = equals != NULL ? (int)(equals - word) : (int)strlen(word);
    snprintf(setting.key, sizeof setting.key, "%.*s", length, word);
    snprintf(setting.value, sizeof setting.value, "%s", equals != NULL ? equals + 1 : "");
    snprintf(setting.place, sizeof setting.place, "figure %s", place);
    return setting;
}

/* The keys that a point sets, into `out`; returns how many. */
static uint32_t settings_of(const struct grid *grid, size_t workload, size_t x,
                            struct setting out[GRID_MOST + 2]) {
    uint32_t n = 0;
    for (size_t i = 0; i < grid->sets.n; i++) {
        out[n++] = setting_of(grid->sets.word[i], grid->name);
    }
    if (grid->workload_sets.n > 0 && grid->workload_sets.word[workload][0] != '\0') {
        out[n++] = setting_of(grid->workload_sets.word[workload], grid->name);
    }
    if (grid->axis == AXIS_BATCH || grid->axis == AXIS_BLOCK) {
        char word[2 * GRID_WORD];
        snprintf(word, sizeof word, "%s=%s", axis_words[grid->axis], grid->values.word[x]);
        out[n++] = setting_of(word, grid->name);
    }
    return n;
}

static void run_index(void *opaque, size_t run) {
    struct effort *effort = opaque;
    const struct grid *grid = effort->grid;
    size_t index = run / grid->n_seeds;
    size_t x = index % grid->n_x, workload = index / grid->n_x % grid->workloads.n;
    size_t system = index / grid->n_x / grid->workloads.n;
    double rate = grid->axis == AXIS_RATE ? grid->x[x] : strtod(grid->rates.word[0], NULL);
    struct setting settings[GRID_MOST + 2];
    struct run_request request = {
        .system = grid->systems.word[system],
        .gpu = grid->gpu,
        .model = grid->model[0] != '\0' ? grid->model : NULL,
        .settings = settings,
        .n_settings = settings_of(grid, workload, x, settings),
        .workload = grid->workloads.word[workload],
        .options = {.seed = grid->seed + run % grid->n_seeds,
                    .requests = grid->requests,
                    .rate_per_s = rate,
                    .input_tokens = grid->axis == AXIS_INPUT ? (uint32_t)grid->x[x] : 0,
                    .output_tokens = grid->axis == AXIS_OUTPUT ? (uint32_t)grid->x[x] : 0},
    };
    point_run(&request, &effort->points[run], &effort->errs[run]);
    if (effort->done != NULL) {
        effort->done(effort->state);
    }
}

static void take_means(const struct grid *grid, size_t n_points, struct grid_results *results) {
    results->points = calloc(n_points + 1, sizeof *results->points);
    ASSERT(results->points != NULL);
    for (size_t i = 0; i < n_points; i++) {
        results->points[i] = point_mean(&results->runs[i * grid->n_seeds], grid->n_seeds);
    }
}

int grid_run(const struct grid *grid, unsigned n_threads, void (*done)(void *state), void *state,
             struct grid_results *results, struct err *err) {
    *results = (struct grid_results){0};
    if (grid_asks_lmax(grid)) {
        return canvases_find(grid, n_threads, done, state, &results->canvases, err);
    }
    if (grid_rolls_out(grid)) {
        return decode_numbers(grid, n_threads, done, state, &results->rollouts, err);
    }
    if (grid->kind == GRID_MEASURED) {
        char *priced = NULL;
        int status = grid->gpus.n > 0 ? priced_csv(grid, &priced, err) : 0;
        results->measured = malloc(sizeof *results->measured);
        ASSERT(results->measured != NULL);
        status =
            status == 0 ? measured_find(&grid->measured, priced, results->measured, err) : status;
        free(priced);
        if (status != 0) {
            grid_results_fini(results);
        }
        return status;
    }
    size_t n = grid_n_points(grid);
    struct effort effort = {.grid = grid,
                            .points = calloc(n + 1, sizeof *effort.points),
                            .errs = calloc(n + 1, sizeof *effort.errs),
                            .done = done,
                            .state = state};
    ASSERT(effort.points != NULL && effort.errs != NULL);
    thread_pool_run(n, n_threads, run_index, &effort);
    results->runs = effort.points;
    for (size_t i = 0; i < n && err->kind == ERR_NONE; i++) {
        *err = effort.errs[i]; /* the earliest failure, whatever thread met it first */
    }
    free(effort.errs);
    if (err->kind != ERR_NONE) {
        grid_results_fini(results);
    } else {
        take_means(grid, n / grid->n_seeds, results);
    }
    return (int)err->kind;
}

void grid_results_fini(struct grid_results *results) {
    free(results->points);
    free(results->runs);
    free(results->canvases);
    free(results->rollouts);
    free(results->measured);
    *results = (struct grid_results){0};
}

const struct point *grid_point(const struct grid *grid, const struct grid_results *results,
                               size_t system, size_t workload, size_t x) {
    return &results->points[(system * grid->workloads.n + workload) * grid->n_x + x];
}

const struct point *grid_seeds(const struct grid *grid, const struct grid_results *results,
                               size_t system, size_t workload, size_t x) {
    size_t point = (system * grid->workloads.n + workload) * grid->n_x + x;
    return &results->runs[point * grid->n_seeds];
}
