/* Which of its steps a device has captured as CUDA graphs: a step that comes a second time is, and
 * from then on its graph is launched. Until then its operators are issued one by one, with gaps
 * between them that a graph has not (struct step_price, issued_ns). Steps that the host issues at
 * once (unroll.maximum) come as one: all of them are issued one by one, or all are launched.
 *
 * The engine goes by this, and the simulator foresees what it does. Steps are told apart by a key:
 * the engine's says all that a step's launches depend on, the simulator's the sums that these
 * follow from (captured_key). The steps used longest ago are forgotten first. Nothing is allocated.
 */
#ifndef UNMASK_SIM_PRICE_CAPTURED_H
#define UNMASK_SIM_PRICE_CAPTURED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sim/step/shape.h"

enum { MAX_CAPTURED = 64, MAX_KNOWN_STEPS = 2 * MAX_CAPTURED };

/* All zero before the first step. */
struct captured {
    struct {
        uint64_t key;
        bool is_captured;
    } steps[MAX_KNOWN_STEPS]; /* n_known of them are taken */
    uint32_t n_known, n_captured;
    uint8_t order[MAX_KNOWN_STEPS]; /* their places: the one used longest ago first */
    uint8_t last[MAX_KNOWN_STEPS]; /* where a key with these last bits was found: the first guess */
};

/* The place of a key, used now; a new one takes that of the step which is not captured and was used
 * longest ago, of which at least MAX_CAPTURED exist. `is_new` says which. */
uint32_t captured_find(struct captured *captured, uint64_t key, bool *is_new);

/* Says that the step in `place` is captured. The place whose capture makes room for it, where all
 * are taken: it is forgotten, and MAX_KNOWN_STEPS where there is none. */
uint32_t captured_keep(struct captured *captured, uint32_t place);

/* Forgets that the step in `place` was captured. */
void captured_drop(struct captured *captured, uint32_t place);

/* What comes next, of a step that is issued or launched as the engine does it: true: its operators
 * are issued one by one. */
bool captured_issues(struct captured *captured, uint64_t key);

/* FNV-1a over words of eight bytes, with a multiplier of as many bits, whose upper half is folded
 * into the lower one. */
static inline uint64_t captured_hash_word(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 32;
}

/* Equal for equal bytes, and as good as never otherwise. */
static inline uint64_t captured_hash(const void *bytes, size_t n) {
    enum { LANES = 4 }; /* which the processor multiplies side by side */
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word[LANES];
    uint64_t lanes[LANES] = {hash, ~hash, hash << 1, ~hash << 1};
    size_t at = 0;
    for (; at + sizeof word <= n; at += sizeof word) {
        memcpy(word, (const char *)bytes + at, sizeof word);
        for (int i = 0; i < LANES; i++) {
            lanes[i] = captured_hash_word(lanes[i], word[i]);
        }
    }
    for (int i = 0; at > 0 && i < LANES; i++) {
        hash = captured_hash_word(hash, lanes[i]);
    }
    for (; at < n; at += sizeof *word) {
        const size_t left = n - at < sizeof *word ? n - at : sizeof *word;
        *word = 0;
        memcpy(word, (const char *)bytes + at, left);
        hash = captured_hash_word(hash, *word);
    }
    return hash;
}

/* Of a step's sums, which are small: a polynomial in an odd number tells them apart as well as
 * captured_hash does, in less than half the time. */
static inline uint64_t captured_sums_hash(const int64_t sym[SYM_COUNT]) {
    enum { LANES = 4 };
    uint64_t lanes[LANES] = {1, 2, 3, 4}, hash = 0;
    for (int i = 0; i < SYM_COUNT; i += LANES) {
        for (int lane = 0; lane < LANES && i + lane < SYM_COUNT; lane++) {
            lanes[lane] = lanes[lane] * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)sym[i + lane];
        }
    }
    for (int i = 0; i < LANES; i++) {
        hash = captured_hash_word(hash, lanes[i]);
    }
    return hash;
}

/* Of a step in simulation, more exactly where its spans are given: launches go by the longest of
 * them, too, and by how many decide, which commit passes do not. They depend on what requests
 * attend to only by the pages, of `page_rows` rows, that the longest has, to a power of two;
 * page_rows 0: there are none. */
uint64_t captured_key(const struct step_shape *shape, uint32_t page_rows);

#endif
