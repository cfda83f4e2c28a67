/* Questions: the prompts of a run as a model's tokens, and what became of them.
 *
 * It takes prompts where a workload is a file of them (traces/format/prompts.h), or where a command
 * adds them one by one; texts are put into a chat template, if one is asked for, and encoded by the
 * tokenizer of the weights or of a folder of its own. A device is given their tokens, and its
 * outputs are judged (engine/text/answer.h) and compared with a reference: the outputs of another
 * run of the same prompts, of a system without a cache that commits one token a pass, say. */
#ifndef UNMASK_EXPERIMENTS_RUN_QUESTIONS_H
#define UNMASK_EXPERIMENTS_RUN_QUESTIONS_H

#include "analysis/quality.h"
#include "engine/fleet.h"
#include "engine/text/chat.h"
#include "engine/weights/tokenizer.h"
#include "experiments/run/prefixes.h"
#include "sim/base/arrival.h"
#include "sim/model/model.h"
#include "traces/format/prompts.h"

struct questions_request {
    const char *tokenizer; /* a folder; NULL: that of the weights */
    const char *weights;   /* a checkpoint folder or random:SEED; NULL: none */
    const char *chat;      /* a template's name; NULL: none */
    const char *reference; /* a file of outputs; NULL: none */
};

struct problem {
    char *id, *task, *answer; /* NULL where not given */
    int32_t *ids;
    uint32_t n_ids;
    char place[128]; /* for sentences: "FILE:LINE" */
    /* What became of it, the last time that it was asked. */
    bool is_served;
    int32_t *output; /* [n_output]: up to its end of text */
    uint32_t n_output;
    char mark; /* '1' right, '0' wrong, '-' not judged */
    int32_t *expected;
    uint32_t n_expected; /* the reference's output; 0: it has none */
};

struct questions {
    struct questions_request request;
    struct tokenizer *tokenizer; /* opened when the first text asks for it */
    const struct chat *chat;
    struct problem *items; /* [n], by the prompt's number; one may be missing: n_ids 0 */
    size_t n, room;
    struct quality quality;
    char *marks;
    struct arrival_source inner; /* of questions_source */
    struct prefixes *prefixes;   /* NULL: the system caches none */
    uint64_t *asked;             /* [n_asked]: an arrival's prompt, by the request's id */
    uint64_t n_asked, asked_room;
};

/* The request's texts are borrowed. ERR_USAGE: there is no such template. */
int questions_open(const struct questions_request *request, struct questions **out,
                   struct err *err);
void questions_close(struct questions *questions); /* NULL is fine */

struct prompt_taker questions_taker(struct questions *questions);

/* Opens the tokenizer where that has not been done. */
int questions_need_tokenizer(struct questions *questions, const char *place, struct err *err);

/* ERR_USAGE where the tokenizer or a prompt's ids go beyond a model's vocabulary. */
int questions_check(const struct questions *questions, const struct model *model, struct err *err);

/* Reads the reference; after the prompts are known. */
int questions_read_reference(struct questions *questions, struct err *err);

/* The same arrivals, of which it remembers who asks what. `caches`: where prompts begin alike, the
 * arrivals say so. */
struct arrival_source questions_source(struct questions *questions, struct arrival_source inner,
                                       bool caches);

/* A device takes requests' tokens from here and brings their outputs. */
void questions_attach(struct questions *questions, struct fleet *fleet);

/* The number of what a request asks; false: it asks nothing. */
bool questions_asked(const struct questions *questions, uint64_t request, uint64_t *number);

/* Once all are served. */
void questions_settle(struct questions *questions);

/* The text of an output, or NULL where there is no tokenizer; the caller frees it. */
char *questions_text(const struct questions *questions, const struct problem *question,
                     size_t *length);

/* What one line of a file of outputs says; the caller releases it. */
json_t *questions_json(const struct questions *questions, size_t number);

/* Writes those that were served to a file of outputs, which a reference may be. */
int questions_write(const struct questions *questions, const char *path, struct err *err);

#endif
