/* Scripts for a GPU, as far as they run without one. Run from the repository root. */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

/* What the script printed; *status: how it ended. The caller frees it. */
static char *memory_script(const char *settings, const char *systems, int *status) {
    const char *program = getenv("UNMASK") != NULL ? getenv("UNMASK") : "build/unmask";
    const char *said = scratch_path("said");
    char command[2048];
    snprintf(command, sizeof command,
             "env UNMASK='%s' OUTPUT=8 %s tests/gpu/memory.sh nowhere '%s' %s >'%s' 2>&1", program,
             settings, scratch_path("out"), systems, said);
    const int ended = system(command);
    ck_assert(WIFEXITED(ended));
    *status = WEXITSTATUS(ended);
    return scratch_read(said);
}

TEST(every_systems_memory_check_runs_on_the_cpu_without_the_tool) {
    int status;
    char *said = memory_script("BACKEND=cpu", "dllm-cache sdar", &status);
    ck_assert_msg(status == 0, "%s", said);
    ck_assert_msg(strstr(said, "dllm-cache               llada-2m            ran") != NULL, "%s",
                  said);
    ck_assert_msg(strstr(said, "sdar                     sdar-2m             ran") != NULL, "%s",
                  said);
    free(said);
    said = memory_script("BACKEND=cpu", "vanilla-published", &status);
    ck_assert_int_eq(status, 1); /* it does not run live */
    ASSERT_SAYS(said, "status 2");
    free(said);
}

/* In place of compute-sanitizer: says how many errors it found, and what the program would. */
static const char tool[] = "#!/bin/sh\n"
                           "while [ $# -gt 0 ]; do\n"
                           "case $1 in --tool) tool=$2 ;; --log-file) log=$2 ;; esac\n"
                           "shift\n"
                           "done\n"
                           "n=0\n"
                           "[ $tool = memcheck ] || n=3\n"
                           "echo \"========= ERROR SUMMARY: $n errors\" >$log\n"
                           "echo '  \"completed\": 4,'\n";

TEST(what_a_tool_finds_is_in_the_table_and_in_the_status) {
    int status;
    char settings[1024];
    const char *path = scratch_write("tool", tool);
    ck_assert_int_eq(chmod(path, 0755), 0);
    snprintf(settings, sizeof settings, "SANITIZER='%s'", path);
    char *said = memory_script(settings, "sdar", &status);
    ck_assert_msg(status == 1, "%s", said);
    ck_assert_msg(strstr(said, "sdar                     sdar-2m               0            3") !=
                      NULL,
                  "%s", said);
    free(said);
    snprintf(settings, sizeof settings, "TOOLS=memcheck SANITIZER='%s'", path);
    said = memory_script(settings, "sdar", &status);
    ck_assert_msg(status == 0, "%s", said);
    free(said);
    said = memory_script("SANITIZER=/nowhere", "sdar", &status);
    ck_assert_int_eq(status, 1);
    ASSERT_SAYS(said, "was not found");
    free(said);
}

SUITE("scripts")
