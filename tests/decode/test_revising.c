/* Tokens that a decoder replaces: a block's passes, what is drawn of them, and what is refused. */
#include <jansson.h>
#include <math.h>

#include "experiments/study/decode_edits.h"
#include "sim/decode/process_file.h"
#include "sim/decode/rollout.h"
#include "sim/system/system.h"
#include "tests/support/cli.h"
#include "tests/support/says.h"
#include "traces/decode_trace.h"

enum { N = 4, B = 32 };

/* ---- a block ---- */

struct drive {
    struct block_state block;
    uint8_t masked[N], uncached[N];
};

/* One letter a position: x commits, r replaces. Returns whether the block allows it. */
static bool pass(struct drive *drive, const char *outcomes) {
    uint8_t keep[N], outcome[N];
    struct outcomes found;
    (void)block_pending(&drive->block, keep);
    for (uint32_t i = 0; i < N; i++) {
        outcome[i] = outcomes[i] == 'x'   ? OUTCOME_COMMIT
                     : outcomes[i] == 'r' ? OUTCOME_REVISE
                                          : OUTCOME_NONE;
    }
    return block_try(&drive->block, keep, outcome, &found);
}

static void begin(struct drive *drive, bool is_revised) {
    block_begin(&drive->block, BLOCK_WHOLE, N, 1, drive->masked, drive->uncached);
    drive->block.is_revised = is_revised;
}

TEST(a_block_is_stored_after_a_pass_that_changes_nothing) {
    struct drive drive;
    begin(&drive, true);
    ck_assert(!pass(&drive, "rx..")); /* the prompt's */
    ck_assert(!pass(&drive, ".r..")); /* what is masked has no token yet */
    ck_assert(pass(&drive, ".x.x"));
    ck_assert(pass(&drive, ".rx.")); /* also while masks remain */
    ck_assert_uint_eq(drive.block.n_masked, 0);
    ck_assert(!pass(&drive, "r..."));
    ck_assert(pass(&drive, "..r."));
    ck_assert(pass(&drive, "...r"));
    ck_assert(drive.block.is_revised);
    ck_assert(pass(&drive, "...."));
    ck_assert(!drive.block.is_revised && !block_is_done(&drive.block));
    ck_assert(!pass(&drive, ".r.."));
    ck_assert(pass(&drive, "...."));
    ck_assert(block_is_done(&drive.block));
    ck_assert_uint_eq(drive.block.passes, 6);
}

TEST(a_block_that_is_not_revised_is_stored_at_once) {
    struct drive drive;
    begin(&drive, false);
    ck_assert(pass(&drive, ".xxx"));
    ck_assert(!pass(&drive, ".r.."));
    ck_assert(pass(&drive, "...."));
    ck_assert(block_is_done(&drive.block));
}

/* ---- what is drawn ---- */

/* Sure of every position, whatever is known. */
static struct decode_process sure(double location) {
    return (struct decode_process){
        .location = location, .gap = 1, .edit_scale = 1, .edit_share = 1, .edits = 1};
}

static const uint8_t decided[B];

static uint32_t replaced(const struct decode_process *process, uint64_t request, uint32_t n_fixed,
                         float edit, float held[B]) {
    const struct decode_view view = {.request = request, .block_length = B, .masked = decided};
    uint8_t revised[B];
    uint32_t n = 0;
    process_revisions(process, 1, &view, n_fixed, edit, held, revised);
    for (uint32_t i = 0; i < B; i++) {
        n += revised[i];
        ck_assert(!revised[i] || i >= n_fixed);
    }
    return n;
}

/* Of tokens that were chosen with 0.7 three in ten are wrong, and are replaced by a model that has
 * become sure; another time none is. */
TEST(tokens_are_wrong_as_often_as_they_were_unsure) {
    enum { REQUESTS = 1000 };
    static const double shares[] = {1, 0.5, 0};
    for (int s = 0; s < 3; s++) {
        struct decode_process process = sure(12);
        uint64_t n = 0, again = 0, above = 0, fixed = 0;
        process.edit_share = shares[s];
        for (uint64_t r = 0; r < REQUESTS; r++) {
            float held[B], copy[B];
            for (uint32_t i = 0; i < B; i++) {
                held[i] = copy[i] = 0.7f;
            }
            n += replaced(&process, r, 0, 0.5f, held);
            again += replaced(&process, r, 0, 0, held);
            above += replaced(&process, r, 0, 1, copy);
            fixed += replaced(&process, r, B, 0, copy);
        }
        ck_assert_double_eq_tol((double)n / (REQUESTS * B), 0.3 * shares[s], 0.01);
        ck_assert_uint_eq(again + above + fixed, 0);
    }
}

/* A model that says less than it knows is right as often, and replaces above what it says. */
TEST(what_a_model_says_is_apart_from_how_often_it_is_right) {
    struct decode_process process = sure(2), silent = sure(2);
    silent.edit_scale = 0.25;
    silent.edit_location = -0.25;
    uint8_t masked[B];
    float held[2][B];
    const struct decode_view view = {.block_length = B, .masked = masked};
    memset(masked, 1, sizeof masked);
    process_confidence(&process, 1, &view, held[0]);
    process_confidence(&silent, 1, &view, held[1]);
    for (uint32_t i = 0; i < B; i++) {
        const double x = log((double)held[0][i] / (1 - (double)held[0][i]));
        ck_assert_double_eq_tol((double)held[1][i], 1 / (1 + exp(0.25 - 0.25 * x)), 1e-5);
    }
    struct decode_process structured = silent;
    structured.edit_location = 1;
    structured.edit_structured = -1.25;
    structured.is_structured = true;
    float same[B];
    process_confidence(&structured, 1, &view, same);
    ck_assert_mem_eq(same, held[1], sizeof same);
    process.location = silent.location = 12;
    const uint32_t n = replaced(&process, 0, 0, 0, held[0]);
    ck_assert_uint_gt(n, 0);
    float copy[B];
    memcpy(copy, held[1], sizeof copy);
    ck_assert_uint_eq(replaced(&silent, 0, 0, 0, held[1]), n);
    ck_assert_uint_eq(replaced(&silent, 0, 0, 0.95f, copy), 0); /* it says 0.94 */
}

static struct rollout sampled(float threshold, float edit, uint32_t post_passes) {
    struct decode_process process = sure(0); /* and of another mind in each pass */
    process.step_spread = 2;
    const struct rollout_rule rule =
        MAKE(struct rollout_rule, .block_tokens = B,
             .rule = MAKE(struct decode_rule, .kind = DECODE_JOINT, .threshold = threshold,
                          .edit = edit, .post_passes = post_passes));
    struct rollout sums = {0};
    for (uint64_t r = 0; r < 60; r++) {
        rollout_request(&process, 1, r, &rule, 8, &sums);
    }
    return sums;
}

TEST(passes_after_the_last_mask_are_bounded) {
    const struct rollout none = sampled(0.5f, 1, 16), bounded = sampled(0.5f, 0, 1),
                         zero = sampled(0.5f, 0, 0), free = sampled(0.5f, 0, 16);
    ck_assert_uint_eq(none.revised + none.of_count[0], 0);
    ck_assert_uint_eq(zero.of_count[0], zero.blocks); /* the one that may not change anything */
    ck_assert_uint_gt(zero.revised, 0);
    ck_assert_uint_gt(bounded.of_count[0], bounded.blocks);
    ck_assert_uint_le(bounded.of_count[0], 2 * bounded.blocks);
    ck_assert_uint_gt(free.of_count[0], bounded.of_count[0]);
    ck_assert_uint_le(free.of_count[0], 17 * free.blocks);
}

/* The rows that were fitted to, and that nothing is within 20 % that the page says is not. */
TEST(the_edit_model_gives_what_it_was_fitted_to) {
    struct edits edits;
    struct err err = {0};
    size_t n_fitted = 0, n_near = 0;
    double printed[2] = {0, 0}, given[2] = {0, 0};
    ck_assert_int_eq(edits_open("experiments/study/paper/edit_modes.csv", &edits, &err), 0);
    ck_assert_uint_eq(edits.n, 66);
    for (size_t i = 0; i < edits.n; i++) {
        const struct edit_row *row = &edits.rows[i];
        const double gives = edits_give(&row->of, row, 60), off = gives / row->printed - 1;
        printed[row->mode[0] == 'Q'] += row->printed;
        given[row->mode[0] == 'Q'] += gives;
        n_fitted += row->is_fitted;
        n_near += !row->is_fitted && fabs(off) <= 0.2;
        ck_assert_msg(!row->is_fitted || fabs(off) < 0.14, "%s %s: %g", row->benchmark, row->mode,
                      off);
    }
    ck_assert_uint_eq(n_fitted, 4);
    ck_assert_uint_ge(n_near, 40);
    ck_assert_uint_le(n_near, 48);
    for (int i = 0; i < 2; i++) { /* the report's means are 5.34 and 3.12 */
        ck_assert_double_eq_tol(printed[i] / 33, i == 0 ? 5.34 : 3.12, 0.01);
        ck_assert_double_eq_tol(given[i] / printed[i], 1, 0.08);
    }
    edits_close(&edits);
}

/* ---- a run ---- */

/* The recorded decisions are played to the same passes. */
static void are_played(const char *path, const char *set) {
#define ASKED(...)                                                                                 \
    "run", "--gpu", "h100", "--workload", "gsm8k", "--requests", "12", "--rate", "4", "--json",    \
        __VA_ARGS__
    char *drawn = PRINTS(ASKED("--system", "sglang-s", "--set", set, "--decode-out", path));
    char *played = PRINTS(ASKED("--system", "sglang-s", "--set", set, "--decode", path));
    json_t *a = json_loads(drawn, 0, NULL), *b = json_loads(played, 0, NULL);
    static const char *const keys[] = {"steps_by_phase", "tokens_processed", "makespan_s"};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_msg(json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])), "%s",
                      keys[i]);
    }
    json_decref(a);
    json_decref(b);
    free(drawn);
    free(played);
}

TEST(decisions_with_replaced_tokens_are_played) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("decisions.db"));
    are_played(path, "decoder.steps=3");
    are_played(path, "decoder.steps=0");
    REFUSES(1,
            "unmask: : pass 3 of request 0 commits 0 positions, where the masked ones of its "
            "block are 32: prompts or cache policy are not those it was recorded with",
            ASKED("--system", "sglang", "--model", "llada2-mini", "--decode", path));
    REFUSES(1, "unmask: : no rollout follows decoder 'joint-threshold'", "fit", "decode", "--from",
            path, "--judge", path);
}

/* Tokens that passes replaced, or those alone that passes did which committed none. */
static uint64_t replaced_by(const char *path, bool late) {
    struct decode_trace *trace;
    struct err err = {0};
    uint64_t n = 0;
    ck_assert_int_eq(decode_trace_read(path, DECODE_COUNTS, &trace, &err), 0);
    const struct decode_source source = decode_trace_source(trace);
    for (uint64_t r = 0; r < 12; r++) {
        struct decode_pass pass;
        for (uint32_t i = 0; source.pass(source.state, r, i, &pass, &err) == 0; i++) {
            n += !late || pass.committed == 0 ? pass.revised : 0;
        }
    }
    decode_trace_close(trace);
    return n;
}

TEST(a_timeline_says_how_many_tokens_of_a_block_were_replaced) {
    char path[512], timeline[512], line[4096];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s", scratch_path("decisions.db"));
    snprintf(timeline, sizeof timeline, "%s", scratch_path("timeline.json"));
    free(PRINTS(ASKED("--system", "sglang-s", "--decode-out", path, "--timeline", timeline)));
    FILE *file = fopen(timeline, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, "\"replaced\":");
        n += at != NULL ? strtoull(at + strlen("\"replaced\":"), NULL, 10) : 0;
    }
    fclose(file);
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_eq(n, replaced_by(path, false));
}

/* Of a model that changes its mind. */
static uint64_t replaced_late(const char *bound) {
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("bounded.db"));
    free(PRINTS(ASKED("--system", "sglang-s", "--set", "confidence=kumaraswamy", "--set", bound,
                      "--decode-out", path)));
    return replaced_by(path, true);
}

TEST(a_simulated_block_has_no_more_passes_to_replace_tokens_in_than_are_set) {
    const uint64_t one = replaced_late("decoder.max_post_edit_steps=1");
    ck_assert_uint_eq(replaced_late("decoder.max_post_edit_steps=0"), 0);
    ck_assert_uint_gt(one, 0);
    ck_assert_uint_gt(replaced_late("decoder.max_post_edit_steps=16"), one);
}

/* Passes of a request that committed nothing, for each of its blocks. *n_even: blocks that were
 * filled by 11, 11 and 10 positions. */
static double idle_passes(const char *threshold, uint32_t *n_even) {
    char path[512];
    struct decode_trace *trace;
    struct decode_pass pass;
    struct err err = {0};
    uint32_t filled[3] = {0}, n_idle = 0, n_blocks = 0;
    snprintf(path, sizeof path, "%s", scratch_path("shares.db"));
    free(PRINTS(ASKED("--system", "sglang-s", "--set", "decoder.steps=3", "--set", threshold,
                      "--set", "decoder.edit_threshold=0.0005", "--decode-out", path)));
    ck_assert_int_eq(decode_trace_read(path, DECODE_COUNTS, &trace, &err), 0);
    const struct decode_source source = decode_trace_source(trace);
    *n_even = 0;
    for (uint32_t at = 0; source.pass(source.state, 3, at, &pass, &err) == 0; at++) {
        n_blocks += pass.committed > 0 && filled[2] == 0;
        filled[0] = filled[1];
        filled[1] = filled[2];
        filled[2] = pass.committed;
        n_idle += pass.committed == 0;
        *n_even += filled[0] == 11 && filled[1] == 11 && filled[2] == 10;
    }
    decode_trace_close(trace);
    ck_assert_uint_gt(n_blocks, 3);
    return (double)n_idle / n_blocks;
}

/* A block that takes all its passes to be filled has no other but the one that stores it; one that
 * is full before has at least one that finds nothing to replace. */
TEST(a_simulated_block_is_filled_by_even_shares_and_then_over) {
    uint32_t n_even;
    const double few = idle_passes("decoder.threshold=1", &n_even);
    ck_assert_double_ge(few, 1);
    ck_assert_double_lt(few, 1.2); /* of the first block a pass or two fill what is no prompt */
    ck_assert_uint_ge(n_even, 2);
    ck_assert_double_ge(idle_passes("decoder.threshold=0.001", &n_even), 2);
    ck_assert_uint_eq(n_even, 0);
}

/* ---- what is refused ---- */

TEST(what_cannot_be_revised_is_one_sentence) {
    static const struct {
        const char *system, *settings[3], *sentence;
    } cases[] = {
        {"sglang-s",
         {"decoder.threshold=0.4", "decoder.edit_threshold=0.6"},
         "decoder joint-threshold replaces tokens above 0.6 and fills masks above 0.4: set the "
         "edit threshold to the other one at most"},
        {"sglang-s",
         {"decoder.threshold=1.5"},
         "test: '1.5' is not a value for threshold of decoder joint-threshold: expected a number "
         "from 0 to 1"},
        {"sglang-s",
         {"decoder.edit_threshold=-0.1"},
         "test: '-0.1' is not a value for edit_threshold of decoder joint-threshold: expected a "
         "number from 0 to 1"},
        {"sglang-s",
         {"decoder.penalty=1", "runtime.fused_head=on"},
         "decoder.penalty changes logits that exist, in planned steps: set runtime.fused_head = "
         "off and allocator = planned"},
        {"focus",
         {"decoder=joint-threshold"},
         "decoder joint-threshold revises tokens of its whole block, of which cache focus leaves "
         "some out: set cache = exact"},
        {"fast-dllm",
         {"decoder=joint-threshold"},
         "decoder joint-threshold is for block-causal models whose logits are of their own "
         "positions, and LLaDA-8B is bidirectional"},
        {"fast-dllm-v2",
         {"decoder=joint-threshold", "cache=exact"},
         "decoder joint-threshold is for block-causal models whose logits are of their own "
         "positions, and Fast-dLLM v2 7B is of shifted logits"},
        {"sglang-s",
         {"logit_scope=masked"},
         "decoder joint-threshold takes the most likely token of every position of its block "
         "after each step: set logit_scope = queries"},
        {"sglang-s",
         {"unroll.maximum=2"},
         "decoder joint-threshold takes the most likely token of every position of its block "
         "after each step: set unroll.maximum = 1"},
        {"sglang-s",
         {"sampling=on", "runtime.fused_head=off"},
         "decoder joint-threshold takes the most likely token of every position of its block "
         "after each step: set sampling = off"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct setting settings[3];
        uint32_t n = 0;
        for (; n < 3 && cases[i].settings[n] != NULL; n++) {
            const char *text = cases[i].settings[n], *equals = strchr(text, '=');
            settings[n] = (struct setting){.place = "test"};
            snprintf(settings[n].key, sizeof settings[n].key, "%.*s", (int)(equals - text), text);
            snprintf(settings[n].value, sizeof settings[n].value, "%s", equals + 1);
        }
        const struct system_request request =
            MAKE(struct system_request, .system = cases[i].system, .gpu = "h200",
                 .overrides = settings, .n_overrides = n, .roofline = true);
        struct err err = {0};
        struct system *system = NULL;
        ck_assert_int_eq(system_open(&request, &system, &err), ERR_USAGE);
        ASSERT_SAYS(err.text, cases[i].sentence);
    }
}

SUITE("revising")
