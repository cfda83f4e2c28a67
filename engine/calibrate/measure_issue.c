/* The calls of a point's operators, as engine/op/issue.c makes them in a step. */
#include "engine/calibrate/measure_impl.h"
#include "engine/weights/weights.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"

static void *on_device(const struct measure *m, enum array array) {
    return (unsigned char *)m->regions[REGION_ARRAYS] + (int64_t)array * array_bytes(m);
}

/* Where queries, keys and values lie in a row of the rotated product, in region x. */
static unsigned char *qkv_at(const struct measure *m, int part) {
    const struct model *model = m->model;
    int64_t channels = part == 0   ? 0
                       : part == 1 ? (int64_t)model->heads * model->head_dim
                                   : ((int64_t)model->heads + model->kv_heads) * model->head_dim;
    return (unsigned char *)m->regions[REGION_X] + channels * m->element_bytes;
}

/* What a copy has of the ring, which is its own as far as the ring reaches. */
static unsigned char *ring_at(const struct measure *m, int copy) {
    int64_t size = align_up(larger(m->copy_bytes, 1), MEASURE_ALIGN_BYTES);
    int64_t places = larger(m->bytes[REGION_RING] / size, 1);
    return (unsigned char *)m->regions[REGION_RING] + copy % places * size;
}

/* Of the layers that have such a weight, in turn. */
static const void *weight_at(const struct measure *m, enum weight_slot slot, int copy) {
    uint32_t first_mixture = model_first_mixture(m->model), layers = m->model->layers;
    uint32_t first = slot >= WEIGHT_ROUTER ? first_mixture : 0;
    uint32_t end = slot == WEIGHT_GATE_UP || slot == WEIGHT_DOWN ? first_mixture : layers;
    ASSERT(end > first);
    return weights_at(m->weights, slot, first + (uint32_t)copy % (end - first));
}

static int issue_product(const struct measure *m, int copy) {
    const int64_t *sizes = m->point->sizes;
    struct call_linear call = {.x = m->regions[REGION_X],
                               .w = weight_at(m, (enum weight_slot)m->point->weight, copy),
                               .y = m->regions[REGION_Y],
                               .x_stride = m->point->x_stride,
                               .y_stride = sizes[POINT_GEMM_N],
                               .n_tokens = (int32_t)sizes[POINT_GEMM_M],
                               .n_outputs = (int32_t)sizes[POINT_GEMM_N],
                               .n_inputs = (int32_t)sizes[POINT_GEMM_K],
                               .dtype = m->device->dtype};
    return m->device->table->linear(device_of(m), &call);
}

static int issue_full(const struct measure *m) {
    const struct model *model = m->model;
    struct call_dense_attention call = {.q = qkv_at(m, 0),
                                        .k = qkv_at(m, 1),
                                        .v = qkv_at(m, 2),
                                        .y = m->regions[REGION_Y],
                                        .start = on_device(m, ARRAY_START),
                                        .q_stride = qkv_channels(model),
                                        .kv_stride = qkv_channels(model),
                                        .y_stride = (int64_t)model->heads * model->head_dim,
                                        .n_requests = m->n_requests,
                                        .n_tokens = m->n_tokens,
                                        .n_heads = (int32_t)model->heads,
                                        .n_kv_heads = (int32_t)model->kv_heads,
                                        .head_size = (int32_t)model->head_dim,
                                        .max_tokens = m->longest,
                                        .dtype = m->device->dtype};
    return m->device->table->dense_attention(device_of(m), &call);
}

static int issue_block(const struct measure *m, int copy) {
    const struct model *model = m->model;
    struct call_block_attention call = {.q = qkv_at(m, 0),
                                        .k = qkv_at(m, 1),
                                        .v = qkv_at(m, 2),
                                        .cache = ring_at(m, copy),
                                        .y = m->regions[REGION_Y],
                                        .start = on_device(m, ARRAY_START),
                                        .kept = on_device(m, ARRAY_KEPT),
                                        .cache_start = on_device(m, ARRAY_CACHE_START),
                                        .q_stride = qkv_channels(model),
                                        .kv_stride = qkv_channels(model),
                                        .y_stride = (int64_t)model->heads * model->head_dim,
                                        .n_requests = m->n_requests,
                                        .n_heads = (int32_t)model->heads,
                                        .n_kv_heads = (int32_t)model->kv_heads,
                                        .head_size = (int32_t)model->head_dim,
                                        .max_queries = m->longest,
                                        .dtype = m->device->dtype};
    return m->device->table->block_attention(device_of(m), &call);
}

/* A copy's pool: rows of keys, then as many of values. */
static unsigned char *pool_at(const struct measure *m, int copy, int part) {
    int64_t row_bytes = (int64_t)m->model->kv_heads * m->model->head_dim * m->element_bytes;
    return ring_at(m, copy) + part * m->pool_rows * row_bytes;
}

static int issue_paged(const struct measure *m, int copy) {
    const struct model *model = m->model;
    struct call_paged_attention call = {.q = qkv_at(m, 0),
                                        .k = pool_at(m, copy, 0),
                                        .v = pool_at(m, copy, 1),
                                        .y = m->regions[REGION_Y],
                                        .start = on_device(m, ARRAY_START),
                                        .extent = on_device(m, ARRAY_EXTENT),
                                        .pages = on_device(m, ARRAY_PAGES),
                                        .q_stride = qkv_channels(model),
                                        .kv_stride = (int64_t)model->kv_heads * model->head_dim,
                                        .y_stride = (int64_t)model->heads * model->head_dim,
                                        .n_requests = m->n_requests,
                                        .n_tokens = m->n_tokens,
                                        .n_heads = (int32_t)model->heads,
                                        .n_kv_heads = (int32_t)model->kv_heads,
                                        .head_size = (int32_t)model->head_dim,
                                        .max_pages = m->max_pages,
                                        .page_rows = (int32_t)m->bounds.page_rows,
                                        .max_queries = m->longest,
                                        .max_extent = m->max_pages * (int32_t)m->bounds.page_rows,
                                        .dtype = m->device->dtype};
    return m->device->table->paged_attention(device_of(m), &call);
}

static int issue_head(const struct measure *m) {
    struct call_head call = {.x = m->regions[REGION_X],
                             .w = weight_at(m, WEIGHT_HEAD, 0),
                             .token = on_device(m, ARRAY_TOKEN),
                             .confidence = on_device(m, ARRAY_CONFIDENCE),
                             .scratch = m->regions[REGION_SCRATCH],
                             .n_rows = (int32_t)m->point->sizes[POINT_FUSED_ROWS],
                             .n_channels = (int32_t)m->model->hidden,
                             .n_vocab = (int32_t)m->model->vocab,
                             .rounded = m->device->dtype == KERNEL_BF16,
                             .dtype = m->device->dtype};
    return m->device->table->head(device_of(m), &call);
}

static int issue_gate_up(const struct measure *m, int copy) {
    const int64_t *sizes = m->point->sizes;
    struct call_gate_up call = {.x = m->regions[REGION_X],
                                .w = weight_at(m, (enum weight_slot)m->point->weight, copy),
                                .y = m->regions[REGION_Y],
                                .x_stride = m->point->x_stride,
                                .y_stride = sizes[POINT_FUSED_N] / 2,
                                .n_tokens = (int32_t)sizes[POINT_FUSED_ROWS],
                                .n_channels = (int32_t)sizes[POINT_FUSED_K],
                                .n_hidden = (int32_t)sizes[POINT_FUSED_N] / 2,
                                .dtype = m->device->dtype};
    return m->device->table->gate_up(device_of(m), &call);
}

static int issue_embed(const struct measure *m) {
    struct call_embed call = {.table = weight_at(m, WEIGHT_EMBEDDING, 0),
                              .ids = on_device(m, ARRAY_IDS),
                              .at = on_device(m, ARRAY_AT),
                              .y = m->regions[REGION_Y],
                              .n_tokens = m->n_tokens,
                              .n_channels = (int32_t)m->model->hidden,
                              .n_vocab = (int32_t)m->model->vocab,
                              .dtype = m->device->dtype};
    return m->device->table->embed(device_of(m), &call);
}

static int issue_norm(const struct measure *m, int copy) {
    struct call_norm call = {.x = m->regions[REGION_X],
                             .weight = weight_at(m, WEIGHT_FFN_NORM, copy),
                             .residual = m->point->pass == PASS_NORM_ADD ? ring_at(m, copy) : NULL,
                             .y = m->regions[REGION_Y],
                             .n_rows = m->n_tokens,
                             .n_channels = (int32_t)m->model->hidden,
                             .epsilon = m->weights->constants.norm_epsilon,
                             .dtype = m->device->dtype};
    return m->device->table->norm(device_of(m), &call);
}

static int issue_rope(const struct measure *m, int copy) {
    const struct model *model = m->model;
    bool is_exact = calibration_is_exact(model);
    struct call_rope call = {.qkv = m->regions[REGION_X],
                             .bias = weight_at(m, WEIGHT_QKV_BIAS, copy),
                             .q_norm = weight_at(m, WEIGHT_Q_NORM, copy),
                             .k_norm = weight_at(m, WEIGHT_K_NORM, copy),
                             .cos_sin = m->regions[REGION_ANGLES],
                             .positions = on_device(m, ARRAY_POSITIONS),
                             .kv_rows = is_exact ? on_device(m, ARRAY_KV_ROWS) : NULL,
                             .q = qkv_at(m, 0),
                             .k = is_exact ? pool_at(m, copy, 0) : qkv_at(m, 1),
                             .v = is_exact ? pool_at(m, copy, 1) : qkv_at(m, 2),
                             .q_stride = qkv_channels(model),
                             .kv_stride = is_exact ? (int64_t)model->kv_heads * model->head_dim
                                                   : qkv_channels(model),
                             .n_tokens = m->n_tokens,
                             .n_heads = (int32_t)model->heads,
                             .n_kv_heads = (int32_t)model->kv_heads,
                             .head_size = (int32_t)model->head_dim,
                             .rotary_size = (int32_t)model_rotary_dim(model),
                             .epsilon = m->weights->constants.norm_epsilon,
                             .dtype = m->device->dtype};
    return m->device->table->rope(device_of(m), &call);
}

static int issue_keep(const struct measure *m, int copy) {
    struct call_keep call = {.k = qkv_at(m, 1),
                             .v = qkv_at(m, 2),
                             .start = on_device(m, ARRAY_START),
                             .owner = on_device(m, ARRAY_OWNER),
                             .kv_rows = on_device(m, ARRAY_KV_ROWS),
                             .kept = on_device(m, ARRAY_KEPT),
                             .cache_start = on_device(m, ARRAY_CACHE_START),
                             .cache = ring_at(m, copy),
                             .kv_stride = qkv_channels(m->model),
                             .n_requests = m->n_requests,
                             .n_tokens = m->n_tokens,
                             .n_kv_heads = (int32_t)m->model->kv_heads,
                             .head_size = (int32_t)m->model->head_dim,
                             .dtype = m->device->dtype};
    return m->device->table->keep(device_of(m), &call);
}

static int issue_select(const struct measure *m, int copy) {
    const struct model *model = m->model;
    float *scores = m->regions[REGION_SCRATCH];
    struct call_select call = {
        .q = qkv_at(m, 0),
        .k = qkv_at(m, 1),
        .v = qkv_at(m, 2),
        .start = on_device(m, ARRAY_START),
        .block_start = on_device(m, ARRAY_BLOCK_START),
        .block_end = on_device(m, ARRAY_BLOCK_END),
        .kept = on_device(m, ARRAY_KEPT),
        .cache_start = on_device(m, ARRAY_CACHE_START),
        .score_start = on_device(m, ARRAY_SCORE_START),
        .cache = ring_at(m, copy),
        .scores = scores,
        .indices = (int32_t *)(void *)(scores + m->bounds.max_tokens * model->kv_heads),
        .q_stride = qkv_channels(model),
        .kv_stride = qkv_channels(model),
        .n_requests = m->n_requests,
        .n_heads = (int32_t)model->heads,
        .n_kv_heads = (int32_t)model->kv_heads,
        .head_size = (int32_t)model->head_dim,
        .max_candidates = m->longest,
        .dtype = m->device->dtype};
    return m->device->table->select(device_of(m), &call);
}

/* In place, as the graph has it. */
static int issue_swiglu(const struct measure *m) {
    struct call_swiglu call = {.gate_up = m->regions[REGION_X],
                               .y = m->regions[REGION_X],
                               .y_stride = 2 * m->point->sizes[POINT_PASS_CHANNELS],
                               .n_tokens = m->n_tokens,
                               .n_hidden = (int32_t)m->point->sizes[POINT_PASS_CHANNELS],
                               .dtype = m->device->dtype};
    return m->device->table->swiglu(device_of(m), &call);
}

/* The residual stream, plus what a sublayer adds to it. */
static int issue_add(const struct measure *m, int copy) {
    struct call_add call = {.a = ring_at(m, copy),
                            .b = m->regions[REGION_X],
                            .y = ring_at(m, copy),
                            .n = (int64_t)m->n_tokens * m->model->hidden,
                            .dtype = m->device->dtype};
    return m->device->table->add(device_of(m), &call);
}

/* Logits lie where the head's product leaves them. */
static int issue_sample(const struct measure *m) {
    struct call_sample call = {.logits = m->regions[REGION_Y],
                               .token = on_device(m, ARRAY_TOKEN),
                               .confidence = on_device(m, ARRAY_CONFIDENCE),
                               .n_rows = m->n_tokens,
                               .n_vocab = (int32_t)m->model->vocab,
                               .dtype = m->device->dtype};
    return m->device->table->sample(device_of(m), &call);
}

/* The engine clears what is committed before it decides. */
static int issue_decode(const struct measure *m) {
    struct call_decode call = {.confidence = on_device(m, ARRAY_CONFIDENCE),
                               .token = on_device(m, ARRAY_TOKEN),
                               .first_row = on_device(m, ARRAY_FIRST_ROW),
                               .n_rows = on_device(m, ARRAY_N_ROWS),
                               .take = on_device(m, ARRAY_TAKE),
                               .position = on_device(m, ARRAY_AT),
                               .canvas = on_device(m, ARRAY_CANVAS),
                               .committed = on_device(m, ARRAY_COMMITTED),
                               .n_committed = on_device(m, ARRAY_N_COMMITTED),
                               .n_requests = m->n_requests,
                               .max_rows = m->longest,
                               .mask_token = (int32_t)m->model->mask_token,
                               .rule = DECODE_COUNT};
    int status = m->device->table->clear(device_of(m), call.committed, m->n_tokens);
    return status == DEVICE_OK ? m->device->table->decode(device_of(m), &call) : status;
}

/* The arrays of a choice, one behind the other. */
struct choice {
    int32_t *expert, *order, *place, *start;
    float *weight;
};

static struct choice choice_of(const struct measure *m) {
    const int64_t pairs = m->bounds.max_tokens * model_most_active(m->model);
    int32_t *first = m->regions[REGION_CHOICE];
    return (struct choice){first, first + pairs, first + 2 * pairs, first + 4 * pairs,
                           (float *)(void *)(first + 3 * pairs)};
}

int measure_choose(const struct measure *m, int copy) {
    const struct model *model = m->model;
    const struct choice choice = choice_of(m);
    const struct call_moe_route route = {
        .logits = m->regions[REGION_X],
        .bias = model->expert_bias ? weight_at(m, WEIGHT_EXPERT_BIAS, copy) : NULL,
        .expert = choice.expert,
        .weight = choice.weight,
        .logit_stride = model_routed_experts(model),
        .n_tokens = m->n_tokens,
        .n_experts = (int32_t)model_routed_experts(model),
        .n_active = (int32_t)model_most_active(model),
        .n_groups = (int32_t)model->expert_groups,
        .n_groups_active = (int32_t)model->expert_groups_active,
        .normalised = model->norm_topk,
        .scale = (float)model->routed_scale,
        .router = model->router == ROUTER_SOFTMAX ? KERNEL_ROUTER_SOFTMAX : KERNEL_ROUTER_SIGMOID,
        .dtype = m->device->dtype};
    const struct call_moe_sort sort = {.expert = choice.expert,
                                       .start = choice.start,
                                       .order = choice.order,
                                       .place = choice.place,
                                       .n_tokens = m->n_tokens,
                                       .n_active = route.n_active,
                                       .n_experts = (int32_t)model->experts};
    int status = m->device->table->moe_route(device_of(m), &route);
    return status == DEVICE_OK ? m->device->table->moe_sort(device_of(m), &sort) : status;
}

/* Gates and ups, then what they come back to, as a step has them. */
static int issue_experts(const struct measure *m, int copy) {
    const struct model *model = m->model;
    const struct choice choice = choice_of(m);
    const struct call_moe_gate_up gate_up = {.x = m->regions[REGION_X],
                                             .w = weight_at(m, WEIGHT_EXPERTS_GATE_UP, copy),
                                             .start = choice.start,
                                             .order = choice.order,
                                             .y = m->regions[REGION_SCRATCH],
                                             .x_stride = model->hidden,
                                             .n_tokens = m->n_tokens,
                                             .n_active = (int32_t)model_most_active(model),
                                             .n_experts = (int32_t)model->experts,
                                             .n_channels = (int32_t)model->hidden,
                                             .n_hidden = (int32_t)model->expert_ffn,
                                             .dtype = m->device->dtype};
    const struct call_moe_down down = {.x = m->regions[REGION_SCRATCH],
                                       .w = weight_at(m, WEIGHT_EXPERTS_DOWN, copy),
                                       .start = choice.start,
                                       .y = m->regions[REGION_Y],
                                       .n_tokens = m->n_tokens,
                                       .n_active = gate_up.n_active,
                                       .n_experts = gate_up.n_experts,
                                       .n_channels = gate_up.n_channels,
                                       .n_hidden = gate_up.n_hidden,
                                       .dtype = m->device->dtype};
    int status = m->device->table->moe_gate_up(device_of(m), &gate_up);
    return status == DEVICE_OK ? m->device->table->moe_down(device_of(m), &down) : status;
}

static int issue_combine(const struct measure *m) {
    const struct choice choice = choice_of(m);
    const bool shares = m->model->shared_experts > 0;
    const struct call_moe_combine call = {.x = m->regions[REGION_Y],
                                          .weight = choice.weight,
                                          .place = choice.place,
                                          .add = shares ? m->regions[REGION_X] : NULL,
                                          .y = m->regions[REGION_X],
                                          .n_tokens = m->n_tokens,
                                          .n_active = (int32_t)model_most_active(m->model),
                                          .n_channels = (int32_t)m->model->hidden,
                                          .dtype = m->device->dtype};
    return m->device->table->moe_combine(device_of(m), &call);
}

static int issue_pass(const struct measure *m, int copy) {
    switch (m->point->pass) {
    case PASS_EMBED:
        return issue_embed(m);
    case PASS_NORM:
    case PASS_NORM_ADD:
        return issue_norm(m, copy);
    case PASS_ROPE:
        return issue_rope(m, copy);
    case PASS_KEEP:
        return issue_keep(m, copy);
    case PASS_SWIGLU:
        return issue_swiglu(m);
    case PASS_ADD:
        return issue_add(m, copy);
    case PASS_SAMPLE:
        return issue_sample(m);
    case PASS_DECODE:
        return issue_decode(m);
    case PASS_SELECT:
    case PASS_PACK:
        return issue_select(m, copy);
    case PASS_MOE_CHOOSE:
        return measure_choose(m, copy);
    case PASS_MOE_COMBINE:
        return issue_combine(m);
    }
    return DEVICE_REFUSED;
}

int measure_issue(const struct measure *m, int copy) {
    switch (m->point->op) {
    case PROFILE_GEMM:
        return issue_product(m, copy);
    case PROFILE_ATTENTION_FULL:
        return issue_full(m);
    case PROFILE_ATTENTION_CAUSAL:
        return issue_paged(m, copy);
    case PROFILE_ATTENTION_BLOCK:
        return calibration_is_exact(m->model) ? issue_paged(m, copy) : issue_block(m, copy);
    case PROFILE_HEAD:
        return issue_head(m);
    case PROFILE_GATE_UP:
        return issue_gate_up(m, copy);
    case PROFILE_MOE:
        return issue_experts(m, copy);
    default:
        return issue_pass(m, copy);
    }
}

/* Read `n_outputs` rows of a matrix as wide as the hidden size, for the sake of reading them. */
static int read_rows(const struct measure *m, const void *w, int64_t n_outputs) {
    struct call_linear call = {.x = m->regions[REGION_X],
                               .w = w,
                               .y = m->regions[REGION_Y],
                               .x_stride = m->model->hidden,
                               .y_stride = n_outputs,
                               .n_tokens = 1,
                               .n_outputs = (int32_t)n_outputs,
                               .n_inputs = (int32_t)m->model->hidden,
                               .dtype = m->device->dtype};
    return m->device->table->linear(device_of(m), &call);
}

/* Read so many weights that nothing else is left in the cache: the embedding's and, where it is
 * too small, those of the last layers, which few copies reach. */
int measure_flush(const struct measure *m) {
    int64_t row_bytes = m->model->hidden * m->element_bytes;
    int64_t rows = ceil_div(m->flush_bytes, row_bytes) / 8 * 8;
    uint32_t first_mixture = model_first_mixture(m->model);
    int status = DEVICE_OK;
    for (uint32_t layer = m->model->layers; status == DEVICE_OK && rows > 0; layer--) {
        bool is_embedding = layer == m->model->layers, is_mixture = layer >= first_mixture;
        const void *w = weights_at(m->weights,
                                   is_embedding ? WEIGHT_EMBEDDING
                                   : is_mixture ? WEIGHT_EXPERTS_GATE_UP
                                                : WEIGHT_GATE_UP,
                                   layer);
        int64_t n = is_embedding ? m->model->vocab
                    : is_mixture ? 2LL * m->model->experts * m->model->expert_ffn
                                 : 2LL * m->model->ffn;
        n = n < rows ? n : rows;
        status = read_rows(m, w, n);
        rows = layer > 0 ? rows - n : 0;
    }
    return status;
}
