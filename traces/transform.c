#include "traces/transform.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

/* ---- replay ---- */

static enum source_reply too_late(struct err *err) {
    err_usage(err, "the replayed arrivals reach beyond 146 years: expected fewer requests or a "
                   "higher rate");
    return SOURCE_BAD;
}

static enum source_reply next_round(struct replay *replay, struct arrival *out, struct err *err) {
    /* A round without rows would repeat for ever. */
    if (replay->again.rewind == NULL || replay->n_round == 0) {
        return SOURCE_END;
    }
    if (replay->round_ns > INT64_MAX / 2 - replay->period_ns) {
        return too_late(err);
    }
    if (replay->again.rewind(replay->again.state, err) != 0) {
        return SOURCE_BAD;
    }
    replay->round_ns += replay->period_ns;
    replay->n_rounds++;
    replay->n_round = 0;
    return replay->inner.next(replay->inner.state, out, err);
}

static enum source_reply give_replayed(void *state, struct arrival *out, struct err *err) {
    struct replay *replay = state;
    enum source_reply reply = replay->inner.next(replay->inner.state, out, err);
    if (reply == SOURCE_END) {
        reply = next_round(replay, out, err);
    }
    if (reply != SOURCE_ROW) {
        return reply;
    }
    if (replay->n_given == 0) {
        replay->first_ns = out->arrival_ns;
    }
    double moved_ns =
        ((double)(out->arrival_ns - replay->first_ns) + (double)replay->round_ns) * replay->factor;
    if (!(moved_ns < 0x1p62)) {
        return too_late(err);
    }
    replay->n_given++;
    replay->n_round++;
    out->arrival_ns = llround(moved_ns);
    /* Conversations of another round are others. */
    out->session += out->session != 0 ? replay->n_rounds * UINT64_C(0x9E3779B97F4A7C15) : 0;
    return SOURCE_ROW;
}

struct arrival_source replay_source(struct replay *replay) {
    return (struct arrival_source){.state = replay, .next = give_replayed};
}

/* ---- survey ---- */

int survey_source(struct arrival_source source, uint64_t max_rows, struct survey *out,
                  struct err *err) {
    *out = (struct survey){0};
    while (max_rows == 0 || out->rows < max_rows) {
        struct arrival row;
        enum source_reply reply = source.next(source.state, &row, err);
        if (reply == SOURCE_BAD) {
            return (int)err->kind;
        }
        if (reply != SOURCE_ROW) {
            break;
        }
        if (out->rows == 0) {
            out->first_ns = row.arrival_ns;
        }
        out->last_ns = row.arrival_ns;
        out->rows++;
    }
    return 0;
}

double survey_rate_per_s(const struct survey *survey) {
    int64_t span_ns = survey->last_ns - survey->first_ns;
    return span_ns > 0 ? (double)(survey->rows - 1) * 1e9 / (double)span_ns : 0;
}

int64_t survey_period_ns(const struct survey *survey) {
    if (survey->rows < 2) {
        return 0;
    }
    int64_t span_ns = survey->last_ns - survey->first_ns;
    int64_t gap_ns = span_ns / (int64_t)(survey->rows - 1);
    return span_ns < INT64_MAX / 2 - gap_ns ? span_ns + gap_ns : INT64_MAX / 2;
}

/* ---- limit ---- */

static enum source_reply give_limited(void *state, struct arrival *out, struct err *err) {
    struct limit *limit = state;
    if (limit->n != 0 && limit->n_given == limit->n) {
        return SOURCE_END;
    }
    enum source_reply reply = limit->inner.next(limit->inner.state, out, err);
    if (reply == SOURCE_ROW) {
        out->id = limit->n_given++;
    }
    return reply;
}

static void pass_completion(void *state, uint64_t id, int64_t now_ns) {
    struct limit *limit = state;
    limit->inner.completed(limit->inner.state, id, now_ns);
}

struct arrival_source limit_source(struct limit *limit) {
    return (struct arrival_source){
        .state = limit,
        .next = give_limited,
        .completed = limit->inner.completed != NULL ? pass_completion : NULL,
    };
}

/* ---- cap ---- */

enum { MAX_DROPS_IN_A_ROW = 1000000 };

static void drop(struct cap *cap, uint64_t id) {
    cap->n_dropped++;
    cap->n_in_a_row++;
    /* A repeated trace numbers its rows anew: list each once. */
    if (cap->n_listed < CAP_MAX_LISTED &&
        (cap->n_listed == 0 || cap->dropped_ids[cap->n_listed - 1] < id)) {
        cap->dropped_ids[cap->n_listed++] = id;
    }
}

/* Whether the row fits, now that its prompt may have been shortened. */
static bool fit(struct cap *cap, struct arrival *row) {
    if ((uint64_t)row->prompt_tokens + row->output_tokens <= cap->context_tokens) {
        return true;
    }
    if (!cap->truncates || row->output_tokens >= cap->context_tokens) {
        return false;
    }
    row->prompt_tokens = cap->context_tokens - row->output_tokens;
    cap->n_truncated++;
    return true;
}

static enum source_reply give_capped(void *state, struct arrival *out, struct err *err) {
    struct cap *cap = state;
    for (;;) {
        enum source_reply reply = cap->inner.next(cap->inner.state, out, err);
        if (reply == SOURCE_ROW && fit(cap, out)) {
            cap->n_kept++;
            cap->n_in_a_row = 0;
            return reply;
        }
        if (reply == SOURCE_ROW) {
            drop(cap, out->id);
        }
        bool gives_up = cap->n_in_a_row == MAX_DROPS_IN_A_ROW ||
                        (reply == SOURCE_END && cap->n_kept == 0 && cap->n_dropped > 0);
        if (gives_up) {
            err_usage(err,
                      "%s: found %" PRIu64 " requests in a row longer than the context of %" PRIu32
                      " tokens, expected some that fit",
                      cap->name, cap->n_in_a_row, cap->context_tokens);
            return SOURCE_BAD;
        }
        if (reply != SOURCE_ROW) {
            return reply;
        }
    }
}

struct arrival_source cap_source(struct cap *cap) {
    return (struct arrival_source){.state = cap, .next = give_capped};
}

void cap_restart(struct cap *cap) {
    cap->n_kept = cap->n_dropped = cap->n_truncated = cap->n_in_a_row = cap->n_listed = 0;
}

/* ---- zip ---- */

static enum source_reply give_zipped(void *state, struct arrival *out, struct err *err) {
    struct zip *zip = state;
    struct arrival time;
    enum source_reply reply = zip->times.next(zip->times.state, &time, err);
    if (reply == SOURCE_ROW) {
        reply = zip->rows.next(zip->rows.state, out, err);
        out->arrival_ns = time.arrival_ns;
    }
    return reply;
}

struct arrival_source zip_source(struct zip *zip) {
    return (struct arrival_source){.state = zip, .next = give_zipped};
}
