/* Every world that several programs can come to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "tests/analysis/crowd.h"

enum { PATH_STEPS = 120 };

static const char *const names[] = {"dies", "is stopped", "disk full", "locked", "unlocked"};

static bool helps(int move) {
    return move >= DROP;
}

struct explored {
    struct world *worlds;
    uint32_t *before; /* by which world each was first come to */
    uint8_t *by;      /* and by which move */
    uint32_t n, room;
    uint32_t *places; /* a hash table of worlds + 1 */
    uint32_t n_places;
    struct {
        uint32_t from, to;
    } * edges; /* of moves that help */
    size_t n_edges, edge_room;
};

static uint64_t hash_of(const struct world *world) {
    const uint8_t *bytes = (const uint8_t *)world;
    uint64_t hash = 14695981039346656037u, word = 0;
    for (size_t i = 0; i < sizeof *world; i += sizeof word) {
        size_t n = sizeof *world - i;
        memcpy(&word, bytes + i, n < sizeof word ? n : sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static void place(struct explored *e, uint32_t i) {
    uint32_t at = (uint32_t)(hash_of(&e->worlds[i]) & (e->n_places - 1));
    while (e->places[at] != 0) {
        at = (at + 1) & (e->n_places - 1);
    }
    e->places[at] = i + 1;
}

static void grow(struct explored *e) {
    e->room = e->room == 0 ? 1 << 14 : 2 * e->room;
    e->n_places = 4 * e->room;
    e->worlds = mem_resized(e->worlds, e->room, sizeof *e->worlds);
    e->before = mem_resized(e->before, e->room, sizeof *e->before);
    e->by = mem_resized(e->by, e->room, 1);
    free(e->places);
    e->places = mem_zeroed(e->n_places, sizeof *e->places);
    for (uint32_t i = 0; i < e->n; i++) {
        place(e, i);
    }
}

static uint32_t keep(struct explored *e, const struct world *world, uint32_t before, int by) {
    uint32_t at = (uint32_t)(hash_of(world) & (e->n_places - 1));
    for (; e->places[at] != 0; at = (at + 1) & (e->n_places - 1)) {
        if (memcmp(&e->worlds[e->places[at] - 1], world, sizeof *world) == 0) {
            return e->places[at] - 1;
        }
    }
    if (e->n == e->room) {
        struct world copy = *world;
        grow(e);
        e->worlds[e->n] = copy;
    } else {
        e->worlds[e->n] = *world;
    }
    e->before[e->n] = before;
    e->by[e->n] = (uint8_t)by;
    place(e, e->n);
    return e->n++;
}

static void tell(const struct explored *e, uint32_t at, char *out, size_t size) {
    uint8_t moves[PATH_STEPS];
    size_t n = 0, used = 0;
    for (; at != 0 && n < PATH_STEPS; at = e->before[at]) {
        moves[n++] = e->by[at];
    }
    out[0] = '\0';
    while (n-- > 0 && used + 64 < size) {
        int move = moves[n];
        int kind = move >= STEP   ? 5
                   : move >= DROP ? 4
                   : move >= LOCK ? 3
                   : move == FULL ? 2
                                  : move >= STOP;
        used += (size_t)snprintf(out + used, size - used, kind == 5 ? "%d " : "(%d %s) ",
                                 move >= STEP ? move - STEP : move % CROWD_PROGRAMS, names[kind]);
    }
}

/* From the ends backwards along moves that help: what is not met has no way to an end. */
static uint32_t find_stuck(const struct explored *e, const struct crowd *crowd) {
    uint32_t *first = mem_zeroed((size_t)e->n + 1, sizeof *first), *from;
    uint32_t *queue = mem_zeroed(e->n, sizeof *queue), n_queue = 0, stuck = 0;
    bool *is_met = mem_zeroed(e->n, sizeof *is_met);
    from = mem_zeroed(e->n_edges + 1, sizeof *from);
    for (size_t i = 0; i < e->n_edges; i++) {
        first[e->edges[i].to + 1]++;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        first[i + 1] += first[i];
    }
    uint32_t *fill = mem_zeroed((size_t)e->n + 1, sizeof *fill);
    for (size_t i = 0; i < e->n_edges; i++) {
        uint32_t to = e->edges[i].to;
        from[first[to] + fill[to]++] = e->edges[i].from;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        is_met[i] = crowd_all_are_done(crowd, &e->worlds[i]);
        if (is_met[i]) {
            queue[n_queue++] = i;
        }
    }
    for (uint32_t q = 0; q < n_queue; q++) {
        for (uint32_t k = first[queue[q]]; k < first[queue[q] + 1]; k++) {
            if (!is_met[from[k]]) {
                is_met[from[k]] = true;
                queue[n_queue++] = from[k];
            }
        }
    }
    for (uint32_t i = e->n; i-- > 0;) {
        stuck = is_met[i] ? stuck : i + 1;
    }
    free(first);
    free(from);
    free(queue);
    free(is_met);
    free(fill);
    return stuck;
}

/* All that can happen in world `i`. */
static void go_from(struct explored *e, const struct crowd *crowd, uint32_t i,
                    struct crowd_found *found) {
    for (int move = 0; move < N_MOVES && found->wrong == NULL; move++) {
        struct world next = e->worlds[i];
        struct going g = {.crowd = crowd, .world = &next};
        if (!crowd_happen(&g, move)) {
            continue;
        }
        crowd_sort(crowd, &next);
        uint32_t n_before = e->n, to = keep(e, &next, i, move);
        if (helps(move)) {
            e->edges = mem_grown(e->edges, e->n_edges, &e->edge_room, sizeof *e->edges);
            e->edges[e->n_edges].from = i;
            e->edges[e->n_edges++].to = to;
        }
        found->wrong = g.wrong;
        if (e->n > n_before && found->wrong == NULL && crowd_all_are_done(crowd, &next)) {
            found->n_ends++;
            found->wrong = crowd_judge(crowd, &next);
        }
        if (found->wrong != NULL) {
            tell(e, to, found->how, sizeof found->how);
        }
    }
}

struct crowd_found crowd_explore(const struct crowd *crowd, uint64_t most) {
    struct explored e = {0};
    struct crowd_found found = {0};
    struct world world;
    crowd_begin(crowd, &world);
    grow(&e);
    (void)keep(&e, &world, 0, 0);
    for (uint32_t i = 0; i < e.n && found.wrong == NULL; i++) {
        go_from(&e, crowd, i, &found);
        if (e.n > most) {
            found.wrong = "there are more states than were to be looked at";
        }
    }
    uint32_t stuck = found.wrong == NULL ? find_stuck(&e, crowd) : 0;
    if (stuck > 0) {
        found.wrong = "from a state there is no way to an end";
        tell(&e, stuck - 1, found.how, sizeof found.how);
    }
    found.n_states = e.n;
    free(e.worlds);
    free(e.before);
    free(e.by);
    free(e.places);
    free(e.edges);
    return found;
}
