#include "experiments/accuracy.h"

#include <errno.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/output.h"
#include "experiments/table.h"
#include "sim/base/num.h"
#include "sim/serve/executor_sim.h"
#include "traces/field.h"

const char *const step_class_names[STEP_CLASS_COUNT] = {"refresh", "reuse", "selecting", "mixed"};

void accuracy_init(struct accuracy *accuracy, const struct system *system, size_t n_steps,
                   uint32_t every) {
    *accuracy = (struct accuracy){.system = system, .room = n_steps, .every = every};
    accuracy->steps = calloc(n_steps > 0 ? n_steps : 1, sizeof *accuracy->steps);
    ASSERT(accuracy->steps != NULL);
}

void accuracy_fini(struct accuracy *accuracy) {
    free(accuracy->steps);
    *accuracy = (struct accuracy){0};
}

enum step_class step_class_of(const struct submission *submission) {
    bool selects = false;
    uint32_t first = submission->requests[submission->slots[0]].span.phase;
    for (uint32_t i = 0; i < submission->n_slots; i++) {
        const struct span *span = &submission->requests[submission->slots[i]].span;
        selects = selects || span->select_rows > 0;
        if (span->phase != first) {
            return STEP_MIXED;
        }
    }
    return selects ? STEP_SELECTING : first == PHASE_REUSE ? STEP_REUSE : STEP_REFRESH;
}

void accuracy_add(struct accuracy *accuracy, const struct compared_step *step) {
    ASSERT(accuracy->n_steps < accuracy->room);
    accuracy->steps[accuracy->n_steps++] = *step;
}

bool accuracy_wants_operators(const struct accuracy *accuracy) {
    return accuracy->every > 0 && accuracy->n_steps % accuracy->every == 0;
}

void accuracy_add_operators(struct accuracy *accuracy, const struct step_shape *shape,
                            const double ns[GRAPH_MAX_OPS], double whole_ns) {
    struct op_price prices[GRAPH_MAX_OPS];
    uint32_t n_ops = accuracy->system->graph.n_ops;
    double sum_ns = 0;
    for (uint32_t i = 0; i < n_ops; i++) {
        sum_ns += ns[i];
    }
    if (!(sum_ns > 0)) {
        return;
    }
    cost_explain(accuracy->system->cost, shape, prices);
    for (uint32_t i = 0; i < n_ops; i++) {
        accuracy->ops[i].predicted_ns += prices[i].ns;
        accuracy->ops[i].measured_ns += ns[i] * whole_ns / sum_ns;
    }
    accuracy->n_by_operator++;
}

/* ---- errors ---- */

/* Signed errors of some steps; NaN where there are none. */
struct spread {
    uint64_t submissions, steps;
    double median, p5, p95, mean, median_size;
};

static double signed_error(double predicted, double measured) {
    return measured > 0 ? predicted / measured - 1 : (double)NAN;
}

static double error_of(const struct compared_step *step, bool of_device) {
    return of_device ? signed_error(step->predicted_device_ns, step->measured_device_ns)
                     : signed_error(step->predicted_wall_ns, step->measured_wall_ns);
}

/* Over the steps of one kind, or of all where `kind` is STEP_CLASS_COUNT. */
static struct spread spread_of(const struct accuracy *accuracy, uint32_t kind, bool of_device) {
    struct spread spread = {0, 0, (double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    double *errors = malloc((accuracy->n_steps + 1) * sizeof *errors);
    ASSERT(errors != NULL);
    size_t n = 0;
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        const struct compared_step *step = &accuracy->steps[i];
        double error = error_of(step, of_device);
        if ((kind == STEP_CLASS_COUNT || step->kind == kind) && !isnan(error)) {
            errors[n++] = error;
            spread.steps += step->steps;
        }
    }
    spread.submissions = n;
    if (n > 0) {
        gsl_sort(errors, 1, n);
        spread.median = gsl_stats_quantile_from_sorted_data(errors, 1, n, 0.5);
        spread.p5 = gsl_stats_quantile_from_sorted_data(errors, 1, n, 0.05);
        spread.p95 = gsl_stats_quantile_from_sorted_data(errors, 1, n, 0.95);
        spread.mean = gsl_stats_mean(errors, 1, n);
        for (size_t i = 0; i < n; i++) {
            errors[i] = fabs(errors[i]);
        }
        gsl_sort(errors, 1, n);
        spread.median_size = gsl_stats_quantile_from_sorted_data(errors, 1, n, 0.5);
    }
    free(errors);
    return spread;
}

/* Seconds of all steps together. */
struct totals {
    double predicted_device_s, measured_device_s, predicted_wall_s, measured_wall_s;
};

static struct totals totals_of(const struct accuracy *accuracy) {
    struct totals totals = {0};
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        const struct compared_step *step = &accuracy->steps[i];
        totals.predicted_device_s += 1e-9 * step->steps * step->predicted_device_ns;
        totals.measured_device_s += 1e-9 * step->steps * step->measured_device_ns;
        totals.predicted_wall_s += 1e-9 * step->steps * step->predicted_wall_ns;
        totals.measured_wall_s += 1e-9 * step->steps * step->measured_wall_ns;
    }
    return totals;
}

/* Errors within which steps are counted, about the median and the 95th percentile that calibration
 * reached on steps held out of its fit: 1.89 % and 5.84 % (NVIDIA H200, 2026-11-21). */
static const double bounds[] = {0.02, 0.06};
enum { N_BOUNDS = sizeof bounds / sizeof bounds[0] };

/* The share of the measured steps that are predicted within `bound`; NaN where there are none. */
static double share_within(const struct accuracy *accuracy, bool of_device, double bound) {
    double n = 0, n_within = 0;
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        double error = error_of(&accuracy->steps[i], of_device);
        if (!isnan(error)) {
            n += accuracy->steps[i].steps;
            n_within += fabs(error) <= bound ? accuracy->steps[i].steps : 0;
        }
    }
    return n > 0 ? n_within / n : (double)NAN;
}

/* ---- for people ---- */

static void put_percent(struct table *table, double error) {
    char text[32];
    snprintf(text, sizeof text, "%+.1f %%", 100 * error);
    table_shown(table, error, isnan(error) ? NULL : text);
}

static void put_size(struct table *table, double size) {
    char text[32];
    snprintf(text, sizeof text, "%.1f %%", 100 * size);
    table_shown(table, size, isnan(size) ? NULL : text);
}

static void put_seconds(struct table *table, double seconds) {
    char text[32];
    table_shown(table, seconds, num_format_ns(text, sizeof text, 1e9 * seconds));
}

static struct table *totals_table(const struct accuracy *accuracy) {
    static const char *const columns[] = {"time", "predicted", "measured", "error"};
    struct totals t = totals_of(accuracy);
    double idle_s = 1e-9 * accuracy->idle_ns;
    const struct {
        const char *name;
        double predicted_s, measured_s;
    } rows[] = {
        {"makespan", idle_s + t.predicted_wall_s, idle_s + t.measured_wall_s},
        {"steps", t.predicted_wall_s, t.measured_wall_s},
        {"device", t.predicted_device_s, t.measured_device_s},
    };
    struct table *table = table_open(columns, 4);
    for (size_t i = isnan(idle_s) ? 1 : 0; i < sizeof rows / sizeof rows[0]; i++) {
        table_text(table, rows[i].name);
        put_seconds(table, rows[i].predicted_s);
        put_seconds(table, rows[i].measured_s);
        put_percent(table, signed_error(rows[i].predicted_s, rows[i].measured_s));
    }
    return table;
}

static struct table *spread_table(const struct accuracy *accuracy, bool of_device) {
    static const char *const columns[] = {"phase", "submissions", "steps", "median",
                                          "p5",    "p95",         "mean",  "median_size"};
    struct table *table = table_open(columns, 8);
    for (uint32_t kind = 0; kind <= STEP_CLASS_COUNT; kind++) {
        struct spread spread = spread_of(accuracy, kind, of_device);
        if (spread.submissions > 0 || kind == STEP_CLASS_COUNT) {
            table_text(table, kind < STEP_CLASS_COUNT ? step_class_names[kind] : "all");
            table_whole(table, (int64_t)spread.submissions);
            table_whole(table, (int64_t)spread.steps);
            put_percent(table, spread.median);
            put_percent(table, spread.p5);
            put_percent(table, spread.p95);
            put_percent(table, spread.mean);
            put_size(table, spread.median_size);
        }
    }
    return table;
}

static struct table *operator_table(const struct accuracy *accuracy) {
    static const char *const columns[] = {"operator", "segment", "predicted",
                                          "measured", "share",   "error"};
    const struct graph *graph = &accuracy->system->graph;
    struct table *table = table_open(columns, 6);
    double sum_ns = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        sum_ns += accuracy->ops[i].measured_ns;
    }
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct compared_operator *op = &accuracy->ops[i];
        if (op->measured_ns > 0 || op->predicted_ns > 0) {
            table_text(table, graph->ops[i].name);
            table_text(table, graph->segments[graph->ops[i].segment].name);
            put_seconds(table, 1e-9 * op->predicted_ns / accuracy->n_by_operator);
            put_seconds(table, 1e-9 * op->measured_ns / accuracy->n_by_operator);
            put_size(table, op->measured_ns / sum_ns);
            put_percent(table, signed_error(op->predicted_ns, op->measured_ns));
        }
    }
    return table;
}

static void print_table(struct table *table, FILE *out) {
    table_print(table, out);
    table_close(table);
}

static void print_within(const struct accuracy *accuracy, FILE *out) {
    for (int i = 0; i < N_BOUNDS; i++) {
        fprintf(out, "%s%.0f %%: %.1f %% of the steps (device time: %.1f %%)",
                i == 0 ? "\nwithin " : "; within ", 100 * bounds[i],
                100 * share_within(accuracy, false, bounds[i]),
                100 * share_within(accuracy, true, bounds[i]));
    }
    fprintf(out, "\n");
}

void accuracy_print(const struct accuracy *accuracy, FILE *out) {
    fprintf(out, "\npredicted against measured (error = predicted / measured - 1)\n");
    print_table(totals_table(accuracy), out);
    fprintf(out, "\nerrors of a step's time, start to end\n");
    print_table(spread_table(accuracy, false), out);
    fprintf(out, "\nerrors of a step's device time\n");
    print_table(spread_table(accuracy, true), out);
    print_within(accuracy, out);
    if (accuracy->n_by_operator > 0) {
        fprintf(out,
                "\noperators, mean of %" PRIu32 " steps; measured one by one with the queue "
                "drained in between, then scaled to the step's device time when run whole\n",
                accuracy->n_by_operator);
        print_table(operator_table(accuracy), out);
    }
}

/* ---- for programs ---- */

static json_t *rows_of(struct table *table) {
    json_t *rows = table_json(table);
    table_close(table);
    return rows;
}

static json_t *within_json(const struct accuracy *accuracy) {
    static const char *const columns[] = {"bound", "wall", "device"};
    struct table *table = table_open(columns, 3);
    for (int i = 0; i < N_BOUNDS; i++) {
        table_number(table, bounds[i], "%g");
        table_number(table, share_within(accuracy, false, bounds[i]), "%.3f");
        table_number(table, share_within(accuracy, true, bounds[i]), "%.3f");
    }
    return rows_of(table);
}

json_t *accuracy_json(const struct accuracy *accuracy) {
    json_t *object = json_object();
    int failed = json_object_set_new(object, "totals", rows_of(totals_table(accuracy))) |
                 json_object_set_new(object, "wall", rows_of(spread_table(accuracy, false))) |
                 json_object_set_new(object, "device", rows_of(spread_table(accuracy, true))) |
                 json_object_set_new(object, "within", within_json(accuracy));
    if (accuracy->n_by_operator > 0) {
        failed |=
            json_object_set_new(object, "operator_steps", json_integer(accuracy->n_by_operator)) |
            json_object_set_new(object, "operators", rows_of(operator_table(accuracy)));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- written ---- */

static const char csv_head[] = "submission,kind,steps";

static void write_row(const struct compared_step *step, size_t index, FILE *out) {
    fprintf(out, "%zu,%s,%" PRIu32, index, step_class_names[step->kind], step->steps);
    for (int i = 0; i < SYM_COUNT; i++) {
        fprintf(out, ",%" PRId64, step->sym[i]);
    }
    fprintf(out, ",%.9g,%.9g,%.9g,%.9g,%.9g,%.6g\n", step->predicted_device_ns,
            step->predicted_host_ns, step->predicted_wall_ns, step->measured_device_ns,
            step->measured_wall_ns, signed_error(step->predicted_wall_ns, step->measured_wall_ns));
}

int accuracy_write(const struct accuracy *accuracy, const char *path, struct err *err) {
    if (output_may_replace(path, csv_head, "a table of compared steps", err) != 0) {
        return (int)err->kind;
    }
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        return err_world(err, "cannot write '%s': %s", path, strerror(errno));
    }
    fputs(csv_head, out);
    for (int i = 0; i < SYM_COUNT; i++) {
        fprintf(out, ",%s", symbol_names[i]);
    }
    fputs(",predicted_device_ns,predicted_host_ns,predicted_wall_ns,measured_device_ns,"
          "measured_wall_ns,error\n",
          out);
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        write_row(&accuracy->steps[i], i, out);
    }
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    return failed ? err_world(err, "cannot write '%s': %s", path, strerror(errno)) : 0;
}

/* ---- read ---- */

/* Columns that are read: these, then the symbols. */
enum { COLUMN_KIND, COLUMN_STEPS, COLUMN_DEVICE, COLUMN_WALL, COLUMN_SYM };
enum { READ_COLUMNS = COLUMN_SYM + SYM_COUNT, MOST_FIELDS = 64 };

/* Counts below 2^32 and products below 2^53 keep every sum of the cost model exact. */
static const uint64_t max_count = UINT32_MAX, max_product = UINT64_C(1) << 53;

static const char *column_name(int column) {
    static const char *const names[COLUMN_SYM] = {"kind", "steps", "measured_device_ns",
                                                  "measured_wall_ns"};
    return column < COLUMN_SYM ? names[column] : symbol_names[column - COLUMN_SYM];
}

struct steps_file {
    const char *path;
    FILE *file;
    char *text; /* of the line, its commas replaced by ends */
    size_t room;
    struct line line;
    char *fields[MOST_FIELDS];
    int n_fields;               /* of the line; may exceed MOST_FIELDS, the first are kept */
    int n_columns;              /* of the header */
    int position[READ_COLUMNS]; /* of each column that is read */
};

/* The next line in fields. `*ended` at the end of the file. */
static int next_line(struct steps_file *steps, bool *ended, struct err *err) {
    errno = 0;
    ssize_t length = getline(&steps->text, &steps->room, steps->file);
    *ended = length < 0;
    if (length < 0) {
        return errno == 0 ? 0
                          : err_world(err, "cannot read '%s': %s", steps->path, strerror(errno));
    }
    steps->line.number++;
    char *end = steps->text + length - 1;
    if (*end != '\n') {
        return err_world(err, "%s:%" PRIu64 ": the line does not end: the file was cut off",
                         steps->path, steps->line.number);
    }
    *end = '\0';
    if (end > steps->text && end[-1] == '\r') {
        end[-1] = '\0';
    }
    steps->n_fields = 0;
    for (char *rest = steps->text; rest != NULL; steps->n_fields++) {
        char *field = strsep(&rest, ",");
        if (steps->n_fields < MOST_FIELDS) {
            steps->fields[steps->n_fields] = field;
        }
    }
    return 0;
}

static int read_head(struct steps_file *steps, struct err *err) {
    bool ended;
    int status = next_line(steps, &ended, err);
    if (status != 0) {
        return status;
    }
    if (ended || steps->n_fields > MOST_FIELDS) {
        return err_world(err, "%s:1: expected the header of a table of steps", steps->path);
    }
    steps->n_columns = steps->n_fields;
    for (int column = 0; column < READ_COLUMNS; column++) {
        int n = 0;
        for (int i = 0; i < steps->n_fields; i++) {
            if (strcmp(steps->fields[i], column_name(column)) == 0) {
                steps->position[column] = i;
                n++;
            }
        }
        if (n != 1) {
            return err_world(err, "%s:1: %s column '%s'; expected a table of steps", steps->path,
                             n == 0 ? "no" : "more than one", column_name(column));
        }
    }
    return 0;
}

static const char *field_of(const struct steps_file *steps, int column) {
    return steps->fields[steps->position[column]];
}

static int bad_field(const struct steps_file *steps, int column, const char *expected,
                     struct err *err) {
    const char *text = field_of(steps, column);
    return field_bad(&steps->line, text, strlen(text), column_name(column), expected, err);
}

static int read_kind(const struct steps_file *steps, uint32_t *kind, struct err *err) {
    for (*kind = 0; *kind < STEP_CLASS_COUNT; (*kind)++) {
        if (strcmp(field_of(steps, COLUMN_KIND), step_class_names[*kind]) == 0) {
            return 0;
        }
    }
    return bad_field(steps, COLUMN_KIND, "refresh, reuse, selecting or mixed", err);
}

static int read_symbols(const struct steps_file *steps, int64_t sym[SYM_COUNT], struct err *err) {
    for (int i = 0; i < SYM_COUNT; i++) {
        bool is_product = i == SYM_FULL_QK || i == SYM_BLOCK_QK || i == SYM_FIRST_QK;
        uint64_t value;
        const char *expected = i == SYM_ONE ? "1"
                               : is_product ? "a whole number up to 2^53"
                                            : "a whole number below 2^32";
        if (!num_u64(field_of(steps, COLUMN_SYM + i), is_product ? max_product : max_count,
                     &value) ||
            (i == SYM_ONE && value != 1)) {
            return bad_field(steps, COLUMN_SYM + i, expected, err);
        }
        sym[i] = (int64_t)value;
    }
    return 0;
}

/* Time of a step in ns; 0 where it may be unknown. */
static int read_time(const struct steps_file *steps, int column, bool may_be_unknown, double *out,
                     struct err *err) {
    const double most_ns = 1e18;
    if (num_f64(field_of(steps, column), out) && *out <= most_ns &&
        (may_be_unknown ? *out >= 0 : *out > 0)) {
        return 0;
    }
    return bad_field(
        steps, column,
        may_be_unknown ? "a time from 0 to 1e18 ns" : "a time above 0 and up to 1e18 ns", err);
}

/* What holds between the sums of any batch (shape_add): a + b = c, or a + b <= c; a `b` of
 * SYM_COUNT is none. */
static const struct {
    enum symbol a, b;
    bool equal;
    enum symbol c;
} laws[] = {
    {SYM_FULL_N, SYM_BLOCK_N, true, SYM_REQUESTS},
    {SYM_FULL_Q, SYM_BLOCK_Q, true, SYM_TOKENS},
    {SYM_CONTEXT_ROWS, SYM_BLOCK_Q, true, SYM_BLOCK_K},
    {SYM_FIRST_N, SYM_COUNT, true, SYM_REQUESTS},
    {SYM_REFRESH_N, SYM_SELECT_N, false, SYM_REQUESTS},
    {SYM_ONE, SYM_COUNT, false, SYM_REQUESTS},
    {SYM_FULL_N, SYM_COUNT, false, SYM_FULL_Q},
    {SYM_FULL_Q, SYM_COUNT, false, SYM_FULL_QK},
    {SYM_BLOCK_N, SYM_COUNT, false, SYM_BLOCK_Q},
    {SYM_BLOCK_K, SYM_COUNT, false, SYM_BLOCK_QK},
    {SYM_FIRST_N, SYM_COUNT, false, SYM_FIRST_TOKENS},
    {SYM_FIRST_TOKENS, SYM_COUNT, false, SYM_FIRST_QK},
};

static const char *name_of(enum symbol symbol) {
    return symbol < SYM_COUNT ? symbol_names[symbol] : "";
}

static int check_laws(const struct steps_file *steps, const int64_t sym[SYM_COUNT],
                      struct err *err) {
    for (size_t i = 0; i < sizeof laws / sizeof laws[0]; i++) {
        int64_t left = sym[laws[i].a] + (laws[i].b < SYM_COUNT ? sym[laws[i].b] : 0);
        int64_t right = sym[laws[i].c];
        if (laws[i].equal ? left != right : left > right) {
            return err_world(err,
                             "%s:%" PRIu64 ": %s%s%s is %" PRId64 ", expected %s%s, which is "
                             "%" PRId64,
                             steps->path, steps->line.number, name_of(laws[i].a),
                             laws[i].b < SYM_COUNT ? " + " : "", name_of(laws[i].b), left,
                             laws[i].equal ? "" : "at most ", name_of(laws[i].c), right);
        }
    }
    return 0;
}

/* Whether some operator's work grows with the symbol. */
static bool is_priced(const struct graph *graph, enum symbol symbol) {
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].rows == symbol || graph->ops[i].span_n == symbol) {
            return true;
        }
    }
    return false;
}

/* A step that the system would never take has no price: work it has no operator for would cost
 * nothing, and padding needs the requests one by one. */
static int check_system(const struct steps_file *steps, const struct system *system,
                        const int64_t sym[SYM_COUNT], struct err *err) {
    static const enum symbol optional[] = {SYM_BLOCK_N, SYM_SELECT_ROWS, SYM_PACK_ROWS,
                                           SYM_VALUE_ROWS, SYM_FIRST_TOKENS};
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
        enum symbol symbol = optional[i];
        int64_t usual = symbol == SYM_FIRST_TOKENS ? sym[SYM_TOKENS] : 0;
        if (sym[symbol] != usual && !is_priced(&system->graph, symbol)) {
            return err_world(err,
                             "%s:%" PRIu64 ": %s is %" PRId64 ", for which %s has no operator: the "
                             "steps are another system's",
                             steps->path, steps->line.number, symbol_names[symbol], sym[symbol],
                             system->name);
        }
    }
    if (!system->runtime.varlen && sym[SYM_REQUESTS] > 1) {
        return err_world(err,
                         "%s:%" PRIu64 ": %s pads batches to their longest request, but of these "
                         "%" PRId64 " requests only the sums are known",
                         steps->path, steps->line.number, system->name, sym[SYM_REQUESTS]);
    }
    return 0;
}

static int read_row(const struct steps_file *steps, const struct system *system,
                    struct compared_step *out, struct err *err) {
    uint64_t n;
    *out = (struct compared_step){0};
    if (steps->n_fields != steps->n_columns) {
        return err_world(err, "%s:%" PRIu64 ": found %d field%s, expected %d as in the header",
                         steps->path, steps->line.number, steps->n_fields,
                         steps->n_fields == 1 ? "" : "s", steps->n_columns);
    }
    if (!num_u64(field_of(steps, COLUMN_STEPS), UINT32_MAX, &n) || n == 0) {
        return bad_field(steps, COLUMN_STEPS, "a whole number from 1 to 2^32 - 1", err);
    }
    out->steps = (uint32_t)n;
    int status = read_kind(steps, &out->kind, err);
    status = status != 0 ? status : read_symbols(steps, out->sym, err);
    status =
        status != 0 ? status : read_time(steps, COLUMN_DEVICE, true, &out->measured_device_ns, err);
    status =
        status != 0 ? status : read_time(steps, COLUMN_WALL, false, &out->measured_wall_ns, err);
    status = status != 0 ? status : check_laws(steps, out->sym, err);
    return status != 0 ? status : check_system(steps, system, out->sym, err);
}

/* Through the executor that prices a replay, so that both predict the same whole nanoseconds. */
static int predict(struct executor_sim *sim, struct compared_step *step, struct err *err) {
    struct executor executor = executor_sim_interface(sim);
    struct step_shape shape = {0};
    memcpy(shape.sym, step->sym, sizeof shape.sym);
    struct submission submission = {.repeat = 1, .stop_ns = INT64_MAX, .shape = &shape};
    struct completion done;
    int status = executor.submit(executor.state, &submission, err);
    status = status != 0 ? status : executor.wait(executor.state, INT64_MAX, &done, err);
    if (status == 0) {
        step->predicted_device_ns = (double)done.gpu_ns;
        step->predicted_host_ns = (double)done.host_ns;
        step->predicted_wall_ns = (double)(done.time_ns - done.start_ns);
    }
    return status;
}

static void make_room(struct accuracy *accuracy) {
    if (accuracy->n_steps == accuracy->room) {
        accuracy->room = 2 * accuracy->room + 64;
        accuracy->steps = realloc(accuracy->steps, accuracy->room * sizeof *accuracy->steps);
        ASSERT(accuracy->steps != NULL);
    }
}

static int read_rows(struct steps_file *steps, struct accuracy *accuracy, struct err *err) {
    /* Padding was ruled out, row by row. */
    struct executor_sim *sim = executor_sim_open(accuracy->system->cost, true, 1);
    bool ended = false;
    int status = read_head(steps, err);
    while (status == 0) {
        struct compared_step step;
        status = next_line(steps, &ended, err);
        if (ended) {
            break;
        }
        status = status != 0 ? status : read_row(steps, accuracy->system, &step, err);
        status = status != 0 ? status : predict(sim, &step, err);
        if (status == 0) {
            make_room(accuracy);
            accuracy_add(accuracy, &step);
        }
    }
    if (status == 0 && accuracy->n_steps == 0) {
        status = err_world(err, "'%s' holds no steps", steps->path);
    }
    executor_sim_close(sim);
    return status;
}

int accuracy_read(const char *path, const struct system *system, struct accuracy *out,
                  struct err *err) {
    struct steps_file steps = {.path = path, .file = fopen(path, "r"), .line = {.path = path}};
    if (steps.file == NULL) {
        return err_world(err, "cannot read '%s': %s", path, strerror(errno));
    }
    accuracy_init(out, system, 0, 0);
    out->idle_ns = (double)NAN;
    int status = read_rows(&steps, out, err);
    free(steps.text);
    fclose(steps.file);
    if (status != 0) {
        accuracy_fini(out);
    }
    return status;
}
