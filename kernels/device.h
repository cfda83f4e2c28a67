/* A device as one table of functions: its memory, its queue of work, and the kernels.
 *
 * There are two: the CPU (device_cpu.c: the reference implementations, and BLAS for products;
 * float32 or bf16; work is done when a function returns) and a CUDA GPU (device_cuda.cu in
 * libunmask_cuda.so, loaded only when asked for; bf16; work is queued). Whoever drives one cannot
 * tell which.
 *
 * Functions that can fail return an enum device_status; after anything but DEVICE_OK, trouble()
 * says in a few words what failed. Work runs in the order in which it was issued. A call's arrays
 * are device memory and stay as they are until the work is done; the structs themselves are copied.
 * Nothing but allocate, open, what is called an open and the first product of a new shape
 * allocates; nothing but download, finish, event_wait and release waits. */
#ifndef UNMASK_KERNELS_DEVICE_H
#define UNMASK_KERNELS_DEVICE_H

#include "kernels/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DEVICE_ABI = 18, DEVICE_TEXT_CHARS = 256 };

enum device_status {
    DEVICE_OK,
    DEVICE_NO_MEMORY, /* allocate and the opens: there is less than was asked for */
    DEVICE_ABSENT,    /* open: no device, no driver, or one too old */
    DEVICE_FAILED,    /* a launch or a copy failed; only close and release make sense now */
    DEVICE_REFUSED,   /* a call outside what calls.h promises */
};

struct device_facts {
    char name[DEVICE_TEXT_CHARS]; /* as the maker calls it */
    int64_t memory_bytes, free_bytes, l2_bytes;
    int32_t n_sms;
    int32_t capability; /* 10 major + minor; 0: not a CUDA GPU */
    char bus[32];       /* its PCI bus id, by which its driver knows it; "": none */
};

/* What the device is doing just now, as far as it says; 0 when it does not. */
struct device_vitals {
    double sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
    double energy_j; /* since the driver was loaded, in steps of about a tenth of a second */
};

/* What else is there that changes how long work takes, as far as the device's driver says; zeros:
 * nothing, or it does not say. Of the time before this process opened it, but for `is_slowed`. */
struct device_surroundings {
    bool has_time_limit;     /* kernels of some seconds are ended: a display's watchdog */
    bool is_slowed;          /* just now, by heat or by its power supply, not by its power limit */
    int32_t n_others;        /* programs that computed on it */
    int64_t others_bytes;    /* of its memory that were taken */
    double limit_w, usual_w; /* the power limit that is kept to, and the one it is delivered with */
};

struct device;
struct device_event;  /* a moment in the queue */
struct device_graph;  /* calls to be issued again, all at once */
struct device_handle; /* memory without addresses */

struct device_table {
    uint32_t abi, size; /* DEVICE_ABI, sizeof this struct */
    const char *name;
    /* Whether a product adds to what is there (call_linear.add) for less than add() takes, rounded
     * once, so that an engine should have it do so. */
    bool adds_in_products;

    /* `text`, DEVICE_TEXT_CHARS long, says why where it fails. dtype is that of all calls; index
     * counts the machine's devices from 0. The calling thread may use the device at once, and no
     * other device any more; any other thread, once it has entered it. */
    int (*open)(int32_t index, enum kernel_dtype dtype, struct device **out, char *text);
    int (*enter)(struct device *device);
    void (*close)(struct device *device); /* releases whatever is left; NULL is fine */
    const char *(*trouble)(const struct device *device);
    int (*facts)(struct device *device, struct device_facts *out);
    void (*vitals)(struct device *device, struct device_vitals *out);
    void (*surroundings)(struct device *device, struct device_surroundings *out); /* may be NULL */

    /* Memory, aligned to 512 bytes. allocated_bytes: the sum of what allocate gave and release did
     * not take back; what the device needs for itself is not in it (own_bytes). */
    int (*allocate)(struct device *device, int64_t bytes, void **out);
    void (*release)(struct device *device, void *memory); /* NULL is fine */
    int64_t (*allocated_bytes)(const struct device *device);
    int64_t (*own_bytes)(const struct device *device);
    /* Host memory that copies reach without another copy. */
    int (*allocate_host)(struct device *device, int64_t bytes, void **out);
    void (*release_host)(struct device *device, void *memory);

    /* Addresses without memory (a range), memory without addresses (a handle), and mapping one to
     * the other. Sizes, and places in a range, are multiples of the granule. A handle is mapped
     * whole and at one place at a time; it keeps what is in it wherever it goes, and counts as
     * allocated. `allow` lets kernels and copies reach what was mapped at these addresses: whole
     * handles, as many as lie there side by side. All of this happens at once, ahead of the queue:
     * what work under way reaches must not be unmapped. Closing unmaps; that of a handle waits, as
     * release does. NULL is fine. */
    int (*granule)(struct device *device, int64_t *bytes);
    int (*range_open)(struct device *device, int64_t bytes, void **out);
    void (*range_close)(struct device *device, void *range);
    int (*handle_open)(struct device *device, int64_t bytes, struct device_handle **out);
    void (*handle_close)(struct device *device, struct device_handle *handle);
    int (*map)(struct device *device, void *at, struct device_handle *handle);
    int (*allow)(struct device *device, void *at, int64_t bytes);
    int (*unmap)(struct device *device, struct device_handle *handle);

    /* Copies in the queue. upload: `from` (allocate_host) stays until the work is done. download:
     * returns when `to` is filled. copy: the ranges may overlap. */
    int (*upload)(struct device *device, void *to, const void *from, int64_t bytes);
    int (*download)(struct device *device, void *to, const void *from, int64_t bytes);
    int (*copy)(struct device *device, void *to, const void *from, int64_t bytes);
    int (*clear)(struct device *device, void *to, int64_t bytes);
    int (*finish)(struct device *device); /* until the queue is empty */

    /* Copies between the device's memory and the host's in a queue of their own: n pieces of
     * `bytes` each, `pitch` apart from `memory` on, next to each other at `host` (allocate_host).
     * They begin once all that was issued before them is done, one after the other, and what is
     * issued after them waits for them. swap_wait: returns when all of them are done. */
    int (*swap_out)(struct device *device, void *host, const void *memory, int64_t bytes,
                    int64_t pitch, int64_t n);
    int (*swap_in)(struct device *device, void *memory, const void *host, int64_t bytes,
                   int64_t pitch, int64_t n);
    int (*swap_wait)(struct device *device);

    /* Events: event_record puts one at the end of the queue, again if it stood elsewhere. */
    int (*event_open)(struct device *device, struct device_event **out);
    void (*event_close)(struct device *device, struct device_event *event);
    int (*event_record)(struct device *device, struct device_event *event);
    int (*event_reached)(struct device *device, struct device_event *event, bool *out);
    int (*event_wait)(struct device *device, struct device_event *event);
    /* Device time between two events that were reached. */
    int (*event_elapsed)(struct device *device, struct device_event *from, struct device_event *to,
                         double *ns);

    /* CUDA graphs; NULL where the device has none. Between begin and end, kernels, copies and
     * clears are captured instead of run, and all else but facts, vitals and the meters is refused.
     * launch issues them once more, reading the same addresses. */
    int (*capture_begin)(struct device *device);
    int (*capture_end)(struct device *device, struct device_graph **out);
    int (*graph_launch)(struct device *device, struct device_graph *graph);
    void (*graph_close)(struct device *device, struct device_graph *graph);

    /* on: from now on what a kernel computes of one request, or of one row, is the same bits
     * whatever else is in the call, at some cost in speed; graphs stay as they were captured. NULL
     * where that is always so. */
    void (*batch_invariant)(struct device *device, bool on);

    /* Whether `linear` knows how to run such a product. Where it does not its next call tries ways
     * out, which waits for the queue and may load code: on one of several ranks no other may wait
     * for work of this one meanwhile. NULL where nothing is tried. */
    bool (*linear_chosen)(const struct device *device, const struct call_linear *call);

    /* Ranks: devices that compute together, each driven by a thread of its own. ranks_open makes
     * the n devices ranks 0 to n - 1 until they are closed, which is done when none of them has
     * work under way; what is the matter with any of them is the first one's trouble. From then on
     * every rank issues the same all_reduce and all_gather calls in the same order; a device that
     * is no rank refuses them. ranks_break, of any thread: a rank issues no more, and calls of
     * others that wait for it fail, at once or after a while. */
    int (*ranks_open)(struct device *const *devices, int32_t n);
    void (*ranks_break)(struct device *device);

    /* The kernels. Scratch of block and paged attention is the device's own and not read from the
     * call, and neither is whether a call is invariant. */
#define KERNEL(name, cuda, cpu) int (*name)(struct device * device, const struct call_##name *call);
#define RANK_KERNEL(...)        KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"
};

/* Scratch of call_head, of any size. */
enum { HEAD_SCRATCH_BYTES = 60 << 20 };

extern const struct device_table device_cpu;

/* What libunmask_cuda.so exports under this name. */
#define DEVICE_CUDA_SYMBOL "unmask_device_cuda"
extern const struct device_table unmask_device_cuda;

/* And which kernels it has: the day of the last commit that changed them, "unknown" outside a
 * checkout, and a digest over them, "2026-11-23 0123456789ab". */
#define DEVICE_CUDA_BUILD_SYMBOL "unmask_cuda_build"
extern const char unmask_cuda_build[];

#ifdef __cplusplus
}
#endif

#endif
