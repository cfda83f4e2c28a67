/* The decode process: how sure a model would have been, where no model runs.
 *
 * Every masked position of a block has, in every step, a confidence (the probability of the token
 * the model would choose) and an importance delta (FOCUS's predictor of it). Both are drawn from
 * one model, so that one set of constants says what every decoder at every threshold commits, what
 * a block costs under it, and what FOCUS evicts:
 *
 *     x = location - distance g / (g + gap) + context s + position_spread d + step_spread e
 *     confidence = 1 / (1 + exp(-x))
 *     y = x + (distance - delta_distance) g / (g + gap) + delta_noise n
 *     delta = y - mean of y
 *
 * g: masked positions between this one and the nearest that is not, at its left (what precedes the
 * block is known: g = 0 at its first position). s: share of the block that is known; where several
 * blocks are in flight, of the position's own, while g is counted through all of them. d:
 * difficulty of the position, the same in every step. e and n: anew in each step. e and n are
 * nearly standard normal, as is d where `skew` is 0; else d = sqrt(1 - skew^2) n' + skew (1 - t')
 * with t' of the exponential distribution: trained models are sure of most positions and at a loss
 * at a few. All are keyed by request, position in the canvas and step, so that no draw depends on
 * the batch, the order or the thread, nor on which other positions a step runs. The mean is over
 * the block's masked positions: importances of one layer add up to a constant, so deltas add up to
 * 0; their scale is arbitrary and the rule that reads them does not depend on it. The first layers
 * may know how near context is better than what the last layer will be sure of, hence a distance of
 * their own.
 *
 * At some positions a model is at a loss until more of what stands before them is known, and then
 * sure of them: where lost_reach is not 0, with u uniform and the same in every step,
 *
 *     x = lost_location + lost_spread d    where -log(1 - u) < lost + (g / lost_reach)^lost_power
 *
 * in the place of the x above. Small trained models are so: of their confidences in first passes,
 * few lie between 0.9 and 0.99, and the share below grows faster than the distance. Deltas do not
 * know of it.
 *
 * The rest of a distribution follows from its confidence p and a share q, which differs from
 * position to position and step to step: the second token has q of what the first leaves, the third
 * q of what these leave, and so on, so that with a fourth draw t
 *
 *     q = min(1 / (1 + exp(-tail - tail_spread t)), p / (1 - p))      none has more than the first
 *     margin = p - (1 - p) q
 *     entropy = p log p + (1 - p) (log(1 - p) + log q + (1 - q) / q log(1 - q))
 *
 * and which token is the most likely one from a bar of the position, uniform and the same in every
 * step: its settled token where the confidence is at the bar or above, else a rival, always the
 * same. A position whose confidence is p has thus settled with probability p, and changes its mind
 * where its confidence passes the bar. Shares and bars are assumed, no printed number speaks of
 * them.
 *
 * Text ends. Positions after the end of text hold one token, again and again, and a model is sure
 * of it: their x is PROCESS_LOGIT_BEHIND_TEXT, whatever the process, the step or the neighbours. A
 * threshold decodes a block of them in its first pass, as it does in released code; that they are
 * as sure in the block that holds the end, before the end itself is decoded, was assumed, and is so
 * in small models trained for it (99 to 100 % of such positions at 0.9 or more in a block's first
 * pass). Their y is this x less `delta_behind`.
 *
 * A server may divide logits by a temperature T before it takes their softmax. That raises every
 * probability to the power of s = 1 / T and scales them to a sum of 1, under which this
 * distribution keeps its form:
 *
 *     x -> s x + log((1 - (1 - q)^s) / q^s)        q -> 1 - (1 - q)^s
 *
 * (q before its bound, which then holds of what comes out).
 *
 * It may draw tokens instead of taking the most likely one, among as many as top_k and top_p leave:
 * the drawn one is a place of this distribution (ladder.h), and its confidence its probability.
 * That a token which is not the most likely one makes the model less sure of others is not in here.
 *
 * A model that is trained to replace tokens it has chosen (LLaDA2.1) says other confidences than
 * the one of whose family it is, and is right as often: with `edits`, after the x above and before
 * any temperature,
 *
 *     x -> edit_location + edit_scale x          + edit_structured on code and mathematics
 *
 * A token that was chosen at the first x has to be replaced where edit_share (1 - its confidence by
 * the first x) is above 1 - bar, and is replaced in a pass where, by the present x of its position
 * as if that were masked, it is not any more, and the confidence that is said is above the
 * threshold for edits. What is settled stays so.
 *
 * Deltas come from attention and stay as they are; so does "kumaraswamy", which has no logits.
 *
 * experiments/study/decode.ini has the constants: which are assumed, and to which printed number
 * each of the others is calibrated. "kumaraswamy" is the process without any structure: independent
 * draws of the same distribution in every step, deltas independent of them. */
#ifndef UNMASK_SIM_DECODE_PROCESS_H
#define UNMASK_SIM_DECODE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/rules/draw_rule.h"
#include "sim/base/err.h"
#include "sim/base/provenance.h"

struct decode_credit;

/* A confidence of 0.999994, above any threshold in use (assumed). */
enum { PROCESS_LOGIT_BEHIND_TEXT = 12 };

enum { DECODE_MOST_ERRORS = 8, DECODE_ERROR_CHARS = 256 };

/* Conditions of the measured or published number that a process was fitted to; 0: not stated. */
struct decode_conditions {
    double threshold;       /* of the threshold decoder */
    double temperature;     /* that logits were divided by */
    uint32_t block_tokens;  /* of its blocks */
    uint32_t answer_tokens; /* where texts ended; 0: they filled what was decoded */
};

struct decode_process {
    char name[64];
    struct provenance from;         /* assumed where its file does not say */
    char error[DECODE_ERROR_CHARS]; /* its error, or its shape's, against measured or printed
                                       decisions, or that it was not judged */
    struct decode_error_of {
        char name[24], text[DECODE_ERROR_CHARS];
    } errors[DECODE_MOST_ERRORS]; /* the same under a cache, a decoder or smoothing alone */
    struct decode_conditions at;
    uint32_t independent; /* 1: Kumaraswamy(a, b), and nothing else counts */
    double a, b;
    double location, distance, gap, context;
    double position_spread, step_spread, skew;
    double lost, lost_reach, lost_power, lost_location, lost_spread;
    double delta_distance, delta_noise, delta_behind;
    double tail, tail_spread;
    double edit_location, edit_scale, edit_share; /* with edits */
    double edit_structured; /* is added to edit_location where is_structured */
    bool is_structured;     /* of code or mathematics; its row of locations.csv says so */
    double insert_share, delete_share; /* of edits, where positions are inserted and dropped */
    uint32_t edits; /* 1: of a model trained to replace tokens; its user's, as these are: */
    double
        temperature; /* that logits are divided by; 0: 1. No constant of the model's: its user's */
    struct draw_rule drawing; /* where tokens are drawn, or fewer than all kept; the user's, too */
};

/* A block of a request before a step. */
struct decode_view {
    uint64_t request;
    uint32_t block_start, block_length; /* positions of the canvas */
    uint32_t step_in_block;             /* steps done since the block became active */
    uint32_t step;                      /* steps done over all blocks; "kumaraswamy" is keyed so */
    const uint8_t *masked;              /* [block_length], 1: still masked */
    const uint8_t *wanted; /* [block_length], 1: its confidence is asked for; NULL: all are */
    uint32_t behind_text;  /* how many of the block's last positions follow the end of text */
    const struct draw_rule
        *drawing;         /* the request's own; NULL: the process's, and its temperature */
    uint32_t mark_tokens; /* positions of each of several blocks in flight, which these are
                             together; 0: one is in flight */
};

/* What the loop has always drawn from: "kumaraswamy" with these shapes. */
struct decode_process process_kumaraswamy(double a, double b);

/* confidence[block_length]: in (0, 1) where masked and wanted, else 0. */
void process_confidence(const struct decode_process *process, uint64_t seed,
                        const struct decode_view *view, float *confidence);

/* Whether the surest positions can be told by their draws alone. */
bool process_ranks_by_draws(const struct decode_process *process, const struct decode_view *view);

/* Then surest[block_length] is 1 at as many positions, masked and wanted, that have the largest
 * confidences, the earlier of equal ones, and 0 elsewhere; draws and offset [block_length] are
 * room. */
void process_surest(const struct decode_process *process, uint64_t seed,
                    const struct decode_view *view, uint32_t most, double *draws, uint32_t *offset,
                    uint8_t *surest);

/* margin and entropy[block_length] of confidences that were drawn: in [0, confidence], where tokens
 * are drawn in [0, 1], and not above 0 where masked, else 0. */
void process_statistics(const struct decode_process *process, uint64_t seed,
                        const struct decode_view *view, const float *confidence, float *margin,
                        float *entropy);

/* Whether a position's most likely token at this confidence is the settled one: else a rival, the
 * same at every such confidence. */
bool process_is_settled(uint64_t seed, uint64_t request, uint32_t position, float confidence);

/* Whether a check accepts the token that a pass drafted at position i, by chance: its probability
 * in the check over that in the draft. Each is of the view of its pass, by which only position i is
 * wanted; drafted_with is the draft's confidence, and confidence[block_length] room. Where one of
 * the most likely tokens is the settled one and the other is not, the first two tokens have changed
 * places. */
bool process_accepts(const struct decode_process *process, uint64_t seed,
                     const struct decode_view *draft, const struct decode_view *check, uint32_t i,
                     float drafted_with, float *confidence);

/* What a decoder replaces, above `edit`, of the decided positions from n_fixed on, whose tokens
 * were chosen with the confidences held[block_length]: sets revised[block_length] to 1 or 0, and
 * held to the new confidence where it is 1. */
void process_revisions(const struct decode_process *process, uint64_t seed,
                       const struct decode_view *view, uint32_t n_fixed, float edit, float *held,
                       uint8_t *revised);

/* What an edit of a position is, where a decoder may insert and delete: insert_share of edits put a
 * mask before the token, delete_share drop it, anew in each step. */
enum process_edit { EDIT_REPLACE, EDIT_INSERT, EDIT_DELETE };
enum process_edit process_edit_at(const struct decode_process *process, uint64_t seed,
                                  const struct decode_view *view, uint32_t i);

/* A pass of credit (rule.h) over the masked positions in keep[block_length]: raises their
 * confidences. earned[block_length, 2], of each position's settled token and its rival, is all 0
 * when the block begins; the credit of the token that is not the most likely one counts for
 * nothing until it is that. */
void process_credit(const struct decode_credit *credit, uint64_t seed,
                    const struct decode_view *view, const uint8_t *keep, float *earned,
                    float *confidence);

/* delta[block_length]: adds up to 0 over the masked positions (but for rounding), 0 elsewhere. */
void process_delta(const struct decode_process *process, uint64_t seed,
                   const struct decode_view *view, float *delta);

#endif
