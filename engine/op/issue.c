#include "engine/op/issue.h"

#include "sim/base/num.h"

struct launch launch_of(struct issue *issue, const struct op_instance *instance) {
    const struct graph *graph = issue->program->graph;
    const bool is_rest = instance->op >= issue->program->evict_op;
    return (struct launch){
        .issue = issue,
        .packed = is_rest ? issue->rest : issue->packed,
        .arrays = issue->room->arrays + (is_rest ? issue->packed->max_bytes : 0),
        .instance = instance,
        .cache_layer = issue->has_one_layer ? 0 : instance->layer,
        .op = &graph->ops[instance->op],
        .graph = graph,
        .model = graph->segments[graph->ops[instance->op].segment].global
                     ? &issue->program->global_kind
                     : graph->model,
        .table = issue->device->table,
        .device = issue->device->device,
        .dtype = issue->device->dtype,
    };
}

int issue_instance(struct issue *issue, const struct op_instance *instance) {
    const struct launch l = launch_of(issue, instance);
    return instance->n_rows > 0 ? op_launch_of(l.op)->launch(&l) : DEVICE_OK;
}

/* Where the tensor holds n rows. */
static struct candidates candidates_of(struct issue *issue, int tensor, int64_t n) {
    const struct size *row = &issue->program->graph->tensors[tensor].bytes;
    int32_t *token = (int32_t *)(void *)tensor_at(issue, tensor);
    float *confidence = (float *)(void *)(token + n);
    const int64_t n_values = row->per / F32_BYTES - 2; /* besides those */
    float *margin = n_values >= 2 ? confidence + n : NULL;
    float *logit = n_values % 2 == 1 ? confidence + n_values * n : NULL;
    return (struct candidates){token, confidence, margin, margin != NULL ? margin + n : NULL,
                               logit};
}

struct candidates issue_candidates(struct issue *issue, int tensor) {
    return candidates_of(issue, tensor, issue->rest->n.n_logit_rows);
}

static float *from_row(float *values, int64_t row) {
    return values != NULL ? values + row : NULL;
}

struct candidates launch_candidates(const struct launch *l, int tensor) {
    const int64_t first = l->instance->first_row;
    if (l->graph->tensors[tensor].loop >= 0) {
        return candidates_of(l->issue, tensor, l->instance->n_rows);
    }
    const struct candidates all = issue_candidates(l->issue, tensor);
    return (struct candidates){all.token + first, all.confidence + first,
                               from_row(all.margin, first), from_row(all.entropy, first),
                               from_row(all.logit, first)};
}
