/* Tables of raw measurements: files that are not what they should be, and what queries take of
 * them.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/store/store.h"
#include "tests/support/scratch.h"
#include "tests/support/study.h"

/* Steps of two models: three of one length, whose median is 2, and what they are shown over, in
 * another file with other columns. */
static void put_steps(void) {
    scratch_write("a.csv", "model,mode,canvas,ms,plan\nsmall,ours,64,9,0.5\nsmall,ours,64,2,0.5\n"
                           "small,ours,64,1,0.5\nsmall,ours,128,5,1\nlarge,\"ours\",64,10,\n");
    scratch_write("b.csv",
                  "model,kind,context,ms\nsmall,\"their, own\",64,4\nsmall,\"their, own\",128,4\n"
                  "large,\"their, own\",64,8\n");
}

static void study_of(char text[512], const char *rest) {
    snprintf(text, 512,
             "[figure]\ntitle = t\nkind = lines\nquery = SELECT 1 AS x, 2 AS y\n[csv raw]\n"
             "folder = %s\nfile = a.csv, b.csv\n%s",
             scratch_folder, rest);
}

static struct studied make(const char *rest) {
    char text[512], path[64];
    struct studied made;
    struct err err = {0};
    const struct study_changes none = {.n_seeds = 1};
    study_of(text, rest);
    ck_assert_msg(study_try(study_file(text, path), &none, 2, &made, &err) == 0, "%s", err.text);
    remove(path);
    return made;
}

TEST(files_of_different_columns_are_one_table) {
    put_steps();
    struct studied made = make("");
    ck_assert_double_eq(study_number(&made, "SELECT count(*) FROM raw"), 8);
    ck_assert_double_eq(study_number(&made, "SELECT count(*) FROM raw WHERE file = 'b.csv' AND "
                                            "mode IS NULL AND canvas IS NULL AND ms > 0"),
                        3);
    ck_assert_double_eq(
        study_number(&made, "SELECT count(*) FROM raw WHERE kind = 'their, own' AND context = 64"),
        2);
    studied_fini(&made);
}

TEST(medians_are_of_the_rows_that_have_a_number) {
    put_steps();
    struct studied made = make("");
    static const struct {
        const char *value;
        double expected;
    } cases[] = {{"median(ms) FILTER (WHERE mode = 'ours' AND canvas = 64 AND model = 'small')", 2},
                 {"median(ms) FILTER (WHERE mode = 'ours')", 5},
                 {"median(ms + plan) FILTER (WHERE canvas = 64)", 2.5},
                 {"median(ms) FILTER (WHERE model = 'small' AND canvas = 64)"
                  " / median(ms) FILTER (WHERE model = 'small' AND kind LIKE 'their%')",
                  0.5},
                 {"mean(plan)", 0.625},
                 {"median(ms) FILTER (WHERE mode = 'none')", NAN},
                 {"median(model)", NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char query[256];
        snprintf(query, sizeof query, "SELECT %s FROM raw", cases[i].value);
        double found = study_number(&made, query);
        ck_assert_msg(isnan(cases[i].expected) ? isnan(found) : found == cases[i].expected,
                      "%s: %g", query, found);
    }
    studied_fini(&made);
}

/* What a table [select] has, the next may read; of the figure's own, `drawn` is the last. */
TEST(tables_are_made_of_tables) {
    put_steps();
    struct studied made =
        make("[select a]\nquery = SELECT canvas, ms FROM raw\n  WHERE mode = 'ours'\n"
             "[select b]\nquery = SELECT max(ms) AS most FROM a\n"
             "[select none]\nquery = SELECT ms AS gone FROM a WHERE 0\n");
    ck_assert_double_eq(study_number(&made, "SELECT most FROM b"), 10);
    ck_assert_double_eq(study_number(&made, "SELECT count(gone) FROM none"), 0);
    ck_assert_double_eq(study_number(&made, "SELECT y FROM drawn"), 2);
    studied_fini(&made);
}

static void refuses(const char *sentence) {
    char text[512];
    study_of(text, "");
    study_refuses(text, sentence);
}

TEST(measurements_that_cannot_be_read_are_named) {
    char path[256];
    put_steps();
    scratch_write("b.csv", "model,mode\nsmall\n");
    refuses("/b.csv:2: found 1 field");
    scratch_write("b.csv", "model,mode,context,ms\n");
    refuses("/b.csv has no measurements");
    scratch_write("b.csv", "");
    refuses("/b.csv:1: there is no readable header");
    snprintf(path, sizeof path, "%s/b.csv", scratch_folder);
    unlink(path);
    refuses("/b.csv: No such file or directory");
}

TEST(recorded_runs_are_a_table_with_the_fields_of_their_summaries) {
    const char *database = scratch_path("r.db");
    char text[320], path[64];
    struct store *store;
    struct err err = {0};
    struct studied made;
    const struct study_changes none = {.n_seeds = 1};
    ck_assert_int_eq(store_open(database, STORE_WRITE, &store, &err), 0);
    for (int i = 0; i < 2; i++) {
        struct run_facts facts = run_facts_unknown();
        struct summary summary;
        struct sink sink;
        int64_t run;
        facts.system = i == 0 ? "first" : "second";
        summary_init(&summary, NULL);
        summary.requests = 7;
        summary_finish(&summary);
        ck_assert_int_eq(store_run_begin(store, &facts, STORE_REQUESTS, &run, &sink, &err), 0);
        ck_assert_int_eq(store_run_commit(store, &summary, &facts, &err), 0);
        summary_fini(&summary);
    }
    store_close(store);
    snprintf(text, sizeof text,
             "[figure]\ntitle = t\nkind = bars\nquery = SELECT system AS x, requests AS y\n"
             "  FROM recorded ORDER BY run\n[recorded]\nfile = %s\n",
             database);
    ck_assert_msg(study_try(study_file(text, path), &none, 1, &made, &err) == 0, "%s", err.text);
    ck_assert_double_eq(study_number(&made, "SELECT count(*) FROM drawn WHERE y = 7"), 2);
    ck_assert_double_eq(study_number(&made, "SELECT run FROM recorded WHERE system = 'second'"), 2);
    ck_assert(isnan(study_number(&made, "SELECT latency_s_p99 FROM recorded LIMIT 1")));
    studied_fini(&made);
    remove(path);
}

SUITE("measured")
