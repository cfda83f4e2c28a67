/* unmask report: one HTML page about all runs of a database. */
#include <stdio.h>
#include <string.h>

#include "analysis/plot/report.h"
#include "experiments/command/commands.h"

static const struct option own_options[] = {
    {"out", "FILE", "the page; replaced once it is whole", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_report[] = {own_options, NULL};

static int run(const struct options *options, struct err *err) {
    const char *path = options_text(options, "out");
    if (options->n_words != 1 || path == NULL) {
        return err_usage(err, "report needs a database and --out FILE");
    }
    struct store *store = NULL;
    int status = store_open(options->words[0], STORE_READ, &store, err);
    if (status == 0) {
        status = report_write(store, path, err);
    }
    store_close(store);
    if (status == 0 && strcmp(path, "-") != 0) {
        printf("wrote %s\n", path);
    }
    return status;
}

const struct command command_report = {
    .name = "report",
    .words = "DB --out FILE",
    .doc = "one HTML page that compares all runs of a database",
    .options = options_of_report,
    .max_words = 1,
    .run = run,
};
