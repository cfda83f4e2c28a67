/* unmask check-plugin: does a user's policy keep its promises? */
#include "sim/policy/plugin/check_plugin.h"
#include "experiments/command/commands.h"

static const struct option own_options[] = {
    {"format", "FORMAT", FORMAT_DOC, false},
    {NULL, NULL, NULL, false},
};
static const struct option *const options_of_check_plugin[] = {own_options, NULL};

static void add_row(void *state, const char *situation, bool is_kept, uint64_t n_calls) {
    table_add(state, "s s", situation, is_kept ? "ok" : "broken");
    if (is_kept) {
        table_add(state, "i", (int64_t)n_calls);
    } else {
        table_add(state, "-");
    }
}

static int run(const struct options *options, struct err *err) {
    if (options->n_words != 1) {
        return err_usage(err, "check-plugin needs the file of a plug-in, such as ./mine.so");
    }
    struct table *table = table_open("situation|promises|calls");
    const struct check_rows rows = {.state = table, .add = add_row};
    int status = check_plugin(options->words[0], stdout, &rows, err);
    if (!table_is_text()) {
        table_print(table, stdout);
    }
    table_close(table);
    return status;
}

const struct command command_check_plugin = {
    .name = "check-plugin",
    .words = "FILE",
    .doc = "exercise a policy from a shared object and name the first promise it breaks",
    .more = "The serving loop serves small workloads with the plug-in in a child process, and asks "
            "everything twice.",
    .options = options_of_check_plugin,
    .max_words = 1,
    .run = run,
};
