#include "tests/torture/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[FAULT_KINDS] = {"alloc", "file", "device", "io", "write"};
static const char *const hows[] = {"once",  "on",  "kill",  "int",  "term", "hup",
                                   "power", "lie", "short", "full", "torn"};

enum fault_how fault_how;
static int kind_asked = -1;
static long at;
static atomic_long chances[FAULT_KINDS];
static char log_path[4096];
static _Atomic uint64_t random_state;

int __real_open(const char *path, int flags, ...);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

static void say(const char *text) {
    int file = log_path[0] != '\0'
                   ? __real_open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
                   : -1;
    if (file >= 0) {
        ssize_t written = write(file, text, strlen(text));
        (void)written;
        close(file);
    }
}

bool fault_hits(enum fault_kind kind, const char *place) {
    long chance = atomic_fetch_add(&chances[kind], 1) + 1;
    bool lasts = fault_how == HOW_ON || fault_how == HOW_FULL;
    if ((int)kind != kind_asked || (lasts ? chance < at : chance != at)) {
        return false;
    }
    if (chance == at) {
        char line[256];
        snprintf(line, sizeof line, "fired %s %ld %s\n", kinds[kind], chance, place);
        say(line);
    }
    switch (fault_how) {
    case HOW_KILL:
        fault_kill();
    case HOW_INT:
    case HOW_TERM:
    case HOW_HUP: {
        const int signals[] = {SIGINT, SIGTERM, SIGHUP};
        raise(signals[fault_how - HOW_INT]);
        return false;
    }
    default:
        return true;
    }
}

bool fault_cuts_power(void) {
    return kind_asked == FAULT_IO && (fault_how == HOW_POWER || fault_how == HOW_LIE);
}

/* splitmix64 */
uint64_t fault_random(void) {
    uint64_t z = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void fault_kill(void) {
    kill(getpid(), SIGKILL);
    __real__exit(1);
}

static void say_chances(void) {
    char line[256] = "chances";
    for (int i = 0; i < FAULT_KINDS; i++) {
        size_t length = strlen(line);
        snprintf(line + length, sizeof line - length, " %s=%ld", kinds[i],
                 atomic_load(&chances[i]));
    }
    strcat(line, "\n");
    say(line);
}

/* How the program ends, and its children. */
_Noreturn void __wrap__exit(int status) {
    say_chances();
    __real__exit(status);
}

static void refuse(const char *asked) {
    fprintf(stderr, "UNMASK_FAULT=%s: KIND:N[:HOW] with what tests/torture/fault.h lists\n", asked);
    __real__exit(3);
}

static void read_asked(const char *asked) {
    char kind[16] = "", how[16] = "once";
    if (sscanf(asked, "%15[a-z]:%ld:%15[a-z]", kind, &at, how) < 2 || at < 1) {
        refuse(asked);
    }
    for (int i = 0; i < FAULT_KINDS; i++) {
        kind_asked = strcmp(kind, kinds[i]) == 0 ? i : kind_asked;
    }
    size_t n = 0;
    while (n < sizeof hows / sizeof hows[0] && strcmp(how, hows[n]) != 0) {
        n++;
    }
    if (kind_asked < 0 || n == sizeof hows / sizeof hows[0]) {
        refuse(asked);
    }
    fault_how = (enum fault_how)n;
    random_state = (uint64_t)at * 0x2545f4914f6cdd1du;
}

__attribute__((constructor)) static void start(void) {
    const char *asked = getenv("UNMASK_FAULT"), *log = getenv("UNMASK_FAULT_LOG");
    snprintf(log_path, sizeof log_path, "%s", log != NULL ? log : "");
    fault_device();
    fault_sqlite();
    fault_libraries();
    for (int i = 0; i < FAULT_KINDS; i++) {
        chances[i] = 0; /* what setting up took does not count */
    }
    if (asked != NULL) {
        read_asked(asked);
    }
    atexit(say_chances);
}
