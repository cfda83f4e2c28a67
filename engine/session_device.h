/* Steps of sessions that the device decides alone (engine/block_steps.h): what it is told of each
 * member's active block, and what is made of its word afterwards. The host's record of the blocks
 * (session_blocks.h) stays the truth between steps. */
#ifndef UNMASK_ENGINE_SESSION_DEVICE_H
#define UNMASK_ENGINE_SESSION_DEVICE_H

#include "engine/block_steps.h"
#include "engine/session.h"

struct session_device {
    bool is_open;                 /* the system has such steps at all */
    struct block_member *members; /* [max_requests] */
    uint8_t *log;                 /* [max_requests, block_tokens] */
};

void session_device_open(struct session_device *device, const struct sessions *sessions);
void session_device_close(struct session_device *device);

/* Whether the device decides this step: active blocks alone run in it. */
bool session_device_decides(const struct session_device *device, const struct sessions *sessions,
                            const struct submission *submission);

/* Fill in the step of such a submission. ERR_WORLD when the loop and the engine do not agree on
 * what it runs. */
int session_device_plan(struct session_device *device, struct sessions *sessions,
                        const struct submission *submission, const struct placement *placement,
                        struct block_step *step, struct err *err);

/* Take note of what the step did, and of each member's commits; waits for it. */
int session_device_settle(struct session_device *device, struct sessions *sessions,
                          const struct submission *submission, uint32_t *commits, struct err *err);

#endif
