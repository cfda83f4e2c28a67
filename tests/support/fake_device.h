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
} fake;

static inline int fake_cost(double ns) {
    ns *= fake.in_step ? fake.load : 1;
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

static inline int fake_linear(struct device *device, const struct call_linear *call) {
    (void)device;
    return fake_cost(product_ns(call->n_tokens, call->n_outputs, call->n_inputs));
}

static inline int fake_embed(struct device *device, const struct call_embed *call) {
    (void)device;
    fake_host_cost(STEP_NS);
    int status = fake_cost(pass_ns(call->n_tokens, call->n_channels));
    fake.embedded = true;
    return status;
}

static inline int fake_norm(struct device *device, const struct call_norm *call) {
    (void)device;
    fake.in_step = fake.in_step || fake.embedded;
    return fake_cost(pass_ns(call->n_rows, call->n_channels));
}

static inline int fake_add(struct device *device, const struct call_add *call) {
    (void)device;
    return fake_cost(pass_ns((double)call->n, 1));
}

static inline int fake_rope(struct device *device, const struct call_rope *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_tokens, call->n_heads + 2.0 * call->n_kv_heads));
}

static inline int fake_keep(struct device *device, const struct call_keep *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_tokens, call->n_kv_heads));
}

static inline int fake_swiglu(struct device *device, const struct call_swiglu *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_tokens, call->n_hidden));
}

static inline int fake_dense_attention(struct device *device,
                                       const struct call_dense_attention *call) {
    (void)device;
    double q = call->max_tokens;
    return fake_cost(1000 + 0.001 * call->n_requests * q * (q + 128));
}

static inline int fake_block_attention(struct device *device,
                                       const struct call_block_attention *call) {
    (void)device;
    double kept = 0;
    for (int32_t r = 0; r < call->n_requests; r++) {
        kept += call->kept[r];
    }
    return fake_cost(1500 + 0.01 * call->max_queries * kept);
}

static inline int fake_select(struct device *device, const struct call_select *call) {
    (void)device;
    double candidates = call->start[call->n_requests], kept = 0;
    for (int32_t r = 0; r < call->n_requests; r++) {
        candidates -= call->block_end[r] - call->block_start[r];
        kept += call->kept[r];
    }
    return fake_cost(1500 + 2 * candidates + kept);
}

static inline int fake_gate_up(struct device *device, const struct call_gate_up *call) {
    (void)device;
    return fake_cost(product_ns(call->n_tokens, call->n_hidden, call->n_channels));
}

static inline int fake_head(struct device *device, const struct call_head *call) {
    (void)device;
    return fake_cost(product_ns(call->n_rows, call->n_vocab, call->n_channels));
}

static inline int fake_sample(struct device *device, const struct call_sample *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_rows, call->n_vocab));
}

static inline int fake_credit(struct device *device, const struct call_credit *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_rows, 64));
}

static inline int fake_softmax(struct device *device, const struct call_softmax *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_rows, 2.0 * call->n_vocab));
}

static inline int fake_keep_expected(struct device *device, const struct call_keep_expected *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_rows, call->n_channels));
}

static inline int fake_add_expected(struct device *device, const struct call_add_expected *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_tokens, call->n_channels));
}

static inline int fake_next_step(struct device *device, const struct call_next_step *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_rows, 1));
}

static inline int fake_decode(struct device *device, const struct call_decode *call) {
    (void)device;
    double rows = 0;
    for (int32_t r = 0; r < call->n_requests; r++) {
        rows += call->n_rows[r];
    }
    fake_host_cost(REQUEST_NS * call->n_requests);
    int status = fake_cost(700 + 3 * rows);
    fake.in_step = false;
    return status;
}

static inline int fake_random(struct device *device, const struct call_random *call) {
    (void)device;
    (void)call;
    return DEVICE_OK;
}

static inline int fake_paged_attention(struct device *device,
                                       const struct call_paged_attention *call) {
    (void)device;
    double pairs = 0;
    for (int32_t t = call->start[0]; t < call->start[call->n_requests]; t++) {
        pairs += call->extent[t];
    }
    return fake_cost(1500 + 0.01 * pairs);
}

static inline int fake_importance(struct device *device, const struct call_importance *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_requests, 10.0 * call->max_masked));
}

static inline int fake_compact(struct device *device, const struct call_compact *call) {
    (void)device;
    return fake_cost(pass_ns(call->max_rows, call->width[0]));
}

static inline int fake_moe_route(struct device *device, const struct call_moe_route *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_tokens, call->n_experts));
}

static inline int fake_moe_sort(struct device *device, const struct call_moe_sort *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_tokens, call->n_active));
}

/* As many experts as there are pairs are read, or all. */
static inline double fake_experts_ns(double pairs, double experts, double width) {
    return 2000 + 0.001 * width * (pairs + (pairs < experts ? pairs : experts));
}

static inline int fake_moe_gate_up(struct device *device, const struct call_moe_gate_up *call) {
    (void)device;
    return fake_cost(fake_experts_ns((double)call->n_tokens * call->n_active, call->n_experts,
                                     (double)call->n_hidden * call->n_channels));
}

static inline int fake_moe_down(struct device *device, const struct call_moe_down *call) {
    (void)device;
    return fake_cost(fake_experts_ns((double)call->n_tokens * call->n_active, call->n_experts,
                                     (double)call->n_hidden * call->n_channels));
}

static inline int fake_moe_combine(struct device *device, const struct call_moe_combine *call) {
    (void)device;
    return fake_cost(pass_ns(call->n_tokens, (double)call->n_active * call->n_channels));
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
    return DEVICE_OK;
}

static inline int fake_elapsed(struct device *device, struct device_event *from,
                               struct device_event *to, double *ns) {
    (void)device;
    *ns = to->ns - from->ns;
    return DEVICE_OK;
}

static inline int fake_facts(struct device *device, struct device_facts *out) {
    (void)device;
    *out = (struct device_facts){.name = "a fake",
                                 .memory_bytes = 8LL << 30,
                                 .free_bytes = 4LL << 30,
                                 .l2_bytes = 1 << 16,
                                 .n_sms = 1,
                                 .capability = fake.capability};
    return DEVICE_OK;
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
    table.event_open = fake_event_open;
    table.event_close = fake_event_close;
    table.event_record = fake_event_record;
    table.event_elapsed = fake_elapsed;
#define KERNEL(name) table.name = fake_##name;
#include "kernels/device/kernels.def"
    return table;
}

#endif
