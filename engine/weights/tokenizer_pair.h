/* A byte-level tokenizer in two files, vocab.json and merges.txt, as GPT-2's and Qwen2's classes of
 * `transformers` save it and as Dream is published: read into what tokenizer.json would have said.
 */
#ifndef UNMASK_ENGINE_WEIGHTS_TOKENIZER_PAIR_H
#define UNMASK_ENGINE_WEIGHTS_TOKENIZER_PAIR_H

#include <jansson.h>
#include <stdbool.h>

#include "sim/base/err.h"

/* Whether the folder has both files. */
bool tokenizer_pair_is_there(const char *folder);

/* The object of a tokenizer.json, which the caller releases: vocabulary and merges of the two
 * files, added tokens and the class of tokenizer_config.json (`added_tokens_decoder`,
 * `tokenizer_class`), the class's splits. NULL and a sentence: ERR_USAGE for a class whose splits
 * are not known. */
json_t *tokenizer_pair_read(const char *folder, struct err *err);

#endif
