/* Requests that say themselves how their tokens are drawn, live on the CPU: each has in a mixed
 * batch the tokens that it has alone, on one device and on several; and what no system does. */
#include "sim/base/rng.h"
#include "sim/system/system_sampling.h"
#include "tests/support/cli.h"
#include "tests/support/live.h"
#include "tests/support/old_schema.h"
#include "tests/support/outputs.h"

enum { MIXES = 2, N = LIVE_REQUESTS };

static const struct {
    const char *system, *model, *settings[6];
} cases[] = {
    {"fast-dllm", "dream-tiny", {"sampling=on", "decoder=entropy"}},
    {"fast-dllm", "llada-tiny", {"sampling=on", "temperature=0.7", "probabilities=kept"}},
    {"sdar", "sdar-tiny", {"block_tokens=8", "page_tokens=4", "sampling=on", "top_p=0.8"}},
    {"fast-dllm", "dream-tiny", {"sampling=on", "top_k=1536", "tensor_parallel=2"}},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static struct system *system_of(size_t i) {
    return live_system_of(cases[i].system, cases[i].model, cases[i].settings);
}

static uint64_t below(struct rng *rng, uint64_t n) {
    return (uint64_t)(rng_uniform(rng) * (double)n);
}

/* Something of everything, or nothing. */
static struct sampling some_sampling(struct rng *rng) {
    static const uint64_t temperatures[] = {0, 1, 300001, 1000001, 1500001};
    static const uint64_t top_ps[] = {0, 0, 1, 500001, 900001, 1000001},
                          top_ks[] = {0, 0, 1, 2, 8, 301};
    return MAKE(struct sampling, .temperature = temperatures[below(rng, 5)],
                .top_p = top_ps[below(rng, 6)], .top_k = top_ks[below(rng, 6)],
                .seed = below(rng, 3));
}

static void mix(struct rng *rng, struct arrival *together, struct arrival *apart) {
    for (uint64_t id = 0; id < N; id++) {
        together[id] =
            MAKE(struct arrival, .id = id, .prompt_tokens = 3 + (uint32_t)below(rng, 20),
                 .output_tokens = 6 + (uint32_t)below(rng, 12), .sampling = some_sampling(rng));
        apart[id] = together[id];
        apart[id].arrival_ns = (int64_t)id * INT64_C(1000000000000);
    }
}

TEST_EACH(a_request_in_a_mixed_batch_has_the_tokens_that_it_has_alone, N_CASES) {
    struct rng rng = rng_stream((uint64_t)_i, "mixes");
    struct arrival together[N], apart[N];
    struct system *system = system_of((size_t)_i);
    for (int round = 0; round < MIXES; round++) {
        mix(&rng, together, apart);
        struct served *mixed = serve_live(system, together, N),
                      *alone = serve_live(system, apart, N);
        check_used_as_planned(mixed, N);
        same_tokens(mixed, alone, N);
        ck_assert_uint_lt(mixed->n_steps, alone->n_steps);
        free(mixed);
        free(alone);
    }
    system_close(system);
}

/* One prompt for all of them. */
static const int32_t *one_prompt(void *state, uint64_t id) {
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    (void)state, (void)id;
    return ids;
}

static struct served *serve_asked(const char *const *settings, const struct sampling *asked) {
    struct arrival arrivals[N];
    for (uint64_t id = 0; id < N; id++) {
        arrivals[id] = MAKE(struct arrival, .id = id, .prompt_tokens = 9, .output_tokens = 12,
                            .sampling = asked[id]);
    }
    struct system *system = live_system_of("fast-dllm", "dream-tiny", settings);
    struct served *served = serve(
        &(struct serving){.system = system, .arrivals = arrivals, .n = N, .prompt = one_prompt});
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    system_close(system);
    return served;
}

static bool is_same(const struct served *a, size_t one, const struct served *b, size_t other) {
    return memcmp(a->tokens[one], b->tokens[other], sizeof a->tokens[one]) == 0;
}

TEST(a_seed_of_its_own_draws_the_same_whichever_request_it_is) {
    const uint64_t t = 1500001;
    const struct sampling asked[N] = {{.temperature = t, .seed = 8},
                                      {.temperature = t, .seed = 8},
                                      {.temperature = t, .seed = 9},
                                      {.temperature = t}};
    struct served *served = serve_asked((const char *const[]){"sampling=on", NULL}, asked);
    ck_assert(is_same(served, 0, served, 1));
    ck_assert(!is_same(served, 0, served, 2));
    ck_assert(!is_same(served, 0, served, 3));
    free(served);
}

/* A temperature of 0 is the most likely token under a system that draws, what a request does not
 * say is the system's, and what it says counts as if the system said it. */
TEST(what_a_request_asks_is_what_a_system_of_its_own_would_do) {
    static const struct {
        struct sampling asked;
        const char *system[2];
    } same[] = {{{.temperature = 1}, {"sampling=off", "temperature=1"}},
                {{.temperature = 700001}, {"sampling=on", "temperature=0.7"}},
                {{.top_k = 6}, {"sampling=on", "top_k=5"}},
                {{.top_p = 600001}, {"sampling=on", "top_p=0.6"}}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        const struct sampling asked[N] = {same[i].asked, {.temperature = 2000001}, same[i].asked},
                              none[N] = {{0}};
        const char *const drawing[] = {"sampling=on", NULL}, *const own[] = {same[i].system[0],
                                                                             same[i].system[1],
                                                                             NULL};
        struct served *by_request = serve_asked(drawing, asked),
                      *by_system = serve_asked(own, none);
        ck_assert(is_same(by_request, 0, by_system, 0));
        ck_assert(is_same(by_request, 2, by_system, 2));
        ck_assert(!is_same(by_request, 1, by_system, 1));
        free(by_request);
        free(by_system);
    }
}

/* Drawn from the decode process, which knows each request's rule too. */
TEST(a_simulation_draws_by_what_each_request_asks) {
    static const struct sampling asked[] = {{.top_k = 2}, {0}, {0}};
    static const char *const top_ks[] = {"top_k=0", "top_k=1", "top_k=0"};
    struct served *served[3];
    for (int i = 0; i < 3; i++) {
        const char *const settings[] = {
            "sampling=on",        "decoder=threshold", "decoder.threshold=0.3",
            "probabilities=kept", top_ks[i],           NULL};
        struct system *system = live_system_of("fast-dllm", "llada-tiny", settings);
        struct arrival arrivals[N];
        for (uint64_t id = 0; id < N; id++) {
            arrivals[id] = MAKE(struct arrival, .id = id, .prompt_tokens = 9, .output_tokens = 60,
                                .sampling = asked[i]);
        }
        served[i] = serve(
            &(struct serving){.system = system, .arrivals = arrivals, .n = N, .simulates = true});
        ck_assert_msg(served[i]->err.kind == ERR_NONE, "%s", served[i]->err.text);
        system_close(system);
    }
    ck_assert_uint_eq(served[0]->n_steps, served[1]->n_steps);
    ck_assert_mem_eq(served[0]->commits, served[1]->commits, sizeof served[0]->commits);
    ck_assert_uint_gt(served[2]->n_steps, served[0]->n_steps);
    for (int i = 0; i < 3; i++) {
        free(served[i]);
    }
}

static void assert_refused(const char *system_settings, struct sampling asked, const char *why) {
    const char *settings[] = {system_settings, "max_requests=4", NULL};
    struct system *system = live_system_of("fast-dllm", "dream-tiny", settings);
    const struct arrival arrival = {
        .id = 0, .prompt_tokens = 9, .output_tokens = 6, .sampling = asked};
    struct served *served =
        serve(&(struct serving){.system = system, .arrivals = &arrival, .n = 1, .simulates = true});
    ck_assert_int_eq(served->err.kind, ERR_USAGE);
    ASSERT_SAYS(served->err.text, why);
    free(served);
    system_close(system);
}

TEST(what_a_system_cannot_honour_is_refused_in_one_sentence) {
    static const char draws[] =
        "request 0: a temperature above 0 draws tokens, and system fast-dllm takes the most likely "
        "ones: set sampling = on";
    static const char range[] = "request 0: a temperature is 0 or from 0.01 to 100";
    assert_refused("sampling=off", MAKE(struct sampling, .temperature = 500001), draws);
    assert_refused("sampling=on", MAKE(struct sampling, .temperature = 5001), range);
    assert_refused("sampling=on", MAKE(struct sampling, .temperature = 100000002), range);
    assert_refused("sampling=on", MAKE(struct sampling, .top_p = 1000002), range);
    assert_refused("sampling=on", MAKE(struct sampling, .top_k = UINT64_C(1) << 40), range);
    struct system *system = live_system_of(
        "fast-dllm", "dream-tiny",
        (const char *const[]){"sampling=on", "tensor_parallel=2", "max_requests=4", NULL});
    struct err err = {0};
    ck_assert_int_eq(system_check_sampling(system, &MAKE(struct sampling, .top_k = 3), &err),
                     ERR_USAGE);
    ASSERT_SAYS(err.text, "several GPUs look for what top_k and top_p keep where the system does: "
                          "set top_k = 1536, which keeps all tokens");
    ck_assert_int_eq(
        system_check_sampling(system, &MAKE(struct sampling, .temperature = 1, .top_k = 3), &err),
        0);
    system_close(system);
}

/* Chances of drafts are of whole distributions: what would cut them or make them sharper is refused
 * for a request as it is for a system, and the most likely drafts are none of it. */
TEST(requests_do_not_cut_what_drafts_are_accepted_by) {
    struct system *system =
        live_system_of("sdar", "sdar-tiny",
                       (const char *const[]){"sampling=on", "decoder=self-speculation",
                                             "runtime.fused_head=off", "max_requests=4", NULL});
    const struct sampling refused[] = {{.temperature = 500001}, {.top_k = 3}, {.top_p = 900001}},
                          taken[] = {{.temperature = 1000001},
                                     {.temperature = 1},
                                     {.top_k = 1},
                                     {.top_p = 1000001},
                                     {.seed = 5}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct err err = {0};
        ck_assert_int_eq(system_check_sampling(system, &refused[i], &err), ERR_USAGE);
        ASSERT_SAYS(err.text, "accepts drafts by chances of whole distributions");
    }
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        ck_assert_int_eq(system_check_sampling(system, &taken[i], NULL), 0);
    }
    system_close(system);
}

/* Which keep the most likely token. */
TEST(top_k_and_top_p_change_nothing_where_nothing_is_drawn) {
    const struct sampling asked[N] = {{.top_k = 2}, {.top_p = 500001}, {.top_k = 9, .seed = 3}},
                          none[N] = {{0}};
    const char *const greedy[] = {"sampling=off", NULL};
    struct served *some = serve_asked(greedy, asked), *plain = serve_asked(greedy, none);
    same_tokens(some, plain, N);
    free(some);
    free(plain);
}

/* However often the file is read: under a simulation, live, and for what is asked of its texts. */
TEST(a_file_of_prompts_is_read_as_it_was_asked_to) {
    const char *path = scratch_write(
        "some.jsonl", "{\"ids\": [5, 6, 7], \"task\": \"a\", \"output_tokens\": 32}\n"
                      "{\"ids\": [5, 6], \"task\": \"b\", \"output_tokens\": 32}\nno prompt\n"
                      "{\"ids\": [8, 9, 7, 5], \"task\": \"a\", \"output_tokens\": 32}\n");
    for (int live = 0; live < 2; live++) {
        const char *backend = live ? "cpu" : "sim";
        REFUSES(2, "some.jsonl:3: found --skip-bad", "run", "--backend", backend, "--model",
                "llada-tiny", "--workload", path);
        char *text = PRINTS("run", "--backend", backend, "--model", "llada-tiny", "--workload",
                            path, "--skip-bad");
        ck_assert_ptr_nonnull(strstr(text, "requests     3 completed of 3;"));
        ck_assert_ptr_nonnull(strstr(text, "Left out 1 row of the trace that cannot be read."));
        free(text);
        text = PRINTS("run", "--backend", backend, "--model", "llada-tiny", "--workload", path,
                      "--skip-bad", "--where", "task=a");
        ck_assert_ptr_nonnull(strstr(text, "requests     2 completed of 2;"));
        ck_assert_ptr_nonnull(strstr(text, "Left out 1 row of the trace by `where`."));
        free(text);
        text = PRINTS("compare", "--backend", backend, "--model", "llada-tiny", "--systems",
                      "dllm-serve,fast-dllm", "--workload", path, "--skip-bad");
        ck_assert_ptr_nonnull(strstr(text, "\nfast-dllm "));
        free(text);
    }
}

/* A line of a file of prompts says the same, under a simulation and live. */
TEST(a_file_of_prompts_says_how_each_is_drawn) {
    const char *path = scratch_path("asked.jsonl");
    FILE *file = fopen(path, "w");
    static const char *const said[] = {"\"temperature\": 20, \"seed\": 4",
                                       "\"temperature\": 20, \"seed\": 4",
                                       "\"temperature\": 0, \"top_p\": 0.9"};
    for (int i = 0; i < 3; i++) {
        fprintf(file,
                "{\"prompt\": \"Q: A kid has 15 toys. His friend has 7 fewer toys than he has. How "
                "many toys do they have together?\\nA:\\n\", \"output_tokens\": 32, %s}\n",
                said[i]);
    }
    fclose(file);
#define SERVE                                                                                      \
    "run", "--backend", "cpu", "--weights", "experiments/train/models/sdar-2m", "--system",        \
        "sdar", "--clock", "virtual", "--workload", path
    const char *out = scratch_path("asked-out.jsonl");
    free(PRINTS(SERVE, "--set", "sampling=on", "--outputs", out, "--json"));
    char lines[3][4096] = {{0}};
    file = fopen(out, "r");
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_nonnull(fgets(lines[i], sizeof lines[i], file));
    }
    fclose(file);
    for (int i = 0; i < 3; i++) { /* what comes after the request's number */
        memmove(lines[i], strstr(lines[i], "\"output\""),
                strlen(strstr(lines[i], "\"output\"")) + 1);
    }
    ck_assert_str_eq(lines[0], lines[1]);
    ck_assert_str_ne(lines[0], lines[2]);
    REFUSES(
        2,
        "request 0: a temperature above 0 draws tokens, and system sdar takes the most likely ones",
        SERVE);
    file = fopen(path, "w");
    fputs("{\"ids\": [3, 1, 4], \"top_k\": 2.5}\n", file);
    fclose(file);
    REFUSES(2,
            "asked.jsonl:1: found another value of 'top_k', expected a whole number from 0 to "
            "4294967295",
            SERVE, "--set", "sampling=on");
}

/* Of the requests of a database, in order, and of what a trace of decisions says of their tokens.
 */
static const char asked_on_record[] =
    "SELECT group_concat(ifnull(temperature_millionths, '-') || ' ' || ifnull(top_p_millionths, "
    "'-') || ' ' || ifnull(top_k, '-') || ' ' || ifnull(sampling_seed, '-')) FROM (SELECT * FROM "
    "requests ORDER BY id)";
static const char steps_on_record[] =
    "SELECT group_concat(start_ns || ' ' || end_ns || ' ' || repeat || ' ' || hex(batch)) FROM "
    "(SELECT * FROM steps JOIN members ON members.run = steps.run AND number = members ORDER BY "
    "idx)";
static const char tokens_on_record[] =
    "SELECT group_concat(request || ' ' || hex(token)) FROM pass WHERE passes = 1";

static void same_answers(const char *query, const char *one, const char *other, bool are_same) {
    const char *const paths[] = {one, other};
    char *said[2];
    for (int i = 0; i < 2; i++) {
        sqlite3 *db = NULL;
        ck_assert_int_eq(sqlite3_open(paths[i], &db), SQLITE_OK);
        said[i] = old_text(db, query);
        sqlite3_close(db);
    }
    ck_assert_uint_gt(strlen(said[0]), 20);
    ck_assert_msg((strcmp(said[0], said[1]) == 0) == are_same, "%s: %s and %s", query, one, other);
    sqlite3_free(said[0]);
    sqlite3_free(said[1]);
}

static const char *mixed_prompts(void) {
    return scratch_write("mixed.jsonl",
                         "{\"ids\": [3, 1, 4], \"output_tokens\": 32, \"temperature\": 2, "
                         "\"seed\": 4}\n"
                         "{\"ids\": [3, 1, 4], \"output_tokens\": 32, \"temperature\": 0}\n"
                         "{\"ids\": [2, 7, 1, 8], \"output_tokens\": 32}\n"
                         "{\"ids\": [2, 7, 1], \"output_tokens\": 32, \"top_k\": 2, "
                         "\"top_p\": 0.5}\n");
}

/* As an older unmask left it behind, which recorded nothing of the kind. */
static const char *forgetful(const char *db) {
    sqlite3 *sqlite = NULL;
    ck_assert_int_eq(sqlite3_open(db, &sqlite), SQLITE_OK);
    database_run(sqlite,
                 "UPDATE requests SET temperature_millionths = NULL, top_p_millionths = NULL, "
                 "top_k = NULL, sampling_seed = NULL;"
                 "UPDATE runs SET rows_sha256 = NULL, sha256 = NULL");
    sqlite3_close(sqlite);
    return db;
}

/* A run of requests on record has what each asked, and so its steps; a request that asked nothing
 * has NULL. */
TEST(requests_on_record_are_drawn_as_they_asked) {
    const char *a = scratch_path("asked-a.db"), *b = scratch_path("asked-b.db"),
               *c = scratch_path("asked-c.db");
#define SIMULATE                                                                                   \
    "run", "--system", "fast-dllm", "--model", "llada-tiny", "--gpu", "l40s", "--roofline",        \
        "--set", "sampling=on", "--set", "probabilities=kept", "--set", "decoder=threshold",       \
        "--set", "decoder.threshold=0.3", "--set", "max_requests=2", "--levels", "steps",          \
        "--workload"
    free(PRINTS(SIMULATE, mixed_prompts(), "--db", a));
    free(PRINTS(SIMULATE, a, "--db", b));
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(b, &db), SQLITE_OK);
    char *asked = old_text(db, asked_on_record);
    ck_assert_str_eq(asked, "2000000 - - 4,0 - - -,- - - -,- 500000 2 -");
    sqlite3_free(asked);
    sqlite3_close(db);
    same_answers(asked_on_record, a, b, true);
    same_answers(steps_on_record, a, b, true);
    free(PRINTS("replay", "--db", b, "--run", "1"));
    REFUSES(2, "request 0: a temperature above 0 draws tokens", "run", "--system", "sdar",
            "--workload", a);
    free(PRINTS(SIMULATE, forgetful(a), "--db", c));
    same_answers(steps_on_record, b, c, false);
    free(PRINTS(SIMULATE, a, "--db", b)); /* which is another run */
    ck_assert_int_eq(sql_integer(b, "SELECT count(*) FROM runs"), 2);
}

/* Prompts of requests on record are made up, the same each time. */
TEST(requests_on_record_have_live_the_same_tokens) {
    char dbs[4][512], traces[4][512];
    const char *from = mixed_prompts();
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "live-%d.db", i);
        snprintf(dbs[i], sizeof dbs[i], "%s", scratch_path(name));
        snprintf(name, sizeof name, "live-%d.decode", i);
        snprintf(traces[i], sizeof traces[i], "%s", scratch_path(name));
        free(PRINTS("run", "--system", "fast-dllm", "--model", "llada-tiny", "--gpu", "cpu",
                    "--backend", "cpu", "--clock", "virtual", "--weights", "random:7", "--set",
                    "storage.weights=f32", "--set", "sampling=on", "--set", "max_requests=2",
                    "--levels", "steps", "--workload", from, "--db", dbs[i], "--decode-out",
                    traces[i]));
        from = i == 2 ? forgetful(dbs[i]) : dbs[i];
    }
    same_answers(tokens_on_record, traces[1], traces[2], true);
    same_answers(tokens_on_record, traces[2], traces[3], false);
    free(PRINTS("replay", "--db", dbs[1], "--run", "1"));
    free(PRINTS("replay", "--db", dbs[1], "--run", "1", "--backend", "cpu"));
}

SUITE("asked sampling")
