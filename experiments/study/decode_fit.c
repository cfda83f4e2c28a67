#include "experiments/study/decode_fit.h"

#include <errno.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_roots.h>
#include <math.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/rng.h"
#include "sim/decode/process_file.h"

/* Set before the first comparison, from what is known in general: half of a model's tokens are near
 * certain next to known context and the spread of their logits is some 2 (position) and 1 (step);
 * far from it they are not; a filling block helps a little; the second token has about half of what
 * the first leaves. */
const struct decode_process decode_assumed = {.distance = 3,
                                              .gap = 4,
                                              .context = 1,
                                              .position_spread = 2,
                                              .step_spread = 1,
                                              .delta_distance = 3,
                                              .tail_spread = 1};

/* ---- sampling ---- */

enum { BLOCKS_OF_REQUEST = 8, BLOCKS_OF_CANVAS = 16, N_REQUESTS = 400 };

struct rollout decode_sample(const struct decode_process *process, uint64_t seed,
                             const struct rollout_rule *rule, uint32_t n) {
    struct rollout sums = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t blocks = rule->answer_tokens > 0 ? BLOCKS_OF_CANVAS : BLOCKS_OF_REQUEST;
        rollout_request(process, seed, i, rule, blocks, &sums);
    }
    return sums;
}

struct rollout_rule decode_plain(float threshold, double temperature) {
    return (struct rollout_rule){.block_tokens = 32,
                                 .rule = {.kind = DECODE_THRESHOLD, .threshold = threshold},
                                 .temperature = temperature};
}

struct rollout_rule decode_focus(float threshold, double temperature) {
    return (struct rollout_rule){
        .block_tokens = 32,
        .temperature = temperature,
        .cache = BLOCK_NEIGHBOUR,
        .evicts = true,
        .focus = {.alpha = 1.5, .history = FOCUS_MEAN_OF_BLOCK},
        .rule = {.kind = DECODE_THRESHOLD, .threshold = threshold},
    };
}

struct rollout_rule decode_rule_at(const struct decode_conditions *at) {
    struct rollout_rule rule = decode_plain((float)at->threshold, at->temperature);
    rule.block_tokens = at->block_tokens;
    rule.answer_tokens = at->answer_tokens;
    return rule;
}

double decode_counted(const struct rollout *sums, bool runs_per_token) {
    return runs_per_token ? rollout_redundancy(sums) : rollout_tokens_per_step(sums);
}

uint64_t decode_fit_seed(void) {
    return hash_text("decode fits");
}

/* ---- roots ---- */

struct question {
    struct decode_process process;
    struct rollout_rule rule;
    uint32_t n_requests;
    bool runs_per_token;
    double target;
};

/* Falls as the location rises, whatever is counted. */
static double missing(double location, void *opaque) {
    struct question *question = opaque;
    question->process.location = location;
    struct rollout sums =
        decode_sample(&question->process, decode_fit_seed(), &question->rule, question->n_requests);
    double counted = decode_counted(&sums, question->runs_per_token);
    return question->runs_per_token ? counted - question->target : question->target - counted;
}

/* The root of a falling function between `low` and `high`, or the nearer end. */
static double falling_root(double (*function)(double x, void *opaque), void *opaque, double low,
                           double high, double tolerance) {
    if (function(low, opaque) <= 0) {
        return low;
    }
    if (function(high, opaque) >= 0) {
        return high;
    }
    gsl_function asked = {.function = function, .params = opaque};
    gsl_root_fsolver *solver = mem_given(gsl_root_fsolver_alloc(gsl_root_fsolver_brent));
    int status = gsl_root_fsolver_set(solver, &asked, low, high);
    for (int i = 0; i < 60 && status == GSL_SUCCESS; i++) {
        gsl_root_fsolver_iterate(solver);
        double x0 = gsl_root_fsolver_x_lower(solver), x1 = gsl_root_fsolver_x_upper(solver);
        if (gsl_root_test_interval(x0, x1, tolerance, 0) == GSL_SUCCESS) {
            break;
        }
    }
    double root = gsl_root_fsolver_root(solver);
    gsl_root_fsolver_free(solver);
    return root;
}

double decode_locate(const struct decode_process *process, const struct rollout_rule *rule,
                     bool runs_per_token, double target, uint32_t n) {
    struct question question = {.process = *process,
                                .rule = *rule,
                                .n_requests = n,
                                .runs_per_token = runs_per_token,
                                .target = target};
    return falling_root(missing, &question, -20, 40, n < N_REQUESTS ? 2e-3 : 1e-3);
}

/* ---- locations ---- */

static double reached(const struct decode_process *process, const struct location *row) {
    struct rollout_rule rule = decode_rule_at(&row->at);
    struct rollout sums = decode_sample(process, decode_fit_seed(), &rule, N_REQUESTS);
    return decode_counted(&sums, row->runs_per_token);
}

/* Four decimals, as they are written: what is derived from a location is derived from those. */
static void locate(const struct location *row, struct location_fit *fit) {
    struct rollout_rule rule = decode_rule_at(&row->at);
    double found =
        decode_locate(&fit->process, &rule, row->runs_per_token, row->printed, N_REQUESTS);
    fit->process.location = round(found * 1e4) / 1e4;
    fit->reached = reached(&fit->process, row);
}

/* The word before the slash is the same. */
static bool is_of_one_model(const char *a, const char *b) {
    size_t length = strcspn(a, "/");
    return strncmp(a, b, length + 1) == 0;
}

static const char *task_of(const char *process) {
    return strchr(process, '/') + 1;
}

/* By how far the row's model stands from that of the row it is moved from, on the one task that
 * both have a number of. */
static int transfer(const struct locations *locations, const struct location *row,
                    struct location_fit *fits, struct err *err) {
    const struct location *from = location_find(locations, row->transferred_from);
    for (size_t i = 0; from != NULL && i < locations->n; i++) {
        const struct location *to = &locations->rows[i];
        if (isnan(to->printed) || !is_of_one_model(row->process, to->process)) {
            continue;
        }
        for (size_t j = 0; j < locations->n; j++) {
            const struct location *same = &locations->rows[j];
            if (!isnan(same->printed) && is_of_one_model(from->process, same->process) &&
                strcmp(task_of(same->process), task_of(to->process)) == 0) {
                fits[row - locations->rows].process.location =
                    fits[from - locations->rows].process.location + fits[i].process.location -
                    fits[j].process.location;
                return 0;
            }
        }
    }
    return err_world(err, "%s: no task has a number of both %s and %s, by which one could be moved",
                     locations->csv.line.path, row->process, row->transferred_from);
}

/* What the row's process gives where later rows of the same model and workload were printed. */
static void judge_by_seconds(const struct locations *locations, size_t i,
                             struct location_fit *fits) {
    const struct location *row = &locations->rows[i];
    char model[64];
    snprintf(model, sizeof model, "%.*s", (int)strcspn(row->process, "/"), row->process);
    size_t used = 0;
    const char *list = row->workloads, *word;
    size_t size;
    while (row->workloads[0] != '\0' && name_next(&list, " ", &word, &size)) {
        char workload[64];
        snprintf(workload, sizeof workload, "%.*s", (int)size, word);
        if (location_of(locations, model, workload, NULL) != row) {
            continue;
        }
        const struct location *second = row;
        while ((second = location_of(locations, model, workload, second)) != NULL) {
            double ours = reached(&fits[i].process, second);
            int n =
                snprintf(fits[i].error + used, sizeof fits[i].error - used,
                         "%s%+.0f %% of the %g of %s", used > 0 ? " and " : "",
                         100 * (ours / second->printed - 1), second->printed, second->benchmark);
            used += (size_t)n < sizeof fits[i].error - used ? (size_t)n : 0;
        }
    }
}

static int begin(const struct locations *locations, struct location_fit *out, struct err *err) {
    for (size_t i = 0; i < locations->n; i++) {
        out[i] = (struct location_fit){.reached = (double)NAN};
        int status = decode_process_find(locations->rows[i].process, &out[i].process, err);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

int locations_fit(const struct locations *locations, void (*told)(void *state, size_t n_done),
                  void *state, struct location_fit *out, struct err *err) {
    int status = begin(locations, out, err);
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    for (size_t i = 0; status == 0 && i < locations->n; i++) {
        if (!isnan(locations->rows[i].printed)) {
            locate(&locations->rows[i], &out[i]);
        }
        if (told != NULL) {
            told(state, i + 1);
        }
    }
    for (size_t i = 0; status == 0 && i < locations->n; i++) {
        const struct location *row = &locations->rows[i];
        status = isnan(row->printed) ? transfer(locations, row, out, err) : 0;
        judge_by_seconds(locations, i, out);
    }
    gsl_set_error_handler(handler);
    return status;
}

struct table *locations_table(const struct locations *locations, const struct location_fit *fits) {
    struct table *table = table_open("process|shape|stored|fitted|printed|gives|second sources");
    for (size_t i = 0; i < locations->n; i++) {
        const struct location *row = &locations->rows[i];
        table_add(table, "s s %.4f %.4f", row->process, row->shape, row->location,
                  fits[i].process.location);
        if (isnan(row->printed)) {
            char from[128];
            snprintf(from, sizeof from, "moved from %s", row->transferred_from);
            table_add(table, "- - s", from);
        } else {
            table_add(table, "%.2f %.2f s", row->printed, fits[i].reached, fits[i].error);
        }
    }
    return table;
}

int locations_write(const struct locations *locations, const struct location_fit *fits, FILE *out,
                    struct err *err) {
    const char *path = locations->csv.line.path;
    FILE *in = fopen(path, "r");
    char line[1024];
    if (in == NULL) {
        return err_world(err, "cannot read '%s': %s", path, strerror(errno));
    }
    for (uint64_t at = 1; fgets(line, sizeof line, in) != NULL; at++) {
        size_t i = 0;
        while (i < locations->n && locations->rows[i].line != at) {
            i++;
        }
        if (i == locations->n) {
            fputs(line, out);
            continue;
        }
        *strrchr(line, ',') = '\0';
        *strrchr(line, ',') = '\0';
        fprintf(out, "%s,%.4f,%s\n", line, fits[i].process.location, fits[i].error);
    }
    fclose(in);
    return 0;
}
