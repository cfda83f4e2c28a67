#include "engine/session/session_device.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/base/zeroed.h"
#include "sim/cache/blocks.h"
#include "sim/cache/cache_focus.h"
#include "sim/graph/bucket.h"
#include "sim/system/system_step.h"

void session_device_open(struct session_device *device, const struct sessions *sessions) {
    const struct step_limits *limits = &sessions->limits;
    *device = (struct session_device){.is_open = limits->bucket_tokens > 0};
    if (device->is_open) {
        device->members = zeroed(limits->max_requests, sizeof *device->members);
        device->slots = zeroed(limits->max_requests, sizeof *device->slots);
        device->log = zeroed((size_t)BLOCK_STEPS * limits->max_requests * limits->block_tokens, 1);
    }
}

void session_device_close(struct session_device *device) {
    free(device->members);
    free(device->slots);
    free(device->log);
    *device = (struct session_device){0};
}

bool session_device_decides(const struct session_device *device, const struct sessions *sessions,
                            const struct submission *submission) {
    bool decides = device->is_open && !submission->unrolled && submission->n_idle == 0;
    for (uint32_t i = 0; decides && i < submission->n_slots; i++) {
        decides = session_is_listed(sessions, &submission->requests[submission->slots[i]]);
    }
    return decides;
}

bool session_device_is_ahead(const struct session_device *device) {
    return device->n_settled < device->n_steps;
}

/* The first pass over a canvas of one block may have other logit rows than the next. */
static bool is_first_of_canvas(const struct settings *settings, const struct request *request) {
    return settings->logit_scope == LOGITS_GENERATION && request->step_in_block == 0 &&
           request->span.queries == request->canvas_tokens && blocks_decide(request);
}

/* Which tokens besides the masked ones go through the head, as spans have it. */
static uint8_t logits_of(const struct system *system, const struct request *request) {
    bool all = system->settings.logit_scope != LOGITS_MASKED &&
               !is_first_of_canvas(&system->settings, request);
    bool commits = cache_focus_exact(system->cache_state)->commit_logits;
    return (uint8_t)((all ? KERNEL_LOGITS_DENOISING : 0) | (commits ? KERNEL_LOGITS_COMMIT : 0));
}

/* What the decoder counts in the step to come and in those behind it. */
static void count_takes(const struct system *system, const struct request *request,
                        uint32_t most_steps, int32_t *take) {
    struct request at = *request;
    at.masked_in_block -= request->commit_tokens;
    take[0] = (int32_t)request->commit_tokens;
    for (uint32_t s = 1; s < most_steps; s++) {
        uint32_t repeat = 1;
        at.step_in_block++;
        at.steps++;
        uint32_t n = at.masked_in_block > 0
                         ? system->decoder->count(system->decoder_state, &at, &repeat)
                         : 0;
        at.masked_in_block -= n;
        take[s] = (int32_t)n;
    }
}

static int plan_member(struct session_device *device, struct sessions *sessions,
                       const struct request *request, uint32_t slot, uint32_t member,
                       uint32_t most_steps, struct err *err) {
    const struct system *system = sessions->system;
    const struct block_state *block =
        session_blocks_begin(&sessions->blocks, request, slot, member);
    const struct focus_yield *yield = session_blocks_memory(&sessions->blocks, slot);
    if (block->n_uncached != request->span.queries) {
        return err_world(err,
                         "request %" PRIu64 " runs %" PRIu32 " positions of its block in its "
                         "span, the engine finds %" PRIu32,
                         request->id, request->span.queries, block->n_uncached);
    }
    int32_t begin = (int32_t)request->block_start;
    device->members[member] = (struct block_member){
        .canvas = sessions->by_slot[slot].canvas,
        .begin = begin,
        .length = (int32_t)block->length,
        .frontier = block->frontier < 0 ? -1 : begin + block->frontier,
        .mean = yield->mean,
        .sum = (int32_t)yield->sum,
        .steps = (int32_t)yield->n,
        .threshold = decoder_rule(system->decoder, system->decoder_state, request).threshold,
        .logits = logits_of(system, request),
        .ends_early = !cache_focus_exact(system->cache_state)->commit_last &&
                      (system->settings.early_stop != STOP_NEVER ||
                       request->block_start + request->block_length == request->canvas_tokens),
        .masked = block->masked,
        .uncached = block->uncached,
        .pages = pages_of(&sessions->pages, slot),
        .n_pages = sessions->pages.held[slot],
    };
    device->slots[member] = slot;
    if (system->decoder->count != NULL) {
        count_takes(system, request, most_steps, device->members[member].take);
    }
    return 0;
}

/* Steps of so many requests, whose members are still to be said. */
static struct block_step step_of(const struct system *system, const struct placement *placement,
                                 uint32_t n, uint32_t most_steps) {
    const struct decoder *decoder = system->decoder;
    struct focus_rule rule;
    ASSERT(cache_focus_rule(system->cache, system->cache_state, &rule));
    const struct decode_rule decides = decoder_rule_always(decoder, system->decoder_state);
    return (struct block_step){
        .placement = placement,
        .n = n,
        .max_tokens = (uint32_t)bucket_most(n, system->settings.block_tokens,
                                            system->settings.max_batched_tokens),
        .most_steps = most_steps,
        .takes = decoder->count != NULL,
        .rank = decides.rank,
        .slack = decides.slack,
        .alpha = (float)rule.alpha,
        .above_deviation = rule.std_alone,
        .weight = rule.history == FOCUS_EMA ? (float)rule.ema_weight : 0,
    };
}

int session_device_warm(const struct session_device *device, const struct sessions *sessions,
                        struct err *err) {
    enum { MOST_NUMBERS = 8 }; /* a recording takes a GPU's host a tenth of a second */
    const struct system *system = sessions->system;
    int64_t most = device->is_open ? sessions->limits.max_requests : 0, last = 0;
    int status = 0;
    for (int i = 0; status == 0 && i < MOST_NUMBERS && last < most; i++) {
        struct step_shape shape;
        struct placement placement;
        int64_t n = bucket_size(last + 1, BUCKET_REQUESTS);
        last = n < most ? n : most;
        shape_clear(&shape);
        shape.sym[SYM_BLOCK_N] = shape.sym[SYM_KEPT_Q] = last;
        status = system_place(system, &shape, budget_workspace_bytes(&system->budget, 0),
                              &placement, err);
        if (status == 0) {
            const struct block_step step = step_of(system, &placement, (uint32_t)last, 1);
            status = block_step_warm(sessions->forward, &step, err);
        }
    }
    return status;
}

int session_device_plan(struct session_device *device, struct sessions *sessions,
                        const struct submission *submission, const struct placement *placement,
                        struct block_step *step, struct err *err) {
    const struct system *system = sessions->system;
    int status = sessions_check_batch(sessions, submission, err);
    if (status != 0) {
        return status;
    }
    uint32_t most_steps = submission->ahead < BLOCK_STEPS ? submission->ahead + 1 : BLOCK_STEPS;
    for (uint32_t i = 0; i < submission->n_slots; i++) {
        const struct request *request = &submission->requests[submission->slots[i]];
        most_steps = is_first_of_canvas(&system->settings, request) ? 1 : most_steps;
    }
    for (uint32_t i = 0; status == 0 && i < submission->n_slots; i++) {
        uint32_t slot = submission->slots[i];
        status =
            plan_member(device, sessions, &submission->requests[slot], slot, i, most_steps, err);
    }
    device->n_members = submission->n_slots;
    device->n_steps = device->n_settled = 0;
    *step = step_of(system, placement, submission->n_slots, most_steps);
    step->members = device->members;
    return status;
}

/* One member's part of the log, by which its block goes on. */
static int settle_member(struct session_device *device, struct sessions *sessions,
                         const struct request *request, uint32_t slot, uint32_t member,
                         uint32_t *commits, struct err *err) {
    const uint8_t *log = device->log + ((size_t)device->n_settled * device->n_rows + member) *
                                           sessions->limits.block_tokens;
    const struct block_state *block =
        session_blocks_begin(&sessions->blocks, request, slot, member);
    *commits = 0;
    for (uint32_t p = 0; p < block->length; p++) {
        bool ran = (log[p] & KERNEL_LOG_RAN) != 0, kept = (log[p] & KERNEL_LOG_KEPT) != 0;
        if (ran != (block->uncached[p] != 0) || (!kept && ran && !block->masked[p])) {
            return err_world(err,
                             "the device %s position %" PRIu32 " of the block of request %" PRIu64
                             ", against its rule",
                             ran ? "ran" : "left out", p, request->id);
        }
        session_blocks_keep(&sessions->blocks, member, p, kept);
        if (log[p] & KERNEL_LOG_COMMITTED) {
            sessions_note_commit(sessions, request, slot, member,
                                 (int32_t)(request->block_start + p));
            *commits += 1;
        }
    }
    return 0;
}

int session_device_settle(struct session_device *device, struct sessions *sessions,
                          const struct submission *submission, uint32_t *commits, struct err *err) {
    int status = session_device_is_ahead(device)
                     ? 0
                     : block_step_log(sessions->forward, &device->n_steps, &device->n_rows,
                                      device->log, err);
    if (status == 0 && submission->n_slots != device->n_members) {
        status = err_world(err, "the device ran %" PRIu32 " requests ahead, %" PRIu32 " go on",
                           device->n_members, submission->n_slots);
    }
    for (uint32_t i = 0; status == 0 && i < submission->n_slots; i++) {
        uint32_t slot = submission->slots[i];
        ASSERT(slot == device->slots[i]);
        status =
            settle_member(device, sessions, &submission->requests[slot], slot, i, &commits[i], err);
    }
    device->n_settled++;
    return status;
}
