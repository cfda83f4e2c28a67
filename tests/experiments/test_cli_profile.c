/* The command line: a user's own profile, host terms and provenance, transfers. */
#include <jansson.h>
#include <sqlite3.h>

#include "tests/support/cli.h"

/* The operators of llada-tiny, as `unmask calibrate` would write them, with made-up times. */
static const char rows[] =
    "# Operator times of a test.\n# kind: measured\n# source: a test\n# date: 2026-11-21\n"
    "# device: no device\n"
    "host,refresh,41000,900\nhost,reuse,31000.5,700\nhost,select,51000,800\n"
    "gemm,1,768,256,3\ngemm,4096,768,256,30\ngemm,1,256,256,2\ngemm,4096,256,256,12\n"
    "gemm,1,1024,256,4\ngemm,4096,1024,256,40\ngemm,1,256,512,2\ngemm,4096,256,512,20\n"
    "attention_full,1,32,2,2,128,5\nattention_full,64,2048,2,2,128,900\n"
    "attention_block,1,32,32,2,2,128,6\nattention_block,64,32,2048,2,2,128,300\n"
    "elementwise,1024,2\nelementwise,1000000000,900\n"
    "pass,norm,256,1,1.5\npass,norm,256,4096,6\n";

static const char *own_profile(void) {
    return scratch_write("own.csv", rows);
}

#define TINY "--gpu", "h200", "--model", "llada-tiny", "--requests", "20"

TEST(a_profile_that_was_set_aside_is_named) {
    const char *path = scratch_path("own.csv");
    scratch_write("own.csv.shared", "");
    REFUSES(1, "own.csv.shared: calibrate measured while others computed, and --shared keeps",
            "run", "--profile", path);
    REFUSES(1, "cannot open", "run", "--profile", scratch_path("none.csv"));
}

TEST(a_users_profile_is_named_with_its_provenance) {
    const char *own = own_profile();
    char *text = PRINTS("run", TINY, "--profile", own);
    char named[256];
    snprintf(named, sizeof named, "profile      %s\n             date: 2026-11-21\n", own);
    ck_assert_ptr_nonnull(strstr(text, "prices from  measured: a test\n"));
    ck_assert_ptr_nonnull(strstr(text, named));
    ck_assert_ptr_nonnull(strstr(text, "             device: no device\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nhost         profile: measured, factor 1 "));
    free(text);
    text = PRINTS("explain", "--gpu", "h200", "--model", "llada-tiny", "--profile", own);
    ck_assert_ptr_nonnull(strstr(text, named));
    ck_assert_ptr_nonnull(strstr(text, "\nhost         profile: measured, factor 1 "));
    free(text);
    text = PRINTS("run", TINY, "--profile", own, "--json");
    snprintf(named, sizeof named, "\"profile\": \"%s\"", own);
    ck_assert_ptr_nonnull(strstr(text, named));
    ck_assert_ptr_nonnull(strstr(text, "\"profile_kind\": \"measured\""));
    free(text);
    /* Without host rows nothing claims to be measured. */
    text = PRINTS("explain", "--gpu", "l40s", "--json");
    ck_assert_ptr_nonnull(strstr(text, "\"name\": \"default\",\n    \"kind\": \"assumed\""));
    free(text);
}

/* Of another shape: one of the same has the same products. */
TEST(a_profile_of_another_model_is_said) {
    static const struct {
        const char *model;
        bool is_said;
    } cases[] = {{"sdar-8b", false}, {"qwen3-8b", false}, {"llada-8b", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = PRINTS("run", "--gpu", "h100", "--model", cases[i].model, "--requests", "3",
                            "--profile", "kernels/profiles/h100/sdar-8b.csv", "--json");
        ck_assert_int_eq(strstr(text, "profile-of-another-model") != NULL, cases[i].is_said);
        free(text);
    }
    char *text = PRINTS("run", "--gpu", "h100", "--requests", "3", "--json");
    ck_assert_ptr_null(strstr(text, "profile-of-another-model"));
    free(text);
}

/* How a card slows under load: a profile that was to tell it and does not is a caution of every run
 * that it prices. */
TEST(a_profile_without_the_power_of_its_card_is_said) {
    for (int is_known = 0; is_known < 2; is_known++) {
        char line[4096], own[1024];
        FILE *from = fopen("kernels/profiles/h100/sdar-8b.csv", "r");
        snprintf(own, sizeof own, "%s", scratch_path("own.csv"));
        FILE *to = fopen(own, "w");
        ck_assert(from != NULL && to != NULL);
        while (fgets(line, sizeof line, from) != NULL) {
            const bool is_note = strncmp(line, "# power:", 8) == 0;
            const bool is_count = strncmp(line, "# rows:", 7) == 0;
            if (is_known || (strncmp(line, "power,", 6) != 0 && !is_note && !is_count)) {
                fputs(line, to);
            } else if (is_note) {
                fputs("# power: not known: of 5 steps that were repeated 3 became slower\n", to);
            }
        }
        fclose(from);
        ck_assert_int_eq(fclose(to), 0);
        char *text = PRINTS("run", "--gpu", "h100", "--model", "sdar-8b", "--requests", "3",
                            "--profile", own, "--json");
        ck_assert_int_eq(strstr(text, "\"clock-unknown\"") != NULL, !is_known);
        free(text);
    }
}

TEST(a_recorded_run_is_replayed_on_its_profile) {
    const char *own = own_profile(), *db = scratch_path("own.db");
    char *recorded =
        PRINTS("run", TINY, "--profile", own, "--db", db, "--levels", "steps", "--json");
    char *replayed = PRINTS("replay", "--db", db, "--run", "1", "--json");
    /* The same object, and what the replay was besides. */
    size_t same = strlen(recorded) - strlen("\n}\n");
    ck_assert_int_eq(strncmp(recorded, replayed, same), 0);
    ck_assert_ptr_nonnull(strstr(replayed + same, "\"replay\""));
    free(replayed);
    replayed = PRINTS("replay", "--db", db, "--run", "1");
    ck_assert_ptr_nonnull(strstr(replayed, "prices from  measured: a test\n"));
    ck_assert_ptr_nonnull(strstr(replayed, "\nhost         profile: measured, factor 1 "));
    free(replayed);
    free(recorded);
}

TEST(every_command_that_prices_takes_a_profile) {
    const char *own = own_profile();
    char *text = PRINTS("compare", TINY, "--systems", "vanilla,dllm-serve", "--profile", own);
    ck_assert_ptr_nonnull(strstr(text, "prices measured"));
    free(text);
    free(PRINTS("plan", "--gpu", "h200", "--model", "llada-tiny", "--profile", own));
    const char *grid = scratch_write("grid.ini", "[sweep]\nsystems = vanilla, dllm-serve\n"
                                                 "models = llada-tiny\ngpus = h200\nrequests = 5\n"
                                                 "input_tokens = 32\noutput_tokens = 32\n");
    text = PRINTS("sweep", grid, "--profile", own);
    ck_assert_ptr_nonnull(strstr(text, " input_tokens  output_tokens  requests "));
    ck_assert_ptr_nonnull(strstr(text, "measured"));
    ck_assert_ptr_null(strstr(text, "transferred"));
    free(text);
    text = PRINTS("profile", "show", "h200", "--profile", own);
    ck_assert_ptr_nonnull(strstr(text, "kind         measured\n"));
    ck_assert_ptr_nonnull(strstr(text, "device       no device\n"));
    free(text);
    text = PRINTS("profile", "check", "h200", "--profile", own);
    ck_assert_ptr_nonnull(strstr(text, "h200: measured, a test\n"));
    ck_assert_ptr_nonnull(strstr(text, "\npass "));
    free(text);
}

TEST(a_profile_that_cannot_be_used_is_refused) {
    REFUSES(2, "--profile and --roofline exclude each other", "run", "--roofline", "--profile",
            own_profile());
    REFUSES(1, "cannot open no/such.csv: No such file or directory", "explain", "--profile",
            "no/such.csv");
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    REFUSES(2, "--profile: the path has more than 160 characters", "run", "--profile", longest);
    REFUSES(2, "profile check: --profile is one GPU's, --all are the shipped ones", "profile",
            "check", "--all", "--profile", own_profile());
}

/* The number behind `key` of a JSON text. */
static double number_of(const char *text, const char *key) {
    const char *at = strstr(text, key);
    ck_assert_ptr_nonnull(at);
    return strtod(at + strlen(key) + strlen("\": "), NULL);
}

TEST(operators_without_rows_are_named_with_a_remedy_or_priced_by_roofline) {
    struct output refused = CLI("run", "--system", "dinfer", "--gpu", "rtx4090", "--requests", "1");
    ck_assert_int_eq(refused.status, 1);
    ck_assert_ptr_nonnull(strstr(refused.err, "has no 'moe' rows ("));
    ck_assert_ptr_nonnull(strstr(refused.err, "--roofline"));
    output_free(&refused);
    char *text = PRINTS("plan", "latency", "--gpu", "rtx3090", "--model", "llada-moe", "--canvases",
                        "1024,32768", "--json");
    json_t *table = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_array_size(table), 2);
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(table, i);
        ck_assert(json_number_value(json_object_get(row, "priced_ms")) > 0);
        double share = json_number_value(json_object_get(row, "roofline_%"));
        ck_assert(share > 20 && share < 90); /* its experts; products and attention have rows */
    }
    json_decref(table);
    free(text);
    text = PRINTS("plan", "latency", "--gpu", "rtx3090", "--canvases", "1024", "--json");
    table = json_loads(text, 0, NULL);
    ck_assert_double_lt(json_number_value(json_object_get(json_array_get(table, 0), "roofline_%")),
                        20);
    json_decref(table);
    free(text);
}

/* A GeForce card's best product is faster than its data sheet; its utilisation is of that. */
TEST(no_run_uses_more_than_a_gpu_has) {
    static const char *const gpus[] = {"rtx3090", "rtx4090", "l40s", "h100"};
    for (size_t g = 0; g < sizeof gpus / sizeof gpus[0]; g++) {
        char *text =
            PRINTS("run", "--system", "mosaic-masked", "--gpu", gpus[g], "--roofline",
                   "--input-tokens", "4000", "--output-tokens", "64", "--requests", "4", "--json");
        json_t *run = json_loads(text, 0, NULL);
        double mfu = json_number_value(json_object_get(run, "mfu"));
        ck_assert_msg(mfu > 0.5 && mfu <= 1, "%s: %g", gpus[g], mfu);
        json_decref(run);
        free(text);
    }
}

TEST(a_transferred_file_prices_as_the_program_transfers_by_itself) {
    const char *out = scratch_path("h200.csv");
    char *nothing =
        PRINTS("profile", "transfer", "--from", "a100-80g", "--to", "a100-40g", "--out", out);
    ck_assert_str_eq(nothing, "");
    free(nothing);
    char *by_file = PRINTS("explain", "--gpu", "a100-40g", "--profile", out, "--json");
    char *by_itself = PRINTS("explain", "--gpu", "a100-40g", "--json");
    ck_assert_double_eq_tol(number_of(by_file, "\"device_ms") / number_of(by_itself, "\"device_ms"),
                            1, 1e-4);
    ck_assert_ptr_nonnull(strstr(by_file, "\"profile_kind\": \"transferred\""));
    free(by_file);
    free(by_itself);
    char *text = PRINTS("explain", "--gpu", "a100-40g", "--profile", out);
    ck_assert_ptr_nonnull(strstr(text, "             donor: a100-80g\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "             errors_of_the_nearest_transfer: a100-80g -> "));
    free(text);
}

TEST(a_users_profile_is_transferred_with_its_host_terms) {
    char *text = PRINTS("profile", "transfer", "--from", "h200", "--to", "rtx4090", "--profile",
                        own_profile());
    ck_assert_ptr_nonnull(strstr(text, "\n# kind: transferred\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n# donor_kind: measured\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nhost,reuse,31000.5,700\n"));
    ck_assert_ptr_nonnull(strstr(text, "\npass,norm,256,1,1.5\n"));
    const char *scaled = scratch_write("scaled.csv", text);
    free(text);
    text = PRINTS("explain", "--gpu", "rtx4090", "--model", "llada-tiny", "--profile", scaled);
    ck_assert_ptr_nonnull(strstr(text, "prices from  transferred: rtx4090, scaled from h200"));
    ck_assert_ptr_nonnull(strstr(text, "\nhost         profile: transferred, factor 1 "));
    free(text);
}

/* Transferred, rows of a mixture hold as many experts as their tokens hit all the same, and random
 * weights are priced by those. */
TEST(a_mixtures_measured_rows_keep_their_experts_on_another_gpu) {
    char *text = PRINTS("profile", "transfer", "--from", "h200", "--to", "h100", "--profile",
                        "kernels/profiles/h200/llada2-mini.csv");
    const char *scaled = scratch_write("mixture.csv", text);
    ck_assert_ptr_nonnull(strstr(text, "\n# experts_hit: counted by "));
    ck_assert_ptr_nonnull(strstr(text, "\nmoe,1,2048,512,8,256,8,"));
    free(text);
    text = PRINTS("explain", "--gpu", "h100", "--model", "llada2-mini", "--profile", scaled,
                  "--set", "expert_router=random");
    ck_assert_ptr_nonnull(strstr(text, "\nexperts      as many a layer as the measured rows hit"));
    free(text);
    text = PRINTS("explain", "--gpu", "h100", "--model", "llada2-mini", "--profile", scaled,
                  "--reuse", "1");
    ck_assert_ptr_nonnull(strstr(text, "\nexperts      69.5 of 256 a layer as priced"));
    free(text);
}

TEST(a_run_says_where_experts_are_priced_by_chance) {
    static const char code[] = "experts-by-chance";
    static const struct {
        const char *model, *setting;
        bool warns;
    } cases[] = {{"llada2-mini", "expert_router=trained", false},
                 {"llada2-mini", "expert_router=random", true},
                 {"llada2-mini", "experts_hit=69.5", false},
                 {"llada-moe", "expert_router=trained", true},
                 {"llada-moe", "expert_router=random", false},
                 {"llada-moe", "experts_hit=40", false},
                 {"llada-8b", "expert_router=random", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = PRINTS("run", "--gpu", "h200", "--model", cases[i].model, "--requests", "2",
                            "--set", cases[i].setting, "--verbose");
        ck_assert_msg((strstr(text, code) != NULL) == cases[i].warns, "%s %s", cases[i].model,
                      cases[i].setting);
        free(text);
    }
}

/* Whether a recorded run's configuration has those words. */
static bool holds(const char *path, const char *words) {
    sqlite3 *db = NULL;
    sqlite3_stmt *query = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(
        sqlite3_prepare_v2(db, "SELECT sum(instr(config, ?) > 0) FROM runs", -1, &query, NULL),
        SQLITE_OK);
    sqlite3_bind_text(query, 1, words, -1, SQLITE_STATIC);
    ck_assert_int_eq(sqlite3_step(query), SQLITE_ROW);
    const bool has = sqlite3_column_int(query, 0) > 0;
    sqlite3_finalize(query);
    sqlite3_close(db);
    return has;
}

/* A device with random weights is predicted with random weights' choice, and its record says so. */
TEST(a_live_run_with_random_weights_keeps_their_experts) {
    const char *live = scratch_path("live.db"), *simulated = scratch_path("simulated.db");
    char *text =
        PRINTS("run", "--backend", "cpu", "--model", "llada-moe-tiny", "--requests", "1",
               "--input-tokens", "32", "--output-tokens", "32", "--db", live, "--levels", "steps");
    free(text);
    ck_assert(holds(live, "expert_router = random"));
    text = PRINTS("replay", "--db", live, "--run", "1");
    free(text);
    text = PRINTS("run", "--gpu", "h200", "--model", "llada-moe", "--requests", "1", "--db",
                  simulated);
    free(text);
    ck_assert(holds(simulated, "expert_router = trained"));
    text = PRINTS("explain", "--backend", "cpu", "--model", "llada-moe-tiny", "--reuse", "1",
                  "--once", "--input-tokens", "32", "--output-tokens", "32");
    ck_assert_ptr_nonnull(strstr(text, "random weights: each token's choice random"));
    free(text);
}

/* ---- collectives ---- */

#define ON_4090 "--gpu", "rtx4090", "--model", "sdar-8b", "--system", "sdar"

TEST(assumed_collectives_are_a_warning_with_their_share) {
    char *text = PRINTS("run", ON_4090, "--requests", "4", "--set", "tensor_parallel=4", "--json");
    json_t *run = json_loads(text, 0, NULL), *warning;
    const json_t *kinds = json_object_get(json_object_get(run, "price_time_shares"), "by_kind");
    double share = json_number_value(json_object_get(kinds, "assumed")), said = 0;
    size_t i;
    json_array_foreach(json_object_get(run, "warnings"), i, warning) {
        const char *code = json_string_value(json_object_get(warning, "code"));
        said = strcmp(code, "collectives-assumed") == 0
                   ? json_number_value(json_object_get(warning, "value"))
                   : said;
    }
    ck_assert_double_gt(share, 0.1);
    ck_assert_double_eq_tol(said, share, 1e-9);
    json_decref(run);
    free(text);
    text = PRINTS("run", ON_4090, "--requests", "4");
    ck_assert_ptr_null(strstr(text, "collectives-assumed"));
    free(text);
    text = PRINTS("run", "--gpu", "h100", "--model", "sdar-8b", "--system", "sdar", "--requests",
                  "4", "--set", "tensor_parallel=4");
    ck_assert_ptr_null(strstr(text, "collectives-assumed"));
    free(text);
}

/* Long messages of measured tables, too, are bound by their link, and no exchange by a launch. */
TEST(what_gpus_exchange_is_bound_by_latency_or_by_the_link) {
    static const struct {
        const char *gpu, *requests, *bound;
    } cases[] = {{"rtx4090", "1", " latency "},
                 {"rtx4090", "256", " link "},
                 {"l40s", "256", " link "},
                 {"h100", "1", " latency "},
                 {"h100", "256", " link "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = PRINTS("explain", "--gpu", cases[i].gpu, "--model", "sdar-8b", "--system",
                            "sdar", "--set", "tensor_parallel=4", "--reuse", cases[i].requests);
        const char *line = strstr(text, "attention all-reduce");
        ck_assert_ptr_nonnull(line);
        const char *end = strchr(line, '\n'), *bound = strstr(line, cases[i].bound);
        ck_assert_msg(bound != NULL && bound < end, "%s %s: %.*s", cases[i].gpu, cases[i].requests,
                      (int)(end - line), line);
        free(text);
    }
}

/* Of public measurements; the page has what the command prints. */
TEST(the_model_of_links_is_within_half_of_what_was_measured_or_said_not_to_be) {
    char *text = PRINTS("list", "collectives", "--json");
    json_t *list = json_loads(text, 0, NULL), *row;
    const json_t *table = json_object_get(json_object_get(list, "collectives"), "rows");
    size_t i, n_public = 0;
    json_array_foreach(table, i, row) {
        const double off = json_number_value(json_object_get(row, "off"));
        const char *source = json_string_value(json_object_get(row, "source"));
        const double gpus = json_number_value(json_object_get(row, "GPUs"));
        const bool is_said = gpus >= 4 && strstr(source, "l40s") != NULL; /* a shared way */
        ck_assert_msg(is_said || (off < 1.5 && off > 1 / 1.5), "%s: %.2f", source, off);
        n_public += strchr(source, '#') != NULL;
    }
    ck_assert_uint_ge(n_public, 10);
    json_decref(list);
    free(text);
    text = PRINTS("list", "collectives");
    FILE *file = fopen("docs/collectives.md", "r");
    static char page[1 << 16];
    ck_assert_ptr_nonnull(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    ck_assert_msg(strstr(page, text) != NULL, "docs/collectives.md lacks:\n%.300s", text);
    free(text);
}

/* What GPUs without peer access exchange passes the host's memory, which eight share as four do. */
TEST(eight_gpus_without_peers_serve_no_more_than_four) {
    char *text = PRINTS("capacity", ON_4090, "--over", "tensor_parallel=4,8", "--slo",
                        "p95 latency<60s", "--requests", "500", "--no-curve", "--json");
    json_t *root = json_loads(text, 0, NULL);
    const json_t *found = json_object_get(root, "configurations");
    double req_s[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *capacity = json_object_get(json_array_get(found, i), "capacity_req_s");
        req_s[i] = json_number_value(json_object_get(capacity, "mean"));
        ck_assert_double_gt(req_s[i], 1);
    }
    ck_assert_double_le(req_s[1], req_s[0]);
    json_decref(root);
    free(text);
}

/* ---- one source of prices ---- */

#define MINI "--model", "llada2-mini", "--system", "sglang", "--requests", "4"
#define BOTH "--slo", "p95 latency<60s", "--no-curve", "--over"

static size_t times(const char *text, const char *words) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++) {
        n++;
    }
    return n;
}

TEST(prices_of_several_sources_are_warned_of_once_with_their_difference) {
    static const char *const over[] = {"gpu=h100,h800,h200", "tensor_parallel=1,2", "replicas=1,2"};
    for (size_t i = 0; i < 2; i++) {
        char *text = PRINTS("capacity", MINI, BOTH, over[i], "--gpu", "h100", "--verbose");
        ck_assert_uint_eq(times(text, "prices-differ:"), 1);
        ck_assert_ptr_nonnull(strstr(text, " % by measured prices, compared with imported ones"));
        free(text);
        text = PRINTS("capacity", MINI, BOTH, over[i], "--gpu", "h100", "--json");
        ck_assert_uint_eq(times(text, "\"prices-differ\""), 1);
        free(text);
        text = PRINTS("capacity", MINI, BOTH, over[i], "--gpu", "h100", "--price-source", "one",
                      "--verbose");
        ck_assert_uint_eq(times(text, "prices-differ:"), 0);
        free(text);
    }
    char *text = PRINTS("capacity", MINI, BOTH, over[2], "--gpu", "h100", "--verbose");
    ck_assert_uint_eq(times(text, "prices-differ:"), 0);
    free(text);
}

TEST(a_sweep_and_its_plot_warn_of_sources_of_prices) {
    static const char grid[] = "[sweep]\nsystems = sglang\nmodels = llada2-mini\n"
                               "gpus = h100, h800\nrates = 0.2\nrequests = 4\n";
    const char *file = scratch_write("sources.ini", grid), *db = scratch_path("sources.db");
    char *text = PRINTS("sweep", file, "--db", db);
    ck_assert_uint_eq(times(text, "prices differ (1 of 2)"), 1);
    free(text);
    text = PRINTS("plot", db, "-x", "gpu", "-y", "latency_s.p99", "--verbose");
    ck_assert_uint_eq(times(text, "prices-differ:"), 1);
    free(text);
    text = PRINTS("sweep", file, "--price-source", "imported", "--verbose");
    ck_assert_uint_eq(times(text, "prices-differ:"), 0);
    free(text);
}

TEST(one_source_prices_all_or_is_refused) {
    static const struct {
        const char *gpu, *source, *kind;
    } cases[] = {{"h100", "best", "measured"},        {"h100", "imported", "imported"},
                 {"h100", "measured", "measured"},    {"h100", "one", "measured"},
                 {"h800", "imported", "transferred"}, {"h800", "measured", "transferred"},
                 {"h200", "imported", "transferred"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text =
            PRINTS("run", MINI, "--gpu", cases[i].gpu, "--price-source", cases[i].source, "--json");
        json_t *run = json_loads(text, 0, NULL);
        const json_t *prices = json_object_get(run, "prices");
        const char *of = json_string_value(json_object_get(prices, "of"));
        ck_assert_str_eq(json_string_value(json_object_get(prices, "kind")), cases[i].kind);
        ck_assert_str_eq(of, strcmp(cases[i].source, "imported") == 0   ? "imported"
                             : strcmp(cases[i].source, "measured") == 0 ? "measured"
                                                                        : "measured");
        json_decref(run);
        free(text);
    }
    REFUSES(2, "there are no measured prices of llada2-mini on l40s", "run", MINI, "--gpu", "l40s",
            "--price-source", "measured");
    REFUSES(2, "there are no imported prices of llada2-mini on gb200", "run", MINI, "--gpu",
            "gb200", "--price-source", "imported");
    REFUSES(2, "--price-source: 'all' is neither", "run", MINI, "--price-source", "all");
    REFUSES(2, "--price-source and --roofline exclude", "run", MINI, "--roofline", "--price-source",
            "measured");
}

TEST(transferred_prices_come_with_the_error_of_the_nearest_transfer) {
    char *text = PRINTS("explain", "--gpu", "a100-40g");
    ck_assert_ptr_nonnull(strstr(text, "\ntransfer     errors of the nearest that can be checked, "
                                       "a100-80g -> "));
    free(text);
    text = PRINTS("run", "--gpu", "a100-40g", "--requests", "5");
    ck_assert_ptr_nonnull(strstr(text, "\ntransfer     errors of the nearest"));
    free(text);
    text = PRINTS("list", "gpus");
    ck_assert_ptr_nonnull(strstr(text, "transferred from a100-80g (products off by "));
    free(text);
    text = PRINTS("profile", "transfer", "--check");
    ck_assert_ptr_nonnull(strstr(text, "l40s          rtx4090 "));
    ck_assert_ptr_nonnull(strstr(text, "h100          a100-80g "));
    ck_assert_ptr_null(strstr(text, "all_reduce"));
    free(text);
}

TEST(a_transfer_that_makes_no_sense_is_refused) {
    REFUSES(2, "profile transfer needs --from GPU and --to GPU, or --check", "profile", "transfer",
            "--from", "h100");
    REFUSES(2, "profile transfer: --from and --to are the same GPU", "profile", "transfer",
            "--from", "h100", "--to", "h100");
    REFUSES(2, "profile transfer: --check takes all pairs of shipped profiles", "profile",
            "transfer", "--check", "--to", "h100");
    REFUSES(2, "a100-40g has no profile of its own: its prices are transferred from a100-80g",
            "profile", "transfer", "--from", "a100-40g", "--to", "rtx4090");
    REFUSES(2, "cpu has no profile: its prices are roofline", "profile", "transfer", "--from",
            "cpu", "--to", "rtx4090");
    const char *other = scratch_write("letter.txt", "Dear reader\n");
    struct output output =
        CLI("profile", "transfer", "--from", "h100", "--to", "h200", "--out", other);
    ck_assert_int_eq(output.status, 2);
    output_free(&output);
}

/* A profile of a test with these comments. */
static const char *commented(const char *name, const char *comments) {
    char text[4096];
    snprintf(text, sizeof text, "# Operator times of a test.\n%s%s", comments,
             strstr(rows, "# date"));
    return scratch_write(name, text);
}

TEST(a_profile_of_another_gpu_or_element_is_refused) {
    char sentence[512];
    const char *other = commented("a100.csv", "# kind: measured\n# source: a test\n"
                                              "# gpu: NVIDIA A100 SXM4 80 GB\n");
    snprintf(sentence, sizeof sentence,
             "%s is a profile of 'NVIDIA A100 SXM4 80 GB', but h200 is 'NVIDIA H200 SXM 141 GB'",
             other);
    REFUSES(2, sentence, "run", TINY, "--profile", other);
    REFUSES(2, sentence, "explain", "--gpu", "h200", "--model", "llada-tiny", "--profile", other);
    REFUSES(2, sentence, "profile", "show", "h200", "--profile", other);
    REFUSES(2, sentence, "profile", "transfer", "--from", "h200", "--to", "l40s", "--profile",
            other);
    free(PRINTS("run", "--gpu", "a100-80g", "--model", "llada-tiny", "--requests", "20",
                "--profile", other));
    const char *scaled = commented("scaled.csv", "# kind: transferred\n"
                                                 "# source: l40s, scaled from h200\n# for: l40s\n");
    snprintf(sentence, sizeof sentence, "%s is a profile for l40s, not for h200", scaled);
    REFUSES(2, sentence, "run", TINY, "--profile", scaled);
    free(PRINTS("run", "--gpu", "l40s", "--model", "llada-tiny", "--requests", "20", "--profile",
                scaled));
    const char *wide =
        commented("wide.csv", "# kind: measured\n# source: a test\n# dtype: float32\n");
    snprintf(sentence, sizeof sentence,
             "%s was measured in float32, the system's weights are bf16: --set "
             "storage.weights=f32",
             wide);
    REFUSES(2, sentence, "run", TINY, "--profile", wide);
    REFUSES(2, sentence, "explain", "--gpu", "h200", "--model", "llada-tiny", "--profile", wide);
    free(PRINTS("run", TINY, "--profile", wide, "--set", "storage.weights=f32"));
}

TEST(a_transfer_overwrites_no_measurement_unless_told) {
    const char *out = own_profile();
    char sentence[512];
    snprintf(sentence, sizeof sentence,
             "%s holds a profile that was not transferred; --replace overwrites it", out);
    REFUSES(2, sentence, "profile", "transfer", "--from", "h200", "--to", "rtx4090", "--out", out);
    char *text = scratch_read(out);
    ck_assert_str_eq(text, rows);
    free(text);
    /* A full disk leaves it, and nothing beside it. */
    struct output output =
        CLI_AS(&(const struct child){.max_file_bytes = 1 << 12}, "profile", "transfer", "--from",
               "h200", "--to", "rtx4090", "--replace", "--out", out);
    ck_assert_int_eq(output.status, 1);
    output_free(&output);
    text = scratch_read(out);
    ck_assert_str_eq(text, rows);
    free(text);
    ck_assert_int_ne(access(scratch_path("own.csv.new"), F_OK), 0);
    free(PRINTS("profile", "transfer", "--from", "h200", "--to", "rtx4090", "--replace", "--out",
                out));
    /* What was transferred may be transferred anew, but not on. */
    free(PRINTS("profile", "transfer", "--from", "h200", "--to", "l40s", "--out", out));
    text = scratch_read(out);
    ck_assert_ptr_nonnull(strstr(text, "\n# source: l40s, scaled from h200 "));
    ck_assert_ptr_nonnull(strstr(text, "\n# for: l40s\n"));
    free(text);
    snprintf(sentence, sizeof sentence,
             "%s is transferred itself: transfer from what it was scaled from", out);
    REFUSES(2, sentence, "profile", "transfer", "--from", "l40s", "--to", "rtx4090", "--profile",
            out);
    text = PRINTS("profile", "show", "l40s", "--profile", out);
    ck_assert_ptr_nonnull(strstr(text, "\nerrors_of_the_nearest_transfer h"));
    free(text);
}

SUITE("cli profile")
