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
        .model = graph->model,
        .table = issue->device->table,
        .device = issue->device->device,
        .dtype = issue->device->dtype,
    };
}

int issue_instance(struct issue *issue, const struct op_instance *instance) {
    const struct launch l = launch_of(issue, instance);
    return instance->n_rows > 0 ? op_launch_of(l.op)->launch(&l) : DEVICE_OK;
}

struct candidates issue_candidates(struct issue *issue, int tensor) {
    const struct size *row = &issue->program->graph->tensors[tensor].bytes;
    const int64_t n = issue->rest->n.n_logit_rows;
    int32_t *token = (int32_t *)(void *)tensor_at(issue, tensor);
    float *confidence = (float *)(void *)(token + n);
    const int64_t n_values = row->per / F32_BYTES - 2; /* besides those */
    float *margin = n_values >= 2 ? confidence + n : NULL;
    float *logit = n_values % 2 == 1 ? confidence + n_values * n : NULL;
    return (struct candidates){token, confidence, margin, margin != NULL ? margin + n : NULL,
                               logit};
}
