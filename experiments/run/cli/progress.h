/* Progress on the terminal: one line on standard error, only on a terminal and only after a second.
 * Where another program has started this one and shows its progress, UNMASK_PROGRESS is the number
 * of a pipe, into which lines of "DONE TOTAL NOUN" go instead. Besides the interrupt this is the
 * only place that reads a clock; no result depends on it. */
#ifndef UNMASK_EXPERIMENTS_RUN_CLI_PROGRESS_H
#define UNMASK_EXPERIMENTS_RUN_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *noun; /* "requests" */
    uint64_t n_total; /* 0: not known */
    bool is_terminal, is_shown;
    int listener;               /* a pipe, or -1 */
    int64_t start_ns, shown_ns; /* of the monotonic clock */
};

void progress_start(struct progress *progress, const char *noun, uint64_t n_total);
void progress_update(struct progress *progress, uint64_t n_done);

/* Wipes the line; returns the seconds since the start, for standard error only. */
double progress_end(struct progress *progress);

/* The shape of loop_request.progress; `state` is a struct progress. */
void progress_of_loop(void *state, uint64_t n_left, int64_t now_ns);

#endif
