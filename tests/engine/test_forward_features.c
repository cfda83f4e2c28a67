/* dLLM-Cache's features in the forward pass: what has not changed stays as it was, to the bit,
 * whichever rows run again. */
#include "tests/support/forward.h"

enum { CANVAS = 23, PROMPT = 9 };

static const struct graph_options features =
    ENGINE_GRAPH(.fused = true, .logits_bytes = 2, .splits_first_layer = true,
                 .compares_values = true);

static struct rig *open_rig(const struct model *model) {
    static struct step_limits own;
    own = limits;
    own.max_stream_tokens = MAX_TOKENS;
    own.renews_rows = true;
    const struct rig_setup setup = {model, &features, "random:5", NULL, KERNEL_F32, &own};
    return rig_set_up(&setup);
}

/* A pass of a request of which `queries` run after the first layer, `given` of them as they come
 * from position `first` on, and the others are picked of `compared`. */
static void add(struct rig *rig, int request, uint32_t queries, uint32_t compared, int first,
                int given) {
    const struct step_part part = {.canvas = (int64_t)request * CANVAS_TOKENS,
                                   .positions = count,
                                   .run = {first, given},
                                   .kv = {(int64_t)request * STORE, CANVAS}};
    struct span *span = rig_add(rig, queries, CANVAS - queries, &part);
    span->first_queries = span->logit_rows = CANVAS;
    span->value_rows = compared;
}

TEST(what_has_not_changed_stays_as_it_was) {
    static float logits[2 * CANVAS * MAX_VOCAB], pool[POOL];
    static const struct {
        uint32_t queries, compared;
        int first, given;
    } passes[] = {
        {CANVAS, 0, 0, CANVAS},          {CANVAS - PROMPT, 0, PROMPT, CANVAS - PROMPT},
        {4, CANVAS - PROMPT, PROMPT, 0}, {CANVAS - PROMPT, CANVAS - PROMPT, PROMPT, 0},
        {PROMPT + 3, CANVAS, 0, PROMPT}, {PROMPT, CANVAS, 0, PROMPT},
        {PROMPT, 0, 0, PROMPT},          {0, 0, PROMPT, 0},
    };
    for (int m = 0; m < N_MODELS; m++) {
        struct rig *rig = open_rig(models[m]);
        const size_t n = 2 * CANVAS * (size_t)models[m]->vocab;
        draw_ids(models[m], 11);
        rig_write(rig, 0, 0, ids, CANVAS);
        rig_write(rig, 1, 0, ids + CANVAS, CANVAS);
        rig_clear(rig);
        add(rig, 0, CANVAS, 0, 0, CANVAS);
        add(rig, 1, CANVAS, 0, 0, CANVAS);
        rig_step(rig);
        memcpy(logits, rig->logits, n * sizeof *logits);
        memcpy(pool, rig_pool(rig), sizeof pool);
        for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
            const size_t j = (i * 3 + 1) % (sizeof passes / sizeof passes[0]); /* unlike batches */
            rig_clear(rig);
            add(rig, 0, passes[i].queries, passes[i].compared, passes[i].first, passes[i].given);
            add(rig, 1, passes[j].queries, passes[j].compared, passes[j].first, passes[j].given);
            rig_step(rig);
            ck_assert_msg(memcmp(logits, rig->logits, n * sizeof *logits) == 0,
                          "%s, passes %zu, %zu", models[m]->name, i, j);
            ck_assert_msg(memcmp(pool, rig_pool(rig), sizeof pool) == 0,
                          "%s, passes %zu, %zu: pool", models[m]->name, i, j);
        }
        ck_assert_int_eq(rig_close(rig), 0);
    }
}

SUITE("forward features")
