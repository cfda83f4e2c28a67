#include "experiments/steps/first_step.h"

#include <inttypes.h>
#include <string.h>

#include "sim/memory/usage.h"

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
