/* A profile of one model and GPU from one or several calibrations: of each row and each in-step
 * factor the median, power fitted to the held steps of all. The files of calibrations before
 * 2026-11-26 have operators' times between events as they were scaled to the whole step, and do not
 * say how long events took: their parts are shared anew, and that is taken to be, of each file,
 * what has the same operator over as many rows differ least between its steps (printed: root mean
 * squares). Errors are those of the profile that comes out, over all steps. Host times are medians
 * of the files after "host:" alone, of all where none is.
 *
 *   make build/refit
 *   build/refit OUT [host:]fresh-MODEL.csv calibrate-MODEL.json... */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/calibrate/calibration_fit.h"
#include "engine/calibrate/calibration_grid.h"
#include "engine/calibrate/calibration_price.h"
#include "engine/calibrate/quantile.h"
#include "sim/base/mem.h"
#include "sim/base/output.h"
#include "sim/base/system.h"
#include "sim/price/profile/profile.h"
#include "sim/step/builder.h"
#include "sim/system/system.h"

static const struct storage bf16; /* throughout, as all calibrations that are kept */

enum { MOST_CARDS = 16, MOST_SAMPLES = MOST_CARDS * CALIBRATION_MAX_STEPS };

static struct err err;

static void check(int status, const char *what) {
    if (status != 0) {
        fprintf(stderr, "%s: %s\n", what, err.text);
        exit(1);
    }
}

static double real(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static uint32_t kind_of(const char *name) {
    uint32_t kind = 0;
    while (kind < HOST_KIND_COUNT && strcmp(step_kind_names[kind], name) != 0) {
        kind++;
    }
    return kind;
}

static void read_sides(const json_t *from, struct calibration_step *step) {
    size_t i;
    json_t *side;
    json_array_foreach(json_object_get(from, "sides"), i, side) {
        step->sides[step->n_sides++] = (struct step_side){
            kind_of(json_string_value(json_object_get(side, "kind"))),
            (uint32_t)real(side, "requests"), (uint32_t)real(side, "canvas_tokens")};
    }
}

/* In the graph's order; those that had no time and no price were left out. */
static void read_operators(const json_t *from, const struct graph *graph,
                           struct calibration_step *step) {
    const json_t *list = json_object_get(from, "operators");
    size_t next = 0;
    step->n_operators = graph->n_ops;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        struct step_operator *to = &step->operators[i];
        const json_t *one = json_array_get(list, next);
        *to = (struct step_operator){.kind = op->kind,
                                     .key = correction_key_of(op_size_of(graph, op))};
        if (one == NULL ||
            strcmp(json_string_value(json_object_get(one, "size")), to->key.text) != 0 ||
            strcmp(json_string_value(json_object_get(one, "operator")), op_kind_names[op->kind]) !=
                0) {
            continue;
        }
        next++;
        to->rows = (int64_t)real(one, "rows");
        const json_t *between = json_object_get(one, "between_ns");
        to->between_ns = between != NULL ? json_number_value(between) : real(one, "measured_ns");
        to->experts_hit = json_number_value(json_object_get(one, "experts_hit"));
    }
    if (next != json_array_size(list)) {
        fprintf(stderr, "operator %zu is not one of the graph's\n", next);
        exit(1);
    }
}

static void read_held(const json_t *from, struct calibration_step *step) {
    const json_t *held = json_object_get(from, "held");
    if (json_is_object(held)) {
        step->held = (struct power_sample){.first_ns = real(held, "first_ns"),
                                           .settled_ns = real(held, "settled_ns"),
                                           .gap_ns = real(held, "gap_ns"),
                                           .watts = real(held, "watts"),
                                           .held_ns = real(held, "held_ns"),
                                           .lag_ms = real(held, "lag_ms")};
        if (!(step->held.held_ns > 0)) {
            step->held.held_ns = 2.5e9; /* files before 2026-11-25 */
        }
    }
}

/* The graph of every step's variant gives its operators. */
static void read_all_operators(const json_t *list, const struct model *model,
                               struct calibration_steps *steps) {
    struct graph *graph = mem_unwritten(1, sizeof *graph);
    for (int variant = 0; variant < CALIBRATION_STEP_VARIANTS; variant++) {
        if (!calibration_has_graph(model, variant)) {
            continue;
        }
        struct graph_options options = calibration_graph(model, &bf16, variant);
        graph_build(graph, model, &options);
        for (size_t i = 0; i < steps->n; i++) {
            if (calibration_step_variant(&steps->list[i]) == variant) {
                read_operators(json_array_get(list, i), graph, &steps->list[i]);
            }
        }
    }
    free(graph);
}

/* Times between events as they were before they were scaled to the step, then what is the step's.
 */
static void share(struct calibration_step *step, const struct calibration_step *scaled,
                  double event_ns) {
    double n = 0;
    for (uint32_t i = 0; i < step->n_operators; i++) {
        n += step->operators[i].between_ns > 0 ? step->operators[i].executions : 0;
    }
    for (uint32_t i = 0; i < step->n_operators; i++) {
        step->operators[i].between_ns =
            scaled->operators[i].between_ns * (1 + event_ns * n / step->device_ns);
    }
    calibration_step_share(step);
}

static void find_alone(struct calibration_steps *steps, struct calibration_step *step) {
    for (uint32_t side = 0; side < step->n_sides; side++) {
        for (size_t i = 0; i < steps->n; i++) {
            const struct calibration_step *one = &steps->list[i];
            if (one->n_sides == 1 && one->is_fused == step->is_fused &&
                memcmp(&one->sides[0], &step->sides[side], sizeof *one->sides) == 0) {
                step->alone[side] = (int)i;
            }
        }
    }
}

static struct calibration_report *load_report(const char *path, const struct system *system,
                                              struct profile *profile, bool *is_shared) {
    struct calibration_report *report = mem_zeroed(1, sizeof *report);
    json_error_t bad;
    json_t *root = json_load_file(path, 0, &bad), *one;
    const json_t *list = json_object_get(root, "steps"), *power = json_object_get(root, "power");
    size_t i;
    if (root == NULL || json_array_size(list) > CALIBRATION_MAX_STEPS) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    json_array_foreach(list, i, one) {
        struct calibration_step *step = &report->steps.list[report->steps.n++];
        read_sides(one, step);
        step->is_fused = json_is_true(json_object_get(one, "fused_head"));
        step->is_held_out = json_is_true(json_object_get(one, "held_out"));
        step->wall_ns = real(one, "wall_ns");
        step->device_ns = real(one, "device_ns");
        step->issued_ns = real(one, "issued_ns");
        step->alone[0] = step->alone[1] = -1;
        read_held(one, step);
    }
    for (i = 0; i < report->steps.n; i++) {
        find_alone(&report->steps, &report->steps.list[i]);
    }
    report->steps.idle_w = real(power, "idle_w");
    report->power_is_followed = true;
    read_all_operators(list, system->model, &report->steps);
    one = json_array_get(json_object_get(json_array_get(list, 0), "operators"), 0);
    *is_shared = json_object_get(one, "between_ns") != NULL;
    json_decref(root);
    const struct calibration_prices prices = {system, profile, &bf16};
    check(calibration_price(&report->steps, &prices, &err), path);
    return report;
}

/* An operator over some rows in one of the steps that are fitted. */
struct seen {
    enum op_kind kind;
    const char *key;
    double rows, factor, ns, hits;
};

static int by_operator(const void *a, const void *b) {
    const struct seen *x = a, *y = b;
    int order = (x->kind > y->kind) - (x->kind < y->kind);
    order = order != 0 ? order : strcmp(x->key, y->key);
    return order != 0 ? order : (x->rows > y->rows) - (x->rows < y->rows);
}

/* How much the same operator over as many rows differs between fused steps: the mean square. */
static double difference(const struct calibration_report *report) {
    static struct seen seen[CALIBRATION_MAX_STEPS * GRAPH_MAX_OPS];
    double squares = 0, weights = 0;
    size_t n = 0;
    for (size_t i = 0; i < report->steps.n; i++) {
        const struct calibration_step *step = &report->steps.list[i];
        const bool counts =
            step->is_fused && !step->is_held_out && !calibration_step_is_long(step->device_ns);
        for (uint32_t op = 0; counts && op < step->n_operators; op++) {
            const struct step_operator *one = &step->operators[op];
            if (one->measured_ns > 0 && one->priced_ns > 0) {
                seen[n++] = (struct seen){one->kind,         one->key.text,
                                          (double)one->rows, one->measured_ns / one->priced_ns,
                                          one->measured_ns,  0};
            }
        }
    }
    qsort(seen, n, sizeof *seen, by_operator);
    for (size_t first = 0, last; first < n; first = last) {
        double sum = 0, weight = 0;
        for (last = first; last < n && by_operator(&seen[first], &seen[last]) == 0; last++) {
            sum += seen[last].factor * seen[last].ns;
            weight += seen[last].ns;
        }
        for (size_t i = first; last > first + 1 && i < last; i++) {
            squares += seen[i].ns * pow(seen[i].factor / (sum / weight) - 1, 2);
        }
        weights += last > first + 1 ? weight : 0;
    }
    return weights > 0 ? squares / weights : 0;
}

static void share_all(struct calibration_report *report, const struct calibration_steps *scaled,
                      double event_ns) {
    for (size_t i = 0; i < report->steps.n; i++) {
        share(&report->steps.list[i], &scaled->list[i], event_ns);
    }
}

/* With events of the length that has it agree best with itself; NAN where the file says what lies
 * between events: calibration_price has shared the parts then. */
static struct calibration_report *read_report(const char *path, const struct system *system,
                                              struct profile *profile, double *event_ns) {
    enum { MOST_US = 6, PARTS = 4 };
    static struct calibration_steps scaled;
    const struct calibration_prices prices = {system, profile, &bf16};
    bool is_shared;
    struct calibration_report *report = load_report(path, system, profile, &is_shared);
    double least = INFINITY;
    if (is_shared) {
        fprintf(stderr, "%s: %% %.2f, events measured\n", path, 100 * sqrt(difference(report)));
        *event_ns = NAN;
        check(calibration_fit(report, &prices, &err), path);
        return report;
    }
    scaled = report->steps;
    fprintf(stderr, "%s: %%", path);
    for (int i = 0; i <= MOST_US * PARTS; i++) {
        share_all(report, &scaled, 1e3 * i / PARTS);
        const double found = difference(report);
        *event_ns = found < least ? 1e3 * i / PARTS : *event_ns;
        least = fmin(found, least);
        fprintf(stderr, " %.2f", 100 * sqrt(found));
    }
    fprintf(stderr, " at 0, 0.25 ... us; least at %g\n", *event_ns / 1e3);
    share_all(report, &scaled, *event_ns);
    check(calibration_fit(report, &prices, &err), path);
    return report;
}

static bool begins(const char *line, const char *with) {
    return strncmp(line, with, strlen(with)) == 0;
}

/* The operators' rows alone, as the calibration priced its steps by them. */
static struct profile *rows_alone(const char *text, const char *path,
                                  const struct profile_peaks *peaks) {
    struct profile *profile = NULL;
    char *copy = mem_zeroed(strlen(text) + 1, 1), *to = copy;
    for (const char *line = text, *end; *line != 0; line = end) {
        end = strchr(line, '\n');
        end = end == NULL ? line + strlen(line) : end + 1;
        if (!begins(line, "load,") && !begins(line, "power,") && !begins(line, "host,") &&
            !begins(line, "between,") && !begins(line, "# rows:")) {
            memcpy(to, line, (size_t)(end - line));
            to += end - line;
        }
    }
    check(profile_parse(path, copy, (size_t)(to - copy), peaks, &profile, &err), path);
    free(copy);
    return profile;
}

struct card {
    const char *path;
    char *text;
    bool has_host;
    double event_ns;
    struct calibration_report *report;
};

static double median(double *values, size_t n) {
    return n > 0 ? quantile(values, n, 0.5) : 0;
}

/* Whether the text has a row that begins so, up to its time; the time. */
static bool row_of(const char *text, const char *row, size_t size, double *us) {
    for (const char *at = text; (at = strstr(at, row)) != NULL; at++) {
        const size_t rest = strcspn(at + size, "\n");
        if ((at == text || at[-1] == '\n') && memchr(at + size, ',', rest) == NULL) {
            *us = atof(at + size);
            return true;
        }
    }
    return false;
}

/* The first card's text with the median of every row of an operator. */
static char *pooled_rows(const struct card *cards, size_t n_cards) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = mem_stream(&text, &size);
    for (const char *line = cards[0].text, *end; *line != 0; line = end) {
        end = strchr(line, '\n');
        end = end == NULL ? line + strlen(line) : end + 1;
        const char *last = system_last(line, ',', (size_t)(end - line));
        if (*line == '#' || last == NULL || begins(line, "load,") || begins(line, "power,") ||
            begins(line, "host,") || begins(line, "between,")) {
            fwrite(line, 1, (size_t)(end - line), out);
            continue;
        }
        char row[256];
        double us[MOST_CARDS] = {0};
        const size_t length = (size_t)(last + 1 - line);
        snprintf(row, sizeof row, "%.*s", (int)length, line);
        for (size_t i = 0; i < n_cards; i++) {
            if (!row_of(cards[i].text, row, length, &us[i])) {
                fprintf(stderr, "%s has no row %s\n", cards[i].path, row);
                exit(1);
            }
        }
        fprintf(out, "%s%.6g\n", row, median(us, n_cards));
    }
    mem_stream_close(out);
    return text;
}

/* Of every point that a card has the median over those that have it. */
static struct correction pooled_correction(const struct card *cards, size_t n_cards) {
    static struct seen points[CORRECTION_MAX_CURVES * CORRECTION_MAX_POINTS * MOST_CARDS];
    size_t n = 0;
    double values[MOST_CARDS] = {0}, hits[MOST_CARDS] = {0};
    for (size_t c = 0; c < n_cards; c++) {
        const struct correction *its = &cards[c].report->correction;
        values[c] = its->all;
        for (uint32_t i = 0; i < its->n_curves; i++) {
            const struct correction_curve *curve = &its->curves[i];
            for (uint32_t p = 0; p < curve->n_points; p++) {
                points[n++] = (struct seen){curve->kind,
                                            curve->key.text,
                                            curve->points[p].rows,
                                            curve->points[p].factor,
                                            0,
                                            curve->points[p].hits};
            }
        }
    }
    struct correction out = {.all = median(values, n_cards)};
    qsort(points, n, sizeof *points, by_operator);
    for (size_t first = 0, last; first < n; first = last) {
        for (last = first; last < n && by_operator(&points[first], &points[last]) == 0; last++) {
            values[last - first] = points[last].factor;
            hits[last - first] = points[last].hits;
        }
        if (!correction_add(&out, points[first].kind, points[first].key, points[first].rows,
                            median(values, last - first), median(hits, last - first))) {
            fprintf(stderr, "no room for %s\n", points[first].key);
            exit(1);
        }
    }
    return out;
}

static struct profile_host pooled_host(const struct card *cards, size_t n_cards, uint32_t kind) {
    double step[MOST_CARDS] = {0}, request[MOST_CARDS] = {0}, issued[MOST_CARDS] = {0};
    size_t n = 0, n_with = 0;
    for (size_t c = 0; c < n_cards; c++) {
        n_with += cards[c].has_host;
    }
    for (size_t c = 0; c < n_cards; c++) {
        const struct calibration_report *report = cards[c].report;
        if (report->host[kind].given && (cards[c].has_host || n_with == 0)) {
            step[n] = report->host[kind].step_ns;
            request[n] = report->host[kind].request_ns;
            issued[n++] = report->issued_ns[kind];
        }
    }
    return (struct profile_host){n > 0, median(step, n), median(request, n), median(issued, n)};
}

struct pooled {
    struct profile_host host[HOST_KIND_COUNT];
    struct calibration_report report; /* no steps: correction, power and errors */
};

static size_t count_rows(const char *text) {
    size_t n = 0;
    for (const char *line = text; *line != 0; line += strcspn(line, "\n"), line += *line != 0) {
        n += *line != '#';
    }
    return n;
}

static void write_event_times(const struct card *cards, size_t n_cards, FILE *out) {
    fprintf(out, "# refitted: from calibrate.json; operators' parts of whole steps with events at");
    for (size_t i = 0; i < n_cards; i++) {
        if (isnan(cards[i].event_ns)) {
            fprintf(out, "%s what was measured", i > 0 ? "," : "");
        } else {
            fprintf(out, "%s %g us", i > 0 ? "," : "", cards[i].event_ns / 1e3);
        }
    }
    fputc('\n', out);
}

static void write_profile(const struct card *cards, size_t n_cards, const char *rows,
                          const struct pooled *pooled, FILE *out) {
    bool wrote_load = false, wrote_power = false, wrote_host = false;
    size_t n_hosts = 0;
    for (size_t i = 0; i < n_cards; i++) {
        n_hosts += cards[i].has_host;
    }
    for (const char *line = rows, *end; *line != 0; line = end) {
        end = strchr(line, '\n');
        end = end == NULL ? line + strlen(line) : end + 1;
        if (begins(line, "# fitted:")) {
            calibration_write_errors(&pooled->report, out);
        } else if (n_cards > 1 && begins(line, "# source: ")) {
            fprintf(out, "%.*s; %zu calibrations\n", (int)strcspn(line, ";\n"), line, n_cards);
        } else if (begins(line, "# held_out:") || begins(line, "# mixed:") ||
                   begins(line, "# additivity:") || begins(line, "# refitted:") ||
                   begins(line, "# calibrations:") || begins(line, "# power_from:") ||
                   begins(line, "# rows:") || (n_cards > 1 && begins(line, "# covariance_"))) {
            continue;
        } else if (begins(line, "# power:")) {
            if (n_cards > 1) {
                fprintf(out,
                        "# calibrations: %zu; rows and factors are medians over them, host times "
                        "over %zu, power is of all their held steps; what is said above of one is "
                        "the first\n",
                        n_cards, n_hosts > 0 ? n_hosts : n_cards);
            }
            write_event_times(cards, n_cards, out);
            calibration_write_power_errors(&pooled->report.power_errors, out);
        } else if (begins(line, "load,")) {
            if (!wrote_load) {
                correction_write(&pooled->report.correction, out);
            }
            wrote_load = true;
        } else if (begins(line, "power,")) {
            if (!wrote_power) {
                power_write(&pooled->report.power, out);
            }
            wrote_power = true;
        } else if (begins(line, "host,")) {
            for (uint32_t kind = 0; !wrote_host && kind < HOST_KIND_COUNT; kind++) {
                if (pooled->host[kind].given) {
                    profile_host_write(&pooled->host[kind], step_kind_names[kind], out);
                }
            }
            wrote_host = true;
        } else {
            fwrite(line, 1, (size_t)(end - line), out);
        }
    }
}

/* The system that a calibration of this file was for. */
static struct system *system_of(const char *path, const char *text) {
    char model[64], name[64], title[64];
    struct system *system = NULL;
    const char *model_at = strstr(text, "# model: "), *pages_at = strstr(text, "tokens for "),
               *gpu_at = strstr(text, "# gpu: NVIDIA ");
    if (gpu_at == NULL || model_at == NULL || pages_at == NULL ||
        sscanf(model_at, "# model: %63s", model) != 1 ||
        sscanf(pages_at, "tokens for %63s", name) != 1 ||
        sscanf(gpu_at, "# gpu: NVIDIA %63s", title) != 1) {
        fprintf(stderr, "%s is not from a calibration\n", path);
        exit(1);
    }
    const struct system_request request = {
        .system = name, .model = model, .gpu = strcmp(title, "H200") == 0 ? "h200" : "h100"};
    check(system_open(&request, &system, &err), name);
    return system;
}

/* Predictions of every card's steps by what came out. */
static void predict(const struct card *cards, size_t n_cards, const struct system *system,
                    struct profile *profile, struct pooled *pooled) {
    struct calibration_report *reports[MOST_CARDS] = {NULL};
    const struct calibration_prices prices = {system, profile, &bf16};
    for (size_t c = 0; c < n_cards; c++) {
        struct calibration_report *report = cards[c].report;
        check(calibration_price(&report->steps, &prices, &err), cards[c].path);
        report->correction = pooled->report.correction;
        report->power = pooled->report.power;
        for (uint32_t kind = 0; kind < HOST_KIND_COUNT; kind++) {
            report->host[kind].step_ns = pooled->host[kind].step_ns;
            report->host[kind].request_ns = pooled->host[kind].request_ns;
        }
        check(calibration_price_corrected(&report->steps, &prices, &report->correction, &err),
              cards[c].path);
        reports[c] = report;
    }
    calibration_judge(reports, n_cards, &pooled->report);
}

int main(int argc, char **argv) {
    static struct power_sample samples[MOST_SAMPLES];
    static struct pooled pooled;
    struct card cards[MOST_CARDS] = {{0}};
    struct system *system = NULL;
    size_t n_cards = 0, n = 0;
    double idle_w = 0;
    if (argc < 4 || argc % 2 != 0 || (argc - 2) / 2 > MOST_CARDS) {
        return 2;
    }
    for (int i = 2; i < argc; i += 2) {
        struct card *card = &cards[n_cards++];
        size_t size = 0;
        card->has_host = begins(argv[i], "host:");
        card->path = argv[i] + (card->has_host ? strlen("host:") : 0);
        card->text = profile_read(card->path, &size, &err);
        check(card->text == NULL, card->path);
        system = system == NULL ? system_of(card->path, card->text) : system;
        const struct profile_peaks peaks = profile_peaks_of(system->gpu);
        struct profile *profile = rows_alone(card->text, card->path, &peaks);
        card->report = read_report(argv[i + 1], system, profile, &card->event_ns);
        n += calibration_power_samples(card->report, samples + n);
        idle_w += card->report->steps.idle_w * 2 / (argc - 2);
        profile_close(profile);
    }
    const struct profile_peaks peaks = profile_peaks_of(system->gpu);
    char *rows = pooled_rows(cards, n_cards), *text = NULL;
    pooled.report.correction = pooled_correction(cards, n_cards);
    for (uint32_t kind = 0; kind < HOST_KIND_COUNT; kind++) {
        pooled.host[kind] = pooled_host(cards, n_cards, kind);
    }
    check(power_fit(samples, n, idle_w, &pooled.report.power, &pooled.report.power_errors, &err),
          "power");
    struct profile *profile = rows_alone(rows, argv[1], &peaks);
    predict(cards, n_cards, system, profile, &pooled);
    size_t size = 0;
    FILE *out = mem_stream(&text, &size);
    struct output file;
    write_profile(cards, n_cards, rows, &pooled, out);
    mem_stream_close(out);
    check(output_open(argv[1], &file, &err), argv[1]);
    const char *behind = strchr(text, '\n') + 1; /* the first line says what the file is */
    fprintf(file.file, "%.*s# rows: %zu\n%s", (int)(behind - text), text, count_rows(text), behind);
    check(output_close(&file, true, &err), argv[1]);
    return 0;
}
