/* What a request is marked with besides its lengths: whose it is, how urgent, when it should be
 * finished, and what a predictor says of its length. Each is as the trace has it, or drawn by a
 * model from the seed and the request's id. */
#ifndef UNMASK_TRACES_MARKS_H
#define UNMASK_TRACES_MARKS_H

#include <stdbool.h>

#include "sim/base/arrival.h"
#include "sim/base/param.h"

enum mark { MARK_TENANT, MARK_PRIORITY, MARK_DEADLINE, MARK_PREDICTED };
enum { MARKS = MARK_PREDICTED + 1 };

/* The keys of a workload that name their models; NULL-ended. */
extern const char *const mark_words[];

struct mark_model {
    enum mark mark;
    const char *name, *doc;
    bool draws; /* another seed gives other marks */
    const struct param *params;
    size_t n_params, state_bytes;
    int (*check)(const void *state, const char *place, struct err *err); /* NULL: nothing to */
    /* `u` is uniform in (0, 1); marks the request. */
    void (*draw)(const void *state, double u, struct arrival *request);
};

/* The i-th model in the order of the table, NULL beyond the last. */
const struct mark_model *mark_model_at(size_t i);

/* The models in force and their parameters. */
struct marks {
    const struct mark_model *model[MARKS]; /* NULL: as the trace has it */
    void *state[MARKS];
    uint64_t seed[MARKS];
    struct arrival_source inner;
};

/* Which mark a key is about, as "deadline" or "deadline.mean"; -1: none. */
int marks_find(const char *key);

/* Choose a model, and set a parameter of the one chosen. ERR_USAGE names the nearest. */
int marks_open(struct marks *marks, enum mark mark, const char *word, const char *place,
               struct err *err);
int marks_set(struct marks *marks, enum mark mark, const char *place, const char *name,
              const char *text, struct err *err);
void marks_close(struct marks *marks);

/* The model's name or, after a dot, a parameter in force, as text; NULL: there is none. Its doc
 * likewise. */
const char *marks_text(const struct marks *marks, const char *key, char *text, size_t size);
const char *marks_doc(const struct marks *marks, const char *key);

/* Checks the parameters together, and fixes the seed. `place` begins a sentence. */
int marks_start(struct marks *marks, uint64_t seed, const char *place, struct err *err);
bool marks_draw(const struct marks *marks);

/* `inner`, marked. */
struct arrival_source marks_source(struct marks *marks, struct arrival_source inner);

#endif
