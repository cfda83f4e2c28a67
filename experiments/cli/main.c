/* unmask: the command line. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cmd.h"
#include "sim/base/build.h"
#include "sim/base/datadir.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

static const struct command *const commands[] = {
    &command_run,         &command_compare, &command_sweep,    &command_explain,
    &command_plan,        &command_profile, &command_transfer, &command_replay,
    &command_accuracy,    &command_report,  &command_list,     &command_check_plugin,
    &command_figure,      &command_fit,     &command_generate, &command_allocator,
    &command_calibrate,   &command_lmax,    &command_server,   &command_latency,
    &command_sensitivity,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *out) {
    fprintf(out,
            "unmask %s: what happens to throughput, latency and memory when a diffusion\n"
            "language model serves this traffic on this GPU under this policy?\n\n"
            "usage: unmask COMMAND [OPTION...]\n\n",
            UNMASK_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(out, "  %-14s%s\n", commands[i]->name, commands[i]->doc);
    }
    fprintf(out,
            "\n`unmask COMMAND --help` explains a command. Exit status: 0, 1 when something in\n"
            "the world is not as it must be, 2 when the request makes no sense.\n");
}

static void print_version(void) {
    struct build build = build_this();
    bool is_known = strcmp(build.commit, "unknown") != 0;
    printf("unmask %s\n%s%s%s, sources %.12s\ndata from %s\n", build.version,
           is_known ? "commit " : "unknown commit", is_known ? build.commit : "",
           is_known && build.is_dirty ? " with changes" : "", build.sources, data_dir());
}

static void print_help(const struct command *command) {
    printf("usage: unmask %s%s%s [OPTION...]\n\n%s\n", command->name,
           command->words[0] != '\0' ? " " : "", command->words, command->doc);
    if (command->more != NULL) {
        printf("\n%s\n", command->more);
    }
    printf("\n");
    options_help(command->options, stdout);
    printf("  %-24s  %s\n", "--help", "print this");
}

static bool wants_help(int argc, char *const *argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static const struct command *find_command(const char *name, struct err *err) {
    const char *names[N_COMMANDS + 1] = {NULL};
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
        names[i] = commands[i]->name;
    }
    const char *near = name_nearest(name, names);
    err_usage(err, "unknown command '%s'%s%s%s", name, near != NULL ? "; did you mean '" : "",
              near != NULL ? near : "", near != NULL ? "'?" : "; `unmask --help` lists them");
    return NULL;
}

static int run_command(int argc, char *const *argv, struct err *err) {
    const struct command *command = find_command(argv[0], err);
    if (command == NULL) {
        return (int)err->kind;
    }
    if (wants_help(argc - 1, argv + 1)) {
        print_help(command);
        return 0;
    }
    struct options options;
    int status =
        options_read(command->options, argc - 1, argv + 1, command->max_words, &options, err);
    return status != 0 ? status : command->run(&options, err);
}

/* What was printed must have arrived: a full disk or a closed pipe is an error like any other. */
static int flush_output(int status, struct err *err) {
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        const char *cause = errno != 0 ? strerror(errno) : "a closed pipe or a full disk";
        return status != 0 ? status : err_world(err, "cannot write the output: %s", cause);
    }
    return status;
}

int main(int argc, char **argv) {
    struct err err = {0};
    int status;
    /* A closed pipe and a file that may not grow show as failed writes. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return ERR_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        status = 0;
    } else if (strcmp(argv[1], "--version") == 0) {
        print_version();
        status = 0;
    } else {
        status = run_command(argc - 1, argv + 1, &err);
    }
    status = flush_output(status, &err);
    if (status != 0 && err.text[0] != '\0') {
        fprintf(stderr, "unmask: %s\n", err.text);
    }
    return status;
}
