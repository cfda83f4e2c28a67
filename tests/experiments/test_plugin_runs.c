/* Plug-ins that pass their trial and break a promise in a run: each ends the run in one sentence
 * that names it and what it did, with status 1, and nothing on standard output. */
#include "sim/system/system.h"
#include "tests/support/cli.h"

enum { IN_ALL, IN_SCHEDULER, IN_DECODER, IN_CACHE };

struct crime {
    const char *name, *sentence; /* what follows the plug-in's path */
    int of;
};

static const struct crime crimes[] = {
    {"segv", " crashed with signal SEGV in callback ", IN_ALL},
    {"fpe", " crashed with signal FPE in callback ", IN_SCHEDULER},
    {"ill", " crashed with signal ILL in callback ", IN_SCHEDULER},
    {"bus", " crashed with signal BUS in callback ", IN_SCHEDULER},
    {"abort", " crashed with signal ABRT in callback ", IN_ALL},
    {"overflow", " crashed with signal SEGV in callback ", IN_ALL},
    {"exit", " ended the program in callback ", IN_ALL},
    {"_exit", " ended the program in callback ", IN_ALL},
    {"quick_exit", " ended the program in callback ", IN_SCHEDULER},
    {"rounding", ": it changed how the processor rounds, or its traps, in callback ", IN_ALL},
    {"flush", ": it changed how the processor rounds, or its traps, in callback ", IN_SCHEDULER},
    {"traps", ": it changed how the processor rounds, or its traps, in callback ", IN_CACHE},
    {"free", " crashed with signal ", IN_SCHEDULER},
    {"close", " was loaded", IN_SCHEDULER},
    {"hang", " did not return from callback ", IN_CACHE},
    {"write-request", ": it wrote to the requests of the view, which it may only read, in ",
     IN_SCHEDULER},
    {"write-request", ": it wrote to the request, which it may only read, in callback ", IN_CACHE},
    {"write-waiting", ": it wrote to the view's list waiting, which it may only read, in ",
     IN_SCHEDULER},
    {"write-view", ": it wrote to the view, which it may only read, in callback ", IN_SCHEDULER},
    {"oob-selected", ": it reads or writes beyond the capacity of selected in callback ",
     IN_SCHEDULER},
    {"oob-chunks", ": it reads or writes beyond the capacity of chunk_tokens in callback ",
     IN_SCHEDULER},
    {"oob-idle", ": it reads or writes beyond the capacity of idle in callback ", IN_SCHEDULER},
    {"oob-view", " crashed with signal SEGV in callback ", IN_SCHEDULER},
    {"oob-state", ": it wrote beyond the 8 bytes of its state in callback ", IN_SCHEDULER},
    {"count", "scheduler late broke its promise at ", IN_SCHEDULER},
    {"admitted", "scheduler late broke its promise at ", IN_SCHEDULER},
    {"twice", "scheduler late broke its promise at ", IN_SCHEDULER},
    {"slot", "scheduler late broke its promise at ", IN_SCHEDULER},
    {"chunk", "scheduler late broke its promise at ", IN_SCHEDULER},
    {"preempt", "scheduler late broke its promise at ", IN_SCHEDULER},
    {"capacity", ": it changed the batch's capacity or the place of its lists ", IN_SCHEDULER},
    {"list", ": it changed the batch's capacity or the place of its lists ", IN_SCHEDULER},
    {"each-ns", "scheduler late starves at ", IN_SCHEDULER},
    {"starve", "scheduler late starves at ", IN_SCHEDULER},
    {"write-seen", ": it wrote to confidence, which it may only read, in callback ", IN_DECODER},
    {"oob-commit", ": it reads or writes beyond the end of its answer in callback ", IN_DECODER},
    {"none", ": it commits 0 of 4 masked positions in callback ", IN_DECODER},
    {"sum", ": it marks 1 of 4 positions and says another number in callback ", IN_DECODER},
    {"flag", ": it marks 0 of 4 positions and says another number in callback ", IN_DECODER},
    {"oob-rows", ": it reads or writes beyond the end of its answer in callback ", IN_CACHE},
    {"empty", "cache late broke its promise at ", IN_CACHE},
    {"beyond", "cache late broke its promise at ", IN_CACHE},
    {"held", "cache late broke its promise at ", IN_CACHE},
};
enum { N_CRIMES = sizeof crimes / sizeof crimes[0] };

static const char *const options[] = {NULL, "--scheduler", "--decoder", "--cache"};
static const char *const files[] = {NULL, "bad_late", "bad_late_decoder", "bad_late_cache"};

/* A run that comes to where the plug-in is late; its status and words. */
static struct output run_late(int kind, const char *crime, const struct child *child) {
    setenv("UNMASK_CRIME", crime, 1);
    return CLI_AS(child, "run", "--roofline", "--system",
                  kind == IN_CACHE ? "vanilla" : "dllm-serve", options[kind],
                  suite_plugin(files[kind]), "--requests", kind == IN_SCHEDULER ? "4100" : "3010",
                  kind == IN_SCHEDULER ? "--arrivals" : "--rate",
                  kind == IN_SCHEDULER ? "all-at-once" : "1000", "--input-tokens", "32",
                  "--output-tokens", "4", "--json");
}

/* Exercises the plug-in of a kind in this process, for all runs that it starts: each would do so
 * anew, which takes longer than the run. */
static void exercise(int kind) {
    struct setting settings[1] = {{.place = "test"}};
    struct system_request request = {.system = kind == IN_CACHE ? "vanilla" : "dllm-serve",
                                     .gpu = "l40s",
                                     .overrides = settings,
                                     .n_overrides = 1,
                                     .roofline = true};
    struct system *system = NULL;
    struct err err = {0};
    setenv("UNMASK_CRIME", "nothing", 1);
    snprintf(settings[0].key, sizeof settings[0].key, "%s", options[kind] + strlen("--"));
    snprintf(settings[0].value, sizeof settings[0].value, "%s", suite_plugin(files[kind]));
    ck_assert_msg(system_open(&request, &system, &err) == 0, "%s", err.text);
    system_close(system);
}

static void check_crime(const struct crime *crime, int kind) {
    /* what ends a call that hangs is a thread, which a fork leaves behind */
    const struct child child = {.starts = strcmp(crime->name, "hang") == 0};
    struct output output = run_late(kind, crime->name, &child);
    ck_assert_msg(output.status == 1, "%s: status %d, %s", crime->name, output.status, output.err);
    ck_assert_msg(strstr(output.err, crime->sentence) != NULL, "%s: %s", crime->name, output.err);
    ck_assert_msg(strstr(output.err, "late") != NULL, "%s: %s", crime->name, output.err);
    bool ends_the_program = strstr(crime->sentence, "starves") == NULL;
    ck_assert_msg(output.out[0] == '\0' || !ends_the_program || strcmp(crime->name, "close") == 0,
                  "%s: %s", crime->name, output.out);
    output_free(&output);
}

TEST(a_late_crime_ends_the_run_in_one_sentence) {
    for (int kind = IN_SCHEDULER; kind <= IN_CACHE; kind++) {
        exercise(kind);
    }
    for (int i = 0; i < N_CRIMES; i++) {
        for (int kind = IN_SCHEDULER; kind <= IN_CACHE; kind++) {
            if (crimes[i].of == kind || crimes[i].of == IN_ALL) {
                check_crime(&crimes[i], kind);
            }
        }
    }
}

TEST(an_eviction_that_is_late_in_error_is_named) {
    static const char *const late[] = {"drop", "keep"};
    for (int i = 0; i < 2; i++) {
        setenv("UNMASK_CRIME", late[i], 1);
        struct output output =
            CLI("run", "--roofline", "--system", "focus", "--cache",
                suite_plugin("bad_late_eviction"), "--requests", "3010", "--rate", "1000",
                "--input-tokens", "32", "--output-tokens", "64");
        ck_assert_msg(output.status == 1, "%s: status %d, %s", late[i], output.status, output.err);
        ck_assert_msg(strstr(output.err, "cache focus has request 300") != NULL, "%s", output.err);
        output_free(&output);
    }
}

TEST(what_a_plug_in_prints_is_not_in_the_output) {
    for (int kind = IN_SCHEDULER; kind <= IN_CACHE; kind++) {
        struct output quiet = run_late(kind, "nothing", &(const struct child){0});
        struct output loud = run_late(kind, "print", &(const struct child){0});
        ck_assert_msg(quiet.status == 0 && loud.status == 0, "%s", loud.err);
        ck_assert_str_eq(quiet.out, loud.out);
        ck_assert_ptr_nonnull(strstr(loud.err, "a plug-in's own words"));
        output_free(&quiet);
        output_free(&loud);
    }
}

TEST(a_callback_may_take_a_second) {
    struct output quick = run_late(IN_CACHE, "nothing", &(const struct child){0});
    struct output slow = run_late(IN_CACHE, "doze", &(const struct child){0});
    ck_assert_msg(slow.status == 0, "%s", slow.err);
    ck_assert_str_eq(quick.out, slow.out);
    output_free(&quick);
    output_free(&slow);
}

/* Calls of several threads overlap; standard output is back when the last has returned. */
TEST(threads_that_call_a_plugin_leave_standard_output_as_it_was) {
    const char *file = scratch_path("threads.ini");
    FILE *grid = fopen(file, "w");
    ck_assert_ptr_nonnull(grid);
    fprintf(grid,
            "[sweep]\nsystems = dllm-serve\nrates = 0.2, 0.3, 0.4, 0.5\nrequests = 300\n"
            "set.decoder = %s\n",
            suite_plugin("template_decoder"));
    fclose(grid);
    struct output output = CLI("sweep", file, "-j", "4", "--json");
    ck_assert_msg(output.status == 0 && output.out[0] == '[', "%s", output.err);
    output_free(&output);
}

/* However many runs of a program take a plug-in, each with loads of its own: one child checks it.
 */
TEST(a_plugin_is_checked_once_a_program) {
    const char *file = scratch_path("counted.ini"), *counted = scratch_path("counted.txt");
    char text[1024];
    snprintf(text, sizeof text,
             "[sweep]\nsystems = dllm-serve\nrates = 0.2, 0.3, 0.4, 0.5\nrequests = 20\n"
             "set.decoder = %s\n",
             suite_plugin("counted"));
    scratch_write("counted.ini", text);
    setenv("UNMASK_COUNTED", counted, 1);
    free(PRINTS("sweep", file, "-j", "4"));
    FILE *lines = fopen(counted, "r");
    ck_assert_ptr_nonnull(lines);
    long process, checker = 0, program = 0;
    int n_checks = 0, n_loads = 0;
    while (fscanf(lines, "%ld", &process) == 1) {
        checker = checker == 0 ? process : checker;
        n_checks += process == checker;
        n_loads += process != checker;
        program = process != checker && program == 0 ? process : program;
        ck_assert(process == checker || process == program);
    }
    fclose(lines);
    ck_assert_int_ge(n_checks, 1);
    ck_assert_int_ge(n_loads, 4);
}

/* Drops the lines that say which policy it was. */
static char *without_names(char *text) {
    static const char *const words[] = {"\"path\"", "\"sha256\"", "digest", "scheduler",
                                        "identity"};
    char *to = text;
    for (char *line = text, *next; *line != '\0'; line = next) {
        char *end = strchr(line, '\n');
        next = end != NULL ? end + 1 : line + strlen(line);
        bool names = false;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            const char *at = strstr(line, words[i]);
            names = names || (at != NULL && at < next);
        }
        memmove(to, line, names ? 0 : (size_t)(next - line));
        to += names ? 0 : next - line;
    }
    *to = '\0';
    return text;
}

/* Where the same policy keeps what it counts. */
static const char *const keepers[] = {"state_scheduler", "static_scheduler", "thread_scheduler",
                                      "heap_scheduler", "unique_scheduler"};
enum { N_KEEPERS = sizeof keepers / sizeof keepers[0] };

TEST(static_variables_are_kept_as_a_state_is) {
    static const char *const replicas[] = {"1", "3"};
    for (int i = 0; i < 2; i++) {
        char *texts[N_KEEPERS];
        for (int j = 0; j < N_KEEPERS; j++) {
            texts[j] = without_names(PRINTS("run", "--roofline", "--rate", "20", "--requests",
                                            "120", "--replicas", replicas[i], "--json",
                                            "--scheduler", suite_plugin(keepers[j])));
            ck_assert_ptr_nonnull(strstr(texts[j], "makespan"));
            ck_assert_str_eq(texts[j], texts[0]);
        }
        for (int j = 0; j < N_KEEPERS; j++) {
            free(texts[j]);
        }
    }
}

/* It asks to be woken 5,000 times before a step; 110,000 times are tests/sim/test_loop.c's. */
TEST(a_scheduler_that_waits_for_a_time_does_not_starve) {
    char *text =
        PRINTS("run", "--roofline", "--requests", "1", "--input-tokens", "16", "--output-tokens",
               "32", "--json", "--set", "block_tokens=32", "--set", "steps_per_block=2",
               "--scheduler", suite_plugin("paced_scheduler"), "--set", "scheduler.pause=5s");
    const char *makespan = strstr(text, "\"makespan_s\": ");
    ck_assert_ptr_nonnull(makespan);
    ck_assert_double_ge(atof(strchr(makespan, ':') + 1), 5);
    free(text);
}

static void copy_plugin(const char *name, const char *to) {
    char command[2048];
    snprintf(command, sizeof command, "cp '%s' '%s'", suite_plugin(name), to);
    ck_assert_int_eq(system(command), 0);
}

/* Numbers of two builds of a plug-in are not set beside each other. */
TEST(the_points_of_a_sweep_have_one_file_or_say_so) {
    char text[1024];
    const char *place = scratch_path("changing.so"), *other = scratch_path("changed.so");
    copy_plugin("bad_late_cache", place);
    copy_plugin("template_cache", other);
    setenv("UNMASK_PLACE", place, 1);
    setenv("UNMASK_OTHER", other, 1);
    setenv("UNMASK_CRIME", "replace", 1);
    snprintf(text, sizeof text,
             "[sweep]\nsystems = vanilla\nrates = 1000, 999\nrequests = 3010\ninput_tokens = 32\n"
             "output_tokens = 4\nset.cache = %s\n",
             place);
    const char *file = scratch_write("changing.ini", text);
    struct output output = CLI("sweep", file, "-j", "1", "--json");
    setenv("UNMASK_CRIME", "nothing", 1);
    ck_assert_int_eq(output.status, 1);
    ck_assert_msg(strstr(output.err, "changing.so was replaced while this program ran") != NULL,
                  "%s", output.err);
    output_free(&output);
    free(PRINTS("sweep", file, "-j", "1", "--json"));
}

/* As a run's: what was served until then is on record, and is no result. */
TEST(a_point_that_starves_is_recorded_until_then) {
    char text[1024];
    const char *db = scratch_path("starving.db");
    snprintf(text, sizeof text,
             "[sweep]\nsystems = dllm-serve\nrates = 1000\nrequests = 4300\ninput_tokens = 32\n"
             "output_tokens = 4\nset.workload.arrivals = gamma\nset.scheduler = %s\n",
             suite_plugin("bad_late"));
    const char *file = scratch_write("starving.ini", text);
    for (int again = 0; again < 2; again++) {
        setenv("UNMASK_CRIME", "starve", 1);
        struct output output = CLI("sweep", file, "--db", db, "--levels", "steps");
        setenv("UNMASK_CRIME", "nothing", 1);
        ck_assert_int_eq(output.status, 1);
        ck_assert_msg(strstr(output.err, "scheduler late starves at ") != NULL, "%s", output.err);
        output_free(&output);
    }
    char *said = PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin");
    ck_assert_ptr_nonnull(strstr(said, "up to where the run was cut off"));
    free(said);
    free(PRINTS("sweep", file, "--db", db)); /* which finds no result there */
}

#ifdef __linux__
/* A thread that ends calls what a load of the plug-in asked it to, whose run is over by then. */
TEST(keys_of_threads_outlive_a_run) {
    char text[1024];
    snprintf(text, sizeof text,
             "[sweep]\nsystems = dllm-serve\nrates = 1, 2, 3, 4, 5, 6\nrequests = 20\n"
             "set.scheduler = %s\n",
             suite_plugin("key_scheduler"));
    free(PRINTS("sweep", scratch_write("keys.ini", text), "-j", "4"));
}
#endif

/* A sweep over `rates` with the policy in place of its kind's, on two replicas. */
static char *sweep_static(const char *name, const char *kind, const char *rates,
                          const char *threads) {
    char text[1024];
    snprintf(text, sizeof text,
             "[sweep]\nsystems = dllm-serve\nrates = %s\nrequests = 60\nset.%s = %s\n"
             "set.replicas = 2\n",
             rates, kind, suite_plugin(name));
    scratch_write("static.ini", text);
    return PRINTS("sweep", scratch_path("static.ini"), "-j", threads, "--json");
}

TEST(static_variables_are_a_runs_own_on_any_number_of_threads) {
    static const char *const kinds[] = {"decoder", "router", "cache", "scheduler"};
    static const char *const others[] = {"static_decoder", "static_router", "static_cache"};
    for (int i = 0; i < 3 + N_KEEPERS; i++) {
        const char *kind = kinds[i < 3 ? i : 3], *name = i < 3 ? others[i] : keepers[i - 3];
        char *one = sweep_static(name, kind, "5, 20", "1");
        char *four = sweep_static(name, kind, "5, 20", "4");
        char *alone = sweep_static(name, kind, "20", "1");
        ck_assert_str_eq(one, four);
        /* Whatever ran before it: the last point of the list is the only one of the other. */
        const char *last = strstr(alone, "\"makespan_s");
        char number[128];
        ck_assert_ptr_nonnull(last);
        snprintf(number, sizeof number, "%.*s", (int)strcspn(last, "\n"), last);
        ck_assert_msg(strstr(one, number) != NULL, "%s: %s", name, number);
        free(one);
        free(four);
        free(alone);
    }
}

#ifndef __SANITIZE_ADDRESS__ /* signals come ten times as late there, behind the watchdog */
TEST(an_interrupt_ends_a_callback_that_hangs) {
    struct output output =
        run_late(IN_CACHE, "hang", &(const struct child){.interrupt_after = 2000000});
    ck_assert_int_eq(output.status, 1);
    ck_assert_msg(strstr(output.err, " was interrupted in callback plan (call ") != NULL, "%s",
                  output.err);
    output_free(&output);
}
#endif

/* Wherever the program is started. */
TEST(paths_in_a_systems_file_begin_at_its_folder) {
    char command[1024], absolute[512], text[1024];
    ck_assert_ptr_nonnull(realpath(suite_plugin("template_scheduler"), absolute));
    const char *folder = scratch_path("systems");
    snprintf(command, sizeof command, "mkdir -p '%s' && cp '%s' '%s/mine.so'", folder, absolute,
             folder);
    ck_assert_int_eq(system(command), 0);
    const char *file = scratch_write(
        "systems/mine.ini", "[mine]\nbase = dllm-serve\nscheduler = ./mine.so\n"
                            "[again]\nbase = dllm-serve\nscheduler = nowhere/../mine.so\n");
    const char *db = scratch_path("placed.db");
    free(PRINTS("run", "--systems-file", file, "--system", "mine", "--requests", "5", "--db", db,
                "--levels", "steps"));
    free(PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin"));
    snprintf(text, sizeof text, "%s/nowhere/../mine.so", folder);
    struct output output =
        CLI("run", "--systems-file", file, "--system", "again", "--requests", "5");
    ck_assert_int_eq(output.status, 1);
    ck_assert_msg(strstr(output.err, text) != NULL, "%s", output.err);
    output_free(&output);
}

/* The same in a grid and in a study; a name without a slash is that of a shipped thing. */
TEST(paths_in_a_grid_and_a_study_begin_at_their_folder) {
    char command[1024], absolute[512];
    ck_assert_ptr_nonnull(realpath(suite_plugin("template_scheduler"), absolute));
    const char *folder = scratch_path("grids");
    snprintf(command, sizeof command,
             "mkdir -p '%s' && cp '%s' '%s/mine.so' && cp traces/samples/burstgpt_head400.csv "
             "'%s/mine.csv'",
             folder, absolute, folder, folder);
    ck_assert_int_eq(system(command), 0);
    const char *grid =
        scratch_write("grids/grid.ini", "[sweep]\nset.scheduler = ./mine.so, look-ahead\n"
                                        "workloads = mine.csv, burst\nrequests = 5\n");
    free(PRINTS("sweep", grid));
    snprintf(command, sizeof command, "'%s' sweep /dev/stdin <'%s' >/dev/null 2>&1",
             getenv("UNMASK"), grid);
    ck_assert_int_ne(system(command), 0); /* handed over, it begins where the program does */
    const char *study =
        scratch_write("grids/study.ini",
                      "[figure]\nkind = bars\ntitle = mine\nx_label = x\ny_label = y\nquery = "
                      "SELECT 'a' AS panel, "
                      "model AS series, 1 AS x, throughput_tok_s AS y FROM run\n"
                      "[run]\nsystem = dllm-serve\ngpu = l40s\nworkload = mine.csv\nrequests = 5\n"
                      "set scheduler = ./mine.so\n");
    free(PRINTS("figure", study, "--out", folder));
}

/* What a shell hands over lies in no folder of anybody's. */
TEST(paths_in_a_systems_file_from_a_pipe_begin_where_the_program_does) {
    char command[1024];
    snprintf(command, sizeof command,
             "printf '[mine]\\nbase = dllm-serve\\nscheduler = %s\\n' | '%s' run --requests 5 "
             "--systems-file /dev/stdin --system mine >/dev/null 2>&1",
             suite_plugin("template_scheduler"), getenv("UNMASK"));
    ck_assert_int_eq(system(command), 0);
}

/* What it served until then is printed and recorded, and replayed to the same end. */
TEST(a_run_that_starves_is_there_until_then) {
    const char *db = scratch_path("starves.db");
    setenv("UNMASK_CRIME", "starve", 1);
    struct output output =
        CLI("run", "--roofline", "--scheduler", suite_plugin("bad_late"), "--arrivals", "gamma",
            "--rate", "1000", "--requests", "4300", "--input-tokens", "32", "--output-tokens", "4",
            "--json", "--db", db, "--levels", "steps");
    ck_assert_int_eq(output.status, 1);
    ck_assert_msg(strstr(output.err, "recorded as run 1 of ") != NULL, "%s", output.err);
    ck_assert_msg(strstr(output.out, "\"incomplete\": \"scheduler late starves at ") != NULL, "%s",
                  output.out);
    long completed = atol(strchr(strstr(output.out, "\"completed\""), ':') + 1);
    ck_assert_msg(completed > 0 && completed < 4300, "%ld", completed);
    output_free(&output);
    char *text = PRINTS("replay", "--db", db, "--run", "1", "--allow-plugin");
    ck_assert_ptr_nonnull(strstr(text, "up to where the run was cut off"));
    free(text);
    /* It is no result: a whole run is recorded beside it. */
    setenv("UNMASK_CRIME", "nothing", 1);
    free(PRINTS("run", "--requests", "20", "--db", db));
}

TEST(a_crash_leaves_what_was_recorded) {
    const char *db = scratch_path("crash.db");
    free(PRINTS("run", "--requests", "20", "--db", db, "--levels", "steps"));
    setenv("UNMASK_CRIME", "segv", 1);
    struct output output = CLI("run", "--scheduler", suite_plugin("bad_late"), "--arrivals",
                               "all-at-once", "--requests", "4100", "--db", db);
    ck_assert_int_eq(output.status, 1);
    output_free(&output);
    free(PRINTS("replay", "--db", db, "--run", "1"));
}

SUITE("plug-in runs")
