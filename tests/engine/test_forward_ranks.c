/* Several ranks compute what one device computes. */
#include <pthread.h>

#include "engine/weights/ranks.h"
#include "sim/model/ranks.h"
#include "tests/support/forward.h"

/* Shapes that 2 and 4 ranks can divide: full heads; grouped ones with biases, of which four ranks
 * hold each twice; head norms and a tied head. */
static const struct model full_heads =
    TINY(.name = "llada-tiny", .family = "llada", .title = "full heads", .layers = 2, .hidden = 32,
         .heads = 4, .kv_heads = 4, .head_dim = 8, .ffn = 48, .vocab = 64, .mask_token = 63);
static const struct model few_heads =
    TINY(.name = "dream-tiny", .family = "Dream", .title = "few key-value heads", .layers = 2,
         .hidden = 48, .heads = 8, .kv_heads = 2, .head_dim = 8, .ffn = 56, .vocab = 60,
         .mask_token = 5, .qkv_bias = true, .shifted_logits = true);
static const struct model tied_head =
    TINY(.name = "sdar-tiny", .family = "sdar", .title = "tied head", .layers = 3, .hidden = 40,
         .heads = 4, .kv_heads = 2, .head_dim = 18, .ffn = 40, .vocab = 36, .mask_token = 0,
         .qk_norm = true, .tied = true);
/* Experts behind a dense layer, in groups, with a bias and one that is shared. */
static const struct model experts =
    TINY(.name = "llada2-tiny", .family = "llada2_moe", .title = "experts", .layers = 3,
         .hidden = 32, .heads = 4, .kv_heads = 2, .head_dim = 8, .rotary_dim = 4, .ffn = 48,
         .vocab = 64, .mask_token = 63, .qk_norm = true, .router = ROUTER_SIGMOID_GROUPED,
         .experts = 16, .experts_active = 4, .expert_ffn = 32, .shared_experts = 1,
         .shared_ffn = 40, .dense_layers = 1, .expert_groups = 4, .expert_groups_active = 2,
         .expert_bias = true, .norm_topk = true, .routed_scale = 2.5);
/* Experts in every layer, by a softmax. */
static const struct model plain_experts =
    TINY(.name = "llada-moe-tiny", .family = "lladamoe", .title = "plain experts", .layers = 2,
         .hidden = 32, .heads = 4, .kv_heads = 4, .head_dim = 8, .vocab = 64, .mask_token = 63,
         .qk_norm = true, .router = ROUTER_SOFTMAX, .experts = 8, .experts_active = 4,
         .expert_ffn = 32);
/* Models, and whether ranks divide experts or the width of each. */
static const struct {
    const struct model *model;
    bool by_expert;
} divisible[] = {{&full_heads, false},  {&few_heads, false},     {&tied_head, false},
                 {&experts, false},     {&plain_experts, false}, {&experts, true},
                 {&plain_experts, true}};
enum { CANVAS = 40, BEGIN = 16, BLOCK = 8 };

static const struct graph_options fused_head =
    ENGINE_GRAPH(.fused = true, .stored_rows = SYM_FULL_Q, .fused_head = true,
                 .fused_gate_up = true);

static const struct graph_options statistics =
    ENGINE_GRAPH(.fused = true, .stored_rows = SYM_FULL_Q, .fused_head = true,
                 .fused_gate_up = true, .statistics = true);
static const struct graph_options stored_statistics =
    ENGINE_GRAPH(.fused = true, .stored_rows = SYM_FULL_Q, .logits_bytes = 2, .statistics = true);

struct together {
    struct model rank;
    struct rig *rig; /* rank 0 */
    struct ranks *ranks;
};

static void together_lead(struct together *t, const char *source) {
    struct err err = {0};
    const struct ranks_request request = {.device = &t->rig->device,
                                          .model = &t->rank,
                                          .storage = t->rig->graph.storage,
                                          .weights = source};
    ck_assert_msg(ranks_open(&request, &t->ranks, &err) == 0, "%s", err.text);
    ck_assert_msg(forward_lead(t->rig->forward, t->ranks, &err) == 0, "%s", err.text);
}

static void together_open_by(struct together *t, const struct model *model, uint32_t n,
                             bool by_expert, const struct graph_options *options,
                             const char *source) {
    struct err err = {0};
    ck_assert_msg(model_divide(model, n, by_expert, &t->rank, &err) == 0, "%s", err.text);
    t->rig = rig_open(&t->rank, options, source);
    together_lead(t, source);
}

static void together_open(struct together *t, const struct model *model, uint32_t n,
                          const struct graph_options *options, const char *source) {
    together_open_by(t, model, n, false, options, source);
}

static void together_close(struct together *t) {
    forward_close(t->rig->forward);
    t->rig->forward = NULL;
    ranks_close(t->ranks);
    ck_assert_int_eq(rig_close(t->rig), 0);
}

/* A whole pass that keeps its rows, then a block against those before it; both decide. */
static void first_step(struct rig *rig) {
    static int32_t kv_rows[CANVAS];
    for (int i = 0; i < CANVAS; i++) {
        kv_rows[i] = i < BEGIN ? i : -1;
    }
    rig_clear(rig);
    rig_add(rig, CANVAS, 0,
            &MAKE(struct step_part, .positions = count, .kv_rows = kv_rows, .kv = {0, BEGIN},
                  .decision = {BEGIN, BLOCK, 3}));
    rig_add(rig, 11, 0, &(struct step_part){.canvas = CANVAS_TOKENS, .positions = count});
    rig_step(rig);
}

static void second_step(struct rig *rig) {
    rig_clear(rig);
    rig_add(rig, BLOCK, BEGIN,
            &(struct step_part){
                .positions = count + BEGIN, .kv = {0, BEGIN}, .decision = {0, BLOCK, 0}});
    rig_step(rig);
}

static void start(struct rig *rig, const struct model *model) {
    int32_t tokens[CANVAS];
    draw_ids(model, 3);
    for (int i = 0; i < CANVAS; i++) {
        tokens[i] = i < BEGIN ? ids[i] : (int32_t)model->mask_token;
    }
    rig_write(rig, 0, 0, tokens, CANVAS);
    rig_write(rig, 1, 0, ids, CANVAS);
}

/* Tokens alike, confidences within what single precision sums differ by. */
static void assert_same(const struct rig *one, const struct rig *many, int n_rows) {
    for (int row = 0; row < n_rows; row++) {
        ck_assert_int_eq(one->token[row], many->token[row]);
        ck_assert_double_eq_tol((double)many->confidence[row] / (double)one->confidence[row], 1,
                                1e-5);
        ck_assert_uint_eq(one->committed[row], many->committed[row]);
    }
}

static void decide_as_one(const struct model *model, uint32_t n, bool by_expert,
                          const struct graph_options *options) {
    struct together t;
    struct rig *one = rig_open(model, options, "random:5");
    int32_t alone[CANVAS], canvas[CANVAS];
    together_open_by(&t, model, n, by_expert, options, "random:5");
    start(one, model);
    start(t.rig, model);
    first_step(one);
    first_step(t.rig);
    assert_same(one, t.rig, CANVAS + 11);
    second_step(one);
    second_step(t.rig);
    assert_same(one, t.rig, BLOCK);
    rig_read(one, 0, 0, alone, CANVAS);
    rig_read(t.rig, 0, 0, canvas, CANVAS);
    ck_assert_mem_eq(alone, canvas, sizeof canvas);
    for (uint32_t rank = 1; rank < n; rank++) {
        struct err err = {0};
        struct forward *other = forward_of_rank(t.rig->forward, rank);
        ck_assert_int_eq(forward_read_canvas(other, 0, canvas, CANVAS, &err), 0);
        ck_assert_mem_eq(alone, canvas, sizeof canvas);
    }
    together_close(&t);
    rig_close(one);
}

TEST(ranks_decide_as_one_device) {
    static const struct graph_options *const options[] = {&fused, &fused_head, &eager};
    for (size_t i = 0; i < sizeof divisible / sizeof divisible[0]; i++) {
        for (uint32_t n = 2; n <= 4; n *= 2) {
            for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
                decide_as_one(divisible[i].model, n, divisible[i].by_expert, options[o]);
            }
        }
    }
}

/* What decoders read of a row beside its confidence. */
TEST(statistics_of_divided_rows_are_those_of_whole_ones) {
    static const struct graph_options *const options[] = {&statistics, &stored_statistics};
    enum { ROWS = CANVAS + 11 };
    for (size_t i = 0; i < 12; i++) {
        const struct model *model = divisible[i % 3].model;
        static float margin[2][MAX_TOKENS], entropy[2][MAX_TOKENS];
        struct together t;
        struct rig *one = rig_open(model, options[i / 3 % 2], "random:6");
        together_open(&t, model, i < 6 ? 2 : 4, options[i / 3 % 2], "random:6");
        struct rig *rigs[] = {one, t.rig};
        for (int side = 0; side < 2; side++) {
            rigs[side]->result.margin = margin[side];
            rigs[side]->result.entropy = entropy[side];
            start(rigs[side], model);
            first_step(rigs[side]);
        }
        assert_same(one, t.rig, ROWS);
        for (int row = 0; row < ROWS; row++) {
            ck_assert_float_gt(margin[0][row], 0);
            ck_assert_float_lt(entropy[0][row], 0);
            ck_assert_float_eq_tol(margin[1][row], margin[0][row], 2e-6F);
            ck_assert_float_eq_tol(entropy[1][row], entropy[0][row], 2e-5F);
        }
        together_close(&t);
        rig_close(one);
    }
}

/* The CPU, which would wait for its queue, and so for other ranks, whenever it meets a product of
 * new sizes: that has to be while nobody waits for it. */
enum { TRYING_DEVICES = 4, TRYING_SIZES = 1024 };
static struct trying {
    const struct device *device;
    bool has_met; /* others since it was last waited for */
    int32_t sizes[TRYING_SIZES][3];
    int n_sizes, n_late;
} trying[TRYING_DEVICES];
static pthread_mutex_t trying_lock = PTHREAD_MUTEX_INITIALIZER;

static struct trying *trying_of(const struct device *device) {
    pthread_mutex_lock(&trying_lock);
    struct trying *found = NULL;
    for (int i = 0; found == NULL; i++) {
        ck_assert_int_lt(i, TRYING_DEVICES);
        if (trying[i].device == NULL || trying[i].device == device) {
            found = &trying[i];
        }
    }
    found->device = device;
    pthread_mutex_unlock(&trying_lock);
    return found;
}

static bool trying_chosen(const struct device *device, const struct call_linear *call) {
    const struct trying *t = trying_of(device);
    const int32_t size[] = {call->n_tokens, call->n_outputs, call->n_inputs};
    for (int i = 0; i < t->n_sizes; i++) {
        if (memcmp(t->sizes[i], size, sizeof size) == 0) {
            return true;
        }
    }
    return false;
}

static void try_out(struct device *device, const struct call_linear *call) {
    struct trying *t = trying_of(device);
    if (!trying_chosen(device, call)) {
        const int32_t size[] = {call->n_tokens, call->n_outputs, call->n_inputs};
        ck_assert_int_lt(t->n_sizes, TRYING_SIZES);
        memcpy(t->sizes[t->n_sizes++], size, sizeof size);
        t->n_late += t->has_met;
    }
}

static int trying_linear(struct device *device, const struct call_linear *call) {
    try_out(device, call);
    return device_cpu.linear(device, call);
}

static int trying_all_reduce(struct device *device, const struct call_all_reduce *call) {
    trying_of(device)->has_met = true;
    return device_cpu.all_reduce(device, call);
}

static int trying_mark_wait(struct device *device, struct device_event *mark) {
    trying_of(device)->has_met = false;
    return device_cpu.event_wait(device, mark);
}

TEST(products_are_chosen_while_no_rank_waits_for_another) {
    struct device_table table = device_cpu;
    struct err err = {0};
    struct together t;
    double ns[GRAPH_MAX_OPS];
    memset(trying, 0, sizeof trying);
    table.linear = trying_linear;
    table.linear_chosen = trying_chosen;
    table.all_reduce = trying_all_reduce;
    table.event_wait = trying_mark_wait;
    ck_assert_int_eq(model_divide(&full_heads, 4, false, &t.rank, &err), 0);
    const struct rig_setup setup = {&t.rank, &fused, "random:1", &table, KERNEL_F32, NULL};
    t.rig = rig_set_up(&setup);
    together_lead(&t, "random:1");
    start(t.rig, &full_heads);
    first_step(t.rig);
    ck_assert_int_eq(forward_wait(t.rig->forward, ns, &err), 0);
    second_step(t.rig);
    ck_assert_int_eq(forward_wait(t.rig->forward, ns, &err), 0);
    rig_clear(t.rig);
    rig_add(t.rig, 23, 0, &(struct step_part){.positions = count});
    rig_plan(t.rig);
    ck_assert_int_eq(forward_begin(t.rig->forward, &t.rig->step, &err), 0);
    ck_assert_int_eq(forward_finish_instances(t.rig->forward, &err), 0);
    ck_assert_ptr_null(forward_instance(t.rig->forward));
    ck_assert_int_eq(forward_instance_times(t.rig->forward, INFINITY, ns, &err), 0);
    for (int i = 0; i < TRYING_DEVICES; i++) {
        ck_assert_int_ge(trying[i].n_sizes, 12); /* four products, three sizes */
        ck_assert_int_eq(trying[i].n_sizes, trying[0].n_sizes);
        ck_assert_int_eq(trying[i].n_late, 0);
    }
    together_close(&t);
}

/* Gates and ups of a device without a kernel for both. */
static int trying_gate_up(struct device *device, const struct call_gate_up *call) {
    const struct call_linear product = {
        .n_tokens = call->n_tokens, .n_outputs = 2 * call->n_hidden, .n_inputs = call->n_channels};
    try_out(device, &product);
    return device_cpu.gate_up(device, call);
}

static bool has_gates(const struct trying *t, int32_t n_outputs, int32_t n_tokens) {
    bool has = false;
    for (int i = 0; i < t->n_sizes; i++) {
        has = has || (t->sizes[i][0] == n_tokens && t->sizes[i][1] == n_outputs);
    }
    return has;
}

/* So that the first request of its length waits for no choice; with a kernel for gates and ups
 * there is nothing to choose. */
TEST(products_behind_gates_and_ups_are_chosen_before_the_first_step) {
    for (int apart = 0; apart < 2; apart++) {
        struct device_table table = device_cpu;
        struct err err = {0};
        memset(trying, 0, sizeof trying);
        table.linear = trying_linear;
        table.linear_chosen = trying_chosen;
        table.gate_up = apart ? trying_gate_up : device_cpu.gate_up;
        struct graph_options by_gates = fused;
        by_gates.fused_gate_up = true;
        const struct rig_setup setup = {&few_heads, &by_gates,  "random:1",
                                        &table,     KERNEL_F32, NULL};
        struct rig *rig = rig_set_up(&setup);
        start(rig, &few_heads);
        ck_assert_msg(forward_warm(rig->forward, NULL, &err) == 0, "%s", err.text);
        const int32_t n_outputs = 2 * (int32_t)few_heads.ffn;
        for (int32_t n = 1; n < MAX_TOKENS && n < 64; n++) {
            ck_assert(has_gates(&trying[0], n_outputs, n) == (apart == 1));
        }
        const int n_warm = trying[0].n_sizes;
        first_step(rig);
        ck_assert_int_eq(trying[0].n_sizes, n_warm);
        rig_close(rig);
    }
}

/* Each rank has columns of them. */
TEST(logits_that_ranks_divide_are_whole_rows) {
    enum { ROWS = CANVAS + 11 };
    for (uint32_t n = 2; n <= 4; n *= 2) {
        struct together t;
        struct graph_options read = fused;
        read.host_reads_logits = true;
        struct rig *one = rig_open(&full_heads, &read, "random:8");
        struct rig *rigs[] = {one, NULL};
        static float logits[2][ROWS * 64];
        struct err err = {0};
        together_open(&t, &full_heads, n, &read, "random:8");
        rigs[1] = t.rig;
        for (int side = 0; side < 2; side++) {
            start(rigs[side], &full_heads);
            first_step(rigs[side]);
            ck_assert_int_eq(forward_logits(rigs[side]->forward, logits[side], &err), 0);
        }
        for (size_t i = 0; i < ROWS * (size_t)full_heads.vocab; i++) {
            ck_assert_float_eq_tol(logits[0][i], logits[1][i], 1e-5F);
        }
        together_close(&t);
        rig_close(one);
    }
}

/* Logits of the first step, of all rows, in this storage on that many ranks. */
static void logits_in(const struct model *model, bool by_expert, const struct storage *storage,
                      uint32_t n, float *logits) {
    struct graph_options read = fused;
    struct err err = {0};
    struct together t = {.rig = NULL};
    read.host_reads_logits = true;
    read.storage = *storage;
    if (n > 1) {
        together_open_by(&t, model, n, by_expert, &read, "random:8");
    } else {
        t.rig = rig_open(model, &read, "random:8");
    }
    start(t.rig, model);
    first_step(t.rig);
    ck_assert_int_eq(forward_logits(t.rig->forward, logits, &err), 0);
    if (n > 1) {
        together_close(&t);
    } else {
        rig_close(t.rig);
    }
}

static double distance(const float *a, const float *b, size_t n) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(apart / size);
}

/* Sums of another order round some inputs of products to the next code, and each rank's share has
 * scales of its own: ranks are as near to the model without fp8 as one device, and no nearer to
 * that. */
TEST(ranks_are_as_near_to_the_wide_model_in_fp8_as_one_device) {
    enum { ROWS = CANVAS + 11, MOST = ROWS * MAX_VOCAB };
    static float wide[MOST], one[MOST], many[MOST];
    const struct storage f32 = storage_of(NUMBER_F32);
    for (int i = 0; i < 4; i++) {
        const bool by_expert = i == 3;
        const struct model *model = i == 0 ? &full_heads : i == 1 ? &few_heads : &plain_experts;
        const size_t n = ROWS * (size_t)model->vocab;
        logits_in(model, false, &f32, 1, wide);
        for (int type = NUMBER_FP8; type <= NUMBER_FP8_CHANNEL; type++) {
            struct storage storage = f32;
            storage.weights = storage.activations = storage.head = (uint8_t)type;
            logits_in(model, false, &storage, 1, one);
            const double error = distance(one, wide, n);
            ck_assert_double_gt(error, 0.01);
            for (uint32_t ranks = 2; ranks <= 4 && model->ffn / ranks % 4 == 0; ranks *= 2) {
                logits_in(model, by_expert, &storage, ranks, many);
                const double of_ranks = distance(many, wide, n);
                ck_assert_msg(of_ranks < 1.3 * error,
                              "%s over %u in %s: %g from the wide model's, one device's %g",
                              model->title, ranks, number_words[type], of_ranks, error);
            }
        }
    }
}

TEST(logits_that_are_not_stored_are_not_given) {
    struct together t;
    struct err err = {0};
    together_open(&t, &full_heads, 2, &fused_head, "random:8");
    start(t.rig, &full_heads);
    first_step(t.rig);
    ck_assert_int_eq(forward_logits(t.rig->forward, t.rig->logits, &err), ERR_USAGE);
    together_close(&t);
}

TEST(steps_again_and_one_by_one_are_steps_of_all_ranks) {
    struct together t;
    struct err err = {0};
    struct rig *one = rig_open(&few_heads, &fused_head, "random:2");
    together_open(&t, &few_heads, 4, &fused_head, "random:2");
    struct rig *rigs[] = {one, t.rig};
    for (int i = 0; i < 2; i++) {
        double ns[GRAPH_MAX_OPS];
        start(rigs[i], &few_heads);
        first_step(rigs[i]);
        ck_assert_int_eq(forward_again(rigs[i]->forward, &err), 0);
        ck_assert_int_eq(forward_wait(rigs[i]->forward, ns, &err), 0);
        ck_assert_int_eq(forward_begin(rigs[i]->forward, &rigs[i]->step, &err), 0);
        while (forward_instance(rigs[i]->forward) != NULL) {
            ck_assert_int_eq(forward_next(rigs[i]->forward, &err), 0);
        }
        ck_assert_int_eq(forward_instance_times(rigs[i]->forward, INFINITY, ns, &err), 0);
        ck_assert_int_eq(rig_collect(rigs[i], &err), 0);
    }
    assert_same(one, t.rig, CANVAS + 11);
    together_close(&t);
    rig_close(one);
}

TEST(weights_of_the_ranks_are_parts_of_the_whole_ones) {
    struct rig *one = rig_open(&few_heads, &fused, "random:4");
    struct model rank;
    struct err err = {0};
    ck_assert_int_eq(model_divide(&few_heads, 4, false, &rank, &err), 0);
    for (uint32_t r = 0; r < 4; r++) {
        struct weights weights;
        ck_assert_int_eq(weights_open_rank(&weights, &one->device, &rank, r, "random:4", &err), 0);
        const float *mine = weights_at(&weights, WEIGHT_QKV, 1);
        const float *whole = weights_at(&one->weights, WEIGHT_QKV, 1);
        enum { C = 48, D = 8, F = 56 };
        /* Heads 2 r and 2 r + 1, and the key head that these attend to. */
        ck_assert_mem_eq(mine, whole + (int64_t)r * 2 * D * C, 2 * D * C * sizeof *mine);
        ck_assert_mem_eq(mine + 2 * D * C, whole + (8 + r / 2) * D * C, D * C * sizeof *mine);
        mine = weights_at(&weights, WEIGHT_DOWN, 1);
        whole = weights_at(&one->weights, WEIGHT_DOWN, 1);
        for (int row = 0; row < C; row++) {
            ck_assert_mem_eq(mine + row * (F / 4), whole + row * F + r * (F / 4),
                             F / 4 * sizeof *mine);
        }
        weights_close(&weights);
    }
    rig_close(one);
}

TEST(ranks_that_divide_experts_hold_them_whole) {
    struct rig *one = rig_open(&experts, &fused, "random:4");
    struct model rank;
    struct err err = {0};
    ck_assert_int_eq(model_divide(&experts, 4, true, &rank, &err), 0);
    for (uint32_t r = 0; r < 4; r++) {
        struct weights weights;
        enum { E = 16, MINE = 4, C = 32, F = 32 };
        ck_assert_int_eq(weights_open_rank(&weights, &one->device, &rank, r, "random:4", &err), 0);
        const float *mine = weights_at(&weights, WEIGHT_EXPERTS_GATE_UP, 2);
        const float *whole = weights_at(&one->weights, WEIGHT_EXPERTS_GATE_UP, 2);
        ck_assert_mem_eq(mine, whole + r * MINE * 2 * F * C, MINE * 2 * F * C * sizeof *mine);
        mine = weights_at(&weights, WEIGHT_EXPERTS_DOWN, 2);
        whole = weights_at(&one->weights, WEIGHT_EXPERTS_DOWN, 2);
        ck_assert_mem_eq(mine, whole + r * MINE * F * C, MINE * F * C * sizeof *mine);
        mine = weights_at(&weights, WEIGHT_ROUTER, 2);
        whole = weights_at(&one->weights, WEIGHT_ROUTER, 2);
        ck_assert_mem_eq(mine, whole, E * C * sizeof *mine);
        weights_close(&weights);
    }
    rig_close(one);
}

TEST(a_rank_that_fails_leaves_nobody_waiting) {
    struct together t;
    struct err err = {0};
    together_open(&t, &full_heads, 4, &fused, "random:1");
    start(t.rig, &full_heads);
    first_step(t.rig);
    t.rig->device.table->ranks_break(t.rig->device.device);
    rig_plan(t.rig);
    ck_assert_int_eq(forward_submit(t.rig->forward, &t.rig->step, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "another rank has stopped"));
    together_close(&t);
}

TEST(a_graph_of_one_rank_alone_is_not_run) {
    struct err err = {0};
    struct model rank;
    ck_assert_int_eq(model_divide(&full_heads, 2, false, &rank, &err), 0);
    struct rig *rig = rig_open(&rank, &fused, "random:1");
    start(rig, &full_heads);
    rig_clear(rig);
    rig_add(rig, 4, 0, &(struct step_part){.positions = count});
    rig_plan(rig);
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "a sum over ranks, of which it is none"));
    rig_close(rig);
}

SUITE("forward ranks")
