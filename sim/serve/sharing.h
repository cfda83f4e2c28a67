/* Prefix caching: requests whose canvases begin alike compute what they share once.
 *
 * There is one mechanism for exact keys and values, whatever decodes: pages that can be found by
 * content (contents.h says whose it is, sim/memory/page_cache.h where it lies). A request that
 * waits is matched, again whenever pages of its content come or go, and starts after what it found;
 * what it computes can be found by others from the step on in which it is computed. Preempted
 * requests find what is left of their own.
 *
 * An autoregressive model matches whole pages (vLLM V1), but never the last token known, which
 * decides on the next. A block-causal model matches whole blocks, as SGLang's cache does, whose
 * pages are blocks (sgl-project/sglang#18724): the prompt's last tokens that fill no block are part
 * of the first block that is decoded and are always computed, and only blocks whose exact keys and
 * values were written are found. Where logits are shifted the last block before the active one is
 * computed again, as it decides on the first position.
 *
 * A page that several hold is in the pool once, and is charged to the one admitted first: kv_bytes
 * and kv_held_bytes of a request are without the pages that it has of those admitted before it.
 * They are what its admission costs, and what comes back if it is preempted after all that were
 * admitted after it. */
#ifndef UNMASK_SIM_SERVE_SHARING_H
#define UNMASK_SIM_SERVE_SHARING_H

#include "sim/memory/page_cache.h"
#include "sim/policy/scheduler/scheduler.h"
#include "sim/serve/contents.h"

struct lifecycle;
struct replica;

/* Of one request, by slot. */
struct shared {
    uint32_t content;
    bool waits;             /* is matched anew when pages of its content change */
    uint32_t shared_tokens; /* columns of request.def, */
    uint64_t shared_with;   /* both */
    uint32_t found_pages;   /* while it waits: those matched, */
    uint32_t lent_pages;    /* of them or, while it runs, of all its pages, those that are charged
                               to others */
    uint64_t matched;       /* `n_changes` at that time */
    struct page_holder holder;
};

struct sharing {
    bool is_on;   /* the system caches prefixes, of exact keys and values, and the executor can */
    bool tracks;  /* it is on, or the executor is told what canvases begin with */
    bool leads;   /* the system's leading layers take shared prefixes over (kept_prefixes.h) */
    bool assumes; /* instead of being looked for, all that is shared is found: for bounds */
    uint32_t page_tokens;  /* tokens of a page that is shared: a divisor of both others */
    uint32_t match_tokens; /* matches are multiples of this */
    int64_t page_bytes;
    struct contents contents;
    struct shared *of;  /* by slot; NULL: it does not track */
    uint64_t n_changes; /* of pages while a request waited for their content */
    uint64_t n_admitted;
};

/* Whether memory is counted by pages that may be shared. */
bool sharing_has_pages(const struct lifecycle *life);

void sharing_init(struct lifecycle *life);
void sharing_fini(struct lifecycle *life);
void sharing_init_replica(struct lifecycle *life, uint32_t replica);
void sharing_fini_replica(struct replica *replica);

/* A request arrives: whose canvas it begins like. `assumes`: and that all of it is found. */
void sharing_arrive(struct lifecycle *life, uint32_t slot, const struct arrival *arrival);

/* What its canvas begins with, into `out`; NULL: the executor is not told. */
const struct beginning *sharing_beginning(const struct lifecycle *life, uint32_t slot,
                                          struct beginning *out);

/* Leading tokens that it would find on this replica. */
uint32_t sharing_look(const struct lifecycle *life, uint32_t replica, uint32_t slot);

/* A request waits at a replica, for the first time or again, and is matched. */
int sharing_wait(struct lifecycle *life, uint32_t slot, struct err *err);

/* Match all requests anew that wait at a replica and of whose content pages came or went. */
int sharing_refresh(struct lifecycle *life, struct replica *replica, struct err *err);

/* A request that is chosen to be admitted holds what it found when it was matched last, before
 * anything is handed out. sharing_unhold: it waits on. */
void sharing_hold(struct lifecycle *life, struct replica *replica, uint32_t slot);
int sharing_unhold(struct lifecycle *life, struct replica *replica, uint32_t slot, struct err *err);

/* It is admitted: holds what can be found by now besides. */
int sharing_admit(struct lifecycle *life, struct replica *replica, uint32_t slot, struct err *err);

/* Whether `pages` free ones are left besides those that the request's next step takes, which
 * `pages` is then more by. */
bool sharing_fits(const struct lifecycle *life, const struct replica *replica, uint32_t slot,
                  uint32_t *pages);

/* It takes the memory of its next step, kv_bytes, as there is. */
void sharing_take(struct lifecycle *life, struct replica *replica, uint32_t slot);

/* Keys and values of its first `tokens` are written, at the latest in the step being formed. */
void sharing_written(struct lifecycle *life, struct replica *replica, uint32_t slot,
                     uint32_t tokens);

/* It gives all its pages back. `returns`: it comes back for them. */
void sharing_release(struct lifecycle *life, struct replica *replica, uint32_t slot, bool returns);

/* Of the replica's running requests, until they or their pages change; NULL: the executor does not
 * want to know. */
const struct page_lists *sharing_lists(const struct lifecycle *life, struct replica *replica);

/* Its canvas is decoded, as far as anyone sees. */
void sharing_known(struct lifecycle *life, uint32_t slot);

/* It leaves the system, and holds nothing. */
void sharing_leave(struct lifecycle *life, uint32_t slot);

/* Its leading tokens whose keys and values are final. */
uint32_t sharing_exact(const struct request *request);

/* Bytes of its pages that are charged to others. */
int64_t sharing_lent_bytes(const struct lifecycle *life, uint32_t slot);

/* At the end of a run no request holds or waits for anything, and every page is in one place. */
void sharing_audit(const struct lifecycle *life, const struct replica *replica);

#endif
