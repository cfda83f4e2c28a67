/* An arrival: what is known of one request before it runs, and where arrivals come from.
 *
 * Trace readers and generators implement `struct arrival_source`; the serving loop pulls from it
 * and knows nothing of files. */
#ifndef UNMASK_SIM_BASE_ARRIVAL_H
#define UNMASK_SIM_BASE_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/base/sampling.h"

struct arrival {
    int64_t arrival_ns;        /* from the start of the run, never decreasing */
    uint64_t id;               /* position in the source, from 0 */
    uint32_t prompt_tokens;    /* >= 1 */
    uint32_t output_tokens;    /* >= 1: positions to decode, the canvas after the prompt */
    uint32_t answer_tokens;    /* of these, those up to and including the end of text; 0: not known,
                                  all of them */
    uint32_t tenant;           /* 0 where the source names none */
    int64_t due_ns;            /* from its arrival, when it should be finished; 0: no deadline */
    uint32_t priority;         /* larger is more urgent; 0 where the source says none */
    uint32_t predicted_tokens; /* of its answer, as predicted; 0: there is no prediction */
    uint64_t
        prompt; /* 1 + the index of its text in its file (traces/format/prompts.h); 0: no text */
    uint32_t prefix_tokens; /* of the prompt, with which an earlier request's prompt began, too */
    uint64_t session;       /* which conversation it is a turn of; 0: of none */
    /* With which (sim/serve/contents.h), by names that the source makes up; 0: none. */
    uint64_t shares; /* the first prefix_tokens are those of what a row left under this name */
    uint64_t leaves; /* under this name its prompt and output can be shared */
    uint64_t prefix_group; /* else they are those of an earlier prompt of this group */
    int64_t think_ns; /* from the end of the turn before; -1: the source gives times of arrival */
    uint64_t follows; /* 1 + the id of the request by whose end it became known; 0: of none */
    /* Written by the loop where arrivals follow from completions: 1 + its place in their order; 0:
     * they arrive in the order of their times and, at one time, of their ids. */
    uint64_t place;
    struct sampling sampling; /* of its tokens; zeros: the system's */
    int64_t cancel_ns;        /* when who asked for it leaves, so that it is taken out; 0: never */
    uint32_t decoded_tokens;  /* where it comes from a record: of its output, those that the run had
                                 decoded when the request was done; 0: not known */
};

enum source_reply {
    SOURCE_ROW = 0,  /* `out` holds the next arrival */
    SOURCE_END = 1,  /* there are no more */
    SOURCE_WAIT = 2, /* closed loop: ask again after a completion */
    SOURCE_BAD = 3,  /* `err` holds one sentence with file and line */
};

struct arrival_source {
    void *state;
    enum source_reply (*next)(void *state, struct arrival *out, struct err *err);
    /* Closed loop only, else NULL: request `id` left the system at `now_ns`. */
    void (*completed)(void *state, uint64_t id, int64_t now_ns);
    /* NULL, or: `row`, which `next` gave last, has not arrived yet and is taken back, because a
     * completion may have brought an earlier one; `next` is asked again. */
    void (*back)(void *state, const struct arrival *row);
    /* NULL, or arrivals come while steps run, and no one knows when: steps in flight end for one as
     * they do for one that is known. `cancelled` gives the requests that are cancelled from now on,
     * one a call; false: there are no more of them. */
    bool (*cancelled)(void *state, uint64_t *id);
};

#endif
