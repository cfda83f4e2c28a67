/* What a file leaves open: units, sizes of blocks, sessions, years, names; by its rows, or asked
 * for, never guessed. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "sim/base/mem.h"
#include "sim/base/rng.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "traces/decode_trace.h"
#include "traces/reader.h"

static const struct trace_reading as_it_is = {0};

/* "us prompt output prefix tenant" of each row, "; " between them; the sentence where it is
 * refused, with the kind of error before it. The caller frees. */
static char *read_file(const char *path, const struct trace_reading *how, struct trace **kept) {
    char *text;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    struct trace *trace = NULL;
    struct err err = {0};
    struct arrival row;
    enum source_reply reply = SOURCE_BAD;
    if (trace_open_as(path, how, &trace, &err) == 0) {
        struct arrival_source source = trace_source(trace);
        while ((reply = source.next(source.state, &row, &err)) == SOURCE_ROW) {
            fprintf(out, "%s%" PRId64 " %u %u %u %u", row.id > 0 ? "; " : "", row.arrival_ns / 1000,
                    row.prompt_tokens, row.output_tokens, row.prefix_tokens, row.tenant);
        }
    }
    mem_stream_close(out);
    if (reply == SOURCE_BAD) {
        free(text);
        text = mem_unwritten(1, sizeof err.text + 16);
        snprintf(text, sizeof err.text + 16, "%d: %s", (int)err.kind, err.text);
    }
    if (kept != NULL) {
        *kept = trace;
    } else {
        trace_close(trace);
    }
    return text;
}

static char *read_text(const char *text, const struct trace_reading *how) {
    return read_file(scratch_write("trace", text), how, NULL);
}

static void check(const char *text, const struct trace_reading *how, const char *expected) {
    char *found = read_text(text, how);
    ck_assert_str_eq(found, expected);
    free(found);
}

/* Refused with this status and a sentence that says this. */
static void check_refused(const char *text, const struct trace_reading *how, enum err_kind kind,
                          const char *sentence) {
    char *found = read_text(text, how);
    char *colon = NULL;
    ck_assert_int_eq(strtol(found, &colon, 10), (long)kind);
    ck_assert_msg(*colon == ':', "%s", found);
    ASSERT_SAYS(colon, sentence);
    free(found);
}

static const char *notes_of(const char *text, const struct trace_reading *how) {
    static char notes[1024];
    struct trace *trace;
    free(read_file(scratch_write("trace", text), how, &trace));
    ck_assert_ptr_nonnull(trace);
    snprintf(notes, sizeof notes, "%s", trace_notes(trace));
    trace_close(trace);
    return notes;
}

static const char *unread_of(const char *text, const struct trace_reading *how) {
    static char names[1024];
    struct trace *trace;
    size_t n;
    free(read_file(scratch_write("trace", text), how, &trace));
    ck_assert_ptr_nonnull(trace);
    const char *const *items = trace_unread(trace, &n);
    names[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 0 ? "," : "",
                 items[i]);
    }
    trace_close(trace);
    return names;
}

/* ---- Mooncake's rows and their relatives ---- */

#define BAILIAN(id, parent, at, n, ids)                                                            \
    "{\"chat_id\":" #id ",\"parent_chat_id\":" #parent ",\"timestamp\":" #at                       \
    ",\"input_length\":" #n ",\"output_length\":10,\"type\":\"text\",\"turn\":1,\"hash_ids\":" ids \
    "}\n"

TEST(rows_with_chat_ids_count_seconds_and_blocks_of_16_tokens) {
    check(BAILIAN(1, -1, 0.0, 48, "[1,2,3]") BAILIAN(2, -1, 2.0, 48, "[1,4,5]"), &as_it_is,
          "0 48 10 0 0; 2000000 48 10 16 0");
    /* A row without a parent's key is a first turn, too. */
    check("{\"chat_id\":1,\"timestamp\":61,\"input_length\":52,\"output_length\":1}\n"
          "{\"chat_id\":2,\"timestamp\":62.5,\"input_length\":52,\"output_length\":1}\n",
          &as_it_is, "0 52 1 0 0; 1500000 52 1 0 0");
}

/* The session of each row by the place of its first row; -1: none. */
static void check_sessions(const char *text, const struct trace_reading *how, size_t n,
                           const int expected[]) {
    struct trace *trace;
    struct err err = {0};
    struct arrival row;
    uint64_t sessions[16];
    ck_assert_msg(trace_open_as(scratch_write("trace", text), how, &trace, &err) == 0, "%s",
                  err.text);
    struct arrival_source source = trace_source(trace);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        sessions[i] = row.session;
        int first = -1;
        for (size_t k = 0; k <= i && row.session != 0 && first < 0; k++) {
            first = sessions[k] == row.session ? (int)k : -1;
        }
        ck_assert_int_eq(first, expected[i]);
    }
    trace_close(trace);
}

TEST(a_parent_makes_a_session_of_all_that_descend_from_one_row) {
    const char *text = BAILIAN(1, -1, 0.0, 8, "[1]") BAILIAN(2, -1, 1.0, 8, "[2]")
        BAILIAN(3, 1, 2.0, 8, "[3]") BAILIAN(4, 3, 3.0, 8, "[4]") BAILIAN(5, 2, 4.0, 8, "[5]")
            BAILIAN(7, 6, 5.0, 8, "[6]") BAILIAN(8, 6, 5.0, 8, "[7]");
    static const int expected[] = {0, 1, 0, 0, 1, 5, 5};
    check_sessions(text, &as_it_is, 7, expected);
    const struct trace_reading own = {
        .columns = "time=timestamp:s,input=input_length,output=output_length,session=chat_id,"
                   "parent=parent_chat_id,hashes=hash_ids"};
    check_sessions(text, &own, 7, expected);
}

/* `n` rows of drawn lengths whose first `shared` blocks are one prompt's. */
static char *hashed_rows(uint32_t block, bool whole_blocks, uint32_t shared, uint32_t n) {
    char *text;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    for (uint32_t i = 0; i < n; i++) {
        /* Of some prompts the last block is full or nearly so, of some it has one token. */
        const uint32_t lasts[] = {block, 1, block > 1 ? block - 1 : 1, (i * 7919 + 13) % block + 1};
        uint32_t last = lasts[i % 4];
        uint32_t tokens = block * (shared + 2 + i % 7) + last;
        uint32_t ids = whole_blocks ? tokens / block : (tokens + block - 1) / block;
        fprintf(out, "{\"timestamp\":%u,\"input_length\":%u,\"output_length\":1,\"hash_ids\":[", i,
                tokens);
        for (uint32_t k = 0; k < ids; k++) {
            fprintf(out, "%s%u", k > 0 ? "," : "", k < shared ? k : 1000 * (i + 1) + k);
        }
        fprintf(out, "]}\n");
    }
    mem_stream_close(out);
    return text;
}

TEST(the_size_of_a_block_is_the_one_that_fits_the_numbers_of_ids) {
    static const uint32_t blocks[] = {1, 8, 16, 32, 64, 100, 128, 256, 512, 1000, 1024, 4096};
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        for (int whole = 0; whole < 2; whole++) {
            for (uint32_t shared = 1; shared < 5; shared++) {
                char *text = hashed_rows(blocks[b], whole != 0, shared, 60);
                char *found = read_text(text, &as_it_is);
                char expected[32];
                uint32_t tokens = blocks[b] * (shared + 3) + 1;
                snprintf(expected, sizeof expected, "; 1000 %u 1 %u 0", tokens, blocks[b] * shared);
                ck_assert_msg(strstr(found, expected) != NULL,
                              "block %u, whole %d, shared %u: %.200s", blocks[b], whole, shared,
                              found);
                free(found);
                /* Told, it is the same. */
                const struct trace_reading told = {.hash_tokens = blocks[b]};
                char *again = read_text(text, &told);
                ck_assert_ptr_nonnull(strstr(again, expected));
                free(again);
                free(text);
            }
        }
    }
}

#define HASHED(n, ids)                                                                             \
    "{\"timestamp\":0,\"input_length\":" #n ",\"output_length\":1,\"hash_ids\":" ids "}\n"

TEST(a_size_of_blocks_that_rows_do_not_say_is_asked_for) {
    /* Three ids of 300 tokens: 100 to 149, of which 128 is the one power of two. */
    check(HASHED(300, "[1,2,3]") HASHED(300, "[1,4,5]"), &as_it_is, "0 300 1 0 0; 0 300 1 128 0");
    ASSERT_SAYS(notes_of(HASHED(300, "[1,2,3]"), &as_it_is), "a hash id stands for 128 tokens");
    ck_assert_str_eq(notes_of(HASHED(1300, "[1,2,3]"), &as_it_is), ""); /* as it is published */
    const char *open = HASHED(330, "[1,2,3,4]") HASHED(340, "[1,2,3,4]");
    /* Whole blocks alone have ids: 64 tokens, where filled ones would be 75 to 99. */
    check(HASHED(300, "[1,2,3,4]") HASHED(310, "[1,2,9,8]"), &as_it_is,
          "0 300 1 0 0; 0 310 1 128 0");
    check_refused(open, &as_it_is, ERR_USAGE, "85 to 109 tokens: --hash-tokens");
    check(open, &(const struct trace_reading){.hash_tokens = 90}, "0 330 1 0 0; 0 340 1 340 0");
    check_refused(open, &(const struct trace_reading){.hash_tokens = 512}, ERR_USAGE,
                  "--hash-tokens 512: trace:2 has 4 hash ids for 340 tokens");
    check_refused(HASHED(256, "[7,8,9,10]"), &(const struct trace_reading){.hash_tokens = 512},
                  ERR_USAGE, "--hash-tokens 512: 4 hash ids for 256 tokens; 64 would fit");
    check_refused(HASHED(900, "[1]") HASHED(64, "[1,2,3]"), &as_it_is, ERR_USAGE,
                  "no one size of a block fits all rows: --hash-tokens");
    /* Two ids of 33 tokens are blocks of 17 to 32, of 100 tokens of 50 to 99. */
    check(HASHED(33, "[1,2]") HASHED(33, "[1,3]"), &as_it_is, "0 33 1 0 0; 0 33 1 32 0");
    check_refused(HASHED(100, "[1,2]"), &(const struct trace_reading){.hash_tokens = 100},
                  ERR_USAGE, "--hash-tokens 100: 2 hash ids for 100 tokens; 64 would fit");
    /* What was seen counts only as far as all before it was. */
    check(HASHED(40, "[1,2,3]") HASHED(40, "[1,9,3]") HASHED(40, "[8,2,3]"), &as_it_is,
          "0 40 1 0 0; 0 40 1 16 0; 0 40 1 0 0");
    /* Ids that are texts, or beyond 64 bits, and lists in a CSV file. */
    check("{\"timestamp\":0,\"input_length\":30,\"output_length\":1,\"hash_ids\":[\"a\",\"b\"]}\n"
          "{\"timestamp\":1,\"input_length\":30,\"output_length\":1,\"hash_ids\":[\"a\","
          "18446744073709551617]}\n",
          &as_it_is, "0 30 1 0 0; 1000 30 1 16 0");
    check("t,p,c,h\n0,30,1,\"[5, 6]\"\n1,30,1,\"[5, 7]\"\n",
          &(const struct trace_reading){.columns = "time=t:s,input=p,output=c,hashes=h"},
          "0 30 1 0 0; 1000000 30 1 16 0");
}

#define MOONCAKE(at, more) "{\"timestamp\":" at ",\"input_length\":9,\"output_length\":1" more "}\n"

TEST(a_fraction_in_whole_milliseconds_asks_for_the_unit) {
    check(MOONCAKE("5", "") MOONCAKE("7", ""), &as_it_is, "0 9 1 0 0; 2000 9 1 0 0");
    static const char *const other[] = {MOONCAKE("0.0", "") MOONCAKE("0.2", ""),
                                        MOONCAKE("0", "") MOONCAKE("0.2", ""),
                                        MOONCAKE("0.0", "") MOONCAKE("2.0", "")};
    static const int64_t seconds[] = {200000, 200000, 2000000};
    for (size_t i = 0; i < 3; i++) {
        char expected[64];
        check_refused(other[i], &as_it_is, ERR_USAGE, "timestamp: --time-unit s or ms");
        snprintf(expected, sizeof expected, "0 9 1 0 0; %" PRId64 " 9 1 0 0", seconds[i]);
        check(other[i], &(const struct trace_reading){.time_unit = "s"}, expected);
        snprintf(expected, sizeof expected, "0 9 1 0 0; %" PRId64 " 9 1 0 0", seconds[i] / 1000);
        check(other[i], &(const struct trace_reading){.time_unit = "ms"}, expected);
    }
    check_refused(other[0], &(const struct trace_reading){.time_unit = "min"}, ERR_USAGE,
                  "--time-unit: 'min' is none of s, ms, us, ns, date");
    /* What counts from 1970 says its unit by its digits, and texts are dates. */
    check(MOONCAKE("1700000000", "") MOONCAKE("1700000003", ""), &as_it_is,
          "0 9 1 0 0; 3000000 9 1 0 0");
    check(MOONCAKE("1700000000.5", "") MOONCAKE("1700000003.0", ""), &as_it_is,
          "0 9 1 0 0; 2500000 9 1 0 0");
    check(MOONCAKE("1700000000000", "") MOONCAKE("1700000003000", ""), &as_it_is,
          "0 9 1 0 0; 3000000 9 1 0 0");
    check(MOONCAKE("\"2024-01-01T00:00:00Z\"", "") MOONCAKE("\"2024-01-01T00:00:03Z\"", ""),
          &as_it_is, "0 9 1 0 0; 3000000 9 1 0 0");
}

TEST(what_is_asked_for_is_asked_with_what_was_seen) {
#define TIMES(rows) "time,prompt_tokens,completion_tokens\n" rows
    static const struct {
        const char *text;
        enum err_kind kind;
        const char *sentence;
    } asked[] = {
        {TIMES("0,9,1\n10,8,1\n20,8,1\n"), ERR_USAGE,
         "'time', which begins at 0 --time-unit (s: 0.1 requests a second, ms: 100 requests a "
         "second, us: 1e+05 requests a second)"},
        /* The latest time is the last, wherever it stands; the first with a point is shown. */
        {TIMES("10,9,1\n50.5,9,1\n30,8,1\n"), ERR_USAGE,
         "'time', which begins at 50.5 --time-unit (s: 0.0494 requests a second"},
        {TIMES("10.5,9,1\n11.25,9,1\n"), ERR_USAGE, "'time', which begins at 10.5 --time-unit"},
        {TIMES("7,9,1\n"), ERR_USAGE, "'time', which begins at 7 --time-unit"},
        {TIMES("2024-01-01 00:00:00,9,1\n5,9,1\nx,9,1\ny,9,1\n"), ERR_WORLD,
         "trace:4: found 'x' in time"},
        {TIMES("1700000000,9,1\n5,9,1\n"), ERR_USAGE, "'time', which begins at 1700000000"},
        {MOONCAKE("0", "") MOONCAKE("1", "") MOONCAKE("2.5", "") MOONCAKE("3.5", ""), ERR_USAGE,
         "trace:3: found 2.5 in timestamp --time-unit (s: 0.857 requests a second"},
        {MOONCAKE("0.0", "") MOONCAKE("1.5", ""), ERR_USAGE, "trace:1: found 0.0 in timestamp"},
        {HASHED(900, "[1]") HASHED(64, "[1,2,3]") HASHED(70, "[1]"), ERR_USAGE,
         "trace:2: found 3 hash ids of a prompt of 64 tokens"},
        {HASHED(900, "[1]") HASHED(5, "[1,2,3,4,5,6]"), ERR_USAGE,
         "trace:2: found 6 hash ids of a prompt of 5 tokens"},
        {HASHED(100, "[1,2]") HASHED(63, "[1,2]"), ERR_USAGE, "50 to 62 tokens: --hash-tokens"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        check_refused(asked[i].text, &as_it_is, asked[i].kind, asked[i].sentence);
    }
    ck_assert_str_eq(notes_of(TIMES("1700000000,9,1\n1700000001,9,1\n"), &as_it_is),
                     "times in time count from 1970 by their digits; read by the names of its "
                     "columns, as --columns time=time:date,input=prompt_tokens,output=completion_"
                     "tokens would; ");
}

TEST(later_turns_need_no_time) {
    const char *text = MOONCAKE("0", ",\"session_id\":\"a\"")
        MOONCAKE("null", ",\"session_id\":\"a\",\"delay\":500") MOONCAKE(
            "100", ",\"session_id\":\"b\",\"delay\":null") "{\"session_id\":\"b\",\"input_"
                                                           "length\":9,\"output_length\":1}\n";
    struct trace *trace;
    struct err err = {0};
    struct arrival row;
    static const int64_t at_ms[] = {0, 0, 100, 100}, think_ms[] = {-1, 500, -1, 0};
    ck_assert_int_eq(trace_open(scratch_write("trace", text), &trace, &err), 0);
    ck_assert(trace_has_sessions(trace));
    struct arrival_source source = trace_source(trace);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        ck_assert_int_eq(row.arrival_ns, at_ms[i] * 1000000);
        ck_assert_int_eq(row.think_ns, think_ms[i] < 0 ? -1 : think_ms[i] * 1000000);
    }
    trace_close(trace);
    check_refused(MOONCAKE("0", ",\"session_id\":\"a\"") MOONCAKE("null", ",\"session_id\":\"b\""),
                  &as_it_is, ERR_WORLD, "trace:2: found 'null' in timestamp");
    check_refused(MOONCAKE("0", "") MOONCAKE("null", ",\"delay\":5"), &as_it_is, ERR_WORLD,
                  "trace:2: found 'null' in timestamp");
    /* Grouped by session, rows are put in order of arrival; without sessions that is an error. */
    check(MOONCAKE("0", ",\"session_id\":1") MOONCAKE("900", ",\"session_id\":1")
              MOONCAKE("100", ",\"session_id\":2"),
          &as_it_is, "0 9 1 0 0; 100000 9 1 0 0; 900000 9 1 0 0");
    check_refused(MOONCAKE("5", "") MOONCAKE("4", ""), &as_it_is, ERR_WORLD,
                  "trace:2: found an arrival 0.001 s before the previous row's");
    /* The delay has the unit of the times that are asked for. */
    ck_assert_int_eq(
        trace_open_as(scratch_write("trace", MOONCAKE("0.5", ",\"session_id\":1,\"delay\":2")),
                      &(const struct trace_reading){.time_unit = "s"}, &trace, &err),
        0);
    source = trace_source(trace);
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    ck_assert_int_eq(row.think_ns, 2000000000);
    trace_close(trace);
}

/* Where times are dates the time to think is no date; else it has the unit that is asked for. */
TEST(the_time_to_think_has_the_unit_of_times_that_have_one) {
    static const struct {
        const char *unit, *time;
        int64_t think_ns;
    } units[] = {{NULL, "0", 500000000},
                 {"s", "0", 500000000000},
                 {"us", "0", 500000},
                 {"date", "\"2024-01-01T00:00:00Z\"", 500000000}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        char text[256];
        struct trace *trace;
        struct err err = {0};
        struct arrival row;
        snprintf(text, sizeof text,
                 "{\"timestamp\":%s,\"input_length\":9,\"output_length\":1,\"session_id\":1,"
                 "\"delay\":500}\n",
                 units[i].time);
        const struct trace_reading how = {.time_unit = units[i].unit};
        ck_assert_int_eq(trace_open_as(scratch_write("trace", text), &how, &trace, &err), 0);
        struct arrival_source source = trace_source(trace);
        ck_assert_msg(source.next(source.state, &row, &err) == SOURCE_ROW, "%s", err.text);
        ck_assert_int_eq(row.think_ns, units[i].think_ns);
        trace_close(trace);
    }
}

TEST(a_column_that_may_be_the_time_is_named_where_there_is_one) {
    static const char *const files[][2] = {
        {"input_tokens,output_tokens\n9,1\n", ""},
        {"input_tokens,output_tokens,when\n9,1,5\n",
         "; 'when' is not read: --columns time=when:UNIT,input=input_tokens,output=output_tokens "
         "would, if it is the time"},
        {"{\"ids\": [1, 2], \"when\": 3}\n", ""}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char hint[320] = "what stood here before";
        struct trace *trace;
        free(read_file(scratch_write("trace", files[i][0]), &as_it_is, &trace));
        ck_assert_str_eq(trace_hint_of_time(trace, hint, sizeof hint), files[i][1]);
        trace_close(trace);
    }
}

/* ---- logs without a year ---- */

/* Of the second of two requests that come at these times. */
static int64_t second_of(const char *first, const char *between, const char *second) {
    char text[2048];
    const char *const times[] = {first, between, second};
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        used += times[i] == NULL
                    ? 0
                    : (size_t)snprintf(text + used, sizeof text - used,
                                       "INFO %s [a.py:1] Received request c-%d: prompt: "
                                       "'x', prompt_token_ids: [1], x\n"
                                       "INFO %s [a.py:2] Generated response c-%d: output: "
                                       "'x', output_token_ids: [5], x\n",
                                       times[i], i, times[i], i);
    }
    char *rows = read_text(text, &as_it_is);
    const char *last = strrchr(rows, ';');
    ck_assert_msg(last != NULL, "%s", rows);
    int64_t us = strtoll(last + 1, NULL, 10);
    ck_assert_int_eq(us % 1000000, 0);
    free(rows);
    return us / 1000000;
}

TEST(a_year_has_the_29th_of_february_that_the_log_has) {
    static const char before[] = "02-28 23:59:59", after[] = "03-01 00:00:01";
    ck_assert_int_eq(second_of(before, NULL, after), 2);
    ck_assert_int_eq(second_of(before, "02-29 10:00:00", after), 86402);
    ck_assert_int_eq(second_of("12-31 23:59:59", NULL, "01-01 00:00:01"), 2);
    ck_assert_int_eq(second_of("12-31 00:00:00", NULL, "03-01 00:00:00"), 60 * 86400);
    ck_assert_int_eq(second_of("12-31 00:00:00", "02-29 00:00:00", "03-01 00:00:00"), 61 * 86400);
    /* Every other day is one day from the next. */
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (int m = 1; m <= 12; m++) {
        char last[32], first[32];
        snprintf(last, sizeof last, "%02d-%02d 23:59:59", m, days[m - 1]);
        snprintf(first, sizeof first, "%02d-01 00:00:00", m % 12 + 1);
        ck_assert_int_eq(second_of(last, NULL, first), 1);
    }
}

/* A log is of sixty years at most: what goes back after that is of the last. */
TEST(a_log_has_sixty_years_at_most) {
    char *text;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    static const char *const days[] = {"02-01", "06-01", "11-01"};
    for (int i = 0; i < 200; i++) {
        fprintf(out,
                "INFO %s 00:00:00 [a.py:1] Received request r%d: prompt: 'x', prompt_token_ids: "
                "[1], x\nINFO %s 00:00:00 [a.py:2] Generated response r%d: output: 'x', "
                "output_token_ids: [5], x\n",
                days[i % 3], i, days[i % 3], i);
    }
    mem_stream_close(out);
    char *rows = read_text(text, &as_it_is);
    const char *last = strrchr(rows, ';');
    /* From the first of February to the first of November of the sixtieth year. */
    ck_assert_int_eq(strtoll(last + 1, NULL, 10) / 1000000 / 86400, 59 * 365 + 304 - 31);
    free(rows);
    free(text);
}

TEST(what_is_taken_for_granted_of_a_year_is_said) {
#define LOGGED(at, id)                                                                             \
    "INFO " at " [a.py:1] Received request " id ": prompt: 'x', prompt_token_ids: [1], x\n"        \
    "INFO " at " [a.py:2] Generated response " id ": output: 'x', output_token_ids: [5], x\n"
    ASSERT_SAYS(notes_of(LOGGED("02-28 10:00:00", "a") LOGGED("03-01 10:00:00", "b"), &as_it_is),
                "no year: without a 29th of February no leap year");
    ASSERT_SAYS(notes_of(LOGGED("12-31 10:00:00", "a") LOGGED("01-01 10:00:00", "b"), &as_it_is),
                "no year: goes back is the next year's");
    ck_assert_str_eq(
        notes_of(LOGGED("03-01 10:00:00", "a") LOGGED("12-31 10:00:00", "b"), &as_it_is), "");
}

/* What a log of these times says and is taken for, against the calendar's own; `said`: what it says
 * was taken for granted. Each time is in seconds since 1970, in the order of the lines. */
static void check_log(const int64_t *s, int n, const char *said) {
    char *text;
    size_t size;
    int64_t first = INT64_MAX, sum = 0, found = 0;
    FILE *out = mem_stream(&text, &size);
    for (int i = 0; i < n; i++) {
        struct tm tm;
        char at[32];
        gmtime_r(&(time_t){s[i]}, &tm);
        strftime(at, sizeof at, "%m-%d %H:%M:%S", &tm);
        fprintf(out,
                "INFO %s [a.py:1] Received request r%d: prompt: 'x', prompt_token_ids: [1]\n"
                "DEBUG %s [a.py:2] Generated response r%d: output: 'x', output_token_ids: "
                "[5]\n",
                at, i, at, i);
        first = s[i] < first ? s[i] : first;
    }
    mem_stream_close(out);
    struct trace *trace;
    char *rows = read_file(scratch_write("trace", text), &as_it_is, &trace);
    int64_t times[64];
    int n_found = 0;
    for (const char *at = rows; at != NULL && n_found < 64; at = strchr(at, ';')) {
        at += *at == ';';
        times[n_found++] = strtoll(at, NULL, 10);
    }
    ck_assert_msg(n_found == n, "%s", rows);
    for (int i = 0; i < n; i++) { /* in order of arrival, so only their sums of powers are told */
        int64_t us = (s[i] - first) * 1000000;
        bool is_there = false;
        for (int k = 0; k < n; k++) {
            is_there = is_there || times[k] == us;
        }
        ck_assert_msg(is_there, "request %d, after %" PRId64 " s: %s", i, s[i] - first, rows);
        sum += us;
        found += times[i];
    }
    ck_assert_int_eq(found, sum);
    ck_assert_str_eq(trace_notes(trace), said);
    trace_close(trace);
    free(rows);
    free(text);
}

TEST(times_without_a_year_are_the_calendars_over_many_years) {
    struct rng rng = rng_stream(9, "years");
    for (int n = 0; n < 60; n++) {
        int64_t s[64], now = 1672531200 + (int64_t)(rng_uniform(&rng) * 86400 * 365 * 8);
        int n_lines = 2 + n % 12, at = 0, year = 0;
        bool passes_new_year = false, passes_february = false, has_leap = false;
        for (int i = 0; i < n_lines; i++) {
            struct tm before, tm;
            gmtime_r(&(time_t){now}, &before);
            int64_t next =
                i == 0 ? now : now + (int64_t)(rng_uniform(&rng) * 86400 * (n % 3 == 0 ? 3 : 150));
            /* A log has lines of every 29th of February that it passes. */
            struct tm leap = {.tm_year = before.tm_year, .tm_mon = 1, .tm_mday = 29};
            for (int y = 0; y < 2;
                 y++, leap =
                          (struct tm){.tm_year = before.tm_year + 1, .tm_mon = 1, .tm_mday = 29}) {
                int64_t noon = timegm(&leap) + 43200;
                next = leap.tm_mday == 29 && now < noon && next > noon ? noon : next;
            }
            gmtime_r(&(time_t){next}, &tm);
            bool is_leap = tm.tm_mon == 1 && tm.tm_mday == 29;
            bool was_before = i > 0 && (before.tm_year < tm.tm_year || before.tm_mon == 0 ||
                                        (before.tm_mon == 1 && before.tm_mday < 29));
            passes_new_year = passes_new_year || (i > 0 && before.tm_year < tm.tm_year);
            passes_february = passes_february || (was_before && tm.tm_mon > 1);
            has_leap = has_leap || is_leap;
            year += before.tm_year < tm.tm_year;
            s[at++] = next;
            if (i > 0 && before.tm_year < tm.tm_year && n % 2 == 0) {
                s[at++] = now; /* a line of the old year that comes late */
            }
            now = next;
        }
        char said[256];
        snprintf(said, sizeof said, "%s%s%s%s%s",
                 passes_new_year || passes_february ? "its times have no year: " : "",
                 passes_new_year ? "one that goes back by half a year is the next year's" : "",
                 passes_new_year && passes_february ? ", and " : "",
                 !passes_february ? ""
                 : has_leap       ? "a leap year is one with a 29th of February in the log"
                                  : "a year without a 29th of February in the log is no leap year",
                 passes_new_year || passes_february ? "; " : "");
        check_log(s, at, said);
    }
}

/* A completion's prompts are received one by one, each under a number, and answered in that order;
 * who is received under the very name is answered under it. */
TEST(answers_go_to_the_prompts_of_a_completion_in_their_order) {
    char text[4096] = "";
    for (int i = 0; i < 3; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "INFO 01-02 10:00:0%d [a.py:1] Received request cmpl-1-%d: prompt: 'x', "
                 "prompt_token_ids: [%s], x\n",
                 i, i,
                 i == 0   ? "1"
                 : i == 1 ? "1, 2"
                          : "1, 2, 3");
        strcat(text, line);
    }
    for (int i = 0; i < 3; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "INFO 01-02 10:00:09 [a.py:2] Generated response cmpl-1: output: 'x', "
                 "output_token_ids: [%s], x\n",
                 i == 0   ? "7, 7, 7, 7"
                 : i == 1 ? "7, 7, 7, 7, 7"
                          : "7, 7, 7, 7, 7, 7");
        strcat(text, line);
    }
    check(text, &as_it_is, "0 1 4 0 0; 1000000 2 5 0 0; 2000000 3 6 0 0");
}

/* ---- what tools write of numbers ---- */

TEST(numbers_that_are_none_may_stand_where_nobody_reads) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity", "123456789012345678901234"};
    for (size_t i = 0; i < 4; i++) {
        char text[256], sentence[128];
        snprintf(text, sizeof text,
                 "{\"rate\":%s,\"more\":[%s, {\"x\": %s}],\"timestamp\":0,\"input_length\":9,"
                 "\"output_length\":1}\n",
                 words[i], words[i], words[i]);
        check(text, &as_it_is, "0 9 1 0 0");
        snprintf(text, sizeof text, "{\"timestamp\":0,\"input_length\":%s,\"output_length\":1}\n",
                 words[i]);
        snprintf(sentence, sizeof sentence, "trace:1: found '%s' in input_length", words[i]);
        check_refused(text, &as_it_is, ERR_WORLD, sentence);
        snprintf(
            text, sizeof text,
            "{\"backend\":\"x\",\"request_rate\":%s,\"input_lens\":[100],\"output_lens\":[32]}",
            words[i]);
        check(text, &as_it_is, "0 100 32 0 0");
    }
    /* In a text they are the text's. */
    check("{\"a\":\"NaN, "
          "Infinity\",\"timestamp\":0,\"input_length\":9,\"output_length\":1,\"b\":NaN}\n",
          &as_it_is, "0 9 1 0 0");
    check_refused("{\"timestamp\":0,\"input_length\":9,\"output_length\":1,\"b\":Nan}\n", &as_it_is,
                  ERR_WORLD, "trace:1: expected the first line of a known trace format");
}

/* ---- failed rows, tenants ---- */

/* What people have in the place of a trace is called what it is. */
TEST(other_files_are_called_what_they_are) {
    static const char *const files[][2] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
         "trace is a Git LFS "},
        {"\xfd"
         "7zXZ",
         "trace is compressed by xz"},
        {"BZh91AY", "trace is compressed by bzip2"},
        {"PK\x03\x04", "trace is a ZIP archive"},
        {"PAR1", "trace is a Parquet file"},
        {"\xff\xfet", "trace is in UTF-16"},
        {"time;prompt_tokens;completion_tokens\n0,5;10;20\n", "trace:1: semicolons commas"},
        {"arrival_us\tinput_tokens\toutput_tokens\n0\t5\t10\n", "trace:1: tabs commas"},
        {"timestamp,prompt_tokens,completion_tokens\n26/10/2025 23:59:59,10,20\n",
         "trace:2: found '26/10/2025 23:59:59' in timestamp date"},
        {"timestamp,prompt_tokens,completion_tokens\n10/26/2025 11:59:59 PM,10,20\n",
         "trace:2: found '10/26/2025 11:59:59 PM' in timestamp date"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        check_refused(files[i][0], &as_it_is, ERR_WORLD, files[i][1]);
    }
    /* Dates and seconds since 1970 in one column are both dates. */
    check("{\"timestamp\":\"2025-01-01T00:00:00Z\",\"prompt_tokens\":1,\"completion_tokens\":2}\n"
          "{\"timestamp\":1735689603,\"prompt_tokens\":1,\"completion_tokens\":2}\n",
          &as_it_is, "0 1 2 0 0; 3000000 1 2 0 0");
    struct err err = {0};
    struct decode_trace *decode;
    ck_assert_int_eq(
        decode_trace_read(scratch_write("d.db", files[0][0]), DECODE_COUNTS, &decode, &err),
        ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "Git LFS pointer"));
}

/* Of BLIS input_tokens are those behind the prefix of prefix_length that the group shares. */
TEST(prompts_of_blis_begin_with_their_groups_prefix) {
    struct trace *trace;
    struct err err = {0};
    struct arrival rows[3];
    const char *path = scratch_write(
        "blis.csv", "request_id,tenant_id,session_id,prefix_group,prefix_length,input_tokens,"
                    "output_tokens,arrival_time_us,status\n"
                    "0,t0,,a,512,100,20,0,ok\n1,t0,,b,64,120,20,5,ok\n2,t0,,,0,80,20,9,ok\n");
    ck_assert_msg(trace_open(path, &trace, &err) == 0, "%s", err.text);
    struct arrival_source source = trace_source(trace);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(source.next(source.state, &rows[i], &err), SOURCE_ROW);
    }
    ck_assert_uint_eq(rows[0].prompt_tokens, 612);
    ck_assert_uint_eq(rows[0].prefix_tokens, 512);
    ck_assert_uint_eq(rows[1].prompt_tokens, 184);
    ck_assert_uint_eq(rows[2].prompt_tokens, 80);
    ck_assert(rows[0].prefix_group != 0 && rows[0].prefix_group != rows[1].prefix_group);
    ck_assert_uint_eq(rows[2].prefix_group, 0);
    trace_close(trace);
}

#define BLIS "request_id,tenant_id,input_tokens,output_tokens,arrival_time_us,status\n"

TEST(failed_rows_are_left_out_and_counted) {
    struct trace *trace;
    const char *text = BLIS "0,t0,100,20,0,ok\n1,t1,100,0,500000,timeout\n2,t1,100,7,600000,ok\n";
    char *rows = read_file(scratch_write("trace", text), &as_it_is, &trace);
    ck_assert_str_eq(rows, "0 100 20 0 0; 600000 100 7 0 1");
    ck_assert_uint_eq(trace_skipped(trace), 1);
    trace_close(trace);
    free(rows);
    check_refused(BLIS "0,t0,100,20,0,perhaps\n", &as_it_is, ERR_WORLD,
                  "trace:2: found 'perhaps' in status --where");
    const char *columns = "time=arrival_time_us:us,input=input_tokens,output=output_tokens";
    check_refused(text, &(const struct trace_reading){.columns = columns}, ERR_WORLD,
                  "trace:3: found '0' in output_tokens --skip-failed");
    check(text, &(const struct trace_reading){.columns = columns, .skip_failed = true},
          "0 100 20 0 0; 600000 100 7 0 0");
    check(text, &(const struct trace_reading){.columns = columns, .where = "status=ok"},
          "0 100 20 0 0; 600000 100 7 0 0");
    check(text, &(const struct trace_reading){.where = "status!=timeout,tenant_id=t1"},
          "0 100 7 0 0");
    check_refused(text, &(const struct trace_reading){.where = "nothing=1"}, ERR_USAGE,
                  "no column 'nothing', which --where names");
    check_refused(text, &(const struct trace_reading){.where = "status"}, ERR_USAGE,
                  "--where: 'status' is not NAME=VALUE");
    check_refused(text, &(const struct trace_reading){.where = "status=never"}, ERR_WORLD,
                  "others left out by --where");
}

/* Each word that says so, in each of the names that tell. */
TEST(every_way_to_say_that_a_request_failed_is_known) {
    static const char *const rows[][2] = {
        {"\"status\":200", "\"status\":503"},
        {"\"status\":\"success\"", "\"status\":\"Error\""},
        {"\"status_code\":\"200\"", "\"status_code\":\"429\""},
        {"\"response\":{\"status_code\":201}", "\"response\":{\"status_code\":500}"},
        {"\"error\":null", "\"error\":{\"code\":499}"},
        {"\"error\":\"\"", "\"error\":\"timed out\""},
        {"\"success\":true", "\"success\":false"},
        {"\"was_cancelled\":false", "\"was_cancelled\":true"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"ts_ms\":0,\"prompt_tokens\":9,\"completion_tokens\":1,%s}\n"
                 "{\"ts_ms\":1,\"prompt_tokens\":8,\"completion_tokens\":1,%s}\n"
                 "{\"ts_ms\":2,\"prompt_tokens\":7,\"completion_tokens\":1,%s}\n",
                 rows[i][0], rows[i][1], rows[i][0]);
        check(text, &as_it_is, "0 9 1 0 0; 2000 7 1 0 0");
    }
}

TEST(tenants_that_are_texts_are_numbered_as_they_come) {
    const struct trace_reading how = {.columns = "input=p,output=c,tenant=who"};
    check("p,c,who\n9,1,b\n8,1,a\n7,1,b\n6,1,7\n", &how,
          "0 9 1 0 0; 0 8 1 0 1; 0 7 1 0 0; 0 6 1 0 2");
    check("p,c,who\n9,1,5\n8,1,3\n", &how, "0 9 1 0 5; 0 8 1 0 3"); /* numbers are as they are */
    /* Wherever the column stands. */
    check("who,p,c\nb,9,1\na,8,1\nb,7,1\n7,6,1\n", &how,
          "0 9 1 0 0; 0 8 1 0 1; 0 7 1 0 0; 0 6 1 0 2");
    check("p,who,c\n9,b,1\n8,a,1\n7,b,1\n6,7,1\n", &how,
          "0 9 1 0 0; 0 8 1 0 1; 0 7 1 0 0; 0 6 1 0 2");
    /* The first may look like a number. */
    check("p,c,who\n9,1,12\n8,1,ab\n7,1,12\n", &how, "0 9 1 0 0; 0 8 1 0 1; 0 7 1 0 0");
    check("{\"p\":9,\"c\":1,\"who\":\"5\"}\n{\"p\":8,\"c\":1}\n", &how, "0 9 1 0 0; 0 8 1 0 1");
}

/* ---- names ---- */

TEST(what_nobody_reads_is_named_once) {
    ck_assert_str_eq(unread_of("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
                               "2025-01-01 00:00:00,4,1000,20\n",
                               &as_it_is),
                     "NumImages");
    ck_assert_str_eq(
        unread_of(MOONCAKE("0", ",\"a\":1") MOONCAKE("1", ",\"b\":{\"c\":2},\"a\":3"), &as_it_is),
        "a,b");
    const struct trace_reading own = {.columns = "input=usage.in,output=usage.out"};
    ck_assert_str_eq(unread_of("{\"id\":1,\"usage\":{\"in\":3,\"out\":4,\"sum\":7}}\n", &own),
                     "id,usage.sum");
    ck_assert_str_eq(unread_of("arrival_us,input_tokens,output_tokens\n0,1,1\n", &as_it_is), "");
    ck_assert_str_eq(unread_of(BLIS "0,t0,100,20,0,ok\n", &as_it_is), "request_id");
    ck_assert_str_eq(unread_of(BLIS "0,t0,100,20,0,ok\n",
                               &(const struct trace_reading){
                                   .columns = "input=input_tokens,output=output_tokens"}),
                     "request_id,tenant_id,arrival_time_us,status");
}

TEST(names_say_what_columns_are_and_that_is_said) {
    static const struct {
        const char *header, *columns;
        int64_t us;
    } cases[] = {
        {"timestamp_s,input_tokens,output_tokens", "time=timestamp_s:s,", 2000000},
        {"arrival_time_ms,prompt_tokens,completion_tokens", "time=arrival_time_ms:ms,", 2000},
        {"start_ns,inputLength,outputLength", "time=start_ns:ns,", 0},
        {"requestTimeMicros,num_prefill_tokens,num_decode_tokens", "time=requestTimeMicros:us,", 2},
        {"arrival (s),ISL,OSL", "time=arrival (s):s,", 2000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256], expected[64];
        snprintf(text, sizeof text, "%s\n1,9,1\n3,8,1\n", cases[i].header);
        snprintf(expected, sizeof expected, "0 9 1 0 0; %" PRId64 " 8 1 0 0", cases[i].us);
        check(text, &as_it_is, expected);
        ck_assert_ptr_nonnull(strstr(notes_of(text, &as_it_is), cases[i].columns));
    }
    /* A name without a unit: dates and times from 1970 say it themselves, others are asked for. */
    check("ts,prompt_tokens,completion_tokens\n2024-01-01 00:00:00,9,1\n2024-01-01 00:00:03,8,1\n",
          &as_it_is, "0 9 1 0 0; 3000000 8 1 0 0");
    check("time,prompt_tokens,completion_tokens\n1700000000.25,9,1\n1700000003.25,8,1\n", &as_it_is,
          "0 9 1 0 0; 3000000 8 1 0 0");
    check_refused("time,prompt_tokens,completion_tokens\n5,9,1\n1700000003.25,8,1\n", &as_it_is,
                  ERR_USAGE, "nothing says the unit of 'time': --time-unit");
    check(
        "{\"detail\":{\"prompt_tokens\":3},\"ts_s\":0,\"prompt_tokens\":9,\"completion_tokens\":1,"
        "\"more\":{\"prompt_tokens\":4}}\n",
        &as_it_is, "0 9 1 0 0"); /* the one that stands least deep */
    const char *open = "arrival_time,input_tokens,output_tokens\n0,9,1\n1.5,8,1\n";
    check_refused(open, &as_it_is, ERR_USAGE,
                  "nothing says the unit of 'arrival_time': --time-unit --columns "
                  "time=arrival_time:s,input=input_tokens,output=output_tokens");
    check(open, &(const struct trace_reading){.time_unit = "s"}, "0 9 1 0 0; 1500000 8 1 0 0");
    /* No time by its name: not taken for lengths alone. */
    check_refused("when,prompt_tokens,completion_tokens\n0,9,1\n", &as_it_is, ERR_WORLD,
                  "trace:1: input=prompt_tokens,output=completion_tokens time=NAME:UNIT");
    check_refused("{\"ts_s\":0,\"a\":{\"prompt_tokens\":1},\"b\":{\"prompt_tokens\":2},"
                  "\"completion_tokens\":3}\n",
                  &as_it_is, ERR_WORLD, "found both 'a.prompt_tokens' and 'b.prompt_tokens'");
}

/* A file of these names and of numbers, dates and texts that fit them. */
TEST(of_several_names_the_nearest_is_taken) {
#define BY(columns) "read by the names of its columns, as --columns " columns " would; "
    static const char *const files[][2] = {
        /* CSV: whatever stands between words, and however they are written. */
        {"Arrival Time (ms),Prompt Tokens,Completion Tokens\n1,2,3\n",
         BY("time=Arrival Time (ms):ms,input=Prompt Tokens,output=Completion Tokens")},
        {"arrivalTimeUnixUtcSeconds,__input--tokens__,OUTPUT_TOKENS\n1,2,3\n",
         BY("time=arrivalTimeUnixUtcSeconds:s,input=__input--tokens__,output=OUTPUT_TOKENS")},
        {"request.start_ns,usage.prompt_tokens,usage.completion_tokens\n1,2,3\n",
         BY("time=request.start_ns:ns,input=usage.prompt_tokens,output=usage.completion_tokens")},
        {"tenant-id,conversation_id,ts_us,isl,osl\na,b,1,2,3\n",
         BY("time=ts_us:us,input=isl,output=osl,tenant=tenant-id,session=conversation_id")},
        /* The first in the list of words, not the first in the file. */
        {"created_s,timestamp_s,arrival_s,isl,osl\n9,5,1,2,3\n",
         BY("time=arrival_s:s,input=isl,output=osl")},
        {"ts_s,isl,prompt_tokens,osl,output_tokens\n1,9,2,8,3\n",
         BY("time=ts_s:s,input=prompt_tokens,output=output_tokens")},
        /* Two that are alike are neither, where the file can do without. */
        {"ts_s,isl,osl,session_id,sessionId\n1,2,3,a,b\n", BY("time=ts_s:s,input=isl,output=osl")},
        /* A unit alone is no name, and says none. */
        {"s,ts_s,isl,osl,ms\n7,1,2,3,8\n", BY("time=ts_s:s,input=isl,output=osl")},
        /* JSON: the least deep, down to four objects. */
        {"{\"a\":{\"ts_s\":9,\"isl\":9},\"ts_ms\":1,\"b\":{\"c\":{\"d\":{\"e\":{\"isl\":7}}},"
         "\"osl\":3}}\n",
         BY("time=ts_ms:ms,input=a.isl,output=b.osl")},
        {"{\"ts_s\":1,\"b\":{\"c\":{\"d\":{\"e\":{\"isl\":7,\"osl\":3}}}}}\n",
         BY("time=ts_s:s,input=b.c.d.e.isl,output=b.c.d.e.osl")},
        {"{\"ts_s\":1,\"x\":[{\"isl\":5}],\"isl\":4,\"osl\":3,\"tenant\":\"t\"}\n",
         BY("time=ts_s:s,input=isl,output=osl,tenant=tenant")},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ck_assert_str_eq(notes_of(files[i][0], &as_it_is), files[i][1]);
    }
    static const char *const none[][2] = {
        {"ts_s,isl,OSL,osl\n1,2,3,4\n", "trace:1: found both 'OSL' and 'osl' for output"},
        {"ts_s,TS_ms,isl,osl\n1,2,3,4\n", "trace:1: found both 'ts_s' and 'TS_ms' for time"},
        {"{\"ts_s\":1,\"b\":{\"c\":{\"d\":{\"e\":{\"f\":{\"isl\":7,\"osl\":3}}}}}}\n",
         "trace:1: expected the first line of a known trace format"},
        {"ts_s,isl\n1,2\n", "trace:1: found 'ts_s,isl', expected the first line of a known trace"},
        {"ts_s,osl\n1,2\n", "trace:1: found 'ts_s,osl', expected the first line of a known trace"},
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        check_refused(none[i][0], &as_it_is, ERR_WORLD, none[i][1]);
    }
}

TEST(logs_of_gateways_and_load_generators_are_read) {
    check(
        "{\"id\":\"c1\",\"created\":1700000001,\"usage\":{\"prompt_tokens\":12,\"completion_tokens"
        "\":5}}\n"
        "{\"id\":\"c2\",\"created\":1700000000,\"usage\":{\"prompt_tokens\":10,\"completion_tokens"
        "\":6}}\n",
        &as_it_is, "0 10 6 0 0; 1000000 12 5 0 0"); /* logged as they ended */
    check("[{\"ts\":\"2024-01-01T00:00:00+0100\",\"response\":{\"usage\":{\"input_tokens\":12,"
          "\"output_tokens\":5}}},\n {\"ts\":\"2024-01-01T00:00:01+01\",\"response\":{\"usage\":{"
          "\"input_tokens\":10,\"output_tokens\":6}}}]\n",
          &as_it_is, "0 12 5 0 0; 1000000 10 6 0 0");
#define AIPERF(at, more)                                                                           \
    "{\"metadata\":{\"x_correlation_id\":\"u\",\"request_start_ns\":" at                           \
    ",\"was_cancelled\":false},\"metrics\":{" more "},\"error\":null}\n"
#define MEASURED                                                                                   \
    "\"input_sequence_length\":{\"value\":100,\"unit\":\"tokens\"},\"output_sequence_length\":{"   \
    "\"value\":20,\"unit\":\"tokens\"}"
    /* The first row failed and has no counts. */
    check("{\"metadata\":{\"request_start_ns\":1759879161119147826,\"was_cancelled\":true},"
          "\"metrics\":{\"error_isl\":{\"value\":550}},\"error\":{\"code\":499}}\n" AIPERF(
              "1759813207000000000", MEASURED) AIPERF("1759813206000000000", MEASURED),
          &as_it_is, "0 100 20 0 0; 1000000 100 20 0 0");
    check("{\"request_id\":0,\"input_length\":100,\"output_length\":20,\"duration\":1.5}\n",
          &as_it_is, "0 100 20 0 0");
}

TEST(a_column_that_is_named_and_lacks_is_named) {
    const char *text = "{\"t\":0,\"p\":9,\"c\":1}\n{\"t\":1,\"p\":8,\"c\":1,\"s\":\"a\"}\n";
    check(text, &(const struct trace_reading){.columns = "time=t:s,input=p,output=c,session=s"},
          "0 9 1 0 0; 1000000 8 1 0 0");
    check_refused(text,
                  &(const struct trace_reading){.columns = "time=t:s,input=p,output=c,session=se"},
                  ERR_WORLD, "no row has 'se', which --columns names for session");
    check_refused(text, &(const struct trace_reading){.columns = "time=t:s,input=q,output=c"},
                  ERR_WORLD, "trace:1: found an object without 'q'");
    check_refused("t,p,c\n0,9,1\n", &(const struct trace_reading){.columns = "input=p,output=d"},
                  ERR_WORLD, "trace:1: lacks 'd', a column that --columns names");
    check("{\"a\":{\"b\":[{\"p\":9}]},\"c.d\":1}\n",
          &(const struct trace_reading){.columns = "input=a.b.0.p,output=c.d"}, "0 9 1 0 0");
    check_refused(text, &(const struct trace_reading){.columns = "input=p,output=c,parent=s"},
                  ERR_USAGE, "--columns: parent needs session=NAME");
}

/* ---- lists and texts ---- */

static int count_letters(void *state, const struct prompt *prompt, uint32_t *tokens,
                         struct err *err) {
    (void)state, (void)err;
    *tokens = (uint32_t)prompt->text_bytes;
    return 0;
}
static const struct trace_reading counting = {.counter = {.take = count_letters}};

TEST(conversations_become_a_request_for_each_answer) {
    const char *text = "[{\"id\":\"a\",\"conversations\":[{\"from\":\"human\",\"value\":\"hello\"},"
                       "{\"from\":\"gpt\","
                       "\"value\":\"Hi\"},{\"from\":\"human\",\"value\":\"more\"},{\"from\":"
                       "\"gpt\",\"value\":\"[}]\"}]},"
                       "\n{\"conversations\":[{\"from\":\"human\",\"value\":\"x\"},{\"from\":"
                       "\"gpt\",\"value\":\"yy\"}]},"
                       "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"nobody asked\"}]},"
                       "{\"conversations\":[]}]\n";
    check(text, &counting, "0 5 2 0 0; 0 11 3 0 0; 0 1 2 0 0");
    static const int sessions[] = {0, 0, -1};
    check_sessions(text, &counting, 3, sessions);
    check_refused(text, &as_it_is, ERR_USAGE, "ShareGPT's JSON --tokenizer");
    check_refused("[{\"conversations\":[{\"from\":\"gpt\",\"value\":\"x\"}]}", &counting, ERR_WORLD,
                  "no end of the list after its element 1");
    check_refused("[{\"conversations\":[]},{\"x\":", &counting, ERR_WORLD,
                  "element 2 of the list: no whole object");
}

/* Who counts tokens is told which element of the list it is, from 0 and from 1, and the file. */
static int count_places(void *state, const struct prompt *prompt, uint32_t *tokens,
                        struct err *err) {
    (void)state, (void)err;
    ck_assert_uint_eq(prompt->number + 1, prompt->line);
    ck_assert_ptr_nonnull(strstr(prompt->path, "trace"));
    *tokens = 10 * (uint32_t)prompt->line + (uint32_t)prompt->text_bytes;
    return 0;
}

TEST(who_counts_tokens_is_told_where_a_text_stands) {
    const struct trace_reading placing = {.counter = {.take = count_places}};
    check("[{\"conversations\":[{\"from\":\"human\",\"value\":\"abc\"},{\"from\":\"gpt\",\"value\":"
          "\"d\"}]},{\"conversations\":[{\"from\":\"human\",\"value\":\"e\"},{\"from\":\"gpt\","
          "\"value\":"
          "\"fg\"}]}]",
          &placing, "0 13 11 0 0; 0 21 22 0 0");
}

/* Turns as tools write them: the lengths and sessions of what is asked are these. */
TEST(turns_of_a_conversation_are_read_as_tools_write_them) {
    static const char *const lists[][2] = {
        /* Every word for who answers, and for who does not. */
        {"[{\"conversations\":[{\"from\":\"user\",\"value\":\"abc\"},{\"from\":\"assistant\","
         "\"value\":\"de\"},{\"from\":\"system\",\"value\":\"f\"},{\"from\":\"bot\",\"value\":"
         "\"g\"}]}]",
         "0 3 2 0 0; 0 6 1 0 0"},
        {"[{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"},{\"role\":\"model\","
         "\"content\":\"de\"},{\"role\":\"chatgpt\",\"content\":\"f\"},{\"role\":\"bard\","
         "\"content\":\"gh\"}]}]",
         "0 3 2 0 0; 0 5 1 0 0; 0 6 2 0 0"},
        /* Nothing said, in three ways; an answer of nothing has failed. */
        {"[{\"conversations\":[{\"from\":\"human\",\"value\":\"ab\"},{\"from\":\"human\",\"value\":"
         "\"\"},"
         "{\"from\":\"human\",\"value\":null},{\"from\":\"human\"},{\"from\":\"gpt\",\"value\":"
         "\"\"},"
         "{\"from\":\"gpt\",\"value\":\"c\"}]}]",
         "0 2 1 0 0"},
        /* An answer that nobody asked for has failed, what follows has not. */
        {"[{\"conversations\":[{\"from\":\"gpt\",\"value\":\"abcd\"},{\"from\":\"human\",\"value\":"
         "\"e\"},"
         "{\"from\":\"gpt\",\"value\":\"fg\"}]}]",
         "0 5 2 0 0"},
        /* What ends a text, an object or a list may stand in a text. */
        {"\xef\xbb\xbf \t[ \n{\"conversations\":[{\"from\":\"human\",\"value\":\"}]\\\"{[,\\\\\"},"
         "{\"from\":\"gpt\",\"value\":\"{\\\"\"}]}\r\n ]\n \t",
         "0 7 2 0 0"},
        {"[{\"a\":{\"b\":[{}]},\"conversations\":[{\"from\":\"human\",\"value\":\"x\"},{\"from\":"
         "\"gpt\","
         "\"value\":\"y\"}]} , "
         "{\"conversations\":[{\"from\":\"human\",\"value\":\"xx\"},{\"from\":\"gpt\","
         "\"value\":\"yyy\"}]}]",
         "0 1 1 0 0; 0 2 3 0 0"},
        /* Usage says what was counted. */
        {"[{\"created\":1700000000,\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}],"
         "\"usage\":{\"prompt_tokens\":9,"
         "\"completion_tokens\":4}}]",
         "0 9 4 0 0"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        check(lists[i][0], &counting, lists[i][1]);
    }
    static const char *const bad[][2] = {
        {"[{\"conversations\":[{\"from\":\"human\",\"value\":7}]}]",
         "element 1 of the list: a turn that is no text"},
        {"[{\"conversations\":[]},{\"conversations\":[{\"from\":\"gpt\",\"value\":[]}]}]",
         "element 2 of the list: a turn that is no text"},
        {"[{\"conversations\":[]},{\"x\":1}]", "element 2 of the list: no 'conversations'"},
        {"[{\"conversations\":[]},{\"conversations\":{}}]",
         "element 2 of the list: no 'conversations'"},
        {"[{\"conversations\":[]},7]", "no end of the list after its element 1"},
        {"[{\"conversations\":[]}]7", "no end of the list after its element 1"},
        {"[{\"conversations\":[]} {\"conversations\":[]}]",
         "no end of the list after its element 1"},
        {"[{\"conversations\":[]},", "no end of the list after its element 1"},
        {"[{\"conversations\":[]},{]}]", "element 2 of the list: no whole object"},
        {"[{\"conversations\":[]}]", "the end of the file (0 failed requests before it)"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_refused(bad[i][0], &counting, ERR_WORLD, bad[i][1]);
    }
}

TEST(chats_and_batches_are_prompts) {
    struct trace *trace;
    struct err err = {0};
    struct arrival row;
    const char *text =
        "{\"custom_id\":\"r-1\",\"method\":\"POST\",\"url\":\"/v1/chat/"
        "completions\",\"body\":{\"model\":"
        "\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"ab\"},{\"role\":\"user\","
        "\"content\":["
        "{\"type\":\"text\",\"text\":\"cde\"}]}],\"max_tokens\":7}}\n"
        "{\"messages\":[{\"role\":\"user\",\"content\":\"abcd\"}],\"output_length\":5}\n";
    ck_assert_int_eq(trace_open(scratch_write("trace", text), &trace, &err), 0);
    ck_assert(trace_has_prompts(trace));
    trace_set_taker(trace, &counting.counter);
    struct arrival_source source = trace_source(trace);
    static const uint32_t tokens[][2] = {{6, 7}, {4, 5}};
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(source.next(source.state, &row, &err) == SOURCE_ROW, "%s", err.text);
        ck_assert_uint_eq(row.prompt_tokens, tokens[i][0]);
        ck_assert_uint_eq(row.output_tokens, tokens[i][1]);
    }
    trace_close(trace);
}

static void check_pipe(const char *text, const struct trace_reading *how) {
    const char *pipe = scratch_path("pipe");
    char *whole = read_text(text, how);
    const char *file = scratch_path("trace");
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    pid_t writer = fork();
    if (writer == 0) {
        char command[1200];
        snprintf(command, sizeof command, "cat '%s' > '%s'", file, pipe);
        _exit(system(command) != 0);
    }
    char *through = read_file(pipe, how, NULL);
    ck_assert_str_eq(through, whole);
    waitpid(writer, NULL, 0);
    free(through);
    free(whole);
    unlink(pipe);
}

TEST(a_pipe_is_read_as_a_file_is) {
    char *text = hashed_rows(64, false, 2, 40);
    const struct trace_reading own = {
        .columns = "time=timestamp:s,input=input_length,output=output_length,hashes=hash_ids"};
    check_pipe(text, &as_it_is);
    check_pipe(text, &own);
    check_pipe("arrival_us,input_tokens,output_tokens\n0,9,1\n5,8,1\n", &as_it_is);
    check_pipe("t,p,c\n0,9,1\n5,8,1\n",
               &(const struct trace_reading){.columns = "time=t:s,input=p,output=c"});
    check_pipe("{\"ids\": [1, 2]}\n{\"ids\": [1, 2, 3]}\n", &as_it_is);
    free(text);
}

SUITE("evidence")
