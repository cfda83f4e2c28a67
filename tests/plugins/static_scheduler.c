/* Keeps its state where it should not: at every third moment it admits up to eight requests, at the
 * others one. It answers the same question the same way. This file is compiled once for each name:
 * state_scheduler.so is the same policy as it should be, static_scheduler.so and the others show
 * what else can outlive a run. */
#include <stdlib.h>

#include "tests/plugins/first_fits.h"

struct state {
    int64_t last_ns;
    uint64_t n_moments;
};

#if defined PLUGIN_thread_scheduler
static _Thread_local struct state all;
#elif defined PLUGIN_unique_scheduler
/* as C++ has variables of inline functions and of templates */
struct state static_scheduler_all;
__asm__(".type static_scheduler_all, %gnu_unique_object");
#define all static_scheduler_all
#elif defined PLUGIN_heap_scheduler
/* memory that a constructor takes, which C++'s containers do */
static struct state *taken;
__attribute__((constructor)) static void take(void) {
    taken = calloc(1, sizeof *taken);
}
__attribute__((destructor)) static void give_back(void) {
    free(taken);
}
#define all (*taken)
#elif defined PLUGIN_key_scheduler
/* a place of each thread, which the thread gives back when it ends */
#include <pthread.h>
static pthread_key_t key;
static void give_back(void *taken) {
    free(taken);
}
__attribute__((constructor)) static void make_key(void) {
    (void)pthread_key_create(&key, give_back);
}
static struct state *of_thread(void) {
    if (pthread_getspecific(key) == NULL) {
        (void)pthread_setspecific(key, calloc(1, sizeof(struct state)));
    }
    return pthread_getspecific(key);
}
#define all (*of_thread())
#elif defined PLUGIN_static_scheduler
static struct state all;
#endif

static struct state *kept(struct state *state) {
#ifdef PLUGIN_state_scheduler
    return state;
#else
    (void)state;
    return &all;
#endif
}

static uint64_t count_moment(struct state *state, int64_t now_ns) {
    state->n_moments += state->last_ns != now_ns;
    state->last_ns = now_ns;
    return state->n_moments;
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    uint32_t most = count_moment(kept(state), view->now_ns) % 3 == 0 ? 8 : 1;
    struct taken used = {0, 0};
    select_running(view, &used, batch);
    admit_waiting(view, most, &used, batch);
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = sizeof(struct state),
               .name = "counting",
               .doc = "admits many at every third moment, which it counts"},
    .schedule = schedule};
