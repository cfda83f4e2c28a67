/* Merges of byte pair encoding: which two neighbouring tokens become which one, and in what order.
 *
 * Of all pairs of a word the one of the lowest rank is merged first, the leftmost where there are
 * several, until no pair has a rank: the order in which Hugging Face's `tokenizers` merges. */
#ifndef UNMASK_ENGINE_WEIGHTS_BPE_H
#define UNMASK_ENGINE_WEIGHTS_BPE_H

#include <stddef.h>
#include <stdint.h>

struct bpe;

struct bpe *bpe_open(size_t most_merges);
void bpe_close(struct bpe *bpe); /* NULL is fine */

/* The next merge, whose rank is the number of those before it. Of a pair that is added twice the
 * later one counts. No more than bpe_open was told of. */
void bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t made);

/* Merges ids[0..n), a word's bytes as tokens, in place; returns how many tokens are left.
 * O(n log n). One caller at a time. */
size_t bpe_merge(struct bpe *bpe, int32_t *ids, size_t n);

#endif
