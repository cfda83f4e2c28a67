/* What clients that measure servers write: their files' requests. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/study/timings.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"

static const size_t most_bytes = (size_t)1 << 31;
static const double most_s = 1e9; /* of a time that is measured from its first */

/* A request as a client has it, times in seconds by its clock; NaN and 0: it does not say. */
struct seen {
    double start_s, first_s, last_s;
    double prompt_tokens, output_tokens;
};

struct reading {
    const char *path;
    struct timings *out;
    struct seen *seen; /* [n], owned */
    size_t n, room;
    bool has_starts; /* of the first, and so of all */
};

static int bad(const struct reading *r, const char *what, struct err *err) {
    return err_world(err, "%s: request %zu has no %s", r->path, r->n, what);
}

static bool is_count(double tokens) {
    return tokens >= 1 && tokens <= UINT32_MAX && tokens == floor(tokens);
}

static int add_seen(struct reading *r, const struct seen *seen, struct err *err) {
    if (!is_count(seen->prompt_tokens) || !is_count(seen->output_tokens)) {
        return bad(r, "numbers of prompt and output tokens", err);
    }
    if (!(seen->first_s >= 0) || !(seen->last_s >= seen->first_s) || seen->last_s > most_s) {
        return bad(r, "times of its first and last token after its start", err);
    }
    if (r->n > 0 && r->has_starts != !isnan(seen->start_s)) {
        return bad(r, "start, which others have", err);
    }
    r->has_starts = !isnan(seen->start_s);
    r->seen = mem_grown(r->seen, r->n, &r->room, sizeof *r->seen);
    r->seen[r->n++] = *seen;
    return 0;
}

static int by_start(const void *a, const void *b) {
    const struct seen *x = a, *y = b;
    return (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

/* Times from the first start on; first and last are from each request's own. */
static int hand_over(struct reading *r, struct err *err) {
    if (r->n == 0) {
        return err_world(err, "%s holds no requests that were answered", r->path);
    }
    if (r->has_starts) {
        qsort(r->seen, r->n, sizeof *r->seen, by_start);
    }
    r->out->lacks_arrivals = !r->has_starts;
    for (size_t i = 0; i < r->n; i++) {
        const struct seen *s = &r->seen[i];
        const double start_s = r->has_starts ? s->start_s - r->seen[0].start_s : 0;
        if (!(start_s <= most_s)) {
            return err_world(err, "%s: its requests begin years apart", r->path);
        }
        timings_add(r->out, llround(start_s * 1e9), llround((start_s + s->first_s) * 1e9),
                    llround((start_s + s->last_s) * 1e9), (uint32_t)s->prompt_tokens,
                    (uint32_t)s->output_tokens);
    }
    return 0;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- vLLM's and SGLang's: lists by request ---- */

static double number_at(const json_t *object, const char *key, size_t i) {
    const json_t *value = json_array_get(json_object_get(object, key), i);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static bool is_failed(const json_t *object, size_t i) {
    const json_t *error = json_array_get(json_object_get(object, "errors"), i);
    return json_string_length(error) > 0 || number_at(object, "output_lens", i) == 0;
}

static int read_lists(struct reading *r, const json_t *object, struct err *err) {
    const size_t n = json_array_size(json_object_get(object, "ttfts"));
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++) {
        const json_t *gaps = json_array_get(json_object_get(object, "itls"), i);
        size_t j;
        json_t *gap;
        struct seen seen = {.start_s = number_at(object, "start_times", i),
                            .first_s = number_at(object, "ttfts", i),
                            .prompt_tokens = number_at(object, "input_lens", i),
                            .output_tokens = number_at(object, "output_lens", i)};
        seen.last_s = seen.first_s;
        json_array_foreach((json_t *)gaps, j, gap) {
            seen.last_s += json_number_value(gap);
        }
        if (is_failed(object, i)) {
            r->out->n_failed++;
        } else {
            status = add_seen(r, &seen, err);
        }
    }
    return status;
}

/* ---- AIPerf's: a line a request ---- */

static double metric(const json_t *metrics, const char *name) {
    static const struct {
        const char *unit;
        double s;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"sec", 1}, {"s", 1}};
    const json_t *found = json_object_get(metrics, name);
    const char *unit = json_string_value(json_object_get(found, "unit"));
    for (size_t i = 0; unit != NULL && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].unit) == 0) {
            return number(found, "value") * units[i].s;
        }
    }
    return number(found, "value");
}

static int read_line(struct reading *r, const json_t *object, struct err *err) {
    const json_t *metadata = json_object_get(object, "metadata");
    const json_t *metrics = json_object_get(object, "metrics");
    const char *phase = json_string_value(json_object_get(metadata, "benchmark_phase"));
    if (phase != NULL && strcmp(phase, "profiling") != 0) {
        return 0;
    }
    if (json_is_object(json_object_get(object, "error")) ||
        json_is_true(json_object_get(metadata, "was_cancelled"))) {
        r->out->n_failed++;
        return 0;
    }
    struct seen seen = {.start_s = number(metadata, "request_start_ns") * 1e-9,
                        .first_s = metric(metrics, "time_to_first_token"),
                        .last_s = metric(metrics, "request_latency"),
                        .prompt_tokens = metric(metrics, "usage_prompt_tokens"),
                        .output_tokens = metric(metrics, "usage_completion_tokens")};
    if (isnan(seen.prompt_tokens) || isnan(seen.output_tokens)) {
        /* By the client's tokenizer, which knows no template of a chat. */
        seen.prompt_tokens = metric(metrics, "input_sequence_length");
        seen.output_tokens = metric(metrics, "output_sequence_length");
    }
    return add_seen(r, &seen, err);
}

/* ---- GuideLLM's: a list of requests in each benchmark ---- */

/* Of the places where its versions keep a number, the first that has one. */
static double first_of(const json_t *request, const char *const (*places)[3]) {
    double found = (double)NAN;
    for (size_t i = 0; isnan(found) && places[i][0] != NULL; i++) {
        const json_t *object = request;
        size_t k = 0;
        for (; k + 1 < 3 && places[i][k + 1] != NULL; k++) {
            object = json_object_get(object, places[i][k]);
        }
        found = number(object, places[i][k]);
    }
    return found;
}

static int read_guidellm_request(struct reading *r, const json_t *request, struct err *err) {
    static const char *const start[][3] = {
        {"info", "timings", "request_start"}, {"request_start_time"}, {"start_time"}, {NULL}};
    static const char *const first[][3] = {{"info", "timings", "first_token_iteration"},
                                           {"info", "timings", "first_iteration"},
                                           {"first_token_time"},
                                           {NULL}};
    static const char *const last[][3] = {{"info", "timings", "last_token_iteration"},
                                          {"info", "timings", "last_iteration"},
                                          {"last_token_time"},
                                          {NULL}};
    static const char *const prompt[][3] = {
        {"prompt_tokens"}, {"input_metrics", "text_tokens"}, {NULL}};
    static const char *const output[][3] = {
        {"output_tokens"}, {"output_metrics", "text_tokens"}, {NULL}};
    struct seen seen = {.start_s = first_of(request, start),
                        .prompt_tokens = first_of(request, prompt),
                        .output_tokens = first_of(request, output)};
    if (isnan(seen.start_s)) {
        return bad(r, "start", err);
    }
    seen.first_s = first_of(request, first) - seen.start_s;
    seen.last_s = first_of(request, last) - seen.start_s;
    return add_seen(r, &seen, err);
}

static int read_benchmarks(struct reading *r, const json_t *object, struct err *err) {
    const json_t *list = json_object_get(object, "benchmarks");
    const size_t n = json_array_size(list);
    const json_t *requests = json_object_get(json_array_get(list, n > 0 ? n - 1 : 0), "requests");
    size_t i;
    json_t *request;
    int status = 0;
    json_array_foreach(json_object_get(requests, "successful"), i, request) {
        status = status == 0 ? read_guidellm_request(r, request, err) : status;
    }
    r->out->n_failed += json_array_size(json_object_get(requests, "errored")) +
                        json_array_size(json_object_get(requests, "incomplete"));
    return status;
}

/* ---- which of them ---- */

static int read_object(struct reading *r, const json_t *object, struct err *err) {
    if (json_is_array(json_object_get(object, "benchmarks"))) {
        return read_benchmarks(r, object, err);
    }
    if (json_is_array(json_object_get(object, "ttfts"))) {
        r->n = r->out->n_failed = 0; /* of several runs the last counts */
        return read_lists(r, object, err);
    }
    if (json_is_object(json_object_get(object, "metrics"))) {
        return read_line(r, object, err);
    }
    return err_world(err,
                     "%s: its JSON is no list of requests of GuideLLM (benchmarks), AIPerf "
                     "(metrics; profile_export.jsonl), vLLM or SGLang (ttfts; --save-detailed, "
                     "--output-details)",
                     r->path);
}

int timings_read_client(const char *path, struct timings *out, struct err *err) {
    struct reading reading = {.path = path, .out = out};
    size_t size, at = 0;
    char *text = text_read(path, "server", most_bytes, &size, err);
    int status = text == NULL ? err_status(err) : 0;
    while (status == 0 && at + strspn(text + at, " \t\r\n") < size) {
        json_error_t trouble;
        json_t *object =
            json_loadb(text + at, size - at, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &trouble);
        at += (size_t)trouble.position;
        status = object != NULL ? read_object(&reading, object, err)
                                : err_world(err, "%s: byte %zu: %s", path, at, trouble.text);
        json_decref(object);
    }
    status = status == 0 ? hand_over(&reading, err) : status;
    free(text);
    free(reading.seen);
    return status;
}
