#include "experiments/cli/parent.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/err.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/base/system.h"

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

void parent_follow(void) {
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
