/* The resolved configuration of a run as a text: what its identity and its record hold. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/run/compose_impl.h"
#include "sim/system/system_facts.h"

/* A policy of a shared object is named by its file, so that the text finds it again. */
static const char *plugin_path(const struct system *system, const char *key, size_t length) {
    for (uint32_t i = 0; i < system->n_applied; i++) {
        const struct setting *applied = &system->applied[i];
        if (strlen(applied->key) == length && strncmp(applied->key, key, length) == 0 &&
            strchr(applied->value, '/') != NULL) {
            return applied->value;
        }
    }
    return NULL;
}

void compose_write_system(const struct system *system, FILE *out) {
    char *text = system_text(system);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t key = strcspn(line, " ");
        const char *path = plugin_path(system, line, key);
        if (path != NULL) {
            fprintf(out, "%.*s = %s\n", (int)key, line, path);
        } else {
            fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
        }
    }
    free(text);
}

void compose_write_memory(const struct system *system, FILE *out) {
    if (system->gpu == &system->resized) {
        fprintf(out, "\n[run]\ngpu_memory = %" PRId64 "\n", system->gpu->memory_bytes);
    }
}

void compose_write_run(const struct run_request *request, const struct decode_trace *decode,
                       FILE *out) {
    const struct workload_options *options = &request->options;
    const struct backend_request *backend = &request->backend;
    fprintf(out, "[run]\nsystem = %s\ngpu = %s\nroofline = %s\nbackend = %s\n", request->system,
            request->gpu, request->roofline ? "on" : "off", backend_names[backend->kind]);
    if (request->price_source != PRICES_BEST) {
        fprintf(out, "price_source = %s\n", price_source_words[request->price_source]);
    }
    if (backend->kind != BACKEND_SIM) {
        fprintf(out, "weights = %s\nclock = %s\n", backend->weights,
                backend->skips_idle ? "virtual" : "real");
        if (backend->eos != NULL) {
            fprintf(out, "eos = %s\n", backend->eos);
        }
    }
    if (request->statistics) {
        fprintf(out, "statistics = on\n");
    }
    const struct questions_request *questions = &request->questions;
    const char *const keys[] = {"tokenizer", "chat", "reference"};
    const char *const values[] = {questions->tokenizer, questions->chat, questions->reference};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (values[i] != NULL) {
            fprintf(out, "%s = %s\n", keys[i], values[i]);
        }
    }
    if (request->systems_path != NULL) {
        fprintf(out, "systems = %s\n", request->systems_path);
    }
    if (request->profile_path != NULL) {
        fprintf(out, "profile = %s\n", request->profile_path);
    }
    if (decode != NULL) {
        fprintf(out, "decode = %s\ndecode_digest = %" PRIu64 "\n", request->decode_path,
                decode_trace_digest(decode));
    }
    fprintf(out, "slo_latency = %" PRId64 "\nslo_ttfb = %" PRId64 "\nslo_tpot = %" PRId64 "\n",
            request->slo.latency_ns, request->slo.ttfb_ns, request->slo.tpot_ns);
    fprintf(out,
            "workload = %s\nseed = %" PRIu64 "\nrequests = %" PRIu64 "\nrate = %.17g\n"
            "input_tokens = %" PRIu32 "\noutput_tokens = %" PRIu32 "\n\n[system]\n",
            request->workload, options->seed, options->requests, options->rate_per_s,
            options->input_tokens, options->output_tokens);
}
