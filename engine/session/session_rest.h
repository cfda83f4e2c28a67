/* What an eviction leaves of a step: for each span the queries that go on, in the arrays of a step
 * of their own. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_REST_H
#define UNMASK_ENGINE_SESSION_SESSION_REST_H

#include "engine/session/session.h"

void session_rest_open(struct sessions *sessions);
void session_rest_close(struct session_rest *rest);

/* A step's evict (step.h), with the sessions that planned it. */
int session_evict(void *sessions, const struct eviction *seen, struct step *out, struct err *err);

#endif
