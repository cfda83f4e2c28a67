#include "sim/serve/executor_replay.h"

#include <inttypes.h>
#include <stdlib.h>

struct executor_replay {
    const struct replay_step *steps;
    size_t n_steps, next;
    int64_t now_ns;
    uint32_t n_replicas;
    const struct replay_step *flights[]; /* NULL: idle */
};

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct executor_replay *replay = state;
    if (replay->next == replay->n_steps) {
        return err_world(err,
                         "the replay diverges: the run goes on after the %zu submissions recorded",
                         replay->n_steps);
    }
    const struct replay_step *step = &replay->steps[replay->next];
    if (step->replica != submission->replica || step->steps > submission->repeat ||
        step->start_ns < replay->now_ns || step->n_requests != submission->step.n_slots) {
        return err_world(err,
                         "the replay diverges at submission %zu: recorded replica %" PRIu32
                         " with %" PRIu32 " requests at %" PRId64 " ns, scheduled replica %" PRIu32
                         " with %" PRIu32 " requests at %" PRId64 " ns",
                         replay->next, step->replica, step->n_requests, step->start_ns,
                         submission->replica, submission->step.n_slots, replay->now_ns);
    }
    for (uint32_t i = 0; i < step->n_requests; i++) {
        if (step->request_ids[i] != submission->step.request_ids[i]) {
            return err_world(err,
                             "the replay diverges at submission %zu: recorded request %" PRIu64
                             " in place %" PRIu32 ", scheduled request %" PRIu64,
                             replay->next, step->request_ids[i], i,
                             submission->step.request_ids[i]);
        }
    }
    replay->flights[submission->replica] = step;
    replay->next++;
    return 0;
}

static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct executor_replay *replay = state;
    (void)err;
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < replay->n_replicas; i++) {
        if (replay->flights[i] != NULL &&
            (first == UINT32_MAX || replay->flights[i]->end_ns < replay->flights[first]->end_ns)) {
            first = i;
        }
    }
    if (first != UINT32_MAX && replay->flights[first]->end_ns <= until_ns) {
        const struct replay_step *step = replay->flights[first];
        replay->flights[first] = NULL;
        replay->now_ns = step->end_ns;
        *out = (struct completion){.kind = COMPLETION_BATCH,
                                   .time_ns = step->end_ns,
                                   .replica = first,
                                   .steps = step->steps,
                                   .start_ns = step->start_ns,
                                   .gpu_ns = step->gpu_ns,
                                   .host_ns = step->host_ns,
                                   .decided.commits = step->commits};
        return 0;
    }
    if (until_ns == INT64_MAX) {
        *out = (struct completion){.kind = COMPLETION_IDLE, .time_ns = replay->now_ns};
        return 0;
    }
    replay->now_ns = until_ns > replay->now_ns ? until_ns : replay->now_ns;
    *out = (struct completion){.kind = COMPLETION_TIME, .time_ns = replay->now_ns};
    return 0;
}

/* A record holds durations of what ran, not of what might run: the mean step so far. */
static int64_t estimate_ns(const void *state, const struct step_shape *shape,
                           int64_t workspace_bytes) {
    const struct executor_replay *replay = state;
    (void)shape;
    (void)workspace_bytes;
    const struct replay_step *last = replay->next > 0 ? &replay->steps[replay->next - 1] : NULL;
    return last != NULL ? (last->end_ns - last->start_ns) / last->steps : 1;
}

struct executor_replay *executor_replay_open(const struct replay_step *steps, size_t n_steps,
                                             uint32_t n_replicas) {
    struct executor_replay *replay =
        calloc(1, sizeof *replay + n_replicas * sizeof replay->flights[0]);
    ASSERT(replay != NULL);
    replay->steps = steps;
    replay->n_steps = n_steps;
    replay->n_replicas = n_replicas;
    return replay;
}

void executor_replay_close(struct executor_replay *replay) {
    free(replay);
}

struct executor executor_replay_interface(struct executor_replay *replay) {
    return (struct executor){
        .state = replay,
        .wants_members = true,
        .submit = submit,
        .wait = wait_next,
        .estimate_ns = estimate_ns,
    };
}
