/* The base library: numbers, random streams, errors. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "sim/base/err.h"
#include "sim/base/input/field.h"
#include "sim/base/input/path.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/base/rng.h"
#include "sim/base/sort.h"
#include "sim/base/wait.h"
#include "sim/base/warning.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

TEST(numbers_are_read_whole_or_not_at_all) {
    uint64_t u = 7;
    ck_assert(num_u64("18446744073709551615", UINT64_MAX, &u) && u == UINT64_MAX);
    ck_assert(!num_u64("18446744073709551616", UINT64_MAX, &u));
    ck_assert(!num_u64("-1", UINT64_MAX, &u) && !num_u64("", 9, &u) && !num_u64("1x", 9, &u));
    double d;
    ck_assert(num_f64("-1.5e3", &d) && d == -1500.0);
    ck_assert(!num_f64("nan", &d) && !num_f64("inf", &d) && !num_f64("1e999", &d));
    ck_assert(!num_f64("0x10", &d) && !num_f64("1 ", &d));
    ck_assert(!num_u64("18446744073709551620", UINT64_MAX, &u));
    ck_assert(!num_f64(".", &d) && !num_f64("1.2.3", &d) && !num_f64("", &d) && !num_f64("e", &d));
    ck_assert(num_with_unit("16 GiB", "bytes", &d) && d == 17179869184.0);
    ck_assert(num_with_unit("2.5ms", "ns", &d) && d == 2.5e6);
    ck_assert(!num_with_unit("2.5ms", "bytes", &d));
}

/* Fewer digits are read without strtod, and more with it: all give the nearest double. */
TEST(a_decimal_is_read_as_the_nearest_double) {
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        char text[40];
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        const int n_digits = 1 + (int)(state >> 60), point = (int)(state >> 40 & 15);
        int n = snprintf(text, sizeof text, "%0*" PRIu64, n_digits,
                         (state >> 8) % (uint64_t)pow(10, n_digits));
        if (point < n) {
            memmove(text + point + 1, text + point, (size_t)(n - point + 1));
            text[point] = '.';
        }
        double d = -1;
        ck_assert_msg(num_f64(text, &d) && d == strtod(text, NULL), "%s: %.17g", text, d);
    }
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of as many as are sorted in either way, with equal ones, of all sizes and signs. */
TEST(doubles_are_sorted_as_they_compare) {
    enum { MOST = 5000 };
    static const size_t numbers[] = {0, 1, 2, 63, 64, 65, 66, 1000, MOST};
    static double values[MOST], wanted[MOST];
    struct rng rng = rng_stream(1, "sort");
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        const size_t n = numbers[k];
        for (size_t i = 0; i < n; i++) {
            const double u = rng_uniform(&rng);
            values[i] = i % 7 == 0   ? floor(9 * u)
                        : i % 5 == 0 ? ldexp(u, (int)(rng_next(&rng) % 2000) - 1000)
                                     : -u;
        }
        if (n > 4) {
            values[1] = INFINITY;
            values[2] = -INFINITY;
            values[3] = 0;
        }
        memcpy(wanted, values, sizeof wanted);
        qsort(wanted, n, sizeof *wanted, by_value);
        sort_doubles(values, n);
        ck_assert(n == 0 || memcmp(values, wanted, n * sizeof *values) == 0);
    }
}

TEST(items_are_sorted_by_key_and_equal_ones_keep_their_order) {
    enum { N = 3000 };
    static struct sort_item items[N];
    struct rng rng = rng_stream(2, "sort");
    for (size_t i = 0; i < N; i++) {
        items[i] = (struct sort_item){sort_key(floor(200 * (rng_uniform(&rng) - 0.5))), i};
    }
    sort_items(items, N);
    for (size_t i = 1; i < N; i++) {
        ck_assert(items[i - 1].key < items[i].key ||
                  (items[i - 1].key == items[i].key && items[i - 1].place < items[i].place));
    }
    ck_assert(sort_key(-2) < sort_key(-1) && sort_key(-1) < sort_key(0));
    ck_assert(sort_key(0) < sort_key(1e-300) && sort_key(1e300) < sort_key(INFINITY));
    sort_items(items, 0);
}

TEST(a_misspelt_name_is_met_with_the_nearest_known_one) {
    static const char *const names[] = {"retention", "pool_kernel", NULL};
    ck_assert_str_eq(name_nearest("retntion", names), "retention");
    ck_assert_ptr_null(name_nearest("zzz", names));
    static const char *const more[] = {"l4", "dllm-serve-fig3", "rtx4090", "l40s", "run", NULL};
    ck_assert_str_eq(name_nearest("rnu", more), "run"); /* two letters swapped */
    ck_assert_str_eq(name_nearest("4090", more), "rtx4090");
    ck_assert_str_eq(name_nearest("Fig3", more), "dllm-serve-fig3");
    ck_assert_str_eq(name_nearest("l40", more), "l40s");
    const char *const fields[] = {"prices_over_imported", "rate", "bound_latency_p99_s",
                                  "latency_s_p99", NULL};
    ck_assert_str_eq(name_nearest("latency_p99", fields), "latency_s_p99"); /* the nearer one */
    ck_assert_str_eq(name_nearest("rte", fields), "rate");                  /* not impo-rte-d */
    ck_assert_str_eq(name_nearest("imported", fields), "prices_over_imported");
    ck_assert_str_eq(name_nearest("p99_latency", fields), "latency_s_p99"); /* another order */
    ck_assert_str_eq(name_nearest("over-imported", fields), "prices_over_imported");
    ck_assert_ptr_null(name_nearest("s", more)); /* too little to tell */
    char hint[NAME_HINT_CHARS];
    ck_assert_str_eq(name_hint("poolkernel", names, hint), "; did you mean 'pool_kernel'?");
    ck_assert_str_eq(name_hint("zzz", names, hint), "");
}

TEST(a_path_in_a_file_begins_at_its_folder) {
    char text[32];
    static const char *const cases[][3] = {
        {"a/b/c.ini", "x.so", "a/b/x.so"},       {"a/b/c.ini", "./x.so", "a/b/x.so"},
        {"a/c.ini", "../x/y.so", "a/../x/y.so"}, {"/c.ini", "x.so", "/x.so"},
        {"a/c.ini", "/x.so", "/x.so"},           {"c.ini", "./x.so", "./x.so"},
        {"/dev/fd/63", "./x.so", "./x.so"},      {"/dev/stdin", "stdin", "/dev/stdin"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert(path_named_in(cases[i][0], cases[i][1], text, sizeof text));
        ck_assert_str_eq(text, cases[i][2]);
    }
    ck_assert(path_named_in("a/b", "x", text, 4) && !path_named_in("a/b", "xy", text, 4));
}

TEST(sizes_are_written_for_people) {
    char text[32];
    ck_assert_str_eq(num_format_bytes(text, sizeof text, 1023 * 0x1p20), "1023 MiB");
    ck_assert_str_eq(num_format_bytes(text, sizeof text, 16.03e9), "14.9 GiB");
    ck_assert_str_eq(num_format_bytes(text, sizeof text, 999.7), "999.7 B");
    ck_assert_str_eq(num_format_bytes(text, sizeof text, 0), "0 B");
    ck_assert_str_eq(num_format_ns(text, sizeof text, 1500), "1.5 us");
    ck_assert_str_eq(num_format_ns(text, sizeof text, 2.5e12), "2500 s");
}

TEST(streams_depend_on_their_name_and_nothing_else) {
    struct rng a = rng_stream(1, "arrivals"), b = rng_stream(1, "arrivals");
    struct rng c = rng_stream(1, "lengths"), d = rng_stream(2, "arrivals");
    uint64_t first = rng_next(&a);
    ck_assert_uint_eq(first, rng_next(&b));
    ck_assert_uint_ne(first, rng_next(&c));
    ck_assert_uint_ne(first, rng_next(&d));
}

TEST(uniform_draws_have_the_mean_and_variance_of_a_uniform) {
    struct rng rng = rng_stream(3, "moments");
    const int n = 200000;
    double sum = 0, squares = 0, keyed = 0;
    for (int i = 0; i < n; i++) {
        double u = rng_uniform(&rng);
        ck_assert(u > 0 && u < 1);
        sum += u;
        squares += u * u;
        keyed += rng_keyed(1, (uint64_t)i, 2, 3);
    }
    ck_assert_double_eq_tol(sum / n, 0.5, 0.005);
    ck_assert_double_eq_tol(squares / n - (sum / n) * (sum / n), 1.0 / 12, 0.005);
    ck_assert_double_eq_tol(keyed / n, 0.5, 0.005);
}

/* What a close writes may fail as any write: the file beside goes, the old one stays. */
TEST(an_output_that_cannot_be_closed_leaves_the_old_one) {
    const char *path = scratch_write("kept.txt", "old");
    struct err err = {0};
    struct output out;
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 10;
    ck_assert_int_eq(output_open(path, &out, &err), 0);
    fputs("longer than ten characters", out.file);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(output_close(&out, true, &err), ERR_WORLD);
    setrlimit(RLIMIT_FSIZE, &before);
    char *text = scratch_read(path);
    ck_assert_str_eq(text, "old");
    ck_assert_int_ne(access(out.beside, F_OK), 0);
    free(text);
}

/* ---- where outputs go ---- */

static void check_text(const char *path, const char *expected) {
    char *text = scratch_read(path);
    ck_assert_str_eq(text, expected);
    free(text);
}

static void write_output(const char *path, const char *text, enum err_kind kind) {
    struct err err = {0};
    struct output out;
    ck_assert_int_eq(output_open(path, &out, &err), kind);
    if (kind == ERR_NONE) {
        fputs(text, out.file);
        ck_assert_int_eq(output_close(&out, true, &err), 0);
    }
}

/* Of links, absolute ones and those of their folder, the file at their end is replaced, or made;
 * the links stay, and so does its mode. */
TEST(an_output_replaces_what_a_link_leads_to_and_not_the_link) {
    const char *file = scratch_write("real.txt", "old");
    char folder[600], deep[700], link[700], text[16];
    struct stat facts;
    snprintf(folder, sizeof folder, "%s", scratch_path("folder"));
    snprintf(deep, sizeof deep, "%s/near", folder);
    snprintf(link, sizeof link, "%s", scratch_path("far"));
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(symlink("../real.txt", deep), 0);
    ck_assert_int_eq(symlink(deep, link), 0);
    ck_assert_int_eq(chmod(file, 0640), 0);
    write_output(link, "new", ERR_NONE);
    check_text(file, "new");
    ck_assert_int_eq(readlink(deep, text, sizeof text), 11);
    ck_assert(stat(file, &facts) == 0 && (facts.st_mode & 0777) == 0640);
    /* A link that leads to nothing yet. */
    ck_assert_int_eq(unlink(file), 0);
    write_output(deep, "made", ERR_NONE);
    check_text(file, "made");
    /* One that leads to itself. */
    ck_assert(unlink(deep) == 0 && symlink("near", deep) == 0);
    write_output(deep, "", ERR_WORLD);
    /* Of forty links one after the other the last is followed, of forty-one not. */
    char name[700];
    for (int i = 0; i < 41; i++) {
        char before[32];
        snprintf(name, sizeof name, "%s/%d", folder, i);
        snprintf(before, sizeof before, "%d", i - 1);
        ck_assert_int_eq(symlink(i == 0 ? "../real.txt" : before, name), 0);
    }
    snprintf(name, sizeof name, "%s/39", folder);
    write_output(name, "forty", ERR_NONE);
    check_text(file, "forty");
    snprintf(name, sizeof name, "%s/40", folder);
    write_output(name, "", ERR_WORLD);
}

TEST(what_is_no_file_is_written_as_it_stands) {
    struct err err = {0};
    struct output out;
    char path[64], text[16] = "";
    int pipe_ends[2];
    ck_assert_int_eq(pipe(pipe_ends), 0);
    static const char *const folders[] = {"/dev/fd", "/proc/self/fd"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d", folders[i], pipe_ends[1]);
        write_output(path, i == 0 ? "ab" : "cd", ERR_NONE);
    }
    ck_assert_int_eq(read(pipe_ends[0], text, sizeof text), 4);
    ck_assert_str_eq(text, "abcd");
    /* Standard output and error, each its own. */
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        int before = dup(fd);
        char found[2];
        ck_assert_int_eq(dup2(pipe_ends[1], fd), fd);
        write_output(fd == STDOUT_FILENO ? "/dev/stdout" : "/dev/stderr", "x", ERR_NONE);
        ck_assert_int_eq(dup2(before, fd), fd);
        ck_assert_int_eq(read(pipe_ends[0], found, sizeof found), 1);
        close(before);
    }
    write_output("/dev/null", "x", ERR_NONE);
    snprintf(path, sizeof path, "/dev/fd/%d", 999);
    write_output(path, "x", ERR_WORLD);
    /* What others write must be a file, which is there under its own name. */
    ck_assert_int_eq(output_reserve("/dev/null", &out, &err), ERR_WORLD);
    err = (struct err){0};
    const char *file = scratch_path("reserved");
    ck_assert_int_eq(output_reserve(file, &out, &err), 0);
    ck_assert(out.file == NULL && access(out.beside, W_OK) == 0 && access(file, F_OK) != 0);
    ck_assert(strncmp(out.beside, file, strlen(file)) == 0);
    ck_assert_int_eq(output_close(&out, false, &err), 0);
    ck_assert(access(out.beside, F_OK) != 0 && access(file, F_OK) != 0);
    /* What is unfinished goes where the program ends, unless it is kept. */
    struct output kept;
    ck_assert_int_eq(output_reserve(scratch_path("a"), &out, &err), 0);
    ck_assert_int_eq(output_reserve(scratch_path("b"), &kept, &err), 0);
    output_keep(&kept);
    output_abandon();
    ck_assert(access(out.beside, F_OK) != 0 && access(kept.beside, F_OK) == 0);
    write_output("/no/such/folder/x", "x", ERR_WORLD);
}

TEST(a_file_that_grows_has_one_writer) {
    struct err err = {0};
    FILE *first = NULL, *second = NULL;
    const char *path = scratch_write("growing", "one\n"), *link = scratch_path("linked");
    ck_assert_int_eq(output_grow(path, "calibration", &first, &err), 0);
    ck_assert_int_eq(output_grow(path, "calibration", &second, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "growing' is being written by another calibration");
    ck_assert_ptr_null(second);
    fputs("two\n", first);
    fclose(first);
    check_text(path, "one\ntwo\n");
    err = (struct err){0};
    ck_assert_int_eq(output_grow(path, "calibration", &second, &err), 0);
    rewind(second);
    ck_assert_int_eq(fgetc(second), 'o');
    fclose(second);
    ck_assert_int_eq(symlink(path, link), 0);
    ck_assert_int_eq(output_grow(link, "x", &second, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "it is a link");
    err = (struct err){0};
    ck_assert_int_eq(output_grow("/dev/null", "x", &second, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "'/dev/null': it is not a file");
}

TEST(who_waits_is_known_by_when_it_began) {
    const uint64_t before = wait_count();
    ck_assert(!wait_is_on(before));
    int first = wait_begin(), second = wait_begin();
    ck_assert_uint_eq(wait_count(), before + 2);
    ck_assert(!wait_is_on(before) && wait_is_on(before + 1) && wait_is_on(before + 2));
    wait_end(first);
    ck_assert(!wait_is_on(before + 1) && wait_is_on(before + 2));
    wait_end(second);
    ck_assert(!wait_is_on(before + 2));
    /* Places are used again, and more than there are do no harm. */
    for (int i = 0; i < 1000; i++) {
        wait_end(wait_begin());
    }
    int many[300];
    for (int i = 0; i < 300; i++) {
        many[i] = wait_begin();
    }
    for (int i = 0; i < 300; i++) {
        wait_end(many[i]);
    }
    ck_assert(!wait_is_on(wait_count()));
}

TEST(settings_that_do_nothing_are_told_one_by_one_and_then_together) {
    struct warnings warnings = {.n = 0};
    warnings_add_unused(&warnings, "a", "1", "--set", "b = 2");
    ck_assert_str_eq(warnings.items[0].text,
                     "a = 1 (--set) does nothing here: it is read where b = 2");
    warnings_add_unused(&warnings, "k1", NULL, NULL, "c");
    ck_assert_str_eq(warnings.items[1].text, "k1 does nothing here: it is read where c");
    for (int i = 2; i < 10; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        warnings_add_unused(&warnings, key, "1", NULL, "c");
        ck_assert_uint_eq(warnings.n,
                          i < WARNINGS_MOST_UNUSED + 1 ? i + 1 : WARNINGS_MOST_UNUSED + 1);
    }
    ck_assert_str_eq(warnings.items[WARNINGS_MOST_UNUSED].text,
                     "nor do these settings do anything here: k6, k7, k8, k9");
}

TEST(the_first_cause_of_an_error_is_kept) {
    struct err err = {0};
    ck_assert_int_eq(err_usage(&err, "first %d", 1), ERR_USAGE);
    ck_assert_int_eq(err_world(&err, "second"), ERR_USAGE);
    ck_assert_str_eq(err.text, "first 1");
}

TEST(a_message_may_be_worded_anew_but_says_its_facts) {
    static const char sentence[] =
        "scheduler x takes 600 query tokens, more than the limit of 'a b' --top";
    ck_assert(message_says("600 query tokens are taken by scheduler x: 'a b' of --top is the limit",
                           sentence));
    ck_assert(!message_says(
        "scheduler x takes 6000 query tokens, more than the limit of 'a b' --top", sentence));
    ck_assert(!message_says(
        "scheduler x takes 600 query tokens, more than the limit of 'a c' --top", sentence));
    ck_assert(!message_says("scheduler x takes 600 query tokens, more than the limit of 'a b'",
                            sentence));
    ck_assert(!message_says("no room for 600 of 'a b' --top", sentence));
    ck_assert(message_says("", "") && !message_says("x", "") && !message_says("", "x"));
}

/* Between brackets: the words of a list, blanks dropped, empty ones kept. */
TEST(lists_are_cut_at_their_marks_and_nowhere_else) {
    static const char *const lists[][3] = {{"a,b", ",", "[a][b]"},
                                           {" a , b c ,", ",", "[a][b c][]"},
                                           {"", ",", "[]"},
                                           {" \n\t", ",", "[]"},
                                           {",,", ",", "[][][]"},
                                           {"a;b, c", ",;", "[a][b][c]"},
                                           {"a, b", ", ", "[a][][b]"},
                                           {"a\n, b", ",", "[a][b]"}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char text[64] = "";
        const char *word;
        size_t length;
        for (const char *rest = lists[i][0]; name_next(&rest, lists[i][1], &word, &length);) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "[%.*s]", (int)length, word);
        }
        ck_assert_str_eq(text, lists[i][2]);
    }
}

TEST(lines_are_cut_at_commas_that_stand_in_no_quotes) {
    static const struct {
        const char *line;
        bool is_quoted;
        int n;
        const char *text;
    } lines[] = {{"a,b", false, 2, "[a][b]"},
                 {"a,b,", true, 3, "[a][b][]"},
                 {"", true, 1, "[]"},
                 {"\"a,b\",c", true, 2, "[a,b][c]"},
                 {"\"a,b\",c", false, 3, "[\"a][b\"][c]"},
                 {"x,\"say \"\"hi\"\"\"", true, 2, "[x][say \"hi\"]"},
                 {"\"\",\"\"\"\"", true, 2, "[][\"]"},
                 {"a\"b,c", true, 2, "[a\"b][c]"},
                 {"\"a", true, -1, ""},
                 {"\"", true, -1, ""},
                 {"\"a\"b,c", true, -1, ""},
                 {"\"a\"\"", true, -1, ""}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[64], text[64] = "", *fields[2];
        snprintf(line, sizeof line, "%s", lines[i].line);
        int n = field_cut(line, lines[i].is_quoted, fields, 2);
        ck_assert_int_eq(n, lines[i].n);
        for (int f = 0; f < n && f < 2; f++) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "[%s]", fields[f]);
        }
        ck_assert_msg(strncmp(text, lines[i].text, strlen(text)) == 0, "%s", text);
        ck_assert(n > 2 || strcmp(text, lines[i].text) == 0);
    }
}

SUITE("base")
