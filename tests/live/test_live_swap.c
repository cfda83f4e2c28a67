/* Requests that are swapped out to the host's memory on the CPU, and brought back: their tokens are
 * the same bits as without. */
#include "tests/support/faulty_device.h"
#include "tests/support/live.h"
#include "tests/support/says.h"
#include "tests/support/swapping.h"

static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 13, .output_tokens = 30},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 27},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 32},
    {.id = 3, .prompt_tokens = 34, .output_tokens = 25},
};
enum { N = 4 };

/* Served with the scheduler that swaps in the place of its own. */
static struct served *serve_swapping(struct system *system, uint32_t rejects_at,
                                     const struct device_table *table,
                                     const struct served *played) {
    const struct scheduler *own = system->scheduler;
    struct accuracy accuracy;
    accuracy_init(&accuracy, system, played != NULL ? played->n_steps : 1, 0);
    swapping_begin(rejects_at);
    system->scheduler = &swapping_scheduler;
    const struct serving serving = {.system = system,
                                    .arrivals = together,
                                    .n = N,
                                    .table = table,
                                    .played = played,
                                    .accuracy = played != NULL ? &accuracy : NULL};
    struct served *served = serve(&serving);
    accuracy_fini(&accuracy);
    system->scheduler = own;
    return served;
}

#define CREDIT                                                                                     \
    "decoder=credit runtime.fused_head=off decoder.threshold=0.9 decoder.alpha=4 decoder.beta=0.9"
#define SMOOTH                                                                                     \
    "iteration=smooth runtime.fused_head=off decoder=threshold decoder.threshold=0.9 "             \
    "iteration.weight_init=0.5"

/* Settings of words. */
static const struct {
    const char *system, *model, *a, *b;
} kinds[] = {
    {"sdar", "sdar-tiny", "block_tokens=4", "page_tokens=4"},
    {"sdar", "sdar-tiny", "block_tokens=8", "page_tokens=16"},
    {"sdar", "llada2-tiny", "block_tokens=4", "page_tokens=8"},
    {"sdar", "fast-dllm-v2-tiny", "block_tokens=4", "page_tokens=4"},
    {"d2f", "fast-dllm-v2-tiny", "block_tokens=4 page_tokens=4",
     "blocks_in_flight=3 decoder.threshold=0.01"},
    {"dc+", "sdar-tiny", "block_tokens=8", "decoder=fixed"},
    {"focus", "sdar-tiny", "block_tokens=8", "page_tokens=4"},
    {"ar", "qwen2.5-tiny", "page_tokens=4", "block_tokens=1"},
    {"dllm-serve", "llada-tiny", "cache=dual", "block_tokens=8"},
    {"dllm-serve", "llada-tiny", "cache=sparse-uniform", "block_tokens=8"},
    {"dllm-serve", "llada-tiny", "cache=sparse-head", "decoder=threshold"},
    {"dllm-serve", "llada-tiny", "cache=none", "block_tokens=8"},
    {"dllm-serve", "llada-tiny", "cache=dual", "kv=slab"},
    {"entropy-cache", "llada-tiny", "block_tokens=8", "scheduler=continuous"},
    {"dkv-cache", "llada-tiny", "block_tokens=8", "scheduler=continuous"},
    /* What they keep of positions goes with the rows, also where there are none. */
    {"fast-dllm", "llada-tiny", "block_tokens=8", CREDIT},
    {"fast-dllm", "llada-tiny", "cache=none block_tokens=8", CREDIT},
    {"fast-dllm", "dream-tiny", "block_tokens=8", SMOOTH},
    {"sdar", "sdar-tiny", "block_tokens=8 page_tokens=4", SMOOTH},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static struct system *open_with(int i, const char *more, const char *host) {
    char words[2][256];
    const char *settings[16] = {"runtime=unmask", "scheduler=continuous", host, more};
    size_t n = 4;
    for (int of = 0; of < 2; of++) {
        snprintf(words[of], sizeof words[of], "%s", of == 0 ? kinds[i].a : kinds[i].b);
        for (char *at = words[of], *word; (word = strtok_r(at, " ", &at)) != NULL;) {
            settings[n++] = word;
        }
    }
    return live_system_of(kinds[i].system, kinds[i].model, settings);
}

static struct system *open_kind(int i, const char *more) {
    return open_with(i, more, "swap.host_bytes=64MiB");
}

/* All that were served alone have the same tokens now that some were swapped out. */
static void check_swapped(const struct served *plain, const struct served *swapped,
                          const struct system *system) {
    ck_assert_msg(swapped->err.kind == ERR_NONE, "%s", swapped->err.text);
    check_outputs(swapped, system, together, N);
    same_tokens(plain, swapped, N);
    ck_assert_uint_gt(swapping.n_swaps, 4);
}

/* Whoever is swapped out when, and wherever in the pool it comes back to. */
TEST_EACH(a_request_that_was_swapped_out_has_the_tokens_that_it_would_have_had, N_KINDS) {
    struct system *system = open_kind(_i, "max_requests=3");
    struct served *plain = serve_live(system, together, N);
    struct served *swapped = serve_swapping(system, 0, NULL, NULL);
    check_swapped(plain, swapped, system);
    ck_assert(swapped->swap.n_out == swapping.n_swaps && swapped->swap.n_in == swapping.n_swaps);
    ck_assert_int_eq(swapped->swap.out_bytes, swapped->swap.in_bytes);
    const bool has_any = system->rows.kind != ROW_NONE || system->place_bytes > 0;
    ck_assert((swapped->swap.out_bytes > 0) == has_any);
    ck_assert((swapped->swap.stall_ns > 0) == (swapped->swap.out_bytes > 0));
    ck_assert_int_eq(plain->swap.stall_ns, 0);
    ck_assert_int_eq(swapped->pool_left_bytes, 0);
    struct served *played = serve_swapping(system, 0, NULL, swapped);
    ck_assert_msg(played->err.kind == ERR_NONE, "%s", played->err.text);
    same_tokens(plain, played, N);
    ck_assert_int_eq(played->swap.stall_ns, swapped->swap.stall_ns);
    free(plain);
    free(swapped);
    free(played);
    system_close(system);
}

/* Each rank's rows, and pages of layers that are not alike. */
TEST_EACH(ranks_and_layers_with_a_window_swap, 6) {
    static const char *const windows[] = {"prefix_caching=off",      "context_tokens=64",
                                          "model.local_window=56",   "model.global_every=2",
                                          "model.global_kv_heads=1", "model.global_head_dim=64"};
    const int kind = _i < 4 ? (int[]){1, 2, 8, 7}[_i] : 1;
    const bool has_window = _i >= 4;
    const char *settings[2][16] = {{"runtime=unmask", "max_requests=3", "scheduler=continuous",
                                    "swap.host_bytes=64MiB", kinds[kind].a, kinds[kind].b}};
    for (size_t i = 0; has_window && i < 6; i++) {
        settings[0][6 + i] = windows[i];
    }
    memcpy(settings[1], settings[0], sizeof settings[1]);
    settings[1][has_window ? 12 : 6] = _i == 4 ? NULL : "tensor_parallel=2";
    struct system *one = live_system_of(kinds[kind].system, kinds[kind].model, settings[0]),
                  *two = live_system_of(kinds[kind].system, kinds[kind].model, settings[1]);
    struct served *plain = serve_live(one, together, N);
    struct served *swapped = serve_swapping(two, 0, NULL, NULL);
    check_swapped(plain, swapped, two);
    ck_assert_uint_eq(swapped->swap.n_in, swapping.n_swaps);
    ck_assert_int_gt(swapped->swap.in_bytes, 0);
    free(plain);
    free(swapped);
    system_close(one);
    system_close(two);
}

/* With room for some, those that lie there are pushed together. */
TEST(gaps_of_the_host_s_memory_are_closed) {
    for (int i = 0; i < 2; i++) {
        const char *host = i == 0 ? "swap.host_bytes=960KiB" : "swap.host_bytes=5MiB";
        struct system *roomy = open_kind(7 * i, "max_requests=3");
        struct system *tight = open_with(7 * i, "max_requests=3", host);
        struct served *plain = serve_live(roomy, together, N);
        struct served *swapped = serve_swapping(tight, 0, NULL, NULL);
        ck_assert_msg(swapped->err.kind == ERR_NONE, "%s", swapped->err.text);
        same_tokens(plain, swapped, N);
        ck_assert_uint_gt(swapping.n_swaps, 4);
        free(plain);
        free(swapped);
        system_close(roomy);
        system_close(tight);
    }
}

/* Copies wait for what was issued before them, and what is issued after them for the copies. */
TEST(a_device_that_works_behind_its_caller_swaps_in_order) {
    struct system *system = open_kind(0, "max_requests=3");
    struct served *plain = serve_live(system, together, N);
    struct device_table table = faulty_device(0);
    faulty.queues = true;
    struct served *swapped = serve_swapping(system, 0, &table, NULL);
    ck_assert_msg(swapped->err.kind == ERR_NONE, "%s", swapped->err.text);
    same_tokens(plain, swapped, N);
    free(plain);
    free(swapped);
    system_close(system);
}

static int fails_out(struct device *device, void *host, const void *memory, int64_t bytes,
                     int64_t pitch, int64_t n) {
    (void)device, (void)host, (void)memory, (void)bytes, (void)pitch, (void)n;
    return DEVICE_FAILED;
}

static int fails_in(struct device *device, void *memory, const void *host, int64_t bytes,
                    int64_t pitch, int64_t n) {
    return fails_out(device, memory, host, bytes, pitch, n);
}

static int fails_wait(struct device *device) {
    (void)device;
    return DEVICE_FAILED;
}

TEST(a_copy_that_fails_is_told) {
    static const char *const told[] = {"swapping a request out", "bringing a request back",
                                       "swapping requests"};
    for (int i = 0; i < 3; i++) {
        struct system *system = open_kind(i == 0 ? 0 : 7, "max_requests=3");
        struct device_table table = device_cpu;
        table.swap_out = i == 0 ? fails_out : table.swap_out;
        table.swap_in = i == 1 ? fails_in : table.swap_in;
        table.swap_wait = i == 2 ? fails_wait : table.swap_wait;
        struct served *served = serve_swapping(system, 0, &table, NULL);
        ck_assert_msg(strstr(served->err.text, told[i]) != NULL, "%s", served->err.text);
        free(served);
        system_close(system);
    }
}

/* One that leaves while it is swapped out leaves nothing, neither copy nor canvas. */
TEST(what_leaves_while_it_is_swapped_out_leaves_nothing_behind) {
    for (uint32_t at = 6; at < 30; at += 3) {
        struct system *system = open_kind(at % 2 == 0 ? 0 : 7, "max_requests=3");
        struct served *served = serve_swapping(system, at, NULL, NULL);
        ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
        ck_assert_uint_eq(served->result.completed + served->result.rejected, N);
        free(served);
        system_close(system);
    }
}

static void refuses(const char *setting, const char *other, const char *sentence) {
    const char *const settings[] = {"runtime=unmask",
                                    "swap.host_bytes=64MiB",
                                    "scheduler=continuous",
                                    "runtime.fused_head=off",
                                    setting,
                                    other,
                                    NULL};
    struct system *system = live_system_of("dllm-serve", "llada-tiny", settings);
    const struct engine_request asked = {
        .backend = BACKEND_CPU, .weights = "random:3", .system = system};
    struct engine *engine = NULL;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&asked, &engine, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, sentence);
    system_close(system);
}

TEST(what_the_engine_does_not_swap_is_refused) {
    refuses(
        "swap.overlaps=on", "cache=dual",
        "system dllm-serve does not run live, for it has swap.overlaps = on: the engine copies "
        "whole requests before a step, not layer by layer while it runs; set swap.overlaps = off");
}

SUITE("live_swap")
