#include "sim/system/lmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/memory/allocator.h"
#include "sim/memory/eager.h"
#include "sim/policy/cache/blocks.h"
#include "sim/system/system_step.h"

const char *const lmax_bound_names[N_LMAX_BOUNDS] = {"attention", "FFN", "logits", "fragmentation",
                                                     "nothing"};

int share_of_index(const char *word) {
    static const char *const words[] = {
        [SHARE_OF_CANVAS] = "canvas", [SHARE_OF_OUTPUT] = "output", NULL};
    return name_find(words, word);
}

double lmax_inflation(const struct step_memory *step) {
    return step->live.peak_bytes == 0
               ? 0
               : (double)step->unlimited_bytes / (double)step->live.peak_bytes - 1;
}

/* ---- one step ---- */

/* Outputs of a canvas: at least one position. */
static uint32_t output_tokens(const struct lmax_request *r, uint32_t canvas_tokens) {
    double share = r->share_of == SHARE_OF_CANVAS ? 1 - r->prompt_share : 1 / (1 + r->prompt_share);
    double tokens = share * canvas_tokens + 0.5;
    return tokens < 1 ? 1 : (uint32_t)tokens;
}

static uint32_t batch_of(const struct lmax_request *r) {
    return r->batch > 0 ? r->batch : 1;
}

static uint32_t granule_of(const struct lmax_request *r) {
    return r->granule_tokens > 0 ? r->granule_tokens : LMAX_GRANULE_TOKENS;
}

/* A step over the whole canvas of each of a batch and one block of `outputs` positions, with
 * `masked` of them masked (in the first step, all). */
static struct step_shape full_step(const struct lmax_request *r, uint32_t canvas, uint32_t outputs,
                                   uint32_t masked) {
    const struct system *s = r->system;
    struct span span = {
        .phase = PHASE_REFRESH,
        .queries = canvas,
        .first_queries = canvas,
        .logit_rows = system_scope_rows(&s->settings, canvas, masked, masked, masked, true),
        .select_rows = rows_are_chosen(&s->rows) ? canvas : 0,
        .pack_rows = rows_are_chosen(&s->rows) ? canvas : 0,
    };
    span.sampled_rows = system_sampled_rows(&s->settings, span.logit_rows, outputs);
    struct step_shape shape;
    shape_clear(&shape);
    shape_add(shape.sym, &span, batch_of(r));
    return shape;
}

/* Where keys and values are exact: the widest piece of the prompt's prefill, or the widest step of
 * decoding where that is wider, with the logits of a block. */
static struct step_shape widest_exact_step(const struct system *s, const struct step_memory *step) {
    const struct settings *settings = &s->settings;
    uint32_t prompt = step->canvas_tokens - step->output_tokens;
    bool in_chunks = s->scheduler->grows && prompt > settings->max_batched_tokens;
    uint32_t piece = in_chunks ? settings->max_batched_tokens : prompt;
    const uint32_t window = settings_window_tokens(settings);
    piece = piece > window ? piece : window;
    struct span span = {
        .phase = PHASE_PREFILL,
        .queries = piece,
        .first_queries = piece,
        .context = prompt > piece ? prompt - piece : 0,
        .logit_rows = window,
        .exact = 1,
    };
    struct step_shape shape;
    shape_clear(&shape);
    shape_add(shape.sym, &span, 1);
    return shape;
}

/* Cached rows of the request: where they grow, in its last block; else they are the same always. */
static int64_t cached_bytes(const struct system *s, const struct step_memory *step) {
    struct request request = {.prompt_tokens = step->canvas_tokens - step->output_tokens,
                              .output_tokens = step->output_tokens,
                              .canvas_tokens = step->canvas_tokens,
                              .block_tokens = s->settings.block_tokens,
                              .causal = system_causality(s->model),
                              .steps_per_block = s->settings.steps_per_block};
    return system_rows_bytes(s, cache_most_held(s->cache, s->cache_state, &request));
}

static void hold_planned(const struct system *s, const struct step_shape *shape,
                         int64_t available_bytes, struct step_memory *step) {
    struct placement placement;
    step->fits = system_place(s, shape, available_bytes, &placement, &step->misfit) == 0;
    live_of_placement(&s->graph, shape, &placement, &step->live);
    step->par = live_par(&step->live);
    step->held_bytes = step->unlimited_bytes = placement.peak_bytes;
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        step->chunks[kind] = 1;
    }
    for (uint32_t i = 0; i < s->graph.n_loops; i++) {
        uint32_t *n = &step->chunks[s->graph.loops[i].kind];
        *n = placement.n_chunks[i] > *n ? placement.n_chunks[i] : *n;
    }
}

static void replay(const struct stream *stream, uint32_t allocator, int64_t limit_bytes,
                   struct allocator_report *report) {
    static const char *const models[] = {NULL, "torch", "torch-expandable", "compile"};
    struct allocator_settings settings = {.limit_bytes = limit_bytes};
    struct err err = {0};
    const struct allocator_model *model = allocator_find(models[allocator], &err);
    ASSERT(model != NULL);
    allocator_replay(stream, model, &settings, report);
}

/* Whether all steps of a run ask for the same: then two of them say it all. */
static bool steps_are_equal(const struct lmax_request *r, uint32_t canvas_tokens,
                            uint32_t outputs) {
    struct step_shape more = full_step(r, canvas_tokens, outputs, canvas_tokens);
    struct step_shape fewer = full_step(r, canvas_tokens, outputs, 1);
    return eager_ignores_masks(&r->system->graph) && memcmp(&more, &fewer, sizeof more) == 0;
}

/* Appends the steps of one canvas to the stream: the first one twice, then each with as many more
 * outputs decoded, the remainder of the division in the first of them. */
static void add_steps(const struct lmax_request *r, struct step_memory *step,
                      struct stream *stream) {
    const struct system *s = r->system;
    uint32_t outputs = step->output_tokens, n = r->n_steps > 0 ? r->n_steps : LMAX_STEPS;
    n = n < outputs ? n : outputs;
    uint32_t n_played = n > 1 && steps_are_equal(r, step->canvas_tokens, outputs) ? 2 : n + 1;
    struct eager_step *steps = mem_unwritten(n_played, sizeof *steps);
    for (uint32_t i = 0; i < n_played; i++) {
        uint32_t before = i > 0 ? i - 1 : 0, rest = outputs % n;
        uint32_t masked = outputs - before * (outputs / n) - (before < rest ? before : rest);
        steps[i] = (struct eager_step){.shape = full_step(r, step->canvas_tokens, outputs, masked),
                                       .masked_rows = (int64_t)masked * batch_of(r)};
    }
    const struct eager_request request = {.graph = &s->graph,
                                          .steps = steps,
                                          .n_steps = n_played,
                                          .keeps_results = !s->runtime.varlen};
    struct live live[2];
    eager_steps(&request, stream, live);
    step->live = live[1];
    step->par = live_par(&live[0]);
    free(steps);
}

static void add_canvases_before(const struct lmax_request *r, const struct step_memory *step,
                                struct stream *stream) {
    for (uint32_t i = 0; i < r->n_before; i++) {
        uint32_t granules =
            (uint32_t)(r->before[i] * step->canvas_tokens / LMAX_GRANULE_TOKENS + 0.5);
        struct step_memory earlier = {.canvas_tokens =
                                          (granules > 0 ? granules : 1) * LMAX_GRANULE_TOKENS};
        earlier.output_tokens = output_tokens(r, earlier.canvas_tokens);
        add_steps(r, &earlier, stream);
    }
}

static void hold_asked_for(const struct lmax_request *r, int64_t available_bytes,
                           struct step_memory *step) {
    const struct system *s = r->system;
    struct stream stream;
    struct allocator_report within, unlimited;
    stream_init(&stream);
    add_canvases_before(r, step, &stream);
    add_steps(r, step, &stream);
    replay(&stream, s->settings.allocator, 0, &unlimited);
    within = unlimited;
    if (unlimited.peak_reserved_bytes > available_bytes) { /* else the limit is never met */
        replay(&stream, s->settings.allocator, available_bytes, &within);
    }
    stream_fini(&stream);
    step->held_bytes = within.peak_reserved_bytes;
    step->unlimited_bytes = unlimited.peak_reserved_bytes;
    step->fits = within.n_refused == 0;
}

void lmax_step(const struct lmax_request *r, uint32_t canvas_tokens, int64_t available_bytes,
               struct step_memory *out) {
    const struct system *s = r->system;
    *out = (struct step_memory){.canvas_tokens = canvas_tokens,
                                .output_tokens = output_tokens(r, canvas_tokens)};
    bool is_exact = s->rows.kind == ROW_EXACT;
    out->cached_bytes = batch_of(r) * cached_bytes(s, out);
    int64_t left = available_bytes - out->cached_bytes;
    if (s->settings.allocator == ALLOCATOR_PLANNED) {
        double left_share = 1 - r->decoded_share;
        uint32_t masked = (uint32_t)ceil(left_share * (double)out->output_tokens);
        struct step_shape shape = is_exact
                                      ? widest_exact_step(s, out)
                                      : full_step(r, canvas_tokens, out->output_tokens, masked);
        hold_planned(s, &shape, left, out);
    } else {
        hold_asked_for(r, left > 0 ? left : 1, out);
    }
}

/* ---- the search ---- */

static enum lmax_bound bound_of(const struct step_memory *beyond, int64_t available_bytes) {
    if (beyond->fits) {
        return BOUND_NONE;
    }
    return beyond->live.peak_bytes + beyond->cached_bytes <= available_bytes
               ? BOUND_FRAGMENTATION
               : (enum lmax_bound)beyond->live.peak_part;
}

static int refuse_uncovered(const struct system *s, struct err *err) {
    if (s->settings.allocator != ALLOCATOR_PLANNED && s->row_bytes > 0) {
        return err_usage(err,
                         "system %s: allocator = %s models steps without cached rows, and cache %s "
                         "keeps some",
                         s->name, step_allocator_words[s->settings.allocator],
                         s->cache->policy.name);
    }
    return 0;
}

static int no_room(const struct lmax_request *r, const struct lmax *l, struct err *err) {
    const struct step_memory *step = &l->beyond;
    const char *none = r->canvas_tokens > 0 ? "no such canvas" : "no canvas";
    char memory[32], fixed[32], needed[32];
    num_format_bytes(memory, sizeof memory, (double)l->memory_bytes);
    num_format_bytes(fixed, sizeof fixed, (double)(l->weights_bytes + l->reserve_bytes));
    if (l->available_bytes <= 0) {
        return err_world(err, "%s leaves no room for a canvas in %s: weights and reserve take %s",
                         r->system->model->title, memory, fixed);
    }
    if (step->misfit.text[0] != '\0') {
        return err_world(err, "%s of %s fits %s: weights and reserve take %s, and %s", none,
                         r->system->model->title, memory, fixed, step->misfit.text);
    }
    num_format_bytes(needed, sizeof needed, (double)step->live.peak_bytes);
    return err_world(
        err,
        "%s of %s fits %s: weights and reserve take %s, and a step of %u tokens uses %s "
        "at once",
        none, r->system->model->title, memory, fixed, step->canvas_tokens, needed);
}

/* Doubles until a canvas does not fit, then halves the gap to the last one that does. */
static void search(const struct lmax_request *r, struct lmax *l) {
    uint32_t granule = granule_of(r), low = 0, high = granule;
    lmax_step(r, high, l->available_bytes, &l->beyond);
    while (l->beyond.fits && high < LMAX_MOST_TOKENS) {
        l->longest = l->beyond;
        low = high;
        high *= 2;
        lmax_step(r, high, l->available_bytes, &l->beyond);
    }
    while (!l->beyond.fits && high - low > granule) {
        uint32_t middle = low + (high - low) / 2 / granule * granule;
        struct step_memory step;
        lmax_step(r, middle, l->available_bytes, &step);
        if (step.fits) {
            l->longest = step;
            low = middle;
        } else {
            l->beyond = step;
            high = middle;
        }
    }
}

int lmax_find(const struct lmax_request *r, struct lmax *out, struct err *err) {
    const struct system *s = r->system;
    int status = refuse_uncovered(s, err);
    if (status != 0) {
        return status;
    }
    int64_t memory_bytes = r->memory_bytes > 0 ? r->memory_bytes : s->gpu->memory_bytes;
    *out = (struct lmax){.memory_bytes = memory_bytes,
                         .weights_bytes = s->budget.weights_bytes,
                         .reserve_bytes = system_reserve_bytes(s)};
    int64_t left = (int64_t)(s->settings.memory_utilization * (double)memory_bytes) -
                   out->weights_bytes - out->reserve_bytes;
    out->available_bytes = (int64_t)(s->settings.pool_share * (double)left);
    if (out->available_bytes > 0) {
        if (r->canvas_tokens > 0) {
            lmax_step(r, r->canvas_tokens, out->available_bytes, &out->beyond);
            out->longest = out->beyond;
        } else {
            search(r, out);
        }
        out->bound = bound_of(&out->beyond, out->available_bytes);
    }
    return out->longest.fits ? 0 : no_room(r, out, err);
}

int system_chunk_as_longest(struct system *s, struct err *err) {
    const struct lmax_request request = {.system = s, .prompt_share = 0.5};
    struct lmax lmax;
    int status = lmax_find(&request, &lmax, err);
    if (status == 0) {
        s->chunks.search = CHUNK_SEARCH_ALWAYS;
        memcpy(s->chunks.counts, lmax.longest.chunks, sizeof s->chunks.counts);
    }
    return status;
}
