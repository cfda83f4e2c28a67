/* Schedulers: which requests take part in the next step of a replica.
 *
 * A scheduler sees a read-only view and fills a batch. Its promises, checked by `check-plugin`: it
 * lists running requests and waiting ones, none twice; the query tokens of the batch never exceed
 * max_batched_tokens, its requests never exceed max_requests, and admitted requests fit into the
 * free KV memory; when something could run it selects something or names a later time. Before each
 * call the batch is empty: zeros, and wake_ns INT64_MAX.
 *
 * What happens between two decisions it can be told (`happened`), so that it need not look through
 * all requests at each: who arrived, whom a step let go on by how much, who left.
 *
 * A scheduler that `grows` lets requests start with the memory of their next step alone and sees to
 * the rest: what its batch grows by (kv_bytes - kv_held_bytes of each listed request) and admits
 * fits into what is free and what the requests that it preempts give back. It also cuts a prefill
 * that is wider than a step (chunk_tokens): such requests are rejected under all others, and wait
 * for ever under a scheduler that grows and does not. For all others requests hold from the start
 * what they will ever need. */
#ifndef UNMASK_SIM_POLICY_SCHEDULER_SCHEDULER_H
#define UNMASK_SIM_POLICY_SCHEDULER_SCHEDULER_H

#include <stddef.h>

#include "sim/policy/abi.h"
#include "sim/policy/window.h"

enum { SCHEDULER_MAX_REQUEST_BYTES = 1 << 20 };

/* Reasons of its own for which a scheduler rejects. */
enum { SCHEDULER_MAX_REASONS = 8 };

/* How long a batch stands before the scheduler is asked again. */
enum batch_hold {
    HOLD_STEP = 0,   /* ask after this step */
    HOLD_CHANGE = 1, /* the same batch until a span in it changes, a request ends or one arrives */
    HOLD_CLOSED = 2, /* as HOLD_CHANGE, and arrivals change nothing either */
};

struct batch {
    uint32_t all_running; /* 1: every running request takes part and none of them is listed */
    uint32_t n;           /* listed requests */
    uint32_t capacity;    /* of `selected`; never exceeded */
    uint32_t *selected;   /* slots: running ones (unless all_running), then the admitted ones */
    uint32_t n_admitted;  /* how many of them, at the end of the list, leave the waiting queue */
    uint32_t hold;        /* enum batch_hold */
    int64_t wake_ns; /* ask again then, whatever `hold` and `loops` say: where something takes part,
                        after the step that is under way at that time. After now; INT64_MAX: by
                        `hold`, and where nothing takes part when something changes */

    /* Query tokens that a listed request takes of its prefill, in the order of `selected`; 0: all
     * of its span. Fewer than its span has, of a prefill alone, and whole blocks. */
    uint32_t *chunk_tokens;
    /* 1: words about listed requests, in the order of `selected`, 0: as configured. They hold until
     * the request is listed again; without the flag what is listed is as configured.
     *   width_tokens          positions of the next window that the request begins, or of the one
     *                         that it has begun and in which nothing has run: at most block_tokens,
     *                         for models that see their whole canvas
     *   threshold_millionths  what its decoder's threshold is replaced by, in millionths, at most
     *                         a million, for decoders that have one (DECODE_THRESHOLD,
     *                         DECODE_HIERARCHICAL)
     *   puts_off              1: its next step, a refresh, waits: the request takes the step that
     *                         it would take without (put_off of sim/policy/cache/cache.h). While
     *                         its refresh_waits is 0 it refreshes all the same; under caches in
     *                         which no refresh waits, such as exact ones, no one says so. Of this
     *                         step alone: it is said again at each
     *   run_tokens            of a scheduler that says_rows: up to this many of its window's masked
     *                         positions run in its next step, where that decides on its window and
     *                         on nothing else; 0: all. They are the left-most ones or, where
     *                         `surest` is 1, first those whose left neighbour is known, then those
     *                         that their last passes were surest of, then those that no pass has
     *                         run. The others keep the rows that they have, and what no pass has
     *                         run is not seen. Of this step alone */
    uint32_t says;
    uint32_t *width_tokens, *threshold_millionths, *puts_off, *run_tokens;
    uint32_t surest;
    /* Waiting requests that leave as rejected, none of which is listed elsewhere, and for each the
     * index of the reason among `reject_reasons`; 0 where the scheduler names none. */
    uint32_t n_rejected, *rejected, *reasons;
    /* Running requests that give their memory back and wait again, at the head of the queue. None
     * of them is listed, and some other request is. For each in `swaps`:
     *   0  to compute it anew later. Only what is exact can be computed anew, by a scheduler that
     *      grows.
     *   1  what it holds (kv_held_bytes) is copied to the host's memory, which has room for it
     *      (host_free_bytes), under any cache policy and any scheduler. Where it is admitted again
     *      it is copied back first, takes kv_bytes of the pool and goes on where it was. Copies
     *      delay the step with which they are asked for (struct swap of sim/serve/record.h). */
    uint32_t n_preempted, *preempted, *swaps;
    /* Running requests, not listed, whose present span is computed once more and discarded, as
     * runtimes do that cannot take a finished block out of a batch. */
    uint32_t n_idle, *idle;
    /* Ask again only after this many steps of those listed, as far as they last and memory and
     * max_batched_tokens suffice; 0 and 1: by `hold`. */
    uint32_t loops;
    /* 1: the loop that the last batch began goes on without the host's scheduler, which is asked
     * here to say who is left: what asking takes (runtime.host_visit_ns) was paid for. */
    uint32_t continues;
};

/* Like passes in a row, of those that a request has yet to take. */
struct pass_ahead {
    struct span span;
    uint32_t steps; /* >= 1 */
    uint32_t block; /* index of the block that is active meanwhile */
};

/* A request from its next step to its end, were it to take part in every step. */
struct outlook {
    uint32_t is_exact; /* 1: the forecast is exact. 0: it depends on decoder, cache policy or end of
                          text, and this is the expectation, from the positions that the replica's
                          passes have committed on average */
    uint32_t n_passes; /* runs of like passes */
    uint32_t n_blocks; /* left, the active one among them */
    uint32_t to_refresh; /* steps before the next pass in prefill or refresh; UINT32_MAX: none */
    uint64_t steps;      /* in all */
    uint64_t tokens;     /* their query tokens */
};

/* A masked position of a window. */
struct masked_seen {
    uint32_t offset;  /* in the window */
    float confidence; /* in the last pass that ran it; 0: none has */
};

enum happening_kind {
    HAPPENED_ARRIVAL,    /* it waits here from now on: it came, or its router moved it here */
    HAPPENED_START,      /* it runs from now on, as the scheduler said: of those that a batch admits
                            some may stay in the queue, where workspace or shared pages run out */
    HAPPENED_STEPS,      /* steps of this replica ended in which it took part */
    HAPPENED_PREEMPTION, /* it was preempted, and waits again at the head of the queue */
    HAPPENED_END, /* its state says how: done, rejected, or, where it still waits, moved to another
                     replica. Slot and memory are cleared after the call */
};

struct happening {
    uint32_t kind; /* enum happening_kind */
    uint32_t slot; /* of the request, which stands there as it is now */
    /* HAPPENED_STEPS: how many, how long all of them took, and what they did for the request:
     * positions committed, less those that are masked again, and query tokens. Else 0. */
    uint32_t steps;
    int32_t committed_tokens;
    int64_t ns;
    uint64_t query_tokens;
};

struct schedule_view {
    int64_t now_ns;
    const struct request *requests; /* by slot */
    const uint32_t *running;        /* slots, in order of admission */
    uint32_t n_running;
    const uint32_t *waiting; /* slots, in order of arrival */
    uint32_t n_waiting;
    int64_t next_arrival_ns; /* when known, else INT64_MAX: 'no more' and 'unknown' look alike */

    /* Headroom: limits of one step of this replica. */
    int64_t running_tokens;       /* query tokens if every running request took part */
    int64_t running_growth_bytes; /* kv_bytes - kv_held_bytes over all of them */
    uint32_t max_batched_tokens;  /* query tokens of a step */
    uint32_t max_requests;        /* requests running at once */
    int64_t kv_free_bytes;        /* of the pool */
    int64_t kv_total_bytes;
    /* Of the host's memory that requests are swapped out to; 0: there is none. Bytes a second
     * between it and the replica's memory, in one direction at a time. */
    int64_t host_free_bytes, host_total_bytes;
    double host_bandwidth;

    /* Duration of a step with this batch, in ns, by the cost model. A request that is listed n
     * times stands for n requests like it. */
    int64_t (*estimate_ns)(const void *estimator, const struct batch *batch);
    /* What its cards would draw during that step; 0 where the profile knows no power. */
    double (*estimate_joules)(const void *estimator, const struct batch *batch);
    /* The passes to come of the running or waiting request in `slot`, as its cache policy and its
     * decoder plan them: the first `capacity` runs of them into `passes` (which may be NULL with a
     * capacity of 0), and what they all add up to. Pure: nothing is drawn, and no state changes. */
    void (*foresee)(const void *estimator, uint32_t slot, struct pass_ahead *passes,
                    uint32_t capacity, struct outlook *out);
    /* Duration of a step of these spans, in ns, by the cost model; 0 for none. At most as many as
     * the batch's capacity. */
    int64_t (*estimate_spans_ns)(const void *estimator, const struct span *const *spans,
                                 uint32_t n);
    /* The masked positions of the request in `slot`, in canvas order, the first `capacity` of them
     * into `out`; returns how many there are. 0 to a scheduler that does not say that it
     * says_rows. */
    uint32_t (*look)(const void *estimator, uint32_t slot, struct masked_seen *out,
                     uint32_t capacity);
    const void *estimator;

    /* The scheduler's to write: request_bytes for each of n_slots slots, the slot's request's from
     * when it arrives, as zeros, until it leaves. NULL where request_bytes is 0. */
    void *own;
    uint32_t n_slots;              /* the slots that requests of this replica can have */
    uint32_t replica, n_replicas;  /* its index, and how many there are */
    uint64_t seed;                 /* of the run */
    uint32_t threshold_millionths; /* the decoder's, which words may replace; 0: it has none */
};

/* What a pass of one request alone would take, in ns: with `foresee`, what each of its next passes
 * would cost. */
static inline int64_t view_pass_ns(const struct schedule_view *view,
                                   const struct pass_ahead *pass) {
    const struct span *const spans[] = {&pass->span};
    return view->estimate_spans_ns(view->estimator, spans, 1);
}

/* What is left of a request would take alone, in ns, as far as `capacity` runs of like passes,
 * written to `passes`, reach; passes after them as these on average. */
static inline int64_t view_rest_ns(const struct schedule_view *view, uint32_t slot,
                                   struct pass_ahead *passes, uint32_t capacity) {
    struct outlook outlook;
    int64_t sum_ns = 0;
    uint64_t steps = 0;
    view->foresee(view->estimator, slot, passes, capacity, &outlook);
    for (uint32_t i = 0; i < outlook.n_passes && i < capacity; i++) {
        sum_ns += passes[i].steps * view_pass_ns(view, &passes[i]);
        steps += passes[i].steps;
    }
    return steps < outlook.steps && steps > 0
               ? (int64_t)((double)sum_ns * (double)outlook.steps / (double)steps)
               : sum_ns;
}

/* What a scheduler cannot do its work without: a system that lacks it is refused. */
enum scheduler_need {
    NEEDS_THRESHOLD = 1, /* a decoder whose threshold words may replace */
    NEEDS_CANVAS = 2,    /* a model that sees its whole canvas, as words about width_tokens do */
    NEEDS_DEADLINES = 4, /* requests that have deadlines */
    NEEDS_FIRST_LARGEST = 8, /* requests whose first step has as many tokens as any */
};
enum { SCHEDULER_NEEDS = NEEDS_THRESHOLD | NEEDS_CANVAS | NEEDS_DEADLINES | NEEDS_FIRST_LARGEST };

struct scheduler {
    struct policy policy;
    uint32_t grows; /* 1: requests hold what their next step needs, and come in chunks (above) */
    /* 1: service_ns, service_tokens and refresh_waits of requests are kept. For plug-ins they
     * always are; a built-in scheduler that reads them says so, since keeping them takes time. */
    uint32_t reads_all;
    /* 1: it says widths, thresholds or rows, so that the passes of a request depend on it and a
     * bound of all schedulers is none of it. Asking for one is refused, but of those whose fewest
     * passes are known (sim/bound/words.h), which are built in. */
    uint32_t changes_passes;
    /* 1: it says run_tokens and looks at masked positions, which are followed for it: for exact
     * caches of blocks that run a block's masked positions in every pass. Then changes_passes is 1,
     * too. */
    uint32_t says_rows;
    uint32_t needs; /* of enum scheduler_need, added up */
    /* The scheduler's own memory of each request, in the view; a multiple of 8, at most
     * SCHEDULER_MAX_REQUEST_BYTES. */
    uint32_t request_bytes;
    void (*schedule)(void *state, const struct schedule_view *view, struct batch *batch);
    /* May be NULL. n things that happened at view->now_ns, in their order, told when they happen:
     * arrivals one by one, also while a step is under way; after steps that ended, first those that
     * took part, in the batch's order, then those that left; after a decision what it rejected,
     * preempted and admitted. So the state can hold an index of what waits and runs, which takes no
     * looking through all requests. A system that decides ahead (decides_ahead) tells arrivals at
     * once, though the view leaves out those that came since the step began. */
    void (*happened)(void *state, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n);
    /* NULL, or the names of the reasons for which it rejects, NULL-ended: a-z, 0-9 and -, up to
     * SCHEDULER_MAX_REASONS of them. Counts and records go by them. */
    const char *const *reject_reasons;
};

/* The first member of a scheduler that has a state and a table of parameters. */
#define SCHEDULER_POLICY(called, says, state, table)                                               \
    {                                                                                              \
        .abi = POLICY_ABI, .kind = POLICY_SCHEDULER, .size = sizeof(struct scheduler),             \
        .state_bytes = sizeof(state), .name = (called), .doc = (says), .params = (table),          \
        .n_params = sizeof(table) / sizeof((table)[0])                                             \
    }

extern const struct scheduler *const scheduler_table[];
extern const size_t scheduler_table_size;

#endif
