#include "experiments/study/point.h"

#include <stdio.h>

#include "analysis/caution.h"

int point_run(const struct run_request *request, struct point *out, struct err *err) {
    *out = (struct point){0};
    struct composition *composition = NULL;
    const struct run_watch unwatched = {0};
    int status = compose_open(request, &composition, err);
    if (status == 0) {
        status = compose_run(composition, &unwatched, err);
    }
    if (status == 0) {
        const struct summary *summary = &composition->summary;
        const struct run_facts *facts = &composition->facts;
        /* Papers count what users read. */
        out->throughput = summary->throughput_answer_tok_s;
        out->tpf = summary->tpf_answer;
        out->ms_per_forward = 1000 * summary->tpf / summary->throughput_tok_s;
        out->avg_latency = summary->latency.mean;
        out->latency_std = summary->latency.std;
        out->latency_min = summary->latency.min;
        out->latency_max = summary->latency.max;
        out->latency_span = summary->latency.max - summary->latency.min;
        snprintf(out->profile, sizeof out->profile, "%s: %s", facts->gpu, facts->profile_kind);
        snprintf(out->provenance, sizeof out->provenance, "%s", facts->trace_provenance);
        out->is_drawn = facts->is_drawn;
        struct warnings warnings = caution_of(summary, facts);
        for (unsigned i = 0; i < warnings.n; i++) {
            out->codes |= 1U << warnings.items[i].code;
        }
    }
    compose_close(composition);
    return status;
}

struct point point_mean(const struct point *points, size_t n) {
    struct point mean = points[0];
    double *const sums[] = {&mean.tpf,         &mean.ms_per_forward, &mean.throughput,
                            &mean.avg_latency, &mean.latency_std,    &mean.latency_min,
                            &mean.latency_max, &mean.latency_span};
    for (size_t i = 1; i < n; i++) {
        const struct point *point = &points[i];
        const double values[] = {point->tpf,         point->ms_per_forward, point->throughput,
                                 point->avg_latency, point->latency_std,    point->latency_min,
                                 point->latency_max, point->latency_span};
        for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++) {
            *sums[k] += values[k];
        }
        mean.codes |= point->codes;
    }
    for (size_t k = 0; n > 1 && k < sizeof sums / sizeof sums[0]; k++) {
        *sums[k] /= (double)n;
    }
    return mean;
}
