/* Nothing in the serving loop allocates, counted from the first step to the last; and memory for
 * requests and replicas that never come is never used. */
#include <dlfcn.h>
#include <stddef.h>
#include <sys/resource.h>

#include "tests/support/rig.h"

#ifndef __SANITIZE_ADDRESS__ /* the sanitizer owns the allocator */

static long n_allocations;

/* The real allocator behind counting ones; dlsym itself needs a little memory before that. */
static char early[4096];
static size_t early_used;

static void *real(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

void *malloc(size_t size) {
    static void *(*next)(size_t);
    if (next == NULL) {
        void *found = real("malloc");
        memcpy(&next, &found, sizeof next);
    }
    n_allocations++;
    return next(size);
}

void *calloc(size_t n, size_t size) {
    static void *(*next)(size_t, size_t);
    /* glibc declares dlsym a leaf, that nothing here is called by meanwhile: it is, where it looks
     * for calloc. */
    static volatile bool looking;
    if (next == NULL) {
        if (looking) { /* dlsym asks while it looks for us */
            void *piece = early + early_used;
            early_used += (n * size + 15) / 16 * 16;
            return piece;
        }
        looking = true;
        void *found = real("calloc");
        memcpy(&next, &found, sizeof next);
        looking = false;
    }
    n_allocations++;
    return next(n, size);
}

void *realloc(void *old, size_t size) {
    static void *(*next)(void *, size_t);
    if (next == NULL) {
        void *found = real("realloc");
        memcpy(&next, &found, sizeof next);
    }
    n_allocations++;
    return next(old, size);
}

struct watch {
    long at_first, at_last;
    uint64_t n_steps;
};

static int watch_step(void *state, const struct step_record *record, struct err *err) {
    struct watch *watch = state;
    (void)record, (void)err;
    if (watch->n_steps++ == 0) {
        watch->at_first = n_allocations;
    }
    watch->at_last = n_allocations;
    return 0;
}

static struct watch watch_decode(const char *name, const char *const *settings,
                                 const struct decode_source *decode) {
    struct system *system = rig_system(name, "l40s", false, settings);
    struct poisson_source source =
        MAKE(struct poisson_source, .rng = rng_stream(1, "arrivals"),
             .lengths = rng_stream(1, "lengths"), .rate = 5, .n = 300, .prompt_min = 10,
             .prompt_max = 900, .output_min = decode != NULL ? 64 : 10,
             .output_max = decode != NULL ? 64 : 300);
    struct watch watch = {0};
    struct sink sink = {.state = &watch, .step = watch_step};
    struct executor_sim *sim = executor_sim_open(system, 1);
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_sim_interface(sim),
             .source = {&source, poisson_next, NULL}, .sinks = &sink, .n_sinks = 1,
             .records_members = true, .decode = decode);
    struct loop_result result;
    struct err err = {0};
    ck_assert_msg(loop_run(&request, &result, &err) == 0, "%s", err.text);
    executor_sim_close(sim);
    system_close(system);
    return watch;
}

static struct watch watch_run(const char *name, const char *const *settings) {
    return watch_decode(name, settings, NULL);
}

TEST(no_step_of_any_system_allocates) {
    static const char *const names[] = {"dllm-serve", "dllm-serve-published", "fast-dllm-published",
                                        "dllm-cache-published", "ablation-engine"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct watch watch = watch_run(names[i], NULL);
        ck_assert_uint_gt(watch.n_steps, 300);
        ck_assert_int_eq(watch.at_last, watch.at_first);
    }
}

TEST(drawn_confidences_allocate_nothing_either) {
    static const char *const settings[] = {"decoder=threshold", "logit_scope=masked", NULL};
    struct watch watch = watch_run("dllm-serve", settings);
    ck_assert_uint_gt(watch.n_steps, 200);
    ck_assert_int_eq(watch.at_last, watch.at_first);
}

/* What a trace would hold of requests of 64 tokens: a block of 32 is decoded one by one. */
static int tokens_of(const void *state, uint64_t request, uint64_t *out, struct err *err) {
    (void)state, (void)request, (void)err;
    *out = 64;
    return 0;
}

static int pass_of(const void *state, uint64_t request, uint32_t index, struct decode_pass *out,
                   struct err *err) {
    (void)state, (void)request, (void)index, (void)err;
    *out = (struct decode_pass){.committed = 1, .processed = 32, .kept = 32, .reach = 32};
    return 0;
}

TEST(recalled_decisions_allocate_nothing_either) {
    static const char *const settings[] = {"decoder=threshold", NULL};
    const struct decode_source decode = {.name = "a trace", .tokens = tokens_of, .pass = pass_of};
    struct watch watch = watch_decode("dllm-serve", settings, &decode);
    ck_assert_uint_gt(watch.n_steps, 200);
    ck_assert_int_eq(watch.at_last, watch.at_first);
}

/* Bytes that the process had at most, so far. */
static int64_t most_resident(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss * INT64_C(1024);
}

TEST(memory_is_taken_as_requests_and_replicas_are_used) {
    static const char *const settings[][3] = {{NULL},
                                              {"max_in_system=100000000", NULL},
                                              {"replicas=1024", NULL},
                                              {"replicas=1024", "max_in_system=100000000", NULL}};
    static const char *const names[] = {"dllm-serve", "fast-dllm", "vllm-ar", "sdar"};
    for (int i = 0; i < 4; i++) {
        struct loop_result results[4];
        int64_t before_bytes = 0;
        for (int j = 0; j < 4; j++) {
            struct system *system = rig_system(names[i], "l40s", true, settings[j]);
            struct poisson_source source =
                MAKE(struct poisson_source, .rng = rng_stream(1, "arrivals"),
                     .lengths = rng_stream(1, "lengths"), .rate = 5, .n = 20, .prompt_min = 10,
                     .prompt_max = 300, .output_min = 10, .output_max = 64);
            results[j] = rig_run(
                system, MAKE(struct arrival_source, .state = &source, .next = poisson_next), NULL);
            system_close(system);
            before_bytes = j == 0 ? most_resident() : before_bytes;
        }
        ck_assert_int_lt(most_resident() - before_bytes, 200 * INT64_C(1000000));
        ck_assert_int_eq(results[0].end_ns, results[1].end_ns);
        ck_assert_int_eq(results[2].end_ns, results[3].end_ns);
    }
}

#endif

SUITE("alloc")
