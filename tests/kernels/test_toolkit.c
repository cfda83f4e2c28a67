/* For which architectures `make kernels` compiles, by what nvidia-smi and nvcc say, and what it
 * says where a toolkit lacks something: kernels/kernels.mk with stand-ins for both. Run from the
 * repository root. */
#include <string.h>
#include <sys/stat.h>

#include "kernels/rules/code.h"
#include "tests/support/cli.h"

static void program(const char *path, const char *lines) {
    char text[1024];
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", lines);
    ck_assert_int_eq(chmod(scratch_write(path, text), 0755), 0);
}

static const char *const folders[] = {"cards", "none",    "old",     "old/bin", "old/lib64",
                                      "new",   "new/bin", "new/lib", "bare",    "bare/bin"};

/* Toolkits "old" (12.4), "new" (13.0, laid out as wheels are) and "bare" (no cuBLASLt). */
static void toolkits(void) {
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        mkdir(scratch_path(folders[i]), 0777);
    }
    static const char older[] = "[ $1 = --version ] && echo 'tools, release 12.4, V12.4.131' || "
                                "printf 'compute_80\\ncompute_86\\ncompute_89\\ncompute_90\\n'";
    program("old/bin/nvcc", older);
    program("bare/bin/nvcc", older);
    program("new/bin/nvcc",
            "[ $1 = --version ] && echo 'tools, release 13.0, V13.0.88' || printf "
            "'compute_75\\ncompute_80\\ncompute_86\\ncompute_89\\ncompute_90\\ncompute_120\\n'");
    scratch_write("old/lib64/libcublasLt.so.12.4.5.8", "");
    scratch_write("new/lib/libcublasLt.so.13", "");
    remove(scratch_path("old/lib64/libcublasLt.so"));
    ck_assert_int_eq(symlink("libcublasLt.so.12.4.5.8", scratch_path("old/lib64/libcublasLt.so")),
                     0);
    scratch_write("Makefile", "comma := ,\nMAKEFLAGS += --no-print-directory\nFORCE:\n"
                              "include kernels/kernels.mk\n"
                              "linked: ; @echo '$(CUBLASLT) $(abspath $(dir $(CUBLASLT)))'\n");
}

/* What make says of a target, and behind it the flags that it wrote, if any; the caller frees it.
 * `toolkit` is CUDA's, NULL: not given. */
static char *made(const char *target, const char *toolkit, const char *cards, const char *with) {
    char command[2048], where[256] = "";
    if (toolkit != NULL) {
        snprintf(where, sizeof where, "CUDA=%s/%s", scratch_folder, toolkit);
    }
    toolkits();
    program("cards/nvidia-smi", cards != NULL ? cards : "exit 9");
    remove(scratch_path("kernels_flags"));
    snprintf(command, sizeof command,
             "exec 2>&1; cd . && unset CUDA NVCC CUDA_ARCH MAKEFLAGS MFLAGS; PATH=%s/cards:$PATH "
             "make -f %s/Makefile BUILD=%s CC=false %s %s %s; cat %s/kernels_flags "
             "2>/dev/null",
             scratch_folder, scratch_folder, scratch_folder, where, with, target, scratch_folder);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    char *text = scratch_rest(pipe);
    pclose(pipe);
    return text;
}

static char *flags(const char *toolkit, const char *cards, const char *with) {
    char target[128];
    snprintf(target, sizeof target, "%s/kernels_flags", scratch_folder);
    return made(target, toolkit, cards, with);
}

/* "89 90a +89": architectures compiled, and that of the code that a driver compiles. */
static char *architectures(const char *text, char out[128]) {
    out[0] = '\0';
    for (const char *at = text; (at = strstr(at, "arch=compute_")) != NULL; at++) {
        char name[8];
        const bool is_ptx =
            sscanf(at, "arch=compute_%*[0-9a-f],code=compute_%7[0-9a-f]", name) == 1;
        ck_assert(is_ptx || sscanf(at, "arch=compute_%*[0-9a-f],code=sm_%7[0-9a-f]", name) == 1);
        const size_t used = strlen(out);
        snprintf(out + used, 128 - used, "%s%s%s", used > 0 ? " " : "", is_ptx ? "+" : "", name);
    }
    return out;
}

static const struct {
    const char *toolkit, *cards, *with, *compiled, *said;
} machines[] = {
    {"new", "echo 8.9", "", "89 +89", NULL},
    {"new", "printf '8.9\\r\\n'", "", "89 +89", NULL}, /* as a Windows program ends lines */
    {"new", "printf '8.9\\n8.9\\n9.0\\n12.0\\n'", "", "89 90a 120 +89", NULL},
    {"new", "echo 9.0", "", "90a", NULL},
    {"new", NULL, "", "80 86 89 90a 120 +89", NULL},
    {"old", NULL, "", "80 86 89 90a +89", NULL},
    {"new", "echo 'No devices were found'; exit 6", "", "80 86 89 90a 120 +89", NULL},
    {"new", "echo '[N/A]'", "", "80 86 89 90a 120 +89", NULL},
    {"new", "echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2", "",
     "80 86 89 90a 120 +89", NULL},
    {"new", "printf '6.1\n7.5\n'", "", "80 86 89 90a 120 +89",
     "need compute capability 80 and this machine has 61 75"},
    {"new", "printf '7.5\n8.9\n'", "", "89 +89", NULL},
    {"new", "echo 14.0", "", "89 +89", "CUDA 13.0 does not know the compute capability 140 of"},
    {"old", "echo 12.0", "", "89 +89", "CUDA 12.4 does not know the compute capability 120 of"},
    {"new", "printf '12.0\\n14.0\\n'", "", "120 +89", "does not know the compute capability 140"},
    {"old", "echo 12.0", "CUDA_ARCH=8.6", "86 +89", NULL},
    {NULL, NULL, "NVCC=*/old/bin/nvcc", "80 86 89 90a +89", NULL}, /* of its folder is the rest */
    {"new", "echo 8.9", "CUDA_ARCH=sm_80,9.0", "80 90a +80", NULL},
    {"new", NULL, "CUDA_ARCH= CUDA_PTX=86", "+86", NULL},
    {"old", NULL, "CUDA_ARCH=120", "", "CUDA 12.4 (*/old/bin/nvcc) does not compile for 120:"},
    {"old", NULL, "CUDA_ARCH=120", "", "take an architecture that it knows (80 86 89 90;"},
    {"bare", NULL, "", "", "libcublasLt.so was found neither in */bare nor where"},
    {"old", NULL, "CUBLASLT=*/new/lib/libcublasLt.so.13", "",
     "libcublasLt.so.13 is of CUDA 13 and */old/bin/nvcc of 12.4"},
    {"none", NULL, "", "", "nvcc was not found in */none/bin"},
};

/* With the scratch folder where a text has a star. */
static const char *placed(const char *text, char out[512]) {
    const char *star = strchr(text, '*');
    snprintf(out, 512, "%.*s%s%s", star != NULL ? (int)(star - text) : 0, text,
             star != NULL ? scratch_folder : "", star != NULL ? star + 1 : text);
    return out;
}

TEST_EACH(kernels_are_built_for_the_cards, sizeof machines / sizeof machines[0]) {
    char compiled[128], with[512], said[512];
    char *text = flags(machines[_i].toolkit, machines[_i].cards, placed(machines[_i].with, with));
    if (machines[_i].toolkit != NULL && strcmp(machines[_i].toolkit, "none") == 0) {
        free(text);
        text = made("kernels", "none", NULL, "");
    }
    ck_assert_str_eq(architectures(text, compiled), machines[_i].compiled);
    if (machines[_i].said != NULL) {
        ASSERT_SAYS(text, placed(machines[_i].said, said));
    } else {
        ck_assert_ptr_eq(strstr(text, "does not"), NULL);
    }
    free(text);
}

/* It is linked from the toolkit, whose folder the library then looks in, whatever its layout. */
TEST(cublaslt_is_that_of_the_toolkit) {
    static const char *const toolkits_of[][2] = {{"old", "lib64/libcublasLt.so"},
                                                 {"new", "lib/libcublasLt.so.13"}};
    for (size_t i = 0; i < 2; i++) {
        char path[512], folder[512];
        char *text = made("linked", toolkits_of[i][0], NULL, "");
        snprintf(path, sizeof path, "%s/%s/%s ", scratch_folder, toolkits_of[i][0],
                 toolkits_of[i][1]);
        snprintf(folder, sizeof folder, " %s/%s/lib%s\n", scratch_folder, toolkits_of[i][0],
                 i == 0 ? "64" : "");
        ck_assert_msg(strstr(text, path) != NULL && strstr(text, folder) != NULL, "%s", text);
        free(text);
    }
}

/* What the driver has to compile is known before it does. */
TEST(compiled_code_runs_on_later_cards_of_its_generation) {
    static const struct {
        const char *code;
        int capability;
        bool runs;
    } cases[] = {
        {"80 86 89 90a 120", 80, true},
        {"80 86 89 90a 120", 87, true},
        {"80 86 89 90a 120", 89, true},
        {"80 86 89 90a 120", 90, true},
        {"80 86 89 90a 120", 100, false},
        {"80 86 89 90a 120", 121, true},
        {"86", 80, false},
        {"86", 89, true},
        {"89", 90, false},
        {"90a", 89, false},
        {"90a 89", 90, true},
        {"89 90a", 91, false},
        {"120", 12, false},
        {"", 89, false},
        {" 89 ", 89, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_msg(code_runs_on(cases[i].code, cases[i].capability) == cases[i].runs,
                      "'%s' on %d", cases[i].code, cases[i].capability);
    }
}

SUITE("toolkit")
