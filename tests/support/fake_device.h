/* A device whose times are known: it computes nothing, and its clock goes on by what each call
 * costs. The host's clock is its clock and what the host takes: a step, which embeds once, and each
 * request, on which it decides once. Memory and copies are the CPU's. */
#ifndef UNMASK_TESTS_SUPPORT_FAKE_DEVICE_H
#define UNMASK_TESTS_SUPPORT_FAKE_DEVICE_H

#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"

enum { STEP_NS = 20000, REQUEST_NS = 2000 };

struct device_event {
    double ns;
};

struct device_graph {
    double device_ns, host_ns;
};

static struct {
    double device_ns, host_ns;
    struct device_graph *recording;     /* under way; its calls go there instead */
    int64_t n_calls, n_plays, fails_at; /* the call that fails, counted from 1; 0: none */
    int32_t capability;                 /* as fake_table set it */
    /* In whole steps, from the norm that follows an embedding to the decisions, calls cost so many
     * times what they cost alone. */
    double load;
    bool embedded, in_step;
    /* A slow device's calls take so many times as long, 0: once; and calls of a step that begin
     * later than look_ns after it `slowed` times, where that is not 0. */
    double slow, look_ns, slowed, step_ns;
    /* Between calls of a step that are issued one by one, in others up to four times that; behind
     * an event; and behind an event of
     * three steps of four, for which the host falls behind. */
    double gap_ns, event_ns, late_ns;
    int64_t n_embedded;
    double energy_j; /* that the meter shows; 0: it shows nothing */
    double look_j;   /* by which it rises each time it is looked at */
    /* The host's, of the first step behind a sleep; and whether it has slept. */
    double drowsy_ns;
    bool has_slept;
    bool spills; /* what it is asked for it takes elsewhere */
} fake;

static inline int fake_cost(double ns) {
    ns *= (fake.in_step ? fake.load : 1) * (fake.slow > 0 ? fake.slow : 1);
    ns *= fake.slowed > 0 && fake.in_step && fake.step_ns > fake.look_ns ? fake.slowed : 1;
    fake.step_ns = fake.in_step ? fake.step_ns + ns : 0;
    ns += fake.in_step && fake.recording == NULL
              ? fake.gap_ns * (double)(1 + fake.n_embedded / 5 % 4)
              : 0;
    fake.embedded = false;
    fake.n_calls++;
    if (fake.n_calls == fake.fails_at) {
        return DEVICE_FAILED;
    }
    *(fake.recording != NULL ? &fake.recording->device_ns : &fake.device_ns) += ns;
    return DEVICE_OK;
}

static inline void fake_host_cost(double ns) {
    *(fake.recording != NULL ? &fake.recording->host_ns : &fake.host_ns) += ns;
}

static inline void fake_wake(void) {
    fake.host_ns += fake.has_slept && fake.recording == NULL ? fake.drowsy_ns : 0;
    fake.has_slept = false;
}

static inline int fake_capture_begin(struct device *device) {
    (void)device;
    fake.recording = calloc(1, sizeof *fake.recording);
    return fake.recording != NULL ? DEVICE_OK : DEVICE_NO_MEMORY;
}

static inline int fake_capture_end(struct device *device, struct device_graph **out) {
    (void)device;
    *out = fake.recording;
    fake.recording = NULL;
    return DEVICE_OK;
}

static inline int fake_graph_launch(struct device *device, struct device_graph *recording) {
    (void)device;
    fake.n_plays++;
    fake_wake();
    fake.device_ns += recording->device_ns;
    fake.host_ns += recording->host_ns;
    return DEVICE_OK;
}

static inline void fake_graph_close(struct device *device, struct device_graph *recording) {
    (void)device;
    free(recording);
}

static inline double product_ns(double m, double n, double k) {
    return 2000 + 0.001 * m * n * k;
}

static inline double pass_ns(double rows, double channels) {
    return 1000 + 0.05 * rows * channels;
}

/* What a kernel takes. */
#define COST(kernel, time_ns)                                                                      \
    static inline int fake_##kernel(struct device *device, const struct call_##kernel *call) {     \
        (void)device;                                                                              \
        return fake_cost(time_ns);                                                                 \
    }

COST(linear, product_ns(call->n_tokens, call->n_outputs, call->n_inputs))
COST(gate_up, product_ns(call->n_tokens, call->n_hidden, call->n_channels))
COST(head, product_ns(call->n_rows, call->n_vocab, call->n_channels))
COST(add, pass_ns((double)call->n, 1))
COST(quantise, pass_ns(call->n_rows, call->n_channels))
COST(quantise_weights, pass_ns(call->n_rows, call->n_channels))
COST(rope, pass_ns(call->n_tokens, call->n_heads + 2.0 * call->n_kv_heads))
COST(keep, pass_ns(call->n_tokens, call->n_kv_heads))
COST(swiglu, pass_ns(call->n_tokens, call->n_hidden))
COST(sample, pass_ns(call->n_rows, call->n_vocab))
COST(credit, pass_ns(call->n_rows, 64))
COST(draw, pass_ns(call->n_rows, 2.0 * call->n_vocab))
COST(draw_part, pass_ns(call->of.n_rows, 2.0 * call->of.n_vocab))
COST(softmax, pass_ns(call->n_rows, 2.0 * call->n_vocab))
COST(softcap, pass_ns(call->n_rows, 2.0 * call->n_vocab))
COST(renoise, pass_ns(call->n_rows, call->n_vocab))
COST(condition, pass_ns(call->n_rows, 3.0 * call->n_channels))
COST(keep_expected, pass_ns(call->n_rows, call->n_channels))
COST(add_expected, pass_ns(call->n_tokens, call->n_channels))
COST(next_step, pass_ns(call->n_rows, 1))
COST(importance, pass_ns(call->n_requests, 10.0 * call->max_masked))
COST(compact, pass_ns(call->max_rows, call->width[0]))
COST(similarity, pass_ns((double)call->n_requests * call->max_compared,
                         (double)call->n_kv_heads * call->head_size))
COST(pick, pass_ns((double)call->n_requests * call->max_queries, 3))
COST(keep_feature, pass_ns(call->n_tokens, call->n_channels))
COST(add_feature, pass_ns(call->n_tokens, call->n_channels))
COST(pattern, 1000 + 0.002 * call->n_requests * (double)call->max_tokens * call->max_tokens)
COST(pattern_attention,
     1000 + 0.0004 * call->n_requests * (double)call->max_tokens * (call->max_tokens + 128.0))
COST(moe_route, pass_ns(call->n_tokens, call->n_experts))
COST(moe_sort, pass_ns(call->n_tokens, call->n_active))
COST(moe_combine, pass_ns(call->n_tokens, (double)call->n_active * call->n_channels))
COST(dense_attention,
     1000 + 0.001 * call->n_requests * (double)call->max_tokens * (call->max_tokens + 128.0))

/* As many experts as there are pairs are read, or all. */
static inline double fake_experts_ns(double pairs, double experts, double width) {
    return 2000 + 0.001 * width * (pairs + (pairs < experts ? pairs : experts));
}

COST(moe_gate_up, fake_experts_ns((double)call->n_tokens * call->n_active, call->n_experts,
                                  (double)call->n_hidden * call->n_channels))
COST(moe_down, fake_experts_ns((double)call->n_tokens * call->n_active, call->n_experts,
                               (double)call->n_hidden * call->n_channels))

static inline double fake_sum(const int32_t *values, int32_t begin, int32_t end) {
    double sum = 0;
    for (int32_t i = begin; i < end; i++) {
        sum += values[i];
    }
    return sum;
}

COST(block_attention, 1500 + 0.01 * call->max_queries * fake_sum(call->kept, 0, call->n_requests))
COST(paged_attention,
     1500 + 0.01 * fake_sum(call->extent, call->start[0], call->start[call->n_requests]))
/* Twice the candidates, which are what stands outside of the blocks, and what is kept. */
COST(select,
     1500 +
         2 * (call->start[call->n_requests] + fake_sum(call->block_start, 0, call->n_requests) -
              fake_sum(call->block_end, 0, call->n_requests)) +
         fake_sum(call->kept, 0, call->n_requests))

static inline int fake_embed(struct device *device, const struct call_embed *call) {
    (void)device;
    fake_host_cost(STEP_NS);
    fake_wake();
    int status = fake_cost(pass_ns(call->n_tokens, call->n_channels));
    fake.embedded = true;
    fake.n_embedded++;
    return status;
}

static inline int fake_norm(struct device *device, const struct call_norm *call) {
    (void)device;
    fake.in_step = fake.in_step || fake.embedded;
    return fake_cost(pass_ns(call->n_rows, call->n_channels));
}

static inline int fake_penalise(struct device *device, const struct call_penalise *call) {
    (void)device;
    return fake_cost(call->n_rows);
}

static inline int fake_decode(struct device *device, const struct call_decode *call) {
    (void)device;
    fake_host_cost(REQUEST_NS * call->n_requests);
    int status = fake_cost(700 + 3 * fake_sum(call->n_rows, 0, call->n_requests));
    fake.in_step = false;
    return status;
}

static inline int fake_random(struct device *device, const struct call_random *call) {
    (void)device, (void)call;
    return DEVICE_OK;
}

/* Large copies are of what nobody reads. */
static inline int fake_copy(struct device *device, void *to, const void *from, int64_t bytes) {
    (void)device;
    if (bytes < 1 << 26) {
        memcpy(to, from, (size_t)bytes);
        return DEVICE_OK;
    }
    return fake_cost(1e-3 * (double)bytes);
}

static inline int fake_event_open(struct device *device, struct device_event **out) {
    (void)device;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? DEVICE_OK : DEVICE_NO_MEMORY;
}

static inline void fake_event_close(struct device *device, struct device_event *mark) {
    (void)device;
    free(mark);
}

static inline int fake_event_record(struct device *device, struct device_event *mark) {
    (void)device;
    mark->ns = fake.device_ns;
    fake.device_ns += fake.event_ns + (fake.n_embedded % 4 != 0 ? fake.late_ns : 0);
    return DEVICE_OK;
}

static inline int fake_elapsed(struct device *device, struct device_event *from,
                               struct device_event *to, double *ns) {
    (void)device;
    *ns = to->ns - from->ns;
    return DEVICE_OK;
}

static inline int fake_facts(struct device *device, struct device_facts *out) {
    const int64_t taken = fake.spills ? 0 : device_cpu.allocated_bytes(device);
    *out = MAKE(struct device_facts, .name = "a fake", .memory_bytes = 8LL << 30,
                .free_bytes = (4LL << 30) - taken, .l2_bytes = 1 << 16, .n_sms = 1,
                .capability = fake.capability);
    return DEVICE_OK;
}

static inline void fake_vitals(struct device *device, struct device_vitals *out) {
    (void)device;
    fake.energy_j += fake.look_j;
    *out = MAKE(struct device_vitals, .energy_j = fake.energy_j);
}

static inline const char *fake_trouble(const struct device *device) {
    (void)device;
    return "it was told to";
}

static inline int64_t fake_now_ns(void *state) {
    (void)state;
    return (int64_t)(fake.device_ns + fake.host_ns);
}

/* One that records, and is then a GPU; or one that does not. Starts the clocks anew. */
static inline struct device_table fake_table(bool records) {
    struct device_table table = device_cpu;
    memset(&fake, 0, sizeof fake);
    fake.load = 1;
    fake.capability = records ? 90 : 0;
    if (records) {
        table.capture_begin = fake_capture_begin;
        table.capture_end = fake_capture_end;
        table.graph_launch = fake_graph_launch;
        table.graph_close = fake_graph_close;
    }
    table.name = "fake";
    table.trouble = fake_trouble;
    table.facts = fake_facts;
    table.vitals = fake_vitals;
    table.copy = fake_copy;
    table.event_open = fake_event_open;
    table.event_close = fake_event_close;
    table.event_record = fake_event_record;
    table.event_elapsed = fake_elapsed;
#define KERNEL(name, cuda, cpu) table.name = fake_##name;
#include "kernels/kernels.def"
    return table;
}

#endif
