/* Figures, which gnuplot draws, and its absence is a sentence; and the HTML report. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "analysis/plot/course.h"
#include "analysis/plot/gnuplot.h"
#include "analysis/plot/plot.h"
#include "analysis/plot/report.h"
#include "sim/base/mem.h"
#include "tests/support/kept.h"

static char folder[64];

static void make_folder(void) {
    strcpy(folder, "/tmp/unmask-plot-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

/* The path of a file in the folder; valid until the call after the next. */
static const char *in_folder(const char *name) {
    static char paths[2][160];
    static int which;
    which = 1 - which;
    snprintf(paths[which], sizeof paths[which], "%s/%s", folder, name);
    return paths[which];
}

static void remove_files(const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unlink(in_folder(names[i]));
    }
    ck_assert_int_eq(rmdir(folder), 0); /* nothing else was left behind */
}

static char *read_all(const char *path) {
    static char text[1 << 21];
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "cannot read %s", path);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return text;
}

static const struct plot_point ours[] = {
    {0.1, 20, 19, 21, NAN}, {0.2, 40, 38, 44, NAN}, {0.4, 76, 70, 80, 76.6}};
static const struct plot_point other[] = {
    {0.1, 20, NAN, NAN, NAN}, {0.2, NAN, NAN, NAN, NAN}, {0.4, 42, NAN, NAN, NAN}};
static const char *const names[] = {"LiveBench", "Burst, bursty", "OSC"};
static const struct plot_series lines[] = {
    {.name = "dLLM-Serve", .points = ours, .n = 3},
    {.name = "Fast-dLLM", .points = other, .n = 3, .style = STYLE_STEPS}};
static const struct plot_series bars[] = {{.name = "dLLM-Serve", .points = ours, .n = 3},
                                          {.name = "Fast-dLLM", .points = other, .n = 3}};
static const struct panel panels[] = {{.kind = PANEL_XY,
                                       .title = "Throughput",
                                       .x_label = "Rate (req/s)",
                                       .y_label = "Throughput (tok/s)",
                                       .series = lines,
                                       .n_series = 2},
                                      {.kind = PANEL_BARS,
                                       .title = "It's `touch pwned`; \"$(touch pwned)\"\n\\n",
                                       .x_label = "",
                                       .y_label = "Throughput (tok/s)",
                                       .series = bars,
                                       .n_series = 2,
                                       .categories = names,
                                       .n_categories = 3,
                                       .values = true,
                                       .log_y = true},
                                      {.kind = PANEL_STACKED,
                                       .title = "Stack",
                                       .x_label = "",
                                       .y_label = "Memory (GiB)",
                                       .series = bars,
                                       .n_series = 2,
                                       .categories = names,
                                       .n_categories = 3,
                                       .y_line = 24}};
static const struct figure figure = {.title = "Three panels",
                                     .provenance = "profile l40s: imported; workload osc: assumed",
                                     .panels = panels,
                                     .n_panels = 3,
                                     .n_columns = 2};

TEST(a_figure_is_written_as_svg_png_and_csv) {
    make_folder();
    struct err err = {0};
    int failed = figure_write(&figure, in_folder("fig"), FIGURE_ALL, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    char *svg = read_all(in_folder("fig.svg"));
    ck_assert_ptr_nonnull(strstr(svg, "</svg>"));
    ck_assert_ptr_nonnull(strstr(svg, "Throughput (tok/s)"));
    ck_assert_ptr_nonnull(strstr(svg, "profile l40s: imported; workload osc: assumed"));
    ck_assert_ptr_nonnull(strstr(svg, "printed in paper"));
    ck_assert_ptr_nonnull(strstr(svg, "Burst, bursty"));
    struct stat status;
    ck_assert_int_eq(stat(in_folder("fig.png"), &status), 0);
    ck_assert_int_gt(status.st_size, 10000);
    ck_assert_int_eq(memcmp(read_all(in_folder("fig.png")), "\x89PNG", 4), 0);
    ck_assert_int_eq(memcmp(read_all(in_folder("fig.pdf")), "%PDF", 4), 0);
    char *csv = read_all(in_folder("fig.csv"));
    ck_assert_int_eq(strncmp(csv, "panel,series,x,y,low,high,paper\n", 32), 0);
    ck_assert_ptr_nonnull(strstr(csv, "Throughput,dLLM-Serve,0.4,76,70,80,76.6\n"));
    ck_assert_ptr_nonnull(strstr(csv, "Throughput,Fast-dLLM,0.2,,,,\n"));
    ck_assert_ptr_nonnull(strstr(csv, "Stack,dLLM-Serve,\"Burst, bursty\",40,38,44,\n"));
    remove_files((const char *const[]){"fig.svg", "fig.png", "fig.pdf", "fig.csv"}, 4);
}

/* How often the drawing of a panel with these points has this text. */
static int n_drawn(const struct plot_point points[3], const char *what) {
    const struct plot_series series = {.name = "dLLM-Serve", .points = points, .n = 3};
    const struct panel panel = {.kind = PANEL_XY,
                                .title = "",
                                .x_label = "",
                                .y_label = "",
                                .series = &series,
                                .n_series = 1};
    const struct figure one = {
        .title = "", .provenance = "", .panels = &panel, .n_panels = 1, .n_columns = 1};
    struct err err = {0};
    int n = 0;
    ck_assert_msg(figure_write(&one, in_folder("a"), FIGURE_SVG, &err) == 0, "%s", err.text);
    for (const char *at = read_all(in_folder("a.svg")); (at = strstr(at, what)) != NULL; at++) {
        n++;
    }
    return n;
}

TEST(each_printed_value_and_each_interval_is_drawn) {
    struct plot_point points[3];
    make_folder();
    memcpy(points, other, sizeof points);
    points[2].paper = 40;
    const int one = n_drawn(points, "#gpPt");
    points[0].paper = points[1].paper = 30;
    ck_assert_int_eq(n_drawn(points, "#gpPt"), one + 2);
    const int drawn = n_drawn(points, "gnuplot_plot_");
    points[0].low = 19;
    points[0].high = 21;
    ck_assert_int_gt(n_drawn(points, "gnuplot_plot_"), drawn);
    remove_files((const char *const[]){"a.svg"}, 1);
}

TEST(text_in_a_figure_is_never_a_command) {
    make_folder();
    char before[4096];
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(folder), 0);
    struct err err = {0};
    int failed = figure_write(&figure, "it's 'a' `touch pwned`", FIGURE_SVG, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    ck_assert_int_ne(access("pwned", F_OK), 0);
    ck_assert_ptr_nonnull(strstr(read_all("it's 'a' `touch pwned`.svg"), "`touch pwned`; "));
    ck_assert_int_eq(chdir(before), 0);
    remove_files((const char *const[]){"it's 'a' `touch pwned`.svg"}, 1);
}

TEST(the_same_figure_gives_the_same_svg) {
    make_folder();
    struct err err = {0};
    ck_assert_int_eq(figure_write(&figure, in_folder("a"), FIGURE_SVG, &err), 0);
    char *first = strdup(read_all(in_folder("a.svg")));
    ck_assert_int_eq(figure_write(&figure, in_folder("a"), FIGURE_SVG, &err), 0);
    ck_assert_str_eq(first, read_all(in_folder("a.svg")));
    free(first);
    remove_files((const char *const[]){"a.svg"}, 1);
}

/* A long title is set smaller: 70 characters in 460 pixels, each 0.72 of its points wide. */
TEST(a_title_is_not_wider_than_its_figure) {
    static const char *const titles[] = {
        "short", "seventy characters, which are more than a figure of one panel can have"};
    struct panel panel = {.kind = PANEL_XY,
                          .title = "",
                          .x_label = "",
                          .y_label = "",
                          .series = lines,
                          .n_series = 2};
    make_folder();
    for (size_t i = 0; i < 2; i++) {
        const struct figure titled = {
            .title = titles[i], .provenance = "", .panels = &panel, .n_panels = 1};
        struct err err = {0};
        ck_assert_msg(figure_write(&titled, in_folder("t"), FIGURE_SVG, &err) == 0, "%s", err.text);
        char *text = read_all(in_folder("t.svg")), *at = strstr(text, titles[i]);
        double points = 0;
        ck_assert_ptr_nonnull(at);
        while (at > text && strncmp(at, "font-size=\"", 11) != 0) {
            at--;
        }
        ck_assert_int_eq(sscanf(at, "font-size=\"%lf\"", &points), 1);
        if (i == 0) {
            ck_assert_double_eq(points, 14);
        } else {
            ck_assert_double_gt(points, 8);
            ck_assert_double_le(0.72 * points * (double)strlen(titles[i]), 460);
        }
    }
    static const char *const files[] = {"t.svg"};
    remove_files(files, 1);
}

TEST(a_panel_without_values_says_no_data) {
    make_folder();
    const struct plot_point nothing[] = {{0.1, NAN, NAN, NAN, NAN}, {0.4, NAN, NAN, NAN, NAN}};
    const struct plot_series series[] = {{.name = "a", .points = nothing, .n = 2}};
    struct panel panel = panels[0];
    panel.series = series;
    panel.n_series = 1;
    const struct figure empty = {.title = "", .provenance = "", .panels = &panel, .n_panels = 1};
    struct err err = {0};
    int failed = figure_write(&empty, in_folder("none"), FIGURE_SVG, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    ck_assert_ptr_nonnull(strstr(read_all(in_folder("none.svg")), "no data"));
    remove_files((const char *const[]){"none.svg"}, 1);
}

TEST(a_missing_gnuplot_is_one_sentence) {
    make_folder();
    struct err err = {0};
    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    ck_assert_int_eq(figure_write(&figure, in_folder("fig"), FIGURE_SVG, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "gnuplot is not in PATH"));
    remove_files(NULL, 0);
}

/* What a figure asks gnuplot for. */
static const char *asked_for(const struct figure *drawn) {
    make_folder();
    struct err err = {0};
    const char *path = in_folder("gnuplot");
    FILE *script = fopen(path, "w");
    ck_assert_ptr_nonnull(script);
    fprintf(script, "#!/bin/sh\n/bin/cat >%s/asked\nexit 1\n", folder);
    fclose(script);
    ck_assert_int_eq(chmod(path, 0755), 0);
    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    ck_assert_int_eq(figure_write(drawn, in_folder("fig"), FIGURE_SVG, &err), ERR_WORLD);
    const char *asked = read_all(in_folder("asked"));
    remove_files((const char *const[]){"gnuplot", "asked"}, 2);
    return asked;
}

/* Heights that touch and that do not, both axes logarithmic, a fixed range, one value, below 0. */
static const struct plot_point high[] = {
    {0, 1234, NAN, NAN, NAN}, {1, 999.6, NAN, NAN, NAN}, {2, 3, NAN, 5, NAN}};
static const struct plot_point near_high[] = {
    {0, 1230, NAN, NAN, NAN}, {1, 420, NAN, NAN, NAN}, {2, 3.1, NAN, NAN, 7}};
static const struct plot_point low[] = {
    {0, 12, NAN, NAN, NAN}, {1, 40, NAN, NAN, NAN}, {2, 2100, NAN, NAN, NAN}};
static const struct plot_point below[] = {{-2, -5, NAN, NAN, NAN}, {3, 4, 1, 6, NAN}};
static const struct plot_series touching[] = {{.name = "a", .points = high, .n = 3},
                                              {.name = "b", .points = near_high, .n = 3}};
static const struct plot_series apart[] = {{.name = "a", .points = high, .n = 3},
                                           {.name = "b", .points = low, .n = 3}};
static const struct plot_series signs[] = {{.name = "a", .points = below, .n = 2}};

/* A small panel of two series. */
static struct panel small(enum panel_kind kind, const char *title,
                          const struct plot_series *series) {
    const bool is_bars = kind == PANEL_BARS;
    return (struct panel){.kind = kind,
                          .title = title,
                          .x_label = is_bars ? "" : "x",
                          .y_label = "y",
                          .series = series,
                          .n_series = 2,
                          .categories = is_bars ? names : NULL,
                          .n_categories = is_bars ? 3 : 0,
                          .values = is_bars};
}

TEST(what_gnuplot_is_asked_is_what_was_kept) {
    struct panel negative = small(PANEL_XY, "s", signs), logs = small(PANEL_XY, "l", lines),
                 fixed = small(PANEL_XY, "f", lines), touch = small(PANEL_BARS, "t", touching),
                 touch_logs = touch, far = small(PANEL_BARS, "t", apart), far_fixed = far;
    negative.n_series = 1;
    logs.log_x = logs.log_y = true;
    fixed.y_min = 10;
    fixed.y_max = 90;
    fixed.y_line = 50;
    touch_logs.log_y = true;
    far_fixed.y_max = 5000;
    const struct panel drawn[][2] = {{panels[0], panels[1]},
                                     {panels[2], negative},
                                     {logs, fixed},
                                     {touch, far},
                                     {touch_logs, far_fixed}};
    char *now;
    size_t size;
    FILE *out = mem_stream(&now, &size);
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
        for (int width = 240; width <= 480; width += 240) {
            const struct figure of = {.title = "kept",
                                      .provenance = "a test",
                                      .panels = drawn[i],
                                      .n_panels = 2,
                                      .n_columns = 1 + i % 2,
                                      .panel_width = width};
            const char *asked = asked_for(&of);
            for (size_t n; *asked != '\0'; asked += n) {
                n = strcspn(asked, "\n");
                n += asked[n] == '\n';
                /* Where it goes has a name of its own each time. */
                fprintf(out, "%.*s", strncmp(asked, "set output", 10) != 0 ? (int)n : 0, asked);
            }
        }
    }
    mem_stream_close(out);
    kept_same("tests/golden/plots.txt", now);
    free(now);
}

/* Three groups of two bars, 0.8 wide: 0.2 to the left and to the right of the group's middle. */
TEST(bars_of_a_group_stand_side_by_side_around_its_middle) {
    const char *asked = asked_for(&figure);
    static const char *const first[] = {"$p1s0 << EOD\n-0.2 20 ", "$p1s1 << EOD\n0.2 20 "};
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(strstr(asked, first[i]) != NULL, "%.400s", asked);
    }
    /* Rates from 0.1 to 0.4, three hundredths more on either side, in the smallest figure that
     * holds two rows of panels and a note. */
    ck_assert_ptr_nonnull(strstr(asked, "\nset xrange [0.091:0.409]\n"));
    ck_assert_ptr_nonnull(strstr(asked, " size 920,716 "));
}

/* From 0 to 210 a tic every 50: 4.2 labels of three digits and two more, 7 pixels each. */
TEST(labels_of_tics_may_take_all_the_room_there_is) {
    static const struct plot_point points[] = {{4, 1, NAN, NAN, NAN}, {204, 2, NAN, NAN, NAN}};
    static const struct plot_series series = {.name = "a", .points = points, .n = 2};
    static const struct panel panel = {.kind = PANEL_XY,
                                       .title = "t",
                                       .x_label = "",
                                       .y_label = "",
                                       .series = &series,
                                       .n_series = 1};
    struct figure narrow = {.title = "t", .provenance = "p", .panels = &panel, .n_panels = 1};
    narrow.panel_width = 147 + 98; /* what stands left and right of the axes */
    ck_assert_ptr_nonnull(strstr(asked_for(&narrow), "\nset xtics nomirror scale 1 50 "));
    narrow.panel_width--;
    ck_assert_ptr_nonnull(strstr(asked_for(&narrow), "\nset xtics nomirror scale 1 100 "));
}

/* It ignores what it can be asked with, and has not drawn anything. */
TEST(a_gnuplot_that_hangs_is_stopped_and_leaves_the_old_figure) {
    make_folder();
    struct err err = {0};
    const char *path = in_folder("gnuplot");
    FILE *script = fopen(path, "w");
    ck_assert_ptr_nonnull(script);
    fprintf(script,
            "#!/bin/sh\ntrap '' TERM INT HUP\necho $$ >%s/pid\n"
            "while :; do /bin/sleep 0.1; done\n",
            folder);
    fclose(script);
    ck_assert_int_eq(chmod(path, 0755), 0);
    FILE *old = fopen(in_folder("fig.svg"), "w");
    fputs("<svg>old</svg>", old);
    fclose(old);
    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    gnuplot_most_s = 1;
    ck_assert_int_eq(figure_write(&figure, in_folder("fig"), FIGURE_SVG, &err), ERR_WORLD);
    ck_assert_str_eq(err.text, "gnuplot did not end within 1 s and was stopped");
    ck_assert_str_eq(read_all(in_folder("fig.svg")), "<svg>old</svg>");
    pid_t pid = atoi(read_all(in_folder("pid")));
    ck_assert_int_gt(pid, 0);
    ck_assert(kill(pid, 0) != 0 && errno == ESRCH);
    remove_files((const char *const[]){"gnuplot", "pid", "fig.svg"}, 3);
}

TEST(what_gnuplot_complains_of_is_passed_on) {
    FILE *script = tmpfile();
    struct err err = {0};
    fputs("set terminal svg\nplot undefined_variable + 1\n", script);
    ck_assert_int_eq(gnuplot_run(script, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "undefined variable") != NULL, "%s", err.text);
    fclose(script);
}

TEST(a_place_that_cannot_be_written_is_named) {
    struct err err = {0};
    ck_assert_int_eq(figure_write(&figure, "/nowhere/fig", FIGURE_ALL, &err), ERR_WORLD);
    ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/fig"));
    err = (struct err){0};
    ck_assert_int_eq(figure_write(&figure, "/nowhere/fig", FIGURE_SVG, &err), ERR_WORLD);
    err = (struct err){0};
    ck_assert_int_eq(figure_write(&figure, "two\nlines", FIGURE_SVG, &err), ERR_USAGE);
}

/* Requests one second apart that wait one second and run for two; steps of a second commit 8. */
static void record_run(struct store *store, enum store_level level, const char *system) {
    struct run_facts facts = run_facts_unknown();
    facts.system = system;
    facts.model = "llada-8b";
    facts.gpu = "l40s";
    facts.profile = "l40s";
    facts.profile_kind = "imported";
    facts.trace = "osc";
    facts.trace_provenance = "assumed lengths";
    facts.config = "[system]\nname = <script>alert(1)</script>\n";
    struct summary summary;
    summary_init(&summary, NULL);
    struct sink all = summary_sink(&summary), sink;
    struct err err = {0};
    int64_t run;
    ck_assert_int_eq(store_run_begin(store, &facts, level, &run, &sink, &err), 0);
    for (int64_t i = 0; i < 98; i++) {
        struct request_record request = MAKE(
            struct request_record, .id = (uint64_t)i, .prompt_tokens = 10, .output_tokens = 64,
            .answer_tokens = 64, .committed_tokens = 64, .arrival_ns = i * 1000000000,
            .admitted_ns = (i + 1) * 1000000000, .first_block_ns = (i + 2) * 1000000000,
            .finished_ns = (i + 3) * 1000000000, .state = REQUEST_DONE, .first_block_tokens = 32);
        ck_assert_int_eq(all.request(all.state, &request, &err), 0);
        ck_assert_int_eq(sink.request(sink.state, &request, &err), 0);
    }
    const int64_t sym[SYM_COUNT] = {[SYM_TOKENS] = 64};
    const uint64_t ids[] = {1};
    const uint32_t commits[] = {2};
    for (int64_t i = 0; i < 100 && sink.step != NULL; i++) {
        struct step_record step =
            MAKE(struct step_record, .index = (uint64_t)i, .repeat = 4, .start_ns = i * 1000000000,
                 .end_ns = (i + 1) * 1000000000, .sym = sym, .n_by_phase = {[PHASE_REUSE] = 1},
                 .n = 1, .request_ids = ids, .commit_tokens = commits, .kv_used_bytes = 7);
        ck_assert_int_eq(sink.step(sink.state, &step, &err), 0);
    }
    summary_finish(&summary);
    ck_assert_int_eq(store_run_commit(store, &summary, &facts, &err), 0);
    summary_fini(&summary);
}

TEST(who_was_not_served_has_no_times) {
    struct request_record record =
        MAKE(struct request_record, .id = 3, .prompt_tokens = 10, .output_tokens = 64,
             .answer_tokens = 60, .arrival_ns = 1000000000, .admitted_ns = 2000000000,
             .first_block_ns = 3000000000, .finished_ns = 5000000000, .first_block_tokens = 32,
             .committed_tokens = 64, .state = REQUEST_DONE, .steps = 7);
    double served[REQUEST_FIELD_COUNT], rejected[REQUEST_FIELD_COUNT];
    request_field_values(&record, served);
    record.state = REQUEST_REJECTED;
    request_field_values(&record, rejected);
    for (int i = 0; i < REQUEST_FIELD_COUNT; i++) {
        const bool is_time = i == REQUEST_FIELD_queue_s || i == REQUEST_FIELD_ttft_s ||
                             i == REQUEST_FIELD_tpot_s || i == REQUEST_FIELD_latency_s;
        ck_assert(isfinite(served[i]));
        ck_assert_msg(is_time ? isnan(rejected[i])
                              : !(rejected[i] < served[i] || rejected[i] > served[i]),
                      "field %d", i);
    }
    ck_assert_double_eq_tol(served[REQUEST_FIELD_queue_s] + 1, served[REQUEST_FIELD_ttft_s], 1e-9);
    ck_assert_double_eq_tol(served[REQUEST_FIELD_ttft_s] + 2, served[REQUEST_FIELD_latency_s],
                            1e-9);
}

static int check_course(void *state, const struct stored_run *run, struct err *err) {
    struct course course;
    struct requests requests;
    ck_assert_int_eq(requests_load(state, run->run, &requests, err), 0);
    struct series latency = requests_sorted(&requests, REQUEST_FIELD_latency_s),
                  ttft = requests_sorted(&requests, REQUEST_FIELD_ttft_s);
    ck_assert_uint_eq(latency.n, 98);
    ck_assert_double_eq_tol(latency.values[0], 3, 1e-12);
    ck_assert_double_eq_tol(ttft.values[97], 2, 1e-12);
    free(latency.values);
    free(ttft.values);
    ck_assert_int_eq(course_load(state, run, &requests, COURSE_MOST_BINS, &course, err), 0);
    double tokens = 0, running = 0, waiting = 0;
    for (int i = 0; i < COURSE_MOST_BINS; i++) {
        tokens += course.bins[COURSE_TOKENS_PER_S][i] * 0.5; /* 100 s in 200 bins */
        running += course.bins[COURSE_RUNNING][i] * 0.5;
        waiting += course.bins[COURSE_WAITING][i] * 0.5;
    }
    /* Steps commit 8 tokens a second; without steps the requests' own 64 tokens count. */
    ck_assert_double_eq_tol(tokens, run->n_steps > 0 ? 800 : 98 * 64, 1e-6);
    ck_assert_double_eq_tol(running, 98 * 2, 1e-6);
    ck_assert_double_eq_tol(waiting, 98, 1e-6);
    ck_assert_double_eq_tol(course.bins[COURSE_RUNNING][100], 2, 1e-9);
    ck_assert_double_eq_tol(course.bins[COURSE_WAITING][100], 1, 1e-9);
    /* Steps of one request without a pause, holding 7 bytes. */
    if (run->n_steps > 0) {
        ck_assert_double_eq_tol(course.bins[COURSE_BATCH][100], 1, 1e-9);
        ck_assert_double_eq_tol(course.bins[COURSE_KV_BYTES][100], 7, 1e-9);
        ck_assert_double_eq_tol(course.bins[COURSE_BUSY][100], 1, 1e-9);
    } else {
        ck_assert(isnan(course.bins[COURSE_BATCH][100]) && isnan(course.bins[COURSE_BUSY][100]));
    }
    requests_fini(&requests);
    return 0;
}

TEST(the_course_of_a_run_adds_up_to_its_tokens_and_request_seconds) {
    make_folder();
    struct store *store;
    struct err err = {0};
    ck_assert_int_eq(store_open(in_folder("r.db"), STORE_WRITE, &store, &err), 0);
    record_run(store, STORE_STEPS, "with-steps");
    record_run(store, STORE_REQUESTS, "without");
    int failed = store_list_runs(store, check_course, store, &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    store_close(store);
    remove_files((const char *const[]){"r.db"}, 1);
}

/* A field of a run in a page's data: what runs share is said once. */
static const json_t *field_of(const json_t *data, size_t run, const char *name) {
    const json_t *shared = json_object_get(json_object_get(data, "common"), name);
    const json_t *keys = json_object_get(data, "keys");
    const json_t *row = json_array_get(json_object_get(data, "runs"), run);
    for (size_t i = 0; i < json_array_size(keys) && shared == NULL; i++) {
        if (strcmp(json_string_value(json_array_get(keys, i)), name) == 0) {
            shared = json_array_get(json_object_get(row, "values"), i);
        }
    }
    ck_assert_msg(shared != NULL, "%s", name);
    return shared;
}

TEST(a_report_is_one_page_with_every_run_and_no_markup_of_theirs) {
    make_folder();
    struct store *store;
    struct err err = {0};
    ck_assert_int_eq(store_open(in_folder("r.db"), STORE_WRITE, &store, &err), 0);
    record_run(store, STORE_STEPS, "dllm-serve");
    record_run(store, STORE_REQUESTS, "<b>&\"'");
    int failed = report_write(store, in_folder("r.html"), &err);
    ck_assert_msg(failed == 0, "%s", err.text);
    store_close(store);
    char *page = read_all(in_folder("r.html"));
    ck_assert_ptr_nonnull(strstr(page, "</html>"));
    ck_assert_ptr_null(strstr(page, "<b>&\\"));
    ck_assert_ptr_null(strstr(page, "<script>alert"));
    const char *data = strstr(page, "<script type=\"application/json\"");
    ck_assert_ptr_nonnull(data);
    data = strchr(data, '>') + 1;
    json_error_t error;
    json_t *json = json_loads(data, JSON_DISABLE_EOF_CHECK, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    const json_t *runs = json_object_get(json, "runs"), *second = json_array_get(runs, 1);
    ck_assert_uint_eq(json_array_size(runs), 2);
    ck_assert_str_eq(json_string_value(field_of(json, 1, "system")), "<b>&\"'");
    ck_assert_str_eq(json_string_value(field_of(json, 1, "profile_kind")), "imported");
    ck_assert_str_eq(json_string_value(field_of(json, 1, "trace_provenance")), "assumed lengths");
    ck_assert_str_eq(json_string_value(field_of(json, 1, "name")), "<script>alert(1)</script>");
    ck_assert_int_eq(json_integer_value(json_object_get(second, "same_as")), 1);
    const json_t *keys = json_object_get(json, "asked"); /* of configurations, builds and inputs */
    ck_assert(json_is_true(json_object_get(keys, "name")) && json_object_size(keys) == 3);
    ck_assert_double_eq(json_number_value(field_of(json, 1, "latency_s.p99")), 3);
    const json_t *course = json_object_get(second, "course");
    ck_assert_uint_eq(json_array_size(json_object_get(course, "running")), COURSE_MOST_BINS);
    ck_assert_ptr_null(json_object_get(course, "batch")); /* which is of steps */
    const json_t *latency = json_object_get(json_object_get(second, "distributions"), "latency_s");
    ck_assert_uint_eq(json_array_size(json_object_get(latency, "values")), 98);
    ck_assert_uint_eq(json_array_size(json_object_get(second, "requests")), 98);
    ck_assert_double_eq_tol(json_number_value(json_array_get(json_object_get(json, "student"), 2)),
                            12.706, 1e-9);
    json_decref(json);
    remove_files((const char *const[]){"r.db", "r.html"}, 2);
}

TEST(a_report_that_fails_leaves_the_old_page) {
    make_folder();
    struct store *store;
    struct err err = {0};
    ck_assert_int_eq(store_open(in_folder("r.db"), STORE_WRITE, &store, &err), 0);
    record_run(store, STORE_REQUESTS, "x");
    FILE *old = fopen(in_folder("r.html"), "w");
    fputs("<!DOCTYPE html>old", old);
    fclose(old);
    const struct rlimit small = {100, 100};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0); /* a full disk */
    ck_assert_int_eq(report_write(store, in_folder("r.html"), &err), ERR_WORLD);
    ck_assert_str_eq(read_all(in_folder("r.html")), "<!DOCTYPE html>old");
    store_close(store);
    remove_files((const char *const[]){"r.db", "r.html"}, 2);
}

/* PyPI's gnuplot, and many a cluster's: what it cannot draw is named, the rest is drawn. */
TEST(a_gnuplot_without_cairo_draws_what_it_can) {
    make_folder();
    struct err err = {0};
    const char *path = in_folder("gnuplot");
    FILE *script = fopen(path, "w");
    ck_assert_ptr_nonnull(script);
    fputs("#!/bin/sh\nq=\"'\"\nwhile read -r line; do case $line in\n"
          "*GPVAL_TERMINALS) echo ' dumb png svg ' >&2 ;;\n"
          "'set terminal '*cairo*) echo 'unknown or ambiguous terminal type' >&2; exit 1 ;;\n"
          "'set terminal svg '*) end='</svg>' ;; 'set terminal png '*) end=IEND ;;\n"
          "\"set output \"*) line=${line#\"set output $q\"}; echo \"a drawing of at least thirty "
          "bytes $end\" >\"${line%\"$q\"}\" ;;\n"
          "esac; done\n",
          script);
    fclose(script);
    ck_assert_int_eq(chmod(path, 0755), 0);
    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    ck_assert_uint_eq(figure_can(), FIGURE_SVG | FIGURE_PNG | FIGURE_CSV);
    ck_assert_str_eq(figure_endings(), ".svg, .png");
    ck_assert_msg(figure_write(&figure, in_folder("fig"), FIGURE_ALL, &err) == 0, "%s", err.text);
    ck_assert(access(in_folder("fig.svg"), R_OK) == 0 && access(in_folder("fig.png"), R_OK) == 0);
    ck_assert_int_ne(access(in_folder("fig.pdf"), F_OK), 0);
    ck_assert_int_eq(figure_write(&figure, in_folder("fig"), FIGURE_PDF, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "fig.pdf") != NULL, "%s", err.text);
    remove_files((const char *const[]){"gnuplot", "fig.svg", "fig.png", "fig.csv"}, 4);
}

/* A bound is dashed in the colour of what it bounds, and the next series has the next colour. */
TEST(bounds_have_the_colour_of_their_series) {
    static const struct plot_series of[] = {
        {.name = "A: no scheduler beats", .points = other, .n = 3, .style = STYLE_DASHED},
        {.name = "A", .points = ours, .n = 3},
        {.name = "B: apart", .points = other, .n = 3},
        {.name = "B", .points = ours, .n = 3}};
    const struct panel bounded = {
        .kind = PANEL_XY, .title = "", .x_label = "", .y_label = "", .series = of, .n_series = 4};
    const struct figure drawn = {
        .title = "", .provenance = "", .panels = &bounded, .n_panels = 1, .font = "Utopia"};
    struct err err = {0};
    make_folder();
    ck_assert_int_eq(figure_write(&drawn, in_folder("fig"), FIGURE_SVG, &err), 0);
    const char *svg = read_all(in_folder("fig.svg"));
    ck_assert(strstr(svg, "Utopia") != NULL && strstr(svg, "sans-serif") == NULL);
    ck_assert(strstr(svg, "114, 178") != NULL && strstr(svg, "213,  94") != NULL); /* two colours */
    ck_assert_ptr_null(strstr(svg, "158, 115")); /* and no third */
    remove_files((const char *const[]){"fig.svg"}, 1);
}

/* As a bar it is pale beside its series. */
TEST(a_bound_is_a_pale_bar) {
    static const struct plot_series of[] = {
        {.name = "A", .points = ours, .n = 3},
        {.name = "A: no scheduler beats", .points = other, .n = 3, .style = STYLE_DASHED}};
    static const char *const categories[] = {"x", "y", "z"};
    const struct panel barred = {.kind = PANEL_BARS,
                                 .title = "",
                                 .x_label = "",
                                 .y_label = "",
                                 .categories = categories,
                                 .n_categories = 3,
                                 .series = of,
                                 .n_series = 2};
    const struct figure drawn = {.title = "", .provenance = "", .panels = &barred, .n_panels = 1};
    struct err err = {0};
    make_folder();
    ck_assert_int_eq(figure_write(&drawn, in_folder("fig"), FIGURE_SVG, &err), 0);
    const char *svg = read_all(in_folder("fig.svg"));
    ck_assert(strstr(svg, "0.850000") != NULL && strstr(svg, "0.250000") != NULL);
    remove_files((const char *const[]){"fig.svg"}, 1);
}

/* ---- sizes of text ---- */

/* Whether a compressed part of a PDF sets text of a size in points, as cairo writes it. */
static bool pdf_has_text_of(const char *path, const char *points) {
    static unsigned char bytes[1 << 20], plain[1 << 22];
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    char words[64];
    bool is_there = false;
    fclose(file);
    snprintf(words, sizeof words, "\n%s 0 0 -%s ", points, points);
    for (size_t at = 0; at < n && !is_there; at++) {
        const unsigned char *part = memmem(bytes + at, n - at, "stream\n", 7);
        if (part == NULL) {
            break;
        }
        at = (size_t)(part - bytes) + 6;
        z_stream stream = {.next_in = bytes + at + 1,
                           .avail_in = (uInt)(n - at - 1),
                           .next_out = plain,
                           .avail_out = sizeof plain};
        ck_assert_int_eq(inflateInit(&stream), Z_OK);
        (void)inflate(&stream, Z_FINISH);
        is_there = memmem(plain, stream.total_out, words, strlen(words)) != NULL;
        inflateEnd(&stream);
    }
    return is_there;
}

/* A character's width over the figure's, as gnuplot reckons it. */
static double share_of_a_character(enum gnuplot_format format) {
    FILE *script = tmpfile();
    struct err err = {0};
    gnuplot_set_output(script, in_folder("share.out"), format, 640, 480, NULL);
    fprintf(script, "plot 1\nset print '%s'\n", in_folder("share"));
    fputs("print 1.0 * GPVAL_TERM_HCHAR / GPVAL_TERM_XSIZE\n", script);
    ck_assert_msg(gnuplot_run(script, &err) == 0, "%s", err.text);
    fclose(script);
    double share = atof(read_all(in_folder("share")));
    remove(in_folder("share"));
    remove(in_folder("share.out"));
    return share;
}

TEST(text_is_of_one_size_in_every_format) {
    struct err err = {0};
    if (!gnuplot_has(GNUPLOT_PDF)) {
        return;
    }
    make_folder();
    ck_assert_int_eq(figure_write(&figure, in_folder("fig"), FIGURE_SVG | FIGURE_PDF, &err), 0);
    const char *svg = read_all(in_folder("fig.svg"));
    ck_assert_ptr_nonnull(strstr(svg, "font-size=\"12.00\"")); /* pixels: 9 points at 96 an inch */
    ck_assert_ptr_nonnull(strstr(svg, "font-size=\"9.00\""));  /* and the note's 6.75 */
    ck_assert(pdf_has_text_of(in_folder("fig.pdf"), "9"));
    ck_assert(pdf_has_text_of(in_folder("fig.pdf"), "6.75"));
    ck_assert(!pdf_has_text_of(in_folder("fig.pdf"), "12"));
    const double png = share_of_a_character(GNUPLOT_PNG), pdf = share_of_a_character(GNUPLOT_PDF);
    ck_assert_double_eq_tol(png, pdf, 0.04 * pdf);
    ck_assert_double_eq_tol(pdf * 640, 7.6, 0.5); /* a digit of 12 pixels */
    remove_files((const char *const[]){"fig.svg", "fig.pdf"}, 2);
}

SUITE("plot")
