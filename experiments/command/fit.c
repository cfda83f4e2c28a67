/* unmask fit: repeat the fits of the calibrated constants. */
#include <stdio.h>
#include <string.h>

#include "analysis/output.h"
#include "experiments/cli/cmd.h"
#include "experiments/study/dinfer_fit.h"
#include "experiments/study/fit.h"
#include "sim/base/datadir.h"

enum { MOST_FITS = 32, PATH_CHARS = 1024 };

static const struct option own_options[] = {
    {"out", "FILE", "of `fit decode`: write the fitted processes there", false},
    {NULL, NULL, NULL, false},
};
static const struct option *const groups[] = {own_options, NULL};

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

static int write_fitted(const struct fitted *fitted, const char *path, struct err *err) {
    struct output out;
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    decode_fit_write(&fitted->of_focus, &fitted->focus, out.file);
    dinfer_fit_write(&fitted->of_dinfer, out.file);
    return output_close(&out, true, err);
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

static int run(const struct options *options, struct err *err) {
    bool decode = options->n_words > 0;
    if (decode && strcmp(options->words[0], "decode") != 0) {
        return err_usage(err, "fit takes no word but 'decode', not '%s'", options->words[0]);
    }
    if (!decode && options_has(options, "out")) {
        return err_usage(err, "--out goes with `fit decode`");
    }
    return decode ? fit_decode(options_text(options, "out"), err) : fit_constants(err);
}

const struct command command_fit = {
    .name = "fit",
    .words = "[decode]",
    .doc = "fits each calibrated constant to its one paper number again",
    .more = "Prints the stored value beside the fitted one; experiments/calibrated.ini is not\n"
            "changed. `fit decode` fits the decode processes of experiments/decode.ini, which\n"
            "takes two minutes.",
    .options = groups,
    .max_words = 1,
    .run = run,
};
