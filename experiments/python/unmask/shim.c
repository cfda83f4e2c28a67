/* A policy that asks another program: how policies in Python are run.
 *
 * Compiled as a scheduler and, with SHIM_DECODER and SHIM_ROUTER, as these. UNMASK_POLICIES is the
 * path of a socket; every load of this object, of which each run and replica has its own, hands
 * over the ends of two pipes and a memory there, with the name of the policy. A question stands in
 * the memory and its size in bytes goes through one pipe; the answer comes through the other. Where
 * no answer can come any more the program ends. */
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

/* Who copies this file writes here what the policy is called, for which reasons it rejects, and
 * whether it has the methods that it may lack: 0 or 1. */
enum { NAME_BYTES = 128, REASON_BYTES = PLUGIN_MAX_NAME + 1 };
static const volatile struct {
    char name[NAME_BYTES], reasons[SCHEDULER_MAX_REASONS][REASON_BYTES];
    char hears, moves; /* `happened` of a scheduler, `move` of a router */
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

/* A request as Python unpacks it: "<18I12q". */
struct told {
    uint32_t slot, queries, prompt_tokens, output_tokens, committed_tokens, block, block_length;
    uint32_t masked_in_block, step_in_block, steps, preemptions, commit_tokens;
    uint32_t tenant, priority, predicted_tokens, refresh_waits, load_running, load_waiting;
    int64_t arrival_ns, kv_bytes, kv_held_bytes, id, deadline_ns, admitted_ns, first_token_ns;
    int64_t service_ns, service_tokens, load_ns, load_kv_free_bytes, host_bytes;
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
                         r->host_bytes};
}

#if defined SHIM_DECODER

/* "<2I", a request, offsets and confidences. */
struct question {
    uint32_t n, unused;
    struct told request;
    uint32_t offsets[];
};

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    (void)state;
    const size_t each = seen->n * sizeof(uint32_t);
    const size_t size = sizeof(struct question) + 2 * each;
    struct question *question = asked(size);
    uint32_t n = 0;
    question->n = seen->n;
    question->request = tell_of(request, 0);
    memcpy(question->offsets, seen->offset, each);
    memcpy(question->offsets + seen->n, seen->confidence, each);
    tell((int64_t)size);
    look();
    hear(0, seen->n);
    memcpy(commit, line.heard, seen->n);
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
    .reads_load = 1,
};

#elif defined SHIM_ROUTER

/* "<4I2q", a request, replicas ("<4I2q") and the requests that wait at each. */
struct question {
    uint32_t moves, n, n_held, capacity; /* moves 0: about `request`, 1: what changes its replica */
    int64_t now_ns, seed;
    struct told request;
    struct told_replica {
        uint32_t n_running, n_waiting, n_whole, shared_tokens;
        int64_t kv_free_bytes, outstanding_tokens;
    } replicas[];
};

/* "<2Iq". */
struct answer {
    uint32_t kind, chosen; /* of a move: how many */
    int64_t until_ns;
    struct route_move moves[];
};

static struct answer *ask(const struct request *request, const struct route_view *view,
                          uint32_t capacity) {
    size_t size = sizeof(struct question) + view->n * sizeof(struct told_replica);
    for (uint32_t i = 0; i < view->n; i++) {
        size += view->replicas[i].n_waiting * sizeof(struct told);
    }
    struct question *question = asked(size);
    question->moves = request == NULL;
    question->n = view->n;
    question->n_held = view->n_held;
    question->capacity = capacity;
    question->now_ns = view->now_ns;
    question->seed = (int64_t)view->seed;
    question->request = request != NULL ? tell_of(request, 0) : (struct told){0};
    struct told *told = (void *)(question->replicas + view->n);
    for (uint32_t i = 0; i < view->n; i++) {
        const struct replica_view *r = &view->replicas[i];
        question->replicas[i] = (struct told_replica){
            r->n_running,     r->n_waiting,     r->n_whole,
            r->shared_tokens, r->kv_free_bytes, (int64_t)r->outstanding_tokens};
        for (uint32_t k = 0; k < r->n_waiting; k++) {
            *told++ = tell_of(&view->requests[r->waiting[k]], r->waiting[k]);
        }
    }
    tell((int64_t)size);
    look();
    size_t n = hear(0, sizeof(struct answer));
    const struct answer *answer = (const void *)line.heard;
    if (answer->kind == ENOUGH) {
        _exit(CALL_TRIAL_ENDED);
    }
    const size_t n_moves = request == NULL ? answer->chosen : 0;
    if (n_moves > capacity) {
        lost();
    }
    hear(n, sizeof *answer + n_moves * sizeof *answer->moves);
    return (void *)line.heard;
}

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    (void)state;
    const struct answer *answer = ask(request, view, 0);
    *until_ns = answer->until_ns;
    return answer->chosen;
}

static uint32_t move(void *state, const struct route_view *view, struct route_move *moves,
                     uint32_t capacity) {
    (void)state;
    if (!written.moves) {
        return 0;
    }
    const struct answer *answer = ask(NULL, view, capacity);
    memcpy(moves, answer->moves, answer->chosen * sizeof *moves);
    return answer->chosen;
}

const struct router unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER,
               .size = sizeof(struct router),
               .state_bytes = 8,
               .name = "python",
               .doc = "a router in Python; slow"},
    .route = route,
    .move = move,
};

#else

enum { ANSWER_BATCH = 0, ANSWER_ESTIMATE = 1 };

/* "<3q2IiI" and a request. */
struct told_happening {
    int64_t now_ns, ns, query_tokens;
    uint32_t kind, steps;
    int32_t committed_tokens;
    uint32_t state; /* of the request */
    struct told request;
};

/* "<10I8qd", the requests that run, those that wait, and what happened. */
struct question {
    uint32_t decides; /* 0: of no decision, only what happened */
    uint32_t n_happened, max_batched_tokens, max_requests, n_running, n_waiting, n_slots;
    uint32_t replica, n_replicas, unused;
    int64_t now_ns, next_arrival_ns, running_tokens, kv_free_bytes, kv_total_bytes, seed;
    int64_t host_free_bytes, host_total_bytes;
    double host_bandwidth;
    struct told requests[];
};

/* "<8Iq". */
struct answer {
    uint32_t kind, all_running, n, n_admitted, hold, n_rejected, says, n_swapped;
    int64_t wake_ns;
    uint32_t slots[]; /* n; then, of those that are rejected, slots and reasons; then those that are
                         swapped out; then, if it says words, n each of widths, thresholds and
                         puts_off */
};

/* What happened since the last question. */
static __thread struct {
    pid_t owner;
    uint32_t n, capacity;
    int64_t n_here; /* requests that came and have not left */
    struct told_happening *all;
} news;

__attribute__((destructor)) static void forget_news(void) {
    if (news.owner == getpid()) {
        free(news.all);
    }
}

static const char *reasons[SCHEDULER_MAX_REASONS + 1];

__attribute__((constructor)) static void point_at_reasons(void) {
    for (uint32_t i = 0; i < SCHEDULER_MAX_REASONS && written.reasons[i][0] != '\0'; i++) {
        reasons[i] = (const char *)written.reasons[i];
    }
}

/* A question with room for n requests and all news, which follow them. */
static struct question *begin_question(size_t n, size_t *size) {
    *size = sizeof(struct question) + n * sizeof(struct told) + news.n * sizeof *news.all;
    struct question *question = asked(*size);
    memset(question, 0, sizeof *question);
    memcpy(question->requests + n, news.all, news.n * sizeof *news.all);
    question->n_happened = news.n;
    news.n = 0;
    return question;
}

static void ask(const struct schedule_view *view) {
    size_t size;
    struct question *question = begin_question((size_t)view->n_running + view->n_waiting, &size);
    question->decides = 1;
    question->max_batched_tokens = view->max_batched_tokens;
    question->max_requests = view->max_requests;
    question->n_running = view->n_running;
    question->n_waiting = view->n_waiting;
    question->n_slots = view->n_slots;
    question->replica = view->replica;
    question->n_replicas = view->n_replicas;
    question->seed = (int64_t)view->seed;
    question->now_ns = view->now_ns;
    question->next_arrival_ns = view->next_arrival_ns;
    question->running_tokens = view->running_tokens;
    question->kv_free_bytes = view->kv_free_bytes;
    question->kv_total_bytes = view->kv_total_bytes;
    question->host_free_bytes = view->host_free_bytes;
    question->host_total_bytes = view->host_total_bytes;
    question->host_bandwidth = view->host_bandwidth;
    struct told *told = question->requests;
    for (uint32_t i = 0; i < view->n_running; i++) {
        *told++ = tell_of(&view->requests[view->running[i]], view->running[i]);
    }
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        *told++ = tell_of(&view->requests[view->waiting[i]], view->waiting[i]);
    }
    tell((int64_t)size);
}

/* In the line's memory, until the next one. */
static struct answer *heard(void) {
    look();
    size_t n = hear(0, sizeof(struct answer));
    struct answer *answer = (void *)line.heard;
    const size_t words = (answer->says ? 4 : 1) * (size_t)answer->n +
                         (size_t)2 * answer->n_rejected + answer->n_swapped;
    hear(n, sizeof *answer + words * sizeof *answer->slots);
    answer = (void *)line.heard; /* which may have moved */
    if (answer->kind == ENOUGH) {
        _exit(CALL_TRIAL_ENDED);
    }
    return answer;
}

/* What happened is told without a question. */
static void tell_news(void) {
    if (news.n > 0) {
        size_t size;
        (void)begin_question(0, &size);
        tell((int64_t)size);
        (void)heard();
    }
}

static void note(const struct schedule_view *view, const struct happening *h) {
    if (news.n == news.capacity) {
        news.capacity = 2 * news.capacity + 64;
        news.all = realloc(news.all, news.capacity * sizeof *news.all);
        if (news.all == NULL) {
            lost();
        }
    }
    const struct request *request = &view->requests[h->slot];
    news.all[news.n++] = (struct told_happening){.now_ns = view->now_ns,
                                                 .ns = h->ns,
                                                 .query_tokens = (int64_t)h->query_tokens,
                                                 .kind = h->kind,
                                                 .steps = h->steps,
                                                 .committed_tokens = h->committed_tokens,
                                                 .state = request->state,
                                                 .request = tell_of(request, h->slot)};
    news.n_here += (h->kind == HAPPENED_ARRIVAL) - (h->kind == HAPPENED_END);
}

/* Kept until the next decision, which takes no crossing of its own; told at once where none comes
 * any more, since nothing is here. */
static void happened(void *state, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    (void)state;
    if (!written.hears) {
        return;
    }
    if (news.owner != getpid()) { /* what came before a fork is told the parent */
        news.owner = getpid();
        news.n = 0;
        news.n_here = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        note(view, &happenings[i]);
    }
    if (news.n_here <= 0) {
        tell_news();
    }
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
    ask(view);
    struct answer *answer = heard();
    for (; answer->kind == ANSWER_ESTIMATE; answer = heard()) {
        struct batch what = {.capacity = answer->n, .selected = answer->slots};
        take(answer, &what);
        tell(view->estimate_ns(view->estimator, &what));
    }
    if (answer->n > batch->capacity || answer->n_rejected > batch->capacity ||
        answer->n_swapped > batch->capacity) {
        lost();
    }
    const size_t bytes = answer->n * sizeof *answer->slots;
    const size_t rejected_bytes = answer->n_rejected * sizeof *answer->slots;
    const uint32_t *rejected = answer->slots + answer->n;
    const uint32_t *swapped = rejected + 2 * (size_t)answer->n_rejected;
    const uint32_t *words = swapped + answer->n_swapped;
    memcpy(batch->selected, answer->slots, bytes);
    memcpy(batch->rejected, rejected, rejected_bytes);
    memcpy(batch->reasons, rejected + answer->n_rejected, rejected_bytes);
    batch->n_rejected = answer->n_rejected;
    memcpy(batch->preempted, swapped, answer->n_swapped * sizeof *swapped);
    for (uint32_t i = 0; i < answer->n_swapped; i++) {
        batch->swaps[i] = 1;
    }
    batch->n_preempted = answer->n_swapped;
    batch->says = answer->says;
    if (answer->says) {
        memcpy(batch->width_tokens, words, bytes);
        memcpy(batch->threshold_millionths, words + answer->n, bytes);
        memcpy(batch->puts_off, words + 2 * (size_t)answer->n, bytes);
    }
    take(answer, batch);
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = 8,
               .name = "python",
               .doc = "a scheduler in Python; slow"},
    .schedule = schedule,
    .happened = happened,
    .reject_reasons = reasons,
};

#endif
