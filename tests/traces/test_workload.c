/* Workloads: INI files and bare traces opened as sources. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/input/config.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "traces/workload.h"
#include "traces/workload_parts.h"

static const struct workload_options plain_options = {.seed = 1};

static struct workload *open_workload(const char *name, const struct workload_options *options) {
    struct err err = {0};
    struct workload *workload = NULL;
    ck_assert_msg(workload_open(name, options, &workload, &err) == 0, "%s: %s", name, err.text);
    return workload;
}

struct sums {
    uint64_t rows, input_tokens, output_tokens;
    uint32_t max_output, max_total;
    int64_t first_ns, last_ns;
};

static struct sums drain(struct workload *workload) {
    struct arrival_source source = workload_source(workload);
    struct sums sums = {0};
    struct err err = {0};
    struct arrival row;
    enum source_reply reply;
    uint64_t n_good = 0; /* one assertion for all: Check writes a file at each */
    while ((reply = source.next(source.state, &row, &err)) == SOURCE_ROW) {
        n_good += row.id == sums.rows && row.arrival_ns >= sums.last_ns && row.prompt_tokens > 0 &&
                  row.output_tokens > 0;
        if (sums.rows == 0) {
            sums.first_ns = row.arrival_ns;
        }
        sums.last_ns = row.arrival_ns;
        sums.rows++;
        sums.input_tokens += row.prompt_tokens;
        sums.output_tokens += row.output_tokens;
        uint32_t total = row.prompt_tokens + row.output_tokens;
        sums.max_total = total > sums.max_total ? total : sums.max_total;
        sums.max_output = row.output_tokens > sums.max_output ? row.output_tokens : sums.max_output;
    }
    ck_assert_msg(reply == SOURCE_END, "%s", err.text);
    ck_assert_uint_eq(n_good, sums.rows);
    return sums;
}

static struct sums drain_named(const char *name, const struct workload_options *options) {
    struct workload *workload = open_workload(name, options);
    struct sums sums = drain(workload);
    workload_close(workload);
    return sums;
}

TEST(every_shipped_workload_gives_what_it_promises) {
    static const struct {
        const char *name, *provenance;
        uint64_t requests;
    } shipped[] = {
        {"azure", "real arrivals (rescaled), real lengths", 2000},
        {"burst", "generated arrivals, real inputs, fixed outputs", 2000},
        {"burst-replay", "real arrivals (rescaled), real inputs, fixed outputs", 2000},
        {"crux-o", "generated arrivals, estimated inputs, fixed outputs", 800},
        {"gsm8k", "generated arrivals, estimated inputs, fixed outputs", 1319},
        {"humaneval", "generated arrivals, estimated inputs, fixed outputs", 164},
        {"ifeval", "generated arrivals, estimated inputs, fixed outputs", 541},
        {"livebench", "generated arrivals, assumed inputs, fixed outputs", 128},
        {"livecodebench-v6", "generated arrivals, estimated inputs, fixed outputs", 1055},
        {"math", "generated arrivals, assumed lengths", 2000},
        {"mbpp", "generated arrivals, estimated inputs, fixed outputs", 500},
        {"mooncake-capped", "synthetic arrivals (rescaled), synthetic lengths", 1000},
        {"osc", "generated arrivals, assumed inputs, fixed outputs", 2000},
        {"sharegpt", "generated arrivals, real lengths", 2000},
        {"sharegpt-first-turn", "generated arrivals, real lengths", 2000},
        {"wildchat", "generated arrivals, estimated lengths", 2000},
    };
    enum { N_SHIPPED = sizeof shipped / sizeof shipped[0] };
    struct err err = {0};
    char **names = workload_names(&err);
    for (int i = 0; i < N_SHIPPED; i++) {
        ck_assert_str_eq(names[i], shipped[i].name);
        free(names[i]);
        struct workload *workload = open_workload(shipped[i].name, &plain_options);
        ck_assert_str_eq(workload_name(workload), shipped[i].name);
        ck_assert_str_eq(workload_provenance(workload), shipped[i].provenance);
        ck_assert_uint_gt(strlen(workload_note(workload)), 20);
        ck_assert_uint_eq(workload_requests(workload), shipped[i].requests);
        ck_assert_double_eq(workload_rate_per_s(workload), 1);
        struct sums sums = drain(workload);
        ck_assert_uint_eq(sums.rows, shipped[i].requests);
        bool is_long = strcmp(shipped[i].name, "sharegpt-first-turn") == 0;
        ck_assert_uint_le(sums.max_total, is_long ? 16384 : 4096);
        double mean_gap_s = (double)sums.last_ns * 1e-9 / (double)(sums.rows - 1);
        ck_assert_double_eq_tol(mean_gap_s, 1, 4 / sqrt((double)sums.rows));
        workload_close(workload);
    }
    ck_assert_ptr_null(names[N_SHIPPED]);
    free(names);
}

/* Two slices weighted 0.979 : 0.021 (experiments/import/burst_lengths.py): means 284.05 and 543.58,
 * together 289.5; linear between percentiles, 292.5 with a standard deviation of 172. */
TEST(the_prompts_of_burst_have_the_mean_of_its_mixture) {
    struct sums sums = drain_named("burst", &plain_options);
    ck_assert_uint_eq(sums.output_tokens, 2000 * 256);
    ck_assert_double_eq_tol((double)sums.input_tokens / 2000, 292.5, 4 * 172 / sqrt(2000));
}

/* Drops come before times are given out, so that what is served has the rate asked for. */
TEST(a_replayed_trace_is_served_at_exactly_the_rate_asked_for) {
    struct workload_options options = {.seed = 1, .rate_per_s = 4, .requests = 1000};
    struct workload *workload = open_workload("azure", &options);
    struct sums sums = drain(workload);
    ck_assert_uint_eq(sums.rows, 1000);
    ck_assert_int_le(llabs(sums.last_ns - INT64_C(249750000000)), 1);
    /* Of the first 1085 rows; the pre-pass does not count. */
    ck_assert_uint_eq(workload_counts(workload).n_dropped, 85);
    workload_close(workload);
    options.requests = 5000;
    sums = drain_named("azure", &options);
    ck_assert_uint_eq(sums.rows, 5000);
    ck_assert_double_eq_tol((double)sums.last_ns * 1e-9 / 4999 * 4, 1, 1e-6);
}

/* Also where its last round is a part of it: those rows come faster or slower than the rest. */
TEST(a_repeated_trace_meets_the_rate_whatever_part_of_it_the_last_round_is) {
    static const char *const names[] = {"azure", "burst-replay"};
    static const uint64_t requests[] = {2, 7, 200, 395, 396, 400, 791, 1234, 2000, 4999};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t k = 0; k < sizeof requests / sizeof requests[0]; k++) {
            struct workload_options options = {
                .seed = 1, .rate_per_s = 0.7, .requests = requests[k]};
            struct sums sums = drain_named(names[i], &options);
            ck_assert_uint_eq(sums.rows, requests[k]);
            ck_assert_double_eq_tol((double)(requests[k] - 1) / ((double)sums.last_ns * 1e-9), 0.7,
                                    0.7 * 1e-6);
        }
    }
}

TEST(the_command_line_overrides_the_file) {
    struct workload_options options = {
        .seed = 1, .rate_per_s = 5, .requests = 300, .input_tokens = 100, .output_tokens = 64};
    struct workload *workload = open_workload("osc", &options);
    ck_assert_str_eq(workload_provenance(workload), "generated arrivals, fixed lengths");
    ck_assert_double_eq(workload_rate_per_s(workload), 5);
    struct sums sums = drain(workload);
    ck_assert_uint_eq(sums.rows, 300);
    ck_assert_uint_eq(sums.input_tokens, 30000);
    ck_assert_uint_eq(sums.output_tokens, 300 * 64);
    ck_assert_double_eq_tol((double)sums.last_ns * 1e-9 / 300 * 5, 1, 4 / sqrt(300));
    workload_close(workload);
}

TEST(the_same_seed_gives_the_same_workload) {
    const struct workload_options other = {.seed = 2};
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "burst" : "sharegpt";
        struct sums a = drain_named(name, &plain_options), b = drain_named(name, &plain_options);
        struct sums c = drain_named(name, &other);
        ck_assert(a.last_ns == b.last_ns && a.input_tokens == b.input_tokens);
        ck_assert(a.last_ns != c.last_ns && a.input_tokens != c.input_tokens);
    }
}

/* Arrivals and lengths come from different streams. */
/* Where neither the file nor an option's own range says so: the rate that a caller asks for. */
TEST(a_rate_is_from_one_in_eleven_days_to_a_thousand_million_a_second) {
    static const struct {
        double rate;
        int status;
    } cases[] = {{1e-6, 0}, {1e9, 0}, {0.999e-6, ERR_USAGE}, {1.001e9, ERR_USAGE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct workload_options options = {.seed = 1, .rate_per_s = cases[i].rate, .requests = 3};
        struct err err = {0};
        struct workload *workload = NULL;
        ck_assert_int_eq(workload_open("burst", &options, &workload, &err), cases[i].status);
        workload_close(workload);
    }
}

TEST(another_rate_leaves_the_lengths_alone) {
    const struct workload_options faster = {.seed = 1, .rate_per_s = 10};
    struct sums a = drain_named("osc", &plain_options), b = drain_named("osc", &faster);
    ck_assert_uint_eq(a.input_tokens, b.input_tokens);
    ck_assert_double_eq_tol((double)a.last_ns / (double)b.last_ns, 10, 1e-6);
}

TEST(a_bare_trace_is_a_workload) {
    const char *path = "traces/samples/burstgpt_head400.csv";
    struct workload *workload = open_workload(path, &plain_options);
    ck_assert_str_eq(workload_provenance(workload), "traced arrivals, traced lengths");
    struct sums sums = drain(workload);
    ck_assert_uint_eq(sums.rows, 383);
    ck_assert_uint_eq(sums.input_tokens, 208189);
    ck_assert_int_eq(sums.first_ns, 0);
    ck_assert_int_eq(sums.last_ns, INT64_C(37269000000000));
    char text[512];
    ck_assert_str_eq(
        workload_describe(workload, text, sizeof text),
        "traces/samples/burstgpt_head400.csv: traced arrivals, traced lengths. Skipped "
        "17 failed rows of the trace.");
    workload_close(workload);
    const struct workload_options options = {
        .seed = 1, .rate_per_s = 2, .requests = 1149, .output_tokens = 256, .context_tokens = 4096};
    workload = open_workload(path, &options);
    ck_assert_str_eq(workload_provenance(workload),
                     "traced arrivals (rescaled), traced inputs, fixed outputs");
    sums = drain(workload);
    ck_assert_uint_eq(sums.rows, 1149);
    ck_assert_uint_le(sums.max_total, 4096);
    /* Three whole rounds. */
    ck_assert_double_eq_tol((double)sums.last_ns * 1e-9 / 1148 * 2, 1, 1e-6);
    workload_close(workload);
}

TEST(what_was_dropped_is_told_by_row) {
    const struct workload_options options = {.seed = 1, .context_tokens = 4096};
    struct workload *workload =
        open_workload("traces/samples/mooncake_synthetic_first1000.csv", &options);
    ck_assert_uint_eq(drain(workload).rows, 512);
    struct workload_counts counts = workload_counts(workload);
    ck_assert_uint_eq(counts.n_dropped, 488);
    char text[512];
    ck_assert_str_eq(workload_describe(workload, text, sizeof text),
                     "traces/samples/mooncake_synthetic_first1000.csv: traced arrivals, traced "
                     "lengths. Dropped 488 requests over the context of 4096 tokens: row 0, row 1, "
                     "row 2, row 3, row 4, row 6, row 7, row 8, ...");
    workload_describe(workload, text, 20);
    ck_assert_uint_eq(strlen(text), 19);
    workload_close(workload);
}

/* The workload that `text` says, as if it stood in traces/workloads; NULL and `err` otherwise. */
static struct workload *parse(const char *text, const struct workload_options *options,
                              struct err *err) {
    struct config config;
    struct workload *workload = NULL;
    if (config_parse("traces/workloads/x.ini", text, strlen(text), &config, err) == 0) {
        workload_from_config(&config, "x", options, &workload, err);
        config_fini(&config);
    }
    return workload;
}

static void check_refused(const char *text, const char *sentence) {
    struct err err = {0};
    struct workload *workload = parse(text, &plain_options, &err);
    workload_close(workload);
    ck_assert_ptr_null(workload);
    ck_assert_int_ne(err.kind, ERR_NONE);
    ASSERT_SAYS(err.text, sentence);
}

#define X      "traces/workloads/x.ini"
#define DRAWN  "[workload]\nrequests = 5\ninput = fixed\noutput = fixed\n"
#define HEAD   "trace = ../samples/burstgpt_head400.csv\n"
#define TRACED "[workload]\narrivals = trace\nprovenance.arrivals = real\n" HEAD

TEST(a_wrong_workload_is_explained_in_one_sentence) {
    check_refused(DRAWN "arrivals = poisson\nrate = 1\nreqests = 3\n",
                  X ":7: a workload has no key 'reqests'; did you mean 'requests'?");
    check_refused(DRAWN "arrivals = poison\nrate = 1\n",
                  X ":5: there are no arrivals 'poison'; did you mean 'poisson'?");
    check_refused(DRAWN "arrivals = gamma\nrate = 1\narrivals.cvs = 2\n",
                  X ":7: gamma has no parameter 'cvs'; did you mean 'cv'?");
    check_refused(DRAWN "arrivals = gamma\nrate = 1\narrivals.cv = 99\n",
                  X ":7: '99' is not a value for cv of gamma: expected a number from 0.05 to 10");
    check_refused(DRAWN "arrivals = poisson\n",
                  X ": found no rate, which arrivals = poisson needs");
    check_refused(DRAWN "arrivals = closed-loop\nrate = 2\n",
                  X ": found a rate, which arrivals = closed-loop does not take");
    check_refused(DRAWN "arrivals = poisson\nrate = 1e-9\n",
                  X ": found a rate of 1e-09 requests a second, expected 1e-6 to 1e9");
    check_refused(DRAWN, X ": found no 'arrivals' in [workload], expected a process or trace");
    check_refused("[workloads]\na = 1\n",
                  X ":2: found section [workloads], expected [workload] only");
    check_refused("[workload]\ninput = fixed\noutput = fixed\narrivals = all-at-once\n",
                  X ": found no 'requests', expected how many to generate");
    check_refused("[workload]\nrequests = 5\narrivals = all-at-once\ninput = fixed\n",
                  X ": found no lengths of the outputs, expected output = MODEL or lengths");
    check_refused("[workload]\nrequests = 5\narrivals = all-at-once\ninput = fixed\n"
                  "output = uniform\n",
                  X ": found no 'provenance.lengths', expected real, estimated, synthetic, assumed "
                    "or traced");
    check_refused(DRAWN "arrivals = all-at-once\n" HEAD,
                  X ": found a trace that nothing reads, expected arrivals = trace or lengths from "
                    "it");
    check_refused("[workload]\nrequests = 5\narrivals = all-at-once\nlengths = trace\n",
                  X ": found no trace, expected trace = FILE for arrivals or lengths");
    check_refused(TRACED "lengths = trace\nprovenance.lengths = real\narrivals.cv = 2\n",
                  X ":7: arrivals = trace has no parameters");
    check_refused(TRACED "lengths = trace\nprovenance.lengths = real\noutput.tokens = 2\n",
                  X ":7: output.tokens needs a model, output = ..., before its parameters");
    check_refused("[workload]\narrivals = trace\nlengths = trace\nprovenance.lengths = real\n" HEAD,
                  X
                  ": found no 'provenance.arrivals', expected real, estimated, synthetic, assumed "
                  "or traced");
    check_refused("[workload]\narrivals = trace\nlengths = trace\ntrace = none.csv\n",
                  "cannot open traces/workloads/none.csv: No such file or directory");
    check_refused(TRACED "lengths = trace\nprovenance.lengths = real\ncontext = 5\nrate = 1\n",
                  X ": found 383 requests in a row longer than the context of 5 tokens, expected "
                    "some that fit");
    check_refused("[workload]\narrivals = trace\nprovenance.arrivals = real\nlengths = trace\n"
                  "provenance.lengths = real\ntrace = ../../tests/golden/traces/lengths.csv\n",
                  "traces/workloads/../../tests/golden/traces/lengths.csv: found only lengths, "
                  "expected arrival times to replay");
    struct err err = {0};
    struct workload *workload;
    ck_assert_int_eq(workload_open("brust", &plain_options, &workload, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, "there is no workload 'brust' in ./traces/workloads; did you mean "
                          "'burst'?");
}

TEST(arrivals_and_lengths_combine_from_any_two_sources) {
    static const struct {
        const char *text, *provenance;
        uint64_t rows, input_tokens;
    } cases[] = {
        /* Trace rows in order, over and over, under a process. */
        {"[workload]\nrequests = 766\narrivals = gamma\narrivals.cv = 2\nrate = 3\n"
         "lengths = trace\nprovenance.lengths = real\n" HEAD,
         "generated arrivals, real lengths", 766, 2 * 208189},
        /* The trace's times under models. */
        {TRACED "input = fixed\ninput.tokens = 7\noutput = uniform\noutput.max = 9\n"
                "provenance.lengths = assumed\n",
         "real arrivals, fixed inputs, assumed outputs", 383, 383 * 7},
        /* The trace's rows with other outputs, repeated with the same draws. */
        {TRACED "requests = 766\nlengths = trace\noutput = uniform\nprovenance.lengths = real\n",
         "real arrivals, real lengths", 766, 2 * 208189},
        {"[workload]\nrequests = 40\narrivals = all-at-once\ninput = fixed\noutput = fixed\n"
         "input.tokens = 3\n",
         "generated arrivals, fixed lengths", 40, 120},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct workload *workload = parse(cases[i].text, &plain_options, &err);
        ck_assert_msg(workload != NULL, "%s", err.text);
        ck_assert_str_eq(workload_provenance(workload), cases[i].provenance);
        struct sums sums = drain(workload);
        ck_assert_uint_eq(sums.rows, cases[i].rows);
        ck_assert_uint_eq(sums.input_tokens, cases[i].input_tokens);
        workload_close(workload);
    }
}

/* The answers of the first rows, and whether the workload says them. */
static void check_answers(const char *text, const uint32_t *answers, size_t n, bool says,
                          enum provenance_kind kind, const char *provenance) {
    struct err err = {0};
    struct workload *workload = parse(text, &plain_options, &err);
    ck_assert_msg(workload != NULL, "%s", err.text);
    ck_assert_str_eq(workload_provenance(workload), provenance);
    ck_assert_int_eq(workload_says_answers(workload), says);
    ck_assert_int_eq(workload_answers(workload).kind, kind);
    struct arrival_source source = workload_source(workload);
    struct arrival row;
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
        ck_assert_uint_eq(row.answer_tokens, answers[i]);
        ck_assert_uint_le(row.answer_tokens, row.output_tokens);
    }
    workload_close(workload);
}

#define AT_ONCE                                                                                    \
    "[workload]\nrequests = 3\narrivals = all-at-once\ninput = fixed\noutput = fixed\n"            \
    "output.tokens = 50\n"
#define ANSWERS(...) ((const uint32_t[]){__VA_ARGS__}), 3

TEST(answers_are_lengths_of_their_own) {
    FILE *file = fopen("/tmp/unmask_answers_test.csv", "w");
    ck_assert_ptr_nonnull(file);
    fputs("arrival_us,input_tokens,output_tokens,answer_tokens\n0,5,64,7\n1,5,64,64\n2,5,8,3\n",
          file);
    fclose(file);
#define LOGGED                                                                                     \
    "[workload]\narrivals = trace\nlengths = trace\ntrace = "                                      \
    "/tmp/unmask_answers_test.csv\nprovenance.arrivals = "                                         \
    "real\nprovenance.lengths = real\n"
    check_answers(AT_ONCE, ANSWERS(0, 0, 0), false, PROVENANCE_ASSUMED,
                  "generated arrivals, fixed lengths");
    check_answers(AT_ONCE "answer = fixed\nanswer.tokens = 20\n", ANSWERS(20, 20, 20), true,
                  PROVENANCE_ASSUMED, "generated arrivals, fixed lengths, fixed answers");
    check_answers(AT_ONCE "answer = fixed\nanswer.tokens = 200\n", ANSWERS(50, 50, 50), true,
                  PROVENANCE_ASSUMED, "generated arrivals, fixed lengths, fixed answers");
    check_answers(AT_ONCE "answer = share\nanswer.share = 0.25\nprovenance.answers = estimated\n",
                  ANSWERS(13, 13, 13), true, PROVENANCE_TRANSFERRED,
                  "generated arrivals, fixed lengths, estimated answers");
    check_answers(AT_ONCE "answer = output\nprovenance.answers = real\n", ANSWERS(50, 50, 50), true,
                  PROVENANCE_IMPORTED, "generated arrivals, fixed lengths");
    check_answers(LOGGED, ANSWERS(7, 64, 3), true, PROVENANCE_IMPORTED,
                  "real arrivals, real lengths, traced answers");
    /* A canvas of its own for the answers that were logged. */
    check_answers(LOGGED "output = fixed\noutput.tokens = 32\n", ANSWERS(7, 32, 3), true,
                  PROVENANCE_IMPORTED, "real arrivals, real inputs, fixed outputs, traced answers");
    check_answers("[workload]\narrivals = trace\nprovenance.arrivals = real\n" HEAD
                  "lengths = trace\noutput = fixed\noutput.tokens = 256\nanswer = trace\n"
                  "provenance.lengths = real\nprovenance.answers = real\n",
                  ANSWERS(18, 230, 256), true, PROVENANCE_IMPORTED,
                  "real arrivals, real inputs, fixed outputs, real answers");
    remove("/tmp/unmask_answers_test.csv");
    check_refused(AT_ONCE "answer = uniform\n",
                  X ": found no 'provenance.answers', expected real, estimated, synthetic, assumed "
                    "or traced");
    check_refused(AT_ONCE "answer = trace\nprovenance.answers = real\n",
                  X ": found answer = trace, expected lengths = trace or resample");
    check_refused(
        "[workload]\nrequests = 5\narrivals = all-at-once\ninput = fixed\noutput = share\n",
        X ":5: 'share' is a model of answers, not of outputs");
}

/* Another seed matters exactly where the requests of another seed are others. */
TEST(a_workload_says_that_it_draws_where_another_seed_gives_other_requests) {
#define REPLAYED                                                                                   \
    "[workload]\narrivals = trace\ntrace = ../samples/azure_conv_2023_first2000.csv\n"             \
    "lengths = trace\nprovenance.arrivals = real\nprovenance.lengths = real\n"                     \
    "provenance.answers = assumed\n"
    static const char *const texts[] = {
        REPLAYED,
        REPLAYED "answer = output\n",
        REPLAYED "answer = share\nanswer.share = 0.5\n",
        REPLAYED "answer = fixed\nanswer.tokens = 5\n",
        REPLAYED "answer = uniform\nanswer.min = 1\nanswer.max = 900\n",
        REPLAYED "output = uniform\noutput.min = 1\noutput.max = 900\n",
        REPLAYED "input = uniform\ninput.min = 1\ninput.max = 900\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct err err = {0};
        struct arrival rows[2][50];
        bool draws = false;
        for (uint64_t seed = 1; seed <= 2; seed++) {
            const struct workload_options options = {.seed = seed};
            struct workload *workload = parse(texts[i], &options, &err);
            ck_assert_msg(workload != NULL, "%s", err.text);
            struct arrival_source source = workload_source(workload);
            for (int r = 0; r < 50; r++) {
                ck_assert_int_eq(source.next(source.state, &rows[seed - 1][r], &err), SOURCE_ROW);
            }
            draws = workload_draws(workload);
            workload_close(workload);
        }
        bool differ = false;
        for (int r = 0; r < 50; r++) {
            const struct arrival *a = &rows[0][r], *b = &rows[1][r];
            differ = differ || a->arrival_ns != b->arrival_ns ||
                     a->prompt_tokens != b->prompt_tokens || a->output_tokens != b->output_tokens ||
                     a->answer_tokens != b->answer_tokens;
        }
        ck_assert_msg(draws == differ, "%s", texts[i]);
    }
}

/* Of a file of lengths, its rows are the requests; more go through it again, and that is said. */
TEST(lengths_are_as_many_requests_as_rows_and_rounds_are_counted) {
#define LENGTHS_AT_ONCE                                                                            \
    "[workload]\narrivals = all-at-once\ntrace = ../samples/azure_conv_2023_first2000.csv\n"       \
    "lengths = trace\nprovenance.lengths = real\n"
    static const struct {
        const char *more;
        uint64_t requests;
        double rounds;
    } cases[] = {{"", 2000, 1},
                 {"requests = 500\n", 500, 1},
                 {"requests = 2000\n", 2000, 1},
                 {"requests = 5000\n", 5000, 2.5},
                 {"context = 100\n", 36, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        struct err err = {0};
        struct arrival row;
        uint64_t n = 0;
        snprintf(text, sizeof text, "%s%s", LENGTHS_AT_ONCE, cases[i].more);
        struct workload *workload = parse(text, &plain_options, &err);
        ck_assert_msg(workload != NULL, "%s", err.text);
        struct arrival_source source = workload_source(workload);
        while (source.next(source.state, &row, &err) == SOURCE_ROW) {
            n++;
        }
        ck_assert_uint_eq(n, workload_requests(workload));
        ck_assert(cases[i].more[0] == 'c' ? n < 2000 && n > 0 : n == cases[i].requests);
        ck_assert_double_eq(workload_rounds(workload), cases[i].rounds);
        workload_close(workload);
    }
}

/* What a workload's file says of its trace is what the command line would say. */
TEST(a_workload_says_how_its_trace_is_read) {
    const char *path = scratch_write("own.csv", "when,who,in,out,ok\n1,x,9,4,yes\n0,y,8,3,yes\n"
                                                "2,y,7,0,no\n3,z,6,0,yes\n");
    char text[1024], names[256], notes[256];
    size_t n_unread;
    struct err err = {0};
    struct arrival row;
    snprintf(text, sizeof text,
             "[workload]\narrivals = trace\nlengths = trace\nprovenance.arrivals = real\n"
             "provenance.lengths = real\ntrace = %s\ncolumns = time=when,input=in,output=out\n"
             "time_unit = ms\nwhere = ok=yes\nskip_failed = on\nsort = on\n",
             path);
    struct workload *workload = parse(text, &plain_options, &err);
    ck_assert_msg(workload != NULL, "%s", err.text);
    struct arrival_source source = workload_source(workload);
    static const uint32_t prompts[] = {8, 9};
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(source.next(source.state, &row, &err) == SOURCE_ROW, "%s", err.text);
        ck_assert(row.prompt_tokens == prompts[i] && row.arrival_ns == i * 1000000);
    }
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_END);
    ck_assert_uint_eq(workload_counts(workload).n_failed, 1);
    ck_assert_str_eq(workload_unread(workload, names, sizeof names, &n_unread), "who");
    ck_assert_str_eq(workload_notes(workload, notes, sizeof notes), "");
    workload_close(workload);
    strcat(text, "passes_over = x, who\n");
    workload = parse(text, &plain_options, &err);
    ck_assert_str_eq(workload_unread(workload, names, sizeof names, &n_unread), "");
    ck_assert_uint_eq(n_unread, 0);
    workload_close(workload);
    check_refused(
        "[workload]\nrequests = 1\narrivals = all-at-once\ninput = fixed\noutput = fixed\n"
        "time_unit = s\n",
        "time_unit says how a trace is read, but no trace");
}

/* What conditions may speak of: of one workload, and of classes what all of them say. */
TEST(facts_of_a_workload_are_those_of_its_file) {
    scratch_write("one.ini", DRAWN "arrivals = closed-loop\narrivals.clients = 3\n");
    scratch_write("two.ini", DRAWN "arrivals = gamma\narrivals.cv = 2\nrate = 0.25\n"
                                   "context = 4096\nanswer = fixed\nanswer.tokens = 7\n");
    scratch_write("turns.csv", "arrival_us,input_tokens,output_tokens,session\n0,5,6,a\n9,5,6,a\n");
    scratch_write("texts.jsonl", "{\"ids\": [1, 2]}\n");
    scratch_write("both.ini", "[workload]\nclasses = one.ini, two.ini\n");
    scratch_write("alike.ini", "[workload]\nclasses = two.ini, two.ini\n");
    static const char *const names[] = {"workload.arrivals",
                                        "workload.draws",
                                        "workload.lengths_drawn",
                                        "workload.answers",
                                        "workload.prompts",
                                        "workload.follows",
                                        "workload.arrivals.clients",
                                        "workload.arrivals.cv",
                                        "workload.input",
                                        "workload.input.tokens",
                                        "workload.answer",
                                        "workload.answer.tokens",
                                        "workload.context",
                                        "workload.requests",
                                        "workload.rate",
                                        "workload.other",
                                        "other"};
    static const char *const facts[][2] = {
        {"one.ini", "closed-loop,off,off,filled,off,on,3,-,fixed,256,none,-,0,5,0,-,-,"},
        {"two.ini", "gamma,on,off,said,off,off,-,2,fixed,256,fixed,7,4096,5,0.25,-,-,"},
        {"turns.csv", "trace,off,on,filled,off,on,-,-,none,-,none,-,0,0,0,-,-,"},
        {"texts.jsonl", "trace,off,on,filled,on,off,-,-,none,-,none,-,0,0,0,-,-,"},
        {"both.ini", "mixed,mixed,off,mixed,off,mixed,mixed,mixed,fixed,256,mixed,mixed,mixed,5,"
                     "mixed,-,-,"},
        {"alike.ini", "gamma,on,off,said,off,off,-,2,fixed,256,fixed,7,4096,5,0.25,-,-,"},
    };
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        struct workload *workload = open_workload(scratch_path(facts[i][0]), &plain_options);
        char found[512] = "";
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            char text[FACT_CHARS];
            const char *fact = workload_fact(workload, names[k], text);
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s,",
                     fact != NULL ? fact : "-");
        }
        ck_assert_str_eq(found, facts[i][1]);
        workload_close(workload);
    }
}

TEST(a_repeated_trace_repeats_the_lengths_drawn_for_it) {
    static const char *const sides[] = {"input", "output"};
    for (int i = 0; i < 2; i++) {
        struct sums sums[2];
        for (int rounds = 1; rounds <= 2; rounds++) {
            char text[256];
            snprintf(text, sizeof text,
                     TRACED "requests = %d\nrate = 1\nlengths = trace\n"
                            "%s = uniform\nprovenance.lengths = real\n",
                     383 * rounds, sides[i]);
            struct err err = {0};
            struct workload *workload = parse(text, &plain_options, &err);
            ck_assert_msg(workload != NULL, "%s", err.text);
            sums[rounds - 1] = drain(workload);
            workload_close(workload);
        }
        ck_assert_uint_eq(sums[1].input_tokens, 2 * sums[0].input_tokens);
        ck_assert_uint_eq(sums[1].output_tokens, 2 * sums[0].output_tokens);
    }
}

TEST(drawn_pairs_under_the_times_of_a_trace_read_it_twice) {
    struct err err = {0};
    struct workload *workload =
        parse(TRACED "requests = 500\nrate = 2\nlengths = resample\nprovenance.lengths = real\n",
              &plain_options, &err);
    ck_assert_msg(workload != NULL, "%s", err.text);
    struct sums sums = drain(workload);
    ck_assert_uint_eq(sums.rows, 500);
    ck_assert_uint_ne(sums.input_tokens, 208189);
    workload_close(workload);
}

TEST(a_closed_loop_workload_waits_for_completions) {
    struct err err = {0};
    struct workload *workload =
        parse(DRAWN "arrivals = closed-loop\narrivals.clients = 2\n", &plain_options, &err);
    ck_assert_msg(workload != NULL, "%s", err.text);
    struct arrival_source source = workload_source(workload);
    ck_assert(source.completed != NULL);
    struct arrival row;
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_WAIT);
    source.completed(source.state, 1, 77);
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    ck_assert(row.id == 2 && row.arrival_ns == 77);
    workload_close(workload);
}

/* How many of 20,000 requests arrive in each of n pieces of `piece_s` seconds. */
static void arrivals_in(const char *process, uint32_t n, double piece_s, double *counts) {
    char text[512];
    snprintf(text, sizeof text,
             "[workload]\nrequests = 20000\ninput = fixed\noutput = fixed\n"
             "provenance.lengths = synthetic\nrate = 10\narrivals = %s",
             process);
    struct err err = {0};
    struct workload *workload = parse(text, &(struct workload_options){.seed = 1}, &err);
    ck_assert_msg(workload != NULL, "%s", err.text);
    struct arrival_source source = workload_source(workload);
    struct arrival row;
    int64_t last_ns = 0;
    memset(counts, 0, n * sizeof *counts);
    while (source.next(source.state, &row, &err) == SOURCE_ROW) {
        ck_assert_int_ge(row.arrival_ns, last_ns);
        last_ns = row.arrival_ns;
        const double at = (double)row.arrival_ns * 1e-9 / piece_s;
        if (at < n) {
            counts[(uint32_t)at]++;
        }
    }
    workload_close(workload);
}

/* Within five standard deviations of a Poisson count. */
static void check_counts(const char *process, double piece_s, const double *expected, uint32_t n) {
    double counts[8];
    arrivals_in(process, n, piece_s, counts);
    for (uint32_t i = 0; i < n; i++) {
        const double wanted = expected[i] * 10 * piece_s;
        ck_assert_msg(fabs(counts[i] - wanted) <= 5 * sqrt(wanted), "%s: piece %u: %g, not %g",
                      process, i, counts[i], wanted);
    }
}

TEST(rates_rise_and_fall_as_a_ramp_and_in_stages_and_then_stay) {
    check_counts("ramp\narrivals.over_ns = 400s\n", 100,
                 (const double[]){0.25, 0.75, 1.25, 1.75, 2, 2}, 6);
    check_counts("ramp\narrivals.from = 3\narrivals.to = 0.5\narrivals.over_ns = 200s\n", 100,
                 (const double[]){2.375, 1.125, 0.5, 0.5}, 4);
    check_counts("ramp\narrivals.from = 1\narrivals.to = 1\n", 200, (const double[]){1, 1}, 2);
    check_counts("stages\narrivals.stage_ns = 100s\n", 100,
                 (const double[]){0.5, 0.833333, 1.166667, 1.5, 1.5, 1.5}, 6);
    check_counts("stages\narrivals.stages = 2\narrivals.from = 0\narrivals.to = 3\n"
                 "arrivals.stage_ns = 100s\n",
                 100, (const double[]){0, 3, 3}, 3);
}

TEST(a_rise_that_ends_in_nothing_is_refused) {
    check_refused(DRAWN "arrivals = ramp\nrate = 1\narrivals.to = 0\n", X);
    check_refused(DRAWN "arrivals = stages\nrate = 1\narrivals.stages = 1\n", X);
    check_refused(DRAWN "arrivals = ramp\n", X ": found no rate, which arrivals = ramp needs");
}

SUITE("workload")
