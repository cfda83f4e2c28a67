/* What a run reports while it happens: the facts a recorder may keep.
 *
 * The loop calls a sink's functions with plain facts, in the order in which they become true; a
 * NULL function is never called and costs nothing. Pointers are valid only during the call. */
#ifndef UNMASK_SIM_SERVE_RECORD_H
#define UNMASK_SIM_SERVE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arrival.h"
#include "sim/base/decode.h"
#include "sim/base/err.h"
#include "sim/policy/request.h"
#include "sim/step/shape.h"

enum reject_reason {
    REJECT_NONE,
    REJECT_CONTEXT,    /* prompt + output exceed the model's or the system's context */
    REJECT_KV,         /* its cached state can never fit into the pool */
    REJECT_TOKENS,     /* one of its steps alone exceeds the token budget */
    REJECT_ACTIVATION, /* out of memory: a step with it alone exceeds the device */
    REJECT_QUEUE,      /* the waiting queue is full */
    REJECT_SHUTDOWN,   /* the run was interrupted before it could end */
    REJECT_OWN,        /* and the next ones: by the scheduler, for the first of its own reasons */
    REJECT_CANCELLED = REJECT_OWN + 8, /* taken out: who asked for it has left */
};
enum { REJECT_OWN_COUNT = REJECT_CANCELLED - REJECT_OWN };
enum { REJECT_REASON_COUNT = REJECT_CANCELLED + 1 };
extern const char *const reject_reason_names[REJECT_REASON_COUNT];

/* What a reason is called, where the scheduler calls its own so (its reject_reasons, or NULL). */
const char *reject_reason_name(uint32_t reason, const char *const *own);

/* Whether a scheduler names as many that this is one of its own. */
bool reject_reason_is_named(uint32_t reason, const char *const *own);

/* One request when it leaves the system, finished or rejected: the columns of request.def. `state`
 * is an enum request_state, `reason` an enum reject_reason; `follows` and `place` are as struct
 * arrival has them, and so are `session` and `tenant`. */
struct request_record {
#define KEPT(type, name, ...) type name;
#include "sim/serve/request.def"
    int64_t pause_ns; /* the longest between two of its steps while its replica took others, or
                         since its last one where it was not completed; databases have none of it */
};

/* That of a request of which nothing has happened but its arrival: times are -1, counts 0. */
struct request_record request_record_of(const struct arrival *arrival);

/* Which positions of the members' windows a step kept (all that ran, where none are evicted), 1 or
 * 0, and how each came out, an enum position_outcome. */
struct step_positions {
    uint32_t stride;         /* between members */
    uint32_t *lengths;       /* [n], of a member's window; 0: the step was none of it */
    uint8_t *keep, *outcome; /* [n, stride] */
    float
        *entropy; /* [n, stride], nats, of what was committed; NULL: the cache policy reads none */
    float *seen;  /* [n, stride], confidences of what was kept; NULL: the scheduler looks at none */
};

/* What was copied between a replica's memory and its host's since its last step: requests swapped
 * out and brought back. The copies go one after the other, before the step with which they were
 * asked for or, where the system says so (swap.overlaps), layer by layer during its first pass. */
struct swap {
    uint64_t n_out, n_in; /* requests */
    int64_t out_bytes, in_bytes;
    int64_t stall_ns; /* that the copies put the start of the step off by */
    int64_t
        host_used_bytes; /* of the host's memory once they are done; 0 where n_out and n_in are */
};

static inline bool swap_is_any(const struct swap *swap) {
    return swap->n_out > 0 || swap->n_in > 0;
}

/* One submission to the executor: `repeat` identical steps back to back. */
struct step_record {
    uint64_t index; /* of the submission, over all replicas */
    uint32_t replica, repeat;
    int64_t start_ns, end_ns; /* of the first step's start and the last one's end */
    struct swap swap;         /* ahead of it */
    int64_t gpu_ns, host_ns;  /* of one step, as the executor splits it; 0 when unknown */
    double joules;            /* that all its steps drew; 0 when unknown */
    /* Where the scheduler changes thresholds: positions committed from one, and the sum of these.
     */
    uint64_t n_by_threshold, thresholds_millionths;
    const int64_t *sym;               /* SYM_COUNT sums of one step */
    uint32_t n_by_phase[PHASE_COUNT]; /* spans by phase */
    uint32_t n;                  /* members; spans computed and discarded count in the sums alone */
    const uint64_t *request_ids; /* in batch order; NULL unless the sink wants members */
    const uint32_t *commit_tokens;    /* of each span, one step */
    const struct decode_pass *passes; /* of each span, one step; processed 0: not of its block */
    const uint8_t *phases;            /* of each member, enum phase; known while a run goes on */
    const struct step_positions *positions; /* of each span; NULL: only counts are known */
    int64_t kv_used_bytes;
    uint32_t n_running, n_waiting;
    /* Where the system unrolls: members whose block was done before this step, and their query
     * tokens, except where the step wrote a block's exact keys and values. */
    uint32_t unrolled, wasted_requests;
    uint64_t wasted_tokens;
};

enum event_kind {
    EVENT_ARRIVAL,
    EVENT_ADMIT,
    EVENT_PREEMPT,
    EVENT_REJECT,
    EVENT_BLOCK_DONE,
    EVENT_FINISH,
    EVENT_HOLD, /* the router holds it back */
    EVENT_MOVE, /* the router moves it to another replica's queue */
};
enum { EVENT_KIND_COUNT = EVENT_MOVE + 1 };
extern const char *const event_kind_names[EVENT_KIND_COUNT];

struct event_record {
    int64_t time_ns;
    uint64_t request;
    uint32_t kind; /* enum event_kind */
    uint32_t replica;
    uint32_t output_tokens; /* BLOCK_DONE: output positions up to the block's end; else 0 */
    uint32_t detail; /* REJECT: the reason; BLOCK_DONE: the block; ADMIT: leading tokens whose keys
                        and values it found; MOVE: the replica that it leaves; PREEMPT: 1 where it
                        is swapped out; else 0 */
};

/* Each function returns 0, or an err kind with `err` filled: the run then stops and reports it. */
struct sink {
    void *state;
    int (*request)(void *state, const struct request_record *record, struct err *err);
    int (*step)(void *state, const struct step_record *record, struct err *err);
    int (*event)(void *state, const struct event_record *record, struct err *err);
    /* Before anything else is said of the request. */
    int (*arrival)(void *state, const struct arrival *arrival, struct err *err);
};

#endif
