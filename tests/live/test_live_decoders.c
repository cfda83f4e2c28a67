/* Every decoder live, on real logits: the device decides as the rule on the host, whatever else is
 * in the batch; credit begins anew with each block; logits that are no numbers end the run. */
#include "sim/policy/plugin/registry.h"
#include "tests/support/live.h"
#include "tests/support/says.h"
#include "tests/support/unequal.h"

enum { POSITIONS = 14 + 7 + 6 };

/* With numbers at which these random weights commit one position in some steps, more in others. */
static const struct {
    const char *name, *settings[3];
} decoders[] = {
    {"fixed", {NULL}},
    {"sequential", {NULL}},
    {"threshold", {"decoder.threshold=0.012"}},
    {"threshold", {"decoder.threshold=0.5", "decoder.slack=0.0005"}},
    {"factor", {"decoder.factor=3"}},
    {"hierarchical", {"decoder.threshold=0.0125", "decoder.low_threshold=0.0105"}},
    {"credit", {"decoder.threshold=0.018", "decoder.alpha=0.7"}},
    {"entropy-bounded", {"decoder.bound=13.4"}},
    {"maskgit-plus", {NULL}},
    {"margin", {NULL}},
    {"entropy", {NULL}},
    {"maskgit-plus", {"decoder.alg_temp=0.002", "decoder.seed=3"}},
    {"margin", {"decoder.alg_temp=1000"}},
    {"entropy", {"decoder.alg_temp=0.05"}},
    {"origin", {NULL}},
    {"random", {"decoder.seed=4"}},
    {"PLUGIN", {"decoder.first=0.0135", "decoder.last=0.0115", "decoder.step=0.0005"}},
};
enum { N_DECODERS = sizeof decoders / sizeof decoders[0], CREDIT = 6 };

static struct system *system_of(const char *model, int decoder, const char *cache,
                                const char *scope) {
    char texts[3][300];
    snprintf(texts[0], sizeof texts[0], "cache=%s", cache);
    bool is_plugin = strcmp(decoders[decoder].name, "PLUGIN") == 0;
    snprintf(texts[1], sizeof texts[1], "decoder=%s",
             is_plugin ? suite_plugin("template_rule") : decoders[decoder].name);
    snprintf(texts[2], sizeof texts[2], "logit_scope=%s", scope);
    return LIVE_SYSTEM(model, texts[0], texts[1], texts[2], "block_tokens=6", "steps_per_block=3",
                       "max_requests=4",
                       decoders[decoder].settings[0] != NULL ? decoders[decoder].settings[0]
                                                             : "logit_chunk_rows=0",
                       decoders[decoder].settings[1], decoders[decoder].settings[2]);
}

static struct served *serve_on(struct system *system, const struct arrival *arrivals,
                               const struct device_table *table) {
    struct serving serving = {.system = system, .arrivals = arrivals, .n = N, .table = table};
    return serve(&serving);
}

static struct served *serve_well(struct system *system, const struct arrival *arrivals) {
    struct served *served = serve_on(system, arrivals, NULL);
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    ck_assert_uint_eq(served->n_outputs, N);
    ck_assert_int_eq(served->activation_bytes, served->planned_activation_bytes);
    ck_assert_int_eq(served->pool_bytes, served->result.kv_peak_bytes);
    return served;
}

static const struct decoder *inner;

/* The rule of `inner`, applied by the host. */
static uint32_t choose_by_rule(const void *state, const struct request *request,
                               const struct decode_seen *seen, uint8_t *commit) {
    uint32_t repeat, count = inner->count != NULL ? inner->count(state, request, &repeat) : 0;
    struct decode_rule rule = decoder_rule(inner, state, request);
    ck_assert_uint_eq(seen->margin != NULL, inner->reads_statistics);
    for (uint32_t i = 0; i < seen->n; i++) {
        ck_assert(seen->confidence[i] > 0 && seen->confidence[i] < 1);
        ck_assert(i == 0 || seen->offset[i] > seen->offset[i - 1]);
        ck_assert(seen->margin == NULL ||
                  (seen->margin[i] >= 0 && seen->margin[i] <= seen->confidence[i]));
        ck_assert(seen->entropy == NULL || seen->entropy[i] < 0);
    }
    return decode_choose(&rule, seen, count, commit);
}

static void count_commits(const struct served *served, uint32_t *least, uint32_t *most) {
    for (size_t i = 0; i < served->n_steps; i++) {
        for (uint32_t j = 0; j < served->steps[i].n_requests; j++) {
            uint32_t n = served->commits[i][j];
            *least = n < *least ? n : *least;
            *most = n > *most ? n : *most;
        }
    }
}

TEST(the_device_decides_as_the_rule_on_the_host) {
    static const char *const caches[] = {"none", "dual", "sparse-head"};
    static const char *const scopes[] = {"block", "masked", "queries"};
    for (int d = 0; d < N_DECODERS; d++) {
        uint32_t most = 0, least = UINT32_MAX;
        for (int c = 0; c < 3; c++) {
            struct system *system = system_of("llada-tiny", d, caches[c], scopes[(c + d) % 3]);
            system->settings.skip_ahead = false; /* steps one by one, as the host takes them */
            struct served *on_device = serve_well(system, together);
            inner = system->decoder;
            struct decoder host = *inner;
            host.count = NULL;
            host.rule = NULL;
            host.choose = choose_by_rule;
            system->decoder = &host;
            struct served *on_host = serve_well(system, together);
            same_tokens(on_device, on_host, N);
            count_commits(on_device, &least, &most);
            free(on_device);
            free(on_host);
            system_close(system);
        }
        ck_assert_msg(most > 1, "%s never commits more than %u", decoders[d].name, most);
        bool varies = strcmp(decoders[d].name, "fixed") != 0 &&
                      strcmp(decoders[d].name, "sequential") != 0 &&
                      strcmp(decoders[d].name, "random") != 0;
        ck_assert_msg(!varies || least == 1, "%s never commits 1", decoders[d].name);
    }
}

/* Without a cache only the rows that go through the head differ, and their chunks. */
TEST(scopes_and_chunks_change_no_token_of_any_decoder) {
    static const char *const scopes[] = {"block", "masked", "queries"};
    for (int d = 0; d < N_DECODERS; d++) {
        struct served *first = NULL;
        for (int s = 0; s < 3; s++) {
            struct system *system = system_of("llada-tiny", d, "none", scopes[s]);
            system->chunks.bound.of[CHUNK_LOGITS] = s == 1 ? 5 : 0;
            struct served *served = serve_well(system, together);
            if (first != NULL) {
                same_tokens(first, served, N);
                free(served);
            } else {
                first = served;
            }
            system_close(system);
        }
        free(first);
    }
}

/* The fused head makes the same statistics. */
TEST(the_fused_head_decides_as_stored_logits_do) {
    static const int which[] = {2, 7, 9, 10};
    for (int i = 0; i < 4; i++) {
        struct served *served[2];
        for (int fused = 0; fused < 2; fused++) {
            struct system *system =
                LIVE_SYSTEM("llada-tiny", "cache=dual", "block_tokens=6", "steps_per_block=3",
                            fused ? "runtime.fused_head=on" : "runtime.fused_head=off",
                            i == 0   ? "decoder=threshold"
                            : i == 1 ? "decoder=entropy-bounded"
                            : i == 2 ? "decoder=margin"
                                     : "decoder=entropy",
                            decoders[which[i]].settings[0]);
            served[fused] = serve_well(system, together);
            system_close(system);
        }
        same_tokens(served[0], served[1], N);
        free(served[0]);
        free(served[1]);
    }
}

/* A temperature of confidences alone: of stored logits a kernel divides them, without, and where
 * credit is added, the final norm has (a power of two: to the bit). Credit that weighs nothing is
 * the threshold, and credit that does commits others at another temperature. */
TEST(a_temperature_divides_logits_whether_they_are_stored_or_not) {
    static const struct {
        const char *decoder, *number, *head;
    } ways[] = {{"decoder=threshold", "decoder.slack=1e-5", "runtime.fused_head=off"},
                {"decoder=threshold", "decoder.slack=1e-5", "runtime.fused_head=on"},
                {"decoder=credit", "decoder.alpha=0", "runtime.fused_head=off"},
                {"decoder=credit", "decoder.alpha=0.7", "runtime.fused_head=off"}};
    enum { N_WAYS = sizeof ways / sizeof ways[0] };
    struct served *served[N_WAYS], *warm[N_WAYS];
    for (int i = 0; i < N_WAYS; i++) {
        for (int is_warm = 0; is_warm < 2; is_warm++) {
            struct system *system =
                LIVE_SYSTEM("llada-tiny", "cache=dual", "block_tokens=6", "probabilities=kept",
                            "decoder.threshold=0.25", ways[i].decoder, ways[i].number, ways[i].head,
                            is_warm ? "temperature=0.25" : "temperature=1");
            *(is_warm ? &warm[i] : &served[i]) = serve_well(system, together);
            system_close(system);
        }
    }
    for (int i = 0; i < 3; i++) {
        same_tokens(served[0], served[i], N);
        same_tokens(warm[0], warm[i], N);
        ck_assert_uint_eq(warm[0]->n_steps, warm[i]->n_steps);
    }
    ck_assert_uint_lt(warm[0]->n_steps, served[0]->n_steps);
    ck_assert_uint_lt(warm[3]->n_steps, warm[2]->n_steps);
    for (int i = 0; i < N_WAYS; i++) {
        free(served[i]);
        free(warm[i]);
    }
}

static struct device_table watched;
static uint32_t n_begun, n_raised;

/* A position's list is empty when it is asked for the first time, and at no other. */
static int watch_credit(struct device *device, const struct call_credit *call) {
    for (int32_t row = 0; row < call->n_rows; row++) {
        bool masked = call->canvas[call->position[row]] == call->mask_token;
        if (call->lists[row] >= 0 && masked) {
            n_begun += call->state[call->lists[row] * (2 * call->n_slots + 2)] == 0;
        }
    }
    return device_cpu.credit(device, call);
}

TEST(credit_begins_anew_with_every_block) {
    watched = device_cpu;
    watched.credit = watch_credit;
    struct system *system = system_of("llada-tiny", CREDIT, "dual", "block");
    for (int way = 0; way < 2; way++) {
        n_begun = 0;
        struct served *served = serve_on(system, way ? apart : together, &watched);
        ck_assert_int_eq(served->err.kind, ERR_NONE);
        ck_assert_uint_eq(n_begun, POSITIONS);
        free(served);
    }
    system_close(system);
}

static int count_raised(struct device *device, const struct call_credit *call) {
    static float before[4096];
    memcpy(before, call->confidence, (size_t)call->n_rows * sizeof *before);
    int status = device_cpu.credit(device, call);
    for (int32_t row = 0; row < call->n_rows; row++) {
        bool masked = call->canvas[call->position[row]] == call->mask_token;
        bool credited = call->lists[row] >= 0 && masked;
        ck_assert(credited ? call->confidence[row] > before[row]
                           : call->confidence[row] == before[row]);
        n_raised += credited;
    }
    return status;
}

TEST(credit_commits_sooner_and_none_is_the_threshold) {
    struct system *none =
        LIVE_SYSTEM("llada-tiny", "cache=dual", "block_tokens=6", "decoder=credit",
                    "decoder.alpha=0", "decoder.threshold=0.018");
    struct system *plain =
        LIVE_SYSTEM("llada-tiny", "cache=dual", "block_tokens=6", "decoder=threshold",
                    "decoder.slack=1e-5", "decoder.threshold=0.018");
    struct system *some = system_of("llada-tiny", CREDIT, "dual", "block");
    struct served *without = serve_well(plain, together), *nothing = serve_well(none, together);
    struct served *sooner = serve_well(some, together);
    same_tokens(without, nothing, N);
    ck_assert_uint_eq(without->n_steps, nothing->n_steps);
    ck_assert_uint_lt(sooner->n_steps, without->n_steps);
    watched = device_cpu;
    watched.credit = count_raised;
    n_raised = 0;
    struct served *seen = serve_on(some, together, &watched);
    ck_assert_int_eq(seen->err.kind, ERR_NONE);
    ck_assert_uint_gt(n_raised, POSITIONS);
    same_tokens(seen, sooner, N);
    free(seen);
    free(sooner);
    free(nothing);
    free(without);
    system_close(some);
    system_close(plain);
    system_close(none);
}

/* What a step leaves of the credit raises the same token in the next. */
TEST(credit_that_stays_commits_sooner_than_credit_of_one_step) {
    static const char *const left[] = {"decoder.beta=0", "decoder.beta=0.5", "decoder.beta=1"};
    uint64_t n_steps[3];
    for (int i = 0; i < 3; i++) {
        struct system *system =
            LIVE_SYSTEM("llada-tiny", "cache=dual", "block_tokens=6", "decoder=credit",
                        "decoder.alpha=0.5", "decoder.threshold=0.025", left[i], LIVE_WIDE);
        struct served *served = serve_well(system, together);
        n_steps[i] = served->n_steps;
        free(served);
        system_close(system);
    }
    ck_assert_uint_lt(n_steps[2], n_steps[1]);
    ck_assert_uint_lt(n_steps[1], n_steps[0]);
}

static int spoil_after;

static int spoil_sample(struct device *device, const struct call_sample *call) {
    int status = device_cpu.sample(device, call);
    if (spoil_after-- == 0) {
        for (int32_t row = 0; row < call->n_rows; row++) {
            call->confidence[row] = NAN;
            if (call->margin != NULL) {
                call->margin[row] = call->entropy[row] = NAN;
            }
        }
    }
    return status;
}

TEST(logits_that_are_no_numbers_end_the_run_with_a_sentence) {
    watched = device_cpu;
    watched.sample = spoil_sample;
    for (int d = 0; d < N_DECODERS; d++) {
        for (int on_host = 0; on_host < 2; on_host++) {
            struct system *system = system_of("llada-tiny", d, "dual", "block");
            system->settings.skip_ahead = false;
            inner = system->decoder;
            struct decoder host = *inner;
            host.count = NULL;
            host.rule = NULL;
            host.choose = choose_by_rule;
            system->decoder = on_host ? &host : inner;
            spoil_after = 1;
            struct served *served = serve_on(system, together, &watched);
            ck_assert_int_eq(served->err.kind, ERR_WORLD);
            ck_assert_msg(strcmp(served->err.text,
                                 "the logits of request 0 are not numbers in its step 2") == 0,
                          "%s: %s", decoders[d].name, served->err.text);
            free(served);
            system_close(system);
        }
    }
}

SUITE("live decoders")
