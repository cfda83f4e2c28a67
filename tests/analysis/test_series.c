/* Columns of numbers that do not grow, and the summaries of them. */
#include <stdlib.h>

#include "analysis/summary.h"
#include "tests/support/records.h"

TEST(a_series_with_a_limit_holds_every_nth_value) {
    struct series series = {.most = 1000};
    for (int i = 0; i < 100000; i++) {
        series_push(&series, i);
        ck_assert_uint_le(series.n, 1000);
    }
    ck_assert_uint_eq(series.stride, 128);
    ck_assert_uint_eq(series.n, 100000 / 128 + 1);
    for (size_t i = 0; i < series.n; i++) {
        ck_assert_double_eq(series.values[i], (double)(128 * i));
    }
    free(series.values);
}

TEST(a_summary_with_a_limit_says_nearly_the_same) {
    struct summary all, few;
    struct err err = {0};
    summary_init(&all, NULL);
    summary_init(&few, NULL);
    summary_limit(&few, 512);
    for (uint64_t i = 0; i < 20000; i++) {
        const int64_t at_ns = (int64_t)i * 1000000, takes_ns = 3000000 + (int64_t)(i * 7919 % 4001);
        const struct request_record record = {.id = i,
                                              .state = REQUEST_DONE,
                                              .prompt_tokens = 4,
                                              .output_tokens = 8,
                                              .answer_tokens = 8,
                                              .committed_tokens = 8,
                                              .first_block_tokens = 4,
                                              .arrival_ns = at_ns,
                                              .admitted_ns = at_ns,
                                              .first_block_ns = at_ns + 1000000,
                                              .finished_ns = at_ns + takes_ns};
        struct summary *both[] = {&all, &few};
        for (int s = 0; s < 2; s++) {
            const struct sink sink = summary_sink(both[s]);
            ck_assert_int_eq(sink.request(sink.state, &record, &err), 0);
        }
    }
    ck_assert_uint_le(few.latency_s.n, 512);
    summary_finish(&all);
    summary_finish(&few);
    ck_assert_uint_eq(few.completed, all.completed);
    ck_assert_double_eq(few.throughput_req_s, all.throughput_req_s);
    ck_assert_double_eq_tol(few.latency.p50 / all.latency.p50, 1, 1e-3);
    ck_assert_double_eq_tol(few.latency.p99 / all.latency.p99, 1, 1e-3);
    ck_assert_int_eq(few.offered.state, all.offered.state);
    ck_assert_double_eq_tol(few.offered.rate_req_s / all.offered.rate_req_s, 1, 0.01);
    summary_fini(&all);
    summary_fini(&few);
}

SUITE("series")
