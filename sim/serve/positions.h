/* The positions of requests' windows: which are still masked, which have yet to be computed
 * once more, and which of them a step runs and commits.
 *
 * Kept where one of these needs them: a decoder that reads confidences, a cache policy that leaves
 * positions of a block out. Where neither does, counts suffice and nothing here is called. */
#ifndef UNMASK_SIM_SERVE_POSITIONS_H
#define UNMASK_SIM_SERVE_POSITIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/decode/choice.h"
#include "sim/serve/step.h"
#include "sim/system/system.h"

struct positions {
    const struct system *system;
    uint64_t seed;
    struct block_state *blocks;    /* by slot */
    uint8_t *masked, *uncached;    /* by slot, settings_window_tokens each */
    uint16_t *later;               /* the same (struct block_state); NULL unless rows.recent */
    uint8_t *run, *keep, *outcome; /* the same, of the step planned (struct planned_block) */
    uint16_t *earlier;     /* by slot, one entry more: passes of the window that began with as many
                              positions decided */
    unsigned char *memory; /* by slot, the cache policy's own */
    uint32_t *text_end;    /* by slot: one past the end of text in the canvas; UINT32_MAX: none */
    float *earned;         /* by slot, two of each position: credit, where decoders give any */
    struct decode_credit credit;
    float *confidence; /* by slot, that positions were committed with; NULL unless the decoder takes
                          some back */
    float *seen;       /* the same of masked ones, in their last pass; NULL unless the scheduler
                          says_rows, or the decoder checks drafts */
    uint8_t *added;    /* by slot and position: masked since the window's start; NULL unless the
                          decoder's canvas moves */
    uint16_t *rounds;  /* by slot: passes of the window without other masks; the same */
    uint8_t *checks;   /* by slot: the last drafts were checked; NULL unless the decoder does */
    struct bandit *bandits; /* by slot; NULL unless drafts are checked by one */
    uint8_t *alone;         /* room for flags of a window, where drafts are checked */
    bool shifts;            /* in blocks the row before a position decides on it, and may not run */
    uint8_t *decides;       /* room for flags of a window, where that is so */
    float *delta;           /* of one request */
    float *entropy;         /* the same; NULL unless the cache policy reads it */
    bool by_order;          /* of the choice only which positions are surest is read */
    struct choice choice;
};

/* Whether the system's policies ask for them. */
bool positions_wanted(const struct system *system);

void positions_init(struct positions *positions, const struct system *system, uint64_t seed,
                    uint32_t n_slots);
void positions_fini(struct positions *positions);

/* A request begins: the policy's memory of it is empty. text_end: one past the end of its text in
 * the canvas, UINT32_MAX where nothing is drawn by it. */
void positions_start(struct positions *positions, uint32_t slot, uint32_t text_end);

/* The policy's memory of it. */
const void *positions_memory(const struct positions *positions, uint32_t slot);

/* It enters its active block, whose first n_fixed positions are the prompt's. */
void positions_enter(struct positions *positions, uint32_t slot, const struct request *request,
                     uint32_t n_fixed);

/* It moved on to the next of several blocks: what is decided of those in flight stays so. */
void positions_carry(struct positions *positions, uint32_t slot, const struct request *request);

/* How many of these positions of its window are masked. */
uint32_t positions_masked(const struct positions *positions, uint32_t slot,
                          const struct request *request, struct range range);

/* More blocks are in flight than before, whose positions are all masked. */
void positions_extend(struct positions *positions, uint32_t slot, const struct request *request);

/* Keys and values of the block are lost, and its credit; what was committed is not. */
void positions_forget(struct positions *positions, uint32_t slot);

/* Before the request's next step is planned: how many positions it runs (or would run if it reused
 * what it lists) and what an eviction leaves of them. known: the executor decides evictions, so
 * that nothing is drawn and all positions are assumed to survive. Commits nothing. */
void positions_plan(struct positions *positions, uint32_t slot, struct request *request,
                    bool known);

/* Of the masked positions that the step to be planned would run, `most` do, the left-most ones or
 * those that their last passes were surest of. After positions_plan. */
void positions_leave(struct positions *positions, uint32_t slot, struct request *request,
                     uint32_t most, bool surest);

/* As struct schedule_view's look. */
uint32_t positions_look(const struct positions *positions, uint32_t slot, struct masked_seen *out,
                        uint32_t capacity);

/* The step planned runs a part of the block, request->span's, or all of it, whatever is listed. */
void positions_run(struct positions *positions, uint32_t slot, struct request *request);

/* Of the positions that the step planned, or done, runs: how many an eviction leaves, and the
 * block's up to the right-most of them. */
void positions_kept(const struct positions *positions, uint32_t slot, uint32_t *n_kept,
                    uint32_t *reach);

/* The sums of a step's `n` members as they came to be: what a device's eviction left of their
 * blocks was not known when the step was submitted. */
void positions_settle(const struct request *requests, const uint32_t *slots,
                      const struct planned_block *blocks, uint32_t n, int64_t sym[SYM_COUNT]);

/* The masked ones among those that stay, and on which a row decides: a step commits no more than
 * these. */
uint32_t positions_candidates(const struct positions *positions, uint32_t slot);

/* Whether the next pass checks what the last one drafted, over twice the rows: one that commits
 * nothing is followed by such a one. */
bool positions_checks(const struct positions *positions, uint32_t slot);

/* The flags of the step planned, which stay where they are. */
struct planned_block positions_block(const struct positions *positions, uint32_t slot);

/* In the middle of the step: what the policy keeps of it, by the importance that was measured
 * (struct planned_step's evict). */
void positions_evict(struct positions *positions, uint32_t slot, const struct request *request,
                     const float *delta);

/* After a step that was planned so: its decisions, as an executor left them in its flags where it
 * decides (`known`), else by the decoder, of confidences drawn; `count`, where it is not 0, is how
 * many the executor says are committed; *found is how positions came out, which the caller checks.
 * A commit pass decides nothing. Returns false, and nothing is changed, where the flags are none
 * that the block allows (block_allows): a record or a policy has said so. */
bool positions_pass(struct positions *positions, uint32_t slot, const struct request *request,
                    bool known, uint32_t count, bool decides, struct outcomes *found);

#endif
