/* A policy that asks a program at the other end of a socket: how policies in Python are run.
 *
 * Compiled twice, as a scheduler and, with SHIM_DECODER, as a decoder. UNMASK_POLICIES is the path
 * of the socket; every process and thread that is asked opens a connection of its own, which begins
 * with the name of this file, that is of the policy. Where nobody answers any more the program
 * ends. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sim/check/call_watch.h"
#include "sim/decoder/decoder.h"
#include "sim/scheduler/scheduler.h"

static __thread int connection = -1;
static __thread pid_t opened_by;

enum { ENOUGH = 2 }; /* of an answer: the trial ends */

__attribute__((noreturn)) static void lost(void) {
    _exit(1); /* the program says of whom */
}

/* A path for sockets has 107 bytes; that of the folder may be longer. */
static int dial(const char *path) {
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    const char *name = strrchr(path, '/');
    char *folder = name != NULL ? strndup(path, (size_t)(name - path)) : NULL;
    int at = folder != NULL ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    free(folder);
    if (at < 0 || fd < 0) {
        lost();
    }
    int n = snprintf(where.sun_path, sizeof where.sun_path, "/proc/self/fd/%d%s", at, name);
    if (n >= (int)sizeof where.sun_path ||
        connect(fd, (struct sockaddr *)&where, sizeof where) != 0) {
        lost();
    }
    close(at);
    return fd;
}

static void tell(const void *bytes, size_t size);

/* After a fork the parent's connection is not ours. */
static int connected(void) {
    static const char place; /* in this file */
    Dl_info info;
    const char *path = getenv(CALL_ANSWERED_AT);
    if (connection >= 0 && opened_by == getpid()) {
        return connection;
    }
    if (path == NULL || dladdr(&place, &info) == 0) {
        lost();
    }
    connection = dial(path);
    opened_by = getpid();
    const char *name = strrchr(info.dli_fname, '/');
    name = name != NULL ? name + 1 : info.dli_fname;
    const uint32_t hello[2] = {getenv(CALL_IS_TRIAL) != NULL, (uint32_t)strlen(name)};
    tell(hello, sizeof hello);
    tell(name, hello[1]);
    return connection;
}

static void tell(const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = send(connected(), at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            lost();
        }
        at += n;
        size -= (size_t)n;
    }
}

static void hear(void *bytes, size_t size) {
    char *at = bytes;
    while (size > 0) {
        ssize_t n = recv(connected(), at, size, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            lost();
        }
        at += n;
        size -= (size_t)n;
    }
}

/* As Python unpacks it: "<12I4q". */
struct told {
    uint32_t slot, queries, prompt_tokens, output_tokens, committed_tokens, block, block_length;
    uint32_t masked_in_block, step_in_block, steps, preemptions, commit_tokens;
    int64_t arrival_ns, kv_bytes, kv_held_bytes, id;
};

static struct told tell_of(const struct request *r, uint32_t slot) {
    return (struct told){
        slot,           r->span.queries,  r->prompt_tokens,   r->output_tokens, r->committed_tokens,
        r->block,       r->block_length,  r->masked_in_block, r->step_in_block, r->steps,
        r->preemptions, r->commit_tokens, r->arrival_ns,      r->kv_bytes,      r->kv_held_bytes,
        (int64_t)r->id};
}

#ifndef SHIM_DECODER

enum { ANSWER_BATCH = 0, ANSWER_ESTIMATE = 1 };

/* "<5q5I4x" and "<6Iq". */
struct asked {
    int64_t now_ns, next_arrival_ns, running_tokens, kv_free_bytes, kv_total_bytes;
    uint32_t max_batched_tokens, max_requests, capacity, n_running, n_waiting, unused;
};
struct answer {
    uint32_t kind, all_running, n, n_admitted, hold, unused;
    int64_t wake_ns;
};

/* The question in one message, in memory that is the thread's for as long as it lives. */
static void tell_view(const struct asked *asked, const struct schedule_view *view) {
    static __thread unsigned char *message;
    static __thread size_t capacity;
    const size_t n = (size_t)view->n_running + view->n_waiting;
    const size_t size = sizeof *asked + n * sizeof(struct told);
    if (size > capacity) {
        free(message);
        capacity = 2 * size;
        message = malloc(capacity);
    }
    if (message == NULL) {
        lost();
    }
    memcpy(message, asked, sizeof *asked);
    struct told *told = (struct told *)(void *)(message + sizeof *asked);
    for (uint32_t i = 0; i < view->n_running; i++) {
        *told++ = tell_of(&view->requests[view->running[i]], view->running[i]);
    }
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        *told++ = tell_of(&view->requests[view->waiting[i]], view->waiting[i]);
    }
    tell(message, size);
}

static void take(const struct answer *answer, struct batch *batch) {
    batch->all_running = answer->all_running;
    batch->n = answer->n;
    batch->n_admitted = answer->n_admitted;
    batch->hold = answer->hold;
    batch->wake_ns = answer->wake_ns;
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    struct asked asked = {view->now_ns,
                          view->next_arrival_ns,
                          view->running_tokens,
                          view->kv_free_bytes,
                          view->kv_total_bytes,
                          view->max_batched_tokens,
                          view->max_requests,
                          batch->capacity,
                          view->n_running,
                          view->n_waiting,
                          0};
    tell_view(&asked, view);
    struct answer answer;
    for (hear(&answer, sizeof answer); answer.kind == ANSWER_ESTIMATE;
         hear(&answer, sizeof answer)) {
        uint32_t *slots = calloc((size_t)answer.n + 1, sizeof *slots);
        struct batch what = {.capacity = answer.n, .selected = slots};
        hear(slots, answer.n * sizeof *slots);
        take(&answer, &what);
        int64_t ns = view->estimate_ns(view->estimator, &what);
        free(slots);
        tell(&ns, sizeof ns);
    }
    if (answer.kind == ENOUGH) {
        _exit(CALL_TRIAL_ENDED);
    }
    if (answer.n <= batch->capacity) {
        hear(batch->selected, answer.n * sizeof *batch->selected);
        take(&answer, batch);
    } else {
        lost();
    }
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = 8,
               .name = "python",
               .doc = "a scheduler in Python; slow, and one for all replicas"},
    .schedule = schedule,
};

#else

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    (void)state;
    uint32_t head[2] = {seen->n, seen->first}, n = 0;
    struct told told = tell_of(request, 0);
    tell(head, sizeof head);
    tell(&told, sizeof told);
    tell(seen->offset, seen->n * sizeof *seen->offset);
    tell(seen->confidence, seen->n * sizeof *seen->confidence);
    hear(commit, seen->n);
    if (seen->n > 0 && commit[0] == ENOUGH) {
        _exit(CALL_TRIAL_ENDED);
    }
    for (uint32_t i = 0; i < seen->n; i++) {
        n += commit[i];
    }
    return n;
}

const struct decoder unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = 8,
               .name = "python",
               .doc = "a decoder in Python; slow"},
    .choose = choose,
};

#endif
