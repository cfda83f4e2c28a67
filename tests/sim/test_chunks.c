/* Chunk loops: graphs that are refused, lives through loops, prices of chunks. */
#include "sim/step/registrar.h"
#include "tests/support/random_step.h"
#include "tests/support/says.h"

/* Two operators and a loop of them, over tensors of 8 and 24 bytes a token. */
static struct graph small_graph(void) {
    struct graph g = {.n_ops = 0};
    graph_add_segment(&g, "layers", 2);
    int x = graph_add_tensor(&g, "x", SYM_TOKENS, 8);
    graph_add_op(&g, "embed", OP_EMBED, SYM_TOKENS, (const int[]){-1}, (const int[]){x, -1});
    graph_begin_loop(&g, CHUNK_FFN, SYM_TOKENS);
    int wide = graph_add_tensor(&g, "wide", SYM_TOKENS, 24);
    struct op *up = graph_add_op(&g, "up", OP_LINEAR, SYM_TOKENS, (const int[]){x, -1},
                                 (const int[]){wide, -1});
    up->n = 12;
    up->k = 4;
    int y = graph_add_tensor(&g, "y", SYM_TOKENS, 8);
    struct op *down = graph_add_op(&g, "down", OP_LINEAR, SYM_TOKENS, (const int[]){wide, -1},
                                   (const int[]){y, -1});
    down->n = 4;
    down->k = 12;
    graph_end_loop(&g, y);
    int z = graph_add_alias(&g, "z", y);
    graph_add_op(&g, "add", OP_ADD, SYM_TOKENS, (const int[]){x, y, -1}, (const int[]){z, -1});
    return g;
}

enum { X, WIDE, Y, Z };

static void refuse(const struct graph *g, const char *sentence) {
    struct err err = {0};
    ck_assert_int_eq(graph_check(g, &err), ERR_USAGE);
    ASSERT_SAYS(err.text, sentence);
}

TEST(graphs_that_make_no_sense_are_refused_with_a_sentence) {
    const struct graph fine = small_graph();
    struct graph g = fine;
    struct err err = {0};
    ck_assert_msg(graph_check(&fine, &err) == 0, "%s", err.text);
    g.ops[1].in[0] = Y;
    refuse(&g, "operator 'up' reads 'y', which no operator before it has made");
    g = fine;
    g.ops[1].in[0] = WIDE;
    refuse(&g, "operator 'up' reads 'wide', which no operator before it has made");
    g = fine;
    g.tensors[WIDE].bytes.per = 0;
    refuse(&g, "tensor 'wide' has 0 bytes a row");
    g.tensors[WIDE].bytes.per = -8;
    refuse(&g, "tensor 'wide' has -8 bytes a row");
    g.tensors[WIDE].bytes.per = INT64_C(1) << 31;
    refuse(&g, "tensor 'wide' has 2147483648 bytes a row: the step graph is beyond what can be "
               "counted");
    g = fine;
    g.ops[2].n = 0;
    refuse(&g, "operator 'down' makes 0 channels of 12");
    g = fine;
    g.ops[2].k = 13;
    refuse(&g, "operator 'down' reads 13 channels, more than its input has");
    g = fine;
    g.ops[2].kind = OP_MOE_DOWN;
    refuse(&g, "operator 'down' has 0 experts a token, of 0");
    g.ops[2].experts_active = 3;
    g.ops[2].experts = 2;
    refuse(&g, "operator 'down' has 3 experts a token, of 2");
    g.ops[2].experts = 8;
    refuse(&g, "operator 'down' makes 4 channels of 3 experts a token, more than 'y' has room for");
    g = fine;
    g.tensors[Y].bytes.symbol = SYM_LOGIT_ROWS;
    g.tensors[Z].bytes.symbol = SYM_LOGIT_ROWS;
    refuse(&g, "operator 'down' runs over tokens but makes 'y' of logit_rows");
    g = fine;
    g.tensors[Z].bytes.per = 16;
    refuse(&g, "tensor 'z' does not fit into the memory of 'y'");
    g = fine;
    g.tensors[Y].alias = Z;
    refuse(&g, "tensor 'y' takes over memory that comes after it");
    g = fine;
    g.ops[3].out[0] = Y;
    refuse(&g, "no operator uses tensor 'z'");
    g = fine;
    g.segments[0].repeat = 0;
    refuse(&g, "operator 'embed' makes nothing, or is in no segment or loop");
}

TEST(loops_and_lives_that_make_no_sense_are_refused_with_a_sentence) {
    const struct graph fine = small_graph();
    struct graph g = fine;
    g.loops[0].last_op = 3;
    refuse(&g, "a chunk loop of ffn is not one run of operators");
    g = fine;
    g.ops[1].loop = g.ops[2].loop = g.loops[0].first_op = g.loops[0].last_op = -1;
    refuse(&g, "a chunk loop of ffn is not one run of operators");
    g = fine;
    g.loops[0].rows = SYM_LOGIT_ROWS;
    refuse(&g, "operator 'up' does not run over the rows of its loop, logit_rows");
    g = fine;
    g.tensors[Y].loop = g.tensors[Z].loop = 0;
    refuse(&g, "operator 'add' is outside the loop whose own tensor 'y' it uses");
    g = fine;
    g.tensors[X].last_op = 1;
    refuse(&g, "operator 'add' uses 'x', which does not live then");
    g = fine;
    int again[] = {Y, -1}, out[] = {X, -1};
    graph_add_op(&g, "late", OP_ADD, SYM_TOKENS, again, out);
    refuse(&g, "operator 'late' reads 'y' after its memory was taken over");
}

/* Which tensors hold what was written to them last. */
struct memory {
    const struct graph *graph;
    const struct placement *placement;
    bool is_whole[GRAPH_MAX_TENSORS];
};

static bool share_bytes(const struct placement *p, int a, int b) {
    return p->offset_bytes[a] < p->offset_bytes[b] + p->bytes[b] &&
           p->offset_bytes[b] < p->offset_bytes[a] + p->bytes[a];
}

/* One operator over one chunk: it reads whole tensors, and writing breaks all that lie below. */
static void execute(struct memory *m, int index, bool is_first_chunk) {
    const struct graph *g = m->graph;
    const struct op *op = &g->ops[index];
    for (int i = 0; i < OP_MAX_TENSORS && op->in[i] >= 0; i++) {
        bool is_placed = g->tensors[op->in[i]].home == HOME_WORKSPACE;
        ck_assert_msg(!is_placed || m->is_whole[op->in[i]], "'%s' reads '%s', which is broken",
                      op->name, g->tensors[op->in[i]].name);
    }
    for (int i = 0; i < OP_MAX_TENSORS && op->out[i] >= 0; i++) {
        int out = op->out[i];
        if (g->tensors[out].home != HOME_WORKSPACE) {
            continue;
        }
        ck_assert_msg(is_first_chunk || op->loop == g->tensors[out].loop || m->is_whole[out],
                      "earlier chunks of '%s' are broken", g->tensors[out].name);
        for (int t = 0; t < (int)g->n_tensors; t++) {
            bool is_placed = g->tensors[t].home == HOME_WORKSPACE;
            if (t != out && is_placed && placement_root(g, t) != placement_root(g, out) &&
                share_bytes(m->placement, t, out)) {
                m->is_whole[t] = false;
            }
        }
        m->is_whole[out] = true;
    }
}

/* Two repetitions of every segment, loops chunk by chunk. */
static void execute_step(const struct graph *g, const struct placement *placement) {
    struct memory m = {.graph = g, .placement = placement};
    int op = 0;
    for (int segment = 0; segment < (int)g->n_segments; segment++) {
        int first = op;
        for (int turn = 0; turn < (g->segments[segment].repeat > 1 ? 2 : 1); turn++) {
            for (op = first; op < (int)g->n_ops && (int)g->ops[op].segment == segment; op++) {
                int loop = g->ops[op].loop;
                if (loop < 0) {
                    execute(&m, op, true);
                    continue;
                }
                for (uint32_t chunk = 0; chunk < 3 && chunk < placement->n_chunks[loop]; chunk++) {
                    for (int inner = op; inner <= g->loops[loop].last_op; inner++) {
                        execute(&m, inner, chunk == 0);
                    }
                }
                op = g->loops[loop].last_op;
            }
        }
    }
}

TEST(no_operator_reads_what_another_chunk_or_operator_broke) {
    struct rng rng = rng_stream(11, "loops");
    for (int round = 0; round < 800; round++) {
        struct graph graph;
        random_graph(&rng, &graph);
        struct step_shape shape = short_or_long(&rng);
        struct chunk_rows chunks = random_chunks(&rng, 5000);
        shape.sym[SYM_LOGIT_ROWS] += shape.sym[SYM_LOGIT_ROWS] == 0;
        for (size_t i = 0; i < planner_table_size; i++) {
            struct placement placement;
            struct err err = {0};
            placement_make(&planner_table[i], &graph, &shape, chunks, &placement);
            ck_assert_msg(placement_verify(&graph, &placement, &err) == 0, "%s", err.text);
            ck_assert_int_ge(placement.peak_bytes, placement.lower_bound_bytes);
            execute_step(&graph, &placement);
        }
    }
}

TEST(the_bytes_live_at_one_operator_are_the_lower_bound) {
    struct rng rng = rng_stream(12, "live");
    for (int round = 0; round < 500; round++) {
        struct graph graph;
        random_graph(&rng, &graph);
        struct step_shape shape = short_or_long(&rng);
        struct chunk_rows chunks = random_chunks(&rng, 5000);
        struct placement measured, placement;
        int64_t live[GRAPH_MAX_OPS], most = 0;
        placement_measure(&graph, &shape, chunks, &measured, live);
        placement_make(&planner_table[0], &graph, &shape, chunks, &placement);
        for (uint32_t op = 0; op < graph.n_ops; op++) {
            most = live[op] > most ? live[op] : most;
        }
        ck_assert_int_eq(most, placement.lower_bound_bytes);
        ck_assert_mem_eq(measured.bytes, placement.bytes, sizeof measured.bytes);
    }
}

TEST(a_loop_with_room_for_all_its_rows_is_planned_as_if_there_were_none) {
    struct rng rng = rng_stream(13, "wide");
    for (int round = 0; round < 300; round++) {
        struct graph graph;
        random_graph(&rng, &graph);
        struct step_shape shape = short_or_long(&rng);
        const struct chunk_rows wide = {
            {shape.sym[SYM_TOKENS], shape.sym[SYM_FIRST_TOKENS], shape.sym[SYM_TOKENS]}};
        struct placement a, b;
        placement_make(&planner_table[0], &graph, &shape, no_chunks, &a);
        placement_make(&planner_table[0], &graph, &shape, wide, &b);
        ck_assert_mem_eq(a.offset_bytes, b.offset_bytes, sizeof a.offset_bytes);
        ck_assert_int_eq(a.peak_bytes, b.peak_bytes);
    }
}

TEST(a_loop_costs_the_sum_of_its_chunks_and_its_products_no_less_than_the_whole) {
    struct system *system = rig_system("dllm-serve", "l40s", false, NULL);
    struct rng rng = rng_stream(14, "prices");
    for (int round = 0; round < 200; round++) {
        struct step_shape shape = short_or_long(&rng), full, rest;
        struct chunk_rows chunks = random_chunks(&rng, 5000);
        struct op_price chunked[GRAPH_MAX_OPS], one[GRAPH_MAX_OPS], last[GRAPH_MAX_OPS];
        struct op_price entire[GRAPH_MAX_OPS];
        struct step_price price, again, other;
        full = rest = shape;
        int64_t n_full[GRAPH_MAX_LOOPS];
        for (uint32_t i = 0; i < system->graph.n_loops; i++) {
            enum symbol rows = system->graph.loops[i].rows;
            int64_t n = loop_chunk_rows(&system->graph, (int)i, &shape, chunks);
            n_full[i] = n > 0 ? shape.sym[rows] / n : 0;
            full.sym[rows] = n;
            rest.sym[rows] = n > 0 ? shape.sym[rows] % n : 0;
        }
        cost_explain(system->cost, &shape, chunks, chunked);
        cost_explain(system->cost, &full, no_chunks, one);
        cost_explain(system->cost, &rest, no_chunks, last);
        cost_explain(system->cost, &shape, no_chunks, entire);
        double sum_ns = 0, chunks_ns = 0;
        for (uint32_t op = 0; op < system->graph.n_ops; op++) {
            int loop = system->graph.ops[op].loop;
            sum_ns += chunked[op].ns;
            if (loop >= 0) {
                double ns = (double)n_full[loop] * one[op].ns + last[op].ns;
                bool is_product = entire[op].flops > 0;
                ns = is_product ? fmax(ns, entire[op].ns) : ns; /* weights are read again */
                ck_assert_double_eq_tol(chunked[op].ns, ns, 1e-9 * ns + 1e-9);
                chunks_ns += ns;
            }
        }
        ck_assert_double_gt(chunks_ns, 0);
        cost_price(system->cost, &shape, chunks, &price);
        cost_price(system->cost, &shape, no_chunks, &other);
        cost_price(system->cost, &shape, chunks, &again);
        ck_assert_double_eq_tol(price.device_ns, sum_ns, 1e-9 * sum_ns);
        ck_assert_mem_eq(&price, &again, sizeof price);
        cost_explain(system->cost, &shape, no_chunks, one);
        sum_ns = 0;
        for (uint32_t op = 0; op < system->graph.n_ops; op++) {
            sum_ns += one[op].ns;
        }
        ck_assert_double_eq_tol(other.device_ns, sum_ns, 1e-9 * sum_ns);
    }
    system_close(system);
}

/* Its products are the same whatever the chunks; keys and values are read by each. */
TEST(attention_in_chunks_works_as_much_and_costs_no_less) {
    struct system *system = rig_system("mosaic-beyond", "rtx4090", false, NULL);
    struct rng rng = rng_stream(15, "prices");
    uint32_t attention = 0;
    while (system->graph.ops[attention].kind != OP_ATTENTION_FULL) {
        attention++;
    }
    for (int round = 0; round < 200; round++) {
        struct op_price plain[GRAPH_MAX_OPS], chunked[GRAPH_MAX_OPS];
        struct chunk_rows chunks = {{0}};
        struct step_shape shape;
        uint32_t tokens = rig_between(&rng, 1, 40000);
        struct span span = {
            .phase = PHASE_REFRESH, .queries = tokens, .first_queries = tokens, .logit_rows = 1};
        shape_clear(&shape);
        shape_add(shape.sym, &span, 1);
        chunks.of[CHUNK_ATTENTION] = rig_between(&rng, 1, tokens);
        int64_t n = (tokens + chunks.of[CHUNK_ATTENTION] - 1) / chunks.of[CHUNK_ATTENTION];
        cost_explain(system->cost, &shape, no_chunks, plain);
        cost_explain(system->cost, &shape, chunks, chunked);
        const struct op_price *one = &plain[attention], *many = &chunked[attention];
        ck_assert_uint_eq(many->executions, one->executions * n);
        ck_assert_double_eq_tol(many->flops, one->flops, 1e-9 * one->flops);
        ck_assert_double_ge(many->bytes, one->bytes * (1 - 1e-9));
        ck_assert_double_ge(many->ns, one->ns * (1 - 1e-9));
    }
    system_close(system);
}

SUITE("chunks")
