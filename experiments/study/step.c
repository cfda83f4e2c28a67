#include "experiments/study/step.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/run/asked.h"
#include "sim/base/mem.h"
#include "sim/memory/usage.h"
#include "sim/serve/lifecycle.h"

const struct option step_options[] = {
    {"requests", "N", "requests in the batch, all at the same step (default: 1)", false},
    {"input-tokens", "N", "tokens of each prompt (default: 512)", false},
    {"output-tokens", "N", "tokens of each output (default: 256)", false},
    {"step", "N", "steps each has done before this one (default: 0)", false},
    {"refresh", "N", "instead: requests at their first refresh step", false},
    {"reuse", "N", "and requests at their first reuse step", false},
    {NULL, NULL, NULL, false},
};

enum { MOST_REQUESTS = 65536, ANY_PHASE = -1 };

struct wanted {
    uint64_t requests, prompt, output, step, refresh, reuse;
};

struct walk {
    struct system *system;
    struct lifecycle life;
    struct loop_request asked;
    struct loop_result result;
    enum reject_reason reason;
};

static int note_rejection(void *state, const struct request_record *record, struct err *err) {
    (void)err;
    *(enum reject_reason *)state = (enum reject_reason)record->reason;
    return 0;
}

static int admit(struct walk *walk, const struct wanted *wanted, struct err *err) {
    struct arrival arrival = {.prompt_tokens = (uint32_t)wanted->prompt,
                              .output_tokens = (uint32_t)wanted->output};
    int status = lifecycle_arrive(&walk->life, &arrival, err);
    if (status == 0 && walk->result.rejected > 0) {
        return err_world(err, "%s rejects a request of %" PRIu64 " + %" PRIu64 " tokens on %s: %s",
                         walk->system->name, wanted->prompt, wanted->output,
                         walk->system->gpu->name, reject_reason_names[walk->reason]);
    }
    struct replica *replica = &walk->life.replicas[0];
    if (status == 0) {
        replica->n_waiting--;
        status = lifecycle_admit(&walk->life, replica, replica->waiting[replica->head++], err);
    }
    return status;
}

struct planned_block step_block(const struct step_kind *kind, uint32_t i) {
    size_t n = kind->block_tokens;
    uint8_t *at = kind->flags + i * (size_t)PATH_FLAGS * n;
    return (struct planned_block){
        .masked = at, .run = at + n, .keep = at + 2 * n, .outcome = at + 3 * n};
}

/* The step before this one committed what is no longer masked; this one, for all that is known, the
 * first that it may commit. */
static void remember(struct step_kind *kind, const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    const struct planned_block block = positions_block(&life->positions, slot);
    size_t n = kind->block_tokens = settings_window_tokens(&life->system->settings);
    kind->path = mem_resized(kind->path, kind->n_path + 1, sizeof *kind->path);
    kind->flags = mem_resized(kind->flags, ((size_t)kind->n_path + 1) * PATH_FLAGS, n);
    uint8_t *at = kind->flags + kind->n_path * (size_t)PATH_FLAGS * n;
    memset(at, 0, (size_t)PATH_FLAGS * n);
    memcpy(at, block.masked, window_length(request));
    memcpy(at + n, block.run, window_length(request));
    memcpy(at + 2 * n, block.keep, window_length(request));
    for (uint32_t i = 0, taken = 0; i < window_length(request) && !taken; i++) {
        at[3 * n + i] = block.masked[i] && block.keep[i];
        taken += at[3 * n + i];
    }
    if (kind->n_path > 0) {
        const struct request *last = &kind->path[kind->n_path - 1];
        const struct planned_block before = step_block(kind, kind->n_path - 1);
        for (uint32_t i = 0; i < window_length(last); i++) {
            bool is_left = window_block(last) == window_block(request) && block.masked[i];
            before.outcome[i] =
                before.masked[i] && before.keep[i] && !is_left ? OUTCOME_COMMIT : OUTCOME_NONE;
        }
    }
    kind->path[kind->n_path++] = *request;
}

/* Step by step to `n_steps`, or to the first step of `phase`. */
static int advance(struct walk *walk, uint64_t n_steps, int phase, struct step_kind *out,
                   struct err *err) {
    struct replica *replica = &walk->life.replicas[0];
    uint32_t slot = replica->running[0];
    const struct request *request = &walk->life.requests[slot];
    for (uint64_t step = 0;; step++) {
        if (replica->n_running == 0 && phase != ANY_PHASE) {
            return err_usage(err, "%s: such a request has no %s step", walk->system->name,
                             phase_names[phase]);
        }
        if (replica->n_running == 0) {
            return err_usage(err, "--step: such a request is done after %" PRIu64 " steps", step);
        }
        remember(out, &walk->life, slot);
        if (phase == ANY_PHASE ? step == n_steps : request->span.phase == (uint32_t)phase) {
            return 0;
        }
        replica->batch = replica->running;
        replica->n_batch = 1;
        int status = lifecycle_advance(&walk->life, replica, 1, 0, NULL, err);
        if (status != 0) {
            return status;
        }
    }
}

static int walk_to(struct system *system, const struct wanted *wanted, int phase,
                   struct step_kind *out, struct err *err) {
    struct settings before = system->settings;
    struct walk walk = {.system = system};
    struct sink sink = {.state = &walk.reason, .request = note_rejection};
    walk.asked = (struct loop_request){.system = system,
                                       .executor.wants_positions = true,
                                       .sinks = &sink,
                                       .n_sinks = 1,
                                       .seed = 1};
    system->settings.max_in_system = 1;
    system->settings.replicas = 1;
    lifecycle_init(&walk.life, &walk.asked, &walk.result);
    int status = admit(&walk, wanted, err);
    if (status == 0) {
        status = advance(&walk, wanted->step, phase, out, err);
    }
    lifecycle_fini(&walk.life);
    system->settings = before;
    return status;
}

static const struct request *last_of(const struct step_kind *kind) {
    return &kind->path[kind->n_path - 1];
}

static const struct span *span_of(const struct step_kind *kind) {
    return &last_of(kind)->span;
}

static void make_shape(const struct system *system, struct asked_step *out) {
    uint64_t total = (uint64_t)out->kinds[0].n_requests + out->kinds[1].n_requests, kept = 0;
    int64_t kv_bytes = 0;
    out->spans = mem_zeroed(total, sizeof(struct span *));
    shape_clear(&out->shape);
    for (int kind = 0; kind < 2; kind++) {
        for (uint32_t i = 0; i < out->kinds[kind].n_requests; i++) {
            kv_bytes += last_of(&out->kinds[kind])->kv_bytes;
            out->spans[kept++] = span_of(&out->kinds[kind]);
            shape_add(out->shape.sym, span_of(&out->kinds[kind]), 1);
        }
    }
    out->workspace_bytes = budget_workspace_bytes(&system->budget, kv_bytes);
    out->shape.n_spans = (uint32_t)total;
    out->shape.spans = out->spans;
    if (!system->runtime.varlen) {
        shape_pad(&out->shape);
    }
}

static int read_wanted(const struct options *options, struct wanted *wanted, struct err *err) {
    enum { MOST_TOKENS = 1 << 24 };
    *wanted = (struct wanted){.requests = 1, .prompt = 512, .output = 256};
    int status = options_whole(options, "requests", 1, MOST_REQUESTS, &wanted->requests, err);
    status = status != 0
                 ? status
                 : options_whole(options, "input-tokens", 1, MOST_TOKENS, &wanted->prompt, err);
    status = status != 0
                 ? status
                 : options_whole(options, "output-tokens", 1, MOST_TOKENS, &wanted->output, err);
    status =
        status != 0 ? status : options_whole(options, "step", 0, MOST_TOKENS, &wanted->step, err);
    status = status != 0
                 ? status
                 : options_whole(options, "refresh", 0, MOST_REQUESTS, &wanted->refresh, err);
    return status != 0 ? status
                       : options_whole(options, "reuse", 0, MOST_REQUESTS, &wanted->reuse, err);
}

int step_make(const struct options *options, struct system *system, struct asked_step *out,
              struct err *err) {
    struct wanted wanted;
    *out = (struct asked_step){0};
    int status = read_wanted(options, &wanted, err);
    bool by_phase = options_has(options, "refresh") || options_has(options, "reuse");
    if (status == 0 && by_phase &&
        (options_has(options, "requests") || options_has(options, "step"))) {
        return err_usage(err, "give either --requests and --step or --refresh and --reuse");
    }
    if (status == 0 && by_phase && wanted.refresh + wanted.reuse == 0) {
        return err_usage(err, "--refresh and --reuse: the step has no requests");
    }
    if (status != 0) {
        return status;
    }
    uint64_t n[2] = {by_phase ? wanted.refresh : wanted.requests, by_phase ? wanted.reuse : 0};
    if (by_phase) {
        static const int phases[] = {PHASE_REFRESH, PHASE_REUSE};
        for (int kind = 0; status == 0 && kind < 2; kind++) {
            if (n[kind] > 0) {
                out->kinds[kind].n_requests = (uint32_t)n[kind];
                status = walk_to(system, &wanted, phases[kind], &out->kinds[kind], err);
            }
        }
        snprintf(out->text, sizeof out->text,
                 "%" PRIu64 " refresh and %" PRIu64 " reuse requests of %" PRIu64 " + %" PRIu64
                 " tokens",
                 n[0], n[1], wanted.prompt, wanted.output);
    } else {
        out->kinds[0].n_requests = (uint32_t)n[0];
        status = walk_to(system, &wanted, ANY_PHASE, &out->kinds[0], err);
        snprintf(out->text, sizeof out->text,
                 "%" PRIu64 " request%s of %" PRIu64 " + %" PRIu64 " tokens at step %" PRIu64
                 " (%s)",
                 n[0], n[0] == 1 ? "" : "s", wanted.prompt, wanted.output, wanted.step,
                 status == 0 ? phase_names[span_of(&out->kinds[0])->phase] : "");
    }
    if (status == 0) {
        make_shape(system, out);
    }
    return status;
}

int step_first(struct system *system, uint32_t prompt_tokens, uint32_t output_tokens,
               struct asked_step *out, struct err *err) {
    const struct wanted wanted = {.requests = 1, .prompt = prompt_tokens, .output = output_tokens};
    *out = (struct asked_step){0};
    out->kinds[0].n_requests = 1;
    int status = walk_to(system, &wanted, ANY_PHASE, &out->kinds[0], err);
    if (status == 0) {
        snprintf(out->text, sizeof out->text, "the first step of %" PRIu32 " + %" PRIu32 " tokens",
                 prompt_tokens, output_tokens);
        make_shape(system, out);
    }
    return status;
}

void step_fini(struct asked_step *step) {
    free(step->spans);
    for (int kind = 0; kind < 2; kind++) {
        free(step->kinds[kind].path);
        free(step->kinds[kind].flags);
    }
    *step = (struct asked_step){0};
}

int step_show(const struct options *options,
              int (*show)(const struct options *options, const struct system *system,
                          const struct asked_step *step, struct err *err),
              struct err *err) {
    struct asked asked;
    struct system *system = NULL;
    struct asked_step step = {0};
    int status = asked_read_system(options, &asked, &system, err);
    if (status == 0) {
        status = step_make(options, system, &step, err);
    }
    if (status == 0) {
        status = show(options, system, &step, err);
    }
    step_fini(&step);
    system_close(system);
    return status;
}

/* The keys that the question sets, before those that were asked for. */
enum { MOST_OURS = 5, MOST_SETTINGS = 128 };

static uint32_t add_ours(uint32_t longest_tokens, bool all_outputs, bool on_engine,
                         struct setting *out) {
    char tokens[16];
    uint32_t n = 0;
    snprintf(tokens, sizeof tokens, "%" PRIu32, longest_tokens);
    const struct {
        const char *key, *value;
        bool holds;
    } ours[MOST_OURS] = {
        {"context_tokens", tokens, true},    {"max_batched_tokens", tokens, true},
        {"beyond_positions", "on", true},    {"logit_scope", "generation", all_outputs},
        {"runtime.engine", "on", on_engine},
    };
    for (int i = 0; i < MOST_OURS; i++) {
        if (ours[i].holds) {
            out[n] = (struct setting){.place = "the first step", .said = SAID_BY_SHIPPED};
            snprintf(out[n].key, sizeof out[n].key, "%s", ours[i].key);
            snprintf(out[n].value, sizeof out[n].value, "%s", ours[i].value);
            n++;
        }
    }
    return n;
}

static int try_system(const struct system_request *wanted, uint32_t longest_tokens,
                      bool all_outputs, bool on_engine, struct system **out, struct err *err) {
    struct setting settings[MOST_SETTINGS + MOST_OURS];
    uint32_t n = add_ours(longest_tokens, all_outputs, on_engine, settings);
    ASSERT(wanted->n_overrides <= MOST_SETTINGS);
    if (wanted->n_overrides > 0) {
        memcpy(settings + n, wanted->overrides, wanted->n_overrides * sizeof settings[0]);
    }
    struct system_request request = *wanted;
    request.overrides = settings;
    request.n_overrides = n + wanted->n_overrides;
    return system_open(&request, out, err);
}

int first_step_open(const struct system_request *wanted, uint32_t longest_tokens, bool on_engine,
                    struct system **out, struct err *err) {
    int status = try_system(wanted, longest_tokens, false, on_engine, out, err);
    if (status == 0 && (*out)->settings.logit_scope == LOGITS_MASKED) {
        system_close(*out);
        *out = NULL;
        status = try_system(wanted, longest_tokens, true, on_engine, out, err);
    }
    return status;
}

uint32_t first_step_outputs(uint32_t canvas_tokens, double prompt_share) {
    double tokens = (1 - prompt_share) * canvas_tokens + 0.5;
    uint32_t outputs = tokens < 1 ? 1 : (uint32_t)tokens;
    return outputs < canvas_tokens ? outputs : canvas_tokens - (canvas_tokens > 1);
}

struct step_parts step_parts_of(const struct graph *graph, const double op_ns[GRAPH_MAX_OPS]) {
    struct step_parts parts = {0};
    for (uint32_t op = 0; op < graph->n_ops; op++) {
        int loop = graph->ops[op].loop;
        if (op_class(graph, op) == TENSOR_ATTENTION) {
            parts.attention_ns += op_ns[op];
        } else if (loop >= 0 && graph->loops[loop].kind == CHUNK_FFN) {
            parts.ffn_ns += op_ns[op];
        } else if (loop >= 0 && graph->loops[loop].kind == CHUNK_LOGITS) {
            parts.logits_ns += op_ns[op];
        }
        parts.sum_ns += op_ns[op];
    }
    return parts;
}
