/* Planners: plans that hold, bounds that are true, the published hard problems, and bad files. */
#include <jansson.h>

#include "sim/memory/instance.h"
#include "sim/memory/placement.h"
#include "sim/memory/planner/planner_order.h"
#include "sim/step/builder.h"
#include "tests/support/archive.h"
#include "tests/support/cli.h"
#include "tests/support/random_step.h"

enum { MOST_BUFFERS = 40 };

struct problem {
    struct packing packing;
    struct packing_buffer buffers[MOST_BUFFERS];
    int64_t offset_bytes[MOST_BUFFERS];
};

struct kind {
    uint32_t most_buffers, most_time, most_lifetime, most_bytes, most_align;
};

static void make_random(struct rng *rng, const struct kind *kind, struct problem *out) {
    out->packing = (struct packing){out->buffers, rig_between(rng, 0, kind->most_buffers)};
    for (uint32_t i = 0; i < out->packing.n_buffers; i++) {
        int64_t first = rig_between(rng, 0, kind->most_time);
        out->buffers[i] =
            MAKE(struct packing_buffer, .first_time = first,
                 .last_time = first + rig_between(rng, 0, kind->most_lifetime),
                 .bytes = rig_between(rng, 0, 20) == 0 ? 0 : rig_between(rng, 1, kind->most_bytes),
                 .align_bytes = rig_between(rng, 1, kind->most_align));
    }
}

static struct plan plan_with(const struct planner *planner, struct problem *problem,
                             int64_t capacity_bytes, uint64_t max_nodes) {
    struct plan plan = {.offset_bytes = problem->offset_bytes};
    struct plan_request request = {
        .packing = &problem->packing, .capacity_bytes = capacity_bytes, .max_nodes = max_nodes};
    struct err err = {0};
    ck_assert_msg(planner_solve(planner, &request, NULL, &plan, &err) == 0, "%s", err.text);
    ck_assert_msg(plan_verify(&problem->packing, &plan, &err) == 0, "%s: %s", planner->name,
                  err.text);
    return plan;
}

static const struct planner *named(const char *name) {
    struct err err = {0};
    const struct planner *planner = planner_find(name, &err);
    ck_assert_msg(planner != NULL, "%s", err.text);
    return planner;
}

TEST(every_planner_places_random_problems_and_exact_ends_lowest) {
    static const struct kind kinds[] = {
        {30, 20, 8, 40, 1},
        {30, 60, 60, 1000, 1},
        {40, 6, 3, 7, 4},
        {25, 30, 10, 64, 16},
    };
    struct rng rng = rng_stream(5, "packings");
    uint32_t n_sizes_lose = 0, n_gaps_lose = 0, n_search = 0;
    for (int round = 0; round < 1200; round++) {
        struct problem problem;
        make_random(&rng, &kinds[round % 4], &problem);
        struct plan exact = plan_with(named("exact"), &problem, 0, 20000);
        n_search += exact.n_nodes > 0;
        ck_assert(exact.stopped == !plan_is_optimal(&exact));
        for (size_t i = 0; i < planner_table_size; i++) {
            struct plan plan = plan_with(&planner_table[i], &problem, 0, 20000);
            ck_assert_int_le(exact.peak_bytes, plan.peak_bytes);
            ck_assert_int_eq(plan.lower_bound_bytes, exact.lower_bound_bytes);
            ck_assert_int_ge(plan.peak_bytes, plan.lower_bound_bytes);
        }
        int64_t lowest = plan_with(named("first-fit-size"), &problem, 0, 0).peak_bytes;
        int64_t smallest = plan_with(named("best-fit"), &problem, 0, 0).peak_bytes;
        n_sizes_lose += lowest > smallest;
        n_gaps_lose += lowest < smallest;
    }
    /* Neither choice of a gap is the better one everywhere, and not everything is easy. */
    ck_assert_uint_gt(n_sizes_lose, 3);
    ck_assert_uint_gt(n_gaps_lose, 3);
    ck_assert_uint_gt(n_search, 100);
}

TEST(births_and_sizes_are_two_readings_of_first_fit) {
    struct problem problem = {.buffers = {{0, 0, 2, 1}, {0, 2, 1, 1}, {1, 2, 3, 1}}};
    problem.packing = (struct packing){problem.buffers, 3};
    /* The third does not fit into the gap of the first, and lies above both. */
    ck_assert_int_eq(plan_with(named("first-fit"), &problem, 0, 0).peak_bytes, 6);
    ck_assert_int_eq(problem.offset_bytes[2], 3);
    ck_assert_int_eq(plan_with(named("first-fit-size"), &problem, 0, 0).peak_bytes, 4);
    ck_assert_int_eq(problem.offset_bytes[1], 3);
    ck_assert_int_eq(plan_with(named("no-reuse"), &problem, 0, 0).peak_bytes, 6);
}

TEST(best_fit_takes_the_smallest_gap_and_first_fit_the_lowest) {
    /* Alignment leaves gaps of 4 at 20, of 2 at 43 and of 5 at 63. */
    struct problem problem = {
        .buffers = {{0, 0, 20, 1}, {0, 0, 19, 8}, {0, 0, 18, 5}, {0, 0, 17, 17}, {0, 0, 2, 1}}};
    problem.packing = (struct packing){problem.buffers, 5};
    ck_assert_int_eq(plan_with(named("best-fit"), &problem, 0, 0).peak_bytes, 85);
    ck_assert_int_eq(problem.offset_bytes[4], 43);
    ck_assert_int_eq(plan_with(named("first-fit-size"), &problem, 0, 0).peak_bytes, 85);
    ck_assert_int_eq(problem.offset_bytes[4], 20);
}

TEST(a_plan_that_does_not_hold_is_noticed) {
    static const char *const sentences[] = {"buffers 0 and 1 overlap while both are live",
                                            "buffer 1 lies at 6, not aligned to 4",
                                            "the peak is not the end of the last buffer",
                                            "the peak lies below what is said to be proven"};
    for (int i = 0; i < 4; i++) {
        struct problem problem = {.buffers = {{0, 1, 4, 4}, {1, 2, 4, 4}}};
        struct err err = {0};
        problem.packing = (struct packing){problem.buffers, 2};
        struct plan plan = plan_with(named("exact"), &problem, 0, 0);
        ck_assert_int_eq(plan.peak_bytes, 8);
        problem.offset_bytes[0] = 0;
        problem.offset_bytes[1] = i == 0 ? 0 : i == 1 ? 6 : 4;
        plan.peak_bytes += i == 2;
        plan.proven_bound_bytes += i == 3;
        ck_assert_int_eq(plan_verify(&problem.packing, &plan, &err), ERR_WORLD);
        ASSERT_SAYS(err.text, sentences[i]);
    }
}

struct trial {
    const struct packing *packing;
    int64_t offset_bytes[MOST_BUFFERS], best_bytes;
};

static bool is_free(const struct trial *trial, uint32_t buffer, int64_t offset) {
    const struct packing_buffer *b = &trial->packing->buffers[buffer];
    for (uint32_t i = 0; i < buffer; i++) {
        const struct packing_buffer *other = &trial->packing->buffers[i];
        if (packing_live_together(b, other) && offset < trial->offset_bytes[i] + other->bytes &&
            trial->offset_bytes[i] < offset + b->bytes) {
            return false;
        }
    }
    return true;
}

static void try_all(struct trial *trial, uint32_t buffer, int64_t peak) {
    if (buffer == trial->packing->n_buffers) {
        trial->best_bytes = peak;
        return;
    }
    const struct packing_buffer *b = &trial->packing->buffers[buffer];
    for (int64_t offset = 0; offset + b->bytes < trial->best_bytes; offset += b->align_bytes) {
        if (is_free(trial, buffer, offset)) {
            int64_t end = offset + b->bytes;
            trial->offset_bytes[buffer] = offset;
            try_all(trial, buffer + 1, end > peak ? end : peak);
        }
    }
}

static int64_t brute_force(const struct packing *packing) {
    struct trial trial = {.packing = packing, .best_bytes = 1};
    for (uint32_t i = 0; i < packing->n_buffers; i++) {
        trial.best_bytes += packing->buffers[i].bytes + packing->buffers[i].align_bytes;
    }
    try_all(&trial, 0, 0);
    return trial.best_bytes;
}

TEST(exact_equals_trying_every_offset) {
    static const struct kind kinds[] = {{7, 5, 2, 4, 1}, {6, 5, 2, 5, 3}};
    struct rng rng = rng_stream(6, "tiny packings");
    uint32_t n_above_bound = 0, n_search = 0;
    for (int round = 0; round < 3000; round++) {
        struct problem problem;
        make_random(&rng, &kinds[round % 2], &problem);
        int64_t truth = brute_force(&problem.packing);
        struct plan plan = plan_with(named("exact"), &problem, 0, 0);
        ck_assert_int_eq(plan.peak_bytes, truth);
        ck_assert(plan_is_optimal(&plan) && !plan.stopped);
        n_above_bound += truth > plan.lower_bound_bytes;
        n_search += plan.n_nodes > 0;
        if (truth > plan.lower_bound_bytes) {
            struct plan below = plan_with(named("exact"), &problem, truth - 1, 0);
            ck_assert_int_ge(below.proven_bound_bytes, truth);
        }
    }
    ck_assert_uint_gt(n_above_bound, 50);
    ck_assert_uint_gt(n_search, 50);
}

/* Rows of long and short lives that interlock: without greedy plans to lean on, the search itself
 * has to be right. The bound of every pair of orders is the brute force over all orders. */
static int64_t best_order(const struct packing *packing, uint32_t *order, uint32_t n) {
    uint32_t by_offset[MOST_BUFFERS];
    int64_t offsets[MOST_BUFFERS];
    if (n == packing->n_buffers) {
        return order_place(packing, order, GAP_LOWEST, by_offset, offsets);
    }
    int64_t best = INT64_MAX;
    for (uint32_t i = n; i < packing->n_buffers; i++) {
        uint32_t held = order[n];
        order[n] = order[i];
        order[i] = held;
        int64_t peak = best_order(packing, order, n + 1);
        best = peak < best ? peak : best;
        order[i] = order[n];
        order[n] = held;
    }
    return best;
}

TEST(exact_equals_the_best_of_all_orders) {
    static const struct kind kind = {8, 9, 4, 9, 2};
    struct rng rng = rng_stream(7, "orders");
    uint32_t n_search = 0;
    for (int round = 0; round < 250; round++) {
        struct problem problem;
        make_random(&rng, &kind, &problem);
        uint32_t order[MOST_BUFFERS];
        for (uint32_t i = 0; i < problem.packing.n_buffers; i++) {
            order[i] = i;
        }
        struct plan plan = plan_with(named("exact"), &problem, 0, 0);
        int64_t best = problem.packing.n_buffers == 0 ? 0 : best_order(&problem.packing, order, 0);
        ck_assert_int_eq(plan.peak_bytes, best);
        n_search += plan.n_nodes > 0;
    }
    ck_assert_uint_gt(n_search, 5);
}

#define EXAMPLE "tests/golden/instances/input.12.csv"

static void read_published(const char *name, struct instance *out) {
    char file[64];
    struct err err = {0};
    snprintf(file, sizeof file, "%s.csv", name);
    const bool is_example = strcmp(name, "input.12") == 0;
    const char *path =
        is_example ? EXAMPLE : archive_file("tests/golden/instances/minimalloc.tar.gz", file);
    ck_assert_msg(instance_read(path, out, &err) == 0, "%s", err.text);
}

/* Solves a published problem; the caller frees the offsets of the plan. */
static struct plan plan_published(const char *name, const char *planner, int64_t capacity_bytes,
                                  uint64_t max_nodes) {
    struct instance instance;
    struct err err = {0};
    read_published(name, &instance);
    struct plan plan = {.offset_bytes =
                            calloc(instance.packing.n_buffers, sizeof *plan.offset_bytes)};
    struct plan_request request = {
        .packing = &instance.packing, .capacity_bytes = capacity_bytes, .max_nodes = max_nodes};
    ck_assert_msg(planner_solve(named(planner), &request, NULL, &plan, &err) == 0, "%s", err.text);
    ck_assert_msg(plan_verify(&instance.packing, &plan, &err) == 0, "%s: %s", name, err.text);
    instance_fini(&instance);
    return plan;
}

TEST(the_hard_problems_of_minimalloc_fit_into_their_capacity) {
    static const char *const names[] = {"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.1048576", names[i]);
        struct plan plan = plan_published(name, "exact", 1048576, 1000000);
        ck_assert_msg(plan.peak_bytes <= 1048576, "%s ends at %ld", name, (long)plan.peak_bytes);
        ck_assert(!plan.stopped && plan.n_nodes > 0);
        free(plan.offset_bytes);
        struct plan greedy = plan_published(name, "portfolio", 1048576, 0);
        ck_assert_int_gt(greedy.peak_bytes, 1048576); /* or the search would prove nothing */
        free(greedy.offset_bytes);
    }
}

/* Without the halving of what is left between bound and plan, the same nodes end 11 to 17 % above
 * the bound: each plan that is found is only the next one to go below. */
TEST(few_nodes_come_near_the_bound_by_halving_what_is_left) {
    static const char *const names[] = {"E.1048576", "F.1048576", "J.1048576"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct plan plan = plan_published(names[i], "exact", 0, 20000);
        ck_assert(plan.stopped);
        ck_assert_double_lt((double)plan.peak_bytes, 1.09 * (double)plan.lower_bound_bytes);
        free(plan.offset_bytes);
    }
}

TEST(the_published_example_is_packed_without_a_gap) {
    struct plan plan = plan_published("input.12", "exact", 0, 0);
    ck_assert_int_eq(plan.peak_bytes, 12);
    ck_assert(plan_is_optimal(&plan));
    free(plan.offset_bytes);
}

TEST(a_budget_of_nodes_stops_the_search_at_the_same_plan_every_time) {
    struct plan once = plan_published("B.1048576", "exact", 0, 3000);
    struct plan again = plan_published("B.1048576", "exact", 0, 3000);
    ck_assert(once.stopped && !plan_is_optimal(&once));
    ck_assert_uint_eq(once.n_nodes, 3000);
    ck_assert_int_eq(once.peak_bytes, again.peak_bytes);
    ck_assert_mem_eq(once.offset_bytes, again.offset_bytes, 170 * sizeof once.offset_bytes[0]);
    free(once.offset_bytes);
    free(again.offset_bytes);
}

TEST(a_capacity_below_the_lower_bound_is_not_searched) {
    struct plan plan = plan_published("B.1048576", "exact", 1000000, 0);
    ck_assert_uint_eq(plan.n_nodes, 0);
    ck_assert_int_eq(plan.proven_bound_bytes, 1048576);
    ck_assert(!plan.stopped);
    free(plan.offset_bytes);
}

/* A hard problem, and the same once more after it, and so on. */
TEST(more_buffers_than_the_search_takes_on_are_planned_without_it) {
    struct instance one;
    struct err err = {0};
    read_published("B.1048576", &one);
    uint32_t n = one.packing.n_buffers, n_all = PACKING_MAX_BUFFERS + n;
    struct packing_buffer *buffers = calloc(n_all, sizeof *buffers);
    struct packing packing = {buffers, n_all};
    struct plan plan = {.offset_bytes = calloc(n_all, sizeof *plan.offset_bytes)};
    struct plan_request request = {.packing = &packing};
    for (uint32_t i = 0; i < n_all; i++) {
        buffers[i] = one.buffers[i % n];
        buffers[i].first_time += (i / n) * 2097152LL;
        buffers[i].last_time += (i / n) * 2097152LL;
    }
    ck_assert_int_eq(planner_solve(named("exact"), &request, NULL, &plan, &err), 0);
    ck_assert_msg(plan_verify(&packing, &plan, &err) == 0, "%s", err.text);
    ck_assert(plan.stopped && plan.n_nodes == 0 && !plan_is_optimal(&plan));
    packing.n_buffers = 2 * n;
    ck_assert_int_eq(planner_solve(named("exact"), &request, NULL, &plan, &err), 0);
    ck_assert(plan_is_optimal(&plan) && plan.n_nodes > 0);
    free(plan.offset_bytes);
    free(buffers);
    instance_fini(&one);
}

TEST(exact_plans_every_step_to_the_optimum_within_few_nodes) {
    struct rng rng = rng_stream(8, "steps");
    uint32_t n_better = 0;
    for (int round = 0; round < 2000; round++) {
        struct graph graph;
        struct graph_options options = random_options(&rng);
        graph_build(&graph, any_model(&rng), &options);
        struct step_shape shape = random_shape(&rng, 1, 4000);
        struct chunk_rows chunks = {{0}};
        chunks.of[CHUNK_LOGITS] = rng_uniform(&rng) < 0.5 ? 0 : rig_between(&rng, 1, 4096);
        struct placement exact, greedy;
        struct err err = {0};
        placement_make(named("exact"), &graph, &shape, chunks, &exact);
        placement_make(named("first-fit"), &graph, &shape, chunks, &greedy);
        ck_assert_msg(placement_verify(&graph, &exact, &err) == 0, "%s", err.text);
        ck_assert_int_eq(exact.peak_bytes, exact.proven_bound_bytes);
        ck_assert_uint_lt(exact.n_nodes, 1000);
        ck_assert_int_le(exact.peak_bytes, greedy.peak_bytes);
        n_better += exact.peak_bytes < greedy.peak_bytes;
    }
    ck_assert_uint_gt(n_better, 500);
}

TEST(a_carried_tensor_lives_from_the_first_operator_on) {
    struct graph graph =
        MAKE(struct graph, .n_ops = 2, .n_tensors = 2,
             .tensors = {{.name = "early", .bytes = {SYM_ONE, 100}, .loop = -1, .alias = -1},
                         {.name = "carried",
                          .bytes = {SYM_ONE, 100},
                          .loop = -1,
                          .alias = -1,
                          .carried = true,
                          .first_op = 1,
                          .last_op = 1}}, );
    struct step_shape shape;
    struct err err = {0};
    shape_clear(&shape);
    for (size_t i = 0; i < planner_table_size; i++) {
        struct placement placement;
        placement_make(&planner_table[i], &graph, &shape, (struct chunk_rows){{0}}, &placement);
        ck_assert_msg(placement_verify(&graph, &placement, &err) == 0, "%s", err.text);
        ck_assert_int_eq(placement.peak_bytes, 2 * PLACEMENT_ALIGN_BYTES);
    }
}

static void write_text(const char *path, const char *text, size_t length) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    fclose(file);
}

TEST(bad_files_are_refused_with_their_line) {
#define HEAD "id,lower,upper,size\n"
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", ":1: found an empty file, expected a header"},
        {HEAD, ": no buffers after the header"},
        {"id,lower,upper\na,0,1\n", ":1: no column 'size'"},
        {"id,lower,upper,size,size\n", ":1: more than one column 'size'"},
        {"id,lower,upper,bytes\n", ":1: no column 'size'"},
        {"id,lower,upper,size,bytes\n", ":1: unknown column 'bytes'"},
        {HEAD "a,0,1,0\n",
         ":2: found '0' in size, expected a whole number from 1 to 2305843009213693952"},
        {HEAD "a,0,1,99999999999999999999\n",
         ":2: found '99999999999999999999' in size, expected a"},
        {HEAD "a,0,1,4\nb,0,1,2305843009213693950\n",
         ":3: sizes and alignments up to here add up to more than 2^61"},
        {HEAD "a,-1,1,4\n", ":2: found '-1' in lower, expected a whole number from 0 to "},
        {HEAD "a,1,x,4\n", ":2: found 'x' in upper, expected a whole number from 0 to "},
        {HEAD "a,3,3,4\n", ":2: upper is not after lower"},
        {HEAD "a,0,1,4\nb,0,1,4\na,2,3,4\n", ":4: id 'a' is that of line 2 already"},
        {HEAD "a,0,1\n", ":2: found 3 fields, expected 4 as in the header"},
        {HEAD "a,0,1,4,5\n", ":2: found 5 fields, expected 4 as in the header"},
        {HEAD "\n", ":2: found 1 field, expected 4 as in the header"},
        {HEAD ",0,1,4\n", ":2: found '' in id, expected a name of the buffer's own"},
        {"id,lower,upper,size,alignment\na,0,1,4,0\n", ":2: found '0' in alignment, expected a"},
    };
    char path[] = "/tmp/unmask-instance-XXXXXX", expected[512];
    ck_assert_int_ge(mkstemp(path), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct instance instance;
        struct err err = {0};
        write_text(path, cases[i].text, strlen(cases[i].text));
        ck_assert_int_eq(instance_read(path, &instance, &err), ERR_WORLD);
        snprintf(expected, sizeof expected, "%s%s", path, cases[i].sentence);
        ck_assert_msg(strncmp(err.text, expected, strlen(expected)) == 0, "%s\n%s", err.text,
                      expected);
    }
    struct instance instance;
    struct err err = {0}, missing = {0};
    write_text(path, HEAD "a,0,1,4\nb\0,0,1,4\n", strlen(HEAD) + 17);
    ck_assert_int_eq(instance_read(path, &instance, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, ":3: found a NUL byte"));
    unlink(path);
    ck_assert_int_eq(instance_read(path, &instance, &missing), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(missing.text, "No such file or directory"));
}

TEST(columns_may_stand_in_any_order_and_lines_end_in_crlf) {
    char path[] = "/tmp/unmask-instance-XXXXXX";
    static const char text[] = "size,alignment,upper,id,lower\r\n5,4,3,x,1\r\n7,8,9,y,2";
    ck_assert_int_ge(mkstemp(path), 0);
    write_text(path, text, strlen(text));
    struct instance instance;
    struct err err = {0};
    ck_assert_msg(instance_read(path, &instance, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(instance.packing.n_buffers, 2);
    const struct packing_buffer *y = &instance.packing.buffers[1];
    ck_assert_str_eq(instance.ids[1], "y");
    ck_assert(y->first_time == 2 && y->last_time == 8 && y->bytes == 7 && y->align_bytes == 8);
    instance_fini(&instance);
    unlink(path);
}

/* The same buffers in the columns of MiniMalloc's versions. */
TEST(older_newer_and_solved_instances_are_read) {
    static const char *const texts[] = {
        "id,lower,upper,size\na,0,3,4\nb,3,9,5\n",
        "buffer,start,end,size\na,0,2,4\nb,3,8,5\n",
        "buffer_id,begin,end,size\na,0,2,4\nb,3,8,5\n",
        "id,start,upper,size\na,0,3,4\nb,3,9,5\n",
        "id,lower,upper,size,alignment,hint\na,0,3,4,1,-1\nb,3,9,5,1,0\n",
        "id,lower,upper,size,gaps,offset\na,0,3,4,1-2@0:1 2-3,0\nb,3,9,5,,7\n",
    };
    char path[] = "/tmp/unmask-instance-XXXXXX";
    ck_assert_int_ge(mkstemp(path), 0);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct instance instance;
        struct err err = {0};
        write_text(path, texts[i], strlen(texts[i]));
        ck_assert_msg(instance_read(path, &instance, &err) == 0, "%s", err.text);
        const struct packing_buffer *a = instance.packing.buffers, *b = a + 1;
        ck_assert(a->first_time == 0 && a->last_time == 2 && a->bytes == 4);
        ck_assert(b->first_time == 3 && b->last_time == 8 && b->bytes == 5);
        ck_assert(instance.has_hints == (i == 4) && instance.has_gaps == (i == 5));
        ck_assert((instance.offset_bytes != NULL) == (i == 5));
        ck_assert(i != 5 || (instance.offset_bytes[0] == 0 && instance.offset_bytes[1] == 7));
        instance_fini(&instance);
    }
    static const char *const bad[][2] = {
        {"id,buffer,lower,upper,size\n", ":1: both 'buffer' and another column for 'id'"},
        {"id,lower,upper,end,size\n", ":1: both 'end' and another column for 'upper'"},
        {"id,start,end,size\na,3,2,4\n", ":2: end is before start"},
        {"id,lower,upper,size,offset\na,0,2,4,-1\n", ":2: found '-1' in offset"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct instance instance;
        struct err err = {0};
        write_text(path, bad[i][0], strlen(bad[i][0]));
        ck_assert_int_eq(instance_read(path, &instance, &err), ERR_WORLD);
        ck_assert_msg(strstr(err.text, bad[i][1]) != NULL, "%s", err.text);
    }
    unlink(path);
}

TEST(the_solution_in_a_file_is_checked_and_its_peak_compared) {
    const char *good = scratch_write(
        "good.csv", "id,lower,upper,size,offset,hint\nb1,0,10,4,0,-1\nb2,3,7,4,6,-1\n");
    struct output output = CLI("plan", "--instance", good);
    ck_assert_ptr_nonnull(strstr(output.out, "solution is one: peak 10, ours 8"));
    ck_assert_ptr_nonnull(strstr(output.err, "passed over: hint"));
    output_free(&output);
    char *text = PRINTS("plan", "--instance", good, "--json");
    ck_assert_ptr_nonnull(strstr(text, "\"given_peak_bytes\": 10"));
    free(text);
    REFUSES(1, "bad.csv: the offsets in the file are no solution: 0 and 1 overlap", "plan",
            "--instance",
            scratch_write("bad.csv", "id,lower,upper,size,offset\nb1,0,10,4,0\nb2,3,7,4,2\n"));
}

TEST(plan_shows_a_file_and_says_when_it_does_not_fit) {
    char *text = PRINTS("plan", "--instance", EXAMPLE);
    ck_assert_str_eq(text, EXAMPLE ": 5 buffers\n\n"
                                   "buffer  offset  bytes  lower  upper\n"
                                   "b1           0      4      0      3\n"
                                   "b2           0      4      3      9\n"
                                   "b3           4      4      0      9\n"
                                   "b4           0      4      9     21\n"
                                   "b5           8      4      0     21\n\n"
                                   "peak 12, lower bound 12, gap 0.00 %, planner exact, optimal\n");
    free(text);
    REFUSES(1, EXAMPLE ": no plan within 11 bytes exists; the lowest found ends at 12", "plan",
            "--instance", EXAMPLE, "--capacity", "11");
    REFUSES(1, EXAMPLE ": no plan within 12 bytes was found; the lowest found ends at 20", "plan",
            "--instance", EXAMPLE, "--capacity", "12", "--planner", "no-reuse");
    REFUSES(2, "--requests is about a step; --instance plans the buffers of a file", "plan",
            "--instance", EXAMPLE, "--requests", "4");
    REFUSES(2, "--capacity is about a file: give --instance too", "plan", "--capacity", "12");
    REFUSES(2, "--capacity 0: expected bytes, such as 1048576 or 24GiB", "plan", "--instance",
            EXAMPLE, "--capacity", "0");
    REFUSES(
        2,
        "unknown planner 'exakt'; did you mean 'exact'? (`unmask list planners` prints them all)",
        "plan", "--instance", EXAMPLE, "--planner", "exakt");
}

#define FIXED "--systems", "tests/golden/cli/systems.ini", "--roofline", "--system", "fused"

static int64_t whole(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

static json_t *read_json(char *text) {
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    ck_assert_ptr_nonnull(json);
    free(text);
    return json;
}

TEST(plan_compares_the_planners_on_a_step) {
    json_t *json =
        read_json(PRINTS("plan", FIXED, "--requests", "4", "--planner", "all", "--json"));
    const json_t *plans = json_object_get(json, "plans");
    ck_assert_uint_eq(json_array_size(plans), planner_table_size);
    int64_t bound = whole(json, "proven_bound_bytes"), first_fit = 0, exact = 0;
    for (size_t i = 0; i < planner_table_size; i++) {
        const json_t *plan = json_array_get(plans, i);
        const char *name = json_string_value(json_object_get(plan, "planner"));
        ck_assert_str_eq(name, planner_table[i].name);
        first_fit = strcmp(name, "first-fit") == 0 ? whole(plan, "peak_bytes") : first_fit;
        exact = strcmp(name, "exact") == 0 ? whole(plan, "peak_bytes") : exact;
    }
    ck_assert_int_eq(exact, bound);
    ck_assert_int_gt(first_fit, exact);
    json_decref(json);

    json = read_json(PRINTS("plan", FIXED, "--requests", "4", "--planner", "exact", "--json"));
    ck_assert_int_eq(whole(json, "peak_bytes"), exact);
    ck_assert(json_is_true(json_object_get(json, "optimal")));
    json_decref(json);

    char *text = PRINTS("plan", FIXED, "--requests", "4", "--planner", "all");
    ck_assert_ptr_nonnull(
        strstr(text, "planner         peak_bytes     peak   gap_%  nodes  result"));
    ck_assert_ptr_nonnull(strstr(text, "\nlower bound "));
    free(text);
    text = PRINTS("plan", FIXED, "--requests", "4", "--planner", "exact");
    ck_assert_ptr_nonnull(strstr(text, ", gap 0.00 %"));
    ck_assert_ptr_nonnull(strstr(text, " under planner exact\n"));
    free(text);
}

SUITE("planner")
