/* Decoders' rules, credit, drawing and what they read of logits against their reference
 * implementations, on random and on adversarial rows. A plain program, so that it runs on a GPU
 * machine without a test library: `test_decode [seed] [small]` prints the seed, a line for each
 * failure, and the count. Outputs are poisoned before each launch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "tests/gpu/arrays.h"

enum { MASK = 126336, MAX_REQUESTS = 20 };

static const char *const rule_names[] = {"take",         "threshold",       "factor",
                                         "hierarchical", "entropy-bounded", "joint"};

static float some_value(int ties) {
    return ties ? (float)between(1, 64) / 64 : (float)(draw() >> 40) * 0x1p-24f;
}

static struct array *values(int64_t n, int ties, float scale, float shift) {
    struct array *a = array_new((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) {
        ((float *)a->host)[i] = some_value(ties) * scale + shift;
    }
    push(a);
    return a;
}

/* masked: 0 some positions, 1 one, 2 none, 3 all, 4 no canvas, 5 some, of which one is no number. A
 * request's rows lie between others that are nobody's. */
static void test_rule(enum decode_kind rule, enum decode_rank rank, int masked, int most) {
    const int b = between(1, MAX_REQUESTS), ties = draw() % 2, mask_share = between(1, 12);
    int32_t first[MAX_REQUESTS], n_rows[MAX_REQUESTS], take[MAX_REQUESTS], longest = 0, n = 3;
    int64_t starts[MAX_REQUESTS], keys[MAX_REQUESTS];
    for (int r = b - 1; r >= 0; r--) {
        n_rows[r] = draw() % 8 == 0 ? 0 : between(1, most);
        first[r] = n;
        starts[r] = 2 * n;
        keys[r] = (int64_t)draw();
        n += n_rows[r] + between(0, 3);
        take[r] = between(-1, 40);
        longest = n_rows[r] > longest ? n_rows[r] : longest;
    }
    struct array *confidence = values(n, ties, 1, 0), *margin = values(n, ties, 1, 0);
    struct array *entropy = values(n, ties, 2, -2), *threshold = values(b, 0, 1.2f, -0.1f);
    struct array *token = array_new((size_t)n * 4), *position = array_new((size_t)n * 8);
    struct array *canvas = array_new((size_t)n * 3 * 4), *committed = array_new((size_t)n);
    struct array *counts = array_new((size_t)b * 4);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        at += 1 + (draw() % 5 == 0); /* some runs end though the next row is masked, too */
        const int32_t any = rule == DECODE_JOINT ? between(0, 4) : between(0, 1 << 20);
        ((int32_t *)token->host)[i] = draw() % (uint64_t)mask_share == 0 ? MASK : any;
        ((int64_t *)position->host)[i] = at;
    }
    for (int i = 0; i < 3 * n; i++) {
        const bool is_mask = masked == 3 || ((masked == 0 || masked == 5) && draw() % 2);
        ((int32_t *)canvas->host)[i] = is_mask ? MASK : between(0, rule == DECODE_JOINT ? 4 : 1000);
    }
    for (int r = 0; r < b && (masked == 1 || masked == 5); r++) {
        if (n_rows[r] > 0) {
            const int row = first[r] + between(0, n_rows[r] - 1);
            ((int32_t *)canvas->host)[((int64_t *)position->host)[row]] = MASK;
            if (masked == 5 && r % 2) {
                ((float *)confidence->host)[row] = NAN;
            }
        }
    }
    struct array *const sent[] = {confidence, token, position, canvas};
    for (int i = 0; i < 4; i++) {
        push(sent[i]);
    }
    struct array *firsts = integers(first, b), *lengths = integers(n_rows, b);
    struct array *takes = integers(take, b), *start = longs(starts, b), *key = longs(keys, b);
    const float slack = draw() % 2 ? 0 : 0x1p-5f, edit = (float)between(0, 16) / 16;
    const float temperatures[] = {0, 0, 0x1p-4f, 1, 0x1p20f};
    const float temperature = rule == DECODE_COUNT ? temperatures[draw() % 5] : 0;
    for (int side = 0; side < 2; side++) {
#define OF(array) (side ? (array)->device : (array)->host)
        const struct call_decode call = MAKE(
            struct call_decode, .confidence = OF(confidence), .margin = OF(margin),
            .entropy = OF(entropy), .token = OF(token), .first_row = OF(firsts),
            .n_rows = OF(lengths), .take = OF(takes), .threshold = OF(threshold), .key = OF(key),
            .canvas_start = OF(start), .position = masked == 4 ? NULL : OF(position),
            .canvas = masked == 4 ? NULL : OF(canvas), .committed = OF(committed),
            .n_committed = OF(counts), .n_requests = b, .max_rows = longest, .mask_token = MASK,
            .rule = rule, .rank = rank, .slack = slack, .low = 0.4f, .factor = 1, .bound = 0.8f,
            .edit = edit, .temperature = temperature, );
        side ? launched(kernel_decode(&call, NULL), rule_names[rule]) : ref_decode(&call);
    }
    char name[64];
    snprintf(name, sizeof name, "%s by rank %d, masks %d, up to %d rows", rule_names[rule],
             (int)rank, masked, most);
    check_bytes(committed, (size_t)n, name);
    check_bytes(canvas, (size_t)n * 3 * 4, name);
    check_bytes(counts, (size_t)b * 4, name);
    arrays_free();
}

/* Rows that follow one another in a canvas, and some that do not, in two calls of one step. */
static void test_penalise(int n_rows, int n_vocab) {
    struct array *logits = random_bf16((int64_t)n_rows * n_vocab, 0);
    struct array *position = array_new((size_t)n_rows * 8);
    struct array *canvas = array_new((size_t)n_rows * 8);
    int64_t at = 0;
    for (int i = 0; i < n_rows; i++) {
        at += 1 + (draw() % 5 == 0 && at + 2 < 2 * n_rows - (n_rows - i));
        ((int64_t *)position->host)[i] = at < 2 * n_rows ? at : 2 * n_rows - 1;
    }
    for (int i = 0; i < 2 * n_rows; i++) {
        ((int32_t *)canvas->host)[i] = between(0, 2 * n_vocab - 1); /* some are another rank's */
    }
    push(logits), push(position), push(canvas);
    const int first = between(0, n_rows - 1);
    for (int side = 0; side < 2; side++) {
        for (int part = 0; part < 2; part++) {
            const int from = part ? first : 0;
            struct call_penalise call =
                MAKE(struct call_penalise, .position = OF(position), .canvas = OF(canvas),
                     .penalty = 1.5f, .first_row = from, .n_rows = part ? n_rows - first : first,
                     .n_vocab = n_vocab, .first_token = n_vocab / 2, .dtype = KERNEL_BF16);
            call.logits = (uint16_t *)OF(logits) + (int64_t)from * n_vocab;
            if (side == 1) {
                launched(kernel_penalise(&call, NULL), "penalise");
            } else {
                ref_penalise(&call);
            }
        }
    }
    check_bytes(logits, (size_t)n_rows * n_vocab * 2, "penalised logits");
    arrays_free();
}

static void test_limits(void) {
    struct call_decode call = {
        .n_requests = 1, .max_rows = DECODE_MAX_RANKED + 1, .rule = DECODE_FACTOR};
    check(kernel_decode(&call, NULL) == cudaErrorInvalidValue, "rows beyond the limit are refused");
    call.n_requests = 0;
    call.max_rows = 1;
    check(kernel_decode(&call, NULL) == cudaSuccess, "no requests are none");
}

/* How far a probability's logarithm may be off: sums of a vocabulary in single precision. */
static bool near(double got, double want, double scale) {
    return fabs(got - want) <= 2e-5 * scale;
}

/* kind 0: spread; 1: in steps, so that the largest is there twice; 2: some -infinity; 3: some no
 * numbers. */
static struct array *some_logits(int n_rows, int n_vocab, int kind) {
    struct array *logits = random_bf16((int64_t)n_rows * n_vocab, 0);
    for (int64_t i = 0; i < (int64_t)n_rows * n_vocab; i++) {
        const bool is_kept = i % n_vocab == n_vocab / 2;
        const double x = kind == 1 ? floor(normal() * 48) / 16 : 3 * normal();
        const float value = kind == 2 && !is_kept && draw() % 4 ? -INFINITY
                            : kind == 3 && draw() % 1000 == 0   ? NAN
                                                                : (float)x;
        ((uint16_t *)logits->host)[i] = bf16_from_float(value);
    }
    push(logits);
    return logits;
}

/* Statistics beside token and confidence; without them these are the same bits. */
static void test_statistics(int n_rows, int n_vocab, int kind) {
    struct array *logits = some_logits(n_rows, n_vocab, kind);
    struct array *token = array_new((size_t)n_rows * 4), *alone = array_new((size_t)n_rows * 4);
    struct array *out[3], *plain = array_new((size_t)n_rows * 4);
    for (int i = 0; i < 3; i++) {
        out[i] = array_new((size_t)n_rows * 4);
    }
    struct call_sample call =
        MAKE(struct call_sample, .logits = logits->host, .token = token->host,
             .confidence = out[0]->host, .margin = out[1]->host, .entropy = out[2]->host,
             .n_rows = n_rows, .n_vocab = n_vocab, .dtype = KERNEL_BF16);
    if (!ref_sample(&call)) {
        exit(2);
    }
    call.logits = logits->device;
    call.token = token->device;
    call.confidence = out[0]->device;
    call.margin = out[1]->device;
    call.entropy = out[2]->device;
    launched(kernel_sample(&call, NULL), "sample with statistics");
    call.token = alone->device;
    call.confidence = plain->device;
    call.margin = call.entropy = NULL;
    launched(kernel_sample(&call, NULL), "sample");
    float *got[3], *without = pull(plain);
    int32_t *tokens = pull(token), *tokens_alone = pull(alone);
    bool good = true, same = true;
    for (int i = 0; i < 3; i++) {
        got[i] = pull(out[i]);
    }
    for (int row = 0; row < n_rows; row++) {
        const double p = (double)((float *)out[0]->host)[row];
        same = same && (isnan(p) || near((double)without[row], (double)got[0][row], p / 20));
        for (int i = 0; i < 3; i++) {
            const double want = (double)((float *)out[i]->host)[row];
            const double scale = i < 2 ? p : 1 - want;
            good =
                good && (isnan(want) ? isnan(got[i][row]) : near((double)got[i][row], want, scale));
        }
        good = good && (isnan(p) || tokens[row] == ((int32_t *)token->host)[row]);
        same = same && tokens[row] == tokens_alone[row];
    }
    check(good, "statistics of %d rows, %d vocabulary, kind %d", n_rows, n_vocab, kind);
    check(same, "statistics change no confidence: %d rows, %d vocabulary", n_rows, n_vocab);
    for (int i = 0; i < 3; i++) {
        free(got[i]);
    }
    free(without);
    free(tokens);
    free(tokens_alone);
    arrays_free();
}

/* The head's, of exact sums; head NULL: the fused path. */
static void test_head_statistics(struct head *head, int n_rows, int n_channels, int n_vocab) {
    struct array *x = random_whole((int64_t)n_rows * n_channels, 1);
    struct array *w = random_whole((int64_t)n_vocab * n_channels, 1);
    struct array *token = array_new((size_t)n_rows * 4), *out[3];
    struct array *scratch = array_new((size_t)head_scratch_bytes());
    for (int i = 0; i < 3; i++) {
        out[i] = array_new((size_t)n_rows * 4);
    }
    struct call_head call =
        MAKE(struct call_head, .x = x->device, .w = w->device, .token = token->device,
             .confidence = out[0]->device, .margin = out[1]->device, .entropy = out[2]->device,
             .scratch = scratch->device, .n_rows = n_rows, .n_channels = n_channels,
             .n_vocab = n_vocab, .rounded = draw() % 2, .dtype = KERNEL_BF16);
    const cudaError_t status =
        head ? kernel_head_tiles(head, &call, NULL) : kernel_head_wgmma(&call, NULL);
    if (status == cudaErrorNotSupported) {
        arrays_free();
        return;
    }
    launched(status, "head with statistics");
    call.x = x->host;
    call.w = w->host;
    call.token = token->host;
    call.confidence = out[0]->host;
    call.margin = out[1]->host;
    call.entropy = out[2]->host;
    if (!ref_head(&call)) {
        exit(2);
    }
    bool good = true;
    for (int i = 0; i < 3; i++) {
        float *got = pull(out[i]);
        for (int row = 0; row < n_rows; row++) {
            const double p = (double)((float *)out[0]->host)[row];
            const double want = (double)((float *)out[i]->host)[row];
            good = good && near((double)got[row], want, i < 2 ? p : 1 - want);
        }
        free(got);
    }
    check(good, "head's statistics (%s): %d rows, %d channels, %d vocabulary",
          head ? "tiles" : "wgmma", n_rows, n_channels, n_vocab);
    check_bytes(token, (size_t)n_rows * 4, "head's tokens with statistics");
    arrays_free();
}

/* Passes over the same lists, some rows without one, some decided already. */
static void test_credit(int n_rows, int n_vocab, int n_slots, int n_passes) {
    const int64_t words = 2 * n_slots + 2;
    struct array *earned = array_new((size_t)(n_rows * words) * 4);
    struct array *token = array_new((size_t)n_rows * 4),
                 *confidence = array_new((size_t)n_rows * 4);
    struct array *position = array_new((size_t)n_rows * 8), *canvas = array_new((size_t)n_rows * 4);
    int32_t *list = malloc(sizeof *list * (size_t)n_rows);
    memset(earned->host, 0, earned->n_bytes);
    push(earned);
    for (int i = 0; i < n_rows; i++) {
        ((int64_t *)position->host)[i] = n_rows - 1 - i;
        ((int32_t *)canvas->host)[i] = draw() % 4 ? MASK : 3;
        list[i] = draw() % 8 == 0 ? -1 : (i + 1) % n_rows;
    }
    push(position);
    push(canvas);
    struct array *lists = integers(list, n_rows);
    bool good = true, same = true;
    for (int pass = 0; pass < n_passes; pass++) {
        struct array *logits = random_bf16((int64_t)n_rows * n_vocab, 3);
        for (int side = 0; side < 2; side++) {
            struct call_sample sample =
                MAKE(struct call_sample, .logits = logits->host, .token = token->host,
                     .confidence = confidence->host, .n_rows = n_rows, .n_vocab = n_vocab,
                     .dtype = KERNEL_BF16);
            if (side == 0 && !ref_sample(&sample)) {
                exit(2);
            }
            if (side == 0) { /* both sides start from the reference's */
                push(token);
                push(confidence);
            }
            const struct call_credit call =
                MAKE(struct call_credit, .logits = OF(logits), .token = OF(token),
                     .confidence = OF(confidence), .state = OF(earned), .lists = OF(lists),
                     .position = OF(position), .canvas = OF(canvas), .n_rows = n_rows,
                     .n_vocab = n_vocab, .n_slots = n_slots, .mask_token = MASK, .alpha = 0.7f,
                     .beta = 0.8f, .gamma = 0.2f, .dtype = KERNEL_BF16);
            side ? launched(kernel_credit(&call, NULL), "credit") : ref_credit(&call);
        }
        float *got = pull(confidence);
        int32_t *tokens = pull(token), *states = pull(earned);
        for (int i = 0; i < n_rows; i++) {
            good = good && near((double)got[i], (double)((float *)confidence->host)[i], 1);
            same = same && tokens[i] == ((int32_t *)token->host)[i];
            const int32_t *mine = states + i * words, *its = (int32_t *)earned->host + i * words;
            same = same && mine[0] == its[0];
            for (int e = 0; e < its[0] && e < n_slots; e++) {
                float a, b;
                memcpy(&a, &mine[2 + n_slots + e], 4);
                memcpy(&b, &its[2 + n_slots + e], 4);
                same = same && mine[2 + e] == its[2 + e] && fabsf(a - b) <= 1e-6f * b;
            }
        }
        free(got);
        free(tokens);
        free(states);
    }
    check(good, "credit's confidences of %d rows, %d vocabulary", n_rows, n_vocab);
    check(same, "credit's tokens and lists of %d rows, %d slots", n_rows, n_slots);
    free(list);
    arrays_free();
}

/* Both parts, of the first rank: where a token is another's its logit counts as 0. */
static void test_credit_parts(int n_rows, int n_vocab, int n_slots, int n_ranks) {
    const int64_t words = 2 * n_slots + 2;
    struct array *earned = array_new((size_t)(n_rows * words) * 4),
                 *entries = array_new((size_t)(n_rows * n_slots) * 4);
    struct array *token = array_new((size_t)n_rows * 4),
                 *confidence = array_new((size_t)n_rows * 4);
    struct array *logits = random_bf16((int64_t)n_rows * n_vocab, 3);
    int32_t *list = malloc(sizeof *list * (size_t)n_rows);
    memset(earned->host, 0, earned->n_bytes);
    for (int i = 0; i < n_rows; i++) {
        list[i] = draw() % 8 == 0 ? -1 : (i + 1) % n_rows;
        ((int32_t *)token->host)[i] = between(0, n_ranks * n_vocab - 1);
        ((float *)confidence->host)[i] = draw() % 9 == 0 ? NAN : (float)between(1, 100) / 100;
    }
    push(earned);
    push(token);
    push(confidence);
    struct array *lists = integers(list, n_rows);
    for (int part = KERNEL_CREDIT_EARN; part <= KERNEL_CREDIT_DECIDE; part++) {
        for (int side = 0; side < 2; side++) {
            const struct call_credit call =
                MAKE(struct call_credit, .logits = OF(logits), .token = OF(token),
                     .confidence = OF(confidence), .state = OF(earned), .lists = OF(lists),
                     .entries = OF(entries), .part = (enum kernel_credit_part)part,
                     .n_rows = n_rows, .n_vocab = n_vocab, .n_slots = n_slots, .alpha = 0.7f,
                     .beta = 0.8f, .gamma = 0.2f, .dtype = KERNEL_BF16);
            side ? launched(kernel_credit(&call, NULL), "credit") : ref_credit(&call);
        }
        if (part == KERNEL_CREDIT_EARN) {
            check_bytes(entries, (size_t)(n_rows * n_slots) * 4, "a rank's logits of credit");
        }
    }
    check_bytes(token, (size_t)n_rows * 4, "tokens of credit by ranks");
    free(list);
    arrays_free();
}

/* A rule for each row, some of which ask for nothing. */
static struct array *some_rules(int n_rows) {
    static const double top_ps[] = {1, 1, 0, 0.3, 0.9, 0.999};
    static const uint32_t top_ks[] = {0, 0, 1, 7, 50, 1000000};
    struct array *rules = array_new((size_t)n_rows * sizeof(struct draw_rule));
    for (int row = 0; row < n_rows; row++) {
        ((struct draw_rule *)rules->host)[row] =
            MAKE(struct draw_rule, .top_p = top_ps[draw() % 6],
                 .temperature = (float)between(1, 40) / 20, .top_k = top_ks[draw() % 6],
                 .of = (uint32_t)(draw() % 3), .draws = draw() % 4 > 0);
    }
    push(rules);
    return rules;
}

/* Every bit: token, probability and statistics. */
static void test_draw(int n_rows, int n_vocab, bool ties) {
    struct array *logits = random_bf16((int64_t)n_rows * n_vocab, ties ? 0.02 : 4);
    struct array *values[4], *bits = array_new((size_t)n_rows * 8);
    for (int i = 0; i < 4; i++) {
        values[i] = array_new((size_t)n_rows * 4);
    }
    for (int i = 0; i < n_rows; i++) {
        ((uint64_t *)bits->host)[i] = draw();
    }
    push(bits);
    const struct call_sample sample =
        MAKE(struct call_sample, .logits = logits->host, .token = values[0]->host,
             .confidence = values[1]->host, .margin = values[2]->host, .entropy = values[3]->host,
             .n_rows = n_rows, .n_vocab = n_vocab, .dtype = KERNEL_BF16);
    if (!ref_sample(&sample)) {
        exit(2);
    }
    for (int i = 0; i < 4; i++) { /* both sides start from the reference's */
        push(values[i]);
    }
    struct array *by = some_rules(n_rows);
    for (int side = 0; side < 2; side++) {
        const struct call_draw call =
            MAKE(struct call_draw, .logits = OF(logits), .token = OF(values[0]),
                 .confidence = OF(values[1]), .margin = OF(values[2]), .entropy = OF(values[3]),
                 .bits = OF(bits), .by = OF(by), .n_rows = n_rows, .n_vocab = n_vocab,
                 .dtype = KERNEL_BF16);
        if (side == 1) {
            launched(kernel_draw(&call, NULL), "draw");
        } else if (!ref_draw(&call)) {
            exit(2);
        }
    }
    static const char *const what[] = {"tokens", "confidences", "margins", "entropies"};
    for (int i = 0; i < 4; i++) {
        char text[64];
        snprintf(text, sizeof text, "draw's %s, %d rows of %d", what[i], n_rows, n_vocab);
        check_bytes(values[i], (size_t)n_rows * 4, text);
    }
    arrays_free();
}

/* Both sides by the parts of ranks, which are all on one device here: what each sends lies where
 * all receive it. */
static void test_draw_parts(int n_rows, int n_vocab, int n_ranks, bool ties) {
    struct array *logits[CALL_MAX_RANKS], *values[CALL_MAX_RANKS][4], *states[CALL_MAX_RANKS];
    struct array *bits = array_new((size_t)n_rows * 8), *by = some_rules(n_rows);
    struct array *top = array_new((size_t)n_rows * 4), *sent[2];
    const int64_t width = (int64_t)n_ranks * n_vocab, slot = (int64_t)sizeof(struct draw_sums);
    uint16_t *whole = malloc((size_t)(n_rows * width) * 2);
    for (int i = 0; i < 2; i++) {
        sent[i] = array_new((size_t)(n_ranks * n_rows * slot));
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        logits[rank] = random_bf16((int64_t)n_rows * n_vocab, ties ? 0.02 : 4);
        states[rank] = array_new((size_t)n_rows * sizeof(struct draw_state));
        for (int row = 0; row < n_rows; row++) {
            memcpy(whole + row * width + (int64_t)rank * n_vocab,
                   (uint16_t *)logits[rank]->host + (int64_t)row * n_vocab, (size_t)n_vocab * 2);
        }
        for (int i = 0; i < 4; i++) {
            values[rank][i] = array_new((size_t)n_rows * 4);
        }
        const struct call_sample sample =
            MAKE(struct call_sample, .logits = whole, .token = values[rank][0]->host,
                 .confidence = values[rank][1]->host, .margin = values[rank][2]->host,
                 .entropy = values[rank][3]->host, .logit = top->host, .n_rows = n_rows,
                 .n_vocab = (int32_t)width, .dtype = KERNEL_BF16);
        if (rank == n_ranks - 1 && !ref_sample(&sample)) {
            exit(2);
        }
    }
    for (int i = 0; i < n_rows; i++) {
        ((uint64_t *)bits->host)[i] = draw();
    }
    push(bits);
    push(top);
    for (int i = 0; i < n_ranks * 4; i++) {
        memcpy(values[i / 4][i % 4]->host, values[n_ranks - 1][i % 4]->host, (size_t)n_rows * 4);
        push(values[i / 4][i % 4]);
    }
    for (int part = 0; part <= 7; part++) {
        const enum draw_step step = draw_part_of(part, true, 2).step;
        const int64_t bytes = step == DRAW_SEARCH ? (int64_t)sizeof(struct draw_bins)
                              : step == DRAW_FIND ? (int64_t)sizeof(struct draw_found)
                                                  : slot;
        for (int rank = 0; rank < n_ranks; rank++) {
            struct array **to = values[rank];
            for (int side = 0; side < 2; side++) {
                const struct call_draw of =
                    MAKE(struct call_draw, .logits = OF(logits[rank]), .token = OF(to[0]),
                         .confidence = OF(to[1]), .margin = OF(to[2]), .entropy = OF(to[3]),
                         .bits = OF(bits), .by = OF(by), .n_rows = n_rows, .n_vocab = n_vocab,
                         .dtype = KERNEL_BF16);
                const struct call_draw_part call =
                    MAKE(struct call_draw_part, .of = of, .logit = OF(top),
                         .state = OF(states[rank]), .received = OF(sent[1 - part % 2]),
                         .sent = (unsigned char *)OF(sent[part % 2]) + rank * n_rows * bytes,
                         .part = part, .rank = rank, .n_ranks = n_ranks, .cuts = true);
                side ? launched(kernel_draw_part(&call, NULL), "draw_part") : ref_draw_part(&call);
            }
        }
    }
    for (int i = 0; i < n_ranks * 4; i++) {
        char text[64];
        snprintf(text, sizeof text, "value %d of rank %d of %d, %d rows of %d", i % 4, i / 4,
                 n_ranks, n_rows, n_vocab);
        check_bytes(values[i / 4][i % 4], (size_t)n_rows * 4, text);
    }
    free(whole);
    arrays_free();
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    const bool small = argc > 2 && strcmp(argv[2], "small") == 0;
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    struct head *head;
    must(head_open(&head), "head_open");
    for (int i = 0; i < (small ? 2 : 12); i++) {
        for (int rule = 0; rule < DECODE_KINDS; rule++) {
            for (int masked = 0; masked < 6; masked++) {
                for (int rank = 0; rank <= RANK_DRAW; rank++) {
                    test_rule((enum decode_kind)rule, (enum decode_rank)rank, masked,
                              i % 3 == 0 ? 200 : 64);
                }
            }
        }
        test_statistics(between(1, 40), between(2, 40), i % 4);
        test_statistics(between(1, 10), between(2, small ? 2000 : 20000), i % 4);
        test_head_statistics(head, between(1, 40), between(1, 20) * 8, between(2, 2000));
        test_head_statistics(NULL, between(1, 400), between(1, 20) * 8, between(2, 2000));
        test_credit(between(1, 70), between(2, 3000), between(1, 40), 6);
        test_penalise(between(1, 400), between(2, 3000));
        for (int ties = 0; ties < 8; ties++) {
            test_draw(between(1, 70), between(1, 3000), ties % 2);
        }
        for (int ranks = 2; ranks <= CALL_MAX_RANKS; ranks *= 2) {
            test_draw_parts(between(1, 40), between(1, 1500), ranks, ranks == 4);
            test_credit_parts(between(1, 70), between(2, 1500), between(1, 40), ranks);
        }
    }
    for (int masked = 0; masked < 6; masked++) { /* several rows a thread */
        test_rule(DECODE_COUNT, RANK_MARGIN, masked, small ? 300 : 1500);
        test_rule(DECODE_THRESHOLD, RANK_CONFIDENCE, masked, small ? 300 : 1500);
        test_rule(DECODE_JOINT, RANK_CONFIDENCE, masked, small ? 300 : 1500);
        test_rule(DECODE_FACTOR, RANK_CONFIDENCE, masked, small ? 150 : 700);
        test_rule(DECODE_HIERARCHICAL, RANK_CONFIDENCE, masked, small ? 150 : 700);
        test_rule(DECODE_ENTROPY_BOUNDED, RANK_ENTROPY, masked, small ? 150 : 700);
    }
    if (!small) {
        test_rule(DECODE_COUNT, RANK_CONFIDENCE, 3, 5000);
        test_rule(DECODE_JOINT, RANK_CONFIDENCE, 0, 5000);
        test_statistics(32, 157184, 0);
        test_statistics(33, 151667, 2);
        test_head_statistics(head, 33, 256, 126464);
        test_head_statistics(NULL, 300, 256, 30000);
        test_credit(64, 157184, 64, 70);
        test_draw(200, 157184, false);
        test_draw(33, 151667, true);
    }
    test_limits();
    head_close(head);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
