/* Leading layers' part of a step: the same spans, of which those that take a shared prefix over run
 * what follows it alone, and attend to what is kept of it. */
#ifndef UNMASK_ENGINE_SESSION_LEAD_H
#define UNMASK_ENGINE_SESSION_LEAD_H

#include "engine/session/members.h"

struct lead {
    struct step_part *parts;       /* [max_requests], NULL: the system has no leading layers */
    struct span *spans;            /* the same */
    const struct span **span_list; /* the same */
    struct step_shape shape;
    struct step step;
};

void lead_open(struct lead *lead, const struct step_limits *limits);
void lead_close(struct lead *lead); /* all zero is fine */

/* Gives a step that was planned its leading layers' part. */
void lead_plan(struct lead *lead, struct step *step);

#endif
