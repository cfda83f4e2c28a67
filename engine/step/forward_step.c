/* Issuing a forward pass's steps, waiting for them, and what they came to. */
#include <stdio.h>
#include <string.h>

#include "engine/step/forward_parts.h"
#include "engine/step/placed.h"
#include "kernels/bf16.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"

static int record_event(const struct forward *forward, enum room_event which) {
    return forward->device->table->event_record(forward->device->device,
                                                forward->room.events[which]);
}

/* The host memory for the next upload, once the last upload out of it is done; then its bytes on
 * their way to the device. */
static int upload_begin(struct forward *forward, unsigned char **out, struct err *err) {
    uint64_t next = forward->n_uploads % ROOM_UPLOADS;
    int status = DEVICE_OK;
    *out = forward->room.uploads[next];
    if (forward->n_uploads >= ROOM_UPLOADS) {
        status = forward->device->table->event_wait(forward->device->device,
                                                    forward->room.events[EVENT_UPLOADED + next]);
    }
    return forward_device_err(forward, status, "waiting for an upload", err);
}

static int upload_end(struct forward *forward, unsigned char *to, int64_t bytes, struct err *err) {
    uint64_t next = forward->n_uploads % ROOM_UPLOADS;
    int status = forward->device->table->upload(forward->device->device, to,
                                                forward->room.uploads[next], bytes);
    if (status == DEVICE_OK) {
        status = record_event(forward, (enum room_event)(EVENT_UPLOADED + next));
    }
    forward->n_uploads++;
    return forward_device_err(forward, status, "uploading a step", err);
}

/* Packs the step's arrays and sends them off. */
static int upload_arrays(struct forward *forward, struct packed *packed, const struct step *step,
                         struct err *err) {
    bool is_rest = packed == &forward->rest;
    unsigned char *out;
    int status = upload_begin(forward, &out, err);
    if (status == 0) {
        packed_fill(packed, step, is_rest ? &forward->packed : NULL, out);
        status =
            upload_end(forward, forward->room.arrays + (is_rest ? forward->packed.max_bytes : 0),
                       packed->bytes, err);
    }
    return status;
}

static void add_copy(struct forward *forward, struct join_copy copy) {
    if (copy.n_rows > 0) {
        forward->join_copies[forward->issue.n_join_copies++] = copy;
    }
}

/* Of the span `i`: what goes on after the leading layers, before it what of its store does, if it
 * takes that over; and to the store, where its prefix runs by itself. */
static void join_span(struct forward *forward, const struct step *step, uint32_t i) {
    const struct span *span = step->shape->spans[i];
    const struct kv_store *kv = &step->parts[i].kv;
    const int64_t taken = span->queries - span->first_queries;
    const int64_t from = forward->packed.first_token[i], to = forward->rest.first_token[i];
    const int64_t pool_bytes =
        (kv->first + packed_states(&forward->rest, kv->n_rows)) * forward->rest.element_bytes;
    add_copy(forward,
             (struct join_copy){
                 .from_pool = true, .pool_bytes = pool_bytes, .to_row = to, .n_rows = taken});
    add_copy(forward, (struct join_copy){
                          .from_row = from, .to_row = to + taken, .n_rows = span->first_queries});
    if (span->phase == PHASE_PREFILL) {
        add_copy(forward, (struct join_copy){.to_pool = true,
                                             .pool_bytes = pool_bytes,
                                             .from_row = from,
                                             .n_rows = span->first_queries});
    }
}

/* What follows the leading layers, of which the whole step is packed. */
static int prepare_joined(struct forward *forward, const struct step *step, struct err *err) {
    int status = packed_check(&forward->rest, step, err);
    if (status == 0) {
        packed_lay_out(&forward->rest, step);
        status = upload_arrays(forward, &forward->rest, step, err);
    }
    forward->issue.n_join_copies = 0;
    for (uint32_t i = 0; status == 0 && i < step->shape->n_spans; i++) {
        join_span(forward, step, i);
    }
    return status;
}

/* Everything before the first operator. */
int forward_prepare(struct forward *forward, const struct step *step, struct err *err) {
    const struct step *first = forward->packed.joins ? step->lead : step;
    int status = packed_check(&forward->packed, first, err);
    status = status == 0 ? placed_check(&forward->program, &forward->limits, step, err) : status;
    if (status == 0) {
        status = room_use_workspace(&forward->room, step->placement->peak_bytes, err);
    }
    if (status == 0) {
        packed_lay_out(&forward->packed, first);
        status = upload_arrays(forward, &forward->packed, first, err);
        forward->n_steps++;
    }
    if (status == 0 && forward->packed.joins) {
        status = prepare_joined(forward, step, err);
    }
    if (status == 0) {
        forward->step = *step;
        forward->placement = *step->placement;
        forward->shape = *step->shape;
        forward->shape.spans = NULL;
        memcpy(forward->key.offset_bytes, step->placement->offset_bytes,
               sizeof forward->key.offset_bytes);
        forward->key.chunks = step->placement->chunks;
        forward->key.counts = forward->packed.n;
        forward->is_stepping = false;
    }
    return status;
}

/* The importance of the step's tokens, both times, as soon as it is known; then the caller's word
 * on what goes on. */
static int ask_what_stays(struct forward *forward, struct step *rest, struct err *err) {
    const struct op *op = &forward->program.graph->ops[forward->program.evict_op];
    const int64_t *offset_bytes = forward->placement.offset_bytes;
    int64_t bytes = forward->packed.n.n_tokens * (int64_t)sizeof(float);
    float *before = forward->importance, *after = before + forward->limits.max_tokens;
    int status =
        forward_download(forward, before, forward->room.workspace + offset_bytes[op->in[0]], bytes);
    if (status == DEVICE_OK) {
        status = forward_download(forward, after, forward->room.workspace + offset_bytes[op->in[1]],
                                  bytes);
    }
    if (status != DEVICE_OK) {
        return forward_device_err(forward, status, "reading the importance of tokens", err);
    }
    const struct eviction seen = {before, after, forward->packed.first_token};
    return forward->step.evict(forward->step.evict_state, &seen, rest, err);
}

/* What is left of a step is packed and sent after it. */
static int keep(struct forward *forward, const void *arguments, struct err *err) {
    const struct step *rest = arguments;
    int status = packed_check(&forward->rest, rest, err);
    status = status == 0 ? placed_check(&forward->program, &forward->limits, rest, err) : status;
    if (status == 0) {
        packed_lay_out(&forward->rest, rest);
        status = upload_arrays(forward, &forward->rest, rest, err);
        forward->shape = *rest->shape;
        forward->shape.spans = NULL;
        program_settle(&forward->program, &forward->placement, &forward->shape, &forward->instance);
    }
    return status;
}

/* The host's visit in the middle of a step, of which all ranks know the same importance. Where no
 * token is masked all go on. */
int forward_evict(struct forward *forward, struct err *err) {
    struct step rest = forward->step;
    if (forward->packed.joins) {
        return 0; /* known before the step */
    }
    int status = forward->packed.n.max_masked > 0 ? ask_what_stays(forward, &rest, err) : 0;
    return status == 0 ? forward_on_all_ranks(forward, keep, &rest, err) : status;
}

int forward_issue(struct forward *forward, const struct op_instance *instance, struct err *err) {
    const bool is_done = forward->program.graph->ops[instance->op].kind == OP_ADD &&
                         is_added(&forward->issue, instance->op);
    int status = is_done ? DEVICE_OK : issue_instance(&forward->issue, instance);
    if (status == DEVICE_OK) {
        return 0;
    }
    char doing[64];
    snprintf(doing, sizeof doing, "running '%s'", forward->program.graph->ops[instance->op].name);
    return forward_device_err(forward, status, doing, err);
}

/* Issues operator instances from the next one up to the first of operator `end`, or to the last. */
static int issue_to(struct forward *forward, uint32_t end, struct err *err) {
    int status = 0;
    bool is_last = false;
    while (status == 0 && !is_last && forward->instance.op != end) {
        status = forward_issue(forward, &forward->instance, err);
        is_last = !program_next(&forward->program, &forward->placement, &forward->shape,
                                &forward->instance);
    }
    return status;
}

static int issue_all(struct forward *forward, struct err *err) {
    program_start(&forward->program, &forward->placement, &forward->shape, &forward->instance);
    return issue_to(forward, forward->program.graph->n_ops, err);
}

/* A step that cannot be captured for want of memory is launched operator by operator each time. */
static int capture(struct forward *forward, struct known_step *step, struct err *err) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    struct device_graph *captured = NULL;
    int status = forward_device_err(forward, table->capture_begin(device), "capturing a step", err);
    if (status != 0) {
        return status;
    }
    status = issue_all(forward, err);
    int ended = table->capture_end(device, &captured);
    if (status == 0 && ended == DEVICE_NO_MEMORY) {
        return 0;
    }
    ended = forward_device_err(forward, ended, "capturing a step", err);
    status = status == 0 ? ended : status;
    if (status == 0) {
        captures_keep(&forward->captures, step, captured);
    } else if (captured != NULL) {
        table->graph_close(device, captured);
    }
    return status;
}

/* The operators of the step once, as its CUDA graph or one by one. */
static int issue_once(struct forward *forward, const struct known_step *captured, struct err *err) {
    const struct device_table *table = forward->device->table;
    return captured != NULL
               ? forward_device_err(forward,
                                    table->graph_launch(forward->device->device, captured->graph),
                                    "launching a captured step", err)
               : issue_all(forward, err);
}

/* Of steps that are issued at once, what this one committed, where the next one does not write. */
static int keep_committed(struct forward *forward, uint32_t i, struct err *err) {
    const struct room *room = &forward->room;
    int64_t bytes = forward->limits.max_requests * (int64_t)sizeof *room->unrolled;
    int status = forward->device->table->copy(
        forward->device->device, room->unrolled + (int64_t)i * forward->limits.max_requests,
        room->n_committed, bytes);
    return forward_device_err(forward, status, "keeping what a step committed", err);
}

int forward_begin_step(struct forward *forward, struct err *err) {
    return forward_device_err(forward, record_event(forward, EVENT_STEP_BEGIN), "starting a step",
                              err);
}

int forward_end_step(struct forward *forward, struct err *err) {
    return forward_device_err(forward, record_event(forward, EVENT_STEP_END), "ending a step", err);
}

/* The operators of the step that was prepared last, `n` times, as cheaply as the device can. */
static int issue_steps(struct forward *forward, uint32_t n, struct err *err) {
    bool is_new = true; /* where leading layers end copies go by the pool: never captured */
    struct known_step *step =
        forward->packed.joins ? NULL : captures_find(&forward->captures, &forward->key, &is_new);
    int status = forward_begin_step(forward, err);
    bool launches = !is_new && step != NULL && step->graph != NULL;
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        status = issue_once(forward, launches ? step : NULL, err);
        status = status == 0 && n > 1 ? keep_committed(forward, i, err) : status;
    }
    status = status == 0 ? forward_end_step(forward, err) : status;
    /* Capturing takes the host milliseconds, in which the device has these steps to do. */
    return status == 0 && !is_new && !launches ? capture(forward, step, err) : status;
}

static int set_captures(struct forward *forward, const void *on, struct err *err) {
    (void)err;
    forward->captures.is_off = !*(const bool *)on;
    return 0;
}

int forward_captures(struct forward *forward, bool on, struct err *err) {
    return forward_on_all_ranks(forward, set_captures, &on, err);
}

/* A step that evicts, up to where the host has a word; it is never captured. */
static int issue_before(struct forward *forward, struct err *err) {
    int status = forward_begin_step(forward, err);
    program_start(&forward->program, &forward->placement, &forward->shape, &forward->instance);
    return status == 0 ? issue_to(forward, forward->program.evict_op, err) : status;
}

static int issue_behind(struct forward *forward, const void *nothing, struct err *err) {
    (void)nothing;
    int status = issue_to(forward, forward->program.graph->n_ops, err);
    return status == 0 ? forward_end_step(forward, err) : status;
}

struct steps {
    const struct step *step;
    uint32_t n;
};

static int submit(struct forward *forward, const void *arguments, struct err *err) {
    const struct steps *steps = arguments;
    int status = forward_prepare(forward, steps->step, err);
    if (status != 0) {
        return status;
    }
    return forward->packed.evicts ? issue_before(forward, err)
                                  : issue_steps(forward, steps->n, err);
}

int forward_submit(struct forward *forward, const struct step *step, struct err *err) {
    return forward_submit_times(forward, step, 1, err);
}

int forward_submit_times(struct forward *forward, const struct step *step, uint32_t n,
                         struct err *err) {
    ASSERT(n == 1 || (n > 1 && n <= forward->limits.max_unrolled && !forward->packed.evicts));
    const struct steps steps = {step, n};
    int status = forward_choose_products(forward, step, err);
    status = status == 0 ? forward_on_all_ranks(forward, submit, &steps, err) : status;
    if (status == 0 && forward->packed.evicts) {
        status = forward_evict(forward, err);
        status = status == 0 ? forward_on_all_ranks(forward, issue_behind, NULL, err) : status;
    }
    return status;
}

static int again(struct forward *forward, const void *nothing, struct err *err) {
    (void)nothing;
    ASSERT(forward->n_steps > 0 && !forward->is_stepping && !forward->packed.evicts);
    return issue_steps(forward, 1, err);
}

int forward_again(struct forward *forward, struct err *err) {
    return forward_on_all_ranks(forward, again, NULL, err);
}

/* ---- waiting and results ---- */

int forward_done(struct forward *forward, bool *out, struct err *err) {
    *out = true;
    if (forward->n_steps == 0) {
        return 0;
    }
    return forward_device_err(
        forward,
        forward->device->table->event_reached(forward->device->device,
                                              forward->room.events[EVENT_STEP_END], out),
        "asking whether a step is done", err);
}

/* Until the step is done, and where this is asked for how long it took. */
static int wait(struct forward *forward, double *device_ns, struct err *err) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    struct device_event *const *events = forward->room.events;
    if (device_ns != NULL) {
        *device_ns = 0;
    }
    if (forward->n_steps == 0) {
        return 0;
    }
    int status = table->event_wait(device, events[EVENT_STEP_END]);
    if (status == DEVICE_OK && device_ns != NULL) {
        status = table->event_elapsed(device, events[EVENT_STEP_BEGIN], events[EVENT_STEP_END],
                                      device_ns);
    }
    return forward_device_err(forward, status, "waiting for a step", err);
}

static int wait_only(struct forward *forward, const void *nothing, struct err *err) {
    (void)nothing;
    return wait(forward, NULL, err);
}

int forward_wait(struct forward *forward, double *device_ns, struct err *err) {
    int status = forward->ranks != NULL ? forward_on_all_ranks(forward, wait_only, NULL, err) : 0;
    return status == 0 ? wait(forward, device_ns, err) : status;
}

/* From the order of decisions to that of spans; returns what the device says. */
static int download_committed(struct forward *forward, const int32_t *from, int32_t *n_committed) {
    const struct packed *last = forward->issue.rest;
    const int64_t decisions = last->n.n_take + last->n.n_rule;
    int status = forward_download(forward, forward->n_committed, from, decisions * 4);
    for (uint32_t i = 0; status == DEVICE_OK && i < forward->shape.n_spans; i++) {
        int32_t decision = last->decision_of[i];
        n_committed[i] = decision >= 0 ? forward->n_committed[decision] : 0;
    }
    return status;
}

int forward_result(struct forward *forward, const struct step_result *result, struct err *err) {
    ASSERT(forward->n_steps > 0 && !forward->is_stepping);
    const int64_t rows = forward->issue.rest->n.n_logit_rows;
    const struct room *room = &forward->room;
    const struct candidates from =
        issue_candidates(&forward->issue, op_with(forward->program.graph, OP_COMMITS)->in[0]);
    int status = forward_download(forward, result->token, from.token, rows * 4);
    if (status == DEVICE_OK) {
        status = forward_download(forward, result->confidence, from.confidence, rows * 4);
    }
    if (status == DEVICE_OK && from.margin != NULL) {
        status = forward_download(forward, result->margin, from.margin, rows * 4);
    }
    if (status == DEVICE_OK && from.entropy != NULL) {
        status = forward_download(forward, result->entropy, from.entropy, rows * 4);
    }
    if (status == DEVICE_OK) {
        status = forward_download(forward, result->committed, room->committed, rows);
    }
    if (status == DEVICE_OK && result->n_committed != NULL) {
        status = download_committed(forward, room->n_committed, result->n_committed);
    }
    return forward_device_err(forward, status, "downloading a step's result", err);
}

int forward_committed(struct forward *forward, uint32_t i, int32_t *n_committed, struct err *err) {
    ASSERT(forward->n_steps > 0 && forward->room.unrolled != NULL);
    const int32_t *from = forward->room.unrolled + (int64_t)i * forward->limits.max_requests;
    return forward_device_err(forward, download_committed(forward, from, n_committed),
                              "downloading what a step committed", err);
}

/* n logits in the graph's elements, as floats. */
static void widen(const unsigned char *from, int64_t width, int64_t n, float *to) {
    if (width == F32_BYTES) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + i * BF16_BYTES, sizeof bits);
        to[i] = bf16_to_float(bits);
    }
}

static const struct op *logits_read(const struct forward *forward) {
    return op_with(forward->program.graph, OP_READS_LOGITS);
}

/* A rank's columns of all rows, to where they lie among those of the whole vocabulary. */
static int download_logits(struct forward *forward, const void *logits, struct err *err) {
    const struct model *model = forward->program.graph->model;
    const int64_t own = model->vocab, all = model_whole_vocab(model);
    const int64_t before = all > own ? forward->weights->layout.rank * own : 0;
    const int64_t width = graph_element_bytes(forward->program.graph);
    const int64_t n = forward->issue.rest->n.n_logit_rows * own, most = ROOM_STAGING_BYTES / width;
    const unsigned char *from =
        forward->room.workspace + forward->placement.offset_bytes[logits_read(forward)->in[0]];
    float *const to = *(float *const *)logits + before;
    ASSERT(own > 0);
    for (int64_t first = 0, end; first < n; first = end) {
        end = first + most < n ? first + most : n;
        const int status = forward_download(forward, forward->room.staging, from + first * width,
                                            (end - first) * width);
        if (status != DEVICE_OK) {
            return forward_device_err(forward, status, "downloading logits", err);
        }
        for (int64_t at = first, past; at < end; at = past) {
            const int64_t row_end = (at / own + 1) * own;
            past = row_end < end ? row_end : end;
            widen(forward->room.staging + (at - first) * width, width, past - at,
                  to + at / own * all + at % own);
        }
    }
    return 0;
}

int forward_logits(struct forward *forward, float *logits, struct err *err) {
    ASSERT(forward->n_steps > 0 && !forward->is_stepping);
    const struct op *sample = logits_read(forward);
    return sample != NULL && loop_n_chunks(forward->program.graph, sample->loop, &forward->shape,
                                           forward->placement.chunks) <= 1
               ? forward_on_all_ranks(forward, download_logits, &logits, err)
               : err_usage(err, "the step does not store its logits all at once");
}
