#include "sim/policy/check/twice.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/policy/cache/blocks.h"
#include "sim/policy/plugin/registry.h"

/* What was wrapped. */
static struct twice *now;
static union any_policy inner;

/* Where the trial's question is answered, so that asking twice counts once: memory that grows. */
struct room {
    void *at;
    size_t bytes;
};
enum {
    ROOM_STATE,
    ROOM_OWN,
    ROOM_SELECTED,
    ROOM_CHUNKS,
    ROOM_WIDTHS,
    ROOM_THRESHOLDS,
    ROOM_PREEMPTED,
    ROOM_IDLE,
    ROOM_PUTS_OFF,
    ROOM_RUN_TOKENS,
    ROOM_REJECTED,
    ROOM_REASONS,
    ROOM_SWAPS,
    ROOM_FLAGS,
    ROOM_RUNNING,
    ROOM_WAITING,
    ROOM_PASSED,
    N_ROOMS
};
static struct room rooms[N_ROOMS];

/* Of no bytes both pointers may be NULL. */
static void *copy_bytes(void *to, const void *from, size_t bytes) {
    return bytes > 0 ? memcpy(to, from, bytes) : to;
}

static bool same_bytes(const void *a, const void *b, size_t bytes) {
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static void *room(int which, size_t bytes) {
    struct room *r = &rooms[which];
    if (r->bytes < bytes) {
        free(r->at);
        r->at = mem_zeroed(bytes, 1);
        r->bytes = bytes;
    }
    return r->at;
}

static void *state_copy(const void *state) {
    return copy_bytes(room(ROOM_STATE, inner.policy.state_bytes + 1), state,
                      inner.policy.state_bytes);
}

/* Nothing is asked any more once an answer was not the same. */
static bool enter(const char *callback) {
    now->n_calls++;
    snprintf(now->callback, sizeof now->callback, "%s", callback);
    return now->err.kind == ERR_NONE;
}

static void leave(void) {
    now->callback[0] = '\0';
}

static bool same(bool kept, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool same(bool kept, const char *format, ...) {
    if (!kept) {
        char text[512];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        err_world(&now->err, "%s %s %s", policy_kind_names[inner.policy.kind], inner.policy.name,
                  text);
        now->stop = 1;
    }
    return kept;
}

/* The request after `steps` steps of the same block that committed `commits` positions. */
static struct request later(const struct request *request, uint32_t steps, uint32_t commits) {
    struct request copy;
    memcpy(&copy, request, sizeof copy);
    copy.steps += steps;
    window_advance(&copy, steps, 0);
    window_commit(&copy, commits);
    return copy;
}

/* ---- schedulers ---- */

/* A copy of the scheduler's memory of those that run and wait. */
static void *own_copy(const struct schedule_view *view) {
    const size_t each = inner.scheduler.request_bytes;
    if (view->own == NULL) {
        return NULL;
    }
    char *copy = room(ROOM_OWN, view->n_slots * each);
    if (inner.scheduler.happened != NULL) { /* it was told of some that the view leaves out */
        return copy_bytes(copy, view->own, view->n_slots * each);
    }
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        uint32_t slot = i < view->n_running ? view->running[i] : view->waiting[i - view->n_running];
        memcpy(copy + slot * each, (const char *)view->own + slot * each, each);
    }
    return copy;
}

/* A copy of one of the view's lists, followed by entries that are no slots. */
static const uint32_t *list_copy(int which, const uint32_t *slots, uint32_t n, uint32_t n_slots) {
    uint32_t *copy = room(which, (size_t)(n_slots + 1) * sizeof *slots);
    copy_bytes(copy, slots, n * sizeof *slots);
    memset(copy + n, 0xFF, (n_slots + 1 - n) * sizeof *slots);
    return copy;
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    enter("schedule");
    inner.scheduler.schedule(state, view, batch);
    leave();
}

static bool same_list(const char *name, const uint32_t *first, const uint32_t *second, uint32_t n) {
    uint32_t i = 0;
    while (i < n && first[i] == second[i]) {
        i++;
    }
    return i == n ||
           same(false, "decides differently when asked the same again: %s[%u] is %u, then %u", name,
                i, first[i], second[i]);
}

static bool same_decision(const struct batch *first, const struct batch *second) {
    const uint32_t most = second->capacity;
    const struct {
        const char *name;
        int64_t first, second;
    } numbers[] = {{"n", first->n, second->n},
                   {"n_admitted", first->n_admitted, second->n_admitted},
                   {"all_running", first->all_running, second->all_running},
                   {"hold", first->hold, second->hold},
                   {"wake_ns", first->wake_ns, second->wake_ns},
                   {"n_preempted", first->n_preempted, second->n_preempted},
                   {"n_idle", first->n_idle, second->n_idle},
                   {"n_rejected", first->n_rejected, second->n_rejected},
                   {"says", first->says, second->says},
                   {"surest", first->surest, second->surest},
                   {"loops", first->loops, second->loops},
                   {"continues", first->continues, second->continues}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!same(numbers[i].first == numbers[i].second,
                  "decides differently when asked the same again: %s is %lld, then %lld",
                  numbers[i].name, (long long)numbers[i].first, (long long)numbers[i].second)) {
            return false;
        }
    }
    const uint32_t n = second->n < most ? second->n : most;
    const uint32_t n_rejected = second->n_rejected < most ? second->n_rejected : most;
    return same_list("selected", first->selected, second->selected, n) &&
           same_list("chunk_tokens", first->chunk_tokens, second->chunk_tokens, n) &&
           (second->says == 0 ||
            (same_list("width_tokens", first->width_tokens, second->width_tokens, n) &&
             same_list("puts_off", first->puts_off, second->puts_off, n) &&
             same_list("run_tokens", first->run_tokens, second->run_tokens, n) &&
             same_list("threshold_millionths", first->threshold_millionths,
                       second->threshold_millionths, n))) &&
           same_list("preempted", first->preempted, second->preempted,
                     second->n_preempted < most ? second->n_preempted : most) &&
           same_list("swaps", first->swaps, second->swaps,
                     second->n_preempted < most ? second->n_preempted : most) &&
           same_list("idle", first->idle, second->idle,
                     second->n_idle < most ? second->n_idle : most) &&
           same_list("rejected", first->rejected, second->rejected, n_rejected) &&
           same_list("reasons", first->reasons, second->reasons, n_rejected);
}

/* ---- who is passed over ---- */

/* A request that began and that others overtook: how often in a row, and since when. */
struct passed {
    uint64_t id;
    int64_t since_ns;
    uint32_t n;
};
enum { PASSED_STEPS = 500 };
static const int64_t passed_ns = INT64_C(5000) * 1000000000;

static void note_part(struct passed *passed, const struct request *request, int64_t now_ns) {
    *passed = (struct passed){request->id, now_ns, 0};
}

/* Of one that takes no part in a step of others. */
static void note_passed(struct passed *passed, const struct request *request, int64_t now_ns) {
    if (passed->id != request->id || passed->since_ns > now_ns) {
        note_part(passed, request, now_ns);
    }
    passed->n++;
    (void)same(passed->n < PASSED_STEPS || now_ns - passed->since_ns < passed_ns,
               "passes over request %llu, which it admitted, in %u steps of others and %.0f s: let "
               "what has waited longest take part in the end",
               (unsigned long long)request->id, passed->n,
               (double)(now_ns - passed->since_ns) / 1e9);
}

static bool lists(const uint32_t *list, uint32_t n, uint32_t slot) {
    uint32_t i = 0;
    while (i < n && list[i] != slot) {
        i++;
    }
    return i < n;
}

static void watch_passed(const struct schedule_view *view, const struct batch *batch) {
    struct passed *all = room(ROOM_PASSED, view->n_slots * sizeof *all);
    if (now->n_decisions == 0) {
        memset(all, 0, view->n_slots * sizeof *all);
    }
    const uint32_t n = batch->n < batch->capacity ? batch->n : batch->capacity;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting && n > 0; i++) {
        const bool runs = i < view->n_running;
        const uint32_t slot = runs ? view->running[i] : view->waiting[i - view->n_running];
        const struct request *request = &view->requests[slot];
        if ((runs && batch->all_running) || lists(batch->selected, n, slot) ||
            lists(batch->idle, batch->n_idle, slot)) {
            note_part(&all[slot], request, view->now_ns);
        } else if (request->admitted_ns >= 0 && now->err.kind == ERR_NONE) {
            note_passed(&all[slot], request, view->now_ns);
        }
    }
}

/* The first answer's lists are of its own, and nothing that it remembers counts. */
static void twice_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    const size_t bytes = batch->capacity * sizeof(uint32_t);
    struct batch trial = *batch;
    struct schedule_view shown = *view;
    shown.own = own_copy(view);
    shown.running = list_copy(ROOM_RUNNING, view->running, view->n_running, view->n_slots);
    shown.waiting = list_copy(ROOM_WAITING, view->waiting, view->n_waiting, view->n_slots);
    trial.selected = memset(room(ROOM_SELECTED, bytes), 0xA5, bytes);
    trial.chunk_tokens = memset(room(ROOM_CHUNKS, bytes), 0, bytes);
    trial.width_tokens = memset(room(ROOM_WIDTHS, bytes), 0, bytes);
    trial.threshold_millionths = memset(room(ROOM_THRESHOLDS, bytes), 0, bytes);
    trial.preempted = memset(room(ROOM_PREEMPTED, bytes), 0xA5, bytes);
    trial.idle = memset(room(ROOM_IDLE, bytes), 0xA5, bytes);
    trial.puts_off = memset(room(ROOM_PUTS_OFF, bytes), 0, bytes);
    trial.run_tokens = memset(room(ROOM_RUN_TOKENS, bytes), 0, bytes);
    trial.rejected = memset(room(ROOM_REJECTED, bytes), 0xA5, bytes);
    trial.reasons = memset(room(ROOM_REASONS, bytes), 0, bytes);
    trial.swaps = memset(room(ROOM_SWAPS, bytes), 0, bytes);
    if (now->stop) {
        return;
    }
    schedule(state_copy(state), &shown, &trial);
    (void)(same(same_bytes(shown.running, view->running, view->n_running * sizeof *view->running),
                "writes to the view's list running, which it may only read") &&
           same(same_bytes(shown.waiting, view->waiting, view->n_waiting * sizeof *view->waiting),
                "writes to the view's list waiting, which it may only read"));
    schedule(state, view, batch);
    if (same_decision(&trial, batch) && now->lasts_hours) {
        watch_passed(view, batch);
    }
    batch->says = now->drops_words ? 0 : batch->says;
    now->n_preempted += batch->n_preempted;
    for (uint32_t i = 0; i < batch->n_preempted && i < batch->capacity; i++) {
        now->n_swapped += batch->swaps[i] > 0;
    }
    now->n_idle += batch->n_idle;
    now->n_rejected += batch->n_rejected;
    for (uint32_t i = 0; i < batch->n && i < batch->capacity; i++) {
        now->n_chunks += batch->chunk_tokens[i] > 0;
    }
    now->n_decisions += batch->n > 0 || (batch->all_running && view->n_running > 0);
    now->stop = now->stop || now->n_decisions >= now->most_decisions;
}

/* What it is told it remembers, so that it is told once. */
static void twice_happened(void *state, const struct schedule_view *view,
                           const struct happening *happenings, uint32_t n) {
    if (!now->stop) {
        enter("happened");
        inner.scheduler.happened(state, view, happenings, n);
        leave();
    }
}

/* ---- cache policies ---- */

/* The fields of row_sets, each of which is a uint32_t. */
static const char *const field_names[] = {
    "kind",           "chooser",       "settles",      "evict_layer",
    "lead_layers",    "recent",        "run.first",    "run.end",
    "lead.first",     "lead.end",      "skips",        "head.first",
    "head.end",       "keep[0].first", "keep[0].end",  "keep[1].first",
    "keep[1].end",    "n_chosen",      "held",         "attends",
    "pattern.tokens", "pattern.rest",  "pattern.keep", "pattern.keep_rest",
    "pattern.scores"};
enum { N_FIELDS = sizeof(struct row_sets) / sizeof(uint32_t) };
_Static_assert(N_FIELDS == sizeof field_names / sizeof field_names[0], "every field has a name");

static uint32_t field_of(const struct row_sets *rows, uint32_t field) {
    uint32_t value;
    memcpy(&value, (const char *)rows + field * sizeof value, sizeof value);
    return value;
}

/* The first field in which two answers differ, or N_FIELDS. */
static uint32_t difference(const struct row_sets *a, const struct row_sets *b) {
    uint32_t field = 0;
    while (field < N_FIELDS && field_of(a, field) == field_of(b, field)) {
        field++;
    }
    return field;
}

/* The answer, with `fill` in every byte that the policy leaves alone, and in those of the answer
 * before it, which it may not read. */
static uint32_t plan(const void *state, const void *memory, const struct request *request, int fill,
                     struct row_sets *rows) {
    struct request asked;
    memcpy(&asked, request, sizeof asked);
    memset(&asked.rows, fill, sizeof asked.rows);
    memset(rows, fill, sizeof *rows);
    enter("plan");
    uint32_t holds = inner.cache.plan(state, memory, &asked, rows);
    leave();
    return holds;
}

/* At the second, the middle and the last step that the answer is said to hold for, both with one
 * commit a step and with all but one position committed. */
static bool holds_as_said(const void *state, const void *memory, const struct request *request,
                          const struct row_sets *rows, uint32_t holds) {
    uint32_t masked = window_masked(request);
    uint32_t steps = holds < masked ? holds : masked;
    struct request asked = *request;
    rows_span(rows, request, &asked.span);
    if (steps < 2 || !blocks_decide(&asked)) {
        return true;
    }
    const uint32_t after[] = {1, steps / 2, steps - 1};
    for (int i = 0; i < 6; i++) {
        uint32_t step = after[i / 2], commits = i % 2 == 0 ? step : masked - 1;
        struct request moved = later(request, step, commits);
        struct row_sets then;
        (void)plan(state, memory, &moved, 0, &then);
        uint32_t field = difference(rows, &then), shown = field < N_FIELDS ? field : 0;
        if (!same(field == N_FIELDS,
                  "says that its row sets hold for %u steps, but after %u steps and %u commits "
                  "rows.%s is %u instead of %u",
                  holds, step, commits, field_names[shown], field_of(&then, shown),
                  field_of(rows, shown))) {
            return false;
        }
    }
    return true;
}

static uint32_t twice_plan(const void *state, const void *memory, const struct request *request,
                           struct row_sets *rows) {
    struct row_sets first, second;
    if (now->stop) {
        *rows = (struct row_sets){.run = {0, request->canvas_tokens}};
        rows->head = rows->run;
        return 1;
    }
    uint32_t holds = plan(state, memory, request, 0xFF, &first);
    uint32_t again = plan(state, memory, request, 0, &second);
    uint32_t field = difference(&first, &second);
    if (field < N_FIELDS) {
        uint32_t before = field_of(&first, field), after = field_of(&second, field);
        (void)(same(before != UINT32_MAX || after != 0, "leaves rows.%s unset",
                    field_names[field]) &&
               same(false, "plans differently when asked the same again: rows.%s %u, then %u",
                    field_names[field], before, after));
    } else if (same(holds == again,
                    "plans differently when asked the same again: %u steps, then %u", holds,
                    again)) {
        struct err fault = {0}; /* the loop tells it */
        (void)(rows_check(&first, request, &fault) == 0 &&
               holds_as_said(state, memory, request, &first, holds));
    }
    *rows = second;
    return holds;
}

static uint32_t put_off(const void *state, const void *memory, const struct request *request,
                        int fill, struct row_sets *rows) {
    memset(rows, fill, sizeof *rows);
    enter("put_off");
    uint32_t bound = inner.cache.put_off(state, memory, request, rows);
    leave();
    return bound;
}

/* What it answers where it lets the refresh wait; and that plan answers the refresh once it has. */
static uint32_t twice_put_off(const void *state, const void *memory, const struct request *request,
                              struct row_sets *rows) {
    struct row_sets first, then;
    struct request waited = later(request, 1, 0);
    if (now->stop) {
        return 0;
    }
    waited.overdue_steps++;
    uint32_t bound = put_off(state, memory, request, 0xFF, &first);
    uint32_t again = put_off(state, memory, request, 0, rows);
    uint32_t field = difference(&first, rows), shown = field < N_FIELDS ? field : 0;
    if (!same(bound == again, "lets a refresh wait for %u steps, then %u when asked the same again",
              bound, again) ||
        bound == 0) {
        return 0;
    }
    if (same(field == N_FIELDS,
             "in put_off leaves rows.%s unset or answers differently when asked the same again",
             field_names[shown])) {
        struct span span;
        (void)plan(state, memory, &waited, 0, &then);
        rows_span(&then, &waited, &span);
        (void)same(span.phase == PHASE_REFRESH,
                   "lets a refresh wait in put_off, but plan answers none at the step after "
                   "(overdue_steps is %u)",
                   waited.overdue_steps);
    }
    return again;
}

static uint32_t twice_evict(const void *state, const void *memory, const struct eviction_view *view,
                            uint8_t *keep) {
    uint8_t *first = memset(room(ROOM_FLAGS, view->length), 0xA5, view->length);
    if (now->stop) {
        copy_bytes(keep, view->pending, view->length);
        return view->length;
    }
    memset(keep, 0x5A, view->length);
    enter("evict");
    uint32_t n = inner.cache.evict(state, memory, view, first);
    enter("evict");
    uint32_t again = inner.cache.evict(state, memory, view, keep);
    leave();
    now->n_evictions++;
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < view->length; i++) {
        if (!same(keep[i] <= 1, "leaves keep[%u] unset or sets it to %u, neither 0 nor 1", i,
                  keep[i])) {
            break;
        }
        n_kept += keep[i];
    }
    (void)(same(n == again && same_bytes(first, keep, view->length),
                "evicts differently when asked the same again: %u positions kept, then %u", n,
                again) &&
           same(now->err.kind != ERR_NONE || n == n_kept, "returns %u but keeps %u positions", n,
                n_kept));
    if (now->stop) {
        copy_bytes(keep, view->pending, view->length);
    }
    return again;
}

static void twice_learn(const void *state, void *memory, const struct request *request,
                        const struct learned *learned) {
    const size_t bytes = inner.cache.memory_bytes;
    void *first = copy_bytes(room(ROOM_OWN, bytes + 1), memory, bytes);
    enter("learn");
    inner.cache.learn(state, first, request, learned);
    enter("learn");
    inner.cache.learn(state, memory, request, learned);
    leave();
    (void)same(same_bytes(first, memory, bytes), "learns differently when told the same again");
}

/* ---- decoders ---- */

static uint32_t count(const void *state, const struct request *request, uint32_t fill,
                      uint32_t *repeat) {
    *repeat = fill;
    enter("count");
    uint32_t n = inner.decoder.count(state, request, repeat);
    leave();
    return n;
}

static uint32_t twice_count(const void *state, const struct request *request, uint32_t *repeat) {
    uint32_t again, masked = window_masked(request);
    if (now->stop) {
        *repeat = 1;
        return 1;
    }
    uint32_t n = count(state, request, 0, repeat);
    uint32_t n_again = count(state, request, UINT32_MAX, &again);
    if (!same(*repeat >= 1, "says that its count holds for 0 steps, or leaves repeat unset") ||
        !same(n == n_again && *repeat == again,
              "counts differently when asked the same again: %u for %u steps, then %u for %u", n,
              *repeat, n_again, again) ||
        n == 0 || n > masked) {
        return n; /* which the loop refuses */
    }
    /* While as many as that are masked. */
    uint32_t steps = *repeat < masked / n ? *repeat : masked / n;
    const uint32_t after[] = {1, steps / 2, steps - 1};
    for (int i = 0; steps >= 2 && i < 3; i++) {
        struct request moved = later(request, after[i], after[i] * n);
        uint32_t then = count(state, &moved, 0, &again);
        (void)same(then == n,
                   "says that its count of %u holds for %u steps, but after %u steps it is %u", n,
                   *repeat, after[i], then);
    }
    return n;
}

static uint32_t twice_choose(const void *state, const struct request *request,
                             const struct decode_seen *seen, uint8_t *commit) {
    uint8_t *first = memset(room(ROOM_FLAGS, seen->n), 0xA5, seen->n);
    uint32_t n = 0, again = 0, sum = 0;
    memset(commit, 0x5A, seen->n);
    if (!now->stop) {
        enter("choose");
        n = inner.decoder.choose(state, request, seen, first);
        enter("choose");
        again = inner.decoder.choose(state, request, seen, commit);
        leave();
    }
    for (uint32_t i = 0; i < seen->n && !now->stop; i++) {
        (void)same(commit[i] <= 1, "leaves commit[%u] unset or sets it to %u, neither 0 nor 1", i,
                   commit[i]);
        sum += commit[i];
    }
    (void)(now->stop ||
           (same(again == sum, "returns %u but sets %u flags", again, sum) &&
            same(sum >= 1 || inner.decoder.take_back != NULL, "commits %u of %u masked positions",
                 sum, seen->n) &&
            same(n == again && same_bytes(first, commit, seen->n),
                 "chooses differently when asked the same again: %u positions, then %u", n,
                 again)));
    if (now->stop) { /* the narrowest valid answer */
        memset(commit, 0, seen->n);
        commit[0] = 1;
        return 1;
    }
    return again;
}

static uint32_t twice_take_back(const void *state, const struct request *request,
                                const struct decode_kept *kept, uint8_t *back) {
    uint8_t *first = memset(room(ROOM_FLAGS, kept->n), 0, kept->n);
    uint32_t n = 0, again = 0, sum = 0;
    if (!now->stop) {
        enter("take_back");
        n = inner.decoder.take_back(state, request, kept, first);
        enter("take_back");
        again = inner.decoder.take_back(state, request, kept, back);
        leave();
    }
    for (uint32_t i = 0; i < kept->n && !now->stop; i++) {
        (void)same(back[i] <= 1, "sets again[%u] to %u, neither 0 nor 1", i, back[i]);
        sum += back[i];
    }
    (void)(now->stop ||
           (same(again == sum, "returns %u but sets %u flags", again, sum) &&
            same(n == again && same_bytes(first, back, kept->n),
                 "takes other positions back when asked the same again: %u, then %u", n, again)));
    if (now->stop) {
        memset(back, 0, kept->n);
        return 0;
    }
    return again;
}

static void rule(const void *state, const struct request *request, struct decode_rule *out) {
    memset(out, 0, sizeof *out);
    enter("rule");
    inner.decoder.rule(state, request, out);
    leave();
}

/* All numbers but threshold and key. */
static bool same_constants(const struct decode_rule *a, const struct decode_rule *b) {
    const float of_a[] = {a->slack,       a->low,  a->factor, a->bound,
                          a->temperature, a->edit, a->penalty};
    const float of_b[] = {b->slack,       b->low,  b->factor, b->bound,
                          b->temperature, b->edit, b->penalty};
    return a->kind == b->kind && a->rank == b->rank && a->post_passes == b->post_passes &&
           a->steps == b->steps && memcmp(of_a, of_b, sizeof of_a) == 0;
}

static void twice_rule(const void *state, const struct request *request, struct decode_rule *out) {
    const bool counts = inner.decoder.count != NULL;
    struct decode_rule again, then;
    struct request moved = later(request, 1, 0);
    struct err fault = {0};
    *out = (struct decode_rule){.kind = counts ? DECODE_COUNT : DECODE_THRESHOLD};
    if (now->stop) {
        return;
    }
    struct decode_rule named;
    rule(state, request, &named);
    rule(state, request, &again);
    rule(state, &moved, &then);
    if (same(decode_rule_check(&named, counts, inner.decoder.reads_statistics != 0, &fault) == 0,
             "%s", fault.text) &&
        same(same_constants(&named, &again) && named.threshold == again.threshold &&
                 named.key == again.key,
             "names another rule when asked the same again") &&
        same(same_constants(&named, &then),
             "changes more than threshold and key of its rule from step to step")) {
        *out = named;
    }
}

static bool is_within(float x, float least, float most) {
    return x >= least && x <= most;
}

static void twice_credit(const void *state, struct decode_credit *out) {
    struct decode_credit again;
    memset(out, 0, sizeof *out);
    memset(&again, 0, sizeof again);
    if (now->stop) {
        return;
    }
    enter("credit");
    inner.decoder.credit(state, out);
    enter("credit");
    inner.decoder.credit(state, &again);
    leave();
    if (!same(is_within(out->alpha, 0, 1e9f) && is_within(out->beta, 0, 1) &&
                  is_within(out->gamma, 0, 1e9f),
              "gives credit with numbers out of range") ||
        !same(memcmp(out, &again, sizeof again) == 0,
              "gives other credit when asked the same again")) {
        memset(out, 0, sizeof *out);
    }
}

/* ---- routers ---- */

static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    *until_ns = INT64_MAX;
    enter("route");
    const uint32_t chosen = inner.router.route(state, request, view, until_ns);
    leave();
    return chosen;
}

static uint32_t twice_route(void *state, const struct request *request,
                            const struct route_view *view, int64_t *until_ns) {
    int64_t first_ns, second_ns;
    struct route_view alone = *view;
    alone.n = 1;
    if (now->stop) {
        return 0;
    }
    uint32_t only = route(state_copy(state), request, &alone, &first_ns);
    uint32_t first = route(state_copy(state), request, view, &first_ns);
    uint32_t second = route(state, request, view, &second_ns);
    now->n_held += second == ROUTE_HOLD;
    *until_ns = second_ns;
    return same(only == 0 || only == ROUTE_HOLD, "chooses replica %u of 1, counted from 0", only) &&
                   same(second < view->n || second == ROUTE_HOLD,
                        "chooses replica %u of %u, counted from 0", second, view->n) &&
                   same(first == second && first_ns == second_ns,
                        "chooses replica %u, then %u when asked the same again", first, second)
               ? second
               : 0;
}

static uint32_t twice_move(void *state, const struct route_view *view, struct route_move *moves,
                           uint32_t capacity) {
    const size_t bytes = capacity * sizeof *moves;
    struct route_move *first = memset(room(ROOM_FLAGS, bytes), 0xA5, bytes);
    if (now->stop) {
        return 0;
    }
    enter("move");
    const uint32_t n = inner.router.move(state_copy(state), view, first, capacity);
    enter("move");
    const uint32_t again = inner.router.move(state, view, moves, capacity);
    leave();
    now->n_moved += again;
    return same(n == again && n <= capacity && same_bytes(first, moves, n * sizeof *moves),
                "moves %u requests, then %u, or others, when asked the same again", n, again)
               ? n
               : 0;
}

#define TWICE(of, callback) ((of).callback = (of).callback != NULL ? twice_##callback : NULL)

void twice_wrap(struct twice *twice, union any_policy *policy) {
    now = twice;
    memcpy(&inner, policy, policy->policy.size);
    switch ((enum policy_kind)policy->policy.kind) {
    case POLICY_SCHEDULER:
        TWICE(policy->scheduler, schedule);
        TWICE(policy->scheduler, happened);
        break;
    case POLICY_CACHE:
        TWICE(policy->cache, plan);
        TWICE(policy->cache, put_off);
        TWICE(policy->cache, evict);
        TWICE(policy->cache, learn);
        break;
    case POLICY_DECODER:
        TWICE(policy->decoder, count);
        TWICE(policy->decoder, choose);
        TWICE(policy->decoder, take_back);
        TWICE(policy->decoder, rule);
        TWICE(policy->decoder, credit);
        break;
    case POLICY_ROUTER:
        TWICE(policy->router, route);
        TWICE(policy->router, move);
        break;
    }
}
