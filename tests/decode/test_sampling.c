/* Drawing tokens in a simulation: a decode process's tokens under temperature, top_k and top_p
 * against all of them written out, the operator in graph and price, whose probability a confidence
 * is, and what the settings refuse. */
#include <math.h>
#include <string.h>

#include "sim/base/rng.h"
#include "sim/decode/ladder.h"
#include "sim/decode/process.h"
#include "sim/system/system_step.h"
#include "tests/support/live.h"
#include "tests/support/says.h"

enum { PLACES = 4000 };

/* All tokens: each with its probability under the rule, and how many are kept. */
static int write_out(const struct draw_rule *by, double p, double q, double *all) {
    int n = by->top_k > 0 && by->top_k < PLACES ? (int)by->top_k : PLACES, kept = 0;
    double sum = 0, before = 0;
    q = fmin(q, p / (1 - p));
    for (int i = 0; i < PLACES; i++) {
        all[i] = i == 0 ? p : (1 - p) * q * pow(1 - q, i - 1);
        sum += i < n ? all[i] : 0;
    }
    while (kept < n && before <= by->top_p * sum) {
        before += all[kept++];
    }
    for (int i = 0; i < PLACES; i++) {
        all[i] = i < kept ? all[i] / before : 0;
    }
    return kept;
}

TEST(a_ladder_is_its_tokens_written_out) {
    static const struct draw_rule rules[] = {
        {1, 1, 0, 0, true},    {1, 1, 1, 0, true},   {1, 1, 2, 0, true}, {1, 1, 9, 0, true},
        {0.93, 1, 0, 0, true}, {0.4, 1, 0, 0, true}, {0, 1, 0, 0, true}, {0.83, 1, 5, 0, true}};
    static double all[PLACES];
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        for (double p = 0.05; p < 1; p += 0.1) {
            const double q = 0.37 + 0.02 * (double)r;
            const struct ladder ladder = ladder_of(&rules[r], p, q);
            const int kept = write_out(&rules[r], p, q, all);
            double entropy = 0, below = 0;
            for (int i = 0; i < kept && all[i] > 0; i++) {
                entropy += all[i] * log(all[i]);
                ck_assert_double_eq_tol(ladder_probability(&ladder, i), all[i], 1e-9);
                if (all[i] > 1e-6) {
                    ck_assert_double_eq(ladder_draw(&ladder, below + all[i] / 2), i);
                }
                below += all[i];
            }
            ck_assert_double_eq_tol(ladder_entropy(&ladder), entropy, 1e-6);
            ck_assert_double_eq_tol(ladder_margin(&ladder), all[0] - fmin(all[0], all[1]), 1e-9);
            ck_assert(isinf(ladder.n) ? kept == PLACES : ladder.n == kept);
        }
    }
}

TEST(a_ladder_goes_back_to_its_own_temperature) {
    for (double s = 0.4; s < 3; s += 0.3) {
        const double p = 0.6, q = 0.3, sharp = 1 - pow(1 - q, s);
        const double odds = pow(p / (1 - p), s) * sharp / pow(q, s);
        ck_assert_double_eq_tol(ladder_untempered(odds / (1 + odds), q, s), p, 1e-9);
    }
}

static struct system *sdar(const char *const *settings) {
    return rig_system("sdar", "h100", false, settings);
}
#define SDAR(...)                                                                                  \
    sdar((const char *const[]){"runtime=unmask", "confidence=sdar-8b/math", __VA_ARGS__, NULL})

/* The mean confidence of a first pass over many blocks. */
static double mean_confidence(const struct decode_process *process) {
    enum { BLOCK = 32, REQUESTS = 400 };
    uint8_t masked[BLOCK];
    float confidence[BLOCK], margin[BLOCK], entropy[BLOCK];
    double sum = 0;
    memset(masked, 1, sizeof masked);
    for (uint64_t request = 0; request < REQUESTS; request++) {
        const struct decode_view view = {
            .request = request, .block_start = 64, .block_length = BLOCK, .masked = masked};
        process_confidence(process, 7, &view, confidence);
        process_statistics(process, 7, &view, confidence, margin, entropy);
        for (int i = 0; i < BLOCK; i++) {
            ck_assert(confidence[i] > 0 && confidence[i] < 1);
            ck_assert(margin[i] >= 0 && margin[i] <= 1 && entropy[i] <= 0);
            sum += (double)confidence[i];
        }
    }
    return sum / (BLOCK * REQUESTS);
}

TEST(confidences_follow_whose_probability_they_are) {
    struct system *greedy = SDAR("temperature=0.7"),
                  *drawn = SDAR("temperature=0.7", "sampling=on");
    struct system *model = SDAR("temperature=0.7", "sampling=on", "probabilities=model");
    struct system *kept = SDAR("temperature=0.7", "sampling=on", "top_p=0.5");
    struct system *best =
        SDAR("temperature=0.7", "sampling=on", "top_k=1", "probabilities=tempered");
    struct system *plain = SDAR("temperature=1");
    const double of_greedy = mean_confidence(&greedy->process);
    const double of_drawn = mean_confidence(&drawn->process);
    ck_assert_double_lt(of_drawn, of_greedy - 0.02);
    ck_assert_double_lt(mean_confidence(&model->process), of_drawn);
    ck_assert_double_gt(mean_confidence(&kept->process), of_drawn + 0.02);
    ck_assert_double_eq_tol(mean_confidence(&best->process), of_greedy, 1e-6);
    ck_assert_double_lt(mean_confidence(&plain->process), of_greedy);
    struct system *const all[] = {greedy, drawn, model, kept, best, plain};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        system_close(all[i]);
    }
}

TEST(released_probabilities_follow_the_model) {
    static const struct {
        const char *system, *model;
        enum probabilities expected;
    } lines[] = {{"fast-dllm", "llada-8b", PROBABILITIES_MODEL},
                 {"fast-dllm", "dream-7b", PROBABILITIES_KEPT},
                 {"sdar", "sdar-8b", PROBABILITIES_KEPT}};
    for (size_t i = 0; i < 3; i++) {
        struct setting on = {.key = "sampling", .value = "on", .place = "test"};
        for (int n = 0; n < 2; n++) {
            struct system_request request = {.system = lines[i].system,
                                             .model = lines[i].model,
                                             .gpu = "h100",
                                             .overrides = &on,
                                             .n_overrides = (uint32_t)n,
                                             .roofline = true};
            struct system *system = NULL;
            struct err err = {0};
            ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
            ck_assert_uint_eq(system->settings.probabilities,
                              n == 0 ? PROBABILITIES_TEMPERED : lines[i].expected);
            system_close(system);
        }
    }
}

static const struct op *draw_of(const struct system *system) {
    const struct op *found = NULL;
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        found = system->graph.ops[i].kind == OP_DRAW ? &system->graph.ops[i] : found;
    }
    return found;
}

static double bytes_of(const struct system *system) {
    const struct op *op = draw_of(system);
    struct op_work work =
        op_type_of(op)->work(&system->graph, op, &(struct op_amount){.rows = 1, .n_steps = 1});
    return op_work_bytes(&work);
}

/* The logits once, or three times where tokens are cut off; and the candidates. */
TEST(the_operator_is_there_and_priced_where_it_is_asked_for) {
    struct system *plain = SDAR("temperature=1"), *drawn = SDAR("sampling=on");
    struct system *cut = SDAR("sampling=on", "top_k=50"), *tempered = SDAR("temperature=0.8");
    struct system *theirs = rig_system("lmdeploy-published", "h100", false, NULL);
    ck_assert_ptr_null(draw_of(plain));
    ck_assert(theirs->settings.temperature != 1 && draw_of(theirs) == NULL);
    const double logits = 2.0 * drawn->model->vocab;
    ck_assert_double_eq_tol(bytes_of(drawn), logits + 16, 0.5);
    ck_assert_double_eq_tol(bytes_of(cut), 3 * logits + 16, 0.5);
    ck_assert_double_eq_tol(bytes_of(tempered), logits + 16, 0.5);
    struct system *const all[] = {plain, drawn, cut, tempered, theirs};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        system_close(all[i]);
    }
}

SUITE("sampling in simulations")
