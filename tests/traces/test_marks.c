/* Whose requests are, how urgent, when they should be finished and what is predicted of them: of
 * traces, and drawn. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "traces/workload_parts.h"

enum { N = 4000 };

static struct arrival rows[N];

static int open_as(const char *path, uint64_t seed, struct workload **out, struct err *err) {
    const struct workload_options options = {.seed = seed};
    return workload_open(path, &options, out, err);
}

/* The requests of a file, all of them into `rows`; how many. */
static uint32_t read_rows(const char *path, uint64_t seed) {
    struct err err = {0};
    struct workload *workload = NULL;
    ck_assert_msg(open_as(path, seed, &workload, &err) == 0, "%s", err.text);
    struct arrival_source source = workload_source(workload);
    uint32_t n = 0;
    enum source_reply reply;
    while (n < N && (reply = source.next(source.state, &rows[n], &err)) == SOURCE_ROW) {
        n++;
    }
    ck_assert_msg(err.kind == ERR_NONE, "%s", err.text);
    workload_close(workload);
    return n;
}

static const char *workload_of(const char *keys) {
    char text[1024];
    snprintf(text, sizeof text,
             "[workload]\narrivals = poisson\nrate = 1\nrequests = %d\ninput = fixed\n"
             "output = fixed\noutput.tokens = 200\n%s",
             N, keys);
    return scratch_write("marks.ini", text);
}

static void refuses(const char *path, const char *sentence) {
    struct err err = {0};
    struct workload *workload = NULL;
    int status = open_as(path, 1, &workload, &err);
    for (struct arrival row; status == 0 && err.kind == ERR_NONE;) {
        struct arrival_source source = workload_source(workload);
        status = source.next(source.state, &row, &err) == SOURCE_ROW ? 0 : 1;
    }
    workload_close(workload);
    ASSERT_SAYS(err.text, sentence);
}

/* ---- traces ---- */

TEST(a_trace_has_deadlines_priorities_and_predictions) {
    const char *path = scratch_write(
        "marked.csv",
        "arrival_us,input_tokens,output_tokens,deadline_us,priority,predicted_tokens\n"
        "5000000,10,20,9000000,3,18\n6000000,10,20,,,\n7000000,10,20,7000001,0,4\n");
    ck_assert_uint_eq(read_rows(path, 1), 3);
    ck_assert(rows[0].due_ns == 4000000000 && rows[0].priority == 3);
    ck_assert_uint_eq(rows[0].predicted_tokens, 18);
    ck_assert(rows[1].due_ns == 0 && rows[1].priority == 0 && rows[1].predicted_tokens == 0);
    ck_assert(rows[2].due_ns == 1000 && rows[2].predicted_tokens == 4);
}

/* They go with the request, however its arrival is moved. */
TEST(a_deadline_moves_with_its_arrival) {
    scratch_write("moved.csv", "arrival_us,input_tokens,output_tokens,deadline_us\n"
                               "0,10,20,4000000\n1000000,10,20,2000000\n");
    const char *path =
        scratch_write("moved.ini", "[workload]\narrivals = trace\ntrace = moved.csv\n"
                                   "lengths = trace\nrate = 10\nrequests = 6\n"
                                   "provenance.arrivals = real\n"
                                   "provenance.lengths = real\n");
    ck_assert_uint_eq(read_rows(path, 1), 6);
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert_int_eq(rows[i].due_ns, i % 2 == 0 ? 4000000000 : 1000000000);
    }
    ck_assert_int_lt(rows[5].arrival_ns, 1000000000);
}

TEST(what_a_trace_cannot_mean_is_refused) {
    static const char head[] = "arrival_us,input_tokens,output_tokens,deadline_us,priority\n";
    static const struct {
        const char *row, *sentence;
    } bad[] = {
        {"10,1,1,10,1\n", ":2: found '10' in deadline_us, expected a deadline after the arrival"},
        {"10,1,1,9,1\n", ":2: found '9' in deadline_us, expected a deadline after the arrival"},
        {"10,1,1,soon,1\n", ":2: found 'soon' in deadline_us, expected a time from 0 to 146 years"},
        {"10,1,1,20,high\n", ":2: found 'high' in priority, expected a whole number below 2^32"},
        {"10,1,1,20,-1\n", ":2: found '-1' in priority, expected a whole number below 2^32"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256], sentence[256];
        snprintf(text, sizeof text, "%s%s", head, bad[i].row);
        const char *path = scratch_write("bad.csv", text);
        snprintf(sentence, sizeof sentence, "%s%s", path, bad[i].sentence);
        refuses(path, sentence);
    }
}

TEST(columns_are_named) {
    scratch_write("own.csv", "t,i,o,by,p,guess\n1,10,20,3.5,7,12\n");
    const char *path =
        scratch_write("own.ini", "[workload]\narrivals = trace\ntrace = own.csv\nlengths = trace\n"
                                 "columns = time=t:s,input=i,output=o,deadline=by,priority=p,"
                                 "predicted=guess\nprovenance.arrivals = real\n"
                                 "provenance.lengths = real\n");
    ck_assert_uint_eq(read_rows(path, 1), 1);
    ck_assert(rows[0].due_ns == 2500000000 && rows[0].priority == 7);
    ck_assert_uint_eq(rows[0].predicted_tokens, 12);
}

/* ---- models ---- */

TEST(nothing_is_marked_that_nobody_asks_for) {
    ck_assert_uint_eq(read_rows(workload_of(""), 1), N);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert(rows[i].due_ns == 0 && rows[i].priority == 0 && rows[i].tenant == 0 &&
                  rows[i].predicted_tokens == 0);
    }
}

TEST(marks_are_drawn_as_their_models_say) {
    uint32_t tenants[4] = {0}, levels[8] = {0};
    double sum_s = 0, square_s = 0, error = 0, spread = 0;
    read_rows(workload_of("tenant = zipf\ntenant.count = 4\npriority = geometric\n"
                          "priority.share = 0.5\ndeadline = lognormal\ndeadline.mean = 8s\n"
                          "deadline.cv = 0.25\npredicted = lognormal\npredicted.error = 0.4\n"),
              3);
    for (uint32_t i = 0; i < N; i++) {
        const double due_s = (double)rows[i].due_ns * 1e-9;
        const double off = log(rows[i].predicted_tokens / 200.0);
        tenants[rows[i].tenant]++;
        levels[rows[i].priority < 8 ? rows[i].priority : 7]++;
        sum_s += due_s;
        square_s += due_s * due_s;
        error += off;
        spread += off * off;
    }
    const double mean_s = sum_s / N;
    ck_assert_double_eq_tol(mean_s, 8, 0.15);
    ck_assert_double_eq_tol(sqrt(square_s / N - mean_s * mean_s) / mean_s, 0.25, 0.02);
    ck_assert_double_eq_tol(error / N, 0, 0.03); /* of median 1 */
    ck_assert_double_eq_tol(sqrt(spread / N), 0.4, 0.02);
    for (uint32_t i = 0; i < 4; i++) { /* 1, 1/2, 1/3 and 1/4 of 25/12 */
        ck_assert_double_eq_tol(tenants[i] / (double)N, 12.0 / 25 / (i + 1), 0.03);
    }
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_double_eq_tol(levels[i] / (double)N, pow(0.5, i + 1), 0.03);
    }
}

TEST(the_other_models_mark_as_they_say) {
    uint32_t n_top = 0;
    int64_t least_ns = INT64_MAX, most_ns = 0;
    read_rows(workload_of("tenant = uniform\ntenant.count = 3\npriority = uniform\n"
                          "priority.min = 2\npriority.max = 4\ndeadline = uniform\n"
                          "deadline.min = 1s\ndeadline.max = 3s\npredicted = exact\n"),
              1);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert(rows[i].priority >= 2 && rows[i].priority <= 4 && rows[i].tenant < 3);
        ck_assert_uint_eq(rows[i].predicted_tokens, 200);
        least_ns = rows[i].due_ns < least_ns ? rows[i].due_ns : least_ns;
        most_ns = rows[i].due_ns > most_ns ? rows[i].due_ns : most_ns;
        n_top += rows[i].priority == 4;
    }
    ck_assert(least_ns >= 1000000000 && least_ns < 1010000000);
    ck_assert(most_ns <= 3000000000 && most_ns > 2990000000);
    ck_assert_double_eq_tol(n_top / (double)N, 1 / 3.0, 0.03);
    read_rows(workload_of("deadline = length\ndeadline.time = 1s\ndeadline.each = 10ms\n"
                          "priority = fixed\npriority.value = 9\nanswer = fixed\n"
                          "answer.tokens = 50\npredicted = exact\n"),
              1);
    ck_assert(rows[0].due_ns == 3000000000 && rows[0].priority == 9);
    ck_assert_uint_eq(rows[0].predicted_tokens, 50);
}

/* The same request is marked alike whatever else the workload has; another seed marks otherwise. */
TEST(marks_hang_on_the_seed_and_the_request_alone) {
    static struct arrival first[N];
    const char *keys = "deadline = uniform\npriority = uniform\npriority.max = 1000\n";
    read_rows(workload_of(keys), 1);
    memcpy(first, rows, sizeof first);
    char more[256];
    snprintf(more, sizeof more, "%stenant = zipf\npredicted = lognormal\n", keys);
    read_rows(workload_of(more), 1);
    uint32_t n_other = 0;
    for (uint32_t i = 0; i < N; i++) {
        ck_assert(rows[i].due_ns == first[i].due_ns && rows[i].priority == first[i].priority);
    }
    read_rows(workload_of(keys), 2);
    for (uint32_t i = 0; i < N; i++) {
        n_other += rows[i].priority != first[i].priority;
    }
    ck_assert_uint_gt(n_other, N * 9 / 10);
}

TEST(a_prediction_of_the_trace_is_replaced_or_dropped) {
    scratch_write("guess.csv",
                  "arrival_us,input_tokens,output_tokens,predicted_tokens\n0,10,20,7\n");
    static const char head[] = "[workload]\narrivals = trace\ntrace = guess.csv\nlengths = trace\n"
                               "provenance.arrivals = real\nprovenance.lengths = real\n";
    static const struct {
        const char *key;
        uint32_t predicted;
    } said[] = {{"", 7}, {"predicted = exact\n", 20}, {"predicted = none\n", 0}};
    for (size_t i = 0; i < 3; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", head, said[i].key);
        ck_assert_uint_eq(read_rows(scratch_write("guess.ini", text), 1), 1);
        ck_assert_uint_eq(rows[0].predicted_tokens, said[i].predicted);
    }
}

TEST(unknown_models_and_keys_are_refused) {
    static const struct {
        const char *keys, *sentence;
    } bad[] = {
        {"predicted = oracle\n", ": predicted = 'oracle', expected exact, lognormal or none"},
        {"priority = uniforn\n",
         ": priority = 'uniforn', expected fixed, uniform or geometric; did you mean 'uniform'?"},
        {"deadline.mean = 3s\n",
         ": deadline.mean needs a model, deadline = ..., before its parameters"},
        {"deadline = fixed\ndeadline.tme = 3s\n",
         ": deadline = fixed has no parameter 'tme'; did you mean 'time'?"},
        {"deadline = uniform\ndeadline.min = 90s\n",
         ": deadlines from 90 to 60 s: expected min up to max"},
        {"priority = uniform\npriority.min = 5\n",
         ": priorities from 5 to 1: expected min up to max"},
        {"dealine = fixed\n", ": a workload has no key 'dealine'; did you mean 'deadline'?"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char sentence[256];
        const char *path = workload_of(bad[i].keys);
        struct err err = {0};
        struct workload *workload = NULL;
        ck_assert_int_ne(open_as(path, 1, &workload, &err), 0);
        snprintf(sentence, sizeof sentence, "%s", bad[i].sentence);
        ck_assert_msg(strstr(err.text, sentence) != NULL, "%s", err.text);
    }
}

TEST(a_class_is_a_tenant_itself) {
    scratch_write("a.ini", "[workload]\narrivals = poisson\nrate = 1\nrequests = 5\ninput = fixed\n"
                           "output = fixed\ntenant = zipf\n");
    scratch_write("b.ini", "[workload]\narrivals = poisson\nrate = 1\nrequests = 5\ninput = fixed\n"
                           "output = fixed\npriority = fixed\npriority.value = 2\n");
    refuses(scratch_write("both.ini", "[workload]\nclasses = b.ini, a.ini\n"),
            "a.ini: found tenant, but a class is a tenant itself");
    ck_assert_uint_eq(
        read_rows(scratch_write("two.ini", "[workload]\nclasses = b.ini, b.ini\n"), 1), 10);
    ck_assert(rows[0].priority == 2 && rows[9].priority == 2);
}

SUITE("marks")
