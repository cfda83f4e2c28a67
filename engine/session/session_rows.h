/* Which rows of a step go through the output head and what each decides on: a member's logit rows,
 * their targets, and which of them may be committed. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_ROWS_H
#define UNMASK_ENGINE_SESSION_SESSION_ROWS_H

#include "engine/session/session.h"

/* Of the member's part, whose positions are planned. masked: of a span that lists positions of its
 * block, else NULL. In a recorded step the rows that commit are those that the record says. Sets
 * sessions->n_rows[member] as well. ERR_WORLD when they are not as many as the span says. */
int session_rows_plan(struct sessions *sessions, const struct planned_step *planned,
                      uint32_t member, const uint8_t *masked, struct err *err);

#endif
