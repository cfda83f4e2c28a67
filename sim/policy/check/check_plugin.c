#include "sim/policy/plugin/check_plugin.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/system.h"
#include "sim/policy/check/trial.h"
#include "sim/policy/plugin/call_watch.h"
#include "sim/policy/plugin/forbidden.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/policy/plugin/registry.h"
#include "sim/policy/plugin/statics.h"
#include "sim/policy/plugin/ward.h"

/* Written by the child, read by the parent. */
struct shared {
    struct trial trial;
    char ended[1024]; /* the sentence that ended it in the middle of a call */
    struct err refusal;
    uint32_t kind; /* 0 until the plug-in is loaded */
    char name[PLUGIN_MAX_NAME + 1];
    char doc[256];
    uint64_t changed_bytes; /* of its static variables */
    bool done;              /* the child came to its end */
};

static const char asked_in[] = "UNMASK_CHECK_PLUGIN"; /* "FD PATH", of the child's environment */

/* Loads and tries; what it finds is in `shared`, however it ends. Who waits for it decides
 * whether an interrupt ends it. */
static _Noreturn void try_file(const char *path, struct shared *shared) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    system_end_with_parent(SIGKILL);
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) {
        signal(deadly[i], SIG_DFL); /* sanitizers have handlers of their own */
    }
    system_leave_at_once();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    const struct policy *policy = NULL;
    const unsigned n_threads = system_threads();
    if (plugin_open(path, &policy, &shared->refusal) == 0 && system_threads() > n_threads) {
        err_world(&shared->refusal,
                  "%s: it starts a thread when it is loaded, which runs on when the run is over: "
                  "decide in the callbacks themselves",
                  path);
    } else if (policy != NULL) {
        snprintf(shared->name, sizeof shared->name, "%s", policy->name);
        snprintf(shared->doc, sizeof shared->doc, "%s", policy->doc);
        shared->kind = policy->kind;
        if (!call_is_answered_elsewhere(path)) {
            forbidden_watch(policy);
        }
        struct statics statics = {.n = 0};
        statics_of(policy, &statics);
        void *before = mem_zeroed(1, statics.bytes + 1);
        statics_keep(&statics, before);
        call_watch_trial(shared->ended, sizeof shared->ended);
        union any_policy *warded = (union any_policy *)(uintptr_t)ward_policy(policy, path);
        trial_run(&shared->trial, path, warded);
        shared->changed_bytes = statics_changed(&statics, before);
        free(before);
    }
    shared->done = true;
    _exit(0);
}

/* The child is this program anew, which tries what it is asked to before main: a child that
 * were only forked would have the locks of threads that it has not (the allocator's of the address
 * sanitizer, the digests' of the files read), and Open MPI warns of forks. */
__attribute__((constructor)) static void try_if_asked(void) {
    const char *asked = getenv(asked_in);
    if (asked == NULL) {
        return;
    }
    char *path;
    int fd = (int)strtol(asked, &path, 10);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *copy = *path == ' ' ? strdup(path + 1) : NULL;
    if (shared == MAP_FAILED || copy == NULL || unsetenv(asked_in) != 0 ||
        setenv(CALL_IS_TRIAL, "1", 1) != 0) {
        _exit(ERR_WORLD);
    }
    close(fd);
    try_file(copy, shared);
}

/* The environment with the question in it; freed by the caller, as is its first word. */
static char **child_environment(int fd, const char *path) {
    char **environment = system_environment();
    size_t n = 0;
    while (environment[n] != NULL) {
        n++;
    }
    char **words = mem_zeroed(n + 2, sizeof *words);
    size_t size = sizeof asked_in + strlen(path) + 32;
    words[0] = mem_zeroed(size, 1);
    snprintf(words[0], size, "%s=%d %s", asked_in, fd, path);
    memcpy(words + 1, environment, n * sizeof *words);
    return words;
}

/* An errno. */
static int start_child(int fd, const char *path, pid_t *child) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fd, fd); /* it stays open there, and there alone */
    char name[] = "unmask", **environment = child_environment(fd, path);
    char *words[] = {name, NULL};
    char program[4096];
    int cause = posix_spawn(child, system_itself(program, sizeof program), &files, NULL, words,
                            environment);
    free(environment[0]);
    free(environment);
    posix_spawn_file_actions_destroy(&files);
    return cause;
}

/* The limit that the time since a call began is beyond, in seconds; or 0. */
static int limit_met(int64_t waited_ns, int64_t worked_ns) {
    const int64_t ns = 1000000000;
    return worked_ns > CHECK_CALL_LIMIT_S * ns   ? CHECK_CALL_LIMIT_S
           : waited_ns > CHECK_WAIT_LIMIT_S * ns ? CHECK_WAIT_LIMIT_S
                                                 : 0;
}

/* Waits for the child's end; kills it when one call lasts longer than a limit, which `*limit_s`
 * then is. The clocks decide nothing but that. */
static int watch_child(const char *path, pid_t child, const struct shared *shared, int *limit_s) {
    const bool has_limit = !call_is_answered_elsewhere(path);
    const struct timespec nap = {0, 2000000};
    int status = 0;
    uint64_t calls = 0;
    int64_t since_ns = monotonic_ns(), worked_ns = 0;
    for (;;) {
        pid_t ended = waitpid(child, &status, *limit_s > 0 ? 0 : WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR)) {
            return status;
        }
        uint64_t calls_now = shared->trial.twice.n_calls;
        if (calls_now != calls) {
            calls = calls_now;
            since_ns = monotonic_ns();
            worked_ns = system_processor_ns(child);
        }
        *limit_s =
            has_limit ? limit_met(monotonic_ns() - since_ns, system_processor_ns(child) - worked_ns)
                      : 0;
        if (*limit_s > 0) {
            kill(child, SIGKILL);
        } else {
            nanosleep(&nap, NULL);
        }
    }
}

/* ", with share = 0" where a value other than the initial one was tried; else "". */
static const char *tried_value(const struct shared *shared) {
    const char *with = strstr(shared->trial.work, ", with ");
    return with != NULL ? with : "";
}

static int verdict(const char *path, const struct shared *shared, int status, int limit_s,
                   struct err *err) {
    const char *callback = shared->trial.twice.callback;
    bool loading = shared->kind == 0;
    if (limit_s > 0) {
        return err_world(err, "%s did not return from %s within %d s%s", path,
                         loading ? "loading" : (callback[0] != '\0' ? callback : "its checks"),
                         limit_s, tried_value(shared));
    }
    const char *where = loading               ? "while it was loaded"
                        : callback[0] != '\0' ? "in callback "
                                              : "in its checks";
    const char *what = loading ? "" : callback;
    if (shared->ended[0] != '\0') {
        return err_world(err, "%s%s", shared->ended, tried_value(shared));
    }
    if (WIFSIGNALED(status)) {
        return err_world(err, "%s crashed with signal %s %s%s%s", path,
                         system_signal_name(WTERMSIG(status)), where, what, tried_value(shared));
    }
    bool has_seen_enough =
        WEXITSTATUS(status) == CALL_TRIAL_ENDED && !loading && call_is_answered_elsewhere(path);
    if (!shared->done && !has_seen_enough) {
        return err_world(err, "%s ended the process with exit status %d %s%s", path,
                         WEXITSTATUS(status), where, what);
    }
    if (shared->refusal.kind != ERR_NONE) {
        *err = shared->refusal;
        return (int)err->kind;
    }
    if (shared->trial.err.kind != ERR_NONE) {
        return err_world(err, "%s: %s", path, shared->trial.err.text);
    }
    return 0;
}

static void print_report(FILE *report, const char *path, const struct shared *shared,
                         const struct err *err) {
    const struct trial *trial = &shared->trial;
    fprintf(report, "%s %s (%s): %s\n", policy_kind_names[shared->kind], shared->name, path,
            shared->doc);
    for (uint32_t i = 0; i < trial->n_served; i++) {
        fprintf(report, "  ok     %s (%llu calls)\n", trial->served[i].name,
                (unsigned long long)trial->served[i].n_calls);
    }
    if (err->kind != ERR_NONE) {
        fprintf(report, "  BROKEN %s\n", trial->work);
    }
    bool has_statics = shared->changed_bytes > 0 || statics_in_file(path) == STATICS_SOME;
    if (has_statics) {
        fprintf(report,
                "  note   has static variables, of which %llu bytes changed: every run and replica "
                "has its own\n",
                (unsigned long long)shared->changed_bytes);
    }
    if (err->kind != ERR_NONE) {
        fprintf(report, "  %s\n", err->text);
    } else {
        fprintf(report, "  every promise kept in %llu calls\n",
                (unsigned long long)trial->twice.n_calls);
    }
}

static void give_rows(const struct check_rows *rows, const struct trial *trial, bool is_kept) {
    for (uint32_t i = 0; i < trial->n_served; i++) {
        rows->add(rows->state, trial->served[i].name, true, trial->served[i].n_calls);
    }
    if (!is_kept) {
        rows->add(rows->state, trial->work, false, 0);
    }
}

int check_plugin(const char *path, FILE *report, const struct check_rows *rows, struct err *err) {
    int fd = system_memory_file();
    struct shared *shared = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof *shared) == 0) {
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    int cause = errno;
    pid_t child = 0;
    if (shared == MAP_FAILED) {
        if (fd >= 0) {
            close(fd);
        }
        return err_world(err, "no memory to share with a child process: %s", strerror(cause));
    }
    cause = start_child(fd, path, &child);
    close(fd);
    if (cause != 0) {
        munmap(shared, sizeof *shared);
        return err_world(err, "no child process to run %s in: %s", path, strerror(cause));
    }
    int limit_s = 0;
    int status = watch_child(path, child, shared, &limit_s);
    int kind = verdict(path, shared, status, limit_s, err);
    if (shared->kind != 0) {
        print_report(report, path, shared, err);
        if (rows != NULL) {
            give_rows(rows, &shared->trial, err->kind == ERR_NONE);
        }
    }
    munmap(shared, sizeof *shared);
    return kind;
}
