/* A tokenizer: text to the token ids of a model and back, as Hugging Face's tokenizer.json says.
 *
 * Byte-level byte pair encoding, which is what the Qwen, Llama 3, LLaDA and Dream families use:
 *   added tokens     matched first, the longest where several begin; lstrip and rstrip
 *   normalizer       none or NFC
 *   pre_tokenizer    Split (a regular expression or a string; Isolated or Removed), Digits and
 *                    ByteLevel, in a Sequence or alone; ByteLevel is there
 *   model            BPE, merges as "a b" or ["a", "b"]; ignore_merges
 *   post_processor   special tokens before a single text (TemplateProcessing)
 *   decoder          ByteLevel
 * A file that asks for anything else is refused in one sentence that says what. Ids and bytes are
 * those of Hugging Face's `tokenizers`, against which the tests hold them, but for two things:
 * text that is not UTF-8, and a byte that the vocabulary lacks, are errors here. */
#ifndef UNMASK_ENGINE_WEIGHTS_TOKENIZER_H
#define UNMASK_ENGINE_WEIGHTS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

struct tokenizer;

/* Ids that grow; starts zeroed, free `ids`. */
struct token_ids {
    int32_t *ids;
    size_t n, room;
};
void token_ids_add(struct token_ids *ids, int32_t id);

/* FOLDER/tokenizer.json, else FOLDER/vocab.json with merges.txt (tokenizer_pair.h). ERR_USAGE where
 * the folder has neither; ERR_WORLD where it is broken or asks for what is not supported. */
int tokenizer_open(const char *folder, struct tokenizer **out, struct err *err);
/* The same of text already read; `path` is for sentences. */
int tokenizer_parse(const char *path, const char *text, size_t size, struct tokenizer **out,
                    struct err *err);
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is fine */

/* Ids are below this. */
uint32_t tokenizer_n_ids(const struct tokenizer *tokenizer);

/* ERR_USAGE where ids reach beyond a model's vocabulary: the tokenizer is another model's. */
int tokenizer_check_fits(const struct tokenizer *tokenizer, const char *model, uint32_t vocab,
                         struct err *err);

/* The id of a token as it is written, such as "<|endoftext|>", or -1. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token);

/* Adds the tokens that begin every text, such as <|begin_of_text|>; most tokenizers have none. */
void tokenizer_begin(const struct tokenizer *tokenizer, struct token_ids *out);

/* ERR_USAGE names the byte of text[0..n) that is not UTF-8. */
int tokenizer_check_text(const char *text, size_t n, struct err *err);

/* Adds the tokens of text[0..n). ERR_USAGE as tokenizer_check_text, or names a byte that the
 * vocabulary lacks. One caller at a time. */
int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t n, struct token_ids *out,
                     struct err *err);

/* The bytes of a token, *n of them; not ended, and of several tokens not UTF-8 each. NULL and 0
 * for an id that there is not. */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *n);
/* Whether people are not shown it: an end of text, a mask. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

/* The text of ids, special tokens left out unless they are asked for: *length bytes (NULL: not
 * wanted) and a zero, UTF-8 with U+FFFD for what is none. The caller frees it. */
char *tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t n,
                       bool shows_special, size_t *length);

#endif
