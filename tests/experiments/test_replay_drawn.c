/* Records over workloads and options together, drawn, and played again: the short form of
 * `make torture`, whose draw is wider (tests/torture/draw.py). */
#include <inttypes.h>
#include <jansson.h>

#include "sim/base/rng.h"
#include "tests/support/cli.h"

enum { N_DRAWN = 60, MOST_WORDS = 40, WORD_CHARS = 600 };

struct drawing {
    struct rng rng;
    json_t *lists;
    char words[MOST_WORDS][WORD_CHARS];
    const char *argv[MOST_WORDS + 1];
    size_t n;
};

static uint32_t below(struct drawing *d, uint32_t n) {
    return (uint32_t)(rng_uniform(&d->rng) * n) % n;
}

static bool chance(struct drawing *d, double odds) {
    return rng_uniform(&d->rng) < odds;
}

static void add(struct drawing *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct drawing *d, const char *format, ...) {
    va_list args;
    ck_assert_uint_lt(d->n, MOST_WORDS);
    va_start(args, format);
    vsnprintf(d->words[d->n], WORD_CHARS, format, args);
    va_end(args);
    d->argv[d->n] = d->words[d->n];
    d->n++;
    d->argv[d->n] = NULL;
}

/* A name of those that `unmask list` prints. */
static const char *name_of(struct drawing *d, const char *what) {
    const json_t *rows = json_object_get(json_object_get(d->lists, what), "rows");
    const json_t *row = json_array_get(rows, below(d, (uint32_t)json_array_size(rows)));
    return json_string_value(json_object_get(row, "name"));
}

static void maybe(struct drawing *d, const char *option, const char *what, double odds) {
    if (chance(d, odds)) {
        add(d, "--%s", option);
        add(d, "%s", name_of(d, what));
    }
}

/* A class, or a workload of its own: the times of several clients fall together. */
static void write_class(struct drawing *d, const char *name) {
    static const char *const thinks[] = {"0", "1ms", "300ms", "5s"};
    static const char *const open_ones[] = {"poisson", "gamma", "bursts", "all-at-once"};
    char text[1024];
    const uint32_t kind = below(d, 5);
    int n = snprintf(text, sizeof text,
                     "[workload]\nprovenance.lengths = synthetic\nrequests = %u\n"
                     "input = uniform\ninput.min = 8\ninput.max = %u\n"
                     "output = fixed\noutput.tokens = %u\n",
                     1 + below(d, 25), 8 + below(d, 300), 8 + below(d, 90));
    if (kind < 2) {
        snprintf(text + n, sizeof text - (size_t)n,
                 "arrivals = closed-loop\narrivals.clients = %u\narrivals.think_ns = %s\n",
                 1 + below(d, 6), thinks[below(d, 4)]);
    } else if (kind < 4) {
        snprintf(text + n, sizeof text - (size_t)n,
                 "arrivals = sessions\nrate = %u\narrivals.turns = 3\narrivals.think_ns = %s\n",
                 1 + below(d, 40), thinks[below(d, 4)]);
    } else {
        const char *process = open_ones[below(d, 4)];
        n += snprintf(text + n, sizeof text - (size_t)n, "arrivals = %s\n", process);
        if (strcmp(process, "all-at-once") != 0) {
            snprintf(text + n, sizeof text - (size_t)n, "rate = %u\n", 1 + below(d, 60));
        }
    }
    (void)scratch_write(name, text);
}

static void draw_workload(struct drawing *d) {
    static const char *const names[] = {"a.ini", "b.ini", "c.ini"};
    char list[128] = "[workload]\nclasses = ";
    if (chance(d, 0.3)) {
        add(d, "--workload");
        add(d, "%s", chance(d, 0.5) ? "burst" : name_of(d, "workloads"));
        add(d, "--rate");
        add(d, "%u", 1 + below(d, 8));
        add(d, "--requests");
        add(d, "%u", 1 + below(d, 20));
        return;
    }
    for (int i = 0; i < 3; i++) {
        write_class(d, names[i]);
    }
    const uint32_t n = 1 + below(d, 4);
    for (uint32_t i = 0; i < n; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[below(d, 3)]);
    }
    strcat(list, "\n");
    add(d, "--workload");
    add(d, "%s", n == 1 ? scratch_path("a.ini") : scratch_write("all.ini", list));
}

static void draw(struct drawing *d, const char *db) {
    d->n = 0;
    add(d, "run");
    add(d, "--system");
    add(d, "%s", name_of(d, "systems"));
    add(d, "--gpu");
    add(d, "%s", chance(d, 0.5) ? "h200" : "b200");
    add(d, "--seed");
    add(d, "%u", 1 + below(d, 99));
    if (chance(d, 0.4)) {
        add(d, "--replicas");
        add(d, "%u", 2 + below(d, 3));
    }
    maybe(d, "router", "routers", 0.5);
    maybe(d, "scheduler", "schedulers", 0.3);
    maybe(d, "decoder", "decoders", 0.2);
    maybe(d, "host", "hosts", 0.1);
    if (chance(d, 0.15)) {
        add(d, "--bound");
    }
    if (chance(d, 0.5)) {
        add(d, "--roofline");
    }
    if (chance(d, 0.2)) {
        add(d, "--slo-latency");
        add(d, "%us", 1 + below(d, 20));
    }
    if (chance(d, 0.15)) {
        add(d, "--set");
        add(d, "pool_pages=%u", 5 + below(d, 200));
    }
    if (chance(d, 0.15)) {
        add(d, "--set");
        add(d, "max_in_system=%u", 1 + below(d, 12));
    }
    draw_workload(d);
    add(d, "--db");
    add(d, "%s", db);
    add(d, "--levels");
    add(d, "%s", chance(d, 0.8) ? "steps" : "events");
}

static void say(const struct drawing *d, char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < d->n && used < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s ", d->words[i]);
    }
}

TEST(whatever_is_recorded_is_played) {
    struct drawing *d = calloc(1, sizeof *d);
    char said[4096], db[512];
    char *text = PRINTS("list", "--json");
    int n_played = 0;
    d->rng = rng_stream(20261127, "replays");
    d->lists = json_loads(text, 0, NULL);
    free(text);
    snprintf(db, sizeof db, "%s", scratch_path("drawn.db"));
    for (int i = 0; i < N_DRAWN; i++) {
        (void)remove(db);
        draw(d, db);
        say(d, said, sizeof said);
        struct output recorded = cli_run(&(const struct child){0}, d->argv);
        const bool is_recorded = strstr(recorded.err, "recorded as run 1") != NULL;
        ck_assert_msg(recorded.status <= 2 && strstr(recorded.err, "internal error") == NULL,
                      "%s: %s", said, recorded.err);
        output_free(&recorded);
        if (is_recorded) {
            struct output played = CLI("replay", "--db", db, "--run", "1");
            ck_assert_msg(played.status == 0, "%s: %s", said, played.err);
            output_free(&played);
            n_played++;
        }
    }
    ck_assert_int_ge(n_played, N_DRAWN / 2); /* the others make no sense, or do not fit */
    json_decref(d->lists);
    free(d);
}

SUITE("replays drawn")
