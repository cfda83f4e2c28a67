/* unmask check-plugin: does a user's policy keep its promises? */
#include "sim/policy/plugin/check_plugin.h"
#include "experiments/command/commands.h"

static const struct option *const options_of_check_plugin[] = {NULL};

static int run(const struct options *options, struct err *err) {
    if (options->n_words != 1) {
        return err_usage(err, "check-plugin needs the file of a plug-in, such as ./mine.so");
    }
    return check_plugin(options->words[0], stdout, err);
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
