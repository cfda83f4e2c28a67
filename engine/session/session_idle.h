/* Members of a step that are computed along in vain, as runtimes do that cannot take a finished
 * block out of a batch: nothing of their canvases, rows or decisions changes. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_IDLE_H
#define UNMASK_ENGINE_SESSION_SESSION_IDLE_H

#include "engine/session/session.h"

/* The part of such a member where the cache is exact: as many queries as its span has, at the last
 * positions that it holds rows of, up to the span's own; fresh keys and values go nowhere.
 * ERR_WORLD when it holds fewer rows. */
int session_idle_plan(struct sessions *sessions, const struct request *request, uint32_t slot,
                      uint32_t member, struct err *err);

#endif
