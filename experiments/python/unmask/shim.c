/* A policy that asks another program: how policies in Python are run.
 *
 * Compiled as a scheduler and, with SHIM_CACHE, SHIM_DECODER and SHIM_ROUTER, as these.
 * UNMASK_POLICIES is the path of a socket; every load of this object, of which each run and replica
 * has its own, hands over the ends of two pipes and a memory there, with the name of the policy. A
 * question stands in the memory and its size in bytes goes through one pipe; the answer comes
 * through the other. Where no answer can come any more the program ends. */
#include "experiments/python/unmask/shim_line.h"

/* Of a descriptor, which is written to before anybody reads it. */
#define AT_LOAD __attribute__((constructor)) static void

#if defined SHIM_DECODER

enum { ASKS_CHOICE = 0, ASKS_TAKING_BACK = 1 };

/* "<2I", a request, offsets, confidences and, of a choice that reads them, margins and entropies.
 */
struct question {
    uint32_t n, asks;
    struct told request;
    uint32_t offsets[];
};

/* Flags of n positions: how many are set. `statistics` NULL: of none. */
static uint32_t ask(uint32_t asks, const struct request *request, uint32_t n,
                    const uint32_t *offset, const float *confidence,
                    const float *const statistics[2], uint8_t *flags) {
    const size_t each = n * sizeof(uint32_t);
    const size_t size = sizeof(struct question) + (statistics != NULL ? 4 : 2) * each;
    struct question *question = asked(size);
    uint32_t n_set = 0;
    question->n = n;
    question->asks = asks;
    question->request = tell_of(request, 0);
    memcpy(question->offsets, offset, each);
    memcpy(question->offsets + n, confidence, each);
    for (size_t i = 0; statistics != NULL && i < 2; i++) {
        memcpy(question->offsets + (2 + i) * n, statistics[i], each);
    }
    tell((int64_t)size);
    look();
    hear(0, n);
    memcpy(flags, line.heard, n);
    if (n > 0 && flags[0] == ENOUGH) {
        _exit(CALL_TRIAL_ENDED);
    }
    for (uint32_t i = 0; i < n; i++) {
        n_set += flags[i];
    }
    return n_set;
}

static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    const float *const statistics[2] = {seen->margin, seen->entropy};
    (void)state;
    return ask(ASKS_CHOICE, request, seen->n, seen->offset, seen->confidence,
               written.reads_statistics ? statistics : NULL, commit);
}

static uint32_t take_back(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again) {
    (void)state;
    return kept->n == 0 ? 0
                        : ask(ASKS_TAKING_BACK, request, kept->n, kept->offset, kept->confidence,
                              NULL, again);
}

struct decoder unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_DECODER,
               .size = sizeof(struct decoder),
               .state_bytes = 8,
               .name = (const char *)written.shown,
               .doc = "a decoder in Python; slow"},
    .choose = choose,
    .reads_load = 1,
};

AT_LOAD describe(void) {
    unmask_policy.take_back = written.takes_back ? take_back : NULL;
    unmask_policy.reads_statistics = (uint32_t)written.reads_statistics;
}

#elif defined SHIM_CACHE

enum { ASKS_PLAN = 0, ASKS_PUTTING_OFF = 1, ASKS_EVICTION = 2, ASKS_LEARNING = 3 };

/* "<4I", a request, what is remembered of it, and of an eviction for each of n positions growth,
 * "pending" and "masked", of what it learns entropies, where it reads them, and outcomes. */
struct question {
    uint32_t asks, n, n_committed;
    int32_t frontier;
    struct told request;
    unsigned char rest[];
};

/* "<27I", or the flags of positions, or what is remembered from now on. */
struct answer {
    uint32_t kind, n; /* of steps */
    struct row_sets rows;
};

_Static_assert(sizeof(struct row_sets) == 25 * sizeof(uint32_t),
               "_ROWS of _view.py has its fields");

static struct question *begin_question(uint32_t asks, const struct request *request,
                                       const void *memory, size_t more) {
    struct question *question = asked(sizeof(struct question) + written.memory_bytes + more);
    *question = (struct question){.asks = asks, .request = tell_of(request, 0)};
    if (memory != NULL) {
        memcpy(question->rest, memory, written.memory_bytes);
    } else {
        memset(question->rest, 0, written.memory_bytes);
    }
    return question;
}

/* The answer, of `size` bytes, to a question whose last part has `more`. */
static const void *answer_of(size_t more, size_t size) {
    tell((int64_t)(sizeof(struct question) + written.memory_bytes + more));
    look();
    (void)hear(0, size);
    if (line.heard[0] == ENOUGH) {
        _exit(CALL_TRIAL_ENDED);
    }
    return line.heard;
}

static uint32_t ask_rows(uint32_t asks, const void *memory, const struct request *request,
                         struct row_sets *rows) {
    (void)begin_question(asks, request, memory, 0);
    const struct answer *answer = answer_of(0, sizeof *answer);
    *rows = answer->rows;
    return answer->n;
}

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)state;
    return ask_rows(ASKS_PLAN, memory, request, rows);
}

static uint32_t put_off(const void *state, const void *memory, const struct request *request,
                        struct row_sets *rows) {
    (void)state;
    return ask_rows(ASKS_PUTTING_OFF, memory, request, rows);
}

static uint32_t evict(const void *state, const void *memory, const struct eviction_view *view,
                      uint8_t *keep) {
    const uint32_t n = view->length;
    const size_t more = n * (sizeof *view->delta + 2);
    struct question *question = begin_question(ASKS_EVICTION, view->request, memory, more);
    unsigned char *rest = question->rest + written.memory_bytes;
    uint32_t n_kept = 0;
    (void)state;
    question->n = n;
    question->frontier = view->frontier;
    memcpy(rest, view->delta, n * sizeof *view->delta);
    memcpy(rest + n * sizeof *view->delta, view->pending, n);
    memcpy(rest + n * (sizeof *view->delta + 1), view->masked, n);
    const unsigned char *answer = answer_of(more, 8 + n);
    memcpy(keep, answer + 8, n);
    for (uint32_t i = 0; i < n; i++) {
        n_kept += keep[i];
    }
    return n_kept;
}

/* Entropies come first, which are aligned to their size. */
static void learn(const void *state, void *memory, const struct request *request,
                  const struct learned *learned) {
    const uint32_t n = learned->n > 0 ? window_length(request) : 0;
    const bool has_entropy = learned->entropy != NULL && n > 0;
    const size_t of_entropies = has_entropy ? n * sizeof *learned->entropy : 0;
    struct question *question = begin_question(ASKS_LEARNING, request, memory, of_entropies + n);
    unsigned char *rest = question->rest + written.memory_bytes;
    (void)state;
    question->n = n;
    question->n_committed = learned->n;
    question->frontier = has_entropy;
    if (has_entropy) {
        memcpy(rest, learned->entropy, of_entropies);
    }
    if (n > 0) {
        memcpy(rest + of_entropies, learned->outcome, n);
    }
    const unsigned char *answer = answer_of(of_entropies + n, 8 + written.memory_bytes);
    memcpy(memory, answer + 8, written.memory_bytes);
}

struct cache_policy unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_CACHE,
               .size = sizeof(struct cache_policy),
               .state_bytes = 8,
               .name = (const char *)written.shown,
               .doc = "a cache policy in Python; slow"},
    .plan = plan,
    .reads_load = 1,
};

AT_LOAD describe(void) {
    unmask_policy.memory_bytes = written.memory_bytes;
    unmask_policy.reads_entropy = (uint32_t)written.reads_entropy;
    unmask_policy.put_off = written.puts_off ? put_off : NULL;
    unmask_policy.evict = written.evicts ? evict : NULL;
    unmask_policy.learn = written.learns ? learn : NULL;
}

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
               .name = (const char *)written.shown,
               .doc = "a router in Python; slow"},
    .route = route,
    .move = move,
};

#else

/* What is answered, or asked in return; ENOUGH is between them. */
enum {
    ANSWER_BATCH = 0,
    ANSWER_ESTIMATE = 1,
    ANSWER_JOULES = 3,
    ANSWER_FORESEE = 4,
    ANSWER_SPANS = 5,
    ANSWER_REST = 6,
};

/* "<3q2IiI" and a request. */
struct told_happening {
    int64_t now_ns, ns, query_tokens;
    uint32_t kind, steps;
    int32_t committed_tokens;
    uint32_t state; /* of the request */
    struct told request;
};

/* "<12I9qd", the requests that run, those that wait, and what happened. */
struct question {
    uint32_t decides; /* 0: of no decision, only what happened */
    uint32_t n_happened, max_batched_tokens, max_requests, n_running, n_waiting, n_slots;
    uint32_t replica, n_replicas, threshold_millionths, capacity, unused;
    int64_t now_ns, next_arrival_ns, running_tokens, running_growth_bytes, kv_free_bytes;
    int64_t kv_total_bytes, host_free_bytes, host_total_bytes, seed;
    double host_bandwidth;
    struct told requests[];
};

/* "<12Iq". Of ANSWER_FORESEE and ANSWER_REST n_admitted is a slot and loops how many passes at
 * most; of ANSWER_SPANS the n words are spans. */
struct answer {
    uint32_t kind, all_running, n, n_admitted, hold, n_rejected, says, has_chunks;
    uint32_t n_preempted, n_idle, loops, continues;
    int64_t wake_ns;
    uint32_t slots[]; /* n; then, of those that are rejected, slots and reasons; of those that are
                         preempted, slots and swaps; those that are idle; if it says words, n each
                         of widths, thresholds and puts_off; if there are chunks, n of them */
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

static void ask(const struct schedule_view *view, uint32_t capacity) {
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
    question->threshold_millionths = view->threshold_millionths;
    question->capacity = capacity;
    question->running_growth_bytes = view->running_growth_bytes;
    question->host_free_bytes = view->host_free_bytes;
    question->host_total_bytes = view->host_total_bytes;
    question->host_bandwidth = view->host_bandwidth;
    question->seed = (int64_t)view->seed;
    question->now_ns = view->now_ns;
    question->next_arrival_ns = view->next_arrival_ns;
    question->running_tokens = view->running_tokens;
    question->kv_free_bytes = view->kv_free_bytes;
    question->kv_total_bytes = view->kv_total_bytes;
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
    const size_t each = (answer->says ? 4 : 1) + (answer->has_chunks ? 1 : 0);
    const size_t words = each * answer->n + (size_t)2 * answer->n_rejected +
                         (size_t)2 * answer->n_preempted + answer->n_idle;
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

/* Where in the words of an answer each list begins. */
struct lists {
    uint32_t *rejected, *reasons, *preempted, *swaps, *idle, *widths, *thresholds, *puts_off,
        *chunks;
};

static struct lists lists_of(struct answer *answer) {
    struct lists l = {.rejected = answer->slots + answer->n};
    l.reasons = l.rejected + answer->n_rejected;
    l.preempted = l.reasons + answer->n_rejected;
    l.swaps = l.preempted + answer->n_preempted;
    l.idle = l.swaps + answer->n_preempted;
    l.widths = l.idle + answer->n_idle;
    l.thresholds = l.widths + (answer->says ? answer->n : 0);
    l.puts_off = l.thresholds + (answer->says ? answer->n : 0);
    l.chunks = l.puts_off + (answer->says ? answer->n : 0);
    return l;
}

static void take(const struct answer *answer, struct batch *batch) {
    batch->all_running = answer->all_running;
    batch->n = answer->n;
    batch->n_admitted = answer->n_admitted;
    batch->hold = answer->hold;
    batch->says = answer->says;
    batch->n_rejected = answer->n_rejected;
    batch->n_preempted = answer->n_preempted;
    batch->n_idle = answer->n_idle;
    batch->loops = answer->loops;
    batch->continues = answer->continues;
    batch->wake_ns = answer->wake_ns;
}

/* The batch that is asked about lies where the answer does. */
static struct batch batch_of(struct answer *answer) {
    const struct lists l = lists_of(answer);
    struct batch batch = {.capacity = answer->n,
                          .selected = answer->slots,
                          .rejected = l.rejected,
                          .reasons = l.reasons,
                          .preempted = l.preempted,
                          .swaps = l.swaps,
                          .idle = l.idle,
                          .width_tokens = l.widths,
                          .threshold_millionths = l.thresholds,
                          .puts_off = l.puts_off,
                          .chunk_tokens = answer->has_chunks ? l.chunks : NULL};
    take(answer, &batch);
    return batch;
}

static void tell_joules(double joules) {
    int64_t bits;
    memcpy(&bits, &joules, sizeof bits);
    tell(bits);
}

/* An outlook, "<4I2Q", and the first passes of it, "<17I" each. */
static void tell_outlook(const struct schedule_view *view, uint32_t slot, uint32_t capacity) {
    struct outlook outlook;
    char *at = asked(sizeof outlook + capacity * sizeof(struct pass_ahead));
    view->foresee(view->estimator, slot, (struct pass_ahead *)(void *)(at + sizeof outlook),
                  capacity, &outlook);
    memcpy(at, &outlook, sizeof outlook);
    const uint32_t n = outlook.n_passes < capacity ? outlook.n_passes : capacity;
    tell((int64_t)(sizeof outlook + n * sizeof(struct pass_ahead)));
}

_Static_assert(sizeof(struct pass_ahead) == 17 * sizeof(uint32_t),
               "_PASS of _view.py has its fields");

static void tell_rest(const struct schedule_view *view, uint32_t slot, uint32_t capacity) {
    struct pass_ahead *passes = asked(capacity * sizeof *passes);
    tell(view_rest_ns(view, slot, passes, capacity));
}

static void tell_spans(const struct schedule_view *view, const uint32_t *words, uint32_t n) {
    const struct span **spans = malloc((n > 0 ? n : 1) * sizeof *spans);
    if (spans == NULL) {
        lost();
    }
    for (uint32_t i = 0; i < n; i++) {
        spans[i] =
            (const struct span *)(const void *)(words + i * (sizeof **spans / sizeof *words));
    }
    const int64_t ns = view->estimate_spans_ns(view->estimator, spans, n);
    free(spans);
    tell(ns);
}

/* Whether it was a question, which is answered. */
static bool is_told(const struct schedule_view *view, struct answer *answer) {
    const struct batch batch = answer->kind == ANSWER_ESTIMATE || answer->kind == ANSWER_JOULES
                                   ? batch_of(answer)
                                   : (struct batch){0};
    switch (answer->kind) {
    case ANSWER_ESTIMATE:
        tell(view->estimate_ns(view->estimator, &batch));
        return true;
    case ANSWER_JOULES:
        tell_joules(view->estimate_joules(view->estimator, &batch));
        return true;
    case ANSWER_FORESEE:
        tell_outlook(view, answer->n_admitted, answer->loops);
        return true;
    case ANSWER_REST:
        tell_rest(view, answer->n_admitted, answer->loops);
        return true;
    case ANSWER_SPANS:
        tell_spans(view, answer->slots, answer->n / (uint32_t)(sizeof(struct span) / 4));
        return true;
    default:
        return false;
    }
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    ask(view, batch->capacity);
    struct answer *answer = heard();
    while (is_told(view, answer)) {
        answer = heard();
    }
    if (answer->n > batch->capacity || answer->n_rejected > batch->capacity ||
        answer->n_preempted > batch->capacity || answer->n_idle > batch->capacity) {
        lost();
    }
    const struct lists l = lists_of(answer);
    const size_t bytes = answer->n * sizeof *answer->slots;
    memcpy(batch->selected, answer->slots, bytes);
    memcpy(batch->rejected, l.rejected, answer->n_rejected * sizeof *l.rejected);
    memcpy(batch->reasons, l.reasons, answer->n_rejected * sizeof *l.reasons);
    memcpy(batch->preempted, l.preempted, answer->n_preempted * sizeof *l.preempted);
    memcpy(batch->swaps, l.swaps, answer->n_preempted * sizeof *l.swaps);
    memcpy(batch->idle, l.idle, answer->n_idle * sizeof *l.idle);
    if (answer->says) {
        memcpy(batch->width_tokens, l.widths, bytes);
        memcpy(batch->threshold_millionths, l.thresholds, bytes);
        memcpy(batch->puts_off, l.puts_off, bytes);
    }
    if (answer->has_chunks) {
        memcpy(batch->chunk_tokens, l.chunks, bytes);
    }
    take(answer, batch);
}

struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .state_bytes = 8,
               .name = (const char *)written.shown,
               .doc = "a scheduler in Python; slow"},
    .schedule = schedule,
    .happened = happened,
    .reject_reasons = reasons,
};

AT_LOAD describe(void) {
    unmask_policy.grows = (uint32_t)written.grows;
    unmask_policy.changes_passes = (uint32_t)written.changes_passes;
}

#endif
