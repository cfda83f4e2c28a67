#include "sim/check/check_plugin.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/monotonic.h"
#include "sim/check/exercise.h"
#include "sim/check/plugin.h"
#include "sim/policy/registry.h"

/* Written by the child, read by the parent. */
struct shared {
    struct exercise exercise;
    struct err refusal;
    uint32_t kind; /* 0 until the plug-in is loaded */
    char name[PLUGIN_MAX_NAME + 1];
    char doc[256];
    bool done; /* the child came to its end */
};

static _Noreturn void run_child(const char *path, struct shared *shared) {
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) {
        signal(deadly[i], SIG_DFL);
    }
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const struct policy *policy = NULL;
    if (plugin_open(path, &policy, &shared->refusal) == 0) {
        snprintf(shared->name, sizeof shared->name, "%s", policy->name);
        snprintf(shared->doc, sizeof shared->doc, "%s", policy->doc);
        shared->kind = policy->kind;
        exercise_policy(&shared->exercise, policy);
    }
    shared->done = true;
    _exit(0);
}

/* Waits for the child's end; kills it when one call lasts too long, which `*hung` then says. The
 * clock decides nothing but that. */
static int watch_child(pid_t child, const struct shared *shared, bool *hung) {
    const struct timespec nap = {0, 2000000};
    int status = 0;
    uint64_t calls = 0;
    int64_t since_ns = monotonic_ns();
    *hung = false;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR)) {
            return status;
        }
        uint64_t calls_now = shared->exercise.n_calls + shared->exercise.guard.n_calls;
        if (calls_now != calls) {
            calls = calls_now;
            since_ns = monotonic_ns();
        } else if (monotonic_ns() - since_ns > CHECK_CALL_LIMIT_S * INT64_C(1000000000)) {
            *hung = true;
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return status;
        }
        nanosleep(&nap, NULL);
    }
}

static int verdict(const char *path, const struct shared *shared, int status, bool hung,
                   struct err *err) {
    const char *callback = shared->exercise.guard.callback;
    bool loading = shared->kind == 0;
    if (hung) {
        return err_world(err, "%s did not return from %s within %d s", path,
                         loading ? "loading" : (callback != NULL ? callback : "its checks"),
                         CHECK_CALL_LIMIT_S);
    }
    const char *where = loading ? "while it was loaded" : "in callback ";
    const char *what = loading || callback == NULL ? "" : callback;
    if (WIFSIGNALED(status)) {
        const char *signal_name = sigabbrev_np(WTERMSIG(status));
        return err_world(err, "%s crashed with signal %s %s%s", path,
                         signal_name != NULL ? signal_name : "unknown", where, what);
    }
    if (!shared->done) {
        return err_world(err, "%s ended the process with exit status %d %s%s", path,
                         WEXITSTATUS(status), where, what);
    }
    if (shared->refusal.kind != ERR_NONE) {
        *err = shared->refusal;
        return (int)err->kind;
    }
    if (shared->exercise.guard.err.kind != ERR_NONE) {
        return err_world(err, "%s: %s", path, shared->exercise.guard.err.text);
    }
    return 0;
}

static void print_report(FILE *report, const char *path, const struct shared *shared,
                         const struct err *err) {
    const struct exercise *exercise = &shared->exercise;
    enum policy_kind kind = (enum policy_kind)shared->kind;
    fprintf(report, "%s %s (%s): %s\n", policy_kind_names[kind], shared->name, path, shared->doc);
    /* A guard that still has its copies was stopped in the middle of a variant. */
    bool stopped = exercise->guard.scratch != NULL;
    for (int i = 0; i < PROMISE_COUNT; i++) {
        uint64_t n = exercise->n_checked[i] + (stopped ? exercise->guard.n_checked[i] : 0);
        if (promise_concerns((enum promise)i, kind) && n > 0) {
            bool broken =
                exercise->guard.err.kind != ERR_NONE && exercise->guard.broken == (enum promise)i;
            fprintf(report, "  %-6s %s (%llu checks)\n", broken ? "BROKEN" : "ok",
                    promise_text((enum promise)i), (unsigned long long)n);
        }
    }
    if (err->kind != ERR_NONE) {
        fprintf(report, "  %s\n", err->text);
    } else {
        fprintf(report, "  every promise kept in %llu calls\n",
                (unsigned long long)exercise->n_calls);
    }
}

int check_plugin(const char *path, FILE *report, struct err *err) {
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return err_world(err, "no memory to share with a child process: %s", strerror(errno));
    }
    /* So that a plug-in that calls exit does not print the parent's buffers again. */
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        int cause = errno;
        munmap(shared, sizeof *shared);
        return err_world(err, "no child process to run %s in: %s", path, strerror(cause));
    }
    if (child == 0) {
        run_child(path, shared);
    }
    bool hung;
    int status = watch_child(child, shared, &hung);
    int kind = verdict(path, shared, status, hung, err);
    if (shared->kind != 0) {
        print_report(report, path, shared, err);
    }
    munmap(shared, sizeof *shared);
    return kind;
}
