/* What a live run can tell of others on its device: by an NVML that is written here, by its steps,
 * by processor times and by signals. */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/device/neighbours.h"
#include "tests/support/cli.h"
#include "tests/support/nvml_shim.h"

static struct nvml_script *script;
static const struct device_facts card = {.capability = 90, .bus = "0000:3B:00.0"};
static const struct device_facts cpu = {.capability = 0};

/* A card that only this program uses, at its highest clock. */
static void write_script(void) {
    if (script == NULL) {
        void *shim = dlopen(suite_plugin("nvml_shim"), RTLD_NOW | RTLD_LOCAL);
        ck_assert_msg(shim != NULL, "%s", dlerror());
        script = dlsym(shim, "nvml_script");
        ck_assert_ptr_nonnull(script);
    }
    *script = (struct nvml_script){
        .n_programs = 1, .clock_mhz = 1900, .most_clock_mhz = 1980, .tells_busy = 1};
}

static void begin(struct neighbours *n, const struct device_facts *facts, const char *root) {
    static char path[1024];
    snprintf(path, sizeof path, "%s", suite_plugin("nvml_shim"));
    const struct neighbours_request request = MAKE(struct neighbours_request, .facts = {facts},
                                                   .n_devices = 1, .nvml = path, .root = root);
    neighbours_begin(n, &request);
}

/* The warnings' codes and sentences, one after the other. */
static const char *end(struct neighbours *n) {
    static char said[2048];
    struct warnings warnings = {.n = 0};
    neighbours_end(n);
    neighbours_warn(n, &warnings);
    said[0] = '\0';
    for (unsigned i = 0; i < warnings.n; i++) {
        const size_t used = strlen(said);
        snprintf(said + used, sizeof said - used, "%s: %s\n", warning_words[warnings.items[i].code],
                 warnings.items[i].text);
    }
    return said;
}

static void step(struct neighbours *n, int64_t shape, double ms) {
    neighbours_step(n, (const int64_t[]){shape, 7}, 2, ms * 1e6);
}

TEST(a_card_that_is_there_alone_is_no_news) {
    static struct neighbours n;
    write_script();
    begin(&n, &card, "");
    for (int i = 0; i < 100; i++) {
        step(&n, i % 3, 5 + i % 3 + 0.01 * (i % 7)); /* three shapes, each in its own time */
    }
    neighbours_idle(&n, 2000000000);
    ck_assert_uint_eq(n.n_idle, 1);
    ck_assert_int_eq(script->n_open, 1);
    ck_assert_str_eq(end(&n), "");
    ck_assert_int_eq(script->n_open, 0);
}

TEST(other_programs_on_the_card_are_told_at_either_end) {
    static struct neighbours n;
    write_script();
    script->n_programs = 3;
    begin(&n, &card, "");
    script->n_programs = 1;
    ck_assert_str_eq(end(&n), "device-shared: 2 other programs computed on this card, at the start "
                              "2 and at the end 0: what they did is in the times\n");
    write_script();
    begin(&n, &card, "");
    script->n_programs = 2;
    ck_assert_str_eq(end(&n),
                     "device-shared: 1 other program computed on this card, at the start 0 "
                     "and at the end 1: what they did is in the times\n");
}

TEST(work_on_an_idle_card_is_somebody_elses) {
    static struct neighbours n;
    write_script();
    script->busy_percent = 80;
    begin(&n, &card, "");
    neighbours_idle(&n, 1000000000); /* our own work may be in it still */
    neighbours_idle(&n, 1300000000);
    script->busy_percent = 9;
    neighbours_idle(&n, 1300000000);
    script->tells_busy = 0;
    neighbours_idle(&n, 1300000000);
    ck_assert_str_eq(end(&n),
                     "device-shared: the card was up to 80 % busy while nothing of this run ran on "
                     "it (1 of 2 looks): others compute there\n");
}

TEST(steps_of_one_shape_in_unlike_times_are_told_from_some_on) {
    static struct neighbours n;
    for (int n_slow = 4; n_slow <= 5; n_slow++) {
        write_script();
        begin(&n, &card, "");
        for (int i = 0; i < 21; i++) {
            step(&n, 1, i > 0 && i <= n_slow ? 6.3 : 5);
        }
        const char *said = end(&n);
        ck_assert_str_eq(said, n_slow == 4
                                   ? ""
                                   : "device-shared: 5 of 20 steps took over 1.25 times as long as "
                                     "the shortest of their shape: others compute on this card, or "
                                     "its clock moves\n");
    }
    write_script();
    begin(&n, &card, "");
    for (int i = 0; i < 2 * NEIGHBOURS_SHAPES; i++) { /* more shapes than there are places */
        step(&n, i, 5);
        step(&n, i, i < 100 ? 9 : 5);
    }
    ck_assert_uint_eq(n.n_steps, NEIGHBOURS_SHAPES);
    ck_assert_uint_eq(n.n_slow, 100);
    (void)end(&n);
}

TEST(a_card_that_slows_or_whose_clock_fell_is_told) {
    static struct neighbours n;
    write_script();
    begin(&n, &card, "");
    script->reasons = 0x20;
    ck_assert_str_eq(end(&n), "device-slowed: the driver slowed this card because of heat or its "
                              "power supply\n");
    write_script();
    script->reasons = 0x4; /* its power limit, which is priced */
    begin(&n, &card, "");
    step(&n, 1, 5);
    script->clock_mhz = 900;
    ck_assert_str_eq(end(&n), "device-slowed: after its last step the card ran at 900 MHz, of 1980 "
                              "at the most: its clock fell\n");
    write_script();
    begin(&n, &card, "");
    script->clock_mhz = 300; /* no step: it rests */
    ck_assert_str_eq(end(&n), "");
}

TEST(without_the_driver_nothing_is_said) {
    static struct neighbours n;
    const struct neighbours_request request =
        MAKE(struct neighbours_request, .facts = {&card}, .n_devices = 1,
             .nvml = "/nowhere/libnvidia-ml.so.1", .root = "");
    neighbours_begin(&n, &request);
    neighbours_idle(&n, 2000000000);
    ck_assert_str_eq(end(&n), "");
    ck_assert_ptr_null(nvml_card_open(NVML_LIBRARY, ""));
    write_script();
    ck_assert_ptr_null(nvml_card_open(suite_plugin("nvml_shim"), "elsewhere"));
    ck_assert_int_eq(script->n_open, 0);
}

static void write_stat(int busy, int idle) {
    char text[256];
    snprintf(text, sizeof text, "cpu  %d 0 0 %d 0 0 0 0 0 0\ncpu0 1 2 3\n", busy, idle);
    scratch_write("stat", text);
}

/* A root whose /proc/stat is the test's own. */
static const char *own_root(void) {
    static char root[512];
    snprintf(root, sizeof root, "%s", scratch_path("root"));
    char path[600];
    mkdir(root, 0777);
    snprintf(path, sizeof path, "%s/proc", root);
    mkdir(path, 0777);
    write_stat(1000, 1000);
    snprintf(path, sizeof path, "%s/proc/stat", root);
    ck_assert_int_eq(symlink(scratch_path("stat"), path), 0);
    return root;
}

TEST(a_process_without_its_core_says_so) {
    static struct neighbours n;
    const char *root = own_root();
    begin(&n, &cpu, root);
    step(&n, 1, 1e5); /* a hundred seconds, of which this process computed next to nothing */
    write_stat(1900, 1100);
    const char *said = end(&n);
    ck_assert_msg(strncmp(said,
                          "device-shared: while its steps ran this process had 0 % of a core; "
                          "others took 9",
                          78) == 0,
                  "%s", said);
    n.own_share = 0.5;
    n.others_share = -1;
    struct warnings warnings = {.n = 0};
    neighbours_warn(&n, &warnings);
    ck_assert_str_eq(warnings.items[0].text, "while its steps ran this process had 50 % of a core");
    n.own_share = 0.97;
    n.others_share = 0.6;
    warnings.n = 0;
    neighbours_warn(&n, &warnings);
    ck_assert_str_eq(warnings.items[0].text, "other programs took 60 % of the machine's cores");
    n.others_share = 0.4;
    warnings.n = 0;
    neighbours_warn(&n, &warnings);
    ck_assert_uint_eq(warnings.n, 0);
}

TEST(a_short_run_or_one_of_a_machine_without_numbers_says_nothing) {
    static struct neighbours n;
    begin(&n, &cpu, "/nowhere");
    step(&n, 1, 100); /* too little to tell */
    ck_assert_str_eq(end(&n), "");
}

TEST(a_process_that_was_continued_says_so_and_handles_signals_as_before) {
    static struct neighbours n;
    struct sigaction now;
    begin(&n, &cpu, "/nowhere");
    raise(SIGCONT);
    raise(SIGCONT);
    ck_assert_str_eq(end(&n), "process-stopped: this process was stopped and continued 2 times: as "
                              "long as that lasted is in the times\n");
    sigaction(SIGCONT, NULL, &now);
    ck_assert(now.sa_handler == SIG_DFL);
    begin(&n, &cpu, "/nowhere");
    ck_assert_str_eq(end(&n), "");
    n.stopped_ns = 3e9;
    struct warnings warnings = {.n = 0};
    neighbours_warn(&n, &warnings);
    ck_assert_str_eq(warnings.items[0].text, "the machine slept for 3 s during the run");
}

TEST(what_was_measured_beside_others_is_set_aside) {
    static struct neighbours n;
    struct err err = {0};
    struct stat file;
    char path[512], aside[520];
    snprintf(path, sizeof path, "%s", scratch_write("profile.csv", "gemm,1,2,3\n"));
    snprintf(aside, sizeof aside, "%s.shared", path);
    begin(&n, &cpu, "/nowhere");
    (void)end(&n);
    ck_assert_int_eq(neighbours_set_aside(&n, path, &err), 0);
    ck_assert_int_eq(stat(path, &file), 0);
    begin(&n, &cpu, "/nowhere");
    raise(SIGCONT);
    (void)end(&n);
    ck_assert_int_eq(neighbours_set_aside(&n, path, &err), ERR_WORLD);
    ck_assert_msg(strstr(err.text, "stopped and continued 1 time") != NULL &&
                      strstr(err.text, "--shared keeps it in") != NULL,
                  "%s", err.text);
    ck_assert_int_ne(stat(path, &file), 0);
    ck_assert_int_eq(stat(aside, &file), 0);
    ck_assert_int_eq(neighbours_set_aside(&n, path, &err), ERR_WORLD); /* it is gone */
}

SUITE("neighbours")
