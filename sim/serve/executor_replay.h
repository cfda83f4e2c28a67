/* The replay executor: plays the step events of a recorded run, so that the loop repeats it.
 *
 * It holds the scheduler to the record: the same replica must submit the same requests. It reads
 * the record as it goes, and holds of it what is in flight and, of several replicas, what ended
 * while the longest step in flight ran. */
#ifndef UNMASK_SIM_SERVE_EXECUTOR_REPLAY_H
#define UNMASK_SIM_SERVE_EXECUTOR_REPLAY_H

#include <stddef.h>

#include "sim/serve/executor.h"
#include "sim/serve/record.h"

/* One recorded submission. */
struct replay_step {
    struct replay_step *next; /* of the list that it is in */
    uint32_t replica, steps, n_requests;
    int64_t start_ns, end_ns, gpu_ns, host_ns;
    struct swap swap;
    const uint64_t *request_ids; /* n_requests of them */
    const uint32_t *commits;     /* of each of them in one step; NULL: drawn again */
    /* Which positions it kept and committed; NULL: the record has counts alone. */
    const struct step_positions *positions;
};

/* A record of steps and what its executor did. */
struct replay_record {
    void *state;
    /* The next step in the order of their ends, or NULL after the last; 0 or an err kind. What was
     * read is given to `drop` once it is over. */
    int (*read)(void *state, struct replay_step **out, struct err *err);
    void (*drop)(struct replay_step *step);
    uint64_t n_steps;
    bool has_positions; /* of its steps */
    bool is_cut;        /* the run went on: a submission after the last step ends the replay */
    bool decides;       /* a device decided what they kept, so that nothing of it is drawn */
    bool unrolls, shares_prefixes; /* as struct executor has them */
};

struct executor_replay;

struct executor_replay *executor_replay_open(const struct replay_record *record,
                                             uint32_t n_replicas);
void executor_replay_close(struct executor_replay *replay);
struct executor executor_replay_interface(struct executor_replay *replay);

/* Whether the loop was told that the record is over. */
bool executor_replay_is_over(const struct executor_replay *replay);

/* The s-th step of the replica's last submission, of which it has one, or several where it was
 * unrolled. */
const struct replay_step *executor_replay_step(const struct executor_replay *replay,
                                               uint32_t replica, uint32_t s);

#endif
