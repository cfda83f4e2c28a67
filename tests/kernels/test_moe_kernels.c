/* The plain-C kernels of a mixture of experts: whom a token goes to by hand, the order of the
 * pairs, products that are the dense ones of each expert, and what comes back to a token. */
#include <math.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/exponential.h"
#include "sim/base/rng.h"
#include "tests/support/suite.h"

static void fill(float *x, int n, const char *stream) {
    struct rng rng = rng_stream(7, stream);
    for (int i = 0; i < n; i++) {
        x[i] = (float)(2 * rng_uniform(&rng) - 1);
    }
}

enum { E = 8 };

struct routed {
    int32_t expert[4];
    float weight[4];
};

static struct routed route(struct call_moe_route call, const float *logits) {
    struct routed r;
    memset(&r, 0xff, sizeof r);
    call.logits = logits;
    call.expert = r.expert;
    call.weight = r.weight;
    call.logit_stride = call.n_experts = E;
    call.n_tokens = 1;
    call.n_groups = call.n_groups > 0 ? call.n_groups : 1;
    call.n_groups_active = call.n_groups_active > 0 ? call.n_groups_active : 1;
    call.scale = call.scale > 0 ? call.scale : 1;
    call.dtype = KERNEL_F32;
    ref_moe_route(&call);
    return r;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

TEST(softmax_weights_are_probabilities_over_all_experts) {
    const float logits[E] = {0, 1, -2, 3, 0.5f, -1, 2, 0};
    const int32_t best[3] = {3, 6, 1};
    double all = 0, chosen = exp(3) + exp(2) + exp(1);
    for (int e = 0; e < E; e++) {
        all += exp(logits[e]);
    }
    struct call_moe_route call = {.n_active = 3, .router = KERNEL_ROUTER_SOFTMAX};
    for (int normalised = 0; normalised < 2; normalised++) {
        call.normalised = normalised;
        call.scale = normalised ? 2.5f : 1;
        const struct routed r = route(call, logits);
        ck_assert_mem_eq(r.expert, best, sizeof best);
        for (int a = 0; a < 3; a++) {
            const double want = exp(logits[best[a]]) / (normalised ? chosen / 2.5 : all);
            ck_assert_double_eq_tol(r.weight[a], want, 1e-6);
        }
    }
}

TEST(the_lower_expert_has_a_tie_and_a_nan_comes_last) {
    const float even[E] = {1, 1, 1, 1, 1, 1, 1, 1}, some[E] = {0, 2, 1, 2, NAN, 1, -9, NAN};
    const int32_t first[4] = {0, 1, 2, 3}, best[4] = {1, 3, 2, 5};
    struct call_moe_route call = {.n_active = 4, .router = KERNEL_ROUTER_SOFTMAX};
    struct routed r = route(call, even);
    ck_assert_mem_eq(r.expert, first, sizeof first);
    ck_assert_float_eq_tol(r.weight[3], 0.125f, 1e-6f);
    call.router = KERNEL_ROUTER_SIGMOID;
    r = route(call, even);
    ck_assert_mem_eq(r.expert, first, sizeof first);
    r = route(call, some);
    ck_assert_mem_eq(r.expert, best, sizeof best);
    const float none[E] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    r = route(call, none); /* experts that exist, once each */
    ck_assert_mem_eq(r.expert, first, sizeof first);
}

TEST(the_best_groups_are_those_of_the_largest_pairs) {
    /* Groups of two: sums of scores of about 0.98, 1.0, 0.95, 0.99; the best expert's group loses.
     */
    const float logits[E] = {0, -0.08f, 0, 0, 4, -9, -0.04f, 0};
    struct call_moe_route call =
        MAKE(struct call_moe_route, .n_active = 3, .n_groups = 4, .n_groups_active = 2,
             .normalised = true, .scale = 2.5f, .router = KERNEL_ROUTER_SIGMOID);
    const struct routed r = route(call, logits);
    const int32_t best[3] = {2, 3, 7};
    ck_assert_mem_eq(r.expert, best, sizeof best);
    for (int a = 0; a < 3; a++) {
        ck_assert_double_eq_tol(r.weight[a], 2.5 / 3, 1e-6);
    }
    call.n_groups_active = 4; /* groups that all stay are none */
    ck_assert_int_eq(route(call, logits).expert[0], 4);
}

TEST(a_bias_moves_the_choice_but_not_the_weights) {
    const float logits[E] = {0, 1, 2, 3, -1, -2, -3, 0.5f};
    const float bias[E] = {0, 0, 0, -1, 0, 0, 0.9f, 0};
    struct call_moe_route call = {
        .bias = bias, .n_active = 2, .router = KERNEL_ROUTER_SIGMOID, .normalised = true};
    struct routed r = route(call, logits);
    ck_assert(r.expert[0] == 6 && r.expert[1] == 2);
    const double sum = sigmoid(-3) + sigmoid(2);
    ck_assert_double_eq_tol(r.weight[0], sigmoid(-3) / sum, 1e-6);
    ck_assert_double_eq_tol(r.weight[1], sigmoid(2) / sum, 1e-6);
    call.normalised = false;
    r = route(call, logits);
    ck_assert_double_eq_tol(r.weight[0], sigmoid(-3), 1e-6);
    /* In groups of four a bias counts in the groups' ranks, too. */
    call.n_groups = 2;
    call.n_groups_active = 1;
    r = route(call, logits);
    ck_assert(r.expert[0] == 2 && r.expert[1] == 1);
}

/* Four tokens of two requests, two of which share a block: rows of logits of experts 0 to 7. */
static const float of_blocks[4][E] = {{3, 2, 1, -9, -9, -9, -9, -9},
                                      {-9, -9, 1, 2.5f, 0, -9, -9, -9},
                                      {-9, -9, -9, -9, 3, 2, 1, -9},
                                      {-9, -9, -9, -9, -9, 1, 2, 3}};

static void route_blocks(struct call_moe_route call, const int32_t *position, int32_t *expert) {
    static const int32_t start[3] = {0, 2, 4};
    float weight[8];
    call.logits = of_blocks;
    call.expert = expert;
    call.weight = weight;
    call.logit_stride = call.n_experts = E;
    call.n_tokens = 4;
    call.n_active = 2;
    call.n_groups = call.n_groups_active = 1;
    call.scale = 1;
    call.router = KERNEL_ROUTER_SIGMOID;
    call.dtype = KERNEL_F32;
    call.position = position;
    call.start = start;
    call.n_requests = 2;
    call.block_tokens = 8;
    ref_moe_route(&call);
}

TEST(tokens_of_a_block_choose_among_the_experts_that_it_admits) {
    static const int32_t together[4] = {8, 9, 8, 9}, apart[4] = {7, 8, 14, 16};
    static const int32_t alone[8] = {0, 1, 3, 2, 4, 5, 7, 6}, two[8] = {0, 3, 3, 0, 4, 7, 7, 4};
    static const int32_t most[4] = {0, 1, 3, 0};
    int32_t expert[8];
    struct call_moe_route call = {.blocks = KERNEL_BLOCKS_LARGEST, .block_experts = 2};
    route_blocks(call, together, expert);
    ck_assert_mem_eq(expert, two, sizeof two);
    route_blocks(call, apart, expert); /* each a block of its own */
    ck_assert_mem_eq(expert, alone, sizeof alone);
    /* Votes of the first block: 0.953, 0.924, 0.881 and 0.731 of experts 0, 3, 1 and 2, of which
     * three exceed 0.6. */
    call = (struct call_moe_route){
        .blocks = KERNEL_BLOCKS_SHARE, .block_experts = 2, .block_share = 0.6f};
    route_blocks(call, together, expert);
    ck_assert_mem_eq(expert, most, sizeof most);
    call.block_experts = 8;
    route_blocks(call, together, expert);
    ck_assert_mem_eq(expert, alone, sizeof alone);
}

TEST(the_sigmoid_is_one_at_any_size_of_its_input) {
    for (int i = -4000; i <= 4000; i++) {
        const float x = (float)i * 0.031f;
        const double want = sigmoid((double)x);
        ck_assert_double_eq_tol(sigmoid_single(x), want, 4e-7 * want + 1e-37);
    }
    ck_assert(sigmoid_single(INFINITY) == 1 && sigmoid_single(-INFINITY) < 1e-37f);
    ck_assert(isnan(sigmoid_single(NAN)));
}

TEST(pairs_are_sorted_by_expert_and_then_by_token) {
    const int32_t expert[5][2] = {{2, 0}, {3, 2}, {0, 3}, {2, 3}, {0, 2}};
    int32_t start[5], order[10], place[10];
    struct call_moe_sort call =
        MAKE(struct call_moe_sort, .expert = expert[0], .start = start, .order = order,
             .place = place, .n_tokens = 5, .n_active = 2, .n_experts = 4);
    ref_moe_sort(&call);
    const int32_t starts[5] = {0, 3, 3, 7, 10}, orders[10] = {1, 4, 8, 0, 3, 6, 9, 2, 5, 7};
    ck_assert_mem_eq(start, starts, sizeof starts);
    ck_assert_mem_eq(order, orders, sizeof orders);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(place[order[i]], i);
    }
}

TEST(another_ranks_experts_have_no_place) {
    const int32_t expert[3][2] = {{5, 0}, {3, 2}, {4, 3}};
    int32_t start[3], order[6], place[6];
    struct call_moe_sort call =
        MAKE(struct call_moe_sort, .expert = expert[0], .start = start, .order = order,
             .place = place, .n_tokens = 3, .n_active = 2, .n_experts = 2, .first_expert = 3);
    ref_moe_sort(&call);
    const int32_t starts[3] = {0, 2, 3}, places[6] = {-1, -1, 0, -1, 2, 1};
    ck_assert_mem_eq(start, starts, sizeof starts);
    ck_assert_mem_eq(place, places, sizeof places);
    ck_assert(order[0] == 2 && order[1] == 5 && order[2] == 4);
    call.n_tokens = 0;
    ref_moe_sort(&call);
    ck_assert_int_eq(start[2], 0);
}

enum { T = 37, A = 3, EXPERTS = 4, C = 24, F = 136, STRIDE = 32, PAIRS = T * A };

/* Expert 1 is nobody's, expert 3 everybody's: more rows than a panel has. */
struct mixture {
    float x[T][STRIDE], w1[EXPERTS][2 * F][C], w2[EXPERTS][C][F];
    float inner[PAIRS][F], outer[PAIRS][C];
    int32_t expert[PAIRS], start[EXPERTS + 1], order[PAIRS], place[PAIRS];
    struct call_moe_gate_up gate_up;
    struct call_moe_down down;
};

static struct mixture mixture;

static void mixture_init(struct mixture *m, bool one_expert) {
    struct rng rng = rng_stream(11, "experts");
    fill(m->x[0], T * STRIDE, "x");
    fill(m->w1[0][0], EXPERTS * 2 * F * C, "w1");
    fill(m->w2[0][0], EXPERTS * C * F, "w2");
    for (int p = 0; p < PAIRS; p++) {
        m->expert[p] = one_expert || p % A == 0 ? 3 : rng_uniform(&rng) < 0.2 ? 0 : 2;
    }
    const struct call_moe_sort sort =
        MAKE(struct call_moe_sort, .expert = m->expert, .start = m->start, .order = m->order,
             .place = m->place, .n_tokens = T, .n_active = A, .n_experts = EXPERTS);
    ref_moe_sort(&sort);
    m->gate_up =
        MAKE(struct call_moe_gate_up, .x = m->x, .w = m->w1, .start = m->start, .order = m->order,
             .y = m->inner, .x_stride = STRIDE, .n_tokens = T, .n_active = A, .n_experts = EXPERTS,
             .n_channels = C, .n_hidden = F, .dtype = KERNEL_F32);
    m->down = MAKE(struct call_moe_down, .x = m->inner, .w = m->w2, .start = m->start,
                   .y = m->outer, .n_tokens = T, .n_active = A, .n_experts = EXPERTS,
                   .n_channels = C, .n_hidden = F, .dtype = KERNEL_F32);
    memset(m->inner, 0xff, sizeof m->inner);
    memset(m->outer, 0xff, sizeof m->outer);
}

static struct device *cpu;

static void open_cpu(void) {
    char why[DEVICE_TEXT_CHARS];
    ck_assert_int_eq(device_cpu.open(0, KERNEL_F32, &cpu, why), DEVICE_OK);
}

/* The dense products of the tokens of one expert, gathered. */
static void dense_of(const struct mixture *m, int e, bool reference, float (*inner)[F],
                     float (*outer)[C]) {
    const int n = m->start[e + 1] - m->start[e];
    float x[PAIRS][C];
    for (int i = 0; i < n; i++) {
        memcpy(x[i], m->x[m->order[m->start[e] + i] / A], sizeof x[i]);
    }
    const struct call_gate_up first =
        MAKE(struct call_gate_up, .x = x, .w = m->w1[e], .y = inner, .x_stride = C, .y_stride = F,
             .n_tokens = n, .n_channels = C, .n_hidden = F, .dtype = KERNEL_F32);
    const struct call_linear second =
        MAKE(struct call_linear, .x = inner, .w = m->w2[e], .y = outer, .x_stride = F,
             .y_stride = C, .n_tokens = n, .n_outputs = C, .n_inputs = F, .dtype = KERNEL_F32);
    if (reference) {
        ref_gate_up(&first);
        ref_linear(&second);
    } else {
        ck_assert_int_eq(device_cpu.gate_up(cpu, &first), DEVICE_OK);
        ck_assert_int_eq(device_cpu.linear(cpu, &second), DEVICE_OK);
    }
}

static void run_products(struct mixture *m, bool reference) {
    if (reference) {
        ref_moe_gate_up(&m->gate_up);
        ref_moe_down(&m->down);
    } else {
        ck_assert_int_eq(device_cpu.moe_gate_up(cpu, &m->gate_up), DEVICE_OK);
        ck_assert_int_eq(device_cpu.moe_down(cpu, &m->down), DEVICE_OK);
    }
}

/* To the bit, of the reference implementations and of the CPU's own. */
TEST(an_experts_products_are_the_dense_ones_of_its_tokens) {
    static float inner[PAIRS][F], outer[PAIRS][C];
    struct mixture *m = &mixture;
    open_cpu();
    for (int reference = 0; reference < 2; reference++) {
        mixture_init(m, false);
        ck_assert_int_eq(m->start[1], m->start[2]);
        run_products(m, reference);
        for (int e = 0; e < EXPERTS; e++) {
            const int first = m->start[e], n = m->start[e + 1] - first;
            dense_of(m, e, reference, inner, outer);
            ck_assert_mem_eq(m->inner[first], inner, (size_t)n * sizeof inner[0]);
            ck_assert_mem_eq(m->outer[first], outer, (size_t)n * sizeof outer[0]);
        }
    }
    device_cpu.close(cpu);
}

TEST(an_expert_that_holds_all_is_the_dense_layer) {
    static float y[T][C], dense[PAIRS][F], want[PAIRS][C];
    struct mixture *m = &mixture;
    float weight[PAIRS];
    open_cpu();
    for (int p = 0; p < PAIRS; p++) {
        weight[p] = p % A == 0 ? 0.5f : 0.25f; /* sums of halves and quarters are exact */
    }
    for (int reference = 0; reference < 2; reference++) {
        mixture_init(m, true);
        run_products(m, reference);
        const struct call_moe_combine combine =
            MAKE(struct call_moe_combine, .x = m->outer, .weight = weight, .place = m->place,
                 .y = y, .n_tokens = T, .n_active = A, .n_channels = C, .dtype = KERNEL_F32);
        ref_moe_combine(&combine);
        dense_of(m, 3, reference, dense, want);
        for (int t = 0; t < T; t++) {
            ck_assert_mem_eq(y[t], want[t * A], sizeof y[t]);
        }
    }
    device_cpu.close(cpu);
}

TEST(co_batched_tokens_do_not_change_a_tokens_bits) {
    static float inner[PAIRS][F], outer[PAIRS][C];
    struct mixture *m = &mixture;
    open_cpu();
    mixture_init(m, false);
    run_products(m, false);
    memcpy(inner, m->inner, sizeof inner);
    memcpy(outer, m->outer, sizeof outer);
    for (int t = 0; t < T; t += 5) { /* one token alone */
        int32_t start[EXPERTS + 1], order[A], place[A];
        const struct call_moe_sort sort =
            MAKE(struct call_moe_sort, .expert = m->expert + t * A, .start = start, .order = order,
                 .place = place, .n_tokens = 1, .n_active = A, .n_experts = EXPERTS);
        ref_moe_sort(&sort);
        struct call_moe_gate_up gate_up = m->gate_up;
        struct call_moe_down down = m->down;
        gate_up.x = m->x[t];
        gate_up.n_tokens = down.n_tokens = 1;
        gate_up.start = down.start = start;
        gate_up.order = order;
        ck_assert_int_eq(device_cpu.moe_gate_up(cpu, &gate_up), DEVICE_OK);
        ck_assert_int_eq(device_cpu.moe_down(cpu, &down), DEVICE_OK);
        for (int a = 0; a < A; a++) {
            ck_assert_mem_eq(m->inner[place[a]], inner[m->place[t * A + a]], sizeof inner[0]);
            ck_assert_mem_eq(m->outer[place[a]], outer[m->place[t * A + a]], sizeof outer[0]);
        }
    }
    device_cpu.close(cpu);
}

TEST(what_comes_back_is_weighted_and_other_ranks_parts_are_left_out) {
    const float x[3][2] = {{1, 2}, {10, 20}, {100, 200}};
    const float weight[2][2] = {{0.5f, 2}, {3, 0.25f}}, add[2][2] = {{7, 8}, {9, 10}};
    const int32_t place[2][2] = {{1, 0}, {-1, 2}};
    float y[2][2];
    struct call_moe_combine call =
        MAKE(struct call_moe_combine, .x = x, .weight = weight[0], .place = place[0], .y = y,
             .n_tokens = 2, .n_active = 2, .n_channels = 2, .dtype = KERNEL_F32);
    ref_moe_combine(&call);
    ck_assert(y[0][0] == 7 && y[0][1] == 14 && y[1][0] == 25 && y[1][1] == 50);
    memcpy(y, add, sizeof y);
    call.add = y; /* in place */
    ref_moe_combine(&call);
    ck_assert(y[0][0] == 14 && y[0][1] == 22 && y[1][0] == 34 && y[1][1] == 60);
}

SUITE("moe_kernels")
