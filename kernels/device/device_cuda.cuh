/* What the parts of the CUDA device share. */
#ifndef UNMASK_KERNELS_DEVICE_DEVICE_CUDA_CUH
#define UNMASK_KERNELS_DEVICE_DEVICE_CUDA_CUH

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "kernels/device.h"
#include "kernels/device/mapped.h"
#include "kernels/kernels.h"

struct held;    /* something that close must release; a list */
struct nvml;    /* the driver's monitor, where there is one */
struct linears; /* how products are run */
struct rank;    /* its part in what ranks do together */

/* The linear part writes its plans and the product's own memory; the mapped part what is mapped and
 * its share of the allocated bytes; all else is device_cuda.cu's. */
struct device {
    int index;                  /* among the CUDA devices this process sees */
    cudaStream_t stream, swaps; /* that of swaps is opened with the first of them */
    cudaEvent_t swap_begins, swap_ends;
    struct held *held;
    struct nvml *nvml;
    struct head *head;
    struct linears *linears;
    void *block_scratch;
    int64_t block_scratch_bytes;
    int64_t allocated_bytes, context_bytes;
    struct mapped mapped;
    bool capturing, failed;
    struct rank *rank; /* NULL: alone */
    bool invariant;    /* whatever else is in a call, the same bits */
    char trouble[DEVICE_TEXT_CHARS];
};

/* DEVICE_OK, or DEVICE_FAILED with "what: the reason" as the trouble; the first one stays. */
int device_status(struct device *device, cudaError_t status, const char *what);
/* DEVICE_REFUSED with this trouble. */
int device_refuse(struct device *device, const char *text);

/* Whether a graph is being captured, in which case `what`, which cannot be, is refused. */
bool capturing(struct device *device, const char *what);

enum held_kind { HELD_MEMORY, HELD_HOST_MEMORY, HELD_EVENT, HELD_GRAPH };

/* What close releases unless the caller does before; false without host memory. */
bool held_add(struct device *device, enum held_kind kind, void *what, int64_t bytes);
void held_release(struct device *device, enum held_kind kind, void *what);

/* Memory that is free between any two calls in the queue: the part after block attention's
 * counters. */
void *device_spare(const struct device *device, int64_t *bytes);

/* NULL when cuBLASLt or its workspace is not to be had; *trouble says which. */
struct linears *linears_open(const char **trouble);
void linears_close(struct linears *linears);
int64_t linears_bytes(const struct linears *linears);
bool device_linear_chosen(const struct device *device, const struct call_linear *call);
/* Gates and ups in fp8; with inputs in bf16 the products' own memory takes expanded weights. */
cudaError_t device_gate_up_fp8(struct device *device, const struct call_gate_up *call);
/* Whether a row of a product is the same bits whatever number of rows is computed with it. */
void linears_set_invariant(struct linears *linears, bool invariant);

/* Mapped memory; mapped_close gives back whatever is left of it. */
int device_granule(struct device *device, int64_t *bytes);
int device_range_open(struct device *device, int64_t bytes, void **out);
void device_range_close(struct device *device, void *at);
int device_handle_open(struct device *device, int64_t bytes, struct device_handle **out);
void device_handle_close(struct device *device, struct device_handle *handle);
int device_map(struct device *device, void *at, struct device_handle *handle);
int device_allow(struct device *device, void *at, int64_t bytes);
int device_unmap(struct device *device, struct device_handle *handle);
void device_mapped_close(struct device *device);

/* Ranks; close leaves them. */
int device_ranks_open(struct device *const *devices, int32_t n);
void device_ranks_break(struct device *device);
void device_ranks_close(struct device *device);
int64_t device_ranks_bytes(const struct device *device);

/* Copies, events and graphs (device_cuda_queue.cu). */
int device_upload(struct device *device, void *to, const void *from, int64_t bytes);
int device_download(struct device *device, void *to, const void *from, int64_t bytes);
int device_copy(struct device *device, void *to, const void *from, int64_t bytes);
int device_clear(struct device *device, void *to, int64_t bytes);
int device_finish(struct device *device);
int device_swap_out(struct device *device, void *host, const void *memory, int64_t bytes,
                    int64_t pitch, int64_t n);
int device_swap_in(struct device *device, void *memory, const void *host, int64_t bytes,
                   int64_t pitch, int64_t n);
int device_swap_wait(struct device *device);
void device_swaps_close(struct device *device);
int device_event_open(struct device *device, struct device_event **out);
void device_event_close(struct device *device, struct device_event *event);
int device_event_record(struct device *device, struct device_event *event);
int device_event_reached(struct device *device, struct device_event *event, bool *out);
int device_event_wait(struct device *device, struct device_event *event);
int device_event_elapsed(struct device *device, struct device_event *from, struct device_event *to,
                         double *ns);
int device_capture_begin(struct device *device);
int device_capture_end(struct device *device, struct device_graph **out);
int device_graph_launch(struct device *device, struct device_graph *graph);
void device_graph_close(struct device *device, struct device_graph *graph);

/* The kernels. */
#define KERNEL(name, cuda, cpu)                                                                    \
    int device_##name(struct device *device, const struct call_##name *call);
#define RANK_KERNEL(...) KERNEL(__VA_ARGS__)
#include "kernels/kernels.def"

/* What the library was compiled for, as "80 86 90a": kernels/rules/code.h reads it. */
extern const char kernels_code[];
/* Whether the library has code for the current device, by the runtime's attributes of one kernel.
 */
cudaError_t kernels_have_code();

/* NULL when the monitor is absent. What others do on the device is asked at once, so that this
 * process is not among them when it has not used the device before. */
struct nvml *nvml_open(int index);
void nvml_surroundings(struct nvml *nvml, struct device_surroundings *out);
void nvml_close(struct nvml *nvml);
void nvml_vitals(struct nvml *nvml, struct device_vitals *out);
int64_t nvml_used_bytes(struct nvml *nvml); /* of the device's memory, by everybody; 0: unknown */

#endif
