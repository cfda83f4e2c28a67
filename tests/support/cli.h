/* What the suites of the command line share: the program as a child process. */
#ifndef UNMASK_TESTS_SUPPORT_CLI_H
#define UNMASK_TESTS_SUPPORT_CLI_H

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/support/says.h"
#include "tests/support/scratch.h"

enum { CLI_MOST_ARGS = 64 };

/* What a program left behind; status is 128 + N when signal N ended it. */
struct output {
    int status;
    char *out, *err; /* to be freed */
};

/* How the child differs from the parent. */
struct child {
    const char *data;        /* UNMASK_DATA, or NULL */
    const char *stdout_path; /* standard output goes there, not to `out` */
    rlim_t max_file_bytes;   /* 0: no limit */
    rlim_t max_memory_bytes; /* of addresses; 0: no limit */
    bool closes_stderr;
    bool starts; /* the program, also in a suite that is linked with it */
    unsigned
        interrupt_after; /* microseconds until a signal, times what time limits are; 0: never */
    int signal;          /* which; 0: SIGINT */
};

static inline char *cli_read(FILE *file) {
    rewind(file);
    return scratch_rest(file);
}

/* The program's main function in suites that are linked with it (Makefile): a child calls it and
 * starts no program, and knows what this process learnt before: which plug-ins passed their
 * exercise. */
int program_main(int argc, char **argv) __attribute__((weak));

static inline int cli_n_words(char *const *argv) {
    int n = 0;
    while (argv[n] != NULL) {
        n++;
    }
    return n;
}

static inline void cli_become(const struct child *child, char **argv, int out, int err) {
    const char *program = getenv("UNMASK");
    if (child->data != NULL) {
        setenv("UNMASK_DATA", child->data, 1);
    }
    if (child->max_file_bytes > 0) {
        struct rlimit limit = {child->max_file_bytes, child->max_file_bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (child->max_memory_bytes > 0) {
        struct rlimit limit = {child->max_memory_bytes, child->max_memory_bytes};
        setrlimit(RLIMIT_AS, &limit);
    }
    if (child->stdout_path != NULL) {
        out = open(child->stdout_path, O_WRONLY);
    }
    dup2(out, STDOUT_FILENO);
    signal(SIGHUP, SIG_DFL); /* which nohup ignores, for all its children */
    if (child->closes_stderr) {
        close(STDERR_FILENO);
    } else {
        dup2(err, STDERR_FILENO);
    }
    if (program_main != NULL && !child->starts) {
        enum { COPY = 100 }; /* standard error once more, as the watch over plug-ins has it */
        if (fcntl(COPY, F_GETFD) >= 0) {
            dup2(err, COPY);
        }
        (void)program_main(cli_n_words(argv), argv); /* which ends the child */
    }
    execv(program != NULL ? program : "build/unmask", argv);
    _exit(127);
}

/* Begins the program with the words up to NULL; it ends after `limit_s` seconds, 0: when it likes.
 */
static inline pid_t cli_begin(const struct child *child, const char *const *words, int out, int err,
                              unsigned limit_s) {
    char *argv[CLI_MOST_ARGS + 2] = {(char *)"unmask"};
    for (int i = 0; words[i] != NULL; i++) {
        ck_assert_int_lt(i, CLI_MOST_ARGS);
        argv[i + 1] = (char *)words[i];
    }
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (limit_s > 0) {
            alarm(limit_s);
        }
        cli_become(child, argv, out, err);
    }
    return pid;
}

/* In the background, its output thrown away. */
static inline pid_t cli_start(const char *const *words, unsigned limit_s) {
    int null = open("/dev/null", O_WRONLY);
    ck_assert_int_ge(null, 0);
    pid_t pid = cli_begin(&(const struct child){0}, words, null, null, limit_s);
    close(null);
    return pid;
}

/* Runs the program with the words up to NULL. */
static inline struct output cli_run(const struct child *child, const char *const *words) {
    FILE *out = tmpfile(), *err = tmpfile();
    ck_assert(out != NULL && err != NULL);
    pid_t pid = cli_begin(child, words, fileno(out), fileno(err), 0);
    if (child->interrupt_after > 0) {
        const char *slower = getenv("CK_TIMEOUT_MULTIPLIER"); /* as under sanitizers */
        int factor = slower != NULL ? atoi(slower) : 1;
        for (int i = 0; i < (factor > 1 ? factor : 1); i++) {
            usleep(child->interrupt_after);
        }
        kill(pid, child->signal > 0 ? child->signal : SIGINT);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    struct output output = MAKE(
        struct output, .status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
        .out = cli_read(out), .err = cli_read(err));
    fclose(out);
    fclose(err);
    return output;
}

static inline void output_free(struct output *output) {
    free(output->out);
    free(output->err);
}

#define CLI_AS(child, ...) cli_run(child, (const char *const[]){__VA_ARGS__, NULL})
#define CLI(...)           CLI_AS(&(const struct child){0}, __VA_ARGS__)

/* The program ends with this status, and what it says last on standard error is this. */
static inline void cli_expect(struct output output, int status, const char *sentence) {
    const char *last = NULL;
    for (const char *at = output.err; (at = strstr(at, "unmask: ")) != NULL; at++) {
        last = at == output.err || at[-1] == '\n' ? at : last;
    }
    ck_assert_msg(last != NULL, "%s", output.err);
    ASSERT_SAYS(last, sentence);
    ck_assert_int_eq(output.status, status);
    output_free(&output);
}

#define REFUSES(status, sentence, ...) cli_expect(CLI(__VA_ARGS__), status, sentence)

/* Ends with status 0; the caller frees what it printed. */
static inline char *cli_text(struct output output) {
    ck_assert_msg(output.status == 0, "status %d: %s", output.status, output.err);
    free(output.err);
    return output.out;
}

#define PRINTS(...) cli_text(CLI(__VA_ARGS__))

/* Takes away what changes with every build: the line of a table, or the last member of an object.
 */
static inline void cli_drop_identity(char *text) {
    char *line = strstr(text, "\nidentity "), *member = strstr(text, ",\n  \"identity\": {");
    if (line != NULL) {
        const char *end = strchr(line + 1, '\n');
        memmove(line, end, strlen(end) + 1);
    }
    if (member != NULL) {
        const char *end = strstr(member, "\n  }");
        memmove(member, end + strlen("\n  }"), strlen(end + strlen("\n  }")) + 1);
    }
}

#endif
