/* Every launch that the kernels' host code can choose, over all shapes that a call may have, and
 * the limits of the architectures that `make kernels` builds for. Sizes come from the functions of
 * kernels/launch_shapes.h, which the launchers call. */
#ifndef UNMASK_TESTS_KERNELS_LAUNCHES_H
#define UNMASK_TESTS_KERNELS_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { N_ARCHITECTURES = 5, MOST_LAUNCHES = 1024, KERNEL_CHARS = 96 };

struct architecture {
    const char *name; /* as the compiler has it, "sm_89" */
    bool is_hopper;   /* has the instructions of sm_90a */
    int shared_bytes; /* of a multiprocessor */
    int block_bytes;  /* of a block that asked for more than DEFAULT_BYTES */
    /* Of a block for the system: the compiler counts it among a kernel's static bytes, where that
     * has any, and block_bytes leave it out. */
    int reserved_bytes;
};

/* Of every architecture: shared memory of a block that asked for nothing, registers of a block and
 * of a thread, threads of a block (CUDA C++ Programming Guide 13.0, compute capabilities). */
enum {
    DEFAULT_BYTES = 48 << 10,
    BLOCK_REGISTERS = 65536,
    THREAD_REGISTERS = 255,
    BLOCK_THREADS = 1024,
    REGISTER_UNIT = 256, /* registers are given to a warp in units of so many */
};

extern const struct architecture architectures[N_ARCHITECTURES];

struct launch {
    char kernel[KERNEL_CHARS];       /* as c++filt writes it, without parameters */
    int threads, most_threads;       /* of the launch; that the kernel is compiled for */
    int dynamic_bytes, static_bytes; /* of shared memory */
    int registers;                   /* of a thread */
    bool asks;                       /* the launcher asks for more than DEFAULT_BYTES */
};

struct launch_list {
    struct launch row[MOST_LAUNCHES];
    size_t n;
};

/* The launches on an architecture; registers and static_bytes are 0. */
void launches_of(const struct architecture *architecture, struct launch_list *out);

/* Fills in what was compiled, out of the file that `make kernels-limits` writes; returns how many
 * launches it does not know, whose names go to `unknown` (at least KERNEL_CHARS long). */
size_t launches_read(const char *path, const struct architecture *architecture,
                     struct launch_list *list, char *unknown);

/* Registers of a launch's block, as they are given. */
int launch_registers(const struct launch *launch);

/* Why a launch cannot be on an architecture, or NULL. */
const char *launch_refusal(const struct architecture *architecture, const struct launch *launch);

#endif
