#include "sim/serve/cluster.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "sim/base/mem.h"

enum { MOST_MOVES = 4096 }; /* at once */

void cluster_init(struct lifecycle *life) {
    life->views = mem_zeroed(life->n_replicas, sizeof *life->views);
    life->views_until_ns = mem_zeroed(life->n_replicas, sizeof *life->views_until_ns);
    life->due = mem_zeroed(life->n_replicas / 64 + 1, sizeof *life->due);
    if (life->n_replicas > 1) {
        life->held = mem_reserved(life->n_slots, sizeof *life->held);
        life->held_until_ns = mem_reserved(life->n_slots, sizeof *life->held_until_ns);
    }
    if (life->n_replicas > 1 && life->system->router->move != NULL) {
        life->moves = mem_zeroed(MOST_MOVES, sizeof *life->moves);
    }
}

void cluster_fini(struct lifecycle *life) {
    free(life->views);
    free(life->views_until_ns);
    free(life->due);
    free(life->homes);
    mem_released(life->held);
    mem_released(life->held_until_ns);
    free(life->moves);
}

/* What a router sees of a replica now, and until when that holds: of steps in flight, those that
 * are over have committed what they do. */
static void look_at(struct lifecycle *life, uint32_t index) {
    const struct replica *replica = &life->replicas[index];
    const bool repeats = replica->busy && replica->step_ns > 0;
    const int64_t over = repeats ? (life->now_ns - replica->flight_ns) / replica->step_ns : 0;
    life->views[index] = (struct replica_view){
        .n_running = replica->n_running,
        .n_waiting = replica->n_waiting,
        .kv_free_bytes = life->system->budget.pool_bytes - replica->kv_used_bytes,
        .outstanding_tokens = replica->outstanding_tokens - (uint64_t)over * replica->step_tokens,
        .n_whole = replica->n_by_phase[PHASE_PREFILL] + replica->n_by_phase[PHASE_REFRESH],
        .waiting = lent_read(&life->lent, replica->waiting + replica->head),
    };
    life->views_until_ns[index] =
        repeats ? replica->flight_ns + (over + 1) * replica->step_ns : INT64_MAX;
}

/* The place of a session among the homes, or where it would stand. */
static struct home *find_home(struct lifecycle *life, uint64_t session) {
    size_t at = (size_t)(session * UINT64_C(0x9E3779B97F4A7C15) >> 20) % life->homes_room;
    while (life->homes[at].session != 0 && life->homes[at].session != session) {
        at = (at + 1) % life->homes_room;
    }
    return &life->homes[at];
}

static void grow_homes(struct lifecycle *life) {
    struct home *old = life->homes;
    const size_t n = life->homes_room;
    life->homes_room = 2 * n + 1024;
    life->homes = mem_zeroed(life->homes_room, sizeof *life->homes);
    for (size_t i = 0; i < n; i++) {
        if (old[i].session != 0) {
            *find_home(life, old[i].session) = old[i];
        }
    }
    free(old);
}

uint32_t cluster_home(struct lifecycle *life, uint64_t session) {
    if (session == 0 || life->homes_room == 0) {
        return UINT32_MAX;
    }
    const struct home *home = find_home(life, session);
    return home->session != 0 ? home->replica : UINT32_MAX;
}

void cluster_settle(struct lifecycle *life, uint64_t session, uint32_t replica) {
    if (session == 0 || life->n_replicas == 1) {
        return;
    }
    if (2 * life->n_homes >= life->homes_room) {
        grow_homes(life);
    }
    struct home *home = find_home(life, session);
    life->n_homes += home->session == 0;
    *home = (struct home){session, replica};
}

/* What the router sees of all replicas now. */
static struct route_view view_of(struct lifecycle *life) {
    for (uint32_t i = 0; i < life->n_replicas; i++) {
        if (life->views_until_ns[i] <= life->now_ns) {
            look_at(life, i);
        }
    }
    return (struct route_view){
        .now_ns = life->now_ns,
        .seed = life->asked->seed,
        .requests = lent_read(&life->lent, life->requests),
        .replicas = life->views,
        .n = life->n_replicas,
        .n_held = life->n_held,
    };
}

uint32_t cluster_route(struct lifecycle *life, uint32_t slot, uint32_t home, int64_t *until_ns) {
    if (life->n_replicas == 1) {
        return 0;
    }
    const struct route_view view = view_of(life);
    if (home < life->n_replicas) {
        life->views[home].shared_tokens = sharing_look(life, home, slot);
    }
    const uint32_t chosen =
        life->system->router->route(life->router_state, &life->requests[slot], &view, until_ns);
    if (home < life->n_replicas) {
        life->views[home].shared_tokens = 0;
    }
    return chosen;
}

/* The begin of a sentence about the router. */
static int refuse(const struct lifecycle *life, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(const struct lifecycle *life, struct err *err, const char *format, ...) {
    char text[256];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return err_world(err, "router %s broke its promise at %.3f s: %s",
                     life->system->router->policy.name, (double)life->now_ns * 1e-9, text);
}

int cluster_check_hold(struct lifecycle *life, uint32_t slot, int64_t until_ns, struct err *err) {
    enum { MANY = 100000, MOST = 10000000, TRIAL = 20000 };
    static const int64_t long_ns = INT64_C(3600000000000);
    const struct request *request = &life->requests[slot];
    if (until_ns <= life->now_ns) {
        return refuse(life, err,
                      "route holds request %" PRIu64 " back until %" PRId64
                      " ns, which is not after now (%" PRId64
                      "): name a later time in until_ns, or "
                      "leave it as it is",
                      request->id, until_ns, life->now_ns);
    }
    life->holds_since_ns = life->n_holds == 0 ? life->now_ns : life->holds_since_ns;
    const bool is_long = life->now_ns - life->holds_since_ns > long_ns;
    life->n_holds++;
    return life->n_holds <= (life->asked->is_trial ? TRIAL : MANY) ||
                   (!is_long && life->n_holds <= MOST && !life->asked->is_trial)
               ? 0
               : err_starves(err,
                             "router %s starves at %.3f s: route held requests back %" PRIu64
                             " times in a row, for %.6g s, while no step ended, the last time "
                             "request %" PRIu64,
                             life->system->router->policy.name, (double)life->now_ns * 1e-9,
                             life->n_holds, (double)(life->now_ns - life->holds_since_ns) * 1e-9,
                             request->id);
}

int cluster_moves(struct lifecycle *life, uint32_t *n, struct err *err) {
    const struct route_view view = view_of(life);
    const uint32_t most = life->n_slots < MOST_MOVES ? life->n_slots : MOST_MOVES;
    *n = life->system->router->move(life->router_state, &view, life->moves, most);
    return *n <= most ? 0
                      : refuse(life, err,
                               "move returns %" PRIu32 " moves, of which at most %" PRIu32 " fit",
                               *n, most);
}

int cluster_check_move(struct lifecycle *life, const struct route_move *move, struct err *err) {
    if (move->slot >= life->n_used || move->to >= life->n_replicas) {
        return refuse(life, err,
                      "move names slot %" PRIu32 " and replica %" PRIu32
                      ", of which there are %" PRIu32 " and %" PRIu32,
                      move->slot, move->to, life->n_used, life->n_replicas);
    }
    const struct request *request = &life->requests[move->slot];
    const struct tracked *tracked = &life->tracked[move->slot];
    const bool waits = request->state == REQUEST_QUEUED || request->state == REQUEST_PREEMPTED;
    if (!waits || tracked->replica == move->to) {
        return refuse(life, err,
                      "move names request %" PRIu64 ", which %s: only waiting requests move, to "
                      "another replica",
                      request->id,
                      request->state == REQUEST_RUNNING ? "runs"
                      : waits                           ? "waits there already"
                                                        : "has left");
    }
    if (tracked->is_swapped) {
        return refuse(life, err,
                      "move names request %" PRIu64
                      ", which lies in the host's memory of its replica: what is swapped out is "
                      "brought back where it was (host_bytes is 0 of all others)",
                      request->id);
    }
    for (uint32_t i = 0; i < life->n_held; i++) {
        if (life->held[i] == move->slot) {
            return refuse(life, err,
                          "move names request %" PRIu64
                          ", which is held back: route says where it goes",
                          request->id);
        }
    }
    return request->state == REQUEST_QUEUED || !life->sharing.is_on
               ? 0
               : refuse(life, err,
                        "move names request %" PRIu64
                        ", which was preempted and has pages that it shares: it waits for those",
                        request->id);
}

void cluster_queued(struct lifecycle *life, uint32_t index) {
    const struct replica *replica = &life->replicas[index];
    const struct executor *executor = &life->asked->executor;
    cluster_changed(life, index);
    if (!replica->busy) {
        cluster_due(life, index);
    } else if (replica->step_ns > 0 && replica->ends_at_arrivals) {
        executor->cut(executor->state, index, life->now_ns);
    }
}

void cluster_flies(struct lifecycle *life, uint32_t index, uint32_t steps) {
    struct replica *replica = &life->replicas[index];
    const struct executor *executor = &life->asked->executor;
    replica->flight_ns = life->now_ns;
    replica->step_ns = steps > 1 ? executor->step_ns(executor->state, index) : 0;
    replica->step_tokens = 0;
    if (replica->step_ns > 0 && !life->has_positions) {
        for (uint32_t i = 0; i < replica->n_batch; i++) {
            replica->step_tokens += life->requests[replica->batch[i]].commit_tokens;
        }
    }
    cluster_changed(life, index);
}
