#include "experiments/run/accuracy.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/run/cli/table.h"
#include "sim/base/input/csv.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/price/in_step.h"
#include "sim/serve/executor_sim.h"
#include "sim/system/system_step.h"

const char *const step_class_names[STEP_CLASS_COUNT] = {"refresh", "reuse", "selecting", "mixed"};

void accuracy_init(struct accuracy *accuracy, const struct system *system, size_t n_steps,
                   uint32_t every) {
    *accuracy = (struct accuracy){.system = system, .room = n_steps, .every = every};
    accuracy->steps = mem_zeroed(n_steps > 0 ? n_steps : 1, sizeof *accuracy->steps);
    retiming_init(&accuracy->predicted, system->settings.replicas);
    retiming_init(&accuracy->measured, system->settings.replicas);
}

void accuracy_fini(struct accuracy *accuracy) {
    free(accuracy->steps);
    retiming_fini(&accuracy->predicted);
    retiming_fini(&accuracy->measured);
    *accuracy = (struct accuracy){0};
}

enum step_class step_class_of(const struct submission *submission) {
    bool selects = false;
    uint32_t first = submission->step.requests[submission->step.slots[0]].span.phase;
    for (uint32_t i = 0; i < submission->step.n_slots; i++) {
        const struct span *span = &submission->step.requests[submission->step.slots[i]].span;
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

void accuracy_time(struct accuracy *accuracy, const struct submission *submission,
                   const struct compared_step *step, int64_t start_ns, int64_t end_ns) {
    retiming_add(&accuracy->predicted, submission, start_ns, end_ns,
                 step->steps * step->predicted_wall_ns);
    retiming_add(&accuracy->measured, submission, start_ns, end_ns,
                 step->steps * step->measured_wall_ns);
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct accuracy *accuracy = state;
    (void)err;
    retiming_request(&accuracy->predicted, record);
    retiming_request(&accuracy->measured, record);
    return 0;
}

struct sink accuracy_sink(struct accuracy *accuracy) {
    return (struct sink){.state = accuracy, .request = on_request};
}

void accuracy_finish(struct accuracy *accuracy, bool knows_requests) {
    retiming_finish(&accuracy->predicted);
    retiming_finish(&accuracy->measured);
    accuracy->knows_requests = knows_requests;
}

bool accuracy_wants_operators(const struct accuracy *accuracy) {
    return accuracy->every > 0 && accuracy->n_steps % accuracy->every == 0;
}

/* By how much the clock that a step was predicted at stretches what of its operators it stretches.
 */
static double stretch_of(const struct system *system, const struct op_price *prices,
                         double predicted_ns) {
    double ns = 0, compute_ns = 0;
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        ns += prices[i].ns;
        compute_ns += prices[i].compute_ns;
    }
    return cost_power(system->cost) != NULL && compute_ns > 0
               ? fmax(predicted_ns - ns, 0) / compute_ns
               : 0;
}

void accuracy_add_operators(struct accuracy *accuracy, const struct submission *submission,
                            const double ns[GRAPH_MAX_OPS], const struct compared_step *whole) {
    const struct system *system = accuracy->system;
    struct op_price prices[GRAPH_MAX_OPS];
    struct compared_operator *ops = accuracy->ops[whole->kind];
    uint32_t n_ops = system->graph.n_ops;
    struct in_step_part parts[GRAPH_MAX_OPS];
    double sum_ns = 0;
    for (uint32_t i = 0; i < n_ops; i++) {
        sum_ns += ns[i];
    }
    if (!(sum_ns > 0)) {
        return;
    }
    cost_explain(system->cost, submission->step.shape,
                 system_chunks(system, submission->step.shape, submission->step.workspace_bytes),
                 prices);
    const double stretch = stretch_of(system, prices, whole->predicted_device_ns);
    for (uint32_t i = 0; i < n_ops; i++) {
        parts[i] =
            (struct in_step_part){.between_ns = ns[i],
                                  .executions = in_step_executions(
                                      &system->graph, i, submission->step.shape, &prices[i])};
    }
    in_step_share(parts, n_ops, whole->measured_device_ns);
    for (uint32_t i = 0; i < n_ops; i++) {
        ops[i].predicted_ns += prices[i].ns + prices[i].compute_ns * stretch;
        ops[i].measured_ns += parts[i].ns;
    }
    accuracy->n_by_operator[whole->kind]++;
}

/* ---- errors ---- */

/* Signed errors of some steps; NaN where there are none. */
struct error_spread {
    uint64_t submissions, steps;
    double median, p5, p95, mean, median_size, p95_size;
};

static double signed_error(double predicted, double measured) {
    return measured > 0 ? predicted / measured - 1 : (double)NAN;
}

static double error_of(const struct compared_step *step, bool of_device) {
    return of_device ? signed_error(step->predicted_device_ns, step->measured_device_ns)
                     : signed_error(step->predicted_wall_ns, step->measured_wall_ns);
}

/* Over the steps of one kind, or of all where `kind` is STEP_CLASS_COUNT. */
static struct error_spread error_spread_of(const struct accuracy *accuracy, uint32_t kind,
                                           bool of_device) {
    const double none = (double)NAN;
    struct error_spread spread = {0, 0, none, none, none, none, none, none};
    uint64_t n_steps = 0;
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        n_steps += accuracy->steps[i].steps;
    }
    double *errors = mem_zeroed(n_steps, sizeof *errors);
    size_t n = 0;
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        const struct compared_step *step = &accuracy->steps[i];
        double error = error_of(step, of_device);
        if ((kind == STEP_CLASS_COUNT || step->kind == kind) && !isnan(error)) {
            spread.submissions++;
            for (uint32_t repeat = 0; repeat < step->steps; repeat++) {
                errors[n++] = error;
            }
        }
    }
    spread.steps = n;
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
        spread.p95_size = gsl_stats_quantile_from_sorted_data(errors, 1, n, 0.95);
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

/* Errors within which steps are counted: what this project wants of the median step and of the 95th
 * percentile. */
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
    const struct totals t = totals_of(accuracy);
    const struct summary *p = &accuracy->predicted.summary, *m = &accuracy->measured.summary;
    enum { OF_STEPS = 2 };
    const struct {
        const char *name;
        double predicted_s, measured_s;
    } rows[] = {
        {"steps", t.predicted_wall_s, t.measured_wall_s},
        {"device", t.predicted_device_s, t.measured_device_s},
        {"makespan", p->makespan_s, m->makespan_s},
        {"mean latency", p->latency.mean, m->latency.mean},
        {"p99 latency", p->latency.p99, m->latency.p99},
        {"first block", p->ttfb.mean, m->ttfb.mean},
    };
    const size_t n = accuracy->knows_requests ? sizeof rows / sizeof rows[0] : OF_STEPS;
    struct table *table = table_open("time|predicted|measured|error");
    for (size_t i = 0; i < n; i++) {
        table_text(table, rows[i].name);
        put_seconds(table, rows[i].predicted_s);
        put_seconds(table, rows[i].measured_s);
        put_percent(table, signed_error(rows[i].predicted_s, rows[i].measured_s));
    }
    return table;
}

static struct table *spread_table(const struct accuracy *accuracy, bool of_device) {
    struct table *table =
        table_open("phase|submissions|steps|median|p5|p95|mean|median_size|p95_size");
    for (uint32_t kind = 0; kind <= STEP_CLASS_COUNT; kind++) {
        struct error_spread spread = error_spread_of(accuracy, kind, of_device);
        if (spread.submissions > 0 || kind == STEP_CLASS_COUNT) {
            table_add(table, "s i i", kind < STEP_CLASS_COUNT ? step_class_names[kind] : "all",
                      (int64_t)spread.submissions, (int64_t)spread.steps);
            put_percent(table, spread.median);
            put_percent(table, spread.p5);
            put_percent(table, spread.p95);
            put_percent(table, spread.mean);
            put_size(table, spread.median_size);
            put_size(table, spread.p95_size);
        }
    }
    return table;
}

uint32_t accuracy_by_operator(const struct accuracy *accuracy, uint32_t kind) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < STEP_CLASS_COUNT; k++) {
        n += kind == STEP_CLASS_COUNT || kind == k ? accuracy->n_by_operator[k] : 0;
    }
    return n;
}

static struct compared_operator operator_of(const struct accuracy *accuracy, uint32_t kind,
                                            uint32_t i) {
    struct compared_operator sum = {0, 0};
    for (uint32_t k = 0; k < STEP_CLASS_COUNT; k++) {
        if (kind == STEP_CLASS_COUNT || kind == k) {
            sum.predicted_ns += accuracy->ops[k][i].predicted_ns;
            sum.measured_ns += accuracy->ops[k][i].measured_ns;
        }
    }
    return sum;
}

/* What the mean of those steps takes; what such steps do not run is left out. */
static struct table *operator_table(const struct accuracy *accuracy, uint32_t kind) {
    const struct graph *graph = &accuracy->system->graph;
    struct table *table = table_open("operator|segment|predicted|measured|share|error");
    const uint32_t n = accuracy_by_operator(accuracy, kind);
    double sum_ns = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        sum_ns += operator_of(accuracy, kind, i).measured_ns;
    }
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct compared_operator op = operator_of(accuracy, kind, i);
        if (op.measured_ns > 0 || op.predicted_ns > 0) {
            table_add(table, "s s", graph->ops[i].name,
                      graph->segments[graph->ops[i].segment].name);
            put_seconds(table, 1e-9 * op.predicted_ns / n);
            put_seconds(table, 1e-9 * op.measured_ns / n);
            put_size(table, op.measured_ns / sum_ns);
            put_percent(table, signed_error(op.predicted_ns, op.measured_ns));
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
    for (uint32_t kind = 0; kind <= STEP_CLASS_COUNT; kind++) {
        const uint32_t n = accuracy_by_operator(accuracy, kind);
        if (n > 0) {
            fprintf(out,
                    "\noperators, mean of %" PRIu32 " steps%s%s; measured between events, then "
                    "shared out so that they add up to the step run whole\n",
                    n, kind < STEP_CLASS_COUNT ? ": " : " of all kinds",
                    kind < STEP_CLASS_COUNT ? step_class_names[kind] : "");
            print_table(operator_table(accuracy, kind), out);
        }
    }
}

/* ---- for programs ---- */

static json_t *rows_of(struct table *table) {
    json_t *rows = table_json(table);
    table_close(table);
    return rows;
}

static json_t *within_json(const struct accuracy *accuracy) {
    struct table *table = table_open("bound|wall|device");
    for (int i = 0; i < N_BOUNDS; i++) {
        table_add(table, "%g %.3f %.3f", bounds[i], share_within(accuracy, false, bounds[i]),
                  share_within(accuracy, true, bounds[i]));
    }
    return rows_of(table);
}

static json_t *by_kind_json(const struct accuracy *accuracy) {
    json_t *kinds = json_object();
    for (uint32_t kind = 0; kind < STEP_CLASS_COUNT; kind++) {
        if (accuracy->n_by_operator[kind] > 0) {
            json_object_set_new(kinds, step_class_names[kind],
                                json_pack("{s:I, s:o}", "steps",
                                          (json_int_t)accuracy->n_by_operator[kind], "operators",
                                          rows_of(operator_table(accuracy, kind))));
        }
    }
    return kinds;
}

json_t *accuracy_json(const struct accuracy *accuracy) {
    const uint32_t n_by_operator = accuracy_by_operator(accuracy, STEP_CLASS_COUNT);
    json_t *object = json_object();
    int failed = json_object_set_new(object, "totals", rows_of(totals_table(accuracy)));
    failed |= json_object_set_new(object, "wall", rows_of(spread_table(accuracy, false)));
    failed |= json_object_set_new(object, "device", rows_of(spread_table(accuracy, true)));
    failed |= json_object_set_new(object, "within", within_json(accuracy));
    if (n_by_operator > 0) {
        failed |= json_object_set_new(object, "operator_steps", json_integer(n_by_operator));
        failed |= json_object_set_new(object, "operators",
                                      rows_of(operator_table(accuracy, STEP_CLASS_COUNT)));
        failed |= json_object_set_new(object, "operators_by_kind", by_kind_json(accuracy));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- written ---- */

/* As files of older programs begin, too. */
static const char csv_head[] = "submission,kind,steps";

/* "device-shared process-stopped"; "-" of none. */
static void write_codes(const struct warnings *beware, FILE *out) {
    fputs(beware->n == 0 ? "-" : "", out);
    for (unsigned i = 0; i < beware->n; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", warning_words[beware->items[i].code]);
    }
    fputc('\n', out);
}

static void write_row(const struct compared_step *step, size_t index, FILE *out) {
    fprintf(out, "%zu,%s,%" PRIu32 ",%d", index, step_class_names[step->kind], step->steps,
            step->unrolled);
    for (int i = 0; i < SYM_COUNT; i++) {
        fprintf(out, ",%" PRId64, step->sym[i]);
    }
    fprintf(out, ",%.9g,%.9g,%.9g,%.9g,%.9g,%.6g,%.9g,", step->predicted_device_ns,
            step->predicted_host_ns, step->predicted_wall_ns, step->measured_device_ns,
            step->measured_wall_ns, signed_error(step->predicted_wall_ns, step->measured_wall_ns),
            step->idle_ns);
}

int accuracy_write(const struct accuracy *accuracy, const char *path, struct err *err) {
    struct output out;
    if (output_may_replace(path, csv_head, "a table of compared steps", err) != 0 ||
        output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    fprintf(out.file, "%s,unrolled", csv_head);
    for (int i = 0; i < SYM_COUNT; i++) {
        fprintf(out.file, ",%s", symbol_names[i]);
    }
    fputs(",predicted_device_ns,predicted_host_ns,predicted_wall_ns,measured_device_ns,"
          "measured_wall_ns,error,idle_ns,beware\n",
          out.file);
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        write_row(&accuracy->steps[i], i, out.file);
        write_codes(&accuracy->beware, out.file);
    }
    return output_close(&out, true, err);
}

/* Reading a table of compared steps, and pricing its steps anew. */

/* Columns that are read: these, then the symbols. */
enum {
    COLUMN_KIND,
    COLUMN_STEPS,
    COLUMN_UNROLLED,
    COLUMN_DEVICE,
    COLUMN_WALL,
    COLUMN_IDLE,
    COLUMN_BEWARE,
    COLUMN_SYM
};
enum { READ_COLUMNS = COLUMN_SYM + SYM_COUNT };

/* With counts below 2^32 and products up to 2^53 all bytes and FLOPs stay far from overflow. */
static const uint64_t max_count = UINT32_MAX, max_product = UINT64_C(1) << 53;

/* Ends with NULL. */
static void name_columns(const char *names[READ_COLUMNS + 1]) {
    static const char *const first[COLUMN_SYM] = {
        "kind", "steps", "unrolled", "measured_device_ns", "measured_wall_ns", "idle_ns", "beware"};
    memcpy(names, first, sizeof first);
    for (int i = 0; i < SYM_COUNT; i++) {
        names[COLUMN_SYM + i] = symbol_names[i];
    }
    names[READ_COLUMNS] = NULL;
}

/* Tables from before exact policies lack their symbols, which were 0, as those of rows sampled or
 * projected apart are wherever steps are recorded: what runs them samples all. Older ones do not
 * say, either, how long the card idled before a step, nor which steps were issued at once, nor
 * whether times are the device's own. */
static uint64_t optional_columns(void) {
    uint64_t columns =
        UINT64_C(1) << COLUMN_IDLE | UINT64_C(1) << COLUMN_UNROLLED | UINT64_C(1) << COLUMN_BEWARE;
    for (int symbol = 0; symbol < SYM_COUNT; symbol++) {
        bool is_optional =
            symbol == SYM_KEPT_TOKENS || (symbol >= SYM_PREFILL_N && symbol <= SYM_PREFILL_QK) ||
            (symbol >= SYM_KEPT_Q && symbol <= SYM_KEPT_QK) || symbol >= SYM_SAMPLED_ROWS;
        columns |= (uint64_t)is_optional << (COLUMN_SYM + symbol);
    }
    return columns;
}

/* What is lacking is 0. */
static const char *field_of(const struct csv *csv, int column) {
    return csv->position[column] < 0 ? "0" : csv_field(csv, column);
}

static int read_kind(const struct csv *csv, uint32_t *kind, struct err *err) {
    for (*kind = 0; *kind < STEP_CLASS_COUNT; (*kind)++) {
        if (strcmp(field_of(csv, COLUMN_KIND), step_class_names[*kind]) == 0) {
            return 0;
        }
    }
    return csv_bad(csv, COLUMN_KIND, "refresh, reuse, selecting or mixed", err);
}

static int read_symbols(const struct csv *csv, int64_t sym[SYM_COUNT], struct err *err) {
    for (int i = 0; i < SYM_COUNT; i++) {
        bool is_product = i == SYM_FULL_QK || i == SYM_BLOCK_QK || i == SYM_FIRST_QK ||
                          i == SYM_LEAD_FULL_QK || i == SYM_LEAD_BLOCK_QK;
        uint64_t value;
        const char *expected = i == SYM_ONE ? "1"
                               : is_product ? "a whole number up to 2^53"
                                            : "a whole number below 2^32";
        if (!num_u64(field_of(csv, COLUMN_SYM + i), is_product ? max_product : max_count, &value) ||
            (i == SYM_ONE && value != 1)) {
            return csv_bad(csv, COLUMN_SYM + i, expected, err);
        }
        sym[i] = (int64_t)value;
    }
    return 0;
}

/* Time of a step, or before it, in ns; 0 where it may be unknown. */
static int read_time(const struct csv *csv, int column, bool may_be_unknown, double *out,
                     struct err *err) {
    const double most_ns = 1e18;
    if (num_f64(field_of(csv, column), out) && *out <= most_ns &&
        (may_be_unknown ? *out >= 0 : *out > 0)) {
        return 0;
    }
    return csv_bad(csv, column,
                   may_be_unknown ? "a time from 0 to 1e18 ns" : "a time above 0 and up to 1e18 ns",
                   err);
}

void accuracy_beware(struct accuracy *accuracy, const struct warnings *of_run) {
    for (unsigned i = 0; i < of_run->n; i++) {
        const struct warning *warning = &of_run->items[i];
        if (warning_spoils_times(warning->code)) {
            warnings_add(&accuracy->beware, warning->code, warning->value, "%s", warning->text);
        }
    }
}

/* The codes, of which a row has those of the whole run. */
static int read_beware(const struct csv *csv, struct warnings *out, struct err *err) {
    const char *rest = csv_field(csv, COLUMN_BEWARE), *word;
    size_t length;
    if (rest[0] == '\0' || strcmp(rest, "-") == 0) {
        return 0;
    }
    while (name_next(&rest, " ", &word, &length)) {
        const int code = warning_find(word, length);
        if (code < 0 || !warning_spoils_times((enum warning_code)code)) {
            return csv_bad(csv, COLUMN_BEWARE, "-, device-shared, device-slowed or process-stopped",
                           err);
        }
        warnings_add(out, (enum warning_code)code, (double)NAN,
                     "the run that measured these steps was marked so: their times are not the "
                     "device's own, and errors are of what else happened, too");
    }
    return 0;
}

/* What holds between the sums of any batch (shape_add): a + b = c, or a + b <= c; a `b` of
 * SYM_COUNT is none. Prefills add `more` to the left and `beside` to the right, spans that attend
 * by patterns the last symbol to the left. */
static const struct {
    enum symbol a, b;
    bool equal;
    enum symbol c, more, beside, patterned;
} laws[] = {
    {SYM_FULL_N, SYM_BLOCK_N, true, SYM_REQUESTS, SYM_PREFILL_N, SYM_COUNT, SYM_PATTERN_N},
    {SYM_FULL_Q, SYM_BLOCK_Q, true, SYM_TOKENS, SYM_PREFILL_Q, SYM_COUNT, SYM_PATTERN_Q},
    {SYM_CONTEXT_ROWS, SYM_BLOCK_Q, true, SYM_BLOCK_K, SYM_PREFILL_Q, SYM_PREFILL_K, SYM_COUNT},
    {SYM_FIRST_N, SYM_COUNT, true, SYM_REQUESTS, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_REFRESH_N, SYM_SELECT_N, false, SYM_REQUESTS, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_ONE, SYM_COUNT, false, SYM_REQUESTS, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_FULL_N, SYM_COUNT, false, SYM_FULL_Q, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_FULL_Q, SYM_COUNT, false, SYM_FULL_QK, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_BLOCK_N, SYM_COUNT, false, SYM_BLOCK_Q, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_BLOCK_K, SYM_COUNT, false, SYM_BLOCK_QK, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_FIRST_N, SYM_COUNT, false, SYM_FIRST_TOKENS, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_FIRST_TOKENS, SYM_COUNT, false, SYM_FIRST_QK, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_PREFILL_N, SYM_COUNT, false, SYM_PREFILL_Q, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_PREFILL_Q, SYM_COUNT, false, SYM_PREFILL_K, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_PREFILL_Q, SYM_COUNT, false, SYM_PREFILL_QK, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_KEPT_Q, SYM_COUNT, false, SYM_BLOCK_Q, SYM_COUNT, SYM_COUNT, SYM_COUNT},
    {SYM_KEPT_Q, SYM_COUNT, false, SYM_KEPT_TOKENS, SYM_COUNT, SYM_COUNT, SYM_COUNT},
};

static int64_t value_of(const int64_t sym[SYM_COUNT], enum symbol symbol) {
    return symbol < SYM_COUNT ? sym[symbol] : 0;
}

/* " + NAME", or nothing where there is none of it. */
static const char *addend(const int64_t sym[SYM_COUNT], enum symbol symbol, bool always,
                          char text[64]) {
    text[0] = '\0';
    if (symbol < SYM_COUNT && (always || sym[symbol] != 0)) {
        snprintf(text, 64, " + %s", symbol_names[symbol]);
    }
    return text;
}

static int check_laws(const struct csv *csv, const int64_t sym[SYM_COUNT], struct err *err) {
    for (size_t i = 0; i < sizeof laws / sizeof laws[0]; i++) {
        int64_t left = sym[laws[i].a] + value_of(sym, laws[i].b) + value_of(sym, laws[i].more) +
                       value_of(sym, laws[i].patterned);
        int64_t right = sym[laws[i].c] + value_of(sym, laws[i].beside);
        if (laws[i].equal ? left != right : left > right) {
            char b[64], more[64], beside[64], patterned[64];
            return err_world(
                err, "%s:%" PRIu64 ": %s%s%s%s is %" PRId64 ", expected %s%s%s, which is %" PRId64,
                csv->line.path, csv->line.number, symbol_names[laws[i].a],
                addend(sym, laws[i].b, true, b), addend(sym, laws[i].more, false, more),
                addend(sym, laws[i].patterned, false, patterned), left,
                laws[i].equal ? "" : "at most ", symbol_names[laws[i].c],
                addend(sym, laws[i].beside, false, beside), right);
        }
    }
    return 0;
}

/* Whether some operator has this number of rows. */
static bool is_priced(const struct graph *graph, enum symbol symbol) {
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].rows == symbol) {
            return true;
        }
    }
    return false;
}

/* A step that the system would never take has no price: work it has no operator for would cost
 * nothing, and padding needs the requests one by one. */
static int check_system(const struct csv *csv, const struct system *system,
                        const int64_t sym[SYM_COUNT], struct err *err) {
    static const enum symbol optional[] = {SYM_SELECT_ROWS, SYM_PACK_ROWS, SYM_VALUE_ROWS,
                                           SYM_FIRST_TOKENS};
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
        enum symbol symbol = optional[i];
        int64_t usual = symbol == SYM_FIRST_TOKENS ? sym[SYM_TOKENS] : 0;
        if (sym[symbol] != usual && !is_priced(&system->graph, symbol)) {
            return err_world(err,
                             "%s:%" PRIu64 ": %s is %" PRId64 ", for which %s has no operator: the "
                             "steps are another system's",
                             csv->line.path, csv->line.number, symbol_names[symbol], sym[symbol],
                             system->name);
        }
    }
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        const struct op *op = &system->graph.ops[i];
        const enum symbol sums[] = {op->rows, op->span_q, op->span_k, op->span_qk};
        for (size_t k = 0; k < sizeof sums / sizeof sums[0] && op_is_attention(op); k++) {
            if (sym[op->span_n] > 0 && sym[sums[k]] == 0) {
                return err_world(err,
                                 "%s:%" PRIu64 ": %s is 0 although %s is %" PRId64 ", as in no "
                                 "step of %s: the steps are another system's",
                                 csv->line.path, csv->line.number, symbol_names[sums[k]],
                                 symbol_names[op->span_n], sym[op->span_n], system->name);
            }
        }
    }
    if (!system->runtime.varlen && sym[SYM_REQUESTS] > 1) {
        return err_world(err,
                         "%s:%" PRIu64 ": %s pads batches to their longest request, but of these "
                         "%" PRId64 " requests only the sums are known",
                         csv->line.path, csv->line.number, system->name, sym[SYM_REQUESTS]);
    }
    return 0;
}

static int read_row(struct csv *csv, const struct system *system, struct compared_step *out,
                    struct warnings *beware, struct err *err) {
    uint64_t n, unrolled;
    *out = (struct compared_step){0};
    if (csv_row(csv, err) != 0) {
        return (int)err->kind;
    }
    if (!num_u64(field_of(csv, COLUMN_STEPS), UINT32_MAX, &n) || n == 0) {
        return csv_bad(csv, COLUMN_STEPS, "a whole number from 1 to 2^32 - 1", err);
    }
    out->steps = (uint32_t)n;
    if (!num_u64(field_of(csv, COLUMN_UNROLLED), 1, &unrolled)) {
        return csv_bad(csv, COLUMN_UNROLLED, "0 or 1", err);
    }
    out->unrolled = unrolled == 1;
    int status = read_kind(csv, &out->kind, err);
    status = status != 0 ? status : read_symbols(csv, out->sym, err);
    status =
        status != 0 ? status : read_time(csv, COLUMN_DEVICE, true, &out->measured_device_ns, err);
    status = status != 0 ? status : read_time(csv, COLUMN_WALL, false, &out->measured_wall_ns, err);
    status = status != 0 ? status : read_time(csv, COLUMN_IDLE, true, &out->idle_ns, err);
    status = status != 0 ? status : read_beware(csv, beware, err);
    status = status != 0 ? status : check_laws(csv, out->sym, err);
    return status != 0 ? status : check_system(csv, system, out->sym, err);
}

/* Through the executor that prices a replay, so that both predict the same whole nanoseconds. Where
 * the card has a clock each step leaves it to the next, and it rises while the card idles, of which
 * seconds are as good as hours. */
static int predict(struct executor_sim *sim, const struct system *system,
                   struct compared_step *step, struct err *err) {
    static const double most_idle_ns = 60e9;
    const bool has_clock = cost_power(system->cost) != NULL;
    struct step_shape shape = {0};
    memcpy(shape.sym, step->sym, sizeof shape.sym);
    /* The file does not say what was cached for these rows. */
    const struct submission submission = {
        .repeat = has_clock || step->unrolled ? step->steps : 1,
        .unrolled = step->unrolled,
        .stop_ns = INT64_MAX,
        .step = {.shape = &shape, .workspace_bytes = budget_workspace_bytes(&system->budget, 0)}};
    struct completion done;
    const int64_t idle_ns = llround(fmin(step->idle_ns, most_idle_ns));
    const int status = executor_sim_play(sim, &submission, idle_ns, &done, err);
    if (status == 0) {
        step->predicted_device_ns = (double)done.gpu_ns;
        step->predicted_host_ns = (double)done.host_ns;
        step->predicted_wall_ns = (double)(done.time_ns - done.start_ns) / done.steps;
    }
    return status;
}

static int read_rows(struct csv *csv, struct accuracy *accuracy, struct err *err) {
    struct executor_sim *sim = executor_sim_open(accuracy->system, 1);
    const char *names[READ_COLUMNS + 1];
    bool more;
    name_columns(names);
    int status = csv_first(csv, names, optional_columns(), false, err);
    while (status == 0 && (status = csv_line(csv, &more, err)) == 0 && more) {
        struct compared_step step;
        status = read_row(csv, accuracy->system, &step, &accuracy->beware, err);
        status = status != 0 ? status : predict(sim, accuracy->system, &step, err);
        if (status == 0) {
            accuracy->steps =
                mem_grown(accuracy->steps, accuracy->n_steps, &accuracy->room, sizeof step);
            accuracy_add(accuracy, &step);
        }
    }
    if (status == 0 && accuracy->n_steps == 0) {
        status = err_world(err, "'%s' holds no steps", csv->line.path);
    }
    executor_sim_close(sim);
    return status;
}

int accuracy_read(const char *path, const struct system *system, struct accuracy *out,
                  struct err *err) {
    struct csv csv;
    accuracy_init(out, system, 0, 0);
    int status = csv_open(&csv, path, "steps", err);
    status = status == 0 ? read_rows(&csv, out, err) : status;
    csv_close(&csv);
    if (status != 0) {
        accuracy_fini(out);
    }
    return status;
}
