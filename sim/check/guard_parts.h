/* What the guards of the four kinds share: the copies lent to the inner policy, and the way to
 * check a promise. Included by guard*.c only. */
#ifndef UNMASK_SIM_CHECK_GUARD_PARTS_H
#define UNMASK_SIM_CHECK_GUARD_PARTS_H

#include "sim/check/guard.h"

/* Entries behind every list lent to a policy, watched for writes beyond the list's end. */
enum { MARGIN = 64, FILL = 0xA5 };

/* The lists of a batch, each with max_slots entries and MARGIN behind them. */
enum batch_list { LIST_SELECTED, LIST_CHUNK_TOKENS, LIST_PREEMPTED, LIST_IDLE, N_BATCH_LISTS };

enum { N_SEEN_VALUES = 3, N_BLOCK_FLAGS = 2 };

struct guard_scratch {
    uint32_t max_slots;
    struct request *requests;          /* by slot; only slots that run or wait are filled */
    uint32_t *running, *waiting;       /* what the policy sees of the view's lists */
    uint32_t *lists[2][N_BATCH_LISTS]; /* the answers to the first and the second asking */
    uint8_t *owner;                    /* by slot: 0, RUNS or WAITS */
    uint64_t *seen, seen_stamp;        /* by slot: the last list it was found in */
    struct replica_view *replicas;     /* router */
    uint32_t *offset;                  /* decoder */
    float *seen_values[N_SEEN_VALUES]; /* decoder: confidence, margin, entropy; eviction: deltas */
    uint8_t *commit[2];                /* decoder */
    uint8_t *flags[N_BLOCK_FLAGS];     /* eviction: pending, masked */
    uint8_t *memory[2];                /* the same: what is remembered of a request */
    void *state;                       /* a copy of the inner state */
    char *own;                         /* a copy of a scheduler's memory of requests */
    const struct schedule_view *view;  /* the caller's, during schedule */
};

enum { RUNS = 1, WAITS = 2 };

/* Counts the check, and on the first broken promise writes "KIND NAME <format>" to guard->err.
 * Returns `kept`. */
bool guard_keeps(struct guard *guard, enum promise promise, bool kept, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* `given` was lent to a callback and must still equal `original`. */
bool guard_keeps_request(struct guard *guard, const struct request *given,
                         const struct request *original);

/* For callbacks that take their state const. */
bool guard_keeps_state(struct guard *guard);

/* Around every call of the inner policy. */
void guard_enter(struct guard *guard, const char *callback);
void guard_leave(struct guard *guard);

/* The request after `steps` steps of the same block that committed `commits` positions. */
struct request guard_later(const struct request *request, uint32_t steps, uint32_t commits);

/* The wrapped callbacks; the state of each is the guard. */
void guarded_schedule(void *state, const struct schedule_view *view, struct batch *batch);
uint32_t guarded_plan(const void *state, const void *memory, const struct request *request,
                      struct row_sets *rows);
uint32_t guarded_evict(const void *state, const void *memory, const struct eviction_view *view,
                       uint8_t *keep);
void guarded_learn(const void *state, void *memory, const struct request *request,
                   const struct learned *learned);
uint32_t guarded_count(const void *state, const struct request *request, uint32_t *repeat);
uint32_t guarded_choose(const void *state, const struct request *request,
                        const struct decode_seen *seen, uint8_t *commit);
void guarded_rule(const void *state, const struct request *request, struct decode_rule *out);
void guarded_credit(const void *state, struct decoder_credit *out);
uint32_t guarded_route(void *state, const struct request *request,
                       const struct replica_view *replicas, uint32_t n);

#endif
