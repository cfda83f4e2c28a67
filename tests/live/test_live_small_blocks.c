/* Live runs of small blocks, Fast-dLLM v2's, on the CPU: token for token what its released loop
 * decodes, one request after the other; parts of blocks beside co-batched requests, in schedules,
 * after preemption.
 */
#include "tests/support/chain.h"
#include "tests/support/live.h"

/* Prompts that fill no block, some blocks and a bit, exactly two; last blocks that are cut, and one
 * of a single position. */
static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 40},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 28},
    {.id = 2, .prompt_tokens = 32, .output_tokens = 33},
    {.id = 3, .prompt_tokens = 16, .output_tokens = 9},
};
enum { N = 4, BLOCK = 16, SMALL = 4 };
/* Random weights are as sure as that of a few tokens a block. */
static const float THRESHOLD = 0.0098f;

#define SYSTEM(...)                                                                                \
    live_system_of("fast-dllm-v2", "fast-dllm-v2-tiny",                                            \
                   (const char *const[]){"block_tokens=16", "cache.small_block=4",                 \
                                         "page_tokens=4", __VA_ARGS__, NULL})
#define BY_SMALL_BLOCKS "decoder=small-blocks", "decoder.small_block=4", "decoder.threshold=0.0098"

static void check_served(const struct served *served) {
    check_used_as_planned(served, N);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->memory.metered_bytes, served->memory.planned_bytes);
}

/* One request: its pages and tokens are a chain's, all else is here. */
struct decoding {
    struct chain chain;
    struct rig *rig;
    bool masked[MAX_NAIVE];
    int n_passes, n_parts;
};

/* Runs positions [first, end) against the rows of all before `seen`; what every query's logits say
 * is then in the rig's token and confidence. */
static void run(struct decoding *d, enum phase phase, int first, int end, int seen) {
    struct chain *c = &d->chain;
    for (int t = 0; t < end - first; t++) {
        int block_end = ((first + t) / BLOCK + 1) * BLOCK;
        c->positions[t] = first + t;
        c->extents[t] = block_end < seen ? block_end : seen;
    }
    const struct step_part part = {.canvas = (int64_t)c->request * CANVAS_TOKENS,
                                   .positions = c->positions,
                                   .kv_pages = {c->pages, c->n_pages, c->extents}};
    rig_clear(d->rig);
    struct span *span =
        rig_add(d->rig, (uint32_t)(end - first), (uint32_t)(seen - (end - first)), &part);
    span->phase = phase;
    span->exact = 1;
    rig_step(d->rig);
    d->n_passes++;
}

/* The logits of query `row` decide on a position. */
static void decide_alone(struct decoding *d, int position, int row) {
    d->chain.tokens[position] = d->rig->token[row];
    d->masked[position] = false;
    rig_write(d->rig, d->chain.request, position, &d->chain.tokens[position], 1);
}

static bool any_masked(const struct decoding *d, int first, int end) {
    for (int p = first; p < end; p++) {
        if (d->masked[p]) {
            return true;
        }
    }
    return false;
}

/* After a pass from `first` on: all positions of [begin, end) above the threshold, and the surest.
 * Logits are shifted by one. */
static void choose(struct decoding *d, int first, int begin, int end) {
    int best = -1;
    float sure[MAX_NAIVE];
    for (int p = begin; p < end; p++) {
        sure[p] = d->masked[p] ? d->rig->confidence[p - 1 - first] : -1;
        best = d->masked[p] && (best < 0 || sure[p] > sure[best]) ? p : best;
    }
    for (int p = begin; p < end; p++) {
        if (d->masked[p] && (p == best || sure[p] > THRESHOLD)) {
            decide_alone(d, p, p - 1 - first);
        }
    }
}

static void decode(struct decoding *d, bool block_cache) {
    struct chain *c = &d->chain;
    int start = c->prompt / BLOCK * BLOCK;
    for (int p = 0; p < c->canvas; p++) {
        d->masked[p] = p >= c->prompt;
    }
    if (start > 0) {
        run(d, PHASE_PREFILL, 0, start, start);
        if (start == c->prompt) {
            decide_alone(d, start, start - 1);
        }
    }
    for (; start < c->canvas; start += BLOCK) {
        int end = start + BLOCK < c->canvas ? start + BLOCK : c->canvas;
        bool is_cached = false;
        for (int small = start; small < end; small += SMALL) {
            int small_end = small + SMALL < end ? small + SMALL : end;
            while (any_masked(d, small, small_end)) {
                bool whole = !block_cache || !is_cached || d->masked[small];
                run(d, PHASE_REUSE, whole ? start : small, whole ? end : small_end, end);
                choose(d, whole ? start : small, small, small_end);
                is_cached = true;
                d->n_parts += !whole;
            }
        }
        run(d, PHASE_COMMIT, start, end, end);
        if (end < c->canvas) {
            decide_alone(d, end, end - 1 - start);
        }
    }
}

static const int32_t *prompt_of(void *state, uint64_t id) {
    const struct decoding *all = state;
    return all[id].chain.tokens;
}

static void decode_all(const struct model *model, bool block_cache, struct decoding all[N]) {
    struct graph_options options = exact;
    options.fused_head = true;
    struct step_limits paged = limits;
    paged.page_rows = 4;
    paged.pool_bytes *= 8;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){model, &options, "random:3", NULL, KERNEL_F32, &paged});
    for (int i = 0; i < N; i++) {
        all[i] =
            MAKE(struct decoding,
                 .chain = {.canvas = (int)(together[i].prompt_tokens + together[i].output_tokens),
                           .prompt = (int)together[i].prompt_tokens,
                           .block = BLOCK},
                 .rig = rig);
        chain_start(&all[i].chain, i, rig);
        chain_place(&all[i].chain, 4, 1);
        decode(&all[i], block_cache);
    }
    rig_close(rig);
}

TEST(small_blocks_decode_what_the_released_loop_decodes) {
    static struct decoding all[N];
    static const char *const scopes[] = {"logit_scope=queries", "logit_scope=masked",
                                         "logit_scope=block", "logit_scope=generation"};
    int n_parts[2] = {0, 0};
    for (int i = 0; i < 8; i++) {
        bool cached = i % 2 == 0;
        struct system *system = SYSTEM(BY_SMALL_BLOCKS, scopes[i / 2],
                                       cached ? "cache.block_cache=on" : "cache.block_cache=off",
                                       i < 4 ? "scheduler=static" : "scheduler=chunked");
        decode_all(system->model, cached, all);
        struct serving serving = MAKE(struct serving, .system = system, .arrivals = together,
                                      .n = N, .prompt = prompt_of, .prompt_state = all);
        struct served *served = serve(&serving);
        ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
        check_served(served);
        uint64_t n_passes = 0;
        for (uint32_t id = 0; id < N; id++) {
            n_passes += (uint64_t)all[id].n_passes;
            n_parts[i % 2] += all[id].n_parts;
            ck_assert_mem_eq(served->tokens[id], all[id].chain.tokens + together[id].prompt_tokens,
                             together[id].output_tokens * sizeof(int32_t));
        }
        ck_assert_uint_eq(served->result.request_steps, n_passes);
        free(served);
        system_close(system);
    }
    ck_assert_int_gt(n_parts[0], 50);
    ck_assert_int_eq(n_parts[1], 0);
}

static const struct cache_policy *announcing;

/* The same answers, which do not say that the block runs in parts. */
static uint32_t plan_silently(const void *state, const void *memory, const struct request *request,
                              struct row_sets *rows) {
    uint32_t holds = announcing->plan(state, memory, request, rows);
    rows->settles = BLOCK_WHOLE;
    return holds;
}

TEST(parts_that_a_policy_does_not_announce_end_the_run) {
    struct system *system = SYSTEM(BY_SMALL_BLOCKS);
    struct cache_policy silent = *system->cache;
    announcing = system->cache;
    silent.plan = plan_silently;
    system->cache = &silent;
    system->rows.settles = BLOCK_WHOLE;
    struct served *served =
        serve(&(struct serving){.system = system, .arrivals = together, .n = N});
    ck_assert_int_eq(served->err.kind, ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(served->err.text, "cache small-blocks broke its promise at "));
    ck_assert_ptr_nonnull(strstr(served->err.text, "though it runs whole blocks"));
    free(served);
    system_close(system);
}

SUITE("live_small_blocks")
