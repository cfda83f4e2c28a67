/* What the loop tells its sinks of a step. */
#ifndef UNMASK_SIM_SERVE_REPORT_H
#define UNMASK_SIM_SERVE_REPORT_H

#include "sim/serve/lifecycle.h"

/* State of a replica while a batch ran, for the step record. */
struct moment {
    uint32_t n, n_running, n_waiting;
    int64_t kv_used_bytes;
};

/* To every sink that asks for events. */
int report_event(struct lifecycle *life, enum event_kind kind, uint64_t id, uint32_t replica,
                 uint32_t detail, struct err *err);

/* The request's first block in flight is decoded. */
int report_block(struct lifecycle *life, const struct request *request, uint32_t replica,
                 struct err *err);

/* To every sink that asks for arrivals. */
int report_arrival(struct lifecycle *life, const struct arrival *arrival, struct err *err);

/* A request has left: to every sink that asks for requests, and to their source. */
int report_request(struct lifecycle *life, const struct request_record *record, struct err *err);

/* Notes for the next record what its members' next step is. */
void report_members(const struct lifecycle *life, struct replica *replica);

/* n positions of the request are committed, from the threshold that holds for it. */
void report_commits(const struct lifecycle *life, struct replica *replica,
                    const struct request *request, uint32_t n);

/* And which positions of its block a member's step kept and committed. */
void report_positions(const struct lifecycle *life, struct replica *replica, uint32_t slot,
                      uint32_t member);

/* Of a request that ran: from its replica's last end on it waits. */
void report_pause(struct lifecycle *life, const struct replica *replica, uint32_t slot);

/* It goes on or leaves. Where its replica took no step meanwhile there was no pause. */
void report_pause_over(struct lifecycle *life, const struct replica *replica, uint32_t slot,
                       int64_t now_ns);

/* All that is known by now of a request in a slot, but for how it leaves. */
struct request_record report_record_of(const struct lifecycle *life, uint32_t slot);

/* The record of a submission that is done, or of one of its steps. */
int report_step(const struct lifecycle *life, struct replica *replica,
                const struct completion *done, const struct moment *moment, struct err *err);

#endif
