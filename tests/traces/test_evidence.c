/* What a file leaves open: units, sizes of blocks, sessions, years; by its rows, or asked for,
 * never guessed. */
#include "tests/support/evidence.h"

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

SUITE("evidence")
