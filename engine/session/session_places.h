/* The places of running requests: one for every position of a block, for what outlasts a step
 * beside keys and values. That is a list of credit, where the decoder gives any, and the embedding
 * that iteration smoothing expects (both dInfer's). A request has its places from admission until
 * it leaves or is preempted; they are empty when a block begins. */
#ifndef UNMASK_ENGINE_SESSION_SESSION_PLACES_H
#define UNMASK_ENGINE_SESSION_SESSION_PLACES_H

#include "engine/session/session.h"

/* Whether the system has any; else nothing below is called but close and the credit's rule. */
bool session_places_wanted(const struct system *system);

void session_places_open(struct session_places *places, const struct step_limits *limits,
                         uint32_t n_slots);
void session_places_close(struct session_places *places);

/* Empty places for a request that is admitted, and back when it leaves. */
int session_places_take(struct sessions *sessions, uint32_t slot, struct err *err);
void session_places_give(struct sessions *sessions, uint32_t slot);

/* The places of a part's queries and rows: of the positions of the active block that they stand
 * at, and that they decide on. */
int session_places_plan(struct sessions *sessions, const struct request *request, uint32_t slot,
                        struct step_part *part, struct err *err);

/* What a step's credit goes by; zeroes where there is none. */
struct decode_credit session_credit_rule(const struct system *system);

#endif
