/* The live executor: carries out the loop's batches on a real device.
 *
 * It owns the clock, which is the machine's, from 0 at the first call. Arrivals come in real time;
 * where they are virtual the clock skips the time in which nothing is under way. A batch's steps
 * run one after the other, so that one can stop at any border. One replica: engine/fleet.h has
 * several. */
#ifndef UNMASK_ENGINE_LIVE_H
#define UNMASK_ENGINE_LIVE_H

#include <pthread.h>
#include <signal.h>

#include "engine/device/neighbours.h"
#include "engine/engine.h"
#include "engine/session/end_tokens.h"
#include "engine/session/outcome.h"
#include "sim/serve/executor.h"

struct live;

/* `engine` and its system are borrowed. Estimates come from the system's cost model. */
int live_open(struct engine *engine, uint64_t seed, bool skips_idle, struct live **out,
              struct err *err);
void live_close(struct live *live); /* NULL is fine */
struct executor live_interface(struct live *live);

/* Its clock, which starts with the first call. */
int64_t live_now_ns(struct live *live);

/* forward_warm: before anything is admitted. */
int live_warm(struct live *live, const struct warm_watch *watch, struct err *err);

/* Set from outside: the batch under way ends at its next border, a wait for arrivals at once. */
void live_set_stop(struct live *live, const volatile sig_atomic_t *stop);

/* ---- a batch in pieces, for several replicas at once (engine/fleet.h) ---- */

/* Takes the clock of another and its tokens of prompts, and locks `policies` while it asks a policy
 * in the middle of live_run. Before the first submission. */
void live_join(struct live *live, struct live *of, pthread_mutex_t *policies);

/* What submit and wait of its interface do: the host's plan of a batch; its first step, or those
 * that are submitted at once, or its next step, until the device is done; the host's look at what
 * they decided, after which the batch may be over; and what is told of it then. Only live_run may
 * run while other replicas' requests and policies are worked on. */
int live_plan(struct live *live, const struct submission *submission, struct err *err);
int live_run(struct live *live, struct err *err);
int live_look(struct live *live, bool *is_over, struct err *err);
void live_complete(struct live *live, struct completion *out);

/* Whether a request's output could not be handed out, as its release cannot say. */
int live_trouble(const struct live *live, struct err *err);

/* ---- what is told and asked ---- */

/* The tokens that requests are given instead of drawn ones, by a request's id; NULL: drawn. They
 * stay with the caller. */
void live_set_prompt(struct live *live, const int32_t *(*prompt)(void *state, uint64_t id),
                     void *state);

/* The tokens that end a text: requests' answers end with the first of them (system's early_stop
 * says what that means for the rest). None: texts end where arrivals say, whatever the tokens.
 * Before live_interface. */
void live_set_ends(struct live *live, const struct end_tokens *ends);

/* Sets the receiver of each pass's per-position outputs; steps are then not unrolled. Before
 * live_interface.
 */
void live_set_watch(struct live *live, const struct position_watch *watch);

/* Called with the output tokens of every request that is done, before it leaves: up to the end of
 * text, where there is one. */
void live_set_output(struct live *live,
                     int (*output)(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                                   struct err *err),
                     void *state);

/* Called after every step with the output positions of each of its requests, masks among them; what
 * is read for it waits for the device. */
void live_set_show(struct live *live,
                   void (*show)(void *state, uint64_t id, const int32_t *tokens, uint32_t n),
                   void *state);

/* One planned step executed at once, regardless of the clock: the given number of times, each with
 * the given commits of each member (NULL: as the decoder decides). The blocks of a recorded step
 * say what it keeps and commits; otherwise the engine decides and writes it there. */
struct live_times {
    double wall_ns, device_ns; /* of all the steps */
};
int live_execute(struct live *live, const struct planned_step *planned, uint32_t steps,
                 const uint32_t *commits, struct live_times *out, struct err *err);

/* One step of it operator by operator: ns[i] is the device time of graph->ops[i] over all its
 * repetitions, from event to event of a queue that does not run dry. Without `commits` nothing is
 * committed, and what the step keeps is what the step itself keeps when it is carried out
 * next, or is put back where that would not come out the same: measuring changes no result. */
int live_operators(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                   double *ns, struct err *err);

/* The same step one operator instance after another, for how many different experts its tokens go
 * to, the mean over its mixture layers; 0 where it has none. */
int live_experts(struct live *live, const struct planned_step *planned, const uint32_t *commits,
                 double *hit, struct err *err);

/* Most bytes used so far, as metered: of the workspace, and of cached rows. */
int64_t live_activation_peak_bytes(const struct live *live);
int64_t live_pool_peak_bytes(const struct live *live);

/* Tell of every step, and of times in which nothing ran; NULL: no more. */
void live_set_neighbours(struct live *live, struct neighbours *neighbours);

/* Bytes of cached rows that requests hold now. */
int64_t live_pool_bytes(const struct live *live);

#endif
