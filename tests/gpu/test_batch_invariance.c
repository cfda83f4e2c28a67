/* What a row or a request gets from each kernel does not depend on the rows and requests beside it
 * while the device's switch is on: alone, in small batches and in large ones it is the same bits. A
 * plain program: `test_batch_invariance [seed] [small]` prints the seed, a line for each piece,
 * under it how many batches differ with the switch off (which is allowed, and shows that the piece
 * can differ), and the count of failures. Paths that this GPU's device does not take are launched
 * directly; `small` keeps to sizes a memory checker gets through. */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "tests/gpu/chance.h"

enum { MAX_B = 40, MAX_MEMORY = 64 };

static const struct device_table *const table = &unmask_device_cuda;
static struct device *device;
static struct head *head; /* of head's other path */
static bool small;
static int d; /* the size of a head */

static void must(int status, const char *what) {
    if (status != DEVICE_OK) {
        printf("FAILED %s: %s\n", what, device ? table->trouble(device) : "no device");
        exit(2);
    }
}

/* What went wrong in a piece; the others are tried all the same. */
static char trouble[DEVICE_TEXT_CHARS];

static void tell(int status, const char *what) {
    if (status != DEVICE_OK && !trouble[0]) {
        snprintf(trouble, sizeof trouble, "%s: %s", what, table->trouble(device));
    }
}

static void tell_launch(cudaError_t status, const char *what) {
    status = status == cudaSuccess ? cudaDeviceSynchronize() : status;
    if (status != cudaSuccess && !trouble[0]) {
        snprintf(trouble, sizeof trouble, "%s: %s", what, cudaGetErrorString(status));
    }
}

static void *memory[MAX_MEMORY];
static int n_memory;

static void *memory_new(int64_t bytes) {
    if (n_memory == MAX_MEMORY) {
        exit(2);
    }
    must(table->allocate(device, bytes + 16, &memory[n_memory]), "allocate");
    must(table->clear(device, memory[n_memory], bytes + 16), "clear");
    return memory[n_memory++];
}

static void memory_free(void) {
    while (n_memory > 0) {
        table->release(device, memory[--n_memory]);
    }
}

static void *random_bf16(int64_t n, double spread) {
    const struct call_random call = {
        .y = memory_new(n * 2), .key = draw(), .n = n, .spread = spread, .dtype = KERNEL_BF16};
    must(table->random(device, &call), "random");
    return call.y;
}

static void send(void *to, const void *values, int64_t bytes) {
    void *host;
    must(table->allocate_host(device, bytes, &host), "allocate_host");
    memcpy(host, values, (size_t)bytes);
    must(table->upload(device, to, host, bytes), "upload");
    must(table->finish(device), "finish");
    table->release_host(device, host);
}

/* A kernel and its inputs: n rows, or requests, of any range of which it can be run alone. What
 * row or request i gets is the bytes from place[i] to place[i + 1] when all are run. */
struct piece {
    char name[160];
    int n;
    int64_t *place; /* [n + 1] */
    /* The results of [first, first + n) to device memory; other: the path that the device does not
     * take. */
    void (*run)(const struct piece *piece, int first, int n, void *to);
    bool other;
    /* Of products, norms and the head: rows of n_channels and, for each, n_outputs. */
    void *x, *w, *add, *scratch, *token, *confidence;
    int n_channels, n_outputs;
    bool of_tokens, rounded, by_inputs;
    /* Of attention and selection. */
    void *q, *k, *v, *cache, *starts, *kepts, *cache_starts, *score_starts, *begins, *ends;
    int n_heads, n_kv_heads;
    int32_t start[MAX_B + 1], kept[MAX_B], begin[MAX_B], end[MAX_B];
    int64_t cache_start[MAX_B + 1];
    bool uniform;
};

__attribute__((format(printf, 2, 3))) static void piece_name(struct piece *piece,
                                                             const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(piece->name, sizeof piece->name, format, list);
    va_end(list);
}

static void place_rows(struct piece *piece, int64_t row_bytes) {
    piece->place = malloc(((size_t)piece->n + 1) * sizeof *piece->place);
    for (int i = 0; i <= piece->n; i++) {
        piece->place[i] = i * row_bytes;
    }
}

static unsigned char *result(const struct piece *piece, int first, int n, void *to) {
    const int64_t bytes = piece->place[first + n] - piece->place[first];
    unsigned char *got = malloc((size_t)bytes + 1);
    must(table->clear(device, to, bytes), "clear");
    piece->run(piece, first, n, to);
    must(table->download(device, got, to, bytes), "download");
    return got;
}

/* Alone, with a few beside, or with many. */
static void draw_batch(const struct piece *piece, int i, int *first, int *n) {
    *n = i % 3 == 0 ? 1 : i % 3 == 1 ? between(1, 9) : between(1, piece->n);
    *n = *n < piece->n ? *n : piece->n;
    *first = between(0, piece->n - *n);
}

/* How many of so many batches give anybody in them other bits than the batch of all; `where` says
 * who was the first. */
static int count_different(const struct piece *piece, int n_batches, char where[160]) {
    void *to;
    int n_different = 0;
    must(table->allocate(device, piece->place[piece->n] + 16, &to), "allocate");
    unsigned char *all = result(piece, 0, piece->n, to);
    const int64_t bytes = piece->place[piece->n];
    if (!trouble[0] && memcmp(all, all + 4, (size_t)bytes - 4) == 0) {
        snprintf(trouble, sizeof trouble, "results that are nothing but one number");
    }
    for (int i = 0; i < n_batches; i++) {
        int first, n;
        draw_batch(piece, i, &first, &n);
        unsigned char *got = result(piece, first, n, to);
        int who = first;
        while (who < first + n &&
               memcmp(got + piece->place[who] - piece->place[first], all + piece->place[who],
                      (size_t)(piece->place[who + 1] - piece->place[who])) == 0) {
            who++;
        }
        if (who < first + n && n_different++ == 0) {
            snprintf(where, 160, "number %d, among %d from number %d on, of %d", who, n, first,
                     piece->n);
        }
        free(got);
    }
    free(all);
    table->release(device, to);
    return n_different;
}

/* Judges a piece, and frees what it has. */
static void judge(struct piece *piece) {
    const int n_batches = small ? 6 : 48;
    char where[160] = "";
    table->batch_invariant(device, true);
    const int n_on = count_different(piece, n_batches, where);
    table->batch_invariant(device, false);
    const bool good = n_on == 0 && !trouble[0];
    n_passed += good;
    n_failed += !good;
    printf("%s %s: %d of %d batches differ%s%s%s%s\n", good ? "ok    " : "FAILED", piece->name,
           n_on, n_batches, n_on ? "; first " : "", where, trouble[0] ? "; " : "", trouble);
    trouble[0] = '\0';
    if (!piece->other) {
        const int n_off = count_different(piece, n_batches, where);
        printf("         with the switch off: %d of %d%s%s\n", n_off, n_batches,
               trouble[0] ? "; " : "", trouble);
        trouble[0] = '\0';
    }
    free(piece->place);
    memory_free();
}

static void *row_of(void *base, int64_t row, int64_t width) {
    return (char *)base + row * width * 2;
}

static void run_norm(const struct piece *p, int first, int n, void *to) {
    const struct call_norm call =
        MAKE(struct call_norm, .x = row_of(p->x, first, p->n_channels), .weight = p->w, .y = to,
             .n_rows = n, .n_channels = p->n_channels, .epsilon = 1e-5f, .dtype = KERNEL_BF16);
    tell(table->norm(device, &call), "norm");
}

static void judge_norm(int n_rows, int n_channels) {
    struct piece p = {.n = n_rows, .n_channels = n_channels, .run = run_norm};
    p.x = random_bf16((int64_t)n_rows * n_channels, 2);
    p.w = random_bf16(n_channels, 1);
    place_rows(&p, n_channels * 2);
    piece_name(&p, "norm, %d rows of %d", n_rows, n_channels);
    judge(&p);
}

static void run_linear(const struct piece *p, int first, int n, void *to) {
    const struct call_linear call =
        MAKE(struct call_linear, .x = row_of(p->x, first, p->n_channels), .w = p->w,
             .add = p->add ? row_of(p->add, first, p->n_outputs) : NULL, .y = to,
             .x_stride = p->n_channels, .y_stride = p->n_outputs, .n_tokens = n,
             .n_outputs = p->n_outputs, .n_inputs = p->n_channels, .dtype = KERNEL_BF16,
             .by_inputs = p->by_inputs);
    tell(table->linear(device, &call), "linear");
}

/* by_inputs: without a sum. */
static void judge_product(int n_rows, int n_outputs, int n_inputs, bool adds, bool by_inputs) {
    struct piece p = MAKE(struct piece, .n = n_rows, .n_channels = n_inputs, .n_outputs = n_outputs,
                          .run = run_linear, .by_inputs = by_inputs);
    p.x = random_bf16((int64_t)n_rows * n_inputs, 1);
    p.w = random_bf16((int64_t)n_outputs * n_inputs, 1);
    p.add = adds ? random_bf16((int64_t)n_rows * n_outputs, 10) : NULL;
    place_rows(&p, n_outputs * 2);
    piece_name(&p, "product%s, %d rows, %d outputs of %d inputs",
               by_inputs ? " by inputs"
               : adds    ? " with a sum"
                         : "",
               n_rows, n_outputs, n_inputs);
    judge(&p);
}

static void judge_linear(int n_rows, int n_outputs, int n_inputs, bool adds) {
    judge_product(n_rows, n_outputs, n_inputs, adds, false);
}

static void run_gate_up(const struct piece *p, int first, int n, void *to) {
    const struct call_gate_up call =
        MAKE(struct call_gate_up, .x = row_of(p->x, first, p->n_channels), .w = p->w, .y = to,
             .x_stride = p->n_channels, .y_stride = p->n_outputs, .n_tokens = n,
             .n_channels = p->n_channels, .n_hidden = p->n_outputs, .dtype = KERNEL_BF16);
    tell(table->gate_up(device, &call), "gate_up");
}

static void judge_gate_up(int n_rows, int n_hidden, int n_channels) {
    struct piece p = {
        .n = n_rows, .n_channels = n_channels, .n_outputs = n_hidden, .run = run_gate_up};
    p.x = random_bf16((int64_t)n_rows * n_channels, 1);
    p.w = random_bf16(2ll * n_hidden * n_channels, 0.2);
    place_rows(&p, n_hidden * 2);
    piece_name(&p, "gate_up, %d rows, %d hidden of %d channels", n_rows, n_hidden, n_channels);
    judge(&p);
}

static void run_head(const struct piece *p, int first, int n, void *to) {
    const struct call_head call = MAKE(
        struct call_head, .x = row_of(p->x, first, p->n_channels), .w = p->w,
        .token = p->of_tokens ? to : p->token, .confidence = p->of_tokens ? p->confidence : to,
        .scratch = p->scratch, .n_rows = n, .n_channels = p->n_channels, .n_vocab = p->n_outputs,
        .rounded = p->rounded, .invariant = p->other, .dtype = KERNEL_BF16);
    if (p->other) {
        tell(table->finish(device), "finish");
        tell_launch(kernel_head_tiles(head, &call, NULL), "head (tiles)");
    } else {
        tell(table->head(device, &call), "head");
    }
}

static void judge_head(int n_rows, int n_vocab, int n_channels, bool rounded, bool of_tokens,
                       bool other) {
    struct piece p =
        MAKE(struct piece, .n = n_rows, .n_channels = n_channels, .n_outputs = n_vocab,
             .run = run_head, .rounded = rounded, .of_tokens = of_tokens, .other = other);
    p.x = random_bf16((int64_t)n_rows * n_channels, 1);
    p.w = random_bf16((int64_t)n_vocab * n_channels, 0.2);
    p.token = memory_new(n_rows * 4);
    p.confidence = memory_new(n_rows * 4);
    p.scratch = memory_new(HEAD_SCRATCH_BYTES);
    place_rows(&p, 4);
    piece_name(&p, "head%s's %s, %d rows, %d tokens of %d channels%s", other ? " (tiles)" : "",
               of_tokens ? "tokens" : "confidences", n_rows, n_vocab, n_channels,
               rounded ? ", rounded" : "");
    judge(&p);
}

static void run_sample(const struct piece *p, int first, int n, void *to) {
    const struct call_sample call =
        MAKE(struct call_sample, .logits = row_of(p->x, first, p->n_outputs), .token = p->token,
             .confidence = to, .n_rows = n, .n_vocab = p->n_outputs, .dtype = KERNEL_BF16);
    tell(table->sample(device, &call), "sample");
}

static void run_softmax(const struct piece *p, int first, int n, void *to) {
    const struct call_softmax call =
        MAKE(struct call_softmax, .logits = row_of(p->x, first, p->n_outputs), .y = to, .n_rows = n,
             .n_vocab = p->n_outputs, .dtype = KERNEL_BF16);
    tell(table->softmax(device, &call), "softmax");
}

static void judge_softmax(int n_rows, int n_vocab) {
    struct piece p = {.n = n_rows, .n_outputs = n_vocab, .run = run_softmax};
    p.x = random_bf16((int64_t)n_rows * n_vocab, 3);
    place_rows(&p, n_vocab * 2);
    piece_name(&p, "softmax, %d rows of %d", n_rows, n_vocab);
    judge(&p);
}

static void judge_sample(int n_rows, int n_vocab) {
    struct piece p = {.n = n_rows, .n_outputs = n_vocab, .run = run_sample};
    p.x = random_bf16((int64_t)n_rows * n_vocab, 8);
    p.token = memory_new(n_rows * 4);
    place_rows(&p, 4);
    piece_name(&p, "sample's confidences, %d rows, %d tokens", n_rows, n_vocab);
    judge(&p);
}

/* Numbers of the requests from `first` on, counted from the first one's. */
static void send_narrow(void *to, const int32_t *values, int first, int n, int32_t base) {
    int32_t own[MAX_B + 1] = {0};
    for (int i = 0; i < n; i++) {
        own[i] = values[first + i] - base;
    }
    send(to, own, n * (int64_t)sizeof *own);
}

static void send_wide(void *to, const int64_t *values, int first, int n) {
    int64_t own[MAX_B + 1] = {0};
    for (int i = 0; i < n; i++) {
        own[i] = values[first + i] - values[first];
    }
    send(to, own, n * (int64_t)sizeof *own);
}

static int32_t longest(const struct piece *p, int first, int n) {
    int32_t most = 0;
    for (int r = first; r < first + n; r++) {
        const int32_t length = p->start[r + 1] - p->start[r];
        most = length > most ? length : most;
    }
    return most;
}

/* So many queries, keys and values each request, of a model of random heads. */
static void draw_requests(struct piece *p, int least_queries, int most_queries) {
    const int groups[] = {1, 1, 2, 7};
    p->n_kv_heads = between(1, 4);
    p->n_heads = p->n_kv_heads * groups[draw() % 4];
    for (int r = 0; r < p->n; r++) {
        p->start[r + 1] = p->start[r] + between(least_queries, most_queries);
    }
    const int64_t n_tokens = p->start[p->n];
    p->q = random_bf16(n_tokens * p->n_heads * d, 2);
    p->k = random_bf16(n_tokens * p->n_kv_heads * d, 2);
    p->v = random_bf16(n_tokens * p->n_kv_heads * d, 1);
    p->starts = memory_new(sizeof p->start);
    p->kepts = memory_new(sizeof p->kept);
    p->cache_starts = memory_new(sizeof p->cache_start);
}

static void place_queries(struct piece *p) {
    p->place = malloc(((size_t)p->n + 1) * sizeof *p->place);
    for (int r = 0; r <= p->n; r++) {
        p->place[r] = (int64_t)p->start[r] * p->n_heads * d * 2;
    }
}

static void run_dense(const struct piece *p, int first, int n, void *to) {
    const int32_t base = p->start[first];
    const struct call_dense_attention call = MAKE(
        struct call_dense_attention, .q = row_of(p->q, base, p->n_heads * d),
        .k = row_of(p->k, base, p->n_kv_heads * d), .v = row_of(p->v, base, p->n_kv_heads * d),
        .y = to, .start = p->starts, .q_stride = p->n_heads * d, .kv_stride = p->n_kv_heads * d,
        .y_stride = p->n_heads * d, .n_requests = n, .n_tokens = p->start[first + n] - base,
        .n_heads = p->n_heads, .n_kv_heads = p->n_kv_heads, .head_size = d,
        .max_tokens = longest(p, first, n), .dtype = KERNEL_BF16);
    send_narrow(p->starts, p->start, first, n + 1, base);
    if (p->other) {
        tell_launch(kernel_dense_attention_mma(&call, NULL), "dense attention (mma)");
    } else {
        tell(table->dense_attention(device, &call), "dense attention");
    }
}

static void judge_dense(int n_requests, int most_tokens, bool other) {
    struct piece p = {.n = n_requests, .run = run_dense, .other = other};
    draw_requests(&p, 1, most_tokens);
    place_queries(&p);
    piece_name(&p, "dense attention%s, %d requests of up to %d tokens, %d heads of %d over %d",
               other ? " (mma)" : "", p.n, most_tokens, p.n_heads, d, p.n_kv_heads);
    judge(&p);
}

static void run_block(const struct piece *p, int first, int n, void *to) {
    const int32_t base = p->start[first];
    const struct call_block_attention call =
        MAKE(struct call_block_attention, .q = row_of(p->q, base, p->n_heads * d),
             .k = row_of(p->k, base, p->n_kv_heads * d), .v = row_of(p->v, base, p->n_kv_heads * d),
             .cache = row_of(p->cache, p->cache_start[first], 1), .y = to, .start = p->starts,
             .kept = p->kepts, .cache_start = p->cache_starts, .scratch = p->scratch,
             .q_stride = p->n_heads * d, .kv_stride = p->n_kv_heads * d, .y_stride = p->n_heads * d,
             .n_requests = n, .n_heads = p->n_heads, .n_kv_heads = p->n_kv_heads, .head_size = d,
             .max_queries = longest(p, first, n), .invariant = p->other, .dtype = KERNEL_BF16);
    send_narrow(p->starts, p->start, first, n + 1, base);
    send_narrow(p->kepts, p->kept, first, n, 0);
    send_wide(p->cache_starts, p->cache_start, first, n);
    if (p->other) {
        tell_launch(kernel_block_attention_compact(&call, NULL), "block attention (compact)");
    } else {
        tell(table->block_attention(device, &call), "block attention");
    }
}

static void judge_block(int n_requests, int most_queries, int most_kept, bool other) {
    struct piece p = {.n = n_requests, .run = run_block, .other = other};
    struct device_facts facts;
    draw_requests(&p, draw() % 2 ? 1 : most_queries, most_queries);
    for (int r = 0; r < p.n; r++) {
        p.kept[r] = draw() % 6 ? between(1, most_kept) : 0;
        p.cache_start[r + 1] = p.cache_start[r] + 2ll * p.kept[r] * p.n_kv_heads * d;
    }
    p.cache = random_bf16(p.cache_start[p.n], 2);
    must(table->facts(device, &facts), "facts");
    p.scratch = memory_new(block_attention_scratch_bytes(facts.n_sms));
    place_queries(&p);
    piece_name(&p,
               "block attention%s, %d requests of up to %d queries over %d rows, %d heads of %d "
               "over %d",
               other ? " (compact)" : "", p.n, most_queries, most_kept, p.n_heads, d, p.n_kv_heads);
    judge(&p);
}

/* The packed rows are the result. */
static void run_select(const struct piece *p, int first, int n, void *to) {
    const int32_t base = p->start[first];
    int64_t score_start[MAX_B + 1] = {0};
    int32_t most = 0;
    for (int r = 0; r < n; r++) {
        const int at = first + r;
        const int32_t block = p->end[at] - p->begin[at];
        const int32_t n_candidates = p->start[at + 1] - p->start[at] - block;
        score_start[r + 1] = score_start[r] + n_candidates;
        most = n_candidates > most ? n_candidates : most;
    }
    /* Scores and indices are wanted by nobody: every head of every token has room for one. */
    const struct call_select call =
        MAKE(struct call_select, .q = row_of(p->q, base, p->n_heads * d),
             .k = row_of(p->k, base, p->n_kv_heads * d), .v = row_of(p->v, base, p->n_kv_heads * d),
             .start = p->starts, .block_start = p->begins, .block_end = p->ends, .kept = p->kepts,
             .cache_start = p->cache_starts, .score_start = p->score_starts, .cache = to,
             .scores = p->scratch, .indices = p->token, .q_stride = p->n_heads * d,
             .kv_stride = p->n_kv_heads * d, .n_requests = n, .n_heads = p->n_heads,
             .n_kv_heads = p->n_kv_heads, .head_size = d, .max_candidates = most,
             .uniform = p->uniform, .dtype = KERNEL_BF16);
    send_narrow(p->starts, p->start, first, n + 1, base);
    send_narrow(p->begins, p->begin, first, n, 0);
    send_narrow(p->ends, p->end, first, n, 0);
    send_narrow(p->kepts, p->kept, first, n, 0);
    send_wide(p->cache_starts, p->cache_start, first, n);
    send(p->score_starts, score_start, n * (int64_t)sizeof *score_start);
    tell(table->select(device, &call), "select");
}

static void judge_select(int n_requests, int most_tokens, bool uniform) {
    enum { BLOCK = 32 };
    struct piece p = {.n = n_requests, .run = run_select, .uniform = uniform};
    draw_requests(&p, BLOCK + 1, most_tokens);
    for (int r = 0; r < p.n; r++) {
        const int n_candidates = p.start[r + 1] - p.start[r] - BLOCK;
        p.begin[r] = between(0, n_candidates);
        p.end[r] = p.begin[r] + BLOCK;
        p.kept[r] = between(1, n_candidates);
        p.cache_start[r + 1] = p.cache_start[r] + 2ll * p.kept[r] * p.n_kv_heads * d;
    }
    p.begins = memory_new(sizeof p.begin);
    p.ends = memory_new(sizeof p.end);
    p.score_starts = memory_new(sizeof p.cache_start);
    p.scratch = memory_new((int64_t)p.start[p.n] * p.n_kv_heads * 4);
    p.token = memory_new((int64_t)p.start[p.n] * p.n_kv_heads * 4);
    p.place = malloc(((size_t)p.n + 1) * sizeof *p.place);
    for (int r = 0; r <= p.n; r++) {
        p.place[r] = p.cache_start[r] * 2;
    }
    piece_name(&p, "%s selection, %d requests of up to %d tokens, %d heads of %d over %d",
               uniform ? "uniform" : "each head's", p.n, most_tokens, p.n_heads, d, p.n_kv_heads);
    judge(&p);
}

static void judge_rows(void) {
    judge_norm(small ? 40 : 6000, 4096); /* from 4097 rows on it has fewer threads */
    judge_norm(small ? 40 : 5000, 3584);
    /* Few outputs of long sums are where an algorithm is chosen that cuts the sums up. */
    judge_linear(300, 1024, 2048, false);
    judge_linear(300, 256, 8192, true);
    judge_linear(300, 64, 16384, false);
    /* Own kernel or library, by the number of rows. */
    judge_linear(small ? 300 : 2500, small ? 256 : 4096, 520, false);
    judge_linear(small ? 130 : 1100, 8 * between(1, 60), 8 * between(1, 60), true);
    /* Few to many rows take each of the three widths of a tile. */
    judge_gate_up(small ? 140 : 4200, small ? 192 : 1536, 520);
    judge_gate_up(small ? 140 : 2600, small ? 64 : 12288, 256);
    judge_gate_up(small ? 140 : 600, 8 * between(1, 300), 8 * between(1, 60));
    for (int other = 0; other < 2; other++) {
        judge_head(small ? 140 : 2300, small ? 700 : 20001, 256, false, false, other);
        judge_head(small ? 140 : 2300, small ? 700 : 20001, 256, false, true, other);
        judge_head(small ? 140 : 700, 8 * between(40, 500), 8 * between(1, 60), true, false, other);
    }
    judge_head(small ? 12 : 300, small ? 700 : 126464, 512, true, false, false);
    judge_sample(small ? 20 : 300, small ? 1024 : 50008);
    judge_softmax(small ? 20 : 300, small ? 1024 : 50008);
    judge_product(small ? 70 : 300, 256, small ? 1024 : 50008, false, true);
}

/* Of heads of d. */
static void judge_requests(bool few) {
    for (int other = 0; other < 2; other++) {
        judge_dense(few ? 4 : 12, few ? 140 : 900, other);
        judge_dense(few ? 4 : MAX_B, few ? 70 : 200, other);
        judge_block(few ? 4 : MAX_B, 32, few ? 150 : 900, other);
        judge_block(few ? 4 : MAX_B, 8, few ? 150 : 3000, other);
        judge_block(few ? 4 : 12, few ? 32 : 300, few ? 150 : 2000, other);
        judge_block(few ? 2 : 3, 32, few ? 300 : 20000, other);
    }
    for (int uniform = 0; uniform < 2; uniform++) {
        judge_select(few ? 4 : MAX_B, few ? 140 : 900, uniform);
        judge_select(few ? 2 : 4, few ? 140 : 6000, uniform);
    }
}

int main(int argc, char **argv) {
    char text[DEVICE_TEXT_CHARS] = "";
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    const int status = table->open(0, KERNEL_BF16, &device, text);
    if (status != DEVICE_OK) {
        printf("status %d: %s\n", status, text);
        return 2;
    }
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    if (head_open(&head) != cudaSuccess) {
        printf("FAILED head_open\n");
        return 2;
    }
    judge_rows();
    for (int size = 0; size < N_HEAD_SIZES; size++) {
        d = head_sizes[size];
        judge_requests(small || d != 128);
    }
    head_close(head);
    table->close(device);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed > 0;
}
