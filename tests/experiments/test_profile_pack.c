/* A calibration handed to others and taken in: unmask profile pack and profile add. */
#include <sys/stat.h>

#include "sim/base/input/sha256.h"
#include "tests/support/cli.h"

/* A calibration of llada-tiny on an L4, whose file names no profile, with made-up times; DEVICE and
 * the unit of its times are the test's. */
static const char *calibration(const char *name, const char *gpu, const char *device,
                               const char *model, double unit) {
    char text[4096];
    int n = snprintf(
        text, sizeof text,
        "# Operator times of one device as unmask's own kernels take them.\n# rows: 13\n"
        "# kind: measured\n# gpu: %s\n# source: unmask calibrate on %s, 2026-11-28\n"
        "# backend: cuda\n# device: %s, 58 multiprocessors, 22.5 GiB, L2 48 MiB\n"
        "# kernels: 2026-11-28 0123456789ab\n# model: %s\n# weights: /home/ada/llada\n"
        "# host: adas-own-machine\n# serial: 1320224071234\n# made by Ada on her machine\n"
        "# clocks: multiprocessors 2040 to 2040 MHz, power 30 to 72 W, as read between groups\n"
        "# beware: this card is faster than '/home/ada/mine.ini' says (see ~/notes/card.txt)\n"
        "# held_out: 24 steps, median 1.21 %%, 95th percentile 3.40 %%\n",
        gpu, device, device, model);
    static const double gemms[6][4] = {{1, 768, 256, 3},     {4096, 768, 256, 30},
                                       {4096, 256, 256, 12}, {4096, 1024, 256, 40},
                                       {1, 256, 512, 2},     {4096, 256, 512, 20}};
    for (int i = 0; i < 6; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "gemm,%.0f,%.0f,%.0f,%g\n", gemms[i][0],
                      gemms[i][1], gemms[i][2], gemms[i][3] * unit);
    }
    snprintf(text + n, sizeof text - (size_t)n, "%s",
             "attention_full,1,32,2,2,128,5\n"
             "attention_full,64,2048,2,2,128,900\nattention_block,1,32,32,2,2,128,6\n"
             "attention_block,64,32,2048,2,2,128,300\nelementwise,1024,2\n"
             "elementwise,1000000000,900\npass,norm,256,1,1.5\n");
    return scratch_write(name, text);
}

#define L4 "NVIDIA L4 24 GB", "NVIDIA L4"

static const char *pack_of(const char *path, const char *name) {
    const char *out = scratch_path(name);
    free(PRINTS("profile", "pack", path, "--out", out));
    return out;
}

/* The shipped data, but without profiles of single models. */
static const char *empty_data(const char *name) {
    static char data[512]; /* scratch_path keeps the eight latest */
    char command[2048];
    snprintf(data, sizeof data, "%s", scratch_path(name));
    snprintf(command, sizeof command,
             "mkdir -p '%s/kernels/profiles' && ln -sfn \"$PWD/experiments\" \"$PWD/traces\" "
             "\"$PWD/sim\" '%s/' && ln -sf \"$PWD\"/kernels/profiles/*.csv '%s/kernels/profiles/'",
             data, data, data);
    ck_assert_int_eq(system(command), 0);
    return data;
}

static struct child at(const char *data) {
    return (struct child){.data = data};
}

#define ADDS(data, ...)                                                                            \
    cli_text(CLI_AS(&(const struct child){.data = data}, "profile", "add", __VA_ARGS__))
#define WILL_NOT(data, status, sentence, ...)                                                      \
    cli_expect(CLI_AS(&(const struct child){.data = data}, "profile", "add", __VA_ARGS__), status, \
               sentence)

TEST(a_pack_says_what_was_measured_and_of_nobody) {
    char *text = scratch_read(pack_of(calibration("c.csv", L4, "llada-tiny", 1), "c.pack"));
    static const char *const kept[] = {
        "# gpu: NVIDIA L4 24 GB\n",
        "# kernels: 2026-11-28 0123456789ab\n",
        "# clocks: multiprocessors 2040",
        "# held_out: 24 steps, median 1.21 %",
        "# weights: a checkpoint\n",
        "# beware: this card is faster than a file says (see a file\n",
        "\ngemm,4096,768,256,30\n",
        "# rows: 13\n"};
    static const char *const gone[] = {"adas", "Ada", "home", "serial", "1320224071234", "~"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        ck_assert_msg(strstr(text, kept[i]) != NULL, "%s is not in %s", kept[i], text);
    }
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        ck_assert_msg(strstr(text, gone[i]) == NULL, "%s is in %s", gone[i], text);
    }
    free(text);
}

TEST(a_pack_that_was_added_is_found_by_every_command) {
    const char *data = empty_data("found");
    const char *pack = pack_of(calibration("c.csv", L4, "llada-tiny", 1), "c.pack");
    char *text = ADDS(data, pack);
    ck_assert_ptr_nonnull(strstr(text, "added        llada-tiny on l4\n"));
    ck_assert_ptr_nonnull(strstr(text, "/kernels/profiles/l4/llada-tiny.csv\n"));
    ck_assert_ptr_nonnull(strstr(text, "held out     24 steps, median 1.21 %"));
    free(text);
    struct child child = at(data);
    text = cli_text(
        CLI_AS(&child, "run", "--gpu", "l4", "--model", "llada-tiny", "--requests", "5", "--json"));
    ck_assert_ptr_nonnull(strstr(text, "\"profile\": \"l4/llada-tiny\""));
    ck_assert_ptr_nonnull(strstr(text, "\"profile_kind\": \"measured\""));
    free(text);
    /* For people, too: an L4 has no donor whose transfer could be checked. */
    text =
        cli_text(CLI_AS(&child, "run", "--gpu", "l4", "--model", "llada-tiny", "--requests", "5"));
    ck_assert_ptr_nonnull(strstr(text, "prices from  measured: unmask calibrate on NVIDIA L4"));
    free(text);
    text = cli_text(CLI_AS(&child, "list", "profiles"));
    ck_assert_ptr_nonnull(strstr(text, "llada-tiny"));
    free(text);
    /* The same again changes nothing and is fine; another calibration has to be asked for. */
    free(ADDS(data, pack));
    const char *other = pack_of(calibration("o.csv", L4, "llada-tiny", 1.01), "o.pack");
    WILL_NOT(data, 2, "holds another profile already; --replace overwrites it", other);
    free(ADDS(data, other, "--replace"));
}

TEST(a_card_of_ones_own_has_its_packs_beside_its_file) {
    char *ini = scratch_read("sim/model/gpus/l4.ini"), *title = strstr(ini, "NVIDIA L4 24 GB");
    ck_assert_ptr_nonnull(title);
    memcpy(title, "NVIDIA L4 42 GB", strlen("NVIDIA L4 42 GB"));
    const char *card = scratch_write("mine.ini", ini), *data = empty_data("own");
    free(ini);
    const char *pack =
        pack_of(calibration("m.csv", "NVIDIA L4 42 GB", "NVIDIA L4", "llada-tiny", 1), "m.pack");
    WILL_NOT(data, 2, "which is none of `unmask list gpus`: name a file that describes it", pack);
    free(ADDS(data, pack, "--gpu", card));
    char *text = scratch_read(scratch_path("mine/llada-tiny.csv"));
    ck_assert_ptr_nonnull(strstr(text, "# pack: sha256 "));
    free(text);
    WILL_NOT(data, 2, "is of 'NVIDIA L4 42 GB', but l4 is 'NVIDIA L4 24 GB'", pack, "--gpu", "l4");
}

/* Whatever is changed in a pack is seen: every line's first byte, and its end. */
TEST(a_pack_that_was_changed_is_refused) {
    const char *data = empty_data("changed");
    char *text = scratch_read(pack_of(calibration("c.csv", L4, "llada-tiny", 1), "c.pack"));
    const size_t places[] = {5, strlen(text) / 3, strlen(text) / 2, strlen(text) - 3};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char kept = text[places[i]];
        text[places[i]] = kept == '7' ? '8' : '7';
        struct output output = CLI_AS(&(const struct child){.data = data}, "profile", "add",
                                      scratch_write("changed.pack", text));
        ck_assert_int_ne(output.status, 0);
        output_free(&output);
        text[places[i]] = kept;
    }
    text[strlen(text) - 10] = '\0';
    WILL_NOT(data, 1, "was changed or cut off after it was packed",
             scratch_write("cut.pack", text));
    free(text);
    struct stat found;
    ck_assert_int_ne(stat(scratch_path("changed/kernels/profiles/l4/llada-tiny.csv"), &found), 0);
}

/* What a pack is of is checked, however well it is packed. */
TEST(a_pack_of_something_else_is_refused) {
    const char *data = empty_data("else");
    WILL_NOT(data, 2, "is of 'NVIDIA L7 24 GB', which is none of `unmask list gpus`",
             pack_of(calibration("1", "NVIDIA L7 24 GB", "NVIDIA L7", "llada-tiny", 1), "1.pack"));
    WILL_NOT(
        data, 2, "was measured on 'NVIDIA L40S' of 58 multiprocessors, a l4 is",
        pack_of(calibration("2", "NVIDIA L4 24 GB", "NVIDIA L40S", "llada-tiny", 1), "2.pack"));
    WILL_NOT(data, 2, "unknown model 'llada-9b'",
             pack_of(calibration("3", L4, "llada-9b", 1), "3.pack"));
    WILL_NOT(data, 2, "unknown model 'a file'",
             pack_of(calibration("4", L4, "../../llada-tiny", 1), "4.pack"));
    WILL_NOT(data, 1, "these are not its times in microseconds",
             pack_of(calibration("5", L4, "llada-tiny", 1e-3), "5.pack"));
    WILL_NOT(data, 1, "these are not its times in microseconds",
             pack_of(calibration("6", L4, "llada-tiny", 1e3), "6.pack"));
    /* A laptop's variant has the same name and fewer multiprocessors. */
    char *text = scratch_read(calibration("8", L4, "llada-tiny", 1)),
         *sms = strstr(text, "58 multi");
    ck_assert_ptr_nonnull(sms);
    memcpy(sms, "40", 2);
    WILL_NOT(data, 2,
             "was measured on 'NVIDIA L4' of 40 multiprocessors, a l4 is 'NVIDIA L4' of 58",
             pack_of(scratch_write("8", text), "8.pack"));
    /* What several GPUs hold together is no price of one. */
    memcpy(sms, "58", 2);
    sms = strstr(text, "# host: ");
    memcpy(sms, "# ranks: 2", strlen("# ranks: 2"));
    WILL_NOT(data, 2, "is of several GPUs", pack_of(scratch_write("9", text), "9.pack"));
    free(text);
    WILL_NOT(data, 2, "is no pack", calibration("7", L4, "llada-tiny", 1));
    WILL_NOT(data, 1, "No such file or directory", scratch_path("none.pack"));
    REFUSES(2, "profile add: expected the file of a pack", "profile", "add");
}

TEST(only_a_calibration_is_packed) {
    REFUSES(2, "has no line '# kind: measured'", "profile", "pack", "kernels/profiles/l40s.csv");
    REFUSES(2, "has no line '# held_out: ...'", "profile", "pack",
            scratch_write("bare.csv", "# Operator times of x\n# kind: measured\n# gpu: x\n# "
                                      "backend: cpu\n# device: x\n# model: x\n"));
    REFUSES(2, "profile pack: expected the file of a calibration", "profile", "pack");
    const char *path = calibration("c.csv", L4, "llada-tiny", 1);
    char *text = scratch_read(path);
    strrchr(text, 'p')[0] = '\0'; /* without its last row */
    REFUSES(1, "the file says that it has 13 rows, but 12 are there", "profile", "pack",
            scratch_write("cut.csv", text));
    free(text);
    REFUSES(2, "notes.txt", "profile", "pack", path, "--out", scratch_write("notes.txt", "mine\n"));
}

SUITE("profile_pack")
