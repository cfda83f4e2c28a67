#include "sim/bound/bound.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/bound/known.h"

/* At least what a step takes that has the pass in it. A prefill that may be cut into chunks takes
 * its price, which the chunks share. */
static double least_ns(const struct price_parts *parts, const struct prices *prices,
                       const struct pass *pass) {
    bool is_cut = pass->span.phase == PHASE_PREFILL && parts->system->scheduler->grows;
    double price_ns = price_of(prices, pass);
    return is_cut ? price_ns : fmax(price_ns, parts_alone_ns(parts, pass));
}

/* What a refresh of the request costs at least, wherever it takes place, and its step. */
struct floor {
    double price_ns, alone_ns;
};

static struct floor floor_of(const struct passes *passes, const struct passenger *request,
                             const struct price_parts *parts, const struct prices *prices) {
    struct floor floor = {INFINITY, INFINITY};
    for (size_t i = 0; i < request->n; i++) {
        struct pass pass = passes->items[request->first + i];
        if (pass.span.phase == PHASE_REFRESH) {
            pass.span.logit_rows = pass.span.sampled_rows = 0;
            floor.price_ns = fmin(floor.price_ns, price_of(prices, &pass));
            floor.alone_ns = fmin(floor.alone_ns, least_ns(parts, prices, &pass));
        }
    }
    return floor;
}

/* From the last pass to the first: what is left of the request after each. Where a refresh may take
 * a pass's place, the cheaper one counts. Rows that a scheduler may spread over more passes count
 * for the work; that of a row in each pass is known to be where the pass is. */
static struct machine_job job_of(const struct passes *passes, const struct passenger *request,
                                 const struct price_parts *parts, const struct prices *prices) {
    const struct floor floor = floor_of(passes, request, parts, prices);
    struct machine_job job = {.release_ns = (double)request->arrival_ns};
    double behind_ns = 0;
    for (size_t i = request->n; i-- > 0;) {
        const struct pass *pass = &passes->items[request->first + i];
        struct pass least = *pass;
        if (passes->is_cut && pass->span.phase == PHASE_REUSE) {
            pass_cut(&least, 1, UINT32_MAX);
        }
        double price_ns = price_of(prices, pass), alone_ns = least_ns(parts, prices, &least);
        double placed_ns = price_of(prices, &least);
        if (i + 1 < request->n && pass[1].times == 0) {
            price_ns = placed_ns = fmin(price_ns, floor.price_ns);
            alone_ns = fmin(alone_ns, floor.alone_ns);
        }
        double times = pass->times;
        job.work_ns += times * price_ns;
        job.tail_ns += times * placed_ns * (behind_ns + times * alone_ns / 2);
        behind_ns += times * alone_ns;
    }
    job.alone_ns = behind_ns;
    job.tail_ns = job.work_ns > 0 ? job.tail_ns / job.work_ns : behind_ns;
    return job;
}

static void settle(const struct passes *passes, const struct machine_job *jobs, double speed,
                   int64_t latency_ns, struct bound *out) {
    struct machine_limits limits;
    double work_ns = 0;
    machine_run(jobs, out->requests, speed, &limits);
    for (size_t i = 0; i < out->requests; i++) {
        work_ns += jobs[i].work_ns / speed;
        out->tokens += passes->requests[i].tokens;
    }
    double first_ns = out->requests > 0 ? jobs[0].release_ns : 0, tokens = (double)out->tokens;
    out->work_s = work_ns * 1e-9;
    out->makespan_s = out->is_closed ? out->work_s : (limits.end_ns - first_ns) * 1e-9;
    out->throughput_tok_s = out->makespan_s > 0 ? tokens / out->makespan_s : 0;
    out->saturated_tok_s = work_ns > 0 ? tokens / out->work_s : 0;
    out->saturated_req_s = work_ns > 0 ? (double)out->requests / out->work_s : 0;
    out->mean_by_passes_s = limits.mean_by_passes_ns * 1e-9;
    out->mean_by_work_s = out->is_closed ? (double)NAN : limits.mean_by_work_ns * 1e-9;
    out->mean_by_both_s = out->is_closed ? (double)NAN : limits.mean_by_both_ns * 1e-9;
    out->mean_latency_s = out->is_closed ? out->mean_by_passes_s : limits.mean_latency_ns * 1e-9;
    double p99_ns = machine_quantile(jobs, out->requests, out->is_closed ? 0 : speed, 0.99);
    out->p99_latency_s = p99_ns * 1e-9;
    out->on_time = (double)NAN;
    if (latency_ns > 0 && !out->is_closed && out->requests + out->rejected > 0) {
        out->on_time = (double)machine_on_time(jobs, out->requests, speed, (double)latency_ns) /
                       (double)(out->requests + out->rejected);
    }
}

/* Prices of the passes, and the jobs that they make of the requests. */
static int find_jobs(const struct passes_request *request, const struct passes *passes,
                     struct bound *out, struct machine_job *jobs, struct err *err) {
    const struct known_of of = {request->known_as, passes, out->types};
    struct price_parts parts = {0};
    if (of.system != NULL && known_take(&of, &out->prices, jobs)) {
        for (size_t i = 0; i < passes->n_requests; i++) {
            jobs[i].release_ns = (double)passes->requests[i].arrival_ns;
        }
        return 0;
    }
    int status = parts_open(request->system, out->types, passes->n_requests, &parts, err);
    status = status != 0 ? status : prices_find(&parts, out->types, &out->prices, err);
    for (size_t i = 0; status == 0 && i < passes->n_requests; i++) {
        jobs[i] = job_of(passes, &passes->requests[i], &parts, &out->prices);
    }
    if (status == 0 && of.system != NULL) {
        known_keep(&of, &out->prices, jobs);
    }
    parts_close(&parts);
    return status;
}

int bound_find(const struct passes_request *request, int64_t latency_ns, struct bound *out,
               struct err *err) {
    const struct system *system = request->system;
    struct passes passes;
    *out = (struct bound){.at_highest_clock = cost_power(system->cost) != NULL};
    int status = passes_list(request, &passes, err);
    if (status != 0) {
        return status;
    }
    passes_sum(&passes, system, out->types);
    struct machine_job *jobs = mem_unwritten(passes.n_requests + 1, sizeof *jobs);
    status = find_jobs(request, &passes, out, jobs, err);
    if (status == 0) {
        out->requests = passes.n_requests;
        out->rejected = passes.rejected;
        out->is_closed = passes.is_closed;
        for (int t = 0; t < PASS_TYPES; t++) {
            out->n_passes += (uint64_t)out->types[t].n;
        }
        settle(&passes, jobs, system->settings.replicas, latency_ns, out);
    }
    free(jobs);
    passes_fini(&passes);
    return status;
}
