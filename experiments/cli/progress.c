#include "experiments/cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "sim/base/monotonic.h"

enum { BAR_CHARS = 30 };
static const int64_t patience_ns = 1000000000, interval_ns = 200000000;

void progress_start(struct progress *progress, const char *noun, uint64_t n_total) {
    *progress = (struct progress){.noun = noun,
                                  .n_total = n_total,
                                  .is_terminal = isatty(STDERR_FILENO) != 0,
                                  .start_ns = monotonic_ns()};
}

void progress_update(struct progress *progress, uint64_t n_done) {
    if (!progress->is_terminal) {
        return;
    }
    int64_t now_ns = monotonic_ns();
    if (now_ns - progress->start_ns < patience_ns || now_ns - progress->shown_ns < interval_ns) {
        return;
    }
    progress->shown_ns = now_ns;
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
