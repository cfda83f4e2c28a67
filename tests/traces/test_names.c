/* What files call their columns, failed rows, tenants, lists and texts. */
#include "tests/support/evidence.h"

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
                  "no row is left: --where leaves out 3, the first because its status is 'ok'");
    check(text, &(const struct trace_reading){.columns = columns, .where = "status==ok"},
          "0 100 20 0 0; 600000 100 7 0 0");
    check(text, &(const struct trace_reading){.where = "status==ok,tenant_id==t1"}, "0 100 7 0 0");
    const char *lines = "{\"timestamp\":0,\"input_length\":9,\"output_length\":9,\"code\":200}\n";
    check_refused(lines, &(const struct trace_reading){.where = "nothing=1"}, ERR_WORLD,
                  "no row is left: --where leaves out 1, the first because it has no nothing");
    lines =
        "{\"timestamp\":0,\"input_length\":9,\"output_length\":9,\"meta\":{\"phase\":\"warm\"}}\n";
    check_refused(lines, &(const struct trace_reading){.where = "phase=run"}, ERR_WORLD,
                  "the first because it has no phase; it has meta.phase");
    check_refused(lines, &(const struct trace_reading){.where = "meta.phase=run"}, ERR_WORLD,
                  "the first because its meta.phase is 'warm'");
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

SUITE("names of columns")
