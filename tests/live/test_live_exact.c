/* Live runs of block diffusion and autoregressive models on the CPU: every system that serves them,
 * co-batched requests, page sizes, chunks, preemption, replays, memory. */
#include "tests/support/chain.h"
#include "tests/support/live.h"
#include "tests/support/says.h"

/* Prompts that fill no block, some blocks and a bit, exactly two. */
static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 10},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 7},
    {.id = 2, .prompt_tokens = 8, .output_tokens = 12},
    {.id = 3, .prompt_tokens = 34, .output_tokens = 5},
};
enum { N = 4 };

/* Logits of the fourth one's model are shifted: passes before a block decide on its first token. */
static const struct {
    const char *name, *model, *blocks;
} systems[] = {
    {"sdar", "sdar-tiny", "block_tokens=4"},   {"lmdeploy", "sdar-tiny", "block_tokens=4"},
    {"sglang", "sdar-tiny", "block_tokens=4"}, {"sdar", "fast-dllm-v2-tiny", "block_tokens=4"},
    {"sdar", "llada2-tiny", "block_tokens=4"}, {"vllm-ar", "qwen2.5-tiny", "block_tokens=1"}};
enum { N_SYSTEMS = 6, N_BLOCKS = 5 };

/* On our own runtime; pages of requests that are preempted are not found again, as the engine does
 * not look for them. */
#define EXACT_SYSTEM(i, ...)                                                                       \
    live_system_of(systems[i].name, systems[i].model,                                              \
                   (const char *const[]){"runtime=unmask", "prefix_caching=off",                   \
                                         systems[i].blocks, __VA_ARGS__, NULL})

/* Everybody has an output, memory was what was planned, and nobody holds any of it. */
static void check_served(const struct system *system, const struct served *served) {
    check_outputs(served, system, together, N);
    check_used_as_planned(served, N);
    ck_assert_int_gt(served->pool_bytes, 0);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->memory.metered_bytes + served->memory.unmapped_bytes,
                     served->memory.planned_bytes);
}

static const char *const scopes[] = {"logit_scope=queries", "logit_scope=generation",
                                     "logit_scope=block", "logit_scope=masked"};

TEST(commit_passes_and_their_logits_change_no_token_of_the_last_block) {
    for (size_t i = 0; i < N_BLOCKS; i++) {
        struct system *all = EXACT_SYSTEM(i, "decoder=fixed"),
                      *fewer = EXACT_SYSTEM(i, "decoder=fixed", "cache.commit_last=off",
                                            "cache.commit_logits=off", "cache.ahead_blocks=1");
        struct served *a = serve_live(all, together, N), *b = serve_live(fewer, together, N);
        check_served(fewer, b);
        same_tokens(a, b, N);
        ck_assert_uint_lt(b->n_steps, a->n_steps);
        free(a);
        free(b);
        system_close(all);
        system_close(fewer);
    }
}

/* The new block's first pass sees the finished one's exact keys and values, because it writes them
 * before anybody reads. Prefilled, preempted and unrolled alike. */
TEST(a_finished_block_written_by_the_next_one_s_first_pass_changes_no_token) {
    for (size_t i = 0; i < 12; i++) {
        const char *decoder = i % 2 == 0 ? "decoder=fixed" : "decoder=threshold";
        const char *threshold = i % 2 == 0 ? "page_tokens=4" : "decoder.threshold=0.008";
        const char *scope = scopes[i % 4];
        struct system *plain =
            EXACT_SYSTEM(i % 3, decoder, "page_tokens=4", scope, "cache.ahead_blocks=0", threshold);
        struct system *cross =
            EXACT_SYSTEM(i % 3, decoder, "page_tokens=4", scope, "cache.cross_block=on",
                         "cache.ahead_blocks=0", threshold);
        if (i >= 6) {
            cross->budget.pool_bytes = 20 * cross->budget.unit_bytes;
        }
        struct served *a = serve_live(plain, together, N), *b = serve_live(cross, together, N);
        check_served(cross, b);
        same_tokens(a, b, N);
        if (i < 6) {
            /* 4, 2, 3 and 2 blocks with outputs */
            ck_assert_uint_eq(b->result.request_steps, a->result.request_steps - (3 + 1 + 2 + 1));
            ck_assert_int_eq(b->result.sym[SYM_TOKENS], a->result.sym[SYM_TOKENS]);
        } else {
            ck_assert_uint_gt(b->n_preempted, 0);
        }
        free(a);
        free(b);
        system_close(plain);
        system_close(cross);
    }
}

static const int32_t *prompt_of(void *state, uint64_t id) {
    const struct chain *requests = state;
    return requests[id].tokens;
}

/* Outputs of a rig that decodes one request after the other, each in pages of its own. */
static void decode_alone(const struct model *model, struct chain requests[N],
                         int32_t outputs[N][LIVE_OUTPUT]) {
    struct graph_options options = exact;
    options.fused_head = true;
    struct step_limits paged = limits;
    paged.page_rows = 16;
    paged.pool_bytes *= 8;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){model, &options, "random:3", NULL, KERNEL_F32, &paged});
    for (int i = 0; i < N; i++) {
        struct chain *c = &requests[i];
        *c = MAKE(struct chain,
                  .canvas = (int)(together[i].prompt_tokens + together[i].output_tokens),
                  .prompt = (int)together[i].prompt_tokens, .block = 4, .take = 1);
        chain_start(c, i, rig);
        chain_place(c, 16, 1);
        while (!chain_over(c)) {
            rig_clear(rig);
            chain_add(c, rig);
            rig_step(rig);
            chain_advance(c, rig->n_committed[0]);
        }
        rig_read(rig, i, c->prompt, outputs[i], c->canvas - c->prompt);
    }
    rig_close(rig);
}

TEST(requests_get_the_tokens_of_the_forward_pass_whatever_the_scheduler) {
    static struct chain requests[N];
    static int32_t outputs[N][LIVE_OUTPUT];
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        struct system *system = EXACT_SYSTEM(i, "decoder=fixed", "max_batched_tokens=32");
        decode_alone(system->model, requests, outputs);
        struct serving serving = MAKE(struct serving, .system = system, .arrivals = together,
                                      .n = N, .prompt = prompt_of, .prompt_state = requests);
        struct served *served = serve(&serving);
        ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
        check_served(system, served);
        for (uint32_t id = 0; id < N; id++) {
            ck_assert_mem_eq(served->tokens[id], outputs[id],
                             together[id].output_tokens * sizeof outputs[id][0]);
        }
        free(served);
        system_close(system);
    }
}

/* The same requests in the same steps. */
static void same_batches(const struct served *a, const struct served *b, const char *name) {
    ck_assert_msg(a->n_steps == b->n_steps, "%s: %zu and %zu batches", name, a->n_steps,
                  b->n_steps);
    for (size_t i = 0; i < a->n_steps; i++) {
        const struct replay_step *x = &a->steps[i], *y = &b->steps[i];
        ck_assert_msg(x->steps == y->steps && x->n_requests == y->n_requests, "%s: batch %zu", name,
                      i);
        ck_assert_mem_eq(a->ids[i], b->ids[i], x->n_requests * sizeof a->ids[i][0]);
    }
}

/* But for andes, which goes by the time that each was served last. */
TEST(schedulers_of_papers_form_the_batches_live_that_they_form_simulated) {
    static const char *const names[] = {"scheduler=vtc", "scheduler=shortest-predicted",
                                        "scheduler=fast-serve", "scheduler=edf"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        const char *name = names[i / 2];
        const char *one = i < 4 ? "max_requests=1" : "scheduler.at_once=1";
        struct system *system =
            i % 2 == 0 ? EXACT_SYSTEM(0, "decoder=fixed", "page_tokens=4", name, one)
                       : LIVE_SYSTEM("llada-tiny", "page_tokens=4", "block_tokens=4", name, one);
        struct served *live = serve_live(system, together, N);
        struct served *simulated = serve(&MAKE(struct serving, .system = system,
                                               .arrivals = together, .n = N, .simulates = true));
        ck_assert_uint_eq(live->result.completed, N);
        same_batches(live, simulated, name);
        free(live);
        free(simulated);
        system_close(system);
    }
}

TEST(pages_that_the_kernels_do_not_take_are_refused_when_the_engine_opens) {
    struct system *system = EXACT_SYSTEM(0, "page_tokens=24");
    const struct engine_request asked = {
        .backend = BACKEND_CPU, .weights = "random:3", .system = system};
    struct engine *engine = NULL;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&asked, &engine, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "pages of no power of two from 4 to 256 rows");
    system_close(system);
}

SUITE("live_exact")
