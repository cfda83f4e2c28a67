/* The ward of schedulers: their view is memory that can only be read, and their lists end where
 * nothing is mapped. */
#include "sim/policy/plugin/ward_parts.h"

#include <string.h>
#include <sys/mman.h>

enum { N_LISTS = 11 };

static uint32_t **list_of(struct batch *batch, int list) {
    uint32_t **const lists[N_LISTS] = {
        &batch->selected, &batch->chunk_tokens, &batch->preempted,
        &batch->idle,     &batch->width_tokens, &batch->threshold_millionths,
        &batch->puts_off, &batch->rejected,     &batch->reasons,
        &batch->swaps,    &batch->run_tokens};
    return lists[list];
}

/* The plug-in's own lists, which end where nothing is mapped. */
static void give_lists(const struct ward *ward, struct batch *batch) {
    size_t page = ward_pages(1), bytes = batch->capacity * sizeof(uint32_t);
    size_t piece = ward_pages(bytes) + page;
    if (ward_room.lists == NULL || ward_room.capacity != batch->capacity ||
        ward_room.filler != ward) {
        if (ward_room.lists != NULL) {
            size_t before = ward_pages(ward_room.capacity * sizeof(uint32_t)) + page;
            munmap(ward_room.lists, N_LISTS * before + page);
        }
        ward_room.lists = ward_map_fenced(bytes, N_LISTS);
        ward_room.capacity = batch->capacity;
        ward_room.filler = ward;
    }
    for (int list = 0; list < N_LISTS; list++) {
        *list_of(batch, list) = (uint32_t *)(ward_room.lists + (size_t)(list + 1) * piece - bytes);
    }
}

/* The estimator that a plug-in sees looks at the batch before the loop's does. */
struct estimated {
    const struct schedule_view *view;
    uint32_t capacity;
};

/* A question that has no answer: 0, and in a trial the end of it. */
static bool fits(const char *what, uint64_t found, uint64_t end) {
    if (found >= end && call_is_trial()) {
        call_broke(call_under_way(), "schedule", "it asks about %s %llu of %llu", what,
                   (unsigned long long)found, (unsigned long long)end);
    }
    return found < end;
}

static bool are_slots(const uint32_t *slots, uint32_t n, uint32_t capacity) {
    bool all = true;
    for (uint32_t i = 0; i < n; i++) {
        all = all && fits("slot", slots[i], capacity);
    }
    return all;
}

/* Of a slot that was never used every number is 0, and nothing can be planned for it. */
static bool holds_request(const struct request *request) {
    return request->block_tokens > 0 &&
           (request->state == REQUEST_QUEUED || request->state == REQUEST_RUNNING ||
            request->state == REQUEST_PREEMPTED);
}

static bool can_be_estimated(const struct estimated *estimated, const struct batch *batch) {
    uint64_t n =
        (uint64_t)batch->n + batch->n_idle + (batch->all_running ? estimated->view->n_running : 0);
    return fits("a batch of requests:", n, (uint64_t)estimated->capacity + 1) &&
           are_slots(batch->selected, batch->n, estimated->capacity) &&
           are_slots(batch->idle, batch->n_idle, estimated->capacity);
}

static int64_t warded_estimate(const void *opaque, const struct batch *batch) {
    const struct estimated *estimated = opaque;
    return can_be_estimated(estimated, batch)
               ? estimated->view->estimate_ns(estimated->view->estimator, batch)
               : 0;
}

static double warded_joules(const void *opaque, const struct batch *batch) {
    const struct estimated *estimated = opaque;
    return can_be_estimated(estimated, batch)
               ? estimated->view->estimate_joules(estimated->view->estimator, batch)
               : 0;
}

static void warded_foresee(const void *opaque, uint32_t slot, struct pass_ahead *passes,
                           uint32_t capacity, struct outlook *out) {
    const struct estimated *estimated = opaque;
    *out = (struct outlook){.to_refresh = UINT32_MAX};
    if (!fits("slot", slot, estimated->capacity) ||
        !fits("passes for which it has no room:", passes != NULL ? 0 : capacity, 1)) {
        return;
    }
    if (holds_request(&estimated->view->requests[slot])) {
        estimated->view->foresee(estimated->view->estimator, slot, passes, capacity, out);
    } else if (call_is_trial()) {
        call_broke(call_under_way(), "schedule",
                   "it asks for the passes of slot %u, which neither runs nor waits,", slot);
    }
}

static int64_t warded_spans(const void *opaque, const struct span *const *spans, uint32_t n) {
    const struct estimated *estimated = opaque;
    bool can_be = fits("a step of spans:", n, (uint64_t)estimated->capacity + 1);
    for (uint32_t i = 0; can_be && i < n; i++) {
        can_be = fits("a span in phase", spans[i]->phase, PHASE_COUNT);
    }
    return can_be ? estimated->view->estimate_spans_ns(estimated->view->estimator, spans, n) : 0;
}

static uint32_t warded_look(const void *opaque, uint32_t slot, struct masked_seen *out,
                            uint32_t capacity) {
    const struct estimated *estimated = opaque;
    return fits("slot", slot, estimated->capacity) &&
                   fits("positions for which it has no room:", out != NULL ? 0 : capacity, 1) &&
                   holds_request(&estimated->view->requests[slot])
               ? estimated->view->look(estimated->view->estimator, slot, out, capacity)
               : 0;
}

/* What is said of each listed request, in the order of `selected`: nothing is left for the next
 * call, and in a trial nothing is said without a request. */
static void clear_list(const struct watched_call *call, uint32_t n, uint32_t capacity,
                       const char *name, uint32_t *list) {
    uint32_t any = 0;
    if (call_is_trial()) {
        for (uint32_t i = n; i < capacity; i++) {
            any |= list[i];
        }
    }
    for (uint32_t i = n; any != 0 && i < capacity; i++) {
        if (list[i] != 0) {
            call_broke(call, "schedule", "it sets %s[%u] but lists only %u requests,", name, i, n);
        }
    }
    memset(list, 0, (n < capacity ? n : capacity) * sizeof *list);
}

static void take_list(uint32_t *to, const uint32_t *from, uint32_t n, uint32_t capacity) {
    memcpy(to, from, (n < capacity ? n : capacity) * sizeof *to);
}

/* What a plug-in sees, whose questions are looked at first. */
static struct schedule_view shown_view(const struct schedule_view *view,
                                       const struct estimated *estimated) {
    struct schedule_view shown = *view;
    shown.estimate_ns = warded_estimate;
    shown.estimate_joules = warded_joules;
    shown.foresee = warded_foresee;
    shown.estimate_spans_ns = warded_spans;
    shown.look = warded_look;
    shown.estimator = estimated;
    return shown;
}

static void add_places(struct watched_call *call, const struct call_place *places, size_t n) {
    ASSERT(n <= CALL_MOST_PLACES - call->n_places);
    memcpy(call->places + call->n_places, places, n * sizeof *places);
    call->n_places += (unsigned)n;
}

/* What it would have touched where it crashes. */
static void name_view(struct watched_call *call, const struct schedule_view *view) {
    const struct call_place places[] = {
        {view->requests, view->n_slots * sizeof *view->requests,
         "wrote to the requests of the view, which it may only read,"},
        {view->running, view->n_running * sizeof *view->running,
         "wrote to the view's list running, which it may only read,"},
        {view->waiting, view->n_waiting * sizeof *view->waiting,
         "wrote to the view's list waiting, which it may only read,"}};
    add_places(call, places, sizeof places / sizeof places[0]);
}

static void name_lists(struct watched_call *call, const struct batch *lists) {
    const size_t page = ward_pages(1), end = lists->capacity;
    const struct call_place places[] = {
        {lists->selected + end, page, "reads or writes beyond the capacity of selected"},
        {lists->chunk_tokens + end, page, "reads or writes beyond the capacity of chunk_tokens"},
        {lists->preempted + end, page, "reads or writes beyond the capacity of preempted"},
        {lists->idle + end, page, "reads or writes beyond the capacity of idle"},
        {lists->width_tokens + end, page, "reads or writes beyond the capacity of width_tokens"},
        {lists->threshold_millionths + end, page,
         "reads or writes beyond the capacity of threshold_millionths"},
        {lists->puts_off + end, page, "reads or writes beyond the capacity of puts_off"},
        {lists->run_tokens + end, page, "reads or writes beyond the capacity of run_tokens"},
        {lists->rejected + end, page, "reads or writes beyond the capacity of rejected"},
        {lists->reasons + end, page, "reads or writes beyond the capacity of reasons"},
        {lists->swaps + end, page, "reads or writes beyond the capacity of swaps"}};
    add_places(call, places, sizeof places / sizeof places[0]);
}

/* As much as can be lent at once. */
static void tell(void *state, const struct schedule_view *view, const struct happening *happenings,
                 uint32_t n) {
    struct lending l;
    ward_open(&l, state, "happened");
    const struct estimated estimated = {view, view->n_slots};
    const struct schedule_view shown = shown_view(view, &estimated);
    const struct schedule_view *lent = ward_lend(&l, &shown, sizeof shown, "the view");
    const struct happening *told =
        ward_lend(&l, happenings, n * sizeof *happenings, "what happened");
    struct watched_call *call = ward_enter(&l);
    name_view(call, view);
    ((const struct scheduler *)l.called)->happened(l.state, lent, told, n);
    ward_leave(&l, call);
}

void warded_happened(void *state, const struct schedule_view *view,
                     const struct happening *happenings, uint32_t n) {
    enum { AT_ONCE = 16384 };
    for (uint32_t i = 0; i < n; i += AT_ONCE) {
        tell(state, view, happenings + i, n - i < AT_ONCE ? n - i : AT_ONCE);
    }
}

/* Copies of the requests that run or wait, at their places. A scheduler that was told of some that
 * the view leaves out, where a system decides ahead, sees those as well. */
static const struct request *lend_requests(struct lending *l, const struct schedule_view *view) {
    struct request *copies = (struct request *)(void *)l->next;
    l->next += ward_pages(view->n_slots * sizeof *copies);
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        uint32_t slot = i < view->n_running ? view->running[i] : view->waiting[i - view->n_running];
        memcpy(&copies[slot], &view->requests[slot], sizeof *copies);
    }
    const bool is_told = ((const struct scheduler *)l->called)->happened != NULL;
    for (uint32_t slot = 0; is_told && slot < view->n_slots; slot++) {
        if (view->requests[slot].state == REQUEST_QUEUED) {
            memcpy(&copies[slot], &view->requests[slot], sizeof *copies);
        }
    }
    return copies;
}

static void check_requests(const struct watched_call *call, const struct schedule_view *view,
                           const struct request *copies) {
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        uint32_t slot = i < view->n_running ? view->running[i] : view->waiting[i - view->n_running];
        if (memcmp(&copies[slot], &view->requests[slot], sizeof *copies) != 0) {
            call_broke(call, "schedule",
                       "it wrote to the requests of the view, which it may only read,");
        }
    }
}

/* In a trial the view lies elsewhere at the next call, so that a pointer into it that was kept
 * leads nowhere. */
static void move_view(struct lending *l, struct schedule_view *shown) {
    const size_t bytes = shown->n_slots * (sizeof *shown->requests + 2 * sizeof *shown->running);
    if (!ward_moves(l) || ward_pages(bytes) + 4 * ward_pages(1) > (size_t)(l->end - l->next)) {
        return;
    }
    const struct schedule_view view = *shown;
    shown->requests = lend_requests(l, &view);
    shown->running = ward_lend(l, view.running, view.n_running * sizeof *view.running,
                               "the view's list running");
    shown->waiting = ward_lend(l, view.waiting, view.n_waiting * sizeof *view.waiting,
                               "the view's list waiting");
}

void warded_schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct lending l;
    ward_open(&l, state, "schedule");
    const struct estimated estimated = {view, batch->capacity};
    struct schedule_view shown = shown_view(view, &estimated);
    struct batch given = *batch, *answer = ward_room_for(&l, sizeof *answer, 8);
    give_lists(l.ward, &given);
    *answer = given;
    move_view(&l, &shown);
    const struct schedule_view *lent = ward_lend(&l, &shown, sizeof shown, "the view");
    struct watched_call *call = ward_enter(&l);
    name_view(call, &shown);
    name_lists(call, &given);
    ((const struct scheduler *)l.called)->schedule(l.state, lent, answer);
    ward_leave(&l, call);
    if (shown.requests != view->requests) {
        check_requests(call, view, shown.requests);
    }
    bool in_place = answer->capacity == given.capacity;
    for (int list = 0; list < N_LISTS; list++) {
        in_place = in_place && *list_of(answer, list) == *list_of(&given, list);
    }
    if (!in_place) {
        call_broke(call, l.callback, "it changed the batch's capacity or the place of its lists");
    }
    take_list(batch->selected, answer->selected, answer->n, given.capacity);
    take_list(batch->chunk_tokens, answer->chunk_tokens, answer->n, given.capacity);
    take_list(batch->preempted, answer->preempted, answer->n_preempted, given.capacity);
    take_list(batch->idle, answer->idle, answer->n_idle, given.capacity);
    take_list(batch->rejected, answer->rejected, answer->n_rejected, given.capacity);
    take_list(batch->reasons, answer->reasons, answer->n_rejected, given.capacity);
    memset(answer->reasons, 0,
           (answer->n_rejected < given.capacity ? answer->n_rejected : given.capacity) *
               sizeof *answer->reasons);
    take_list(batch->swaps, answer->swaps, answer->n_preempted, given.capacity);
    clear_list(call, answer->n_preempted, given.capacity, "swaps", answer->swaps);
    clear_list(call, answer->n, given.capacity, "chunk_tokens", answer->chunk_tokens);
    if (answer->says) {
        take_list(batch->width_tokens, answer->width_tokens, answer->n, given.capacity);
        take_list(batch->threshold_millionths, answer->threshold_millionths, answer->n,
                  given.capacity);
        take_list(batch->puts_off, answer->puts_off, answer->n, given.capacity);
        take_list(batch->run_tokens, answer->run_tokens, answer->n, given.capacity);
        clear_list(call, answer->n, given.capacity, "run_tokens", answer->run_tokens);
        clear_list(call, answer->n, given.capacity, "puts_off", answer->puts_off);
        clear_list(call, answer->n, given.capacity, "width_tokens", answer->width_tokens);
        clear_list(call, answer->n, given.capacity, "threshold_millionths",
                   answer->threshold_millionths);
    }
    for (int list = 0; list < N_LISTS; list++) {
        *list_of(answer, list) = *list_of(batch, list);
    }
    *batch = *answer;
}
