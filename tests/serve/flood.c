/* flood PORT MODEL REQUESTS CONNECTIONS SEED: clients of which some leave in the middle. Each asks
 * for a stream of a random length by one of a few seeds, whose whole text was asked for first: what
 * comes is that text's beginning, to its last token where the client stays. Prints what it saw as
 * JSON; status 1 where a token was lost, doubled or another's. One thread, one epoll. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sim/base/monotonic.h"

enum { MOST_CONNECTIONS = 10000, SEEDS = 32, MOST_TOKENS = 96, ROOM = 1 << 16 };
enum way { STAYS, LEAVES, RESETS, HALF_CLOSES, N_WAYS };
static const char *const way_words[] = {"stayed", "left", "reset", "half_closed"};

struct client {
    int file; /* -1: not connected */
    bool is_busy;
    enum way way;
    uint32_t seed, tokens;
    size_t leaves_at, n_bytes; /* of what came */
    char *bytes;               /* [ROOM] */
};

static struct client clients[MOST_CONNECTIONS];
static char *texts[SEEDS]; /* of MOST_TOKENS each */
static size_t ends[SEEDS][MOST_TOKENS + 1];
static uint64_t n_asked, n_over, n_wrong, n_failed, by_way[N_WAYS], n_tokens;
static uint64_t state;
static uint16_t port;
static const char *model;
static int epoll;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % below;
}

static void fail(const char *what) {
    fprintf(stderr, "flood: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int connected(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    if (file < 0 || connect(file, (struct sockaddr *)&to, sizeof to) != 0) {
        fail("connect");
    }
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return file;
}

static void ask(int file, uint32_t seed, uint32_t tokens) {
    char body[512], request[1024];
    const int length =
        snprintf(body, sizeof body,
                 "{\"model\":\"%.100s\",\"prompt\":[1,2,3,4,5,6,7,8],\"max_tokens\":%u,\"seed\":%u,"
                 "\"stream\":true}",
                 model, tokens, seed);
    const int size = snprintf(request, sizeof request,
                              "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                              "%d\r\n\r\n%s",
                              length, body);
    if (write(file, request, (size_t)size) != size) {
        fail("write");
    }
}

/* The texts of all events, one after the other. */
static size_t text_of(const char *bytes, char *out) {
    static const char begins[] = "\"text\":\"";
    size_t n = 0;
    for (const char *at = bytes; (at = strstr(at, begins)) != NULL;) {
        at += sizeof begins - 1;
        const size_t part = strcspn(at, "\"");
        memcpy(out + n, at, part);
        n += part;
        at += part;
    }
    out[n] = '\0';
    return n;
}

static bool is_whole(const char *bytes) {
    return strstr(bytes, "data: [DONE]\n\n\r\n0\r\n\r\n") != NULL;
}

static void take_references(void) {
    static char bytes[ROOM];
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        const int file = connected();
        size_t n = 0;
        ask(file, seed, MOST_TOKENS);
        for (bytes[0] = '\0'; !is_whole(bytes);) {
            const ssize_t part = read(file, bytes + n, sizeof bytes - n - 1);
            if (part <= 0) {
                fail("a reference");
            }
            n += (size_t)part;
            bytes[n] = '\0';
        }
        close(file);
        texts[seed] = malloc(ROOM);
        const size_t length = text_of(bytes, texts[seed]);
        uint32_t token = 0;
        for (size_t i = 1; i <= length; i++) { /* a token is a blank and letters */
            if (i == length || texts[seed][i] == ' ') {
                ends[seed][++token] = i;
            }
        }
        if (token != MOST_TOKENS) {
            fail("a reference of another length");
        }
    }
}

static void start(struct client *c) {
    static const uint8_t ways[] = {STAYS, STAYS,  STAYS,  STAYS,  STAYS,
                                   STAYS, LEAVES, LEAVES, RESETS, HALF_CLOSES};
    if (c->file < 0) {
        c->file = connected();
        fcntl(c->file, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(c - clients)};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->file, &event) != 0) {
            fail("epoll");
        }
    }
    c->way = ways[draw(sizeof ways)];
    c->seed = draw(SEEDS);
    c->tokens = 1 + draw(MOST_TOKENS);
    c->leaves_at = draw(4) == 0 ? 0 : draw(4000);
    c->n_bytes = 0;
    c->is_busy = true;
    ask(c->file, c->seed, c->tokens);
    n_asked++;
    if (c->way == HALF_CLOSES) {
        shutdown(c->file, SHUT_WR);
    }
}

static bool leaves(const struct client *c) {
    return c->way == LEAVES || c->way == RESETS;
}

static void end(struct client *c, bool closes) {
    c->bytes[c->n_bytes] = '\0';
    char *text = malloc(ROOM);
    const size_t n = text_of(c->bytes, text);
    /* Of one that left the last event may be cut. */
    const bool is_prefix = n <= ends[c->seed][c->tokens] && memcmp(text, texts[c->seed], n) == 0;
    const bool is_all = n == ends[c->seed][c->tokens];
    n_wrong += !is_prefix || (is_whole(c->bytes) && !is_all);
    n_failed += c->way == STAYS && !is_whole(c->bytes);
    by_way[c->way]++;
    for (size_t i = 0; i < n; i++) {
        n_tokens += text[i] == ' ';
    }
    free(text);
    c->is_busy = false;
    n_over++;
    if (closes) {
        if (c->way == RESETS) {
            const struct linger now = {1, 0};
            setsockopt(c->file, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        }
        close(c->file);
        c->file = -1;
    }
}

static void take(struct client *c) {
    const size_t room = c->way == STAYS || c->way == HALF_CLOSES || c->leaves_at > c->n_bytes + 200
                            ? ROOM - c->n_bytes - 1
                            : 200;
    const ssize_t n = read(c->file, c->bytes + c->n_bytes, room);
    if (n < 0 && errno == EAGAIN) {
        return;
    }
    if (n <= 0) {
        end(c, true);
        return;
    }
    c->n_bytes += (size_t)n;
    c->bytes[c->n_bytes] = '\0';
    if (leaves(c) && c->n_bytes >= c->leaves_at) {
        end(c, true);
    } else if (is_whole(c->bytes)) {
        end(c, c->way != STAYS);
    }
}

/* Its next request; one that leaves at once has one more. */
static void go_on(struct client *c, uint64_t n_requests) {
    while (!c->is_busy && n_asked < n_requests) {
        start(c);
        if (leaves(c) && c->leaves_at == 0) {
            end(c, true);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: flood PORT MODEL REQUESTS CONNECTIONS SEED\n");
        return 2;
    }
    port = (uint16_t)atoi(argv[1]);
    model = argv[2];
    const uint64_t n_requests = strtoull(argv[3], NULL, 10);
    const uint32_t n_clients = (uint32_t)atoi(argv[4]);
    state = strtoull(argv[5], NULL, 10) + UINT64_C(0x9e3779b97f4a7c15);
    if (n_clients < 1 || n_clients > MOST_CONNECTIONS) {
        fprintf(stderr, "flood: CONNECTIONS is from 1 to %d\n", MOST_CONNECTIONS);
        return 2;
    }
    epoll = epoll_create1(0);
    take_references();
    const int64_t begin_ns = monotonic_ns();
    for (uint32_t i = 0; i < n_clients; i++) {
        clients[i].file = -1;
        clients[i].bytes = malloc(ROOM);
        go_on(&clients[i], n_requests);
    }
    while (n_over < n_asked) {
        struct epoll_event events[256];
        const int n = epoll_wait(epoll, events, 256, 30000);
        if (n <= 0) {
            fprintf(stderr, "flood: nothing came for 30 s\n");
            return 1;
        }
        for (int i = 0; i < n; i++) {
            struct client *c = &clients[events[i].data.u64];
            take(c);
            go_on(c, n_requests);
        }
    }
    printf("{\"requests\": %llu, \"wrong\": %llu, \"failed\": %llu, \"tokens\": %llu, "
           "\"seconds\": %.2f",
           (unsigned long long)n_asked, (unsigned long long)n_wrong, (unsigned long long)n_failed,
           (unsigned long long)n_tokens, (double)(monotonic_ns() - begin_ns) * 1e-9);
    for (int way = 0; way < N_WAYS; way++) {
        printf(", \"%s\": %llu", way_words[way], (unsigned long long)by_way[way]);
    }
    printf("}\n");
    return n_wrong > 0 || n_failed > 0;
}
