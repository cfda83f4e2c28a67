#include "experiments/run/tape.h"

#include <stdlib.h>
#include <string.h>

enum record_kind { RECORD_REQUEST, RECORD_STEP, RECORD_EVENT };

/* Before each record; keeps the records aligned. */
struct head {
    uint64_t kind;
};

static size_t aligned(size_t size) {
    return (size + 7) & ~(size_t)7;
}

static int put(struct tape *tape, const void *bytes, size_t size, struct err *err) {
    size_t needed = tape->size + aligned(size);
    if (needed > tape->room) {
        size_t room = 2 * needed + 4096;
        unsigned char *grown = realloc(tape->bytes, room);
        if (grown == NULL) {
            return err_world(err, "out of memory: the records of a run take more than %zu bytes",
                             tape->room);
        }
        tape->bytes = grown;
        tape->room = room;
    }
    memcpy(tape->bytes + tape->size, bytes, size);
    memset(tape->bytes + tape->size + size, 0, aligned(size) - size);
    tape->size = needed;
    return 0;
}

static int put_head(struct tape *tape, enum record_kind kind, struct err *err) {
    return put(tape, &(struct head){kind}, sizeof(struct head), err);
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    int status = put_head(state, RECORD_REQUEST, err);
    return status != 0 ? status : put(state, record, sizeof *record, err);
}

static int on_event(void *state, const struct event_record *record, struct err *err) {
    int status = put_head(state, RECORD_EVENT, err);
    return status != 0 ? status : put(state, record, sizeof *record, err);
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    int status = put_head(state, RECORD_STEP, err);
    status = status != 0 ? status : put(state, record, sizeof *record, err);
    status = status != 0 ? status : put(state, record->sym, SYM_COUNT * sizeof *record->sym, err);
    if (status == 0 && record->request_ids != NULL) {
        status = put(state, record->request_ids, record->n * sizeof *record->request_ids, err);
    }
    if (status == 0 && record->commit_tokens != NULL) {
        status = put(state, record->commit_tokens, record->n * sizeof *record->commit_tokens, err);
    }
    if (status == 0 && record->passes != NULL) {
        status = put(state, record->passes, record->n * sizeof *record->passes, err);
    }
    const struct step_positions *p = record->positions;
    if (status == 0 && p != NULL) {
        size_t n_flags = (size_t)record->n * p->stride;
        status = put(state, p, sizeof *p, err);
        status = status != 0 ? status : put(state, p->lengths, record->n * sizeof *p->lengths, err);
        status = status != 0 ? status : put(state, p->keep, n_flags, err);
        status = status != 0 ? status : put(state, p->commit, n_flags, err);
    }
    return status;
}

struct sink tape_sink(struct tape *tape, enum store_level level) {
    return (struct sink){.state = tape,
                         .request = on_request,
                         .step = level >= STORE_STEPS ? on_step : NULL,
                         .event = level >= STORE_EVENTS ? on_event : NULL};
}

static const void *take(const struct tape *tape, size_t *at, size_t size) {
    const void *bytes = tape->bytes + *at;
    *at += aligned(size);
    ASSERT(*at <= tape->size);
    return bytes;
}

static int play_step(const struct tape *tape, size_t *at, const struct sink *sink,
                     struct err *err) {
    struct step_record step = *(const struct step_record *)take(tape, at, sizeof step);
    step.sym = take(tape, at, SYM_COUNT * sizeof *step.sym);
    if (step.request_ids != NULL) {
        step.request_ids = take(tape, at, step.n * sizeof *step.request_ids);
    }
    if (step.commit_tokens != NULL) {
        step.commit_tokens = take(tape, at, step.n * sizeof *step.commit_tokens);
    }
    if (step.passes != NULL) {
        step.passes = take(tape, at, step.n * sizeof *step.passes);
    }
    struct step_positions positions;
    if (step.positions != NULL) {
        positions = *(const struct step_positions *)take(tape, at, sizeof positions);
        size_t n_flags = (size_t)step.n * positions.stride;
        positions.lengths = (uint32_t *)take(tape, at, step.n * sizeof *positions.lengths);
        positions.keep = (uint8_t *)take(tape, at, n_flags);
        positions.commit = (uint8_t *)take(tape, at, n_flags);
        step.positions = &positions;
    }
    return sink->step != NULL ? sink->step(sink->state, &step, err) : 0;
}

int tape_play(const struct tape *tape, const struct sink *sink, struct err *err) {
    int status = 0;
    for (size_t at = 0; status == 0 && at < tape->size;) {
        const struct head *head = take(tape, &at, sizeof *head);
        if (head->kind == RECORD_STEP) {
            status = play_step(tape, &at, sink, err);
        } else if (head->kind == RECORD_REQUEST) {
            const struct request_record *record = take(tape, &at, sizeof *record);
            status = sink->request != NULL ? sink->request(sink->state, record, err) : 0;
        } else {
            const struct event_record *record = take(tape, &at, sizeof *record);
            status = sink->event != NULL ? sink->event(sink->state, record, err) : 0;
        }
    }
    return status;
}

void tape_fini(struct tape *tape) {
    free(tape->bytes);
    *tape = (struct tape){0};
}
