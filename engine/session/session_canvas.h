/* Steps that leave positions of the active block out and keep the whole canvas: the positions they
 * run, which lie scattered. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_CANVAS_H
#define UNMASK_ENGINE_SESSION_SESSION_CANVAS_H

#include "engine/session/session.h"

/* The positions in the canvas that a step runs, in order, and which of them are masked. Returns how
 * many; positions beyond the span's queries are counted and not written. */
uint32_t session_canvas_list(struct sessions *sessions, const struct request *request,
                             uint32_t slot, uint32_t member, int32_t *positions, uint8_t *masked);

#endif
