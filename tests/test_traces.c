/* Where requests come from: readers, generators, length models, transforms. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/arrival.h"
#include "tests/suite.h"
#include "traces/field.h"
#include "traces/generate.h"
#include "traces/lengths.h"
#include "traces/reader.h"
#include "traces/transform.h"

#define GOLDEN  "tests/golden/traces/"
#define SAMPLES "traces/samples/"

/* ---- readers ---- */

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
START_TEST(the_shipped_samples_have_their_known_counts_and_sums) {
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
END_TEST

START_TEST(every_format_reads_its_own_units_and_columns) {
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
END_TEST

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

START_TEST(a_bad_row_is_one_sentence_with_its_place) {
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
    COMPLAINT(PLAIN "0,0,2\n", ":2: found '0' in input_tokens, expected at least 1 token");
    COMPLAINT(PLAIN "0,1,0\n", ":2: found '0' in output_tokens, expected at least 1 token");
    COMPLAINT(PLAIN "0,1,2\n\n0,1,2\n", ":3: found an empty line, expected a request");
    COMPLAINT(PLAIN "0,1,2\n0,\0001,2\n", ":3: found a NUL byte, expected text");
    COMPLAINT("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-29 00:00:00,1,1\n",
              ":2: found '2023-02-29 00:00:00' in TIMESTAMP, expected a date and time such as "
              "2023-11-16 18:15:46.68");
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
END_TEST

#define FORMATS                                                                                    \
    "expected the first line of a known trace format (plain, burstgpt, azure, vidur, "             \
    "splitwise-sim, plain-lengths, vidur-lengths, mooncake, llmservingsim)"

START_TEST(a_file_that_is_no_trace_is_refused) {
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
    ck_assert_str_eq(err.text, "cannot open /nonexistent/trace.csv: No such file or directory");
    err = (struct err){0};
    ck_assert_int_eq(trace_open("/tmp", &trace, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "cannot read /tmp: Is a directory");
}
END_TEST

START_TEST(an_endless_line_is_refused_in_bounded_memory) {
    size_t size = sizeof PLAIN - 1 + 2 * TRACE_MAX_LINE_BYTES;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    memset(text, '7', size);
    memcpy(text, PLAIN, sizeof PLAIN - 1);
    ck_assert_str_eq(complaint(text, size),
                     ":2: found a line longer than 4194304 bytes, expected a trace's row");
    free(text);
}
END_TEST

START_TEST(harmless_variants_are_read_as_they_are_meant) {
    COMPLAINT("\xef\xbb\xbf" PLAIN "0,1,2\n", "fine");
    COMPLAINT("\xef\xbb\xbf{\"timestamp\":0,\"input_length\":1,\"output_length\":2}\n", "fine");
    COMPLAINT("arrival_us,input_tokens,output_tokens\r\n0,1,2\r\n5,1,2\r\n", "fine");
    COMPLAINT(PLAIN "0,1,2\n5,1,2", "fine");
    COMPLAINT("output_tokens,arrival_us,model,input_tokens\n2,0,x,1\n", "fine");
}
END_TEST

static int64_t time_of(const char *text, int64_t unit_ns) {
    int64_t ns = -1;
    return field_time_ns(text, strlen(text), unit_ns, &ns) ? ns : -1;
}

static int64_t date_of(const char *text) {
    int64_t ns = -1;
    return field_date_ns(text, strlen(text), &ns) ? ns : -1;
}

START_TEST(times_are_exact_to_the_nanosecond) {
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
END_TEST

/* Against `date -u -d ... +%s`. */
START_TEST(dates_follow_the_civil_calendar) {
    const int64_t s = 1000000000;
    ck_assert_int_eq(date_of("1970-01-01 00:00:00"), 0);
    ck_assert_int_eq(date_of("2023-11-16 18:15:46.6805900"), 1700158546 * s + 680590000);
    ck_assert_int_eq(date_of("2024-02-29T23:59:59.5Z"), 1709251199 * s + 500000000);
    ck_assert_int_eq(date_of("2024-05-10 00:00:00.009930+00:00"), 1715299200 * s + 9930000);
    ck_assert_int_eq(date_of("2024-05-10 02:00:00+02:00"), 1715299200 * s);
    ck_assert_int_eq(date_of("2100-02-28 00:00:00"), 4107456000 * s);
    ck_assert_int_eq(date_of("2100-02-29 00:00:00"), -1);
    ck_assert_int_eq(date_of("2023-13-01 00:00:00"), -1);
    ck_assert_int_eq(date_of("2023-11-16"), -1);
    ck_assert_int_eq(date_of("2023-11-16 24:00:00"), -1);
    ck_assert_int_eq(date_of("2023-11-16 18:15:46."), -1);
    ck_assert_int_eq(date_of("2023-11-16 18:15:46 "), -1);
}
END_TEST

static int64_t peak_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

START_TEST(a_million_rows_are_read_in_constant_memory) {
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
END_TEST

/* ---- generators ---- */

static struct length *open_length(const char *spec, enum length_side side, const char *const *set) {
    struct err err = {0};
    struct length *length;
    ck_assert_msg(length_open(spec, "test", side, &length, &err) == 0, "%s", err.text);
    for (; set != NULL && *set != NULL; set += 2) {
        ck_assert_msg(length_set(length, "test", set[0], set[1], &err) == 0, "%s", err.text);
    }
    ck_assert_msg(length_start(length, 1, &err) == 0, "%s", err.text);
    return length;
}

/* Endless rows of 10 and 20 tokens. */
struct rows {
    struct lengths lengths;
};

static struct arrival_source open_rows(struct rows *rows) {
    const char *ten[] = {"tokens", "10", NULL}, *twenty[] = {"tokens", "20", NULL};
    rows->lengths = (struct lengths){.input = open_length("fixed", LENGTH_INPUT, ten),
                                     .output = open_length("fixed", LENGTH_OUTPUT, twenty)};
    return lengths_source(&rows->lengths);
}

static void close_rows(struct rows *rows) {
    length_close(rows->lengths.input);
    length_close(rows->lengths.output);
}

static struct generator *open_generator(const char *process, double rate, uint64_t seed,
                                        const char *const *set, struct arrival_source rows) {
    struct generator *generator = generator_open(process_find(process));
    struct err err = {0};
    for (; set != NULL && *set != NULL; set += 2) {
        ck_assert_msg(generator_set(generator, "test", set[0], set[1], &err) == 0, "%s", err.text);
    }
    ck_assert_msg(generator_start(generator, rate, seed, rows, &err) == 0, "%s", err.text);
    return generator;
}

struct moments {
    double mean_s, cv;
};

static struct moments gap_moments(const char *process, double rate, const char *const *set, int n) {
    struct rows rows;
    struct generator *generator = open_generator(process, rate, 7, set, open_rows(&rows));
    struct arrival_source source = generator_source(generator);
    struct err err = {0};
    struct arrival row;
    int64_t last_ns = 0;
    double sum = 0, squares = 0;
    int n_good = 0; /* one assertion for all: Check writes a file at each */
    for (int i = 0; i < n; i++) {
        enum source_reply reply = source.next(source.state, &row, &err);
        double gap_s = (double)(row.arrival_ns - last_ns) * 1e-9;
        n_good += reply == SOURCE_ROW && row.id == (uint64_t)i && row.prompt_tokens == 10 &&
                  row.output_tokens == 20 && gap_s >= 0;
        last_ns = row.arrival_ns;
        sum += gap_s;
        squares += gap_s * gap_s;
    }
    ck_assert_int_eq(n_good, n);
    generator_close(generator);
    close_rows(&rows);
    double mean = sum / n;
    return (struct moments){mean, sqrt(squares / n - mean * mean) / mean};
}

/* Tolerances are four standard errors: cv / sqrt(n) for the mean; for the cv of 400,000 gaps, from
 * the fourth moments of each distribution, at most 2 % up to cv 2. */
START_TEST(gaps_have_the_mean_and_the_variation_asked_for) {
    const int n = 400000;
    const double step = 4 / sqrt(n);
    struct moments poisson = gap_moments("poisson", 2.5, NULL, n);
    ck_assert_double_eq_tol(poisson.mean_s * 2.5, 1, step);
    ck_assert_double_eq_tol(poisson.cv, 1, 2 * step);
    const char *const cvs[] = {"0.1", "0.5", "1", "2"};
    const char *const renewals[] = {"gamma", "weibull"};
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < 4; i++) {
            const char *set[] = {"cv", cvs[i], NULL};
            double cv = atof(cvs[i]);
            struct moments gaps = gap_moments(renewals[p], 0.25, set, n);
            ck_assert_double_eq_tol(gaps.mean_s * 0.25, 1, cv * step);
            ck_assert_double_eq_tol(gaps.cv / cv, 1, 0.02);
        }
    }
}
END_TEST

START_TEST(no_draw_of_a_gamma_gap_fails_to_converge) {
    const char *const cvs[] = {"0.05", "1", "3", "5", "10"};
    for (int i = 0; i < 5; i++) {
        const char *set[] = {"cv", cvs[i], NULL};
        struct moments gaps = gap_moments("gamma", 1, set, 200000);
        ck_assert(isfinite(gaps.mean_s) && isfinite(gaps.cv));
    }
}
END_TEST

START_TEST(bursts_keep_the_mean_rate_and_fill_their_share) {
    struct rows rows;
    const char *set[] = {"on_ns", "10s", "off_ns", "30s", "burst", "3", NULL};
    struct generator *generator = open_generator("bursts", 2, 3, set, open_rows(&rows));
    struct arrival_source source = generator_source(generator);
    struct err err = {0};
    struct arrival row;
    const int n = 400000;
    int n_in_bursts = 0, n_good = 0;
    for (int i = 0; i < n; i++) {
        n_good += source.next(source.state, &row, &err) == SOURCE_ROW;
        n_in_bursts += row.arrival_ns % INT64_C(40000000000) < INT64_C(10000000000);
    }
    ck_assert_int_eq(n_good, n);
    /* A quarter of the time at three times the rate. */
    ck_assert_double_eq_tol((double)n_in_bursts / n, 0.75, 4 * sqrt(0.75 * 0.25 / n));
    ck_assert_double_eq_tol((double)row.arrival_ns * 1e-9 * 2 / n, 1, 4 / sqrt(n));
    generator_close(generator);
    close_rows(&rows);
}
END_TEST

START_TEST(bursts_of_the_whole_rate_leave_silence_between) {
    struct rows rows;
    const char *set[] = {"on_ns", "10s", "off_ns", "30s", "burst", "4", NULL};
    struct generator *generator = open_generator("bursts", 2, 3, set, open_rows(&rows));
    struct arrival_source source = generator_source(generator);
    struct err err = {0};
    struct arrival row;
    for (int i = 0; i < 10000; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        ck_assert_int_le(row.arrival_ns % INT64_C(40000000000), INT64_C(10000000000));
    }
    generator_close(generator);
    close_rows(&rows);
    generator = generator_open(process_find("bursts"));
    ck_assert_int_eq(generator_set(generator, "test", "burst", "5", &err), 0);
    ck_assert_int_eq(generator_start(generator, 1, 1, source, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "bursts of 5 times the mean rate cannot fill 0.25 of the time: "
                               "expected burst up to 4, where nothing arrives between bursts");
    generator_close(generator);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_arrivals_and_another_gives_others) {
    struct rows rows[3];
    struct arrival_source sources[3];
    struct generator *generators[3];
    const uint64_t seeds[] = {5, 5, 6};
    for (int i = 0; i < 3; i++) {
        generators[i] = open_generator("gamma", 1, seeds[i], NULL, open_rows(&rows[i]));
        sources[i] = generator_source(generators[i]);
    }
    int n_other = 0;
    for (int k = 0; k < 1000; k++) {
        struct arrival row[3];
        struct err err = {0};
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(sources[i].next(sources[i].state, &row[i], &err), SOURCE_ROW);
        }
        ck_assert_mem_eq(&row[0], &row[1], sizeof row[0]);
        n_other += row[0].arrival_ns != row[2].arrival_ns;
    }
    ck_assert_int_gt(n_other, 990);
    for (int i = 0; i < 3; i++) {
        generator_close(generators[i]);
        close_rows(&rows[i]);
    }
}
END_TEST

START_TEST(a_closed_loop_keeps_its_clients_in_flight) {
    struct rows rows;
    const char *set[] = {"clients", "3", "think_ns", "2s", NULL};
    struct generator *generator = open_generator("closed-loop", 0, 1, set, open_rows(&rows));
    struct limit limit = {.inner = generator_source(generator), .n = 50};
    struct arrival_source source = limit_source(&limit);
    ck_assert(source.completed != NULL);
    struct err err = {0};
    struct arrival row, in_flight[3];
    uint64_t n_given = 0;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(source.next(source.state, &in_flight[i], &err), SOURCE_ROW);
        ck_assert_int_eq(in_flight[i].arrival_ns, 0);
        n_given++;
    }
    const int64_t s = 1000000000;
    for (int64_t now_ns = 7 * s; n_given < 50; now_ns += 5 * s) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_WAIT);
        int client = (int)(n_given % 3);
        source.completed(source.state, in_flight[client].id, now_ns);
        ck_assert_int_eq(source.next(source.state, &in_flight[client], &err), SOURCE_ROW);
        ck_assert_int_eq(in_flight[client].arrival_ns, now_ns + 2 * s);
        ck_assert_uint_eq(in_flight[client].id, n_given);
        n_given++;
    }
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_END);
    generator_close(generator);
    close_rows(&rows);
}
END_TEST

START_TEST(every_process_and_model_can_be_found_and_explains_itself) {
    for (size_t i = 0; process_at(i) != NULL; i++) {
        ck_assert_ptr_eq(process_find(process_at(i)->name), process_at(i));
        ck_assert_uint_gt(strlen(process_at(i)->doc), 10);
        generator_close(generator_open(process_at(i)));
    }
    ck_assert_ptr_null(process_find("poison"));
    for (size_t i = 0; length_model_at(i) != NULL; i++) {
        ck_assert_uint_gt(strlen(length_model_at(i)->doc), 10);
    }
}
END_TEST

/* ---- length models ---- */

static struct moments length_moments(struct length *length, uint32_t *min, uint32_t *max) {
    const int n = 200000;
    double sum = 0, squares = 0;
    *min = UINT32_MAX;
    *max = 0;
    for (int i = 0; i < n; i++) {
        uint32_t tokens = length_draw(length);
        *min = tokens < *min ? tokens : *min;
        *max = tokens > *max ? tokens : *max;
        sum += tokens;
        squares += (double)tokens * tokens;
    }
    length_close(length);
    double mean = sum / n;
    return (struct moments){mean, sqrt(squares / n - mean * mean) / mean};
}

START_TEST(lengths_have_the_mean_and_the_variation_of_their_model) {
    uint32_t min, max;
    const char *lognormal[] = {"mean", "380", "cv", "0.45", NULL};
    struct moments drawn =
        length_moments(open_length("lognormal", LENGTH_INPUT, lognormal), &min, &max);
    ck_assert_double_eq_tol(drawn.mean_s, 380, 4 * 380 * 0.45 / sqrt(200000));
    ck_assert_double_eq_tol(drawn.cv, 0.45, 0.005);
    const char *clamped[] = {"mean", "380", "cv", "0.45", "min", "60", "max", "700", NULL};
    length_moments(open_length("lognormal", LENGTH_INPUT, clamped), &min, &max);
    ck_assert(min >= 60 && max == 700);
    const char *uniform[] = {"min", "3", "max", "5", NULL};
    drawn = length_moments(open_length("uniform", LENGTH_INPUT, uniform), &min, &max);
    ck_assert(min == 3 && max == 5);
    ck_assert_double_eq_tol(drawn.mean_s, 4, 4 * sqrt(2.0 / 3 / 200000));
    ck_assert_double_eq_tol(drawn.cv * drawn.mean_s, sqrt(2.0 / 3), 0.01);
    /* The moments of the table's piecewise-linear distribution; the 1,319 problems themselves have
     * mean 67.1 and cv 0.404, because few of the last percent are near its end of 236. */
    drawn = length_moments(open_length("quantiles:gsm8k_test_est", LENGTH_INPUT, NULL), &min, &max);
    ck_assert(min >= 21 && max <= 236);
    ck_assert_double_eq_tol(drawn.mean_s, 67.303, 0.25);
    ck_assert_double_eq_tol(drawn.cv, 0.4154, 0.005);
}
END_TEST

static void check_length_error(const char *spec, const char *name, const char *value,
                               const char *sentence) {
    struct err err = {0};
    struct length *length = NULL;
    int status = length_open(spec, "x.ini:3", LENGTH_INPUT, &length, &err);
    if (status == 0 && name != NULL) {
        status = length_set(length, "x.ini:3", name, value, &err);
    }
    if (status == 0) {
        status = length_start(length, 1, &err);
    }
    length_close(length);
    ck_assert_int_eq(status, ERR_USAGE);
    ck_assert_str_eq(err.text, sentence);
}

START_TEST(a_wrong_length_model_is_explained) {
    check_length_error("lognorml", NULL, NULL,
                       "x.ini:3: there is no length model 'lognorml'; did you mean 'lognormal'?");
    check_length_error("quantiles", NULL, NULL,
                       "x.ini:3: 'quantiles' is not a length model: expected quantiles:SET");
    check_length_error("fixed:3", NULL, NULL,
                       "x.ini:3: 'fixed:3' is not a length model: expected fixed");
    check_length_error("quantiles:gsm8k_test", NULL, NULL,
                       "./traces/quantiles.csv has no set 'gsm8k_test'; did you mean "
                       "'gsm8k_test_est'?");
    check_length_error("fixed", "token", "5",
                       "x.ini:3: fixed has no parameter 'token'; did you mean 'tokens'?");
    check_length_error("uniform", "min", "2000",
                       "uniform lengths from 2000 to 1024: expected min up to max");
}
END_TEST

START_TEST(resampled_pairs_are_rows_of_the_trace) {
    struct err err = {0};
    struct trace *trace;
    ck_assert_int_eq(trace_open(GOLDEN "lengths.csv", &trace, &err), 0);
    struct resample *resample;
    ck_assert_int_eq(resample_open(trace_source(trace), "x", 1, &resample, &err), 0);
    trace_close(trace);
    struct arrival_source source = resample_source(resample);
    const uint32_t inputs[] = {74, 290, 1402}, outputs[] = {918, 905, 711};
    int counts[3] = {0};
    for (int i = 0; i < 30000; i++) {
        struct arrival row;
        enum source_reply reply = source.next(source.state, &row, &err);
        for (int k = 0; k < 3; k++) {
            counts[k] += reply == SOURCE_ROW && row.prompt_tokens == inputs[k] &&
                         row.output_tokens == outputs[k];
        }
    }
    ck_assert_int_eq(counts[0] + counts[1] + counts[2], 30000);
    for (int k = 0; k < 3; k++) {
        ck_assert_double_eq_tol(counts[k], 10000, 4 * sqrt(30000 * 2.0 / 9));
    }
    resample_close(resample);
}
END_TEST

/* ---- transforms ---- */

static int rewind_one(void *state, struct err *err) {
    return trace_rewind(state, err);
}

START_TEST(a_replay_has_exactly_the_rate_it_is_rescaled_to) {
    struct err err = {0};
    struct trace *trace;
    ck_assert_int_eq(trace_open(SAMPLES "azure_conv_2023_first2000.csv", &trace, &err), 0);
    struct survey survey;
    ck_assert_int_eq(survey_source(trace_source(trace), 0, &survey, &err), 0);
    ck_assert_int_eq(trace_rewind(trace, &err), 0);
    ck_assert_uint_eq(survey.rows, 2000);
    struct replay replay = {.inner = trace_source(trace),
                            .factor = survey_rate_per_s(&survey) / 0.8,
                            .again = {trace, rewind_one},
                            .period_ns = survey_period_ns(&survey)};
    struct arrival_source source = replay_source(&replay);
    struct arrival row;
    int64_t ends_ns[3], last_ns = 0;
    for (int i = 0; i < 6000; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        ck_assert_int_ge(row.arrival_ns, last_ns);
        last_ns = row.arrival_ns;
        if (i % 2000 == 1999) {
            ends_ns[i / 2000] = row.arrival_ns;
        }
    }
    /* 1,999 gaps of 1.25 s; a round more is 2,000 gaps, the mean gap rounded down to a ns. */
    ck_assert_int_le(llabs(ends_ns[0] - INT64_C(2498750000000)), 1);
    ck_assert_int_le(llabs(ends_ns[1] - INT64_C(4998750000000)), 16);
    ck_assert_int_le(llabs(ends_ns[2] - INT64_C(7498750000000)), 32);
    trace_close(trace);
}
END_TEST

START_TEST(a_cap_drops_or_truncates_and_counts) {
    struct err err = {0};
    for (int truncates = 0; truncates < 2; truncates++) {
        struct trace *trace;
        ck_assert_int_eq(trace_open(SAMPLES "mooncake_synthetic_first1000.csv", &trace, &err), 0);
        struct cap cap = {.inner = trace_source(trace),
                          .context_tokens = 4096,
                          .truncates = truncates == 1,
                          .name = "mooncake"};
        struct arrival_source source = cap_source(&cap);
        struct arrival row;
        uint64_t n = 0;
        while (source.next(source.state, &row, &err) == SOURCE_ROW) {
            ck_assert_uint_le(row.prompt_tokens + row.output_tokens, 4096);
            n++;
        }
        ck_assert_int_eq(err.kind, ERR_NONE);
        ck_assert_uint_eq(n, truncates ? 1000 : 512);
        ck_assert_uint_eq(cap.n_dropped, truncates ? 0 : 488);
        ck_assert_uint_eq(cap.n_truncated, truncates ? 488 : 0);
        ck_assert_uint_eq(cap.n_listed, truncates ? 0 : CAP_MAX_LISTED);
        /* The file's first rows ask for 40,160 and 36,640 tokens. */
        ck_assert(truncates || (cap.dropped_ids[0] == 0 && cap.dropped_ids[1] == 1));
        trace_close(trace);
    }
}
END_TEST

START_TEST(a_context_nothing_fits_into_is_an_error) {
    struct rows rows;
    struct cap cap = {.inner = open_rows(&rows), .context_tokens = 29, .name = "tens"};
    struct arrival_source source = cap_source(&cap);
    struct arrival row;
    struct err err = {0};
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_BAD);
    ck_assert_str_eq(err.text,
                     "tens: found 1000000 requests in a row longer than the context of 29 "
                     "tokens, expected some that fit");
    cap = (struct cap){.inner = cap.inner, .context_tokens = 30, .name = "tens"};
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    close_rows(&rows);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        the_shipped_samples_have_their_known_counts_and_sums,
        every_format_reads_its_own_units_and_columns,
        a_bad_row_is_one_sentence_with_its_place,
        a_file_that_is_no_trace_is_refused,
        an_endless_line_is_refused_in_bounded_memory,
        harmless_variants_are_read_as_they_are_meant,
        times_are_exact_to_the_nanosecond,
        dates_follow_the_civil_calendar,
        a_million_rows_are_read_in_constant_memory,
        gaps_have_the_mean_and_the_variation_asked_for,
        no_draw_of_a_gamma_gap_fails_to_converge,
        bursts_keep_the_mean_rate_and_fill_their_share,
        bursts_of_the_whole_rate_leave_silence_between,
        the_same_seed_gives_the_same_arrivals_and_another_gives_others,
        a_closed_loop_keeps_its_clients_in_flight,
        every_process_and_model_can_be_found_and_explains_itself,
        lengths_have_the_mean_and_the_variation_of_their_model,
        a_wrong_length_model_is_explained,
        resampled_pairs_are_rows_of_the_trace,
        a_replay_has_exactly_the_rate_it_is_rescaled_to,
        a_cap_drops_or_truncates_and_counts,
        a_context_nothing_fits_into_is_an_error,
    };
    return SUITE_RUN("traces", tests);
}
