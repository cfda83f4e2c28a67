/* Memory behind the two ends of a range: few handles, none asked for twice, given back late, lent
 * in between; what happens when there is no more; and the forward pass above it. */
#include <stdio.h>

#include "engine/device/mapping.h"
#include "sim/base/num.h"
#include "tests/support/faulty_device.h"
#include "tests/support/script.h"

static const int64_t MIB = 1 << 20, GIB = 1 << 30;

/* Times of calls made by now, by kind. */
static int64_t n_calls(const struct mapping *mapping, enum mapping_call call) {
    return mapping->costs[call].n;
}

/* A mapping on the faulty device, which is all there is on it. */
struct opened {
    struct device_table table;
    struct engine_device device;
    struct mapping mapping;
};

static struct opened *open_mapping(int64_t bytes) {
    struct opened *opened = calloc(1, sizeof *opened);
    struct err err = {0};
    opened->table = faulty_device(0);
    ck_assert_int_eq(engine_device_start(&opened->table, KERNEL_F32, &opened->device, &err), 0);
    ck_assert_msg(mapping_open(&opened->mapping, &opened->device, bytes, &err) == 0, "%s",
                  err.text);
    ck_assert_int_eq(opened->mapping.bytes, align_up(bytes, opened->mapping.granule_bytes));
    ck_assert_int_eq(mapping_mapped_bytes(&opened->mapping), 0);
    return opened;
}

static void close_mapping(struct opened *opened) {
    mapping_close(&opened->mapping);
    ck_assert(faulty.n_handles == 0 && faulty.n_ranges == 0);
    ck_assert_int_eq(opened->table.allocated_bytes(opened->device.device), 0);
    engine_device_close(&opened->device);
    free(opened);
}

static void cover(struct opened *opened, int64_t workspace, int64_t rows) {
    struct err err = {0};
    struct mapping *mapping = &opened->mapping;
    ck_assert_msg(mapping_cover(mapping, workspace, mapping->bytes - rows, &err) == 0, "%s",
                  err.text);
    ck_assert_int_eq(mapping_mapped_bytes(mapping),
                     opened->table.allocated_bytes(opened->device.device));
    ck_assert_int_le(mapping_mapped_bytes(mapping), mapping->bytes);
}

/* A step that needs this much, `n` times; how many calls that took. */
static int step(struct opened *opened, int64_t workspace, int64_t rows, int n) {
    int before = faulty.n_mapping_calls;
    struct err err = {0};
    for (int i = 0; i < n; i++) {
        cover(opened, workspace, rows);
        ck_assert_msg(mapping_next_step(&opened->mapping, &err) == 0, "%s", err.text);
    }
    return faulty.n_mapping_calls - before;
}

TEST(memory_comes_in_few_large_handles) {
    struct opened *opened = open_mapping(16 * GIB);
    struct mapping *mapping = &opened->mapping;
    ck_assert_int_eq(faulty.n_mapping_calls, 2); /* the granule, the addresses */
    cover(opened, 8 * GIB, 0);                   /* at once: eight eighths */
    ck_assert_int_eq(n_calls(mapping, MAPPING_CREATE), 8);
    ck_assert(mapping->costs[MAPPING_CREATE].ns > 0 && mapping->costs[MAPPING_MAP].ns > 0);
    ck_assert_int_eq(n_calls(mapping, MAPPING_MAP), 8);
    ck_assert_int_eq(n_calls(mapping, MAPPING_ALLOW), 1);
    ck_assert_int_eq(mapping_mapped_bytes(mapping), 8 * GIB);
    cover(opened, 8 * GIB, 1); /* the other end: the least there is */
    ck_assert_int_eq(mapping_mapped_bytes(mapping), 8 * GIB + MAPPING_HANDLE_BYTES);
    cover(opened, 8 * GIB + 1, MAPPING_HANDLE_BYTES); /* one more eighth */
    ck_assert_int_eq(n_calls(mapping, MAPPING_CREATE), 10);
    ck_assert_int_eq(mapping->sides[MAPPING_WORKSPACE].n, 9);
    close_mapping(opened);
    /* Bit by bit, it is no more than an eighth apart. */
    opened = open_mapping(16 * GIB);
    mapping = &opened->mapping;
    for (int64_t bytes = MIB; bytes <= 8 * GIB; bytes += 16 * MIB) {
        cover(opened, bytes, 0);
    }
    ck_assert_int_le(n_calls(mapping, MAPPING_CREATE), 40);
    ck_assert_int_eq(n_calls(mapping, MAPPING_ALLOW), n_calls(mapping, MAPPING_CREATE));
    ck_assert_int_le(mapping_mapped_bytes(mapping), 8 * GIB / 8 * 9);
    ck_assert_int_eq(n_calls(mapping, MAPPING_UNMAP), 0);
    close_mapping(opened);
}

/* Each byte that is needed can be written, and rows stay what they were while they are held,
 * whatever grows, shrinks and moves between; all in no more than there are addresses. */
TEST(what_is_needed_is_there_and_stays_what_it_was) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct rng rng = rng_stream(seed, "needs");
        struct opened *opened = open_mapping(700 * MIB + 5);
        struct mapping *mapping = &opened->mapping;
        int64_t granule = mapping->granule_bytes, n = mapping->bytes / granule, held = 0;
        int64_t marks[1000];
        ck_assert_int_le(n, 1000);
        for (int turn = 0; turn < 400; turn++) {
            /* In granules; mostly as much as leaves a gap, sometimes as much as there is. */
            int64_t parts = turn % 10 == 9 ? 1 : 3;
            int64_t rows = (int64_t)(rng_next(&rng) % (uint64_t)(n / parts + 1));
            rows = turn % 3 == 0 ? rows : held;
            int64_t workspace = (int64_t)(rng_next(&rng) % (uint64_t)((n - rows) / parts + 1));
            step(opened, workspace * granule, rows * granule,
                 turn % 40 == 0  ? 600
                 : turn % 7 == 0 ? 70
                                 : 1);
            for (int64_t i = 1; i <= rows; i++) {
                int64_t *at = (int64_t *)(void *)(mapping->addresses + (n - i) * granule);
                ck_assert(i > held || *at == marks[i - 1]);
                marks[i - 1] = i <= held ? marks[i - 1] : (int64_t)rng_next(&rng);
                *at = marks[i - 1];
            }
            held = rows;
            for (int64_t i = 0; i < workspace; i++) {
                mapping->addresses[(i + 1) * granule - 1] = 1;
            }
        }
        ck_assert_int_gt(mapping->n_lent, 0);
        ck_assert_int_gt(n_calls(mapping, MAPPING_RELEASE), 0);
        close_mapping(opened);
    }
}

/* Blocks of 32 steps, of which the first needs far more than the others. */
TEST(steps_that_come_again_make_no_call) {
    struct opened *opened = open_mapping(8 * GIB);
    ck_assert_int_gt(step(opened, 3 * GIB, 2 * GIB, 1), 0);
    for (int block = 0; block < 100; block++) {
        ck_assert_int_eq(step(opened, 100 * MIB, 2 * GIB - block * MIB, 31), 0);
        ck_assert_int_eq(step(opened, 3 * GIB, 2 * GIB, 1), 0);
    }
    close_mapping(opened);
}

TEST(unused_memory_goes_back_after_many_steps_and_not_before) {
    struct opened *opened = open_mapping(8 * GIB);
    struct mapping *mapping = &opened->mapping;
    step(opened, 2 * GIB, GIB, 1);
    ck_assert_int_eq(mapping_mapped_bytes(mapping), 3 * GIB);
    ck_assert_int_eq(step(opened, GIB, GIB, MAPPING_RELEASE_STEPS - 2), 0);
    ck_assert_int_eq(step(opened, 2 * GIB - 256 * MIB + 1, GIB, 1), 0); /* the last is used again */
    ck_assert_int_eq(step(opened, GIB, GIB, MAPPING_RELEASE_STEPS - 1), 0);
    /* Four of the eight: each unmapped, and closed. */
    ck_assert_int_eq(step(opened, GIB, GIB, 1), 4 * 2);
    ck_assert_int_eq(mapping_mapped_bytes(mapping), 2 * GIB);
    ck_assert_int_eq(step(opened, GIB, GIB, 3 * MAPPING_RELEASE_STEPS), 0);
    ck_assert_int_eq(mapping->most_bytes, 3 * GIB);
    ck_assert_int_eq(n_calls(mapping, MAPPING_WAIT), 4);
    /* Nothing is needed: nothing is left. */
    step(opened, 0, 0, MAPPING_RELEASE_STEPS + 1);
    ck_assert_int_eq(mapping_mapped_bytes(mapping), 0);
    ck_assert_int_eq(faulty.n_handles, 0);
    close_mapping(opened);
}

TEST(what_one_end_leaves_unused_is_lent_to_the_other_as_it_is) {
    struct opened *opened = open_mapping(8 * GIB);
    struct mapping *mapping = &opened->mapping;
    step(opened, 4 * GIB, 512 * MIB, 1);
    int64_t created = n_calls(mapping, MAPPING_CREATE);
    /* Too early: more is created. */
    step(opened, 64 * MIB, 512 * MIB, MAPPING_LEND_STEPS - 2);
    step(opened, 64 * MIB, 512 * MIB + 1, 1);
    ck_assert_int_eq(n_calls(mapping, MAPPING_CREATE), created + 1);
    /* Late enough: the unused handles go over, unmapped, mapped and allowed once for all. */
    step(opened, 64 * MIB, 512 * MIB, 1);
    mapping->addresses[4 * GIB - 1] = 99; /* the end of what goes first */
    int64_t allowed = n_calls(mapping, MAPPING_ALLOW);
    int64_t mapped = mapping_mapped_bytes(mapping), before = mapping->sides[MAPPING_ROWS].bytes;
    ck_assert_int_eq(step(opened, 64 * MIB, 1536 * MIB, 1), 2 * 2 + 1);
    ck_assert_int_eq(n_calls(mapping, MAPPING_CREATE), created + 1);
    ck_assert_int_eq(n_calls(mapping, MAPPING_ALLOW), allowed + 1);
    ck_assert_int_eq(n_calls(mapping, MAPPING_RELEASE), 0);
    ck_assert_int_eq(mapping_mapped_bytes(mapping), mapped);
    ck_assert(mapping->n_lent == 2 && mapping->lent_bytes == GIB);
    ck_assert_int_eq(mapping->addresses[mapping->bytes - before - 1], 99);
    close_mapping(opened);
}

/* Once there is no gap, one end's memory serves the other where it is. */
TEST(ends_that_have_met_need_no_memory_of_their_own) {
    struct opened *opened = open_mapping(GIB);
    struct mapping *mapping = &opened->mapping;
    step(opened, 600 * MIB, 0, 1);
    step(opened, 0, 500 * MIB, 1);
    ck_assert_int_eq(mapping_mapped_bytes(mapping), GIB);
    int calls = faulty.n_mapping_calls;
    for (int64_t rows = 0; rows <= GIB; rows += 2 * MIB) {
        cover(opened, GIB - rows, rows);
        memset(mapping->addresses, 1, 64);
        mapping->addresses[GIB - 1] = 2;
    }
    ck_assert_int_eq(faulty.n_mapping_calls, calls);
    close_mapping(opened);
}

TEST(no_memory_is_taken_from_under_work_that_is_queued) {
    struct opened *opened = open_mapping(8 * GIB);
    struct mapping *mapping = &opened->mapping;
    const struct device_table *table = &opened->table;
    struct device *device = opened->device.device;
    faulty.queues = true;
    step(opened, GIB, GIB, 1);
    step(opened, 64 * MIB, GIB, MAPPING_LEND_STEPS);
    ck_assert_int_eq(table->clear(device, mapping->addresses + GIB - 4096, 4096), DEVICE_OK);
    ck_assert_int_eq(faulty.n_queued, 1);
    step(opened, 64 * MIB, GIB + 1, 1); /* lends, and the device checks that nothing waits */
    ck_assert(mapping->n_lent == 1 && faulty.n_queued == 0);
    ck_assert_int_eq(table->clear(device, mapping->addresses + 256 * MIB, 4096), DEVICE_OK);
    step(opened, 64 * MIB, GIB, MAPPING_RELEASE_STEPS + 1);
    ck_assert_int_eq(faulty.n_queued, 0);
    close_mapping(opened);
}

TEST(a_device_without_more_memory_is_asked_for_less_and_then_says_so) {
    struct opened *opened = open_mapping(8 * GIB);
    struct mapping *mapping = &opened->mapping;
    struct err err = {0};
    step(opened, 2 * GIB, GIB, 1);
    faulty.most_bytes = 3 * GIB + 40 * MIB;
    /* What the other end does not need goes over at once, and only then. */
    step(opened, 2 * GIB - 256 * MIB, GIB + 200 * MIB, 1);
    ck_assert(mapping->n_lent == 1 && mapping_mapped_bytes(mapping) == 3 * GIB);
    /* Then no more is asked for than is missing. */
    step(opened, 2 * GIB - 256 * MIB, GIB + 256 * MIB + 38 * MIB + 1, 1);
    ck_assert_int_eq(mapping_mapped_bytes(mapping), 3 * GIB + 40 * MIB);
    memset(mapping->addresses + mapping->bytes - GIB, 7, 64);
    ck_assert_int_eq(mapping_cover(mapping, 2 * GIB, mapping->bytes - GIB - 290 * MIB, &err),
                     ERR_WORLD);
    ck_assert_str_eq(
        err.text, "the faulty device ran out of memory while mapping memory for 2 GiB of "
                  "workspace and 1.28 GiB of cached rows, 3.04 GiB so far: as the test wants it");
    ck_assert_int_eq(mapping->addresses[mapping->bytes - GIB + 63], 7);
    step(opened, 2 * GIB - 256 * MIB, GIB, 1); /* what was there before still is */
    mapping->addresses[2 * GIB - 256 * MIB - 1] = 1;
    close_mapping(opened);
}

/* Growing, lending and giving back. */
static int live_through_steps(struct mapping *mapping, struct err *err) {
    int status = mapping_cover(mapping, GIB, mapping->bytes - GIB, err);
    for (int i = 0; status == 0 && i < 2 * MAPPING_RELEASE_STEPS; i++) {
        int64_t rows = i < MAPPING_LEND_STEPS ? GIB : GIB + 64 * MIB;
        status = mapping_next_step(mapping, err);
        status = status == 0 ? mapping_cover(mapping, 1, mapping->bytes - rows, err) : status;
    }
    return status;
}

TEST(whichever_call_fails_there_is_a_sentence_and_nothing_is_left) {
    long most = 1;
    for (long n = 0; n <= most; n++) {
        struct device_table table = faulty_device(0);
        struct engine_device device;
        struct mapping mapping;
        struct err err = {0};
        ck_assert_int_eq(engine_device_start(&table, KERNEL_F32, &device, &err), 0);
        long before = faulty.n_calls;
        faulty.fail_at = n > 0 ? before + n : 0;
        int status = mapping_open(&mapping, &device, 4 * GIB, &err);
        if (status == 0) {
            status = live_through_steps(&mapping, &err);
            mapping_close(&mapping);
        }
        ck_assert_msg((status == 0) == (n == 0), "call %ld: %s", n, err.text);
        ck_assert(n == 0 || strstr(err.text, ": as the test wants it") != NULL ||
                  strstr(err.text, "refused") != NULL);
        most = n == 0 ? faulty.n_calls - before : most;
        ck_assert_msg(faulty.n_handles == 0 && faulty.n_ranges == 0 &&
                          table.allocated_bytes(device.device) == 0,
                      "call %ld leaves memory", n);
        engine_device_close(&device);
    }
    ck_assert_int_gt(most, 20);
}

static const struct script dual_script = {
    .keeping = KEEP_OUTSIDE, .canvas = 40, .prompt = 8, .block = 8, .steps = 4, .take = 0};
static const struct script sparse_script = {.keeping = KEEP_CHOSEN,
                                            .canvas = 47,
                                            .prompt = 15,
                                            .block = 8,
                                            .steps = 4,
                                            .take = 2,
                                            .retain = 11};

static struct rig *open_rig(const struct device_table *table, bool maps, bool shares) {
    struct step_limits own = limits;
    own.maps = maps;
    own.shares_pool = shares;
    own.pool_bytes = shares ? WORKSPACE : own.pool_bytes;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){&dream, &sparse, "random:21", table, KERNEL_F32, &own});
    ck_assert((forward_mapping(rig->forward) != NULL) == maps);
    return rig;
}

/* The request's tokens and logits, its rows at the end of the pool; `hold` where they are new. */
static void decode(struct rig *rig, const struct script *script, int64_t pool_bytes,
                   int32_t canvas[CANVAS_TOKENS]) {
    struct script s = *script;
    struct err err = {0};
    int64_t first = pool_bytes / (int64_t)sizeof(float) - STORE;
    ck_assert_int_eq(forward_hold(rig->forward, first * (int64_t)sizeof(float), &err), 0);
    script_start(&s, 0, rig, canvas);
    for (; !script_over(&s); script_advance(&s)) {
        rig_clear(rig);
        script_add(&s, rig);
        rig_plan(rig);
        rig->parts[0].kv.first = first;
        ck_assert_msg(forward_submit(rig->forward, &rig->step, &err) == 0, "%s", err.text);
    }
    ck_assert_int_eq(rig_collect(rig, &err), 0);
    rig_read(rig, 0, 0, canvas, CANVAS_TOKENS);
    ck_assert_int_eq(forward_hold(rig->forward, pool_bytes, &err), 0);
}

/* Recorded, queued and played steps too: what they read stays at its addresses. */
TEST(steps_on_mapped_memory_give_the_same_bits) {
    static const struct script *const scripts[] = {&dual_script, &sparse_script};
    static int32_t canvases[2][CANVAS_TOKENS];
    for (int i = 0; i < 8; i++) {
        bool shares = i % 2 == 1;
        int64_t pool_bytes = shares ? WORKSPACE : limits.pool_bytes;
        const struct script *script = scripts[i / 2 % 2];
        const struct device_table table = faulty_device(0);
        struct rig *plain = open_rig(NULL, false, shares);
        struct rig *mapped = open_rig(&table, true, shares);
        faulty.queues = i >= 4;
        decode(plain, script, pool_bytes, canvases[0]);
        decode(mapped, script, pool_bytes, canvases[1]);
        ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
        ck_assert_mem_eq(plain->token, mapped->token, sizeof plain->token);
        ck_assert_mem_eq(plain->logits, mapped->logits, sizeof plain->logits);
        ck_assert_int_gt(faulty.n_played, 0);
        /* All of it again takes no call. */
        int n_before = faulty.n_mapping_calls;
        decode(mapped, script, pool_bytes, canvases[1]);
        ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
        ck_assert_int_eq(faulty.n_mapping_calls, n_before);
        rig_close(plain);
        ck_assert_int_eq(rig_close(mapped), 0);
    }
}

TEST(as_much_is_allocated_as_the_steps_have_needed) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_rig(&table, true, false);
    const struct mapping *mapping = forward_mapping(rig->forward);
    static int32_t canvas[CANVAS_TOKENS];
    int64_t others = rig->weights.layout.bytes + forward_side_bytes(rig->forward);
    ck_assert_int_eq(mapping->bytes,
                     WORKSPACE + align_up(limits.pool_bytes, mapping->granule_bytes));
    ck_assert_int_eq(table.allocated_bytes(rig->device.device), others);
    decode(rig, &dual_script, limits.pool_bytes, canvas);
    ck_assert_int_eq(table.allocated_bytes(rig->device.device),
                     others + mapping_mapped_bytes(mapping));
    ck_assert_int_ge(mapping_mapped_bytes(mapping), forward_workspace_peak(rig->forward));
    ck_assert_int_eq(rig_close(rig), 0);
}

SUITE("mapping")
