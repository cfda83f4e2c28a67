#include "traces/conversations.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "sim/base/mem.h"

/* Later arrivals are an error: 146 years. */
static const int64_t max_arrival_ns = INT64_C(1) << 62;

static const uint64_t none = UINT64_MAX;

/* A row that may arrive. */
struct ready {
    int64_t at_ns;
    uint64_t row;
};

struct conversations {
    struct arrival *rows;
    uint64_t *next; /* of each row: the next turn, or `none` */
    size_t n, room;
    struct ready *heap; /* what may arrive, the earliest first */
    size_t n_heap;
    uint64_t n_behind; /* rows that follow a turn that has not left */
};

/* ---- the heap ---- */

static bool is_before(struct ready a, struct ready b) {
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.row < b.row;
}

static void push(struct conversations *s, struct ready ready) {
    size_t at = s->n_heap++;
    for (; at > 0 && is_before(ready, s->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        s->heap[at] = s->heap[(at - 1) / 2];
    }
    s->heap[at] = ready;
}

static struct ready pop(struct conversations *s) {
    struct ready first = s->heap[0], last = s->heap[--s->n_heap];
    size_t at = 0, below;
    while ((below = 2 * at + 1) < s->n_heap) {
        below += below + 1 < s->n_heap && is_before(s->heap[below + 1], s->heap[below]);
        if (!is_before(s->heap[below], last)) {
            break;
        }
        s->heap[at] = s->heap[below];
        at = below;
    }
    s->heap[at] = last;
    return first;
}

/* ---- reading ---- */

struct turn {
    uint64_t session, row;
};

static int by_session(const void *a, const void *b) {
    const struct turn *x = a, *y = b;
    return x->session != y->session ? (x->session > y->session) - (x->session < y->session)
                                    : (x->row > y->row) - (x->row < y->row);
}

/* What of a turn's prompt the turn before it has left. */
static uint32_t shared_with(const struct arrival *before, const struct arrival *turn) {
    uint32_t answer = before->answer_tokens > 0 ? before->answer_tokens : before->output_tokens;
    uint64_t whole = (uint64_t)before->prompt_tokens + answer;
    return whole < turn->prompt_tokens ? (uint32_t)whole : turn->prefix_tokens;
}

/* Under which a row's prompt and output can be shared by the next turn. */
static uint64_t name_turn(uint64_t session, size_t row) {
    uint64_t mixed =
        (session ^ (row + 1) * UINT64_C(0xBF58476D1CE4E5B9)) * UINT64_C(0x9E3779B97F4A7C15);
    return (mixed ^ mixed >> 29) | 1;
}

/* Links each row to the next of its session, and puts those that follow none on the heap. */
static void link_turns(struct conversations *s) {
    struct turn *turns = mem_unwritten(s->n, sizeof *turns);
    s->next = mem_unwritten(s->n, sizeof *s->next);
    s->heap = mem_unwritten(s->n, sizeof *s->heap);
    for (size_t i = 0; i < s->n; i++) {
        turns[i] = (struct turn){s->rows[i].session, i};
    }
    qsort(turns, s->n, sizeof *turns, by_session);
    for (size_t i = 0; i < s->n; i++) {
        struct arrival *row = &s->rows[turns[i].row];
        s->next[turns[i].row] = none;
        row->leaves = row->session != 0 && row->leaves == 0 ? name_turn(row->session, turns[i].row)
                                                            : row->leaves;
        if (row->session == 0 || i == 0 || turns[i - 1].session != row->session) {
            push(s, (struct ready){row->arrival_ns, turns[i].row});
            continue;
        }
        s->next[turns[i - 1].row] = turns[i].row;
        s->n_behind++;
        row->prefix_tokens = row->prefix_tokens > 0 ? row->prefix_tokens
                                                    : shared_with(&s->rows[turns[i - 1].row], row);
        row->shares = row->shares != 0 ? row->shares : s->rows[turns[i - 1].row].leaves;
    }
    free(turns);
}

int conversations_open(struct arrival_source rows, uint64_t n, struct conversations **out,
                       struct err *err) {
    struct conversations *s = mem_zeroed(1, sizeof *s);
    enum source_reply reply = SOURCE_ROW;
    while (reply == SOURCE_ROW && (n == 0 || s->n < n)) {
        s->rows = mem_grown(s->rows, s->n, &s->room, sizeof *s->rows);
        reply = rows.next(rows.state, &s->rows[s->n], err);
        if (reply == SOURCE_ROW && s->n == CONVERSATIONS_MOST_ROWS) {
            err_usage(err, "found more than %d requests of conversations, expected at most as many",
                      CONVERSATIONS_MOST_ROWS);
            reply = SOURCE_BAD;
        }
        if (reply == SOURCE_ROW) {
            s->rows[s->n].id = s->n;
            s->n++;
        }
    }
    *out = NULL;
    if (reply == SOURCE_BAD) {
        conversations_close(s);
        return err_status(err);
    }
    ASSERT(reply != SOURCE_WAIT && s->n > 0);
    link_turns(s);
    *out = s;
    return 0;
}

void conversations_close(struct conversations *talks) {
    if (talks != NULL) {
        free(talks->rows);
        free(talks->next);
        free(talks->heap);
        free(talks);
    }
}

/* ---- the source ---- */

static enum source_reply give_turn(void *state, struct arrival *out, struct err *err) {
    struct conversations *s = state;
    if (s->n_heap == 0) {
        return s->n_behind > 0 ? SOURCE_WAIT : SOURCE_END;
    }
    struct ready first = pop(s);
    if (first.at_ns >= max_arrival_ns) {
        err_usage(err, "a conversation's turn arrives beyond 146 years: expected less time to "
                       "think or fewer turns");
        return SOURCE_BAD;
    }
    *out = s->rows[first.row];
    out->arrival_ns = first.at_ns;
    return SOURCE_ROW;
}

static void take_completion(void *state, uint64_t id, int64_t now_ns) {
    struct conversations *s = state;
    ASSERT(id < s->n);
    uint64_t next = s->next[id];
    if (next == none) {
        return;
    }
    const struct arrival *row = &s->rows[next];
    int64_t at_ns = row->arrival_ns > now_ns ? row->arrival_ns : now_ns;
    if (row->think_ns >= 0) {
        at_ns = row->think_ns < max_arrival_ns - now_ns ? now_ns + row->think_ns : max_arrival_ns;
    }
    s->n_behind--;
    s->rows[next].follows = id + 1;
    push(s, (struct ready){at_ns, next});
}

static void take_back(void *state, const struct arrival *row) {
    push(state, (struct ready){row->arrival_ns, row->id});
}

struct arrival_source conversations_source(struct conversations *talks) {
    return (struct arrival_source){
        .state = talks, .next = give_turn, .completed = take_completion, .back = take_back};
}
