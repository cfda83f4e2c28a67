/* Plug-ins that do wrong only where no exercise reaches: the word in UNMASK_CRIME, done once. This
 * file is compiled once for each: bad_late.so, bad_late_cache.so and so on. */
#define _GNU_SOURCE
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/plugins/bad.h"

static inline int is_crime(const char *name) {
    const char *crime = getenv("UNMASK_CRIME");
    return crime != NULL && strcmp(crime, name) == 0;
}

static int overflow(int depth);
static int (*volatile again)(int) = overflow;
static void (*volatile let_go)(void *) = free;

static int overflow(int depth) {
    volatile char much[65536];
    much[depth % 100] = (char)depth;
    return again(depth + 1) + much[depth % 100];
}

/* Those that any callback can do. */
static inline void common_crime(const void *given) {
    volatile int zero = 0;
    if (is_crime("segv")) {
        *(volatile int *)(uintptr_t)(zero + 8) = 1;
    } else if (is_crime("fpe")) {
        raise(SIGFPE);
    } else if (is_crime("ill")) {
        __builtin_trap();
    } else if (is_crime("bus")) {
        raise(SIGBUS);
    } else if (is_crime("abort")) {
        abort();
    } else if (is_crime("overflow")) {
        zero = overflow(1);
    } else if (is_crime("exit")) {
        exit(0);
    } else if (is_crime("_exit")) {
        _exit(0);
    } else if (is_crime("quick_exit")) {
        quick_exit(0);
    } else if (is_crime("hang")) {
        while (zero == 0) {
        }
    } else if (is_crime("sleep")) {
        for (;;) {
            pause();
        }
    } else if (is_crime("doze")) {
        static int is_rested;
        const struct timespec nap = {.tv_sec = 1, .tv_nsec = 200000000};
        is_rested = is_rested || nanosleep(&nap, NULL) == 0;
    } else if (is_crime("rounding")) {
        fesetround(FE_UPWARD);
    } else if (is_crime("flush")) {
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
    } else if (is_crime("traps")) {
        feenableexcept(FE_DIVBYZERO);
    } else if (is_crime("free")) {
        let_go((char *)(uintptr_t)given + 4);
    } else if (is_crime("print")) {
        printf("a plug-in's own words\n");
    } else if (is_crime("replace")) {
        (void)rename(getenv("UNMASK_OTHER"), getenv("UNMASK_PLACE"));
    } else if (is_crime("close")) {
        for (int fd = 0; fd < 16; fd++) {
            close(fd);
        }
    }
}

#ifdef PLUGIN_bad_late
/* A scheduler of one request at a time, and a crime when more wait than any exercise shows. */
enum { MOST_WAITING = 4000 };

struct state {
    uint64_t number;
};

static void write_to(const void *place) {
    ((volatile char *)(uintptr_t)place)[0]++;
}

static void crime(struct state *state, const struct schedule_view *view, struct batch *batch) {
    uint32_t first = view->waiting[0];
    common_crime(view);
    if (is_crime("write-request")) {
        write_to(&view->requests[first].prompt_tokens);
    } else if (is_crime("write-waiting")) {
        write_to(view->waiting);
    } else if (is_crime("write-view")) {
        write_to(&view->kv_free_bytes);
    } else if (is_crime("oob-selected")) {
        batch->selected[batch->capacity] = 0;
    } else if (is_crime("oob-chunks")) {
        batch->chunk_tokens[batch->capacity] = 0;
    } else if (is_crime("oob-idle")) {
        batch->idle[batch->capacity + 100] = 0;
    } else if (is_crime("oob-view")) {
        batch->wake_ns = (int64_t)view->waiting[100000000];
    } else if (is_crime("oob-state")) {
        state[1].number = 7;
    } else if (is_crime("count")) {
        batch->n = batch->capacity + 1;
    } else if (is_crime("admitted")) {
        batch->n = 1;
        batch->n_admitted = 7;
    } else if (is_crime("twice")) {
        batch->selected[0] = batch->selected[1] = first;
        batch->n = batch->n_admitted = 2;
    } else if (is_crime("slot")) {
        batch->selected[0] = UINT32_MAX;
        batch->n = batch->n_admitted = 1;
    } else if (is_crime("chunk")) {
        batch->selected[0] = first;
        batch->n = batch->n_admitted = 1;
        batch->chunk_tokens[0] = UINT32_MAX;
    } else if (is_crime("preempt")) {
        batch->preempted[0] = 3;
        batch->n_preempted = UINT32_MAX;
    } else if (is_crime("capacity")) {
        batch->capacity++;
    } else if (is_crime("list")) {
        batch->selected = (uint32_t *)(uintptr_t)view->waiting;
    } else if (is_crime("estimate")) {
        struct batch asked = *batch;
        asked.n = UINT32_MAX;
        batch->wake_ns = view->now_ns + view->estimate_ns(view->estimator, &asked);
    }
}

static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    int is_late = view->n_waiting > MOST_WAITING;
    if (is_late && is_crime("each-ns")) {
        batch->wake_ns = view->now_ns + 1;
        return;
    }
    if (is_late && is_crime("starve")) {
        return;
    }
    batch->all_running = 1;
    if (view->n_running == 0) {
        for (uint32_t i = 0; i < view->n_waiting && batch->n == 0; i++) {
            const struct request *request = &view->requests[view->waiting[i]];
            if (request->span.queries <= view->max_batched_tokens &&
                request->kv_bytes <= view->kv_free_bytes) {
                batch->selected[batch->n++] = view->waiting[i];
                batch->n_admitted = 1;
            }
        }
    }
    if (is_late) {
        crime(opaque, view, batch);
    }
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "late",
               .doc = "breaks a promise when nobody expects it"},
    .schedule = schedule};
#endif

#ifdef PLUGIN_bad_late_cache
/* The prefix of a request cached as `none` has it, and a crime for requests that no exercise has.
 */
enum { LATE_REQUEST = 3000 };

static void crime(const struct request *request, struct row_sets *rows) {
    common_crime(request);
    if (is_crime("write-request")) {
        ((struct request *)(uintptr_t)request)->committed_tokens++;
    } else if (is_crime("oob-rows")) {
        rows[1].held = 1;
    } else if (is_crime("empty")) {
        rows->run.end = rows->run.first;
    } else if (is_crime("beyond")) {
        rows->run.end = UINT32_MAX;
    } else if (is_crime("held")) {
        rows->held = UINT32_MAX;
    }
}

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)state, (void)memory;
    *rows = (struct row_sets){.kind = ROW_NONE};
    rows->run.end = request->canvas_tokens;
    rows->head.first = window_first(request);
    rows->head.end = window_end(request);
    if (request->id >= LATE_REQUEST) {
        crime(request, rows);
    }
    return UINT32_MAX;
}

const struct cache_policy unmask_policy = {POLICY(POLICY_CACHE, cache_policy, "late"),
                                           .plan = plan};
#endif

#ifdef PLUGIN_bad_late_decoder
/* A decoder that commits the surest position, and a crime for requests that no exercise has. */
enum { LATE_REQUEST = 3000 };

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    uint32_t best = 0;
    (void)state;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = 0;
        best = seen->confidence[i] > seen->confidence[best] ? i : best;
    }
    commit[best] = 1;
    if (request->id < LATE_REQUEST) {
        return 1;
    }
    common_crime(seen);
    if (is_crime("write-request")) {
        ((struct request *)(uintptr_t)request)->committed_tokens++;
    } else if (is_crime("write-seen")) {
        ((float *)(uintptr_t)seen->confidence)[0] = 2;
    } else if (is_crime("oob-commit")) {
        commit[seen->n] = 1;
    } else if (is_crime("none")) {
        commit[best] = 0;
        return 0;
    } else if (is_crime("sum")) {
        return 7;
    } else if (is_crime("flag")) {
        commit[best] = 9;
    }
    return 1;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "late"), .choose = choose};
#endif

#ifdef PLUGIN_bad_late_eviction
/* FOCUS, and evictions that leave out a decoded position, or keep one that does not run, for
 * requests that no exercise has. */
#define cache_focus unmask_policy

#include "sim/decode/focus.h"

enum { LATE_REQUEST = 3000 };

static uint32_t late(uint32_t n_kept, const struct eviction_view *view, uint8_t *keep) {
    for (uint32_t i = 0; view->request->id >= LATE_REQUEST && i < view->length; i++) {
        if (is_crime("drop") && keep[i] && !view->masked[i]) {
            keep[i] = 0;
            return n_kept - 1;
        }
        if (is_crime("keep") && !view->pending[i]) {
            keep[i] = 1;
            return n_kept + 1;
        }
    }
    return n_kept;
}

#define focus_select(...) late(focus_select(__VA_ARGS__), view, keep)
#include "sim/policy/cache/cache_focus.c"
#undef focus_select

#include "sim/decode/focus.c"
#include "sim/policy/cache/exact.c"
#endif
