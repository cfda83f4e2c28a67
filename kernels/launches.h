/* How large the blocks of the kernels' launches are: the threads and the dynamic shared memory that
 * the launchers ask for. Plain C, so that tests/kernels/test_limits.c holds every choice against
 * the limits of every architecture without a GPU. What a kernel takes by itself, registers and
 * static shared memory, `make kernels-limits` reads off the compiled code. */
#ifndef UNMASK_KERNELS_LAUNCHES_H
#define UNMASK_KERNELS_LAUNCHES_H

enum {
    /* Threads of a block where no shape changes them. */
    ELEMENTWISE_THREADS = 256,
    COMPACT_THREADS = 128,
    SIMILARITY_THREADS = 256, /* a warp for each row */
    FEATURE_THREADS = 128,    /* a block for each row */
    SOFTMAX_THREADS = 512,
    EXPECTED_THREADS = 256, /* keeping and adding expected embeddings */
    NEXT_STEP_THREADS = 1024,
    SAMPLE_THREADS = 512,
    PENALISE_THREADS = 128,
    CREDIT_THREADS = 128,
    HEAD_REDUCE_THREADS = 256,
    HEAD_MERGE_THREADS = 128,
    HEAD_THREADS = 384,
    SCORE_THREADS = 128,
    SUM_THREADS = 128,
    PACK_THREADS = 256,
    ROUTE_THREADS = 128,
    MOE_COMBINE_THREADS = 256,
    MOE_MMA_THREADS = 128,
    MOE_FEEDERS = 128, /* of MOE_WGMMA_THREADS, those that fetch */
    MOE_WGMMA_THREADS = MOE_FEEDERS + 256,
    PRODUCT_THREADS = 384,
    FEW_LINEAR_WORKERS = 256,
    FEW_LINEAR_THREADS = FEW_LINEAR_WORKERS + 32,
    DENSE_THREADS = 128,
    WARPGROUP_THREADS = 384,
    FEW_ATTENTION_THREADS = 128,
    RANKS_THREADS = 512,
    RANKS_COMBINE_THREADS = 128,

    /* Dynamic shared memory: rings of stages, on sm_90a aligned by the kernel itself. */
    RING_ALIGNMENT = 1024,
    PRODUCT_RING_BYTES = 200 << 10,
    FEW_LINEAR_RING_BYTES = 108 << 10, /* two blocks a multiprocessor */
    MOE_RING_BYTES = 208 << 10,
    MOE_FEW_RING_BYTES = 108 << 10,             /* two blocks a multiprocessor */
    HEAD_RING_BYTES = 4 * (128 + 256) * 64 * 2, /* four stages of rows and tokens by 64 channels */
    DENSE_TILE_ROWS = 128,
    DENSE_TILE_KEYS = 64,
    DENSE_BYTES = (DENSE_TILE_ROWS + 4 * DENSE_TILE_KEYS) * 256, /* keys and values in two stages */
    DENSE_WGMMA_STAGES = 2,
    PAGED_WGMMA_STAGES = 3,
    WARPGROUP_TILE_BYTES = 128 * 256, /* 128 rows of a head of 128 */
    FEW_ATTENTION_STAGES = 3,
    FEW_ATTENTION_STAGE_BYTES = 2 * 64 * 256, /* keys and values of 64 rows */
    MOE_MMA_STAGES = 3,
    MOE_MMA_STAGE_BYTES = (128 + 64) * 64 * 2, /* rows of weights and pairs by 64 channels */
    LINE_STAGES = 3,
    LINE_MERGE_COLUMNS = 64,

    /* Threads that a shape changes, at most (launch_shapes.h). */
    NORM_MOST_THREADS = 512,
    NORM_THREADS = 256,
    NORM_MANY_ROWS_THREADS = 128,
    ROPE_MOST_THREADS = 256,
    ROPE_HEADS = 3,     /* a group of threads */
    SORT_FEW_WARPS = 8, /* where one block of so few is enough: they have less to add up */
    SORT_WARPS = 32,
    SORT_TURNS = 8, /* of 32 pairs a warp, which stay in registers */
    RANKED_FEW_ROWS = 64,
    RANKED_FEW_THREADS = 64,
    RANKED_THREADS = 512,
};

/* Attention of warpgroup.cuh: queries, then stages of keys and of values. */
#define WARPGROUP_BYTES(stages) ((1 + 2 * (stages)) * WARPGROUP_TILE_BYTES + RING_ALIGNMENT)

#endif
