/* unmask fit: repeat the fits of the calibrated constants. */
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cmd.h"
#include "experiments/study/decode_measured.h"
#include "experiments/study/dinfer_fit.h"
#include "experiments/study/fit.h"
#include "sim/base/output.h"
#include "sim/decode/process_file.h"
#include "sim/input/datadir.h"

enum { MOST_FITS = 32, PATH_CHARS = 1024 };

static const struct option own_options[] = {
    {"out", "FILE", "of `fit decode`: write the fitted processes there", false},
    {"from", "TRACE", "of `fit decode`: fit a process to half of this decode trace's requests",
     true},
    {"judge", "TRACE", "the same, and judge it by half of this one's requests too", true},
    {"process", "NAME", "judge this process by the traces of --judge instead of fitting one",
     false},
    {"name", "NAME", "what --out calls that process (default: MODEL/measured)", false},
    {NULL, NULL, NULL, false},
};
static const struct option *const groups[] = {own_options, json_options, NULL};

static int fit_constants(struct err *err) {
    struct config calibrated;
    struct fit fits[MOST_FITS];
    char path[PATH_CHARS];
    size_t n;
    int status =
        config_read(data_path(path, sizeof path, "experiments/calibrated.ini"), &calibrated, err);
    if (status != 0) {
        return status;
    }
    status = fit_all(&calibrated, fits, MOST_FITS, &n, err);
    if (status == 0) {
        fit_print(fits, n, stdout);
    }
    config_fini(&calibrated);
    return status;
}

struct fitted {
    struct paper focus, dinfer; /* what the papers print */
    struct decode_fits of_focus;
    struct dinfer_fits of_dinfer;
};

/* experiments/decode.ini with the numbers found. */
static int write_fitted(const struct fitted *fitted, const char *path, struct err *err) {
    struct fitted_number numbers[DECODE_FIT_NUMBERS + DINFER_FIT_NUMBERS];
    size_t n = decode_fit_numbers(&fitted->of_focus, numbers);
    n += dinfer_fit_numbers(&fitted->of_dinfer, numbers + n);
    char shipped[PATH_CHARS];
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    int status = fit_rewrite(data_path(shipped, sizeof shipped, "experiments/decode.ini"), numbers,
                             n, out.file, err);
    int closed = output_close(&out, status == 0, err);
    return status != 0 ? status : closed;
}

static int fit_papers(struct fitted *fitted, const char *out, struct err *err) {
    int status = decode_fit_all(&fitted->focus, &fitted->of_focus, err);
    status = status == 0 ? dinfer_fit_all(&fitted->dinfer, &fitted->of_dinfer, err) : status;
    if (status == 0 && out != NULL) {
        status = write_fitted(fitted, out, err);
    }
    status = status == 0 ? decode_fit_print(&fitted->of_focus, stdout, err) : status;
    return status == 0 ? dinfer_fit_print(&fitted->of_dinfer, stdout, err) : status;
}

static int fit_decode(const char *out, struct err *err) {
    struct fitted fitted;
    char path[PATH_CHARS];
    int status =
        paper_load(data_path(path, sizeof path, "experiments/paper/focus.csv"), &fitted.focus, err);
    if (status != 0) {
        return status;
    }
    status = paper_load(data_path(path, sizeof path, "experiments/paper/dinfer.csv"),
                        &fitted.dinfer, err);
    if (status == 0) {
        status = fit_papers(&fitted, out, err);
        paper_fini(&fitted.dinfer);
    }
    paper_fini(&fitted.focus);
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
    bool decode = options->n_words > 0;
    if (decode && strcmp(options->words[0], "decode") != 0) {
        return err_usage(err, "fit takes no word but 'decode', not '%s'", options->words[0]);
    }
    if (!decode && options->n_given > 0) {
        return err_usage(err, "--%s goes with `fit decode`", options->given[0].option->name);
    }
    if (decode && (options_has(options, "from") || options_has(options, "process"))) {
        return fit_measured(options, err);
    }
    if (options_has(options, "judge") || options_has(options, "name") ||
        options_has(options, "json")) {
        return err_usage(err, "--judge, --name and --json go with --from TRACE");
    }
    return decode ? fit_decode(options_text(options, "out"), err) : fit_constants(err);
}

const struct command command_fit = {
    .name = "fit",
    .words = "[decode]",
    .doc = "fits each calibrated constant to its one paper number again",
    .more = "Prints the stored value beside the fitted one; experiments/calibrated.ini is not\n"
            "changed. `fit decode` fits the decode processes of experiments/decode.ini, which\n"
            "takes two minutes. `fit decode --from TRACE --judge TRACE` fits a process to half of\n"
            "the requests of decode traces that real runs wrote (--decode-out), and prints how\n"
            "far its tokens a pass, order of commits and evictions are from those of the other\n"
            "half, under the decoder of each trace; the assumed shape stands beside it. With\n"
            "--process NAME a process that exists is judged, located by the first trace.",
    .options = groups,
    .max_words = 1,
    .run = run,
};
