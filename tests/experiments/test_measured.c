/* Figures of raw measurements: which rows and columns count, and files that are not what they
 * should be. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/study/measured.h"
#include "tests/support/suite.h"

#define HEAD                                                                                       \
    "[figure]\nkind = measured\nfolder = raw\nfiles = a.csv, b.csv\nalong = canvas, context\n"
#define PANELS                                                                                     \
    "[panel small]\nwhere = model=small\nvalue = ms\n[panel large]\nwhere = model=large\n"         \
    "value = ms\n"

static char folder[] = "/tmp/unmask-measured-XXXXXX";

static void put(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/raw/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

/* Steps of two models: three of one length, whose median is 2, and what they are shown over, in
 * another file under another name of the axis. */
static void put_steps(void) {
    put("a.csv", "model,mode,canvas,ms,plan\nsmall,ours,64,9,0.5\nsmall,ours,64,2,0.5\n"
                 "small,ours,64,1,0.5\nsmall,ours,128,5,1\nlarge,ours,64,10,\n");
    put("b.csv", "model,kind,context,ms\nsmall,theirs,64,4\nsmall,theirs,128,4\n"
                 "large,theirs,64,8\n");
}

static int read_spec(const char *text, struct measured *out, struct err *err) {
    struct config config;
    ck_assert_int_eq(config_parse("spec.ini", text, strlen(text), &config, err), 0);
    int status = measured_read(&config, out, err);
    config_fini(&config);
    return status;
}

static struct measured_values find(const char *spec, struct measured *m) {
    struct measured_values values;
    struct err err = {0};
    ck_assert_msg(read_spec(spec, m, &err) == 0, "%s", err.text);
    ck_assert_msg(measured_find(m, NULL, &values, &err) == 0, "%s", err.text);
    return values;
}

START_TEST(medians_of_the_rows_named_are_shown_over_others) {
    static const struct {
        const char *show;
        double small, later, large;
    } expected[] = {{"value", 2, 5, 10},
                    {"ratio", 0.5, 1.25, 1.25},
                    {"increase", -50, 25, 25},
                    {"reduction", 50, -25, -25},
                    {"share", 50, 125, 125}};
    put_steps();
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char spec[1024];
        struct measured m;
        snprintf(spec, sizeof spec,
                 HEAD "show = %s\n" PANELS "[series ours]\nwhere = mode=ours\nover = kind=theirs\n",
                 expected[i].show);
        struct measured_values v = find(spec, &m);
        ck_assert_uint_eq(v.n_x, 2);
        ck_assert(v.x[0] == 64 && v.x[1] == 128);
        ck_assert_double_eq_tol(v.y[0][0][0], expected[i].small, 1e-12);
        ck_assert_double_eq_tol(v.y[0][0][1], expected[i].later, 1e-12);
        ck_assert_double_eq_tol(v.y[1][0][0], expected[i].large, 1e-12);
        ck_assert(isnan(v.y[1][0][1]));
    }
}
END_TEST

START_TEST(a_value_is_a_sum_of_columns_where_all_of_them_are_measured) {
    struct measured m;
    put_steps();
    struct measured_values v =
        find(HEAD PANELS "[series ours]\nvalue = ms + plan\nwhere = mode=ours\n", &m);
    ck_assert_double_eq_tol(v.y[0][0][0], 2.5, 1e-12);
    ck_assert_double_eq_tol(v.y[0][0][1], 6, 1e-12);
    ck_assert(isnan(v.y[1][0][0])); /* its plan was not measured */
}
END_TEST

START_TEST(a_row_of_the_paper_picks_its_points) {
    static const struct {
        const char *panel, *pick;
        double value;
    } expected[] = {{"", "min", 2},       {"", "max", 10},      {"", "mean", 17.0 / 3},
                    {"small", "max", 5},  {"large", "min", 10}, {"small", "128", 5},
                    {"large", "128", NAN}};
    put_steps();
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char spec[1024];
        struct measured m;
        snprintf(spec, sizeof spec,
                 HEAD PANELS "[series ours]\nwhere = mode=ours\n[row 1]\nquantity = q\nsystem = s\n"
                             "series = ours\npanel = %s\npick = %s\n",
                 expected[i].panel[0] != '\0' ? expected[i].panel : "", expected[i].pick);
        if (expected[i].panel[0] == '\0') { /* an empty value is no value */
            char *line = strstr(spec, "panel = \n");
            memmove(line, line + strlen("panel = \n"), strlen(line + strlen("panel = \n")) + 1);
        }
        struct measured_values v = find(spec, &m);
        double picked = measured_pick(&m, &v, &m.rows[0]);
        ck_assert(isnan(expected[i].value) ? isnan(picked)
                                           : fabs(picked - expected[i].value) < 1e-12);
    }
}
END_TEST

static void refuses_spec(const char *spec, const char *sentence) {
    struct measured m;
    struct err err = {0};
    ck_assert_int_eq(read_spec(spec, &m, &err), ERR_USAGE);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "%s", err.text);
}

START_TEST(a_specification_that_draws_nothing_is_refused) {
    refuses_spec("[figure]\nkind = measured\n", "has folder, files, along, panels and series");
    refuses_spec(HEAD "show = twice\n", ":6: 'twice' is not value, ratio,");
    refuses_spec(HEAD "log_x = maybe\n", ":6: 'maybe' is not on or off");
    refuses_spec(HEAD "[panel a]\nwhat = b\n", ":7: unknown key 'what' in [panel a]");
    refuses_spec(HEAD "show = ratio\n" PANELS "[series s]\nwhere = a=b\n", "shown over nothing");
    refuses_spec(HEAD "[panel a]\nwhere = a=b\n[series s]\nwhere = a=b\n",
                 "neither [series s] nor [panel a] has a value");
    refuses_spec(HEAD PANELS "[series s]\nwhere = a=b\n[row 1]\nquantity = q\nseries = t\n"
                             "pick = min\n",
                 "the row of 'q' picks 'min' of the series 't'");
    refuses_spec(HEAD PANELS "[series s]\nwhere = a=b\n[row 1]\nquantity = q\nseries = s\n"
                             "pick = some\n",
                 "picks 'some'");
}
END_TEST

static void refuses_files(const char *sentence) {
    struct measured m;
    struct measured_values values;
    struct err err = {0};
    ck_assert_int_eq(read_spec(HEAD PANELS "[series ours]\nwhere = mode=ours\n", &m, &err), 0);
    ck_assert_int_ne(measured_find(&m, NULL, &values, &err), 0);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "%s", err.text);
}

START_TEST(measurements_that_cannot_be_read_are_named) {
    char path[256];
    put_steps();
    put("b.csv", "model,mode\nsmall\n");
    refuses_files("raw/b.csv:2: expected 2 cells");
    put("b.csv", "model,mode,context,ms\n");
    refuses_files("raw/b.csv has no measurements");
    put("b.csv", "");
    refuses_files("raw/b.csv has no measurements");
    snprintf(path, sizeof path, "%s/raw/b.csv", folder);
    unlink(path);
    refuses_files("cannot read the measurements");
    put("a.csv", "model,mode,canvas,ms\nsmall,none,64,1\n");
    put("b.csv", "model,mode,canvas,ms\nsmall,none,64,1\n");
    refuses_files("no measurement is among the figure's series");
}
END_TEST

int main(void) {
    char path[256];
    const TTest *const tests[] = {
        medians_of_the_rows_named_are_shown_over_others,
        a_value_is_a_sum_of_columns_where_all_of_them_are_measured,
        a_row_of_the_paper_picks_its_points,
        a_specification_that_draws_nothing_is_refused,
        measurements_that_cannot_be_read_are_named,
    };
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/raw", folder);
    mkdir(path, 0777);
    setenv("UNMASK_DATA", folder, 1);
    int status = SUITE_RUN("measured", tests);
    snprintf(path, sizeof path, "rm -rf %s", folder);
    return system(path) != 0 ? 1 : status;
}
