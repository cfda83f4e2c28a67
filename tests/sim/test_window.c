/* The window of a request: where it lies, and the keys of its draws. */
#include "tests/support/rig.h"

#include "sim/serve/positions.h"

enum { N = 4, MOST_KEYS = 64 };

static struct request request_of(uint32_t prompt, uint32_t output, uint16_t causal) {
    return MAKE(struct request, .id = 7, .prompt_tokens = prompt, .output_tokens = output,
                .canvas_tokens = prompt + output, .block_tokens = N, .causal = causal);
}

TEST(blocks_lie_one_after_the_other_and_fill_the_canvas) {
    for (uint16_t causal = SEES_CANVAS; causal <= SEES_BLOCKS; causal++) {
        for (uint32_t prompt = 1; prompt < 10; prompt++) {
            struct request request = request_of(prompt, 11, causal), last = request;
            uint32_t masked = 0, end = causal == SEES_BLOCKS ? prompt / N * N : prompt;
            window_enter_last(&last);
            for (uint32_t block = 0; end < request.canvas_tokens; block++) {
                window_enter(&request, block);
                ck_assert_uint_eq(window_first(&request), end);
                ck_assert_uint_eq(window_block(&request), block);
                ck_assert_uint_le(window_length(&request), N);
                masked += window_masked(&request);
                end = window_end(&request);
            }
            ck_assert_uint_eq(end, request.canvas_tokens);
            ck_assert_uint_eq(masked, 11);
            ck_assert_uint_eq(window_first(&last), window_first(&request));
        }
    }
}

TEST(keys_end_with_a_block_or_the_window) {
    struct request request = request_of(6, 5, SEES_BLOCKS);
    window_enter(&request, 1);
    ck_assert_uint_eq(window_first(&request), 8);
    ck_assert_uint_eq(window_end(&request), 11);
    ck_assert_uint_eq(window_extent(&request, 3), 4);
    ck_assert_uint_eq(window_extent(&request, 4), 8);
    ck_assert_uint_eq(window_extent(&request, 9), 11);
    request.causal = SEES_TOKENS;
    ck_assert_uint_eq(window_extent(&request, 3), 4);
    ck_assert(window_has(&request, 10) && !window_has(&request, 11) && !window_has(&request, 7));
}

/* Where nothing else is said the next block is the one that lies there. */
TEST(the_next_block_begins_where_the_window_ends) {
    for (uint16_t causal = SEES_CANVAS; causal <= SEES_BLOCKS; causal++) {
        for (uint32_t prompt = 1; prompt < 10; prompt++) {
            struct request walked = request_of(prompt, 11, causal), entered = walked;
            window_enter(&walked, 0);
            for (uint32_t block = 1; window_end(&walked) < walked.canvas_tokens; block++) {
                ck_assert_uint_eq(window_blocks_left(&walked),
                                  1 + (walked.canvas_tokens - window_end(&walked) + N - 1) / N);
                window_enter_next(&walked);
                window_enter(&entered, block);
                ck_assert_mem_eq(&walked.window, &entered.window, sizeof walked.window);
            }
            ck_assert_uint_eq(window_blocks_left(&walked), 1);
        }
    }
}

TEST(a_width_is_taken_at_once_where_nothing_was_done_and_else_by_the_next_window) {
    struct request request = request_of(6, 11, SEES_CANVAS);
    window_enter(&request, 0);
    ck_assert(window_say(&request, 2, 500000));
    ck_assert_uint_eq(window_first(&request), 6);
    ck_assert_uint_eq(window_length(&request), 2);
    ck_assert_uint_eq(window_masked(&request), 2);
    ck_assert(!window_say(&request, 2, 700000));
    ck_assert_uint_eq(window_threshold(&request), 700000);
    window_advance(&request, 1, 1);
    ck_assert(!window_say(&request, 3, 0));
    ck_assert_uint_eq(window_length(&request), 2);
    window_advance(&request, 1, 1);
    window_enter_next(&request);
    ck_assert_uint_eq(window_first(&request), 8);
    ck_assert_uint_eq(window_length(&request), 3);
    ck_assert_uint_eq(window_before(&request), 6);
    ck_assert_uint_eq(window_blocks_left(&request), 3);
    ck_assert(window_say(&request, 0, 0)); /* as configured again */
    ck_assert_uint_eq(window_length(&request), N);
    ck_assert_uint_eq(window_end(&request), 12);
}

/* ---- draws ---- */

struct drive {
    struct system *system;
    struct positions positions;
    struct request request;
    uint64_t keys[MOST_KEYS];
    uint32_t n_keys;
};

/* The next pass is planned, and so has a key that none had before; it comes out as said. */
static void pass(struct drive *drive, const char *outcomes) {
    struct request *request = &drive->request;
    struct outcomes found;
    positions_plan(&drive->positions, 0, request, true);
    uint64_t key = window_draw_key(request, 3);
    for (uint32_t i = 0; i < drive->n_keys; i++) {
        ck_assert_msg(drive->keys[i] != key, "pass %u has the key of pass %u", drive->n_keys, i);
    }
    drive->keys[drive->n_keys++] = key;
    const struct planned_block block = positions_block(&drive->positions, 0);
    for (uint32_t i = 0; i < N; i++) {
        block.outcome[i] = outcomes[i] == 'x'   ? OUTCOME_COMMIT
                           : outcomes[i] == 'a' ? OUTCOME_AGAIN
                                                : OUTCOME_NONE;
    }
    window_advance(request, 1, 0);
    ck_assert(positions_pass(&drive->positions, 0, request, true, 0, true, &found));
    window_commit(request, found.n[OUTCOME_COMMIT]);
    window_take_back(request, found.n[OUTCOME_AGAIN]);
}

static void begin(struct drive *drive, uint32_t block) {
    window_enter(&drive->request, block);
    positions_enter(&drive->positions, 0, &drive->request, 0);
}

TEST(no_two_passes_have_the_same_key) {
    static const char *const settings[] = {"block_tokens=4", "decoder=threshold", NULL};
    struct drive drive = {.system = rig_system("dllm-serve", "l40s", true, settings),
                          .request = request_of(5, 2 * N, SEES_CANVAS)};
    positions_init(&drive.positions, drive.system, 1, 1);
    positions_start(&drive.positions, 0, UINT32_MAX);
    begin(&drive, 0);
    pass(&drive, "xx.."); /* commits */
    pass(&drive, "...."); /* none */
    pass(&drive, "a..."); /* takes one back */
    pass(&drive, "...."); /* none again */
    pass(&drive, "x..."); /* and commits it again */
    pass(&drive, "..x.");
    pass(&drive, "aa..");
    pass(&drive, "xx..");
    pass(&drive, ".a.x"); /* one is committed, one taken back: as many as before */
    pass(&drive, ".x..");
    ck_assert_uint_eq(window_masked(&drive.request), 0);
    ck_assert_uint_eq(drive.request.committed_tokens, N);
    begin(&drive, 1);
    pass(&drive, "....");
    pass(&drive, "xxxx");
    ck_assert_uint_eq(drive.n_keys, 12);
    positions_fini(&drive.positions);
    system_close(drive.system);
}

/* Draws of the systems that commit in every pass are what they were. */
TEST(a_key_is_that_of_the_committed_tokens_where_every_pass_commits) {
    struct request request = request_of(5, 2 * N, SEES_CANVAS);
    window_enter(&request, 0);
    window_commit(&request, 3);
    ck_assert_uint_eq(window_draw_key(&request, 9), rng_key(9, 7, 3));
    window_count_earlier(&request, 1);
    ck_assert_uint_ne(window_draw_key(&request, 9), rng_key(9, 7, 3));
}

/* A tenth of the simulator's speed went when requests were no whole lines. */
TEST(requests_are_whole_lines_and_what_a_step_changes_lies_in_the_first) {
    enum { LINE = 64 };
    ck_assert_uint_eq(sizeof(struct request) % LINE, 0);
    ck_assert_uint_le(sizeof(struct request), 8 * LINE);
    ck_assert_uint_lt(offsetof(struct request, steps_to_change), LINE);
    const size_t last[] = {offsetof(struct window, masked), offsetof(struct window, known),
                           offsetof(struct window, front), offsetof(struct window, edits)};
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        ck_assert_uint_lt(offsetof(struct request, window) + last[i], LINE);
    }
}

SUITE("window")
