/* Several blocks of a request in flight: where they lie, what is drawn of them, how they are run,
 * and what they do not go with. */
#include <jansson.h>

#include "sim/decode/process.h"
#include "sim/policy/decoder/several_blocks.h"
#include "tests/support/cli.h"
#include "tests/support/numbers.h"
#include "tests/support/says.h"

enum { B = 4 };

/* ---- where they lie ---- */

static struct request request_of(uint32_t prompt, uint32_t output, uint32_t most) {
    struct request request = MAKE(struct request, .prompt_tokens = prompt, .output_tokens = output,
                                  .canvas_tokens = prompt + output, .block_tokens = B,
                                  .causal = SEES_BLOCKS, .cached_tokens = prompt / B * B);
    window_allow_blocks(&request, most);
    window_enter(&request, 0);
    return request;
}

static void assert_window(const struct request *request, uint32_t first, uint32_t end,
                          uint32_t masked) {
    ck_assert_uint_eq(window_first(request), first);
    ck_assert_uint_eq(window_end(request), end);
    ck_assert_uint_eq(window_masked(request), masked);
}

TEST(blocks_join_until_the_window_is_full_or_the_canvas_ends) {
    struct request request = request_of(6, 9, 3);
    assert_window(&request, 4, 8, 2);
    ck_assert(!window_is_full(&request) && !window_has_several(&request));
    ck_assert(window_add_block(&request));
    assert_window(&request, 4, 12, 6);
    ck_assert(window_add_block(&request));
    assert_window(&request, 4, 15, 9);
    ck_assert_uint_eq(window_marks(&request), 3);
    ck_assert_uint_eq(window_mark(&request, 0).end, 8);
    ck_assert_uint_eq(window_mark(&request, 2).first, 12);
    ck_assert_uint_eq(window_mark(&request, 2).end, 15);
    ck_assert(!window_add_block(&request));
    ck_assert_uint_eq(window_active(&request), 4);
    window_activate(&request, 2);
    ck_assert_uint_eq(window_active(&request), 11);
    struct request alone = request_of(6, 9, 1);
    ck_assert(!window_add_block(&alone) && !window_is_full(&alone));
}

/* What is decided of the second block stays so, and the first is in flight until it is stored. */
TEST(the_window_moves_on_to_a_block_that_is_in_flight_already) {
    struct request request = request_of(4, 20, 2);
    ck_assert(window_add_block(&request));
    window_commit(&request, 5);
    window_list(&request, 8, 4);
    window_advance(&request, 3, 0);
    ck_assert_uint_eq(window_front_masked(&request), 0);
    window_enter_next(&request);
    assert_window(&request, 8, 12, 3);
    ck_assert_uint_eq(window_steps(&request), 3);
    ck_assert_uint_eq(window_before(&request), 4);
    ck_assert(window_is_full(&request) && !window_add_block(&request));
    request.cached_tokens = 8; /* the pass that decides on the second stored the first */
    ck_assert(!window_is_full(&request) && window_add_block(&request));
    assert_window(&request, 8, 16, 7);
    request.cached_tokens = 8;
    window_commit(&request, 7);
    window_enter_next(&request);
    window_enter_next(&request);
    ck_assert_uint_eq(window_before(&request), 8); /* both are to be stored */
    assert_window(&request, 16, 20, 4);
    ck_assert_uint_eq(window_steps(&request), 0);
}

/* By as many positions as are decided at its left; what is decided after them stays so. */
TEST(a_window_slides_to_its_first_mask) {
    struct request request = MAKE(struct request, .prompt_tokens = 3, .output_tokens = 9,
                                  .canvas_tokens = 12, .block_tokens = B, .causal = SEES_CANVAS);
    window_allow_sliding(&request);
    window_enter(&request, 0);
    assert_window(&request, 3, 7, 4);
    ck_assert(!window_lengthen(&request));
    window_advance(&request, 1, 0);
    window_commit(&request, 2);
    window_slide(&request, 0); /* none of them is the first */
    ck_assert(window_front_is_open(&request));
    window_commit(&request, 1);
    window_slide(&request, 3);
    ck_assert(!window_front_is_open(&request));
    window_enter_next(&request);
    assert_window(&request, 6, 7, 1);
    ck_assert(window_lengthen(&request));
    assert_window(&request, 6, 10, 4);
    ck_assert_uint_eq(window_steps(&request), 1);
    window_commit(&request, 4);
    window_slide(&request, 4);
    window_enter_next(&request);
    assert_window(&request, 10, 12, 2);
    ck_assert_uint_eq(window_steps(&request), 1);
}

/* ---- what is drawn ---- */

/* A block does not see those after it, and its neighbours' confidences go by what is masked. */
TEST(the_first_block_is_as_sure_as_alone) {
    const struct decode_process process = {
        .location = 3, .distance = 4, .gap = 2, .context = 2, .step_spread = 1};
    uint8_t masked[3 * B] = {0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1};
    float alone[B], together[3 * B], known[3 * B];
    struct decode_view view = {.block_start = 8, .block_length = B, .masked = masked};
    process_confidence(&process, 1, &view, alone);
    view.block_length = 3 * B;
    view.mark_tokens = B;
    process_confidence(&process, 1, &view, together);
    ck_assert_mem_eq(alone, together, sizeof alone);
    memset(masked, 0, B);
    process_confidence(&process, 1, &view, known);
    ck_assert(known[B] > together[B]);
    ck_assert(known[B + 2] == together[B + 2]); /* after a decided one, of the same block */
}

TEST(a_block_is_forced_where_the_one_before_is_far) {
    struct request request = request_of(4, 12, 3);
    ck_assert(window_add_block(&request) && window_add_block(&request));
    const uint32_t offset[] = {1, 4, 5, 6, 8, 9};
    const float rank[] = {0.1f, 0.2f, 0.3f, 0.1f, 0.95f, 0.2f};
    const struct decode_seen seen = {.n = 6, .first = 4, .offset = offset, .confidence = rank};
    uint8_t commit[6];
    static const struct {
        double complete;
        uint8_t commit[6];
    } cases[] = {{0.75, {1, 0, 1, 0, 1, 0}}, {0.76, {1, 0, 0, 0, 1, 0}}, {0, {1, 0, 1, 0, 1, 0}}};
    for (size_t i = 0; i < 3; i++) {
        const uint32_t n =
            several_blocks_choose(&request, &seen, rank, 0.9f, cases[i].complete, commit);
        ck_assert_mem_eq(commit, cases[i].commit, sizeof commit);
        ck_assert_uint_eq(n, i == 1 ? 2 : 3);
    }
    ck_assert_uint_eq(several_blocks_choose(&request, &seen, rank, 0.95f, 0.25, commit), 3);
}

/* ---- runs ---- */

#define ASKED(...)                                                                                 \
    "run", "--gpu", "h100", "--workload", "gsm8k", "--requests", "12", "--rate", "4", "--json",    \
        __VA_ARGS__

/* Rows that nothing is decided of cost time and change nothing. */
TEST(a_ring_runs_more_and_decides_the_same) {
    char *fixed = PRINTS(ASKED("--system", "multibd"));
    char *moving = PRINTS(ASKED("--system", "multibd", "--set", "static_blocks=off"));
    char *one = PRINTS(ASKED("--system", "multibd", "--set", "blocks_in_flight=1"));
    ck_assert_int_eq(number_in(fixed, "request_steps"), number_in(moving, "request_steps"));
    ck_assert_int_gt(number_in(fixed, "tokens_processed"), number_in(moving, "tokens_processed"));
    ck_assert_int_lt(number_in(fixed, "request_steps"), number_in(one, "request_steps"));
    ck_assert_int_eq(number_in(fixed, "tokens_committed"), 12 * 256);
    ck_assert_int_le(number_in(fixed, "tokens_processed"), 64 * number_in(fixed, "request_steps"));
    free(fixed);
    free(moving);
    free(one);
}

/* D2F keeps the logits of the last position that it stored (Dream), so that no pass is added. */
#define SHORT_D2F(...)                                                                             \
    "run", "--gpu", "h100", "--system", "d2f", "--requests", "6", "--output-tokens", "64",         \
        "--json", "--model", "fast-dllm-v2-tiny", __VA_ARGS__
TEST(shifted_logits_change_no_pass_of_several_blocks) {
    char *said[2][2] = {
        {PRINTS(ASKED("--system", "d2f")),
         PRINTS(ASKED("--system", "d2f", "--set", "model.shifted_logits=on"))},
        {PRINTS(SHORT_D2F("--set", "model.shifted_logits=off")), PRINTS(SHORT_D2F("--seed", "1"))}};
    for (int i = 0; i < 2; i++) {
        static const char *const fields[] = {"completed", "request_steps", "tokens_processed"};
        for (int f = 0; f < 3; f++) {
            ck_assert_int_eq(number_in(said[i][1], fields[f]), number_in(said[i][0], fields[f]));
        }
        free(said[i][0]);
        free(said[i][1]);
    }
}

/* Blocks of four, of which each step decides one position: a block that joins later is run in fewer
 * steps. 32 positions are prefilled, the first block runs alone until the second joins, both until
 * the first is stored in the fifth step, and the second in three more. */
TEST(a_block_joins_in_the_very_step_in_which_enough_is_decided) {
    static const struct {
        const char *add;
        json_int_t rows;
    } cases[] = {{"block_add_threshold=0.25", 80},
                 {"block_add_threshold=0.26", 76},
                 {"block_add_threshold=0.5", 76},
                 {"block_add_threshold=0.51", 72},
                 {"block_add_threshold=0.75", 72}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *said =
            PRINTS("run", "--gpu", "h100", "--system", "multibd", "--requests", "1", "--rate", "1",
                   "--json", "--input-tokens", "32", "--output-tokens", "8", "--set",
                   "static_blocks=off", "--set", "block_tokens=4", "--set", "decoder.complete=0.75",
                   "--set", "decoder.threshold=1", "--set", cases[i].add);
        ck_assert_int_eq(number_in(said, "tokens_processed"), cases[i].rows);
        ck_assert_int_eq(number_in(said, "request_steps"), 9);
        free(said);
    }
}

TEST(recorded_steps_are_played_with_preemptions_too) {
    static const char *const systems[] = {"d2f", "multibd", "d3llm", "dsb"};
    char path[512], run[16];
    snprintf(path, sizeof path, "%s", scratch_path("runs.db"));
    for (size_t i = 0; i < 4; i++) {
        char *said = PRINTS(ASKED("--system", systems[i], "--db", path, "--levels", "events",
                                  "--set", i < 2 ? "pool_pages=24" : "max_requests=3"));
        ck_assert_int_eq(number_in(said, "completed"), 12);
        ck_assert(i >= 2 || number_in(said, "preemptions") > 0);
        snprintf(run, sizeof run, "%zu", i + 1);
        free(PRINTS("replay", "--db", path, "--run", run));
        free(said);
    }
}

/* ---- what is refused ---- */

/* Where a ring is full as the text's last block is decided no pass has anything to decide, and no
 * block is stored alone. */
TEST(a_ring_ends_with_its_text) {
    static const char *const stops[] = {"early_stop=window", "early_stop=block"};
    for (int i = 0; i < 2; i++) {
        free(PRINTS("run", "--gpu", "h100", "--system", "multibd", "--workload", "gsm8k",
                    "--requests", "20", "--rate", "20", "--set", "workload.answer.share=0.3",
                    "--set", "block_tokens=8", "--set", stops[i]));
    }
}

TEST(each_thing_that_does_not_fit_is_refused_with_one_sentence) {
#define WITH(...) "run", "--gpu", "h100", "--requests", "1", "--rate", "1", __VA_ARGS__
    REFUSES(2,
            "unmask: a block is added when 0.99 of the one before is decided and commits in every "
            "step from 0.95 on: set decoder.complete to block_add_threshold at least",
            WITH("--system", "d2f", "--set", "block_add_threshold=0.99"));
    REFUSES(
        2,
        "unmask: blocks_in_flight = 2 stores a block while the next ones are decoded, and cache "
        "exact in a pass of its own: set cache.cross_block = on",
        WITH("--system", "multibd", "--set", "cache.cross_block=off"));
    REFUSES(2,
            "unmask: cache dual serves one block at a time, and blocks_in_flight is 8: set cache = "
            "none",
            WITH("--system", "d3llm", "--set", "cache=dual"));
    REFUSES(2,
            "unmask: blocks_in_flight = 16 blocks of 32 tokens are more than context_tokens = 256",
            WITH("--system", "d2f", "--set", "context_tokens=256"));
    REFUSES(2,
            "unmask: blocks_in_flight = 16 blocks of 32 tokens are more than max_batched_tokens = "
            "256",
            WITH("--system", "d2f", "--set", "max_batched_tokens=256"));
    REFUSES(
        2,
        "unmask: LLaDA-8B Base/Instruct/1.5 is bidirectional, and cache exact is for block-causal",
        WITH("--system", "multibd", "--model", "llada-8b"));
    REFUSES(
        2,
        "unmask: static_blocks = on runs blocks that those before them do not see, and LLaDA-8B "
        "is bidirectional: set static_blocks = off",
        WITH("--system", "d3llm", "--set", "static_blocks=on"));
    REFUSES(2, "those of Dream-v0 7B Base/Instruct are shifted: set cache = none",
            WITH("--system", "d3llm", "--model", "dream-7b", "--set", "cache=dual"));
    REFUSES(2, "unmask: Qwen3-8B is autoregressive: blocks_in_flight is 1, not 2",
            WITH("--system", "ar", "--model", "qwen3-8b", "--set", "blocks_in_flight=2"));
    REFUSES(
        2,
        "unmask: unroll.maximum = 2 starts steps together, and decoder several-blocks chooses on "
        "the host after each: set unroll.maximum = 1",
        WITH("--system", "multibd", "--set", "unroll.maximum=2"));
    REFUSES(2,
            "unmask: decoder fixed counts positions of one block, and blocks_in_flight is 2: set "
            "decoder = several-blocks",
            WITH("--system", "multibd", "--decoder", "fixed"));
    REFUSES(2,
            "unmask: decoder joint-threshold replaces tokens of one block, and blocks_in_flight is "
            "2: set decoder = several-blocks",
            WITH("--system", "multibd", "--decoder", "joint-threshold"));
}

TEST(a_window_slides_where_nothing_goes_by_blocks) {
    REFUSES(2,
            "unmask: window_slides = on is for bidirectional models, and LLaDA2.0-mini is "
            "block-causal",
            WITH("--system", "multibd", "--set", "window_slides=on"));
    REFUSES(2,
            "unmask: cache dual renews by blocks, and a window that slides has none: set cache = "
            "sliding or none",
            WITH("--system", "dsb", "--set", "cache=dual"));
    REFUSES(2,
            "unmask: window_slides = on moves the window by what each step commits, and by nothing "
            "else: set static_blocks = off",
            WITH("--system", "dsb", "--set", "static_blocks=on"));
    REFUSES(2, "unmask: decoder fixed counts positions of one block, and the window slides",
            WITH("--system", "dsb", "--decoder", "fixed"));
}

/* The same sentence on an engine. */
TEST(an_engine_refuses_the_same) {
    REFUSES(2,
            "unmask: a block is added when 0.99 of the one before is decided and commits in every "
            "step from 0.9 on: set decoder.complete to block_add_threshold at least",
            "run", "--backend", "cpu", "--weights", "experiments/train/models/sdar-2m",
            "--requests", "1", "--rate", "1", "--system", "multibd", "--set",
            "block_add_threshold=0.99");
}

TEST(a_trace_of_decisions_does_not_say_of_which_block_they_are) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("decisions.db"));
    free(PRINTS(ASKED("--system", "sdar", "--model", "llada2-mini", "--decode-out", path)));
    REFUSES(2,
            "unmask: says how many positions a step commits, not of which block: it is not played "
            "with blocks_in_flight = 2",
            ASKED("--system", "multibd", "--decode", path));
}

SUITE("several blocks")
