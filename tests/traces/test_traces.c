/* Trace readers: every format, every way to be wrong, speed and memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/arrival.h"
#include "sim/base/input/field.h"
#include "tests/support/says.h"
#include "tests/support/suite.h"
#include "traces/reader.h"
#include "traces/transform.h"

#define GOLDEN  "tests/golden/traces/"
#define SAMPLES "traces/samples/"

struct sums {
    uint64_t rows, input_tokens, output_tokens, tenants, skipped;
    int64_t last_ns;
};

static struct sums drain(struct arrival_source source, struct err *err) {
    struct sums sums = {0};
    struct arrival row;
    enum source_reply reply;
    while ((reply = source.next(source.state, &row, err)) == SOURCE_ROW) {
        ck_assert_uint_eq(row.id, sums.rows);
        ck_assert_int_ge(row.arrival_ns, sums.last_ns);
        ck_assert(sums.rows > 0 || row.arrival_ns == 0);
        sums.rows++;
        sums.input_tokens += row.prompt_tokens;
        sums.output_tokens += row.output_tokens;
        sums.tenants += row.tenant;
        sums.last_ns = row.arrival_ns;
    }
    ck_assert_int_eq(reply, err->kind == ERR_NONE ? SOURCE_END : SOURCE_BAD);
    return sums;
}

static struct sums read_file(const char *path, const char *format) {
    struct trace *trace;
    struct err err = {0};
    ck_assert_msg(trace_open(path, &trace, &err) == 0, "%s", err.text);
    ck_assert_str_eq(trace_format(trace), format);
    struct sums first = drain(trace_source(trace), &err);
    ck_assert_msg(err.kind == ERR_NONE, "%s", err.text);
    first.skipped = trace_skipped(trace);
    ck_assert_int_eq(trace_rewind(trace, &err), 0);
    struct sums again = drain(trace_source(trace), &err);
    again.skipped = trace_skipped(trace);
    ck_assert_mem_eq(&first, &again, sizeof first);
    trace_close(trace);
    return first;
}

static void check_file(const char *path, const char *format, struct sums expected) {
    struct sums sums = read_file(path, format);
    ck_assert_uint_eq(sums.rows, expected.rows);
    ck_assert_uint_eq(sums.input_tokens, expected.input_tokens);
    ck_assert_uint_eq(sums.output_tokens, expected.output_tokens);
    ck_assert_uint_eq(sums.skipped, expected.skipped);
    ck_assert_uint_eq(sums.tenants, expected.tenants);
    ck_assert_int_eq(sums.last_ns, expected.last_ns);
}

/* Counts and sums were taken from the files by awk. */
TEST(the_shipped_samples_have_their_known_counts_and_sums) {
    check_file(SAMPLES "burstgpt_head400.csv", "burstgpt",
               (struct sums){383, 208189, 110612, 0, 17, INT64_C(37269000000000)});
    check_file(SAMPLES "burstgpt_dense120.csv", "burstgpt",
               (struct sums){120, 34086, 332, 0, 0, INT64_C(4000000000)});
    check_file(SAMPLES "azure_conv_2023_first2000.csv", "plain",
               (struct sums){2000, 2209565, 529807, 0, 0, INT64_C(424259457000)});
    check_file(SAMPLES "mooncake_synthetic_first1000.csv", "plain",
               (struct sums){1000, 11851558, 196039, 0, 0, INT64_C(272653000000)});
    check_file(SAMPLES "sharegpt_300_llama31_poisson.csv", "plain",
               (struct sums){300, 257239, 195753, 0, 0, INT64_C(29136837000)});
}

TEST(every_format_reads_its_own_units_and_columns) {
    /* 18:15:46.6805900 to 18:15:52.5732450; Vidur keeps microseconds of the same trace. */
    check_file(GOLDEN "azure.csv", "azure", (struct sums){5, 1831, 240, 0, 0, INT64_C(5892655000)});
    check_file(GOLDEN "vidur.csv", "vidur", (struct sums){5, 1831, 240, 0, 0, INT64_C(5892655000)});
    check_file(GOLDEN "splitwise_sim.csv", "splitwise-sim",
               (struct sums){3, 1649, 208, 1, 0, INT64_C(4541877000)});
    check_file(GOLDEN "mooncake.jsonl", "mooncake",
               (struct sums){5, 3397, 1447, 0, 0, INT64_C(1828000000)});
    check_file(GOLDEN "llmservingsim.jsonl", "llmservingsim",
               (struct sums){3, 11, 47, 0, 0, INT64_C(456062301)});
    check_file(GOLDEN "burstgpt_3.csv", "burstgpt",
               (struct sums){2, 942, 475, 0, 0, INT64_C(51000000000)});
    check_file(GOLDEN "lengths.csv", "plain-lengths", (struct sums){3, 1766, 2534, 0, 0, 0});
}

static const char *write_file(const char *text, size_t size) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/unmask_trace_%d", (int)getpid());
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, size, file), size);
    fclose(file);
    return path;
}

/* The sentence for a trace of `size` bytes, without the path and after reading to its end. */
static const char *complaint(const char *text, size_t size) {
    static struct err err;
    err = (struct err){0};
    const char *path = write_file(text, size);
    struct trace *trace;
    if (trace_open(path, &trace, &err) == 0) {
        drain(trace_source(trace), &err);
        if (err.kind != ERR_NONE) {
            struct err repeated = {0};
            struct arrival row;
            struct arrival_source source = trace_source(trace);
            ck_assert_int_eq(source.next(source.state, &row, &repeated), SOURCE_BAD);
            ck_assert_str_eq(repeated.text, err.text);
        }
        trace_close(trace);
    }
    remove(path);
    if (err.kind == ERR_NONE) {
        return "fine";
    }
    ck_assert_int_eq(err.kind, ERR_WORLD);
    ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "%s", err.text);
    return err.text + strlen(path);
}

#define PLAIN                     "arrival_us,input_tokens,output_tokens\n"
#define COMPLAINT(text, sentence) ck_assert_str_eq(complaint(text, sizeof(text) - 1), sentence)

TEST(a_bad_row_is_one_sentence_with_its_place) {
    COMPLAINT(PLAIN "0,1,2\n5,x,2\n",
              ":3: found 'x' in input_tokens, expected a whole number below 2^32");
    COMPLAINT(PLAIN "0,1,2\n5,,2\n",
              ":3: found '' in input_tokens, expected a whole number below 2^32");
    COMPLAINT(PLAIN "0,1,-2\n",
              ":2: found '-2' in output_tokens, expected a whole number below 2^32");
    COMPLAINT(PLAIN "0,4294967296,2\n",
              ":2: found '4294967296' in input_tokens, expected a whole number below 2^32");
    COMPLAINT(PLAIN "0, 1,2\n",
              ":2: found ' 1' in input_tokens, expected a whole number below 2^32");
    COMPLAINT(PLAIN "0,1,2,3\n", ":2: found 4 fields, expected 3 as in the header");
    COMPLAINT(PLAIN "0,1,2\n5,1,2", ":3: found an unfinished last line, expected a newline");
    COMPLAINT(PLAIN "0,1,2\n5,1", ":3: found 2 fields in an unfinished last line, expected 3 as in "
                                  "the header");
    COMPLAINT(PLAIN "-1,1,2\n",
              ":2: found '-1' in arrival_us, expected a time from 0 to 146 years");
    COMPLAINT(PLAIN "nan,1,2\n",
              ":2: found 'nan' in arrival_us, expected a time from 0 to 146 years");
    COMPLAINT(PLAIN "inf,1,2\n",
              ":2: found 'inf' in arrival_us, expected a time from 0 to 146 years");
    COMPLAINT(PLAIN "1e300,1,2\n",
              ":2: found '1e300' in arrival_us, expected a time from 0 to 146 years");
    COMPLAINT(PLAIN "99999999999999999999,1,2\n", ":2: found '99999999999999999999' in arrival_us, "
                                                  "expected a time from 0 to 146 years");
    COMPLAINT(PLAIN "5,1,2\n3.5,1,2\n", ":3: found an arrival 1.5e-06 s before the previous row's, "
                                        "expected rows in order of arrival");
    COMPLAINT("arrival_us,input_tokens,output_tokens,prefix_tokens\n0,9,2,10\n",
              ":2: found 10 prefix_tokens, expected at most the prompt's 9");
    COMPLAINT("arrival_us,input_tokens,output_tokens,prefix_tokens\n0,9,2,x\n",
              ":2: found 'x' in prefix_tokens, expected a whole number below 2^32");
    COMPLAINT("arrival_us,input_tokens,output_tokens,answer_tokens\n0,9,2,3\n",
              ":2: found 3 answer_tokens, expected 1 to the output's 2");
    COMPLAINT("input_tokens,output_tokens,answer_tokens\n9,2,2\n9,2,0\n",
              ":3: found 0 answer_tokens, expected 1 to the output's 2");
    COMPLAINT("answer_tokens,input_tokens,output_tokens\n3,9,2\n",
              ":2: found 3 answer_tokens, expected 1 to the output's 2");
    COMPLAINT(PLAIN "0,0,2\n", ":2: found '0' in input_tokens, expected at least 1 token "
                               "(--skip-failed leaves such rows out)");
    COMPLAINT(PLAIN "0,1,0\n", ":2: found '0' in output_tokens, expected at least 1 token "
                               "(--skip-failed leaves such rows out)");
    COMPLAINT(PLAIN "0,1,2\n\n0,1,2\n", ":3: found an empty line, expected a request");
    COMPLAINT(PLAIN "0,1,2\n0,\0001,2\n", ":3: found a NUL byte, expected text");
    COMPLAINT("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-29 00:00:00,1,1\n",
              ":2: found '2023-02-29 00:00:00' in TIMESTAMP, expected " FIELD_DATE_EXPECTED);
    COMPLAINT("request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
              "token_size\n0,1,0,0,1,5,5\n",
              ":2: found '1' in request_type, expected 2");
    COMPLAINT("{\"timestamp\":0,\"input_length\":1,\"output_length\":2}\n{\"timestamp\":3,\"inp",
              ":2: found '{\"timestamp\":3,\"inp' in an unfinished last line, expected a JSON "
              "object");
    COMPLAINT("{\"timestamp\":0,\"input_length\":1,\"output_length\":2}\n{\"timestamp\":3}\n",
              ":2: found an object without 'input_length', expected a whole number below 2^32");
    COMPLAINT("{\"timestamp\":-1,\"input_length\":1,\"output_length\":2}\n",
              ":1: found '-1' in timestamp, expected a time from 0 to 146 years");
    COMPLAINT("{\"timestamp\":0,\"input_length\":1.5,\"output_length\":2}\n",
              ":1: found '1.5' in input_length, expected a whole number below 2^32");
}

#define FORMATS                                                                                    \
    "expected the first line of a known trace format (plain, burstgpt, azure, vidur, "             \
    "splitwise-sim, blis, plain-lengths, vidur-lengths, qwen-bailian, mooncake, llmservingsim, "   \
    "aiperf, length-rows, prompts), a server's log, or `unmask trace convert --columns`"

TEST(a_file_that_is_no_trace_is_refused) {
    COMPLAINT("", ":1: found an empty file, expected a trace");
    COMPLAINT(PLAIN, ":2: found the end of the file (0 failed requests before it), expected at "
                     "least one request");
    COMPLAINT("Timestamp,Request tokens,Response tokens\n1,5,0\n",
              ":3: found the end of the file (1 failed requests before it), expected at least one "
              "request");
    COMPLAINT("a,b\n1,2\n", ":1: found 'a,b', " FORMATS);
    COMPLAINT("arrival_us,arrival_us,input_tokens\n",
              ":1: found 'arrival_us,arrival_us,input_tokens', " FORMATS);
    COMPLAINT("\x7f\x45LF\x02\n", ":1: found '?ELF?', " FORMATS);
    COMPLAINT("{\"timestamp\":0}\n", ":1: found '{\"timestamp\":0}', " FORMATS);
    struct err err = {0};
    struct trace *trace;
    ck_assert_int_eq(trace_open("/nonexistent/trace.csv", &trace, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "cannot open /nonexistent/trace.csv: No such file or directory");
    err = (struct err){0};
    ck_assert_int_eq(trace_open("/tmp", &trace, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "cannot read /tmp: Is a directory");
}

TEST(an_endless_line_is_refused_in_bounded_memory) {
    size_t size = sizeof PLAIN - 1 + 2 * TRACE_MAX_LINE_BYTES;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    memset(text, '7', size);
    memcpy(text, PLAIN, sizeof PLAIN - 1);
    ck_assert_str_eq(complaint(text, size),
                     ":2: found a line longer than 4194304 bytes, expected a trace's row");
    free(text);
}

TEST(harmless_variants_are_read_as_they_are_meant) {
    COMPLAINT("\xef\xbb\xbf" PLAIN "0,1,2\n", "fine");
    COMPLAINT("\xef\xbb\xbf{\"timestamp\":0,\"input_length\":1,\"output_length\":2}\n", "fine");
    COMPLAINT("arrival_us,input_tokens,output_tokens\r\n0,1,2\r\n5,1,2\r\n", "fine");
    COMPLAINT("output_tokens,arrival_us,model,input_tokens\n2,0,x,1\n", "fine");
}

static int64_t time_of(const char *text, int64_t unit_ns) {
    int64_t ns = -1;
    return field_time_ns(text, strlen(text), unit_ns, &ns) ? ns : -1;
}

static int64_t date_of(const char *text) {
    int64_t ns = -1;
    return field_date_ns(text, strlen(text), &ns) ? ns : -1;
}

TEST(times_are_exact_to_the_nanosecond) {
    const int64_t s = 1000000000;
    ck_assert_int_eq(time_of("5.8926549999999995", s), 5892655000);
    ck_assert_int_eq(time_of("123456789.123456789", s), 123456789123456789);
    ck_assert_int_eq(time_of("0.0000000005", s), 1);
    ck_assert_int_eq(time_of("0.00000000049", s), 0);
    ck_assert_int_eq(time_of("7.5", 1), 8);
    ck_assert_int_eq(time_of("1e-06", s), 1000);
    ck_assert_int_eq(time_of("4611686018427387904", 1), FIELD_MAX_NS);
    ck_assert_int_eq(time_of("4611686018427387905", 1), -1);
    ck_assert_int_eq(time_of("4611686018427387904.9", 1), -1);
    ck_assert_int_eq(time_of("", s), -1);
    ck_assert_int_eq(time_of(".", s), -1);
    ck_assert_int_eq(time_of("-0", s), -1);
    ck_assert_int_eq(time_of("1.2.3", s), -1);
    ck_assert_int_eq(time_of("0x10", s), -1);
}

/* Against `date -u -d ... +%s`. */
TEST(dates_follow_the_civil_calendar) {
    const int64_t s = 1000000000;
    ck_assert_int_eq(date_of("1970-01-01 00:00:00"), 0);
    ck_assert_int_eq(date_of("2023-11-16 18:15:46.6805900"), 1700158546 * s + 680590000);
    ck_assert_int_eq(date_of("2024-02-29T23:59:59.5Z"), 1709251199 * s + 500000000);
    ck_assert_int_eq(date_of("2024-05-10 00:00:00.009930+00:00"), 1715299200 * s + 9930000);
    ck_assert_int_eq(date_of("2024-05-10 02:00:00+02:00"), 1715299200 * s);
    ck_assert_int_eq(date_of("2024-05-10 05:30:00+05:30"), 1715299200 * s);
    ck_assert_int_eq(date_of("2024-05-09 20:30:00-03:30"), 1715299200 * s);
    ck_assert_int_eq(date_of("2100-02-28 00:00:00"), 4107456000 * s);
    ck_assert_int_eq(date_of("1970-12-31 00:00:01"), 31449601 * s);
    ck_assert_int_eq(date_of("2100-02-29 00:00:00"), -1);
    ck_assert_int_eq(date_of("1969-12-31 00:00:00"), -1);
    ck_assert_int_eq(date_of("2101-01-01 00:00:00"), -1);
    ck_assert_int_eq(date_of("2023-13-01 00:00:00"), -1);
    ck_assert_int_eq(date_of("2023-11-16"), -1);
    ck_assert_int_eq(date_of("2023-11-16 24:00:00"), -1);
    ck_assert_int_eq(date_of("2023-11-16 18:15:46."), -1);
    ck_assert_int_eq(date_of("2023-11-16 18:15:46 "), -1);
}

/* One moment in the ways in which tools write it. */
TEST(a_time_is_the_same_however_it_is_written) {
    static const char *const same[] = {
        "2026-10-25T01:00:00.5Z",
        "2026-10-25 01:00:00.5",
        "2026-10-25t01:00:00.5z",
        "2026-10-25_01:00:00.5",
        "2026-10-25T03:00:00.5+02:00",
        "2026-10-25T03:00:00.5+0200",
        "2026-10-25T03:00:00.5+02",
        "2026-10-25T03:00:00,5 +0200",
        "2026-10-24 19:30:00.500-0530",
        "2026-10-25 01:00:00.5 UTC",
        "2026-10-25 01:00:00.5UTC",
        "2026-10-25 01:00:00.5 utc",
        "2026-10-25 01:00:00.5 GMT",
        "2026-10-25 01:00:00.500000000 +0000 UTC",
        "2026-10-25 01:00:00.5 +0000 UTC m=+0.012",
        "2026-10-25T03:00:00.5+02:00[Europe/Paris]",
        "2026/10/25 01:00:00.5",
        "20261025T010000.5Z",
        "20261025T030000.500+0200",
        "25/Oct/2026:03:00:00.5 +0200",
        "Sun, 25 Oct 2026 01:00:00.5 GMT",
        "25 Oct 2026 01:00:00.5",
        "1792890000.5",
        "1792890000500",
        "1792890000500000",
        "1792890000500000000",
        "1792890000500.0",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        ck_assert_msg(date_of(same[i]) == INT64_C(1792890000500000000), "%s", same[i]);
    }
    static const char *const none[] = {
        "2026-10-25 01:00:00 CET",
        "2026-10-25 01:00:00 PST",
        "25/10/2026 01:00:00",
        "10/25/2026 01:00:00",
        "2026-10/25 01:00:00",
        "2026-10-25T01:00:00+",
        "2026-10-25T01:00:00+2",
        "2026-10-25T01:00:00+15:00",
        "2026-10-25T01:00:00+02:60",
        "2026-10-25T01:00:00Zx",
        "2026-10-25T01:00:00 ",
        "2026-10-25",
        "2026-10-25T",
        "2026-10-25T01",
        "179289000",
        "17928900001",
        "0179289000",
        "25/Xyz/2026:01:00:00",
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        ck_assert_msg(date_of(none[i]) == -1, "%s", none[i]);
    }
    ck_assert_int_eq(date_of("2026-10-25 01:02"), INT64_C(1792890120000000000));
}

static int64_t peak_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

TEST(a_million_rows_are_read_in_constant_memory) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/unmask_million_%d", (int)getpid());
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    fputs(PLAIN, file);
    for (int i = 0; i < 1000000; i++) {
        fprintf(file, "%d,%d,%d\n", i * 1000, 1 + i % 4000, 1 + i % 500);
    }
    fclose(file);
    int64_t before_kib = peak_kib();
    struct timespec start, stop;
    clock_gettime(CLOCK_MONOTONIC, &start);
    struct err err = {0};
    struct trace *trace;
    ck_assert_int_eq(trace_open(path, &trace, &err), 0);
    struct survey survey;
    ck_assert_int_eq(survey_source(trace_source(trace), 0, &survey, &err), 0);
    trace_close(trace);
    clock_gettime(CLOCK_MONOTONIC, &stop);
    remove(path);
    double wall_s =
        (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
    printf("read 1,000,000 rows at %.2f million rows/s, peak memory grew by %" PRId64 " KiB\n",
           1 / wall_s, peak_kib() - before_kib);
    ck_assert_uint_eq(survey.rows, 1000000);
    ck_assert_int_eq(survey.last_ns, INT64_C(999999000000));
    ck_assert_int_lt(peak_kib() - before_kib, 20 << 10);
}

SUITE("traces")
