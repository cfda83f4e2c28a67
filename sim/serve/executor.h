/* Executors: who carries out a batch, and when it is done.
 *
 * The loop never reads a clock and never computes a duration: it submits and waits. An executor
 * owns the clock; at most one batch is in flight per replica. */
#ifndef UNMASK_SIM_SERVE_EXECUTOR_H
#define UNMASK_SIM_SERVE_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/serve/contents.h"
#include "sim/serve/record.h"
#include "sim/serve/step.h"

struct submission {
    uint32_t replica;
    uint32_t repeat; /* identical steps to run back to back, >= 1 */
    /* The host does not look between these steps: what each commits is known when the last is done,
     * and the host pays for one visit. */
    bool unrolled;
    /* The scheduler was not asked: the step before goes on with the same batch, and its visit of
     * the host was paid for. */
    bool follows;
    /* What is copied to and from the host's memory ahead of the first step; stall_ns is the
     * executor's to say. */
    struct swap swap;
    /* Stop before `repeat` steps at the first step border at or after this time. */
    int64_t stop_ns;
    struct planned_step step;
};

enum completion_kind {
    COMPLETION_BATCH, /* a replica finished its submission */
    COMPLETION_TIME,  /* until_ns was reached first */
    COMPLETION_IDLE,  /* nothing is in flight and until_ns is INT64_MAX */
    COMPLETION_CUT,   /* the record was cut off here, so that the rest of the run is unknown */
};

/* What each member of a batch committed in its last step, in batch order, where the executor knows
 * it: it decided itself, or plays recorded decisions. Of unrolled steps: one step after the other.
 * NULL: the loop draws the number. Valid until the next call. */
struct decided {
    const uint32_t *commits;
    bool positions; /* it also wrote which positions: keep and outcome of the planned step's blocks
                     */
};

struct completion {
    enum completion_kind kind;
    int64_t time_ns;
    uint32_t replica;
    uint32_t steps;          /* steps actually run, 1..repeat */
    int64_t start_ns;        /* of the first of them */
    int64_t gpu_ns, host_ns; /* of one step; 0 when unknown */
    int64_t stall_ns;        /* that copies put the first of them off by */
    double joules;           /* that its cards drew for all of them; 0 when unknown */
    struct decided decided;
};

struct executor {
    void *state;
    bool wants_spans;       /* shape->spans must be filled */
    bool wants_members;     /* request_ids must be filled */
    bool wants_positions;   /* wants the planned step's blocks filled, also where no policy asks for
                               them */
    bool decides_positions; /* the executor alone says what an eviction leaves: the loop draws
                               nothing of it */
    bool unrolls;           /* submissions may be unrolled */
    bool shares_prefixes;   /* rows that an earlier request computed need not be computed again */
    bool shares_pages;      /* and it is told in which pages they are, as they are in memory */
    bool tells_tokens;      /* prompts that begin alike are given the same tokens: it is told what
                               they begin with, and a prompt begins with nothing of an output that
                               is yet to be decoded */
    bool assumes_prefixes;  /* all that requests share is taken to be computed, and no one's memory:
                               what any order of theirs may find, for bounds */
    /* A request starts to hold memory on a replica (kv_held_bytes), holds more, or ceases to hold
     * any: one that is preempted then is admitted again with what it committed. Of one that is
     * swapped out what it holds (kv_held_bytes) is copied to the host's memory first, before it is
     * released; as it is admitted again it is copied back. `beginning`: what its canvas begins
     * with, where the executor `tells_tokens`; it stands until its release. `drop`: a preempted
     * request leaves instead. All may be NULL. */
    int (*admit)(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                 const struct beginning *beginning, struct err *err);
    int (*grow)(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                struct err *err);
    void (*release)(void *state, uint32_t replica, uint32_t slot);
    int (*swap_out)(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    struct err *err);
    void (*drop)(void *state, uint32_t replica, uint32_t slot);
    /* Where leading layers take shared prefixes over: what they made of the request's prefix is
     * kept from row `first` of a store of settings.prefix_store_tokens rows on, or taken from
     * there. Both may be NULL. */
    int (*keep_prefix)(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err);
    int (*take_prefix)(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                       uint32_t first, struct err *err);
    /* Where tokens are real and ends of text are looked for, else NULL. *answer_tokens becomes the
     * number of output positions up to and including the first end of text in the active block, if
     * nothing before it is masked; 0: there is none. *is_met: whether one stands anywhere in the
     * window, whatever is masked. */
    int (*find_end)(void *state, uint32_t replica, uint32_t slot, const struct request *request,
                    uint32_t *answer_tokens, bool *is_met, struct err *err);
    /* Start the batch at the executor's present time, the last one it reported or later. */
    int (*submit)(void *state, const struct submission *submission, struct err *err);
    /* The next completion, or COMPLETION_TIME at `until_ns`, whichever is first; a batch that ends
     * exactly at until_ns comes first. Times never decrease. */
    int (*wait)(void *state, int64_t until_ns, struct completion *out, struct err *err);
    /* Of steps that were submitted to be repeated, where there are several replicas: how long each
     * of those in flight takes, and an end of them at the first step border at or after `now_ns`.
     * NULL: steps of several replicas are submitted one by one. */
    int64_t (*step_ns)(const void *state, uint32_t replica);
    void (*cut)(void *state, uint32_t replica, int64_t now_ns);
    /* Of an unrolled completion: what its s-th step decided. Called before that step is accounted
     * for; the planned step that was submitted still stands as it was before it. NULL: `commits` of
     * a completion has its steps one after the other. */
    int (*unroll)(void *state, uint32_t replica, uint32_t s, struct decided *out, struct err *err);
    /* Before a run ends, for whatever reason: what submissions point to is read no longer. May be
     * NULL, where it never is once `wait` has returned. */
    void (*settle)(void *state);
    /* At the end of a run, when no request is left: checks that all they held was given back. May
     * be NULL. */
    void (*audit)(void *state, bool interrupted);
    /* Duration of one step of this shape with this workspace, without running it, and what its
     * cards would draw (0: not known), were the replica to run it now. */
    int64_t (*estimate_ns)(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t workspace_bytes, double *joules);
};

#endif
