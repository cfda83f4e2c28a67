/* Records of requests made by hand, and a summary that is fed with them. */
#ifndef UNMASK_TESTS_SUPPORT_RECORDS_H
#define UNMASK_TESTS_SUPPORT_RECORDS_H

#include "analysis/summary.h"
#include "tests/support/suite.h"

static const int64_t second = 1000000000;

/* A completed request of 64 tokens, 32 of them in its first block. */
static inline struct request_record done(uint64_t id, double arrival_s, double admitted_s,
                                         double first_s, double finished_s) {
    return (struct request_record){
        .id = id,
        .prompt_tokens = 100,
        .output_tokens = 64,
        .answer_tokens = 64,
        .committed_tokens = 64,
        .arrival_ns = (int64_t)(arrival_s * 1e9),
        .admitted_ns = (int64_t)(admitted_s * 1e9),
        .first_block_ns = (int64_t)(first_s * 1e9),
        .finished_ns = (int64_t)(finished_s * 1e9),
        .state = REQUEST_DONE,
        .steps = 64,
        .first_block_tokens = 32,
        .tokens_processed = 2048,
    };
}

static inline void feed(struct summary *summary, const struct request_record *records, size_t n) {
    struct sink sink = summary_sink(summary);
    struct err err = {0};
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(sink.request(sink.state, &records[i], &err), 0);
    }
}

#endif
