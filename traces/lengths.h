/* Length models: how many tokens a prompt, an output or an answer has, and the sources built on
 * them. An answer is the part of an output up to and including the end of text. */
#ifndef UNMASK_TRACES_LENGTHS_H
#define UNMASK_TRACES_LENGTHS_H

#include <stdbool.h>

#include "sim/base/arrival.h"
#include "sim/base/param.h"
#include "sim/base/rng.h"

enum length_side { LENGTH_INPUT, LENGTH_OUTPUT, LENGTH_ANSWER };
enum { LENGTH_SIDES = LENGTH_ANSWER + 1 };

/* What a model needs to know besides its parameters. */
struct length_context {
    const char *set; /* the name after the colon in "quantiles:NAME", else NULL */
    enum length_side side;
};

struct length_model {
    const char *name, *doc;
    bool has_set;   /* is written "name:SET" */
    bool is_logged; /* for answers alone: the row's own, before its output was drawn */
    bool of_row;    /* for answers alone: `draw` gives a share of the row's own length */
    const struct param *params;
    size_t n_params, state_bytes;
    /* NULL: nothing to check or read. */
    int (*start)(void *state, const struct length_context *context, struct err *err);
    /* `u` is uniform in (0, 1); the result is rounded and clamped to [1, 2^32 - 1] by the caller */
    double (*draw)(const void *state, double u);
};

/* The i-th model in the order of the table, NULL beyond the last. */
const struct length_model *length_model_at(size_t i);

/* One side's model with its parameters and its own random stream. */
struct length;

/* `spec` is a model's name, with ":SET" where it has one. ERR_USAGE names the nearest. */
int length_open(const char *spec, const char *place, enum length_side side, struct length **out,
                struct err *err);
void length_close(struct length *length); /* NULL is fine */
int length_set(struct length *length, const char *place, const char *name, const char *text,
               struct err *err);
/* A parameter in force, as text, and its doc; NULL: there is none of that name. */
const char *length_text(const struct length *length, const char *name, char *text, size_t size);
const char *length_doc(const struct length *length, const char *name);
/* The name of its model. */
const char *length_name(const struct length *length);
/* Checks the parameters together and reads what the model reads. Draws come from the seed's stream
 * "input lengths", "output lengths" or "answer lengths". */
int length_start(struct length *length, uint64_t seed, struct err *err);
void length_restart(struct length *length); /* to the first draw */
uint32_t length_draw(struct length *length);
/* An answer's length at u, uniform in (0, 1), at most output_tokens. Not of one that takes answers
 * from the trace. */
uint32_t length_answer_at(const struct length *length, uint32_t output_tokens, double u);
/* True for the model that draws nothing. */
bool length_is_fixed(const struct length *length);
/* True for those whose lengths another seed changes. */
bool length_draws(const struct length *length);
/* True for the model that takes answers from the trace. */
bool length_is_logged(const struct length *length);
/* True for the model that fills the output. */
bool length_is_whole(const struct length *length);

/* Rows whose lengths are replaced by draws. With `inner.next` NULL the rows are made here: endless,
 * all at time 0, and both models must be set. */
struct lengths {
    struct arrival_source inner;
    /* Borrowed. NULL: the inner row's; an answer's where the output is the row's, too, else not
     * said. */
    struct length *length[LENGTH_SIDES];
    uint64_t n_given; /* rows made here */
};

struct arrival_source lengths_source(struct lengths *lengths);

/* Whole (input, output, answer) rows drawn with replacement from those of a trace, endless, all at
 * time 0, from the seed's stream "lengths". Holds 12 bytes a row. */
struct resample;

/* Reads every row of `rows` (a trace's source). `name` goes into sentences. */
int resample_open(struct arrival_source rows, const char *name, uint64_t seed,
                  struct resample **out, struct err *err);
void resample_close(struct resample *resample); /* NULL is fine */
struct arrival_source resample_source(struct resample *resample);

#endif
