/* What is counted of passes over blocks, whether a device took them (a decode trace) or a decode
 * process was rolled out: so that the two can be compared number by number. Positions after the end
 * of text are in none of the counts. */
#ifndef UNMASK_EXPERIMENTS_STUDY_DECODE_FACTS_H
#define UNMASK_EXPERIMENTS_STUDY_DECODE_FACTS_H

#include "sim/decode/rollout.h"
#include "traces/decode_trace.h"

enum { FACTS_GAPS = 6, FACTS_LEVELS = 8, FACTS_QUINTILES = 5 };

/* Sums over requests of x, y and their products, for the quotient of sums and its error. */
struct facts_ratio {
    double x, y, xx, xy, yy;
};
/* Sum of x over that of y; `*error`: its standard error over requests. NaN where y is 0. */
double facts_quotient(const struct facts_ratio *ratio, double *error);

struct decode_facts {
    uint64_t n_requests;
    struct facts_ratio yield; /* tokens over denoising passes */
    struct facts_ratio cost;  /* positions run (after an eviction) over tokens */
    /* Of commits: masked positions between one and what is known at its left, those with none, and
     * passes until the right neighbour was committed too, 0 where it was before. */
    double n_commits, distance, n_beside, lag, n_lags;
    double quintile[FACTS_QUINTILES], n_ranked; /* commits by their delta's, least first */
    /* Masked positions seen in the first pass of a block and in later ones, by what is masked
     * between them and what is known: 0, 1, 2-3, 4-7, 8-15 and more; those of at least a level. */
    double seen[2][FACTS_GAPS], above[2][FACTS_GAPS][FACTS_LEVELS];
    struct facts_first {
        double n, n_lost; /* of them in first passes, and those of less than 0.9 */
        double gap;       /* sums: positions in between, logits of those of 0.9 and more */
        double x, xx;
    } first[FACTS_GAPS];
    double lost_x, lost_xx; /* and of the others' */
    /* Of all of them, sums: confidence, margin, entropy, most likely tokens that stay; and of the
     * logit of what the second has of what the first leaves, where that can be told. */
    double n_seen, confidence, margin, entropy, settled, tail, tail_squares, n_tails;
    /* Of the request and block under way. */
    double tokens, passes, kept;
    uint32_t end, start, pass;
    int64_t when[ROLLOUT_MOST_POSITIONS]; /* by position: its pass; -1: masked or known before */
};

/* A request whose text ends before position `end` of the canvas; then its passes, then its end. */
void facts_begin(struct decode_facts *facts, uint32_t end);
/* A denoising pass. `final`: by position of the block, the token that was committed in the end;
 * NULL: not known, and a token stays with its own probability. */
void facts_see(struct decode_facts *facts, const struct decode_positions *pass,
               const int32_t *final);
void facts_end(struct decode_facts *facts);

/* Requests of a trace: those at even places, at odd ones, or all. */
enum facts_half { FACTS_EVEN, FACTS_ODD, FACTS_ALL };
int facts_of_trace(const struct decode_trace *trace, enum facts_half half,
                   struct decode_facts *facts, struct err *err);

/* The same requests, each `copies` times, as a process decodes them under a rule. */
void facts_of_process(const struct decode_process *process, uint64_t seed,
                      const struct rollout_rule *rule, const struct decode_trace *trace,
                      enum facts_half half, uint32_t copies, struct decode_facts *facts);

/* The rule that a trace says it was decoded by. ERR_WORLD where no rollout can follow it. */
int facts_rule(const struct decode_trace *trace, struct rollout_rule *rule, struct err *err);

#endif
