#include "tests/analysis/crowd.h"

#include <string.h>

#include "analysis/store/protocol.h"

/* Programs are 0 to 2; the locks of somebody else are OTHER's. */
enum { OTHER = CROWD_PROGRAMS, NOBODY = 15 };

/* ---- the store that is not ---- */

static const struct crowd_plan *plan_of(const struct going *g) {
    return &g->crowd->plans[g->who];
}

static struct program *self(const struct going *g) {
    return &g->world->programs[g->who];
}

static struct database *own_database(const struct going *g) {
    return &g->world->databases[plan_of(g)->to];
}

static uint8_t id_of(const struct going *g, size_t point) {
    return plan_of(g)->ids[point];
}

/* The answer where a lock is in the way. */
static enum protocol_answer locked(struct going *g, bool waits) {
    bool will_wait = waits && !self(g)->is_stopped;
    g->is_blocked = g->is_blocked || will_wait;
    return PROTOCOL_LOCKED;
}

static bool may_read(const struct going *g, const struct database *db) {
    return !db->is_pending || db->writer == g->who;
}

static enum protocol_answer fake_look(void *state, size_t point) {
    struct going *g = state;
    const struct database *db = own_database(g);
    if (!may_read(g, db)) {
        return locked(g, true);
    }
    if (db->count[id_of(g, point)] == 0) {
        return PROTOCOL_NO;
    }
    self(g)->results |= (uint8_t)(1 << point);
    return PROTOCOL_YES;
}

static enum protocol_answer fake_claim(void *state, size_t point) {
    struct going *g = state;
    uint8_t *owner = &g->world->owner[id_of(g, point)];
    if (g->crowd->trouble.has_no_claims) {
        return PROTOCOL_FAILED;
    }
    if (*owner != NOBODY && *owner != g->who) {
        return PROTOCOL_NO;
    }
    *owner = g->who;
    return PROTOCOL_YES;
}

static void fake_release(void *state, size_t point) {
    struct going *g = state;
    g->world->owner[id_of(g, point)] = NOBODY;
}

static enum protocol_answer fake_begin(void *state, size_t point, bool waits) {
    struct going *g = state;
    struct database *db = own_database(g);
    (void)point;
    for (int i = 0; i < CROWD_DATABASES; i++) {
        if ((g->world->databases[i].readers & 1 << g->who) != 0) {
            g->wrong = "a program that reads one database asks for the lock of the other";
        }
    }
    if (db->writer != NOBODY) {
        return locked(g, waits);
    }
    db->writer = g->who;
    g->is_private = true;
    return PROTOCOL_YES;
}

static enum protocol_answer fake_holds(void *state, size_t point) {
    struct going *g = state;
    const struct database *db = own_database(g);
    bool has_it = db->count[id_of(g, point)] > 0;
    g->is_private = db->writer == g->who && !has_it && !plan_of(g)->is_merge;
    return has_it ? PROTOCOL_YES : PROTOCOL_NO;
}

static enum protocol_answer fake_open_source(void *state, size_t point) {
    struct going *g = state;
    struct database *from = &g->world->databases[!plan_of(g)->to];
    (void)point;
    if (!may_read(g, from)) {
        return locked(g, true);
    }
    from->readers |= (uint8_t)(1 << g->who);
    return PROTOCOL_YES;
}

static void fake_close_source(void *state, size_t point) {
    struct going *g = state;
    (void)point;
    g->world->databases[!plan_of(g)->to].readers &= (uint8_t) ~(1 << g->who);
}

static enum protocol_answer fake_put(void *state, size_t point) {
    struct going *g = state;
    own_database(g)->put = (uint8_t)(id_of(g, point) + 1);
    return g->world->is_full ? PROTOCOL_FAILED : PROTOCOL_YES;
}

static enum protocol_answer fake_commit(void *state, size_t point, bool waits) {
    struct going *g = state;
    struct database *db = own_database(g);
    (void)point;
    if (g->world->is_full) {
        return PROTOCOL_FAILED;
    }
    if (db->readers != 0) {
        g->is_unfinished = waits && !self(g)->is_stopped && !db->is_pending;
        db->is_pending = waits;
        return g->is_unfinished ? PROTOCOL_LOCKED : locked(g, waits);
    }
    if (db->put > 0 && ++db->count[db->put - 1] > 1) {
        g->wrong = "a point is recorded twice";
    }
    db->put = db->is_pending = 0;
    db->writer = NOBODY;
    return PROTOCOL_YES;
}

static void fake_roll_back(void *state, size_t point) {
    struct going *g = state;
    struct database *db = own_database(g);
    (void)point;
    db->put = db->is_pending = 0;
    db->writer = NOBODY;
}

static void fake_pause(void *state) {
    struct going *g = state;
    for (int i = 0; i < CROWD_IDS; i++) {
        if (g->world->owner[i] == g->who || self(g)->state[i] == POINT_ENDED) {
            g->wrong = "a program waits for others and has not given away what it has";
        }
    }
}

static const struct protocol_ops sweep_ops = {
    .look = fake_look,
    .claim = fake_claim,
    .release = fake_release,
    .begin = fake_begin,
    .holds = fake_holds,
    .put = fake_put,
    .commit = fake_commit,
    .roll_back = fake_roll_back,
    .pause = fake_pause,
};

static const struct protocol_ops merge_ops = {
    .release = fake_release,
    .begin = fake_begin,
    .holds = fake_holds,
    .open_source = fake_open_source,
    .close_source = fake_close_source,
    .put = fake_put,
    .commit = fake_commit,
    .roll_back = fake_roll_back,
};

/* ---- programs ---- */

static void load(struct going *g, struct protocol *p, struct protocol_point *points) {
    const struct program *me = self(g);
    for (int i = 0; i < CROWD_IDS; i++) {
        points[i] = (struct protocol_point){me->state[i], me->has_claim[i]};
    }
    *p = (struct protocol){.ops = plan_of(g)->is_merge ? &merge_ops : &sweep_ops,
                           .state = g,
                           .points = points,
                           .n = plan_of(g)->n_points,
                           .n_put = me->n_put,
                           .n_late = me->n_late,
                           .job = (enum protocol_job)me->job,
                           .at = me->at,
                           .waits = me->waits,
                           .is_put = me->is_put,
                           .point = me->point};
}

static void save(struct going *g, const struct protocol *p) {
    struct program *me = self(g);
    for (int i = 0; i < CROWD_IDS; i++) {
        me->state[i] = p->points[i].state;
        me->has_claim[i] = p->points[i].has_claim;
    }
    me->n_put = (uint8_t)p->n_put;
    me->n_late = (uint8_t)p->n_late;
    me->job = (uint8_t)p->job;
    me->at = p->at;
    me->waits = p->waits;
    me->is_put = p->is_put;
    me->point = (uint8_t)p->point;
}

/* The claimed point that ends next is the last: so that what is recorded in order waits. */
static size_t last_claimed(const struct protocol *p, size_t *n) {
    size_t last = 0;
    *n = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (p->points[i].state == POINT_CLAIMED) {
            last = i;
            (*n)++;
        }
    }
    return last;
}

static bool finish(struct program *me, struct protocol *p) {
    me->phase = LAST;
    return protocol_ask(p, PROTOCOL_FINISH, 0, true);
}

/* As campaign.c does: rounds over the points, up to `n_at_once` claimed at a time. Returns whether
 * what was asked for has a step. */
static bool ask_sweep(struct going *g, struct program *me, struct protocol *p) {
    size_t n_claimed, last = last_claimed(p, &n_claimed);
    bool is_first = false, is_any_elsewhere = false;
    for (size_t i = 0; i < p->n; i++) {
        is_first = is_first || p->points[i].state == POINT_OPEN;
        is_any_elsewhere = is_any_elsewhere || p->points[i].state == POINT_ELSEWHERE;
    }
    while (me->next < p->n &&
           p->points[me->next].state != (is_first ? POINT_OPEN : POINT_ELSEWHERE)) {
        me->next++;
    }
    if (me->is_stopped) { /* what runs is cut short */
        return n_claimed > 0 ? protocol_ask(p, PROTOCOL_OVER, last, false) : finish(me, p);
    }
    if (n_claimed > 0 && (n_claimed >= plan_of(g)->n_at_once || me->next >= p->n)) {
        me->results |= (uint8_t)(1 << last);
        uint8_t *runs = &g->world->runs[id_of(g, last)];
        *runs = *runs < 2 ? (uint8_t)(*runs + 1) : *runs;
        protocol_ended(p, last);
        return protocol_ask(p, PROTOCOL_PUT_READY, 0, false);
    }
    if (me->next < p->n) {
        return protocol_ask(p, PROTOCOL_TURN, me->next++, false);
    }
    me->next = 0;
    return is_any_elsewhere ? protocol_ask(p, PROTOCOL_WAIT, 0, true) : finish(me, p);
}

/* As merge.c does: one run of the other database after another. */
static bool ask_merge(struct going *g, struct program *me, struct protocol *p) {
    const struct database *from = &g->world->databases[!plan_of(g)->to];
    while (me->next < p->n && from->count[id_of(g, me->next)] == 0) {
        me->next++;
    }
    if (me->next >= p->n || me->is_stopped) {
        return finish(me, p);
    }
    p->points[me->next].state = POINT_ENDED;
    return protocol_ask(p, PROTOCOL_PUT, me->next++, true);
}

static bool is_done(const struct program *me) {
    return me->phase == DONE || me->phase == DEAD;
}

static void end(struct going *g, struct program *me) {
    uint8_t all = (uint8_t)((1 << plan_of(g)->n_points) - 1);
    if (!plan_of(g)->is_merge && !me->is_stopped && me->results != all) {
        g->wrong = "a program has ended without a result";
    }
    for (int i = 0; i < CROWD_IDS; i++) {
        if (g->world->owner[i] == g->who) {
            g->wrong = "a program has ended with a claim";
        }
    }
    uint8_t is_stopped = me->is_stopped;
    memset(me, 0, sizeof *me);
    me->is_stopped = is_stopped;
    me->phase = DONE;
}

/* Asks for what is next, until that has a step. */
static void ask(struct going *g, struct protocol *p) {
    struct program *me = self(g);
    do {
        if (me->phase == LAST) {
            save(g, p);
            end(g, me);
            return;
        }
    } while (!(plan_of(g)->is_merge ? ask_merge : ask_sweep)(g, me, p));
    save(g, p);
}

/* One step. False: it cannot be done now. */
static bool step(struct going *g) {
    struct protocol p;
    struct protocol_point points[CROWD_IDS];
    load(g, &p, points);
    bool goes_on;
    do {
        g->is_private = false;
        goes_on = protocol_step(&p);
    } while (goes_on && g->is_private);
    if (g->is_blocked || g->is_unfinished) {
        return g->is_unfinished;
    }
    if (goes_on) {
        save(g, &p);
    } else {
        ask(g, &p);
    }
    return true;
}

/* ---- trouble ---- */

static void die(struct going *g) {
    struct world *w = g->world;
    for (int i = 0; i < CROWD_IDS; i++) {
        w->owner[i] = w->owner[i] == g->who ? NOBODY : w->owner[i];
    }
    for (int i = 0; i < CROWD_DATABASES; i++) {
        struct database *db = &w->databases[i];
        db->readers &= (uint8_t) ~(1 << g->who);
        if (db->writer == g->who) {
            db->writer = NOBODY;
            db->put = db->is_pending = 0;
        }
    }
    memset(self(g), 0, sizeof *self(g));
    self(g)->phase = DEAD;
}

/* Of a database: another program takes a lock of one of three kinds, or drops what it has. */
enum lock { READS, WRITES, EXCLUDES, N_LOCKS };

static bool take_lock(struct world *w, const struct crowd *crowd, struct database *db,
                      enum lock lock) {
    bool is_free = lock == READS ? !db->is_pending
                                 : db->writer == NOBODY && (lock == WRITES || db->readers == 0);
    bool is_used = db == &w->databases[0] || crowd->recorded[1] != 0;
    bool has_one = (db->readers & 1 << OTHER) != 0 || db->writer == OTHER;
    if (w->n_locks == crowd->trouble.locks || !is_free || !is_used || has_one) {
        return false;
    }
    w->n_locks++;
    if (lock == READS) {
        db->readers |= 1 << OTHER;
    } else {
        db->writer = OTHER;
        db->is_pending = lock == EXCLUDES;
    }
    return true;
}

static bool drop_lock(struct database *db) {
    bool had_one = (db->readers & 1 << OTHER) != 0 || db->writer == OTHER;
    db->readers &= (uint8_t) ~(1 << OTHER);
    if (db->writer == OTHER) {
        db->writer = NOBODY;
        db->is_pending = 0;
    }
    return had_one;
}

bool crowd_happen(struct going *g, int move) {
    struct world *w = g->world;
    if (move >= STEP || move < FULL) {
        g->who = (uint8_t)(move >= STEP ? move - STEP : move % CROWD_PROGRAMS);
        if (g->who >= g->crowd->n_programs || is_done(self(g))) {
            return false;
        }
    }
    if (move >= STEP) {
        return step(g);
    }
    if (move >= DROP) {
        return drop_lock(&w->databases[move - DROP]);
    }
    if (move >= LOCK) {
        return take_lock(w, g->crowd, &w->databases[(move - LOCK) / N_LOCKS],
                         (enum lock)((move - LOCK) % N_LOCKS));
    }
    if (move == FULL) { /* and, the second time, is not any more */
        w->is_full = !w->is_full;
        return w->n_fulls++ < g->crowd->trouble.fulls;
    }
    if (move >= STOP) {
        bool was_stopped = self(g)->is_stopped;
        self(g)->is_stopped = 1;
        return !was_stopped && w->n_stops++ < g->crowd->trouble.stops;
    }
    die(g);
    return w->n_deaths++ < g->crowd->trouble.deaths;
}

/* ---- programs of one plan are alike ---- */

static uint8_t other_of(uint8_t who, uint8_t p) {
    return who == p ? p + 1 : who == p + 1 ? p : who;
}

static void swap(struct world *w, uint8_t p) {
    struct program first = w->programs[p];
    w->programs[p] = w->programs[p + 1];
    w->programs[p + 1] = first;
    for (int i = 0; i < CROWD_IDS; i++) {
        w->owner[i] = other_of(w->owner[i], p);
    }
    for (int d = 0; d < CROWD_DATABASES; d++) {
        uint8_t readers = w->databases[d].readers, kept = readers & (uint8_t) ~(3 << p);
        w->databases[d].readers =
            (uint8_t)(kept | (readers >> p & 1) << (p + 1) | (readers >> (p + 1) & 1) << p);
        w->databases[d].writer = other_of(w->databases[d].writer, p);
    }
}

void crowd_sort(const struct crowd *crowd, struct world *w) {
    for (uint8_t round = 1; round < crowd->n_programs; round++) {
        for (uint8_t p = 0; p + 1 < crowd->n_programs; p++) {
            if (memcmp(&crowd->plans[p], &crowd->plans[p + 1], sizeof crowd->plans[p]) == 0 &&
                memcmp(&w->programs[p], &w->programs[p + 1], sizeof w->programs[p]) > 0) {
                swap(w, p);
            }
        }
    }
}

/* ---- the begin and the end ---- */

void crowd_begin(const struct crowd *crowd, struct world *world) {
    memset(world, 0, sizeof *world);
    memset(world->owner, NOBODY, sizeof world->owner);
    for (int d = 0; d < CROWD_DATABASES; d++) {
        world->databases[d].writer = NOBODY;
        for (int i = 0; i < CROWD_IDS; i++) {
            world->databases[d].count[i] = crowd->recorded[d] >> i & 1;
        }
    }
    for (uint8_t p = 0; p < crowd->n_programs; p++) {
        struct going g = {.crowd = crowd, .world = world, .who = p};
        struct protocol protocol;
        struct protocol_point points[CROWD_IDS];
        load(&g, &protocol, points);
        ask(&g, &protocol);
    }
}

const char *crowd_judge(const struct crowd *crowd, const struct world *w) {
    bool is_quiet =
        !crowd->trouble.has_no_claims && w->n_locks + w->n_deaths + w->n_stops + w->n_fulls == 0;
    uint8_t all[CROWD_DATABASES] = {crowd->recorded[0], crowd->recorded[1]};
    for (int p = 0; p < crowd->n_programs; p++) {
        const struct crowd_plan *plan = &crowd->plans[p];
        for (int i = 0; i < plan->n_points && !plan->is_merge; i++) {
            is_quiet = is_quiet && (i == 0 || plan->ids[i] != plan->ids[i - 1]); /* runs both */
            all[plan->to] |= (uint8_t)(w->programs[p].phase == DONE && !w->programs[p].is_stopped)
                             << plan->ids[i];
        }
    }
    for (int p = 0; p < crowd->n_programs;
         p++) { /* a merge takes at least what was there at first */
        const struct crowd_plan *plan = &crowd->plans[p];
        if (plan->is_merge && w->programs[p].phase == DONE && !w->programs[p].is_stopped) {
            all[plan->to] |= crowd->recorded[!plan->to];
        }
    }
    for (int i = 0; i < CROWD_IDS; i++) {
        for (int d = 0; d < CROWD_DATABASES && w->n_fulls == 0; d++) {
            if ((all[d] & 1 << i) != 0 && w->databases[d].count[i] != 1) {
                return "a point that was asked for is not recorded";
            }
        }
        if (is_quiet && w->runs[i] > 1) {
            return "a point was run twice without need";
        }
    }
    return NULL;
}

bool crowd_all_are_done(const struct crowd *crowd, const struct world *w) {
    for (int p = 0; p < crowd->n_programs; p++) {
        if (!is_done(&w->programs[p])) {
            return false;
        }
    }
    return true;
}
