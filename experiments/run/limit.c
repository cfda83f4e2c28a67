#include "experiments/run/limit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/identity.h"
#include "analysis/summary_output.h"
#include "sim/base/mem.h"

/* Passes that go by load are others under another scheduler. */
static int check_passes(const struct system *system, struct err *err) {
    const bool is_cache = system->cache->reads_load != 0;
    return !is_cache && system->decoder->reads_load == 0
               ? 0
               : err_usage(err,
                           "%s %s goes by load (reads_load), so that no bound of all schedulers is "
                           "known",
                           is_cache ? "cache" : "decoder",
                           is_cache ? system->cache->policy.name : system->decoder->policy.name);
}

/* All that the composition's prices follow from, and more: its identity but for the rate. NULL
 * where the content of a file that it read is not known. The caller's. */
static char *known_as(const struct composition *c) {
    static const char rate[] = "rate = ";
    if (identity_digest(c->identity)[0] == '\0') {
        return NULL;
    }
    char *text = NULL;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    for (const char *line = c->config, *end; *line != '\0'; line = end + (*end != '\0')) {
        end = line + strcspn(line, "\n");
        if (strncmp(line, rate, sizeof rate - 1) != 0) {
            fprintf(out, "%.*s\n", (int)(end - line), line);
        }
    }
    (void)json_dumpf(json_object_get(c->identity, "inputs"), out, JSON_COMPACT);
    mem_stream_close(out);
    return text;
}

int limit_find(const struct run_request *request, const volatile sig_atomic_t *stop,
               struct bound *out, struct err *err) {
    struct composition *c = NULL;
    if (request->backend.kind != BACKEND_SIM) {
        return err_usage(err, "bounds are of simulated runs: the back end %s decides itself",
                         backend_names[request->backend.kind]);
    }
    int status = compose_open(request, &c, err);
    if (status != 0) {
        return status;
    }
    char *known = known_as(c);
    const struct passes_request wanted = {
        .system = c->system,
        .source = workload_source(c->workload),
        .decode = c->decode != NULL ? &c->decode_source : NULL,
        .seed = c->seed,
        .stop = stop,
        .known_as = known,
    };
    status = check_passes(c->system, err);
    status = status != 0 ? status : bound_find(&wanted, request->slo.latency_ns, out, err);
    free(known);
    compose_close(c);
    return status;
}

int limit_take(const struct run_request *request, const volatile sig_atomic_t *stop,
               struct composition *composition, struct err *err) {
    struct bound bound;
    if (limit_find(request, stop, &bound, err) != 0) {
        return err_status(err);
    }
    composition->bound = limit_json(&bound);
    composition->facts.bound = composition->bound;
    return 0;
}

const char *limit_type_name(const struct bound *bound, uint32_t type, char *text, size_t n) {
    bool selects = bound->types[type].kind == HOST_SELECT;
    snprintf(text, n, "%s%s", selects ? "selecting " : "", phase_names[bound->types[type].phase]);
    return text;
}

double limit_price_ms(const struct bound *bound, uint32_t type) {
    const struct pass_type *of = &bound->types[type];
    double ns = of->n * bound->prices.pass_ns[type];
    for (int c = 0; c < PASS_COORDS; c++) {
        ns += bound->prices.unit_ns[type][c] * of->total[c];
    }
    return ns / of->n * 1e-6;
}

/* As it will be recorded: a run is judged by its bound, and its replay by the recorded one. */
static void put(json_t *object, const char *key, double value) {
    mem_given(object);
    json_object_set_new(object, key,
                        isfinite(value) ? json_real(summary_as_recorded(value)) : json_null());
}

/* What the best batches hold. */
static json_t *batches_json(const struct bound *b) {
    json_t *batches = json_array();
    for (uint32_t i = 0; i < b->prices.n_best; i++) {
        const struct best_batch *best = &b->prices.best[i];
        json_t *batch = json_object();
        put(batch, "share_of_steps", best->share);
        put(batch, "tokens", best->tokens);
        for (uint32_t t = 0; t < PASS_TYPES; t++) {
            char name[48];
            if (best->passes[t] > 0) {
                put(batch, limit_type_name(b, t, name, sizeof name), best->passes[t]);
            }
        }
        json_array_append_new(batches, batch);
    }
    return batches;
}

json_t *limit_json(const struct bound *b) {
    json_t *object = json_object(), *passes = json_array();
    json_object_set_new(object, "requests", json_integer((json_int_t)b->requests));
    json_object_set_new(object, "rejected", json_integer((json_int_t)b->rejected));
    put(object, "throughput_tok_s", b->throughput_tok_s);
    put(object, "makespan_s", b->makespan_s);
    put(object, "saturated_tok_s", b->saturated_tok_s);
    put(object, "saturated_req_s", b->saturated_req_s);
    put(object, "latency_mean_s", b->mean_latency_s);
    put(object, "latency_mean_by_work_s", b->mean_by_work_s);
    put(object, "latency_mean_by_passes_s", b->mean_by_passes_s);
    put(object, "latency_mean_by_both_s", b->mean_by_both_s);
    put(object, "latency_p99_s", b->p99_latency_s);
    put(object, "attainment", b->on_time);
    put(object, "certificate", b->prices.scale);
    json_object_set_new(object, "at_highest_clock", json_boolean(b->at_highest_clock));
    for (uint32_t t = 0; t < PASS_TYPES; t++) {
        char name[48];
        if (b->types[t].n > 0) {
            json_t *type = json_object();
            json_object_set_new(type, "phase",
                                json_string(limit_type_name(b, t, name, sizeof name)));
            put(type, "passes", b->types[t].n);
            put(type, "price_ms", limit_price_ms(b, t));
            json_array_append_new(passes, type);
        }
    }
    json_object_set_new(object, "passes", passes);
    json_object_set_new(object, "batches", batches_json(b));
    return object;
}

void limit_print(const json_t *summary, FILE *out) {
    const json_t *bound = json_object_get(summary, "bound");
    const json_t *on_time = json_object_get(bound, "attainment");
    if (bound == NULL) {
        return;
    }
    fprintf(out,
            "bound        no scheduler: over %.1f tok/s, under %.3f s mean latency, %.3f s p99",
            json_number_value(json_object_get(bound, "throughput_tok_s")),
            json_number_value(json_object_get(bound, "latency_mean_s")),
            json_number_value(json_object_get(bound, "latency_p99_s")));
    if (json_is_number(on_time)) {
        fprintf(out, ", over %.1f %% on time", 100 * json_number_value(on_time));
    }
    fprintf(out, "; saturated at %.4g req/s%s\n",
            json_number_value(json_object_get(bound, "saturated_req_s")),
            json_is_true(json_object_get(bound, "at_highest_clock"))
                ? "; at the card's highest clock"
                : "");
}
