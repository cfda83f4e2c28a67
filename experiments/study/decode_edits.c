#include "experiments/study/decode_edits.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multimin.h>
#include <math.h>
#include <string.h>

#include "experiments/study/decode_fit.h"
#include "sim/base/mem.h"
#include "sim/decode/process_file.h"

enum {
    COLUMN_PROCESS,
    COLUMN_BENCHMARK,
    COLUMN_MODE,
    COLUMN_THRESHOLD,
    COLUMN_EDIT_THRESHOLD,
    COLUMN_PRINTED,
    COLUMN_ROLE,
    COLUMN_SOURCE
};
static const char *const columns[] = {"process",   "benchmark",      "mode",
                                      "threshold", "edit_threshold", "tokens_per_pass",
                                      "role",      "source",         NULL};

/* The shape whose constants are fitted. */
static const char shape[] = "llada2";

static int read_row(struct csv *csv, struct edit_row *row, struct err *err) {
    if (csv_row(csv, err) != 0) {
        return err_status(err);
    }
    const char *role = csv_field(csv, COLUMN_ROLE);
    *row = (struct edit_row){.process = csv_field(csv, COLUMN_PROCESS),
                             .benchmark = csv_field(csv, COLUMN_BENCHMARK),
                             .mode = csv_field(csv, COLUMN_MODE),
                             .source = csv_field(csv, COLUMN_SOURCE),
                             .is_fitted = strcmp(role, "fitted") == 0};
    if (!row->is_fitted && role[0] != '\0') {
        return csv_bad(csv, COLUMN_ROLE, "fitted, or nothing", err);
    }
    bool failed =
        csv_number(csv, COLUMN_THRESHOLD, 0, 1, &row->threshold, err) != 0 ||
        csv_number(csv, COLUMN_EDIT_THRESHOLD, 0, 1, &row->edit_threshold, err) != 0 ||
        csv_number(csv, COLUMN_PRINTED, 1, ROLLOUT_MOST_POSITIONS, &row->printed, err) != 0;
    if (!failed && row->edit_threshold > row->threshold) {
        return csv_bad(csv, COLUMN_EDIT_THRESHOLD, "the threshold at most", err);
    }
    return failed ? err_status(err) : decode_process_find(row->process, &row->of, err);
}

int edits_open(const char *path, struct edits *out, struct err *err) {
    bool more = true;
    *out = (struct edits){0};
    if (csv_open(&out->csv, path, "edit modes", err) != 0) {
        return err_status(err);
    }
    int status = csv_first(&out->csv, columns, 0, true, err);
    while (status == 0 && (status = csv_line(&out->csv, &more, err)) == 0 && more) {
        status = out->n < EDITS_MOST_ROWS
                     ? read_row(&out->csv, &out->rows[out->n], err)
                     : err_world(err, "%s has more than %d rows", path, EDITS_MOST_ROWS);
        out->n += status == 0;
    }
    if (status != 0) {
        edits_close(out);
    }
    return status;
}

void edits_close(struct edits *edits) {
    csv_close(&edits->csv);
    *edits = (struct edits){0};
}

static struct rollout_rule rule_of(const struct edit_row *row) {
    struct rollout_rule rule = decode_rule_at(&row->of.at);
    rule.rule = (struct decode_rule){.kind = DECODE_JOINT,
                                     .threshold = (float)row->threshold,
                                     .edit = (float)row->edit_threshold,
                                     .post_passes = 16};
    return rule;
}

double edits_give(const struct decode_process *process, const struct edit_row *row, uint32_t n) {
    struct decode_process trained = *process;
    const struct rollout_rule rule = rule_of(row);
    trained.edits = 1;
    const struct rollout sums = decode_sample(&trained, decode_fit_seed(), &rule, n);
    return rollout_tokens_per_step(&sums);
}

enum { FEW_REQUESTS = 100, MANY_REQUESTS = 150, MOST_STEPS = 80 };

static struct decode_process with(const struct decode_process *process,
                                  const struct edit_numbers *numbers) {
    struct decode_process trained = *process;
    trained.edit_location = numbers->location;
    trained.edit_structured = numbers->structured;
    trained.edit_scale = numbers->scale;
    trained.edits = 1;
    return trained;
}

/* Location, logarithm of the scale, what is added on code and mathematics. */
enum { N_FITTED = 3 };

static struct edit_numbers numbers_of(const gsl_vector *x) {
    return (struct edit_numbers){.location = gsl_vector_get(x, 0),
                                 .scale = exp(gsl_vector_get(x, 1)),
                                 .structured = gsl_vector_get(x, 2)};
}

static double rounded(double x) {
    return round(x * 1e4) / 1e4;
}

static double misfit(const gsl_vector *x, void *opaque) {
    const struct edits *edits = opaque;
    const struct edit_numbers numbers = numbers_of(x);
    double sum = 0;
    if (numbers.scale < 0.02 || numbers.scale > 10) {
        return 1e3;
    }
    for (size_t i = 0; i < edits->n; i++) {
        const struct edit_row *row = &edits->rows[i];
        if (row->is_fitted) {
            const struct decode_process trained = with(&row->of, &numbers);
            sum += pow(log(edits_give(&trained, row, FEW_REQUESTS) / row->printed), 2);
        }
    }
    return sum;
}

/* The row that is printed last of the same process. */
static const struct edit_row *last_of(const struct edits *edits, const struct edit_row *row) {
    const struct edit_row *last = row;
    for (size_t i = 0; i < edits->n; i++) {
        last = strcmp(edits->rows[i].process, row->process) == 0 ? &edits->rows[i] : last;
    }
    return last;
}

/* Where the process of rows[i] stands so that `last` is met: found once for all rows of it. */
static double find_moved(const struct edits *edits, size_t i,
                         const struct decode_process *trained) {
    const struct edit_row *row = &edits->rows[i], *last = last_of(edits, row);
    for (size_t k = 0; k < i; k++) {
        if (strcmp(edits->rows[k].process, row->process) == 0) {
            return edits->rows[k].moved_location;
        }
    }
    const struct rollout_rule rule = rule_of(last);
    return decode_locate(trained, &rule, false, last->printed, MANY_REQUESTS);
}

static void predict(struct edits *edits, size_t i) {
    struct edit_row *row = &edits->rows[i];
    struct decode_process trained = with(&row->of, &edits->fitted);
    row->stored = edits_give(&row->of, row, MANY_REQUESTS);
    row->fitted = edits_give(&trained, row, MANY_REQUESTS);
    trained.location = row->moved_location = find_moved(edits, i, &trained);
    row->moved = edits_give(&trained, row, MANY_REQUESTS);
}

void edits_fit(struct edits *edits) {
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    gsl_vector *x = mem_given(gsl_vector_calloc(N_FITTED)),
               *steps = mem_given(gsl_vector_alloc(N_FITTED));
    gsl_multimin_fminimizer *minimizer =
        mem_given(gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, N_FITTED));
    gsl_vector_set_all(steps, 0.5);
    gsl_multimin_function function = {.f = misfit, .n = N_FITTED, .params = edits};
    gsl_multimin_fminimizer_set(minimizer, &function, x, steps);
    for (int i = 0; i < MOST_STEPS && gsl_multimin_fminimizer_size(minimizer) > 1e-3; i++) {
        gsl_multimin_fminimizer_iterate(minimizer);
    }
    const struct edit_numbers best = numbers_of(gsl_multimin_fminimizer_x(minimizer));
    edits->fitted = (struct edit_numbers){.location = rounded(best.location),
                                          .scale = rounded(best.scale),
                                          .structured = rounded(best.structured)};
    for (size_t i = 0; i < edits->n; i++) {
        predict(edits, i);
    }
    gsl_multimin_fminimizer_free(minimizer);
    gsl_vector_free(x);
    gsl_vector_free(steps);
    gsl_set_error_handler(handler);
}

static double percent(double ours, double printed) {
    return 100 * (ours / printed - 1);
}

struct table *edits_constants(const struct edits *edits) {
    const struct decode_process *stored = &edits->rows[0].of;
    struct table *table = table_open("constant|fitted|stored");
    table_add(table, "s %.4f %.4f", "edit_location", edits->fitted.location, stored->edit_location);
    table_add(table, "s %.4f %.4f", "edit_structured", edits->fitted.structured,
              stored->edit_structured);
    table_add(table, "s %.4f %.4f", "edit_scale", edits->fitted.scale, stored->edit_scale);
    table_add(table, "s - %g", "edit_share (of sdar-2m-all)", stored->edit_share);
    return table;
}

/* Of one mode over all tasks, as the report prints it. */
static void add_mean(struct table *table, const struct edits *edits, const char *mode) {
    double n = 0, printed = 0, stored = 0, fitted = 0, moved = 0;
    for (size_t i = 0; i < edits->n; i++) {
        const struct edit_row *row = &edits->rows[i];
        if (strcmp(row->mode, mode) == 0) {
            n++;
            printed += row->printed;
            stored += row->stored;
            fitted += row->fitted;
            moved += row->moved;
        }
    }
    table_add(table, "s s %.2f %.2f %+.0f %.2f %+.0f %.2f %+.0f -", "mean of all", mode,
              printed / n, stored / n, percent(stored, printed), fitted / n,
              percent(fitted, printed), moved / n, percent(moved, printed));
}

struct table *edits_table(const struct edits *edits) {
    struct table *table = table_open("benchmark|mode|printed|stored|stored off %|fitted|fitted off "
                                     "%|moved|moved off %|fitted to");
    for (size_t i = 0; i < edits->n; i++) {
        const struct edit_row *row = &edits->rows[i];
        table_add(table, "s s %.2f %.2f %+.0f %.2f %+.0f %.2f %+.0f s", row->benchmark, row->mode,
                  row->printed, row->stored, percent(row->stored, row->printed), row->fitted,
                  percent(row->fitted, row->printed), row->moved, percent(row->moved, row->printed),
                  row->is_fitted ? "yes" : "no");
    }
    add_mean(table, edits, "S");
    add_mean(table, edits, "Q");
    return table;
}

void edits_say(const struct edits *edits, FILE *out) {
    size_t n = 0, n_within = 0;
    for (size_t i = 0; i < edits->n; i++) {
        const struct edit_row *row = &edits->rows[i];
        n += !row->is_fitted;
        n_within += !row->is_fitted && fabs(percent(row->fitted, row->printed)) <= 20;
    }
    fprintf(out,
            "%zu of %zu rows that nothing was fitted to are within 20 %%. `moved`: where the task "
            "stands in\nLLaDA2.1 is read off its Q mode.\n",
            n_within, n);
}

size_t edits_numbers(const struct edits *edits, struct fitted_number out[EDIT_NUMBERS]) {
    out[0] = (struct fitted_number){.key = "edit_location", .value = edits->fitted.location};
    out[1] = (struct fitted_number){.key = "edit_scale", .value = edits->fitted.scale};
    out[2] = (struct fitted_number){.key = "edit_structured", .value = edits->fitted.structured};
    for (size_t i = 0; i < EDIT_NUMBERS; i++) {
        snprintf(out[i].section, sizeof out[i].section, "%s", shape);
    }
    return EDIT_NUMBERS;
}
