/* Timelines of runs: a track for each replica, one for each request, counters. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cli.h"

enum { REPLICAS = 1, REQUESTS = 2, MOST_SLICES = 40000, MOST_DEPTH = 8 };

struct slice {
    int64_t process, track, start_ns, end_ns;
    const char *name;
    const json_t *args;
};

static struct slice slices[MOST_SLICES];
static size_t n_slices;

static int64_t ns_of(const json_t *entry, const char *key) {
    return llround(json_number_value(json_object_get(entry, key)) * 1000);
}

/* By track, and in it those that enclose others first. */
static int by_place(const void *a, const void *b) {
    const struct slice *p = a, *q = b;
    return p->process != q->process     ? (p->process > q->process) - (p->process < q->process)
           : p->track != q->track       ? (p->track > q->track) - (p->track < q->track)
           : p->start_ns != q->start_ns ? (p->start_ns > q->start_ns) - (p->start_ns < q->start_ns)
                                        : (p->end_ns < q->end_ns) - (p->end_ns > q->end_ns);
}

static json_t *load(const char *path) {
    json_error_t error;
    size_t i;
    json_t *entry, *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
    n_slices = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, entry) {
        if (strcmp(json_string_value(json_object_get(entry, "ph")), "X") == 0) {
            ck_assert_uint_lt(n_slices, MOST_SLICES);
            slices[n_slices++] = (struct slice){
                .process = json_integer_value(json_object_get(entry, "pid")),
                .track = json_integer_value(json_object_get(entry, "tid")),
                .start_ns = ns_of(entry, "ts"),
                .end_ns = ns_of(entry, "ts") + ns_of(entry, "dur"),
                .name = json_string_value(json_object_get(entry, "name")),
                .args = json_object_get(entry, "args"),
            };
        }
    }
    qsort(slices, n_slices, sizeof slices[0], by_place);
    return root;
}

/* Slices of a track lie within one another or apart, which is what viewers can show. */
static void check_nesting(void) {
    int64_t ends[MOST_DEPTH];
    size_t depth = 0;
    for (size_t i = 0; i < n_slices; i++) {
        const struct slice *s = &slices[i];
        bool is_new = i == 0 || s->track != s[-1].track || s->process != s[-1].process;
        depth = is_new ? 0 : depth;
        while (depth > 0 && ends[depth - 1] <= s->start_ns) {
            depth--;
        }
        ck_assert_msg(depth == 0 || s->end_ns <= ends[depth - 1], "%s of track %lld at %lld ns",
                      s->name, (long long)s->track, (long long)s->start_ns);
        ck_assert_uint_lt(depth, s->process == REPLICAS ? 1 : MOST_DEPTH);
        ends[depth++] = s->end_ns;
    }
}

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

/* What the slices of requests add up to. */
struct told {
    size_t done, rejected, preempted, blocks, cut;
    json_int_t refreshes, steps_refreshed, preemptions;
};

static struct told read_requests(void) {
    struct told told = {0};
    for (size_t i = 0; i < n_slices; i++) {
        const struct slice *s = &slices[i];
        if (s->process != REQUESTS) {
            continue;
        }
        told.rejected += strcmp(s->name, "rejected") == 0;
        told.preempted += strcmp(s->name, "preempted") == 0;
        told.blocks += begins(s->name, "block ") && strstr(s->name, ", cut") == NULL;
        told.cut += strstr(s->name, ", cut") != NULL;
        if (strcmp(s->name, "refresh") == 0) {
            told.refreshes += json_integer_value(json_object_get(s->args, "passes"));
        }
        if (strcmp(s->name, "done") == 0) {
            told.done++;
            told.steps_refreshed += json_integer_value(json_object_get(s->args, "refresh_steps"));
            told.preemptions += json_integer_value(json_object_get(s->args, "preemptions"));
        }
    }
    return told;
}

/* A request that was done is all queued, running or preempted. */
static void check_stays(void) {
    for (size_t i = 0; i < n_slices; i++) {
        const struct slice *whole = &slices[i];
        int64_t left_ns = whole->end_ns - whole->start_ns;
        for (size_t k = 0; k < n_slices && strcmp(whole->name, "done") == 0; k++) {
            const struct slice *s = &slices[k];
            bool is_stay = strcmp(s->name, "queued") == 0 || strcmp(s->name, "running") == 0 ||
                           strcmp(s->name, "preempted") == 0;
            bool is_of_it = s->process == REQUESTS && s->track == whole->track;
            left_ns -= is_stay && is_of_it ? s->end_ns - s->start_ns : 0;
        }
        ck_assert_msg(strcmp(whole->name, "done") != 0 || left_ns == 0, "%lld ns of track %lld",
                      (long long)left_ns, (long long)whole->track);
    }
}

static size_t count_named(const json_t *root, const char *kind, const char *name) {
    size_t i, n = 0;
    json_t *entry;
    json_array_foreach(json_object_get(root, "traceEvents"), i, entry) {
        n += strcmp(json_string_value(json_object_get(entry, "ph")), kind) == 0 &&
             begins(json_string_value(json_object_get(entry, "name")), name);
    }
    return n;
}

TEST(every_request_has_a_track_from_arrival_to_its_end) {
    const char *path = scratch_path("t.json");
    free(PRINTS("run", "--requests", "30", "--rate", "0.8", "--timeline", path));
    json_t *root = load(path);
    check_nesting();
    check_stays();
    struct told told = read_requests();
    ck_assert_uint_eq(told.done, 30);
    ck_assert_uint_eq(told.blocks, 30 * 256 / 32);
    ck_assert_uint_eq(told.cut, 0);
    ck_assert_int_gt(told.refreshes, 0);
    ck_assert_int_eq(told.refreshes, told.steps_refreshed);
    ck_assert_uint_eq(count_named(root, "M", "thread_name"), 31);
    ck_assert_uint_gt(count_named(root, "C", "batch, replica 0"), 0);
    ck_assert_uint_gt(count_named(root, "C", "KV bytes, replica 0"), 0);
    ck_assert_uint_eq(count_named(root, "C", "power"), 0); /* its profile knows none */
    json_decref(root);
}

TEST(preempted_rejected_and_unrolled_requests_nest_as_well) {
    const char *path = scratch_path("t.json");
    free(PRINTS("run", "--system", "lmdeploy", "--requests", "40", "--rate", "4", "--set",
                "pool_pages=200", "--gpu", "rtx4090", "--replicas", "1", "--timeline", path));
    json_t *root = load(path);
    check_nesting();
    check_stays();
    struct told told = read_requests();
    ck_assert_uint_gt(told.preempted, 0);
    ck_assert_int_eq(told.preempted, told.preemptions);
    json_decref(root);
    free(PRINTS("run", "--requests", "30", "--rate", "5", "--set", "max_in_system=8", "--replicas",
                "2", "--timeline", path));
    root = load(path);
    check_nesting();
    told = read_requests();
    ck_assert_uint_gt(told.rejected, 0);
    ck_assert_uint_eq(told.rejected + told.done, 30);
    ck_assert_uint_eq(count_named(root, "i", "reject"), told.rejected);
    json_decref(root);
    free(PRINTS("run", "--system", "dinfer", "--requests", "10", "--rate", "0.5", "--timeline",
                path));
    root = load(path);
    check_nesting();
    check_stays();
    ck_assert_uint_eq(read_requests().done, 10);
    json_decref(root);
}

/* Between idling and somewhat above the limit. */
TEST(power_is_a_counter_where_the_profile_knows_it) {
    char *shipped = NULL, line[512];
    size_t size;
    FILE *from = fopen("kernels/profiles/h200.csv", "r"), *to = open_memstream(&shipped, &size);
    ck_assert(from != NULL && to != NULL);
    while (fgets(line, sizeof line, from) != NULL) {
        fputs(begins(line, "# rows:") ? "" : line, to);
    }
    fputs("power,idle_w,100\npower,limit_w,700\npower,busy_w,200\npower,active_w,100\n"
          "power,flop_pj,0.5\npower,byte_pj,30\n"
          "power,exponent,1\npower,lag_ms,30\n",
          to);
    fclose(from);
    fclose(to);
    const char *path = scratch_path("t.json");
    free(PRINTS("run", "--gpu", "h200", "--profile", scratch_write("card.csv", shipped),
                "--requests", "10", "--timeline", path));
    free(shipped);
    json_t *root = load(path), *entry;
    size_t i, n = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, entry) {
        if (begins(json_string_value(json_object_get(entry, "name")), "power, replica 0")) {
            double watts = json_number_value(json_object_get(json_object_get(entry, "args"), "W"));
            ck_assert_msg(watts > 100 && watts < 1000, "%g W", watts);
            n++;
        }
    }
    ck_assert_uint_gt(n, 10);
    json_decref(root);
}

SUITE("timeline")
