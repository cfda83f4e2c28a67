/* HTTP, as the server sees it: whole requests come in, answers and streams go out.
 *
 * The program itself needs no such library: libunmask_http.so holds one under the name
 * `unmask_http`, over libmicrohttpd, and is looked for where `unmask serve` starts. It has a thread
 * of its own, on which hooks are called, and a second one that notices clients who leave while
 * they wait, and those who take too long. Its functions may be called from any thread; hooks are
 * called with none of its locks held, and a caller may hold its own lock over both. */
#ifndef UNMASK_EXPERIMENTS_SERVE_HTTP_H
#define UNMASK_EXPERIMENTS_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_ABI = 1 };

struct http_server;
struct http_exchange; /* a request and what is answered */

/* A request that has arrived whole; its texts are the library's, for the time of the call. */
struct http_request {
    const char *method, *path;
    const char *authorization; /* the field's value; NULL: there is none */
    const char *body;          /* [size], and a NUL after it */
    size_t size;
    int refused;         /* a status: it was not taken in whole (413); 0: it was */
    uint64_t connection; /* whose: no other connection has this number */
    int64_t whole_ns;    /* when its last byte was there, by monotonic_ns */
};

struct http_hooks {
    void *state;
    /* A request is there. Returns what the other hooks are given; it is answered, or its stream
     * begun, in this call or later. */
    void *(*take)(void *state, struct http_exchange *exchange, const struct http_request *request);
    /* Of one that is neither yet, after http->wake: it may be answered now. */
    void (*ready)(void *own);
    /* The next bytes of a stream: up to `room` of them. 0: none yet, http->wake says when; or none
     * any more, `*is_over`. */
    size_t (*more)(void *own, char *out, size_t room, bool *is_over);
    /* The exchange is over, and not to be used any more: all was sent, or the client left first. */
    void (*over)(void *own, bool is_cut);
    /* A connection of a request that was taken is closed, or its client has left; on either
     * thread. */
    void (*closed)(void *state, uint64_t connection);
};

struct http_limits {
    size_t header_bytes, body_bytes;
    uint32_t connections;
    int64_t request_ns; /* how long a request may take to arrive, from its connection's begin or the
                           end of the one before; and how long nothing of an answer may be read */
};

struct http_answer {
    int status;
    const char *type;
    const void *body; /* copied */
    size_t size;
    uint32_t retry_s;  /* Retry-After; 0: none */
    bool asks_for_key; /* WWW-Authenticate: Bearer */
    bool closes;       /* the connection, when it is sent */
};

struct http_library {
    int abi; /* HTTP_ABI */
    /* Takes the listening socket. Returns NULL, or what failed. */
    const char *(*open)(int listening, const struct http_limits *limits,
                        const struct http_hooks *hooks, struct http_server **out);
    void (*answer)(struct http_exchange *exchange, const struct http_answer *answer);
    void (*stream)(struct http_exchange *exchange); /* as server-sent events */
    void (*wake)(struct http_exchange *exchange);   /* its stream has more, or is over */
    void (*refuse_new)(struct http_server *server); /* no new connections from now on */
    uint32_t (*n_busy)(struct http_server *server); /* exchanges that are not over */
    void (*close)(struct http_server *server);      /* ends what is left */
};

#endif
