/* Decode traces: what is written is read again, every way to be wrong, and the loop that plays one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/rig.h"
#include "traces/decode_trace.h"

#define HEAD   DECODE_TRACE_HEAD "\n# block_tokens: 4\n"
#define HEADER "request,committed,processed,kept,reach,passes\n"

static const char *write_file(const char *text, size_t size) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/unmask_decode_%d", (int)getpid());
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, size, file), size);
    fclose(file);
    return path;
}

static struct decode_trace *read_text(const char *text, size_t size) {
    struct decode_trace *trace;
    struct err err = {0};
    const char *path = write_file(text, size);
    ck_assert_msg(decode_trace_read(path, &trace, &err) == 0, "%s", err.text);
    remove(path);
    return trace;
}

static void check_pass(const struct decode_source *source, uint64_t request, uint32_t index,
                       const struct decode_pass *expected) {
    struct decode_pass pass;
    struct err err = {0};
    ck_assert_msg(source->pass(source->state, request, index, &pass, &err) == 0, "%s", err.text);
    ck_assert_mem_eq(&pass, expected, sizeof pass);
}

/* ---- the file ---- */

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
    struct decode_log *log = decode_log_open(BLOCK);
    for (uint32_t i = 0; i < PASSES; i++) {
        for (uint32_t r = 0; r < REQUESTS; r++) {
            bool repeats = i > 0 && rng_uniform(&rng) < 0.5;
            passes[r][i] = repeats ? passes[r][i - 1] : random_pass(&rng);
            decode_log_add(log, r, &passes[r][i], 1);
        }
    }
    for (uint32_t r = 0; r < REQUESTS; r += 2) { /* the others are cut short */
        decode_log_finish(log, r, 0);
    }
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ck_assert(decode_log_write(log, "source: a test\nseed: 3\n", out));
    fclose(out);
    decode_log_close(log);
    struct decode_trace *trace = read_text(text, size);
    struct decode_source source = decode_trace_source(trace);
    ck_assert_str_eq(decode_trace_provenance(trace), "a test");
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
    decode_trace_close(trace);
    free(text);
}

TEST(equal_passes_are_one_row_and_comments_do_not_count) {
    struct decode_log *log = decode_log_open(4);
    const struct decode_pass a = {1, 4, 4, 4}, b = {0, 4, 4, 4};
    decode_log_add(log, 5, &a, 1);
    decode_log_add(log, 5, &a, 3);
    decode_log_add(log, 5, &b, 1);
    decode_log_finish(log, 5, 0);
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ck_assert(decode_log_write(log, "", out));
    fclose(out);
    decode_log_close(log);
    ck_assert_str_eq(text, HEAD HEADER "5,1,4,4,4,4\n5,0,4,4,4,1\n");
    static const char same[] =
        "\xef\xbb\xbf" DECODE_TRACE_HEAD "\r\n# source: elsewhere\r\n# block_tokens: 4\r\n"
        "request,committed,processed,kept,reach,passes\r\n5,1,4,4,4,4\r\n5,0,4,4,4,1\r\n";
    static const char other[] = HEAD HEADER "5,1,4,4,4,3\n5,0,4,4,4,1\n";
    struct decode_trace *first = read_text(text, size), *second = read_text(same, sizeof same - 1),
                        *third = read_text(other, sizeof other - 1);
    ck_assert_uint_eq(decode_trace_digest(first), decode_trace_digest(second));
    ck_assert_uint_ne(decode_trace_digest(first), decode_trace_digest(third));
    ck_assert_str_eq(decode_trace_provenance(second), "elsewhere");
    ck_assert_str_eq(decode_trace_provenance(first), "");
    decode_trace_close(first);
    decode_trace_close(second);
    decode_trace_close(third);
    free(text);
}

static const char *complaint(const char *text, size_t size) {
    static struct err err;
    struct decode_trace *trace;
    err = (struct err){0};
    const char *path = write_file(text, size);
    if (decode_trace_read(path, &trace, &err) == 0) {
        decode_trace_close(trace);
        remove(path);
        return "fine";
    }
    remove(path);
    ck_assert_int_eq(err.kind, ERR_WORLD);
    ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "%s", err.text);
    return err.text + strlen(path);
}

#define COMPLAINT(text, sentence) ck_assert_str_eq(complaint(text, sizeof(text) - 1), sentence)

TEST(a_bad_head_is_one_sentence_with_its_place) {
    COMPLAINT("", ":1: found an empty file, expected a decode trace");
    COMPLAINT("hello\n", ":1: found 'hello', expected '# unmask decode trace'");
    COMPLAINT(HEADER, ":1: found 'request,committed,processed,kept,reac...', expected "
                      "'# unmask decode trace'");
    COMPLAINT(HEAD, ":3: found the end of the file, expected "
                    "'request,committed,processed,kept,reach,passes'");
    COMPLAINT(HEAD "request,committed,processed\n",
              ":3: found 'request,committed,processed', expected "
              "'request,committed,processed,kept,reach,passes'");
    COMPLAINT(HEAD "\n" HEADER, ":3: found '', expected "
                                "'request,committed,processed,kept,reach,passes'");
    COMPLAINT(DECODE_TRACE_HEAD "\n" HEADER,
              ":2: found 'request,committed,processed,kept,reac...', expected a line "
              "'# block_tokens: N' before the header");
    COMPLAINT(DECODE_TRACE_HEAD "\n# block_tokens: 0\n" HEADER,
              ":2: found '# block_tokens: 0', expected block_tokens once, from 1 to 1048576");
    COMPLAINT(HEAD "# block_tokens: 4\n" HEADER,
              ":3: found '# block_tokens: 4', expected block_tokens once, from 1 to 1048576");
    COMPLAINT(HEAD HEADER, "fine"); /* nobody finished */
}

TEST(a_bad_row_is_one_sentence_with_its_place) {
    COMPLAINT(HEAD HEADER "0,1,4,4,4,1\n0,1,4,4,4\n",
              ":5: found 5 fields, expected 6 as in the header");
    COMPLAINT(HEAD HEADER "0,1,4,4,4,1,\n", ":4: found 7 fields, expected 6 as in the header");
    COMPLAINT(HEAD HEADER "\n", ":4: found 1 field, expected 6 as in the header");
    COMPLAINT(HEAD HEADER "# late\n", ":4: found 1 field, expected 6 as in the header");
    COMPLAINT(HEAD HEADER "0,1,4,4,4,1", ":4: found an unfinished last line, expected a newline");
    COMPLAINT(HEAD HEADER "0,1,4,4,4,\0001\n", ":4: found a NUL byte, expected text");
    COMPLAINT(HEAD HEADER "-1,1,4,4,4,1\n",
              ":4: found '-1' in request, expected a whole number below 2^64");
    COMPLAINT(HEAD HEADER "0,5,4,4,4,1\n",
              ":4: found '5' in committed, expected 0 to 4, the positions kept");
    COMPLAINT(HEAD HEADER "0,3,4,2,4,1\n",
              ":4: found '3' in committed, expected 0 to 2, the positions kept");
    COMPLAINT(HEAD HEADER "0,1,5,4,4,1\n",
              ":4: found '5' in processed, expected 1 to 4, the positions of a block");
    COMPLAINT(HEAD HEADER "0,1,0,0,0,1\n",
              ":4: found '0' in processed, expected 1 to 4, the positions of a block");
    COMPLAINT(HEAD HEADER "0,1,3,4,4,1\n",
              ":4: found '4' in kept, expected 1 to 3, the positions processed");
    COMPLAINT(HEAD HEADER "0,1,3,3,2,1\n", ":4: found '2' in reach, expected 3 to 4, from the "
                                           "positions kept to those of a block");
    COMPLAINT(HEAD HEADER "0,1,4,4,5,1\n", ":4: found '5' in reach, expected 4 to 4, from the "
                                           "positions kept to those of a block");
    COMPLAINT(HEAD HEADER "0,1,4,4,4,0\n", ":4: found '0' in passes, expected 1 to 4294967295");
    COMPLAINT(HEAD HEADER "0,1, 4,4,4,1\n",
              ":4: found ' 4' in processed, expected 1 to 4, the positions of a block");
    COMPLAINT(HEAD HEADER "3,1,4,4,4,1\n2,1,4,4,4,1\n",
              ":5: found request 2 behind request 3, expected requests in increasing order");
    COMPLAINT(HEAD HEADER "3,1,4,4,4,4294967295\n3,1,4,4,4,1\n",
              ":5: found more than 4294967295 passes of request 3, expected no more");
}

TEST(what_a_trace_does_not_have_is_said_by_its_name) {
    struct decode_trace *trace;
    struct err err = {0};
    struct decode_pass pass;
    uint64_t tokens;
    ck_assert_int_eq(decode_trace_read("tests/golden/traces/decode.csv", &trace, &err), 0);
    struct decode_source source = decode_trace_source(trace);
    ck_assert_int_eq(source.tokens(source.state, 0, &tokens, &err), 0);
    ck_assert_uint_eq(tokens, 4);
    check_pass(&source, 0, 1, &(struct decode_pass){1, 4, 4, 4});
    check_pass(&source, 0, 2, &(struct decode_pass){2, 3, 2, 3});
    check_pass(&source, 0, 3, &(struct decode_pass){0, 2, 2, 4});
    check_pass(&source, 2, 0, &(struct decode_pass){1, 4, 4, 4});
    ck_assert_int_eq(source.pass(source.state, 0, 4, &pass, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "tests/golden/traces/decode.csv ends after 4 passes of request 0, "
                               "which is not done by then");
    err = (struct err){0};
    ck_assert_int_eq(source.tokens(source.state, 1, &tokens, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "tests/golden/traces/decode.csv has no request 1");
    decode_trace_close(trace);
    err = (struct err){0};
    ck_assert_int_eq(decode_trace_read("/nowhere", &trace, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "cannot open /nowhere: No such file or directory");
    err = (struct err){0};
    ck_assert_int_eq(decode_trace_read("/tmp", &trace, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "cannot read /tmp: Is a directory");
}

/* ---- the loop ---- */

/* Two requests of one block of 4 and prompts that fill blocks, under DC+'s cache. */
static int play(const char *text, uint32_t prompt, uint32_t output, struct err *err) {
    static const char *const settings[] = {"cache=neighbour", NULL};
    struct decode_trace *trace = read_text(text, strlen(text));
    struct decode_source decode = decode_trace_source(trace);
    decode.name = "trace";
    const struct arrival arrival = {.prompt_tokens = prompt, .output_tokens = output};
    struct list_source list = {&arrival, 1, 0};
    struct system *system = rig_system("sdar", "l40s", true, settings);
    struct executor_sim *sim = executor_sim_open(system, 1);
    struct loop_request request = {.system = system,
                                   .executor = executor_sim_interface(sim),
                                   .source = {&list, list_next, NULL},
                                   .decode = &decode,
                                   .seed = 1};
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
    ck_assert_str_eq(err.text, sentence == NULL ? "" : sentence);
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
