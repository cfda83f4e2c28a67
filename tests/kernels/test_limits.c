/* Every launch that the kernels' host code can choose fits every architecture that is built for, by
 * the sizes that the launchers compute and by what was compiled (kernels/resources.txt). */
#include <glob.h>

#include "kernels/launch_shapes.h"
#include "sim/base/input/datadir.h"
#include "tests/kernels/launches.h"
#include "tests/support/suite.h"

static struct launch_list list;

static void load(int at) {
    char path[512], unknown[KERNEL_CHARS] = "";
    ck_assert_ptr_nonnull(data_path(path, sizeof path, "kernels/resources.txt"));
    launches_of(&architectures[at], &list);
    size_t n_unknown = launches_read(path, &architectures[at], &list, unknown);
    ck_assert_msg(n_unknown == 0, "%s: %zu kernels are not in kernels/resources.txt, %s",
                  architectures[at].name, n_unknown, unknown);
}

TEST_EACH(every_launch_fits_its_architecture, N_ARCHITECTURES) {
    load(_i);
    for (size_t i = 0; i < list.n; i++) {
        const char *why = launch_refusal(&architectures[_i], &list.row[i]);
        ck_assert_msg(why == NULL, "%s: %s: %s", architectures[_i].name, list.row[i].kernel, why);
    }
}

/* What is raised past a limit is refused: the largest that fits, and a little more. */
TEST_EACH(one_more_of_anything_is_refused, N_ARCHITECTURES) {
    const struct architecture *architecture = &architectures[_i];
    struct launch launch = {.threads = 1024,
                            .most_threads = 1024,
                            .dynamic_bytes = architecture->block_bytes - 128,
                            .static_bytes = 128,
                            .registers = 64,
                            .asks = true};
    ck_assert_ptr_null(launch_refusal(architecture, &launch));
    for (int what = 0; what < 6; what++) {
        struct launch other = launch;
        other.static_bytes += what == 0;
        other.dynamic_bytes += what == 1;
        other.asks = what != 2;
        other.registers += what == 3;
        other.threads += what == 4;
        other.most_threads -= what == 5;
        ck_assert_ptr_nonnull(launch_refusal(architecture, &other));
    }
}

/* A kernel's name out of its declaration, which may go on over some lines. */
static bool kernel_named(const char *text, char *name, size_t size) {
    const char *at = strstr(text, "__global__") + strlen("__global__"), *open;
    while ((open = strchr(at, '(')) != NULL) {
        const char *begin = open;
        while (begin > at && (begin[-1] == '_' || (begin[-1] >= 'a' && begin[-1] <= 'z') ||
                              (begin[-1] >= '0' && begin[-1] <= '9'))) {
            begin--;
        }
        if (begin < open && strncmp(begin, "__launch_bounds__", 17) != 0) {
            (void)snprintf(name, size, "%.*s", (int)(open - begin), begin);
            return true;
        }
        at = open[0] == '(' && begin < open ? strchr(open, ')') + 1 : open + 1;
    }
    return false;
}

static bool listed(const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < list.n; i++) {
        const char *kernel = list.row[i].kernel;
        if (strncmp(kernel, name, length) == 0 &&
            (kernel[length] == '\0' || kernel[length] == '<')) {
            return true;
        }
    }
    return false;
}

TEST(every_kernel_of_the_sources_is_listed) {
    static char text[1 << 17];
    char pattern[512], name[KERNEL_CHARS];
    glob_t found;
    size_t n_kernels = 0;
    load(3); /* sm_90a, which has all of them */
    ck_assert_ptr_nonnull(data_path(pattern, sizeof pattern, "kernels/*/*.cu"));
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "r");
        ck_assert_ptr_nonnull(file);
        size_t length = fread(text, 1, sizeof text - 1, file);
        (void)fclose(file);
        text[length] = '\0';
        for (char *at = text; (at = strstr(at, "__global__")) != NULL; at++) {
            ck_assert(kernel_named(at, name, sizeof name));
            ck_assert_msg(listed(name), "%s of %s has no launch in tests/kernels/launches.c", name,
                          found.gl_pathv[i]);
            n_kernels++;
        }
    }
    globfree(&found);
    ck_assert_uint_ge(n_kernels, 40);
}

/* Cards with 100 KiB a multiprocessor get the stages that are made for them. */
TEST_EACH(small_cards_take_compact_stages, N_ARCHITECTURES) {
    const struct architecture *architecture = &architectures[_i];
    ck_assert(line_wants_compact(architecture->shared_bytes) ==
              (architecture->block_bytes < 128 << 10));
}

SUITE("limits")
