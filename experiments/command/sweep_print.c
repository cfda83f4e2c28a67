/* A sweep's results, for people and for programs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "experiments/command/sample_cells.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/cmd.h"
#include "experiments/run/prices.h"
#include "experiments/run/sweep/sweep.h"
#include "sim/base/mem.h"

size_t sweep_place(const struct sweep *sweep, size_t point, size_t i_axis) {
    for (size_t i = sweep->n_axes - 1; i > i_axis; i--) {
        point /= sweep->axes[i].n;
    }
    return point % sweep->axes[i_axis].n;
}

const char *sweep_value(const struct sweep *sweep, size_t point, size_t i_axis) {
    return sweep->axes[i_axis].values[sweep_place(sweep, point, i_axis)];
}

const char *sweep_name(const struct sweep *sweep, size_t point, size_t i_axis) {
    return sweep->axes[i_axis].names[sweep_place(sweep, point, i_axis)];
}

/* The first run with each value of an axis gives it its name. */
static void name_axis(struct sweep *sweep, size_t a) {
    struct axis *axis = &sweep->axes[a];
    const json_t **runs = mem_zeroed(axis->n + 1, sizeof *runs);
    for (size_t p = sweep->n_points; p-- > 0;) {
        const json_t *run = sample_any(&sweep->samples[p]);
        const size_t at = sweep_place(sweep, p, a);
        runs[at] = run != NULL ? run : runs[at];
    }
    axis->names = mem_zeroed(axis->n + 1, sizeof *axis->names);
    over_names(axis->name, axis->values, runs, axis->n, axis->names);
    free(runs);
}

static bool has_axis(const struct sweep *sweep, enum axis_kind kind) {
    for (size_t a = 0; a < sweep->n_axes; a++) {
        if (sweep->axes[a].kind == kind) {
            return true;
        }
    }
    return false;
}

size_t sweep_axis(const struct sweep *sweep, const char *key) {
    size_t a = 0;
    while (a < sweep->n_axes && strcmp(sweep->axes[a].name, key) != 0) {
        a++;
    }
    return a;
}

static bool is_against(const struct sweep *sweep) {
    return sweep->against.key[0] != '\0';
}

/* The axis along which points are compared: that of --against, or the systems. */
static size_t axis_compared(const struct sweep *sweep) {
    return is_against(sweep) ? sweep->against_axis : sweep_axis(sweep, "system");
}

/* The point that differs from this one in nothing else, and has the value of --against or the first
 * system; the point itself where nothing is compared. */
static size_t base_of(const struct sweep *sweep, size_t point) {
    size_t stride = 1, compared = axis_compared(sweep);
    for (size_t i = sweep->n_axes; i-- > 0;) {
        size_t at = point / stride % sweep->axes[i].n;
        if (i == compared) {
            return point - at * stride + (is_against(sweep) ? sweep->against_at * stride : 0);
        }
        stride *= sweep->axes[i].n;
    }
    return point;
}

static bool compares(const struct sweep *sweep) {
    size_t axis = axis_compared(sweep);
    return axis < sweep->n_axes && sweep->axes[axis].n > 1;
}

/* "the first system", or whom --against names. */
static const char *base_name(const struct sweep *sweep, char text[AGAINST_NAME_CHARS]) {
    if (!is_against(sweep)) {
        snprintf(text, AGAINST_NAME_CHARS, "the first system");
        return text;
    }
    return against_name(&sweep->against, sweep->axes[sweep->against_axis].names[sweep->against_at],
                        text);
}

/* "h800 llada2-mini": the point's values. */
static const char *point_name(const struct sweep *sweep, size_t point, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t a = 0; a < sweep->n_axes && used < size; a++) {
        used += (size_t)snprintf(text + used, size - used, "%s%.40s", a > 0 ? " " : "",
                                 sweep_name(sweep, point, a));
    }
    return text;
}

/* For the first point that has a run. */
static void warn_of_prices(struct sweep *sweep) {
    char ours[96], first[96];
    size_t base = 0;
    bool has_warned = false;
    while (base < sweep->n_points && sample_any(&sweep->samples[base]) == NULL) {
        base++;
    }
    for (size_t p = base + 1; !has_warned && p < sweep->n_points; p++) {
        has_warned =
            prices_warn(sample_any(&sweep->samples[p]), point_name(sweep, p, ours, sizeof ours),
                        sample_any(&sweep->samples[base]),
                        point_name(sweep, base, first, sizeof first), &sweep->of_prices[p]);
    }
}

void sweep_settle(struct sweep *sweep) {
    sweep->of_prices = mem_zeroed(sweep->n_points + 1, sizeof *sweep->of_prices);
    sweep->samples = mem_zeroed(sweep->n_points + 1, sizeof *sweep->samples);
    for (size_t p = 0; p < sweep->n_points; p++) {
        sweep->samples[p].n = sweep->n_seeds;
        for (size_t seed = 0; seed < sweep->n_seeds; seed++) {
            sweep->samples[p].runs[seed] = sweep->runs[p * sweep->n_seeds + seed].summary;
        }
    }
    for (size_t a = 0; a < sweep->n_axes; a++) {
        name_axis(sweep, a);
    }
    warn_of_prices(sweep);
}

/* Columns of the runs themselves, and of each point compared with its base. */
static struct warnings warnings_of(const struct sweep *sweep, size_t point) {
    const struct sample *ours = &sweep->samples[point],
                        *base = &sweep->samples[base_of(sweep, point)];
    struct warnings warnings = sample_warnings(ours);
    char name[AGAINST_NAME_CHARS];
    const json_t *any = sample_any(ours);
    if (sweep->n_seeds == 1 && sweep->n_points > 1 && !has_axis(sweep, AXIS_SEED) &&
        json_is_true(json_object_get(any, "is_drawn"))) {
        sample_warn_of_one_seed(&warnings);
    }
    if (ours != base) {
        sample_warn_of_ties(ours, base, "", base_name(sweep, name), &warnings);
    }
    if (ours != base && any != NULL && sample_warns(base, WARNING_REJECTED) > 0) {
        warnings_add(&warnings, WARNING_REJECTED, cmd_number(sample_any(base), "rejected", NULL),
                     "ratios are to %s, which rejected requests: they may compare different "
                     "requests",
                     base_name(sweep, name));
    }
    const struct warnings *more = &sweep->of_prices[point];
    for (unsigned i = 0; i < more->n; i++) {
        warnings_add(&warnings, more->items[i].code, more->items[i].value, "%s",
                     more->items[i].text);
    }
    return warnings;
}

/* ---- for people ---- */

static const enum quantity times[] = {Q_MEAN, Q_P99, Q_TTFT};
enum { N_TIMES = sizeof times / sizeof times[0] };

/* Whether prompts were asked at any point. */
static bool asks(const struct sweep *sweep) {
    for (size_t p = 0; p < sweep->n_points; p++) {
        if (sample_quality(&sweep->samples[p]).served > 0) {
            return true;
        }
    }
    return false;
}

static struct table *open_table(const struct sweep *sweep, const struct sample_units *units) {
    struct table *table = table_open("");
    for (size_t a = 0; a < sweep->n_axes; a++) {
        table_column(table, sweep->axes[a].name);
    }
    table_columns(table, has_axis(sweep, AXIS_MODEL) ? "" : "model");
    table_columns(table,
                  samples_miss_rates(sweep->samples, sweep->n_points) ? "offered req/s" : "");
    table_columns(table, "tok/s");
    table_columns(table, samples_know_energy(sweep->samples, sweep->n_points) ? "J/token" : "");
    table_columns(table, compares(sweep) ? "x tok/s|x mean" : "");
    for (size_t k = 0; k < N_TIMES; k++) {
        sample_heading(table, units, times[k]);
    }
    table_columns(table, sweep->has_slo ? "goodput req/s|attain_%" : "");
    if (sweep->has_bound) {
        sample_bound_columns(table, sweep->has_slo);
    }
    table_columns(table, asks(sweep) ? "right_%|agree_%" : "");
    table_columns(table, "done|rejected|prices|note");
    return table;
}

static const char *why_none(const struct sweep *sweep, size_t point) {
    for (size_t seed = 0; seed < sweep->n_seeds; seed++) {
        const struct campaign_point *run = &sweep->runs[point * sweep->n_seeds + seed];
        if (run->summary == NULL) {
            return run->err.text;
        }
    }
    return NULL;
}

/* Codes of this point's warnings. People are spared those of every point, which the line of
 * cautions has; `of_all` are those of every point, NULL where tables are for programs. */
static const char *note_of(const struct sweep *sweep, size_t point, const bool *of_all,
                           char out[WARNING_CODES_CHARS]) {
    const struct warnings all = warnings_of(sweep, point);
    struct warnings own = {0};
    for (unsigned i = 0; i < all.n; i++) {
        if (of_all == NULL || !of_all[all.items[i].code]) {
            own.items[own.n++] = all.items[i];
        }
    }
    return caution_codes(&own, out, WARNING_CODES_CHARS);
}

/* Which warnings every point with a result has; whether there are others. */
static bool find_shared(const struct sweep *sweep, const struct cautions *cautions,
                        bool of_all[WARNING_CODE_COUNT]) {
    size_t n = 0;
    for (size_t p = 0; p < sweep->n_points; p++) {
        n += sample_any(&sweep->samples[p]) != NULL;
    }
    bool has_others = false;
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        of_all[code] = cautions->n_of[code] == n;
        has_others = has_others || (cautions->n_of[code] > 0 && cautions->n_of[code] < n);
    }
    return has_others;
}

static void add_row(const struct sweep *sweep, const struct sample_units *units, bool has_offered,
                    const bool *of_all, size_t point, struct table *table) {
    const struct sample *sample = &sweep->samples[point];
    const struct sample *base = &sweep->samples[base_of(sweep, point)];
    const json_t *any = sample_any(sample);
    for (size_t a = 0; a < sweep->n_axes; a++) {
        table_text(table, sweep_name(sweep, point, a));
    }
    if (!has_axis(sweep, AXIS_MODEL)) {
        table_text(table, json_string_value(json_object_get(any, "model")));
    }
    if (has_offered) {
        table_three(table, sample_offered(sample));
    }
    sample_cell(table, units, sample, Q_THROUGHPUT);
    if (samples_know_energy(sweep->samples, sweep->n_points)) {
        sample_cell(table, units, sample, Q_ENERGY);
    }
    if (compares(sweep)) {
        sample_ratio_cell(table, sample, base, Q_THROUGHPUT);
        sample_ratio_cell(table, sample, base, Q_MEAN);
    }
    for (size_t k = 0; k < N_TIMES; k++) {
        sample_cell(table, units, sample, times[k]);
    }
    if (sweep->has_slo) {
        sample_cell(table, units, sample, Q_GOODPUT);
        sample_cell(table, units, sample, Q_ATTAINMENT);
    }
    if (sweep->has_bound) {
        sample_bound_cells(table, sample, sweep->has_slo);
    }
    if (asks(sweep)) {
        struct quality quality = sample_quality(sample);
        table_number(table, 100 * quality_share(quality.right, quality.judged).value, "%.1f");
        table_number(table, 100 * quality_share(quality.agreed, quality.compared).value, "%.1f");
    }
    table_add(table, "%.0f %.0f s", sample_mean(sample, "completed"),
              sample_mean(sample, "rejected"),
              json_string_value(json_object_get(any, "profile_kind")));
    char codes[WARNING_CODES_CHARS];
    const char *why = why_none(sweep, point);
    table_text(table, why != NULL ? why : note_of(sweep, point, of_all, codes));
}

static struct cautions cautions_of(const struct sweep *sweep) {
    struct cautions cautions = {0};
    char name[256];
    for (size_t p = 0; p < sweep->n_points; p++) {
        struct warnings warnings = warnings_of(sweep, p);
        cautions_add(&cautions, point_name(sweep, p, name, sizeof name), &warnings);
    }
    return cautions;
}

/* Of each point less the one that it is compared with, seed by seed. */
static void print_differences(const struct sweep *sweep, const struct sample_units *units,
                              FILE *out) {
    const enum quantity shown[] = {Q_THROUGHPUT, Q_MEAN, Q_P99, Q_TTFT, Q_GOODPUT};
    const size_t n = sizeof shown / sizeof shown[0] - !sweep->has_slo;
    char name[AGAINST_NAME_CHARS];
    struct table *table = table_open("");
    for (size_t a = 0; a < sweep->n_axes; a++) {
        table_column(table, sweep->axes[a].name);
    }
    for (size_t k = 0; k < n; k++) {
        sample_heading(table, units, shown[k]);
    }
    for (size_t p = 0; p < sweep->n_points; p++) {
        const size_t base = base_of(sweep, p);
        for (size_t a = 0; p != base && a < sweep->n_axes; a++) {
            table_text(table, sweep_name(sweep, p, a));
        }
        for (size_t k = 0; p != base && k < n; k++) {
            sample_difference_cell(table, units, &sweep->samples[p], &sweep->samples[base],
                                   shown[k]);
        }
    }
    base_name(sweep, name);
    fprintf(out, "\npaired differences to %s%s\n", name,
            samples_have_intervals(sweep->samples, sweep->n_points)
                ? ", 95 % intervals; ~: not distinguishable from it"
                : "");
    table_print(table, out);
    table_close(table);
}

void sweep_print(const struct sweep *sweep, FILE *out) {
    struct sample_units units = sample_units_of(sweep->samples, sweep->n_points);
    bool has_offered = samples_miss_rates(sweep->samples, sweep->n_points);
    struct table *table = open_table(sweep, &units);
    struct cautions cautions = cautions_of(sweep);
    bool of_all[WARNING_CODE_COUNT];
    const bool has_notes = find_shared(sweep, &cautions, of_all);
    for (size_t p = 0; p < sweep->n_points; p++) {
        add_row(sweep, &units, has_offered, table_is_csv() ? NULL : of_all, p, table);
    }
    table_print(table, out);
    table_close(table);
    if (is_against(sweep)) {
        print_differences(sweep, &units, out);
    }
    fprintf(out, "\n");
    if (compares(sweep)) {
        char name[AGAINST_NAME_CHARS];
        sample_explain_ratios(base_name(sweep, name), out);
    }
    sample_explain(sweep->samples, sweep->n_points, sweep->n_seeds, out);
    if (sweep->has_bound) {
        sample_bound_explain(sweep->n_seeds, out);
    }
    if (has_notes) {
        fprintf(out, "note: cautions that not all rows have; `unmask list cautions` says what they "
                     "mean\n");
    }
    sample_print_released(sweep->samples, sweep->n_points, out);
    cautions_print(&cautions, out);
}

/* ---- JSON ---- */

static json_t *run_json(const struct campaign_point *run) {
    return run->summary != NULL ? json_incref(run->summary)
                                : json_pack("{s:s}", "no_result", run->err.text);
}

static void put_seeds(const struct sweep *sweep, size_t point, json_t *object) {
    const struct sample *ours = &sweep->samples[point];
    json_t *runs = json_array();
    json_object_set_new(object, "spread", sample_json(ours));
    for (size_t seed = 0; seed < sweep->n_seeds; seed++) {
        json_array_append_new(runs, run_json(&sweep->runs[point * sweep->n_seeds + seed]));
    }
    json_object_set_new(object, "runs", runs);
}

json_t *sweep_json(const struct sweep *sweep) {
    json_t *array = json_array();
    for (size_t p = 0; p < sweep->n_points; p++) {
        const struct campaign_point *run = &sweep->runs[p * sweep->n_seeds];
        json_t *object = json_object(), *at = json_object();
        for (size_t a = 0; a < sweep->n_axes; a++) {
            json_object_set_new(at, sweep->axes[a].name, json_string(sweep_value(sweep, p, a)));
        }
        json_object_set_new(object, "point", at);
        if (is_against(sweep)) {
            json_object_set_new(
                object, "against",
                json_pack("{s:s}", sweep->against.key,
                          sweep_value(sweep, base_of(sweep, p), sweep->against_axis)));
        }
        if (sweep->n_seeds > 1) {
            put_seeds(sweep, p, object);
        } else if (run->summary != NULL) {
            json_object_set(object, "summary", run->summary);
        } else {
            json_object_set_new(object, "no_result", json_string(run->err.text));
        }
        if (is_against(sweep) || (sweep->n_seeds > 1 && compares(sweep))) {
            json_object_set_new(
                object, "differences",
                sample_differences_json(&sweep->samples[p], &sweep->samples[base_of(sweep, p)]));
        }
        struct warnings warnings = warnings_of(sweep, p);
        json_object_set_new(object, "warnings", caution_json(&warnings));
        json_array_append_new(array, object);
    }
    return array;
}
