#include "analysis/trace_facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

static const double window_seconds[TRACE_WINDOWS] = {1, 10, 60, 600, 3600};
enum { FEWEST_WINDOWS = 10 };

int arrivals_read(struct arrival_source source, uint64_t most, struct arrivals *out,
                  struct err *err) {
    for (;;) {
        struct arrival row;
        enum source_reply reply =
            most > 0 && out->n == most ? SOURCE_END : source.next(source.state, &row, err);
        if (reply == SOURCE_WAIT) {
            return err_usage(err, "arrivals wait for completions here: only a run knows when they "
                                  "come");
        }
        if (reply != SOURCE_ROW) {
            return reply == SOURCE_BAD ? err_status(err) : 0;
        }
        out->items = mem_grown(out->items, out->n, &out->room, sizeof *out->items);
        out->items[out->n++] = row;
        if (source.back != NULL) {
            source.completed(source.state, row.id, row.arrival_ns);
        }
    }
}

static int by_arrival(const void *a, const void *b) {
    const struct arrival *x = a, *y = b;
    return x->arrival_ns != y->arrival_ns
               ? (x->arrival_ns > y->arrival_ns) - (x->arrival_ns < y->arrival_ns)
               : (x->id > y->id) - (x->id < y->id);
}

void arrivals_sort(struct arrivals *arrivals) {
    if (arrivals->n > 0) {
        qsort(arrivals->items, arrivals->n, sizeof *arrivals->items, by_arrival);
    }
    int64_t first_ns = arrivals->n > 0 ? arrivals->items[0].arrival_ns : 0;
    for (size_t i = 0; i < arrivals->n; i++) {
        arrivals->items[i].arrival_ns -= first_ns;
        arrivals->items[i].id = i;
    }
}

void arrivals_free(struct arrivals *arrivals) {
    free(arrivals->items);
    *arrivals = (struct arrivals){0};
}

double distribution_cv(const struct distribution *d) {
    return d->n > 1 && d->mean > 0 ? d->std / d->mean : (double)NAN;
}

/* Whole windows alone: a last one that the trace cuts short would count as quiet. */
static struct window_facts count_windows(const struct arrivals *arrivals, double seconds) {
    double span_s = (double)arrivals->items[arrivals->n - 1].arrival_ns / 1e9;
    struct window_facts out = {.seconds = seconds};
    out.n = span_s / seconds < 1e8 ? (size_t)(span_s / seconds) : 0;
    if (out.n < FEWEST_WINDOWS) {
        return out;
    }
    double *counts = mem_zeroed(out.n, sizeof *counts);
    for (size_t i = 0; i < arrivals->n; i++) {
        size_t at = (size_t)((double)arrivals->items[i].arrival_ns / 1e9 / seconds);
        if (at < out.n) {
            counts[at]++;
        }
    }
    struct distribution counted = distribution_of(counts, out.n);
    out.mean = counted.mean;
    out.most = counted.max;
    out.dispersion = counted.mean > 0 ? counted.std * counted.std / counted.mean : (double)NAN;
    free(counts);
    return out;
}

enum of_row { OF_INPUT, OF_OUTPUT, OF_ANSWER, OF_TOTAL, OF_GAP };

static double value_of(const struct arrivals *arrivals, size_t i, enum of_row what) {
    const struct arrival *row = &arrivals->items[i];
    switch (what) {
    case OF_INPUT:
        return row->prompt_tokens;
    case OF_OUTPUT:
        return row->output_tokens;
    case OF_ANSWER:
        return row->answer_tokens > 0 ? row->answer_tokens : row->output_tokens;
    case OF_TOTAL:
        return (double)row->prompt_tokens + row->output_tokens;
    case OF_GAP:
        break;
    }
    return (double)(arrivals->items[i + 1].arrival_ns - row->arrival_ns) / 1e9;
}

static struct distribution spread(const struct arrivals *arrivals, enum of_row what,
                                  double *values) {
    size_t n = what == OF_GAP ? arrivals->n - 1 : arrivals->n;
    for (size_t i = 0; i < n; i++) {
        values[i] = value_of(arrivals, i, what);
    }
    return distribution_of(values, n);
}

static int by_whole(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void look_at_contexts(const struct arrivals *arrivals, uint32_t context,
                             struct trace_facts *out) {
    uint32_t tokens[TRACE_CONTEXTS] = {2048, 4096, 8192, 32768, 131072, context};
    size_t n = 0;
    qsort(tokens, TRACE_CONTEXTS, sizeof *tokens, by_whole);
    for (size_t i = 0; i < TRACE_CONTEXTS; i++) {
        if (tokens[i] > 0 && (i == 0 || tokens[i] != tokens[i - 1])) {
            out->contexts[n++].tokens = tokens[i];
        }
    }
    for (size_t i = 0; i < arrivals->n; i++) {
        const struct arrival *row = &arrivals->items[i];
        for (size_t c = 0; c < TRACE_CONTEXTS && out->contexts[c].tokens > 0; c++) {
            struct context_facts *facts = &out->contexts[c];
            facts->n_over += (uint64_t)row->prompt_tokens + row->output_tokens > facts->tokens;
            facts->n_outputs_over += row->output_tokens >= facts->tokens;
        }
    }
}

static int by_name(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of conversations, how many there are and how long their people think. */
static void look_at_sessions(const struct arrivals *arrivals, double *values,
                             struct trace_facts *out) {
    uint64_t *names = mem_unwritten(arrivals->n, sizeof *names);
    size_t n_thought = 0;
    for (size_t i = 0; i < arrivals->n; i++) {
        const struct arrival *row = &arrivals->items[i];
        if (row->session != 0) {
            names[out->n_turns++] = row->session;
        }
        if (row->session != 0 && row->think_ns > 0) {
            values[n_thought++] = (double)row->think_ns / 1e9;
        }
    }
    qsort(names, out->n_turns, sizeof *names, by_name);
    for (size_t i = 0; i < out->n_turns; i++) {
        out->n_sessions += i == 0 || names[i] != names[i - 1];
    }
    out->think_s = distribution_of(values, n_thought);
    free(names);
}

static uint32_t count_tenants(const struct arrivals *arrivals) {
    uint32_t *tenants = mem_unwritten(arrivals->n, sizeof *tenants), n = 0;
    for (size_t i = 0; i < arrivals->n; i++) {
        tenants[i] = arrivals->items[i].tenant;
    }
    qsort(tenants, arrivals->n, sizeof *tenants, by_whole);
    for (size_t i = 0; i < arrivals->n; i++) {
        n += i == 0 || tenants[i] != tenants[i - 1];
    }
    free(tenants);
    return n;
}

struct trace_facts trace_facts_of(const struct arrivals *arrivals, uint32_t context) {
    struct trace_facts out = {.n = arrivals->n};
    if (out.n == 0) {
        return out;
    }
    double *values = mem_unwritten(out.n, sizeof *values);
    out.span_s = (double)arrivals->items[out.n - 1].arrival_ns / 1e9;
    out.rate_req_s = out.span_s > 0 ? (double)(out.n - 1) / out.span_s : 0;
    out.input = spread(arrivals, OF_INPUT, values);
    out.output = spread(arrivals, OF_OUTPUT, values);
    out.answer = spread(arrivals, OF_ANSWER, values);
    out.total = spread(arrivals, OF_TOTAL, values);
    out.gap_s = spread(arrivals, OF_GAP, values);
    look_at_sessions(arrivals, values, &out);
    free(values);
    for (size_t i = 0; i < out.n; i++) {
        const struct arrival *row = &arrivals->items[i];
        out.has_answers = out.has_answers || row->answer_tokens > 0;
        out.prompt_tokens += row->prompt_tokens;
        out.output_tokens += row->output_tokens;
        out.shared_tokens += row->prefix_tokens;
    }
    for (size_t w = 0; w < TRACE_WINDOWS; w++) {
        out.windows[w] = count_windows(arrivals, window_seconds[w]);
    }
    out.has_times = out.span_s > 0;
    out.n_tenants = count_tenants(arrivals);
    look_at_contexts(arrivals, context, &out);
    return out;
}
