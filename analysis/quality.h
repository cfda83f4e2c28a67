/* Quality: how many answers of a run are right, and how many outputs are those of another decode.
 *
 * accuracy   right / judged: of the requests that were served and whose right answer is known
 * agreement  agreed / compared: of the served ones whose prompt the reference holds, those whose
 *            output, up to its end of text, is the reference's token for token
 * Shares have the interval of Wilson (1927), which holds the true one with 95 % confidence were the
 * prompts drawn at random. Two systems that were asked the same are told apart by McNemar's exact
 * test: of the prompts that just one of them answered rightly each is as likely to be either's. */
#ifndef UNMASK_ANALYSIS_QUALITY_H
#define UNMASK_ANALYSIS_QUALITY_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

struct quality {
    uint64_t served, judged, right, compared, agreed;
    /* By the prompts of the file: '1' right, '0' wrong, '-' not judged; borrowed. Of a prompt that
     * was asked several times the last time counts. */
    const char *marks;
};

struct share {
    double value, low, high; /* NaN: of nothing */
};
struct share quality_share(uint64_t n, uint64_t of);

/* Adds up the numbers of a summary's quality, marks not among them; nothing where it has none. */
void quality_add(struct quality *sum, const json_t *summary);

/* Of prompts that both judged; p is two-sided. */
struct mcnemar {
    uint64_t pairs, gained, lost; /* gained: ours is right and the base's is not */
    double p;
};
/* Adds pairs, gained and lost; the marks are of the same prompts. */
void mcnemar_add(struct mcnemar *test, const char *ours, const char *base);
void mcnemar_finish(struct mcnemar *test);
/* {pairs, gained, lost, p} */
json_t *mcnemar_json(const struct mcnemar *test);

/* The object of `run --json`. `answer_tokens` are those of the run's requests, `tokens_run` all
 * that its steps processed, 0 where not counted. */
json_t *quality_json(const struct quality *quality, double makespan_s, uint64_t answer_tokens,
                     uint64_t tokens_run);

/* A line or two for people. */
void quality_print(const struct quality *quality, double makespan_s, uint64_t tokens_run,
                   FILE *out);

#endif
