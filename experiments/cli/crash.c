#include "experiments/cli/crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_WORLD = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char sentence[512]; /* made beforehand: a handler may not format */

static void on_crash(int signal_number) {
    (void)signal_number;
    ssize_t written = write(STDERR_FILENO, sentence, strlen(sentence));
    (void)written;
    _exit(STATUS_WORLD);
}

void crash_blame(const char *path) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = on_crash};
    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&lock);
    snprintf(sentence, sizeof sentence,
             "unmask: the run crashed with the plug-in %.200s loaded and was not recorded; `unmask "
             "check-plugin` exercises it\n",
             path);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sigaction(signals[i], &action, NULL);
    }
    pthread_mutex_unlock(&lock);
}
