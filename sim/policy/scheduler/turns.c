#include "sim/policy/scheduler/turns.h"

void turns_put(struct turns *turns, struct ranked *own, uint32_t slot, double key) {
    own[slot].runs = 0;
    ranks_put(&turns->waiting, own, slot, key);
}

static struct ranks *ranks_of(struct turns *turns, const struct ranked *ranked) {
    return ranked->runs ? &turns->running : &turns->waiting;
}

void turns_move(struct turns *turns, struct ranked *own, uint32_t slot, double key) {
    struct ranks *ranks = ranks_of(turns, &own[slot]);
    ranks_drop(ranks, own, slot);
    ranks_put(ranks, own, slot, key);
}

void turns_told(struct turns *turns, const struct schedule_view *view, const struct happening *h) {
    struct ranked *own = view->own, *ranked = &own[h->slot];
    if (h->kind == HAPPENED_START || h->kind == HAPPENED_PREEMPTION) {
        ranks_drop(ranks_of(turns, ranked), own, h->slot);
        ranked->runs = h->kind == HAPPENED_START;
        ranks_put(ranks_of(turns, ranked), own, h->slot, ranked->key);
    } else if (h->kind == HAPPENED_END) {
        ranks_drop(ranks_of(turns, ranked), own, h->slot);
    }
}

/* A step under way: what is left of it, and the links of those that come next, 0: none may. Of
 * those that run the ones up to `end` are neither taken nor preempted. */
struct turn {
    const struct turns *turns;
    const struct schedule_view *view;
    struct batch *batch;
    struct growth growth;
    int64_t tokens;
    uint32_t places, running, end, waiting;
    uint32_t n_running, n_waiting; /* that take part */
    uint32_t cut, chunk;           /* the last of them, if it takes a chunk */
};

static const struct ranked *own_of(const struct turn *turn, uint32_t link) {
    return (const struct ranked *)turn->view->own + (link - 1);
}

static bool gives_back(const struct turn *turn, uint32_t link) {
    const struct request *request = &turn->view->requests[link - 1];
    return request->span.exact || growth_swaps(&turn->growth, request);
}

/* Preempts the last one that runs and was not taken, other than `link`; false: there is none. */
static bool preempt_for(struct turn *turn, uint32_t link) {
    const uint32_t last = turn->end;
    if (turn->running == 0 || last == link || !gives_back(turn, last) ||
        (turn->waiting == link &&
         own_of(turn, last)->key - own_of(turn, link)->key <= (double)turn->turns->margin_ns)) {
        return false;
    }
    growth_give_back(&turn->growth, last - 1, turn->batch);
    turn->places++;
    turn->running = last == turn->running ? 0 : turn->running;
    turn->end = own_of(turn, last)->before;
    return true;
}

/* Whether the request takes part. After a chunk of one nothing else does. */
static bool take(struct turn *turn, uint32_t link, bool waits) {
    const struct request *request = &turn->view->requests[link - 1];
    const int64_t growth = request->kv_bytes - request->kv_held_bytes;
    const uint32_t chunk = growth_chunk(request, turn->tokens);
    bool fits = chunk > 0;
    while (fits && (growth > turn->growth.free_bytes || (waits && turn->places == 0))) {
        fits = preempt_for(turn, link);
    }
    if (!fits) { /* none that waits starts before it; what it runs out of others do not get */
        turn->waiting = 0;
        turn->tokens = waits && chunk > 0 ? turn->tokens : 0;
        return false;
    }
    const bool is_cut = chunk < request->span.queries;
    turn->cut = is_cut ? link : 0;
    turn->chunk = chunk;
    turn->tokens = is_cut ? 0 : turn->tokens - chunk;
    turn->growth.free_bytes -= growth;
    turn->places -= waits;
    return true;
}

/* One that waits beyond its time. */
static bool is_past(const struct turn *turn, uint32_t link) {
    const int64_t latest_ns = own_of(turn, link)->latest_ns;
    return own_of(turn, link)->runs == 0 && latest_ns != 0 && latest_ns < turn->view->now_ns;
}

static void take_next(struct turn *turn) {
    const uint32_t running = turn->running, waiting = turn->waiting;
    if (running != 0 &&
        (waiting == 0 || own_of(turn, running)->key <= own_of(turn, waiting)->key)) {
        if (take(turn, running, false)) {
            turn->n_running++;
            turn->running = running != turn->end ? own_of(turn, running)->after : 0;
        }
    } else if (is_past(turn, waiting)) {
        turn->batch->rejected[turn->batch->n_rejected++] = waiting - 1;
        turn->waiting = own_of(turn, waiting)->after;
    } else if (take(turn, waiting, true)) {
        turn->n_waiting++;
        turn->waiting = own_of(turn, waiting)->after;
    }
}

/* Lists n of those from `link` on. */
static void list(const struct turn *turn, uint32_t link, uint32_t n) {
    struct batch *batch = turn->batch;
    const uint32_t end = batch->n + n;
    for (; batch->n < end; link = own_of(turn, link)->after) {
        if (!is_past(turn, link)) {
            batch->chunk_tokens[batch->n] = link == turn->cut ? turn->chunk : 0;
            batch->selected[batch->n++] = link - 1;
        }
    }
}

/* Where all that run fit, and none that waits stands before the last of them, they are not gone
 * through one by one. Returns how many take part so. */
static uint32_t take_all_running(struct turn *turn, uint32_t most) {
    const struct schedule_view *view = turn->view;
    if (turn->running == 0 || view->running_tokens > turn->tokens ||
        view->running_growth_bytes > turn->growth.free_bytes || view->n_running > most ||
        (turn->waiting != 0 && own_of(turn, turn->end)->key > own_of(turn, turn->waiting)->key)) {
        return 0;
    }
    turn->tokens -= view->running_tokens;
    turn->growth.free_bytes -= view->running_growth_bytes;
    turn->running = 0;
    turn->batch->all_running = 1;
    return view->n_running;
}

bool turns_take(const struct turns *turns, const struct schedule_view *view, struct batch *batch) {
    struct turn turn = {.turns = turns,
                        .view = view,
                        .batch = batch,
                        .tokens = view->max_batched_tokens,
                        .growth = growth_of(view, turns->preempts),
                        .places = view->max_requests - view->n_running,
                        .running = turns->running.first,
                        .end = turns->running.last,
                        .waiting = turns->waiting.first};
    const uint32_t most = turns->at_once > 0 ? turns->at_once : batch->capacity;
    const uint32_t n_all = take_all_running(&turn, most);
    while ((turn.running != 0 || turn.waiting != 0) && turn.tokens > 0 &&
           n_all + turn.n_running + turn.n_waiting < most) {
        take_next(&turn);
    }
    list(&turn, turns->running.first, turn.n_running);
    list(&turn, turns->waiting.first, turn.n_waiting);
    batch->n_admitted = turn.n_waiting;
    batch->hold = HOLD_CHANGE;
    return n_all + batch->n + batch->n_rejected >= view->n_running + view->n_waiting;
}
