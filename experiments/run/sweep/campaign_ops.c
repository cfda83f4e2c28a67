/* The steps of analysis/store/protocol.h on a campaign's store and claims. */
#include <unistd.h>

#include "experiments/run/sweep/campaign_impl.h"

/* Between two looks at the points of others. */
enum { WAIT_US = 50000 };

static struct pending *pending_of(void *state, size_t point) {
    return &((struct work *)state)->pending[point];
}

static enum protocol_answer look(void *state, size_t i) {
    struct work *work = state;
    struct campaign_point *point = &work->campaign->points[i];
    return campaign_take_recorded(work, point, work->pending[i].digest) ? PROTOCOL_YES
                                                                        : PROTOCOL_NO;
}

static enum protocol_answer claim(void *state, size_t i) {
    return claims_take(((struct work *)state)->claims, pending_of(state, i)->digest);
}

static void release(void *state, size_t i) {
    claims_drop(((struct work *)state)->claims, pending_of(state, i)->digest);
}

/* A run of this rank, or one that was handed over. */
static struct recording recording_of(const struct pending *pending) {
    const struct composition *c = pending->composition;
    return c == NULL ? handed_recording(pending->handed)
                     : (struct recording){.recorder = pending->recorder,
                                          .summary = &c->summary,
                                          .facts = &c->facts};
}

/* Keeps why it could not be. */
static enum protocol_answer noted(struct work *work, size_t i, enum protocol_answer answer) {
    if (answer == PROTOCOL_LOCKED || answer == PROTOCOL_FAILED) {
        work->store_err = work->pending[i].recording.err;
    }
    return answer;
}

static enum protocol_answer begin(void *state, size_t i, bool waits) {
    struct pending *pending = pending_of(state, i);
    pending->recording = recording_of(pending);
    return noted(state, i, recording_begin(&pending->recording, waits));
}

static enum protocol_answer holds(void *state, size_t i) {
    return noted(state, i, recording_holds(&pending_of(state, i)->recording));
}

static enum protocol_answer put(void *state, size_t i) {
    return noted(state, i, recording_put(&pending_of(state, i)->recording));
}

/* It is in the database. */
static void drop(struct work *work, size_t i) {
    size_t bytes = campaign_kept_bytes(&work->pending[i]);
    work->kept_bytes -= work->kept_bytes < bytes ? work->kept_bytes : bytes;
    campaign_drop_records(&work->pending[i]);
}

static enum protocol_answer commit(void *state, size_t i, bool waits) {
    enum protocol_answer answer =
        noted(state, i, recording_commit(&pending_of(state, i)->recording, waits));
    if (answer == PROTOCOL_YES) {
        drop(state, i);
    }
    return answer;
}

static void roll_back(void *state, size_t i) {
    struct work *work = state;
    struct recording *recording = &pending_of(state, i)->recording;
    recording_roll_back(recording);
    if (recording->was_held) {
        work->campaign->n_held++;
        drop(work, i);
    }
}

static void pause_for_others(void *state) {
    if (!((struct work *)state)->has_seen_one) {
        usleep(WAIT_US);
    }
}

const struct protocol_ops campaign_ops = {
    .look = look,
    .claim = claim,
    .release = release,
    .begin = begin,
    .holds = holds,
    .put = put,
    .commit = commit,
    .roll_back = roll_back,
    .pause = pause_for_others,
};
