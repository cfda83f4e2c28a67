/* The kernels of canvases of random tokens and of layers with a window (DiffusionGemma) against
 * their reference implementations, on random and on adversarial data. A plain program, so that it
 * runs on a GPU machine without a test library: `test_canvas [seed] [small]` prints the seed, a
 * line for each failure, and the count. Outputs are poisoned before each launch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "kernels/rules/draw_rule.h"
#include "tests/gpu/arrays.h"

#define OF(array) (side ? (array)->device : (array)->host)

static const int wide_head_sizes[] = {
#define HEAD(D) D,
    WIDE_HEAD_SIZES(HEAD)
#undef HEAD
};
enum { N_WIDE = sizeof wide_head_sizes / sizeof wide_head_sizes[0] };

/* ---- attention ---- */

enum { MAX_B = 6, MAX_T = 600 };

struct spans {
    int32_t start[MAX_B + 1], extent[MAX_T], position[MAX_T];
    int b, longest, furthest;
};

/* Canvases see all of themselves, prompts no further than each token does. */
static struct spans some_spans(int furthest) {
    struct spans s = {.b = between(1, MAX_B)};
    for (int r = 0; r < s.b; r++) {
        const int n = draw() % 6 == 0 ? 0 : between(1, draw() % 3 ? 40 : MAX_T / MAX_B);
        const int context = between(0, furthest);
        const bool causal = draw() % 2;
        s.start[r + 1] = s.start[r] + n;
        for (int t = 0; t < n; t++) {
            s.position[s.start[r] + t] = context + t;
            s.extent[s.start[r] + t] = context + (causal ? t + 1 : n);
        }
        s.longest = n > s.longest ? n : s.longest;
        s.furthest = context + n > s.furthest ? context + n : s.furthest;
    }
    return s;
}

/* Numbers in n_rows rows from `first` on; all others stay no numbers. */
static void fill_page(struct array *rows, int64_t first, int n_rows, int64_t stride) {
    for (int64_t i = 0; i < (int64_t)n_rows * stride; i++) {
        ((uint16_t *)rows->host)[first * stride + i] = bf16_from_float((float)normal());
    }
}

static void check_tokens(const struct array *y, const struct call_paged_attention *call,
                         const char *name) {
    const int64_t width = (int64_t)call->n_heads * call->head_size;
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t at = t * call->y_stride * 2;
        struct array token = {(char *)y->host + at, (char *)y->device + at, (size_t)width * 2};
        check_rows(&token, KERNEL_BF16, call->n_heads, call->head_size, call->head_size,
                   call->max_extent + call->head_size, name);
    }
}

static void test_window(int d, int window, int furthest) {
    const int groups[] = {1, 2, 3, 4, 8}, group = groups[draw() % 5], n_kv_heads = between(1, 2);
    const int page_rows = 4 << draw() % 7, n_heads = group * n_kv_heads;
    struct spans s = some_spans(furthest);
    const int max_pages = s.furthest / page_rows + 1, n_pages = s.b * max_pages + 3;
    const int64_t n = s.start[s.b], kv_stride = (n_kv_heads + between(0, 1)) * d;
    const int64_t q_stride = (n_heads + between(0, 2)) * d,
                  y_stride = (n_heads + between(0, 1)) * d;
    struct array *k = array_new((size_t)(n_pages * page_rows * kv_stride) * 2);
    struct array *v = array_new((size_t)(n_pages * page_rows * kv_stride) * 2);
    struct array *pages = array_new((size_t)(s.b * max_pages) * 4);
    for (int r = 0; r < s.b; r++) {
        const int reach = s.start[r + 1] > s.start[r] ? s.extent[s.start[r + 1] - 1] : 0;
        const int first = window > 0 && reach > 0 ? s.position[s.start[r]] - window + 1 : 0;
        for (int p = 0; p < max_pages; p++) {
            const int page = (p * s.b + r + 2) % n_pages, row = p * page_rows;
            const int n_rows = reach - row < page_rows ? reach - row : page_rows;
            const bool is_seen = row < reach && row + page_rows > first;
            ((int32_t *)pages->host)[r * max_pages + p] = is_seen ? page : -1000000;
            if (is_seen) {
                fill_page(k, (int64_t)page * page_rows, n_rows, kv_stride);
                fill_page(v, (int64_t)page * page_rows, n_rows, kv_stride);
            }
        }
    }
    push(k);
    push(v);
    push(pages);
    struct array *q = random_bf16(n * q_stride, 2), *y = array_new((size_t)(n * y_stride) * 2);
    struct array *start = integers(s.start, s.b + 1), *extent = integers(s.extent, n);
    struct array *positions = integers(s.position, n);
    struct call_paged_attention call = {0};
    for (int side = 0; side < 2; side++) {
        call = MAKE(struct call_paged_attention, .q = OF(q), .k = OF(k), .v = OF(v), .y = OF(y),
                    .start = OF(start), .extent = OF(extent), .pages = OF(pages),
                    .q_stride = q_stride, .kv_stride = kv_stride, .y_stride = y_stride,
                    .n_requests = s.b, .n_tokens = (int32_t)n, .n_heads = n_heads,
                    .n_kv_heads = n_kv_heads, .head_size = d, .max_pages = max_pages,
                    .page_rows = page_rows, .max_queries = s.longest, .max_extent = s.furthest,
                    .dtype = KERNEL_BF16, .local_window = window, .positions = OF(positions));
        if (side) {
            launched(kernel_paged_attention_window(&call, NULL), "window attention");
        } else if (!ref_paged_attention(&call)) {
            exit(2);
        }
    }
    char name[160];
    snprintf(name, sizeof name,
             "window %d, %d requests, heads %d/%d of %d, pages of %d, queries <= %d, rows <= %d",
             window, s.b, n_heads, n_kv_heads, d, page_rows, s.longest, s.furthest);
    check_tokens(y, &call, name);
    arrays_free();
}

/* ---- rotation, gates ---- */

static void test_rope(int size, bool are_keys, bool norms) {
    enum { T = 40, POSITIONS = 300 };
    const int n_kv_heads = between(1, 3), n_heads = n_kv_heads * between(1, 4);
    const int all = n_heads + 2 * n_kv_heads;
    struct array *qkv = random_bf16((int64_t)T * all * size, 1), *norm = random_bf16(size, 1);
    struct array *turns = array_new((size_t)POSITIONS * size * 4);
    struct array *q = array_new((size_t)T * n_heads * size * 2);
    struct array *k = array_new((size_t)T * n_kv_heads * size * 2);
    struct array *v = array_new((size_t)T * n_kv_heads * size * 2);
    int32_t position[T], row[T];
    ref_cos_sin(turns->host, POSITIONS, size, 10000);
    push(turns);
    for (int t = 0; t < T; t++) {
        position[t] = between(0, POSITIONS - 1);
        row[t] = draw() % 8 == 0 ? -1 : T - 1 - t;
    }
    struct array *positions = integers(position, T), *rows = integers(row, T);
    for (int side = 0; side < 2; side++) {
        const struct call_rope call =
            MAKE(struct call_rope, .qkv = OF(qkv), .q_norm = OF(norm), .k_norm = OF(norm),
                 .cos_sin = OF(turns), .positions = OF(positions), .kv_rows = OF(rows), .q = OF(q),
                 .k = OF(k), .v = OF(v), .q_stride = n_heads * size, .kv_stride = n_kv_heads * size,
                 .n_tokens = T, .n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_size = size,
                 .epsilon = 1e-6f, .dtype = KERNEL_BF16, .values_are_keys = are_keys,
                 .norm_values = norms);
        side ? launched(kernel_rope(&call, NULL), "rope") : ref_rope(&call);
    }
    check_rows(q, KERNEL_BF16, (int64_t)T * n_heads, size, size, size, "queries");
    check_rows(k, KERNEL_BF16, (int64_t)T * n_kv_heads, size, size, size, "keys");
    check_rows(v, KERNEL_BF16, (int64_t)T * n_kv_heads, size, size, size, "values");
    arrays_free();
}

static void test_geglu(int n_tokens, int n_hidden) {
    struct array *x = random_bf16((int64_t)n_tokens * 2 * n_hidden, draw() % 2 ? 1 : 20);
    struct array *y = array_new((size_t)n_tokens * n_hidden * 2);
    for (int side = 0; side < 2; side++) {
        const struct call_swiglu call =
            MAKE(struct call_swiglu, .gate_up = OF(x), .y = OF(y), .y_stride = n_hidden,
                 .n_tokens = n_tokens, .n_hidden = n_hidden, .dtype = KERNEL_BF16, .gelu = true);
        side ? launched(kernel_swiglu(&call, NULL), "geglu") : ref_swiglu(&call);
    }
    check_rows(y, KERNEL_BF16, n_tokens, n_hidden, n_hidden, 1, "geglu");
    arrays_free();
}

/* ---- logits ---- */

static struct array *some_rules(int n) {
    struct array *rules = array_new((size_t)n * sizeof(struct draw_rule));
    for (int i = 0; i < n; i++) {
        ((struct draw_rule *)rules->host)[i] =
            MAKE(struct draw_rule, .temperature = (float)between(20, 150) / 100, .top_p = 1);
    }
    push(rules);
    return rules;
}

/* Of noise, of few numbers so that many are alike, of one far above the others. */
static struct array *some_logits(int n_rows, int n_vocab) {
    struct array *logits = random_bf16((int64_t)n_rows * n_vocab, 4);
    for (int row = 0; row < n_rows; row++) {
        uint16_t *of_row = (uint16_t *)logits->host + (int64_t)row * n_vocab;
        for (int i = 0; row % 3 == 1 && i < n_vocab; i++) {
            of_row[i] = bf16_from_float((float)between(-3, 3));
        }
        if (row % 3 == 2) {
            of_row[between(0, n_vocab - 1)] = bf16_from_float(90);
        }
    }
    push(logits);
    return logits;
}

static void test_softcap(int n_rows, int n_vocab) {
    struct array *logits = random_bf16((int64_t)n_rows * n_vocab, 40);
    for (int side = 0; side < 2; side++) {
        const struct call_softcap call =
            MAKE(struct call_softcap, .logits = OF(logits), .n_rows = n_rows, .n_vocab = n_vocab,
                 .cap = 30, .dtype = KERNEL_BF16);
        side ? launched(kernel_softcap(&call, NULL), "softcap") : ref_softcap(&call);
    }
    check_rows(logits, KERNEL_BF16, n_rows, n_vocab, n_vocab, 1, "softcap");
    arrays_free();
}

static void test_softmax(int n_rows, int n_vocab) {
    struct array *logits = some_logits(n_rows, n_vocab), *by = some_rules(n_rows);
    struct array *y = array_new((size_t)n_rows * n_vocab * 2);
    for (int side = 0; side < 2; side++) {
        const struct call_softmax call =
            MAKE(struct call_softmax, .logits = OF(logits), .y = OF(y), .n_rows = n_rows,
                 .n_vocab = n_vocab, .dtype = KERNEL_BF16, .by = OF(by));
        side ? launched(kernel_softmax(&call, NULL), "softmax") : ref_softmax(&call);
    }
    check_rows(y, KERNEL_BF16, n_rows, n_vocab, n_vocab, n_vocab, "softmax at a temperature");
    arrays_free();
}

static void check_entropies(struct array *entropy, int n_rows, const char *name) {
    float *got = pull(entropy), *want = entropy->host;
    for (int row = 0; row < n_rows; row++) {
        check(fabsf(got[row] - want[row]) <= 1e-4f * (1 + want[row]),
              "%s %g of row %d, %g expected", name, (double)got[row], row, (double)want[row]);
    }
    free(got);
}

static void test_renoise(int n_rows, int n_vocab) {
    struct array *logits = some_logits(n_rows, n_vocab), *by = some_rules(n_rows);
    struct array *key = array_new((size_t)n_rows * 8), *entropy = array_new((size_t)n_rows * 4);
    struct array *token = array_new((size_t)n_rows * 4), *drawn = array_new((size_t)n_rows * 4);
    for (int row = 0; row < n_rows; row++) {
        ((uint64_t *)key->host)[row] = draw();
    }
    push(key);
    for (int side = 0; side < 2; side++) {
        const struct call_renoise call =
            MAKE(struct call_renoise, .logits = OF(logits), .by = OF(by), .key = OF(key),
                 .token = OF(token), .drawn = OF(drawn), .entropy = OF(entropy), .n_rows = n_rows,
                 .n_vocab = n_vocab, .dtype = KERNEL_BF16);
        side ? launched(kernel_renoise(&call, NULL), "renoise") : ref_renoise(&call);
    }
    check_bytes(token, token->n_bytes, "most likely tokens");
    check_bytes(drawn, drawn->n_bytes, "drawn tokens");
    check_entropies(entropy, n_rows, "entropy");
    arrays_free();
}

/* Ranks of n_vocab tokens each find what one device finds of whole rows. */
static void test_renoise_ranks(int n_rows, int n_vocab, int n_ranks) {
    const int all = n_vocab * n_ranks;
    struct array *logits = some_logits(n_rows, all), *by = some_rules(n_rows);
    struct array *divided = array_new((size_t)n_rows * all * 2);
    struct array *key = array_new((size_t)n_rows * 8), *entropy = array_new((size_t)n_rows * 4);
    struct array *token = array_new((size_t)n_rows * 4), *drawn = array_new((size_t)n_rows * 4);
    struct array *parts = array_new((size_t)n_rows * n_ranks * sizeof(struct renoise_part));
    struct array *confidence = array_new((size_t)n_rows * 4);
    for (int row = 0; row < n_rows; row++) {
        ((uint64_t *)key->host)[row] = draw();
        ((float *)confidence->host)[row] = 0.5f;
        for (int i = 0; i < all; i++) {
            ((uint16_t *)divided->host)[(i / n_vocab * n_rows + row) * n_vocab + i % n_vocab] =
                ((uint16_t *)logits->host)[row * all + i];
        }
    }
    push(key);
    push(divided);
    push(confidence);
    for (int side = 0; side < 2; side++) {
        for (int rank = 0; rank < n_ranks; rank++) {
            const struct call_renoise call =
                MAKE(struct call_renoise,
                     .logits = (uint16_t *)OF(divided) + (int64_t)rank * n_rows * n_vocab,
                     .by = OF(by), .key = OF(key), .n_rows = n_rows, .n_vocab = n_vocab,
                     .dtype = KERNEL_BF16, .part = (struct renoise_part *)OF(parts) + rank * n_rows,
                     .first_token = rank * n_vocab);
            side ? launched(kernel_renoise(&call, NULL), "a rank's renoise") : ref_renoise(&call);
        }
        const struct call_renoise_combine call =
            MAKE(struct call_renoise_combine, .parts = OF(parts), .by = OF(by), .token = OF(token),
                 .drawn = OF(drawn), .confidence = OF(confidence), .entropy = OF(entropy),
                 .n_rows = n_rows, .n_ranks = n_ranks);
        side ? launched(kernel_renoise_combine(&call, NULL), "combine")
             : ref_renoise_combine(&call);
    }
    check_entropies(confidence, n_rows, "confidence");
    const struct call_renoise whole =
        MAKE(struct call_renoise, .logits = logits->host, .by = by->host, .key = key->host,
             .token = token->host, .drawn = drawn->host, .entropy = entropy->host, .n_rows = n_rows,
             .n_vocab = all, .dtype = KERNEL_BF16);
    ref_renoise(&whole);
    check_bytes(token, token->n_bytes, "most likely tokens of ranks");
    check_bytes(drawn, drawn->n_bytes, "drawn tokens of ranks");
    check_entropies(entropy, n_rows, "entropy of ranks");
    arrays_free();
}

static void test_condition(int n_rows, int n_channels, bool adds) {
    struct array *x = random_bf16((int64_t)n_rows * n_channels, 1);
    struct array *y = random_bf16((int64_t)2 * n_rows * n_channels, 3);
    struct array *rows = array_new((size_t)n_rows * 4);
    for (int i = 0; i < n_rows; i++) {
        ((int32_t *)rows->host)[i] = 2 * (n_rows - 1 - i) + i % 2;
    }
    push(rows);
    for (int side = 0; side < 2; side++) {
        const struct call_condition call = MAKE(
            struct call_condition, .x = adds ? OF(x) : NULL, .rows = OF(rows), .y = OF(y),
            .n_rows = n_rows, .n_channels = n_channels, .epsilon = 1e-6f, .dtype = KERNEL_BF16);
        side ? launched(kernel_condition(&call, NULL), "condition") : ref_condition(&call);
    }
    check_rows(y, KERNEL_BF16, 2 * n_rows, n_channels, n_channels, n_channels, "condition");
    arrays_free();
}

static void test_limits(void) {
    struct call_paged_attention window = MAKE(
        struct call_paged_attention, .n_requests = 1, .n_heads = 2, .n_kv_heads = 1,
        .head_size = 64, .max_pages = 1, .page_rows = 16, .local_window = 8, .dtype = KERNEL_BF16);
    check(kernel_paged_attention_window(&window, NULL) == cudaErrorInvalidValue, "no positions");
    check(kernel_paged_attention_mma(&window, NULL) == cudaErrorInvalidValue, "mma with a window");
    window.local_window = 0;
    window.cache_fp8 = true;
    check(kernel_paged_attention_window(&window, NULL) == cudaErrorInvalidValue, "pages in fp8");
    const struct call_softcap softcap = {.n_rows = 1, .n_vocab = 8, .dtype = KERNEL_BF16};
    check(kernel_softcap(&softcap, NULL) == cudaErrorInvalidValue, "a cap of 0");
    const struct call_condition condition = {.n_rows = 1, .n_channels = 12, .dtype = KERNEL_BF16};
    check(kernel_condition(&condition, NULL) == cudaErrorInvalidValue, "12 channels");
    const struct call_renoise none = {.n_vocab = 8, .dtype = KERNEL_BF16};
    check(kernel_renoise(&none, NULL) == cudaSuccess, "no rows");
    const struct call_renoise_combine of_none = {.n_rows = 1};
    check(kernel_renoise_combine(&of_none, NULL) == cudaErrorInvalidValue, "no ranks");
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    const bool small = argc > 2 && strcmp(argv[2], "small") == 0;
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    for (int i = 0; i < (small ? 1 : 6); i++) {
        for (int d = 0; d < N_WIDE; d++) {
            test_window(wide_head_sizes[d], between(1, 70), small ? 60 : 300);
            test_window(wide_head_sizes[d], 0, small ? 60 : 300);
            test_rope(wide_head_sizes[d], i % 2, draw() % 2);
            test_rope(wide_head_sizes[d], false, draw() % 2);
        }
        test_geglu(between(1, 70), 8 * between(1, 500));
        test_softcap(between(1, 9), between(1, 3000));
        test_softmax(between(1, 9), between(1, 3000));
        test_renoise(between(1, 9), between(1, 3000));
        test_renoise_ranks(between(1, 300), between(1, 700), 1 << between(1, 3));
        test_condition(between(1, 70), 8 * between(1, 400), i % 2);
    }
    if (!small) {
        test_window(256, 1024, 1400);
        test_window(512, 0, 1400);
        test_softmax(12, 262144);
        test_renoise(12, 262144);
        test_renoise_ranks(12, 65536, 4);
    }
    test_limits();
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
