/* unmask: the command line. */
#include <errno.h>
#include <fcntl.h>
#include <gsl/gsl_errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "experiments/command/commands.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/ranks/ranks.h"
#include "sim/base/build.h"
#include "sim/base/err.h"
#include "sim/base/input/datadir.h"
#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/base/system.h"

/* The process around a command: how it begins and how it ends. */

static json_malloc_t json_memory;
static struct sqlite3_mem_methods sqlite_memory;

static void *for_json(size_t size) {
    return mem_given(json_memory(size));
}

static void *for_sqlite(int size) {
    return mem_given(sqlite_memory.xMalloc(size));
}

static void *more_for_sqlite(void *memory, int size) {
    return mem_given(sqlite_memory.xRealloc(memory, size));
}

/* Callers that look at GSL's codes themselves switch this handler off meanwhile. */
static void on_gsl(const char *reason, const char *file, int line, int code) {
    if (code == GSL_ENOMEM) {
        mem_out(0);
    }
    fprintf(stderr, "unmask: internal error: GSL: %s at %s:%d; please report it\n", reason, file,
            line);
    abort();
}

/* Before anything else: the three standard streams are open, so that no file is taken for one;
 * signals are handled (interrupt.h); closed pipes and full files show as failed writes; and the
 * libraries that allocate (jansson, SQLite, GSL) end the program where memory is out, as our own
 * code does (sim/base/mem.h). */
static void libraries_start(void) {
    int nowhere;
    system_keep_memory();
    do {
        nowhere = open("/dev/null", O_RDWR);
    } while (nowhere >= 0 && nowhere <= STDERR_FILENO);
    if (nowhere >= 0) {
        close(nowhere);
    }
    interrupt_start();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    json_free_t json_free;
    json_get_alloc_funcs(&json_memory, &json_free);
    json_set_alloc_funcs(for_json, json_free);
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory);
    struct sqlite3_mem_methods methods = sqlite_memory;
    methods.xMalloc = for_sqlite;
    methods.xRealloc = more_for_sqlite;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
    gsl_set_error_handler(on_gsl);
}

/* Reports that the compiler's tools (coverage, sanitizers) make at a program's end, where they are
 * linked in. */
void __gcov_dump(void) __attribute__((weak));
void __lsan_do_leak_check(void) __attribute__((weak));

/* Ends the process with that status, without the exit handlers of libraries: OpenBLAS would wait
 * for threads that never end when memory is short. What was printed has been flushed. */
static _Noreturn void libraries_leave(int status) {
    if (__lsan_do_leak_check != NULL) {
        __lsan_do_leak_check();
    }
    if (__gcov_dump != NULL) {
        __gcov_dump();
    }
    _exit(status);
}

/* Who started the program, where that is another program of which it is a part: the environment's
 * UNMASK_PARENT is its number. The program ends when that one ends, however it does, and is
 * stopped when that one is stopped; who stopped goes on and has it go on. A process that lives and
 * did not start this one does not count as its parent. */

enum { NAP_NS = 100000000 };

static pid_t parent;

/* The letter after the name in /proc/N/stat, which ends at the last bracket; 0: no such process.
 */
static char state_of(pid_t process) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    const char *line = fgets(text, sizeof text, file);
    const char *end = line != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return end != NULL && strncmp(end, ") ", 2) == 0 ? end[2] : 0;
}

/* Whether that process lives and has not started this one: the name is a stranger's. */
static bool is_strange(pid_t process) {
    char state = state_of(process);
    return process != getppid() && state != 0 && state != 'Z' && state != 'X';
}

/* To all that this program started as well, where it leads a group. */
static void tell_all(int number) {
    kill(getpgrp() == getpid() ? 0 : getpid(), number);
}

static void *follow(void *unused) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void)unused;
    for (;;) {
        if (getppid() != parent) {
            output_abandon();
            tell_all(SIGKILL);
        }
        if (state_of(parent) == 'T') {
            tell_all(SIGSTOP);
        }
        nanosleep(&nap, NULL);
    }
    return NULL;
}

/* From now on; nothing where no parent is named. */
static void parent_follow(void) {
    uint64_t number;
    const char *text = getenv("UNMASK_PARENT");
    if (text == NULL || !num_u64(text, INT32_MAX, &number)) {
        return;
    }
    unsetenv("UNMASK_PARENT"); /* what this program starts has another */
    parent = (pid_t)number;
    if (parent == 0 || is_strange(parent)) {
        return;
    }
    system_end_with_parent(SIGCONT); /* if stopped, it sees that the parent is gone */
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_create(&thread, &attributes, follow, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void print_usage(FILE *out) {
    fprintf(out,
            "unmask %s: what happens to throughput, latency and memory when a diffusion\n"
            "language model serves this traffic on this GPU under this policy?\n\n"
            "usage: unmask COMMAND [OPTION...]\n\n",
            UNMASK_VERSION);
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(out, "  %-18s%s\n", commands[i]->name, commands[i]->doc);
    }
    fprintf(out,
            "\n`unmask COMMAND --help` explains a command. Exit status: 0: success; 1: run-time\n"
            "failure (file, device, data); 2: invalid command line or configuration.\n");
}

static void print_version(void) {
    struct build build = build_this();
    bool is_known = strcmp(build.commit, "unknown") != 0;
    printf("unmask %s\n%s%s%s, sources %.12s\ndata from %s\n", build.version,
           is_known ? "commit " : "unknown commit", is_known ? build.commit : "",
           is_known && build.is_dirty ? " with changes" : "", build.sources, data_dir());
}

/* The commands whose first word this is and that have a second one; how many there are. */
static size_t print_verbs(const char *word, const char *head, FILE *out) {
    size_t n = 0, length = strlen(word);
    for (size_t i = 0; commands[i] != NULL; i++) {
        const char *name = commands[i]->name;
        if (strncmp(name, word, length) == 0 && name[length] == ' ') {
            fprintf(out, "%s  %-18s%s\n", n++ == 0 ? head : "", name, commands[i]->doc);
        }
    }
    return n;
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
    print_verbs(command->name, "\nIts verbs, each with a --help of its own:\n", stdout);
}

/* `unmask trace --help`, of a word that is a command only with another one after it. */
static bool print_help_of_group(int argc, char *const *argv) {
    bool is_asked = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (!is_asked) {
        return false;
    }
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (strcmp(commands[i]->name, argv[0]) == 0) {
            return false;
        }
    }
    char head[96];
    snprintf(head, sizeof head, "usage: unmask %.32s VERB [OPTION...]\n\n", argv[0]);
    return print_verbs(argv[0], head, stdout) > 0;
}

static bool wants_help(int argc, char *const *argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

/* Whether `argc` words begin with the command's name, which may have two words. */
static bool begins_with_name(const struct command *command, int argc, char *const *argv) {
    size_t first = strcspn(command->name, " ");
    const char *verb = command->name[first] == ' ' ? command->name + first + 1 : NULL;
    return strlen(argv[0]) == first && strncmp(argv[0], command->name, first) == 0 &&
           (verb == NULL || (argc > 1 && strcmp(argv[1], verb) == 0));
}

static bool has_verb(const struct command *command, const char *verb) {
    const char *space = strchr(command->name, ' ');
    return space != NULL && strcmp(space + 1, verb) == 0;
}

/* What other simulators and load generators call a command, or a user its question. */
static const char *command_meant(const char *word) {
    static const char *const meant[][2] = {
        {"fleet", "capacity"},    {"size", "capacity"},
        {"slo", "capacity"},      {"bench", "run"},
        {"benchmark", "run"},     {"simulate", "run"},
        {"sim", "run"},           {"predict", "run"},
        {"draw", "plot"},         {"models", "list models"},
        {"gpus", "list gpus"},    {"systems", "list systems"},
        {"version", "--version"},
    };
    for (size_t i = 0; i < sizeof meant / sizeof meant[0]; i++) {
        if (strcmp(word, meant[i][0]) == 0) {
            return meant[i][1];
        }
    }
    return NULL;
}

/* "plan lmax" before "plan". */
static const struct command *find_command(int argc, char *const *argv, struct err *err) {
    const struct command *found = NULL;
    const char *names[COMMANDS_MOST + 1] = {NULL}, *near = NULL;
    for (size_t i = 0; commands[i] != NULL; i++) {
        names[i] = commands[i]->name;
        if (begins_with_name(commands[i], argc, argv) &&
            (found == NULL || strlen(found->name) < strlen(commands[i]->name))) {
            found = commands[i];
        }
        near = has_verb(commands[i], argv[0]) ? commands[i]->name : near;
    }
    bool has_word = argc > 1 && argv[1][0] != '-';
    if (found != NULL && (found->max_words > 0 || !has_word || strchr(found->name, ' ') != NULL)) {
        return found;
    }
    if (found != NULL) {
        char words[64];
        snprintf(words, sizeof words, "%s %s", argv[0], argv[1]);
        near = name_nearest(words, names);
        near = near != NULL && strchr(near, ' ') != NULL ? near : NULL;
        err_usage(err, "%s: unexpected word '%s'%s%s%s", argv[0], argv[1],
                  near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                  near != NULL ? "'?" : "");
        return NULL;
    }
    near = near != NULL ? near : command_meant(argv[0]);
    near = near != NULL ? near : name_nearest(argv[0], names);
    err_usage(err, "unknown command '%s'%s%s%s", argv[0], near != NULL ? "; did you mean '" : "",
              near != NULL ? near : "", near != NULL ? "'?" : "; `unmask --help` lists them");
    return NULL;
}

/* `unmask help run` is `unmask run --help`. */
static int help_of(int argc, char *const *argv, struct err *err) {
    char *const words[] = {argv[0], (char *)"--help", NULL};
    if (argc == 1 && print_help_of_group(2, words)) {
        return 0;
    }
    const struct command *command = find_command(argc, argv, err);
    if (command == NULL) {
        return (int)err->kind;
    }
    print_help(command);
    return 0;
}

static int run_command(int argc, char *const *argv, struct err *err) {
    if (print_help_of_group(argc, argv)) {
        return 0;
    }
    const struct command *command = find_command(argc, argv, err);
    if (command == NULL) {
        return (int)err->kind;
    }
    int n_name = strchr(command->name, ' ') != NULL ? 2 : 1;
    if (wants_help(argc - n_name, argv + n_name)) {
        print_help(command);
        return 0;
    }
    struct options options;
    int status = options_read(command->options, argc - n_name, argv + n_name, command->max_words,
                              &options, err);
    status = status == 0 ? options_check_read(&options, err) : status;
    status = status == 0 ? cmd_take_output(&options, err) : status;
    status = status == 0 && command->takes_ranks ? ranks_join(err) : status;
    return status != 0 ? status : command->run(&options, err);
}

/* What was printed must have arrived: a full disk is an error like any other, and so is a pipe that
 * was closed, of which nothing is said: its reader (`| head`) has what it wanted. */
static int flush_output(int status, struct err *err) {
    errno = 0;
    if (!table_flush() || fflush(stdout) != 0 || ferror(stdout)) {
        if (errno == EPIPE) {
            return status != 0 ? status : ERR_WORLD;
        }
        const char *cause = errno != 0 ? strerror(errno) : "a closed pipe or a full disk";
        return status != 0 ? status : err_world(err, "cannot write the output: %s", cause);
    }
    return status;
}

int main(int argc, char **argv) {
    struct err err = {0};
    int status;
    libraries_start();
    parent_follow();
    if (argc < 2) {
        print_usage(stderr);
        libraries_leave(ERR_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        (strcmp(argv[1], "help") == 0 && argc == 2)) {
        print_usage(stdout);
        status = 0;
    } else if (strcmp(argv[1], "help") == 0) {
        status = help_of(argc - 2, argv + 2, &err);
    } else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        print_version();
        status = 0;
    } else {
        status = run_command(argc - 1, argv + 1, &err);
    }
    status = flush_output(status, &err);
    ranks_leave(&err);
    if (ranks_is_helper()) {
        status = 0; /* rank 0 has said why and goes on without it */
    }
    if (status != 0 && err.text[0] != '\0') {
        fprintf(stderr, "unmask: %s\n", err.text);
    }
    libraries_leave(status);
}
