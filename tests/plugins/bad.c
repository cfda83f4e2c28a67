/* Plug-ins that each break one promise, for check-plugin to name. This file is compiled once for
 * each: with PLUGIN_bad_starving, the part between its #ifdef and #endif becomes bad_starving.so.
 */
#include <stdlib.h>

#include "tests/plugins/bad.h"
#include "tests/plugins/first_fits.h"

#ifdef PLUGIN_bad_back_count
/* Says that it takes fewer positions back than it marks. */
static uint32_t take_back(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again) {
    (void)state;
    (void)request;
    again[0] = kept->n > 0;
    return 0;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "back-count"),
                                      .choose = choose_first, .take_back = take_back};
#endif

#ifdef PLUGIN_bad_chunking
/* One request at a time, every step of which it cuts in two, prefill or not. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    if (view->n_running + view->n_waiting == 0) {
        return;
    }
    uint32_t slot = view->n_running > 0 ? view->running[0] : view->waiting[0];
    const struct request *request = &view->requests[slot];
    uint32_t half = request->span.queries / 2, block = request->block_tokens;
    half = half < view->max_batched_tokens ? half : view->max_batched_tokens;
    if (request->kv_bytes > view->kv_total_bytes ||
        (request->causal == SEES_CANVAS && request->span.queries > view->max_batched_tokens)) {
        return;
    }
    if (request->causal != SEES_CANVAS) {
        bool is_one_block = request->span.phase == PHASE_PREFILL && half < block;
        batch->chunk_tokens[0] = is_one_block ? 0 : half < block ? half : half / block * block;
    }
    batch->selected[batch->n++] = slot;
    batch->n_admitted = view->n_running == 0;
}

BAD_GROWING_SCHEDULER("chunking");
#endif

#ifdef PLUGIN_bad_crashing
/* Writes to nowhere as soon as something waits. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    volatile uint32_t *volatile nowhere = NULL;
    (void)state;
    if (view->n_waiting > 0) {
        *nowhere = 1;
    }
    batch->all_running = 1;
}

BAD_SCHEDULER("crashing");
#endif

#ifdef PLUGIN_bad_crashing_load
/* Crashes before anybody asks it anything. */
__attribute__((constructor)) static void at_load(void) {
    abort();
}

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    batch->all_running = 1;
}

BAD_SCHEDULER("crashing-load");
#endif

#ifdef PLUGIN_bad_crowded
/* Fills the machine before it runs what is in it, and looks at so many requests alone: many that
 * wait and do not fit hide all that run. */
enum { LOOKED_AT = 256 };

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    uint32_t n = view->n_waiting + view->n_running;
    for (uint32_t i = 0; i < n && i < LOOKED_AT && batch->n == 0; i++) {
        int waits = i < view->n_waiting;
        uint32_t slot = waits ? view->waiting[i] : view->running[i - view->n_waiting];
        const struct request *request = &view->requests[slot];
        int fits = request->kv_bytes <= view->kv_free_bytes && view->n_running < view->max_requests;
        if (request->span.queries <= view->max_batched_tokens && (!waits || fits)) {
            batch->selected[batch->n++] = slot;
            batch->n_admitted = waits;
        }
    }
}

BAD_SCHEDULER("crowded");
#endif

#ifdef PLUGIN_bad_double_selecting
/* Admits the first waiting request twice. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    for (uint32_t i = 0; view->n_waiting > 0 && i < 2 && i < batch->capacity; i++) {
        batch->selected[batch->n++] = view->waiting[0];
        batch->n_admitted++;
    }
}

BAD_SCHEDULER("double-selecting");
#endif

#ifdef PLUGIN_bad_endless
/* Looks for a free slot for ever. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    volatile uint32_t turns = 0;
    (void)state;
    while (view->n_waiting > 0) {
        turns++;
    }
    batch->all_running = 1;
}

BAD_SCHEDULER("endless");
#endif

#ifdef PLUGIN_bad_exiting
/* Ends the process instead of returning. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    (void)batch;
    exit(3);
}

BAD_SCHEDULER("exiting");
#endif

#ifdef PLUGIN_bad_forgetful
/* Keeps its turn in a global variable, so that the same question gets another answer. */
static uint32_t turn;

static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    batch->wake_ns = view->now_ns + 1 + turn++ % 2;
}

BAD_SCHEDULER("forgetful");
#endif

#ifdef PLUGIN_bad_greedy_decoder
/* Commits nothing when no position is certain. */
static uint32_t choose(const void *state, const struct request *request,
                       const struct decode_seen *seen, uint8_t *commit) {
    uint32_t n_committed = 0;
    (void)state;
    (void)request;
    for (uint32_t i = 0; i < seen->n; i++) {
        commit[i] = seen->confidence[i] > 0.9f;
        n_committed += commit[i];
    }
    return n_committed;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "greedy"), .choose = choose};
#endif

#ifdef PLUGIN_bad_impure_cache
/* Refreshes in every second call, whatever the request says. */
static uint32_t calls;

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    uint32_t canvas = request->canvas_tokens;
    (void)state;
    (void)memory;
    *rows = (struct row_sets){.kind = ROW_KV,
                              .run = {calls++ % 2 == 0 ? 0 : window_first(request), canvas},
                              .keep = {{0, window_first(request)}},
                              .held = canvas};
    rows->head = rows->run;
    return 1;
}

const struct cache_policy unmask_policy = {
    POLICY(POLICY_CACHE, cache_policy, "impure"),
    .plan = plan,
};
#endif

#ifdef PLUGIN_bad_no_symbol
/* Exports a descriptor under a name nobody looks for. */
const struct router my_policy = {POLICY(POLICY_ROUTER, router, "no-symbol")};
#endif

#ifdef PLUGIN_bad_over_selecting
/* Admits the whole queue whatever the limits are. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    for (uint32_t i = 0; i < view->n_waiting; i++) {
        batch->selected[batch->n++] = view->waiting[i];
    }
    batch->n_admitted = batch->n;
}

BAD_SCHEDULER("over-selecting");
#endif

#ifdef PLUGIN_bad_overgrowing
/* Lets running requests grow whatever memory is left. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    int64_t tokens = view->max_batched_tokens, free_bytes = view->kv_free_bytes;
    (void)state;
    for (uint32_t i = 0; i < view->n_running + view->n_waiting; i++) {
        int admits = i >= view->n_running;
        uint32_t slot = admits ? view->waiting[i - view->n_running] : view->running[i];
        const struct request *request = &view->requests[slot];
        int64_t queries = request->span.queries;
        if (queries > tokens && request->span.phase == PHASE_PREFILL) {
            queries = tokens / request->block_tokens * request->block_tokens;
        }
        if (queries > tokens || queries == 0) {
            continue;
        }
        if (admits) {
            free_bytes -= request->kv_bytes;
            if (free_bytes < 0 || view->n_running + batch->n_admitted == view->max_requests) {
                break;
            }
        }
        tokens -= queries;
        batch->chunk_tokens[batch->n] = queries < request->span.queries ? (uint32_t)queries : 0;
        batch->selected[batch->n++] = slot;
        batch->n_admitted += admits;
    }
}

BAD_GROWING_SCHEDULER("overgrowing");
#endif

#ifdef PLUGIN_bad_pointer
/* Exports a pointer to its descriptor instead of the descriptor. */
static const struct router router = {POLICY(POLICY_ROUTER, router, "pointer")};

const struct router *const unmask_policy = &router;
#endif

#ifdef PLUGIN_bad_postponing
/* Selects nothing and always asks to be woken a little later. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->wake_ns = view->now_ns + 1000;
}

BAD_SCHEDULER("postponing");
#endif

#ifdef PLUGIN_bad_refusing
/* Never admits what it cannot serve within two minutes of its arrival, and never says so: such
 * requests wait for ever. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    static const int64_t objective_ns = 120000000000;
    (void)state;
    if (view->running_tokens <= view->max_batched_tokens) {
        batch->all_running = 1;
    } else {
        batch->selected[batch->n++] = view->running[0];
    }
    for (uint32_t i = 0; i < view->n_waiting && view->n_running == 0 && batch->n == 0; i++) {
        const struct request *request = &view->requests[view->waiting[i]];
        if (view->now_ns - request->arrival_ns <= objective_ns &&
            request->span.queries <= view->max_batched_tokens &&
            request->kv_bytes <= view->kv_free_bytes) {
            batch->selected[batch->n++] = view->waiting[i];
            batch->n_admitted = 1;
        }
    }
}

BAD_SCHEDULER("refusing");
#endif

#ifdef PLUGIN_bad_starving
/* Never selects anything and never names a time. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    batch->hold = HOLD_CHANGE;
}

BAD_SCHEDULER("starving");
#endif

#ifdef PLUGIN_bad_stray_chunk
/* Cuts a prefill that it does not list. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct taken used = {0, 0};
    (void)state;
    select_running(view, &used, batch);
    admit_waiting(view, UINT32_MAX, &used, batch);
    if (batch->n < batch->capacity) {
        batch->chunk_tokens[batch->n] = 32;
    }
}

const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                   .kind = POLICY_SCHEDULER,
                                                   .size = sizeof(struct scheduler),
                                                   .state_bytes = 8,
                                                   .name = "stray-chunk",
                                                   .doc = "cuts what it does not list"},
                                        .schedule = schedule};
#endif

#ifdef PLUGIN_bad_stray_word
/* Says a width of a request that it does not list. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    if (view->n_running == 0) {
        batch->n = batch->n_admitted = batch->says = 1;
        batch->selected[0] = view->waiting[0];
        batch->width_tokens[1] = batch->capacity > 1 ? 4 : 0;
    }
}

BAD_SCHEDULER("stray-word");
#endif

#ifdef PLUGIN_bad_taking_decoder
/* Takes back whatever it commits, for ever. */
static uint32_t take_back(const void *state, const struct request *request,
                          const struct decode_kept *kept, uint8_t *again) {
    (void)state;
    (void)request;
    for (uint32_t i = 0; i < kept->n; i++) {
        again[i] = 1;
    }
    return kept->n;
}

const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "taking-all"),
                                      .choose = choose_first, .take_back = take_back};
#endif

#ifdef PLUGIN_bad_way
/* Would have the engine read a state of its own. */
const struct decoder unmask_policy = {POLICY(POLICY_DECODER, decoder, "of-noise"),
                                      .choose = choose_first, .way = DECODER_RENOISES};
#endif

#ifdef PLUGIN_bad_leading
/* Would have the system write how many layers lead into its state. */
static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)state, (void)memory;
    *rows = (struct row_sets){.kind = ROW_NONE, .run = {0, request->canvas_tokens}};
    rows->head = rows->run;
    return 1;
}

const struct cache_policy unmask_policy = {POLICY(POLICY_CACHE, cache_policy, "of-prefixes"),
                                           .plan = plan, .way = CACHE_LEADS};
#endif

#ifdef PLUGIN_bad_turning
/* Lets requests take turns in the memory where they may be preempted, and each begins anew, for
 * ever. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    int can_turn = view->n_waiting + view->n_running > 0 && view->n_waiting > 0 &&
                   view->requests[view->waiting[0]].causal != SEES_CANVAS;
    int admits = view->n_waiting > 0 && (view->n_running == 0 || can_turn);
    if (view->n_running > 0 && can_turn) {
        batch->preempted[batch->n_preempted++] = view->running[0];
    }
    uint32_t slot = admits ? view->waiting[view->n_waiting - 1] : view->running[0];
    const struct request *request = &view->requests[slot];
    uint32_t most = view->max_batched_tokens / request->block_tokens * request->block_tokens;
    batch->chunk_tokens[0] = request->span.queries > view->max_batched_tokens ? most : 0;
    batch->selected[batch->n++] = slot;
    batch->n_admitted = (uint32_t)admits;
}

BAD_GROWING_SCHEDULER("turning");
#endif

#ifdef PLUGIN_bad_unchunked
/* Grows, and leaves a prefill that is wider than a step waiting for ever. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    struct taken used = {0, 0};
    (void)state;
    for (uint32_t i = 0; i < view->n_running; i++) {
        const struct request *request = &view->requests[view->running[i]];
        int64_t growth = request->kv_bytes - request->kv_held_bytes;
        if (used.tokens + request->span.queries <= view->max_batched_tokens &&
            used.bytes + growth <= view->kv_free_bytes) {
            batch->selected[batch->n++] = view->running[i];
            used.tokens += request->span.queries;
            used.bytes += growth;
        }
    }
    admit_waiting(view, UINT32_MAX, &used, batch);
}

const struct scheduler unmask_policy = {.policy = {.abi = POLICY_ABI,
                                                   .kind = POLICY_SCHEDULER,
                                                   .size = sizeof(struct scheduler),
                                                   .state_bytes = 8,
                                                   .name = "unchunked",
                                                   .doc = "takes a prompt whole or not at all"},
                                        .grows = 1,
                                        .schedule = schedule};
#endif

#ifdef PLUGIN_bad_view_writing
/* Makes the first waiting request smaller so that it fits. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    if (view->n_waiting > 0) {
        ((struct request *)view->requests)[view->waiting[0]].kv_bytes = 0;
    }
}

BAD_SCHEDULER("view-writing");
#endif

#ifdef PLUGIN_bad_wide
/* Asks for a window wider than a block. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = 1;
    if (view->n_running == 0) {
        batch->n = batch->n_admitted = batch->says = 1;
        batch->selected[0] = view->waiting[0];
        batch->width_tokens[0] = view->requests[view->waiting[0]].block_tokens + 1;
    }
}

BAD_SCHEDULER("wide");
#endif

#ifdef PLUGIN_bad_wrong_abi
/* Made for another version of the descriptors. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    (void)view;
    batch->all_running = 1;
}

const struct scheduler unmask_policy = {
    .policy = {.abi = POLICY_ABI + 1,
               .kind = POLICY_SCHEDULER,
               .size = sizeof(struct scheduler),
               .name = "wrong-abi",
               .doc = "made for another program"},
    .schedule = schedule,
};
#endif

#ifdef PLUGIN_bad_wrong_kind
/* Of a kind that does not exist. */
const struct router unmask_policy = {
    .policy = {.abi = POLICY_ABI,
               .kind = POLICY_ROUTER + 1,
               .size = sizeof(struct router),
               .name = "wrong-kind",
               .doc = "of no known kind"},
};
#endif

#ifdef PLUGIN_bad_rejecting
/* Rejects what runs. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    for (uint32_t i = 0; i < view->n_running; i++) {
        batch->rejected[batch->n_rejected++] = view->running[i];
    }
    batch->n = batch->n_admitted = view->n_waiting > 0 && view->n_running == 0;
    batch->selected[0] = view->n_waiting > 0 ? view->waiting[0] : 0;
}

BAD_SCHEDULER("rejecting");
#endif

#ifdef PLUGIN_bad_waking
/* Asks to be called again at a time that has passed. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->all_running = view->n_running > 0;
    batch->n = batch->n_admitted = view->n_waiting > 0 && view->n_running == 0;
    batch->selected[0] = view->n_waiting > 0 ? view->waiting[0] : 0;
    batch->wake_ns = view->now_ns;
}

BAD_SCHEDULER("waking");
#endif

#ifdef PLUGIN_bad_putting_off
/* Puts every refresh off, for ever. */
static void schedule(void *state, const struct schedule_view *view, struct batch *batch) {
    (void)state;
    batch->n = 1;
    batch->n_admitted = view->n_running == 0;
    batch->selected[0] = view->n_running > 0 ? view->running[0] : view->waiting[0];
    batch->puts_off[0] = view->requests[batch->selected[0]].span.phase == PHASE_REFRESH;
    batch->says = 1;
}

BAD_SCHEDULER("putting-off");
#endif

#ifdef PLUGIN_bad_moving
/* Moves the first request that it finds, waiting or not. */
static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    (void)state, (void)request, (void)view, (void)until_ns;
    return 0;
}

static uint32_t move(void *state, const struct route_view *view, struct route_move *moves,
                     uint32_t capacity) {
    (void)state, (void)capacity;
    moves[0] = (struct route_move){0, 1};
    return view->n > 1 && view->replicas[0].n_running > 0;
}

const struct router unmask_policy = {POLICY(POLICY_ROUTER, router, "moving"), .route = route,
                                     .move = move};
#endif

#ifdef PLUGIN_bad_holding
/* Holds requests back until now. */
static uint32_t route(void *state, const struct request *request, const struct route_view *view,
                      int64_t *until_ns) {
    (void)state, (void)request;
    *until_ns = view->now_ns;
    return ROUTE_HOLD;
}

const struct router unmask_policy = {POLICY(POLICY_ROUTER, router, "holding"), .route = route};
#endif

#ifdef PLUGIN_bad_forgetting_cache
/* Lets a renewal wait and forgets it. */
static void answer(const struct request *request, int renews, struct row_sets *rows) {
    const uint32_t start = window_first(request), end = window_end(request);
    *rows = (struct row_sets){.kind = ROW_KV,
                              .keep = {{0, start}, {end, request->canvas_tokens}},
                              .held = request->canvas_tokens};
    rows_run(rows, renews ? 0 : start, renews ? request->canvas_tokens : end);
}

static uint32_t plan(const void *state, const void *memory, const struct request *request,
                     struct row_sets *rows) {
    (void)state, (void)memory;
    answer(request, window_steps(request) % 4 == 0, rows);
    return 1;
}

static uint32_t put_off(const void *state, const void *memory, const struct request *request,
                        struct row_sets *rows) {
    (void)state, (void)memory;
    answer(request, 0, rows);
    return window_steps(request) > 0 ? 2 : 0;
}

const struct cache_policy unmask_policy = {POLICY(POLICY_CACHE, cache_policy, "forgetting"),
                                           .plan = plan, .put_off = put_off};
#endif
