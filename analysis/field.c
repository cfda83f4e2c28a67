#include "analysis/field.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/num.h"

const struct field field_table[] = {
    /* runs: of a database, then in the order of their JSON */
    {"run", "run", "", "number of the run in its database"},
    {"rate", "rate", "requests/s",
     "asked for, or the workload's own; on an axis as offered if not met"},
    {"build", "build", "", "version and digest of the program's sources"},
    {"inputs", "inputs", "", "digest of the contents of all files that were read"},
    {"prices.over_imported", "prices over imported ones", "", "of one block, where it has both"},
    {"prices.over_roofline", "prices over the data sheet's", "", "of one block"},
    {"host.factor", "host factor", "", "host times over those of the reference host"},
    {"seed", "seed", "", "of all random streams"},
    {"requests", "requests", "", "that arrived"},
    {"completed", "completed requests", "", "that were served whole"},
    {"rejected", "rejected requests", "", "that were not served"},
    {"rejected_by_reason", "rejected requests", "", "by reason"},
    {"preemptions", "preemptions", "", "of running requests"},
    {"makespan_s", "makespan", "s", "first arrival to last finish of a completed request"},
    {"throughput_tok_s", "throughput", "tokens/s", "committed output positions over the makespan"},
    {"throughput_req_s", "throughput", "requests/s", "completed requests over the makespan"},
    {"offered.rate_req_s", "offered rate", "requests/s", "arrivals over the time of arrivals"},
    {"offered.served_req_s", "served rate", "requests/s", "while requests arrived"},
    {"offered.queue_growth_req_s", "growth of the queue", "requests/s", "while requests arrived"},
    {"offered.load", "load", "", "offered rate over the rate served while many were there"},
    {"offered.load_low", "load, low", "", "the load is above it with 99 %"},
    {"offered.load_high", "load, high", "", "the load is below it with 99 %"},
    {"offered.left_in_system", "left in the system", "requests", "at the last arrival"},
    {"offered.asked_req_s", "rate asked for", "requests/s", "or the workload's own"},
    {"latency_s", "latency", "s", "finish less arrival"},
    {"ttft_s", "time to first token", "s", "end of the first block less arrival"},
    {"ttfb_s", "time to first block", "s", "the same as ttft_s"},
    {"queue_s", "time in queue", "s", "admission less arrival"},
    {"tpot_s", "time per output token", "s", "of the answer, behind the first block"},
    {"goodput_req_s", "goodput", "requests/s", "requests within every objective, over makespan"},
    {"attainment", "attainment", "share", "of all that arrived, requests within every objective"},
    {"wasted_request_steps", "unrolled request steps too many", "", "whose block was done"},
    {"wasted_tokens", "unrolled tokens too many", "tokens", "of these steps"},
    {"prefix_tokens", "shared prompt tokens", "tokens", "that another's canvas begins with"},
    {"prefix_hit_tokens", "prompt tokens found", "tokens", "of shared ones, not computed again"},
    {"prefix_hits", "prefix hits", "requests", "that found any"},
    {"steps", "steps", "", "forward passes of a batch; of a request, those that it was in"},
    {"steps_by_phase", "steps", "", "by the one phase of all their requests, or mixed"},
    {"submissions", "submissions", "", "to the executor; identical steps are one"},
    {"request_steps", "request steps", "", "forward passes of a request, summed"},
    {"max_batch", "largest batch", "requests", "most requests of a step"},
    {"mean_batch", "mean batch", "requests", "requests a step"},
    {"max_waiting", "longest queue", "requests", "most requests that waited"},
    {"replicas", "replicas", "", "identical GPUs or groups of GPUs"},
    {"tokens_processed", "processed tokens", "tokens", "query tokens of all steps"},
    {"tokens_committed", "committed tokens", "tokens", "decoded by completed requests"},
    {"redundancy", "redundancy", "", "processed tokens over committed ones"},
    {"block_redundancy", "redundancy in blocks", "", "positions of blocks run, over committed"},
    {"tpf", "tokens per forward pass", "", "committed tokens over request steps"},
    {"answer_tokens", "answer", "tokens", "committed, up to and with the end of text"},
    {"throughput_answer_tok_s", "answer throughput", "tokens/s",
     "tokens up to the end of text, over the makespan"},
    {"tpf_answer", "answer tokens per forward pass", "", "answer tokens over request steps"},
    {"wasted_request_steps_after_end", "request steps behind the end of text", "",
     "in blocks that "
     "nobody reads"},
    {"wasted_tokens_after_end", "tokens behind the end of text", "tokens", "in such blocks"},
    {"tensor_parallel", "tensor parallelism", "GPUs", "of a replica"},
    {"gpus", "GPUs", "", "of all replicas"},
    {"throughput_tok_s_gpu", "throughput per GPU", "tokens/s", "over all GPUs of the replicas"},
    {"energy.joules", "energy", "J", "measured, else priced"},
    {"energy.watts", "power", "W", "energy over the makespan"},
    {"energy.joules_per_answer_token", "energy per answer token", "J", "energy over answer tokens"},
    {"energy.joules_per_request", "energy per request", "J", "energy over completed requests"},
    {"gpu_busy", "GPU busy", "share", "of the makespan"},
    {"mfu", "FLOP utilisation", "share", "of the GPU's peak while it is busy"},
    {"bandwidth_util", "bandwidth utilisation", "share", "of the GPU's peak while it is busy"},
    {"weights_bytes", "weights", "bytes", "of the model on a GPU"},
    {"reserve_bytes", "runtime reserve", "bytes", "kept free of everything else"},
    {"kv_pool_bytes", "KV pool", "bytes", "for keys and values"},
    {"kv_peak_bytes", "KV in use, most", "bytes", "of the pool"},
    {"activation_peak_bytes", "activations, most", "bytes", "of a step"},
    {"logit_peak_bytes", "logits, most", "bytes", "of a step"},
    {"price_lookups", "price look-ups", "", "by how the profile answered"},
    {"price_time_shares", "priced time", "share", "of the operators' simulated time, by kind"},
    {"bound.throughput_share", "throughput of the bound", "share", "of what no scheduler beats"},
    {"bound.attainment", "attainment at most", "share", "by any scheduler"},
    /* requests */
    {"id", "request", "", "its place in the workload"},
    {"arrival_s", "arrival", "s", "from the start of the run"},
    {"prompt_tokens", "prompt", "tokens", "of a request"},
    {"output_tokens", "output", "tokens", "positions that a request decodes"},
    {"refresh_steps", "refresh steps", "", "steps of a request over its whole canvas"},
    /* the course of a run, in equal stretches of time */
    {"time_s", "time", "s", "middle of the stretch, from the first arrival"},
    {"tokens_per_s", "committed tokens", "tokens/s", "by all replicas"},
    {"running", "running requests", "", "on all replicas"},
    {"waiting", "waiting requests", "", "that have arrived and not been admitted"},
    {"batch", "batch", "requests", "of a step, while a replica runs"},
    {"kv_bytes", "KV in use", "bytes", "of a replica, while it runs"},
    {"busy", "replicas busy", "share", "of the stretch"},
    {NULL, NULL, NULL, NULL},
};

/* What a name ends with where the table does not have it; the longest that fits comes first. */
static const struct {
    const char *end, *unit;
} ends[] = {
    {"_req_s", "requests/s"},
    {"_tok_s", "tokens/s"},
    {"_joules", "J"},
    {"_watts", "W"},
    {"_bytes", "bytes"},
    {"_tokens", "tokens"},
    {"_ns", "ns"},
    {"_us", "us"},
    {"_ms", "ms"},
    {"_s", "s"},
};

static bool is_same(char a, char b) {
    return a == b || (a == '.' && b == '_') || (a == '_' && b == '.');
}

/* The entry whose name is the longest beginning of `name` that ends at a dot or underscore, and
 * what follows, "" where nothing does. */
static const struct field *find(const char *name, const char **rest) {
    const struct field *found = NULL;
    size_t longest = 0;
    for (const struct field *f = field_table; f->name != NULL; f++) {
        size_t n = 0;
        while (f->name[n] != '\0' && is_same(f->name[n], name[n])) {
            n++;
        }
        bool fits = f->name[n] == '\0' && (name[n] == '\0' || is_same(name[n], '.'));
        if (fits && n > longest) {
            found = f;
            longest = n;
        }
    }
    *rest = found != NULL && name[longest] != '\0' ? name + longest + 1 : "";
    return found;
}

static bool is_member(const char *text) {
    static const char *const members[] = {"mean", "p50", "p90", "p95", "p99", "std", "min", "max"};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (strcmp(text, members[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Entries whose members are named by what follows: of a distribution, or by kind and reason. */
static bool has_members(const struct field *field) {
    size_t n = strlen(field->name);
    return (n > 2 && strcmp(field->name + n - 2, "_s") == 0) || strstr(field->name, "_by_") ||
           strncmp(field->name, "price_", 6) == 0;
}

static const struct field *look_up(const char *name, const char **rest) {
    const struct field *field = find(name, rest);
    bool fits = field != NULL && ((*rest)[0] == '\0' || is_member(*rest) || has_members(field));
    return fits ? field : NULL;
}

const struct field *field_find(const char *name) {
    const char *rest;
    return look_up(name, &rest);
}

static const char *unit_by_end(const char *name, size_t *length) {
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t m = strlen(ends[i].end);
        if (n > m && strcmp(name + n - m, ends[i].end) == 0) {
            *length = n - m;
            return ends[i].unit;
        }
    }
    *length = n;
    return "";
}

const char *field_unit(const char *name) {
    const char *rest;
    size_t length;
    const struct field *field = look_up(name, &rest);
    return field != NULL ? field->unit : unit_by_end(name, &length);
}

const char *field_title(const char *name, char text[FIELD_CHARS]) {
    const char *rest;
    size_t length;
    const struct field *field = look_up(name, &rest);
    if (field == NULL) {
        unit_by_end(name, &length);
        snprintf(text, FIELD_CHARS, "%.*s", (int)length, name);
    } else if (is_member(rest)) {
        snprintf(text, FIELD_CHARS, "%s %s", rest, field->label);
    } else {
        snprintf(text, FIELD_CHARS, "%s%s%s", field->label, rest[0] != '\0' ? ", " : "", rest);
    }
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '_' ? ' ' : *c;
    }
    return text;
}

const char *field_label(const char *name, char text[FIELD_CHARS]) {
    const char *unit = field_unit(name);
    size_t used = strlen(field_title(name, text));
    if (unit[0] != '\0') {
        snprintf(text + used, FIELD_CHARS - used, " (%s)", unit);
    }
    return text;
}

const char *field_spelled(const char *column, char text[FIELD_CHARS]) {
    const char *rest;
    const struct field *field = look_up(column, &rest);
    snprintf(text, FIELD_CHARS, "%s%s%s", field != NULL ? field->name : column,
             field != NULL && rest[0] != '\0' ? "." : "", field != NULL ? rest : "");
    return text;
}

const char *field_column(const char *name, char text[FIELD_CHARS]) {
    snprintf(text, FIELD_CHARS, "%s", name);
    for (char *c = text; *c != '\0'; c++) {
        *c = isalnum((unsigned char)*c) || (*c & 0x80) != 0 ? *c : '_';
    }
    return text;
}

json_t *field_value(const char *text) {
    uint64_t whole;
    double number;
    return text[0] == '\0'                    ? json_null()
           : num_u64(text, INT64_MAX, &whole) ? json_integer((json_int_t)whole)
           : num_f64(text, &number)           ? json_real(number)
                                              : json_string(text);
}
