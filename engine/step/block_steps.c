#include "engine/step/block_steps.h"

#include <inttypes.h>
#include <string.h>

#include "engine/step/forward_parts.h"
#include "engine/step/placed.h"
#include "sim/base/num.h"
#include "sim/graph/bucket.h"

/* ---- the parts of a step that run over sizes the device knows alone ---- */

enum sized { SIZED_WHOLE, SIZED_KEPT, SIZED_HEAD };
enum { SIZED_COUNT = SIZED_HEAD + 1 };

static unsigned char *arrays_of(const struct forward *forward, const struct packed *packed) {
    return forward->room.arrays + (packed == &forward->rest ? forward->packed.max_bytes : 0);
}

static void *listed(const struct forward *forward, const struct packed *packed,
                    enum packed_array array) {
    return arrays_of(forward, packed) + packed->offset_bytes[array];
}

static unsigned char *block_arrays(const struct forward *forward) {
    return forward->room.arrays + 2 * forward->packed.max_bytes;
}

static void *noted(const struct forward *forward, enum block_array array) {
    return block_arrays(forward) + forward->lists.offset_bytes[array];
}

static int32_t *place_of(const struct forward *forward, enum sized part) {
    return (int32_t *)noted(forward, BLOCK_PLACES) + part;
}

static int32_t *number_of(const struct forward *forward, enum block_number number) {
    return (int32_t *)noted(forward, BLOCK_NUMBERS) + number;
}

/* Operators of a part: [first, end). The head is the last segment. */
static void ops_of(const struct forward *forward, enum sized part, uint32_t *first, uint32_t *end) {
    const struct program *program = &forward->program;
    uint32_t head = program->first_op[program->graph->n_segments - 1];
    *first = part == SIZED_WHOLE ? 0 : part == SIZED_KEPT ? program->evict_op : head;
    *end = part == SIZED_WHOLE  ? program->evict_op
           : part == SIZED_KEPT ? head
                                : program->graph->n_ops;
}

static void set_size(struct forward *forward, enum sized part, int32_t size) {
    static const enum symbol symbols[SIZED_COUNT] = {SYM_TOKENS, SYM_KEPT_TOKENS, SYM_LOGIT_ROWS};
    forward->shape.sym[symbols[part]] = size;
    if (part == SIZED_WHOLE) {
        forward->packed.n.n_tokens = size;
    } else if (part == SIZED_KEPT) {
        forward->rest.n.n_tokens = size;
    } else {
        forward->rest.n.n_logit_rows = size;
    }
}

static int issue_part(struct forward *forward, enum sized part, int32_t size, struct err *err) {
    uint32_t first, end;
    struct turn turn = {0};
    ops_of(forward, part, &first, &end);
    set_size(forward, part, size);
    turn.op = first;
    program_settle(&forward->program, &forward->placement, &forward->shape, &turn);
    int status = 0;
    do {
        status = forward_issue(forward, &turn, err);
    } while (status == 0 &&
             program_next(&forward->program, &forward->placement, &forward->shape, &turn) &&
             turn.op < end);
    return status;
}

/* The part once for each size, of which the device takes one. */
static int record_sizes(struct forward *forward, enum sized part, const struct call_bucket *sizes,
                        struct err *err) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    int status =
        forward_device_err(forward, table->record_choose(device, sizes->place, sizes->n_sizes),
                           "recording sizes of a step", err);
    for (int32_t i = 0; status == 0 && i < sizes->n_sizes; i++) {
        if (i > 0) {
            status = forward_device_err(forward, table->record_next(device),
                                        "recording sizes of a step", err);
        }
        status = status == 0 ? issue_part(forward, part, sizes->sizes[i], err) : status;
    }
    return status == 0 ? forward_device_err(forward, table->record_done(device),
                                            "recording sizes of a step", err)
                       : status;
}

static int ask_size(struct forward *forward, enum sized part, const struct call_bucket *sizes,
                    struct err *err) {
    int32_t place = -1;
    int status = forward->device->table->download(forward->device->device, &place, sizes->place,
                                                  sizeof place);
    status = forward_device_err(forward, status, "reading the size of a step", err);
    return status == 0 && place >= 0 ? issue_part(forward, part, sizes->sizes[place], err) : status;
}

/* The sizes up to the most; of more than there is room for, the larger ones. */
static void list_sizes(const struct forward *forward, struct call_bucket *out) {
    int64_t most = forward->lists.n_tokens, unit = forward->limits.bucket_tokens;
    out->n_sizes = 0;
    for (int64_t n = 1; n <= most;) {
        int64_t size = bucket_size(n, unit);
        if (out->n_sizes == BUCKET_SIZES) {
            memmove(out->sizes, out->sizes + 1, (BUCKET_SIZES - 1) * sizeof *out->sizes);
            out->n_sizes--;
        }
        out->sizes[out->n_sizes++] = (int32_t)(size < most ? size : most);
        n = size + 1;
    }
}

/* Over *n tokens or rows, a number on the device. */
static int issue_sized(struct forward *forward, enum sized part, const int32_t *n, bool records,
                       struct err *err) {
    struct call_bucket sizes = {.n = n, .place = place_of(forward, part)};
    list_sizes(forward, &sizes);
    int status =
        forward_device_err(forward, forward->device->table->bucket(forward->device->device, &sizes),
                           "rounding a step", err);
    if (status != 0) {
        return status;
    }
    return records ? record_sizes(forward, part, &sizes, err)
                   : ask_size(forward, part, &sizes, err);
}

/* ---- the step ---- */

static int issue_list(struct forward *forward) {
    const struct packed *whole = &forward->packed;
    const struct block_lists *lists = &forward->lists;
    const struct call_block_list call = {
        .canvas = forward->room.canvases,
        .canvas_start = noted(forward, BLOCK_CANVAS_START),
        .block_start = noted(forward, BLOCK_BEGIN),
        .block_tokens = noted(forward, BLOCK_LENGTH),
        .pages = noted(forward, BLOCK_PAGES),
        .decoded = noted(forward, BLOCK_DECODED),
        .final = noted(forward, BLOCK_FINAL),
        .start = listed(forward, whole, PACKED_START),
        .positions = listed(forward, whole, PACKED_POSITIONS),
        .kv_rows = listed(forward, whole, PACKED_KV_ROWS),
        .extent = listed(forward, whole, PACKED_EXTENT),
        .at = listed(forward, whole, PACKED_AT),
        .masked = listed(forward, whole, PACKED_MASKED),
        .n_requests = lists->n_requests,
        .n_tokens = lists->n_tokens,
        .max_pages = lists->max_pages,
        .page_rows = (int32_t)forward->limits.page_rows,
        .max_block = lists->max_block,
        .mask_token = (int32_t)whole->model->mask_token,
        .spare_row = -1,
        .cache = KERNEL_BLOCK_NEIGHBOUR,
    };
    return forward->device->table->block_list(forward->device->device, &call);
}

static int issue_choice(struct forward *forward, const struct block_step *step) {
    const struct packed *whole = &forward->packed, *rest = &forward->rest;
    const struct op *op = &forward->program.graph->ops[forward->program.evict_op];
    const int64_t *offset_bytes = forward->placement.offset_bytes;
    const unsigned char *workspace = forward->room.workspace;
    const struct call_focus_select call = {
        .before = (const float *)(const void *)(workspace + offset_bytes[op->in[0]]),
        .after = (const float *)(const void *)(workspace + offset_bytes[op->in[1]]),
        .masked = listed(forward, whole, PACKED_MASKED),
        .start = listed(forward, whole, PACKED_START),
        .positions = listed(forward, whole, PACKED_POSITIONS),
        .kv_rows = listed(forward, whole, PACKED_KV_ROWS),
        .extent = listed(forward, whole, PACKED_EXTENT),
        .at = listed(forward, whole, PACKED_AT),
        .mean = noted(forward, BLOCK_MEAN),
        .logits = noted(forward, BLOCK_LOGITS),
        .frontier = noted(forward, BLOCK_FRONTIER),
        .keep = noted(forward, BLOCK_KEEP),
        .kept_start = listed(forward, rest, PACKED_START),
        .kept = listed(forward, rest, PACKED_KEPT_TOKENS),
        .kept_positions = listed(forward, rest, PACKED_POSITIONS),
        .kept_rows = listed(forward, rest, PACKED_KV_ROWS),
        .kept_extent = listed(forward, rest, PACKED_EXTENT),
        .logit_rows = listed(forward, rest, PACKED_ROWS),
        .targets = listed(forward, rest, PACKED_TARGETS),
        .first_row = listed(forward, rest, PACKED_FIRST_ROW),
        .n_rows = listed(forward, rest, PACKED_N_ROWS),
        .n_requests = forward->lists.n_requests,
        .n_tokens = forward->lists.n_tokens,
        .spare_row = -1,
        .max_masked = forward->lists.max_block,
        .alpha = step->alpha,
        .above_deviation = step->above_deviation,
    };
    return forward->device->table->focus_select(forward->device->device, &call);
}

static int issue_log(struct forward *forward) {
    const struct packed *whole = &forward->packed, *rest = &forward->rest;
    const struct call_block_log call = {
        .start = listed(forward, whole, PACKED_START),
        .positions = listed(forward, whole, PACKED_POSITIONS),
        .keep = noted(forward, BLOCK_KEEP),
        .kept_positions = listed(forward, rest, PACKED_POSITIONS),
        .logit_rows = listed(forward, rest, PACKED_ROWS),
        .first_row = listed(forward, rest, PACKED_FIRST_ROW),
        .n_rows = listed(forward, rest, PACKED_N_ROWS),
        .committed = forward->room.committed,
        .block_start = noted(forward, BLOCK_BEGIN),
        .decoded = noted(forward, BLOCK_DECODED),
        .log = noted(forward, BLOCK_LOG),
        .step = number_of(forward, NUMBER_STEP),
        .n_requests = forward->lists.n_requests,
        .max_block = forward->lists.max_block,
    };
    return forward->device->table->block_log(forward->device->device, &call);
}

static int issue_mean(struct forward *forward, const struct block_step *step) {
    const struct call_decode_mean call = {
        .n_decoded = forward->room.n_committed,
        .mean = noted(forward, BLOCK_MEAN),
        .sum = noted(forward, BLOCK_SUM),
        .steps = noted(forward, BLOCK_COUNTED),
        .n_requests = forward->lists.n_requests,
        .weight = step->weight,
    };
    return forward->device->table->decode_mean(forward->device->device, &call);
}

static int issue_next(struct forward *forward) {
    const struct call_block_next call = {
        .block_tokens = noted(forward, BLOCK_LENGTH),
        .decoded = noted(forward, BLOCK_DECODED),
        .final = noted(forward, BLOCK_FINAL),
        .ends_early = noted(forward, BLOCK_ENDS),
        .takes = noted(forward, BLOCK_TAKES),
        .take = noted(forward, BLOCK_TAKE),
        .most = number_of(forward, NUMBER_MOST),
        .step = number_of(forward, NUMBER_STEP),
        .again = number_of(forward, NUMBER_AGAIN),
        .n_requests = forward->lists.n_requests,
        .max_block = forward->lists.max_block,
    };
    return forward->device->table->block_next(forward->device->device, &call);
}

/* What the step was, and what the next one is. A head that nobody needs commits nothing. */
static int issue_end(struct forward *forward, const struct block_step *step) {
    int status = issue_log(forward);
    status = status == DEVICE_OK ? issue_mean(forward, step) : status;
    return status == DEVICE_OK ? issue_next(forward) : status;
}

static int issue_begin(struct forward *forward) {
    int status = forward->device->table->clear(forward->device->device, forward->room.n_committed,
                                               forward->lists.n_requests *
                                                   (int64_t)sizeof *forward->room.n_committed);
    return status == DEVICE_OK ? issue_list(forward) : status;
}

static int issue_one(struct forward *forward, const struct block_step *step, bool records,
                     struct err *err) {
    const int32_t n = forward->lists.n_requests;
    const int32_t *start = listed(forward, &forward->packed, PACKED_START);
    const int32_t *kept_start = listed(forward, &forward->rest, PACKED_START);
    const int32_t *first_row = listed(forward, &forward->rest, PACKED_FIRST_ROW);
    int status = forward_device_err(forward, issue_begin(forward), "listing a step's tokens", err);
    status = status == 0 ? issue_sized(forward, SIZED_WHOLE, start + n, records, err) : status;
    if (status == 0) {
        status = forward_device_err(forward, issue_choice(forward, step), "evicting tokens", err);
    }
    status = status == 0 ? issue_sized(forward, SIZED_KEPT, kept_start + n, records, err) : status;
    status = status == 0 ? issue_sized(forward, SIZED_HEAD, first_row + n, records, err) : status;
    return status == 0 ? forward_device_err(forward, issue_end(forward, step), "noting a step", err)
                       : status;
}

/* As long as the device says that there is another. */
static int record_all(struct forward *forward, const struct block_step *step, struct err *err) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    int status =
        forward_device_err(forward, table->record_while(device, number_of(forward, NUMBER_AGAIN)),
                           "recording steps", err);
    status = status == 0 ? issue_one(forward, step, true, err) : status;
    return status == 0
               ? forward_device_err(forward, table->record_done(device), "recording steps", err)
               : status;
}

static int issue_all(struct forward *forward, const struct block_step *step, struct err *err) {
    int32_t again = 1;
    int status = 0;
    while (status == 0 && again != 0) {
        again = 0;
        status = issue_one(forward, step, false, err);
        if (status == 0 && step->most_steps > 1) {
            status = forward->device->table->download(
                forward->device->device, &again, number_of(forward, NUMBER_AGAIN), sizeof again);
            status = forward_device_err(forward, status, "reading whether steps go on", err);
        }
    }
    return status;
}

/* A device that lacks the memory to record is issued the step anew each time. */
static int record(struct forward *forward, const struct block_step *step, struct known_step *known,
                  struct err *err) {
    const struct device_table *table = forward->device->table;
    struct device *device = forward->device->device;
    struct device_recording *recording = NULL;
    int status = forward_device_err(forward, table->record_begin(device), "recording a step", err);
    if (status != 0) {
        return status;
    }
    status = record_all(forward, step, err);
    int ended = table->record_end(device, &recording);
    if (status == 0 && ended == DEVICE_NO_MEMORY) {
        return 0;
    }
    status = status == 0 ? forward_device_err(forward, ended, "recording a step", err) : status;
    if (status == 0) {
        recordings_keep(&forward->recordings, known, recording);
        known->peak_bytes = forward->issue.peak_bytes;
    } else if (recording != NULL) {
        table->record_close(device, recording);
    }
    return status;
}

/* What the device recorded of such steps, by now; NULL where it records nothing. */
static int find_recording(struct forward *forward, const struct block_step *step,
                          struct known_step **out, struct err *err) {
    bool is_new;
    *out = NULL;
    if (forward->recordings.steps == NULL || forward->device->table->record_choose == NULL) {
        return 0;
    }
    *out = recordings_find(&forward->recordings, &forward->key, &is_new);
    if ((*out)->recording != NULL) {
        return 0;
    }
    /* Memory is used when the recording is played. */
    const int64_t peak_bytes = forward->issue.peak_bytes;
    forward->issue.peak_bytes = 0;
    int status = record(forward, step, *out, err);
    forward->issue.peak_bytes = peak_bytes;
    return status;
}

static int play(struct forward *forward, const struct known_step *known, struct err *err) {
    struct issue *issue = &forward->issue;
    if (known->peak_bytes > issue->peak_bytes) {
        issue->peak_bytes = known->peak_bytes;
    }
    return forward_device_err(
        forward, forward->device->table->record_play(forward->device->device, known->recording),
        "playing a recorded step", err);
}

static int issue_step(struct forward *forward, const struct block_step *step, struct err *err) {
    struct known_step *known;
    int status = find_recording(forward, step, &known, err);
    bool plays = known != NULL && known->recording != NULL;
    if (status == 0) {
        status = forward_device_err(forward, forward_mark(forward, MARK_STEP_BEGIN),
                                    "starting a step", err);
    }
    if (status == 0 && plays) {
        status = play(forward, known, err);
    } else if (status == 0) {
        status = issue_all(forward, step, err);
    }
    return status == 0 ? forward_device_err(forward, forward_mark(forward, MARK_STEP_END),
                                            "ending a step", err)
                       : status;
}

/* ---- what comes before ---- */

static int check_member(const struct forward *forward, const struct block_step *step, uint32_t i,
                        struct err *err) {
    const struct block_member *member = &step->members[i];
    const struct step_limits *limits = &forward->limits;
    int64_t end = (int64_t)member->begin + member->length;
    int64_t room = limits->canvas_tokens - member->canvas;
    if (member->length < 1 || (uint32_t)member->length > limits->block_tokens ||
        member->begin < 0 || end > limits->max_positions || member->canvas < 0 || end > room ||
        end > (int64_t)member->n_pages * limits->page_rows) {
        return err_usage(err,
                         "block %" PRIu32 " of a step is %" PRId32 " positions from %" PRId32
                         " on, in %" PRId32 " pages, of a canvas at %" PRId64,
                         i, member->length, member->begin, member->n_pages, member->canvas);
    }
    for (int32_t page = 0; page < member->n_pages; page++) {
        if (member->pages[page] < 0 || member->pages[page] >= forward->packed.pool_pages) {
            return err_usage(
                err, "block %" PRIu32 " of a step has page %" PRId32 " of %" PRId64 " pages", i,
                member->pages[page], forward->packed.pool_pages);
        }
    }
    return 0;
}

static int check_room(const struct forward *forward, const struct block_step *step,
                      struct err *err) {
    struct step_shape most;
    shape_clear(&most);
    bucket_widen(&most, step->max_tokens);
    const struct step widest = {.placement = step->placement, .shape = &most};
    return placed_check(&forward->program, &forward->limits, &widest, err);
}

static int check(const struct forward *forward, const struct block_step *step, struct err *err) {
    int64_t n_listed = 0;
    if (!forward->packed.evicts || forward->limits.bucket_tokens == 0) {
        return err_usage(err, "the engine was not opened for steps that the device decides");
    }
    if (step->most_steps < 1 || step->most_steps > BLOCK_STEPS) {
        return err_usage(err, "%" PRIu32 " steps at once, but 1 to %d are run", step->most_steps,
                         (int)BLOCK_STEPS);
    }
    if (step->n == 0 || step->n > forward->limits.max_requests) {
        return err_usage(err, "a step of %" PRIu32 " blocks, but 1 to %" PRIu32 " are run", step->n,
                         forward->limits.max_requests);
    }
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < step->n; i++) {
        status = check_member(forward, step, i, err);
        for (int32_t p = 0; status == 0 && p < step->members[i].length; p++) {
            n_listed += step->members[i].uncached[p] != 0;
        }
    }
    if (status == 0 &&
        (n_listed > step->max_tokens || step->max_tokens > forward->limits.max_tokens)) {
        status =
            err_usage(err, "a step of %" PRId64 " tokens with room for %" PRIu32 " of %" PRIu32,
                      n_listed, step->max_tokens, forward->limits.max_tokens);
    }
    return status == 0 ? check_room(forward, step, err) : status;
}

/* The counts by which the graph's operators are issued: of the most that the step may be. Pages and
 * numbers to commit lie among the blocks' arrays. */
static void reserve(struct forward *forward, const struct block_step *step) {
    const struct block_lists *lists = &forward->lists;
    struct packed_counts n = {.n_block = lists->n_requests,
                              .n_tokens = lists->n_tokens,
                              .n_keeping_tokens = lists->n_tokens,
                              .max_block_tokens = lists->max_block,
                              .max_pages = lists->max_pages,
                              .max_masked = lists->max_block};
    packed_reserve(&forward->packed, &n);
    n.n_logit_rows = lists->n_tokens;
    n.rank = step->rank;
    if (step->takes) {
        n.n_take = lists->n_requests;
        n.max_take_rows = lists->max_block;
    } else {
        n.n_rule = lists->n_requests;
        n.max_rule_rows = lists->max_block;
        n.rule = DECODE_THRESHOLD;
        n.slack = step->slack;
    }
    packed_reserve(&forward->rest, &n);
    int64_t whole = block_arrays(forward) - arrays_of(forward, &forward->packed);
    int64_t rest = block_arrays(forward) - arrays_of(forward, &forward->rest);
    forward->packed.offset_bytes[PACKED_PAGES] = whole + lists->offset_bytes[BLOCK_PAGES];
    forward->rest.offset_bytes[PACKED_PAGES] = rest + lists->offset_bytes[BLOCK_PAGES];
    forward->rest.offset_bytes[PACKED_TAKE] = rest + lists->offset_bytes[BLOCK_TAKE];
    forward->rest.offset_bytes[PACKED_THRESHOLD] = rest + lists->offset_bytes[BLOCK_THRESHOLD];
}

static void lay_out(struct forward *forward, const struct block_step *step) {
    const struct step_limits *limits = &forward->limits;
    int64_t n = bucket_size(step->n, BUCKET_REQUESTS);
    int32_t n_pages = (int32_t)ceil_div(limits->max_positions, limits->page_rows);
    block_lists_lay_out(
        &forward->lists, (int32_t)(n < limits->max_requests ? n : limits->max_requests),
        packed_table_width(n_pages), (int32_t)limits->block_tokens, (int32_t)step->max_tokens);
    reserve(forward, step);
    forward->placement = *step->placement;
    shape_clear(&forward->shape);
    memcpy(forward->key.offset_bytes, step->placement->offset_bytes,
           sizeof forward->key.offset_bytes);
    forward->key.chunks = step->placement->chunks;
    forward->key.counts = forward->rest.n;
    forward->is_stepping = false;
}

int block_step_warm(struct forward *forward, const struct block_step *step, struct err *err) {
    struct known_step *known;
    int status = check_room(forward, step, err);
    if (status == 0) {
        status = room_use_workspace(&forward->room, step->placement->peak_bytes, err);
    }
    if (status == 0) {
        lay_out(forward, step);
        status = find_recording(forward, step, &known, err);
    }
    return status;
}

int block_step_submit(struct forward *forward, const struct block_step *step, struct err *err) {
    unsigned char *out;
    int status = check(forward, step, err);
    if (status == 0) {
        status = room_use_workspace(&forward->room, step->placement->peak_bytes, err);
    }
    status = status == 0 ? forward_upload_begin(forward, &out, err) : status;
    if (status == 0) {
        lay_out(forward, step);
        block_lists_fill(&forward->lists, step->members, (int32_t)step->n,
                         (int32_t)step->most_steps, out);
        status =
            forward_upload_end(forward, block_arrays(forward), forward->lists.upload_bytes, err);
    }
    forward->n_steps += status == 0;
    return status == 0 ? issue_step(forward, step, err) : status;
}

int block_step_log(struct forward *forward, uint32_t *n_steps, uint32_t *n_rows, uint8_t *log,
                   struct err *err) {
    const struct block_lists *lists = &forward->lists;
    const struct device_table *table = forward->device->table;
    int32_t n = 0;
    int status =
        table->download(forward->device->device, &n, number_of(forward, NUMBER_STEP), sizeof n);
    ASSERT(status != DEVICE_OK || (n >= 1 && n <= BLOCK_STEPS));
    *n_steps = (uint32_t)n;
    *n_rows = (uint32_t)lists->n_requests;
    if (status == DEVICE_OK) {
        status = table->download(forward->device->device, log, noted(forward, BLOCK_LOG),
                                 (int64_t)n * lists->n_requests * lists->max_block);
    }
    return forward_device_err(forward, status, "reading what steps made of their blocks", err);
}
