#include "experiments/run/cli/progress.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/monotonic.h"
#include "sim/base/num.h"

enum { BAR_CHARS = 30 };
static const int64_t patience_ns = 1000000000, interval_ns = 200000000;

/* A pipe of the program that started this one, which shows it; -1: there is none. */
static int listener(void) {
    uint64_t fd;
    const char *text = getenv("UNMASK_PROGRESS");
    struct stat found;
    if (text == NULL || !num_u64(text, INT32_MAX, &fd) || fd <= STDERR_FILENO ||
        fstat((int)fd, &found) != 0 || !S_ISFIFO(found.st_mode)) {
        return -1;
    }
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    return (int)fd;
}

void progress_start(struct progress *progress, const char *noun, uint64_t n_total) {
    *progress = (struct progress){.noun = noun,
                                  .n_total = n_total,
                                  .is_terminal = isatty(STDERR_FILENO) != 0,
                                  .listener = listener(),
                                  .start_ns = monotonic_ns()};
}

/* A line that is written whole or, where the reader is stuck, not at all. */
static void tell(const struct progress *progress, uint64_t n_done) {
    char line[128];
    struct pollfd pipe = {.fd = progress->listener, .events = POLLOUT};
    int n = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 " %s\n", n_done, progress->n_total,
                     progress->noun);
    if (n < (int)sizeof line && poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLOUT) != 0) {
        ssize_t written = write(progress->listener, line, (size_t)n);
        (void)written;
    }
}

void progress_update(struct progress *progress, uint64_t n_done) {
    if (!progress->is_terminal && progress->listener < 0) {
        return;
    }
    int64_t now_ns = monotonic_ns();
    if (now_ns - progress->start_ns < patience_ns || now_ns - progress->shown_ns < interval_ns) {
        return;
    }
    progress->shown_ns = now_ns;
    if (progress->listener >= 0) {
        tell(progress, n_done);
        return;
    }
    progress->is_shown = true;
    if (progress->n_total == 0) {
        fprintf(stderr, "\r%" PRIu64 " %s\033[K", n_done, progress->noun);
        return;
    }
    int filled = (int)((double)BAR_CHARS * (double)n_done / (double)progress->n_total);
    filled = filled > BAR_CHARS ? BAR_CHARS : filled;
    fprintf(stderr, "\r[%.*s%*s] %" PRIu64 "/%" PRIu64 " %s\033[K", filled,
            "##############################", BAR_CHARS - filled, "", n_done, progress->n_total,
            progress->noun);
}

double progress_end(struct progress *progress) {
    if (progress->is_shown) {
        fprintf(stderr, "\r\033[K");
    }
    return (double)(monotonic_ns() - progress->start_ns) * 1e-9;
}

void progress_of_loop(void *state, uint64_t n_left, int64_t now_ns) {
    (void)now_ns;
    progress_update(state, n_left);
}
