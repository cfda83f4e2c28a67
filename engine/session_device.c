#include "engine/session_device.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/base/zeroed.h"
#include "sim/graph/bucket.h"
#include "sim/policy/blocks.h"
#include "sim/policy/cache_focus.h"

void session_device_open(struct session_device *device, const struct sessions *sessions) {
    const struct step_limits *limits = &sessions->limits;
    *device = (struct session_device){.is_open = limits->bucket_tokens > 0};
    if (device->is_open) {
        device->members = zeroed(limits->max_requests, sizeof *device->members);
        device->log = zeroed((size_t)limits->max_requests * limits->block_tokens, 1);
    }
}

void session_device_close(struct session_device *device) {
    free(device->members);
    free(device->log);
    *device = (struct session_device){0};
}

bool session_device_decides(const struct session_device *device, const struct sessions *sessions,
                            const struct submission *submission) {
    bool decides = device->is_open;
    for (uint32_t i = 0; decides && i < submission->n_slots; i++) {
        decides = session_is_listed(sessions, &submission->requests[submission->slots[i]]);
    }
    return decides;
}

/* Which tokens besides the masked ones go through the head, as the span has it. */
static uint8_t logits_of(const struct settings *settings, const struct request *request) {
    const struct span *span = &request->span;
    if (!blocks_decide(span)) {
        return span->logit_rows > 0 ? KERNEL_LOGITS_COMMIT : 0;
    }
    bool whole = settings->logit_scope == LOGITS_GENERATION && request->step_in_block == 0 &&
                 span->queries == request->canvas_tokens;
    return settings->logit_scope == LOGITS_MASKED || whole ? 0 : KERNEL_LOGITS_DENOISING;
}

static int plan_member(struct session_device *device, struct sessions *sessions,
                       const struct request *request, uint32_t slot, uint32_t member,
                       struct err *err) {
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
        .take = (int32_t)request->commit_tokens,
        .logits = logits_of(&sessions->system->settings, request),
        .masked = block->masked,
        .uncached = block->uncached,
        .pages = pages_of(&sessions->pages, slot),
        .n_pages = sessions->pages.held[slot],
    };
    return 0;
}

int session_device_plan(struct session_device *device, struct sessions *sessions,
                        const struct submission *submission, const struct placement *placement,
                        struct block_step *step, struct err *err) {
    const struct system *system = sessions->system;
    const struct decoder *decoder = system->decoder;
    struct focus_rule rule;
    ASSERT(cache_focus_rule(system->cache, system->cache_state, &rule));
    if (submission->n_slots > sessions->limits.max_requests) {
        return err_usage(err,
                         "a batch of %" PRIu32 " requests, but the engine was opened for "
                         "%" PRIu32,
                         submission->n_slots, sessions->limits.max_requests);
    }
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < submission->n_slots; i++) {
        uint32_t slot = submission->slots[i];
        status = plan_member(device, sessions, &submission->requests[slot], slot, i, err);
    }
    *step = (struct block_step){
        .placement = placement,
        .members = device->members,
        .n = submission->n_slots,
        .max_tokens = (uint32_t)bucket_most(submission->n_slots, system->settings.block_tokens,
                                            system->settings.max_batched_tokens),
        .takes = decoder->count != NULL,
        .threshold = decoder->count == NULL ? decoder->threshold(system->decoder_state) : 0,
        .alpha = (float)rule.alpha,
        .above_deviation = rule.std_alone,
    };
    return status;
}

/* One member's part of the log, by which its block goes on. */
static int settle_member(struct session_device *device, struct sessions *sessions,
                         const struct request *request, uint32_t slot, uint32_t member,
                         uint32_t *commits, struct err *err) {
    const uint8_t *log = device->log + (size_t)member * sessions->limits.block_tokens;
    const struct block_state *block = &sessions->blocks.blocks[slot];
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
    int status = block_step_log(sessions->forward, device->log, err);
    for (uint32_t i = 0; status == 0 && i < submission->n_slots; i++) {
        uint32_t slot = submission->slots[i];
        status =
            settle_member(device, sessions, &submission->requests[slot], slot, i, &commits[i], err);
    }
    return status;
}
