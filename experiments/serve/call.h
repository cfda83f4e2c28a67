/* A call: a client's request from the moment that it is understood until its last byte is sent.
 *
 * Who writes what: the thread of HTTP makes it and reads it; the loop's thread says what became of
 * it. What both use is under the inbox's lock (inbox.h). It is freed when both are done with it. */
#ifndef UNMASK_EXPERIMENTS_SERVE_CALL_H
#define UNMASK_EXPERIMENTS_SERVE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arrival.h"

struct http_exchange;

enum call_state {
    CALL_POSTED,  /* waits to be taken by the loop */
    CALL_TAKEN,   /* the loop has it */
    CALL_DONE,    /* its answer is whole */
    CALL_REFUSED, /* the loop rejected it: `reason` */
};

/* A committed block: the output's tokens up to its end, and when that was due by the machine's
 * clock, which is when a client could have had it at the earliest. */
struct call_block {
    uint32_t end_tokens;
    int64_t due_ns;
};

struct call {
    /* As the client asked; fixed once it is posted. */
    struct arrival arrival; /* its lengths; the loop's thread says when it arrives, and its id */
    bool names_arrival;     /* arrival_us was given: arrival_ns is the client's, */
    bool names_id;          /* request_id was given */
    bool streams, is_chat, wants_usage, usage_each, ignores_end, shows_stop;
    bool has_seed;
    uint64_t seed;
    int64_t created_s;
    uint64_t number; /* of the call, for its name */
    uint64_t connection;
    int64_t whole_ns; /* when its last byte was there, by the machine's clock */
    int32_t *prompt;  /* [prompt_tokens], owned; NULL: only their number is known */
    int32_t *echo;    /* [n_echo], owned: what the reply begins with instead of drawn words */
    uint32_t n_echo;
    uint32_t min_tokens; /* of a simulation's answer, at least */
    char *stops; /* owned: texts that end it, one after the other, each and the last one's end with
                    a NUL; NULL: none */

    /* Under the lock. */
    enum call_state state;
    uint32_t reason;                /* of a refusal, an enum reject_reason */
    struct http_exchange *exchange; /* NULL: it is over */
    bool is_with_loop, is_with_http;
    bool is_streaming, is_running;
    struct call_block *blocks; /* [n_blocks], owned */
    size_t n_blocks, room_blocks;
    int32_t *tokens; /* [arrival.output_tokens] that a device decoded, owned; NULL: a simulation */
    uint32_t end_tokens; /* up to and with the end of text, once a device found it; 0: it did not */
    uint32_t answer_tokens, cached_tokens; /* once it is done */
    bool has_ended;                        /* by an end of text */
    struct call *next;

    /* The thread of HTTP's: what of the answer is written. */
    size_t n_written; /* blocks */
    uint32_t written_tokens;
    size_t written_bytes; /* of the text, where tokens are decoded */
    int phase;            /* of the stream */
    char *pending;        /* owned: bytes that did not fit, [pending_size] from pending_at */
    size_t pending_size, pending_at;
};

#endif
