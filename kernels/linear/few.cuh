/* What products of few tokens on sm_90a share, whatever the type of their weights (few_linear.cu,
 * fp8_few.cu): a tile is 128 rows of weights by all tokens, whose sums the blocks of a cluster add
 * up out of one another's shared memory. */
#ifndef UNMASK_KERNELS_LINEAR_FEW_CUH
#define UNMASK_KERNELS_LINEAR_FEW_CUH

#include "kernels/device.cuh"

enum {
    TILE_ROWS = 128,
    SUM_STRIDE = TILE_ROWS + 4, /* floats from a token's sums to the next one's */
};

#if HOPPER_DEVICE
/* A box of 128 bytes of columns of eight groups of eight gates and eight ups. */
static __device__ __forceinline__ void copy_groups(uint32_t to, const CUtensorMap *map,
                                                   uint32_t barrier, int column, int group) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %4, %5, %4}], [%2];\n" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(0), "r"(group)
                 : "memory");
}

/* By the workers: leaves the sums in shared memory, by token. */
template <int WIDTH>
static __device__ __forceinline__ void few_leave(float *sums, const float (&sum)[WIDTH / 2]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        const int token = i / 4 * 8 + lane % 4 * 2 + (i & 1);
        sums[token * SUM_STRIDE + row + i / 2 % 2 * 8] = sum[i];
    }
}

/* Four neighbouring sums of all the cluster's blocks, in their order. */
static __device__ __forceinline__ float4 few_total(uint32_t at, int n_blocks) {
    float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int block = 0; block < n_blocks; block++) {
        const float4 f = cluster_load4(cluster_address(at, block));
        total.x += f.x, total.y += f.y, total.z += f.z, total.w += f.w;
    }
    return total;
}

/* Adds the four numbers of `add` from element `at` on. */
static __device__ __forceinline__ void few_add(float4 *y, const void *add, int64_t at) {
    const uint2 raw =
        *reinterpret_cast<const uint2 *>(static_cast<const __nv_bfloat16 *>(add) + at);
    const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&raw.x));
    const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&raw.y));
    y->x += low.x, y->y += low.y, y->z += high.x, y->w += high.y;
}
#endif

#endif
