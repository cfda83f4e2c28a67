#include "sim/policy/plugin/ward.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "sim/base/mem.h"
#include "sim/base/system.h"
#include "sim/policy/plugin/forbidden.h"
#include "sim/policy/plugin/object.h"
#include "sim/policy/plugin/ward_parts.h"

enum { TAIL_BYTES = 16, FILL = 0xA5, ARENA_BYTES = 1 << 22, GAP_BYTES = 16 };
static const uint64_t head_mark = 0x9d8e7f6a5b4c3d2e;

_Thread_local struct room ward_room;

/* ---- memory ---- */

size_t ward_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

char *ward_map_fenced(size_t bytes, size_t n) {
    size_t page = ward_pages(1), piece = ward_pages(bytes) + page;
    char *at = mmap(NULL, n * piece + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; at != MAP_FAILED && i < n; i++) {
        if (mprotect(at + i * piece + page, piece - page, PROT_READ | PROT_WRITE) != 0) {
            at = MAP_FAILED;
        }
    }
    if (at == MAP_FAILED) {
        mem_out(n * piece + page);
    }
    return at;
}

/* Where the system has no such mapping, what is lent can be written, too. */
void lent_open(struct lent *lent, size_t bytes, bool is_lent) {
    *lent = (struct lent){.bytes = ward_pages(bytes + 1)};
    int file = is_lent ? system_memory_file() : -1;
    void *write = MAP_FAILED, *read = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)lent->bytes) == 0) {
        write =
            mmap(NULL, lent->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
        read = mmap(NULL, lent->bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    if (file >= 0) {
        (void)close(file);
    }
    lent->write = write != MAP_FAILED ? write : mem_reserved(bytes + 1, 1);
    lent->is_mapped = write != MAP_FAILED;
    lent->read = lent->is_mapped && read != MAP_FAILED ? read : lent->write;
}

void lent_close(struct lent *lent) {
    if (lent->is_mapped && lent->read != lent->write) {
        munmap(lent->read, lent->bytes);
    }
    if (lent->is_mapped) {
        munmap(lent->write, lent->bytes);
    } else {
        mem_released(lent->write);
    }
    *lent = (struct lent){0};
}

/* ---- worlds ---- */

/* Bytes of the heap that are in use. It takes microseconds: every free piece is looked at. */
static int64_t heap_bytes(void) {
#if defined __GLIBC__ && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 33))
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)info.uordblks + (int64_t)info.hblkhd;
#elif defined __GLIBC__ /* which counts to 2 GiB */
    const struct mallinfo info = mallinfo();
    return (int64_t)info.uordblks + (int64_t)info.hblkhd;
#else
    return 0;
#endif
}

static void world_open(struct state_head *head, bool is_for_run) {
    const struct ward *ward = head->ward;
    struct err err = {0};
    struct watched_call *call = call_enter(ward->path, "its constructors");
    head->called = ward->inner;
    if (ward->object != NULL &&
        object_load(ward->object, is_for_run, &head->called, &head->handle, &err) != 0) {
        call_cannot(err.text);
    }
    if (call_is_trial() && !call_is_answered_elsewhere(ward->path)) {
        forbidden_watch(head->called);
    }
    head->may_allocate = call_is_trial() && forbidden_may_allocate(head->called);
    call_leave(call);
}

/* A run's memory that grows with its calls grows without end. */
static void check_heap(const struct state_head *head) {
    enum { MOST_KEEPING = 50, KEPT_BYTES = 4096 };
    if (head->n_kept > MOST_KEEPING && head->kept_bytes > KEPT_BYTES) {
        struct watched_call *call = call_enter(head->ward->path, head->keeper);
        call_broke(call, head->keeper,
                   "it took memory in %llu calls and never gave back %lld bytes: a policy's memory "
                   "is its state (state_bytes) and what it has of a request,",
                   (unsigned long long)head->n_kept, (long long)head->kept_bytes);
    }
}

static void world_close(struct state_head *head) {
    check_heap(head);
    struct watched_call *call = call_enter(head->ward->path, "its destructors");
    object_close(head->ward->object, head->handle);
    call_leave(call);
    head->called = NULL;
    head->handle = NULL;
}

/* ---- a call ---- */

/* Of a trial's calls the first ones and some of the others. */
static bool takes_turns(void) {
    enum { ALL_OF = 512, SOME_OF = 256 };
    return call_is_trial() && (ward_room.n_calls < ALL_OF || ward_room.n_calls % SOME_OF < 2);
}

static void take_arena(void) {
    const size_t turn = takes_turns() ? 1 + ward_room.n_calls % 2 : 0;
    char *before = ward_room.arena, **arena = &ward_room.arenas[turn];
    ward_room.n_calls++;
    if (*arena != NULL && *arena == before) {
        return;
    }
    if (*arena == NULL) {
        *arena = ward_map_fenced(ARENA_BYTES, 1) + ward_pages(1);
    } else {
        (void)mprotect(*arena, ARENA_BYTES, PROT_READ | PROT_WRITE);
    }
    if (before != NULL) {
        (void)mprotect(before, ARENA_BYTES, PROT_NONE);
    }
    ward_room.arena = *arena;
}

bool ward_moves(const struct lending *l) {
    (void)l;
    return ward_room.arena != ward_room.arenas[0];
}

void ward_open(struct lending *l, const void *state, const char *callback) {
    struct state_head *head = (struct state_head *)(uintptr_t)state;
    take_arena();
    l->ward = head->ward;
    if (head->called == NULL) {
        world_open(head, false);
    }
    l->called = head->called;
    l->callback = callback;
    l->state = (char *)(uintptr_t)state + sizeof *head;
    l->next = ward_room.arena;
    l->end = ward_room.arena + ARENA_BYTES;
    l->n = 0;
    l->heap_bytes = 0;
}

void *ward_room_for(struct lending *l, size_t bytes, size_t alignment) {
    l->end -= (bytes + alignment - 1) / alignment * alignment;
    ASSERT(l->end >= l->next);
    return l->end;
}

void *ward_lend(struct lending *l, const void *of, size_t bytes, const char *what) {
    if (of == NULL) {
        return NULL;
    }
    char *copy = l->next;
    l->next += (bytes + 15) / 16 * 16;
    if (ward_moves(l)) { /* what follows is other bytes at the next call */
        l->next += GAP_BYTES;
        memset(copy + bytes, (ward_room.n_calls & 1) != 0 ? 0xFF : 0,
               (size_t)(l->next - copy) - bytes);
    }
    ASSERT(l->next <= l->end && l->n < MOST_LOANS);
    memcpy(copy, of, bytes);
    l->loans[l->n++] = (struct loan){of, copy, bytes, what};
    return copy;
}

/* Its state, where a callback may only read it; a large one is lent as it is. */
static const void *lend_state(struct lending *l) {
    enum { MOST_COPIED = 4096 };
    uint32_t bytes = l->ward->inner->state_bytes;
    return bytes <= MOST_COPIED ? ward_lend(l, l->state, bytes, "its state") : l->state;
}

struct watched_call *ward_enter(const struct lending *l) {
    struct watched_call *call = call_enter(l->ward->path, l->callback);
    _Static_assert(1 + ROOM_ARENAS < CALL_MOST_PLACES, "a callback's own come besides");
    call->places[call->n_places++] =
        (struct call_place){ward_room.arena + ARENA_BYTES, ward_pages(1),
                            "reads or writes beyond the end of its answer"};
    for (int i = 0; i < ROOM_ARENAS; i++) {
        if (ward_room.arenas[i] != NULL && ward_room.arenas[i] != ward_room.arena) {
            call->places[call->n_places++] =
                (struct call_place){ward_room.arenas[i], ARENA_BYTES,
                                    "uses a pointer that it kept from an earlier call, whose view "
                                    "is gone (copy what it needs into its state),"};
        }
    }
    if (((const struct state_head *)l->state - 1)->may_allocate) {
        ((struct lending *)(uintptr_t)l)->heap_bytes = heap_bytes();
    }
    return call;
}

static void note_heap(const struct lending *l) {
    struct state_head *head = (struct state_head *)l->state - 1;
    const int64_t kept = heap_bytes() - l->heap_bytes;
    head->kept_bytes += kept;
    head->n_kept += kept > 0;
    head->keeper = kept > 0 ? l->callback : head->keeper;
}

void ward_leave(const struct lending *l, struct watched_call *call) {
    static const unsigned char tail[TAIL_BYTES] = {FILL, FILL, FILL, FILL, FILL, FILL, FILL, FILL,
                                                   FILL, FILL, FILL, FILL, FILL, FILL, FILL, FILL};
    const struct state_head *head = (const struct state_head *)l->state - 1;
    if (head->may_allocate) {
        note_heap(l);
    }
    call_leave(call);
    for (unsigned i = 0; i < l->n; i++) {
        if (memcmp(l->loans[i].of, l->loans[i].copy, l->loans[i].bytes) != 0) {
            call_broke(call, l->callback, "it wrote to %s, which it may only read,",
                       l->loans[i].what);
        }
    }
    if (head->mark != head_mark ||
        memcmp((char *)l->state + l->ward->inner->state_bytes, tail, TAIL_BYTES) != 0) {
        call_broke(call, l->callback, "it wrote beyond the %u bytes of its state",
                   l->ward->inner->state_bytes);
    }
}

/* ---- cache policies ---- */

static const struct request *lend_request(struct lending *l, const struct request *request) {
    return ward_lend(l, request, sizeof *request, "the request");
}

static const void *lend_memory(struct lending *l, const void *memory) {
    const struct cache_policy *cache = (const struct cache_policy *)l->ward->inner;
    return ward_lend(l, memory, cache->memory_bytes, "its memory of the request");
}

static uint32_t warded_plan(const void *state, const void *memory, const struct request *request,
                            struct row_sets *rows) {
    struct lending l;
    ward_open(&l, state, "plan");
    struct row_sets *answer = ward_room_for(&l, sizeof *answer, 4);
    *answer = *rows;
    const void *own = lend_state(&l);
    const void *known = lend_memory(&l, memory);
    const struct request *lent = lend_request(&l, request);
    struct watched_call *call = ward_enter(&l);
    uint32_t holds = ((const struct cache_policy *)l.called)->plan(own, known, lent, answer);
    ward_leave(&l, call);
    *rows = *answer;
    return holds;
}

static uint32_t warded_put_off(const void *state, const void *memory, const struct request *request,
                               struct row_sets *rows) {
    struct lending l;
    ward_open(&l, state, "put_off");
    struct row_sets *answer = ward_room_for(&l, sizeof *answer, 4);
    *answer = *rows;
    const void *own = lend_state(&l);
    const void *known = lend_memory(&l, memory);
    const struct request *lent = lend_request(&l, request);
    struct watched_call *call = ward_enter(&l);
    uint32_t bound = ((const struct cache_policy *)l.called)->put_off(own, known, lent, answer);
    ward_leave(&l, call);
    *rows = *answer;
    return bound;
}

static uint32_t warded_evict(const void *state, const void *memory,
                             const struct eviction_view *view, uint8_t *keep) {
    struct lending l;
    ward_open(&l, state, "evict");
    uint8_t *answer = ward_room_for(&l, view->length, 1);
    struct eviction_view shown = *view;
    shown.request = lend_request(&l, view->request);
    shown.pending = ward_lend(&l, view->pending, view->length, "pending");
    shown.masked = ward_lend(&l, view->masked, view->length, "masked");
    shown.delta = ward_lend(&l, view->delta, view->length * sizeof *view->delta, "delta");
    const struct eviction_view *lent = ward_lend(&l, &shown, sizeof shown, "the view");
    const void *own = lend_state(&l);
    const void *known = lend_memory(&l, memory);
    memcpy(answer, keep, view->length);
    struct watched_call *call = ward_enter(&l);
    uint32_t n = ((const struct cache_policy *)l.called)->evict(own, known, lent, answer);
    ward_leave(&l, call);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < view->length; i++) {
        kept += answer[i] == 1;
        n = answer[i] > 1 ? UINT32_MAX : n;
    }
    if (n != kept) {
        call_broke(call, l.callback, "it keeps %u of %u positions and says another number", kept,
                   view->length);
    }
    memcpy(keep, answer, view->length);
    return n;
}

static void warded_learn(const void *state, void *memory, const struct request *request,
                         const struct learned *learned) {
    struct lending l;
    ward_open(&l, state, "learn");
    const struct cache_policy *cache = (const struct cache_policy *)l.called;
    void *own_memory = ward_room_for(&l, cache->memory_bytes, 8);
    struct learned shown = *learned;
    uint32_t length = window_length(request);
    shown.outcome = ward_lend(&l, learned->outcome, length, "outcome");
    shown.entropy = ward_lend(&l, learned->entropy, length * sizeof *learned->entropy, "entropy");
    const struct learned *lent = ward_lend(&l, &shown, sizeof shown, "what it learns");
    const void *own = lend_state(&l);
    const struct request *lent_request = lend_request(&l, request);
    memcpy(own_memory, memory, cache->memory_bytes);
    struct watched_call *call = ward_enter(&l);
    cache->learn(own, own_memory, lent_request, lent);
    ward_leave(&l, call);
    memcpy(memory, own_memory, cache->memory_bytes);
}

/* ---- decoders ---- */

static uint32_t warded_count(const void *state, const struct request *request, uint32_t *repeat) {
    struct lending l;
    ward_open(&l, state, "count");
    uint32_t *answer = ward_room_for(&l, sizeof *answer, 4);
    *answer = *repeat;
    const void *own = lend_state(&l);
    const struct request *lent = lend_request(&l, request);
    struct watched_call *call = ward_enter(&l);
    uint32_t n = ((const struct decoder *)l.called)->count(own, lent, answer);
    ward_leave(&l, call);
    *repeat = *answer;
    return n;
}

static uint32_t warded_choose(const void *state, const struct request *request,
                              const struct decode_seen *seen, uint8_t *commit) {
    struct lending l;
    ward_open(&l, state, "choose");
    uint8_t *answer = ward_room_for(&l, seen->n, 1);
    struct decode_seen shown = *seen;
    size_t bytes = seen->n * sizeof(float);
    shown.offset = ward_lend(&l, seen->offset, seen->n * sizeof *seen->offset, "offset");
    shown.confidence = ward_lend(&l, seen->confidence, bytes, "confidence");
    shown.margin = ward_lend(&l, seen->margin, bytes, "margin");
    shown.entropy = ward_lend(&l, seen->entropy, bytes, "entropy");
    const struct decode_seen *lent = ward_lend(&l, &shown, sizeof shown, "what it sees");
    const void *own = lend_state(&l);
    const struct request *lent_request = lend_request(&l, request);
    memcpy(answer, commit, seen->n);
    struct watched_call *call = ward_enter(&l);
    uint32_t n = ((const struct decoder *)l.called)->choose(own, lent_request, lent, answer);
    ward_leave(&l, call);
    uint32_t marked = 0;
    for (uint32_t i = 0; i < seen->n; i++) {
        marked += answer[i] == 1;
        n = answer[i] > 1 ? UINT32_MAX : n;
    }
    if (n != marked || (n == 0 && ((const struct decoder *)l.called)->take_back == NULL)) {
        call_broke(call, l.callback,
                   n == marked ? "it commits %u of %u masked positions"
                               : "it marks %u of %u positions and says another number",
                   marked, seen->n);
    }
    memcpy(commit, answer, seen->n);
    return n;
}

static uint32_t warded_take_back(const void *state, const struct request *request,
                                 const struct decode_kept *kept, uint8_t *again) {
    struct lending l;
    ward_open(&l, state, "take_back");
    uint8_t *answer = ward_room_for(&l, kept->n, 1);
    struct decode_kept shown = *kept;
    shown.offset = ward_lend(&l, kept->offset, kept->n * sizeof *kept->offset, "offset");
    shown.confidence =
        ward_lend(&l, kept->confidence, kept->n * sizeof *kept->confidence, "confidence");
    const struct decode_kept *lent = ward_lend(&l, &shown, sizeof shown, "what is decided");
    const void *own = lend_state(&l);
    const struct request *lent_request = lend_request(&l, request);
    memcpy(answer, again, kept->n);
    struct watched_call *call = ward_enter(&l);
    uint32_t n = ((const struct decoder *)l.called)->take_back(own, lent_request, lent, answer);
    ward_leave(&l, call);
    uint32_t marked = 0;
    for (uint32_t i = 0; i < kept->n; i++) {
        marked += answer[i] == 1;
        n = answer[i] > 1 ? UINT32_MAX : n;
    }
    if (n != marked) {
        call_broke(call, l.callback, "it marks %u of %u decided positions and says another number",
                   marked, kept->n);
    }
    memcpy(again, answer, kept->n);
    return n;
}

static void warded_rule(const void *state, const struct request *request, struct decode_rule *out) {
    struct lending l;
    ward_open(&l, state, "rule");
    struct decode_rule *answer = ward_room_for(&l, sizeof *answer, 8);
    *answer = *out;
    const void *own = lend_state(&l);
    const struct request *lent = lend_request(&l, request);
    struct watched_call *call = ward_enter(&l);
    ((const struct decoder *)l.called)->rule(own, lent, answer);
    ward_leave(&l, call);
    *out = *answer;
}

static void warded_credit(const void *state, struct decode_credit *out) {
    struct lending l;
    ward_open(&l, state, "credit");
    struct decode_credit *answer = ward_room_for(&l, sizeof *answer, 8);
    *answer = *out;
    const void *own = lend_state(&l);
    struct watched_call *call = ward_enter(&l);
    ((const struct decoder *)l.called)->credit(own, answer);
    ward_leave(&l, call);
    *out = *answer;
}

/* ---- routers ---- */

/* With what it sees of the replicas. `shown` is what is held against the copy after the call. */
static const struct route_view *lend_view(struct lending *l, const struct route_view *view,
                                          struct route_view *shown) {
    *shown = *view;
    shown->replicas = ward_lend(l, view->replicas, view->n * sizeof *view->replicas,
                                "what it sees of the replicas");
    return ward_lend(l, shown, sizeof *shown, "the view");
}

static uint32_t warded_route(void *state, const struct request *request,
                             const struct route_view *view, int64_t *until_ns) {
    struct lending l;
    ward_open(&l, state, "route");
    int64_t *answer = ward_room_for(&l, sizeof *answer, 8);
    *answer = *until_ns;
    struct route_view shown;
    const struct route_view *lent = lend_view(&l, view, &shown);
    const struct request *lent_request = lend_request(&l, request);
    struct watched_call *call = ward_enter(&l);
    uint32_t chosen = ((const struct router *)l.called)->route(l.state, lent_request, lent, answer);
    ward_leave(&l, call);
    if (chosen >= view->n && chosen != ROUTE_HOLD) {
        call_broke(call, l.callback, "it chose replica %u of %u", chosen, view->n);
    }
    *until_ns = *answer;
    return chosen;
}

static uint32_t warded_move(void *state, const struct route_view *view, struct route_move *moves,
                            uint32_t capacity) {
    struct lending l;
    ward_open(&l, state, "move");
    struct route_move *answer = ward_room_for(&l, capacity * sizeof *answer, 4);
    struct route_view shown;
    const struct route_view *lent = lend_view(&l, view, &shown);
    struct watched_call *call = ward_enter(&l);
    uint32_t n = ((const struct router *)l.called)->move(l.state, lent, answer, capacity);
    ward_leave(&l, call);
    if (n > capacity) {
        call_broke(call, l.callback, "it says %u moves, of which at most %u fit", n, capacity);
    }
    memcpy(moves, answer, n * sizeof *moves);
    return n;
}

/* ---- descriptors ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ward *wards;

/* The plug-in's parameters, moved past the head of its state. */
static const struct param *moved_params(const struct policy *inner) {
    struct param *params = mem_copied(inner->params, inner->n_params * sizeof *params);
    for (uint64_t i = 0; i < inner->n_params; i++) {
        params[i].offset += sizeof(struct state_head);
    }
    return params;
}

#define WARDED(of, callback) ((of).callback = (of).callback != NULL ? warded_##callback : NULL)

static struct ward *make(const struct policy *inner, const char *path) {
    struct ward *ward = mem_zeroed(1, sizeof *ward);
    memcpy(&ward->outer, inner, inner->size);
    ward->inner = inner;
    ward->path = mem_text(path);
    ward->object = object_of(inner);
    ward->outer.policy.state_bytes += (uint32_t)(sizeof(struct state_head) + TAIL_BYTES);
    ward->outer.policy.params = inner->n_params > 0 ? moved_params(inner) : NULL;
    switch ((enum policy_kind)inner->kind) {
    case POLICY_SCHEDULER:
        WARDED(ward->outer.scheduler, schedule);
        WARDED(ward->outer.scheduler, happened);
        break;
    case POLICY_CACHE:
        WARDED(ward->outer.cache, plan);
        WARDED(ward->outer.cache, put_off);
        WARDED(ward->outer.cache, evict);
        WARDED(ward->outer.cache, learn);
        break;
    case POLICY_DECODER:
        WARDED(ward->outer.decoder, count);
        WARDED(ward->outer.decoder, choose);
        WARDED(ward->outer.decoder, take_back);
        WARDED(ward->outer.decoder, rule);
        WARDED(ward->outer.decoder, credit);
        break;
    case POLICY_ROUTER:
        WARDED(ward->outer.router, route);
        WARDED(ward->outer.router, move);
        break;
    }
    return ward;
}

const struct policy *ward_policy(const struct policy *inner, const char *path) {
    pthread_mutex_lock(&lock);
    struct ward *ward = wards;
    while (ward != NULL && ward->inner != inner) {
        ward = ward->next;
    }
    if (ward == NULL) {
        ward = make(inner, path);
        ward->next = wards;
        wards = ward;
    }
    pthread_mutex_unlock(&lock);
    call_watch_begin(ward->path);
    return &ward->outer.policy;
}

/* NULL: the policy is no plug-in. */
static const struct ward *ward_of(const struct policy *policy) {
    pthread_mutex_lock(&lock);
    const struct ward *ward = wards;
    while (ward != NULL && &ward->outer.policy != policy) {
        ward = ward->next;
    }
    pthread_mutex_unlock(&lock);
    return ward;
}

void ward_fill_state(const struct policy *policy, void *state) {
    const struct ward *ward = ward_of(policy);
    if (ward != NULL) {
        struct state_head *head = state;
        *head = (struct state_head){.ward = ward, .mark = head_mark};
        memset((char *)(head + 1) + ward->inner->state_bytes, FILL, TAIL_BYTES);
    }
}

void ward_begin_run(const struct policy *policy, void *state) {
    if (ward_of(policy) != NULL) {
        world_close(state);
        world_open(state, true);
    }
}

void ward_forget_world(const struct policy *policy, void *state) {
    if (ward_of(policy) != NULL) {
        ((struct state_head *)state)->called = NULL;
        ((struct state_head *)state)->handle = NULL;
    }
}

void ward_end_state(const struct policy *policy, void *state) {
    if (ward_of(policy) != NULL) {
        world_close(state);
    }
}
