#include "sim/step/graph.h"

#include "sim/base/num.h"

const char *const chunk_kind_names[CHUNK_KINDS] = {"attention", "ffn", "logits"};

int64_t loop_n_chunks(const struct graph *graph, int loop, const struct step_shape *shape,
                      struct chunk_rows chunks) {
    int64_t rows = loop_chunk_rows(graph, loop, shape, chunks);
    return rows > 0 ? ceil_div(shape->sym[graph->loops[loop].rows], rows) : 0;
}

int64_t tensor_bytes(const struct graph *graph, int tensor, const struct step_shape *shape,
                     struct chunk_rows chunks) {
    const struct tensor *t = &graph->tensors[tensor];
    return t->bytes.per * chunk_of(graph, t->loop, shape->sym[t->bytes.symbol], chunks);
}
