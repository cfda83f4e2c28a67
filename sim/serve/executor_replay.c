#include "sim/serve/executor_replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

/* A list of steps in the order in which they were read. */
struct steps {
    struct replay_step *first, *last;
};

/* The steps of one replica: those in flight, or that were last, and were started together, and
 * those that were read on the way to another one's. */
struct lane {
    struct steps flight, ahead;
    uint32_t n_flight; /* 0: idle */
    struct planned_step planned;
};

struct executor_replay {
    struct replay_record record;
    int64_t now_ns;
    uint32_t n_replicas;
    uint64_t n_submitted; /* steps of the record */
    int64_t estimate_ns;  /* of a step: what one of the last submission took */
    bool is_over;         /* the loop submitted more than the cut record has */
    struct lane lanes[];
};

static void steps_append(struct steps *steps, struct replay_step *step) {
    step->next = NULL;
    *(steps->first != NULL ? &steps->last->next : &steps->first) = step;
    steps->last = step;
}

static void drop_steps(const struct executor_replay *replay, struct steps *steps) {
    while (steps->first != NULL) {
        struct replay_step *step = steps->first;
        steps->first = step->next;
        replay->record.drop(step);
    }
}

/* The next step of the lane, read if it was not yet; NULL: there is none. On a replica the order of
 * the ends is that of the starts. */
static int next_step(struct executor_replay *replay, struct lane *lane, struct replay_step **out,
                     struct err *err) {
    while (lane->ahead.first == NULL) {
        struct replay_step *step = NULL;
        int status = replay->record.read(replay->record.state, &step, err);
        if (status != 0 || step == NULL) {
            *out = NULL;
            return status;
        }
        if (step->replica < replay->n_replicas) {
            steps_append(&replay->lanes[step->replica].ahead, step);
        } else {
            replay->record.drop(step); /* of a replica that does not exist */
        }
    }
    *out = lane->ahead.first;
    return 0;
}

/* Copies the recorded flags of the members' blocks into the planned step. */
static void fill_blocks(const struct replay_step *step, const struct planned_step *planned) {
    const struct step_positions *positions = step->positions;
    for (uint32_t i = 0; positions != NULL && planned->blocks != NULL && i < step->n_requests;
         i++) {
        const struct planned_block *block = &planned->blocks[i];
        size_t at = (size_t)i * positions->stride;
        if (positions->lengths[i] == window_length(&planned->requests[planned->slots[i]])) {
            memcpy(block->keep, positions->keep + at, positions->lengths[i]);
            memcpy(block->outcome, positions->outcome + at, positions->lengths[i]);
            if (block->entropy != NULL && positions->entropy != NULL) {
                memcpy(block->entropy, positions->entropy + at,
                       positions->lengths[i] * sizeof *block->entropy);
            }
            for (uint32_t j = 0;
                 block->seen != NULL && positions->seen != NULL && j < positions->lengths[i]; j++) {
                block->seen[j] = block->keep[j] ? positions->seen[at + j] : block->seen[j];
            }
        }
    }
}

/* Whether the recorded step is the submitted one, or one of those that the submission unrolls to.
 */
static int check_step(const struct executor_replay *replay, const struct replay_step *step,
                      const struct submission *submission, struct err *err) {
    const uint64_t index = replay->n_submitted;
    if (step->steps > submission->repeat || step->start_ns < replay->now_ns ||
        step->n_requests != submission->step.n_slots) {
        return err_world(err,
                         "the replay diverges at submission %" PRIu64 ": recorded replica %" PRIu32
                         " with %" PRIu32 " requests at %" PRId64 " ns, scheduled replica %" PRIu32
                         " with %" PRIu32 " requests at %" PRId64 " ns",
                         index, step->replica, step->n_requests, step->start_ns,
                         submission->replica, submission->step.n_slots, replay->now_ns);
    }
    for (uint32_t i = 0; i < step->n_requests; i++) {
        if (step->request_ids[i] != submission->step.request_ids[i]) {
            return err_world(err,
                             "the replay diverges at submission %" PRIu64
                             ": recorded request %" PRIu64 " in place %" PRIu32
                             ", scheduled request %" PRIu64,
                             index, step->request_ids[i], i, submission->step.request_ids[i]);
        }
    }
    return 0;
}

/* The first of a submission says what was copied ahead of it. */
static int check_swap(const struct swap *recorded, const struct swap *scheduled, uint64_t index,
                      struct err *err) {
    return recorded->out_bytes == scheduled->out_bytes && recorded->in_bytes == scheduled->in_bytes
               ? 0
               : err_world(err,
                           "the replay diverges at submission %" PRIu64 ": recorded %" PRId64
                           " bytes swapped out and %" PRId64 " brought back, scheduled %" PRId64
                           " and %" PRId64,
                           index, recorded->out_bytes, recorded->in_bytes, scheduled->out_bytes,
                           scheduled->in_bytes);
}

/* Unrolled steps are recorded one by one unless the decoder counts; a submission takes as many of
 * them as it has. */
static int submit(void *state, const struct submission *submission, struct err *err) {
    struct executor_replay *replay = state;
    struct lane *lane = &replay->lanes[submission->replica];
    uint32_t steps = 0, n = 0;
    ASSERT(lane->n_flight == 0);
    drop_steps(replay, &lane->flight);
    do {
        struct replay_step *step;
        if (next_step(replay, lane, &step, err) != 0) {
            return err_status(err);
        }
        if (step == NULL && replay->record.is_cut) {
            replay->is_over = true;
            return 0;
        }
        if (step == NULL) {
            return err_world(err,
                             "the replay diverges: the run goes on after the %" PRIu64
                             " submissions recorded",
                             replay->record.n_steps);
        }
        if (check_step(replay, step, submission, err) != 0 ||
            (n == 0 && check_swap(&step->swap, &submission->swap, replay->n_submitted, err) != 0)) {
            return err_status(err);
        }
        lane->ahead.first = step->next;
        steps_append(&lane->flight, step);
        steps += step->steps;
        replay->n_submitted++;
        n++;
    } while (submission->unrolled && steps < submission->repeat);
    const struct replay_step *first = lane->flight.first;
    lane->n_flight = n;
    lane->planned = submission->step;
    replay->estimate_ns = (first->end_ns - first->start_ns) / first->steps;
    fill_blocks(first, &lane->planned);
    return 0;
}

const struct replay_step *executor_replay_step(const struct executor_replay *replay,
                                               uint32_t replica, uint32_t s) {
    const struct replay_step *step = replay->lanes[replica].flight.first;
    for (; s > 0; s--) {
        step = step->next;
    }
    return step;
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
    return lane->flight.last->end_ns;
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
        const struct replay_step *step = first->flight.first;
        replay->now_ns = end_of(first);
        *out = (struct completion){
            .kind = COMPLETION_BATCH,
            .time_ns = replay->now_ns,
            .replica = (uint32_t)(first - replay->lanes),
            .steps = first->n_flight > 1 ? first->n_flight : step->steps,
            .start_ns = step->start_ns,
            .gpu_ns = step->gpu_ns,
            .host_ns = step->host_ns,
            .stall_ns = step->swap.stall_ns,
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
    return lane->n_flight > 0
               ? (end_of(lane) - lane->flight.first->start_ns) / lane->flight.first->steps
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
    (void)replica;
    (void)shape;
    (void)workspace_bytes;
    *joules = 0;
    return ((const struct executor_replay *)state)->estimate_ns;
}

struct executor_replay *executor_replay_open(const struct replay_record *record,
                                             uint32_t n_replicas) {
    struct executor_replay *replay =
        mem_zeroed(1, sizeof *replay + n_replicas * sizeof(struct lane));
    replay->record = *record;
    replay->n_replicas = n_replicas;
    replay->estimate_ns = 1;
    return replay;
}

void executor_replay_close(struct executor_replay *replay) {
    if (replay != NULL) {
        for (uint32_t i = 0; i < replay->n_replicas; i++) {
            drop_steps(replay, &replay->lanes[i].flight);
            drop_steps(replay, &replay->lanes[i].ahead);
        }
        free(replay);
    }
}

struct executor executor_replay_interface(struct executor_replay *replay) {
    const struct replay_record *record = &replay->record;
    return (struct executor){
        .state = replay,
        .wants_members = true,
        .wants_positions = record->has_positions,
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
