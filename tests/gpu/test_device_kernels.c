/* The CUDA device's kernels through its table, but for products: each once against its reference
 * implementation (test_kernels.c has their shapes and tails). */
#include "tests/gpu/on_device.h"

static void test_one_pass(void) {
    enum { T = 9, C = 264, V = 30, F = 72 };
    int32_t ids[40];
    int64_t at[T];
    for (int i = 0; i < 40; i++) {
        ids[i] = between(0, V - 1);
    }
    for (int t = 0; t < T; t++) {
        at[t] = between(0, 39);
    }
    struct buffer *weight = random_bf16(V * C, 1), *id = holding(ids, sizeof ids);
    struct buffer *places = holding(at, sizeof at), *y = poisoned(T * C * 2);
    struct buffer *residual = random_bf16(T * C, 1), *z = poisoned(T * C * 2);
    struct buffer *gate_up = random_bf16(T * 2 * F, 1), *s = poisoned(T * F * 2);
    struct buffer *both_weights = random_bf16(2 * F * C, 0.1), *g = poisoned(T * F * 2);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_embed call = {
            .n_tokens = T, .n_channels = C, .n_vocab = V, .dtype = KERNEL_BF16};
        BOTH(table, weight);
        BOTH(ids, id);
        BOTH(at, places);
        BOTH(y, y);
        side ? must(table->embed(device, &call), "embed") : ref_embed(&call);
    }
    check_bytes(y, "embed");
    for (int side = 0; side < 2; side++) {
        struct call_norm call = {
            .n_rows = T, .n_channels = C, .epsilon = 1e-5f, .dtype = KERNEL_BF16};
        BOTH(x, y);
        BOTH(weight, weight);
        BOTH(residual, residual);
        BOTH(y, z);
        side ? must(table->norm(device, &call), "norm") : ref_norm(&call);
    }
    check_rows(z, T, C, C, C, "norm");
    check_bytes(residual, "norm's residual");
    push(z); /* the reference's, as gate_up's input */
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_swiglu call = {
            .y_stride = F, .n_tokens = T, .n_hidden = F, .dtype = KERNEL_BF16};
        BOTH(gate_up, gate_up);
        BOTH(y, s);
        side ? must(table->swiglu(device, &call), "swiglu") : ref_swiglu(&call);
    }
    check_rows(s, T, F, F, 1, "swiglu");
    for (int side = 0; side < 2; side++) {
        struct call_gate_up call =
            MAKE(struct call_gate_up, .x_stride = C, .y_stride = F, .n_tokens = T, .n_channels = C,
                 .n_hidden = F, .dtype = KERNEL_BF16);
        BOTH(x, z);
        BOTH(w, both_weights);
        BOTH(y, g);
        side ? must(table->gate_up(device, &call), "gate_up") : ref_gate_up(&call);
    }
    check_rows(g, T, F, F, C, "gate_up");
    for (int side = 0; side < 2; side++) {
        struct call_random call =
            MAKE(struct call_random, .key = 7, .first = 1ll << 40, .n = T * C - 1, .centre = 0.25,
                 .spread = 0.03, .dtype = KERNEL_BF16);
        BOTH(y, y);
        side ? must(table->random(device, &call), "random") : ref_random(&call);
    }
    check_bytes(y, "random, bit for bit");
    buffers_free();
}

/* The middle of a step with eviction, captured and launched: importance of two blocks' tokens and
 * of none, compaction of what stays, and its attention over pages. */
static void test_focus(void) {
    enum { B = 3, T = 23, KEPT = 11, H = 4, G = 2, CANVAS = 40, BLOCK = 16 };
    enum { PAGE_ROWS = 8, PAGES = CANVAS / PAGE_ROWS, ROWS = B * CANVAS };
    const int32_t start[B + 1] = {0, 16, 16, T}, kept_start[B + 1] = {0, 7, 7, KEPT};
    int32_t row[T], kept[KEPT], kept_extent[KEPT], page[B][PAGES];
    uint8_t is_masked[T];
    for (int i = 0; i < B * PAGES; i++) {
        page[i / PAGES][i % PAGES] = i * 7 % (B * PAGES);
    }
    for (int t = 0; t < T; t++) {
        const int r = t < 16 ? 0 : 2, position = 24 + t - start[r];
        row[t] = page[r][position / PAGE_ROWS] * PAGE_ROWS + position % PAGE_ROWS;
        is_masked[t] = draw() % 3 != 0;
    }
    for (int i = 0; i < KEPT; i++) {
        kept[i] = i < 7 ? 2 * i + 1 : 2 * i + 2;
        kept_extent[i] = i < 7 ? 38 : 31;
    }
    struct buffer *starts = holding(start, sizeof start), *rows = holding(row, sizeof row);
    struct buffer *masked = holding(is_masked, sizeof is_masked),
                  *pages = holding(page, sizeof page);
    struct buffer *kept_starts = holding(kept_start, sizeof kept_start);
    struct buffer *kepts = holding(kept, sizeof kept);
    struct buffer *extents = holding(kept_extent, sizeof kept_extent);
    struct buffer *q = random_bf16(T * H * D, 1), *k = random_bf16(ROWS * G * D, 1);
    struct buffer *v = random_bf16(ROWS * G * D, 1), *importance = poisoned(T * 4);
    struct buffer *few = poisoned(T * H * D * 2), *y = poisoned(T * H * D * 2);
    struct device_graph *graph = NULL;
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_importance weigh =
            MAKE(struct call_importance, .q_stride = H * D, .kv_stride = G * D, .n_requests = B,
                 .n_heads = H, .n_kv_heads = G, .head_size = D, .max_masked = BLOCK,
                 .dtype = KERNEL_BF16);
        struct call_compact compact =
            MAKE(struct call_compact, .n_arrays = 1, .max_rows = T, .from_stride = {H * D},
                 .to_stride = {H * D}, .width = {H * D}, .dtype = KERNEL_BF16);
        struct call_paged_attention attend =
            MAKE(struct call_paged_attention, .q_stride = H * D, .kv_stride = G * D,
                 .y_stride = H * D, .n_requests = B, .n_tokens = T, .n_heads = H, .n_kv_heads = G,
                 .head_size = D, .max_pages = PAGES, .page_rows = PAGE_ROWS, .max_queries = BLOCK,
                 .max_extent = CANVAS, .dtype = KERNEL_BF16);
#define PUT(call, field, buffer) ((call).field = side ? (buffer)->device : (buffer)->host)
        PUT(weigh, q, q);
        PUT(weigh, k, k);
        PUT(weigh, kv_rows, rows);
        PUT(weigh, start, starts);
        PUT(weigh, masked, masked);
        PUT(weigh, importance, importance);
        PUT(compact, rows, kepts);
        PUT(compact, from[0], q);
        PUT(compact, to[0], few);
        compact.n_rows = (const int32_t *)(side ? kept_starts->device : kept_starts->host) + B;
        PUT(attend, q, few);
        PUT(attend, k, k);
        PUT(attend, v, v);
        PUT(attend, y, y);
        PUT(attend, start, kept_starts);
        PUT(attend, extent, extents);
        PUT(attend, pages, pages);
#undef PUT
        if (side) {
            must(table->capture_begin(device), "capture_begin");
            must(table->importance(device, &weigh), "importance");
            must(table->compact(device, &compact), "compact");
            must(table->paged_attention(device, &attend), "paged_attention");
            must(table->capture_end(device, &graph), "capture_end");
            must(table->graph_launch(device, graph), "graph_launch");
        } else {
            ref_importance(&weigh);
            ref_compact(&compact);
            if (!ref_paged_attention(&attend)) {
                exit(2);
            }
        }
    }
    check_bytes(few, "compacted rows");
    check_rows(y, (int64_t)KEPT * H, D, D, CANVAS + D, "attention of kept tokens");
    float *got = pull(importance);
    for (int t = 0; t < T; t++) {
        const double want = ((float *)importance->host)[t];
        check(fabs((double)got[t] - want) <= 2e-5 * want, "importance %d: %g, not %g", t,
              (double)got[t], want);
    }
    free(got);
    table->graph_close(device, graph);
    buffers_free();
}

/* Whole numbers, so that logits are exact and ties real; the head and the sampler agree. */
static void test_head(void) {
    enum { N = 12, C = 64, V = 1003 };
    struct buffer *x = random_bf16(N * C, 0), *w = random_bf16(V * C, 0);
    for (int64_t i = 0; i < N * C; i++) {
        ((uint16_t *)x->host)[i] = bf16_from_float((float)between(-1, 1));
    }
    for (int64_t i = 0; i < V * C; i++) {
        ((uint16_t *)w->host)[i] = bf16_from_float((float)between(-1, 1));
    }
    push(x);
    push(w);
    struct buffer *token = poisoned(N * 4), *confidence = poisoned(N * 4);
    struct buffer *scratch = poisoned(HEAD_SCRATCH_BYTES), *logits = buffer_new(N * V * 2);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_head call = {.n_rows = N, .n_channels = C, .n_vocab = V, .dtype = KERNEL_BF16};
        BOTH(x, x);
        BOTH(w, w);
        BOTH(token, token);
        BOTH(confidence, confidence);
        BOTH(scratch, scratch);
        if (side) {
            must(table->head(device, &call), "head");
        } else if (!ref_head(&call)) {
            exit(2);
        }
    }
    check_bytes(token, "head's tokens");
    for (int round = 0; round < 2; round++) {
        float *got = pull(confidence);
        bool good = true;
        for (int i = 0; i < N; i++) {
            const float want = ((float *)confidence->host)[i];
            good = good && fabsf(got[i] - want) <= 1e-5f * want;
        }
        check(good, "%s confidences", round ? "sample's" : "head's");
        free(got);
        if (round == 0) {
            struct call_linear one = MAKE(struct call_linear, .w = w->device, .y = scratch->device,
                                          .x_stride = C, .y_stride = V + 5, .n_tokens = 1,
                                          .n_outputs = V, .n_inputs = C, .dtype = KERNEL_BF16);
            const struct call_sample call = MAKE(
                struct call_sample, .logits = logits->device, .token = token->device,
                .confidence = confidence->device, .n_rows = N, .n_vocab = V, .dtype = KERNEL_BF16);
            for (int i = 0; i < N; i++) { /* rows must be contiguous: V is no multiple of 8 */
                one.x = (uint16_t *)x->device + i * C;
                must(table->linear(device, &one), "linear");
                must(
                    table->copy(device, (uint16_t *)logits->device + i * V, scratch->device, V * 2),
                    "copy");
            }
            must(table->clear(device, token->device, N * 4), "clear");
            must(table->clear(device, confidence->device, N * 4), "clear");
            must(table->sample(device, &call), "sample");
            check_bytes(token, "sample's tokens");
        }
    }
    buffers_free();
}

/* masked: how many of each request's positions are. All confidences tie. */
static void test_decode(int masked, bool fixed) {
    enum { B = 3, ROWS = 32, N = B * ROWS, MASK = 5 };
    float confidence[N], threshold[B];
    int32_t token[N], first[B], n_rows[B], take[B], canvas[N];
    int64_t position[N];
    for (int i = 0; i < N; i++) {
        confidence[i] = 0.75f;
        token[i] = 100 + i;
        position[i] = N - 1 - i;
        canvas[N - 1 - i] = (i * 7) % ROWS < masked ? MASK : 9;
    }
    for (int r = 0; r < B; r++) {
        first[r] = r * ROWS;
        n_rows[r] = ROWS;
        take[r] = 4;
        threshold[r] = 0.8f;
    }
    struct buffer *sure = holding(confidence, sizeof confidence);
    struct buffer *tokens = holding(token, sizeof token), *firsts = holding(first, sizeof first);
    struct buffer *lengths = holding(n_rows, sizeof n_rows), *takes = holding(take, sizeof take);
    struct buffer *positions = holding(position, sizeof position);
    struct buffer *thresholds = holding(threshold, sizeof threshold);
    struct buffer *canvases = holding(canvas, sizeof canvas), *committed = poisoned(N);
    struct buffer *counts = poisoned(B * 4);
    must(table->finish(device), "finish");
    for (int side = 0; side < 2; side++) {
        struct call_decode call =
            MAKE(struct call_decode, .n_requests = B, .max_rows = ROWS, .mask_token = MASK,
                 .rule = fixed ? DECODE_COUNT : DECODE_THRESHOLD);
        BOTH(confidence, sure);
        BOTH(token, tokens);
        BOTH(first_row, firsts);
        BOTH(n_rows, lengths);
        BOTH(position, positions);
        BOTH(canvas, canvases);
        BOTH(committed, committed);
        BOTH(n_committed, counts);
        BOTH(take, takes);
        BOTH(threshold, thresholds);
        side ? must(table->decode(device, &call), "decode") : ref_decode(&call);
    }
    const int expected = fixed ? (masked < 4 ? masked : 4) : masked > 0;
    check(((int32_t *)counts->host)[B - 1] == expected, "decode: the rule itself");
    check_bytes(committed, "decode's rows");
    check_bytes(canvases, "decode's canvas");
    check_bytes(counts, "decode's counts");
    buffers_free();
}

/* One request's step as the engine makes it: rotate, attend, select, attend over the cache; a
 * second cache is filled row by row instead. */
enum { T = 50, BLOCK = 8, BEGIN = 20, H = 4, G = 2, KEPT = 17, W = (H + 2 * G) * D };

struct whole_step {
    struct buffer *qkv, *turns, *positions, *starts, *begins, *ends, *kepts, *zeros, *fresh_starts;
    struct buffer *owners, *rows, *q, *k, *v, *y, *cache, *z, *scores, *indices, *kept_rows;
};

static struct whole_step whole_step_open(void) {
    const int32_t start[2] = {0, T}, begin[1] = {BEGIN}, end[1] = {BEGIN + BLOCK};
    const int32_t kept[1] = {KEPT}, fresh[2] = {0, BLOCK}, owner[T] = {0};
    const int64_t zero[1] = {0};
    int32_t position[T], row[T];
    for (int t = 0; t < T; t++) {
        position[t] = t;
        row[t] = t % 3 == 0 ? t / 3 : -1;
    }
    struct whole_step s = MAKE(
        struct whole_step, .qkv = random_bf16(T * W, 1), .turns = buffer_new(T * D * 4),
        .positions = holding(position, sizeof position), .starts = holding(start, sizeof start),
        .begins = holding(begin, sizeof begin), .ends = holding(end, sizeof end),
        .kepts = holding(kept, sizeof kept), .zeros = holding(zero, sizeof zero),
        .fresh_starts = holding(fresh, sizeof fresh), .owners = holding(owner, sizeof owner),
        .rows = holding(row, sizeof row), .q = poisoned(T * H * D * 2),
        .k = poisoned(T * G * D * 2), .v = poisoned(T * G * D * 2), .y = poisoned(T * H * D * 2),
        .cache = poisoned(2 * KEPT * G * D * 2), .z = poisoned(BLOCK * H * D * 2),
        .scores = poisoned(G * (T - BLOCK) * 4), .indices = poisoned(G * (T - BLOCK) * 4),
        .kept_rows = poisoned(2 * KEPT * G * D * 2), );
    ref_cos_sin(s.turns->host, T, D, 10000);
    push(s.turns);
    must(table->finish(device), "finish");
    return s;
}

static void check_rope(const struct whole_step *s) {
    for (int side = 0; side < 2; side++) {
        struct call_rope call =
            MAKE(struct call_rope, .q_stride = H * D, .kv_stride = G * D, .n_tokens = T,
                 .n_heads = H, .n_kv_heads = G, .head_size = D, .dtype = KERNEL_BF16);
        BOTH(qkv, s->qkv);
        BOTH(cos_sin, s->turns);
        BOTH(positions, s->positions);
        BOTH(q, s->q);
        BOTH(k, s->k);
        BOTH(v, s->v);
        side ? must(table->rope(device, &call), "rope") : ref_rope(&call);
    }
    check_rows(s->q, T * H, D, D, D, "rope's queries");
    check_rows(s->k, T * G, D, D, D, "rope's keys");
    push(s->q); /* the reference's, so that what follows starts from the same numbers */
    push(s->k);
    push(s->v);
    must(table->finish(device), "finish");
}

static void check_dense_attention(const struct whole_step *s) {
    for (int side = 0; side < 2; side++) {
        struct call_dense_attention call =
            MAKE(struct call_dense_attention, .q_stride = H * D, .kv_stride = G * D,
                 .y_stride = H * D, .n_requests = 1, .n_tokens = T, .n_heads = H, .n_kv_heads = G,
                 .head_size = D, .max_tokens = T, .dtype = KERNEL_BF16);
        BOTH(q, s->q);
        BOTH(k, s->k);
        BOTH(v, s->v);
        BOTH(y, s->y);
        BOTH(start, s->starts);
        if (side) {
            must(table->dense_attention(device, &call), "dense_attention");
        } else if (!ref_dense_attention(&call)) {
            exit(2);
        }
    }
    check_rows(s->y, T * H, D, D, T + D, "dense attention");
}

static void check_select(const struct whole_step *s, bool uniform) {
    for (int side = 0; side < 2; side++) {
        struct call_select call =
            MAKE(struct call_select, .q_stride = H * D, .kv_stride = G * D, .n_requests = 1,
                 .n_heads = H, .n_kv_heads = G, .head_size = D, .max_candidates = T - BLOCK,
                 .uniform = uniform, .dtype = KERNEL_BF16);
        BOTH(q, s->q);
        BOTH(k, s->k);
        BOTH(v, s->v);
        BOTH(start, s->starts);
        BOTH(block_start, s->begins);
        BOTH(block_end, s->ends);
        BOTH(kept, s->kepts);
        BOTH(cache_start, s->zeros);
        BOTH(score_start, s->zeros);
        BOTH(cache, s->cache);
        BOTH(scores, s->scores);
        BOTH(indices, s->indices);
        if (side) {
            must(table->select(device, &call), "select");
        } else if (!ref_select(&call)) {
            exit(2);
        }
    }
    check_bytes(s->indices, uniform ? "uniform selection" : "selection");
    check_bytes(s->cache, "the selected cache");
}

static void check_keep(const struct whole_step *s) {
    for (int side = 0; side < 2; side++) {
        struct call_keep call =
            MAKE(struct call_keep, .kv_stride = G * D, .n_requests = 1, .n_tokens = T,
                 .n_kv_heads = G, .head_size = D, .dtype = KERNEL_BF16);
        BOTH(k, s->k);
        BOTH(v, s->v);
        BOTH(start, s->starts);
        BOTH(owner, s->owners);
        BOTH(kv_rows, s->rows);
        BOTH(kept, s->kepts);
        BOTH(cache_start, s->zeros);
        BOTH(cache, s->kept_rows);
        side ? must(table->keep(device, &call), "keep") : ref_keep(&call);
    }
    check_bytes(s->kept_rows, "keep");
}

static void check_block_attention(const struct whole_step *s) {
    for (int side = 0; side < 2; side++) {
        struct call_block_attention call =
            MAKE(struct call_block_attention, .q_stride = H * D, .kv_stride = G * D,
                 .y_stride = H * D, .n_requests = 1, .n_heads = H, .n_kv_heads = G, .head_size = D,
                 .max_queries = BLOCK, .dtype = KERNEL_BF16);
        BOTH(q, s->q);
        BOTH(k, s->k);
        BOTH(v, s->v);
        BOTH(cache, s->cache);
        BOTH(y, s->z);
        BOTH(start, s->fresh_starts);
        BOTH(kept, s->kepts);
        BOTH(cache_start, s->zeros);
        if (side) {
            must(table->block_attention(device, &call), "block_attention");
        } else if (!ref_block_attention(&call)) {
            exit(2);
        }
    }
    check_rows(s->z, BLOCK * H, D, D, KEPT + BLOCK + D, "block attention");
}

static void test_attention(bool uniform) {
    const struct whole_step s = whole_step_open();
    check_rope(&s);
    check_dense_attention(&s);
    check_select(&s, uniform);
    check_keep(&s);
    check_block_attention(&s);
    buffers_free();
}

int main(int argc, char **argv) {
    const int status = device_begin(argc, argv);
    if (status != 0) {
        return status;
    }
    test_one_pass();
    test_attention(false);
    test_attention(true);
    test_focus();
    test_head();
    const int masked[] = {0, 1, 3, 20, 32};
    for (int i = 0; i < 5; i++) {
        test_decode(masked[i], false);
        test_decode(masked[i], true);
    }
    check_empty();
    return device_end();
}
