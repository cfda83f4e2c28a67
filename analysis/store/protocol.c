#include "analysis/store/protocol.h"

#include "sim/base/err.h"

/* The next step of a job. */
enum at {
    AT_LOOK,
    AT_CLAIM,
    AT_LOOK_AGAIN, /* its owner may have recorded it and gone between our look and our claim */
    AT_BEGIN,
    AT_HOLDS,
    AT_OPEN_SOURCE,
    AT_PUT,
    AT_COMMIT,
    AT_ROLL_BACK,
    AT_RELEASE,
    AT_PAUSE,
    AT_END,
};

/* ---- which point is next ---- */

/* In order: a point that still runs here, or was not begun, holds later ones up. */
static void find_ready(struct protocol *p) {
    for (size_t i = 0; p->n_late > 0 && i < p->n_put; i++) {
        if (p->points[i].state == POINT_ENDED) {
            p->point = i;
            return;
        }
    }
    while (p->n_put < p->n && p->points[p->n_put].state >= POINT_ELSEWHERE &&
           p->points[p->n_put].state != POINT_ENDED) {
        p->n_put++;
    }
    bool is_ready = p->n_put < p->n && p->points[p->n_put].state == POINT_ENDED;
    p->point = p->n_put;
    p->at = is_ready ? AT_BEGIN : AT_END;
}

/* From `from` on, the first that has ended or, at the end, was given back. */
static void find_left(struct protocol *p, size_t from) {
    for (p->point = from; p->point < p->n; p->point++) {
        unsigned char state = p->points[p->point].state;
        if (state == POINT_ENDED || (state == POINT_GIVEN_BACK && p->job == PROTOCOL_FINISH)) {
            p->at = AT_BEGIN;
            return;
        }
    }
    p->at = p->job == PROTOCOL_WAIT ? AT_PAUSE : AT_END;
}

static void go_on(struct protocol *p) {
    if (p->job == PROTOCOL_PUT_READY) {
        p->at = AT_BEGIN;
        find_ready(p);
    } else if (p->job == PROTOCOL_WAIT || p->job == PROTOCOL_FINISH) {
        find_left(p, p->point + 1);
    } else {
        p->at = AT_END;
    }
}

/* ---- the outcome of a transaction ---- */

static void has_put(struct protocol *p) {
    p->n_late -= p->point < p->n_put && p->n_late > 0;
    p->points[p->point].state = POINT_RECORDED;
    p->at = AT_RELEASE;
}

/* Nothing of it is in the database. What could not be had at the end is not waited for again. */
static void has_not_put(struct protocol *p) {
    if (p->job == PROTOCOL_WAIT || p->job == PROTOCOL_FINISH) {
        p->waits = p->waits && p->job == PROTOCOL_WAIT;
        p->n_late -= p->point < p->n_put && p->n_late > 0;
        p->points[p->point].state = POINT_GIVEN_BACK;
        p->at = AT_RELEASE;
    } else {
        p->at = AT_END;
    }
}

/* ---- steps ---- */

static void look(struct protocol *p) {
    bool is_again = p->at == AT_LOOK_AGAIN;
    if (p->ops->look(p->state, p->point) == PROTOCOL_YES) {
        p->points[p->point].state = POINT_RECORDED;
        p->at = AT_RELEASE;
    } else if (is_again) {
        p->points[p->point].state = POINT_CLAIMED;
        p->at = AT_END;
    } else {
        p->at = AT_CLAIM;
    }
}

/* Where there are no locks every program runs the point, and one of them records it. */
static void claim(struct protocol *p) {
    enum protocol_answer answer = p->ops->claim(p->state, p->point);
    p->points[p->point].has_claim = answer == PROTOCOL_YES;
    p->points[p->point].state = answer == PROTOCOL_NO ? POINT_ELSEWHERE : POINT_CLAIMED;
    p->at = answer == PROTOCOL_YES ? AT_LOOK_AGAIN : AT_END;
}

static void begin(struct protocol *p) {
    if (p->ops->begin(p->state, p->point, p->waits) == PROTOCOL_YES) {
        p->at = AT_HOLDS;
    } else {
        has_not_put(p);
    }
}

static void ask_inside(struct protocol *p) {
    enum protocol_answer answer = p->ops->holds(p->state, p->point);
    p->is_put = answer == PROTOCOL_YES;
    p->at = answer != PROTOCOL_NO         ? AT_ROLL_BACK
            : p->ops->open_source != NULL ? AT_OPEN_SOURCE
                                          : AT_PUT;
}

static void put(struct protocol *p) {
    enum protocol_answer answer = p->ops->put(p->state, p->point);
    if (p->ops->close_source != NULL) {
        p->ops->close_source(p->state, p->point);
    }
    p->at = answer == PROTOCOL_YES ? AT_COMMIT : AT_ROLL_BACK;
}

static void commit(struct protocol *p) {
    if (p->ops->commit(p->state, p->point, p->waits) == PROTOCOL_YES) {
        has_put(p);
    } else {
        p->at = AT_ROLL_BACK;
    }
}

static void roll_back(struct protocol *p) {
    p->ops->roll_back(p->state, p->point);
    if (p->is_put) {
        has_put(p);
    } else {
        has_not_put(p);
    }
}

static void release(struct protocol *p) {
    if (p->points[p->point].has_claim) {
        p->points[p->point].has_claim = false;
        p->ops->release(p->state, p->point);
    }
    go_on(p);
}

bool protocol_step(struct protocol *p) {
    switch ((enum at)p->at) {
    case AT_LOOK:
    case AT_LOOK_AGAIN:
        look(p);
        break;
    case AT_CLAIM:
        claim(p);
        break;
    case AT_BEGIN:
        begin(p);
        break;
    case AT_HOLDS:
        ask_inside(p);
        break;
    case AT_OPEN_SOURCE:
        p->at = p->ops->open_source(p->state, p->point) == PROTOCOL_YES ? AT_PUT : AT_ROLL_BACK;
        break;
    case AT_PUT:
        put(p);
        break;
    case AT_COMMIT:
        commit(p);
        break;
    case AT_ROLL_BACK:
        roll_back(p);
        break;
    case AT_RELEASE:
        release(p);
        break;
    case AT_PAUSE:
        p->ops->pause(p->state);
        p->at = AT_END;
        break;
    case AT_END:
        break;
    }
    return p->at != AT_END;
}

bool protocol_ask(struct protocol *p, enum protocol_job job, size_t point, bool waits) {
    p->job = job;
    p->point = point;
    p->waits = waits || job == PROTOCOL_PUT || job == PROTOCOL_WAIT || job == PROTOCOL_FINISH;
    p->is_put = false;
    switch (job) {
    case PROTOCOL_TURN:
        p->at = AT_LOOK;
        break;
    case PROTOCOL_OVER:
        p->points[point].state = POINT_OVER;
        p->at = AT_RELEASE;
        break;
    case PROTOCOL_PUT:
        p->at = AT_BEGIN;
        break;
    case PROTOCOL_PUT_READY:
        go_on(p);
        break;
    case PROTOCOL_WAIT:
    case PROTOCOL_FINISH:
        find_left(p, 0);
        break;
    }
    return p->at != AT_END;
}

enum point_state protocol_do(struct protocol *p, enum protocol_job job, size_t point, bool waits) {
    bool goes_on = protocol_ask(p, job, point, waits);
    while (goes_on) {
        goes_on = protocol_step(p);
    }
    return point < p->n ? (enum point_state)p->points[point].state : POINT_OVER;
}

void protocol_ended(struct protocol *p, size_t point) {
    ASSERT(p->points[point].state <= POINT_CLAIMED);
    p->points[point].state = POINT_ENDED;
    p->n_late += point < p->n_put;
}
