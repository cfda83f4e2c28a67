/* The CUDA device as one of several ranks: memory that the others write into, where they reach it,
 * and NCCL, loaded when ranks are opened, for what is large or where they do not. */
#include <dlfcn.h>
#include <new>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/device/device_cuda.cuh"
#include "kernels/device/ranks.cuh"

/* ---- NCCL, as far as it is called ---- */

typedef struct ncclComm *nccl_comm;

/* nccl.h's numbers, the same in every release of NCCL 2. */
enum { NCCL_SUM = 0, NCCL_INT8 = 0, NCCL_FLOAT = 7, NCCL_BFLOAT16 = 9 };

struct nccl {
    int (*init_all)(nccl_comm *comms, int n, const int *devices);
    int (*destroy)(nccl_comm comm);
    int (*abort)(nccl_comm comm);
    const char *(*error)(int status);
    int (*all_reduce)(const void *x, void *y, size_t n, int type, int op, nccl_comm comm,
                      cudaStream_t stream);
    int (*all_gather)(const void *x, void *y, size_t n, int type, nccl_comm comm,
                      cudaStream_t stream);
};

/* NVLink multicast stays off, and connections are made at once and not while a graph is captured,
 * unless the environment has it otherwise. The library stays loaded. */
static const struct nccl *nccl_load() {
    static const struct nccl loaded = [] {
        struct nccl nccl = {};
        setenv("NCCL_NVLS_ENABLE", "0", 0);
        setenv("NCCL_RUNTIME_CONNECT", "0", 0);
        void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
        if (library) {
            *reinterpret_cast<void **>(&nccl.init_all) = dlsym(library, "ncclCommInitAll");
            *reinterpret_cast<void **>(&nccl.destroy) = dlsym(library, "ncclCommDestroy");
            *reinterpret_cast<void **>(&nccl.abort) = dlsym(library, "ncclCommAbort");
            *reinterpret_cast<void **>(&nccl.error) = dlsym(library, "ncclGetErrorString");
            *reinterpret_cast<void **>(&nccl.all_reduce) = dlsym(library, "ncclAllReduce");
            *reinterpret_cast<void **>(&nccl.all_gather) = dlsym(library, "ncclAllGather");
        }
        return nccl;
    }();
    const bool whole = loaded.init_all && loaded.destroy && loaded.abort && loaded.error &&
                       loaded.all_reduce && loaded.all_gather;
    return whole ? &loaded : nullptr;
}

/* ---- ranks ---- */

struct rank {
    struct rank_peers peers; /* n and rank also where they are not reached */
    unsigned char *staging;  /* the rank's own, followed by its words; NULL: not reached */
    const struct nccl *nccl; /* NULL: not there */
    nccl_comm comm;
};

static const int64_t OWN_BYTES = RANKS_STAGING_BYTES + (int64_t)sizeof(struct rank_words);

int64_t device_ranks_bytes(const struct device *device) {
    return device->rank && device->rank->staging ? OWN_BYTES : 0;
}

void device_ranks_close(struct device *device) {
    struct rank *rank = device->rank;
    if (!rank) {
        return;
    }
    if (rank->comm) {
        (void)(device->failed ? rank->nccl->abort(rank->comm) : rank->nccl->destroy(rank->comm));
    }
    cudaFree(rank->staging);
    delete rank;
    device->rank = nullptr;
}

/* What others wait for ends by itself: their kernels' patience, and NCCL's when it is aborted. */
void device_ranks_break(struct device *device) {
    device->failed = device->failed || device->rank != nullptr;
}

static bool all_reach_all(struct device *const *devices, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < n; j++) {
            int reaches = i == j;
            if (i != j && (devices[i]->index == devices[j]->index ||
                           cudaDeviceCanAccessPeer(&reaches, devices[i]->index,
                                                   devices[j]->index) != cudaSuccess ||
                           !reaches)) {
                cudaGetLastError();
                return false;
            }
        }
    }
    return true;
}

/* The memory that others write into, on the current device. */
static int open_staging(struct device *const *devices, int32_t n, int32_t rank) {
    struct device *device = devices[rank];
    for (int32_t other = 0; other < n; other++) {
        const cudaError_t status =
            other == rank ? cudaSuccess : cudaDeviceEnablePeerAccess(devices[other]->index, 0);
        if (status != cudaSuccess && status != cudaErrorPeerAccessAlreadyEnabled) {
            return device_status(device, status, "cudaDeviceEnablePeerAccess");
        }
        cudaGetLastError();
    }
    unsigned char *staging = nullptr;
    int status = device_status(device, cudaMalloc(&staging, (size_t)OWN_BYTES),
                               "cudaMalloc of what ranks send");
    if (status == DEVICE_OK) {
        status = device_status(device, cudaMemset(staging, 0, (size_t)OWN_BYTES), "cudaMemset");
    }
    if (status == DEVICE_OK) {
        status = device_status(device, cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    device->rank->staging = staging;
    return status;
}

static int open_peers(struct device *const *devices, int32_t n) {
    int status = DEVICE_OK;
    for (int32_t i = 0; status == DEVICE_OK && i < n; i++) {
        status = device_status(devices[i], cudaSetDevice(devices[i]->index), "cudaSetDevice");
        status = status == DEVICE_OK ? open_staging(devices, n, i) : status;
    }
    for (int32_t i = 0; status == DEVICE_OK && i < n; i++) {
        for (int32_t j = 0; j < n; j++) {
            unsigned char *staging = devices[j]->rank->staging;
            devices[i]->rank->peers.staging[j] = staging;
            devices[i]->rank->peers.words[j] =
                reinterpret_cast<struct rank_words *>(staging + RANKS_STAGING_BYTES);
        }
    }
    return status;
}

static int open_nccl(struct device *const *devices, int32_t n) {
    const struct nccl *nccl = nccl_load();
    nccl_comm comms[CALL_MAX_RANKS] = {};
    int indices[CALL_MAX_RANKS];
    for (int32_t i = 0; i < n; i++) {
        indices[i] = devices[i]->index;
    }
    const int status = nccl ? nccl->init_all(comms, n, indices) : 0;
    if (status != 0) {
        char text[DEVICE_TEXT_CHARS];
        snprintf(text, sizeof text, "ncclCommInitAll: %s", nccl->error(status));
        device_refuse(devices[0], text);
        return DEVICE_FAILED;
    }
    for (int32_t i = 0; nccl && i < n; i++) {
        devices[i]->rank->nccl = nccl;
        devices[i]->rank->comm = comms[i];
    }
    return DEVICE_OK;
}

int device_ranks_open(struct device *const *devices, int32_t n) {
    int current = 0;
    if (n < 2 || n > CALL_MAX_RANKS || (n & (n - 1)) != 0) {
        return device_refuse(devices[0], "ranks are 2, 4 or 8");
    }
    for (int32_t i = 0; i < n; i++) {
        devices[i]->rank = new (std::nothrow) struct rank();
        if (!devices[i]->rank) {
            device_refuse(devices[0], "no host memory");
            return DEVICE_NO_MEMORY;
        }
        devices[i]->rank->peers.n = n;
        devices[i]->rank->peers.rank = i;
    }
    cudaGetDevice(&current);
    const bool reached = all_reach_all(devices, n);
    int status = reached ? open_peers(devices, n) : DEVICE_OK;
    status = status == DEVICE_OK ? open_nccl(devices, n) : status;
    cudaSetDevice(current);
    for (int32_t i = 1; status != DEVICE_OK && i < n; i++) {
        if (devices[i]->failed && !devices[0]->failed) {
            snprintf(devices[0]->trouble, sizeof devices[0]->trouble, "%s", devices[i]->trouble);
            devices[0]->failed = true;
        }
    }
    if (status == DEVICE_OK && !reached && !devices[0]->rank->nccl) {
        device_refuse(devices[0], "the GPUs do not reach each other's memory, and there is no "
                                  "libnccl.so.2");
        return DEVICE_ABSENT;
    }
    return status;
}

/* ---- collective calls ---- */

static int nccl_status(struct device *device, int status, const char *what) {
    if (status == 0) {
        return DEVICE_OK;
    }
    if (!device->failed) {
        snprintf(device->trouble, sizeof device->trouble, "%s: %s", what,
                 device->rank->nccl->error(status));
    }
    device->failed = true;
    return DEVICE_FAILED;
}

static int reduce_own(struct device *device, const struct call_all_reduce *call, int64_t bytes) {
    const char *x = static_cast<const char *>(call->x);
    char *y = static_cast<char *>(call->y);
    int status = DEVICE_OK;
    for (int64_t at = 0; status == DEVICE_OK && at < bytes; at += RANKS_MOST_BYTES) {
        const int64_t left = bytes - at, most = RANKS_MOST_BYTES;
        const int64_t piece = left < most ? left : most;
        status = device_status(device,
                               ranks_all_reduce(&device->rank->peers, x + at, y + at, piece,
                                                call->dtype, device->stream),
                               "all_reduce");
    }
    return status;
}

int device_all_reduce(struct device *device, const struct call_all_reduce *call) {
    const struct rank *rank = device->rank;
    const int64_t bytes = call->n * (call->dtype == KERNEL_F32 ? 4 : 2);
    if (!rank) {
        return device_refuse(device, "all_reduce: the device is no rank");
    }
    if (call->n < 0 || call->n % 8 != 0 || (call->way == ALL_REDUCE_NCCL && !rank->nccl) ||
        (call->way == ALL_REDUCE_OWN && !rank->staging)) {
        return device_refuse(device, "all_reduce: a call that calls_ranks.h does not promise");
    }
    const bool prefers_nccl = call->way == ALL_REDUCE_CHOSEN && bytes > RANKS_MOST_BYTES;
    const bool by_nccl =
        call->way == ALL_REDUCE_NCCL || (prefers_nccl && rank->nccl) || !rank->staging;
    if (!by_nccl) {
        return reduce_own(device, call, bytes);
    }
    const int type = call->dtype == KERNEL_F32 ? NCCL_FLOAT : NCCL_BFLOAT16;
    return nccl_status(device,
                       rank->nccl->all_reduce(call->x, call->y, (size_t)call->n, type, NCCL_SUM,
                                              rank->comm, device->stream),
                       "ncclAllReduce");
}

int device_all_gather(struct device *device, const struct call_all_gather *call) {
    const struct rank *rank = device->rank;
    if (!rank) {
        return device_refuse(device, "all_gather: the device is no rank");
    }
    if (call->bytes < 0 || call->bytes % 4 != 0) {
        return device_refuse(device, "all_gather: a call that calls_ranks.h does not promise");
    }
    if (!rank->staging) {
        return nccl_status(device,
                           rank->nccl->all_gather(call->x, call->y, (size_t)call->bytes, NCCL_INT8,
                                                  rank->comm, device->stream),
                           "ncclAllGather");
    }
    const int64_t most = RANKS_SLOT_BYTES / rank->peers.n;
    int status = DEVICE_OK;
    for (int64_t at = 0; status == DEVICE_OK && at < call->bytes; at += most) {
        const int64_t left = call->bytes - at;
        status =
            device_status(device,
                          ranks_all_gather(&rank->peers, static_cast<const char *>(call->x) + at,
                                           static_cast<char *>(call->y) + at,
                                           left < most ? left : most, call->bytes, device->stream),
                          "all_gather");
    }
    return status;
}
