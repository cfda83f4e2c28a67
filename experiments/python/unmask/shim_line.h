/* What every kind of policy asks through: the line to Python, and requests as Python unpacks them.
 */
#ifndef UNMASK_EXPERIMENTS_PYTHON_UNMASK_SHIM_LINE_H
#define UNMASK_EXPERIMENTS_PYTHON_UNMASK_SHIM_LINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/call_watch.h"
#include "sim/policy/plugin/plugin.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"

enum { ENOUGH = 2 };   /* of an answer: the trial ends */
enum { N_HANDED = 3 }; /* descriptors */

/* A processor that sleeps is woken in tens of microseconds, as long as a decision takes: so the
 * shim polls for an answer first, unless that failed the last times. */
enum { LOOK_NS = 50 * 1000, MOST_WAITS = 1023 };

/* Who copies this file writes here what its file and the policy are called, for which reasons it
 * rejects, which of the methods that it may lack it has, and its flags: 0 or 1 each. */
enum { NAME_BYTES = 128, REASON_BYTES = PLUGIN_MAX_NAME + 1 };
static const volatile struct {
    char name[NAME_BYTES], shown[REASON_BYTES], reasons[SCHEDULER_MAX_REASONS][REASON_BYTES];
    char hears, moves, puts_off, evicts, learns, takes_back; /* methods */
    char grows, changes_passes, reads_entropy, reads_statistics;
    uint32_t memory_bytes; /* of a cache policy, of each request */
} written = {.name = "UNMASK-NAME-OF-THE-POLICY"};

/* Of one thread; a forked process makes its own. */
static __thread struct {
    pid_t owner;
    int question, answer, memory; /* our ends of the pipes, and what is shared */
    bool looks;                   /* there is another processor */
    uint32_t in_vain;             /* waits that pass before the next poll after one that failed */
    uint32_t waits;               /* of them to come */
    unsigned char *shared, *heard;
    size_t shared_bytes, heard_bytes;
} line;

__attribute__((noreturn)) static void lost(void) {
    _exit(1); /* the program says of whom */
}

/* A path for sockets has 107 bytes; that of the folder may be longer. */
static int dial(const char *path) {
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    char folder[PATH_MAX], *name;
    snprintf(folder, sizeof folder, "%s", path);
    name = strrchr(folder, '/');
    if (name == NULL) {
        lost();
    }
    *name = '\0';
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(where.sun_path, sizeof where.sun_path, "/proc/self/fd/%d/%s", at, name + 1);
    if (connect(fd, (struct sockaddr *)&where, sizeof where) != 0) {
        lost();
    }
    close(at);
    return fd;
}

/* With a hello: whether this is a trial, and the name. */
static void hand_over(int fd, const int handed[N_HANDED]) {
    char name[NAME_BYTES];
    for (size_t i = 0; i < sizeof name; i++) {
        name[i] = written.name[i];
    }
    char is_trial = getenv(CALL_IS_TRIAL) != NULL;
    struct iovec hello[2] = {{&is_trial, 1}, {name, strnlen(name, sizeof name)}};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(N_HANDED * sizeof *handed)];
    } rights = {.head = {CMSG_LEN(N_HANDED * sizeof *handed), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&rights.head), handed, N_HANDED * sizeof *handed);
    struct msghdr message = {
        .msg_iov = hello, .msg_iovlen = 2, .msg_control = &rights, .msg_controllen = sizeof rights};
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)(1 + hello[1].iov_len)) {
        lost();
    }
}

/* After a fork the parent's line is not ours. */
static void open_line(void) {
    const char *path = getenv(CALL_ANSWERED_AT);
    int question[2], answer[2];
    int memory = memfd_create("unmask", MFD_CLOEXEC);
    if (path == NULL || memory < 0 || pipe2(question, O_CLOEXEC) != 0 ||
        pipe2(answer, O_CLOEXEC) != 0) {
        lost();
    }
    int fd = dial(path);
    hand_over(fd, (int[N_HANDED]){question[0], answer[1], memory});
    close(fd);
    close(question[0]);
    close(answer[1]);
    cpu_set_t cpus;
    line.looks = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1;
    line.question = question[1];
    line.answer = answer[0];
    line.memory = memory;
    line.shared = NULL;
    line.shared_bytes = 0;
    line.owner = getpid();
}

/* The run has ended, or the replica's. */
__attribute__((destructor)) static void close_line(void) {
    if (line.owner == getpid()) {
        close(line.question);
        close(line.answer);
        close(line.memory);
        (void)munmap(line.shared, line.shared_bytes);
        free(line.heard);
        line.owner = 0;
    }
}

/* Where the next question goes. */
static void *asked(size_t size) {
    if (line.owner != getpid()) {
        open_line();
    }
    if (size > line.shared_bytes) {
        (void)munmap(line.shared, line.shared_bytes);
        line.shared_bytes = 2 * size;
        line.shared =
            ftruncate(line.memory, (off_t)line.shared_bytes) == 0
                ? mmap(NULL, line.shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, line.memory, 0)
                : MAP_FAILED;
        if (line.shared == MAP_FAILED) {
            lost();
        }
    }
    return line.shared;
}

/* A pipe takes so few bytes all at once. */
static void tell(int64_t number) {
    ssize_t n;
    do {
        n = write(line.question, &number, sizeof number);
    } while (n < 0 && errno == EINTR);
    if (n != sizeof number) {
        lost();
    }
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void look(void) {
    struct pollfd answer = {.fd = line.answer, .events = POLLIN};
    if (!line.looks) {
        return;
    }
    if (line.waits > 0) {
        line.waits--;
        return;
    }
    for (int64_t until = now_ns() + LOOK_NS; poll(&answer, 1, 0) == 0;) {
        if (now_ns() > until) {
            line.in_vain = line.in_vain < MOST_WAITS ? 2 * line.in_vain + 1 : line.in_vain;
            line.waits = line.in_vain;
            return;
        }
    }
    line.in_vain /= 2;
}

/* Reads on from `n` bytes of an answer until at least `size` are there: how many are. */
static size_t hear(size_t n, size_t size) {
    if (size > line.heard_bytes) {
        line.heard_bytes = 2 * size;
        line.heard = realloc(line.heard, line.heard_bytes);
    }
    if (line.heard == NULL) {
        lost();
    }
    while (n < size) {
        ssize_t more = read(line.answer, line.heard + n, line.heard_bytes - n);
        if (more < 0 && errno == EINTR) {
            continue;
        }
        if (more <= 0) {
            lost();
        }
        n += (size_t)more;
    }
    return n;
}

/* A request as Python unpacks it: "<36I13q". */
struct told {
    uint32_t slot, queries, prompt_tokens, output_tokens, committed_tokens, block, block_length;
    uint32_t masked_in_block, step_in_block, steps, preemptions, commit_tokens;
    uint32_t tenant, priority, predicted_tokens, refresh_waits, load_running, load_waiting;
    uint32_t phase, steps_to_change, overdue_steps, answer_tokens, cached_tokens, kv_rows;
    uint32_t block_tokens, steps_per_block, causal, shifted, block_start, block_before;
    uint32_t known_in_block, uncached_in_block, kept_in_block, passes_in_block;
    uint32_t load_max_requests, load_max_batched_tokens;
    int64_t arrival_ns, kv_bytes, kv_held_bytes, id, deadline_ns, admitted_ns, first_token_ns;
    int64_t service_ns, service_tokens, load_ns, load_kv_free_bytes, load_kv_total_bytes;
    int64_t host_bytes;
};

static struct told tell_of(const struct request *r, uint32_t slot) {
    return (struct told){slot,
                         r->span.queries,
                         r->prompt_tokens,
                         r->output_tokens,
                         r->committed_tokens,
                         window_block(r),
                         window_length(r),
                         window_masked(r),
                         window_steps(r),
                         r->steps,
                         r->preemptions,
                         r->commit_tokens,
                         r->tenant,
                         r->priority,
                         r->predicted_tokens,
                         r->refresh_waits,
                         r->load.n_running,
                         r->load.n_waiting,
                         r->span.phase,
                         r->steps_to_change,
                         r->overdue_steps,
                         r->answer_tokens,
                         r->cached_tokens,
                         r->kv_rows,
                         r->block_tokens,
                         r->steps_per_block,
                         r->causal,
                         r->shifted,
                         window_first(r),
                         window_before(r),
                         window_known(r),
                         window_uncached(r),
                         window_kept(r),
                         window_passes(r),
                         r->load.max_requests,
                         r->load.max_batched_tokens,
                         r->arrival_ns,
                         r->kv_bytes,
                         r->kv_held_bytes,
                         (int64_t)r->id,
                         r->deadline_ns,
                         r->admitted_ns,
                         r->first_token_ns,
                         r->service_ns,
                         (int64_t)r->service_tokens,
                         r->load.now_ns,
                         r->load.kv_free_bytes,
                         r->load.kv_total_bytes,
                         r->host_bytes};
}

#endif
