/* Steps of sessions that the device decides alone (engine/step/block_steps.h): what it is told of
 * each member's active block, and what is made of its word afterwards. Where the loop says that the
 * same members go on, one visit of the device carries out several of their steps, which are then
 * taken note of one by one. The host's record of the blocks (session_blocks.h) stays the truth
 * between visits. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_DEVICE_H
#define UNMASK_ENGINE_SESSION_SESSION_DEVICE_H

#include "engine/session/session.h"
#include "engine/step/block_steps.h"

struct session_device {
    bool is_open;                 /* the system has such steps at all */
    struct block_member *members; /* [max_requests] */
    uint32_t *slots;              /* the same: whose they are */
    uint8_t *log;                 /* [BLOCK_STEPS, max_requests, block_tokens] */
    /* The last visit: its steps, 0 while it is under way; those taken note of; rows a step. */
    uint32_t n_members, n_steps, n_settled, n_rows;
};

void session_device_open(struct session_device *device, const struct sessions *sessions);
void session_device_close(struct session_device *device);

/* Have the device record the steps of as many requests as may run, in every number rounded up. */
int session_device_warm(const struct session_device *device, const struct sessions *sessions,
                        struct err *err);

/* Whether the device decides this step: active blocks alone run in it. */
bool session_device_decides(const struct session_device *device, const struct sessions *sessions,
                            const struct submission *submission);

/* Whether a visit has carried out the submission already. */
bool session_device_is_ahead(const struct session_device *device);

/* Fill in the steps of such a submission and those that follow it. ERR_WORLD when the loop and the
 * engine do not agree on what it runs. */
int session_device_plan(struct session_device *device, struct sessions *sessions,
                        const struct submission *submission, const struct placement *placement,
                        struct block_step *step, struct err *err);

/* Take note of what the next step of the visit did, and of each member's commits; waits for it.
 * ERR_WORLD when its members are others. */
int session_device_settle(struct session_device *device, struct sessions *sessions,
                          const struct submission *submission, uint32_t *commits, struct err *err);

#endif
