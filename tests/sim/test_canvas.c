/* Decoders that look at nothing the model says choose the same on the host and on the device. */
#include "kernels/ref/ref.h"
#include "sim/base/rng.h"
#include "sim/decode/block.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/plugin/registry.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

static const struct policy *named(enum policy_kind kind, const char *name) {
    struct err err = {0};
    const struct policy *policy = policy_find(kind, name, &err);
    ck_assert_msg(policy != NULL, "%s", err.text);
    return policy;
}

enum { BLOCK = 48, ROUNDS = 200 };

/* What the reference implementation of the device's kernel commits of the same positions, whatever
 * the model says. */
static void commit_on_device(const struct decode_rule *rule, const struct request *request,
                             const uint8_t *masked, int32_t take, struct rng *rng,
                             uint8_t committed[BLOCK]) {
    const int64_t canvas_start = 1000;
    const int32_t first = 0, n = (int32_t)window_length(request);
    int32_t canvas[2000], token[BLOCK], n_committed;
    int64_t position[BLOCK];
    float confidence[BLOCK];
    for (int32_t i = 0; i < n; i++) {
        position[i] = canvas_start + window_first(request) + i;
        canvas[position[i]] = masked[i] ? 7 : 1;
        token[i] = 3;
        confidence[i] = (float)rng_uniform(rng);
    }
    const struct call_decode call =
        MAKE(struct call_decode, .confidence = confidence, .token = token, .first_row = &first,
             .n_rows = &n, .take = &take, .threshold = &rule->threshold, .key = &rule->key,
             .canvas_start = &canvas_start, .position = position, .canvas = canvas,
             .committed = committed, .n_committed = &n_committed, .n_requests = 1, .max_rows = n,
             .mask_token = 7, .rule = (enum decode_kind)rule->kind,
             .rank = (enum decode_rank)rule->rank);
    ref_decode(&call);
    ck_assert_int_ge(n_committed, 1);
}

/* What the decoder's rule chooses of the masked positions of a block. */
static void choose_blindly(const struct decoder *decoder, const void *state,
                           const struct request *request, const uint8_t *masked, uint8_t *next) {
    const struct decode_rule rule = decoder_rule(decoder, state, request);
    uint32_t offset[BLOCK], n = 0, repeat;
    uint8_t picked[BLOCK];
    for (uint32_t i = 0; i < window_length(request); i++) {
        offset[n] = i;
        n += masked[i] != 0;
    }
    uint32_t count = decoder->count != NULL ? decoder->count(state, request, &repeat) : 0;
    const struct decode_seen seen = {.n = n, .first = window_first(request), .offset = offset};
    (void)decode_choose(&rule, &seen, count < n ? count : n, picked);
    memset(next, 0, window_length(request));
    for (uint32_t i = 0; i < n; i++) {
        next[offset[i]] = picked[i];
    }
}

TEST(blind_decoders_choose_on_the_host_what_the_device_chooses) {
    static const char *const names[] = {"random", "origin", "sequential"};
    struct rng rng = rng_stream(8, "foresight");
    for (int i = 0; i < 3 * ROUNDS; i++) {
        const struct decoder *decoder = (const struct decoder *)named(POLICY_DECODER, names[i % 3]);
        void *state = policy_state(&decoder->policy);
        uint8_t masked[BLOCK] = {0}, committed[BLOCK] = {0}, next[BLOCK];
        uint32_t repeat, n = 1 + (uint32_t)(rng_next(&rng) % BLOCK);
        struct request request = MAKE(
            struct request, .id = rng_next(&rng), .window.first = (uint32_t)(rng_next(&rng) % 900),
            .window.length = n, .steps_per_block = 1 + (uint32_t)(rng_next(&rng) % n));
        request.window.steps = (uint32_t)(rng_next(&rng) % request.steps_per_block);
        for (uint32_t p = 0; p < n; p++) {
            masked[p] = p == 0 || rng_next(&rng) % 3 > 0;
            request.window.masked += masked[p];
        }
        choose_blindly(decoder, state, &request, masked, next);
        const struct decode_rule rule = decoder_rule(decoder, state, &request);
        uint32_t take = decoder->count != NULL ? decoder->count(state, &request, &repeat) : 0;
        commit_on_device(&rule, &request, masked, (int32_t)take, &rng, committed);
        ck_assert_mem_eq(next, committed, n);
        free(state);
    }
}

/* Every position is as likely to be decided first, and the order stays what it is. */
TEST(a_random_order_is_drawn_once_for_a_request) {
    const struct decoder *decoder = (const struct decoder *)named(POLICY_DECODER, "random");
    void *state = policy_state(&decoder->policy);
    uint32_t first[8] = {0};
    for (uint64_t id = 0; id < 4000; id++) {
        struct request request = {.id = id, .window.length = 8, .steps_per_block = 8};
        uint8_t masked[8] = {1, 1, 1, 1, 1, 1, 1, 1}, next[8];
        uint32_t repeat;
        request.window.masked = 8;
        ck_assert_uint_eq(decoder->count(state, &request, &repeat), 1);
        ck_assert_uint_eq(repeat, UINT32_MAX);
        const uint64_t key = decoder_rule(decoder, state, &request).key;
        choose_blindly(decoder, state, &request, masked, next);
        for (uint32_t p = 0; p < 8; p++) {
            first[p] += next[p];
        }
        request.window.steps = 5;
        ck_assert(decoder_rule(decoder, state, &request).key == key);
    }
    for (uint32_t p = 0; p < 8; p++) { /* 500 on average, 21 its deviation */
        ck_assert_uint_ge(first[p], 400);
        ck_assert_uint_le(first[p], 600);
    }
    free(state);
}

SUITE("canvas")
