/* A generator: arrival times drawn from a process, stamped onto the rows of another source.
 *
 * Processes stand in one table. Open-loop ones draw from the stream "arrivals" of the seed, by
 * inverse distribution functions, so that a draw costs exactly one uniform number. */
#ifndef UNMASK_TRACES_GENERATE_H
#define UNMASK_TRACES_GENERATE_H

#include <stdbool.h>

#include "sim/base/arrival.h"
#include "sim/base/param.h"
#include "sim/base/rng.h"

struct process {
    const char *name, *doc;
    bool has_rate; /* takes a mean rate; the others ignore it */
    const struct param *params;
    size_t n_params, state_bytes;
    /* Called once when the parameters are set; `rate_per_s` > 0 where has_rate. NULL: nothing. */
    int (*start)(void *state, double rate_per_s, struct err *err);
    void (*stop)(void *state); /* NULL: nothing to release */
    /* `*at_ns` holds the previous arrival (0 before the first) and takes the next. SOURCE_ROW, or
     * SOURCE_WAIT where only a completion can bring the next. */
    enum source_reply (*next)(void *state, struct rng *rng, int64_t *at_ns);
    /* Closed loop, else NULL: request `id` left; and, as struct arrival has it, what the row of the
     * last `next` follows. */
    void (*completed)(void *state, uint64_t id, int64_t now_ns);
    uint64_t (*follows)(const void *state);
    /* Conversations, else NULL: whether a turn follows the last one, and how long after its end. */
    bool (*again)(void *state, struct rng *rng, int64_t *think_ns);
};

/* The i-th process in the order of the table, NULL beyond the last. */
const struct process *process_at(size_t i);
/* NULL when there is none of that name. */
const struct process *process_find(const char *name);

struct generator;

/* A generator of `process` with its parameters at their initial values. */
struct generator *generator_open(const struct process *process);
void generator_close(struct generator *generator); /* NULL is fine */

const struct process *generator_process(const struct generator *generator);

/* Set a parameter before the start. ERR_USAGE as param_set. */
int generator_set(struct generator *generator, const char *place, const char *name,
                  const char *text, struct err *err);

/* A parameter in force, as text; NULL: there is none of that name. Its doc likewise. */
const char *generator_text(const struct generator *generator, const char *name, char *text,
                           size_t size);
const char *generator_doc(const struct generator *generator, const char *name);

/* Fix rate and seed. `rows` gives ids and lengths; its times are replaced. Once, before the first
 * row is asked for. Of conversations, a turn's prompt is that of `rows` after the conversation so
 * far, and a conversation ends where it would outgrow `context_tokens` (0: never); rows come
 * conversation by conversation. ERR_USAGE when the parameters contradict each other. */
int generator_start(struct generator *generator, double rate_per_s, uint64_t seed,
                    uint32_t context_tokens, struct arrival_source rows, struct err *err);

struct arrival_source generator_source(struct generator *generator);

#endif
