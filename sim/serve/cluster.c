#include "sim/serve/cluster.h"

#include <stdlib.h>

#include "sim/base/mem.h"

void cluster_init(struct lifecycle *life) {
    life->views = mem_zeroed(life->n_replicas, sizeof *life->views);
    life->views_until_ns = mem_zeroed(life->n_replicas, sizeof *life->views_until_ns);
    life->due = mem_zeroed(life->n_replicas / 64 + 1, sizeof *life->due);
}

void cluster_fini(struct lifecycle *life) {
    free(life->views);
    free(life->views_until_ns);
    free(life->due);
    free(life->homes);
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

uint32_t cluster_route(struct lifecycle *life, uint32_t slot, uint32_t home) {
    if (life->n_replicas == 1) {
        return 0;
    }
    for (uint32_t i = 0; i < life->n_replicas; i++) {
        if (life->views_until_ns[i] <= life->now_ns) {
            look_at(life, i);
        }
    }
    if (home < life->n_replicas) {
        life->views[home].shared_tokens = sharing_look(life, home, slot);
    }
    const uint32_t chosen = life->system->router->route(life->router_state, &life->requests[slot],
                                                        life->views, life->n_replicas);
    if (home < life->n_replicas) {
        life->views[home].shared_tokens = 0;
    }
    return chosen;
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
