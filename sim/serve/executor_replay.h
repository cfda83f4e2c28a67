/* The replay executor: plays the step events of a recorded run, so that the loop repeats it.
 *
 * It holds the scheduler to the record: the same replica must submit the same requests. */
#ifndef UNMASK_SIM_SERVE_EXECUTOR_REPLAY_H
#define UNMASK_SIM_SERVE_EXECUTOR_REPLAY_H

#include <stddef.h>

#include "sim/serve/executor.h"
#include "sim/serve/record.h"

/* One recorded submission, in the order of submission. */
struct replay_step {
    uint32_t replica, steps, n_requests;
    int64_t start_ns, end_ns, gpu_ns, host_ns;
    const uint64_t *request_ids; /* n_requests of them */
    const uint32_t *commits;     /* of each of them in one step; NULL: drawn again */
    /* Which positions it kept and committed; NULL: the record has counts alone. */
    const struct step_positions *positions;
};

struct executor_replay;

/* `steps` is borrowed. decides: a device decided what they kept, so that nothing of it is drawn. */
struct executor_replay *executor_replay_open(const struct replay_step *steps, size_t n_steps,
                                             uint32_t n_replicas, bool decides);
void executor_replay_close(struct executor_replay *replay);
struct executor executor_replay_interface(struct executor_replay *replay);

#endif
