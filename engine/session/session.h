/* Sessions: what the engine holds for each running request, and what its next step brings.
 *
 * A session is a canvas of token ids and a store of cached rows, or pages of them where keys and
 * values are exact, all in device memory; it is opened when the loop admits a request and closed
 * when the request leaves. Of one that is preempted the canvas stays, and with it what was
 * committed; its rows are computed anew when it is admitted again. From a request's span
 * and the cache policy's word follow the positions of its queries, which of their keys and values
 * are kept where, which rows go through the output head and what they decide on. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_H
#define UNMASK_ENGINE_SESSION_SESSION_H

#include <stdint.h>

#include "engine/device/pages.h"
#include "engine/device/stores.h"
#include "engine/step/forward.h"
#include "sim/serve/executor.h"
#include "sim/system/system.h"

struct session {
    const struct request *request; /* the loop's; stays put until the request has left */
    uint64_t id;                   /* its own */
    uint32_t prompt_tokens, output_tokens;
    bool has_canvas;
    int64_t canvas;      /* first token among the canvases */
    int64_t store_bytes; /* where in the pool its rows lie; -1: it has none */
};

/* Stores start at a multiple of so many elements: kernels read 16 bytes at a time. */
enum { STORE_ALIGN_ELEMENTS = 8 };

/* Places of the running requests (session_places.h): whose they are, and those of the step under
 * way. */
struct session_places {
    uint32_t *of_slot;      /* [n_slots]: from so many blocks of places on */
    uint32_t *free, n_free; /* [max_requests]: nobody's */
    int32_t *rows, *tokens; /* [max_logit_rows], [max_tokens] */
};

/* What an eviction leaves of the step under way; all of it as large as the step's. */
struct session_rest {
    struct step_part *parts;
    struct span *spans;
    const struct span **span_list;
    struct step_shape shape;
    int32_t *positions, *extents, *kept, *logit_rows, *targets, *places;
    float *delta; /* [block_tokens] */
};

struct sessions {
    const struct system *system;
    struct forward *forward;
    struct step_limits limits;
    uint64_t seed;
    struct session *by_slot;        /* [n_slots] */
    struct stores canvases, stores; /* in tokens; in bytes */
    struct pages pages;             /* instead of stores, where the cache is exact */
    int32_t *tokens;                /* [max_positions], a canvas on its way to the device */
    /* The step under way. */
    const struct planned_step *planned;
    const struct step_part *decided; /* parts, or what an eviction left */
    struct eviction seen;            /* what an eviction was told; NULLs where there was none */
    uint32_t *n_rows;                /* [max_requests], their logit rows */
    struct step_part *parts;         /* [max_requests] */
    int32_t *positions, *kv_rows, *logit_rows, *targets; /* [max_tokens] each */
    int32_t *extents;                                    /* the same */
    uint8_t *masked_tokens;                              /* the same, where something evicts */
    uint32_t n_used_tokens, n_used_rows;
    struct decode_rule rule; /* of the requests that decide */
    struct session_rest rest;
    struct session_places places; /* where the system has any */
};

/* ERR_USAGE when the system's cache policy or its rows are such that the engine does not run them.
 */
int sessions_check(const struct system *system, struct err *err);

/* Whether steps of the system run some positions of a block and leave others out. */
bool sessions_list_positions(const struct system *system);

/* ERR_USAGE when more take part in a step than the engine was opened for. */
int sessions_check_batch(const struct sessions *sessions, const struct planned_step *planned,
                         struct err *err);

/* ERR_USAGE as sessions_check. */
int sessions_open(struct sessions *sessions, const struct system *system, struct forward *forward,
                  const struct step_limits *limits, uint64_t seed, struct err *err);
void sessions_close(struct sessions *sessions);

/* The canvas: the prompt's ids (NULL: drawn from the seed and the request's id, never the mask
 * token), then masks; of a request that was preempted what it was. ERR_WORLD when canvases or pool
 * are full. */
int sessions_admit(struct sessions *sessions, uint32_t slot, const struct request *request,
                   const int32_t *prompt, struct err *err);
void sessions_release(struct sessions *sessions, uint32_t slot);

/* The request holds more memory than before (exact caches). */
int sessions_grow(struct sessions *sessions, uint32_t slot, const struct request *request,
                  struct err *err);

/* Whether a request's step runs a list of positions of its block. */
bool session_is_listed(const struct sessions *sessions, const struct request *request);

/* Fill in the parts of a batch's step, in batch order. take: how many positions each member
 * commits, instead of what its decoder says; NULL: the decoder's word. Where workspace and pool
 * share memory, stores are pushed out of the placement's way. */
int sessions_plan(struct sessions *sessions, const struct planned_step *planned,
                  const uint32_t *take, const struct placement *placement, struct step *step,
                  struct err *err);

/* Let the step that was planned last commit nothing. */
void sessions_decide_nothing(struct sessions *sessions, const struct planned_step *planned);

/* Whether a position of a member's canvas is masked before the step. Where nobody follows the block
 * it counts as decoded from left to right. */
bool session_is_masked(const struct planned_step *planned, uint32_t member, uint32_t position);

/* Write what a step committed to the planned step's blocks: `committed` as in step_result. */
void sessions_settle(struct sessions *sessions, const struct planned_step *planned,
                     const uint8_t *committed);

/* The step is over, all its commits are known: where blocks are followed counts[i] becomes what
 * member i committed. */
void sessions_pass(const struct planned_step *planned, uint32_t *counts);

/* Positions of the active block that are still masked, in canvas order: indices into the span's
 * logit rows, as they were planned. Returns how many. */
uint32_t sessions_masked_rows(const struct sessions *sessions, const struct planned_step *planned,
                              uint32_t member, uint32_t *rows);

/* The position that such a row decides on. */
uint32_t sessions_target(const struct sessions *sessions, uint32_t member, uint32_t row);

/* Commit one row's target on the host's word. */
int sessions_commit(struct sessions *sessions, const struct planned_step *planned, uint32_t member,
                    uint32_t row, int32_t token, struct err *err);

/* The tokens at the output positions: [output_tokens]. */
int sessions_read(struct sessions *sessions, uint32_t slot, int32_t *tokens, struct err *err);

/* Bytes of cached rows held now, and the most at once so far. */
int64_t sessions_pool_bytes(const struct sessions *sessions);
int64_t sessions_pool_peak_bytes(const struct sessions *sessions);

#endif
