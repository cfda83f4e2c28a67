/* The CPU as a device: host memory with a meter, work that is done when a function returns.
 *
 * In float32 it is made to be used, by the kernels of cpu.h and the reference implementations of
 * what moves or maps elements. In bf16 all kernels are reference implementations, which round where
 * a GPU's kernels round: slow, with room allocated inside calls, for checking a GPU's numbers where
 * there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/device.h"
#include "kernels/device/mapped.h"
#include "kernels/fp8.h"
#include "kernels/ref/cpu.h"
#include "kernels/ref/cpu_blas.h"
#include "kernels/ref/cpu_ranks.h"
#include "kernels/ref/ref.h"
#include "kernels/rules/draw.h"
#include "sim/base/system.h"

/* ---- memory ---- */

enum { ALIGN_BYTES = 512, GRANULE_BYTES = 2 << 20 };

/* In front of every piece, ALIGN_BYTES wide. */
struct piece {
    struct piece *next, *previous;
    int64_t bytes; /* on the meter; 0: host memory, events */
};

struct device {
    enum kernel_dtype dtype;
    struct piece pieces; /* ring of all that is allocated */
    int64_t allocated_bytes;
    struct mapped mapped;
    struct cpu_room room;
    float codes[E4M3_CODES]; /* the room's */
    struct cpu_ranks *ranks; /* NULL: alone */
    int32_t rank;
    const char *trouble;
};

static int fail(struct device *device, int status, const char *why) {
    device->trouble = why;
    return status;
}

static int take(struct device *device, int64_t bytes, int64_t metered_bytes, void **out) {
    *out = NULL;
    if (bytes < 0) {
        return fail(device, DEVICE_REFUSED, "a negative size");
    }
    size_t rounded = ((size_t)bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    struct piece *piece = aligned_alloc(ALIGN_BYTES, ALIGN_BYTES + rounded);
    if (piece == NULL) {
        return fail(device, DEVICE_NO_MEMORY, "the host has no such memory");
    }
    *piece = (struct piece){device->pieces.next, &device->pieces, metered_bytes};
    piece->next->previous = piece;
    device->pieces.next = piece;
    device->allocated_bytes += metered_bytes;
    *out = (unsigned char *)piece + ALIGN_BYTES;
    return DEVICE_OK;
}

static void give(struct device *device, void *memory) {
    if (memory != NULL) {
        struct piece *piece = (struct piece *)(void *)((unsigned char *)memory - ALIGN_BYTES);
        piece->previous->next = piece->next;
        piece->next->previous = piece->previous;
        device->allocated_bytes -= piece->bytes;
        free(piece);
    }
}

static int cpu_allocate(struct device *device, int64_t bytes, void **out) {
    return take(device, bytes, bytes, out);
}

static int cpu_allocate_host(struct device *device, int64_t bytes, void **out) {
    return take(device, bytes, 0, out);
}

static int64_t cpu_allocated_bytes(const struct device *device) {
    return device->allocated_bytes;
}

static int64_t cpu_own_bytes(const struct device *device) {
    return CPU_ROOM_BYTES + (device->room.weights != NULL ? CPU_WEIGHTS_BYTES : 0);
}

/* ---- mapped memory ---- */

/* Handles are files in memory. The granule is a GPU's, which the host's pages divide. */
static int cpu_granule(struct device *device, int64_t *bytes) {
    *bytes = device->mapped.granule_bytes;
    return DEVICE_OK;
}

/* Addresses that fault; `at` NULL: anywhere. */
static void *bare_addresses(void *at, int64_t bytes) {
    return mmap(at, (size_t)bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != NULL ? MAP_FIXED : 0), -1, 0);
}

static int cpu_range_open(struct device *device, int64_t bytes, void **out) {
    const char *refused = mapped_refuses_size(&device->mapped, bytes);
    *out = NULL;
    if (refused != NULL) {
        return fail(device, DEVICE_REFUSED, refused);
    }
    struct mapped_range *range = mapped_add_range(&device->mapped, bytes);
    void *at = range != NULL ? bare_addresses(NULL, bytes) : MAP_FAILED;
    if (at == MAP_FAILED) {
        if (range != NULL) {
            mapped_forget_range(&device->mapped, range);
        }
        return fail(device, DEVICE_NO_MEMORY, "the host has no such addresses");
    }
    range->at = at;
    *out = at;
    return DEVICE_OK;
}

static int cpu_unmap(struct device *device, struct device_handle *handle) {
    if (handle->at != NULL && bare_addresses(handle->at, handle->bytes) == MAP_FAILED) {
        return fail(device, DEVICE_FAILED, "memory cannot be unmapped");
    }
    handle->at = NULL;
    return DEVICE_OK;
}

static void cpu_range_close(struct device *device, void *at) {
    struct mapped_range *range = at != NULL ? mapped_find_range(&device->mapped, at) : NULL;
    if (range == NULL) {
        return;
    }
    for (struct device_handle *h = device->mapped.handles; h != NULL; h = h->next) {
        if (h->at >= range->at && h->at < range->at + range->bytes) {
            (void)cpu_unmap(device, h);
        }
    }
    munmap(range->at, (size_t)range->bytes);
    mapped_forget_range(&device->mapped, range);
}

static int cpu_handle_open(struct device *device, int64_t bytes, struct device_handle **out) {
    const char *refused = mapped_refuses_size(&device->mapped, bytes);
    *out = NULL;
    if (refused != NULL) {
        return fail(device, DEVICE_REFUSED, refused);
    }
    bool fits = bytes / sysconf(_SC_PAGESIZE) <= sysconf(_SC_PHYS_PAGES);
    int file = fits ? system_memory_file() : -1;
    struct device_handle *handle = NULL;
    if (file >= 0 && ftruncate(file, bytes) == 0) {
        handle = mapped_add_handle(&device->mapped, bytes);
    }
    if (handle == NULL) {
        if (file >= 0) {
            close(file);
        }
        return fail(device, DEVICE_NO_MEMORY, "the host has no such memory");
    }
    handle->memory = (uint64_t)file;
    device->allocated_bytes += bytes;
    *out = handle;
    return DEVICE_OK;
}

static void cpu_handle_close(struct device *device, struct device_handle *handle) {
    if (handle != NULL) {
        (void)cpu_unmap(device, handle);
        close((int)handle->memory);
        device->allocated_bytes -= handle->bytes;
        mapped_forget_handle(&device->mapped, handle);
    }
}

static int cpu_map(struct device *device, void *at, struct device_handle *handle) {
    const char *refused = mapped_refuses_map(&device->mapped, handle, at);
    if (refused != NULL) {
        return fail(device, DEVICE_REFUSED, refused);
    }
    if (mmap(at, (size_t)handle->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle->memory,
             0) == MAP_FAILED) {
        return fail(device, DEVICE_NO_MEMORY, "the host maps no more memory");
    }
    handle->at = at;
    return DEVICE_OK;
}

static int cpu_allow(struct device *device, void *at, int64_t bytes) {
    const char *refused = mapped_refuses_allow(&device->mapped, at, bytes);
    if (refused != NULL) {
        return fail(device, DEVICE_REFUSED, refused);
    }
    return mprotect(at, (size_t)bytes, PROT_READ | PROT_WRITE) == 0
               ? DEVICE_OK
               : fail(device, DEVICE_NO_MEMORY, "the host allows no more memory");
}

/* ---- opening ---- */

static void cpu_close(struct device *device) {
    if (device != NULL) {
        while (device->mapped.handles != NULL) {
            cpu_handle_close(device, device->mapped.handles);
        }
        while (device->mapped.ranges != NULL) {
            cpu_range_close(device, device->mapped.ranges->at);
        }
        while (device->pieces.next != &device->pieces) {
            give(device, (unsigned char *)device->pieces.next + ALIGN_BYTES);
        }
        if (device->ranks != NULL) {
            cpu_ranks_leave(device->ranks);
        }
        free(device);
    }
}

/* As many devices as are asked for, all of them the one CPU. */
static int cpu_open(int32_t index, enum kernel_dtype dtype, struct device **out, char *text) {
    (void)index;
    *out = NULL;
    /* In bf16 nothing multiplies by it. */
    if (dtype == KERNEL_F32 && !blas_start(text, DEVICE_TEXT_CHARS)) {
        return DEVICE_NO_MEMORY;
    }
    struct device *device = calloc(1, sizeof *device);
    void *room = NULL;
    if (device != NULL) {
        device->dtype = dtype;
        device->pieces = (struct piece){&device->pieces, &device->pieces, 0};
        device->mapped.granule_bytes = GRANULE_BYTES;
        device->trouble = "";
    }
    if (device == NULL || take(device, CPU_ROOM_BYTES, 0, &room) != DEVICE_OK) {
        snprintf(text, DEVICE_TEXT_CHARS, "no memory to work in");
        cpu_close(device);
        return DEVICE_NO_MEMORY;
    }
    for (int code = 0; code < E4M3_CODES; code++) {
        device->codes[code] = e4m3_to_float((uint8_t)code);
    }
    device->room.codes = device->codes;
    device->room.query = room;
    device->room.inputs = (float *)(void *)(device->room.query + CPU_MAX_INPUTS);
    device->room.outputs = device->room.inputs + (int64_t)CPU_PANEL_ROWS * CPU_MAX_INPUTS;
    *out = device;
    return DEVICE_OK;
}

static int cpu_enter(struct device *device) {
    (void)device;
    return DEVICE_OK;
}

static const char *cpu_trouble(const struct device *device) {
    return device->trouble;
}

static int cpu_facts(struct device *device, struct device_facts *out) {
    (void)device;
    *out = (struct device_facts){
        .memory_bytes = (int64_t)sysconf(_SC_PAGESIZE) * sysconf(_SC_PHYS_PAGES),
        .free_bytes = system_free_bytes(),
        .l2_bytes = system_l2_bytes(),
        .n_sms = (int32_t)sysconf(_SC_NPROCESSORS_ONLN),
    };
    system_processor_name(out->name, sizeof out->name);
    return DEVICE_OK;
}

static void cpu_vitals(struct device *device, struct device_vitals *out) {
    (void)device;
    *out = (struct device_vitals){0};
}

/* ---- copies and events ---- */

static int cpu_copy(struct device *device, void *to, const void *from, int64_t bytes) {
    (void)device;
    memmove(to, from, (size_t)bytes);
    return DEVICE_OK;
}

static int cpu_swap_out(struct device *device, void *host, const void *memory, int64_t bytes,
                        int64_t pitch, int64_t n) {
    (void)device;
    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)host + i * bytes, (const char *)memory + i * pitch, (size_t)bytes);
    }
    return DEVICE_OK;
}

static int cpu_swap_in(struct device *device, void *memory, const void *host, int64_t bytes,
                       int64_t pitch, int64_t n) {
    (void)device;
    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)memory + i * pitch, (const char *)host + i * bytes, (size_t)bytes);
    }
    return DEVICE_OK;
}

static int cpu_clear(struct device *device, void *to, int64_t bytes) {
    (void)device;
    memset(to, 0, (size_t)bytes);
    return DEVICE_OK;
}

static int cpu_finish(struct device *device) {
    (void)device;
    return DEVICE_OK;
}

struct device_event {
    struct timespec time;
};

static int cpu_event_open(struct device *device, struct device_event **out) {
    void *memory;
    int status = take(device, sizeof **out, 0, &memory);
    *out = memory;
    return status;
}

static void cpu_event_close(struct device *device, struct device_event *event) {
    give(device, event);
}

static int cpu_event_record(struct device *device, struct device_event *event) {
    return clock_gettime(CLOCK_MONOTONIC, &event->time) == 0
               ? DEVICE_OK
               : fail(device, DEVICE_FAILED, "there is no clock");
}

static int cpu_event_reached(struct device *device, struct device_event *event, bool *out) {
    (void)device;
    (void)event;
    *out = true;
    return DEVICE_OK;
}

static int cpu_event_wait(struct device *device, struct device_event *event) {
    (void)device;
    (void)event;
    return DEVICE_OK;
}

static int cpu_event_elapsed(struct device *device, struct device_event *from,
                             struct device_event *to, double *ns) {
    (void)device;
    *ns = (double)(to->time.tv_sec - from->time.tv_sec) * 1e9 +
          (double)(to->time.tv_nsec - from->time.tv_nsec);
    return DEVICE_OK;
}

/* ---- kernels ---- */

/* Whose reference implementation serves both dtypes. */
#define RUN_OWN(kernel)
#define RUN_PLAIN(kernel)                                                                          \
    static int cpu_run_##kernel(struct device *device, const struct call_##kernel *call) {         \
        (void)device;                                                                              \
        ref_##kernel(call);                                                                        \
        return DEVICE_OK;                                                                          \
    }
#define KERNEL(name, cuda, cpu) RUN_##cpu(name)
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"

static int ref_status(struct device *device, bool ran) {
    return ran ? DEVICE_OK : fail(device, DEVICE_NO_MEMORY, "no memory for one row");
}

/* A product in single precision: it has few enough inputs, and the first in fp8 makes room. */
static int prepare(struct device *device, int32_t n_inputs, const struct call_fp8 *fp8) {
    if (n_inputs > CPU_MAX_INPUTS) {
        return fail(device, DEVICE_REFUSED, "a product over more than 32768 inputs");
    }
    void *weights = device->room.weights;
    const int status = fp8->w_scale == NULL || weights != NULL
                           ? DEVICE_OK
                           : take(device, CPU_WEIGHTS_BYTES, 0, &weights);
    device->room.weights = weights;
    return status;
}

static int cpu_run_linear(struct device *device, const struct call_linear *call) {
    if (call->dtype == KERNEL_BF16) {
        ref_linear(call);
        return DEVICE_OK;
    }
    if (call->by_inputs) {
        cpu_linear_by_inputs(&device->room, call);
        return DEVICE_OK;
    }
    const int status = prepare(device, call->n_inputs, &call->fp8);
    if (status == DEVICE_OK) {
        cpu_linear(&device->room, call);
    }
    return status;
}

/* Products with a reference implementation and one in single precision. */
#define RUN_PRODUCT(kernel, n_inputs)                                                              \
    static int cpu_run_##kernel(struct device *device, const struct call_##kernel *call) {         \
        if (call->dtype == KERNEL_BF16) {                                                          \
            ref_##kernel(call);                                                                    \
            return DEVICE_OK;                                                                      \
        }                                                                                          \
        const int status = prepare(device, call->n_inputs, &call->fp8);                            \
        if (status == DEVICE_OK) {                                                                 \
            cpu_##kernel(&device->room, call);                                                     \
        }                                                                                          \
        return status;                                                                             \
    }
RUN_PRODUCT(gate_up, n_channels)
RUN_PRODUCT(moe_gate_up, n_channels)
RUN_PRODUCT(moe_down, n_hidden)

static int cpu_run_dense_attention(struct device *device, const struct call_dense_attention *call) {
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_dense_attention(call));
    }
    if (call->head_size > CPU_MAX_INPUTS) {
        return fail(device, DEVICE_REFUSED, "attention over heads of more than 32768 channels");
    }
    cpu_dense_attention(&device->room, call);
    return DEVICE_OK;
}

static int cpu_run_block_attention(struct device *device, const struct call_block_attention *call) {
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_block_attention(call));
    }
    cpu_block_attention(&device->room, call);
    return DEVICE_OK;
}

static int cpu_run_paged_attention(struct device *device, const struct call_paged_attention *call) {
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_paged_attention(call));
    }
    cpu_paged_attention(&device->room, call);
    return DEVICE_OK;
}

/* Whether the kernels take this many blocks of a pattern. */
static bool takes_blocks(int32_t max_tokens, int32_t block_tokens) {
    return block_tokens > 0 &&
           (max_tokens + (int64_t)block_tokens - 1) / block_tokens <= PATTERN_MAX_BLOCKS;
}

static int cpu_run_pattern(struct device *device, const struct call_pattern *call) {
    if (!takes_blocks(call->max_tokens, call->block_tokens)) {
        return fail(device, DEVICE_REFUSED, "a pattern of more than 4096 blocks");
    }
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_pattern(call));
    }
    if (call->max_tokens > CPU_MAX_PATTERN_TOKENS) {
        return fail(device, DEVICE_REFUSED, "a pattern of more than 524288 tokens");
    }
    cpu_pattern(&device->room, call);
    return DEVICE_OK;
}

static int cpu_run_pattern_attention(struct device *device,
                                     const struct call_pattern_attention *call) {
    if (!takes_blocks(call->max_tokens, call->block_tokens)) {
        return fail(device, DEVICE_REFUSED, "a pattern of more than 4096 blocks");
    }
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_pattern_attention(call));
    }
    cpu_pattern_attention(call);
    return DEVICE_OK;
}

static int cpu_run_select(struct device *device, const struct call_select *call) {
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_select(call));
    }
    if ((int64_t)call->n_heads * call->head_size > CPU_MAX_INPUTS) {
        return fail(device, DEVICE_REFUSED, "a selection by more than 32768 query channels");
    }
    cpu_select(&device->room, call);
    return DEVICE_OK;
}

static int cpu_run_head(struct device *device, const struct call_head *call) {
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_head(call));
    }
    if (call->rounded || call->n_channels > CPU_MAX_INPUTS ||
        call->n_vocab > HEAD_SCRATCH_BYTES / (int)sizeof(float)) {
        return fail(device, DEVICE_REFUSED, "a head that rounds single precision or is too large");
    }
    const int status = prepare(device, call->n_channels, &call->fp8);
    if (status == DEVICE_OK) {
        cpu_head(&device->room, call);
    }
    return status;
}

static int cpu_run_draw(struct device *device, const struct call_draw *call) {
    if (call->n_vocab > DRAW_MAX_VOCAB) {
        return fail(device, DEVICE_REFUSED, "a token of more than 524288");
    }
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_draw(call));
    }
    cpu_draw(call);
    return DEVICE_OK;
}

static int cpu_run_sample(struct device *device, const struct call_sample *call) {
    if (call->dtype == KERNEL_BF16) {
        return ref_status(device, ref_sample(call));
    }
    cpu_sample(call);
    return DEVICE_OK;
}

/* ---- ranks ---- */

static int cpu_open_ranks(struct device *const *devices, int32_t n) {
    if (n < 1 || n > CALL_MAX_RANKS) {
        return fail(devices[0], DEVICE_REFUSED, "more ranks than there may be");
    }
    struct cpu_ranks *ranks = cpu_ranks_open(n);
    if (ranks == NULL) {
        return fail(devices[0], DEVICE_NO_MEMORY, "no memory for the ranks");
    }
    for (int32_t rank = 0; rank < n; rank++) {
        devices[rank]->ranks = ranks;
        devices[rank]->rank = rank;
    }
    return DEVICE_OK;
}

static void cpu_break_ranks(struct device *device) {
    if (device->ranks != NULL) {
        cpu_ranks_break(device->ranks);
    }
}

static int met_status(struct device *device, bool met) {
    return met ? DEVICE_OK : fail(device, DEVICE_FAILED, "another rank has stopped");
}

static int cpu_run_all_reduce(struct device *device, const struct call_all_reduce *call) {
    if (device->ranks == NULL || call->n < 0 || call->n % 8 != 0) {
        return fail(device, DEVICE_REFUSED,
                    device->ranks == NULL ? "a sum over ranks, of which it is none"
                                          : "a sum over ranks that is not in eights");
    }
    return met_status(device, cpu_ranks_reduce(device->ranks, device->rank, call));
}

static int cpu_run_all_gather(struct device *device, const struct call_all_gather *call) {
    if (device->ranks == NULL || call->bytes < 0 || call->bytes % 4 != 0) {
        return fail(device, DEVICE_REFUSED,
                    device->ranks == NULL ? "a gathering of ranks, of which it is none"
                                          : "a gathering that is not in fours");
    }
    return met_status(device, cpu_ranks_gather(device->ranks, device->rank, call));
}

const struct device_table device_cpu = {
    .abi = DEVICE_ABI,
    .size = sizeof(struct device_table),
    .name = "cpu",
    .open = cpu_open,
    .enter = cpu_enter,
    .close = cpu_close,
    .trouble = cpu_trouble,
    .facts = cpu_facts,
    .vitals = cpu_vitals,
    .allocate = cpu_allocate,
    .release = give,
    .allocated_bytes = cpu_allocated_bytes,
    .own_bytes = cpu_own_bytes,
    .allocate_host = cpu_allocate_host,
    .release_host = give,
    .granule = cpu_granule,
    .range_open = cpu_range_open,
    .range_close = cpu_range_close,
    .handle_open = cpu_handle_open,
    .handle_close = cpu_handle_close,
    .map = cpu_map,
    .allow = cpu_allow,
    .unmap = cpu_unmap,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .finish = cpu_finish,
    .swap_out = cpu_swap_out,
    .swap_in = cpu_swap_in,
    .swap_wait = cpu_finish,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .event_record = cpu_event_record,
    .event_reached = cpu_event_reached,
    .event_wait = cpu_event_wait,
    .event_elapsed = cpu_event_elapsed,
    .ranks_open = cpu_open_ranks,
    .ranks_break = cpu_break_ranks,
#define KERNEL(name, cuda, cpu) .name = cpu_run_##name,
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"
};
