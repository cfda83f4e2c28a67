/* The inbox: where clients' requests wait for the loop, and the clock that both live by.
 *
 * To the loop it is a source of arrivals, a layer around its executor, and a sink. To the thread of
 * HTTP it takes calls and cancellations, and says what became of them. Whatever both touch is under
 * its lock, which is held for moments only. Whoever holds it takes no other but the library's of
 * HTTP; the fleet's (engine/fleet.h), where there are several replicas on devices, is taken first.
 *
 * Clocks of a simulation:
 *   real      `speed` seconds of the run pass in one of the machine; a request arrives when it is
 *             there, and a step under way goes on
 *   fast      time passes as steps take it, as fast as they are computed; it stands while nothing
 *             is asked
 *   virtual   the same, but it stands until every client (a connection) has a request here or is
 *             closed; requests say themselves when they arrive
 * A device has its own clock, the machine's. All begin with the first request. */
#ifndef UNMASK_EXPERIMENTS_SERVE_INBOX_H
#define UNMASK_EXPERIMENTS_SERVE_INBOX_H

#include <pthread.h>
#include <signal.h>

#include "engine/live.h"
#include "experiments/serve/call.h"
#include "experiments/serve/http.h"
#include "experiments/serve/tally.h"
#include "sim/serve/executor_sim.h"

enum serving_clock { CLOCK_REAL, CLOCK_FAST, CLOCK_VIRTUAL, CLOCK_DEVICE };

struct inbox_request {
    const struct http_library *http;
    enum serving_clock clock;
    double speed;      /* of CLOCK_REAL */
    uint32_t clients;  /* of CLOCK_VIRTUAL: how many have to come before time passes */
    uint32_t capacity; /* calls in the system at once */
    int64_t drain_ns;  /* how long calls may go on once the server is to end */
    const volatile sig_atomic_t *interrupt; /* it is to end */
    struct live *live;                      /* the device's; NULL: a simulation */
    /* A call becomes the loop's, by the id in its arrival: says of that what the client did not,
     * which is its answer and its prefix. NULL: there is nothing to say. */
    void (*arrive)(void *state, struct call *call);
    /* A device has decoded its answer, [n]. NULL: no one needs to know. */
    void (*answer)(void *state, const struct call *call, const int32_t *tokens, uint32_t n);
    /* It has not arrived yet, and is given again; and it has left without being done. */
    void (*arrive_later)(void *state);
    void (*leave)(void *state, const struct call *call);
    /* Of a call with stops, on a device: by how many of its first `n` tokens one is there; 0: none
     * is. */
    uint32_t (*stop)(void *state, const struct call *call, uint32_t n);
    void *state;
};

enum posted { POSTED, POST_FULL, POST_CLOSING, POST_ID_TAKEN };

struct inbox;

struct inbox *inbox_open(const struct inbox_request *request);
void inbox_close(struct inbox *inbox); /* NULL is fine */

/* ---- the loop's thread ---- */

struct arrival_source inbox_source(struct inbox *inbox);
struct sink inbox_sink(struct inbox *inbox);
/* As compose's run_watch has it; `state` is the inbox. */
struct executor inbox_around(void *state, struct executor inner, struct executor_sim *sim);
/* Set when calls that are still there are to be given up. */
const volatile sig_atomic_t *inbox_stop(const struct inbox *inbox);
/* As live_set_prompt, live_set_show and live_set_output have them; `state` is the inbox. */
const int32_t *inbox_prompt(void *state, uint64_t id);
void inbox_show(void *state, uint64_t id, const int32_t *tokens, uint32_t n);
int inbox_output(void *state, uint64_t id, const int32_t *tokens, uint32_t n, struct err *err);
/* The server that is told not to take new connections when the inbox closes. */
void inbox_attach(struct inbox *inbox, struct http_server *server);
/* The loop has ended: no call is taken any more, and `refuse` answers those that are left. */
void inbox_end(struct inbox *inbox, void (*refuse)(void *state, struct call *call), void *state);

/* ---- the thread of HTTP ---- */

/* Takes the call, unless it is not POSTED. */
enum posted inbox_post(struct inbox *inbox, struct call *call);
/* Its exchange is over: the call is not to be used any more. `is_cut`: it is cancelled. */
void inbox_over(struct inbox *inbox, struct call *call, bool is_cut);
/* A connection is closed. */
void inbox_left(struct inbox *inbox, uint64_t connection);

/* Over the tally and what calls say. */
void inbox_lock(struct inbox *inbox);
void inbox_unlock(struct inbox *inbox);
struct tally *inbox_tally(struct inbox *inbox);
bool inbox_is_closing(struct inbox *inbox);
uint64_t inbox_n_left(struct inbox *inbox); /* calls that were given up */

#endif
