/* Decoders: which masked positions a step commits.
 *
 * A decoder either counts (the number of committed positions follows from the request alone), names
 * one of the rules that loop and engine know (sim/decode/rule.h), or chooses by code of its own.
 * What it reads of a position the loop draws, replays from a record, or takes from real logits. The
 * engine applies rules on the device, next to the logits; for a decoder that chooses itself what it
 * reads comes to the host after every step. */
#ifndef UNMASK_SIM_POLICY_DECODER_DECODER_H
#define UNMASK_SIM_POLICY_DECODER_DECODER_H

#include <stddef.h>

#include "sim/decode/rule.h"
#include "sim/policy/abi.h"
#include "sim/policy/window.h"

/* Decided positions that a pass ran, but for the prompt's, in canvas order. */
struct decode_kept {
    uint32_t n;
    uint32_t first;          /* the window's first position in the canvas */
    const uint32_t *offset;  /* [n], within the window, ascending */
    const float *confidence; /* [n], that each was committed with */
};

enum { DECODER_MOST_PASSES = 64 };

/* What becomes of a position before it is final: for all who ask. Of every way but the first loop
 * and engine have a part, which reads the decoder's state, so that a user's own fills. */
enum decoder_way {
    DECODER_FILLS,      /* masked positions are filled, each for good or until it is taken back */
    DECODER_RENOISES,   /* a canvas of random tokens is decided anew until it stays; its state is
                           struct renoise, which says the number of passes, too */
    DECODER_MOVES,      /* positions are dropped and inserted; struct joint_indel */
    DECODER_SPECULATES, /* a pass drafts and the next, of twice the rows, checks; speculation */
};

struct decoder {
    struct policy policy;

    /* Set exactly one of: count (with or without rule), choose, or rule alone. */

    /* Positions to commit in the next step, from 1 to masked_in_block, and in `*repeat` for how
     * many consecutive steps the same number holds. Where the step runs fewer masked positions, or
     * an eviction leaves fewer, it commits all of these. They are those that rank first by `rule`,
     * the most confident ones where that is NULL. */
    uint32_t (*count)(const void *state, const struct request *request, uint32_t *repeat);

    /* Sets commit[i] to 1 or 0 for each of the seen->n positions and returns how many are 1, at
     * least 1. */
    uint32_t (*choose)(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit);

    /* Kind, rank and numbers of the rule for the next step: DECODE_COUNT with `count`, any other
     * without. Threshold and key may change from step to step, the rest with nothing. */
    void (*rule)(const void *state, const struct request *request, struct decode_rule *out);

    /* NULL, or the credit that is given before anything is chosen, without `count`; the same at
     * every call. */
    void (*credit)(const void *state, struct decode_credit *out);

    /* NULL, or, with `choose`, which decided positions are masked again after the pass that
     * `choose` was asked about, whose commits are not among them: sets again[i] to 1 or 0 for each
     * of the kept->n positions and returns how many are 1. `choose` may then commit none. A block
     * takes DECODER_MOST_PASSES passes for each of its positions at most. */
    uint32_t (*take_back)(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again);

    uint32_t reads_statistics; /* 1: choose or the rule reads margin and entropy */
    uint32_t reads_load;       /* 1: it reads request->load; then threshold and key of its rule may
                                  go by that, too */
    uint32_t way;              /* enum decoder_way */
};

/* The rule by which a decoder's step ranks or chooses, with the threshold that the scheduler said;
 * of one that chooses itself, confidence. */
static inline struct decode_rule decoder_rule(const struct decoder *decoder, const void *state,
                                              const struct request *request) {
    struct decode_rule rule = {.kind = DECODE_COUNT};
    if (decoder->rule != NULL) {
        decoder->rule(state, request, &rule);
    }
    if (window_threshold(request) > 0) {
        rule.threshold = (float)(window_threshold(request) * 1e-6);
    }
    return rule;
}

/* Its kind, rank and numbers that are the same for every request and step: threshold and key are
 * not among them. */
static inline struct decode_rule decoder_rule_always(const struct decoder *decoder,
                                                     const void *state) {
    const struct request any = {.window = window_of(0, 0, 1, 1), .steps_per_block = 1};
    return decoder_rule(decoder, state, &any);
}

/* The built-in one, whose threshold stays as it is. */
extern const struct decoder decoder_threshold;

extern const struct decoder *const decoder_table[];
extern const size_t decoder_table_size;

#endif
