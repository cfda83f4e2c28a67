/* load PORT MODEL RATE SECONDS STREAMS TOKENS [REQUESTS]: a client that asks a server on this
 * machine for streams at that rate, in Poisson arrivals, with up to STREAMS of them at once over
 * connections that stay open, and prints what it saw as JSON: requests, events, errors, and the
 * percentiles of the time to the first event and to the end. With REQUESTS it ends after them. One
 * thread, one epoll. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
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

enum { MOST_STREAMS = 10000, TAIL = 16, ROOM = 1 << 16 };

struct stream {
    int file; /* -1: not connected */
    bool is_busy;
    int64_t asked_ns, first_ns;
    char tail[TAIL]; /* the last bytes that came, so that an end in two parts is seen */
    uint32_t n_blocks;
};

static struct stream streams[MOST_STREAMS];
static double *firsts, *wholes;
static uint64_t n_asked, n_done, n_events, n_errors, n_late, room;
static char request[512];
static size_t request_size;

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void connect_stream(struct stream *s, int epoll, uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->file = socket(AF_INET, SOCK_STREAM, 0);
    if (s->file < 0 || connect(s->file, (struct sockaddr *)&to, sizeof to) != 0) {
        fail("connect");
    }
    setsockopt(s->file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(s->file, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(s - streams)};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, s->file, &event) != 0) {
        fail("epoll");
    }
}

static void ask(struct stream *s, int64_t due_ns) {
    if (write(s->file, request, request_size) != (ssize_t)request_size) {
        fail("write");
    }
    s->is_busy = true;
    s->asked_ns = due_ns;
    s->first_ns = 0;
    s->n_blocks = 0;
    memset(s->tail, ' ', sizeof s->tail);
    n_asked++;
}

static uint64_t count(const char *text, size_t n, const char *word) {
    uint64_t found = 0;
    const size_t size = strlen(word);
    for (const char *at = text; (at = memmem(at, n - (size_t)(at - text), word, size)) != NULL;) {
        found++;
        at += size;
    }
    return found;
}

static void end_stream(struct stream *s, int64_t now_ns) {
    s->is_busy = false;
    if (n_done < room) {
        firsts[n_done] = (double)(s->first_ns - s->asked_ns) * 1e-9;
        wholes[n_done] = (double)(now_ns - s->asked_ns) * 1e-9;
    }
    n_done++;
}

static void take(struct stream *s) {
    static char bytes[TAIL + ROOM];
    memcpy(bytes, s->tail, TAIL);
    const ssize_t n = read(s->file, bytes + TAIL, ROOM);
    const int64_t now_ns = monotonic_ns();
    if (n < 0 && errno == EAGAIN) {
        return;
    }
    if (n <= 0) {
        n_errors++;
        close(s->file);
        s->file = -1;
        s->is_busy = false;
        return;
    }
    const size_t size = (size_t)n + TAIL;
    /* What stands in the tail was counted. */
    const uint64_t events = count(bytes, size, "data: {") - count(bytes, TAIL, "data: {");
    n_events += events;
    if (events > 0 && s->first_ns == 0) {
        s->first_ns = now_ns;
    }
    if (memmem(bytes + TAIL, (size_t)n, "HTTP/1.1 ", 9) != NULL &&
        memmem(bytes + TAIL, (size_t)n, "HTTP/1.1 200", 12) == NULL) {
        n_errors++;
        s->is_busy = false;
    }
    if (s->is_busy && memmem(bytes, size, "\r\n0\r\n\r\n", 7) != NULL) {
        end_stream(s, now_ns);
    }
    memcpy(s->tail, bytes + size - TAIL, TAIL);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(double *values, uint64_t n, double share) {
    qsort(values, n, sizeof *values, by_value);
    return n > 0 ? values[(uint64_t)((double)(n - 1) * share)] : 0;
}

int main(int argc, char **argv) {
    if (argc != 7 && argc != 8) {
        fprintf(stderr, "usage: load PORT MODEL RATE SECONDS STREAMS TOKENS [REQUESTS]\n");
        return 2;
    }
    const uint16_t port = (uint16_t)atoi(argv[1]);
    const uint64_t most = argc == 8 ? strtoull(argv[7], NULL, 10) : UINT64_MAX;
    const double rate = atof(argv[3]), seconds = argc == 8 ? 1e6 : atof(argv[4]);
    const uint32_t n_streams = (uint32_t)atoi(argv[5]);
    char body[256];
    if (n_streams < 1 || n_streams > MOST_STREAMS || !(rate > 0)) {
        fprintf(stderr, "load: STREAMS is from 1 to %d, RATE above 0\n", MOST_STREAMS);
        return 2;
    }
    const int length =
        snprintf(body, sizeof body,
                 "{\"model\":\"%.100s\",\"prompt\":[1,2,3,4,5,6,7,8],\"max_tokens\":%d,"
                 "\"stream\":true}",
                 argv[2], atoi(argv[6]));
    request_size = (size_t)snprintf(request, sizeof request,
                                    "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                                    "application/json\r\nContent-Length: %d\r\n\r\n%s",
                                    length, body);
    room = argc == 8 ? most : (uint64_t)(rate * seconds * 2) + 1000;
    firsts = calloc(room, sizeof *firsts);
    wholes = calloc(room, sizeof *wholes);
    const int epoll = epoll_create1(0);
    for (uint32_t i = 0; i < n_streams; i++) {
        connect_stream(&streams[i], epoll, port);
    }
    srand48(7);
    const int64_t begin_ns = monotonic_ns(), end_ns = begin_ns + (int64_t)(seconds * 1e9);
    int64_t next_ns = begin_ns;
    uint32_t free_at = 0;
    while ((monotonic_ns() < end_ns && n_asked < most) || n_done + n_errors < n_asked) {
        struct epoll_event events[256];
        int64_t now_ns = monotonic_ns();
        while (next_ns <= now_ns && next_ns < end_ns && n_asked < most) {
            uint32_t tried = 0;
            while (tried < n_streams && (streams[free_at].is_busy || streams[free_at].file < 0)) {
                free_at = (free_at + 1) % n_streams;
                tried++;
            }
            if (tried == n_streams) {
                n_late++;
                break;
            }
            ask(&streams[free_at], next_ns);
            next_ns += (int64_t)(-log(1 - drand48()) / rate * 1e9);
        }
        int64_t left_ns = (next_ns < end_ns ? next_ns : now_ns + 10000000) - monotonic_ns();
        left_ns = n_asked == most ? 10000000 : left_ns < 0 ? 0 : left_ns;
        const struct timespec nap = {left_ns / 1000000000, left_ns % 1000000000};
        const int n = epoll_pwait2(epoll, events, 256, &nap, NULL);
        for (int i = 0; i < n; i++) {
            take(&streams[events[i].data.u64]);
        }
        if (monotonic_ns() > end_ns + 60 * INT64_C(1000000000)) {
            break;
        }
    }
    const double took_s = (double)(monotonic_ns() - begin_ns) * 1e-9;
    const uint64_t n = n_done < room ? n_done : room;
    printf(
        "{\"requests\": %llu, \"done\": %llu, \"errors\": %llu, \"late\": %llu, \"events\": %llu, "
        "\"seconds\": %.3f, \"first_p50_s\": %.6f, \"first_p99_s\": %.6f, \"whole_p50_s\": %.6f, "
        "\"whole_p99_s\": %.6f}\n",
        (unsigned long long)n_asked, (unsigned long long)n_done, (unsigned long long)n_errors,
        (unsigned long long)n_late, (unsigned long long)n_events, took_s,
        percentile(firsts, n, 0.5), percentile(firsts, n, 0.99), percentile(wholes, n, 0.5),
        percentile(wholes, n, 0.99));
    return n_errors > 0 || n_done != n_asked;
}
