/* The forward pass and its device: CUDA graphs, failures of every call, decisions, moves, memory,
 * and what is refused. */
#include <stdio.h>

#include "engine/step/forward_parts.h"
#include "engine/step/warm.h"
#include "sim/base/input/datadir.h"
#include "tests/support/faulty_device.h"
#include "tests/support/late_device.h"
#include "tests/support/says.h"
#include "tests/support/script.h"

#ifndef __SANITIZE_ADDRESS__ /* the sanitizer owns the allocator */
static long n_allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size) {
    n_allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size) {
    n_allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size) {
    n_allocations++;
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t align, size_t size) {
    n_allocations++;
    return __libc_memalign(align, size);
}
#endif

static const struct script sparse_script = {.keeping = KEEP_CHOSEN,
                                            .canvas = 47,
                                            .prompt = 15,
                                            .block = 8,
                                            .steps = 4,
                                            .take = 2,
                                            .retain = 11};
static const struct script dual_script = {
    .keeping = KEEP_OUTSIDE, .canvas = 40, .prompt = 8, .block = 8, .steps = 4, .take = 0};

/* Two requests side by side, to the end or the first trouble; canvases come back. */
static int decode_both(struct rig *rig, int32_t canvas[2 * CANVAS_TOKENS], struct err *err) {
    struct script a = sparse_script, b = dual_script;
    int32_t tokens[MAX_NAIVE];
    int status = 0;
    script_start(&a, 0, rig, tokens);
    script_start(&b, 1, rig, tokens);
    while (status == 0 && !script_over(&a)) {
        double ns;
        rig_clear(rig);
        script_add(&a, rig);
        script_add(&b, rig);
        rig_plan(rig);
        status = forward_submit(rig->forward, &rig->step, err);
        status = status == 0 ? forward_wait(rig->forward, &ns, err) : status;
        status = status == 0 ? rig_collect(rig, err) : status;
        script_advance(&a);
        script_advance(&b);
    }
    if (status == 0) {
        status = forward_read_canvas(rig->forward, 0, canvas, 2 * CANVAS_TOKENS, err);
    }
    return status;
}

static struct rig *open_on(const struct device_table *table) {
    return rig_set_up(&(struct rig_setup){&dream, &sparse, "random:21", table, KERNEL_F32, NULL});
}

TEST(recorded_steps_decode_as_issued_ones_do) {
    const struct device_table table = faulty_device(0);
    struct rig *plain = open_on(NULL), *recorded = open_on(&table);
    static int32_t canvases[2][2 * CANVAS_TOKENS];
    struct err err = {0};
    memset(rig_pool(plain), 0, POOL * sizeof(float));
    memset(rig_pool(recorded), 0, POOL * sizeof(float));
    ck_assert_int_eq(decode_both(plain, canvases[0], &err), 0);
    ck_assert_int_eq(decode_both(recorded, canvases[1], &err), 0);
    ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
    ck_assert_mem_eq(rig_pool(plain), rig_pool(recorded), POOL * sizeof(float));
    ck_assert_mem_eq(plain->logits, recorded->logits, sizeof plain->logits);
    /* Four blocks of four steps, two of which are alike: three kinds, each issued twice, recorded
     * behind the second time and then played; the steps of the second decoding are all known. */
    ck_assert_int_eq(faulty.n_recorded, 3);
    ck_assert_int_eq(faulty.n_played, 16 - 6);
    int n_issued = faulty.n_issued;
    ck_assert_int_eq(decode_both(recorded, canvases[1], &err), 0);
    ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
    ck_assert_int_eq(faulty.n_played, 32 - 6);
    ck_assert_int_eq(faulty.n_issued, n_issued);
    rig_close(plain);
    rig_close(recorded);
    ck_assert_int_eq(faulty.n_open, 0);
}

static int n_adds, n_products_that_add;

static bool never_chosen(const struct device *device, const struct call_linear *call) {
    (void)device;
    (void)call;
    return false;
}

static int counted_add(struct device *device, const struct call_add *call) {
    n_adds++;
    return device_cpu.add(device, call);
}

/* While products run alone: where what they write lies, which is not what they read, and where what
 * they read was filled, rows that they add to too. */
static const unsigned char *lowest, *highest, *filled;

static int counted_random(struct device *device, const struct call_random *call) {
    filled = (const unsigned char *)call->y + call->n * 4;
    return device_cpu.random(device, call);
}

static int counted_linear(struct device *device, const struct call_linear *call) {
    const unsigned char *y = call->y, *end = y + call->n_tokens * call->y_stride * 4;
    n_products_that_add += call->add != NULL;
    ck_assert(call->add == NULL || call->add == call->y);
    ck_assert(lowest == NULL || (call->y != call->x && y >= lowest && end <= highest));
    ck_assert(lowest == NULL || (call->add == NULL ? y >= filled : end <= filled));
    return device_cpu.linear(device, call);
}

/* In single precision a sum within a product has the bits of one after it, so that nothing else
 * changes. Of a layer's two sums one is a norm's, whose product adds as well. */
TEST(a_device_that_adds_within_products_is_asked_for_no_sums) {
    struct device_table table = device_cpu;
    static int32_t canvases[2][2 * CANVAS_TOKENS];
    struct err err = {0};
    table.add = counted_add;
    table.linear = counted_linear;
    table.random = counted_random;
    table.linear_chosen = never_chosen; /* so that warming runs products alone */
    for (int adds = 0; adds < 2; adds++) {
        table.adds_in_products = adds > 0;
        n_adds = n_products_that_add = 0;
        struct rig *rig = open_on(&table);
        lowest = rig->forward->room.workspace;
        highest = lowest + rig->forward->limits.workspace_bytes;
        ck_assert_msg(forward_warm(rig->forward, NULL, &err) == 0, "%s", err.text);
        lowest = NULL;
        ck_assert_int_eq(n_products_that_add > 0, adds);
        n_adds = n_products_that_add = 0;
        memset(rig_pool(rig), 0, POOL * sizeof(float));
        ck_assert_int_eq(decode_both(rig, canvases[adds], &err), 0);
        ck_assert_int_eq(n_adds > 0, adds == 0);
        ck_assert_int_eq(n_products_that_add, adds * 2 * (int)dream.layers * 16);
        rig_close(rig);
    }
    ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
}

/* A step that commits two positions a time: issued, then again and again. */
static void again(struct rig *rig, int n_times, int32_t canvas[CANVAS_TOKENS]) {
    struct script s = dual_script;
    struct err err = {0};
    s.take = 2;
    script_start(&s, 0, rig, canvas);
    rig_clear(rig);
    script_add(&s, rig);
    rig_step(rig);
    ck_assert_int_eq(rig->n_committed[0], 2);
    for (int i = 0; i < n_times; i++) {
        bool is_done = false;
        ck_assert_int_eq(forward_again(rig->forward, &err), 0);
        ck_assert_int_eq(forward_done(rig->forward, &is_done, &err), 0);
        ck_assert(is_done);
        ck_assert_int_eq(rig_collect(rig, &err), 0);
        ck_assert_int_eq(rig->n_committed[0], 2);
    }
    rig_read(rig, 0, 0, canvas, CANVAS_TOKENS);
}

TEST(a_step_that_is_issued_again_reads_the_canvas_that_it_wrote) {
    const struct device_table table = faulty_device(0);
    struct rig *plain = open_on(NULL), *recorded = open_on(&table);
    int32_t canvases[2][CANVAS_TOKENS];
    again(plain, 3, canvases[0]);
    again(recorded, 3, canvases[1]);
    ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
    ck_assert(faulty.n_recorded == 1 && faulty.n_played == 2);
    int n_masks = 0;
    for (int t = 8; t < 16; t++) {
        n_masks += canvases[0][t] == (int32_t)dream.mask_token;
    }
    ck_assert_int_eq(n_masks, 0); /* four times two of the block's eight */
    rig_close(plain);
    rig_close(recorded);
}

/* As the simulator foresees it: a visit of the host is one use, however many steps it issues. */
TEST(steps_that_are_issued_at_once_are_captured_as_one) {
    static const uint32_t at_once[] = {4, 1, 4, 2, 1};
    struct step_limits unrolled = limits;
    unrolled.max_unrolled = 4;
    const struct device_table table = faulty_device(0);
    struct rig *rig = rig_set_up(&(struct rig_setup){.model = &dream,
                                                     .options = &sparse,
                                                     .source = "random:21",
                                                     .dtype = KERNEL_F32,
                                                     .table = &table,
                                                     .limits = &unrolled});
    struct captured foreseen = {0};
    struct script s = dual_script;
    struct err err = {0};
    int32_t canvas[CANVAS_TOKENS];
    int n_played = 0;
    s.take = 1;
    script_start(&s, 0, rig, canvas);
    rig_clear(rig);
    script_add(&s, rig);
    rig_plan(rig);
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
        double ns;
        ck_assert_int_eq(forward_submit_times(rig->forward, &rig->step, at_once[i], &err), 0);
        ck_assert_int_eq(forward_wait(rig->forward, &ns, &err), 0);
        n_played += captured_issues(&foreseen, 1) ? 0 : (int)at_once[i];
        ck_assert_int_eq(faulty.n_played, n_played);
        ck_assert_int_eq(faulty.n_recorded, i > 0);
    }
    ck_assert_int_eq(n_played, 7);
    rig_close(rig);
}

/* What a step under smoothing has kept, and its threshold, after it was issued so many times. */
struct smoothed {
    int32_t canvas[16];
    float kept[16][512], threshold;
};

static void smooth_again(struct rig *rig, int n_times, struct smoothed *out) {
    int32_t masks[16], places[16];
    struct err err = {0};
    for (int t = 0; t < 16; t++) {
        masks[t] = (int32_t)dream.mask_token;
        places[t] = 15 - t;
    }
    const struct step_part part =
        MAKE(struct step_part, .positions = count, .decision = {.n_rows = 16}, .row_places = places,
             .token_places = places, .steps = 3);
    ck_assert_int_eq(forward_clear_places(rig->forward, 0, 16, &err), 0);
    rig_write(rig, 0, 0, masks, 16);
    rig_clear(rig);
    rig_add(rig, 16, 0, &part);
    rig_step(rig);
    for (int i = 0; i < n_times; i++) {
        ck_assert_int_eq(forward_again(rig->forward, &err), 0);
        ck_assert_int_eq(rig_collect(rig, &err), 0);
    }
    const struct room *room = &rig->forward->room;
    rig_read(rig, 0, 0, out->canvas, 16);
    memset(out->kept, 0, sizeof out->kept);
    memcpy(out->kept, room->expected, 16 * (size_t)room->expected_bytes);
    out->threshold = room->thresholds[0];
}

/* The device counts the steps of what it is given once, played or issued. */
TEST(smoothed_steps_that_are_played_count_on) {
    const struct graph_options options =
        MAKE(struct graph_options, .fused = true, .logits_bytes = BF16_BYTES,
             .storage = storage_of(NUMBER_F32), .engine = true, .smooths = true);
    const struct smoothing smoothing = {
        .weight_init = 0.15, .weight_growth = 0.02, .weight_most = 1, .threshold_decay = 0.02};
    struct step_limits kept = limits;
    kept.places = 16;
    kept.smoothing = smoothing;
    const struct device_table table = faulty_device(0);
    struct rig_setup setup = {&dream, &options, "random:21", NULL, KERNEL_F32, &kept};
    struct rig *plain = rig_set_up(&setup);
    setup.table = &table;
    struct rig *recorded = rig_set_up(&setup);
    struct smoothed before, after;
    for (int n = 0; n < 6; n++) {
        smooth_again(plain, n, &before);
        smooth_again(recorded, n, &after);
        ck_assert_mem_eq(&before, &after, sizeof before);
        ck_assert_float_eq(after.threshold,
                           smoothing_threshold(&smoothing, (uint32_t)(3 + n), 0.5f));
        ck_assert_float_ne(after.kept[0][0], 0);
    }
    ck_assert_int_eq(faulty.n_recorded, 1);
    ck_assert_int_gt(faulty.n_played, 10);
    rig_close(plain);
    rig_close(recorded);
}

static void run_width(struct rig *rig, int n) {
    rig_clear(rig);
    rig_add(rig, (uint32_t)n, 0, &(struct step_part){.positions = count});
    rig_step(rig);
}

TEST(captured_graphs_are_bounded_and_those_used_longest_ago_go_first) {
    enum { N = 70 };
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table);
    draw_ids(&dream, 1);
    rig_write(rig, 0, 0, ids, N);
    for (int n = 1; n <= N; n++) {
        run_width(rig, n);
        run_width(rig, n);
        ck_assert_int_eq(faulty.n_open, n < 64 ? n : 64);
    }
    ck_assert_int_eq(faulty.n_recorded, N);
    run_width(rig, N - 63); /* the oldest that is left */
    ck_assert_int_eq(faulty.n_recorded, N);
    run_width(rig, N - 64); /* forgotten, but known */
    ck_assert_int_eq(faulty.n_recorded, N + 1);
    run_width(rig, N - 63); /* it was used since, so another one went */
    ck_assert_int_eq(faulty.n_recorded, N + 1);
    ck_assert_int_eq(faulty.n_open, 64);
    rig_close(rig);
    ck_assert_int_eq(faulty.n_open, 0);
}

/* ---- graphs that are made before serving ---- */

enum { WARM_LAUNCHES = 3, WARM_GRAPHS = 64 };

static struct captures warm_on(struct rig *rig, const struct device_table *table) {
    struct captures captures;
    captures_open(&captures, table, rig->device.device);
    return captures;
}

static int warm_once(struct rig *rig, struct captures *captures) {
    return captures_warm(captures, rig_pool(rig), KERNEL_F32, WARM_LAUNCHES);
}

TEST(warming_makes_as_many_graphs_as_are_kept_and_closes_them) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table);
    struct captures captures = warm_on(rig, &table);
    const long before = faulty.n_calls;
    const int issued = faulty.n_issued;
    ck_assert_int_eq(warm_once(rig, &captures), DEVICE_OK);
    ck_assert_int_eq(faulty.n_recorded, WARM_GRAPHS);
    ck_assert_int_eq(faulty.n_played, WARM_GRAPHS);
    ck_assert_int_eq(faulty.n_open, 0);
    ck_assert_int_eq(faulty.n_issued, issued);
    /* Each begins, ends and is launched; somebody waits for all of them. */
    ck_assert_int_eq(faulty.n_calls - before, WARM_GRAPHS * (WARM_LAUNCHES + 3) + 1);
    ck_assert_uint_eq(captures.which.n_captured, 0);
    captures_close(&captures);
    rig_close(rig);
}

TEST(graphs_of_a_step_of_nothing_are_those_that_serving_finds_made) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table), *plain = open_on(NULL);
    static int32_t canvases[2][2 * CANVAS_TOKENS];
    struct err err = {0};
    memset(rig_pool(rig), 0, POOL * sizeof(float));
    memset(rig_pool(plain), 0, POOL * sizeof(float));
    const int64_t allocated = rig->device.table->allocated_bytes(rig->device.device);
    ck_assert_msg(forward_warm(rig->forward, NULL, &err) == 0, "%s", err.text);
    ck_assert_int_eq(faulty.n_recorded, WARM_GRAPHS);
    ck_assert_int_eq(faulty.n_open, 0);
    ck_assert_int_eq(rig->device.table->allocated_bytes(rig->device.device), allocated);
    memset(rig_pool(rig), 0, POOL * sizeof(float));
    ck_assert_int_eq(decode_both(rig, canvases[0], &err), 0);
    ck_assert_int_eq(decode_both(plain, canvases[1], &err), 0);
    ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
    ck_assert_int_eq(faulty.n_recorded, WARM_GRAPHS + 3);
    rig_close(rig);
    rig_close(plain);
}

struct told {
    uint64_t n_calls, n_done, n_total, stop_at;
};

static bool chooses_nothing(const struct device *device, const struct call_linear *call) {
    (void)device;
    (void)call;
    return false;
}

static int hear(void *state, uint64_t n_done, uint64_t n_total, struct err *err) {
    struct told *told = state;
    ck_assert_uint_eq(n_done, ++told->n_calls);
    told->n_done = n_done;
    told->n_total = n_total;
    return n_done == told->stop_at ? err_world(err, "enough") : 0;
}

TEST(warming_tells_how_far_it_is_and_ends_where_it_is_told_to) {
    struct device_table table = faulty_device(0);
    table.linear_chosen = chooses_nothing;
    struct rig *rig = open_on(&table);
    struct told all = {0}, some = {.stop_at = 3};
    struct err err = {0};
    ck_assert_int_eq(
        forward_warm(rig->forward, &(struct warm_watch){.told = hear, .state = &all}, &err), 0);
    ck_assert_uint_gt(all.n_total, 3);
    ck_assert_uint_eq(all.n_done, all.n_total);
    ck_assert_int_ne(
        forward_warm(rig->forward, &(struct warm_watch){.told = hear, .state = &some}, &err), 0);
    ck_assert_str_eq(err.text, "enough");
    ck_assert_uint_eq(some.n_calls, 3);
    rig_close(rig);
}

TEST(whatever_fails_while_warming_is_said_and_no_graph_is_left) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table);
    struct captures captures = warm_on(rig, &table);
    for (long n = 1; n <= WARM_GRAPHS * (WARM_LAUNCHES + 3) + 1; n++) {
        faulty.n_calls = 0;
        faulty.fail_at = n;
        ck_assert_msg(warm_once(rig, &captures) == DEVICE_FAILED, "call %ld", n);
        ck_assert_msg(faulty.n_open == 0 && faulty.recording == NULL, "call %ld", n);
    }
    captures_close(&captures);
    rig_close(rig);
}

/* The memory that is left, in graphs. */
static int graphs_left;

static int scarce_capture_end(struct device *device, struct device_graph **out) {
    if (graphs_left-- > 0) {
        return faulty_capture_end(device, out);
    }
    free(faulty.recording);
    faulty.recording = NULL;
    return DEVICE_NO_MEMORY;
}

static int scarce_graph_launch(struct device *device, struct device_graph *graph) {
    return graphs_left-- > 0 ? faulty_graph_launch(device, graph) : DEVICE_NO_MEMORY;
}

TEST(a_device_without_memory_for_all_graphs_is_warm_with_fewer) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table);
    for (int launching = 0; launching < 2; launching++) {
        struct device_table scarce = table;
        if (launching) {
            scarce.graph_launch = scarce_graph_launch;
        } else {
            scarce.capture_end = scarce_capture_end;
        }
        struct captures captures = warm_on(rig, &scarce);
        for (int left = 0; left <= WARM_GRAPHS; left += 16) {
            faulty.n_recorded = 0;
            graphs_left = left;
            ck_assert_int_eq(warm_once(rig, &captures), DEVICE_OK);
            const int more = launching && left < WARM_GRAPHS; /* was made, and not launched */
            ck_assert_int_eq(faulty.n_recorded, left + more);
            ck_assert_int_eq(faulty.n_open, 0);
        }
        captures_close(&captures);
    }
    rig_close(rig);
}

TEST(a_device_that_captures_nothing_needs_no_warming) {
    struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table);
    table.capture_begin = NULL;
    struct captures captures = warm_on(rig, &table);
    const long before = faulty.n_calls;
    ck_assert_int_eq(warm_once(rig, &captures), DEVICE_OK);
    ck_assert_int_eq(faulty.n_calls, before);
    bool is_new = false;
    static const struct step_key key;
    ck_assert_ptr_null(captures_find(&captures, &key, &is_new));
    ck_assert(is_new);
    captures_close(&captures);
    rig_close(rig);
}

TEST(a_step_of_the_same_hash_as_another_is_never_its_graph) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table);
    struct captures captures = warm_on(rig, &table);
    static const struct step_key key = {.offset_bytes = {256, 512}};
    bool is_new = false;
    struct known_step *step = captures_find(&captures, &key, &is_new);
    ck_assert(is_new && step != NULL);
    ck_assert_mem_eq(&step->key, &key, sizeof key);
    ck_assert(captures_find(&captures, &key, &is_new) == step && !is_new);
    step->key.offset_bytes[1]++; /* whose hash would have to be the same */
    ck_assert_ptr_null(captures_find(&captures, &key, &is_new));
    ck_assert(is_new);
    captures_close(&captures);
    rig_close(rig);
}

TEST(steps_are_issued_while_captures_are_off_and_launched_when_they_are_on_again) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table);
    struct err err = {0};
    draw_ids(&dream, 1);
    rig_write(rig, 0, 0, ids, 16);
    int issued = faulty.n_issued;
    run_width(rig, 8);
    const int each = faulty.n_issued - issued;
    run_width(rig, 8);
    run_width(rig, 8);
    ck_assert(faulty.n_recorded == 1 && faulty.n_played == 1);
    static float launched[sizeof rig->logits / sizeof(float)];
    memcpy(launched, rig->logits, sizeof rig->logits);
    ck_assert_int_eq(forward_captures(rig->forward, false, &err), 0);
    for (int i = 0; i < 3; i++) {
        issued = faulty.n_issued;
        run_width(rig, 8);
        ck_assert_int_eq(faulty.n_issued - issued, each);
        ck_assert(i > 0 || memcmp(launched, rig->logits, sizeof launched) == 0);
        run_width(rig, 9);
    }
    ck_assert(faulty.n_recorded == 1 && faulty.n_played == 1 && faulty.n_open == 1);
    ck_assert_int_eq(forward_captures(rig->forward, true, &err), 0);
    run_width(rig, 8);
    ck_assert_int_eq(faulty.n_played, 2);
    /* What was issued meanwhile is new. */
    run_width(rig, 9);
    ck_assert_int_eq(faulty.n_recorded, 1);
    run_width(rig, 9);
    ck_assert_int_eq(faulty.n_recorded, 2);
    run_width(rig, 9);
    ck_assert_int_eq(faulty.n_played, 3);
    rig_close(rig);
    ck_assert_int_eq(faulty.n_open, 0);
}

/* Everything that a launch depends on, one thing at a time: none may launch another's graph. */
TEST(steps_that_differ_in_a_launch_are_told_apart) {
    const struct device_table table = faulty_device(0);
    struct rig *rig = open_on(&table), *plain = open_on(NULL), *const both[] = {rig, plain};
    int32_t kv_rows[16], masks[16];
    static int32_t canvases[2][CANVAS_TOKENS];
    for (int t = 0; t < 16; t++) {
        kv_rows[t] = t < 4 ? t : -1;
        masks[t] = (int32_t)dream.mask_token;
    }
    memset(rig_pool(rig), 0, POOL * sizeof(float));
    memset(rig_pool(plain), 0, POOL * sizeof(float));
    /* Three rows of logits take as much memory as four. */
    static const int64_t chunks[] = {0, 0, 0, 0, 0, 0, 3, 4, 0};
    for (int variant = 0; variant < 9; variant++) {
        for (int pass = 0; pass < 3; pass++) {
            for (int r = 0; r < 2; r++) {
                struct step_part part = {.positions = count,
                                         .decision = {.n_rows = 16, .take = variant == 1 ? 3 : 0},
                                         .kv = {0, 4}};
                part.kv_rows = variant == 2 ? kv_rows : NULL;
                part.decision.n_rows = variant == 3 ? 0 : variant == 4 ? 7 : 16;
                both[r]->planner = variant == 5 ? "no-reuse" : "first-fit";
                both[r]->chunks.of[CHUNK_LOGITS] = chunks[variant];
                rig_write(both[r], 0, 0, masks, 16);
                rig_clear(both[r]);
                rig_add(both[r], 16, 0, &part);
                rig_plan(both[r]);
                both[r]->step.rule.slack = variant == 8 ? 0.5f : 0;
                struct err err = {0};
                ck_assert_int_eq(forward_submit(both[r]->forward, &both[r]->step, &err), 0);
                ck_assert_int_eq(rig_collect(both[r], &err), 0);
                rig_read(both[r], 0, 0, canvases[r], 16);
            }
            ck_assert_mem_eq(rig->committed, plain->committed, sizeof rig->committed);
            ck_assert_int_eq(rig->n_committed[0], plain->n_committed[0]);
            ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
            ck_assert_mem_eq(rig_pool(rig), rig_pool(plain), POOL * sizeof(float));
        }
        ck_assert_int_eq(faulty.n_recorded, variant + 1);
    }
    rig_close(rig);
    rig_close(plain);
}

/* Steps of a request one behind the other, without waiting. */
static void run_ahead(struct rig *rig, int32_t canvas[CANVAS_TOKENS]) {
    struct script s = sparse_script;
    struct err err = {0};
    script_start(&s, 0, rig, canvas);
    for (; !script_over(&s); script_advance(&s)) {
        rig_clear(rig);
        script_add(&s, rig);
        rig_plan(rig);
        ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), 0);
        if (rig->device.table != &device_cpu) { /* what the caller gave is the caller's again */
            memset(s.positions, 0xff, sizeof s.positions);
            memset(s.rows, 0xff, sizeof s.rows);
            memset(&rig->placement, 0xff, sizeof rig->placement);
        }
    }
    ck_assert_int_eq(rig_collect(rig, &err), 0);
    rig_read(rig, 0, 0, canvas, CANVAS_TOKENS);
}

TEST(work_that_is_queued_finds_its_inputs_as_they_were) {
    enum { N_TOKENS = 30000 }; /* more than is staged at once */
    static int32_t canvases[2][CANVAS_TOKENS], tokens[N_TOKENS], back[N_TOKENS];
    char folder[512];
    data_path(folder, sizeof folder, "tests/golden/engine/dream-tiny");
    struct step_limits wide = limits;
    wide.canvas_tokens = N_TOKENS;
    struct rig_setup setup = {&dream, &sparse, folder, NULL, KERNEL_F32, &wide};
    struct rig *plain = rig_set_up(&setup);
    const struct device_table table = faulty_device(0);
    faulty.queues = true;
    setup.table = &table;
    struct rig *queued = rig_set_up(&setup);
    ck_assert_mem_eq(plain->weights.block, queued->weights.block,
                     (size_t)model_weights_bytes(&dream, &(struct storage){0}));
    run_ahead(plain, canvases[0]);
    run_ahead(queued, canvases[1]);
    ck_assert_mem_eq(canvases[0], canvases[1], sizeof canvases[0]);
    ck_assert_mem_eq(plain->token, queued->token, sizeof plain->token);
    ck_assert_mem_eq(plain->logits, queued->logits, sizeof plain->logits);
    for (int t = 0; t < N_TOKENS; t++) {
        tokens[t] = t % 61;
    }
    rig_write(queued, 0, 0, tokens, N_TOKENS);
    rig_read(queued, 0, 0, back, N_TOKENS);
    ck_assert_mem_eq(tokens, back, sizeof tokens);
    rig_close(plain);
    rig_close(queued);
}

/* Opens, decodes a little in every way there is, and closes: 0, or what went wrong. */
static int live_through(const struct device_table *table, const char *source, bool maps,
                        int64_t *left, struct err *err) {
    struct rig *rig;
    struct step_limits own = limits;
    own.maps = maps;
    int status = rig_try_open(&(struct rig_setup){&dream, &sparse, source, table, KERNEL_F32, &own},
                              &rig, err);
    status = status == 0 ? forward_hold(rig->forward, 0, err) : status;
    int32_t tokens[MAX_NAIVE];
    struct script s = sparse_script;
    bool is_done;
    for (int t = 0; t < MAX_NAIVE; t++) {
        tokens[t] = t >= s.prompt ? (int32_t)dream.mask_token : t;
    }
    s.begin = s.prompt;
    status = status == 0 ? forward_write_canvas(rig->forward, 0, tokens, s.canvas, err) : status;
    for (int step = 0; status == 0 && step < 8; step++) {
        double ns;
        rig_clear(rig);
        script_add(&s, rig);
        rig_plan(rig);
        if (step == 6) {
            status = forward_begin(rig->forward, &rig->step, err);
            while (status == 0 && forward_instance(rig->forward) != NULL) {
                status = forward_next(rig->forward, err);
            }
            double instance_ns[GRAPH_MAX_OPS];
            status = status == 0 ? forward_instance_times(rig->forward, INFINITY, instance_ns, err)
                                 : status;
        } else {
            status = forward_submit(rig->forward, &rig->step, err);
        }
        status = status == 0 && step == 3 ? forward_again(rig->forward, err) : status;
        status = status == 0 ? forward_done(rig->forward, &is_done, err) : status;
        status = status == 0 ? forward_wait(rig->forward, &ns, err) : status;
        status = status == 0 ? rig_collect(rig, err) : status;
        status = status == 0 ? forward_move_store(rig->forward, 512, 0, 4096, err) : status;
        status = status == 0 ? forward_move_store(rig->forward, 0, 512, 4096, err) : status;
        script_advance(&s);
    }
    status = status == 0 ? forward_read_canvas(rig->forward, 0, tokens, s.canvas, err) : status;
    *left = rig_close(rig);
    return status;
}

TEST(whichever_call_fails_there_is_one_sentence_and_nothing_is_left) {
    char folder[512];
    data_path(folder, sizeof folder, "tests/golden/engine/dream-tiny");
    const char *const sources[] = {"random:22", folder, "random:22"};
    for (int source = 0; source < 3; source++) {
        const bool maps = source == 2;
        struct err err = {0};
        int64_t left;
        struct device_table table = faulty_device(0);
        ck_assert_int_eq(live_through(&table, sources[source], maps, &left, &err), 0);
        long n_calls = faulty.n_calls;
        ck_assert(n_calls > 150 && faulty.n_played > 0 && maps == (faulty.n_mapping_calls > 0));
        for (long n = 1; n <= n_calls; n++) {
            err = (struct err){0};
            table = faulty_device(n);
            ck_assert_msg(live_through(&table, sources[source], maps, &left, &err) == ERR_WORLD,
                          "call %ld of %ld", n, n_calls);
            ck_assert_msg(strstr(err.text, n == 1 ? "no faulty device: absent"
                                                  : ": as the test wants it") != NULL,
                          "call %ld: %s", n, err.text);
            ck_assert_msg(left == 0 && faulty.n_open == 0 && faulty.n_host_pieces == 0 &&
                              faulty.n_marks == 0 && faulty.n_handles == 0 && faulty.n_ranges == 0,
                          "call %ld leaves %ld bytes, %d graphs, %d pieces of host memory, %d "
                          "marks",
                          n, (long)left, faulty.n_open, faulty.n_host_pieces, faulty.n_marks);
        }
    }
}

TEST(a_shortage_of_memory_says_what_was_wanted) {
    static const char *const wanted[] = {
        "weights", "workspace and cached rows", "canvases", "rotations", "steps", "decisions",
        "moves"};
    for (size_t i = 0, n = 1; i < sizeof wanted / sizeof wanted[0]; i++) {
        char ending[128] = "";
        struct err err;
        do {
            int64_t left;
            const struct device_table table = faulty_device((long)n++);
            err = (struct err){0};
            ck_assert_int_eq(live_through(&table, "random:1", false, &left, &err), ERR_WORLD);
            snprintf(ending, sizeof ending, " of %s: as the test wants it", wanted[i]);
        } while (strstr(err.text, ending) == NULL);
        ck_assert_ptr_nonnull(
            strstr(err.text, "the faulty device ran out of memory while making room for "));
    }
}

TEST(what_is_allocated_is_what_was_asked_for) {
    struct step_limits shared = limits;
    shared.shares_pool = true;
    const struct step_limits *const both[] = {&limits, &shared};
    for (int i = 0; i < 2; i++) {
        struct rig *rig =
            rig_set_up(&(struct rig_setup){&dream, &sparse, "random:1", NULL, KERNEL_F32, both[i]});
        int64_t region = i == 0 ? WORKSPACE + limits.pool_bytes : WORKSPACE;
        int64_t allocated = rig->device.table->allocated_bytes(rig->device.device);
        ck_assert_int_eq(allocated - forward_side_bytes(rig->forward),
                         rig->weights.layout.bytes + region);
        ck_assert(forward_pool(rig->forward) ==
                  forward_workspace(rig->forward) + (i == 0 ? WORKSPACE : 0));
        ck_assert_int_eq(forward_workspace_peak(rig->forward), 0);
        ck_assert_int_eq(rig_close(rig), 0);
    }
}

TEST(stores_above_the_peak_share_the_workspace) {
    struct step_limits shared = limits;
    shared.shares_pool = true;
    shared.pool_bytes = WORKSPACE;
    struct rig *apart = open_on(NULL);
    struct rig *rig =
        rig_set_up(&(struct rig_setup){&dream, &sparse, "random:21", NULL, KERNEL_F32, &shared});
    struct rig *const both[] = {apart, rig};
    int32_t canvases[2][MAX_NAIVE];
    struct err err = {0};
    for (int r = 0; r < 2; r++) {
        struct script s = sparse_script;
        script_start(&s, 0, both[r], canvases[r]);
        for (; !script_over(&s); script_advance(&s)) {
            rig_clear(both[r]);
            script_add(&s, both[r]);
            rig_plan(both[r]);
            /* At the end of the region, which its workspace does not reach. */
            both[r]->parts[0].kv.first = r == 0 ? 64 : WORKSPACE / 4 - STORE;
            ck_assert_int_eq(forward_submit(both[r]->forward, &both[r]->step, &err), 0);
        }
        rig_read(both[r], 0, 0, canvases[r], s.canvas);
    }
    ck_assert_mem_eq(canvases[0], canvases[1], (size_t)sparse_script.canvas * sizeof(int32_t));
    struct script s = sparse_script;
    script_start(&s, 0, rig, canvases[0]);
    s.step = 2;
    rig_clear(rig);
    script_add(&s, rig);
    rig_plan(rig);
    ck_assert_int_eq(forward_submit(rig->forward, &rig->step, &err), ERR_USAGE);
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "the store of span 0 begins at byte 0, but the step's tensors reach up to %ld",
             (long)rig->placement.peak_bytes);
    ASSERT_SAYS(err.text, sentence);
    rig_close(apart);
    rig_close(rig);
}

/* Down and up, by less than the store's length, in several pieces and in one: the pool is as
 * memmove leaves it, although the device copies no range over itself. */
TEST(a_store_moves_over_itself_without_a_copy_over_itself) {
    enum { MOVED_POOL_BYTES = 12 << 20, LONG_BYTES = 10 << 20 };
    static const int64_t moves[][3] = {/* to, from, bytes */
                                       {0, 8, 4096},
                                       {8, 0, 4096},
                                       {0, 512, LONG_BYTES},
                                       {512, 0, LONG_BYTES},
                                       {2 << 20, 24, LONG_BYTES},
                                       {24, 2 << 20, LONG_BYTES},
                                       {4096, 0, 4096}};
    static unsigned char expected[MOVED_POOL_BYTES];
    const struct device_table table = late_device(1);
    struct step_limits roomy = limits;
    roomy.pool_bytes = MOVED_POOL_BYTES;
    struct rig *rig =
        rig_set_up(&(struct rig_setup){&dream, &sparse, "random:21", &table, KERNEL_F32, &roomy});
    unsigned char *pool = forward_pool(rig->forward);
    struct rng rng = rng_stream(8, "moves");
    struct err err = {0};
    for (int i = 0; i < MOVED_POOL_BYTES; i++) {
        expected[i] = pool[i] = (unsigned char)rng_next(&rng);
    }
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        const int64_t to = moves[i][0], from = moves[i][1], bytes = moves[i][2];
        ck_assert_msg(forward_move_store(rig->forward, to, from, bytes, &err) == 0, "%s", err.text);
        memmove(expected + to, expected + from, (size_t)bytes);
        ck_assert_msg(memcmp(pool, expected, sizeof expected) == 0, "move %zu", i);
    }
    /* The last in one copy, the others in two a piece; and the device does refuse what was avoided.
     */
    ck_assert_int_eq(late.n_copied, 2 + 2 + 4 * 2 * 3 + 1);
    ck_assert_int_eq(table.copy(NULL, pool, pool + 8, 16), DEVICE_REFUSED);
    /* A store of nothing has a place, too. */
    ck_assert_int_eq(forward_move_store(rig->forward, 8, 16, 0, &err), 0);
    ck_assert(memcmp(pool, expected, sizeof expected) == 0);
    rig_close(rig);
}

#ifndef __SANITIZE_ADDRESS__
TEST(a_step_allocates_nothing) {
    struct graph_options one_operator = sparse;
    one_operator.fused_head = true;
    const struct graph_options *const options[] = {&sparse, &one_operator};
    for (int i = 0; i < 2; i++) {
        struct rig *rig = rig_open(&dream, options[i], "random:21");
        struct script a = sparse_script, b = dual_script;
        int32_t tokens[MAX_NAIVE];
        struct err err = {0};
        script_start(&a, 0, rig, tokens);
        script_start(&b, 1, rig, tokens);
        ck_assert_int_gt(n_allocations, 0);
        for (int step = 0; step < 5; step++) {
            double ns;
            rig_clear(rig);
            script_add(&a, rig);
            script_add(&b, rig);
            rig_plan(rig);
            long before = n_allocations;
            int status = forward_submit(rig->forward, &rig->step, &err);
            status = status == 0 ? forward_again(rig->forward, &err) : status;
            status = status == 0 ? forward_wait(rig->forward, &ns, &err) : status;
            status = status == 0 ? rig_collect(rig, &err) : status;
            status = status == 0 ? forward_move_store(rig->forward, 0, 8, 4096, &err) : status;
            long after = n_allocations;
            ck_assert_int_eq(status, 0);
            ck_assert_int_eq(after, before);
            script_advance(&a);
            script_advance(&b);
        }
        rig_close(rig);
    }
}
#endif

SUITE("forward device")
