#include "analysis/plot/course.h"

#include <math.h>
#include <stdbool.h>

struct loading {
    struct course *course;
    int64_t start_ns, end_ns; /* first arrival, last finish */
    double bin_ns;
    bool from_steps;
    uint32_t replicas;
};

static void find_extent(const struct requests *requests, struct loading *loading) {
    for (size_t i = 0; i < requests->n; i++) {
        const struct request_record *r = &requests->items[i];
        if (loading->start_ns < 0 || r->arrival_ns < loading->start_ns) {
            loading->start_ns = r->arrival_ns;
        }
        if (r->finished_ns > loading->end_ns) {
            loading->end_ns = r->finished_ns;
        }
    }
    if (loading->end_ns <= loading->start_ns) {
        loading->end_ns = loading->start_ns + 1;
    }
    loading->bin_ns =
        (double)(loading->end_ns - loading->start_ns) / (double)loading->course->n_bins;
}

/* Spreads `amount` evenly over [from_ns, to_ns); an instant goes into its bin whole. */
static void spread(const struct loading *loading, enum course_field field, int64_t from_ns,
                   int64_t to_ns, double amount) {
    double *bins = loading->course->bins[field];
    const int n = (int)loading->course->n_bins;
    double from = (double)(from_ns - loading->start_ns) / loading->bin_ns;
    double to = (double)(to_ns - loading->start_ns) / loading->bin_ns;
    from = from < 0 ? 0 : from > n ? n : from;
    to = to < from ? from : to > n ? n : to;
    int first = (int)from < n ? (int)from : n - 1;
    if (to == from) {
        bins[first] += amount;
        return;
    }
    for (int i = first; i < n && i < to; i++) {
        double low = from > i ? from : i, high = to < i + 1 ? to : i + 1;
        bins[i] += amount * (high - low) / (to - from);
    }
}

/* Adds `level` times the share of each bin that lies in [from_ns, to_ns). */
static void cover(const struct loading *loading, enum course_field field, int64_t from_ns,
                  int64_t to_ns, double level) {
    if (to_ns > from_ns) {
        spread(loading, field, from_ns, to_ns, level * (double)(to_ns - from_ns) / loading->bin_ns);
    }
}

/* A request that was under way when the recording ended has no known finish. */
static void add_request(const struct loading *loading, const struct request_record *r) {
    if (r->state == REQUEST_QUEUED) {
        return;
    }
    int64_t left_ns = r->finished_ns >= 0 ? r->finished_ns : loading->end_ns;
    int64_t admitted_ns = r->admitted_ns >= 0 ? r->admitted_ns : left_ns;
    cover(loading, COURSE_WAITING, r->arrival_ns, admitted_ns, 1);
    cover(loading, COURSE_RUNNING, admitted_ns, left_ns, 1);
    if (!loading->from_steps && r->state == REQUEST_DONE) {
        spread(loading, COURSE_TOKENS_PER_S, admitted_ns, left_ns, r->committed_tokens);
    }
}

static int add_step(void *state, const struct step_record *r, struct err *err) {
    (void)err;
    struct loading *loading = state;
    uint64_t tokens = 0;
    for (uint32_t i = 0; r->commit_tokens != NULL && i < r->n; i++) {
        tokens += r->commit_tokens[i];
    }
    spread(loading, COURSE_TOKENS_PER_S, r->start_ns, r->end_ns, (double)tokens * r->repeat);
    cover(loading, COURSE_BUSY, r->start_ns, r->end_ns, 1);
    cover(loading, COURSE_BATCH, r->start_ns, r->end_ns, r->n);
    cover(loading, COURSE_KV_BYTES, r->start_ns, r->end_ns, (double)r->kv_used_bytes);
    loading->replicas = r->replica >= loading->replicas ? r->replica + 1 : loading->replicas;
    return 0;
}

/* From sums over the bins to what they mean. */
static void settle(const struct loading *loading) {
    struct course *course = loading->course;
    for (size_t i = 0; i < course->n_bins; i++) {
        double *busy = &course->bins[COURSE_BUSY][i];
        course->bins[COURSE_TIME_S][i] = ((double)i + 0.5) * loading->bin_ns / 1e9;
        course->bins[COURSE_TOKENS_PER_S][i] /= loading->bin_ns / 1e9;
        course->bins[COURSE_BATCH][i] /= *busy; /* 0 / 0 is NaN */
        course->bins[COURSE_KV_BYTES][i] /= *busy;
        *busy = loading->from_steps ? *busy / loading->replicas : (double)NAN;
    }
}

int course_load(struct store *store, const struct stored_run *run, const struct requests *requests,
                size_t n_bins, struct course *out, struct err *err) {
    *out = (struct course){.n_bins = n_bins};
    struct loading loading = {
        .course = out, .start_ns = -1, .end_ns = -1, .from_steps = run->n_steps > 0, .replicas = 1};
    find_extent(requests, &loading);
    for (size_t i = 0; i < requests->n; i++) {
        add_request(&loading, &requests->items[i]);
    }
    if (loading.from_steps && store_load_steps(store, run->run, add_step, &loading, err) != 0) {
        return (int)err->kind;
    }
    settle(&loading);
    return 0;
}
