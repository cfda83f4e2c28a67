/* Passes: what a workload asks of a system, whatever the order in which it is served.
 *
 * A request's forward passes follow from the request, the cache policy, the decoder and the seed:
 * what is drawn for it is keyed by its id and its own steps. So they are the same under every
 * scheduler and with any co-batched requests; a schedule can add passes (requests preempted or
 * computed and discarded) and cut a prefill into more chunks, but leave none out. They are listed
 * by serving the requests one after the other.
 *
 * Under a scheduler that can put refreshes off (one that is told how long they can wait) a step may
 * be one of two: listed is what runs where the refresh waits, and after it, 0 times, the refresh.
 * Of schedulers that say thresholds or rows the fewest passes are listed (words.h). */
#ifndef UNMASK_SIM_BOUND_PASSES_H
#define UNMASK_SIM_BOUND_PASSES_H

#include <signal.h>

#include "sim/base/arrival.h"
#include "sim/base/decode.h"
#include "sim/price/runtime.h"
#include "sim/system/system.h"

/* The coordinates of a pass: the symbols of its span, and the bytes of cached state that its
 * request holds meanwhile. */
enum { PASS_KV = SYM_COUNT, PASS_COORDS };

struct pass {
    struct span span;
    uint32_t times; /* in a row; 0: may stand in the place of one of the pass before */
    int64_t kv_bytes;
};

/* A request that can be served. */
struct passenger {
    uint64_t id;
    int64_t arrival_ns;
    uint64_t tokens; /* committed */
    size_t first;    /* of its passes, which follow one another in the order of time */
    size_t n;
};

struct passes {
    struct pass *items;
    size_t n, room;
    struct passenger *requests; /* in order of arrival */
    size_t n_requests, requests_room;
    uint64_t rejected; /* that could never be served */
    bool is_closed;    /* arrivals follow from completions: arrival_ns mean nothing */
    bool is_cut;       /* PHASE_REUSE: passes are listed with as many rows as they commit */
    int64_t uncut[2 * PHASE_COUNT][PASS_COORDS]; /* then the most of each coordinate before, by type
                                                  */
};

struct passes_request {
    const struct system *system;
    struct arrival_source source;
    const struct decode_source *decode; /* NULL: decisions are drawn */
    uint64_t seed;
    const volatile sig_atomic_t *stop; /* may be NULL; a list that was stopped is an error */
    const char *known_as; /* all that the system's prices follow from (known.h); NULL: not kept */
};

int passes_list(const struct passes_request *request, struct passes *out, struct err *err);
void passes_fini(struct passes *passes);

/* No more rows than these, and no more cached ones that they attend to. */
void pass_cut(struct pass *pass, uint32_t rows, uint32_t context);

/* The coordinates of one pass. */
void pass_coords(const struct pass *pass, int64_t at[PASS_COORDS]);

/* Passes of one phase, those that select rows apart from the others: what they add up to, and the
 * least and the most of each coordinate that a pass of the type has. Where the scheduler may cut
 * prefills, that is of any piece. */
struct pass_type {
    enum phase phase;
    enum host_kind kind;
    bool waits; /* each of them makes the host decide in the middle of a step */
    double n, total[PASS_COORDS];
    int64_t least[PASS_COORDS], most[PASS_COORDS];
};
enum { PASS_TYPES = 2 * PHASE_COUNT };

/* The type of a pass, 0 to PASS_TYPES - 1; which there are, and how many. */
uint32_t pass_type_of(const struct pass *pass);
enum host_kind pass_host_kind(const struct pass *pass);
void passes_sum(const struct passes *passes, const struct system *system,
                struct pass_type types[PASS_TYPES]);

#endif
