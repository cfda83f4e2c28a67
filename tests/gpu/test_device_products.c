/* Products of random shapes through the CUDA device's table, whose ways are tried when a shape is
 * first met. */
#include "tests/gpu/on_device.h"

/* add: 0 none, 1 another array, 2 y itself, 3 none and weights by inputs. */
static struct call_linear product(int n_tokens, int n_outputs, int n_inputs, int add,
                                  struct buffer **out) {
    const int64_t x_stride = n_inputs + 8 * between(0, 2);
    const int64_t y_stride = (n_outputs + 7) / 8 * 8 + 8 * between(0, 2);
    struct buffer *x = random_bf16(n_tokens * x_stride, 1);
    struct buffer *w = random_bf16((int64_t)n_outputs * n_inputs, 1);
    struct buffer *other = random_bf16(n_tokens * y_stride, 10);
    struct buffer *y = random_bf16(n_tokens * y_stride, 10);
    struct call_linear call = MAKE(
        struct call_linear, .x = x->host, .w = w->host,
        .add = add == 1   ? other->host
               : add == 2 ? y->host
                          : NULL,
        .y = y->host, .x_stride = x_stride, .y_stride = y_stride, .n_tokens = n_tokens,
        .n_outputs = n_outputs, .n_inputs = n_inputs, .dtype = KERNEL_BF16, .by_inputs = add == 3);
    must(table->finish(device), "finish"); /* y has been uploaded */
    ref_linear(&call);
    call.x = x->device;
    call.w = w->device;
    call.add = add == 1 ? other->device : add == 2 ? y->device : NULL;
    call.y = y->device;
    *out = y;
    return call;
}

static void check_product(const struct buffer *y, const struct call_linear *call,
                          const char *name) {
    char text[120];
    snprintf(text, sizeof text, "product %s, T %d, N %d, K %d", name, call->n_tokens,
             call->n_outputs, call->n_inputs);
    check_rows(y, call->n_tokens, call->n_outputs, call->y_stride, call->n_inputs, text);
    /* What lies between the rows stays. */
    uint16_t *got = pull(y);
    bool same = true;
    for (int64_t t = 0; t < call->n_tokens; t++) {
        const int64_t at = t * call->y_stride + call->n_outputs;
        const int64_t gap = call->y_stride - call->n_outputs;
        same = same && memcmp(got + at, (uint16_t *)y->host + at, (size_t)gap * 2) == 0;
    }
    check(same, "%s wrote between the rows", text);
    free(got);
}

static void test_product(int n_tokens, int n_outputs, int n_inputs, int add) {
    struct buffer *y;
    const struct call_linear call = product(n_tokens, n_outputs, n_inputs, add, &y);
    must(table->linear(device, &call), "linear");
    static const char *const names[] = {"plain", "with a sum", "in place", "by inputs"};
    check_product(y, &call, names[add]);
    buffers_free();
}

/* A shape that no product has had, first met while a graph is captured, then outside: timed runs
 * must not leave traces either time. */
static void test_captured_product(void) {
    struct buffer *y;
    const struct call_linear call =
        product(between(70, 200), 8 * between(2, 30) + 3, 8 * between(2, 30), 2, &y);
    struct device_graph *graph;
    void *before = pull(y);
    must(table->capture_begin(device), "capture_begin");
    must(table->linear(device, &call), "linear, captured");
    must(table->capture_end(device, &graph), "capture_end");
    void *after = pull(y);
    check(memcmp(before, after, (size_t)y->bytes) == 0, "capturing a product runs nothing");
    must(table->graph_launch(device, graph), "graph_launch");
    check_product(y, &call, "captured");
    table->graph_close(device, graph);
    buffers_free();
    free(before);
    free(after);
    test_product(call.n_tokens, call.n_outputs, call.n_inputs, 2);
}

int main(int argc, char **argv) {
    const int status = device_begin(argc, argv);
    if (status != 0) {
        return status;
    }
    test_captured_product(); /* first, while nothing of the library has run */
    for (int i = 0; i < (small ? 3 : 24); i++) {
        const int n_tokens = i % 3 ? between(1, 64) : between(65, small ? 100 : 1200);
        test_product(n_tokens, between(1, 300), 8 * between(1, 60), i % 3);
        test_product(between(1, 40), 8 * between(1, 40), 8 * between(1, 40), (i + 1) % 3);
        test_product(between(1, 90), 8 * between(1, 40), 8 * between(1, 400), 3);
    }
    if (!small) {
        test_product(20000, 16, 64, 2);
        test_product(64, 256, 157184, 3); /* expected embeddings, of fewer channels */
        test_captured_product();
    }
    check_empty();
    return device_end();
}
