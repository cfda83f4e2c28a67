/* unmask fit: repeat the fits of the calibrated constants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/command/commands.h"
#include "experiments/run/cli/progress.h"
#include "experiments/study/decode_curve.h"
#include "experiments/study/decode_edits.h"
#include "experiments/study/decode_fit.h"
#include "experiments/study/decode_measured.h"
#include "experiments/study/fit.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/output.h"
#include "sim/decode/process_file.h"

enum { MOST_FITS = 32, PATH_CHARS = 1024 };

static const struct option own_options[] = {
    {"out", "FILE", "of `fit shapes`, `fit edits` and `fit decode`: write what was fitted there",
     false},
    {"from", "TRACE", "of `fit decode`: fit a process to half of this decode trace's requests",
     true},
    {"judge", "TRACE", "the same, and judge it by half of this one's requests too", true},
    {"process", "NAME", "judge this process by the traces of --judge instead of fitting one",
     false},
    {"name", "NAME", "what --out calls that process (default: MODEL/measured)", false},
    {NULL, NULL, NULL, false},
};
static const struct option *const groups[] = {own_options, json_options, format_option, NULL};

/* Takes the table. */
static void show_table(struct table *table) {
    table_print(table, stdout);
    table_close(table);
}

static json_t *rows_of(struct table *table) {
    json_t *rows = table_json(table);
    table_close(table);
    return rows;
}

/* The same, where it is all that there is to say. */
static int show_alone(const struct options *options, struct table *table, struct err *err) {
    int status = cmd_print_table(options, table, err);
    table_close(table);
    return status;
}

static int fit_constants(const struct options *options, struct err *err) {
    struct config calibrated;
    struct fit fits[MOST_FITS];
    char path[PATH_CHARS];
    size_t n;
    int status = config_read(data_path(path, sizeof path, "experiments/study/calibrated.ini"),
                             &calibrated, err);
    if (status != 0) {
        return status;
    }
    status = fit_all(&calibrated, fits, MOST_FITS, &n, err);
    if (status == 0) {
        status = show_alone(options, fit_table(fits, n), err);
    }
    config_fini(&calibrated);
    return status;
}

static void show(void *state, size_t n_done) {
    progress_update(state, n_done);
}

/* What was fitted, to FILE: `write` copies the shipped file, the numbers found in place of its
 * own. */
static int write_out(const char *path, int (*write)(const void *fitted, FILE *out, struct err *err),
                     const void *fitted, struct err *err) {
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    int status = write(fitted, out.file, err);
    int closed = output_close(&out, status == 0, err);
    return status != 0 ? status : closed;
}

struct shapes {
    struct curves curves;
    struct curve_fit fits[CURVE_MOST_SHAPES];
    size_t n;
};

static int write_shapes(const void *fitted, FILE *out, struct err *err) {
    const struct shapes *shapes = fitted;
    struct fitted_number numbers[3 * CURVE_MOST_SHAPES];
    size_t n = curves_numbers(shapes->fits, shapes->n, numbers);
    char shipped[PATH_CHARS];
    return fit_rewrite(data_path(shipped, sizeof shipped, "experiments/study/decode.ini"), numbers,
                       n, out, err);
}

static int show_shapes(const struct options *options, const struct shapes *shapes,
                       struct err *err) {
    struct table *found = curves_shapes(&shapes->curves, shapes->fits, shapes->n);
    struct table *points = curves_points(&shapes->curves, shapes->fits, shapes->n);
    if (options_has(options, "json")) {
        return cmd_print_json(
            json_pack("{s:o, s:o}", "shapes", rows_of(found), "points", rows_of(points)), err);
    }
    show_table(found);
    printf(
        "\neach point as printed, by the stored and the fitted shape, and by a fit without it\n");
    show_table(points);
    return 0;
}

static int fit_shapes(const struct options *options, struct err *err) {
    const char *out = options_text(options, "out");
    static struct shapes shapes;
    char path[PATH_CHARS];
    int status =
        curves_open(data_path(path, sizeof path, "experiments/study/paper/decode_curves.csv"),
                    &shapes.curves, err);
    if (status != 0) {
        return status;
    }
    struct progress progress;
    progress_start(&progress, "fits", 2 * shapes.curves.n);
    status = curves_fit(&shapes.curves, show, &progress, shapes.fits, &shapes.n, err);
    progress_end(&progress);
    if (status == 0 && out != NULL) {
        status = write_out(out, write_shapes, &shapes, err);
    }
    if (status == 0) {
        status = show_shapes(options, &shapes, err);
    }
    curves_close(&shapes.curves);
    return status;
}

static int write_edits(const void *fitted, FILE *out, struct err *err) {
    struct fitted_number numbers[EDIT_NUMBERS];
    size_t n = edits_numbers(fitted, numbers);
    char shipped[PATH_CHARS];
    return fit_rewrite(data_path(shipped, sizeof shipped, "experiments/study/decode.ini"), numbers,
                       n, out, err);
}

static int show_edits(const struct options *options, const struct edits *edits, struct err *err) {
    struct table *found = edits_constants(edits), *rows = edits_table(edits);
    if (options_has(options, "json")) {
        return cmd_print_json(
            json_pack("{s:o, s:o}", "constants", rows_of(found), "rows", rows_of(rows)), err);
    }
    show_table(found);
    printf("\n");
    show_table(rows);
    edits_say(edits, stdout);
    return 0;
}

static int fit_edits(const struct options *options, struct err *err) {
    const char *out = options_text(options, "out");
    static struct edits edits;
    char path[PATH_CHARS];
    if (edits_open(data_path(path, sizeof path, "experiments/study/paper/edit_modes.csv"), &edits,
                   err) != 0) {
        return err_status(err);
    }
    edits_fit(&edits);
    int status = out != NULL ? write_out(out, write_edits, &edits, err) : 0;
    if (status == 0) {
        status = show_edits(options, &edits, err);
    }
    edits_close(&edits);
    return status;
}

struct located {
    struct locations locations;
    struct location_fit *fits;
};

static int write_located(const void *fitted, FILE *out, struct err *err) {
    const struct located *located = fitted;
    return locations_write(&located->locations, located->fits, out, err);
}

static int fit_locations(const struct options *options, struct err *err) {
    const char *out = options_text(options, "out");
    struct located located;
    char path[PATH_CHARS];
    int status = locations_open(data_path(path, sizeof path, "experiments/study/locations.csv"),
                                &located.locations, err);
    if (status != 0) {
        return status;
    }
    struct progress progress;
    located.fits = mem_zeroed(located.locations.n, sizeof *located.fits);
    progress_start(&progress, "locations", located.locations.n);
    status = locations_fit(&located.locations, show, &progress, located.fits, err);
    progress_end(&progress);
    if (status == 0 && out != NULL) {
        status = write_out(out, write_located, &located, err);
    }
    if (status == 0) {
        status = show_alone(options, locations_table(&located.locations, located.fits), err);
    }
    free(located.fits);
    locations_close(&located.locations);
    return status;
}

/* ---- to measured decisions ---- */

static int write_measured(const struct measured *measured, const char *name, const char *path,
                          struct err *err) {
    char own[128];
    snprintf(own, sizeof own, "%s/measured",
             decode_trace_about(measured->traces[0].trace, "model"));
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    measured_write(measured, name != NULL ? name : own, out.file);
    return output_close(&out, true, err);
}

static int fit_measured(const struct options *options, struct err *err) {
    const char *from[OPTIONS_MOST_GIVEN], *by[OPTIONS_MOST_GIVEN];
    size_t n_from = options_values(options, "from", from),
           n_by = options_values(options, "judge", by);
    static struct measured measured;
    struct decode_process process;
    const char *name = options_text(options, "process");
    int status = 0;
    if (name != NULL && (n_from > 0 || n_by == 0)) {
        return err_usage(err,
                         "--process is judged by --judge TRACE, and nothing is fitted: no --from");
    }
    if (name != NULL && options_has(options, "out")) {
        return err_usage(err,
                         "--out writes a process that was fitted, and --process fits none: "
                         "'%s' stays as it is",
                         name);
    }
    if (name != NULL) {
        status = decode_process_find(name, &process, err);
    }
    status = status != 0 ? status
                         : measured_open(name != NULL ? &process : NULL, from, n_from, by, n_by,
                                         &measured, err);
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; i < measured.n; i++) {
        const char *why = decode_trace_about(measured.traces[i].trace, "incomplete");
        if (why[0] != '\0') {
            fprintf(stderr, "unmask: %s is incomplete: %s\n", measured.traces[i].path, why);
        }
    }
    const char *out = options_text(options, "out");
    if (options_has(options, "json")) {
        json_t *json = measured_json(&measured);
        status = cmd_print_json(json, err);
    } else {
        measured_print(&measured, stdout);
    }
    if (status == 0 && out != NULL) {
        status = write_measured(&measured, options_text(options, "name"), out, err);
    }
    measured_close(&measured);
    return status;
}

static int run(const struct options *options, struct err *err) {
    const char *what = options->n_words > 0 ? options->words[0] : "";
    bool shapes = strcmp(what, "shapes") == 0, decode = strcmp(what, "decode") == 0;
    bool edits = strcmp(what, "edits") == 0;
    if (what[0] != '\0' && !shapes && !decode && !edits) {
        return err_usage(err, "fit takes no word but 'shapes', 'edits' or 'decode', not '%s'",
                         what);
    }
    if (!shapes && !decode && !edits && options_has(options, "out")) {
        return err_usage(err, "--out goes with `fit shapes`, `fit edits` and `fit decode`");
    }
    if (decode && (options_has(options, "from") || options_has(options, "process"))) {
        return fit_measured(options, err);
    }
    if (options_has(options, "from") || options_has(options, "process") ||
        options_has(options, "judge") || options_has(options, "name")) {
        return err_usage(err, "--from, --judge, --process and --name go with `fit decode --from "
                              "TRACE`");
    }
    return edits    ? fit_edits(options, err)
           : shapes ? fit_shapes(options, err)
           : decode ? fit_locations(options, err)
                    : fit_constants(options, err);
}

const struct command command_fit = {
    .name = "fit",
    .words = "[shapes|edits|decode]",
    .doc = "fits each calibrated constant to its one paper number again",
    .more =
        "Prints the stored value next to the fitted one; experiments/study/calibrated.ini is not\n"
        "changed. `fit shapes` fits the shapes of decode processes in "
        "experiments/study/decode.ini\n"
        "to published curves of tokens a pass (experiments/study/paper/decode_curves.csv), and\n"
        "predicts each point by a fit that has not seen it. `fit edits` fits what LLaDA2.1 makes "
        "of\n"
        "the confidences of LLaDA2.0 to its printed tokens a pass of two tasks\n"
        "(experiments/study/paper/edit_modes.csv), and prints the others' next to what it "
        "predicts.\n"
        "`fit decode` fits the locations\n"
        "of experiments/study/locations.csv, each to its printed number. All but `fit edits` take "
        "minutes, "
        "and\n"
        "each writes its file again with --out. `fit decode --from TRACE --judge TRACE` fits a\n"
        "process to half of the requests of decode traces that real runs wrote\n"
        "(--decode-out), and prints how far its tokens a pass, order of commits and evictions\n"
        "are from those of the other half, under the decoder of each trace; the assumed shape\n"
        "is judged, too. With --process NAME a process that exists is judged, located by\n"
        "the first trace.",
    .options = groups,
    .max_words = 1,
    .run = run,
};
