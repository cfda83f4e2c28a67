#include "experiments/run/tape.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "analysis/store/position_bytes.h"
#include "analysis/store/varint.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"

/* A tape of this size goes on in a file. */
enum { LONG_BYTES = 16 << 20, PATH_CHARS = 4096 };

enum record_kind { RECORD_REQUEST, RECORD_STEP, RECORD_EVENT, RECORD_ARRIVAL };

/* Room for `size` bytes more. */
static void reserve(struct tape *tape, size_t size) {
    size_t needed = tape->size + size;
    if (needed > tape->room) {
        tape->room = needed + needed / 2 + 4096;
        tape->bytes = mem_resized(tape->bytes, tape->room, 1);
    }
}

/* False where there is no room, or no folder. */
static bool open_file(struct tape *tape) {
    char path[PATH_CHARS];
    int length = snprintf(path, sizeof path, "%s-spool-XXXXXX", tape->beside);
    tape->file = length < PATH_CHARS ? mkstemp(path) : -1;
    return tape->file >= 0 && unlink(path) == 0;
}

/* Whole records go into the file; where it takes none, the tape stays in memory. */
static void go_on_in_file(struct tape *tape) {
    bool is_filed =
        (tape->n_filed > 0 || open_file(tape)) && system_write(tape->file, tape->bytes, tape->size);
    if (is_filed) {
        tape->n_filed += tape->size;
        tape->size = 0;
        return;
    }
    if (tape->n_filed > 0) {
        /* Bytes half written lie after n_filed and are overwritten, or never read. */
        (void)lseek(tape->file, (off_t)tape->n_filed, SEEK_SET);
    } else if (tape->file >= 0) {
        close(tape->file);
    }
    tape->beside = NULL;
}

/* A record's kind and itself. */
static void put(struct tape *tape, enum record_kind kind, const void *record, size_t size) {
    if (tape->size >= LONG_BYTES && tape->beside != NULL) {
        go_on_in_file(tape);
    }
    reserve(tape, 1 + size);
    tape->bytes[tape->size] = (unsigned char)kind;
    memcpy(tape->bytes + tape->size + 1, record, size);
    tape->size += 1 + size;
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    (void)err;
    put(state, RECORD_REQUEST, record, sizeof *record);
    return 0;
}

static int on_event(void *state, const struct event_record *record, struct err *err) {
    (void)err;
    put(state, RECORD_EVENT, record, sizeof *record);
    return 0;
}

static void put_number(struct tape *tape, uint64_t value) {
    tape->size += varint_put(tape->bytes + tape->size, value);
}

/* What `write` makes of the positions, after how many bytes it is. */
static void put_positions(struct tape *tape,
                          size_t (*write)(unsigned char *, const struct step_positions *, uint32_t),
                          const struct step_positions *p, uint32_t n) {
    size_t n_bytes;
    reserve(tape, sizeof n_bytes + position_bytes_most(p, n));
    n_bytes = write(tape->bytes + tape->size + sizeof n_bytes, p, n);
    memcpy(tape->bytes + tape->size, &n_bytes, sizeof n_bytes);
    tape->size += sizeof n_bytes + n_bytes;
}

/* Its passes are left out: a database has no use for them. */
static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct tape *tape = state;
    const struct step_positions *p = record->positions;
    struct step_record kept = *record;
    kept.passes = NULL;
    (void)err;
    put(tape, RECORD_STEP, &kept, sizeof kept);
    reserve(tape, (SYM_COUNT + 2 + 2 * (size_t)record->n) * MAX_VARINT_BYTES);
    for (int i = 0; i < SYM_COUNT; i++) {
        put_number(tape, (uint64_t)record->sym[i]);
    }
    bool has_members = record->request_ids != NULL && record->commit_tokens != NULL;
    for (uint32_t i = 0; has_members && i < record->n; i++) {
        put_number(tape, record->request_ids[i]);
        put_number(tape, record->commit_tokens[i]);
    }
    if (p != NULL) {
        put_positions(tape, position_bytes_put, p, record->n);
        put_positions(tape, outcome_bytes_put, p, record->n);
    }
    return 0;
}

void tape_arrival(struct tape *tape, const struct arrival *arrival) {
    put(tape, RECORD_ARRIVAL, arrival, sizeof *arrival);
}

struct sink tape_sink(struct tape *tape, enum store_level level) {
    return (struct sink){.state = tape,
                         .request = on_request,
                         .step = level >= STORE_STEPS ? on_step : NULL,
                         .event = level >= STORE_EVENTS ? on_event : NULL};
}

/* Records one after the other, and memory for the arrays that a step points to. */
struct reel {
    const unsigned char *at, *end;
    uint64_t *ids;
    uint32_t *commits;
    struct step_positions positions;
    size_t n_members;      /* there is room for */
    unsigned char *mapped; /* the mapped file from here on, */
    bool is_mapped;        /* where it is not in memory */
};

static void take(struct reel *reel, void *record, size_t size) {
    ASSERT((size_t)(reel->end - reel->at) >= size);
    memcpy(record, reel->at, size);
    reel->at += size;
}

static uint64_t take_number(struct reel *reel) {
    uint64_t value = 0;
    bool is_there = varint_get(&reel->at, reel->end, &value);
    ASSERT(is_there);
    return value;
}

static void forget_arrays(struct reel *reel) {
    free(reel->ids);
    free(reel->commits);
    positions_free(&reel->positions);
}

static void *renewed(void *old, size_t n, size_t size) {
    free(old);
    return mem_unwritten(n, size);
}

static void reserve_members(struct reel *reel, size_t n) {
    if (n > reel->n_members) {
        reel->n_members = 2 * n;
        reel->ids = renewed(reel->ids, reel->n_members, sizeof *reel->ids);
        reel->commits = renewed(reel->commits, reel->n_members, sizeof *reel->commits);
    }
}

/* What put_positions wrote. */
static const unsigned char *take_bytes(struct reel *reel, const unsigned char **end) {
    size_t n_bytes;
    take(reel, &n_bytes, sizeof n_bytes);
    ASSERT(n_bytes <= (size_t)(reel->end - reel->at));
    const unsigned char *at = reel->at;
    reel->at = *end = at + n_bytes;
    return at;
}

static int play_step(struct reel *reel, const struct sink *sink, struct err *err) {
    struct step_record step;
    int64_t sym[SYM_COUNT];
    take(reel, &step, sizeof step);
    for (int i = 0; i < SYM_COUNT; i++) {
        sym[i] = (int64_t)take_number(reel);
    }
    step.sym = sym;
    reserve_members(reel, step.n);
    if (step.request_ids != NULL && step.commit_tokens != NULL) {
        for (uint32_t i = 0; i < step.n; i++) {
            reel->ids[i] = take_number(reel);
            reel->commits[i] = (uint32_t)take_number(reel);
        }
        step.request_ids = reel->ids;
        step.commit_tokens = reel->commits;
    }
    if (step.positions != NULL) {
        const unsigned char *end, *at = take_bytes(reel, &end);
        bool is_there = position_bytes_get(at, end, step.n, &reel->positions);
        at = take_bytes(reel, &end);
        is_there = is_there && (at == end || outcome_bytes_get(at, end, step.n, &reel->positions));
        ASSERT(is_there);
        step.positions = &reel->positions;
    }
    return sink->step != NULL ? sink->step(sink->state, &step, err) : 0;
}

/* Pages of a mapped file that were played need no memory. */
static void give_back(struct reel *reel) {
    while (reel->is_mapped && reel->at - reel->mapped >= LONG_BYTES) {
        (void)madvise(reel->mapped, LONG_BYTES, MADV_DONTNEED);
        reel->mapped += LONG_BYTES;
    }
}

static int play_records(struct reel *reel, const struct sink *sink, struct err *err) {
    int status = 0;
    while (status == 0 && reel->at < reel->end) {
        give_back(reel);
        unsigned char kind = *reel->at++;
        if (kind == RECORD_STEP) {
            status = play_step(reel, sink, err);
        } else if (kind == RECORD_REQUEST) {
            struct request_record record;
            take(reel, &record, sizeof record);
            status = sink->request != NULL ? sink->request(sink->state, &record, err) : 0;
        } else if (kind == RECORD_ARRIVAL) {
            struct arrival arrival;
            take(reel, &arrival, sizeof arrival);
            status = sink->arrival != NULL ? sink->arrival(sink->state, &arrival, err) : 0;
        } else {
            struct event_record record;
            take(reel, &record, sizeof record);
            status = sink->event != NULL ? sink->event(sink->state, &record, err) : 0;
        }
    }
    return status;
}

static int play(struct reel reel, const struct sink *sink, struct err *err) {
    int status = reel.at < reel.end ? play_records(&reel, sink, err) : 0;
    forget_arrays(&reel);
    return status;
}

int tape_play(const struct tape *tape, const struct sink *sink, struct err *err) {
    int status = 0;
    if (tape->n_filed > 0) {
        void *filed = mmap(NULL, tape->n_filed, PROT_READ, MAP_PRIVATE, tape->file, 0);
        if (filed == MAP_FAILED) {
            return err_world(err, "cannot read %zu bytes of records again: %s", tape->n_filed,
                             strerror(errno));
        }
        unsigned char *bytes = filed;
        status = play(
            (struct reel){
                .at = bytes, .end = bytes + tape->n_filed, .mapped = bytes, .is_mapped = true},
            sink, err);
        munmap(filed, tape->n_filed);
    }
    if (status != 0 || tape->size == 0) {
        return status;
    }
    return play((struct reel){.at = tape->bytes, .end = tape->bytes + tape->size}, sink, err);
}

void tape_clear(struct tape *tape) {
    if (tape->n_filed > 0) {
        close(tape->file);
    }
    tape->n_filed = tape->size = 0;
}

void tape_fini(struct tape *tape) {
    tape_clear(tape);
    free(tape->bytes);
    *tape = (struct tape){0};
}
