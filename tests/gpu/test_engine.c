/* The engine on a GPU: logits of small models and the same steps on the GPU and on the CPU (which
 * tests/engine compares with PyTorch) under every cache policy, the same requests alone and
 * together, and what FOCUS evicts by the word of the device and of the host. A plain program:
 * `test_engine [LIBRARY [small | PART]]`, run where the repository's data is
 * (UNMASK_DATA), prints a line for each comparison and the count of failures; `small` keeps to what
 * a memory checker gets through, PART to one of main's: the CPU's side takes most of the time, and
 * parts that run next to each other take a core each. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/live.h"
#include "sim/base/rng.h"
#include "sim/serve/loop.h"
#include "sim/serve/positions.h"
#include "sim/step/builder.h"
#include "tests/gpu/told.h"
#include "tests/support/make.h"

enum { TOKENS = 77, VOCAB = 304 };

static const char *library;
static int head_size = 128; /* of the models that are served */

/* Which of their numbers are in fp8; those that are NULL are not. */
struct form {
    const char *weights, *activations, *head, *cache;
};
static struct form form;

static double relative_error(const float *found, const float *wanted, int64_t n) {
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = (double)found[i] - (double)wanted[i];
        apart += difference * difference;
        size += (double)wanted[i] * (double)wanted[i];
    }
    return sqrt(apart / size);
}

static const struct model llada_wide = {.name = "llada-wide",
                                        .family = "llada",
                                        .layers = 2,
                                        .hidden = 128,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .head_dim = 128,
                                        .ffn = 192,
                                        .vocab = VOCAB,
                                        .mask_token = VOCAB - 1,
                                        .max_positions = 256};
static const struct model dream_wide = {.name = "dream-wide",
                                        .family = "Dream",
                                        .layers = 2,
                                        .hidden = 128,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 128,
                                        .ffn = 192,
                                        .vocab = VOCAB,
                                        .mask_token = VOCAB - 1,
                                        .max_positions = 256,
                                        .qkv_bias = true,
                                        .shifted_logits = true};

/* The logits of all positions of one canvas, in one pass: launched, captured, launched as a graph,
 * as often as `rounds` says. `chunks` of the FFN alone: the logits are wanted whole. */
static void run_canvas(const struct engine_device *device, const struct model *model,
                       struct chunk_rows chunks, int rounds, float (*found)[TOKENS * VOCAB]) {
    struct err err = {0};
    int32_t ids[TOKENS], positions[TOKENS];
    struct weights weights;
    struct graph graph;
    struct forward *forward;
    must(weights_open(&weights, device, model, "random:7", &err), &err);
    graph_build(&graph, model,
                &(struct graph_options){.fused = true, .logits_bytes = 2, .engine = true});
    const struct step_limits limits =
        MAKE(struct step_limits, .max_requests = 1, .max_tokens = TOKENS, .max_logit_rows = TOKENS,
             .max_positions = 256, .canvas_tokens = 256, .workspace_bytes = 16 << 20);
    must(forward_open(device, &graph, &weights, &limits, &forward, &err), &err);
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i * 61 % VOCAB;
        positions[i] = i;
    }
    must(forward_write_canvas(forward, 0, ids, TOKENS, &err), &err);
    const struct span span = {
        .phase = PHASE_REFRESH, .queries = TOKENS, .first_queries = TOKENS, .logit_rows = TOKENS};
    const struct span *const spans[] = {&span};
    const struct step_part part = {.positions = positions};
    struct step_shape shape;
    struct placement placement;
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    shape.n_spans = 1;
    shape.spans = spans;
    placement_make(planner_find("first-fit", &err), &graph, &shape, chunks, &placement);
    const struct step step = {.placement = &placement, .shape = &shape, .parts = &part};
    for (int round = 0; round < rounds; round++) {
        double ns;
        must(round == 0 ? forward_submit(forward, &step, &err) : forward_again(forward, &err),
             &err);
        must(forward_wait(forward, &ns, &err), &err);
        must(forward_logits(forward, found[round], &err), &err);
    }
    forward_close(forward);
    weights_close(&weights);
}

/* On the GPU, by chunks of the FFN, as on the CPU in the same type. */
static void compare_canvas(const struct model *model, struct chunk_rows chunks) {
    static float wanted[1][TOKENS * VOCAB], found[3][TOKENS * VOCAB];
    struct engine_device cpu, device;
    struct err err = {0};
    must(engine_device_start(&device_cpu, KERNEL_BF16, &cpu, &err), &err);
    must(engine_device_open(BACKEND_CUDA, library, &device, &err), &err);
    run_canvas(&cpu, model, (struct chunk_rows){{0}}, 1, wanted);
    run_canvas(&device, model, chunks, 3, found);
    for (int round = 0; round < 3; round++) {
        double error = relative_error(found[round], wanted[0], (int64_t)TOKENS * VOCAB);
        check(error <= 1e-2,
              "%s, ffn by %d rows, pass %d: logits %.2e from the CPU's (at most 1e-2)", model->name,
              (int)chunks.of[CHUNK_FFN], round + 1, error);
    }
    engine_device_close(&device);
    engine_device_close(&cpu);
}

enum { REQUESTS = 5, STEPS = 40, MAX_TOKENS = 4096 };

/* One side: a system on a device, and its requests. */
struct side {
    struct system *system;
    struct engine *engine;
    struct live *live;
    struct positions positions; /* where has_positions */
    bool has_positions;
    struct request requests[REQUESTS];
    /* Of the step run last, by slot: how many logit rows, 0 where it was not in the step. */
    uint32_t n_rows[REQUESTS];
};

static bool smooths(const char *on) {
    return on != NULL && strcmp(on, "iteration") == 0;
}

/* "on" or "off" for the head; `on`: a setting that is turned on, or the iteration, smooth. */
static void open_side(struct side *side, enum backend backend, const char *model, const char *cache,
                      const char *head, const char *on) {
    struct err err = {0};
    const struct setting settings[] = {
        {"cache", "", "test", "", 0, 0},
        {"storage.weights", "", "test", "", 0, 0},
        {"max_batched_tokens", "4096", "test", "", 0, 0},
        {"context_tokens", "1024", "test", "", 0, 0},
        {"memory_utilization", "0.05", "test", "", 0, 0},
        {"runtime.fused_head", "", "test", "", 0, 0},
        {"decoder", "fixed", "test", "", 0, 0},
        {"page_tokens", "16", "test", "", 0, 0},
        {"runtime.vmm", "off", "test", "", 0, 0},
        {"model.head_dim", "", "test", "", 0, 0},
        {"storage.wide", "", "test", "", 0, 0},
        {"storage.activations", "", "test", "", 0, 0},
        {"storage.head", "", "test", "", 0, 0},
        {"storage.cache", "", "test", "", 0, 0},
    };
    const char *const wide = backend == BACKEND_CPU ? "f32" : "bf16";
    struct setting own[sizeof settings / sizeof settings[0]];
    memcpy(own, settings, sizeof own);
    snprintf(own[0].value, sizeof own[0].value, "%s", cache);
    const char *const types[] = {wide, form.activations, form.head, form.cache};
    snprintf(own[1].value, sizeof own[1].value, "%s", form.weights != NULL ? form.weights : wide);
    for (int i = 0; i < 4; i++) {
        snprintf(own[10 + i].value, sizeof own[10 + i].value, "%s",
                 types[i] != NULL ? types[i] : wide);
    }
    snprintf(own[5].value, sizeof own[5].value, "%s", head);
    snprintf(own[9].value, sizeof own[9].value, "%d", head_size);
    if (strcmp(cache, "dkv-decode") == 0) { /* what runs follows from what was decided: by draws */
        snprintf(own[6].value, sizeof own[6].value, "random");
    }
    if (strcmp(cache, "dllm-cache") == 0) { /* whose first layer runs whole canvases */
        snprintf(own[7].key, sizeof own[7].key, "kv");
        snprintf(own[7].value, sizeof own[7].value, "slab");
    }
    if (strcmp(cache, "sparse-attention") == 0) { /* blocks of whole tiles, and others */
        snprintf(own[7].key, sizeof own[7].key, "cache.pattern_tokens");
        snprintf(own[7].value, sizeof own[7].value, strcmp(head, "on") == 0 ? "128" : "16");
    }
    if (on != NULL) {
        snprintf(own[8].key, sizeof own[8].key, "%s", on);
        snprintf(own[8].value, sizeof own[8].value, smooths(on) ? "smooth" : "on");
    }
    const struct system_request request =
        MAKE(struct system_request, .system = "dllm-serve", .model = model, .gpu = "l40s",
             .overrides = own, .n_overrides = sizeof own / sizeof own[0], .roofline = true);
    must(system_open(&request, &side->system, &err), &err);
    const struct engine_request wanted = {
        .backend = backend, .library = library, .weights = "random:7", .system = side->system};
    must(engine_open(&wanted, &side->engine, &err), &err);
    must(live_open(side->engine, 1, true, &side->live, &err), &err);
    side->has_positions = positions_wanted(side->system);
    if (side->has_positions) {
        positions_init(&side->positions, side->system, 1, REQUESTS);
    }
}

static void close_side(struct side *side) {
    if (side->has_positions) {
        positions_fini(&side->positions);
    }
    live_close(side->live);
    engine_close(side->engine);
    system_close(side->system);
}

static void enter_block(struct side *side, uint32_t slot, uint32_t block) {
    struct request *request = &side->requests[slot];
    window_enter(request, block);
    if (side->has_positions) {
        positions_enter(&side->positions, slot, request, 0);
    }
}

static void plan(struct side *side, uint32_t slot) {
    const struct system *system = side->system;
    struct request *request = &side->requests[slot];
    const void *memory = NULL;
    uint32_t repeat;
    if (side->has_positions) {
        positions_plan(&side->positions, slot, request, true);
        memory = positions_memory(&side->positions, slot);
    }
    (void)cache_plan(system->cache, system->cache_state, memory, request);
    if (side->has_positions) {
        positions_run(&side->positions, slot, request);
    }
    bool first = window_steps(request) == 0 && request->span.queries == request->canvas_tokens;
    request->span.logit_rows =
        system_scope_rows(&system->settings, request->span.logit_rows, request->output_tokens,
                          rows_in_block(&request->rows, request), window_masked(request), first);
    request->commit_tokens = system->decoder->count(system->decoder_state, request, &repeat);
}

static void admit_all(struct side *side) {
    struct rng rng = rng_stream(5, "lengths");
    struct err err = {0};
    struct executor executor = live_interface(side->live);
    for (uint32_t slot = 0; slot < REQUESTS; slot++) {
        struct request *request = &side->requests[slot];
        *request = MAKE(struct request, .id = slot,
                        .prompt_tokens = 1 + (uint32_t)(rng_uniform(&rng) * 150),
                        .output_tokens = 40 + (uint32_t)(rng_uniform(&rng) * 60),
                        .block_tokens = side->system->settings.block_tokens, .steps_per_block = 8,
                        .state = REQUEST_RUNNING);
        request->canvas_tokens = request->prompt_tokens + request->output_tokens;
        if (side->has_positions) {
            positions_start(&side->positions, slot, UINT32_MAX);
        }
        enter_block(side, slot, 0);
        plan(side, slot);
        request->kv_rows = request->rows.held;
        request->kv_bytes = budget_request_bytes(&side->system->budget, request->kv_rows);
        must(executor.admit(executor.state, 0, slot, request, NULL, &err), &err);
    }
}

/* One step of all requests that are not done, or of one of them. */
enum { ALL = -1 };
static void run_step(struct side *side, int only) {
    const struct span *spans[REQUESTS];
    struct planned_block blocks[REQUESTS];
    uint32_t slots[REQUESTS], n = 0;
    struct step_shape shape;
    struct live_times times;
    struct err err = {0};
    shape_clear(&shape);
    for (uint32_t slot = 0; slot < REQUESTS; slot++) {
        const struct request *request = &side->requests[slot];
        side->n_rows[slot] = 0;
        if (request->committed_tokens < request->output_tokens &&
            (only == ALL || only == (int)slot)) {
            side->n_rows[slot] = request->span.logit_rows;
            spans[n] = &request->span;
            if (side->has_positions) {
                blocks[n] = positions_block(&side->positions, slot);
            }
            slots[n++] = slot;
            shape_add(shape.sym, &request->span, 1);
        }
    }
    shape.n_spans = n;
    shape.spans = spans;
    const struct planned_step planned =
        MAKE(struct planned_step, .shape = &shape,
             .workspace_bytes = budget_workspace_bytes(&side->system->budget, 0),
             .requests = side->requests, .slots = slots, .n_slots = n,
             .blocks = side->has_positions ? blocks : NULL);
    if (n > 0) {
        must(live_execute(side->live, &planned, 1, NULL, &times, &err), &err);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &side->requests[slots[i]];
        if (side->has_positions) {
            struct outcomes found;
            bool is_allowed = positions_pass(&side->positions, slots[i], request, true,
                                             request->commit_tokens, true, &found);
            if (!is_allowed || found.n[OUTCOME_COMMIT] != request->commit_tokens) {
                check(false, "positions of request %u: the block allows other commits", i);
            }
        }
        window_list(request, window_masked(request), window_known(request));
        window_advance(request, 1, request->commit_tokens);
        request->steps++;
        if (window_masked(request) == 0 && request->committed_tokens < request->output_tokens) {
            enter_block(side, slots[i], window_block(request) + 1);
        }
        if (request->committed_tokens < request->output_tokens) {
            plan(side, slots[i]);
        }
    }
}

/* What one side has in its canvases goes into the other's, so that one near tie does not end the
 * comparison. Both allocated the same canvases in the same order, from the top down. */
static void compare_canvases(struct side *cpu, struct side *gpu, int64_t *n_same, int64_t *n_all) {
    int64_t n = 0, top = cpu->engine->limits.canvas_tokens;
    struct err err = {0};
    for (int i = 0; i < REQUESTS; i++) {
        n += cpu->requests[i].canvas_tokens;
    }
    int32_t *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    must(forward_read_canvas(cpu->engine->forward, top - n, a, n, &err), &err);
    must(forward_read_canvas(gpu->engine->forward, top - n, b, n, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        *n_same += a[i] == b[i];
    }
    *n_all += n;
    must(forward_write_canvas(gpu->engine->forward, top - n, a, n, &err), &err);
    free(a);
    free(b);
}

/* Tokens and positions that a step committed agree but for near ties, which bf16 decides otherwise
 * than float32; a wrong cache or a wrong row would leave few of them alike. */
static void compare_with_cpu(const char *model, const char *cache, const char *head,
                             const char *on) {
    struct side cpu = {0}, gpu = {0};
    int64_t n_same = 0, n_all = 0;
    open_side(&cpu, BACKEND_CPU, model, cache, head, smooths(on) ? on : NULL);
    open_side(&gpu, BACKEND_CUDA, model, cache, head, on);
    admit_all(&cpu);
    admit_all(&gpu);
    for (int step = 0; step < STEPS; step++) {
        run_step(&cpu, ALL);
        run_step(&gpu, ALL);
        compare_canvases(&cpu, &gpu, &n_same, &n_all);
    }
    double share = (double)n_same / (double)n_all;
    check(share >= (form.weights != NULL ? 0.95 : 0.98),
          "%s, heads of %d, cache %s, fused head %s, %s: %.3f %% of canvas tokens as on the CPU",
          model, head_size, cache, head, on != NULL ? on : "as it is", 100 * share);
    struct engine_memory memory = engine_memory(gpu.engine);
    check(memory.metered_bytes + memory.unmapped_bytes == memory.planned_bytes,
          "%s, cache %s: %" PRId64 " bytes metered, %" PRId64 " planned, of which %" PRId64
          " are not mapped",
          model, cache, memory.metered_bytes, memory.planned_bytes, memory.unmapped_bytes);
    bool maps = on != NULL && strcmp(on, "runtime.vmm") == 0;
    check(memory.is_mapped == maps && (memory.unmapped_bytes > 0) == maps &&
              memory.mapping_calls <= (maps ? 20 : 0),
          "%s, cache %s, %s: %" PRId64 " calls to map memory, %.3f ms", model, cache,
          on != NULL ? on : "as it is", memory.mapping_calls, (double)memory.mapping_ns * 1e-6);
    close_side(&cpu);
    close_side(&gpu);
}

/* What co-batched requests changed. */
struct change {
    int64_t n_confidences, n_changed; /* as bits */
    int64_t n_tokens, n_other_tokens; /* of canvases, at the end */
    char first[120];
};

static void read_confidences(struct side *side, float *confidences) {
    const struct step_result result = {.confidence = confidences};
    struct err err = {0};
    must(forward_result(side->engine->forward, &result, &err), &err);
}

/* One request's step alone against its rows of the step together. */
static void step_alone(struct side *alone, int slot, uint32_t phase, const float *together,
                       int step, struct change *change) {
    static float confidences[MAX_TOKENS];
    run_step(alone, slot);
    read_confidences(alone, confidences);
    for (uint32_t row = 0; row < alone->n_rows[slot]; row++) {
        bool same = memcmp(&confidences[row], &together[row], sizeof *together) == 0;
        if (!same && change->n_changed == 0) {
            snprintf(change->first, sizeof change->first,
                     "; first in step %d, request %d, in %s, row %" PRIu32 ": %.9g alone, %.9g",
                     step, slot, phase_names[phase], row, (double)confidences[row],
                     (double)together[row]);
        }
        change->n_changed += !same;
        change->n_confidences++;
    }
}

/* The same requests on two engines: all in one batch, and each in batches of its own. */
static struct change run_both_ways(const char *model, const char *cache, const char *head,
                                   const char *on) {
    static float confidences[MAX_TOKENS];
    struct side together = {0}, alone = {0};
    struct change change = {0};
    int64_t n_same = 0;
    open_side(&together, BACKEND_CUDA, model, cache, head, on);
    open_side(&alone, BACKEND_CUDA, model, cache, head, on);
    admit_all(&together);
    admit_all(&alone);
    for (int step = 0; step < STEPS; step++) {
        run_step(&together, ALL);
        read_confidences(&together, confidences);
        const float *rows = confidences;
        for (int slot = 0; slot < REQUESTS; slot++) {
            if (together.n_rows[slot] > 0) {
                step_alone(&alone, slot, alone.requests[slot].span.phase, rows, step, &change);
                rows += together.n_rows[slot];
            }
        }
    }
    compare_canvases(&together, &alone, &n_same, &change.n_tokens);
    change.n_other_tokens = change.n_tokens - n_same;
    close_side(&together);
    close_side(&alone);
    return change;
}

/* Without the option co-batched requests may change bits: printed only. */
static void compare_with_alone(const char *model, const char *cache, const char *head) {
    struct change on = run_both_ways(model, cache, head, "runtime.batch_invariant");
    check(on.n_changed == 0 && on.n_other_tokens == 0 && on.n_confidences > 0,
          "%s, heads of %d, cache %s, fused head %s, batch_invariant on: co-batched requests "
          "change %" PRId64 " of %" PRId64 " confidences, %" PRId64 " of %" PRId64 " tokens%s",
          model, head_size, cache, head, on.n_changed, on.n_confidences, on.n_other_tokens,
          on.n_tokens, on.first);
    struct change off = run_both_ways(model, cache, head, NULL);
    printf("         with it off: %" PRId64 " of %" PRId64 " confidences, %" PRId64 " of %" PRId64
           " tokens\n",
           off.n_changed, off.n_confidences, off.n_other_tokens, off.n_tokens);
}

enum { FOCUSED = 24, FOCUSED_OUTPUT = 80 };

struct focused {
    struct loop_result result;
    int32_t tokens[FOCUSED][FOCUSED_OUTPUT];
    uint32_t next;
};

static enum source_reply next_focused(void *state, struct arrival *out, struct err *err) {
    struct focused *run = state;
    (void)err;
    if (run->next == FOCUSED) {
        return SOURCE_END;
    }
    *out = (struct arrival){.id = run->next,
                            .prompt_tokens = 20 + run->next * 7,
                            .output_tokens = FOCUSED_OUTPUT - run->next};
    run->next++;
    return SOURCE_ROW;
}

static int keep_focused(void *state, uint64_t id, const int32_t *tokens, uint32_t n,
                        struct err *err) {
    struct focused *run = state;
    (void)err;
    memcpy(run->tokens[id], tokens, n * sizeof *tokens);
    return 0;
}

/* The system's run on the card, whose requests `next` gives. */
static void serve(const struct system_request *request,
                  enum source_reply (*next)(void *, struct arrival *, struct err *),
                  struct focused *run) {
    struct err err = {0};
    struct system *system;
    struct engine *engine;
    struct live *live;
    must(system_open(request, &system, &err), &err);
    const struct engine_request wanted = {
        .backend = BACKEND_CUDA, .library = library, .weights = "random:7", .system = system};
    must(engine_open(&wanted, &engine, &err), &err);
    must(live_open(engine, 1, true, &live, &err), &err);
    *run = (struct focused){0};
    live_set_output(live, keep_focused, run);
    const struct loop_request served =
        MAKE(struct loop_request, .system = system, .executor = live_interface(live),
             .source = {.state = run, .next = next}, .seed = 1);
    must(loop_run(&served, &run->result, &err), &err);
    live_close(live);
    engine_close(engine);
    system_close(system);
}

/* Requests of several lengths under focus, whose batches change no bit. */
static void serve_focused(const char *loops, const char *decoder, struct focused *run) {
    struct setting settings[] = {
        {"scheduler.multi_loop", "", "test", "", 0, 0},
        {"decoder", "", "test", "", 0, 0},
        {"decoder.threshold", "0.02", "test", "", 0, 0},
        {"block_tokens", "16", "test", "", 0, 0},
        {"steps_per_block", "16", "test", "", 0, 0},
        {"max_batched_tokens", "2048", "test", "", 0, 0},
        {"context_tokens", "1024", "test", "", 0, 0},
        {"memory_utilization", "0.05", "test", "", 0, 0},
        {"max_requests", "16", "test", "", 0, 0},
        {"runtime.batch_invariant", "on", "test", "", 0, 0},
        {"storage.weights", "bf16", "test", "", 0, 0},
        {"model.head_dim", "", "test", "", 0, 0},
    };
    snprintf(settings[11].value, sizeof settings[11].value, "%d", head_size);
    snprintf(settings[0].value, sizeof settings[0].value, "%s", loops);
    snprintf(settings[1].value, sizeof settings[1].value, "%s", decoder);
    if (strcmp(decoder, "fixed") == 0) {
        settings[2] = settings[3];
    }
    const struct system_request request =
        MAKE(struct system_request, .system = "focus", .model = "sdar-tiny", .gpu = "l40s",
             .overrides = settings, .n_overrides = sizeof settings / sizeof settings[0],
             .roofline = true);
    serve(&request, next_focused, run);
}

/* Several steps a decision beside one: the same tokens, and both evict. */
static void compare_loops(const char *decoder) {
    static struct focused one, several;
    serve_focused("off", decoder, &one);
    serve_focused("on", decoder, &several);
    int64_t n_same = 0, n_all = FOCUSED * (int64_t)FOCUSED_OUTPUT;
    for (int64_t t = 0; t < n_all; t++) {
        n_same += (&one.tokens[0][0])[t] == (&several.tokens[0][0])[t];
    }
    bool evicts = several.result.sym[SYM_KEPT_Q] < several.result.sym[SYM_BLOCK_Q];
    check(n_same == n_all && evicts && several.result.completed == FOCUSED,
          "focus, heads of %d, decoder %s, several steps a decision: %" PRId64 " of %" PRId64
          " tokens as with one, %" PRId64 " of %" PRId64 " tokens kept",
          head_size, decoder, n_same, n_all, several.result.sym[SYM_KEPT_Q],
          several.result.sym[SYM_BLOCK_Q]);
}

/* Requests that begin alike, in groups of eight that come one after the other: what the first of a
 * group computes the others of it find, and all but the first group have few pages left. */
static enum source_reply next_alike(void *state, struct arrival *out, struct err *err) {
    struct focused *run = state;
    (void)err;
    if (run->next == FOCUSED) {
        return SOURCE_END;
    }
    const uint32_t i = run->next++;
    *out = (struct arrival){.id = i,
                            .arrival_ns = i / 8 * INT64_C(1000000000),
                            .prompt_tokens = 100 + i * 5,
                            .output_tokens = FOCUSED_OUTPUT - i,
                            .shares = 1 + i / 8,
                            .prefix_tokens = 90 + i % 8};
    return SOURCE_ROW;
}

static void serve_alike(const char *pairs[][2], uint32_t n, struct focused *run) {
    struct setting settings[16] = {0};
    for (uint32_t i = 0; i < n; i++) {
        snprintf(settings[i].place, sizeof settings[i].place, "test");
        snprintf(settings[i].key, sizeof settings[i].key, "%s", pairs[i][0]);
        snprintf(settings[i].value, sizeof settings[i].value, "%s", pairs[i][1]);
    }
    const bool is_causal = strcmp(pairs[n - 1][1], "1") == 0;
    const struct system_request request =
        MAKE(struct system_request, .system = is_causal ? "vllm-ar" : "sdar",
             .model = is_causal ? "qwen2.5-tiny" : "sdar-tiny", .gpu = "l40s",
             .overrides = settings, .n_overrides = n, .roofline = true);
    serve(&request, next_alike, run);
}

/* With prefix caching and without: the same tokens, of which fewer are computed. */
static void compare_prefixes(const char *blocks, const char *pages, const char *decoder,
                             const char *pool_pages) {
    static struct focused with, without;
    char size[16];
    snprintf(size, sizeof size, "%d", head_size);
    const char *pairs[][2] = {{"prefix_caching", "on"},
                              {"pool_pages", pool_pages},
                              {"decoder", decoder},
                              {"page_tokens", pages},
                              {"model.head_dim", size},
                              {"runtime", "unmask"},
                              {"runtime.batch_invariant", "on"},
                              {"storage.weights", "bf16"},
                              {"max_batched_tokens", "512"},
                              {"context_tokens", "1024"},
                              {"memory_utilization", "0.05"},
                              {"block_tokens", blocks}};
    const uint32_t n = sizeof pairs / sizeof pairs[0];
    serve_alike(pairs, n, &with);
    pairs[0][1] = "off";
    serve_alike(pairs, n, &without);
    const int64_t n_all = FOCUSED * (int64_t)FOCUSED_OUTPUT;
    int64_t n_same = 0;
    for (int64_t t = 0; t < n_all; t++) {
        n_same += (&with.tokens[0][0])[t] == (&without.tokens[0][0])[t];
    }
    const int64_t *few = with.result.sym, *many = without.result.sym;
    check(n_same == n_all && few[SYM_TOKENS] < many[SYM_TOKENS] && with.result.completed == FOCUSED,
          "prefix caching, blocks of %s, pages of %s, decoder %s, %s pages: %" PRId64 " of %" PRId64
          " tokens as without, %" PRId64 " computed of %" PRId64,
          blocks, pages, decoder, pool_pages, n_same, n_all, few[SYM_TOKENS], many[SYM_TOKENS]);
}

static void compare_all_prefixes(void) {
    compare_prefixes("4", "4", "fixed", "0");
    compare_prefixes("4", "4", "threshold", "200");
    compare_prefixes("32", "32", "threshold", "0");
    compare_prefixes("32", "16", "fixed", "60");
    compare_prefixes("1", "16", "fixed", "60");
}

static const char *const models[] = {"llada-tiny", "dream-tiny"};
static const char *const caches[] = {"none", "prefix", "dual", "sparse-uniform", "sparse-head"};
static const char *const ways[] = {NULL, "runtime.vmm", "runtime.batch_invariant"};
static bool small;

/* Heads of all other sizes, under each cache policy. */
static void compare_heads(void) {
    static const int sizes[] = {64, 96, 256};
    for (int i = 0; i < 3; i++) {
        head_size = sizes[i];
        compare_loops("threshold");
        for (int c = small ? 4 : 0; c < 5; c++) {
            compare_with_cpu(models[(i + c) % 2], caches[c], c % 2 == 0 ? "on" : "off", NULL);
        }
        compare_with_cpu(models[0], "dkv-decode", "off", NULL);
        compare_with_cpu(models[0], "dllm-cache", "off", NULL);
        compare_with_alone(models[i % 2], "dual", "on");
        compare_with_alone(models[i % 2], "sparse-head", "off");
    }
    head_size = 128;
}

/* Patterns, which some step of each request chooses. */
static void compare_patterns(void) {
    for (int i = 0; i < 3; i++) {
        compare_with_cpu(models[i % 2], "sparse-attention", i == 1 ? "on" : "off", ways[i]);
    }
    compare_with_cpu(models[0], "sparse-attention", "on", NULL);
    compare_with_alone(models[0], "sparse-attention", "off");
    compare_with_alone(models[1], "sparse-attention", "on");
}

/* Every form under each cache policy that it goes with, of a mixture, too, whose experts' choices
 * noise changes. Agreement of what follows from rounded inputs is smaller than of bf16. */
static void compare_fp8(void) {
    static const struct form forms[] = {
        {.cache = "fp8"},
        {.weights = "fp8"},
        {.weights = "fp8", .activations = "fp8"},
        {.weights = "fp8-channel", .activations = "fp8-channel"},
        {.weights = "fp8", .activations = "fp8", .head = "fp8", .cache = "fp8"},
    };
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        form = forms[f];
        printf("fp8: weights %s, inputs %s, head %s, cache %s\n",
               form.weights != NULL ? form.weights : "no",
               form.activations != NULL ? form.activations : "no",
               form.head != NULL ? form.head : "no", form.cache != NULL ? form.cache : "no");
        for (int c = 0; c < 5; c++) {
            head_size = f == 0 && c > 0 ? (c % 2 ? 64 : 256) : 128;
            compare_with_cpu(models[form.head != NULL ? 0 : (int)(f + (size_t)c) % 2], caches[c],
                             c % 2 == 0 ? "on" : "off", NULL);
        }
        head_size = 128;
        compare_with_cpu("llada-moe-tiny", "dual", "on", NULL);
        compare_with_cpu(models[0], "dual", "off", "runtime.vmm");
        compare_with_alone(models[0], f % 2 == 0 ? "dual" : "sparse-head", "on");
    }
    form = (struct form){NULL, NULL, NULL, NULL};
}

static void compare_whole_canvases(void) {
    static const struct chunk_rows ffn_chunks[] = {{{0}}, {{0, 32, 0}}, {{0, 7, 0}}};
    for (int i = 0; i < 3; i++) {
        compare_canvas(&llada_wide, ffn_chunks[i]);
        compare_canvas(&dream_wide, ffn_chunks[i]);
    }
    compare_loops("fixed");
    compare_loops("threshold");
}

static void compare_caches(void) {
    for (int m = 0; m < (small ? 1 : 2); m++) {
        for (int c = small ? 4 : 0; c < 5; c++) {
            compare_with_cpu(models[m], caches[c], c % 2 == 0 ? "on" : "off", NULL);
            compare_with_alone(models[m], caches[c], (c + m) % 2 == 0 ? "on" : "off");
        }
    }
    for (int c = small ? 4 : 0; c < 5; c++) {
        compare_with_cpu("llada-moe-tiny", caches[c], c % 2 == 0 ? "off" : "on", NULL);
    }
    compare_with_alone("llada-moe-tiny", "dual", "on");
}

/* Mapped memory, steps that hold an iteration of all requests, the same sums in every batch. */
static void compare_ways(void) {
    for (int c = small ? 4 : 0; c < 5; c++) {
        compare_with_cpu(models[0], caches[c], "off", "runtime.vmm");
        compare_with_cpu(models[c % 2], caches[c], "off", "iteration");
    }
    for (int c = small ? 4 : 2; c < 5; c += 2) {
        compare_with_cpu(models[1], caches[c], "on", "runtime.batch_invariant");
    }
}

/* Positions that lie scattered, and features, of which layers pick rows. */
static void compare_scattered(void) {
    for (int i = 0; i < 3; i++) {
        compare_with_cpu(models[0], "dkv-decode", i == 1 ? "on" : "off", ways[i]);
        compare_with_cpu(models[i % 2], "dllm-cache", i == 1 ? "on" : "off", ways[i]);
    }
    compare_with_cpu("llada-moe-tiny", "dkv-decode", "on", NULL);
    compare_with_cpu("llada-moe-tiny", "dllm-cache", "off", NULL);
    compare_with_cpu(models[0], "dllm-cache", "off", "iteration");
    compare_with_alone(models[0], "dkv-decode", "off");
    compare_with_alone(models[1], "dllm-cache", "off");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*compare)(void);
        bool small_too;
    } parts[] = {{"canvases", compare_whole_canvases, true},
                 {"prefixes", compare_all_prefixes, true},
                 {"heads", compare_heads, true},
                 {"caches", compare_caches, true},
                 {"ways", compare_ways, true},
                 {"scattered", compare_scattered, true},
                 {"patterns", compare_patterns, true},
                 {"fp8", compare_fp8, false}};
    const char *part = argc > 2 ? argv[2] : "";
    library = argc > 1 ? argv[1] : NULL;
    small = strcmp(part, "small") == 0;
    bool known = small || *part == 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const bool named = strcmp(part, parts[i].name) == 0;
        known |= named;
        if (named || *part == 0 || (small && parts[i].small_too)) {
            parts[i].compare();
        }
    }
    check(known, "a part that is known, not %s", part);
    return told();
}
