/* Recorded steps priced anew: files read back, malformed files, errors that are known. */
#include <jansson.h>
#include <sqlite3.h>

#include "experiments/run/accuracy.h"
#include "tests/support/cli.h"
#include "tests/support/rig.h"

/* As tables were written before exact policies: without their symbols. */
#define SYMBOLS                                                                                    \
    "one,requests,tokens,first_tokens,logit_rows,context_rows,select_rows,pack_rows,value_rows,"   \
    "full_n,full_q,full_qk,block_n,block_q,block_k,block_qk,first_n,first_qk,refresh_n,select_n"
#define HEAD "kind,steps," SYMBOLS ",measured_device_ns,measured_wall_ns\n"
/* A canvas of 494 tokens; the same while it chooses 231 of 462 rows; a block of 32 against them. */
#define REFRESH   "1,1,494,494,256,0,0,0,0,1,494,244036,0,0,0,0,1,244036,1,0"
#define SELECTING "1,1,494,494,32,0,462,231,0,1,494,244036,0,0,0,0,1,244036,0,1"
#define REUSE     "1,1,32,32,32,231,0,0,0,0,0,0,1,32,263,8416,1,1024,0,0"
#define TWO       "1,2,64,64,64,462,0,0,0,0,0,0,2,64,526,16832,2,2048,0,0"
#define TIMES     ",4000000,5000000\n"

static struct accuracy read_file(const char *path, const struct system *system) {
    struct accuracy accuracy;
    struct err err = {0};
    ck_assert_msg(accuracy_read(path, system, &accuracy, &err) == 0, "%s", err.text);
    return accuracy;
}

/* What is shown to people and to programs, to be freed. */
static char *shown(const struct accuracy *accuracy) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    accuracy_print(accuracy, out);
    json_t *object = accuracy_json(accuracy);
    ck_assert_ptr_nonnull(object);
    ck_assert_int_eq(json_dumpf(object, out, JSON_REAL_PRECISION(9)), 0);
    json_decref(object);
    fclose(out);
    return text;
}

/* A batch of random requests, as a system that selects may run it. */
static void random_shape(struct rng *rng, struct step_shape *shape) {
    shape_clear(shape);
    for (uint32_t n = rig_between(rng, 1, 40); n > 0; n--) {
        uint32_t canvas = rig_between(rng, 64, 1024);
        bool refreshes = rng_next(rng) % 2 == 0, selects = refreshes && rng_next(rng) % 2 == 0;
        uint32_t queries = refreshes ? canvas : 32;
        struct span span =
            MAKE(struct span, .phase = refreshes ? PHASE_REFRESH : PHASE_REUSE, .queries = queries,
                 .first_queries = queries, .context = refreshes ? 0 : canvas / 2, .logit_rows = 32,
                 .select_rows = selects ? canvas - 32 : 0, .pack_rows = selects ? canvas / 2 : 0);
        shape_add(shape->sym, &span, 1);
    }
}

/* A step as the cost model itself prices it, in whole nanoseconds. */
static struct compared_step priced_step(const struct system *system,
                                        const struct step_shape *shape) {
    struct step_price price;
    struct compared_step step = {.steps = 1};
    cost_price(system->cost, shape, system->chunks.bound, &price);
    memcpy(step.sym, shape->sym, sizeof step.sym);
    step.predicted_device_ns = (double)llround(price.device_ns);
    step.predicted_host_ns = floor(price.host_ns);
    step.predicted_wall_ns = (double)llround(price.wall_ns);
    return step;
}

static const char H200_LLADA[] = "kernels/profiles/h200/llada-8b.csv";

/* Of a card whose clock and issued steps are known by that profile. */
static struct system *clocked_system(const char *gpu, const char *profile) {
    const struct system_request request = {
        .system = "dllm-serve", .gpu = gpu, .profile_path = profile};
    struct system *system = NULL;
    struct err err = {0};
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    return system;
}

/* So many of them issued at once, where the host waits in each step and then waits but once. */
static struct compared_step priced_at_once(const struct system *system,
                                           const struct step_shape *shape, uint32_t n) {
    struct step_price price;
    struct compared_step step = priced_step(system, shape);
    ck_assert_uint_eq(system->runtime.host_mode, HOST_SERIAL);
    cost_price(system->cost, shape, system->chunks.bound, &price);
    step.steps = n;
    step.unrolled = true;
    step.predicted_host_ns = floor(price.host_ns / n);
    step.predicted_wall_ns = (double)llround(n * price.device_ns + price.host_ns) / n;
    return step;
}

static void same_step(const struct compared_step *a, const struct compared_step *b) {
    ck_assert_uint_eq(a->steps, b->steps);
    ck_assert_uint_eq(a->kind, b->kind);
    ck_assert(a->unrolled == b->unrolled);
    ck_assert_mem_eq(a->sym, b->sym, sizeof a->sym);
    ck_assert_double_eq(a->predicted_device_ns, b->predicted_device_ns);
    ck_assert_double_eq(a->predicted_host_ns, b->predicted_host_ns);
    ck_assert_double_eq(a->predicted_wall_ns, b->predicted_wall_ns);
    ck_assert_double_eq(a->measured_device_ns, b->measured_device_ns);
    ck_assert_double_eq(a->measured_wall_ns, b->measured_wall_ns);
    ck_assert_double_eq(a->idle_ns, b->idle_ns);
}

/* The numbers of a profile's `host` row of a kind: of a step, of a request, and what a step takes
 * more where its operators are issued one by one. */
struct host_row {
    double step_ns, request_ns, issued_ns;
};

static struct host_row host_row(const char *path, const char *kind) {
    char *text = scratch_read(path), begin[64];
    snprintf(begin, sizeof begin, "\nhost,%s,", kind);
    const char *line = strstr(text, begin);
    struct host_row row;
    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(
        sscanf(line + strlen(begin), "%lf,%lf,%lf", &row.step_ns, &row.request_ns, &row.issued_ns),
        3);
    free(text);
    return row;
}

/* Requests that attend to all, that choose their patterns and that attend by them (SparseD). */
TEST(steps_that_attend_by_patterns_are_read_back) {
    struct system *system = rig_system("sparsed", "a100-80g", false, NULL);
    struct accuracy written;
    struct err err = {0};
    struct step_shape shape;
    accuracy_init(&written, system, 1, 0);
    shape_clear(&shape);
    for (uint32_t keys = 0; keys <= 1024; keys += 512) {
        const struct span span =
            MAKE(struct span, .phase = PHASE_REFRESH, .queries = 768, .first_queries = 768,
                 .logit_rows = 32, .attended_keys = keys);
        shape_add(shape.sym, &span, 1 + keys / 512);
    }
    struct compared_step step = priced_step(system, &shape);
    step.measured_device_ns = step.measured_wall_ns = 1000000;
    accuracy_add(&written, &step);
    const char *path = scratch_path("patterns.csv");
    ck_assert_msg(accuracy_write(&written, path, &err) == 0, "%s", err.text);
    struct accuracy again = read_file(path, system);
    ck_assert_uint_eq(again.n_steps, 1);
    same_step(&again.steps[0], &written.steps[0]);
    accuracy_fini(&written);
    accuracy_fini(&again);
    system_close(system);
}

/* A mark of the run goes into the file of its steps, and is told by who reads it. */
TEST(steps_of_a_marked_run_say_so) {
    struct system *system = rig_system("dllm-serve", "a100-80g", false, NULL);
    struct rng rng = rng_stream(2, "accuracy");
    struct accuracy written;
    struct err err = {0};
    struct step_shape shape;
    struct warnings of_run = {.n = 0};
    warnings_add(&of_run, WARNING_PROCESS_STOPPED, 1, "stopped once");
    warnings_add(&of_run, WARNING_DEVICE_SHARED, 1, "another one computed");
    warnings_add(&of_run, WARNING_HOST_ASSUMED, 1, "the host is assumed");
    accuracy_init(&written, system, 1, 0);
    random_shape(&rng, &shape);
    struct compared_step step = priced_step(system, &shape);
    step.measured_device_ns = step.measured_wall_ns = 1000000;
    accuracy_add(&written, &step);
    accuracy_beware(&written, &of_run);
    const char *path = scratch_path("marked.csv");
    ck_assert_msg(accuracy_write(&written, path, &err) == 0, "%s", err.text);
    struct accuracy again = read_file(path, system);
    ck_assert_uint_eq(again.beware.n, 2);
    ck_assert_int_eq(again.beware.items[0].code, WARNING_DEVICE_SHARED);
    ck_assert_int_eq(again.beware.items[1].code, WARNING_PROCESS_STOPPED);
    accuracy_fini(&again);
    accuracy_fini(&written);
    system_close(system);
    struct output told = CLI("profile", "accuracy", "--gpu", "a100-80g", "--steps", path);
    ASSERT_SAYS(told.out, "2 cautions: device shared, process stopped; --verbose explains");
    output_free(&told);
    char *text = PRINTS("profile", "accuracy", "--gpu", "a100-80g", "--steps", path, "--json");
    ASSERT_SAYS(text, "\"code\": \"device-shared\"");
    free(text);
    char *csv = scratch_read(path);
    char *mark = strstr(csv, ",device-shared process-stopped");
    ck_assert_ptr_nonnull(mark);
    memcpy(mark, ",device-stared", 14);
    REFUSES(1, "expected -, device-shared, device-slowed or process-stopped", "profile", "accuracy",
            "--gpu", "a100-80g", "--steps", scratch_write("stared.csv", csv));
    free(csv);
}

TEST(a_written_file_read_back_gives_the_same_tables) {
    enum { N = 500 };
    struct system *system = rig_system("dllm-serve", "a100-80g", false, NULL);
    struct rng rng = rng_stream(1, "accuracy");
    struct accuracy written;
    struct err err = {0};
    accuracy_init(&written, system, N, 0);
    for (int i = 0; i < N; i++) {
        struct step_shape shape;
        random_shape(&rng, &shape);
        const uint32_t steps = rig_between(&rng, 1, 32);
        struct compared_step step =
            i % 4 == 0 ? priced_at_once(system, &shape, steps) : priced_step(system, &shape);
        step.steps = steps;
        step.kind = rig_between(&rng, 0, STEP_CLASS_COUNT - 1);
        step.measured_device_ns = rig_between(&rng, 1000000, 100000000);
        step.measured_wall_ns = step.measured_device_ns + 12345;
        step.idle_ns = i % 3 == 0 ? 0 : rig_between(&rng, 1, 900000000);
        accuracy_add(&written, &step);
    }
    const char *path = scratch_path("steps.csv");
    ck_assert_msg(accuracy_write(&written, path, &err) == 0, "%s", err.text);
    struct accuracy again = read_file(path, system);
    ck_assert_uint_eq(again.n_steps, N);
    for (int i = 0; i < N; i++) {
        same_step(&again.steps[i], &written.steps[i]);
    }
    char *before = shown(&written), *after = shown(&again);
    ck_assert_msg(strcmp(before, after) == 0, "%.1500s\nbefore:\n%.1500s", after, before);
    ck_assert_ptr_null(strstr(after, "makespan"));
    free(before);
    free(after);
    accuracy_fini(&written);
    accuracy_fini(&again);
    system_close(system);
}

TEST(columns_are_found_by_name_and_predictions_of_the_file_are_not_read) {
    struct system *system = rig_system("dllm-serve", "a100-80g", false, NULL);
    const char *plain = scratch_write("plain.csv", HEAD "reuse,19," REUSE TIMES);
    const char *moved = scratch_write(
        "moved.csv", "measured_wall_ns,predicted_wall_ns,measured_device_ns," SYMBOLS
                     ",a note,steps,kind\r\n5000000,7,4000000," REUSE ",,19,reuse\r\n");
    struct accuracy a = read_file(plain, system), b = read_file(moved, system);
    ck_assert_uint_eq(b.steps[0].steps, 19);
    ck_assert_uint_eq(b.steps[0].kind, STEP_REUSE);
    ck_assert(b.steps[0].predicted_wall_ns > 1e6);
    same_step(&a.steps[0], &b.steps[0]);
    accuracy_fini(&a);
    accuracy_fini(&b);
    system_close(system);
}

static double number_at(const json_t *object, const char *table, size_t row, const char *column) {
    const json_t *value =
        json_object_get(json_array_get(json_object_get(object, table), row), column);
    ck_assert_msg(json_is_number(value), "%s, row %zu: no number %s", table, row, column);
    return json_number_value(value);
}

/* Ten steps: six as predicted, two a twentieth too slow, two twice as slow. The device's time of
 * the last two was not measured. */
TEST(a_known_error_is_reported_exactly) {
    struct system *system = rig_system("dllm-serve", "a100-80g", false, NULL);
    struct step_shape shape;
    struct rng rng = rng_stream(2, "accuracy");
    random_shape(&rng, &shape);
    struct compared_step step = priced_step(system, &shape);
    static const struct {
        uint32_t steps;
        double factor;
        bool knows_device;
    } parts[] = {{6, 1, true}, {2, 1.05, true}, {2, 2, false}};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fputs("kind,steps", out);
    for (int s = 0; s < SYM_COUNT; s++) {
        fprintf(out, ",%s", symbol_names[s]);
    }
    fputs(",measured_device_ns,measured_wall_ns\n", out);
    for (int i = 0; i < 3; i++) {
        fprintf(out, "mixed,%u", parts[i].steps);
        for (int s = 0; s < SYM_COUNT; s++) {
            fprintf(out, ",%lld", (long long)step.sym[s]);
        }
        fprintf(out, ",%.17g,%.17g\n",
                parts[i].knows_device ? step.predicted_device_ns / parts[i].factor : 0,
                step.predicted_wall_ns / parts[i].factor);
    }
    fclose(out);
    struct accuracy accuracy = read_file(scratch_write("known.csv", text), system);
    free(text);
    json_t *object = accuracy_json(&accuracy);
    double measured = 6 + 2 / 1.05 + 1;
    ck_assert_double_eq_tol(number_at(object, "totals", 0, "error"), 10 / measured - 1, 1e-9);
    ck_assert_double_eq_tol(number_at(object, "totals", 0, "predicted"),
                            10e-9 * step.predicted_wall_ns, 1e-9);
    ck_assert_uint_eq(json_array_size(json_object_get(object, "wall")), 2);
    /* Of ten steps six are right, two 5 % and two 100 % off; the device knows the first eight. */
    ck_assert_double_eq_tol(number_at(object, "wall", 1, "median"), 0, 1e-9);
    ck_assert_double_eq_tol(number_at(object, "wall", 1, "mean"), 0.21, 1e-9);
    ck_assert_double_eq_tol(number_at(object, "wall", 1, "p95_size"), 1, 1e-9);
    ck_assert_double_eq_tol(number_at(object, "device", 1, "mean"), 0.0125, 1e-9);
    ck_assert_double_eq_tol(number_at(object, "device", 1, "p95_size"), 0.05, 1e-9);
    ck_assert_double_eq(number_at(object, "device", 1, "steps"), 8);
    ck_assert_double_eq(number_at(object, "within", 0, "bound"), 0.02);
    ck_assert_double_eq_tol(number_at(object, "within", 0, "wall"), 0.6, 1e-12);
    ck_assert_double_eq_tol(number_at(object, "within", 0, "device"), 0.75, 1e-12);
    ck_assert_double_eq(number_at(object, "within", 1, "bound"), 0.06);
    ck_assert_double_eq_tol(number_at(object, "within", 1, "wall"), 0.8, 1e-12);
    ck_assert_double_eq_tol(number_at(object, "within", 1, "device"), 1, 1e-12);
    json_decref(object);
    text = shown(&accuracy);
    ck_assert_msg(strstr(text, "\nwithin 2 %: 60.0 % of the steps (device time: 75.0 %); "
                               "within 6 %: 80.0 % of the steps (device time: 100.0 %)\n") != NULL,
                  "%s", text);
    free(text);
    accuracy_fini(&accuracy);
    system_close(system);
}

/* Rows of the totals. */
enum { STEPS, DEVICE, MAKESPAN, MEAN_LATENCY, P99_LATENCY, FIRST_BLOCK };

#define TINY                                                                                       \
    "--model", "llada-tiny", "--set", "block_tokens=4", "--set", "steps_per_block=2", "--set",     \
        "max_batched_tokens=512", "--set", "storage.weights=f32"
#define SMALL                                                                                      \
    TINY, "--gpu", "cpu", "--set", "reserve_bytes=16MiB", "--set", "memory_utilization=0.04",      \
        "--roofline"
/* Of a card whose clock and issued steps are known. */
#define CLOCKED                                                                                    \
    TINY, "--gpu", "h200", "--set", "reserve_bytes=1GiB", "--set", "memory_utilization=0.02",      \
        "--profile", "kernels/profiles/h200/llada-8b.csv"
#define FEW                                                                                        \
    "--requests", "5", "--rate", "100", "--input-tokens", "12", "--output-tokens", "10",           \
        "--levels", "steps"

static void judged_alike(char *replayed, char *judged) {
    json_t *a = json_loads(replayed, 0, NULL), *b = json_loads(judged, 0, NULL);
    ck_assert(a != NULL && b != NULL);
    const json_t *before = json_object_get(a, "accuracy");
    static const char *const columns[] = {"submissions", "steps", "median",      "p5",
                                          "p95",         "mean",  "median_size", "p95_size"};
    static const char *const tables[] = {"wall", "device"};
    for (size_t t = 0; t < 2; t++) {
        size_t n = json_array_size(json_object_get(b, tables[t]));
        ck_assert_uint_ge(n, 2);
        ck_assert_uint_eq(n, json_array_size(json_object_get(before, tables[t])));
        for (size_t i = 0; i < n * 8; i++) {
            double was = number_at(before, tables[t], i / 8, columns[i % 8]);
            double is = number_at(b, tables[t], i / 8, columns[i % 8]);
            ck_assert_msg(fabs(is - was) < 1e-6, "%s %zu %s: %.9g, not %.9g", tables[t], i / 8,
                          columns[i % 8], is, was);
        }
        ck_assert_double_eq_tol(number_at(b, "totals", t, "error"),
                                number_at(before, "totals", t, "error"), 1e-6);
    }
    ck_assert(json_equal(json_object_get(before, "within"), json_object_get(b, "within")));
    json_decref(a);
    json_decref(b);
    free(replayed);
    free(judged);
}

TEST(a_replay_and_its_file_are_judged_alike) {
    const char *db = scratch_path("tiny.db"), *steps = scratch_path("tiny.csv");
    free(PRINTS("run", SMALL, FEW, "--db", db));
    char *replayed =
        PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--steps", steps, "--json");
    judged_alike(replayed, PRINTS("profile", "accuracy", "--steps", steps, SMALL, "--json"));
}

/* The last column but one of the file, of each row. */
static size_t idle_of(const char *path, double *idle_ns, size_t most) {
    char *text = scratch_read(path);
    size_t n = 0;
    ck_assert_int_eq(strncmp(strchr(text, '\n') - strlen(",idle_ns,beware"), ",idle_ns,beware", 15),
                     0);
    for (const char *line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *last = memrchr(line, ',', strcspn(line, "\n"));
        ck_assert(last != NULL && n < most);
        last = memrchr(line, ',', (size_t)(last - line));
        idle_ns[n++] = atof(last + 1);
    }
    free(text);
    return n;
}

/* Of the file, all rows added up. */
static double column_sum(const char *path, const char *column) {
    char *text = scratch_read(path);
    int at = 0;
    double sum = 0;
    for (const char *c = text; strncmp(c, column, strlen(column)) != 0; c++) {
        ck_assert(*c != '\n');
        at += *c == ',';
    }
    for (const char *line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *cell = line;
        for (int k = 0; k < at; k++) {
            cell = strchr(cell, ',') + 1;
        }
        sum += atof(cell);
    }
    free(text);
    return sum;
}

/* From the first step's start to the last one's end, while none ran. */
static double recorded_idle_ns(const char *path) {
    sqlite3 *db = NULL;
    sqlite3_stmt *row = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(
        sqlite3_prepare_v2(db,
                           "SELECT max(end_ns) - min(start_ns) - sum(end_ns - start_ns) FROM steps",
                           -1, &row, NULL),
        SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(row), SQLITE_ROW);
    const double ns = sqlite3_column_double(row, 0);
    sqlite3_finalize(row);
    sqlite3_close(db);
    return ns;
}

/* A request at a time, which arrives when the one before it is long over. The replay waits for
 * none: its card has idled for the moments between its own steps, by which they are priced. */
TEST(a_replay_is_priced_by_how_long_its_own_card_idled) {
    enum { MOST = 256 };
    double idle_ns[MOST], sum_ns = 0;
    const char *db = scratch_path("clocked.db"), *steps = scratch_path("clocked.csv");
    free(PRINTS("run", CLOCKED, "--requests", "5", "--rate", "2", "--output-tokens", "10",
                "--levels", "steps", "--db", db));
    char *replayed =
        PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--steps", steps, "--json");
    const size_t n = idle_of(steps, idle_ns, MOST);
    for (size_t i = 1; i < n; i++) {
        ck_assert_double_gt(idle_ns[i], 0);
        sum_ns += idle_ns[i];
    }
    ck_assert(n > 10);
    ck_assert_double_lt(sum_ns, 0.5 * recorded_idle_ns(db));
    judged_alike(replayed, PRINTS("profile", "accuracy", "--steps", steps, CLOCKED, "--json"));
}

/* Steps of two replicas are carried out in turn: each card idles while the other computes. */
TEST(cards_of_a_replayed_fleet_idle_while_the_others_compute) {
    const char *db = scratch_path("fleet.db"), *steps = scratch_path("fleet.csv");
    free(PRINTS("run", CLOCKED, "--requests", "6", "--rate", "4000", "--output-tokens", "32",
                "--levels", "steps", "--set", "replicas=2", "--set", "router=round-robin", "--db",
                db));
    free(PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--steps", steps));
    ck_assert_double_gt(column_sum(steps, "idle_ns"), 0.25 * column_sum(steps, "measured_wall_ns"));
}

/* Of a run on a device the replay knows when its requests were served, and when they would have
 * been in the same batches, had the steps taken what is predicted. */
TEST(a_replay_tells_the_requests_times_in_the_recorded_batches) {
    const char *db = scratch_path("served.db");
    free(PRINTS("run", SMALL, FEW, "--backend", "cpu", "--db", db));
    char *replayed = PRINTS("replay", "--db", db, "--run", "1", "--json");
    json_t *object = json_loads(replayed, 0, NULL);
    const json_t *accuracy = json_object_get(object, "accuracy");
    const json_t *latency = json_object_get(object, "latency_s");
    const struct {
        int row;
        double summary_s;
    } known[] = {
        {MAKESPAN, json_number_value(json_object_get(object, "makespan_s"))},
        {MEAN_LATENCY, json_number_value(json_object_get(latency, "mean"))},
        {P99_LATENCY, json_number_value(json_object_get(latency, "p99"))},
        {FIRST_BLOCK,
         json_number_value(json_object_get(json_object_get(object, "ttfb_s"), "mean"))},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double measured_s = number_at(accuracy, "totals", known[i].row, "measured");
        ck_assert_double_gt(measured_s, 0);
        ck_assert_double_eq_tol(measured_s, known[i].summary_s, 1e-6 * measured_s);
        ck_assert_double_gt(number_at(accuracy, "totals", known[i].row, "predicted"), 0);
    }
    ck_assert_double_gt(number_at(accuracy, "totals", MAKESPAN, "predicted"),
                        number_at(accuracy, "totals", STEPS, "predicted"));
    json_decref(object);
    free(replayed);
}

/* The number that a row has in the column of this name. */
static double in_column(const char *text, const char *line, const char *name) {
    const size_t length = strlen(name);
    for (const char *head = text; *head != '\n'; head = strchr(head, ',') + 1) {
        if (strncmp(head, name, length) == 0 && (head[length] == ',' || head[length] == '\n')) {
            return atof(line);
        }
        line = strchr(line, ',') + 1;
    }
    ck_abort_msg("no column %s", name);
    return 0;
}

/* What a device's eviction leaves is known when the step is over, and it is priced by that. */
TEST(steps_that_evicted_are_compared_as_they_came_to_be) {
    const char *db = scratch_path("evicted.db"), *steps = scratch_path("evicted.csv");
    free(PRINTS("run", "--backend", "cpu", "--system", "focus", "--model", "sdar-tiny", "--gpu",
                "cpu", "--set", "reserve_bytes=16MiB", "--set", "memory_utilization=0.04",
                "--roofline", "--set", "cache.alpha=0.01", "--set", "decoder.threshold=0.006",
                "--requests", "5", "--rate", "100", "--input-tokens", "12", "--output-tokens", "24",
                "--db", db, "--levels", "steps"));
    free(PRINTS("replay", "--db", db, "--run", "1", "--steps", steps));
    char *text = scratch_read(steps);
    int n_evicted = 0;
    for (const char *line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
        const double kept = in_column(text, line, "kept_q"), all = in_column(text, line, "block_q");
        ck_assert(kept <= all && in_column(text, line, "kept_k") >= kept);
        n_evicted += kept > 0 && kept < all;
    }
    ck_assert_int_gt(n_evicted, 5);
    free(text);
}

/* Up to four steps at once, of a card whose clock and issued steps are known. */
#define UNROLLED                                                                                   \
    "--system", "dinfer", "--model", "llada-moe-tiny", "--gpu", "h200", "--profile",               \
        "kernels/profiles/h200/llada-moe.csv", "--set", "storage.weights=f32", "--set",            \
        "reserve_bytes=1GiB", "--set", "memory_utilization=0.02"
#define SOME                                                                                       \
    "--requests", "5", "--rate", "400", "--input-tokens", "8", "--output-tokens", "40",            \
        "--levels", "steps"

/* A mixture's prices stand for a trained router unless its record says otherwise; a replay that
 * runs random weights beside them says so. */
TEST(a_replay_says_that_its_weights_choose_other_experts_than_were_priced) {
    const char *db = scratch_path("router.db");
    for (int is_random = 0; is_random < 2; is_random++) {
        (void)remove(db);
        free(PRINTS("run", "--system", "sdar", "--model", "llada2-tiny", "--gpu", "cpu", "--set",
                    "storage.weights=f32", "--set",
                    is_random ? "expert_router=random" : "expert_router=trained", "--requests", "1",
                    "--input-tokens", "8", "--output-tokens", "8", "--levels", "steps", "--db",
                    db));
        char *text = PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--json");
        const bool says = strstr(text, "as a trained router chooses them, and the device has "
                                       "random weights") != NULL;
        ck_assert_int_eq(says, !is_random);
        free(text);
    }
}

/* What a replay carries out it issues one by one, also what a run had issued at once. */
TEST(unrolled_steps_that_are_carried_out_are_priced_one_by_one_and_judged_alike) {
    const char *db = scratch_path("carried.db"), *steps = scratch_path("carried.csv");
    free(PRINTS("run", UNROLLED, SOME, "--db", db));
    char *replayed =
        PRINTS("replay", "--db", db, "--run", "1", "--backend", "cpu", "--steps", steps, "--json");
    char *text = scratch_read(steps);
    const char *line = strchr(text, '\n') + 1;
    double device_ns[3];
    for (int i = 0; i < 3; i++, line = strchr(line, '\n') + 1) {
        ck_assert_double_eq(in_column(text, line, "steps"), 1);
        ck_assert_double_eq(in_column(text, line, "unrolled"), 0);
        device_ns[i] = in_column(text, line, "predicted_device_ns");
    }
    /* The first two of a shape are issued. */
    ck_assert_double_eq_tol(device_ns[0], device_ns[1], 2);
    ck_assert_double_eq_tol(
        device_ns[0],
        device_ns[2] + host_row("kernels/profiles/h200/llada-moe.csv", "refresh").issued_ns, 2);
    free(text);
    judged_alike(replayed, PRINTS("profile", "accuracy", "--steps", steps, UNROLLED, "--json"));
}

/* What a run has measured was issued as it ran: a row for all of a visit. */
TEST(unrolled_steps_of_a_live_run_are_priced_at_once_and_judged_alike) {
    const char *db = scratch_path("visits.db"), *steps = scratch_path("visits.csv");
    free(PRINTS("run", "--backend", "cpu", "--clock", "virtual", UNROLLED, SOME, "--db", db));
    char *replayed = PRINTS("replay", "--db", db, "--run", "1", "--steps", steps, "--json");
    char *text = scratch_read(steps);
    int n_unrolled = 0;
    for (const char *line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
        const double n = in_column(text, line, "steps");
        ck_assert_double_eq(in_column(text, line, "unrolled"), n > 1);
        ck_assert_double_le(n, 4);
        n_unrolled += n > 1;
    }
    ck_assert_int_gt(n_unrolled, 5);
    free(text);
    judged_alike(replayed, PRINTS("profile", "accuracy", "--steps", steps, UNROLLED, "--json"));
}

/* Of three visits of four steps the first two are issued, of single steps the first two steps. */
TEST(steps_at_once_are_issued_whole_twice) {
    struct system *system = clocked_system("h200", H200_LLADA);
    const char *text = "unrolled," HEAD "%d,reuse,4," REUSE TIMES "%d,reuse,4," REUSE TIMES
                       "%d,reuse,4," REUSE TIMES;
    const struct host_row host = host_row(H200_LLADA, "reuse");
    for (int unrolled = 0; unrolled < 2; unrolled++) {
        char rows[2048];
        snprintf(rows, sizeof rows, text, unrolled, unrolled, unrolled);
        struct accuracy accuracy = read_file(scratch_write("visits.csv", rows), system);
        ck_assert_uint_eq(accuracy.n_steps, 3);
        const struct compared_step *steps = accuracy.steps;
        const double more[] = {unrolled ? host.issued_ns : host.issued_ns / 2,
                               unrolled ? host.issued_ns : 0};
        for (int i = 0; i < 2; i++) {
            ck_assert(steps[i].unrolled == (unrolled == 1));
            ck_assert_double_eq_tol(steps[i].predicted_device_ns - steps[2].predicted_device_ns,
                                    more[i], 2);
        }
        const double host_ns = steps[2].predicted_wall_ns - steps[2].predicted_device_ns;
        ck_assert_double_eq_tol(host_ns, (host.step_ns + host.request_ns) / (unrolled ? 4 : 1), 2);
        accuracy_fini(&accuracy);
    }
    system_close(system);
}

/* One row of a refresh a time, one of so many steps among them; the last after so much idling. */
static struct accuracy read_refreshes(const struct system *system, const char *idle_ns,
                                      int n_steps) {
    enum { N = 40 };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fputs(idle_ns != NULL ? "idle_ns," HEAD : HEAD, out);
    for (int i = 0; i < N; i++) {
        fprintf(out, "%s%srefresh,%d," REFRESH TIMES,
                idle_ns == NULL ? ""
                : i == N - 1    ? idle_ns
                                : "0",
                idle_ns == NULL ? "" : ",", i == N / 2 ? n_steps : 1);
    }
    fclose(out);
    struct accuracy accuracy = read_file(scratch_write("refreshes.csv", text), system);
    free(text);
    ck_assert_uint_eq(accuracy.n_steps, N);
    return accuracy;
}

TEST(a_step_behind_idling_is_quicker_than_one_behind_others) {
    struct system *system = clocked_system("h200", H200_LLADA);
    static const char *const idle_ns[] = {NULL, "0", "20000000", "5000000000", "1e18"};
    double first[5], before[5], last[5];
    for (size_t i = 0; i < 5; i++) {
        struct accuracy accuracy = read_refreshes(system, idle_ns[i], 7);
        const struct compared_step *steps = accuracy.steps;
        first[i] = steps[2].predicted_device_ns;
        before[i] = steps[38].predicted_device_ns;
        last[i] = steps[39].predicted_device_ns;
        /* The mean of seven, not their sum. */
        ck_assert_double_lt(fabs(steps[20].predicted_wall_ns / steps[21].predicted_wall_ns - 1),
                            0.1);
        ck_assert_double_eq(steps[39].idle_ns, idle_ns[i] != NULL ? atof(idle_ns[i]) : 0);
        accuracy_fini(&accuracy);
    }
    ck_assert_double_gt(before[0], 1.02 * first[0]);
    for (size_t i = 1; i < 5; i++) {
        ck_assert_double_eq(first[i], first[0]);
        ck_assert_double_eq(before[i], before[0]);
    }
    ck_assert_double_ge(last[0], before[0]);
    ck_assert_double_eq(last[1], last[0]);
    ck_assert_double_lt(last[2], last[1]);
    ck_assert_double_lt(last[3], last[2]);
    ck_assert_double_le(last[3], first[0]);
    ck_assert_double_eq(last[4], last[3]);
    /* One step leaves the clock higher than seven. */
    struct accuracy one = read_refreshes(system, NULL, 1), seven = read_refreshes(system, NULL, 7);
    ck_assert_double_lt(one.steps[21].predicted_device_ns, seven.steps[21].predicted_device_ns);
    accuracy_fini(&one);
    accuracy_fini(&seven);
    system_close(system);
}

TEST(other_prices_give_other_errors) {
    const char *path =
        scratch_write("steps.csv", HEAD "reuse,19," REUSE TIMES "refresh,1," REFRESH TIMES
                                        "selecting,1," SELECTING TIMES);
    char *measured = PRINTS("profile", "accuracy", "--steps", path, "--gpu", "h200");
    char *roofline = PRINTS("profile", "accuracy", "--steps", path, "--gpu", "h200", "--roofline");
    ck_assert_ptr_nonnull(
        strstr(measured, "dllm-serve, llada-8b on h200: 3 submissions, 21 steps "));
    ck_assert_ptr_nonnull(strstr(roofline, "\nprices from  roofline: "));
    const char *a = strstr(measured, "\ndevice "), *b = strstr(roofline, "\ndevice ");
    ck_assert(a != NULL && b != NULL);
    ck_assert_int_ne(strncmp(a, b, strcspn(a + 1, "\n")), 0);
    free(measured);
    free(roofline);
}

/* The command ends with status 1 and "PATH" followed by `rest`. */
static void refuses_text(const char *text, const char *rest) {
    const char *path = scratch_write("bad.csv", text);
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s%s", path, rest);
    REFUSES(1, sentence, "profile", "accuracy", "--gpu", "h200", "--roofline", "--steps", path);
}

TEST(malformed_files_are_refused_with_their_line) {
    static const struct {
        const char *text, *rest;
    } cases[] = {
        {"", ":1: found an empty file, expected a header"},
        {"1,2,3\n", ":1: no column 'kind'"},
        {"kind,steps," SYMBOLS ",measured_device_ns\n", ":1: no column 'measured_wall_ns'"},
        {"steps," HEAD, ":1: more than one column 'steps'"},
        {HEAD "reuse,1," REUSE TIMES "reuse,1," REUSE ",4000000,50",
         ":3: found an unfinished last line, expected a newline"},
        {HEAD "reuse,1," REUSE TIMES "reuse,1\n",
         ":3: found 2 fields, expected 24 as in the header"},
        {HEAD "\n", ":2: found 1 field, expected 24 as in the header"},
        {HEAD "reuse,1," REUSE ",1,2,3\n", ":2: found 25 fields, expected 24 as in the header"},
        {HEAD "decode,1," REUSE TIMES,
         ":2: found 'decode' in kind, expected refresh, reuse, selecting or mixed"},
        {HEAD "reuse,0," REUSE TIMES,
         ":2: found '0' in steps, expected a whole number from 1 to 2^32 - 1"},
        {HEAD "reuse,1,2,1,32,32,32,231,0,0,0,0,0,0,1,32,263,8416,1,1024,0,0" TIMES,
         ":2: found '2' in one, expected 1"},
        {HEAD "reuse,1,1,1,-32,32,32,231,0,0,0,0,0,0,1,32,263,8416,1,1024,0,0" TIMES,
         ":2: found '-32' in tokens, expected a whole number below 2^32"},
        {HEAD "reuse,1,1,1,32,32,4294967296,231,0,0,0,0,0,0,1,32,263,8416,1,1024,0,0" TIMES,
         ":2: found '4294967296' in logit_rows, expected a whole number below 2^32"},
        {HEAD "reuse,1,1,1,32,32,32,231,0,0,0,0,0,0,1,32,263,9007199254740993,1,1024,0,0" TIMES,
         ":2: found '9007199254740993' in block_qk, expected a whole number up to 2^53"},
        {HEAD "reuse,1," REUSE ",nan,5000000\n",
         ":2: found 'nan' in measured_device_ns, expected a time from 0 to 1e18 ns"},
        {HEAD "reuse,1," REUSE ",4000000,0\n",
         ":2: found '0' in measured_wall_ns, expected a time above 0 and up to 1e18 ns"},
        {"idle_ns," HEAD "-1,reuse,1," REUSE TIMES,
         ":2: found '-1' in idle_ns, expected a time from 0 to 1e18 ns"},
        {"unrolled," HEAD "2,reuse,1," REUSE TIMES, ":2: found '2' in unrolled, expected 0 or 1"},
        {HEAD "reuse,1,1,1,33,32,32,231,0,0,0,0,0,0,1,32,263,8416,1,1024,0,0" TIMES,
         ":2: full_q + block_q is 32, expected tokens, which is 33"},
        {HEAD "reuse,1,1,1,32,32,32,231,0,0,0,0,0,0,1,32,263,262,1,1024,0,0" TIMES,
         ":2: block_k is 263, expected at most block_qk, which is 262"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refuses_text(cases[i].text, cases[i].rest);
    }
    const char *path = scratch_write("none.csv", HEAD);
    char sentence[256];
    snprintf(sentence, sizeof sentence, "'%s' holds no steps", path);
    REFUSES(1, sentence, "profile", "accuracy", "--roofline", "--steps", path);
    REFUSES(1, "cannot open no/such.csv: No such file or directory", "profile", "accuracy",
            "--roofline", "--steps", "no/such.csv");
    REFUSES(1, "cannot read /: Is a directory", "profile", "accuracy", "--roofline", "--steps",
            "/");
    REFUSES(2, "profile accuracy needs --steps FILE", "profile", "accuracy", "--gpu", "h200");
}

TEST(steps_of_another_system_are_refused) {
    char sentence[512];
    const char *path = scratch_write("other.csv", HEAD "selecting,1," SELECTING TIMES);
    snprintf(sentence, sizeof sentence,
             "%s:2: select_rows is 462, for which fast-dllm has no operator: the steps are another "
             "system's",
             path);
    REFUSES(1, sentence, "profile", "accuracy", "--roofline", "--system", "fast-dllm", "--steps",
            path);
    path = scratch_write("other.csv", HEAD "reuse,1,1,1,32,494,32,231,0,0,0,0,0,0,1,32,263,8416,1,"
                                           "244036,0,0" TIMES);
    snprintf(sentence, sizeof sentence,
             "%s:2: first_tokens is 494, for which dllm-serve has no operator: the steps are "
             "another system's",
             path);
    REFUSES(1, sentence, "profile", "accuracy", "--roofline", "--steps", path);
}

TEST(batches_that_are_padded_cannot_be_priced_from_their_sums) {
    const char *path =
        scratch_write("padded.csv", HEAD "reuse,1," REUSE TIMES "reuse,1," TWO TIMES);
    char sentence[512];
    snprintf(sentence, sizeof sentence,
             "%s:3: fast-dllm-published pads batches to their longest request, but of these 2 "
             "requests only the sums are known",
             path);
    REFUSES(1, sentence, "profile", "accuracy", "--roofline", "--system", "fast-dllm-published",
            "--steps", path);
    path = scratch_write("padded.csv", HEAD "reuse,1," REUSE TIMES);
    free(PRINTS("profile", "accuracy", "--roofline", "--system", "fast-dllm-published", "--steps",
                path));
}

/* The column "predicted" or "measured" of the operators of one kind of step, summed. */
static double sum_of(const struct accuracy *accuracy, uint32_t kind, bool predicted) {
    double sum = 0;
    for (uint32_t i = 0; i < accuracy->system->graph.n_ops; i++) {
        const struct compared_operator *op = &accuracy->ops[kind][i];
        sum += predicted ? op->predicted_ns : op->measured_ns;
    }
    return sum;
}

/* Every execution took some microseconds of its own and three of its events. */
TEST(what_events_take_is_no_operators_time) {
    struct system *system = clocked_system("h100", "kernels/profiles/h100/llada-8b.csv");
    struct rng rng = rng_stream(2, "operators");
    struct step_shape shape;
    struct accuracy accuracy;
    struct op_price prices[GRAPH_MAX_OPS];
    double ns[GRAPH_MAX_OPS], whole_ns = 0;
    accuracy_init(&accuracy, system, 1, 1);
    random_shape(&rng, &shape);
    cost_explain(system->cost, &shape, system->chunks.bound, prices);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        ns[i] = prices[i].executions * (5e3 + 100 * i + 3e3);
        whole_ns += prices[i].executions * (5e3 + 100 * i);
    }
    const struct submission submission = {.step.shape = &shape};
    struct compared_step step = priced_step(system, &shape);
    step.kind = STEP_MIXED;
    step.measured_device_ns = whole_ns;
    accuracy_add_operators(&accuracy, &submission, ns, &step);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        ck_assert_double_eq_tol(accuracy.ops[STEP_MIXED][i].measured_ns,
                                prices[i].executions * (5e3 + 100 * i), 1);
    }
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        ns[i] = 0;
    }
    accuracy_add_operators(&accuracy, &submission, ns, &step); /* nothing was timed */
    ck_assert_uint_eq(accuracy.n_by_operator[STEP_MIXED], 1);
    accuracy_fini(&accuracy);
    system_close(system);
}

/* A card whose clock has fallen: its operators add up to the step that was predicted at that
 * clock, those that it bounds more of it, and to what the step took. */
TEST(operators_are_compared_by_kind_of_step_at_the_steps_clock) {
    struct system *system = clocked_system("h100", "kernels/profiles/h100/llada-8b.csv");
    struct rng rng = rng_stream(2, "operators");
    struct step_shape shape;
    struct accuracy accuracy;
    double ns[GRAPH_MAX_OPS];
    accuracy_init(&accuracy, system, 2, 1);
    random_shape(&rng, &shape);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        ns[i] = 1000 + i;
    }
    const struct submission submission = {.step.shape = &shape};
    struct compared_step step = priced_step(system, &shape);
    const double highest_ns = step.predicted_device_ns;
    for (int fallen = 0; fallen < 2; fallen++) {
        const uint32_t kind = fallen ? STEP_MIXED : STEP_REUSE;
        step.kind = kind;
        step.predicted_device_ns = (fallen ? 1.2 : 1) * highest_ns;
        step.measured_device_ns = 5e6;
        accuracy_add_operators(&accuracy, &submission, ns, &step);
        ck_assert_double_eq_tol(sum_of(&accuracy, kind, true) / step.predicted_device_ns, 1, 1e-4);
        ck_assert_double_eq_tol(sum_of(&accuracy, kind, false), 5e6, 1e-3);
        ck_assert_uint_eq(accuracy.n_by_operator[kind], 1);
    }
    double most = 0, least = 10;
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        const double at_highest = accuracy.ops[STEP_REUSE][i].predicted_ns;
        const double slower = accuracy.ops[STEP_MIXED][i].predicted_ns / at_highest;
        most = at_highest > 0 ? fmax(most, slower) : most;
        least = at_highest > 0 ? fmin(least, slower) : least;
    }
    ck_assert(least >= 1 && least < 1.15 && most > 1.2);
    ck_assert_double_eq(sum_of(&accuracy, STEP_REFRESH, false), 0);
    char *text = shown(&accuracy);
    ck_assert_ptr_nonnull(strstr(text, "operators, mean of 1 steps: reuse; measured"));
    ck_assert_ptr_nonnull(strstr(text, "operators, mean of 1 steps: mixed; measured"));
    ck_assert_ptr_nonnull(strstr(text, "operators, mean of 2 steps of all kinds; measured"));
    ck_assert_ptr_null(strstr(text, "steps: refresh"));
    ck_assert_ptr_nonnull(strstr(text, "\"operators_by_kind\": {\"reuse\": {\"steps\": 1"));
    free(text);
    accuracy_fini(&accuracy);
    system_close(system);
}

SUITE("accuracy")
