/* Watching: what each step said of every masked position of the active blocks, read back after it
 * and told to whoever asked. Nothing of it is read back where nobody asks. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_WATCH_H
#define UNMASK_ENGINE_SESSION_SESSION_WATCH_H

#include "engine/session/session.h"
#include "sim/base/decode.h"

struct position_watch {
    void *state;
    /* After each pass of a request over its active block, before the loop hears of it; the arrays
     * hold until the return. Margins and entropies are 0 where the graph makes none. */
    int (*see)(void *state, uint64_t request, const struct decode_positions *positions,
               struct err *err);
};

struct session_watch {
    struct position_watch watch;
    struct step_result result; /* [max_logit_rows] each; committed and n_committed NULL */
    uint32_t *rows;            /* [block_tokens] */
    struct decode_positions positions;
};

/* Of sessions that were opened with these limits. */
void session_watch_open(struct session_watch *watching, const struct position_watch *watch,
                        const struct step_limits *limits, uint32_t block_tokens);
void session_watch_close(struct session_watch *watching); /* all zero is fine */

/* The step that was planned last is done, and its commits are noted in its blocks. */
int session_watch_step(struct session_watch *watching, const struct sessions *sessions,
                       const struct planned_step *planned, struct err *err);

#endif
