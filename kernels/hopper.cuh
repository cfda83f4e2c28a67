/* Hopper's own instructions (sm_90a): tensor copies, transaction barriers, register shares.
 * Warpgroup products are in wgmma.cuh. */
#ifndef UNMASK_KERNELS_HOPPER_CUH
#define UNMASK_KERNELS_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER_DEVICE 1
#else
#define HOPPER_DEVICE 0
#endif

/* A row-major matrix [rows, 64 columns at a time] of bf16 as tensor copies see it: box_rows rows of
 * box_planes times 128 bytes, swizzled. planes is a third, middle dimension (heads); 1 when there
 * is none. false when the driver lacks tensor maps or refuses the shape. */
bool hopper_map(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_planes,
                int64_t plane_stride, int64_t n_rows, int64_t row_stride, int box_rows,
                int box_planes = 1);
/* Weights [n_experts, 2, 8 n_groups, n_columns], gates before ups, as boxes of 64 columns of eight
 * groups: eight rows of gates, then the eight ups that belong to them, swizzled. */
bool hopper_map_groups(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_groups,
                       int64_t n_experts);
/* The same of codes of fp8, 128 columns at a time: rows of row_bytes, and groups. Both multiples of
 * 16, as n_columns is for groups. */
bool hopper_map_fp8(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_rows,
                    int64_t row_bytes, int box_rows);
bool hopper_map_groups_fp8(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_groups,
                           int64_t n_experts);
/* Whether the current device runs sm_90a code. */
bool hopper_device();

#if HOPPER_DEVICE

static __device__ __forceinline__ void barrier_init(uint32_t barrier, int n_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(n_arrivals));
}

static __device__ __forceinline__ void barrier_expect(uint32_t barrier, int n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier),
                 "r"(n_bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/* Arrives once the copies that this thread has begun are done. */
static __device__ __forceinline__ void barrier_arrive_copied(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier)
                 : "memory");
}

/* What ordinary and asynchronous copies have written is there for the tensor cores, too. */
static __device__ __forceinline__ void fence_copied() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/* Arrives at the barrier of the same offset in another block of the cluster. */
static __device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, int block) {
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(barrier),
                 "r"(block)
                 : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t barrier, int parity) {
    asm volatile("{\n.reg .pred done;\nwait:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni go;\nbra.uni wait;\ngo:\n}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* The same, spinning where it stands: the compiler lays barrier_wait's loop elsewhere in some
 * kernels, which costs where waiting is common. */
static __device__ __forceinline__ void barrier_spin(uint32_t barrier, int parity) {
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

static __device__ __forceinline__ void
tensor_copy(uint32_t to, const CUtensorMap *map, uint32_t barrier, int column, int plane, int row) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(plane), "r"(row)
                 : "memory");
}

/* The same, into every block of the cluster whose bit is set. */
static __device__ __forceinline__ void tensor_copy_to(uint32_t to, const CUtensorMap *map,
                                                      uint32_t barrier, int column, int plane,
                                                      int row, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;\n" ::"r"(to),
                 "l"(map), "r"(barrier), "h"(blocks), "r"(column), "r"(plane), "r"(row)
                 : "memory");
}

template <int REGISTERS> static __device__ __forceinline__ void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}

template <int REGISTERS> static __device__ __forceinline__ void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}

static __device__ __forceinline__ void named_barrier_sync(int id, int n_threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(n_threads) : "memory");
}

static __device__ __forceinline__ void named_barrier_arrive(int id, int n_threads) {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(n_threads) : "memory");
}

/* By all threads of all blocks of a cluster: what they wrote to shared memory is there. */
static __device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ int cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
    return (int)rank;
}

/* Where the same place of a block's own shared memory is in another block of the cluster. */
static __device__ __forceinline__ uint32_t cluster_address(uint32_t own, int block) {
    uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(address) : "r"(own), "r"(block));
    return address;
}

static __device__ __forceinline__ float4 cluster_load4(uint32_t address) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

static __device__ __forceinline__ float2 cluster_load2(uint32_t address) {
    float2 v;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];\n"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(address)
                 : "memory");
    return v;
}

#endif
#endif
