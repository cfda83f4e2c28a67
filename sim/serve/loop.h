/* The serving loop: there is one, whatever executes its batches.
 *
 * Each turn takes the arrivals that are due, asks the scheduler of every idle replica for a batch,
 * submits it and waits for the executor's next event. Everything is allocated before the first
 * turn; nothing in the loop allocates. */
#ifndef UNMASK_SIM_SERVE_LOOP_H
#define UNMASK_SIM_SERVE_LOOP_H

#include <signal.h>
#include <stdint.h>

#include "sim/base/arrival.h"
#include "sim/base/decode.h"
#include "sim/serve/executor.h"
#include "sim/serve/record.h"
#include "sim/system/system.h"

struct loop_request {
    const struct system *system;
    struct executor executor;
    struct arrival_source source;
    const struct sink *sinks;
    uint32_t n_sinks;
    bool records_members; /* some sink wants request ids, commit counts and passes per step */
    /* check-plugin: what a run lets pass because it does no harm yet is refused, such as a question
     * about a batch that is none, or a wait for nothing. */
    bool is_trial;
    bool lets_wait; /* check-plugin, of a cache policy: refreshes that can wait do, by turns */
    /* Not NULL: refreshes that can wait do, for ever, where the scheduler reads how long they can;
     * the span of the one that does not take place is written here when its step is planned. */
    struct span *spared;
    uint64_t seed;
    /* Recorded decisions; NULL: they are drawn, or the executor knows. Only with a decoder that
     * reads confidences, and an executor that decides nothing itself. */
    const struct decode_source *decode;
    const volatile sig_atomic_t *stop; /* set from outside: end at the next border; may be NULL */
    void (*progress)(void *state, uint64_t n_left, int64_t now_ns); /* may be NULL */
    void *progress_state;
};

struct loop_result {
    uint64_t arrived, completed, rejected;
    uint64_t submissions, steps, request_steps;
    int64_t end_ns;         /* time of the last event */
    int64_t busy_ns;        /* executor time, summed over replicas */
    int64_t kv_peak_bytes;  /* most held at once on one replica */
    int64_t sym[SYM_COUNT]; /* summed over all steps */
    bool interrupted;
};

/* Run to the end of the source. Rejected requests are reported to the sinks, never an error. Where
 * the scheduler starves (ERR_STARVES) those that are left are rejected, and *result is what was. */
int loop_run(const struct loop_request *request, struct loop_result *result, struct err *err);

#endif
