/* The credit of running requests (dInfer): a list for every position of a block. A request has its
 * lists from admission until it leaves or is preempted; they are empty when a block begins. */
#ifndef UNMASK_ENGINE_SESSION_CREDIT_H
#define UNMASK_ENGINE_SESSION_CREDIT_H

#include "engine/session.h"

/* Whether the system's decoder gives credit; else nothing below is called but close and rule. */
bool session_credit_wanted(const struct system *system);

void session_credit_open(struct session_credit *credit, const struct step_limits *limits,
                         uint32_t n_slots);
void session_credit_close(struct session_credit *credit);

/* Empty lists for a request that is admitted, and back when it leaves. */
int session_credit_take(struct sessions *sessions, uint32_t slot, struct err *err);
void session_credit_give(struct sessions *sessions, uint32_t slot);

/* The lists of a part's rows, which are those of the positions they decide on. */
int session_credit_plan(struct sessions *sessions, const struct request *request, uint32_t slot,
                        struct step_part *part, struct err *err);

/* What a step's credit goes by; zeroes where there is none. */
struct decode_credit session_credit_rule(const struct system *system);

#endif
