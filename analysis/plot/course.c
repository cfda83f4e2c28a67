#include "analysis/plot/course.h"

#include <gsl/gsl_sort.h>
#include <stdbool.h>
#include <stdlib.h>

/* What the callbacks share. */
struct loading {
    struct course *course;
    int64_t start_ns, end_ns; /* first arrival, last finish */
    double bin_ns;
    bool from_steps;
};

static int find_extent(void *state, const struct request_record *r, struct err *err) {
    struct loading *loading = state;
    (void)err;
    if (loading->start_ns < 0 || r->arrival_ns < loading->start_ns) {
        loading->start_ns = r->arrival_ns;
    }
    if (r->finished_ns > loading->end_ns) {
        loading->end_ns = r->finished_ns;
    }
    if (r->state != REQUEST_DONE) {
        return 0;
    }
    struct course *course = loading->course;
    series_push(&course->latency_s, (double)(r->finished_ns - r->arrival_ns) / 1e9);
    if (r->first_block_ns >= 0) {
        series_push(&course->ttfb_s, (double)(r->first_block_ns - r->arrival_ns) / 1e9);
    }
    return 0;
}

/* Spreads `amount` evenly over [from_ns, to_ns); an instant goes into its bin whole. */
static void spread(const struct loading *loading, double *bins, int64_t from_ns, int64_t to_ns,
                   double amount) {
    double from = (double)(from_ns - loading->start_ns) / loading->bin_ns;
    double to = (double)(to_ns - loading->start_ns) / loading->bin_ns;
    from = from < 0 ? 0 : from > COURSE_BINS ? COURSE_BINS : from;
    to = to < from ? from : to > COURSE_BINS ? COURSE_BINS : to;
    int first = (int)from < COURSE_BINS ? (int)from : COURSE_BINS - 1;
    if (to == from) {
        bins[first] += amount;
        return;
    }
    for (int i = first; i < COURSE_BINS && i < to; i++) {
        double low = from > i ? from : i, high = to < i + 1 ? to : i + 1;
        bins[i] += amount * (high - low) / (to - from);
    }
}

/* Adds the share of each bin that lies in [from_ns, to_ns). */
static void cover(const struct loading *loading, double *bins, int64_t from_ns, int64_t to_ns) {
    if (to_ns > from_ns) {
        spread(loading, bins, from_ns, to_ns, (double)(to_ns - from_ns) / loading->bin_ns);
    }
}

/* What became of a request that was under way when the recording ended, nobody knows. */
static int add_request(void *state, const struct request_record *r, struct err *err) {
    (void)err;
    struct loading *loading = state;
    if (r->state == REQUEST_QUEUED) {
        return 0;
    }
    struct course *course = loading->course;
    int64_t left_ns = r->finished_ns >= 0 ? r->finished_ns : loading->end_ns;
    int64_t admitted_ns = r->admitted_ns >= 0 ? r->admitted_ns : left_ns;
    cover(loading, course->waiting, r->arrival_ns, admitted_ns);
    cover(loading, course->running, admitted_ns, left_ns);
    if (!loading->from_steps && r->state == REQUEST_DONE) {
        spread(loading, course->tokens_per_s, admitted_ns, left_ns, r->committed_tokens);
    }
    return 0;
}

static int add_step(void *state, const struct step_record *r, struct err *err) {
    (void)err;
    struct loading *loading = state;
    uint64_t tokens = 0;
    for (uint32_t i = 0; r->commit_tokens != NULL && i < r->n; i++) {
        tokens += r->commit_tokens[i];
    }
    spread(loading, loading->course->tokens_per_s, r->start_ns, r->end_ns,
           (double)tokens * r->repeat);
    return 0;
}

int course_load(struct store *store, const struct stored_run *run, struct course *out,
                struct err *err) {
    *out = (struct course){0};
    struct loading loading = {
        .course = out, .start_ns = -1, .end_ns = -1, .from_steps = run->n_steps > 0};
    int failed = store_load_requests(store, run->run, find_extent, &loading, err);
    if (loading.end_ns <= loading.start_ns) {
        loading.end_ns = loading.start_ns + 1;
    }
    loading.bin_ns = (double)(loading.end_ns - loading.start_ns) / COURSE_BINS;
    if (failed == 0) {
        failed = store_load_requests(store, run->run, add_request, &loading, err);
    }
    if (failed == 0 && loading.from_steps) {
        failed = store_load_steps(store, run->run, add_step, &loading, err);
    }
    if (failed != 0) {
        course_fini(out);
        return failed;
    }
    gsl_sort(out->latency_s.values, 1, out->latency_s.n);
    gsl_sort(out->ttfb_s.values, 1, out->ttfb_s.n);
    for (int i = 0; i < COURSE_BINS; i++) {
        out->time_s[i] = (i + 0.5) * loading.bin_ns / 1e9;
        out->tokens_per_s[i] /= loading.bin_ns / 1e9;
    }
    return 0;
}

void course_fini(struct course *course) {
    free(course->latency_s.values);
    free(course->ttfb_s.values);
    course->latency_s = course->ttfb_s = (struct series){0};
}
