/* Which whole steps a calibration runs. */
#include "engine/calibrate/calibration_steps.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"

static struct calibration_step *append(struct calibration_steps *steps) {
    ASSERT(steps->n < CALIBRATION_MAX_STEPS);
    struct calibration_step *step = &steps->list[steps->n++];
    *step = (struct calibration_step){.alone = {-1, -1}};
    return step;
}

/* Steps of one kind. What an operator takes in a step over what it takes alone depends on how many
 * tiles its rows fill, which jumps: steps that are only fitted stand between those that are held,
 * too, at the sizes that serving has most of, and of fused full passes (FUSED) one at each whole
 * tile up to the longest that are fitted: just past an edge, where few of a product's tiles are
 * left for the last wave, the product is up to 9 % faster in a step than alone and the next one
 * slower (H100, 2026-11-27). The longest of them come first: a block of one request took 0.9 to 1.9
 * % longer than in its hold when it followed 2048 tokens and as long an idle time, up to 0.8 %
 * after 288. */
enum role { HELD, HELD_OUT, FITTED, FUSED };
struct step_sizes {
    uint32_t n_requests, canvas_tokens;
    enum role role;
};
static const struct step_sizes refresh_sizes[] = {
    {1, 1024, HELD},     {2, 512, HELD},   {3, 1024, HELD_OUT}, {4, 512, HELD},   {8, 1024, HELD},
    {16, 512, HELD_OUT}, {1, 256, HELD},   {1, 512, HELD},      {1, 384, FITTED}, {1, 416, FITTED},
    {1, 768, FITTED},    {1, 128, FITTED}, {1, 288, FITTED},    {1, 2048, FUSED}, {1, 1920, FUSED},
    {1, 1792, FUSED},    {1, 1664, FUSED}, {1, 1536, FUSED},    {1, 1408, FUSED}, {1, 1280, FUSED},
    {1, 1152, FUSED},    {1, 896, FUSED},  {1, 640, FUSED},
};
static const struct step_sizes reuse_sizes[] = {
    {1, 1024, HELD},  {2, 512, HELD},       {4, 1024, HELD},      {8, 512, HELD},
    {32, 1024, HELD}, {128, 512, HELD_OUT}, {3, 1024, HELD_OUT},  {12, 512, HELD_OUT},
    {16, 1024, HELD}, {64, 512, HELD},      {48, 1024, HELD_OUT}, {96, 512, HELD},
    {6, 1024, HELD},  {5, 512, FITTED},     {10, 1024, FITTED},   {24, 512, FITTED},
};

/* Where the token budget cuts canvases, sizes come out the same. */
static bool is_listed(const struct calibration_steps *steps, size_t first,
                      const struct step_side *side) {
    for (size_t i = first; i < steps->n; i++) {
        const struct step_side *other = &steps->list[i].sides[0];
        if (other->n_requests == side->n_requests && other->canvas_tokens == side->canvas_tokens) {
            return true;
        }
    }
    return false;
}

/* A quarter of the tokens is left to the other side of a mixed step. */
static void list_kind(struct calibration_steps *steps, const struct model *model,
                      const struct calibration_bounds *bounds, enum host_kind kind, bool fused) {
    const size_t first = steps->n;
    bool reuses = kind == HOST_REUSE;
    const struct step_sizes *sizes = reuses ? reuse_sizes : refresh_sizes;
    size_t n_sizes = reuses ? sizeof reuse_sizes / sizeof *reuse_sizes
                            : sizeof refresh_sizes / sizeof *refresh_sizes;
    for (size_t i = 0; i < n_sizes; i++) {
        int64_t n = sizes[i].n_requests, canvas = sizes[i].canvas_tokens;
        if (sizes[i].role == FUSED && (!fused || kind == HOST_SELECT)) {
            continue;
        }
        canvas = num_smaller(canvas, model->max_positions);
        canvas =
            num_smaller(canvas, (reuses ? bounds->max_kv_rows : bounds->max_tokens * 3 / 4) / n);
        canvas = num_smaller(canvas, bounds->max_store_rows / n - bounds->page_rows);
        if (calibration_is_exact(model)) {
            canvas = canvas / model->block_tokens * model->block_tokens;
        }
        if (canvas < 2LL * model->block_tokens || n * model->block_tokens > bounds->max_tokens) {
            continue;
        }
        const struct step_side side = {kind, (uint32_t)n, (uint32_t)canvas};
        if (is_listed(steps, first, &side)) {
            continue;
        }
        struct calibration_step *step = append(steps);
        step->sides[0] = side;
        step->n_sides = 1;
        step->is_fused = fused;
        step->is_held_out = sizes[i].role == HELD_OUT;
        step->may_be_held = fused && sizes[i].role == HELD && kind != HOST_SELECT;
    }
}

static int64_t side_tokens(const struct step_side *side, const struct model *model) {
    uint32_t each = side->kind == HOST_REUSE ? model->block_tokens : side->canvas_tokens;
    return (int64_t)side->n_requests * each;
}

/* Mixed steps of this many tokens are held, as full and block steps are: at its limit, serving has
 * most of these. */
enum { HELD_MIXED_TOKENS = 2048 };

/* The i-th refresh with the i-th reuse. */
static void list_mixed(struct calibration_steps *steps, const struct model *model,
                       const struct calibration_bounds *bounds, size_t refresh, size_t n_refresh,
                       size_t reuse, size_t n_reuse) {
    size_t n_pairs = n_refresh < n_reuse ? n_refresh : n_reuse;
    for (size_t i = 0; i < n_pairs; i++) {
        size_t alone[2] = {refresh + i, reuse + i};
        const struct step_side *a = &steps->list[alone[0]].sides[0];
        const struct step_side *b = &steps->list[alone[1]].sides[0];
        if (side_tokens(a, model) + side_tokens(b, model) > bounds->max_tokens) {
            continue;
        }
        struct calibration_step *step = append(steps);
        step->n_sides = 2;
        step->may_be_held = steps->list[alone[0]].may_be_held &&
                            steps->list[alone[1]].may_be_held &&
                            side_tokens(a, model) + side_tokens(b, model) >= HELD_MIXED_TOKENS;
        step->is_fused = steps->list[refresh].is_fused;
        step->is_held_out = true;
        for (int side = 0; side < 2; side++) {
            step->sides[side] = steps->list[alone[side]].sides[0];
            step->alone[side] = (int)alone[side];
        }
    }
}

void calibration_steps_list(struct calibration_steps *steps, const struct model *model,
                            const struct calibration_bounds *bounds) {
    *steps = (struct calibration_steps){0};
    for (int fused = 0; fused < 2; fused++) {
        size_t refresh = steps->n;
        list_kind(steps, model, bounds, HOST_REFRESH, fused);
        size_t reuse = steps->n;
        list_kind(steps, model, bounds, HOST_REUSE, fused);
        list_mixed(steps, model, bounds, refresh, reuse - refresh, reuse, steps->n - reuse);
        if (!calibration_is_exact(model)) {
            list_kind(steps, model, bounds, HOST_SELECT, fused);
        }
    }
}

int calibration_step_variant(const struct calibration_step *step) {
    return (step->sides[0].kind == HOST_SELECT ? VARIANT_SELECTS : 0) |
           (step->is_fused ? VARIANT_IS_FUSED : 0);
}
