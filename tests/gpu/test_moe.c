/* The kernels of a mixture of experts against their reference implementations on random shapes,
 * tails, empty experts and crowded ones included. A plain program, as test_kernels is: `test_moe
 * [seed] [small]`. Outputs are poisoned with NaN before each launch, and what no pair owns must
 * stay so. */
#include <time.h>

#include "kernels/kernels.h"
#include "tests/gpu/arrays.h"

static bool small;

enum { MAX_TOKENS = 3000 };

/* Tokens of requests, of each a run of the canvas with gaps. */
static void fill_blocks(struct call_moe_route *call, struct array **start,
                        struct array **position) {
    const int n = call->n_tokens, n_requests = between(1, n < 9 ? n : 9);
    int32_t *starts = calloc((size_t)n_requests + 1, sizeof *starts);
    int32_t *positions = calloc((size_t)n, sizeof *positions);
    for (int r = 0; r < n_requests; r++) {
        starts[r] = (int32_t)((int64_t)n * r / n_requests);
    }
    starts[n_requests] = n;
    call->block_tokens = between(1, 3) == 1 ? 300 : between(1, 40);
    for (int r = 0; r < n_requests; r++) {
        int at = between(0, 90);
        for (int t = starts[r]; t < starts[r + 1]; t++) {
            positions[t] = at;
            at += draw() % 5 == 0 ? between(1, 9) : 1;
        }
    }
    *start = integers(starts, n_requests + 1);
    *position = integers(positions, n);
    free(starts);
    free(positions);
    call->start = (*start)->host;
    call->position = (*position)->host;
    call->n_requests = n_requests;
    call->blocks = draw() % 2 ? KERNEL_BLOCKS_LARGEST : KERNEL_BLOCKS_SHARE;
    call->block_experts = between(call->n_active, call->n_experts);
    call->block_share = draw() % 4 == 0 ? 1 : 0.6f;
}

static void test_route(int n_tokens) {
    static const int sizes[] = {1, 8, 31, 32, 33, 64, 128, 256, 256};
    const bool grouped = draw() % 2, few = draw() % 3 == 0;
    int n_experts = sizes[draw() % 9], n_groups = 1, n_groups_active = 1;
    if (grouped && draw() % 4) {
        n_groups = between(1, n_experts < MOE_MAX_GROUPS ? n_experts : MOE_MAX_GROUPS);
        n_experts = n_experts / n_groups * n_groups;
        n_groups_active = between(1, n_groups);
    }
    const int open = n_experts / n_groups * n_groups_active;
    const int n_active = between(1, open < MOE_MAX_ACTIVE ? open : MOE_MAX_ACTIVE);
    const int64_t stride = n_experts + between(0, 9);
    struct array *logits = random_bf16(n_tokens * stride, 2),
                 *bias = array_new((size_t)n_experts * 4);
    for (int64_t i = 0; few && i < n_tokens * stride; i++) { /* ties, and now and then a NaN */
        const float x = draw() % 90 == 0 ? NAN : (float)between(-2, 2);
        ((uint16_t *)logits->host)[i] = bf16_from_float(x);
    }
    push(logits);
    for (int e = 0; e < n_experts; e++) {
        ((float *)bias->host)[e] = few ? (float)between(0, 2) * 0.25f : (float)(normal() * 0.1);
    }
    push(bias);
    struct array *expert = array_new((size_t)n_tokens * n_active * 4);
    struct array *weight = array_new((size_t)n_tokens * n_active * 4);
    struct call_moe_route call = MAKE(
        struct call_moe_route, .logits = logits->host, .bias = draw() % 2 ? bias->host : NULL,
        .expert = expert->host, .weight = weight->host, .logit_stride = stride,
        .n_tokens = n_tokens, .n_experts = n_experts, .n_active = n_active, .n_groups = n_groups,
        .n_groups_active = n_groups_active, .normalised = draw() % 2,
        .scale = draw() % 2 ? 1 : 2.5f,
        .router = grouped ? KERNEL_ROUTER_SIGMOID : KERNEL_ROUTER_SOFTMAX, .dtype = KERNEL_BF16);
    struct array *start = NULL, *position = NULL;
    if (grouped && n_tokens > 0 && draw() % 2) {
        fill_blocks(&call, &start, &position);
    }
    ref_moe_route(&call);
    call.start = start ? start->device : NULL;
    call.position = position ? position->device : NULL;
    call.logits = logits->device;
    call.bias = call.bias ? bias->device : NULL;
    call.expert = expert->device;
    call.weight = weight->device;
    launched(kernel_moe_route(&call, NULL), "route");
    char name[200];
    snprintf(name, sizeof name,
             "route: %s, %d tokens, %d of %d experts, %d of %d groups%s, blocks %d of %d: %d",
             grouped ? "sigmoid" : "softmax", n_tokens, n_active, n_experts, n_groups_active,
             n_groups, few ? ", ties" : "", (int)call.blocks, call.block_tokens,
             call.block_experts);
    check_all(expert, name);
    float *got = pull(weight);
    double worst = 0;
    bool good = true;
    for (int64_t i = 0; i < (int64_t)n_tokens * n_active; i++) {
        const double want = ((float *)weight->host)[i];
        const double off = fabs((double)got[i] - want) / (fabs(want) + 1e-30);
        /* An exponential of about 10 in single precision, sums of up to 256. */
        good = good && (off <= 1e-5 || (isnan(want) && isnan(got[i])));
        worst = off > worst ? off : worst;
    }
    check(good, "%s: weights off by %g", name, worst);
    free(got);
    arrays_free();
}

enum crowd { EVEN, SKEWED, ONE, FEW_EXPERTS, CROWDS };

/* Which experts each token goes to: distinct ones where there are enough. */
static int32_t *random_experts(int n_tokens, int n_active, int n_experts, enum crowd crowd) {
    int32_t *expert = malloc(sizeof *expert * (size_t)(n_tokens * n_active + 1));
    const int favourite = between(0, n_experts - 1), few = between(1, n_experts);
    for (int i = 0; i < n_tokens * n_active; i++) {
        int e = between(0, n_experts - 1);
        e = crowd == FEW_EXPERTS ? e % few : e;
        e = crowd == SKEWED && draw() % 2 ? favourite : e;
        expert[i] = crowd == ONE ? favourite : e;
    }
    return expert;
}

static void test_sort(int n_tokens, enum crowd crowd) {
    const int all = draw() % 2 ? between(1, MOE_MAX_EXPERTS) : 64, n_active = between(1, 8);
    const int first = draw() % 2 ? between(0, all - 1) : 0;
    const int n_experts = first > 0 ? between(1, all - first) : all;
    const int64_t n = (int64_t)n_tokens * n_active;
    int32_t *experts = random_experts(n_tokens, n_active, all, crowd);
    struct array *expert = integers(experts, n), *start = array_new((size_t)(n_experts + 1) * 4);
    struct array *order = array_new((size_t)n * 4), *place = array_new((size_t)n * 4);
    struct call_moe_sort call =
        MAKE(struct call_moe_sort, .expert = experts, .start = start->host, .order = order->host,
             .place = place->host, .n_tokens = n_tokens, .n_active = n_active,
             .n_experts = n_experts, .first_expert = first);
    ref_moe_sort(&call);
    call.expert = expert->device;
    call.start = start->device;
    call.order = order->device;
    call.place = place->device;
    launched(kernel_moe_sort(&call, NULL), "sort");
    char name[200];
    snprintf(name, sizeof name, "sort: %d tokens, %d active, experts %d .. %d of %d, crowd %d",
             n_tokens, n_active, first, first + n_experts - 1, all, (int)crowd);
    check_all(start, name);
    check_all(order, name);
    check_all(place, name);
    free(experts);
    arrays_free();
}

static const struct {
    const char *name;
    cudaError_t (*gate_up)(const struct call_moe_gate_up *, cudaStream_t);
    cudaError_t (*down)(const struct call_moe_down *, cudaStream_t);
} paths[] = {{"mma", kernel_moe_gate_up_mma, kernel_moe_down_mma},
             {"wgmma", kernel_moe_gate_up_wgmma, kernel_moe_down_wgmma}};

/* One token alone, among the same experts, has the same bits. */
static void check_alone(const struct call_moe_gate_up *gate_up, const struct call_moe_down *down,
                        const int32_t *experts, const int32_t *place, int first_expert,
                        const char *name) {
    const int a = gate_up->n_active, t = between(0, gate_up->n_tokens - 1);
    const int64_t f = gate_up->n_hidden, c = gate_up->n_channels;
    struct array *start = array_new((size_t)(gate_up->n_experts + 1) * 4);
    struct array *order = array_new((size_t)a * 4), *own_place = array_new((size_t)a * 4);
    struct array *inner = array_new((size_t)(a * f) * 2), *outer = array_new((size_t)(a * c) * 2);
    const struct call_moe_sort sort =
        MAKE(struct call_moe_sort, .expert = experts + (int64_t)t * a, .start = start->host,
             .order = order->host, .place = own_place->host, .n_tokens = 1, .n_active = a,
             .n_experts = gate_up->n_experts, .first_expert = first_expert);
    ref_moe_sort(&sort);
    push(start);
    push(order);
    struct call_moe_gate_up one = *gate_up;
    struct call_moe_down two = *down;
    one.x = (const uint16_t *)gate_up->x + t * gate_up->x_stride;
    one.n_tokens = two.n_tokens = 1;
    one.start = two.start = start->device;
    one.order = order->device;
    one.y = inner->device;
    two.x = inner->device;
    two.y = outer->device;
    launched(kernel_moe_gate_up(&one, NULL), name);
    launched(kernel_moe_down(&two, NULL), name);
    uint16_t *own = pull(outer);
    uint16_t *row = malloc((size_t)c * 2);
    bool same = true;
    for (int i = 0; i < a; i++) {
        const int32_t at = place[(int64_t)t * a + i], own_at = ((int32_t *)own_place->host)[i];
        if (at >= 0) {
            must(cudaMemcpy(row, (const uint16_t *)down->y + at * c, (size_t)c * 2,
                            cudaMemcpyDeviceToHost),
                 "pull");
            same = same && memcmp(row, own + own_at * c, (size_t)c * 2) == 0;
        }
    }
    check(same, "%s: alone a token has other bits", name);
    free(row);
    free(own);
}

static void test_products(int n_tokens, int n_active, int all, enum crowd crowd, int n_channels,
                          int n_hidden) {
    const int first = draw() % 3 == 0 ? between(0, all - 1) : 0;
    const int n_experts = first > 0 ? between(1, all - first) : all;
    const int64_t n = (int64_t)n_tokens * n_active, stride = n_channels + between(0, 3) * 8;
    int32_t *experts = random_experts(n_tokens, n_active, all, crowd);
    struct array *start = array_new((size_t)(n_experts + 1) * 4);
    struct array *order = array_new((size_t)n * 4), *place = array_new((size_t)n * 4);
    const struct call_moe_sort sort =
        MAKE(struct call_moe_sort, .expert = experts, .start = start->host, .order = order->host,
             .place = place->host, .n_tokens = n_tokens, .n_active = n_active,
             .n_experts = n_experts, .first_expert = first);
    ref_moe_sort(&sort);
    push(start);
    push(order);
    push(place);
    const int64_t n_ours = ((int32_t *)start->host)[n_experts];
    struct array *x = random_bf16(n_tokens * stride, 1);
    struct array *w1 =
        random_bf16((int64_t)n_experts * 2 * n_hidden * n_channels, 2 / sqrt(n_channels));
    struct array *w2 = random_bf16((int64_t)n_experts * n_channels * n_hidden, 1 / sqrt(n_hidden));
    struct array *inner = array_new((size_t)(n * n_hidden) * 2);
    struct array *outer = array_new((size_t)(n * n_channels) * 2);
    struct call_moe_gate_up gate_up =
        MAKE(struct call_moe_gate_up, .x = x->host, .w = w1->host, .start = start->host,
             .order = order->host, .y = inner->host, .x_stride = stride, .n_tokens = n_tokens,
             .n_active = n_active, .n_experts = n_experts, .n_channels = n_channels,
             .n_hidden = n_hidden, .dtype = KERNEL_BF16, .gelu = draw() % 2);
    struct call_moe_down down =
        MAKE(struct call_moe_down, .x = inner->host, .w = w2->host, .start = start->host,
             .y = outer->host, .n_tokens = n_tokens, .n_active = n_active, .n_experts = n_experts,
             .n_channels = n_channels, .n_hidden = n_hidden, .dtype = KERNEL_BF16);
    ref_moe_gate_up(&gate_up);
    ref_moe_down(&down);
    gate_up.x = x->device;
    gate_up.w = w1->device;
    gate_up.y = inner->device;
    down.x = inner->device;
    down.w = w2->device;
    down.y = outer->device;
    gate_up.start = down.start = start->device;
    gate_up.order = order->device;
    char name[200];
    for (size_t path = 0; path < sizeof paths / sizeof paths[0]; path++) {
        snprintf(name, sizeof name,
                 "%s: %d tokens, %d active, experts %d .. %d of %d, crowd %d, C %d, F %d",
                 paths[path].name, n_tokens, n_active, first, first + n_experts - 1, all,
                 (int)crowd, n_channels, n_hidden);
        poison(inner);
        poison(outer);
        const cudaError_t status = paths[path].gate_up(&gate_up, NULL);
        if (status == cudaErrorNotSupported) {
            printf("%s is not supported\n", paths[path].name);
            continue;
        }
        launched(status, name);
        check_rows(inner, KERNEL_BF16, n_ours, n_hidden, n_hidden, n_channels, name);
        check_untouched(inner, n_ours * n_hidden * 2, name);
        push(inner); /* the reference's, so that what follows starts from the same numbers */
        launched(paths[path].down(&down, NULL), name);
        check_rows(outer, KERNEL_BF16, n_ours, n_channels, n_channels, n_hidden, name);
        check_untouched(outer, n_ours * n_channels * 2, name);
    }
    if (n_tokens > 0) {
        launched(kernel_moe_gate_up(&gate_up, NULL), name);
        launched(kernel_moe_down(&down, NULL), name);
        check_alone(&gate_up, &down, experts, place->host, first, name);
    }
    free(experts);
    arrays_free();
}

static void *device_random(int64_t n, uint64_t key, double spread) {
    void *y;
    must(cudaMalloc(&y, (size_t)n * 2), "cudaMalloc");
    const struct call_random call = {
        .y = y, .key = key, .n = n, .spread = spread, .dtype = KERNEL_BF16};
    launched(kernel_random(&call, NULL), "random");
    return y;
}

/* Both paths, which share little, over a whole layer of a model. */
static void test_model(int n_tokens, int n_experts, int n_hidden) {
    enum { C = 2048, A = 8 };
    const int64_t n = (int64_t)n_tokens * A;
    int32_t *experts = random_experts(n_tokens, A, n_experts, EVEN);
    struct array *start = array_new((size_t)(n_experts + 1) * 4);
    struct array *order = array_new((size_t)n * 4), *place = array_new((size_t)n * 4);
    const struct call_moe_sort sort =
        MAKE(struct call_moe_sort, .expert = experts, .start = start->host, .order = order->host,
             .place = place->host, .n_tokens = n_tokens, .n_active = A, .n_experts = n_experts);
    ref_moe_sort(&sort);
    push(start);
    push(order);
    void *x = device_random((int64_t)n_tokens * C, draw(), 1.7);
    void *w1 = device_random((int64_t)n_experts * 2 * n_hidden * C, draw(), 0.07);
    void *w2 = device_random((int64_t)n_experts * n_hidden * C, draw(), 0.07);
    struct array *inner = array_new((size_t)(n * n_hidden) * 2);
    struct array *outer = array_new((size_t)(n * C) * 2);
    const struct call_moe_gate_up gate_up = MAKE(
        struct call_moe_gate_up, .x = x, .w = w1, .start = start->device, .order = order->device,
        .y = inner->device, .x_stride = C, .n_tokens = n_tokens, .n_active = A,
        .n_experts = n_experts, .n_channels = C, .n_hidden = n_hidden, .dtype = KERNEL_BF16);
    const struct call_moe_down down =
        MAKE(struct call_moe_down, .x = inner->device, .w = w2, .start = start->device,
             .y = outer->device, .n_tokens = n_tokens, .n_active = A, .n_experts = n_experts,
             .n_channels = C, .n_hidden = n_hidden, .dtype = KERNEL_BF16);
    char name[100];
    snprintf(name, sizeof name, "a model's layer: %d tokens, %d experts of %d", n_tokens, n_experts,
             n_hidden);
    launched(paths[0].gate_up(&gate_up, NULL), name);
    must(cudaMemcpy(inner->host, inner->device, inner->n_bytes, cudaMemcpyDeviceToHost), "pull");
    launched(paths[0].down(&down, NULL), name);
    must(cudaMemcpy(outer->host, outer->device, outer->n_bytes, cudaMemcpyDeviceToHost), "pull");
    poison(outer);
    if (paths[1].down(&down, NULL) != cudaErrorNotSupported) {
        must(cudaDeviceSynchronize(), name);
        check_rows(outer, KERNEL_BF16, n, C, C, n_hidden, name);
        poison(inner);
        launched(paths[1].gate_up(&gate_up, NULL), name);
        check_rows(inner, KERNEL_BF16, n, n_hidden, n_hidden, C, name);
    }
    must(cudaFree(x), "cudaFree");
    must(cudaFree(w1), "cudaFree");
    must(cudaFree(w2), "cudaFree");
    free(experts);
    arrays_free();
}

static void test_combine(void) {
    const int n_tokens = between(1, small ? 30 : 200), n_active = between(1, MOE_MAX_ACTIVE);
    const int n_channels = between(1, 400) * 8, mode = (int)(draw() % 3); /* add: none, apart, y */
    const int64_t n = (int64_t)n_tokens * n_active;
    int32_t *places = malloc(sizeof *places * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        places[i] = draw() % 5 == 0 ? -1 : between(0, (int)n - 1);
    }
    struct array *x = random_bf16(n * n_channels, 1), *place = integers(places, n);
    struct array *weight = array_new((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) {
        ((float *)weight->host)[i] = (float)between(1, 1000) / 2000;
    }
    push(weight);
    struct array *add = random_bf16((int64_t)n_tokens * n_channels, 1);
    struct array *y = mode == 2 ? random_bf16((int64_t)n_tokens * n_channels, 1)
                                : array_new((size_t)n_tokens * n_channels * 2);
    struct call_moe_combine call =
        MAKE(struct call_moe_combine, .x = x->host, .weight = weight->host, .place = places,
             .add = mode == 0   ? NULL
                    : mode == 1 ? add->host
                                : y->host,
             .y = y->host, .n_tokens = n_tokens, .n_active = n_active, .n_channels = n_channels,
             .dtype = KERNEL_BF16);
    ref_moe_combine(&call);
    call.x = x->device;
    call.weight = weight->device;
    call.place = place->device;
    call.add = mode == 0 ? NULL : mode == 1 ? add->device : y->device;
    call.y = y->device;
    launched(kernel_moe_combine(&call, NULL), "combine");
    check_rows(y, KERNEL_BF16, n_tokens, n_channels, n_channels, n_active, "combine");
    free(places);
    arrays_free();
}

static void test_refusals(void) {
    struct call_moe_route route =
        MAKE(struct call_moe_route, .n_experts = 257, .n_active = 1, .n_groups = 1,
             .n_groups_active = 1, .router = KERNEL_ROUTER_SIGMOID, .dtype = KERNEL_BF16);
    check(kernel_moe_route(&route, NULL) == cudaErrorInvalidValue, "257 experts");
    route.n_experts = 64;
    check(kernel_moe_route(&route, NULL) == cudaSuccess, "no tokens to route");
    route.n_groups = 5;
    check(kernel_moe_route(&route, NULL) == cudaErrorInvalidValue, "64 experts in 5 groups");
    route.n_groups = 8;
    route.n_active = 9;
    check(kernel_moe_route(&route, NULL) == cudaErrorInvalidValue, "9 of a group of 8");
    route.n_active = 8;
    route.blocks = KERNEL_BLOCKS_SHARE;
    route.block_tokens = 32;
    route.block_experts = 7;
    check(kernel_moe_route(&route, NULL) == cudaErrorInvalidValue, "7 experts of a block for 8");
    struct call_moe_sort sort = {.n_active = 17, .n_experts = 4};
    check(kernel_moe_sort(&sort, NULL) == cudaErrorInvalidValue, "17 active experts");
    struct call_moe_gate_up gate_up =
        MAKE(struct call_moe_gate_up, .x_stride = 64, .n_active = 2, .n_experts = 4,
             .n_channels = 60, .n_hidden = 64, .dtype = KERNEL_BF16);
    check(kernel_moe_gate_up(&gate_up, NULL) == cudaErrorInvalidValue, "60 channels");
    gate_up.n_channels = 64;
    check(kernel_moe_gate_up(&gate_up, NULL) == cudaSuccess, "no tokens to multiply");
    gate_up.dtype = KERNEL_F32;
    check(kernel_moe_gate_up(&gate_up, NULL) == cudaErrorInvalidValue, "float32");
    struct call_moe_combine combine = {.n_active = 2, .n_channels = 12, .dtype = KERNEL_BF16};
    check(kernel_moe_combine(&combine, NULL) == cudaErrorInvalidValue, "12 channels");
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    printf("seed %" PRIu64 "%s\n", state, small ? ", small" : "");
    test_refusals();
    for (int i = 0; i < (small ? 6 : 40); i++) {
        test_route(i == 0 ? 1 : between(1, small ? 40 : MAX_TOKENS));
        test_combine();
    }
    for (int crowd = 0; crowd < CROWDS; crowd++) {
        test_sort(1, (enum crowd)crowd);
        test_sort(32, (enum crowd)crowd);
        test_sort(between(2, small ? 300 : 5000), (enum crowd)crowd);
        test_sort(small ? 2000 : 16384, (enum crowd)crowd);
    }
    test_sort(0, EVEN);
    for (int i = 0; i < (small ? 2 : 12); i++) {
        for (int crowd = 0; crowd < CROWDS; crowd++) {
            const int few = i % 3, n_active = between(1, 4);
            const int n_tokens = few == 0 ? between(1, 8) : between(1, small ? 40 : 300);
            test_products(n_tokens, n_active, few == 1 ? between(8, 40) : between(1, 8),
                          (enum crowd)crowd, between(1, 30) * 8,
                          between(1, few == 2 ? 12 : 30) * 8);
        }
    }
    /* Every width of a tile, and tiles that share an expert. */
    for (int n = 1; n <= (small ? 40 : 272); n += small ? 13 : 9) {
        test_products(n, 1, 1, ONE, 72, 136);
    }
    test_products(small ? 300 : 700, 1, 2, SKEWED, 64, 64);
    test_products(3, 2, MOE_MAX_EXPERTS, EVEN, 64, 72);
    if (!small) {
        test_products(1000, 2, MOE_MAX_EXPERTS, EVEN, 64, 24);
        for (int n_tokens = 1; n_tokens <= 1024; n_tokens *= 8) {
            test_model(n_tokens * (n_tokens < 64 ? 1 : 2), 64, 1024);
            test_model(n_tokens * (n_tokens < 64 ? 1 : 2), 256, 512);
        }
        test_model(2048, 64, 1024);
        test_model(5000, 64, 1024);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
