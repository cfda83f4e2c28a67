/* The lifecycle of requests inside the loop: arrival, admission, progress through blocks,
 * departure.
 *
 * Everything that changes a request's state or a replica's sums is here; the loop decides when. */
#ifndef UNMASK_SIM_SERVE_LIFECYCLE_H
#define UNMASK_SIM_SERVE_LIFECYCLE_H

#include "sim/policy/plugin/ward.h"
#include "sim/serve/kept_prefixes.h"
#include "sim/serve/loop.h"
#include "sim/serve/positions.h"
#include "sim/serve/recall.h"
#include "sim/serve/sharing.h"

/* What the loop knows of a request and policies need not. What struct request has of it as well is
 * there alone; request_record of lifecycle.c puts both together when it leaves. */
struct tracked {
    /* In two lines of the processor's cache: first what changes whenever a span ends. */
    _Alignas(64) uint32_t steps_planned; /* steps_to_change when the present span was planned */
    uint32_t span_holds;       /* steps for which the span does not depend on what they commit */
    uint64_t tokens_processed; /* columns of request.def, as are the next three; */
    uint32_t refresh_steps, answer_tokens, first_block_tokens;
#define KEPT(...)
#define SUMMED(type, name, ...) type name;
#include "sim/serve/request.def" /* those that the loop alone counts */
    uint32_t replica;            /* that it waits or runs at */
    uint32_t last_end;   /* STOP_WINDOW, once an end of text is decided in a block in flight: where
                            the last block that passes decide on ends; else 0 */
    uint64_t listed;     /* the last scheduling decision that listed the request */
    uint32_t run_tokens; /* by the scheduler's word, of the step that is being planned: how many
                            masked positions run, 0: all; */
    bool puts_off;       /* the refresh waits; */
    bool surest;         /* what runs are those decided on with most confidence */
    bool is_swapped;     /* waits, and what it held lies in the host's memory */
    uint64_t took_part;  /* the last step, of those that not all took part in, that it was in */
    int64_t
        paused_since_ns; /* the end of its last step, while its replica steps without it; else 0 */
    int64_t pause_ns;    /* the longest such time that is over */
    int64_t cancel_ns;   /* from when on it is taken out; 0: not */
    uint32_t prefix_tokens, revised_tokens; /* columns of request.def, as are the next three */
    uint64_t session, follows, place;
};

struct replica {
    void *scheduler_state;
    uint32_t *running; /* slots, in order of admission */
    uint32_t n_running;
    uint32_t *waiting; /* slots, in order of arrival, from waiting[head] */
    uint32_t head, n_waiting;
    int64_t kv_used_bytes, growth_bytes; /* held, and what running requests need besides */
    int64_t host_used_bytes;             /* by requests that were swapped out */
    struct swap swap, flight_swap; /* since the last submission, and ahead of the one in flight */
    int64_t sym[SYM_COUNT];        /* of a step of every running request */
    uint32_t n_by_phase[PHASE_COUNT];               /* of the same */
    uint64_t outstanding_tokens;                    /* output positions not yet committed */
    uint64_t n_by_threshold, thresholds_millionths; /* of the steps since the last report (struct
                                                       step_record) */
    uint64_t n_deciding, n_decided; /* passes whose number was drawn or told; what they committed */
    uint32_t *batch;                /* slots in flight; `running` itself when all take part */
    uint32_t n_batch;
    bool busy;
    /* Of steps in flight that are repeated: since when, how long each takes and what each commits,
     * and whether an arrival ends them; step_ns 0: they are not repeated. */
    int64_t flight_ns, step_ns;
    uint64_t step_tokens;
    bool ends_at_arrivals;
    int64_t wake_ns;      /* nothing takes part: when the scheduler is asked again; else */
    int64_t stop_ns;      /* when the steps under way end for it */
    uint32_t n_postponed; /* times in a row that nothing was selected and a time was named */
    uint32_t n_waits;     /* the same, of a trial in all */
    int64_t postponed_since_ns;
    /* Shape of the batch in flight. */
    struct step_shape shape;
    uint32_t batch_by_phase[PHASE_COUNT];
    uint64_t *member_ids; /* when members are wanted */
    uint32_t *member_commits;
    struct decode_pass *member_passes;
    uint8_t *member_phases;
    struct step_positions positions; /* the same, where they are followed */
    struct planned_block *blocks;    /* when the executor wants them */
    const struct span **spans;       /* when the executor wants them */
    uint32_t *selected, *idle;       /* the scheduler's lists of a batch, as it is in flight */
    uint32_t n_idle;                 /* of the batch in flight */
    /* The last batch that ended, for systems that decide ahead: when its last step started and
     * ended, and what requests that ended with it held. */
    int64_t last_start_ns, last_end_ns, freed_bytes;
    uint32_t n_freed;
    struct page_cache pages;       /* under prefix caching */
    struct kept_prefixes prefixes; /* the same, where the cache policy has leading layers */
    bool pages_changed;            /* those that a request waits for */
    struct page_lists page_lists;  /* when the executor wants them */
    uint32_t loops_left;           /* steps of the same batch before the scheduler is asked again */
    /* Of unrolled steps: how many follow the one being accounted for, and what that one computed
     * and discarded. */
    bool unrolled;
    uint32_t steps_ahead, wasted_requests;
    uint64_t wasted_tokens;
};

/* What a scheduler says in one decision, of whichever replica: lists of n_slots entries, one after
 * the other; from chunk_tokens on all 0 between decisions. */
struct said {
    uint32_t *preempted, *rejected, *reasons, *swaps;
    uint32_t n_swaps; /* the first entries of `swaps` that may not be 0 */
    uint32_t *chunk_tokens, *width_tokens, *threshold_millionths, *puts_off, *run_tokens;
};

struct lifecycle {
    const struct system *system;
    const struct loop_request *asked;
    struct loop_result *result;
    int64_t now_ns;
    struct lent lent;         /* what schedulers see: requests, and lists of replicas */
    struct request *requests; /* by slot */
    struct tracked *tracked;
    struct recall *recalls; /* by slot, when decisions come from a decode trace; else NULL */
    uint32_t *free_slots;   /* that were taken and are free again, the last one on top: n_free */
    uint32_t n_free, n_slots;
    uint32_t n_taken; /* the slots before it were taken at some time */
    uint32_t n_used;  /* and those before this one written to, by requests that were rejected */
    char *own;        /* the scheduler's memory of each slot, own_bytes each */
    size_t own_bytes;
    struct replica *replicas;
    uint32_t n_replicas;
    int64_t widest_fitting_canvas; /* slabs: the longest canvas known to fit alone */
    void *router_state;            /* this run's own */
    struct home {
        uint64_t session; /* 0: none */
        uint32_t replica;
    } * homes; /* a hash table of `homes_room`: where each conversation's last turn went */
    size_t n_homes, homes_room;
    struct replica_view *views;      /* what routers see of each replica, */
    int64_t *views_until_ns;         /* and until when it is as it is: 0 once anything changed */
    uint64_t *due;                   /* a bit a replica that may be idle with work; see cluster.h */
    uint32_t *together;              /* slots looked at together, n_slots of them */
    const struct span **asked_spans; /* of what a scheduler asks about */
    struct said said;
    bool has_positions; /* of active blocks: needed, and in no decode trace */
    struct positions positions;
    /* What is told to schedulers that want to know; NULL: they do not. */
    struct happening *happenings;
    int64_t next_arrival_ns;  /* INT64_MAX: not known */
    int64_t next_cancel_ns;   /* the first of the requests' cancel_ns; INT64_MAX: there is none */
    bool keeps_all;           /* the scheduler reads service and refresh_waits */
    bool reads_load;          /* cache policy or decoder reads request->load, */
    struct replica_load load; /* as it was when the steps that are being accounted for ended */
    /* What the router holds back, in order of arrival, and until when. */
    uint32_t *held, n_held;
    int64_t *held_until_ns, held_soonest_ns;
    uint64_t n_holds;       /* answers in a row that held something back, */
    int64_t holds_since_ns; /* and since when */
    bool has_changed;       /* since the router was asked about them, a step ended or one left */
    bool has_moved;         /* since it was asked to move some, that or an arrival happened */
    struct route_move *moves;
    bool checks_rows; /* the cache policy is not one of the built-in ones */
    bool wants_events, wants_requests, wants_steps;
    uint32_t n_paused;             /* requests with a paused_since_ns */
    uint64_t n_partial;            /* steps so far that not all running requests took part in */
    uint64_t n_decisions;          /* of schedulers, so far */
    uint32_t threshold_millionths; /* the decoder's; 0: it has none that decides anything */
    bool has_words;                /* one of them said a width or a threshold */
    struct sharing sharing;
};

/* The decisions that a request takes from a decode trace; NULL: it takes none, or none yet. */
static inline struct recall *lifecycle_recall(const struct lifecycle *life, uint32_t slot) {
    struct recall *recall = life->recalls != NULL ? &life->recalls[slot] : NULL;
    return recall != NULL && recall->is_open ? recall : NULL;
}

/* Allocate for `asked`. lifecycle_fini releases it. */
void lifecycle_init(struct lifecycle *life, const struct loop_request *asked,
                    struct loop_result *result);
void lifecycle_fini(struct lifecycle *life);

/* An arrival enters the system or is rejected. */
int lifecycle_arrive(struct lifecycle *life, const struct arrival *arrival, struct err *err);

/* Requests that the router holds back are asked about again, where something has changed or their
 * time has come. */
int lifecycle_ask_held(struct lifecycle *life, struct err *err);

/* What it holds back leaves as rejected. */
int lifecycle_reject_held(struct lifecycle *life, enum reject_reason reason, struct err *err);

/* The router moves waiting requests, where it does that and something has changed. */
int lifecycle_ask_moves(struct lifecycle *life, struct err *err);

/* A waiting request starts to run: takes its memory, joins the replica's sums. The caller removes
 * it from the waiting list. */
int lifecycle_admit(struct lifecycle *life, struct replica *replica, uint32_t slot,
                    struct err *err);

/* A running request takes the memory that its next step needs; there is enough. */
int lifecycle_grow(struct lifecycle *life, struct replica *replica, uint32_t slot, struct err *err);

/* A running request takes but `tokens` of its prefill in its next step. */
void lifecycle_chunk(struct lifecycle *life, struct replica *replica, uint32_t slot,
                     uint32_t tokens);

/* The scheduler's words about a running request (struct batch). */
int lifecycle_say(struct lifecycle *life, struct replica *replica, uint32_t slot,
                  uint32_t width_tokens, uint32_t threshold_millionths, struct err *err);

/* Its next step is planned once more, as the scheduler says what it runs: tracked->puts_off and
 * run_tokens, which the caller sets for this call. */
int lifecycle_plan_anew(struct lifecycle *life, struct replica *replica, uint32_t slot,
                        struct err *err);

/* A running request gives its memory back and waits at the head of the queue; what it committed
 * stays and, where it is swapped out, all else, in the host's memory. */
int lifecycle_preempt(struct lifecycle *life, struct replica *replica, uint32_t slot, bool swaps,
                      struct err *err);

/* The replica's batch began at `start_ns`, and its last step ended now. */
void lifecycle_took_part(struct lifecycle *life, const struct replica *replica, int64_t start_ns);

/* `steps` steps of the replica's batch are done, in `wall_ns`: every member moves on; finished ones
 * leave. `known`: what each member committed in the last of them, NULL when only the loop knows. */
int lifecycle_advance(struct lifecycle *life, struct replica *replica, uint32_t steps,
                      int64_t wall_ns, const struct decided *known, struct err *err);

/* A queued or running request leaves as rejected (interrupted runs). */
int lifecycle_reject(struct lifecycle *life, uint32_t slot, enum reject_reason reason,
                     struct err *err);

/* A request that waits, or that runs on a replica that computes nothing now, leaves as rejected,
 * and others may take its memory in the next step. */
int lifecycle_take_out(struct lifecycle *life, uint32_t slot, enum reject_reason reason,
                       struct err *err);

/* Waiting requests that the scheduler rejects leave the queue. */
int lifecycle_reject_listed(struct lifecycle *life, struct replica *replica,
                            const struct batch *batch, struct err *err);

/* What decoders and caches see of a replica now. */
struct replica_load lifecycle_load(const struct lifecycle *life, const struct replica *replica);

#endif
