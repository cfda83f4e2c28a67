/* The score of each paper: how many of its independent printed numbers ours are within 15 % of.
 *
 * A printed number is counted once, however many figures show it: the first that counts it does,
 * and every later one is a derived row. */
#ifndef UNMASK_ANALYSIS_PAPER_PAPER_SCORE_H
#define UNMASK_ANALYSIS_PAPER_PAPER_SCORE_H

#include "analysis/paper/paper.h"

enum { PAPER_SCORE_MOST = 16, PAPER_SCORE_NAME = 64 };

struct paper_score {
    struct {
        char paper[PAPER_SCORE_NAME];
        struct paper_tally tally;
    } lines[PAPER_SCORE_MOST]; /* in the order in which they came */
    size_t n_lines;
    char **seen; /* owned: the printed numbers that are counted */
    size_t n_seen, max_seen;
};

void paper_score_init(struct paper_score *score);
void paper_score_fini(struct paper_score *score);

/* Adds the settled results of one figure. An error when there are too many papers. */
int paper_score_add(struct paper_score *score, const char *paper,
                    const struct paper_result *results, size_t n, struct err *err);

/* A line for each paper and one for all; a row that was not run is none of the independent ones. */
void paper_score_print(const struct paper_score *score, enum paper_format format, FILE *out);
int paper_score_write(const struct paper_score *score, enum paper_format format, const char *path,
                      struct err *err);

#endif
