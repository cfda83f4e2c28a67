#include "sim/serve/executor_replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

/* The steps of one replica, in order; those in flight were started together. */
struct lane {
    size_t next, end; /* of by_replica */
    const struct replay_step *const *flight;
    uint32_t n_flight; /* 0: idle */
    struct planned_step planned;
};

struct executor_replay {
    struct replay_record record;
    int64_t now_ns;
    uint32_t n_replicas;
    const struct replay_step **by_replica, *last;
    bool is_over; /* the loop submitted more than the cut record has */
    struct lane lanes[];
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
            if (block->entropy != NULL && positions->entropy != NULL) {
                memcpy(block->entropy, positions->entropy + at,
                       positions->lengths[i] * sizeof *block->entropy);
            }
        }
    }
}

/* Whether the recorded step is the submitted one, or one of those that the submission unrolls to.
 */
static int check_step(const struct executor_replay *replay, const struct replay_step *step,
                      const struct submission *submission, struct err *err) {
    size_t index = (size_t)(step - replay->record.steps);
    if (step->steps > submission->repeat || step->start_ns < replay->now_ns ||
        step->n_requests != submission->step.n_slots) {
        return err_world(err,
                         "the replay diverges at submission %zu: recorded replica %" PRIu32
                         " with %" PRIu32 " requests at %" PRId64 " ns, scheduled replica %" PRIu32
                         " with %" PRIu32 " requests at %" PRId64 " ns",
                         index, step->replica, step->n_requests, step->start_ns,
                         submission->replica, submission->step.n_slots, replay->now_ns);
    }
    for (uint32_t i = 0; i < step->n_requests; i++) {
        if (step->request_ids[i] != submission->step.request_ids[i]) {
            return err_world(err,
                             "the replay diverges at submission %zu: recorded request %" PRIu64
                             " in place %" PRIu32 ", scheduled request %" PRIu64,
                             index, step->request_ids[i], i, submission->step.request_ids[i]);
        }
    }
    return 0;
}

/* Unrolled steps are recorded one by one unless the decoder counts; a submission takes as many of
 * them as it has. */
static int submit(void *state, const struct submission *submission, struct err *err) {
    struct executor_replay *replay = state;
    struct lane *lane = &replay->lanes[submission->replica];
    uint32_t steps = 0, n = 0;
    ASSERT(lane->n_flight == 0);
    do {
        if (lane->next + n == lane->end && replay->record.is_cut) {
            replay->is_over = true;
            return 0;
        }
        if (lane->next + n == lane->end) {
            return err_world(err,
                             "the replay diverges: the run goes on after the %zu submissions "
                             "recorded",
                             replay->record.n_steps);
        }
        const struct replay_step *step = replay->by_replica[lane->next + n++];
        steps += step->steps;
        if (check_step(replay, step, submission, err) != 0) {
            return err_status(err);
        }
    } while (submission->unrolled && steps < submission->repeat);
    lane->flight = replay->by_replica + lane->next;
    lane->n_flight = n;
    lane->next += n;
    lane->planned = submission->step;
    replay->last = lane->flight[0];
    fill_blocks(lane->flight[0], &lane->planned);
    return 0;
}

const struct replay_step *executor_replay_step(const struct executor_replay *replay,
                                               uint32_t replica, uint32_t s) {
    return replay->lanes[replica].flight[s];
}

static int unroll(void *state, uint32_t replica, uint32_t s, struct decided *out, struct err *err) {
    const struct executor_replay *replay = state;
    const struct replay_step *step = executor_replay_step(replay, replica, s);
    (void)err;
    fill_blocks(step, &replay->lanes[replica].planned);
    *out = (struct decided){.commits = step->commits, .positions = step->positions != NULL};
    return 0;
}

static int64_t end_of(const struct lane *lane) {
    return lane->flight[lane->n_flight - 1]->end_ns;
}

static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct executor_replay *replay = state;
    struct lane *first = NULL;
    (void)err;
    for (uint32_t i = 0; i < replay->n_replicas; i++) {
        struct lane *lane = &replay->lanes[i];
        if (lane->n_flight > 0 && (first == NULL || end_of(lane) < end_of(first))) {
            first = lane;
        }
    }
    if (first != NULL && end_of(first) <= until_ns) {
        const struct replay_step *step = first->flight[0];
        replay->now_ns = end_of(first);
        *out = (struct completion){
            .kind = COMPLETION_BATCH,
            .time_ns = replay->now_ns,
            .replica = (uint32_t)(first - replay->lanes),
            .steps = first->n_flight > 1 ? first->n_flight : step->steps,
            .start_ns = step->start_ns,
            .gpu_ns = step->gpu_ns,
            .host_ns = step->host_ns,
            .decided = {.commits = step->commits, .positions = step->positions != NULL}};
        first->n_flight = 0;
        return 0;
    }
    if (replay->is_over && first == NULL) {
        *out = (struct completion){.kind = COMPLETION_CUT, .time_ns = replay->now_ns};
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

static int64_t flight_step_ns(const void *state, uint32_t replica) {
    const struct lane *lane = &((const struct executor_replay *)state)->lanes[replica];
    return lane->n_flight > 0 ? (end_of(lane) - lane->flight[0]->start_ns) / lane->flight[0]->steps
                              : 1;
}

/* The record has steps as they were cut. */
static void cut(void *state, uint32_t replica, int64_t now_ns) {
    (void)state;
    (void)replica;
    (void)now_ns;
}

bool executor_replay_is_over(const struct executor_replay *replay) {
    return replay->is_over;
}

/* A record has no durations of steps that did not run: those of the step before stand in. */
static int64_t estimate_ns(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t workspace_bytes, double *joules) {
    const struct replay_step *last = ((const struct executor_replay *)state)->last;
    (void)replica;
    (void)shape;
    (void)workspace_bytes;
    *joules = 0;
    return last != NULL ? (last->end_ns - last->start_ns) / last->steps : 1;
}

/* Sorts the steps by replica; on each they stay in the order of their starts. Steps of replicas
 * that do not exist are left out. */
static void sort_by_replica(struct executor_replay *replay) {
    const struct replay_record *record = &replay->record;
    for (size_t i = 0; i < record->n_steps; i++) {
        if (record->steps[i].replica < replay->n_replicas) {
            replay->lanes[record->steps[i].replica].end++;
        }
    }
    size_t n = 0;
    for (uint32_t i = 0; i < replay->n_replicas; i++) {
        size_t n_own = replay->lanes[i].end;
        replay->lanes[i].next = replay->lanes[i].end = n;
        n += n_own;
    }
    for (size_t i = 0; i < record->n_steps; i++) {
        if (record->steps[i].replica < replay->n_replicas) {
            struct lane *lane = &replay->lanes[record->steps[i].replica];
            replay->by_replica[lane->end++] = &record->steps[i];
        }
    }
}

struct executor_replay *executor_replay_open(const struct replay_record *record,
                                             uint32_t n_replicas) {
    struct executor_replay *replay =
        mem_zeroed(1, sizeof *replay + n_replicas * sizeof(struct lane));
    replay->record = *record;
    replay->n_replicas = n_replicas;
    replay->by_replica = mem_zeroed(record->n_steps, sizeof(struct replay_step *));
    sort_by_replica(replay);
    return replay;
}

void executor_replay_close(struct executor_replay *replay) {
    if (replay != NULL) {
        free(replay->by_replica);
        free(replay);
    }
}

struct executor executor_replay_interface(struct executor_replay *replay) {
    const struct replay_record *record = &replay->record;
    return (struct executor){
        .state = replay,
        .wants_members = true,
        .wants_positions = record->n_steps > 0 && record->steps[0].positions != NULL,
        .decides_positions = record->decides,
        .unrolls = record->unrolls,
        .shares_prefixes = record->shares_prefixes,
        .submit = submit,
        .wait = wait_next,
        .step_ns = flight_step_ns,
        .cut = cut,
        .unroll = unroll,
        .estimate_ns = estimate_ns,
    };
}
