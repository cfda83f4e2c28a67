/* What the experts' products on sm_90a share, whatever the type of their weights (moe_wgmma.cu,
 * moe_fp8.cu): a ring of stages that a warpgroup fills by tensor copies and by asynchronous ones.
 */
#ifndef UNMASK_KERNELS_MOE_RING_CUH
#define UNMASK_KERNELS_MOE_RING_CUH

#include "kernels/hopper.cuh"
#include "kernels/moe/moe.cuh"

/* The ring of stages and its barriers, in shared memory, and a thread's place in it. */
struct stage_ring {
    uint32_t stages, full, empty;
    int stage_bytes, n_stages, at, parity;
};

#if HOPPER_DEVICE
static __device__ __forceinline__ void ring_advance(struct stage_ring *ring) {
    if (++ring->at == ring->n_stages) {
        ring->at = 0;
        ring->parity ^= 1;
    }
}

static __device__ __forceinline__ void tensor_copy_groups(uint32_t to, const CUtensorMap *map,
                                                          uint32_t barrier, int column, int group,
                                                          int expert) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %4, %5, %6}], [%2];\n" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(0), "r"(group), "r"(expert)
                 : "memory");
}
#endif

#endif
