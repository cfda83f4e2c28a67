/* What around a card spoils measurements is said, one sentence each, before the first of them; and
 * what a library of the CUDA back end lacks. */
#include <string.h>
#include <sys/stat.h>

#include "engine/device/surroundings.h"
#include "tests/support/cli.h"
#include "tests/support/fake_device.h"

/* ---- a machine and its card ---- */

static struct device_surroundings around;

static void tell_around(struct device *device, struct device_surroundings *out) {
    (void)device;
    *out = around;
}

/* The sentences, one behind another. */
static char said[4096];
static size_t n_said;

static void hear(void *state, const char *sentence) {
    const size_t used = strlen(said);
    ck_assert_ptr_eq(state, said);
    ck_assert_uint_lt(strlen(sentence), SURROUNDINGS_CHARS - 1);
    snprintf(said + used, sizeof said - used, "%s\n", sentence);
    n_said++;
}

static size_t sentences_of(const char *card, int32_t capability, const char *root) {
    struct device_table table = {.surroundings = tell_around};
    struct engine_device device = {.table = &table, .facts = {.capability = capability}};
    snprintf(device.facts.name, sizeof device.facts.name, "%s", card);
    said[0] = '\0';
    n_said = 0;
    engine_say_surroundings(&device, root, hear, said);
    return n_said;
}

/* A file of a machine, such as "wsl/proc/version", with the folders that lead to it. */
static void machine_file(const char *path, const char *text) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(path));
    for (char *slash = strchr(folder + strlen(scratch_folder) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0777);
        *slash = '/';
    }
    scratch_write(path, text);
}

static const char *a_machine(const char *name, const char *version) {
    char path[128];
    snprintf(path, sizeof path, "%s/proc/version", name);
    machine_file(path, version);
    return scratch_path(name);
}

static void a_supply(const char *machine, const char *name, const char *type, const char *online) {
    char path[128];
    snprintf(path, sizeof path, "%s/sys/class/power_supply/%s/type", machine, name);
    machine_file(path, type);
    if (online != NULL) {
        snprintf(path, sizeof path, "%s/sys/class/power_supply/%s/online", machine, name);
        machine_file(path, online);
    }
}

static const char *plain_machine(void) {
    return a_machine("plain", "Linux version 6.1.0-28-amd64 (debian-kernel@lists.debian.org)\n");
}

TEST(a_quiet_card_says_nothing) {
    around =
        MAKE(struct device_surroundings, .limit_w = 450, .usual_w = 450, .others_bytes = 600 << 20);
    ck_assert_uint_eq(sentences_of("NVIDIA GeForce RTX 4090", 89, plain_machine()), 0);
    around = MAKE(struct device_surroundings, .limit_w = 0); /* nobody to ask */
    ck_assert_uint_eq(sentences_of("NVIDIA L40S", 89, plain_machine()), 0);
    ck_assert_uint_eq(sentences_of("NVIDIA L40S", 89, "/nowhere"), 0);
    ck_assert_uint_eq(sentences_of("Laptop", 0, a_machine("cpu", "microsoft\n")), 0);
}

/* Kernels of WSL2 as they name themselves. */
TEST(windows_below_is_seen) {
    static const char *const versions[] = {
        "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1) (gcc 11.2.0)\n",
        "Linux version 6.6.87.2-Microsoft-standard-WSL2+\n",
        "Linux version 4.19.84-microsoft-standard (oe-user@oe-host)\n",
    };
    around = MAKE(struct device_surroundings, .limit_w = 0);
    for (size_t i = 0; i < 3; i++) {
        const char *root = a_machine("wsl", versions[i]);
        ck_assert_uint_eq(sentences_of("NVIDIA GeForce RTX 4090", 89, root), 1);
        ASSERT_SAYS(said, "this is WSL2");
        ASSERT_SAYS(said, "Sysmem Fallback Policy");
    }
}

/* Names as drivers print them, and what is said of each: "": nothing. */
static const struct {
    const char *name, *words;
} named[] = {
    {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "a slice of a card (MIG)"},
    {"NVIDIA A100-SXM4-40GB MIG 3g.20gb", "a slice of a card (MIG)"},
    {"GRID A100X-40C", "a virtual GPU"},
    {"NVIDIA L4-24Q", "a virtual GPU"},
    {"NVIDIA L40S-8A", "a virtual GPU"},
    {"NVIDIA GeForce RTX 4090 Laptop GPU", "a laptop's card"},
    {"NVIDIA GeForce RTX 2080 with Max-Q Design", "a laptop's card"},
    {"NVIDIA A100-SXM4-40GB", ""},
    {"NVIDIA A100-PCIE-40GB", ""},
    {"NVIDIA H20-3e", ""},
    {"NVIDIA H100 80GB HBM3", ""},
    {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", ""},
    {"NVIDIA GeForce RTX 4090 D", ""},
};

TEST_EACH(a_card_is_told_by_its_name, sizeof named / sizeof named[0]) {
    around = MAKE(struct device_surroundings, .limit_w = 0);
    const bool says = named[_i].words[0] != '\0';
    ck_assert_uint_eq(sentences_of(named[_i].name, 89, plain_machine()), says);
    ck_assert_ptr_nonnull(strstr(said, named[_i].words));
}

TEST(a_battery_that_nothing_feeds_is_seen) {
    around = MAKE(struct device_surroundings, .limit_w = 0);
    const char *card = "NVIDIA GeForce RTX 4090", *root = a_machine("laptop", "Linux\n");
    a_supply("laptop", "BAT0", "Battery\n", NULL);
    ck_assert_uint_eq(sentences_of(card, 89, root), 0); /* a supply that says nothing feeds it */
    a_supply("laptop", "AC", "Mains\n", "0\n");
    ck_assert_uint_eq(sentences_of(card, 89, root), 1);
    ASSERT_SAYS(said, "runs on its battery");
    a_supply("laptop", "ucsi-1", "USB\n", "1\n");
    ck_assert_uint_eq(sentences_of(card, 89, root), 0);
}

/* What the driver says. */
static const struct {
    struct device_surroundings around;
    const char *words;
} told[] = {
    {{.has_time_limit = true}, "a display is drawn by this card"},
    {{.is_slowed = true}, "slows this card just now"},
    {{.limit_w = 300, .usual_w = 450}, "a power limit of 300 W, less than the 450 W"},
    {{.n_others = 1, .others_bytes = 5LL << 30}, "1 other program computed on this card"},
    {{.n_others = 3, .others_bytes = 5LL << 30}, "3 other programs computed on this card"},
    {{.others_bytes = 3LL << 30}, "of this card's memory were taken"},
};

TEST_EACH(what_the_driver_says_is_said, sizeof told / sizeof told[0]) {
    around = told[_i].around;
    ck_assert_uint_eq(sentences_of("NVIDIA L40S", 89, plain_machine()), 1);
    ASSERT_SAYS(said, told[_i].words);
}

/* Programs in the other slices are their own affair. */
TEST(a_slice_is_not_told_of_the_others) {
    around = MAKE(struct device_surroundings, .n_others = 4, .others_bytes = 50LL << 30);
    ck_assert_uint_eq(sentences_of("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 90, plain_machine()), 1);
}

/* ---- memory that is not the card's ---- */

TEST(weights_that_lie_elsewhere_are_seen) {
    for (int spills = 0; spills < 2; spills++) {
        struct device_table table = fake_table(true);
        struct engine_device device;
        struct err err = {0};
        void *block;
        ck_assert_int_eq(engine_device_start(&table, KERNEL_F32, &device, &err), 0);
        fake.spills = spills != 0;
        ck_assert_int_eq(table.allocate(device.device, 64 << 20, &block), DEVICE_OK);
        said[0] = '\0';
        n_said = 0;
        engine_say_spilled(&device, 64 << 20, hear, said);
        ck_assert_uint_eq(n_said, (size_t)spills);
        ck_assert(spills == 0 || strstr(said, "in the host's") != NULL);
        table.release(device.device, block);
        engine_device_close(&device);
    }
}

/* ---- a library ---- */

/* A library whose own library is not there names that one, not itself: a copy of one that needs the
 * C library, under a name that nobody has. */
TEST(a_library_that_lacks_another_names_it) {
    static char bytes[1 << 20];
    FILE *file = fopen(suite_plugin("two_cards"), "r");
    ck_assert_ptr_nonnull(file);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    ck_assert(n > 0 && n < sizeof bytes);
    fclose(file);
    size_t n_changed = 0;
    for (size_t i = 0; i + 9 <= n; i++) {
        if (memcmp(bytes + i, "libc.so.6", 9) == 0) {
            bytes[i + 3] = 'Q';
            n_changed++;
        }
    }
    ck_assert_uint_ge(n_changed, 1);
    const char *path = scratch_path("libunmask_cuda.so");
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
    REFUSES(1, "libunmask_cuda.so needs libQ.so.6, which is not found: put it next to", "run",
            "--backend", "cuda", "--library", path, "--gpu", "l4");
}

SUITE("surroundings")
