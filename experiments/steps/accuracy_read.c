/* Reading a table of compared steps, and pricing its steps anew. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/steps/accuracy.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/input/csv.h"
#include "sim/serve/executor_sim.h"

/* Columns that are read: these, then the symbols. */
enum {
    COLUMN_KIND,
    COLUMN_STEPS,
    COLUMN_UNROLLED,
    COLUMN_DEVICE,
    COLUMN_WALL,
    COLUMN_IDLE,
    COLUMN_SYM
};
enum { READ_COLUMNS = COLUMN_SYM + SYM_COUNT };

/* With counts below 2^32 and products up to 2^53 all bytes and FLOPs stay far from overflow. */
static const uint64_t max_count = UINT32_MAX, max_product = UINT64_C(1) << 53;

/* Ends with NULL. */
static void name_columns(const char *names[READ_COLUMNS + 1]) {
    static const char *const first[COLUMN_SYM] = {
        "kind", "steps", "unrolled", "measured_device_ns", "measured_wall_ns", "idle_ns"};
    memcpy(names, first, sizeof first);
    for (int i = 0; i < SYM_COUNT; i++) {
        names[COLUMN_SYM + i] = symbol_names[i];
    }
    names[READ_COLUMNS] = NULL;
}

/* Tables from before exact policies lack their symbols, which were 0, as those of rows sampled or
 * projected apart are wherever steps are recorded: what runs them samples all. Older ones do not
 * say, either, how long the card idled before a step, nor which steps were issued at once. */
static uint64_t optional_columns(void) {
    uint64_t columns = UINT64_C(1) << COLUMN_IDLE | UINT64_C(1) << COLUMN_UNROLLED;
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
        bool is_product = i == SYM_FULL_QK || i == SYM_BLOCK_QK || i == SYM_FIRST_QK;
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

/* What holds between the sums of any batch (shape_add): a + b = c, or a + b <= c; a `b` of
 * SYM_COUNT is none. Prefills add `more` to the left and the last symbol to the right. */
static const struct {
    enum symbol a, b;
    bool equal;
    enum symbol c, more, beside;
} laws[] = {
    {SYM_FULL_N, SYM_BLOCK_N, true, SYM_REQUESTS, SYM_PREFILL_N, SYM_COUNT},
    {SYM_FULL_Q, SYM_BLOCK_Q, true, SYM_TOKENS, SYM_PREFILL_Q, SYM_COUNT},
    {SYM_CONTEXT_ROWS, SYM_BLOCK_Q, true, SYM_BLOCK_K, SYM_PREFILL_Q, SYM_PREFILL_K},
    {SYM_FIRST_N, SYM_COUNT, true, SYM_REQUESTS, SYM_COUNT, SYM_COUNT},
    {SYM_REFRESH_N, SYM_SELECT_N, false, SYM_REQUESTS, SYM_COUNT, SYM_COUNT},
    {SYM_ONE, SYM_COUNT, false, SYM_REQUESTS, SYM_COUNT, SYM_COUNT},
    {SYM_FULL_N, SYM_COUNT, false, SYM_FULL_Q, SYM_COUNT, SYM_COUNT},
    {SYM_FULL_Q, SYM_COUNT, false, SYM_FULL_QK, SYM_COUNT, SYM_COUNT},
    {SYM_BLOCK_N, SYM_COUNT, false, SYM_BLOCK_Q, SYM_COUNT, SYM_COUNT},
    {SYM_BLOCK_K, SYM_COUNT, false, SYM_BLOCK_QK, SYM_COUNT, SYM_COUNT},
    {SYM_FIRST_N, SYM_COUNT, false, SYM_FIRST_TOKENS, SYM_COUNT, SYM_COUNT},
    {SYM_FIRST_TOKENS, SYM_COUNT, false, SYM_FIRST_QK, SYM_COUNT, SYM_COUNT},
    {SYM_PREFILL_N, SYM_COUNT, false, SYM_PREFILL_Q, SYM_COUNT, SYM_COUNT},
    {SYM_PREFILL_Q, SYM_COUNT, false, SYM_PREFILL_K, SYM_COUNT, SYM_COUNT},
    {SYM_PREFILL_Q, SYM_COUNT, false, SYM_PREFILL_QK, SYM_COUNT, SYM_COUNT},
    {SYM_KEPT_Q, SYM_COUNT, false, SYM_BLOCK_Q, SYM_COUNT, SYM_COUNT},
    {SYM_KEPT_Q, SYM_COUNT, false, SYM_KEPT_TOKENS, SYM_COUNT, SYM_COUNT},
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
        int64_t left = sym[laws[i].a] + value_of(sym, laws[i].b) + value_of(sym, laws[i].more);
        int64_t right = sym[laws[i].c] + value_of(sym, laws[i].beside);
        if (laws[i].equal ? left != right : left > right) {
            char b[64], more[64], beside[64];
            return err_world(err,
                             "%s:%" PRIu64 ": %s%s%s is %" PRId64 ", expected %s%s%s, which is "
                             "%" PRId64,
                             csv->line.path, csv->line.number, symbol_names[laws[i].a],
                             addend(sym, laws[i].b, true, b),
                             addend(sym, laws[i].more, false, more), left,
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
                    struct err *err) {
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
        status = read_row(csv, accuracy->system, &step, err);
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
