#include "sim/serve/executor_replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

struct executor_replay {
    const struct replay_step *steps;
    size_t n_steps, next;
    int64_t now_ns;
    uint32_t n_replicas;
    bool decides;
    const struct replay_step *flights[]; /* NULL: idle */
};

/* What the record says of the members' blocks, into the planned step. */
static void fill_blocks(const struct replay_step *step, const struct planned_step *planned) {
    const struct step_positions *positions = step->positions;
    for (uint32_t i = 0; positions != NULL && planned->blocks != NULL && i < step->n_requests;
         i++) {
        const struct planned_block *block = &planned->blocks[i];
        size_t at = (size_t)i * positions->stride;
        if (positions->lengths[i] == planned->requests[planned->slots[i]].block_length) {
            memcpy(block->keep, positions->keep + at, positions->lengths[i]);
            memcpy(block->commit, positions->commit + at, positions->lengths[i]);
        }
    }
}

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
    fill_blocks(step, &submission->step);
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
        *out = (struct completion){
            .kind = COMPLETION_BATCH,
            .time_ns = step->end_ns,
            .replica = first,
            .steps = step->steps,
            .start_ns = step->start_ns,
            .gpu_ns = step->gpu_ns,
            .host_ns = step->host_ns,
            .decided = {.commits = step->commits, .positions = step->positions != NULL}};
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
                                             uint32_t n_replicas, bool decides) {
    struct executor_replay *replay =
        mem_zeroed(1, sizeof *replay + n_replicas * sizeof replay->flights[0]);
    replay->steps = steps;
    replay->n_steps = n_steps;
    replay->n_replicas = n_replicas;
    replay->decides = decides;
    return replay;
}

void executor_replay_close(struct executor_replay *replay) {
    free(replay);
}

struct executor executor_replay_interface(struct executor_replay *replay) {
    return (struct executor){
        .state = replay,
        .wants_members = true,
        .wants_positions = replay->n_steps > 0 && replay->steps[0].positions != NULL,
        .decides_positions = replay->decides,
        .submit = submit,
        .wait = wait_next,
        .estimate_ns = estimate_ns,
    };
}
