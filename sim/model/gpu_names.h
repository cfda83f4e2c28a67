/* Names of GPUs: when two are one, and what to say about one that no file has. */
#ifndef UNMASK_SIM_MODEL_GPU_NAMES_H
#define UNMASK_SIM_MODEL_GPU_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/names.h"

/* Whether two names, of that many characters, have the same letters and digits, in small letters or
 * capitals, leaving out the maker and the brand ("NVIDIA GeForce RTX 4090" is "rtx4090"). */
bool gpu_names_equal(const char *a, size_t n_a, const char *b, size_t n_b);

/* The end of a sentence about a GPU `word` that is not among `names`, which end with NULL: those
 * that `word` begins ("a100": a100-40g, a100-80g), or the one of which it is a slip of the pen:
 * two characters changed places, or one that stands next to its like is missing or too many.
 * Anything else may be another card (an A800 is no H800, an L40 no L40S), so that nothing is
 * hinted at: how a card is described is said instead. Returns `text`. */
const char *gpu_hint(const char *word, const char *const *names, char text[NAME_HINT_CHARS]);

#endif
