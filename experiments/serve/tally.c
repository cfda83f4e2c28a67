#include "experiments/serve/tally.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* Of vLLM's, as far as they go. */
static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
                                     0.1,   0.25,  0.5,  0.75, 1,    2.5,  5,
                                     7.5,   10,    20,   40,   80,   160,  0};
static const double tpot_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                     0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   0};
static const double latency_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,  2.5, 5,   10,
                                        15,  20,  30,  40, 50,  60, 120, 240, 0};
static const double added_bounds[] = {
    0.00002, 0.00005, 0.0001, 0.0002, 0.0003, 0.0004, 0.0005, 0.0006, 0.0007, 0.0008, 0.0009, 0.001,
    0.0012,  0.0014,  0.0016, 0.0018, 0.002,  0.003,  0.005,  0.01,   0.05,   0.2,    0};

void tally_init(struct tally *tally) {
    *tally = (struct tally){.ttft_s = {.bounds = ttft_bounds},
                            .tpot_s = {.bounds = tpot_bounds},
                            .latency_s = {.bounds = latency_bounds},
                            .taken_s = {.bounds = added_bounds},
                            .written_s = {.bounds = added_bounds}};
}

void tally_added(struct tally_spread *spread) {
    *spread = (struct tally_spread){.bounds = added_bounds};
}

void tally_add(struct tally_spread *spread, double value) {
    size_t i = 0;
    while (spread->bounds[i] > 0 && value > spread->bounds[i]) {
        i++;
    }
    spread->n[i]++;
    spread->total++;
    spread->sum += value;
}

/* ---- the table of what is printed ---- */

enum kind { GAUGE, COUNTER, HISTOGRAM, FINISHES, REFUSALS, BYTES };
static const char *const kind_words[] = {
    [GAUGE] = "gauge",      [COUNTER] = "counter",  [HISTOGRAM] = "histogram",
    [FINISHES] = "counter", [REFUSALS] = "counter", [BYTES] = "gauge",
};
static const char *const finish_words[] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length"};
static const char *const refusal_words[] = {
    [REFUSED_REQUEST] = "request", [REFUSED_KEY] = "key",   [REFUSED_QUEUE] = "queue",
    [REFUSED_CLOSING] = "closing", [REFUSED_LOOP] = "loop",
};

#define OF(field) offsetof(struct tally, field)
static const struct {
    const char *name;
    enum kind kind;
    size_t at;
    const char *doc;
} metrics[] = {
    {"vllm:num_requests_running", GAUGE, OF(n_running), "requests that hold memory"},
    {"vllm:num_requests_waiting", GAUGE, OF(n_waiting), "requests that wait to be admitted"},
    {"vllm:prompt_tokens_total", COUNTER, OF(prompt_tokens), "of finished requests"},
    {"vllm:generation_tokens_total", COUNTER, OF(generation_tokens), "of finished requests"},
    {"vllm:request_success_total", FINISHES, OF(finished), "finished requests, by their end"},
    {"vllm:num_preemptions_total", COUNTER, OF(preemptions), "of requests, by the scheduler"},
    {"vllm:time_to_first_token_seconds", HISTOGRAM, OF(ttft_s),
     "arrival to the end of the first block, by the serving clock"},
    {"vllm:time_per_output_token_seconds", HISTOGRAM, OF(tpot_s),
     "after the first block, by the serving clock"},
    {"vllm:e2e_request_latency_seconds", HISTOGRAM, OF(latency_s),
     "arrival to the end, by the serving clock"},
    {"unmask:cached_tokens_total", COUNTER, OF(cached_tokens),
     "of prompts, whose keys and values were there"},
    {"unmask:requests_cancelled_total", COUNTER, OF(cancelled), "the client left before the end"},
    {"unmask:requests_refused_total", REFUSALS, OF(refused),
     "answered with an error, by its cause"},
    {"unmask:steps_total", COUNTER, OF(steps), "forward passes"},
    {"unmask:request_steps_total", COUNTER, OF(request_steps),
     "forward passes, counted for each request in them"},
    {"unmask:positions_evaluated_total", COUNTER, OF(positions), "query tokens of all passes"},
    {"unmask:tokens_committed_total", COUNTER, OF(committed), "positions that passes committed"},
    {"unmask:kv_used_bytes", BYTES, OF(kv_used_bytes),
     "of keys and values, on the last replica "
     "that stepped"},
    {"unmask:kv_total_bytes", BYTES, OF(kv_total_bytes), "of a replica's pool"},
    {"unmask:taken_seconds", HISTOGRAM, OF(taken_s),
     "a request's last byte to its arrival in the loop, by the machine's clock"},
    {"unmask:written_seconds", HISTOGRAM, OF(written_s),
     "a block's commit to the writing of its event, by the machine's clock"},
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

static void print_spread(const char *name, const char *model, const struct tally_spread *spread,
                         FILE *out) {
    uint64_t n = 0;
    for (size_t i = 0; spread->bounds[i] > 0; i++) {
        n += spread->n[i];
        fprintf(out, "%s_bucket{model_name=\"%s\",le=\"%g\"} %" PRIu64 "\n", name, model,
                spread->bounds[i], n);
    }
    fprintf(out, "%s_bucket{model_name=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, model,
            spread->total);
    fprintf(out, "%s_sum{model_name=\"%s\"} %.9g\n%s_count{model_name=\"%s\"} %" PRIu64 "\n", name,
            model, spread->sum, name, model, spread->total);
}

static void print_each(const char *name, const char *model, const char *label,
                       const char *const *words, int n, const uint64_t *values, FILE *out) {
    for (int i = 0; i < n; i++) {
        fprintf(out, "%s{model_name=\"%s\",%s=\"%s\"} %" PRIu64 "\n", name, model, label, words[i],
                values[i]);
    }
}

void tally_print(const struct tally *tally, const char *model, FILE *out) {
    for (size_t i = 0; i < N_METRICS; i++) {
        const char *name = metrics[i].name;
        const void *at = (const char *)tally + metrics[i].at;
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, metrics[i].doc, name,
                kind_words[metrics[i].kind]);
        switch (metrics[i].kind) {
        case HISTOGRAM:
            print_spread(name, model, at, out);
            break;
        case FINISHES:
            print_each(name, model, "finished_reason", finish_words, FINISH_COUNT, at, out);
            break;
        case REFUSALS:
            print_each(name, model, "cause", refusal_words, REFUSAL_COUNT, at, out);
            break;
        case BYTES:
            fprintf(out, "%s{model_name=\"%s\"} %" PRId64 "\n", name, model, *(const int64_t *)at);
            break;
        case GAUGE:
        case COUNTER:
            fprintf(out, "%s{model_name=\"%s\"} %" PRIu64 "\n", name, model, *(const uint64_t *)at);
            break;
        }
    }
}

void tally_list(FILE *out) {
    fprintf(out, "| name | type | meaning |\n|---|---|---|\n");
    for (size_t i = 0; i < N_METRICS; i++) {
        fprintf(out, "| `%s` | %s | %s |\n", metrics[i].name, kind_words[metrics[i].kind],
                metrics[i].doc);
    }
}
