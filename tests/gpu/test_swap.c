/* Requests that are swapped out of a GPU to the host's memory and brought back: whatever is swapped
 * out when, their tokens are those of a run without, bit for bit (batch-invariant kernels, random
 * weights). Exact caches, whose rows lie in pages of all layers, and the dense stores of others,
 * with and without mapped memory. A plain program: `test_swap [cuda|cpu [LIBRARY [RANKS]]]`, run
 * where the repository's data is (UNMASK_DATA), prints a line for each comparison and the count of
 * failures. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/live.h"
#include "sim/serve/loop.h"
#include "tests/gpu/told.h"
#include "tests/support/make.h"
#define LIVE_ALWAYS 5 /* the models as wide as they are */
#include "tests/support/swapping.h"

enum { N = 12, OUTPUT = 64 };

static enum backend backend = BACKEND_CUDA;
static const char *library;
static char parallel[32] = "tensor_parallel=1";

struct run {
    struct loop_result result;
    struct swap swap; /* summed */
    int32_t tokens[N][OUTPUT];
    uint32_t next;
};

static enum source_reply next_arrival(void *state, struct arrival *out, struct err *err) {
    struct run *run = state;
    (void)err;
    if (run->next == N) {
        return SOURCE_END;
    }
    *out = MAKE(struct arrival, .id = run->next, .prompt_tokens = 20 + run->next * 17,
                .output_tokens = OUTPUT - 2 * run->next);
    run->next++;
    return SOURCE_ROW;
}

static int keep_output(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                       struct err *err) {
    struct run *run = state;
    (void)err;
    memcpy(run->tokens[id], tokens, n * sizeof *tokens);
    return 0;
}

static int keep_step(void *state, const struct step_record *record, struct err *err) {
    struct run *run = state;
    (void)err;
    run->swap.n_out += record->swap.n_out;
    run->swap.n_in += record->swap.n_in;
    run->swap.out_bytes += record->swap.out_bytes;
    run->swap.in_bytes += record->swap.in_bytes;
    run->swap.stall_ns += record->swap.stall_ns;
    return 0;
}

static const char *const always[] = {
    "scheduler=continuous", "runtime=unmask",          "runtime.batch_invariant=on",
    "max_requests=3",       "max_batched_tokens=2048", "context_tokens=1024",
    "block_tokens=16",      "memory_utilization=0.05", "swap.host_bytes=256MiB"};
enum { N_ALWAYS = sizeof always / sizeof always[0], N_SETTINGS = N_ALWAYS + 4 };

struct kind {
    const char *system, *model, *settings[2];
};

static void put(struct setting *setting, const char *text) {
    const char *equals = strchr(text, '=');
    *setting = (struct setting){.place = "test"};
    snprintf(setting->key, sizeof setting->key, "%.*s", (int)(equals - text), text);
    snprintf(setting->value, sizeof setting->value, "%s", equals + 1);
}

static void serve(const struct kind *kind, bool swaps, struct run *run) {
    static struct setting settings[N_SETTINGS];
    struct err err = {0};
    for (int i = 0; i < N_ALWAYS; i++) {
        put(&settings[i], always[i]);
    }
    put(&settings[N_ALWAYS], kind->settings[0]);
    put(&settings[N_ALWAYS + 1], kind->settings[1]);
    put(&settings[N_ALWAYS + 2],
        backend == BACKEND_CPU ? "storage.weights=f32" : "storage.weights=bf16");
    put(&settings[N_ALWAYS + 3], parallel);
    const struct system_request request = {.system = kind->system,
                                           .model = kind->model,
                                           .gpu = backend == BACKEND_CPU ? "cpu" : "l40s",
                                           .overrides = settings,
                                           .n_overrides = N_SETTINGS,
                                           .roofline = true};
    struct system *system;
    struct engine *engine;
    struct live *live;
    must(system_open(&request, &system, &err), &err);
    const struct engine_request wanted = {
        .backend = backend, .library = library, .weights = "random:7", .system = system};
    must(engine_open(&wanted, &engine, &err), &err);
    must(live_open(engine, 1, true, &live, &err), &err);
    *run = (struct run){.next = 0};
    swapping_begin(0);
    system->scheduler = swaps ? &swapping_scheduler : system->scheduler;
    live_set_output(live, keep_output, run);
    const struct sink sink = {.state = run, .step = keep_step};
    const struct loop_request served = MAKE(
        struct loop_request, .system = system, .executor = live_interface(live),
        .source = {.state = run, .next = next_arrival}, .sinks = &sink, .n_sinks = 1, .seed = 1);
    must(loop_run(&served, &run->result, &err), &err);
    live_close(live);
    engine_close(engine);
    system_close(system);
}

static void compare(const struct kind *kind) {
    static struct run plain, swapped;
    serve(kind, false, &plain);
    serve(kind, true, &swapped);
    int64_t n_same = 0;
    for (int t = 0; t < N * OUTPUT; t++) {
        n_same += (&plain.tokens[0][0])[t] == (&swapped.tokens[0][0])[t];
    }
    const struct swap *swap = &swapped.swap;
    const bool is_good = n_same == N * OUTPUT && swap->n_out > 10 && swap->n_in == swap->n_out &&
                         swap->in_bytes == swap->out_bytes && swap->out_bytes > 0 &&
                         swapped.result.completed == N;
    n_passed += is_good;
    n_failed += !is_good;
    printf("%s %s, %s, %s, %s: %" PRId64 " of %d tokens as without; %" PRIu64
           " swapped out and %" PRIu64 " brought back, %.1f MiB in %.3f ms\n",
           is_good ? "ok    " : "FAILED", kind->system, kind->model, kind->settings[0],
           kind->settings[1], n_same, N * OUTPUT, swap->n_out, swap->n_in,
           (double)(swap->out_bytes + swap->in_bytes) / 0x1p20, (double)swap->stall_ns / 1e6);
}

int main(int argc, char **argv) {
    static const struct kind kinds[] = {
        {"sdar", "sdar-tiny", {"page_tokens=16", "decoder=fixed"}},
        {"sdar", "sdar-tiny", {"page_tokens=256", "decoder=threshold"}},
        {"ar", "qwen2.5-tiny", {"page_tokens=16", "block_tokens=1"}},
        {"focus", "sdar-tiny", {"page_tokens=16", "decoder.threshold=0.02"}},
        {"dllm-serve", "llada-tiny", {"cache=dual", "kv=pages"}},
        {"dllm-serve", "llada-tiny", {"cache=sparse-head", "kv=pages"}},
        {"dllm-serve", "llada-tiny", {"cache=sparse-uniform", "kv=slab"}},
        {"dllm-serve", "llada-tiny", {"cache=dual", "runtime.vmm=on"}},
        {"dkv-cache", "llada-tiny", {"kv=slab", "runtime.vmm=on"}},
    };
    backend = argc > 1 && strcmp(argv[1], "cpu") == 0 ? BACKEND_CPU : BACKEND_CUDA;
    library = argc > 2 ? argv[2] : NULL;
    if (argc > 3) {
        snprintf(parallel, sizeof parallel, "tensor_parallel=%s", argv[3]);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        compare(&kinds[i]);
    }
    return told();
}
