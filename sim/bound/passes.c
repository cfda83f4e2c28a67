#include "sim/bound/passes.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/bound/words.h"
#include "sim/policy/plugin/registry.h"
#include "sim/serve/loop.h"

/* ---- one request at a time ---- */

/* Its state is the words that the schedulers bounded say at least. */
static void schedule(void *opaque, const struct schedule_view *view, struct batch *batch) {
    const struct words *fewest = opaque;
    bool admits = view->n_running == 0;
    uint32_t slot = admits ? view->waiting[0] : view->running[0];
    const struct request *request = &view->requests[slot];
    batch->selected[batch->n++] = slot;
    batch->n_admitted = admits;
    batch->hold = HOLD_CLOSED;
    batch->says = fewest->threshold_millionths > 0;
    if (fewest->threshold_millionths < view->threshold_millionths) { /* else valves leave it so */
        batch->threshold_millionths[0] = fewest->threshold_millionths;
    }
    if (request->span.phase == PHASE_PREFILL && request->span.queries > view->max_batched_tokens) {
        batch->chunk_tokens[0] = window_whole(request, view->max_batched_tokens);
    }
}

/* ---- the executor that lists ---- */

struct lister {
    struct passes *out;
    struct span spared; /* the refresh in whose place the next pass runs; no queries: none */
    int64_t now_ns, start_ns;
    uint32_t steps;            /* in flight; 0: none */
    bool is_open;              /* the last of the requests listed is not done */
    bool is_cut;               /* the last pass listed is to be cut to what it commits */
    uint32_t committed, first; /* by its request before it; of the positions of its window */
};

static void list(struct lister *lister, const struct span *span, uint32_t times, int64_t kv_bytes) {
    struct passes *out = lister->out;
    out->items = mem_grown(out->items, out->n, &out->room, sizeof *out->items);
    out->items[out->n++] = (struct pass){.span = *span, .times = times, .kv_bytes = kv_bytes};
    out->requests[out->n_requests - 1].n++;
}

void pass_cut(struct pass *pass, uint32_t rows, uint32_t context) {
    struct span *span = &pass->span;
    span->queries = smaller(span->queries, rows);
    span->first_queries = smaller(span->first_queries, rows);
    span->logit_rows = smaller(span->logit_rows, rows);
    span->sampled_rows = smaller(span->sampled_rows, rows);
    span->kept_queries = smaller(span->kept_queries, rows);
    span->context = smaller(span->context, context > 0 ? context : 1);
    span->kept_keys = smaller(span->kept_keys, span->context + rows);
}

/* Once it is known how many positions the last pass listed has committed. */
static void cut_last(struct lister *lister, uint32_t committed) {
    if (lister->is_cut) {
        struct pass *pass = &lister->out->items[lister->out->n - 1];
        const uint32_t rows = (committed - lister->committed) / pass->times;
        pass_cut(pass, rows > 0 ? rows : 1, lister->first);
        lister->is_cut = false;
    }
}

/* What passes of its type can be that are not cut. */
static void widen(struct passes *passes, const struct pass *pass) {
    int64_t at[PASS_COORDS], *most = passes->uncut[pass_type_of(pass)];
    pass_coords(pass, at);
    for (int c = 0; c < PASS_COORDS; c++) {
        most[c] = at[c] > most[c] ? at[c] : most[c];
    }
}

static int submit(void *state, const struct submission *submission, struct err *err) {
    struct lister *lister = state;
    struct passes *out = lister->out;
    const struct planned_step *step = &submission->step;
    (void)err;
    ASSERT(step->n_slots == 1 && step->n_idle == 0 && lister->steps == 0);
    const struct request *request = &step->requests[step->slots[0]];
    cut_last(lister, request->committed_tokens);
    if (!lister->is_open) {
        out->requests =
            mem_grown(out->requests, out->n_requests, &out->requests_room, sizeof *out->requests);
        out->requests[out->n_requests++] = (struct passenger){
            .id = request->id, .arrival_ns = request->arrival_ns, .first = out->n};
        lister->is_open = true;
    }
    list(lister, &request->span, submission->repeat, request->kv_bytes);
    if (lister->spared.queries > 0) {
        list(lister, &lister->spared, 0, request->kv_bytes);
        lister->spared.queries = 0;
    }
    if (out->is_cut && request->span.phase == PHASE_REUSE) {
        widen(out, &out->items[out->n - 1]);
        lister->is_cut = window_masked(request) > 0;
        lister->committed = request->committed_tokens;
        lister->first = window_first(request);
    }
    lister->start_ns = lister->now_ns;
    lister->steps = submission->repeat;
    return 0;
}

/* Every step takes a nanosecond. */
static int wait_next(void *state, int64_t until_ns, struct completion *out, struct err *err) {
    struct lister *lister = state;
    (void)err;
    if (lister->steps > 0) {
        lister->now_ns += lister->steps;
        *out = (struct completion){.kind = COMPLETION_BATCH,
                                   .time_ns = lister->now_ns,
                                   .steps = lister->steps,
                                   .start_ns = lister->start_ns};
        lister->steps = 0;
        return 0;
    }
    bool ends = until_ns == INT64_MAX;
    lister->now_ns = !ends && until_ns > lister->now_ns ? until_ns : lister->now_ns;
    *out = (struct completion){.kind = ends ? COMPLETION_IDLE : COMPLETION_TIME,
                               .time_ns = lister->now_ns};
    return 0;
}

static int64_t estimate_ns(const void *state, uint32_t replica, const struct step_shape *shape,
                           int64_t bytes, double *joules) {
    (void)state, (void)replica, (void)shape, (void)bytes;
    *joules = 0;
    return 1;
}

static int end_request(void *state, const struct request_record *record, struct err *err) {
    struct lister *lister = state;
    (void)err;
    if (record->state == REQUEST_DONE) {
        cut_last(lister, record->committed_tokens);
        lister->out->requests[lister->out->n_requests - 1].tokens = record->committed_tokens;
        lister->is_open = false;
    } else {
        lister->out->rejected++;
    }
    return 0;
}

int passes_list(const struct passes_request *request, struct passes *out, struct err *err) {
    const struct scheduler *asked = request->system->scheduler;
    const bool puts_off = asked->reads_all != 0 || !policy_is_built_in(&asked->policy);
    const struct scheduler alone = {.policy = {.abi = POLICY_ABI,
                                               .kind = POLICY_SCHEDULER,
                                               .size = sizeof(struct scheduler),
                                               .state_bytes = sizeof(struct words),
                                               .name = "alone"},
                                    .grows = asked->grows,
                                    .reads_all = puts_off,
                                    .schedule = schedule};
    struct words fewest;
    if (!words_fewest(request->system, &fewest)) {
        return err_usage(err,
                         "scheduler %s says widths, thresholds or rows, and the fewest passes "
                         "under it are not known, so that it has no bound; another scheduler with "
                         "that block_tokens or decoder.threshold has one",
                         asked->policy.name);
    }
    *out = (struct passes){.is_closed = request->source.completed != NULL,
                           .is_cut = fewest.leaves_rows};
    struct lister lister = {.out = out};
    struct system *system = mem_copied(request->system, sizeof *system);
    system->scheduler = &alone;
    system->scheduler_state = &fewest;
    system->settings.replicas = 1;
    system->settings.unroll_maximum = 1;
    system->settings.decides_ahead = false;
    const struct sink sink = {.state = &lister, .request = end_request};
    const struct loop_request loop = {.system = system,
                                      .executor = {.state = &lister,
                                                   .shares_prefixes = true,
                                                   .assumes_prefixes = true,
                                                   .submit = submit,
                                                   .wait = wait_next,
                                                   .estimate_ns = estimate_ns},
                                      .spared = puts_off ? &lister.spared : NULL,
                                      .source = request->source,
                                      .sinks = &sink,
                                      .n_sinks = 1,
                                      .seed = request->seed,
                                      .decode = request->decode,
                                      .stop = request->stop};
    struct loop_result result;
    int status = loop_run(&loop, &result, err);
    free(system);
    if (status == 0 && result.interrupted) {
        status = err_world(err, "interrupted: the bound is not found yet");
    }
    if (status != 0) {
        passes_fini(out);
    }
    return status;
}

void passes_fini(struct passes *passes) {
    free(passes->items);
    free(passes->requests);
    *passes = (struct passes){0};
}

/* ---- what they add up to ---- */

void pass_coords(const struct pass *pass, int64_t at[PASS_COORDS]) {
    memset(at, 0, PASS_COORDS * sizeof *at);
    shape_add(at, &pass->span, 1);
    at[PASS_KV] = pass->kv_bytes;
}

uint32_t pass_type_of(const struct pass *pass) {
    return 2 * pass->span.phase + (pass->span.select_rows > 0);
}

enum host_kind pass_host_kind(const struct pass *pass) {
    bool is_whole = pass->span.phase == PHASE_REFRESH || pass->span.phase == PHASE_PREFILL;
    return pass->span.select_rows > 0 ? HOST_SELECT : is_whole ? HOST_REFRESH : HOST_REUSE;
}

static bool waits(const struct graph *graph, const int64_t at[PASS_COORDS]) {
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const struct op_type *type = op_types[graph->ops[i].kind];
        if (type->waits != NULL && type->waits(at)) {
            return true;
        }
    }
    return false;
}

void passes_sum(const struct passes *passes, const struct system *system,
                struct pass_type types[PASS_TYPES]) {
    bool is_known[PASS_TYPES] = {0};
    memset(types, 0, PASS_TYPES * sizeof *types);
    for (size_t i = 0; i < passes->n; i++) {
        const struct pass *pass = &passes->items[i];
        const uint32_t t = pass_type_of(pass);
        struct pass_type *type = &types[t];
        int64_t at[PASS_COORDS];
        pass_coords(pass, at);
        const bool is_first = !is_known[t];
        is_known[t] = true;
        type->phase = (enum phase)pass->span.phase;
        type->kind = pass_host_kind(pass);
        type->waits = (is_first || type->waits) && waits(&system->graph, at);
        type->n += pass->times;
        for (int c = 0; c < PASS_COORDS; c++) {
            type->total[c] += (double)pass->times * (double)at[c];
            type->least[c] = is_first || at[c] < type->least[c] ? at[c] : type->least[c];
            type->most[c] = is_first || at[c] > type->most[c] ? at[c] : type->most[c];
        }
        if (pass->times == 0) { /* it may come to run later, with fewer rows in the head */
            type->least[SYM_LOGIT_ROWS] = type->least[SYM_SAMPLED_ROWS] = 0;
        }
        if (passes->is_cut && type->phase == PHASE_REUSE) {
            memcpy(type->most, passes->uncut[t], sizeof type->most);
        }
        if ((type->phase == PHASE_PREFILL && system->scheduler->grows) ||
            (type->phase == PHASE_REUSE && passes->is_cut)) {
            memset(type->least, 0, sizeof type->least);
            type->least[SYM_TOKENS] = 1;
            type->least[SYM_REQUESTS] = 1;
        }
    }
}
