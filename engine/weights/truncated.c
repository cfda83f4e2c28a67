#include "engine/weights/truncated.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/err.h"
#include "sim/base/output.h"

enum { MOST_WATCHED = 256 }; /* more are mapped without being watched */

static struct {
    const char *path; /* NULL: free */
    const char *map;
    size_t size;
} watched[MOST_WATCHED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

static void say(const char *text) {
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void on_bus(int signal_number, siginfo_t *info, void *context) {
    const char *at = info->si_addr;
    (void)context;
    for (int i = 0; i < MOST_WATCHED; i++) {
        if (watched[i].path != NULL && at >= watched[i].map &&
            at < watched[i].map + watched[i].size) {
            say("unmask: ");
            say(watched[i].path);
            say(": became shorter while it was read\n");
            output_abandon();
            _exit(ERR_WORLD);
        }
    }
    sigaction(signal_number, &before, NULL); /* it happens again, and is another's */
}

static void catch_bus(void) {
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

void truncated_watch(const char *path, const void *map, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, catch_bus);
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < MOST_WATCHED && watched[i].path != NULL) {
        i++;
    }
    if (i < MOST_WATCHED) {
        watched[i].map = map;
        watched[i].size = size;
        watched[i].path = path;
    }
    pthread_mutex_unlock(&lock);
}

void truncated_forget(const void *map) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_WATCHED; i++) {
        if (watched[i].map == map) {
            watched[i].path = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
}
