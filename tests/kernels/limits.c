/* The table of `make kernels-limits`: reads what `cuobjdump --dump-resource-usage LIBRARY |
 * c++filt` says of the compiled kernels, writes it to the file that it is given, and prints every
 * launch that comes nearest to a limit of its architecture. Status 1: a launch passes one, or is
 * not known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/launches.h"

enum { MOST_KERNELS = 512, MOST_ROWS = N_ARCHITECTURES * MOST_LAUNCHES, TIGHTEST = 10 };

struct compiled {
    char kernel[KERNEL_CHARS];
    int registers[N_ARCHITECTURES], static_bytes[N_ARCHITECTURES];
    bool has[N_ARCHITECTURES];
};

static struct compiled kernels[MOST_KERNELS];
static size_t n_kernels;

static struct compiled *kernel_of(const char *name) {
    for (size_t i = 0; i < n_kernels; i++) {
        if (strcmp(kernels[i].kernel, name) == 0) {
            return &kernels[i];
        }
    }
    if (n_kernels == MOST_KERNELS || strlen(name) >= KERNEL_CHARS) {
        (void)fprintf(stderr, "kernels-limits: no room for %s\n", name);
        exit(EXIT_FAILURE);
    }
    memcpy(kernels[n_kernels].kernel, name, strlen(name) + 1);
    return &kernels[n_kernels++];
}

/* "Function void norm_kernel<8>(call_norm):" is norm_kernel<8>, and what a file has for itself goes
 * without its namespace. */
static char *name_in(char *line) {
    static const char *const before[] = {"void ", "(anonymous namespace)::"};
    char *name = strstr(line, "Function ") + strlen("Function ");
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        size_t n = strlen(before[i]);
        name += strncmp(name, before[i], n) == 0 ? n : 0;
    }
    name[strcspn(name, "(:\n")] = '\0';
    return name;
}

static void read_usage(FILE *in) {
    char line[4096], name[16];
    struct compiled *kernel = NULL;
    size_t at = N_ARCHITECTURES;
    while (fgets(line, sizeof line, in) != NULL) {
        int registers, bytes;
        const int reserved = at < N_ARCHITECTURES ? architectures[at].reserved_bytes : 0;
        if (sscanf(line, "arch = %15s", name) == 1) {
            for (at = 0; at < N_ARCHITECTURES && strcmp(architectures[at].name, name) != 0; at++) {
            }
        } else if (strstr(line, "Function ") != NULL) {
            kernel = kernel_of(name_in(line));
        } else if (kernel != NULL && at < N_ARCHITECTURES &&
                   sscanf(line, " REG:%d STACK:%*d SHARED:%d", &registers, &bytes) == 2) {
            kernel->registers[at] = registers;
            kernel->static_bytes[at] = bytes - (bytes >= reserved ? reserved : 0);
            kernel->has[at] = true;
        }
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct compiled *)a)->kernel, ((const struct compiled *)b)->kernel);
}

static bool write_usage(const char *path) {
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        return false;
    }
    (void)fputs(
        "# registers of a thread + static bytes of shared memory, by `make kernels-limits`:\n#",
        out);
    for (size_t at = 0; at < N_ARCHITECTURES; at++) {
        (void)fprintf(out, " %s", architectures[at].name);
    }
    (void)fputs(" kernel\n", out);
    qsort(kernels, n_kernels, sizeof kernels[0], by_name);
    for (size_t i = 0; i < n_kernels; i++) {
        for (size_t at = 0; at < N_ARCHITECTURES; at++) {
            if (kernels[i].has[at]) {
                (void)fprintf(out, "%d+%d ", kernels[i].registers[at], kernels[i].static_bytes[at]);
            } else {
                (void)fputs("- ", out);
            }
        }
        (void)fprintf(out, "%s\n", kernels[i].kernel);
    }
    return fclose(out) == 0;
}

/* ---- the table ---- */

struct row {
    const struct architecture *architecture;
    struct launch launch;
    double shared, registers; /* shares of the limits */
};

static struct row rows[MOST_ROWS];
static size_t n_rows;

/* Appends the launches of an architecture that was compiled; returns how many are wrong. */
static size_t rows_add(const char *path, const struct architecture *architecture) {
    static struct launch_list list;
    char unknown[KERNEL_CHARS];
    size_t n_wrong = 0;
    launches_of(architecture, &list);
    size_t n_unknown = launches_read(path, architecture, &list, unknown);
    if (n_unknown == list.n) {
        return 0;
    }
    if (n_unknown > 0) {
        (void)fprintf(stderr, "%s: %zu launches are of kernels that were not compiled, %s\n",
                      architecture->name, n_unknown, unknown);
        n_wrong++;
    }
    for (size_t i = 0; i < list.n; i++) {
        const struct launch *launch = &list.row[i];
        const char *why = launch_refusal(architecture, launch);
        if (why != NULL) {
            (void)fprintf(stderr, "%s: %s: %s\n", architecture->name, launch->kernel, why);
            n_wrong++;
        }
        const int bytes = launch->dynamic_bytes + launch->static_bytes;
        rows[n_rows++] =
            (struct row){architecture, *launch, (double)bytes / architecture->block_bytes,
                         (double)launch_registers(launch) / BLOCK_REGISTERS};
    }
    return n_wrong;
}

/* Kernels that no launch is of, on the architecture that has them all. */
static size_t count_unlaunched(void) {
    static struct launch_list list;
    size_t n = 0;
    for (size_t at = 0; at < N_ARCHITECTURES; at++) {
        if (architectures[at].is_hopper) {
            launches_of(&architectures[at], &list);
        }
    }
    for (size_t i = 0; i < n_kernels; i++) {
        size_t j = 0;
        while (j < list.n && strcmp(list.row[j].kernel, kernels[i].kernel) != 0) {
            j++;
        }
        if (j == list.n) {
            (void)fprintf(stderr, "%s has no launch in tests/kernels/launches.c\n",
                          kernels[i].kernel);
            n++;
        }
    }
    return n;
}

/* Descending; equal rows by name, so that the table is always the same. */
static int by_share(double a, double b, const struct row *x, const struct row *y) {
    return a != b ? (a < b) - (a > b) : strcmp(x->launch.kernel, y->launch.kernel);
}

static int by_shared(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    return by_share(x->shared, y->shared, x, y);
}

static int by_registers(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    return by_share(x->registers, y->registers, x, y);
}

static void table_print(const char *title) {
    printf("%s\n%-7s %7s %9s %8s %6s %5s %8s %5s  %s\n", title, "arch", "threads", "registers",
           "of block", "static", "dyn.", "of limit", "", "kernel");
    for (size_t i = 0; i < TIGHTEST && i < n_rows; i++) {
        const struct launch *launch = &rows[i].launch;
        printf("%-7s %7d %9d %7.1f%% %6d %6d %6d %5.1f%%  %s\n", rows[i].architecture->name,
               launch->threads, launch->registers, rows[i].registers * 100, launch->static_bytes,
               launch->dynamic_bytes, rows[i].architecture->block_bytes, rows[i].shared * 100,
               launch->kernel);
    }
}

int main(int argc, char **argv) {
    size_t n_wrong = 0;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: limits FILE <USAGE\n");
        return 2;
    }
    read_usage(stdin);
    if (n_kernels == 0) {
        (void)fprintf(stderr, "kernels-limits: no kernel's usage on standard input\n");
        return EXIT_FAILURE;
    }
    if (!write_usage(argv[1])) {
        perror(argv[1]);
        return EXIT_FAILURE;
    }
    for (size_t at = 0; at < N_ARCHITECTURES; at++) {
        n_wrong += rows_add(argv[1], &architectures[at]);
    }
    n_wrong += count_unlaunched();
    printf("%zu launches of %zu kernels, %zu wrong\n", n_rows, n_kernels, n_wrong);
    qsort(rows, n_rows, sizeof rows[0], by_shared);
    table_print("nearest to a block's shared memory:");
    qsort(rows, n_rows, sizeof rows[0], by_registers);
    table_print("nearest to a block's registers:");
    return n_wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
