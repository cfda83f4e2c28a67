/* The members of a planned step as parts of a step of the engine: from a member's row sets and the
 * flags of its block follow the positions of its queries, which of their keys and values are kept
 * where, which rows go through the output head, what they decide on and by which numbers. */
#ifndef UNMASK_ENGINE_SESSION_MEMBERS_H
#define UNMASK_ENGINE_SESSION_MEMBERS_H

#include "engine/session/session.h"
#include "sim/serve/step.h"

/* Parts of a step and the arrays that they point into, as large as the largest step. */
struct part_arrays {
    struct step_part *parts; /* [max_requests] */
    uint32_t *n_rows;        /* [max_requests], a part's logit rows */
    /* [max_tokens] each, and [max_logit_rows] */
    int32_t *positions, *kv_rows, *extents, *kept, *token_places;
    int32_t *tokens, *page_rows, *before; /* of spans that check drafts */
    int32_t *logit_rows, *targets, *row_places;
    uint8_t *masked;                 /* [max_tokens] */
    uint32_t n_tokens, n_logit_rows; /* used so far */
};

void part_arrays_open(struct part_arrays *arrays, const struct step_limits *limits);
void part_arrays_close(struct part_arrays *arrays);

/* Everything but the sessions is of the step under way. */
struct members {
    struct sessions *sessions;
    const struct planned_step *planned; /* the caller's, until the next is planned */
    struct part_arrays whole;
    const struct part_arrays *decided; /* whole, or what an eviction left of it */
    struct eviction seen;              /* what it was told; NULLs where there was none */
    struct decode_rule rule;           /* of the requests that decide */
};

void members_open(struct members *members, struct sessions *sessions);
void members_close(struct members *members);

/* The parts of a batch's step, in batch order; the step lacks what an eviction asks. take: how many
 * positions each member commits, instead of what its decoder says; NULL: the decoder's word. Where
 * workspace and pool share memory, stores are pushed out of the placement's way. ERR_USAGE when
 * more take part than the engine was opened for, ERR_WORLD when a policy's answer contradicts
 * itself. */
int members_plan(struct members *members, const struct planned_step *planned, const uint32_t *take,
                 const struct placement *placement, struct step *step, struct err *err);

/* Let the step that was planned last commit nothing. */
void members_decide_nothing(struct members *members);

/* Whether a position of a member's canvas is masked before the step. A block that is not followed
 * counts as decoded from left to right. */
bool members_is_masked(const struct planned_step *planned, uint32_t member, uint32_t position);

/* Whether a request's step runs a list of positions of its block. */
bool members_is_listed(const struct system *system, const struct request *request);

/* The position is committed, the planned step's block says so; the token produced by a
 * shifted-logits pass belongs to the next block, and is none of these. The same wherever a step
 * committed a row's target, `committed` as in step_result. Whether it was masked. */
bool members_note_commit(const struct planned_step *planned, uint32_t member, int32_t position);
void members_settle(const struct members *members, const uint8_t *committed);

/* The step is over, all its commits are known: where blocks are followed commits[i] becomes what
 * member i committed. */
void members_count(const struct planned_step *planned, uint32_t *commits);

/* Where the row before a window is kept (system_keeps_row): which of a member's logit rows it is,
 * in a pass that writes keys and values of what is before the window, or all of it. In later ones
 * the first logit row stands in for it, and what it said then decides on the window's first
 * position. */
enum kept { KEPT_NONE, KEPT_WRITTEN, KEPT_READ };
struct kept_row {
    enum kept kind;
    uint32_t row;
};
struct kept_row members_kept_row(const struct members *members, uint32_t member);

/* Those of a member's logit rows that decide on positions of the active block that are still
 * masked, in canvas order. Returns how many. */
uint32_t members_masked_rows(const struct members *members, uint32_t member, uint32_t *rows);

static inline const struct request *members_request(const struct planned_step *planned,
                                                    uint32_t member) {
    return &planned->requests[planned_slot(planned, member)];
}

/* Flags of a member's block; NULL where blocks are not followed, and of idle members. */
static inline const struct planned_block *members_block(const struct planned_step *planned,
                                                        uint32_t member) {
    return planned->blocks != NULL && member < planned->n_slots ? &planned->blocks[member] : NULL;
}

#endif
