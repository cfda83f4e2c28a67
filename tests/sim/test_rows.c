/* The row sets that a cache policy may not answer with: each is refused in one sentence with its
 * numbers. */
#include "sim/policy/request.h"
#include "sim/policy/rows.h"
#include "sim/policy/window.h"
#include "tests/support/says.h"
#include "tests/support/suite.h"

/* A request in the middle of its second block, and the answer to it. */
static struct request request;
static struct row_sets rows;

static void canvas(void) {
    request = MAKE(struct request, .id = 5, .prompt_tokens = 36, .output_tokens = 64,
                   .canvas_tokens = 100, .block_tokens = 32, .window.block = 1, .window.first = 68,
                   .window.before = 36, .window.length = 32, .window.steps = 2, .steps = 20,
                   .window.masked = 30, .window.uncached = 32, .window.kept = 32,
                   .window.reach = 32, .committed_tokens = 34);
    rows = (struct row_sets){
        .kind = ROW_KV, .run = {68, 100}, .head = {68, 100}, .keep = {{0, 68}}, .held = 100};
    request.rows = rows;
}

/* The same request under an exact policy, with its first block committed. */
static void exact_init(void) {
    canvas();
    request.prompt_tokens = 32;
    request.output_tokens = 68;
    request.causal = SEES_BLOCKS;
    request.window.first = 64;
    request.window.before = 32;
    request.cached_tokens = 64;
    request.window.passes = 2;
    rows = MAKE(struct row_sets, .kind = ROW_EXACT, .run = {64, 96}, .skips = 1, .head = {64, 96},
                .keep = {{0, 96}}, .held = 100);
}

/* In a prefill of 48 positions behind 16. */
static void exact_prefill(void) {
    exact_init();
    request.cached_tokens = 16;
    rows.run = (struct range){16, 64};
    rows.head = (struct range){64, 64};
    rows.keep[0].end = 64;
    rows.skips = 0;
}

/* Where the block has no masked position left. */
static void exact_commit(void) {
    exact_init();
    request.window.masked = 0;
    rows.head = (struct range){96, 96};
}

/* With a part of the block alone. */
static void exact_part(void) {
    exact_init();
    request.window.known = 2;
    rows.settles = BLOCK_PARTS;
    rows.run = rows.head = (struct range){64, 72};
    rows.skips = 0;
}

static void assert_rows(const char *sentence) {
    struct err err = {0};
    ck_assert_int_eq(rows_check(&rows, &request, &err), sentence[0] == '\0' ? 0 : ERR_WORLD);
    ASSERT_SAYS(err.text, sentence);
}

#define EXACT(init, spoil, sentence)                                                               \
    do {                                                                                           \
        init();                                                                                    \
        spoil;                                                                                     \
        assert_rows(sentence);                                                                     \
    } while (0)
#define CANVAS(spoil, sentence) EXACT(canvas, spoil, sentence)

TEST(each_answer_on_a_canvas_that_a_policy_may_not_give_is_named) {
    CANVAS((void)0, "");
    CANVAS(rows.kind = 5, "has rows of kind 5, which is no row_kind");
    CANVAS(rows.chooser = 6, "names chooser 6, which is no row_chooser");
    CANVAS(rows.settles = 4, "settles by rule 4, which is no block_cache");
    CANVAS(rows.skips = 2, "sets rows.skips to 2, neither 0 nor 1");
    CANVAS(rows.run.end = 68, "runs [68, 68) without the whole active block [68, 100)");
    CANVAS(rows.run.first = 69, "runs [69, 100) without the whole active block [68, 100)");
    CANVAS(rows.run.end = 101, "sets rows.run to [68, 101) on a canvas of 100 tokens");
    CANVAS(rows.keep[1].first = 1, "sets rows.keep[1] to [1, 0) on a canvas of 100 tokens");
    CANVAS((rows.keep[1] = (struct range){67, 68}),
           "keeps [0, 68) and then [67, 68), which is out of order");
    CANVAS(rows.head.first = 70, "puts [70, 100) through the head without the whole active block "
                                 "[68, 100)");
    CANVAS(rows.head.first = 67, "puts [67, 100) through the head but runs [68, 100)");
    CANVAS(rows.n_chosen = 5, "chooses 5 of 0 positions that run");
    CANVAS((rows.chooser = CHOSEN_BY_HEAD, rows.n_chosen = 69), "chooses 69 of 68 rows");
    CANVAS((rows.chooser = CHOSEN_BY_HEAD, rows.n_chosen = 5, rows.run.first = 60),
           "chooses of 68 rows in a step that runs 8 of them");
    CANVAS((rows.chooser = CHOSEN_BY_CHANGE, rows.n_chosen = 33),
           "chooses 33 of 32 positions that run");
    CANVAS((rows.chooser = CHOSEN_FOR_HEADS, rows.kind = ROW_FEATURES, rows.n_chosen = 1),
           "has heads choose among rows of kind 2, which is not ROW_KV");
    CANVAS(rows.held = 67, "keeps 68 rows but holds 67");
    CANVAS(rows.kind = ROW_NONE, "keeps 68 rows and holds 100 though its kind of row is ROW_NONE");
    CANVAS(rows.chooser = CHOSEN_BY_POLICY, "evicts positions but keeps no exact rows");
    CANVAS(rows.settles = BLOCK_PARTS, "runs a block in parts but keeps no exact rows");
    CANVAS(rows.settles = BLOCK_DELAYED,
           "leaves positions out but keeps 68 rows of a canvas of 100 tokens");
    CANVAS(rows.evict_layer = 1, "sets rows.evict_layer to 1 with chooser 0");
    CANVAS(rows.recent = 1, "sets rows.recent to 1 and settles by rule 0");
    CANVAS(rows.attends = 1, "attends to 1 keys of a canvas of 100 tokens, with rows of kind 1");
    CANVAS(rows.chooser = CHOSEN_BY_SCORE,
           "names chooser 5 for rows of kind 1: CHOSEN_BY_SCORE goes with "
           "ROW_PATTERN");
    CANVAS(rows.pattern.tokens = 8, "has a pattern of blocks of 8 tokens with rows of kind 1");
}

static void listed(void) {
    canvas();
    request.shifted = 1;
    rows = MAKE(struct row_sets, .kind = ROW_KV, .settles = BLOCK_DELAYED, .skips = 1,
                .run = {67, 99}, .head = {67, 99}, .keep = {{0, 100}}, .held = 100);
}

/* A step that lists positions of a canvas runs the rows before them where logits are shifted. */
TEST(rows_before_the_positions_that_are_listed_decide_on_them) {
    struct span span;
    EXACT(listed, (void)0, "");
    ck_assert(rows_are_before(&rows, &request));
    window_list(&request, 5, 0); /* of 32 positions */
    rows_span(&rows, &request, &span);
    ck_assert_uint_eq(span.queries, 5);
    ck_assert_uint_eq(span.logit_rows, 5);
    ck_assert_uint_eq(span.context, 95);
    EXACT(listed, rows.run.end = 100, "");
    EXACT(listed, (rows.run.first = 68, rows.head.first = 68),
          "runs [68, 99) without the rows that decide on the active block, [67, 99)");
    EXACT(listed, rows.head.end = 98,
          "puts [67, 98) through the head without the rows that decide on the active block, "
          "[67, 99)");
    EXACT(listed, rows.skips = 0, "runs [67, 99) without the whole active block [68, 100)");
    EXACT(listed, request.shifted = 0, "runs [67, 99) without the whole active block [68, 100)");
}

/* Of a canvas of 100 tokens, 7 blocks of 16 in a word each, of which 2 are the output's. */
static void pattern_rows_init(void) {
    canvas();
    rows = MAKE(struct row_sets, .kind = ROW_PATTERN, .chooser = CHOSEN_BY_SCORE, .run = {0, 100},
                .head = {0, 100}, .held = 8, .n_chosen = 64,
                .pattern = {.tokens = 16, .rest = 5, .keep = 3, .keep_rest = 1});
}

#define PATTERN(change, sentence) EXACT(pattern_rows_init, change, sentence)

TEST(each_answer_on_patterns_that_a_policy_may_not_give_is_named) {
    PATTERN((void)0, "");
    PATTERN(rows.pattern.tokens = 0, "attends by a pattern of blocks of 0 tokens");
    PATTERN(rows.pattern.rest = 7, "says that the output begins with block 7 of 7");
    PATTERN(rows.pattern.keep = 8, "keeps 8 blocks of 7 and 1 of the output's 2");
    PATTERN(rows.pattern.keep = 0, "keeps 0 blocks of 7 and 1 of the output's 2");
    PATTERN(rows.pattern.keep_rest = 3, "keeps 3 blocks of 7 and 3 of the output's 2");
    PATTERN(rows.pattern.scores = 3, "sets rows.pattern.scores to 3, which is no pattern_scores");
    PATTERN(rows.held = 6, "holds 6 rows for a pattern of 7 blocks");
}

TEST(each_answer_on_exact_rows_that_a_policy_may_not_give_is_named) {
    EXACT(exact_init, (void)0, "");
    EXACT(exact_init, rows.keep[0].end = 97,
          "keeps 97 rows from 0 on, not the 96 of what is before the block and of "
          "it");
    EXACT(exact_init, rows.run.end = 94,
          "runs [64, 94) of the block [64, 96) though it runs whole blocks");
    EXACT(exact_init, (rows.run = (struct range){60, 96}),
          "runs [60, 96), which is not of the block [64, 96)");
    EXACT(exact_init, rows.head.end = 95,
          "puts [64, 95) through the head where it decides on [64, 96)");
    EXACT(exact_init, rows.held = 95, "keeps 96 rows but holds 95");
    EXACT(exact_prefill, (void)0, "");
    EXACT(exact_prefill, rows.run.end = 63, "runs [16, 63) where the rows of [16, 64) are missing");
    EXACT(exact_prefill, rows.run.first = 15,
          "runs [15, 64) where the rows of [16, 64) are missing");
    EXACT(exact_prefill, rows.run.end = 96, "runs [16, 96) where the rows of [16, 64) are missing");
    EXACT(exact_prefill, rows.skips = 1, "leaves positions of the block out of a prefill");
    EXACT(exact_prefill, rows.head.first = 15, "puts [15, 64) through the head but runs [16, 64)");
    EXACT(exact_prefill, rows.keep[0].first = 1,
          "keeps 63 rows from 1 on, not the 64 of what is before the block");
    EXACT(exact_commit, (void)0, "");
    EXACT(exact_commit, rows.run.first = 96, "");
    EXACT(exact_commit, request.window.uncached = 0, "");
    EXACT(exact_commit, (request.window.uncached = 0, rows.skips = 0),
          "runs [64, 96) though every row is final");
    EXACT(exact_commit, (request.cached_tokens = 0, rows.run.first = 96),
          "runs [96, 96) where the rows of [0, 64) are missing");
    EXACT(exact_init, rows.run.first = 96, "runs [96, 96), which is not of the block [64, 96)");
    EXACT(exact_part, (void)0, "");
    EXACT(exact_part, request.window.known = 8,
          "runs [64, 72) of a block whose first masked position is 72");
    EXACT(exact_part, request.window.passes = 0,
          "runs [64, 72) of the block [64, 96) where the others have no rows");
    EXACT(exact_part, request.window.masked = 0,
          "runs [64, 72) of the block [64, 96) where none is masked");
}

SUITE("rows")
