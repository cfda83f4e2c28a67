/* Steps of a session under a cache policy that keeps the whole canvas (KEEPS_CANVAS): the positions
 * they run, which lie scattered, and the rows of them that they renew. The row of a position's keys
 * and values in its request's store is the position. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_CANVAS_H
#define UNMASK_ENGINE_SESSION_SESSION_CANVAS_H

#include "engine/session/session.h"

/* The positions in the canvas that a step runs, in order, and which of them are masked. Returns how
 * many; positions beyond the span's queries are counted and not written. */
uint32_t session_canvas_list(struct sessions *sessions, const struct request *request,
                             uint32_t slot, uint32_t member, int32_t *positions, uint8_t *masked);

/* The rows of a part whose positions are known. */
void session_canvas_keep(struct sessions *sessions, const struct request *request,
                         struct step_part *part);

#endif
