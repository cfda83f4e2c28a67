#include "sim/step/registrar.h"

#include <inttypes.h>
#include <string.h>

/* ---- writing a graph down ---- */

/* The loop that is being added to: the last one, as long as it has no end; -1: none. */
static int open_loop(const struct graph *g) {
    int last = (int)g->n_loops - 1;
    return last >= 0 && g->loops[last].last_op < 0 ? last : -1;
}

void graph_add_segment(struct graph *g, const char *name, uint32_t repeat) {
    ASSERT(g->n_segments < GRAPH_MAX_SEGMENTS && open_loop(g) < 0);
    g->segments[g->n_segments++] = (struct segment){.name = name, .repeat = repeat};
}

int graph_add_tensor(struct graph *g, const char *name, enum symbol symbol, int64_t per) {
    ASSERT(g->n_tensors < GRAPH_MAX_TENSORS);
    g->tensors[g->n_tensors] = (struct tensor){.name = name,
                                               .bytes = {symbol, per},
                                               .loop = open_loop(g),
                                               .alias = -1,
                                               .first_op = -1,
                                               .type = graph_wide(g)};
    return (int)g->n_tensors++;
}

int graph_add_cache(struct graph *g, const char *name, enum symbol symbol, int64_t per) {
    int tensor = graph_add_tensor(g, name, symbol, per);
    g->tensors[tensor].home = HOME_CACHE;
    return tensor;
}

int graph_add_alias(struct graph *g, const char *name, int of) {
    int tensor = graph_add_tensor(g, name, g->tensors[of].bytes.symbol, g->tensors[of].bytes.per);
    g->tensors[tensor].alias = of;
    g->tensors[tensor].type = g->tensors[of].type;
    return tensor;
}

static void touch(struct graph *g, int tensor, int op) {
    for (; tensor >= 0; tensor = g->tensors[tensor].alias) {
        struct tensor *t = &g->tensors[tensor];
        t->first_op = t->first_op < 0 ? op : t->first_op;
        t->last_op = op;
    }
}

struct op *graph_add_op(struct graph *g, const char *name, enum op_kind kind, enum symbol rows,
                        const int *in, const int *out) {
    ASSERT(g->n_ops < GRAPH_MAX_OPS && g->n_segments > 0);
    int index = (int)g->n_ops++;
    struct op *op = &g->ops[index];
    *op = (struct op){.name = name,
                      .kind = kind,
                      .segment = g->n_segments - 1,
                      .loop = open_loop(g),
                      .rows = rows,
                      .picks = -1,
                      .weight = WEIGHT_NONE};
    memset(op->in, -1, sizeof op->in);
    memset(op->out, -1, sizeof op->out);
    for (int i = 0; in[i] >= 0; i++) {
        ASSERT(i < OP_MAX_TENSORS);
        op->in[i] = in[i];
        touch(g, in[i], index);
    }
    for (int i = 0; out[i] >= 0; i++) {
        ASSERT(i < OP_MAX_TENSORS);
        op->out[i] = out[i];
        touch(g, out[i], index);
    }
    return op;
}

void graph_add_barrier(struct graph *g, int tensor) {
    ASSERT(g->n_ops > 0);
    touch(g, tensor, (int)g->n_ops - 1);
}

void graph_begin_loop(struct graph *g, enum chunk_kind kind, enum symbol rows) {
    ASSERT(g->n_loops < GRAPH_MAX_LOOPS && open_loop(g) < 0);
    g->loops[g->n_loops++] =
        (struct chunk_loop){.kind = kind, .rows = rows, .first_op = (int)g->n_ops, .last_op = -1};
}

void graph_end_loop(struct graph *g, int output) {
    int loop = open_loop(g);
    ASSERT(loop >= 0 && g->loops[loop].first_op < (int)g->n_ops);
    g->loops[loop].last_op = (int)g->n_ops - 1;
    g->tensors[output].loop = -1;
}

/* ---- checking it ---- */

static bool is_listed(const int list[OP_MAX_TENSORS], int tensor) {
    for (int i = 0; i < OP_MAX_TENSORS && list[i] >= 0; i++) {
        if (list[i] == tensor) {
            return true;
        }
    }
    return false;
}

static int check_sizes(const struct graph *g, struct err *err) {
    int64_t sum = 0;
    for (uint32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *tensor = &g->tensors[t];
        if (tensor->bytes.per <= 0) {
            return err_usage(err, "tensor '%s' has %" PRId64 " bytes a row", tensor->name,
                             tensor->bytes.per);
        }
        if (tensor->bytes.per > (GRAPH_MAX_BYTES - sum) / GRAPH_MAX_ROWS) {
            return err_usage(err,
                             "tensor '%s' has %" PRId64
                             " bytes a row: the step graph is beyond what can be counted",
                             tensor->name, tensor->bytes.per);
        }
        sum += tensor->bytes.per * GRAPH_MAX_ROWS;
    }
    return 0;
}

static int check_alias(const struct graph *g, int tensor, struct err *err) {
    const struct tensor *t = &g->tensors[tensor];
    if (t->alias < 0) {
        return 0;
    }
    if (t->alias >= tensor) {
        return err_usage(err, "tensor '%s' takes over memory that comes after it", t->name);
    }
    const struct tensor *of = &g->tensors[t->alias];
    if (t->bytes.symbol != of->bytes.symbol || t->bytes.per > of->bytes.per ||
        t->home != of->home || t->loop != of->loop) {
        return err_usage(err, "tensor '%s' does not fit into the memory of '%s'", t->name,
                         of->name);
    }
    return 0;
}

/* What operators have done to the tensors so far. */
struct made {
    bool is_made[GRAPH_MAX_TENSORS], is_taken_over[GRAPH_MAX_TENSORS];
};

static int check_input(const struct graph *g, const struct op *op, int tensor,
                       const struct made *made, struct err *err) {
    const struct tensor *t = &g->tensors[tensor];
    if (t->home == HOME_CACHE) {
        return 0;
    }
    if (!made->is_made[tensor]) {
        return err_usage(err, "operator '%s' reads '%s', which no operator before it has made",
                         op->name, t->name);
    }
    /* One operator may write the alias row by row while it reads. */
    bool writes_over = false;
    for (int i = 0; i < OP_MAX_TENSORS && op->out[i] >= 0; i++) {
        writes_over = writes_over || g->tensors[op->out[i]].alias == tensor;
    }
    if (made->is_taken_over[tensor] && !writes_over) {
        return err_usage(err, "operator '%s' reads '%s' after its memory was taken over", op->name,
                         t->name);
    }
    return 0;
}

static int check_output(const struct graph *g, const struct op *op, int tensor, struct made *made,
                        struct err *err) {
    const struct tensor *t = &g->tensors[tensor];
    if (t->home == HOME_WORKSPACE && !made->is_made[tensor] && t->bytes.symbol != op->rows &&
        t->bytes.symbol != SYM_ONE) {
        return err_usage(err, "operator '%s' runs over %s but makes '%s' of %s", op->name,
                         symbol_names[op->rows], t->name, symbol_names[t->bytes.symbol]);
    }
    made->is_made[tensor] = true;
    if (t->alias >= 0) {
        made->is_taken_over[t->alias] = true;
    }
    return 0;
}

static int check_product(const struct graph *g, const struct op *op, struct err *err) {
    if (!op_is_product(op)) {
        return 0;
    }
    if (op->n <= 0 || op->k <= 0) {
        return err_usage(err, "operator '%s' makes %" PRId64 " channels of %" PRId64, op->name,
                         op->n, op->k);
    }
    if (op->in[0] < 0 ||
        g->tensors[op->in[0]].bytes.per < number_input_bytes(g->tensors[op->in[0]].type, op->k)) {
        return err_usage(err, "operator '%s' reads %" PRId64 " channels, more than its input has",
                         op->name, op->k);
    }
    return 0;
}

/* As many experts as a token has, and room for what each of its pairs comes to. */
static int check_mixture(const struct graph *g, const struct op *op, struct err *err) {
    const struct op_type *type = op_type_of(op);
    if (!type->by_pairs && (type->family != FAMILY_PASS || !type->within_experts)) {
        return 0;
    }
    if (op->experts_active == 0 || op->experts_active > op->experts) {
        return err_usage(err, "operator '%s' has %" PRIu32 " experts a token, of %" PRIu32,
                         op->name, op->experts_active, op->experts);
    }
    int64_t wide = type->activates ? op->n / 2 : op->n;
    if (type->by_pairs &&
        g->tensors[op->out[0]].bytes.per <
            op->experts_active * number_row_bytes(g->tensors[op->out[0]].type, wide)) {
        return err_usage(err,
                         "operator '%s' makes %" PRId64 " channels of %" PRIu32
                         " experts a token, more than '%s' has room for",
                         op->name, wide, op->experts_active, g->tensors[op->out[0]].name);
    }
    return 0;
}

static int check_op(const struct graph *g, int index, struct made *made, struct err *err) {
    const struct op *op = &g->ops[index];
    if (op->out[0] < 0 || op->segment >= g->n_segments || op->loop >= (int)g->n_loops ||
        (index > 0 && op->segment < op[-1].segment) || g->segments[op->segment].repeat == 0) {
        return err_usage(err, "operator '%s' makes nothing, or is in no segment or loop", op->name);
    }
    int status = check_product(g, op, err);
    status = status == 0 ? check_mixture(g, op, err) : status;
    for (int i = 0; status == 0 && i < OP_MAX_TENSORS && op->in[i] >= 0; i++) {
        ASSERT(op->in[i] < (int)g->n_tensors);
        status = check_input(g, op, op->in[i], made, err);
    }
    for (int i = 0; status == 0 && i < OP_MAX_TENSORS && op->out[i] >= 0; i++) {
        ASSERT(op->out[i] < (int)g->n_tensors);
        status = check_output(g, op, op->out[i], made, err);
    }
    return status;
}

/* A tensor lives where it, or what has taken its memory over, is used; a loop's own, inside it. */
static int check_life(const struct graph *g, int tensor, struct err *err) {
    const struct tensor *t = &g->tensors[tensor];
    bool is_ever_used = false;
    for (int op = 0; op < (int)g->n_ops; op++) {
        bool is_used = is_listed(g->ops[op].in, tensor) || is_listed(g->ops[op].out, tensor);
        is_ever_used = is_ever_used || is_used;
        if (is_used && t->loop >= 0 && g->ops[op].loop != t->loop) {
            return err_usage(err, "operator '%s' is outside the loop whose own tensor '%s' it uses",
                             g->ops[op].name, t->name);
        }
        for (int of = tensor; is_used && of >= 0; of = g->tensors[of].alias) {
            if (op < g->tensors[of].first_op || op > g->tensors[of].last_op) {
                return err_usage(err, "operator '%s' uses '%s', which does not live then",
                                 g->ops[op].name, g->tensors[of].name);
            }
        }
    }
    return is_ever_used ? 0 : err_usage(err, "no operator uses tensor '%s'", t->name);
}

static int check_loop(const struct graph *g, int index, struct err *err) {
    const struct chunk_loop *loop = &g->loops[index];
    bool is_run =
        loop->first_op >= 0 && loop->first_op <= loop->last_op && loop->last_op < (int)g->n_ops;
    for (int op = 0; op < (int)g->n_ops; op++) {
        bool is_inside = op >= loop->first_op && op <= loop->last_op;
        is_run = is_run && is_inside == (g->ops[op].loop == index);
    }
    if (!is_run) {
        return err_usage(err, "a chunk loop of %s is not one run of operators",
                         chunk_kind_names[loop->kind]);
    }
    for (int i = loop->first_op; i <= loop->last_op; i++) {
        const struct op *op = &g->ops[i];
        if (op->rows != loop->rows || op->segment != g->ops[loop->first_op].segment) {
            return err_usage(err, "operator '%s' does not run over the rows of its loop, %s",
                             op->name, symbol_names[loop->rows]);
        }
    }
    return 0;
}

int graph_check(const struct graph *g, struct err *err) {
    struct made made = {0};
    int status = check_sizes(g, err);
    for (int t = 0; status == 0 && t < (int)g->n_tensors; t++) {
        status = check_alias(g, t, err);
    }
    for (int op = 0; status == 0 && op < (int)g->n_ops; op++) {
        status = check_op(g, op, &made, err);
    }
    for (int loop = 0; status == 0 && loop < (int)g->n_loops; loop++) {
        status = check_loop(g, loop, err);
    }
    for (int t = 0; status == 0 && t < (int)g->n_tensors; t++) {
        status = check_life(g, t, err);
    }
    return status;
}
