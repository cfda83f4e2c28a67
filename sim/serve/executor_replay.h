/* The replay executor: plays the step events of a recorded run, so that the loop repeats it.
 *
 * It holds the scheduler to the record: the same replica must submit the same requests. */
#ifndef UNMASK_SIM_SERVE_EXECUTOR_REPLAY_H
#define UNMASK_SIM_SERVE_EXECUTOR_REPLAY_H

#include <stddef.h>

#include "sim/serve/executor.h"

/* One recorded submission, in the order of submission. */
struct replay_step {
    uint32_t replica, steps, n_requests;
    int64_t start_ns, end_ns, gpu_ns, host_ns;
    const uint64_t *request_ids; /* n_requests of them */
    const uint32_t *commits;     /* of each of them in one step; NULL: drawn again */
};

struct executor_replay;

/* `steps` is borrowed. */
struct executor_replay *executor_replay_open(const struct replay_step *steps, size_t n_steps,
                                             uint32_t n_replicas);
void executor_replay_close(struct executor_replay *replay);
struct executor executor_replay_interface(struct executor_replay *replay);

#endif
