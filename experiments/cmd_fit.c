/* unmask fit: repeat the fits of the calibrated constants. */
#include <stdio.h>

#include "experiments/cmd.h"
#include "experiments/fit.h"
#include "sim/base/datadir.h"

enum { MOST_FITS = 32 };

static const struct option *const groups[] = {NULL};

static int run(const struct options *options, struct err *err) {
    struct config calibrated;
    struct fit fits[MOST_FITS];
    char path[1024];
    size_t n;
    (void)options;
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

const struct command command_fit = {
    .name = "fit",
    .words = "",
    .doc = "fits each calibrated constant to its one paper number again",
    .more =
        "Prints the stored value beside the fitted one; experiments/calibrated.ini is not changed.",
    .options = groups,
    .max_words = 0,
    .run = run,
};
