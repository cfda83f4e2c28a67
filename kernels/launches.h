/* How large the blocks of the kernels' launches are: the threads and the dynamic shared memory that
 * the launchers ask for. Plain C, so that tests/kernels/test_limits.c holds every choice against
 * the limits of every architecture without a GPU. What a kernel takes by itself, registers and
 * static shared memory, `make kernels-limits` reads off the compiled code. */
#ifndef UNMASK_KERNELS_LAUNCHES_H
#define UNMASK_KERNELS_LAUNCHES_H

enum {
    /* Threads of a block where no shape changes them. */
    ELEMENTWISE_THREADS = 256,
    QUANTISE_THREADS = 256,
    COMPACT_THREADS = 128,
    SIMILARITY_THREADS = 256, /* a warp for each row */
    FEATURE_THREADS = 128,    /* a block for each row */
    SOFTMAX_THREADS = 512,
    RENOISE_THREADS = 512,
    CONDITION_THREADS = 256,
    WINDOW_THREADS = 256,   /* warps of 16 of 64 rows, two that share columns and keys */
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
    ROUTE_BLOCK_THREADS = 256, /* one for every expert */
    MOE_COMBINE_THREADS = 256,
    MOE_MMA_THREADS = 128,
    MOE_FEEDERS = 128, /* of MOE_WGMMA_THREADS, those that fetch */
    MOE_WGMMA_THREADS = MOE_FEEDERS + 256,
    PRODUCT_THREADS = 384,
    FEW_LINEAR_WORKERS = 256,
    FEW_LINEAR_THREADS = FEW_LINEAR_WORKERS + 32,
    FP8_MMA_THREADS = 128,
    DENSE_THREADS = 128,
    WARPGROUP_THREADS = 384,
    FEW_ATTENTION_THREADS = 128,
    PATTERN_THREADS = 128,
    RANKS_THREADS = 512,
    RANKS_COMBINE_THREADS = 128,

    /* Dynamic shared memory: rings of stages, on sm_90a aligned by the kernel itself. */
    RING_ALIGNMENT = 1024,
    PRODUCT_RING_BYTES = 200 << 10,
    FEW_LINEAR_RING_BYTES = 108 << 10, /* two blocks a multiprocessor */
    EVEN_LINEAR_BYTES = 225 << 10,     /* what one block may have, next to its barriers */
    FP8_RING_BYTES = 192 << 10,        /* four stages of inputs and weights of 128 and 256 rows */
    FP8_MMA_STAGES = 3,
    FP8_MMA_STAGE_BYTES =
        (64 + 2 * 64) * 128 + 64 * 4, /* 64 rows of weights, of inputs in bf16, scales */
    MOE_RING_BYTES = 208 << 10,
    MOE_FEW_RING_BYTES = 108 << 10,             /* two blocks a multiprocessor */
    MOE_FP8_FEW_RING_BYTES = 109 << 10,         /* with the stages' scales */
    HEAD_RING_BYTES = 4 * (128 + 256) * 64 * 2, /* four stages of rows and tokens by 64 channels */
    DENSE_WGMMA_STAGES = 2,
    FEW_ATTENTION_STAGES = 3,
    FEW_ATTENTION_STAGE_BYTES = 2 * 64 * 256, /* keys and values of 64 rows */
    MOE_MMA_STAGES = 3,
    MOE_MMA_STAGE_BYTES = (128 + 64) * 64 * 2, /* rows of weights and pairs by 64 channels */

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

/* Two tiles of 64 keys, and the shares of n_blocks blocks of keys among all and among the output's.
 */
#define PATTERN_BYTES(head_size, n_blocks)                                                         \
    (2 * 64 * 2 * (head_size) + 2 * (int64_t)sizeof(float) * (n_blocks))
/* Keys and values of a tile in two stages; of wide heads a block may have no more than half as many
 * rows where it has 99 KiB. */
#define PATTERN_TILE_KEYS(D)               ((D) > 128 ? 32 : 64)
#define PATTERN_ATTENTION_BYTES(head_size) (2 * 2 * PATTERN_TILE_KEYS(head_size) * 2 * (head_size))

/* Dense attention of heads of D channels: a warp has as many fragments of 16 rows as its registers
 * have room for; keys and values are in two stages. */
#define DENSE_FRAGMENTS(D) ((D) > 128 ? 1 : 2)
#define DENSE_TILE_ROWS(D) (DENSE_THREADS / 32 * 16 * DENSE_FRAGMENTS(D))
#define DENSE_TILE_KEYS(D) (32 * DENSE_FRAGMENTS(D))
#define DENSE_BYTES(D)     ((DENSE_TILE_ROWS(D) + 4 * DENSE_TILE_KEYS(D)) * (D)*2)

/* Block and paged attention (launch_shapes.h says which shape): the most warps of 16 rows, the
 * stages, and the columns that warps of the same rows merge at a time. */
#define LINE_MOST_WARPS(D)    ((D) > 128 ? 4 : 8)
#define LINE_STAGES(D)        ((D) > 128 ? 2 : 3)
#define LINE_MERGE_COLUMNS(D) ((D) % 64 == 0 ? 64 : 32)

/* Attention with a window and of wide heads: 64 rows of queries, keys and values of a tile in two
 * stages, the tile's probabilities, and peaks and sums of both halves of its keys. */
#define WINDOW_TILE_KEYS(D) ((D) > 256 ? 32 : 64)
#define WINDOW_BYTES(D)                                                                            \
    ((64 + 4 * WINDOW_TILE_KEYS(D)) * (D)*2 + 64 * WINDOW_TILE_KEYS(D) * 2 + 4 * 64 * 4)

/* Neighbouring lanes that share a head when it is rotated, 16 channels each: a power of two. */
#define ROPE_LANES(D) ((D) > 256 ? 32 : (D) > 128 ? 16 : (D) > 64 ? 8 : 4)

/* Lanes that share a key, 8 channels each, when a block's context is chosen: a power of two. */
#define SELECT_LANES(D) ((D) > 128 ? 32 : (D) > 64 ? 16 : 8)

/* Attention of warpgroup.cuh: 128 rows of queries, then stages of keys and of values, all in planes
 * of 64 columns, 128 bytes of a row. */
#define PAGED_WGMMA_STAGES(D)  ((D) > 128 ? 2 : 3)
#define WARPGROUP_TILE_KEYS(D) ((D) > 128 ? 64 : 128)
#define WARPGROUP_PLANES(D)    (((D) + 63) / 64)
#define WARPGROUP_BYTES(D, stages)                                                                 \
    ((128 + 2 * (stages)*WARPGROUP_TILE_KEYS(D)) * WARPGROUP_PLANES(D) * 128 + RING_ALIGNMENT)

#endif
