/* Sessions: what the engine holds for each running request.
 *
 * A session is a canvas of token ids and a store of cached rows, or pages of them where keys and
 * values are exact, all in device memory, and the places of what else outlasts a step; it is opened
 * when the loop admits a request and closed when the request leaves. Of one that is preempted the
 * canvas stays, and with it what was committed; its rows are computed anew when it is admitted
 * again or, where it was swapped out, copied back from the host's memory. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_H
#define UNMASK_ENGINE_SESSION_SESSION_H

#include <stdint.h>

#include "engine/device/pages.h"
#include "engine/device/shared_pages.h"
#include "engine/device/stores.h"
#include "engine/session/beginnings.h"
#include "engine/step/forward.h"
#include "sim/policy/request.h"
#include "sim/system/system.h"

struct session {
    const struct request *request; /* the loop's; stays put until the request has left */
    uint64_t id;                   /* its own */
    uint32_t prompt_tokens, output_tokens;
    struct beginning beginning; /* what its canvas begins with; contents NULL: not known, or its
                                   prompt was given */
    bool has_canvas;
    int64_t canvas;           /* first token among the canvases; drafts of a block follow it, where
                                 they are checked */
    int64_t store_bytes;      /* where in the pool its rows lie; -1: it has none */
    uint32_t place_block;     /* its places begin at this many blocks of them */
    bool has_places_out;      /* what they held is in swapped_places */
    int64_t host, host_bytes; /* where in the host's memory its rows lie; 0: none do */
};

/* Stores start at a multiple of this many elements: kernels read 16 bytes at a time. */
enum { STORE_ALIGN_ELEMENTS = 8 };

struct sessions {
    const struct system *system;
    struct forward *forward;
    struct step_limits limits;
    uint64_t draw_seed;                            /* of tokens that are drawn */
    struct beginnings own_beginnings, *beginnings; /* of prompts; another replica's, or its own */
    struct session *by_slot;                       /* [n_slots] */
    struct stores canvases, stores;                /* in tokens; in bytes */
    int64_t prefixes_byte, prefixes_bytes; /* where in the pool shared prefixes are kept, 0: none */
    struct pages pages;                    /* instead of stores, where the cache is exact */
    bool follows;               /* and instead of those, under prefix caching, where there is a */
    struct shared_pages shared; /* loop that says who has which */
    struct stores swapped;      /* in bytes of the host's memory; empty where nothing is swapped */
    bool is_copying;            /* copies of rows may be under way */
    /* Free blocks of places, [max_requests]: a place for every position of a block, for state other
     * than keys and values that outlasts a step. That is a list of credit, where the decoder gives
     * any, and the embedding that iteration smoothing expects (both dInfer's). NULL where the
     * system has neither. */
    uint32_t *free_places, n_free_places;
    unsigned char *swapped_places; /* [n_slots, places_bytes], what those of requests that are
                                      swapped out hold; NULL where none are */
    int64_t places_bytes;          /* of a request's places */
    int32_t *tokens;               /* [max_positions], a canvas on its way to the device */
};

int sessions_open(struct sessions *sessions, const struct system *system, struct forward *forward,
                  const struct step_limits *limits, uint64_t seed, struct err *err);
void sessions_close(struct sessions *sessions);

/* The canvas: the prompt's ids (NULL: drawn, and what `beginning` says, which may be NULL), then
 * masks; of a request that was preempted what it was. Its places are empty. ERR_WORLD when canvases
 * or pool are full. */
int sessions_admit(struct sessions *sessions, uint32_t slot, const struct request *request,
                   const int32_t *prompt, const struct beginning *beginning, struct err *err);
/* It is done: where later prompts may begin with its output, that is kept. `room` as
 * sessions_read's tokens. */
int sessions_keep_output(struct sessions *sessions, uint32_t slot, int32_t *room, struct err *err);
void sessions_release(struct sessions *sessions, uint32_t slot);

/* What a running request holds is copied to the host's memory, before it is released: admitted
 * again it is copied back. ERR_WORLD when the host's memory is full. sessions_settle: until all
 * copies are done, before a step and before pages of the pool are mapped elsewhere. */
int sessions_swap_out(struct sessions *sessions, uint32_t slot, const struct request *request,
                      struct err *err);
int sessions_settle(struct sessions *sessions, struct err *err);

/* What leading layers made of the request's shared prefix, to row `first` of what is kept of such
 * prefixes, or from there. */
int sessions_copy_prefix(struct sessions *sessions, uint32_t slot, const struct request *request,
                         uint32_t first, bool keeps, struct err *err);

/* A request that was preempted will not be admitted again. */
void sessions_drop(struct sessions *sessions, uint32_t slot);

/* The request holds more memory than before (exact caches). */
int sessions_grow(struct sessions *sessions, uint32_t slot, const struct request *request,
                  struct err *err);

/* Before a step: pages are laid out as the loop says. NULL: it says nothing. */
void sessions_follow(struct sessions *sessions, const struct page_lists *lists);

/* A request's pages, in the order of its rows. */
uint32_t sessions_pages(const struct sessions *sessions, uint32_t slot, const int32_t **pages);

/* Before a step of this placement: where workspace and pool share memory, stores are pushed out of
 * its way. ERR_WORLD when that does not suffice. */
int sessions_make_room(struct sessions *sessions, const struct placement *placement,
                       struct err *err);

/* The first of a slot's places, one for each position of its block; have them empty. */
int64_t sessions_first_place(const struct sessions *sessions, uint32_t slot);
int sessions_empty_places(struct sessions *sessions, uint32_t slot, struct err *err);

/* The tokens at the output positions: [output_tokens]. */
int sessions_read(struct sessions *sessions, uint32_t slot, int32_t *tokens, struct err *err);

/* At the end of a run, with no request left: checks that nothing is allocated. */
void sessions_audit(struct sessions *sessions);

/* Bytes of cached rows in the pool now, and the most at once so far. */
int64_t sessions_pool_bytes(const struct sessions *sessions);
int64_t sessions_pool_peak_bytes(const struct sessions *sessions);

/* Whether keys and values are exact, and so in pages. */
static inline bool sessions_are_exact(const struct sessions *sessions) {
    return sessions->system->rows.kind == ROW_EXACT;
}

#endif
