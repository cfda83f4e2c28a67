/* Mixtures of experts in the forward pass where they must be what a dense model is; how many
 * experts a step's tokens go to. Everything else about them is in the suites of all models. */
#include "tests/support/chain.h"

static double logits_naive[MAX_NAIVE][MAX_VOCAB];
static struct naive_kv own;

enum { N_TOKENS = 41 };

static struct model dense_twin(void) {
    struct model model = llada;
    model.name = "sdar-dense";
    model.family = "sdar"; /* the mixtures have its constants */
    model.qk_norm = true;
    return model;
}

static struct model mixture_of(uint32_t experts, uint32_t active, enum router_kind router) {
    struct model model = dense_twin();
    model.name = "sdar-mixture";
    model.family = "sdar_moe";
    model.expert_ffn = model.ffn;
    model.ffn = 0;
    model.router = router;
    model.experts = experts;
    model.experts_active = active;
    model.expert_groups = model.expert_groups_active = 1;
    model.expert_bias = router == ROUTER_SIGMOID_GROUPED;
    model.norm_topk = true;
    model.routed_scale = 1;
    return model;
}

static float *at(const struct rig *rig, enum weight_slot slot, uint32_t layer) {
    int64_t offset = weight_offset_bytes(&rig->weights.layout, slot, layer);
    return (float *)(void *)(rig->weights.block + offset);
}

/* The dense model's weights; every expert is the dense layer. */
static void copy_weights(const struct rig *from, const struct rig *to) {
    const struct model *m = from->graph.model;
    size_t matrix = (size_t)m->ffn * m->hidden;
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        for (int s = 0; s < WEIGHT_GATE_UP; s++) {
            enum weight_slot slot = (enum weight_slot)s;
            int64_t rows, columns, n = 0;
            for (int part = 0; weight_part_shape(m, slot, part, &rows, &columns); part++) {
                n += rows * columns;
            }
            if (n > 0) {
                memcpy(at(to, slot, layer), at(from, slot, layer), (size_t)n * sizeof(float));
            }
        }
        for (uint32_t e = 0; e < to->graph.model->experts; e++) {
            memcpy(at(to, WEIGHT_EXPERTS_GATE_UP, layer) + e * 2 * matrix,
                   at(from, WEIGHT_GATE_UP, layer), 2 * matrix * sizeof(float));
            memcpy(at(to, WEIGHT_EXPERTS_DOWN, layer) + e * matrix, at(from, WEIGHT_DOWN, layer),
                   matrix * sizeof(float));
        }
    }
}

static void run_pass(struct rig *rig) {
    draw_ids(rig->graph.model, 5);
    rig_write(rig, 0, 0, ids, N_TOKENS);
    rig_clear(rig);
    rig_add(rig, N_TOKENS, 0, &(struct step_part){.positions = count});
    rig_step(rig);
}

/* Logits of both, the mixture's experts all alike. */
static void compare(const struct model *mixture, double bound) {
    const struct model model = dense_twin();
    struct graph_options one_operator = fused;
    one_operator.fused_gate_up = true;
    struct rig *dense = rig_open(&model, &one_operator, "random:31");
    struct rig *rig = rig_open(mixture, &one_operator, "random:32");
    copy_weights(dense, rig);
    run_pass(dense);
    run_pass(rig);
    size_t n = (size_t)N_TOKENS * model.vocab;
    if (bound == 0) {
        ck_assert_mem_eq(rig->logits, dense->logits, n * sizeof(float));
    }
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)rig->logits[i] - (double)dense->logits[i];
        difference += d * d;
        norm += (double)dense->logits[i] * (double)dense->logits[i];
    }
    ck_assert(norm > 0);
    ck_assert_double_le(sqrt(difference / norm), bound);
    rig_close(dense);
    rig_close(rig);
}

TEST(one_expert_that_holds_all_is_the_dense_layer_bit_for_bit) {
    static const enum router_kind routers[] = {ROUTER_SOFTMAX, ROUTER_SIGMOID_GROUPED};
    for (int i = 0; i < 2; i++) {
        const struct model mixture = mixture_of(1, 1, routers[i]);
        compare(&mixture, 0);
    }
}

TEST(experts_that_are_all_alike_are_the_dense_layer) {
    static const enum router_kind routers[] = {ROUTER_SOFTMAX, ROUTER_SIGMOID_GROUPED};
    for (int i = 0; i < 4; i++) {
        const struct model mixture = mixture_of(8, i < 2 ? 3 : 8, routers[i % 2]);
        compare(&mixture, 2e-6);
    }
}

/* What a layer's tokens are normed to is not seen from here: between one token's experts and all.
 */
TEST(a_step_says_how_many_experts_its_tokens_go_to) {
    for (int n = 1; n <= 64; n *= 4) {
        struct rig *rig = rig_open(&llada_moe, &fused, "random:11");
        struct err err = {0};
        uint32_t n_choices = 0;
        draw_ids(&llada_moe, 7);
        rig_write(rig, 0, 0, ids, n);
        rig_clear(rig);
        rig_add(rig, (uint32_t)n, 0, &(struct step_part){.positions = count});
        rig_plan(rig);
        ck_assert_int_eq(forward_begin(rig->forward, &rig->step, &err), 0);
        while (forward_instance(rig->forward) != NULL) {
            const struct op_instance instance = *forward_instance(rig->forward);
            ck_assert_int_eq(forward_next(rig->forward, &err), 0);
            if (rig->graph.ops[instance.op].kind == OP_MOE_CHOOSE) {
                uint32_t hit = 0;
                ck_assert_int_eq(forward_experts_hit(rig->forward, &instance, &hit, &err), 0);
                ck_assert_uint_ge(hit, llada_moe.experts_active);
                ck_assert_uint_le(hit, llada_moe.experts);
                ck_assert(n > 1 || hit == llada_moe.experts_active);
                ck_assert(n < 64 || hit == llada_moe.experts);
                n_choices++;
            }
        }
        ck_assert_uint_eq(n_choices, llada_moe.layers);
        rig_close(rig);
    }
}

/* Every token's own positions in a half of each head's channels; the others keep theirs. */
TEST(the_full_pass_of_a_block_causal_mixture_equals_an_independent_forward) {
    for (int chunks = 0; chunks < 2; chunks++) {
        struct rig *rig = exact_rig(&llada2_blocks, &exact, 16);
        static struct chain chain;
        chain = (struct chain){.canvas = 52, .prompt = 40, .block = 4};
        rig->chunks = chunks == 0 ? (struct chunk_rows){{0}} : (struct chunk_rows){{0, 5, 3}};
        chain_start(&chain, 1, rig);
        chain_place(&chain, 16, 0);
        rig_clear(rig);
        chain_add(&chain, rig);
        rig->spans[0].logit_rows = (uint32_t)chain.queries;
        rig->parts[0].logit_rows = rig->parts[0].targets = NULL;
        rig_step(rig);
        naive_masked(&rig->weights, chain.tokens, 0, chain.queries, NULL, chain.extents, &own,
                     logits_naive);
        if (chunks == 0) {
            double error =
                relative_error(rig->logits, logits_naive, chain.queries, (int)llada2_blocks.vocab);
            ck_assert_msg(error <= 1e-5, "%g", error);
        }
        for (int t = 0; t < chain.queries; t++) {
            assert_decision(rig, t, logits_naive[t]);
        }
        rig_close(rig);
    }
}

SUITE("forward_moe")
