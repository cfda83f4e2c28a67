/* Prefixes: which earlier request's canvas a prompt begins with, found by its tokens.
 *
 * A system that caches prefixes is told by name (sim/base/arrival.h: shares, leaves). Canvases of
 * the requests that came last are kept, prompt and answer, by a hash of their first tokens: what a
 * prompt has in common with one of them is counted token by token. Names are places here, and are
 * given anew when a canvas is forgotten. One thread at a time. */
#ifndef UNMASK_EXPERIMENTS_RUN_PREFIXES_H
#define UNMASK_EXPERIMENTS_RUN_PREFIXES_H

#include <stdint.h>

#include "sim/base/arrival.h"

struct prefixes;

struct prefixes *prefixes_open(void);
void prefixes_close(struct prefixes *prefixes); /* NULL is fine */

/* A request arrives: `arrival` is told with whom its prompt begins, and under which name it leaves
 * its own canvas, `prompt` [n_prompt] and `answer` [n_answer; none where its tokens have no ids].
 */
void prefixes_arrive(struct prefixes *prefixes, const int32_t *prompt, const int32_t *answer,
                     uint32_t n_answer, struct arrival *arrival);

/* A request's answer is known now: [n]. */
void prefixes_answer(struct prefixes *prefixes, const struct arrival *arrival,
                     const int32_t *answer, uint32_t n);

/* The one that arrived last has not, and is given again. */
void prefixes_take_back(struct prefixes *prefixes);

/* A request never ran: no prompt begins with its canvas. `name` is what it leaves; 0: nothing. */
void prefixes_forget(struct prefixes *prefixes, uint64_t name);

#endif
