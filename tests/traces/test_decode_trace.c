/* Decode traces: what is written is read again, every way to be wrong, and the loop that plays one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/decode_text.h"
#include "tests/support/rig.h"
#include "tests/support/says.h"
#include "traces/decode_log.h"

#define HEAD   DECODE_HEAD
#define HEADER DECODE_HEADER

static const char *path_here(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/unmask_decode_%d", (int)getpid());
    return path;
}

static struct decode_trace *read_file(void) {
    struct decode_trace *trace;
    struct err err = {0};
    ck_assert_msg(decode_trace_read(path_here(), DECODE_POSITIONS, &trace, &err) == 0, "%s",
                  err.text);
    remove(path_here());
    return trace;
}

static struct decode_trace *read_text(const char *text) {
    decode_write(path_here(), text);
    return read_file();
}

static struct decode_log *open_log(uint32_t block_tokens) {
    struct decode_log *log;
    struct err err = {0};
    ck_assert_msg(decode_log_open(path_here(), block_tokens, &log, &err) == 0, "%s", err.text);
    return log;
}

static void close_log(struct decode_log *log, const char *about) {
    struct err err = {0};
    ck_assert_msg(decode_log_close(log, about, &err) == 0, "%s", err.text);
}

static void check_pass(const struct decode_source *source, uint64_t request, uint32_t index,
                       const struct decode_pass *expected) {
    struct decode_pass pass;
    struct err err = {0};
    ck_assert_msg(source->pass(source->state, request, index, &pass, &err) == 0, "%s", err.text);
    ck_assert_mem_eq(&pass, expected, sizeof pass);
}

enum { REQUESTS = 40, PASSES = 60, BLOCK = 32 };

static struct decode_pass random_pass(struct rng *rng) {
    struct decode_pass pass;
    pass.processed = rig_between(rng, BLOCK - 1, BLOCK);
    pass.kept = rig_between(rng, pass.processed - 1, pass.processed);
    pass.reach = rig_between(rng, pass.kept, BLOCK);
    pass.committed = rig_between(rng, 0, 1);
    return pass;
}

TEST(what_is_written_is_read_again_pass_by_pass) {
    static struct decode_pass passes[REQUESTS][PASSES];
    struct rng rng = rng_stream(3, "passes");
    struct decode_log *log = open_log(BLOCK);
    for (uint32_t i = 0; i < PASSES; i++) {
        for (uint32_t r = 0; r < REQUESTS; r++) {
            bool repeats = i > 0 && rng_uniform(&rng) < 0.5;
            passes[r][i] = repeats ? passes[r][i - 1] : random_pass(&rng);
            decode_log_add(log, r, &passes[r][i], 1, NULL);
        }
    }
    for (uint32_t r = 0; r < REQUESTS; r += 2) { /* the others are cut short */
        const struct decode_done done = {7, 2 * PASSES, 0};
        struct err err = {0};
        decode_log_finish(log, r, &done);
        ck_assert_int_eq(r % 3 == 0 ? decode_log_flush(log, &err) : 0, 0);
    }
    close_log(log, "source: a test\nseed: 3\n");
    struct decode_trace *trace = read_file();
    struct decode_source source = decode_trace_source(trace);
    ck_assert_str_eq(decode_trace_about(trace, "source"), "a test");
    ck_assert_str_eq(decode_trace_about(trace, "seed"), "3");
    ck_assert_uint_eq(decode_trace_block_tokens(trace), BLOCK);
    ck_assert_uint_eq(decode_trace_requests(trace), REQUESTS / 2);
    for (uint32_t r = 0; r < REQUESTS; r++) {
        struct err err = {0};
        uint64_t tokens, sum = 0;
        ck_assert_int_eq(source.tokens(source.state, r, &tokens, &err), r % 2 == 0 ? 0 : ERR_WORLD);
        for (uint32_t i = 0; r % 2 == 0 && i < PASSES; i++) {
            check_pass(&source, r, i, &passes[r][i]);
            sum += passes[r][i].committed;
        }
        ck_assert_uint_eq(tokens, sum);
    }
    ck_assert_uint_eq(decode_trace_request(trace, 1).id, 2);
    ck_assert_uint_eq(decode_trace_request(trace, 1).prompt_tokens, 7);
    ck_assert_uint_eq(decode_trace_request(trace, 1).output_tokens, 2 * PASSES);
    ck_assert(!decode_trace_has_answers(trace));
    decode_trace_close(trace);
}

static struct decode_pass pass_of(uint32_t committed, uint32_t processed, uint32_t kept,
                                  uint32_t reach) {
    return (struct decode_pass){
        .committed = committed, .processed = processed, .kept = kept, .reach = reach};
}

TEST(equal_passes_are_one_row_and_comments_do_not_count) {
    struct decode_log *log = open_log(4);
    const struct decode_pass a = pass_of(1, 4, 4, 4), b = pass_of(0, 4, 4, 4);
    const struct decode_done done = {0};
    decode_log_add(log, 5, &a, 1, NULL);
    decode_log_add(log, 5, &a, 3, NULL);
    decode_log_add(log, 5, &b, 1, NULL);
    decode_log_finish(log, 5, &done);
    close_log(log, "");
    char *text = decode_text(path_here());
    ck_assert_str_eq(text, HEAD HEADER "5,1,4,4,4,4\n5,0,4,4,4,1\n");
    struct decode_trace *first = read_file(),
                        *second = read_text(HEAD "# source: elsewhere\n" HEADER
                                                 "5,1,4,4,4,4\n5,0,4,4,4,1\n"),
                        *third = read_text(HEAD HEADER "5,1,4,4,4,3\n5,0,4,4,4,1\n");
    ck_assert_uint_eq(decode_trace_request(first, 0).rows, 2);
    ck_assert_uint_eq(decode_trace_digest(first), decode_trace_digest(second));
    ck_assert_uint_ne(decode_trace_digest(first), decode_trace_digest(third));
    ck_assert_str_eq(decode_trace_about(second, "source"), "elsewhere");
    ck_assert_str_eq(decode_trace_about(first, "source"), "");
    decode_trace_close(first);
    decode_trace_close(second);
    decode_trace_close(third);
    free(text);
}

/* Passes that mask positions again are told apart, and count less. */
TEST(positions_that_are_masked_again_are_counted) {
    struct decode_log *log = open_log(4);
    struct decode_pass plain = pass_of(2, 4, 4, 4), again = plain, read;
    const struct decode_done done = {0};
    struct err err = {0};
    uint64_t tokens;
    again.unmasked = 1;
    decode_log_add(log, 0, &plain, 2, NULL);
    decode_log_add(log, 0, &again, 2, NULL);
    decode_log_finish(log, 0, &done);
    close_log(log, "");
    struct decode_trace *trace = read_file();
    struct decode_source source = decode_trace_source(trace);
    ck_assert(source.takes_back);
    ck_assert_int_eq(source.tokens(source.state, 0, &tokens, &err), 0);
    ck_assert_uint_eq(tokens, 6);
    ck_assert_uint_eq(decode_trace_request(trace, 0).rows, 2);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(source.pass(source.state, 0, i, &read, &err), 0);
        ck_assert_uint_eq(read.unmasked, i >= 2);
    }
    decode_trace_close(trace);
}

/* What a pass might say of a block of up to BLOCK positions. */
static void random_positions(struct rng *rng, struct decode_positions *p) {
    p->start = rig_between(rng, 0, 1000);
    p->length = rig_between(rng, 1, BLOCK);
    p->has_importance = rng_uniform(rng) < 0.5;
    for (uint32_t i = 0; i < p->length; i++) {
        p->masked[i] = rng_uniform(rng) < 0.7;
        p->run[i] = rng_uniform(rng) < 0.8;
        p->keep[i] = p->run[i] && rng_uniform(rng) < 0.8;
        p->seen[i] = p->masked[i] && p->keep[i] && rng_uniform(rng) < 0.9;
        bool may_change = !p->masked[i] && p->keep[i];
        p->outcome[i] = p->seen[i] && rng_uniform(rng) < 0.5   ? OUTCOME_COMMIT
                        : may_change && rng_uniform(rng) < 0.2 ? OUTCOME_REVISE
                        : may_change && rng_uniform(rng) < 0.2 ? OUTCOME_AGAIN
                                                               : OUTCOME_NONE;
        p->token[i] = p->seen[i] ? (int32_t)rig_between(rng, 0, 200000) : 0;
        p->confidence[i] = p->seen[i] ? (float)rng_uniform(rng) : 0;
        p->margin[i] = p->seen[i] ? (float)rng_uniform(rng) : 0;
        p->entropy[i] = p->seen[i] ? (float)rng_uniform(rng) : 0;
        bool is_asked = p->has_importance && p->masked[i] && p->run[i];
        p->before[i] = is_asked ? (float)rng_uniform(rng) : 0;
        p->after[i] = is_asked ? (float)rng_uniform(rng) : 0;
    }
}

#define SAME(array) ck_assert_mem_eq(a->array, b->array, a->length * sizeof a->array[0])

static void check_same(const struct decode_positions *a, const struct decode_positions *b) {
    ck_assert_uint_eq(a->start, b->start);
    ck_assert_uint_eq(a->length, b->length);
    ck_assert_int_eq(a->has_importance, b->has_importance);
    SAME(masked);
    SAME(run);
    SAME(keep);
    SAME(outcome);
    SAME(seen);
    SAME(token);
    SAME(confidence);
    SAME(margin);
    SAME(entropy);
    SAME(before);
    SAME(after);
}

TEST(what_a_pass_said_of_positions_is_read_again) {
    struct decode_log *log = open_log(BLOCK);
    struct decode_positions written[PASSES], got;
    struct rng rng = rng_stream(4, "positions");
    const struct decode_pass pass = pass_of(1, BLOCK, BLOCK, BLOCK);
    const struct decode_done done = {0};
    for (uint32_t i = 0; i < PASSES; i++) {
        decode_positions_init(&written[i], BLOCK);
        random_positions(&rng, &written[i]);
        decode_log_add(log, i % 2, &pass, 1, i % 5 == 4 ? NULL : &written[i]);
    }
    decode_log_finish(log, 1, &done); /* in the order in which they end, not that of their ids */
    decode_log_finish(log, 0, &done);
    close_log(log, "");
    struct decode_trace *trace = read_file();
    decode_positions_init(&got, BLOCK);
    for (uint32_t i = 0; i < PASSES; i++) {
        ck_assert_int_eq(decode_trace_positions(trace, i % 2, i / 2, &got), i % 5 != 4);
        if (i % 5 != 4) {
            check_same(&written[i], &got);
        }
        decode_positions_fini(&written[i]);
    }
    decode_positions_fini(&got);
    decode_trace_close(trace);
}

/* One row of a block of 4, positions 0 to 2 masked and 0 to 1 seen, with one thing changed. */
static void check_positions(const char *change, const char *sentence) {
    sqlite3 *db;
    struct decode_trace *trace;
    struct err err = {0};
    decode_write(path_here(), HEAD HEADER "0,1,4,4,4,1\n");
    ck_assert_int_eq(sqlite3_open(path_here(), &db), SQLITE_OK);
    database_run(db,
                 "UPDATE pass SET start = 8, length = 4, masked = x'07', run = x'0f', keep = "
                 "x'0f', chosen = x'01', seen = x'03', token = zeroblob(8), confidence = "
                 "zeroblob(8), margin = zeroblob(8), entropy = zeroblob(8), importance_before = "
                 "zeroblob(12), importance_after = zeroblob(12)");
    database_run(db, change);
    sqlite3_close(db);
    int status = decode_trace_read(path_here(), DECODE_POSITIONS, &trace, &err);
    ck_assert_int_eq(status, sentence == NULL ? 0 : ERR_WORLD);
    ck_assert_str_eq(err.text + (status != 0 ? strlen(path_here()) : 0),
                     sentence == NULL ? "" : sentence);
    if (status == 0) {
        decode_trace_close(trace);
    }
    /* Who asks for counts alone reads no positions. */
    ck_assert_int_eq(decode_trace_read(path_here(), DECODE_COUNTS, &trace, &err), 0);
    decode_trace_close(trace);
    remove(path_here());
}

TEST(bad_positions_are_one_sentence_with_their_place) {
#define AT        ": pass 1 of request 0"
#define SET(what) "UPDATE pass SET " what
    check_positions("SELECT 1", NULL);
    check_positions(SET("importance_before = NULL, importance_after = NULL"), NULL);
    check_positions(SET("length = 5"),
                    AT ": positions are those of one pass over a block of at most 4");
    check_positions(SET("passes = 2"),
                    AT ": positions are those of one pass over a block of at most 4");
    check_positions(SET("run = x'0f00'"), AT ": run is not as long as its positions ask for");
    check_positions(SET("seen = NULL"), AT ": seen is not as long as its positions ask for");
    check_positions(SET("keep = x'0f', run = x'07'"), AT " keeps a position that it does not run");
    check_positions(SET("chosen = x'08'"),
                    AT " commits a position that is not masked, or not kept");
    check_positions(SET("seen = x'09'"), AT " has seen a position that is not masked, or not kept");
    check_positions(SET("confidence = zeroblob(12)"),
                    AT ": confidence is not as long as its positions ask for");
    check_positions(SET("importance_after = zeroblob(16)"),
                    AT ": importance_after is not as long as its positions ask for");
    check_positions(SET("importance_after = NULL"),
                    AT ": importance_before is not as long as its positions ask for");
}

static const char *complaint(const char *text) {
    static struct err err;
    struct decode_trace *trace;
    err = (struct err){0};
    decode_write(path_here(), text);
    int status = decode_trace_read(path_here(), DECODE_COUNTS, &trace, &err);
    remove(path_here());
    if (status == 0) {
        decode_trace_close(trace);
        return "fine";
    }
    ck_assert_int_eq(err.kind, ERR_WORLD);
    ck_assert_msg(strncmp(err.text, path_here(), strlen(path_here())) == 0, "%s", err.text);
    return err.text + strlen(path_here());
}

#define COMPLAINT(text, sentence) ck_assert_str_eq(complaint(text), sentence)

TEST(a_bad_head_is_one_sentence) {
    struct decode_trace *trace;
    struct err err = {0};
    char sentence[160];
    COMPLAINT("# x: 1\n" HEADER, ": found block_tokens '', expected 1 to 1048576");
    COMPLAINT("# block_tokens: 0\n" HEADER, ": found block_tokens '0', expected 1 to 1048576");
    COMPLAINT("# block_tokens: 4k\n" HEADER, ": found block_tokens '4k', expected 1 to 1048576");
    COMPLAINT(HEAD HEADER, "fine"); /* nobody finished */
    static const char *const others[][2] = {
        {"PRAGMA application_id = 0", "%s is not a decode trace"},
        {"PRAGMA application_id = 1", "%s is not a decode trace"},
        {"PRAGMA user_version = 9", "%s is a decode trace of version 9, expected 1 to 3"},
        {"DROP TABLE pass", "%s cannot be read as a database: "},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        sqlite3 *db;
        decode_write(path_here(), HEAD HEADER);
        ck_assert_int_eq(sqlite3_open(path_here(), &db), SQLITE_OK);
        database_run(db, others[i][0]);
        sqlite3_close(db);
        err = (struct err){0};
        ck_assert_int_eq(decode_trace_read(path_here(), DECODE_COUNTS, &trace, &err), ERR_WORLD);
        snprintf(sentence, sizeof sentence, others[i][1], path_here());
        ASSERT_SAYS(err.text, sentence);
    }
    remove(path_here());
    err = (struct err){0};
    ck_assert_int_eq(decode_trace_read("README.md", DECODE_COUNTS, &trace, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "README.md cannot be read as a database: ");
}

TEST(a_bad_row_is_one_sentence_with_its_place) {
#define FOUND ": pass 1 of request 0: found "
    COMPLAINT(HEAD HEADER "-1,1,4,4,4,1\n",
              ": found '-1' in id of a request, expected a whole number");
    COMPLAINT(HEAD HEADER "0,5,4,4,4,1\n",
              FOUND "'5' in committed, expected 0 to 4, the positions kept");
    COMPLAINT(HEAD HEADER "0,3,4,2,4,1\n",
              FOUND "'3' in committed, expected 0 to 2, the positions kept");
    COMPLAINT(HEAD HEADER "0,1,5,4,4,1\n",
              FOUND "'5' in processed, expected 1 to 4, the positions of a block");
    COMPLAINT(HEAD HEADER "0,1,4,4,4,2\n0,1,0,0,0,1\n",
              ": pass 3 of request 0: found '0' in processed, expected 1 to 4, the positions of a "
              "block");
    COMPLAINT(HEAD HEADER "0,1,3,4,4,1\n",
              FOUND "'4' in kept, expected 1 to 3, the positions processed");
    COMPLAINT(HEAD HEADER "0,1,3,3,2,1\n",
              FOUND "'2' in reach, expected 3 to 4, from the positions kept to those of a block");
    COMPLAINT(HEAD HEADER "0,1,4,4,5,1\n",
              FOUND "'5' in reach, expected 4 to 4, from the positions kept to those of a block");
    COMPLAINT(HEAD HEADER "0,1,4,4,4,0\n", FOUND "'0' in passes, expected 1 to 4294967295");
    COMPLAINT(HEAD HEADER "0,NULL,4,4,4,1\n",
              FOUND "'NULL' in committed, expected 0 to 4, the positions kept");
    COMPLAINT(HEAD HEADER "0,1.5,4,4,4,1\n",
              FOUND "'1.5' in committed, expected 0 to 4, the positions kept");
    COMPLAINT(HEAD HEADER "3,1,4,4,4,1\n2,1,4,4,4,1\n3,1,4,4,4,1\n", ": found request 3 twice");
    COMPLAINT(HEAD HEADER "3,1,4,4,4,1\n2,1,4,4,4,1\n", "fine");
    COMPLAINT(HEAD HEADER "3,1,4,4,4,4294967295\n3,1,4,4,4,1\n",
              ": found more than 4294967295 passes of request 3, expected no more");
    COMPLAINT(HEAD HEADER "3,1,4,4,4,3,4\n",
              ": found the end of request 3 after 3 committed tokens, expected the 4 of its "
              "answer");
}

TEST(what_a_trace_does_not_have_is_said_by_its_name) {
    struct decode_trace *trace;
    struct err err = {0};
    struct decode_pass pass;
    uint64_t tokens;
    decode_write(path_here(), HEAD HEADER "2,1,4,4,4,1\n0,1,4,4,4,2\n0,2,3,2,3,1\n0,0,2,2,4,1\n");
    ck_assert_int_eq(decode_trace_read(path_here(), DECODE_COUNTS, &trace, &err), 0);
    struct decode_source source = decode_trace_source(trace);
    char sentence[160];
    ck_assert_int_eq(source.tokens(source.state, 0, &tokens, &err), 0);
    ck_assert_uint_eq(tokens, 4);
    check_pass(&source, 0, 1,
               &(const struct decode_pass){.committed = 1, .processed = 4, .kept = 4, .reach = 4});
    check_pass(&source, 0, 2,
               &(const struct decode_pass){.committed = 2, .processed = 3, .kept = 2, .reach = 3});
    check_pass(&source, 0, 3,
               &(const struct decode_pass){.committed = 0, .processed = 2, .kept = 2, .reach = 4});
    check_pass(&source, 2, 0,
               &(const struct decode_pass){.committed = 1, .processed = 4, .kept = 4, .reach = 4});
    ck_assert_int_eq(source.pass(source.state, 0, 4, &pass, &err), ERR_WORLD);
    snprintf(sentence, sizeof sentence,
             "%s ends after 4 passes of request 0, which is not done by then", path_here());
    ASSERT_SAYS(err.text, sentence);
    err = (struct err){0};
    ck_assert_int_eq(source.tokens(source.state, 1, &tokens, &err), ERR_WORLD);
    snprintf(sentence, sizeof sentence, "%s has no request 1", path_here());
    ASSERT_SAYS(err.text, sentence);
    remove(path_here());
    decode_trace_close(trace);
    err = (struct err){0};
    ck_assert_int_eq(decode_trace_read("/nowhere", DECODE_COUNTS, &trace, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "cannot open /nowhere: No such file or directory");
    err = (struct err){0};
    ck_assert_int_eq(decode_trace_read("/tmp", DECODE_COUNTS, &trace, &err), ERR_WORLD);
    ASSERT_SAYS(err.text,
                "/tmp cannot be read as a database"); /* SQLite's reason goes by its size */
}

/* Two requests of one block of 4 and prompts that fill blocks, under DC+'s cache. */
static int play(const char *text, uint32_t prompt, uint32_t output, struct err *err) {
    static const char *const settings[] = {"cache=neighbour", NULL};
    struct decode_trace *trace = read_text(text);
    struct decode_source decode = decode_trace_source(trace);
    decode.name = "trace";
    const struct arrival arrival = {.prompt_tokens = prompt, .output_tokens = output};
    struct list_source list = {&arrival, 1, 0};
    struct system *system = rig_system("sdar", "l40s", true, settings);
    struct executor_sim *sim = executor_sim_open(system, 1);
    struct loop_request request =
        MAKE(struct loop_request, .system = system, .executor = executor_sim_interface(sim),
             .source = {&list, list_next, NULL}, .decode = &decode, .seed = 1);
    struct loop_result result;
    int status = loop_run(&request, &result, err);
    ck_assert(status != 0 || result.completed == 1);
    executor_sim_close(sim);
    system_close(system);
    decode_trace_close(trace);
    return status;
}

static void check_play(const char *text, uint32_t prompt, uint32_t output, const char *sentence) {
    struct err err = {0};
    int status = play(text, prompt, output, &err);
    ck_assert_int_eq(status, sentence == NULL ? 0 : ERR_WORLD);
    ASSERT_SAYS(err.text, sentence == NULL ? "" : sentence);
}

#define RECORDED_OTHERWISE ": prompts or cache policy are not those it was recorded with"

TEST(a_trace_that_does_not_fit_a_request_is_one_sentence) {
    check_play(HEAD HEADER "0,2,4,4,4,2\n0,0,2,2,4,1\n", 8, 4, NULL);
    check_play(HEAD HEADER "0,2,4,4,4,2\n", 8, 5,
               "trace commits 4 tokens of request 0, the workload wants 5: it was recorded with "
               "another one");
    check_play(HEAD HEADER "0,2,4,4,4,2\n0,0,2,2,4,1\n", 7, 4,
               "trace: pass 1 of request 0 commits 2 positions, where the masked ones of its block "
               "are 1" RECORDED_OTHERWISE);
    check_play(HEAD HEADER "0,2,4,4,4,1\n0,0,4,4,4,1\n0,2,4,4,4,1\n", 8, 4,
               "trace: pass 2 of request 0 commits 0 positions, where the masked ones of its block "
               "are 2" RECORDED_OTHERWISE);
    check_play(HEAD HEADER "0,4,4,4,4,1\n0,1,4,4,4,1\n", 8, 5,
               "trace: pass 2 of request 0 commits 1 position, where the masked ones of its block "
               "are 0" RECORDED_OTHERWISE);
    check_play(HEAD HEADER "0,4,4,4,4,1\n0,0,4,4,4,1\n0,1,2,1,1,1\n", 8, 5,
               "trace: pass 3 of request 0 runs 2 positions, where those of its block are "
               "1" RECORDED_OTHERWISE);
    check_play(HEAD HEADER "0,4,4,4,4,1\n0,0,4,4,4,1\n0,1,1,1,2,1\n", 8, 5,
               "trace: pass 3 of request 0 reaches over 2 positions, where those of its block are "
               "1" RECORDED_OTHERWISE);
}

TEST(a_trace_that_ends_too_early_is_one_sentence) {
    struct err err = {0};
    ck_assert_int_eq(play(HEAD HEADER "0,2,4,4,4,2\n", 8, 4, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(
        strstr(err.text, " ends after 2 passes of request 0, which is not done by then"));
    err = (struct err){0};
    ck_assert_int_eq(play(HEAD HEADER "1,2,4,4,4,2\n", 8, 4, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, " has no request 0"));
}

SUITE("decode trace")
