#include "engine/device/surroundings.h"

#include <ctype.h>
#include <glob.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sim/base/num.h"

struct saying {
    void (*say)(void *state, const char *sentence);
    void *state;
};

__attribute__((format(printf, 2, 3))) static void say(const struct saying *saying,
                                                      const char *format, ...) {
    char sentence[SURROUNDINGS_CHARS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    saying->say(saying->state, sentence);
}

/* ---- the machine ---- */

/* The first line of a file, "" where it cannot be read. */
static void first_line(const char *path, char line[256]) {
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(line, 256, file) == NULL) {
        line[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    line[strcspn(line, "\n")] = '\0';
}

static bool has_word(const char *text, const char *word) {
    for (; *text != '\0'; text++) {
        if (strncasecmp(text, word, strlen(word)) == 0) {
            return true;
        }
    }
    return false;
}

/* Microsoft's kernels name it, as "... 5.15.153.1-microsoft-standard-WSL2 ...". */
static bool is_wsl(const char *root) {
    char path[512], line[256];
    snprintf(path, sizeof path, "%s/proc/version", root);
    first_line(path, line);
    return has_word(line, "microsoft");
}

/* Of a machine that has batteries, whether nothing feeds it (Linux's Documentation/ABI/testing/
 * sysfs-class-power): every supply of its own that says whether it is online says no. */
static bool is_on_battery(const char *root) {
    char pattern[512], path[1024], line[256];
    glob_t found;
    bool has_supply = false, is_fed = false;
    snprintf(pattern, sizeof pattern, "%s/sys/class/power_supply/*", root);
    if (glob(pattern, 0, NULL, &found) != 0) {
        return false;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        snprintf(path, sizeof path, "%s/type", found.gl_pathv[i]);
        first_line(path, line);
        if (strcmp(line, "Mains") == 0 || strcmp(line, "USB") == 0) {
            snprintf(path, sizeof path, "%s/online", found.gl_pathv[i]);
            first_line(path, line);
            has_supply = has_supply || line[0] != '\0';
            is_fed = is_fed || line[0] == '1';
        }
    }
    globfree(&found);
    return has_supply && !is_fed;
}

static void say_machine(const struct device_facts *facts, const char *root,
                        const struct saying *to) {
    if (is_wsl(root)) {
        say(to, "this is WSL2: where the card's memory does not suffice the host's is taken, "
                "without a word and far slower, and Windows draws on the card; 'CUDA - Sysmem "
                "Fallback Policy' in NVIDIA's control panel forbids the first");
    }
    if (strstr(facts->name, "Laptop") != NULL || strstr(facts->name, "Max-Q Design") != NULL) {
        say(to, "this is a laptop's card, whose clock falls with heat and load: --clocks follows "
                "it, and times hold for the power that this laptop grants");
    }
    if (is_on_battery(root)) {
        say(to, "this machine runs on its battery, which slows its card: plug it in");
    }
}

/* ---- the card ---- */

/* "NVIDIA H100 80GB HBM3 MIG 1g.10gb". */
static bool is_slice(const struct device_facts *facts) {
    return strstr(facts->name, " MIG ") != NULL;
}

/* Profiles of virtual GPUs end with the gigabytes and the kind, as in "NVIDIA L40S-48Q" and "GRID
 * A100X-40C" (NVIDIA Virtual GPU Software User Guide). */
static bool is_virtual(const struct device_facts *facts) {
    const char *end = strrchr(facts->name, '-');
    const size_t n_digits = end != NULL ? strspn(end + 1, "0123456789") : 0;
    return n_digits > 0 && end[n_digits + 1] != '\0' && strchr("QCAB", end[n_digits + 1]) != NULL &&
           end[n_digits + 2] == '\0';
}

/* What a desktop takes is less. */
static const int64_t MUCH_MEMORY = INT64_C(1) << 30;
/* A limit counts as another from here on: drivers round it. */
static const double SAME_LIMIT = 0.99;

static void say_others(const struct device_surroundings *around, const struct saying *to) {
    char bytes[32];
    num_format_bytes(bytes, sizeof bytes, (double)around->others_bytes);
    if (around->n_others > 0) {
        say(to,
            "%" PRId32 " other program%s computed on this card when it was opened, and %s of its "
            "memory were taken: what they do meanwhile is in the times; end them first",
            around->n_others, around->n_others == 1 ? "" : "s", bytes);
    } else if (around->others_bytes > MUCH_MEMORY) {
        say(to,
            "%s of this card's memory were taken when it was opened: other programs use it, and "
            "what they do meanwhile is in the times",
            bytes);
    }
}

static void say_card(const struct device_facts *facts, const struct device_surroundings *around,
                     const struct saying *to) {
    if (is_slice(facts)) {
        say(to, "this is a slice of a card (MIG): its times hold for such slices alone, and the "
                "clock follows what the other slices do, too");
    } else if (is_virtual(facts)) {
        say(to, "this is a virtual GPU: whoever shares the card takes part of its time");
    }
    if (around->has_time_limit) {
        say(to, "a display is drawn by this card: its watchdog ends kernels that last seconds, "
                "and what is drawn meanwhile is in the times; a text console is quiet");
    }
    if (around->is_slowed) {
        say(to, "the driver slows this card just now, because of heat or its power supply: let it "
                "cool (nvidia-smi -q -d PERFORMANCE says why)");
    }
    if (around->limit_w > 0 && around->limit_w < SAME_LIMIT * around->usual_w) {
        say(to,
            "this card keeps to a power limit of %.0f W, less than the %.0f W that it comes with: "
            "its times hold for that limit",
            around->limit_w, around->usual_w);
    }
    if (!is_slice(facts)) {
        say_others(around, to);
    }
}

void engine_say_surroundings(const struct engine_device *device, const char *root,
                             void (*say_to)(void *state, const char *sentence), void *state) {
    const struct saying to = {say_to, state};
    struct device_surroundings around = {0};
    if (device->facts.capability == 0) {
        return;
    }
    if (device->table->surroundings != NULL) {
        device->table->surroundings(device->device, &around);
    }
    say_machine(&device->facts, root, &to);
    say_card(&device->facts, &around, &to);
}

/* Of what was allocated; smaller differences are other programs' and the driver's own. */
static const double SPILLED_SHARE = 0.1;

void engine_say_spilled(const struct engine_device *device, int64_t bytes,
                        void (*say_to)(void *state, const char *sentence), void *state) {
    const struct saying to = {say_to, state};
    struct device_facts now;
    if (device->facts.capability == 0 || device->table->facts(device->device, &now) != DEVICE_OK) {
        return;
    }
    const int64_t elsewhere = bytes - (device->facts.free_bytes - now.free_bytes);
    if ((double)elsewhere > SPILLED_SHARE * (double)bytes) {
        char part[32], all[32];
        say(&to,
            "%s of the weights' %s are not in the device's memory but, it seems, in the host's: "
            "no time that is measured so is the card's; free its memory first",
            num_format_bytes(part, sizeof part, (double)elsewhere),
            num_format_bytes(all, sizeof all, (double)bytes));
    }
}
