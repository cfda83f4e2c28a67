/* Shared by the wards of schedulers and of the other kinds. Included by ward*.c only. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_WARD_PARTS_H
#define UNMASK_SIM_POLICY_PLUGIN_WARD_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/policy/plugin/any_policy.h"
#include "sim/policy/plugin/call_watch.h"
#include "sim/policy/plugin/ward.h"

struct ward {
    union any_policy outer;
    const struct policy *inner;
    const char *path;
    struct ward *next;
    struct object *object; /* of which each world has its own load; NULL: all have `inner` */
};

/* Before a plug-in's state, which a tail follows. */
struct state_head {
    const struct ward *ward;
    const struct policy *called; /* from the first call on: this state's own load of the plug-in */
    void *handle;                /* of it */
    int64_t kept_bytes;          /* of the heap, that its calls took and did not give back */
    const char *keeper;          /* the callback that took some last */
    uint64_t n_kept;             /* calls that did */
    bool may_allocate;           /* the plug-in can take memory; asked in a trial only */
    unsigned char fill[7];
    uint64_t mark;
};
_Static_assert(sizeof(struct state_head) == 64, "a state keeps its alignment");
enum { MOST_LOANS = 8 };

/* A thread's own: what is lent in one call, and the lists that a scheduler fills. The arenas
 * and each list are followed by unmapped pages. In a trial calls take turns with the arenas, and
 * those that are not in use cannot be touched: who kept a pointer into one is found. */
enum { ROOM_ARENAS = 3 };
struct room {
    char *arenas[ROOM_ARENAS];
    char *arena; /* in use */
    uint64_t n_calls;
    char *lists;
    uint32_t capacity;
    const struct ward
        *filler; /* of the lists, whose chunk_tokens and words are zeros between its calls */
};
extern _Thread_local struct room ward_room;

struct loan {
    const void *of;
    void *copy;
    size_t bytes;
    const char *what;
};

struct lending {
    const struct ward *ward;
    const struct policy *called; /* the world's own */
    const char *callback;
    void *state; /* the plug-in's own */
    char *next, *end;
    struct loan loans[MOST_LOANS];
    unsigned n;
    int64_t heap_bytes; /* that are in use, before the call; of a trial */
};

/* `bytes` rounded up to whole pages. */
size_t ward_pages(size_t bytes);

/* `n` pieces of whole pages, with a page that cannot be touched before each and after the last. */
char *ward_map_fenced(size_t bytes, size_t n);

/* A call of a callback with the state `state`: its answers have room right before what is not
 * mapped, or before another answer; what it is lent it leaves as it is. */
void ward_open(struct lending *l, const void *state, const char *callback);
void *ward_room_for(struct lending *l, size_t bytes, size_t alignment);
void *ward_lend(struct lending *l, const void *of, size_t bytes, const char *what);

/* Whether the call's view lies elsewhere than that of the call before: of a trial, now and then. */
bool ward_moves(const struct lending *l);
struct watched_call *ward_enter(const struct lending *l);
void ward_leave(const struct lending *l, struct watched_call *call);

void warded_schedule(void *state, const struct schedule_view *view, struct batch *batch);
void warded_happened(void *state, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n);

#endif
