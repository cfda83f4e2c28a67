#include "kernels/work.h"

static double element_bytes(enum kernel_dtype dtype) {
    return dtype == KERNEL_BF16 ? 2 : 4;
}

struct kernel_work work_embed(const struct call_embed *call) {
    const double n = (double)call->n_tokens * call->n_channels;
    return (struct kernel_work){
        2 * n * element_bytes(call->dtype) + (call->at ? 12.0 : 4.0) * call->n_tokens, 0};
}

struct kernel_work work_norm(const struct call_norm *call) {
    const double n = (double)call->n_rows * call->n_channels;
    const double passes = !call->residual ? 2 : call->rows ? 3 : 4;
    return (struct kernel_work){(passes * n + call->n_channels) * element_bytes(call->dtype),
                                (call->residual ? 5 : 4) * n};
}

struct kernel_work work_linear(const struct call_linear *call) {
    const double rows = call->n_tokens, n = call->n_inputs, outputs = call->n_outputs;
    return (struct kernel_work){(rows * n + n * outputs + (call->add ? 2 : 1) * rows * outputs) *
                                    element_bytes(call->dtype),
                                2 * rows * outputs * n};
}

struct kernel_work work_add(const struct call_add *call) {
    const double n = (double)call->n;
    return (struct kernel_work){3 * n * element_bytes(call->dtype), n};
}

struct kernel_work work_swiglu(const struct call_swiglu *call) {
    const double n = (double)call->n_tokens * call->n_hidden;
    return (struct kernel_work){3 * n * element_bytes(call->dtype), 5 * n};
}

struct kernel_work work_rope(const struct call_rope *call) {
    const double turned = call->n_heads + call->n_kv_heads;
    const double n = (double)call->n_tokens * call->head_size;
    const double all = turned + call->n_kv_heads;
    return (struct kernel_work){2 * n * all * element_bytes(call->dtype), 3 * n * turned};
}

struct kernel_work work_keep(const struct call_keep *call, double n_kept_tokens) {
    const double row = (double)call->n_kv_heads * call->head_size * element_bytes(call->dtype);
    return (struct kernel_work){4 * n_kept_tokens * row + 8.0 * call->n_tokens, 0};
}

struct kernel_work work_dense_attention(const struct call_dense_attention *call, double pairs) {
    const double width = 2.0 * call->n_heads + 2.0 * call->n_kv_heads;
    const double size = call->head_size;
    return (struct kernel_work){call->n_tokens * width * size * element_bytes(call->dtype),
                                4 * pairs * call->n_heads * size};
}

struct kernel_work work_block_attention(const struct call_block_attention *call, double queries,
                                        double kept, double pairs) {
    const double size = call->head_size * element_bytes(call->dtype);
    return (struct kernel_work){2 * queries * call->n_heads * size +
                                    2 * (queries + kept) * call->n_kv_heads * size,
                                4 * pairs * call->n_heads * call->head_size};
}

struct kernel_work work_paged_attention(const struct call_paged_attention *call, double queries,
                                        double rows, double pairs) {
    const double size = call->head_size * element_bytes(call->dtype);
    return (struct kernel_work){2 * queries * call->n_heads * size +
                                    2 * rows * call->n_kv_heads * size,
                                4 * pairs * call->n_heads * call->head_size};
}

struct kernel_work work_select(const struct call_select *call, double queries, double candidates,
                               double kept) {
    const double size = call->head_size * element_bytes(call->dtype);
    return (struct kernel_work){queries * call->n_heads * size +
                                    (candidates + 4 * kept) * call->n_kv_heads * size,
                                2 * candidates * call->n_heads * call->head_size};
}

struct kernel_work work_head(const struct call_head *call) {
    const double rows = call->n_rows, n = call->n_channels, vocab = call->n_vocab;
    return (struct kernel_work){(rows + vocab) * n * element_bytes(call->dtype) + 8 * rows,
                                2 * rows * vocab * n};
}

struct kernel_work work_sample(const struct call_sample *call) {
    const double rows = call->n_rows, n = rows * call->n_vocab;
    return (struct kernel_work){n * element_bytes(call->dtype) + 8 * rows, 3 * n};
}

struct kernel_work work_importance(const struct call_importance *call, double tokens, double masked,
                                   double pairs) {
    const double size = call->head_size * element_bytes(call->dtype);
    return (struct kernel_work){masked * (call->n_heads + call->n_kv_heads) * size +
                                    (call->kv_rows ? 4 : 0) * masked + 5 * tokens,
                                2 * pairs * call->n_heads * call->head_size};
}

struct kernel_work work_compact(const struct call_compact *call, double rows) {
    double width = 0;
    for (int32_t a = 0; a < call->n_arrays; a++) {
        width += call->width[a];
    }
    return (struct kernel_work){rows * (2 * width * element_bytes(call->dtype) + 4), 0};
}

struct kernel_work work_moe_route(const struct call_moe_route *call) {
    const double n = (double)call->n_tokens * call->n_experts;
    return (struct kernel_work){
        n * element_bytes(call->dtype) + 8.0 * call->n_tokens * call->n_active, 4 * n};
}

struct kernel_work work_moe_sort(const struct call_moe_sort *call) {
    return (struct kernel_work){
        12.0 * call->n_tokens * call->n_active + 4.0 * (call->n_experts + 1), 0};
}

struct kernel_work work_moe_gate_up(const struct call_moe_gate_up *call, double pairs,
                                    double experts) {
    const double n = call->n_channels, f = call->n_hidden;
    return (struct kernel_work){(call->n_tokens * n + experts * 2 * f * n + pairs * f) *
                                        element_bytes(call->dtype) +
                                    4 * pairs,
                                pairs * f * (4 * n + 5)};
}

struct kernel_work work_moe_down(const struct call_moe_down *call, double pairs, double experts) {
    const double n = call->n_channels, f = call->n_hidden;
    return (struct kernel_work){
        (pairs * f + experts * n * f + pairs * n) * element_bytes(call->dtype), 2 * pairs * n * f};
}

struct kernel_work work_moe_combine(const struct call_moe_combine *call, double pairs) {
    const double n = call->n_channels;
    const double rows = pairs + (call->add ? 2.0 : 1.0) * call->n_tokens;
    return (struct kernel_work){rows * n * element_bytes(call->dtype) +
                                    8.0 * call->n_tokens * call->n_active,
                                2 * pairs * n};
}
