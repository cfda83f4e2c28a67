/* Facts of the kernels that a profile's rows were timed with: tiles, their cost in addition to
 * their work, and when sequences are split. Times between and beyond measured sizes follow from
 * them. A profile has them in rows `tile,KEY,VALUE`, which calibrate writes; tiles_default has
 * the others. */
#ifndef UNMASK_SIM_PRICE_PROFILE_TILES_H
#define UNMASK_SIM_PRICE_PROFILE_TILES_H

#include <stdbool.h>
#include <stdio.h>

/* X(field, default): each above 0.
 *
 * query_rows, key_rows: size of a tile of attention; kernels of all known libraries work on 128
 * queries (the RTX 4090 and RTX PRO 6000 tables: 16 to 128 queries take one time).
 * item_tiles, launch_tiles: cost of 128 queries of a head in addition to their tiles of keys, and
 * of the launch, in the time of such a tile: least squares over the rows of LLaDA-8B, LLaDA-MoE
 * and Dream-7B on H100 and H200 (2.7 to 4.1, 2.0 to 3.4; 6 to 10 % off by itself).
 * product_rows: our products' tiles hold up to 256 rows (the H200 table jumps after the multiples
 * of 256, and of 128); streaming_rows: below, weights stream, and the line is straight.
 * step_rows: imported products' steps: on the RTX 4090 and RTX PRO 6000 tables (steps of 16 rows),
 * thinned to the pairs the other tables measure, 128 gave the least median error of {1, 16, 32, 64,
 * 128, 256}: 0.70 % and 0.39 %, against 1.39 % and 2.44 % without steps.
 * corrected_rows, corrected_from: in-step corrections of products go by whole tiles of
 * corrected_rows, above corrected_from rows.
 * split_blocks, split_fill: single queries' sequences are split among thread blocks while the batch
 * fills less than split_fill of split_blocks blocks a multiprocessor (num_splits_heuristic in
 * FlashAttention-2's csrc/flash_attn/flash_api.cpp). */
#define TILE_FACTS(X)                                                                              \
    X(query_rows, 128)                                                                             \
    X(key_rows, 64)                                                                                \
    X(item_tiles, 3)                                                                               \
    X(launch_tiles, 3)                                                                             \
    X(product_rows, 256)                                                                           \
    X(streaming_rows, 64)                                                                          \
    X(step_rows, 128)                                                                              \
    X(corrected_rows, 128)                                                                         \
    X(corrected_from, 512)                                                                         \
    X(split_blocks, 2)                                                                             \
    X(split_fill, 0.8)

struct tiles {
#define FIELD(name, initial) double name;
    TILE_FACTS(FIELD)
#undef FIELD
};
extern const struct tiles tiles_default;

/* The value of a row: false where there is no such key, or it is not above 0 and at most 65,536. */
bool tiles_take(struct tiles *tiles, const char *key, double value);

/* All of them as rows of a profile. */
void tiles_write(const struct tiles *tiles, FILE *file);

#endif
