/* HTTP over libmicrohttpd: libunmask_http.so, built where its header is found.
 *
 * One thread polls all connections. A connection that waits for an answer is suspended, in which
 * state libmicrohttpd does not look at it: a second thread watches for clients who leave. */
#include "experiments/serve/http.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sim/base/monotonic.h"

enum { EVENTS = 256, LOOK_MS = 250, BLOCK_BYTES = 32768, TOO_LARGE = 413 };

struct connection {
    int fd; /* -1: free */
    uint32_t turn;
    uint64_t number;
    struct http_exchange *exchange;
    bool is_whole; /* its request is there */
    bool is_left;  /* the client has closed its side */
    bool is_known; /* a request of it was taken */
    int64_t since_ns;
    uint32_t next; /* of the free ones */
};

struct http_server {
    struct MHD_Daemon *daemon;
    struct http_limits limits;
    struct http_hooks hooks;
    pthread_t watcher;
    int epoll, ends[2];
    pthread_mutex_t lock; /* over what follows, and over what exchanges say below */
    struct connection *connections;
    uint32_t n_slots, free;
    uint64_t n_numbers;
};

enum phase { WAITS, IS_ANSWERED, STREAMS };

struct http_exchange {
    struct http_server *server;
    struct MHD_Connection *mhd;
    struct connection *connection;
    char *body;
    size_t size, room;
    bool is_taken, is_cut;
    int refused;
    void *own;
    /* Under the lock. */
    enum phase phase;
    bool is_suspended, is_woken;
    struct http_answer answer;
};

/* Memory that is out ends the program as elsewhere: this library stands alone. */
static void *given(void *memory) {
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* ---- connections ---- */

static void begin_connection(struct http_server *server, struct MHD_Connection *mhd,
                             void **context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&server->lock);
    const uint32_t at = server->free;
    if (info != NULL && at < server->n_slots) {
        struct connection *c = &server->connections[at];
        server->free = c->next;
        *c = (struct connection){.fd = info->connect_fd,
                                 .turn = c->turn + 1,
                                 .number = ++server->n_numbers,
                                 .since_ns = monotonic_ns()};
        struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET,
                                    .data.u64 = (uint64_t)c->turn << 32 | at};
        (void)epoll_ctl(server->epoll, EPOLL_CTL_ADD, c->fd, &event);
        *context = c;
    }
    pthread_mutex_unlock(&server->lock);
}

static void end_connection(struct http_server *server, struct connection *c) {
    pthread_mutex_lock(&server->lock);
    struct epoll_event event = {0};
    (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, c->fd, &event);
    c->fd = -1;
    c->next = server->free;
    server->free = (uint32_t)(c - server->connections);
    const bool is_known = c->is_known;
    const uint64_t number = c->number;
    pthread_mutex_unlock(&server->lock);
    if (is_known) {
        server->hooks.closed(server->hooks.state, number);
    }
}

static void on_connection(void *state, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        begin_connection(state, mhd, context);
    } else if (*context != NULL) {
        end_connection(state, *context);
        *context = NULL;
    }
}

/* ---- exchanges ---- */

/* The lock is held. */
static void go_on(struct http_exchange *x) {
    x->is_woken = true;
    if (x->is_suspended) {
        x->is_suspended = false;
        MHD_resume_connection(x->mhd);
    }
}

static void wake(struct http_exchange *x) {
    struct http_server *server = x->server;
    pthread_mutex_lock(&server->lock);
    go_on(x);
    pthread_mutex_unlock(&server->lock);
}

static void answer(struct http_exchange *x, const struct http_answer *answer) {
    struct http_server *server = x->server;
    void *body = given(malloc(answer->size + 1));
    memcpy(body, answer->body, answer->size);
    pthread_mutex_lock(&server->lock);
    x->answer = *answer;
    x->answer.body = body;
    x->phase = IS_ANSWERED;
    go_on(x);
    pthread_mutex_unlock(&server->lock);
}

static void stream(struct http_exchange *x) {
    struct http_server *server = x->server;
    pthread_mutex_lock(&server->lock);
    x->phase = STREAMS;
    go_on(x);
    pthread_mutex_unlock(&server->lock);
}

/* What is streamed next; where there is nothing the connection is suspended until it is woken. */
static ssize_t read_stream(void *state, uint64_t position, char *out, size_t room) {
    struct http_exchange *x = state;
    struct http_server *server = x->server;
    (void)position;
    for (;;) {
        bool is_over = false;
        pthread_mutex_lock(&server->lock);
        const bool is_left = x->connection->is_left;
        x->is_woken = false;
        pthread_mutex_unlock(&server->lock);
        if (is_left) {
            x->is_cut = true;
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        const size_t n = server->hooks.more(x->own, out, room, &is_over);
        if (n > 0 || is_over) {
            return n > 0 ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
        }
        pthread_mutex_lock(&server->lock);
        const bool waits = !x->is_woken && !x->connection->is_left;
        if (waits) {
            x->is_suspended = true;
            MHD_suspend_connection(x->mhd);
        }
        pthread_mutex_unlock(&server->lock);
        if (waits) {
            return 0;
        }
    }
}

static enum MHD_Result send_answer(struct http_exchange *x) {
    const struct http_answer *a = &x->answer;
    struct MHD_Response *response = given(MHD_create_response_from_buffer(
        a->size, (void *)(uintptr_t)a->body, MHD_RESPMEM_MUST_COPY));
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
    if (a->retry_s > 0) {
        char text[16];
        int length = 0;
        for (uint32_t left = a->retry_s; left > 0; left /= 10) {
            memmove(text + 1, text, (size_t)length++);
            text[0] = (char)('0' + left % 10);
        }
        text[length] = '\0';
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, text);
    }
    if (a->asks_for_key) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    }
    if (a->closes) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    enum MHD_Result result = MHD_queue_response(x->mhd, (unsigned int)a->status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_stream(struct http_exchange *x) {
    struct MHD_Response *response = given(
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x, NULL));
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    enum MHD_Result result = MHD_queue_response(x->mhd, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

static void take(struct http_exchange *x, const char *path, const char *method) {
    struct http_server *server = x->server;
    pthread_mutex_lock(&server->lock);
    x->connection->is_whole = x->connection->is_known = true;
    pthread_mutex_unlock(&server->lock);
    if (x->body == NULL) {
        x->body = given(calloc(1, 1));
    }
    x->body[x->size] = '\0';
    const struct http_request request = {
        .method = method,
        .path = path,
        .authorization =
            MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION),
        .body = x->body,
        .size = x->size,
        .refused = x->refused,
        .connection = x->connection->number,
        .whole_ns = monotonic_ns()};
    x->is_taken = true;
    x->own = server->hooks.take(server->hooks.state, x, &request);
    free(x->body);
    x->body = NULL;
}

/* What becomes of a request that is there: it waits, suspended, until it is answered. */
static enum MHD_Result follow(struct http_exchange *x) {
    struct http_server *server = x->server;
    bool is_left, is_woken;
    enum phase phase;
    do {
        pthread_mutex_lock(&server->lock);
        is_left = x->connection->is_left;
        phase = x->phase;
        is_woken = x->is_woken;
        x->is_woken = false;
        if (!is_left && phase == WAITS && !is_woken) {
            x->is_suspended = true;
            MHD_suspend_connection(x->mhd);
        }
        pthread_mutex_unlock(&server->lock);
        if (!is_left && phase == WAITS && is_woken) {
            server->hooks.ready(x->own);
        }
    } while (!is_left && phase == WAITS && is_woken);
    if (is_left) {
        x->is_cut = true;
        return MHD_NO;
    }
    return phase == WAITS ? MHD_YES : phase == STREAMS ? send_stream(x) : send_answer(x);
}

/* Bytes beyond the limit are dropped. */
static void add_bytes(struct http_exchange *x, const char *bytes, size_t n) {
    if (x->refused != 0 || n > x->server->limits.body_bytes - x->size) {
        x->refused = TOO_LARGE;
        return;
    }
    if (x->size + n + 1 > x->room) {
        x->room = 2 * (x->size + n + 1);
        x->body = given(realloc(x->body, x->room));
    }
    memcpy(x->body + x->size, bytes, n);
    x->size += n;
}

/* A length that is said beforehand is refused before a byte of it is read. */
static bool says_too_much(struct http_exchange *x) {
    const char *text =
        MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const unsigned long long said = text != NULL ? strtoull(text, NULL, 10) : 0;
    return said > x->server->limits.body_bytes;
}

static struct http_exchange *begin(struct http_server *server, struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == NULL || info->socket_context == NULL) {
        return NULL;
    }
    struct http_exchange *x = given(calloc(1, sizeof *x));
    x->server = server;
    x->mhd = mhd;
    x->connection = info->socket_context;
    pthread_mutex_lock(&server->lock);
    x->connection->exchange = x;
    x->connection->is_whole = false;
    pthread_mutex_unlock(&server->lock);
    return x;
}

static enum MHD_Result on_request(void *state, struct MHD_Connection *mhd, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *n, void **context) {
    struct http_server *server = state;
    struct http_exchange *x = *context;
    (void)version;
    if (x == NULL) {
        *context = x = begin(server, mhd);
        if (x == NULL) {
            return MHD_NO;
        }
        if (!says_too_much(x)) {
            return MHD_YES;
        }
        x->refused = TOO_LARGE;
        take(x, path, method);
        return follow(x);
    }
    if (*n > 0) {
        add_bytes(x, bytes, *n);
        *n = 0;
        return MHD_YES;
    }
    if (!x->is_taken) {
        take(x, path, method);
    }
    return follow(x);
}

/* Of a client that has left and has no request here: the number of its connection, of which
 * libmicrohttpd may see the end later; 0: it has not, or this was told. The lock is held. */
static uint64_t take_left(struct connection *c) {
    const bool is_new = c->is_left && c->is_known && c->exchange == NULL;
    c->is_known = c->is_known && !is_new;
    return is_new ? c->number : 0;
}

static void on_over(void *state, struct MHD_Connection *mhd, void **context,
                    enum MHD_RequestTerminationCode code) {
    struct http_server *server = state;
    struct http_exchange *x = *context;
    (void)mhd;
    if (x == NULL) {
        return;
    }
    pthread_mutex_lock(&server->lock);
    x->connection->exchange = NULL;
    x->connection->is_whole = false;
    x->connection->since_ns = monotonic_ns();
    const uint64_t left = take_left(x->connection);
    pthread_mutex_unlock(&server->lock);
    if (x->is_taken) {
        server->hooks.over(x->own, x->is_cut || code != MHD_REQUEST_TERMINATED_COMPLETED_OK);
    }
    if (left > 0) {
        server->hooks.closed(server->hooks.state, left);
    }
    free((void *)(uintptr_t)x->answer.body);
    free(x->body);
    free(x);
    *context = NULL;
}

/* ---- who leaves, and who takes too long ---- */

static void note_left(struct http_server *server, uint64_t which) {
    uint64_t left = 0;
    pthread_mutex_lock(&server->lock);
    struct connection *c = &server->connections[(uint32_t)which];
    if (c->fd >= 0 && c->turn == (uint32_t)(which >> 32)) {
        c->is_left = true;
        if (c->exchange != NULL && c->is_whole) {
            go_on(c->exchange);
        } else {
            left = take_left(c);
            /* libmicrohttpd may have read what came with the end, and waits for more. */
            (void)shutdown(c->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&server->lock);
    if (left > 0) {
        server->hooks.closed(server->hooks.state, left);
    }
}

/* A request that is not there in time, and will not be there: libmicrohttpd sees the end of its
 * connection. */
static void end_slow(struct http_server *server) {
    const int64_t now_ns = monotonic_ns();
    pthread_mutex_lock(&server->lock);
    for (uint32_t i = 0; i < server->n_slots; i++) {
        struct connection *c = &server->connections[i];
        const bool is_slow = !c->is_whole && now_ns - c->since_ns > server->limits.request_ns;
        if (c->fd >= 0 && (is_slow || (c->is_left && c->exchange == NULL))) {
            (void)shutdown(c->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&server->lock);
}

static void *watch(void *state) {
    struct http_server *server = state;
    struct epoll_event events[EVENTS];
    int64_t looked_ns = monotonic_ns();
    for (;;) {
        const int n = epoll_wait(server->epoll, events, EVENTS, LOOK_MS);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == UINT64_MAX) {
                return NULL;
            }
            note_left(server, events[i].data.u64);
        }
        if (monotonic_ns() - looked_ns > LOOK_MS * INT64_C(1000000)) {
            end_slow(server);
            looked_ns = monotonic_ns();
        }
    }
}

/* ---- opening and closing ---- */

static void drop(struct http_server *server) {
    for (int i = 0; i < 2; i++) {
        if (server->ends[i] >= 0) {
            close(server->ends[i]);
        }
    }
    if (server->epoll >= 0) {
        close(server->epoll);
    }
    pthread_mutex_destroy(&server->lock);
    free(server->connections);
    free(server);
}

static void stay_silent(void *state, const char *format, va_list rest) {
    (void)state, (void)format, (void)rest;
}

static struct MHD_Daemon *start(struct http_server *server, int listening) {
    const struct http_limits *limits = &server->limits;
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, server, MHD_OPTION_EXTERNAL_LOGGER, stay_silent, NULL, MHD_OPTION_LISTEN_SOCKET,
        listening, MHD_OPTION_CONNECTION_LIMIT, limits->connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, limits->header_bytes, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned int)(limits->request_ns / 1000000000 + 1), MHD_OPTION_NOTIFY_COMPLETED, on_over,
        server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_END);
}

static const char *open_server(int listening, const struct http_limits *limits,
                               const struct http_hooks *hooks, struct http_server **out) {
    struct http_server *server = given(calloc(1, sizeof *server));
    server->limits = *limits;
    server->hooks = *hooks;
    server->n_slots = limits->connections + 8;
    server->connections = given(calloc(server->n_slots, sizeof *server->connections));
    server->ends[0] = server->ends[1] = -1;
    for (uint32_t i = 0; i < server->n_slots; i++) {
        server->connections[i].fd = -1;
        server->connections[i].next = i + 1;
    }
    pthread_mutex_init(&server->lock, NULL);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (server->epoll < 0 || pipe(server->ends) != 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->ends[0], &event) != 0) {
        drop(server);
        return "the system has no more files";
    }
    server->daemon = start(server, listening);
    if (server->daemon == NULL) {
        drop(server);
        return "libmicrohttpd does not start";
    }
    if (pthread_create(&server->watcher, NULL, watch, server) != 0) {
        MHD_stop_daemon(server->daemon);
        drop(server);
        return "the system has no more threads";
    }
    *out = server;
    return NULL;
}

static void refuse_new(struct http_server *server) {
    const MHD_socket listening = MHD_quiesce_daemon(server->daemon);
    if (listening != MHD_INVALID_SOCKET) {
        close(listening);
    }
}

static uint32_t n_busy(struct http_server *server) {
    uint32_t n = 0;
    pthread_mutex_lock(&server->lock);
    for (uint32_t i = 0; i < server->n_slots; i++) {
        n += server->connections[i].fd >= 0 && server->connections[i].exchange != NULL;
    }
    pthread_mutex_unlock(&server->lock);
    return n;
}

static void close_server(struct http_server *server) {
    pthread_mutex_lock(&server->lock);
    for (uint32_t i = 0; i < server->n_slots; i++) {
        struct connection *c = &server->connections[i];
        if (c->fd >= 0) {
            c->is_left = true;
            if (c->exchange != NULL && c->is_whole) {
                go_on(c->exchange);
            }
        }
    }
    pthread_mutex_unlock(&server->lock);
    (void)!write(server->ends[1], "", 1);
    pthread_join(server->watcher, NULL);
    MHD_stop_daemon(server->daemon);
    drop(server);
}

const struct http_library unmask_http = {.abi = HTTP_ABI,
                                         .open = open_server,
                                         .answer = answer,
                                         .stream = stream,
                                         .wake = wake,
                                         .refuse_new = refuse_new,
                                         .n_busy = n_busy,
                                         .close = close_server};
